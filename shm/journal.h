/* shm/journal.h -- a ring of records that one process writes and any number tail.
 *
 *      journal_header: tail, head, size        ring: records, 64-byte aligned, never straddling
 *      the end record: header 64 | payload, padded to 64
 *
 * Positions are byte counts that never wrap (u64); the byte is position % size.
 * Writer     one thread.  journal_append: new tail (W1), release fence, overwrite, commit word last
 *            (W2 release), head (W3 release).
 * Reader     starts at tail, acquire-loads commit (A2), copies, acquire fence, accepts only if
 *            tail <= position (A1).  len and kind are used only after that check.  It notices being
 *            overtaken and says how many bytes it lost.
 * Crash      a record without its commit word ends the ring for readers; the next incarnation of a
 *            process gets a fresh segment.
 */
#pragma once
#include "shm/segment.h"

#define JOURNAL_ALIGN   64u
#define JOURNAL_RECORD_MAX 8192u        /* header and payload */
#define COEF_IN_JOURNAL 6u              /* rows.h COEF_COUNT; rows.c asserts it */

enum journal_kind { JOURNAL_PAD = 1, JOURNAL_DECISION, JOURNAL_OUTCOME, JOURNAL_CONFIG };

struct journal_record {
	_Atomic uint64_t commit;                /* position + 1 when whole */
	uint32_t len;                           /* header and payload, multiple of 64 */
	uint16_t kind, n;                       /* n: candidates that follow */
	uint64_t request_id;
	wall_ns when;
	uint64_t config_hash;
	uint32_t policy_gen, policy_inc;
	uint64_t seed;
	uint32_t ask, pad;
};
_Static_assert(sizeof(struct journal_record) == 64, "journal_record");

struct journal_decision {               /* payload of DECISION, followed by n candidates */
	uint32_t prompt_tokens, max_tokens, tenant;
	int32_t priority;
	uint8_t verdict, token_source, minimize,
		pad0; /* enum answer_verdict, enum token_source, objective */
	uint16_t status, chosen_row;
	uint32_t blocks, block_tokens;          /* hashed prompt blocks and their size */
	uint64_t tags;
	uint64_t stage_ns[8]; /* asked, parsed, tokenized, hashed, matched, predicted, chosen, sent
			       */
	char model[64], policy[32], rule[32];   /* cut */
};
_Static_assert(sizeof(struct journal_decision) == 232, "journal_decision");

struct journal_candidate {
	uint16_t row, removed_by;               /* removed_by: 0 stays; else enum removal */
	uint32_t row_gen;
	uint32_t cached, speculative;           /* tokens: exact depth; what speculation adds */
	uint32_t pending, context;              /* as used: cells plus overlay */
	uint16_t prefilling, decoding;
	uint32_t waiting, running;              /* all ones: unknown */
	float kv_usage;
	uint32_t age_ms;
	float coef[COEF_IN_JOURNAL];
	uint32_t ttft_us;
	float wait_s;
};
_Static_assert(sizeof(struct journal_candidate) == 76, "journal_candidate");

struct journal_outcome {                /* payload of OUTCOME */
	uint16_t row, status;
	uint8_t attempts, cancelled, pad0[2];
	uint32_t row_gen;
	uint32_t ttft_us, e2e_us;               /* from dispatch; all ones unknown */
	uint32_t queue_us;                      /* arrival to dispatch */
	uint32_t prompt, cached, completion;    /* as the engine said; all ones unknown */
	uint32_t our_prompt, our_cached;        /* as the decision said */
	uint32_t pending, context, decoding;    /* features at the decision */
	uint32_t predicted_us;
	uint64_t bytes_out;
	char error[32];
};
_Static_assert(sizeof(struct journal_outcome) == 104, "journal_outcome");

struct journal_config {                 /* payload of CONFIG */
	uint32_t generation, ok;
	char text[240];
};

struct journal_header {
	_Atomic uint64_t tail, head;
	uint64_t size;                          /* bytes of ring, power of two */
	uint64_t pad[13];
};
_Static_assert(sizeof(struct journal_header) == 128, "journal_header");

struct journal {                        /* process-local view of a ring inside a segment */
	struct journal_header *head;
	char *ring;
	uint64_t size;
};

uint64_t journal_append(struct journal *journal, const struct journal_record *head,
			const void *payload, size_t payload_len, const void *more, size_t more_len);
	/* Writer.  Fills commit and len itself.  Returns the record's position + 1, 0 when too
	 * long.
	 * ~100 ns + copy. */
uint64_t journal_tail(const struct journal *journal);
uint64_t journal_head(const struct journal *journal);
int journal_read(const struct journal *journal, uint64_t *position, void *buf, size_t cap,
		 uint64_t *ret_lost);
	/* Any thread or process.  Copies the next record (PADs skipped) at *position to buf,
	 * advances.
	 * 1: a record; 0: none yet; -EOVERFLOW never: being overtaken moves *position to tail,
	 * adds the
	 * bytes to *ret_lost and goes on.  -EBADMSG: not a record there; *position moved to head.
	 */
