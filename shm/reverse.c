/* shm/reverse.c -- engine hash -> chained hash with counts; layout in reverse.h. */
#include "shm/reverse.h"

#include <errno.h>
#include <stdlib.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define KEY_MASK        ((1ull << 52) - 1)
#define COUNT_SHIFT     52
#define COUNT_MAX       4095u
#define CAPACITY_MIN    64u
#define EXPECTED_MAX    (1u << 20)      /* entries allotted on somebody's word; beyond, grow */

struct entry {
	uint64_t word;                          /* count 12 | key 52; 0 is empty */
	uint64_t chain;
};

struct reverse {
	struct entry *entry;
	size_t capacity, n, most;
};

static inline uint64_t
key_of(uint64_t engine_hash)
{
	uint64_t key = XXH3_64bits(&engine_hash, sizeof engine_hash) & KEY_MASK;

	return key ? key : 1;
}

static inline size_t
home_of(const struct reverse *r, uint64_t key)
{
	return (size_t)((unsigned __int128)key * r->capacity >> 52);
}

static inline size_t
next_of(const struct reverse *r, size_t i)
{
	return i + 1 == r->capacity ? 0 : i + 1;
}

static inline unsigned
count_of(const struct entry *e)
{
	return (unsigned)(e->word >> COUNT_SHIFT);
}

static inline void
count_set(struct entry *e, unsigned count)
{
	e->word = (e->word & KEY_MASK) | (uint64_t)count << COUNT_SHIFT;
}

/* The entry of key, or the empty one where it would go. */
static struct entry *
entry_of(const struct reverse *r, uint64_t key)
{
	size_t i = home_of(r, key);

	while (r->entry[i].word != 0 && (r->entry[i].word & KEY_MASK) != key)
		i = next_of(r, i);
	return &r->entry[i];
}

int
reverse_new(struct reverse **ret, size_t expected, size_t most)
{
	struct reverse *r = calloc(1, sizeof *r);

	if (!r)
		return -ENOMEM;
	if (expected > EXPECTED_MAX)
		expected = EXPECTED_MAX;
	r->most = most;
	r->capacity = expected * 5 / 3 + CAPACITY_MIN;
	r->entry = calloc(r->capacity, sizeof r->entry[0]);
	if (!r->entry) {
		free(r);
		return -ENOMEM;
	}
	*ret = r;
	return 0;
}

void
reverse_free(struct reverse **ret)
{
	if (!*ret)
		return;
	free((*ret)->entry);
	free(*ret);
	*ret = NULL;
}

static int
reverse_grow(struct reverse *r)
{
	struct reverse big = {.capacity = r->capacity * 2, .n = r->n, .most = r->most};

	big.entry = calloc(big.capacity, sizeof big.entry[0]);
	if (!big.entry)
		return -ENOMEM;
	for (size_t i = 0; i < r->capacity; i++)
		if (r->entry[i].word != 0)
			*entry_of(&big, r->entry[i].word & KEY_MASK) = r->entry[i];
	free(r->entry);
	*r = big;
	return 0;
}

static inline bool
is_full(const struct reverse *r)
{
	return (r->n + 1) * 5 > r->capacity * 3;
}

size_t
reverse_bytes(const struct reverse *r)
{
	return sizeof *r + r->capacity * sizeof r->entry[0];
}

size_t
reverse_growth(const struct reverse *r)
{
	return is_full(r) && r->n < r->most ? 2 * r->capacity * sizeof r->entry[0] : 0;
}

int
reverse_add(struct reverse *r, uint64_t engine_hash, uint64_t chain, unsigned *ret_count)
{
	uint64_t key = key_of(engine_hash);
	struct entry *e = entry_of(r, key);
	unsigned count = 1;
	int result = 0;

	if (e->word == 0) {
		if (r->n >= r->most)
			return -ENOMEM;
		if (is_full(r)) {
			result = reverse_grow(r);
			if (result < 0)
				return result;
			e = entry_of(r, key);
		}
		r->n++;
		e->word = key;
		e->chain = chain;
	} else if (e->chain != chain) {
		e->chain = chain;
		result = -EEXIST;
	} else {
		count = count_of(e) < COUNT_MAX ? count_of(e) + 1 : COUNT_MAX;
	}
	count_set(e, count);
	if (ret_count)
		*ret_count = count;
	return result;
}

uint64_t
reverse_find(const struct reverse *r, uint64_t engine_hash)
{
	return entry_of(r, key_of(engine_hash))->chain;
}

/* Backward shift: every entry behind the hole that may move nearer to its home does. */
static void
entry_delete(struct reverse *r, struct entry *e)
{
	size_t hole = (size_t)(e - r->entry);

	for (size_t i = next_of(r, hole); r->entry[i].word != 0; i = next_of(r, i)) {
		size_t home = home_of(r, r->entry[i].word & KEY_MASK);
		size_t from_home = i >= home ? i - home : i + r->capacity - home;
		size_t from_hole = i >= hole ? i - hole : i + r->capacity - hole;

		if (from_home < from_hole)
			continue;
		r->entry[hole] = r->entry[i];
		hole = i;
	}
	r->entry[hole] = (struct entry){0};
	r->n--;
}

uint64_t
reverse_drop(struct reverse *r, uint64_t engine_hash, unsigned *ret_count)
{
	struct entry *e = entry_of(r, key_of(engine_hash));
	uint64_t chain = e->chain;
	unsigned count = count_of(e);

	if (count > 0)
		count--;
	if (ret_count)
		*ret_count = count;
	if (e->word == 0)
		return 0;
	if (count == 0)
		entry_delete(r, e);
	else
		count_set(e, count);
	return chain;
}

void
reverse_prefetch(const struct reverse *r, uint64_t engine_hash)
{
	__builtin_prefetch(&r->entry[home_of(r, key_of(engine_hash))], 1);
}

size_t
reverse_size(const struct reverse *r)
{
	return r->n;
}

void
reverse_walk(const struct reverse *r, reverse_f *f, void *arg)
{
	for (size_t i = 0; i < r->capacity; i++)
		if (r->entry[i].word != 0)
			f(arg, r->entry[i].word & KEY_MASK, r->entry[i].chain);
}
