/* actors/common/prompt/compile.c -- from what the loaders found to the compiled bytes. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "actors/common/prompt/compile_private.h"

#define ALIGN 64u
#define BLANK "\xe2\x96\x81"            /* U+2581 */

void *
compile_room(struct finish *f, struct section *s, size_t len)
{
	if (!s->p || len > s->cap - s->len) {
		size_t cap = s->len + len + s->len / 2 + 1024;
		char *p = realloc(s->p, cap);

		if (!p) {
			build_fail(f->b, -ENOMEM, "no memory");
			return NULL;
		}
		s->p = p;
		s->cap = cap;
	}
	s->len += len;
	return s->p + s->len - len;
}

uint32_t
compile_bytes(struct finish *f, struct slice s)
{
	uint32_t off = (uint32_t)f->bytes.len;
	char *to = compile_room(f, &f->bytes, s.len);

	if (to && s.len)
		memcpy(to, s.p, s.len);
	return off;
}

/* Entries of a table that n can be found in. */
static size_t
table_size(size_t n)
{
	size_t size = 64;

	while (size < 2 * n)
		size *= 2;
	return size;
}

/* --- what the tokens stand for --- */

/* A spelling in GPT-2's alphabet as the bytes it stands for: how many, 0 for what is none. */
static size_t
spelled_bytes(const uint16_t *byte_of, struct slice s, char *to)
{
	size_t n = 0;

	for (size_t i = 0; i < s.len; ) {
		uint8_t c = (uint8_t)s.p[i];
		uint32_t character = c;

		if (c >= 0xe0)
			return 0;
		if (c >= 0x80) {
			if (i + 1 == s.len)
				return 0;
			character = (uint32_t)(c & 0x1f) << 6 | ((uint8_t)s.p[i + 1] & 0x3f);
		}
		if (character >= 0x200 || byte_of[character] > 255)
			return 0;
		to[n++] = (char)byte_of[character];
		i += c < 0x80 ? 1 : 2;
	}
	return n;
}

static void
spell(struct finish *f)
{
	struct build *b = f->b;
	uint16_t byte_of[0x200];

	for (uint32_t c = 0; c < 0x200; c++)
		byte_of[c] = (uint16_t)build_byte_of(c);
	for (size_t i = 0; i < b->n_tokens && !b->error; i++) {
		struct slice s = build_slice(b, b->tokens[i].off, b->tokens[i].len);
		uint32_t off = (uint32_t)f->bytes.len;
		char *to = compile_room(f, &f->bytes, s.len);
		size_t n = s.len;

		if (!to)
			return;
		if (b->byte_level && !b->raw_bytes)
			n = spelled_bytes(byte_of, s, to);
		else
			memcpy(to, s.p, s.len);
		f->bytes.len = off + n;
		f->token[i] = (struct token_bytes){off, (uint32_t)n};
	}
}

static struct slice
token_text(const struct finish *f, size_t i)
{
	return (struct slice){f->bytes.p + f->token[i].off, f->token[i].len};
}

static void
symbols(struct finish *f)
{
	struct build *b = f->b;

	for (unsigned i = 0; i < 256; i++)
		f->byte_symbol[i] = TOKENIZER_NONE;
	if (b->byte_level) {
		for (size_t i = 0; i < b->n_tokens; i++)
			if (f->token[i].len == 1)
				f->byte_symbol[(uint8_t)f->bytes.p[f->token[i].off]] =
					b->tokens[i].id;
	} else if (b->byte_fallback) {
		for (unsigned i = 0; i < 256; i++) {
			char name[8];

			snprintf(name, sizeof(name), "<0x%02X>", i);
			f->byte_symbol[i] = build_find(b, slice_str(name));
		}
	}
	f->all_bytes = true;
	for (unsigned i = 0; i < 256; i++)
		f->all_bytes &= f->byte_symbol[i] != TOKENIZER_NONE;
}

/* --- merges --- */

