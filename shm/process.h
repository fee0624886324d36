/* shm/process.h -- what one process says of itself: counters, panic text, journal ring.
 *
 *      segment header | process_header 512 | counters 8 x 256 | counter_text 64 x 256
 *                     | journal_header 128 | ring
 *
 * The counters say what they are: counter_text[c] names counter[c].  Rows of counters.def are never
 * reused, so a reader of another build takes those it knows by number and shows the others by name.
 *
 * For a policy process this is the only thing it may write, and nothing any decision reads.
 * Writers    the owner.  Readers: admin, metrics (journals), supervisor (panic text), pointsctl.
 * Crash      the owner stops before a store of:
 *              a counter         it lacks what was being counted
 *              a counter_text    `described` does not cover it: not shown
 *              `described`       texts beyond it are not shown; the next owner has its own segment
 *              the panic text    cut short; the supervisor takes it up to its last byte at most
 *              the journal       journal.h
 *            Nobody repairs: the supervisor prints the panic text when it reaps the owner, and lets
 *            the segment go.  Admin keeps its mapping of those of the last 16 dead policy and
 *            ingress processes (PM_VIEW_GONE_KEPT), so that explain and log find what they decided.
 */
#pragma once
#include "shm/journal.h"
#include "shm/segment.h"

#define PROCESS_LAYOUT  5u
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

struct counter_text {                   /* ended by a 0 each */
	char name[40], type[8], unit[16];
};
_Static_assert(sizeof(struct counter_text) == 64, "counter_text");

struct process_header {
	uint16_t role, index;                   /* enum process_role */
	uint32_t incarnation, generation;       /* generation: of the configuration, policy only */
	_Atomic uint32_t described;             /* counter_text[0 .. described-1] stand for good */
	char build[32];
	char panic[PANIC_MAX];
	uint64_t pad1[26];
};
_Static_assert(sizeof(struct process_header) == 512, "process_header");

struct process_segment {                /* process-local view */
	struct segment seg;
	struct process_header *head;
	_Atomic uint64_t *counter;
	struct counter_text *text;
	struct journal journal;
};

int process_create(struct process_segment *ret, enum process_role role, uint32_t index,
		   uint32_t incarnation, uint32_t generation, uint64_t journal_bytes);     /* S */
int process_attach(struct process_segment *ret, int fd, bool writable); /* takes fd */
void process_detach(struct process_segment *process);
void process_describe(struct process_segment *process);
	/* Owner, at birth: adds the counters of its build to those described (D1 release-stores
	 * `described` after the texts).  process_create does it for its maker's build. */
bool process_counter_text(const struct process_segment *process, uint32_t c,
			  struct counter_text *ret);
	/* Any process.  What counter[c] is by its own segment; false: not described, or not a name
	 * that could be shown (A1 acquire-loads `described`). */

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
