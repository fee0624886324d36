/* tests/unit/test_learn.c -- does the predictor find the engine's times, and keep them? */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "actors/metrics/learn.h"

static const float prior[COEF_COUNT] = {
	[COEF_BASE] = .02f,    [COEF_PREFILL] = 1e-4f, [COEF_ATTENTION] = 1e-9f,
	[COEF_DECODE] = 1e-4f, [COEF_STEP] = .003f,
};

static uint64_t state;

static double
draw(double below)
{
	state = state * 6364136223846793005ull + 1442695040888963407ull;
	return (double)(state >> 11) / 9007199254740992.0 * below;
}

/* An L40S with a 27B model in FP8, step by step: budget of 2,048 tokens, the weights read once a
 * step, attention over what is before, decodes beside us. */
static double
engine_ttft(const struct learn_sample *s)
{
	const double t_o = .0015, t_w = .0385, a = .395e-3, q = 2.2e-9, e = .09e-6, d = .2e-3;
	double t = .015 + 2.5e-6 * (s->uncached + s->cached) + .002;
	double ahead = s->pending, own = s->uncached, start = s->cached;

	while (ahead + own > 0) {
		double budget = 2048 - s->decoding, n = ahead < budget ? ahead : budget, m = 0, A;

		ahead -= n;
		A = n * (n / 2);
		if (ahead == 0) {
			m = own < budget - n ? own : budget - n;
			own -= m;
			A += m * (start + m / 2);
			start += m;
		}
		t += t_o + fmax(t_w, a * (n + m + s->decoding)) + q * A + e * s->context +
		     d * s->decoding;
	}
	return t;
}

/* Mixed traffic: cold 16k, hits on long prefixes, short prompts; queues and decodes beside them. */
static struct learn_sample
traffic(double noise)
{
	struct learn_sample s = {.predicted_s = -1};
	double kind = draw(1);

	if (kind < .3) {
		s.uncached = 2000 + draw(14000);
	} else if (kind < .7) {
		s.cached = 4000 + draw(12000);
		s.uncached = 200 + draw(600);
	} else {
		s.uncached = 100 + draw(900);
	}
	if (draw(1) < .3)
		s.pending = draw(20000);
	s.decoding = floor(draw(12));
	s.context = s.decoding * (1000 + draw(8000));
	s.ttft_s = engine_ttft(&s) * (1 + noise * (draw(2) - 1));
	return s;
}

static int
compare(const void *x, const void *y)
{
	const double *a = x, *b = y;

	return *a < *b ? -1 : *a > *b;
}

/* Median relative error over fresh traffic without noise. */
static double
error_of(const struct learn *l)
{
	double errors[500];

	for (unsigned i = 0; i < 500; i++) {
		struct learn_sample s = traffic(0);

		errors[i] = fabs(learn_predict(l, &s) - s.ttft_s) / s.ttft_s;
	}
	qsort(errors, 500, sizeof errors[0], compare);
	return errors[250];
}

static void
teach(struct learn *l, unsigned n, double noise)
{
	for (unsigned i = 0; i < n; i++) {
		struct learn_sample s = traffic(noise);

		learn_add(l, &s);
	}
}

Test(learn, finds_the_times_of_the_fitted_engine_within_5_percent_after_200_requests)
{
	for (uint64_t seed = 1; seed <= 20; seed++) {
		struct learn l;

		state = seed;
		learn_begin(&l, prior);
		teach(&l, 200, .1);
		cr_assert_lt(error_of(&l), .05, "seed %lu: %.3f", (unsigned long)seed,
			     error_of(&l));
	}
}

Test(learn, finds_them_when_all_times_are_twenty_times_shorter)
{
	struct learn l;

	state = 3;
	learn_begin(&l, prior);
	for (unsigned i = 0; i < 200; i++) {
		struct learn_sample s = traffic(.1);

		s.ttft_s /= 20;
		learn_add(&l, &s);
	}
	for (unsigned i = 0; i < 20; i++) {
		struct learn_sample s = traffic(0);

		if (s.uncached > 2000)
			cr_assert_float_eq(learn_predict(&l, &s), s.ttft_s / 20,
					   .1 * s.ttft_s / 20);
	}
}

