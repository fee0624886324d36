/* actors/common/decide/expression_regex.c -- matches(): the patterns of RE2, run by PCRE2.
 *
 * What RE2 has not (back references, looking around, atomic groups, recursion, verbs) is refused at
 * load, so that a pattern means the same as in CEL.  PCRE2 may go back and try again where RE2 does
 * not; the number of times is limited, and a match that reaches the limit is unknown.
 */
#include "actors/common/decide/expression_private.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define ROOM_BYTES 512u                 /* PCRE2's notes for one match */

/* ---- what RE2 has ---- */

static bool
digit(char c)
{
	return c >= '0' && c <= '9';
}

/* "{2,5}" at p: its length, 0 where it is no repetition. */
static size_t
repetition(const char *p, const char *end)
{
	const char *at = p + 1;

	if (at == end || !digit(*at))
		return 0;
	while (at < end && digit(*at))
		at++;
	if (at < end && *at == ',')
		for (at++; at < end && digit(*at); at++)
			;
	return at < end && *at == '}' ? (size_t)(at - p) + 1 : 0;
}

/* Behind "(?": NULL, or what is wrong. */
static const char *
group(const char *p, const char *end)
{
	if (p < end && *p == 'P')
		p++;
	if (p < end && *p == '<')
		return p + 1 < end && p[1] != '=' && p[1] != '!' ? NULL : "looks behind";
	if (p > end || p[-1] == 'P')
		return "has a group that RE2 does not know";
	while (p < end && strchr("imsU-", *p) && *p)
		p++;
	return p < end && (*p == ':' || *p == ')') ? NULL :
		"has a group that RE2 does not know (it does not look ahead or behind)";
}

const char *
expression_regex_wrong(struct slice pattern, uint32_t *ret_offset)
{
	const char *p = pattern.p, *end = p + pattern.len, *why = NULL;
	bool class = false, repeated = false;

	for (; p < end && !why; p++) {
		bool again = false;

		*ret_offset = (uint32_t)(p - pattern.p);
		if (*p == '\\') {
			/* letters and digits mean something; all else is itself */
			if (++p == end)
				return "ends in a backslash";
			if (*p == 'Q')
				return "has \\Q";
			if (((*p | 0x20) >= 'a' && (*p | 0x20) <= 'z' &&
			     !strchr(class ? "dDsSwWpPaftnrvx" : "dDsSwWpPbBAzaftnrvx", *p)) ||
			    (digit(*p) && *p != '0'))
				why = digit(*p) ? "refers back" :
						  "has an escape that RE2 does not know";
			repeated = false;
			continue;
		}
		if (class) {
			class = *p != ']';
			continue;
		}
		if (*p == '[') {
			class = true;
			if (p + 1 < end && p[1] == '^')
				p++;
			if (p + 1 < end && p[1] == ']')
				p++;
		} else if (*p == '(' && p + 1 < end && p[1] == '*') {
			why = "has a verb";
		} else if (*p == '(' && p + 1 < end && p[1] == '?') {
			why = group(p + 2, end);
			p += why ? 0 : 1;
		} else if (*p == '*' || *p == '+' || *p == '?' ||
			   (*p == '{' && repetition(p, end))) {
			/* x*? is lazy; x*+ and x** are not RE2's */
			if (repeated && *p != '?')
				why = "repeats a repetition";
			again = !repeated;
			if (*p == '{' && !why)
				p += repetition(p, end) - 1;
		}
		repeated = again;
	}
	return why;
}

/* ---- PCRE2 ---- */

int
expression_regex_compile(struct slice pattern, pcre2_code **ret, char why[120],
			 uint32_t *ret_offset)
{
	const char *wrong = expression_regex_wrong(pattern, ret_offset);
	int error;
	PCRE2_SIZE at;
	pcre2_code *code;

	if (wrong) {
		snprintf(why, 120, "%s", wrong);
		return -EINVAL;
	}
	code = pcre2_compile((PCRE2_SPTR)(pattern.p ? pattern.p : ""), pattern.len,
			     PCRE2_UTF | PCRE2_MATCH_INVALID_UTF | PCRE2_DOLLAR_ENDONLY |
				     PCRE2_NO_AUTO_CAPTURE | PCRE2_NEVER_BACKSLASH_C,
			     &error, &at, NULL);
	if (!code) {
		int n = snprintf(why, 120, "cannot be read: ");

		pcre2_get_error_message(error, (PCRE2_UCHAR *)why + n, 120 - (size_t)n);
		*ret_offset = (uint32_t)at;
		return error == PCRE2_ERROR_NOMEMORY ? -ENOMEM : -EINVAL;
	}
	/* where there is no JIT, it matches all the same, only slower */
	(void)pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
	*ret = code;
	return 0;
}

/* Memory for one match: our caller's stack, and malloc() for what an interpreter needs. */
struct room {
	size_t used;
	_Alignas(16) char bytes[ROOM_BYTES];
};

static void *
room_get(size_t n, void *data)
{
	struct room *room = data;
	size_t need = (n + 15) & ~(size_t)15;

	if (need > ROOM_BYTES - room->used)
		return malloc(n);
	room->used += need;
	return room->bytes + room->used - need;
}

static void
room_put(void *p, void *data)
{
	struct room *room = data;

	if ((char *)p < room->bytes || (char *)p >= room->bytes + ROOM_BYTES)
		free(p);
}

enum expression_truth
expression_regex_test(const pcre2_code *code, pcre2_match_context *match, struct slice subject)
{
	struct room room = {.used = 0};
	pcre2_general_context *general = pcre2_general_context_create(room_get, room_put, &room);
	pcre2_match_data *data = general ? pcre2_match_data_create(1, general) : NULL;
	int r = PCRE2_ERROR_NOMEMORY;

	if (data)
		r = pcre2_match(code, (PCRE2_SPTR)(subject.p ? subject.p : ""), subject.len, 0, 0,
				data, match);
	pcre2_match_data_free(data);
	pcre2_general_context_free(general);
	if (r == PCRE2_ERROR_NOMATCH)
		return EXPRESSION_NO;
	return r >= 0 ? EXPRESSION_YES : EXPRESSION_UNKNOWN;
}
