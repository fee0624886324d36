/* actors/metrics/scrape.h -- one metrics page of a vLLM worker to what its rows show.
 *
 * Names      exact: vllm:num_requests_waiting is not vllm:num_requests_waiting_by_reason.  KV
 *            usage is vllm:kv_cache_usage_perc, before 0.9.2 vllm:gpu_cache_usage_perc.  Block
 *            size and count are labels of vllm:cache_config_info.  process_start_time_seconds:
 *            the engine's life.
 * Ranks      label engine = data-parallel rank.  A row of its own per rank takes its engine's
 *            series; one row for all sums waiting and running and takes the mean of the KV usage.
 * Processes  series that differ in their pid only are the same gauge, written by one of several API
 *            servers: the largest counts.  The same series twice: the last counts.
 * Unknown    what is missing, NaN or infinite is unknown, never zero; one such sample costs no
 *            other.
 * Threads    pure.   Cost: 100 ns a sample.   Nothing is allocated; pages above SCRAPE_SERIES
 *            kinds of {engine, model} are read in part and say so.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "shm/rows.h"

#define SCRAPE_SERIES 128u

enum scrape_gauge { SCRAPE_WAITING, SCRAPE_RUNNING, SCRAPE_KV, SCRAPE_KV_OLD, SCRAPE_GAUGES };

struct scrape_series {                  /* one {engine, model_name} */
	uint32_t engine;
	uint64_t model;                         /* XXH3 of the label; 0 none */
	uint8_t seen, bad;                      /* bits by enum scrape_gauge; bad: was not finite */
	double value[SCRAPE_GAUGES];
	uint32_t block_tokens, num_blocks;      /* 0 unknown */
	bool asleep;
};

struct scrape {
	unsigned n;
	struct scrape_series series[SCRAPE_SERIES];
	wall_ns start;                          /* 0 unknown */
	size_t samples, failed;                 /* lines read, lines that could not be */
	bool truncated;                         /* page ends in mid-line, or has too many series */
};

void scrape_page(const char *page, size_t len, struct scrape *ret);
void scrape_reading(const struct scrape *s, uint16_t rank, uint32_t ranks, struct row_reading *ret,
		    bool *ret_asleep);
	/* Fills known and what it names; the rest of *ret is left alone. */
