/* actors/common/decide/explain.c -- decision records in words; see explain.h. */
#include "actors/common/decide/explain.h"

#include <errno.h>
#include <math.h>

#include "actors/common/decide/choose.h"
#include "actors/common/decide/rules.h"
#include "actors/common/fields.h"
#include "proto/messages.h"
#include "shm/trust.h"

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
	case TOKENS_NATIVE:
		return "native";
	default:
		return "unknown";
	}
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

/* One record, taken apart. */
struct decision {
	const struct journal_record *head;
	const struct journal_decision *d;
	const struct journal_candidate *candidate;      /* head->n */
	const struct journal_rule *rule;                /* d->n_rules */
};

static bool
decision_read(const void *record, size_t len, struct decision *ret)
{
	const struct journal_record *head = record;
	const struct journal_decision *d = (const struct journal_decision *)(head + 1);
	const struct journal_candidate *c = (const struct journal_candidate *)(d + 1);

	if (len < sizeof *head || head->kind != JOURNAL_DECISION || len < sizeof *head + sizeof *d)
		return false;
	*ret = (struct decision){
		.head = head, .d = d, .candidate = c,
		.rule = (const struct journal_rule *)(const void *)(c + head->n),
	};
	return len >= sizeof *head + sizeof *d + head->n * sizeof *c +
			      d->n_rules * sizeof *ret->rule;
}

/* "pii-stays-local", or "rule 3" where its name is not in the record. */
static json_t *
removal_of(const struct decision *r, uint16_t removed_by)
{
	char number[32];

	if (removed_by == REMOVAL_NONE)
		return json_null();
	if (!removal_by_rule(removed_by))
		return json_string(choose_removal_name(removed_by));
	for (unsigned i = 0; i < r->d->n_rules; i++)
		if (removal_rule(r->rule[i].policy, r->rule[i].rule) == removed_by)
			return pm_json_text(r->rule[i].name, sizeof r->rule[i].name);
	snprintf(number, sizeof number, "rule %u",
		 (removed_by - REMOVAL_RULES) % REMOVAL_RULES_EACH + 1);
	return json_string(number);
}

static json_t *
known_real(float value)
{
	return isfinite(value) ? json_real((double)value) : json_null();
}

static json_t *
candidate_of(const struct decision *r, const struct journal_candidate *c, const struct rows *rows)
{
	json_t *o = json_object();

	json_object_set_new(o, "row", c->row == ROW_NONE ? json_null() : json_integer(c->row));
	json_object_set_new(o, "worker", pm_json_member_then(rows, c->row, c->row_gen));
	json_object_set_new(o, "row_gen", json_integer(c->row_gen));
	json_object_set_new(o, "removed_by", removal_of(r, c->removed_by));
	json_object_set_new(o, "removed_by_rule", json_boolean(removal_by_rule(c->removed_by)));
	json_object_set_new(o, "score", known_real(c->score));
	json_object_set_new(o, "cost", known_real(c->cost));
	json_object_set_new(o, "entry", json_integer(c->entry));
	json_object_set_new(o, "split_place", json_integer(c->tier));
	json_object_set_new(o, "cached_tokens", json_integer(c->cached));
	json_object_set_new(o, "speculative_tokens", json_integer(c->speculative));
	json_object_set_new(o, "pending_tokens", json_integer(c->pending));
	json_object_set_new(o, "prefilling", json_integer(c->prefilling));
	json_object_set_new(o, "context_tokens", json_integer(c->context));
	json_object_set_new(o, "decoding", json_integer(c->decoding));
	json_object_set_new(o, "scraped_waiting", pm_json_known32(c->waiting));
	json_object_set_new(o, "scraped_running", pm_json_known32(c->running));
	json_object_set_new(o, "kv_usage",
			    c->kv_usage < 0 ? json_null() : json_real((double)c->kv_usage));
	json_object_set_new(o, "reading_age_ms", pm_json_known32(c->age_ms));
	json_object_set_new(o, "predicted_ttft_us", json_integer(c->ttft_us));
	json_object_set_new(o, "predicted_wait_us",
			    json_integer((json_int_t)((double)c->wait_s * 1e6)));
	json_object_set_new(o, "predicted_load_us",
			    json_integer((json_int_t)((double)c->load_s * 1e6)));
	json_object_set_new(o, "handicap", json_real((double)c->handicap));
	json_object_set_new(o, "coefficients", coefs_of(c->coef));
	return o;
}

/* What came of each rule, in the order they were run. */
static json_t *
rules_of(const struct decision *r)
{
	json_t *list = json_array();

	for (unsigned i = 0; i < r->d->n_rules; i++) {
		const struct journal_rule *rule = &r->rule[i];
		const char *policy = rule->policy < r->d->n_from && rule->policy < JOURNAL_FROM ?
			r->d->from[rule->policy] : r->d->policy;
		json_t *o = json_object();

		json_object_set_new(o, "policy", pm_json_text(policy, sizeof r->d->policy));
		json_object_set_new(o, "name", pm_json_text(rule->name, sizeof rule->name));
		json_object_set_new(o, "outcome", json_string(rules_outcome_name(rule->outcome)));
		json_object_set_new(o, "removed", json_integer(rule->removed));
		json_array_append_new(list, o);
	}
	return list;
}

