/* actors/common/prompt/tokenizer.c -- a tokenizer over its compiled bytes. */
#include "actors/common/prompt/tokenizer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "actors/common/prompt/added.h"
#include "actors/common/prompt/normalize.h"
#include "actors/common/prompt/pieces.h"
#include "actors/common/prompt/unicode.h"

/* A long text without added tokens is parted at the first safe place behind so many bytes; for
 * that, so many are looked at in one go. */
#define CUT_LEAST  4096u
#define CUT_WINDOW 8192u

#define PATTERN_SHOWN 100u              /* bytes of a pattern that is complained of */

struct tokenizer {
	const struct tokenizer_head *head;
	const char *base;
	struct added raw, made;
	const struct tokenizer_step *steps;
	struct pieces pieces;
	const uint32_t *before, *after;
	size_t n_before, n_after, n_added;
	bool cuts;                      /* long texts can be parted */
};

struct tokenizer_scratch {
	struct normal_buffers normal;
	struct pieces_run run;
};

/* --- opening: nothing is believed --- */

static const void *
section(const struct tokenizer *t, enum tokenizer_section which)
{
	return t->base + t->head->section[which].off;
}

static size_t
section_n(const struct tokenizer *t, enum tokenizer_section which, size_t size)
{
	return t->head->section[which].len / size;
}

static const char *
check_head(const struct tokenizer_head *h, const void *bytes, size_t len)
{
	const size_t behind = offsetof(struct tokenizer_head, checksum) + sizeof(h->checksum);

	if (len < sizeof(*h) || (uintptr_t)bytes % 64)
		return "too short, or not aligned";
	if (h->magic != TOKENIZER_MAGIC)
		return "not a compiled tokenizer";
	if (h->layout != TOKENIZER_LAYOUT)
		return "";
	if (h->len != len)
		return "not as long as it says";
	if (XXH3_64bits((const char *)bytes + behind, len - behind) != h->checksum)
		return "its checksum is another";
	for (unsigned i = 0; i < SECTIONS; i++)
		if (h->section[i].off % 64 || h->section[i].off > len ||
		    h->section[i].len > len - h->section[i].off)
			return "a section lies outside";
	return NULL;
}

static bool
is_table(const struct tokenizer *t, enum tokenizer_section which, uint32_t mask, size_t size)
{
	uint64_t n = (uint64_t)mask + 1;

	return (n & (n - 1)) == 0 && t->head->section[which].len == n * size;
}

static const char *
check_trie(const struct tokenizer *t)
{
	const struct tokenizer_node *nodes = section(t, SECTION_NODES);
	const struct tokenizer_edge *edges = section(t, SECTION_EDGES);
	const struct tokenizer_added_token *added = section(t, SECTION_ADDED);
	size_t n_nodes = section_n(t, SECTION_NODES, sizeof(*nodes));
	size_t n_edges = section_n(t, SECTION_EDGES, sizeof(*edges));
	size_t n_bytes = t->head->section[SECTION_BYTES].len;
	uint32_t roots[2] = {t->head->raw_root, t->head->made_root};

	for (unsigned i = 0; i < 2; i++)
		if (roots[i] != TOKENIZER_NONE && roots[i] >= n_nodes)
			return "a trie without its root";
	for (size_t i = 0; i < n_nodes; i++) {
		if (nodes[i].edge > n_edges || nodes[i].n_edges > n_edges - nodes[i].edge ||
		    (nodes[i].added != TOKENIZER_NONE && nodes[i].added >= t->n_added))
			return "a node that leads nowhere";
		for (uint32_t e = 0; e < nodes[i].n_edges; e++) {
			const struct tokenizer_edge *edge = &edges[nodes[i].edge + e];

			if (edge->byte > 255 || edge->node <= i || edge->node >= n_nodes)
				return "an edge that leads nowhere";
		}
	}
	for (size_t i = 0; i < t->n_added; i++)
		if (added[i].off > n_bytes || added[i].len > n_bytes - added[i].off)
			return "an added token without its text";
	return NULL;
}

