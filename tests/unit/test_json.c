/* test_json.c -- what is JSON and what is not, and how it is read without being built. */
#include <criterion/criterion.h>
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/json.h"

/* Validates in a buffer of exactly that size: a sanitizer sees any look past it. */
static int
check(const char *text, size_t len, const char **why, size_t *off)
{
	char *copy = malloc(len ? len : 1);
	int r;

	memcpy(copy, text, len);
	*why = NULL;
	r = json_validate(copy, len, why, off);
	cr_assert(r == 0 || (*why != NULL && *off <= len));
	free(copy);
	return r;
}

Test(json, accepts_every_form_of_value)
{
	static const char *const cases[] = {
		"null", "true", "false", "0", "-0", "1", "-1.5", "1e5", "1E+5", "1.0e-50",
		"123456789012345678901234567890", "1E400", "\"\"", "\"a\"", "[]", "{}", "[[]]",
		" \t\r\n[ 1 , 2 ] \n", "{\"a\":{\"b\":[1,{\"c\":null}]}}", "[0,1,2]",
		"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\uD83D\\uDE42\"",
		"\"\\ud83d\"", "\"\\ude00\"", "\"\\u0000\"",   /* lone halves, NUL: as engines do */
		"\"\x7f\"", "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x99\x82\"", "\"\xef\xbf\xbf\"",
		"\"\xed\x9f\xbf\xee\x80\x80\xf4\x8f\xbf\xbf\"",
		"\xef\xbb\xbf{}",            /* a byte order mark in front */
		"[1234567,12345678,123456789, 1,22,333,4444,55555,666666,7777777,1]",
		"{\"a\":1,\"a\":2}",         /* duplicates are the reader's business */
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const char *why;
		size_t off;

		cr_assert(check(cases[i], strlen(cases[i]), &why, &off) == 0, "%s: %s at %zu",
			  cases[i], why ? why : "", off);
	}
}

Test(json, refuses_everything_else_and_says_where)
{
	static const struct {
		const char *text;
		size_t      off;
	} cases[] = {
		{"", 0},              {" ", 1},          {"nul", 0},       {"nulll", 4},
		{"True", 0},          {"01", 0},         {"-", 0},         {"-a", 0},
		{"+1", 0},            {".5", 0},         {"1.", 0},        {"1.e5", 0},
		{"1e", 0},            {"1e+", 0},        {"0x10", 1},      {"NaN", 0},
		{"Infinity", 0},      {"\"", 0},         {"\"a", 0},       {"'a'", 0},
		{"\"\\", 0},          {"\"\\a\"", 1},    {"\"\\u12g4\"", 1}, {"\"\\u123", 1},
		{"\"\\u\"", 1},       {"\"a\nb\"", 2},   {"\"\x1f\"", 1},  {"\"\t\"", 1},
		{"[", 1},             {"[1", 2},         {"[1,", 3},       {"[1,]", 3},
		{"[,1]", 1},          {"[1 2]", 3},      {"[1}", 2},       {"]", 0},
		{"{", 1},             {"{\"a\"", 4},     {"{\"a\":", 5},   {"{\"a\":1", 6},
		{"{\"a\":1,}", 7},    {"{,}", 1},        {"{a:1}", 1},     {"{\"a\" 1}", 5},
		{"{\"a\":1]", 6},     {"{1:2}", 1},      {"1 2", 2},       {"{} x", 3},
		{"[1] // c", 4},      {"/**/1", 0},      {"[1,2,03,4]", 5},
		{"[11,22,33,,44,55,66]", 10}, {"[1,2,3x,4,5,6,7,8,9]", 6},
		{"\xef\xbb\xbf", 3},  {"\xef\xbb{}", 0},
		/* UTF-8 */
		{"\"\x80\"", 1},      {"\"a\xff\"", 2},  {"\"\xc3\"", 1},  {"\"\xc3(\"", 1},
		{"\"\xc0\xaf\"", 1},  {"\"\xc1\xbf\"", 1}, {"\"\xe0\x9f\xbf\"", 1},
		{"\"\xe2\x82\"", 1},  {"\"\xed\xa0\x80\"", 1}, {"\"\xf0\x8f\xbf\xbf\"", 1},
		{"\"\xf0\x9f\x99\"", 1}, {"\"\xf4\x90\x80\x80\"", 1}, {"\"\xf5\x80\x80\x80\"", 1},
		{"\"0123456789abcdef0123\x80\"", 21}, {"\"\xe2\x82\xac\xe2\x82", 4},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const char *why;
		size_t off = 999;

		cr_assert(check(cases[i].text, strlen(cases[i].text), &why, &off) == -EBADMSG,
			  "%s was accepted", cases[i].text);
		cr_assert(off == cases[i].off, "%s: %s at %zu, not %zu", cases[i].text, why, off,
			  cases[i].off);
	}
}