Test(learn, an_outlier_moves_it_little_and_a_lasting_change_gets_through)
{
	struct learn l;
	struct learn_sample probe = {.uncached = 8000}, s;
	double before, moved;

	state = 5;
	learn_begin(&l, prior);
	teach(&l, 200, .05);
	before = learn_predict(&l, &probe);
	s = traffic(0);
	s.ttft_s = 600;
	learn_add(&l, &s);
	moved = fabs(learn_predict(&l, &probe) - before) / before;
	cr_assert_lt(moved, .05, "moved by %.3f", moved);
	for (unsigned i = 0; i < 200; i++) { /* now it is twice as slow */
		s = traffic(.05);
		s.ttft_s *= 2;
		learn_add(&l, &s);
	}
	cr_assert_float_eq(learn_predict(&l, &probe), 2 * before, .2 * before);
}

Test(learn, no_coefficient_is_negative_or_unbounded_whatever_it_is_taught)
{
	struct learn l;
	struct row_predictor published;

	state = 7;
	learn_begin(&l, prior);
	for (unsigned i = 0; i < 5000; i++) {
		struct learn_sample s = {
			.uncached = draw(1e5),
			.cached = draw(1e5),
			.pending = draw(1e6),
			.decoding = draw(500),
			.context = draw(1e7),
			.ttft_s = i % 3 ? draw(1e-3) : draw(1e4),
			.predicted_s = draw(10),
		};

		learn_add(&l, &s);
		learn_publish(&l, &published);
		for (unsigned k = 0; k < COEF_COUNT; k++)
			cr_assert(published.coef[k] >= 0 && published.coef[k] < 1e6f,
				  "coef %u is %g", k, (double)published.coef[k]);
	}
	cr_assert(isfinite(published.err_p50) && published.err_p50 <= published.err_p90);
}

/* The same request over and over says nothing of what it does not vary: that must not drift away.
 */
static void
monotonous(struct learn *l, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		struct learn_sample s = {.uncached = 100, .predicted_s = -1};

		s.ttft_s = engine_ttft(&s) * (1 + .05 * (draw(2) - 1));
		learn_add(l, &s);
	}
}

Test(learn, survives_monotony)
{
	struct learn l;

	state = 9;
	learn_begin(&l, prior);
	teach(&l, 200, .05);
	monotonous(&l, 20000);
	teach(&l, 100, .05);
	cr_assert_lt(error_of(&l), .07);
}

/* A worker that sees only hits cannot tell what a cold prompt costs; its peers can. */
Test(learn, does_not_invent_what_its_requests_never_told)
{
	struct learn peers, row;
	struct learn_sample cold = {.uncached = 16000}, hit;

	state = 3;
	learn_begin(&peers, prior);
	learn_begin(&row, prior);
	for (unsigned i = 0; i < 3000; i++) {
		struct learn_sample s = traffic(.2);

		learn_add(&peers, &s);
		hit = (struct learn_sample){.cached = 4000,
					    .uncached = 240 + floor(draw(30)),
					    .decoding = floor(draw(4))};
		hit.context = hit.decoding * 4200;
		hit.ttft_s = engine_ttft(&hit) * (1 + .5 * draw(1));
		learn_anchor(&row, &peers);
		learn_add(&row, &hit);
		if (i < 200)
			continue;
		double share = learn_predict(&row, &cold) / engine_ttft(&cold);

		cr_assert(share > .7 && share < 1.5, "after %u: %.2f", i, share);
	}
	cr_assert_float_eq(learn_predict(&row, &hit), engine_ttft(&hit) * 1.25,
			   .2 * engine_ttft(&hit));
}

Test(learn, a_worker_that_gets_no_requests_is_believed_to_be_as_its_peers_in_time)
{
	struct learn slow, peers;
	struct learn_sample s = {.uncached = 4000, .predicted_s = -1};
	double apart;

	learn_begin(&slow, prior);
	learn_begin(&peers, prior);
	for (unsigned i = 0; i < 100; i++) {
		s.ttft_s = .1;
		learn_add(&peers, &s);
		s.ttft_s = .3;          /* it had a bad minute, and is asked no more */
		if (i < 30)
			learn_add(&slow, &s);
	}
	learn_anchor(&slow, &peers);
	apart = learn_predict(&slow, &s) - learn_predict(&peers, &s);
	cr_assert_gt(apart, .15);
	for (unsigned i = 0; i < 15; i++)
		learn_idle(&slow, 1);
	cr_assert_float_eq(learn_predict(&slow, &s) - learn_predict(&peers, &s), apart / 2,
			   apart / 100);
	for (unsigned i = 0; i < 60; i++)
		learn_idle(&slow, 1);
	cr_assert_lt(learn_predict(&slow, &s) - learn_predict(&peers, &s), apart / 30);
	/* And it is found out again. */
	s.ttft_s = .3;
	for (unsigned i = 0; i < 30; i++)
		learn_add(&slow, &s);
	cr_assert_gt(learn_predict(&slow, &s), .2, "%g", learn_predict(&slow, &s));
}