static const char *
check_steps(const struct tokenizer *t)
{
	const struct tokenizer_head *h = t->head;
	size_t n = section_n(t, SECTION_STEPS, sizeof(*t->steps));
	size_t n_bytes = h->section[SECTION_BYTES].len;

	if (n > TOKENIZER_STEPS_MAX || h->n_normalizers > n ||
	    h->n_pretokenizers != n - h->n_normalizers)
		return "steps that do not add up";
	for (size_t i = 0; i < n; i++) {
		const struct tokenizer_step *s = &t->steps[i];
		bool searches = s->kind == STEP_REPLACE || s->kind == STEP_SPLIT_REGEX ||
				s->kind == STEP_SPLIT_STRING || s->kind == STEP_METASPACE;

		if (s->kind >= STEP_KINDS || s->behavior >= BEHAVIORS ||
		    (s->kind < STEP_SPLIT_REGEX) != (i < h->n_normalizers))
			return "a step of an unknown kind";
		/* What stands for a blank is one character: stages cannot multiply a text. */
		if (s->kind == STEP_METASPACE && s->text_len > 4)
			return "a mark that is no character";
		if (s->text > n_bytes || s->text_len > n_bytes - s->text || s->with > n_bytes ||
		    s->with_len > n_bytes - s->with || (searches && s->text_len == 0))
			return "a step without its text";
	}
	return NULL;
}

static const char *
check(const struct tokenizer *t)
{
	const struct tokenizer_head *h = t->head;
	const char *why;

	if (!is_table(t, SECTION_WORD_SLOTS, h->words_mask, sizeof(uint32_t)) ||
	    !is_table(t, SECTION_LONGS, h->longs_mask, sizeof(struct tokenizer_long)) ||
	    !is_table(t, SECTION_MERGE_SLOTS, h->merges_mask, sizeof(uint32_t)))
		return "a table of another size than it says";
	if (h->section[SECTION_SYMBOLS].len != 256 * sizeof(uint32_t) ||
	    (h->section[SECTION_PAIRS].len &&
	     h->section[SECTION_PAIRS].len != 65536 * sizeof(struct tokenizer_pair)) ||
	    (h->section[SECTION_CHARACTERS].len &&
	     h->section[SECTION_CHARACTERS].len != 65536 * sizeof(uint32_t)))
		return "a table that is too small";
	why = check_trie(t);
	return why ? why : check_steps(t);
}

static void
open_tables(struct tokenizer *t)
{
	const struct tokenizer_head *h = t->head;
	struct bpe_tables *b = &t->pieces.tables;

	*b = (struct bpe_tables){
		.words = section(t, SECTION_WORDS),
		.longs = section(t, SECTION_LONGS),
		.merges = section(t, SECTION_MERGES),
		.pairs = h->section[SECTION_PAIRS].len ? section(t, SECTION_PAIRS) : NULL,
		.characters = h->section[SECTION_CHARACTERS].len ? section(t, SECTION_CHARACTERS)
								 : NULL,
		.word_slots = section(t, SECTION_WORD_SLOTS),
		.merge_slots = section(t, SECTION_MERGE_SLOTS),
		.n_words = (uint32_t)section_n(t, SECTION_WORDS, sizeof(struct tokenizer_word)),
		.n_merges = (uint32_t)section_n(t, SECTION_MERGES, sizeof(struct tokenizer_merge)),
		.symbols = section(t, SECTION_SYMBOLS),
		.bytes = section(t, SECTION_BYTES),
		.n_bytes = h->section[SECTION_BYTES].len,
		.identity = h->checksum,
		.words_mask = h->words_mask,
		.longs_mask = h->longs_mask,
		.merges_mask = h->merges_mask,
		.flags = h->flags,
		.unknown = h->unknown,
	};
	for (unsigned i = 0; i < 4; i++)
		b->crossed[i] = h->crossed[i];
	t->pieces.bytes = b->bytes;
	t->before = section(t, SECTION_BEFORE);
	t->after = section(t, SECTION_AFTER);
	t->n_before = section_n(t, SECTION_BEFORE, sizeof(uint32_t));
	t->n_after = section_n(t, SECTION_AFTER, sizeof(uint32_t));
}

