/* shm/journal.h -- a ring of records that one process writes and any number tail.
 *
 *      journal_header 128: tail | head | size
 *      ring: records, 64-byte aligned, never straddling the end (a PAD fills what is left there)
 *      record: commit 8 | len 4, kind 2, n 2 | rest of the header to 64 | payload, padded to 64
 *
 * Positions are byte counts that never wrap (u64); the byte is position % size.  tail: the oldest
 * position that stays; head: where the next record goes.  A record is copied in and out as 64-bit
 * words, each one relaxed atomic: a reader that is overtaken reads words old or new, never between.
 * Writer     one thread of the owning process.
 * Readers    any thread or process, never wait: at most 8 tries, then "none yet".
 * Order      the writer, for each record: W1 the new tail, release fence; commit 0, release fence;
 *            the words; W2 commit = position + 1 (release); W3 head (release).
 *            the reader: A3 acquire-load of head; A2 acquire-load of commit; the words; acquire
 *            fence; A1 tail again: accepts only if tail <= position.  W1/A1: whoever has read a
 *            word of the next lap sees the tail that gave it up.  W2/A2: whoever has read the
 *            commit reads the words before it.  len and kind are used only after A1.
 * Crash      what a reader finds when the writer stops before a store:
 *              tail (W1)        nothing happened
 *              commit 0, words  the oldest records are given up; nothing new is to be seen
 *              W2               the same: head does not reach the record
 *              W3               the same: a record that is whole, and lost
 *              between the PAD and the record behind it: the PAD is skipped, nothing follows
 *            Nobody repairs: the next incarnation of a process gets a fresh segment.  A writer
 *            that went on would overwrite the half record from `head` (tried by race_journal).
 * Version    part of PROCESS_LAYOUT (process.h).
 */
#pragma once
#include "shm/segment.h"

#define JOURNAL_ALIGN   64u
#define JOURNAL_RECORD_MAX 12288u       /* header and payload */
#define JOURNAL_NOTE    84u             /* bytes of a note, the 0 with them */
#define JOURNAL_TAGS    64u             /* bytes of tags' names, the 0 with them */
#define JOURNAL_FROM    3u              /* policies before the one that decided */
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

/* Payload of DECISION, followed by n candidates, and behind them by n_rules rules. */
struct journal_decision {
	uint32_t prompt_tokens, max_tokens, tenant;
	int32_t priority;
	uint8_t verdict, token_source, minimize, trust;
		/* enum answer_verdict, enum token_source, objective; NATIVE: enum trust_state */
	uint16_t status, chosen_row;
	uint32_t blocks, block_tokens;          /* hashed prompt blocks and their size */
	uint64_t tags;
	uint64_t stage_ns[8]; /* asked, parsed, tokenized, hashed, matched, predicted, chosen, sent
			       */
	char model[64], policy[32], rule[32];   /* cut */
	uint32_t exact_tokens;                  /* of the first prompt, from its start */
	char note[JOURNAL_NOTE];                /* why no more of it is known; cut */
	uint64_t tags_unknown;                  /* rules took these for there */
	mono_ns hold_until;                     /* verdict HOLD */
	char tag_names[JOURNAL_TAGS];           /* cut, with commas; behind an unknown one a '?' */
	char from[JOURNAL_FROM][32];            /* policies that fell back to `policy`, in order */
	uint8_t n_rules, n_from;
	uint8_t lasting;                        /* REJECT: it will be so under these documents */
	uint8_t pad0[5];
};
_Static_assert(sizeof(struct journal_decision) == 504, "journal_decision");

struct journal_candidate {
	uint16_t row, removed_by; /* removed_by: 0 stays; enum removal, or removal_rule() of
				   * choose.h */
	uint32_t row_gen;
	uint32_t cached, speculative;           /* tokens: exact depth; what speculation adds */
	uint32_t pending, context;              /* as used: cells plus overlay */
	uint16_t prefilling, decoding;
	uint32_t waiting, running;              /* all ones: unknown */
	float kv_usage;
	uint32_t age_ms;
	float coef[COEF_IN_JOURNAL];
	uint32_t ttft_us;
	float wait_s, load_s;
	float handicap;                         /* its load counted 1 + that times: slow start */
	float cost;                             /* of the request there; NaN unknown */
	float score;                            /* by the objective; NaN unknown, or not asked */
	uint16_t entry, tier;                   /* of the policy's candidates; of its split */
};
_Static_assert(sizeof(struct journal_candidate) == 96, "journal_candidate");

struct journal_rule {                   /* what came of one rule, in the order they were run */
	char name[32];                          /* cut */
	uint8_t policy, rule;                   /* as in removal_rule() */
	uint8_t outcome, pad0;                  /* enum rules_outcome */
	uint16_t removed, pad1;                 /* candidates */
};
_Static_assert(sizeof(struct journal_rule) == 40, "journal_rule");

struct journal_outcome {                /* payload of OUTCOME */
	uint16_t row, status;
	uint8_t attempts, cancelled;
	uint8_t source, pad0;                   /* enum token_source, of our_prompt */
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

struct journal_client {                 /* behind an outcome; id_len bytes of text follow */
	uint8_t addr[16];                       /* as slot.h peer_addr, peer_port, peer_flags */
	uint16_t port;
	uint8_t flags, id_len;
};
#define JOURNAL_CLIENT_ID_MAX 128u      /* X-Request-Id as the client said it; printable ASCII */
_Static_assert(sizeof(struct journal_client) == 20, "journal_client");

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
	 * long.  40 ns for an outcome, 0.4 us for a decision of 64 candidates. */
uint64_t journal_tail(const struct journal *journal);
uint64_t journal_head(const struct journal *journal);
int journal_read(const struct journal *journal, uint64_t *position, void *buf, size_t cap,
		 uint64_t *ret_lost);
	/* Any thread or process.  Copies the next record (PADs skipped) at *position to buf, and
	 * advances.  1: a record; 0: none yet.  Being overtaken moves *position to tail, adds the
	 * bytes to *ret_lost and goes on.  -EBADMSG: not a record there; *position moved to head.
	 * buf: 8-aligned is faster.  10 ns and 0.2 us for the same. */
