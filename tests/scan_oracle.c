/* tests/scan_oracle.c -- see scan_oracle.h. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "tests/scan_oracle.h"

#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/common/prompt/unicode.h"

#define SPLITS 3

struct scan_oracle {
	pcre2_code *code[SPLITS];
	pcre2_match_data *match;
	size_t n;
};

static size_t
ranges(char *out, const char *name, size_t len)
{
	const struct unicode_property *p = unicode_property(slice_of(name, len));
	size_t n = 0;

	if (!p)
		abort();
	for (size_t i = 0; i < p->n; i++)
		n += (size_t)sprintf(out + n, "\\x{%x}-\\x{%x}", p->range[i].first,
				     p->range[i].last);
	return n;
}

/* \p{X} and \s as ranges, in a class of their own where they are in none; [..&&[^\p{X}]] as a class
 * behind a look-ahead. */
static char *
translate(const char *p)
{
	char *out = malloc(1 << 20);
	size_t n = 0, open = 0;
	bool in_class = false;

	while (*p) {
		bool s = strncmp(p, "\\s", 2) == 0 || strncmp(p, "\\S", 2) == 0;

		if (s || strncmp(p, "\\p{", 3) == 0) {
			const char *name = s ? "s" : p + 3;
			size_t len = s ? 1 : (size_t)(strchr(p, '}') - name);

			if (!in_class)
				n += (size_t)sprintf(out + n, "[%s", p[1] == 'S' ? "^" : "");
			n += ranges(out + n, name, len);
			if (!in_class)
				out[n++] = ']';
			p = s ? p + 2 : name + len + 1;
		} else if (strncmp(p, "&&[^\\p{", 7) == 0) {
			static char class[1 << 18];
			size_t len = n - open;

			memcpy(class, out + open, len);
			n = open + (size_t)sprintf(out + open, "(?:(?![");
			n += ranges(out + n, p + 7, (size_t)(strchr(p, '}') - (p + 7)));
			n += (size_t)sprintf(out + n, "])%.*s])", (int)len, class);
			p = strchr(p, '}') + 3;
			in_class = false;
		} else if (*p == '\\') {
			out[n++] = *p++;
			out[n++] = *p++;
		} else {
			if (!in_class && *p == '[') {
				in_class = true;
				open = n;
			} else if (in_class && *p == ']') {
				in_class = false;
			}
			out[n++] = *p++;
		}
	}
	out[n] = 0;
	return out;
}

struct scan_oracle *
scan_oracle_new(const char *const *pattern, size_t n)
{
	struct scan_oracle *o = calloc(1, sizeof *o);

	for (o->n = 0; o->n < n; o->n++) {
		char *text = translate(pattern[o->n]);
		int error;
		size_t where;

		o->code[o->n] = pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED, PCRE2_UTF,
					      &error, &where, NULL);
		free(text);
		if (!o->code[o->n]) {
			scan_oracle_free(o);
			return NULL;
		}
		pcre2_jit_compile(o->code[o->n], PCRE2_JIT_COMPLETE);
	}
	o->match = pcre2_match_data_create(1, NULL);
	return o;
}

static size_t
split(struct scan_oracle *o, size_t level, struct slice text, uint32_t *ret_len, size_t max)
{
	size_t from = 0, given = 0, last = SIZE_MAX, n = 0;

	if (text.len == 0)
		return 0;
	if (level == o->n) {
		if (max == 0)
			abort();
		ret_len[0] = (uint32_t)text.len;
		return 1;
	}
	while (given < text.len) {
		size_t begin = text.len, end = text.len;

		if (from <= text.len &&
		    pcre2_match(o->code[level], (PCRE2_SPTR)text.p, text.len, from, 0, o->match,
				NULL) > 0) {
			begin = pcre2_get_ovector_pointer(o->match)[0];
			end = pcre2_get_ovector_pointer(o->match)[1];
			if (begin == end && last == end) {
				for (from++; from < text.len &&
					     ((uint8_t)text.p[from] & 0xc0) == 0x80;)
					from++;
				continue;
			}
		}
		n += split(o, level + 1, slice_of(text.p + given, begin - given), ret_len + n,
			   max - n);
		n += split(o, level + 1, slice_of(text.p + begin, end - begin), ret_len + n,
			   max - n);
		from = last = given = end;
	}
	return n;
}

size_t
scan_oracle_pieces(struct scan_oracle *o, struct slice text, uint32_t *ret_len, size_t max)
{
	return split(o, 0, text, ret_len, max);
}

void
scan_oracle_free(struct scan_oracle *o)
{
	for (size_t i = 0; i < o->n; i++)
		pcre2_code_free(o->code[i]);
	pcre2_match_data_free(o->match);
	free(o);
}
