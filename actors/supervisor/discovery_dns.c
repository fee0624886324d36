/* actors/supervisor/discovery_dns.c -- members by name: A, AAAA and SRV, asked again and again.
 *
 * c-ares asks, repeats and turns to TCP; a channel lives for one question, so that each is asked of
 * the resolvers that /etc/resolv.conf names by then.  Addresses come in any order and are sorted: a
 * set that did not change is no change.
 */
#include "actors/supervisor/discovery_private.h"

#include <ares.h>
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "proto/dns.h"

#define LEAST_NS	(1000 * DISCOVERY_MS)  /* whatever the TTL says */
#define AGAIN_NS	(5000 * DISCOVERY_MS)  /* after a failure */
#define QUESTION_NS	(10000 * DISCOVERY_MS) /* then it has failed */
#define TRY_MS		1000
#define TRIES		2
#define CLASS_INTERNET	1
#define LINE_MAX_BYTES	1536u /* a member: four names of 253 bytes, and what is around */
#define RECORDS_READ	4096u /* more do not fit an answer of 64 KiB */

struct dns_query {
	struct discovery *d;                    /* borrowed */
	struct source *s;                       /* borrowed */
	ares_channel channel;                   /* owned */
	mono_ns until;
	bool done;
	int status;
	uint8_t *answer;                        /* owned */
	size_t len;
};

int
dns_open(void)
{
	return ares_library_init(ARES_LIB_INIT_ALL) == ARES_SUCCESS ? 0 : -ENOMEM;
}

void
dns_close(void)
{
	ares_library_cleanup();
}

/* ---- from records to members ---- */

static int
by_place(const void *a, const void *b)
{
	const struct dns_record *x = a, *y = b;
	int r = memcmp(x->addr, y->addr, sizeof x->addr);

	if (r == 0)
		r = strcasecmp(x->target, y->target);
	return r ? r : (int)x->port - (int)y->port;
}

/* A target is called by what it does not share with the name asked for. */
static void
service_names(const struct source *s, const struct dns_record *r, char *host, char *name,
	      size_t cap)
{
	const char *domain = s->spec.dns.name;
	size_t len = strlen(r->target), tail;

	/* "_http._tcp.vllm.ns": of "vllm.ns" */
	while (domain[0] == '_' && strchr(domain, '.'))
		domain = strchr(domain, '.') + 1;
	tail = strlen(domain);
	while (tail > 0 && domain[tail - 1] == '.')
		tail--;
	if (len > tail + 1 && r->target[len - tail - 1] == '.' &&
	    strncasecmp(r->target + len - tail, domain, tail) == 0)
		len -= tail + 1;
	snprintf(host, cap, "%s", r->target);
	snprintf(name, cap, "%.*s.%u", (int)len, r->target, r->port);
}

/* An address, as a name may be written: without colons. */
static void
address_names(const struct source *s, const struct dns_record *r, char *host, char *name,
	      size_t cap)
{
	bool v6 = s->spec.dns.record == MANIFEST_RECORD_AAAA;
	char text[INET6_ADDRSTRLEN] = "";

	inet_ntop(v6 ? AF_INET6 : AF_INET, r->addr, text, sizeof text);
	snprintf(host, cap, v6 ? "[%s]" : "%s", text);
	for (char *c = text; *c; c++)
		if (*c == ':')
			*c = '-';
	snprintf(name, cap, "%s%s", text[0] == '-' ? "0" : "", text);
}

static size_t
member_line(const struct source *s, const struct dns_record *r, char *line, size_t cap)
{
	char host[DNS_NAME_MAX + 8], name[DNS_NAME_MAX + 8], events[DNS_NAME_MAX + 48] = "",
		replay[DNS_NAME_MAX + 48] = "";
	bool srv = s->spec.dns.record == MANIFEST_RECORD_SRV;

	if (srv)
		service_names(s, r, host, name, sizeof host);
	else
		address_names(s, r, host, name, sizeof host);
	if (s->spec.dns.kv_events_port)
		snprintf(events, sizeof events, ", kvEvents: \"tcp://%s:%u\"", host,
			 s->spec.dns.kv_events_port);
	if (s->spec.dns.kv_replay_port)
		snprintf(replay, sizeof replay, ", kvReplay: \"tcp://%s:%u\"", host,
			 s->spec.dns.kv_replay_port);
	return (size_t)snprintf(line, cap, "- {name: \"%s\", url: \"%s://%s:%u\"%s%s}\n", name,
				s->spec.https ? "https" : "http", host,
				srv ? r->port : s->spec.dns.port, events, replay);
}

