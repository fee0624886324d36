/* tests/unit/test_expression.c -- what expressions are, and what they say. */
#include <criterion/criterion.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/unit/expressions.h"

#define YES	EXPRESSION_YES
#define NO	EXPRESSION_NO
#define UNKNOWN EXPRESSION_UNKNOWN

static struct expression *
compiled(const char *text, enum expression_place place)
{
	struct expression_error error;
	struct expression *e = NULL;
	char say[400];

	if (expression_compile(slice_str(text), place, &world_names, &e, &error) < 0) {
		expression_error_say(&error, say, sizeof say);
		cr_assert_fail("`%s` at %u %s", text, error.offset, say);
	}
	return e;
}

struct says {
	const char *text;
	enum expression_truth is;
};

static void
all_say(const struct says *rows, size_t n)
{
	struct world w;

	world_make(&w);
	for (size_t i = 0; i < n; i++) {
		struct expression *e = compiled(rows[i].text, EXPRESSION_CANDIDATE);
		enum expression_truth is = expression_test(e, &w.facts);

		cr_expect_eq(is, rows[i].is, "`%s` is %d, not %d", rows[i].text, (int)is,
			     (int)rows[i].is);
		expression_free(&e);
	}
}
#define ALL_SAY(rows) all_say(rows, sizeof(rows) / sizeof *(rows))

Test(expression, names_read_the_facts)
{
	static const struct says rows[] = {
		{"request.model == 'm'", YES},
		{"request.tenant != 'initech'", YES},
		{"request.path.startsWith('/v1/')", YES},
		{"'pii' in request.tags", YES},
		{"'simple' in request.tags", NO},
		{"request.promptTokens == 1000", YES},
		{"request.stream", YES},
		{"request.messages > 2 && request.tools == 0", YES},
		{"request.priority < 0", YES},
		{"request.headers['x-team'] == 'blue'", YES},
		{"request.headers['X-TEAM'] == 'blue'", YES},
		{"request.headers['x-empty'] == ''", YES},
		{"'x-team' in request.headers", YES},
		{"'x-other' in request.headers", NO},
		{"has(request.headers.team)", NO},
		{"candidate.kind == 'Worker'", YES},
		{"'Provider' != candidate.kind", YES},
		{"candidate.kind in ['Provider', 'Worker']", YES},
		{"candidate.kind.startsWith('Work')", YES},
		{"candidate.name == 'w1' && candidate.model == 'qwen3'", YES},
		{"candidate.pool == 'qwen-small' && candidate.provider == ''", YES},
		{"candidate.state == 'up' && candidate.cacheState == 'exact'", YES},
		{"candidate.cachedTokens == 700 && candidate.cachedShare == 0.7", YES},
		{"candidate.waiting == 3 && candidate.scraped.waiting == 1", YES},
		{"candidate.pendingTokens >= 5000", YES},
		{"candidate.predictedTTFT == 1.5", YES},
		{"candidate.labels['zone'] == 'eu-1' && candidate.labels.empty == ''", YES},
		{"'zone' in candidate.labels && !('rack' in candidate.labels)", YES},
		{"has(candidate.labels.zone) && !has(candidate.labels['rack'])", YES},
		{"pool['qwen-small'].ready == 3 && pool[\"qwen-small\"].kvUsage < 0.5", YES},
		{"pool[candidate.pool].ready == 3", YES},
		{"has(candidate.waiting) && !has(candidate.kvUsage)", YES},
		{"has(pool['qwen-small'].ready) && !has(pool['qwen-large'].ready)", YES},
	};

	ALL_SAY(rows);
}

/* The table of README.md: what is not known, and what comes of it. */
Test(expression, what_is_not_known_makes_unknown_what_needs_it)
{
	static const struct says rows[] = {
		{"candidate.kvUsage < 0.5", UNKNOWN},
		{"!(candidate.kvUsage < 0.5)", UNKNOWN},
		{"candidate.kvUsage == candidate.kvUsage", UNKNOWN},
		{"candidate.running + 1 > 0", UNKNOWN},
		{"'slow' in request.tags", UNKNOWN},
		{"size(request.tags) == 1", UNKNOWN},
		{"request.maxTokens in [1, 2]", UNKNOWN},
		{"1 in [1, request.maxTokens]", UNKNOWN},
		{"request.headers['twice'] == 'a'", UNKNOWN},
		{"'twice' in request.headers", UNKNOWN},
		{"request.headers['x-other'] == 'a'", UNKNOWN},
		{"candidate.labels.rack == 'a'", UNKNOWN},
		{"pool['qwen-large'].ready == 0", UNKNOWN},
		{"candidate.kvUsage < 0.5 && true", UNKNOWN},
		{"candidate.kvUsage < 0.5 && false", NO},
		{"false && candidate.kvUsage < 0.5", NO},
		{"candidate.kvUsage < 0.5 && candidate.waiting > 9", NO},
		{"candidate.waiting > 9 && candidate.kvUsage < 0.5", NO},
		{"candidate.kvUsage < 0.5 && candidate.waiting > 1", UNKNOWN},
		{"candidate.waiting > 1 && candidate.kvUsage < 0.5", UNKNOWN},
		{"candidate.kvUsage < 0.5 || candidate.waiting > 1", YES},
		{"candidate.waiting > 1 || candidate.kvUsage < 0.5", YES},
		{"candidate.kvUsage < 0.5 || candidate.waiting > 9", UNKNOWN},
		{"candidate.waiting > 9 || candidate.kvUsage < 0.5", UNKNOWN},
		{"candidate.kvUsage < 0.5 ? true : true", UNKNOWN},
		{"request.stream ? candidate.waiting > 1 : candidate.kvUsage < 1.0", YES},
		{"request.stream ? candidate.kvUsage < 1.0 : true", UNKNOWN},
		{"has(candidate.kvUsage) && candidate.kvUsage < 0.5", NO},
	};

	ALL_SAY(rows);
}

