/* actors/common/verbs.c -- which verbs there are, and what may be said to them; see verbs.h. */
#include "actors/common/verbs.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/common/fields.h"
#include "actors/common/show.h"
#include "actors/common/show_index.h"
#include "actors/common/why.h"

#define ARGUMENTS_MAX   6u
#define TEXT_MAX        256u            /* bytes of a name */

enum argument_type {
	ARGUMENT_ID = 1, ARGUMENT_INTEGER, ARGUMENT_VERB, ARGUMENT_TEXT, ARGUMENT_HASH,
	ARGUMENT_HASHES, ARGUMENT_TOKENS, ARGUMENT_BOOL,
};

struct argument {
	const char *name;                       /* NULL: no more */
	enum argument_type type;
	bool required;
	uint64_t least, most;                   /* of an integer; most members of a list */
	const char *doc;
};

struct verb {
	const char *name;
	json_t *(*answer)(const struct pm_view *view, const json_t *request, json_t **ret_refused);
	/* NULL with a refusal in *ret_refused, or no memory. */
	const char *doc;
	struct argument argument[ARGUMENTS_MAX];
};

static json_t *answer_hello(const struct pm_view *view, const json_t *request,
			    json_t **ret_refused);
static json_t *answer_help(const struct pm_view *view, const json_t *request,
			   json_t **ret_refused);

/* ---- answers ---- */

static uint64_t
integer_or(const json_t *request, const char *key, uint64_t otherwise)
{
	const json_t *v = json_object_get(request, key);

	return v ? (uint64_t)json_integer_value(v) : otherwise;
}

static json_t *
answer_stat(const struct pm_view *view, const json_t *request, json_t **ret_refused)
{
	(void)request;
	(void)ret_refused;
	return pm_show_stat(view);
}

static json_t *
answer_segments(const struct pm_view *view, const json_t *request, json_t **ret_refused)
{
	(void)request;
	(void)ret_refused;
	return pm_show_segments(view);
}

static json_t *
answer_workers(const struct pm_view *view, const json_t *request, json_t **ret_refused)
{
	const char *worker = json_string_value(json_object_get(request, "worker"));
	json_t *o = json_is_true(json_object_get(request, "why")) ? pm_why_workers(view) :
								    pm_show_workers(view);
	json_t *list = json_object_get(o, "workers");

	if (!worker)
		return o;
	for (size_t i = json_array_size(list); i-- > 0;)
		if (strcmp(pm_text_at(json_array_get(list, i), "worker", ""), worker) != 0)
			json_array_remove(list, i);
	if (json_array_size(list) > 0)
		return o;
	json_decref(o);
	*ret_refused = pm_verb_refusal("bad_request", "no worker \"%s\"", worker);
	return NULL;
}

static json_t *
answer_tenants(const struct pm_view *view, const json_t *request, json_t **ret_refused)
{
	(void)request;
	(void)ret_refused;
	return pm_show_tenants(view);
}

static json_t *
answer_requests(const struct pm_view *view, const json_t *request, json_t **ret_refused)
{
	(void)ret_refused;
	return pm_show_requests(view, (unsigned)integer_or(request, "limit",
							   PM_SHOW_REQUESTS_DEFAULT));
}

static json_t *
answer_explain(const struct pm_view *view, const json_t *request, json_t **ret_refused)
{
	const json_t *given = json_object_get(request, "id");
	uint64_t id = 0;

	(void)ret_refused;
	pm_show_id(json_string_value(given), json_string_length(given), &id);
	return pm_show_explain(view, id);
}

static json_t *
answer_index(const struct pm_view *view, const json_t *request, json_t **ret_refused)
{
	(void)request;
	return pm_show_index(view, ret_refused);
}

static json_t *
answer_index_slots(const struct pm_view *view, const json_t *request, json_t **ret_refused)
{
	return pm_show_index_slots(view,
				   json_string_value(json_object_get(request, "worker")),
				   (unsigned)integer_or(request, "after", 0),
				   (unsigned)integer_or(request, "limit", PM_SHOW_SLOTS_DEFAULT),
				   ret_refused);
}

static json_t *
answer_index_holders(const struct pm_view *view, const json_t *request, json_t **ret_refused)
{
	uint64_t hash[PM_SHOW_HASHES_MAX];
	json_t *one;
	size_t i;

	json_array_foreach(json_object_get(request, "hashes"), i, one)
		pm_hex_read(json_string_value(one), json_string_length(one), &hash[i]);
	return pm_show_index_holders(view, hash, (unsigned)i, ret_refused);
}

