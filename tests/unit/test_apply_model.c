/* tests/unit/test_apply_model.c -- apply against a model engine, and against recorded sequences. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/apply_world.h"

#define DATA PM_SOURCE_DIR "/tests/data/"

/* ---- a model engine ---- */

#define M_PROMPTS 12u
#define M_BLOCKS 10u

struct model {
	struct prompt prompt[M_PROMPTS];
	unsigned copies[M_PROMPTS][M_BLOCKS];
	uint64_t seq, salt;
	uint64_t rng;
};

static uint32_t
draw(struct model *m, uint32_t below)
{
	m->rng = m->rng * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(m->rng >> 33) % below;
}

/* Prompts share their first half in pairs, so chains branch; engine hashes change with each life.
 */
static void
model_lives(struct model *m)
{
	memset(m->copies, 0, sizeof m->copies);
	m->seq = 0;
	m->salt++;
	for (unsigned i = 0; i < M_PROMPTS; i++) {
		prompt_make(&m->prompt[i], 1000 * i);
		for (unsigned b = 0; b < M_BLOCKS / 2; b++)
			memcpy(m->prompt[i].tokens + b * BLOCK,
			       m->prompt[i & ~1u].tokens + b * BLOCK, BLOCK * sizeof(uint32_t));
		for (unsigned b = 0; b < M_BLOCKS; b++)
			m->prompt[i].engine[b] =
				(m->salt << 32) + (b < M_BLOCKS / 2 ? i & ~1u : i) * 100 + b + 1;
	}
}

static unsigned
owner(unsigned i, unsigned b)
{
	return b < M_BLOCKS / 2 ? i & ~1u : i;
}

static unsigned
model_depth(const struct model *m, unsigned i)
{
	unsigned b = 0;

	while (b < M_BLOCKS && m->copies[owner(i, b)][b] > 0)
		b++;
	return b;
}

/* One event of the engine; *ret filled for the wire. */
static bool
model_step(struct model *m, struct event *ret)
{
	unsigned i = draw(m, M_PROMPTS), b = draw(m, M_BLOCKS), n;
	struct prompt *p = &m->prompt[i];

	if (draw(m, 200) == 0) {
		memset(m->copies, 0, sizeof m->copies);
		*ret = (struct event)CLEARED;
		return true;
	}
	if (draw(m, 100) < 55) {
		b = draw(m, 3) ? model_depth(m, i) : b; /* mostly what an engine would do */
		if (b == M_BLOCKS)
			b = draw(m, M_BLOCKS);
		n = 1 + draw(m, M_BLOCKS - b);
		for (unsigned k = b; k < b + n; k++)
			m->copies[owner(i, k)][k]++;
		*ret = (struct event)STORED(.hashes = p->engine + b, .n = n,
					    .parent = b ? p->engine[b - 1] : 0,
					    .tokens = p->tokens + b * BLOCK);
		return true;
	}
	if (m->copies[owner(i, b)][b] == 0)
		return false;
	m->copies[owner(i, b)][b]--;
	*ret = (struct event)REMOVED(.hashes = p->engine + b, .n = 1);
	return true;
}

/* Whatever is lost, doubled or restarted: nothing is sure that is not so, and while nothing was
 * lost all that is so is known. */
Test(apply_model, under_loss_restarts_and_our_own_deaths_what_is_sure_is_true)
{
	unsigned exact_checks = 0;

	for (uint64_t seed = 1; seed <= 30; seed++) {
		struct world w;
		struct model m = {.rng = seed};

		begin(&w, seed % 2 ? 60 : 300); /* bitmap sets, and lists with a pool */
		model_lives(&m);
		for (unsigned step = 0; step < 1500; step++) {
			struct event e;

			if (draw(&m, 400) == 0)
				model_lives(&m);
			if (draw(&m, 500) == 0) {
				dies(&w);
				born(&w);
			}
			if (draw(&m, 20) == 0)
				note(&w, 0, step + 1, &m.prompt[draw(&m, M_PROMPTS)],
				     1 + draw(&m, M_BLOCKS));
			if (!model_step(&m, &e))
				continue;
			uint64_t seq = m.seq++;

			if (draw(&m, 150) == 0)
				continue; /* lost */
			SAY(&w, 0, seq, e);
			if (draw(&m, 50) == 0)
				SAY(&w, 0, seq, e); /* doubled */
			if (draw(&m, 100) == 0)
				apply_tick(w.apply, w.now += LEASE_S(5));
			for (unsigned i = 0; i < M_PROMPTS; i++) {
				unsigned depth = depth_of(&w, 0, &m.prompt[i]).exact,
					 truth = model_depth(&m, i);

				cr_assert_leq(depth, truth,
					      "seed %lu step %u prompt %u: %u sure, %u there",
					      (unsigned long)seed, step, i, depth, truth);
				if (state_of(&w, 0) == CACHE_EXACT &&
				    reason_of(&w, 0) != REASON_CLEARED) {
					/* the placed part of it: a block stored above a hole waits
					 * as an orphan */
					cr_assert_eq(
						depth, truth,
						"seed %lu step %u prompt %u: %u sure, %u there",
						(unsigned long)seed, step, i, depth, truth);
					exact_checks++;
				}
			}
		}
		end(&w);
	}
	cr_assert_gt(exact_checks, 10000);
}

