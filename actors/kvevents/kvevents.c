/* kvevents.c -- keeps the prefix index: what each worker holds, from its own events and from ours.
 *
 * Owns    the prefix index, its reverse maps and orphans (private), lines 5 - 7 of the worker table
 * Hears   events        engines      BlockStored, BlockRemoved, AllBlocksCleared; one SUB a rank
 *         replays       engines      what was missed, when asked for; a DEALER meanwhile
 *         routed proof  ingress      sent there; the engine says so many are there
 *         engine_start  metrics      its process start time moved
 *         engine_asleep metrics      its cache is empty
 *         tap           admin        tell me of this worker's events
 *         segment rows_changed       supervisor   another configuration; look at the table again
 * Says    tapped        admin        an event and what came of it; dropped rather than waited for
 *         ready failed bye           supervisor
 * Dies    decisions go on with the index as it stands, marked stale by its heartbeat; the successor
 *         keeps what it can keep true (apply.h "Crash") and goes on at the next event
 */
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "actors/common/attach.h"
#include "actors/kvevents/apply.h"
#include "actors/kvevents/door.h"
#include "actors/kvevents/intake.h"
#include "actors/kvevents/replay.h"
#include "actors/kvevents/subscriber.h"
#include "actors/kvevents/tap.h"

#define TICK_MS 100u
#define JOIN_NS 300000000ull /* an engine that is up answers the handshake in a round trip */
#define NOTES 256u /* notes a turn before others are looked at */
#define NOTE_QUEUE 65536
#define KEPT_BYTES (32u << 20) /* freed messages that malloc keeps: a burst's worth */
#define LARGE_BYTES (4u << 20) /* a message that is mapped for itself */
#define DESCRIPTORS_A_ROW 4u /* two sockets, each of libzmq's own and its connection's */
#define DESCRIPTORS_MORE 256u

struct follow { /* what we listen to, per row */
	struct kvevents *me;
	struct subscriber *subscriber; /* owned; NULL: publishes nothing, or not reachable */
	struct replay *replay;         /* owned; with the subscriber */
	char topic[MANIFEST_MODEL_MAX + 1]; /* as the subscriber was told */
	bool listening; /* its socket is watched: not while the replay holds */
	uint32_t row_gen;
	bool open;
	bool complained;
};

struct kvevents {
	unsigned magic;
#define KVEVENTS_MAGIC 0x6b76e5e7
	struct pm_actor *actor;      /* borrowed */
	struct manifest *manifest;   /* owned */
	struct rows rows;            /* owned; lines 5 - 7 ours */
	struct index_writer *writer; /* owned */
	struct apply *apply;         /* owned */
	struct follow *follow;       /* owned; by row id */
	struct replays replays;
	struct intake *intake;       /* owned; NULL: memory cannot be watched */
	zactor_t *door;              /* owned; NULL: nothing is bound yet */
	bool joined;                 /* from now on nobody waits for engines to take us in */
	zsock_t *notes;              /* owned; PULL */
	struct tap *tap;             /* owned */
};

static void
alive(struct kvevents *me)
{
	atomic_store_explicit(&index_writer_segment(me->writer)->head->heartbeat_ns, clock_mono(),
			      memory_order_relaxed);
}

/* ---- hearing engines ---- */

static void on_events(struct pm_actor *actor, void *arg);

/* The live wire is watched but while a replay holds it back. */
static void
listen_or_not(struct follow *f)
{
	bool listen = f->subscriber && !replay_holds(f->replay);

	if (listen == f->listening)
		return;
	f->listening = listen;
	if (listen)
		pm_actor_watch_socket(f->me->actor, subscriber_socket(f->subscriber), on_events, f);
	else
		pm_actor_unwatch_socket(f->me->actor, subscriber_socket(f->subscriber));
}

static void
on_events(struct pm_actor *actor, void *arg)
{
	struct follow *f = arg;

	(void)actor;
	subscriber_receive(f->subscriber);
	listen_or_not(f);
	alive(f->me);
}

