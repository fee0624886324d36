/* actors/supervisor/fleet.c -- which workers the table knows: identity, generation and intent.
 *
 * A row stays with its uid.  It appears when a configuration names its member, before any policy
 * process of that configuration is born; it drains when a configuration in force names it no more,
 * and is removed once no request is charged to it and no rollback could bring it back.
 * Only line 0 and the text are ours: metrics and kvevents start their lines anew when they see
 * another row_gen.
 */
#include "actors/supervisor/supervisor.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "actors/common/decide/member.h"

#define REUSE_NS 60000000000ull         /* a removed row's id rests that long */

static unsigned
intent(const struct row *row)
{
	return atomic_load_explicit(&row->intent, memory_order_acquire);
}

static void
intent_set(struct supervisor *s, uint16_t id, enum row_intent to)
{
	static const char *const names[] = {"none", "serve", "drain", "remove"};
	struct row *row = &s->rows.row[id];
	unsigned from = intent(row);

	if (from == (unsigned)to)
		return;
	log_info("row id=%u member=%.63s/%.63s rank=%u row_gen=%u: %s -> %s", id,
		 s->rows.text[id].set, s->rows.text[id].member, row->rank, row->row_gen,
		 names[from & 3], names[to]);
	atomic_store_explicit(&row->intent, (uint8_t)to, memory_order_release);
	if (to == INTENT_REMOVE)
		s->removed_ns[id] = clock_mono();
	if (to == INTENT_DRAIN)
		s->draining_ns[id] = clock_mono();
}

/* The worker table changed: tell everybody once. */
static void
changed(struct supervisor *s)
{
	uint64_t version =
		atomic_fetch_add_explicit(&s->rows.head->version, 1, memory_order_release) + 1;
	struct msg_rows_changed m = {.version = version};

	children_broadcast(s, MSG_rows_changed, &m);
}

static const struct manifest_member *
member_of(const struct manifest *manifest, uint64_t uid)
{
	for (uint32_t i = 0; i < manifest->n_members; i++)
		if (manifest->members[i].uid == uid)
			return &manifest->members[i];
	return NULL;
}

static bool
named_by_any(struct supervisor *s, uint64_t uid)
{
	for (unsigned i = 0; i < CONFIGS_MAX; i++)
		if (s->config[i].generation && member_of(s->config[i].manifest, uid))
			return true;
	return false;
}

/* By one that decides, or is about to. */
static bool
named_by_deciding(struct supervisor *s, uint64_t uid)
{
	const uint32_t generations[] = {s->reload.serving, s->reload.generation, s->reload.next};

	for (unsigned i = 0; i < sizeof generations / sizeof generations[0]; i++) {
		const struct config *c = generation_config(s, generations[i]);

		if (c && member_of(c->manifest, uid))
			return true;
	}
	return false;
}

/* A row for a member that has none: a fresh id while there is one, else one that rested. */
static uint16_t
row_take(struct supervisor *s)
{
	uint32_t count = rows_count(&s->rows);
	mono_ns now = clock_mono();

	if (count < s->rows.capacity)
		return (uint16_t)count;
	for (uint32_t i = 0; i < count; i++)
		if (intent(&s->rows.row[i]) == INTENT_REMOVE && now > s->removed_ns[i] + REUSE_NS &&
		    !named_by_any(s, s->rows.row[i].uid))
			return (uint16_t)i;
	return ROW_NONE;
}

static void
worker_text(const struct manifest_set *set, const struct manifest_member *member,
	    struct row_text *text)
{
	bool v6 = strchr(member->url.host, ':') != NULL;

	snprintf(text->member, sizeof text->member, "%s", member->name);
	snprintf(text->url, sizeof text->url, v6 ? "%s://[%s]:%u" : "%s://%s:%u",
		 member->https ? "https" : "http", member->url.host, member->url.port);
	snprintf(text->source, sizeof text->source, "%s",
		 manifest_source_name(member->found ? set->discovery.source
						    : MANIFEST_SOURCE_NONE));
}

