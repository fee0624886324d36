/* Texts through every scanner and through PCRE2, which must agree; and patterns of any bytes. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "actors/common/prompt/nfc.h"
#include "actors/common/prompt/scan.h"
#include "actors/common/prompt/unicode.h"

#define BATCH 16                        /* small, so that runs are taken up again often */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* PCRE2's splits of one kind, each inside the one before. */
struct splits {
	struct scan scan[3];
	struct scan_run run[3];
	size_t n;
};

static struct splits splits[SCAN_KINDS];
static struct scan_run run;

static void
open_splits(void)
{
	for (unsigned kind = SCAN_PATTERN + 1; kind < SCAN_KINDS; kind++) {
		struct splits *s = &splits[kind];
		const char *why;
		size_t at;

		for (; scan_pattern(kind, s->n); s->n++)
			if (scan_open_pcre2(slice_str(scan_pattern(kind, s->n)),
					    &s->scan[s->n], &why, &at) < 0)
				abort();
	}
}

/* Marks where pieces end. */
static void
split(struct splits *s, size_t level, struct slice text, uint8_t *end)
{
	uint32_t len[BATCH];
	size_t at = 0;
	ssize_t n;

	if (level == s->n) {
		end[text.len - 1] = 1;
		return;
	}
	if (scan_begin(&s->scan[level], &s->run[level], text) < 0)
		abort();
	while ((n = scan_pieces(&s->run[level], len, BATCH)) > 0)
		for (ssize_t i = 0; i < n; i++) {
			split(s, level + 1, slice_of(text.p + at, len[i]), end + at);
			at += len[i];
		}
	if (n < 0 || at != text.len)
		abort();
}

/* The same by the scanner; its pieces must be there, none of them empty, and no others. */
static void
check(const struct scan *s, struct slice text, uint8_t *end, int compare)
{
	uint32_t len[BATCH];
	size_t at = 0;
	ssize_t n;

	if (scan_begin(s, &run, text) < 0)
		abort();
	while ((n = scan_pieces(&run, len, BATCH)) > 0)
		for (ssize_t i = 0; i < n; i++) {
			if (len[i] == 0 || len[i] > text.len - at)
				abort();
			at += len[i];
			if (compare && !end[at - 1])
				abort();
			end[at - 1] = 0;
		}
	if (n == 0 && at != text.len)
		abort();
	if (n == 0 && compare && memchr(end, 1, text.len))
		abort();
}

static void
any_pattern(const char *data, size_t size)
{
	const char *zero = memchr(data, 0, size);
	struct scan s;
	const char *why = NULL;
	size_t at = SIZE_MAX, n = zero ? (size_t)(zero - data) : size;
	uint8_t *end;

	if (n > 64)                     /* longer ones take PCRE2 long to compile */
		return;
	if (scan_open_pcre2(slice_of(data, n), &s, &why, &at) < 0) {
		if (!why || at > n)
			abort();
		return;
	}
	if (zero && size - n - 1 < 256) {
		end = calloc(1, size - n);
		check(&s, slice_of(zero + 1, size - n - 1), end, 0);
		free(end);
	}
	scan_close(&s);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data + 1;
	unsigned kind;
	struct slice t;
	struct scan s;
	uint8_t *end;
	size_t at;
	bool valid;

	if (size < 2)
		return 0;
	if (!splits[SCAN_GPT2].n)
		open_splits();
	kind = data[0] % SCAN_KINDS;
	if (kind == SCAN_PATTERN) {
		any_pattern(text, size - 1);
		return 0;
	}
	t = slice_of(text, size - 1);
	end = calloc(1, t.len);
	valid = unicode_valid(t, &at);
	if (valid)
		split(&splits[kind], 0, t, end);
	scan_open_kind(kind, &s);
	check(&s, t, end, valid);
	free(end);

	/* And composed once is composed. */
	struct nfc once = {0}, twice = {0};

	if (nfc_make(&once, t) < 0 ||
	    nfc_make(&twice, slice_of(once.text, once.len)) < 0)
		abort();
	if (valid && !slice_eq(slice_of(once.text, once.len), slice_of(twice.text, twice.len)))
		abort();
	if (valid && nfc_is(t) && !slice_eq(t, slice_of(once.text, once.len)))
		abort();
	nfc_free(&once);
	nfc_free(&twice);
	return 0;
}
