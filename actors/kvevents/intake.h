/* actors/kvevents/intake.h -- what strangers can make libzmq keep in our memory.
 *
 * Its queues end by messages, not by bytes: a thousand of 64 MiB fit, a message of endless parts
 * counts as none, and a replay's queue has no end (replay.h says why).  So memory is watched.  When
 * the process has grown by more than a bound beyond what it accounts for itself, the connection
 * that has sent most of what nobody has read is cut at the descriptor: what it began is dropped by
 * libzmq with it, and what it lost shows as a hole.  It may come again, and is cut again; no other
 * connection is touched.  Who sends much that is read keeps nothing here, however fast it is.
 * What lies whole in a queue outlives its connection: where a queue waits for the end of a replay,
 * it may have to be given up with its socket (intake_full).
 *
 * Bounds     INTAKE_BYTES and what comes between two looks (a tenth of a second).
 * Not seen   unix sockets: whoever has one is on this machine.
 * Threads    the loop's.   Cost   a read of /proc a look; once a second two calls a descriptor;
 *            a call a message.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <zmq.h>

#include "shm/process.h"

#define INTAKE_BYTES (512u << 20)

struct intake;

int intake_new(struct intake **ret, struct process_segment *process, size_t most_bytes,
	       unsigned descriptors);
	/* process: borrowed.  descriptors: the highest that is looked at.  0, -ENOMEM, -errno: no
	 * /proc, so nothing is watched. */
void intake_free(struct intake **ret);
size_t intake_wire(size_t frame);
	/* Bytes on the wire of a frame of so many. */
void intake_took(struct intake *i, const zmq_msg_t *frame, size_t wire_bytes);
	/* A message was read: one of its frames, and the bytes of all.  i may be NULL. */
bool intake_look(struct intake *i, size_t accounted_bytes, mono_ns now);
	/* True: a connection was cut; counted and told. */
bool intake_full(struct intake *i);
	/* True once, when look after look found too much: it lies whole in queues that nobody
	 * reads, and goes with their sockets only. */