Test(json, a_nul_outside_a_string_is_refused_and_inside_too)
{
	const char *why;
	size_t off;

	cr_assert(check("1\0", 2, &why, &off) == -EBADMSG);
	cr_assert(check("\"\0\"", 3, &why, &off) == -EBADMSG);
	cr_assert(check("[\0]", 3, &why, &off) == -EBADMSG);
	cr_assert(check("\"\\\0\"", 4, &why, &off) == -EBADMSG);
}

Test(json, every_cut_of_a_document_is_refused)
{
	static const char doc[] = "{\"a\":[1,-2.5e3,\"x\\u00e9\xc3\xa9\"],\"b\":{\"c\":true,"
				  "\"d\":null},\"e\":[10000,20000,30000,40000,50000]}";

	for (size_t n = 0; n < sizeof(doc) - 1; n++) {
		const char *why;
		size_t off;

		cr_assert(check(doc, n, &why, &off) == -EBADMSG, "at %zu", n);
	}
}

Test(json, depth_is_bounded)
{
	char text[2 * JSON_DEPTH_MAX + 2];
	const char *why;
	size_t off;

	memset(text, '[', JSON_DEPTH_MAX);
	memset(text + JSON_DEPTH_MAX, ']', JSON_DEPTH_MAX);
	cr_assert(check(text, 2 * JSON_DEPTH_MAX, &why, &off) == 0);
	memset(text, '[', JSON_DEPTH_MAX + 1);
	memset(text + JSON_DEPTH_MAX + 1, ']', JSON_DEPTH_MAX + 1);
	cr_assert(check(text, 2 * JSON_DEPTH_MAX + 2, &why, &off) == -EBADMSG);
	cr_assert(off == JSON_DEPTH_MAX);
}

Test(json, a_string_ends_at_its_quote_wherever_that_falls)
{
	for (size_t n = 0; n < 70; n++) {
		char text[80];
		const char *why;
		size_t off;

		memset(text, 'x', sizeof(text));
		text[0] = text[n + 1] = '"';
		cr_assert(check(text, n + 2, &why, &off) == 0, "%zu", n);
		cr_assert(check(text, n + 1, &why, &off) == -EBADMSG, "%zu", n);
		if (n > 0) {
			text[n] = '\n';
			cr_assert(check(text, n + 2, &why, &off) == -EBADMSG && off == n);
		}
	}
}

Test(json, members_and_elements_are_walked_in_order)
{
	static const char doc[] = "{ \"a\" : 1 , \"b\":[true,{\"x\":[]}, \"s\"],\"c\":\"t\" }";
	struct json_string key, s;
	struct json_cursor c;
	struct slice num;

	json_begin(&c, doc, sizeof(doc) - 1);
	cr_assert(json_peek(&c) == JSON_IS_OBJECT);
	cr_assert(json_enter_object(&c));
	cr_assert(json_next_member(&c, &key) && json_string_eq(&key, "a"));
	cr_assert(json_get_number(&c, &num) && slice_eq_str(num, "1"));
	cr_assert(json_next_member(&c, &key) && json_string_eq(&key, "b"));
	cr_assert(json_enter_array(&c));
	cr_assert(json_next_element(&c) && json_get_raw(&c, &num) && slice_eq_str(num, "true"));
	cr_assert(json_next_element(&c) && json_get_raw(&c, &num));
	cr_assert(slice_eq_str(num, "{\"x\":[]}"));
	cr_assert(json_next_element(&c) && json_get_string(&c, &s) && json_string_eq(&s, "s"));
	cr_assert(!json_next_element(&c));
	cr_assert(json_next_member(&c, &key) && json_string_eq(&key, "c"));
	cr_assert(json_skip(&c));
	cr_assert(!json_next_member(&c, &key));
	cr_assert(json_end(&c) == 0 && c.why == NULL);
}

