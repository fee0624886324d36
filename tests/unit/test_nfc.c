/* Composition as the engines' library makes it: old, and the same to the last mark. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "actors/common/prompt/nfc.h"
#include "actors/common/prompt/unicode.h"

#define HEX_MAX 4096

static struct nfc n;

/* The text in memory of exactly its size, so that a byte too many is seen. */
static struct slice
exact(struct slice text)
{
	char *p = malloc(text.len ? text.len : 1);

	if (text.len)
		memcpy(p, text.p, text.len);
	return slice_of(p, text.len);
}

static void
expect(struct slice in, struct slice want, const char *name)
{
	struct slice copy = exact(in), again;

	cr_assert_eq(nfc_make(&n, copy), 0);
	cr_assert(n.len <= 3 * in.len);
	cr_assert(slice_eq(slice_of(n.text, n.len), want), "%s: %zu bytes, not %zu", name, n.len,
		  want.len);
	cr_assert(!nfc_is(copy) || slice_eq(in, want), "%s: said to be composed", name);
	free((void *)(uintptr_t)copy.p);

	again = exact(want);
	cr_assert_eq(nfc_make(&n, again), 0);
	cr_assert(slice_eq(slice_of(n.text, n.len), want), "%s: not composed yet", name);
	free((void *)(uintptr_t)again.p);
}

static size_t
unhex(const char *hex, char *out)
{
	size_t len = 0;
	unsigned byte;

	for (; sscanf(hex, "%2x", &byte) == 1; hex += 2)
		out[len++] = (char)byte;
	return len;
}

/* Lines "in out" in hex of a program's output, each compared. */
static unsigned
compare_lines(const char *program, const char *argument)
{
	static char line[2 * HEX_MAX + 8], command[8192], in[HEX_MAX], want[HEX_MAX];
	unsigned lines = 0;
	FILE *f;

	snprintf(command, sizeof command, "/usr/bin/python3 -c '%s' %s", program, argument);
	f = popen(command, "r");
	cr_assert(f);
	while (fgets(line, sizeof line, f)) {
		char *space = strchr(line, ' ');

		cr_assert(space && strchr(space, '\n'), "line %u is cut", lines);
		*space = 0;
		size_t n_in = unhex(line, in), n_want = unhex(space + 1, want);

		expect(slice_of(in, n_in), slice_of(want, n_want), line);
		lines++;
	}
	cr_assert_eq(pclose(f), 0);
	return lines;
}

Test(nfc, letters_compose_blocked_ones_do_not_and_marks_are_sorted)
{
	static const struct {
		const char *in, *want;
	} row[] = {
		{"", ""},
		{"plain", "plain"},
		{"e\u0301", "\u00e9"},
		{"\u00e9", "\u00e9"},
		{"\u0301e", "\u0301e"},
		{"a\u0315\u0300", "\u00e0\u0315"},
		{"a\u0323\u0307", "\u1ea1\u0307"},
		{"a\u0307\u0323", "\u1ea1\u0307"},
		{"a\u0300\u0301", "\u00e0\u0301"},
		{"\u212b", "\u00c5"},
		{"\u0958", "\u0915\u093c"},             /* never composed */
		{"\u0915\u093c", "\u0915\u093c"},
		{"\u09c7\u09be", "\u09cb"},             /* two starters */
		{"\u09c7\u0300\u09be", "\u09c7\u0300\u09be"},
		{"\u1112\u1161\u11ab", "\ud55c"},
		{"\ud558\u11ab", "\ud55c"},
		{"\ud55c\u11ab", "\ud55c\u11ab"},
		{"\u1112\u1161\u11a7", "\ud558\u11a7"},
		{"\uf900", "\u8c48"},
		{"\U0002f800", "\u4e3d"},
		{"\U0001d15e", "\U0001d157\U0001d165"},
		{"\u0344", "\u0308\u0301"},
		{"\u03b1\u0345\u0313\u0301", "\u1f84"},
		{"\n\u0301x", "\n\u0301x"},
		/* What Unicode 10 and later brought stays apart. */
		{"\U00011935\U00011930", "\U00011935\U00011930"},
		{"\U00011938", "\U00011938"},
		{"\U000105d2\u0307", "\U000105d2\u0307"},
		{"a\u1abf\u0315\u0334", "a\u1abf\u0334\u0315"},
	};

	for (size_t i = 0; i < sizeof row / sizeof *row; i++)
		expect(slice_str(row[i].in), slice_str(row[i].want), row[i].in);
	nfc_free(&n);
}

