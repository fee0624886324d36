/* tests/unit/test_privacy.c -- no request whose privacy rule fired is ranked at a provider.
 *
 * Policies are made at random from parts that are kept as structures, written as documents and
 * loaded; what they forbid is read from the structures, not from the product.  Each case is a
 * request over a fleet, and its whole life: fallbacks, a hold, retries, and a reload between.
 * PRIVACY_CASES in the environment: how many, 100,000 if it says nothing; 3 s under sanitizers. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/common/decide/rules.h"
#include "tests/random.h"

#define N 5u                            /* a0 a1 of pool a, b0 of pool b, two providers */
#define POLICIES 3u                     /* each falls back to the next at most */
#define RULES 5u
#define REQUESTS 100u                   /* of one set of policies */

enum { PII = 1, SECRET = 2, SIMPLE = 4 };       /* RequestTags, in the order they are written */

static const char head[] =
	"apiVersion: pointsman.io/v1alpha1\nkind: GatewayBackend\nmetadata: {name: g}\n"
	"spec:\n  listen: ['127.0.0.1:8080']\n  models:\n    - {name: demo, policy: p0}\n"
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
	"---\napiVersion: pointsman.io/v1alpha1\nkind: InferenceProvider\nmetadata: {name: other}\n"
	"spec: {type: openai, models: [{name: demo}]}\n"
	"---\napiVersion: pointsman.io/v1alpha1\nkind: InferenceTenant\nmetadata: {name: gold}\n"
	"spec: {keys: ['sha256:"
	"0000000000000000000000000000000000000000000000000000000000000001']}\n"
	"---\napiVersion: pointsman.io/v1alpha1\nkind: RequestTag\nmetadata: {name: pii}\n"
	"spec: {patterns: [{type: email}]}\n"
	"---\napiVersion: pointsman.io/v1alpha1\nkind: RequestTag\nmetadata: {name: secret}\n"
	"spec: {patterns: [{type: secret}]}\n"
	"---\napiVersion: pointsman.io/v1alpha1\nkind: RequestTag\nmetadata: {name: simple}\n"
	"spec: {when: 'request.promptTokens < 100'}\n";

/* ---- requests ---- */

enum said { NO, YES, NOBODY_KNOWS };    /* of a header */

struct request {
	unsigned tags, unknown;
	enum said header;               /* x-data: private */
	bool gold;
	int64_t tokens;                 /* below 0: nobody knows */
	struct http1_request head[2];   /* with and without the header */
};

static bool
may_have(const struct request *q, unsigned tag)
{
	return ((q->tags | q->unknown) & tag) != 0;
}

/* ---- privacy rules: what is private, and how it is kept ---- */

struct reason {
	const char *text;
	bool (*may_be)(const struct request *);         /* it is so, or nobody knows */
};

static bool is_pii(const struct request *q) { return may_have(q, PII); }
static bool is_either(const struct request *q) { return may_have(q, PII | SECRET); }
/* A field that is not there is unknown, as what CEL calls an error; but for has(). */
static bool is_marked(const struct request *q) { return q != NULL; }
static bool has_mark(const struct request *q) { return q->header != NO; }
static bool is_gold(const struct request *q) { return q->gold; }
static bool is_long(const struct request *q) { return q->tokens < 0 || q->tokens > 500; }
static bool is_hard(const struct request *q) { return !(q->tags & ~q->unknown & SIMPLE); }
static bool is_tagged(const struct request *q) { return may_have(q, PII | SECRET | SIMPLE); }
static bool
is_gold_pii(const struct request *q)
{
	return q->gold && may_have(q, PII);
}
static bool is_anything(const struct request *q) { return q != NULL; }

static const struct reason reasons[] = {
	{"'pii' in request.tags", is_pii},
	{"'pii' in request.tags || 'secret' in request.tags", is_either},
	{"!(!('pii' in request.tags) && !('secret' in request.tags))", is_either},
	{"request.headers['x-data'] == 'private'", is_marked},
	{"has(request.headers['x-data']) && request.headers['x-data'] == 'private'", has_mark},
	{"'x-data' in request.headers", has_mark},
	{"request.tenant == 'gold'", is_gold},
	{"request.promptTokens > 500", is_long},
	{"!('simple' in request.tags)", is_hard},
	{"size(request.tags) > 0", is_tagged},
	{"request.tenant == 'gold' && 'pii' in request.tags", is_gold_pii},
	{"('pii' in request.tags ? 1 : 0) == 1", is_pii},
	{"true", is_anything},
};
#define REASONS (sizeof reasons / sizeof *reasons)

