/* shm/limit.h -- how much each tenant may still do, and what it has used.
 *
 *      segment header (geometry: tenants, columns)
 *      | limit_tenant 128 x tenants | columns x { limit_column 64 | limit_use 256 x tenants }
 *
 * A rate (requests, prompt tokens, completion tokens a minute) is one word: the time at which the
 * tenant's bucket is full again (GCRA).  A bucket holds what one minute may use, so that a tenant
 * that was idle may use two minutes' worth within one; over t minutes it is given at most t + 1.
 * What is not known (a length before it was read) is charged when it is: the word may then lie more
 * than a minute ahead, and nothing is given until it has come near enough.
 *
 * Who        a tenant is its name: a row stays with it over reloads, policy swaps, upgrades and
 *            deaths of whomever; it ends with the supervisor, whose successor makes all anew.
 *            A row is the first free one from uid % tenants on; none becomes free again, but one
 *            that nobody names or uses may be given to another tenant who passes it on that way.
 *            The rates are not here: each process has them from its documents.
 * Memory     pages are taken when touched: columns that no ingress ever had are not read.
 * Writers    tenant: name, uid, blocked, named by the supervisor; full, spent by any ingress, by
 *            CAS.  Column: incarnation by the supervisor, the rest by that ingress; once it is
 *            dead the supervisor sets `concurrent` to 0, and counters go on under the next owner.
 * Readers    anybody.
 * Order      U1 release-store of uid after name and words; U2 acquire-load by who looks for it.
 *            A reservation is noted in the slot (NOTED), then taken (CAS), then marked TAKEN; at
 *            the end it is settled (CAS), then the slot says NONE (tests/race/models/refunds.pml).
 *            Concurrency is added first (seq_cst), then all columns are summed: two that race may
 *            both be refused, never both be let in above the limit.
 * Crash      an ingress stops before
 *              NOTED            nothing happened
 *              the CAS, TAKEN   noted, perhaps taken: the supervisor gives it back either way, too
 *                               much where it was not taken
 *              NONE             it was settled, and the supervisor gives it back once more; in
 *                               either case one request's amount per slot at most, and never is
 *                               one kept that is over
 *              spent            that one request costs nothing
 *            The supervisor repairs: limits_refund, limits_column_leave, before it frees the slots.
 *            It stops before U1: the row has no tenant.
 * Version    changing size, order or meaning of anything above bumps LIMITS_LAYOUT.
 */
#pragma once
#include "shm/segment.h"
#include "shm/slot.h"

#define LIMITS_LAYOUT   1u
#define LIMIT_TENANTS   16384u          /* rows; MANIFEST_TENANTS_MAX at 0.6 */
#define LIMIT_COLUMNS   128u            /* ingress incarnations at once */
#define LIMIT_NAME_MAX  64u             /* bytes, ended by a 0 */
#define LIMIT_RATE_MAX  10000000000ull  /* a minute: 6 ns each */
#define LIMIT_NEVER     UINT64_MAX      /* waiting does not help */
#define LIMIT_MONEY     1000000u        /* of these are one unit of money */

enum limit_kind { LIMIT_REQUESTS = 0, LIMIT_PROMPT, LIMIT_COMPLETION, LIMIT_KINDS };

/* Why a tenant's request was not let in. */
enum limit_refusal {
	LIMIT_OK = 0,
	LIMIT_BY_REQUESTS,
	LIMIT_BY_PROMPT,
	LIMIT_BY_COMPLETION,
	LIMIT_BY_CONCURRENT,
	LIMIT_BY_BUDGET,
	LIMIT_BY_BLOCK,
	LIMIT_BY_RULE,                  /* of its policy: not a limit, but counted here, too */
	LIMIT_REFUSALS
};

struct limit_tenant {
	_Atomic uint64_t uid;           /* limit_uid(name); 0: no tenant */
	_Atomic uint32_t blocked;       /* by the operator, until it is unblocked */
	_Atomic uint32_t named;         /* newest generation of documents with that name */
	_Atomic uint64_t full[LIMIT_KINDS];     /* mono ns; at or before now: full */
	_Atomic uint64_t spent;         /* day 16 (UTC, since 1970, wrapping) | 1e-6 money 48 */
	char name[LIMIT_NAME_MAX];
	uint64_t pad[2];
};
_Static_assert(sizeof(struct limit_tenant) == 128, "limit_tenant");
_Static_assert(offsetof(struct limit_tenant, full) == 16, "limit_tenant");
_Static_assert(offsetof(struct limit_tenant, name) == 48, "limit_tenant");

#define LIMIT_TTFT_BUCKETS 12u          /* limit_ttft_ms, and above */

struct limit_use {                      /* counters but for the first */
	_Atomic uint64_t concurrent;            /* requests let in and not over */
	_Atomic uint64_t requests;              /* let in */
	_Atomic uint64_t prompt, completion, cached;    /* tokens, as answers said */
	_Atomic uint64_t estimated;             /* requests whose tokens no answer said */
	_Atomic uint64_t cost;                  /* 1e-6 money */
	_Atomic uint64_t ttft_us;               /* sum over ttft[] */
	_Atomic uint64_t refused[LIMIT_REFUSALS];
	_Atomic uint64_t ttft[LIMIT_TTFT_BUCKETS];      /* requests, each in one */
	uint64_t pad[4];
};
_Static_assert(sizeof(struct limit_use) == 256, "limit_use");
extern const uint32_t limit_ttft_ms[LIMIT_TTFT_BUCKETS - 1];    /* upper ends */