static json_t *
from_of(const struct journal_decision *d)
{
	json_t *list = json_array();

	for (unsigned i = 0; i < d->n_from && i < JOURNAL_FROM; i++)
		json_array_append_new(list, pm_json_text(d->from[i], sizeof d->from[i]));
	return list;
}

int
explain_decision(const void *record, size_t len, const struct rows *rows, json_t **ret)
{
	struct decision r;

	if (!decision_read(record, len, &r))
		return -EBADMSG;
	const struct journal_record *head = r.head;
	const struct journal_decision *d = r.d;
	const struct journal_candidate *c = r.candidate;
	json_t *o = json_object(), *list = json_array();

	if (!o || !list) {
		json_decref(o);
		json_decref(list);
		return -ENOMEM;
	}
	bool chosen = d->verdict == VERDICT_CHOOSE;

	json_object_set_new(o, "request_id", pm_json_hex(head->request_id));
	json_object_set_new(o, "ask", json_integer(head->ask));
	json_object_set_new(o, "when", pm_json_wall(head->when, 6));
	json_object_set_new(o, "generation", json_integer(head->policy_gen));
	json_object_set_new(o, "incarnation", json_integer(head->policy_inc));
	json_object_set_new(o, "config_hash", pm_json_hex(head->config_hash));
	json_object_set_new(o, "seed", pm_json_hex(head->seed));
	json_object_set_new(o, "verdict", json_string(verdict_name(d->verdict)));
	json_object_set_new(o, "model", pm_json_text(d->model, sizeof d->model));
	json_object_set_new(o, "policy", pm_json_text(d->policy, sizeof d->policy));
	json_object_set_new(o, "minimize", json_string(choose_objective_name(d->minimize)));
	json_object_set_new(o, "fell_back_from", from_of(d));
	json_object_set_new(o, "rule", pm_json_text_or_null(d->rule, sizeof d->rule));
	json_object_set_new(o, "rules", rules_of(&r));
	json_object_set_new(o, "tags", pm_json_text_or_null(d->tag_names, sizeof d->tag_names));
	json_object_set_new(o, "lasting", json_boolean(d->lasting));
	json_object_set_new(o, "status", pm_json_nonzero(d->status));
	json_object_set_new(o, "chosen_row", chosen ? json_integer(d->chosen_row) : json_null());
	json_object_set_new(o, "chosen_worker",
			    chosen && head->n > 0
				    ? pm_json_member_then(rows, c[0].row, c[0].row_gen)
				    : json_null());
	json_object_set_new(o, "prompt_tokens", pm_json_nonzero(d->prompt_tokens));
	json_object_set_new(o, "max_tokens", pm_json_known32(d->max_tokens));
	json_object_set_new(o, "token_source", json_string(source_name(d->token_source)));
	json_object_set_new(o, "token_trust",
			    d->token_source == TOKENS_NATIVE ?
			    json_string(trust_state_name(d->trust)) : json_null());
	json_object_set_new(o, "exact_tokens", json_integer(d->exact_tokens));
	json_object_set_new(o, "token_note", pm_json_text_or_null(d->note, sizeof d->note));
	json_object_set_new(o, "blocks", json_integer(d->blocks));
	json_object_set_new(o, "block_tokens", pm_json_nonzero(d->block_tokens));
	json_object_set_new(o, "stages", stages_of(d->stage_ns));
	for (unsigned i = 0; i < head->n; i++)
		json_array_append_new(list, candidate_of(&r, &c[i], rows));
	json_object_set_new(o, "candidates", list);
	*ret = o;
	return 0;
}

/* ---- text ---- */

static void
print_known(FILE *to, const json_t *o, const char *key, int width)
{
	const json_t *v = json_object_get(o, key);

	if (json_is_integer(v))
		fprintf(to, " %*lld", width, (long long)json_integer_value(v));
	else
		fprintf(to, " %*s", width, "?");
}

/* Why not all of it was made here, and what was done instead. */
static void
print_note(FILE *to, const json_t *d)
{
	const char *source = pm_text_at(d, "token_source", "?");
	const char *note = pm_text_at(d, "token_note", "");

	if (strcmp(source, "native") == 0)
		fprintf(to, "of the prompt %lld tokens are known: %s\n",
			pm_integer_at(d, "exact_tokens"), note);
	else if (strcmp(source, "none") == 0)
		fprintf(to, "tokens not known: %s; decided by load alone\n", note);
	else
		fprintf(to, "tokens not made here: %s%s\n", note,
			strcmp(source, "tokenize") == 0 ? "; by the worker's /tokenize" : "");
}

