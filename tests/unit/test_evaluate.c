/* tests/unit/test_evaluate.c -- one question to one answer, over real segments and no socket. */
#include "tests/unit/policy_world.h"

Test(evaluate, a_prompt_goes_to_the_worker_that_holds_its_prefix)
{
	struct world w;

	begin(&w, "PredictedTTFT");
	cache(&w, 3, 0, 1000, 800, INDEX_EXACT);
	cache(&w, 4, 0, 1000, 320, INDEX_EXACT);
	struct msg_answer a = answer_to(&w, ids_body("demo", 1000, 1000));

	cr_assert_eq(a.verdict, VERDICT_CHOOSE);
	cr_assert_eq(a.number, 1);
	cr_assert_eq(a.prompt, 1000);
	cr_assert_eq(a.source, TOKENS_IDS);
	cr_assert_eq(a.n_candidates, 3);
	cr_assert_eq(a.candidates[0].row, 3);
	cr_assert_eq(a.candidates[0].cached, 800);
	cr_assert_eq(a.candidates[0].uncached, 200);
	cr_assert_eq(abs((int)a.candidates[0].ttft - 210000) <= 1, true,
		     "10 ms + 200 x 1 ms, got %u", a.candidates[0].ttft);
	cr_assert_eq(a.candidates[0].rank, 65535);
	cr_assert_eq(a.candidates[1].row, 4);
	cr_assert_eq(a.candidates[1].cached, 320);
	cr_assert_eq(a.candidates[2].row, 2);
	cr_assert_eq(a.candidates[2].cached, 0);
	cr_assert_eq(a.n_roots, 1);
	cr_assert_eq(a.roots[0].block_tokens, BLOCK);
	cr_assert_eq(a.roots[0].hashes.len, 62 * 8);
	cr_assert_eq(a.candidates[0].n_edits, 0);
	cr_assert(slice_eq_str(a.model, "demo"));
	cr_assert_eq(a.alias.len, 0);
	end(&w);
}

Test(evaluate, a_whole_prompt_in_the_cache_still_computes_its_last_block)
{
	struct world w;

	begin(&w, "PredictedTTFT");
	cache(&w, 3, 0, 1000, 160, INDEX_EXACT);
	struct msg_answer a = answer_to(&w, ids_body("demo", 1000, 160));

	cr_assert_eq(a.candidates[0].row, 3);
	cr_assert_eq(a.candidates[0].cached, 144);
	end(&w);
}

Test(evaluate, a_warm_busy_worker_loses_to_a_cold_idle_one)
{
	struct cell_values v = {.pending = 5000, .prefilling = 1};
	struct world w;

	begin(&w, "PredictedTTFT");
	cache(&w, 3, 0, 1000, 800, INDEX_EXACT);
	v.oldest_dispatch_ms = (uint32_t)(clock_mono() / 1000000);
	cell_write(&w.column.cell[3], 1, &v);
	struct msg_answer a = answer_to(&w, ids_body("demo", 1000, 1000));

	cr_assert_neq(a.candidates[0].row, 3);
	cr_assert_eq(a.candidates[2].row, 3);
	cr_assert_gt(a.candidates[2].pending, 4900);

	cell_write(&w.column.cell[3], 2, &v); /* of another row generation: reads as zero */
	a = answer_to(&w, ids_body("demo", 1000, 1000));
	cr_assert_eq(a.candidates[0].row, 3);
	cr_assert_eq(a.candidates[0].pending, 0);
	end(&w);
}

Test(evaluate, answers_not_applied_yet_are_charged_and_applied_ones_are_not_charged_twice)
{
	struct world w;
	uint32_t got[16] = {0};

	begin(&w, "PredictedTTFT");
	for (uint32_t i = 0; i < 12; i++) {             /* different prompts, nothing applied */
		struct msg_answer a = answer_to(&w, ids_body("demo", 100000 * (i + 1), 500));

		cr_assert_eq(a.number, i + 1);
		got[a.candidates[0].row]++;
	}
	cr_assert_eq(got[2], 4);
	cr_assert_eq(got[3], 4);
	cr_assert_eq(got[4], 4);
	cr_assert_eq(overlay_length(w.view.overlay), 12);
	cr_assert_eq(overlay_row(w.view.overlay, 2, 1).pending, 4 * 500);

	struct cell_values v = {.pending = 2000, .prefilling = 4};

	v.oldest_dispatch_ms = (uint32_t)(clock_mono() / 1000000);
	for (uint16_t row = 2; row <= 4; row++)
		cell_write(&w.column.cell[row], 1, &v);
	apply(&w, 12);
	struct msg_answer a = answer_to(&w, ids_body("demo", 5, 500));

	cr_assert_eq(overlay_length(w.view.overlay), 1, "only this one");
	cr_assert_leq(a.candidates[0].pending, 2000);
	cr_assert_gt(a.candidates[0].pending, 1900);
	end(&w);
}

