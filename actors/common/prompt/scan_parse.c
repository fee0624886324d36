/* actors/common/prompt/scan_parse.c -- read a pattern; see scan_parse.h. */
#include "actors/common/prompt/scan_parse.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REPEAT_MAX 65535u               /* PCRE2's */

struct flags {
	bool fold;                      /* (?i) */
	bool dot_all;                   /* (?m), Ruby's: a dot is a line feed too */
};

struct parse {
	struct scan_parsed *out;        /* borrowed */
	const char *start, *p, *end;
	struct flags flags;
	uint32_t before;                /* (?i): the letter just read, 0: none */
	unsigned depth;
	const char *why;
};

static int alternatives(struct parse *in);

static int
refuse(struct parse *in, const char *why)
{
	in->why = why;
	return -EINVAL;
}

static int
say(struct parse *in, const char *text, size_t len)
{
	struct scan_parsed *out = in->out;

	if (len > out->cap - out->len) {
		size_t cap = 2 * out->cap + len + 256;
		char *p = realloc(out->text, cap);

		if (!p)
			return -ENOMEM;
		out->text = p;
		out->cap = cap;
	}
	memcpy(out->text + out->len, text, len);
	out->len += len;
	return 0;
}

static int
say_str(struct parse *in, const char *text)
{
	return say(in, text, strlen(text));
}

/* Takes the set. */
static int
say_set(struct parse *in, struct scan_set *set)
{
	struct scan_parsed *out = in->out;
	size_t i = 0;
	char marker[2];

	while (i < out->n_sets && !set_eq(&out->set[i], set))
		i++;
	if (i == SCAN_SETS) {
		set_free(set);
		return refuse(in, "too many different sets of characters");
	}
	if (i == out->n_sets)
		out->set[out->n_sets++] = *set;
	else
		set_free(set);
	*set = (struct scan_set){0};
	marker[0] = SCAN_SET;
	marker[1] = (char)i;
	return say(in, marker, 2);
}

static bool
next_is(const struct parse *in, const char *text)
{
	size_t len = strlen(text);

	return (size_t)(in->end - in->p) >= len && memcmp(in->p, text, len) == 0;
}

static bool
take(struct parse *in, const char *text)
{
	if (!next_is(in, text))
		return false;
	in->p += strlen(text);
	return true;
}

static uint32_t
take_character(struct parse *in)
{
	unsigned n;
	uint32_t c = unicode_at(in->p, (size_t)(in->end - in->p), &n);

	in->p += n;
	return c;
}

static bool
ascii_letter(uint32_t c)
{
	return (c | 0x20) - 'a' < 26;
}

/* What one ASCII letter is when case is ignored. */
static int
add_folded(struct scan_set *set, uint32_t c)
{
	int r = set_add(set, c ^ 0x20, c ^ 0x20);

	if (r == 0 && (c | 0x20) == 's')
		r = set_add(set, 0x17f, 0x17f);
	if (r == 0 && (c | 0x20) == 'k')
		r = set_add(set, 0x212a, 0x212a);
	return r;
}

static int
add_property(struct parse *in, struct scan_set *set, struct slice name, bool inverted)
{
	const struct unicode_property *p = unicode_property(name);
	struct scan_set one = {0};
	int r;

	if (!p)
		return refuse(in, "a property of which there is no table");
	r = set_add_ranges(&one, p->range, p->n);
	if (r == 0 && inverted)
		r = set_invert(&one);
	if (r == 0)
		r = set_add_ranges(set, one.r, one.n);
	set_free(&one);
	return r;
}

/* Behind \p or \P: {Name} or {^Name}. */
static int
property(struct parse *in, struct scan_set *set, bool inverted)
{
	const char *close;
	struct slice name;
	int r;

	if (!take(in, "{") || !(close = memchr(in->p, '}', (size_t)(in->end - in->p))))
		return refuse(in, "\\p without {..}");
	if (take(in, "^"))
		inverted = !inverted;
	name = slice_of(in->p, (size_t)(close - in->p));
	/* Those of one small letter are our names for \d \w \s. */
	if (name.len == 1 && name.p[0] >= 'a')
		return refuse(in, "a property of which there is no table");
	r = add_property(in, set, name, inverted);
	if (r == 0)
		in->p = close + 1;
	return r;
}

