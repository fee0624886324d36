/* shm/journal.c -- the ring; order pairs in journal.h. */
#include "shm/journal.h"

#include <errno.h>
#include <string.h>

#ifndef JOURNAL_STORE_POINT
#define JOURNAL_STORE_POINT() ((void)0) /* before each store: tests stop the writer there */
#endif
#define JOURNAL_TRIES 8u                /* a reader that is overtaken, or at a pad */

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

/* A record as the words it is copied by: whoever reads one that is being overwritten reads words
 * that each are old or new, and throws them away. */
static _Atomic uint64_t *
record_at(const struct journal *journal, uint64_t position)
{
	return (_Atomic uint64_t *)(void *)(journal->ring + (position & (journal->size - 1)));
}

struct record_kind {                    /* word 1 of a record */
	uint32_t len;
	uint16_t kind, n;
};
_Static_assert(sizeof(struct record_kind) == 8, "journal_record");
_Static_assert(offsetof(struct journal_record, len) == 8, "journal_record");
_Static_assert(offsetof(struct journal_record, kind) == 12, "journal_record");

static struct record_kind
kind_of(const _Atomic uint64_t *record)
{
	uint64_t word = atomic_load_explicit(&record[1], memory_order_relaxed);
	struct record_kind kind;

	memcpy(&kind, &word, sizeof kind);
	return kind;
}

/* Moves the tail to the first record boundary that leaves room for `len` bytes at `position`. */
static void
make_room(struct journal *journal, uint64_t position, size_t len)
{
	uint64_t tail = atomic_load_explicit(&journal->head->tail, memory_order_relaxed);

	while (position + len - tail > journal->size)
		tail += kind_of(record_at(journal, tail)).len;
	JOURNAL_STORE_POINT();
	atomic_store_explicit(&journal->head->tail, tail, memory_order_relaxed);        /* W1 */
	atomic_thread_fence(memory_order_release);
}

struct fill {                           /* bytes of several pieces, stored as whole words */
	_Atomic uint64_t *to;
	uint64_t word;
	size_t have;                    /* bytes in `word`, below 8 */
};

static void
fill_bytes(struct fill *f, const void *bytes, size_t n)
{
	const char *p = bytes;

	while (n > 0) {
		size_t whole = f->have == 0 ? n / sizeof f->word : 0;
		size_t some = sizeof f->word - f->have;
		_Atomic uint64_t *to = f->to;

		for (size_t i = 0; i < whole; i++) {
			uint64_t word;

			memcpy(&word, p + i * sizeof word, sizeof word);
			JOURNAL_STORE_POINT();
			atomic_store_explicit(&to[i], word, memory_order_relaxed);
		}
		f->to += whole;
		p += whole * sizeof f->word;
		n -= whole * sizeof f->word;
		if (n == 0)
			return;
		if (some > n)
			some = n;
		memcpy((char *)&f->word + f->have, p, some);
		f->have += some;
		p += some;
		n -= some;
		if (f->have == sizeof f->word) {
			JOURNAL_STORE_POINT();
			atomic_store_explicit(f->to++, f->word, memory_order_relaxed);
			f->word = f->have = 0;
		}
	}
}

static void
write_record(struct journal *journal, uint64_t position, const struct journal_record *head,
	     size_t len, const void *payload, size_t payload_len, const void *more, size_t more_len)
{
	struct journal_record mine = *head;
	_Atomic uint64_t *to;
	struct fill fill;

	make_room(journal, position, len);
	to = record_at(journal, position);
	JOURNAL_STORE_POINT();
	atomic_store_explicit(to, 0, memory_order_relaxed);             /* commit */
	atomic_thread_fence(memory_order_release);
	mine.len = (uint32_t)len;
	fill = (struct fill){.to = to + 1};
	fill_bytes(&fill, (const char *)&mine + sizeof mine.commit,
		   sizeof mine - sizeof mine.commit);
	fill_bytes(&fill, payload, payload_len);
	fill_bytes(&fill, more, more_len);
	if (fill.have > 0) {
		JOURNAL_STORE_POINT();
		atomic_store_explicit(fill.to, fill.word, memory_order_relaxed);
	}
	JOURNAL_STORE_POINT();
	atomic_store_explicit(to, position + 1, memory_order_release);          /* W2 */
	JOURNAL_STORE_POINT();
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
	for (unsigned tries = 0; tries < JOURNAL_TRIES; tries++) {
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
		const _Atomic uint64_t *at = record_at(journal, *position);
		uint64_t commit = atomic_load_explicit(at, memory_order_acquire);          /* A2 */
		struct record_kind kind = kind_of(at);
		size_t room = journal->size - (*position & (journal->size - 1));
		bool pad = kind.kind == JOURNAL_PAD;
		bool fits = kind.len >= sizeof(struct journal_record) && kind.len <= room &&
			    kind.len % JOURNAL_ALIGN == 0 && (pad || kind.len <= cap);

		for (size_t i = 0; fits && !pad && i < kind.len / sizeof *at; i++) {
			uint64_t word = atomic_load_explicit(&at[i], memory_order_relaxed);

			memcpy((char *)buf + i * sizeof word, &word, sizeof word);
		}
		atomic_thread_fence(memory_order_acquire);
		if (atomic_load_explicit(&journal->head->tail, memory_order_relaxed) > *position)
			continue;               /* A1: overtaken while copying */
		if (commit != *position + 1 || !fits) {
			*position = journal_head(journal);
			return -EBADMSG;
		}
		*position += kind.len;
		if (!pad)
			return 1;
	}
	return 0;                               /* overtaken each time: come again */
}
