/* actors/kvevents/orphans.c -- blocks without a known parent; rules in orphans.h.
 *
 * Nodes in one growing array; two chained hash tables over it, by the block's own hash and by its
 * parent's.  Chains are doubly linked through node numbers, 0 is none.
 */
#include "actors/kvevents/orphans.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NODES_MIN 256u /* a power of two */

enum link { BY_HASH, BY_PARENT, LINKS };

struct node {
	uint64_t key[LINKS]; /* own hash, parent's hash */
	uint64_t local;
	uint32_t count;
	uint8_t tier, used;
	uint32_t next[LINKS], prev[LINKS];
};

struct orphans {
	struct node *node;       /* 1 .. cap; 0 unused */
	uint32_t *bucket[LINKS]; /* cap of each: first node */
	uint32_t cap, n;
	uint32_t free; /* list through next[BY_HASH] */
	uint32_t hand; /* whom to give up next when full */
};

static uint32_t *
bucket_of(const struct orphans *o, enum link by, uint64_t key)
{
	/* Engine hashes are digests, but a stranger may choose them: mix. */
	key ^= key >> 33;
	key *= 0xff51afd7ed558ccdull;
	key ^= key >> 33;
	return &o->bucket[by][key & (o->cap - 1)];
}

static void
chain_in(struct orphans *o, enum link by, uint32_t i)
{
	uint32_t *first = bucket_of(o, by, o->node[i].key[by]);

	o->node[i].prev[by] = 0;
	o->node[i].next[by] = *first;
	if (*first)
		o->node[*first].prev[by] = i;
	*first = i;
}

static void
chain_out(struct orphans *o, enum link by, uint32_t i)
{
	struct node *node = &o->node[i];

	if (node->prev[by])
		o->node[node->prev[by]].next[by] = node->next[by];
	else
		*bucket_of(o, by, node->key[by]) = node->next[by];
	if (node->next[by])
		o->node[node->next[by]].prev[by] = node->prev[by];
}

static void
nodes_free_list(struct orphans *o, uint32_t from)
{
	for (uint32_t i = o->cap; i >= from; i--) {
		o->node[i].next[BY_HASH] = o->free;
		o->free = i;
	}
}

int
orphans_new(struct orphans **ret)
{
	*ret = calloc(1, sizeof **ret);
	return *ret ? 0 : -ENOMEM;
}

static void
arrays_free(struct orphans *o)
{
	free(o->node);
	free(o->bucket[BY_HASH]);
	free(o->bucket[BY_PARENT]);
	*o = (struct orphans){0};
}

void
orphans_free(struct orphans **ret)
{
	if (!*ret)
		return;
	arrays_free(*ret);
	free(*ret);
	*ret = NULL;
}

static uint32_t
cap_after(const struct orphans *o)
{
	return o->cap ? o->cap * 2 : NODES_MIN;
}

static size_t
bytes_of(uint32_t cap)
{
	return cap ? (cap + 1u) * sizeof(struct node) + cap * LINKS * sizeof(uint32_t) : 0;
}

static int
orphans_grow(struct orphans *o)
{
	uint32_t old = o->cap, cap = cap_after(o);
	uint32_t *by_hash = calloc(cap, sizeof by_hash[0]),
		 *by_parent = calloc(cap, sizeof by_parent[0]);
	struct node *grown = realloc(o->node, (cap + 1u) * sizeof grown[0]);

	if (grown)
		o->node = grown;
	if (!by_hash || !by_parent || !grown) {
		free(by_hash);
		free(by_parent);
		return -ENOMEM;
	}
	memset(o->node + old + 1, 0, (cap - old) * sizeof o->node[0]);
	free(o->bucket[BY_HASH]);
	free(o->bucket[BY_PARENT]);
	o->bucket[BY_HASH] = by_hash;
	o->bucket[BY_PARENT] = by_parent;
	o->cap = cap;
	for (uint32_t i = 1; i <= old; i++)
		if (o->node[i].used) {
			chain_in(o, BY_HASH, i);
			chain_in(o, BY_PARENT, i);
		}
	nodes_free_list(o, old + 1);
	return 0;
}

static uint32_t
node_find(const struct orphans *o, uint64_t hash, unsigned tier)
{
	uint32_t i = o->cap ? *bucket_of(o, BY_HASH, hash) : 0;

	while (i && !(o->node[i].key[BY_HASH] == hash && o->node[i].tier == tier))
		i = o->node[i].next[BY_HASH];
	return i;
}