/* ---- recorded sequences ---- */

static size_t
unhex(const char *hex, uint8_t *ret)
{
	size_t n = 0;
	unsigned byte;

	while (sscanf(hex + 2 * n, "%2x", &byte) == 1)
		ret[n++] = (uint8_t)byte;
	return n;
}

/* Messages from .. to - 1 of lines {"seq": n, "payload_hex": ".."}; others are not counted. */
static void
play(struct world *w, uint16_t row, const char *name, unsigned from, unsigned to)
{
	unsigned at = 0;
	static char line[65536];
	static uint8_t payload[32768];
	char path[256];
	FILE *f;

	snprintf(path, sizeof path, DATA "cases/kv/%s", name);
	f = fopen(path, "r");
	cr_assert_not_null(f, "%s", path);
	while (fgets(line, sizeof line, f)) {
		const char *seq = strstr(line, "\"seq\":"), *hex = strstr(line, "\"payload_hex\":");

		if (!seq || !hex || at++ < from || at > to)
			continue;
		hex = strchr(strchr(hex, ':'), '"') + 1;
		apply_message(w->apply, row, strtoull(seq + 6, NULL, 10), payload,
			      unhex(hex, payload));
	}
	fclose(f);
}

static uint64_t
entries(const struct world *w)
{
	return atomic_load(&index_head(w->reader)->entries);
}

static void
forget_retired(struct world *w)
{
	while (index_scrub(w->writer, 1000) > 0)
		;
}

Test(apply_model, the_recorded_restart_leaves_only_the_new_engines_block)
{
	struct world w;

	begin(&w, 60);
	play(&w, 0, "kv06_restart.jsonl", 0, 3);
	forget_retired(&w);
	cr_assert_eq(entries(&w), 1);
	cr_assert_eq(atomic_load(&w.rows.row[0].restarts), 1);
	end(&w);
}

Test(apply_model, the_recorded_duplicates_are_counted_as_on_the_wire)
{
	static const uint64_t left[] = {2, 2, 2, 1,
					1}; /* after each message, as the record expects */
	struct world w;

	begin(&w, 60);
	for (unsigned n = 0; n < sizeof left / sizeof left[0]; n++) {
		play(&w, 0, "kv09_dup.jsonl", n, n + 1);
		cr_assert_eq(entries(&w), left[n], "after message %u", n);
		cr_assert_eq(count_get(&w.process, COUNTER_removals_unknown),
			     n < 2 ? 0 : n < 4 ? 2 : 3);
	}
	cr_assert_eq(atomic_load(&w.rows.row[0].failed), 0);
	end(&w);
}

Test(apply_model, the_recorded_gap_is_seen)
{
	struct world w;

	begin(&w, 60);
	play(&w, 0, "kv05_gap.jsonl", 0, 1000);
	cr_assert_gt(atomic_load(&w.rows.row[0].gaps), 0);
	cr_assert_eq(state_of(&w, 0), CACHE_GAP);
	end(&w);
}

Test(apply_model, two_recorded_ranks_stay_apart)
{
	struct world w;

	begin(&w, 60);
	for (uint16_t i = 0; i < 2; i++) {
		w.rows.row[i].ranks = 2;
		w.rows.row[i].rank = i;
	}
	play(&w, 0, "kv10_two_ranks.jsonl", 0, 1);
	play(&w, 1, "kv10_two_ranks.jsonl", 1, 2);
	cr_assert_eq(entries(&w), 1, "the same tokens are one key");
	cr_assert_eq(atomic_load(&index_head(w.reader)->holders), 2);
	play(&w, 1, "kv10_two_ranks.jsonl", 2, 3);
	cr_assert_eq(atomic_load(&index_head(w.reader)->holders), 1, "rank 0 holds it still");
	cr_assert_eq(index_slot_held(w.writer, atomic_load(&w.rows.row[0].slot_gpu)), 1);
	end(&w);
}