Test(json, an_error_sticks)
{
	static const char doc[] = "{\"a\":tru}";
	struct json_cursor c;
	struct json_string key;

	json_begin(&c, doc, sizeof(doc) - 1);
	cr_assert(json_enter_object(&c) && json_next_member(&c, &key));
	cr_assert(!json_skip(&c));
	const char *why = c.why;

	cr_assert(!json_next_member(&c, &key));
	cr_assert(json_peek(&c) == JSON_IS_INVALID);
	cr_assert(json_end(&c) == -EBADMSG);
	cr_assert(c.why == why && c.error_off == 5);
}

Test(json, a_reader_that_leaves_a_value_unread_is_told)
{
	struct json_cursor c;
	struct json_string key;

	json_begin(&c, "{\"a\":1}", 7);
	cr_assert(json_enter_object(&c) && json_next_member(&c, &key));
	cr_assert(!json_next_member(&c, &key));
	cr_assert(json_end(&c) == -EBADMSG);
	json_begin(&c, "[1]", 3);
	cr_assert(json_enter_array(&c));
	cr_assert(!json_skip(&c), "no element was announced");
	json_begin(&c, "[1]", 3);
	cr_assert(json_enter_array(&c));
	cr_assert(!json_next_member(&c, &key), "this is no object");
	json_begin(&c, "1", 1);
	cr_assert(json_end(&c) == -EBADMSG, "nothing was read");
}

Test(json, another_type_is_an_error_not_a_guess)
{
	struct json_cursor c;
	struct json_string s;
	struct slice num;

	json_begin(&c, "1", 1);
	cr_assert(!json_get_string(&c, &s) && c.error_off == 0);
	json_begin(&c, "\"1\"", 3);
	cr_assert(!json_get_number(&c, &num));
	json_begin(&c, "[]", 2);
	cr_assert(!json_enter_object(&c));
	json_begin(&c, "{}", 2);
	cr_assert(!json_enter_array(&c));
}

/* --- integer arrays --- */

static bool
u32s(const char *text, uint32_t *out, size_t max, size_t *n)
{
	size_t len = strlen(text);
	char *copy = malloc(len);
	struct json_cursor c;
	bool ok;

	memcpy(copy, text, len);
	json_begin(&c, copy, len);
	ok = json_get_u32_array(&c, out, max, n) && json_end(&c) == 0;
	free(copy);
	return ok;
}

Test(json, integer_arrays_read_what_was_written)
{
	uint32_t wrote[2000], got[2000];
	char *text = malloc(64000);
	static const char *const between[] = {",", ", ", " ,", " , ", ",\n", ",  "};
	unsigned seed = 1;

	for (unsigned round = 0; round < 300; round++) {
		size_t n = (size_t)(round * 7 % 2000), len = 0, count = 0;

		len += (size_t)sprintf(text, round & 1 ? "[" : " [ ");
		for (size_t i = 0; i < n; i++) {
			seed = seed * 1103515245 + 12345;
			/* every length, from one digit to ten */
			wrote[i] = (uint32_t)((uint64_t)seed * 2654435761u % 4294967296u) >>
				   (seed >> 16) % 32;
			len += (size_t)sprintf(text + len, "%s%u",
					       i == 0 ? ""
						      : between[round % 3 == 0
									? (seed >> 20) % 6
									: round % 2],
					       wrote[i]);
		}
		strcpy(text + len, round & 1 ? "]" : " ] ");
		cr_assert(u32s(text, got, 2000, &count), "round %u", round);
		cr_assert(count == n);
		cr_assert(n == 0 || memcmp(got, wrote, n * sizeof(got[0])) == 0, "round %u", round);
		/* counting alone, and with too little room */
		cr_assert(u32s(text, NULL, 0, &count) && count == n);
		got[n / 2] = 0xdeadbeef;
		cr_assert(u32s(text, got, n / 2, &count) && count == n);
		cr_assert(got[n / 2] == 0xdeadbeef);
	}
	free(text);
}

