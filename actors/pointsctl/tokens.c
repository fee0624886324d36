/* actors/pointsctl/tokens.c -- see tokens.h; and `hash`: the chain of a prompt, without asking. */
#include "actors/pointsctl/tokens.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "actors/common/prompt/blocks.h"
#include "actors/common/seed.h"
#include "actors/pointsctl/pointsctl.h"
#include "shm/blockhash.h"

#define TOKENS_FILE_MAX (64u << 20)     /* bytes */

/* All of it, malloc'd; NULL with errno: EFBIG, ENOMEM, or why it does not read. */
static char *
read_all(FILE *from, size_t *ret_len)
{
	size_t cap = 65536, len = 0;
	char *text = malloc(cap), *more;

	while (text && !feof(from)) {
		len += fread(text + len, 1, cap - len, from);
		if (ferror(from) || len >= TOKENS_FILE_MAX) {
			errno = ferror(from) ? errno : EFBIG;
			free(text);
			return NULL;
		}
		if (len < cap)
			continue;
		more = realloc(text, cap *= 2);
		if (!more)
			free(text);
		text = more;
	}
	*ret_len = len;
	return text;
}

static bool
tokens_fit(const char *path, const json_t *list)
{
	json_t *one;
	size_t i;

	if (!json_is_array(list)) {
		complain("%s: neither a list of token ids nor an object with \"tokens\"", path);
		return false;
	}
	json_array_foreach(list, i, one)
		if (!json_is_integer(one) || json_integer_value(one) < 0 ||
		    json_integer_value(one) > UINT32_MAX) {
			complain("%s: number %zu of the list is no token id", path, i + 1);
			return false;
		}
	return true;
}

json_t *
read_tokens(const char *path)
{
	FILE *from = strcmp(path, "-") == 0 ? stdin : fopen(path, "rb");
	json_t *value, *list;
	json_error_t where;
	size_t len = 0;
	char *text = from ? read_all(from, &len) : NULL;

	if (!text)
		complain("%s: %s", path, strerror(errno));
	if (from && from != stdin)
		fclose(from);
	if (!text)
		return NULL;
	value = json_loadb(text, len, JSON_REJECT_DUPLICATES, &where);
	free(text);
	if (!value) {
		complain("%s:%d:%d: %s", path, where.line, where.column, where.text);
		return NULL;
	}
	list = json_incref(json_is_object(value) ? json_object_get(value, "tokens") : value);
	json_decref(value);
	if (!tokens_fit(path, list)) {
		json_decref(list);
		return NULL;
	}
	return list;
}

static struct slice
slice_or_none(const char *text)
{
	return text ? slice_str(text) : (struct slice){"", 0};
}

static void
print_chain(const struct options *o, uint64_t seed, const json_t *tokens)
{
	uint64_t at = blocks_root(seed, o->model, slice_or_none(o->adapter),
				  slice_or_none(o->salt), o->block_tokens);
	size_t size = o->block_tokens, n = json_array_size(tokens);
	uint32_t *block = calloc(size, sizeof block[0]);

	for (size_t i = 0; block && i + size <= n; i += size) {
		for (size_t k = 0; k < size; k++)
			block[k] = (uint32_t)json_integer_value(json_array_get(tokens, i + k));
		at = blockhash_next(at, block, o->block_tokens, NULL, 0);
		printf("%016" PRIx64 "\n", at);
	}
	free(block);
}

int
command_hash(const struct options *o)
{
	const char *why = "";
	char kept[512];
	uint64_t seed = 0;
	json_t *tokens;
	int r;

	if (!o->tokens || !o->model || !o->block_tokens) {
		complain("hash needs --tokens FILE, --model M (as the workers call it) and "
			 "--block-tokens N (pointsctl help)");
		return EXIT_USAGE;
	}
	snprintf(kept, sizeof kept, "%s/" PM_SEED_FILE, o->run_dir);
	r = pm_seed_given(o->seed ? o->seed : kept, &seed, &why);
	if (r < 0) {
		complain("%s: %s: %s", o->seed ? "--seed" : kept, why, strerror(-r));
		return 1;
	}
	tokens = read_tokens(o->tokens);
	if (!tokens)
		return 1;
	print_chain(o, seed, tokens);
	json_decref(tokens);
	return 0;
}
