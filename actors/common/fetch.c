/* actors/common/fetch.c -- see fetch.h. */
#include "actors/common/fetch.h"

#include <curl/curl.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ANSWER_FIRST_BYTES 16384u

struct fetcher {
	zactor_t *actor;
	long host_connections;
	struct fetch *under_way;        /* ours; the zactor knows the same by pointer */
};

void
fetch_clear(struct fetch *fetch)
{
	if (fetch->easy)
		curl_easy_cleanup(fetch->easy);
	curl_slist_free_all(fetch->headers);
	free(fetch->answer);
	fetch->easy = fetch->headers = fetch->answer = NULL;
	fetch->len = fetch->cap = 0;
}

/* ---- the zactor ---- */

static size_t
on_answer(char *bytes, size_t size, size_t n, void *arg)
{
	struct fetch *f = arg;
	size_t len = size * n;

	if (f->answer_max == 0)
		return len;
	if (len > f->answer_max - f->len) {
		f->result = FETCH_LARGE;
		return 0;
	}
	if (f->len + len > f->cap) {
		size_t cap = f->cap ? f->cap : ANSWER_FIRST_BYTES;

		while (cap < f->len + len)
			cap *= 2;
		char *grown = realloc(f->answer, cap);

		if (!grown)
			return 0;
		f->answer = grown;
		f->cap = cap;
	}
	memcpy(f->answer + f->len, bytes, len);
	f->len += len;
	return len;
}

static void
give_back(zsock_t *pipe, struct fetch *f)
{
	f->ended_ns = clock_mono();
	zmq_send(zsock_resolve(pipe), &f, sizeof f, 0);
}

static void
fetch_ends(zsock_t *pipe, struct fetch *f, CURLcode code)
{
	long status = 0, connects = 0;
	curl_off_t connected_us = 0;

	curl_easy_getinfo(f->easy, CURLINFO_RESPONSE_CODE, &status);
	curl_easy_getinfo(f->easy, CURLINFO_NUM_CONNECTS, &connects);
	curl_easy_getinfo(f->easy, CURLINFO_CONNECT_TIME_T, &connected_us);
	f->status = (unsigned)status;
	if (code == CURLE_OK) {
		f->result = FETCH_OK;
	} else if (code == CURLE_OPERATION_TIMEDOUT) {
		f->result = FETCH_LATE;
		f->connected = connects == 0 || connected_us > 0;       /* 0: a kept one */
	} else if (f->result != FETCH_LARGE) {   /* on_answer said so */
		f->result = FETCH_BROKEN;
	}
	curl_easy_cleanup(f->easy);
	f->easy = NULL;
	if (f->result == FETCH_OK && f->ended)
		f->ended(f);
	give_back(pipe, f);
}

/* False: no memory. */
static bool
fetch_prepare(struct fetch *f, long left_ms)
{
	CURL *easy = f->easy = curl_easy_init();

	if (!easy)
		return false;
	if (f->body) {
		f->headers = curl_slist_append(NULL, "Content-Type: application/json");
		if (!f->headers)
			return false;
		curl_easy_setopt(easy, CURLOPT_HTTPHEADER, f->headers);
		curl_easy_setopt(easy, CURLOPT_POSTFIELDS, f->body);
		curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)f->body_len);
	}
	curl_easy_setopt(easy, CURLOPT_URL, f->url);
	curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http");
	curl_easy_setopt(easy, CURLOPT_PROXY, "");
	curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
	curl_easy_setopt(easy, CURLOPT_MAXAGE_CONN, FETCH_IDLE_S);
	curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, f->connect_ms);
	curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, left_ms);
	curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_answer);
	curl_easy_setopt(easy, CURLOPT_WRITEDATA, f);
	curl_easy_setopt(easy, CURLOPT_PRIVATE, f);
	return true;
}

