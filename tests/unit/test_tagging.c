/* tests/unit/test_tagging.c -- tags of a question by every source, and rules that heed them. */
#include "actors/policy/tagging.h"
#include "tests/unit/policy_world.h"

static const char documents[] =
	"apiVersion: pointsman.io/v1alpha1\nkind: GatewayBackend\nmetadata: {name: g}\n"
	"spec:\n  listen: [\"127.0.0.1:8080\"]\n  client: {trustedPeers: [\"10.0.0.0/8\"]}\n"
	"  models: [{name: demo, policy: p}]\n"
	"---\napiVersion: pointsman.io/v1alpha1\nkind: InferenceWorkerSet\nmetadata: {name: n}\n"
	"spec: {engine: vllm, model: demo, members: [{name: w0, url: \"http://127.0.0.1:9000\"}]}\n"
	"---\napiVersion: pointsman.io/v1alpha1\nkind: InferenceWorkerSet\nmetadata: {name: f}\n"
	"spec: {engine: vllm, model: demo, members: [{name: w1, url: \"http://127.0.0.1:9001\"}]}\n"
	"---\napiVersion: pointsman.io/v1alpha1\nkind: InferencePool\nmetadata: {name: near}\n"
	"spec: {workerSets: [n]}\n"
	"---\napiVersion: pointsman.io/v1alpha1\nkind: InferencePool\nmetadata: {name: far}\n"
	"spec: {workerSets: [f]}\n"
	"---\napiVersion: pointsman.io/v1alpha1\nkind: InferencePolicy\nmetadata: {name: p}\n"
	"spec:\n  candidates: [{pool: far}, {pool: near}]\n  rules:\n"
	"    - name: stays-near\n      when: \"'pii' in request.tags\"\n"
	"      remove: \"candidate.pool == 'far'\"\n      onEmpty: Reject\n"
	"---\napiVersion: pointsman.io/v1alpha1\nkind: RequestTag\nmetadata: {name: pii}\n"
	"spec: {patterns: [{type: email}, {type: card}]}\n"
	"---\napiVersion: pointsman.io/v1alpha1\nkind: RequestTag\nmetadata: {name: short}\n"
	"spec: {when: \"request.maxTokens < 10\"}\n"
	"---\napiVersion: pointsman.io/v1alpha1\nkind: RequestTag\nmetadata: {name: batch}\n"
	"spec: {header: {name: x-class, value: batch}}\n";

enum { PII = 1, SHORT = 2, BATCH = 4 };

/* The policy's view, and what tells tags over it. */
struct scene {
	struct world w;
	struct tagging *tagging;
};

static void
scene_begin(struct scene *s)
{
	begin(&s->w, documents);
	cr_assert_eq(tagging_new(&s->tagging, &s->w.view, &s->w.process), 0);
}

static void
scene_end(struct scene *s)
{
	tagging_free(&s->tagging);
	end(&s->w);
}

struct asked {
	struct http1_request head;
	struct facts_request facts;
	struct tagging_question q;
	uint64_t tags, unknown;
};

static void
ask(struct scene *s, const char *body, const char *class, bool believed, struct asked *a)
{
	static char head[300];
	const char *why;
	struct token_key key;

	memset(a, 0, sizeof *a);
	facts_request_init(&a->facts);
	a->facts.max_tokens = 5;
	snprintf(head, sizeof head, "POST /v1/completions HTTP/1.1\r\nHost: h\r\n%s%s%s\r\n",
		 class ? "X-Class: " : "", class ? class : "", class ? "\r\n" : "");
	cr_assert_gt(http1_parse_request(head, strlen(head), NULL, &a->head, &why), 0);
	a->q = (struct tagging_question){
		.request = &a->facts, .head = &a->head.head, .believed = believed,
		.body = slice_str(body), .now = clock_mono(),
	};
	cr_assert(tagging_find(s->tagging, &a->q, &a->tags, &a->unknown, &key));
}

Test(tagging, a_request_whose_text_has_the_tag_goes_where_the_rule_lets_it)
{
	struct world w;
	struct msg_answer a;

	begin(&w, documents);
	a = answer_to(&w, "{\"model\":\"demo\",\"prompt\":\"hello\"}");
	cr_assert_eq(a.n_candidates, 2);
	a = answer_to(&w, "{\"model\":\"demo\",\"prompt\":\"hello a@b.com\"}");
	cr_assert_eq(a.n_candidates, 1);
	cr_assert_eq(a.candidates[0].row, 2, "the member of near");
	end(&w);
}

