#include <criterion/criterion.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "actors/common/decide/manifest.h"

#define CASES PM_SOURCE_DIR "/tests/data/cases/po/"

static struct manifest *
load_ok(const char *path)
{
	struct yaml_errors errs = {0};
	struct manifest *m = NULL;
	char *paths[] = {(char *)(uintptr_t)path};
	int r = manifest_load_paths(paths, 1, &m, &errs);

	if (r < 0)
		yaml_errors_print(&errs, stderr);
	cr_assert_eq(r, 0, "%s", path);
	cr_assert_not(yaml_errors_any(&errs));
	return m;
}

/* A complaint the operator must see. */
struct expect {
	const char *file;
	unsigned line, column;
	const char *text; /* part of it */
};

static bool
complained(const struct yaml_errors *errs, const struct expect *e)
{
	for (size_t i = 0; i < errs->n; i++)
		if (errs->list[i].line == e->line && errs->list[i].column == e->column &&
		    strstr(errs->list[i].text, e->text))
			return true;
	return false;
}

static const struct expect cases[] = {
	{"po01_empty", 0, 0, "holds no document"},
	{"po01_only_comment", 0, 0, "holds no document"},
	{"po01_syntax_error", 33, 1, "did not find expected ',' or '}'"},
	{"po01_unknown_pool", 30, 13, "no InferencePool \"locall\"; did you mean \"local\"?"},
	{"po01_two_documents", 35, 18, "the InferencePolicy \"standard\" is given twice"},
	{"po01_tabs", 29, 1, "a tab in the indentation"},
	{"po01_wrong_types", 6, 20, "spec.timeouts.head must be a duration with a unit"},
	{"po01_wrong_types", 15, 22, "spec.dataParallelRanks must be a whole decimal number"},
	{"po01_wrong_types", 25, 15, "spec.workerSets must be a list"},
	{"po01_wrong_types", 33, 12, "spec.onEmpty must be a map"},
	{"po01_nul_and_bom", 32, 1, "a NUL byte"},
	{"po01_truncated_write", 16, 43, "unexpected end of stream"},
	{"po03_typo_onEmtpy", 31, 3, "unknown key \"onEmtpy\" in spec; did you mean \"onEmpty\"?"},
	{"po03_wrong_level", 32, 1, "unknown key \"onEmpty\" in the document; it belongs in spec"},
	{"po03_case", 31, 3, "unknown key \"onempty\" in spec; did you mean \"onEmpty\"?"},
	{"po04_dup_top", 32, 1, "\"spec\" is given twice: first at line 28, column 1"},
	{"po04_dup_inner", 32, 3, "\"onEmpty\" is given twice: first at line 31, column 3"},
	{"po04_dup_worker", 17, 23, "the worker 10.0.0.11:8000 is given twice"},
	{"po04_dup_member_name", 17, 14, "the member \"w1\" is given twice"},
	{"po04_dup_pool_name", 27, 18, "the InferencePool \"local\" is given twice"},
	{"po04_dup_model", 8, 14, "the model \"demo-8b\" is given twice"},
	{"po05_bool_yes", 15, 13, "spec.tokenize must be true or false"},
	{"po05_octal_sexagesimal", 6, 14, "without leading zeros"},
	{"po05_octal_sexagesimal", 7, 20, "must be a duration with a unit"},
	{"po05_octal_sexagesimal", 8, 23, "must be a size with a unit"},
	{"po06_merge_key", 31, 3, "merge keys (<<) are not supported"},
	{"po06_laughs", 1, 4, "anchors are not supported (&a)"},
	{"po06_laughs", 2, 8, "aliases are not supported (*a)"},
	{"po06_recursive", 2, 12, "aliases are not supported (*p)"},
	{"po06_unknown_alias", 2, 8, "aliases are not supported (*nope)"},
	{"po06_anchor_and_alias", 21, 11, "anchors are not supported (&m)"},
	{"po06_deep_flow", 2, 40, "nested more than 32 levels"},
	{"po06_tag", 2, 8, "tags are not supported"},
	{"po10_fail_closed", 31, 7, "needs either \"pool\" or \"provider\""},
	{"po10_fail_closed", 33, 7, "needs one of keep, remove, keepFirst and prefer"},
	{"po10_fail_closed", 34, 12, "spec.onEmpty needs \"policy\""},
	{"po10_fail_closed", 39, 7, "spec needs \"type\""},
};

Test(manifest, every_known_mistake_is_refused_where_it_stands)
{
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct yaml_errors errs = {0};
		struct manifest *m = NULL;
		char path[512];
		char *paths[] = {path};

		snprintf(path, sizeof(path), CASES "%s.yaml", cases[i].file);
		cr_assert_eq(manifest_load_paths(paths, 1, &m, &errs), -EINVAL, "%s", path);
		cr_assert_null(m);
		if (!complained(&errs, &cases[i]))
			yaml_errors_print(&errs, stderr);
		cr_assert(complained(&errs, &cases[i]), "%s:%u:%u: %s", cases[i].file,
			  cases[i].line, cases[i].column, cases[i].text);
		cr_assert_str_eq(errs.list[0].file, path);
		yaml_errors_free(&errs);
	}
}

