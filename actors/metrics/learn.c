/* actors/metrics/learn.c -- coefficients from outcomes; method and bounds in learn.h. */
#include "actors/metrics/learn.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define KEEP 0.9998 /* of what is known, from sample to sample; the rest returns to the anchor */
#define NOISE_LEAST 0.0025 /* variance of a relative error: 5 % */
#define CLIP 3.0           /* times the usual error */
#define USUAL_LEAST 0.02
#define USUAL_GAIN 0.05
#define SHORTEST_S 0.02 /* below, errors count as if it took that long */
#define PEER_DOUBT 0.5  /* a worker's coefficient against its peers': as a share of theirs */

/* One unit of a scaled coefficient in its own unit: makes all of them about 1. */
static const double unit[LEARN_FEATURES] = {
	1e-1, /* base: s */
	1e-4, /* prefill: s / token */
	1e-9, /* attention: s / token^2 */
	1e-2, /* decode: s / request */
	1e-7, /* context: s / token */
};

static const enum coef coef_of[LEARN_FEATURES] = {
	COEF_BASE, COEF_PREFILL, COEF_ATTENTION, COEF_DECODE, COEF_CONTEXT,
};

/* How far from the prior the truth may well lie: as far as the prior is large, and at least so
 * much. */
static const double doubt_least[LEARN_FEATURES] = {1, 3, 2, 1, 1};

static double
larger(double a, double b)
{
	return a > b ? a : b;
}

static void
begin(struct learn *l, const float start[COEF_COUNT], const float prior[COEF_COUNT])
{
	memset(l, 0, sizeof *l);
	l->step_s = prior[COEF_STEP];
	l->usual = 1;
	for (unsigned i = 0; i < LEARN_FEATURES; i++) {
		l->anchor[i] = (double)prior[coef_of[i]] / unit[i];
		l->doubt[i] = larger(l->anchor[i], doubt_least[i]);
		l->doubt[i] *= l->doubt[i];
		l->theta[i] = (double)start[coef_of[i]] / unit[i];
		l->p[i][i] = l->doubt[i];
	}
}

void
learn_begin(struct learn *l, const float prior[COEF_COUNT])
{
	begin(l, prior, prior);
}

void
learn_resume(struct learn *l, const struct row_predictor *published, const float prior[COEF_COUNT])
{
	for (unsigned i = 0; i < COEF_COUNT; i++)
		if (published->version == 0 || !(published->coef[i] >= 0) ||
		    published->coef[i] > 1e6f) {
			begin(l, prior, prior);
			return;
		}
	begin(l, published->coef, prior);
	l->version = published->version;
	l->samples = published->samples;
	l->usual = 0.2;
}

void
learn_anchor(struct learn *l, const struct learn *peers)
{
	if (peers->samples < LEARN_READY)
		return;
	for (unsigned i = 0; i < LEARN_FEATURES; i++) {
		double was = l->doubt[i], is;

		l->anchor[i] = peers->theta[i];
		is = larger(PEER_DOUBT * peers->theta[i], PEER_DOUBT * doubt_least[i] / 10);
		l->doubt[i] = is * is;
		if (l->samples == 0) { /* it begins as its peers are */
			l->theta[i] = l->anchor[i];
			l->p[i][i] *= l->doubt[i] / was;
		}
	}
}

static void
features(const struct learn_sample *s, double ret[LEARN_FEATURES])
{
	ret[0] = unit[0];
	ret[1] = unit[1] * (s->uncached + s->pending);
	ret[2] = unit[2] * s->uncached * (s->cached + s->uncached / 2);
	ret[3] = unit[3] * s->decoding;
	ret[4] = unit[4] * s->context;
}

double
learn_predict(const struct learn *l, const struct learn_sample *sample)
{
	double x[LEARN_FEATURES], sum = 0;

	features(sample, x);
	for (unsigned i = 0; i < LEARN_FEATURES; i++)
		sum += l->theta[i] * x[i];
	return sum;
}

