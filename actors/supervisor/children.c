/* actors/supervisor/children.c -- birth, watch and death of the other processes.
 *
 * A child is exec'd with one end of a SOCK_SEQPACKET pair as descriptor 3 and nothing else of ours,
 * in the run directory; whatever it may use comes over that pair (birth.h).  It is meant to survive
 * us: no parent-death signal; our successor finds it in <run>/pids.
 */
#include "actors/supervisor/supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "actors/common/background.h"
#include "actors/common/birth.h"
#include "actors/common/rights.h"

#define MS 1000000ull
#define READY_DEADLINE_NS (10000 * MS)  /* policy has its own: policyProcess.loadDeadline */
#define DRAIN_GRACE_NS  (1000 * MS)     /* past a drain's deadline */
#define HUNG_ASKED_NS   (2000 * MS)     /* asked policy process: no heartbeat and questions open */
#define HUNG_FRONT_NS   (5000 * MS)     /* policy, ingress: no heartbeat; a reload waits for them */
#define HUNG_NS         (15000 * MS)    /* the others: requests go on without them */
#define CLOSED_NS       (2000 * MS)     /* from closing its socket to its death */
#define OWED_MOST_NS    (500 * MS)      /* in a storm of reloads there is no calm */
#define JOURNAL_BIG     (4u << 20)      /* policy: decisions; ingress: outcomes */
#define JOURNAL_SMALL   (64u << 10)

struct child *
child_find(struct supervisor *s, uint32_t incarnation)
{
	for (unsigned i = 0; incarnation && i < CHILDREN_MAX; i++)
		if (s->child[i] && s->child[i]->incarnation == incarnation)
			return s->child[i];
	return NULL;
}

void
supervisor_roster_touch(struct supervisor *s)
{
	atomic_fetch_add_explicit(&s->roster.head->version, 1, memory_order_release);
}

void
child_state(struct supervisor *s, struct child *c, enum roster_state state)
{
	struct roster_entry *e;

	if (c->state == state)
		return;
	log_info("process role=%s index=%u incarnation=%u pid=%d generation=%u: %s -> %s",
		 process_role_name(c->role), c->index, c->incarnation, (int)c->pid, c->generation,
		 roster_state_name(c->state), roster_state_name(state));
	c->state = state;
	if (c->roster_slot >= ROSTER_MAX)
		return;
	e = &s->roster.entry[c->roster_slot];
	e->since_ns = clock_mono();
	atomic_store_explicit(&e->state, state == ROSTER_GONE ? ROSTER_EMPTY : state,
			      memory_order_release);
	supervisor_roster_touch(s);
}

static void
roster_enter(struct supervisor *s, struct child *c, const struct seat *seat)
{
	c->roster_slot = ROSTER_MAX;
	for (unsigned i = 0; i < ROSTER_MAX; i++) {
		struct roster_entry *e = &s->roster.entry[i];

		if (atomic_load_explicit(&e->state, memory_order_relaxed) != ROSTER_EMPTY)
			continue;
		c->roster_slot = i;
		e->role = (uint16_t)c->role;
		e->index = (uint16_t)c->index;
		e->incarnation = c->incarnation;
		e->generation = c->generation;
		e->pid = (uint32_t)c->pid;
		e->restarts = seat ? seat->restarts : 0;
		snprintf(e->last_exit, sizeof e->last_exit, "%s", seat ? seat->last_exit : "");
		return;
	}
}

/* ---- birth ---- */

static void
child_free(struct supervisor *s, struct child *c)
{
	shares_drop(s, c->incarnation);
	if (c->sock >= 0)
		close(c->sock);
	if (c->pidfd >= 0)
		close(c->pidfd);
	outbox_clear(&c->out);
	process_detach(&c->process);
	if (c->role == ROLE_INGRESS) {
		limits_column_leave(&s->limits, c->incarnation); /* one that never began, too */
		column_detach(&c->column);
		slots_detach(&c->slots);
		arena_detach(&c->arena);
	}
	for (unsigned i = 0; i < CHILDREN_MAX; i++)
		if (s->child[i] == c)
			s->child[i] = NULL;
	free(c);
}