Test(manifest, a_good_file_is_loaded_and_resolved)
{
	struct manifest *m = load_ok(CASES "po01_good.yaml");

	cr_assert_str_eq(m->gateway.name, "gw");
	cr_assert_eq(m->gateway.n_listen, 1);
	cr_assert_str_eq(m->gateway.listen[0].host, "127.0.0.1");
	cr_assert_eq(m->gateway.listen[0].port, 8080);
	cr_assert(m->n_models == 1 && m->n_sets == 1 && m->n_pools == 1 && m->n_policies == 1);
	cr_assert_str_eq(m->models[0].name, "demo-8b");
	cr_assert(m->models[0].policy == 0 && !m->models[0].alias);
	cr_assert(m->models[0].n_members == 2 && m->models[0].members[1] == 1);
	cr_assert(m->sets[0].first_member == 0 && m->sets[0].n_members == 2);
	cr_assert(m->sets[0].n_pools == 1 && m->sets[0].pools[0] == 0);
	cr_assert(m->policies[0].n_candidates == 1 && m->policies[0].candidates[0].pool == 0);
	cr_assert(m->models[0].n_routes == 1 && m->models[0].routes[0].n_members == 2);
	cr_assert_str_eq(m->members[1].name, "w2");
	cr_assert_str_eq(m->members[1].url.host, "10.0.0.12");
	cr_assert_eq(m->members[1].url.port, 8000);
	cr_assert_str_eq(m->members[1].kv_events, "");
	cr_assert_neq(m->members[0].uid, m->members[1].uid);
	manifest_free(&m);
	cr_assert_null(m);
	manifest_free(&m);
}

Test(manifest, extensions_and_a_byte_order_mark_change_nothing)
{
	struct manifest *m = load_ok(CASES "po03_extension_ok.yaml");

	manifest_free(&m);
	m = load_ok(CASES "po01_bom.yaml");
	cr_assert_eq(m->n_models, 1);
	manifest_free(&m);
}

Test(manifest, words_that_look_like_other_types_stay_names)
{
	struct manifest *m = load_ok(CASES "po05_scalars.yaml");

	cr_assert_str_eq(m->models[0].name, "1.10");
	cr_assert_str_eq(m->policies[0].name, "no");
	cr_assert_str_eq(m->pools[0].name, "NO");
	cr_assert_str_eq(m->sets[0].name, "010");
	cr_assert_str_eq(m->members[0].name, "on");
	cr_assert_str_eq(m->members[1].name, "1e3");
	manifest_free(&m);
}

Test(manifest, the_delivered_configuration_validates)
{
	struct manifest *m = load_ok(PM_SOURCE_DIR "/etc/pointsman.yaml");

	cr_assert_eq(m->n_members, 3);
	cr_assert_str_eq(m->members[2].kv_events, "tcp://127.0.0.1:5559");
	cr_assert_eq(m->gateway.limits.head_bytes, 65536);
	cr_assert_eq(m->gateway.limits.headers, 200);
	cr_assert_eq(m->gateway.limits.body_bytes, 33554432);
	cr_assert_eq(m->gateway.limits.slots, 16384);
	cr_assert_eq(m->gateway.limits.arena_bytes, 1073741824);
	cr_assert_eq(m->gateway.timeouts.upstream_keep_alive_ns, 4000000000);
	cr_assert_eq(m->gateway.timeouts.first_byte_ns, 600000000000);
	cr_assert_eq(m->gateway.index_blocks, 1000000);
	cr_assert_eq(m->gateway.index_private_bytes, 0);
	cr_assert_eq(m->gateway.policy_standby, 1);
	cr_assert_eq(m->gateway.io, MANIFEST_IO_AUTO);
	cr_assert_eq(m->gateway.half_close, MANIFEST_HALF_CLOSE_GONE);
	cr_assert_str_eq(m->gateway.admin.host, "127.0.0.1");
	cr_assert_eq(m->gateway.admin.port, 9090);
	cr_assert(m->sets[0].tokenize);
	cr_assert_eq(m->sets[0].engine, MANIFEST_ENGINE_VLLM);
	cr_assert_str_eq(m->sets[0].metrics_path, "/metrics");
	cr_assert_eq(m->sets[0].scrape_interval_ns, 1000000000);
	cr_assert(fabs(m->sets[0].prior.base_s - .02) < 1e-9);
	cr_assert(fabs(m->sets[0].prior.attention_s - 1e-9) < 1e-18);
	cr_assert_eq(m->policies[0].minimize, MANIFEST_MINIMIZE_PREDICTED_TTFT);
	manifest_free(&m);
}

Test(manifest, aliases_resolve_to_the_workers_of_the_model)
{
	struct manifest *m = load_ok(PM_SOURCE_DIR "/etc/policies/model-aliasing.yaml");
	const struct manifest_model *model = manifest_find_model(m, "assistant", 9);

	cr_assert(model && model->alias && model->n_members == 2);
	cr_assert_str_eq(m->sets[m->members[model->members[0]].set].model, "Qwen/Qwen3-8B");
	model = manifest_find_model(m, "assistant-any", 13);
	cr_assert(model && model->alias && model->n_members == 3);
	model = manifest_find_model(m, "Qwen/Qwen3-32B", 14);
	cr_assert(model && !model->alias && model->n_members == 1);
	cr_assert_null(manifest_find_model(m, "assistan", 8));
	cr_assert_null(manifest_find_model(m, "Qwen/Qwen3-8B", 13));
	manifest_free(&m);
}

/* ---- from texts built here ---- */

#define HEAD(kind, name)                                                                           \
	"apiVersion: pointsman.io/v1alpha1\nkind: " kind "\nmetadata: {name: " name "}\nspec:\n"
