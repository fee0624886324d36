/* actors/common/prompt/build.c -- tokens, merges and added tokens as the loaders find them. */
#include "actors/common/prompt/build.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define TEXT_MAX   (1u << 30)           /* offsets fit 32 bits */
#define TOKENS_MAX (1u << 24)

int
build_fail(struct build *b, int error, const char *format, ...)
{
	va_list args;

	if (b->error)
		return b->error;
	b->error = error;
	va_start(args, format);
	vsnprintf(b->why, b->why_len, format, args);
	va_end(args);
	return error;
}

void
build_free(struct build *b)
{
	free(b->spelling.p);
	free(b->tokens);
	free(b->find);
	free(b->merges);
	free(b->added);
	free(b->added_find);
	ids_free(&b->before);
	ids_free(&b->after);
}

/* Room for one more of an array of elements of that size. */
static bool
grow(struct build *b, void **array, size_t n, size_t *cap, size_t size)
{
	if (n < *cap)
		return true;
	size_t more = *cap ? 2 * *cap : 256;
	void *p = n < TOKENS_MAX ? realloc(*array, more * size) : NULL;

	if (!p) {
		build_fail(b, n < TOKENS_MAX ? -ENOMEM : -E2BIG,
			   "more than %u entries, or no memory", TOKENS_MAX);
		return false;
	}
	*array = p;
	*cap = more;
	return true;
}

/* Room for len bytes behind the arena's end. */
static char *
text_room(struct build *b, size_t len)
{
	struct build_bytes *t = &b->spelling;

	if (len > TEXT_MAX - t->len) {
		build_fail(b, -E2BIG, "more than a gigabyte of text");
		return NULL;
	}
	if (len > t->cap - t->len) {
		size_t cap = t->len + len + t->len / 2 + 65536;
		char *p = realloc(t->p, cap);

		if (!p) {
			build_fail(b, -ENOMEM, "no memory");
			return NULL;
		}
		t->p = p;
		t->cap = cap;
	}
	return t->p + t->len;
}

uint32_t
build_text(struct build *b, const char *p, size_t len)
{
	char *to = text_room(b, len);
	uint32_t off = (uint32_t)b->spelling.len;

	if (!to)
		return 0;
	if (len)
		memcpy(to, p, len);
	b->spelling.len += len;
	return off;
}

uint32_t
build_json_text(struct build *b, const struct json_string *s, uint32_t *ret_len)
{
	char *to = text_room(b, s->raw.len);
	uint32_t off = (uint32_t)b->spelling.len;
	ssize_t n = 0;

	*ret_len = 0;
	if (!to)
		return 0;
	if (!s->escaped)
		memcpy(to, s->raw.p, (size_t)(n = (ssize_t)s->raw.len));
	else
		n = json_unescape(s, to, s->raw.len);
	if (n < 0)
		return 0;
	b->spelling.len += (size_t)n;
	*ret_len = (uint32_t)n;
	return off;
}

struct slice
build_slice(const struct build *b, uint32_t off, uint32_t len)
{
	return (struct slice){b->spelling.p ? b->spelling.p + off : "", len};
}

/* --- the vocabulary --- */

static size_t
find_place(const struct build *b, struct slice spelling)
{
	size_t i = XXH3_64bits(spelling.p, spelling.len) & b->find_mask;

	for (;; i = (i + 1) & b->find_mask) {
		uint32_t at = b->find[i];

		if (!at || slice_eq(build_slice(b, b->tokens[at - 1].off, b->tokens[at - 1].len),
				    spelling))
			return i;
	}
}

/* Room in the table for n tokens at a load of a half. */
static bool
find_grow(struct build *b, size_t n)
{
	size_t size = b->find ? b->find_mask + 1 : 0;

	if (2 * n <= size)
		return true;
	for (size = size ? size : 1024; size < 2 * n; )
		size *= 2;
	free(b->find);
	b->find = calloc(size, sizeof(*b->find));
	if (!b->find) {
		build_fail(b, -ENOMEM, "no memory");
		return false;
	}
	b->find_mask = size - 1;
	for (size_t i = 0; i < b->n_tokens; i++) {
		struct slice s = build_slice(b, b->tokens[i].off, b->tokens[i].len);

		b->find[find_place(b, s)] = (uint32_t)i + 1;
	}
	return true;
}

void
build_expect(struct build *b, size_t tokens)
{
	if (tokens < TOKENS_MAX)
		find_grow(b, tokens);
}

void
build_token(struct build *b, uint32_t off, uint32_t len, uint32_t id)
{
	if (b->error || !find_grow(b, b->n_tokens + 1) ||
	    !grow(b, (void **)&b->tokens, b->n_tokens, &b->cap_tokens, sizeof(*b->tokens)))
		return;
	size_t i = find_place(b, build_slice(b, off, len));

	if (id >= TOKENS_MAX) {
		build_fail(b, -E2BIG, "token id %u is past %u", id, TOKENS_MAX);
	} else if (b->find[i]) {
		b->tokens[b->find[i] - 1].id = id;
	} else {
		b->tokens[b->n_tokens] = (struct build_token){off, len, id};
		b->find[i] = (uint32_t)++b->n_tokens;
	}
}

uint32_t
build_find(const struct build *b, struct slice spelling)
{
	if (!b->find)
		return TOKENIZER_NONE;
	uint32_t at = b->find[find_place(b, spelling)];

	return at ? b->tokens[at - 1].id : TOKENIZER_NONE;
}

