/* Scanners: the pieces that the patterns themselves give. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "actors/common/prompt/scan.h"
#include "tests/nasty_text.h"
#include "tests/scan_oracle.h"

#define SEED 20261201ull

/* Lengths; PCRE2's come in batches. */
static size_t
pieces(const struct scan *s, struct scan_run *run, struct slice text, uint32_t *len, size_t max)
{
	size_t n = 0, sum = 0;
	ssize_t r;

	cr_assert_eq(scan_begin(s, run, text), 0);
	while ((r = scan_pieces(run, len + n, max - n)) > 0)
		n += (size_t)r;
	cr_assert_eq(r, 0);
	for (size_t i = 0; i < n; i++) {
		cr_assert(len[i] > 0);
		sum += len[i];
	}
	cr_assert_eq(sum, text.len);
	return n;
}

/* A text as its pieces, for the eye: a|b|c. */
static const char *
shown(struct slice text, const uint32_t *len, size_t n)
{
	static char out[4][1024];
	static unsigned which;
	char *p = out[which++ % 4];
	size_t at = 0, k = 0;

	for (size_t i = 0; i < n; i++) {
		if (i)
			p[k++] = '|';
		for (uint32_t b = 0; b < len[i] && k < 1000; b++, at++)
			k += (size_t)sprintf(p + k,
					     (uint8_t)text.p[at] < 0x20 ? "\\x%02x" : "%c",
					     (uint8_t)text.p[at]);
	}
	p[k] = 0;
	return p;
}

static size_t
patterns_of(enum scan_kind kind, struct slice ret[3])
{
	size_t n = 0;

	for (; scan_pattern(kind, n); n++)
		ret[n] = slice_str(scan_pattern(kind, n));
	return n;
}

Test(scan, a_pattern_is_known_by_every_byte_of_it)
{
	for (unsigned k = SCAN_PATTERN + 1; k < SCAN_KINDS; k++) {
		enum scan_kind kind = SCAN_PATTERN;
		struct slice p[3];
		size_t n = patterns_of(k, p);

		cr_assert(n == (k == SCAN_DEEPSEEK ? 3 : 1));
		cr_assert(scan_known(p, n, &kind) && kind == k);
		p[n - 1].len--;
		cr_assert_not(scan_known(p, n, &kind));
		cr_assert(n == 1 || !scan_known(p, 1, &kind));
	}
	cr_assert_not(scan_known(NULL, 0, &(enum scan_kind){0}));
}

Test(scan, texts_fall_into_the_pieces_that_the_rules_say)
{
	static const struct {
		enum scan_kind kind;
		const char *text, *want;
	} row[] = {
		{SCAN_GPT2, "Hello, it's 1234  x\n\n a", "Hello|,| it|'s| 1234| | x|\\x0a\\x0a| a"},
		{SCAN_GPT2, "I'LL", "I|'|LL"},
		{SCAN_LLAMA3, "I'LLx 1234567\n \n y", "I|'LL|x| |123|456|7|\\x0a \\x0a| y"},
		{SCAN_LLAMA3, "f(x);\n\n\tg", "f|(x|);\\x0a\\x0a|\\x09g"},
		{SCAN_QWEN2, "a  b   \n c 12", "a| | b|   \\x0a| c| |1|2"},
		{SCAN_QWEN2, "'\u017fx", "'\u017f|x"},
		{SCAN_QWEN2, "x\u0301y", "x|\u0301y"},
		{SCAN_QWEN35, "x\u0301y \u0301 -\u0301", "x\u0301y| \u0301| -|\u0301"},
		{SCAN_O200K, "camelCaseHTTPServer'sX", "camel|Case|HTTPServer's|X"},
		{SCAN_O200K, "\u4e2dABC", "\u4e2d|ABC"},
		{SCAN_O200K, "a.//\n/b 1234", "a|.//\\x0a/|b| |123|4"},
		{SCAN_O200K, "\u0301ABC Abc\u0301D", "\u0301|ABC| Abc\u0301|D"},
		{SCAN_TEKKEN, "it's 12 HELLO", "it|'s| |1|2| HELLO"},
		{SCAN_DEEPSEEK, "x  12345 \u4e2d\u6587a!abc\u00e9",
		 "x|  |123|45| |\u4e2d\u6587|a|!abc|\u00e9"},
		{SCAN_DEEPSEEK, "\u30a2\u30fb\u3042\u3040\u4e2d\u30fb!",
		 "\u30a2|\u30fb|\u3042|\u3040\u4e2d|\u30fb|!"},
		{SCAN_DEEPSEEK, "\x01\x01" "a\x01.", "\\x01|\\x01a|\\x01|."},
		{SCAN_SEED, "f(x);\n 12", "f|(x|);|\\x0a| |1|2"},
		{SCAN_KIMI, "\u4e2d\u6587ABCdef \u4e2d 12", "\u4e2d\u6587|ABCdef| |\u4e2d| |12"},
	};

	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		struct slice text = slice_str(row[i].text);
		struct scan_run run = {0};
		struct scan s;
		uint32_t len[64];
		size_t n;

		scan_open_kind(row[i].kind, &s);
		n = pieces(&s, &run, text, len, 64);
		cr_assert_str_eq(shown(text, len, n), row[i].want);
		scan_run_free(&run);
		scan_close(&s);
	}
}

