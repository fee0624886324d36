/* actors/policy/native.c -- see native.h. */
#include "actors/policy/native.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "actors/common/prompt/segments.h"
#include "shm/trust.h"

struct native_set {
	struct models_blob blob;        /* owned, unless shared */
	struct model *model;            /* owned, unless shared */
	const struct native_set *shared;/* the set whose it is; NULL: its own */
	char why[MODEL_WHY_BYTES];
};

struct native {
	struct segments *segments;      /* owned */
	struct prompt_maker *maker;     /* owned */
	uint32_t n_sets;
	struct native_set set[];
};

int
native_new(struct native **ret, uint32_t n_sets)
{
	struct native *n = calloc(1, sizeof *n + n_sets * sizeof n->set[0]);

	if (!n)
		return -ENOMEM;
	n->n_sets = n_sets;
	for (uint32_t i = 0; i < n_sets; i++)
		n->set[i].blob.seg.fd = -1;
	if (segments_new(NATIVE_CACHE_BYTES, &n->segments) < 0 ||
	    prompt_maker_new(&n->maker) < 0) {
		native_free(&n);
		return -ENOMEM;
	}
	prompt_maker_bounds(n->maker, NATIVE_LOOP_STEPS, NATIVE_LOOP_BYTES);
	*ret = n;
	return 0;
}

void
native_free(struct native **ret)
{
	struct native *n = *ret;

	if (!n)
		return;
	*ret = NULL;
	prompt_maker_free(&n->maker);
	segments_free(&n->segments);
	for (uint32_t i = 0; i < n->n_sets; i++) {
		if (n->set[i].shared)
			continue;
		model_close(&n->set[i].model);
		models_detach(&n->set[i].blob);
	}
	free(n);
}

static const struct native_set *
same_as(const struct native *n, const struct models_blob *blob)
{
	for (uint32_t i = 0; i < n->n_sets; i++)
		if (!n->set[i].shared && n->set[i].model && n->set[i].blob.len == blob->len &&
		    memcmp(n->set[i].blob.key, blob->key, sizeof blob->key) == 0)
			return &n->set[i];
	return NULL;
}

int
native_take(struct native *n, uint32_t set, int fd)
{
	struct native_set *s = set < n->n_sets ? &n->set[set] : NULL;
	struct models_blob blob;
	int r;

	if (!s || s->model) {
		close(fd);
		return -EINVAL;
	}
	r = models_attach(&blob, fd);
	if (r < 0) {
		snprintf(s->why, sizeof s->why, "its segment cannot be mapped: %s", strerror(-r));
		return 0;
	}
	if (!blob.bytes) {
		snprintf(s->why, sizeof s->why, "%s", blob.why);
		models_detach(&blob);
		return 0;
	}
	s->shared = same_as(n, &blob);
	if (s->shared) {
		s->model = s->shared->model;
		models_detach(&blob);
	} else if (model_open(blob.bytes, blob.len, &s->model, s->why, sizeof s->why) < 0) {
		models_detach(&blob);
		return 0;
	} else {
		s->blob = blob;
		s->why[0] = 0;
	}
	if (model_foreign(s->model))
		snprintf(s->why, sizeof s->why, "%s", model_foreign(s->model));
	return 0;
}

const struct model *
native_model(const struct native *n, uint32_t set)
{
	return set < n->n_sets && !n->set[set].why[0] ? n->set[set].model : NULL;
}

const char *
native_why(const struct native *n, uint32_t set)
{
	return set < n->n_sets && n->set[set].why[0] ? n->set[set].why : NULL;
}

uint64_t
native_trust(const struct native *n, uint32_t set, const char *name)
{
	const struct native_set *s = set < n->n_sets ? &n->set[set] : NULL;

	if (!native_model(n, set))
		return 0;
	if (s->shared)
		s = s->shared;
	return trust_key(name, s->blob.key, sizeof s->blob.key);        /* as metrics' verifier */
}

struct segments *
native_segments(struct native *n)
{
	return n->segments;
}

struct prompt_maker *
native_maker(struct native *n)
{
	return n->maker;
}

void
native_make(struct prompt_maker *maker, const struct model *model, struct segments *segments,
	    enum openai_route route, struct slice body, struct native_made *ret)
{
	size_t max = model_max_len(model) ? 0 : NATIVE_IDS_MAX;
	struct prompt_made made;

	*ret = (struct native_made){.ids = NULL};
	if (prompt_make(maker, model, segments, route, body, max, &made) < 0) {
		snprintf(ret->why, sizeof ret->why, "out of memory");
		ret->settled = ret->too_much = true;
		return;
	}
	snprintf(ret->why, sizeof ret->why, "%s", made.why ? made.why : "");
	ret->whole = made.end == PROMPT_EXACT;
	ret->too_much = made.end == PROMPT_TOO_MUCH;
	ret->settled = made.end == PROMPT_REFUSED || ret->too_much;
	if (made.n_prompts == 0)
		return;
	ret->ids = made.prompts[0].ids;
	ret->n = made.prompts[0].n;
	for (size_t i = 0; i < made.n_prompts; i++)
		ret->all += made.prompts[i].n;
}
