/* actors/common/prompt/pieces.c -- Split, Digits, Metaspace, and what ByteLevel puts in front. */
#include "actors/common/prompt/pieces.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "actors/common/prompt/unicode.h"

/* --- the stages --- */

/* A Split that isolates, as most are; what removes all but its matches does the same where they
 * cover everything, which those of the known patterns do. */
static bool
isolates(const struct tokenizer_step *s, const struct scan *known)
{
	if (s->kind != STEP_SPLIT_REGEX)
		return false;
	if (s->behavior == BEHAVIOR_ISOLATED)
		return true;
	return s->behavior == BEHAVIOR_REMOVED && (s->flags & STEP_INVERT) && known &&
	       known->kind != SCAN_PATTERN;
}

/* From `at` on, as many Splits that isolate as one scanner does: how many, 0 for none. */
static unsigned
known_run(struct pieces *p, const struct tokenizer_step *steps, unsigned at, unsigned n,
	  struct pieces_stage *stage)
{
	struct slice pattern[TOKENIZER_STEPS_MAX];
	enum scan_kind kind;
	unsigned many = 0;

	while (at + many < n && isolates(&steps[at + many], NULL)) {
		const struct tokenizer_step *s = &steps[at + many];

		pattern[many++] = slice_of(p->bytes + s->text, s->text_len);
	}
	for (; many > 1; many--)
		if (scan_known(pattern, many, &kind)) {
			scan_open_kind(kind, &stage->scan);
			stage->batches = true;
			return many;
		}
	return 0;
}

int
pieces_open(struct pieces *p, const struct tokenizer_step *steps, unsigned n, const char **why)
{
	p->n = 0;
	for (unsigned i = 0; i < n; ) {
		struct pieces_stage *stage = &p->stage[p->n];
		struct slice pattern = {p->bytes + steps[i].text, steps[i].text_len};
		unsigned many = known_run(p, steps, i, n, stage);
		size_t at;

		stage->step = &steps[i];
		if (many == 0 && steps[i].kind == STEP_SPLIT_REGEX) {
			int r = scan_open(pattern, &stage->scan, why, &at);

			if (r < 0) {
				pieces_close(p);
				return r == -ENOMEM ? r : -ENOTSUP;
			}
			stage->batches = isolates(&steps[i], &stage->scan);
		}
		p->n++;
		i += many ? many : 1;
	}
	p->cuts = p->n == 1 && p->stage[0].batches && p->stage[0].scan.kind != SCAN_PATTERN;
	return 0;
}

void
pieces_close(struct pieces *p)
{
	for (unsigned i = 0; i < p->n; i++)
		if (p->stage[i].step->kind == STEP_SPLIT_REGEX)
			scan_close(&p->stage[i].scan);
	p->n = 0;
}

void
pieces_run_free(struct pieces_run *r)
{
	for (unsigned i = 0; i < TOKENIZER_STEPS_MAX; i++) {
		scan_run_free(&r->stage[i].scan);
		free(r->stage[i].text.p);
	}
	bpe_free(&r->bpe);
}

void
pieces_give_back(struct pieces_run *r, size_t most)
{
	for (unsigned i = 0; i < TOKENIZER_STEPS_MAX; i++) {
		normal_text_give_back(&r->stage[i].text, most);
		if (r->stage[i].scan.classes_cap <= most)
			continue;
		scan_run_free(&r->stage[i].scan);
		r->stage[i].scan = (struct scan_run){0};
	}
}

/* --- one text on its way --- */

struct walk {
	const struct pieces *p;
	struct pieces_run *r;
	size_t max_n;
	struct ids *out;
};

static int walk(struct walk *w, unsigned stage, struct slice text, bool first);

/* Keeps which pattern it was. */
static int
gave_up(struct walk *w, const struct tokenizer_step *step, int r)
{
	w->r->stuck = step;
	return r;
}

static int
scan_batches(struct walk *w, unsigned stage, struct slice text, bool first)
{
	const struct pieces_stage *s = &w->p->stage[stage];
	struct scan_run *run = &w->r->stage[stage].scan;
	uint32_t *len = w->r->stage[stage].len;
	int r = scan_begin(&s->scan, run, text);
	size_t off = 0;
	ssize_t n;

	if (r < 0)
		return r;
	while (w->out->n < w->max_n && (n = scan_pieces(run, len, PIECES_BATCH)) != 0) {
		if (n < 0)
			return gave_up(w, s->step, (int)n);
		if (stage + 1 == w->p->n) {
			r = bpe_pieces(&w->p->tables, &w->r->bpe, text.p + off, text.len - off, len,
				       (size_t)n, w->max_n, w->out);
			for (ssize_t i = 0; i < n; i++)
				off += len[i];
		}
		for (ssize_t i = 0; stage + 1 < w->p->n && i < n && r == 0; i++) {
			r = walk(w, stage + 1, slice_of(text.p + off, len[i]), first && off == 0);
			off += len[i];
		}
		if (r < 0)
			return r;
	}
	return 0;
}

/* Where the next match of a Split, of Digits or of Metaspace is: 1, 0 none, or an error. */
static int
next_match(const struct pieces *p, const struct pieces_stage *s, struct scan_run *run,
	   struct slice text, size_t from, size_t *ret_begin, size_t *ret_end)
{
	const char *at;
	unsigned len;