static json_t *
answer_index_prompt(const struct pm_view *view, const json_t *request, json_t **ret_refused)
{
	const json_t *list = json_object_get(request, "tokens"),
		     *parent = json_object_get(request, "parent");
	struct pm_show_prompt prompt = {
		.model = json_string_value(json_object_get(request, "model")),
		.adapter = json_string_value(json_object_get(request, "adapter")),
		.salt = json_string_value(json_object_get(request, "salt")),
		.block_tokens = (uint32_t)integer_or(request, "block_tokens", 0),
	};
	size_t n = json_array_size(list);
	uint32_t *tokens = calloc(n + 1, sizeof tokens[0]);
	json_t *o;

	if (!tokens)
		return NULL;
	pm_hex_read(json_string_value(parent), json_string_length(parent), &prompt.parent);
	for (size_t i = 0; i < n; i++)
		tokens[i] = (uint32_t)json_integer_value(json_array_get(list, i));
	o = pm_show_index_prompt(view, &prompt, tokens, n, ret_refused);
	free(tokens);
	return o;
}

static json_t *
answer_events(const struct pm_view *view, const json_t *request, json_t **ret_refused)
{
	(void)view;
	(void)request;
	*ret_refused = pm_verb_refusal("absent", "events come through pointsman-admin alone, and "
				       "it does not answer");
	return NULL;
}

static const struct verb verbs[] = {
	{"hello", answer_hello, "Who answers, and which versions of which verbs it knows.", {{0}}},
	{"help", answer_help, "What verbs do and which arguments they take.",
	 {{"of", ARGUMENT_VERB, false, 0, 0, "one verb; without it, all of them"}}},
	{"stat", answer_stat, "Generation, reload state, processes, request and index totals.",
	 {{0}}},
	{"segments", answer_segments,
	 "Every shared segment: owner, size, writer, what fills it; and the sums over all.", {{0}}},
	{"workers", answer_workers,
	 "Every worker: state, our requests there, its own reading, cache state, predictor.",
	 {{"worker", ARGUMENT_TEXT, false, 0, 0, "this one only, all its ranks"},
	  {"why", ARGUMENT_BOOL, false, 0, 0,
	   "true: also each state's reason, since when, and what is wrong"}}},
	{PM_VERB_EVENTS, answer_events,
	 "KV events of a worker as they are applied: those behind `after`, waited for.",
	 {{"worker", ARGUMENT_TEXT, true, 0, 0, "its name; all its ranks"},
	  {"after", ARGUMENT_INTEGER, false, 0, INT64_MAX,
	   "`next` of the last answer; without it: from now on"},
	  {"limit", ARGUMENT_INTEGER, false, 1, PM_VERB_EVENTS_MAX, "how many; 256"},
	  {"wait_ms", ARGUMENT_INTEGER, false, 0, PM_VERB_EVENTS_WAIT_MS,
	   "how long to wait for the first; 0"}}},
	{"tenants", answer_tenants,
	 "Every tenant: its limits and what is left of them, what it has used, refusals.", {{0}}},
	{"requests", answer_requests, "Live requests, longest waiting first.",
	 {{"limit", ARGUMENT_INTEGER, false, 1, PM_SHOW_REQUESTS_MAX, "how many; 100"}}},
	{"explain", answer_explain,
	 "One request: its decisions with every candidate's numbers, its outcome, predicted "
	 "against actual.",
	 {{"id", ARGUMENT_ID, true, 0, 0, "x-pointsman-request-id"}}},
	{"index", answer_index,
	 "The prefix index: fill, refusals by cause, pool, scrubbing, slots, and what each worker "
	 "holds in which cache state.",
	 {{0}}},
	{"index_slots", answer_index_slots, "Index slots that are not free, by number.",
	 {{"worker", ARGUMENT_TEXT, false, 0, 0, "of this worker only"},
	  {"after", ARGUMENT_INTEGER, false, 0, INDEX_MAX_SLOTS, "go on behind this number"},
	  {"limit", ARGUMENT_INTEGER, false, 1, PM_SHOW_SLOTS_MAX, "how many; 1000"}}},
	{"index_holders", answer_index_holders, "Who holds these blocks.",
	 {{"hashes", ARGUMENT_HASHES, true, 0, PM_SHOW_HASHES_MAX,
	   "chained block hashes of 16 hexadecimal digits"}}},
	{"index_prompt", answer_index_prompt, "Who holds the blocks of this prompt.",
	 {{"model", ARGUMENT_TEXT, true, 0, 0, "as clients or as workers call it"},
	  {"tokens", ARGUMENT_TOKENS, true, 0, PM_SHOW_TOKENS_MAX, "token ids; at most 256 blocks"},
	  {"block_tokens", ARGUMENT_INTEGER, false, 1, 65536, "where workers differ"},
	  {"parent", ARGUMENT_HASH, false, 0, 0, "hash of the block before these tokens"},
	  {"adapter", ARGUMENT_TEXT, false, 0, 0, "LoRA adapter"},
	  {"salt", ARGUMENT_TEXT, false, 0, 0, "cache_salt"}}},
};
#define VERBS (sizeof verbs / sizeof verbs[0])

