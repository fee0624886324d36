/* tests/unit/test_expression_property.c -- whatever is written: compiled, it says what its tree
 * says. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/expression_naive.h"
#include "tests/random.h"
#include "tests/unit/expressions.h"

#define CASES	5000
#define WORLDS	4

/* Writes expressions of a wanted type, well formed for certain. */
struct writer {
	uint64_t seed;
	char text[EXPRESSION_TEXT_MAX + 1];
	size_t len;
	bool full;
};

static unsigned
below(struct writer *w, unsigned n)
{
	return (unsigned)(random_next(&w->seed) % n);
}

static void
put(struct writer *w, const char *text)
{
	size_t n = strlen(text);

	if (w->len + n > EXPRESSION_TEXT_MAX) {
		w->full = true;
		return;
	}
	memcpy(w->text + w->len, text, n + 1);
	w->len += n;
}

#define ONE_OF(w, ...)                                                                             \
	put(w, ((const char *const[]){__VA_ARGS__})[below(                                         \
		w, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *))])

static void write_bool(struct writer *w, unsigned depth);

static void
write_string(struct writer *w, unsigned depth)
{
	if (depth > 0 && below(w, 6) == 0) {
		put(w, "(");
		write_bool(w, depth - 1);
		put(w, " ? ");
		write_string(w, depth - 1);
		put(w, " : ");
		write_string(w, depth - 1);
		put(w, ")");
		return;
	}
	ONE_OF(w, "'m'", "''", "'a'", "request.model", "request.path", "candidate.name",
	       "candidate.kind", "candidate.pool", "request.headers['x-team']",
	       "request.headers.twice", "request.headers.nobody", "candidate.labels.zone",
	       "candidate.labels['rack']", "candidate.state");
}

/* type: 0 int, 1 uint, 2 double */
static void
write_number(struct writer *w, unsigned depth, unsigned type)
{
	static const char *const convert[] = {"int(", "uint(", "double("};
	unsigned k = below(w, 8);

	if (depth == 0 || k < 3) {
		if (type == 0)
			ONE_OF(w, "0", "1", "-7", "9223372036854775807", "-9223372036854775808",
			       "request.promptTokens", "request.maxTokens", "candidate.waiting",
			       "candidate.running", "candidate.scraped.waiting",
			       "pool['qwen-small'].ready", "pool['qwen-large'].ready",
			       "pool[candidate.pool].ready", "size(request.tags)", "size('ab')");
		else if (type == 1)
			ONE_OF(w, "0u", "3u", "18446744073709551615u", "0xffu");
		else
			ONE_OF(w, "0.0", "0.5", "-2.5", "1e300", "candidate.cachedShare",
			       "candidate.kvUsage", "candidate.cost", "candidate.predictedTTFT",
			       "pool[candidate.pool].kvUsage");
	} else if (k < 6) {
		put(w, "(");
		write_number(w, depth - 1, type);
		if (type == 2)
			ONE_OF(w, " + ", " - ", " * ", " / ");
		else
			ONE_OF(w, " + ", " - ", " * ", " / ", " % ");
		write_number(w, depth - 1, type);
		put(w, ")");
	} else if (k == 6) {
		put(w, convert[type]);
		write_number(w, depth - 1, below(w, 3));
		put(w, ")");
	} else {
		put(w, "(");
		write_bool(w, depth - 1);
		put(w, " ? ");
		write_number(w, depth - 1, type);
		put(w, " : ");
		if (type != 1 && below(w, 2))
			put(w, "-");
		put(w, "(");
		write_number(w, depth - 1, type);
		put(w, "))");
	}
}

static void
write_list(struct writer *w, unsigned depth, unsigned type)
{
	unsigned n = below(w, 5);

	put(w, "[");
	for (unsigned i = 0; i < n; i++) {
		put(w, i ? ", " : "");
		if (type < 3)
			write_number(w, depth, type);
		else
			write_string(w, depth);
	}
	put(w, "]");
}