Test(tagging, what_cannot_be_read_is_taken_for_tagged)
{
	struct world w;
	struct msg_answer a;

	begin(&w, documents);
	a = answer_to(&w, ids_body("demo", 1000, 100));
	cr_assert_eq(a.n_candidates, 1);
	cr_assert_eq(a.candidates[0].row, 2);
	cr_assert_eq(atomic_load(&w.process.counter[COUNTER_tags_unknown]), 1);
	end(&w);
}

Test(tagging, a_request_that_only_a_removed_worker_could_take_is_refused_by_the_rules_name)
{
	struct world w;
	struct msg_answer a;

	begin(&w, documents);
	atomic_store(&w.rows.row[2].intent, INTENT_DRAIN);
	a = answer_to(&w, "{\"model\":\"demo\",\"prompt\":\"hello\"}");
	cr_assert_eq(a.verdict, VERDICT_CHOOSE);
	a = answer_to(&w, "{\"model\":\"demo\",\"prompt\":\"4111 1111 1111 1111\"}");
	cr_assert_eq(a.verdict, VERDICT_REJECT);
	end(&w);
}

Test(tagging, a_header_gives_its_tag_only_where_a_trusted_peer_sent_it)
{
	struct asked a;
	struct scene s;

	scene_begin(&s);
	ask(&s, "{}", "batch", true, &a);
	cr_assert_eq(a.tags, SHORT | BATCH);
	ask(&s, "{}", "night, batch ,slow", true, &a);
	cr_assert_eq(a.tags, SHORT | BATCH, "one item of the list");
	ask(&s, "{}", "batches", true, &a);
	cr_assert_eq(a.tags, SHORT);
	ask(&s, "{}", "batch", false, &a);
	cr_assert_eq(a.tags, SHORT, "anybody can write a header");
	cr_assert_eq(a.unknown, 0);
	ask(&s, "{}", NULL, true, &a);
	cr_assert_eq(a.tags, SHORT);
	scene_end(&s);
}

Test(tagging, an_expression_over_what_nobody_knows_leaves_its_tag_unknown)
{
	struct token_key key;
	struct asked a;
	struct scene s;

	scene_begin(&s);
	ask(&s, "{}", NULL, false, &a);
	a.facts.max_tokens = 50;
	cr_assert(tagging_find(s.tagging, &a.q, &a.tags, &a.unknown, &key));
	cr_assert_eq(a.tags | a.unknown, 0);
	a.facts.max_tokens = FACTS_INT_UNKNOWN;
	cr_assert(tagging_find(s.tagging, &a.q, &a.tags, &a.unknown, &key));
	cr_assert_eq(a.tags, 0);
	cr_assert_eq(a.unknown, SHORT);
	scene_end(&s);
}

Test(tagging, forms_and_bodies_that_came_too_late_are_unknown_and_no_body_has_no_tag)
{
	struct token_key key;
	struct asked a;
	struct scene s;

	scene_begin(&s);
	ask(&s, "{}", NULL, false, &a);
	a.q.form = true;
	cr_assert(tagging_find(s.tagging, &a.q, &a.tags, &a.unknown, &key));
	cr_assert_eq(a.unknown, PII);
	a.q.form = false;
	a.q.too_large = true;
	cr_assert(tagging_find(s.tagging, &a.q, &a.tags, &a.unknown, &key));
	cr_assert_eq(a.unknown, PII);
	a.q.too_large = false;
	a.q.body = (struct slice){NULL, 0};
	cr_assert(tagging_find(s.tagging, &a.q, &a.tags, &a.unknown, &key));
	cr_assert_eq(a.unknown, 0);
	cr_assert_eq(a.tags, SHORT);
	scene_end(&s);
}

Test(tagging, a_text_is_read_once_a_request_and_anew_for_the_next)
{
	struct token_key key;
	struct asked a;
	struct scene s;

	scene_begin(&s);
	ask(&s, "{\"prompt\":\"a@b.com\"}", NULL, false, &a);
	a.q.request_id = 7;
	cr_assert(tagging_find(s.tagging, &a.q, &a.tags, &a.unknown, &key));
	cr_assert_eq(a.tags, PII | SHORT);
	a.q.body = SLICE_LIT("{\"prompt\":\"?\"}");
	cr_assert(tagging_find(s.tagging, &a.q, &a.tags, &a.unknown, &key));
	cr_assert_eq(a.tags, PII | SHORT, "the same request has the same body");
	a.q.request_id = 7 + TAGGING_KEPT;
	cr_assert(tagging_find(s.tagging, &a.q, &a.tags, &a.unknown, &key));
	cr_assert_eq(a.tags, SHORT);
	scene_end(&s);
}