static void
on_replay(struct pm_actor *actor, void *arg)
{
	struct follow *f = arg;

	(void)actor;
	replay_receive(f->replay, clock_mono());
	listen_or_not(f);
	alive(f->me);
}

static void
replay_watch(void *arg, zsock_t *sock, bool open)
{
	struct follow *f = arg;

	if (open)
		pm_actor_watch_socket(f->me->actor, sock, on_replay, f);
	else
		pm_actor_unwatch_socket(f->me->actor, sock);
}

static void
follow_stop(struct kvevents *me, struct follow *f)
{
	if (f->listening)
		pm_actor_unwatch_socket(me->actor, subscriber_socket(f->subscriber));
	f->listening = false;
	subscriber_free(&f->subscriber);
	replay_free(&f->replay);
}

static int
streams_open(struct kvevents *me, struct follow *f, uint16_t row,
	     const struct manifest_member *member)
{
	const struct manifest_set *set = &me->manifest->sets[member->set];
	struct replay_config asked = {.all = &me->replays,
				      .row = row,
				      .endpoint = member->kv_replay,
				      .watch = replay_watch,
				      .arg = f};
	struct subscriber_config heard = {.apply = me->apply,
					  .intake = me->intake,
					  .row = row,
					  .endpoint = member->kv_events,
					  .topic = set->kv_topic,
					  .host = member->url.host,
					  .to_wait = !me->joined};
	int r = replay_new(&f->replay, &asked);

	if (r < 0)
		return r;
	if (strncmp(member->kv_events, MANIFEST_BIND, strlen(MANIFEST_BIND)) == 0 && !me->door)
		me->door = door_open(&me->actor->process);
	heard.replay = f->replay;
	memcpy(f->topic, set->kv_topic, sizeof f->topic);
	return subscriber_new(&f->subscriber, &heard);
}

static void
follow_start(struct kvevents *me, struct follow *f, uint16_t row,
	     const struct manifest_member *member)
{
	int r = streams_open(me, f, row, member);

	if (r < 0) {
		replay_free(&f->replay);
		if (!f->complained)
			log_error("events row=%u endpoint=%s: %s; routed by what is sent there",
				  row, member->kv_events, strerror(-r));
		f->complained = true;
		return;
	}
	listen_or_not(f);
	log_info("events row=%u member=%.63s rank=%u endpoint=%s replay=%s", row,
		 me->rows.text[row].member, me->rows.row[row].rank, member->kv_events,
		 member->kv_replay[0] ? member->kv_replay : "none");
}

/* Is what we listen to what the configuration says? */
static bool
follows(const struct kvevents *me, const struct follow *f, const struct manifest_member *member)
{
	return strcmp(replay_endpoint(f->replay), member->kv_replay) == 0 &&
	       strcmp(f->topic, me->manifest->sets[member->set].kv_topic) == 0;
}

/* A row that the configuration names.  Of what a provider caches nothing is known. */
static void
follow_member(struct kvevents *me, const struct manifest_member *member, mono_ns now)
{
	uint16_t row = rows_find(&me->rows, member->uid);
	bool events = member->kv_events[0] != '\0';
	struct follow *f;
	uint32_t row_gen;
	int r;

	if (row == ROW_NONE || member->set == MANIFEST_NONE ||
	    atomic_load_explicit(&me->rows.row[row].intent, memory_order_acquire) == INTENT_REMOVE)
		return;
	f = &me->follow[row];
	row_gen = atomic_load_explicit(&me->rows.row[row].row_gen, memory_order_acquire);
	if (f->open && f->row_gen != row_gen)
		follow_stop(me, f);
	else if (f->subscriber &&
		 strcmp(subscriber_endpoint(f->subscriber), member->kv_events) != 0) {
		follow_stop(me, f);
		apply_row_moved(me->apply, row);
	} else if (f->subscriber && !follows(me, f, member)) {
		follow_stop(me, f); /* what is published meanwhile is a hole, and told so */
	}
	r = apply_row_open(me->apply, row, events, now);
	if (r == -EAGAIN)
		return;                         /* being made: the supervisor tells when it is */
	if (r < 0) {
		log_error("row=%u: %s; nothing is known of what it holds", row, strerror(-r));
		return;
	}
	f->open = true;
	f->row_gen = row_gen;
	if (events && !f->subscriber)
		follow_start(me, f, row, member);
}

