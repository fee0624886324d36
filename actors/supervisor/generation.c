/* actors/supervisor/generation.c -- performs what the state machine of reload.c decides.
 *
 * A generation is one checked configuration: its documents in a CONFIG segment, rows for its
 * members, and policy processes born with it.  Everybody else sees its documents only once it is in
 * force.
 */
#include "actors/supervisor/supervisor.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "actors/common/background.h"
#include "actors/common/decide/difference.h"

#define MS 1000000ull
#define POLICY_DRAIN_NS (9000 * MS)     /* reload.c kills after 10 s */
#define EVENTS_MAX 64u
#define RESTART_TEXT "takes effect after a restart"

struct config *
generation_config(struct supervisor *s, uint32_t generation)
{
	for (unsigned i = 0; generation && i < CONFIGS_MAX; i++)
		if (s->config[i].generation == generation)
			return &s->config[i];
	return NULL;
}

struct config *
generation_shown(struct supervisor *s)
{
	return generation_config(s, s->reload.serving ? s->reload.serving : s->reload.generation);
}

static void
config_drop(struct supervisor *s, struct config *c)
{
	shares_drop_config(s, c->generation);
	segment_detach(&c->seg);
	segment_detach(&c->secrets);
	segment_detach(&c->trust);
	segment_detach(&c->probes);
	free(c->model);
	manifest_free(&c->manifest);
	*c = (struct config){
		.seg.fd = -1, .secrets.fd = -1, .trust.fd = -1, .probes.fd = -1};
}

/* Snapshots nobody can come back to, and the models that only they use. */
static void
configs_sweep(struct supervisor *s)
{
	for (unsigned i = 0; i < CONFIGS_MAX; i++) {
		struct config *c = &s->config[i];
		const struct reload *m = &s->reload;

		if (c->generation && c->generation != m->serving &&
		    c->generation != m->generation && c->generation != m->next &&
		    c->generation != m->old)
			config_drop(s, c);
	}
	models_sweep(s);
}

/* All complaints, one a line, cut at cap. */
static void
errors_text(const struct yaml_errors *errs, char *buf, size_t cap)
{
	size_t n = 0;

	buf[0] = 0;
	for (size_t i = 0; i < errs->n && n < cap; i++) {
		const struct yaml_error *e = &errs->list[i];

		char place[32] = "";    /* of a file as a whole: none */

		if (e->line)
			snprintf(place, sizeof place, ":%u:%u", e->line, e->column);
		n += (size_t)snprintf(buf + n, cap - n, "%s%s%s: %s", n ? "\n" : "", e->file, place,
				      e->text);
	}
	if (errs->dropped && n < cap)
		snprintf(buf + n, cap - n, "\n%zu more", errs->dropped);
}

/* Documents - those of the past, or NULL: what the paths hold now - and the files that they name.
 * Warnings stay in text where all is well. */
static int
files_load(struct supervisor *s, const struct past *past, struct manifest **ret,
	   struct secret_files **ret_files, char *text, size_t cap)
{
	struct yaml_errors errs = {0}, warnings = {0};
	int r = past ? manifest_load_snapshot(past->documents, past->len, ret, &errs) :
		       manifest_load_paths(s->options.paths, s->options.n_paths, ret, &errs);

	if (r == 0) {
		r = secrets_read(*ret, ret_files, &errs, &warnings);
		if (r < 0)
			manifest_free(ret);
	}
	errors_text(r < 0 ? &errs : &warnings, text, cap);
	if (r < 0 && !text[0])
		snprintf(text, cap, "cannot load the configuration: %s", strerror(-r));
	yaml_errors_free(&errs);
	yaml_errors_free(&warnings);
	return r;
}

/* One a line. */
static void
warn_lines(uint32_t generation, char *text)
{
	char *save = NULL;

	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		log_warn("reload generation=%u: %s", generation, line);
}

/* Before the documents that name them: who gets those has these. */
static int
secrets_share(struct supervisor *s, struct config *c, const struct secret_files *files)
{
	int r;

	if (!files)
		return 0;
	r = secrets_create(&c->secrets, files, SEGMENT_SECRETS, c->generation);
	if (r == 0)
		r = shares_add(s, &c->secrets, SEGMENT_SECRETS, ROLE_SUPERVISOR, 0, 0,
			       c->generation);
	if (r == 0)
		r = secrets_create(&c->trust, files, SEGMENT_TRUST, c->generation);
	if (r == 0)
		r = shares_add(s, &c->trust, SEGMENT_TRUST, ROLE_SUPERVISOR, 0, 0, c->generation);
	if (r == 0)
		r = secrets_create(&c->probes, files, SEGMENT_PROBES, c->generation);
	if (r == 0)
		r = shares_add(s, &c->probes, SEGMENT_PROBES, ROLE_SUPERVISOR, 0, 0,
			       c->generation);
	return r;
}

