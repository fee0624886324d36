/* actors/kvevents/replay.h -- what an engine's live wire lost is asked for again (one rank).
 *
 * Question   Which batches came, in order and without a hole?
 * Shape      To the engine's ROUTER, from a DEALER: ["", first number wanted, u64 big-endian].
 *            Back: each batch it still keeps from there on, then an end marker; both framings
 *            (kv_replay_parse).  It loses what its queue has no room for, the marker too, and says
 *            nothing of that; so numbers are checked, and the first hole is asked for again, on a
 *            new connection (what is under way on the old one is lost with it).
 * When       HOLE   a live batch that is not the next: from last + 1 on.  The live wire is not
 *                   read until it is there; its own queue is the buffer (SUBSCRIBER_QUEUE).
 *            WHOLE  nothing is known yet (birth, another endpoint, the engine began anew), or what
 *                   is known is doubtful (gap): from 0 on, the live wire waiting.  Whole, it makes
 *                   the row exact; where the engine has forgotten its beginning, what it still
 *                   keeps is applied, the row stays a gap, and is not asked so again in that life.
 *            PROBE  REPLAY_QUIET_NS after the last live batch, once: a batch lost at the end of a
 *                   burst shows only there.  The live wire goes on.  Again, every REPLAY_PROBE_NS,
 *                   while it brings what the live wire did not, and while that has brought nothing
 *                   in this life: its subscription may be late, or it may lead nowhere (an engine
 *                   that connects its publisher instead of binding it), which is told once.
 * Ends       the batch that was waited for; else an answer that is the end marker alone (behind
 *            batches it does not say whether the last was lost).  Silence of
 *            REPLAY_SILENCE_NS, a hole, a marker too early: asked again, REPLAY_ASKS times without
 *            any progress, REPLAY_MOST_NS in all.  Then the state is gap, says why, and
 *            the row is left alone for REPLAY_BACKOFF_NS.  History is lost when two
 *            answers begin at the same number above the one asked for.
 * Limits     Answers that are not asked for (old numbers, other frames, endless ones) are dropped
 *            and end with the time-outs.  REPLAYS_AT_ONCE over all rows; who finds no room counts
 *            its hole as a gap at once and asks when there is.  A turn is as long as a
 *            subscriber's.
 * Threads    the loop's.  Time is told, never asked for.  Logs what came of each.
 */
#pragma once
#include <czmq.h>

#include "actors/kvevents/apply.h"
#include "actors/kvevents/intake.h"

#define REPLAY_SILENCE_NS 500000000ull
#define REPLAY_QUIET_NS   2000000000ull
#define REPLAY_PROBE_NS   10000000000ull /* between two probes of a row */
#define REPLAY_MOST_NS    10000000000ull
#define REPLAY_BACKOFF_NS 30000000000ull
#define REPLAY_ASKS       3u
#define REPLAYS_AT_ONCE   16u

struct replay;

/* One for all rows. */
struct replays {
	struct apply *apply;             /* borrowed */
	struct process_segment *process; /* borrowed */
	struct intake *intake;           /* borrowed; learns what was read.  NULL: none */
	unsigned under_way;
};

typedef void replay_watch_f(void *arg, zsock_t *sock, bool open);
	/* This socket is to be watched from now on (replay_receive), or is about to go. */

struct replay_config {
	struct replays *all;  /* borrowed */
	uint16_t row;
	const char *endpoint; /* "": none; live batches pass through, and holes are gaps */
	replay_watch_f *watch; /* NULL: nobody watches (tests poll) */
	void *arg;
};

int replay_new(struct replay **ret, const struct replay_config *config);
	/* 0, -ENOMEM, -EINVAL: the endpoint is too long.  The row need not be open yet. */
void replay_free(struct replay **ret);
	/* Half a replay ends without a word: what it brought stays, as a gap. */
const char *replay_endpoint(const struct replay *r);
zsock_t *replay_socket(struct replay *r);       /* NULL: none is open; borrowed */

bool replay_holds(const struct replay *r);
	/* The live wire is not to be read now. */
void replay_live(struct replay *r, uint64_t seq, zmq_msg_t *payload, mono_ns now);
	/* A live batch; while !replay_holds().  May take the payload, and then hold. */
unsigned replay_receive(struct replay *r, mono_ns now);
	/* What the engine answered, within bounds; how many messages. */
void replay_tick(struct replay *r, mono_ns now);
	/* Time-outs, and what is asked for without a cause on the live wire. */