static uint32_t
child_find(const struct orphans *o, uint64_t parent)
{
	uint32_t i = o->cap ? *bucket_of(o, BY_PARENT, parent) : 0;

	while (i && o->node[i].key[BY_PARENT] != parent)
		i = o->node[i].next[BY_PARENT];
	return i;
}

static void
node_drop(struct orphans *o, uint32_t i)
{
	chain_out(o, BY_HASH, i);
	chain_out(o, BY_PARENT, i);
	o->node[i] = (struct node){.next = {o->free, 0}};
	o->free = i;
	o->n--;
}

/* A ghost is kept for its children's sake: without any it goes, and so may the one above it. */
static void
ghosts_drop(struct orphans *o, uint64_t hash)
{
	while (!child_find(o, hash)) {
		uint32_t i = *bucket_of(o, BY_HASH, hash);

		while (i && !(o->node[i].key[BY_HASH] == hash && o->node[i].count == 0))
			i = o->node[i].next[BY_HASH];
		if (!i)
			return;
		hash = o->node[i].key[BY_PARENT];
		node_drop(o, i);
	}
}

int
orphans_add(struct orphans *o, uint64_t hash, uint64_t parent, uint64_t local, unsigned tier,
	    bool may_grow)
{
	uint32_t i = node_find(o, hash, tier);
	uint32_t count = i ? o->node[i].count + 1 : 1;
	int gave_way = 0;

	if (i && o->node[i].key[BY_PARENT] == parent && o->node[i].local == local) {
		o->node[i].count = count;
		return 0;
	}
	if (i) {
		node_drop(o, i);
		count = 1;
	}
	if (!o->free && o->cap < ORPHANS_MAX && may_grow) {
		int r = orphans_grow(o);

		if (r < 0)
			return r;
	}
	if (!o->free) {
		if (o->cap == 0)
			return -ENOMEM;
		o->hand = o->hand % o->cap + 1;
		node_drop(o, o->hand);
		gave_way = 1;
	}
	i = o->free;
	o->free = o->node[i].next[BY_HASH];
	o->node[i] = (struct node){.key = {hash, parent},
				   .local = local,
				   .count = count,
				   .tier = (uint8_t)tier,
				   .used = 1};
	chain_in(o, BY_HASH, i);
	chain_in(o, BY_PARENT, i);
	o->n++;
	return gave_way;
}

bool
orphans_remove(struct orphans *o, uint64_t hash, unsigned tier)
{
	uint32_t i = node_find(o, hash, tier);

	if (!i || o->node[i].count == 0)
		return false;
	if (--o->node[i].count == 0 && !child_find(o, hash)) {
		uint64_t parent = o->node[i].key[BY_PARENT];

		node_drop(o, i);
		ghosts_drop(o, parent);
	}
	return true;
}

unsigned
orphans_take(struct orphans *o, uint64_t hash, unsigned tier)
{
	uint32_t i = node_find(o, hash, tier);
	unsigned count;

	if (!i)
		return 0;
	count = o->node[i].count;

	uint64_t parent = o->node[i].key[BY_PARENT];

	node_drop(o, i);
	ghosts_drop(o, parent);
	return count;
}

bool
orphans_take_child(struct orphans *o, uint64_t parent, struct orphan *ret)
{
	uint32_t i = child_find(o, parent);

	if (!i)
		return false;
	*ret = (struct orphan){.hash = o->node[i].key[BY_HASH],
			       .local = o->node[i].local,
			       .count = o->node[i].count,
			       .tier = o->node[i].tier};
	node_drop(o, i);
	return true;
}

void
orphans_clear(struct orphans *o)
{
	arrays_free(o);
}

void
orphans_clear_tier(struct orphans *o, unsigned tier)
{
	for (uint32_t i = 1; i <= o->cap && o->n > 0; i++)
		if (o->node[i].used && o->node[i].tier == tier)
			node_drop(o, i);
	if (o->n == 0)
		arrays_free(o);
}

size_t
orphans_bytes(const struct orphans *o)
{
	return sizeof *o + bytes_of(o->cap);
}

size_t
orphans_growth(const struct orphans *o)
{
	return o->free || o->cap >= ORPHANS_MAX ? 0 : bytes_of(cap_after(o)) - bytes_of(o->cap);
}

size_t
orphans_size(const struct orphans *o)
{
	return o->n;
}