Test(learn, calibrates_for_twenty_samples_and_publishes_from_the_prior)
{
	struct learn l;
	struct row_predictor p;

	state = 11;
	learn_begin(&l, prior);
	learn_publish(&l, &p);
	cr_assert_eq(p.version, 1);
	cr_assert_eq(p.state, PREDICTOR_CALIBRATING);
	for (unsigned k = 0; k < COEF_COUNT; k++)
		cr_assert_float_eq(p.coef[k], prior[k], 1e-9);
	teach(&l, LEARN_READY - 1, 0);
	learn_publish(&l, &p);
	cr_assert_eq(p.state, PREDICTOR_CALIBRATING);
	teach(&l, 1, 0);
	learn_publish(&l, &p);
	cr_assert_eq(p.state, PREDICTOR_READY);
	cr_assert_eq(p.samples, LEARN_READY);
}

Test(learn, a_successor_goes_on_from_what_was_published)
{
	struct learn l, next;
	struct row_predictor p, nonsense = {.version = 3, .coef = {NAN}};
	struct learn_sample s = {.uncached = 8000};

	state = 13;
	learn_begin(&l, prior);
	teach(&l, 200, .05);
	learn_publish(&l, &p);
	learn_resume(&next, &p, prior);
	cr_assert_float_eq(learn_predict(&next, &s), learn_predict(&l, &s), 1e-3);
	teach(&next, 30, .05);
	cr_assert_lt(error_of(&next), .07);
	learn_publish(&next, &p);
	cr_assert_eq(p.version, 2);
	cr_assert_eq(p.state, PREDICTOR_READY);
	learn_resume(&next, &nonsense, prior);
	cr_assert_float_eq(next.samples, 0, 0);
}

Test(learn, errors_are_those_of_the_predictions_that_were_made)
{
	struct learn l;
	struct row_predictor p;

	learn_begin(&l, prior);
	for (unsigned i = 0; i < 100; i++) {
		struct learn_sample s = {.uncached = 100, .ttft_s = 1, .predicted_s = 1 + i * .01};

		learn_add(&l, &s);
	}
	learn_publish(&l, &p);
	cr_assert_float_eq(p.err_p50, .5, .02);
	cr_assert_float_eq(p.err_p90, .9, .02);
}

Test(learn, only_whole_streamed_first_attempts_teach)
{
	const struct journal_outcome good = {
		.status = 200,
		.attempts = 1,
		.ttft_us = 500000,
		.prompt = 1000,
		.cached = 400,
		.our_prompt = 999,
		.our_cached = 1,
		.pending = 7,
		.decoding = 2,
		.context = 30,
		.predicted_us = 400000,
	};
	struct journal_outcome o = good;
	struct learn_sample s;

	cr_assert(learn_sample_of(&o, &s));
	cr_assert_float_eq(s.uncached, 600, 0);
	cr_assert_float_eq(s.ttft_s, .5, 1e-9);
	cr_assert_float_eq(s.predicted_s, .4, 1e-9);
	o.prompt = o.cached = UINT32_MAX;
	cr_assert(learn_sample_of(&o, &s));
	cr_assert_float_eq(s.uncached, 998, 0, "else as the decision thought");
	o.our_prompt = 0;
	cr_assert_not(learn_sample_of(&o, &s));
	o.prompt = 1000;
	cr_assert_not(learn_sample_of(&o, &s), "what was cached of it nobody knows");
	o.cached = 0;
	cr_assert(learn_sample_of(&o, &s));
	o = good;
	o.status = 500;
	cr_assert_not(learn_sample_of(&o, &s));
	o = good;
	o.attempts = 2;
	cr_assert_not(learn_sample_of(&o, &s));
	o = good;
	o.ttft_us = UINT32_MAX;
	cr_assert_not(learn_sample_of(&o, &s));
}
