/* actors/common/decide/predict.c -- predicted time to first token; the formula is in predict.h. */
#include "actors/common/decide/predict.h"

#include <stdbool.h>

#define HEAD_REMAINS 0.02       /* of the head request is never taken for done: estimates err */

uint32_t
predict_usable(uint32_t blocks, uint32_t block_tokens, uint32_t prompt)
{
	if (block_tokens == 0 || prompt == 0)
		return 0;
	uint32_t most = (prompt - 1) / block_tokens;

	return (blocks < most ? blocks : most) * block_tokens;
}

void
predict_ttft(const struct predict_input *input, struct predict_output *ret)
{
	double prefill = (double)input->coef[COEF_PREFILL];
	double attention = (double)input->coef[COEF_ATTENTION];
	double cached = (double)(input->cached < input->prompt ? input->cached : input->prompt);
	double uncached = (double)input->prompt - cached;
	double own = prefill * uncached + attention * uncached * (cached + uncached / 2);
	double ahead = 0, wait = 0;

	if (input->prefilling > 0 && input->pending > 0) {
		double head = (double)input->pending / (double)input->prefilling;
		double per_token = prefill + attention * head / 2;
		/* nothing dispatched yet (decided, not applied): nothing done, whenever the last
		 * byte came */
		bool dispatched = input->oldest_dispatch_ms != PREDICT_NEVER;
		uint32_t elapsed_ms = input->oldest_dispatch_ms < input->last_first_ms ?
			input->oldest_dispatch_ms : input->last_first_ms;
		double done = 0;

		if (dispatched && per_token > 0)
			done = (double)elapsed_ms / 1000.0 / per_token;
		if (done > head * (1 - HEAD_REMAINS))
			done = head * (1 - HEAD_REMAINS);
		ahead = (double)input->pending - done;
		wait = ahead * per_token;
	}
	wait += (double)input->foreign_waiting *
		(prefill * (double)input->prompt +
		 attention * (double)input->prompt * (double)input->prompt / 2);

	ret->wait_s = wait;
	ret->ahead = (uint32_t)ahead;
	ret->load_s = wait +
		(double)input->coef[COEF_DECODE] *
			((double)input->decoding + (double)input->foreign_running) +
		(double)input->coef[COEF_CONTEXT] * (double)input->context;
	ret->ttft_s = (double)input->coef[COEF_BASE] + own + ret->load_s;
}
