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
#include "tests/emulator/spoil.h"
#include "tests/emulator/words.h"

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

#define MAX_EVENTS 4

/* A batch to encode: what is not set is as an engine with one group and no adapters has it. */
struct sketch {
	struct kv_encode_config cfg;
	struct engine_event event[MAX_EVENTS];
	unsigned events;
	const char *lora, *salt; /* of the hashes */
	struct blockhash hash[4];
	const uint32_t *token;
};

static const char *const loras[] = {"sql-lora"};

static void
encode_like(const char *name, struct sketch *s)
{
	struct engine_events evs = {.event = s->event, .events = s->events > 0 ? s->events : 1,
				    .hash = s->hash, .token = s->token != NULL ? s->token : sample,
				    .text = "tenant-a-9f2c"};
	msgpack_sbuffer out;

	s->cfg.algo = BLOCKHASH_SHA256_CBOR;
	s->cfg.lora = loras;
	s->cfg.group[0].kind = "full_attention";
	blockhash_root(s->cfg.algo, "0", &s->hash[0]);
	blockhash_next(s->cfg.algo, &s->hash[0], sample, 16, s->lora, s->salt, &s->hash[0]);
	blockhash_next(s->cfg.algo, &s->hash[0], sample + 16, 16, s->lora, NULL, &s->hash[1]);
	msgpack_sbuffer_init(&out);
	kv_encode(&s->cfg, sample_ts(), &evs, &out);
	same_as_sample(name, &out);
	msgpack_sbuffer_destroy(&out);
}

static struct engine_event
stored(void)
{
	return (struct engine_event){.kind = ENGINE_STORED, .block_tokens = 16, .first = true,
				     .hashes = 2, .tokens = 32, .salt_at = -1};
}

static struct engine_event
removed(unsigned hash_at)
{
	return (struct engine_event){.kind = ENGINE_REMOVED, .hash_at = hash_at, .hashes = 1,
				     .salt_at = -1};
}

static void
like(const char *name, enum kv_shape shape, enum kv_hash_form hashes, struct engine_event event)
{
	encode_like(name, &(struct sketch){.cfg = {.shape = shape, .hashes = hashes},
					   .event = {event}});
}

Test(emulator_wire, map_events_are_byte_for_byte_those_of_vllm_0_26)
{
	struct engine_event cleared = {.kind = ENGINE_CLEARED};

	for (enum kv_shape shape = KV_G5; shape <= KV_G6; shape++) {
		like("g5_v0.26.0_block_stored", shape, KV_HASH_INT, stored());
		like("g5_v0.26.0_block_removed", shape, KV_HASH_INT, removed(1));
		like("g5_v0.26.0_all_cleared", shape, KV_HASH_INT, cleared);
	}
}

Test(emulator_wire, array_events_are_byte_for_byte_those_of_vllm_0_11)
{
	struct engine_event second = stored(), cleared = {.kind = ENGINE_CLEARED};

	like("g2_v0.11.0_block_stored", KV_G2, KV_HASH_INT, stored());
	like("g2_v0.11.0_block_removed", KV_G2, KV_HASH_INT, removed(1));
	like("g2_v0.11.0_all_cleared", KV_G2, KV_HASH_INT, cleared);
	like("g2_v0.11.0_all_cleared", KV_G4C, KV_HASH_INT, cleared);

	struct sketch s = {.cfg = {.shape = KV_G2, .hashes = KV_HASH_BYTES},
			   .token = sample + 16};

	second.hash_at = 1;
	second.hashes = 1;
	second.tokens = 16;
	second.has_parent = true;
	blockhash_root(BLOCKHASH_SHA256_CBOR, "0", &second.parent);
	blockhash_next(BLOCKHASH_SHA256_CBOR, &second.parent, sample, 16, NULL, NULL,
		       &second.parent);
	s.event[0] = second;
	encode_like("g2_v0.11.0_block_stored_bytes", &s);
}

