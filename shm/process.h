/* shm/process.h -- what one process says of itself: counters, panic text, journal ring.
 *
 *      segment header | process_header 512 | counters 8 x 256 | journal_header 128 | ring
 *
 * For a policy process this is the only thing it may write, and nothing any decision reads.
 * Writers    the owner.  Readers: admin, metrics (journals), supervisor (panic text), pointsctl.
 * Crash      the supervisor prints the panic text when it reaps the owner; the segment stays until
 *            the owner's successor is ready, so that explain and record can finish.
 */
#pragma once
#include "shm/journal.h"
#include "shm/segment.h"

#define PROCESS_LAYOUT  1u
#define PROCESS_COUNTERS 256u
#define PANIC_MAX       256u

enum counter {
	COUNTER_NONE = 0,
#define COUNTER(name, type, owner, unit, doc) COUNTER_##name,
#include "shm/counters.def"
#undef COUNTER
	COUNTER_END
};
_Static_assert(COUNTER_END <= PROCESS_COUNTERS,
	       "counters.def outgrew the segment: bump PROCESS_LAYOUT");

struct counter_info {
	const char *name, *type, *owner, *unit, *doc;   /* type: counter | gauge */
};
extern const struct counter_info counter_info[COUNTER_END];

struct process_header {
	uint16_t role, index;                   /* enum process_role */
	uint32_t incarnation, generation;       /* generation: of the configuration, policy only */
	uint32_t pad0;
	char build[32];
	char panic[PANIC_MAX];
	uint64_t pad1[26];
};
_Static_assert(sizeof(struct process_header) == 512, "process_header");

struct process_segment {                /* process-local view */
	struct segment seg;
	struct process_header *head;
	_Atomic uint64_t *counter;
	struct journal journal;
};

int process_create(struct process_segment *ret, enum process_role role, uint32_t index,
		   uint32_t incarnation, uint32_t generation, uint64_t journal_bytes);     /* S */
int process_attach(struct process_segment *ret, int fd, bool writable); /* takes fd */
void process_detach(struct process_segment *process);

/* Owner, any thread. */
static inline void
count_add(struct process_segment *p, enum counter c, uint64_t n)
{
	atomic_fetch_add_explicit(&p->counter[c], n, memory_order_relaxed);
}
static inline void
count_set(struct process_segment *p, enum counter c, uint64_t n)
{
	atomic_store_explicit(&p->counter[c], n, memory_order_relaxed);
}
static inline uint64_t
count_get(const struct process_segment *p, enum counter c)
{
	return atomic_load_explicit(&p->counter[c], memory_order_relaxed);
}
