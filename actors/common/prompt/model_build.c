/* actors/common/prompt/model_build.c -- a model's folder, read once, becomes one blob.
 *
 * Which template an engine takes of a folder, which special tokens the template is given, and
 * whether the engine uses these files at all, are Transformers' and vLLM's rules (vLLM 0.32,
 * Transformers 5.19), each named where it is followed.
 */
#include "actors/common/prompt/model_private.h"

#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "actors/common/prompt/file.h"
#include "actors/common/prompt/tokenizer_compile.h"

#define BUILD_FILE_MAX      (64u << 20) /* bytes of a file beside the tokenizer's own */
#define BUILD_VALUES_MAX    (512u << 20)        /* bytes of values made of them */
#define BUILD_TEMPLATES_MAX 64u
#define BUILD_ALIGN         64u
#define BUILD_ZONES         "/usr/share/zoneinfo"
#define BUILD_ZONE_FROM_S   1577836800ll        /* 2020: a constant, so that equal folders make
                                                   equal blobs */

struct build {
	const char *dir;
	bool folder;                                    /* there is one */
	const struct model_options *options;
	struct bump bump;
	struct value config, tokenizer_config;          /* dicts, perhaps empty */
	struct value_items templates;
	struct value_dict *description;
	char *why;
	size_t why_len;
};

static int
refuse(struct build *b, int r, const char *format, ...) __attribute__((format(printf, 3, 4)));

static int
refuse(struct build *b, int r, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(b->why, b->why_len, format, args);
	va_end(args);
	return r;
}

static int
no_memory(struct build *b)
{
	return refuse(b, -ENOMEM, "%s: no memory, or files too large", b->dir);
}

/* The file's bytes in the bump.  -ENOENT is said to nobody: many files may be absent. */
static int
read_path(struct build *b, const char *path, struct slice *ret)
{
	struct file f;
	char *p;
	int r = file_open(path, BUILD_FILE_MAX, &f, b->why, b->why_len);

	if (r == -ENOENT || r == -ENOTDIR) {
		b->why[0] = '\0';
		return -ENOENT;
	}
	if (r < 0)
		return -EIO;
	p = bump_bytes(&b->bump, f.len);
	if (!p) {
		close(f.fd);
		return no_memory(b);
	}
	r = file_read_whole(&f, p, b->why, b->why_len);
	if (r == 0)
		*ret = slice_of(p, f.len);
	return r;
}

static int
read_file(struct build *b, const char *name, struct slice *ret)
{
	char path[4096];
	int n = snprintf(path, sizeof path, "%s/%s", b->dir, name);

	if (n < 0 || (size_t)n >= sizeof path)
		return refuse(b, -EINVAL, "%s: the path is too long", b->dir);
	return read_path(b, path, ret);
}

static bool
has_file(const struct build *b, const char *name)
{
	char path[4096];
	int n = snprintf(path, sizeof path, "%s/%s", b->dir, name);

	return n > 0 && (size_t)n < sizeof path && access(path, F_OK) == 0;
}

/* A JSON object; an empty one where there is no such file. */
static int
read_object(struct build *b, const char *name, struct value *ret)
{
	const char *why = "";
	struct slice text;
	size_t off = 0;
	int r = b->folder ? read_file(b, name, &text) : -ENOENT;

	if (r == -ENOENT) {
		struct value_dict *none = value_dict_new(&b->bump, 0);

		if (!none)
			return no_memory(b);
		*ret = value_of_dict(none);
		return 0;
	}
	if (r < 0)
		return r;
	r = value_from_json(&b->bump, text, ret, &why, &off);
	if (r == -ENOMEM)
		return no_memory(b);
	if (r < 0)
		return refuse(b, -EINVAL, "%s/%s: byte %zu: %s", b->dir, name, off, why);
	if (ret->kind != VALUE_DICT)
		return refuse(b, -EINVAL, "%s/%s: no JSON object", b->dir, name);
	return 0;
}

/* --- templates ----------------------------------------------------------------------------- */

