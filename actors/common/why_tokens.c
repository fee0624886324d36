/* actors/common/why_tokens.c -- are a worker's tokens ours, and how do we know; see why.h. */
#include <inttypes.h>
#include <stdio.h>

#include "actors/common/prompt/probes.h"
#include "actors/common/why_private.h"

static mono_ns
mono_of(wall_ns when, mono_ns now)
{
	wall_ns wall = clock_wall();

	return when == 0 || when >= wall || wall - when >= now ? 0 : now - (wall - when);
}

/* ---- what is proven of ids that are made here ---- */

static const char *
id_text(char buf[16], uint32_t id)
{
	if (id == UINT32_MAX)
		return "the end";
	snprintf(buf, 16, "%u", id);
	return buf;
}

/* Facts that prove nothing, for who looks for a cause. */
static void
facts(char *buf, size_t cap, const struct pm_view_worker *w)
{
	const struct row_trust *t = &w->trust;
	uint64_t cached = (uint64_t)t->cached_same + t->cached_more + t->cached_less;
	int n = 0;

	buf[0] = 0;
	if (t->usage_same + t->usage_differ > 0)
		n = snprintf(buf, cap, "; %u of %" PRIu64 " answers count their prompt as we do",
			     t->usage_same, (uint64_t)t->usage_same + t->usage_differ);
	if (cached > 0 && n >= 0 && (size_t)n < cap)
		n += snprintf(buf + n, cap - (size_t)n, "; %u of %" PRIu64 " found as much in its "
			      "cache as predicted, %u more, %u less", t->cached_same, cached,
			      t->cached_more, t->cached_less);
	if (w->chains_routed > 0 && n >= 0 && (size_t)n < cap)
		snprintf(buf + n, cap - (size_t)n, "; %" PRIu64 " of %" PRIu64 " prompts sent "
			 "there are in its events", w->chains_stored, w->chains_routed);
}

static void
say_trust(struct why_say *s)
{
	const struct row_trust *t = &s->w->trust;
	struct pm_why fact = {.about = WHY_TOKENS, .is = trust_state_name(t->state),
			      .reason = trust_why_name(t->why), .since_ns = row_trust_since(t),
			      .trouble = t->state == TRUST_MISMATCH || t->why == TRUST_FEW ||
					 t->why == TRUST_REFUSED};
	const char *version = t->version[0] ? t->version : "not told";
	char rest[240], ours[16], theirs[16];

	facts(rest, sizeof rest, s->w);
	if (t->state == TRUST_EXACT)
		why_add(s, &fact, "%s: %u of %u probes, engine %s%s", trust_why_text(t->why),
			t->agreed, t->probes, version, rest);
	else if (t->why == TRUST_PROBES_DIFFER)
		why_add(s, &fact, "probe \"%s\" differs at token %u: ours %s, the engine's %s (of "
			"%u and %u, engine %s): another tokenizer, chat template or option of it%s",
			t->probe < probes_count() ? probes_at(t->probe)->name : "?", t->at,
			id_text(ours, t->ours), id_text(theirs, t->theirs), t->n_ours, t->n_theirs,
			version, rest);
	else if (t->why == TRUST_USAGE_DIFFERS)
		why_add(s, &fact, "%s (the last: ours %u, the engine's %u, engine %s)%s",
			trust_why_text(t->why), t->usage_ours, t->usage_theirs, version, rest);
	else
		why_add(s, &fact, "%s%s", trust_why_text(t->why), rest);
}