/* The worker table or the configuration changed.  A row that drains is followed to its end: a
 * rollback may bring it back. */
static void
follow_all(struct kvevents *me)
{
	uint32_t count = rows_count(&me->rows);
	mono_ns now = clock_mono();

	for (uint32_t i = 0; i < count; i++) {
		struct follow *f = &me->follow[i];
		uint8_t intent =
			atomic_load_explicit(&me->rows.row[i].intent, memory_order_acquire);

		if (!f->open || intent == INTENT_SERVE || intent == INTENT_DRAIN)
			continue;
		follow_stop(me, f);
		apply_row_close(me->apply, (uint16_t)i);
		f->open = f->complained = false;
	}
	for (uint32_t m = 0; m < me->manifest->n_members; m++)
		follow_member(me, &me->manifest->members[m], now);
}

/* What waits for the end of a replay, and what the replay brought, goes with the sockets; new ones
 * find a hole, and ask for it. */
static void
waiting_give_up(struct kvevents *me)
{
	for (uint32_t i = 0; i < me->rows.capacity; i++) {
		struct follow *f = &me->follow[i];

		if (!f->replay || !replay_socket(f->replay))
			continue;
		log_warn("events row=%u endpoint=%s: memory is full; what waits for its replay is "
			 "dropped and asked for anew",
			 i, subscriber_endpoint(f->subscriber));
		follow_stop(me, f);
	}
	follow_all(me);
}

/* ---- hearing ingresses and metrics ---- */

/* Whoever reaches the socket could tell us what is cached where: those who may know a word. */
static bool
may_tell(const struct kvevents *me, const struct msg *m)
{
	uint64_t note = m->id == MSG_routed ? m->u.routed.note
			: m->id == MSG_proof ? m->u.proof.note
			: m->id == MSG_engine_start ? m->u.engine_start.note
			: m->id == MSG_engine_asleep ? m->u.engine_asleep.note : 0;

	return note == me->actor->birth.note;
}

static void
on_note(struct kvevents *me, const void *frame, size_t len)
{
	struct msg m;

	if (msg_unpack(frame, len, &m) < 0) {
		count_add(&me->actor->process, COUNTER_messages_unknown, 1);
		return;
	}
	if (!may_tell(me, &m)) {
		count_add(&me->actor->process, COUNTER_messages_refused, 1);
		return;
	}
	switch (m.id) {
	case MSG_routed:
		apply_note(me->apply, &m.u.routed);
		apply_sent(me->apply, &m.u.routed);
		count_add(&me->actor->process, COUNTER_routed_notes, 1);
		break;
	case MSG_proof: {
		const struct msg_proof *p = &m.u.proof;
		struct msg_routed note = {
			.seq = p->seq,
			.ingress = p->ingress,
			.ingress_inc = p->ingress_inc,
			.row = p->row,
			.row_gen = p->row_gen,
			.block_tokens = p->block_tokens,
			.hashes = p->hashes,
		};
		size_t proven =
			p->block_tokens ? p->cached_tokens / p->block_tokens * sizeof(uint64_t) : 0;

		if (note.hashes.len > proven)
			note.hashes.len = proven;
		apply_note(me->apply, &note);
		count_add(&me->actor->process, COUNTER_proofs, 1);
		break;
	}
	case MSG_engine_start:
		apply_engine_start(me->apply, m.u.engine_start.row, m.u.engine_start.row_gen,
				   m.u.engine_start.start);
		break;
	case MSG_engine_asleep:
		apply_engine_asleep(me->apply, m.u.engine_asleep.row, m.u.engine_asleep.row_gen);
		break;
	default:
		count_add(&me->actor->process, COUNTER_messages_unknown, 1);
	}
}