/* Each tenant's row, before anybody gets the documents that name it.  0, -ENOSPC. */
static int
tenants_name(struct supervisor *s, const struct manifest *manifest, uint32_t generation)
{
	uint32_t oldest = generation;

	for (unsigned i = 0; i < CONFIGS_MAX; i++)
		if (s->config[i].generation && s->config[i].generation < oldest)
			oldest = s->config[i].generation;
	for (uint32_t i = 0; i < manifest->n_tenants; i++)
		if (limits_name(&s->limits, manifest->tenants[i].name, generation, oldest) ==
		    LIMIT_NO_ROW)
			return -ENOSPC;
	return 0;
}

/* What a running set cannot take over: said, not refused. */
static void
restart_text(const struct manifest *was, const struct manifest *is, char *buf, size_t cap)
{
	const struct manifest_gateway *a = &was->gateway, *b = &is->gateway;
	size_t n = 0;

	buf[0] = 0;
#define NEEDS_RESTART(condition, name)                                                         \
	if ((condition) && n < cap)                                                            \
		n += (size_t)snprintf(buf + n, cap - n, "%swarning: %s changed: " RESTART_TEXT, \
				      n ? "\n" : "", name)
	NEEDS_RESTART(a->n_listen != b->n_listen ||
			      memcmp(a->listen, b->listen, sizeof a->listen) != 0,
		      "GatewayBackend spec.listen");
	NEEDS_RESTART(strcmp(a->socket_mode, b->socket_mode) != 0 ||
			      strcmp(a->socket_group, b->socket_group) != 0,
		      "GatewayBackend spec.unixSockets");
	NEEDS_RESTART(a->n_listen_tls != b->n_listen_tls ||
			      memcmp(a->listen_tls, b->listen_tls, sizeof a->listen_tls) != 0,
		      "GatewayBackend spec.listenTls");
	NEEDS_RESTART(a->ingresses != b->ingresses, "GatewayBackend spec.ingresses");
	NEEDS_RESTART(a->admin.port != b->admin.port || strcmp(a->admin.host, b->admin.host) != 0,
		      "GatewayBackend spec.admin.listen");
	NEEDS_RESTART(a->index_blocks != b->index_blocks ||
			      a->index_max_slots != b->index_max_slots,
		      "GatewayBackend spec.index");
#undef NEEDS_RESTART
}

void
generation_note(struct supervisor *s, uint32_t generation, bool ok, const char *text)
{
	const struct config *c = generation_config(s, generation);
	struct journal_record head = {.kind = JOURNAL_CONFIG, .when = clock_wall(),
				      .config_hash = c ? manifest_hash(c->manifest) : 0};
	struct journal_config config = {.generation = generation, .ok = ok};

	snprintf(config.text, sizeof config.text, "%s", text);
	journal_append(&s->process.journal, &head, &config, sizeof config, NULL, 0);
}

static void
refused(struct supervisor *s, uint32_t generation, const char *text)
{
	char quoted[600];

	log_quote(quoted, sizeof quoted, text, (unsigned)strlen(text));
	log_error("reload generation=%u: refused, generation %u serves on: %s", generation,
		  s->reload.serving, quoted);
	snprintf(s->roster.head->last_error, sizeof s->roster.head->last_error, "%.511s",
		 text);
	atomic_store_explicit(&s->roster.head->last_reload_ok, 0, memory_order_release);
	supervisor_roster_touch(s);
	count_add(&s->process, COUNTER_reloads_refused, 1);
	generation_note(s, generation, false, text);
	control_reloaded(s, false, s->reload.serving, text);
}

/* ---- one function per action ---- */