Test(nfc, long_texts_keep_what_is_composed_around_what_is_not)
{
	static char in[3 * 1000 + 3], want[3 * 1000 + 2];

	for (unsigned at = 0; at < 1000; at += 7) {
		for (unsigned i = 0; i < 1000; i++) {
			memcpy(in + 3 * i + (i > at ? 3 : 0), i % 3 ? "abc" : "\u4e2d", 3);
			memcpy(want + 3 * i + (i > at ? 2 : 0), i % 3 ? "abc" : "\u4e2d", 3);
		}
		memcpy(in + 3 * at + 3, "e\u0301", 3);
		memcpy(want + 3 * at + 3, "\u00e9", 2);
		expect(slice_of(in, sizeof in), slice_of(want, sizeof want), "long");
	}
	nfc_free(&n);
}

Test(nfc, a_megabyte_of_marks_takes_no_longer_than_a_megabyte)
{
	size_t len = 1 << 20;
	char *text = malloc(len);
	struct timespec cpu;

	for (size_t i = 0; i < len; i += 2)
		memcpy(text + i, i / 2 % 2 ? "\u0315" : "\u0323", 2);
	cr_assert_eq(nfc_make(&n, slice_of(text, len)), 0);
	cr_assert_eq(n.len, len);
	for (size_t i = 0; i < len; i += 2)
		cr_assert(memcmp(n.text + i, i < len / 2 ? "\u0323" : "\u0315", 2) == 0);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
	cr_assert(cpu.tv_sec < 5, "quadratic");
	free(text);
	nfc_free(&n);
}

Test(nfc, bytes_that_are_no_utf8_are_read_within_bounds_and_kept)
{
	static const char *row[] = {"\xff", "e\xcc", "\xe4\xb8", "\xf0\x9f\x98", "a\xcc\x81\xcc",
				    "\xc0\x80", "\x80\x80"};

	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		struct slice copy = exact(slice_str(row[i]));

		nfc_is(copy);
		cr_assert_eq(nfc_make(&n, copy), 0);
		if (i != 4)
			cr_assert(slice_eq(slice_of(n.text, n.len), copy), "row %zu", i);
		free((void *)(uintptr_t)copy.p);
	}
	nfc_free(&n);
}

Test(nfc, every_mark_does_what_the_engines_library_did_with_it)
{
	const char *folder = getenv("PM_TOKENIZERS");
	char path[4096];
	struct stat st;
	static const char program[] =
		"import json, lzma, sys\n"
		"h = lambda cs: \"\".join(map(chr, cs)).encode().hex()\n"
		"for m, made in json.load(lzma.open(sys.argv[1])).items():\n"
		"    print(h([0x61, 0x315, int(m), 0x334]), h(made))\n";

	if (folder)
		snprintf(path, sizeof path, "%s/tables/hf-nfc-ccc-probe.json.xz", folder);
	else
		snprintf(path, sizeof path, "%s/%s", PM_SOURCE_DIR,
			 "../shared/data/tokenizers/tables/hf-nfc-ccc-probe.json.xz");
	if (stat(path, &st) < 0)
		cr_skip_test("no %s: what the engines' library made of each mark was not compared",
			     path);
	cr_assert_eq(compare_lines(program, path), 2501);
	nfc_free(&n);
}

