/* The load generator's prompts (sizes, shared parts, history) and its arithmetic. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/emulator/words.h"
#include "tests/load/report.h"
#include "tests/load/workload.h"

static struct workload_config
config(enum workload_kind kind, bool ids)
{
	return (struct workload_config){
		.kind = kind, .ids = ids, .stream = true, .history_real = true,
		.prompt_tokens = 1000, .output_tokens = 5, .prefixes = 4, .prefix_tokens = 800,
		.suffix_tokens = 50, .turns = 3, .first_tokens = 100, .next_tokens = 20,
		.content_seed = 42, .arrival_seed = 1, .unique_seed = 7, .model = "m",
		.id_prefix = "t"};
}

static json_t *
body_of(const struct ask *ask)
{
	json_error_t error;
	json_t *body = json_loadb(ask->body, ask->len_bytes, 0, &error);

	cr_assert(json_is_object(body), "%s", error.text);
	return body;
}

/* Tokens of a chat body, as the emulator counts them. */
static uint32_t *
chat_tokens(const json_t *body, unsigned *n)
{
	const char *why;
	size_t len;
	char *text = words_chat(json_object_get(body, "messages"), NULL, 1, &len, &why);
	uint32_t *token = words_encode(WORDS_BYTES4, text, len, n);

	free(text);
	return token;
}

static unsigned
common(const uint32_t *a, unsigned n, const uint32_t *b, unsigned m)
{
	unsigned i = 0;

	while (i < n && i < m && a[i] == b[i])
		i++;
	return i;
}

Test(load_workload, control_prompts_have_the_size_asked_for_and_nothing_in_common)
{
	struct workload_config cfg = config(WORKLOAD_CONTROL, false);
	struct workload *w = workload_new(&cfg);
	struct ask *a = workload_next(w), *b = workload_next(w);
	json_t *x = body_of(a), *y = body_of(b);
	unsigned n, m;
	uint32_t *s = chat_tokens(x, &n), *t = chat_tokens(y, &m);

	cr_assert(n >= 1000 && n <= 1010, "%u tokens", n);
	cr_assert_leq(common(s, n, t, m), 3); /* the template's own */
	cr_assert_str_eq(json_string_value(json_object_get(x, "user")), a->id);
	cr_assert_str_neq(a->id, b->id);
	cr_assert_eq(json_integer_value(json_object_get(x, "max_completion_tokens")), 5);
	free(s);
	free(t);
	json_decref(x);
	json_decref(y);
	workload_done(w, &a, true, NULL, 0);
	workload_done(w, &b, true, NULL, 0);
	workload_free(&w);
}

Test(load_workload, shared_prompts_share_their_prefix_across_runs_and_nothing_else)
{
	struct workload_config cfg = config(WORKLOAD_SHARED, false);
	struct workload *w = workload_new(&cfg), *v;
	uint32_t *first[4] = {0}, *token;
	unsigned n[4] = {0}, seen = 0, m, again = 0;

	for (int i = 0; i < 60; i++) {
		struct ask *ask = workload_next(w);
		json_t *body = body_of(ask);
		unsigned p = (unsigned)ask->prefix_id;

		cr_assert_lt(p, 4);
		token = chat_tokens(body, &m);
		cr_assert(m >= 850 && m <= 862, "%u tokens", m);
		if (first[p] == NULL) {
			first[p] = token;
			n[p] = m;
			seen++;
		} else {
			unsigned same = common(first[p], n[p], token, m);

			cr_assert(same >= 800 && same < 812, "%u shared", same);
			free(token);
		}
		json_decref(body);
		workload_done(w, &ask, true, NULL, 0);
	}
	cr_assert_eq(seen, 4);
	workload_free(&w);

	cfg.unique_seed = 8; /* another run */
	v = workload_new(&cfg);
	for (int i = 0; i < 10; i++) {
		struct ask *ask = workload_next(v);
		json_t *body = body_of(ask);
		unsigned p = (unsigned)ask->prefix_id, same;

		token = chat_tokens(body, &m);
		same = common(first[p], n[p], token, m);
		again += same >= 800 && same < 812;
		free(token);
		json_decref(body);
		workload_done(v, &ask, true, NULL, 0);
	}
	cr_assert_eq(again, 10);
	workload_free(&v);
	for (int i = 0; i < 4; i++)
		free(first[i]);
}

Test(load_workload, id_prompts_have_exactly_the_size_asked_for)
{
	struct workload_config cfg = config(WORKLOAD_SHARED, true);
	struct workload *w = workload_new(&cfg);
	struct ask *ask = workload_next(w);
	json_t *body = body_of(ask), *prompt = json_object_get(body, "prompt");

	cr_assert_str_eq(ask->path, "/v1/completions");
	cr_assert_eq(json_array_size(prompt), 850);
	for (size_t i = 0; i < 850; i++)
		cr_assert(json_is_integer(json_array_get(prompt, i)));
	cr_assert_eq(json_integer_value(json_object_get(body, "max_tokens")), 5);
	json_decref(body);
	workload_done(w, &ask, true, NULL, 0);
	workload_free(&w);
}

