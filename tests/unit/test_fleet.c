/* tests/unit/test_fleet.c -- rows of the worker table through reloads, drains and returns. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/supervisor/supervisor.h"

static struct supervisor S;     /* each test runs in its own process */
static struct manifest *made[8];
static unsigned n_made;

static void
drop(void)
{
	while (n_made > 0)
		manifest_free(&made[--n_made]);
	rows_detach(&S.rows);
}

static struct manifest *
manifest_of(const char *model, const char *members)
{
	struct yaml_errors errs = {0};
	struct manifest *m = NULL;
	char text[4096];

	snprintf(
		text, sizeof text,
		"apiVersion: pointsman.io/v1alpha1\nkind: GatewayBackend\nmetadata: {name: g}\n"
		"spec: {listen: [\"127.0.0.1:8080\"], models: [{name: %s, policy: p}]}\n---\n"
		"apiVersion: pointsman.io/v1alpha1\nkind: InferenceWorkerSet\nmetadata: {name: s}\n"
		"spec: {engine: vllm, model: %s, members: [%s]}\n---\n"
		"apiVersion: pointsman.io/v1alpha1\nkind: InferencePool\nmetadata: {name: o}\n"
		"spec: {workerSets: [s]}\n---\n"
		"apiVersion: pointsman.io/v1alpha1\nkind: InferencePolicy\nmetadata: {name: p}\n"
		"spec: {candidates: [{pool: o}]}\n",
		model, model, members);
	if (manifest_load_text("test.yaml", text, strlen(text), &m, &errs) < 0)
		yaml_errors_print(&errs, stderr);
	cr_assert_not_null(m);
	made[n_made++] = m;
	return m;
}

#define A "{name: a, url: \"http://127.0.0.1:1\"}"
#define B "{name: b, url: \"http://127.0.0.1:2\"}"

static void
open_rows(uint32_t capacity)
{
	for (unsigned i = 0; i < CONTROL_CLIENTS; i++)
		S.client[i].fd = -1;
	cr_assert_eq(rows_create(&S.rows, capacity), 0);
	log_open("test", 0, 0, 0, LEVEL_ERROR);
}

static uint16_t
row_of(const struct manifest *m, const char *member)
{
	for (uint32_t i = 0; i < m->n_members; i++)
		if (strcmp(m->members[i].name, member) == 0)
			return rows_find(&S.rows, m->members[i].uid);
	return ROW_NONE;
}

static unsigned
intent_of(uint16_t id)
{
	return atomic_load(&S.rows.row[id].intent);
}

Test(fleet, new_members_serve_and_known_ones_keep_their_row, .fini = drop)
{
	struct manifest *one = manifest_of("m", A), *two = manifest_of("m", B ", " A);
	uint64_t version;
	uint16_t a;

	open_rows(8);
	cr_assert_eq(fleet_add(&S, one), 0);
	a = row_of(one, "a");
	cr_assert_eq(intent_of(a), INTENT_SERVE);
	cr_assert_str_eq(S.rows.text[a].url, "http://127.0.0.1:1");
	cr_assert_str_eq(S.rows.text[a].model, "m");
	version = atomic_load(&S.rows.head->version);
	cr_assert_eq(fleet_add(&S, two), 0);
	cr_assert_eq(row_of(two, "a"), a);
	cr_assert_neq(row_of(two, "b"), a);
	cr_assert_eq(atomic_load(&S.rows.row[a].row_gen), 1);
	cr_assert_eq(atomic_load(&S.rows.head->version), version + 1);
	cr_assert_eq(fleet_add(&S, two), 0);
	cr_assert_eq(atomic_load(&S.rows.head->version), version + 1,
		     "nothing changed, yet all were told");
}