static int
hex(struct parse *in, unsigned most, bool exactly, uint32_t *ret)
{
	unsigned n = 0;

	*ret = 0;
	while (n < most && in->p < in->end) {
		uint8_t b = (uint8_t)*in->p, digit;

		if ((uint8_t)(b - '0') < 10)
			digit = (uint8_t)(b - '0');
		else if ((uint8_t)((b | 0x20) - 'a') < 6)
			digit = (uint8_t)((b | 0x20) - 'a' + 10);
		else
			break;
		*ret = *ret << 4 | digit;
		in->p++;
		n++;
	}
	if (n == 0 || (exactly && n < most) || *ret > UNICODE_MAX)
		return refuse(in, "no character's number");
	return 0;
}

/* Behind a backslash: a class goes into set, a single character to *ret_c (else UINT32_MAX). */
static int
escape(struct parse *in, struct scan_set *set, uint32_t *ret_c)
{
	static const char from[] = "tnrfvae", to[] = "\t\n\r\f\v\a\033";
	const char *special;
	uint32_t c;
	int r;

	*ret_c = UINT32_MAX;
	if (in->p == in->end)
		return refuse(in, "nothing behind a backslash");
	c = take_character(in);
	switch (c) {
	case 'd':
	case 'w':
	case 's':
		return add_property(in, set, slice_of(in->p - 1, 1), false);
	case 'D':
		return add_property(in, set, SLICE_LIT("d"), true);
	case 'W':
		return add_property(in, set, SLICE_LIT("w"), true);
	case 'S':
		return add_property(in, set, SLICE_LIT("s"), true);
	case 'h':
		r = set_add(set, '0', '9');
		if (r == 0)
			r = set_add(set, 'a', 'f');
		return r < 0 ? r : set_add(set, 'A', 'F');
	case 'p':
	case 'P':
		return property(in, set, c == 'P');
	case 'x':
		if (!take(in, "{"))
			return hex(in, 2, false, ret_c);
		r = hex(in, 6, false, ret_c);
		return r == 0 && !take(in, "}") ? refuse(in, "\\x{ without }") : r;
	case 'u':
		return hex(in, 4, true, ret_c);
	default:
		break;
	}
	special = c < 0x80 && c ? strchr(from, (int)c) : NULL;
	if (special)
		c = (uint32_t)to[special - from];
	else if (ascii_letter(c) || c - '0' < 10)
		return refuse(in, "an escape that is not known here");
	*ret_c = c;
	return 0;
}

/* \w in brackets is not all of \w: Oniguruma leaves out these numbers below U+0100, as asked of
 * Hugging Face's tokenizers 0.23.3.  The other properties are the same in both places. */
static int
add_word_in_class(struct parse *in, struct scan_set *set, bool inverted)
{
	static const struct unicode_range out[] = {{0xb2, 0xb3}, {0xb9, 0xb9}, {0xbc, 0xbe}};
	struct scan_set word = {0}, others = {0};
	int r = set_add_ranges(&others, out, sizeof out / sizeof *out);

	if (r == 0)
		r = set_invert(&others);
	if (r == 0)
		r = add_property(in, &word, SLICE_LIT("w"), false);
	if (r == 0)
		r = set_intersect(&word, &others);
	if (r == 0 && inverted)
		r = set_invert(&word);
	if (r == 0)
		r = set_add_ranges(set, word.r, word.n);
	set_free(&word);
	set_free(&others);
	return r;
}

static int class_of(struct parse *in, struct scan_set *ret);

/* One item of a class: a nested one, an escape, a character, a range. */
static int
class_item(struct parse *in, struct scan_set *set)
{
	uint32_t first, last;
	int r;

	if (next_is(in, "[:"))
		return refuse(in, "a POSIX bracket");
	if (take(in, "[")) {
		struct scan_set nested = {0};

		if (in->flags.fold)
			return refuse(in, "a class in a class where case is ignored");
		r = class_of(in, &nested);
		if (r == 0)
			r = set_add_ranges(set, nested.r, nested.n);
		set_free(&nested);
		return r;
	}
	if (take(in, "\\")) {
		first = UINT32_MAX;
		if (take(in, "b")) {
			first = '\b';
			r = 0;
		} else if (next_is(in, "w") || next_is(in, "W")) {
			r = add_word_in_class(in, set, *in->p++ == 'W');
		} else {
			r = escape(in, set, &first);
		}
		if (r < 0)
			return r;
		if (first == UINT32_MAX) {
			if (next_is(in, "-") && !next_is(in, "-]"))
				return refuse(in, "a range that begins with a class");
			return 0;
		}
	} else {
		first = take_character(in);
	}
	last = first;
	if (next_is(in, "-") && !next_is(in, "-]")) {
		in->p++;
		if (in->p == in->end || next_is(in, "[") || next_is(in, "&&"))
			return refuse(in, "a range without an end");
		if (take(in, "\\")) {
			r = escape(in, set, &last);
			if (r < 0)
				return r;
			if (last == UINT32_MAX)
				return refuse(in, "a range that ends with a class");
		} else {
			last = take_character(in);
		}
	}
	if (last < first || last > UNICODE_MAX)
		return refuse(in, "an empty range");
	return set_add(set, first, last);
}

