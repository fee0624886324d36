/* actors/policy/tokensource.c -- /tokenize calls beside the evaluator; see tokensource.h. */
#include "actors/policy/tokensource.h"

#include <curl/curl.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "proto/json.h"

#define REST_HOSTS 64u          /* workers that failed lately and are remembered */
#define IDLE_CONNECTION_S 4L    /* vLLM closes a kept connection after 5 s */
#define HOST_CONNECTIONS 16L    /* to one worker at once */

/* One call.  Belongs to the zactor from `send` until it comes back over the pipe. */
struct call {
	struct token_key key;
	char url[160];
	char *text;                     /* owned: the request */
	size_t len;
	mono_ns deadline;
	char *answer;                   /* owned by the zactor while under way */
	size_t n_answer, cap_answer;
	CURL *easy;
	struct curl_slist *headers;
	/* result */
	uint32_t *ids;                  /* owned */
	size_t n_ids;
	const char *why;                /* NULL: ids are good */
	bool unreachable;               /* no HTTP answer came at all */
	struct call *next;
};

struct rest {                           /* do not ask this worker before `until` */
	char url[160];
	mono_ns until;
};

struct tokensource {
	zactor_t *actor;
	struct tokencache *cache;
	struct call *under_way;         /* our list; the zactor knows the same calls by pointer */
	unsigned n_calls;
	size_t bytes;
	struct rest rest[REST_HOSTS];
	unsigned next_rest;
};

static void
call_free(struct call *c)
{
	if (c->easy)
		curl_easy_cleanup(c->easy);
	curl_slist_free_all(c->headers);
	free(c->text);
	free(c->answer);
	free(c->ids);
	free(c);
}

/* ---- the zactor ---- */

static size_t
on_answer(char *bytes, size_t size, size_t n, void *arg)
{
	struct call *c = arg;
	size_t len = size * n;

	if (len > TOKENSOURCE_ANSWER_BYTES - c->n_answer)
		return 0;
	if (c->n_answer + len > c->cap_answer) {
		size_t cap = c->cap_answer ? c->cap_answer : 16384;

		while (cap < c->n_answer + len)
			cap *= 2;
		char *grown = realloc(c->answer, cap);

		if (!grown)
			return 0;
		c->answer = grown;
		c->cap_answer = cap;
	}
	memcpy(c->answer + c->n_answer, bytes, len);
	c->n_answer += len;
	return len;
}

/* {"count": n, "max_model_len": n, "tokens": [..]}: the ids, or why not. */
static const char *
read_answer(struct call *c)
{
	struct json_cursor j;
	struct json_string key;
	bool found = false;

	json_begin(&j, c->answer, c->n_answer);
	if (json_peek(&j) != JSON_IS_OBJECT || !json_enter_object(&j))
		return "answer is no JSON object";
	while (json_next_member(&j, &key)) {
		if (found || !json_string_eq(&key, "tokens")) {
			json_skip(&j);
			continue;
		}
		struct json_cursor again = j;
		size_t n;

		if (!json_get_u32_array(&j, NULL, 0, &n))
			return "tokens in the answer are no token ids";
		c->ids = malloc((n ? n : 1) * sizeof *c->ids);
		if (!c->ids)
			return "out of memory";
		json_get_u32_array(&again, c->ids, n, &c->n_ids);
		found = true;
	}
	if (json_end(&j) < 0)
		return "answer is no JSON";
	return found ? NULL : "answer has no tokens";
}

static void
call_ends(zsock_t *pipe, struct call *c, CURLcode code)
{
	long status = 0;

	curl_easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, &status);
	c->unreachable = status == 0;
	if (code == CURLE_OPERATION_TIMEDOUT)
		c->why = "no answer in time";
	else if (code != CURLE_OK)
		c->why = status == 0 ? "worker cannot be reached" : "answer was cut off";
	else if (status != 200)
		c->why = "worker answered with an error";
	else
		c->why = read_answer(c);
	if (c->why) {
		free(c->ids);
		c->ids = NULL;
	}
	curl_easy_cleanup(c->easy);
	c->easy = NULL;
	zmq_send(zsock_resolve(pipe), &c, sizeof c, 0);
}

