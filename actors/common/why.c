/* actors/common/why.c -- see why.h. */
#include "actors/common/why.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/common/decide/member.h"
#include "actors/common/fields.h"
#include "actors/common/show.h"
#include "actors/common/why_private.h"
#include "proto/messages.h"

const char *
pm_why_about_name(enum pm_why_about about)
{
	static const char *const names[WHY_ABOUTS] = {"state", "metrics", "cache", "events",
						      "tokens", "predictor"};

	return (unsigned)about < WHY_ABOUTS ? names[about] : "unknown";
}

void
why_add(struct why_say *s, const struct pm_why *fact, const char *format, ...)
{
	va_list args;

	if (s->n == PM_WHY_MAX)
		return;
	s->to[s->n] = *fact;
	va_start(args, format);
	vsnprintf(s->to[s->n].text, sizeof s->to[s->n].text, format, args);
	va_end(args);
	s->n++;
}

/* ---- state ---- */

static void
say_state(struct why_say *s)
{
	const struct pm_view_worker *w = s->w;
	const struct row_reading *r = &w->reading;
	struct pm_why fact = {.about = WHY_STATE, .is = row_state_name(w->state),
			      .reason = row_why_name(r->health_why),
			      .since_ns = w->health_since_ns,
			      .trouble = w->state != ROW_UP && w->state != ROW_DRAINING};

	if (w->state == ROW_DISABLED) {
		fact.reason = "operator";
		fact.since_ns = 0;
		why_add(s, &fact, "nothing is sent there until pointsctl provider enable %s",
			w->set);
		return;
	}
	if (w->state == ROW_DRAINING) {
		fact.reason = "removed";
		fact.since_ns = 0;
		why_add(s, &fact, "taken out: it ends what it has and gets nothing new");
	} else if (w->state == ROW_UP) {
		why_add(s, &fact, "%s", row_why_text(r->health_why));
	} else if (w->provider && r->health_why == WHY_REFUSED) {
		why_add(s, &fact, "nobody serves %s, or it is not open to the user ids of ingress "
		    "and metrics (%u questions in a row)", w->url, r->misses);
	} else if (w->health_since_ns == 0) {
		why_add(s, &fact, "no health probe has ended yet");
	} else if (r->health_why == WHY_STATUS) {
		why_add(s, &fact, "%s: status %u at %s", row_why_text(r->health_why), r->status,
		    s->set ? s->set->health_path : MEMBER_PROVIDER_HEALTH);
	} else {
		why_add(s, &fact, "%s (%s of %s, %u probes in a row)", row_why_text(r->health_why),
		    s->set ? s->set->health_path : MEMBER_PROVIDER_HEALTH, w->url, r->misses);
	}
}

/* ---- metrics ---- */

/* What a page that came did not say, as a list; "" for nothing. */
static void
not_said(uint32_t known, char *buf, size_t cap)
{
	static const struct {
		uint32_t bit;
		const char *name;
	} all[] = {
		{KNOWN_WAITING, "waiting"}, {KNOWN_RUNNING, "running"},
		{KNOWN_KV_USAGE, "KV usage"},
	};
	size_t n = 0;

	buf[0] = 0;
	for (unsigned i = 0; i < sizeof all / sizeof all[0] && n < cap; i++)
		if (!(known & all[i].bit))
			n += (size_t)snprintf(buf + n, cap - n, "%s%s", n ? ", " : "", all[i].name);
}

/* How it was read, and what engines or versions leave out that costs something. */
static void
notes(const struct row_reading *r, char *buf, size_t cap)
{
	uint32_t known = r->known;

	snprintf(buf, cap, "%s%s", known & KNOWN_LARGEST ?
		 "; a gauge is there several times, as of several API servers: the largest counts" :
		 "", (known & KNOWN_ENGINE_START) || !row_reading_same_life(r) ? "" :
		 "; not its start (a restart shows by its events only)");
}

