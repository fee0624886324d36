#include <criterion/criterion.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/kv_events.h"

#define DATA PM_SOURCE_DIR "/tests/data/"

struct bytes {
	uint8_t *p;
	size_t n;
};

static struct bytes
file_read(const char *path)
{
	struct bytes b = {NULL, 0};
	FILE *f = fopen(path, "rb");
	long n;

	cr_assert(f, "%s", path);
	fseek(f, 0, SEEK_END);
	n = ftell(f);
	rewind(f);
	b.p = malloc((size_t)n + 1);
	b.n = fread(b.p, 1, (size_t)n, f);
	b.p[b.n] = '\0';
	fclose(f);
	return b;
}

/* A vector of the published set, by name. */
static struct bytes
vector_read(const char *name)
{
	char path[512];

	snprintf(path, sizeof(path), DATA "kv-events/%s.bin", name);
	return file_read(path);
}

static struct bytes
hex_undo(struct bytes text)
{
	size_t n = 0;

	for (size_t i = 0; i + 1 < text.n; i++) {
		unsigned byte;

		if (text.p[i] == '\n' || sscanf((char *)text.p + i, "%2x", &byte) != 1)
			continue;
		text.p[n++] = (uint8_t)byte;
		i++;
	}
	text.n = n;
	return text;
}

static struct bytes
case_read(const char *name)
{
	char path[512];

	snprintf(path, sizeof(path), DATA "cases/kv/%s.hex", name);
	return hex_undo(file_read(path));
}

/* Decode from a block of exactly its size, so that a sanitizer sees any step outside. */
static int
decode(struct bytes b, struct kv_batch *batch, uint8_t **ret_copy)
{
	const char *why;
	int r;

	*ret_copy = malloc(b.n ? b.n : 1);
	memcpy(*ret_copy, b.p, b.n);
	r = kv_batch_decode(*ret_copy, b.n, batch, &why);
	cr_assert((r == 0) == (why == NULL));
	return r;
}

Test(kv_events, every_vector_prints_as_expected)
{
	struct bytes expected = file_read(DATA "kv-events/expected.txt");
	struct kv_batch batch = {0};
	unsigned vectors = 0, events = 0;
	char *line = (char *)expected.p;

	while (*line) {
		char name[128];
		size_t n = strcspn(line, "\t");
		uint8_t *copy;
		struct bytes b;

		snprintf(name, sizeof(name), "%.*s", (int)n, line);
		b = vector_read(name);
		cr_assert_eq(decode(b, &batch, &copy), 0, "%s", name);
		cr_assert_eq(batch.n_failed, 0, "%s", name);
		vectors++;
		for (size_t i = 0; i < batch.n_events; i++) {
			char *text = NULL;
			size_t len = 0, want;
			FILE *f = open_memstream(&text, &len);

			kv_event_print_json(f, &batch, &batch.events[i]);
			fclose(f);
			cr_assert(strncmp(line, name, n) == 0 && line[n] == '\t', "%s: too few",
				  name);
			want = strcspn(line, "\n") + 1;
			cr_assert_eq(len, want - n - 1, "%s: %s", name, text);
			cr_assert(memcmp(text, line + n + 1, len) == 0, "%s:\n%s%.*s", name, text,
				  (int)want, line);
			line += want;
			events++;
			free(text);
		}
		free(copy);
		free(b.p);
	}
	cr_assert_eq(vectors, 28); /* of 30: one is cut short, one is a heartbeat */
	cr_assert_eq(events, 34);
	kv_batch_free(&batch);
	free(expected.p);
}

Test(kv_events, every_truncation_of_every_vector_is_refused)
{
	static const char *const names[] = {"g0_v0.9.0_block_stored", "g5_v0.26.0_mixed_batch",
					    "trtllm_streaming_stored", "sglang_bigram_tokens"};
	struct kv_batch batch = {0};
	const char *why;

	for (size_t k = 0; k < 4; k++) {
		struct bytes b = vector_read(names[k]);

		for (size_t n = 0; n < b.n; n++) {
			uint8_t *cut = malloc(n ? n : 1);

			memcpy(cut, b.p, n);
			cr_assert_eq(kv_batch_decode(cut, n, &batch, &why), -EBADMSG);
			cr_assert_eq(batch.n_events, 0);
			free(cut);
		}
		free(b.p);
	}
	kv_batch_free(&batch);
}

