/* tests/unit/test_adapters.c -- LoRA adapters: names that go to a set, and chains of their own. */
#include "actors/common/prompt/blocks.h"
#include "tests/unit/policy_world.h"

#define HEAD(kind, name) \
	"apiVersion: pointsman.io/v1alpha1\nkind: " kind "\nmetadata: {name: " name "}\nspec:\n"
#define GATEWAY(models) HEAD("GatewayBackend", "gw") "  listen: [\"0.0.0.0:8080\"]\n  models: [" \
	models "]\n---\n"
#define SET(name, model, adapters, url) HEAD("InferenceWorkerSet", name) \
	"  engine: vllm\n  model: " model "\n" adapters "  members: [{name: w, url: \"" url \
	"\"}]\n---\n"
#define POOL HEAD("InferencePool", "q") "  workerSets: [s, t]\n---\n"
#define POLICY HEAD("InferencePolicy", "p") "  candidates: [{pool: q}]\n"
#define TWO(models, of_s, of_t) GATEWAY(models) SET("s", "demo", of_s, "http://a:1") \
	SET("t", "demo", of_t, "http://b:1") POOL POLICY

static struct manifest *
load(const char *text)
{
	struct yaml_errors errs = {0};
	struct manifest *m = NULL;

	if (manifest_load_text("t", text, strlen(text), &m, &errs) < 0)
		yaml_errors_print(&errs, stderr);
	cr_assert(m, "%s", text);
	yaml_errors_free(&errs);
	return m;
}

static void
refused(const char *text, const char *says)
{
	struct yaml_errors errs = {0};
	struct manifest *m = NULL;
	bool said = false;

	cr_assert_eq(manifest_load_text("t", text, strlen(text), &m, &errs), -EINVAL, "%s", says);
	for (size_t i = 0; i < errs.n; i++)
		said = said || strstr(errs.list[i].text, says);
	cr_assert(said, "%s, not: %s", says, errs.n ? errs.list[0].text : "");
	yaml_errors_free(&errs);
}

Test(adapters, one_that_no_document_names_is_a_model_beside_its_own)
{
	struct manifest *m = load(TWO("{name: demo, policy: p}", "  loraAdapters: [a, b]\n",
				      "  loraAdapters: [b]\n"));
	const struct manifest_model *a = manifest_find_model(m, "a", 1);
	const struct manifest_model *b = manifest_find_model(m, "b", 1);

	cr_assert_eq(m->n_models, 3);
	cr_assert_str_eq(a->adapter, "a");
	cr_assert_not(a->alias);
	cr_assert_eq(a->policy, m->models[0].policy);
	cr_assert_eq(a->n_members, 1, "only who has it");
	cr_assert_eq(m->members[a->members[0]].set, 0);
	cr_assert_eq(b->n_members, 2);
	cr_assert_str_eq(manifest_upstream(m, b, b->members[1]), "b");
	cr_assert_str_eq(manifest_upstream(m, &m->models[0], 0), "demo");
	cr_assert_eq(manifest_only_model(m), &m->models[0],
		     "a request without a model goes to the only one that is no adapter");
	manifest_free(&m);
}

Test(adapters, one_may_have_an_alias_or_an_entry_of_its_own)
{
	struct manifest *m = load(TWO(
		"{name: demo, policy: p}, {name: nick, policy: p, aliasOf: a}",
		"  loraAdapters: [a]\n", ""));
	const struct manifest_model *nick = manifest_find_model(m, "nick", 4);

	cr_assert(nick->alias);
	cr_assert_str_eq(nick->adapter, "a");
	cr_assert_eq(nick->n_members, 1);
	cr_assert_not_null(manifest_find_model(m, "a", 1));
	manifest_free(&m);
	m = load(TWO("{name: a, policy: p}", "  loraAdapters: [a]\n", ""));
	cr_assert_eq(m->n_models, 1);
	cr_assert_str_eq(m->models[0].adapter, "a");
	cr_assert_not(m->models[0].alias);
	cr_assert_null(manifest_only_model(m), "an adapter is nobody's default");
	manifest_free(&m);
}

Test(adapters, a_set_whose_workers_are_found_later_has_its_adapters_now)
{
	struct manifest *m = load(
		GATEWAY("{name: demo, policy: p}") HEAD("InferenceWorkerSet", "s")
		"  engine: vllm\n  model: demo\n  loraAdapters: [a]\n"
		"  discovery: {file: {path: /x}}\n---\n"
		HEAD("InferencePool", "q") "  workerSets: [s]\n---\n" POLICY);
	const struct manifest_model *a = manifest_find_model(m, "a", 1);

	cr_assert_not_null(a);
	cr_assert_eq(a->n_members, 0);
	manifest_free(&m);
}

Test(adapters, names_that_cannot_be_told_apart_are_refused)
{
	refused(TWO("{name: demo, policy: p}", "  loraAdapters: [a, a]\n", ""),
		"spec.loraAdapters has \"a\" twice");
	refused(TWO("{name: demo, policy: p}", "  loraAdapters: [demo]\n", ""),
		"spec.loraAdapters has the model itself");
	refused(TWO("{name: demo, policy: p}", "  loraAdapters: []\n", ""),
		"spec.loraAdapters must have from 1");
	refused(TWO("{name: demo, policy: p}", "  loraAdapters: [{a: b}]\n", ""),
		"an item of spec.loraAdapters");
	refused(TWO("{name: x, policy: p, aliasOf: [demo, a]}", "  loraAdapters: [a]\n", ""),
		"would be a LoRA adapter at some workers");
	refused(TWO("{name: x, policy: p, aliasOf: [a, b]}", "  loraAdapters: [a]\n",
		    "  loraAdapters: [b]\n"), "would be a LoRA adapter at some workers");
}

/* TK-01: the same prompt to the model, adapter-a and adapter-b never shares what is cached. */
Test(adapters, their_blocks_are_never_the_models_nor_each_others)
{
	static const char *const names[] = {"demo", "adapter-a", "adapter-b"};
	uint64_t hash[64];
	uint32_t ids[320];
	struct world w;

	begin(&w, "PredictedTTFT");
	cache(&w, 3, 0, 1000, 320, INDEX_EXACT);
	for (uint32_t i = 0; i < 320; i++)
		ids[i] = 1000 + i;
	blockhash_chain(blocks_root(SEED, "demo", slice_str("adapter-a"), slice_str(""), BLOCK),
			ids, 320, BLOCK, hash, 64);
	uint16_t slot = index_slot_take(w.writer, 4, 1, INDEX_EXACT, INDEX_GPU, BLOCK);

	for (unsigned i = 0; i < 320 / BLOCK; i++)
		cr_assert(index_put(w.writer, slot, hash[i], NULL, 0));
	for (unsigned i = 0; i < 3; i++) {
		struct msg_answer a = answer_to(&w, ids_body(names[i], 1000, 400));

		cr_assert_eq(a.verdict, VERDICT_CHOOSE, "%s", names[i]);
		cr_assert(slice_eq_str(a.model, names[i]));
		cr_assert_eq(a.candidates[0].n_edits, 0);
		cr_assert_eq(a.alias.len, 0);
		cr_assert_eq(a.candidates[0].cached, i < 2 ? 320 : 0, "%s", names[i]);
		if (i < 2)
			cr_assert_eq(a.candidates[0].row, 3 + i, "%s", names[i]);
	}
	end(&w);
}
