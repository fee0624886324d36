/* actors/ingress/upstream.c -- see upstream.h. */
#include "actors/ingress/upstream.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "actors/common/log.h"

#define RESOLVE_POLL_NS 5000000ull /* an attempt looks for its address so often */
#define RESOLVE_PAUSE_NS 1000000000ull /* after a failure, a name is asked for again */
#define RACE_PACE_NS 250000000ull  /* RFC 8305, 8: "Connection Attempt Delay" */

struct upstream_lookup {
	struct gaicb cb;
	struct gaicb *list[1];
	struct addrinfo hints;
	char host[ROW_URL_MAX], port[8];
};

int
upstreams_open(struct upstreams *ret, struct io *io, const struct rows *rows,
	       struct process_segment *process)
{
	*ret = (struct upstreams){
		.io = io, .rows = rows, .process = process, .keep_alive_ns = 4000000000ull,
		.per_worker_max = UINT32_MAX, .conns_keep = UINT32_MAX, .epoch = 1};
	ret->row = calloc(rows->capacity, sizeof *ret->row);
	return ret->row ? 0 : -ENOMEM;
}

/* --- addresses --------------------------------------------------------------------------- */

/* "unix:" and a path, which may be relative to the run directory, where we are; its one address is
 * known for good. */
static bool
parse_path(struct upstream *to)
{
	const char *path = to->url + strlen(ROW_URL_UNIX);
	struct sockaddr_un at = {.sun_family = AF_UNIX};

	if (path[0] == '\0' || strlen(path) >= sizeof at.sun_path)
		return false;
	snprintf(at.sun_path, sizeof at.sun_path, "%s", path);
	memcpy(&to->addr[0].addr, &at, sizeof at);
	to->addr[0].len = sizeof at;
	to->n_addrs = 1;
	snprintf(to->authority, sizeof to->authority, "localhost");
	return true;
}

static bool
parse_url(struct upstream *to)
{
	const char *p = to->url, *end, *colon;
	size_t host_len;

	to->local = strncmp(p, ROW_URL_UNIX, strlen(ROW_URL_UNIX)) == 0;
	if (to->local)
		return parse_path(to);
	to->https = strncmp(p, "https://", 8) == 0;
	if (to->https)
		p += 8;
	else if (strncmp(p, "http://", 7) == 0)
		p += 7;
	else if (strstr(p, "://"))
		return false;
	end = p + strcspn(p, "/?#");
	snprintf(to->authority, sizeof to->authority, "%.*s", (int)(end - p), p);
	if (*p == '[') {
		const char *close = memchr(p, ']', (size_t)(end - p));

		if (!close)
			return false;
		p++;
		host_len = (size_t)(close - p);
		colon = close + 1 < end && close[1] == ':' ? close + 1 : NULL;
	} else {
		colon = memchr(p, ':', (size_t)(end - p));
		host_len = (size_t)((colon ? colon : end) - p);
	}
	if (host_len == 0 || host_len >= sizeof to->host)
		return false;
	snprintf(to->host, sizeof to->host, "%.*s", (int)host_len, p);
	snprintf(to->port, sizeof to->port, "%.*s", colon ? (int)(end - colon - 1) : 3,
		 colon ? colon + 1 : to->https ? "443" : "80");
	return true;
}

static bool
is_in(const struct upstream *to, const struct upstream_addr *addr)
{
	for (unsigned i = 0; i < to->n_addrs; i++)
		if (to->addr[i].len == addr->len &&
		    memcmp(&to->addr[i].addr, &addr->addr, addr->len) == 0)
			return true;
	return false;
}

/* Of those of one family (or not of it), the one after n others; NULL: there is none. */
static const struct addrinfo *
nth(const struct addrinfo *list, int family, bool of_it, unsigned n)
{
	for (; list; list = list->ai_next)
		if ((list->ai_family == family) == of_it &&
		    list->ai_addrlen <= sizeof(struct sockaddr_storage) && n-- == 0)
			return list;
	return NULL;
}

