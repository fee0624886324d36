/* The emulator's engine and worker in virtual time: step times against the model they were fitted
 * to, the block pool against the rules engines follow, hashes against published vectors. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/emulator/profile.h"
#include "tests/emulator/worker.h"

/* A worker, and what its clients saw. */
struct seen {
	struct worker *w;
	double end_s[64];
	double first_s[64];
	double token_s[64][512];
	unsigned tokens[64];
	unsigned hit[64];
	enum engine_finish finish[64];
	unsigned stored, removed, cleared, stored_tokens;
	struct blockhash stored_hash[1024];
	double now_s;
};

static void
on_token(void *arg, struct worker_job *job, double now_s)
{
	struct seen *seen = arg;
	size_t i = (size_t)(uintptr_t)job->priv;

	if (job->visible == 1)
		seen->first_s[i] = now_s;
	if (seen->tokens[i] < 512)
		seen->token_s[i][seen->tokens[i]] = now_s;
	seen->tokens[i]++;
	seen->hit[i] = job->hit_tokens;
	seen->finish[i] = job->finish;
	if (job->finish != ENGINE_RUNNING)
		seen->end_s[i] = now_s;
}

static void
on_events(void *arg, double now_s, const struct engine_events *evs)
{
	struct seen *seen = arg;

	(void)now_s;
	for (unsigned i = 0; i < evs->events; i++) {
		const struct engine_event *ev = &evs->event[i];

		if (ev->kind == ENGINE_STORED) {
			for (unsigned h = 0; h < ev->hashes; h++)
				if (seen->stored + h < 1024)
					seen->stored_hash[seen->stored + h] =
						evs->hash[ev->hash_at + h];
			seen->stored += ev->hashes;
			seen->stored_tokens += ev->tokens;
		} else if (ev->kind == ENGINE_REMOVED) {
			seen->removed += ev->hashes;
		} else {
			seen->cleared++;
		}
	}
}

