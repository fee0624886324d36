/* tests/emulator/words.c -- see words.h. */
#include "tests/emulator/words.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A text that grows. */
struct text {
	char *p;
	size_t len, cap;
};

static void *
must(void *p)
{
	if (p == NULL) {
		fputs("words: out of memory\n", stderr);
		abort();
	}
	return p;
}

static void
text_add(struct text *text, const char *p, size_t len)
{
	if (text->len + len + 1 > text->cap) {
		text->cap = (text->len + len + 1) * 2;
		text->p = must(realloc(text->p, text->cap));
	}
	memcpy(text->p + text->len, p, len);
	text->len += len;
	text->p[text->len] = '\0';
}

static void
text_str(struct text *text, const char *s)
{
	text_add(text, s, strlen(s));
}

int
words_by_name(const char *name, enum words *ret_words)
{
	if (strcmp(name, "bytes4") == 0)
		*ret_words = WORDS_BYTES4;
	else if (strcmp(name, "ids") == 0)
		*ret_words = WORDS_IDS;
	else
		return -EINVAL;
	return 0;
}

static uint32_t
word_id(const char *p, size_t len)
{
	uint64_t v = 0, h = 0xcbf29ce484222325u;
	size_t i;

	for (i = 0; i < len && p[i] >= '0' && p[i] <= '9' && v < 0x80000000u; i++)
		v = v * 10 + (uint64_t)(p[i] - '0');
	if (i == len && v < 0x80000000u)
		return (uint32_t)v;
	for (i = 0; i < len; i++)
		h = (h ^ (uint8_t)p[i]) * 0x100000001b3u;
	return (uint32_t)h & 0x7fffffffu;
}

static int
blank(char c)
{
	return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

uint32_t *
words_encode(enum words words, const char *text, size_t len_bytes, unsigned *ret_tokens)
{
	uint32_t *token = must(malloc((len_bytes + 4) * sizeof *token /
				      (words == WORDS_BYTES4 ? 4 : 1) + sizeof *token));
	unsigned n = 0;

	if (words == WORDS_BYTES4) {
		for (size_t i = 0; i < len_bytes; i += 4) {
			uint8_t b[4] = {0};

			memcpy(b, text + i, len_bytes - i < 4 ? len_bytes - i : 4);
			token[n++] = ((uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 |
				      (uint32_t)b[3] << 24) & 0x7fffffffu;
		}
	} else {
		for (size_t i = 0; i < len_bytes;) {
			size_t end = i;

			while (end < len_bytes && !blank(text[end]))
				end++;
			if (end > i)
				token[n++] = word_id(text + i, end - i);
			i = end + 1;
		}
	}
	*ret_tokens = n;
	return token;
}

static int
add_content(struct text *text, const json_t *content, const char **why)
{
	const json_t *part;
	size_t i;

	if (content == NULL || json_is_null(content))
		return 0; /* an assistant's tool calls have no content */
	if (json_is_string(content)) {
		text_add(text, json_string_value(content), json_string_length(content));
		return 0;
	}
	if (!json_is_array(content)) {
		*why = "message content must be a string or a list of parts";
		return -EINVAL;
	}
	json_array_foreach(content, i, part)
	{
		const json_t *t = json_object_get(part, "text");

		if (!json_is_string(t)) {
			*why = "only text parts are understood";
			return -EINVAL;
		}
		if (i > 0)
			text_str(text, "\n");
		text_add(text, json_string_value(t), json_string_length(t));
	}
	return 0;
}

char *
words_chat(const json_t *messages, const json_t *tools, int add_generation_prompt,
	       size_t *ret_len_bytes, const char **why)
{
	struct text text = {0};
	const json_t *msg;
	size_t i;

	if (!json_is_array(messages) || json_array_size(messages) == 0) {
		*why = "messages must be a list of at least one message";
		return NULL;
	}
	if (json_is_array(tools) && json_array_size(tools) > 0) {
		char *dump = must(json_dumps(tools, JSON_COMPACT));

		text_str(&text, "<|tools|>\n");
		text_str(&text, dump);
		text_str(&text, "\n");
		free(dump);
	}
	json_array_foreach(messages, i, msg)
	{
		const char *role = json_string_value(json_object_get(msg, "role"));
		const json_t *calls = json_object_get(msg, "tool_calls");

		if (role == NULL) {
			*why = "each message needs a role";
			free(text.p);
			return NULL;
		}
		text_str(&text, "<|");
		text_str(&text, role);
		text_str(&text, "|>\n");
		if (add_content(&text, json_object_get(msg, "content"), why) < 0) {
			free(text.p);
			return NULL;
		}
		if (json_is_array(calls)) {
			char *dump = must(json_dumps(calls, JSON_COMPACT));

			text_str(&text, dump);
			free(dump);
		}
		text_str(&text, "\n");
	}
	if (add_generation_prompt)
		text_str(&text, "<|assistant|>\n");
	*ret_len_bytes = text.len;
	return text.p;
}

void
words_write(uint64_t seed, unsigned n, char out[static 5])
{
	uint64_t z = seed + (uint64_t)n * 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z ^= z >> 27;
	out[0] = ' ';
	for (unsigned i = 1; i < 4; i++) {
		out[i] = (char)('a' + z % 26);
		z /= 26;
	}
	out[4] = '\0';
}