Test(kv_events, a_truncated_vector_is_refused_with_a_reason)
{
	struct bytes b = vector_read("bad_truncated");
	struct kv_batch batch = {0};
	const char *why = NULL;

	cr_assert_eq(kv_batch_decode(b.p, b.n, &batch, &why), -EBADMSG);
	cr_assert_str_eq(why, "the payload is cut short or not msgpack");
	free(b.p);
	kv_batch_free(&batch);
}

Test(kv_events, an_unknown_tag_is_skipped_and_its_neighbour_kept)
{
	struct bytes b = vector_read("bad_unknown_event");
	struct kv_batch batch = {0};
	uint8_t *copy;

	cr_assert_eq(decode(b, &batch, &copy), 0);
	cr_assert_eq(batch.n_events, 1);
	cr_assert_eq(batch.n_skipped, 1);
	cr_assert_eq(batch.n_failed, 0);
	cr_assert_eq(batch.events[0].type, KV_REMOVED);
	free(copy);
	free(b.p);
	kv_batch_free(&batch);
}

Test(kv_events, a_heartbeat_is_a_batch_without_events)
{
	struct bytes b = vector_read("g7_snapshot_heartbeat");
	struct kv_batch batch = {0};
	uint8_t *copy;

	cr_assert_eq(decode(b, &batch, &copy), 0);
	cr_assert_eq(batch.n_events, 0);
	cr_assert_eq(batch.publisher_id.n, 16);
	cr_assert_eq(batch.publisher_id.p[0], 0x0f);
	cr_assert(batch.has_rank && batch.rank == 0);
	cr_assert_eq(batch.ts_s, 1795000000.125);
	free(copy);
	free(b.p);
	kv_batch_free(&batch);
}

Test(kv_events, one_bad_event_does_not_drop_its_neighbours)
{
	/* [1, [["BlockStored", 7, nil, [], 16, nil], 5, ["AllBlocksCleared"], [9]], 3] */
	static const uint8_t payload[] = "\x93\x01\x94\x96\xab" "BlockStored\x07\xc0\x90\x10\xc0"
					 "\x05\x91\xb0" "AllBlocksCleared\x91\x09\x03";
	struct kv_batch batch = {0};
	const char *why;

	cr_assert_eq(kv_batch_decode(payload, sizeof(payload) - 1, &batch, &why), 0);
	cr_assert_eq(batch.n_events, 1);
	cr_assert_eq(batch.events[0].type, KV_CLEARED);
	cr_assert_eq(batch.n_failed, 3);
	cr_assert_str_eq(batch.failed_why, "block_hashes is no list");
	cr_assert_eq(batch.rank, 3);
	cr_assert_eq(batch.ts_s, 1.0);
	kv_batch_free(&batch);
}

Test(kv_events, a_failed_event_gives_back_what_it_read)
{
	/* stored with hashes [1, 2, "x"], then removed [3] */
	static const uint8_t payload[] = "\x92\x01\x92\x96\xab"
					 "BlockStored\x93\x01\x02\xa1x\xc0\x90\x10\xc0"
					 "\x92\xac" "BlockRemoved\x91\x03";
	struct kv_batch batch = {0};
	const char *why;

	cr_assert_eq(kv_batch_decode(payload, sizeof(payload) - 1, &batch, &why), 0);
	cr_assert_eq(batch.n_failed, 1);
	cr_assert_str_eq(batch.failed_why, "a block hash is neither an integer nor bytes");
	cr_assert_eq(batch.n_events, 1);
	cr_assert_eq(batch.events[0].n_hashes, 1);
	cr_assert_eq(batch.events[0].hashes[0], 3);
	kv_batch_free(&batch);
}

