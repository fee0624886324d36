/* actors/common/prompt/tools.c -- tools and tool calls, as the engine's request models make them.
 *
 * The order of members is the models' own (pydantic validates into it), members they do not know
 * keep their order behind; what is absent is null or absent as the models dump it (vLLM 0.32;
 * checked against it by tests/conformance/requests).
 */
#include <errno.h>
#include <string.h>

#include "actors/common/prompt/request_private.h"

static bool
absent(struct value v)
{
	return v.kind == VALUE_UNDEFINED || v.kind == VALUE_NONE;
}

static bool
put_or_none(struct value_dict *d, const char *key, struct value v)
{
	return value_put_str(d, key, v.kind == VALUE_UNDEFINED ? value_none() : v);
}

bool
tools_one(struct prompt_maker *p, struct value function, struct value outer_defer,
	  struct value *ret)
{
	struct value name = value_member(function, "name");
	struct value description = value_member(function, "description");
	struct value parameters = value_member(function, "parameters");
	struct value strict = value_member(function, "strict");
	struct value defer = value_member(function, "defer_loading");
	struct value_dict *f = value_dict_new(&p->bump, 5), *t = value_dict_new(&p->bump, 3);
	bool strict_is = false, defer_is = false, outer_is = false;

	if (name.kind != VALUE_STRING ||
	    (!absent(description) && description.kind != VALUE_STRING) ||
	    (!absent(parameters) && parameters.kind != VALUE_DICT) ||
	    (!absent(strict) && !lax_bool(strict, false, &strict_is)) ||
	    (!absent(defer) && !lax_bool(defer, false, &defer_is)) ||
	    (!absent(outer_defer) && !lax_bool(outer_defer, false, &outer_is)))
		return prompt_stop(p, PROMPT_REFUSED, "a tool's function has a member of the wrong "
				   "kind");
	if (absent(defer) && !absent(outer_defer)) {
		defer = outer_defer;
		defer_is = outer_is;
	}
	if (!f || !t || !value_put_str(f, "name", name) ||
	    !put_or_none(f, "description", description) ||
	    !put_or_none(f, "parameters", parameters) ||
	    (!absent(strict) && !value_put_str(f, "strict", value_bool(strict_is))) ||
	    (!absent(defer) && !value_put_str(f, "defer_loading", value_bool(defer_is))) ||
	    !value_put_str(t, "type", value_str("function")) ||
	    !value_put_str(t, "function", value_of_dict(f)) ||
	    (!absent(outer_defer) && !value_put_str(t, "defer_loading", value_bool(outer_is))))
		return prompt_no_memory(p);
	*ret = value_of_dict(t);
	return true;
}

bool
tools_dump(struct prompt_maker *p, struct value tools, struct value *ret)
{
	struct value_items list = {0};

	if (absent(tools)) {
		*ret = value_none();
		return true;
	}
	if (tools.kind != VALUE_LIST)
		return prompt_stop(p, PROMPT_REFUSED, "tools is no list");
	if (tools.n == 0)
		return prompt_stop(p, PROMPT_REFUSED, "tools is empty");
	for (uint32_t i = 0; i < tools.n; i++) {
		struct value type = value_member(tools.items[i], "type");
		struct value function = value_member(tools.items[i], "function"), one;

		if ((type.kind != VALUE_UNDEFINED && !value_is_text(type, "function")) ||
		    function.kind != VALUE_DICT)
			return prompt_stop(p, PROMPT_REFUSED, "tools[%u] is no function", i);
		one = tools.items[i];
		if (p->m->tools == MODEL_TOOLS_NULLS &&
		    !tools_one(p, function, value_member(tools.items[i], "defer_loading"), &one))
			return false;
		if (!value_push(&p->bump, &list, one))
			return prompt_no_memory(p);
	}
	*ret = value_list_of(&list);
	return true;
}

