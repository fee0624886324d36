/* tests/bench/index_world.c -- the fleet that bench_index measures; see index_world.h. */
#include "tests/bench/index_world.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/bench/measure.h"

void
world_new(struct world *ret, unsigned workers, uint64_t blocks, uint32_t max_slots)
{
	struct world world = {
		.workers = workers,
		.chains = (unsigned)(blocks / CHAIN),
		.max_slots = max_slots,
	};
	int r = index_create(&world.seg, blocks, world.max_slots, 1);

	if (r < 0)
		cannot("make the index", r);
	world.next_chain = world.chains;
	world.reader_fd = segment_readonly_fd(&world.seg);
	if (world.reader_fd < 0)
		cannot("open the index for reading", world.reader_fd);
	*ret = world;
}

void
world_open(struct world *world)
{
	size_t pairs = world->chains * (CHAIN + CHAIN_HALF + WIDE_HOLDERS * CHAIN_WIDE / 10.0);
	int r = index_writer_open(&world->w, fcntl(world->seg.fd, F_DUPFD_CLOEXEC, 0));

	if (r < 0)
		cannot("open the index for writing", r);
	world->worker = calloc(world->workers + 1, sizeof world->worker[0]);
	if (!world->worker)
		cannot("list the workers", ENOMEM);
	for (unsigned i = 0; i <= world->workers; i++) {
		struct worker *k = &world->worker[i];

		k->exact = index_slot_take(world->w, (uint16_t)i, 1, INDEX_EXACT, INDEX_GPU, 16);
		k->cur = index_slot_take(world->w, (uint16_t)i, 1, INDEX_SPECULATIVE, INDEX_GPU,
					 16);
		if (!k->exact || !k->cur)
			cannot("take slots", ENOSPC);
	}
	for (unsigned i = 0; i < world->workers; i++) {
		r = reverse_new(&world->worker[i].reverse, pairs / world->workers * 21 / 20,
				SIZE_MAX);
		if (r < 0)
			cannot("make a reverse map", r);
	}
}

void
world_free(struct world *world)
{
	for (unsigned i = 0; world->worker && i <= world->workers; i++)
		reverse_free(&world->worker[i].reverse);
	free(world->worker);
	index_writer_close(&world->w);
	close(world->reader_fd);
	segment_detach(&world->seg);
	*world = (struct world){.seg.fd = -1};
}

uint64_t
chain_hash(unsigned chain, unsigned block)
{
	return mix64((uint64_t)chain << 16 | block);
}

unsigned
chain_holder(const struct world *world, unsigned chain, unsigned k)
{
	static const unsigned step[] = {1, 3, 7, 9, 11, 13, 17, 19};    /* prime to 64, 1,000 */
	uint64_t random = mix64(~(uint64_t)chain);

	return (unsigned)((random % world->workers + k * step[random >> 61]) % world->workers);
}

unsigned
chain_held(unsigned chain, unsigned k)
{
	return k == 0 ? CHAIN : k == 1 ? CHAIN_HALF : chain % 10 == 0 ? CHAIN_WIDE : 0;
}

/* ---- what kvevents does ---- */

void
event_make(struct event *ret, unsigned worker, unsigned chain, unsigned from, unsigned n)
{
	ret->worker = worker;
	ret->n = n;
	for (unsigned i = 0; i < n; i++) {
		ret->chain[i] = chain_hash(chain, from + i);
		ret->engine[i] = mix64(ret->chain[i] ^ (uint64_t)(worker + 1) << 48);
	}
}

static unsigned
lesser_ids(const struct worker *k, uint16_t ret[2])
{
	unsigned n = 0;

	if (k->cur)
		ret[n++] = k->cur;
	if (k->old)
		ret[n++] = k->old;
	return n;
}

void
event_store(struct world *world, const struct event *e)
{
	struct worker *k = &world->worker[e->worker];
	uint16_t lesser[2];
	unsigned n = lesser_ids(k, lesser);

	for (unsigned i = 0; i < e->n; i++) {
		struct index_span span = index_ahead(i, e->n);

		for (size_t at = span.from; at < span.to; at++) {
			index_prefetch(world->w, e->chain[at]);
			reverse_prefetch(k->reverse, e->engine[at]);
		}

		uint64_t before = reverse_find(k->reverse, e->engine[i]);

		if (before != 0 && before != e->chain[i])
			index_take(world->w, before, &k->exact, 1);
		if (reverse_add(k->reverse, e->engine[i], e->chain[i], NULL) < 0)
			cannot("note a block", ENOMEM);
		index_put(world->w, k->exact, e->chain[i], lesser, n);
	}
}

