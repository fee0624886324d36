/* actors/common/show_tenants.c -- see show.h: what tenants may do, and have used. */
#include <string.h>

#include "actors/common/fields.h"
#include "actors/common/show.h"

static json_t *
rate(const _Atomic uint64_t *full, uint64_t per_minute, mono_ns now)
{
	struct limit_left left;
	json_t *o;

	if (per_minute == 0)
		return json_null();
	left = limit_look(full, per_minute, now);
	o = json_object();
	json_object_set_new(o, "limit", json_integer((json_int_t)left.limit));
	json_object_set_new(o, "remaining", json_integer((json_int_t)left.remaining));
	json_object_set_new(o, "full_s", json_real((double)left.full_ns / 1e9));
	return o;
}

static json_t *
money(uint64_t millionths)
{
	return json_real((double)millionths / LIMIT_MONEY);
}

static json_t *
limits_of(const struct limit_tenant *t, const struct limit_use *use,
	  const struct manifest_limits *l, mono_ns now)
{
	json_t *o = json_object(), *concurrent = json_null(), *budget = json_null();
	uint64_t spent = limit_spent(t, limit_day(clock_wall()));

	json_object_set_new(o, "requests_per_minute",
			    rate(&t->full[LIMIT_REQUESTS], l->requests_per_minute, now));
	json_object_set_new(o, "prompt_tokens_per_minute",
			    rate(&t->full[LIMIT_PROMPT], l->prompt_tokens_per_minute, now));
	json_object_set_new(o, "completion_tokens_per_minute",
			    rate(&t->full[LIMIT_COMPLETION], l->completion_tokens_per_minute,
				 now));
	if (l->concurrent) {
		concurrent = json_object();
		json_object_set_new(concurrent, "limit", json_integer(l->concurrent));
		json_object_set_new(concurrent, "remaining",
				    json_integer(use->concurrent < l->concurrent ?
						 (json_int_t)(l->concurrent - use->concurrent) :
						 0));
	}
	json_object_set_new(o, "concurrent", concurrent);
	if (l->budget_per_day) {
		budget = json_object();
		json_object_set_new(budget, "limit", money(l->budget_per_day));
		json_object_set_new(budget, "remaining",
				    money(spent < l->budget_per_day ? l->budget_per_day - spent :
								     0));
	}
	json_object_set_new(o, "budget_per_day", budget);
	return o;
}

static json_t *
tenant(const struct pm_view *view, const struct manifest_tenant *m, mono_ns now)
{
	uint32_t row = limits_find(&view->limits, limit_uid(m->name, strlen(m->name)));
	const struct limit_tenant *t;
	json_t *o, *refused;
	struct limit_use use;

	if (row == LIMIT_NO_ROW)
		return NULL;
	t = &view->limits.tenant[row];
	limits_sum(&view->limits, row, &use);
	o = json_object();
	refused = json_object();
	json_object_set_new(o, "name", json_string(m->name));
	json_object_set_new(o, "blocked", json_boolean(m->blocked || pm_tenant_blocked(t)));
	json_object_set_new(o, "priority", json_integer(m->priority));
	json_object_set_new(o, "weight", json_integer(m->weight));
	json_object_set_new(o, "in_flight", json_integer((json_int_t)use.concurrent));
	json_object_set_new(o, "requests", json_integer((json_int_t)use.requests));
	json_object_set_new(o, "prompt_tokens", json_integer((json_int_t)use.prompt));
	json_object_set_new(o, "cached_tokens", json_integer((json_int_t)use.cached));
	json_object_set_new(o, "completion_tokens", json_integer((json_int_t)use.completion));
	json_object_set_new(o, "estimated", json_integer((json_int_t)use.estimated));
	json_object_set_new(o, "cost", money(use.cost));
	json_object_set_new(o, "spent_today", money(limit_spent(t, limit_day(clock_wall()))));
	for (unsigned i = LIMIT_BY_REQUESTS; i < LIMIT_REFUSALS; i++)
		json_object_set_new(refused, limit_refusal_name((enum limit_refusal)i),
				    json_integer((json_int_t)use.refused[i]));
	json_object_set_new(o, "refused", refused);
	json_object_set_new(o, "limits", limits_of(t, &use, &m->limits, now));
	return o;
}

json_t *
pm_show_tenants(const struct pm_view *view)
{
	json_t *o = json_object(), *list = json_array();
	mono_ns now = clock_mono();

	for (uint32_t i = 0; view->manifest && view->limits.tenant &&
			     i < view->manifest->n_tenants && i < PM_SHOW_TENANTS_MAX; i++) {
		json_t *one = tenant(view, &view->manifest->tenants[i], now);

		if (one)
			json_array_append_new(list, one);
	}
	json_object_set_new(o, "tenants", list);
	return o;
}

json_t *
pm_show_blocked(const struct pm_view *view)
{
	json_t *list = json_array();

	for (uint32_t i = 0; view->limits.tenant && i < view->limits.tenants; i++) {
		const struct limit_tenant *t = &view->limits.tenant[i];

		if (pm_load64(&t->uid) && pm_tenant_blocked(t))
			json_array_append_new(list, pm_json_text(t->name, sizeof t->name));
	}
	return list;
}
