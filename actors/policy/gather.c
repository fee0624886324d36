/* actors/policy/gather.c -- hashes, matches, loads and predictions of one decision; see
 * gather.h. */
#include "actors/policy/gather.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "actors/common/decide/member.h"
#include "actors/common/decide/slow.h"
#include "actors/common/prompt/blocks.h"
#include "shm/blockhash.h"

/* A block of a lower tier is fetched, which takes a fraction of computing it: over PCIe a tenth or
 * so on the GPUs measured, more from storage. */
#define FETCH_COSTS 8u

struct depth {                          /* of one row on one chain; stale unless stamp is current */
	uint64_t stamp;
	uint32_t exact, any, gpu;       /* blocks */
};

struct learned {                        /* coefficients of a set's rows that have learned theirs */
	double sum[COEF_COUNT];
	unsigned n;
};

struct gather {
	struct view *view;
	const struct manifest_model *model;
	const struct manifest_route *route;
	struct gather_prompt prompt;
	struct gather_chain chain[GATHER_CHAINS];
	unsigned n_chains;
	struct depth *depth;            /* chain * rows capacity + row */
	uint64_t stamp;
	struct index_depth *match;      /* rows capacity */
	struct gather_candidate *candidate;     /* of every member of the manifest at most */
	struct choose_candidate *choose;
	struct learned *learned;        /* by set */
	uint32_t cap, cap_sets;         /* of candidate and choose; of learned */
	uint32_t n;
	uint32_t last_pick;
};

int
gather_documents(struct gather *g, const struct manifest *m)
{
	uint32_t members = m->n_members > g->cap ? m->n_members : g->cap;
	uint32_t sets = m->n_sets > g->cap_sets ? m->n_sets : g->cap_sets;
	struct gather_candidate *candidate = calloc(members + 1, sizeof *candidate);
	struct choose_candidate *choose = calloc(members + 1, sizeof *choose);
	struct learned *learned = calloc(sets + 1, sizeof *learned);

	if (!candidate || !choose || !learned) {
		free(candidate);
		free(choose);
		free(learned);
		return -ENOMEM;
	}
	free(g->candidate);
	free(g->choose);
	free(g->learned);
	g->candidate = candidate;
	g->choose = choose;
	g->learned = learned;
	g->cap = members;
	g->cap_sets = sets;
	g->model = NULL;                /* of documents that go */
	g->route = NULL;
	g->n = g->n_chains = 0;
	return 0;
}

int
gather_new(struct gather **ret, struct view *view)
{
	struct gather *g = calloc(1, sizeof *g);

	if (!g)
		return -ENOMEM;
	g->view = view;
	g->depth = calloc((size_t)GATHER_CHAINS * view->rows.capacity, sizeof *g->depth);
	g->match = calloc(view->rows.capacity, sizeof *g->match);
	if (!g->depth || !g->match || gather_documents(g, view->manifest) < 0) {
		gather_free(&g);
		return -ENOMEM;
	}
	*ret = g;
	return 0;
}

void
gather_free(struct gather **ret)
{
	struct gather *g = *ret;

	if (!g)
		return;
	for (unsigned i = 0; i < GATHER_CHAINS; i++)
		free(g->chain[i].hash);
	free(g->depth);
	free(g->match);
	free(g->candidate);
	free(g->choose);
	free(g->learned);
	free(g);
	*ret = NULL;
}

static uint32_t
block_tokens_of(const struct row *row)
{
	struct row_reading reading;
	uint32_t said = atomic_load_explicit(&row->event_block_tokens, memory_order_relaxed);

	if (said != 0)
		return said;            /* what is in the index was hashed so */
	if (row->block_tokens != 0)
		return row->block_tokens;
	row_reading_read(row, &reading);
	return (reading.known & KNOWN_BLOCK_TOKENS) ? reading.block_tokens : 0;
}

static unsigned
chain_of(const struct gather *g, const char *model, uint32_t block_tokens)
{
	for (unsigned i = 0; i < g->n_chains; i++)
		if (g->chain[i].block_tokens == block_tokens &&
		    strcmp(g->chain[i].model, model) == 0)
			return i;
	return GATHER_NO_CHAIN;
}

static int
chain_hash(struct gather *g, const char *model, uint32_t block_tokens)
{
	struct gather_chain *c = &g->chain[g->n_chains];
	size_t blocks = g->prompt.n_ids / block_tokens;

	if (blocks > c->cap) {
		uint64_t *grown = realloc(c->hash, blocks * sizeof *grown);

		if (!grown)
			return -ENOMEM;
		c->hash = grown;
		c->cap = blocks;
	}
	c->model = model;
	c->block_tokens = block_tokens;
	c->root = blocks_root(index_seed(g->view->index), model, slice_str(g->model->adapter),
			      g->prompt.salt, block_tokens);
	c->n = blockhash_chain(c->root, g->prompt.ids, g->prompt.n_ids, block_tokens, c->hash,
			       blocks);
	g->n_chains++;
	return 0;
}