/* Each of PCRE2's splits inside the one before. */
struct splits {
	struct scan scan[3];
	struct scan_run run[3];
	size_t n;
};

static void
splits_open(struct splits *s, enum scan_kind kind)
{
	struct slice p[3];
	const char *why;
	size_t at;

	*s = (struct splits){.n = patterns_of(kind, p)};
	for (size_t i = 0; i < s->n; i++)
		cr_assert_eq(scan_open_pcre2(p[i], &s->scan[i], &why, &at), 0);
}

static size_t
splits_pieces(struct splits *s, size_t level, struct slice text, uint32_t *len, size_t max)
{
	uint32_t mine[NASTY_MAX];
	size_t n = pieces(&s->scan[level], &s->run[level], text, mine, NASTY_MAX), k = 0;

	for (size_t i = 0; i < n; i++) {
		struct slice part = slice_of(text.p, mine[i]);

		if (level + 1 == s->n)
			len[k++] = mine[i];
		else
			k += splits_pieces(s, level + 1, part, len + k, max - k);
		text.p += mine[i];
	}
	return k;
}

static void
splits_close(struct splits *s)
{
	for (size_t i = 0; i < s->n; i++) {
		scan_run_free(&s->run[i]);
		scan_close(&s->scan[i]);
	}
}

static unsigned
rounds(unsigned few)
{
	const char *many = getenv("PM_SCAN_ROUNDS");    /* for long runs by hand */

	return many ? (unsigned)strtoul(many, NULL, 10) : few;
}

Test(scan, every_scanner_gives_the_pieces_that_pcre2_gives_over_classes)
{
	char text[NASTY_MAX];
	uint32_t mine[NASTY_MAX], theirs[NASTY_MAX];

	for (unsigned kind = SCAN_PATTERN + 1; kind < SCAN_KINDS; kind++) {
		uint64_t state = SEED + kind;
		struct scan_run run = {0};
		struct splits splits;
		struct scan s;

		scan_open_kind(kind, &s);
		splits_open(&splits, kind);
		for (unsigned i = 0, most = rounds(25000); i < most; i++) {
			struct slice t = slice_of(text, nasty_text(&state, i % 4 ? 6 : 32, text));
			size_t n = pieces(&s, &run, t, mine, NASTY_MAX);
			size_t m = splits_pieces(&splits, 0, t, theirs, NASTY_MAX);

			cr_assert(n == m && memcmp(mine, theirs, n * sizeof *mine) == 0,
				  "kind %u: %s\nnot      %s", kind, shown(t, mine, n),
				  shown(t, theirs, m));
		}
		splits_close(&splits);
		scan_run_free(&run);
	}
}