static int
add_template(struct build *b, const char *from, struct slice name, struct slice source,
	     uint32_t *ret_index)
{
	struct value_dict *t = value_dict_new(&b->bump, 2);

	if (source.len > JINJA_SOURCE_MAX)
		return refuse(b, -EINVAL, "%s/%s: a template of more than %u bytes", b->dir, from,
			      JINJA_SOURCE_MAX);
	if (!value_text_whole(source) || !value_text_whole(name))
		return refuse(b, -EINVAL, "%s/%s: a template that is no UTF-8", b->dir, from);
	if (b->templates.n >= BUILD_TEMPLATES_MAX)
		return refuse(b, -EINVAL, "%s: more than %u templates", b->dir,
			      BUILD_TEMPLATES_MAX);
	if (!t || !value_put_str(t, "name", value_string(name)) ||
	    !value_put_str(t, "source", value_string(source)) ||
	    !value_push(&b->bump, &b->templates, value_of_dict(t)))
		return no_memory(b);
	if (ret_index)
		*ret_index = b->templates.n - 1;
	return 0;
}

/* "chat_template" of a JSON file: one, or a list of {"name", "template"}. */
static int
add_config_templates(struct build *b, const char *file, struct value given)
{
	if (given.kind == VALUE_STRING)
		return add_template(b, file, SLICE_LIT("default"), value_slice(given), NULL);
	if (given.kind == VALUE_UNDEFINED || given.kind == VALUE_NONE)
		return 0;
	if (given.kind != VALUE_LIST)
		return refuse(b, -EINVAL, "%s/%s: chat_template is neither text nor list", b->dir,
			      file);
	for (uint32_t i = 0; i < given.n; i++) {
		struct value name = value_member(given.items[i], "name");
		struct value source = value_member(given.items[i], "template");
		int r;

		if (name.kind != VALUE_STRING || source.kind != VALUE_STRING)
			return refuse(b, -EINVAL, "%s/%s: chat_template[%u] lacks name or template",
				      b->dir, file, i);
		r = add_template(b, file, value_slice(name), value_slice(source), NULL);
		if (r < 0)
			return r;
	}
	return 0;
}

/* additional_chat_templates/NAME.jinja, in an order that does not depend on the disk. */
static int
add_more_templates(struct build *b)
{
	static const char folder[] = "additional_chat_templates";
	struct dirent **list;
	char path[4096];
	int n, r = 0;

	if (snprintf(path, sizeof path, "%s/%s", b->dir, folder) >= (int)sizeof path)
		return 0;
	n = scandir(path, &list, NULL, alphasort);
	for (int i = 0; i < n; i++) {
		const char *name = list[i]->d_name;
		size_t len = strlen(name);
		struct value kept;
		struct slice source;
		char inner[512];

		if (r == 0 && len > 6 && len < 256 && strcmp(name + len - 6, ".jinja") == 0) {
			snprintf(inner, sizeof inner, "%s/%s", folder, name);
			r = read_file(b, inner, &source);
			if (r == 0 && !value_copy(&b->bump, slice_of(name, len - 6), &kept))
				r = no_memory(b);
			if (r == 0)
				r = add_template(b, inner, value_slice(kept), source, NULL);
		}
		free(list[i]);
	}
	if (n >= 0)
		free(list);
	return r;
}

/* The tokenizer's templates: chat_template.jinja and its folder before tokenizer_config.json. */
static int
find_templates(struct build *b, bool *ret_file)
{
	struct slice source;
	int r = read_file(b, "chat_template.jinja", &source);

	*ret_file = r == 0;
	if (r == 0)
		r = add_template(b, "chat_template.jinja", SLICE_LIT("default"), source, NULL);
	if (r < 0 && r != -ENOENT)
		return r;
	r = add_more_templates(b);
	if (r < 0 || b->templates.n)
		return r;
	return add_config_templates(b, "tokenizer_config.json",
				    value_member(b->tokenizer_config, "chat_template"));
}

/* What a processor would bring: only folders of models that see or hear have one.  vLLM takes it
 * for requests without tools. */