/* Its name tells its models apart, and may be cut: who it is, its uid and model say. */
static void
provider_text(const struct manifest_provider *provider,
	      const struct manifest_member *member, struct row_text *text)
{
	char name[sizeof provider->name + sizeof provider->models->name];

	snprintf(name, sizeof name, "%s/%s", provider->name,
		 provider->models[member->provider_model].name);
	memcpy(text->member, name, strnlen(name, sizeof text->member - 1));
	snprintf(text->url, sizeof text->url, ROW_URL_UNIX "%s",
		 provider->socket[0] ? provider->socket : MEMBER_PROVIDER_SOCKET);
	snprintf(text->source, sizeof text->source, "%s",
		 manifest_source_name(MANIFEST_SOURCE_NONE));
}

static void
text_of(const struct manifest *manifest, const struct manifest_member *member,
	struct row_text *ret)
{
	const struct manifest_set *set = member_set(manifest, member);

	*ret = (struct row_text){0};
	snprintf(ret->set, sizeof ret->set, "%s", member_group(manifest, member));
	snprintf(ret->model, sizeof ret->model, "%s", member_model(manifest, member));
	if (set)
		worker_text(set, member, ret);
	else
		provider_text(member_provider(manifest, member), member, ret);
}

/* Of an engine: 0, where what it has is not ours to know. */
static uint32_t
block_tokens_of(const struct manifest *manifest, const struct manifest_member *member)
{
	const struct manifest_set *set = member_set(manifest, member);

	return set ? set->block_tokens : 0;
}

static uint32_t
ranks_of(const struct manifest *manifest, const struct manifest_member *member)
{
	const struct manifest_set *set = member_set(manifest, member);

	return set ? set->ranks : 1;
}

/* What the configuration says of a row besides its identity. */
static void
row_fill(struct supervisor *s, uint16_t id, const struct manifest *manifest,
	 const struct manifest_member *member)
{
	struct row *row = &s->rows.row[id];
	struct row_text text;

	text_of(manifest, member, &text);
	rows_text_write(&s->rows, id, &text);           /* its fence is for the identity, too */
	if (row->uid != member->uid)
		atomic_store_explicit(
			&row->name_gen,
			atomic_load_explicit(&row->row_gen, memory_order_relaxed) + 1,
			memory_order_relaxed);
	row->uid = member->uid;
	row->kind = member_set(manifest, member) ? ROW_WORKER : ROW_PROVIDER;
	atomic_store_explicit(&row->disabled,
			      row->kind == ROW_PROVIDER && orders_disabled(s, text.set),
			      memory_order_release);
	row->rank = member->rank;
	row->block_tokens = block_tokens_of(manifest, member);
	row->ranks = ranks_of(manifest, member);
}

static int
row_add(struct supervisor *s, const struct manifest *manifest, const struct manifest_member *member)
{
	uint16_t id = rows_find(&s->rows, member->uid);
	struct row *row;

	if (id != ROW_NONE && intent(&s->rows.row[id]) != INTENT_REMOVE)
		return 0;               /* serving, or draining until a commit decides */
	if (id == ROW_NONE)
		id = row_take(s);
	if (id == ROW_NONE)
		return -ENOSPC;
	row = &s->rows.row[id];
	atomic_store_explicit(&row->intent, INTENT_NONE, memory_order_release);
	row_fill(s, id, manifest, member);
	row->since_ns = clock_mono();
	atomic_fetch_add_explicit(&row->row_gen, 1, memory_order_release);
	if (id == rows_count(&s->rows))
		atomic_store_explicit(&s->rows.head->count, id + 1u, memory_order_release);
	intent_set(s, id, INTENT_SERVE);
	return 1;
}

int
fleet_add(struct supervisor *s, const struct manifest *manifest)
{
	bool any = false;
	int r = 0;

	s->rowless = 0;
	for (uint32_t i = 0; i < manifest->n_members && r >= 0; i++) {
		r = row_add(s, manifest, &manifest->members[i]);
		any |= r > 0;
		if (r == -ENOSPC && manifest->members[i].found) {
			s->rowless++;
			r = 0;
		}
	}
	if (any)
		changed(s);
	return r < 0 ? r : 0;
}

