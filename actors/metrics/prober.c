/* actors/metrics/prober.c -- see prober.h. */
#include "actors/metrics/prober.h"

#include <curl/curl.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define IDLE_CONNECTION_S 4L /* vLLM closes a kept connection after 5 s */
#define PAGE_FIRST_BYTES 65536u

struct prober {
	zactor_t *actor;
	struct probe *under_way; /* ours; the zactor knows the same by pointer */
};

struct probe *
probe_new(uint64_t serial)
{
	struct probe *p = calloc(1, sizeof *p);

	if (p)
		p->serial = serial;
	return p;
}

void
probe_free(struct probe **ret)
{
	struct probe *p = *ret;

	if (!p)
		return;
	for (unsigned i = 0; i < PROBE_KINDS; i++) {
		if (p->call[i].easy)
			curl_easy_cleanup(p->call[i].easy);
		free(p->call[i].page);
	}
	free(p);
	*ret = NULL;
}

const char *
probe_result_name(enum probe_result result)
{
	static const char *const names[] = {"ok", "slow", "unreachable", "status", "too-large"};

	return names[result];
}

/* ---- the zactor ---- */

static size_t
on_page(char *bytes, size_t size, size_t n, void *arg)
{
	struct probe_call *c = arg;
	size_t len = size * n;

	if (len > PROBER_PAGE_BYTES - c->len) {
		c->result = PROBE_LARGE;
		return 0;
	}
	if (c->len + len > c->cap) {
		size_t cap = c->cap ? c->cap : PAGE_FIRST_BYTES;

		while (cap < c->len + len)
			cap *= 2;
		char *grown = realloc(c->page, cap);

		if (!grown)
			return 0;
		c->page = grown;
		c->cap = cap;
	}
	memcpy(c->page + c->len, bytes, len);
	c->len += len;
	return len;
}

static size_t
on_ignored(char *bytes, size_t size, size_t n, void *arg)
{
	(void)bytes;
	(void)arg;
	return size * n;
}

static void
call_ends(struct probe_call *c, CURLcode code)
{
	long status = 0, connects = 0;
	curl_off_t connected_us = 0;

	curl_easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, &status);
	curl_easy_getinfo(c->easy, CURLINFO_NUM_CONNECTS, &connects);
	curl_easy_getinfo(c->easy, CURLINFO_CONNECT_TIME_T, &connected_us);
	c->status = (unsigned)status;
	if (code == CURLE_OK)
		c->result = status == 200 ? PROBE_OK : PROBE_STATUS;
	else if (c->result == PROBE_LARGE)
		; /* on_page said so */
	else if (code == CURLE_OPERATION_TIMEDOUT && (connects == 0 || connected_us > 0))
		c->result = PROBE_SLOW;
	else
		c->result = PROBE_UNREACHABLE;
	curl_easy_cleanup(c->easy);
	c->easy = NULL;
}

static void
probe_ends(zsock_t *pipe, struct probe *p)
{
	if (--p->under_way == 0)
		zmq_send(zsock_resolve(pipe), &p, sizeof p, 0);
}

static CURL *
easy_new(struct probe_call *c, bool keep, struct probe *p)
{
	CURL *easy = curl_easy_init();

	if (!easy)
		return NULL;
	curl_easy_setopt(easy, CURLOPT_URL, c->url);
	curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http");
	curl_easy_setopt(easy, CURLOPT_PROXY, "");
	curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
	curl_easy_setopt(easy, CURLOPT_MAXAGE_CONN, IDLE_CONNECTION_S);
	curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, PROBER_CONNECT_MS);
	curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, PROBER_CALL_MS);
	curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, keep ? on_page : on_ignored);
	curl_easy_setopt(easy, CURLOPT_WRITEDATA, c);
	curl_easy_setopt(easy, CURLOPT_PRIVATE, p);
	return easy;
}