/* Some samples have hashes of no known algorithm: these digests are their bytes. */
static void
like_numbers(const char *name, const struct kv_encode_config *cfg, const uint64_t number[2],
	     const struct engine_event *event, unsigned events)
{
	struct engine_events evs = {.event = event, .events = events, .token = sample};
	struct blockhash hash[2] = {{{0}}};
	msgpack_sbuffer out;

	for (unsigned i = 0; i < 16; i++)
		hash[i / 8].bytes[i % 8] = (uint8_t)(number[i / 8] >> (56 - 8 * (i % 8)));
	evs.hash = hash;
	msgpack_sbuffer_init(&out);
	kv_encode(cfg, sample_ts(), &evs, &out);
	same_as_sample(name, &out);
	msgpack_sbuffer_destroy(&out);
}

static void
like_builtin(const char *name, enum kv_shape shape, unsigned rank, struct engine_event event)
{
	static const uint64_t number[2] = {0xcbf29ce484222325u, 0x70bc50e8e150f34eu};
	struct kv_encode_config cfg = {.shape = shape, .hashes = KV_HASH_SIGNED,
				       .algo = BLOCKHASH_FNV, .rank = rank};

	like_numbers(name, &cfg, number, &event, 1);
}

Test(emulator_wire, the_first_generations_have_signed_hashes_and_no_medium)
{
	like_builtin("g0_v0.9.0_block_stored", KV_G0, 0, stored());
	like_builtin("g1_v0.9.2_block_stored_dp1", KV_G1, 1, stored());
	like_builtin("g1_v0.9.2_block_removed", KV_G1, 0, removed(0));
}

Test(emulator_wire, an_adapter_is_told_by_number_and_name_from_0_14_on)
{
	struct sketch s = {.cfg = {.shape = KV_G3, .hashes = KV_HASH_INT}, .lora = "sql-lora",
			   .event = {stored()}};

	s.event[0].lora = 1;
	encode_like("g3_v0.14.0_block_stored_lora", &s);
}

Test(emulator_wire, a_salt_is_an_extra_key_of_the_first_block_from_0_17_on)
{
	/* the sample's hashes are those of blocks without the salt */
	struct sketch s = {.cfg = {.shape = KV_G4A, .hashes = KV_HASH_INT}, .event = {stored()}};

	s.event[0].salt_at = 0;
	encode_like("g4a_v0.17.0_block_stored_salt", &s);
}

Test(emulator_wire, a_group_is_told_by_number_from_0_20_on_and_by_kind_from_0_22_on)
{
	struct sketch s = {.cfg = {.shape = KV_G4C, .hashes = KV_HASH_INT,
				   .group[1] = {"sliding_window", 1024}},
			   .token = sample + 16, .event = {stored()}};
	struct engine_event gone = removed(0);

	like("g4b_v0.20.0_block_stored_group", KV_G4B, KV_HASH_INT, stored());
	gone.group = 1;
	like("g4b_v0.20.0_block_removed_group", KV_G4B, KV_HASH_INT, gone);
	s.event[0].group = 1;
	s.event[0].hash_at = 1;
	s.event[0].hashes = 1;
	s.event[0].tokens = 16;
	s.event[0].has_parent = true;
	blockhash_root(BLOCKHASH_SHA256_CBOR, "0", &s.event[0].parent);
	blockhash_next(BLOCKHASH_SHA256_CBOR, &s.event[0].parent, sample, 16, NULL, NULL,
		       &s.event[0].parent);
	encode_like("g4c_v0.22.0_block_stored_swa", &s);
}

Test(emulator_wire, groups_that_skip_blocks_keep_the_tokens_of_what_they_skipped)
{
	struct sketch mamba = {.cfg = {.shape = KV_G5, .hashes = KV_HASH_INT,
				       .group[1] = {"mamba", 0}}, .event = {stored()}};
	struct sketch empty = {.cfg = {.shape = KV_G5, .hashes = KV_HASH_INT,
				       .group[1] = {"sliding_window", 1024}}, .event = {stored()}};

	mamba.event[0].group = empty.event[0].group = 1;
	mamba.event[0].hash_at = 1;
	mamba.event[0].hashes = 1;
	encode_like("g5_hybrid_mamba_masked_store", &mamba);
	empty.event[0].hashes = 0;
	encode_like("g5_empty_masked_store", &empty);
}

