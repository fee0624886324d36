/* tests/unit/test_introspect.c -- verbs and their errors, in both encodings. */
#include "tests/unit/view_world.h"

#include <msgpack.h>

#include "actors/admin/introspect.h"
#include "actors/admin/wire.h"
#include "proto/frame.h"

/* The answer, read back in the form it came in, which must be the request's. */
static json_t *
put(const struct pm_view *view, const void *request, size_t len)
{
	void *bytes = NULL;
	size_t n = 0;
	json_t *o = NULL;
	const char *why = "";

	cr_assert_eq(introspect_answer(view, request, len, &bytes, &n), 0);
	cr_assert_eq(wire_form_of(bytes, n), wire_form_of(request, len));
	if (wire_form_of(bytes, n) == WIRE_MSGPACK)
		cr_assert(frame_sane(bytes, n));
	if (n <= WIRE_REQUEST_MAX)
		cr_assert_eq(wire_decode(bytes, n, &o, &why), 0, "%s", why);
	else
		o = json_loadb(bytes, n, 0, NULL);
	cr_assert_not_null(o);
	free(bytes);
	return o;
}

static json_t *
put_text(const struct pm_view *view, const char *text)
{
	json_t *request = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
	json_t *o = put(view, text, strlen(text)), *same;
	void *bytes;
	size_t n;

	if (!request)
		return o;
	/* The msgpack of the same request has the same answer, but for ages. */
	cr_assert_eq(wire_encode(request, WIRE_MSGPACK, &bytes, &n), 0);
	same = put(view, bytes, n);
	cr_assert(json_equal(json_object_get(o, "ok"), json_object_get(same, "ok")));
	cr_assert(json_equal(json_object_get(o, "error"), json_object_get(same, "error")) ||
		  !json_object_get(o, "error"));
	cr_assert_eq(json_object_size(json_object_get(o, "result")),
		     json_object_size(json_object_get(same, "result")));
	json_decref(same);
	json_decref(request);
	free(bytes);
	return o;
}

static void
refused(const struct pm_view *view, const char *text, const char *code)
{
	json_t *o = put_text(view, text);

	cr_assert(json_is_false(json_object_get(o, "ok")), "%s", text);
	cr_assert_str_eq(world_text(json_object_get(o, "error"), "code"), code);
	json_decref(o);
}

Test(introspect, every_verb_of_hello_answers)
{
	struct view_world w;
	json_t *o, *verbs, *versions;
	const char *verb;

	static const struct {
		const char *verb, *arguments;
	} needs[] = {
		{"events", ", \"worker\": \"w0\""},
		{"explain", ", \"id\": \"0000030000000001\""},
		{"index_holders", ", \"hashes\": [\"0000030000000001\"]"},
		{"index_prompt", ", \"model\": \"demo\", \"block_tokens\": 2, \"tokens\": [1, 2]"},
	};

	world_begin(&w);
	world_outcome(&w, WORLD_ID(1), true);
	o = put_text(&w.view, "{\"v\": 1, \"verb\": \"hello\"}");
	verbs = json_object_get(json_object_get(o, "result"), "verbs");
	cr_assert_eq(json_object_size(verbs), 13);
	json_object_foreach(verbs, verb, versions) {
		const char *arguments = "";
		char text[160];
		json_t *said;

		for (size_t i = 0; i < sizeof needs / sizeof needs[0]; i++)
			if (strcmp(verb, needs[i].verb) == 0)
				arguments = needs[i].arguments;
		if (*arguments) {
			snprintf(text, sizeof text, "{\"v\": 1, \"verb\": \"%s\"}", verb);
			refused(&w.view, text, "bad_request");  /* it is needed */
		}
		snprintf(text, sizeof text, "{\"v\": 1, \"verb\": \"%s\"%s}", verb, arguments);
		if (strcmp(verb, "events") == 0) {      /* only who hears them can tell */
			refused(&w.view, text, "absent");
			continue;
		}
		said = put_text(&w.view, text);
		cr_assert(json_is_true(json_object_get(said, "ok")), "%s", verb);
		cr_assert(json_is_object(json_object_get(said, "result")), "%s", verb);
		json_decref(said);
	}
	json_decref(o);
	world_end(&w);
}