/* KV-01 and KV-03: the same store in five encodings. */
Test(kv_events, all_encodings_of_one_store_read_alike)
{
	static const char *const names[] = {"kv01_array", "kv01_map",
					    "kv01_map_type_last_unknown_keys", "kv01_outer_map"};
	struct kv_batch batch = {0};

	for (size_t k = 0; k < 4; k++) {
		struct bytes b = case_read(names[k]);
		const struct kv_event *ev;
		uint8_t *copy;

		cr_assert_eq(decode(b, &batch, &copy), 0, "%s", names[k]);
		cr_assert_eq(batch.n_events, 1, "%s", names[k]);
		ev = &batch.events[0];
		cr_assert_eq(ev->type, KV_STORED);
		cr_assert_eq(ev->n_hashes, 1);
		cr_assert_eq(ev->hashes[0], 0xf1e2d3c4b5a69788);
		cr_assert_not(ev->has_parent);
		cr_assert(ev->tokens_usable);
		cr_assert_eq(ev->n_tokens, 16);
		cr_assert_eq(ev->token_ids[0], 1001);
		cr_assert_eq(ev->token_ids[15], 1016);
		cr_assert_eq(ev->block_tokens, 16);
		cr_assert_eq(ev->medium, KV_MEDIUM_GPU);
		free(copy);
		free(b.p);
	}
	kv_batch_free(&batch);
}

Test(kv_events, arrays_and_maps_may_share_a_batch)
{
	static const enum kv_event_type types[] = {KV_STORED,  KV_STORED,  KV_REMOVED,
						   KV_REMOVED, KV_CLEARED, KV_CLEARED};
	struct bytes b = case_read("kv01_mixed_batch");
	struct kv_batch batch = {0};
	uint8_t *copy;

	cr_assert_eq(decode(b, &batch, &copy), 0);
	cr_assert_eq(batch.n_events, 6);
	for (size_t i = 0; i < 6; i++)
		cr_assert_eq(batch.events[i].type, types[i]);
	cr_assert(batch.events[1].has_parent);
	cr_assert_eq(batch.events[1].parent, 0x1122334455667788);
	cr_assert_eq(batch.events[1].token_ids[0], 2001);
	cr_assert_eq(batch.events[3].hashes[0], 0xf1e2d3c4b5a69788);
	free(copy);
	free(b.p);
	kv_batch_free(&batch);
}

Test(kv_events, short_and_long_arrays_are_older_and_newer_schemas)
{
	struct kv_batch batch = {0};
	struct bytes b = case_read("kv03_array_min5");
	uint8_t *copy;

	cr_assert_eq(decode(b, &batch, &copy), 0);
	cr_assert(batch.n_events == 1 && batch.events[0].tokens_usable);
	cr_assert_eq(batch.events[0].medium, KV_MEDIUM_GPU);
	cr_assert_not(batch.events[0].has_group);
	free(copy);
	free(b.p);
	b = case_read("kv03_array_14_fields");
	cr_assert_eq(decode(b, &batch, &copy), 0);
	cr_assert(batch.n_events == 1 && batch.events[0].tokens_usable);
	cr_assert(batch.events[0].has_group && batch.events[0].group == 0);
	cr_assert_eq(batch.events[0].spec, KV_SPEC_FULL);
	cr_assert(batch.has_rank && batch.rank == 0);
	free(copy);
	free(b.p);
	b = case_read("kv03_removed_short_and_long");
	cr_assert_eq(decode(b, &batch, &copy), 0);
	cr_assert_eq(batch.n_events, 3);
	cr_assert_not(batch.events[0].has_group);
	cr_assert(batch.events[1].has_group && batch.events[1].group == 1);
	cr_assert_eq(batch.events[2].hashes[0], 0x0a0b0c0d0e0f1011);
	free(copy);
	free(b.p);
	b = case_read("kv03_batch_without_rank");
	cr_assert_eq(decode(b, &batch, &copy), 0);
	cr_assert(batch.n_events == 1 && !batch.has_rank);
	free(copy);
	free(b.p);
	b = case_read("kv03_int_timestamp");
	cr_assert_eq(decode(b, &batch, &copy), 0);
	cr_assert(batch.n_events == 1 && !batch.has_rank);
	cr_assert_eq(batch.ts_s, (double)0x6ab13b80);
	free(copy);
	free(b.p);
	kv_batch_free(&batch);
}

