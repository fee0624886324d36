/* actors/supervisor/members.c -- members that are found become rows and documents.
 *
 * Found members are a part of the documents: of the same generation, but for a revision of its own
 * that counts in config_hash.  So whoever knows documents needs nothing new: rows first (SERVE),
 * `rows_changed`, the CONFIG segment of the same generation again, and every process takes it in
 * the place of the one it has; a policy process swaps its lists between two decisions.  Who is
 * found no more has its row set to DRAIN at once, which each decision reads, and is removed by
 * fleet_tick.
 * Every live generation is amended, the one to come and the one to roll back to as well: what is
 * found does not depend on the rules.
 */
#include "actors/supervisor/supervisor.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_NS 1000000000ull          /* for a new source's first word */
#define ROWS_AGAIN_NS 1000000000ull     /* a removed row rests 60 s, then it is free */

static bool
looks(const struct manifest *m)
{
	for (uint32_t i = 0; i < m->n_sets; i++)
		if (m->sets[i].discovery.source != MANIFEST_SOURCE_NONE)
			return true;
	return false;
}

/* ret NULL where nothing was ever found. */
static int
amended(struct supervisor *s, const struct manifest *m, struct manifest **ret)
{
	struct manifest_found *found = calloc(m->n_sets + 1, sizeof *found);
	unsigned n = found ? discovery_found(s->discovery, m, found, m->n_sets) : 0;
	int r = found ? 0 : -ENOMEM;

	*ret = NULL;
	if (n > 0)
		r = manifest_amend(m, found, n, s->last_revision + 1, ret);
	if (r == 0 && n > 0)
		discovery_judged(s->discovery, m, found, n);
	for (unsigned i = 0; i < n; i++)
		yaml_errors_free(&found[i].refused);
	free(found);
	return r;
}

int
members_known(struct supervisor *s, struct manifest **io)
{
	struct manifest *m;
	int r = amended(s, *io, &m);

	if (r == 0 && m) {
		manifest_free(io);
		*io = m;
	}
	return r;
}

/* Sources of all documents that are still needed, and of these. */
static int
want(struct supervisor *s, const struct manifest *more)
{
	const struct manifest *all[CONFIGS_MAX + 1];
	unsigned n = 0;

	for (unsigned i = 0; i < CONFIGS_MAX; i++)
		if (s->config[i].generation)
			all[n++] = s->config[i].manifest;
	if (more)
		all[n++] = more;
	return discovery_want(s->discovery, all, n);
}

int
members_take(struct supervisor *s, struct manifest **io)
{
	int r = want(s, *io);

	if (r < 0 || !looks(*io))
		return r;
	discovery_wait(s->discovery, clock_mono() + FIRST_NS);
	r = members_known(s, io);
	if (r == 0 && (*io)->revision)
		s->last_revision = (*io)->revision;
	return r;
}

/* ---- while we run ---- */

static unsigned
missing(const struct manifest *from, const struct manifest *in)
{
	unsigned n = 0;

	for (uint32_t i = 0; i < from->n_members; i++) {
		bool there = false;

		for (uint32_t k = 0; k < in->n_members && !there; k++)
			there = in->members[k].uid == from->members[i].uid;
		n += !there;
	}
	return n;
}

static void
tell(struct supervisor *s, const struct config *c, unsigned come, unsigned gone)
{
	char text[160];

	snprintf(text, sizeof text, "members revision=%u: +%u -%u", c->manifest->revision, come,
		 gone);
	log_info("generation %u: %s", c->generation, text);
	if (c != generation_shown(s))
		return;
	s->roster.head->config_hash = manifest_hash(c->manifest);
	s->roster.head->revision = c->manifest->revision;
	past_revised(s, c);
	generation_note(s, c->generation, true, text);
}

/* Takes *m over where it goes well. */
static int
replace(struct supervisor *s, struct config *c, struct manifest **m)
{
	unsigned come = missing(*m, c->manifest), gone = missing(c->manifest, *m);
	struct segment seg;
	int r = fleet_add(s, *m);

	if (r == 0)
		r = config_create(&seg, *m, c->generation);
	if (r < 0)
		return r;
	r = shares_replace_config(s, &seg, c->generation);
	if (r < 0) {
		segment_detach(&seg);
		return r;
	}
	segment_detach(&c->seg);
	c->seg = seg;
	manifest_free(&c->manifest);
	c->manifest = *m;
	*m = NULL;
	s->last_revision = c->manifest->revision;
	tell(s, c, come, gone);
	shares_announce_found(s, c->generation);
	return 0;
}

static void
apply(struct supervisor *s)
{
	struct config *shown = generation_shown(s);
	bool any = false;

	for (unsigned i = 0; i < CONFIGS_MAX; i++) {
		struct config *c = &s->config[i];
		struct manifest *m = NULL;
		int r;

		if (!c->generation || !looks(c->manifest))
			continue;
		r = amended(s, c->manifest, &m);
		if (r == 0 && m && !manifest_same_members(m, c->manifest)) {
			r = replace(s, c, &m);
			any |= r == 0;
		}
		manifest_free(&m);
		if (r < 0)
			log_error("generation %u: found members not taken over: %s; those in force "
				  "stay", c->generation, strerror(-r));
	}
	if (shown)
		fleet_amend(s, shown->manifest);
	count_add(&s->process, COUNTER_discovery_changes, any);
	if (any && children_calm(s))
		shares_flush(s, clock_mono());  /* else when the switch is over */
}

void
members_tick(struct supervisor *s, mono_ns now)
{
	struct config *shown = generation_shown(s);
	struct discovery_sum sum;

	want(s, NULL);
	if (discovery_run(s->discovery, now))
		apply(s);
	if (s->rows_due_ns && now >= s->rows_due_ns && shown)
		fleet_add(s, shown->manifest);
	s->rows_due_ns = s->rowless == 0		      ? 0
			 : s->rows_due_ns > now ? s->rows_due_ns
						      : now + ROWS_AGAIN_NS;
	sum = discovery_show(s->discovery, &s->roster);
	count_set(&s->process, COUNTER_discovery_failing, sum.failing);
	count_set(&s->process, COUNTER_discovery_failures, sum.failures);
	count_set(&s->process, COUNTER_discovery_refused, sum.not_taken + s->rowless);
}

mono_ns
members_next(const struct supervisor *s)
{
	mono_ns next = discovery_next(s->discovery);

	return s->rows_due_ns && (!next || s->rows_due_ns < next) ? s->rows_due_ns : next;
}