void
build_merge(struct build *b, uint32_t left, uint32_t right, uint32_t id, uint32_t rank)
{
	if (b->error ||
	    !grow(b, (void **)&b->merges, b->n_merges, &b->cap_merges, sizeof(*b->merges)))
		return;
	b->merges[b->n_merges++] = (struct build_merge){left, right, id, rank};
}

/* --- added tokens --- */

static size_t
added_place(const struct build *b, struct slice content)
{
	size_t i = XXH3_64bits(content.p, content.len) & b->added_mask;

	for (;; i = (i + 1) & b->added_mask) {
		uint32_t at = b->added_find[i];

		if (!at || slice_eq(build_slice(b, b->added[at - 1].off, b->added[at - 1].len),
				    content))
			return i;
	}
}

/* Room in their table for one more at a load of a half: models of speech add a hundred thousand. */
static bool
added_grow(struct build *b)
{
	size_t size = b->added_find ? b->added_mask + 1 : 0;

	if (2 * (b->n_added + 1) <= size)
		return true;
	size = size ? 2 * size : 256;
	free(b->added_find);
	b->added_find = calloc(size, sizeof(*b->added_find));
	if (!b->added_find) {
		build_fail(b, -ENOMEM, "no memory");
		return false;
	}
	b->added_mask = size - 1;
	for (size_t i = 0; i < b->n_added; i++) {
		struct slice s = build_slice(b, b->added[i].off, b->added[i].len);

		b->added_find[added_place(b, s)] = (uint32_t)i + 1;
	}
	return true;
}

uint32_t
build_added_find(const struct build *b, struct slice content)
{
	uint32_t at = b->added_find ? b->added_find[added_place(b, content)] : 0;

	return at ? b->added[at - 1].id : build_find(b, content);
}

void
build_added(struct build *b, uint32_t off, uint32_t len, uint32_t flags, bool normalized,
	    uint32_t id)
{
	struct slice content = build_slice(b, off, len);
	uint32_t known = build_find(b, content);
	size_t place;

	if (b->error || len == 0 || !added_grow(b))
		return;
	place = added_place(b, content);
	if (b->added_find[place]) {
		b->added[b->added_find[place] - 1].flags = flags;
		return;
	}
	if (known != TOKENIZER_NONE) {
		id = known;
	} else if (id == TOKENIZER_NONE) {   /* the vocabulary's size, or behind the last added */
		id = (uint32_t)b->n_tokens;
		id = b->added_next > id ? b->added_next : id;
	}
	if (id >= TOKENS_MAX) {
		build_fail(b, -E2BIG, "token id %u is past %u", id, TOKENS_MAX);
	} else if (grow(b, (void **)&b->added, b->n_added, &b->cap_added, sizeof(*b->added))) {
		b->added[b->n_added++] = (struct build_added){
			.id = id, .flags = flags, .off = off, .len = len, .normalized = normalized,
		};
		b->added_find[place] = (uint32_t)b->n_added;
		b->added_next = id >= b->added_next ? id + 1 : b->added_next;
	}
}

void
build_step(struct build *b, bool normalizer, struct tokenizer_step step)
{
	if (b->n_steps == TOKENIZER_STEPS_MAX) {
		build_fail(b, -ENOTSUP, "more than %u normalizers and pre-tokenizers",
			   TOKENIZER_STEPS_MAX);
		return;
	}
	b->step[b->n_steps++] = step;
	b->n_normalizers += normalizer;
}

void
build_split(struct build *b, uint32_t pattern, uint32_t len)
{
	build_step(b, false, (struct tokenizer_step){
		.kind = STEP_SPLIT_REGEX, .text = pattern, .text_len = len,
	});
}

void
build_split_known(struct build *b, enum scan_kind kind)
{
	struct slice pattern = slice_str(scan_pattern(kind, 0));

	build_split(b, build_text(b, pattern.p, pattern.len), (uint32_t)pattern.len);
}

void
build_surround(struct build *b, bool before, uint32_t id)
{
	if (ids_add(before ? &b->before : &b->after, &id, 1) < 0)
		build_fail(b, -ENOMEM, "no memory");
}

/* --- GPT-2's alphabet: bytes that print stand for themselves, the other 68 for U+0100 on --- */

static bool
prints(uint32_t byte)
{
	return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) ||
	       (byte >= 0xae && byte <= 0xff);
}

size_t
build_byte_of(uint32_t character)
{
	uint32_t n = 0x100;

	if (character < 0x100)
		return prints(character) ? character : 256;
	for (uint32_t byte = 0; byte < 256; byte++)
		if (!prints(byte) && n++ == character)
			return byte;
	return 256;
}

/* --- the whole --- */

int
tokenizer_compile(const struct tokenizer_source *source, void **ret_bytes, size_t *ret_len,
		  char *why, size_t why_len)
{
	struct build b = {.why = why, .why_len = why_len, .unknown = TOKENIZER_NONE};
	int r;

	switch (source->form) {
	case TOKENIZER_JSON:
		r = build_load_json(&b, source->file);
		break;
	case TOKENIZER_TEKKEN:
		r = build_load_tekken(&b, source->file);
		break;
	case TOKENIZER_RANKS:
		r = build_load_ranks(&b, source->file, source->pattern);
		break;
	default:
		r = build_fail(&b, -EINVAL, "no such form of tokenizer");
	}
	if (r == 0 && source->config.p)
		r = build_load_config(&b, source->form, source->config);
	if (r == 0 && source->form == TOKENIZER_RANKS && b.n_steps == 0)
		r = build_fail(&b, -ENOTSUP, "a rank file does not say by which pattern text is "
			       "cut, and nothing else here does");
	if (r == 0)
		r = build_finish(&b, ret_bytes, ret_len);
	build_free(&b);
	return r;
}