static void
on_notes(struct pm_actor *actor, void *arg)
{
	struct kvevents *me = arg;
	zmq_msg_t frame;

	(void)actor;
	for (unsigned i = 0; i < NOTES; i++) {
		zmq_msg_init(&frame);
		int n = zmq_msg_recv(&frame, zsock_resolve(me->notes), ZMQ_DONTWAIT);

		if (n >= 0)
			on_note(me, zmq_msg_data(&frame), (size_t)n);
		zmq_msg_close(&frame);
		if (n < 0)
			break;
	}
	alive(me);
}

static void
on_tap(struct pm_actor *actor, void *arg)
{
	struct kvevents *me = arg;

	(void)actor;
	tap_receive(me->tap, clock_mono());
}

/* ---- hearing the supervisor ---- */

static void
limits_follow(struct kvevents *me)
{
	const struct manifest_gateway *gateway = &me->manifest->gateway;

	apply_limit(me->apply, gateway->index_private_bytes);
	apply_caps(me->apply, gateway->index_worker_rate, gateway->index_worker_share);
}

static void
kvevents_on_message(void *priv, const struct msg *m, int fd)
{
	struct kvevents *me = priv;

	if (m->id == MSG_segment && m->u.segment.kind == SEGMENT_CONFIG && fd >= 0) {
		if (pm_follow_config(fd, &me->manifest) == 0) {
			limits_follow(me);
			follow_all(me);
		}
		fd = -1;
	} else if (m->id == MSG_rows_changed) {
		follow_all(me);
	}
	if (fd >= 0)
		close(fd);
}

static void
kvevents_on_tick(void *priv, mono_ns now)
{
	struct kvevents *me = priv;

	apply_tick(me->apply, now);
	if (me->intake)
		intake_look(me->intake,
			    count_get(&me->actor->process, COUNTER_kvevents_private_bytes), now);
	if (me->intake && intake_full(me->intake))
		waiting_give_up(me);
	for (uint32_t i = 0; i < me->rows.capacity; i++) {
		struct follow *f = &me->follow[i];

		if (!f->replay)
			continue;
		replay_tick(f->replay, now);
		listen_or_not(f);
	}
	tap_tick(me->tap, now);
	alive(me);
}

/* ---- birth and end ---- */

static int
open_segments(struct kvevents *me)
{
	int r = pm_attach_rows(me->actor, &me->rows, true), fd;

	if (r < 0)
		return r;
	fd = birth_segment_fd(&me->actor->birth, SEGMENT_INDEX, ROLE_NONE, 0, NULL);
	r = fd < 0 ? fd : index_writer_open(&me->writer, fd);
	if (r < 0)
		return pm_open_failed(me->actor, "prefix index", r);
	me->follow = calloc(me->rows.capacity, sizeof me->follow[0]);
	if (!me->follow)
		return pm_open_failed(me->actor, "memory", -ENOMEM);
	for (uint32_t i = 0; i < me->rows.capacity; i++)
		me->follow[i].me = me;
	r = apply_new(&me->apply, me->writer, &me->rows, &me->actor->process);
	if (r < 0)
		return pm_open_failed(me->actor, "memory", r);
	me->replays = (struct replays){.apply = me->apply, .process = &me->actor->process};
	r = pm_attach_config(me->actor, &me->manifest);
	if (r == 0)
		limits_follow(me);
	return r;
}