static void
say_metrics(struct why_say *s)
{
	const struct pm_view_worker *w = s->w;
	const struct row_reading *r = &w->reading;
	const char *path = s->set ? s->set->metrics_path : "metrics";
	bool page = r->metrics_why == WHY_OK || r->metrics_why == WHY_IN_PART;
	bool some = w->fresh && (r->known & (KNOWN_WAITING | KNOWN_RUNNING | KNOWN_KV_USAGE));
	struct pm_why fact = {.about = WHY_METRICS, .reason = row_why_name(r->metrics_why),
			      .since_ns = w->metrics_since_ns};
	char missing[64], more[160], status[24] = "";

	notes(r, more, sizeof more);
	not_said(r->known, missing, sizeof missing);
	if (r->status != 0)
		snprintf(status, sizeof status, ", status %u", r->status);
	fact.is = !some ? "unknown" : missing[0] ? "in-part" : "known";
	fact.trouble = !w->fresh || missing[0] || r->metrics_why == WHY_IN_PART;
	if (r->metrics_why == WHY_NOT_ASKED)
		why_add(s, &fact, "no page of %s has come yet", path);
	else if (!page)
		why_add(s, &fact, "%s%s: %s; %s", path, status, row_why_text(r->metrics_why),
		    some ? "the last page is still young enough" :
			   "its load is unknown (not 0), our own requests there count");
	else if (!w->fresh)
		why_add(s, &fact, "%s is too old, %.1f s: its load is unknown (not 0), our own "
		    "requests there count", path, w->reading_age_ms / 1000.0);
	else if (missing[0])
		why_add(s, &fact, "%s does not say %s, or says no finite number: unknown, not 0%s",
		    path, missing, more);
	else if (r->metrics_why == WHY_IN_PART)
		why_add(s, &fact, "%s: %s", path, row_why_text(r->metrics_why));
	else
		why_add(s, &fact, "waiting, running and KV usage are known%s", more);
}

/* ---- cache ---- */

static const char *
gap_text(unsigned reason)
{
	switch (reason) {
	case REASON_FIRST_SEQ:
		return "we joined late: blocks stored before its first event that we saw are not "
		       "known";
	case REASON_SEQ_HOLE:
		return "events were lost, or could not be read";
	case REASON_SEQ_BACK:
		return "it began anew, and its first events were missed";
	case REASON_ENGINE_START:
		return "its process began anew, and what it stored since may have been missed";
	case REASON_HALF_BATCH:
		return "our own process died within a batch of events";
	case REASON_WRITER_RESTART:
		return "our own process began anew and must learn again what it holds";
	case REASON_PUBLISHER:
		return "another publisher speaks there now, and its first events were missed";
	case REASON_HISTORY_LOST:
		return "events were lost, and the engine keeps no more of those (buffer_steps)";
	case REASON_REPLAY_SILENT:
		return "events were lost, and kvReplay does not answer: is it replay_endpoint of "
		       "its kv_events_config?";
	case REASON_REPLAY_LOST:
		return "events were lost, and so were answers of kvReplay, however often it was "
		       "asked";
	default:
		return "what it holds is not known for sure";
	}
}

static void
say_cache(struct why_say *s)
{
	const struct pm_view_worker *w = s->w;
	bool configured = s->member && s->member->kv_events[0];
	char at[48] = "";
	struct pm_why fact = {.about = WHY_CACHE, .is = cache_state_name(w->cache_state),
			      .reason = cache_reason_name(w->cache_reason),
			      .since_ns = w->cache_since_ns};

	if (w->state >= ROW_SUSPECT && !row_reading_same_life(&w->reading)) {
		fact.reason = "life-unknown";
		fact.trouble = true;
		why_add(s, &fact, "it was away: nothing that it held is believed until its metrics "
		    "say whether it is the same engine");
		return;
	}
	switch (w->cache_state) {
	case CACHE_EXACT:
		if (w->cache_reason == REASON_NONE || w->cache_reason == REASON_CLEARED)
			why_add(s, &fact, "what it holds is known from its events");
		else if (w->cache_reason == REASON_REPLAYED)
			why_add(s, &fact, "what it holds is known from its events; those that were "
			    "missed came by a replay");
		else
			why_add(s, &fact,
				"it began anew (%s), and what it held before is forgotten",
			    cache_reason_name(w->cache_reason));
		return;
	case CACHE_GAP:
		fact.trouble = true;
		if (w->seen_seq > 0)
			snprintf(at, sizeof at, " (sequence %" PRIu64 " by now)", w->seen_seq - 1);
		why_add(s, &fact, "%s%s%s; answers and new events teach it anew, until it clears "
		    "its cache or restarts", gap_text(w->cache_reason), at,
		    s->member && !s->member->kv_replay[0] ?
			    ", and kvReplay, which could bring them back, is not configured" : "");
		return;
	case CACHE_REPLAYING:
		why_add(s, &fact, "missed events are being asked for again");
		return;
	case CACHE_APPROXIMATE:
		if (configured)
			why_add(s, &fact, "known by what was sent there only");
		else
			why_add(s, &fact,
				"kvEvents is not configured: known by what was sent there only");
		return;
	case CACHE_NONE:
		if (configured)
			why_add(s, &fact, "no event has come yet: unknown, not cold");
		else
			why_add(s, &fact, "kvEvents is not configured");
		return;
	default:
		fact.trouble = true;
		why_add(s, &fact, "our picture of its cache ages");
	}
}