static uint32_t
cached_at_3(struct world *w, uint32_t known, uint32_t start, uint64_t seen)
{
	struct row_reading reading;
	struct msg_answer a;

	row_reading_read(&w->rows.row[3], &reading);
	reading.known = KNOWN_WAITING | KNOWN_RUNNING | known;
	reading.start_lo = start;
	row_reading_write(&w->rows.row[3], &reading);
	atomic_store(&w->rows.row[3].engine_start_seen, seen);
	a = answer_to(w, ids_body("demo", 1000, 800));
	for (unsigned i = 0; i < a.n_candidates; i++)
		if (a.candidates[i].row == 3)
			return a.candidates[i].cached;
	cr_assert_fail("no candidate");
	return 0;
}

Test(evaluate, what_a_worker_held_counts_only_while_it_is_known_to_be_the_same_engine)
{
	struct world w;

	begin(&w, "PredictedTTFT");
	cache(&w, 3, 0, 1000, 800, INDEX_EXACT);
	cr_assert_gt(cached_at_3(&w, 0, 0, 0), 700, "it never says its start");
	cr_assert_gt(cached_at_3(&w, KNOWN_ENGINE_START, 77, 0), 700, "nobody has looked");
	cr_assert_gt(cached_at_3(&w, KNOWN_ENGINE_START, 77, 77), 700);
	cr_assert_eq(cached_at_3(&w, 0, 77, 77), 0, "it was away since");
	cr_assert_eq(cached_at_3(&w, KNOWN_ENGINE_START, 78, 77), 0, "the index is of 77");
	cr_assert_gt(cached_at_3(&w, KNOWN_ENGINE_START, 78, 78), 700);
	end(&w);
}

Test(evaluate, siblings_meet_before_any_event_speaks_of_their_prefix)
{
	struct world w;

	begin(&w, "PredictedTTFT");
	struct msg_answer a = answer_to(&w, ids_body("demo", 1000, 800));
	uint16_t first = a.candidates[0].row;

	cr_assert_eq(a.candidates[0].cached, 0);
	apply(&w, 1);                   /* and its cell still shows nothing: the worker is idle */
	a = answer_to(&w, ids_body("demo", 1000, 1000));
	cr_assert_eq(a.candidates[0].row, first);
	cr_assert_eq(a.candidates[0].cached, 800);
	end(&w);
}

Test(evaluate, speculative_knowledge_counts_and_another_salt_does_not_match)
{
	struct world w;
	char body[20000];

	begin(&w, "PredictedTTFT");
	cache(&w, 4, 0, 1000, 400, INDEX_SPECULATIVE);
	struct msg_answer a = answer_to(&w, ids_body("demo", 1000, 800));

	cr_assert_eq(a.candidates[0].row, 4);
	cr_assert_eq(a.candidates[0].cached, 400);
	const char *plain = ids_body("demo", 1000, 800);
	snprintf(body, sizeof body, "{\"cache_salt\":\"tenant-1\",%.19000s", plain + 1);
	a = answer_to(&w, body);
	for (unsigned i = 0; i < a.n_candidates; i++)
		cr_assert_eq(a.candidates[i].cached, 0);
	end(&w);
}

Test(evaluate, prompt_logprobs_cannot_hit_and_is_not_looked_up)
{
	struct world w;
	char body[20000];

	begin(&w, "PredictedTTFT");
	cache(&w, 4, 0, 1000, 400, INDEX_EXACT);
	snprintf(body, sizeof body, "{\"prompt_logprobs\":1,%.19000s",
		 ids_body("demo", 1000, 800) + 1);
	struct msg_answer a = answer_to(&w, body);

	cr_assert_eq(a.n_roots, 0);
	cr_assert_eq(a.prompt, 800);
	cr_assert_eq(a.candidates[0].cached, 0);
	cr_assert_eq(a.candidates[0].root, GATHER_NO_CHAIN);
	end(&w);
}