Test(kv_events, groups_keep_their_kind_and_block_size)
{
	struct bytes b = case_read("kv11_groups");
	struct kv_batch batch = {0};
	uint8_t *copy;

	cr_assert_eq(decode(b, &batch, &copy), 0);
	cr_assert_eq(batch.n_events, 5);
	cr_assert_eq(batch.events[0].spec, KV_SPEC_FULL);
	cr_assert_eq(batch.events[0].block_tokens, 16);
	cr_assert_eq(batch.events[1].spec, KV_SPEC_SLIDING);
	cr_assert_eq(batch.events[1].group, 1);
	cr_assert(batch.events[2].type == KV_REMOVED && batch.events[2].group == 1);
	cr_assert_eq(batch.events[3].block_tokens, 256);
	cr_assert_eq(batch.events[3].n_tokens, 256);
	free(copy);
	free(b.p);
	kv_batch_free(&batch);
}

Test(kv_events, offload_placeholders_teach_residency_and_no_tokens)
{
	struct bytes b = case_read("kv12_offload");
	struct kv_batch batch = {0};
	uint8_t *copy;

	cr_assert_eq(decode(b, &batch, &copy), 0);
	cr_assert_eq(batch.n_events, 5);
	cr_assert_eq(batch.events[1].medium, KV_MEDIUM_CPU);
	cr_assert_eq(batch.events[1].block_tokens, 0);
	cr_assert_eq(batch.events[1].n_tokens, 0);
	cr_assert_not(batch.events[1].tokens_usable);
	cr_assert_eq(batch.events[2].type, KV_REMOVED);
	cr_assert_eq(batch.events[3].n_hashes, 4);
	cr_assert(batch.events[3].tokens_usable);
	free(copy);
	free(b.p);
	kv_batch_free(&batch);
}

Test(kv_events, masked_spans_and_bigrams_have_no_usable_tokens)
{
	static const char *const names[] = {"g5_hybrid_mamba_masked_store", "g5_empty_masked_store",
					    "sglang_bigram_tokens", "trtllm_streaming_stored",
					    "g2_v0.11.0_cpu_stored_tokenless"};
	struct kv_batch batch = {0};

	for (size_t k = 0; k < 5; k++) {
		struct bytes b = vector_read(names[k]);
		uint8_t *copy;

		cr_assert_eq(decode(b, &batch, &copy), 0);
		cr_assert_eq(batch.events[0].type, KV_STORED);
		cr_assert_not(batch.events[0].tokens_usable, "%s", names[k]);
		free(copy);
		free(b.p);
	}
	kv_batch_free(&batch);
}

Test(kv_events, extra_keys_come_apart)
{
	struct kv_batch batch = {0};
	struct kv_extra x;
	struct bytes b = vector_read("g4a_v0.17.0_block_stored_salt");
	uint8_t *copy;

	cr_assert_eq(decode(b, &batch, &copy), 0);
	kv_extra_split(&batch.events[0], 0, &x);
	cr_assert(!x.unknown && !x.lora.p && !x.mm.p && x.salt.n == 13);
	cr_assert(memcmp(x.salt.p, "tenant-a-9f2c", 13) == 0);
	kv_extra_split(&batch.events[0], 1, &x);
	cr_assert(!x.unknown && !x.salt.p);
	kv_extra_split(&batch.events[0], 2, &x);
	cr_assert(!x.unknown && !x.salt.p);
	free(copy);
	free(b.p);
	b = vector_read("g5_v0.26.0_mixed_batch");
	cr_assert_eq(decode(b, &batch, &copy), 0);
	kv_extra_split(&batch.events[1], 0, &x);
	cr_assert(!x.unknown && x.lora.n == 8 && !x.salt.p);
	kv_extra_split(&batch.events[1], 1, &x);
	cr_assert(!x.unknown && x.lora.n == 8);
	kv_extra_split(&batch.events[2], 0, &x);
	cr_assert(!x.unknown && !x.lora.p);
	free(copy);
	free(b.p);
	b = vector_read("g5_v0.26.0_block_stored_multimodal");
	cr_assert_eq(decode(b, &batch, &copy), 0);
	kv_extra_split(&batch.events[0], 1, &x);
	cr_assert(!x.unknown && x.mm.n == 11 && !x.salt.p);
	cr_assert(memcmp(x.mm.p, "\x92\xa8" "4f5e6d7c\xf3", 11) == 0);
	free(copy);
	free(b.p);
	kv_batch_free(&batch);
}