Test(json, an_integer_array_holds_nothing_but_integers)
{
	static const char *const bad[] = {
		"[1.0]", "[-1]", "[1e3]", "[4294967296]", "[99999999999999999999999]", "[\"1\"]",
		"[null]", "[[1]]", "{}", "[1,2", "[1,,2]", "[1,2,]", "[01]", "[1 2]", "[1,2,3;4]",
		"[100,200,300,400,0500,600,700]", "[100,200,300,400,5x0,600,700]",
		"[100,200,300,400,-5,600,700,800]", "[100,200,300,400,1.5,600,700,800]",
	};
	uint32_t out[16];
	size_t n;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		cr_assert(!u32s(bad[i], out, 16, &n), "%s", bad[i]);
	cr_assert(u32s("[4294967295, 0, 000000]", out, 16, &n) == false);
	cr_assert(u32s("[4294967295, 0]", out, 16, &n) && n == 2 && out[0] == UINT32_MAX);
}

Test(json, skipping_one_element_skips_one_element)
{
	char text[1000] = "[[";
	struct json_cursor c;
	size_t len = 2, n = 0;

	for (unsigned i = 0; i < 100; i++)
		len += (size_t)sprintf(text + len, "%s%u", i ? "," : "", 1000 + i);
	len += (size_t)sprintf(text + len, ",{\"a\":[null]},\"b\"],7]");
	json_begin(&c, text, len);
	cr_assert(json_enter_array(&c) && json_next_element(&c) && json_enter_array(&c));
	for (; json_next_element(&c); n++)
		cr_assert(json_skip(&c));
	cr_assert(n == 102);
	cr_assert(json_next_element(&c) && json_skip(&c) && !json_next_element(&c));
	cr_assert(json_end(&c) == 0);

	/* The same as one value: a run of integers may end before something else. */
	json_begin(&c, text, len);
	cr_assert(json_skip(&c) && json_end(&c) == 0, "%s", c.why);
}

/* --- meaning --- */

static int
to_i64(const char *text, int64_t *ret)
{
	return json_to_i64((struct slice){text, strlen(text)}, ret);
}

Test(json, integers_are_exact_or_out_of_range)
{
	int64_t v;

	cr_assert(to_i64("0", &v) == 0 && v == 0);
	cr_assert(to_i64("-0", &v) == 0 && v == 0);
	cr_assert(to_i64("9007199254740993", &v) == 0 && v == 9007199254740993);
	cr_assert(to_i64("9223372036854775807", &v) == 0 && v == INT64_MAX);
	cr_assert(to_i64("-9223372036854775808", &v) == 0 && v == INT64_MIN);
	cr_assert(to_i64("9223372036854775808", &v) == -ERANGE);
	cr_assert(to_i64("-9223372036854775809", &v) == -ERANGE);
	cr_assert(to_i64("1e3", &v) == 0 && v == 1000);
	cr_assert(to_i64("2.0", &v) == 0 && v == 2);
	cr_assert(to_i64("1.5", &v) == -EINVAL);
	cr_assert(to_i64("1e400", &v) == -ERANGE);
	cr_assert(to_i64("1e17", &v) == -ERANGE, "past what a double counts in ones");
}

Test(json, doubles_are_those_of_strtod)
{
	static const char *const cases[] = {
		"0",
		"-0",
		"1",
		"-1.5",
		"0.1",
		"1e5",
		"1E+5",
		"1.10",
		"123.456e-7",
		"0.000001",
		"2.2250738585072014e-308",
		"5e-324",
		"1.7976931348623157e308",
		"1e-400",
		"9007199254740993",
		"123456789012345678901234567890",
		"0.00000000000000000000000123",
		"100000000000000000000000000000000000000000000000000",
		"-0.0e5",
		"1e-0000000005",
		"3.141592653589793238462643383279502884197169399375105820974944592307816406286",
	};
	double d;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct slice s = {cases[i], strlen(cases[i])};

		cr_assert(json_to_double(s, &d) == 0, "%s", cases[i]);
		cr_assert(d == strtod(cases[i], NULL), "%s: %.17g", cases[i], d);
	}
	cr_assert(json_to_double(SLICE_LIT("1e309"), &d) == -ERANGE);
	cr_assert(json_to_double(SLICE_LIT("-1e99999999999999999999"), &d) == -ERANGE);
}

