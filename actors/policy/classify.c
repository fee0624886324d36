/* actors/policy/classify.c -- calls to classifiers beside the evaluator; see classify.h. */
#include "actors/policy/classify.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "actors/common/tags/texts.h"

#define FAILURES 64u            /* that are remembered */
#define HOST_CONNECTIONS 16L    /* to one classifier at once */

struct call {
	struct fetch fetch;
	struct token_key key;
	char *body;                     /* owned */
	char label[MANIFEST_NAME_MAX + 1];
	double threshold;
	bool understood, has;           /* of an answer */
};

/* A question that failed, or a place that cannot be reached; until then. */
struct failure {
	struct token_key key;
	char url[320];                  /* "": of the question alone */
	mono_ns until;
};

struct classify {
	struct fetcher *fetcher;        /* owned */
	struct tokencache *cache;       /* owned: one number, 0 or 1 */
	unsigned n_calls;
	size_t bytes;
	struct failure failure[FAILURES];
	unsigned next_failure;
	char *texts;                    /* owned */
	size_t n_texts;
	bool too_long;
};

/* ---- the texts as one array ---- */

static void
put(struct classify *c, const char *p, size_t n)
{
	if (c->too_long || n > CLASSIFY_TEXT_BYTES - c->n_texts) {
		c->too_long = true;
		return;
	}
	memcpy(c->texts + c->n_texts, p, n);
	c->n_texts += n;
}

static void
put_text(void *arg, const struct texts_text *text)
{
	struct classify *c = arg;
	ssize_t n;

	put(c, c->n_texts > 1 ? ",\"" : "\"", c->n_texts > 1 ? 2 : 1);
	if (text->value && !c->too_long) {
		n = json_escape(text->string.raw, c->texts + c->n_texts,
				CLASSIFY_TEXT_BYTES - c->n_texts);
		if (n < 0)
			c->too_long = true;
		else
			c->n_texts += (size_t)n;
	} else {
		put(c, text->string.raw.p, text->string.raw.len);       /* escaped as it is */
	}
	put(c, "\"", 1);
}

struct slice
classify_texts(struct classify *c, struct slice body)
{
	unsigned hidden;

	c->n_texts = 0;
	c->too_long = false;
	if (body.len > CLASSIFY_BODY_BYTES)
		return (struct slice){NULL, 0};
	put(c, "[", 1);
	if (texts_walk(body, put_text, c, &hidden) < 0)
		return (struct slice){NULL, 0};
	put(c, "]", 1);
	return c->too_long ? (struct slice){NULL, 0} : (struct slice){c->texts, c->n_texts};
}

/* ---- the answer ---- */

struct reading {
	struct json_cursor c;
	const char *label;
	double threshold;
	bool some, has;
};

static double
number_of(struct json_cursor *c)
{
	struct slice text;
	double v = 0;

	if (!json_get_number(c, &text) || json_to_double(text, &v) < 0)
		return 0;
	return v;
}

static double
greatest(struct json_cursor *c)
{
	double most = 0;

	if (!json_enter_array(c))
		return 0;
	while (json_next_element(c)) {
		double v = 0;

		if (json_peek(c) == JSON_IS_NUMBER)
			v = number_of(c);
		else
			json_skip(c);
		if (v > most)
			most = v;
	}
	return most;
}

static void read_value(struct reading *r);

static void
read_object(struct reading *r)
{
	bool labelled = false, ours = false, scored = false, listed = false;
	double score = 0, probs = 0;
	struct json_string key, label;

	if (!json_enter_object(&r->c))
		return;
	while (json_next_member(&r->c, &key)) {
		enum json_type is = json_peek(&r->c);

		if (is == JSON_IS_STRING && json_string_eq(&key, "label")) {
			labelled = json_get_string(&r->c, &label);
			ours = labelled && json_string_eq(&label, r->label);
		} else if (is == JSON_IS_NUMBER && json_string_eq(&key, "score")) {
			score = number_of(&r->c);
			scored = true;
		} else if (is == JSON_IS_ARRAY && json_string_eq(&key, "probs")) {
			probs = greatest(&r->c);
			listed = true;
		} else {
			read_value(r);
		}
	}
	if (!scored)
		score = listed ? probs : 1;
	r->some |= labelled;
	r->has |= ours && score >= r->threshold;
}

