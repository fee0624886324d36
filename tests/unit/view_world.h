/* tests/unit/view_world.h -- a run's segments as their owners have them, and a view that attached
 * them. */
#pragma once
#include <criterion/criterion.h>
#include <fcntl.h>
#include <string.h>

#include "actors/common/show.h"
#include "actors/common/view.h"

struct view_world {
	struct rows rows;
	struct roster roster;
	struct process_segment ingress, policy;
	struct column column;
	struct slots slots;
	struct segment index;
	struct index_writer *writer;            /* of that index */
	struct pm_view view;
};

#define WORLD_INGRESS 3u                /* incarnations */
#define WORLD_POLICY 2u
#define WORLD_BLOCKS 1000u              /* of the index, and its slot ids and seed */
#define WORLD_IDS 100u
#define WORLD_SEED 7u
#define WORLD_ID(n) ((uint64_t)WORLD_INGRESS << 40 | (n))

static inline void
world_hand(struct pm_view *view, const struct segment *seg, enum segment_kind kind,
	   enum process_role role, uint32_t index, uint32_t incarnation)
{
	struct msg_segment m = {.kind = (uint8_t)kind, .role = (uint8_t)role, .index = index,
				.incarnation = incarnation};

	cr_assert_eq(pm_view_segment(view, &m, segment_readonly_fd(seg)), 0);
}

static inline void
world_row(struct view_world *w, uint16_t id, const char *name, enum row_health health)
{
	mono_ns now = clock_mono();
	struct row_reading reading = {
		.sampled_lo = (uint32_t)now, .sampled_hi = (uint32_t)(now >> 32),
		.known = KNOWN_WAITING | KNOWN_KV_USAGE, .waiting = 7, .kv_usage = 0.25f,
		.health = health,
	};

	strcpy(w->rows.text[id].member, name);
	strcpy(w->rows.text[id].set, "set");
	strcpy(w->rows.text[id].model, "demo");
	strcpy(w->rows.text[id].url, "http://127.0.0.1:9000");
	w->rows.row[id].uid = id + 1u;
	w->rows.row[id].row_gen = 1;
	row_reading_write(&w->rows.row[id], &reading);
	w->rows.row[id].intent = INTENT_SERVE;
	if (w->rows.head->count <= id)
		w->rows.head->count = id + 1u;
}

static inline void
world_begin(struct view_world *w)
{
	memset(w, 0, sizeof *w);
	cr_assert_eq(rows_create(&w->rows, 16), 0);
	cr_assert_eq(roster_create(&w->roster), 0);
	cr_assert_eq(process_create(&w->ingress, ROLE_INGRESS, 0, WORLD_INGRESS, 0, 32768), 0);
	cr_assert_eq(process_create(&w->policy, ROLE_POLICY, 0, WORLD_POLICY, 1, 32768), 0);
	cr_assert_eq(column_create(&w->column, 0, WORLD_INGRESS, 16), 0);
	cr_assert_eq(slots_create(&w->slots, 0, WORLD_INGRESS, 8), 0);
	cr_assert_eq(index_create(&w->index, WORLD_BLOCKS, WORLD_IDS, WORLD_SEED), 0);
	cr_assert_eq(index_writer_open(&w->writer, fcntl(w->index.fd, F_DUPFD_CLOEXEC, 3)), 0);
	pm_view_init(&w->view);
	world_hand(&w->view, &w->rows.seg, SEGMENT_ROWS, ROLE_SUPERVISOR, 0, 0);
	world_hand(&w->view, &w->roster.seg, SEGMENT_ROSTER, ROLE_SUPERVISOR, 0, 0);
	world_hand(&w->view, &w->ingress.seg, SEGMENT_PROCESS, ROLE_INGRESS, 0, WORLD_INGRESS);
	world_hand(&w->view, &w->policy.seg, SEGMENT_PROCESS, ROLE_POLICY, 0, WORLD_POLICY);
	world_hand(&w->view, &w->column.seg, SEGMENT_COLUMN, ROLE_INGRESS, 0, WORLD_INGRESS);
	world_hand(&w->view, &w->slots.seg, SEGMENT_SLOTS, ROLE_INGRESS, 0, WORLD_INGRESS);
	world_hand(&w->view, &w->index, SEGMENT_INDEX, ROLE_KVEVENTS, 0, 0);
	world_row(w, 0, "w0", HEALTH_UP);
	world_row(w, 1, "w1", HEALTH_DOWN);
}

static inline void
world_end(struct view_world *w)
{
	pm_view_close(&w->view);
	index_writer_close(&w->writer);
	segment_detach(&w->index);
	slots_detach(&w->slots);
	column_detach(&w->column);
	process_detach(&w->policy);
	process_detach(&w->ingress);
	roster_detach(&w->roster);
	rows_detach(&w->rows);
}

static inline void
world_decide(struct view_world *w, uint64_t id)
{
	struct journal_record head = {.kind = JOURNAL_DECISION, .n = 1, .request_id = id, .ask = 1,
				      .policy_gen = 1, .policy_inc = WORLD_POLICY, .when = 1000};
	struct journal_decision d = {.verdict = 1, .chosen_row = 0, .prompt_tokens = 100};
	struct journal_candidate c = {.row = 0, .row_gen = 1, .ttft_us = 5000};

	cr_assert_neq(journal_append(&w->policy.journal, &head, &d, sizeof d, &c, sizeof c), 0);
}

static inline void
world_outcome(struct view_world *w, uint64_t id, bool decided)
{
	struct journal_record head = {.kind = JOURNAL_OUTCOME, .request_id = id, .ask = 1,
				      .policy_inc = decided ? WORLD_POLICY : 0, .when = 2000};
	struct journal_outcome o = {.row = 0,
				    .row_gen = 1,
				    .status = 200,
				    .attempts = 1,
				    .ttft_us = 7000,
				    .predicted_us = 5000,
				    .prompt = 100,
				    .cached = UINT32_MAX,
				    .completion = 3,
				    .our_prompt = 99,
				    .e2e_us = 9000};

	cr_assert_neq(journal_append(&w->ingress.journal, &head, &o, sizeof o, NULL, 0), 0);
}

/* What metrics would have written of a worker that was asked. */
static inline void
world_trust(struct view_world *w, uint16_t id, enum trust_state state, enum trust_why why)
{
	struct row_trust t = {.state = state, .why = why, .key_lo = 9, .probes = 57, .agreed = 50,
			      .differed = state == TRUST_MISMATCH, .probe = 3, .at = 12,
			      .ours = 100, .theirs = 200, .n_ours = 30, .n_theirs = 31,
			      .usage_same = 4,
			      .usage_differ = 1, .usage_ours = 70, .usage_theirs = 71,
			      .cached_same = 3, .since_lo = 1000, .version = "0.31.0"};

	row_trust_write(&w->rows, id, 1, &t);
	trust_model_write(&w->rows, 9, "demo", state == TRUST_EXACT, state == TRUST_UNVERIFIED,
			  state == TRUST_MISMATCH, 1000);
}

static inline const char *
world_text(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : "";
}

static inline json_int_t
world_number(const json_t *o, const char *key)
{
	cr_assert(json_is_integer(json_object_get(o, key)), "%s", key);
	return json_integer_value(json_object_get(o, key));
}
