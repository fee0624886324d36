/* actors/common/prompt/model.h -- a model's folder as one file: how its prompts become token ids.
 *
 * Meaning    model_build reads a folder as Hugging Face lays it out (tokenizer.json, tekken.json or
 *            tiktoken ranks; tokenizer_config.json, special_tokens_map.json, config.json,
 *            generation_config.json; chat_template.jinja, chat_template.json,
 *            additional_chat_templates/) and the options of its workers, and makes one blob of
 *            them; model_open makes a model of the blob's bytes wherever they are mapped.
 * Blob       position-independent: header {magic, layout, length, checksum}, the compiled
 *            tokenizer (tokenizer.h) at an offset, template sources, special tokens, options.
 *            Bytes are checked (checksum, then every offset and count) before they are used: a
 *            hostile blob is refused, never read out of bounds.
 * Foreign    some engines do not tokenize by these files (gpt-oss: harmony; Mistral's own encoder;
 *            DeepSeek-V3.2 in its own mode; remote code).  Such a model opens all the same, and
 *            model_foreign says why its requests must go by the worker's /tokenize.
 * Ownership  a model borrows its blob's bytes for its life.
 * Threads    a model is read-only and shared by threads.
 * Cost       model_build: the tokenizer's compilation, and milliseconds.  model_open: the
 *            checksum over the blob unless told it was checked, the templates compiled, about a
 *            millisecond.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/slice.h"

struct jinja;
struct model;
struct tokenizer;
struct value;

#define MODEL_WHY_BYTES 512u            /* room for a reason, NUL included */

enum model_content {                    /* vLLM --chat-template-content-format */
	MODEL_CONTENT_AUTO,             /* by what the template does with message.content, as vLLM
	                                   0.32 looks (earlier ones did not look into macros) */
	MODEL_CONTENT_STRING,
	MODEL_CONTENT_OPENAI,
};

/* How the engine's release dumps the tools of a request into the template's variable. */
enum model_tools {
	MODEL_TOOLS_NULLS,              /* description and parameters that are absent are null
	                                   (every release to date): the default */
	MODEL_TOOLS_AS_SENT,            /* as the request wrote them */
};

/* What the folder does not say; zero is every option's default. */
struct model_options {
	const char *template_file;      /* vLLM --chat-template; NULL: the folder's own */
	enum model_content content;
	enum model_tools tools;
	const char *default_kwargs;     /* --default-chat-template-kwargs, a JSON object; NULL */
	const char *time_zone;          /* of the workers, as TZ: strftime_now; NULL: UTC */
	bool trust_request_template;    /* --trust-request-chat-template */
	bool exclude_tools_when_none;   /* --exclude-tools-when-tool-choice-none */
	bool own_encoder_off;           /* the engine runs the Hugging Face files even where this
	                                   model is known for an encoder of its own */
	uint32_t max_model_len;         /* --max-model-len; 0: config.json's, if it says */
};

int model_build(const char *dir, const struct model_options *options, void **ret_bytes,
		size_t *ret_len, char *why, size_t why_len);
	/* dir NULL: of options->template_file alone; such a model renders and has no tokenizer.
	 * 0: the blob, malloc'd, the caller's.  -ENOENT a file is missing, -ENOTSUP a feature
	 * nobody here can reproduce, -EINVAL a file or option is malformed, -EIO it does not read,
	 * -ENOMEM; why then names the file and what is wrong with it. */
int model_open(const void *bytes, size_t len, struct model **ret, char *why, size_t why_len);
	/* bytes: 64-byte aligned.  0; -EBADMSG, -ESTALE (made by another version: build again),
	 * -EINVAL a template does not compile, -ENOMEM. */
void model_close(struct model **ret);
const void *model_identity(const struct model *m, size_t *ret_len);
	/* Bytes that differ when anything that decides token ids does: a digest. */

const struct tokenizer *model_tokenizer(const struct model *m);        /* NULL: none */
const char *model_foreign(const struct model *m);
	/* NULL: prompts are made from these files.  Else which encoder the engine has instead. */
uint32_t model_max_len(const struct model *m);
	/* Tokens, prompt and answer; 0: not known. */
const char *model_time_zone(const struct model *m);     /* never NULL */
