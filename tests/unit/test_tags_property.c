/* tests/unit/test_tags_property.c -- what a text has does not depend on how it is written down. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/unit/tags_world.h"

#define SET PM_SOURCE_DIR "/tests/data/tags/set.jsonl"

typedef void each_f(struct tags_world *w, const char *id, const char *text, size_t len);

static void
each_text(each_f *each)
{
	struct tags_world w = world_of_all();
	FILE *set = fopen(SET, "r");
	char *line = NULL;
	size_t cap = 0, n = 0;

	cr_assert_not_null(set);
	while (getline(&line, &cap, set) > 0) {
		json_t *row = json_loads(line, JSON_ALLOW_NUL, NULL);
		json_t *text = json_object_get(row, "text");

		if (text) {
			each(&w, json_string_value(json_object_get(row, "id")),
			     json_string_value(text), json_string_length(text));
			n++;
		}
		json_decref(row);
	}
	cr_assert_gt(n, 1000);
	free(line);
	fclose(set);
	world_end(&w);
}

static unsigned
bits(struct tags_world *w, const char *text, size_t len)
{
	struct tags_found f;

	tags_of_text(w->room, slice_of(text, len), &f);
	return (unsigned)f.tags;
}

/* The text as a JSON string of nothing but escapes. */
static size_t
escape_all(const char *text, size_t len, char *out)
{
	char *at = out;

	for (size_t i = 0; i < len;) {
		uint8_t c = (uint8_t)text[i];
		unsigned n = c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
		uint32_t u = n == 1 ? c : c & (0xffu >> (n + 1));

		for (unsigned k = 1; k < n; k++)
			u = u << 6 | ((uint8_t)text[i + k] & 0x3f);
		i += n;
		if (u >= 0x10000)
			at += sprintf(at, "\\u%04x\\u%04x", 0xd800 + ((u - 0x10000) >> 10),
				      0xdc00 + (u & 0x3ff));
		else
			at += sprintf(at, "\\u%04x", u);
	}
	return (size_t)(at - out);
}

static void
same_in_bodies(struct tags_world *w, const char *id, const char *text, size_t len)
{
	static const char *const around[][2] = {
		{"{\"messages\":[{\"role\":\"user\",\"content\":\"", "\"}]}"},
		{"{\"messages\":[{\"content\":[{\"type\":\"text\",\"text\":\"x\"},{\"text\":\"",
			"\"}]}]}"},
		{"{\"prompt\":[\"x\",\"", "\"]}"},
		{"{\"input\":\"", "\"}"},
		{"{\"system\":\"", "\",\"messages\":[]}"},
		{"{\"documents\":[\"", "\"]}"},
	};
	char *escaped = malloc(6 * len + 1), *body = malloc(6 * len + 200);
	unsigned has = bits(w, text, len);

	escaped[escape_all(text, len, escaped)] = '\0';
	for (size_t i = 0; i < sizeof around / sizeof around[0]; i++) {
		sprintf(body, "%s%s%s", around[i][0], escaped, around[i][1]);
		cr_expect_eq(found_in_body(w, body).tags, has, "%s in %s", id, around[i][0]);
	}
	free(escaped);
	free(body);
}

Test(tags_property, a_text_has_the_same_wherever_it_stands_and_however_it_is_escaped)
{
	each_text(same_in_bodies);
}

/* Each digit of ASCII as the same of another script, `from` being its 0. */
static void
same_in_digits(struct tags_world *w, const char *id, const char *text, size_t len, uint32_t zero)
{
	char *other = malloc(4 * len + 1), *at = other;

	for (size_t i = 0; i < len; i++) {
		uint32_t c = zero + (uint32_t)(text[i] - '0');

		if (text[i] < '0' || text[i] > '9') {
			*at++ = text[i];
		} else if (c < 0x800) {
			*at++ = (char)(0xc0 | c >> 6);
			*at++ = (char)(0x80 | (c & 0x3f));
		} else if (c < 0x10000) {
			*at++ = (char)(0xe0 | c >> 12);
			*at++ = (char)(0x80 | (c >> 6 & 0x3f));
			*at++ = (char)(0x80 | (c & 0x3f));
		} else {
			*at++ = (char)(0xf0 | c >> 18);
			*at++ = (char)(0x80 | (c >> 12 & 0x3f));
			*at++ = (char)(0x80 | (c >> 6 & 0x3f));
			*at++ = (char)(0x80 | (c & 0x3f));
		}
	}
	cr_expect_eq(bits(w, other, (size_t)(at - other)), bits(w, text, len), "%s, 0 is U+%04X",
		     id,      zero);
	free(other);
}

static void
same_in_any_digits(struct tags_world *w, const char *id, const char *text, size_t len)
{
	/* Arabic-Indic, Persian, Devanagari, Bengali, Thai, Tibetan, full-width, Adlam, and two
	 * of mathematics */
	static const uint32_t zeros[] = {0x660,	 0x6f0,	 0x966,	  0x9e6,   0xe50,
					 0xf20, 0xff10, 0x1e950, 0x1d7ce, 0x1d7e2};

	for (size_t i = 0; i < sizeof zeros / sizeof zeros[0]; i++)
		same_in_digits(w, id, text, len, zeros[i]);
}

Test(tags_property, a_text_has_the_same_in_any_scripts_digits)
{
	each_text(same_in_any_digits);
}

/* What nobody sees between all of its characters. */
static void
same_with_unseen(struct tags_world *w, const char *id, const char *text, size_t len)
{
	static const char *const unseen[] = {"\xe2\x80\x8b", "\xc2\xad", "\xe2\x80\xae",
					     "\xf3\xa0\x80\xa0"};
	char *other = malloc(5 * len + 8);

	for (size_t k = 0; k < sizeof unseen / sizeof unseen[0]; k++) {
		char *at = other;

		for (size_t i = 0; i < len; i++) {
			if (((uint8_t)text[i] & 0xc0) != 0x80)
				at = stpcpy(at, unseen[k]);
			*at++ = text[i];
		}
		cr_expect_eq(bits(w, other, (size_t)(at - other)), bits(w, text, len), "%s, %zu",
			     id,      k);
	}
	free(other);
}

Test(tags_property, a_text_has_the_same_with_what_nobody_sees_in_it)
{
	each_text(same_with_unseen);
}

/* Any blank for a blank, any hyphen for a hyphen. */
static void
same_in_signs(struct tags_world *w, const char *id, const char *text, size_t len)
{
	char *other = malloc(3 * len + 1), *at = other;

	for (size_t i = 0; i < len; i++) {
		if (text[i] == ' ')
			at = stpcpy(at, "\xe2\x80\xaf");
		else if (text[i] == '-')
			at = stpcpy(at, "\xe2\x88\x92");
		else
			*at++ = text[i];
	}
	cr_expect_eq(bits(w, other, (size_t)(at - other)), bits(w, text, len), "%s", id);
	free(other);
}

Test(tags_property, a_text_has_the_same_with_any_blank_and_any_hyphen)
{
	each_text(same_in_signs);
}
