/* actors/common/prompt/load_config.c -- what Transformers' tokenizer classes make of
 * tokenizer_config.json.
 *
 * Tokens     those of added_tokens_decoder that the tokenizer lacks are added, in the order of
 *            their ids; one it has gets the flags given here.
 * BOS, EOS   around a text is what the file's post-processor says: beside a tokenizer.json,
 *            Transformers 5 reads neither add_bos_token nor add_eos_token.  CodeLlamaTokenizer
 *            (also ..Fast) puts its BOS there and no more, GPTNeoXTokenizer nothing, whatever
 *            the file says.  (Transformers 4 heeded the flags in these and in Llama's, Gemma's
 *            and Cohere's classes.  Which an engine has, no file says; its answers do: probes.h.)
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

/* Of that class, under either of its names. */
static bool
is_class(struct slice class, const char *name)
{
	char fast[48];

	snprintf(fast, sizeof(fast), "%sFast", name);
	return part_is(class, name) || part_is(class, fast);
}

static void
load_code_llama(struct build *b, struct slice bos)
{
	uint32_t id;

	b->before.n = b->after.n = 0;
	if (bos.p && part_null(bos))
		return;
	id = token_id(b, bos.p ? bos : SLICE_LIT("\"<s>\""));
	if (id == TOKENIZER_NONE)
		build_fail(b, -EINVAL, "tokenizer_config.json: CodeLlamaTokenizer begins with "
			   "bos_token, which the tokenizer does not have");
	else
		build_surround(b, true, id);
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
	enum { CLASS, TOKENS, BOS, N };
	static const char *const names[] = {
		"tokenizer_class", "added_tokens_decoder", "bos_token",
	};
	struct slice v[N];

	if (form == TOKENIZER_TEKKEN)        /* Mistral's own encoder reads no such file */
		return b->error;
	if (part_read(b, "tokenizer_config.json", config, names, v, N) < 0)
		return b->error;
	load_tokens(b, v[TOKENS], form == TOKENIZER_RANKS);
	if (form == TOKENIZER_RANKS && b->n_steps == 0 && part_is(v[CLASS], "TikTokenTokenizer"))
		load_kimi(b);
	if (form == TOKENIZER_JSON && is_class(v[CLASS], "CodeLlamaTokenizer"))
		load_code_llama(b, v[BOS]);
	else if (form == TOKENIZER_JSON && is_class(v[CLASS], "GPTNeoXTokenizer"))
		b->before.n = b->after.n = 0;
	return b->error;
}
