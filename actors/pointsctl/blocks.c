/* actors/pointsctl/blocks.c -- `blocks`: a request's tokens and block hashes, without asking
 * anybody.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "actors/common/prompt/blocks.h"
#include "actors/common/seed.h"
#include "actors/pointsctl/prompts.h"
#include "proto/openai.h"
#include "shm/blockhash.h"

/* The deployment's where there is one, so that hashes are those of its index; else 0. */
static bool
seed_of(const struct options *o, uint64_t *ret)
{
	const char *why = "";
	char kept[512];
	int r;

	*ret = 0;
	snprintf(kept, sizeof kept, "%s/" PM_SEED_FILE, o->run_dir);
	r = pm_seed_given(o->seed ? o->seed : kept, ret, &why);
	if (r == 0 || (!o->seed && r == -ENOENT))
		return true;
	complain("%s: %s: %s", o->seed ? "--seed" : kept, why, strerror(-r));
	return false;
}

static json_t *
prompt_json(const struct prompt_one *one, uint64_t root, uint32_t size)
{
	json_t *tokens = json_array(), *blocks = json_array();
	uint64_t at = root;
	char hex[20];

	for (size_t i = 0; i < one->n; i++)
		json_array_append_new(tokens, json_integer(one->ids[i]));
	for (size_t i = 0; i + size <= one->n; i += size) {
		at = blockhash_next(at, one->ids + i, size, NULL, 0);
		snprintf(hex, sizeof hex, "%016" PRIx64, at);
		json_array_append_new(blocks, json_string(hex));
	}
	return json_pack("{s:o, s:o}", "tokens", tokens, "blocks", blocks);
}

static json_t *
result_of(const struct options *o, const struct prompt_made *made, struct slice body, uint64_t seed)
{
	struct openai_view view;
	const char *why;
	json_t *prompts = json_array();
	uint64_t root;

	if (openai_view_parse(body.p, body.len, &view, &why) < 0)
		view.model[0] = '\0';
	root = blocks_root(seed, view.model, slice_str(o->adapter ? o->adapter : ""),
			   made->salt.p ? made->salt : slice_str(""), o->block_tokens);
	for (size_t i = 0; i < made->n_prompts; i++)
		json_array_append_new(prompts, prompt_json(&made->prompts[i], root,
							   o->block_tokens));
	return json_pack("{s:s, s:s, s:s, s:i, s:o}", "model", view.model, "end",
			 prompt_end_name(made->end), "why", made->why, "block_tokens",
			 (int)o->block_tokens, "prompts", prompts);
}

/* The tokens on one line, then the hashes as `hash` prints them. */
static void
print(const json_t *result)
{
	json_t *one, *v;
	size_t i, k;

	printf("%s%s%s\n", json_string_value(json_object_get(result, "end")),
	       json_string_length(json_object_get(result, "why")) ? ": " : "",
	       json_string_value(json_object_get(result, "why")));
	json_array_foreach(json_object_get(result, "prompts"), i, one) {
		json_array_foreach(json_object_get(one, "tokens"), k, v)
			printf("%s%lld", k ? " " : "", (long long)json_integer_value(v));
		putchar('\n');
		json_array_foreach(json_object_get(one, "blocks"), k, v)
			puts(json_string_value(v));
	}
}

static int
blocks(const struct options *o, struct prompts *p)
{
	struct prompt_made made;
	struct slice body;
	uint64_t seed;

	if (!seed_of(o, &seed) || !prompts_read(p))
		return 1;
	body = slice_of(p->in ? p->in : "", p->in_len);
	prompt_make(p->maker, p->m, NULL, p->route, body, 0, &made);
	if (made.n_prompts == 0) {
		prompts_complain(o, p, &made);
		return 1;
	}
	return print_result(o, result_of(o, &made, body, seed), print);
}

int
command_blocks(const struct options *o)
{
	struct prompts p = {0};
	int code;

	if (!o->model || !o->block_tokens) {
		complain("blocks needs --model DIR and --block-size N (pointsctl help)");
		return EXIT_USAGE;
	}
	code = prompts_open(o, &p);
	if (code == 0)
		code = blocks(o, &p);
	prompts_close(&p);
	return code;
}
