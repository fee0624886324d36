/* actors/common/prompt/responses.c -- /v1/responses: items become the messages of a chat.
 *
 * A message may span items: reasoning, a text and function calls that follow each other are one
 * assistant's.  What the engine would have to remember (previous_response_id) is not known here.
 */
#include <string.h>

#include "actors/common/prompt/request_private.h"

static bool
absent(struct value v)
{
	return v.kind == VALUE_UNDEFINED || v.kind == VALUE_NONE;
}

struct items {
	struct prompt_maker *p;
	struct value_items messages;
	struct value_dict *assistant;           /* the last message, when it is one made here */
};

static bool
push(struct items *c, struct value message)
{
	return value_push(&c->p->bump, &c->messages, message) || prompt_no_memory(c->p);
}

static struct value_dict *
new_assistant(struct items *c)
{
	c->assistant = value_dict_new(&c->p->bump, 4);
	if (!c->assistant || !value_put_str(c->assistant, "role", value_str("assistant")) ||
	    !push(c, value_of_dict(c->assistant))) {
		prompt_no_memory(c->p);
		return NULL;
	}
	return c->assistant;
}

/* A member of the last assistant that has none yet, else of a new one. */
static bool
put_assistant(struct items *c, const char *key, struct value v)
{
	struct value_dict *d = c->assistant;

	if (!d || !absent(value_member(value_of_dict(d), key)))
		d = new_assistant(c);
	if (!d)
		return false;
	return value_put_str(d, key, v) || prompt_no_memory(c->p);
}

static bool
add_call(struct items *c, struct value item, struct value name, struct value arguments)
{
	struct value id = value_member(item, "call_id"), calls;
	struct value_dict *d = value_dict_new(&c->p->bump, 3), *f = value_dict_new(&c->p->bump, 2);
	struct value_items list = {0};

	if (id.kind != VALUE_STRING || name.kind != VALUE_STRING)
		return prompt_stop(c->p, PROMPT_REFUSED, "a function call lacks call_id, name or "
				   "arguments");
	arguments = tools_arguments(c->p, arguments);
	if (!d || !f || arguments.kind == VALUE_UNDEFINED || !value_put_str(f, "name", name) ||
	    !value_put_str(f, "arguments", arguments) || !value_put_str(d, "id", id) ||
	    !value_put_str(d, "function", value_of_dict(f)) ||
	    !value_put_str(d, "type", value_str("function")))
		return prompt_no_memory(c->p);
	if (!c->assistant && !new_assistant(c))
		return false;
	calls = value_member(value_of_dict(c->assistant), "tool_calls");
	for (uint32_t i = 0; calls.kind == VALUE_LIST && i < calls.n; i++)
		if (!value_push(&c->p->bump, &list, calls.items[i]))
			return prompt_no_memory(c->p);
	return (value_push(&c->p->bump, &list, value_of_dict(d)) &&
		value_put_str(c->assistant, "tool_calls", value_list_of(&list))) ||
	       prompt_no_memory(c->p);
}

static bool
function_call(struct items *c, struct value item)
{
	struct value name = value_member(item, "name"), space = value_member(item, "namespace");
	struct value arguments = value_member(item, "arguments");
	char *p;

	if (arguments.kind != VALUE_STRING)
		return prompt_stop(c->p, PROMPT_REFUSED, "a function call without arguments");
	if (space.kind == VALUE_STRING && space.n && name.kind == VALUE_STRING) {
		p = bump_bytes(&c->p->bump, (size_t)space.n + 2 + name.n);
		if (!p)
			return prompt_no_memory(c->p);
		memcpy(p, space.s, space.n);
		memcpy(p + space.n, "__", 2);
		memcpy(p + space.n + 2, name.s, name.n);
		name = value_string(slice_of(p, (size_t)space.n + 2 + name.n));
	}
	return add_call(c, item, name, arguments);
}

/* A free text is the one argument "input" of a function. */
static bool
custom_call(struct items *c, struct value item)
{
	struct value_dict *d = value_dict_new(&c->p->bump, 1);
	struct value input = value_member(item, "input");

	if (!d || !value_put_str(d, "input", absent(input) ? value_str("") : input))
		return prompt_no_memory(c->p);
	return add_call(c, item, value_member(item, "name"), value_of_dict(d));
}

static bool
call_output(struct items *c, struct value item)
{
	struct value_dict *d = value_dict_new(&c->p->bump, 3);
	struct value output = value_member(item, "output"), id = value_member(item, "call_id");

	c->assistant = NULL;
	if (!d || !value_put_str(d, "role", value_str("tool")) ||
	    !value_put_str(d, "content", absent(output) ? value_none() : output) ||
	    !value_put_str(d, "tool_call_id", absent(id) ? value_none() : id))
		return prompt_no_memory(c->p);
	return push(c, value_of_dict(d));
}

/* The text of the first of a list's parts; undefined: there is none. */
static struct value
first_text(struct value list)
{
	return list.kind == VALUE_LIST && list.n ? value_member(list.items[0], "text") :
	       value_undefined();
}

