/* actors/common/show_tokens.c -- what is proven of our tokens, per worker and per model. */
#include "actors/common/fields.h"
#include "actors/common/prompt/probes.h"
#include "actors/common/show.h"
#include "shm/trust.h"

static json_t *
difference_of(const struct row_trust *t)
{
	json_t *o;

	if (t->why != TRUST_PROBES_DIFFER)
		return json_null();
	o = json_object();
	json_object_set_new(o, "probe", json_string(t->probe < probes_count() ?
						    probes_at(t->probe)->name : "?"));
	json_object_set_new(o, "at", json_integer(t->at));
	json_object_set_new(o, "ours", pm_json_integer_if(t->ours != UINT32_MAX, t->ours));
	json_object_set_new(o, "theirs", pm_json_integer_if(t->theirs != UINT32_MAX, t->theirs));
	json_object_set_new(o, "our_tokens", json_integer(t->n_ours));
	json_object_set_new(o, "their_tokens", json_integer(t->n_theirs));
	return o;
}

json_t *
pm_show_worker_tokens(const struct pm_view_worker *w, mono_ns now)
{
	const struct row_trust *t = &w->trust;
	json_t *o;

	if (!w->has_trust)
		return json_null();
	o = json_object();
	json_object_set_new(o, "state", json_string(trust_state_name(t->state)));
	json_object_set_new(o, "reason", json_string(trust_why_name(t->why)));
	json_object_set_new(o, "since_s", pm_json_seconds(row_trust_since(t), now));
	json_object_set_new(o, "engine_version", t->version[0] ?
			    pm_json_text(t->version, sizeof t->version) : json_null());
	json_object_set_new(o, "probes", json_integer(t->probes));
	json_object_set_new(o, "agreed", json_integer(t->agreed));
	json_object_set_new(o, "differed", json_integer(t->differed));
	json_object_set_new(o, "difference", difference_of(t));
	json_object_set_new(o, "usage_same", json_integer(t->usage_same));
	json_object_set_new(o, "usage_differ", json_integer(t->usage_differ));
	json_object_set_new(o, "cached_same", json_integer(t->cached_same));
	json_object_set_new(o, "cached_more", json_integer(t->cached_more));
	json_object_set_new(o, "cached_less", json_integer(t->cached_less));
	json_object_set_new(o, "chains_routed", json_integer((json_int_t)w->chains_routed));
	json_object_set_new(o, "chains_stored", json_integer((json_int_t)w->chains_stored));
	return o;
}

static json_int_t
count_of(const _Atomic uint32_t *word)
{
	return atomic_load_explicit(word, memory_order_relaxed);
}

json_t *
pm_show_models(const struct pm_view *view)
{
	json_t *list = json_array();
	mono_ns now = clock_mono();

	for (unsigned i = 0; view->rows.head && i < TRUST_MODELS; i++) {
		const struct model_trust *m = &view->rows.models[i];
		char name[ROW_URL_MAX];
		json_t *o;

		if (!trust_model_name(m, name) || !trust_has_workers(m))
			continue;
		o = json_object();
		json_object_set_new(o, "model", pm_json_text(name, sizeof name));
		json_object_set_new(o, "tokens",
				    json_string(trust_state_name((unsigned)count_of(&m->state))));
		json_object_set_new(o, "since_s", pm_json_seconds(pm_load64(&m->since_ns), now));
		json_object_set_new(o, "exact", json_integer(count_of(&m->exact)));
		json_object_set_new(o, "unverified", json_integer(count_of(&m->unverified)));
		json_object_set_new(o, "mismatch", json_integer(count_of(&m->mismatch)));
		json_array_append_new(list, o);
	}
	return list;
}