size_t
dns_members(const struct source *s, const void *records, unsigned n, char *text, size_t cap,
	    unsigned *ret_cut)
{
	const struct dns_record *r = records;
	size_t len = (size_t)snprintf(text, cap, "members:\n");
	bool some = false;

	*ret_cut = 0;
	for (unsigned i = 0; i < n; i++) {
		char line[LINE_MAX_BYTES];
		size_t line_len;

		if (i > 0 && by_place(&r[i - 1], &r[i]) == 0)
			continue;
		if (s->spec.dns.record == MANIFEST_RECORD_SRV && !r[i].target[0])
			continue;               /* "there is none", RFC 2782 */
		line_len = member_line(s, &r[i], line, sizeof line);
		if (line_len >= sizeof line || line_len >= cap - len) {
			++*ret_cut;
			continue;
		}
		memcpy(text + len, line, line_len + 1);
		len += line_len;
		some = true;
	}
	return some ? len : (size_t)snprintf(text, cap, "members: []\n");
}

/* ---- an answer ---- */

static enum dns_type
type_of(const struct source *s)
{
	static const enum dns_type types[] = {DNS_A, DNS_AAAA, DNS_SRV};

	return types[s->spec.dns.record];
}

static void
empty(struct discovery *d, struct source *s, const struct dns_answer *a, mono_ns now)
{
	static const char none[] = "members: []\n";

	s->cut = a->bad;
	if (a->bad || a->other)         /* an alias that leads nowhere, or damage: not "none" */
		source_fails(d, s, now, "the answer has records, but none is %s",
			     type_of(s) == DNS_SRV ? "a service" : "an address");
	else if (!s->spec.dns.empty_means_none)
		source_fails(d, s, now, "the answer has no records");
	else if (!a->authoritative)
		source_fails(d, s, now, "the answer has no records, and is not authoritative");
	else
		source_says(d, s, none, sizeof none - 1, now);
}

static mono_ns
next_question(const struct source *s, uint32_t ttl_s)
{
	mono_ns most = s->spec.dns.interval_ns, ttl = (mono_ns)ttl_s * 1000 * DISCOVERY_MS;

	if (s->error[0] && most > AGAIN_NS)
		return AGAIN_NS;
	if (ttl < LEAST_NS)
		ttl = LEAST_NS;
	return ttl < most ? ttl : most;
}

static void
answered(struct discovery *d, struct source *s, const struct dns_query *q, mono_ns now)
{
	struct dns_record *records = calloc(RECORDS_READ, sizeof *records);
	struct dns_answer a = {.ttl_s = DNS_NO_TTL};
	char *text = malloc(DISCOVERY_TEXT_MAX);
	bool some = q->status == ARES_SUCCESS || q->status == ARES_ENODATA;
	size_t len;

	if (!records || !text)
		source_fails(d, s, now, "out of memory");
	else if (!some)
		source_fails(d, s, now, "%s", ares_strerror(q->status));
	else if (!q->answer || dns_answer_read(q->answer, q->len, type_of(s), records, RECORDS_READ,
					       &a) < 0)
		source_fails(d, s, now, "the answer is damaged, or cut short");
	else if (a.n == 0)
		empty(d, s, &a, now);
	else {
		unsigned n = a.n < DISCOVERY_RECORDS_MAX ? a.n : DISCOVERY_RECORDS_MAX;

		qsort(records, a.n, sizeof *records, by_place);
		len = dns_members(s, records, n, text, DISCOVERY_TEXT_MAX, &s->cut);
		s->cut += a.n - n + a.more + a.bad;
		source_says(d, s, text, len, now);
	}
	s->due_ns = now + next_question(s, a.ttl_s);
	free(text);
	free(records);
}

/* ---- a question ---- */

static void
on_answer(void *arg, int status, int timeouts, unsigned char *bytes, int len)
{
	struct dns_query *q = arg;

	(void)timeouts;
	q->done = true;
	q->status = status;
	if (!bytes || len <= 0)
		return;
	q->answer = malloc((size_t)len);
	if (!q->answer)
		return;
	memcpy(q->answer, bytes, (size_t)len);
	q->len = (size_t)len;
}