/* ---- events ---- */

/* Kinds that part of the events of a sound engine meet: trouble only if nothing else comes. */
#define SOUND ((1u << TROUBLE_GROUP) | (1u << TROUBLE_SIZE) | (1u << TROUBLE_PARENT) | \
	       (1u << TROUBLE_TIER) | (1u << TROUBLE_TOKENS) | (1u << TROUBLE_TAG))

/* What the number of the newest says, or "". */
static void
number_of(const struct why_say *s, unsigned kind, char *buf, size_t cap)
{
	unsigned long long number = row_trouble_number(s->w->trouble);

	buf[0] = 0;
	if (kind == TROUBLE_SIZE)
		snprintf(buf, cap, " (the last had %llu tokens a block, the row's have %u)", number,
			 s->w->event_block_tokens);
	else if (kind == TROUBLE_CONFIGURED)
		snprintf(buf, cap, " (theirs %llu tokens, blockSize %u)", number,
			 s->w->configured_block_tokens);
	else if (kind == TROUBLE_RANK)
		snprintf(buf, cap, " (rank %llu, here is %u)", number, s->w->rank);
	else if (kind == TROUBLE_GROUP)
		snprintf(buf, cap, " (the last: group %llu)", number);
	else if (kind == TROUBLE_ADAPTER)
		snprintf(buf, cap, " (the last: id %llu)", number);
	else if (kind == TROUBLE_UNREADABLE)
		snprintf(buf, cap, " (the last had %llu bytes)", number);
}

/* Of a publisher that we hear nothing of: what else may be the cause here. */
static void
say_silent(struct why_say *s, const struct pm_why *fact, bool unsized)
{
	const char *topic = s->set ? s->set->kv_topic : "";
	char filter[80] = "";

	if (topic[0])
		snprintf(filter, sizeof filter, " Do its topics begin with kvTopic, \"%.40s\"?",
			 topic);
	why_add(s, fact, "%s%s%s", event_trouble_text(TROUBLE_SILENT), filter,
	    unsized ? " Its block size is unknown too (blockSize): no prompt is looked up" : "");
}

static void
say_trouble(struct why_say *s, unsigned kind)
{
	const struct pm_view_worker *w = s->w;
	bool newest = row_trouble_kind(w->trouble) == kind;
	struct pm_why fact = {.about = WHY_EVENTS, .is = w->applied ? "applied" : "deaf",
			      .reason = event_trouble_name(kind),
			      .since_ns = newest ? w->trouble_since_ns : 0,
			      .trouble = w->applied == 0 || !(SOUND & 1u << kind)};
	char number[80], times[48] = "";

	if (kind == TROUBLE_SILENT) {
		fact.is = "silent";
		say_silent(s, &fact, false);
		return;
	}
	number_of(s, newest ? kind : TROUBLE_NONE, number, sizeof number);
	if (newest)
		snprintf(times, sizeof times, " %" PRIu64 " times:", w->trouble_count);
	why_add(s, &fact, "%" PRIu64 " batches received, %" PRIu64 " events applied;%s %s%s",
	    w->received, w->applied, times, event_trouble_text(kind), number);
}

/* Without a block size no prompt is hashed, and kvevents does not hear that it gets any. */
static bool
silent_unsized(const struct why_say *s, const struct pm_why_traffic *t)
{
	return t && t->decided >= WHY_FEW && s->w->block_tokens == 0 && s->member &&
	       s->member->kv_events[0];
}

