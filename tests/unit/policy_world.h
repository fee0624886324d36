/* tests/unit/policy_world.h -- what supervisor, ingress, kvevents and metrics make, for tests of
 * policy. */
#pragma once
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "actors/policy/evaluate.h"
#include "proto/openai.h"
#include "shm/blockhash.h"

#define BLOCK 16u
#define WORKERS 3u
#define SEED 77u
#define POLICY_INC 9u

struct world {
	struct manifest *manifest;
	struct rows rows;
	struct segment index_seg;
	struct index_writer *writer;
	struct pins pins;
	struct column column;
	struct slots slots;
	struct arena arena;
	struct process_segment process;
	/* the policy's own side */
	struct view view;
	struct view_ingress *from;
	struct evaluate *evaluate;
	uint32_t next_slot;
};

static const char yaml_head[] =
	"apiVersion: pointsman.io/v1alpha1\nkind: GatewayBackend\nmetadata: {name: g}\n"
	"spec:\n  listen: [\"127.0.0.1:8080\"]\n  models:\n"
	"    - {name: demo, policy: p}\n"
	"    - {name: nickname, policy: p, aliasOf: demo}\n"
	"---\napiVersion: pointsman.io/v1alpha1\nkind: InferenceWorkerSet\nmetadata: {name: s}\n"
	"spec:\n  engine: vllm\n  model: demo\n  loraAdapters: [adapter-a, adapter-b]\n  members:\n"
	"    - {name: w0, url: \"http://127.0.0.1:9000\"}\n"
	"    - {name: w1, url: \"http://127.0.0.1:9001\"}\n"
	"    - {name: w2, url: \"http://127.0.0.1:9002\"}\n"
	"---\napiVersion: pointsman.io/v1alpha1\nkind: InferencePool\nmetadata: {name: pool}\n"
	"spec:\n  workerSets: [s]\n"
	"---\napiVersion: pointsman.io/v1alpha1\nkind: InferencePolicy\nmetadata: {name: p}\n"
	"spec:\n  candidates: [{pool: pool}]\n  minimize: ";

static inline void
set_health(struct world *w, uint16_t row, enum row_health health)
{
	mono_ns now = clock_mono();
	struct row_reading reading = {
		.sampled_lo = (uint32_t)now, .sampled_hi = (uint32_t)(now >> 32),
		.known = KNOWN_WAITING | KNOWN_RUNNING, .health = health,
	};

	row_reading_write(&w->rows.row[row], &reading);
}

static inline void
set_coefs(struct world *w, uint16_t row, float base_s, float prefill_s)
{
	struct row_predictor p = {.version = 1, .samples = 100, .state = PREDICTOR_READY};

	p.coef[COEF_BASE] = base_s;
	p.coef[COEF_PREFILL] = prefill_s;
	row_predictor_write(&w->rows.row[row], &p);
}

/* The segments, as their owners have them.  minimize: or whole documents. */
static inline void
make_segments(struct world *w, const char *minimize)
{
	struct yaml_errors errs = {0};
	char text[4096];

	memset(w, 0, sizeof *w);
	snprintf(text, sizeof text, "%s%s\n",
		 strncmp(minimize, "apiVersion:", 11) == 0 ? "" : yaml_head, minimize);
	int r = manifest_load_text("test", text, strlen(text), &w->manifest, &errs);
	if (r < 0)
		yaml_errors_print(&errs, stderr);
	cr_assert_eq(r, 0);
	cr_assert_eq(rows_create(&w->rows, 16), 0);
	for (uint32_t m = 0; m < w->manifest->n_members; m++) {
		bool worker = w->manifest->members[m].set != MANIFEST_NONE;
		uint16_t row = (uint16_t)(m + 2);               /* rows are not members */

		w->rows.row[row].uid = w->manifest->members[m].uid;
		atomic_store(&w->rows.row[row].row_gen, 1);
		w->rows.row[row].kind = worker ? ROW_WORKER : ROW_PROVIDER;
		w->rows.row[row].ranks = 1;
		w->rows.row[row].block_tokens = worker ? BLOCK : 0;
		atomic_store(&w->rows.row[row].intent, INTENT_SERVE);
		set_health(w, row, HEALTH_UP);
		if (worker)
			set_coefs(w, row, 0.01f, 0.001f);
	}
	atomic_store(&w->rows.head->count, 8);
	atomic_fetch_add(&w->rows.head->version, 1);
	cr_assert_eq(index_create(&w->index_seg, 100000, 62, SEED), 0);
	cr_assert_eq(index_writer_open(&w->writer, dup(w->index_seg.fd)), 0);
	cr_assert_eq(pins_create(&w->pins, 64), 0);
	cr_assert_eq(column_create(&w->column, 0, 5, 16), 0);
	cr_assert_eq(slots_create(&w->slots, 0, 5, 64), 0);
	struct arena made;
	cr_assert_eq(arena_create(&made, 0, 5, 64 << 20), 0);
	cr_assert_eq(arena_attach(&w->arena, dup(made.seg.fd), true), 0);
	arena_detach(&made);
	cr_assert_eq(process_create(&w->process, ROLE_POLICY, 0, POLICY_INC, 3, 1 << 20), 0);
	w->next_slot = 1;
}

