/* actors/ingress/notes.c -- see notes.h. */
#include "actors/ingress/notes.h"

#include <errno.h>
#include <stdlib.h>
#include <zmq.h>

#include "actors/common/actor.h"

#define NOTE_ROOM 128u /* bytes of a note besides its hashes */

int
notes_open(struct notes *ret, void *zmq_ctx, const char *run_dir, struct column *column,
	   struct process_segment *process, uint32_t index, uint32_t incarnation)
{
	int zero = 0, one = 1, high = 4096;
	char endpoint[160];

	*ret = (struct notes){
		.column = column, .process = process, .index = index, .incarnation = incarnation};
	ret->sock = zmq_socket(zmq_ctx, ZMQ_PUSH);
	if (!ret->sock)
		return -errno;
	zmq_setsockopt(ret->sock, ZMQ_LINGER, &zero, sizeof zero);
	zmq_setsockopt(ret->sock, ZMQ_SNDHWM, &high, sizeof high);
	zmq_setsockopt(ret->sock, ZMQ_IMMEDIATE, &one,
		       sizeof one); /* absent: dropped, not queued */
	pm_endpoint(endpoint, sizeof endpoint, run_dir, "kvevents");
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

static void
say(struct notes *n, enum msg_id id, const void *msg, size_t hashes)
{
	size_t want = hashes + NOTE_ROOM;
	ssize_t len;

	if (n->cap < want) {
		char *grown = realloc(n->buf, want);

		if (!grown) {
			count_add(n->process, COUNTER_routed_dropped, 1);
			return;
		}
		n->buf = grown;
		n->cap = want;
	}
	len = msg_pack(id, msg, n->buf, n->cap);
	if (len < 0 || zmq_send(n->sock, n->buf, (size_t)len, ZMQ_DONTWAIT) < 0) {
		count_add(n->process, COUNTER_routed_dropped, 1);
		return;
	}
	atomic_store_explicit(&n->column->head->routed_sent, n->seq, memory_order_relaxed);
}

void
notes_routed(struct notes *n, uint16_t row, uint32_t row_gen, const struct rec_root *root)
{
	struct msg_routed m = {
		.seq = ++n->seq,
		.ingress = n->index,
		.ingress_inc = n->incarnation,
		.row = row,
		.row_gen = row_gen,
		.block_tokens = root->block_tokens,
		.hashes = root->hashes,
	};

	say(n, MSG_routed, &m, root->hashes.len);
}

void
notes_proof(struct notes *n, uint16_t row, uint32_t row_gen, const struct rec_root *root,
	    uint32_t cached_tokens)
{
	struct msg_proof m = {
		.ingress = n->index,
		.ingress_inc = n->incarnation,
		.row = row,
		.row_gen = row_gen,
		.block_tokens = root->block_tokens,
		.hashes = root->hashes,
		.cached_tokens = cached_tokens,
	};
	size_t proven =
		root->block_tokens ? cached_tokens / root->block_tokens * sizeof(uint64_t) : 0;

	if (proven == 0)
		return;
	if (m.hashes.len > proven)
		m.hashes.len = proven;
	m.seq = ++n->seq;
	say(n, MSG_proof, &m, m.hashes.len);
}