static void
fetch_begins(zsock_t *pipe, CURLM *multi, struct fetch *f)
{
	mono_ns now = clock_mono();
	long left_ms = now < f->deadline_ns ? (long)((f->deadline_ns - now) / 1000000u) : 0;

	if (left_ms > 0 && fetch_prepare(f, left_ms) &&
	    curl_multi_add_handle(multi, f->easy) == CURLM_OK)
		return;
	f->result = left_ms > 0 ? FETCH_NO_MEMORY : FETCH_NO_TIME;
	give_back(pipe, f);
}

static void
collect_ended(zsock_t *pipe, CURLM *multi)
{
	CURLMsg *m;
	int left;

	while ((m = curl_multi_info_read(multi, &left)) != NULL) {
		struct fetch *f = NULL;
		CURLcode code = m->data.result;

		if (m->msg != CURLMSG_DONE)
			continue;
		curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&f);
		curl_multi_remove_handle(multi, m->easy_handle);
		fetch_ends(pipe, f, code);
	}
}

/* True: $TERM came.  Reads all there is: ZMQ's descriptor tells of changes, not of messages. */
static bool
hear(zsock_t *pipe, CURLM *multi)
{
	struct fetch *f;

	while (zsock_events(pipe) & ZMQ_POLLIN) {
		char frame[16];
		int n = zmq_recv(zsock_resolve(pipe), frame, sizeof frame, ZMQ_DONTWAIT);

		if (n != (int)sizeof f)
			return true;    /* "$TERM", or the pipe is broken */
		memcpy(&f, frame, sizeof f);
		fetch_begins(pipe, multi, f);
	}
	return false;
}

static void
fetcher_actor(zsock_t *pipe, void *arg)
{
	const struct fetcher *fetcher = arg;
	CURLM *multi = curl_multi_init();

	if (multi)
		curl_multi_setopt(multi, CURLMOPT_MAX_HOST_CONNECTIONS, fetcher->host_connections);
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
	curl_multi_cleanup(multi);      /* handles still in it are freed by fetch_clear */
}

/* ---- the caller's side ---- */

int
fetcher_new(struct fetcher **ret, long host_connections)
{
	struct fetcher *f = calloc(1, sizeof *f);

	if (!f)
		return -ENOMEM;
	f->host_connections = host_connections;
	/* Plain HTTP only: no TLS to set up at every birth. */
	curl_global_init(CURL_GLOBAL_NOTHING);
	f->actor = zactor_new(fetcher_actor, f);
	if (!f->actor) {
		fetcher_free(&f, NULL);
		return -ENOMEM;
	}
	*ret = f;
	return 0;
}

void
fetcher_free(struct fetcher **ret, void (*drop)(struct fetch *f))
{
	struct fetcher *f = *ret;

	if (!f)
		return;
	zactor_destroy(&f->actor);      /* from here on no thread but ours */
	while (f->under_way) {
		struct fetch *fetch = f->under_way;

		f->under_way = fetch->next;
		drop(fetch);
	}
	curl_global_cleanup();
	free(f);
	*ret = NULL;
}

zsock_t *
fetcher_socket(struct fetcher *f)
{
	return zactor_sock(f->actor);
}

void
fetcher_send(struct fetcher *f, struct fetch *fetch)
{
	fetch->next = f->under_way;
	f->under_way = fetch;
	zmq_send(zsock_resolve(zactor_sock(f->actor)), &fetch, sizeof fetch, 0);
}

struct fetch *
fetcher_collect(struct fetcher *f)
{
	struct fetch *fetch, **at = &f->under_way;

	if (zmq_recv(zsock_resolve(zactor_sock(f->actor)), &fetch, sizeof fetch, ZMQ_DONTWAIT) !=
	    (int)sizeof fetch)
		return NULL;
	while (*at && *at != fetch)
		at = &(*at)->next;
	if (!*at)
		return NULL;            /* cannot be: only calls of ours come back */
	*at = fetch->next;
	fetch->next = NULL;
	return fetch;
}

struct fetch *
fetcher_under_way(const struct fetcher *f)
{
	return f->under_way;
}