#define GATEWAY HEAD("GatewayBackend", "gw") "  listen: [\"0.0.0.0:8080\"]\n"
#define MODELS	"  models: [{name: m, policy: p}]\n---\n"
#define WORKERS HEAD("InferenceWorkerSet", "s") "  engine: vllm\n  model: m\n"
#define MEMBERS "  members: [{name: w, url: \"http://w:1\"}]\n---\n"
#define POOL	HEAD("InferencePool", "q") "  workerSets: [s]\n---\n"
#define POLICY	HEAD("InferencePolicy", "p") "  candidates: [{pool: q}]\n"

static struct manifest *
load_text(const char *text)
{
	struct yaml_errors errs = {0};
	struct manifest *m = NULL;

	if (manifest_load_text("t", text, strlen(text), &m, &errs) < 0)
		yaml_errors_print(&errs, stderr);
	cr_assert(m, "%s", text);
	cr_assert_not(yaml_errors_any(&errs));
	return m;
}

static void
refused(const char *text, const char *says)
{
	struct yaml_errors errs = {0};
	struct manifest *m = NULL;
	bool said = false;

	cr_assert_eq(manifest_load_text("t", text, strlen(text), &m, &errs), -EINVAL, "%s", says);
	cr_assert_null(m);
	for (size_t i = 0; i < errs.n; i++)
		said = said || strstr(errs.list[i].text, says);
	if (!said)
		yaml_errors_print(&errs, stderr);
	cr_assert(said, "%s", says);
	yaml_errors_free(&errs);
}

Test(manifest, each_rank_is_asked_for_replays_at_its_own_port)
{
	struct manifest *m =
		load_text(GATEWAY MODELS WORKERS
			  "  dataParallelRanks: 2\n  kvTopic: \"kv@\"\n  members:\n"
			  "    - {name: w, url: \"http://w:1/\", kvEvents: \"bind:tcp://*:5557\", "
			  "kvReplay: \"tcp://w:5567\"}\n---\n" POOL POLICY);

	cr_assert_eq(m->n_members, 2);
	cr_assert_str_eq(m->members[0].kv_events, "bind:tcp://*:5557");
	cr_assert_str_eq(m->members[1].kv_events, "bind:tcp://*:5558");
	cr_assert_str_eq(m->members[0].kv_replay, "tcp://w:5567");
	cr_assert_str_eq(m->members[1].kv_replay, "tcp://w:5568");
	cr_assert_str_eq(m->sets[0].kv_topic, "kv@");
	manifest_free(&m);
}

Test(manifest, each_rank_is_a_row_with_its_own_endpoint)
{
	struct manifest *m =
		load_text(GATEWAY MODELS WORKERS
			  "  dataParallelRanks: 3\n  members:\n"
			  "    - {name: w, url: \"http://w:1/\", kvEvents: "
			  "\"tcp://[::1]:5557\"}\n---\n" POOL POLICY);

	cr_assert_eq(m->n_members, 3);
	cr_assert_eq(m->models[0].n_members, 3);
	for (unsigned i = 0; i < 3; i++) {
		char endpoint[64];

		cr_assert_eq(m->members[i].rank, i);
		snprintf(endpoint, sizeof(endpoint), "tcp://[::1]:%u", 5557 + i);
		cr_assert_str_eq(m->members[i].kv_events, endpoint);
		cr_assert_eq(m->members[i].uid, manifest_member_uid("s", "w", "w:1", i));
		cr_assert_eq(m->members[i].url.port, 1);
	}
	manifest_free(&m);
}

Test(manifest, a_uid_depends_on_names_url_and_rank_and_nothing_else)
{
	struct manifest *a = load_text(GATEWAY MODELS WORKERS MEMBERS POOL POLICY);
	struct manifest *b = load_text(GATEWAY "  ingresses: 2\n" MODELS WORKERS
				       "  blockSize: 32\n" MEMBERS POOL POLICY);

	cr_assert_eq(a->members[0].uid, b->members[0].uid);
	cr_assert_neq(manifest_hash(a), manifest_hash(b));
	cr_assert_neq(manifest_member_uid("s", "w", "w:1", 0),
		      manifest_member_uid("s", "w", "w:1", 1));
	cr_assert_neq(manifest_member_uid("s", "w", "w:1", 0),
		      manifest_member_uid("s", "w", "w:2", 0));
	cr_assert_neq(manifest_member_uid("s", "w", "w:1", 0),
		      manifest_member_uid("s", "v", "w:1", 0));
	cr_assert_neq(manifest_member_uid("s", "w", "w:1", 0),
		      manifest_member_uid("t", "w", "w:1", 0));
	manifest_free(&a);
	manifest_free(&b);
}

Test(manifest, a_model_without_policy_goes_to_the_first_that_matches)
{
	struct manifest *m =
		load_text(GATEWAY "  models: [{name: m}]\n---\n" WORKERS MEMBERS POOL HEAD(
			"InferencePolicy",
			"other") "  candidates: [{pool: q}]\n  minimize: Random\n---\n" POLICY
				 "  match: {models: [\"*\"]}\n");

	cr_assert_eq(m->models[0].policy, 1);
	cr_assert_eq(m->policies[0].minimize, MANIFEST_MINIMIZE_RANDOM);
	manifest_free(&m);
	refused(GATEWAY "  models: [{name: m}]\n---\n" WORKERS MEMBERS POOL POLICY,
		"no policy decides for the model \"m\"");
}