Test(evaluate, an_alias_is_rewritten_by_a_span_and_nothing_else)
{
	struct world w;

	begin(&w, "PredictedTTFT");
	cache(&w, 3, 0, 1000, 160, INDEX_EXACT);
	const char *body = ids_body("nickname", 1000, 320);
	struct msg_answer a = answer_to(&w, body);

	cr_assert_eq(a.candidates[0].row, 3,
		     "the prefix is of the workers' model, whatever the client calls it");
	cr_assert_eq(a.candidates[0].n_edits, 1);
	const struct rec_edit *e = &a.candidates[0].edits[0];

	cr_assert(slice_eq_str((struct slice){body + e->off, e->len}, "\"nickname\""));
	cr_assert(slice_eq_str(e->text, "\"demo\""));
	cr_assert(slice_eq_str(a.alias, "nickname"));
	cr_assert(slice_eq_str(a.model, "demo"));
	end(&w);
}

static void
rejected(struct world *w, const char *body, unsigned status, const char *code, const char *part)
{
	uint64_t before = count_get(&w->process, COUNTER_rejections);
	struct msg_answer a = answer_to(w, body);

	cr_assert_eq(a.verdict, VERDICT_REJECT);
	cr_assert_eq(a.status, status, "%u for %.60s", a.status, body);
	cr_assert(slice_eq_str(a.code, code));
	cr_assert(memmem(a.text.p, a.text.len, part, strlen(part)), "%.*s", (int)a.text.len,
		  a.text.p);
	cr_assert_neq(a.number, 0, "also a reject has its number");
	cr_assert_eq(a.n_candidates, 0);
	cr_assert_eq(count_get(&w->process, COUNTER_rejections), before + 1);
}

Test(evaluate, what_cannot_be_routed_is_refused_with_what_and_where)
{
	struct world w;
	char many[2000] = "{\"model\":\"demo\",\"prompt\":[";

	begin(&w, "PredictedTTFT");
	rejected(&w, "{\"model\":\"nobody\",\"prompt\":\"x\"}", 404, "model_not_found",
		 "The model `nobody` does not exist");
	rejected(&w, "{\"model\":\"demo\",\"prompt\":tru}", 400, "invalid_request", "at byte 25");
	rejected(&w, "{\"model\":7}", 400, "invalid_request", "model is not a string");
	rejected(&w, "", 400, "invalid_request", "empty");
	rejected(&w, "{\"prompt\":\"x\"}", 400, "model_required", "model");
	for (int i = 0; i < 129; i++)
		strcat(many, i ? ",\"a\"" : "\"a\"");
	strcat(many, "]}");
	rejected(&w, many, 400, "too_many_prompts", "129");
	cr_assert_eq(w.view.overlay ? overlay_length(w.view.overlay) : 0, 6);
	end(&w);
}

Test(evaluate, what_the_engine_can_judge_is_sent_to_it)
{
	struct world w;

	begin(&w, "PredictedTTFT");
	struct msg_answer a = answer_to(&w, "{\"model\":\"demo\"}");

	cr_assert_eq(a.verdict, VERDICT_CHOOSE);
	cr_assert_eq(a.prompt, 0);
	a = answer_to(&w, "{\"model\":\"demo\",\"prompt\":{\"odd\":1},\"temperature\":\"hot\"}");
	cr_assert_eq(a.verdict, VERDICT_CHOOSE);
	end(&w);
}

Test(evaluate, down_and_draining_rows_get_nothing_and_none_left_is_a_503)
{
	struct world w;

	begin(&w, "PredictedTTFT");
	cache(&w, 3, 0, 1000, 800, INDEX_EXACT);
	set_health(&w, 3, HEALTH_DOWN);
	atomic_store(&w.rows.row[4].intent, INTENT_DRAIN);
	struct msg_answer a = answer_to(&w, ids_body("demo", 1000, 1000));

	cr_assert_eq(a.n_candidates, 1);
	cr_assert_eq(a.candidates[0].row, 2);
	set_health(&w, 2, HEALTH_DOWN);
	rejected(&w, ids_body("demo", 1000, 1000), 503, "no_candidate", "demo");
	end(&w);
}

