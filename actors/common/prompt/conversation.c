/* actors/common/prompt/conversation.c -- a request's messages as the chat template sees them.
 *
 * Format     content is one text, or a list of parts, by the template (content format); what else
 *            a message says is kept or dropped by its role.
 * Media      a part that is no text becomes what its modality is called, or, in the format of
 *            texts, a placeholder in front that only the engine knows.  What follows the first of
 *            them is not known here: so messages are made a second time with a mark in its place;
 *            what both render alike is what comes before it.
 */
#include <string.h>

#include "actors/common/prompt/request_private.h"

#define BILLING "x-anthropic-billing-header"    /* Claude Code's; changes with every request */
#define MARK    "\001"                          /* no placeholder begins so */

struct making {
	struct prompt_maker *p;
	bool openai, mark, calls_made;
	bool media;                     /* one has been met */
};

static bool
absent(struct value v)
{
	return v.kind == VALUE_UNDEFINED || v.kind == VALUE_NONE;
}

static bool
part_of(struct making *c, const char *type, const char *key, struct value text, struct value from,
	struct value *ret)
{
	/* What the request's models know of a part is dropped with it; the rest is kept. */
	static const char *const known[] = {"audio_embeds", "audio_url", "closed", "data", "file",
		"image_embeds", "image_pil", "image_url", "input_audio", "name",
		"prompt_cache_breakpoint", "refusal", "text", "thinking", "type", "uuid",
		"video_embeds", "video_url"};
	struct value_dict *d = value_dict_new(&c->p->bump, 2);
	bool fine = d && value_put_str(d, "type", value_str(type)) &&
		    (!key || value_put_str(d, key, text));

	for (uint32_t i = 0; fine && from.kind == VALUE_DICT && i < from.dict->n; i++) {
		bool is = false;

		for (size_t k = 0; k < sizeof known / sizeof known[0] && !is; k++)
			is = value_is_text(from.dict->pair[i].key, known[k]);
		if (!is)
			fine = value_put(d, from.dict->pair[i].key, from.dict->pair[i].value);
	}
	if (!fine)
		return prompt_no_memory(c->p);
	*ret = value_of_dict(d);
	return true;
}

/* --- parts --------------------------------------------------------------------------------- */

/* The modality a part of this type has in a template; NULL: none. */
static const char *
modality(struct value type)
{
	static const struct {
		const char *type, *modality;
	} media[] = {
		{"image_url", "image"}, {"input_image", "image"}, {"image_pil", "image"},
		{"image_embeds", "image"}, {"audio_url", "audio"}, {"input_audio", "audio"},
		{"audio_embeds", "audio"}, {"video_url", "video"}, {"video_embeds", "video"},
		{"prompt_embeds", "text"},
	};

	for (size_t i = 0; i < sizeof media / sizeof media[0]; i++)
		if (value_is_text(type, media[i].type))
			return media[i].modality;
	return NULL;
}

/* A part whose type is absent, or that has a uuid, is what its members say. */
static const char *
modality_by_member(struct value part)
{
	static const char *const keys[] = {"image_url", "image_pil", "image_embeds",
					   "audio_embeds", "video_embeds", "prompt_embeds",
					   "audio_url", "input_audio", "video_url"};

	for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
		if (value_member(part, keys[i]).kind != VALUE_UNDEFINED)
			return modality(value_str(keys[i]));
	return NULL;
}

/* The text of a part that is text: undefined for one that is skipped. */
static bool
text_of_part(struct making *c, struct value part, bool *ret_is, struct value *ret)
{
	static const struct {
		const char *type, *key;
		bool skipped;           /* without a text it is left out */
	} texts[] = {
		{"text", "text", true}, {"refusal", "refusal", true},
		{"input_text", "text", false}, {"output_text", "text", false},
		{"thinking", "thinking", false},
	};
	struct value type = value_member(part, "type");

	*ret_is = false;
	if (!absent(value_member(part, "uuid")))
		return true;
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
		if (!value_is_text(type, texts[i].type))
			continue;
		*ret_is = true;
		*ret = value_member(part, texts[i].key);
		if (absent(*ret) && texts[i].skipped)
			*ret = value_undefined();
		else if (ret->kind != VALUE_STRING)
			return prompt_stop(c->p, PROMPT_REFUSED, "a content part's %s is no text",
					   texts[i].key);
		return true;
	}
	return true;
}