/* What was read and the models made of it become a generation. */
static void
load_finish(struct supervisor *s, struct reload_event *ret)
{
	struct config *c = NULL, *shown = generation_shown(s);
	struct manifest *manifest = s->loading.manifest;
	struct secret_files *files = s->loading.files;
	char text[4096] = "";
	uint32_t generation = s->last_generation + 1, of = s->loading.of;
	int r;

	*ret = (struct reload_event){.type = RELOAD_NOT_LOADED};
	s->loading = (struct loading){.manifest = NULL};
	if (s->reload.serving != 0 && orders_frozen(s, text, sizeof text)) {
		manifest_free(&manifest);       /* frozen while its models were made */
		secrets_files_free(&files);
		refused(s, generation, text);
		return;
	}
	r = members_take(s, &manifest);
	for (unsigned i = 0; i < CONFIGS_MAX && !c && r == 0; i++)
		if (!s->config[i].generation)
			c = &s->config[i];
	if (r == 0)
		r = c ? config_create(&c->seg, manifest, generation) : -ENOSPC;
	if (r == 0) {
		c->generation = generation;
		c->manifest = manifest;
		c->of = of;
		r = secrets_share(s, c, files);
		if (r == 0)
			r = models_share(s, c);
		if (r == 0)
			r = shares_add(s, &c->seg, SEGMENT_CONFIG, ROLE_SUPERVISOR, 0, 0,
				       generation);
		if (r == 0)
			r = fleet_add(s, manifest);
		if (r == 0)
			r = tenants_name(s, manifest, generation);
	}
	secrets_files_free(&files);
	if (r < 0) {
		snprintf(text, sizeof text, "cannot make the new generation: %s", strerror(-r));
		if (c && c->generation)
			config_drop(s, c);
		else
			manifest_free(&manifest);
		if (shown)
			fleet_commit(s, shown->manifest);
		refused(s, generation, text);
		return;
	}
	models_text(c, text, sizeof text);
	warn_lines(generation, text);
	if (shown) {
		restart_text(shown->manifest, manifest, text, sizeof text);
		warn_lines(generation, text);
	}
	s->last_generation = generation;
	*ret = (struct reload_event){
		.type = RELOAD_LOADED, .generation = generation,
		.settings = {.standby = manifest->gateway.policy_standby,
			     .probation_ns = manifest->gateway.policy_probation_ns,
			     .load_deadline_ns = manifest->gateway.policy_load_deadline_ns},
	};
}

/* False: the answer comes when the models are made (generation_models). */
static bool
do_load(struct supervisor *s, struct reload_event *ret)
{
	const struct past *past = NULL;
	char text[4096] = "";
	uint32_t generation = s->last_generation + 1, of = 0;
	int r = 0;

	*ret = (struct reload_event){.type = RELOAD_NOT_LOADED};
	s->last_failed[0] = 0;
	control_reloading(s);
	configs_sweep(s);
	pm_background(0, true);         /* reading and checking need not be felt by requests */
	if (s->back && !(past = past_find(s, s->back_to, &of, text, sizeof text)))
		r = -ENOENT;
	s->back = false;
	if (r == 0)
		r = files_load(s, past, &s->loading.manifest, &s->loading.files, text, sizeof text);
	s->loading.of = of;
	pm_background(0, false);
	if (r < 0) {
		s->loading = (struct loading){.manifest = NULL};
		refused(s, generation, text);
		return true;
	}
	warn_lines(generation, text);
	if (models_want(s, s->loading.manifest)) {
		if (s->reload.serving != 0)
			return false;
		models_wait(s);
	}
	load_finish(s, ret);
	return true;
}

void
generation_models(struct supervisor *s)
{
	struct reload_event e;

	if (!s->loading.manifest)
		return;
	load_finish(s, &e);
	generation_event(s, &e);
}

/* Its documents are everybody's now; known: they were born with them. */
static void
in_force(struct supervisor *s, uint32_t generation, bool known)
{
	struct config *c = generation_config(s, generation);
	struct roster_header *head = s->roster.head;

	log_set_generation(generation);
	if (!known)
		shares_announce_config(s, generation);
	if (c) {
		fleet_commit(s, c->manifest);
		head->config_hash = manifest_hash(c->manifest);
		head->revision = c->manifest->revision;
	}
	head->committed = clock_wall();
	atomic_store_explicit(&head->generation, generation, memory_order_release);
	supervisor_roster_touch(s);
}

static void
do_serving(struct supervisor *s, uint32_t generation, uint32_t old)
{
	char text[4096] = "";
	const struct config *was = generation_config(s, old);
	const struct config *is = generation_config(s, generation);

	log_info("generation: %u -> %u, every ingress has acknowledged", old, generation);
	in_force(s, generation, old == 0);
	if (is)
		past_note(s, is, old == 0 ? CAME_START : is->of ? CAME_ROLLBACK : CAME_RELOAD,
			  is->of);
	atomic_store_explicit(&s->roster.head->last_reload_ok, 1, memory_order_release);
	s->roster.head->last_error[0] = 0;
	count_add(&s->process, COUNTER_reloads, 1);
	generation_note(s, generation, true, "in force");
	if (is)
		models_text(is, text, sizeof text);
	if (was && is) {
		size_t n = strlen(text);

		if (n > 0 && n + 1 < sizeof text)
			text[n++] = '\n';
		restart_text(was->manifest, is->manifest, text + n, sizeof text - n);
		if (n > 0 && text[n] == 0)
			text[n - 1] = 0;
	}
	control_reloaded(s, true, generation, text);
	models_sweep(s);
}

