/* tests/load/report.h -- what was measured: one record per request, and the summary of all.
 *
 * Units      Times in virtual seconds since the start of the run; -1: it never came.
 * TTFT       From when the request was due (open loop) or sent (closed loop) to its first event.
 * ITL        (last token - first token) / (output tokens - 1).
 * Measured   Requests due at or after the warm-up.  A request counts as good when it was answered
 *            and its TTFT met the objective; attainment = good / measured, errors and unfinished
 *            included.
 * req/min    Answers within the window, per virtual minute of it.
 * Threads    One.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct record {
	double sched_s, send_s, conn_s, first_byte_s, first_token_s, last_token_s, end_s;
	char id[64];
	uint32_t conv, turn;
	int32_t prefix_id;
	uint32_t prompt_tokens, output_tokens, cached_tokens;
	uint16_t status;       /* 0: no answer */
	uint16_t worker;       /* index of report_worker */
	bool ok, incomplete;
	const char *error;     /* static; NULL: none */
};

struct report_config {
	double warmup_s;
	double window_end_s;   /* INFINITY: the last answer */
	double slo_ttft_s;
	double started_s;      /* wall seconds since 1970 of time 0 of the records */
	const char *workload;
};

struct report;

struct report *report_new(void);
void report_free(struct report **);
uint16_t report_worker(struct report *, const char *name, size_t len_bytes);
	/* The index of a worker's name, the same for the same name. */
void report_add(struct report *, const struct record *);
uint64_t report_errors(const struct report *);
	/* Records that are neither ok nor incomplete, warm-up included. */
void report_line(const struct report *, const char *workload, const struct record *, FILE *out);
	/* One JSON object, one line. */
int report_summary(const struct report *, const struct report_config *, FILE *text, FILE *json);
	/* Either may be NULL.  0, or -ENOMEM. */
