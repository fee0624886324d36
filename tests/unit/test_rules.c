/* tests/unit/test_rules.c -- rules over candidates, by documents as operators write them. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "actors/common/decide/rules.h"
#include "tests/random.h"

#define N 4u                            /* candidates: a0 a1 of pool a, b0 of pool b, cloud */
enum { A0, A1, B0, CLOUD };

#define REMOVED(rule) removal_rule(0, rule)

static const char head[] =
	"apiVersion: pointsman.io/v1alpha1\nkind: GatewayBackend\nmetadata: {name: g}\n"
	"spec:\n  listen: ['127.0.0.1:8080']\n  models:\n    - {name: demo, policy: p}\n"
	"---\napiVersion: pointsman.io/v1alpha1\nkind: InferenceWorkerSet\nmetadata: {name: sa}\n"
	"spec: {engine: vllm, model: demo, members: [{name: a0, url: 'http://127.0.0.1:9000'}, "
	"{name: a1, url: 'http://127.0.0.1:9001'}]}\n"
	"---\napiVersion: pointsman.io/v1alpha1\nkind: InferenceWorkerSet\nmetadata: {name: sb}\n"
	"spec: {engine: vllm, model: demo, members: [{name: b0, url: 'http://127.0.0.1:9002'}]}\n"
	"---\napiVersion: pointsman.io/v1alpha1\nkind: InferencePool\nmetadata: {name: a}\n"
	"spec: {workerSets: [sa]}\n"
	"---\napiVersion: pointsman.io/v1alpha1\nkind: InferencePool\nmetadata: {name: b}\n"
	"spec: {workerSets: [sb]}\n"
	"---\napiVersion: pointsman.io/v1alpha1\nkind: InferenceProvider\nmetadata: {name: cloud}\n"
	"spec: {type: openai, models: [{name: demo}]}\n"
	"---\napiVersion: pointsman.io/v1alpha1\nkind: RequestTag\nmetadata: {name: pii}\n"
	"spec: {patterns: [{type: email}]}\n"
	"---\napiVersion: pointsman.io/v1alpha1\nkind: RequestTag\nmetadata: {name: simple}\n"
	"spec: {when: 'request.promptTokens < 100'}\n";

#define POLICY(name) \
	"---\napiVersion: pointsman.io/v1alpha1\nkind: InferencePolicy\n" \
	"metadata: {name: " name "}\n" \
	"spec:\n  candidates: [{pool: a}, {pool: b}, {provider: cloud, model: demo}]\n"
#define PII 1u
#define SIMPLE 2u

struct table {
	struct manifest *manifest;
	struct facts_request request;
	struct facts_pool pools[2];
	struct facts_candidate facts[N];
	struct choose_candidate candidate[N];
	uint32_t entry[N], chain[RULES_CHAIN], n_chain;
	double prefer[N * 8];
	struct rules_input in;
	struct rules_result out;
	struct rules_keys keys;
	uint64_t seed;
	bool waited, pinned;
	uint16_t pin;
	uint32_t order[CHOOSE_RANKED];
	unsigned ranked;
};

