/* actors/pointsctl/audit.c -- see audit.h. */
#include "actors/pointsctl/audit.h"

/* Test builds define this: the writer works in the middle of a pass. */
#ifndef AUDIT_POINT
#define AUDIT_POINT() ((void)0)
#endif

/* What moves whenever the writer does anything a pass could stumble over. */
static uint64_t
movement(const struct index *index)
{
	const struct index_header *h = index_head(index);
	uint32_t max_slots;
	const struct index_slot *slots = index_slots(index, &max_slots);
	uint64_t sum = atomic_load_explicit(&h->slots_epoch, memory_order_acquire);

#define MIX(word) (sum = sum * 0x9e3779b97f4a7c15u + \
		   atomic_load_explicit(&(word), memory_order_relaxed))
	for (uint32_t id = 1; id <= max_slots; id++) {
		MIX(slots[id].stored);
		MIX(slots[id].removed);
		MIX(slots[id].word);
	}
	MIX(h->scrubbed);
	MIX(h->evictions);
	MIX(h->recoveries);
#undef MIX
	return sum;
}

static void
keep_least(struct index_audit *least, const struct index_audit *a)
{
#define LEAST(field) (least->field = a->field < least->field ? a->field : least->field)
	LEAST(duplicates);
	LEAST(unreachable);
	LEAST(saturated);
	LEAST(overcounted);
	LEAST(garbage);
#undef LEAST
	least->entries = a->entries;            /* of the newest pass */
	least->holders = a->holders;
}

unsigned
audit_passes(const struct index *index, struct index_audit *ret, bool *ret_exact)
{
	unsigned n = 0;

	*ret_exact = false;
	while (n < AUDIT_PASSES && !*ret_exact) {
		uint64_t before = movement(index);
		struct index_audit a;

		if (index_audit(index, &a) < 0)
			return 0;
		AUDIT_POINT();
		*ret_exact = movement(index) == before;
		if (n++ == 0 || *ret_exact)
			*ret = a;
		else
			keep_least(ret, &a);
	}
	return n;
}