	switch ((enum tokenizer_step_kind)s->step->kind) {
	case STEP_SPLIT_REGEX:
		return scan_match(run, ret_begin, ret_end);
	case STEP_DIGITS:
		for (; from < text.len; from += len)
			if (unicode_class(unicode_at(text.p + from, text.len - from, &len)) &
			    UNICODE_NUMBER) {
				*ret_begin = from;
				*ret_end = from + len;
				return 1;
			}
		return 0;
	default:
		at = memmem(text.p + from, text.len - from, p->bytes + s->step->text,
			    s->step->text_len);
		if (!at)
			return 0;
		*ret_begin = (size_t)(at - text.p);
		*ret_end = *ret_begin + s->step->text_len;
		return 1;
	}
}

/* Stretches that match and such that do not, in turn, as a behaviour joins or drops them.  One is
 * held back until it is known what follows. */
struct join {
	struct walk *w;
	unsigned stage;
	struct slice text;
	bool first;
	enum tokenizer_behavior behavior;
	size_t begin, end;              /* held back; empty: nothing is */
	bool match;                     /* what was seen last */
};

static int
let_go(struct join *j)
{
	size_t begin = j->begin, end = j->end;

	j->begin = end;
	if (begin == end)
		return 0;
	return walk(j->w, j->stage + 1, slice_of(j->text.p + begin, end - begin),
		    j->first && begin == 0);
}

static int
add_stretch(struct join *j, size_t begin, size_t end, bool match)
{
	bool joins = false;
	int r = 0;

	switch (j->behavior) {
	case BEHAVIOR_PREVIOUS:
		joins = match && !j->match;
		break;
	case BEHAVIOR_NEXT:
		joins = !match && j->match;
		break;
	case BEHAVIOR_CONTIGUOUS:
		joins = match == j->match;
		break;
	default:
		break;
	}
	j->match = match;
	if (joins && j->begin < j->end) {
		j->end = end;
		return 0;
	}
	r = let_go(j);
	if (match && j->behavior == BEHAVIOR_REMOVED)
		begin = end;
	j->begin = begin;
	j->end = end;
	return r;
}

static int
split(struct walk *w, unsigned stage, struct slice text, bool first,
      enum tokenizer_behavior behavior)
{
	const struct pieces_stage *s = &w->p->stage[stage];
	struct scan_run *run = &w->r->stage[stage].scan;
	bool invert = s->step->flags & STEP_INVERT && s->step->kind != STEP_METASPACE;
	struct join j = {.w = w, .stage = stage, .text = text, .first = first,
			 .behavior = behavior};
	size_t from = 0, begin, end;
	int r = s->step->kind == STEP_SPLIT_REGEX ? scan_begin(&s->scan, run, text) : 0;

	while (r == 0 && w->out->n < w->max_n) {
		r = next_match(w->p, s, run, text, from, &begin, &end);
		if (r < 0)
			gave_up(w, s->step, r);
		if (r <= 0)
			break;
		r = 0;
		if (begin > from)
			r = add_stretch(&j, from, begin, invert);
		if (r == 0 && end > begin)
			r = add_stretch(&j, begin, end, !invert);
		from = end;
	}
	if (r == 0 && from < text.len)
		r = add_stretch(&j, from, text.len, invert);
	return r < 0 ? r : let_go(&j);
}

static int
metaspace(struct walk *w, unsigned stage, struct slice text, bool first)
{
	const struct tokenizer_step *s = w->p->stage[stage].step;
	struct normal_text *to = &w->r->stage[stage].text;
	struct slice mark = {w->p->bytes + s->text, s->text_len};
	bool starts = text.p[0] == ' ' ||
		      (text.len >= mark.len && memcmp(text.p, mark.p, mark.len) == 0);

	int r = 0;

	normal_begin(to, text.len);
	if (!starts && ((s->flags & STEP_ALWAYS) || (first && (s->flags & STEP_FIRST))))
		r = normal_add(to, mark.p, mark.len);
	if (r == 0)
		r = normal_replace(to, text, SLICE_LIT(" "), mark);
	if (r < 0)
		return r;
	text = slice_of(to->p, to->len);
	if (s->flags & STEP_SPLIT)
		return split(w, stage, text, first, BEHAVIOR_NEXT);
	return walk(w, stage + 1, text, first);
}

static int
prefix_space(struct walk *w, unsigned stage, struct slice text, bool first)
{
	struct normal_text *to = &w->r->stage[stage].text;

	if (text.p[0] == ' ')
		return walk(w, stage + 1, text, first);
	normal_begin(to, text.len);
	int r = normal_add(to, " ", 1);

	if (r == 0)
		r = normal_add(to, text.p, text.len);
	return r < 0 ? r : walk(w, stage + 1, slice_of(to->p, to->len), first);
}

static int
walk(struct walk *w, unsigned stage, struct slice text, bool first)
{
	const struct pieces_stage *s = &w->p->stage[stage];
	uint32_t len = (uint32_t)text.len;

	if (text.len == 0 || w->out->n >= w->max_n)
		return 0;
	if (text.len >= UINT32_MAX)          /* a blank made three bytes may come to that */
		return -E2BIG;
	if (stage == w->p->n)
		return bpe_pieces(&w->p->tables, &w->r->bpe, text.p, text.len, &len, 1, w->max_n,
				  w->out);
	if (s->batches)
		return scan_batches(w, stage, text, first);
	switch ((enum tokenizer_step_kind)s->step->kind) {
	case STEP_METASPACE:
		return metaspace(w, stage, text, first);
	case STEP_PREFIX_SPACE:
		return prefix_space(w, stage, text, first);
	default:
		return split(w, stage, text, first, (enum tokenizer_behavior)s->step->behavior);
	}
}

int
pieces_encode(const struct pieces *p, struct pieces_run *r, struct slice text, bool first,
	      size_t max_n, struct ids *out)
{
	struct walk w = {p, r, max_n, out};

	return walk(&w, 0, text, first);
}
