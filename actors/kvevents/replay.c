/* actors/kvevents/replay.c -- see replay.h. */
#include "actors/kvevents/replay.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "actors/common/decide/manifest.h"
#include "actors/common/log.h"
#include "actors/kvevents/subscriber.h"
#include "proto/kv_events.h"

#define FRAMES 5u /* of an answer, more are dropped: one more than the longest form has */

enum mode { IDLE, HOLE, WHOLE, PROBE };

struct replay {
	struct replays *all; /* borrowed */
	uint16_t row;
	char endpoint[MANIFEST_ENDPOINT_MAX + 1];
	replay_watch_f *watch;
	void *arg;
	zsock_t *sock; /* owned; NULL: nothing is asked */
	enum mode mode;
	uint64_t want;             /* the next number */
	bool first;                /* no batch of this asking has come yet */
	bool begins_at_set;
	uint64_t begins_at;        /* where the last asking's answer began instead of at want */
	bool forgotten;            /* the engine does not keep all that was asked for */
	bool answered;             /* anything since it began */
	unsigned asks;             /* since the last progress */
	uint64_t brought;          /* batches since it began */
	mono_ns began, heard;
	bool has_held;
	uint64_t held_seq;
	zmq_msg_t held;            /* owned while has_held */
	uint32_t life;             /* of the row, when its place was looked at last */
	mono_ns not_before;        /* of the next asking */
	bool in_vain;              /* asking for the whole again would bring the same gap */
	bool looked;               /* and would bring nothing: it has said nothing yet */
	bool absent;               /* it was silent when nothing had come from there yet */
	mono_ns live;              /* when the last live batch came; 0: looked already, or none */
	bool heard_live;           /* in this life; before that the live wire may lead nowhere */
	bool told;                 /* that it does */
	mono_ns probe_after;
};

int
replay_new(struct replay **ret, const struct replay_config *config)
{
	struct replay *r;

	if (strlen(config->endpoint) > MANIFEST_ENDPOINT_MAX)
		return -EINVAL;
	r = calloc(1, sizeof *r);
	if (!r)
		return -ENOMEM;
	r->all = config->all;
	r->row = config->row;
	r->watch = config->watch;
	r->arg = config->arg;
	memcpy(r->endpoint, config->endpoint, strlen(config->endpoint) + 1);
	r->life = apply_place(r->all->apply, r->row).life;
	*ret = r;
	return 0;
}

const char *
replay_endpoint(const struct replay *r)
{
	return r->endpoint;
}

zsock_t *
replay_socket(struct replay *r)
{
	return r->sock;
}

bool
replay_holds(const struct replay *r)
{
	return r->mode == HOLE || r->mode == WHOLE;
}

/* ---- asking ---- */

static void
hang_up(struct replay *r)
{
	if (!r->sock)
		return;
	if (r->watch)
		r->watch(r->arg, r->sock, false);
	zsock_destroy(&r->sock);
}