void
fleet_commit(struct supervisor *s, const struct manifest *manifest)
{
	uint32_t count = rows_count(&s->rows);
	bool any = false;

	for (uint32_t k = 0; k < count; k++) {
		uint16_t i = (uint16_t)k;       /* capacity fits */
		struct row *row = &s->rows.row[i];
		const struct manifest_member *member = member_of(manifest, row->uid);
		unsigned was = intent(row);

		if (!member) {
			if (was == INTENT_SERVE) {
				intent_set(s, i, INTENT_DRAIN);
				any = true;
			}
			continue;
		}
		uint32_t block_tokens = block_tokens_of(manifest, member);
		uint32_t ranks = ranks_of(manifest, member);
		struct row_text text;

		text_of(manifest, member, &text);
		if (strncmp(s->rows.text[i].model, text.model, ROW_URL_MAX) != 0 ||
		    strncmp(s->rows.text[i].url, text.url, ROW_URL_MAX) != 0) {
			/* The same address serves another model, or a provider has another socket:
			 * nothing known of it holds. */
			intent_set(s, i, INTENT_REMOVE);
			row_add(s, manifest, member);
			any = true;
		} else if (row->block_tokens != block_tokens || row->ranks != ranks ||
			   was == INTENT_DRAIN) {
			row->block_tokens = block_tokens;
			row->ranks = ranks;
			intent_set(s, i, INTENT_SERVE);
			any = true;
		}
	}
	if (any)
		changed(s);
}

void
fleet_amend(struct supervisor *s, const struct manifest *manifest)
{
	uint32_t count = rows_count(&s->rows);
	bool any = false;

	for (uint32_t k = 0; k < count; k++) {
		uint16_t i = (uint16_t)k;
		unsigned was = intent(&s->rows.row[i]);
		uint64_t uid = s->rows.row[i].uid;

		if (was == INTENT_SERVE && !named_by_deciding(s, uid))
			intent_set(s, i, INTENT_DRAIN);
		else if (was == INTENT_DRAIN && member_of(manifest, uid))
			intent_set(s, i, INTENT_SERVE);
		else
			continue;
		any = true;
	}
	if (any)
		changed(s);
}

void
fleet_disable(struct supervisor *s, const char *provider, bool disabled)
{
	uint32_t count = rows_count(&s->rows);

	for (uint32_t i = 0; i < count; i++)
		if (s->rows.row[i].kind == ROW_PROVIDER &&
		    strncmp(s->rows.text[i].set, provider, ROW_NAME_MAX) == 0)
			atomic_store_explicit(&s->rows.row[i].disabled, disabled,
					      memory_order_release);
	changed(s);
}

static bool
row_idle(const struct supervisor *s, uint16_t id)
{
	uint32_t row_gen = atomic_load_explicit(&s->rows.row[id].row_gen, memory_order_relaxed);

	for (unsigned i = 0; i < CHILDREN_MAX; i++) {
		const struct child *c = s->child[i];
		struct cell_values v;

		if (!c || c->role != ROLE_INGRESS || id >= c->column.rows)
			continue;
		if (!cell_read(&c->column.cell[id], row_gen, &v) || v.prefilling || v.decoding)
			return false;
	}
	return true;
}

bool
fleet_tick(struct supervisor *s, mono_ns now)
{
	const struct config *shown = generation_shown(s);
	uint32_t count = rows_count(&s->rows);
	bool left = false, any = false;

	for (uint32_t k = 0; k < count; k++) {
		uint16_t i = (uint16_t)k;

		if (intent(&s->rows.row[i]) != INTENT_DRAIN)
			continue;
		bool late = shown && now > s->draining_ns[i] &&
			    now - s->draining_ns[i] > shown->manifest->gateway.timeouts.drain_ns;

		if (s->reload.state == RELOAD_IDLE && (late || row_idle(s, i))) {
			if (late && !row_idle(s, i))
				log_warn("row id=%u: drained for timeouts.drain; what still runs "
					 "there is cut off", i);
			intent_set(s, i, INTENT_REMOVE);
			any = true;
		} else {
			left = true;
		}
	}
	if (any)
		changed(s);
	return left;
}
