/* What an emulated engine keeps beside plain blocks: adapters, tiers, groups; and when it works. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/emulator/profile.h"
#include "tests/emulator/worker.h"

#define BLOCK 16u

/* A worker, what its clients saw, and its events one behind the other. */
struct seen {
	struct worker *w;
	unsigned hit[16];
	double first_s[16];
	struct engine_event event[256];
	unsigned events;
	double said_s; /* when the last event came */
	double now_s;
};

static void
on_token(void *arg, struct worker_job *job, double now_s)
{
	struct seen *seen = arg;
	size_t i = (size_t)(uintptr_t)job->priv;

	if (job->visible == 1)
		seen->first_s[i] = now_s;
	seen->hit[i] = job->hit_tokens;
}

static void
on_events(void *arg, double now_s, const struct engine_events *evs)
{
	struct seen *seen = arg;

	seen->said_s = now_s;
	for (unsigned i = 0; i < evs->events && seen->events < 256; i++)
		seen->event[seen->events++] = evs->event[i];
}

static struct worker_config
small(void)
{
	struct worker_config cfg;

	profile_by_name("zero", &cfg);
	cfg.engine.num_blocks = 32;
	cfg.engine.hash_seed = "0";
	return cfg;
}

static struct seen *
seen_new(const struct worker_config *cfg)
{
	struct seen *seen = calloc(1, sizeof *seen);
	struct worker_sink sink = {.arg = seen, .on_token = on_token, .on_events = on_events};

	seen->w = worker_new(cfg, &sink);
	return seen;
}

static void
seen_free(struct seen *seen)
{
	worker_free(&seen->w);
	free(seen);
}

static void
run(struct seen *seen)
{
	double next;

	while (isfinite(next = worker_next_s(seen->w))) {
		seen->now_s = next;
		worker_advance(seen->w, next, 1);
	}
}

/* Ask for `blocks` blocks of stream `from` and one token more, and wait for the answer. */
static void
ask(struct seen *seen, size_t id, unsigned from, unsigned blocks, const char *lora,
    const char *salt)
{
	unsigned n = blocks * BLOCK + 1;
	struct worker_request req = {.token = malloc(n * sizeof *req.token), .prompt_tokens = n,
				     .max_output = 1, .natural_finish = ENGINE_FINISH_LENGTH,
				     .lora = lora != NULL ? 1 : 0, .lora_name = lora, .salt = salt,
				     .priv = (void *)(uintptr_t)id};
	struct worker_job *job;

	for (unsigned i = 0; i < n; i++)
		req.token[i] = from * 1000 + i;
	cr_assert_eq(worker_submit(seen->w, seen->now_s, &req, &job), 0);
	run(seen);
}

static unsigned
count(const struct seen *seen, enum engine_event_kind kind, enum engine_tier tier, unsigned group)
{
	unsigned n = 0;

	for (unsigned i = 0; i < seen->events; i++)
		if (seen->event[i].kind == kind && seen->event[i].tier == tier &&
		    seen->event[i].group == group)
			n += seen->event[i].hashes;
	return n;
}

Test(emulator_tiers, an_adapter_and_a_salt_are_part_of_what_a_block_is)
{
	struct worker_config cfg = small();
	struct seen *seen = seen_new(&cfg);

	ask(seen, 0, 1, 2, NULL, NULL);
	ask(seen, 1, 1, 2, "a", NULL);
	ask(seen, 2, 1, 2, NULL, "s");
	ask(seen, 3, 1, 2, "a", "s");
	for (unsigned i = 0; i < 4; i++)
		cr_assert_eq(seen->hit[i], 0, "%u", i);
	ask(seen, 4, 1, 2, "a", NULL);
	ask(seen, 5, 1, 2, NULL, "s");
	cr_assert_eq(seen->hit[4], 2 * BLOCK);
	cr_assert_eq(seen->hit[5], 2 * BLOCK);
	cr_assert_eq(seen->event[1].lora, 1);
	cr_assert_geq(seen->event[2].salt_at, 0);
	seen_free(seen);
}

Test(emulator_tiers, bare_names_are_the_same_whatever_the_salt_and_still_nothing_is_shared)
{
	struct worker_config cfg = small();
	struct seen *seen;
	struct engine_at at = {0};
	struct engine_block one, other;

	cfg.engine.bare_names = true;
	seen = seen_new(&cfg);
	ask(seen, 0, 1, 1, NULL, "s");
	ask(seen, 1, 1, 1, NULL, "t");
	cr_assert_eq(seen->hit[1], 0);
	cr_assert(engine_next_cached(worker_engine(seen->w), &at, &one));
	cr_assert(engine_next_cached(worker_engine(seen->w), &at, &other));
	cr_assert_eq(memcmp(&one.name, &other.name, sizeof one.name), 0);
	cr_assert_str_eq(one.salt, "s");
	cr_assert_str_eq(other.salt, "t");
	seen_free(seen);
}