Test(evaluate, a_retry_avoids_the_row_that_failed)
{
	struct world w;
	struct msg_answer answer;
	struct token_key key;

	begin(&w, "PredictedTTFT");
	cache(&w, 3, 0, 1000, 800, INDEX_EXACT);
	struct msg_ask ask = put_question(&w, OPENAI_COMPLETIONS, ids_body("demo", 1000, 1000));

	w.slots.slot[ask.slot].attempt = 1;
	w.slots.slot[ask.slot].row = 3;
	cr_assert_eq(
		ask_once(&w, &ask, clock_mono(), false, &answer, &key),
		EVALUATE_ANSWER);
	for (unsigned i = 0; i < answer.n_candidates; i++)
		cr_assert_neq(answer.candidates[i].row, 3);
	end(&w);
}

Test(evaluate, a_question_that_is_not_current_is_not_answered)
{
	struct world w;
	struct msg_answer answer;
	struct token_key key;

	begin(&w, "PredictedTTFT");
	struct msg_ask ask = put_question(&w, OPENAI_COMPLETIONS, ids_body("demo", 1000, 100)),
		       wrong;

	wrong = ask, wrong.ask = 2;
	cr_assert_eq(ask_once(&w, &wrong, 0, false, &answer, &key),
		     EVALUATE_STALE);
	wrong = ask, wrong.slot_gen = 2;
	cr_assert_eq(ask_once(&w, &wrong, 0, false, &answer, &key),
		     EVALUATE_STALE);
	wrong = ask, wrong.slot = 0;
	cr_assert_eq(ask_once(&w, &wrong, 0, false, &answer, &key),
		     EVALUATE_STALE);
	wrong = ask, wrong.slot = 65;
	cr_assert_eq(ask_once(&w, &wrong, 0, false, &answer, &key),
		     EVALUATE_STALE);
	atomic_store(&w.slots.slot[ask.slot].word, slot_word(1, 1, SLOT_END, 0));
	cr_assert_eq(ask_once(&w, &ask, 0, false, &answer, &key),
		     EVALUATE_STALE);
	cr_assert_eq(count_get(&w.process, COUNTER_questions_stale), 5);
	cr_assert_eq(overlay_length(w.view.overlay), 0, "and has no number");
	/* a body outside the arena is not read */
	atomic_store(&w.slots.slot[ask.slot].word, slot_word(1, 1, SLOT_ASKED, 0));
	w.slots.slot[ask.slot].body_off = 1ull << 50;
	cr_assert_eq(ask_once(&w, &ask, 0, false, &answer, &key),
		     EVALUATE_ANSWER);
	cr_assert_eq(answer.status, 500);
	end(&w);
}

Test(evaluate, a_row_without_a_known_block_size_has_no_prefix_knowledge)
{
	struct world w;

	begin(&w, "PredictedTTFT");
	cache(&w, 3, 0, 1000, 800, INDEX_EXACT);
	w.rows.row[3].block_tokens = 0;
	struct msg_answer a = answer_to(&w, ids_body("demo", 1000, 400));

	for (unsigned i = 0; i < a.n_candidates; i++)
		cr_assert_eq(a.candidates[i].cached, 0);
	atomic_store(&w.rows.row[3].event_block_tokens, BLOCK);         /* its events say it */
	apply(&w, 1);
	a = answer_to(&w, ids_body("demo", 1000, 1000));
	cr_assert_eq(a.candidates[0].row, 3);
	end(&w);
}

Test(evaluate, what_a_worker_s_events_say_of_its_block_size_wins_over_the_configuration)
{
	struct world w;

	begin(&w, "PredictedTTFT");
	cache(&w, 3, 0, 1000, 800, INDEX_EXACT);
	w.rows.row[3].block_tokens = 2 * BLOCK;                         /* the operator's guess */
	atomic_store(&w.rows.row[3].event_block_tokens, BLOCK);
	struct msg_answer a = answer_to(&w, ids_body("demo", 1000, 1000));

	cr_assert_eq(a.candidates[0].row, 3);
	cr_assert_eq(a.candidates[0].cached, 800);
	end(&w);
}