/* Case ignored: of ASCII only, where it is simple. */
static int
fold_class(struct parse *in, struct scan_set *set, bool inverted)
{
	bool letter[128] = {false};
	int r = 0;

	for (size_t i = 0; i < set->n; i++) {
		if (set->r[i].last >= 0x80)
			return refuse(in, "more than ASCII in a class where case is ignored");
		for (uint32_t c = set->r[i].first; c <= set->r[i].last; c++)
			letter[c] = ascii_letter(c);
	}
	for (uint32_t c = 0; r == 0 && c < 128; c++) {
		if (letter[c] && inverted)
			return refuse(in, "letters in [^..] where case is ignored");
		if (letter[c])
			r = add_folded(set, c);
	}
	return r;
}

/* Behind the opening bracket, to behind the closing one. */
static int
class_of(struct parse *in, struct scan_set *ret)
{
	struct scan_set all = {0}, part = {0};
	bool inverted = take(in, "^"), some = false, several = false;
	int r = 0;

	if (++in->depth > SCAN_DEPTH)
		return refuse(in, "too deep");
	if (next_is(in, "]"))
		return refuse(in, "a class that begins with ]");
	for (;;) {
		bool end = in->p == in->end || next_is(in, "]"), both = !end && take(in, "&&");

		if (r == 0 && in->p == in->end)
			r = refuse(in, "a class without ]");
		if (r == 0 && (end || both)) {
			if (!some)
				r = refuse(in, "an empty part of a class");
			else if (several)
				r = set_intersect(&all, &part);
			else
				r = set_add_ranges(&all, part.r, part.n);
			set_free(&part);
			several = true;
			some = false;
		} else if (r == 0) {
			r = class_item(in, &part);
			some = true;
		}
		if (r < 0 || end)
			break;
	}
	if (r == 0) {
		in->p++;
		in->depth--;
		if (in->flags.fold)
			r = fold_class(in, &all, inverted);
		if (r == 0 && inverted)
			r = set_invert(&all);
	}
	set_free(&part);
	if (r == 0)
		*ret = all;
	else
		set_free(&all);
	return r;
}

static int
character(struct parse *in, uint32_t c)
{
	static const char *const one[] = {"ss", "st", "ff", "fi", "fl"};
	struct scan_set set = {0};
	int r;

	if (c > UNICODE_MAX)
		return refuse(in, "no UTF-8");
	r = set_add(&set, c, c);
	if (r == 0 && in->flags.fold) {
		if (c >= 0x80)
			r = refuse(in, "a character beyond ASCII where case is ignored");
		else if (ascii_letter(c))
			r = add_folded(&set, c);
		for (size_t i = 0; i < sizeof one / sizeof *one; i++)
			if (in->before == (uint32_t)one[i][0] &&
			    (c | 0x20) == (uint32_t)one[i][1])
				r = refuse(in, "letters for which one character may stand "
					       "where case is ignored");
	}
	in->before = in->flags.fold && ascii_letter(c) ? c | 0x20 : 0;
	if (r < 0) {
		set_free(&set);
		return r;
	}
	return say_set(in, &set);
}

static int
say_line_feed(struct parse *in)
{
	struct scan_set set = {0};
	int r = set_add(&set, '\n', '\n');

	return r < 0 ? r : say_set(in, &set);
}

static int
say_word(struct parse *in, const char *before)
{
	struct scan_set set = {0};
	int r = say_str(in, before);

	if (r == 0)
		r = add_property(in, &set, SLICE_LIT("w"), false);
	return r < 0 ? r : say_set(in, &set);
}

/* \b, inverted \B: a word character on one side only, of our table. */
static int
word_boundary(struct parse *in, bool inverted)
{
	int r = say_word(in, "(?:(?<=");

	if (r == 0)
		r = say_word(in, inverted ? ")(?=" : ")(?!");
	if (r == 0)
		r = say_word(in, ")|(?<!");
	if (r == 0)
		r = say_word(in, inverted ? ")(?!" : ")(?=");
	return r < 0 ? r : say_str(in, "))");
}

