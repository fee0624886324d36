/* test_difference.c -- what is another in other documents, told to people. */
#include <criterion/criterion.h>
#include <string.h>

#include "actors/common/decide/difference.h"

#define HEAD(kind, name)                                                                           \
	"---\napiVersion: pointsman.io/v1alpha1\nkind: " kind "\nmetadata: {name: " name "}\n"
#define GATEWAY                                                                                    \
	HEAD("GatewayBackend", "front")                                                            \
	"spec: {listen: [\"127.0.0.1:8080\"], models: [{name: m, policy: chat}]}\n"
#define WORKERS(members)                                                                           \
	HEAD("InferenceWorkerSet", "gpus") "spec: {engine: vllm, model: m, members: [" members     \
	"]}\n" HEAD("InferencePool", "all") "spec: {workerSets: [gpus]}\n"
#define W1 "{name: w1, url: 'http://10.0.0.1:8000'}"
#define W2 "{name: w2, url: 'http://10.0.0.2:8000'}"
#define POLICY(spec) HEAD("InferencePolicy", "chat") "spec: {candidates: [{pool: all}]" spec "}\n"
#define PLAIN GATEWAY WORKERS(W1) POLICY("")
#define RULES(list) GATEWAY WORKERS(W1) POLICY(", rules: [" list "]")
#define BIG "{name: big, when: request.promptTokens > 10, remove: candidate.waiting > 3}"
#define SMALL "{name: small, remove: candidate.waiting > 9}"

static struct manifest *
load(const char *text)
{
	struct yaml_errors errs = {0};
	struct manifest *m = NULL;

	if (manifest_load_text("test.yaml", text, strlen(text), &m, &errs) < 0)
		yaml_errors_print(&errs, stderr);
	cr_assert_not_null(m);
	yaml_errors_free(&errs);
	return m;
}

static void
told(const char *was, const char *is, const char *what)
{
	struct manifest *a = load(was), *b = load(is);
	char buf[4096];
	size_t n = difference(a, b, buf, sizeof buf);

	cr_assert_eq(n, strlen(buf));
	cr_assert_str_eq(buf, what);
	manifest_free(&a);
	manifest_free(&b);
}

Test(difference, the_same_documents_in_another_order_are_no_difference)
{
	told(PLAIN, "# by hand\n" POLICY("") WORKERS(W1) GATEWAY, DIFFERENCE_NONE);
	told(POLICY(", minimize: Random") GATEWAY WORKERS(W1),
	     GATEWAY WORKERS(W1) HEAD("InferencePolicy", "chat")
	     "spec: {minimize: Random, candidates: [{pool: all}]}\n", DIFFERENCE_NONE);
}

Test(difference, a_policy_that_comes_or_goes_is_named)
{
	told(PLAIN, PLAIN HEAD("InferencePolicy", "new") "spec: {candidates: [{pool: all}]}\n",
	     "+ policy new\n");
	told(PLAIN HEAD("InferencePolicy", "new") "spec: {candidates: [{pool: all}]}\n", PLAIN,
	     "- policy new\n");
}

Test(difference, a_value_is_told_as_it_was_and_is)
{
	told(GATEWAY WORKERS(W1) POLICY(", minimize: Random"),
	     GATEWAY WORKERS(W1) POLICY(", minimize: Cost"),
	     "~ policy chat: minimize Random -> Cost\n");
	told(PLAIN, GATEWAY WORKERS(W1) POLICY(", minimize: Random"),
	     "+ policy chat: minimize Random\n");
}

Test(difference, a_rule_that_comes_goes_or_is_another_is_told_by_its_name)
{
	told(RULES(BIG), RULES(BIG ", " SMALL),
	     "+ policy chat: rules[small] {name: small, remove: candidate.waiting > 9}\n");
	told(RULES(BIG ", " SMALL), RULES(BIG),
	     "- policy chat: rules[small] {name: small, remove: candidate.waiting > 9}\n");
	told(RULES(SMALL), RULES("{name: small, remove: candidate.waiting > 8}"),
	     "~ policy chat: rules[small].remove candidate.waiting > 9 -> candidate.waiting > 8\n");
}

Test(difference, rules_in_another_order_are_a_difference)
{
	told(RULES(BIG ", " SMALL), RULES(SMALL ", " BIG), "~ policy chat: rules: their order\n");
}

Test(difference, items_without_a_name_are_told_whole)
{
	told(GATEWAY WORKERS(W1) POLICY(""),
	     GATEWAY WORKERS(W1) HEAD("InferencePool", "other") "spec: {workerSets: [gpus]}\n"
	     HEAD("InferencePolicy", "chat") "spec: {candidates: [{pool: other}]}\n",
	     "+ pool other\n"
	     "- policy chat: candidates {pool: all}\n"
	     "+ policy chat: candidates {pool: other}\n");
}

Test(difference, members_are_told_as_rows)
{
	told(GATEWAY WORKERS(W1) POLICY(""), GATEWAY WORKERS(W2) POLICY(""),
	     "- member gpus/w1 rank 0\n+ member gpus/w2 rank 0\n");
}

Test(difference, what_does_not_fit_is_counted)
{
	struct manifest *a = load(RULES(BIG)), *b = load(RULES(SMALL));
	char buf[200];
	size_t n;

	n = difference(a, b, buf, sizeof buf);
	cr_assert_lt(n, sizeof buf);
	cr_assert_str_eq(buf, "- policy chat: rules[big] {name: big, when: "
			 "request.promptTokens > 10, remove: candidate.waiting > 3}\n"
			 "and 1 lines more\n");
	manifest_free(&a);
	manifest_free(&b);
}