Test(load_workload, a_turn_is_the_whole_history_and_one_more_message)
{
	struct workload_config cfg = config(WORKLOAD_MULTITURN, false);
	struct workload *w = workload_new(&cfg);
	unsigned turn = 0, n = 0, m;
	uint32_t *before = NULL, *token;

	for (; turn < 3; turn++) {
		struct ask *ask = workload_next(w);
		json_t *body = body_of(ask), *messages = json_object_get(body, "messages");

		cr_assert_eq(ask->conv, 0);
		cr_assert_eq(ask->turn, turn);
		cr_assert_eq(json_array_size(messages), 2 * turn + 1);
		if (turn > 0)
			cr_assert_str_eq(
				json_string_value(json_object_get(
					json_array_get(messages, 2 * turn - 1), "content")),
				"an \"answer\"");
		token = chat_tokens(body, &m);
		if (before != NULL)
			cr_assert_geq(common(before, n, token, m), n - 1);
		free(before);
		before = token;
		n = m;
		json_decref(body);
		workload_done(w, &ask, true, "an \\\"answer\\\"", 13);
	}
	free(before);
	struct ask *next = workload_next(w);

	cr_assert_eq(next->conv, 1); /* the first is over after its turns */
	workload_done(w, &next, false, NULL, 0);
	workload_free(&w);
}

Test(load_workload, stripped_history_never_cuts_an_escape)
{
	struct workload_config cfg = config(WORKLOAD_MULTITURN, false);
	struct workload *w;
	struct ask *ask;

	cfg.history_real = false;
	w = workload_new(&cfg);
	ask = workload_next(w);
	workload_done(w, &ask, true, "ab\\\"\\\"c", 7); /* half of it ends behind a backslash */
	ask = workload_next(w);
	json_decref(body_of(ask));
	workload_done(w, &ask, true, "", 0);
	workload_free(&w);
}

Test(load_workload, zipf_prefers_the_first_prefixes)
{
	struct workload_config cfg = config(WORKLOAD_SHARED, true);
	unsigned count[4] = {0};
	struct workload *w;

	cfg.zipf = 1;
	cfg.prefix_tokens = 1;
	w = workload_new(&cfg);
	for (int i = 0; i < 4000; i++) {
		struct ask *ask = workload_next(w);

		count[ask->prefix_id]++;
		workload_done(w, &ask, true, NULL, 0);
	}
	/* shares 12/25, 6/25, 4/25, 3/25 */
	cr_assert(count[0] > 1770 && count[0] < 2070, "%u", count[0]);
	cr_assert(count[3] > 380 && count[3] < 580, "%u", count[3]);
	workload_free(&w);
}

Test(load_report, the_summary_is_right_on_a_case_done_by_hand)
{
	struct report *report = report_new();
	struct report_config cfg = {.warmup_s = 10, .window_end_s = 70, .slo_ttft_s = 2,
				    .workload = "shared"};
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);
	json_t *json, *ttft;

	for (int i = 0; i < 12; i++) {
		/* one every 5 s; TTFT 1, 2, ... 10 for the ten that count */
		struct record rec = {.sched_s = 5.0 * i, .send_s = 5.0 * i, .conn_s = 5.0 * i,
				     .first_byte_s = 5.0 * i, .first_token_s = 5.0 * i + i - 1,
				     .last_token_s = 5.0 * i + i + 9, .end_s = 5.0 * i + i + 9,
				     .prompt_tokens = 100, .cached_tokens = 40, .output_tokens = 11,
				     .status = 200, .ok = true};

		rec.worker = report_worker(report, i % 2 ? "a" : "b", 1);
		if (i == 11) {
			rec.ok = false;
			rec.status = 503;
			rec.error = "refused by the server";
		}
		report_add(report, &rec);
	}
	cr_assert_eq(report_errors(report), 1);
	cr_assert_eq(report_summary(report, &cfg, NULL, out), 0);
	fclose(out);
	json = json_loads(text, 0, NULL);
	cr_assert_not_null(json);
	cr_assert_eq(json_integer_value(json_object_get(json, "n")), 10);
	cr_assert_eq(json_integer_value(json_object_get(json, "ok")), 9);
	cr_assert_eq(json_integer_value(json_object_get(json, "err")), 1);
	ttft = json_object_get(json, "ttft_s");
	cr_assert_float_eq(json_real_value(json_object_get(ttft, "p50")), 5, 1e-6);
	cr_assert_float_eq(json_real_value(json_object_get(ttft, "p99")), 9, 1e-6);
	cr_assert_float_eq(json_real_value(json_object_get(ttft, "mean")), 5, 1e-6);
	cr_assert_float_eq(json_real_value(json_object_get(json, "hit_share")), 0.4, 1e-6);
	/* in the window of one minute: ends at 6 i + 9 <= 70, i from 2 to 10 */
	cr_assert_float_eq(json_real_value(json_object_get(json, "req_per_min")), 9, 1e-6);
	cr_assert_float_eq(json_real_value(json_object_get(json, "attainment")), 0.2, 1e-6);
	cr_assert_float_eq(json_real_value(json_object_get(json_object_get(json, "itl_s"), "p50")),
			   1, 1e-6);
	json_decref(json);
	free(text);
	report_free(&report);
}
