/* tests/bench/bench_policy.c -- what a policy's rules cost, and the decision that they are part of.
 *
 * Policies of 5 rules over 8 candidates, and of 10 over 64, loaded from their YAML.
 *   policy_decision_p50_us    tags and token ids given, over shared memory as it is when 8 ingress
 *                             processes are at work: hashes of 2,000 tokens, index, watermarks,
 *                             cells, overlay, readings, predictions, facts, rules, rank, and the
 *                             answer's place in the overlay; without messages and the journal
 *   policy_expressions_us     every expression of every rule, for the request or each candidate
 *   policy_expression_ns      the same, for one
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/common/decide/expression.h"
#include "actors/common/decide/manifest.h"
#include "actors/policy/ruling.h"
#include "tests/bench/fleet.h"
#include "tests/bench/measure.h"

#define CANDIDATES_MAX 64u
#define PROMPT         2000u            /* tokens */

struct bench {
	struct manifest *manifest;      /* owned */
	const struct manifest_policy *policy;
	struct facts_request request;
	struct facts_candidate candidate[CANDIDATES_MAX];
	struct facts_pool pools[2];
	uint32_t n;
	uint64_t evaluated;
};

/* As an operator writes them; the second five are asked of the larger world only. */
static const char *const rules[] = {
	"when: \"'pii' in request.tags\"\n      remove: \"candidate.kind == 'Provider'\"\n"
	"      onEmpty: Reject",
	"when: \"request.promptTokens < quantity('4k')\"\n"
	"      keep: \"candidate.pool == 'small' || candidate.cachedShare > 0.5\"\n"
	"      onEmpty: Skip",
	"remove: \"candidate.kind == 'Worker' && candidate.waiting > 12\"\n      onEmpty: Skip",
	"keep: \"pool['small'].kvUsage < 0.9 || candidate.kvUsage < 0.9\"\n      onEmpty: Skip",
	"prefer: \"double(candidate.pendingTokens) * 0.001 + candidate.predictedTTFT\"",
	"remove: \"candidate.predictedTTFT > duration('20s')\"\n      onEmpty: Skip",
	"when: \"request.path.startsWith('/v1/')\"\n"
	"      keep: \"candidate.cacheState in ['exact', 'approximate']\"\n      onEmpty: Skip",
	"keep: \"candidate.model == 'demo' && !candidate.name.endsWith('-old')\"\n"
	"      onEmpty: Skip",
	"remove: \"candidate.kvUsage > 0.95 && candidate.running > 100\"\n      onEmpty: Skip",
	"keep: \"candidate.waiting - candidate.scraped.waiting < 50\"\n      onEmpty: Skip",
};

static void
load(struct bench *b, uint32_t n_rules)
{
	struct yaml_errors errs = {0};
	char *text;
	size_t len;
	FILE *f = open_memstream(&text, &len);

	if (!f)
		cannot("write a manifest", ENOMEM);
	fputs("apiVersion: pointsman.io/v1alpha1\nkind: GatewayBackend\nmetadata: {name: g}\n"
	      "spec:\n  listen: [\"127.0.0.1:8080\"]\n  models: [{name: demo, policy: p}]\n"
	      "---\napiVersion: pointsman.io/v1alpha1\nkind: InferencePool\n"
	      "metadata: {name: small}\nspec: {workerSets: [s]}\n"
	      "---\napiVersion: pointsman.io/v1alpha1\nkind: InferenceWorkerSet\n"
	      "metadata: {name: s}\nspec:\n  engine: vllm\n  model: demo\n  members:\n", f);
	for (uint32_t i = 0; i < b->n; i++)
		fprintf(f, "    - {name: w%u, url: \"http://127.0.0.1:%u\"}\n", i, 9000 + i);
	fputs("---\napiVersion: pointsman.io/v1alpha1\nkind: RequestTag\nmetadata: {name: pii}\n"
	      "spec:\n  patterns: [{type: email}]\n"
	      "---\napiVersion: pointsman.io/v1alpha1\nkind: InferencePolicy\n"
	      "metadata: {name: p}\nspec:\n  candidates: [{pool: small}]\n"
	      "  minimize: PredictedTTFT\n  rules:\n", f);
	for (uint32_t i = 0; i < n_rules; i++)
		fprintf(f, "    - name: rule-%u\n      %s\n", i, rules[i]);
	fclose(f);
	if (manifest_load_text("bench", text, len, &b->manifest, &errs) < 0) {
		yaml_errors_print(&errs, stderr);
		cannot("load the manifest", EINVAL);
	}
	b->policy = &b->manifest->policies[b->manifest->models[0].policy];
	free(text);
}