/* One worker, and a provider with these models. */
static struct manifest *
with_provider(const char *models, const char *more)
{
	char text[4096];
	struct yaml_errors errs = {0};
	struct manifest *m = NULL;

	snprintf(text, sizeof text,
		 "apiVersion: pointsman.io/v1alpha1\nkind: GatewayBackend\nmetadata: {name: g}\n"
		 "spec: {listen: ['127.0.0.1:8080'], models: [{name: m, policy: p}]}\n---\n"
		 "apiVersion: pointsman.io/v1alpha1\nkind: InferenceProvider\n"
		 "metadata: {name: cloud}\nspec: {type: openai, models: [%s]%s}\n---\n"
		 "apiVersion: pointsman.io/v1alpha1\nkind: InferenceWorkerSet\n"
		 "metadata: {name: s}\nspec: {engine: vllm, model: m, members: [" A "]}\n---\n"
		 "apiVersion: pointsman.io/v1alpha1\nkind: InferencePool\nmetadata: {name: o}\n"
		 "spec: {workerSets: [s]}\n---\n"
		 "apiVersion: pointsman.io/v1alpha1\nkind: InferencePolicy\nmetadata: {name: p}\n"
		 "spec: {candidates: [{pool: o}]}\n", models, more);
	if (manifest_load_text("test.yaml", text, strlen(text), &m, &errs) < 0)
		yaml_errors_print(&errs, stderr);
	cr_assert_not_null(m);
	made[n_made++] = m;
	return m;
}

Test(fleet, provider_has_a_row_for_each_model_that_says_where_it_is_spoken_to, .fini = drop)
{
	struct manifest *m = with_provider("{name: big, upstream: v.big}, {name: small}", "");

	open_rows(8);
	cr_assert_eq(fleet_add(&S, m), 0);
	cr_assert_eq(rows_count(&S.rows), 3);
	for (uint32_t i = 1; i < 3; i++) {
		uint16_t id = rows_find(&S.rows, m->members[i].uid);

		cr_assert_eq(S.rows.row[id].kind, ROW_PROVIDER);
		cr_assert_eq(S.rows.row[id].block_tokens, 0);
		cr_assert_eq(S.rows.row[id].ranks, 1);
		cr_assert_str_eq(S.rows.text[id].set, "cloud");
		cr_assert_str_eq(S.rows.text[id].url, "unix:provider.sock");
		cr_assert_str_eq(S.rows.text[id].member, i == 1 ? "cloud/big" : "cloud/small");
		cr_assert_str_eq(S.rows.text[id].model, i == 1 ? "v.big" : "small");
	}
	cr_assert_eq(S.rows.row[row_of(m, "a")].kind, ROW_WORKER);
}

Test(fleet, provider_that_moves_or_sells_another_model_by_that_name_begins_anew, .fini = drop)
{
	struct manifest *one = with_provider("{name: big}", ""),
			*other = with_provider("{name: big, upstream: v.big}", ""),
			*moved = with_provider("{name: big, upstream: v.big}",
					       ", socket: /run/p.sock");
	uint16_t id;

	open_rows(8);
	fleet_add(&S, one);
	id = rows_find(&S.rows, one->members[1].uid);
	fleet_add(&S, other);
	fleet_commit(&S, other);
	cr_assert_eq(rows_find(&S.rows, other->members[1].uid), id);
	cr_assert_eq(atomic_load(&S.rows.row[id].row_gen), 2);
	cr_assert_str_eq(S.rows.text[id].model, "v.big");
	fleet_add(&S, moved);
	fleet_commit(&S, moved);
	cr_assert_eq(atomic_load(&S.rows.row[id].row_gen), 3);
	cr_assert_str_eq(S.rows.text[id].url, "unix:/run/p.sock");
	fleet_commit(&S, moved);
	cr_assert_eq(atomic_load(&S.rows.row[id].row_gen), 3, "nothing changed");
	cr_assert_eq(intent_of(id), INTENT_SERVE);
}