static int
segments_make(struct supervisor *s, struct child *c)
{
	bool big = c->role == ROLE_POLICY || c->role == ROLE_INGRESS;
	const struct manifest_gateway *g = &generation_shown(s)->manifest->gateway;
	int r;

	r = process_create(&c->process, c->role, c->index, c->incarnation, c->generation,
			   big ? JOURNAL_BIG : JOURNAL_SMALL);
	if (r == 0)
		r = shares_add(s, &c->process.seg, SEGMENT_PROCESS, c->role, c->index,
			       c->incarnation, c->generation);
	if (r < 0 || c->role != ROLE_INGRESS)
		return r;
	r = column_create(&c->column, c->index, c->incarnation, s->rows.capacity);
	if (r == 0)
		poison_copy(&c->column.head->poison, &s->poison, clock_mono());
	if (r == 0)
		r = shares_add(s, &c->column.seg, SEGMENT_COLUMN, c->role, c->index, c->incarnation,
			       0);
	if (r == 0)
		r = slots_create(&c->slots, c->index, c->incarnation, g->limits.slots);
	if (r == 0)
		r = shares_add(s, &c->slots.seg, SEGMENT_SLOTS, c->role, c->index, c->incarnation,
			       0);
	if (r == 0)
		r = arena_create(&c->arena, c->index, c->incarnation, g->limits.arena_bytes);
	if (r == 0)
		r = shares_add(s, &c->arena.seg, SEGMENT_ARENA, c->role, c->index, c->incarnation,
			       0);
	if (r == 0)
		r = limits_column_take(&s->limits, c->incarnation);
	if (r == 0)
		atomic_store_explicit(&c->column.head->alive, 1, memory_order_release);
	return r;
}

static void
peer_send(struct supervisor *s, struct child *to, const struct child *c)
{
	struct msg_peer m = {.role = (uint8_t)c->role,
			     .index = c->index,
			     .incarnation = c->incarnation,
			     .generation = c->generation,
			     .pid = (uint32_t)c->pid};

	child_send(s, to, MSG_peer, &m, c->pidfd);
}

static bool
ready(const struct child *c)
{
	return c->state == ROSTER_READY || c->state == ROSTER_ACTIVE || c->state == ROSTER_STANDBY;
}

static void
birth(struct supervisor *s, struct child *c)
{
	struct msg_birth b = {
		.abi = MESSAGES_ABI, .role = (uint8_t)c->role, .index = c->index,
		.incarnation = c->incarnation, .generation = c->generation,
		.run_dir = slice_str("."), .log_level = (uint8_t)s->options.level,
		.background = c->role == ROLE_POLICY && s->reload.want != 0,
		.rights = s->options.rights,
	};
	bool tells = c->role == ROLE_KVEVENTS || c->role == ROLE_INGRESS || c->role == ROLE_METRICS;

	if (c->role == ROLE_POLICY)
		b.token = token_of(s->key, c->generation, c->incarnation);
	if (c->role == ROLE_ADMIN || c->role == ROLE_KVEVENTS)
		b.token = s->look;
	if (c->role == ROLE_INGRESS)
		b.key = (struct slice){(const char *)s->key, sizeof s->key};
	if (tells)
		b.note = s->note;

	child_send(s, c, MSG_birth, &b, -1);
	shares_send_all(s, c);
	for (unsigned i = 0; c->role == ROLE_INGRESS && i < s->n_listeners; i++) {
		struct msg_listener m = {.index = s->listener[i].index,
					 .address = slice_str(s->listener[i].address),
					 .tls = s->listener[i].tls};

		child_send(s, c, MSG_listener, &m, s->listener[i].fd);
	}
	for (unsigned i = 0; c->role == ROLE_INGRESS && i < CHILDREN_MAX; i++)
		if (s->child[i] && s->child[i]->role == ROLE_POLICY && ready(s->child[i]))
			peer_send(s, c, s->child[i]);
	child_send(s, c, MSG_go, &(struct msg_go){0}, -1);
}

