/* actors/policy/ruling.c -- facts for rules, from what was gathered; see ruling.h. */
#include "actors/policy/ruling.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "actors/common/decide/member.h"

struct ruling {
	struct view *view;
	struct facts_candidate *facts;  /* of every member of the manifest at most */
	double *prefer;
	struct facts_pool *pools;
	uint32_t cap, cap_prefer, cap_pools;
	struct rules_input input;
};

int
ruling_documents(struct ruling *r, const struct manifest *m)
{
	uint32_t members = m->n_members > r->cap ? m->n_members : r->cap;
	uint32_t pools = m->n_pools > r->cap_pools ? m->n_pools : r->cap_pools;
	uint32_t prefers = r->cap_prefer;

	for (uint32_t i = 0; i < m->n_policies; i++)
		if (rules_prefers(&m->policies[i]) > prefers)
			prefers = rules_prefers(&m->policies[i]);
	struct facts_candidate *facts = calloc(members + 1, sizeof *facts);
	double *prefer = calloc((size_t)prefers * members + 1, sizeof *prefer);
	struct facts_pool *pool = calloc(pools + 1, sizeof *pool);

	if (!facts || !prefer || !pool) {
		free(facts);
		free(prefer);
		free(pool);
		return -ENOMEM;
	}
	free(r->facts);
	free(r->prefer);
	free(r->pools);
	r->facts = facts;
	r->prefer = prefer;
	r->pools = pool;
	r->cap = members;
	r->cap_prefer = prefers;
	r->cap_pools = pools;
	return 0;
}

int
ruling_new(struct ruling **ret, struct view *view)
{
	struct ruling *r = calloc(1, sizeof *r);

	if (!r)
		return -ENOMEM;
	r->view = view;
	if (ruling_documents(r, view->manifest) < 0) {
		ruling_free(&r);
		return -ENOMEM;
	}
	*ret = r;
	return 0;
}

void
ruling_free(struct ruling **ret)
{
	struct ruling *r = *ret;

	if (!r)
		return;
	free(r->facts);
	free(r->prefer);
	free(r->pools);
	free(r);
	*ret = NULL;
}

/* ---- candidates ---- */

static uint32_t
narrowed(int64_t tokens)
{
	return tokens < 0 || tokens > UINT32_MAX ? UINT32_MAX : (uint32_t)tokens;
}

static void
fill_provider(const struct manifest *m, const struct manifest_member *member,
	      const struct facts_request *request, struct facts_candidate *f)
{
	const struct manifest_provider *p = &m->providers[member->provider];

	f->kind = FACTS_PROVIDER;
	f->name = f->provider = slice_str(p->name);
	f->pool = (struct slice){"", 0};
	f->model = slice_str(p->models[member->provider_model].name);
	f->labels = p->labels;
	f->n_labels = p->n_labels;
	if (request->prompt_tokens != FACTS_INT_UNKNOWN)
		f->cost = member_cost(m, member, narrowed(request->prompt_tokens), 0,
				      narrowed(request->max_tokens));
}

static void
fill_worker(const struct manifest *m, const struct manifest_member *member, uint32_t pool,
	    struct facts_candidate *f)
{
	const struct manifest_set *set = &m->sets[member->set];

	f->kind = FACTS_WORKER;
	f->name = slice_str(member->name);
	f->provider = (struct slice){"", 0};
	if (pool < m->n_pools) {
		f->pool = slice_str(m->pools[pool].name);
		f->pool_index = pool;
	}
	f->model = slice_str(set->model);
	f->labels = set->labels;
	f->n_labels = set->n_labels;
	f->cost = 0;                    /* as member_cost() has it */
}

static void
fill_moment(const struct view *view, const struct gather_candidate *c, struct facts_candidate *f)
{
	int64_t ours = c->in.prefilling > 0 ? (int64_t)c->in.prefilling - 1 : 0;
	const struct row *row = &view->rows.row[c->row];

	f->state = c->state;
	f->cache_state = (uint8_t)atomic_load_explicit(&row->cache_state, memory_order_relaxed);
	f->cached_tokens = c->cached;
	f->cached_share = c->in.prompt > 0 ? (double)c->cached / (double)c->in.prompt : 0;
	f->pending_tokens = c->out.ahead;
	f->predicted_ttft_s = c->out.ttft_s;
	if (f->kind == FACTS_PROVIDER) {
		f->waiting = c->in.prefilling;  /* all it owes us a first byte of */
		f->running = c->in.decoding;
		return;
	}
	if (c->waiting != UINT32_MAX) {
		f->scraped_waiting = c->waiting;
		f->waiting = ours + c->in.foreign_waiting;
	}
	if (c->running != UINT32_MAX)
		f->running = (int64_t)c->in.decoding + c->in.foreign_running;
	if (c->kv_usage >= 0)
		f->kv_usage = (double)c->kv_usage;
}