/* Any two tokens whose texts make a third merge, by its rank: tiktoken's rule as a list. */
static void
merges_of_ranks(struct finish *f)
{
	struct build *b = f->b;

	for (size_t i = 0; i < b->n_tokens && !b->error; i++) {
		uint32_t len = b->tokens[i].len;

		for (uint32_t k = 1; k < len; k++) {
			struct slice s = build_slice(b, b->tokens[i].off, len);
			uint32_t left = build_find(b, slice_of(s.p, k)), right;

			if (left == TOKENIZER_NONE)
				continue;
			right = build_find(b, slice_of(s.p + k, len - k));
			if (right != TOKENIZER_NONE)
				build_merge(b, left, right, b->tokens[i].id, b->tokens[i].id);
		}
	}
}

/* Slots over n things of those hashes, for each its place + 1. */
static uint32_t
slots_make(struct finish *f, enum tokenizer_section which, const uint32_t *hash, size_t n)
{
	struct section *s = &f->section[which];

	for (size_t size = table_size(n); !f->b->error; size *= 2) {
		bool fits = true;

		s->len = 0;
		uint32_t *slot = compile_room(f, s, size * sizeof(*slot));

		if (!slot)
			break;
		memset(slot, 0, size * sizeof(*slot));
		for (size_t k = 0; k < n && fits; k++) {
			size_t i = hash[k] & (size - 1);
			unsigned probe = 0;

			for (; slot[i]; i = (i + 1) & (size - 1))
				probe++;
			slot[i] = (hash[k] & TOKENIZER_SLOT_TAG) | (uint32_t)(k + 1);
			fits = probe < TOKENIZER_PROBES - 1;
		}
		if (fits)
			return (uint32_t)(size - 1);
		if (size > (1u << 28))
			build_fail(f->b, -E2BIG, "more than a table holds");
	}
	return 0;
}

static int
by_rank(const void *a, const void *b)
{
	const struct build_merge *x = a, *y = b;

	return (x->rank > y->rank) - (x->rank < y->rank);
}

static int
by_pair(const void *a, const void *b)
{
	const struct build_merge *x = a, *y = b;

	if (x->left != y->left)
		return x->left < y->left ? -1 : 1;
	if (x->right != y->right)
		return x->right < y->right ? -1 : 1;
	return by_rank(a, b);
}

/* A pair that is listed twice has the later rank, as Hugging Face's map of them. */
static void
drop_equal_pairs(struct build *b)
{
	size_t n = 0;

	if (b->n_merges)
		qsort(b->merges, b->n_merges, sizeof(*b->merges), by_pair);
	for (size_t i = 0; i < b->n_merges; i++) {
		bool again = i + 1 < b->n_merges && b->merges[i].left == b->merges[i + 1].left &&
			     b->merges[i].right == b->merges[i + 1].right;

		if (!again)
			b->merges[n++] = b->merges[i];
	}
	b->n_merges = n;
}

static void
merge_table(struct finish *f)
{
	struct build *b = f->b;
	uint32_t *hash = malloc((b->n_merges + 1) * sizeof(*hash));
	struct section *s = &f->section[SECTION_MERGES];

	s->len = 0;
	struct tokenizer_merge *m = compile_room(f, s, b->n_merges * sizeof(*m));

	if (!hash || (b->n_merges && !m)) {
		build_fail(b, -ENOMEM, "no memory");
	} else {
		for (size_t i = 0; i < b->n_merges; i++) {
			const struct build_merge *from = &b->merges[i];

			m[i] = (struct tokenizer_merge){from->left, from->right, from->rank,
							from->id};
			hash[i] = tokenizer_hash_merge(from->left, from->right);
		}
		f->tables.merges_mask = slots_make(f, SECTION_MERGE_SLOTS, hash, b->n_merges);
		f->tables.merge_slots = (const uint32_t *)(void *)f->section[SECTION_MERGE_SLOTS].p;
		f->tables.merges = m;
		f->tables.n_merges = (uint32_t)b->n_merges;
	}
	free(hash);
}

/* The symbols a token's own text begins as; 0 when some character has none. */
static size_t
own_symbols(struct finish *f, size_t i, uint32_t *to)
{
	struct slice s = token_text(f, i);
	size_t n = 0, len;

	for (size_t k = 0; k < s.len; k += len) {
		uint8_t lead = (uint8_t)s.p[k];

		len = f->b->byte_level || lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
		if (len > s.len - k)
			return 0;
		to[n] = f->b->byte_level ? f->byte_symbol[lead]
					 : build_find(f->b, slice_of(s.p + k, len));
		if (to[n++] == TOKENIZER_NONE)
			return 0;
	}
	return n;
}

