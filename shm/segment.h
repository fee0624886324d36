/* shm/segment.h -- one shared-memory segment: make, seal, attach, check.
 *
 * Every byte that passes between our processes through memory lives in a
 * sealed memfd made by the supervisor.  The supervisor makes it, makes the
 * read-only descriptor for readers before anyone else holds a writable one,
 * and passes the writable one to the single writer.
 *
 *      0        8        12      16     24        32        40          48
 *      +--------+--------+-------+------+---------+---------+-----------+
 *      | magic  | layout | kind  | size | instance| owner   | writer    |
 *      | (last) |        |       |      | (random)| idx inc | pid start |
 *      +--------+--------+-------+------+---------+---------+-----------+
 *      64                72              80 .. 112            128
 *      | epoch           | heartbeat_ns  | geometry[4]        | body ...
 *
 * Writers    Supervisor: everything but writer_*, epoch and heartbeat_ns, before `magic`.
 *            The segment's owner: writer_*, epoch, heartbeat_ns.
 * Order      S1 release-store of magic after the whole header and body are initialised,
 *            A1 acquire-load of magic in segment_attach.
 * Crash      The maker stops before
 *              magic             nobody attaches (-EBADMSG); the memfd goes with its descriptors
 *            The owner stops, in segment_claim, before a store of
 *              writer_start      the predecessor is still named, and both words tell it is dead
 *              writer_pid        a pid whose start time does not fit: told as dead
 *              heartbeat_ns      the predecessor's, old: told as late
 *              epoch             readers take the new writer for the old one; nothing but what
 *                                tools show hangs on it
 *            The supervisor holds every descriptor, so a segment outlives its writer; the next
 *            owner claims it anew or, where a kind is of one incarnation, gets a fresh one.
 *            When the supervisor dies, its successor makes all segments anew; nobody of the new
 *            set attaches to an old one.
 * Version    Each kind has its own LAYOUT number (rows.h, index.h, ...); attach refuses others.
 */
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uint64_t mono_ns;       /* CLOCK_MONOTONIC; never steps, dies with the machine */
typedef uint64_t wall_ns;       /* CLOCK_REALTIME; may step; for people and engines only */

#define SEGMENT_MAGIC 0x504d5345474d4e54ull     /* "PMSEGMNT" */

enum segment_kind {
	SEGMENT_NONE = 0,
	SEGMENT_ROWS,           /* rows.h: workers and providers */
	SEGMENT_INDEX,          /* index.h: who holds which prefix */
	SEGMENT_COLUMN,         /* cell.h: what one ingress has in flight, per row */
	SEGMENT_SLOTS,          /* slot.h: one ingress's live requests */
	SEGMENT_ARENA,          /* arena.h: their heads and bodies */
	SEGMENT_PROCESS,        /* process.h: counters, panic text and journal of one process */
	SEGMENT_ROSTER,         /* roster.h: which processes live, which generation serves */
	SEGMENT_CONFIG,         /* manifest texts of one generation, as the loader reads them */
	SEGMENT_PINS,           /* pins.h: which worker keeps a stored response */
	SEGMENT_SECRETS,        /* its keys and certificates: common/secrets.h */
	SEGMENT_TRUST,          /* of those: who signs workers' certificates, no secret */
	SEGMENT_PROBES,         /* of those: what metrics' probes of workers need */
	SEGMENT_MODEL,          /* how one set's prompts become tokens: common/models.h */
	SEGMENT_LIMITS,         /* limit.h: what tenants may still do, and have used */
	SEGMENT_KINDS
};

enum process_role {
	ROLE_NONE = 0,
	ROLE_SUPERVISOR,
	ROLE_INGRESS,
	ROLE_KVEVENTS,
	ROLE_METRICS,
	ROLE_POLICY,
	ROLE_ADMIN,
	ROLE_TOOL,              /* pointsctl: reads, never writes */
	ROLE_MODELS,            /* makes models of folders, then ends; has no segment of its own */
	ROLE_COUNT
};

