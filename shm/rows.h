/* shm/rows.h -- the worker table: one row per worker (member and rank) or provider.
 *
 *      segment header | rows_header 128 | row 512 x capacity | row_text 512 x capacity
 *
 *      row     line 0       1 - 2        3 - 4         5 - 6          7
 *              S: identity  M: reading   M: predictor  K: cache state K: event counters
 *
 * Writers    each line exactly one: S supervisor, M metrics, K kvevents.  row_text: S.
 * Readers    any; multi-word lines of M are latched (latch.h), K's are single atomic words.
 * Identity   a row id stays with its uid.  A freed id is reused (row_gen + 1) only when no snapshot
 *            in use names it.  row_gen changes on re-add only: an engine restart retires index
 *            slots and nothing in the ledger.
 * Crash      S writes row_text and line 0 with intent NONE, release-stores intent last: a half-made
 *            row is invisible.  M dead: readings age (sampled_ns).  K dead: heartbeat of the index
 * ages.
 */
#pragma once
#include "shm/latch.h"
#include "shm/segment.h"

#define ROWS_LAYOUT     1u
#define ROWS_DEFAULT    1024u           /* capacity; a row id fits 16 bits, 0 is a valid row */
#define ROW_NONE        0xffffu
#define ROW_NAME_MAX    64u             /* bytes with the 0 */
#define ROW_URL_MAX     128u

enum row_kind { ROW_WORKER = 1, ROW_PROVIDER };
enum row_intent { INTENT_NONE = 0, INTENT_SERVE, INTENT_DRAIN, INTENT_REMOVE };
enum row_health { HEALTH_UNKNOWN = 0, HEALTH_UP, HEALTH_SUSPECT, HEALTH_DOWN };
enum cache_state {
	CACHE_NONE = 0,
	CACHE_EXACT,
	CACHE_GAP,
	CACHE_REPLAYING,
	CACHE_STALE,
	CACHE_APPROXIMATE
};
enum predictor_state { PREDICTOR_CALIBRATING = 0, PREDICTOR_READY, PREDICTOR_FROZEN };

/* What of a reading is known (bit set in row_reading.known); missing is unknown, never zero. */
enum reading_known {
	KNOWN_WAITING = 1, KNOWN_RUNNING = 2, KNOWN_KV_USAGE = 4, KNOWN_BLOCK_TOKENS = 8,
	KNOWN_NUM_BLOCKS = 16, KNOWN_MAX_MODEL_LEN = 32, KNOWN_ENGINE_START = 64,
};

struct row_reading {                    /* M; 14 words */
	uint32_t sampled_lo, sampled_hi;        /* mono ns when the worker answered */
	uint32_t known;                         /* enum reading_known bits */
	uint32_t waiting, running;              /* requests, as the engine says */
	float kv_usage;                         /* 0..1 */
	uint32_t block_tokens, num_blocks, max_model_len;
	uint32_t start_lo, start_hi; /* wall ns of engine start, process_start_time_seconds */
	uint32_t health;                        /* enum row_health */
	uint32_t misses;                        /* scrapes missed in a row */
	uint32_t pad;
};
#define ROW_READING_WORDS 14u
_Static_assert(sizeof(struct row_reading) == ROW_READING_WORDS * 4, "row_reading");

/* Predicted TTFT = base + prefill * tokens + attention * tokens * (context + tokens / 2)
 *                + decode * decoding + context * decode context tokens   (seconds)
 */
enum coef {
	COEF_BASE,
	COEF_PREFILL,
	COEF_ATTENTION,
	COEF_DECODE,
	COEF_CONTEXT,
	COEF_STEP,
	COEF_COUNT
};
struct row_predictor {                  /* M; 14 words */
	uint32_t version;                       /* +1 per publication; 0: never, use the prior */
	uint32_t samples;
	uint32_t state;                         /* enum predictor_state */
	float coef[COEF_COUNT]; /* s, s/token, s/token^2, s/decode, s/context token, s/step */
	float err_p50, err_p90;                 /* s, absolute error of predictions made */
	uint32_t pad[3];
};
#define ROW_PREDICTOR_WORDS 14u
_Static_assert(sizeof(struct row_predictor) == ROW_PREDICTOR_WORDS * 4, "row_predictor");