Test(expression, without_a_candidate_all_of_it_is_unknown)
{
	struct world w;
	struct expression *e = compiled("candidate.waiting > 1 || candidate.kind == 'Worker' || "
					"candidate.labels.zone == 'a' || "
					"pool[candidate.pool].ready > 0", EXPRESSION_CANDIDATE);

	world_make(&w);
	cr_assert_eq(expression_test(e, &w.facts), YES);
	w.facts.candidate = NULL;
	cr_assert_eq(expression_test(e, &w.facts), UNKNOWN);
	w.facts = (struct facts){0};
	cr_assert_eq(expression_test(e, &w.facts), UNKNOWN);
	expression_free(&e);
}

Test(expression, arithmetic_is_that_of_cel)
{
	static const struct says rows[] = {
		{"7 / 2 == 3 && -7 / 2 == -3 && -7 % 2 == -1", YES},
		{"7.0 / 2.0 == 3.5", YES},
		{"1 + 2 * 3 == 7 && (1 + 2) * 3 == 9 && 10 - 2 - 3 == 5", YES},
		{"1 / 0 == 1", UNKNOWN},
		{"1 % 0 == 1", UNKNOWN},
		{"9223372036854775807 + 1 > 0", UNKNOWN},
		{"-9223372036854775808 - 1 > 0", UNKNOWN},
		{"-(-9223372036854775808) > 0", UNKNOWN},
		{"-9223372036854775808 / -1 > 0", UNKNOWN},
		{"4611686018427387904 * 2 > 0", UNKNOWN},
		{"1u - 2u > 0u", UNKNOWN},
		{"18446744073709551615u + 1u > 0u", UNKNOWN},
		{"1.0 / 0.0 > 1e308 && -1.0 / 0.0 < -1e308", YES},
		{"0.0 / 0.0 == 0.0 / 0.0", NO},
		{"0.0 / 0.0 != 0.0 / 0.0", YES},
		{"0.0 / 0.0 < 1.0 || 0.0 / 0.0 >= 1.0", NO},
		{"1 < 2.5 && 3u > 2 && 1 == 1.0 && 1u == 1", YES},
		{"9007199254740993 > 9007199254740992.0", YES},
		{"18446744073709551615u > -1", YES},
		{"0x10 == 16 && 0x10u == 16u && 010 == 10", YES},
		{"1e3 == 1000.0 && .5 == 0.5 && 1.5e-1 == 0.15", YES},
		{"int(2.9) == 2 && int(-2.9) == -2 && uint(3) == 3u && double(2) == 2.0", YES},
		{"int(1e19) == 0", UNKNOWN},
		{"uint(-1) == 0u", UNKNOWN},
		{"int(18446744073709551615u) == 0", UNKNOWN},
		{"true && !false && !!true && (false || true)", YES},
		{"false < true", YES},
		{"1 in [1.0, 2.0] && 3 in [1, 2, 3] && !(4 in [1, 2, 3]) && !(1 in [])", YES},
		{"[1, 2, 3][1] == 2", YES},
		{"[1, 2, 3][3] == 2", UNKNOWN},
		{"[1, 2, 3][request.messages] == 2", UNKNOWN},
		{"[1, 2, 3][request.messages - 1] == 3", YES},
		{"request.messages in [request.tools, request.messages]", YES},
		{"size([1, request.messages]) == 2 && [].size() == 0", YES},
		{"1 < 2 ? 2 < 1 : 1 < 2", NO},
		{"false ? true : false ? false : true", YES},
	};

	ALL_SAY(rows);
}

Test(expression, texts_are_those_of_cel)
{
	static const struct says rows[] = {
		{"'a' < 'b' && 'a' < 'aa' && 'B' < 'a' && '' < 'a'", YES},
		{"\"it's\" == 'it\\'s' && '\\\"' == \"\\\"\"", YES},
		{"'\\x41\\u00e4\\U0001F600\\101' == 'Aä😀A'", YES},
		{"'\\a\\b\\f\\n\\r\\t\\v\\\\\\?\\`' == "
		 "'\\x07\\x08\\x0c\\x0a\\x0d\\x09\\x0b\\x5c\\x3f\\x60'",
		 YES},
		{"r'a\\n' == 'a\\\\n' && R\"\\\" == '\\\\'", YES},
		{"'''it's \"all\" 'here''' == 'it\\'s \"all\" \\'here'", YES},
		{"\"\"\"two\nlines\"\"\" == 'two\\nlines'", YES},
		{"'äö'.size() == 2 && size('😀') == 1 && size('') == 0", YES},
		{"'abc'.contains('b') && 'abc'.contains('') && !'abc'.contains('cb')", YES},
		{"'abc'.startsWith('ab') && 'abc'.endsWith('bc') && !'abc'.endsWith('ab')", YES},
		{"'a\\x00b'.contains('\\x00') && size('a\\x00b') == 3", YES},
		{"'ab' // of two\n == 'ab' // and the end", YES},
	};

	ALL_SAY(rows);
}