Test(evaluate, what_lies_on_another_tier_counts_in_whole_chunks_and_less_than_on_the_gpu)
{
	struct world w;
	uint16_t offload;

	begin(&w, "PredictedTTFT");
	offload = index_slot_take(w.writer, 3, 1, INDEX_EXACT, INDEX_OFFLOAD, BLOCK);
	cache(&w, 3, offload, 1000, 45 * BLOCK, INDEX_EXACT);
	cache(&w, 3, 0, 1000, 10 * BLOCK, INDEX_EXACT);
	struct msg_answer a = answer_to(&w, ids_body("demo", 1000, 1000));

	cr_assert_eq(a.candidates[0].row, 3);
	cr_assert_eq(a.candidates[0].cached, 45 * BLOCK);
	cr_assert_eq(a.candidates[0].uncached, 1000 - 45 * BLOCK + 35 * BLOCK / 8);
	apply(&w, 1);
	atomic_store(&w.rows.row[3].offload_chunk, 8);
	a = answer_to(&w, ids_body("demo", 1000, 1000));
	cr_assert_eq(a.candidates[0].cached, 40 * BLOCK);
	apply(&w, 2);
	atomic_store(&w.rows.row[3].offload_chunk, 64);
	a = answer_to(&w, ids_body("demo", 1000, 1000));
	cr_assert_eq(a.candidates[0].cached, 10 * BLOCK, "not one whole chunk; the GPU's count");
	cr_assert_eq(a.candidates[0].uncached, 1000 - 10 * BLOCK);
	end(&w);
	begin(&w, "PredictedTTFT");
	offload = index_slot_take(w.writer, 3, 1, INDEX_EXACT, INDEX_OFFLOAD, BLOCK);
	cache(&w, 3, offload, 1000, 40 * BLOCK, INDEX_EXACT);
	cache(&w, 4, 0, 1000, 40 * BLOCK, INDEX_EXACT);
	a = answer_to(&w, ids_body("demo", 1000, 1000));
	cr_assert_eq(a.candidates[0].row, 4, "as much on a GPU is worth more");
	cr_assert_eq(a.candidates[1].row, 3);
	end(&w);
}

Test(evaluate, decisions_say_whether_a_prefix_was_looked_for_and_found)
{
	struct world w;

	begin(&w, "PredictedTTFT");
	cache(&w, 3, 0, 1000, 800, INDEX_EXACT);
	answer_to(&w, ids_body("demo", 1000, 400));
	cr_assert_eq(count_get(&w.process, COUNTER_prefix_lookups), 1);
	cr_assert_eq(count_get(&w.process, COUNTER_prefix_matched), 1);
	apply(&w, 1);
	answer_to(&w, ids_body("demo", 50000, 400));
	cr_assert_eq(count_get(&w.process, COUNTER_prefix_lookups), 2);
	cr_assert_eq(count_get(&w.process, COUNTER_prefix_matched), 1);
	apply(&w, 2);
	answer_to(&w, ids_body("demo", 1000, 9));
	cr_assert_eq(count_get(&w.process, COUNTER_prefix_lookups), 2);
	cr_assert_eq(count_get(&w.process, COUNTER_prefix_unknown), 1);
	end(&w);
}

Test(evaluate, a_calibrating_row_borrows_what_its_neighbours_have_learned)
{
	struct row_predictor none = {
		.version = 1, .state = PREDICTOR_CALIBRATING, .coef = {99, 99}};
	struct world w;

	begin(&w, "PredictedTTFT");
	set_coefs(&w, 2, 0.02f, 0.004f);
	set_coefs(&w, 4, 0.04f, 0.002f);
	row_predictor_write(&w.rows.row[3], &none);
	struct msg_answer a = answer_to(&w, ids_body("demo", 1000, 1000));

	cr_assert_eq(a.candidates[1].row, 3, "between the two");
	cr_assert_leq(abs((int)a.candidates[1].ttft - 3030000), 5, "0.03 + 1000 x 0.003, got %u",
		      a.candidates[1].ttft);
	end(&w);
}