/* And the policy's view of them, with an evaluator, without a process. */
static inline void
begin(struct world *w, const char *minimize)
{
	struct rows rows;
	struct index *index;

	make_segments(w, minimize);
	cr_assert_eq(rows_attach(&rows, dup(w->rows.seg.fd), false), 0);
	cr_assert_eq(index_attach(&index, dup(w->index_seg.fd)), 0);
	cr_assert_eq(view_open(&w->view, w->manifest, POLICY_INC, &rows, &index), 0);
	cr_assert_eq(pins_attach(&w->view.pins, dup(w->pins.seg.fd), false), 0);
	struct view_ingress *half = calloc(1, sizeof *half);
	half->incarnation = 5;
	cr_assert_eq(column_attach(&half->column, dup(w->column.seg.fd), false), 0);
	cr_assert_eq(slots_attach(&half->slots, dup(w->slots.seg.fd), false), 0);
	cr_assert_eq(arena_attach(&half->arena, dup(w->arena.seg.fd), false), 0);
	cr_assert_eq(view_add(&w->view, &half), 0);
	w->from = view_find(&w->view, 5);
	cr_assert_not_null(w->from);
	cr_assert_eq(evaluate_new(&w->evaluate, &w->view, NULL, &w->process, 3), 0);
}

static inline void
end(struct world *w)
{
	evaluate_free(&w->evaluate);
	if (w->view.manifest)
		view_close(&w->view);
	index_writer_close(&w->writer);
	process_detach(&w->process);
	arena_detach(&w->arena);
	slots_detach(&w->slots);
	column_detach(&w->column);
	segment_detach(&w->index_seg);
	pins_detach(&w->pins);
	rows_detach(&w->rows);
	manifest_free(&w->manifest);
}

/* As ingress would: body into the arena, slot filled, word last. */
static inline struct msg_ask
put_question(struct world *w, enum openai_route route, const char *body)
{
	struct msg_ask ask = {.slot = w->next_slot++, .slot_gen = 1, .ask = 1};
	struct slot *slot = &w->slots.slot[ask.slot];
	size_t len = strlen(body), cap;

	slot->body_off = arena_alloc(&w->arena, len, &cap);
	cr_assert_neq(slot->body_off, 0);
	memcpy(arena_at(&w->arena, slot->body_off, len), body, len);
	slot->body_len = (uint32_t)len;
	slot->route = route;
	slot->row = ROW_NONE;
	slot->request_id = (uint64_t)5 << 40 | ask.slot;
	atomic_store(&slot->word, slot_word(ask.slot_gen, (uint16_t)ask.ask, SLOT_ASKED, 0));
	return ask;
}

/* {"model":NAME,"prompt":[first, first + 1, ..]} */
static inline const char *
ids_body(const char *model, uint32_t first, uint32_t n)
{
	static char body[400000];
	int at = snprintf(body, sizeof body, "{\"model\":\"%s\",\"prompt\":[", model);

	for (uint32_t i = 0; i < n; i++)
		at += snprintf(body + at, sizeof body - (size_t)at, "%s%u", i ? "," : "",
			       first + i);
	snprintf(body + at, sizeof body - (size_t)at, "],\"max_tokens\":7}");
	return body;
}

static inline enum evaluate_result
ask_once(struct world *w, const struct msg_ask *ask, mono_ns asked_ns, bool tokens_failed,
	 struct msg_answer *answer, struct token_key *key)
{
	const struct evaluate_asked how = {.asked_ns = asked_ns, .tokens_failed = tokens_failed};
	struct evaluate_later later = {0};
	enum evaluate_result r = evaluate_question(w->evaluate, w->from, ask, &how, answer, &later);

	*key = later.key;
	return r;
}

static inline struct msg_answer
answer_to(struct world *w, const char *body)
{
	struct msg_ask ask = put_question(w, OPENAI_COMPLETIONS, body);
	struct msg_answer answer;
	struct token_key key;

	cr_assert_eq(
		ask_once(w, &ask, clock_mono(), false, &answer, &key),
		EVALUATE_ANSWER);
	cr_assert_eq(answer.slot, ask.slot);
	cr_assert_eq(answer.ask, 1);
	cr_assert_eq(answer.policy_inc, POLICY_INC);
	return answer;
}

/* What kvevents would do for a prompt that worker `row` has computed. */
static inline uint16_t
cache(struct world *w, uint16_t row, uint16_t slot, uint32_t first, uint32_t n,
      enum index_role role)
{
	uint32_t ids[4096];
	uint64_t hash[256];
	size_t blocks;

	for (uint32_t i = 0; i < n; i++)
		ids[i] = first + i;
	blocks = blockhash_chain(blockhash_root(SEED, "demo", 4, "", 0, "", 0, BLOCK), ids, n,
				 BLOCK, hash, 256);
	if (slot == 0)
		slot = index_slot_take(w->writer, row, 1, role, INDEX_GPU, BLOCK);
	cr_assert_neq(slot, 0);
	for (size_t i = 0; i < blocks; i++)
		cr_assert(index_put(w->writer, slot, hash[i], NULL, 0));
	return slot;
}

static inline void
apply(struct world *w, uint32_t number)
{
	column_apply(&w->column, POLICY_INC, number);
}