Test(expression, patterns_are_those_of_re2)
{
	static const struct says rows[] = {
		{"'abc'.matches('b')", YES},
		{"'abc'.matches('^b')", NO},
		{"matches('abc', '^a.c$')", YES},
		{"'a\\n'.matches('a$')", NO},
		{"'a\\nb'.matches('a.b')", NO},
		{"'a\\nb'.matches('(?s)a.b')", YES},
		{"'ABC'.matches('(?i)abc') && 'x'.matches('(?i:X)')", YES},
		{"'äbc'.matches('^.bc$') && 'ä'.matches('\\\\p{L}')", YES},
		{"'٣'.matches('\\\\d')", NO},
		{"'aaa'.matches('^a{2,3}?$') && 'x{'.matches('x{')", YES},
		{"'a]b'.matches('a[]x]b') && 'a-b'.matches('a[^]x]b')", YES},
		{"'ab'.matches('^(?P<one>a)(?:b)$')", YES},
		{"'abc'.matches('') && ''.matches('^$')", YES},
	};

	ALL_SAY(rows);
}

Test(expression, durations_and_amounts_have_units)
{
	static const struct says rows[] = {
		{"duration('1m30s') == duration('90s')", YES},
		{"duration('1.5s') > duration('1499ms') && duration('-1s') < duration('0')", YES},
		{"duration('1s') + duration('500ms') == duration('1500ms')", YES},
		{"duration('1s') - duration('2s') == duration('-1s')", YES},
		{"duration('1us') == duration('1000ns') && "
		 "duration('1µs') == duration('1us')", YES},
		{"duration('2562047h') + duration('2562047h') > duration('0s')", UNKNOWN},
		{"candidate.predictedTTFT < duration('2s')", YES},
		{"duration('1s') < candidate.predictedTTFT", YES},
		{"candidate.predictedTTFT == duration('1s') + duration('500ms')", YES},
		{"request.promptTokens < quantity('1Ki') && "
		 "request.promptTokens == quantity('1k')",
		 YES},
		{"quantity('1.5M') == 1500000 && quantity('-2') == -2", YES},
	};

	ALL_SAY(rows);
}

static double
number(const char *text)
{
	struct world w;
	struct expression *e = compiled(text, EXPRESSION_OBJECTIVE);
	double d;

	world_make(&w);
	cr_assert(expression_is_number(e));
	d = expression_number(e, &w.facts);
	expression_free(&e);
	return d;
}

Test(expression, an_objective_is_a_number_and_nan_where_it_is_not_known)
{
	struct world w;
	struct expression *e;

	cr_assert_eq(number("candidate.predictedTTFT * 2.0 + 1.0"), 4.0);
	cr_assert_eq(number("candidate.waiting"), 3.0);
	cr_assert_eq(number("request.promptTokens - candidate.cachedTokens"), 300.0);
	cr_assert_eq(number("'simple' in request.tags ? 1.0 : candidate.cachedShare"), 0.7);
	cr_assert_eq(number("5u"), 5.0);
	cr_assert(isnan(number("candidate.kvUsage")));
	cr_assert(isnan(number("candidate.waiting / 0")));
	cr_assert(isnan(number("0.0 / 0.0")));
	world_make(&w);
	e = compiled("candidate.waiting == 3", EXPRESSION_PREFER);
	cr_assert(!expression_is_number(e));
	cr_assert_eq(expression_number(e, &w.facts), 1.0);
	expression_free(&e);
}

Test(expression, what_it_reads_is_known)
{
	struct expression *e = compiled("candidate.kind == 'Worker' && 'simple' in request.tags && "
					"(true || candidate.cost > 1.0)", EXPRESSION_CANDIDATE);

	cr_assert_eq(expression_reads(e), 1ull << FACT_CANDIDATE_KIND | 1ull << FACT_REQUEST_TAGS);
	cr_assert_eq(expression_tags(e), 2);
	cr_assert(slice_eq_str(expression_text(e), "candidate.kind == 'Worker' && 'simple' in "
						   "request.tags && (true || candidate.cost > "
						   "1.0)"));
	expression_free(&e);
	e = compiled("pool[candidate.pool].kvUsage > 0.5", EXPRESSION_CANDIDATE);
	cr_assert_eq(expression_reads(e),
		     1ull << FACT_CANDIDATE_POOL | 1ull << FACT_POOL_KV_USAGE);
	cr_assert_eq(expression_reads(e) & facts_of(FACTS_DYNAMIC), 0);
	expression_free(&e);
	e = compiled("size(request.tags) > 1", EXPRESSION_WHEN);
	cr_assert_eq(expression_tags(e), UINT64_MAX);
	expression_free(&e);
}