Test(manifest, references_that_lead_nowhere_are_refused)
{
	refused(GATEWAY "  models: [{name: m, policy: pp}]\n---\n" WORKERS MEMBERS POOL POLICY,
		"there is no InferencePolicy \"pp\"");
	refused(GATEWAY MODELS WORKERS MEMBERS HEAD("InferencePool", "q")
		"  workerSets: [t]\n---\n" POLICY,
		"there is no InferenceWorkerSet \"t\"");
	refused(GATEWAY "  models: [{name: gpt, policy: p}]\n---\n" WORKERS MEMBERS POOL POLICY,
		"no worker of the policy \"p\" serves the model \"gpt\"; if workers call it "
		"otherwise, say "
		"so with aliasOf");
	refused(GATEWAY "  models: [{name: g, policy: p, aliasOf: [x]}]\n---\n" WORKERS MEMBERS
		POOL POLICY,
		"serves the model \"x\"");
	refused(GATEWAY MODELS WORKERS MEMBERS POOL POLICY "  match: {models: [nn]}\n",
		"there is no model of the GatewayBackend \"nn\"");
	refused(GATEWAY
		"  models: [{name: m, policy: p}, {name: k, policy: p, aliasOf: m}]\n---\n" WORKERS
			MEMBERS POOL POLICY "  match: {models: [m]}\n",
		"the policy \"p\" does not take the model \"k\"");
	refused(WORKERS MEMBERS POOL POLICY, "there is no GatewayBackend");
	refused(GATEWAY MODELS HEAD(
			"GatewayBackend",
			"gw2") "  listen: [\"0.0.0.0:1\"]\n" MODELS WORKERS MEMBERS POOL POLICY,
		"a second GatewayBackend is not supported yet");
}

#define IN_GATEWAY(lines) GATEWAY lines MODELS WORKERS MEMBERS POOL POLICY
#define IN_WORKERS(lines) GATEWAY MODELS WORKERS lines MEMBERS POOL POLICY
#define MEMBER(fields)	  GATEWAY MODELS WORKERS "  members: [{" fields "}]\n---\n" POOL POLICY

Test(manifest, listeners_are_addresses_or_unix_sockets)
{
	struct manifest *m = load_text(
		HEAD("GatewayBackend", "gw") "  listen: [\"unix:/run/p.sock\", \"[::1]:80\"]\n"
		"  unixSockets: {mode: \"0666\", group: 33}\n"
		MODELS WORKERS MEMBERS POOL POLICY);

	cr_assert_eq(m->gateway.n_listen, 2);
	cr_assert_str_eq(m->gateway.listen[0].path, "/run/p.sock");
	cr_assert_str_eq(m->gateway.listen[1].path, "");
	cr_assert_str_eq(m->gateway.listen[1].host, "::1");
	cr_assert_eq(m->gateway.listen[1].port, 80);
	cr_assert_str_eq(m->gateway.socket_mode, "0666");
	cr_assert_str_eq(m->gateway.socket_group, "33");
	manifest_free(&m);
}

Test(manifest, trusted_peers_are_networks_addresses_and_unix)
{
	struct manifest *m = load_text(IN_GATEWAY(
		"  client: {trustedPeers: [10.0.0.0/8, unix, \"2001:db8::/32\", 192.0.2.7]}\n"));
	const struct manifest_gateway *g = &m->gateway;

	cr_assert(g->fairness && g->trusted_unix);
	cr_assert_eq(g->n_trusted, 3);
	cr_assert_eq(g->trusted[0].bits, 104);
	cr_assert(g->trusted[0].addr[10] == 0xff && g->trusted[0].addr[12] == 10);
	cr_assert_eq(g->trusted[1].bits, 32);
	cr_assert_eq(g->trusted[1].addr[0], 0x20);
	cr_assert_eq(g->trusted[2].bits, 128);
	manifest_free(&m);
	m = load_text(IN_GATEWAY("  client: {fairness: false}\n"));
	cr_assert(!m->gateway.fairness && !m->gateway.trusted_unix && m->gateway.n_trusted == 0);
	manifest_free(&m);
}

Test(manifest, the_bounds_themselves_are_good_values)
{
	struct manifest *m = load_text(IN_GATEWAY("  timeouts: {head: 10ms, connect: 60s, "
						  "keepAlive: 3600s, firstByte: 86400s}\n"));

	cr_assert_eq(m->gateway.timeouts.connect_ns, 60000000000u);
	manifest_free(&m);
	m = load_text(IN_WORKERS("  scrapeInterval: 60s\n"));
	cr_assert_eq(m->sets[0].scrape_interval_ns, 60000000000u);
	manifest_free(&m);
	m = load_text(IN_WORKERS("  scrapeInterval: 50ms\n"));
	manifest_free(&m);
}

#define OF_ENGINE(engine, lines)                                                                   \
	GATEWAY MODELS HEAD("InferenceWorkerSet", "s")                                             \
		"  engine: " engine "\n  model: m\n" lines MEMBERS POOL POLICY

