/* actors/common/prompt/chat.c -- chat completions, and the chat form of tokenize, become asks.
 *
 * What is refused here is what vLLM refuses before it renders; a request that it refuses for
 * reasons that say nothing of the prompt may pass: the engine has the last word.
 */
#include <string.h>

#include "actors/common/prompt/request_private.h"

static bool
absent(struct value v)
{
	return v.kind == VALUE_UNDEFINED || v.kind == VALUE_NONE;
}

bool
chat_kwargs(struct prompt_maker *p, struct value body, struct prompt_ask *ask)
{
	static const char *const clash[] = {"messages", "conversation", "model_config",
					    "self", "tokenizer"};
	static const char *const steers[] = {"tokenize", "return_assistant_tokens_mask",
					     "chat_template"};
	struct value kwargs = value_member(body, "chat_template_kwargs");
	struct value own = value_member(body, "chat_template");

	ask->kwargs = value_none();
	if (!absent(own) && own.kind != VALUE_STRING)
		return prompt_stop(p, PROMPT_REFUSED, "chat_template is no text");
	if (!absent(kwargs) && kwargs.kind != VALUE_DICT)
		return prompt_stop(p, PROMPT_REFUSED, "chat_template_kwargs is no object");
	if (!p->m->trust_template &&
	    (!absent(own) || !absent(value_member(kwargs, "chat_template"))))
		return prompt_stop(p, PROMPT_REFUSED, "the request brings a chat template, and "
				   "the engine does not trust those");
	if (own.kind == VALUE_STRING && own.n)
		ask->own_template = value_slice(own);
	if (kwargs.kind != VALUE_DICT)
		return true;
	for (size_t i = 0; i < sizeof clash / sizeof clash[0]; i++)
		if (!absent(value_member(kwargs, clash[i])))
			return prompt_stop(p, PROMPT_REFUSED, "chat_template_kwargs has \"%s\"",
					   clash[i]);
	for (size_t i = 0; i < sizeof steers / sizeof steers[0]; i++)
		if (value_true(value_member(kwargs, steers[i])))
			return prompt_stop(p, PROMPT_UNKNOWN, "chat_template_kwargs has \"%s\"",
					   steers[i]);
	ask->kwargs = kwargs;
	return true;
}

/* reasoning_effort, and what follows from it where the request does not say itself. */
bool
chat_effort(struct prompt_maker *p, struct value effort, struct value kwargs,
	    struct prompt_ask *ask)
{
	static const char *const known[] = {"none", "minimal", "low", "medium", "high", "xhigh",
					    "max"};

	ask->effort = ask->thinking = value_none();
	if (absent(effort))
		return true;
	for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
		if (value_is_text(effort, known[i])) {
			ask->effort = effort;
			if (value_member(kwargs, "enable_thinking").kind == VALUE_UNDEFINED)
				ask->thinking = value_bool(i != 0);
			return true;
		}
	return prompt_stop(p, PROMPT_REFUSED, "reasoning_effort is none that is known");
}

static bool
documents(struct prompt_maker *p, struct value body, struct prompt_ask *ask)
{
	struct value list = value_member(body, "documents");

	ask->documents = value_none();
	if (absent(list))
		return true;
	if (list.kind != VALUE_LIST)
		return prompt_stop(p, PROMPT_REFUSED, "documents is no list");
	for (uint32_t i = 0; i < list.n; i++) {
		if (list.items[i].kind != VALUE_DICT)
			return prompt_stop(p, PROMPT_REFUSED, "documents[%u] is no object", i);
		for (uint32_t k = 0; k < list.items[i].dict->n; k++)
			if (list.items[i].dict->pair[k].value.kind != VALUE_STRING)
				return prompt_stop(p, PROMPT_REFUSED, "documents[%u] has a member "
						   "that is no text", i);
	}
	ask->documents = list;
	return true;
}

static bool
output_tokens(struct prompt_maker *p, struct value body, struct prompt_ask *ask)
{
	struct value most = value_member(body, "max_completion_tokens");

	if (absent(most))
		most = value_member(body, "max_tokens");
	return lax_output(p, "max_tokens", most, 0, &ask->cut);
}

