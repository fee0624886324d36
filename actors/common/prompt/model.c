/* actors/common/prompt/model.c -- a blob's bytes become a model. */
#include "actors/common/prompt/model_private.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "actors/common/prompt/tokenizer.h"

#define MODEL_VALUES_MAX (256u << 20)   /* bytes of a description's values */
#define MODEL_PROBE_MAX  (16u << 20)    /* bytes a template may take to be tried */

uint64_t
model_check(const struct model_header *h)
{
	const char *p = (const char *)h;
	size_t from = offsetof(struct model_header, digest);
	XXH64_hash_t head = XXH3_64bits(p + from, sizeof *h - from);

	return XXH3_64bits_withSeed(p + h->description_off, h->description_len, head);
}

static bool
header_fits(const struct model_header *h, size_t len)
{
	return h->len == len && h->tokenizer_off == sizeof *h &&
	       h->tokenizer_len <= len - sizeof *h &&
	       h->description_off % 64 == 0 && h->description_off >= sizeof *h &&
	       h->description_off <= len && h->description_len <= len - h->description_off &&
	       h->description_off >= h->tokenizer_off + h->tokenizer_len;
}

/* --- templates ----------------------------------------------------------------------------- */

static int
index_of(struct value description, const char *key, uint32_t n)
{
	struct value v = value_member(description, key);

	return v.kind == VALUE_INT && v.i >= 0 && v.i < n ? (int)v.i : -1;
}

static int
compile(struct model_template *t, char *why, size_t why_len)
{
	struct jinja_error e = {0};
	int r;

	if (t->jinja)
		return 0;
	r = jinja_compile(t->source, &t->jinja, &e);
	if (r < 0) {
		snprintf(why, why_len, "chat template \"%.*s\", line %u: %s", (int)t->name.len,
			 t->name.p, e.line, e.text);
		return r == -ENOMEM ? r : -EINVAL;
	}
	t->openai = jinja_loops_over_content(t->jinja);
	t->developer = memmem(t->source.p, t->source.len, "\"developer\"", 11) ||
		       memmem(t->source.p, t->source.len, "'developer'", 11);
	return 0;
}

/* "default", or the only one; and "tool_use", for requests with tools. */
static void
choose(struct model *m, uint32_t own)
{
	m->first = own == 1 ? 0 : -1;
	m->tool_use = -1;
	for (uint32_t i = 0; i < own; i++) {
		if (slice_eq_str(m->template[i].name, "default"))
			m->first = (int)i;
		if (slice_eq_str(m->template[i].name, "tool_use"))
			m->tool_use = (int)i;
	}
}

int
model_templates_open(struct model *m, char *why, size_t why_len)
{
	struct value list = value_member(m->description, "templates");
	int reached[4], r = 0;
	uint32_t own;

	if (list.kind != VALUE_LIST) {
		snprintf(why, why_len, "the description has no templates");
		return -EBADMSG;
	}
	m->template = calloc(list.n + 1u, sizeof m->template[0]);
	if (!m->template)
		return -ENOMEM;
	m->n_templates = own = list.n;
	for (uint32_t i = 0; i < list.n; i++) {
		struct value name = value_member(list.items[i], "name");
		struct value source = value_member(list.items[i], "source");

		if (name.kind != VALUE_STRING || source.kind != VALUE_STRING) {
			snprintf(why, why_len, "the description's template %u is none", i);
			return -EBADMSG;
		}
		m->template[i].name = value_slice(name);
		m->template[i].source = value_slice(source);
	}
	m->given = index_of(m->description, "given", list.n);
	m->processor = index_of(m->description, "processor", list.n);
	if (m->given >= 0 && (uint32_t)m->given < own)
		own = (uint32_t)m->given;       /* the options' and the processor's stand behind */
	if (m->processor >= 0 && (uint32_t)m->processor < own)
		own = (uint32_t)m->processor;
	choose(m, own);
	reached[0] = m->given;
	reached[1] = m->given >= 0 ? -1 : m->processor;
	reached[2] = m->given >= 0 ? -1 : m->first;
	reached[3] = m->given >= 0 ? -1 : m->tool_use;
	for (unsigned i = 0; i < 4 && r == 0; i++)
		if (reached[i] >= 0)
			r = compile(&m->template[reached[i]], why, why_len);
	return r;
}

void
model_templates_close(struct model *m)
{
	for (uint32_t i = 0; i < m->n_templates; i++)
		if (m->template[i].jinja)
			jinja_free(&m->template[i].jinja);
	free(m->template);
	m->template = NULL;
	m->n_templates = 0;
}

const struct model_template *
model_template_for(const struct model *m, bool with_tools)
{
	int i = m->given;

	if (i < 0 && !with_tools)
		i = m->processor;
	if (i < 0 && with_tools)
		i = m->tool_use;
	if (i < 0)
		i = m->first;
	return i < 0 ? NULL : &m->template[i];
}

