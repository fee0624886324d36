/* shm/pins.h -- which worker keeps a stored response: response id -> row and its generation.
 *
 * A response that an engine stores lives in that engine process alone.  Whoever asks for it again,
 * or goes on from it, is to be sent there and nowhere else.
 *
 *      segment header (geometry: buckets) | bucket 128 x buckets
 *      bucket   4 x entry 32:  0 key: tag 48 | seq 16   8 value: row_gen 32 | row 16 | seq 16
 *                              16 put_ns (mono, when)   24 zero
 *
 * A bucket is chosen by the high bits of the id's 64-bit hash, the tag is its low 48, 0 is an empty
 * entry.  The hash is seeded by the segment's instance.  A full bucket gives up its oldest entry.
 *
 * Writers    any ingress, by CAS; nobody owns an entry.  Header: the supervisor.
 * Readers    policy (each question about a response), admin, tools; ingresses.
 * Order      a writer claims an entry by C1: CAS of the key to {0, seq + 1}; then by C2: CAS of the
 *            value to {row, seq + 1}, given up when a later claim was there before; then P1: CAS of
 *            the key from {0, seq + 1} to {tag, seq + 1}, which fails when somebody claimed the
 *            entry meanwhile (then another entry is tried, PINS_TRIES times).  A claim's seq is
 *            its own, so a key and a value of one seq are one writer's.  A reader loads the key
 *            (A1 acquire of P1), then the value, and believes it only if both have one seq; else it
 *            looks again, PINS_TRIES times.  seq wraps at 65,536: a writer would have to stop
 *            between C1 and P1 for so many claims of this one entry.
 * Crash      the writer stops before
 *              C1            nothing happened
 *              C2, put_ns    the entry is empty (what stood there is forgotten), and anybody may
 *                            claim it: seq goes on
 *              P1            the same, the value is nobody's
 *            Nothing is repaired because nothing is broken: a pin that was lost is one response of
 *            which the next question is told 404.
 * Void       a pin counts only while its row has that row_gen: it ends with a worker's removal,
 *            and a worker that is re-added under the same name has none.  An engine that restarts
 *            keeps its pins and says itself that it knows nothing.
 * Version    changing size, order or meaning of anything above bumps PINS_LAYOUT.
 */
#pragma once
#include "shm/segment.h"

#define PINS_LAYOUT     1u
#define PINS_WAYS       4u
#define PINS_TRIES      8u
#define PINS_MAX        (1u << 24)      /* entries; 512 MiB */

struct pins_entry {
	_Atomic uint64_t key, value, put_ns;
	uint64_t pad;
};
struct pins_bucket {
	struct pins_entry entry[PINS_WAYS];
};
_Static_assert(offsetof(struct pins_entry, value) == 8, "pins_entry");
_Static_assert(offsetof(struct pins_entry, put_ns) == 16, "pins_entry");
_Static_assert(sizeof(struct pins_bucket) == 128, "pins_bucket");

struct pins {                           /* process-local view */
	struct segment seg;
	struct pins_bucket *bucket;
	uint32_t buckets;
};

int pins_create(struct pins *ret, uint32_t capacity);                   /* S; published */
	/* Room for at least so many, rounded up to whole buckets.  0, -EINVAL, -ENOMEM. */
int pins_attach(struct pins *ret, int fd, bool writable);
	/* Takes fd.  0, -ESTALE, -EBADMSG, -ENOMEM. */
void pins_detach(struct pins *pins);

enum pins_result { PINS_PUT, PINS_EVICTED, PINS_LOST };
enum pins_result pins_put(struct pins *pins, const char *id, size_t len, uint16_t row,
			  uint32_t row_gen, mono_ns now);
	/* The id is kept there from now on.  EVICTED: another's pin gave way.  LOST: others were
	 * faster PINS_TRIES times, and it is not kept.  Any ingress; under 100 ns. */
bool pins_find(const struct pins *pins, const char *id, size_t len, uint16_t *ret_row,
	       uint32_t *ret_row_gen);
	/* Whether that row still has that generation is the caller's to check.  Anybody. */
void pins_drop(struct pins *pins, const char *id, size_t len);
	/* It is not kept any more. */
uint64_t pins_used(const struct pins *pins);
	/* Entries in use, by looking at all of them: for people. */
