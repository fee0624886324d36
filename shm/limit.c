/* shm/limit.c -- tenants' buckets and uses; layout, order and crashes in limit.h. */
#include "shm/limit.h"

#include <errno.h>
#include <string.h>
#include <xxhash.h>

#ifndef LIMIT_STORE_POINT               /* race_limit stops a writer there */
#define LIMIT_STORE_POINT() ((void)0)
#endif

#define MINUTE_NS   60000000000ull
#define DAY_NS      86400000000000ull
#define MONEY_MASK  ((1ull << 48) - 1)

const uint32_t limit_ttft_ms[LIMIT_TTFT_BUCKETS - 1] = {
	50, 100, 250, 500, 1000, 2000, 4000, 8000, 15000, 30000, 60000,
};

static size_t
column_size(uint64_t tenants)
{
	return sizeof(struct limit_column) + (size_t)tenants * sizeof(struct limit_use);
}

static size_t
limits_size(uint64_t tenants, uint64_t columns)
{
	return SEGMENT_BODY + (size_t)tenants * sizeof(struct limit_tenant) +
	       (size_t)columns * column_size(tenants);
}

int
limits_create(struct limits *ret)
{
	uint64_t geometry[4] = {LIMIT_TENANTS, LIMIT_COLUMNS};
	struct limits l = {.tenants = LIMIT_TENANTS, .columns = LIMIT_COLUMNS};
	int r = segment_create(&l.seg, SEGMENT_LIMITS, LIMITS_LAYOUT,
			       limits_size(l.tenants, l.columns), geometry);

	if (r < 0)
		return r;
	l.tenant = segment_body(&l.seg);
	l.seg.head->owner_role = ROLE_INGRESS;
	segment_publish(&l.seg);
	*ret = l;
	return 0;
}

int
limits_attach(struct limits *ret, int fd, bool writable)
{
	struct limits l = {0};
	uint64_t tenants, columns;
	int r = segment_attach(&l.seg, fd, SEGMENT_LIMITS, LIMITS_LAYOUT, writable);

	if (r < 0)
		return r;
	tenants = l.seg.head->geometry[0];
	columns = l.seg.head->geometry[1];
	if (tenants == 0 || tenants > 1u << 20 || columns == 0 || columns > 1u << 12 ||
	    limits_size(tenants, columns) > l.seg.size) {
		segment_detach(&l.seg);
		return -EBADMSG;
	}
	l.tenants = (uint32_t)tenants;
	l.columns = (uint32_t)columns;
	l.tenant = segment_body(&l.seg);
	*ret = l;
	return 0;
}

void
limits_detach(struct limits *l)
{
	segment_detach(&l->seg);
	*l = (struct limits){.seg.fd = -1};
}

/* ---- tenants ---- */

uint64_t
limit_uid(const char *name, size_t len)
{
	uint64_t uid = XXH3_64bits(name, len);

	return uid ? uid : 1;
}

/* The n-th place to look for it. */
static uint32_t
place(const struct limits *l, uint64_t uid, uint32_t n)
{
	return (uint32_t)((uid % l->tenants + n) % l->tenants);
}

uint32_t
limits_find(const struct limits *l, uint64_t uid)
{
	for (uint32_t n = 0; l->tenant && n < l->tenants; n++) {
		uint32_t row = place(l, uid, n);
		uint64_t there =
			atomic_load_explicit(&l->tenant[row].uid, memory_order_acquire); /* U2 */

		if (there == uid)
			return row;
		if (there == 0)
			break;
	}
	return LIMIT_NO_ROW;
}

static struct limit_column *
column_at(const struct limits *l, uint32_t i)
{
	return (struct limit_column *)(void *)((char *)(l->tenant + l->tenants) +
					       (size_t)i * column_size(l->tenants));
}

static struct limit_use *
use_of(struct limit_column *column)
{
	return (struct limit_use *)(column + 1);
}

static uint64_t
in_flight(const struct limits *l, uint32_t row)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < l->columns; i++) {
		struct limit_column *c = column_at(l, i);

		if (atomic_load_explicit(&c->incarnation, memory_order_seq_cst))
			n += atomic_load_explicit(&use_of(c)[row].concurrent,
						  memory_order_seq_cst);
	}
	return n;
}

