/* actors/common/prompt/load_config.c -- what Transformers' tokenizer classes make of
 * tokenizer_config.json.
 *
 * Tokens     those of added_tokens_decoder that the tokenizer lacks are added, in the order of
 *            their ids; one it has gets the flags given here.
 * BOS, EOS   LlamaTokenizer, CodeLlamaTokenizer, GemmaTokenizer and CohereTokenizer (also ..Fast)
 *            put them around a text by add_bos_token (default: yes) and add_eos_token (default:
 *            no), whatever post-processor the file has.  Other classes leave it as it is.
 * Kimi       TikTokenTokenizer has its pattern in code, and names 256 ids behind the ranks.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "actors/common/prompt/build.h"
#include "actors/common/prompt/load_part.h"

#define KIMI_SPECIALS 256u

static void
load_tokens(struct build *b, struct slice raw, bool ranks)
{
	struct json_cursor c;
	struct json_string key;
	struct slice one;
	int64_t id;

	if (!raw.p || part_null(raw))
		return;
	json_begin(&c, raw.p, raw.len);
	if (!json_enter_object(&c))
		build_fail(b, -EINVAL, "tokenizer_config.json: added_tokens_decoder is no object");
	while (!b->error && json_next_member(&c, &key) && json_get_raw(&c, &one)) {
		if (json_to_i64(key.raw, &id) < 0 || id < 0 || id >= UINT32_MAX)
			build_fail(b, -EINVAL, "tokenizer_config.json: added_tokens_decoder: "
				   "\"%.*s\" is no id", (int)(key.raw.len < 32 ? key.raw.len : 32),
				   key.raw.p);
		else
			part_added(b, "tokenizer_config.json: added_tokens_decoder", one,
				   ranks ? (uint32_t)id : TOKENIZER_NONE);
	}
}

/* A token given as text, or as an object with its content. */
static uint32_t
token_id(struct build *b, struct slice raw)
{
	static const char *const names[] = {"content"};
	struct slice content = raw;
	uint32_t len, off;

	if (!raw.p || part_null(raw))
		return TOKENIZER_NONE;
	if (raw.p[0] == '{' &&
	    part_read(b, "tokenizer_config.json", raw, names, &content, 1) < 0)
		return TOKENIZER_NONE;
	off = part_text(b, "tokenizer_config.json: a token", content, &len);
	return build_added_find(b, build_slice(b, off, len));
}

static bool
heeds_bos(struct slice class)
{
	static const char *const names[] = {"Llama", "CodeLlama", "Gemma", "Cohere"};
	char name[48];

	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		snprintf(name, sizeof(name), "%sTokenizer", names[i]);
		if (part_is(class, name))
			return true;
		snprintf(name, sizeof(name), "%sTokenizerFast", names[i]);
		if (part_is(class, name))
			return true;
	}
	return false;
}

static void
surround(struct build *b, bool before, const char *name, struct slice token)
{
	uint32_t id = token_id(b, token);

	if (id == TOKENIZER_NONE)
		build_fail(b, -EINVAL, "tokenizer_config.json: add_%s_token, but the tokenizer "
			   "has no %s_token", name, name);
	else
		build_surround(b, before, id);
}

static void
load_kimi(struct build *b)
{
	bool named[KIMI_SPECIALS] = {false};
	uint32_t base = 0;
	char name[48];

	build_split_known(b, SCAN_KIMI);
	for (size_t i = 0; i < b->n_tokens; i++)
		base = b->tokens[i].id >= base ? b->tokens[i].id + 1 : base;
	for (size_t i = 0; i < b->n_added; i++)
		if (b->added[i].id - base < KIMI_SPECIALS)      /* below base it is far above */
			named[b->added[i].id - base] = true;
	for (uint32_t i = 0; i < KIMI_SPECIALS; i++) {
		uint32_t len = (uint32_t)snprintf(name, sizeof(name), "<|reserved_token_%u|>",
						  base + i);

		if (!named[i])
			build_added(b, build_text(b, name, len), len, ADDED_SPECIAL, false,
				    base + i);
	}
}

int
build_load_config(struct build *b, enum tokenizer_form form, struct slice config)
{
	enum { CLASS, TOKENS, BOS, EOS, ADD_BOS, ADD_EOS, N };
	static const char *const names[] = {
		"tokenizer_class", "added_tokens_decoder", "bos_token", "eos_token",
		"add_bos_token", "add_eos_token",
	};
	struct slice v[N];

	if (form == TOKENIZER_TEKKEN)        /* Mistral's own encoder reads no such file */
		return b->error;
	if (part_read(b, "tokenizer_config.json", config, names, v, N) < 0)
		return b->error;
	load_tokens(b, v[TOKENS], form == TOKENIZER_RANKS);
	if (form == TOKENIZER_RANKS && b->n_steps == 0 && part_is(v[CLASS], "TikTokenTokenizer"))
		load_kimi(b);
	if (form == TOKENIZER_JSON && heeds_bos(v[CLASS])) {
		b->before.n = b->after.n = 0;
		if (!v[ADD_BOS].p || part_true(v[ADD_BOS]))
			surround(b, true, "bos", v[BOS]);
		if (part_true(v[ADD_EOS]))
			surround(b, false, "eos", v[EOS]);
	}
	return b->error;
}