static bool
reasoning(struct items *c, struct value item)
{
	struct value text = first_text(value_member(item, "content"));

	if (value_true(value_member(item, "encrypted_content")))
		return prompt_stop(c->p, PROMPT_REFUSED, "encrypted reasoning");
	if (text.kind == VALUE_UNDEFINED)
		text = first_text(value_member(item, "summary"));
	return put_assistant(c, "reasoning",
			     text.kind == VALUE_STRING ? text : value_str(""));
}

/* What an assistant said comes as "output_text" only in an item that says "message". */
static bool
part_fits(struct value part, bool message)
{
	static const char *const types[] = {"input_text", "input_image", "input_file",
					    "output_text", "refusal"};
	struct value type = value_member(part, "type");

	for (size_t i = 0; i < (message ? 5 : 3); i++)
		if (value_is_text(type, types[i]))
			return true;
	return false;
}

static bool
item_message(struct items *c, struct value item)
{
	struct value role = value_member(item, "role"), content = value_member(item, "content");

	if (!value_is_text(role, "assistant")) {
		c->assistant = NULL;
		return push(c, item);
	}
	for (uint32_t i = 0; content.kind == VALUE_LIST && i < content.n; i++)
		if (!part_fits(content.items[i], !absent(value_member(item, "type"))))
			return prompt_stop(c->p, PROMPT_REFUSED, "an assistant's content[%u] is "
					   "of no type that such an item has", i);
	if (content.kind == VALUE_LIST)
		content = first_text(content);
	if (content.kind != VALUE_STRING)
		return prompt_stop(c->p, PROMPT_REFUSED, "an assistant's message without text");
	return put_assistant(c, "content", content);
}

static bool
add_item(struct items *c, struct value item)
{
	static const struct {
		const char *type;
		bool (*add)(struct items *c, struct value item);
	} kinds[] = {
		{"function_call", function_call}, {"custom_tool_call", custom_call},
		{"function_call_output", call_output}, {"custom_tool_call_output", call_output},
		{"reasoning", reasoning},
	};
	struct value type = value_member(item, "type");

	for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
		if (value_is_text(type, kinds[i].type))
			return kinds[i].add(c, item);
	if ((absent(type) || value_is_text(type, "message")) &&
	    value_member(item, "role").kind == VALUE_STRING)
		return item_message(c, item);
	return prompt_stop(c->p, PROMPT_REFUSED, "an input item of type \"%.*s\"",
			   type.kind == VALUE_STRING ? (int)type.n : 0,
			   type.kind == VALUE_STRING ? type.s : "");
}

static bool
text_message(struct items *c, const char *role, struct value text)
{
	struct value_dict *d = value_dict_new(&c->p->bump, 2);

	if (!d || !value_put_str(d, "role", value_str(role)) ||
	    !value_put_str(d, "content", text))
		return prompt_no_memory(c->p);
	return push(c, value_of_dict(d));
}

static bool
messages_of(struct prompt_maker *p, struct value body, struct prompt_ask *ask)
{
	struct value instructions = value_member(body, "instructions");
	struct value input = value_member(body, "input"), last, status;
	struct items c = {.p = p};

	if (!absent(instructions) && instructions.kind != VALUE_STRING)
		return prompt_stop(p, PROMPT_REFUSED, "instructions is no text");
	if (instructions.kind == VALUE_STRING && instructions.n &&
	    !text_message(&c, "system", instructions))
		return false;
	ask->continue_final = false;
	if (input.kind == VALUE_STRING) {
		if (!text_message(&c, "user", input))
			return false;
	} else if (input.kind == VALUE_LIST) {
		for (uint32_t i = 0; i < input.n; i++)
			if (!add_item(&c, input.items[i]))
				return false;
		last = input.n ? input.items[input.n - 1] : value_undefined();
		status = value_member(last, "status");
		ask->continue_final = (value_is_text(status, "in_progress") ||
				       value_is_text(status, "incomplete")) &&
				      (absent(value_member(last, "type")) ||
				       value_is_text(value_member(last, "type"), "message") ||
				       value_is_text(value_member(last, "type"), "reasoning"));
	} else {
		return prompt_stop(p, PROMPT_REFUSED, "input is neither text nor list");
	}
	if (c.messages.n == 0)
		return prompt_stop(p, PROMPT_REFUSED, "input is empty");
	ask->generation_prompt = !ask->continue_final;
	ask->messages = value_list_of(&c.messages);
	return true;
}

/* --- tools --------------------------------------------------------------------------------- */

static bool
custom_parameters(struct prompt_maker *p, struct value *ret)
{
	const char *why;

	return value_from_json(&p->bump, SLICE_LIT(
		"{\"type\": \"object\", \"properties\": {\"input\": {\"type\": \"string\", "
		"\"description\": \"The freeform text payload for this tool.\"}}, "
		"\"required\": [\"input\"], \"additionalProperties\": false}"), ret, &why,
		NULL) == 0 || prompt_no_memory(p);
}