/* A row's counters are those of its tenant: another begins at 0. */
static void
row_clear(struct limits *l, uint32_t row)
{
	struct limit_tenant *t = &l->tenant[row];

	atomic_store_explicit(&t->blocked, 0, memory_order_relaxed);
	for (unsigned k = 0; k < LIMIT_KINDS; k++)
		atomic_store_explicit(&t->full[k], 0, memory_order_relaxed);
	atomic_store_explicit(&t->spent, 0, memory_order_relaxed);
	for (uint32_t i = 0; i < l->columns; i++) {
		struct limit_column *c = column_at(l, i);

		if (atomic_load_explicit(&c->taken, memory_order_relaxed))
			memset(&use_of(c)[row], 0, sizeof(struct limit_use));
	}
}

uint32_t
limits_name(struct limits *l, const char *name, uint32_t generation, uint32_t oldest_generation)
{
	size_t len = strnlen(name, LIMIT_NAME_MAX - 1);
	uint64_t uid = limit_uid(name, len);
	uint32_t row = limits_find(l, uid);

	for (uint32_t n = 0; row == LIMIT_NO_ROW && n < l->tenants; n++)
		if (atomic_load_explicit(&l->tenant[place(l, uid, n)].uid,
					 memory_order_relaxed) == 0)
			row = place(l, uid, n);
	for (uint32_t n = 0; row == LIMIT_NO_ROW && n < l->tenants; n++)
		if (atomic_load_explicit(&l->tenant[place(l, uid, n)].named,
					 memory_order_relaxed) < oldest_generation &&
		    in_flight(l, place(l, uid, n)) == 0)
			row = place(l, uid, n);
	if (row == LIMIT_NO_ROW)
		return row;
	struct limit_tenant *t = &l->tenant[row];

	atomic_store_explicit(&t->named, generation, memory_order_relaxed);
	if (atomic_load_explicit(&t->uid, memory_order_relaxed) == uid)
		return row;
	row_clear(l, row);
	memset(t->name, 0, sizeof t->name);
	memcpy(t->name, name, len);
	LIMIT_STORE_POINT();
	atomic_store_explicit(&t->uid, uid, memory_order_release);      /* U1 */
	return row;
}

/* ---- rates ---- */

uint64_t
limit_ns(uint64_t per_minute, uint64_t n)
{
	unsigned __int128 ns = ((unsigned __int128)n * MINUTE_NS + per_minute - 1) / per_minute;

	return ns < LIMIT_NEVER ? (uint64_t)ns : LIMIT_NEVER;
}

/* May so much be added to a bucket that is full at `full`?  *ret: when it would be full then. */
static bool
fits(uint64_t full, uint64_t cost, mono_ns now, uint64_t *ret, uint64_t *ret_wait_ns)
{
	uint64_t from = full > now ? full : now;

	if (cost > MINUTE_NS) {
		*ret_wait_ns = LIMIT_NEVER;
		return false;
	}
	if (from + cost > now + MINUTE_NS) {
		*ret_wait_ns = from + cost - now - MINUTE_NS;
		return false;
	}
	*ret = from + cost;
	*ret_wait_ns = 0;
	return true;
}

bool
limit_take(_Atomic uint64_t *full, uint64_t per_minute, uint64_t n, mono_ns now,
	   uint64_t *ret_wait_ns)
{
	uint64_t old = atomic_load_explicit(full, memory_order_relaxed);
	uint64_t cost = limit_ns(per_minute, n), next;

	do {
		if (!fits(old, cost, now, &next, ret_wait_ns))
			return false;
		LIMIT_STORE_POINT();
	} while (!atomic_compare_exchange_weak_explicit(full, &old, next, memory_order_relaxed,
							memory_order_relaxed));
	return true;
}

bool
limit_has(const _Atomic uint64_t *full, uint64_t per_minute, uint64_t n, mono_ns now,
	  uint64_t *ret_wait_ns)
{
	uint64_t next;

	return fits(atomic_load_explicit(full, memory_order_relaxed), limit_ns(per_minute, n), now,
		    &next, ret_wait_ns);
}

