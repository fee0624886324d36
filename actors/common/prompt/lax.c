/* actors/common/prompt/lax.c -- scalars as pydantic reads them when it is not strict. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "actors/common/prompt/request_private.h"

bool
lax_bool(struct value v, bool absent, bool *ret)
{
	static const char *const yes[] = {"1", "on", "t", "true", "y", "yes"};
	static const char *const no[] = {"0", "off", "f", "false", "n", "no"};
	char word[8];

	switch (v.kind) {
	case VALUE_UNDEFINED:
		*ret = absent;
		return true;
	case VALUE_BOOL:
	case VALUE_INT:
		*ret = v.i != 0;
		return v.i == 0 || v.i == 1;
	case VALUE_FLOAT:
		*ret = v.f > 0.5;
		return !(v.f < 0) && !(v.f > 0 && v.f < 1) && !(v.f > 1) && v.f == v.f;
	case VALUE_STRING:
		if (v.n == 0 || v.n >= sizeof word)
			return false;
		memcpy(word, v.s, v.n);
		word[v.n] = '\0';
		for (size_t i = 0; i < sizeof yes / sizeof yes[0]; i++)
			if (strcasecmp(word, yes[i]) == 0 || strcasecmp(word, no[i]) == 0) {
				*ret = strcasecmp(word, yes[i]) == 0;
				return true;
			}
		return false;
	default:
		return false;
	}
}

bool
lax_int(struct value v, int64_t *ret)
{
	char digits[32], *end;

	switch (v.kind) {
	case VALUE_UNDEFINED:
	case VALUE_NONE:
		*ret = PROMPT_ABSENT;
		return true;
	case VALUE_BOOL:
	case VALUE_INT:
		*ret = v.i;
		return true;
	case VALUE_FLOAT:
		if (!(v.f > -9e15 && v.f < 9e15) || (double)(int64_t)v.f < v.f ||
		    (double)(int64_t)v.f > v.f)
			return false;
		*ret = (int64_t)v.f;
		return true;
	case VALUE_STRING:
		if (v.n == 0 || v.n >= sizeof digits)
			return false;
		memcpy(digits, v.s, v.n);
		digits[v.n] = '\0';
		errno = 0;
		*ret = strtoll(digits, &end, 10);
		return errno == 0 && *end == '\0';
	default:
		return false;
	}
}

bool
lax_cut(struct prompt_maker *p, struct value body, struct prompt_cut *cut)
{
	struct value side = value_member(body, "truncation_side");
	uint32_t len = p->m->max_len;
	bool special = false;

	if (!lax_bool(value_member(body, "add_special_tokens"), cut->add_special, &special))
		return prompt_stop(p, PROMPT_REFUSED, "add_special_tokens is neither true nor "
				   "false");
	cut->add_special = special;
	if (!lax_int(value_member(body, "truncate_prompt_tokens"), &cut->keep) ||
	    (cut->keep != PROMPT_ABSENT && cut->keep < -1))
		return prompt_stop(p, PROMPT_REFUSED, "truncate_prompt_tokens is no number from "
				   "-1 on");
	if (len && cut->keep > (int64_t)len)
		return prompt_stop(p, PROMPT_REFUSED, "truncate_prompt_tokens %lld: the model "
				   "takes %u", (long long)cut->keep, len);
	if (value_is_text(side, "left"))
		cut->side = PROMPT_SIDE_LEFT;
	else if (value_is_text(side, "right"))
		cut->side = PROMPT_SIDE_RIGHT;
	else if (side.kind != VALUE_UNDEFINED && side.kind != VALUE_NONE)
		return prompt_stop(p, PROMPT_REFUSED, "truncation_side is neither left nor right");
	return true;
}

bool
lax_output(struct prompt_maker *p, const char *name, struct value most, int64_t absent,
	   struct prompt_cut *cut)
{
	if (!lax_int(most, &cut->max_output))
		return prompt_stop(p, PROMPT_REFUSED, "%s is no whole number", name);
	if (cut->max_output == PROMPT_ABSENT)
		cut->max_output = absent;
	if (p->m->max_len && cut->max_output > (int64_t)p->m->max_len)
		return prompt_stop(p, PROMPT_REFUSED, "%lld tokens of answer: the model takes %u "
				   "in all", (long long)cut->max_output, p->m->max_len);
	return true;
}
