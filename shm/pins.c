/* shm/pins.c -- which worker keeps a stored response; layout, order and crashes in pins.h. */
#include "shm/pins.h"

#include <errno.h>
#include <xxhash.h>

#ifndef PINS_STORE_POINT                /* race_pins stops a writer there */
#define PINS_STORE_POINT() ((void)0)
#endif

#define TAG_MASK 0xffffffffffff0000ull

static size_t
pins_size(uint64_t buckets)
{
	return SEGMENT_BODY + (size_t)buckets * sizeof(struct pins_bucket);
}

int
pins_create(struct pins *ret, uint32_t capacity)
{
	uint64_t buckets = ((uint64_t)capacity + PINS_WAYS - 1) / PINS_WAYS;
	uint64_t geometry[4] = {buckets};
	struct pins pins = {.buckets = (uint32_t)buckets};
	int r;

	if (capacity == 0 || capacity > PINS_MAX)
		return -EINVAL;
	r = segment_create(&pins.seg, SEGMENT_PINS, PINS_LAYOUT, pins_size(buckets), geometry);
	if (r < 0)
		return r;
	pins.bucket = segment_body(&pins.seg);
	pins.seg.head->owner_role = ROLE_INGRESS;
	segment_publish(&pins.seg);
	*ret = pins;
	return 0;
}

int
pins_attach(struct pins *ret, int fd, bool writable)
{
	struct pins pins = {0};
	uint64_t buckets;
	int r;

	r = segment_attach(&pins.seg, fd, SEGMENT_PINS, PINS_LAYOUT, writable);
	if (r < 0)
		return r;
	buckets = pins.seg.head->geometry[0];
	if (buckets == 0 || buckets > PINS_MAX || pins_size(buckets) > pins.seg.size) {
		segment_detach(&pins.seg);
		return -EBADMSG;
	}
	pins.buckets = (uint32_t)buckets;
	pins.bucket = segment_body(&pins.seg);
	*ret = pins;
	return 0;
}

void
pins_detach(struct pins *pins)
{
	segment_detach(&pins->seg);
	*pins = (struct pins){.seg.fd = -1};
}

/* ---- words ---- */

static uint64_t
tag_of(uint64_t hash)
{
	uint64_t tag = hash << 16;

	return tag ? tag : 1u << 16;    /* 0 is an empty entry */
}

static uint16_t
seq_of(uint64_t word)
{
	return (uint16_t)word;
}

static uint64_t
value_of(uint16_t row, uint32_t row_gen, uint16_t seq)
{
	return (uint64_t)row_gen << 32 | (uint64_t)row << 16 | seq;
}

/* Kept there already: nothing is claimed, so that no reader misses it meanwhile. */
static bool
put_before(struct pins_entry *e, uint64_t key, uint16_t row, uint32_t row_gen)
{
	return atomic_load_explicit(&e->value, memory_order_relaxed) ==
	       value_of(row, row_gen, seq_of(key));
}

static struct pins_bucket *
bucket_of(const struct pins *pins, const char *id, size_t len, uint64_t *ret_tag)
{
	uint64_t hash = XXH3_64bits_withSeed(id, len, pins->seg.head->instance);

	*ret_tag = tag_of(hash);
	return &pins->bucket[(unsigned __int128)hash * pins->buckets >> 64];
}

/* ---- writing ---- */

/* The entry of that tag, else an empty one, else the oldest. */
static struct pins_entry *
entry_for(struct pins_bucket *b, uint64_t tag, uint64_t *ret_key)
{
	struct pins_entry *empty = NULL, *oldest = NULL;
	uint64_t empty_key = 0, oldest_key = 0, least = UINT64_MAX;

	for (unsigned i = 0; i < PINS_WAYS; i++) {
		struct pins_entry *e = &b->entry[i];
		uint64_t key = atomic_load_explicit(&e->key, memory_order_acquire);
		uint64_t put = atomic_load_explicit(&e->put_ns, memory_order_relaxed);

		if ((key & TAG_MASK) == tag) {
			*ret_key = key;
			return e;
		}
		if ((key & TAG_MASK) == 0 && !empty) {
			empty = e;
			empty_key = key;
		}
		if (!oldest || put < least) {
			oldest = e;
			oldest_key = key;
			least = put;
		}
	}
	*ret_key = empty ? empty_key : oldest_key;
	return empty ? empty : oldest;
}