static int
find_processor(struct build *b, bool template_file)
{
	static const char *const files[] = {"chat_template.json", "processor_config.json"};
	bool is = has_file(b, "preprocessor_config.json") || has_file(b, "processor_config.json");
	uint32_t index = 0;

	if (!value_put_str(b->description, "multimodal", value_bool(is)))
		return no_memory(b);
	if (!is)
		return 0;
	for (unsigned i = 0; i < 2 && !template_file; i++) {
		struct value object, found;
		int r = read_object(b, files[i], &object);

		if (r < 0)
			return r;
		found = value_member(object, "chat_template");
		if (found.kind != VALUE_STRING)
			continue;
		r = add_template(b, files[i], SLICE_LIT("processor"), value_slice(found), &index);
		if (r < 0)
			return r;
		return value_put_str(b->description, "processor", value_int(index)) ?
			0 : no_memory(b);
	}
	return 0;
}

static int
find_given(struct build *b)
{
	struct slice source;
	uint32_t index = 0;
	int r;

	if (!b->options->template_file)
		return 0;
	r = read_path(b, b->options->template_file, &source);
	if (r == -ENOENT)
		return refuse(b, r, "%s: there is no such template", b->options->template_file);
	if (r == 0)
		r = add_template(b, b->options->template_file, SLICE_LIT("given"), source, &index);
	if (r < 0)
		return r;
	return value_put_str(b->description, "given", value_int(index)) ? 0 : no_memory(b);
}

/* --- what else the folder says ------------------------------------------------------------- */

/* The named special tokens, as Transformers hands them to the template; unset ones are absent. */
static int
find_special_tokens(struct build *b)
{
	static const char *const names[] = {"bos_token", "eos_token", "unk_token", "sep_token",
					    "pad_token", "cls_token", "mask_token"};
	struct value_dict *found = value_dict_new(&b->bump, 7);
	struct value map;
	int r = read_object(b, "special_tokens_map.json", &map);

	if (r < 0)
		return r;
	if (!found)
		return no_memory(b);
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		struct value v = value_member(b->tokenizer_config, names[i]);

		if (v.kind == VALUE_UNDEFINED)
			v = value_member(map, names[i]);
		if (v.kind == VALUE_DICT)
			v = value_member(v, "content");
		if (v.kind == VALUE_STRING && !value_put_str(found, names[i], v))
			return no_memory(b);
	}
	return value_put_str(b->description, "special_tokens", value_of_dict(found)) ?
		0 : no_memory(b);
}

/* The engine's default for --max-model-len is at most this; 0: the folder does not say. */
static uint32_t
longest(const struct build *b)
{
	static const char *const keys[] = {"max_position_embeddings", "n_positions", "max_seq_len",
					   "seq_length", "max_sequence_length"};
	struct value text = value_member(b->config, "text_config");
	struct value limit = value_member(b->tokenizer_config, "model_max_length");
	struct value where = text.kind == VALUE_DICT ? text : b->config;
	struct value rope = value_member(where, "rope_scaling");
	int64_t len = 0;

	for (size_t i = 0; i < sizeof keys / sizeof keys[0] && len == 0; i++) {
		struct value v = value_member(where, keys[i]);

		len = v.kind == VALUE_INT && v.i > 0 && v.i < UINT32_MAX ? v.i : 0;
	}
	if (value_member(rope, "factor").kind != VALUE_UNDEFINED)
		return 0;               /* who scales says how far by an option */
	if (limit.kind == VALUE_INT && limit.i > 0 && limit.i < len)
		len = limit.i;
	return (uint32_t)len;
}

static bool
named(struct value name, const char *const *names, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (value_is_text(name, names[i]))
			return true;
	return false;
}