Test(emulator_wire, an_offload_tier_has_hashes_alone_or_describes_itself)
{
	struct sketch alone = {.cfg = {.shape = KV_G2, .hashes = KV_HASH_INT, .tier_bytes = true,
				       .tier_block_size = true}, .event = {stored()}};
	struct sketch mixed = {.cfg = {.shape = KV_G6, .hashes = KV_HASH_INT, .rank = 2,
				       .self_describing = true}, .events = 3, .lora = "sql-lora"};
	struct blockhash *plain = &mixed.hash[2], *gone = &mixed.hash[3];

	alone.event[0].tier = ENGINE_CPU;
	encode_like("g2_v0.11.0_cpu_stored_tokenless", &alone);

	for (unsigned i = 0; i < 8; i++)
		gone->bytes[24 + i] = (uint8_t)(11111111111111111111u >> (56 - 8 * i));
	blockhash_root(BLOCKHASH_SHA256_CBOR, "0", plain);
	blockhash_next(BLOCKHASH_SHA256_CBOR, plain, sample, 16, NULL, NULL, plain);
	mixed.event[0] = removed(3);
	mixed.event[1] = stored();
	mixed.event[1].lora = 1;
	mixed.event[2] = stored();
	mixed.event[2].tier = ENGINE_CPU;
	mixed.event[2].hash_at = 2;
	mixed.event[2].hashes = 1;
	mixed.event[2].tokens = 16;
	encode_like("g5_v0.26.0_mixed_batch", &mixed);
}

Test(emulator_wire, sglang_tells_each_page_and_a_node_that_goes_as_one)
{
	static const uint64_t number[2] = {0x825bd78e363275cdu, 0x39f499376eac870au};
	struct engine_event now[] = {stored(), removed(0), removed(1)}, before = stored();
	struct kv_encode_config cfg = {.shape = KV_SGLANG2, .hashes = KV_HASH_HIGH,
				       .algo = BLOCKHASH_FNV, .rank = 1};

	like_numbers("sglang_v0.5.9_stored_removed", &cfg, number, now, 3);
	cfg.shape = KV_SGLANG1;
	cfg.rank = 0;
	before.hashes = 1;
	before.tokens = 16;
	like_numbers("sglang_v0.4.7_stored", &cfg, number, &before, 1);
}

Test(emulator_wire, tensorrt_llm_has_maps_without_salt_and_group)
{
	struct sketch s = {.cfg = {.shape = KV_TRTLLM, .hashes = KV_HASH_INT}, .events = 2,
			   .event = {stored(), removed(0)}};

	s.event[0].block_tokens = 32; /* as the sample says, whose hashes are of 16 */
	encode_like("trtllm_streaming_stored", &s);
}

Test(emulator_wire, a_publisher_with_an_id_says_so_in_an_empty_batch)
{
	static const uint8_t id[16] = {0x0f, 0x1e, 0x2d, 0x3c, 0x4b, 0x5a, 0x69, 0x78,
				       0x87, 0x96, 0xa5, 0xb4, 0xc3, 0xd2, 0xe1, 0xf0};
	struct kv_encode_config cfg = {.shape = KV_G6, .hashes = KV_HASH_INT, .publisher_id = id};
	msgpack_sbuffer out;

	msgpack_sbuffer_init(&out);
	kv_encode(&cfg, sample_ts(), &(struct engine_events){0}, &out);
	same_as_sample("g7_snapshot_heartbeat", &out);
	msgpack_sbuffer_destroy(&out);
}