/* Anchors, of which Ruby's ^ and $ are those of lines.  1: it was one; 0: it was not. */
static int
anchor(struct parse *in)
{
	int r;

	if (take(in, "^")) {
		r = say_str(in, "(?:\\A|(?<=");
		if (r == 0)
			r = say_line_feed(in);
		if (r == 0)
			r = say_str(in, ")(?!\\z))");
	} else if (take(in, "$")) {
		r = say_str(in, "(?=");
		if (r == 0)
			r = say_line_feed(in);
		if (r == 0)
			r = say_str(in, "|\\z)");
	} else if (take(in, "\\Z")) {
		r = say_str(in, "(?=");
		if (r == 0)
			r = say_line_feed(in);
		if (r == 0)
			r = say_str(in, "?\\z)");
	} else if (take(in, "\\A")) {
		r = say_str(in, "\\A");
	} else if (take(in, "\\z")) {
		r = say_str(in, "\\z");
	} else if (take(in, "\\b")) {
		r = word_boundary(in, false);
	} else if (take(in, "\\B")) {
		r = word_boundary(in, true);
	} else {
		return 0;
	}
	return r < 0 ? r : 1;
}

/* Behind "(?": flags, and what ends them.  The group, or what is left of the one we are in. */
static int
options(struct parse *in, bool first)
{
	struct flags flags = in->flags;
	bool on = true;

	for (;;) {
		if (take(in, "-"))
			on = false;
		else if (take(in, "i"))
			flags.fold = on;
		else if (take(in, "m"))
			flags.dot_all = on;
		else
			break;
	}
	if (take(in, ")")) {
		if (!first)
			return refuse(in, "options in the middle of a group");
		in->flags = flags;
		return 1;
	}
	if (!take(in, ":"))
		return refuse(in, "a group or an option that is not known here");
	in->flags = flags;
	return 0;
}

/* Behind "(".  *ret_atom: something that a repeat may follow. */
static int
group(struct parse *in, bool first, bool *ret_atom)
{
	static const char *const assertion[] = {"?=", "?!", "?<=", "?<!"};
	struct flags outside = in->flags;
	const char *open = "(?:";
	int r;

	*ret_atom = true;
	in->before = 0;
	for (size_t i = 0; i < sizeof assertion / sizeof *assertion; i++)
		if (take(in, assertion[i])) {
			*ret_atom = false;
			open = NULL;
			if ((r = say_str(in, "(")) < 0 || (r = say_str(in, assertion[i])) < 0)
				return r;
			break;
		}
	if (open && take(in, "?>")) {
		open = "(?>";
	} else if (open && take(in, "?#")) {
		const char *close = memchr(in->p, ')', (size_t)(in->end - in->p));

		if (!close)
			return refuse(in, "a comment without )");
		in->p = close + 1;
		*ret_atom = false;
		return 0;
	} else if (open && take(in, "?<")) {
		const char *close = memchr(in->p, '>', (size_t)(in->end - in->p));

		if (!close)
			return refuse(in, "a name without >");
		in->p = close + 1;
	} else if (open && take(in, "?:")) {
		;
	} else if (open && take(in, "?")) {
		r = options(in, first);
		if (r != 0) {
			*ret_atom = false;
			return r < 0 ? r : 0;
		}
	}
	if (open && (r = say_str(in, open)) < 0)
		return r;
	if (++in->depth > SCAN_DEPTH)
		return refuse(in, "too deep");
	r = alternatives(in);
	if (r < 0)
		return r;
	in->depth--;
	in->flags = outside;
	in->before = 0;
	if (!take(in, ")"))
		return refuse(in, "a group without )");
	return say_str(in, ")");
}

/* {n} {n,} {,m} {n,m}: 1, and behind it; 0: a brace that is none, and before it. */
static int
interval(struct parse *in, bool *ret_fixed)
{
	const char *brace = in->p, *comma = NULL;
	unsigned long n[2] = {0, 0};
	unsigned digits[2] = {0, 0};
	char text[32];
	int r;

	for (in->p++; in->p < in->end && *in->p != '}'; in->p++) {
		unsigned k = comma != NULL;

		if (*in->p == ',' && !comma) {
			comma = in->p;
			continue;
		}
		if ((uint8_t)(*in->p - '0') > 9 || ++digits[k] > 6)
			break;
		n[k] = 10 * n[k] + (unsigned long)(*in->p - '0');
	}
	if (in->p == in->end || *in->p != '}' || digits[0] + digits[1] == 0) {
		in->p = brace;
		return 0;
	}
	in->p++;
	if (!comma || digits[1] == 0)
		n[1] = n[0];
	if (n[0] > n[1] || n[1] > REPEAT_MAX)
		return refuse(in, "a repeat of more, or the other way round, than is known here");
	*ret_fixed = !comma;
	if (!comma)
		snprintf(text, sizeof text, "{%lu}", n[0]);
	else if (digits[1] == 0)
		snprintf(text, sizeof text, "{%lu,}", n[0]);
	else
		snprintf(text, sizeof text, "{%lu,%lu}", n[0], n[1]);
	r = say_str(in, text);
	return r < 0 ? r : 1;
}

