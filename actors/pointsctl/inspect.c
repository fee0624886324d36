/* actors/pointsctl/inspect.c -- stat, workers, requests, explain: ask, then JSON or tables. */
#include <stdlib.h>
#include <string.h>

#include "actors/common/decide/explain.h"
#include "actors/common/fields.h"
#include "actors/common/show.h"
#include "actors/pointsctl/ask.h"
#include "actors/pointsctl/segments.h"
#include "actors/pointsctl/table.h"

/* ---- stat ---- */

static void
print_stat(const json_t *s)
{
	const json_t *requests = json_object_get(s, "requests"),
		     *index = json_object_get(s, "index");
	const json_t *list = json_object_get(s, "processes");
	struct table *t;
	char a[UNIT_TEXT], b[UNIT_TEXT];
	size_t i;
	json_t *p;

	printf("generation %lld (config %s, in force since %s), reload %s%s\n",
	       pm_integer_at(s, "generation"), pm_text_at(s, "config_hash", "-"),
	       pm_text_at(s, "committed", "-"), pm_text_at(s, "reload", "-"),
	       json_is_true(json_object_get(s, "draining")) ? ", draining" : "");
	if (pm_text_at(s, "last_error", NULL))
		printf("last reload refused: %s\n", pm_text_at(s, "last_error", ""));
	json_array_foreach(json_object_get(s, "orders"), i, p)
		printf("ordered: %s\n", json_string_value(p));
	printf("workers  %lld of %lld up\n", pm_integer_at(s, "workers_up"),
	       pm_integer_at(s, "workers_count"));
	if (pm_integer_at(s, "providers_count") > 0)
		printf("providers %lld of %lld models up\n", pm_integer_at(s, "providers_up"),
		       pm_integer_at(s, "providers_count"));
	printf("requests %lld: %lld ok, %lld client errors, %lld failed, %lld cancelled, "
	       "%lld live\n",
	       pm_integer_at(requests, "total"), pm_integer_at(requests, "ok"),
	       pm_integer_at(requests, "client_error"), pm_integer_at(requests, "failed"),
	       pm_integer_at(requests, "cancelled"), pm_integer_at(requests, "live"));
	if (json_is_object(index))
		printf("index    %lld blocks of %lld\n", pm_integer_at(index, "entries"),
		       pm_integer_at(index, "lanes") * 7 / 10);
	putchar('\n');
	t = table_new(
		"ROLE >INDEX >INCARNATION >GEN >PID STATE >SINCE >HEARTBEAT >RESTARTS LAST-EXIT");
	json_array_foreach(list, i, p) {
		table_fields(t, p, "role index incarnation");
		if (pm_integer_at(p, "generation"))
			table_json(t, p, "generation");
		else
			table_cell(t, "-");
		table_fields(t, p, "pid state");
		table_cell(t, "%s", unit_s(a, p, "since_s"));
		table_cell(t, "%s", unit_s(b, p, "heartbeat_age_s"));
		table_fields(t, p, "restarts last_exit");
	}
	table_print(stdout, t);
	table_free(&t);
}

int
command_stat(const struct options *o)
{
	if (o->segments)
		return print_result(o, ask(o, "segments", NULL), print_segments);
	return print_result(o, ask(o, "stat", NULL), print_stat);
}

static void
print_generations(const json_t *s)
{
	struct table *t = table_new(">GENERATION CONFIG >REVISION IN-FORCE-SINCE BY");
	json_t *p;
	size_t i;

	json_array_foreach(json_object_get(s, "generations"), i, p) {
		const char *failed = json_is_true(json_object_get(p, "failed")) ?
					     ", thrown out" : "";

		table_fields(t, p, "generation config_hash revision since");
		if (pm_integer_at(p, "of") > 0)
			table_cell(t, "%s to %lld%s", pm_text_at(p, "by", "-"),
				   pm_integer_at(p, "of"), failed);
		else
			table_cell(t, "%s%s", pm_text_at(p, "by", "-"), failed);
	}
	table_print(stdout, t);
	table_free(&t);
}

int
command_generations(const struct options *o)
{
	json_t *stat = ask(o, "stat", NULL), *list;

	if (!o->json || !stat)
		return print_result(o, stat, print_generations);
	list = json_incref(json_object_get(stat, "generations"));
	json_decref(stat);
	return print_result(o, list, NULL);
}

/* ---- workers ---- */

/* Only what somebody should look at: a source that fails, or whose members were not all taken. */
static void
print_discovery(const json_t *list)
{
	size_t i;
	json_t *s;

	json_array_foreach(list, i, s) {
		const char *state = pm_text_at(s, "state", "?");
		long long not_taken = pm_integer_at(s, "not_taken");
		char since[UNIT_TEXT], answered[UNIT_TEXT];
		bool ever;

		if (strcmp(state, "ok") == 0 && not_taken == 0)
			continue;
		ever = json_is_number(json_object_get(s, "answered_s"));
		printf("discovery of %s by %s: %s for %s, %s%s%s; %lld members, %lld not taken: "
		       "%s\n",
		       pm_text_at(s, "set", "?"), pm_text_at(s, "source", "?"), state,
		       unit_s(since, s, "since_s"), ever ? "answered " : "never answered",
		       ever ? unit_s(answered, s, "answered_s") : "", ever ? " ago" : "",
		       pm_integer_at(s, "members"), not_taken, pm_text_at(s, "text", "-"));
	}
}

