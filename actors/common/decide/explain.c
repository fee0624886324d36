/* actors/common/decide/explain.c -- decision records in words; see explain.h. */
#include "actors/common/decide/explain.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "actors/common/decide/choose.h"
#include "proto/messages.h"

static const char *
verdict_name(unsigned verdict)
{
	switch (verdict) {
	case VERDICT_CHOOSE:
		return "choose";
	case VERDICT_HOLD:
		return "hold";
	case VERDICT_REJECT:
		return "reject";
	default:
		return "unknown";
	}
}

static const char *
source_name(unsigned source)
{
	switch (source) {
	case TOKENS_NONE:
		return "none";
	case TOKENS_IDS:
		return "ids";
	case TOKENS_TOKENIZE:
		return "tokenize";
	default:
		return "unknown";
	}
}

static json_t *
hex(uint64_t n)
{
	char text[24];

	snprintf(text, sizeof text, "%016llx", (unsigned long long)n);
	return json_string(text);
}

static json_t *
known(uint32_t n)
{
	return n == UINT32_MAX ? json_null() : json_integer(n);
}

/* A fixed field of a record, whatever bytes it holds. */
static json_t *
text_of(const char *p, size_t cap)
{
	json_t *s = json_stringn(p, strnlen(p, cap));

	return s ? s : json_string("?");
}

static json_t *
when_of(wall_ns when)
{
	time_t seconds = (time_t)(when / 1000000000u);
	char text[64];
	struct tm tm;

	gmtime_r(&seconds, &tm);
	size_t n = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &tm);

	snprintf(text + n, sizeof text - n, ".%06lluZ",
		 (unsigned long long)(when % 1000000000u / 1000u));
	return json_string(text);
}

/* Microseconds from the stage before it that was reached; null where it was not. */
static json_t *
stages_of(const uint64_t stage_ns[8])
{
	static const char *const names[8] = {
		NULL,       "parse_us",   "tokenize_us", "hash_us",
		"match_us", "predict_us", "choose_us",   "record_us",
	};
	json_t *o = json_object();
	uint64_t before = stage_ns[0];

	for (unsigned i = 1; i < 8; i++) {
		if (stage_ns[i] == 0 || stage_ns[i] < before) {
			json_object_set_new(o, names[i], json_null());
			continue;
		}
		json_object_set_new(o, names[i],
				    json_real((double)(stage_ns[i] - before) / 1000.0));
		before = stage_ns[i];
	}
	json_object_set_new(o, "total_us", json_real((double)(before - stage_ns[0]) / 1000.0));
	return o;
}

static json_t *
worker_of(const struct rows *rows, uint16_t row, uint32_t row_gen)
{
	if (!rows || row >= rows->capacity || rows->text[row].member[0] == '\0' ||
	    atomic_load_explicit(&rows->row[row].row_gen, memory_order_acquire) != row_gen)
		return json_null();
	return text_of(rows->text[row].member, sizeof rows->text[row].member);
}

static json_t *
coefs_of(const float coef[COEF_IN_JOURNAL])
{
	static const char *const names[COEF_COUNT] = {
		[COEF_BASE] = "base_s", [COEF_PREFILL] = "prefill_s_per_token",
		[COEF_ATTENTION] = "attention_s_per_token2", [COEF_DECODE] = "decode_s_per_request",
		[COEF_CONTEXT] = "context_s_per_token", [COEF_STEP] = "step_s",
	};
	json_t *o = json_object();

	for (unsigned i = 0; i < COEF_COUNT; i++)
		json_object_set_new(o, names[i], json_real((double)coef[i]));
	return o;
}

static json_t *
candidate_of(const struct journal_candidate *c, const struct rows *rows)
{
	json_t *o = json_object();

	json_object_set_new(o, "row", c->row == ROW_NONE ? json_null() : json_integer(c->row));
	json_object_set_new(o, "worker", worker_of(rows, c->row, c->row_gen));
	json_object_set_new(o, "row_gen", json_integer(c->row_gen));
	json_object_set_new(o, "removed_by",
			    c->removed_by ? json_string(choose_removal_name(c->removed_by))
					  : json_null());
	json_object_set_new(o, "cached_tokens", json_integer(c->cached));
	json_object_set_new(o, "speculative_tokens", json_integer(c->speculative));
	json_object_set_new(o, "pending_tokens", json_integer(c->pending));
	json_object_set_new(o, "prefilling", json_integer(c->prefilling));
	json_object_set_new(o, "context_tokens", json_integer(c->context));
	json_object_set_new(o, "decoding", json_integer(c->decoding));
	json_object_set_new(o, "scraped_waiting", known(c->waiting));
	json_object_set_new(o, "scraped_running", known(c->running));
	json_object_set_new(o, "kv_usage",
			    c->kv_usage < 0 ? json_null() : json_real((double)c->kv_usage));
	json_object_set_new(o, "reading_age_ms", known(c->age_ms));
	json_object_set_new(o, "predicted_ttft_us", json_integer(c->ttft_us));
	json_object_set_new(o, "predicted_wait_us",
			    json_integer((json_int_t)((double)c->wait_s * 1e6)));
	json_object_set_new(o, "coefficients", coefs_of(c->coef));
	return o;
}