static bool
add_medium(struct making *c, struct value part, const char *what, struct value_items *out)
{
	bool marked = c->mark && !c->media;
	struct value made;

	c->media = true;
	if (c->openai && !marked) {
		if (!part_of(c, what, NULL, value_none(), part, &made))
			return false;
	} else if (c->openai) {
		if (!part_of(c, "text", "text", value_str(MARK), value_none(), &made))
			return false;
	} else if (marked) {
		/* The engine puts its placeholder before all texts of the message. */
		made = value_str(MARK);
		if (out->n) {
			if (!value_push(&c->p->bump, out, made))
				return prompt_no_memory(c->p);
			memmove(out->item + 1, out->item, (out->n - 1) * sizeof out->item[0]);
			out->item[0] = made;
			return true;
		}
	} else {
		return true;
	}
	return value_push(&c->p->bump, out, made) || prompt_no_memory(c->p);
}

static bool
add_part(struct making *c, struct value part, struct value_items *out)
{
	struct value type = value_member(part, "type"), text, made;
	const char *what = NULL;
	bool is = false;

	if (part.kind == VALUE_STRING) {
		is = true;
		text = part;
	} else if (part.kind != VALUE_DICT) {
		return prompt_stop(c->p, PROMPT_REFUSED, "a content part is no object");
	} else if (!text_of_part(c, part, &is, &text)) {
		return false;
	}
	if (is) {
		if (text.kind == VALUE_UNDEFINED || (!c->openai && text.n == 0))
			return true;
		made = text;
		if (c->openai && !part_of(c, "text", "text", text, part, &made))
			return false;
		return value_push(&c->p->bump, out, made) || prompt_no_memory(c->p);
	}
	if (value_is_text(type, "tool_reference")) {
		made = value_member(part, "name");
		if (made.kind != VALUE_STRING)
			return prompt_stop(c->p, PROMPT_REFUSED, "a tool reference lacks a name");
		if (c->openai && !part_of(c, "tool_reference", "name", made, value_none(), &made))
			return false;
		return value_push(&c->p->bump, out, made) || prompt_no_memory(c->p);
	}
	if (type.kind == VALUE_STRING && absent(value_member(part, "uuid")))
		what = modality(type);
	else
		what = modality_by_member(part);
	if (what)
		return add_medium(c, part, what, out);
	return prompt_stop(c->p, PROMPT_REFUSED, "a content part of type \"%.*s\"",
			   type.kind == VALUE_STRING ? (int)type.n : 0,
			   type.kind == VALUE_STRING ? type.s : "");
}

/* The line of Claude Code's header is dropped from system texts.  Undefined: nothing is left. */
static struct value
without_billing(struct value text)
{
	const char *end;

	if (text.kind != VALUE_STRING || text.n < sizeof BILLING - 1 ||
	    memcmp(text.s, BILLING, sizeof BILLING - 1) != 0)
		return text;
	end = memchr(text.s, '\n', text.n);
	if (!end || end + 1 == text.s + text.n)
		return value_undefined();
	return value_string(slice_of(end + 1, (size_t)(text.s + text.n - end - 1)));
}

static bool
without_billing_part(struct making *c, struct value *part)
{
	struct value text, cut;
	struct value_dict *d;

	if (part->kind == VALUE_STRING) {
		*part = without_billing(*part);
		return true;
	}
	text = value_member(*part, "text");
	if (!value_is_text(value_member(*part, "type"), "text") || text.kind != VALUE_STRING)
		return true;
	cut = without_billing(text);
	if (cut.kind == VALUE_UNDEFINED) {
		*part = cut;
		return true;
	}
	if (cut.s == text.s)
		return true;
	d = value_dict_new(&c->p->bump, part->dict->n);
	for (uint32_t i = 0; d && i < part->dict->n; i++)
		if (!value_put(d, part->dict->pair[i].key, part->dict->pair[i].value))
			return prompt_no_memory(c->p);
	if (!d || !value_put_str(d, "text", cut))
		return prompt_no_memory(c->p);
	*part = value_of_dict(d);
	return true;
}

/* --- content ------------------------------------------------------------------------------- */

static bool
join(struct making *c, const struct value_items *texts, const char *between, struct value *ret)
{
	size_t gap = strlen(between), n = 0, at = 0;
	char *p;

	if (texts->n <= 1) {
		*ret = texts->n ? texts->item[0] : value_str("");
		return true;
	}
	for (uint32_t i = 0; i < texts->n; i++)
		n += texts->item[i].n + (i ? gap : 0);
	p = n < UINT32_MAX ? bump_bytes(&c->p->bump, n) : NULL;
	if (!p)
		return prompt_no_memory(c->p);
	for (uint32_t i = 0; i < texts->n; i++) {
		if (i)
			memcpy(p + at, between, gap);
		at += i ? gap : 0;
		memcpy(p + at, texts->item[i].s, texts->item[i].n);
		at += texts->item[i].n;
	}
	*ret = value_string(slice_of(p, n));
	return true;
}