/* %s: the reason.  All say: then no provider. */
static const char *const ways[] = {
	"when: \"%s\", remove: \"candidate.kind == 'Provider'\"",
	"when: \"%s\", keep: \"candidate.kind == 'Worker'\"",
	"when: \"%s\", remove: \"candidate.provider == 'cloud' || candidate.provider == 'other'\"",
	"when: \"%s\", keep: \"candidate.pool in ['a', 'b']\"",
	"when: \"%s\", remove: \"candidate.kind != 'Worker'\"",
	"remove: \"(%s) && candidate.kind == 'Provider'\"",
	"keep: \"!(%s) || candidate.kind == 'Worker'\"",
	"remove: \"candidate.kind == 'Provider' && (%s)\"",
	"keep: \"candidate.kind == 'Worker' || !(%s)\"",
	"remove: \"candidate.kind == 'Provider' ? (%s) : false\"",
};
#define WAYS (sizeof ways / sizeof *ways)

/* Rules for other ends; some would rather have everything at a provider. */
static const char *const others[] = {
	"remove: 'candidate.waiting > 1'",
	"keep: 'candidate.kvUsage < 0.6'",
	"when: \"'simple' in request.tags\", keep: \"candidate.pool == 'b'\"",
	"remove: \"candidate.kind == 'Worker' && candidate.waiting > 0\"",
	"keep: \"candidate.kind == 'Provider'\"",
	"keep: 'candidate.cachedShare > 0.3 || candidate.running < 2'",
	"remove: \"pool['a'].waiting > 3 && candidate.pool == 'a'\"",
	"remove: \"candidate.state != 'up'\"",
	"keepFirst: [\"candidate.kind == 'Provider'\", 'true']",
	"keepFirst: [\"candidate.kind == 'Worker'\", \"candidate.kind == 'Provider'\"]",
	"prefer: \"candidate.kind == 'Provider'\"",
	"prefer: candidate.pendingTokens",
};
#define OTHERS (sizeof others / sizeof *others)

/* ---- policies ---- */

enum empty { REJECT, WAIT, SKIP };

struct part {
	bool privacy;
	const struct reason *reason;
	enum empty empty;               /* privacy: REJECT or WAIT */
};

struct policy {
	struct part rule[RULES];
	unsigned n_rules;
	bool has[4];                    /* pool a, pool b, cloud, other */
	unsigned order[4], n;           /* entries as they are written */
	bool falls_back, waits;
};

struct set {
	struct policy policy[POLICIES];
	char text[16384];
	struct manifest *manifest;
};

static char *
write_rule(char *at, struct part *part, unsigned number, uint64_t *r)
{
	static const char *const empty[] = {"Reject", "Wait, upTo: 1s", "Skip"};
	const char *text = others[random_next(r) % OTHERS];

	part->empty = (enum empty)(random_next(r) % 3);
	at += sprintf(at, "  - {name: r%u, ", number);
	if (part->privacy) {
		part->reason = &reasons[random_next(r) % REASONS];
		part->empty = random_next(r) % 4 == 0 ? WAIT : REJECT;
		text = ways[random_next(r) % WAYS];
	}
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	at += sprintf(at, text, part->privacy ? part->reason->text : "");
#pragma GCC diagnostic pop
	if (strstr(text, "keep: ") || strstr(text, "remove: "))
		at += sprintf(at, ", onEmpty: %s", empty[part->empty]);
	return at + sprintf(at, "}\n");
}

static char *
write_policy(char *at, struct policy *p, unsigned number, uint64_t *r)
{
	static const char *const entry[] = {"pool: a", "pool: b", "provider: cloud, model: demo",
					    "provider: other, model: demo"};
	static const char *const objective[] = {"PredictedTTFT", "Cost", "Waiting", "Random",
						"candidate.predictedTTFT * 1.0"};
	bool weighted = random_next(r) % 4 == 0;

	memset(p, 0, sizeof *p);
	for (unsigned k = 0; k < 4; k++) {
		unsigned to = (unsigned)(random_next(r) % (k + 1));

		p->order[k] = p->order[to];
		p->order[to] = k;
	}
	p->n = 1 + (unsigned)(random_next(r) % 4);
	at += sprintf(at, "---\napiVersion: pointsman.io/v1alpha1\nkind: InferencePolicy\n"
			  "metadata: {name: p%u}\nspec:\n  candidates:\n", number);
	for (unsigned k = 0; k < p->n; k++) {
		p->has[p->order[k]] = true;
		at += sprintf(at, "  - {%s%s}\n", entry[p->order[k]],
			      weighted ? ", weight: 3" : "");
	}
	at += sprintf(at, "  minimize: %s\n", objective[random_next(r) % 5]);
	p->n_rules = (unsigned)(random_next(r) % (RULES + 1));
	if (p->n_rules > 0)
		at += sprintf(at, "  rules:\n");
	for (unsigned k = 0; k < p->n_rules; k++) {
		p->rule[k].privacy = random_next(r) % 3 == 0;
		at = write_rule(at, &p->rule[k], k, r);
	}
	p->falls_back = number + 1 < POLICIES && random_next(r) % 4 != 0;
	p->waits = random_next(r) % 4 == 0;
	if (p->waits && p->falls_back)
		at += sprintf(at, "  onEmpty: {action: Wait, upTo: 1s, then: Fallback, policy: "
				  "p%u}\n", number + 1);
	else if (p->waits)
		at += sprintf(at, "  onEmpty: {action: Wait, upTo: 1s}\n");
	else if (p->falls_back)
		at += sprintf(at, "  onEmpty: {action: Fallback, policy: p%u}\n", number + 1);
	return at;
}

