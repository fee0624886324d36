/* actors/ingress/tenant_head.c -- see tenant.h: a tenant's limits in an answer's head. */
#include <stdio.h>

#include "actors/ingress/tenant.h"

/* As OpenAI writes times: 12ms, 3.4s, 6m0s.  Rounded up: who waits so long does not come early. */
static void
duration(char buf[32], uint64_t ns)
{
	uint64_t ms = ns / 1000000 + (ns % 1000000 != 0);

	if (ms < 1000)
		snprintf(buf, 32, "%llums", (unsigned long long)ms);
	else if (ms < 60000 && ms % 1000 != 0)
		snprintf(buf, 32, "%llu.%03llus", (unsigned long long)(ms / 1000),
			 (unsigned long long)(ms % 1000));
	else if (ms < 60000)
		snprintf(buf, 32, "%llus", (unsigned long long)(ms / 1000));
	else
		snprintf(buf, 32, "%llum%llus", (unsigned long long)((ms + 999) / 60000),
			 (unsigned long long)((ms + 999) / 1000 % 60));
}

static void
write_one(struct http1_writer *w, const struct limit_left *left, const char *limit,
	  const char *remaining, const char *reset)
{
	char buf[32];

	if (left->limit == 0)
		return;
	duration(buf, left->full_ns);
	http1_write_header_u64(w, limit, left->limit);
	http1_write_header_u64(w, remaining, left->remaining);
	http1_write_header_str(w, reset, buf);
}

void
tenant_write(struct http1_writer *w, const struct tenant_left *left)
{
	write_one(w, &left->requests, "x-ratelimit-limit-requests",
		  "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests");
	write_one(w, &left->tokens, "x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens",
		  "x-ratelimit-reset-tokens");
}