Test(introspect, a_tag_comes_back_with_answers_and_refusals)
{
	struct pm_view view;
	json_t *o;

	pm_view_init(&view);
	o = put_text(&view, "{\"v\": 1, \"verb\": \"stat\", \"tag\": \"x\"}");
	cr_assert_str_eq(world_text(o, "tag"), "x");
	json_decref(o);
	o = put_text(&view, "{\"v\": 1, \"verb\": \"dance\", \"tag\": 9}");
	cr_assert_eq(world_number(o, "tag"), 9);
	json_decref(o);
	char text[1000];

	snprintf(text, sizeof text, "{\"v\": 1, \"verb\": \"stat\", \"tag\": \"%0*d\"}", 257, 0);
	refused(&view, text, "bad_request");
	snprintf(text, sizeof text, "{\"v\": 1, \"verb\": \"stat\", \"tag\": \"%0*d\"}", 256, 0);
	o = put_text(&view, text);
	cr_assert_eq(strlen(world_text(o, "tag")), 256);
	json_decref(o);
}

Test(introspect, what_is_wrong_with_a_request_is_said_by_code)
{
	struct pm_view view;

	pm_view_init(&view);
	refused(&view, "", "bad_frame");
	refused(&view, "{", "bad_frame");
	refused(&view, "[1]", "bad_frame");
	refused(&view, "{\"v\": 1, \"v\": 1, \"verb\": \"stat\"}", "bad_frame");
	refused(&view, "{\"verb\": \"stat\"}", "bad_request");
	refused(&view, "{\"v\": \"1\", \"verb\": \"stat\"}", "bad_request");
	refused(&view, "{\"v\": 1}", "bad_request");
	refused(&view, "{\"v\": 1, \"verb\": 1}", "bad_request");
	refused(&view, "{\"v\": 1, \"verb\": \"dance\"}", "unknown_verb");
	refused(&view, "{\"v\": 2, \"verb\": \"stat\"}", "unsupported_version");
	refused(&view, "{\"v\": 1, \"verb\": \"stat\", \"colour\": 1}", "bad_request");
	refused(&view, "{\"v\": 1, \"verb\": \"explain\"}", "bad_request");
	refused(&view, "{\"v\": 1, \"verb\": \"explain\", \"id\": \"xyz\"}", "bad_request");
	refused(&view, "{\"v\": 1, \"verb\": \"explain\", \"id\": 7}", "bad_request");
	refused(&view, "{\"v\": 1, \"verb\": \"requests\", \"limit\": 0}", "bad_request");
	refused(&view, "{\"v\": 1, \"verb\": \"requests\", \"limit\": 10001}", "bad_request");
	refused(&view, "{\"v\": 1, \"verb\": \"help\", \"of\": \"dance\"}", "bad_request");
}

#define ASK(verb, more) "{\"v\": 1, \"verb\": \"" verb "\", " more "}"

Test(introspect, arguments_of_the_wrong_kind_or_range_are_refused_by_name)
{
	static const char *const bad[] = {
		ASK("index_holders", "\"hashes\": \"0000030000000001\""),
		ASK("index_holders", "\"hashes\": [1]"),
		ASK("index_holders", "\"hashes\": [\"0000000000000000\"]"),
		ASK("index_holders", "\"hashes\": [\"0000030000000001\", \"123\"]"),
		ASK("index_holders", "\"hashes\": [\"00000300000000010\"]"),
		ASK("index_slots", "\"limit\": 0"),
		ASK("index_slots", "\"limit\": 10001"),
		ASK("index_slots", "\"after\": -1"),
		ASK("index_slots", "\"after\": 65535"),
		ASK("index_slots", "\"worker\": \"\""),
		ASK("index_slots", "\"worker\": \"nobody\""),
		ASK("index_prompt", "\"model\": \"demo\", \"tokens\": [-1]"),
		ASK("index_prompt", "\"model\": \"demo\", \"tokens\": [4294967296]"),
		ASK("index_prompt", "\"model\": \"demo\", \"tokens\": [1.5]"),
		ASK("index_prompt", "\"model\": \"none\", \"tokens\": [1]"),
		ASK("index_prompt", "\"model\": \"demo\", \"tokens\": [1]"),  /* size unknown */
		ASK("index_prompt", "\"tokens\": [1]"),
		ASK("index_prompt", "\"model\": \"demo\", \"tokens\": [], \"block_tokens\": 0"),
		ASK("index_prompt", "\"model\": \"demo\", \"tokens\": [], \"parent\": \"1\""),
	};
	struct view_world w;

	world_begin(&w);
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		refused(&w.view, bad[i], "bad_request");
	world_end(&w);
}

