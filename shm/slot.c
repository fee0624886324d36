/* shm/slot.c -- tables of live requests; layout and order in slot.h. */
#include "shm/slot.h"

#include <errno.h>

static size_t
slots_size(uint32_t capacity)
{
	return SEGMENT_BODY + ((size_t)capacity + 1) * sizeof(struct slot);
}

int
slots_create(struct slots *ret, uint32_t index, uint32_t incarnation, uint32_t capacity)
{
	uint64_t geometry[4] = {capacity};
	struct slots slots = {.capacity = capacity};
	int r;

	r = segment_create(&slots.seg, SEGMENT_SLOTS, SLOTS_LAYOUT, slots_size(capacity), geometry);
	if (r < 0)
		return r;
	slots.slot = segment_body(&slots.seg);
	slots.seg.head->owner_role = ROLE_INGRESS;
	slots.seg.head->owner_index = (uint16_t)index;
	slots.seg.head->owner_incarnation = incarnation;
	segment_publish(&slots.seg);
	*ret = slots;
	return 0;
}

int
slots_attach(struct slots *ret, int fd, bool writable)
{
	struct slots slots = {0};
	int r;

	r = segment_attach(&slots.seg, fd, SEGMENT_SLOTS, SLOTS_LAYOUT, writable);
	if (r < 0)
		return r;
	uint64_t capacity = slots.seg.head->geometry[0];
	if (capacity == 0 || capacity > 1u << 24 ||
	    slots_size((uint32_t)capacity) > slots.seg.size) {
		segment_detach(&slots.seg);
		return -EBADMSG;
	}
	slots.capacity = (uint32_t)capacity;
	slots.slot = segment_body(&slots.seg);
	*ret = slots;
	return 0;
}

void
slots_detach(struct slots *slots)
{
	segment_detach(&slots->seg);
	*slots = (struct slots){.seg.fd = -1};
}

void
slots_clear(struct slots *slots)
{
	for (uint32_t i = 1; i <= slots->capacity; i++) {
		uint64_t word = atomic_load_explicit(&slots->slot[i].word, memory_order_relaxed);

		if (slot_state(word) != SLOT_FREE)
			atomic_store_explicit(&slots->slot[i].word,
					      slot_word(slot_generation(word), slot_ask(word),
							SLOT_FREE, slot_deaths(word)),
					      memory_order_release);
	}
}

const char *
slot_state_name(unsigned state)
{
	static const char *const names[] = {
		"free", "read", "asked", "held", "chosen", "sent", "stream", "end",
	};

	return state < sizeof names / sizeof *names ? names[state] : "unknown";
}