static bool
content_of(struct making *c, struct value message, bool system, struct value *ret)
{
	struct value content = value_member(message, "content"), one, list;
	struct value role = value_member(message, "role");
	struct value_items out = {0};

	if (content.kind == VALUE_NONE && !value_is_text(role, "assistant") &&
	    !value_is_text(role, "function"))
		return prompt_stop(c->p, PROMPT_REFUSED, "content null of role %.*s", (int)role.n,
				   role.s);
	if (!absent(content) && content.kind != VALUE_STRING && content.kind != VALUE_LIST)
		return prompt_stop(c->p, PROMPT_REFUSED, "content is neither text nor list");
	one = content;
	list = content.kind == VALUE_LIST ? content : value_list(&one, absent(content) ? 0 : 1);
	for (uint32_t i = 0; i < list.n; i++) {
		struct value part = list.items[i];

		if (system && !without_billing_part(c, &part))
			return false;
		if (part.kind != VALUE_UNDEFINED && !add_part(c, part, &out))
			return false;
	}
	if (c->openai) {
		*ret = value_list_of(&out);
		return true;
	}
	return join(c, &out, "\n", ret);
}

/* A tool's result is one text, unless something in it is no text. */
static bool
tool_content(struct making *c, struct value *content)
{
	struct value_items texts = {0};

	if (content->kind != VALUE_LIST)
		return true;
	for (uint32_t i = 0; i < content->n; i++) {
		if (!value_is_text(value_member(content->items[i], "type"), "text"))
			return true;
		if (!value_push(&c->p->bump, &texts, value_member(content->items[i], "text")))
			return prompt_no_memory(c->p);
	}
	return join(c, &texts, "\n", content);
}

/* --- messages ------------------------------------------------------------------------------ */

/* Members of a developer's tools in the order of the request's models. */
static bool
developer_tools(struct making *c, struct value tools, struct value *ret)
{
	static const char *const of_function[] = {"name", "description", "parameters", "strict"};
	struct value_items list = {0};

	*ret = value_none();
	if (absent(tools))
		return true;
	if (tools.kind != VALUE_LIST)
		return prompt_stop(c->p, PROMPT_REFUSED, "a developer's tools is no list");
	for (uint32_t i = 0; i < tools.n; i++) {
		struct value from = value_member(tools.items[i], "function");
		struct value_dict *t = value_dict_new(&c->p->bump, 2);
		struct value_dict *f = value_dict_new(&c->p->bump, 4);

		if (from.kind != VALUE_DICT)
			return prompt_stop(c->p, PROMPT_REFUSED, "a developer's tool is no "
					   "function");
		for (size_t k = 0; f && k < sizeof of_function / sizeof of_function[0]; k++) {
			struct value v = value_member(from, of_function[k]);

			if (v.kind != VALUE_UNDEFINED && !value_put_str(f, of_function[k], v))
				return prompt_no_memory(c->p);
		}
		for (uint32_t k = 0; f && k < from.dict->n; k++)
			if (!value_put(f, from.dict->pair[k].key, from.dict->pair[k].value))
				return prompt_no_memory(c->p);
		if (!t || !f || !value_put_str(t, "function", value_of_dict(f)) ||
		    !value_put_str(t, "type", value_str("function")) ||
		    !value_push(&c->p->bump, &list, value_of_dict(t)))
			return prompt_no_memory(c->p);
	}
	*ret = value_list_of(&list);
	return true;
}

static bool
assistant(struct making *c, struct value message, struct value_dict *d)
{
	struct value calls = value_member(message, "tool_calls");
	struct value reasoning = value_member(message, "reasoning");

	if (!absent(calls)) {
		if (!c->calls_made && !tools_normal_calls(c->p, calls, &calls))
			return false;
		if (calls.n && !value_put_str(d, "tool_calls", calls))
			return prompt_no_memory(c->p);
	}
	if (!absent(reasoning) && (!value_put_str(d, "reasoning", reasoning) ||
				   !value_put_str(d, "reasoning_content", reasoning)))
		return prompt_no_memory(c->p);
	return true;
}

