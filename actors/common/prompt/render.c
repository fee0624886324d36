/* actors/common/prompt/render.c -- an ask becomes text: template, its variables, its end. */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "actors/common/prompt/request_private.h"

/* What Transformers' call takes for itself: such a name never reaches the template, unless it is
 * one of those that the call hands on. */
static bool
taken_by_the_call(struct value key)
{
	static const char *const names[] = {"chat_template", "add_generation_prompt",
		"continue_final_message", "tokenize", "padding", "truncation", "max_length",
		"return_tensors", "return_dict", "return_assistant_tokens_mask",
		"tokenizer_kwargs", "tools", "documents"};

	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		if (value_is_text(key, names[i]))
			return true;
	return false;
}

static bool
unset(struct value v)
{
	return v.kind == VALUE_UNDEFINED || v.kind == VALUE_NONE || value_is_text(v, "auto");
}

struct rendering {
	struct prompt_maker *p;
	const struct prompt_ask *ask;
	const struct jinja *jinja;
	struct slice source;
	bool openai, developer;
};

static bool
put_used(struct rendering *r, struct value_dict *context, struct value key, struct value v)
{
	return taken_by_the_call(key) || !jinja_mentions(r->jinja, value_slice(key)) ||
	       value_put(context, key, v);
}

/* tools and documents: of the request, else of its arguments, else of the server's. */
static struct value
handed_on(struct rendering *r, struct value of_request, const char *key)
{
	struct value of_kwargs = value_member(r->ask->kwargs, key);
	struct value of_server = value_member(r->p->m->default_kwargs, key);
	bool tools = strcmp(key, "tools") == 0;

	if (tools && !unset(of_kwargs))
		return of_kwargs;
	if (!unset(of_request))
		return of_request;
	if (!unset(of_kwargs))
		return of_kwargs;
	return of_server.kind == VALUE_UNDEFINED ? value_none() : of_server;
}

static bool
context_of(struct rendering *r, struct value messages, struct value *ret)
{
	const struct model *m = r->p->m;
	const struct prompt_ask *ask = r->ask;
	struct value_dict *context = value_dict_new(&r->p->bump, 16);
	bool fine = context != NULL;

	for (uint32_t i = 0; fine && i < m->special_tokens.dict->n; i++)
		fine = value_put(context, m->special_tokens.dict->pair[i].key,
				 m->special_tokens.dict->pair[i].value);
	for (uint32_t i = 0; fine && i < m->default_kwargs.dict->n; i++)
		fine = put_used(r, context, m->default_kwargs.dict->pair[i].key,
				m->default_kwargs.dict->pair[i].value);
	for (uint32_t i = 0; fine && ask->kwargs.kind == VALUE_DICT && i < ask->kwargs.dict->n; i++)
		fine = unset(ask->kwargs.dict->pair[i].value) ||
		       put_used(r, context, ask->kwargs.dict->pair[i].key,
				ask->kwargs.dict->pair[i].value);
	fine = fine &&
	       (unset(ask->effort) ||
		put_used(r, context, value_str("reasoning_effort"), ask->effort)) &&
	       (unset(ask->thinking) ||
		put_used(r, context, value_str("enable_thinking"), ask->thinking)) &&
	       value_put_str(context, "messages", messages) &&
	       value_put_str(context, "tools", handed_on(r, ask->tools, "tools")) &&
	       value_put_str(context, "documents", handed_on(r, ask->documents, "documents")) &&
	       value_put_str(context, "add_generation_prompt",
			     value_bool(ask->generation_prompt));
	if (!fine)
		return prompt_no_memory(r->p);
	*ret = value_of_dict(context);
	return true;
}

static bool
failed(struct prompt_maker *p, int r, const struct jinja_error *e)
{
	if (r == -ENOMEM)
		return prompt_no_memory(p);
	if (r == -ENOSPC || r == -E2BIG)
		return prompt_stop(p, PROMPT_TOO_MUCH, "chat template, line %u: more work or text "
				   "than one prompt may take: %s", e->line, e->text);
	return prompt_stop(p, PROMPT_REFUSED, "chat template, line %u: %s", e->line, e->text);
}

static bool
mark_final(struct rendering *r, struct value *messages)
{
	const char *why = "";

	if (!memmem(r->source.p, r->source.len, "content", 7))
		return prompt_stop(r->p, PROMPT_REFUSED, "continue_final_message with a template "
				   "that has no content");
	return jinja_continue_mark(&r->p->bump, messages, messages, &why) ||
	       prompt_stop(r->p, PROMPT_REFUSED, "%s", why);
}