static void
do_refuse(struct supervisor *s, const struct reload_action *a)
{
	struct config *shown = generation_shown(s), *c = generation_config(s, a->generation);
	char text[700];

	snprintf(text, sizeof text, "%s%s%s", a->why, s->last_failed[0] ? ": " : "",
		 s->last_failed);
	if (s->reload.serving == 0) {
		log_error("start: the first configuration did not come up: %s", text);
		supervisor_stop(s, 78);
		return;
	}
	refused(s, a->generation, text);
	if (shown)
		fleet_commit(s, shown->manifest);       /* rows only it named drain */
	if (c && c != shown)
		config_drop(s, c);
}

static void
do_rolled_back(struct supervisor *s, uint32_t generation)
{
	const struct config *c = generation_config(s, generation);
	char text[700];

	snprintf(text, sizeof text,
		 "rolled back to generation %u: its policy processes died in probation%s%s",
		 generation, s->last_failed[0] ? ": " : "", s->last_failed);
	log_error("generation: -> %u, %s", generation, text);
	in_force(s, generation, false);
	if (c)
		past_note(s, c, CAME_PROBATION, generation);
	snprintf(s->roster.head->last_error, sizeof s->roster.head->last_error, "%.511s",
		 text);
	atomic_store_explicit(&s->roster.head->last_reload_ok, 0, memory_order_release);
	count_add(&s->process, COUNTER_rollbacks, 1);
	generation_note(s, generation, false, text);
	control_reloaded(s, false, generation, text);   /* who still waits for the switch */
	configs_sweep(s);
}

static void
to_ingress(struct supervisor *s, const struct reload_action *a)
{
	struct child *c = child_find(s, a->ingress);

	if (!c)
		return;
	if (a->type == RELOAD_DO_ACTIVATE) {
		struct msg_activate m = {.policy_gen = a->generation, .policy_inc = a->policy};

		log_info("activate ingress=%u policy=%u generation=%u", c->index, a->policy,
			 a->generation);
		child_send(s, c, MSG_activate, &m, -1);
	} else if (a->type == RELOAD_DO_STANDBY) {
		struct msg_standby m = {.policy_gen = a->generation, .policy_inc = a->policy};

		child_send(s, c, MSG_standby, &m, -1);
	} else {
		child_kill(c, a->why);
	}
}

static void
to_policy(struct supervisor *s, const struct reload_action *a)
{
	struct child *c = child_find(s, a->policy);

	if (!c)
		return;
	if (a->type == RELOAD_DO_OPEN) {
		struct msg_open m = {.policy_gen = a->generation};

		log_info("open policy=%u generation=%u: every live ingress asks it", a->policy,
			 a->generation);
		child_together(s, c);
		child_send(s, c, MSG_open, &m, -1);
	} else if (a->type == RELOAD_DO_DRAIN) {
		child_drain(s, c, clock_mono() + POLICY_DRAIN_NS);
	} else {
		child_kill(c, a->why);
	}
}

/* Performs one action; true: it has an answer for the machine, in ret. */
static bool
perform(struct supervisor *s, const struct reload_action *a, struct reload_event *ret)
{
	switch (a->type) {
	case RELOAD_DO_LOAD:
		return do_load(s, ret);
	case RELOAD_DO_SPAWN:
		if (child_spawn(s, ROLE_POLICY, 0, a->policy, a->generation) == 0)
			return false;
		*ret = (struct reload_event){.type = RELOAD_POLICY_GONE, .policy = a->policy};
		return true;
	case RELOAD_DO_ACTIVATE:
	case RELOAD_DO_STANDBY:
	case RELOAD_DO_KILL_INGRESS:
		to_ingress(s, a);
		break;
	case RELOAD_DO_OPEN:
	case RELOAD_DO_DRAIN:
	case RELOAD_DO_KILL_POLICY:
		to_policy(s, a);
		break;
	case RELOAD_DO_SERVING:
		do_serving(s, a->generation, a->old);
		break;
	case RELOAD_DO_REFUSE:
		do_refuse(s, a);
		break;
	case RELOAD_DO_ROLLED_BACK:
		do_rolled_back(s, a->generation);
		break;
	case RELOAD_DO_SETTLED:
		log_info("generation %u: probation -> settled", a->generation);
		configs_sweep(s);
		break;
	}
	return false;
}