/* `space`: of a namespace's functions. */
static bool
add_tool(struct prompt_maker *p, struct value_items *list, struct value tool, struct value space)
{
	static const char *const kept[] = {"description", "parameters", "strict", "defer_loading"};
	struct value_dict *f = value_dict_new(&p->bump, 5);
	struct value name = value_member(tool, "name"), one, v;
	bool custom = value_is_text(value_member(tool, "type"), "custom");
	char *joined;

	if (name.kind != VALUE_STRING)
		return prompt_stop(p, PROMPT_REFUSED, "a tool without a name");
	if (space.kind == VALUE_STRING) {
		joined = bump_bytes(&p->bump, (size_t)space.n + 2 + name.n);
		if (!joined)
			return prompt_no_memory(p);
		memcpy(joined, space.s, space.n);
		memcpy(joined + space.n, "__", 2);
		memcpy(joined + space.n + 2, name.s, name.n);
		name = value_string(slice_of(joined, (size_t)space.n + 2 + name.n));
	}
	if (!f || !value_put_str(f, "name", name))
		return prompt_no_memory(p);
	for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++) {
		v = value_member(tool, kept[i]);
		if (custom && i > 0) {
			if (i > 1)
				break;
			if (!custom_parameters(p, &v))
				return false;
		}
		if (v.kind != VALUE_UNDEFINED && !value_put_str(f, kept[i], v))
			return prompt_no_memory(p);
	}
	if (!tools_one(p, value_of_dict(f), value_none(), &one))
		return false;
	return value_push(&p->bump, list, one) || prompt_no_memory(p);
}

/* A choice by name names one of the tools. */
static bool
chosen(struct prompt_maker *p, struct value choice, struct value tools)
{
	struct value name = value_member(choice, "name");

	if (!value_is_text(value_member(choice, "type"), "function"))
		return true;
	for (uint32_t i = 0; name.kind == VALUE_STRING && i < tools.n; i++) {
		struct value known = value_member(tools.items[i], "name");

		if (known.kind == VALUE_STRING && slice_eq(value_slice(known), value_slice(name)))
			return true;
	}
	return prompt_stop(p, PROMPT_REFUSED, "tool_choice names none of the tools");
}

static bool
tools_of(struct prompt_maker *p, struct value body, struct prompt_ask *ask)
{
	struct value tools = value_member(body, "tools");
	struct value choice = value_member(body, "tool_choice");
	struct value_items list = {0};

	ask->tools = value_none();
	if (tools.kind == VALUE_NONE || (tools.kind != VALUE_UNDEFINED && tools.kind != VALUE_LIST))
		return prompt_stop(p, PROMPT_REFUSED, "tools is no list");
	if (tools.kind == VALUE_UNDEFINED || tools.n == 0) {
		if (value_is_text(choice, "required") || choice.kind == VALUE_DICT)
			return prompt_stop(p, PROMPT_REFUSED, "tool_choice without tools");
		return true;
	}
	if (value_is_text(choice, "none") && p->m->exclude_tools)
		return true;
	for (uint32_t i = 0; i < tools.n; i++) {
		struct value type = value_member(tools.items[i], "type");
		struct value inner = value_member(tools.items[i], "tools");
		struct value space = value_member(tools.items[i], "name");

		if (value_is_text(type, "function") || value_is_text(type, "custom")) {
			if (!add_tool(p, &list, tools.items[i], value_none()))
				return false;
		} else if (value_is_text(type, "namespace") && inner.kind == VALUE_LIST) {
			for (uint32_t k = 0; k < inner.n; k++)
				if (value_is_text(value_member(inner.items[k], "type"),
						  "function") &&
				    !add_tool(p, &list, inner.items[k], space))
					return false;
		}
	}
	ask->tools = value_list_of(&list);      /* other kinds are the engine's own: not shown */
	return chosen(p, choice, tools);
}

bool
responses_ask(struct prompt_maker *p, struct value body, struct prompt_ask *ask)
{
	static const char *const remembered[] = {"previous_response_id", "previous_response",
						 "previous_input_messages", "conversation"};
	struct value truncation = value_member(body, "truncation");

	for (size_t i = 0; i < sizeof remembered / sizeof remembered[0]; i++)
		if (!absent(value_member(body, remembered[i])))
			return prompt_stop(p, PROMPT_UNKNOWN, "%s: the engine remembers what came "
					   "before", remembered[i]);
	if (!absent(value_member(body, "prompt")))
		return prompt_stop(p, PROMPT_REFUSED, "prompt templates are not supported");
	ask->cut = (struct prompt_cut){.add_special = true, .keep = PROMPT_ABSENT};
	ask->documents = ask->ids = value_none();
	ask->calls_made = true;
	if (truncation.kind != VALUE_UNDEFINED && !value_is_text(truncation, "disabled"))
		ask->cut.keep = -1;
	if (!lax_output(p, "max_output_tokens", value_member(body, "max_output_tokens"), 0,
			&ask->cut))
		return false;
	return prompt_take_salt(p, value_member(body, "cache_salt")) && chat_kwargs(p, body, ask) &&
	       messages_of(p, body, ask) && tools_of(p, body, ask) &&
	       chat_effort(p, value_member(value_member(body, "reasoning"), "effort"),
			   ask->kwargs, ask);
}