Test(expression, what_reads_no_fact_is_constant)
{
	static const struct says rows[] = {
		{"true", YES}, {"1 > 2", NO}, {"false && candidate.waiting > 1", NO},
		{"candidate.waiting > 1 && false", NO}, {"candidate.waiting > 1 || true", YES},
		{"true ? 'a' == 'a' : request.stream", YES}, {"1 in [1, 2]", YES},
		{"'abc'.contains('b') && duration('1s') < duration('2s')", YES},
		{"1 / 0 > 1", UNKNOWN}, {"1 / 0 > 1 && false", NO},
		{"candidate.waiting > 1", UNKNOWN}, {"has(candidate.cost)", UNKNOWN},
	};

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct expression *e = compiled(rows[i].text, EXPRESSION_CANDIDATE);

		cr_expect_eq(expression_constant(e), rows[i].is, "%s", rows[i].text);
		expression_free(&e);
	}
}

/* ---- what is refused, and how ---- */

struct refused {
	enum expression_place place;
	const char *text;
	unsigned offset;
	const char *says;
};
#define W EXPRESSION_WHEN
#define C EXPRESSION_CANDIDATE
#define O EXPRESSION_OBJECTIVE
#define P EXPRESSION_PREFER
#define T EXPRESSION_TAG

static const struct refused refusals[] = {
	/* names */
	{C, "candidate.waitng > 2", 0,
	 "has 'candidate.waitng', expected a name; did you mean 'candidate.waiting'?"},
	{C, "candidate.WAITING > 2", 0,
	 "has 'candidate.WAITING', expected a name; did you mean 'candidate.waiting'?"},
	{C, "waiting > 2", 0, "has 'waiting', expected a name; did you mean 'candidate.waiting'?"},
	{C, "candidate.queue > 2", 0, "has 'candidate.queue', expected a name of the candidate"},
	{W, "request.foo", 0, "has 'request.foo', expected a name of the request"},
	{C, "cost > 1.0 && true", 0, "has 'cost', expected a name; did you mean 'candidate.cost'?"},
	{C, "Worker", 0,
	 "has 'Worker', expected a name: request. ..., candidate. ... or pool['NAME']. ...; a "
	 "text is in quotes"},
	{C, "request", 0, "has 'request', expected one of its values, such as request.model"},
	{C, "requst == 1", 0,
	 "has 'requst', expected a name: request. ..., candidate. ... or pool['NAME']. ...; a "
	 "text is in quotes; did you mean 'request'?"},
	{C, "candidate == 1", 0,
	 "has 'candidate', expected one of its values, such as candidate.pool"},
	{C, "pool", 0, "has 'pool', expected pool['NAME'].ready, .waiting or .kvUsage"},
	{W, "ready > 1", 0, "has 'ready', expected a name; did you mean 'pool['NAME'].ready'?"},
	{W, "candidate.waiting > 2", 0,
	 "has 'candidate.waiting', expected a name of the request or a pool: here is no "
	 "candidate yet"},
	{T, "'pii' in request.tags", 9,
	 "has 'request.tags', expected a name of the request, not its tags: here tags are made"},
	{W, "pool['qwen-smal'].ready > 1", 5,
	 "has 'qwen-smal', expected the name of an InferencePool; did you mean 'qwen-small'?"},
	{W, "pool.other.ready > 1", 0, "has 'pool.other', expected the name of an InferencePool"},
	{W, "pool['qwen-small'].redy > 1", 0,
	 "has 'pool['qwen-small'].redy', expected ready, waiting or kvUsage of a pool; did you "
	 "mean 'ready'?"},
	{W, "pool['qwen-small']", 0,
	 "has 'pool['qwen-small']', expected its .ready, .waiting or .kvUsage"},
	{W, "pool[request.model].ready > 1", 5,
	 "has 'request.model', expected a pool's name in quotes, or candidate.pool"},
	{W, "pool[candidate.pool].ready > 1", 5,
	 "has 'candidate.pool', expected a name of the request or a pool: here is no candidate "
	 "yet"},
	{W, "'simpel' in request.tags", 0,
	 "has 'simpel', expected the name of a RequestTag; did you mean 'simple'?"},
	{W, "request.model in request.tags", 0,
	 "has 'request.model', expected a tag's name in quotes"},
	{C, "candidate.kind == 'Providr'", 18,
	 "has 'Providr', expected one of Worker, Provider; did you mean 'Provider'?"},
	{C, "'worker' == candidate.kind", 0,
	 "has 'worker', expected one of Worker, Provider; did you mean 'Worker'?"},
	{C, "candidate.state in ['up', 'ok']", 26,
	 "has 'ok', expected one of absent, draining, down, suspect, unproven, up, disabled"},
	{C, "candidate.pool == 'qwen'", 18, "has 'qwen', expected the name of an InferencePool"},
	{C, "candidate.provider == 'bedrock'", 22,
	 "has 'bedrock', expected the name of an InferenceProvider"},
	{C, "request.tenant != 'acmee'", 18,
	 "has 'acmee', expected the name of an InferenceTenant; did you mean 'acme'?"},
	{C, "request.model in ['standart-model']", 18,
	 "has 'standart-model', expected a model that clients may say; did you mean "
	 "'standard-model'?"},
	{W, "request.headers[request.model] == 'a'", 16,
	 "has 'request.model', expected a name in quotes"},
	{W, "request.headers[''] == 'a'", 16,
	 "has '', expected the name of a header field"},
	{W, "has(request.model.size())", 4,
	 "has 'request.model.size()', expected a name: has() asks whether its value is known"},
	{W, "has(request.tags)", 4,
	 "has 'request.tags', expected one value of it, not a set of tags"},
	{W, "request.model.foo == 1", 0, "has 'request.model.foo', expected a name of the request"},
	{W, "'a'.foo == 1", 0, "has 'a'.foo, expected no '.foo' of a string"},
	/* types */
	{C, "candidate.waiting", 0, "has 'candidate.waiting', expected a bool, not an int"},
	{W, "request.model", 0, "has 'request.model', expected a bool, not a string"},
	{O, "candidate.kind", 0, "has 'candidate.kind', expected a number, not a string"},
	{O, "candidate.waiting > 1", 0,
	 "has 'candidate.waiting > 1', expected a number, not a bool"},
	{O, "duration('1s')", 0, "has 'duration('1s')', expected a number, not a duration"},
	{P, "candidate.name", 0, "has 'candidate.name', expected a number or a bool, not a string"},
	{C, "candidate.waiting && true", 0, "has 'candidate.waiting', expected a bool, not an int"},
	{C, "true || 1", 8, "has '1', expected a bool, not an int"},
	{C, "!candidate.waiting", 1, "has 'candidate.waiting', expected a bool, not an int"},
	{C, "candidate.waiting > 1.0 + 1", 20,
	 "has '1.0 + 1', expected two numbers of one type, not a double and an int: double(...) "
	 "makes one"},
	{C, "candidate.waiting == '2'", 0,
	 "has 'candidate.waiting == '2'', expected two of one type, not an int and a string"},
	{C, "candidate.waiting < duration('2s')", 0,
	 "has 'candidate.waiting < duration('2s')', expected two of one type, not an int and a "
	 "duration"},
	{C, "'a' + 'b' == 'ab'", 0, "has 'a', expected a number or a duration, not a string"},
	{C, "1.5 % 2.0 == 1.0", 0, "has '1.5', expected an int or a uint, not a double"},
	{C, "duration('1s') * 2 == 2", 0,
	 "has 'duration('1s')', expected a number, not a duration"},
	{C, "-request.model == 'a'", 1,
	 "has 'request.model', expected an int or a double, not a string"},
	{C, "-1u == 0u", 1, "has '1u', expected an int or a double, not a uint"},
	{C, "1 in 2", 5, "has '2', expected a list, request.tags, or a map, not an int"},
	{C, "'a' in [1]", 0,
	 "has 'a' in [1], expected one type on both sides of `in`, not a string and an int"},
	{C, "1 in ['a']", 0,
	 "has '1 in ['a']', expected one type on both sides of `in`, not an int and a string"},
	{C, "1 in [1, 'a']", 9, "has 'a', expected an int, as the first of the list, not a string"},
	{C, "1 in [[1]]", 6, "has '[1]', expected one value, not a list"},
	{C, "[1] == [1]", 0, "has '[1]', expected one value to compare, not a list: ask with `in`"},
	{C, "request.tags == 'pii'", 0,
	 "has 'request.tags', expected one value to compare, not a set of tags: ask with `in`"},
	{C, "1[0] == 1", 0, "has '1', expected a list, not an int"},
	{C, "[][0] == 1", 0, "has '[]', expected a list with something in it"},
	{C, "[1]['a'] == 1", 4, "has 'a', expected an int, not a string"},
	{C, "true ? 1 : 'a'", 11, "has 'a', expected an int, as before the ':', not a string"},
	{C, "1 ? true : false", 0, "has '1', expected a bool, not an int"},
	{C, "true ? [1] : [2]", 7, "has '[1]', expected one value, not a list"},
	{C, "1 < 2 < 3", 0, "has '1 < 2 < 3', expected two of one type, not a bool and an int"},
	/* functions */
	{C, "request.model.startWith('a')", 0,
	 "has 'request.model.startWith('a')', expected a method: size(), startsWith(), "
	 "endsWith(), contains() or matches(); did you mean 'startsWith'?"},
	{C, "startsWith('a', 'b')", 0,
	 "has 'startsWith('a', 'b')', expected a function: has(), size(), matches(), "
	 "duration(), quantity(), int(), uint() or double()"},
	{C, "'a'.startsWith()", 0,
	 "has 'a'.startsWith(), expected startsWith(...), with one operand"},
	{C, "'a'.size(1) == 1", 0, "has 'a'.size(1), expected size(), without operands"},
	{C, "size() == 1", 0, "has 'size()', expected size(...), with one operand"},
	{C, "matches('a')", 0, "has 'matches('a')', expected matches(text, pattern)"},
	{C, "'a'.startsWith(1)", 15, "has '1', expected a string, not an int"},
	{C, "1.5.startsWith('a')", 0, "has '1.5', expected a string, not a double"},
	{C, "'a'.matches(request.model)", 12, "has 'request.model', expected a pattern in quotes"},
	{C, "size(1) == 1", 5, "has '1', expected a string, a list or request.tags, not an int"},
	{W, "size(request.messages) > 1", 5,
	 "has 'request.messages', expected a string, a list or request.tags: this is a number "
	 "already"},
	{W, "duration('2') < duration('1s')", 9,
	 "has '2', expected a duration such as '2s', '1m30s' or '250ms'"},
	{W, "duration(request.model) < duration('1s')", 9,
	 "has 'request.model', expected a duration such as '2s' in quotes"},
	{W, "request.promptTokens > quantity('1.5')", 32,
	 "has '1.5', expected a whole amount such as '500', '64k', '8Ki' or '1.5M'"},
	{W, "int('1') == 1", 4, "has '1', expected a number, not a string"},
	/* patterns */
	{W, "'a'.matches('(a')", 12,
	 "has '(a', expected a pattern of RE2: at its byte 2 it cannot be read: missing closing "
	 "parenthesis"},
	{W, "'a'.matches('(?=a)')", 12,
	 "has '(?=a)', expected a pattern of RE2: at its byte 0 it has a group that RE2 does "
	 "not know (it does not look ahead or behind)"},
	{W, "'a'.matches('(?<=a)b')", 12,
	 "has '(?<=a)b', expected a pattern of RE2: at its byte 0 it looks behind"},
	{W, "'a'.matches(r'(a)\\1')", 12,
	 "has 'r'(a)\\1'', expected a pattern of RE2: at its byte 3 it refers back"},
	{W, "'a'.matches('a++')", 12,
	 "has 'a++', expected a pattern of RE2: at its byte 2 it repeats a repetition"},
	{W, "'a'.matches('(*ACCEPT)')", 12,
	 "has '(*ACCEPT)', expected a pattern of RE2: at its byte 0 it has a verb"},
	{W, "'a'.matches(r'\\K')", 12,
	 "has 'r'\\K'', expected a pattern of RE2: at its byte 0 it has an escape that RE2 does "
	 "not know"},
	/* grammar */
	{C, "", 0, "has the end, expected a name, a value or '('"},
	{C, "// nothing", 10, "has the end, expected a name, a value or '('"},
	{C, "candidate.waiting > 2 &&", 24, "has the end, expected a name, a value or '('"},
	{C, "(candidate.waiting > 2", 22, "has the end, expected ')'"},
	{C, "candidate.waiting > 2)", 21, "has ')', expected no ')' without a '(' before it"},
	{C, "candidate.kind = 'Worker'", 15,
	 "has '=', expected a name, a value or an operator; did you mean '=='?"},
	{C, "true & false", 5,
	 "has '&', expected a name, a value or an operator; did you mean '&&'?"},
	{C, "true and false", 5, "has 'and', expected an operator, or the end"},
	{C, "not true", 4, "has 'true', expected an operator, or the end"},
	{C, "candidate.cachedShare > 0,5", 25, "has ',', expected an operator, or the end"},
	{C, "candidate.predictedTTFT < 2s", 26,
	 "has '2s', expected a number; a text is in quotes, a time duration('2s'), an amount "
	 "quantity('64k')"},
	{C, "true ? false", 12, "has the end, expected ':'"},
	{C, "candidate. > 1", 11, "has '>', expected a name"},
	{C, "[1, 2", 5, "has the end, expected ',' or ']'"},
	{C, "size('a',) == 1", 9, "has ')', expected a value"},
	{C, "candidate.cost == null", 18,
	 "has 'null', expected a value: nothing is null here, ask has(NAME)"},
	{C, "{'a': 1}", 0,
	 "has '{', expected no map: the subset of CEL that is read here has none"},
	{C, "b'a' == b'a'", 0,
	 "has 'b'', expected no bytes: the subset of CEL that is read here has none"},
	{C, "'abc", 4, "has the end, expected the end of the text that began at offset 0"},
	{C, "'a\nb'", 2, "has 'end of line', expected the end of the text that began at offset 0"},
	{C, "'\\q' == 'q'", 1,
	 "has '\\q', expected an escape (\\n, \\t, \\\\, \\', \\xHH, \\uHHHH), or r'...' for a "
	 "text without escapes"},
	{C, "'\\x4' == 'q'", 1, "has '\\x4'', expected 2 hexadecimal digits"},
	{C, "'\\400' == 'q'", 1,
	 "has '\\4', expected an escape (\\n, \\t, \\\\, \\', \\xHH, \\uHHHH), or r'...' for a "
	 "text without escapes"},
	{C, "'\\108' == 'q'", 1, "has '\\108', expected three octal digits"},
	{C, "'\\ud800' == 'q'", 1, "has '\\ud800', expected a character of Unicode"},
	{C, "'\xff' == 'q'", 1, "has 'a stray byte', expected UTF-8"},
	{C, "\x01", 0, "has 'a stray byte', expected a name, a value or an operator"},
	{C, "9223372036854775808 > 1", 0,
	 "has '9223372036854775808', expected an int, which ends at 9223372036854775807"},
	{C, "-9223372036854775809 > 1", 0,
	 "has '-9223372036854775809', expected an int, which ends at -9223372036854775808"},
	{C, "18446744073709551616u > 1u", 0,
	 "has '18446744073709551616u', expected a number of at most 64 bits"},
	{C, "0x > 1", 0, "has '0x ', expected hexadecimal digits"},
	{C, "1e999 > 1.0", 0, "has '1e999', expected a double"},
};