bool
model_content_is_list(const struct model *m, const struct model_template *t)
{
	return m->content == MODEL_CONTENT_OPENAI ||
	       (m->content == MODEL_CONTENT_AUTO && t->openai);
}

/* --- what /v1/messages finds out of a template when the engine starts ------------------------ */

struct probe {
	struct bump bump;
	struct text text;
};

static struct value
message(struct probe *p, const char *role, const char *text)
{
	struct value_dict *d = value_dict_new(&p->bump, 2);

	if (!d || !value_put_str(d, "role", value_str(role)) ||
	    !value_put_str(d, "content", value_str(text)))
		return value_none();
	return value_of_dict(d);
}

/* vLLM renders system, user, system, user, with no other variable set. */
static bool
refuses_late_system(struct probe *p, const struct jinja *jinja)
{
	struct value m[] = {message(p, "system", "t"), message(p, "user", "t"),
			    message(p, "system", "t"), message(p, "user", "t")};
	struct value_dict *context = value_dict_new(&p->bump, 3);
	struct value v;

	/* Its environment has no strftime_now: a template that asks for the date fails, too. */
	if (!context || !value_put_str(context, "strftime_now", value_none()) ||
	    !value_put_str(context, "messages", value_list(m, 4)) ||
	    !value_put_str(context, "add_generation_prompt", value_bool(false)))
		return true;
	v = value_of_dict(context);
	text_clear(&p->text);
	return jinja_render(jinja, &v, NULL, &p->bump, &p->text, NULL) < 0;
}

static struct slice
with_effort(struct probe *p, const struct model *m, const struct model_template *t,
	    const char *effort)
{
	struct value_dict *context = value_dict_new(&p->bump, 16), *part;
	struct value hi = message(p, "user", "Hi"), parts, v, kept;
	bool openai = model_content_is_list(m, t);
	bool fine = context != NULL;

	if (openai) {
		part = value_dict_new(&p->bump, 2);
		fine = fine && part && value_put_str(part, "type", value_str("text")) &&
		       value_put_str(part, "text", value_str("Hi"));
		parts = fine ? value_of_dict(part) : value_none();
		hi = message(p, "user", "");
		fine = fine && hi.kind == VALUE_DICT;
		if (fine) {
			struct value *keep = bump_take(&p->bump, sizeof parts);

			fine = keep != NULL;
			if (fine) {
				*keep = parts;
				((struct value_pair *)hi.dict->pair)[1].value = value_list(keep, 1);
			}
		}
	}
	for (uint32_t i = 0; fine && i < m->special_tokens.dict->n; i++)
		fine = value_put(context, m->special_tokens.dict->pair[i].key,
				 m->special_tokens.dict->pair[i].value);
	for (uint32_t i = 0; fine && i < m->default_kwargs.dict->n; i++)
		fine = value_put(context, m->default_kwargs.dict->pair[i].key,
				 m->default_kwargs.dict->pair[i].value);
	fine = fine && value_put_str(context, "messages", value_list(&hi, 1)) &&
	       value_put_str(context, "tools", value_none()) &&
	       value_put_str(context, "documents", value_none()) &&
	       value_put_str(context, "add_generation_prompt", value_bool(true)) &&
	       value_put_str(context, "reasoning_effort", value_str(effort)) &&
	       value_put_str(context, "enable_thinking",
			     value_bool(strcmp(effort, "none") != 0));
	if (!fine)
		return (struct slice){NULL, 0};
	v = value_of_dict(context);
	text_clear(&p->text);
	if (jinja_render(t->jinja, &v, NULL, &p->bump, &p->text, NULL) < 0 ||
	    !value_copy(&p->bump, text_slice(&p->text), &kept))
		return (struct slice){NULL, 0};
	return value_slice(kept);
}

/* Thinking disabled is the effort "none", where the template knows it: it does not fail, and it
 * renders otherwise than for any effort. */
static bool
knows_no_effort(struct probe *p, const struct model *m, const struct model_template *t)
{
	static const char *const efforts[] = {"low", "medium", "high", "xhigh", "max"};
	struct slice none = with_effort(p, m, t, "none");

	for (size_t i = 0; none.p && i < sizeof efforts / sizeof efforts[0]; i++) {
		struct slice other = with_effort(p, m, t, efforts[i]);

		if (other.p && slice_eq(other, none))
			return false;
	}
	return none.p != NULL;
}

void
model_probe(struct model *m)
{
	const struct model_template *plain = model_template_for(m, false);
	const struct model_template *tools = model_template_for(m, true);
	struct probe p;

	bump_init(&p.bump, MODEL_PROBE_MAX);
	text_init(&p.text, MODEL_PROBE_MAX);
	m->system_first = !plain || !tools || refuses_late_system(&p, plain->jinja) ||
			  refuses_late_system(&p, tools->jinja);
	m->effort_none = plain && knows_no_effort(&p, m, plain);
	text_free(&p.text);
	bump_free(&p.bump);
}

/* --- open ---------------------------------------------------------------------------------- */