Test(kv_events, extra_keys_of_another_shape_are_unknown)
{
	/* extra_keys: [[{"type": "x"}]] and, second event, a list of another length */
	static const uint8_t payload[] =
		"\x92\x01\x92\x99\xab"
		"BlockStored\x91\x01\xc0\x91\x05\x01\xc0\xc0\xc0\x91\x91\x81\xa4type\xa1x"
		"\x99\xab"
		"BlockStored\x91\x01\xc0\x91\x05\x01\xc0\xc0\xc0\x92\xc0\xc0";
	struct kv_batch batch = {0};
	struct kv_extra x;
	const char *why;

	cr_assert_eq(kv_batch_decode(payload, sizeof(payload) - 1, &batch, &why), 0);
	cr_assert_eq(batch.n_events, 2);
	for (size_t i = 0; i < 2; i++) {
		kv_extra_split(&batch.events[i], 0, &x);
		cr_assert(x.unknown);
	}
	cr_assert(batch.events[0].tokens_usable, "the whole entry parts it from others");
	kv_extra_split(&batch.events[0], 0, &x);
	cr_assert(x.entry.n == 9 && x.entry.p[0] == 0x91 && x.entry.p[1] == 0x81);
	cr_assert(batch.events[1].keys_unread && !batch.events[1].tokens_usable);
	kv_batch_free(&batch);
}

/* One BlockStored of one block as a map, `fields` and their number beside what all have. */
static size_t
stored_map(uint8_t *to, unsigned n, const char *fields, size_t len)
{
	static const char head[] = "\x92\x01\x91\x80\xa4type\xab" "BlockStored"
				   "\xac" "block_hashes\x91\x01\xa9token_ids\x92\x05\x06"
				   "\xaa" "block_size\x02";

	memcpy(to, head, sizeof(head) - 1);
	to[3] = (uint8_t)(0x84 + n);
	memcpy(to + sizeof(head) - 1, fields, len);
	return sizeof(head) - 1 + len;
}

Test(kv_events, unknown_keys_of_any_type_are_skipped)
{
	static const struct {
		unsigned n;
		const char *fields;
		size_t len;
	} maps[] = {
#define FIELDS(n, text) {n, text, sizeof(text) - 1}
		FIELDS(0, ""),
		FIELDS(1, "\xa3new\xd6\xff\x01\x02\x03\x04"),    /* a time, as an extension */
		FIELDS(1, "\xa3new\x81\x90\x81\xc2\xcb@\x08\x00\x00\x00\x00\x00\x00"),
		FIELDS(2, "\xc7\x01\x05\x09\xc3\x91\xc0\xc4\x01q"), /* keys that are no text */
		FIELDS(1, "\xa8locality\xc0"),
	};
	struct kv_batch batch = {0};
	uint8_t payload[256];
	const char *why;

	for (size_t i = 0; i < sizeof(maps) / sizeof(maps[0]); i++) {
		size_t n = stored_map(payload, maps[i].n, maps[i].fields, maps[i].len);

		cr_assert_eq(kv_batch_decode(payload, n, &batch, &why), 0, "%zu: %s", i, why);
		cr_assert_eq(batch.n_events, 1, "%zu", i);
		cr_assert(batch.events[0].tokens_usable, "%zu", i);
	}
	kv_batch_free(&batch);
}