static const struct verb *
verb_find(const char *name)
{
	for (size_t i = 0; name && i < VERBS; i++)
		if (strcmp(verbs[i].name, name) == 0)
			return &verbs[i];
	return NULL;
}

static const struct argument *
argument_find(const struct verb *verb, const char *name)
{
	for (size_t i = 0; i < ARGUMENTS_MAX && verb->argument[i].name; i++)
		if (strcmp(verb->argument[i].name, name) == 0)
			return &verb->argument[i];
	return NULL;
}

static json_t *
answer_hello(const struct pm_view *view, const json_t *request, json_t **ret_refused)
{
	json_t *o = json_object(), *known = json_object();

	(void)view;
	(void)request;
	(void)ret_refused;
	for (size_t i = 0; i < VERBS; i++)
		json_object_set_new(known, verbs[i].name, json_pack("[i]", PM_VERB_VERSION));
	json_object_set_new(o, "program", json_string("pointsman-admin"));
	json_object_set_new(o, "version", json_string(PM_VERSION));
	json_object_set_new(o, "messages_abi", json_integer(MESSAGES_ABI));
	json_object_set_new(o, "verbs", known);
	return o;
}

static json_t *
help_of(const struct verb *verb)
{
	json_t *o = json_object(), *arguments = json_object();

	for (size_t i = 0; i < ARGUMENTS_MAX && verb->argument[i].name; i++) {
		const struct argument *a = &verb->argument[i];

		json_object_set_new(arguments, a->name, json_pack("{s:b, s:s}", "required",
								  a->required, "text", a->doc));
	}
	json_object_set_new(o, "v", json_pack("[i]", PM_VERB_VERSION));
	json_object_set_new(o, "arguments", arguments);
	json_object_set_new(o, "text", json_string(verb->doc));
	return o;
}

static json_t *
answer_help(const struct pm_view *view, const json_t *request, json_t **ret_refused)
{
	const struct verb *one = verb_find(json_string_value(json_object_get(request, "of")));
	json_t *o = json_object();

	(void)view;
	(void)ret_refused;
	for (size_t i = 0; i < VERBS; i++)
		if (!one || one == &verbs[i])
			json_object_set_new(o, verbs[i].name, help_of(&verbs[i]));
	return o;
}

/* ---- requests ---- */

json_t *
pm_verb_refusal(const char *code, const char *format, ...)
{
	json_t *o = json_object(), *error = json_object(), *said;
	char text[400];
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(text, sizeof text, format, args);
	va_end(args);
	said = json_string(text);
	if (!said || n >= (int)sizeof text) {           /* cut within a character */
		json_decref(said);
		said = json_string("the request names something too long to repeat");
	}
	json_object_set_new(error, "code", json_string(code));
	json_object_set_new(error, "text", said);
	json_object_set_new(o, "v", json_integer(PM_VERB_VERSION));
	json_object_set_new(o, "ok", json_false());
	json_object_set_new(o, "error", error);
	return o;
}

#define BAD(...) pm_verb_refusal("bad_request", __VA_ARGS__)

static bool
is_hash(const json_t *v)
{
	uint64_t hash;

	return json_is_string(v) &&
	       pm_hex_read(json_string_value(v), json_string_length(v), &hash) && hash != 0;
}

static bool
is_token(const json_t *v)
{
	return json_is_integer(v) && json_integer_value(v) >= 0 &&
	       json_integer_value(v) <= UINT32_MAX;
}

/* NULL: a list of what it should be. */
static json_t *
list_bad(const struct argument *a, const json_t *v, bool (*is)(const json_t *), const char *what)
{
	json_t *one;
	size_t i;

	if (!json_is_array(v) || json_array_size(v) > a->most)
		return BAD("\"%s\" must be a list of at most %llu %s", a->name,
			   (unsigned long long)a->most, what);
	json_array_foreach(v, i, one)
		if (!is(one))
			return BAD("\"%s\": number %zu of the list is none of %s", a->name, i + 1,
				   what);
	return NULL;
}

