/* tests/unit/test_value.c -- JSON read and written as Python does, and dicts. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "actors/common/prompt/value.h"

static struct bump bump;
static struct text out;

static void
setup(void)
{
	bump_init(&bump, 64u << 20);
	text_init(&out, 1u << 20);
}

static void
teardown(void)
{
	bump_free(&bump);
	text_free(&out);
}

TestSuite(value, .init = setup, .fini = teardown);

static int
dump(const char *json, const struct value_dump *how)
{
	const char *why = "";
	struct value v;
	int r;

	text_clear(&out);
	r = value_from_json(&bump, slice_str(json), &v, &why, NULL);
	return r < 0 ? r : value_to_json(v, how, &out, &why);
}

static void
becomes(const char *json, const char *text)
{
	cr_expect_eq(dump(json, NULL), 0, "%s", json);
	cr_expect(slice_eq_str(text_slice(&out), text), "%s: %.*s", json, (int)out.len, out.p);
}

Test(value, json_comes_back_as_python_writes_it)
{
	becomes("{\"b\":1,\"a\":[true,false,null],\"b\":2}",
		"{\"b\": 2, \"a\": [true, false, null]}");
	becomes("[1, 1.0, 1e5, 1E400, -0, -0.0, 0.1, 1e16, 123456789012345680.0, 5e-324]",
		"[1, 1.0, 100000.0, Infinity, 0, -0.0, 0.1, 1e+16, 1.2345678901234568e+17, "
		"5e-324]");
	becomes("[9223372036854775807, 9223372036854775808, -9223372036854775808, "
		"123456789012345678901234567890]",
		"[9223372036854775807, 9223372036854775808, -9223372036854775808, "
		"123456789012345678901234567890]");
	becomes("[NaN, Infinity, -Infinity]", "[NaN, Infinity, -Infinity]");
	becomes("\"\\u00e9\\ud83d\\ude00\\n\\u0001\\u007f\\/\"",
		"\"\xc3\xa9\xf0\x9f\x98\x80\\n\\u0001\x7f/\"");
	becomes("\xef\xbb\xbf {} ", "{}");
	becomes("\"\\ud800x\"", "\"\xed\xa0\x80x\"");
}

Test(value, dumps_takes_pythons_settings)
{
	struct value_dump ascii = {.ascii = true}, sorted = {.sort = true},
			  pretty = {.indent = "  ", .indent_len = 2},
			  tight = {.item = SLICE_LIT(","), .key = SLICE_LIT(":")};

	cr_expect_eq(dump("\"\xc3\xa9\xf0\x9f\x98\x80\"", &ascii), 0);
	cr_expect(slice_eq_str(text_slice(&out), "\"\\u00e9\\ud83d\\ude00\""));
	cr_expect_eq(dump("\"\x7f~\"", &ascii), 0);
	cr_expect(slice_eq_str(text_slice(&out), "\"\\u007f~\""));
	cr_expect_eq(dump("{\"b\":1,\"a\":2}", &sorted), 0);
	cr_expect(slice_eq_str(text_slice(&out), "{\"a\": 2, \"b\": 1}"));
	cr_expect_eq(dump("{\"a\":[1,{}],\"b\":[]}", &pretty), 0);
	cr_expect(slice_eq_str(text_slice(&out),
			       "{\n  \"a\": [\n    1,\n    {}\n  ],\n  \"b\": []\n}"));
	cr_expect_eq(dump("{\"a\":[1,2]}", &tight), 0);
	cr_expect(slice_eq_str(text_slice(&out), "{\"a\":[1,2]}"));
}

Test(value, what_is_no_json_is_refused_with_its_place)
{
	static const struct {
		const char *json;
		size_t off;
	} bad[] = {
		{"", 0}, {"[1,]", 3}, {"{\"a\" 1}", 5}, {"[01]", 2}, {"\"\t\"", 1}, {"nul", 0},
		{"{a:1}", 1}, {"[1 2]", 3}, {"\"\\x\"", 3}, {"1 2", 2}, {"[", 1}, {"\"\xff\"", 2},
		{"{\"a\":1,}", 7}, {"-", 0}, {"1.", 1},
	};
	const char *why;
	struct value v;
	size_t off;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		off = 99;
		cr_expect_eq(value_from_json(&bump, slice_str(bad[i].json), &v, &why, &off),
			     -EBADMSG, "%s", bad[i].json);
		cr_expect_eq(off, bad[i].off, "%s: %zu %s", bad[i].json, off, why);
	}
}

Test(value, deep_and_large_documents_end_at_their_bounds)
{
	static char deep[2 * VALUE_DEPTH + 2];
	struct bump small;
	const char *why;
	struct value v;

	memset(deep, '[', VALUE_DEPTH);
	memset(deep + VALUE_DEPTH, ']', VALUE_DEPTH);
	cr_expect_eq(dump(deep, NULL), 0);
	memset(deep, '[', sizeof(deep));
	cr_expect_eq(value_from_json(&bump, slice_of(deep, sizeof(deep)), &v, &why, NULL),
		     -EMSGSIZE);
	bump_init(&small, 500);
	cr_expect_eq(value_from_json(&small, SLICE_LIT("[[1,2],[3,4],[5,6],[7,8],[9,10]]"), &v,
				     &why, NULL), -ENOMEM);
	bump_free(&small);
}

Test(value, equal_keys_are_one_key_in_dicts_of_any_size)
{
	struct value_dict *dict = value_dict_new(&bump, 0);
	char name[1000][16];

	for (int i = 0; i < 1000; i++) {
		(void)snprintf(name[i], sizeof(name[i]), "k%d", i);
		cr_assert(value_put_str(dict, name[i], value_int(i)));
		cr_assert(value_put(dict, value_int(i), value_none()));
		cr_assert(value_put(dict, value_float(i), value_bool(true)));
	}
	cr_expect_eq(dict->n, 2000u);
	for (int i = 0; i < 1000; i++) {
		const struct value *v = value_get_str(dict, slice_str(name[i]));

		cr_assert(v && v->i == i);
		v = value_get(dict, value_int(i));
		cr_assert(v && v->kind == VALUE_BOOL);
	}
	cr_expect_eq(value_get(dict, value_bool(true)), value_get(dict, value_float(1)));
	cr_expect_null(value_get_str(dict, SLICE_LIT("k1000")));
}

Test(value, only_whole_text_is_whole)
{
	cr_expect(value_text_whole(SLICE_LIT("a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80")));
	cr_expect_not(value_text_whole(SLICE_LIT("a\xed\xa0\x80")));
	cr_expect_not(value_text_whole(SLICE_LIT("\xc0\x80")));
	cr_expect_not(value_text_whole(SLICE_LIT("\xe2\x82")));
	cr_expect_not(value_text_whole(SLICE_LIT("\xf4\x90\x80\x80")));
}

Test(value, memory_taken_is_bounded_and_a_reset_gives_it_back)
{
	struct bump small;
	char *a;

	bump_init(&small, 1000);
	cr_expect_not_null(bump_take(&small, 600));
	cr_expect_null(bump_take(&small, 600));
	bump_reset(&small);
	cr_expect_not_null(bump_take(&small, 0));
	a = bump_bytes(&small, 3);
	cr_assert_not_null(a);
	cr_expect(bump_extend(&small, a + 3, 5));
	cr_expect_not(bump_extend(&small, a + 3, 5));
	cr_expect_not(bump_extend(&small, a + 8, 2000));
	bump_free(&small);
}