/* The chain is known only from the reverse map: asked for early, looked up half-way, so that the
 * bucket comes while others are worked. */
void
event_remove(struct world *world, const struct event *e)
{
	struct worker *k = &world->worker[e->worker];
	uint64_t chain[EVENT];
	uint16_t ids[3];
	unsigned n = lesser_ids(k, ids), left;

	ids[n++] = k->exact;
	for (unsigned i = 0; i < e->n; i++)
		reverse_prefetch(k->reverse, e->engine[i]);
	for (unsigned i = 0; i < e->n; i++) {
		chain[i] = reverse_find(k->reverse, e->engine[i]);
		if (chain[i])
			index_prefetch(world->w, chain[i]);
	}
	for (unsigned i = 0; i < e->n; i++) {
		if (!chain[i])
			continue;
		reverse_drop(k->reverse, e->engine[i], &left);
		if (left == 0)
			index_take(world->w, chain[i], ids, n);
	}
}

unsigned
note(struct world *world, unsigned worker, unsigned chain, unsigned n)
{
	struct worker *k = &world->worker[worker];
	uint32_t held = index_slot_held(world->w, k->cur);

	for (unsigned i = 0; i < n; i++) {
		struct index_span span = index_ahead(i, n);
		uint64_t hash = chain_hash(chain, i);

		for (size_t at = span.from; at < span.to; at++)
			index_prefetch(world->w, chain_hash(chain, (unsigned)at));
		index_put_unless(world->w, k->exact, k->cur, hash, &k->old, k->old != 0);
	}
	return index_slot_held(world->w, k->cur) - held;
}

void
rotate(struct world *world, unsigned worker)
{
	struct worker *k = &world->worker[worker];

	if (k->old)
		index_slot_retire(world->w, k->old);
	k->old = k->cur;
	k->cur = index_slot_take(world->w, (uint16_t)worker, 1, INDEX_SPECULATIVE, INDEX_GPU, 16);
	if (!k->cur)
		cannot("take a speculative slot", ENOSPC);
}

/* ---- fill and churn ---- */

void
fill_exact(struct world *world)
{
	struct event e;

	for (unsigned c = 0; c < world->chains; c++)
		for (unsigned k = 0; k < HOLDERS; k++)
			for (unsigned at = 0, n = chain_held(c, k); at < n; at += EVENT) {
				event_make(&e, chain_holder(world, c, k), c, at,
					   n - at < EVENT ? n - at : EVENT);
				event_store(world, &e);
			}
}

unsigned
fill_speculative(struct world *world, unsigned worker, unsigned blocks, unsigned per_mille_new)
{
	unsigned put = 0;

	for (unsigned turn = 0; put < blocks; turn++) {
		uint64_t random = mix64((uint64_t)worker << 40 ^ world->worker[worker].cur ^
					(uint64_t)turn << 20 ^ (uint64_t)world->next_chain << 8);
		bool fresh = random % 1000 < per_mille_new;
		unsigned chain = fresh ? world->next_chain++
				       : (unsigned)((random >> 20) % world->chains);

		put += note(world, worker, chain, blocks - put < CHAIN ? blocks - put : CHAIN);
	}
	return put;
}

uint64_t
churn_blocks(const struct churn *c)
{
	uint64_t sum = 0;

	for (unsigned chain = 0; chain < c->chains; chain++)
		for (unsigned k = c->first; k < c->last; k++)
			sum += chain_held(chain, k);
	return sum;
}

double
churn_pass(struct world *world, const struct churn *c, bool store)
{
	struct event *e = calloc(CHURN_GROUP, sizeof e[0]);
	uint64_t ns = 0;

	if (!e)
		cannot("list events", ENOMEM);
	for (unsigned group = 0; group < c->chains; group += CHURN_GROUP)
		for (unsigned k = c->first; k < c->last; k++)
			for (unsigned at = 0; at < CHAIN; at += EVENT) {
				unsigned n = 0;

				for (unsigned i = group; i < group + CHURN_GROUP; i++) {
					unsigned held = chain_held(i, k);

					if (at >= held)
						continue;
					event_make(&e[n++], chain_holder(world, i, k), i, at,
						   held - at < EVENT ? held - at : EVENT);
				}

				uint64_t start = cpu_ns();

				for (unsigned i = 0; i < n; i++)
					(store ? event_store : event_remove)(world, &e[i]);
				ns += cpu_ns() - start;
			}
	free(e);
	return (double)ns;
}