Test(expression, what_is_refused_is_named_with_what_was_expected)
{
	for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
		const struct refused *row = &refusals[i];
		struct expression_error error;
		struct expression *e = NULL;
		char say[400];
		int r = expression_compile(slice_str(row->text), row->place, &world_names, &e,
					   &error);

		cr_expect_eq(r, -EINVAL, "`%s` was taken", row->text);
		cr_expect_null(e);
		if (r == -EINVAL) {
			expression_error_say(&error, say, sizeof say);
			cr_expect_str_eq(say, row->says, "`%s`\nsays    %s\nwanted  %s", row->text,
					 say, row->says);
			cr_expect_eq(error.offset, row->offset, "`%s` at %u", row->text,
				     error.offset);
		}
		expression_free(&e);
	}
}

Test(expression, names_that_no_document_has_are_only_checked_where_there_is_a_list)
{
	static const struct expression_names none = {0};
	struct expression_error error;
	struct expression *e = NULL;

	cr_assert_eq(expression_compile(SLICE_LIT("request.tenant == 'x' && candidate.pool == 'y' "
						  "&& candidate.provider in ['z']"),
					C, &none, &e, &error), 0);
	expression_free(&e);
	cr_assert_eq(expression_compile(SLICE_LIT("'x' in request.tags"), C, &none, &e, &error),
		     -EINVAL);
	cr_assert_eq(expression_compile(SLICE_LIT("pool['x'].ready > 0"), C, &none, &e, &error),
		     -EINVAL);
}