static bool
message_of(struct making *c, struct value message, struct value *ret)
{
	static const char *const kept[] = {"name", "task"};
	struct value role = value_member(message, "role"), content, v;
	struct value_dict *d = value_dict_new(&c->p->bump, 6);
	bool tool;

	if (message.kind != VALUE_DICT || role.kind != VALUE_STRING)
		return prompt_stop(c->p, PROMPT_REFUSED, "a message without a role");
	tool = value_is_text(role, "tool");
	if (!content_of(c, message, value_is_text(role, "system"), &content) ||
	    (tool && !tool_content(c, &content)))
		return false;
	if (!d || !value_put_str(d, "role", role) || !value_put_str(d, "content", content))
		return prompt_no_memory(c->p);
	if (value_is_text(role, "assistant") && !assistant(c, message, d))
		return false;
	v = value_member(message, "tool_call_id");
	if (tool && v.kind != VALUE_UNDEFINED && !value_put_str(d, "tool_call_id", v))
		return prompt_no_memory(c->p);
	for (size_t i = 0; i < 2; i++) {
		v = value_member(message, kept[i]);
		if (v.kind == VALUE_STRING && !value_put_str(d, kept[i], v))
			return prompt_no_memory(c->p);
	}
	if (value_is_text(role, "developer") &&
	    (!developer_tools(c, value_member(message, "tools"), &v) ||
	     (!value_put_str(d, "tools", v) && !prompt_no_memory(c->p))))
		return false;
	*ret = value_of_dict(d);
	return true;
}

/* --- the developer's role ------------------------------------------------------------------ */

/* A text of a content that may be parts. */
static bool
flat(struct making *c, struct value content, struct value *ret)
{
	struct value_items texts = {0};

	*ret = content;
	if (content.kind != VALUE_LIST)
		return true;
	for (uint32_t i = 0; i < content.n; i++) {
		struct value text = value_member(content.items[i], "text");

		if (text.kind == VALUE_STRING && !value_push(&c->p->bump, &texts, text))
			return prompt_no_memory(c->p);
	}
	return join(c, &texts, "\n", ret);
}

/* Where the template does not know developers they are systems, and then all systems are one. */
static bool
developers_to_systems(struct making *c, struct value *messages)
{
	struct value_items systems = {0}, others = {0}, all = {0};
	struct value_dict *first;
	bool needed = false;
	struct value joined;

	for (uint32_t i = 0; i < messages->n; i++) {
		struct value m = messages->items[i], role = value_member(m, "role"), text;

		if (value_is_text(role, "developer")) {
			struct value_dict *d = value_dict_new(&c->p->bump, m.dict->n);

			for (uint32_t k = 0; d && k < m.dict->n; k++)
				if (!value_is_text(m.dict->pair[k].key, "tools") &&
				    !value_put(d, m.dict->pair[k].key, m.dict->pair[k].value))
					return prompt_no_memory(c->p);
			role = value_str("system");
			if (!d || !value_put_str(d, "role", role))
				return prompt_no_memory(c->p);
			m = value_of_dict(d);
		}
		if (!value_push(&c->p->bump, &all, m))
			return prompt_no_memory(c->p);
		if (!value_is_text(role, "system")) {
			if (!value_push(&c->p->bump, &others, m))
				return prompt_no_memory(c->p);
			continue;
		}
		needed |= i > 0 || systems.n > 0;
		if (!flat(c, value_member(m, "content"), &text))
			return false;
		if (text.kind == VALUE_STRING && text.n && !value_push(&c->p->bump, &systems, text))
			return prompt_no_memory(c->p);
	}
	*messages = value_list_of(&all);
	if (!needed)
		return true;
	first = value_dict_new(&c->p->bump, 2);
	all = (struct value_items){0};
	if (!join(c, &systems, "\n\n", &joined))
		return false;
	if (!first || !value_put_str(first, "role", value_str("system")) ||
	    !value_put_str(first, "content", joined) ||
	    !value_push(&c->p->bump, &all, value_of_dict(first)))
		return prompt_no_memory(c->p);
	for (uint32_t i = 0; i < others.n; i++)
		if (!value_push(&c->p->bump, &all, others.item[i]))
			return prompt_no_memory(c->p);
	*messages = value_list_of(&all);
	return true;
}

static bool
make(struct making *c, struct value messages, bool developer, struct value *ret)
{
	struct value *made = bump_take(&c->p->bump, messages.n * sizeof made[0]);
	bool met = false;

	if (!made)
		return prompt_no_memory(c->p);
	for (uint32_t i = 0; i < messages.n; i++) {
		if (!message_of(c, messages.items[i], &made[i]))
			return false;
		met |= value_is_text(value_member(made[i], "role"), "developer");
	}
	*ret = value_list(made, messages.n);
	return !met || developer || developers_to_systems(c, ret);
}

bool
conversation_make(struct prompt_maker *p, const struct prompt_ask *ask, bool openai, bool developer,
		  struct conversation *ret)
{
	struct making c = {.p = p, .openai = openai, .calls_made = ask->calls_made};

	ret->marked = value_undefined();
	if (!make(&c, ask->messages, developer, &ret->messages))
		return false;
	if (!c.media)
		return true;
	c.mark = true;
	c.media = false;
	return make(&c, ask->messages, developer, &ret->marked);
}
