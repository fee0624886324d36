/* tests/emulator/words.h -- text to token ids without a vocabulary, and the chat template.
 *
 * Meaning    bytes4: every 4 bytes of the text are one token, its id the bytes as a little-endian
 *            number with the top bit cleared; the last token is padded with zero bytes.  So texts
 *            with a common prefix have common leading tokens, and N tokens are 4 N bytes.
 *            ids: blank-separated words; a decimal number below 2^31 is that id, any other word the
 *            low 31 bits of its FNV-1a hash.
 * Template   for each message: "<|" role "|>\n" content "\n", then (unless add_generation_prompt is
 *            false) "<|assistant|>\n".  Content that is a list of parts is the parts' text joined
 *            by "\n".  Tools, if any, come first: "<|tools|>\n", the tools as compact JSON, "\n".
 * Errors     NULL or negative with *why, a static sentence.
 * Ownership  Results are from malloc and the caller's.
 * Threads    Any; no state.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

enum words {
	WORDS_BYTES4,
	WORDS_IDS,
};

int words_by_name(const char *name, enum words *ret_words);
	/* 0 or -EINVAL. */
uint32_t *words_encode(enum words, const char *text, size_t len_bytes,
			   unsigned *ret_tokens);
	/* Never NULL; *ret_tokens is 0 for an empty text. */
char *words_chat(const json_t *messages, const json_t *tools, int add_generation_prompt,
		     size_t *ret_len_bytes, const char **why);
	/* The prompt text of a chat.  NULL: messages are not what the API asks for, and why. */
void words_write(uint64_t seed, unsigned n, char out[static 5]);
	/* The text of the n-th generated token: four bytes, a blank and three letters. */
