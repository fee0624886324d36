/* actors/policy/who.c -- see who.h. */
#include "actors/policy/who.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "actors/policy/question.h"
#include "shm/limit.h"

#define PRIORITY_NOBODY 50

struct who {
	uint32_t n;
	struct name {
		uint64_t uid;
		uint32_t tenant;
	} name[];                       /* by uid */
};

static int
by_uid(const void *a, const void *b)
{
	const struct name *x = a, *y = b;

	return x->uid < y->uid ? -1 : x->uid > y->uid;
}

int
who_new(struct who **ret, const struct manifest *manifest)
{
	struct who *who = malloc(sizeof *who + manifest->n_tenants * sizeof who->name[0]);

	if (!who)
		return -ENOMEM;
	who->n = manifest->n_tenants;
	for (uint32_t i = 0; i < who->n; i++) {
		const char *name = manifest->tenants[i].name;

		who->name[i] = (struct name){limit_uid(name, strlen(name)), i};
	}
	qsort(who->name, who->n, sizeof who->name[0], by_uid);
	*ret = who;
	return 0;
}

void
who_free(struct who **who)
{
	free(*who);
	*who = NULL;
}

bool
who_named(const struct who *who, uint64_t uid, uint32_t *ret_tenant)
{
	const struct name key = {.uid = uid};
	const struct name *found;

	*ret_tenant = MANIFEST_NONE;
	if (uid == 0)
		return true;
	found = bsearch(&key, who->name, who->n, sizeof who->name[0], by_uid);
	if (found)
		*ret_tenant = found->tenant;
	return found != NULL;
}

int32_t
who_priority(const struct manifest *manifest, uint32_t tenant, int64_t said)
{
	int64_t priority = tenant == MANIFEST_NONE ? PRIORITY_NOBODY :
		(int64_t)manifest->tenants[tenant].priority;

	if (said != OPENAI_UNKNOWN && said > 0)
		priority = said < priority ? priority - said : 0;
	return (int32_t)priority;
}

enum step
who_find(struct evaluate *e, struct question *q, struct msg_answer *answer)
{
	const struct manifest *manifest = e->view->manifest;

	if (!who_named(e->who, q->slot->tenant_uid, &q->tenant)) {
		question_refuse(e, answer, 401, "invalid_api_key", "tenant",
				"Your tenant is not known here any more.");
		return STEP_REFUSED;
	}
	answer->tenant = q->tenant == MANIFEST_NONE ? 0 : q->tenant + 1;
	if (q->tenant == MANIFEST_NONE &&
	    manifest->gateway.authentication == MANIFEST_AUTHENTICATION_REQUIRED) {
		question_refuse(e, answer, 401, "invalid_api_key", "tenant",
				"You must say who you are.");
		return STEP_REFUSED;
	}
	if (q->tenant != MANIFEST_NONE && manifest->tenants[q->tenant].blocked) {
		question_refuse(e, answer, 403, "tenant_blocked", "tenant",
				"Your access is blocked.");
		return STEP_REFUSED;
	}
	/* as if it were not there */
	if (q->model && !manifest_model_open(q->model, q->tenant)) {
		question_refuse(e, answer, 404, "model_not_found", "model",
				"The model `%.200s` does not exist", q->model->name);
		return STEP_REFUSED;
	}
	return STEP_FOUND;
}