/* The model is not made here any more while most of its workers disagree. */
static void
say_model(struct why_say *s)
{
	const struct model_trust *m = trust_find(&s->view->rows, row_trust_key(&s->w->trust));
	uint32_t state = m ? atomic_load_explicit(&m->state, memory_order_relaxed) : 0;
	unsigned exact, mismatch;

	if (!m)
		return;
	exact = atomic_load_explicit(&m->exact, memory_order_relaxed);
	mismatch = atomic_load_explicit(&m->mismatch, memory_order_relaxed);
	if (state == TRUST_MISMATCH)
		why_add(s, WHY_FACT(.about = WHY_TOKENS, .is = "mismatch", .reason = "model",
				    .since_ns = pm_load64(&m->since_ns), .trouble = true),
			"%u of this model's workers disagree with our tokens and %u agree: its "
			"prompts go by their /tokenize until spec.tokenizer has these workers' own "
			"files and options; pointsctl verify --model DIR --url %s shows each probe",
			mismatch, exact, s->w->url);
	else if (s->w->trust.state == TRUST_MISMATCH)
		why_add(s, WHY_FACT(.about = WHY_TOKENS, .is = "mismatch", .reason = "alone",
				    .since_ns = row_trust_since(&s->w->trust), .trouble = true),
			"%u of this model's workers agree with our tokens, and this one does not: "
			"does it run what they run? pointsctl verify --model DIR --url %s shows "
			"each probe", exact, s->w->url);
}

/* ---- what the journals tell ---- */

static const char *
no_cached(const struct pm_why_traffic *t)
{
	return t->answers >= WHY_FEW && t->cached_said == 0 ?
		"; its answers do not say cached_tokens, so hits prove nothing (vLLM: "
		"--enable-prompt-tokens-details)" : "";
}

static void
say_counts(struct why_say *s, const struct pm_why_traffic *t)
{
	if (t->differ > 0)
		why_add(s, WHY_FACT(.about = WHY_TOKENS, .is = "mismatch",
				    .reason = "counts-differ",
				    .since_ns = mono_of(t->differ_since, s->now), .trouble = true),
			"%" PRIu64 " of %" PRIu64 " answers count their prompt otherwise than we "
			"do (the last: ours %u, the engine's %u): another tokenizer, chat template "
			"or special tokens twice; prefixes will not match%s", t->differ,
			t->compared, t->ours, t->theirs, no_cached(t));
	else if (t->decided > 0 && t->without_tokens == t->decided)
		why_add(s, WHY_FACT(.about = WHY_TOKENS, .is = "unverified", .reason = "no-lookup",
				    .trouble = t->decided >= WHY_FEW),
			"no lookup although traffic: none of the last %" PRIu64 " prompts sent "
			"there was tokenized (%s); they are routed by load alone", t->decided,
			!s->set || s->set->tokenize ?
				"/v1/messages, /v1/responses and others are not, or its /tokenize "
				"fails" :
			s->set->engine == MANIFEST_ENGINE_VLLM ?
				"text, and tokenize is false" :
				"text, and tokenize is false, which it is with this engine by "
				"default");
	else if (t->compared > 0)
		why_add(s, WHY_FACT(.about = WHY_TOKENS, .is = "exact", .reason = "counts-agree"),
			"all of %" PRIu64 " answers count their prompts as we do%s", t->compared,
			no_cached(t));
	else
		why_add(s, WHY_FACT(.about = WHY_TOKENS, .is = "unverified",
				    .reason = "no-answer"),
			"no answer has counted a prompt that we had tokens of");
}

void
why_tokens(struct why_say *s, const struct pm_why_traffic *t)
{
	if (s->w->has_trust) {
		say_trust(s);
		say_model(s);
	} else if (s->w->trust.why == TRUST_NO_MODEL) {
		why_add(s, WHY_FACT(.about = WHY_TOKENS, .is = "unverified", .reason = "no-model",
				    .since_ns = row_trust_since(&s->w->trust), .trouble = true),
			"%s", trust_why_text(TRUST_NO_MODEL));
	}
	if (!t)
		return;
	if (!s->w->has_trust || (t->differ > 0 && s->w->trust.state != TRUST_MISMATCH))
		say_counts(s, t);
	if (t->without_tokens > 0 && t->without_tokens < t->decided)
		why_add(s, WHY_FACT(.about = WHY_TOKENS, .is = "in-part",
				    .reason = "some-without"),
			"%" PRIu64 " of the last %" PRIu64 " prompts sent there were not tokenized "
			"and were routed by load alone", t->without_tokens, t->decided);
}