Test(evaluate, every_answer_leaves_its_record_first)
{
	struct world w;
	char buf[JOURNAL_RECORD_MAX];
	uint64_t position = 0, lost = 0;

	begin(&w, "PredictedTTFT");
	cache(&w, 3, 0, 1000, 800, INDEX_EXACT);
	set_health(&w, 4, HEALTH_DOWN);
	struct msg_answer a = answer_to(&w, ids_body("demo", 1000, 1000));

	cr_assert_eq(a.record, 1);
	answer_to(&w, "{\"model\":\"nobody\"}");
	cr_assert_eq(journal_read(&w.process.journal, &position, buf, sizeof buf, &lost), 1);
	const struct journal_record *head = (const void *)buf;
	const struct journal_decision *d = (const void *)(head + 1);
	const struct journal_candidate *c = (const void *)(d + 1);

	cr_assert_eq(head->kind, JOURNAL_DECISION);
	cr_assert_eq(head->n, 3);
	cr_assert_eq(head->request_id, (uint64_t)5 << 40 | 1);
	cr_assert_eq(head->config_hash, w.manifest->hash);
	cr_assert_eq(d->verdict, VERDICT_CHOOSE);
	cr_assert_eq(d->chosen_row, 3);
	cr_assert_eq(d->prompt_tokens, 1000);
	cr_assert_eq(d->max_tokens, 7);
	cr_assert_eq(d->blocks, 62);
	cr_assert_str_eq(d->model, "demo");
	cr_assert_str_eq(d->policy, "p");
	cr_assert_eq(c[0].row, 3);
	cr_assert_eq(c[0].cached, 800);
	cr_assert_eq(c[0].ttft_us, a.candidates[0].ttft);
	cr_assert_eq(c[1].row, 2);
	cr_assert_eq(c[2].row, 4);
	cr_assert_eq(c[2].removed_by, REMOVAL_DOWN);
	for (unsigned i = 1; i < 8; i++)
		cr_assert_geq(d->stage_ns[i], d->stage_ns[i - 1], "stage %u", i);
	cr_assert_eq(journal_read(&w.process.journal, &position, buf, sizeof buf, &lost), 1);
	cr_assert_eq(d->verdict, VERDICT_REJECT);
	cr_assert_eq(d->status, 404);
	cr_assert_eq(head->n, 0);
	end(&w);
}

/* A recorded decision, made again from its own record, comes out the same. */
Test(evaluate, a_record_predicts_again_what_it_predicted)
{
	struct cell_values v = {.context = 4000, .decoding = 3};
	struct world w;
	char buf[JOURNAL_RECORD_MAX];
	uint64_t position = 0, lost = 0;

	begin(&w, "PredictedTTFT");
	cell_write(&w.column.cell[2], 1, &v);
	answer_to(&w, ids_body("demo", 1000, 1000));
	cr_assert_eq(journal_read(&w.process.journal, &position, buf, sizeof buf, &lost), 1);
	const struct journal_record *head = (const void *)buf;
	const struct journal_decision *d = (const void *)(head + 1);
	const struct journal_candidate *c = (const void *)(d + 1);

	for (unsigned i = 0; i < head->n; i++) {
		struct predict_input in = {
			.prompt = d->prompt_tokens,
			.cached = c[i].cached + c[i].speculative,
			.pending = c[i].pending,
			.prefilling = c[i].prefilling,
			.context = c[i].context,
			.decoding = c[i].decoding,
			.oldest_dispatch_ms = PREDICT_NEVER,
			.last_first_ms = PREDICT_NEVER,
		};
		struct predict_output out;

		memcpy(in.coef, c[i].coef, sizeof in.coef);
		predict_ttft(&in, &out);
		cr_assert_eq((uint32_t)(out.ttft_s * 1e6), c[i].ttft_us);
	}
	end(&w);
}

Test(evaluate, the_self_test_leaves_no_trace)
{
	struct world w;
	const char *why = NULL;

	begin(&w, "Random");
	cr_assert_eq(evaluate_self_test(w.evaluate, &why), 0);
	cr_assert_eq(overlay_length(w.view.overlay), 0);
	cr_assert_eq(count_get(&w.process, COUNTER_decisions), 0);
	cr_assert_eq(journal_head(&w.process.journal), 0);
	end(&w);
}

Test(evaluate, several_prompts_are_one_decision_that_charges_them_all)
{
	struct world w;
	char body[20000];
	int at = snprintf(body, sizeof body, "{\"model\":\"demo\",\"prompt\":[[");

	begin(&w, "PredictedTTFT");
	cache(&w, 3, 0, 1000, 320, INDEX_EXACT);
	for (int i = 0; i < 400; i++)
		at += snprintf(body + at, sizeof body - (size_t)at, "%s%d", i ? "," : "", 1000 + i);
	at += snprintf(body + at, sizeof body - (size_t)at, "],[1,2,3]]}");
	struct msg_answer a = answer_to(&w, body);

	cr_assert_eq(a.prompt, 403);
	cr_assert_eq(a.candidates[0].row, 3);
	cr_assert_eq(a.candidates[0].cached, 320);
	cr_assert_eq(a.candidates[0].uncached, 83);
	end(&w);
}