/* add_generation_prompt and continue_final_message. */
static bool
ends(struct prompt_maker *p, struct value body, struct prompt_ask *ask)
{
	struct value prompt = value_member(body, "add_generation_prompt");

	if (!lax_bool(prompt, true, &ask->generation_prompt) ||
	    !lax_bool(value_member(body, "continue_final_message"), false, &ask->continue_final))
		return prompt_stop(p, PROMPT_REFUSED, "add_generation_prompt or "
				   "continue_final_message is neither true nor false");
	if (ask->continue_final && ask->generation_prompt)
		return prompt_stop(p, PROMPT_REFUSED, "continue_final_message with "
				   "add_generation_prompt%s",
				   absent(prompt) ? " (true where it is not given)" : "");
	return true;
}

/* vLLM renames reasoning_content before it validates; a message may be shared, so copies. */
static bool
rename_reasoning(struct prompt_maker *p, struct value *list)
{
	struct value *items = NULL;

	for (uint32_t i = 0; i < list->n; i++) {
		struct value old = value_member(list->items[i], "reasoning_content");
		struct value_dict *d;

		if (absent(old) || !absent(value_member(list->items[i], "reasoning")))
			continue;
		if (!items) {
			items = bump_take(&p->bump, list->n * sizeof items[0]);
			if (!items)
				return prompt_no_memory(p);
			memcpy(items, list->items, list->n * sizeof items[0]);
		}
		d = value_dict_new(&p->bump, list->items[i].dict->n + 1);
		for (uint32_t k = 0; d && k < list->items[i].dict->n; k++)
			if (!value_put(d, list->items[i].dict->pair[k].key,
				       list->items[i].dict->pair[k].value))
				return prompt_no_memory(p);
		if (!d || !value_put_str(d, "reasoning", old))
			return prompt_no_memory(p);
		items[i] = value_of_dict(d);
	}
	if (items)
		*list = value_list(items, list->n);
	return true;
}

/* Decoding engines are handed the ids of those that prefilled. */
static bool
reused_ids(struct prompt_maker *p, struct value body, struct value *ret)
{
	struct value transfer = value_member(body, "kv_transfer_params");
	struct value ids = value_member(transfer, "prompt_token_ids");
	bool fits = ids.kind == VALUE_LIST && ids.n > 0;

	*ret = value_none();
	if (!absent(transfer) && transfer.kind != VALUE_DICT)
		return prompt_stop(p, PROMPT_REFUSED, "kv_transfer_params is no object");
	if (absent(ids) || value_true(value_member(body, "echo")))
		return true;
	for (uint32_t i = 0; fits && i < ids.n; i++)
		fits = ids.items[i].kind == VALUE_INT && ids.items[i].i >= 0;
	if (!fits)
		return prompt_stop(p, PROMPT_REFUSED, "kv_transfer_params.prompt_token_ids is no "
				   "list of token ids, or empty");
	*ret = ids;
	return true;
}

/* Does a content's part have a member by which vLLM's own models know it? */
static bool
part_tells(struct value part)
{
	static const char *const texts[] = {"text", "refusal", "thinking"};
	static const char *const keys[] = {"uuid", "name", "data", "file", "image_url",
		"image_pil", "image_embeds", "audio_url", "audio_embeds", "input_audio",
		"video_url", "video_embeds"};
	struct value type = value_member(part, "type");

	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
		if (value_is_text(type, texts[i]) &&
		    value_member(part, texts[i]).kind == VALUE_STRING)
			return true;
	for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
		if (value_member(part, keys[i]).kind != VALUE_UNDEFINED)
			return true;
	return value_is_text(type, "tool_reference");
}

/* Of two readings of a message, OpenAI's and its own, vLLM (0.32) takes the one that knows more
 * members, of equal ones OpenAI's; and that one then refuses parts that it does not know.  False:
 * that is what happens to this list. */
