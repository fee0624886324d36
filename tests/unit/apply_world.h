/* tests/unit/apply_world.h -- workers' rows, an index and an apply, and an engine's voice. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "actors/kvevents/apply.h"
#include "shm/index.h"

#define SEED 42
#define BLOCK 16u
#define ROWS 4u
#define LEASE_S(n) ((n) * 1000000000ull)

struct world {
	struct rows rows;
	struct segment seg;
	struct process_segment process;
	struct index_writer *writer;
	struct index *reader;
	struct apply *apply;
	mono_ns now;
	int rank;                               /* what batches say; below 0: nil */
};

void begin(struct world *w, uint32_t max_slots);
void end(struct world *w);              /* audits the index */
void born(struct world *w);             /* a new process finds the segments of the old one */
void dies(struct world *w);
enum cache_state state_of(const struct world *w, uint16_t row);
enum cache_reason reason_of(const struct world *w, uint16_t row);

struct event {
	enum { STORE, REMOVE, CLEAR, BREAK } type;      /* BREAK: a removal nobody can read */
	const uint64_t *hashes;
	unsigned n;
	uint64_t parent;                        /* 0: nil */
	const uint32_t *tokens;                 /* NULL: none, and no block size */
	uint32_t block;                         /* 0: BLOCK */
	const char *medium, *lora, *salt, *mm, *kind;
	bool keys;                              /* extra keys are said: none */
	unsigned group;                         /* + 1; 0: not said */
};

struct bytes {
	void *p;                                /* to be freed */
	size_t n;
};

struct bytes batch_of(const struct world *w, uint64_t seq, const char *publisher,
		      const struct event *e, unsigned n);
void say_as(struct world *w, uint16_t row, uint64_t seq, const char *publisher,
	    const struct event *e, unsigned n);
void say_all(struct world *w, uint16_t row, uint64_t seq, const struct event *e, unsigned n);
#define SAY(w, row, seq, ...) \
	say_all(w, row, seq, (struct event[]){__VA_ARGS__}, \
		sizeof((struct event[]){__VA_ARGS__}) / sizeof(struct event))
#define STORED(...) {.type = STORE, __VA_ARGS__}
#define REMOVED(...) {.type = REMOVE, __VA_ARGS__}
#define CLEARED {.type = CLEAR}
#define CLEARED_OF(tier) {.type = CLEAR, .medium = (tier)}
#define BROKEN(...) {.type = BREAK, __VA_ARGS__}

#define PROMPT_BLOCKS 32u
struct prompt {
	uint32_t tokens[PROMPT_BLOCKS * BLOCK];
	uint64_t engine[PROMPT_BLOCKS];         /* what the engine calls its blocks */
};

void say_case(struct world *w, uint16_t row, uint64_t seq, const char *name);
	/* The payload in tests/data/cases/NAME.hex. */
void prompt_make(struct prompt *p, uint32_t first);
struct index_depth depth_in(const struct world *w, uint16_t row, const struct prompt *p,
			    uint32_t block, const char *lora, const char *salt);
struct index_depth depth_of(const struct world *w, uint16_t row, const struct prompt *p);
void note(struct world *w, uint16_t row, uint64_t seq, const struct prompt *p, unsigned blocks);