static void
probe_begins(zsock_t *pipe, CURLM *multi, struct probe *p)
{
	p->under_way = PROBE_KINDS;
	for (unsigned i = 0; i < PROBE_KINDS; i++) {
		struct probe_call *c = &p->call[i];

		c->easy = easy_new(c, i == PROBE_METRICS, p);
		if (c->easy && curl_multi_add_handle(multi, c->easy) == CURLM_OK)
			continue;
		c->result = PROBE_UNREACHABLE;
		probe_ends(pipe, p);
	}
}

static void
collect_ended(zsock_t *pipe, CURLM *multi)
{
	CURLMsg *m;
	int left;

	while ((m = curl_multi_info_read(multi, &left)) != NULL) {
		CURL *easy = m->easy_handle;
		CURLcode code = m->data.result;
		struct probe *p = NULL;

		if (m->msg != CURLMSG_DONE)
			continue;
		curl_easy_getinfo(easy, CURLINFO_PRIVATE, (char **)&p);
		curl_multi_remove_handle(multi, easy);
		if (easy == p->call[PROBE_METRICS].easy) {
			p->answered_ns = clock_mono();
			call_ends(&p->call[PROBE_METRICS], code);
		} else {
			call_ends(&p->call[PROBE_HEALTH], code);
		}
		probe_ends(pipe, p);
	}
}

/* True: $TERM came.  Reads all there is: ZMQ's descriptor tells of changes, not of messages. */
static bool
hear(zsock_t *pipe, CURLM *multi)
{
	struct probe *p;

	while (zsock_events(pipe) & ZMQ_POLLIN) {
		char frame[16];
		int n = zmq_recv(zsock_resolve(pipe), frame, sizeof frame, ZMQ_DONTWAIT);

		if (n != (int)sizeof p)
			return true; /* "$TERM", or the pipe is broken */
		memcpy(&p, frame, sizeof p);
		probe_begins(pipe, multi, p);
	}
	return false;
}

static void
prober_actor(zsock_t *pipe, void *arg)
{
	CURLM *multi = curl_multi_init();

	(void)arg;
	zsock_signal(pipe, multi ? 0 : 1);
	if (!multi)
		return;
	while (!hear(pipe, multi)) {
		struct curl_waitfd pipe_fd = {.fd = zsock_fd(pipe), .events = CURL_WAIT_POLLIN};
		int running;

		curl_multi_perform(multi, &running);
		collect_ended(pipe, multi);
		if (zsock_events(pipe) & ZMQ_POLLIN)
			continue;
		curl_multi_poll(multi, &pipe_fd, 1, 1000, NULL);
	}
	curl_multi_cleanup(multi); /* handles still in it are freed by prober_free */
}

/* ---- the caller's side ---- */

int
prober_new(struct prober **ret)
{
	struct prober *p = calloc(1, sizeof *p);

	if (!p)
		return -ENOMEM;
	curl_global_init(CURL_GLOBAL_DEFAULT);
	p->actor = zactor_new(prober_actor, NULL);
	if (!p->actor) {
		prober_free(&p);
		return -ENOMEM;
	}
	*ret = p;
	return 0;
}

void
prober_free(struct prober **ret)
{
	struct prober *p = *ret;

	if (!p)
		return;
	zactor_destroy(&p->actor); /* from here on no thread but ours */
	while (p->under_way) {
		struct probe *probe = p->under_way;

		p->under_way = probe->next;
		probe_free(&probe);
	}
	curl_global_cleanup();
	free(p);
	*ret = NULL;
}

zsock_t *
prober_socket(struct prober *p)
{
	return zactor_sock(p->actor);
}

void
prober_send(struct prober *p, struct probe *probe)
{
	probe->next = p->under_way;
	p->under_way = probe;
	zmq_send(zsock_resolve(zactor_sock(p->actor)), &probe, sizeof probe, 0);
}

struct probe *
prober_collect(struct prober *p)
{
	struct probe *probe, **at = &p->under_way;

	if (zmq_recv(zsock_resolve(zactor_sock(p->actor)), &probe, sizeof probe, ZMQ_DONTWAIT) !=
	    (int)sizeof probe)
		return NULL;
	while (*at && *at != probe)
		at = &(*at)->next;
	if (!*at)
		return NULL; /* cannot be: only probes of ours come back */
	*at = probe->next;
	probe->next = NULL;
	return probe;
}
