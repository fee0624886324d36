/* tests/emulator/ids.c -- see ids.h. */
#include "tests/emulator/ids.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/json.h"

static void *
must(void *p)
{
	if (p == NULL) {
		fputs("ids: out of memory\n", stderr);
		abort();
	}
	return p;
}

/* The array the cursor is at, if it is ids and nothing else. */
static uint32_t *
read_ids(struct json_cursor *cur, unsigned *ret_tokens)
{
	size_t n = 0, max = (size_t)(cur->end - cur->p) / 2 + 1; /* a digit and a comma each */
	uint32_t *token = must(malloc(max * sizeof *token));
	bool ok = json_get_u32_array(cur, token, max, &n) && n > 0 && n <= max;

	for (size_t i = 0; ok && i < n; i++)
		ok = token[i] <= INT32_MAX;
	if (!ok) {
		free(token);
		return NULL;
	}
	*ret_tokens = (unsigned)n;
	return token;
}

uint32_t *
ids_take(const char *body, size_t len_bytes, unsigned *ret_tokens, char **ret_rest,
	 size_t *ret_rest_len_bytes)
{
	static const char null[] = " null";
	struct json_cursor cur;
	struct json_string key;

	json_begin(&cur, body, len_bytes);
	if (json_peek(&cur) != JSON_IS_OBJECT || !json_enter_object(&cur))
		return NULL;
	while (json_next_member(&cur, &key)) {
		const char *from = cur.p;
		size_t before = (size_t)(from - body), after;
		uint32_t *token;
		char *rest;

		if (!json_string_eq(&key, "prompt") || json_peek(&cur) != JSON_IS_ARRAY) {
			if (!json_skip(&cur))
				return NULL;
			continue;
		}
		token = read_ids(&cur, ret_tokens);
		if (token == NULL)
			return NULL;
		after = len_bytes - (size_t)(cur.p - body);
		rest = must(malloc(before + sizeof null + after));
		memcpy(rest, body, before);
		memcpy(rest + before, null, sizeof null - 1);
		memcpy(rest + before + sizeof null - 1, cur.p, after);
		*ret_rest = rest;
		*ret_rest_len_bytes = before + sizeof null - 1 + after;
		return token;
	}
	return NULL;
}
