/* actors/common/prompt/scan_pcre2.c -- any other pattern: PCRE2 over classes; see scan.h.
 *
 * The sets of characters that a pattern names part all characters into few kinds: those that are in
 * the same sets.  A text is first written as one byte for each character, its kind, and PCRE2
 * matches a pattern over kinds.  So it needs no tables of Unicode, nor to know UTF-8, and every
 * class is a bitmap.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <errno.h>
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "actors/common/prompt/scan_parse.h"
#include "actors/common/prompt/scan_private.h"

#define KINDS       256u
#define PAGE        128u
#define PAGES       ((UNICODE_MAX + 1) / PAGE)
#define STACK_MIN   (32u << 10)
#define STACK_MAX   (4u << 20)
#define STEPS       10000000u           /* of one match: some 50 ms */
#define MATCHES     64u                 /* between two looks at the clock */
#define SHORT       4096u               /* bytes */

struct scan_pcre2 {
	pcre2_code *code;               /* owned */
	bool jit;
	uint16_t page[PAGES];
	uint8_t *kind;                  /* owned: pages of kinds */
	size_t n_pages;
};

struct scan_pcre2_room {
	pcre2_match_data *match;        /* owned, all three */
	pcre2_match_context *context;
	pcre2_jit_stack *stack;
};

/* Which sets a kind of characters is in. */
struct member {
	uint64_t bit[SCAN_SETS / 64];
};

struct kinds {
	struct member of[KINDS];
	unsigned n;
};