Test(fleet, removed_member_drains_until_no_request_is_charged_to_it, .fini = drop)
{
	struct manifest *two = manifest_of("m", A ", " B), *one = manifest_of("m", A);
	struct cell_values busy = {.decoding = 1};
	struct child *c = calloc(1, sizeof *c);
	uint16_t b;

	open_rows(8);
	c->role = ROLE_INGRESS;
	c->sock = -1;
	cr_assert_eq(column_create(&c->column, 0, 7, 8), 0);
	cr_assert_eq(fleet_add(&S, two), 0);
	b = row_of(two, "b");
	cell_write(&c->column.cell[b], 1, &busy);
	fleet_commit(&S, one);
	S.child[0] = c;
	cr_assert_eq(intent_of(b), INTENT_DRAIN);
	cr_assert(fleet_tick(&S, 0), "it is still used");
	cr_assert_eq(intent_of(b), INTENT_DRAIN);
	busy.decoding = 0;
	cell_write(&c->column.cell[b], 1, &busy);
	S.reload.state = RELOAD_PROBATION;
	cr_assert(fleet_tick(&S, 0), "a rollback may bring it back");
	S.reload.state = RELOAD_IDLE;
	S.child[0] = NULL;              /* no one to tell in this test */
	cr_assert(!fleet_tick(&S, 0));
	cr_assert_eq(intent_of(b), INTENT_REMOVE);
	column_detach(&c->column);
	free(c);
}

Test(fleet, rollback_takes_a_draining_row_back_with_its_generation, .fini = drop)
{
	struct manifest *two = manifest_of("m", A ", " B), *one = manifest_of("m", A);
	uint16_t b;

	open_rows(8);
	fleet_add(&S, two);
	b = row_of(two, "b");
	fleet_commit(&S, one);
	fleet_commit(&S, two);
	cr_assert_eq(intent_of(b), INTENT_SERVE);
	cr_assert_eq(atomic_load(&S.rows.row[b].row_gen), 1);
}

Test(fleet, returning_member_gets_its_row_with_the_next_generation, .fini = drop)
{
	struct manifest *two = manifest_of("m", A ", " B), *one = manifest_of("m", A);
	char name[ROW_NAME_MAX];
	uint16_t b;

	open_rows(8);
	fleet_add(&S, two);
	b = row_of(two, "b");
	fleet_commit(&S, one);
	cr_assert(!fleet_tick(&S, 0));
	cr_assert_eq(intent_of(b), INTENT_REMOVE);
	fleet_add(&S, two);
	cr_assert_eq(row_of(two, "b"), b);
	cr_assert_eq(intent_of(b), INTENT_SERVE);
	cr_assert_eq(atomic_load(&S.rows.row[b].row_gen), 2);
	for (uint32_t g = 1; g <= 2; g++) {
		cr_assert(rows_member_read(&S.rows, b, g, name), "what was decided then, too");
		cr_assert_str_eq(name, "b");
	}
	cr_assert_not(rows_member_read(&S.rows, b, 0, name));
	cr_assert_not(rows_member_read(&S.rows, b, 3, name));
}

Test(fleet, another_model_behind_an_address_is_another_row_generation, .fini = drop)
{
	struct manifest *was = manifest_of("m", A), *is = manifest_of("other", A);
	uint16_t a;

	open_rows(8);
	fleet_add(&S, was);
	a = row_of(was, "a");
	fleet_add(&S, is);
	cr_assert_str_eq(S.rows.text[a].model, "m", "changed before the commit");
	fleet_commit(&S, is);
	cr_assert_str_eq(S.rows.text[a].model, "other");
	cr_assert_eq(intent_of(a), INTENT_SERVE);
	cr_assert_eq(atomic_load(&S.rows.row[a].row_gen), 2);
}