/* All up and idle, a request without tags. */
static void
begin(struct table *t, const char *policies)
{
	static const char *const names[N] = {"a0", "a1", "b0", "cloud"};
	static const char *const pools[N] = {"a", "a", "b", ""};
	struct yaml_errors errs = {0};
	char text[16384];
	int r;

	memset(t, 0, sizeof *t);
	snprintf(text, sizeof text, "%s%s", head, policies);
	r = manifest_load_text("test", text, strlen(text), &t->manifest, &errs);
	if (r < 0)
		yaml_errors_print(&errs, stderr);
	cr_assert_eq(r, 0);
	facts_request_init(&t->request);
	t->request.tags_unknown = 0;
	t->request.model = slice_str("demo");
	t->request.prompt_tokens = 1000;
	for (unsigned i = 0; i < 2; i++)
		t->pools[i] = (struct facts_pool){.ready = 2 - i, .waiting = 0, .kv_usage = 0.5};
	for (unsigned i = 0; i < N; i++) {
		struct facts_candidate *f = &t->facts[i];

		facts_candidate_init(f);
		f->name = slice_str(names[i]);
		f->pool = slice_str(pools[i]);
		f->pool_index = i == CLOUD ? UINT32_MAX : i == B0;
		f->provider = slice_str(i == CLOUD ? "cloud" : "");
		f->model = slice_str("demo");
		f->kind = i == CLOUD ? FACTS_PROVIDER : FACTS_WORKER;
		f->state = ROW_UP;
		f->waiting = f->running = f->pending_tokens = f->cached_tokens = 0;
		f->cached_share = 0;
		f->kv_usage = i == CLOUD ? NAN : 0.1;
		f->predicted_ttft_s = i == CLOUD ? 2 : 0.5 + 0.1 * i;
		f->cost = i == CLOUD ? 0.01 : 0;
		t->candidate[i] = (struct choose_candidate){
			.id = 100 + i, .row = (uint16_t)i, .state = ROW_UP,
			.ttft_s = f->predicted_ttft_s,
		};
		t->entry[i] = i == CLOUD ? 2 : i == B0;
	}
	t->n_chain = 1;
	t->seed = 7;
}

static void
run(struct table *t)
{
	t->in = (struct rules_input){
		.manifest = t->manifest, .chain = t->chain, .n_chain = t->n_chain,
		.request = &t->request, .pools = t->pools, .facts = t->facts, .entry = t->entry,
		.choose = {.candidate = t->candidate, .n = N, .seed = t->seed,
			   .pinned = t->pinned, .pin = t->pin},
		.prefer = t->prefer, .keys = t->keys, .waited = t->waited,
	};
	rules_apply(&t->in, &t->out);
	t->ranked = t->out.verdict == RULES_CHOOSE ? choose_rank(&t->in.choose, t->order) : 0;
	if (t->out.verdict == RULES_CHOOSE)
		cr_assert_gt(t->ranked, 0, "a choice ranks somebody");
}

static bool
is_ranked(const struct table *t, uint32_t i)
{
	for (unsigned k = 0; k < t->ranked; k++)
		if (t->order[k] == i)
			return true;
	return false;
}

static void
expect(const struct table *t, bool a0, bool a1, bool b0, bool cloud)
{
	cr_assert_eq(t->out.verdict, RULES_CHOOSE);
	cr_assert_eq(is_ranked(t, A0), a0, "a0");
	cr_assert_eq(is_ranked(t, A1), a1, "a1");
	cr_assert_eq(is_ranked(t, B0), b0, "b0");
	cr_assert_eq(is_ranked(t, CLOUD), cloud, "cloud");
}

static void
down(struct table *t, uint32_t i)
{
	t->candidate[i].state = t->facts[i].state = ROW_DOWN;
}

static void
end(struct table *t)
{
	manifest_free(&t->manifest);
}

#define PRIVACY \
	"  rules:\n  - name: stays-local\n    when: \"'pii' in request.tags\"\n" \
	"    remove: \"candidate.kind == 'Provider'\"\n"

Test(rules, a_rule_removes_where_its_when_holds_and_only_there)
{
	struct table t;

	begin(&t, POLICY("p") PRIVACY);
	run(&t);
	expect(&t, true, true, true, true);
	cr_assert_eq(t.out.note[0].outcome, RULES_NOT);
	t.request.tags = PII;
	run(&t);
	expect(&t, true, true, true, false);
	cr_assert_eq(t.candidate[CLOUD].removed_by, REMOVED(0));
	cr_assert_eq(t.out.note[0].outcome, RULES_DID);
	cr_assert_eq(t.out.note[0].removed, 1);
	end(&t);
}