/* C2.  False: a later claim's value is there. */
static bool
set_value(struct pins_entry *e, uint16_t row, uint32_t row_gen, uint16_t seq)
{
	uint64_t old = atomic_load_explicit(&e->value, memory_order_relaxed);

	do {
		if ((int16_t)(uint16_t)(seq_of(old) - seq) > 0)
			return false;
	} while (!atomic_compare_exchange_strong_explicit(&e->value, &old,
							  value_of(row, row_gen, seq),
							  memory_order_release,
							  memory_order_relaxed));
	return true;
}

enum pins_result
pins_put(struct pins *pins, const char *id, size_t len, uint16_t row, uint32_t row_gen,
	 mono_ns now)
{
	uint64_t tag;
	struct pins_bucket *b = bucket_of(pins, id, len, &tag);

	for (unsigned tries = 0; tries < PINS_TRIES; tries++) {
		uint64_t key, claim;
		struct pins_entry *e = entry_for(b, tag, &key);
		bool evicts = (key & TAG_MASK) != 0 && (key & TAG_MASK) != tag;

		if ((key & TAG_MASK) == tag && put_before(e, key, row, row_gen)) {
			PINS_STORE_POINT();
			atomic_store_explicit(&e->put_ns, now, memory_order_relaxed);
			return PINS_PUT;
		}
		claim = (uint16_t)(seq_of(key) + 1);
		PINS_STORE_POINT();
		if (!atomic_compare_exchange_strong_explicit(&e->key, &key, claim,
							     memory_order_acq_rel,
							     memory_order_relaxed)) /* C1 */
			continue;
		PINS_STORE_POINT();
		if (!set_value(e, row, row_gen, seq_of(claim)))
			continue;
		PINS_STORE_POINT();
		atomic_store_explicit(&e->put_ns, now, memory_order_relaxed);
		PINS_STORE_POINT();
		if (atomic_compare_exchange_strong_explicit(&e->key, &claim, tag | claim,
							    memory_order_release,
							    memory_order_relaxed)) /* P1 */
			return evicts ? PINS_EVICTED : PINS_PUT;
	}
	return PINS_LOST;
}

void
pins_drop(struct pins *pins, const char *id, size_t len)
{
	uint64_t tag;
	struct pins_bucket *b = bucket_of(pins, id, len, &tag);

	for (unsigned i = 0; i < PINS_WAYS; i++) {
		struct pins_entry *e = &b->entry[i];
		uint64_t key = atomic_load_explicit(&e->key, memory_order_relaxed);

		if ((key & TAG_MASK) == tag) /* fails when it was put anew: that one stays */
			atomic_compare_exchange_strong_explicit(&e->key, &key,
								(uint16_t)(seq_of(key) + 1),
								memory_order_acq_rel,
								memory_order_relaxed);
	}
}

/* ---- reading ---- */

bool
pins_find(const struct pins *pins, const char *id, size_t len, uint16_t *ret_row,
	  uint32_t *ret_row_gen)
{
	uint64_t tag;
	const struct pins_bucket *b = bucket_of(pins, id, len, &tag);

	for (unsigned tries = 0; tries < PINS_TRIES; tries++) {
		bool moved = false;

		for (unsigned i = 0; i < PINS_WAYS; i++) {
			const struct pins_entry *e = &b->entry[i];
			uint64_t key = atomic_load_explicit(&e->key, memory_order_acquire); /* A1 */
			uint64_t value;

			if ((key & TAG_MASK) != tag)
				continue;
			value = atomic_load_explicit(&e->value, memory_order_relaxed);
			if (seq_of(value) != seq_of(key)) {
				moved = true;           /* claimed anew under our eyes */
				continue;
			}
			*ret_row = (uint16_t)(value >> 16);
			*ret_row_gen = (uint32_t)(value >> 32);
			return true;
		}
		if (!moved)
			return false;
	}
	return false;
}

uint64_t
pins_used(const struct pins *pins)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < pins->buckets; i++)
		for (unsigned k = 0; k < PINS_WAYS; k++)
			n += (atomic_load_explicit(&pins->bucket[i].entry[k].key,
						   memory_order_relaxed) & TAG_MASK) != 0;
	return n;
}
