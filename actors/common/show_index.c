/* actors/common/show_index.c -- fill, slots and holders; see show_index.h. */
#include "actors/common/show_index.h"

#include <stdlib.h>
#include <string.h>

#include "actors/common/decide/member.h"
#include "actors/common/fields.h"
#include "actors/common/prompt/blocks.h"
#include "actors/common/verbs.h"
#include "shm/blockhash.h"

#define TIERS           2u              /* enum index_tier, with names */
#define ROLES           4u              /* enum index_role from 1 */
#define BLOCK_SIZES     8u              /* of one model's workers, told apart */
#define SLOT_READS      3               /* of one that changes hands meanwhile */

static const char *const tier_names[TIERS] = {"gpu", "offload"};
static const char *const role_names[ROLES] = {"-", "exact", "speculative", "demoted"};
static const char *const state_names[] = {"free", "live", "retired"};

const char *
pm_show_tier_name(unsigned tier)
{
	return tier < TIERS ? tier_names[tier] : "unknown";
}

const char *
pm_show_role_name(unsigned role)
{
	return role < ROLES ? role_names[role] : "unknown";
}

static const char *
state_name(unsigned state)
{
	return state <= INDEX_SLOT_RETIRED ? state_names[state] : "unknown";
}

static void
put(json_t *o, const char *key, uint64_t n)
{
	json_object_set_new(o, key, json_integer((json_int_t)n));
}

/* ---- slots ---- */

struct slot_seen {
	uint16_t id;
	uint64_t word;
	uint32_t row_gen, block_tokens;
	mono_ns born_ns, expires_ns;
	uint64_t stored, removed;
};

/* One slot with the fields of one owner, or, if it will not stand still, of the last look. */
static struct slot_seen
slot_look(const struct index_slot *slots, uint16_t id)
{
	const struct index_slot *at = &slots[id];
	struct slot_seen s = {.id = id};

	for (unsigned i = 0; i < SLOT_READS; i++) {
		s.word = atomic_load_explicit(&at->word, memory_order_acquire);
		s.row_gen = at->row_gen;
		s.block_tokens = at->block_tokens;
		s.born_ns = at->born_ns;
		s.expires_ns = at->expires_ns;
		s.removed = pm_load64(&at->removed);
		s.stored = pm_load64(&at->stored);
		atomic_thread_fence(memory_order_acquire);
		if (pm_load64(&at->word) == s.word)
			break;
	}
	return s;
}

static uint64_t
held(const struct slot_seen *s)
{
	return s->stored > s->removed ? s->stored - s->removed : 0;
}

static json_t *
worker_name(const struct pm_view *view, const struct slot_seen *s)
{
	return pm_json_member(view->rows.head ? &view->rows : NULL, index_slot_row(s->word),
			      s->row_gen);
}

static void
slot_identity(json_t *o, const struct pm_view *view, const struct slot_seen *s)
{
	put(o, "slot", s->id);
	put(o, "row", index_slot_row(s->word));
	json_object_set_new(o, "worker", worker_name(view, s));
	json_object_set_new(o, "tier", json_string(pm_show_tier_name(index_slot_tier(s->word))));
	json_object_set_new(o, "role", json_string(pm_show_role_name(index_slot_role(s->word))));
	json_object_set_new(o, "state", json_string(state_name(index_slot_state(s->word))));
}

static json_t *
slot_of(const struct pm_view *view, const struct slot_seen *s, mono_ns now)
{
	json_t *o = json_object();

	slot_identity(o, view, s);
	put(o, "slot_gen", index_slot_gen(s->word));
	json_object_set_new(o, "block_tokens", pm_json_nonzero(s->block_tokens));
	json_object_set_new(o, "age_s", pm_json_seconds(s->born_ns, now));
	json_object_set_new(o, "expires_in_s",
			    s->expires_ns ? pm_json_seconds(now, s->expires_ns) : json_null());
	put(o, "stored", s->stored);
	put(o, "removed", s->removed);
	put(o, "held", held(s));
	return o;
}

static json_t *
absent(void)
{
	return pm_verb_refusal("absent", "no prefix index is in view; the supervisor has not "
			       "shared one, or its layout is another build's");
}

