/* actors/common/prompt/messages_api.c -- Anthropic's messages become the messages of a chat.
 *
 * A block is a part, a call, a tool's message of its own, or reasoning; the order in which one
 * user's message gives several is the engine's: tools' results first, where they stand, then what
 * the user says.
 */
#include <string.h>

#include "actors/common/prompt/request_private.h"

#define BILLING "x-anthropic-billing-header"

static bool
absent(struct value v)
{
	return v.kind == VALUE_UNDEFINED || v.kind == VALUE_NONE;
}

struct turning {
	struct prompt_maker *p;
	struct value_items messages;
};

/* What the blocks of one message give. */
struct blocks {
	struct value_items parts, calls, thoughts;
};

static bool
push(struct turning *t, struct value message)
{
	return value_push(&t->p->bump, &t->messages, message) || prompt_no_memory(t->p);
}

static bool
joined(struct prompt_maker *p, const struct value_items *texts, const char *between,
       struct value *ret)
{
	size_t gap = strlen(between), n = 0, at = 0;
	char *bytes;

	for (uint32_t i = 0; i < texts->n; i++)
		n += texts->item[i].n + (i ? gap : 0);
	bytes = n < UINT32_MAX ? bump_bytes(&p->bump, n) : NULL;
	if (!bytes)
		return prompt_no_memory(p);
	for (uint32_t i = 0; i < texts->n; i++) {
		if (i) {
			memcpy(bytes + at, between, gap);
			at += gap;
		}
		memcpy(bytes + at, texts->item[i].s, texts->item[i].n);
		at += texts->item[i].n;
	}
	*ret = value_string(slice_of(bytes, n));
	return true;
}

static bool
is_billing(struct value text)
{
	return text.n >= sizeof BILLING - 1 && memcmp(text.s, BILLING, sizeof BILLING - 1) == 0;
}

/* --- system -------------------------------------------------------------------------------- */

/* Texts of a system's blocks, without Claude Code's header. */
static bool
system_texts(struct turning *t, struct value content, bool strip_text, struct value_items *out)
{
	if (content.kind == VALUE_STRING) {
		if (content.n == 0 || (strip_text && is_billing(content)))
			return true;
		return value_push(&t->p->bump, out, content) || prompt_no_memory(t->p);
	}
	for (uint32_t i = 0; content.kind == VALUE_LIST && i < content.n; i++) {
		struct value text = value_member(content.items[i], "text");

		if (!value_is_text(value_member(content.items[i], "type"), "text") ||
		    text.kind != VALUE_STRING || text.n == 0 || is_billing(text))
			continue;
		if (!value_push(&t->p->bump, out, text))
			return prompt_no_memory(t->p);
	}
	return true;
}

static bool
say(struct turning *t, const char *role, struct value content)
{
	struct value_dict *d = value_dict_new(&t->p->bump, 2);

	if (!d || !value_put_str(d, "role", value_str(role)) ||
	    !value_put_str(d, "content", content))
		return prompt_no_memory(t->p);
	return push(t, value_of_dict(d));
}

static bool
system_first(struct turning *t, struct value body, struct value messages)
{
	struct value_items texts = {0};
	struct value text;

	if (!system_texts(t, value_member(body, "system"), false, &texts))
		return false;
	for (uint32_t i = 0; t->p->m->system_first && i < messages.n; i++)
		if (value_is_text(value_member(messages.items[i], "role"), "system") &&
		    !system_texts(t, value_member(messages.items[i], "content"), true, &texts))
			return false;
	if (texts.n == 0)
		return true;
	return joined(t->p, &texts, "", &text) && say(t, "system", text);
}

static bool
system_inline(struct turning *t, struct value message)
{
	struct value content = value_member(message, "content"), text;
	struct value_items texts = {0};

	for (uint32_t i = 0; content.kind == VALUE_LIST && i < content.n; i++) {
		struct value type = value_member(content.items[i], "type");

		if (value_is_text(type, "tool_addition") || value_is_text(type, "tool_removal"))
			return prompt_stop(t->p, PROMPT_UNKNOWN, "tools that change under way");
	}
	if (t->p->m->system_first)
		return true;
	if (!system_texts(t, content, true, &texts))
		return false;
	if (texts.n == 0)
		return true;
	return joined(t->p, &texts, "", &text) && say(t, "system", text);
}