/* What may stand behind an atom. */
static int
repeat(struct parse *in)
{
	bool braces = false, fixed = false;
	int r;

	if (in->p < in->end && *in->p && strchr("*+?", *in->p)) {
		r = say(in, in->p++, 1);
		if (r < 0)
			return r;
	} else if (next_is(in, "{")) {
		r = interval(in, &fixed);
		if (r <= 0)
			return r;
		braces = true;
	} else {
		return 0;
	}
	in->before = 0;
	if (next_is(in, "?") || next_is(in, "+")) {
		/* Ruby's {n}? and {n,m}+ are repeats of repeats. */
		if (braces && (fixed || *in->p == '+'))
			return refuse(in, "a repeat of a repeat");
		r = say(in, in->p++, 1);
		if (r < 0)
			return r;
	}
	if (in->p < in->end && *in->p && strchr("*+?", *in->p))
		return refuse(in, "a repeat of a repeat");
	if (next_is(in, "{")) {
		const char *was = in->p;
		size_t len = in->out->len;

		r = interval(in, &fixed);
		if (r != 0)
			return r < 0 ? r : refuse(in, "a repeat of a repeat");
		in->p = was;
		in->out->len = len;
	}
	return 0;
}

/* One atom and its repeat.  first: nothing of its group was before it. */
static int
term(struct parse *in, bool first)
{
	struct scan_set set = {0};
	bool atom = true;
	uint32_t c;
	int r = anchor(in);

	if (r != 0) {
		atom = false;
		r = r < 0 ? r : 0;
		in->before = 0;
	} else if (take(in, "(")) {
		r = group(in, first, &atom);
	} else if (strchr("*+?", *in->p) && *in->p) {
		return refuse(in, "a repeat of nothing");
	} else if (take(in, "[")) {
		in->before = 0;
		r = class_of(in, &set);
		if (r == 0)
			r = say_set(in, &set);
	} else if (take(in, ".")) {
		in->before = 0;
		if (!in->flags.dot_all)
			r = set_add(&set, '\n', '\n');
		if (r == 0)
			r = set_invert(&set);
		if (r == 0)
			r = say_set(in, &set);
	} else if (take(in, "\\")) {
		r = escape(in, &set, &c);
		if (r == 0 && c != UINT32_MAX) {
			r = character(in, c);
		} else if (r == 0) {
			in->before = 0;
			r = say_set(in, &set);
		}
	} else {
		r = character(in, take_character(in));
	}
	set_free(&set);
	if (r < 0)
		return r;
	if (!atom) {
		if (in->p < in->end && *in->p && strchr("*+?{", *in->p))
			return refuse(in, "a repeat of an assertion");
		return 0;
	}
	return repeat(in);
}

static int
alternatives(struct parse *in)
{
	bool first = true;

	while (in->p < in->end && *in->p != ')') {
		int r;

		if (take(in, "|")) {
			in->before = 0;
			r = say_str(in, "|");
		} else {
			r = term(in, first);
		}
		if (r < 0)
			return r;
		first = false;
	}
	return 0;
}

int
scan_parse(struct slice pattern, struct scan_parsed *ret, const char **why, size_t *ret_at)
{
	struct parse in = {
		.out = ret,
		.start = pattern.p,
		.p = pattern.p,
		.end = pattern.p + pattern.len,
	};
	int r;

	if (pattern.len > SCAN_PATTERN_MAX)
		r = refuse(&in, "a pattern of more than 16 KiB");
	else
		r = alternatives(&in);
	if (r == 0 && in.p < in.end)
		r = refuse(&in, "a ) without a group");
	if (r == -EINVAL) {
		*why = in.why;
		*ret_at = (size_t)(in.p - in.start);
	}
	return r;
}

void
scan_parsed_free(struct scan_parsed *p)
{
	for (size_t i = 0; i < p->n_sets; i++)
		set_free(&p->set[i]);
	free(p->text);
	*p = (struct scan_parsed){0};
}