void
limit_settle(_Atomic uint64_t *full, uint64_t taken_ns, uint64_t used_ns, mono_ns now)
{
	uint64_t old = atomic_load_explicit(full, memory_order_relaxed), next;

	if (taken_ns == used_ns)
		return;
	do {
		if (used_ns < taken_ns) {
			uint64_t back = taken_ns - used_ns;

			next = old > back ? old - back : 0;
		} else {
			uint64_t from = old > now ? old : now, more = used_ns - taken_ns;

			next = more < LIMIT_NEVER / 2 - from ? from + more : LIMIT_NEVER / 2;
		}
		LIMIT_STORE_POINT();
	} while (!atomic_compare_exchange_weak_explicit(full, &old, next, memory_order_relaxed,
							memory_order_relaxed));
}

bool
limit_reserve(const struct limits *l, struct slot *slot, uint32_t row, enum limit_kind kind,
	      uint64_t per_minute, uint64_t n, mono_ns now, uint64_t *ret_wait_ns)
{
	*ret_wait_ns = 0;
	if (per_minute == 0 || slot->reserve[kind].state != RESERVE_NONE)
		return true;
	slot->reserve[kind].limit = limit_id(row, kind);
	slot->reserve[kind].amount = limit_ns(per_minute, n);
	atomic_thread_fence(memory_order_release);
	LIMIT_STORE_POINT();
	slot->reserve[kind].state = RESERVE_NOTED;
	atomic_thread_fence(memory_order_release);
	if (!limit_take(&l->tenant[row].full[kind], per_minute, n, now, ret_wait_ns)) {
		slot->reserve[kind].state = RESERVE_NONE;
		return false;
	}
	LIMIT_STORE_POINT();
	slot->reserve[kind].state = RESERVE_TAKEN;
	return true;
}

void
limit_return(const struct limits *l, struct slot *slot, enum limit_kind kind,
	     uint64_t per_minute, uint64_t used, mono_ns now)
{
	if (slot->reserve[kind].state == RESERVE_NONE)
		return;
	limit_settle(&l->tenant[limit_id_row(slot->reserve[kind].limit)].full[kind],
		     slot->reserve[kind].amount, limit_ns(per_minute, used), now);
	atomic_thread_fence(memory_order_release);
	LIMIT_STORE_POINT();
	slot->reserve[kind].state = RESERVE_NONE;
}

struct limit_left
limit_look(const _Atomic uint64_t *full, uint64_t per_minute, mono_ns now)
{
	uint64_t at = atomic_load_explicit(full, memory_order_relaxed);
	struct limit_left left = {.limit = per_minute, .full_ns = at > now ? at - now : 0};

	if (left.full_ns < MINUTE_NS)
		left.remaining = (uint64_t)((unsigned __int128)(MINUTE_NS - left.full_ns) *
					    per_minute / MINUTE_NS);
	return left;
}

/* ---- money ---- */

uint16_t
limit_day(wall_ns now)
{
	return (uint16_t)(now / DAY_NS);
}

uint64_t
limit_day_left_ns(wall_ns now)
{
	return DAY_NS - now % DAY_NS;
}

void
limit_spend(struct limit_tenant *t, uint16_t day, uint64_t cost)
{
	uint64_t old = atomic_load_explicit(&t->spent, memory_order_relaxed), next, sum;

	do {
		int16_t newer = (int16_t)(uint16_t)(day - (uint16_t)(old >> 48));

		if (newer < 0)
			return;
		sum = newer > 0 ? 0 : old & MONEY_MASK;
		sum = cost < MONEY_MASK - sum ? sum + cost : MONEY_MASK;
		next = (uint64_t)day << 48 | sum;
		LIMIT_STORE_POINT();
	} while (!atomic_compare_exchange_weak_explicit(&t->spent, &old, next,
							memory_order_relaxed,
							memory_order_relaxed));
}

uint64_t
limit_spent(const struct limit_tenant *t, uint16_t day)
{
	uint64_t spent = atomic_load_explicit(&t->spent, memory_order_relaxed);

	return (uint16_t)(spent >> 48) == day ? spent & MONEY_MASK : 0;
}

/* ---- columns ---- */