Test(fleet, full_table_refuses_and_reuses_a_rested_row_only, .fini = drop)
{
	struct manifest *one = manifest_of("m", A), *two = manifest_of("m", B);
	char name[ROW_NAME_MAX];
	uint16_t a;

	open_rows(1);
	cr_assert_eq(fleet_add(&S, one), 0);
	a = row_of(one, "a");
	cr_assert_eq(fleet_add(&S, two), -ENOSPC);
	fleet_commit(&S, two);
	cr_assert(!fleet_tick(&S, 0));
	cr_assert_eq(fleet_add(&S, two), -ENOSPC, "removed a moment ago");
	S.removed_ns[a] = clock_mono() > 120000000000ull ? clock_mono() - 120000000000ull : 0;
	if (clock_mono() < 61000000000ull)
		cr_skip_test("the machine booted less than a minute ago");
	cr_assert_eq(fleet_add(&S, two), 0);
	cr_assert_eq(row_of(two, "b"), a);
	cr_assert_eq(atomic_load(&S.rows.row[a].row_gen), 2);
	cr_assert_eq(row_of(one, "a"), ROW_NONE);
	cr_assert_not(rows_member_read(&S.rows, a, 1, name), "that was another");
	cr_assert(rows_member_read(&S.rows, a, 2, name));
	cr_assert_str_eq(name, "b");
}

/* Of the generation in force, with these members found. */
static struct manifest *
found_of(const char *members, uint32_t revision)
{
	static struct manifest *base;
	struct manifest_found found = {.set = "s", .source = "x", .text = members,
				       .len = strlen(members)};
	struct manifest *m = NULL;
	struct yaml_errors errs = {0};
	static const char text[] =
		"apiVersion: pointsman.io/v1alpha1\nkind: GatewayBackend\nmetadata: {name: g}\n"
		"spec: {listen: [\"127.0.0.1:8080\"], models: [{name: m, policy: p}],\n"
		"  timeouts: {drain: 1s}}\n---\n"
		"apiVersion: pointsman.io/v1alpha1\nkind: InferenceWorkerSet\nmetadata: {name: s}\n"
		"spec: {engine: vllm, model: m, discovery: {file: {path: /x}}}\n---\n"
		"apiVersion: pointsman.io/v1alpha1\nkind: InferencePool\nmetadata: {name: o}\n"
		"spec: {workerSets: [s]}\n---\n"
		"apiVersion: pointsman.io/v1alpha1\nkind: InferencePolicy\nmetadata: {name: p}\n"
		"spec: {candidates: [{pool: o}]}\n";

	if (!base) {
		cr_assert_eq(manifest_load_text("t", text, strlen(text), &base, &errs), 0);
		made[n_made++] = base;
	}
	cr_assert_eq(manifest_amend(base, &found, 1, revision, &m), 0);
	yaml_errors_free(&found.refused);
	made[n_made++] = m;
	S.config[0] = (struct config){.generation = 1, .manifest = m};
	S.reload.serving = S.reload.generation = 1;
	return m;
}

Test(fleet, found_member_that_is_gone_drains_and_one_that_is_back_serves, .fini = drop)
{
	struct manifest *two, *one;
	uint16_t b;

	open_rows(8);
	two = found_of("members: [" A ", " B "]", 1);
	cr_assert_eq(fleet_add(&S, two), 0);
	b = row_of(two, "b");
	cr_assert_str_eq(S.rows.text[b].source, "file");
	one = found_of("members: [" A "]", 2);
	fleet_amend(&S, one);
	cr_assert_eq(intent_of(b), INTENT_DRAIN);
	cr_assert_eq(intent_of(row_of(one, "a")), INTENT_SERVE);
	two = found_of("members: [" A ", " B "]", 3);
	fleet_add(&S, two);
	fleet_amend(&S, two);
	cr_assert_eq(intent_of(b), INTENT_SERVE);
	cr_assert_eq(atomic_load(&S.rows.row[b].row_gen), 1, "it was never removed");
	one = found_of("members: [" A "]", 4);
	fleet_amend(&S, one);
	cr_assert(!fleet_tick(&S, clock_mono()));
	cr_assert_eq(intent_of(b), INTENT_REMOVE);
	two = found_of("members: [" A ", " B "]", 5);
	fleet_add(&S, two);
	cr_assert_eq(row_of(two, "b"), b);
	cr_assert_eq(atomic_load(&S.rows.row[b].row_gen), 2, "begun anew");
}