struct limit_column {
	_Atomic uint32_t incarnation;   /* of the ingress that writes it; 0: nobody */
	_Atomic uint32_t taken;         /* not 0: it had one */
	uint64_t pad[7];
};
_Static_assert(sizeof(struct limit_column) == 64, "limit_column");

struct limits {                         /* process-local view */
	struct segment seg;
	struct limit_tenant *tenant;    /* NULL: not attached */
	uint32_t tenants, columns;
};

#define LIMIT_NO_ROW    UINT32_MAX

int limits_create(struct limits *ret);          /* S; published.  0, -ENOMEM, -errno */
int limits_attach(struct limits *ret, int fd, bool writable);
	/* Takes fd.  0, -ESTALE, -EBADMSG, -ENOMEM. */
void limits_detach(struct limits *l);

uint64_t limit_uid(const char *name, size_t len);       /* never 0 */
uint32_t limits_find(const struct limits *l, uint64_t uid);
	/* Row of that tenant; LIMIT_NO_ROW. */

/* ---- the supervisor ---- */
uint32_t limits_name(struct limits *l, const char *name, uint32_t generation,
		     uint32_t oldest_generation);
	/* The row of that tenant, which these documents name; a free one, else one that no
	 * generation from the oldest on names and that has nothing in flight.  LIMIT_NO_ROW: there
	 * is none. */
int limits_column_take(struct limits *l, uint32_t incarnation);         /* 0, -ENOSPC */
void limits_column_leave(struct limits *l, uint32_t incarnation);       /* it is dead */
void limits_refund(struct limits *l, struct slots *slots);
	/* Its slots' reservations go back, and are none any more. */

/* ---- rates: any ingress ---- */
struct limit_left {                     /* for people and headers */
	uint64_t limit, remaining;      /* units */
	uint64_t full_ns;               /* from now until the bucket is full */
};

uint64_t limit_ns(uint64_t per_minute, uint64_t n);
	/* What n units cost, rounded up; saturates at LIMIT_NEVER.  per_minute at least 1. */
bool limit_take(_Atomic uint64_t *full, uint64_t per_minute, uint64_t n, mono_ns now,
		uint64_t *ret_wait_ns);
	/* False: not so many now; in *ret_wait_ns there are, LIMIT_NEVER: more than a bucket. */
bool limit_has(const _Atomic uint64_t *full, uint64_t per_minute, uint64_t n, mono_ns now,
	       uint64_t *ret_wait_ns);
	/* The same, taking nothing. */
void limit_settle(_Atomic uint64_t *full, uint64_t taken_ns, uint64_t used_ns, mono_ns now);
	/* So much was taken, so much is used: the rest goes back, or is charged. */
bool limit_reserve(const struct limits *l, struct slot *slot, uint32_t row, enum limit_kind kind,
		   uint64_t per_minute, uint64_t n, mono_ns now, uint64_t *ret_wait_ns);
	/* limit_take() for a slot, whose reserve[kind] says so.  True too where per_minute is 0, or
	 * where it has reserved already: nothing is done then. */
void limit_return(const struct limits *l, struct slot *slot, enum limit_kind kind,
		  uint64_t per_minute, uint64_t used, mono_ns now);
	/* Its reservation, if it has one, is settled with what was used, and is none any more. */
struct limit_left limit_look(const _Atomic uint64_t *full, uint64_t per_minute, mono_ns now);

/* ---- money ---- */
uint16_t limit_day(wall_ns now);
void limit_spend(struct limit_tenant *t, uint16_t day, uint64_t cost);
	/* Any ingress.  What was spent on an earlier day is forgotten; an older day's cost, come
	 * late, is not added. */
uint64_t limit_spent(const struct limit_tenant *t, uint16_t day);
uint64_t limit_day_left_ns(wall_ns now);                /* until the next day begins */

/* ---- columns ---- */
struct limit_use *limits_use(const struct limits *l, uint32_t incarnation);
	/* [row]; the column of that ingress; NULL: it has none. */
bool limit_enter(const struct limits *l, struct limit_use *own, uint32_t row, uint64_t most);
	/* One request more is in flight, unless those of all ingresses were `most` already. */
void limit_leave(struct limit_use *own, uint32_t row);
void limits_sum(const struct limits *l, uint32_t row, struct limit_use *ret);
	/* Over all columns, each word as it stands. */
void limit_ttft(struct limit_use *use, uint64_t us);    /* owner */
static inline void
limit_count(_Atomic uint64_t *counter, uint64_t n)      /* owner */
{
	atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

/* What a slot has reserved is one word there. */
static inline uint32_t
limit_id(uint32_t row, enum limit_kind kind)
{
	return row << 8 | (uint32_t)kind;
}
static inline uint32_t limit_id_row(uint32_t id) { return id >> 8; }
static inline uint32_t limit_id_kind(uint32_t id) { return id & 255; }

const char *limit_kind_name(enum limit_kind kind);              /* "requests", ... */
const char *limit_refusal_name(enum limit_refusal refusal);     /* one word */