Test(emulator_tiers, what_the_gpu_lost_is_loaded_from_the_offload_tier)
{
	struct worker_config cfg = small();
	struct seen *seen;

	cfg.engine.num_blocks = 8;
	cfg.engine.offload_blocks = 12;
	seen = seen_new(&cfg);
	ask(seen, 0, 1, 4, NULL, NULL);
	ask(seen, 1, 2, 6, NULL, NULL); /* takes what the first had */
	cr_assert_geq(count(seen, ENGINE_REMOVED, ENGINE_GPU, 0), 2);
	cr_assert_eq(count(seen, ENGINE_STORED, ENGINE_CPU, 0), 10);
	cr_assert_eq(count(seen, ENGINE_REMOVED, ENGINE_CPU, 0), 0);
	ask(seen, 2, 1, 4, NULL, NULL);
	cr_assert_eq(seen->hit[2], 4 * BLOCK);
	cr_assert_eq(worker_stats(seen->w).engine.offloaded_blocks, 10);
	ask(seen, 3, 3, 6, NULL, NULL); /* 16 in all: the 4 used least recently go */
	cr_assert_eq(count(seen, ENGINE_REMOVED, ENGINE_CPU, 0), 4);
	cr_assert_eq(worker_stats(seen->w).engine.offloaded_blocks, 12);
	ask(seen, 4, 1, 4, NULL, NULL);
	cr_assert_eq(seen->hit[4], 4 * BLOCK);
	cr_assert(worker_clear_cache(seen->w, seen->now_s, false, true));
	cr_assert_eq(worker_stats(seen->w).engine.offloaded_blocks, 12);
	cr_assert(worker_clear_cache(seen->w, seen->now_s, true, true));
	cr_assert_eq(worker_stats(seen->w).engine.offloaded_blocks, 0);
	seen_free(seen);
}

Test(emulator_tiers, further_groups_tell_their_own_blocks_and_mamba_the_last_alone)
{
	struct worker_config cfg = small();
	struct seen *seen;
	unsigned mamba = 0;

	cfg.engine.group[0] = (struct engine_group){ENGINE_SLIDING_WINDOW, 2 * BLOCK, 3};
	cfg.engine.group[1] = (struct engine_group){ENGINE_MAMBA, 4 * BLOCK, 8};
	cfg.engine.groups = 2;
	seen = seen_new(&cfg);
	ask(seen, 0, 1, 8, NULL, NULL);
	cr_assert_eq(count(seen, ENGINE_STORED, ENGINE_GPU, 0), 8);
	cr_assert_eq(count(seen, ENGINE_STORED, ENGINE_GPU, 1), 3); /* all it has room for */
	cr_assert_eq(count(seen, ENGINE_STORED, ENGINE_GPU, 2), 1);
	for (unsigned i = 0; i < seen->events; i++)
		if (seen->event[i].group == 2) {
			cr_assert_eq(seen->event[i].tokens, 8 * BLOCK);
			mamba++;
		}
	cr_assert_eq(mamba, 1);
	ask(seen, 1, 1, 8, NULL, NULL); /* a hit says nothing again, but for what was evicted */
	cr_assert_eq(count(seen, ENGINE_STORED, ENGINE_GPU, 2), 1);
	seen_free(seen);
}

Test(emulator_tiers, a_clear_is_told_with_the_next_step)
{
	struct worker_config cfg = small();
	struct seen *seen = seen_new(&cfg);
	unsigned events;

	ask(seen, 0, 1, 2, NULL, NULL);
	events = seen->events;
	cr_assert(worker_clear_cache(seen->w, seen->now_s, false, false));
	run(seen);
	cr_assert_eq(seen->events, events);
	ask(seen, 1, 1, 2, NULL, NULL);
	cr_assert_eq(seen->hit[1], 0);
	cr_assert_eq(seen->event[events].kind, ENGINE_CLEARED);
	cr_assert_eq(seen->event[events + 1].kind, ENGINE_STORED);
	seen_free(seen);
}

Test(emulator_tiers, events_leave_before_the_step_or_after_it)
{
	struct worker_config cfg = small();

	cfg.engine.t_o_s = 2;
	for (int early = 0; early < 2; early++) {
		struct seen *seen;

		cfg.events_early = early;
		seen = seen_new(&cfg);
		ask(seen, 0, 1, 2, NULL, NULL);
		cr_assert_float_eq(seen->said_s, early ? 0 : 2, 1e-9);
		seen_free(seen);
	}
}

Test(emulator_tiers, a_new_worker_is_slower_and_less_and_less)
{
	struct worker_config cfg = small();
	struct seen *seen;

	cfg.engine.t_o_s = 1;
	cfg.warmup_s = 10;
	cfg.warmup_factor = 5;
	seen = seen_new(&cfg);
	ask(seen, 0, 1, 1, NULL, NULL);
	cr_assert_float_eq(seen->first_s[0], 5, 1e-9);
	ask(seen, 1, 2, 1, NULL, NULL);
	cr_assert_float_eq(seen->first_s[1], 5 + 3, 1e-9); /* half way */
	seen->now_s = 20;
	ask(seen, 2, 3, 1, NULL, NULL);
	cr_assert_float_eq(seen->first_s[2], 21, 1e-9);
	worker_restart(seen->w, 30, "0");
	seen->now_s = 30;
	ask(seen, 3, 3, 1, NULL, NULL);
	cr_assert_float_eq(seen->first_s[3], 35, 1e-9);
	seen_free(seen);
}

Test(emulator_tiers, nothing_steps_while_paused)
{
	struct worker_config cfg = small();
	struct seen *seen;

	cfg.engine.t_o_s = 1;
	seen = seen_new(&cfg);
	worker_pause(seen->w, 0, true);
	ask(seen, 0, 1, 1, NULL, NULL);
	cr_assert_eq(worker_stats(seen->w).engine.waiting, 1);
	cr_assert_eq(seen->first_s[0], 0);
	seen->now_s = 7;
	worker_pause(seen->w, 7, false);
	run(seen);
	cr_assert_float_eq(seen->first_s[0], 8, 1e-9);
	seen_free(seen);
}
