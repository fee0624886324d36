/* actors/common/decide/predict.h -- how long until a worker gives the first token of this prompt.
 *
 * Question   A prompt of so many tokens, so many of them cached there, behind so much work:
 *            seconds?
 *
 *      ttft = base + wait + own + decode * decoding + context * context tokens
 *      own  = prefill * u + attention * u * (cached + u / 2)            u = uncached tokens
 *      wait = the same rate over the tokens ahead of us, less what the engine has done since the
 *             newest of {oldest dispatch without a first byte, last first byte}; at least 2 % of
 *             the head request stays; plus waiting requests that are not ours, each taken to be a
 *             prompt like this one.
 *
 * Inputs     plain numbers, no clocks: ages are handed in.  Coefficients: seconds (rows.h enum
 *            coef).
 * Result     bit for bit the same for the same input (compiled with -ffp-contract=off).
 * Threads    pure functions: any.  Nothing blocks, allocates or fails.  Tens of nanoseconds.
 */
#pragma once
#include <stdint.h>

#include "shm/rows.h"

#define PREDICT_NEVER UINT32_MAX                /* an age: it never happened */

struct predict_input {
	float coef[COEF_COUNT];
	uint32_t prompt;                        /* tokens; 0: unknown */
	uint32_t cached;  /* tokens of it that are cached there (predict_usable) */
	uint32_t pending; /* tokens: prefill of ours without a first byte, all of it */
	uint32_t prefilling;                    /* requests that `pending` belongs to */
	uint32_t context;                       /* tokens: prompts of ours that are being decoded */
	uint32_t decoding;                      /* requests of ours that are being decoded */
	uint32_t oldest_dispatch_ms; /* age of the oldest of `prefilling`; PREDICT_NEVER */
	uint32_t last_first_ms;                 /* age of the newest first byte; PREDICT_NEVER */
	uint32_t foreign_waiting;               /* requests queued there that we did not send */
	uint32_t foreign_running;               /* requests decoding there that we did not send */
};

struct predict_output {
	double ttft_s;
	double wait_s;                          /* part of it spent behind others */
	double load_s;                          /* part of it that an idle worker would not take */
	uint32_t ahead;                         /* tokens: what of `pending` is still to be done */
};

void predict_ttft(const struct predict_input *input, struct predict_output *ret);

uint32_t predict_usable(uint32_t blocks, uint32_t block_tokens, uint32_t prompt);
	/* Tokens of a prompt that a worker holding its first `blocks` blocks will not compute:
	 * whole blocks only, and never the last token: at most floor((prompt - 1) / block_tokens)
	 * blocks. */