static void
write_comparison(struct writer *w, unsigned depth)
{
	unsigned type = below(w, 5);

	if (type < 3)
		write_number(w, depth, type);
	else if (type == 3)
		ONE_OF(w, "candidate.name", "request.path", "candidate.model");
	else
		ONE_OF(w, "candidate.predictedTTFT", "duration('1s')", "duration('1500ms')");
	ONE_OF(w, " == ", " != ", " < ", " <= ", " > ", " >= ");
	if (type < 3)
		write_number(w, depth, below(w, 3));
	else if (type == 3)
		write_string(w, depth);
	else
		ONE_OF(w, "duration('1.5s')", "(duration('1s') - duration('1m'))");
}

static void
write_bool(struct writer *w, unsigned depth)
{
	unsigned k = below(w, 12), type;

	if (depth == 0 || k == 0) {
		ONE_OF(w, "true", "false", "request.stream", "'pii' in request.tags",
		       "'simple' in request.tags", "'slow' in request.tags",
		       "candidate.kind == 'Worker'", "'Provider' != candidate.kind",
		       "candidate.state == 'up'", "has(candidate.kvUsage)",
		       "has(candidate.waiting)", "has(request.headers.twice)",
		       "'x-team' in request.headers", "'zone' in candidate.labels");
		return;
	}
	put(w, "(");
	switch (k) {
	case 1: case 2: case 3: case 4:
		write_bool(w, depth - 1);
		ONE_OF(w, " && ", " || ");
		write_bool(w, depth - 1);
		break;
	case 5:
		put(w, "!(");
		write_bool(w, depth - 1);
		put(w, ")");
		break;
	case 6:
		write_bool(w, depth - 1);
		put(w, " ? ");
		write_bool(w, depth - 1);
		put(w, " : ");
		write_bool(w, depth - 1);
		break;
	case 7:
		type = below(w, 4);
		if (type < 3)
			write_number(w, depth - 1, type);
		else
			ONE_OF(w, "'a'", "candidate.name");
		put(w, " in ");
		write_list(w, depth - 1, type);
		break;
	case 8:
		put(w, "[1, 2, ");
		write_number(w, depth - 1, 0);
		put(w, "][");
		write_number(w, depth - 1, 0);
		put(w, "] > 1");
		break;
	case 9:
		write_string(w, depth - 1);
		ONE_OF(w, ".startsWith(", ".endsWith(", ".contains(");
		write_string(w, depth - 1);
		put(w, ")");
		break;
	case 10:
		write_string(w, depth - 1);
		ONE_OF(w, ".matches('a')", ".matches('^(a|b)+$')", ".matches('.')");
		break;
	default:
		write_comparison(w, depth - 1);
	}
	put(w, ")");
}

/* Any of it may be unknown. */
static void
shake(struct world *w, uint64_t *seed)
{
	uint64_t r = random_next(seed);

	world_make(w);
	w->request.tags_unknown = r & 7;
	w->request.tags = r >> 3 & 7;
	w->request.stream = (int8_t)((int)(r >> 6 & 3) % 3 - 1);
	w->candidate.kind = r >> 8 & 1 ? FACTS_CHOICE_UNKNOWN : r >> 9 & 1;
	w->candidate.kv_usage = r >> 10 & 1 ? NAN : 0.5;
	w->candidate.running = r >> 11 & 1 ? FACTS_INT_UNKNOWN : 2;
	w->candidate.waiting = r >> 12 & 1 ? FACTS_INT_UNKNOWN : 9;
	w->candidate.cost = r >> 13 & 1 ? NAN : 0.01;
	w->request.max_tokens = r >> 14 & 1 ? FACTS_INT_UNKNOWN : 100;
	w->candidate.pool_index = r >> 15 & 3;
	if (r >> 17 & 1)
		w->request.head = NULL;
	if (r >> 18 & 1)
		w->candidate.name = (struct slice){0};
	if ((r >> 19 & 7) == 0)
		w->facts.candidate = NULL;
}

static bool
same(const struct expression_value *want, const struct expression *e, const struct facts *f)
{
	double d = expression_number(e, f);
	enum expression_truth t = expression_test(e, f);

	if (want->type == TYPE_UNKNOWN)
		return t == EXPRESSION_UNKNOWN && isnan(d);
	if (want->type == TYPE_BOOL)
		return t == (want->b ? EXPRESSION_YES : EXPRESSION_NO) && d == want->b;
	struct expression_value w = expression_convert(want, TYPE_DOUBLE);

	return (isnan(w.d) && isnan(d)) || w.d == d;
}