Test(fleet, members_that_a_coming_generation_names_do_not_drain_meanwhile, .fini = drop)
{
	struct manifest *one, *two = manifest_of("m", B);

	open_rows(8);
	one = found_of("members: [" A "]", 1);
	fleet_add(&S, one);
	fleet_add(&S, two);
	S.config[1] = (struct config){.generation = 2, .manifest = two};
	S.reload.next = 2;
	fleet_amend(&S, one);
	cr_assert_eq(intent_of(row_of(two, "b")), INTENT_SERVE);
	S.reload.next = 0;              /* it was refused */
	fleet_amend(&S, one);
	cr_assert_eq(intent_of(row_of(two, "b")), INTENT_DRAIN);
}

Test(fleet, a_drain_has_its_limit, .fini = drop)
{
	struct cell_values busy = {.decoding = 1};
	struct child *c = calloc(1, sizeof *c);
	struct manifest *two, *one;
	mono_ns now;
	uint16_t b;

	open_rows(8);
	two = found_of("members: [" A ", " B "]", 1);
	fleet_add(&S, two);
	b = row_of(two, "b");
	c->role = ROLE_INGRESS;
	c->sock = -1;
	cr_assert_eq(column_create(&c->column, 0, 7, 8), 0);
	cell_write(&c->column.cell[b], 1, &busy);
	one = found_of("members: [" A "]", 2);
	fleet_amend(&S, one);
	now = clock_mono();
	S.child[0] = c;
	cr_assert(fleet_tick(&S, now));
	cr_assert_eq(intent_of(b), INTENT_DRAIN);
	S.draining_ns[b] = now - 1100000000ull;
	/* Who is told does not listen here: what is sent there fails and is kept by nobody. */
	cr_assert(!fleet_tick(&S, now));
	cr_assert_eq(intent_of(b), INTENT_REMOVE);
	S.child[0] = NULL;
	outbox_clear(&c->out);
	column_detach(&c->column);
	free(c);
}

Test(fleet, found_members_without_room_do_without_and_harm_nobody, .fini = drop)
{
	struct manifest *three;

	open_rows(2);
	three = found_of("members: [" A ", " B ", {name: c, url: \"http://127.0.0.1:3\"}]", 1);
	cr_assert_eq(fleet_add(&S, three), 0);
	cr_assert_eq(S.rowless, 1);
	cr_assert_eq(intent_of(row_of(three, "a")), INTENT_SERVE);
	cr_assert_eq(intent_of(row_of(three, "b")), INTENT_SERVE);
	cr_assert_eq(row_of(three, "c"), ROW_NONE);
}

/* Metrics and kvevents may write that page, too: what a wild store of theirs leaves must not lead
 * us outside of it. */
Test(fleet, a_damaged_count_and_texts_without_end_do_not_lead_outside, .fini = drop)
{
	struct manifest *two = manifest_of("m", A ", " B), *one = manifest_of("m", A);
	uint16_t b;

	open_rows(8);
	log_open("test", 0, 0, 0, LEVEL_INFO);
	cr_assert_eq(fleet_add(&S, two), 0);
	b = row_of(two, "b");
	atomic_store(&S.rows.head->count, UINT32_MAX);
	memset(S.rows.text, 'x', sizeof S.rows.text[0] * 8);
	cr_assert_eq(fleet_add(&S, two), 0);
	fleet_commit(&S, one);
	fleet_tick(&S, 0);
	cr_assert_eq(intent_of(b), INTENT_REMOVE);
}
