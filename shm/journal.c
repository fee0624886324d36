/* shm/journal.c -- the ring; order pairs in journal.h. */
#include "shm/journal.h"

#include <errno.h>
#include <string.h>

static size_t
record_size(size_t payload)
{
	return (sizeof(struct journal_record) + payload + JOURNAL_ALIGN - 1) / JOURNAL_ALIGN *
	       JOURNAL_ALIGN;
}

uint64_t
journal_tail(const struct journal *journal)
{
	return atomic_load_explicit(&journal->head->tail, memory_order_acquire);
}

uint64_t
journal_head(const struct journal *journal)
{
	return atomic_load_explicit(&journal->head->head, memory_order_acquire);
}

static struct journal_record *
record_at(const struct journal *journal, uint64_t position)
{
	return (struct journal_record *)(void *)(journal->ring + (position & (journal->size - 1)));
}

/* Moves the tail to the first record boundary that leaves room for `len` bytes at `position`. */
static void
make_room(struct journal *journal, uint64_t position, size_t len)
{
	uint64_t tail = atomic_load_explicit(&journal->head->tail, memory_order_relaxed);

	while (position + len - tail > journal->size)
		tail += record_at(journal, tail)->len;
	atomic_store_explicit(&journal->head->tail, tail, memory_order_relaxed);        /* W1 */
	atomic_thread_fence(memory_order_release);
}

static void
write_record(struct journal *journal, uint64_t position, const struct journal_record *head,
	     size_t len, const void *payload, size_t payload_len, const void *more, size_t more_len)
{
	struct journal_record *to;

	make_room(journal, position, len);
	to = record_at(journal, position);
	atomic_store_explicit(&to->commit, 0, memory_order_relaxed);
	atomic_thread_fence(memory_order_release);
	memcpy((char *)to + sizeof to->commit, (const char *)head + sizeof head->commit,
	       sizeof *head - sizeof head->commit);
	to->len = (uint32_t)len;
	if (payload_len)
		memcpy(to + 1, payload, payload_len);
	if (more_len)
		memcpy((char *)(to + 1) + payload_len, more, more_len);
	atomic_store_explicit(&to->commit, position + 1, memory_order_release);         /* W2 */
	atomic_store_explicit(&journal->head->head, position + len, memory_order_release); /* W3 */
}

uint64_t
journal_append(struct journal *journal, const struct journal_record *head, const void *payload,
	       size_t payload_len, const void *more, size_t more_len)
{
	size_t len = record_size(payload_len + more_len);
	uint64_t position = atomic_load_explicit(&journal->head->head, memory_order_relaxed);

	if (len > JOURNAL_RECORD_MAX)
		return 0;
	size_t to_end = journal->size - (position & (journal->size - 1));
	if (to_end < len) {                     /* never straddle the end */
		struct journal_record pad = {.kind = JOURNAL_PAD};

		write_record(journal, position, &pad, to_end, NULL, 0, NULL, 0);
		position += to_end;
	}
	write_record(journal, position, head, len, payload, payload_len, more, more_len);
	return position + 1;
}

int
journal_read(const struct journal *journal, uint64_t *position, void *buf, size_t cap,
	     uint64_t *ret_lost)
{
	for (;;) {
		uint64_t tail = journal_tail(journal);

		if (*position < tail) {
			*ret_lost += tail - *position;
			*position = tail;
		}
		if (*position >= journal_head(journal))
			return 0;
		if (*position & (JOURNAL_ALIGN - 1)) {
			*position = journal_head(journal);
			return -EBADMSG;
		}
		const struct journal_record *at = record_at(journal, *position);
		uint64_t commit = atomic_load_explicit(&at->commit, memory_order_acquire); /* A2 */
		uint32_t len = at->len;
		uint16_t kind = at->kind;
		size_t room = journal->size - (*position & (journal->size - 1));
		bool fits = len >= sizeof *at && len <= room && (kind == JOURNAL_PAD || len <= cap);

		if (fits && kind != JOURNAL_PAD)
			memcpy(buf, at, len);
		atomic_thread_fence(memory_order_acquire);
		if (atomic_load_explicit(&journal->head->tail, memory_order_relaxed) > *position)
			continue;               /* A1: overtaken while copying */
		if (commit != *position + 1 || !fits) {
			*position = journal_head(journal);
			return -EBADMSG;
		}
		*position += len;
		if (kind != JOURNAL_PAD)
			return 1;
	}
}