static void
say_events(struct why_say *s, const struct pm_why_traffic *t)
{
	const struct pm_view_worker *w = s->w;
	unsigned before = s->n;

	for (unsigned kind = 1; kind < TROUBLES; kind++)
		if (w->troubles & 1u << kind)
			say_trouble(s, kind);
	if (s->n > before)
		return;
	if (w->received == 0 && silent_unsized(s, t))
		say_silent(s, WHY_FACT(.about = WHY_EVENTS, .is = "silent", .reason = "silent",
				   .trouble = true), true);
	else if (w->received == 0)
		why_add(s, WHY_FACT(.about = WHY_EVENTS, .is = "none", .reason = "-"),
			"none received");
	else if (w->applied == 0 && w->orphaned + w->skipped + w->failed > 0)
		why_add(s, WHY_FACT(.about = WHY_EVENTS, .is = "deaf", .reason = "-",
				    .trouble = true),
		    "%" PRIu64 " batches received, 0 events applied: %" PRIu64 " failed, %" PRIu64
		    " skipped, %" PRIu64 " wait for their parents", w->received, w->failed,
		    w->skipped, w->orphaned);
	else
		why_add(s, WHY_FACT(.about = WHY_EVENTS, .is = "applied", .reason = "-"),
		    "%" PRIu64 " batches received, %" PRIu64 " events applied", w->received,
		    w->applied);
}

/* ---- tokens ---- */

struct reading {
	const struct rows *rows;
	struct pm_why_traffic *to;
	unsigned rows_n;
};

static struct pm_why_traffic *
traffic_of(const struct reading *r, uint16_t row, uint32_t row_gen)
{
	if (row >= r->rows_n ||
	    atomic_load_explicit(&r->rows->row[row].row_gen, memory_order_acquire) != row_gen)
		return NULL;
	return &r->to[row];
}

/* What was expected in the engine's cache, beside what it says was there. */
static void
count_hits(struct pm_why_traffic *t, const struct journal_outcome *o, wall_ns when)
{
	bool expected = o->our_cached > 0, found = o->cached > 0;

	t->expected += expected;
	t->found += found;
	t->both += expected && found;
	if (expected && when >= t->expected_last) {
		t->expected_last = when;
		t->expected_tokens = o->our_cached;
	}
	if (found && when >= t->found_last) {
		t->found_last = when;
		t->found_tokens = o->cached;
	}
}

static bool
on_outcome(void *arg, const struct pm_view_process *from, const void *record, size_t len)
{
	const struct journal_record *head = record;
	const struct journal_outcome *o = (const void *)(head + 1);
	struct pm_why_traffic *t;

	(void)from;
	if (head->kind != JOURNAL_OUTCOME || len < sizeof *head + sizeof *o)
		return true;
	t = traffic_of(arg, o->row, o->row_gen);
	if (!t || o->prompt == UINT32_MAX)
		return true;
	t->answers++;
	t->cached_said += o->cached != UINT32_MAX;
	if (o->our_prompt == 0)
		return true;
	if (o->cached != UINT32_MAX)
		count_hits(t, o, head->when);
	t->compared++;
	if (o->our_prompt == o->prompt)
		return true;
	t->differ++;
	if (t->differ_since == 0 || head->when < t->differ_since)
		t->differ_since = head->when;
	if (head->when >= t->differ_last) {
		t->differ_last = head->when;
		t->ours = o->our_prompt;
		t->theirs = o->prompt;
	}
	return true;
}

static bool
on_decision(void *arg, const struct pm_view_process *from, const void *record, size_t len)
{
	const struct journal_record *head = record;
	const struct journal_decision *d = (const void *)(head + 1);
	const struct journal_candidate *c = (const void *)(d + 1);
	struct pm_why_traffic *t = NULL;

	(void)from;
	if (head->kind != JOURNAL_DECISION ||
	    len < sizeof *head + sizeof *d + head->n * sizeof *c || d->verdict != VERDICT_CHOOSE)
		return true;
	for (unsigned i = 0; i < head->n && !t; i++)
		if (c[i].row == d->chosen_row)
			t = traffic_of(arg, c[i].row, c[i].row_gen);
	if (!t)
		return true;
	t->decided++;
	t->without_tokens += d->token_source == TOKENS_NONE;
	return true;
}

void
pm_why_traffic(const struct pm_view *view, struct pm_why_traffic *ret, unsigned rows)
{
	struct reading r = {.rows = &view->rows, .to = ret, .rows_n = rows};

	memset(ret, 0, rows * sizeof *ret);
	pm_view_journals(view, ROLE_INGRESS, on_outcome, &r);
	pm_view_journals(view, ROLE_POLICY, on_decision, &r);
}

/* ---- hits: whatever went wrong before shows here ---- */