Test(manifest, each_engine_has_its_own_pages_and_only_what_it_can_do)
{
	static const struct {
		const char *text, *metrics, *health;
		enum manifest_engine engine;
	} of[] = {
		{OF_ENGINE("vllm", ""), "/metrics", "/health", MANIFEST_ENGINE_VLLM},
		{OF_ENGINE("sglang", ""), "/metrics", "/health", MANIFEST_ENGINE_SGLANG},
		{OF_ENGINE("trtllm", ""), "/prometheus/metrics", "/health",
		 MANIFEST_ENGINE_TRTLLM},
		{OF_ENGINE("triton", "  metricsPort: 8002\n"), "/metrics", "/health/ready",
		 MANIFEST_ENGINE_TRITON},
	};

	for (unsigned i = 0; i < sizeof of / sizeof of[0]; i++) {
		struct manifest *m = load_text(of[i].text);

		cr_assert_eq(m->sets[0].engine, of[i].engine);
		cr_assert_str_eq(m->sets[0].metrics_path, of[i].metrics);
		cr_assert_str_eq(m->sets[0].health_path, of[i].health);
		cr_assert_eq(m->sets[0].tokenize, of[i].engine == MANIFEST_ENGINE_VLLM);
		cr_assert_eq(m->sets[0].metrics_port, i == 3 ? 8002 : 0);
		cr_assert_eq(manifest_engine_named(manifest_engine_name(of[i].engine)),
			     of[i].engine);
		manifest_free(&m);
	}
	refused(OF_ENGINE("sglang", "  tokenize: true\n"), "spec.tokenize is not there yet");
	refused(OF_ENGINE("trtllm", "  dataParallelRanks: 2\n"), "needs a rank by header");
	refused(OF_ENGINE("sgl", ""), "must be one of vllm, sglang, trtllm, triton");
	cr_assert_eq(manifest_engine_named("sgl"), 0);
}

#define TOKENIZER(lines) OF_ENGINE("vllm", "  tokenizer:\n    path: /models/m\n" lines)

Test(manifest, a_set_says_from_which_folder_its_prompts_are_made_and_how_its_engines_were_started)
{
	struct manifest *m = load_text(TOKENIZER(
		"    chatTemplate: /models/chat.jinja\n    contentFormat: openai\n"
		"    timeZone: Europe/Berlin\n    trustRequestChatTemplate: true\n"
		"    excludeToolsWhenToolChoiceNone: true\n    tokenizerMode: hf\n"
		"    maxModelLen: 32768\n"));
	const struct manifest_tokenizer *t = &m->sets[0].tokenizer;

	cr_assert_str_eq(t->path, "/models/m");
	cr_assert_str_eq(t->chat_template, "/models/chat.jinja");
	cr_assert_eq(t->content, MANIFEST_CONTENT_OPENAI);
	cr_assert_str_eq(t->time_zone, "Europe/Berlin");
	cr_assert(t->trust_request_template && t->exclude_tools);
	cr_assert_eq(t->encoder, MANIFEST_ENCODER_HF);
	cr_assert_eq(t->max_model_len, 32768);
	cr_assert_null(t->kwargs);
	cr_assert(m->sets[0].tokenize, "the worker's own stays what is fallen back to");
	cr_assert_str_eq(t->file, "t");
	cr_assert_eq(t->column, 11);
	manifest_free(&m);

	m = load_text(TOKENIZER(""));
	t = &m->sets[0].tokenizer;
	cr_assert_eq(t->content, MANIFEST_CONTENT_AUTO);
	cr_assert_eq(t->encoder, MANIFEST_ENCODER_AUTO);
	cr_assert_str_eq(t->time_zone, "UTC");
	cr_assert(!t->trust_request_template && !t->exclude_tools && t->max_model_len == 0);
	manifest_free(&m);
}

Test(manifest, a_templates_default_variables_keep_their_types)
{
	struct manifest *m = load_text(TOKENIZER(
		"    defaultChatTemplateKwargs:\n"
		"      enable_thinking: false\n      effort: high\n      n: -1.5e3\n"
		"      name: \"no\\n\\\"\"\n      text: \"1\"\n      octal: 010\n      nothing:\n"
		"      list: [1, a, {b: null}]\n      inner: {}\n"));

	cr_assert_str_eq(m->sets[0].tokenizer.kwargs,
			 "{\"enable_thinking\":false,\"effort\":\"high\",\"n\":-1.5e3,"
			 "\"name\":\"no\\n\\\"\",\"text\":\"1\",\"octal\":\"010\","
			 "\"nothing\":null,\"list\":[1,\"a\",{\"b\":null}],\"inner\":{}}");
	manifest_free(&m);
}

Test(manifest, a_tokenizer_that_says_too_little_or_too_much_is_refused)
{
	refused(OF_ENGINE("vllm", "  tokenizer: {contentFormat: auto}\n"),
		"spec.tokenizer needs \"path\"");
	refused(OF_ENGINE("vllm", "  tokenizer: {path: models/m}\n"), "must begin with '/'");
	refused(OF_ENGINE("vllm", "  tokenizer: /models/m\n"), "spec.tokenizer must be a map");
	refused(TOKENIZER("    contentFromat: auto\n"), "did you mean \"contentFormat\"?");
	refused(TOKENIZER("    tokenizerMode: mistral\n"), "\"mistral\" is not supported yet");
	refused(TOKENIZER("    defaultChatTemplateKwargs: [a]\n"), "must be a map");
	refused(OF_ENGINE("sglang", "  tokenizer: {path: /models/m}\n"),
		"spec.tokenizer is not there yet for the engine \"sglang\"");
}

