/* tests/emulator/kv_encode.c -- see kv_encode.h. */
#include "tests/emulator/kv_encode.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* One payload being written. */
struct writer {
	msgpack_packer pk;
	const struct kv_encode_config *cfg;
	const struct engine_events *evs;
};

static void
put_str(struct writer *w, const char *s)
{
	msgpack_pack_str_with_body(&w->pk, s, strlen(s));
}

static void
put_uint(struct writer *w, unsigned v)
{
	msgpack_pack_unsigned_int(&w->pk, v);
}

static void
put_nil(struct writer *w)
{
	msgpack_pack_nil(&w->pk);
}

static bool
maps(const struct kv_encode_config *cfg)
{
	return cfg->shape == KV_G5 || cfg->shape == KV_G6 || cfg->shape == KV_TRTLLM;
}

static bool
sglang(const struct kv_encode_config *cfg)
{
	return cfg->shape == KV_SGLANG1 || cfg->shape == KV_SGLANG2;
}

/* The member's name, where members have one. */
static void
put_key(struct writer *w, const char *key)
{
	if (maps(w->cfg))
		put_str(w, key);
}

static void
put_hash(struct writer *w, enum engine_tier tier, const struct blockhash *hash)
{
	enum kv_hash_form form = w->cfg->hashes;

	if (tier != ENGINE_GPU && w->cfg->tier_bytes)
		form = KV_HASH_BYTES;
	switch (form) {
	case KV_HASH_SIGNED:
		msgpack_pack_int64(&w->pk, (int64_t)blockhash_low64(w->cfg->algo, hash));
		break;
	case KV_HASH_INT:
		msgpack_pack_uint64(&w->pk, blockhash_low64(w->cfg->algo, hash));
		break;
	case KV_HASH_HIGH:
		msgpack_pack_int64(&w->pk, (int64_t)blockhash_high64(hash));
		break;
	case KV_HASH_BYTES:
		msgpack_pack_bin_with_body(&w->pk, hash->bytes, blockhash_size(w->cfg->algo));
		break;
	}
}

void
kv_encode_hash(const struct kv_encode_config *cfg, const struct blockhash *hash,
	       char out[static 68])
{
	snprintf(out, 68, "0x%016" PRIx64, cfg->hashes == KV_HASH_HIGH
		 ? blockhash_high64(hash) : blockhash_low64(cfg->algo, hash));
}

static void
put_medium(struct writer *w, enum engine_tier tier)
{
	put_str(w, tier == ENGINE_GPU ? "GPU" : sglang(w->cfg) ? "CPU_PINNED" : "CPU");
}

/* Adapter, then the salt of a chain's first block; nil for a block without. */
static void
put_extra_keys(struct writer *w, const struct engine_event *ev)
{
	msgpack_pack_array(&w->pk, ev->hashes);
	for (unsigned i = 0; i < ev->hashes; i++) {
		bool salt = i == 0 && ev->first && ev->salt_at >= 0;

		if (ev->lora == 0 && !salt) {
			put_nil(w);
			continue;
		}
		msgpack_pack_array(&w->pk, (ev->lora > 0 ? 1u : 0u) + (salt ? 1u : 0u));
		if (ev->lora > 0)
			put_str(w, w->cfg->lora[ev->lora - 1]);
		if (salt)
			put_str(w, w->evs->text + ev->salt_at);
	}
}

/* How an event of an offload tier is told; what is not there has its default. */
struct form {
	bool placeholder;          /* hashes only */
	bool extra_keys, group;
	bool window, locality;
};

static struct form
form_of(const struct kv_encode_config *cfg, const struct engine_event *ev)
{
	bool gpu = ev->tier == ENGINE_GPU;

	return (struct form){
		.placeholder = !gpu && !cfg->self_describing && !sglang(cfg),
		.extra_keys = gpu && ev->hashes > 0,
		.group = gpu || cfg->self_describing,
		.window = cfg->group[ev->group].window_tokens > 0,
		.locality = !gpu && cfg->shape == KV_G6,
	};
}