static void
print_models(const json_t *list)
{
	char since[UNIT_TEXT];
	size_t i;
	json_t *m;

	json_array_foreach(list, i, m) {
		const char *is = pm_text_at(m, "tokens", "?");

		printf("tokens of %s: %s for %s%s; workers: %lld exact, %lld unverified, %lld "
		       "mismatch\n",
		       pm_text_at(m, "model", "?"), is, unit_s(since, m, "since_s"),
		       strcmp(is, "mismatch") == 0 ? ", prompts go by /tokenize" : "",
		       pm_integer_at(m, "exact"), pm_integer_at(m, "unverified"),
		       pm_integer_at(m, "mismatch"));
	}
}

static void
print_workers(const json_t *result)
{
	const json_t *list = json_object_get(result, "workers");
	struct table *t =
		table_new("WORKER >RANK POOL STATE >PENDING >PREFILL >DECODE >WAITING >RUNNING >KV "
			  "CACHE >BATCHES >EVENTS >APPLIED >GAPS PREDICTOR >ERR-P50 >ERR-P90 "
			  "TOKENS SOURCE URL");
	char a[UNIT_TEXT];
	size_t i;
	json_t *w;

	json_array_foreach(list, i, w) {
		const json_t *reading = json_object_get(w, "reading"),
			     *cache = json_object_get(w, "cache");
		const json_t *predictor = json_object_get(w, "predictor");
		const json_t *kv = json_object_get(reading, "kv_usage");

		table_fields(t, w, "worker rank");
		if (strcmp(pm_text_at(w, "kind", ""), "Provider") == 0)
			table_cell(t, "(provider)");
		else
			table_json(t, w, "pool");
		table_fields(t, w, "state pending_tokens prefilling decoding");
		table_fields(t, reading, "waiting running");
		if (json_is_number(kv))
			table_cell(t, "%.0f%%", 100 * json_number_value(kv));
		else
			table_cell(t, "-");
		table_fields(t, cache, "state batches decoded applied gaps");
		table_json(t, predictor, "state");
		table_cell(t, "%s", unit_s(a, predictor, "error_p50_s"));
		table_cell(t, "%s", unit_s(a, predictor, "error_p90_s"));
		table_json(t, json_object_get(w, "tokens"), "state");
		table_json(t, w, "source");
		table_json(t, w, "url");
	}
	table_print(stdout, t);
	table_free(&t);
	print_models(json_object_get(result, "models"));
	print_discovery(json_object_get(result, "discovery"));
}

static void
print_fact(const json_t *f)
{
	const char *reason = pm_text_at(f, "reason", "-"), *since = pm_text_at(f, "since", NULL);
	bool trouble = json_is_true(json_object_get(f, "trouble"));

	printf("%c %-9s %s", trouble ? '!' : ' ', pm_text_at(f, "about", "?"),
	       pm_text_at(f, "is", "?"));
	if (strcmp(reason, "-") != 0)
		printf(" (%s)", reason);
	if (since)
		printf(" since %.19sZ", since);
	printf(": %s\n", pm_text_at(f, "text", ""));
}

static void
print_why(const json_t *result)
{
	const char *between = "";
	json_t *w, *f;
	size_t i, k;

	json_array_foreach(json_object_get(result, "workers"), i, w) {
		unsigned troubles = 0;

		json_array_foreach(json_object_get(w, "why"), k, f)
			troubles += json_is_true(json_object_get(f, "trouble"));
		printf("%s%s rank %lld, %s at %s: %u trouble%s\n", between,
		       pm_text_at(w, "worker", "?"), pm_integer_at(w, "rank"),
		       pm_text_at(w, "model", "?"), pm_text_at(w, "url", "?"), troubles,
		       troubles == 1 ? "" : "s");
		json_array_foreach(json_object_get(w, "why"), k, f)
			print_fact(f);
		between = "\n";
	}
	print_models(json_object_get(result, "models"));
	print_discovery(json_object_get(result, "discovery"));
}

int
command_workers(const struct options *o)
{
	json_t *arguments = json_object();

	if (o->worker)
		json_object_set_new(arguments, "worker", json_string(o->worker));
	if (o->why)
		json_object_set_new(arguments, "why", json_true());
	return print_result(o, ask(o, "workers", arguments), o->why ? print_why : print_workers);
}

/* ---- requests ---- */

