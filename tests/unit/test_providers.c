/* tests/unit/test_providers.c -- a provider's model as a candidate beside workers: what it costs in
 * time and money, what is written to it, and what is not known of it. */
#include <math.h>

#include "actors/common/decide/member.h"
#include "tests/unit/policy_world.h"

#define DOCUMENTS(candidates) \
	"apiVersion: pointsman.io/v1alpha1\nkind: GatewayBackend\nmetadata: {name: g}\n" \
	"spec:\n  listen: ['127.0.0.1:8080']\n  models:\n" \
	"    - {name: demo, policy: p}\n" \
	"---\napiVersion: pointsman.io/v1alpha1\nkind: InferenceProvider\n" \
	"metadata: {name: cloud}\nspec:\n  type: openai\n  prior: {ttft: 500ms}\n  models:\n" \
	"    - {name: big, upstream: vendor.big-1, price: {input: 3, output: 15, " \
	"cachedInput: 0.3}}\n" \
	"    - {name: free}\n" \
	"---\napiVersion: pointsman.io/v1alpha1\nkind: InferenceWorkerSet\nmetadata: {name: s}\n" \
	"spec:\n  engine: vllm\n  model: demo\n  members:\n" \
	"    - {name: w0, url: 'http://127.0.0.1:9000'}\n" \
	"---\napiVersion: pointsman.io/v1alpha1\nkind: InferencePool\nmetadata: {name: pool}\n" \
	"spec:\n  workerSets: [s]\n" \
	"---\napiVersion: pointsman.io/v1alpha1\nkind: InferencePolicy\nmetadata: {name: p}\n" \
	"spec:\n  candidates: [" candidates "]\n"

#define BOTH "{pool: pool}, {provider: cloud, model: big}"
#define W0   2u         /* rows, as policy_world.h gives them: workers first */
#define BIG  3u
#define FREE 4u

Test(providers, their_models_are_rows_behind_the_workers)
{
	char said[200];
	struct world w;

	make_segments(&w, DOCUMENTS(BOTH));
	const struct manifest *m = w.manifest;

	cr_assert_eq(m->n_members, 3);
	cr_assert_not_null(member_set(m, &m->members[0]));
	cr_assert_null(member_provider(m, &m->members[0]));
	for (uint32_t i = 1; i < 3; i++) {
		cr_assert_null(member_set(m, &m->members[i]));
		cr_assert_str_eq(member_provider(m, &m->members[i])->name, "cloud");
		cr_assert_str_eq(member_group(m, &m->members[i]), "cloud");
	}
	cr_assert_str_eq(member_model(m, &m->members[1]), "vendor.big-1");
	cr_assert_str_eq(member_model(m, &m->members[2]), "free", "called as it is named");
	cr_assert_str_eq(member_group(m, &m->members[0]), "s");
	cr_assert_str_eq(member_model(m, &m->members[0]), "demo");
	cr_assert_neq(m->members[1].uid, m->members[2].uid);
	cr_assert_eq(m->models[0].n_members, 2, "of the provider, what the policy names");
	cr_assert_eq(manifest_workers(m), 1);
	manifest_say(m, said, sizeof said);
	cr_assert_str_eq(said, "1 models, 1 policies, 1 pools, 1 worker sets, 1 workers, "
			       "1 providers");
	end(&w);
}

Test(providers, cost_is_of_the_prompt_what_was_cached_and_the_answer)
{
	struct world w;

	make_segments(&w, DOCUMENTS(BOTH));
	const struct manifest *m = w.manifest;
	const struct manifest_member *big = &m->members[1];

	cr_assert_float_eq(member_cost(m, big, 1000000, 0, 0), 3, 1e-9);
	cr_assert_float_eq(member_cost(m, big, 0, 0, 1000000), 15, 1e-9);
	cr_assert_float_eq(member_cost(m, big, 1000, 400, 100),
			   (600 * 3 + 400 * .3 + 100 * 15) / 1e6, 1e-12);
	cr_assert_float_eq(member_cost(m, big, 100, 500, 0), 100 * .3 / 1e6, 1e-12,
			   "never more cached than there is");
	cr_assert_float_eq(member_cost(m, big, 0, 0, UINT32_MAX), MEMBER_COMPLETION * 15 / 1e6,
			   1e-12);
	cr_assert(isnan(member_cost(m, &m->members[2], 1, 0, 1)), "it has no price");
	cr_assert_eq(member_cost(m, &m->members[0], 1000, 0, 1000), 0, "it is there anyway");
	end(&w);
}