int
child_spawn(struct supervisor *s, enum process_role role, uint32_t index, uint32_t incarnation,
	    uint32_t generation)
{
	struct child *c = NULL;
	int r;

	for (unsigned i = 0; i < CHILDREN_MAX && !c; i++) {
		if (s->child[i])
			continue;
		c = s->child[i] = calloc(1, sizeof *c);
		if (!c)
			return -ENOMEM;
	}
	if (!c)
		return -ENOSPC;
	*c = (struct child){
		.role = role, .index = index, .incarnation = incarnation, .generation = generation,
		.pidfd = -1, .sock = -1, .born_ns = clock_mono(), .roster_slot = ROSTER_MAX,
		.process.seg.fd = -1, .column.seg.fd = -1, .slots.seg.fd = -1, .arena.seg.fd = -1,
	};
	r = segments_make(s, c);
	if (r == 0 && !(role == ROLE_POLICY && unborn_take(s, &c->pid, &c->pidfd, &c->sock)))
		r = program_start(s, role, role == ROLE_POLICY && s->reload.want != 0, &c->pid,
				  &c->pidfd, &c->sock);
	c->start_ticks = r == 0 ? process_start_ticks((uint32_t)c->pid) : 0;
	if (r < 0) {
		log_error("process role=%s index=%u: not born, error=\"%s\"",
			  process_role_name(role), index, strerror(-r));
		child_free(s, c);
		return r;
	}
	rundir_note_pids(s);
	roster_enter(s, c, role == ROLE_POLICY ? &s->policies : seat_of(s, role, index));
	child_state(s, c, ROSTER_STARTING);
	birth(s, c);
	shares_announce_owner(s, incarnation);
	return 0;
}

/* ---- words to it ---- */

void
child_send(struct supervisor *s, struct child *c, enum msg_id id, const void *msg, int fd)
{
	int r = outbox_send(&c->out, c->sock, id, msg, fd);

	(void)s;
	if (r == -ENOBUFS)
		child_kill(c, "does not read its messages");
	else if (r < 0 && r != -EPIPE && r != -ECONNRESET)      /* those: its death will be told */
		log_error("send role=%s incarnation=%u message=%s error=\"%s\"",
			  process_role_name(c->role), c->incarnation, msg_name(id), strerror(-r));
}

void
child_together(struct supervisor *s, const struct child *c)
{
	unsigned ingresses = 0;

	for (unsigned i = 0; i < s->n_seats; i++)
		ingresses += s->seat[i].role == ROLE_INGRESS;
	if (ingresses == 1)
		pm_together(c->pid);
}

bool
children_calm(const struct supervisor *s)
{
	if (s->reload.state == RELOAD_LOADING || s->reload.state == RELOAD_SWITCHING)
		return false;
	for (unsigned i = 0; i < CHILDREN_MAX; i++)
		if (s->child[i] && s->child[i]->role == ROLE_POLICY &&
		    (s->child[i]->state == ROSTER_STARTING ||
		     s->child[i]->state == ROSTER_DRAINING))
			return false;
	return true;
}

void
children_hurry(struct supervisor *s)
{
	for (unsigned i = 0; i < CHILDREN_MAX; i++)
		if (s->child[i] && s->child[i]->role == ROLE_POLICY &&
		    s->child[i]->state == ROSTER_STARTING)
			pm_background(s->child[i]->pid, false);
}

void
children_broadcast(struct supervisor *s, enum msg_id id, const void *msg)
{
	for (unsigned i = 0; i < CHILDREN_MAX; i++)
		if (s->child[i])
			child_send(s, s->child[i], id, msg, -1);
	control_broadcast(s, id, msg);
}

void
child_kill(struct child *c, const char *why)
{
	if (c->killed)
		return;
	c->killed = true;
	c->kill_why = why;
	log_warn("process role=%s index=%u incarnation=%u pid=%d: killing, because it %s",
		 process_role_name(c->role), c->index, c->incarnation, (int)c->pid, why);
	if (c->pidfd >= 0)
		pidfd_send_signal(c->pidfd, SIGKILL, NULL, 0);
	else
		kill(c->pid, SIGKILL);  /* not reaped yet: the number is still its own */
}

void
child_drain(struct supervisor *s, struct child *c, mono_ns deadline)
{
	struct msg_drain m = {.deadline = deadline};

	if (c->drain_ns)
		return;
	c->drain_ns = deadline;
	if (c->state == ROSTER_STARTING) {
		child_kill(c, "was still starting when asked to end");
		return;
	}
	child_state(s, c, ROSTER_DRAINING);
	child_send(s, c, MSG_drain, &m, -1);
}

/* ---- words from it ---- */