/* --- blocks -------------------------------------------------------------------------------- */

static bool
add_part(struct turning *t, struct blocks *b, const char *type, const char *key, struct value v)
{
	struct value_dict *d = value_dict_new(&t->p->bump, 2);

	if (!d || !value_put_str(d, "type", value_str(type)) || !value_put_str(d, key, v) ||
	    !value_push(&t->p->bump, &b->parts, value_of_dict(d)))
		return prompt_no_memory(t->p);
	return true;
}

static bool
tool_use(struct turning *t, struct blocks *b, struct value block)
{
	struct value id = value_member(block, "id"), name = value_member(block, "name");
	struct value input = value_member(block, "input");
	struct value_dict *d = value_dict_new(&t->p->bump, 3), *f = value_dict_new(&t->p->bump, 2);

	if (id.kind != VALUE_STRING || id.n == 0)
		return prompt_stop(t->p, PROMPT_UNKNOWN, "a tool_use without id: the engine makes "
				   "one of its clock");
	if (!absent(input) && input.kind != VALUE_DICT)
		return prompt_stop(t->p, PROMPT_REFUSED, "a tool_use's input is no object");
	input = tools_arguments(t->p, input);
	if (!d || !f || input.kind == VALUE_UNDEFINED || !value_put_str(f, "arguments", input) ||
	    !value_put_str(f, "name", name.kind == VALUE_STRING ? name : value_str("")) ||
	    !value_put_str(d, "id", id) || !value_put_str(d, "function", value_of_dict(f)) ||
	    !value_put_str(d, "type", value_str("function")) ||
	    !value_push(&t->p->bump, &b->calls, value_of_dict(d)))
		return prompt_no_memory(t->p);
	return true;
}

static bool
tool_message(struct turning *t, struct value id, struct value content)
{
	struct value_dict *d = value_dict_new(&t->p->bump, 3);

	if (!d || !value_put_str(d, "role", value_str("tool")) ||
	    !value_put_str(d, "tool_call_id", id.kind == VALUE_STRING ? id : value_str("")) ||
	    !value_put_str(d, "content", content))
		return prompt_no_memory(t->p);
	return push(t, value_of_dict(d));
}

/* A user's tool_result: the tool's text, then what is no text in messages of its own. */
static bool
tool_result(struct turning *t, struct value block)
{
	struct value content = value_member(block, "content"), id, text = value_str(""), name;
	struct value_items texts = {0};
	struct blocks images = {0}, references = {0};

	id = value_member(block, "tool_use_id");
	for (uint32_t i = 0; content.kind == VALUE_LIST && i < content.n; i++) {
		struct value type = value_member(content.items[i], "type");
		struct value v = value_member(content.items[i], "text");
		bool fine = true;

		if (value_is_text(type, "text")) {
			v = v.kind == VALUE_STRING ? v : value_str("");
			fine = value_push(&t->p->bump, &texts, v) || prompt_no_memory(t->p);
		} else if (value_is_text(type, "image")) {
			fine = add_part(t, &images, "image_url", "image_url", value_str(""));
		} else if (value_is_text(type, "tool_reference")) {
			name = value_member(content.items[i], "tool_name");
			if (name.kind != VALUE_STRING || name.n == 0)
				name = value_member(content.items[i], "name");
			if (name.kind == VALUE_STRING && name.n)
				fine = add_part(t, &references, "tool_reference", "name", name);
		}
		if (!fine)
			return false;
	}
	if (content.kind == VALUE_STRING)
		text = content;
	else if (texts.n && !joined(t->p, &texts, "\n", &text))
		return false;
	return tool_message(t, id, text) &&
	       (images.parts.n == 0 || say(t, "user", value_list_of(&images.parts))) &&
	       (references.parts.n == 0 ||
		tool_message(t, id, value_list_of(&references.parts)));
}