Test(providers, short_prompts_stay_and_long_ones_go_where_the_first_token_comes_first)
{
	struct world w;

	begin(&w, DOCUMENTS(BOTH));
	/* The worker: 10 ms and 1 ms a token.  The provider: 500 ms whatever the prompt. */
	struct msg_answer a = answer_to(&w, ids_body("demo", 1000, 100));

	cr_assert_eq(a.n_candidates, 2);
	cr_assert_eq(a.candidates[0].row, W0);
	cr_assert_eq(a.candidates[1].row, BIG);
	cr_assert_eq(a.candidates[1].ttft, 500000);
	a = answer_to(&w, ids_body("demo", 1000, 1000));
	cr_assert_eq(a.candidates[0].row, BIG);
	cr_assert_eq(a.candidates[0].ttft, 500000);
	cr_assert_eq(a.candidates[1].row, W0);
	end(&w);
}

Test(providers, its_model_is_written_into_the_request_and_only_there)
{
	struct world w;

	begin(&w, DOCUMENTS(BOTH));
	struct msg_answer a = answer_to(&w, ids_body("demo", 1000, 1000));

	cr_assert_eq(a.candidates[0].row, BIG);
	cr_assert_eq(a.candidates[0].n_edits, 1);
	cr_assert(slice_eq_str(a.candidates[0].edits[0].text, "\"vendor.big-1\"") ||
		  slice_eq_str(a.candidates[0].edits[0].text, "vendor.big-1"), "%.*s",
		  (int)a.candidates[0].edits[0].text.len, a.candidates[0].edits[0].text.p);
	cr_assert_eq(a.candidates[1].row, W0);
	cr_assert_eq(a.candidates[1].n_edits, 0);
	cr_assert_eq(a.candidates[0].root, 255, "no prefix is looked up, and none is noted");
	end(&w);
}

Test(providers, what_they_have_learned_counts_and_is_theirs_alone)
{
	struct world w;

	begin(&w, DOCUMENTS("{provider: cloud, model: big}, {provider: cloud, model: free}"));
	set_coefs(&w, FREE, 2, 0);
	struct msg_answer a = answer_to(&w, ids_body("demo", 1000, 1000));

	cr_assert_eq(a.n_candidates, 2);
	cr_assert_eq(a.candidates[0].row, BIG);
	cr_assert_eq(a.candidates[0].ttft, 500000, "its neighbour is no peer");
	cr_assert_eq(a.candidates[1].ttft, 2000000);
	end(&w);
}

Test(providers, one_that_is_down_is_no_candidate_and_alone_it_is_an_error)
{
	struct world w;

	begin(&w, DOCUMENTS(BOTH));
	set_health(&w, BIG, HEALTH_DOWN);
	struct msg_answer a = answer_to(&w, ids_body("demo", 1000, 1000));

	cr_assert_eq(a.n_candidates, 1);
	cr_assert_eq(a.candidates[0].row, W0);
	set_health(&w, W0, HEALTH_DOWN);
	a = answer_to(&w, ids_body("demo", 1000, 1000));
	cr_assert_eq(a.verdict, VERDICT_REJECT);
	cr_assert_eq(a.status, 503);
	end(&w);
}

Test(providers, strangers_of_workers_are_not_suspected_there)
{
	struct world w;
	mono_ns now = clock_mono();
	struct row_reading busy = {.sampled_lo = (uint32_t)now, .sampled_hi = (uint32_t)(now >> 32),
				   .known = KNOWN_WAITING | KNOWN_RUNNING, .waiting = 9,
				   .running = 9, .health = HEALTH_UP};

	begin(&w, DOCUMENTS(BOTH));
	for (unsigned i = 0; i < 2; i++) {      /* seen twice, they are there */
		row_reading_write(&w.rows.row[W0], &busy);
		view_tick(&w.view, now);
		busy.sampled_lo++;
	}
	struct msg_answer a = answer_to(&w, ids_body("demo", 1000, 100));

	cr_assert_eq(a.candidates[0].row, BIG, "the worker has a queue");
	cr_assert_eq(a.candidates[0].ttft, 500000);
	end(&w);
}
