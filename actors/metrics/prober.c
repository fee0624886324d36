/* actors/metrics/prober.c -- see prober.h. */
#include "actors/metrics/prober.h"

#include <errno.h>
#include <stdlib.h>

struct prober {
	struct fetcher *fetcher; /* owned */
};

struct probe *
probe_new(uint64_t serial, enum probe_kind kind, enum manifest_engine engine)
{
	struct probe *p = calloc(1, sizeof *p);

	if (!p)
		return NULL;
	p->serial = serial;
	p->kind = kind;
	if (kind == PROBE_METRICS) {
		p->scrape = malloc(sizeof *p->scrape);
		if (!p->scrape)
			probe_free(&p);
		else
			scrape_begin(p->scrape, engine);
	}
	return p;
}

void
probe_free(struct probe **ret)
{
	struct probe *p = *ret;

	if (!p)
		return;
	fetch_clear(&p->fetch);
	free(p->scrape);
	free(p->body);
	free(p);
	*ret = NULL;
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

/* In the fetcher's thread. */
static void
page_bytes(struct fetch *f, const char *bytes, size_t n)
{
	struct probe *probe = f->owner;

	scrape_feed(probe->scrape, bytes, n);
}

void
prober_send(struct prober *p, struct probe *probe)
{
	struct fetch *f = &probe->fetch;
	bool page = probe->kind == PROBE_METRICS;

	f->deadline_ns = clock_mono() + 1000000ull * (page ? PROBER_PAGE_MS
						      : probe->body ? PROBER_TOKENIZE_MS
								    : PROBER_CALL_MS);
	f->body = probe->body;
	f->body_len = probe->body_len;
	f->connect_ms = PROBER_CONNECT_MS;
	f->answer_max = probe->kind == PROBE_HEALTH ? 0
			: page			    ? PROBER_PAGE_BYTES
						    : PROBER_ANSWER_BYTES;
	if (page) {
		f->bytes = page_bytes;
		f->accept = "text/plain;version=0.0.4";
		f->decode = true;
	}
	f->owner = probe;
	fetcher_send(p->fetcher, f);
}

struct probe *
prober_collect(struct prober *p)
{
	struct fetch *f = fetcher_collect(p->fetcher);
	struct probe *probe;

	if (!f)
		return NULL;
	probe = f->owner;
	probe->result = result_of(f);
	if (probe->kind == PROBE_METRICS && probe->result == PROBE_OK)
		scrape_end(probe->scrape, strstr(f->content_type, "openmetrics") != NULL);
	return probe;
}