/* NULL: it is what the verb may be told. */
static json_t *
argument_bad(const struct argument *a, const json_t *v)
{
	uint64_t id;

	switch (a->type) {
	case ARGUMENT_ID:
		if (!json_is_string(v) ||
		    pm_show_id(json_string_value(v), json_string_length(v), &id) < 0)
			return BAD("\"%s\" must be 16 hexadecimal digits, as in "
				   "x-pointsman-request-id", a->name);
		break;
	case ARGUMENT_INTEGER:
		if (!json_is_integer(v) || json_integer_value(v) < (json_int_t)a->least ||
		    json_integer_value(v) > (json_int_t)a->most)
			return BAD("\"%s\" must be a number from %llu to %llu", a->name,
				   (unsigned long long)a->least, (unsigned long long)a->most);
		break;
	case ARGUMENT_VERB:
		if (!verb_find(json_string_value(v)))
			return BAD("\"%s\" names no verb; hello lists them", a->name);
		break;
	case ARGUMENT_TEXT:
		if (!json_is_string(v) || json_string_length(v) == 0 ||
		    json_string_length(v) > TEXT_MAX ||
		    strlen(json_string_value(v)) != json_string_length(v))
			return BAD("\"%s\" must be a text of 1 to %u bytes", a->name, TEXT_MAX);
		break;
	case ARGUMENT_HASH:
		if (!is_hash(v))
			return BAD("\"%s\" must be a hash of 16 hexadecimal digits", a->name);
		break;
	case ARGUMENT_BOOL:
		if (!json_is_boolean(v))
			return BAD("\"%s\" must be true or false", a->name);
		break;
	case ARGUMENT_HASHES:
		return list_bad(a, v, is_hash, "hashes of 16 hexadecimal digits");
	case ARGUMENT_TOKENS:
		return list_bad(a, v, is_token, "token ids, 0 to 4294967295");
	}
	return NULL;
}

static json_t *
arguments_bad(const struct verb *verb, const json_t *request)
{
	const struct argument *a;
	const char *key;
	json_t *value, *bad;

	json_object_foreach((json_t *)(uintptr_t)request, key, value) {
		if (strcmp(key, "v") == 0 || strcmp(key, "verb") == 0 || strcmp(key, "tag") == 0)
			continue;
		a = argument_find(verb, key);
		bad = a ? argument_bad(a, value) : BAD("verb %s takes no \"%s\"", verb->name, key);
		if (bad)
			return bad;
	}
	for (size_t i = 0; i < ARGUMENTS_MAX && verb->argument[i].name; i++) {
		a = &verb->argument[i];
		if (a->required && !json_object_get(request, a->name))
			return BAD("verb %s needs \"%s\"", verb->name, a->name);
	}
	return NULL;
}

const char *
pm_verb_checked(const json_t *request, json_t **ret_refused)
{
	const json_t *v = json_object_get(request, "v"), *name = json_object_get(request, "verb");
	const struct verb *verb = verb_find(json_string_value(name));
	json_t *bad = NULL;

	if (!json_is_integer(v))
		bad = BAD("\"v\", the verb's version, is missing or no integer");
	else if (!json_is_string(name))
		bad = BAD("\"verb\" is missing or no text");
	else if (json_string_length(json_object_get(request, "tag")) > PM_VERB_TAG_MAX)
		bad = BAD("\"tag\" is longer than %u bytes", PM_VERB_TAG_MAX);
	else if (!verb)
		bad = pm_verb_refusal("unknown_verb", "no verb \"%s\"; hello lists them",
				      json_string_value(name));
	else if (json_integer_value(v) != PM_VERB_VERSION)
		bad = pm_verb_refusal("unsupported_version",
				      "verb %s is known in version %d only", verb->name,
				      PM_VERB_VERSION);
	else
		bad = arguments_bad(verb, request);
	if (!bad)
		return verb->name;
	*ret_refused = bad;
	return NULL;
}

json_t *
pm_verb_success(const char *verb, json_t *result)
{
	json_t *o = json_object();

	json_object_set_new(o, "v", json_integer(PM_VERB_VERSION));
	json_object_set_new(o, "ok", json_true());
	json_object_set_new(o, "verb", json_string(verb));
	json_object_set_new(o, "result", result);
	return o;
}

json_t *
pm_verb_answer(const struct pm_view *view, const json_t *request)
{
	json_t *refused = NULL, *result;
	const char *name = pm_verb_checked(request, &refused);

	if (!name)
		return refused;
	result = verb_find(name)->answer(view, request, &refused);
	if (!result)
		return refused ? refused : pm_verb_refusal("no_memory", "no memory for the answer");
	return pm_verb_success(name, result);
}