static bool
render_to(struct rendering *r, struct value context, bool continued, struct text *out)
{
	struct jinja_options options = {0};
	struct jinja_error e = {0};
	int err;

	options.now_s = r->p->clock == INT64_MIN ? (int64_t)time(NULL) : r->p->clock;
	options.stop = r->p->stop;
	options.max_steps = r->p->max_steps;
	zone_set(&r->p->m->zone, &options);
	text_clear(out);
	err = jinja_render(r->jinja, &context, &options, &r->p->bump, out, &e);
	if (err < 0)
		return failed(r->p, err, &e);
	if (continued && jinja_continue_cut(out, 0) < 0)
		return prompt_stop(r->p, PROMPT_REFUSED, "continue_final_message: the template "
				   "changes or drops the final message");
	return true;
}

static bool
render(struct rendering *r, struct value messages, struct text *out)
{
	struct value context;

	return (!r->ask->continue_final || mark_final(r, &messages)) &&
	       context_of(r, messages, &context) &&
	       render_to(r, context, r->ask->continue_final, out);
}

/* The marked text shows how much of the other comes before the first medium. */
static bool
until_medium(struct rendering *r, struct value marked)
{
	struct prompt_maker *p = r->p;
	size_t n, i = 0;

	if (!render(r, marked, &p->marked))
		return false;
	n = p->text.len < p->marked.len ? p->text.len : p->marked.len;
	while (i < n && p->text.p[i] == p->marked.p[i])
		i++;
	return prompt_add_prefix(p, text_slice(&p->text), i, &r->ask->cut);
}

static bool
with_template(struct rendering *r)
{
	struct conversation conversation;

	if (!conversation_make(r->p, r->ask, r->openai, r->developer, &conversation) ||
	    !render(r, conversation.messages, &r->p->text))
		return false;
	if (conversation.marked.kind != VALUE_UNDEFINED)
		return until_medium(r, conversation.marked);
	return prompt_add_text(r->p, text_slice(&r->p->text), &r->ask->cut);
}

/* A template that comes with the request is compiled for it: a name of one of the model's is that
 * one. */
static bool
own_template(struct rendering *r)
{
	const struct model *m = r->p->m;
	struct slice source = r->ask->own_template;
	struct jinja_error e = {0};
	struct jinja *jinja = NULL;
	bool fine;
	int err;

	for (uint32_t i = 0; m->n_templates > 1 && i < m->n_templates; i++)
		if (slice_eq(m->template[i].name, source)) {
			source = m->template[i].source;
			break;
		}
	err = jinja_compile(source, &jinja, &e);
	if (err < 0)
		return failed(r->p, err, &e);
	r->jinja = jinja;
	r->source = source;
	r->openai = model_content_is_list(m, &(struct model_template){
		.openai = jinja_loops_over_content(jinja)});
	r->developer = memmem(source.p, source.len, "\"developer\"", 11) ||
		       memmem(source.p, source.len, "'developer'", 11);
	fine = with_template(r);
	jinja_free(&jinja);
	return fine;
}

bool
render_ask(struct prompt_maker *p, const struct prompt_ask *ask)
{
	struct rendering r = {.p = p, .ask = ask};
	bool tools = !unset(handed_on(&r, ask->tools, "tools"));
	const struct model_template *t = model_template_for(p->m, tools);

	if (ask->ids.kind == VALUE_LIST)
		return prompt_add_id_list(p, ask->ids, &ask->cut);
	if (ask->own_template.p)
		return own_template(&r);
	if (!t)
		return prompt_stop(p, PROMPT_REFUSED, "the model has no chat template");
	r.jinja = t->jinja;
	r.source = t->source;
	r.openai = model_content_is_list(p->m, t);
	r.developer = t->developer;
	return with_template(&r);
}

bool
render_context(struct prompt_maker *p, struct value context)
{
	const struct model_template *t;
	struct value_dict *d = value_dict_new(&p->bump, context.dict->n);
	struct value messages = value_member(context, "messages");
	struct rendering r = {.p = p};
	bool continued = value_true(value_member(context, "continue_final_message"));

	t = model_template_for(p->m, !unset(value_member(context, "tools")));
	if (!t)
		return prompt_stop(p, PROMPT_REFUSED, "the model has no chat template");
	r.jinja = t->jinja;
	r.source = t->source;
	if (continued && !mark_final(&r, &messages))
		return false;
	for (uint32_t i = 0; d && i < context.dict->n; i++) {
		struct value key = context.dict->pair[i].key;

		if (!value_is_text(key, "continue_final_message") &&
		    !value_put(d, key, context.dict->pair[i].value))
			return prompt_no_memory(p);
	}
	if (!d || (messages.kind != VALUE_UNDEFINED && !value_put_str(d, "messages", messages)))
		return prompt_no_memory(p);
	if (!render_to(&r, value_of_dict(d), continued, &p->text))
		return false;
	p->rendered = text_slice(&p->text);
	return true;
}