Test(kv_events, an_adapter_of_whatever_form_is_never_the_base_model)
{
	static const struct {
		const char *fields;
		size_t len;
		unsigned n;
		bool usable, number;
		const char *name;
	} ones[] = {
#define LORA(n, text, ...) {text, sizeof(text) - 1, n, __VA_ARGS__}
		LORA(1, "\xa7lora_id\xc0", true, false, NULL),
		LORA(1, "\xa7lora_id\x07", true, true, NULL),
		LORA(1, "\xa7lora_id\xa1x", true, false, "x"),
		LORA(2, "\xa7lora_id\x07\xa9lora_name\xa1y", true, true, "y"),
		LORA(1, "\xa9lora_name\xc4\x01z", true, false, "z"),
		LORA(1, "\xa9lora_name\x05", false, false, NULL),
		LORA(1, "\xa7lora_id\x91\x01", false, false, NULL),
		LORA(1, "\xa7lora_id\xcf\xff\xff\xff\xff\xff\xff\xff\xff", false, false, NULL),
		LORA(1, "\xa9lora_name\xa0", true, false, NULL),
	};
	struct kv_batch batch = {0};
	uint8_t payload[256];
	const char *why;

	for (size_t i = 0; i < sizeof(ones) / sizeof(ones[0]); i++) {
		size_t n = stored_map(payload, ones[i].n, ones[i].fields, ones[i].len);
		struct kv_event *ev;

		cr_assert_eq(kv_batch_decode(payload, n, &batch, &why), 0, "%zu: %s", i, why);
		ev = &batch.events[0];
		cr_assert_eq(ev->tokens_usable, ones[i].usable, "%zu", i);
		cr_assert_eq(ev->has_lora_id, ones[i].number, "%zu", i);
		cr_assert_eq(ev->lora_name.n, ones[i].name ? strlen(ones[i].name) : 0, "%zu", i);
		if (ones[i].name)
			cr_assert_eq(memcmp(ev->lora_name.p, ones[i].name, ev->lora_name.n), 0);
	}
	kv_batch_free(&batch);
}

Test(kv_events, a_hash_nobody_can_read_does_not_keep_those_removed_beside_it)
{
	/* [1, [["BlockRemoved", [7, nil, [1, 2], 9]], ["BlockRemoved", [1]]]] */
	static const uint8_t payload[] =
		"\x92\x01\x92\x92\xac" "BlockRemoved\x94\x07\xc0\x92\x01\x02\x09"
		"\x92\xac" "BlockRemoved\x91\x01";
	struct kv_batch batch = {0};
	const char *why;

	cr_assert_eq(kv_batch_decode(payload, sizeof(payload) - 1, &batch, &why), 0);
	cr_assert_eq(batch.n_events, 2);
	cr_assert_eq(batch.events[0].n_hashes, 2);
	cr_assert(batch.events[0].hashes[0] == 7 && batch.events[0].hashes[1] == 9);
	cr_assert_eq(batch.events[1].hashes[0], 1);
	cr_assert(batch.n_failed == 1 && batch.n_lost == 1, "what the others are is not known");
	kv_batch_free(&batch);
}

Test(kv_events, a_batch_may_say_that_it_has_no_events)
{
	struct kv_batch batch = {0};
	const char *why;

	cr_assert_eq(kv_batch_decode("\x93\x01\xc0\x02", 4, &batch, &why), 0);
	cr_assert(batch.n_events == 0 && batch.rank == 2);
	kv_batch_free(&batch);
}

Test(kv_events, media_keys_of_either_name_part_a_block)
{
	static const struct {
		unsigned n;
		const char *fields;
		size_t len;
		size_t mm;
		bool usable;
	} ones[] = {
#define KEYS(n, text, mm, usable) {n, text, sizeof(text) - 1, mm, usable}
		KEYS(1, "\xa7mm_keys\x91\x91\x92\xa1i\x00", 4, true),
		KEYS(2, "\xa7mm_keys\x91\x91\x92\xa1i\x00\xaa" "extra_keys\xc0", 4, true),
		KEYS(2, "\xaa" "extra_keys\xc0\xa7mm_keys\x91\x91\x92\xa1i\x00", 4, true),
		KEYS(2, "\xaa" "extra_keys\x91\xc0\xa7mm_keys\x91\x91\x92\xa1i\x00", 0, false),
		KEYS(1, "\xa7mm_keys\x90", 0, true),
		KEYS(1, "\xaa" "extra_keys\x90", 0, true),
		KEYS(1, "\xaa" "extra_keys\x91\x90", 0, true),
		KEYS(1, "\xa7mm_keys\x92\xc0\xc0", 0, false),
		KEYS(1, "\xaa" "extra_keys\xa1x", 0, false),
	};
	struct kv_batch batch = {0};
	uint8_t payload[256];
	struct kv_extra x;
	const char *why;

	for (size_t i = 0; i < sizeof(ones) / sizeof(ones[0]); i++) {
		size_t n = stored_map(payload, ones[i].n, ones[i].fields, ones[i].len);

		cr_assert_eq(kv_batch_decode(payload, n, &batch, &why), 0, "%zu: %s", i, why);
		cr_assert_eq(batch.events[0].tokens_usable, ones[i].usable, "%zu", i);
		kv_extra_split(&batch.events[0], 0, &x);
		cr_assert_eq(x.mm.n, ones[i].mm, "%zu", i);
		cr_assert_eq(x.unknown, !ones[i].usable, "%zu", i);
	}
	kv_batch_free(&batch);
}