static int
by_number(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

/* Where a set begins or ends, from 0 to UNICODE_MAX + 1, each once. */
static int
edges_of(const struct scan_parsed *p, uint32_t **ret, size_t *ret_n)
{
	size_t n = 2, k = 0;
	uint32_t *edge;

	for (size_t i = 0; i < p->n_sets; i++)
		n += 2 * p->set[i].n;
	edge = malloc(n * sizeof *edge);
	if (!edge)
		return -ENOMEM;
	n = 0;
	edge[n++] = 0;
	edge[n++] = UNICODE_MAX + 1;
	for (size_t i = 0; i < p->n_sets; i++)
		for (size_t j = 0; j < p->set[i].n; j++) {
			edge[n++] = p->set[i].r[j].first;
			edge[n++] = p->set[i].r[j].last + 1;
		}
	qsort(edge, n, sizeof *edge, by_number);
	for (size_t i = 0; i < n; i++)
		if (i == 0 || edge[i] != edge[k - 1])
			edge[k++] = edge[i];
	*ret = edge;
	*ret_n = k;
	return 0;
}

/* The kind of all characters from each edge to the next. */
static int
kinds_of(const struct scan_parsed *p, const uint32_t *edge, size_t n, uint8_t *kind,
	 struct kinds *kinds)
{
	size_t at[SCAN_SETS] = {0};

	for (size_t i = 0; i + 1 < n; i++) {
		struct member m = {0};
		unsigned k = 0;

		for (size_t s = 0; s < p->n_sets; s++) {
			const struct scan_set *set = &p->set[s];

			while (at[s] < set->n && set->r[at[s]].last < edge[i])
				at[s]++;
			if (at[s] < set->n && set->r[at[s]].first <= edge[i])
				m.bit[s / 64] |= 1ull << s % 64;
		}
		while (k < kinds->n && memcmp(&kinds->of[k], &m, sizeof m) != 0)
			k++;
		if (k == KINDS)
			return -E2BIG;
		kinds->of[k] = m;
		if (k == kinds->n)
			kinds->n++;
		kind[i] = (uint8_t)k;
	}
	return 0;
}

/* Pages of which all characters are of one kind are shared. */
static int
make_pages(struct scan_pcre2 *s, const uint32_t *edge, const uint8_t *kind)
{
	uint16_t whole[KINDS] = {0};    /* page of each kind, plus one */
	uint8_t *all = malloc(UNICODE_MAX + 1);
	size_t i = 0;

	if (!all)
		return -ENOMEM;
	for (uint32_t page = 0; page < PAGES; page++) {
		uint8_t *at = all + s->n_pages * PAGE;
		uint32_t c = page * PAGE, end = c + PAGE;
		bool one;

		while (edge[i + 1] <= c)
			i++;
		one = edge[i + 1] >= end;
		if (one && whole[kind[i]]) {
			s->page[page] = (uint16_t)(whole[kind[i]] - 1);
			continue;
		}
		for (; c < end; c++) {
			i += edge[i + 1] <= c;
			at[c % PAGE] = kind[i];
		}
		s->page[page] = (uint16_t)s->n_pages++;
		if (one)
			whole[kind[i]] = (uint16_t)s->n_pages;
	}
	s->kind = realloc(all, s->n_pages * PAGE);
	if (!s->kind)
		s->kind = all;
	return 0;
}

/* A set as a class of kinds. */
static size_t
print_set(char *out, const struct kinds *kinds, size_t set)
{
	bool in[KINDS + 1] = {false};
	unsigned count = 0;
	size_t len = 0;

	for (unsigned k = 0; k < kinds->n; k++) {
		in[k] = kinds->of[k].bit[set / 64] >> set % 64 & 1;
		count += in[k];
	}
	if (count == 0)
		return (size_t)sprintf(out, "(?!)");
	out[len++] = '[';
	for (unsigned k = 0; k < kinds->n; k++) {
		unsigned first = k;

		if (!in[k])
			continue;
		while (in[k + 1])
			k++;
		len += (size_t)sprintf(out + len, "\\x%02x", first);
		if (k > first)
			len += (size_t)sprintf(out + len, "-\\x%02x", k);
	}
	out[len++] = ']';
	return len;
}

#define CLASS_MAX (2 + 9 * KINDS / 2)

static int
compile(struct scan_pcre2 *s, const struct scan_parsed *p, const struct kinds *kinds,
	const char **why)
{
	size_t cap = 1, len = 0;
	char *text;
	int error;
	size_t where;

	for (size_t i = 0; i < p->len; i++) {
		cap += p->text[i] == SCAN_SET ? CLASS_MAX : 1;
		i += p->text[i] == SCAN_SET;
	}
	text = malloc(cap);
	if (!text)
		return -ENOMEM;
	for (size_t i = 0; i < p->len; i++)
		if (p->text[i] == SCAN_SET)
			len += print_set(text + len, kinds, (uint8_t)p->text[++i]);
		else
			text[len++] = p->text[i];
	s->code = pcre2_compile((PCRE2_SPTR)text, len, PCRE2_NEVER_UTF | PCRE2_NEVER_UCP, &error,
				&where, NULL);
	free(text);
	if (!s->code) {
		*why = error == PCRE2_ERROR_LOOKBEHIND_NOT_FIXED_LENGTH || error == 125
			       ? "a look-behind of varying length"
			       : "more than PCRE2 takes";
		return error == PCRE2_ERROR_NOMEMORY || error == 121 ? -ENOMEM : -EINVAL;
	}
	/* Where memory may not be made executable it is interpreted: slower, and the same. */
	s->jit = pcre2_jit_compile(s->code, PCRE2_JIT_COMPLETE) == 0;
	return 0;
}

int
scan_open_pcre2(struct slice pattern, struct scan *ret, const char **why, size_t *ret_at)
{
	struct scan_parsed *p = calloc(1, sizeof *p);
	struct kinds *kinds = calloc(1, sizeof *kinds);
	struct scan_pcre2 *s = calloc(1, sizeof *s);
	uint32_t *edge = NULL;
	uint8_t *kind = NULL;
	size_t n = 0;
	int r = p && kinds && s ? 0 : -ENOMEM;

	*ret_at = 0;
	if (r == 0)
		r = scan_parse(pattern, p, why, ret_at);
	if (r == 0)
		r = edges_of(p, &edge, &n);
	if (r == 0 && !(kind = malloc(n)))
		r = -ENOMEM;
	if (r == 0 && (r = kinds_of(p, edge, n, kind, kinds)) == -E2BIG) {
		*why = "too many different kinds of characters";
		r = -EINVAL;
	}
	if (r == 0)
		r = make_pages(s, edge, kind);
	if (r == 0)
		r = compile(s, p, kinds, why);
	if (r == 0) {
		*ret = (struct scan){.kind = SCAN_PATTERN, .pcre2 = s};
		s = NULL;
	}
	if (p)
		scan_parsed_free(p);
	free(p);
	free(kinds);
	free(edge);
	free(kind);
	scan_pcre2_close(&s);
	return r;
}

void
scan_pcre2_close(struct scan_pcre2 **ret)
{
	struct scan_pcre2 *s = *ret;

	if (!s)
		return;
	pcre2_code_free(s->code);
	free(s->kind);
	free(s);
	*ret = NULL;
}

static void
room_free(struct scan_pcre2_room *room)
{
	if (!room)
		return;
	pcre2_match_data_free(room->match);
	pcre2_match_context_free(room->context);
	pcre2_jit_stack_free(room->stack);
	free(room);
}

void
scan_pcre2_run_free(struct scan_run *run)
{
	room_free(run->room);
	free(run->classes);
	*run = (struct scan_run){0};
}

static struct scan_pcre2_room *
room_new(void)
{
	struct scan_pcre2_room *room = calloc(1, sizeof *room);

	if (!room)
		return NULL;
	room->match = pcre2_match_data_create(1, NULL);
	room->context = pcre2_match_context_create(NULL);
	room->stack = pcre2_jit_stack_create(STACK_MIN, STACK_MAX, NULL);
	if (!room->match || !room->context) {
		room_free(room);
		return NULL;
	}
	pcre2_set_match_limit(room->context, STEPS);
	if (room->stack)                /* NULL: no JIT here */
		pcre2_jit_stack_assign(room->context, NULL, room->stack);
	return room;
}

/* The thread's CPU time; 0 for short texts, where STEPS are limit enough. */
static uint64_t
cpu_ns(const struct scan_run *run)
{
	struct timespec t;

	if (run->len < SHORT)
		return 0;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

int
scan_pcre2_begin(struct scan_run *run)
{
	const struct scan_pcre2 *s = run->scan->pcre2;
	size_t i = 0, n = 0;

	if (!run->room && !(run->room = room_new()))
		return -ENOMEM;
	if (run->len > run->classes_cap || !run->classes) {
		size_t cap = run->len + run->len / 2 + 256;
		uint8_t *p = realloc(run->classes, cap);

		if (!p)
			return -ENOMEM;
		run->classes = p;
		run->classes_cap = cap;
	}
	while (i < run->len) {
		const uint8_t *ascii = s->kind + (size_t)s->page[0] * PAGE;
		unsigned size;
		uint32_t c;

		while (i < run->len && (uint8_t)run->text[i] < 0x80)
			run->classes[n++] = ascii[(uint8_t)run->text[i++]];
		if (i == run->len)
			break;
		c = unicode_at(run->text + i, run->len - i, &size);
		if (c > UNICODE_MAX)
			c = UNICODE_MAX;
		run->classes[n++] = s->kind[(size_t)s->page[c / PAGE] * PAGE + c % PAGE];
		i += size;
	}
	run->n_classes = n;
	run->from = run->last = run->given = run->pending = 0;
	run->matched = false;
	run->spent_ns = 0;
	run->may_ns = (uint64_t)run->len * SCAN_NS_BYTE + SCAN_NS_MORE;
	return 0;
}

/* One attempt from run->from on.  1, 0, -ETIME, -ENOMEM. */
static int
attempt(struct scan_run *run)
{
	const struct scan_pcre2 *s = run->scan->pcre2;
	struct scan_pcre2_room *room = run->room;
	int r = PCRE2_ERROR_JIT_STACKLIMIT;

	if (s->jit)
		r = pcre2_jit_match(s->code, run->classes, run->n_classes, run->from, 0,
				    room->match, room->context);
	if (r == PCRE2_ERROR_JIT_STACKLIMIT)
		r = pcre2_match(s->code, run->classes, run->n_classes, run->from, PCRE2_NO_JIT,
				room->match, room->context);
	if (r == PCRE2_ERROR_NOMATCH)
		return 0;
	if (r == PCRE2_ERROR_NOMEMORY)
		return -ENOMEM;
	return r < 0 ? -ETIME : 1;
}

/* The next match in characters, as the crate onig walks them: an empty one is none where the last
 * one ended. */
static int
next_match(struct scan_run *run, size_t *ret_begin, size_t *ret_end)
{
	while (run->from <= run->n_classes) {
		const size_t *v;
		int r = attempt(run);

		if (r <= 0) {
			run->from = run->n_classes + 1;
			return r;
		}
		v = pcre2_get_ovector_pointer(run->room->match);
		if (v[0] == v[1] && run->matched && run->last == v[1]) {
			run->from++;
			continue;
		}
		run->from = run->last = v[1];
		run->matched = true;
		*ret_begin = v[0];
		*ret_end = v[1];
		return 1;
	}
	return 0;
}

/* Behind n more characters at byte i. */
static size_t
bytes_on(const struct scan_run *run, size_t i, size_t n)
{
	unsigned size;

	if (run->n_classes == run->len)
		return i + n;
	for (; n > 0; n--, i += size)
		unicode_at(run->text + i, run->len - i, &size);
	return i;
}

static uint32_t
give(struct scan_run *run, size_t n)
{
	size_t off = run->off;

	run->given += n;
	run->off = bytes_on(run, off, n);
	return (uint32_t)(run->off - off);
}

static int
spend(struct scan_run *run, uint64_t since)
{
	run->spent_ns += cpu_ns(run) - since;
	return run->spent_ns > run->may_ns ? -ETIME : 0;
}

ssize_t
scan_pcre2_pieces(struct scan_run *run, uint32_t *ret_len, size_t max)
{
	uint64_t since = cpu_ns(run);
	size_t n = 0;

	if (max > MATCHES)
		max = MATCHES;
	while (n < max && run->given < run->n_classes) {
		size_t begin, end;
		int r;

		if (run->pending) {
			ret_len[n++] = give(run, run->pending);
			run->pending = 0;
			continue;
		}
		r = next_match(run, &begin, &end);
		if (r < 0)
			return r;
		if (r == 0)
			begin = end = run->n_classes;
		run->pending = end - begin;
		if (begin > run->given)
			ret_len[n++] = give(run, begin - run->given);
	}
	return spend(run, since) < 0 ? -ETIME : (ssize_t)n;
}

int
scan_pcre2_match(struct scan_run *run, size_t *ret_begin, size_t *ret_end)
{
	uint64_t since = cpu_ns(run);
	size_t begin, end;
	int r = next_match(run, &begin, &end);

	if (r <= 0)
		return r;
	*ret_begin = bytes_on(run, run->off, begin - run->given);
	*ret_end = bytes_on(run, *ret_begin, end - begin);
	run->off = *ret_end;
	run->given = end;
	return spend(run, since) < 0 ? -ETIME : 1;
}
