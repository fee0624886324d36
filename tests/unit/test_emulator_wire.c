/* What the emulator puts on the wire: KV event payloads byte for byte against samples of real
 * shapes, the tokenizer and chat template, prompts of ids, the metrics page. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/emulator/exposition.h"
#include "tests/emulator/ids.h"
#include "tests/emulator/kv_encode.h"
#include "tests/emulator/options.h"
#include "tests/emulator/tokenizer.h"

static const uint32_t sample[32] = {151644, 8948,   198, 2610,   525, 264,    10950, 17847,
				    13,     151645, 198, 151644, 872, 198,    9064,  374,
				    279,    6722,   315, 9625,   30,  151645, 198,   151644,
				    77091,  198,    785, 6722,   315, 9625,   374,   12095};

/* The file of that name holds exactly what we encode. */
static void
same_as_sample(const char *name, const msgpack_sbuffer *got)
{
	char path[512], want[4096];
	FILE *f;
	size_t n;

	snprintf(path, sizeof path, "%s/tests/data/kv-events/%s.bin", PM_SOURCE_DIR, name);
	f = fopen(path, "rb");
	cr_assert(f != NULL, "%s", path);
	n = fread(want, 1, sizeof want, f);
	fclose(f);
	cr_assert_eq(n, got->size, "%s: %zu bytes, want %zu", name, got->size, n);
	for (size_t i = 0; i < n; i++)
		cr_assert_eq((uint8_t)want[i], (uint8_t)got->data[i],
			     "%s: byte %zu is %02x, want %02x", name, i, (uint8_t)got->data[i],
			     (uint8_t)want[i]);
}

static double
sample_ts(void)
{
	uint64_t bits = 0x41dabf61b0080000u;
	double ts;

	memcpy(&ts, &bits, sizeof ts);
	return ts;
}

static void
encode_like(const char *name, bool as_map, const struct engine_event *ev)
{
	struct kv_encode_config cfg = {.as_map = as_map, .int_hashes = true,
				       .algo = BLOCKHASH_SHA256_CBOR, .block_tokens = 16};
	struct blockhash hash[2];
	struct engine_events evs = {.event = ev, .events = 1, .hash = hash, .token = sample};
	msgpack_sbuffer out;

	blockhash_root(cfg.algo, "0", &hash[0]);
	blockhash_next(cfg.algo, &hash[0], sample, 16, NULL, &hash[0]);
	blockhash_next(cfg.algo, &hash[0], sample + 16, 16, NULL, &hash[1]);
	msgpack_sbuffer_init(&out);
	kv_encode(&cfg, sample_ts(), &evs, &out);
	same_as_sample(name, &out);
	msgpack_sbuffer_destroy(&out);
}

static const struct engine_event stored = {.kind = ENGINE_STORED, .hashes = 2, .tokens = 32,
					   .salt_at = -1};
static const struct engine_event removed = {.kind = ENGINE_REMOVED, .hash_at = 1, .hashes = 1,
					    .salt_at = -1};
static const struct engine_event cleared = {.kind = ENGINE_CLEARED, .salt_at = -1};

Test(emulator_wire, map_events_are_byte_for_byte_those_of_vllm_0_26)
{
	encode_like("g5_v0.26.0_block_stored", true, &stored);
	encode_like("g5_v0.26.0_block_removed", true, &removed);
	encode_like("g5_v0.26.0_all_cleared", true, &cleared);
}

Test(emulator_wire, array_events_are_byte_for_byte_those_of_vllm_0_11)
{
	encode_like("g2_v0.11.0_block_stored", false, &stored);
	encode_like("g2_v0.11.0_block_removed", false, &removed);
	encode_like("g2_v0.11.0_all_cleared", false, &cleared);
}

Test(emulator_wire, four_bytes_are_one_token_and_a_common_prefix_stays_common)
{
	unsigned n, m;
	uint32_t *a = tokenizer_encode(TOKENIZER_BYTES4, "abcdefghij", 10, &n);
	uint32_t *b = tokenizer_encode(TOKENIZER_BYTES4, "abcdefghXY", 10, &m);

	cr_assert_eq(n, 3);
	cr_assert_eq(m, 3);
	cr_assert_eq(a[0], 0x64636261u);
	cr_assert_eq(a[1], b[1]);
	cr_assert_neq(a[2], b[2]);
	cr_assert_eq(a[2], 0x6a69u);
	free(a);
	free(b);
	a = tokenizer_encode(TOKENIZER_BYTES4, "\xff\xff\xff\xff", 4, &n);
	cr_assert_eq(a[0], 0x7fffffffu);
	free(a);
}

Test(emulator_wire, id_words_are_those_ids)
{
	unsigned n;
	uint32_t *a = tokenizer_encode(TOKENIZER_IDS, " 17\n2147483647 word 17", 22, &n);

	cr_assert_eq(n, 4);
	cr_assert_eq(a[0], 17);
	cr_assert_eq(a[1], 2147483647u);
	cr_assert_eq(a[3], 17);
	free(a);
}

Test(emulator_wire, the_chat_template_is_what_its_header_says)
{
	json_t *messages = json_pack("[{s:s,s:s},{s:s,s:[{s:s,s:s},{s:s,s:s}]}]", "role", "system",
				     "content", "be brief", "role", "user", "content", "type",
				     "text", "text", "one", "type", "text", "text", "two");
	const char *why = NULL;
	size_t len;
	char *text = tokenizer_chat(messages, NULL, 1, &len, &why);

	cr_assert_str_eq(text, "<|system|>\nbe brief\n<|user|>\none\ntwo\n<|assistant|>\n");
	cr_assert_eq(len, strlen(text));
	free(text);
	text = tokenizer_chat(messages, NULL, 0, &len, &why);
	cr_assert_str_eq(text, "<|system|>\nbe brief\n<|user|>\none\ntwo\n");
	free(text);
	json_decref(messages);

	messages = json_pack("[{s:s}]", "content", "no role");
	cr_assert_null(tokenizer_chat(messages, NULL, 1, &len, &why));
	cr_assert_str_eq(why, "each message needs a role");
	json_decref(messages);
}