/* All fit, so that no rule ends early for want of candidates. */
static void
fill(struct bench *b)
{
	facts_request_init(&b->request);
	b->request.model = SLICE_LIT("demo");
	b->request.tenant = SLICE_LIT("");
	b->request.path = SLICE_LIT("/v1/chat/completions");
	b->request.tags = 1;
	b->request.tags_unknown = 0;
	b->request.prompt_tokens = 2000;
	b->request.messages = 3;
	b->request.stream = 1;
	for (uint32_t i = 0; i < b->n; i++) {
		struct facts_candidate *c = &b->candidate[i];

		facts_candidate_init(c);
		c->name = SLICE_LIT("worker");
		c->pool = SLICE_LIT("small");
		c->provider = SLICE_LIT("");
		c->model = SLICE_LIT("demo");
		c->pool_index = 0;
		c->kind = FACTS_WORKER;
		c->state = 5;
		c->cache_state = 1;
		c->cached_tokens = i * 16;
		c->cached_share = i / 64.0;
		c->waiting = i % 7;
		c->scraped_waiting = i % 3;
		c->running = i;
		c->pending_tokens = i * 100;
		c->kv_usage = 0.5;
		c->predicted_ttft_s = 0.1 + i * 0.01;
		c->cost = 0.001;
	}
	facts_pool_init(&b->pools[0]);
	b->pools[0].ready = b->n;
	b->pools[0].waiting = 1;
	b->pools[0].kv_usage = 0.5;
}

static uint64_t
each(struct bench *b, const struct manifest_expression *e, struct facts *f)
{
	uint64_t sum = 0;

	if (!e->program)
		return 0;
	for (uint32_t i = 0; i < b->n; i++) {
		f->candidate = &b->candidate[i];
		sum += expression_is_number(e->program) ?
			(uint64_t)expression_number(e->program, f) :
			(uint64_t)expression_test(e->program, f);
	}
	b->evaluated += b->n;
	return sum;
}

static uint64_t
evaluate_all(struct bench *b)
{
	struct facts f = {.request = &b->request, .pools = b->pools, .n_pools = 1};
	uint64_t sum = 0;

	for (uint32_t i = 0; i < b->policy->n_rules; i++) {
		const struct manifest_rule *rule = &b->policy->rules[i];

		if (rule->when.program) {
			sum += (uint64_t)expression_test(rule->when.program, &f);
			b->evaluated++;
		}
		sum += each(b, &rule->keep, &f) + each(b, &rule->remove, &f) +
			each(b, &rule->prefer, &f);
		for (uint32_t k = 0; k < rule->n_keep_first; k++)
			sum += each(b, &rule->keep_first[k], &f);
	}
	return sum;
}

static void
expressions(struct bench *b, const char *suffix, unsigned times)
{
	uint64_t sum = 0, before;
	uint32_t *took = calloc(times, sizeof *took);
	double us;

	if (!took)
		cannot("keep the times", ENOMEM);
	b->evaluated = 0;
	for (unsigned i = 0; i < times; i++) {
		before = clock_mono();
		sum += evaluate_all(b);
		took[i] = (uint32_t)(clock_mono() - before);
	}
	us = percentile(took, times, 500) / 1000.0;
	say((struct figure){.name = "policy_expressions_us", .suffix = suffix, .value = us,
			    .unit = "us"},
	    "%u candidates, %u rules", b->n, b->policy->n_rules);
	say((struct figure){.name = "policy_expression_ns", .suffix = suffix, .unit = "ns",
			    .value = us * 1000.0 * times / (double)b->evaluated},
	    "checksum %llu", (unsigned long long)sum);
	free(took);
}

