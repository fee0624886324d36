/* actors/common/show_explain.c -- one request: what was decided, and what came of it.
 *
 * Decisions and outcomes lie in different processes' rings and are joined by request id; a ring
 * that has passed the record is said to have (show.h).
 */
#include "actors/common/show.h"

#include "actors/common/decide/explain.h"
#include "actors/common/fields.h"

#define SEQUENCE_BITS 40u /* request id: incarnation of the ingress, its number there */

json_t *
pm_show_outcome(const void *record, size_t len, const struct rows *rows)
{
	const struct journal_record *head = record;
	const struct journal_outcome *x = (const struct journal_outcome *)(head + 1);
	json_t *o;

	const struct journal_client *client = (const struct journal_client *)(x + 1);

	if (len < sizeof *head + sizeof *x || head->kind != JOURNAL_OUTCOME)
		return NULL;
	o = json_object();
	json_object_set_new(o, "request_id", pm_json_hex(head->request_id));
	json_object_set_new(o, "ask", json_integer(head->ask));
	json_object_set_new(o, "when", pm_json_wall(head->when, 3));
	json_object_set_new(o, "generation", json_integer(head->policy_gen));
	json_object_set_new(o, "incarnation", json_integer(head->policy_inc));
	json_object_set_new(o, "status", pm_json_nonzero(x->status));
	json_object_set_new(o, "cancelled", json_boolean(x->cancelled));
	json_object_set_new(o, "row", x->row == ROW_NONE ? json_null() : json_integer(x->row));
	json_object_set_new(o, "worker", pm_json_member_then(rows, x->row, x->row_gen));
	json_object_set_new(o, "attempts", json_integer(x->attempts));
	json_object_set_new(o, "queue_us", pm_json_known32(x->queue_us));
	json_object_set_new(o, "ttft_us", pm_json_known32(x->ttft_us));
	json_object_set_new(o, "e2e_us", pm_json_known32(x->e2e_us));
	json_object_set_new(o, "prompt_tokens", pm_json_known32(x->prompt));
	json_object_set_new(o, "cached_tokens", pm_json_known32(x->cached));
	json_object_set_new(o, "completion_tokens", pm_json_known32(x->completion));
	json_object_set_new(o, "our_prompt_tokens", pm_json_nonzero(x->our_prompt));
	json_object_set_new(o, "our_cached_tokens", json_integer(x->our_cached));
	json_object_set_new(o, "predicted_ttft_us", pm_json_known32(x->predicted_us));
	json_object_set_new(o, "pending_tokens", json_integer(x->pending));
	json_object_set_new(o, "context_tokens", json_integer(x->context));
	json_object_set_new(o, "decoding", json_integer(x->decoding));
	json_object_set_new(o, "bytes_out", json_integer((json_int_t)x->bytes_out));
	json_object_set_new(o, "error", pm_json_text_or_null(x->error, sizeof x->error));
	if (len < sizeof *head + sizeof *x + sizeof *client ||
	    client->id_len > len - sizeof *head - sizeof *x - sizeof *client)
		return o;
	json_object_set_new(o, "peer", pm_show_peer(client->addr, client->port, client->flags));
	json_object_set_new(o, "peer_forwarded", json_boolean(client->flags & PEER_TRUSTED));
	json_object_set_new(o, "client_request_id",
			    pm_json_text_or_null((const char *)(client + 1), client->id_len));
	return o;
}

struct search {
	const struct pm_view *view;
	uint64_t id;
	json_t *decisions, *outcome;
	uint64_t newest;                        /* request id of that ingress, as far as seen */
	uint32_t policy_inc; /* of the outcome: whose answer was applied; 0 none */
	bool passed;                            /* a ring that may have held it has wrapped */
};

static bool
on_decision(void *arg, const struct pm_view_process *from, const void *record, size_t len)
{
	const struct journal_record *head = record;
	struct search *s = arg;
	json_t *one = NULL;

	(void)from;
	if (head->kind == JOURNAL_DECISION && head->request_id == s->id &&
	    explain_decision(record, len, s->view->rows.head ? &s->view->rows : NULL, &one) == 0)
		json_array_append_new(s->decisions, one);
	return true;
}

static bool
on_outcome(void *arg, const struct pm_view_process *from, const void *record, size_t len)
{
	const struct journal_record *head = record;
	struct search *s = arg;

	if (head->kind != JOURNAL_OUTCOME ||
	    from->incarnation != (uint32_t)(s->id >> SEQUENCE_BITS))
		return true;
	if (head->request_id > s->newest)
		s->newest = head->request_id;
	if (head->request_id == s->id && !s->outcome) {
		s->outcome = pm_show_outcome(record, len, &s->view->rows);
		s->policy_inc = head->policy_inc;
	}
	return true;
}

