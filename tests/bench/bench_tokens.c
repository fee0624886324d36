/* tests/bench/bench_tokens.c -- what tokens cost: prompt.py runs it.
 *
 *      bench_tokens files MODEL            compile_ms load_ms, bytes of the compiled tokenizer
 *      bench_tokens encode MODEL TEXT...   a line a text, read once by a new scratch:
 *                                          seconds bytes tokens pieces new cached
 *      bench_tokens whole MODEL TEXT...    the same, each text in one
 *
 * Texts      are encoded in documents of DOCUMENT bytes, cut at line ends, as Hugging Face's are
 *            beside it (tests/conformance/hf/speed.mjs).
 * Pieces     of Qwen's expression, whichever model it is; new: those that had not come before in
 *            this text; cached: those the tokenizer found in its word cache.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

#include "actors/common/prompt/scan.h"
#include "actors/common/prompt/tokenizer.h"
#include "actors/common/prompt/tokenizer_compile.h"
#include "tests/bench/files.h"
#include "tests/bench/measure.h"

#define DOCUMENT        8000u                   /* bytes */
#define LOADS           9u

/* ---- the compiled tokenizer ---- */

static void *
compile(const char *dir, size_t *ret_len)
{
	struct tokenizer_files files;
	char why[TOKENIZER_WHY_BYTES];
	void *bytes;

	if (tokenizer_files_open(dir, true, &files, why, sizeof(why)) < 0 ||
	    tokenizer_compile(&files.source, &bytes, ret_len, why, sizeof(why)) < 0)
		fail("%s", why);
	tokenizer_files_close(&files);
	return bytes;
}

static struct tokenizer *
open_tokenizer(const void *bytes, size_t len)
{
	struct tokenizer *t;
	const char *why = "no memory";

	if (tokenizer_open(bytes, len, &t, &why) < 0)
		fail("the compiled tokenizer does not open: %s", why);
	return t;
}

static void
files(const char *dir)
{
	uint64_t start = cpu_ns();
	size_t len;
	void *bytes = compile(dir, &len);
	double compile_ms = ms_since(start), load_ms[LOADS];
	int fd = memfd_create("tokenizer", MFD_CLOEXEC);

	/* As another process finds it: pages that somebody wrote, and a mapping of its own. */
	if (fd < 0 || write(fd, bytes, len) != (ssize_t)len)
		fail("write the compiled tokenizer: %s", strerror(errno));
	for (unsigned i = 0; i < LOADS; i++) {
		start = cpu_ns();
		void *p = mmap(NULL, len, PROT_READ, MAP_SHARED, fd, 0);

		if (p == MAP_FAILED)
			fail("map the compiled tokenizer: %s", strerror(errno));
		struct tokenizer *t = open_tokenizer(p, len);

		load_ms[i] = ms_since(start);
		tokenizer_close(&t);
		munmap(p, len);
	}
	printf("%.3f %.3f %zu\n", compile_ms, median(load_ms, LOADS), len);
	free(bytes);
}

/* ---- texts ---- */

static size_t
document_end(struct slice text, size_t from, size_t size)
{
	if (text.len - from <= size)
		return text.len;
	const char *p = memchr(text.p + from + size, '\n', text.len - from - size);

	return p ? (size_t)(p - text.p) + 1 : text.len;
}

/* Pieces, and those of them that had not come before. */
static void
count_pieces(struct slice text, size_t *ret_pieces, size_t *ret_new)
{
	size_t cap = 1u << 16, pieces = 0, fresh = 0, off = 0;
	struct scan scan;
	struct scan_run run = {0};
	uint32_t len[256];
	ssize_t n;

	while (cap < text.len)
		cap *= 2;
	uint64_t *seen = calloc(cap, sizeof(*seen));

	scan_open_kind(SCAN_QWEN2, &scan);
	if (!seen || scan_begin(&scan, &run, text) < 0)
		fail("no memory");
	while ((n = scan_pieces(&run, len, 256)) > 0)
		for (ssize_t i = 0; i < n; i++) {
			uint64_t h = XXH3_64bits(text.p + off, len[i]) | 1;
			size_t at = h >> 1 & (cap - 1);

			while (seen[at] && seen[at] != h)
				at = (at + 1) & (cap - 1);
			fresh += !seen[at];
			seen[at] = h;
			pieces++;
			off += len[i];
		}
	scan_run_free(&run);
	scan_close(&scan);
	free(seen);
	*ret_pieces = pieces;
	*ret_new = fresh;
}

static void
encode(const struct tokenizer *t, const char *path, size_t size)
{
	struct slice text = map_file(path);
	struct tokenizer_scratch *scratch;
	struct ids ids = {0};
	size_t tokens = 0, pieces, fresh;

	if (tokenizer_scratch_new(&scratch) < 0)
		fail("no memory");
	uint64_t start = cpu_ns();

	for (size_t from = 0, end; from < text.len; from = end) {
		end = document_end(text, from, size);
		ids.n = 0;
		int r = tokenizer_encode(t, scratch, slice_of(text.p + from, end - from), false,
					 SIZE_MAX, &ids);

		if (r < 0)
			fail("%s: %s", path, strerror(-r));
		tokens += ids.n;
	}
	double seconds = ms_since(start) / 1e3;
	struct tokenizer_counts counts = tokenizer_scratch_counts(scratch);

	count_pieces(text, &pieces, &fresh);
	printf("%.6f %zu %zu %zu %.4f %.4f\n", seconds, text.len, tokens, pieces,
	       (double)fresh / (double)pieces,
	       counts.pieces ? (double)counts.cached / (double)counts.pieces : 0);
	ids_free(&ids);
	tokenizer_scratch_free(&scratch);
	munmap((void *)(uintptr_t)text.p, text.len);
}

static void
encode_all(const char *dir, char **path, size_t size)
{
	size_t len;
	void *bytes = compile(dir, &len);
	struct tokenizer *t = open_tokenizer(bytes, len);

	for (; *path; path++)
		encode(t, *path, size);
	tokenizer_close(&t);
	free(bytes);
}

int
main(int argc, char **argv)
{
	const char *what = argc > 2 ? argv[1] : "";

	if (strcmp(what, "files") == 0)
		files(argv[2]);
	else if (strcmp(what, "encode") == 0 && argc > 3)
		encode_all(argv[2], argv + 3, DOCUMENT);
	else if (strcmp(what, "whole") == 0 && argc > 3)
		encode_all(argv[2], argv + 3, SIZE_MAX / 2);
	else
		fail("see the head of tests/bench/bench_tokens.c");
	return 0;
}