static void
call_begins(zsock_t *pipe, CURLM *multi, struct call *c)
{
	mono_ns now = clock_mono();
	long left_ms = now < c->deadline ? (long)((c->deadline - now) / 1000000u) : 0;

	c->easy = curl_easy_init();
	c->headers = curl_slist_append(NULL, "Content-Type: application/json");
	if (!c->easy || !c->headers || left_ms == 0) {
		c->why = left_ms == 0 ? "no answer in time" : "out of memory";
		zmq_send(zsock_resolve(pipe), &c, sizeof c, 0);
		return;
	}
	curl_easy_setopt(c->easy, CURLOPT_URL, c->url);
	curl_easy_setopt(c->easy, CURLOPT_PROTOCOLS_STR, "http");
	curl_easy_setopt(c->easy, CURLOPT_PROXY, "");
	curl_easy_setopt(c->easy, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(c->easy, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
	curl_easy_setopt(c->easy, CURLOPT_MAXAGE_CONN, IDLE_CONNECTION_S);
	curl_easy_setopt(c->easy, CURLOPT_TIMEOUT_MS, left_ms);
	curl_easy_setopt(c->easy, CURLOPT_HTTPHEADER, c->headers);
	curl_easy_setopt(c->easy, CURLOPT_POSTFIELDS, c->text);
	curl_easy_setopt(c->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)c->len);
	curl_easy_setopt(c->easy, CURLOPT_WRITEFUNCTION, on_answer);
	curl_easy_setopt(c->easy, CURLOPT_WRITEDATA, c);
	curl_easy_setopt(c->easy, CURLOPT_PRIVATE, c);
	if (curl_multi_add_handle(multi, c->easy) != CURLM_OK) {
		c->why = "out of memory";
		zmq_send(zsock_resolve(pipe), &c, sizeof c, 0);
	}
}

static void
collect_ended(zsock_t *pipe, CURLM *multi)
{
	CURLMsg *m;
	int left;

	while ((m = curl_multi_info_read(multi, &left)) != NULL) {
		struct call *c = NULL;
		CURLcode code = m->data.result;

		if (m->msg != CURLMSG_DONE)
			continue;
		curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&c);
		curl_multi_remove_handle(multi, m->easy_handle);
		call_ends(pipe, c, code);
	}
}

/* True: $TERM came.  Reads all there is: ZMQ's descriptor tells of changes, not of messages. */
static bool
hear(zsock_t *pipe, CURLM *multi)
{
	struct call *c;

	while (zsock_events(pipe) & ZMQ_POLLIN) {
		char frame[16];
		int n = zmq_recv(zsock_resolve(pipe), frame, sizeof frame, ZMQ_DONTWAIT);

		if (n != (int)sizeof c)
			return true;    /* "$TERM", or the pipe is broken */
		memcpy(&c, frame, sizeof c);
		call_begins(pipe, multi, c);
	}
	return false;
}

static void
tokensource_actor(zsock_t *pipe, void *arg)
{
	CURLM *multi = curl_multi_init();

	(void)arg;
	zsock_signal(pipe, multi ? 0 : 1);
	if (!multi)
		return;
	curl_multi_setopt(multi, CURLMOPT_MAX_HOST_CONNECTIONS, HOST_CONNECTIONS);
	while (!hear(pipe, multi)) {
		struct curl_waitfd pipe_fd = {.fd = zsock_fd(pipe), .events = CURL_WAIT_POLLIN};
		int running;

		curl_multi_perform(multi, &running);
		collect_ended(pipe, multi);
		if (zsock_events(pipe) & ZMQ_POLLIN)
			continue;
		curl_multi_poll(multi, &pipe_fd, 1, 1000, NULL);
	}
	curl_multi_cleanup(multi);      /* calls still in it are freed by tokensource_free */
}

/* ---- the caller's side ---- */