int
gather_hash(struct gather *g, const struct manifest_model *model,
	    const struct manifest_route *route, const struct gather_prompt *prompt)
{
	const struct manifest *manifest = g->view->manifest;

	g->model = model;
	g->route = route;
	g->prompt = *prompt;
	g->n_chains = 0;
	g->n = 0;
	view_refresh(g->view);
	if (!prompt->hashed || prompt->n_ids == 0)
		return 0;
	for (uint32_t i = 0; i < route->n_members && g->n_chains < GATHER_CHAINS; i++) {
		uint32_t m = route->members[i];
		uint16_t id = g->view->row_of[m];
		const char *name = member_model(manifest, &manifest->members[m]);

		if (id == ROW_NONE || id >= g->view->rows.capacity ||
		    manifest->members[m].set == MANIFEST_NONE)
			continue;
		uint32_t block_tokens = block_tokens_of(&g->view->rows.row[id]);

		if (block_tokens == 0 || chain_of(g, name, block_tokens) != GATHER_NO_CHAIN)
			continue;
		if (chain_hash(g, name, block_tokens) < 0) {
			g->n_chains = 0;
			return -ENOMEM;
		}
	}
	return 0;
}

unsigned
gather_match(struct gather *g)
{
	uint32_t capacity = g->view->rows.capacity;
	unsigned matched = 0;

	g->stamp++;
	for (unsigned i = 0; i < g->n_chains; i++) {
		const struct gather_chain *c = &g->chain[i];
		unsigned n;

		if (c->n == 0)
			continue;
		n = index_match(g->view->index, c->hash, (unsigned)c->n, g->match, capacity);
		for (unsigned k = 0; k < n; k++)
			if (g->match[k].row < capacity)
				g->depth[(size_t)i * capacity + g->match[k].row] = (struct depth){
					.stamp = g->stamp,
					.exact = g->match[k].exact,
					.any = g->match[k].any,
					.gpu = g->match[k].gpu,
				};
		matched += n;
	}
	return matched;
}

/* Coefficients of a row, and whether they were learned there. */
static bool
learned_coefs(const struct row *row, float ret[COEF_COUNT])
{
	struct row_predictor p;

	row_predictor_read(row, &p);
	memcpy(ret, p.coef, sizeof p.coef);
	return p.version != 0 && p.state != PREDICTOR_CALIBRATING;
}

/* A row that is still calibrating starts from the mean of its set's rows that are not, else from
 * the configuration: a guess beside learned neighbours would starve it, or drown it.  A provider
 * has no neighbours. */
static void
fill_coefs(struct gather *g)
{
	const struct manifest *manifest = g->view->manifest;

	for (uint32_t i = 0; i < manifest->n_sets; i++)
		g->learned[i].n = 0;
	for (uint32_t i = 0; i < g->n; i++) {
		struct gather_candidate *c = &g->candidate[i];
		uint32_t set = manifest->members[c->member].set;
		struct learned *l = set == MANIFEST_NONE ? NULL : &g->learned[set];

		c->learned =
			c->row != ROW_NONE && learned_coefs(&g->view->rows.row[c->row], c->in.coef);
		if (!c->learned || !l)
			continue;
		for (unsigned k = 0; k < COEF_COUNT; k++)
			l->sum[k] = (l->n == 0 ? 0 : l->sum[k]) + (double)c->in.coef[k];
		l->n++;
	}
	for (uint32_t i = 0; i < g->n; i++) {
		struct gather_candidate *c = &g->candidate[i];
		uint32_t set = manifest->members[c->member].set;
		const struct learned *l = set == MANIFEST_NONE ? NULL : &g->learned[set];

		if (c->learned)
			continue;
		if (!l || l->n == 0)
			member_prior(manifest, &manifest->members[c->member], c->in.coef);
		for (unsigned k = 0; k < COEF_COUNT && l && l->n > 0; k++)
			c->in.coef[k] = (float)(l->sum[k] / l->n);
	}
}

/* Of blocks beyond those on the GPU, the engine can fetch whole chunks only. */
static uint32_t
whole_chunks(const struct row *row, uint32_t gpu, uint32_t exact)
{
	uint32_t chunk = atomic_load_explicit(&row->offload_chunk, memory_order_relaxed);
	uint32_t whole = chunk > 1 ? exact / chunk * chunk : exact;

	return whole > gpu ? whole : gpu;
}