static void
compare_with_oracle(const char *const *pattern, size_t n_patterns, enum scan_kind kind,
		    unsigned most)
{
	struct scan_oracle *o = scan_oracle_new(pattern, n_patterns);
	uint64_t state = SEED ^ 0x6f;
	char text[NASTY_MAX];
	uint32_t mine[NASTY_MAX], theirs[NASTY_MAX];
	struct scan_run run = {0};
	struct scan s;
	const char *why;
	size_t at;

	cr_assert(o, "%s", pattern[0]);
	if (kind == SCAN_PATTERN)
		cr_assert_eq(scan_open(slice_str(pattern[0]), &s, &why, &at), 0, "%s: %s at %zu",
			     pattern[0], why, at);
	else
		scan_open_kind(kind, &s);
	for (unsigned i = 0; i < most; i++) {
		struct slice t = slice_of(text, nasty_text(&state, 8, text));
		size_t n = pieces(&s, &run, t, mine, NASTY_MAX);
		size_t m = scan_oracle_pieces(o, t, theirs, NASTY_MAX);

		cr_assert(n == m && memcmp(mine, theirs, n * sizeof *mine) == 0,
			  "%s:\n%s\nnot %s", pattern[0], shown(t, mine, n), shown(t, theirs, m));
	}
	scan_run_free(&run);
	scan_close(&s);
	scan_oracle_free(o);
}

Test(scan, every_scanner_gives_the_pieces_that_pcre2_gives_over_characters)
{
	for (unsigned kind = SCAN_PATTERN + 1; kind < SCAN_KINDS; kind++) {
		const char *pattern[3];
		size_t n = 0;

		for (; scan_pattern(kind, n); n++)
			pattern[n] = scan_pattern(kind, n);
		compare_with_oracle(pattern, n, kind, rounds(15000));
	}
}

Test(scan, patterns_without_a_scanner_are_matched_as_they_stand)
{
	static const char *const pattern[] = {
		("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,2}"
		 "| ?[^\\s\\p{L}\\p{N}\\r\\n]+|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"),
		"\\p{N}",
		"\\p{N}{1,3}",
		"[^\\p{L}]",
		"\\s+",
		"(?<=\\p{N})(?=\\p{L})|(?<=\\p{L})(?=\\p{N})",
		"(?:a|b)*?s|.{2,3}?t|(?>\\s+)\\p{Lu}",
		"[[a-z][A-Z]]+|[^a-zA-Z\\p{N}]+",
		"\\p{Lu}?\\p{Ll}*(?=\\s)|\\P{L}|[\\x{4e00}-\\x{9fa5}\\u3042]+",
		"",
		"x*",
	};

	for (size_t i = 0; i < sizeof pattern / sizeof *pattern; i++) {
		if (strstr(pattern[i], "[[a-z]")) {
			const char *flat[] = {"[a-zA-Z]+|[^a-zA-Z\\p{N}]+"};

			compare_with_oracle(flat, 1, SCAN_PATTERN, 500);
		} else if (strstr(pattern[i], "\\u3042")) {
			const char *flat[] = {"\\p{Lu}?\\p{Ll}*(?=\\s)|[\\x{4e00}-\\x{9fa5}]+"};

			compare_with_oracle(flat, 1, SCAN_PATTERN, 500);
		} else {
			compare_with_oracle(&pattern[i], 1, SCAN_PATTERN, 500);
		}
	}
}

Test(scan, patterns_said_otherwise_have_the_scanner_of_those_that_match_the_same)
{
	static const struct {
		enum scan_kind kind;
		const char *pattern;
	} row[] = {
		{SCAN_QWEN2, "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}"
			     "| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"},
		{SCAN_GPT2, "'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+"
			    "|\\s+(?!\\S)|\\s+"},
		{SCAN_GPT2, "'(?:[sdmt]|ll|ve|re)| ?\\p{L}++| ?\\p{N}++| ?[^\\s\\p{L}\\p{N}]++"
			    "|\\s++$|\\s+(?!\\S)|\\s"},
	};

	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		enum scan_kind kind = SCAN_PATTERN;
		struct slice p = slice_str(row[i].pattern);

		cr_assert(scan_known(&p, 1, &kind) && kind == row[i].kind, "%s", row[i].pattern);
		compare_with_oracle(&row[i].pattern, 1, kind, rounds(15000));
	}
}

