/* tests/unit/test_explain.c -- decision records in words, of decisions that were really made. */
#include "tests/unit/policy_world.h"

#include <errno.h>
#include <jansson.h>

#include "actors/common/decide/explain.h"

static size_t
decided(struct world *w, const char *body, char *buf, size_t cap)
{
	struct msg_ask ask = put_question(w, OPENAI_COMPLETIONS, body);
	struct msg_answer answer;
	struct token_key key;
	uint64_t position, lost = 0;

	cr_assert_eq(
		ask_once(w, &ask, clock_mono(), false, &answer, &key),
		EVALUATE_ANSWER);
	position = answer.record - 1;
	cr_assert_eq(journal_read(&w->process.journal, &position, buf, cap, &lost), 1);
	return ((const struct journal_record *)(const void *)buf)->len;
}

static const char *
word(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : "";
}

static json_int_t
number(const json_t *o, const char *key)
{
	cr_assert(json_is_integer(json_object_get(o, key)), "%s", key);
	return json_integer_value(json_object_get(o, key));
}

Test(explain, a_choice_names_every_candidate_its_numbers_and_who_was_removed_by_what)
{
	_Alignas(64) char buf[JOURNAL_RECORD_MAX];
	struct world w;
	json_t *d, *c;

	begin(&w, "PredictedTTFT");
	strcpy(w.rows.text[2].member, "w0");
	strcpy(w.rows.text[3].member, "w1");
	set_health(&w, 3, HEALTH_DOWN);
	size_t len = decided(&w, ids_body("demo", 7, 500), buf, sizeof buf);
	cr_assert_eq(explain_decision(buf, len, &w.rows, &d), 0);
	cr_assert_str_eq(word(d, "request_id"), "0000050000000001");
	cr_assert_str_eq(word(d, "verdict"), "choose");
	cr_assert_str_eq(word(d, "chosen_worker"), "w0");
	cr_assert_str_eq(word(d, "minimize"), "PredictedTTFT");
	cr_assert_str_eq(word(d, "token_source"), "ids");
	cr_assert_eq(number(d, "prompt_tokens"), 500);
	cr_assert_eq(number(d, "exact_tokens"), 500);
	cr_assert(json_is_null(json_object_get(d, "token_trust")), "nobody else's are compared");
	cr_assert(json_is_null(json_object_get(d, "token_note")), "all of it is known");
	cr_assert_eq(number(d, "max_tokens"), 7);
	cr_assert_eq(number(d, "blocks"), 31);
	cr_assert(json_is_null(json_object_get(d, "status")));
	cr_assert(json_is_real(json_object_get(json_object_get(d, "stages"), "match_us")));
	c = json_array_get(json_object_get(d, "candidates"), 0);
	cr_assert_leq(llabs(number(c, "predicted_ttft_us") - 510000), 1);
	cr_assert(json_is_null(json_object_get(c, "removed_by")));
	cr_assert(json_is_null(json_object_get(c, "kv_usage")), "unknown is null");
	cr_assert_eq(number(c, "scraped_waiting"), 0);
	c = json_array_get(json_object_get(d, "candidates"), 2);
	cr_assert_str_eq(word(c, "worker"), "w1");
	cr_assert_str_eq(word(c, "removed_by"), "down");
	json_decref(d);

	atomic_store(&w.rows.row[2].name_gen, 1);       /* taken away and back, eight times */
	atomic_store(&w.rows.row[2].row_gen, 9);
	cr_assert_eq(explain_decision(buf, len, &w.rows, &d), 0);
	cr_assert_str_eq(word(d, "chosen_worker"), "w0");
	json_decref(d);
	atomic_store(&w.rows.row[2].name_gen, 9);       /* another worker has that row now */
	cr_assert_eq(explain_decision(buf, len, &w.rows, &d), 0);
	cr_assert(json_is_null(json_object_get(d, "chosen_worker")));
	json_decref(d);
	end(&w);
}

