/* tests/unit/test_predict.c -- predicted time to first token, by numbers worked out by hand. */
#include <criterion/criterion.h>
#include <math.h>

#include "actors/common/decide/predict.h"

/* 1 ms a token, 10 ms base; the rest where a test needs it. */
static struct predict_input
input(uint32_t prompt, uint32_t cached)
{
	return (struct predict_input){
		.coef = {[COEF_BASE] = 0.01f, [COEF_PREFILL] = 0.001f},
		.prompt = prompt, .cached = cached,
		.oldest_dispatch_ms = PREDICT_NEVER, .last_first_ms = PREDICT_NEVER,
	};
}

static struct predict_output
predicted(const struct predict_input *in)
{
	struct predict_output out;

	predict_ttft(in, &out);
	return out;
}

#define NEAR(a, b)                                                                                 \
	cr_assert(fabs((a) - (b)) < 1e-6, #a " is %.9f, not %.9f", (double)(a), (double)(b))

Test(predict, an_idle_worker_takes_base_and_the_uncached_part)
{
	struct predict_input in = input(1000, 0);

	NEAR(predicted(&in).ttft_s, 0.01 + 1.0);
	in.cached = 600;
	NEAR(predicted(&in).ttft_s, 0.01 + 0.4);
	NEAR(predicted(&in).wait_s, 0);
}

Test(predict, attention_counts_the_cached_part_as_context)
{
	struct predict_input in = input(1000, 600);

	in.coef[COEF_ATTENTION] = 1e-6f;
	/* 400 x (600 + 200) x 1e-6 = 0.32 */
	NEAR(predicted(&in).ttft_s, 0.01 + 0.4 + 0.32);
}

Test(predict, work_ahead_is_waited_for_less_what_is_done)
{
	struct predict_input in = input(100, 0);

	in.pending = 3000, in.prefilling = 2;
	in.oldest_dispatch_ms = 500;
	in.last_first_ms = 4000;        /* before the oldest dispatch: does not shorten it */
	NEAR(predicted(&in).wait_s, 2.5);
	cr_assert_eq(predicted(&in).ahead, 2500);
	in.last_first_ms = 200;         /* the head began its turn then */
	NEAR(predicted(&in).wait_s, 2.8);
	NEAR(predicted(&in).ttft_s, 0.01 + 2.8 + 0.1);
}

Test(predict, work_that_is_decided_and_not_dispatched_has_not_begun)
{
	struct predict_input in = input(0, 0);

	in.pending = 3000, in.prefilling = 1;
	in.last_first_ms = 700;
	NEAR(predicted(&in).wait_s, 3.0);
}

Test(predict, at_least_two_percent_of_the_head_remains)
{
	struct predict_input in = input(0, 0);

	in.pending = 3000, in.prefilling = 2;           /* heads of 1500 */
	in.oldest_dispatch_ms = 60000;
	NEAR(predicted(&in).wait_s, 1.5 + 0.03);
	in.prefilling = 1;
	NEAR(predicted(&in).wait_s, 0.06);
}

Test(predict, decodes_and_their_context_slow_the_first_token)
{
	struct predict_input in = input(100, 0);

	in.coef[COEF_DECODE] = 0.1f, in.coef[COEF_CONTEXT] = 1e-5f;
	in.decoding = 3, in.context = 20000;
	NEAR(predicted(&in).ttft_s, 0.01 + 0.1 + 0.3 + 0.2);
	in.foreign_running = 2;
	NEAR(predicted(&in).ttft_s, 0.01 + 0.1 + 0.5 + 0.2);
}

Test(predict, strangers_that_wait_count_as_prompts_like_this_one)
{
	struct predict_input in = input(1000, 900);

	in.foreign_waiting = 2;
	NEAR(predicted(&in).wait_s, 2.0);
}

Test(predict, usable_blocks_are_whole_and_never_reach_the_last_token)
{
	cr_assert_eq(predict_usable(10, 16, 160), 144);         /* exact multiple: one block less */
	cr_assert_eq(predict_usable(10, 16, 161), 160);
	cr_assert_eq(predict_usable(10, 16, 175), 160);
	cr_assert_eq(predict_usable(3, 16, 175), 48);
	cr_assert_eq(predict_usable(3, 784, 784 * 2 + 5), 784 * 2);
	cr_assert_eq(predict_usable(3, 16, 0), 0);
	cr_assert_eq(predict_usable(3, 16, 1), 0);
	cr_assert_eq(predict_usable(3, 0, 100), 0, "unknown block size: no knowledge");
}

Test(predict, more_cached_than_prompt_is_taken_as_all_of_it)
{
	struct predict_input in = input(100, 4000);

	NEAR(predicted(&in).ttft_s, 0.01);
}