/* Do pairs have only symbols whose text is what they were made of?  Not the unknown token, nor
 * those of bytes that a character falls back to, nor two tokens of one id. */
static bool
is_closed(struct finish *f)
{
	struct build *b = f->b;
	uint8_t *odd = calloc(f->head.vocabulary ? f->head.vocabulary : 1, 1);
	bool closed = odd != NULL;

	if (!odd) {
		build_fail(b, -ENOMEM, "no memory");
		return false;
	}
	for (size_t i = 0; i < b->n_tokens && closed; i++)
		closed = odd[b->tokens[i].id]++ == 0;
	memset(odd, 0, f->head.vocabulary);
	if (b->unknown != TOKENIZER_NONE)
		odd[b->unknown] = 1;
	for (unsigned i = 0; i < 256 && !b->byte_level; i++)
		if (f->byte_symbol[i] != TOKENIZER_NONE)
			odd[f->byte_symbol[i]] = 1;
	for (size_t i = 0; i < b->n_merges && closed; i++)
		closed = !odd[b->merges[i].left] && !odd[b->merges[i].right];
	free(odd);
	return closed;
}

/* Which tokens their own text becomes, and by which last merge: others are never made (bpe.h). */
static void
reduce(struct finish *f)
{
	struct build *b = f->b;
	struct build_merge *kept = malloc((b->n_tokens + 1) * sizeof(*kept));
	size_t n_kept = 0, longest = 1;

	for (size_t i = 0; i < b->n_tokens; i++)
		longest = f->token[i].len > longest ? f->token[i].len : longest;
	uint32_t *symbol = malloc(longest * sizeof(*symbol));

	if (!kept || !symbol)
		build_fail(b, -ENOMEM, "no memory");
	for (size_t i = 0; i < b->n_tokens && !b->error; i++) {
		size_t n = own_symbols(f, i, symbol);
		const struct tokenizer_merge *m;

		if (n < 2) {
			f->whole[i] = n == 1;
			continue;
		}
		n = bpe_merge(&f->tables, &f->work, symbol, n, 2);
		if (n == SIZE_MAX)
			build_fail(b, -ENOMEM, "no memory");
		if (n != 2)
			continue;
		m = bpe_pair(&f->tables, symbol[0], symbol[1]);
		if (!m || m->id != b->tokens[i].id)
			continue;
		f->whole[i] = true;
		kept[n_kept++] = (struct build_merge){m->left, m->right, m->id, m->rank};
	}
	free(symbol);
	if (!b->error && is_closed(f)) {
		free(b->merges);
		b->merges = kept;
		b->n_merges = n_kept;
		f->closed = true;
		qsort(kept, n_kept, sizeof(*kept), by_rank);
		merge_table(f);
	} else {
		free(kept);
	}
}

static void
pair_table(struct finish *f)
{
	if (!f->b->byte_level || !f->all_bytes || f->b->error)
		return;
	struct tokenizer_pair *p = compile_room(f, &f->section[SECTION_PAIRS], 65536 * sizeof(*p));

	for (uint32_t i = 0; p && i < 65536; i++) {
		const struct tokenizer_merge *m = bpe_pair(&f->tables, f->byte_symbol[i >> 8],
							   f->byte_symbol[i & 255]);

		p[i] = m ? (struct tokenizer_pair){m->rank, m->id}
			 : (struct tokenizer_pair){TOKENIZER_NONE, TOKENIZER_NONE};
	}
}

/* --- characters --- */

/* A token's merges with what can be beside it where it ends or begins a character, and no ASCII is
 * there: the least rank of those it is the left of, and of those it is the right of, or
 * TOKENIZER_NONE. */
struct least {
	uint32_t left, right;
};