/* Does any row bear this name? */
static bool
worker_known(const struct pm_view *view, const char *worker)
{
	for (unsigned i = 0; i < pm_view_rows(view); i++)
		if (strncmp(view->rows.text[i].member, worker, ROW_NAME_MAX) == 0)
			return true;
	return false;
}

json_t *
pm_show_index_slots(const struct pm_view *view, const char *worker, unsigned after, unsigned limit,
		    json_t **ret_refused)
{
	const struct index_slot *slots;
	json_t *o, *list, *next = NULL;
	mono_ns now = clock_mono();
	uint32_t max_slots;

	if (!view->reader) {
		*ret_refused = absent();
		return NULL;
	}
	if (worker && !worker_known(view, worker)) {
		*ret_refused = pm_verb_refusal("bad_request", "no worker is called \"%s\"", worker);
		return NULL;
	}
	slots = index_slots(view->reader, &max_slots);
	list = json_array();
	for (uint32_t id = after + 1; id <= max_slots && !next; id++) {
		struct slot_seen s = slot_look(slots, (uint16_t)id);
		json_t *name = worker_name(view, &s);
		bool wanted = index_slot_state(s.word) != INDEX_SLOT_FREE &&
			      (!worker || (json_is_string(name) &&
					   strcmp(json_string_value(name), worker) == 0));

		json_decref(name);
		if (!wanted)
			continue;
		if (json_array_size(list) == limit)
			next = json_integer(json_integer_value(json_object_get(json_array_get(
				list, limit - 1), "slot")));
		else
			json_array_append_new(list, slot_of(view, &s, now));
	}
	o = json_object();
	json_object_set_new(o, "slots", list);
	json_object_set_new(o, "next", next ? next : json_null());
	return o;
}

/* ---- fill ---- */

struct group {                          /* of live or retired slots */
	uint64_t slots, held;
};

struct census {
	uint64_t free, live, retired, odd, backlog;
	struct group group[INDEX_SLOT_RETIRED + 1][TIERS][ROLES];
	struct row_census {
		uint64_t slots, retired, held[TIERS][ROLES];
	} *row;                         /* by row, of live slots; NULL: no memory, or no rows */
	uint32_t rows;
};

/* Only what its row says of itself by now; the rest belongs to an owner that is gone. */
static struct row_census *
census_row(const struct pm_view *view, struct census *c, const struct slot_seen *s)
{
	uint16_t row = index_slot_row(s->word);

	if (!c->row || row >= c->rows ||
	    atomic_load_explicit(&view->rows.row[row].row_gen, memory_order_acquire) != s->row_gen)
		return NULL;
	return &c->row[row];
}

static void
census_take(const struct pm_view *view, struct census *c)
{
	uint32_t max_slots;
	const struct index_slot *slots = index_slots(view->reader, &max_slots);

	c->rows = pm_view_rows(view);
	c->row = c->rows ? calloc(c->rows, sizeof c->row[0]) : NULL;
	for (uint32_t id = 1; id <= max_slots; id++) {
		struct slot_seen s = slot_look(slots, (uint16_t)id);
		unsigned state = index_slot_state(s.word), tier = index_slot_tier(s.word),
			 role = index_slot_role(s.word);
		struct row_census *row;

		c->free += state == INDEX_SLOT_FREE;
		c->live += state == INDEX_SLOT_LIVE;
		c->retired += state == INDEX_SLOT_RETIRED;
		if (state == INDEX_SLOT_FREE)
			continue;
		if (state > INDEX_SLOT_RETIRED || tier >= TIERS || role == 0 || role >= ROLES) {
			c->odd++;
			continue;
		}
		if (state == INDEX_SLOT_RETIRED)
			c->backlog += held(&s);
		c->group[state][tier][role].slots++;
		c->group[state][tier][role].held += held(&s);
		row = census_row(view, c, &s);
		if (row && state == INDEX_SLOT_LIVE) {
			row->slots++;
			row->held[tier][role] += held(&s);
		} else if (row) {
			row->retired++;
		}
	}
}

