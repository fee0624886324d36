/* test_bpe.c -- merges against the rule written down plainly, over vocabularies made by chance. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/common/prompt/tokenizer.h"
#include "actors/common/prompt/tokenizer_compile.h"
#include "tests/random.h"

#define TOKENS 400
#define LETTERS "abcd"                  /* few, so that merges meet */

/* A vocabulary of strings over LETTERS and the merges that make them, of any two that are there. */
struct plain {
	char token[TOKENS][16];
	unsigned n;
	unsigned left[TOKENS], right[TOKENS], made[TOKENS];
	unsigned merges;
};

static unsigned
find(const struct plain *v, const char *text)
{
	for (unsigned i = 0; i < v->n; i++)
		if (strcmp(v->token[i], text) == 0)
			return i;
	return v->n;
}

/* proper: a merge's two sides come before it, as training makes them; else in any order, as lists
 * made of ranks have them, and several for one token. */
static void
invent(struct plain *v, uint64_t *seed, bool proper)
{
	memset(v, 0, sizeof(*v));
	for (const char *p = LETTERS; *p; p++)
		v->token[v->n++][0] = *p;
	for (unsigned tries = 0; tries < 600 && v->merges < 200; tries++) {
		unsigned l = (unsigned)(random_next(seed) % v->n);
		unsigned r = (unsigned)(random_next(seed) % v->n);
		char both[40];

		if (strlen(v->token[l]) + strlen(v->token[r]) > 12)
			continue;
		snprintf(both, sizeof(both), "%s%s", v->token[l], v->token[r]);
		unsigned id = find(v, both);
		bool again = false;

		for (unsigned i = 0; i < v->merges; i++)
			again |= v->left[i] == l && v->right[i] == r;
		if (again || (proper && id < v->n))
			continue;
		if (id == v->n)
			memcpy(v->token[v->n++], both, strlen(both) + 1);
		v->left[v->merges] = l;
		v->right[v->merges] = r;
		v->made[v->merges++] = id;
	}
	for (unsigned i = 0; !proper && i < v->merges; i++) {
		unsigned k = (unsigned)(random_next(seed) % v->merges), t;

		t = v->left[i], v->left[i] = v->left[k], v->left[k] = t;
		t = v->right[i], v->right[i] = v->right[k], v->right[k] = t;
		t = v->made[i], v->made[i] = v->made[k], v->made[k] = t;
	}
}

static char *
as_json(const struct plain *v, bool byte_level, bool ignore_merges)
{
	char *text;
	size_t len;
	FILE *f = open_memstream(&text, &len);

	fprintf(f, "{\"pre_tokenizer\":%s,", byte_level ? "{\"type\":\"ByteLevel\","
		"\"add_prefix_space\":false,\"use_regex\":false}" : "null");
	fprintf(f, "\"model\":{\"type\":\"BPE\",\"ignore_merges\":%s,\"vocab\":{",
		ignore_merges ? "true" : "false");
	for (unsigned i = 0; i < v->n; i++)
		fprintf(f, "%s\"%s\":%u", i ? "," : "", v->token[i], i);
	fputs("},\"merges\":[", f);
	for (unsigned i = 0; i < v->merges; i++)
		fprintf(f, i % 2 ? "%s\"%s %s\"" : "%s[\"%s\",\"%s\"]", i ? "," : "",
			v->token[v->left[i]], v->token[v->right[i]]);
	fputs("]}}", f);
	fclose(f);
	return text;
}

/* The lowest rank first, the leftmost of equals, one at a time. */
static size_t
merge(const struct plain *v, const char *text, uint32_t *id)
{
	size_t n = 0;

	for (; *text; text++)
		id[n++] = (uint32_t)(strchr(LETTERS, *text) - LETTERS);
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

struct subject {
	struct tokenizer *t;
	struct tokenizer_scratch *s;
	void *bytes;
};

static struct subject
subject(const char *json)
{
	struct tokenizer_source source = {.form = TOKENIZER_JSON, .file = slice_str(json)};
	char why[TOKENIZER_WHY_BYTES] = "";
	const char *trouble = "";
	struct subject j;
	size_t len;

	cr_assert_eq(tokenizer_compile(&source, &j.bytes, &len, why, sizeof(why)), 0, "%s", why);
	cr_assert_eq(tokenizer_open(j.bytes, len, &j.t, &trouble), 0, "%s", trouble);
	cr_assert_eq(tokenizer_scratch_new(&j.s), 0);
	return j;
}

static void
gone(struct subject *j)
{
	tokenizer_scratch_free(&j->s);
	tokenizer_close(&j->t);
	free(j->bytes);
}

static void
compare(const struct plain *v, struct subject *j, bool ignore_merges, const char *text, size_t len)
{
	uint32_t want[2048];
	struct ids ids = {0};
	unsigned whole = ignore_merges ? find(v, text) : v->n;
	size_t n = whole < v->n ? 1 : merge(v, text, want);

	if (whole < v->n)
		want[0] = whole;
	cr_assert_eq(tokenizer_encode(j->t, j->s, slice_of(text, len), false, SIZE_MAX, &ids), 0);
	cr_assert(ids.n == n && memcmp(ids.id, want, n * sizeof(*want)) == 0, "%s", text);
	ids_free(&ids);
}

static void
rounds(bool proper, bool byte_level, bool ignore_merges)
{
	static struct plain v;
	uint64_t seed = 77;

	for (unsigned round = 0; round < 12; round++) {
		invent(&v, &seed, proper);
		char *json = as_json(&v, byte_level, ignore_merges), text[400];
		struct subject j = subject(json);

		/* Short ones, those a cache keeps, and those that go through the heap. */
		for (unsigned i = 0; i < 150; i++) {
			size_t len = 1 + random_next(&seed) % (i % 10 == 0 ? 300 : 20);

			for (size_t k = 0; k < len; k++)
				text[k] = LETTERS[random_next(&seed) % 4 % (1 + i % 4)];
			text[len] = '\0';
			compare(&v, &j, ignore_merges, text, len);
			compare(&v, &j, ignore_merges, text, len);      /* from the cache */
		}
		for (unsigned i = 0; i < v.n; i++)
			compare(&v, &j, ignore_merges, v.token[i], strlen(v.token[i]));
		gone(&j);
		free(json);
	}
}

Test(bpe, merges_as_the_rule_says)
{
	rounds(true, true, false);
}

Test(bpe, merges_in_any_order_and_several_for_a_token_are_the_same_rule)
{
	rounds(false, true, false);
}

Test(bpe, characters_merge_as_bytes_do)
{
	rounds(false, false, false);
}

Test(bpe, ignore_merges_takes_a_whole_piece_first)
{
	rounds(false, true, true);
}