Test(expression_property, what_is_compiled_says_what_its_tree_says)
{
	unsigned says[3] = {0}, constants = 0;

	for (uint64_t seed = 1; seed <= CASES; seed++) {
		struct writer w = {.seed = seed};
		bool number = below(&w, 4) == 0;
		enum expression_place place = number ? EXPRESSION_OBJECTIVE : EXPRESSION_CANDIDATE;
		struct expression_tree tree;
		struct expression_error error;
		struct expression *e = NULL;
		uint64_t reads;

		if (number)
			write_number(&w, below(&w, 5), below(&w, 3));
		else
			write_bool(&w, below(&w, 6));
		if (w.full)
			continue;
		struct slice text = slice_of(w.text, w.len);
		int r = expression_compile(text, place, &world_names, &e, &error);

		cr_assert_eq(r, 0, "seed %lu: `%s`: %u %s", seed, w.text, error.offset,
			     error.expected);
		cr_assert_eq(expression_parse(text, &tree, &error), 0);
		cr_assert_eq(expression_check(&tree, place, &world_names, false), 0);
		cr_assert_leq(e->n_steps, 2 * tree.n_nodes);
		constants += (e->result & CONSTANT) != 0;
		reads = expression_reads(e);
		for (unsigned i = 0; i < WORLDS; i++) {
			struct world world;
			struct expression_value want;

			shake(&world, &w.seed);
			want = naive(tree.root, &world.facts);
			cr_assert(same(&want, e, &world.facts), "seed %lu, world %u: `%s`", seed, i,
				  w.text);
			if (!number)
				says[expression_test(e, &world.facts)]++;
			if (reads == 0)
				cr_assert(e->result & CONSTANT || e->n_steps > 0);
		}
		expression_tree_free(&tree);
		expression_free(&e);
	}
	/* and each answer is given often enough to mean something */
	for (unsigned i = 0; i < 3; i++)
		cr_assert_gt(says[i], CASES * WORLDS / 10, "%u of answer %u", says[i], i);
	cr_assert_lt(constants, CASES / 2);
}

/* What it does not say that it reads may change, and nothing follows. */
Test(expression_property, what_it_does_not_read_has_no_part_in_what_it_says)
{
	for (uint64_t seed = 1; seed <= CASES / 4; seed++) {
		struct writer w = {.seed = seed * 7919};
		struct expression_error error;
		struct expression *e = NULL;
		struct world a, b;

		write_bool(&w, 1 + below(&w, 4));
		if (w.full || expression_compile(slice_of(w.text, w.len), EXPRESSION_CANDIDATE,
						 &world_names, &e, &error) < 0)
			continue;
		shake(&a, &w.seed);
		world_make(&b);
		b.request = a.request;
		b.candidate = a.candidate;
		if (!a.facts.candidate)
			b.facts.candidate = NULL;
		for (unsigned i = 0; i < FACTS; i++) {
			const struct fact_row *row = &facts_table()[i];

			if (expression_reads(e) >> i & 1)
				continue;
			if (row->type == FACTS_INT && row->class != FACTS_POOL)
				*(int64_t *)((char *)(row->class == FACTS_OF_REQUEST ?
						      (void *)&b.request :
						      (void *)&b.candidate) + row->offset) = 77;
			if (row->type == FACTS_DOUBLE && row->class != FACTS_POOL)
				*(double *)((char *)&b.candidate + row->offset) = 7.7;
			if (i == FACT_REQUEST_HEADERS)
				b.request.head = NULL;
			if (i == FACT_CANDIDATE_KIND)
				b.candidate.kind = FACTS_CHOICE_UNKNOWN;
		}
		b.request.tags ^= ~expression_tags(e);
		b.request.tags_unknown ^= ~expression_tags(e) & 0xff00;
		cr_assert_eq(expression_test(e, &a.facts), expression_test(e, &b.facts),
			     "seed %lu: `%s`", seed, w.text);
		expression_free(&e);
	}
}