int
tokensource_new(struct tokensource **ret)
{
	struct tokensource *t = calloc(1, sizeof *t);

	if (!t)
		return -ENOMEM;
	curl_global_init(
		CURL_GLOBAL_NOTHING); /* plain HTTP only: no TLS to set up at every birth */
	if (tokencache_new(&t->cache, TOKENSOURCE_CACHE_BYTES) == 0)
		t->actor = zactor_new(tokensource_actor, NULL);
	if (!t->actor) {
		tokensource_free(&t);
		return -ENOMEM;
	}
	*ret = t;
	return 0;
}

void
tokensource_free(struct tokensource **ret)
{
	struct tokensource *t = *ret;

	if (!t)
		return;
	zactor_destroy(&t->actor);      /* from here on no thread but ours */
	while (t->under_way) {
		struct call *c = t->under_way;

		t->under_way = c->next;
		call_free(c);
	}
	tokencache_free(&t->cache);
	curl_global_cleanup();
	free(t);
	*ret = NULL;
}

zsock_t *
tokensource_socket(struct tokensource *t)
{
	return zactor_sock(t->actor);
}

struct token_key
tokensource_key(const char *text, size_t len)
{
	XXH128_hash_t h = XXH3_128bits(text, len);

	return (struct token_key){.lo = h.low64, .hi = h.high64};
}

bool
tokensource_find(struct tokensource *t, struct token_key key, const uint32_t **ret_ids,
		 size_t *ret_n)
{
	return tokencache_find(t->cache, key, ret_ids, ret_n);
}

static struct rest *
resting(struct tokensource *t, const char *url)
{
	for (unsigned i = 0; i < REST_HOSTS; i++)
		if (strcmp(t->rest[i].url, url) == 0)
			return &t->rest[i];
	return NULL;
}

int
tokensource_request(struct tokensource *t, struct token_key key, const char *host, uint16_t port,
		    const char *text, size_t len, mono_ns now)
{
	for (struct call *c = t->under_way; c; c = c->next)
		if (c->key.lo == key.lo && c->key.hi == key.hi)
			return 0;
	if (t->n_calls >= TOKENSOURCE_CALLS || len > TOKENSOURCE_BYTES - t->bytes)
		return -EBUSY;

	struct call *c = calloc(1, sizeof *c);

	if (!c || !(c->text = malloc(len ? len : 1))) {
		free(c);
		return -ENOMEM;
	}
	snprintf(c->url, sizeof c->url,
		 strchr(host, ':') ? "http://[%s]:%u/tokenize" : "http://%s:%u/tokenize", host,
		 port);
	const struct rest *rest = resting(t, c->url);

	if (rest && now < rest->until) {
		call_free(c);
		return -EHOSTDOWN;
	}
	memcpy(c->text, text, len);
	c->len = len;
	c->key = key;
	c->deadline = now + TOKENSOURCE_CALL_NS;
	c->next = t->under_way;
	t->under_way = c;
	t->n_calls++;
	t->bytes += len;
	zmq_send(zsock_resolve(zactor_sock(t->actor)), &c, sizeof c, 0);
	return 0;
}

int
tokensource_collect(struct tokensource *t, mono_ns now, struct token_key *ret_key,
		    const char **ret_why)
{
	struct call *c, **at = &t->under_way;

	if (zmq_recv(zsock_resolve(zactor_sock(t->actor)), &c, sizeof c, ZMQ_DONTWAIT) !=
	    (int)sizeof c)
		return 0;
	while (*at && *at != c)
		at = &(*at)->next;
	if (!*at)
		return 0;               /* cannot be: only calls of ours come back */
	*at = c->next;
	t->n_calls--;
	t->bytes -= c->len;
	*ret_key = c->key;
	*ret_why = c->why;
	if (!c->why) {
		tokencache_put(t->cache, c->key, c->ids, c->n_ids);
		c->ids = NULL;
	}
	if (c->unreachable) {
		struct rest *rest = resting(t, c->url);

		if (!rest)
			rest = &t->rest[t->next_rest++ % REST_HOSTS];
		memcpy(rest->url, c->url, sizeof rest->url);
		rest->until = now + TOKENSOURCE_REST_NS;
	}
	call_free(c);
	return 1;
}