Test(rules, a_tag_that_nobody_knows_counts_as_there)
{
	struct table t;

	begin(&t, POLICY("p") PRIVACY);
	t.request.tags_unknown = PII;
	run(&t);
	expect(&t, true, true, true, false);
	cr_assert_eq(t.out.note[0].outcome, RULES_DID_UNKNOWN);
	end(&t);
}

Test(rules, unknown_removes_does_not_keep_and_does_not_pass_as_first)
{
	struct table t;

	begin(&t, POLICY("p") "  rules:\n  - {name: r, remove: 'candidate.waiting > 2'}\n");
	t.facts[A0].waiting = FACTS_INT_UNKNOWN;
	run(&t);
	expect(&t, false, true, true, true);
	end(&t);

	begin(&t, POLICY("p") "  rules:\n  - {name: r, keep: 'candidate.waiting <= 2'}\n");
	t.facts[A0].waiting = FACTS_INT_UNKNOWN;
	run(&t);
	expect(&t, false, true, true, true);
	end(&t);

	begin(&t, POLICY("p") "  rules:\n  - {name: r, keepFirst: ['candidate.kvUsage < 0.5']}\n");
	t.facts[B0].kv_usage = NAN;
	run(&t);
	expect(&t, true, true, false, false);
	end(&t);
}

Test(rules, reject_names_the_rule_and_says_whether_it_will_always_be_so)
{
	struct table t;

	begin(&t, POLICY("p") "  rules:\n  - {name: nobody, keep: \"candidate.name == 'x'\"}\n");
	run(&t);
	cr_assert_eq(t.out.verdict, RULES_REJECT);
	cr_assert_str_eq(rules_name(&t.in, t.out.policy, t.out.rule), "nobody");
	cr_assert(t.out.lasting);
	end(&t);

	begin(&t, POLICY("p") "  rules:\n  - {name: idle, keep: 'candidate.waiting < 0'}\n");
	run(&t);
	cr_assert_eq(t.out.verdict, RULES_REJECT);
	cr_assert_not(t.out.lasting, "somebody may be idle soon");
	end(&t);
}

Test(rules, while_one_that_is_down_would_pass_the_end_decides_and_not_the_rule)
{
	struct table t;

	begin(&t, POLICY("p") PRIVACY "  onEmpty: {action: Wait, upTo: 3s}\n");
	t.request.tags = PII;
	down(&t, A0);
	down(&t, A1);
	down(&t, B0);
	run(&t);
	cr_assert_eq(t.out.verdict, RULES_WAIT);
	cr_assert_eq(t.out.up_to_ns, 3000000000ull);
	cr_assert_eq(t.candidate[CLOUD].removed_by, REMOVED(0));
	t.waited = true;
	run(&t);
	cr_assert_eq(t.out.verdict, RULES_REJECT);
	cr_assert_str_eq(rules_name(&t.in, t.out.policy, t.out.rule), "stays-local");
	cr_assert_not(t.out.lasting);
	end(&t);
}

#define CHEAPER(on_empty) \
	"  rules:\n  - {name: cheaper, keep: \"candidate.pool == 'b'\", onEmpty: " on_empty "}\n"

Test(rules, skip_does_without_the_rule_when_only_one_that_is_down_would_be_left)
{
	struct table t;

	begin(&t, POLICY("p") CHEAPER("Skip"));
	run(&t);
	expect(&t, false, false, true, false);
	down(&t, B0);
	run(&t);
	expect(&t, true, true, false, true);
	cr_assert_eq(t.out.note[0].outcome, RULES_SKIPPED);
	cr_assert_eq(t.candidate[A0].removed_by, REMOVAL_NONE);
	end(&t);
}