/* ---- hostile texts ---- */

static int
try(const char *text, size_t len, char say[400])
{
	struct expression_error error;
	struct expression *e = NULL;
	int r = expression_compile(slice_of(text, len), C, &world_names, &e, &error);

	if (r == -EINVAL)
		expression_error_say(&error, say, 400);
	expression_free(&e);
	return r;
}

static char *
repeated(const char *what, size_t n, const char *end)
{
	size_t len = strlen(what);
	char *text = malloc(len * n + strlen(end) + 1);

	cr_assert(text);
	for (size_t i = 0; i < n; i++)
		memcpy(text + i * len, what, len);
	strcpy(text + len * n, end);
	return text;
}

Test(expression, hostile_texts_are_refused_and_cost_little)
{
	static const struct {
		const char *what;
		size_t n;
		const char *end, *says;
	} rows[] = {
		{"x", 1 << 20, "", "at most 4096 bytes"},
		{"(", 10000, "", "at most 4096 bytes"},
		{"(", 4000, "", "at most 64 levels of nesting"},
		{"[", 4000, "", "at most 64 levels of nesting"},
		{"!", 4000, "true", "at most 64 levels of nesting"},
		{"-", 4000, "1 > 1", "at most 64 levels of nesting"},
		{"size(", 800, "", "at most 64 levels of nesting"},
		{"a[", 2000, "", "at most 64 levels of nesting"},
		{"true?", 800, "", "expected"},
		{"true?true:", 400, "true", "at most 64 levels of nesting"},
		{"1+", 2000, "1>1", "at most 512 operators in a row"},
		{"true||", 600, "true", "at most 512 operators in a row"},
		{"a.", 2000, "b", "at most 512 operators in a row"},
		{"a", 4000, "", "expected a name"},
		{"request.model.matches('a')||", 33, "request.stream", "at most 32 patterns"},
		{"request.tools in[request.tools", 1, ",1,1,1,1]", ""},
	};

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		char *text = repeated(rows[i].what, rows[i].n, rows[i].end), say[400] = "";
		int r = try(text, strlen(text), say);

		cr_expect_eq(r, rows[i].says[0] ? -EINVAL : 0, "%.40s", text);
		cr_expect(strstr(say, rows[i].says), "%.40s: %s", text, say);
		free(text);
	}
}