/* Does the connection still lead where the name says? */
static bool
leads_there(const struct upstream_conn *c)
{
	struct upstream_addr at = {.len = sizeof at.addr};

	if (c->addr_epoch == c->to->addr_epoch || c->to->n_addrs == 0)
		return true;
	return getpeername(c->wire.fd, (struct sockaddr *)&at.addr, &at.len) == 0 &&
	       is_in(c->to, &at);
}

static void
take_addresses(struct upstream *to, const struct addrinfo *list)
{
	struct upstream was = {.n_addrs = to->n_addrs};
	const struct addrinfo *one;
	int family = list ? list->ai_family : AF_UNSPEC;
	unsigned n[2] = {0};            /* taken of the first's family, of the others */
	struct upstream_conn *next;

	memcpy(was.addr, to->addr, sizeof was.addr);
	memset(to->addr, 0, sizeof to->addr);
	to->n_addrs = 0;
	for (unsigned turn = 0; to->n_addrs < UPSTREAM_ADDRS; turn ^= 1) {
		one = nth(list, family, turn == 0, n[turn]);
		if (!one) {
			turn ^= 1;
			one = nth(list, family, turn == 0, n[turn]);
		}
		if (!one)
			break;
		n[turn]++;
		memcpy(&to->addr[to->n_addrs].addr, one->ai_addr, one->ai_addrlen);
		to->addr[to->n_addrs++].len = one->ai_addrlen;
	}
	for (unsigned i = 0; i < was.n_addrs; i++)
		if (!is_in(to, &was.addr[i])) {
			to->addr_epoch++;
			break;
		}
	for (struct upstream_conn *c = to->idle; c; c = next) {
		next = c->next;
		if (!leads_there(c))
			upstream_drop(c);
	}
}