void
generation_policy_roster(struct supervisor *s)
{
	const struct reload *m = &s->reload;
	uint32_t standby = reload_standby(m);

	for (unsigned i = 0; i < CHILDREN_MAX; i++) {
		struct child *c = s->child[i];

		if (!c || c->role != ROLE_POLICY || c->state == ROSTER_STARTING ||
		    c->state == ROSTER_DRAINING)
			continue;
		child_state(s, c, c->incarnation == m->want && m->settled ? ROSTER_ACTIVE :
				  c->incarnation == standby ? ROSTER_STANDBY : ROSTER_READY);
	}
	if (atomic_load_explicit(&s->roster.head->reload, memory_order_relaxed) !=
	    (uint32_t)m->state) {
		log_info("reload: %s -> %s",
			 reload_state_name((enum reload_state)atomic_load_explicit(
				 &s->roster.head->reload, memory_order_relaxed)),
			 reload_state_name(m->state));
		atomic_store_explicit(&s->roster.head->reload, (uint32_t)m->state,
				      memory_order_release);
		supervisor_roster_touch(s);
	}
}

void
generation_event(struct supervisor *s, const struct reload_event *event)
{
	struct reload_event queue[EVENTS_MAX] = {*event};
	struct reload_actions actions;
	unsigned n = 1;

	if (s->draining)
		return;                 /* everybody goes; nobody replaces anybody */
	/* Actions never hear or reap, so no event comes in between but the answers kept here. */
	for (unsigned i = 0; i < n && !s->draining; i++) {
		reload_step(&s->reload, clock_mono(), &queue[i], &actions);
		for (unsigned k = 0; k < actions.n; k++)
			if (n < EVENTS_MAX && perform(s, &actions.list[k], &queue[n]))
				n++;
	}
	if (!s->reload.want)
		children_hurry(s);
	generation_policy_roster(s);
}

bool
generation_want(struct supervisor *s, bool back, uint32_t to, char *text, size_t cap)
{
	uint32_t generation;

	if (orders_frozen(s, text, cap)) {
		refused(s, s->last_generation + 1, text);
		return false;
	}
	if (back && !past_find(s, to, &generation, text, cap))
		return false;
	if (s->reload.pending && (s->back != back || s->back_to != to)) {
		snprintf(text, cap, "another reload waits for its turn already: ask again when it "
			 "is over");
		return false;
	}
	s->back = back;
	s->back_to = to;
	generation_event(s, &(struct reload_event){.type = RELOAD_WANTED});
	return true;
}

void
generation_stop(struct supervisor *s)
{
	char text[512];

	if (!orders_frozen(s, text, sizeof text))
		return;
	control_stopped(s, text);
	s->back = false;
	generation_event(s, &(struct reload_event){.type = RELOAD_STOP});
}

int
generation_check(struct supervisor *s, bool back, uint32_t to, char *buf, size_t cap)
{
	const struct config *shown = generation_shown(s);
	struct secret_files *files = NULL;
	const struct past *past = NULL;
	struct manifest *is = NULL;
	char warnings[4096];
	uint32_t of;
	size_t n;
	int r;

	if (back && !(past = past_find(s, to, &of, buf, cap)))
		return -ENOENT;
	r = files_load(s, past, &is, &files, buf, cap);
	if (r < 0)
		return r;
	secrets_files_free(&files);
	if (buf[0]) {
		snprintf(warnings, sizeof warnings, "%s", buf);
		warn_lines(s->reload.serving, warnings);
	}
	buf[0] = 0;
	r = members_known(s, &is);
	if (r == 0 && shown) {
		n = difference(shown->manifest, is, buf, cap);
		if (n + 1 < cap)
			restart_text(shown->manifest, is, buf + n, cap - n);
	}
	if (r < 0)
		snprintf(buf, cap, "cannot take the members that were found: %s", strerror(-r));
	manifest_free(&is);
	return r;
}

void
generation_close(struct supervisor *s)
{
	manifest_free(&s->loading.manifest);
	secrets_files_free(&s->loading.files);
	for (unsigned i = 0; i < CONFIGS_MAX; i++)
		if (s->config[i].generation)
			config_drop(s, &s->config[i]);
}