/* believed: else it is as if it held nothing, whatever the index says. */
static void
fill_prefix(struct gather *g, struct gather_candidate *c, const struct row *row, bool believed,
	    mono_ns now)
{
	const struct manifest *manifest = g->view->manifest;
	const struct manifest_member *member = &manifest->members[c->member];
	size_t capacity = g->view->rows.capacity;

	if (member->set == MANIFEST_NONE)
		return;                 /* what a provider caches, it does not tell */
	c->block_tokens = block_tokens_of(row);
	c->chain = (uint8_t)chain_of(g, member_model(manifest, member), c->block_tokens);
	if (c->chain == GATHER_NO_CHAIN || !believed)
		return;
	const struct gather_chain *chain = &g->chain[c->chain];
	const struct depth *depth = &g->depth[c->chain * capacity + c->row];
	uint32_t exact = depth->stamp == g->stamp ? depth->exact : 0;
	uint32_t any = depth->stamp == g->stamp ? depth->any : 0;
	uint32_t gpu = depth->stamp == g->stamp ? depth->gpu : 0;
	uint32_t prompt = (uint32_t)g->prompt.n_ids, fetched = whole_chunks(row, gpu, exact);

	any = any == exact ? fetched : any;
	exact = fetched;
	any = (uint32_t)overlay_depth(g->view->overlay, c->row, chain->hash,
				      any < chain->n ? any : chain->n, chain->n, now);
	c->exact = predict_usable(exact, c->block_tokens, prompt);
	c->cached = predict_usable(any, c->block_tokens, prompt);
	c->in.cached = c->cached -
		       (c->exact - predict_usable(gpu, c->block_tokens, prompt)) / FETCH_COSTS;
}

static void
fill_reading(struct gather_candidate *c, const struct row_reading *reading, mono_ns now)
{
	mono_ns sampled_ns = row_reading_sampled(reading);
	bool fresh = row_reading_fresh(reading, now);
	uint64_t age_ms = sampled_ns == 0    ? UINT32_MAX
			  : sampled_ns > now ? 0
					     : (now - sampled_ns) / 1000000u;

	c->age_ms = age_ms > UINT32_MAX ? UINT32_MAX : (uint32_t)age_ms;
	c->waiting = fresh && (reading->known & KNOWN_WAITING) ? reading->waiting : UINT32_MAX;
	c->running = fresh && (reading->known & KNOWN_RUNNING) ? reading->running : UINT32_MAX;
	c->kv_usage = fresh && (reading->known & KNOWN_KV_USAGE) ? reading->kv_usage : -1;
}

static uint64_t
slow_start_of(const struct gather *g, uint32_t member)
{
	const struct manifest *manifest = g->view->manifest;
	const struct manifest_set *set = member_set(manifest, &manifest->members[member]);

	return set ? set->slow_start_ns : 0;
}

/* What a new worker's load counts more, beside those that are furthest in service. */
static void
fill_handicaps(struct gather *g)
{
	float best = 0;

	for (uint32_t i = 0; i < g->n; i++)
		if (g->candidate[i].state >= ROW_SUSPECT &&
		    g->candidate[i].state != ROW_DISABLED && g->candidate[i].slow > best)
			best = g->candidate[i].slow;
	for (uint32_t i = 0; i < g->n; i++) {
		struct gather_candidate *c = &g->candidate[i];

		c->handicap = c->row == ROW_NONE ? 0 : slow_handicap(c->slow, best);
		g->choose[i].handicap = c->handicap;
	}
}

