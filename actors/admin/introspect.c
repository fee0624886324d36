/* actors/admin/introspect.c -- verbs, their arguments, their errors; see introspect.h. */
#include "actors/admin/introspect.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "actors/admin/wire.h"
#include "actors/common/show.h"

#define TAG_MAX 256u

enum argument_type { ARGUMENT_ID = 1, ARGUMENT_COUNT, ARGUMENT_VERB };

struct verb {
	const char *name;
	const char *argument;                   /* NULL: none */
	enum argument_type type;
	bool required;
	json_t *(*answer)(const struct pm_view *view, const json_t *argument);
	const char *doc;
};

static json_t *answer_hello(const struct pm_view *view, const json_t *argument);
static json_t *answer_help(const struct pm_view *view, const json_t *argument);

static json_t *
answer_stat(const struct pm_view *view, const json_t *argument)
{
	(void)argument;
	return pm_show_stat(view);
}

static json_t *
answer_workers(const struct pm_view *view, const json_t *argument)
{
	(void)argument;
	return pm_show_workers(view);
}

static json_t *
answer_requests(const struct pm_view *view, const json_t *argument)
{
	return pm_show_requests(view, argument ? (unsigned)json_integer_value(argument) :
						 PM_SHOW_REQUESTS_DEFAULT);
}

static json_t *
answer_explain(const struct pm_view *view, const json_t *argument)
{
	uint64_t id = 0;

	pm_show_id(json_string_value(argument), json_string_length(argument), &id);
	return pm_show_explain(view, id);
}

static const struct verb verbs[] = {
	{"hello", NULL, 0, false, answer_hello,
	 "Who answers, and which versions of which verbs it knows."},
	{"help", "of", ARGUMENT_VERB, false, answer_help,
	 "What a verb does and which argument it takes; without `of`, all of them."},
	{"stat", NULL, 0, false, answer_stat,
	 "Generation, reload state, processes, request and index totals."},
	{"workers", NULL, 0, false, answer_workers,
	 "Every worker: state, our requests there, its own reading, cache state, predictor."},
	{"requests", "limit", ARGUMENT_COUNT, false, answer_requests,
	 "Live requests, longest waiting first; limit 1 to 10000, default 100."},
	{"explain", "id", ARGUMENT_ID, true, answer_explain,
	 "One request: its decisions with every candidate's numbers, its outcome, predicted "
	 "against actual."},
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

static json_t *
answer_hello(const struct pm_view *view, const json_t *argument)
{
	json_t *o = json_object(), *known = json_object();

	(void)view;
	(void)argument;
	for (size_t i = 0; i < VERBS; i++)
		json_object_set_new(known, verbs[i].name, json_pack("[i]", INTROSPECT_VERSION));
	json_object_set_new(o, "program", json_string("pointsman-admin"));
	json_object_set_new(o, "version", json_string(PM_VERSION));
	json_object_set_new(o, "messages_abi", json_integer(MESSAGES_ABI));
	json_object_set_new(o, "verbs", known);
	return o;
}

static json_t *
help_of(const struct verb *verb)
{
	json_t *o = json_object();

	json_object_set_new(o, "v", json_pack("[i]", INTROSPECT_VERSION));
	json_object_set_new(o, "argument",
			    verb->argument ? json_string(verb->argument) : json_null());
	json_object_set_new(o, "required", json_boolean(verb->required));
	json_object_set_new(o, "text", json_string(verb->doc));
	return o;
}

static json_t *
answer_help(const struct pm_view *view, const json_t *argument)
{
	const struct verb *one = verb_find(json_string_value(argument));
	json_t *o = json_object();

	(void)view;
	for (size_t i = 0; i < VERBS; i++)
		if (!one || one == &verbs[i])
			json_object_set_new(o, verbs[i].name, help_of(&verbs[i]));
	return o;
}

static json_t *
refusal(const char *code, const char *format, ...) __attribute__((format(printf, 2, 3)));

static json_t *
refusal(const char *code, const char *format, ...)
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
	json_object_set_new(o, "v", json_integer(INTROSPECT_VERSION));
	json_object_set_new(o, "ok", json_false());
	json_object_set_new(o, "error", error);
	return o;
}

