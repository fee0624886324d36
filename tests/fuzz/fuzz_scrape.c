/* fuzz_scrape.c -- a page read in pieces is the page read whole; what it says is within bounds. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "actors/common/scrape.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct scrape whole, pieces;

static void
reading_check(const struct scrape *s, uint16_t rank, uint32_t ranks, struct row_reading *ret)
{
	bool asleep;

	*ret = (struct row_reading){0};
	scrape_reading(s, rank, ranks, ret, &asleep);
	if (asleep && !scrape_asleep(s))
		abort();
	if ((ret->known & KNOWN_KV_USAGE) && !(ret->kv_usage >= 0 && ret->kv_usage <= 1))
		abort();
	if ((ret->known & KNOWN_BLOCK_TOKENS) && ret->block_tokens == 0)
		abort();
	if (ret->waiting == UINT32_MAX || ret->running == UINT32_MAX)
		abort();
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct row_reading a, b;
	enum manifest_engine engine;
	size_t piece;

	if (size < 2)
		return 0;
	engine = data[0] % 5;           /* 0: any */
	piece = data[1] + 1u;
	data += 2;
	size -= 2;
	scrape_page((const char *)data, size, engine, &whole);
	scrape_begin(&pieces, engine);
	for (size_t at = 0; at < size; at += piece)
		scrape_feed(&pieces, (const char *)data + at,
			    size - at < piece ? size - at : piece);
	scrape_end(&pieces, false);
	if (whole.n > SCRAPE_SERIES || whole.n_samples > SCRAPE_SAMPLES)
		abort();
	for (uint32_t ranks = 1; ranks < 4; ranks++) {
		reading_check(&whole, 0, ranks, &a);
		reading_check(&pieces, 0, ranks, &b);
		/* but for lines that are held in pieces, and not in whole */
		if (size < PROMETHEUS_LINE_MAX && memcmp(&a, &b, sizeof a) != 0)
			abort();
	}
	scrape_end(&pieces, true);
	reading_check(&pieces, 1, 2, &b);
	return 0;
}