static void
on_ready(struct supervisor *s, struct child *c)
{
	struct reload_event e = {.ingress = c->incarnation, .policy = c->incarnation};

	if (c->state != ROSTER_STARTING)
		return;
	c->ready_ns = clock_mono();
	child_state(s, c, ROSTER_READY);
	if (c->role == ROLE_INGRESS)
		child_together(s, c);
	for (unsigned i = 0; c->role == ROLE_POLICY && i < CHILDREN_MAX; i++)
		if (s->child[i] && s->child[i]->role == ROLE_INGRESS)
			peer_send(s, s->child[i], c);
	if (c->role == ROLE_INGRESS || c->role == ROLE_POLICY) {
		e.type = c->role == ROLE_INGRESS ? RELOAD_INGRESS_READY : RELOAD_POLICY_READY;
		generation_event(s, &e);
	}
	seat_ready(s, c);
}

static void
on_failed(struct supervisor *s, struct child *c, const struct msg_failed *m)
{
	char file[200], text[300];

	c->failed = true;
	log_quote(file, sizeof file, m->file.p, (unsigned)m->file.len);
	log_quote(text, sizeof text, m->text.p, (unsigned)m->text.len);
	if (m->line)
		snprintf(c->failed_text, sizeof c->failed_text, "%.*s:%u:%u: %.*s",
			 (int)(m->file.len < 150 ? m->file.len : 150), m->file.p ? m->file.p : "",
			 m->line, m->column, (int)(m->text.len < 200 ? m->text.len : 200),
			 m->text.p ? m->text.p : "");
	else
		snprintf(c->failed_text, sizeof c->failed_text, "%.*s",
			 (int)(m->text.len < 300 ? m->text.len : 300), m->text.p ? m->text.p : "");
	log_error("process role=%s index=%u incarnation=%u: failed file=%s line=%u column=%u "
		  "text=%s", process_role_name(c->role), c->index, c->incarnation, file, m->line,
		  m->column, text);
	if (c->role == ROLE_POLICY) {
		snprintf(s->last_failed, sizeof s->last_failed, "%s", c->failed_text);
		generation_event(s, &(struct reload_event){.type = RELOAD_POLICY_FAILED,
							   .policy = c->incarnation});
	}
}

/* By messages.def: who says it, and is it said to us? */
static bool
may_say(enum process_role role, enum msg_id id)
{
	static const uint8_t from[MSG_ID_MAX] = {
#define ROLE_ANY ROLE_COUNT
#define MSG(number, name, says, hears, doc) \
		[number] = ROLE_##hears == ROLE_SUPERVISOR ? ROLE_##says : ROLE_NONE,
#include "proto/messages.def"
	};

	return from[id] == ROLE_ANY || from[id] == role;
#undef ROLE_ANY
}

static void
on_message(struct supervisor *s, struct child *c, const struct msg *m)
{
	struct reload_event e = {.ingress = c->incarnation};

	if (!may_say(c->role, m->id)) {
		count_add(&s->process, COUNTER_messages_refused, 1);
		return;
	}
	switch (m->id) {
	case MSG_ready:
		on_ready(s, c);
		return;
	case MSG_failed:
		on_failed(s, c, &m->u.failed);
		return;
	case MSG_bye:
		c->bye = true;
		return;
	case MSG_reachable:
		e.type = RELOAD_REACHABLE;
		e.policy = m->u.reachable.policy_inc;
		break;
	case MSG_active:
		/* If it moved because a process died, hear of that death first: reload.h rule 3. */
		children_reap(s);
		if (child_find(s, e.ingress) != c)
			return;                 /* it was its own */
		e.type = RELOAD_ACTIVE;
		e.policy = m->u.active.policy_inc;
		break;
	case MSG_hole:
		e.type = RELOAD_HOLE;
		e.policy = m->u.hole.policy_inc;
		break;
	default:
		count_add(&s->process, COUNTER_messages_unknown, 1);
		return;
	}
	if (c->role != ROLE_INGRESS)
		return;
	generation_event(s, &e);
	if (e.type == RELOAD_ACTIVE && e.policy != 0)
		seat_active(s, c);
}

