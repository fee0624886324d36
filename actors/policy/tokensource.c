/* actors/policy/tokensource.c -- /tokenize calls beside the evaluator; see tokensource.h. */
#include "actors/policy/tokensource.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "proto/openai.h"

#define REST_HOSTS 64u          /* workers that failed lately and are remembered */
#define HOST_CONNECTIONS 16L    /* to one worker at once */

struct call {
	struct fetch fetch;
	struct token_key key;
	char *text;                     /* owned: the request */
	uint32_t *ids;                  /* owned */
	size_t n_ids;
	const char *why;                /* NULL: ids are good */
};

struct rest {                           /* do not ask this worker before `until` */
	char url[320];
	mono_ns until;
};

struct tokensource {
	struct fetcher *fetcher;        /* owned */
	struct tokencache *cache;       /* owned */
	unsigned n_calls;
	size_t bytes;
	struct rest rest[REST_HOSTS];
	unsigned next_rest;
};

static void
call_free(struct call *c)
{
	fetch_clear(&c->fetch);
	free(c->text);
	free(c->ids);
	free(c);
}

/* The ids, or why not. */
static const char *
read_answer(struct call *c)
{
	const struct slice answer = {c->fetch.answer, c->fetch.len};
	const char *why;
	size_t n;

	if (!openai_answer_ids(answer, NULL, 0, &n, &why))
		return why;
	c->ids = malloc((n ? n : 1) * sizeof *c->ids);
	if (!c->ids)
		return "out of memory";
	openai_answer_ids(answer, c->ids, n, &c->n_ids, &why);
	return why;
}

/* Beside the evaluator: a long prompt's ids are megabytes of JSON. */
static void
on_answered(struct fetch *f)
{
	struct call *c = f->owner;

	c->why = f->status == 200 ? read_answer(c) : "worker answered with an error";
	if (c->why) {
		free(c->ids);
		c->ids = NULL;
	}
}

static const char *
why_not(const struct call *c)
{
	switch (c->fetch.result) {
	case FETCH_OK:
		return c->why;
	case FETCH_LATE:
	case FETCH_NO_TIME:
		return "no answer in time";
	case FETCH_NO_MEMORY:
		return "out of memory";
	default:
		return c->fetch.status == 0 ? "worker cannot be reached" : "answer was cut off";
	}
}

static bool
unreachable(const struct fetch *f)
{
	return f->status == 0 && f->result != FETCH_NO_TIME && f->result != FETCH_NO_MEMORY;
}

int
tokensource_new(struct tokensource **ret)
{
	struct tokensource *t = calloc(1, sizeof *t);

	if (!t)
		return -ENOMEM;
	if (tokencache_new(&t->cache, TOKENSOURCE_CACHE_BYTES) < 0 ||
	    fetcher_new(&t->fetcher, HOST_CONNECTIONS) < 0) {
		tokensource_free(&t);
		return -ENOMEM;
	}
	*ret = t;
	return 0;
}

static void
drop(struct fetch *f)
{
	call_free(f->owner);
}

void
tokensource_free(struct tokensource **ret)
{
	struct tokensource *t = *ret;

	if (!t)
		return;
	fetcher_free(&t->fetcher, drop);
	tokencache_free(&t->cache);
	free(t);
	*ret = NULL;
}

zsock_t *
tokensource_socket(struct tokensource *t)
{
	return fetcher_socket(t->fetcher);
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

/* Members may share the name that their certificates have. */
static const char *
worker_of(const struct fetch *f)
{
	return f->detour ? f->detour : f->url;
}

int
tokensource_request(struct tokensource *t, struct token_key key, const struct fetch_peer *peer,
		    const char *text, size_t len, mono_ns now)
{
	for (const struct fetch *f = fetcher_under_way(t->fetcher); f; f = f->next) {
		const struct call *c = f->owner;

		if (c->key.lo == key.lo && c->key.hi == key.hi)
			return 0;
	}
	if (t->n_calls >= TOKENSOURCE_CALLS || len > TOKENSOURCE_BYTES - t->bytes)
		return -EBUSY;

	struct call *c = calloc(1, sizeof *c);

	if (!c || !(c->text = malloc(len ? len : 1)) ||
	    fetch_to(&c->fetch, peer, "/tokenize") < 0) {
		if (c)
			call_free(c);
		return -ENOMEM;
	}
	const struct rest *rest = resting(t, worker_of(&c->fetch));

	if (rest && now < rest->until) {
		call_free(c);
		return -EHOSTDOWN;
	}
	memcpy(c->text, text, len);
	c->key = key;
	c->fetch.body = c->text;
	c->fetch.body_len = len;
	c->fetch.deadline_ns = now + TOKENSOURCE_CALL_NS;
	c->fetch.answer_max = TOKENSOURCE_ANSWER_BYTES;
	c->fetch.ended = on_answered;
	c->fetch.owner = c;
	t->n_calls++;
	t->bytes += len;
	fetcher_send(t->fetcher, &c->fetch);
	return 0;
}

int
tokensource_collect(struct tokensource *t, mono_ns now, struct token_key *ret_key,
		    const char **ret_why)
{
	struct fetch *f = fetcher_collect(t->fetcher);

	if (!f)
		return 0;

	struct call *c = f->owner;

	t->n_calls--;
	t->bytes -= f->body_len;
	*ret_key = c->key;
	*ret_why = why_not(c);
	if (!*ret_why) {
		tokencache_put(t->cache, c->key, c->ids, c->n_ids);
		c->ids = NULL;
	}
	if (unreachable(f)) {
		struct rest *rest = resting(t, worker_of(f));

		if (!rest)
			rest = &t->rest[t->next_rest++ % REST_HOSTS];
		snprintf(rest->url, sizeof rest->url, "%s", worker_of(f));
		rest->until = now + TOKENSOURCE_REST_NS;
	}
	call_free(c);
	return 1;
}