static uint32_t *
take(const char *body, unsigned *n, char rest[static 256])
{
	char *p = NULL;
	size_t len = 0;
	uint32_t *token = ids_take(body, strlen(body), n, &p, &len);

	rest[0] = '\0';
	if (token != NULL)
		snprintf(rest, 256, "%.*s", (int)len, p);
	free(p);
	return token;
}

Test(emulator_wire, a_list_of_ids_is_taken_out_of_the_body)
{
	char rest[256];
	unsigned n = 0;
	uint32_t *token =
		take("{\"model\":\"m\",\"prompt\":[1, 22,333],\"max_tokens\":4}", &n, rest);

	cr_assert_not_null(token);
	cr_assert_eq(n, 3);
	cr_assert_eq(token[2], 333);
	cr_assert_str_eq(rest, "{\"model\":\"m\",\"prompt\": null,\"max_tokens\":4}");
	free(token);
}

Test(emulator_wire, any_other_prompt_is_left_in_the_body)
{
	static const char *const bodies[] = {
		"{\"prompt\":\"text\"}", "{\"prompt\":[]}", "{\"prompt\":[1,\"x\"]}",
		"{\"prompt\":[[1,2]]}", "{\"prompt\":[1,2147483648]}", "{\"prompt\":[1,-1]}",
		"{\"other\":{\"prompt\":[1]}}", "[1,2]", "", "{\"prompt\":[1,2",
	};
	char rest[256];
	unsigned n;

	for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++)
		cr_assert_null(take(bodies[i], &n, rest), "%s", bodies[i]);
}

Test(emulator_wire, the_metrics_page_has_the_names_of_its_generation)
{
	struct exposition x = {.start_time_s = 1e9};
	struct worker_job job = {.prompt_tokens = 100,
				 .hit_tokens = 64,
				 .visible = 1,
				 .finish = ENGINE_FINISH_LENGTH,
				 .scheduled_s = 0.5,
				 .queued_s = 0.25,
				 .made_s = 1};
	struct worker_stats stats = {
		.engine = {.num_blocks = 100, .free_blocks = 75, .running = 3}};
	struct engine_config cfg = {.block_tokens = 784, .num_blocks = 100};
	size_t len;
	char *page;

	exposition_token(&x, &job, 1.5, 0);
	page = exposition_render(&x, &stats, &cfg, "m", false, &len);
	cr_assert_not_null(
		strstr(page, "\nvllm:num_requests_running{engine=\"0\",model_name=\"m\"} 3\n"));
	cr_assert_not_null(
		strstr(page, "\nvllm:kv_cache_usage_perc{engine=\"0\",model_name=\"m\"} 0.25\n"));
	cr_assert_not_null(strstr(page, "\nvllm:prefix_cache_hits_total{"));
	cr_assert_not_null(strstr(page,
				  "vllm:time_to_first_token_seconds_bucket{engine=\"0\",le=\"1\","
				  "model_name=\"m\"} 0.0\n"));
	cr_assert_not_null(strstr(page, "vllm:time_to_first_token_seconds_bucket{engine=\"0\","
				  "le=\"2.5\",model_name=\"m\"} 1.0\n"));
	cr_assert_not_null(strstr(page, "finished_reason=\"length\",model_name=\"m\"} 1.0\n"));
	cr_assert_null(strstr(page, "gpu_cache_usage"));
	free(page);
	page = exposition_render(&x, &stats, &cfg, "m", true, &len);
	cr_assert_not_null(strstr(page, "\nvllm:gpu_cache_usage_perc{"));
	cr_assert_not_null(strstr(page, "\nvllm:gpu_prefix_cache_queries_total{"));
	cr_assert_not_null(strstr(page, "\nvllm:time_per_output_token_seconds_bucket{"));
	cr_assert_null(strstr(page, "vllm:kv_cache_usage_perc"));
	free(page);
}

Test(emulator_wire, a_live_change_is_all_or_nothing)
{
	char *argv[] = {(char *)(uintptr_t)"emulator", (char *)(uintptr_t)"--slow-factor=2", NULL};
	char why[256];
	struct options opt;
	json_t *change;

	cr_assert_eq(options_parse(&opt, 2, argv, why), 0);
	change = json_pack("{s:i, s:s}", "slow_factor", 3, "fail-kind", "reset");
	cr_assert_eq(options_apply_json(&opt, change, why), 0);
	cr_assert_float_eq(opt.slow_factor, 3, 1e-9);
	cr_assert_str_eq(opt.fail_kind, "reset");
	json_decref(change);
	change = json_pack("{s:i, s:s}", "slow_factor", 5, "port", "80");
	cr_assert_lt(options_apply_json(&opt, change, why), 0);
	cr_assert_str_eq(why, "'port' cannot be set live");
	cr_assert_float_eq(opt.slow_factor, 3, 1e-9);
	json_decref(change);
	options_free(&opt);
}

Test(emulator_wire, an_unknown_flag_is_an_error_that_names_it)
{
	char *argv[] = {(char *)(uintptr_t)"emulator", (char *)(uintptr_t)"--no-such", NULL};
	char why[256];
	struct options opt;

	cr_assert_lt(options_parse(&opt, 2, argv, why), 0);
	cr_assert_not_null(strstr(why, "--no-such"));
	options_free(&opt);
}
