/* tests/emulator/kv_encode.c -- see kv_encode.h. */
#include "tests/emulator/kv_encode.h"

#include <stdint.h>
#include <string.h>

static void
put_str(msgpack_packer *pk, const char *s)
{
	msgpack_pack_str_with_body(pk, s, strlen(s));
}

static void
put_hash(msgpack_packer *pk, const struct kv_encode_config *cfg, const struct blockhash *hash)
{
	if (cfg->int_hashes)
		msgpack_pack_uint64(pk, blockhash_low64(cfg->algo, hash));
	else
		msgpack_pack_bin_with_body(pk, hash->bytes, blockhash_size(cfg->algo));
}

static void
put_hashes(msgpack_packer *pk, const struct kv_encode_config *cfg, const struct engine_events *evs,
	   const struct engine_event *ev)
{
	msgpack_pack_array(pk, ev->hashes);
	for (unsigned i = 0; i < ev->hashes; i++)
		put_hash(pk, cfg, &evs->hash[ev->hash_at + i]);
}

/* Parent, tokens, block size: the same fields in both forms. */
static void
put_parent(msgpack_packer *pk, const struct kv_encode_config *cfg, const struct engine_event *ev)
{
	if (ev->has_parent)
		put_hash(pk, cfg, &ev->parent);
	else
		msgpack_pack_nil(pk);
}

static void
put_tokens(msgpack_packer *pk, const struct engine_events *evs, const struct engine_event *ev)
{
	msgpack_pack_array(pk, ev->tokens);
	for (unsigned i = 0; i < ev->tokens; i++)
		msgpack_pack_uint32(pk, evs->token[ev->token_at + i]);
}

static void
put_stored(msgpack_packer *pk, const struct kv_encode_config *cfg, const struct engine_events *evs,
	   const struct engine_event *ev)
{
	if (!cfg->as_map) {
		msgpack_pack_array(pk, 7);
		put_str(pk, "BlockStored");
		put_hashes(pk, cfg, evs, ev);
		put_parent(pk, cfg, ev);
		put_tokens(pk, evs, ev);
		msgpack_pack_unsigned_int(pk, cfg->block_tokens);
		msgpack_pack_nil(pk);
		put_str(pk, "GPU");
		return;
	}
	msgpack_pack_map(pk, 11);
	put_str(pk, "type");
	put_str(pk, "BlockStored");
	put_str(pk, "block_hashes");
	put_hashes(pk, cfg, evs, ev);
	put_str(pk, "parent_block_hash");
	put_parent(pk, cfg, ev);
	put_str(pk, "token_ids");
	put_tokens(pk, evs, ev);
	put_str(pk, "block_size");
	msgpack_pack_unsigned_int(pk, cfg->block_tokens);
	put_str(pk, "lora_id");
	msgpack_pack_nil(pk);
	put_str(pk, "medium");
	put_str(pk, "GPU");
	put_str(pk, "lora_name");
	msgpack_pack_nil(pk);
	put_str(pk, "extra_keys");
	msgpack_pack_array(pk, ev->hashes);
	for (unsigned i = 0; i < ev->hashes; i++) {
		if (i == 0 && ev->salt_at >= 0) {
			msgpack_pack_array(pk, 1);
			put_str(pk, evs->text + ev->salt_at);
		} else {
			msgpack_pack_nil(pk);
		}
	}
	put_str(pk, "group_idx");
	msgpack_pack_unsigned_int(pk, 0);
	put_str(pk, "kv_cache_spec_kind");
	put_str(pk, "full_attention");
}

static void
put_removed(msgpack_packer *pk, const struct kv_encode_config *cfg, const struct engine_events *evs,
	    const struct engine_event *ev)
{
	if (!cfg->as_map) {
		msgpack_pack_array(pk, 3);
		put_str(pk, "BlockRemoved");
		put_hashes(pk, cfg, evs, ev);
		put_str(pk, "GPU");
		return;
	}
	msgpack_pack_map(pk, 4);
	put_str(pk, "type");
	put_str(pk, "BlockRemoved");
	put_str(pk, "block_hashes");
	put_hashes(pk, cfg, evs, ev);
	put_str(pk, "medium");
	put_str(pk, "GPU");
	put_str(pk, "group_idx");
	msgpack_pack_unsigned_int(pk, 0);
}

void
kv_encode(const struct kv_encode_config *cfg, double ts_s, const struct engine_events *evs,
	  msgpack_sbuffer *out)
{
	msgpack_packer pk;

	msgpack_packer_init(&pk, out, msgpack_sbuffer_write);
	msgpack_pack_array(&pk, 3);
	msgpack_pack_double(&pk, ts_s);
	msgpack_pack_array(&pk, evs->events);
	for (unsigned i = 0; i < evs->events; i++) {
		const struct engine_event *ev = &evs->event[i];

		switch (ev->kind) {
		case ENGINE_STORED:
			put_stored(&pk, cfg, evs, ev);
			break;
		case ENGINE_REMOVED:
			put_removed(&pk, cfg, evs, ev);
			break;
		case ENGINE_CLEARED:
			if (cfg->as_map) {
				msgpack_pack_map(&pk, 1);
				put_str(&pk, "type");
			} else {
				msgpack_pack_array(&pk, 1);
			}
			put_str(&pk, "AllBlocksCleared");
			break;
		}
	}
	msgpack_pack_unsigned_int(&pk, cfg->rank);
}