/* Whatever it said, up to the end of what is there.  Never frees c. */
static void
hear(struct supervisor *s, struct child *c, bool dying)
{
	char buf[65536];
	struct msg m;
	bool carried;

	for (unsigned n = 0; n < 256 || dying; n++) {   /* others wait too */
		int r = msg_receive_only(c->sock, &m, buf, sizeof buf, &carried);

		if (carried)            /* children have nothing to pass to us */
			count_add(&s->process, COUNTER_descriptors_refused, 1);
		if (r == -EPIPE)
			c->closed_ns = c->closed_ns ? c->closed_ns : clock_mono();
		if (r == -EBADMSG || r == -EMSGSIZE) {
			count_add(&s->process, COUNTER_messages_unknown, 1);
			continue;
		}
		if (r <= 0)
			return;
		if (!dying) {
			uint32_t incarnation = c->incarnation;

			on_message(s, c, &m);
			if (child_find(s, incarnation) != c)
				return;         /* reaped on the way */
		} else if (m.id == MSG_failed && !c->failed) {
			on_failed(s, c, &m.u.failed);
		} else if (m.id == MSG_bye) {
			c->bye = true;
		}
	}
}

void
child_read(struct supervisor *s, struct child *c)
{
	hear(s, c, false);
}

/* ---- death ---- */

static void
exit_text(const struct child *c, int status, char *buf, size_t cap)
{
	char panic[PANIC_MAX + 1], quoted[PANIC_MAX];
	size_t n;

	memcpy(panic, c->process.head->panic, PANIC_MAX);
	panic[PANIC_MAX] = 0;
	if (WIFSIGNALED(status))
		n = (size_t)snprintf(buf, cap, "signal %d (%s)", WTERMSIG(status),
				     strsignal(WTERMSIG(status)));
	else
		n = (size_t)snprintf(buf, cap, "exit %d", WEXITSTATUS(status));
	if (c->kill_why && n < cap)
		n += (size_t)snprintf(buf + n, cap - n, ", killed because it %s", c->kill_why);
	if (c->failed && n < cap)
		n += (size_t)snprintf(buf + n, cap - n, ", %s", c->failed_text);
	if (panic[0] && n < cap) {
		log_quote(quoted, sizeof quoted, panic, (unsigned)strlen(panic));
		snprintf(buf + n, cap - n, ", panic %s", quoted);
	}
}

/* What a dead ingress leaves: readers must see nothing in flight there. */
static void
ingress_clean(struct supervisor *s, struct child *c)
{
	char path[160];

	poison_copy(&s->poison, &c->column.head->poison, clock_mono());
	column_clear(&c->column);
	limits_refund(&s->limits, &c->slots);
	limits_column_leave(&s->limits, c->incarnation);
	slots_clear(&c->slots);
	snprintf(path, sizeof path, "%s/ingress/policy.%u.%u.sock", s->options.run_dir, c->index,
		 c->incarnation);
	unlink(path);
}

/* A request may make its policy process crash or hang; nobody else's request is to blame for what
 * an operator, or the kernel for want of memory, ends. */
static enum gone_cause
gone_cause(const struct child *c, int status)
{
	if (c->killed)
		return GONE_CRASHED;
	if (WIFEXITED(status))
		return WEXITSTATUS(status) == 0 ? GONE_ENDED : GONE_CRASHED;
	switch (WTERMSIG(status)) {
	case SIGKILL:
	case SIGTERM:
	case SIGINT:
	case SIGHUP:
		return GONE_KILLED;
	default:
		return GONE_CRASHED;
	}
}