/* No deeper than the cursor goes. */
static void
read_value(struct reading *r)
{
	switch (json_peek(&r->c)) {
	case JSON_IS_OBJECT:
		read_object(r);
		break;
	case JSON_IS_ARRAY:
		if (!json_enter_array(&r->c))
			return;
		while (json_next_element(&r->c))
			read_value(r);
		break;
	default:
		json_skip(&r->c);
		break;
	}
}

bool
classify_read(struct slice answer, const char *label, double threshold, bool *ret_has)
{
	struct reading r = {.label = label, .threshold = threshold};

	json_begin(&r.c, answer.p, answer.len);
	read_value(&r);
	if (json_end(&r.c) < 0 || !r.some)
		return false;
	*ret_has = r.has;
	return true;
}

/* Beside the evaluator. */
static void
on_answered(struct fetch *f)
{
	struct call *c = f->owner;

	c->understood = f->status == 200 && classify_read((struct slice){f->answer, f->len},
							  c->label, c->threshold, &c->has);
}

/* ---- calls ---- */

static void
call_free(struct call *c)
{
	fetch_clear(&c->fetch);
	free(c->body);
	free(c);
}

int
classify_new(struct classify **ret)
{
	struct classify *c = calloc(1, sizeof *c);

	if (!c)
		return -ENOMEM;
	c->texts = malloc(CLASSIFY_TEXT_BYTES);
	if (!c->texts || tokencache_new(&c->cache, CLASSIFY_CACHE_BYTES) < 0 ||
	    fetcher_new(&c->fetcher, HOST_CONNECTIONS) < 0) {
		classify_free(&c);
		return -ENOMEM;
	}
	*ret = c;
	return 0;
}

static void
drop(struct fetch *f)
{
	call_free(f->owner);
}

void
classify_free(struct classify **ret)
{
	struct classify *c = *ret;

	if (!c)
		return;
	fetcher_free(&c->fetcher, drop);
	tokencache_free(&c->cache);
	free(c->texts);
	free(c);
	*ret = NULL;
}

zsock_t *
classify_socket(struct classify *c)
{
	return fetcher_socket(c->fetcher);
}

static struct token_key
key_of(const struct manifest_classifier *about, const char *model, struct slice texts)
{
	uint64_t seed;
	XXH128_hash_t h;

	seed = XXH3_64bits_withSeed(&about->threshold, sizeof about->threshold, about->pool);
	seed = XXH3_64bits_withSeed(about->url, strlen(about->url), seed);
	seed = XXH3_64bits_withSeed(about->label, strlen(about->label), seed);
	seed = XXH3_64bits_withSeed(model, strlen(model), seed);
	h = XXH3_128bits_withSeed(texts.p, texts.len, seed);
	return (struct token_key){.lo = h.low64, .hi = h.high64};
}

static bool
same(struct token_key a, struct token_key b)
{
	return a.lo == b.lo && a.hi == b.hi;
}

enum classify_says
classify_find(struct classify *c, const struct manifest_classifier *about, const char *model,
	      struct slice texts, mono_ns now, struct token_key *ret_key)
{
	const uint32_t *says;
	size_t n;

	*ret_key = key_of(about, model ? model : "", texts);
	if (tokencache_find(c->cache, *ret_key, &says, &n))
		return says[0] ? CLASSIFY_YES : CLASSIFY_NO;
	for (unsigned i = 0; i < FAILURES; i++)
		if (same(c->failure[i].key, *ret_key) && now < c->failure[i].until)
			return CLASSIFY_UNKNOWN;
	return CLASSIFY_WAIT;
}