/* Live there?  Notes the newest id given out, too. */
static bool
in_a_slot(struct search *s)
{
	const struct pm_view_ingress *in =
		pm_view_ingress(s->view, (uint32_t)(s->id >> SEQUENCE_BITS));
	bool live = false;

	for (uint32_t k = 1; in && in->slots.slot && k <= in->slots.capacity; k++) {
		const struct slot *slot = &in->slots.slot[k];
		unsigned state =
			slot_state(atomic_load_explicit(&slot->word, memory_order_acquire));

		if (slot->request_id > s->newest)
			s->newest = slot->request_id;
		live |= slot->request_id == s->id && state != SLOT_FREE && state != SLOT_END;
	}
	return live;
}

static void
rings_passed(struct search *s)
{
	for (unsigned i = 0; i < s->view->n_processes; i++) {
		const struct pm_view_process *p = &s->view->process[i];

		if (p->role == ROLE_POLICY ||
		    (p->role == ROLE_INGRESS &&
		     p->incarnation == (uint32_t)(s->id >> SEQUENCE_BITS)))
			s->passed |= journal_tail(&p->process.journal) > 0;
	}
	s->passed |= s->view->deaths > PM_VIEW_GONE_KEPT;
}

static bool
in_view(const struct pm_view *view, uint32_t policy_inc)
{
	for (unsigned i = 0; i < view->n_processes; i++)
		if (view->process[i].role == ROLE_POLICY &&
		    view->process[i].incarnation == policy_inc)
			return true;
	return false;
}

static json_t *
difference(const json_t *a, const json_t *b)
{
	return json_is_integer(a) && json_is_integer(b) ?
	       json_integer(json_integer_value(a) - json_integer_value(b)) : json_null();
}

/* Predicted against actual, as far as both are known. */
static json_t *
compare_of(const json_t *outcome)
{
	static const char *const pairs[][3] = {
		{"predicted_ttft_us", "ttft_us", "ttft_error_us"},
		{"our_cached_tokens", "cached_tokens", "cached_tokens_error"},
		{"our_prompt_tokens", "prompt_tokens", "prompt_tokens_error"},
	};
	json_t *o = json_object();

	if (!outcome) {
		json_decref(o);
		return json_null();
	}
	for (unsigned i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
		json_t *ours = json_object_get(outcome, pairs[i][0]);
		json_t *theirs = json_object_get(outcome, pairs[i][1]);

		json_object_set(o, pairs[i][0], ours);
		json_object_set(o, pairs[i][1], theirs);
		json_object_set_new(o, pairs[i][2], difference(ours, theirs));
	}
	return o;
}

json_t *
pm_show_explain(const struct pm_view *view, uint64_t id)
{
	struct search s = {.view = view, .id = id, .decisions = json_array()};
	const char *state = "done", *why = NULL;
	json_t *o = json_object();
	bool live;

	/* Outcomes first: what one of them names has been decided before. */
	pm_view_journals(view, ROLE_INGRESS, on_outcome, &s);
	pm_view_journals(view, ROLE_POLICY, on_decision, &s);
	live = in_a_slot(&s) && !s.outcome;
	rings_passed(&s);
	bool decided = json_array_size(s.decisions) > 0;

	if (live) {
		state = "live";
		if (!decided)
			why = s.passed ? "not decided yet, or its decision has been overwritten" :
					 "not decided yet";
	} else if (s.outcome && !decided) {
		why = s.policy_inc == 0 ? "no decision was applied to it" :
		      in_view(view, s.policy_inc)
			      ? "its decision record has been overwritten"
			      : "the policy process that decided it is too new to be known here "
				"(ask again), or died too long ago";
	} else if (decided && !s.outcome) {
		why = s.passed ? "its outcome has been overwritten, or its ingress died" :
				 "it has no outcome: its ingress died";
	} else if (!decided) {
		bool born = pm_view_born(view, (uint32_t)(id >> SEQUENCE_BITS));
		bool given = born && id <= s.newest;

		state = given && s.passed ? "overwritten" : "unknown";
		why = !born ? "no ingress process known here has given out this id" :
		      !given ? "this id has not been given out yet, as far as the journals tell" :
		      s.passed ? "the journal rings have passed its records" :
				 "it left no record: its ingress died before its outcome";
	}
	json_object_set_new(o, "id", pm_json_hex(id));
	json_object_set_new(o, "state", json_string(state));
	json_object_set_new(o, "why", why ? json_string(why) : json_null());
	json_object_set_new(o, "decisions", s.decisions);
	json_object_set_new(o, "compare", compare_of(s.outcome));
	json_object_set_new(o, "outcome", s.outcome ? s.outcome : json_null());
	return o;
}