Test(expression, a_list_of_more_values_than_registers_is_refused_and_of_literals_is_not)
{
	char say[400] = "";
	char *text = repeated("1,", 1900, "1]");
	char whole[4096];

	snprintf(whole, sizeof whole, "request.tools in [%s", text);
	cr_assert_eq(try(whole, strlen(whole), say), 0);
	free(text);
	text = repeated("1,", 200, "request.tools]");
	snprintf(whole, sizeof whole, "request.tools in [%s", text);
	cr_assert_eq(try(whole, strlen(whole), say), -EINVAL);
	cr_assert(strstr(say, "fewer values at once"), "%s", say);
	free(text);
}

Test(expression, bytes_that_are_no_text_are_refused)
{
	char say[400] = "";

	cr_assert_eq(try("true\0", 5, say), -EINVAL);
	cr_assert_eq(try("'a\0' == 'b'", 11, say), 0);
	cr_assert_eq(try("'\xed\xa0\x80' == ''", 11, say), -EINVAL);
	cr_assert_eq(try("'\xc0\x80' == ''", 10, say), -EINVAL);
	cr_assert_eq(try("'\xf4\x90\x80\x80' == ''", 12, say), -EINVAL);
	cr_assert_eq(try("'\xe2\x82", 3, say), -EINVAL);
}