static void
bury(struct supervisor *s, struct child *c, int status)
{
	struct msg_gone gone = {.role = (uint8_t)c->role, .index = c->index,
				.incarnation = c->incarnation,
				.cause = (uint8_t)gone_cause(c, status)};
	struct reload_event e = {.ingress = c->incarnation, .policy = c->incarnation};
	bool clean = WIFEXITED(status) && WEXITSTATUS(status) == 0 && c->drain_ns;
	char why[512];

	hear(s, c, true);
	exit_text(c, status, why, sizeof why);
	if (clean)
		log_info("process role=%s index=%u incarnation=%u pid=%d: ended as asked, %s",
			 process_role_name(c->role), c->index, c->incarnation, (int)c->pid, why);
	else
		log_error("process role=%s index=%u incarnation=%u pid=%d generation=%u: died, %s",
			  process_role_name(c->role), c->index, c->incarnation, (int)c->pid,
			  c->generation, why);
	if (c->role == ROLE_POLICY && !clean && !c->failed)
		snprintf(s->last_failed, sizeof s->last_failed, "policy process %u: %.480s",
			 c->incarnation, why);
	if (c->role == ROLE_POLICY && !clean) {
		s->policies.restarts++;
		snprintf(s->policies.last_exit, sizeof s->policies.last_exit, "%.127s", why);
		count_add(&s->process, COUNTER_children_restarted, 1);
	}
	child_state(s, c, ROSTER_GONE);
	e.type = c->role == ROLE_INGRESS ? RELOAD_INGRESS_GONE : RELOAD_POLICY_GONE;
	seat_left(s, c, why);
	shares_flush_owner(s, c->incarnation);  /* it may have lived for less than a switch */
	for (unsigned i = 0; i < CHILDREN_MAX; i++)     /* before its column is zeroed */
		if (s->child[i] && s->child[i] != c)
			child_send(s, s->child[i], MSG_gone, &gone, -1);
	control_broadcast(s, MSG_gone, &gone);
	if (c->role == ROLE_INGRESS)
		ingress_clean(s, c);
	bool told = c->role == ROLE_INGRESS || c->role == ROLE_POLICY;
	child_free(s, c);
	rundir_note_pids(s);
	if (told)
		generation_event(s, &e);
}

void
children_reap(struct supervisor *s)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		unborn_reaped(s, pid);
		models_reaped(s, pid);
		for (unsigned i = 0; i < CHILDREN_MAX; i++)
			if (s->child[i] && s->child[i]->pid == pid) {
				bury(s, s->child[i], status);
				break;
			}
	}
}

/* Is anybody waiting for an answer?  Scans every slot: asked only when a heartbeat is late. */
static bool
questions_open(const struct supervisor *s)
{
	for (unsigned k = 0; k < CHILDREN_MAX; k++) {
		const struct child *c = s->child[k];

		if (!c || c->role != ROLE_INGRESS)
			continue;
		for (uint32_t i = 1; i <= c->slots.capacity; i++)
			if (slot_state(atomic_load_explicit(&c->slots.slot[i].word,
							    memory_order_relaxed)) == SLOT_ASKED)
				return true;
	}
	return false;
}

static void
watch(const struct supervisor *s, struct child *c, mono_ns now)
{
	bool front = c->role == ROLE_POLICY || c->role == ROLE_INGRESS;
	mono_ns beat;

	if (c->killed)
		return;
	if (c->closed_ns && !c->drain_ns && now > c->closed_ns + CLOSED_NS) {
		child_kill(c, "closed its supervisor's socket");
		return;
	}
	if (c->drain_ns) {
		if (now > c->drain_ns + DRAIN_GRACE_NS)
			child_kill(c, "did not end by its drain deadline");
		return;
	}
	if (c->state == ROSTER_STARTING) {
		if (c->role != ROLE_POLICY && now > c->born_ns + READY_DEADLINE_NS)
			child_kill(c, "was not ready within 10 s");
		return;
	}
	beat = atomic_load_explicit(&c->process.seg.head->heartbeat_ns, memory_order_relaxed);
	if (beat < c->ready_ns)
		beat = c->ready_ns;
	if (now > beat + (front ? HUNG_FRONT_NS : HUNG_NS))
		child_kill(c, "gave no heartbeat");
	else if (c->state == ROSTER_ACTIVE && now > beat + HUNG_ASKED_NS && questions_open(s))
		child_kill(c, "gave no heartbeat for 2 s while requests wait for it");
}

void
children_tick(struct supervisor *s, mono_ns now)
{
	for (unsigned i = 0; i < CHILDREN_MAX; i++) {
		struct child *c = s->child[i];

		if (!c)
			continue;
		watch(s, c, now);
		if (c->out.n)
			outbox_flush(&c->out, c->sock);
	}
	if (s->draining)
		return;
	seats_tick(s, now);
	if (children_calm(s)) {
		shares_flush(s, now);
		unborn_keep(s);
	} else {
		shares_flush(s, now - OWED_MOST_NS);
	}
}

mono_ns
children_next(const struct supervisor *s)
{
	for (unsigned i = 0; i < CHILDREN_MAX; i++)     /* kept frames are tried again */
		if (s->child[i] && s->child[i]->out.n)
			return 1;
	return seats_next(s);
}