Test(emulator_wire, each_version_has_the_row_that_holds_for_it)
{
	static const struct {
		const char *engine, *version;
		enum kv_shape shape;
		enum kv_hash_form hashes;
		bool early, topic, rank, nested;
	} want[] = {
		{"vllm", "0.9.0", KV_G0, KV_HASH_SIGNED, true, false, false, false},
		{"vllm", "0.9.1", KV_G1, KV_HASH_SIGNED, true, false, false, false},
		{"vllm", "0.10.0", KV_G1, KV_HASH_SIGNED, true, false, false, false},
		{"vllm", "0.10.1", KV_G1, KV_HASH_SIGNED, true, false, false, true},
		{"vllm", "0.10.2", KV_G2, KV_HASH_INT, true, false, false, true},
		{"vllm", "0.11", KV_G2, KV_HASH_INT, true, false, false, true},
		{"vllm", "0.11.1", KV_G2, KV_HASH_INT, false, false, true, true},
		{"vllm", "0.13.0", KV_G2, KV_HASH_INT, false, false, true, true},
		{"vllm", "0.16.0", KV_G3, KV_HASH_INT, false, false, true, true},
		{"vllm", "0.19.1", KV_G4A, KV_HASH_INT, false, false, true, true},
		{"vllm", "0.21.0", KV_G4B, KV_HASH_INT, false, false, true, true},
		{"vllm", "0.23.0", KV_G4C, KV_HASH_INT, false, false, true, true},
		{"vllm", "0.24.0", KV_G5, KV_HASH_INT, false, false, true, true},
		{"vllm", "0.25.1", KV_G5, KV_HASH_INT, false, true, true, true},
		{"vllm", "0.31.0", KV_G6, KV_HASH_INT, false, true, true, true},
		{"sglang", "0.4.7", KV_SGLANG1, KV_HASH_HIGH, false, false, false, false},
		{"sglang", "0.5.9", KV_SGLANG2, KV_HASH_HIGH, false, false, false, false},
		{"trtllm", "1.2.0", KV_TRTLLM, KV_HASH_INT, false, true, false, false},
	};
	static const char *const none[][2] = {{"vllm", "0.8.5"}, {"vllm", "0.32"}, {"vllm", "1.0"},
					      {"vllm", "0.31.0x"}, {"vllm", ""}, {"tgi", "1.0"}};
	struct generation g;
	unsigned version;
	char why[256];

	for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
		cr_assert_eq(generation_find(want[i].engine, want[i].version, &g, &version, why), 0,
			     "%s", why);
		cr_assert(g.shape == want[i].shape && g.hashes == want[i].hashes &&
			  g.events_early == want[i].early && g.replay_topic == want[i].topic &&
			  g.rank_header == want[i].rank && g.nested_errors == want[i].nested,
			  "%s %s", want[i].engine, want[i].version);
	}
	for (size_t i = 0; i < sizeof none / sizeof none[0]; i++)
		cr_assert_lt(generation_find(none[i][0], none[i][1], &g, &version, why), 0, "%s %s",
			     none[i][0], none[i][1]);
}

Test(emulator_wire, four_bytes_are_one_token_and_a_common_prefix_stays_common)
{
	unsigned n, m;
	uint32_t *a = words_encode(WORDS_BYTES4, "abcdefghij", 10, &n);
	uint32_t *b = words_encode(WORDS_BYTES4, "abcdefghXY", 10, &m);

	cr_assert_eq(n, 3);
	cr_assert_eq(m, 3);
	cr_assert_eq(a[0], 0x64636261u);
	cr_assert_eq(a[1], b[1]);
	cr_assert_neq(a[2], b[2]);
	cr_assert_eq(a[2], 0x6a69u);
	free(a);
	free(b);
	a = words_encode(WORDS_BYTES4, "\xff\xff\xff\xff", 4, &n);
	cr_assert_eq(a[0], 0x7fffffffu);
	free(a);
}