/* Every ingress has something in flight everywhere. */
static void
fill_cells(struct fleet *f)
{
	for (unsigned c = 0; c < f->n_columns; c++)
		for (unsigned i = 0; i < f->manifest->n_members; i++) {
			struct cell_values v = {
				.pending = 100 + i, .prefilling = 1, .decoding = 5,
				.context = 5000, .last_pick = 1 + i,
				.oldest_dispatch_ms = (uint32_t)(clock_mono() / 1000000u),
			};

			cell_write(&f->column[c].cell[i], FLEET_ROW_GEN, &v);
		}
}

struct decider {
	struct fleet fleet;
	struct ruling *ruling;
	struct gather_prompt prompt;
	const struct facts_request *request;
};

/* How long it took. */
static uint64_t
decide(struct decider *d, uint32_t number)
{
	const struct manifest_model *model = &d->fleet.manifest->models[0];
	struct view *view = &d->fleet.view;
	struct view_ingress *from = view->ingress[number % view->n_ingress];
	uint64_t start = clock_mono();
	struct ruling_question q = {
		.request = d->request, .chain = &model->routes[0].policy, .n_chain = 1,
		.seed = number, .now = start,
	};
	struct rules_result ruled;
	uint32_t order[CHOOSE_RANKED], pushed;
	const struct gather_candidate *chosen;

	if (gather_hash(d->fleet.gather, model, &model->routes[0], &d->prompt) < 0)
		cannot("hash a prompt", ENOMEM);
	gather_match(d->fleet.gather);
	gather_candidates(d->fleet.gather, ROW_NONE, start);
	ruling_apply(d->ruling, d->fleet.gather, &q, &ruled);
	if (ruled.verdict != RULES_CHOOSE || ruled.n_notes == 0 ||
	    ruling_rank(d->ruling, order) < CHOOSE_RANKED)
		cannot("choose by these rules", EPROTO);
	chosen = gather_at(d->fleet.gather, order[0]);
	pushed = overlay_push(view->overlay, from->stream, chosen->row, chosen->row_gen, PROMPT,
			      number);
	start = clock_mono() - start;
	if (pushed == 0)
		cannot("note an answer", ENOMEM);
	/* the ingress has applied all but its newest answer: the overlay is never empty */
	column_apply(&d->fleet.column[from->index], FLEET_POLICY, pushed - 1);
	return start;
}

/* Takes the manifest. */
static void
decisions(struct bench *b, const char *suffix, unsigned times, double most)
{
	static uint32_t ids[PROMPT];
	struct decider d = {
		.prompt = {.ids = ids, .n_ids = PROMPT, .tokens = PROMPT, .hashed = true},
		.request = &b->request,
	};
	uint32_t *took = calloc(times, sizeof *took);
	uint32_t n_rules = b->policy->n_rules;

	if (!took)
		cannot("keep the times", ENOMEM);
	for (uint32_t i = 0; i < PROMPT; i++)
		ids[i] = i;
	fleet_make(&d.fleet, b->manifest, FLEET_COLUMNS);
	fill_cells(&d.fleet);
	if (ruling_new(&d.ruling, &d.fleet.view) < 0)
		cannot("make a ruling", ENOMEM);
	for (unsigned i = 0; i < times; i++)
		took[i] = (uint32_t)decide(&d, i + 1);
	say((struct figure){.name = suffix ? "policy_decision_64_p50_us" : "policy_decision_p50_us",
			    .value = percentile(took, times, 500) / 1000.0, .unit = "us",
			    .most = most},
	    "%u candidates, %u rules, %u ingress processes; p99 %.1f us", b->n, n_rules,
	    FLEET_COLUMNS, percentile(took, times, 990) / 1000.0);
	ruling_free(&d.ruling);
	fleet_free(&d.fleet);
	free(took);
}

static void
measure(uint32_t n, uint32_t n_rules, const char *suffix, unsigned times, double most)
{
	static struct bench b;

	memset(&b, 0, sizeof b);
	b.n = n;
	load(&b, n_rules);
	fill(&b);
	expressions(&b, suffix, times);
	decisions(&b, suffix, times, most);
}

int
main(int argc, char **argv)
{
	bool quick = argc > 1 && strcmp(argv[1], "--quick") == 0;
	unsigned times = quick ? 200 : 20000;

	say_limits(!quick);
	pin_cpu(0);
	measure(8, 5, NULL, times, 10);
	measure(CANDIDATES_MAX, 10, "_64", times, 30);
	return 0;
}
