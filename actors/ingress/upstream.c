/* actors/ingress/upstream.c -- see upstream.h. */
#include "actors/ingress/upstream.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "actors/common/log.h"

#define RESOLVE_POLL_NS 5000000ull /* an attempt looks for its address so often */

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
		.conns_keep = UINT32_MAX};
	ret->row = calloc(rows->capacity, sizeof *ret->row);
	return ret->row ? 0 : -ENOMEM;
}

/* --- addresses --------------------------------------------------------------------------- */

static bool
parse_url(struct upstream *to)
{
	static const char scheme[] = "http://";
	const char *p = to->url, *end, *colon;
	size_t host_len;

	if (strncmp(p, scheme, sizeof scheme - 1) == 0)
		p += sizeof scheme - 1;
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
	snprintf(to->port, sizeof to->port, "%.*s", colon ? (int)(end - colon - 1) : 2,
		 colon ? colon + 1 : "80");
	return true;
}

static void
take_addresses(struct upstream *to, const struct addrinfo *list)
{
	to->n_addrs = 0;
	for (; list && to->n_addrs < UPSTREAM_ADDRS; list = list->ai_next) {
		struct upstream_addr *a = &to->addr[to->n_addrs];

		if (list->ai_addrlen > sizeof a->addr)
			continue;
		memcpy(&a->addr, list->ai_addr, list->ai_addrlen);
		a->len = list->ai_addrlen;
		to->n_addrs++;
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
find_url(struct upstreams *u, const char *url)
{
	struct upstream *to;

	for (to = u->list; to; to = to->next)
		if (strcmp(to->url, url) == 0)
			return to;
	to = calloc(1, sizeof *to);
	if (!to)
		return NULL;
	to->all = u;
	snprintf(to->url, sizeof to->url, "%s", url);
	to->bad = !parse_url(to);
	if (to->bad)
		log_error("worker's url not understood, it gets no requests url=%s", to->url);
	else
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
		char url[ROW_URL_MAX];

		memcpy(url, u->rows->text[row].url, sizeof url);
		url[sizeof url - 1] = '\0';
		r->row_gen = gen;
		r->to = find_url(u, url);
	}
	return r->to && !r->to->bad ? r->to : NULL;
}

void
upstreams_rows_changed(struct upstreams *u)
{
	uint32_t n = atomic_load_explicit(&u->rows->head->count, memory_order_acquire);

	for (uint32_t row = 0; row < n && row < u->rows->capacity; row++)
		if (atomic_load_explicit(&u->rows->row[row].intent, memory_order_acquire) ==
		    INTENT_SERVE)
			upstream_of_row(u, (uint16_t)row);
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

void
upstream_drop(struct upstream_conn *c)
{
	struct io *io = c->to->all->io;

	if (c->dead)
		return;
	if (!c->user)
		unlink_idle(c);
	c->dead = true;
	c->user = NULL;
	c->to->all->n_conns--;
	if (c->send)
		io_cancel(io, c->send);
	if (c->recv)
		io_cancel(io, c->recv);
	io_close_fd(io, c->fd);
	c->send = c->recv = NULL;
	c->next = c->to->all->graveyard;
	c->to->all->graveyard = c;
}

static void
on_recv(void *arg, const void *buf, ssize_t n)
{
	struct upstream_conn *c = arg;

	if (n <= 0)
		c->recv = NULL;
	if (!c->user)
		upstream_drop(c); /* idle: closed, or bytes that nobody asked for */
	else
		c->ops->on_bytes(c->user, buf, n);
}

static void
on_sent(void *arg, int result)
{
	struct upstream_conn *c = arg;

	c->send = NULL;
	if (c->user)
		c->ops->on_sent(c->user, result);
}

struct upstream_conn *
upstream_adopt(struct upstream *to, int fd, const struct upstream_ops *ops, void *user)
{
	struct upstream_conn *c = calloc(1, sizeof *c);

	if (c) {
		*c = (struct upstream_conn){.to = to, .fd = fd, .user = user, .ops = ops};
		c->recv = io_recv(to->all->io, fd, on_recv, c);
	}
	if (!c || !c->recv) {
		io_close_fd(to->all->io, fd);
		free(c);
		return NULL;
	}
	to->all->n_conns++;
	count_add(to->all->process, COUNTER_upstream_connects, 1);
	return c;
}

struct upstream_conn *
upstream_take(struct upstream *to, const struct upstream_ops *ops, void *user, mono_ns now)
{
	struct upstream_conn *c = to->idle;

	if (!c || c->idle_until_ns <= now)
		return NULL;
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
	c->send = io_send(c->to->all->io, c->fd, iov, n, on_sent, c);
	return c->send ? 0 : -ENOMEM;
}

void
upstream_pause(struct upstream_conn *c)
{
	if (c->recv)
		io_cancel(c->to->all->io, c->recv);
	c->recv = NULL;
}

void
upstream_resume(struct upstream_conn *c)
{
	if (!c->recv)
		c->recv = io_recv(c->to->all->io, c->fd, on_recv, c);
}

void
upstream_give_back(struct upstream_conn *c, unsigned keep_alive_s, mono_ns now)
{
	struct upstream *to = c->to;
	uint64_t idle_ns = to->all->keep_alive_ns;

	if (keep_alive_s > 0 && (keep_alive_s - 1) * 1000000000ull < idle_ns)
		idle_ns = (keep_alive_s - 1) * 1000000000ull;
	upstream_resume(c);
	if (c->send || !c->recv || idle_ns == 0 || to->n_idle >= UPSTREAM_IDLE_MAX ||
	    to->all->n_conns > to->all->conns_keep) {
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

/* --- attempts ---------------------------------------------------------------------------- */

static void attempt_step(struct upstream_attempt *a);

static void
attempt_end(struct upstream_attempt *a, int result)
{
	void (*f)(void *, int) = a->f;
	void *arg = a->arg;

	*a = (struct upstream_attempt){0};
	f(arg, result);
}

static void
attempt_connected(void *arg, int result)
{
	struct upstream_attempt *a = arg;

	a->op = NULL;
	if (result >= 0) {
		attempt_end(a, result);
		return;
	}
	if (a->next_addr < a->to->n_addrs && io_now(a->to->all->io) < a->deadline_ns) {
		attempt_step(a);
		return;
	}
	if (a->to->named)
		lookup_start(a->to, io_now(a->to->all->io));
	attempt_end(a, result);
}

static void
attempt_again(void *arg, int result)
{
	struct upstream_attempt *a = arg;

	(void)result;
	a->op = NULL;
	lookup_poll(a->to);
	if (a->to->n_addrs == 0 && (!a->to->lookup || io_now(a->to->all->io) >= a->deadline_ns)) {
		attempt_end(a, a->to->lookup ? -ETIMEDOUT : -EHOSTUNREACH);
		return;
	}
	attempt_step(a);
}

static void
attempt_step(struct upstream_attempt *a)
{
	struct io *io = a->to->all->io;

	if (a->to->n_addrs == 0) {
		if (!a->to->lookup && a->to->named)
			lookup_start(a->to, io_now(io));
		a->op = io_timer(io, io_now(io) + RESOLVE_POLL_NS, attempt_again, a);
		return;
	}
	const struct upstream_addr *to = &a->to->addr[a->next_addr++ % a->to->n_addrs];
	a->op = io_connect(io, (const struct sockaddr *)(const void *)&to->addr, to->len,
			   a->deadline_ns, attempt_connected, a);
	if (!a->op) /* no memory: a later turn tries again, until the deadline */
		a->op = io_timer(io, io_now(io) + RESOLVE_POLL_NS, attempt_again, a);
}

void
upstream_try(struct upstream_attempt *a, struct upstream *to, mono_ns deadline_ns,
	     void (*f)(void *arg, int fd_or_error), void *arg)
{
	*a = (struct upstream_attempt){.to = to, .deadline_ns = deadline_ns, .f = f, .arg = arg};
	attempt_step(a);
}

void
upstream_try_cancel(struct upstream_attempt *a, struct io *io)
{
	if (a->op)
		io_cancel(io, a->op);
	*a = (struct upstream_attempt){0};
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
		if (to->named && !to->lookup && now - to->resolved_ns > UPSTREAM_RESOLVE_NS)
			lookup_start(to, now);
	}
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