static json_t *
groups_of(const struct census *c)
{
	json_t *list = json_array();

	for (unsigned state = INDEX_SLOT_LIVE; state <= INDEX_SLOT_RETIRED; state++)
		for (unsigned tier = 0; tier < TIERS; tier++)
			for (unsigned role = INDEX_EXACT; role < ROLES; role++) {
				const struct group *g = &c->group[state][tier][role];
				json_t *o = json_object();

				json_object_set_new(o, "state", json_string(state_name(state)));
				json_object_set_new(o, "tier",
						    json_string(pm_show_tier_name(tier)));
				json_object_set_new(o, "role",
						    json_string(pm_show_role_name(role)));
				put(o, "slots", g->slots);
				put(o, "held", g->held);
				json_array_append_new(list, o);
			}
	return list;
}

static json_t *
workers_of(const struct pm_view *view, const struct census *c)
{
	json_t *list = json_array();
	mono_ns now = clock_mono();

	for (uint32_t i = 0; c->row && i < c->rows; i++) {
		const struct row_census *r = &c->row[i];
		struct pm_view_worker w;
		json_t *o;

		if (!pm_view_worker(view, (uint16_t)i, now, &w))
			continue;
		o = json_object();
		put(o, "row", i);
		json_object_set_new(o, "worker", pm_json_text(w.name, sizeof w.name));
		json_object_set_new(o, "rank", json_integer(w.rank));
		json_object_set_new(o, "cache", json_string(cache_state_name(w.cache_state)));
		json_object_set_new(o, "reason", json_string(cache_reason_name(w.cache_reason)));
		json_object_set_new(o, "since_s", pm_json_seconds(w.cache_since_ns, now));
		put(o, "slots", r->slots);
		put(o, "slots_retired", r->retired);
		put(o, "exact_gpu", r->held[INDEX_GPU][INDEX_EXACT]);
		put(o, "exact_offload", r->held[INDEX_OFFLOAD][INDEX_EXACT]);
		put(o, "speculative", r->held[INDEX_GPU][INDEX_SPECULATIVE] +
		    r->held[INDEX_OFFLOAD][INDEX_SPECULATIVE]);
		put(o, "demoted", r->held[INDEX_GPU][INDEX_DEMOTED] +
		    r->held[INDEX_OFFLOAD][INDEX_DEMOTED]);
		json_array_append_new(list, o);
	}
	return list;
}

static json_t *
refused_of(const struct index_header *h)
{
	json_t *o = json_object();

	for (unsigned i = 0; i < INDEX_CAUSES; i++)
		put(o, index_cause_name((enum index_cause)i), pm_load64(&h->refused[i]));
	return o;
}

static json_t *
pool_of(const struct index_header *h)
{
	json_t *list = json_array(), *o;

	for (unsigned c = 0; c < INDEX_CLASSES; c++) {
		const struct index_pool_header *pool = &h->pool[c];

		if (pool->chunks == 0)
			continue;
		o = json_object();
		put(o, "class", c);
		put(o, "chunks", pool->chunks);
		put(o, "used", pm_load64(&h->pool_used[c]));
		put(o, "chunk_bytes", 8 * (uint64_t)pool->words);
		json_array_append_new(list, o);
	}
	return list;
}

