/* tests/unit/test_who.c -- whose a question is, under the documents that decide it. */
#include "tests/unit/policy_world.h"

#include "actors/policy/who.h"
#include "shm/limit.h"

#define FRONT                                                                                 \
	"apiVersion: pointsman.io/v1alpha1\nkind: GatewayBackend\nmetadata: {name: g}\n"          \
	"spec:\n  listen: [\"127.0.0.1:8080\"]\n  authentication: %s\n  models:\n"                \
	"    - {name: demo, policy: p}\n    - {name: secret, policy: p, aliasOf: demo, "           \
	"tenants: [b]}\n"                                                                         \
	"---\napiVersion: pointsman.io/v1alpha1\nkind: InferenceWorkerSet\nmetadata: {name: s}\n" \
	"spec: {engine: vllm, model: demo, members: [{name: w0, url: \"http://127.0.0.1:9\"}]}\n" \
	"---\napiVersion: pointsman.io/v1alpha1\nkind: InferencePool\nmetadata: {name: pool}\n"   \
	"spec: {workerSets: [s]}\n"                                                               \
	"---\napiVersion: pointsman.io/v1alpha1\nkind: InferencePolicy\nmetadata: {name: p}\n"    \
	"spec: {candidates: [{pool: pool}]}\n"
#define TENANT(name, digit, more)                                                            \
	"---\napiVersion: pointsman.io/v1alpha1\nkind: InferenceTenant\n"                        \
	"metadata: {name: " name "}\nspec: {" more "keys: [\"sha256:"                            \
	"000000000000000000000000000000000000000000000000000000000000000" digit "\"]}\n"

static void
begin_with(struct world *w, const char *authentication)
{
	char text[3300];

	snprintf(text, sizeof text,
		 FRONT TENANT("a", "1", "priority: 70, ") TENANT("b", "2", "")
			 TENANT("c", "3", "blocked: true, "),
		 authentication);
	begin(w, text);
}

/* The answer to a question of that tenant; "": nobody's. */
static struct msg_answer
of(struct world *w, const char *tenant, const char *body)
{
	/* the next slot, as ingress fills it before it asks */
	w->slots.slot[w->next_slot].tenant_uid =
		tenant[0] ? limit_uid(tenant, strlen(tenant)) : 0;
	return answer_to(w, body);
}

Test(who, tenants_of_these_documents_may_ask_and_others_may_not)
{
	struct world w;
	struct msg_answer a;

	begin_with(&w, "optional");
	a = of(&w, "a", ids_body("demo", 1, 20));
	cr_assert(a.verdict == VERDICT_CHOOSE && a.tenant == 1 && a.priority == 70);
	a = of(&w, "b", ids_body("demo", 1, 20));
	cr_assert(a.verdict == VERDICT_CHOOSE && a.tenant == 2 && a.priority == 50);
	a = of(&w, "", ids_body("demo", 1, 20));
	cr_assert(a.verdict == VERDICT_CHOOSE && a.tenant == 0);
	a = of(&w, "removed", ids_body("demo", 1, 20));
	cr_assert(a.verdict == VERDICT_REJECT && a.status == 401);
	a = of(&w, "c", ids_body("demo", 1, 20));
	cr_assert(a.verdict == VERDICT_REJECT && a.status == 403);
	cr_assert(slice_eq_str(a.code, "tenant_blocked") && slice_eq_str(a.rule, "tenant"));
	end(&w);
}

Test(who, nobody_is_let_in_once_somebody_is_wanted)
{
	struct world w;
	struct msg_answer a;

	begin_with(&w, "required");     /* it came before these documents were in force */
	a = of(&w, "", ids_body("demo", 1, 20));
	cr_assert(a.verdict == VERDICT_REJECT && a.status == 401);
	a = of(&w, "a", ids_body("demo", 1, 20));
	cr_assert(a.verdict == VERDICT_CHOOSE);
	end(&w);
}

Test(who, a_model_of_others_is_as_none)
{
	struct world w;
	struct msg_answer a;

	begin_with(&w, "off");
	a = of(&w, "b", ids_body("secret", 1, 20));
	cr_assert(a.verdict == VERDICT_CHOOSE);
	a = of(&w, "a", ids_body("secret", 1, 20));
	cr_assert(a.verdict == VERDICT_REJECT && a.status == 404);
	a = of(&w, "", ids_body("secret", 1, 20));
	cr_assert(a.verdict == VERDICT_REJECT && a.status == 404);
	end(&w);
}

Test(who, a_request_may_put_itself_behind_its_tenants_others_but_not_before)
{
	struct manifest_tenant tenant = {.name = "a", .priority = 70};
	struct manifest m = {.tenants = &tenant, .n_tenants = 1};

	cr_assert_eq(who_priority(&m, 0, OPENAI_UNKNOWN), 70);
	cr_assert_eq(who_priority(&m, 0, 20), 50);
	cr_assert_eq(who_priority(&m, 0, 71), 0);
	cr_assert_eq(who_priority(&m, 0, INT64_MAX), 0);
	cr_assert_eq(who_priority(&m, 0, -5), 70);
	cr_assert_eq(who_priority(&m, MANIFEST_NONE, OPENAI_UNKNOWN), 50);
}