static void
print_requests(const json_t *result)
{
	const json_t *list = json_object_get(result, "requests");
	struct table *t = table_new(
		"ID >INGRESS STATE >AGE ROUTE WORKER >TRY PHASE >PROMPT >PREFILL >GEN PEER");
	char a[UNIT_TEXT];
	size_t i;
	json_t *r;

	json_array_foreach(list, i, r) {
		table_fields(t, r, "id ingress state");
		table_cell(t, "%s", unit_s(a, r, "age_s"));
		table_fields(t, r,
			     "route worker attempt phase prompt_tokens "
			     "prefill_tokens generation peer");
	}
	table_print(stdout, t);
	table_free(&t);
	printf("%lld live, %zu shown\n", pm_integer_at(result, "live"), json_array_size(list));
}

int
command_requests(const struct options *o)
{
	json_t *limit = o->n ? json_pack("{s:i}", "limit", (int)o->n) : NULL;

	return print_result(o, ask(o, "requests", limit), print_requests);
}

/* ---- explain ---- */

static const char *
count_text(char buf[UNIT_TEXT], const json_t *n)
{
	if (!json_is_integer(n))
		return "unknown";
	snprintf(buf, UNIT_TEXT, "%lld", (long long)json_integer_value(n));
	return buf;
}

static void
print_pair(const json_t *c, const char *what, const char *ours, const char *theirs, bool is_time)
{
	const json_t *a = json_object_get(c, ours), *b = json_object_get(c, theirs);
	char x[UNIT_TEXT], y[UNIT_TEXT];

	if (is_time)
		printf("%s predicted %s, was %s\n", what, unit_us(x, c, ours),
		       unit_us(y, c, theirs));
	else
		printf("%s ours %s, the engine's %s\n", what, count_text(x, a), count_text(y, b));
}

static void
print_outcome(const json_t *x)
{
	char a[UNIT_TEXT], b[UNIT_TEXT], c[UNIT_TEXT], worker[32] = "no worker";

	if (json_is_integer(json_object_get(x, "row")))        /* another has its row by now */
		snprintf(worker, sizeof worker, "row %lld", pm_integer_at(x, "row"));
	printf("outcome at %s: ", pm_text_at(x, "when", "-"));
	if (json_is_integer(json_object_get(x, "status")))
		printf("status %lld", pm_integer_at(x, "status"));
	else
		printf("no status");
	printf("%s from %s after %lld attempts%s%s\n",
	       json_is_true(json_object_get(x, "cancelled")) ? ", client gone," : "",
	       pm_text_at(x, "worker", worker), pm_integer_at(x, "attempts"),
	       pm_text_at(x, "error", NULL) ? ", error " : "", pm_text_at(x, "error", ""));
	printf("client %s%s", pm_text_at(x, "peer", "-"),
	       json_is_true(json_object_get(x, "peer_forwarded")) ? " (forwarded)" : "");
	if (pm_text_at(x, "client_request_id", NULL))
		printf(", its X-Request-Id %s", pm_text_at(x, "client_request_id", ""));
	printf("\nwaited here %s, first byte %s after dispatch, last %s; ",
	       unit_us(a, x, "queue_us"), unit_us(b, x, "ttft_us"), unit_us(c, x, "e2e_us"));
	printf("%s to the client\n",
	       unit_bytes(a, json_number_value(json_object_get(x, "bytes_out"))));
}

static void
print_explain(const json_t *e)
{
	const json_t *decisions = json_object_get(e, "decisions"),
		     *compare = json_object_get(e, "compare");
	const json_t *outcome = json_object_get(e, "outcome");
	size_t i;
	json_t *d;

	printf("%s: %s%s%s\n", pm_text_at(e, "id", "?"), pm_text_at(e, "state", "?"),
	       pm_text_at(e, "why", NULL) ? ": " : "", pm_text_at(e, "why", ""));
	json_array_foreach(decisions, i, d) {
		putchar('\n');
		explain_print(stdout, d);
	}
	if (!json_is_object(outcome))
		return;
	putchar('\n');
	print_outcome(outcome);
	print_pair(compare, "TTFT  ", "predicted_ttft_us", "ttft_us", true);
	print_pair(compare, "cached", "our_cached_tokens", "cached_tokens", false);
	print_pair(compare, "prompt", "our_prompt_tokens", "prompt_tokens", false);
}

int
command_explain(const struct options *o)
{
	json_t *result;
	const char *state;
	uint64_t id;
	bool found;

	if (pm_show_id(o->args[0], strlen(o->args[0]), &id) < 0) {
		complain(
			"\"%s\" is no request id: 16 hexadecimal digits, as in "
			"x-pointsman-request-id",
			o->args[0]);
		return 1;
	}
	result = ask(o, "explain", json_pack("{s:s}", "id", o->args[0]));
	state = pm_text_at(result, "state", "");
	found = strcmp(state, "done") == 0 || strcmp(state, "live") == 0;
	return print_result(o, result, print_explain) || !found;
}