Test(manifest, values_out_of_bounds_are_refused_with_the_bounds)
{
	refused(IN_GATEWAY("  ingresses: 0\n"), "spec.ingresses must be from 1 to 64");
	refused(IN_GATEWAY("  limits: {headBytes: 65KiB}\n"), "must be from 1KiB to 64KiB");
	refused(IN_GATEWAY("  limits: {headers: 201}\n"), "must be from 8 to 200");
	refused(IN_GATEWAY("  limits: {bodyBytes: 64MiB}\n"), "must be from 1KiB to 63MiB");
	refused(IN_GATEWAY("  timeouts: {connect: 2h}\n"), "must be from 10ms to 60s");
	refused(IN_GATEWAY("  io: {backend: uring}\n"), "must be one of auto, io_uring, epoll");
	refused(IN_GATEWAY("  io: {backend: epol}\n"), "did you mean \"epoll\"?");
	refused(IN_GATEWAY("  admin: {listen: \"localhost:9090\"}\n"),
		"must be an IP address and a port");
	refused(IN_GATEWAY("  tls: {}\n"), "spec.tls needs \"certificates\"");
	refused(IN_GATEWAY("  tls: {certificates: []}\n"), "must have from 1 to 32 items");
	refused(IN_GATEWAY("  tls: {certificates: [{certificate: a.pem, key: /k}]}\n"),
		"spec.tls.certificates[].certificate must begin with '/'");
	refused(IN_GATEWAY("  tls: {certificates: [{certificate: /c}]}\n"),
		"spec.tls.certificates[] needs \"key\"");
	refused(IN_GATEWAY("  tls: {certificates: [{certificate: /c, key: /k}]}\n"),
		"spec.tls is for spec.listenTls");
	refused(IN_GATEWAY("  listenTls: [\"1.2.3.4:8443\"]\n"), "spec.listenTls needs spec.tls");
	refused(IN_GATEWAY("  listenTls: [\"host:8443\"]\n"), "must be an IP address and a port");
	refused(IN_GATEWAY("  unixSockets: {mode: \"0999\"}\n"), "must be an octal mode");
	refused(IN_GATEWAY("  unixSockets: {mode: \"7777\"}\n"), "must be an octal mode");
	refused(IN_GATEWAY("  unixSockets: {group: \"a b\"}\n"), "must be a name");
	refused(IN_GATEWAY("  client: {fairness: perhaps}\n"), "must be true or false");
	refused(IN_GATEWAY("  client: {trustedPeers: []}\n"), "must have from 1 to 64 items");
	refused(IN_GATEWAY("  client: {trustedPeers: [localhost]}\n"), "must be an IP address");
	refused(IN_GATEWAY("  client: {trustedPeers: [10.0.0.0/33]}\n"), "0 to 32 bits");
	refused(IN_GATEWAY("  client: {trustedPeers: [\"10.0.0.0/\"]}\n"), "0 to 32 bits");
	refused(IN_GATEWAY("  client: {trustedPeers: [\"::1/129\"]}\n"), "0 to 128 bits");
	refused(IN_GATEWAY("  client: {trustedPeers: [10.0.0.1/8]}\n"), "bits behind its prefix");
	refused(IN_GATEWAY("  client: {trustedPeers: [unix, unix]}\n"), "twice");
	refused(IN_GATEWAY("  limits: {upstreamConnections: 0}\n"), "must be from 1 to 65536");
	refused(IN_WORKERS("  engine2: x\n"), "unknown key \"engine2\"");
	refused(IN_WORKERS("  metricsPath: metrics\n"), "spec.metricsPath must begin with '/'");
	refused(IN_WORKERS("  prior: {base: 20}\n"), "must be a duration with a unit");
	refused(IN_WORKERS("  dataParallelRanks: 65\n"), "must be from 1 to 64");
	refused(MEMBER("name: w"), "spec.members[] needs \"url\"");
	refused(MEMBER("name: w, url: \"ftp://w:1\""), "must be http://host:port or https://");
	refused(MEMBER("name: w, url: \"https://w:1/v1\""), "without a path");
	refused(MEMBER("name: w, url: \"http://w\""), "it has no port");
	refused(MEMBER("name: w, url: \"http://w:0\""), "a port number from 1 to 65535");
	refused(MEMBER("name: w, url: \"http://w:1/v1\""), "without a path");
	refused(MEMBER("name: w, url: \"http://u@w:1\""), "neither a name nor an address");
	refused(MEMBER("name: w, url: \"http://::1:1\""), "in brackets");
	refused(MEMBER("name: -w, url: \"http://w:1\""), "must be a name of letters");
	refused(MEMBER("name: w, url: \"http://w:1\", kvEvents: \"tcp://*:5557\""),
		"must name the worker's host");
	refused(MEMBER("name: w, url: \"http://w:1\", kvEvents: \"udp://w:1\""),
		"must be tcp://host:port");
	refused(MEMBER("name: w, url: \"http://w:1\", kvReplay: \"tcp://w:6\""),
		"kvReplay is for members with kvEvents");
	refused(MEMBER("name: w, url: \"http://w:1\", kvEvents: \"tcp://w:5\", "
		       "kvReplay: \"tcp://w:5\""),
		"kvReplay is the endpoint of kvEvents");
	refused(MEMBER("name: w, url: \"http://w:1\", kvEvents: \"tcp://w:5\", "
		       "kvReplay: \"bind:tcp://*:6\""),
		"kvReplay may not be bound here");
	refused(MEMBER("name: w, url: \"http://w:1\", kvEvents: \"bind:tcp://w:5\""),
		"an IP address of this machine");
	refused(MEMBER("name: w, url: \"http://w:1\", kvEvents: \"bind:ipc:///x\""),
		"must be bind:tcp://address:port");
	refused(MEMBER("name: w, url: \"http://w:1\", kvEvents: \"bind:tcp://*:x\""),
		"kvEvents must");
	refused(MEMBER("name: w, url: \"http://w:1\", kvEvents: \"tcp://w:5\", "
		       "kvReplay: \"tcp://w:6\"}, "
		       "{name: v, url: \"http://v:1\", kvEvents: \"tcp://w:6\""),
		"tcp://w:6 already belongs to rank 0");
	refused(MEMBER("name: w, url: \"http://w:1\", kvEvents: \"tcp://w:5\"}, "
		       "{name: v, url: \"http://v:1\", kvEvents: \"tcp://w:5\""),
		"already belongs to rank 0 of the member at t:14:13");
	refused(HEAD("GatewayBackend",
		     "gw") "  listen: [\":80\"]\n" MODELS WORKERS MEMBERS POOL POLICY,
		"did you mean \"0.0.0.0:80\"?");
	refused(HEAD("GatewayBackend",
		     "gw") "  listen: [\"unix:run\"]\n" MODELS WORKERS MEMBERS POOL POLICY,
		"an absolute path");
	refused(HEAD("GatewayBackend",
		     "gw") "  listen: [\"unix:/run/\"]\n" MODELS WORKERS MEMBERS POOL POLICY,
		"an absolute path of a file");
	refused(HEAD("GatewayBackend",
		     "gw") "  listen: [\"unix:/run/a b\"]\n" MODELS WORKERS MEMBERS POOL POLICY,
		"not printable");
	refused(HEAD("GatewayBackend", "gw") "  listen: []\n" MODELS WORKERS MEMBERS POOL POLICY,
		"spec.listen must have from 1 to 16 items");
	refused("just text\n", "the document must be a map");
	refused("apiVersion: v1\n", "apiVersion must be pointsman.io/v1alpha1");
}