static bool
call(struct replay *r, mono_ns now)
{
	unsigned char number[8];
	void *sock;

	r->sock = zsock_new(ZMQ_DEALER);
	if (!r->sock)
		return false;
	sock = zsock_resolve(r->sock);
	zsock_set_rcvhwm(r->sock, 0); /* full, it would make the engine lose more */
	zsock_set_maxmsgsize(r->sock, (int)KV_PAYLOAD_MAX_BYTES);
	zsock_set_linger(r->sock, 0);
	zsock_set_ipv6(r->sock, 1);
	for (unsigned i = 0; i < sizeof number; i++)
		number[i] = (unsigned char)(r->want >> (56 - 8 * i));
	if (zmq_connect(sock, r->endpoint) < 0 ||
	    zmq_send(sock, "", 0, ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0 ||
	    zmq_send(sock, number, sizeof number, ZMQ_DONTWAIT) < 0) {
		zsock_destroy(&r->sock);
		return false;
	}
	r->first = true;
	r->heard = now;
	if (r->watch)
		r->watch(r->arg, r->sock, true);
	return true;
}

static void
let_go(struct replay *r, bool apply)
{
	if (!r->has_held)
		return;
	r->has_held = false;
	if (apply)
		apply_message(r->all->apply, r->row, r->held_seq, zmq_msg_data(&r->held),
			      zmq_msg_size(&r->held));
	zmq_msg_close(&r->held);
}

static void
stop(struct replay *r)
{
	hang_up(r);
	if (r->mode != IDLE)
		r->all->under_way--;
	r->mode = IDLE;
}

/* Batches that the live wire did not bring.  More may be on their way past it. */
static void
brought_alone(struct replay *r, mono_ns now)
{
	r->live = now;
	if (r->heard_live || r->told)
		return;
	r->told = true;
	log_warn("events row=%u endpoint=%s: the engine says by replay what never came on its live "
		 "endpoint; asked every %llu s (vLLM binds an endpoint with * in it, as "
		 "tcp://*:5557, and connects to any other)",
		 r->row, r->endpoint, (unsigned long long)(REPLAY_PROBE_NS / 1000000000));
}

static void
finish(struct replay *r, enum cache_reason failed, mono_ns now)
{
	enum mode mode = r->mode;
	struct apply_place at;

	stop(r);
	if (failed != REASON_NONE || r->forgotten) {
		count_add(r->all->process, COUNTER_replays_failed, 1);
		r->not_before = now + REPLAY_BACKOFF_NS;
	}
	r->absent = failed == REASON_REPLAY_SILENT && !r->has_held;
	if (mode != PROBE)
		apply_replay_end(r->all->apply, r->row, failed);
	let_go(r, true);
	at = apply_place(r->all->apply, r->row);
	/* Whole, and still a gap: it is in what the engine says, or in what it has forgotten. */
	if (mode == WHOLE && failed == REASON_NONE) {
		r->in_vain = at.state == CACHE_GAP;
		r->looked = !at.started;
		r->probe_after = now + REPLAY_QUIET_NS;
	}
	if (mode == PROBE && r->brought > 0)
		brought_alone(r, now);
	if (mode != PROBE || failed != REASON_NONE || r->forgotten)
		log_info("replay row=%u endpoint=%s: %s, applied to seq=%lld, state %s", r->row,
			 r->endpoint,
			 failed != REASON_NONE ? cache_reason_name(failed)
			 : r->forgotten        ? cache_reason_name(REASON_HISTORY_LOST)
					       : "complete",
			 at.started ? (long long)at.last : -1, cache_state_name(at.state));
}

/* Nothing comes from the number behind the last, however often it is asked for: there is nothing,
 * and the end marker gets lost each time.  (A first answer finds room in the engine's queue.) */
static bool
exhausted(const struct replay *r)
{
	return r->answered && !r->has_held && r->first && !r->begins_at_set;
}

/* From the first hole; what is under way here goes with the connection. */
static void
again(struct replay *r, mono_ns now)
{
	hang_up(r);
	if (++r->asks < REPLAY_ASKS && call(r, now))
		return;
	finish(r,
	       exhausted(r)  ? REASON_NONE
	       : r->answered ? REASON_REPLAY_LOST
			     : REASON_REPLAY_SILENT,
	       now);
}

static bool
begin(struct replay *r, enum mode mode, mono_ns now)
{
	struct apply_place at = apply_place(r->all->apply, r->row);

	if (r->endpoint[0] == '\0' || !at.open || r->all->under_way >= REPLAYS_AT_ONCE)
		return false;
	r->want = mode == WHOLE ? 0 : at.last + 1;
	r->asks = 0;
	r->brought = 0;
	r->forgotten = r->answered = r->begins_at_set = false;
	r->life = at.life;
	r->began = now;
	if (!call(r, now))
		return false;
	r->mode = mode;
	r->all->under_way++;
	count_add(r->all->process, COUNTER_replays, 1);
	return true;
}

void
replay_free(struct replay **ret)
{
	struct replay *r = *ret;

	if (!r)
		return;
	if (replay_holds(r))
		apply_replay_end(r->all->apply, r->row, REASON_REPLAY_LOST);
	stop(r);
	let_go(r, true);
	free(r);
	*ret = NULL;
}

/* ---- the live wire ---- */

static void
hold(struct replay *r, uint64_t seq, zmq_msg_t *payload)
{
	zmq_msg_init(&r->held);
	zmq_msg_move(&r->held, payload);
	r->held_seq = seq;
	r->has_held = true;
	apply_replay_begin(r->all->apply, r->row, true);
}

/* The row began anew since: what was in vain, or in a row's bad time, is not any more. */
static void
follow_life(struct replay *r, const struct apply_place *at)
{
	if (at->life == r->life)
		return;
	r->life = at->life;
	r->in_vain = r->looked = r->absent = r->heard_live = r->told = false;
	r->not_before = 0;
}

void
replay_live(struct replay *r, uint64_t seq, zmq_msg_t *payload, mono_ns now)
{
	struct apply *a = r->all->apply;
	struct apply_place at;
	bool doubtful;

	r->live = now;
	r->heard_live = true;
	if (apply_offer(a, r->row, seq, zmq_msg_data(payload), zmq_msg_size(payload)))
		return;
	if (r->mode == PROBE) {         /* what is under way will bring it */
		r->mode = HOLE;
		hold(r, seq, payload);
		return;
	}
	at = apply_place(a, r->row);
	follow_life(r, &at);
	doubtful = !at.started || (at.state == CACHE_GAP && !r->in_vain);
	if ((now >= r->not_before || r->absent) && begin(r, doubtful ? WHOLE : HOLE, now))
		hold(r, seq, payload);
	else
		apply_message(a, r->row, seq, zmq_msg_data(payload), zmq_msg_size(payload));
}

/* ---- answers ---- */

static void
take(struct replay *r, uint64_t seq, const struct kv_slice *payload, enum cache_reason hole)
{
	if (r->mode == WHOLE && seq == 0)
		apply_replay_anew(r->all->apply, r->row);
	apply_replayed(r->all->apply, r->row, seq, payload->p, payload->n, hole);
	r->want = seq + 1;
	r->asks = 0;
	r->brought++;
	r->first = r->begins_at_set = false;
}

/* The engine's answer begins above what was asked for, and did so before. */
static void
skip_forgotten(struct replay *r, uint64_t seq)
{
	struct apply_place at = apply_place(r->all->apply, r->row);

	r->forgotten = true;
	if (r->mode == WHOLE && at.started && seq <= at.last + 1)
		r->want = at.last + 1; /* what is known goes on without a hole */
	else
		r->want = seq;
}

static void
on_batch(struct replay *r, uint64_t seq, const struct kv_slice *payload, mono_ns now)
{
	enum cache_reason hole = REASON_NONE;

	if (seq > r->want && r->first && r->begins_at_set && r->begins_at == seq) {
		hole = REASON_HISTORY_LOST;
		skip_forgotten(r, seq);
	}
	if (seq > r->want) {
		r->begins_at_set = r->first;
		r->begins_at = seq;
		again(r, now);
		return;
	}
	r->first = false;
	if (seq < r->want)
		return;
	take(r, seq, payload, hole);
	if (r->has_held && r->want > r->held_seq)
		finish(r, REASON_NONE, now);
}

static bool
complete(const struct replay *r)
{
	return !r->has_held || r->want >= r->held_seq;
}

/* The marker says that an answer ends and not where: behind batches the last may be missing.  An
 * answer that is the marker alone has lost nothing. */
static void
on_end(struct replay *r, mono_ns now)
{
	if (r->has_held ? complete(r) : r->first)
		finish(r, REASON_NONE, now);
	else
		again(r, now);
}

/* One multipart message; 0: none is there. */
static unsigned
frames_receive(struct replay *r, zmq_msg_t frame[FRAMES])
{
	void *sock = zsock_resolve(r->sock);
	size_t wire = 0;
	unsigned n = 0;
	zmq_msg_t more;
	bool last;

	do {
		zmq_msg_t *to = n < FRAMES ? &frame[n] : &more;

		zmq_msg_init(to);
		if (zmq_msg_recv(to, sock, ZMQ_DONTWAIT) < 0) {
			zmq_msg_close(to); /* only before the first: messages arrive whole */
			return 0;
		}
		last = !zmq_msg_more(to);
		wire += intake_wire(zmq_msg_size(to));
		if (n >= FRAMES)
			zmq_msg_close(to);
		else
			n++;
	} while (!last);
	intake_took(r->all->intake, &frame[0], wire);
	return n;
}

/* False: nothing is there. */
static bool
receive_one(struct replay *r, mono_ns now)
{
	struct kv_slice slice[FRAMES], payload;
	zmq_msg_t frame[FRAMES];
	unsigned n = frames_receive(r, frame);
	uint64_t seq;

	if (n == 0)
		return false;
	for (unsigned i = 0; i < n; i++)
		slice[i] = (struct kv_slice){zmq_msg_data(&frame[i]), zmq_msg_size(&frame[i])};
	switch (kv_replay_parse(slice, n, &seq, &payload)) {
	case KV_REPLAY_DATA:
		r->answered = true;
		r->heard = now;
		on_batch(r, seq, &payload, now);
		break;
	case KV_REPLAY_END:
		r->answered = true;
		on_end(r, now);
		break;
	case KV_REPLAY_BAD:
		count_add(r->all->process, COUNTER_frames_bad, 1);
		break;
	}
	for (unsigned i = 0; i < n; i++)
		zmq_msg_close(&frame[i]);
	return true;
}

/* The engine began anew while it was asked, says its start time: all of it belongs to the past. */
static bool
overtaken(struct replay *r)
{
	struct apply_place at = apply_place(r->all->apply, r->row);

	if (at.open && at.life == r->life)
		return false;
	stop(r);
	let_go(r, false);
	follow_life(r, &at);
	return true;
}

unsigned
replay_receive(struct replay *r, mono_ns now)
{
	mono_ns until = clock_mono() + SUBSCRIBER_TURN_NS;
	unsigned n = 0;

	if (r->sock && overtaken(r))
		return 0;
	while (r->sock && n < SUBSCRIBER_BATCH && receive_one(r, now)) {
		n++;
		if (clock_mono() >= until)
			break;
	}
	return n;
}

/* ---- time ---- */

static void
tick_idle(struct replay *r, mono_ns now)
{
	struct apply_place at = apply_place(r->all->apply, r->row);

	follow_life(r, &at);
	if (!at.open || at.asleep || now < r->not_before)
		return;
	if (at.started ? at.state == CACHE_GAP && !r->in_vain : !r->looked) {
		if (begin(r, WHOLE, now))
			apply_replay_begin(r->all->apply, r->row, false);
	} else if (at.state == CACHE_EXACT && now >= r->probe_after &&
		   (r->live != 0 ? now >= r->live + REPLAY_QUIET_NS
				 : at.started && !r->heard_live)) {
		r->live = 0;
		r->probe_after = now + REPLAY_PROBE_NS;
		begin(r, PROBE, now);
	}
}

/* A tick's time is that of its turn's beginning, and what is asked within the turn is younger. */
static mono_ns
since(mono_ns then, mono_ns now)
{
	return now > then ? now - then : 0;
}

void
replay_tick(struct replay *r, mono_ns now)
{
	if (r->mode == IDLE)
		tick_idle(r, now);
	else if (overtaken(r))
		return;
	else if (since(r->began, now) >= REPLAY_MOST_NS)
		finish(r, r->answered ? REASON_REPLAY_LOST : REASON_REPLAY_SILENT, now);
	else if (since(r->heard, now) < REPLAY_SILENCE_NS)
		return;
	else if (r->has_held && complete(r))
		finish(r, REASON_NONE, now);
	else
		again(r, now);
}
