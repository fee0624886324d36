/* actors/common/prompt/load_ranks.c -- tiktoken's rank files, and Mistral's tekken.json. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "actors/common/prompt/build.h"
#include "actors/common/prompt/load_part.h"

/* The six bits of a base64 digit, or -1. */
static int
digit64(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Base64 into the arena.  False: it is none, or stands for nothing. */
static bool
load_base64(struct build *b, struct slice text, uint32_t *ret_off, uint32_t *ret_len)
{
	char bytes[4096];
	uint32_t bits = 0, n = 0;
	unsigned have = 0;

	while (text.len && text.p[text.len - 1] == '=')
		text.len--;
	if (text.len > sizeof(bytes))
		return false;
	for (size_t i = 0; i < text.len; i++) {
		int d = digit64(text.p[i]);

		if (d < 0)
			return false;
		bits = bits << 6 | (uint32_t)d;
		have += 6;
		if (have >= 8) {
			have -= 8;
			bytes[n++] = (char)(bits >> have);
		}
	}
	*ret_off = build_text(b, bytes, n);
	*ret_len = n;
	return n > 0;
}

static void
as_tiktoken(struct build *b)
{
	b->byte_level = b->raw_bytes = b->ranks = b->ignore_merges = true;
}

int
build_load_ranks(struct build *b, struct slice file, struct slice pattern)
{
	const char *p = file.p, *end = file.p + file.len;

	as_tiktoken(b);
	if (pattern.len)
		build_split(b, build_text(b, pattern.p, pattern.len), (uint32_t)pattern.len);
	build_expect(b, file.len / 16);
	for (size_t line = 1; p < end && !b->error; line++) {
		const char *eol = memchr(p, '\n', (size_t)(end - p));
		const char *stop = eol ? eol : end, *blank;
		uint32_t off, len, rank = 0;

		while (stop > p && (stop[-1] == '\r' || stop[-1] == ' '))
			stop--;
		if (stop > p) {
			blank = memchr(p, ' ', (size_t)(stop - p));
			if (!blank || stop - blank > 9 || stop - blank < 2 ||
			    !load_base64(b, slice_of(p, (size_t)(blank - p)), &off, &len))
				return build_fail(b, -EINVAL, "line %zu is not \"BASE64 RANK\"",
						  line);
			while (++blank < stop) {
				if (*blank < '0' || *blank > '9')
					return build_fail(b, -EINVAL, "line %zu: the rank is no "
							  "number", line);
				rank = rank * 10 + (uint32_t)(*blank - '0');
			}
			build_token(b, off, len, rank);
		}
		p = eol ? eol + 1 : end;
	}
	if (b->n_tokens == 0)
		build_fail(b, -EINVAL, "no ranks in the file");
	return b->error;
}

static uint32_t
number(struct build *b, const char *what, struct slice raw)
{
	int64_t v = 0;

	if (!raw.p || json_to_i64(raw, &v) < 0 || v < 0 || v > 1 << 24)
		build_fail(b, -EINVAL, "tekken.json: %s is no number from 0 to %d", what, 1 << 24);
	return (uint32_t)v;
}

/* The ids in front of a text: <s>, which is the second special token unless they are listed. */
static void
tekken_before(struct build *b, struct slice specials)
{
	static const char *const names[] = {"rank", "token_str"};
	struct json_cursor c;
	struct slice one, v[2];
	uint32_t bos = 1;

	if (specials.p && !part_null(specials)) {
		json_begin(&c, specials.p, specials.len);
		if (!json_enter_array(&c))
			build_fail(b, -EINVAL, "tekken.json: special_tokens is no list");
		while (!b->error && json_next_element(&c) && json_get_raw(&c, &one))
			if (part_read(b, "tekken.json: special_tokens", one, names, v, 2) == 0 &&
			    part_is(v[1], "<s>"))
				bos = number(b, "the rank of <s>", v[0]);
	}
	build_surround(b, true, bos);
}

static void
tekken_vocabulary(struct build *b, struct slice vocab, uint32_t specials, uint32_t most)
{
	static const char *const names[] = {"rank", "token_bytes"};
	struct json_cursor c;
	struct json_string s;
	struct slice one, v[2];

	json_begin(&c, vocab.p ? vocab.p : "", vocab.len);
	if (!json_enter_array(&c))
		build_fail(b, -EINVAL, "tekken.json: vocab is no list");
	build_expect(b, most);
	while (!b->error && json_next_element(&c) && json_get_raw(&c, &one)) {
		struct json_cursor bytes;
		uint32_t off = 0, len = 0, rank;

		if (part_read(b, "tekken.json: vocab", one, names, v, 2) < 0)
			return;
		rank = number(b, "a rank", v[0]);
		json_begin(&bytes, v[1].p ? v[1].p : "", v[1].len);
		if (!json_get_string(&bytes, &s) || !load_base64(b, s.raw, &off, &len))
			build_fail(b, -EINVAL, "tekken.json: vocab: the token of rank %u has no "
				   "bytes", rank);
		else if (rank < most)
			build_token(b, off, len, specials + rank);
	}
}

int
build_load_tekken(struct build *b, struct slice file)
{
	enum { CONFIG, VOCAB, SPECIALS, N };
	enum { PATTERN, SIZE, N_SPECIALS, M };
	static const char *const names[] = {"config", "vocab", "special_tokens"};
	static const char *const keys[] = {
		"pattern", "default_vocab_size", "default_num_special_tokens",
	};
	struct slice v[N], k[M];
	uint32_t len = 0, off, size, specials;

	if (part_read(b, "tekken.json", file, names, v, N) < 0 ||
	    part_read(b, "tekken.json: config", v[CONFIG], keys, k, M) < 0)
		return b->error;
	as_tiktoken(b);
	off = part_text(b, "tekken.json: config.pattern", k[PATTERN], &len);
	build_split(b, off, len);
	size = number(b, "default_vocab_size", k[SIZE]);
	specials = number(b, "default_num_special_tokens", k[N_SPECIALS]);
	if (specials > size)
		build_fail(b, -EINVAL, "tekken.json: more special tokens than tokens");
	tekken_before(b, v[SPECIALS]);
	tekken_vocabulary(b, v[VOCAB], specials, b->error ? 0 : size - specials);
	return b->error;
}
