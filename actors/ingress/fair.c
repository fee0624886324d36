/* actors/ingress/fair.c -- see fair.h. */
#include "actors/ingress/fair.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <xxhash.h>

int
fair_open(struct fair *ret, uint32_t buckets)
{
	uint32_t chains = 64;

	while (chains < buckets / 2 && chains < 1u << 20)
		chains *= 2;
	*ret = (struct fair){.n_pool = buckets, .n_chains = chains};
	/* Pages of these are taken when touched. */
	ret->pool = calloc(buckets, sizeof *ret->pool);
	ret->chain = calloc(chains, sizeof *ret->chain);
	if (!ret->pool || !ret->chain) {
		fair_close(ret);
		return -ENOMEM;
	}
	if (getrandom(&ret->seed, sizeof ret->seed, GRND_NONBLOCK) < 0)
		ret->seed = (uint64_t)(uintptr_t)ret->pool;     /* early boot: still not theirs */
	return 0;
}

void
fair_close(struct fair *f)
{
	free(f->pool);
	free(f->chain);
	*f = (struct fair){.n_pool = 0};
}

static void
key_of(const struct peer *peer, uint8_t ret[16])
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

	memcpy(ret, peer->addr, 16);
	if (peer->flags & PEER_UNIX)
		ret[15] = 1;            /* no /64 ends so */
	else if (memcmp(ret, mapped, sizeof mapped) != 0)
		memset(ret + 8, 0, 8);
}

static struct fair_bucket **
chain_of(const struct fair *f, const uint8_t key[16])
{
	return &f->chain[XXH3_64bits_withSeed(key, 16, f->seed) & (f->n_chains - 1)];
}

struct fair_bucket *
fair_hold(struct fair *f, const struct peer *peer)
{
	struct fair_bucket **chain, *b;
	uint8_t key[16];

	key_of(peer, key);
	chain = chain_of(f, key);
	for (b = *chain; b; b = b->next)
		if (memcmp(b->key, key, sizeof key) == 0) {
			b->holds++;
			return b;
		}
	b = f->free;
	if (b)
		f->free = b->next;
	else if (f->fresh < f->n_pool)
		b = &f->pool[f->fresh++];
	if (!b)
		return NULL;
	*b = (struct fair_bucket){.next = *chain, .holds = 1};
	memcpy(b->key, key, sizeof key);
	*chain = b;
	f->n_used++;
	return b;
}

void
fair_drop(struct fair *f, struct fair_bucket *b)
{
	struct fair_bucket **at;

	if (!b || --b->holds > 0)
		return;
	for (at = chain_of(f, b->key); *at != b; at = &(*at)->next)
		;
	*at = b->next;
	b->next = f->free;
	f->free = b;
	f->n_used--;
}