Test(emulator_wire, id_words_are_those_ids)
{
	unsigned n;
	uint32_t *a = words_encode(WORDS_IDS, " 17\n2147483647 word 17", 22, &n);

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
	char *text = words_chat(messages, NULL, 1, &len, &why);

	cr_assert_str_eq(text, "<|system|>\nbe brief\n<|user|>\none\ntwo\n<|assistant|>\n");
	cr_assert_eq(len, strlen(text));
	free(text);
	text = words_chat(messages, NULL, 0, &len, &why);
	cr_assert_str_eq(text, "<|system|>\nbe brief\n<|user|>\none\ntwo\n");
	free(text);
	json_decref(messages);

	messages = json_pack("[{s:s}]", "content", "no role");
	cr_assert_null(words_chat(messages, NULL, 1, &len, &why));
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

/* A page of an engine with one request behind it; two ranks. */
static char *
page_of(enum engine_kind_name engine, unsigned version, bool openmetrics)
{
	static struct exposition x, idle;
	static struct worker_job job = {.prompt_tokens = 2000000, .hit_tokens = 64, .visible = 1,
					.finish = ENGINE_FINISH_LENGTH, .scheduled_s = 0.5,
					.queued_s = 0.25, .made_s = 1};
	struct engine_config cfg = {.block_tokens = 784, .num_blocks = 100};
	struct exposition_rank rank[2] = {
		{&x, {.engine = {.num_blocks = 100, .free_blocks = 75, .running = 3}}},
		{&idle, {.engine = {.num_blocks = 100, .free_blocks = 100, .waiting = 2}}},
	};
	struct exposition_page page = {.engine = engine, .version = version,
				       .openmetrics = openmetrics, .model = "m", .cfg = &cfg,
				       .rank = rank, .ranks = 2, .sleep_level = 1, .lora = loras,
				       .loras = 1};
	size_t len;

	x = idle = (struct exposition){.start_time_s = 1.5e9};
	exposition_token(&x, &job, 1.5, 0);
	return exposition_render(&page, &len);
}

static void
page_has(const char *page, const char *const *lines)
{
	for (; *lines != NULL; lines++)
		cr_assert_not_null(strstr(page, *lines), "no '%s' in\n%s", *lines, page);
}

Test(emulator_wire, the_metrics_page_has_the_names_of_its_version)
{
	static const char *const now[] = {
		"\nvllm:num_requests_running{engine=\"0\",model_name=\"m\"} 3.0\n",
		"\nvllm:num_requests_waiting{engine=\"1\",model_name=\"m\"} 2.0\n",
		"\nvllm:num_requests_waiting_by_reason{engine=\"1\",model_name=\"m\","
		"reason=\"capacity\"} 2.0\n",
		"\nvllm:engine_sleep_state{engine=\"0\",model_name=\"m\","
		"sleep_state=\"weights_offloaded\"} 1.0\n",
		"\nvllm:kv_cache_usage_perc{engine=\"0\",model_name=\"m\"} 0.25\n",
		"\nvllm:prefix_cache_hits_total{", "\nvllm:prefix_cache_hits_created{",
		"\nvllm:prompt_tokens_total{engine=\"0\",model_name=\"m\"} 2e+06\n",
		"\nvllm:time_to_first_token_seconds_bucket{engine=\"0\",le=\"1.0\","
		"model_name=\"m\"} 0.0\n",
		"\nvllm:time_to_first_token_seconds_bucket{engine=\"0\",le=\"2.5\","
		"model_name=\"m\"} 1.0\n",
		"finished_reason=\"length\",model_name=\"m\"} 1.0\n",
		"\nvllm:lora_requests_info{max_lora=\"4\",running_lora_adapters=\"sql-lora\",",
		"\nvllm:cache_config_info{block_size=\"784\"", NULL};
	static const char *const old[] = {
		"\nvllm:gpu_cache_usage_perc{", "\nvllm:gpu_prefix_cache_queries_total{",
		"\nvllm:time_per_output_token_seconds_bucket{", NULL};
	static const char *const both[] = {
		"\nvllm:gpu_cache_usage_perc{", "\nvllm:kv_cache_usage_perc{",
		"\nvllm:gpu_prefix_cache_hits_total{", "\nvllm:prefix_cache_hits_total{", NULL};
	char *page = page_of(ENGINE_VLLM, 3100, false);

	page_has(page, now);
	cr_assert_null(strstr(page, "gpu_cache_usage"));
	free(page);
	page = page_of(ENGINE_VLLM, 900, false);
	page_has(page, old);
	cr_assert_null(strstr(page, "vllm:kv_cache_usage_perc"));
	cr_assert_null(strstr(page, "engine_sleep_state"));
	free(page);
	page = page_of(ENGINE_VLLM, 1002, false);
	page_has(page, both);
	free(page);
}

Test(emulator_wire, the_rust_front_end_writes_openmetrics_and_leaves_out_what_it_leaves_out)
{
	static const char *const lines[] = {
		"\nvllm:num_requests_running{model_name=\"m\",engine=\"0\"} 3\n",
		"\n# TYPE vllm:prompt_tokens counter\n"
		"vllm:prompt_tokens_total{model_name=\"m\",engine=\"0\"} 2000000\n",
		"\nvllm:time_to_first_token_seconds_bucket{le=\"2.5\",model_name=\"m\","
		"engine=\"0\"} 1\n",
		"\nvllm:request_success_total{model_name=\"m\",engine=\"0\","
		"finished_reason=\"length\"} 1\n",
		"\nvllm:lora_requests_info{running_lora_adapters=\"sql-lora\",", "\n# EOF\n", NULL};
	char *page = page_of(ENGINE_VLLM, 3100, true);

	page_has(page, lines);
	cr_assert_null(strstr(page, "cache_config_info"));
	cr_assert_null(strstr(page, "engine_sleep_state"));
	cr_assert_null(strstr(page, "iteration_tokens"));
	cr_assert_null(strstr(page, "process_start_time"));
	cr_assert_null(strstr(page, "_created"));
	free(page);
}

Test(emulator_wire, sglang_and_tensorrt_llm_have_names_of_their_own)
{
	static const char *const sglang[] = {
		"\nsglang:num_running_reqs{dp_rank=\"0\",engine_type=\"unified\",model_name=\"m\","
		"moe_ep_rank=\"0\",pp_rank=\"0\",tp_rank=\"0\"} 3.0\n",
		"\nsglang:num_queue_reqs{dp_rank=\"1\",", "\nsglang:token_usage{",
		"\nsglang:cached_tokens_total{cache_source=\"device\",dp_rank=\"0\",", NULL};
	static const char *const trtllm[] = {
		"\ntrtllm_num_requests_running{engine_type=\"unified\",model_name=\"m\"} 3.0\n",
		"\ntrtllm_kv_cache_utilization{", "\ntrtllm_kv_cache_tokens_per_block{", NULL};
	char *page = page_of(ENGINE_SGLANG, 509, false);

	page_has(page, sglang);
	free(page);
	page = page_of(ENGINE_TRTLLM, 1200, false);
	page_has(page, trtllm);
	free(page);
}

Test(emulator_wire, a_spoilt_page_is_what_its_fault_says)
{
	char *page = page_of(ENGINE_VLLM, 3100, false), *spoilt;
	size_t len = strlen(page), got;

	spoilt = spoil_page(page, len, METRICS_NAN, &got);
	cr_assert_not_null(
		strstr(spoilt, "\nvllm:kv_cache_usage_perc{engine=\"0\",model_name=\"m\"} NaN\n"));
	cr_assert_not_null(
		strstr(spoilt, "vllm:num_requests_running{engine=\"0\",model_name=\"m\"} 3.0\n"));
	free(spoilt);
	spoilt = spoil_page(page, len, METRICS_HELP_ONLY, &got);
	cr_assert(spoilt[0] == '#' && strstr(spoilt, "\nvllm:") == NULL);
	free(spoilt);
	spoilt = spoil_page(page, len, METRICS_HUGE, &got);
	cr_assert_gt(got, 16u << 20);
	free(spoilt);
	spoilt = spoil_page(page, len, METRICS_GZIP, &got);
	cr_assert(got > len && (uint8_t)spoilt[0] == 0x1f && (uint8_t)spoilt[1] == 0x8b);
	free(spoilt);
	free(page);
}

Test(emulator_wire, groups_are_read_from_their_flag)
{
	char *argv[] = {(char *)(uintptr_t)"emulator",
			(char *)(uintptr_t)"--kv-groups=sliding_window:1024:32,mamba:0:64", NULL};
	struct engine_config cfg = {.block_tokens = 16, .num_blocks = 100};
	struct kv_group_names names[1 + ENGINE_GROUPS_MAX];
	struct options opt;
	char why[256];

	cr_assert_eq(options_parse(&opt, 2, argv, why), 0, "%s", why);
	cr_assert_eq(options_groups(&opt, &cfg, names, why), 0);
	cr_assert_eq(cfg.groups, 2);
	cr_assert_eq(cfg.group[0].blocks, 50);
	cr_assert_eq(names[1].window_tokens, 1024);
	cr_assert_str_eq(names[2].kind, "mamba");
	options_free(&opt);
	argv[1] = (char *)(uintptr_t)"--kv-groups=full:0:16";
	cr_assert_lt(options_parse(&opt, 2, argv, why), 0);
	cr_assert_not_null(strstr(why, "--kv-groups"));
	options_free(&opt);
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