int
tokenizer_open(const void *bytes, size_t len, struct tokenizer **ret, const char **why)
{
	struct tokenizer *t;
	int r;

	*why = check_head(bytes, bytes, len);
	if (*why && !**why) {
		*why = "made by another version";
		return -ESTALE;
	}
	if (*why)
		return -EBADMSG;
	t = calloc(1, sizeof(*t));
	if (!t) {
		*why = "no memory";
		return -ENOMEM;
	}
	t->head = bytes;
	t->base = bytes;
	t->steps = section(t, SECTION_STEPS);
	t->n_added = section_n(t, SECTION_ADDED, sizeof(struct tokenizer_added_token));
	*why = check(t);
	if (*why) {
		free(t);
		return -EBADMSG;
	}
	open_tables(t);
	r = pieces_open(&t->pieces, t->steps + t->head->n_normalizers, t->head->n_pretokenizers,
			why);
	if (r < 0) {
		free(t);
		return r;
	}
	added_open(&t->raw, section(t, SECTION_NODES), section(t, SECTION_EDGES),
		   section(t, SECTION_ADDED), t->head->raw_root);
	added_open(&t->made, section(t, SECTION_NODES), section(t, SECTION_EDGES),
		   section(t, SECTION_ADDED), t->head->made_root);
	t->cuts = t->pieces.cuts && t->head->made_root == TOKENIZER_NONE;
	for (unsigned i = 0; i < t->head->n_normalizers; i++)
		t->cuts &= t->steps[i].kind == STEP_NFC;
	*ret = t;
	return 0;
}

void
tokenizer_close(struct tokenizer **ret)
{
	struct tokenizer *t = *ret;

	if (!t)
		return;
	*ret = NULL;
	pieces_close(&t->pieces);
	free(t);
}

int
tokenizer_scratch_new(struct tokenizer_scratch **ret)
{
	*ret = calloc(1, sizeof(**ret));
	return *ret ? 0 : -ENOMEM;
}

void
tokenizer_scratch_free(struct tokenizer_scratch **ret)
{
	struct tokenizer_scratch *s = *ret;

	if (!s)
		return;
	*ret = NULL;
	normal_free(&s->normal);
	pieces_run_free(&s->run);
	free(s);
}

void
tokenizer_scratch_stop(struct tokenizer_scratch *scratch, const atomic_bool *stop)
{
	scratch->run.bpe.stop = stop;
}

void
tokenizer_scratch_give_back(struct tokenizer_scratch *scratch, size_t most)
{
	normal_give_back(&scratch->normal, most);
	pieces_give_back(&scratch->run, most);
	bpe_give_back(&scratch->run.bpe, most);
}

struct tokenizer_counts
tokenizer_scratch_counts(const struct tokenizer_scratch *scratch)
{
	return (struct tokenizer_counts){scratch->run.bpe.pieces, scratch->run.bpe.cached};
}

/* --- what it is --- */

size_t
tokenizer_vocabulary(const struct tokenizer *t)
{
	return t->head->vocabulary;
}

uint64_t
tokenizer_identity(const struct tokenizer *t)
{
	return t->head->checksum;
}

size_t
tokenizer_specials(const struct tokenizer *t, const uint32_t **ret_before,
		   const uint32_t **ret_after, size_t *ret_n_after)
{
	*ret_before = t->before;
	*ret_after = t->after;
	*ret_n_after = t->n_after;
	return t->n_before;
}

/* --- cuts --- */

bool
tokenizer_cut(const struct tokenizer *t, struct slice text, size_t *off, struct tokenizer_cut *ret)
{
	size_t start = *off, seen = start, end = text.len;
	struct added_match m;

	if (start >= text.len)
		return false;
	*ret = (struct tokenizer_cut){.token = TOKENIZER_NONE, .first = start == 0};
	for (;;) {
		size_t stop = text.len;

		if (t->cuts && text.len - seen > CUT_WINDOW)
			stop = seen + CUT_WINDOW;
		if (added_next(&t->raw, text, start, seen, stop, &m)) {
			end = m.start > start ? m.start : m.end;
			if (m.start == start)
				ret->token = m.token->id;
			break;
		}
		/* No token begins before `stop`: may the text be parted there? */
		if (t->cuts && stop - start > CUT_LEAST) {
			size_t from = start + CUT_LEAST;

			end = scan_cut(t->pieces.stage[0].scan.kind, slice_of(text.p, stop),
				       from < seen ? seen - 1 : from);
			if (end < stop)
				break;
		}
		end = text.len;
		if (stop == text.len)
			break;
		seen = stop;
	}
	ret->text = slice_of(text.p + start, end - start);
	*off = end;
	return true;
}

