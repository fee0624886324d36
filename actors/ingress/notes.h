/* actors/ingress/notes.h -- what kvevents is told: where prompts went, what engines proved.
 *
 * Says       routed, proof over PUSH.  Never waited for: notes that kvevents does not take at
 *            once are dropped and counted (routed_dropped), and a hole in seq is skipped there.
 * Held       Each message wakes three threads here and there, which costs more than what it says.
 *            So notes are held for NOTES_HOLD_NS, or until there are many, and leave as the parts
 *            of one message.  Until kvevents knows, policy remembers by itself (overlay.h), fifty
 *            times as long.
 * Threads    the loop's.
 */
#pragma once
#include "actors/common/birth.h"
#include "proto/messages.h"
#include "shm/cell.h"
#include "shm/process.h"

#define NOTES_HOLD_NS 10000000ull       /* from the first one held */
#define NOTES_MAX 128u                  /* held at most; half of what kvevents takes in a turn */

struct notes {
	void *sock;                     /* owned ZMQ PUSH */
	struct column *column;          /* borrowed: routed_sent */
	struct process_segment *process;/* borrowed */
	uint32_t index, incarnation;
	uint64_t note;                  /* the word that goes with each */
	uint64_t seq, held_seq;         /* newest one made; newest one held */
	/* owned; MESSAGE_MAX is not reached: hashes are bounded by the answer */
	char *buf;
	size_t cap;
	size_t end[NOTES_MAX];          /* bytes of buf up to the end of each note held */
	unsigned held;
	mono_ns due_ns;                 /* when they must leave; 0: none is held */
};

int notes_open(struct notes *ret, void *zmq_ctx, const struct birth *birth, struct column *column,
	       struct process_segment *process);
void notes_close(struct notes *n);

void notes_routed(struct notes *n, uint16_t row, uint32_t row_gen, const struct rec_root *root,
		  mono_ns now);
void notes_proof(struct notes *n, uint16_t row, uint32_t row_gen, const struct rec_root *root,
		 uint32_t cached_tokens, mono_ns now);
void notes_flush(struct notes *n);
	/* Sends what is held; the owner calls it at due_ns. */