/* NULL: it is fit for the verb. */
static json_t *
argument_bad(const struct verb *verb, const json_t *argument)
{
	uint64_t id;

	if (!argument)
		return verb->required ? refusal("bad_request", "verb %s needs \"%s\"", verb->name,
						verb->argument) : NULL;
	switch (verb->type) {
	case ARGUMENT_ID:
		if (!json_is_string(argument) ||
		    pm_show_id(json_string_value(argument), json_string_length(argument), &id) < 0)
			return refusal("bad_request", "\"id\" must be 16 hexadecimal digits, as in "
				       "x-pointsman-request-id");
		break;
	case ARGUMENT_COUNT:
		if (!json_is_integer(argument) || json_integer_value(argument) < 1 ||
		    json_integer_value(argument) > PM_SHOW_REQUESTS_MAX)
			return refusal("bad_request", "\"%s\" must be a number from 1 to %u",
				       verb->argument, PM_SHOW_REQUESTS_MAX);
		break;
	case ARGUMENT_VERB:
		if (!verb_find(json_string_value(argument)))
			return refusal("bad_request", "\"of\" names no verb; hello lists them");
		break;
	}
	return NULL;
}

static json_t *
answer(const struct pm_view *view, const json_t *request)
{
	const json_t *v = json_object_get(request, "v"), *name = json_object_get(request, "verb"),
		     *argument;
	const struct verb *verb;
	const char *key;
	json_t *value, *o;

	if (!json_is_integer(v))
		return refusal("bad_request",
			       "\"v\", the verb's version, is missing or no integer");
	if (!json_is_string(name))
		return refusal("bad_request", "\"verb\" is missing or no text");
	if (json_string_length(json_object_get(request, "tag")) > TAG_MAX)
		return refusal("bad_request", "\"tag\" is longer than %u bytes", TAG_MAX);
	verb = verb_find(json_string_value(name));
	if (!verb)
		return refusal("unknown_verb", "no verb \"%s\"; hello lists them",
			       json_string_value(name));
	if (json_integer_value(v) != INTROSPECT_VERSION)
		return refusal("unsupported_version", "verb %s is known in version %d only",
			       verb->name, INTROSPECT_VERSION);
	json_object_foreach((json_t *)(uintptr_t)request, key, value)
		if (strcmp(key, "v") != 0 && strcmp(key, "verb") != 0 && strcmp(key, "tag") != 0 &&
		    (!verb->argument || strcmp(key, verb->argument) != 0))
			return refusal("bad_request", "verb %s takes no \"%s\"", verb->name, key);
	argument = verb->argument ? json_object_get(request, verb->argument) : NULL;
	o = argument_bad(verb, argument);
	if (o)
		return o;
	o = json_object();
	json_object_set_new(o, "v", json_integer(INTROSPECT_VERSION));
	json_object_set_new(o, "ok", json_true());
	json_object_set_new(o, "verb", json_string(verb->name));
	json_object_set_new(o, "result", verb->answer(view, argument));
	return o;
}

int
introspect_answer(const struct pm_view *view, const void *request, size_t len, void **ret,
		  size_t *ret_len)
{
	json_t *asked = NULL, *said;
	const char *why = "";
	int r = wire_decode(request, len, &asked, &why);

	said = r < 0 ? refusal("bad_frame", "the request is %s", why) : answer(view, asked);
	json_t *tag = json_object_get(asked, "tag");

	if (json_is_integer(tag) || (json_is_string(tag) && json_string_length(tag) <= TAG_MAX))
		json_object_set(said, "tag", tag);
	r = wire_encode(said, wire_form_of(request, len), ret, ret_len);
	json_decref(said);
	json_decref(asked);
	return r;
}