static void
fill_candidates(struct ruling *r, const struct gather *g, const struct manifest_policy *policy,
		const struct facts_request *request)
{
	const struct manifest *m = r->view->manifest;
	const uint32_t *entry = gather_entries(g);

	for (uint32_t i = 0; i < gather_n(g); i++) {
		const struct gather_candidate *c = gather_at(g, i);
		const struct manifest_member *member = &m->members[c->member];
		struct facts_candidate *f = &r->facts[i];

		facts_candidate_init(f);
		if (member->set == MANIFEST_NONE)
			fill_provider(m, member, request, f);
		else
			fill_worker(m, member, policy->candidates[entry[i]].pool, f);
		if (c->row != ROW_NONE)
			fill_moment(r->view, c, f);
		else
			f->state = ROW_ABSENT;
	}
}

/* ---- pools ---- */

struct pool_sum {
	int64_t waiting;
	double kv_usage;
	uint32_t n_kv;
	bool unknown;                   /* of one that is up the queue is not known */
};

static void
add_worker(const struct view *view, uint32_t member, mono_ns now, struct pool_sum *sum,
	   struct facts_pool *pool)
{
	uint16_t id = view->row_of[member];
	struct row_reading reading;
	struct view_load load;
	uint32_t waiting, running, row_gen;

	if (id == ROW_NONE || id >= view->rows.capacity)
		return;
	const struct row *row = &view->rows.row[id];

	row_reading_read(row, &reading);
	if (row_state(row, &reading) != ROW_UP)
		return;
	pool->ready++;
	row_gen = atomic_load_explicit(&row->row_gen, memory_order_acquire);
	view_load(view, id, row_gen, (uint32_t)(now / 1000000u), true, &load);
	sum->waiting += load.prefilling > 0 ? (int64_t)load.prefilling - 1 : 0;
	if (!row_reading_fresh(&reading, now)) {
		sum->unknown = true;
		return;
	}
	if (reading.known & KNOWN_WAITING) {
		view_strangers(view, id, row_gen, &waiting, &running);
		sum->waiting += waiting;
	} else {
		sum->unknown = true;
	}
	if (reading.known & KNOWN_KV_USAGE) {
		sum->kv_usage += (double)reading.kv_usage;
		sum->n_kv++;
	}
}

static void
fill_pools(struct ruling *r, mono_ns now)
{
	const struct manifest *m = r->view->manifest;

	for (uint32_t i = 0; i < m->n_pools; i++) {
		struct facts_pool *pool = &r->pools[i];
		struct pool_sum sum = {0};

		facts_pool_init(pool);
		pool->ready = 0;
		for (uint32_t k = 0; k < m->pools[i].n_sets; k++) {
			const struct manifest_set *set = &m->sets[m->pools[i].sets[k]];

			for (uint32_t j = 0; j < set->n_members; j++)
				add_worker(r->view, set->first_member + j, now, &sum, pool);
		}
		if (!sum.unknown)
			pool->waiting = sum.waiting;
		if (sum.n_kv > 0)
			pool->kv_usage = sum.kv_usage / sum.n_kv;
	}
}

/* ---- together ---- */

void
ruling_apply(struct ruling *r, struct gather *g, const struct ruling_question *q,
	     struct rules_result *ret)
{
	const struct manifest *m = r->view->manifest;
	const struct manifest_policy *policy = &m->policies[q->chain[q->n_chain - 1]];
	uint64_t reads = 0;

	for (uint32_t i = 0; i < q->n_chain; i++)
		reads |= rules_reads(&m->policies[q->chain[i]]);
	fill_candidates(r, g, policy, q->request);
	if (reads & facts_of(FACTS_POOL))
		fill_pools(r, q->now);
	r->input = (struct rules_input){
		.manifest = m,
		.chain = q->chain,
		.n_chain = q->n_chain,
		.request = q->request,
		.pools = reads & facts_of(FACTS_POOL) ? r->pools : NULL,
		.facts = r->facts,
		.entry = gather_entries(g),
		.choose = {
			.candidate = gather_choose(g),
			.n = gather_n(g),
			.seed = q->seed,
			.pinned = q->pinned,
			.pin = q->pin,
		},
		.prefer = r->prefer,
		.keys = q->keys,
		.waited = q->waited,
	};
	rules_apply(&r->input, ret);
}

unsigned
ruling_rank(struct ruling *r, uint32_t ret_order[CHOOSE_RANKED])
{
	return choose_rank(&r->input.choose, ret_order);
}

const struct rules_input *
ruling_input(const struct ruling *r)
{
	return &r->input;
}