Test(expression, a_pattern_that_would_run_for_ever_is_unknown_instead)
{
	static char subject[32768];
	struct world w;
	struct timespec before, after;
	struct expression *e = compiled("request.headers['x-team'].matches('^(a+)+$') || "
					"request.headers['x-team'].matches('(.*)*(.*)*b$')", W);
	double s;

	world_make(&w);
	memset(subject, 'a', sizeof subject);
	subject[sizeof subject - 1] = '!';
	w.head.headers[0].value = slice_of(subject, sizeof subject);
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
	cr_assert_eq(expression_test(e, &w.facts), UNKNOWN);
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
	s = (double)(after.tv_sec - before.tv_sec) + (double)(after.tv_nsec - before.tv_nsec) / 1e9;
	cr_assert_lt(s, 0.5, "took %g s of processor time", s);
	expression_free(&e);
}

Test(expression, a_header_that_is_no_utf_8_is_matched_all_the_same)
{
	struct world w;
	struct expression *e = compiled("request.headers['x-team'].matches('^b.*e$') || "
					"request.headers['x-team'].matches('lu')", W);

	world_make(&w);
	w.head.headers[0].value = SLICE_LIT("b\xff\xfelu\xff\x65");
	cr_assert_eq(expression_test(e, &w.facts), YES);
	w.head.headers[0].value = slice_of("", 0);
	cr_assert_eq(expression_test(e, &w.facts), NO);
	expression_free(&e);
}

/* As etc/README.md has it. */
static void
write_table(FILE *f)
{
	static const struct {
		enum facts_class of;
		const char *changes;
	} classes[] = {
		{FACTS_OF_REQUEST, "request"}, {FACTS_OF_TAGS, "request"},
		{FACTS_STATIC, "documents"}, {FACTS_POOL, "readings"}, {FACTS_DYNAMIC, "readings"},
	};
	static const char *const types[] = {
		[FACTS_BOOL] = "bool", [FACTS_INT] = "int", [FACTS_DOUBLE] = "double",
		[FACTS_STRING] = "string", [FACTS_TAGS] = "tags", [FACTS_HEADERS] = "map",
		[FACTS_LABELS] = "map",
	};

	fprintf(f, "| name | type | unit | changes with | meaning |\n"
		   "| --- | --- | --- | --- | --- |\n");
	for (unsigned i = 0; i < FACTS; i++) {
		const struct fact_row *row = &facts_table()[i];
		const char *changes = "";

		for (unsigned k = 0; k < sizeof classes / sizeof *classes; k++)
			if (row->class == classes[k].of)
				changes = classes[k].changes;
		if (row->class == FACTS_POOL)
			fprintf(f, "| `pool['NAME'].%s` | ", strrchr(row->name, '.') + 1);
		else
			fprintf(f, "| `%s` | ", row->name);
		if (row->choice)
			fprintf(f, "one of");
		else
			fprintf(f, "%s", types[row->type]);
		for (unsigned k = 0; row->choice && strcmp(row->choice(k), "unknown") != 0; k++)
			fprintf(f, "%s `%s`", k ? "," : "", row->choice(k));
		fprintf(f, " | %s | %s | %s |\n", row->unit, changes, row->doc);
	}
}

Test(expression, the_readme_lists_the_facts_as_the_table_has_them)
{
	char *want, *readme = NULL;
	size_t n_want, cap = 0;
	FILE *f = open_memstream(&want, &n_want);

	cr_assert(f);
	write_table(f);
	fclose(f);
	f = fopen(PM_SOURCE_DIR "/etc/README.md", "r");
	cr_assert(f);
	cr_assert_gt(getdelim(&readme, &cap, '\0', f), 0);
	fclose(f);
	cr_assert(strstr(readme, want), "etc/README.md lacks this table:\n%s", want);
	free(readme);
	free(want);
}

Test(expression, the_table_of_facts_has_a_name_a_unit_and_a_place_for_each)
{
	for (unsigned i = 0; i < FACTS; i++) {
		const struct fact_row *row = &facts_table()[i];

		cr_assert(row->name && row->unit && row->doc);
		cr_assert(strchr(row->name, '.'));
		cr_assert(row->class);
		cr_assert_eq(row->type == FACTS_CHOICE, row->choice != NULL, "%s", row->name);
		for (unsigned j = 0; j < i; j++)
			cr_assert_str_neq(row->name, facts_table()[j].name);
	}
}