Test(rules, wait_holds_until_the_rule_leaves_one_and_then_refuses_by_its_name)
{
	struct table t;

	begin(&t, POLICY("p") CHEAPER("Wait, upTo: 1500ms"));
	down(&t, B0);
	run(&t);
	cr_assert_eq(t.out.verdict, RULES_WAIT);
	cr_assert_eq(t.out.up_to_ns, 1500000000ull);
	cr_assert_eq(t.out.rule, 0);
	t.waited = true;
	run(&t);
	cr_assert_eq(t.out.verdict, RULES_REJECT);
	cr_assert_eq(t.out.rule, 0);
	cr_assert(t.out.would_wait);
	t.candidate[B0].state = ROW_UP;
	run(&t);
	expect(&t, false, false, true, false);
	end(&t);
}

Test(rules, keep_first_takes_the_first_that_anybody_passes_and_else_nothing)
{
	struct table t;

	begin(&t, POLICY("p")
	      "  rules:\n  - name: burst\n    keepFirst:\n"
	      "    - \"candidate.kind == 'Worker' && candidate.waiting < 3\"\n"
	      "    - \"candidate.kind == 'Provider'\"\n");
	run(&t);
	expect(&t, true, true, true, false);
	for (unsigned i = 0; i < CLOUD; i++)
		t.facts[i].waiting = 3;
	run(&t);
	expect(&t, false, false, false, true);
	down(&t, CLOUD);
	run(&t);
	expect(&t, true, true, true, false);
	end(&t);
}

Test(rules, prefer_orders_before_the_objective_and_unknown_comes_last)
{
	struct table t;

	begin(&t, POLICY("p") "  rules:\n  - {name: r, prefer: \"candidate.pool == 'b'\"}\n");
	run(&t);
	expect(&t, true, true, true, true);
	cr_assert_eq(t.order[0], B0);
	cr_assert_eq(t.order[1], A0, "among equals the least predicted time");
	end(&t);

	begin(&t, POLICY("p") "  rules:\n  - {name: r, prefer: candidate.running}\n");
	t.facts[A0].running = FACTS_INT_UNKNOWN;
	t.facts[A1].running = 5;
	t.facts[CLOUD].running = 1;
	run(&t);
	cr_assert_eq(t.order[0], B0);
	cr_assert_eq(t.order[1], CLOUD);
	cr_assert_eq(t.order[2], A1);
	cr_assert_eq(t.order[3], A0);
	end(&t);
}

#define TWO_POLICIES \
	POLICY("p") PRIVACY "  onEmpty: {action: Fallback, policy: q}\n" POLICY("q")

Test(rules, what_a_strict_rule_removed_stays_removed_in_what_is_fallen_back_to)
{
	struct table t;

	begin(&t, TWO_POLICIES);
	t.request.tags = PII;
	for (unsigned i = 0; i < CLOUD; i++)
		down(&t, i);
	run(&t);
	cr_assert_eq(t.out.verdict, RULES_FALLBACK);
	cr_assert_str_eq(t.manifest->policies[t.out.fallback].name, "q");
	t.chain[t.n_chain++] = t.out.fallback;
	t.candidate[A1].state = t.facts[A1].state = ROW_UP;     /* q may look further */
	run(&t);
	expect(&t, false, true, false, false);
	cr_assert_eq(t.candidate[CLOUD].removed_by, REMOVED(0));
	down(&t, A1);
	run(&t);
	cr_assert_eq(t.out.verdict, RULES_REJECT, "and not to the provider");
	t.request.tags = 0;
	run(&t);
	expect(&t, false, false, false, true);
	end(&t);
}

Test(rules, a_pinned_request_is_under_the_same_rules)
{
	struct table t;

	begin(&t, POLICY("p") PRIVACY);
	t.request.tags = PII;
	t.pinned = true;
	t.pin = CLOUD;
	run(&t);
	cr_assert_eq(t.out.verdict, RULES_REJECT);
	cr_assert_str_eq(rules_name(&t.in, t.out.policy, t.out.rule), "stays-local");
	t.pin = B0;
	run(&t);
	expect(&t, false, false, true, false);
	end(&t);
}