bool
learn_sample_of(const struct journal_outcome *o, struct learn_sample *ret)
{
	uint32_t prompt = o->prompt != UINT32_MAX ? o->prompt : o->our_prompt;
	uint32_t cached = o->cached != UINT32_MAX ? o->cached : o->our_cached;

	if (o->status != 200 || o->attempts > 1 || o->ttft_us == UINT32_MAX || prompt == 0 ||
	    prompt == UINT32_MAX)
		return false;
	/* How much of it was computed, nobody knows: it may all have been cached. */
	if (o->cached == UINT32_MAX && o->our_prompt == 0)
		return false;
	if (cached > prompt)
		cached = prompt;
	*ret = (struct learn_sample){
		.uncached = prompt - cached,
		.cached = cached,
		.pending = o->pending,
		.decoding = o->decoding,
		.context = o->context,
		.ttft_s = o->ttft_us / 1e6,
		.predicted_s = o->predicted_us == UINT32_MAX ? -1 : o->predicted_us / 1e6,
	};
	return true;
}

/* Between two samples the truth may move, and what no request tells returns to the anchor: theta is
 * taken for a process that does so, and so no direction is ever more in doubt than at the
 * beginning. */
static void
drift(struct learn *l, double keep)
{
	for (unsigned i = 0; i < LEARN_FEATURES; i++) {
		l->theta[i] = l->anchor[i] + keep * (l->theta[i] - l->anchor[i]);
		for (unsigned j = 0; j < LEARN_FEATURES; j++)
			l->p[i][j] *= keep * keep;
		l->p[i][i] += (1 - keep * keep) * l->doubt[i];
	}
}

void
learn_idle(struct learn *l, double idle_s)
{
	drift(l, exp2(-idle_s / LEARN_IDLE_HALF_S));
}

static void
update(struct learn *l, const double x[LEARN_FEATURES], double error)
{
	double px[LEARN_FEATURES], total = larger(NOISE_LEAST, l->usual * l->usual);

	for (unsigned i = 0; i < LEARN_FEATURES; i++) {
		px[i] = 0;
		for (unsigned j = 0; j < LEARN_FEATURES; j++)
			px[i] += l->p[i][j] * x[j];
		total += px[i] * x[i];
	}
	for (unsigned i = 0; i < LEARN_FEATURES; i++) {
		l->theta[i] = larger(l->theta[i] + px[i] / total * error, 0);
		for (unsigned j = 0; j <= i; j++) /* both halves alike: stays symmetric */
			l->p[i][j] = l->p[j][i] = l->p[i][j] - px[i] * px[j] / total;
	}
}

void
learn_add(struct learn *l, const struct learn_sample *s)
{
	double x[LEARN_FEATURES], predicted, weight, error, most;

	if (!(s->ttft_s > 0) || !isfinite(s->ttft_s))
		return;
	drift(l, KEEP);
	predicted = learn_predict(l, s);
	features(s, x);
	weight = 1 / larger(larger(predicted, s->ttft_s), SHORTEST_S);
	error = (s->ttft_s - predicted) * weight; /* within -1 .. 1 */
	most = CLIP * l->usual;
	if (fabs(error) > most)
		error = copysign(most, error);
	l->usual = larger(l->usual + USUAL_GAIN * (fabs(error) - l->usual), USUAL_LEAST);
	for (unsigned i = 0; i < LEARN_FEATURES; i++)
		x[i] *= weight;
	update(l, x, error);
	l->samples++;
	if (s->predicted_s >= 0)
		l->error_s[l->n_errors++ % LEARN_ERRORS] = (float)fabs(s->ttft_s - s->predicted_s);
}

static int
float_compare(const void *a, const void *b)
{
	const float *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

void
learn_publish(struct learn *l, struct row_predictor *ret)
{
	unsigned n = l->n_errors < LEARN_ERRORS ? l->n_errors : LEARN_ERRORS;
	float sorted[LEARN_ERRORS];

	*ret = (struct row_predictor){
		.version = ++l->version,
		.samples = l->samples,
		.state = l->samples < LEARN_READY ? PREDICTOR_CALIBRATING : PREDICTOR_READY,
	};
	for (unsigned i = 0; i < LEARN_FEATURES; i++)
		ret->coef[coef_of[i]] = (float)(l->theta[i] * unit[i]);
	ret->coef[COEF_STEP] = l->step_s;
	if (n == 0)
		return;
	memcpy(sorted, l->error_s, n * sizeof sorted[0]);
	qsort(sorted, n, sizeof sorted[0], float_compare);
	ret->err_p50 = sorted[n / 2];
	ret->err_p90 = sorted[n * 9 / 10];
}