struct row {
	/* line 0: S */
	uint64_t uid;                           /* manifest_member_uid(); 0: never used */
	_Atomic uint32_t row_gen;               /* from 1; +1 on re-add */
	uint8_t kind;                           /* enum row_kind */
	_Atomic uint8_t intent;                 /* enum row_intent; release-stored last */
	uint16_t rank;                          /* data-parallel rank */
	uint32_t block_tokens;                  /* configured; 0: from events or metrics */
	uint32_t ranks; /* ranks that share the URL; > 1: send the rank header */
	uint64_t since_ns;                      /* mono; of this row_gen */
	uint64_t pad0[4];
	/* lines 1 - 2: M */
	_Atomic uint64_t reading_word;
	_Atomic uint32_t reading[2 * ROW_READING_WORDS];
	uint64_t pad1;
	/* lines 3 - 4: M */
	_Atomic uint64_t predictor_word;
	_Atomic uint32_t predictor[2 * ROW_PREDICTOR_WORDS];
	uint64_t pad2;
	/* lines 5 - 6: K; each a single word */
	_Atomic uint32_t cache_state; /* enum cache_state | reason << 8 (enum cache_reason) */
	_Atomic uint32_t
		event_block_tokens; /* block size its full-attention events say; 0 none yet */
	_Atomic uint64_t cache_since_ns;        /* mono */
	_Atomic uint64_t open_seq;              /* batch being applied + 1 */
	_Atomic uint64_t applied_seq; /* last whole batch + 1; != open_seq: half a batch */
	_Atomic uint64_t seen_seq;              /* newest on the live wire + 1 */
	_Atomic uint64_t engine_start_seen;     /* wall ns K acted on last */
	_Atomic uint16_t slot_gpu, slot_offload, slot_spec_cur,
		slot_spec_old; /* index slot ids, 0 none */
	_Atomic uint16_t slot_demoted_gpu, slot_demoted_offload;
	uint16_t pad3[2];
	uint64_t pad4[8];
	/* line 7: K; statistics */
	_Atomic uint64_t received, decoded, applied, orphaned, failed, skipped, gaps, restarts;
};
_Static_assert(sizeof(struct row) == 512, "row");
_Static_assert(offsetof(struct row, reading_word) == 64, "row");
_Static_assert(offsetof(struct row, predictor_word) == 192, "row");
_Static_assert(offsetof(struct row, cache_state) == 320, "row");
_Static_assert(offsetof(struct row, received) == 448, "row");

struct row_text {                       /* S; written once per row_gen, before intent */
	char set[ROW_NAME_MAX];
	char member[ROW_NAME_MAX];
	char url[ROW_URL_MAX];                  /* http://host:port */
	char model[ROW_URL_MAX];                /* as the engine calls it */
	char pad[128];
};
_Static_assert(sizeof(struct row_text) == 512, "row_text");

struct rows_header {
	uint32_t capacity;
	_Atomic uint32_t count;                 /* rows ever used: scan 0 .. count-1 */
	_Atomic uint64_t version;               /* +1 whenever S changed any line 0 */
	uint64_t pad[14];
};
_Static_assert(sizeof(struct rows_header) == 128, "rows_header");

struct rows {                           /* process-local view */
	struct segment seg;
	struct rows_header *head;
	struct row *row;
	struct row_text *text;
	uint32_t capacity;
};

int rows_create(struct rows *ret, uint32_t capacity);                   /* S; published */
int rows_attach(struct rows *ret, int fd, bool writable);               /* takes fd */
void rows_detach(struct rows *rows);
uint16_t rows_find(const struct rows *rows, uint64_t uid); /* ROW_NONE; any intent but NONE */

void row_reading_write(struct row *row, const struct row_reading *reading);             /* M */
bool row_reading_read(const struct row *row, struct row_reading *ret); /* false: torn */
void row_predictor_write(struct row *row, const struct row_predictor *predictor);       /* M */
bool row_predictor_read(const struct row *row, struct row_predictor *ret); /* false: torn */

static inline mono_ns
row_reading_sampled(const struct row_reading *r)
{
	return (uint64_t)r->sampled_hi << 32 | r->sampled_lo;
}

static inline wall_ns
row_reading_start(const struct row_reading *r)
{
	return (uint64_t)r->start_hi << 32 | r->start_lo;
}

/* What all of it amounts to; the one place where it is derived. */
enum row_state { ROW_ABSENT = 0, ROW_DRAINING, ROW_DOWN, ROW_SUSPECT, ROW_UNPROVEN, ROW_UP };
enum row_state row_state(const struct row *row, const struct row_reading *reading);
	/* UNPROVEN: never answered a health probe yet; may be tried when nothing better is there.
	 */
const char *row_state_name(enum row_state state);
const char *cache_state_name(unsigned state);
const char *cache_reason_name(unsigned reason);

enum cache_reason {
	REASON_NONE = 0, REASON_NO_EVENTS, REASON_FIRST_SEQ, REASON_SEQ_HOLE, REASON_SEQ_BACK,
	REASON_ENGINE_START, REASON_HALF_BATCH, REASON_WRITER_RESTART, REASON_CLEARED,
};
