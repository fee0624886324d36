/* actors/ingress/notes.h -- what kvevents is told: where prompts went, what engines proved.
 *
 * Says       routed, proof over PUSH.  Never waited for: a note that kvevents does not take at
 *            once is dropped and counted (routed_dropped), and a hole in seq is skipped there.
 * Threads    the loop's.
 */
#pragma once
#include "proto/messages.h"
#include "shm/cell.h"
#include "shm/process.h"

struct notes {
	void *sock;                     /* owned ZMQ PUSH */
	struct column *column;          /* borrowed: routed_sent */
	struct process_segment *process;/* borrowed */
	uint32_t index, incarnation;
	uint64_t seq;
	/* owned; MESSAGE_MAX is not reached: hashes are bounded by the answer */
	char *buf;
	size_t cap;
};

int notes_open(struct notes *ret, void *zmq_ctx, const char *run_dir, struct column *column,
	       struct process_segment *process, uint32_t index, uint32_t incarnation);
void notes_close(struct notes *n);

void notes_routed(struct notes *n, uint16_t row, uint32_t row_gen, const struct rec_root *root);
void notes_proof(struct notes *n, uint16_t row, uint32_t row_gen, const struct rec_root *root,
		 uint32_t cached_tokens);
