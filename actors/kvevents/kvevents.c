/* kvevents.c -- keeps the prefix index: what each worker holds, from its own events and from ours.
 *
 * Owns    the prefix index, its reverse maps and orphans (private), lines 5 - 7 of the worker table
 * Hears   events        engines      BlockStored, BlockRemoved, AllBlocksCleared; one SUB a rank
 *         routed proof  ingress      sent there; the engine says so many are there
 *         engine_start  metrics      its process start time moved
 *         segment rows_changed       supervisor   another configuration; look at the table again
 * Says    ready failed bye           supervisor
 * Dies    decisions go on with the index as it stands, marked stale by its heartbeat; the successor
 *         keeps what it can keep true (apply.h "Crash") and goes on at the next event
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "actors/common/attach.h"
#include "actors/kvevents/apply.h"
#include "actors/kvevents/subscriber.h"

#define TICK_MS 100u
#define JOIN_NS 300000000ull /* an engine that is up answers the handshake in a round trip */
#define NOTES 256u /* notes a turn before others are looked at */
#define NOTE_QUEUE 65536

struct follow { /* what we listen to, per row */
	struct kvevents *me;
	struct subscriber *subscriber; /* owned; NULL: publishes nothing, or not reachable */
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
	zsock_t *notes;              /* owned; PULL */
};

static void
alive(struct kvevents *me)
{
	atomic_store_explicit(&index_writer_segment(me->writer)->head->heartbeat_ns, clock_mono(),
			      memory_order_relaxed);
}

/* ---- hearing engines ---- */

static void
on_events(struct pm_actor *actor, void *arg)
{
	struct follow *f = arg;

	(void)actor;
	subscriber_receive(f->subscriber);
	alive(f->me);
}

static void
follow_stop(struct kvevents *me, struct follow *f)
{
	if (!f->subscriber)
		return;
	pm_actor_unwatch_socket(me->actor, subscriber_socket(f->subscriber));
	subscriber_free(&f->subscriber);
}

static void
follow_start(struct kvevents *me, struct follow *f, uint16_t row, const char *endpoint)
{
	int r = subscriber_new(&f->subscriber, me->apply, row, endpoint);

	if (r < 0) {
		if (!f->complained)
			log_error("events row=%u endpoint=%s: %s; routed by what is sent there",
				  row, endpoint, strerror(-r));
		f->complained = true;
		return;
	}
	pm_actor_watch_socket(me->actor, subscriber_socket(f->subscriber), on_events, f);
	log_info("events row=%u member=%.63s rank=%u endpoint=%s", row, me->rows.text[row].member,
		 me->rows.row[row].rank, endpoint);
}

/* A row that the configuration names. */
static void
follow_member(struct kvevents *me, const struct manifest_member *member, mono_ns now)
{
	uint16_t row = rows_find(&me->rows, member->uid);
	bool events = member->kv_events[0] != '\0';
	struct follow *f;
	uint32_t row_gen;
	int r;

	if (row == ROW_NONE ||
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
	}
	r = apply_row_open(me->apply, row, events, now);
	if (r < 0) {
		log_error("row=%u: %s; nothing is known of what it holds", row, strerror(-r));
		return;
	}
	f->open = true;
	f->row_gen = row_gen;
	if (events && !f->subscriber)
		follow_start(me, f, row, member->kv_events);
}

/* The worker table or the configuration changed.  A row that drains is followed to its end: a
 * rollback may bring it back. */
static void
follow_all(struct kvevents *me)
{
	uint32_t count = atomic_load_explicit(&me->rows.head->count, memory_order_acquire);
	mono_ns now = clock_mono();

	for (uint32_t i = 0; i < count && i < me->rows.capacity; i++) {
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

/* ---- hearing ingresses and metrics ---- */

static void
on_note(struct kvevents *me, const void *frame, size_t len)
{
	struct msg m;

	if (msg_unpack(frame, len, &m) < 0) {
		count_add(&me->actor->process, COUNTER_messages_unknown, 1);
		return;
	}
	switch (m.id) {
	case MSG_routed:
		apply_note(me->apply, &m.u.routed);
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

/* ---- hearing the supervisor ---- */

static void
kvevents_on_message(void *priv, const struct msg *m, int fd)
{
	struct kvevents *me = priv;

	if (m->id == MSG_segment && m->u.segment.kind == SEGMENT_CONFIG && fd >= 0) {
		if (pm_follow_config(fd, &me->manifest) == 0)
			follow_all(me);
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
	return pm_attach_config(me->actor, &me->manifest);
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
	r = open_segments(me);
	if (r < 0)
		return r;
	r = open_notes(me);
	if (r < 0)
		return pm_open_failed(me->actor, "socket for notes", r);
	alive(me);
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
	if (me->notes) {
		pm_actor_unwatch_socket(me->actor, me->notes);
		zsock_destroy(&me->notes);
	}
	apply_free(&me->apply);
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