static struct value
dict_of(struct value description, const char *key)
{
	struct value v = value_member(description, key);

	return v.kind == VALUE_DICT ? v : value_none();
}

static bool
flag_of(struct value description, const char *key)
{
	struct value v = value_member(description, key);

	return v.kind == VALUE_BOOL && v.i;
}

static int64_t
number_of(struct value description, const char *key, int64_t most)
{
	struct value v = value_member(description, key);

	return v.kind == VALUE_INT && v.i >= 0 && v.i <= most ? v.i : 0;
}

/* The text with a NUL behind; "" where there is none. */
static const char *
text_of(struct model *m, const char *key)
{
	struct value v = value_member(m->description, key);
	char *p = bump_bytes(&m->bump, v.kind == VALUE_STRING ? v.n + 1u : 1u);

	if (!p)
		return "";
	if (v.kind == VALUE_STRING)
		memcpy(p, v.s, v.n);
	p[v.kind == VALUE_STRING ? v.n : 0] = '\0';
	return p;
}

static int
describe(struct model *m, char *why, size_t why_len)
{
	const char *p = (const char *)m->header, *what = "";
	struct slice text = slice_of(p + m->header->description_off, m->header->description_len);
	int r = value_from_json(&m->bump, text, &m->description, &what, NULL);

	if (r < 0 || m->description.kind != VALUE_DICT) {
		snprintf(why, why_len, "the blob's description is damaged: %s", what);
		return r == -ENOMEM ? r : -EBADMSG;
	}
	m->special_tokens = dict_of(m->description, "special_tokens");
	m->default_kwargs = dict_of(m->description, "default_kwargs");
	if (m->special_tokens.kind != VALUE_DICT || m->default_kwargs.kind != VALUE_DICT) {
		snprintf(why, why_len, "the blob's description lacks something");
		return -EBADMSG;
	}
	m->content = (enum model_content)number_of(m->description, "content",
						   MODEL_CONTENT_OPENAI);
	m->tools = (enum model_tools)number_of(m->description, "tools", MODEL_TOOLS_AS_SENT);
	m->trust_template = flag_of(m->description, "trust_template");
	m->exclude_tools = flag_of(m->description, "exclude_tools");
	m->multimodal = flag_of(m->description, "multimodal");
	m->max_len = (uint32_t)number_of(m->description, "max_model_len", UINT32_MAX - 1);
	m->time_zone = text_of(m, "time_zone");
	m->foreign = text_of(m, "foreign");
	if (!m->foreign[0])
		m->foreign = NULL;
	r = zone_open(value_member(m->description, "zone"), &m->bump, &m->zone);
	if (r < 0) {
		snprintf(why, why_len, "the blob's description has no time zone");
		return r;
	}
	r = model_templates_open(m, why, why_len);
	if (r == 0)
		model_probe(m);
	return r;
}

int
model_open(const void *bytes, size_t len, struct model **ret, char *why, size_t why_len)
{
	const struct model_header *h = bytes;
	const char *what = "no memory";
	struct model *m;
	int r;

	why[0] = '\0';
	if (len < sizeof *h || (uintptr_t)bytes % 64 != 0 || h->magic != MODEL_MAGIC) {
		snprintf(why, why_len, "no model blob");
		return -EBADMSG;
	}
	if (h->layout != MODEL_LAYOUT) {
		snprintf(why, why_len, "made by another version (layout %u, this one reads %u)",
			 h->layout, MODEL_LAYOUT);
		return -ESTALE;
	}
	if (!header_fits(h, len) || h->check != model_check(h)) {
		snprintf(why, why_len, "the blob is damaged");
		return -EBADMSG;
	}
	m = calloc(1, sizeof *m);
	if (!m)
		return -ENOMEM;
	m->header = h;
	bump_init(&m->bump, MODEL_VALUES_MAX);
	r = describe(m, why, why_len);
	if (r == 0 && h->tokenizer_len) {
		r = tokenizer_open((const char *)bytes + h->tokenizer_off, h->tokenizer_len,
				   &m->tokenizer, &what);
		if (r < 0)
			snprintf(why, why_len, "tokenizer: %s", what);
	}
	if (r < 0)
		model_close(&m);
	else
		*ret = m;
	return r;
}

void
model_close(struct model **ret)
{
	struct model *m = *ret;

	*ret = NULL;
	if (!m)
		return;
	if (m->tokenizer)
		tokenizer_close(&m->tokenizer);
	model_templates_close(m);
	bump_free(&m->bump);
	free(m);
}

const void *
model_identity(const struct model *m, size_t *ret_len)
{
	*ret_len = sizeof m->header->digest;
	return m->header->digest;
}

const struct tokenizer *
model_tokenizer(const struct model *m)
{
	return m->tokenizer;
}

const char *
model_foreign(const struct model *m)
{
	return m->foreign;
}

uint32_t
model_max_len(const struct model *m)
{
	return m->max_len;
}

const char *
model_time_zone(const struct model *m)
{
	return m->time_zone;
}