static struct least *
least_ranks(struct finish *f)
{
	struct build *b = f->b;
	size_t n = f->head.vocabulary;
	struct least *least = malloc((n + 1) * sizeof(*least));
	uint8_t *ends = calloc(n + 1, 2);       /* first and last byte */

	if (!least || !ends) {
		build_fail(b, -ENOMEM, "no memory");
		free(least);
		free(ends);
		return NULL;
	}
	for (size_t i = 0; i < n; i++)
		least[i] = (struct least){TOKENIZER_NONE, TOKENIZER_NONE};
	for (size_t i = 0; i < b->n_tokens; i++) {
		struct slice s = token_text(f, i);

		if (s.len) {
			ends[2 * b->tokens[i].id] = (uint8_t)s.p[0];
			ends[2 * b->tokens[i].id + 1] = (uint8_t)s.p[s.len - 1];
		}
	}
	for (size_t i = 0; i < b->n_merges; i++) {
		const struct build_merge *m = &b->merges[i];

		if (ends[2 * m->right] >= 0xc0 && m->rank < least[m->left].left)
			least[m->left].left = m->rank;
		if (ends[2 * m->left + 1] >= 0x80 && m->rank < least[m->right].right)
			least[m->right].right = m->rank;
	}
	free(ends);
	return least;
}

/* The token that these bytes become before any of them merges with what is beside them, and that
 * none merges with before; else TOKENIZER_NONE. */
static uint32_t
character_token(const struct finish *f, const struct least *least, const uint8_t *p, unsigned n)
{
	uint32_t symbol[3], most = 0;

	for (unsigned i = 0; i < n; i++)
		symbol[i] = f->byte_symbol[p[i]];
	while (n > 1) {
		const struct tokenizer_merge *best = NULL;
		unsigned at = 0;

		for (unsigned i = 0; i + 1 < n; i++) {
			const struct tokenizer_merge *m = bpe_pair(&f->tables, symbol[i],
								   symbol[i + 1]);

			if (m && (!best || m->rank < best->rank)) {
				best = m;
				at = i;
			}
		}
		if (!best || best->rank >= least[symbol[0]].right ||
		    best->rank >= least[symbol[n - 1]].left)
			return TOKENIZER_NONE;
		most = best->rank > most ? best->rank : most;
		symbol[at] = best->id;
		n--;
		for (unsigned i = at + 1; i < n; i++)
			symbol[i] = symbol[i + 1];
	}
	return least[symbol[0]].left > most && least[symbol[0]].right > most ? symbol[0]
									    : TOKENIZER_NONE;
}

static void
character_table(struct finish *f)
{
	if (!f->b->byte_level || !f->all_bytes || !f->closed || f->b->error)
		return;
	uint32_t *c = compile_room(f, &f->section[SECTION_CHARACTERS], 65536 * sizeof(*c));
	struct least *least = c ? least_ranks(f) : NULL;

	for (uint32_t i = 0; least && i < 65536; i++) {
		const uint8_t two[] = {(uint8_t)(0xc0 | i >> 6), (uint8_t)(0x80 | (i & 63))};
		const uint8_t three[] = {(uint8_t)(0xe0 | i >> 12),
					 (uint8_t)(0x80 | (i >> 6 & 63)), two[1]};

		c[i] = i < 0x80 ? TOKENIZER_NONE
				: character_token(f, least, i < 0x800 ? two : three,
						  i < 0x800 ? 2 : 3);
	}
	free(least);
}

/* --- whole pieces --- */

/* Does a piece of this text become the token at once?  Of characters each must be found here. */
static bool
is_whole(const struct finish *f, size_t i)
{
	return f->token[i].len > 0 && (f->b->ignore_merges || f->whole[i]);
}

static void
word_table(struct finish *f, size_t n)
{
	struct build *b = f->b;
	uint32_t *hash = malloc((n + 1) * sizeof(*hash));
	struct tokenizer_word *w = compile_room(f, &f->section[SECTION_WORDS], n * sizeof(*w));
	size_t at = 0;

	if (!hash || (n && !w))
		build_fail(b, -ENOMEM, "no memory");
	for (size_t t = 0; t < b->n_tokens && !b->error; t++) {
		struct slice text = token_text(f, t);
		uint64_t key[2] = {0};

		if (!is_whole(f, t) || text.len > 11)
			continue;
		memcpy(key, text.p, text.len);
		hash[at] = (uint32_t)tokenizer_hash_word(key[0], key[1]);
		w[at++] = (struct tokenizer_word){
			key[0], (uint32_t)key[1] | (uint32_t)text.len << 24, b->tokens[t].id,
		};
	}
	if (!b->error)
		f->head.words_mask = slots_make(f, SECTION_WORD_SLOTS, hash, at);
	free(hash);
}