Test(rules, an_objective_may_be_cost_waiting_or_an_expression)
{
	struct table t;

	begin(&t, POLICY("p") "  minimize: Cost\n");
	for (unsigned i = 0; i < N; i++)
		t.facts[i].cost = 3 - (double)i;
	t.facts[B0].cost = NAN;
	run(&t);
	cr_assert_eq(t.order[0], CLOUD);
	cr_assert_eq(t.order[3], B0, "without a price it comes last");
	end(&t);

	begin(&t, POLICY("p") "  minimize: Waiting\n");
	t.facts[A0].waiting = 4;
	t.facts[A1].waiting = 1;
	t.facts[B0].waiting = FACTS_INT_UNKNOWN;
	t.facts[CLOUD].waiting = 9;
	run(&t);
	cr_assert_eq(t.order[0], A1);
	cr_assert_eq(t.order[3], B0);
	end(&t);

	begin(&t, POLICY("p") "  minimize: candidate.predictedTTFT + candidate.cost * 1000.0\n");
	run(&t);
	cr_assert_eq(t.order[0], A0);
	t.facts[CLOUD].cost = -1;
	run(&t);
	cr_assert_eq(t.order[0], CLOUD);
	end(&t);
}

#define SPLIT(how) \
	"---\napiVersion: pointsman.io/v1alpha1\nkind: InferencePolicy\nmetadata: {name: p}\n" \
	"spec:\n  candidates: [{pool: a, weight: 90}, {pool: b, weight: 10}]\n  split: " how "\n"

Test(rules, a_split_gives_each_entry_its_weight_and_a_key_always_the_same_one)
{
	uint32_t first[1000], to_b = 0, moved = 0;
	struct table t;

	begin(&t, SPLIT("User"));
	down(&t, CLOUD);
	for (uint64_t user = 0; user < 1000; user++) {
		t.keys.user = choose_mixed(user) | 1;
		t.seed = user * 77;
		run(&t);
		first[user] = t.entry[t.order[0]];
		to_b += first[user] == 1;
		t.seed = user * 78 + 1;
		run(&t);
		cr_assert_eq(t.entry[t.order[0]], first[user], "whichever request it is");
	}
	cr_assert(to_b > 70 && to_b < 130, "%u of 1000", to_b);
	down(&t, B0);
	for (uint64_t user = 0; user < 1000; user++) {
		t.keys.user = choose_mixed(user) | 1;
		run(&t);
		cr_assert_eq(t.entry[t.order[0]], 0, "another where nobody of it is left");
		moved += first[user] != 0;
	}
	cr_assert_eq(moved, to_b, "and the others stay");
	end(&t);
}

Test(rules, affinity_keeps_a_session_where_it_is_while_that_may_take_it)
{
	struct table t;
	unsigned places[N] = {0};

	begin(&t, POLICY("p") "  affinity: {by: User}\n");
	for (uint64_t s = 1; s <= 200; s++) {
		uint32_t at;

		t.keys.session = choose_mixed(s) | 1;
		t.candidate[A0].ttft_s = 0.1;
		run(&t);
		at = t.order[0];
		places[at]++;
		t.candidate[A0].ttft_s = 9;
		run(&t);
		cr_assert_eq(t.order[0], at, "whatever the objective says");
		t.candidate[at].state = ROW_DOWN;
		run(&t);
		cr_assert_neq(t.order[0], at);
		t.candidate[at].state = ROW_UP;
	}
	for (unsigned i = 0; i < N; i++)
		cr_assert_gt(places[i], 20, "sessions are spread");
	end(&t);
}

/* ---- any facts, any rules: what must always be so ---- */

static const char *const parts[] = {
	"when: \"'pii' in request.tags\", remove: \"candidate.kind == 'Provider'\"",
	"remove: 'candidate.waiting > 1'", "keep: 'candidate.kvUsage < 0.6'",
	"when: \"'simple' in request.tags\", keep: \"candidate.pool == 'b'\"",
	"prefer: candidate.pendingTokens", "keepFirst: [\"candidate.kind == 'Worker'\", 'true']",
	"remove: \"pool['a'].waiting > 3 && candidate.pool == 'a'\"",
	"keep: 'candidate.cachedShare > 0.3 || candidate.running < 2'",
};