/* One line a rule that had a say, and the tags by which. */
static void
print_rules(FILE *to, const json_t *d)
{
	const json_t *list = json_object_get(d, "rules"), *from;
	size_t i;
	json_t *o;

	if (json_is_string(json_object_get(d, "tags")))
		fprintf(to, "tags %s%s\n", pm_text_at(d, "tags", ""),
			strchr(pm_text_at(d, "tags", ""), '?') ? " (?: unknown, taken for there)" :
								"");
	from = json_object_get(d, "fell_back_from");
	json_array_foreach(from, i, o)
		fprintf(to, "policy %s had nobody and fell back\n", json_string_value(o));
	json_array_foreach(list, i, o)
		fprintf(to, "rule %s: %s, %lld removed\n", pm_text_at(o, "name", "?"),
			pm_text_at(o, "outcome", "?"), pm_integer_at(o, "removed"));
}

void
explain_print(FILE *to, const json_t *d)
{
	const json_t *list = json_object_get(d, "candidates"),
		     *stages = json_object_get(d, "stages");
	size_t i;
	json_t *c;

	fprintf(to, "request %s ask %lld at %s: %s", pm_text_at(d, "request_id", "?"),
		pm_integer_at(d, "ask"), pm_text_at(d, "when", "?"), pm_text_at(d, "verdict", "?"));
	if (json_is_integer(json_object_get(d, "status")))
		fprintf(to, " %lld by rule %s", pm_integer_at(d, "status"),
			pm_text_at(d, "rule", "-"));
	else if (strcmp(pm_text_at(d, "verdict", ""), "hold") == 0)
		fprintf(to, " by rule %s", pm_text_at(d, "rule", "-"));
	if (json_is_integer(json_object_get(d, "chosen_row")))
		fprintf(to, " %s (row %lld)%s%s", pm_text_at(d, "chosen_worker", "?"),
			pm_integer_at(d, "chosen_row"),
			json_is_string(json_object_get(d, "rule")) ? ", " : "",
			pm_text_at(d, "rule", ""));
	fprintf(to, "\nmodel %s, policy %s minimizes %s; generation %lld, config %s\n",
		pm_text_at(d, "model", "-"), pm_text_at(d, "policy", "-"),
		pm_text_at(d, "minimize", "-"), pm_integer_at(d, "generation"),
		pm_text_at(d, "config_hash", "?"));
	fprintf(to, "prompt");
	print_known(to, d, "prompt_tokens", 0);
	fprintf(to, " tokens (%s%s%s), %lld blocks of", pm_text_at(d, "token_source", "?"),
		json_is_string(json_object_get(d, "token_trust")) ? ", " : "",
		pm_text_at(d, "token_trust", ""), pm_integer_at(d, "blocks"));
	print_known(to, d, "block_tokens", 0);
	fprintf(to, "; decided in %.1f us: read %.1f, tokens %.1f, hashes %.1f\n",
		json_real_value(json_object_get(stages, "total_us")),
		json_real_value(json_object_get(stages, "parse_us")),
		json_real_value(json_object_get(stages, "tokenize_us")),
		json_real_value(json_object_get(stages, "hash_us")));
	if (json_is_string(json_object_get(d, "token_note")))
		print_note(to, d);
	print_rules(to, d);
	if (json_array_size(list) == 0)
		return;
	fprintf(to, "%-16s %8s %8s %8s %6s %6s %6s %6s %10s %10s  %s\n", "worker", "cached",
		"maybe", "pending", "pref", "decod", "s.wait", "s.run", "wait ms", "ttft ms",
		"removed by");
	json_array_foreach(list, i, c) {
		char row[32];

		snprintf(row, sizeof row, "row %lld", pm_integer_at(c, "row"));
		fprintf(to, "%-16.16s %8lld %8lld %8lld %6lld %6lld", pm_text_at(c, "worker", row),
			pm_integer_at(c, "cached_tokens"), pm_integer_at(c, "speculative_tokens"),
			pm_integer_at(c, "pending_tokens"), pm_integer_at(c, "prefilling"),
			pm_integer_at(c, "decoding"));
		print_known(to, c, "scraped_waiting", 6);
		print_known(to, c, "scraped_running", 6);
		fprintf(to, " %10.1f %10.1f  %s",
			(double)pm_integer_at(c, "predicted_wait_us") / 1000.0,
			(double)pm_integer_at(c, "predicted_ttft_us") / 1000.0,
			pm_text_at(c, "removed_by", "-"));
		double handicap = json_real_value(json_object_get(c, "handicap"));

		if (handicap > 0)
			fprintf(to, " (slow start: %.1f ms of load count %.1f times)",
				(double)pm_integer_at(c, "predicted_load_us") / 1000.0,
				1 + handicap);
		fputc('\n', to);
	}
}