/* --- ids --- */

static int
encode_text(const struct tokenizer *t, struct tokenizer_scratch *s, struct slice text, bool first,
	    size_t max_n, struct ids *out)
{
	struct added_match m;
	size_t from = 0;
	int r = normalize(t->steps, t->head->n_normalizers, t->pieces.bytes, &s->normal, text,
			  &text);

	while (r == 0 && from < text.len && out->n < max_n) {
		bool found = added_next(&t->made, text, from, from, text.len, &m);
		size_t end = found ? m.start : text.len;

		r = pieces_encode(&t->pieces, &s->run, slice_of(text.p + from, end - from),
				  first && from == 0, max_n, out);
		if (r == 0 && found && out->n < max_n)
			r = ids_add(out, &m.token->id, 1);
		from = found ? m.end : text.len;
	}
	return r;
}

static int
encode_cut(const struct tokenizer *t, struct tokenizer_scratch *s, const struct tokenizer_cut *cut,
	   size_t max_n, struct ids *out)
{
	int r;

	if (out->n >= max_n)
		return 0;
	if (cut->token != TOKENIZER_NONE)
		return ids_add(out, &cut->token, 1);
	r = encode_text(t, s, cut->text, cut->first, max_n, out);
	if (out->n > max_n)                  /* a piece gives its ids together */
		out->n = max_n;
	return r;
}

static size_t
bound(const struct ids *out, size_t max_ids)
{
	return max_ids < SIZE_MAX - out->n ? out->n + max_ids : SIZE_MAX;
}

int
tokenizer_encode_cut(const struct tokenizer *t, struct tokenizer_scratch *scratch,
		     const struct tokenizer_cut *cut, size_t max_ids, struct ids *out)
{
	int r = bpe_begin(&t->pieces.tables, &scratch->run.bpe);

	return r < 0 ? r : encode_cut(t, scratch, cut, bound(out, max_ids), out);
}

int
tokenizer_encode(const struct tokenizer *t, struct tokenizer_scratch *scratch, struct slice text,
		 bool add_special, size_t max_ids, struct ids *out)
{
	size_t max_n = bound(out, max_ids), off = 0;
	struct tokenizer_cut cut;
	int r;

	if (!unicode_valid(text, &off))
		return -EILSEQ;
	off = 0;
	r = bpe_begin(&t->pieces.tables, &scratch->run.bpe);
	if (r == 0 && add_special)
		r = ids_add(out, t->before, t->n_before);
	while (r == 0 && out->n < max_n && tokenizer_cut(t, text, &off, &cut))
		r = encode_cut(t, scratch, &cut, max_n, out);
	if (r == 0 && add_special)
		r = ids_add(out, t->after, t->n_after);
	if (out->n > max_n)
		out->n = max_n;
	return r;
}

void
tokenizer_trouble(const struct tokenizer *t, const struct tokenizer_scratch *scratch, int r,
		  char *why, size_t why_len)
{
	const struct tokenizer_step *step = scratch->run.stuck;

	if (r == -EILSEQ)
		snprintf(why, why_len, "it is no UTF-8, or has half a surrogate pair: no tokenizer "
			 "takes it");
	else if (r == -EOVERFLOW)
		snprintf(why, why_len, "normalizers make more than %u times its length of it",
			 NORMAL_TIMES);
	else if (r == -E2BIG)
		snprintf(why, why_len, "all of it, or a piece that nothing parts, keeps the "
			 "tokenizer busy for too long");
	else if (r == -ECANCELED)
		snprintf(why, why_len, "stopped, for its tokens took too long");
	else if (r == -ETIME && step)
		snprintf(why, why_len, "the pre-tokenizer's pattern %.*s%s searches it for too "
			 "long",
			 (int)(step->text_len > PATTERN_SHOWN ? PATTERN_SHOWN : step->text_len),
			 t->pieces.bytes + step->text,
			 step->text_len > PATTERN_SHOWN ? "..." : "");
	else
		snprintf(why, why_len, "%s", strerror(-r));
}
