/* actors/common/secrets.c -- see secrets.h: the readers' side. */
#include "actors/common/secrets.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include "actors/common/sanitized.h"

#define RECORD_HEAD 16u

void
secrets_guard(void)
{
	if (!SANITIZED)
		prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
}

int
secrets_attach(struct secrets *ret, int fd, enum segment_kind kind, uint32_t *ret_generation)
{
	struct segment seg;
	int r = segment_attach(&seg, fd, kind, SECRETS_LAYOUT, false);

	if (r < 0)
		return r;
	madvise(seg.head, seg.size, MADV_DONTDUMP);
	if (seg.head->geometry[0] > seg.size - SEGMENT_BODY) {
		segment_detach(&seg);
		return -EBADMSG;
	}
	if (kind != SEGMENT_TRUST)
		secrets_guard();
	if (ret_generation)
		*ret_generation = (uint32_t)seg.head->geometry[2];
	ret->seg = seg;
	return 0;
}

struct slice
secrets_get(const struct secrets *s, enum secret what, uint32_t index)
{
	const struct slice none = {NULL, 0};
	const char *p;
	size_t left;

	if (!s->seg.head)
		return none;
	p = segment_body(&s->seg);
	left = s->seg.head->geometry[0];
	if (left > s->seg.size - SEGMENT_BODY)
		return none;
	while (left >= RECORD_HEAD) {
		uint32_t head[4];
		size_t whole;

		memcpy(head, p, sizeof head);
		whole = RECORD_HEAD + (((size_t)head[2] + 7) & ~(size_t)7);
		if (whole > left)
			return none;
		if (head[0] == (uint32_t)what && head[1] == index)
			return (struct slice){p + RECORD_HEAD, head[2]};
		p += whole;
		left -= whole;
	}
	return none;
}

void
secrets_detach(struct secrets *s)
{
	segment_detach(&s->seg);
}
