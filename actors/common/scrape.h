/* actors/common/scrape.h -- one metrics page of a worker to what its rows show.
 *
 * Names      exact, by engine (scrape_names.c): vllm:num_requests_waiting is not
 *            vllm:num_requests_waiting_by_reason.
 * Ranks      label engine (vLLM) or dp_rank (SGLang) = data-parallel rank.  A row of its own per
 *            rank takes its rank's series; one row for all sums waiting and running and takes the
 *            mean of the KV usage.
 * Same gauge series of one {rank, model, engine_type, version} that differ otherwise (pid of
 *            an API server, tp_rank) are the same gauge: the largest counts.  The same series
 *            twice: the last counts, and is counted.  With SGLang's priorities the total is at
 *            priority="".
 * Unknown    what is missing, NaN, infinite, negative or beyond all reason is unknown, never zero;
 *            one such sample costs no other, but a sum that lacks a part is unknown.  So is a gauge
 *            whose series may have been cut off with the end of the page, and one with more series
 *            than there is room for.
 * Pieces     scrape_begin, scrape_feed as bytes come, scrape_end: the page is kept nowhere.
 * Threads    pure.   Cost: 10 us a page of 60 kB and some 100 ns for each sample of use.
 *            Nothing is allocated.
 * Sources    the engines' own pages: tests/data/metrics.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#include "actors/common/decide/manifest.h"
#include "proto/prometheus.h"
#include "shm/rows.h"

#define SCRAPE_SERIES  128u             /* {rank, model, ...} */
#define SCRAPE_SAMPLES 1024u            /* of use */

enum scrape_gauge {
	SCRAPE_WAITING, SCRAPE_RUNNING, SCRAPE_KV,
	SCRAPE_BLOCK,                           /* tokens a block */
	SCRAPE_BLOCKS,
	SCRAPE_TOKENS,                          /* all blocks together, in tokens */
	SCRAPE_LENGTH,                          /* of the longest context, tokens */
	/* Worth less, where the above are not said. */
	SCRAPE_WAITING_ELSE, SCRAPE_KV_ELSE, SCRAPE_BLOCKS_ELSE,
	SCRAPE_GAUGES,
	/* No gauges of a series. */
	SCRAPE_CONFIG = SCRAPE_GAUGES,          /* labels: block size and count */
	SCRAPE_SLEEP, SCRAPE_START,
	SCRAPE_OF_ENGINE,                       /* one of several, by label */
	SCRAPE_NONE
};

struct scrape_sample {
	uint64_t labels;                        /* all of them, in any order */
	double value;
	uint32_t line;
	uint8_t series, gauge;
	bool bad;                               /* no number to go by */
};

struct scrape_series {
	uint64_t key;
	uint32_t rank;
	uint8_t sleep;                          /* private; scrape_asleep, scrape_reading */
	uint32_t block_tokens, num_blocks;      /* by labels; 0 unknown */
	uint32_t config_line, sleep_line;       /* that said so; 0 none */
};

struct scrape {
	enum manifest_engine engine;            /* of the names in use; 0: of no engine yet */
	bool any_engine;                        /* take the first that the page names */
	unsigned n, n_samples;
	struct scrape_series series[SCRAPE_SERIES];
	struct scrape_sample sample[SCRAPE_SAMPLES];
	uint16_t overflow, cut;                 /* bits by enum scrape_gauge */
	wall_ns start;                          /* 0 unknown */
	uint32_t start_line;
	enum scrape_gauge last;                 /* of the newest line */
	size_t samples, failed;                 /* lines with one, lines that could not be read */
	size_t duplicates;                      /* the same series again */
	bool of_engine;                         /* some line is by a name of this engine */
	bool several;                           /* of one gauge, largest taken (pid, tp_rank) */
	bool truncated;                         /* page was cut, or has too many series */
	struct prometheus_reader reader;
};

void scrape_begin(struct scrape *s, enum manifest_engine engine);
	/* engine 0: whichever the page is of. */
void scrape_feed(struct scrape *s, const char *bytes, size_t len);
void scrape_end(struct scrape *s, bool openmetrics);
	/* openmetrics: it must end with # EOF. */
void scrape_page(const char *page, size_t len, enum manifest_engine engine, struct scrape *ret);
	/* All three. */
void scrape_reading(const struct scrape *s, uint16_t rank, uint32_t ranks, struct row_reading *ret,
		    bool *ret_asleep);
	/* Fills known and what it names; the rest of *ret is left alone. */
enum row_why scrape_why(const struct scrape *s);        /* WHY_OK: nothing is amiss */
bool scrape_is_of(const struct scrape_series *series, uint16_t rank, uint32_t ranks);
bool scrape_asleep(const struct scrape *s);     /* the engine of any rank */
uint32_t scrape_models(const char *json, size_t len, const char *model);
	/* max_model_len of the model in an answer of /v1/models; 0: not said there. */

enum scrape_gauge scrape_gauge_of(const char *line, size_t len, enum manifest_engine engine,
				  enum manifest_engine *ret_engine);
	/* What a line that begins with a name is; SCRAPE_NONE: nothing we read.  engine 0: any. */
enum scrape_gauge scrape_label_of(const struct prometheus_sample *sample, enum scrape_gauge gauge);
	/* Of Triton's families with several gauges: which, by label. */
uint16_t scrape_cut_of(const char *line, size_t len, enum manifest_engine engine);
	/* Bits of the gauges that a line which was cut there may have been of. */