static int
open_notes(struct kvevents *me)
{
	char endpoint[160];

	pm_endpoint(endpoint, sizeof endpoint, me->actor->birth.run_dir, "kvevents");
	me->notes = zsock_new(ZMQ_PULL);
	if (!me->notes)
		return -ENOMEM;
	zsock_set_rcvhwm(me->notes, NOTE_QUEUE);
	zsock_set_maxmsgsize(me->notes, (int)MESSAGE_MAX);
	zsock_set_linger(me->notes, 0);
	if (zsock_bind(me->notes, "%s", endpoint) < 0)
		return -errno;
	pm_actor_watch_socket(me->actor, me->notes, on_notes, me);
	return 0;
}

static int
open_tap(struct kvevents *me)
{
	char endpoint[160];
	int r;

	pm_tap_endpoint(endpoint, sizeof endpoint, me->actor->birth.run_dir);
	r = tap_open(&me->tap, endpoint, me->actor->birth.token, &me->actor->process);
	if (r < 0)
		return r;
	apply_tap(me->apply, me->tap);
	pm_actor_watch_socket(me->actor, tap_socket(me->tap), on_tap, me);
	return 0;
}

/* "Ready" should mean that no batch of a living engine is missed any more. */
static void
join_all(struct kvevents *me)
{
	mono_ns deadline = clock_mono() + JOIN_NS;

	for (uint32_t i = 0; i < me->rows.capacity; i++) {
		struct follow *f = &me->follow[i];

		if (f->subscriber && !subscriber_wait(f->subscriber, deadline))
			log_info("events row=%u endpoint=%s: not there yet, waited for in the "
				 "background",
				 i, subscriber_endpoint(f->subscriber));
	}
	me->joined = true;
}

static int
kvevents_open(struct pm_actor *actor, void **ret)
{
	struct kvevents *me = calloc(1, sizeof *me);
	int r;

	if (!me)
		return -ENOMEM;
	me->magic = KVEVENTS_MAGIC;
	me->actor = actor;
	me->rows.seg.fd = -1;
	*ret = me;
	/* Else each burst of messages has its pages taken from the kernel, and cleared, anew. */
	mallopt(M_TRIM_THRESHOLD, (int)KEPT_BYTES);
	mallopt(M_MMAP_THRESHOLD, (int)LARGE_BYTES);
	r = open_segments(me);
	if (r < 0)
		return r;
	r = open_notes(me);
	if (r < 0)
		return pm_open_failed(me->actor, "socket for notes", r);
	r = open_tap(me);
	if (r < 0)
		return pm_open_failed(me->actor, "socket for who looks on", r);
	alive(me);
	r = intake_new(&me->intake, &me->actor->process, INTAKE_BYTES,
		       DESCRIPTORS_A_ROW * me->rows.capacity + DESCRIPTORS_MORE);
	if (r < 0)
		log_warn("memory is not watched: %s; an engine gone mad can take all of it",
			 strerror(-r));
	me->replays.intake = me->intake;
	follow_all(me);
	join_all(me);
	return 0;
}

static void
kvevents_close(void **priv)
{
	struct kvevents *me = *priv;

	if (!me)
		return;
	*priv = NULL;
	for (uint32_t i = 0; me->follow && i < me->rows.capacity; i++)
		follow_stop(me, &me->follow[i]);
	free(me->follow);
	zactor_destroy(&me->door);
	intake_free(&me->intake);
	if (me->notes) {
		pm_actor_unwatch_socket(me->actor, me->notes);
		zsock_destroy(&me->notes);
	}
	if (me->tap)
		pm_actor_unwatch_socket(me->actor, tap_socket(me->tap));
	apply_free(&me->apply);
	tap_close(&me->tap);
	index_writer_close(&me->writer);
	if (me->rows.head)
		rows_detach(&me->rows);
	manifest_free(&me->manifest);
	free(me);
}

static const struct pm_actor_spec spec = {
	.name = "kvevents",
	.tick_ms = TICK_MS,
	.open = kvevents_open,
	.close = kvevents_close,
	.on_message = kvevents_on_message,
	.on_tick = kvevents_on_tick,
};

int
main(int argc, char **argv)
{
	return pm_actor_main(argc, argv, &spec);
}