bool
classify_pending(const struct classify *c, struct token_key key)
{
	for (const struct fetch *f = fetcher_under_way(c->fetcher); f; f = f->next)
		if (same(((const struct call *)f->owner)->key, key))
			return true;
	return false;
}

static bool
resting(const struct classify *c, const char *url, mono_ns now)
{
	for (unsigned i = 0; i < FAILURES; i++)
		if (now < c->failure[i].until && strcmp(c->failure[i].url, url) == 0)
			return true;
	return false;
}

/* {"model": .., "input": texts} */
static int
write_body(struct call *c, const char *model, struct slice texts)
{
	char name[6 * MANIFEST_MODEL_MAX + 32] = "{\"input\":";
	ssize_t n;

	if (model) {
		strcpy(name, "{\"model\":\"");
		n = json_escape(slice_str(model), name + 10, sizeof name - 32);
		if (n < 0)
			return -EINVAL;
		strcpy(name + 10 + n, "\",\"input\":");
	}
	c->fetch.body_len = strlen(name) + texts.len + 1;
	c->body = malloc(c->fetch.body_len + 1);
	if (!c->body)
		return -ENOMEM;
	char *at = stpcpy(c->body, name);

	memcpy(at, texts.p, texts.len);
	at[texts.len] = '}';
	c->fetch.body = c->body;
	return 0;
}

int
classify_ask(struct classify *c, const struct manifest_classifier *about,
	     const struct fetch_peer *peer, const char *path, const char *model, struct slice texts,
	     struct token_key key, mono_ns now)
{
	struct call *call;

	if (c->n_calls >= CLASSIFY_CALLS || texts.len > CLASSIFY_BYTES - c->bytes)
		return -EBUSY;
	call = calloc(1, sizeof *call);
	if (!call || write_body(call, model, texts) < 0 || fetch_to(&call->fetch, peer, path) < 0) {
		if (call)
			call_free(call);
		return -ENOMEM;
	}
	if (resting(c, call->fetch.url, now)) {
		call_free(call);
		return -EHOSTDOWN;
	}
	call->key = key;
	strcpy(call->label, about->label);
	call->threshold = about->threshold;
	call->fetch.deadline_ns = now + about->deadline_ns;
	call->fetch.answer_max = CLASSIFY_ANSWER_BYTES;
	call->fetch.ended = on_answered;
	call->fetch.owner = call;
	c->n_calls++;
	c->bytes += call->fetch.body_len;
	fetcher_send(c->fetcher, &call->fetch);
	return 0;
}

static const char *
why_not(const struct call *c)
{
	switch (c->fetch.result) {
	case FETCH_OK:
		if (c->fetch.status != 200)
			return "it answered with an error";
		return c->understood ? NULL : "its answer has no label";
	case FETCH_LATE:
	case FETCH_NO_TIME:
		return "no answer in time";
	case FETCH_NO_MEMORY:
		return "out of memory";
	default:
		return c->fetch.status == 0 ? "it cannot be reached" : "its answer was cut off";
	}
}

static void
remember_failure(struct classify *c, const struct call *call, mono_ns now)
{
	struct failure *f = &c->failure[c->next_failure++ % FAILURES];

	f->key = call->key;
	f->until = now + CLASSIFY_REST_NS;
	f->url[0] = '\0';
	if (call->fetch.result == FETCH_BROKEN && call->fetch.status == 0)
		snprintf(f->url, sizeof f->url, "%s", call->fetch.url);
}

bool
classify_collect(struct classify *c, mono_ns now, struct token_key *ret_key, const char **ret_why)
{
	struct fetch *f = fetcher_collect(c->fetcher);
	struct call *call;
	uint32_t *says;

	if (!f)
		return false;
	call = f->owner;
	c->n_calls--;
	c->bytes -= f->body_len;
	*ret_key = call->key;
	*ret_why = why_not(call);
	if (*ret_why) {
		remember_failure(c, call, now);
	} else if ((says = malloc(sizeof *says))) {
		*says = call->has;
		tokencache_put(c->cache, call->key, says, 1);
	}
	call_free(call);
	return true;
}