Test(manifest, rows_are_bounded)
{
	size_t cap = 1 << 20, n = 0;
	char *text = malloc(cap);

	n += (size_t)snprintf(text, cap,
			      GATEWAY MODELS WORKERS "  dataParallelRanks: 64\n  members:\n");
	for (unsigned i = 0; i < 17; i++)
		n += (size_t)snprintf(text + n, cap - n,
				      "    - {name: w%u, url: \"http://w%u:1\"}\n", i, i);
	snprintf(text + n, cap - n, "---\n" POOL POLICY);
	refused(text, "more than 1024 workers and ranks");
	free(text);
}

Test(manifest, one_mistake_is_not_told_as_many)
{
	/* The pool's envelope is wrong; that nobody finds the pool follows and is not said. */
	static const char text[] =
		GATEWAY MODELS WORKERS MEMBERS "apiVersion: pointsman.io/v1alpha1\nkind: "
					       "InferencePol\nmetadata: {name: q}\nspec: {}\n"
					       "---\n" POLICY;
	struct yaml_errors errs = {0};
	struct manifest *m = NULL;

	cr_assert_eq(manifest_load_text("t", text, strlen(text), &m, &errs), -EINVAL);
	cr_assert_eq(errs.n, 1);
	cr_assert_eq(errs.list[0].line, 17);
	cr_assert(strstr(errs.list[0].text, "kind must not be \"InferencePol\"; did you mean"));
	yaml_errors_free(&errs);
}

/* ---- files, folders, snapshots ---- */

Test(manifest, a_snapshot_loads_as_the_same_manifest)
{
	struct manifest *m = load_ok(PM_SOURCE_DIR "/etc/pointsman.yaml"), *again = NULL;
	struct yaml_errors errs = {0};

	cr_assert_eq(manifest_load_snapshot(m->snapshot, m->snapshot_len, &again, &errs), 0);
	cr_assert_eq(manifest_hash(again), manifest_hash(m));
	cr_assert_eq(again->members[2].uid, m->members[2].uid);
	manifest_free(&m);
	manifest_free(&again);
}

Test(manifest, a_damaged_snapshot_is_refused)
{
	struct manifest *m = load_ok(CASES "po01_good.yaml"), *bad = NULL;
	uint8_t *copy = malloc(m->snapshot_len + 1);
	struct yaml_errors errs = {0};

	for (size_t n = 0; n < m->snapshot_len; n++) {
		uint8_t *cut = malloc(n ? n : 1);

		memcpy(cut, m->snapshot, n);
		cr_assert_eq(manifest_load_snapshot(cut, n, &bad, &errs), -EINVAL);
		free(cut);
	}
	memcpy(copy, m->snapshot, m->snapshot_len);
	copy[m->snapshot_len] = 0;
	cr_assert_eq(manifest_load_snapshot(copy, m->snapshot_len + 1, &bad, &errs), -EINVAL);
	memset(copy + 12, 0xff, 8); /* lengths that no file has */
	cr_assert_eq(manifest_load_snapshot(copy, m->snapshot_len, &bad, &errs), -EINVAL);
	cr_assert_null(bad);
	yaml_errors_free(&errs);
	manifest_free(&m);
	free(copy);
}

static void
file_write(const char *dir, const char *name, const char *text)
{
	char path[512];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "w");
	cr_assert(f);
	fputs(text, f);
	fclose(f);
}

static void
folder_remove(char *dir, const char *const *names, size_t n)
{
	char path[512];

	for (size_t i = 0; i < n; i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
		unlink(path);
	}
	rmdir(dir);
}

