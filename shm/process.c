/* shm/process.c -- a process's own segment; layout in process.h. */
#include "shm/process.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

const struct counter_info counter_info[COUNTER_END] = {
#define COUNTER(name, type, owner, unit, doc) [COUNTER_##name] = {#name, #type, #owner, unit, doc},
#include "shm/counters.def"
#undef COUNTER
};

#define PROCESS_FIXED                                                                              \
	(sizeof(struct process_header) +                                                           \
	 PROCESS_COUNTERS * (8 + sizeof(struct counter_text)) + sizeof(struct journal_header))

static void
process_view(struct process_segment *p, uint64_t journal_bytes)
{
	char *body = segment_body(&p->seg);

	p->head = (struct process_header *)(void *)body;
	body += sizeof(struct process_header);
	p->counter = (_Atomic uint64_t *)(void *)body;
	body += PROCESS_COUNTERS * 8;
	p->text = (struct counter_text *)(void *)body;
	body += PROCESS_COUNTERS * sizeof(struct counter_text);
	p->journal.head = (struct journal_header *)(void *)body;
	p->journal.ring = body + sizeof(struct journal_header);
	p->journal.size = journal_bytes;
}

void
process_describe(struct process_segment *p)
{
	uint32_t c = atomic_load_explicit(&p->head->described, memory_order_relaxed);

	if (c >= COUNTER_END)
		return;                         /* an older build has nothing to add */
	for (; c < COUNTER_END; c++) {
		const struct counter_info *info = &counter_info[c];
		struct counter_text *to = &p->text[c];

		snprintf(to->name, sizeof to->name, "%s", info->name ? info->name : "");
		snprintf(to->type, sizeof to->type, "%s", info->type ? info->type : "");
		snprintf(to->unit, sizeof to->unit, "%s", info->unit ? info->unit : "");
	}
	atomic_store_explicit(&p->head->described, COUNTER_END, memory_order_release);  /* D1 */
}

static bool
name_shown(const char *name)
{
	if (!*name)
		return false;
	for (; *name; name++)
		if (!islower((unsigned char)*name) && !isdigit((unsigned char)*name) &&
		    *name != '_')
			return false;
	return true;
}

bool
process_counter_text(const struct process_segment *p, uint32_t c, struct counter_text *ret)
{
	if (c >= PROCESS_COUNTERS ||
	    c >= atomic_load_explicit(&p->head->described, memory_order_acquire))       /* A1 */
		return false;
	*ret = p->text[c];
	ret->name[sizeof ret->name - 1] = 0;
	ret->type[sizeof ret->type - 1] = 0;
	ret->unit[sizeof ret->unit - 1] = 0;
	return name_shown(ret->name) &&
	       (strcmp(ret->type, "counter") == 0 || strcmp(ret->type, "gauge") == 0);
}

int
process_create(struct process_segment *ret, enum process_role role, uint32_t index,
	       uint32_t incarnation, uint32_t generation, uint64_t journal_bytes)
{
	uint64_t geometry[4] = {journal_bytes};
	struct process_segment p = {0};
	int r;

	if (journal_bytes < 2 * JOURNAL_RECORD_MAX || (journal_bytes & (journal_bytes - 1)) != 0)
		return -EINVAL;
	r = segment_create(&p.seg, SEGMENT_PROCESS, PROCESS_LAYOUT,
			   SEGMENT_BODY + PROCESS_FIXED + journal_bytes, geometry);
	if (r < 0)
		return r;
	process_view(&p, journal_bytes);
	p.seg.head->owner_role = (uint16_t)role;
	p.seg.head->owner_index = (uint16_t)index;
	p.seg.head->owner_incarnation = incarnation;
	p.head->role = (uint16_t)role;
	p.head->index = (uint16_t)index;
	p.head->incarnation = incarnation;
	p.head->generation = generation;
	p.journal.head->size = journal_bytes;
	process_describe(&p);
	segment_publish(&p.seg);
	*ret = p;
	return 0;
}

int
process_attach(struct process_segment *ret, int fd, bool writable)
{
	struct process_segment p = {0};
	int r;

	r = segment_attach(&p.seg, fd, SEGMENT_PROCESS, PROCESS_LAYOUT, writable);
	if (r < 0)
		return r;
	uint64_t bytes = p.seg.head->geometry[0];
	if (bytes < 2 * JOURNAL_RECORD_MAX || (bytes & (bytes - 1)) != 0 ||
	    bytes > p.seg.size || SEGMENT_BODY + PROCESS_FIXED + bytes > p.seg.size) {
		segment_detach(&p.seg);
		return -EBADMSG;
	}
	process_view(&p, bytes);
	*ret = p;
	return 0;
}

void
process_detach(struct process_segment *process)
{
	segment_detach(&process->seg);
	*process = (struct process_segment){.seg.fd = -1};
}