struct segment_header {
	_Atomic uint64_t magic;
	uint32_t layout;
	uint32_t kind;                  /* enum segment_kind */
	uint64_t size;                  /* bytes, whole segment */
	uint64_t instance;              /* random: two segments are never mistaken */
	uint16_t owner_role;            /* enum process_role: the one writer */
	uint16_t owner_index;
	uint32_t owner_incarnation;
	_Atomic uint32_t writer_pid;
	uint32_t pad0;
	_Atomic uint64_t writer_start;  /* clock ticks since boot, /proc/pid/stat field 22 */
	uint64_t pad1;
	_Atomic uint64_t epoch;         /* +1 at each attach by a writer */
	_Atomic uint64_t heartbeat_ns;  /* mono; the writer's loop is alive */
	uint64_t geometry[4];           /* meaning by kind */
	uint64_t pad2[2];
};
_Static_assert(sizeof(struct segment_header) == 128, "segment header");
_Static_assert(offsetof(struct segment_header, owner_role) == 32, "segment header");
_Static_assert(offsetof(struct segment_header, epoch) == 64, "segment header");
_Static_assert(offsetof(struct segment_header, geometry) == 80, "segment header");
#define SEGMENT_BODY 128u

/* Process-local handle.  Value type; owns fd and mapping. */
struct segment {
	int fd;                         /* -1: none */
	bool writable;
	struct segment_header *head;    /* start of the mapping */
	size_t size;
};

int segment_create(struct segment *ret, enum segment_kind kind, uint32_t layout, size_t size,
		   const uint64_t geometry[4]);
	/* Supervisor only.  Zero-filled sealed memfd (SHRINK GROW SEAL), mode 0400, mapped
	 * read-write,
	 * header filled but for magic.  Sizes are rounded up to pages.  0, -ENOMEM, -errno. */
int segment_freeze(int *ret_fd, enum segment_kind kind, uint32_t layout,
		   const uint64_t geometry[4], const void *bytes, size_t len);
	/* A whole segment of which nobody, its maker not either, can change a byte any more: body
	 * `bytes`, published, sealed (SHRINK GROW WRITE SEAL).  Any process; nothing is mapped, and
	 * its size is not rounded up.  0, -errno. */
bool segment_is_frozen(int fd);
	/* It carries all those seals: before what a stranger made is passed on. */
void segment_publish(struct segment *seg);
	/* S1: from here on others may attach.  Body must be initialised. */
int segment_readonly_fd(const struct segment *seg);
	/* New O_RDONLY descriptor (CLOEXEC) to pass to readers; -errno.  Make it in the
	 * supervisor. */
int segment_attach(struct segment *ret, int fd, enum segment_kind kind, uint32_t layout,
		   bool writable);
	/* Takes ownership of fd (closed on failure).  Checks the whole header against the file
	 * before
	 * any other byte is trusted.  0, -ESTALE other layout, -EBADMSG failed checks, -EACCES,
	 * -ENOMEM. */
void segment_claim(struct segment *seg);
	/* Writer, once after attach: notes pid and start time, epoch + 1, first heartbeat. */
void segment_detach(struct segment *seg);
	/* Unmaps, closes, resets; accepts a half-built or empty handle. */

uint64_t segment_touched(const struct segment *seg);
	/* Bytes of memory the segment takes, whoever touched them: blocks of its memfd.  (mincore
	 * would not do: without write permission the kernel calls every page resident.)  A system
	 * call; UINT64_MAX: unknown. */

static inline void *
segment_body(const struct segment *seg)
{
	return (char *)seg->head + SEGMENT_BODY;
}

mono_ns clock_mono(void);
wall_ns clock_wall(void);
uint64_t process_start_ticks(uint32_t pid);     /* 0: no such process */

const char *segment_kind_name(enum segment_kind kind);
const char *process_role_name(enum process_role role);
enum process_role process_role_parse(const char *name);  /* ROLE_NONE: unknown */
