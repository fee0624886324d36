/* actors/metrics/prober.c -- see prober.h. */
#include "actors/metrics/prober.h"

#include <errno.h>
#include <stdlib.h>

struct prober {
	struct fetcher *fetcher; /* owned */
};

struct probe *
probe_new(uint64_t serial)
{
	struct probe *p = calloc(1, sizeof *p);

	if (p)
		p->serial = serial;
	return p;
}

void
probe_free(struct probe **ret)
{
	struct probe *p = *ret;

	if (!p)
		return;
	for (unsigned i = 0; i < PROBE_KINDS; i++)
		fetch_clear(&p->call[i].fetch);
	free(p);
	*ret = NULL;
}

const char *
probe_result_name(enum probe_result result)
{
	static const char *const names[] = {"ok", "slow", "unreachable", "status", "too-large"};

	return names[result];
}

static enum probe_result
result_of(const struct fetch *f)
{
	switch (f->result) {
	case FETCH_OK:
		return f->status == 200 ? PROBE_OK : PROBE_STATUS;
	case FETCH_LARGE:
		return PROBE_LARGE;
	case FETCH_LATE:
		return f->connected ? PROBE_SLOW : PROBE_UNREACHABLE;
	default:
		return PROBE_UNREACHABLE;
	}
}

int
prober_new(struct prober **ret)
{
	struct prober *p = calloc(1, sizeof *p);

	if (!p)
		return -ENOMEM;
	if (fetcher_new(&p->fetcher, 0) < 0) {
		prober_free(&p);
		return -ENOMEM;
	}
	*ret = p;
	return 0;
}

static void
drop(struct fetch *f)
{
	struct probe *probe = f->owner;

	if (--probe->under_way == 0)
		probe_free(&probe);
}

void
prober_free(struct prober **ret)
{
	struct prober *p = *ret;

	if (!p)
		return;
	fetcher_free(&p->fetcher, drop);
	free(p);
	*ret = NULL;
}

zsock_t *
prober_socket(struct prober *p)
{
	return fetcher_socket(p->fetcher);
}

void
prober_send(struct prober *p, struct probe *probe)
{
	mono_ns deadline_ns = clock_mono() + PROBER_CALL_MS * 1000000ull;

	probe->under_way = PROBE_KINDS;
	for (unsigned i = 0; i < PROBE_KINDS; i++) {
		struct fetch *f = &probe->call[i].fetch;

		f->deadline_ns = deadline_ns;
		f->connect_ms = PROBER_CONNECT_MS;
		f->answer_max = i == PROBE_METRICS ? PROBER_PAGE_BYTES : 0;
		f->owner = probe;
		fetcher_send(p->fetcher, f);
	}
}

struct probe *
prober_collect(struct prober *p)
{
	struct fetch *f;

	while ((f = fetcher_collect(p->fetcher)) != NULL) {
		struct probe *probe = f->owner;

		if (--probe->under_way > 0)
			continue;
		for (unsigned i = 0; i < PROBE_KINDS; i++)
			probe->call[i].result = result_of(&probe->call[i].fetch);
		return probe;
	}
	return NULL;
}