static void
on_socket(void *arg, ares_socket_t fd, int in, int out)
{
	const struct dns_query *q = arg;
	struct epoll_event e = {.events = (in ? EPOLLIN : 0) | (out ? EPOLLOUT : 0),
				.data.u64 = (uint64_t)q->s->id << 32 | (uint32_t)fd};

	if (!in && !out)
		epoll_ctl(q->d->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
	else if (epoll_ctl(q->d->epoll_fd, EPOLL_CTL_MOD, fd, &e) < 0)
		epoll_ctl(q->d->epoll_fd, EPOLL_CTL_ADD, fd, &e);
}

static void
query_free(struct dns_query **at)
{
	struct dns_query *q = *at;

	if (!q)
		return;
	if (q->channel)
		ares_destroy(q->channel);       /* on_socket, perhaps on_answer */
	free(q->answer);
	free(q);
	*at = NULL;
}

static int
resolver_set(struct dns_query *q)
{
	const struct manifest_addr *at = &q->s->spec.dns.resolver;
	char text[MANIFEST_HOST_MAX + 16];

	if (at->port == 0)
		return ARES_SUCCESS;
	snprintf(text, sizeof text, strchr(at->host, ':') ? "[%s]:%u" : "%s:%u", at->host,
		 at->port);
	return ares_set_servers_ports_csv(q->channel, text);
}

void
dns_due(struct discovery *d, struct source *s, mono_ns now)
{
	struct dns_query *q;
	struct ares_options options = {.timeout = TRY_MS, .tries = TRIES, .ednspsz = 1232,
				       .flags = ARES_FLAG_EDNS, .sock_state_cb = on_socket};
	int r;

	if (s->query)
		return;
	s->due_ns = 0;                          /* set when it is answered */
	q = s->query = calloc(1, sizeof *q);
	if (!q) {
		source_fails(d, s, now, "out of memory");
		s->due_ns = now + AGAIN_NS;
		return;
	}
	q->d = d;
	q->s = s;
	q->until = now + QUESTION_NS;
	options.sock_state_cb_data = q;
	r = ares_init_options(&q->channel, &options,
			      ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_EDNSPSZ |
				      ARES_OPT_FLAGS | ARES_OPT_SOCK_STATE_CB);
	if (r != ARES_SUCCESS)
		q->channel = NULL;
	if (r == ARES_SUCCESS)
		r = resolver_set(q);
	if (r != ARES_SUCCESS) {
		source_fails(d, s, now, "no question can be asked: %s", ares_strerror(r));
		s->due_ns = now + AGAIN_NS;
		query_free(&s->query);
		return;
	}
	if (s->spec.dns.resolver.port)
		ares_query(q->channel, s->spec.dns.name, CLASS_INTERNET, (int)type_of(s), on_answer,
			   q);
	else
		ares_search(q->channel, s->spec.dns.name, CLASS_INTERNET, (int)type_of(s),
			    on_answer, q);
	dns_ready(d, s, -1, false, false);      /* it may have failed at once */
}

void
dns_begin(struct discovery *d, struct source *s, mono_ns now)
{
	dns_due(d, s, now);
}

void
dns_ready(struct discovery *d, struct source *s, int fd, bool in, bool out)
{
	struct dns_query *q = s->query;
	mono_ns now = clock_mono();

	if (!q->done)
		ares_process_fd(q->channel, in ? fd : ARES_SOCKET_BAD, out ? fd : ARES_SOCKET_BAD);
	if (!q->done && now >= q->until) {
		ares_cancel(q->channel);
		q->status = ARES_ETIMEOUT;
	}
	if (!q->done)
		return;
	s->query = NULL;
	answered(d, s, q, now);
	query_free(&q);
}

mono_ns
dns_next(const struct source *s, mono_ns now)
{
	struct timeval wait, most = {.tv_sec = 10};

	if (!s->query || s->query->done)
		return s->query ? now : 0;
	ares_timeout(s->query->channel, &most, &wait);
	return now + (mono_ns)wait.tv_sec * 1000000000ull + (mono_ns)wait.tv_usec * 1000ull;
}

void
dns_end(struct discovery *d, struct source *s)
{
	(void)d;
	query_free(&s->query);
}