Test(scan, what_only_oniguruma_has_is_matched_as_it_does)
{
	static const struct {
		const char *pattern, *text, *want;
	} row[] = {
		{"[[a-c]x]+", "abxyz", "abx|yz"},
		{"[a-z&&[^aeiou]]+", "strength of", "str|e|ngth| o|f"},
		{"[\\w&&[^\\d]&&[^_]]+", "ab_1cd", "ab|_1|cd"},
		{"[^a&&[ab]]", "abc", "a|b|c"},
		{"\\w+", "a\u00b2b\u00bcc", "a\u00b2b\u00bcc"},
		{"[\\w]+", "a\u00b2b\u00bcc\u2163", "a|\u00b2|b|\u00bc|c\u2163"},
		{"[^\\W]+|[\\W!]+", "a\u00b2!b", "a|\u00b2!|b"},
		{"\\p{^L}+", "ab12cd", "ab|12|cd"},
		{"[\\P{L}]+", "ab12cd", "ab|12|cd"},
		{"^.", "ab\ncd\n", "a|b\\x0a|c|d\\x0a"},
		{".$", "ab\ncd", "a|b|\\x0ac|d"},
		{"d\\Z", "ad\nd\n", "ad\\x0a|d|\\x0a"},
		{"\\Aa", "aa", "a|a"},
		{"\\b", "ab, cd", "ab|, |cd"},
		{"\\Bb", "ab b", "a|b| b"},
		{"a{,2}b", "aaab", "a|aab"},
		{"a{x", "aa{x", "a|a{x"},
		{"(?m).+", "a\nb", "a\\x0ab"},
		{"(?i)K+", "kK\u212ax", "kK\u212a|x"},
		{"(?i:[k-m])+", "kLM\u212ax", "kLM\u212a|x"},
		{"(a)(?<name>b)(?#what)c", "xabcx", "x|abc|x"},
		{"\\h+", "xfF09g", "x|fF09|g"},
		{"\\x41\\x{4e2d}\\u4e2d", "A\u4e2d\u4e2d!", "A\u4e2d\u4e2d|!"},
		{"[\\-\\]a]+", "x-]a", "x|-]a"},
		{"\\d{1,3}(?=(?:\\d{3})*\\b)", "1234567 12", "1|234|567| |12"},
	};

	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		struct slice text = slice_str(row[i].text);
		struct scan_run run = {0};
		struct scan s;
		uint32_t len[64];
		const char *why = "";
		size_t n, at = 0;

		cr_assert_eq(scan_open(slice_str(row[i].pattern), &s, &why, &at), 0, "%s: %s, %zu",
			     row[i].pattern, why, at);
		n = pieces(&s, &run, text, len, 64);
		cr_assert_str_eq(shown(text, len, n), row[i].want, "%s: %s", row[i].pattern,
				 shown(text, len, n));
		scan_run_free(&run);
		scan_close(&s);
	}
}