/* The encoder that vLLM has of its own for such a model; NULL: it uses these files. */
static const char *
foreign(const struct build *b)
{
	static const struct {
		const char *architecture, *encoder;
	} own[] = {
		{"GptOssForCausalLM", "gpt-oss: the engine renders by openai_harmony, not by the "
				      "chat template"},
		{"DeepseekV32ForCausalLM", "DeepSeek-V3.2: the engine has an encoder of its own"},
		{"DeepseekV4ForCausalLM", "DeepSeek-V4: the engine has an encoder of its own"},
		{"DeepseekV4ForConditionalGeneration",
		 "DeepSeek-V4: the engine has an encoder of its own"},
		{"DeepseekV41ForCausalLM", "DeepSeek-V4.1: the engine has an encoder of its own"},
		{"KimiK3ForConditionalGeneration", "Kimi-K3: the engine has an encoder of its own"},
		{"MoonshotKimiaForCausalLM", "Kimi-Audio: the engine has an encoder of its own"},
		{"InklingForCausalLM", "Inkling: the engine has an encoder of its own"},
		{"InklingForConditionalGeneration",
		 "Inkling: the engine has an encoder of its own"},
	};
	static const char *const harmony[] = {"gpt_oss"};
	static const char *const tekken[] = {"tekken.json", "tokenizer.model.v1",
					     "tokenizer.model.v2", "tokenizer.model.v3",
					     "tokenizer.model.v7"};
	struct value list = value_member(b->config, "architectures");

	if (b->options->own_encoder_off)
		return NULL;
	if (named(value_member(b->config, "model_type"), harmony, 1))
		return own[0].encoder;
	for (uint32_t k = 0; list.kind == VALUE_LIST && k < list.n; k++)
		for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
			if (value_is_text(list.items[k], own[i].architecture))
				return own[i].encoder;
	for (size_t i = 0; b->folder && i < sizeof tekken / sizeof tekken[0]; i++)
		if (has_file(b, tekken[i]))
			return "Mistral's own encoder (mistral_common) is the engine's for this "
			       "model";
	return NULL;
}

/* The workers' local time, for years to come. */
static int
put_zone(struct build *b, const char *name)
{
	char path[300], why[200] = "";
	const char *what = "";
	struct slice file;
	struct value zone;
	int r;

	if (strstr(name, "..") || name[0] == '/' ||
	    snprintf(path, sizeof path, BUILD_ZONES "/%s", name) >= (int)sizeof path)
		return refuse(b, -EINVAL, "time zone %.100s: none that is known", name);
	r = strcmp(name, "UTC") == 0 ? 0 : read_path(b, path, &file);
	if (r == -ENOENT)
		return refuse(b, -EINVAL, "time zone %s: there is no %s", name, path);
	if (r < 0)
		return r;
	if (strcmp(name, "UTC") == 0)
		r = value_from_json(&b->bump, SLICE_LIT("[[0,0]]"), &zone, &what, NULL);
	else
		r = zone_read(file, BUILD_ZONE_FROM_S, &b->bump, &zone, why, sizeof why);
	if (r < 0)
		return r == -ENOMEM ? no_memory(b) : refuse(b, r, "%s: %s", path, why);
	return value_put_str(b->description, "zone", zone) ? 0 : no_memory(b);
}

static int
put_options(struct build *b)
{
	const struct model_options *o = b->options;
	const char *encoder = foreign(b), *why = "";
	uint32_t len = o->max_model_len ? o->max_model_len : longest(b);
	struct value kwargs = value_of_dict(value_dict_new(&b->bump, 0));

	if (o->default_kwargs) {
		int r = value_from_json(&b->bump, slice_str(o->default_kwargs), &kwargs, &why,
					NULL);

		if (r == -ENOMEM)
			return no_memory(b);
		if (r < 0 || kwargs.kind != VALUE_DICT)
			return refuse(b, -EINVAL, "default chat template arguments: %s",
				      r < 0 ? why : "no JSON object");
	}
	if (!kwargs.dict || !value_put_str(b->description, "default_kwargs", kwargs) ||
	    !value_put_str(b->description, "content", value_int(o->content)) ||
	    !value_put_str(b->description, "tools", value_int(o->tools)) ||
	    !value_put_str(b->description, "trust_template",
			   value_bool(o->trust_request_template)) ||
	    !value_put_str(b->description, "exclude_tools",
			   value_bool(o->exclude_tools_when_none)) ||
	    !value_put_str(b->description, "max_model_len", value_int(len)) ||
	    !value_put_str(b->description, "time_zone",
			   value_str(o->time_zone ? o->time_zone : "UTC")) ||
	    (encoder && !value_put_str(b->description, "foreign", value_str(encoder))))
		return no_memory(b);
	return put_zone(b, o->time_zone ? o->time_zone : "UTC");
}

/* --- the blob ------------------------------------------------------------------------------ */