static void
make_set(struct set *s, uint64_t *r)
{
	struct yaml_errors errs = {0};
	char *at = s->text + sprintf(s->text, "%s", head);
	int made;

	for (unsigned k = 0; k < POLICIES; k++)
		at = write_policy(at, &s->policy[k], k, r);
	made = manifest_load_text("test", s->text, strlen(s->text), &s->manifest, &errs);
	if (made < 0)
		yaml_errors_print(&errs, stderr);
	cr_assert_eq(made, 0, "%s", s->text + sizeof head - 1);
}

/* ---- what the documents say, read plainly ---- */

/* Some rule of the chain forbids providers to this request, in the chain's last policy. */
static bool
forbidden(const struct set *s, const struct request *q, const uint32_t *chain, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		const struct policy *p = &s->policy[chain[i]];

		for (unsigned k = 0; k < p->n_rules; k++)
			if (p->rule[k].privacy && p->rule[k].reason->may_be(q) &&
			    (p->rule[k].empty == REJECT || i + 1 == n))
				return true;
	}
	return false;
}

/* ---- one case ---- */

struct fleet {
	uint8_t state[N];
	struct facts_candidate facts[N];
	struct facts_pool pools[2];
	bool failed[N];
};

struct tally {
	unsigned decisions, forbidden, chosen, at_providers, named, nobody, waits, fallbacks;
	unsigned retries, reloads;
};

static const bool is_provider[N] = {false, false, false, true, true};
static const unsigned entry_of[N] = {0, 0, 1, 2, 3};

static void
any_fleet(struct fleet *f, uint64_t *r)
{
	static const char *const names[N] = {"a0", "a1", "b0", "cloud", "other"};
	static const char *const pools[N] = {"a", "a", "b", "", ""};
	bool blind = random_next(r) % 8 == 0;   /* nothing is known of anybody */

	for (unsigned i = 0; i < N; i++) {
		struct facts_candidate *c = &f->facts[i];

		facts_candidate_init(c);
		c->name = slice_str(names[i]);
		c->pool = slice_str(pools[i]);
		c->provider = slice_str(is_provider[i] ? names[i] : "");
		c->pool_index = is_provider[i] ? UINT32_MAX : entry_of[i];
		c->model = slice_str("demo");
		c->kind = is_provider[i] ? FACTS_PROVIDER : FACTS_WORKER;
		c->state = f->state[i] = random_next(r) % 3 ? ROW_UP :
				(uint8_t)(random_next(r) % (ROW_UP + 1));
		f->failed[i] = false;
		if (blind)
			continue;
		c->cost = is_provider[i] ? 0.1 : 0;
		c->predicted_ttft_s = (double)(random_next(r) % 50) / 10;
		c->pending_tokens = (int64_t)(random_next(r) % 999);
		c->cached_share = (double)(random_next(r) % 10) / 10;
		if (random_next(r) % 5)
			c->waiting = (int64_t)(random_next(r) % 4);
		if (random_next(r) % 5)
			c->running = (int64_t)(random_next(r) % 4);
		if (random_next(r) % 5)
			c->kv_usage = (double)(random_next(r) % 10) / 10;
	}
	for (unsigned i = 0; i < 2; i++) {
		facts_pool_init(&f->pools[i]);
		if (random_next(r) % 5)
			f->pools[i].waiting = (int64_t)(random_next(r) % 6);
	}
}

