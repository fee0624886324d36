/* The segment cache: the ids of the whole, whatever was kept. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "actors/common/prompt/segments.h"
#include "actors/common/prompt/tokenizer.h"
#include "actors/common/prompt/tokenizer_compile.h"
#include "tests/nasty_text.h"

#define TEXT_MAX 65536u
#define SEED     20261202ull

struct model {
	char name[256];
	void *bytes;
	struct tokenizer *t;
	struct tokenizer_scratch *scratch;
};

static void
model_open(struct model *m, const char *path)
{
	char why[TOKENIZER_WHY_BYTES] = "";
	struct tokenizer_files files;
	const char *trouble = "";
	size_t len;

	snprintf(m->name, sizeof m->name, "%s", path);
	cr_assert_eq(tokenizer_files_open(path, false, &files, why, sizeof why), 0, "%s", why);
	cr_assert_eq(tokenizer_compile(&files.source, &m->bytes, &len, why, sizeof why), 0, "%s",
		     why);
	tokenizer_files_close(&files);
	cr_assert_eq(tokenizer_open(m->bytes, len, &m->t, &trouble), 0, "%s", trouble);
	cr_assert_eq(tokenizer_scratch_new(&m->scratch), 0);
}

static void
model_close(struct model *m)
{
	tokenizer_scratch_free(&m->scratch);
	tokenizer_close(&m->t);
	free(m->bytes);
}

static void
demo_open(struct model *m)
{
	model_open(m, PM_SOURCE_DIR "/etc/models/demo");
}

/* A text of turns, between control tokens of several models; turns come again and again. */
static size_t
conversation(uint64_t *state, char *out)
{
	static const char *const token[] = {
		"<|im_start|>", "<|im_end|>\n", "<|im_start|>user\n", "<s>", "[INST]", "</think>",
		"<|eot_id|>", "<\uff5cUser\uff5c>", "<\uff5cAssistant\uff5c>", "<|endoftext|>",
		"<|start|>", "[gMASK]", "<tool_call>", "<|im_", "  ", "\n\n",
	};
	unsigned turns = 1 + (unsigned)(random_next(state) % 12);
	size_t len = 0;

	while (turns-- > 0) {
		uint64_t turn = random_next(state) % 40;        /* of which there are so many */
		unsigned lines = turn % 5 == 0 ? 300 : (unsigned)turn;
		const char *t = token[random_next(state) % 16];

		if (random_next(state) % 3) {
			memcpy(out + len, t, strlen(t));
			len += strlen(t);
		}
		for (unsigned i = 0; i < lines && len + 2 * NASTY_MAX < TEXT_MAX; i++) {
			len += nasty_text(&turn, 6, out + len);
			if (i % 3 == 0)
				out[len++] = '\n';
		}
	}
	return len;
}

static void
expect_same(struct segments *cache, const struct model *m, struct slice text, bool special,
	    size_t max_ids)
{
	struct ids whole = {0}, parts = {0};

	cr_assert_eq(tokenizer_encode(m->t, m->scratch, text, special, max_ids, &whole), 0);
	cr_assert_eq(segments_encode(cache, m->t, m->scratch, text, special, max_ids, &parts), 0);
	cr_assert(whole.n == parts.n && (whole.n == 0 || memcmp(whole.id, parts.id,
								whole.n * sizeof *whole.id) == 0),
		  "%s: %zu ids, not %zu: %.*s", m->name, parts.n, whole.n,
		  (int)(text.len < 2000 ? text.len : 2000), text.p);
	ids_free(&whole);
	ids_free(&parts);
}

static void
converse(const struct model *m, unsigned rounds, size_t cache_bytes, struct segments_stats *ret)
{
	char *text = malloc(TEXT_MAX);
	uint64_t state = SEED;
	struct segments *cache;

	cr_assert_eq(segments_new(cache_bytes, &cache), 0);
	for (unsigned i = 0; i < rounds; i++) {
		struct slice t = slice_of(text, conversation(&state, text));
		size_t most = i % 5 == 0 ? random_next(&state) % 3000 : SIZE_MAX;

		expect_same(cache, m, t, i % 2, most);
		/* As a conversation that goes on: the same beginning. */
		for (t.len -= t.len / 3; ((uint8_t)text[t.len] & 0xc0) == 0x80;)
			t.len--;
		expect_same(cache, m, t, i % 2, SIZE_MAX);
	}
	segments_stats(cache, ret);
	segments_free(&cache);
	free(text);
}