/* How many elements or members a stored event has. */
static unsigned
stored_fields(const struct kv_encode_config *cfg, struct form form)
{
	switch (cfg->shape) {
	case KV_G0:
	case KV_G1:
	case KV_SGLANG1:
		return 6;
	case KV_G2:
	case KV_SGLANG2:
		return 7;
	case KV_G3:
	case KV_TRTLLM:
		return 8;
	case KV_G4A:
		return 9;
	case KV_G4B:
		return 10;
	case KV_G4C:
		return 12;
	case KV_G5:
	case KV_G6:
		break;
	}
	return 8u + form.extra_keys + 2u * form.group + (form.group && form.window) +
	       form.locality;
}

/* What only later generations say, after lora_name. */
static void
put_stored_tail(struct writer *w, const struct engine_event *ev, struct form form)
{
	const struct kv_encode_config *cfg = w->cfg;
	const struct kv_group_names *group = &cfg->group[ev->group];
	bool map = maps(cfg);

	if (form.extra_keys) {
		put_key(w, "extra_keys");
		put_extra_keys(w, ev);
	} else if (!map) {
		put_nil(w);
	}
	if (cfg->shape == KV_G4A)
		return;
	if (form.group) {
		put_key(w, "group_idx");
		put_uint(w, ev->group);
	} else if (!map) {
		put_nil(w);
	}
	if (cfg->shape == KV_G4B)
		return;
	if (form.group) {
		put_key(w, "kv_cache_spec_kind");
		put_str(w, group->kind);
	} else if (!map) {
		put_nil(w);
	}
	if (form.group && form.window) {
		put_key(w, "kv_cache_spec_sliding_window");
		put_uint(w, group->window_tokens);
	} else if (!map) {
		put_nil(w);
	}
	if (form.locality) {
		put_key(w, "locality");
		put_str(w, "LOCAL");
	}
}

static void
put_stored(struct writer *w, const struct engine_event *ev)
{
	const struct kv_encode_config *cfg = w->cfg;
	struct form form = form_of(cfg, ev);
	unsigned n = stored_fields(cfg, form);

	if (maps(cfg))
		msgpack_pack_map(&w->pk, n);
	else
		msgpack_pack_array(&w->pk, n);
	put_key(w, "type");
	put_str(w, "BlockStored");
	put_key(w, "block_hashes");
	msgpack_pack_array(&w->pk, ev->hashes);
	for (unsigned i = 0; i < ev->hashes; i++)
		put_hash(w, ev->tier, &w->evs->hash[ev->hash_at + i]);
	put_key(w, "parent_block_hash");
	if (ev->has_parent && !form.placeholder)
		put_hash(w, ev->tier, &ev->parent);
	else
		put_nil(w);
	put_key(w, "token_ids");
	msgpack_pack_array(&w->pk, form.placeholder ? 0 : ev->tokens);
	for (unsigned i = 0; i < ev->tokens && !form.placeholder; i++)
		msgpack_pack_uint32(&w->pk, w->evs->token[ev->token_at + i]);
	put_key(w, "block_size");
	put_uint(w, form.placeholder && !cfg->tier_block_size ? 0 : ev->block_tokens);
	put_key(w, "lora_id");
	if (ev->lora > 0 && !form.placeholder && !sglang(cfg) && cfg->shape != KV_TRTLLM)
		put_uint(w, ev->lora);
	else
		put_nil(w);
	if (n == 6)
		return;
	put_key(w, "medium");
	put_medium(w, ev->tier);
	if (n == 7)
		return;
	put_key(w, "lora_name");
	if (ev->lora > 0 && !form.placeholder && cfg->shape != KV_TRTLLM)
		put_str(w, cfg->lora[ev->lora - 1]);
	else
		put_nil(w);
	if (cfg->shape != KV_G3 && cfg->shape != KV_TRTLLM)
		put_stored_tail(w, ev, form);
}