json_t *
pm_show_index(const struct pm_view *view, json_t **ret_refused)
{
	const struct index_header *h = pm_view_index(view);
	const struct segment_header *seg = view->index.head;
	struct census c = {0};
	json_t *o, *slots;
	uint64_t touched;

	if (!h || !view->reader) {
		*ret_refused = absent();
		return NULL;
	}
	census_take(view, &c);
	touched = segment_touched(&view->index);
	o = json_object();
	put(o, "entries", pm_load64(&h->entries));
	put(o, "holders", pm_load64(&h->holders));
	put(o, "lanes", h->nbuckets * 4);
	json_object_set_new(o, "load", json_real((double)pm_load64(&h->entries) /
						 (double)(h->nbuckets * 4)));
	put(o, "size_bytes", view->index.size);
	json_object_set_new(o, "touched_bytes", pm_json_integer_if(touched != UINT64_MAX, touched));
	put(o, "private_bytes", pm_load64(&h->private_bytes));
	put(o, "evictions", pm_load64(&h->evictions));
	put(o, "evicted", pm_load64(&h->evicted));
	put(o, "dropped", pm_load64(&h->dropped));
	json_object_set_new(o, "refused", refused_of(h));
	json_object_set_new(o, "pool", pool_of(h));
	put(o, "scrubbed", pm_load64(&h->scrubbed));
	put(o, "scrub_backlog", c.backlog);
	put(o, "recoveries", pm_load64(&h->recoveries));
	put(o, "slots_epoch", pm_load64(&h->slots_epoch));
	json_object_set_new(o, "writer_pid", pm_json_nonzero(atomic_load_explicit(
			    &seg->writer_pid, memory_order_relaxed)));
	json_object_set_new(o, "writer_heartbeat_age_s",
			    pm_json_seconds(pm_load64(&seg->heartbeat_ns), clock_mono()));
	slots = json_object();
	put(slots, "capacity", h->max_slots);
	put(slots, "free", c.free);
	put(slots, "live", c.live);
	put(slots, "retired", c.retired);
	put(slots, "unknown", c.odd);
	json_object_set_new(o, "slots", slots);
	json_object_set_new(o, "groups", groups_of(&c));
	json_object_set_new(o, "workers", workers_of(view, &c));
	free(c.row);
	return o;
}

/* ---- holders ---- */

struct holders {
	const struct pm_view *view;
	uint16_t *id;                           /* of one block */
	uint8_t *named;                         /* per slot id */
	uint32_t max_slots;
	unsigned listed;
	json_t *blocks;
};

static void
block_add(struct holders *k, uint64_t hash)
{
	unsigned n = index_holders(k->view->reader, hash, k->id, k->max_slots);
	json_t *o = json_object(), *ids = json_null();

	if (n <= PM_SHOW_HOLDERS_MAX - k->listed) {
		ids = json_array();
		for (unsigned i = 0; i < n; i++) {
			json_array_append_new(ids, json_integer(k->id[i]));
			k->named[k->id[i]] = 1;
		}
		k->listed += n;
	}
	json_object_set_new(o, "hash", pm_json_hex(hash));
	put(o, "holders", n);
	json_object_set_new(o, "slots", ids);
	json_array_append_new(k->blocks, o);
}

static json_t *
named_of(const struct holders *k)
{
	const struct index_slot *slots;
	json_t *list = json_array();
	uint32_t max_slots;

	slots = index_slots(k->view->reader, &max_slots);
	for (uint32_t id = 1; id <= k->max_slots; id++) {
		struct slot_seen s;
		json_t *o;

		if (!k->named[id])
			continue;
		s = slot_look(slots, (uint16_t)id);
		o = json_object();
		slot_identity(o, k->view, &s);
		json_array_append_new(list, o);
	}
	return list;
}

static json_t *
depth_of(const struct pm_view *view, const uint64_t *hash, unsigned n)
{
	unsigned rows = pm_view_rows(view), found;
	struct index_depth *depth = rows ? calloc(rows, sizeof *depth) : NULL;
	json_t *list = json_array();

	found = depth ? index_match(view->reader, hash, n, depth, rows) : 0;
	for (unsigned i = 0; i < found; i++) {
		const struct index_depth *d = &depth[i];
		struct pm_view_worker w;
		json_t *o;

		if (!pm_view_worker(view, d->row, clock_mono(), &w))
			continue;               /* no decision would choose it */
		o = json_object();
		put(o, "row", d->row);
		json_object_set_new(o, "worker", pm_json_text(w.name, sizeof w.name));
		put(o, "exact", d->exact);
		put(o, "gpu", d->gpu);
		put(o, "any", d->any);
		json_array_append_new(list, o);
	}
	free(depth);
	return list;
}

json_t *
pm_show_index_holders(const struct pm_view *view, const uint64_t *hash, unsigned n,
		      json_t **ret_refused)
{
	struct holders k = {.view = view};
	json_t *o = NULL;

	if (!view->reader) {
		*ret_refused = absent();
		return NULL;
	}
	index_slots(view->reader, &k.max_slots);
	k.id = calloc(k.max_slots, sizeof k.id[0]);
	k.named = calloc(k.max_slots + 1u, 1);
	if (k.id && k.named) {
		k.blocks = json_array();
		for (unsigned i = 0; i < n; i++)
			block_add(&k, hash[i]);
		o = json_object();
		json_object_set_new(o, "blocks", k.blocks);
		json_object_set_new(o, "slots", named_of(&k));
		json_object_set_new(o, "depth", depth_of(view, hash, n));
	}
	free(k.id);
	free(k.named);
	return o;
}