Test(segments, ids_from_the_cache_are_those_of_the_whole_text)
{
	struct segments_stats stats;
	struct model m;

	demo_open(&m);
	converse(&m, 250, 16 << 20, &stats);
	cr_assert(stats.hits > 100 && stats.misses > 100, "%lu hits, %lu misses",
		  (unsigned long)stats.hits, (unsigned long)stats.misses);
	cr_assert_eq(stats.evicted, 0);
	model_close(&m);
}

Test(segments, ids_are_those_of_the_whole_text_for_every_tokenizer_that_is_here, .timeout = 120)
{
	const char *at = getenv("PM_TOKENIZERS_UNPACKED");
	char path[1024];
	struct dirent *e;
	unsigned models = 0;
	DIR *dir;

	snprintf(path, sizeof path, "%s/tokenizers", at ? at : "");
	dir = at ? opendir(path) : NULL;
	if (!dir) {
		fprintf(stderr, "skipped: no tokenizers\n");
		cr_skip_test("no tokenizers");
	}
	while ((e = readdir(dir))) {
		struct segments_stats stats;
		struct model m;

		snprintf(path, sizeof path, "%s/tokenizers/%s/tokenizer.json", at, e->d_name);
		if (access(path, R_OK) < 0)
			continue;
		model_open(&m, path);
		converse(&m, 12, 16 << 20, &stats);
		cr_assert(stats.hits > 0, "%s", path);
		model_close(&m);
		models++;
	}
	closedir(dir);
	cr_assert(models > 0);
}

/* Which part of the cache a segment goes to is chance; so more is given than all of it holds. */
Test(segments, what_is_held_stays_within_the_bound_and_the_unused_goes_first)
{
	enum { BOUND = 128 << 10, TEXTS = BOUND / 64, OFTEN = 5 };
	const struct slice used = SLICE_LIT("What every request of this tenant begins with, word "
					    "for word, and what is to stay.");
	struct segments_stats stats, before;
	struct ids ids = {0};
	struct segments *cache;
	struct model m;
	char text[128];

	demo_open(&m);
	cr_assert_eq(segments_new(BOUND, &cache), 0);
	expect_same(cache, &m, used, false, SIZE_MAX);
	for (unsigned i = 0; i < TEXTS; i++) {
		int len = snprintf(text, sizeof text, "%08u is a number that is in no other text, "
				   "so that all of them differ", i);

		ids.n = 0;
		cr_assert_eq(segments_encode(cache, m.t, m.scratch, slice_of(text, (size_t)len),
					     false, SIZE_MAX, &ids), 0);
		if (i % OFTEN != 0)
			continue;
		segments_stats(cache, &before);
		expect_same(cache, &m, used, false, SIZE_MAX);
		segments_stats(cache, &stats);
		cr_assert_eq(stats.hits, before.hits + 1, "gone after %u texts", i);
	}
	segments_stats(cache, &stats);
	cr_assert_eq(stats.misses, TEXTS + 1);
	cr_assert_eq(stats.misses, stats.entries + stats.evicted);
	cr_assert(stats.evicted > TEXTS / 2, "%lu", (unsigned long)stats.evicted);
	cr_assert(stats.bytes <= BOUND, "%lu bytes", (unsigned long)stats.bytes);
	ids_free(&ids);
	segments_free(&cache);
	model_close(&m);
}

Test(segments, a_cache_too_small_for_anything_keeps_nothing_and_serves_all_the_same)
{
	struct segments_stats stats;
	struct model m;

	demo_open(&m);
	converse(&m, 10, 0, &stats);
	cr_assert_eq(stats.entries, 0);
	cr_assert_eq(stats.hits, 0);
	model_close(&m);
}