static void
fill(struct gather *g, struct gather_candidate *c, struct choose_candidate *ch, uint32_t member,
     uint16_t failed_row, mono_ns now)
{
	uint16_t id = g->view->row_of[member];
	struct row_reading reading;
	struct view_load load;

	*c = (struct gather_candidate){
		.member = member, .row = ROW_NONE, .rank = 65535, .chain = GATHER_NO_CHAIN,
		.waiting = UINT32_MAX, .running = UINT32_MAX, .kv_usage = -1, .age_ms = UINT32_MAX,
	};
	*ch = (struct choose_candidate){
		.id = g->view->manifest->members[member].uid, .row = ROW_NONE, .state = ROW_ABSENT,
	};
	if (id == ROW_NONE || id >= g->view->rows.capacity)
		return;
	const struct row *row = &g->view->rows.row[id];

	c->row = id;
	c->row_gen = atomic_load_explicit(&row->row_gen, memory_order_acquire);
	row_reading_read(row, &reading);
	c->state = (uint8_t)row_state(row, &reading);
	c->rank = row->ranks > 1 ? row->rank : 65535;
	c->slow = slow_share(atomic_load_explicit(&row->up_since_ns, memory_order_relaxed), now,
			     slow_start_of(g, member));
	fill_reading(c, &reading, now);
	view_load(g->view, id, c->row_gen, (uint32_t)(now / 1000000u), true, &load);
	bool turned = view_turned(load.turned, row_reading_sampled(&reading), now);
	fill_prefix(g, c, row, row_believed(row, &reading), now);
	if (c->state == ROW_UP && turned)
		c->state = ROW_SUSPECT;
	c->in.prompt = g->prompt.tokens;
	c->in.pending = load.pending;
	c->in.prefilling = load.prefilling;
	c->in.context = load.context;
	c->in.decoding = load.decoding;
	c->in.oldest_dispatch_ms = load.oldest_dispatch_ms;
	c->in.last_first_ms = load.last_first_ms;
	if (c->waiting != UINT32_MAX)
		view_strangers(g->view, id, c->row_gen, &c->in.foreign_waiting,
			       &c->in.foreign_running);
	if (load.last_pick != 0 &&
	    (g->last_pick == 0 || (int32_t)(load.last_pick - g->last_pick) > 0))
		g->last_pick = load.last_pick;
	*ch = (struct choose_candidate){
		.id = ch->id,
		.row = id,
		.state = c->state,
		.failed = id == failed_row || (turned && c->state == ROW_UNPROVEN),
		.last_pick = load.last_pick,
		.requests = load.prefilling + load.decoding + c->in.foreign_waiting +
			    c->in.foreign_running,
	};
}

/* A provider never says how many strangers it has, and its time to the first token is learned with
 * them. */
static bool
is_blind(const struct gather *g, const struct gather_candidate *c)
{
	return c->row == ROW_NONE ||
	       (c->waiting == UINT32_MAX &&
		g->view->manifest->members[c->member].set != MANIFEST_NONE);
}

/* Of whom nothing fresh is known may have as many strangers as anybody else: silence is neither
 * "idle" nor "busy". */
static void
fill_blind(struct gather *g)
{
	uint32_t waiting = 0, running = 0;

	for (uint32_t i = 0; i < g->n; i++) {
		const struct predict_input *in = &g->candidate[i].in;

		if (is_blind(g, &g->candidate[i]))
			continue;
		waiting = in->foreign_waiting > waiting ? in->foreign_waiting : waiting;
		running = in->foreign_running > running ? in->foreign_running : running;
	}
	for (uint32_t i = 0; i < g->n; i++) {
		struct gather_candidate *c = &g->candidate[i];

		if (c->row == ROW_NONE || !is_blind(g, c))
			continue;
		c->in.foreign_waiting = waiting;
		c->in.foreign_running = running;
		g->choose[i].requests += waiting + running;
	}
}

bool
gather_blind(const struct gather *g)
{
	for (uint32_t i = 0; i < g->n; i++)
		if (g->choose[i].removed_by == REMOVAL_NONE && !is_blind(g, &g->candidate[i]))
			return false;
	return true;
}

void
gather_candidates(struct gather *g, uint16_t failed_row, mono_ns now)
{
	view_settle(g->view);           /* watermarks first, then cells, then overlay */
	g->n = g->route->n_members;
	g->last_pick = 0;
	for (uint32_t i = 0; i < g->n; i++)
		fill(g, &g->candidate[i], &g->choose[i], g->route->members[i], failed_row, now);
	fill_blind(g);
	fill_coefs(g);
	fill_handicaps(g);
	for (uint32_t i = 0; i < g->n; i++) {
		struct gather_candidate *c = &g->candidate[i];

		if (c->row == ROW_NONE)
			continue;
		predict_ttft(&c->in, &c->out);
		g->choose[i].ttft_s = c->out.ttft_s;
		g->choose[i].load_s = c->out.load_s;
		g->choose[i].ahead = c->out.ahead;
		g->choose[i].prefill = (uint64_t)c->out.ahead + c->in.prompt -
			(c->in.cached < c->in.prompt ? c->in.cached : c->in.prompt);
	}
}

uint32_t
gather_n(const struct gather *g)
{
	return g->n;
}

const uint32_t *
gather_entries(const struct gather *g)
{
	return g->route->candidate;
}

const struct gather_candidate *
gather_at(const struct gather *g, uint32_t i)
{
	return &g->candidate[i];
}

struct choose_candidate *
gather_choose(struct gather *g)
{
	return g->choose;
}

uint32_t
gather_last_pick(const struct gather *g)
{
	return g->last_pick;
}

unsigned
gather_n_chains(const struct gather *g)
{
	return g->n_chains;
}

const struct gather_chain *
gather_chain(const struct gather *g, unsigned i)
{
	return &g->chain[i];
}
