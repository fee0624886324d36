/* actors/common/prompt/tokenizer_compile.h -- a tokenizer's files, made into one to be mapped.
 *
 * Forms      tokenizer.json  Hugging Face tokenizers: byte pair encoding, byte-level or with byte
 *                            fallback; anything else is refused with the reason
 *            tekken.json     Mistral's: ids are rank + special tokens; these are never found in
 *                            text
 *            ranks           tiktoken's lines "BASE64 RANK"; the pattern is not in the file
 * Config     tokenizer_config.json is what Transformers' class reads beside them: with it the ids
 *            are the class's (added_tokens_decoder; what two classes put around a text), without
 *            it those of the file alone, as Hugging Face tokenizers gives.
 * Result     position-independent bytes with layout number and checksum, for tokenizer_open.
 * Errors     -ENOTSUP a feature that is not reproduced, -EINVAL the file contradicts itself,
 *            -EBADMSG no JSON, -E2BIG, -ENOMEM; why says what and where.
 * Threads    pure.  Cost: about 300 ms and 100 MB for 150,000 tokens.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "proto/slice.h"

#define TOKENIZER_WHY_BYTES 512u        /* room for a reason, NUL included */

enum tokenizer_form { TOKENIZER_JSON, TOKENIZER_TEKKEN, TOKENIZER_RANKS };

struct tokenizer_source {
	enum tokenizer_form form;
	struct slice file;
	struct slice config;            /* tokenizer_config.json; absent: by the file alone */
	struct slice pattern;           /* of TOKENIZER_RANKS; absent: by config, if it can tell */
};

int tokenizer_compile(const struct tokenizer_source *source, void **ret_bytes, size_t *ret_len,
		      char *why, size_t why_len);
	/* *ret_bytes: 64-byte aligned, the caller's to free(). */

/* The same files, found and read. */
struct tokenizer_files {
	struct tokenizer_source source; /* borrows bytes */
	char *name;                     /* of the file itself */
	char *bytes[2];                 /* owned */
};

int tokenizer_files_open(const char *path, bool config, struct tokenizer_files *ret, char *why,
			 size_t why_len);
	/* path: a folder with tokenizer.json, tekken.json, tiktoken.model or *.tiktoken (the first
	 * of these that is there), or such a file.  config: read tokenizer_config.json beside it,
	 * where there is one.  0, -ENOENT, or what opening said. */
void tokenizer_files_close(struct tokenizer_files *files);