/* One event of SGLang is one page. */
static void
put_pages(struct writer *w, const struct engine_event *ev)
{
	struct engine_event page = *ev;

	page.hashes = 1;
	page.tokens = ev->block_tokens;
	for (unsigned i = 0; i < ev->hashes; i++) {
		page.hash_at = ev->hash_at + i;
		page.token_at = ev->token_at + i * ev->block_tokens;
		page.first = ev->first && i == 0;
		page.has_parent = ev->has_parent || i > 0;
		if (i > 0)
			page.parent = w->evs->hash[ev->hash_at + i - 1];
		put_stored(w, &page);
	}
}

/* Events i and on that are told as one removal. */
static unsigned
removed_run(const struct writer *w, unsigned i)
{
	const struct engine_event *ev = &w->evs->event[i];
	unsigned n = 1;

	if (ev->tier == ENGINE_GPU && !sglang(w->cfg))
		return 1;
	while (i + n < w->evs->events && ev[n].kind == ENGINE_REMOVED && ev[n].tier == ev->tier &&
	       ev[n].group == ev->group)
		n++;
	return n;
}

static void
put_removed(struct writer *w, const struct engine_event *ev, unsigned run)
{
	const struct kv_encode_config *cfg = w->cfg;
	bool medium = cfg->shape > KV_G1 && cfg->shape != KV_SGLANG1;
	bool group = cfg->shape >= KV_G4B && cfg->shape <= KV_G6;
	struct form form = form_of(cfg, ev);
	unsigned n = 2u + medium + (group && (form.group || !maps(cfg))) + form.locality;

	if (maps(cfg))
		msgpack_pack_map(&w->pk, n);
	else
		msgpack_pack_array(&w->pk, n);
	put_key(w, "type");
	put_str(w, "BlockRemoved");
	put_key(w, "block_hashes");
	msgpack_pack_array(&w->pk, run);
	for (unsigned i = 0; i < run; i++)
		put_hash(w, ev->tier, &w->evs->hash[ev[i].hash_at]);
	if (medium) {
		put_key(w, "medium");
		put_medium(w, ev->tier);
	}
	if (group && form.group) {
		put_key(w, "group_idx");
		put_uint(w, ev->group);
	} else if (group && !maps(cfg)) {
		put_nil(w);
	}
	if (form.locality) {
		put_key(w, "locality");
		put_str(w, "LOCAL");
	}
}

static void
put_cleared(struct writer *w)
{
	if (maps(w->cfg))
		msgpack_pack_map(&w->pk, 1);
	else
		msgpack_pack_array(&w->pk, 1);
	put_key(w, "type");
	put_str(w, "AllBlocksCleared");
}

/* How many events these become. */
static unsigned
count_events(const struct writer *w)
{
	unsigned n = 0, run;

	for (unsigned i = 0; i < w->evs->events; i += run) {
		const struct engine_event *ev = &w->evs->event[i];

		run = ev->kind == ENGINE_REMOVED ? removed_run(w, i) : 1;
		n += ev->kind == ENGINE_STORED && sglang(w->cfg) ? ev->hashes : 1;
	}
	return n;
}

void
kv_encode(const struct kv_encode_config *cfg, double ts_s, const struct engine_events *evs,
	  msgpack_sbuffer *out)
{
	struct writer w = {.cfg = cfg, .evs = evs};
	unsigned run;

	msgpack_packer_init(&w.pk, out, msgpack_sbuffer_write);
	msgpack_pack_array(&w.pk, 2u + (cfg->shape != KV_G0) + (cfg->publisher_id != NULL));
	msgpack_pack_double(&w.pk, ts_s);
	msgpack_pack_array(&w.pk, count_events(&w));
	for (unsigned i = 0; i < evs->events; i += run) {
		const struct engine_event *ev = &evs->event[i];

		run = 1;
		if (ev->kind == ENGINE_CLEARED) {
			put_cleared(&w);
		} else if (ev->kind == ENGINE_REMOVED) {
			run = removed_run(&w, i);
			put_removed(&w, ev, run);
		} else if (sglang(cfg)) {
			put_pages(&w, ev);
		} else {
			put_stored(&w, ev);
		}
	}
	if (cfg->shape != KV_G0)
		put_uint(&w, cfg->rank);
	if (cfg->publisher_id != NULL)
		msgpack_pack_bin_with_body(&w.pk, cfg->publisher_id, 16);
}