static bool
parts_fit(struct value m, struct value role, struct value content)
{
	static const char *const own[] = {"reasoning", "reasoning_content", "task", "tools",
					  "tool_calls", "tool_call_id"};
	static const char *const roles[] = {"user", "system", "developer", "assistant", "tool"};
	bool tool = value_is_text(role, "tool"), openai = false;

	for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++)
		openai |= value_is_text(role, roles[i]);
	if (tool && value_member(m, "tool_call_id").kind != VALUE_STRING)
		openai = false;
	for (size_t i = 0; i < sizeof own / sizeof own[0] - (tool ? 1 : 0); i++)
		if (value_member(m, own[i]).kind != VALUE_UNDEFINED)
			return true;
	if (tool && value_member(m, "name").kind != VALUE_UNDEFINED)
		return true;
	for (uint32_t i = 0; openai && i < content.n; i++)
		if (part_tells(content.items[i]))
			return true;
	return !openai || content.n == 0;
}

static bool
message_fits(struct prompt_maker *p, struct value m)
{
	struct value role = value_member(m, "role"), content = value_member(m, "content");
	struct value name = value_member(m, "name"), id = value_member(m, "tool_call_id");

	if (name.kind != VALUE_UNDEFINED && name.kind != VALUE_STRING)
		return prompt_stop(p, PROMPT_REFUSED, "a message's name is no text");
	if (value_is_text(role, "tool") && !absent(id) && id.kind != VALUE_STRING)
		return prompt_stop(p, PROMPT_REFUSED, "a message's tool_call_id is no text");
	if (content.kind == VALUE_LIST && !parts_fit(m, role, content))
		return prompt_stop(p, PROMPT_REFUSED, "content of role %.*s: none of its parts is "
				   "one that the engine's models know", (int)role.n, role.s);
	return true;
}

static bool
messages_of(struct prompt_maker *p, struct value body, struct prompt_ask *ask)
{
	ask->messages = value_member(body, "messages");
	if (ask->messages.kind != VALUE_LIST)
		return prompt_stop(p, PROMPT_REFUSED, "messages is no list");
	if (ask->messages.n == 0)
		return prompt_stop(p, PROMPT_REFUSED, "messages is empty");
	for (uint32_t i = 0; i < ask->messages.n; i++)
		if (!message_fits(p, ask->messages.items[i]))
			return false;
	return true;
}

bool
chat_ask(struct prompt_maker *p, struct value body, struct prompt_ask *ask)
{
	struct value tools = value_member(body, "tools");
	bool none = false;

	ask->cut = (struct prompt_cut){.keep = PROMPT_ABSENT};
	if (!messages_of(p, body, ask) || !rename_reasoning(p, &ask->messages) ||
	    !prompt_take_salt(p, value_member(body, "cache_salt")) ||
	    !chat_kwargs(p, body, ask) ||
	    !chat_effort(p, value_member(body, "reasoning_effort"), ask->kwargs, ask) ||
	    !documents(p, body, ask) || !ends(p, body, ask) || !output_tokens(p, body, ask) ||
	    !lax_cut(p, body, &ask->cut) || !tools_chosen(p, body, tools, &none) ||
	    !tools_dump(p, tools, &ask->tools) || !reused_ids(p, body, &ask->ids))
		return false;
	if (none && p->m->exclude_tools)
		ask->tools = value_none();
	return true;
}

bool
chat_tokenize_ask(struct prompt_maker *p, struct value body, struct prompt_ask *ask)
{
	ask->cut = (struct prompt_cut){.keep = PROMPT_ABSENT};
	ask->documents = ask->effort = ask->thinking = ask->ids = value_none();
	if (!messages_of(p, body, ask) || !chat_kwargs(p, body, ask) || !ends(p, body, ask))
		return false;
	if (!lax_bool(value_member(body, "add_special_tokens"), false, &ask->cut.add_special))
		return prompt_stop(p, PROMPT_REFUSED, "add_special_tokens is neither true nor "
				   "false");
	ask->tools = value_member(body, "tools");
	if (ask->tools.kind == VALUE_LIST && ask->tools.n == 0)
		return true;            /* an empty list passes here */
	return tools_dump(p, ask->tools, &ask->tools);
}