Test(manifest, a_folder_is_read_in_name_order_and_through_links)
{
	static const char *const names[] = {"20-set.yaml", "10-gw.yml", "30-rest.yaml", "note.txt",
					    ".hidden.yaml", "target"};
	char dir[] = "/tmp/manifest-XXXXXX", path[512];
	struct yaml_errors errs = {0};
	struct manifest *m;
	char *paths[] = {dir};

	cr_assert(mkdtemp(dir));
	file_write(dir, "20-set.yaml", WORKERS MEMBERS);
	file_write(dir, "10-gw.yml", GATEWAY MODELS);
	file_write(dir, "target", POOL POLICY);
	snprintf(path, sizeof(path), "%s/30-rest.yaml", dir);
	cr_assert_eq(symlink("target", path), 0);
	file_write(dir, "note.txt", "not: [yaml");
	file_write(dir, ".hidden.yaml", "not: [yaml");
	m = load_ok(dir);
	cr_assert_eq(m->n_members, 1);
	cr_assert(memmem(m->snapshot, m->snapshot_len, "10-gw.yml", 9) <
		  memmem(m->snapshot, m->snapshot_len, "20-set.yaml", 11));
	manifest_free(&m);
	file_write(dir, "20-set.yaml", ""); /* as a write that was cut short leaves it */
	cr_assert_eq(manifest_load_paths(paths, 1, &m, &errs), -EINVAL);
	cr_assert(strstr(errs.list[0].file, "/20-set.yaml"));
	cr_assert_str_eq(errs.list[0].text, "holds no document");
	yaml_errors_free(&errs);
	folder_remove(dir, names, sizeof(names) / sizeof(names[0]));
}

Test(manifest, what_cannot_be_read_is_named)
{
	char dir[] = "/tmp/manifest-XXXXXX", fifo[64];
	struct yaml_errors errs = {0};
	struct manifest *m = NULL;
	char nowhere[] = "/nonexistent/x.yaml", good[] = CASES "po01_good.yaml";
	char *paths[] = {good, nowhere, dir, fifo};

	cr_assert(mkdtemp(dir));
	snprintf(fifo, sizeof(fifo), "%s/fifo", dir);
	cr_assert_eq(mkfifo(fifo, 0600), 0);
	cr_assert_eq(manifest_load_paths(paths, 4, &m, &errs), -EINVAL);
	cr_assert_null(m);
	cr_assert_eq(errs.n, 3);
	cr_assert_str_eq(errs.list[0].file, nowhere);
	cr_assert_str_eq(errs.list[0].text, "cannot be read: No such file or directory");
	cr_assert_str_eq(errs.list[1].text, "holds no *.yaml or *.yml");
	cr_assert_str_eq(errs.list[2].text, "is no regular file");
	yaml_errors_free(&errs);
	cr_assert_eq(manifest_load_paths(paths, 0, &m, &errs), -EINVAL);
	cr_assert_eq(errs.n, 1);
	yaml_errors_free(&errs);
	unlink(fifo);
	rmdir(dir);
}

Test(manifest, a_host_is_served_by_its_name_or_by_what_is_above_it)
{
	char hosts[3][MANIFEST_DNS_MAX + 1] = {"api.example.com", "*.llm.example", "[::1]"};
	const struct manifest_gateway any = {.n_hosts = 0}, gw = {.hosts = hosts, .n_hosts = 3};
	static const struct {
		const char *host;
		bool served;
	} asked[] = {
		{"api.example.com", true},	{"API.Example.com:8080", true},
		{"api.example.com.", true},	{"a.llm.example", true},
		{"a.b.llm.example:1", true},	{"llm.example", false},
		{".llm.example", false},	{"evilapi.example.com", false},
		{"api.example.com.evil", false}, {"[::1]:80", true},
		{"[::1]", true},		{"[::2]", false},
		{":80", false},			{"", false},
	};

	for (size_t i = 0; i < sizeof(asked) / sizeof(asked[0]); i++) {
		const char *host = asked[i].host;

		cr_assert_eq(manifest_host_served(&gw, host, strlen(host)), asked[i].served, "%s",
			     host);
		cr_assert(manifest_host_served(&any, host, strlen(host)));
	}
	cr_assert_not(manifest_host_served(&gw, NULL, 0));
}

/* ---- the table of fields ---- */

Test(manifest, every_default_is_within_its_own_bounds)
{
	struct manifest *m = load_text(GATEWAY MODELS WORKERS MEMBERS POOL POLICY);

	/* A default that were refused would leave its field at zero. */
	cr_assert_gt(m->gateway.ingresses, 0);
	cr_assert_gt(m->gateway.limits.stream_buffer_bytes, 0);
	cr_assert_gt(m->gateway.limits.questions, 0);
	cr_assert_gt(m->gateway.timeouts.head_ns, 0);
	cr_assert_gt(m->gateway.timeouts.keep_alive_ns, 0);
	cr_assert_gt(m->gateway.timeouts.connect_ns, 0);
	cr_assert_gt(m->gateway.timeouts.inter_chunk_ns, 0);
	cr_assert_gt(m->gateway.timeouts.write_stall_ns, 0);
	cr_assert_gt(m->gateway.timeouts.drain_ns, 0);
	cr_assert_gt(m->gateway.timeouts.policy_answer_ns, 0);
	cr_assert_gt(m->gateway.policy_probation_ns, 0);
	cr_assert_gt(m->gateway.policy_load_deadline_ns, 0);
	cr_assert_gt(m->sets[0].prior.prefill_s, 0);
	cr_assert_gt(m->sets[0].prior.decode_s, 0);
	cr_assert_eq(m->sets[0].ranks, 1);
	cr_assert_str_eq(m->sets[0].health_path, "/health");
	manifest_free(&m);
}