/* As ingress would for a request that is its head alone. */
static struct msg_ask
put_path(struct world *w, enum openai_route route, const char *method, const char *path)
{
	struct msg_ask ask = put_question(w, route, "-");
	struct slot *slot = &w->slots.slot[ask.slot];
	char head[300];
	size_t cap, len = (size_t)snprintf(head, sizeof head, "%s %s HTTP/1.1\r\nHost: x\r\n\r\n",
					   method, path);

	slot->head_off = arena_alloc(&w->arena, len, &cap);
	memcpy(arena_at(&w->arena, slot->head_off, len), head, len);
	slot->head_len = (uint32_t)len;
	slot->body_len = 0;
	return ask;
}

static void
expect_pinned(struct world *w, const struct msg_ask *ask, uint16_t row)
{
	struct msg_answer a;
	struct token_key key;

	cr_assert_eq(ask_once(w, ask, clock_mono(), false, &a, &key),
		     EVALUATE_ANSWER);
	cr_assert_eq(a.verdict, VERDICT_CHOOSE, "%.*s", (int)a.text.len, a.text.p);
	cr_assert_eq(a.n_candidates, 1, "nobody else is to be tried");
	cr_assert_eq(a.candidates[0].row, row);
	cr_assert(slice_eq_str(a.rule, "pinned"));
}

static void
expect_refused(struct world *w, const struct msg_ask *ask, unsigned status, const char *code)
{
	struct msg_answer a;
	struct token_key key;

	cr_assert_eq(ask_once(w, ask, clock_mono(), false, &a, &key),
		     EVALUATE_ANSWER);
	cr_assert_eq(a.verdict, VERDICT_REJECT);
	cr_assert_eq(a.status, status, "%.*s", (int)a.text.len, a.text.p);
	cr_assert(slice_eq_str(a.code, code), "%.*s", (int)a.code.len, a.code.p);
	if (strcmp(code, "response_not_found") == 0)
		cr_assert(memmem(a.text.p, a.text.len, "resp_", 5), "the id is named");
}

Test(evaluate, a_response_is_asked_for_at_the_worker_that_keeps_it_and_nowhere_else)
{
	struct world w;

	begin(&w, "PredictedTTFT");
	set_coefs(&w, 4, 10, 1);        /* the slowest */
	cr_assert_eq(pins_put(&w.pins, "resp_1", 6, 4, 1, 1), PINS_PUT);
	for (unsigned i = 0; i < 5; i++) {
		struct msg_ask get = put_path(&w, OPENAI_RESPONSE, "GET", "/v1/responses/resp_1");
		struct msg_ask cancel = put_path(&w, OPENAI_RESPONSE_CANCEL, "POST",
						 "/v1/responses/resp_1/cancel?x=1");
		struct msg_ask next = put_question(&w, OPENAI_RESPONSES,
			"{\"model\":\"demo\",\"input\":\"x\",\"previous_response_id\":\"resp_1\"}");

		expect_pinned(&w, &get, 4);
		expect_pinned(&w, &cancel, 4);
		expect_pinned(&w, &next, 4);
		w.slots.slot[next.slot].attempt = 1;    /* failed there: still nobody else */
		w.slots.slot[next.slot].row = 4;
		expect_pinned(&w, &next, 4);
	}
	end(&w);
}