static void
any_request(struct request *q, uint64_t *r)
{
	q->tags = (unsigned)(random_next(r) % 8);
	q->unknown = random_next(r) % 3 == 0 ? (unsigned)(random_next(r) % 8) : 0;
	q->header = (enum said)(random_next(r) % 3);
	q->gold = random_next(r) % 2;
	q->tokens = random_next(r) % 4 ? (int64_t)(random_next(r) % 1000) : -1;
}

static void
facts_of_request(const struct request *q, struct facts_request *ret)
{
	facts_request_init(ret);
	ret->model = slice_str("demo");
	ret->tenant = slice_str(q->gold ? "gold" : "");
	ret->tags = q->tags;
	ret->tags_unknown = q->unknown;
	if (q->tokens >= 0)
		ret->prompt_tokens = q->tokens;
	if (q->header != NOBODY_KNOWS)
		ret->head = &q->head[q->header].head;
}

/* One policy's turn.  Subscripts of fleet of who is ranked. */
struct turn {
	struct rules_input in;
	struct rules_result out;
	struct facts_candidate facts[N];
	struct choose_candidate candidate[N];
	uint32_t entry[N], of[N], n, order[CHOOSE_RANKED];
	double prefer[N * RULES];
	unsigned ranked;
};

static void
take_turn(struct turn *t, const struct set *s, const struct request *q, const struct fleet *f,
	  const uint32_t *chain, uint32_t n_chain, bool waited, uint64_t seed)
{
	const struct policy *p = &s->policy[chain[n_chain - 1]];
	struct facts_request request;

	facts_of_request(q, &request);
	t->n = 0;
	for (unsigned k = 0; k < p->n; k++)
		for (unsigned i = 0; i < N; i++) {
			if (entry_of[i] != p->order[k])
				continue;
			t->of[t->n] = i;
			t->entry[t->n] = k;
			t->facts[t->n] = f->facts[i];
			t->candidate[t->n++] = (struct choose_candidate){
				.id = 100 + i, .row = (uint16_t)i, .state = f->state[i],
				.ttft_s = f->facts[i].predicted_ttft_s, .failed = f->failed[i],
			};
		}
	t->in = (struct rules_input){
		.manifest = s->manifest, .chain = chain, .n_chain = n_chain, .request = &request,
		.pools = f->pools, .facts = t->facts, .entry = t->entry,
		.choose = {.candidate = t->candidate, .n = t->n, .seed = seed},
		.prefer = t->prefer, .waited = waited,
	};
	rules_apply(&t->in, &t->out);
	t->ranked = t->out.verdict == RULES_CHOOSE ? choose_rank(&t->in.choose, t->order) : 0;
	t->in.request = NULL;           /* it goes with us */
}

static bool
somebody_is_up(const struct turn *t, const struct fleet *f)
{
	for (uint32_t i = 0; i < t->n; i++)
		if (f->state[t->of[i]] == ROW_UP)
			return true;
	return false;
}

static void
look_at(const struct turn *t, const struct set *s, const struct request *q, const struct fleet *f,
	const uint32_t *chain, uint32_t n_chain, struct tally *tally)
{
	bool no = forbidden(s, q, chain, n_chain);
	const char *text = s->text + sizeof head - 1;

	tally->decisions++;
	tally->forbidden += no;
	for (unsigned k = 0; k < t->ranked; k++) {
		unsigned i = t->of[t->order[k]];

		cr_assert(!no || !is_provider[i],
			  "tags %x unknown %x header %u gold %d tokens %lld ranks %u\n%s",
			  q->tags, q->unknown, (unsigned)q->header, q->gold,
			  (long long)q->tokens, i, text);
		cr_assert_neq(f->state[i], ROW_DOWN);
		tally->at_providers += is_provider[i];
	}
	tally->chosen += t->ranked > 0;
	tally->waits += t->out.verdict == RULES_WAIT;
	if (t->out.verdict != RULES_REJECT)
		return;
	if (t->out.rule == RULES_NOBODY) {
		tally->nobody++;
		cr_assert_not(somebody_is_up(t, f), "refused by no rule's name\n%s", text);
		return;
	}
	const struct policy *p = &s->policy[chain[t->out.policy]];
	char name[8];

	tally->named++;
	cr_assert_lt(t->out.policy, n_chain);
	cr_assert_lt(t->out.rule, p->n_rules);
	snprintf(name, sizeof name, "r%u", (unsigned)t->out.rule);
	cr_assert_str_eq(rules_name(&t->in, t->out.policy, t->out.rule), name);
	if (p->rule[t->out.rule].privacy)
		cr_assert(p->rule[t->out.rule].reason->may_be(q), "%s of p%u is not so\n%s", name,
			  (unsigned)chain[t->out.policy], text);
}