Test(explain, text_says_the_same_line_by_line)
{
	_Alignas(64) char buf[JOURNAL_RECORD_MAX];
	char *text = NULL;
	size_t n = 0;
	struct world w;
	json_t *d;

	begin(&w, "PredictedTTFT");
	strcpy(w.rows.text[2].member, "w0");
	size_t len = decided(&w, ids_body("demo", 7, 500), buf, sizeof buf);
	cr_assert_eq(explain_decision(buf, len, &w.rows, &d), 0);
	FILE *f = open_memstream(&text, &n);
	explain_print(f, d);
	fclose(f);
	cr_assert(strstr(text, "request 0000050000000001 ask 1 at "), "%s", text);
	cr_assert(strstr(text, ": choose w0 (row 2)"), "%s", text);
	cr_assert(strstr(text, "prompt 500 tokens (ids), 31 blocks of 16;"), "%s", text);
	cr_assert(strstr(text, "\nrow 4 "), "%s", text);
	free(text);
	json_decref(d);

	len = decided(&w, "{\"model\":\"nobody\"}", buf, sizeof buf);
	cr_assert_eq(explain_decision(buf, len, &w.rows, &d), 0);
	f = open_memstream(&text, &n);
	explain_print(f, d);
	fclose(f);
	cr_assert(strstr(text, ": reject 404 by rule model\n"), "%s", text);
	free(text);
	json_decref(d);
	end(&w);
}

Test(explain, what_is_no_decision_record_is_refused)
{
	_Alignas(64) char buf[JOURNAL_RECORD_MAX];
	struct world w;
	json_t *d;

	begin(&w, "PredictedTTFT");
	size_t len = decided(&w, ids_body("demo", 7, 500), buf, sizeof buf);
	struct journal_record *head = (struct journal_record *)(void *)buf;

	cr_assert_eq(explain_decision(buf, sizeof *head, &w.rows, &d), -EBADMSG);
	cr_assert_eq(explain_decision(buf, 3, &w.rows, &d), -EBADMSG);
	head->n = 60000;
	cr_assert_eq(explain_decision(buf, len, &w.rows, &d), -EBADMSG);
	head->kind = JOURNAL_OUTCOME;
	cr_assert_eq(explain_decision(buf, len, &w.rows, &d), -EBADMSG);
	end(&w);
}

static void
cr_says(uint8_t source, uint32_t tokens, const char *says)
{
	struct {
		struct journal_record head;
		struct journal_decision d;
	} r = {
		.head = {.kind = JOURNAL_DECISION, .request_id = 5},
		.d = {.verdict = VERDICT_CHOOSE, .token_source = source, .prompt_tokens = tokens,
		      .exact_tokens = tokens, .note = "no such folder"},
	};
	char *text = NULL;
	size_t len = 0;
	FILE *to = open_memstream(&text, &len);
	json_t *d;

	cr_assert_eq(explain_decision(&r, sizeof r, NULL, &d), 0);
	explain_print(to, d);
	fclose(to);
	cr_assert(strstr(text, says), "%s", text);
	free(text);
	json_decref(d);
}

Test(explain, a_prompt_that_was_not_made_here_says_why_and_by_what_it_went)
{
	cr_says(TOKENS_TOKENIZE, 70,
		"\ntokens not made here: no such folder; by the worker's /tokenize\n");
	cr_says(TOKENS_IDS, 70, "\ntokens not made here: no such folder\n");
	cr_says(TOKENS_NONE, 0, "\ntokens not known: no such folder; decided by load alone\n");
}

Test(explain, a_prompt_that_is_not_known_whole_says_how_far_it_is_and_why)
{
	struct {
		struct journal_record head;
		struct journal_decision d;
	} r = {
		.head = {.kind = JOURNAL_DECISION, .request_id = 5},
		.d = {.verdict = VERDICT_CHOOSE, .token_source = TOKENS_NATIVE, .trust = 1,
		      .exact_tokens = 48, .note = "an image"},
	};
	char *text = NULL;
	size_t len = 0;
	json_t *d;

	cr_assert_eq(explain_decision(&r, sizeof r, NULL, &d), 0);
	cr_assert_str_eq(word(d, "token_source"), "native");
	cr_assert_str_eq(word(d, "token_trust"), "exact");
	cr_assert_eq(number(d, "exact_tokens"), 48);
	cr_assert_str_eq(word(d, "token_note"), "an image");
	FILE *to = open_memstream(&text, &len);

	explain_print(to, d);
	fclose(to);
	cr_assert(strstr(text, "tokens (native, exact)"), "%s", text);
	cr_assert(strstr(text, "of the prompt 48 tokens are known: an image"), "%s", text);
	free(text);
	json_decref(d);
}