static struct limit_column *
column_of(const struct limits *l, uint32_t incarnation)
{
	for (uint32_t i = 0; l->tenant && i < l->columns; i++)
		if (atomic_load_explicit(&column_at(l, i)->incarnation, memory_order_acquire) ==
		    incarnation)
			return column_at(l, i);
	return NULL;
}

int
limits_column_take(struct limits *l, uint32_t incarnation)
{
	struct limit_column *c = column_of(l, 0);

	if (!c)
		return -ENOSPC;
	atomic_store_explicit(&c->taken, 1, memory_order_relaxed);
	atomic_store_explicit(&c->incarnation, incarnation, memory_order_release);
	return 0;
}

void
limits_column_leave(struct limits *l, uint32_t incarnation)
{
	struct limit_column *c = column_of(l, incarnation);

	for (uint32_t i = 0; c && i < l->tenants; i++)
		if (atomic_load_explicit(&use_of(c)[i].concurrent, memory_order_relaxed))
			atomic_store_explicit(&use_of(c)[i].concurrent, 0, memory_order_seq_cst);
	if (c)
		atomic_store_explicit(&c->incarnation, 0, memory_order_release);
}

void
limits_refund(struct limits *l, struct slots *slots)
{
	for (uint32_t i = 1; l->tenant && i <= slots->capacity; i++)
		for (unsigned k = 0; k < SLOT_RESERVES; k++) {
			struct slot *s = &slots->slot[i];
			uint32_t id = s->reserve[k].limit;

			if (s->reserve[k].state == RESERVE_NONE)
				continue;
			if (limit_id_row(id) < l->tenants && limit_id_kind(id) < LIMIT_KINDS)
				limit_settle(&l->tenant[limit_id_row(id)].full[limit_id_kind(id)],
					     s->reserve[k].amount, 0, 0);
			s->reserve[k].state = RESERVE_NONE;
		}
}

struct limit_use *
limits_use(const struct limits *l, uint32_t incarnation)
{
	struct limit_column *c = column_of(l, incarnation);

	return c ? use_of(c) : NULL;
}

bool
limit_enter(const struct limits *l, struct limit_use *own, uint32_t row, uint64_t most)
{
	LIMIT_STORE_POINT();
	atomic_fetch_add_explicit(&own[row].concurrent, 1, memory_order_seq_cst);
	if (in_flight(l, row) <= most)
		return true;
	limit_leave(own, row);
	return false;
}

void
limit_leave(struct limit_use *own, uint32_t row)
{
	LIMIT_STORE_POINT();
	atomic_fetch_sub_explicit(&own[row].concurrent, 1, memory_order_seq_cst);
}

void
limits_sum(const struct limits *l, uint32_t row, struct limit_use *ret)
{
	enum { WORDS = sizeof(struct limit_use) / sizeof(uint64_t) };
	uint64_t sum[WORDS] = {0};

	for (uint32_t i = 0; i < l->columns; i++) {
		struct limit_column *c = column_at(l, i);
		const _Atomic uint64_t *word = &use_of(c)[row].concurrent;

		if (!atomic_load_explicit(&c->taken, memory_order_relaxed))
			continue;
		for (unsigned w = 0; w < WORDS; w++)
			sum[w] += atomic_load_explicit(&word[w], memory_order_relaxed);
	}
	memcpy(ret, sum, sizeof *ret);
}

void
limit_ttft(struct limit_use *use, uint64_t us)
{
	unsigned i = 0;

	while (i < LIMIT_TTFT_BUCKETS - 1 && us > (uint64_t)limit_ttft_ms[i] * 1000)
		i++;
	limit_count(&use->ttft[i], 1);
	limit_count(&use->ttft_us, us);
}

/* ---- names ---- */

const char *
limit_kind_name(enum limit_kind kind)
{
	static const char *const names[LIMIT_KINDS] = {
		"requests", "prompt_tokens", "completion_tokens",
	};

	return (unsigned)kind < LIMIT_KINDS ? names[kind] : "unknown";
}

const char *
limit_refusal_name(enum limit_refusal refusal)
{
	static const char *const names[LIMIT_REFUSALS] = {
		"ok", "requests", "prompt_tokens", "completion_tokens", "concurrent", "budget",
		"blocked", "rule",
	};

	return (unsigned)refusal < LIMIT_REFUSALS ? names[refusal] : "unknown";
}
