/* tests/bench/bench_request.c -- what a request costs until it is known who holds it: prompt.py
 * runs it.
 *
 *      bench_request render TEMPLATE CONTEXT [N]  us bytes: the best of RENDER_BATCHES batches of N
 *                                               renders, 200 if not said; 0: the text instead
 *      bench_request turn MODEL FIRST BODY...   a conversation, then others that go on from it: ms
 *                                               of request, hashes and match, the median; tokens,
 *                                               blocks held
 *      bench_request cold MODEL BODY...         the same for prompts never seen, one after another
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/common/prompt/blocks.h"
#include "actors/common/prompt/jinja.h"
#include "actors/common/prompt/request.h"
#include "actors/common/prompt/segments.h"
#include "shm/blockhash.h"
#include "shm/index.h"
#include "tests/bench/files.h"
#include "tests/bench/measure.h"

#define BLOCK           16u                     /* tokens */
#define TURN_BLOCKS     64u                     /* what one turn adds, at most */
#define RENDER_BATCHES  15u
#define CACHE_BYTES     ((size_t)64 << 20)      /* segments */
#define RENDER_BYTES    ((size_t)64 << 20)

/* ---- templates ---- */

static void
render(const char *template, const char *context, unsigned renders)
{
	struct jinja *jinja;
	struct jinja_error err;
	struct bump bump, kept;
	struct text out;
	struct value value;
	const char *why;
	double best_us = 0;

	if (jinja_compile(map_file(template), &jinja, &err) < 0)
		fail("%s:%u: %s", template, err.line, err.text);
	bump_init(&kept, RENDER_BYTES);
	bump_init(&bump, RENDER_BYTES);
	text_init(&out, RENDER_BYTES);
	if (value_from_json(&kept, map_file(context), &value, &why, NULL) < 0)
		fail("%s: %s", context, why);
	for (unsigned batch = 0; batch < (renders ? RENDER_BATCHES : 1); batch++) {
		uint64_t start = cpu_ns();

		for (unsigned i = 0; i < (renders ? renders : 1); i++) {
			bump_reset(&bump);
			text_clear(&out);
			if (jinja_render(jinja, &value, NULL, &bump, &out, &err) < 0)
				fail("%s:%u: %s", template, err.line, err.text);
		}
		best_us = lesser(best_us, ms_since(start) * 1e3 / (renders ? renders : 1));
	}
	if (renders == 0)
		fwrite(out.p, 1, out.len, stdout);
	else
		printf("%.3f %zu\n", best_us, out.len);
	text_free(&out);
	bump_free(&bump);
	bump_free(&kept);
	jinja_free(&jinja);
}

/* ---- requests ---- */

struct house {
	struct model *model;
	void *blob;
	struct prompt_maker *maker;
	struct segments *segments;
	struct segment seg;
	struct index_writer *writer;
	struct index *index;
	uint16_t slot;
	uint64_t root;
	uint64_t *hash;
	size_t max_blocks;
};

static void
house_open(struct house *h, const char *dir)
{
	char why[MODEL_WHY_BYTES];
	size_t len;
	int r;

	*h = (struct house){.max_blocks = 1u << 16};
	if (model_build(dir, &(struct model_options){.max_model_len = 1u << 20}, &h->blob, &len,
			why, sizeof(why)) < 0 ||
	    model_open(h->blob, len, &h->model, why, sizeof(why)) < 0)
		fail("%s: %s", dir, why);
	h->hash = calloc(h->max_blocks, sizeof(*h->hash));
	if (!h->hash || prompt_maker_new(&h->maker) < 0 ||
	    segments_new(CACHE_BYTES, &h->segments) < 0)
		fail("no memory");
	r = index_create(&h->seg, h->max_blocks, 60, 1);
	if (r == 0)
		r = index_writer_open(&h->writer, fcntl(h->seg.fd, F_DUPFD_CLOEXEC, 0));
	if (r == 0)
		r = index_attach_mapped(&h->index, &h->seg);
	if (r < 0)
		cannot("make an index", r);
	h->slot = index_slot_take(h->writer, 1, 1, INDEX_EXACT, INDEX_GPU, BLOCK);
	h->root = blocks_root(index_seed(h->index), "model", (struct slice){0}, (struct slice){0},
			      BLOCK);
}

static void
house_close(struct house *h)
{
	index_detach(&h->index);
	index_writer_close(&h->writer);
	segment_detach(&h->seg);
	segments_free(&h->segments);
	prompt_maker_free(&h->maker);
	model_close(&h->model);
	free(h->blob);
	free(h->hash);
}

/* From the body to who holds how much of it, as policy does; returns ms of CPU. */
static double
ask(struct house *h, struct slice body, size_t *ret_tokens, size_t *ret_blocks, unsigned *ret_held)
{
	struct index_depth depth[4];
	struct prompt_made made;
	uint64_t start = cpu_ns();

	if (prompt_make(h->maker, h->model, h->segments, OPENAI_CHAT, body, 0, &made) < 0 ||
	    made.end != PROMPT_EXACT)
		fail("the prompt is %s: %s", prompt_end_name(made.end), made.why);
	size_t n = blockhash_chain(h->root, made.prompts[0].ids, made.prompts[0].n, BLOCK, h->hash,
				   h->max_blocks);
	unsigned rows = index_match(h->index, h->hash, (unsigned)n, depth, 4);
	double ms = ms_since(start);

	*ret_tokens = made.prompts[0].n;
	*ret_blocks = n;
	*ret_held = rows ? depth[0].exact : 0;
	return ms;
}

static void
turns(const char *dir, const char *first, char **path)
{
	double ms[64];
	size_t n = 0, tokens, blocks;
	unsigned held;
	struct house h;

	house_open(&h, dir);
	if (first) {
		ask(&h, map_file(first), &tokens, &blocks, &held);
		for (size_t i = 0; i < blocks; i++)
			if (!index_put(h.writer, h.slot, h.hash[i], NULL, 0))
				fail("the index does not take a block");
	}
	for (; *path && n < 64; path++) {
		struct slice body = map_file(*path);

		ms[n++] = ask(&h, body, &tokens, &blocks, &held);
		if (first && held + TURN_BLOCKS < blocks)
			fail("%s: %u of %zu blocks are held: not the same conversation", *path,
			     held, blocks);
	}
	if (n == 0)
		fail("no bodies");
	printf("%.4f %zu %u\n", median(ms, n), tokens, held);
	house_close(&h);
}

int
main(int argc, char **argv)
{
	const char *what = argc > 3 ? argv[1] : "";

	if (strcmp(what, "render") == 0)
		render(argv[2], argv[3], argc > 4 ? (unsigned)atoi(argv[4]) : 200);
	else if (strcmp(what, "turn") == 0 && argc > 4)
		turns(argv[2], argv[3], argv + 4);
	else if (strcmp(what, "cold") == 0)
		turns(argv[2], NULL, argv + 3);
	else
		fail("see the head of tests/bench/bench_request.c");
	return 0;
}