Test(evaluate, a_response_that_nobody_keeps_is_a_404_that_names_it)
{
	static const char *const bodies[] = {
		"{\"model\":\"demo\",\"previous_response_id\":\"resp_1\"}",
		"{\"model\":\"demo\",\"previous_response_id\":\"resp_\\u0031\"}",
		"{\"model\":\"demo\",\"previous_response_id\":\"resp_../sleep\"}",
	};
	struct world w;
	struct msg_ask ask;

	begin(&w, "PredictedTTFT");
	for (unsigned i = 0; i < sizeof bodies / sizeof *bodies; i++) {
		ask = put_question(&w, OPENAI_RESPONSES, bodies[i]);
		expect_refused(&w, &ask, 404, "response_not_found");
	}
	ask = put_path(&w, OPENAI_RESPONSE, "DELETE", "/v1/responses/resp_1");
	expect_refused(&w, &ask, 404, "response_not_found");
	/* null is absent, and on other routes the word means nothing to us */
	ask = put_question(&w, OPENAI_RESPONSES,
			   "{\"model\":\"demo\",\"previous_response_id\":null}");
	struct msg_answer a;
	struct token_key key;
	cr_assert_eq(ask_once(&w, &ask, clock_mono(), false, &a, &key),
		     EVALUATE_ANSWER);
	cr_assert(a.verdict == VERDICT_CHOOSE && a.n_candidates == 3 && a.rule.len == 0);
	ask = put_question(&w, OPENAI_CHAT, bodies[0]);
	cr_assert_eq(ask_once(&w, &ask, clock_mono(), false, &a, &key),
		     EVALUATE_ANSWER);
	cr_assert_eq(a.verdict, VERDICT_CHOOSE);
	end(&w);
}

Test(evaluate, a_pin_ends_with_its_worker_and_says_so_while_that_is_away)
{
	struct world w;
	struct msg_ask ask;

	begin(&w, "PredictedTTFT");
	cr_assert_eq(pins_put(&w.pins, "resp_1", 6, 3, 1, 1), PINS_PUT);
	set_health(&w, 3, HEALTH_DOWN);
	ask = put_path(&w, OPENAI_RESPONSE, "GET", "/v1/responses/resp_1");
	expect_refused(&w, &ask, 503, "pinned_worker_down");
	set_health(&w, 3, HEALTH_UP);
	atomic_store(&w.rows.row[3].intent, INTENT_DRAIN);
	expect_refused(&w, &ask, 503, "pinned_worker_draining");
	atomic_store(&w.rows.row[3].intent, INTENT_NONE);
	expect_refused(&w, &ask, 404, "response_not_found");
	/* The same name again is another engine. */
	atomic_fetch_add(&w.rows.row[3].row_gen, 1);
	atomic_store(&w.rows.row[3].intent, INTENT_SERVE);
	expect_refused(&w, &ask, 404, "response_not_found");
	/* What a pin says is believed no further than the table goes. */
	cr_assert_eq(pins_put(&w.pins, "resp_1", 6, 60000, 1, 2), PINS_PUT);
	expect_refused(&w, &ask, 404, "response_not_found");
	end(&w);
}

/* The code of an answer where a rule refuses what is not known to have so many. */
static struct slice
counted(const char *messages, enum openai_route route, const char *body)
{
	struct msg_answer answer;
	char policy[256];
	struct token_key key;
	struct world w;
	static char code[64];

	snprintf(policy, sizeof policy,
		 "PredictedTTFT\n  rules:\n    - {name: r, when: \"!(has(request.messages) && "
		 "request.messages == %s)\", remove: 'true'}\n", messages);
	begin(&w, policy);
	struct msg_ask ask = put_question(&w, route, body);

	cr_assert_eq(ask_once(&w, &ask, clock_mono(), false, &answer, &key), EVALUATE_ANSWER);
	snprintf(code, sizeof code, "%.*s", (int)answer.code.len, answer.code.p);
	end(&w);
	return slice_str(code);
}

Test(evaluate, rules_know_how_many_messages_a_request_of_either_api_has)
{
	static const char chat[] = "{\"model\":\"demo\",\"messages\":[{},{}]}";
	static const char items[] = "{\"model\":\"demo\",\"input\":[{\"content\":\"[,]\"},{},{}]}";
	static const char text[] = "{\"model\":\"demo\",\"input\":\"hello\"}";
	static const char texts[] = "{\"model\":\"demo\",\"input\":[\"a\",\"b\"]}";
	struct slice no = SLICE_LIT("refused_by_rule");

	cr_assert_eq(counted("2", OPENAI_CHAT, chat).len, 0);
	cr_assert(slice_eq(counted("3", OPENAI_CHAT, chat), no));
	cr_assert_eq(counted("3", OPENAI_RESPONSES, items).len, 0);
	cr_assert_eq(counted("1", OPENAI_RESPONSES, text).len, 0);
	cr_assert(slice_eq(counted("2", OPENAI_RESPONSES, text), no));
	cr_assert(slice_eq(counted("2", OPENAI_EMBEDDINGS, texts), no), "these are no messages");
}