/* An assistant's is a text part. */
static bool
told_result(struct turning *t, struct blocks *b, struct value block)
{
	struct value content = value_member(block, "content"), text;
	struct value_items both = {0};

	if (value_true(content) && content.kind != VALUE_STRING)
		return prompt_stop(t->p, PROMPT_UNKNOWN, "an assistant's tool_result in blocks");
	if (!value_push(&t->p->bump, &both, value_str("Tool result: ")) ||
	    (content.kind == VALUE_STRING && !value_push(&t->p->bump, &both, content)))
		return prompt_no_memory(t->p);
	return joined(t->p, &both, "", &text) && add_part(t, b, "text", "text", text);
}

static bool
add_block(struct turning *t, struct blocks *b, bool user, struct value block)
{
	struct value type = value_member(block, "type"), text = value_member(block, "text");

	if (value_is_text(type, "text"))
		return text.kind != VALUE_STRING || text.n == 0 ||
		       add_part(t, b, "text", "text", text);
	if (value_is_text(type, "image"))
		return !value_true(value_member(block, "source")) ||
		       add_part(t, b, "image_url", "image_url", value_str(""));
	if (value_is_text(type, "thinking")) {
		text = value_member(block, "thinking");
		return text.kind != VALUE_STRING || value_push(&t->p->bump, &b->thoughts, text) ||
		       prompt_no_memory(t->p);
	}
	if (value_is_text(type, "tool_use"))
		return tool_use(t, b, block);
	if (value_is_text(type, "tool_result"))
		return user ? tool_result(t, block) : told_result(t, b, block);
	if (value_is_text(type, "redacted_thinking") || value_is_text(type, "tool_reference"))
		return true;
	return prompt_stop(t->p, PROMPT_REFUSED, "a content block of type \"%.*s\"",
			   type.kind == VALUE_STRING ? (int)type.n : 0,
			   type.kind == VALUE_STRING ? type.s : "");
}

static bool
put_blocks(struct turning *t, const struct blocks *b, struct value_dict *d)
{
	struct value text;

	if (b->thoughts.n) {
		if (!joined(t->p, &b->thoughts, "", &text))
			return false;
		if (!value_put_str(d, "reasoning", text))
			return prompt_no_memory(t->p);
	}
	if (b->calls.n && !value_put_str(d, "tool_calls", value_list_of(&b->calls)))
		return prompt_no_memory(t->p);
	if (b->parts.n == 0)
		return true;
	text = value_member(b->parts.item[0], "text");
	if (b->parts.n > 1 || text.kind != VALUE_STRING)
		text = value_list_of(&b->parts);
	return value_put_str(d, "content", text) || prompt_no_memory(t->p);
}

static bool
add_message(struct turning *t, struct value message)
{
	struct value role = value_member(message, "role");
	struct value content = value_member(message, "content");
	struct value_dict *d = value_dict_new(&t->p->bump, 4);
	bool user = value_is_text(role, "user");
	struct blocks b = {0};

	if (!user && !value_is_text(role, "assistant") && !value_is_text(role, "system"))
		return prompt_stop(t->p, PROMPT_REFUSED, "a message of a role that is neither user "
				   "nor assistant nor system");
	if (content.kind != VALUE_STRING && content.kind != VALUE_LIST)
		return prompt_stop(t->p, PROMPT_REFUSED, "content is neither text nor blocks");
	if (value_is_text(role, "system"))
		return system_inline(t, message);
	if (!d || !value_put_str(d, "role", role))
		return prompt_no_memory(t->p);
	if (content.kind == VALUE_STRING && !value_put_str(d, "content", content))
		return prompt_no_memory(t->p);
	for (uint32_t i = 0; content.kind == VALUE_LIST && i < content.n; i++)
		if (!add_block(t, &b, user, content.items[i]))
			return false;
	if (!put_blocks(t, &b, d))
		return false;
	if (user && value_member(value_of_dict(d), "content").kind == VALUE_UNDEFINED)
		return true;            /* it only brought results */
	return push(t, value_of_dict(d));
}

/* --- tools, and the rest ------------------------------------------------------------------- */