static char *
write_rule(char *at, unsigned number, uint64_t part, const char *on_empty)
{
	at += sprintf(at, "  - {name: r%u, %s", number, parts[part]);
	if (strstr(parts[part], "keep: ") || strstr(parts[part], "remove: "))
		at += sprintf(at, ", onEmpty: %s", on_empty);
	return at + sprintf(at, "}\n");
}

static void
any_facts(struct table *t, uint64_t *r)
{
	t->request.tags = random_next(r) % 4;
	t->request.tags_unknown = random_next(r) % 4 == 0 ? random_next(r) % 4 : 0;
	for (unsigned i = 0; i < N; i++) {
		struct facts_candidate *f = &t->facts[i];

		t->candidate[i].state = f->state = (uint8_t)(random_next(r) % (ROW_UP + 1));
		t->candidate[i].failed = random_next(r) % 8 == 0;
		f->waiting = random_next(r) % 5 ? (int64_t)(random_next(r) % 4) : FACTS_INT_UNKNOWN;
		f->running = random_next(r) % 5 ? (int64_t)(random_next(r) % 4) : FACTS_INT_UNKNOWN;
		f->kv_usage = random_next(r) % 5 ? (double)(random_next(r) % 10) / 10 : NAN;
		f->cached_share = (double)(random_next(r) % 10) / 10;
	}
	t->pools[0].waiting = (int64_t)(random_next(r) % 6);
	t->waited = random_next(r) % 2;
	t->seed = random_next(r);
}

Test(rules, whatever_the_facts_no_tagged_request_is_ranked_at_a_provider_and_twice_is_the_same)
{
	static const char *const empty[] = {"Skip", "Reject", "Wait, upTo: 1s"};
	uint64_t r = 20261201;

	for (unsigned set = 0; set < 60; set++) {
		char text[4096], *at = text;
		unsigned others = (unsigned)(random_next(&r) % 5);
		struct table t, again;

		/* the privacy rule stands anywhere among others, and in p or in what fell back */
		at += sprintf(at, "%s  rules:\n", POLICY("p"));
		unsigned privacy = (unsigned)(random_next(&r) % (others + 1));

		for (unsigned k = 0; k <= others; k++)
			at = write_rule(at, k, k == privacy ? 0 : 1 + random_next(&r) % 7,
					empty[k == privacy ? 1 : random_next(&r) % 3]);
		at += sprintf(at, "  onEmpty: {action: Fallback, policy: q}\n%s  rules:\n",
			      POLICY("q"));
		write_rule(at, 0, 1 + random_next(&r) % 7, "Skip");
		begin(&t, text);
		for (unsigned i = 0; i < 500; i++) {
			t.n_chain = 1;
			any_facts(&t, &r);
			run(&t);
			if (t.out.verdict == RULES_FALLBACK) {
				t.chain[t.n_chain++] = t.out.fallback;
				run(&t);
			}
			if ((t.request.tags | t.request.tags_unknown) & PII)
				cr_assert_not(is_ranked(&t, CLOUD), "%s", text);
			for (unsigned k = 0; k < t.ranked; k++)
				cr_assert_eq(t.candidate[t.order[k]].removed_by, REMOVAL_NONE);
			if (t.out.verdict == RULES_WAIT)
				cr_assert_not(t.waited);
			again = t;
			run(&again);
			cr_assert_eq(again.out.verdict, t.out.verdict);
			cr_assert_eq(again.ranked, t.ranked);
			cr_assert_arr_eq(again.order, t.order, t.ranked * sizeof *t.order);
			for (unsigned k = 0; k < N; k++)
				cr_assert_eq(again.candidate[k].removed_by,
					     t.candidate[k].removed_by);
		}
		end(&t);
	}
}
