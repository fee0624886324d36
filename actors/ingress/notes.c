/* actors/ingress/notes.c -- see notes.h. */
#include "actors/ingress/notes.h"

#include <errno.h>
#include <stdlib.h>
#include <zmq.h>

#include "actors/common/actor.h"

#define NOTE_ROOM 128u /* bytes of a note besides its hashes */
#define HELD_BYTES ((size_t)65536) /* held at most, but for a note that is longer by itself */

int
notes_open(struct notes *ret, void *zmq_ctx, const struct birth *birth, struct column *column,
	   struct process_segment *process)
{
	int zero = 0, one = 1, high = 4096;
	char endpoint[160];

	*ret = (struct notes){.column = column, .process = process, .index = birth->index,
			      .incarnation = birth->incarnation, .note = birth->note};
	ret->sock = zmq_socket(zmq_ctx, ZMQ_PUSH);
	if (!ret->sock)
		return -errno;
	zmq_setsockopt(ret->sock, ZMQ_LINGER, &zero, sizeof zero);
	zmq_setsockopt(ret->sock, ZMQ_SNDHWM, &high, sizeof high);
	zmq_setsockopt(ret->sock, ZMQ_IMMEDIATE, &one,
		       sizeof one); /* absent: dropped, not queued */
	pm_endpoint(endpoint, sizeof endpoint, birth->run_dir, "kvevents");
	if (zmq_connect(ret->sock, endpoint) < 0) {
		int r = -errno;

		notes_close(ret);
		return r;
	}
	return 0;
}

void
notes_close(struct notes *n)
{
	if (n->sock)
		zmq_close(n->sock);
	free(n->buf);
	*n = (struct notes){0};
}

void
notes_flush(struct notes *n)
{
	size_t at = 0;

	for (unsigned i = 0; i < n->held; i++) {
		int more = i + 1 < n->held ? ZMQ_SNDMORE : 0;

		/* The first part is refused or all are taken. */
		if (zmq_send(n->sock, n->buf + at, n->end[i] - at, ZMQ_DONTWAIT | more) < 0) {
			count_add(n->process, COUNTER_routed_dropped, n->held - i);
			break;
		}
		at = n->end[i];
		if (!more)
			atomic_store_explicit(&n->column->head->routed_sent, n->held_seq,
					      memory_order_relaxed);
	}
	n->held = 0;
	n->due_ns = 0;
}

static void
say(struct notes *n, enum msg_id id, const void *msg, size_t hashes, mono_ns now)
{
	size_t want = hashes + NOTE_ROOM, used;
	ssize_t len;

	if (n->held == NOTES_MAX || (n->held > 0 && n->end[n->held - 1] + want > HELD_BYTES))
		notes_flush(n);
	used = n->held > 0 ? n->end[n->held - 1] : 0;
	if (n->cap < used + want) {
		size_t cap = used + want > HELD_BYTES ? used + want : HELD_BYTES;
		char *grown = realloc(n->buf, cap);

		if (!grown) {
			count_add(n->process, COUNTER_routed_dropped, 1);
			return;
		}
		n->buf = grown;
		n->cap = cap;
	}
	len = msg_pack(id, msg, n->buf + used, n->cap - used);
	if (len < 0) {
		count_add(n->process, COUNTER_routed_dropped, 1);
		return;
	}
	n->end[n->held++] = used + (size_t)len;
	n->held_seq = n->seq;
	if (n->due_ns == 0)
		n->due_ns = now + NOTES_HOLD_NS;
}

void
notes_routed(struct notes *n, uint16_t row, uint32_t row_gen, const struct rec_root *root,
	     mono_ns now)
{
	struct msg_routed m = {
		.seq = ++n->seq,
		.ingress = n->index,
		.ingress_inc = n->incarnation,
		.row = row,
		.row_gen = row_gen,
		.block_tokens = root->block_tokens,
		.hashes = root->hashes,
		.note = n->note,
	};

	say(n, MSG_routed, &m, root->hashes.len, now);
}

void
notes_proof(struct notes *n, uint16_t row, uint32_t row_gen, const struct rec_root *root,
	    uint32_t cached_tokens, mono_ns now)
{
	struct msg_proof m = {
		.ingress = n->index,
		.ingress_inc = n->incarnation,
		.row = row,
		.row_gen = row_gen,
		.block_tokens = root->block_tokens,
		.hashes = root->hashes,
		.cached_tokens = cached_tokens,
		.note = n->note,
	};
	size_t proven =
		root->block_tokens ? cached_tokens / root->block_tokens * sizeof(uint64_t) : 0;

	if (proven == 0)
		return;
	if (m.hashes.len > proven)
		m.hashes.len = proven;
	m.seq = ++n->seq;
	say(n, MSG_proof, &m, m.hashes.len, now);
}