/* Of the characters of Unicode 3.2 only, which both know alike. */
Test(nfc, random_texts_of_old_characters_are_composed_as_python_does)
{
	static const char program[] =
		"import random, unicodedata as u\n"
		"old = u.ucd_3_2_0\n"
		"much = [(0, 0x3400), (0xa000, 0xac40), (0xf900, 0x20000), (0x2f800, 0x2fb00)]\n"
		"cs = [chr(c) for a, z in much for c in range(a, z)]\n"
		"cs = [c for c in cs if old.category(c) != \"Cn\"]\n"
		"nfd = lambda c: u.normalize(\"NFD\", c)\n"
		"apart = [c for c in cs if nfd(c) != c and not 0xac00 <= ord(c) <= 0xd7a3]\n"
		"marks = [c for c in cs if u.combining(c)]\n"
		"first = sorted({nfd(c)[0] for c in apart})\n"
		"last = sorted({x for c in apart for x in nfd(c)[1:]})\n"
		"jamo = [chr(c) for c in [*range(0x1100, 0x1200), *range(0xac00, 0xac40)]]\n"
		"random.seed(6)\n"
		"kinds = [apart, marks, first, last, last, jamo, list(\"ab \\n\"), cs]\n"
		"some = lambda n: [random.choice(random.choice(kinds)) for _ in range(n)]\n"
		"for i in range(10000):\n"
		"    s = \"\".join(some(random.randint(1, 12)))\n"
		"    print(s.encode().hex(), u.normalize(\"NFC\", s).encode().hex())\n"
		"for c in cs:\n"
		"    print(c.encode().hex(), u.normalize(\"NFC\", c).encode().hex())\n";

	cr_assert(compare_lines(program, "") > 20000);
	nfc_free(&n);
}

Test(unicode, utf8_is_told_from_what_is_none_and_where)
{
	static const struct {
		struct slice text;
		long off;                       /* -1: it is */
	} row[] = {
		{SLICE_LIT(""), -1},
		{SLICE_LIT("ascii only, and more than sixteen bytes of it"), -1},
		{SLICE_LIT("\u00e9\u4e2d\U0001f600"), -1},
		{SLICE_LIT("\xf4\x8f\xbf\xbf"), -1},
		{SLICE_LIT("0123456789abcdef\xff"), 16},
		{SLICE_LIT("\xc0\x80"), 0},
		{SLICE_LIT("a\xe0\x9f\xbf"), 1},
		{SLICE_LIT("a\xed\xa0\x80"), 1},
		{SLICE_LIT("\xf4\x90\x80\x80"), 0},
		{SLICE_LIT("\xf0\x8f\xbf\xbf"), 0},
		{SLICE_LIT("\u4e2d\xe4\xb8"), 3},
		{SLICE_LIT("\u4e2d\xe4\xb8 "), 3},
		{SLICE_LIT("\x80"), 0},
	};

	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		struct slice copy = exact(row[i].text);
		size_t off = 99;

		cr_assert_eq(unicode_valid(copy, &off), row[i].off < 0, "row %zu", i);
		cr_assert(row[i].off < 0 || off == (size_t)row[i].off, "row %zu: at %zu", i, off);
		free((void *)(uintptr_t)copy.p);
	}
}

/* Both tables were generated from one list; that neither was cut short is seen here. */
Test(unicode, class_bits_and_ranges_say_the_same_of_every_character)
{
	static const struct {
		const char *name, *or_name;
		uint8_t any;
		size_t count;                   /* as Oniguruma was asked; 0: unknown */
	} row[] = {
		{"L", NULL, UNICODE_LETTER, 141028}, {"Lu", "Lt", UNICODE_UPPER, 0},
		{"Ll", NULL, UNICODE_LOWER, 0},	     {"Lm", "Lo", UNICODE_OTHER, 0},
		{"M", NULL, UNICODE_MARK, 2501},     {"N", NULL, UNICODE_NUMBER, 1911},
		{"s", NULL, UNICODE_SPACE, 25},	     {"P", "S", UNICODE_PUNCT, 855 + 8514},
		{"Han", NULL, UNICODE_HAN, 0},
	};

	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		const struct unicode_property *p = unicode_property(slice_str(row[i].name));
		const struct unicode_property *or = NULL;
		size_t n_in = 0;

		if (row[i].or_name)
			or = unicode_property(slice_str(row[i].or_name));
		cr_assert(p && !or == !row[i].or_name);
		for (uint32_t c = 0; c <= UNICODE_MAX; c++) {
			bool in = unicode_in(p->range, p->n, c) ||
				  (or && unicode_in(or->range, or->n, c));

			n_in += in;
			cr_assert_eq(in, (unicode_class(c) & row[i].any) != 0, "%s: %x", p->name,
				     c);
		}
		cr_assert(row[i].count == 0 || row[i].count == n_in, "%s: %zu", p->name, n_in);
	}
	cr_assert_null(unicode_property(SLICE_LIT("Greek")));
}
