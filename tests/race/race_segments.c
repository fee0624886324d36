/* race_segments.c -- threads that share a tokenizer and a segment cache too small for their texts
 * each get the ids of the whole text.
 *
 * Under the tsan preset the locks are looked at too.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/common/prompt/segments.h"
#include "actors/common/prompt/tokenizer.h"
#include "actors/common/prompt/tokenizer_compile.h"
#include "tests/random.h"

#define THREADS 4
#define TEXTS   48
#define TEXT    4096

static const struct tokenizer *tokenizer;
static struct segments *cache;
static char text[TEXTS][TEXT];
static struct ids whole[TEXTS];
static unsigned rounds = 500;

static void *
encode(void *arg)
{
	uint64_t state = (uint64_t)(uintptr_t)arg;
	struct tokenizer_scratch *scratch;
	struct ids ids = {0};

	if (tokenizer_scratch_new(&scratch) < 0)
		abort();
	for (unsigned i = 0; i < rounds; i++) {
		size_t k = random_next(&state) % TEXTS;

		ids.n = 0;
		if (segments_encode(cache, tokenizer, scratch, slice_of(text[k], TEXT), false,
				    SIZE_MAX, &ids) < 0)
			abort();
		if (ids.n != whole[k].n || memcmp(ids.id, whole[k].id, 4 * ids.n) != 0) {
			fprintf(stderr, "text %zu: other ids\n", k);
			abort();
		}
	}
	ids_free(&ids);
	tokenizer_scratch_free(&scratch);
	return NULL;
}

/* Of few lines, so that texts share segments. */
static void
make_texts(struct tokenizer_scratch *scratch)
{
	uint64_t state = 6;

	for (size_t k = 0; k < TEXTS; k++) {
		memset(text[k], ' ', TEXT);
		for (size_t at = 0; at + 400 < TEXT;) {
			unsigned turn = (unsigned)(random_next(&state) % 600);

			at += (size_t)sprintf(text[k] + at, "<|im_start|>user\n");
			for (unsigned line = 0; line < turn % 8; line++)
				at += (size_t)sprintf(text[k] + at, "Turn %u says this.\n", turn);
			at += (size_t)sprintf(text[k] + at, "<|im_end|>\n");
		}
		for (size_t i = 0; i < TEXT; i++)
			if (!text[k][i])
				text[k][i] = '.';
		if (tokenizer_encode(tokenizer, scratch, slice_of(text[k], TEXT), false, SIZE_MAX,
				     &whole[k]) < 0)
			abort();
	}
}

int
main(int argc, char **argv)
{
	char why[TOKENIZER_WHY_BYTES] = "";
	struct tokenizer_files files;
	struct tokenizer_scratch *scratch;
	struct segments_stats stats;
	struct tokenizer *t;
	const char *trouble = "";
	pthread_t thread[THREADS];
	void *bytes;
	size_t len;

	if (argc > 1)
		rounds = (unsigned)strtoul(argv[1], NULL, 10);
	if (tokenizer_files_open(PM_SOURCE_DIR "/etc/models/demo", false, &files, why,
				 sizeof why) < 0 ||
	    tokenizer_compile(&files.source, &bytes, &len, why, sizeof why) < 0 ||
	    tokenizer_open(bytes, len, &t, &trouble) < 0 || tokenizer_scratch_new(&scratch) < 0 ||
	    segments_new(64 << 10, &cache) < 0) {
		fprintf(stderr, "race_segments: %s%s\n", why, trouble);
		return 1;
	}
	tokenizer = t;
	make_texts(scratch);
	for (size_t i = 0; i < THREADS; i++)
		if (pthread_create(&thread[i], NULL, encode, (void *)(uintptr_t)(i + 1)) != 0)
			abort();
	for (size_t i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	segments_stats(cache, &stats);
	printf("%u texts in each of %u threads: %lu hits, %lu misses, %lu evicted, all ids equal\n",
	       rounds, THREADS, (unsigned long)stats.hits, (unsigned long)stats.misses,
	       (unsigned long)stats.evicted);
	if (stats.hits < rounds || stats.evicted == 0)
		return 1;
	segments_free(&cache);
	for (size_t k = 0; k < TEXTS; k++)
		ids_free(&whole[k]);
	tokenizer_scratch_free(&scratch);
	tokenizer_close(&t);
	tokenizer_files_close(&files);
	free(bytes);
	return 0;
}