static bool
add_tool(struct prompt_maker *p, struct value_items *list, struct value tool)
{
	static const char *const from[] = {"name", "description", "strict", "defer_loading"};
	struct value schema = value_member(tool, "input_schema"), one;
	struct value_dict *f = value_dict_new(&p->bump, 5), *s;

	if (schema.kind != VALUE_DICT)
		return prompt_stop(p, PROMPT_REFUSED, "a tool without input_schema");
	if (value_member(schema, "type").kind == VALUE_UNDEFINED) {
		s = value_dict_new(&p->bump, schema.dict->n + 1);
		for (uint32_t i = 0; s && i < schema.dict->n; i++)
			if (!value_put(s, schema.dict->pair[i].key, schema.dict->pair[i].value))
				return prompt_no_memory(p);
		if (!s || !value_put_str(s, "type", value_str("object")))
			return prompt_no_memory(p);
		schema = value_of_dict(s);
	}
	for (size_t i = 0; f && i < sizeof from / sizeof from[0]; i++) {
		struct value v = value_member(tool, from[i]);

		if (v.kind != VALUE_UNDEFINED && !value_put_str(f, from[i], v))
			return prompt_no_memory(p);
	}
	if (!f || !value_put_str(f, "parameters", schema))
		return prompt_no_memory(p);
	if (!tools_one(p, value_of_dict(f), value_none(), &one))
		return false;
	return value_push(&p->bump, list, one) || prompt_no_memory(p);
}

static bool
tools_of(struct prompt_maker *p, struct value body, struct prompt_ask *ask)
{
	struct value tools = value_member(body, "tools");
	struct value choice = value_member(value_member(body, "tool_choice"), "type");
	struct value_items list = {0};

	ask->tools = value_none();
	if (absent(tools))
		return true;
	if (tools.kind != VALUE_LIST)
		return prompt_stop(p, PROMPT_REFUSED, "tools is no list");
	for (uint32_t i = 0; i < tools.n; i++)
		if (!add_tool(p, &list, tools.items[i]))
			return false;
	if (!value_is_text(choice, "none") || !p->m->exclude_tools)
		ask->tools = value_list_of(&list);
	return true;
}

/* output_config.effort, unless thinking is disabled. */
static bool
effort_of(struct prompt_maker *p, struct value body, struct prompt_ask *ask)
{
	struct value effort = value_member(value_member(body, "output_config"), "effort");
	struct value thinking = value_member(value_member(body, "thinking"), "type");

	if (value_is_text(thinking, "enabled")) {
		struct value budget = value_member(value_member(body, "thinking"), "budget_tokens");
		int64_t n;

		if (absent(budget) || !lax_int(budget, &n) || n < 1024)
			return prompt_stop(p, PROMPT_REFUSED, "thinking.budget_tokens is no number "
					   "from 1024 on");
	}
	if (value_is_text(thinking, "disabled"))
		effort = value_str(p->m->effort_none ? "none" : "low");
	return chat_effort(p, effort, ask->kwargs, ask);
}

bool
messages_ask(struct prompt_maker *p, struct value body, bool counting, struct prompt_ask *ask)
{
	struct value messages = value_member(body, "messages");
	struct value most = value_member(body, "max_tokens");
	struct turning t = {.p = p};

	ask->cut = (struct prompt_cut){.keep = PROMPT_ABSENT};
	ask->documents = ask->ids = value_none();
	ask->calls_made = true;
	ask->generation_prompt = true;
	ask->continue_final = false;
	if (messages.kind != VALUE_LIST)
		return prompt_stop(p, PROMPT_REFUSED, "messages is no list");
	if (!counting && absent(most))
		return prompt_stop(p, PROMPT_REFUSED, "there is no max_tokens");
	if (!counting && !lax_output(p, "max_tokens", most, 0, &ask->cut))
		return false;
	if (!counting && !prompt_take_salt(p, value_member(body, "cache_salt")))
		return false;
	if (!system_first(&t, body, messages))
		return false;
	for (uint32_t i = 0; i < messages.n; i++)
		if (!add_message(&t, messages.items[i]))
			return false;
	if (t.messages.n == 0)
		return prompt_stop(p, PROMPT_REFUSED, "nothing is said");
	ask->messages = value_list_of(&t.messages);
	return chat_kwargs(p, body, ask) && tools_of(p, body, ask) && effort_of(p, body, ask);
}