/* Does every template that requests come to compile?  Here where the folder is known. */
static int
try_templates(struct build *b)
{
	struct model m = {.description = value_of_dict(b->description)};
	char why[300];
	int r = model_templates_open(&m, why, sizeof why);

	model_templates_close(&m);
	return r < 0 ? refuse(b, r, "%s: %s", b->options->template_file ?
			      b->options->template_file : b->dir, why) : 0;
}

static int
describe(struct build *b, struct text *out)
{
	const char *why = "";
	bool template_file = false;
	int r;

	b->description = value_dict_new(&b->bump, 16);
	if (!b->description)
		return no_memory(b);
	r = read_object(b, "config.json", &b->config);
	if (r == 0)
		r = read_object(b, "tokenizer_config.json", &b->tokenizer_config);
	if (r == 0 && b->folder)
		r = find_templates(b, &template_file);
	if (r == 0 && b->folder)
		r = find_processor(b, template_file);
	if (r == 0)
		r = find_given(b);
	if (r == 0)
		r = find_special_tokens(b);
	if (r == 0)
		r = put_options(b);
	if (r < 0)
		return r;
	if (!value_put_str(b->description, "templates", value_list_of(&b->templates)))
		return no_memory(b);
	r = try_templates(b);
	if (r < 0)
		return r;
	r = value_to_json(value_of_dict(b->description), NULL, out, &why);
	return r < 0 ? refuse(b, r, "%s: %s", b->dir, why) : 0;
}

static void
digest(struct model_header *h)
{
	const char *p = (const char *)h;
	XXH3_state_t *s = XXH3_createState();
	XXH128_canonical_t canonical;

	XXH3_128bits_reset(s);
	XXH3_128bits_update(s, p + h->tokenizer_off, h->tokenizer_len);
	XXH3_128bits_update(s, p + h->description_off, h->description_len);
	XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(s));
	memcpy(h->digest, canonical.digest, sizeof h->digest);
	XXH3_freeState(s);
}

static size_t
round_up(size_t n)
{
	return (n + BUILD_ALIGN - 1) & ~(size_t)(BUILD_ALIGN - 1);
}

static int
join(struct build *b, const void *tokenizer, size_t tokenizer_len, const struct text *description,
     void **ret_bytes, size_t *ret_len)
{
	size_t at = sizeof(struct model_header) + round_up(tokenizer_len);
	size_t len = round_up(at + description->len);
	struct model_header *h = aligned_alloc(BUILD_ALIGN, len);

	if (!h)
		return no_memory(b);
	memset(h, 0, sizeof *h);
	*h = (struct model_header){.magic = MODEL_MAGIC, .layout = MODEL_LAYOUT, .len = len,
		.tokenizer_off = sizeof *h, .tokenizer_len = tokenizer_len,
		.description_off = at, .description_len = description->len};
	if (tokenizer_len)
		memcpy((char *)h + sizeof *h, tokenizer, tokenizer_len);
	memset((char *)h + sizeof *h + tokenizer_len, 0, at - sizeof *h - tokenizer_len);
	memcpy((char *)h + at, description->p, description->len);
	memset((char *)h + at + description->len, 0, len - at - description->len);
	digest(h);
	h->check = model_check(h);
	*ret_bytes = h;
	*ret_len = len;
	return 0;
}

int
model_build(const char *dir, const struct model_options *options, void **ret_bytes,
	    size_t *ret_len, char *why, size_t why_len)
{
	static const struct model_options none;
	struct build b = {.dir = dir ? dir : "the template", .folder = dir != NULL,
			  .options = options ? options : &none, .why = why, .why_len = why_len};
	struct tokenizer_files files;
	struct text description;
	void *tokenizer = NULL;
	size_t len = 0;
	int r;

	why[0] = '\0';
	bump_init(&b.bump, BUILD_VALUES_MAX);
	text_init(&description, BUILD_FILE_MAX);
	r = describe(&b, &description);
	if (r == 0 && dir)
		r = tokenizer_files_open(dir, true, &files, why, why_len);
	if (r == 0 && dir) {
		r = tokenizer_compile(&files.source, &tokenizer, &len, why, why_len);
		tokenizer_files_close(&files);
	}
	if (r == 0)
		r = join(&b, tokenizer, len, &description, ret_bytes, ret_len);
	free(tokenizer);
	text_free(&description);
	bump_free(&b.bump);
	return r;
}