bool
tools_chosen(struct prompt_maker *p, struct value body, struct value tools, bool *ret_none)
{
	struct value choice = value_member(body, "tool_choice"), name;
	bool given = tools.kind == VALUE_LIST && tools.n > 0;

	*ret_none = value_is_text(choice, "none") || (choice.kind == VALUE_UNDEFINED && !given);
	if (absent(choice) || value_is_text(choice, "none"))
		return true;
	if (absent(tools))
		return prompt_stop(p, PROMPT_REFUSED, "tool_choice without tools");
	if (value_is_text(choice, "auto") || value_is_text(choice, "required"))
		return true;
	name = value_member(value_member(choice, "function"), "name");
	if (name.kind != VALUE_STRING)
		return prompt_stop(p, PROMPT_REFUSED, "tool_choice is of no known kind");
	for (uint32_t i = 0; given && i < tools.n; i++) {
		struct value known = value_member(value_member(tools.items[i], "function"), "name");

		if (known.kind == VALUE_STRING && slice_eq(value_slice(known), value_slice(name)))
			return true;
	}
	return prompt_stop(p, PROMPT_REFUSED, "tool_choice names none of the tools");
}

/* --- calls --------------------------------------------------------------------------------- */

struct value
tools_arguments(struct prompt_maker *p, struct value arguments)
{
	struct value parsed = value_undefined();
	struct value_dict *none;
	const char *why;

	if (arguments.kind == VALUE_DICT)
		return arguments;
	/* Python's json takes no byte order mark in a str. */
	if (arguments.kind == VALUE_STRING && arguments.n &&
	    !(arguments.n >= 3 && memcmp(arguments.s, "\xef\xbb\xbf", 3) == 0)) {
		int r = value_from_json(&p->bump, value_slice(arguments), &parsed, &why, NULL);

		if (r == -ENOMEM)
			return value_undefined();
		if (r == 0 && parsed.kind == VALUE_DICT)
			return parsed;
	}
	none = value_dict_new(&p->bump, 0);
	return none ? value_of_dict(none) : value_undefined();
}

/* What the model does not know of a dict goes behind, in the request's order. */
static bool
put_others(struct value_dict *to, struct value from, const char *const *known, size_t n)
{
	for (uint32_t i = 0; i < from.dict->n; i++) {
		bool is = false;

		for (size_t k = 0; k < n && !is; k++)
			is = value_is_text(from.dict->pair[i].key, known[k]);
		if (!is && !value_put(to, from.dict->pair[i].key, from.dict->pair[i].value))
			return false;
	}
	return true;
}

static bool
normal_call(struct prompt_maker *p, struct value call, struct value *ret)
{
	static const char *const of_call[] = {"id", "function", "type"};
	static const char *const of_function[] = {"arguments", "name"};
	struct value id = value_member(call, "id"), type = value_member(call, "type");
	struct value function = value_member(call, "function");
	struct value arguments = value_member(function, "arguments");
	struct value name = value_member(function, "name");
	struct value_dict *c, *f;

	if (id.kind != VALUE_STRING || !value_is_text(type, "function") ||
	    arguments.kind != VALUE_STRING || name.kind != VALUE_STRING)
		return prompt_stop(p, PROMPT_REFUSED, "a tool call lacks id, type \"function\", "
				   "name or arguments (texts)");
	arguments = tools_arguments(p, arguments);
	c = value_dict_new(&p->bump, call.dict->n);
	f = value_dict_new(&p->bump, function.dict->n);
	if (arguments.kind == VALUE_UNDEFINED || !c || !f ||
	    !value_put_str(f, "arguments", arguments) || !value_put_str(f, "name", name) ||
	    !put_others(f, function, of_function, 2) || !value_put_str(c, "id", id) ||
	    !value_put_str(c, "function", value_of_dict(f)) || !value_put_str(c, "type", type) ||
	    !put_others(c, call, of_call, 3))
		return prompt_no_memory(p);
	*ret = value_of_dict(c);
	return true;
}

bool
tools_normal_calls(struct prompt_maker *p, struct value calls, struct value *ret)
{
	struct value_items list = {0};

	if (calls.kind != VALUE_LIST)
		return prompt_stop(p, PROMPT_REFUSED, "tool_calls is no list");
	for (uint32_t i = 0; i < calls.n; i++) {
		struct value one;

		if (calls.items[i].kind != VALUE_DICT)
			return prompt_stop(p, PROMPT_REFUSED, "tool_calls[%u] is no object", i);
		if (!normal_call(p, calls.items[i], &one))
			return false;
		if (!value_push(&p->bump, &list, one))
			return prompt_no_memory(p);
	}
	*ret = value_list_of(&list);
	return true;
}