/* vLLM 0.17 and 0.18 named media by their identifiers alone. */
Test(kv_events, bare_extra_keys_are_media_but_for_the_last_of_a_first_block)
{
	static const struct {
		const char *fields;
		size_t len;
		unsigned n;
		size_t lora, mm, salt, embeds;
		bool unknown;
	} ones[] = {
#define BARE(n, text, ...) {text, sizeof(text) - 1, n, __VA_ARGS__}
#define NAME "\xa9lora_name\xa1" "a\xaa" "extra_keys\x91"
#define KEYS_OF "\xaa" "extra_keys\x91"
#define CHILD "\xb1parent_block_hash\x09\xaa" "extra_keys\x91"
		BARE(2, NAME "\x91\xa1" "a", 1, 0, 0, 0, false),
		BARE(2, NAME "\x93\xa1" "a\xa3img\xa4salt", 1, 4, 4, 0, false),
		BARE(2, NAME "\x92\xa1" "b\xa4salt", 0, 2, 4, 0, false),
		BARE(1, KEYS_OF "\xa4salt", 0, 0, 4, 0, false),
		BARE(1, KEYS_OF "\x94\xa3img\xa3two\xa4salt\xc4\x02hh", 0, 8, 4, 2, false),
		BARE(1, KEYS_OF "\x93\x92\xa1i\xff\xa4salt\xc4\x02hh", 0, 4, 4, 2, false),
		BARE(2, CHILD "\x92\xa3img\xa3two", 0, 8, 0, 0, false),
		BARE(2, CHILD "\xa3img", 0, 4, 0, 0, false),
		BARE(1, KEYS_OF "\x91\x81\xa1k\x01", 0, 0, 0, 0, true),
		BARE(1, KEYS_OF "\x92\xc4\x02hh\xa4salt", 0, 0, 0, 2, true),
		BARE(1, KEYS_OF "\x05", 0, 0, 0, 0, true),
	};
	struct kv_batch batch = {0};
	uint8_t payload[256];
	struct kv_extra x;
	const char *why;

	for (size_t i = 0; i < sizeof(ones) / sizeof(ones[0]); i++) {
		size_t n = stored_map(payload, ones[i].n, ones[i].fields, ones[i].len);

		cr_assert_eq(kv_batch_decode(payload, n, &batch, &why), 0, "%zu: %s", i, why);
		cr_assert(batch.events[0].tokens_usable, "%zu", i);
		kv_extra_split(&batch.events[0], 0, &x);
		cr_assert_eq(x.unknown, ones[i].unknown, "%zu", i);
		cr_assert_gt(x.entry.n, 0);
		cr_assert_eq(x.lora.n, ones[i].lora, "%zu", i);
		cr_assert_eq(x.salt.n, ones[i].salt, "%zu", i);
		cr_assert_eq(x.mm.n, ones[i].mm, "%zu: %zu", i, x.mm.n);
		cr_assert_eq(x.embeds.n, ones[i].embeds, "%zu", i);
	}
	kv_batch_free(&batch);
}

Test(kv_events, a_batch_that_claims_many_events_allocates_nothing_for_them)
{
	static const uint8_t payload[] = "\x92\x01\xdd\xff\xff\xff\xff";
	struct kv_batch batch = {0};
	const char *why;

	cr_assert_eq(kv_batch_decode(payload, sizeof(payload) - 1, &batch, &why), -EBADMSG);
	cr_assert_eq(batch.cap_events, 0);
	kv_batch_free(&batch);
}