/* ---- a prompt's blocks ---- */

/* What the workers call it: a client's name is that of the first worker it may be sent to. */
static const char *
workers_model(const struct pm_view *view, const char *model)
{
	const struct manifest *m = view->manifest;
	const struct manifest_model *found =
		m ? manifest_find_model(m, model, strlen(model)) : NULL;

	for (uint32_t i = 0; found && i < found->n_members; i++) {
		const struct manifest_set *set = member_set(m, &m->members[found->members[i]]);

		if (set)
			return set->model;
	}
	return model;
}

/* Sizes of that model's blocks, each once; how many. */
static unsigned
block_sizes(const struct pm_view *view, const char *model, uint32_t *ret, unsigned *ret_workers)
{
	struct pm_view_worker w;
	unsigned n = 0;

	*ret_workers = 0;
	for (unsigned i = 0; i < pm_view_rows(view); i++) {
		unsigned k = 0;

		if (!pm_view_worker(view, (uint16_t)i, clock_mono(), &w) ||
		    strcmp(w.model, model) != 0)
			continue;
		++*ret_workers;
		while (k < n && ret[k] != w.block_tokens)
			k++;
		if (k == n && n < BLOCK_SIZES && w.block_tokens != 0)
			ret[n++] = w.block_tokens;
	}
	return n;
}

/* 0: refused. */
static uint32_t
block_size(const struct pm_view *view, const char *model, uint32_t given, json_t **ret_refused)
{
	uint32_t size[BLOCK_SIZES];
	unsigned workers, n = block_sizes(view, model, size, &workers);

	if (workers == 0)
		*ret_refused = pm_verb_refusal("bad_request", "no worker serves model \"%s\"",
					       model);
	else if (given == 0 && n == 0)
		*ret_refused = pm_verb_refusal("bad_request", "no worker of model \"%s\" has said "
					       "its block size yet: give \"block_tokens\"", model);
	else if (given == 0 && n > 1)
		*ret_refused = pm_verb_refusal("bad_request", "workers of model \"%s\" have blocks "
					       "of different sizes, %u and %u tokens: give "
					       "\"block_tokens\"", model, size[0], size[1]);
	else
		return given ? given : size[0];
	return 0;
}

static struct slice
slice_or_none(const char *text)
{
	return text ? slice_str(text) : (struct slice){"", 0};
}

json_t *
pm_show_index_prompt(const struct pm_view *view, const struct pm_show_prompt *p,
		     const uint32_t *tokens, size_t n, json_t **ret_refused)
{
	uint64_t hash[PM_SHOW_HASHES_MAX], root;
	const char *model;
	uint32_t size;
	size_t blocks;
	json_t *o;

	if (!view->reader) {
		*ret_refused = absent();
		return NULL;
	}
	model = workers_model(view, p->model);
	size = block_size(view, model, p->block_tokens, ret_refused);
	if (size == 0)
		return NULL;
	if (n / size > PM_SHOW_HASHES_MAX) {
		*ret_refused = pm_verb_refusal("bad_request", "\"tokens\" has more than %u blocks "
					       "of %u: go on from the last block's hash with "
					       "\"parent\"", PM_SHOW_HASHES_MAX, size);
		return NULL;
	}
	root = p->parent ? p->parent : blocks_root(index_seed(view->reader), model,
						   slice_or_none(p->adapter),
						   slice_or_none(p->salt), size);
	blocks = blockhash_chain(root, tokens, n, size, hash, PM_SHOW_HASHES_MAX);
	o = pm_show_index_holders(view, hash, (unsigned)blocks, ret_refused);
	if (!o)
		return NULL;
	json_object_set_new(o, "model", json_string(model));
	put(o, "block_tokens", size);
	put(o, "tokens_used", blocks * size);
	return o;
}