/* From the first policy to the last that it falls back to. */
static void
decide(struct turn *t, const struct set *s, const struct request *q, const struct fleet *f,
       bool waited, uint64_t seed, struct tally *tally)
{
	uint32_t chain[RULES_CHAIN] = {0}, n = 1;

	for (;;) {
		take_turn(t, s, q, f, chain, n, waited, seed);
		look_at(t, s, q, f, chain, n, tally);
		if (t->out.verdict != RULES_FALLBACK)
			return;
		tally->fallbacks++;
		cr_assert_eq(t->out.fallback, chain[n - 1] + 1);
		chain[n++] = t->out.fallback;
	}
}

/* A request's life: asked, held, asked again; sent, failed, tried anew, under other documents. */
static void
live(const struct set *s, const struct set *next, const struct request *q, uint64_t *r,
     struct tally *tally)
{
	const uint64_t seed = random_next(r);
	struct request now = *q;
	struct fleet fleet;
	struct turn t;

	any_fleet(&fleet, r);
	decide(&t, s, &now, &fleet, false, seed, tally);
	if (t.out.verdict == RULES_WAIT) {
		any_fleet(&fleet, r);
		decide(&t, s, &now, &fleet, random_next(r) % 2, seed + 1, tally);
		any_fleet(&fleet, r);
		decide(&t, s, &now, &fleet, true, seed + 2, tally);
		cr_assert_neq(t.out.verdict, RULES_WAIT, "it has waited");
	}
	for (unsigned attempt = 0; attempt < 2 && t.ranked > 0; attempt++) {
		unsigned at = t.of[t.order[0]];

		if (random_next(r) % 3 == 0)            /* where its tags came from, died */
			now.unknown |= (unsigned)(random_next(r) % 8);
		if (random_next(r) % 4 == 0) {          /* other documents are in force */
			s = next;
			tally->reloads++;
		}
		if (random_next(r) % 2)
			fleet.state[at] = fleet.facts[at].state = ROW_DOWN;
		fleet.failed[at] = true;
		tally->retries++;
		decide(&t, s, &now, &fleet, random_next(r) % 2, seed + 3 + attempt, tally);
	}
}

Test(privacy, no_request_whose_rule_fired_is_ranked_at_a_provider_on_any_path, .timeout = 120)
{
	static const char text[2][80] = {"POST / HTTP/1.1\r\nHost: h\r\n\r\n",
					 "POST / HTTP/1.1\r\nHost: h\r\nX-Data: private\r\n\r\n"};
	const char *asked = getenv("PRIVACY_CASES"), *why;
	unsigned cases = asked ? (unsigned)strtoul(asked, NULL, 10) : 100000;
	struct set *set = calloc(2, sizeof *set);
	uint64_t r = 20261201;
	struct tally tally = {0};
	struct request q;

	memset(&q, 0, sizeof q);
	for (unsigned i = 0; i < 2; i++)
		cr_assert_gt(http1_parse_request(text[i], strlen(text[i]), NULL, &q.head[i], &why),
			     0);
	make_set(&set[1], &r);
	for (unsigned done = 0; done < cases; done++) {
		if (done % REQUESTS == 0) {
			manifest_free(&set[0].manifest);
			set[0] = set[1];
			make_set(&set[1], &r);
		}
		any_request(&q, &r);
		live(&set[0], &set[1], &q, &r, &tally);
	}
	printf("%u cases, %u decisions: %u with a rule that forbids; %u chosen, %u ranked at a "
	       "provider, %u refused by name, %u as nobody is up, %u waits, %u fallbacks, %u "
	       "retries, %u reloads\n", cases, tally.decisions, tally.forbidden, tally.chosen,
	       tally.at_providers, tally.named, tally.nobody, tally.waits, tally.fallbacks,
	       tally.retries, tally.reloads);
	/* What never happened was not tried. */
	cr_assert_gt(tally.decisions, cases);
	cr_assert_gt(tally.forbidden, cases / 4);
	cr_assert_gt(tally.at_providers, cases / 4);
	cr_assert_gt(tally.named, cases / 20);
	cr_assert_gt(tally.nobody, cases / 100);
	cr_assert_gt(tally.waits, cases / 20);
	cr_assert_gt(tally.fallbacks, cases / 20);
	cr_assert_gt(tally.retries, cases / 4);
	cr_assert_gt(tally.reloads, cases / 40);
	manifest_free(&set[0].manifest);
	manifest_free(&set[1].manifest);
	free(set);
}