Test(scan, what_cannot_be_matched_exactly_is_refused_with_reason_and_place)
{
	static const struct {
		const char *pattern, *why;
		size_t at;
	} row[] = {
		{"ab\\p{Greek}", "a property of which there is no table", 5},
		{"\\p{s}", "a property of which there is no table", 3},
		{"(a)\\1", "an escape that is not known here", 5},
		{"\\R", "an escape that is not known here", 2},
		{"a**", "a repeat of a repeat", 2},
		{"a{2}?", "a repeat of a repeat", 4},
		{"a{2,3}+", "a repeat of a repeat", 6},
		{"a{2}{3}", "a repeat of a repeat", 7},
		{"*a", "a repeat of nothing", 0},
		{"(?=a)*", "a repeat of an assertion", 5},
		{"a(?i)b", "options in the middle of a group", 5},
		{"(?x)a", "a group or an option that is not known here", 2},
		{"(?~a)", "a group or an option that is not known here", 2},
		{"[[:alpha:]]", "a POSIX bracket", 1},
		{"[a", "a class without ]", 2},
		{"[]a]", "a class that begins with ]", 1},
		{"[\\d-z]", "a range that begins with a class", 3},
		{"[z-a]", "an empty range", 4},
		{"(a", "a group without )", 2},
		{"a)", "a ) without a group", 1},
		{"(?i:\u00e9)", "a character beyond ASCII where case is ignored", 6},
		{"(?i:[\\p{L}])", "more than ASCII in a class where case is ignored", 11},
		{"(?i:ss)", "letters for which one character may stand where case is ignored", 6},
		{"a{3,2}", "a repeat of more, or the other way round, than is known here", 6},
		{"\\", "nothing behind a backslash", 1},
		{"\\x{110000}", "no character's number", 9},
		{"(?<=a+)b", "a look-behind of varying length", 0},
		{"\xff", "no UTF-8", 1},
		{"((((((((((((((((((((((((((((((((((", "too deep", 33},
	};

	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		struct scan s;
		const char *why = "";
		size_t at = 99;

		cr_assert_eq(scan_open(slice_str(row[i].pattern), &s, &why, &at), -EINVAL, "%s",
			     row[i].pattern);
		cr_assert_str_eq(why, row[i].why, "%s: %s", row[i].pattern, why);
		cr_assert_eq(at, row[i].at, "%s: at %zu", row[i].pattern, at);
	}
}

Test(scan, matches_are_given_for_behaviours_that_drop_or_join_what_lies_between)
{
	static const struct {
		const char *pattern, *text;
		size_t want[8];         /* begins and ends */
	} row[] = {
		{"\\p{N}+", "a\u4e2d12b3", {4, 6, 7, 8}},
		{"\\b", "ab c", {0, 0, 2, 2, 3, 3, 4, 4}},
		{"x*", "\u00e9x", {0, 0, 2, 3}},
	};

	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		struct scan_run run = {0};
		struct scan s;
		size_t begin, end, n = 0, at;
		const char *why;

		cr_assert_eq(scan_open(slice_str(row[i].pattern), &s, &why, &at), 0);
		cr_assert_eq(scan_begin(&s, &run, slice_str(row[i].text)), 0);
		while (scan_match(&run, &begin, &end) == 1) {
			cr_assert(n < 8 && begin == row[i].want[n] && end == row[i].want[n + 1],
				  "%s: %zu %zu", row[i].pattern, begin, end);
			n += 2;
		}
		cr_assert(n == 8 || row[i].want[n] == 0);
		scan_run_free(&run);
		scan_close(&s);
	}
}

Test(scan, a_text_cut_where_scan_cut_says_has_the_pieces_of_the_whole)
{
	char text[NASTY_MAX];
	uint32_t whole[NASTY_MAX], part[NASTY_MAX];
	unsigned cuts = 0;

	for (unsigned kind = SCAN_PATTERN + 1; kind < SCAN_KINDS; kind++) {
		uint64_t state = SEED + 100 + kind;
		struct scan_run run = {0};
		struct scan s;

		scan_open_kind(kind, &s);
		for (unsigned i = 0, most = rounds(60000); i < most; i++) {
			struct slice t = slice_of(text, nasty_text(&state, 12, text));
			size_t n = pieces(&s, &run, t, whole, NASTY_MAX), m = 0, from = 0;

			while (from < t.len) {
				size_t to = scan_cut(kind, t, from);

				cr_assert(to > from && to <= t.len);
				cuts += to < t.len;
				m += pieces(&s, &run, slice_of(t.p + from, to - from), part + m,
					    NASTY_MAX - m);
				from = to;
			}
			cr_assert(n == m && memcmp(whole, part, n * sizeof *whole) == 0,
				  "kind %u: %s\nnot      %s", kind, shown(t, part, m),
				  shown(t, whole, n));
		}
		scan_run_free(&run);
	}
	cr_assert(cuts > 10000, "%u cuts", cuts);
	cr_assert_eq(scan_cut(SCAN_PATTERN, SLICE_LIT("a\nb\nc"), 0), 5);
	cr_assert_eq(scan_cut(SCAN_QWEN2, SLICE_LIT("a\nb\nc"), 0), 2);
	cr_assert_eq(scan_cut(SCAN_QWEN2, SLICE_LIT("a\nb\nc"), 2), 4);
	cr_assert_eq(scan_cut(SCAN_QWEN2, SLICE_LIT("a\nb\n"), 2), 4);
}