Test(introspect, a_view_without_an_index_says_so)
{
	struct pm_view view;

	pm_view_init(&view);
	refused(&view, "{\"v\": 1, \"verb\": \"index\"}", "absent");
	refused(&view, "{\"v\": 1, \"verb\": \"index_slots\"}", "absent");
	refused(&view, ASK("index_holders", "\"hashes\": [\"0000030000000001\"]"), "absent");
	refused(&view, ASK("index_prompt", "\"model\": \"demo\", \"tokens\": [1]"), "absent");
	pm_view_close(&view);
}

Test(introspect, more_hashes_or_blocks_than_an_answer_may_have_are_refused)
{
	struct view_world w;
	char text[8192];
	size_t n;

	world_begin(&w);
	n = (size_t)snprintf(text, sizeof text, "{\"v\": 1, \"verb\": \"index_holders\", "
			     "\"hashes\": [");
	for (unsigned i = 0; i <= 256; i++)
		n += (size_t)snprintf(text + n, sizeof text - n, "%s\"%016x\"", i ? "," : "",
				      i + 1);
	snprintf(text + n, sizeof text - n, "]}");
	refused(&w.view, text, "bad_request");
	n = (size_t)snprintf(text, sizeof text, "{\"v\": 1, \"verb\": \"index_prompt\", "
			     "\"model\": \"demo\", \"block_tokens\": 2, \"tokens\": [1");
	for (unsigned i = 1; i < 514; i++)
		n += (size_t)snprintf(text + n, sizeof text - n, ",%u", i);
	snprintf(text + n, sizeof text - n, "]}");
	refused(&w.view, text, "bad_request");
	world_end(&w);
}

Test(introspect, an_unknown_verb_too_long_to_repeat_is_still_answered)
{
	struct pm_view view;
	char text[2000];
	json_t *o;
	size_t n = (size_t)snprintf(text, sizeof text, "{\"v\": 1, \"verb\": \"");

	pm_view_init(&view);
	for (unsigned i = 0; i < 600; i++)
		n += (size_t)snprintf(text + n, sizeof text - n,
				      "\xc3\xa9"); /* cut within a character */
	snprintf(text + n, sizeof text - n, "\"}");
	o = put_text(&view, text);
	cr_assert_str_eq(world_text(json_object_get(o, "error"), "code"), "unknown_verb");
	json_decref(o);
}

Test(wire, hostile_msgpack_is_refused_with_a_reason)
{
	static const struct {
		const char *bytes;
		size_t len;
	} bad[] = {
		{"\xde\xff\xff", 3},                            /* claims 65535 pairs */
		{"\xdf\xff\xff\xff\xff", 5},
		{"\x81\xa1v", 3},                               /* no value */
		{"\x82\xa1v\x01\xa1v\x01", 7},                  /* a key twice */
		{"\x81\x01\x01", 3},                            /* a key that is no text */
		{"\x81\xa1\xff\x01", 4},                        /* no UTF-8 */
		{"\x81\xa1v\xa1\xff", 5},
		{"\x81\xa2v\0\x01", 5},                         /* NUL in a key */
		{"\x81\xa1v\xcf\xff\xff\xff\xff\xff\xff\xff\xff", 12},  /* above int64 */
		{"\x81\xa1v\xcb\x7f\xf0\0\0\0\0\0\0", 12},      /* infinity */
		{"\x81\xa1v\xd4\x01\x01", 6},                   /* extension */
		{"\x80\x80", 2},                                /* two values */
	};
	json_t *o = NULL;

	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		const char *why = NULL;

		cr_assert_neq(wire_decode(bad[i].bytes, bad[i].len, &o, &why), 0, "%zu", i);
		cr_assert_not_null(why);
		cr_assert_null(o);
	}
}

Test(wire, every_truncation_of_a_good_request_is_refused)
{
	json_t *request = json_pack("{s:i, s:s, s:[i, f, n, b, {s:s}]}", "v", 1, "verb", "stat",
				    "more", -5, 1.5, 1, "deep", "er"),
	       *o;
	const char *why;
	void *bytes;
	size_t n;

	for (int form = WIRE_JSON; form <= WIRE_MSGPACK; form++) {
		cr_assert_eq(wire_encode(request, (enum wire_form)form, &bytes, &n), 0);
		cr_assert_eq(wire_decode(bytes, n, &o, &why), 0);
		cr_assert(json_equal(o, request));
		json_decref(o);
		for (size_t i = 0; i < n; i++)
			cr_assert_neq(wire_decode(bytes, i, &o, &why), 0, "%d %zu", form, i);
		free(bytes);
	}
	json_decref(request);
}