Test(json, strings_unescape_to_utf8)
{
	static const struct {
		const char *raw, *text;
	} cases[] = {
		{"", ""},
		{"plain", "plain"},
		{"\\\"\\\\\\/\\b\\f\\n\\r\\t", "\"\\/\b\f\n\r\t"},
		{"\\u0041\\u00e9\\u20AC", "A\xc3\xa9\xe2\x82\xac"},
		{"ok \\ud83d\\ude42!", "ok \xf0\x9f\x99\x82!"},
		{"cut \\ud83d", "cut \xef\xbf\xbd"},
		{"x \\ude00 y", "x \xef\xbf\xbd y"},
		{"\\ud83d\\u0041", "\xef\xbf\xbd" "A"},
		{"\\ud83d\\ud83d\\ude42", "\xef\xbf\xbd\xf0\x9f\x99\x82"},
		{"\\ude42\\ud83d", "\xef\xbf\xbd\xef\xbf\xbd"},
		{"\\ud83d\\n", "\xef\xbf\xbd\n"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char doc[64], out[64];
		struct json_cursor c;
		struct json_string s;
		size_t want = strlen(cases[i].text);

		snprintf(doc, sizeof(doc), "\"%s\"", cases[i].raw);
		json_begin(&c, doc, strlen(doc));
		cr_assert(json_get_string(&c, &s) && json_end(&c) == 0);
		cr_assert(s.escaped == (strchr(cases[i].raw, '\\') != NULL));
		cr_assert(json_unescape(&s, out, sizeof(out)) == (ssize_t)want, "%s", cases[i].raw);
		cr_assert(memcmp(out, cases[i].text, want) == 0, "%s", cases[i].raw);
		cr_assert(json_string_eq(&s, cases[i].text), "%s", cases[i].raw);
		cr_assert(!json_string_eq(&s, "something else"));
		for (size_t cap = 0; cap < want; cap++)
			cr_assert(json_unescape(&s, out, cap) == -ENOSPC);
		if (want > 0) {
			out[0] = '\0';
			snprintf(out, sizeof(out), "%s+", cases[i].text);
			cr_assert(!json_string_eq(&s, out));
			out[want - 1] = '\0';
			cr_assert(!json_string_eq(&s, out));
		}
	}
}

Test(json, a_nul_escape_is_a_byte_like_others)
{
	struct json_string s = {.raw = SLICE_LIT("a\\u0000b"), .escaped = true};
	char out[8];

	cr_assert(json_unescape(&s, out, sizeof(out)) == 3 && memcmp(out, "a\0b", 3) == 0);
	cr_assert(!json_string_eq(&s, "a"));
}

Test(json, what_is_escaped_is_json_and_unescapes_to_the_same)
{
	char text[256], out[2048], doc[2050], back[2048];

	for (int i = 0; i < 128; i++)
		text[i] = (char)i;
	memcpy(text + 128, "\xc3\xa9\xe2\x82\xac\xf0\x9f\x99\x82", 9);
	ssize_t n = json_escape((struct slice){text, 137}, out, sizeof(out));

	cr_assert(n > 0);
	doc[0] = '"';
	memcpy(doc + 1, out, (size_t)n);
	doc[n + 1] = '"';
	struct json_cursor c;
	struct json_string s;

	json_begin(&c, doc, (size_t)n + 2);
	cr_assert(json_get_string(&c, &s) && json_end(&c) == 0);
	cr_assert(json_unescape(&s, back, sizeof(back)) == 137);
	cr_assert(memcmp(back, text, 137) == 0);
	for (size_t cap = 0; cap < (size_t)n; cap++)
		cr_assert(json_escape((struct slice){text, 137}, out, cap) == -ENOSPC);

	n = json_escape(SLICE_LIT("a\xff\xc3(\xed\xa0\x80\xe2\x82"), out,
			sizeof(out));
	out[n] = '\0';
	cr_assert_str_eq(out, "a\xef\xbf\xbd\xef\xbf\xbd(\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"
			      "\xef\xbf\xbd\xef\xbf\xbd");
}