Test(segments, a_turn_more_tokenizes_only_the_turn)
{
	static char text[TEXT_MAX];
	struct segments_stats before, after;
	struct ids ids = {0};
	struct segments *cache;
	struct model m;
	size_t len = 0;

	demo_open(&m);
	cr_assert_eq(segments_new(16 << 20, &cache), 0);
	for (unsigned turn = 0; turn < 20; turn++) {
		size_t from = len;

		len += (size_t)sprintf(text + len, "<|im_start|>user\n");
		for (unsigned i = 0; i < 30; i++)
			len += (size_t)sprintf(text + len, "Line %u of turn %u.\n", i, turn);
		len += (size_t)sprintf(text + len, "<|im_end|>\n");
		segments_stats(cache, &before);
		ids.n = 0;
		cr_assert_eq(segments_encode(cache, m.t, m.scratch, slice_of(text, len), false,
					     SIZE_MAX, &ids), 0);
		segments_stats(cache, &after);
		cr_assert(after.miss_bytes - before.miss_bytes <= len - from, "turn %u: %lu bytes",
			  turn, (unsigned long)(after.miss_bytes - before.miss_bytes));
	}
	ids_free(&ids);
	segments_free(&cache);
	model_close(&m);
}

Test(segments, a_long_text_without_control_tokens_is_kept_in_parts)
{
	static char text[TEXT_MAX];
	struct segments_stats stats;
	struct ids ids = {0};
	struct segments *cache;
	struct model m;
	size_t len = 0;

	demo_open(&m);
	cr_assert_eq(segments_new(16 << 20, &cache), 0);
	while (len + 100 < sizeof text)
		len += (size_t)sprintf(text + len, "Line %zu of a long document.\n", len);
	cr_assert_eq(segments_encode(cache, m.t, m.scratch, slice_of(text, len - 1000), false,
				     SIZE_MAX, &ids), 0);
	cr_assert_eq(segments_encode(cache, m.t, m.scratch, slice_of(text, len), false, SIZE_MAX,
				     &ids), 0);
	segments_stats(cache, &stats);
	cr_assert(stats.hit_bytes > len / 2, "%lu of %zu bytes", (unsigned long)stats.hit_bytes,
		  len);
	ids_free(&ids);
	segments_free(&cache);
	model_close(&m);
}

Test(segments, two_tokenizers_do_not_take_each_others_ids)
{
	char text[100], why[TOKENIZER_WHY_BYTES] = "";
	static const char ranks[] = "eA== 0\ncQ== 1\n";         /* x and q */
	struct tokenizer_source source = {.form = TOKENIZER_RANKS,
					  .file = SLICE_LIT(ranks),
					  .pattern = SLICE_LIT("\\p{L}+|\\s+|.")};
	struct ids ids = {0};
	struct segments *cache;
	struct model m, other;
	const char *trouble;
	size_t len;

	demo_open(&m);
	cr_assert_eq(tokenizer_compile(&source, &other.bytes, &len, why, sizeof why), 0, "%s", why);
	cr_assert_eq(tokenizer_open(other.bytes, len, &other.t, &trouble), 0);
	cr_assert_eq(tokenizer_scratch_new(&other.scratch), 0);
	snprintf(other.name, sizeof other.name, "ranks");
	cr_assert_eq(segments_new(1 << 20, &cache), 0);
	memset(text, 'x', sizeof text);
	expect_same(cache, &m, slice_of(text, sizeof text), false, SIZE_MAX);
	expect_same(cache, &other, slice_of(text, sizeof text), false, SIZE_MAX);
	expect_same(cache, &m, slice_of(text, sizeof text), false, SIZE_MAX);
	ids_free(&ids);
	segments_free(&cache);
	model_close(&other);
	model_close(&m);
}

Test(segments, text_that_is_no_utf8_is_refused_wherever_it_stands)
{
	static const char *const text[] = {
		"\xff", "<|im_start|>\xe4\xb8",
		("<|im_start|>0123456789012345678901234567890123456789012345678901234567890"
		 "1\xc0\x80")};
	struct segments *cache;
	struct ids ids = {0};
	struct model m;

	demo_open(&m);
	cr_assert_eq(segments_new(1 << 20, &cache), 0);
	for (size_t i = 0; i < sizeof text / sizeof *text; i++) {
		cr_assert_eq(segments_encode(cache, m.t, m.scratch, slice_str(text[i]), false,
					     SIZE_MAX, &ids), -EILSEQ);
		cr_assert_eq(segments_encode(cache, m.t, m.scratch, slice_str(text[i]), false,
					     SIZE_MAX, &ids), -EILSEQ);
	}
	ids_free(&ids);
	segments_free(&cache);
	model_close(&m);
}