static struct worker_config
l40s(void)
{
	struct worker_config cfg;

	profile_by_name("l40s-27b-fp8", &cfg);
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

/* A prompt: shared tokens of stream `prefix`, then own tokens of stream `suffix`. */
static struct worker_job *
submit(struct seen *seen, size_t id, unsigned prefix, unsigned shared, unsigned suffix,
       unsigned own, unsigned out)
{
	uint32_t *token = malloc((shared + own) * sizeof *token);
	struct worker_request req = {.token = token, .prompt_tokens = shared + own,
				     .max_output = out, .natural_finish = ENGINE_FINISH_LENGTH,
				     .priv = (void *)(uintptr_t)id};
	struct worker_job *job = NULL;

	for (unsigned i = 0; i < shared; i++)
		token[i] = prefix * 100000 + i;
	for (unsigned i = 0; i < own; i++)
		token[shared + i] = 50000000 + suffix * 100000 + i;
	cr_assert_eq(worker_submit(seen->w, seen->now_s, &req, &job), 0);
	return job;
}

static void
run_until(struct seen *seen, double until_s)
{
	double next;

	while ((next = worker_next_s(seen->w)) <= until_s && isfinite(next)) {
		seen->now_s = next;
		worker_advance(seen->w, next, 1);
	}
	if (isfinite(until_s))
		seen->now_s = until_s;
}

static void
near(double got, double want, double share, const char *what)
{
	cr_assert(fabs(got - want) <= share * want, "%s: %.4f, want %.4f +- %.0f %%", what, got,
		  want, share * 100);
}

Test(emulator_engine, idle_cold_16k_prompt_takes_6_8_s_to_the_first_token)
{
	struct worker_config cfg = l40s();
	struct seen *seen = seen_new(&cfg);

	submit(seen, 0, 1, 16256, 0, 0, 256);
	run_until(seen, INFINITY);
	near(seen->first_s[0], 6.8, 0.02, "TTFT");
	cr_assert_eq(seen->tokens[0], 256);
	cr_assert_eq(seen->finish[0], ENGINE_FINISH_LENGTH);
	near((seen->end_s[0] - seen->first_s[0]) / 255, 0.0417, 0.01, "ITL");
	seen_free(seen);
}

Test(emulator_engine, idle_hit_of_20_blocks_takes_0_307_s_and_10_9_s_in_all)
{
	struct worker_config cfg = l40s();
	struct seen *seen = seen_new(&cfg);
	double t0;

	submit(seen, 0, 1, 16000, 1, 256, 1);
	run_until(seen, INFINITY);
	t0 = seen->now_s;
	submit(seen, 1, 1, 16000, 2, 256, 256);
	run_until(seen, INFINITY);
	cr_assert_eq(seen->hit[1], 15680);
	near(seen->first_s[1] - t0, 0.307, 0.05, "TTFT");
	near(seen->end_s[1] - t0, 10.9, 0.02, "E2E");
	seen_free(seen);
}

Test(emulator_engine, idle_cold_8k_prompt_takes_3_3_s)
{
	struct worker_config cfg = l40s();
	struct seen *seen = seen_new(&cfg);

	submit(seen, 0, 1, 8000, 0, 0, 1);
	run_until(seen, INFINITY);
	near(seen->first_s[0], 3.3, 0.02, "TTFT");
	seen_free(seen);
}

Test(emulator_engine, a_16k_prefill_stretches_8_gaps_of_a_running_decode_to_0_85_s)
{
	struct worker_config cfg = l40s();
	struct seen *seen = seen_new(&cfg);
	unsigned slow = 0;
	double sum = 0;

	submit(seen, 0, 1, 16256, 0, 0, 300);
	run_until(seen, 8.0);
	submit(seen, 1, 2, 16256, 0, 0, 1);
	run_until(seen, INFINITY);
	for (unsigned i = 1; i < 300; i++) {
		double gap = seen->token_s[0][i] - seen->token_s[0][i - 1];

		if (gap > 0.2) {
			slow++;
			sum += gap;
		}
	}
	cr_assert_eq(slow, 8, "%u slow gaps", slow);
	near(sum / 8, 0.85, 0.03, "slow ITL");
	seen_free(seen);
}

Test(emulator_engine, two_cold_16k_prompts_are_served_first_come_first)
{
	struct worker_config cfg = l40s();
	struct seen *seen = seen_new(&cfg);

	submit(seen, 0, 1, 16256, 0, 0, 1);
	submit(seen, 1, 2, 16256, 0, 0, 1);
	run_until(seen, INFINITY);
	near(seen->first_s[0], 6.8, 0.02, "first");
	near(seen->first_s[1], 13.6, 0.02, "second");
	seen_free(seen);
}

Test(emulator_engine, ten_hit_decodes_at_16k_context_take_57_ms_a_token)
{
	struct worker_config cfg = l40s();
	struct seen *seen = seen_new(&cfg);

	submit(seen, 0, 1, 16000, 1, 256, 1);
	run_until(seen, INFINITY);
	for (size_t i = 1; i <= 10; i++)
		submit(seen, i, 1, 16000, (unsigned)i + 1, 256, 256);
	run_until(seen, INFINITY);
	near((seen->token_s[1][200] - seen->token_s[1][100]) / 100, 0.057, 0.03, "ITL");
	seen_free(seen);
}

Test(emulator_engine, a_hit_never_covers_the_last_token)
{
	struct worker_config cfg = l40s();
	struct seen *seen = seen_new(&cfg);

	submit(seen, 0, 1, 784 * 4, 0, 0, 1);
	run_until(seen, INFINITY);
	submit(seen, 1, 1, 784 * 4, 0, 0, 1);
	run_until(seen, INFINITY);
	cr_assert_eq(seen->hit[1], 784 * 3);
	/* the last block was computed again: the same hash in a second block */
	cr_assert_eq(seen->stored, 5);
	cr_assert_eq(memcmp(&seen->stored_hash[3], &seen->stored_hash[4], 32), 0);
	cr_assert_eq(engine_cached(worker_engine(seen->w)), 4);
	cr_assert_eq(worker_stats(seen->w).engine.cached_blocks, 5);
	seen_free(seen);
}

Test(emulator_engine, a_duplicate_leaves_one_copy_when_the_other_is_evicted)
{
	struct worker_config cfg = l40s();
	struct seen *seen;

	cfg.engine.num_blocks = 10;
	seen = seen_new(&cfg);
	submit(seen, 0, 1, 784 * 4, 0, 0, 1); /* blocks for 4 full + 1 partial: freed tail first */
	run_until(seen, INFINITY);
	submit(seen, 1, 1, 784 * 4, 0, 0, 1);
	run_until(seen, INFINITY);
	cr_assert_eq(worker_stats(seen->w).engine.cached_blocks, 5);
	/* 10 blocks, 5 hold hashes; ask for 6 more full ones: one block with a hash must go, and it
	 * is the older copy of the duplicate, freed first. */
	submit(seen, 2, 7, 784 * 6, 0, 0, 1);
	run_until(seen, INFINITY);
	cr_assert_eq(seen->removed, 1, "%u removed", seen->removed);
	submit(seen, 3, 1, 784 * 4 + 1, 0, 0, 1);
	run_until(seen, INFINITY);
	cr_assert_eq(seen->hit[3], 784 * 4, "hit %u", seen->hit[3]);
	seen_free(seen);
}

Test(emulator_engine, eviction_takes_the_tail_of_the_oldest_prompt_first)
{
	struct worker_config cfg = l40s();
	struct seen *seen;

	cfg.engine.num_blocks = 10;
	seen = seen_new(&cfg);
	submit(seen, 0, 1, 784 * 6, 0, 0, 1);
	run_until(seen, INFINITY);
	submit(seen, 1, 2, 784 * 6, 0, 0, 1);
	run_until(seen, INFINITY);
	/* the second prompt took the four blocks never used, then the first one's last two */
	cr_assert_eq(seen->stored, 12);
	cr_assert_eq(seen->removed, 2, "%u removed", seen->removed);
	submit(seen, 2, 1, 784 * 6, 0, 0, 1);
	run_until(seen, INFINITY);
	cr_assert_eq(seen->hit[2], 784 * 4, "hit %u", seen->hit[2]);
	seen_free(seen);
}

Test(emulator_engine, block_counts_always_add_up_under_preemption)
{
	struct worker_config cfg = l40s();
	struct seen *seen;
	struct worker_stats stats;

	cfg.engine.num_blocks = 12;
	cfg.engine.block_tokens = 16;
	cfg.engine.reserve_full_isl = false;
	seen = seen_new(&cfg);
	for (size_t i = 0; i < 4; i++)
		submit(seen, i, (unsigned)i, 40, 0, 0, 60);
	run_until(seen, INFINITY);
	stats = worker_stats(seen->w);
	cr_assert_gt(stats.engine.preemptions, 0);
	for (size_t i = 0; i < 4; i++) {
		cr_assert_eq(seen->tokens[i], 60);
		cr_assert_eq(seen->finish[i], ENGINE_FINISH_LENGTH);
	}
	cr_assert_eq(stats.engine.free_blocks, 12);
	cr_assert_eq(seen->stored - seen->removed, stats.engine.cached_blocks);
	seen_free(seen);
}

Test(emulator_engine, an_abort_frees_blocks_and_keeps_what_was_cached)
{
	struct worker_config cfg = l40s();
	struct seen *seen = seen_new(&cfg);
	struct worker_job *job;
	unsigned stored;

	job = submit(seen, 0, 1, 16256, 0, 0, 256);
	run_until(seen, 3.0);
	cr_assert_eq(worker_stats(seen->w).engine.running, 1);
	worker_abort(seen->w, job);
	cr_assert_eq(worker_stats(seen->w).engine.running, 0);
	cr_assert_eq(worker_stats(seen->w).engine.free_blocks, 208);
	run_until(seen, INFINITY);
	cr_assert_eq(seen->tokens[0], 0);
	cr_assert_gt(seen->stored, 5);
	cr_assert_eq(seen->stored_tokens, seen->stored * 784);
	stored = seen->stored;
	submit(seen, 1, 1, 16256, 0, 0, 1);
	run_until(seen, INFINITY);
	cr_assert_eq(seen->hit[1], stored * 784);
	seen_free(seen);
}

Test(emulator_engine, clearing_is_refused_while_blocks_are_in_use)
{
	struct worker_config cfg = l40s();
	struct seen *seen = seen_new(&cfg);

	submit(seen, 0, 1, 16256, 0, 0, 1);
	run_until(seen, 3.0);
	cr_assert(!worker_clear_cache(seen->w, seen->now_s, false, true));
	run_until(seen, INFINITY);
	cr_assert(worker_clear_cache(seen->w, seen->now_s, false, true));
	cr_assert_eq(seen->cleared, 1);
	cr_assert_eq(worker_stats(seen->w).engine.cached_blocks, 0);
	submit(seen, 1, 1, 16256, 0, 0, 1);
	run_until(seen, INFINITY);
	cr_assert_eq(seen->hit[1], 0);
	seen_free(seen);
}

Test(emulator_engine, a_restart_forgets_jobs_and_cache_without_a_word)
{
	struct worker_config cfg = l40s();
	struct seen *seen = seen_new(&cfg);

	submit(seen, 0, 1, 8000, 0, 0, 1);
	run_until(seen, INFINITY);
	submit(seen, 1, 1, 8000, 0, 0, 50);
	submit(seen, 2, 2, 8000, 0, 0, 50);
	run_until(seen, seen->now_s + 1.0);
	seen->stored = 0;
	worker_restart(seen->w, seen->now_s, "1");
	cr_assert_eq(worker_next_s(seen->w), INFINITY);
	submit(seen, 3, 1, 8000, 0, 0, 1);
	run_until(seen, INFINITY);
	cr_assert_eq(seen->hit[3], 0);
	cr_assert_eq(seen->cleared, 0);
	cr_assert_eq(seen->stored, 10);
	seen_free(seen);
}

Test(emulator_engine, late_callers_do_not_make_steps_longer)
{
	struct worker_config cfg = l40s();
	struct seen *on_time = seen_new(&cfg), *late = seen_new(&cfg);

	submit(on_time, 0, 1, 16256, 0, 0, 100);
	submit(late, 0, 1, 16256, 0, 0, 100);
	run_until(on_time, INFINITY);
	while (worker_next_s(late->w) < INFINITY) /* wakes up only every 0.5 s */
		worker_advance(late->w, late->now_s += 0.5, 1000);
	cr_assert_float_eq(late->end_s[0], on_time->end_s[0], 1e-9);
	cr_assert_eq(worker_stats(on_time->w).overruns, 0);
	cr_assert_gt(worker_stats(late->w).overruns, 0);
	seen_free(on_time);
	seen_free(late);
}

Test(emulator_engine, the_zero_profile_serves_without_time_passing)
{
	struct worker_config cfg;
	struct seen *seen;

	cr_assert_eq(profile_by_name("zero", &cfg), 0);
	cfg.engine.hash_seed = "0";
	seen = seen_new(&cfg);
	submit(seen, 0, 1, 1000, 0, 0, 16);
	while (worker_advance(seen->w, 0, 4))
		;
	cr_assert_eq(seen->tokens[0], 16);
	cr_assert_eq(seen->end_s[0], 0.0);
	seen_free(seen);
}

Test(emulator_engine, priority_goes_first_when_asked_for)
{
	struct worker_config cfg = l40s();
	struct seen *seen;

	cfg.engine.by_priority = true;
	cfg.engine.max_seqs = 1;
	seen = seen_new(&cfg);
	submit(seen, 0, 1, 4000, 0, 0, 1);
	submit(seen, 1, 2, 4000, 0, 0, 1);
	submit(seen, 2, 3, 4000, 0, 0, 1)->priority = -1;
	run_until(seen, INFINITY);
	cr_assert_lt(seen->end_s[2], seen->end_s[1]);
	seen_free(seen);
}

/* ---- hashes: vectors of tests/data/kv-events/block_hash_vectors.json ---- */

static const uint32_t sample[32] = {151644, 8948,   198, 2610,   525, 264,    10950, 17847,
				    13,     151645, 198, 151644, 872, 198,    9064,  374,
				    279,    6722,   315, 9625,   30,  151645, 198,   151644,
				    77091,  198,    785, 6722,   315, 9625,   374,   12095};

static const char *
hex(const struct blockhash *hash, unsigned size)
{
	static char text[65];

	for (unsigned i = 0; i < size; i++)
		snprintf(text + 2 * i, 3, "%02x", hash->bytes[i]);
	return text;
}

static void
chain(enum blockhash_algo algo, const char *salt, const char *root, const char *h0, const char *h1)
{
	struct blockhash hash;
	unsigned size = blockhash_size(algo);

	blockhash_root(algo, "0", &hash);
	cr_assert_str_eq(hex(&hash, size), root);
	blockhash_next(algo, &hash, sample, 16, NULL, salt, &hash);
	cr_assert_str_eq(hex(&hash, size), h0);
	blockhash_next(algo, &hash, sample + 16, 16, NULL, NULL, &hash);
	cr_assert_str_eq(hex(&hash, size), h1);
}

Test(emulator_blockhash, sha256_cbor_matches_the_published_vectors)
{
	struct blockhash hash;

	chain(BLOCKHASH_SHA256_CBOR, NULL,
	      "4e1195df020de59e0d65a33a4279f1183e7ae4e5d980e309f8b55adff2e61c3e",
	      "825bd78e363275cd715561be6e1d8ace30d2dfa0185d2fcd27b07d5944a1dcd0",
	      "39f3236b90f3085ab7fd492a1bed3f08cdfc6ce3660a5ade6282226eb1e08fae");
	chain(BLOCKHASH_SHA256_CBOR, "tenant-a-9f2c",
	      "4e1195df020de59e0d65a33a4279f1183e7ae4e5d980e309f8b55adff2e61c3e",
	      "1ff8d181652af510585099b660a248547934fba12317c8c391a3b0b30fbecb22",
	      "0d141ad54479c4ea13ee02488f057ccb4edd8183ef98a9c0235bfcb99fc75f78");
	blockhash_root(BLOCKHASH_SHA256_CBOR, "0", &hash);
	blockhash_next(BLOCKHASH_SHA256_CBOR, &hash, sample, 16, NULL, NULL, &hash);
	cr_assert_eq(blockhash_low64(BLOCKHASH_SHA256_CBOR, &hash), 2859923585737284816u);
}

Test(emulator_blockhash, xxhash_cbor_matches_the_published_vectors)
{
	chain(BLOCKHASH_XXHASH_CBOR, NULL, "1ebe36576dcb573f26b99533a20aaeca",
	      "4db75276b198620aeade7a744abcbfc9", "9946885a894daa87a895587778a0f2a9");
}
