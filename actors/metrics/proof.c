/* actors/metrics/proof.c -- see proof.h. */
#include "actors/metrics/proof.h"

#include <string.h>

static void
put64(uint32_t *lo, uint32_t *hi, uint64_t v)
{
	*lo = (uint32_t)v;
	*hi = (uint32_t)(v >> 32);
}

static uint64_t
get64(uint32_t lo, uint32_t hi)
{
	return (uint64_t)hi << 32 | lo;
}

void
proof_is(struct row_trust *t, enum trust_state state, enum trust_why why, mono_ns now)
{
	if (t->state == (uint32_t)state && t->why == (uint32_t)why && row_trust_since(t) != 0)
		return;
	t->state = state;
	t->why = why;
	put64(&t->since_lo, &t->since_hi, now);
}

/* By the start that both say; else by when it came up, which is later in another life. */
static bool
same_life(const struct row_trust *t, const struct proof_life *life)
{
	wall_ns start = get64(t->start_lo, t->start_hi);

	if (start != 0 && life->start != 0)
		return start == life->start;
	return get64(t->up_lo, t->up_hi) == life->up;
}

bool
proof_begin(struct row_trust *t, uint64_t key, const struct proof_life *life, mono_ns now)
{
	bool anew = row_trust_key(t) != key || !same_life(t, life);

	if (anew) {
		*t = (struct row_trust){.why = TRUST_NOT_ASKED};
		put64(&t->key_lo, &t->key_hi, key);
		put64(&t->since_lo, &t->since_hi, now);
	}
	if (life->start != 0)
		put64(&t->start_lo, &t->start_hi, life->start);
	if (life->up != 0)
		put64(&t->up_lo, &t->up_hi, life->up);
	return anew;
}

void
proof_answer(struct row_trust *t, struct proof_run *run, unsigned probe,
	     const struct probes_compared *c, mono_ns now)
{
	switch (c->verdict) {
	case PROBES_AGREE:
		run->agreed++;
		return;
	case PROBES_DIFFER:
		break;
	default:
		run->other++;
		return;
	}
	if (run->differed++ > 0)
		return;
	t->probe = probe;
	t->at = c->at;
	t->ours = c->ours;
	t->theirs = c->theirs;
	t->n_ours = c->n_ours;
	t->n_theirs = c->n_theirs;
	proof_is(t, TRUST_MISMATCH, TRUST_PROBES_DIFFER, now);
}

static mono_ns
later(const struct proof_run *run, mono_ns now)
{
	uint64_t wait = PROOF_AGAIN_NS;

	for (unsigned i = 1; i < run->failures && wait < PROOF_AGAIN_MOST_NS; i++)
		wait *= 2;
	return now + (wait < PROOF_AGAIN_MOST_NS ? wait : PROOF_AGAIN_MOST_NS);
}

mono_ns
proof_end(struct row_trust *t, struct proof_run *run, enum trust_why failed, mono_ns now)
{
	unsigned failures = run->failures, total = run->agreed + run->differed + run->other;
	bool few = run->agreed * 2 < total;
	mono_ns next = PROOF_NEVER;

	if (failed != TRUST_NOT_ASKED || (few && run->differed == 0)) {
		if (t->state == TRUST_UNVERIFIED)
			proof_is(t, TRUST_UNVERIFIED, failed ? failed : TRUST_FEW, now);
		run->failures = ++failures;
		next = later(run, now);
	} else if (run->differed > 0) {
		failures = 0;
		next = now + PROOF_DISPROVEN_NS;
	} else {
		failures = 0;
		proof_is(t, TRUST_EXACT, TRUST_PROBES_AGREE, now);
	}
	if (failed == TRUST_NOT_ASKED) {
		t->probes = total;
		t->agreed = run->agreed;
		t->differed = run->differed;
	}
	*run = (struct proof_run){.failures = failures};
	return next;
}

bool
proof_usage(struct row_trust *t, uint32_t ours, uint32_t theirs, mono_ns now)
{
	if (ours == theirs) {
		t->usage_same++;
		return false;
	}
	t->usage_differ++;
	t->usage_ours = ours;
	t->usage_theirs = theirs;
	if (t->state == TRUST_MISMATCH)
		return false;
	proof_is(t, TRUST_MISMATCH, TRUST_USAGE_DIFFERS, now);
	return true;
}

void
proof_cached(struct row_trust *t, uint32_t expected, uint32_t said)
{
	t->cached_same += said == expected;
	t->cached_more += said > expected;
	t->cached_less += said < expected;
}