static bool
long_table(struct finish *f, size_t size)
{
	struct build *b = f->b;
	struct section *s = &f->section[SECTION_LONGS];

	s->len = 0;
	struct tokenizer_long *l = compile_room(f, s, size * sizeof(*l));

	if (!l)
		return true;
	memset(l, 0, size * sizeof(*l));
	f->head.longs_mask = (uint32_t)(size - 1);
	for (size_t t = 0; t < b->n_tokens; t++) {
		struct slice text = token_text(f, t);

		if (!is_whole(f, t) || text.len <= 11)
			continue;
		uint64_t hash = XXH3_64bits(text.p, text.len);
		size_t i = hash & (size - 1);

		for (unsigned probe = 0; l[i].len; i = (i + 1) & (size - 1))
			if (++probe == TOKENIZER_PROBES)
				return false;
		l[i] = (struct tokenizer_long){(uint32_t)(hash >> 32), f->token[t].off,
					       f->token[t].len, b->tokens[t].id};
	}
	return true;
}

static void
whole_tables(struct finish *f)
{
	size_t n_words = 0, n_longs = 0;

	for (size_t i = 0; i < f->b->n_tokens; i++)
		if (is_whole(f, i))
			*(f->token[i].len > 11 ? &n_longs : &n_words) += 1;
	word_table(f, n_words);
	for (size_t size = table_size(n_longs); !f->b->error && !long_table(f, size); size *= 2)
		if (size > (1u << 28))
			build_fail(f->b, -E2BIG, "tokens that no table holds");
}

/* Which bytes stand right before a U+2581 inside a token that a piece can become.  Where none
 * does, a piece can be parted there. */
static void
crossed(struct finish *f)
{
	const struct build *b = f->b;

	if (b->byte_level || !f->closed || build_find(b, SLICE_LIT(BLANK)) == TOKENIZER_NONE)
		return;
	f->head.flags |= TOKENIZER_PARTS;
	for (size_t i = 0; i < b->n_tokens; i++) {
		struct slice s = token_text(f, i);
		const char *p = s.p, *end = s.p + s.len;

		if (!is_whole(f, i))
			continue;
		while (p < end && (p = memmem(p, (size_t)(end - p), BLANK, 3))) {
			if (p > s.p)
				f->head.crossed[(uint8_t)p[-1] >> 6] |= 1ull << (p[-1] & 63);
			p++;
		}
	}
}

/* --- all of it, in place --- */

/* What every process that opens it would find out only then. */
static void
check_pattern(struct finish *f, struct slice pattern)
{
	const char *why = "";
	struct scan scan;
	size_t at = 0;
	int r = scan_open(pattern, &scan, &why, &at);

	if (r == 0)
		scan_close(&scan);
	else if (r == -ENOMEM)
		build_fail(f->b, r, "no memory");
	else
		build_fail(f->b, -ENOTSUP, "pre_tokenizer: the pattern %.*s, byte %zu: %s",
			   (int)(pattern.len < 200 ? pattern.len : 200), pattern.p, at, why);
}

static void
steps(struct finish *f)
{
	struct build *b = f->b;

	f->head.n_normalizers = b->n_normalizers;
	f->head.n_pretokenizers = b->n_steps - b->n_normalizers;
	for (unsigned i = 0; i < b->n_steps && !b->error; i++) {
		struct section *s = &f->section[SECTION_STEPS];
		struct tokenizer_step *to = compile_room(f, s, sizeof(*to));

		if (!to)
			return;
		*to = b->step[i];
		if (to->kind == STEP_SPLIT_REGEX)
			check_pattern(f, build_slice(b, to->text, to->text_len));
		to->text = compile_bytes(f, build_slice(b, b->step[i].text, b->step[i].text_len));
		to->with = compile_bytes(f, build_slice(b, b->step[i].with, b->step[i].with_len));
	}
}