int
explain_decision(const void *record, size_t len, const struct rows *rows, json_t **ret)
{
	const struct journal_record *head = record;
	const struct journal_decision *d = (const struct journal_decision *)(head + 1);
	const struct journal_candidate *c = (const struct journal_candidate *)(d + 1);

	if (len < sizeof *head || head->kind != JOURNAL_DECISION ||
	    len < sizeof *head + sizeof *d + head->n * sizeof *c)
		return -EBADMSG;
	json_t *o = json_object(), *list = json_array();

	if (!o || !list) {
		json_decref(o);
		json_decref(list);
		return -ENOMEM;
	}
	bool chosen = d->verdict == VERDICT_CHOOSE;

	json_object_set_new(o, "request_id", hex(head->request_id));
	json_object_set_new(o, "ask", json_integer(head->ask));
	json_object_set_new(o, "when", when_of(head->when));
	json_object_set_new(o, "generation", json_integer(head->policy_gen));
	json_object_set_new(o, "incarnation", json_integer(head->policy_inc));
	json_object_set_new(o, "config_hash", hex(head->config_hash));
	json_object_set_new(o, "seed", hex(head->seed));
	json_object_set_new(o, "verdict", json_string(verdict_name(d->verdict)));
	json_object_set_new(o, "model", text_of(d->model, sizeof d->model));
	json_object_set_new(o, "policy", text_of(d->policy, sizeof d->policy));
	json_object_set_new(o, "minimize", json_string(choose_objective_name(d->minimize)));
	json_object_set_new(o, "rule", d->rule[0] ? text_of(d->rule, sizeof d->rule) : json_null());
	json_object_set_new(o, "status", d->status ? json_integer(d->status) : json_null());
	json_object_set_new(o, "chosen_row", chosen ? json_integer(d->chosen_row) : json_null());
	json_object_set_new(o, "chosen_worker",
			    chosen && head->n > 0 ? worker_of(rows, c[0].row, c[0].row_gen)
						  : json_null());
	json_object_set_new(o, "prompt_tokens",
			    d->prompt_tokens ? json_integer(d->prompt_tokens) : json_null());
	json_object_set_new(o, "max_tokens", known(d->max_tokens));
	json_object_set_new(o, "token_source", json_string(source_name(d->token_source)));
	json_object_set_new(o, "blocks", json_integer(d->blocks));
	json_object_set_new(o, "block_tokens",
			    d->block_tokens ? json_integer(d->block_tokens) : json_null());
	json_object_set_new(o, "stages", stages_of(d->stage_ns));
	for (unsigned i = 0; i < head->n; i++)
		json_array_append_new(list, candidate_of(&c[i], rows));
	json_object_set_new(o, "candidates", list);
	*ret = o;
	return 0;
}

/* ---- text ---- */

static const char *
string_at(const json_t *o, const char *key, const char *otherwise)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : otherwise;
}

static long long
integer_at(const json_t *o, const char *key)
{
	return (long long)json_integer_value(json_object_get(o, key));
}

static void
print_known(FILE *to, const json_t *o, const char *key, int width)
{
	const json_t *v = json_object_get(o, key);

	if (json_is_integer(v))
		fprintf(to, " %*lld", width, (long long)json_integer_value(v));
	else
		fprintf(to, " %*s", width, "?");
}

void
explain_print(FILE *to, const json_t *d)
{
	const json_t *list = json_object_get(d, "candidates"),
		     *stages = json_object_get(d, "stages");
	size_t i;
	json_t *c;

	fprintf(to, "request %s ask %lld at %s: %s", string_at(d, "request_id", "?"),
		integer_at(d, "ask"), string_at(d, "when", "?"), string_at(d, "verdict", "?"));
	if (json_is_integer(json_object_get(d, "status")))
		fprintf(to, " %lld by rule %s", integer_at(d, "status"), string_at(d, "rule", "-"));
	if (json_is_integer(json_object_get(d, "chosen_row")))
		fprintf(to, " %s (row %lld)", string_at(d, "chosen_worker", "?"),
			integer_at(d, "chosen_row"));
	fprintf(to, "\nmodel %s, policy %s minimizes %s; generation %lld, config %s\n",
		string_at(d, "model", "-"), string_at(d, "policy", "-"),
		string_at(d, "minimize", "-"), integer_at(d, "generation"),
		string_at(d, "config_hash", "?"));
	fprintf(to, "prompt");
	print_known(to, d, "prompt_tokens", 0);
	fprintf(to, " tokens (%s), %lld blocks of", string_at(d, "token_source", "?"),
		integer_at(d, "blocks"));
	print_known(to, d, "block_tokens", 0);
	fprintf(to, "; decided in %.1f us\n", json_real_value(json_object_get(stages, "total_us")));
	if (json_array_size(list) == 0)
		return;
	fprintf(to, "%-16s %8s %8s %8s %6s %6s %6s %6s %10s %10s  %s\n", "worker", "cached",
		"maybe", "pending", "pref", "decod", "s.wait", "s.run", "wait ms", "ttft ms",
		"removed by");
	json_array_foreach(list, i, c) {
		char row[32];

		snprintf(row, sizeof row, "row %lld", integer_at(c, "row"));
		fprintf(to, "%-16.16s %8lld %8lld %8lld %6lld %6lld", string_at(c, "worker", row),
			integer_at(c, "cached_tokens"), integer_at(c, "speculative_tokens"),
			integer_at(c, "pending_tokens"), integer_at(c, "prefilling"),
			integer_at(c, "decoding"));
		print_known(to, c, "scraped_waiting", 6);
		print_known(to, c, "scraped_running", 6);
		fprintf(to, " %10.1f %10.1f  %s\n",
			(double)integer_at(c, "predicted_wait_us") / 1000.0,
			(double)integer_at(c, "predicted_ttft_us") / 1000.0,
			string_at(c, "removed_by", "-"));
	}
}