static void
say_hits(struct why_say *s, const struct pm_why_traffic *t)
{
	struct pm_why fact = {.about = WHY_CACHE, .is = cache_state_name(s->w->cache_state),
			      .trouble = true};

	if (t->both > 0)
		return;
	if (t->expected >= WHY_FEW) {
		fact.reason = "hits-missing";
		why_add(s, &fact, "%" PRIu64 " answers were expected from its cache, and none was "
		    "(the last: %u tokens expected): is its prefix caching on and its cache large "
		    "enough, and does anything part its prompts that we do not see?", t->expected,
		    t->expected_tokens);
	}
	if (t->found >= WHY_FEW) {
		fact.reason = "hits-unknown";
		why_add(s, &fact, "%" PRIu64 " answers came from its cache, and none was expected "
		    "to (the last: %u tokens): its events, if any, are not of the prompts that we "
		    "see: another tokenizer or chat template, a salt, another engine's kvEvents",
		    t->found, t->found_tokens);
	}
}

/* ---- predictor ---- */

static void
say_predictor(struct why_say *s)
{
	const struct row_predictor *p = &s->w->predictor;
	struct pm_why fact = {.about = WHY_PREDICTOR, .is = predictor_state_name(p->state),
			      .reason = "-"};

	if (p->state == PREDICTOR_CALIBRATING)
		why_add(s, &fact, "%u answers learned from; until it has enough, what its set has "
		    "taught counts, else the configured prior", p->samples);
	else
		why_add(s, &fact, "%u answers learned from, half of its predictions within %.3f s",
		    p->samples, (double)p->err_p50);
}

/* ---- all ---- */

static void
find_member(struct why_say *s)
{
	const struct manifest *m = s->view->manifest;
	uint64_t uid = s->view->rows.row[s->w->row].uid;

	for (uint32_t i = 0; m && i < m->n_members; i++)
		if (m->members[i].uid == uid) {
			s->member = &m->members[i];
			s->set = member_set(m, s->member);
		}
}

unsigned
pm_why(const struct pm_view *view, const struct pm_view_worker *w,
       const struct pm_why_traffic *traffic, mono_ns now, struct pm_why *ret)
{
	struct why_say s = {.view = view, .w = w, .now = now, .to = ret};

	find_member(&s);
	say_state(&s);
	if (!w->provider) {
		say_metrics(&s);
		say_cache(&s);
		say_events(&s, traffic);
		if (traffic)
			say_hits(&s, traffic);
		why_tokens(&s, traffic);
	}
	say_predictor(&s);
	return s.n;
}

json_t *
pm_why_json(const struct pm_why *why, unsigned n, mono_ns now)
{
	json_t *list = json_array();

	for (unsigned i = 0; i < n; i++) {
		const struct pm_why *f = &why[i];
		wall_ns wall = clock_wall();
		json_t *o = json_object();

		json_object_set_new(o, "about", json_string(pm_why_about_name(f->about)));
		json_object_set_new(o, "is", json_string(f->is));
		json_object_set_new(o, "reason", json_string(f->reason));
		json_object_set_new(o, "since", pm_json_wall(f->since_ns && f->since_ns <= now ?
							     wall - (now - f->since_ns) : 0, 3));
		json_object_set_new(o, "since_s", pm_json_seconds(f->since_ns, now));
		json_object_set_new(o, "trouble", json_boolean(f->trouble));
		json_object_set_new(o, "text", pm_json_text(f->text, sizeof f->text));
		json_array_append_new(list, o);
	}
	return list;
}

json_t *
pm_why_workers(const struct pm_view *view)
{
	unsigned rows = pm_view_rows(view);
	struct pm_why_traffic *traffic = calloc(rows + 1, sizeof *traffic);
	json_t *o = traffic ? pm_show_workers(view) : NULL, *one;
	mono_ns now = clock_mono();
	size_t i;

	if (o)
		pm_why_traffic(view, traffic, rows);
	json_array_foreach(json_object_get(o, "workers"), i, one) {
		uint16_t row = (uint16_t)pm_integer_at(one, "row");
		struct pm_why why[PM_WHY_MAX];
		struct pm_view_worker w;

		if (row < rows && pm_view_worker(view, row, now, &w) &&
		    w.row_gen == pm_integer_at(one, "row_gen"))
			json_object_set_new(one, "why", pm_why_json(why, pm_why(view, &w,
					    &traffic[row], now, why), now));
	}
	free(traffic);
	return o;
}
