/* test_bpe_characters.c -- characters whose bytes become one token anyhow: the ids are those of the
 * rule over bytes, over vocabularies made by chance. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/common/prompt/tokenizer.h"
#include "actors/common/prompt/tokenizer_compile.h"
#include "actors/common/prompt/tokenizer_layout.h"
#include "tests/random.h"

#define TOKENS 480
#define MERGES 120

/* Of few bytes, so that they meet within characters and across. */
static const char *const letters[] = {
	"\xc3\xa9", "\xc3\xa8", "\xe3\x80\x81", "\xe3\x81\xa8", "\xe3\x81\xaf", "\xe5\x81\xaf",
	"\xf0\xa8\x81\xaf", "a",
};

struct plain {                          /* tokens 0..255 are the bytes */
	char token[TOKENS][16];
	unsigned len[TOKENS], n;
	unsigned left[MERGES], right[MERGES], made[MERGES], merges;
};

static size_t
any_text(uint64_t *seed, size_t characters, char *to)
{
	size_t n = 0;

	for (; characters > 0; characters--) {
		const char *c = letters[random_next(seed) % 8];

		memcpy(to + n, c, strlen(c));
		n += strlen(c);
	}
	return n;
}

static unsigned
find(const struct plain *v, const char *p, unsigned n)
{
	for (unsigned i = 0; i < v->n; i++)
		if (v->len[i] == n && memcmp(v->token[i], p, n) == 0)
			return i;
	return v->n;
}

/* The lowest rank first, the leftmost of equals, one at a time. */
static size_t
merge(const struct plain *v, const char *text, size_t len, uint32_t *id)
{
	size_t n = len;

	for (size_t i = 0; i < len; i++)
		id[i] = (uint8_t)text[i];
	for (;;) {
		unsigned best = v->merges;
		size_t at = 0;

		for (size_t i = 0; i + 1 < n; i++)
			for (unsigned m = 0; m < best; m++)
				if (v->left[m] == id[i] && v->right[m] == id[i + 1]) {
					best = m;
					at = i;
				}
		if (best == v->merges)
			return n;
		id[at] = v->made[best];
		memmove(id + at + 1, id + at + 2, (n - at - 2) * sizeof(*id));
		n--;
	}
}

/* Merges of neighbours in some text, as training finds them; then some change places. */
static void
invent(struct plain *v, uint64_t *seed, unsigned changes)
{
	uint32_t id[256];
	char text[64];

	memset(v, 0, sizeof(*v));
	for (; v->n < 256; v->n++) {
		v->token[v->n][0] = (char)v->n;
		v->len[v->n] = 1;
	}
	for (unsigned tries = 0; tries < 2000 && v->merges < MERGES; tries++) {
		size_t n = merge(v, text, any_text(seed, 8, text), id);
		size_t i = random_next(seed) % n;
		char both[32];

		if (i + 1 >= n || v->len[id[i]] + v->len[id[i + 1]] > 12)
			continue;
		unsigned l = id[i], r = id[i + 1], len = v->len[l] + v->len[r];

		memcpy(both, v->token[l], v->len[l]);
		memcpy(both + v->len[l], v->token[r], v->len[r]);
		if (find(v, both, len) < v->n)
			continue;
		memcpy(v->token[v->n], both, len);
		v->len[v->n] = len;
		v->left[v->merges] = l;
		v->right[v->merges] = r;
		v->made[v->merges++] = v->n++;
	}
	for (; changes > 0; changes--) {
		unsigned i = (unsigned)(random_next(seed) % v->merges);
		unsigned k = (unsigned)(random_next(seed) % v->merges), t;

		t = v->left[i], v->left[i] = v->left[k], v->left[k] = t;
		t = v->right[i], v->right[i] = v->right[k], v->right[k] = t;
		t = v->made[i], v->made[i] = v->made[k], v->made[k] = t;
	}
}

/* In GPT-2's alphabet, escaped. */
static void
spell(FILE *f, const struct plain *v, unsigned token)
{
	for (unsigned i = 0; i < v->len[token]; i++) {
		unsigned b = (uint8_t)v->token[token][i], c = b;

		if (b <= 32)
			c = 256 + b;
		else if (b >= 127 && b <= 160)
			c = 256 + 33 + b - 127;
		else if (b == 173)
			c = 256 + 33 + 34;
		fprintf(f, "\\u%04x", c);
	}
}

static char *
as_json(const struct plain *v)
{
	char *text;
	size_t len;
	FILE *f = open_memstream(&text, &len);

	fputs("{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
	      "\"use_regex\":false},\"model\":{\"type\":\"BPE\",\"vocab\":{", f);
	for (unsigned i = 0; i < v->n; i++) {
		fputs(i ? ",\"" : "\"", f);
		spell(f, v, i);
		fprintf(f, "\":%u", i);
	}
	fputs("},\"merges\":[", f);
	for (unsigned i = 0; i < v->merges; i++) {
		fputs(i ? ",[\"" : "[\"", f);
		spell(f, v, v->left[i]);
		fputs("\",\"", f);
		spell(f, v, v->right[i]);
		fputs("\"]", f);
	}
	fputs("]}}", f);
	fclose(f);
	return text;
}

/* How many characters have a token anyhow. */
static unsigned
characters(const void *bytes)
{
	const struct tokenizer_head *h = bytes;
	const struct tokenizer_span *s = &h->section[SECTION_CHARACTERS];
	const uint32_t *c = (const void *)((const char *)bytes + s->off);
	unsigned n = 0;

	for (size_t i = 0; i < s->len / sizeof(*c); i++)
		n += c[i] != TOKENIZER_NONE;
	return n;
}

static unsigned
rounds(unsigned changes)
{
	static struct plain v;
	uint64_t seed = 78 + changes;
	unsigned anyhow = 0;

	for (unsigned round = 0; round < 40; round++) {
		struct tokenizer_scratch *scratch;
		char why[TOKENIZER_WHY_BYTES] = "", text[1024];
		const char *trouble = "";
		struct tokenizer *t;
		void *bytes;
		size_t len;

		invent(&v, &seed, changes);
		char *json = as_json(&v);
		struct tokenizer_source source = {.form = TOKENIZER_JSON, .file = slice_str(json)};

		cr_assert_eq(tokenizer_compile(&source, &bytes, &len, why, sizeof(why)), 0, "%s",
			     why);
		cr_assert_eq(tokenizer_open(bytes, len, &t, &trouble), 0, "%s", trouble);
		cr_assert_eq(tokenizer_scratch_new(&scratch), 0);
		anyhow += characters(bytes);
		for (unsigned i = 0; i < 60; i++) {
			size_t n = any_text(&seed, 1 + random_next(&seed) % (i % 10 ? 20 : 200),
					    text);
			struct ids ids = {0};
			uint32_t want[1024];
			size_t wanted = merge(&v, text, n, want);

			cr_assert_eq(tokenizer_encode(t, scratch, slice_of(text, n), false,
						      SIZE_MAX, &ids), 0);
			cr_assert_eq(ids.n, wanted, "round %u: %.*s", round, (int)n, text);
			cr_assert_arr_eq(ids.id, want, wanted * sizeof(*want), "round %u: %.*s",
					 round, (int)n, text);
			ids_free(&ids);
		}
		tokenizer_scratch_free(&scratch);
		tokenizer_close(&t);
		free(bytes);
		free(json);
	}
	return anyhow;
}

Test(bpe_characters, begin_as_one_token_where_that_is_the_same)
{
	cr_assert_gt(rounds(0), 40);
}

Test(bpe_characters, merge_by_the_same_rule_in_any_order)
{
	rounds(40);
}