static void
lookup_start(struct upstream *to, mono_ns now)
{
	struct upstream_lookup *l;

	if (to->lookup)
		return;
	to->resolved_ns = now;
	l = calloc(1, sizeof *l);
	if (!l)
		return;
	memcpy(l->host, to->host, sizeof l->host);
	memcpy(l->port, to->port, sizeof l->port);
	l->hints = (struct addrinfo){.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
	l->cb = (struct gaicb){.ar_name = l->host, .ar_service = l->port, .ar_request = &l->hints};
	l->list[0] = &l->cb;
	if (getaddrinfo_a(GAI_NOWAIT, l->list, 1, NULL) != 0) {
		to->resolve_error = -EAGAIN;
		free(l);
		return;
	}
	to->lookup = l;
}

static void
lookup_poll(struct upstream *to)
{
	struct upstream_lookup *l = to->lookup;
	int r;

	if (!l || (r = gai_error(&l->cb)) == EAI_INPROGRESS)
		return;
	if (r == 0 && l->cb.ar_result)
		take_addresses(to, l->cb.ar_result); /* a failed look-up keeps the old ones */
	else
		log_warn("worker's name not resolved host=%s: %s; the last addresses stay",
			 to->host, gai_strerror(r));
	to->resolve_error = to->n_addrs ? 0 : -EHOSTUNREACH;
	if (l->cb.ar_result)
		freeaddrinfo(l->cb.ar_result);
	free(l);
	to->lookup = NULL;
}

static void
first_addresses(struct upstream *to)
{
	struct addrinfo hints = {.ai_family = AF_UNSPEC,
				 .ai_socktype = SOCK_STREAM,
				 .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
	struct addrinfo *list;

	if (getaddrinfo(to->host, to->port, &hints, &list) == 0) { /* numeric: never blocks */
		take_addresses(to, list);
		freeaddrinfo(list);
		return;
	}
	to->named = true;
	lookup_start(to, clock_mono());
}

static struct upstream *
find_url(struct upstreams *u, const char *url, const char *set)
{
	struct upstream *to;

	for (to = u->list; to; to = to->next)
		if (strcmp(to->url, url) == 0 &&
		    (!to->local || strcmp(to->set_name, set) == 0)) {
			snprintf(to->set_name, sizeof to->set_name, "%s", set);
			to->set_epoch = 0;
			return to;
		}
	to = calloc(1, sizeof *to);
	if (!to)
		return NULL;
	to->all = u;
	to->wanted = true;
	snprintf(to->url, sizeof to->url, "%s", url);
	snprintf(to->set_name, sizeof to->set_name, "%s", set);
	to->bad = !parse_url(to);
	if (to->bad)
		log_error("worker's url not understood, it gets no requests url=%s", to->url);
	else if (!to->local)
		first_addresses(to);
	to->next = u->list;
	u->list = to;
	return to;
}

struct upstream *
upstream_of_row(struct upstreams *u, uint16_t row)
{
	struct upstream_row *r;
	uint32_t gen;

	if (row >= u->rows->capacity)
		return NULL;
	gen = atomic_load_explicit(&u->rows->row[row].row_gen, memory_order_acquire);
	if (gen == 0)
		return NULL;
	r = &u->row[row];
	if (r->row_gen != gen || !r->to) {
		struct row_text text;

		if (!rows_text_read(u->rows, row, gen, &text))
			return NULL;            /* being made: told when it is done */
		r->row_gen = gen;
		r->to = find_url(u, text.url, text.set);
	}
	return r->to && !r->to->bad ? r->to : NULL;
}

void
upstreams_rows_changed(struct upstreams *u)
{
	uint32_t n = rows_count(u->rows);
	struct upstream *to;

	for (to = u->list; to; to = to->next)
		to->wanted = false;
	for (uint32_t row = 0; row < n; row++) {
		if (atomic_load_explicit(&u->rows->row[row].intent, memory_order_acquire) !=
		    INTENT_SERVE)
			continue;
		to = upstream_of_row(u, (uint16_t)row);
		if (to)
			to->wanted = true;
	}
	for (to = u->list; to; to = to->next) {
		if (to->wanted)
			to->unwanted_ns = 0;
		else if (!to->unwanted_ns)
			to->unwanted_ns = io_now(u->io);
		while (!to->wanted && to->idle)
			upstream_drop(to->idle);
	}
}

/* Workers that are found come and go at ever new addresses. */
static void
forget_unwanted(struct upstreams *u, mono_ns now)
{
	for (struct upstream **at = &u->list; *at;) {
		struct upstream *to = *at;

		if (!to->unwanted_ns || now < to->unwanted_ns + UPSTREAM_FORGET_NS || to->n_open ||
		    to->lookup) {
			at = &to->next;
			continue;
		}
		for (uint32_t row = 0; row < u->rows->capacity; row++)
			if (u->row[row].to == to)
				u->row[row] = (struct upstream_row){0};
		*at = to->next;
		free(to);
	}
}

/* --- connections ------------------------------------------------------------------------- */

static void
unlink_idle(struct upstream_conn *c)
{
	if (c->prev)
		c->prev->next = c->next;
	else
		c->to->idle = c->next;
	if (c->next)
		c->next->prev = c->prev;
	c->prev = c->next = NULL;
	c->to->n_idle--;
}

/* Closed; freed between turns, for it may be in a callback. */
static void
conn_bury(struct upstream_conn *c)
{
	c->dead = true;
	c->user = NULL;
	c->attempt = NULL;
	wire_close(&c->wire);
	c->next = c->to->all->graveyard;
	c->to->all->graveyard = c;
}

void
upstream_drop(struct upstream_conn *c)
{
	if (c->dead)
		return;
	if (!c->user) {
		unlink_idle(c);
		wire_bye(&c->wire);
	}
	c->to->n_open--;
	c->to->all->n_conns--;
	conn_bury(c);
}

static void
on_recv(void *arg, const void *buf, ssize_t n)
{
	struct upstream_conn *c = arg;

	if (!c->user)
		upstream_drop(c); /* idle: closed, or bytes that nobody asked for */
	else
		c->ops->on_bytes(c->user, buf, n);
}

static void
on_sent(void *arg, int result)
{
	struct upstream_conn *c = arg;

	if (c->user)
		c->ops->on_sent(c->user, result);
}

static void attempt_opened(void *arg, int result, const char *why);

static const struct wire_ops wire_ops = {
	.received = on_recv, .sent = on_sent, .opened = attempt_opened};

/* Takes fd.  NULL: no memory. */
static struct upstream_conn *
conn_new(struct upstream *to, int fd)
{
	struct upstream_conn *c = calloc(1, sizeof *c);

	if (!c) {
		io_close_fd(to->all->io, fd);
		return NULL;
	}
	*c = (struct upstream_conn){
		.to = to, .addr_epoch = to->addr_epoch, .epoch = to->all->epoch};
	wire_open(&c->wire, to->all->io, fd, &wire_ops, c);
	return c;
}

struct upstream_conn *
upstream_take(struct upstream *to, const struct upstream_ops *ops, void *user, mono_ns now)
{
	struct upstream_conn *c = to->idle;

	if (!c)
		return NULL;
	if (c->idle_until_ns <= now) {  /* the newest: so are all, and they make room */
		upstream_drop(c);
		return NULL;
	}
	unlink_idle(c);
	c->user = user;
	c->ops = ops;
	c->reused = true;
	count_add(to->all->process, COUNTER_upstream_reuses, 1);
	return c;
}

int
upstream_send(struct upstream_conn *c, const struct iovec *iov, unsigned n)
{
	return wire_send(&c->wire, iov, n);
}

void
upstream_pause(struct upstream_conn *c)
{
	wire_pause(&c->wire);
}

void
upstream_resume(struct upstream_conn *c)
{
	wire_receive(&c->wire);
}

void
upstream_give_back(struct upstream_conn *c, unsigned keep_alive_s, mono_ns now)
{
	struct upstream *to = c->to;
	uint64_t idle_ns = to->all->keep_alive_ns;

	if (keep_alive_s > 0 && (keep_alive_s - 1) * 1000000000ull < idle_ns)
		idle_ns = (keep_alive_s - 1) * 1000000000ull;
	upstream_resume(c);
	if (wire_sends(&c->wire) || !wire_receives(&c->wire) || idle_ns == 0 || !to->wanted ||
	    !leads_there(c) || to->n_idle >= UPSTREAM_IDLE_MAX ||
	    to->all->n_conns > to->all->conns_keep ||
	    (to->https && c->epoch != to->all->epoch)) {
		upstream_drop(c);
		return;
	}
	c->user = NULL;
	c->idle_until_ns = now + idle_ns;
	c->prev = NULL;
	c->next = to->idle;
	if (to->idle)
		to->idle->prev = c;
	to->idle = c;
	to->n_idle++;
}

/* --- credentials ------------------------------------------------------------------------- */

void
upstreams_credentials(struct upstreams *u, const struct credentials *c)
{
	u->credentials = c;
	u->epoch++;
	for (struct upstream *to = u->list; to; to = to->next)
		while (to->https && to->idle)
			upstream_drop(to->idle);
}

static uint32_t
set_of(struct upstream *to)
{
	struct upstreams *all = to->all;

	if (to->local)                  /* a provider may be called as a worker set is */
		return CREDENTIALS_NO_SET;
	if (to->set_epoch != all->epoch) {
		to->set = credentials_set(all->credentials, to->set_name);
		to->set_epoch = all->epoch;
	}
	return to->set;
}

struct slice
upstream_api_key(struct upstream *to)
{
	uint32_t set = set_of(to);

	return set == CREDENTIALS_NO_SET ? (struct slice){NULL, 0}
					 : to->all->credentials->set[set].api_key;
}

struct slice
upstream_provider(const struct upstream *to)
{
	return to->local ? slice_str(to->set_name) : (struct slice){NULL, 0};
}

bool
upstream_same_place(const struct upstream *a, const struct upstream *b)
{
	return a == b || (a && b && strcmp(a->url, b->url) == 0);
}

/* --- attempts ---------------------------------------------------------------------------- */

static void attempt_step(struct upstream_attempt *a);

/* No address is tried any more: one has won, or all is over. */
static void
race_stop(struct upstream_attempt *a, struct io *io)
{
	if (a->timer)
		io_cancel(io, a->timer);
	a->timer = NULL;
	for (unsigned i = 0; i < UPSTREAM_ADDRS; i++) {
		if (a->race[i].op)
			io_cancel(io, a->race[i].op);   /* a connection that was made is closed */
		a->race[i].op = NULL;
	}
	a->n_trying = 0;
}

static void
attempt_stop(struct upstream_attempt *a, struct io *io)
{
	race_stop(a, io);
	if (a->conn)
		conn_bury(a->conn);
	if (a->to)
		a->to->n_open--;
	*a = (struct upstream_attempt){0};
}

/* With a connection it is the user's from here on. */
static void
attempt_end(struct upstream_attempt *a, struct upstream_conn *c, int result, const char *why)
{
	const struct upstream_ops *ops = a->ops;
	upstream_tried_f *f = a->f;
	void *user = a->user;

	attempt_stop(a, a->to->all->io);
	if (c) {
		c->attempt = NULL;
		c->user = user;
		c->ops = ops;
		c->to->n_open++;
		c->to->all->n_conns++;
		count_add(c->to->all->process, COUNTER_upstream_connects, 1);
	}
	f(user, c, result, why);
}

/* The name is looked up anew, but not as often as requests come. */
static void
lookup_again(struct upstream *to, mono_ns now)
{
	if (to->named && (to->resolved_ns == 0 || now - to->resolved_ns >= RESOLVE_PAUSE_NS))
		lookup_start(to, now);
}

/* The wire's `opened`.  A failure is the worker's, not the address's: no other one is tried. */
static void
attempt_opened(void *arg, int result, const char *why)
{
	struct upstream_conn *c = arg;
	struct upstream_attempt *a = c->attempt;
	char copy[TLS_WHY_MAX] = "";

	if (result < 0) {
		count_add(a->to->all->process, COUNTER_upstream_tls_failed, 1);
		snprintf(copy, sizeof copy, "%s", why);
		attempt_end(a, NULL, -EPROTO, copy);
		return;
	}
	a->conn = NULL;
	attempt_end(a, c, 0, NULL);
}

static void
attempt_late(void *arg, int result)
{
	struct upstream_attempt *a = arg;

	(void)result;
	a->timer = NULL;
	attempt_opened(a->conn, -ETIMEDOUT, "the handshake took too long");
}

/* An address has answered. */
static void
attempt_won(struct upstream_attempt *a, int fd)
{
	struct upstreams *all = a->to->all;
	struct upstream_conn *c;
	int r;

	race_stop(a, all->io);
	c = conn_new(a->to, fd);
	r = !c || wire_receive(&c->wire) < 0 ? -ENOMEM : 0;
	if (r == 0 && a->to->https) {
		r = wire_connect_tls(&c->wire, all->credentials ? all->credentials->tls : NULL,
				     set_of(a->to), a->to->host);
		a->timer = io_timer(all->io, a->deadline_ns, attempt_late, a);
		if (r == 0 && !a->timer)
			r = -ENOMEM;
	}
	if (r < 0) {
		if (c)
			conn_bury(c);
		attempt_end(a, NULL, r, NULL);
	} else if (a->to->https) {
		c->attempt = a;
		a->conn = c;
	} else {
		attempt_end(a, c, 0, NULL);
	}
}

static void
attempt_connected(void *arg, int result)
{
	struct upstream_race *race = arg;
	struct upstream_attempt *a = race->of;
	struct io *io = a->to->all->io;

	race->op = NULL;
	a->n_trying--;
	if (result >= 0) {
		attempt_won(a, result);
		return;
	}
	a->error = result;
	if (a->next_addr < a->to->n_addrs && a->next_addr < UPSTREAM_ADDRS &&
	    io_now(io) < a->deadline_ns) {
		if (a->timer)
			io_cancel(io, a->timer);
		a->timer = NULL;
		attempt_step(a);
	} else if (a->n_trying == 0) {
		lookup_again(a->to, io_now(io));
		attempt_end(a, NULL, a->error, NULL);
	}
}

static void
attempt_again(void *arg, int result)
{
	struct upstream_attempt *a = arg;

	(void)result;
	a->timer = NULL;
	lookup_poll(a->to);
	if (a->to->n_addrs == 0 && (!a->to->lookup || io_now(a->to->all->io) >= a->deadline_ns)) {
		attempt_end(a, NULL, a->to->lookup ? -ETIMEDOUT : -EHOSTUNREACH, NULL);
		return;
	}
	attempt_step(a);
	if (a->n_trying == 0 && !a->timer)
		attempt_end(a, NULL, a->error < 0 ? a->error : -EHOSTUNREACH, NULL);
}

/* Tries one address more; the earlier ones go on. */
static void
attempt_step(struct upstream_attempt *a)
{
	struct io *io = a->to->all->io;
	mono_ns now = io_now(io);

	if (a->to->n_addrs == 0) {
		lookup_again(a->to, now);
		a->timer = io_timer(io, now + RESOLVE_POLL_NS, attempt_again, a);
		return;
	}
	if (a->next_addr >= a->to->n_addrs || a->next_addr >= UPSTREAM_ADDRS)
		return;                 /* the name has fewer now */
	if (a->pace_ns == 0)
		a->pace_ns = now < a->deadline_ns
				     ? (a->deadline_ns - now) / (a->to->n_addrs + 1) + 1 : 1;
	if (a->pace_ns > RACE_PACE_NS)
		a->pace_ns = RACE_PACE_NS;
	const struct upstream_addr *to = &a->to->addr[a->next_addr];
	struct upstream_race *race = &a->race[a->next_addr];

	race->of = a;
	race->op = io_connect(io, (const struct sockaddr *)(const void *)&to->addr, to->len,
			      a->deadline_ns, attempt_connected, race);
	if (!race->op) { /* no memory: a later turn tries again, until the deadline */
		a->timer = io_timer(io, now + RESOLVE_POLL_NS, attempt_again, a);
		return;
	}
	a->n_trying++;
	a->next_addr++;
	if (a->next_addr < a->to->n_addrs && a->next_addr < UPSTREAM_ADDRS)
		a->timer = io_timer(io, now + a->pace_ns, attempt_again, a);
}

bool
upstream_full(const struct upstream *to)
{
	return to->n_open >= to->all->per_worker_max;
}

void
upstream_try(struct upstream_attempt *a, struct upstream *to, mono_ns deadline_ns,
	     const struct upstream_ops *ops, upstream_tried_f *f, void *user)
{
	*a = (struct upstream_attempt){
		.to = to, .deadline_ns = deadline_ns, .ops = ops, .f = f, .user = user};
	to->n_open++;
	attempt_step(a);
}

void
upstream_try_cancel(struct upstream_attempt *a, struct io *io)
{
	attempt_stop(a, io);
}

/* --- time and end ------------------------------------------------------------------------ */

void
upstreams_tick(struct upstreams *u, mono_ns now)
{
	for (struct upstream *to = u->list; to; to = to->next) {
		struct upstream_conn *next;

		for (struct upstream_conn *c = to->idle; c; c = next) {
			next = c->next;
			if (c->idle_until_ns <= now)
				upstream_drop(c);
		}
		lookup_poll(to);
		if (to->named && to->wanted && !to->lookup &&
		    now - to->resolved_ns > UPSTREAM_RESOLVE_NS)
			lookup_start(to, now);
	}
	forget_unwanted(u, now);
}

void
upstreams_bury(struct upstreams *u)
{
	struct upstream_conn *next;

	for (struct upstream_conn *c = u->graveyard; c; c = next) {
		next = c->next;
		free(c);
	}
	u->graveyard = NULL;
}

void
upstreams_close(struct upstreams *u)
{
	struct upstream *next;

	for (struct upstream *to = u->list; to; to = next) {
		next = to->next;
		while (to->idle)
			upstream_drop(to->idle);
		if (to->lookup && gai_cancel(&to->lookup->cb) != EAI_NOTCANCELED) {
			lookup_poll(to);
			free(to->lookup);
		} /* else the resolver still writes there: leave it */
		free(to);
	}
	upstreams_bury(u);
	free(u->row);
	*u = (struct upstreams){0};
}