Test(kv_events, payloads_that_are_no_batch_are_refused)
{
	static const struct bytes bad[] = {
		{(uint8_t *)(uintptr_t) "\x05", 1},
		{(uint8_t *)(uintptr_t) "\x91\x01", 2},
		{(uint8_t *)(uintptr_t) "\x92\x01\xa1x", 4},
		{(uint8_t *)(uintptr_t) "\x80", 1},
	};
	struct kv_batch batch = {0};
	const char *why;

	for (size_t i = 0; i < 4; i++)
		cr_assert_eq(kv_batch_decode(bad[i].p, bad[i].n, &batch, &why), -EBADMSG);
	kv_batch_free(&batch);
}

Test(kv_events, the_sequence_frame_needs_eight_bytes)
{
	uint64_t seq = 0;

	cr_assert_eq(kv_seq_decode("\0\0\0\0\0\0\x01\x02", 8, &seq), 0);
	cr_assert_eq(seq, 258);
	cr_assert_eq(kv_seq_decode("\0\0\0\0\0\0\x01\x03" "0123456789abcdef", 24, &seq), 0);
	cr_assert_eq(seq, 259);
	cr_assert_eq(kv_seq_decode("\0\0\0\0\0\0\x01", 7, &seq), -EBADMSG);
	cr_assert_eq(seq, 259);
}

#define S(text) {(const uint8_t *)(text), sizeof(text) - 1}

Test(kv_events, replay_replies_of_both_forms_are_known)
{
	const struct kv_slice old_data[] = {S(""), S("\0\0\0\0\0\0\0\5"), S("payload")};
	const struct kv_slice new_data[] = {S(""), S("topic"), S("\0\0\0\0\0\0\0\6"), S("payload")};
	const struct kv_slice old_end[] = {S(""), S("\xff\xff\xff\xff\xff\xff\xff\xff"), S("")};
	const struct kv_slice new_end[] = {S(""), S(""), S("\xff\xff\xff\xff\xff\xff\xff\xff"),
					   S("")};
	const struct kv_slice odd[] = {S("x"), S("\0\0\0\0\0\0\0\5"), S("payload")};
	const struct kv_slice empty[] = {S(""), S("\0\0\0\0\0\0\0\5"), S("")};
	struct kv_slice payload = {NULL, 0};
	uint64_t seq = 0;

	cr_assert_eq(kv_replay_parse(old_data, 3, &seq, &payload), KV_REPLAY_DATA);
	cr_assert(seq == 5 && payload.n == 7);
	cr_assert_eq(kv_replay_parse(new_data, 4, &seq, &payload), KV_REPLAY_DATA);
	cr_assert_eq(seq, 6);
	cr_assert_eq(kv_replay_parse(old_end, 3, &seq, &payload), KV_REPLAY_END);
	cr_assert_eq(kv_replay_parse(new_end, 4, &seq, &payload), KV_REPLAY_END);
	cr_assert_eq(kv_replay_parse(odd, 3, &seq, &payload), KV_REPLAY_BAD);
	cr_assert_eq(kv_replay_parse(empty, 3, &seq, &payload), KV_REPLAY_BAD);
	cr_assert_eq(kv_replay_parse(old_data, 2, &seq, &payload), KV_REPLAY_BAD);
}

Test(kv_events, strings_that_are_no_utf8_print_as_replacements)
{
	static const uint8_t payload[] = "\x92\x01\x91\x83\xa4type\xac" "BlockRemoved\xac"
					 "block_hashes\x90"
					 "\xa6medium\xa4" "a\xff\"\n";
	struct kv_batch batch = {0};
	const char *why;
	char *text = NULL;
	size_t len;
	FILE *f;

	cr_assert_eq(kv_batch_decode(payload, sizeof(payload) - 1, &batch, &why), 0);
	cr_assert_eq(batch.n_events, 1);
	f = open_memstream(&text, &len);
	kv_event_print_json(f, &batch, &batch.events[0]);
	fclose(f);
	cr_assert(strstr(text, "\"medium\": \"a\\ufffd\\\"\\u000a\""), "%s", text);
	free(text);
	kv_batch_free(&batch);
}