Test(scan, bytes_that_are_no_utf8_stay_within_bounds_and_none_is_lost)
{
	uint64_t state = SEED;
	uint32_t len[64];

	for (unsigned kind = SCAN_PATTERN; kind < SCAN_KINDS; kind++) {
		struct scan_run run = {0};
		struct scan s;
		const char *why;
		size_t at;

		if (kind == SCAN_PATTERN)
			cr_assert_eq(scan_open(SLICE_LIT("\\p{L}+|\\s+"), &s, &why, &at), 0);
		else
			scan_open_kind(kind, &s);
		for (unsigned i = 0; i < 5000; i++) {
			size_t size = random_next(&state) % 40;
			char *text = malloc(size ? size : 1);

			for (size_t k = 0; k < size; k++) {
				uint64_t x = random_next(&state);

				text[k] = (char)(x & 0x300 ? x & 0xff : (x & 0x3f) + 0xc0);
			}
			pieces(&s, &run, slice_of(text, size), len, 64);
			free(text);
		}
		scan_run_free(&run);
		scan_close(&s);
	}
}

Test(scan, a_long_text_of_anything_takes_time_by_its_length)
{
	static const char *const unit[] = {"a",	  "A",	   " ",	      "\n",	" \n",	"'",
					   "1",	  "\u00aaA", "\u0301A", "\u4e2d", "\x01", "/\n",
					   "aA",  "\t ",	  "\u3000", "\u2e80", "!A"};
	size_t size = 1 << 18;
	char *text = malloc(size);
	uint32_t *len = malloc(size * sizeof *len);
	struct timespec cpu;

	for (unsigned kind = SCAN_PATTERN + 1; kind < SCAN_KINDS; kind++) {
		struct scan_run run = {0};
		struct scan s;

		scan_open_kind(kind, &s);
		for (size_t u = 0; u < sizeof unit / sizeof *unit; u++) {
			size_t step = strlen(unit[u]), n = 0;

			for (; n + step <= size; n += step)
				memcpy(text + n, unit[u], step);
			pieces(&s, &run, slice_of(text, n), len, size);
		}
		scan_run_free(&run);
	}
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
	cr_assert(cpu.tv_sec < 30, "quadratic");        /* 35 MB; by the square it were hours */
	free(text);
	free(len);
}

Test(scan, a_pattern_that_searches_for_ever_is_stopped)
{
	static const char *const pattern[] = {"(?:a|a)*(?:b|c)", "\\d{1,3}(?=(?:\\d{3})*\\b)"};
	size_t size = 1 << 18;
	char *text = malloc(size);

	for (size_t i = 0; i < 2; i++) {
		struct scan_run run = {0};
		struct scan s;
		uint32_t len[64];
		const char *why;
		size_t at;
		ssize_t r;

		memset(text, i ? '1' : 'a', size);
		cr_assert_eq(scan_open(slice_str(pattern[i]), &s, &why, &at), 0);
		cr_assert_eq(scan_begin(&s, &run, slice_of(text, size)), 0);
		do
			r = scan_pieces(&run, len, 64);
		while (r > 0);
		cr_assert_eq(r, -ETIME, "%zu: %zd", i, r);
		scan_run_free(&run);
		scan_close(&s);
	}
	free(text);
}
