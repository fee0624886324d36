/* tests/unit/test_index_model.c -- whole workloads against a plain table of bits. */
#include "tests/unit/index_pair.h"

#define ROWS    32u
#define CHAINS  12u
#define LENGTH  30u
#define SLOTS   (ROWS * 4)
#define BLOCKS  (CHAINS * LENGTH)

struct model {
	uint64_t hash[BLOCKS];                  /* chain by chain */
	uint16_t id[SLOTS];                   /* slot s: row s / 4; gpu, offload, two speculative */
	bool held[SLOTS][BLOCKS];               /* put and not taken since */
};

static void
slot_new(struct pair *p, struct model *m, unsigned s)
{
	m->id[s] = take(p, (uint16_t)(s / 4), s % 4 < 2 ? INDEX_EXACT : INDEX_SPECULATIVE,
			s % 4 == 1 ? INDEX_OFFLOAD : INDEX_GPU);
	memset(m->held[s], 0, sizeof m->held[s]);
}

/* What a match must say, from single questions to the writer. */
static void
match_agrees(struct pair *p, struct model *m, unsigned chain)
{
	struct index_depth depth[ROWS + 1];
	static const unsigned slots_of[3] = {4, 2, 1};  /* any, exact, gpu: the first so many */
	unsigned n = index_match(p->reader, &m->hash[chain * LENGTH], LENGTH, depth, ROWS + 1);
	unsigned found = 0;

	for (unsigned row = 0; row < ROWS; row++) {
		uint32_t want[3] = {0};

		for (unsigned kind = 0; kind < 3; kind++)
			for (unsigned b = 0, hole = 0; b < LENGTH && !hole; b++) {
				hole = 1;
				for (unsigned k = 0; k < slots_of[kind]; k++)
					if (index_has(p->w, m->id[row * 4 + k],
						      m->hash[chain * LENGTH + b]))
						hole = 0;
				want[kind] += !hole;
			}
		for (unsigned i = 0; i < n; i++)
			if (depth[i].row == row) {
				found++;
				cr_assert_eq(depth[i].any, want[0]);
				cr_assert_eq(depth[i].exact, want[1]);
				cr_assert_eq(depth[i].gpu, want[2]);
				want[0] = 0;
			}
		cr_assert_eq(want[0], 0u, "row %u is missing", row);
	}
	cr_assert_eq(found, n);
}

static void
workload(uint64_t seed, uint64_t blocks, uint32_t max_slots, bool roomy)
{
	static struct model m;
	struct pair p;
	uint64_t random = seed;
	bool pooled[INDEX_CLASSES] = {false};

	pair_open(&p, blocks, max_slots);
	hashes(seed, m.hash, BLOCKS);
	for (unsigned s = 0; s < SLOTS; s++)
		slot_new(&p, &m, s);
	for (unsigned step = 0; step < 6000; step++) {
		unsigned s = (unsigned)(random_next(&random) % SLOTS),
			 chain = (unsigned)(random_next(&random) % CHAINS);
		unsigned from =
			random_next(&random) % 2 ? 0 : (unsigned)(random_next(&random) % LENGTH);
		unsigned to = from + (unsigned)(random_next(&random) % (LENGTH - from)) + 1;
		uint64_t what = random_next(&random) % 100;

		for (unsigned b = from; what < 90 && b < to; b++) {
			bool *held = &m.held[s][chain * LENGTH + b];

			if (what < (chain < 2 ? 80u : 50u)) {   /* some are held by most */
				unsigned other = s / 4 * 4 + 2 + s % 2;
				bool was = index_has(p.w, m.id[other], m.hash[chain * LENGTH + b]);
				bool done = index_put(p.w, m.id[s], m.hash[chain * LENGTH + b],
						      &m.id[other], 1);

				cr_assert(done || !roomy);
				if (done) {
					m.held[other][chain * LENGTH + b] = other == s;
					*held = true;
					cr_assert(index_has(p.w, m.id[s],
							    m.hash[chain * LENGTH + b]));
				} else {
					cr_assert_eq(index_has(p.w, m.id[other],
							       m.hash[chain * LENGTH + b]),
						     was, "a refusal changes nothing");
				}
			} else {
				index_take(p.w, m.hash[chain * LENGTH + b], &m.id[s], 1);
				*held = false;
				cr_assert(!index_has(p.w, m.id[s], m.hash[chain * LENGTH + b]));
			}
		}
		if (what == 90) {
			index_slot_retire(p.w, m.id[s]);
			slot_new(&p, &m, s);
		} else if (what > 90 && what < 99) {
			index_scrub(p.w, (unsigned)(random_next(&random) % 100));
		} else if (what == 99 && step % 4 == 0) {
			writer_restart(&p);
		}
		if (step % 16 == 0)
			match_agrees(&p, &m, chain);
		if (step % 500 == 0)
			audit_is_clean(&p, true);
		for (unsigned c = 0; c < INDEX_CLASSES; c++)
			pooled[c] |= index_head(p.reader)->pool_used[c] > 0;
	}
	cr_assert_eq(pooled[0], max_slots > 511, "every form was there");
	cr_assert(pooled[1]);
	for (unsigned s = 0; s < SLOTS; s++)
		for (unsigned b = 0; b < BLOCKS; b++) {
			bool has = index_has(p.w, m.id[s], m.hash[b]);

			cr_assert(roomy ? has == m.held[s][b] : !has || m.held[s][b],
				  "slot %u block %u", s, b);
		}
	if (!roomy)
		cr_assert_gt(index_head(p.reader)->evictions +
				     index_refused(index_head(p.reader)),
			     0u);
	audit_is_clean(&p, true);
	pair_close(&p);
}

Test(index_model, with_room_it_holds_exactly_what_was_put_in_lists_and_pool)
{
	for (uint64_t seed = 1; seed <= 4; seed++) {
		workload(seed, 8000, 140, true);
		workload(seed, 80000, 600, true);
		workload(seed, 80000, 4095, true);
	}
}

Test(index_model, without_room_it_holds_no_more_than_what_was_put)
{
	for (uint64_t seed = 1; seed <= 4; seed++) {
		workload(seed, 1, 140, false);
		workload(seed, 1, 600, false);
		workload(seed, 1, 6000, false);
	}
}