static void
put(struct finish *f, enum tokenizer_section which, const void *p, size_t len)
{
	void *to = compile_room(f, &f->section[which], len);

	if (to && len)
		memcpy(to, p, len);
}

static int
assemble(struct finish *f, void **ret_bytes, size_t *ret_len)
{
	size_t len = (sizeof(f->head) + ALIGN - 1) / ALIGN * ALIGN;

	for (unsigned i = 0; i < SECTIONS; i++) {
		f->head.section[i] = (struct tokenizer_span){len, f->section[i].len};
		len += (f->section[i].len + ALIGN - 1) / ALIGN * ALIGN;
	}
	f->head.magic = TOKENIZER_MAGIC;
	f->head.layout = TOKENIZER_LAYOUT;
	f->head.len = len;
	char *p = aligned_alloc(ALIGN, len);

	if (!p)
		return build_fail(f->b, -ENOMEM, "no memory");
	memset(p, 0, len);
	for (unsigned i = 0; i < SECTIONS; i++)
		if (f->section[i].len)
			memcpy(p + f->head.section[i].off, f->section[i].p, f->section[i].len);
	memcpy(p, &f->head, sizeof(f->head));
	size_t behind = offsetof(struct tokenizer_head, checksum) + sizeof(f->head.checksum);

	f->head.checksum = XXH3_64bits(p + behind, len - behind);
	memcpy(p, &f->head, sizeof(f->head));
	*ret_bytes = p;
	*ret_len = len;
	return 0;
}

static uint32_t
vocabulary(const struct build *b)
{
	uint32_t most = 0;

	for (size_t i = 0; i < b->n_tokens; i++)
		most = b->tokens[i].id >= most ? b->tokens[i].id + 1 : most;
	for (size_t i = 0; i < b->n_added; i++)
		most = b->added[i].id >= most ? b->added[i].id + 1 : most;
	return most;
}

static void
model_tables(struct finish *f)
{
	struct build *b = f->b;

	spell(f);
	if (b->error)
		return;
	symbols(f);
	if (b->ranks)
		merges_of_ranks(f);
	for (size_t i = 0; i < b->n_merges; i++)
		if (b->merges[i].rank >= TOKENIZER_RANKS_MAX)
			build_fail(b, -E2BIG, "a merge of rank %u", b->merges[i].rank);
	if (b->error)
		return;
	drop_equal_pairs(b);
	merge_table(f);
	if (!b->error)
		reduce(f);
	pair_table(f);
	character_table(f);
	whole_tables(f);
	crossed(f);
}

int
build_finish(struct build *b, void **ret_bytes, size_t *ret_len)
{
	struct finish f = {.b = b};

	f.token = calloc(b->n_tokens + 1, sizeof(*f.token));
	f.whole = calloc(b->n_tokens + 1, sizeof(*f.whole));
	f.head.vocabulary = vocabulary(b);
	f.head.unknown = b->unknown;
	f.head.flags = (b->byte_level ? TOKENIZER_BYTE_LEVEL : 0) |
		       (b->byte_fallback ? TOKENIZER_FALLBACK : 0) |
		       (b->fuse_unknown ? TOKENIZER_FUSE_UNKNOWN : 0);
	if (!f.token || !f.whole)
		build_fail(b, -ENOMEM, "no memory");
	else
		model_tables(&f);
	if (!b->error)
		compile_added(&f);
	if (!b->error)
		steps(&f);
	put(&f, SECTION_SYMBOLS, f.byte_symbol, sizeof(f.byte_symbol));
	put(&f, SECTION_BEFORE, b->before.id, b->before.n * sizeof(uint32_t));
	put(&f, SECTION_AFTER, b->after.id, b->after.n * sizeof(uint32_t));
	f.head.merges_mask = f.tables.merges_mask;
	f.section[SECTION_BYTES] = f.bytes;
	if (!b->error)
		assemble(&f, ret_bytes, ret_len);
	for (unsigned i = 0; i < SECTIONS; i++)
		free(f.section[i].p);
	free(f.token);
	free(f.whole);
	bpe_free(&f.work);
	return b->error;
}
