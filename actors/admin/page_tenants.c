/* actors/admin/page_tenants.c -- tenants on the page: only those that are configured are labels. */
#include "actors/admin/page_private.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "actors/common/show.h"

struct tenant {
	const char *name;
	const struct limit_tenant *words;
	struct limit_use use;
};

static const struct series {
	const char *name, *help;
	size_t offset;
} series[] = {
	{"tenant_requests_total", "let in", offsetof(struct limit_use, requests)},
	{"tenant_prompt_tokens_total", "of prompts, as answers said, else as counted here",
	 offsetof(struct limit_use, prompt)},
	{"tenant_cached_tokens_total", "of these, those that the worker had",
	 offsetof(struct limit_use, cached)},
	{"tenant_completion_tokens_total", "of answers, likewise",
	 offsetof(struct limit_use, completion)},
	{"tenant_estimated_total", "requests whose tokens no answer said",
	 offsetof(struct limit_use, estimated)},
};

static void
begin(FILE *to, const char *name, const struct tenant *t)
{
	fprintf(to, "pointsman_%s{tenant=", name);
	page_label(to, t->name);
}

static uint64_t
word_at(const struct limit_use *use, size_t offset)
{
	uint64_t word;

	memcpy(&word, (const char *)use + offset, sizeof word);
	return word;
}

static void
refusals(FILE *to, const struct tenant *tenant, uint32_t n)
{
	page_head(to, "tenant_refused_total", "counter",
		  "429 by the limit that was reached, 403 while blocked, or refused by a rule");
	for (uint32_t i = 0; i < n; i++)
		for (unsigned k = LIMIT_BY_REQUESTS; k < LIMIT_REFUSALS; k++) {
			begin(to, "tenant_refused_total", &tenant[i]);
			fprintf(to, ",reason=\"%s\"} %" PRIu64 "\n",
				limit_refusal_name((enum limit_refusal)k),
				tenant[i].use.refused[k]);
		}
}

static void
times(FILE *to, const struct tenant *tenant, uint32_t n)
{
	page_head(to, "tenant_ttft_seconds", "histogram",
		  "of streamed answers: from the request to the first byte of its answer");
	for (uint32_t i = 0; i < n; i++) {
		const struct limit_use *use = &tenant[i].use;
		uint64_t sum = 0;

		for (unsigned k = 0; k < LIMIT_TTFT_BUCKETS; k++) {
			sum += use->ttft[k];
			begin(to, "tenant_ttft_seconds_bucket", &tenant[i]);
			if (k < LIMIT_TTFT_BUCKETS - 1)
				fprintf(to, ",le=\"%g\"} %" PRIu64 "\n",
					(double)limit_ttft_ms[k] / 1000, sum);
			else
				fprintf(to, ",le=\"+Inf\"} %" PRIu64 "\n", sum);
		}
		begin(to, "tenant_ttft_seconds_sum", &tenant[i]);
		fprintf(to, "} %.6f\n", (double)use->ttft_us / 1e6);
		begin(to, "tenant_ttft_seconds_count", &tenant[i]);
		fprintf(to, "} %" PRIu64 "\n", sum);
	}
}

static void
gauges(FILE *to, const struct tenant *tenant, uint32_t n)
{
	page_head(to, "tenant_requests_in_flight", "gauge", "let in and not over");
	for (uint32_t i = 0; i < n; i++) {
		begin(to, "tenant_requests_in_flight", &tenant[i]);
		fprintf(to, "} %" PRIu64 "\n", tenant[i].use.concurrent);
	}
	page_head(to, "tenant_blocked", "gauge", "1: by pointsctl tenant block");
	for (uint32_t i = 0; i < n; i++) {
		begin(to, "tenant_blocked", &tenant[i]);
		fprintf(to, "} %d\n", pm_tenant_blocked(tenant[i].words));
	}
	page_head(to, "tenant_cost_total", "counter", "money, by the providers' prices");
	for (uint32_t i = 0; i < n; i++) {
		begin(to, "tenant_cost_total", &tenant[i]);
		fprintf(to, "} %.6f\n", (double)tenant[i].use.cost / LIMIT_MONEY);
	}
}

void
page_tenants(FILE *to, const struct pm_view *view)
{
	uint32_t n = 0, most = view->manifest ? view->manifest->n_tenants : 0;
	struct tenant *tenant;

	if (most > PM_SHOW_TENANTS_MAX)
		most = PM_SHOW_TENANTS_MAX;
	if (most == 0 || !view->limits.tenant || !(tenant = calloc(most, sizeof *tenant)))
		return;
	for (uint32_t i = 0; i < most; i++) {
		const char *name = view->manifest->tenants[i].name;
		uint32_t row = limits_find(&view->limits, limit_uid(name, strlen(name)));

		if (row == LIMIT_NO_ROW)
			continue;
		tenant[n] = (struct tenant){.name = name, .words = &view->limits.tenant[row]};
		limits_sum(&view->limits, row, &tenant[n++].use);
	}
	for (size_t k = 0; k < sizeof series / sizeof series[0]; k++) {
		page_head(to, series[k].name, "counter", series[k].help);
		for (uint32_t i = 0; i < n; i++) {
			begin(to, series[k].name, &tenant[i]);
			fprintf(to, "} %" PRIu64 "\n", word_at(&tenant[i].use, series[k].offset));
		}
	}
	refusals(to, tenant, n);
	gauges(to, tenant, n);
	times(to, tenant, n);
	free(tenant);
}
