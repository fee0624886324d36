/* shm/rows.h -- the worker table: one row per worker (member and rank) or provider.
 *
 *      segment header | rows_header 128 | row 512 x capacity | row_text 512 x capacity | trust.h
 *
 *      row     line 0       1 - 2        3 - 4         5 - 6          7
 *              S: identity  M: reading   M: predictor  K: cache state K: event counters
 *
 * Writers    each line exactly one: S supervisor, M metrics, K kvevents.  row_text: S.
 * Readers    any; multi-word lines of M are latched (latch.h), K's are single atomic words.
 * Identity   a row id stays with its uid.  A freed id is reused (row_gen + 1) only when no snapshot
 *            in use names it.  row_gen changes on re-add only: an engine restart retires index
 *            slots and nothing in the ledger.
 * Re-added   the supervisor stores intent NONE, R1 release fence, identity and text, row_gen + 1
 *            (release), intent SERVE (release), then version + 1.  Who copies text meanwhile may
 *            have half of each: rows_text_read looks at both words again after the copy (A1 acquire
 *            fence) and tells.  M and K begin their lines anew when they see the new row_gen: a
 *            reading with sampled_ns before since_ns, and lines 5 - 7 whose lines_gen is not
 *            row_gen, are the last owner's.  A row that is re-added keeps set, member and URL
 *            unless 60 s have passed since its removal (fleet.c REUSE_NS); its model may change at
 *            once.
 * Crash      What a reader sees if the writer stops before the store named, and who repairs.
 *            S: identity, text, row_gen    intent is NONE: absent, no candidate of any decision
 *               intent SERVE               the same; row_gen already tells cells and copies of the
 *                                          last owner from this one's
 *               version                    the row serves, and nobody was told to look
 *            Nobody repairs this table: S's successor makes a new one, and a new set of processes.
 *            M: latch.h; readings age (sampled_ns) until its successor writes.
 *            K: lines begun anew: lines_gen is 0 until the last of them, and K's successor begins
 *               again.  A batch: open_seq differs from applied_seq, and K's successor retires what
 *               the row holds (README, "restart"; race_apply_points).  Until there is one, readers
 *               go on with the index as it stands, and its heartbeat ages.
 */
#pragma once
#include "shm/latch.h"
#include "shm/segment.h"

#define ROWS_LAYOUT     7u
#define ROWS_DEFAULT    1024u           /* capacity; a row id fits 16 bits, 0 is a valid row */
#define ROW_NONE        0xffffu
#define ROW_NAME_MAX    64u             /* bytes with the 0 */
#define ROW_URL_MAX     128u
#define ROW_URL_UNIX    "unix:"         /* begins the URL of a row that is a unix socket's */

/* A provider is one row per model that it offers: no ranks, no events, nothing known of its cache;
 * up as long as its socket's process says so (metrics). */
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
	KNOWN_LARGEST = 128,    /* no value: a gauge was there several times, its largest counts */
};

/* Why a worker is not up, or why of its metrics page nothing or not all is known. */
enum row_why {
	WHY_NOT_ASKED = 0,      /* no probe has ended yet */
	WHY_OK,
	WHY_REFUSED, WHY_NO_ADDRESS, WHY_TLS, WHY_CUT, /* no whole answer: how far it came */
	WHY_UNREACHABLE,        /* any other failure to ask */
	WHY_SLOW,               /* connected, but no answer in time: perhaps in a long prefill */
	WHY_STATUS,             /* neither 200 nor one of the next two: row_reading.status */
	WHY_UNAVAILABLE,        /* 503: begins, ends, or its engine is dead */
	WHY_NO_PAGE,            /* 404 */
	WHY_CLOSING,            /* 200, but it began to close connections: it drains */
	WHY_ASLEEP, WHY_PAUSED, /* the engine says so */
	WHY_TOO_LARGE,          /* a page above the cap */
	WHY_ENCODING,           /* a Content-Encoding we cannot undo, or broken */
	WHY_NO_SAMPLES,         /* a page without any sample */
	WHY_NO_SERIES,          /* samples, but none by this engine's names, or none of this rank */
	WHY_IN_PART,            /* page ends in mid-line, or has too many series: the rest counts */
	WHY_NO_HTTP,            /* an answer that is no HTTP */
	WHY_COUNT
};

struct row_reading {                    /* M; 14 words */
	uint32_t sampled_lo, sampled_hi;        /* mono ns when the worker answered */
	uint32_t known;                         /* enum reading_known bits */
	uint32_t waiting, running;              /* requests, as the engine says */
	float kv_usage;                         /* 0..1 */
	uint32_t block_tokens, num_blocks, max_model_len;
	uint32_t start_lo, start_hi; /* wall ns of engine start, process_start_time_seconds; without
				      * KNOWN_ENGINE_START: of the life before it was away */
	uint32_t health;                        /* enum row_health */
	uint16_t misses;                        /* scrapes missed in a row */
	uint16_t good_ds;       /* 0.1 s: an older reading is unknown; 0: ROW_READING_GOOD_NS */
	uint8_t health_why, metrics_why;        /* enum row_why */
	uint16_t status;        /* HTTP; of health if WHY_STATUS, else of the page; 0: none */
};
#define ROW_READING_GOOD_NS 5000000000ull       /* at least, and three scrape intervals */
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
struct row_predictor {                  /* M; 13 words */
	uint32_t version;                       /* +1 per publication; 0: never, use the prior */
	uint32_t samples;
	uint32_t state;                         /* enum predictor_state */
	float coef[COEF_COUNT]; /* s, s/token, s/token^2, s/decode, s/context token, s/step */
	float err_p50, err_p90;                 /* s, absolute error of predictions made */
	uint32_t pad[2];
};
#define ROW_PREDICTOR_WORDS 13u
_Static_assert(sizeof(struct row_predictor) == ROW_PREDICTOR_WORDS * 4, "row_predictor");

#define ROW_TIER_REMOVES(tier) (1u << (8 + (tier)))

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
	_Atomic uint32_t name_gen;              /* first row_gen of this uid; 0: not told */
	_Atomic uint32_t disabled; /* 1: the operator lets nothing be sent there; whoever sends
				    * looks here last, right before */
	uint32_t pad0[6];
	/* lines 1 - 2: M */
	_Atomic uint64_t reading_word;
	_Atomic uint32_t reading[2 * ROW_READING_WORDS];
	_Atomic uint64_t health_since_ns;       /* mono; of {health, health_why}; 0: never asked */
	/* lines 3 - 4: M */
	_Atomic uint64_t predictor_word;
	_Atomic uint32_t predictor[2 * ROW_PREDICTOR_WORDS];
	_Atomic uint64_t up_since_ns; /* mono; this life of the engine came up then; 0: not yet, or
				       * it is down */
	_Atomic uint64_t metrics_since_ns;      /* M; mono; of metrics_why */
	/* lines 5 - 6: K; each a single word */
	_Atomic uint32_t cache_state; /* enum cache_state | reason << 8 (enum cache_reason) */
	_Atomic uint32_t
		event_block_tokens; /* block size its full-attention events say; 0 none yet */
	_Atomic uint64_t cache_since_ns;        /* mono */
	_Atomic uint64_t open_seq;              /* batch being applied + 1 */
	_Atomic uint64_t applied_seq; /* last whole batch + 1; != open_seq: half a batch; 0: a batch
				       * with the last one's number is open */
	_Atomic uint64_t seen_seq; /* newest on the live wire + 1; 0: none since a whole replay */
	_Atomic uint64_t engine_start_seen;     /* wall ns K acted on last */
	_Atomic uint16_t slot_gpu, slot_offload, slot_spec_cur,
		slot_spec_old; /* index slot ids, 0 none */
	_Atomic uint16_t slot_demoted_gpu, slot_demoted_offload;
	_Atomic uint16_t tiers_seen; /* bits 1 << index tier: its events spoke of it; and
				      * ROW_TIER_REMOVES(tier): of blocks that it lost */
	_Atomic uint16_t offload_chunk; /* blocks that its offload tier keeps as one; 0: not seen */
	_Atomic uint32_t lines_gen;             /* row_gen that lines 5 - 7 are of; 0: of none */
	_Atomic uint32_t troubles;              /* kinds met: bits 1 << enum event_trouble */
	_Atomic uint64_t trouble;               /* met last: row_trouble_pack(); 0 none */
	_Atomic uint64_t trouble_count;         /* of that kind, in the unit of its row below */
	_Atomic uint64_t trouble_since_ns;      /* mono; the first of that kind */
	_Atomic uint64_t chains_routed;         /* prompts sent there whose last block was looked
						 * for in its events, one in some; and found */
	_Atomic uint64_t chains_stored;
	uint64_t pad3[2];
	/* line 7: K; statistics */
	_Atomic uint64_t received, decoded, applied, orphaned, failed, skipped, gaps, restarts;
};
_Static_assert(sizeof(struct row) == 512, "row");
_Static_assert(offsetof(struct row, reading_word) == 64, "row");
_Static_assert(offsetof(struct row, predictor_word) == 192, "row");
_Static_assert(offsetof(struct row, cache_state) == 320, "row");
_Static_assert(offsetof(struct row, received) == 448, "row");

struct row_text {                       /* S; written once per row_gen, before intent */
	char set[ROW_NAME_MAX];                 /* or the provider's name */
	char member[ROW_NAME_MAX];              /* of a provider: name/model, as policies say */
	char url[ROW_URL_MAX];  /* http://host:port; of a provider: unix:/path, or unix:name in the
				 * run directory */
	char model[ROW_URL_MAX];                /* as the engine, or the provider, calls it */
	char source[8];                         /* static, file or dns: how it came here */
	char pad[120];
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
	struct row_trust_line *trust;           /* trust.h, as the next */
	struct model_trust *models;
	uint32_t capacity;
};

int rows_create(struct rows *ret, uint32_t capacity);                   /* S; published */
int rows_attach(struct rows *ret, int fd, bool writable);               /* takes fd */
void rows_detach(struct rows *rows);
uint32_t rows_count(const struct rows *rows);
	/* Ever used; capacity at most, whatever a wild store left there. */
uint16_t rows_find(const struct rows *rows, uint64_t uid); /* ROW_NONE; any intent but NONE */
bool rows_text_read(const struct rows *rows, uint16_t id, uint32_t row_gen, struct row_text *ret);
	/* Its texts, each ended by a 0; false: not those of that row_gen, or being written.  Any
	 * process; 0.1 us. */
bool rows_member_read(const struct rows *rows, uint16_t id, uint32_t row_gen,
		      char ret[ROW_NAME_MAX]);
	/* Who had this row_gen: of an earlier one, too, while the row is the same worker's.  For
	 * records of what was.  False: another's by now, or being written. */
void rows_text_write(struct rows *rows, uint16_t id, const struct row_text *text);       /* S */
	/* While its intent is NONE. */

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

/* Young enough to decide by?  Older numbers are unknown, never zero and never "busy". */
static inline bool
row_reading_fresh(const struct row_reading *r, mono_ns now)
{
	mono_ns sampled = row_reading_sampled(r);
	uint64_t good = r->good_ds * 100000000ull;

	if (good < ROW_READING_GOOD_NS)
		good = ROW_READING_GOOD_NS;
	return sampled != 0 && (sampled > now || now - sampled <= good);
}

/* Is what answers now the engine that said its start?  False from when it could not be reached
 * until its start is read again; true for engines that never say it. */
static inline bool
row_reading_same_life(const struct row_reading *r)
{
	return (r->known & KNOWN_ENGINE_START) || row_reading_start(r) == 0;
}

static inline bool
row_disabled(const struct row *row)
{
	return atomic_load_explicit(&row->disabled, memory_order_acquire) != 0;
}

bool row_believed(const struct row *row, const struct row_reading *reading);
	/* Is what the index says of it said of the engine that answers now?  False while that is
	 * not known, and until K has acted on another start than it knew. */

/* What all of it amounts to; the one place where it is derived. */
enum row_state { ROW_ABSENT = 0, ROW_DRAINING, ROW_DOWN, ROW_SUSPECT, ROW_UNPROVEN, ROW_UP,
	ROW_DISABLED, ROW_STATES };
enum row_state row_state(const struct row *row, const struct row_reading *reading);
	/* UNPROVEN: never answered a health probe yet (what was answered before since_ns was the
	 * last owner's); may be tried when nothing better is there. */
const char *row_state_name(enum row_state state);
const char *row_why_name(unsigned why);         /* one word */
const char *row_why_text(unsigned why);         /* what it means and what to do, in one line */
const char *predictor_state_name(unsigned state);
const char *cache_state_name(unsigned state);
const char *cache_reason_name(unsigned reason);

/* Why something that an engine published was not taken up, or is believed less; the newest stands
 * in row.trouble with a number that says more.  Counts begin anew with kvevents. */
enum event_trouble {
	TROUBLE_NONE = 0,
	TROUBLE_SILENT,         /* it was sent prompts and published nothing */
	TROUBLE_FRAMES,         /* messages that are not topic, sequence number, payload */
	TROUBLE_UNREADABLE,     /* payloads that are no batch; number: bytes */
	TROUBLE_EVENT,          /* events with a known tag that could not be read */
	TROUBLE_TAG,            /* events with a tag that we do not know */
	TROUBLE_RANK,           /* batches of a rank that this endpoint is not; number: rank */
	TROUBLE_GROUP,          /* events of a cache group that does not tell the prefix; number */
	TROUBLE_SIZE,           /* events in another block size than the row's; number: tokens */
	TROUBLE_CONFIGURED,     /* the row's block size is not the configured one; number: tokens */
	TROUBLE_TOKENS,         /* events whose tokens are no ids, or not whole blocks of them */
	TROUBLE_ADAPTER,        /* blocks of an adapter told by number only; number */
	TROUBLE_KEYS,           /* blocks whose extra keys could not be told apart */
	TROUBLE_PARENT,         /* blocks that hang on one we never heard of (joined late) */
	TROUBLE_TIER,           /* blocks of another tier that are not known from the GPU */
	TROUBLE_ROOM,           /* blocks for which our memory or the table had no room */
	TROUBLE_RATE,           /* blocks above spec.index.workerBlocksPerSecond */
	TROUBLE_SHARE,          /* blocks above spec.index.workerShare */
	TROUBLE_TOPIC,          /* messages with a topic of another's */
	TROUBLES,
};
static inline uint64_t
row_trouble_pack(enum event_trouble kind, uint64_t number)
{
	return (uint64_t)kind << 56 | (number & UINT64_MAX >> 8);
}
static inline unsigned row_trouble_kind(uint64_t word) { return (unsigned)(word >> 56); }
static inline uint64_t row_trouble_number(uint64_t word) { return word & UINT64_MAX >> 8; }
const char *event_trouble_name(unsigned kind);          /* "block-size", ... */
const char *event_trouble_text(unsigned kind);          /* what is wrong, and what helps */

enum cache_reason {
	REASON_NONE = 0, REASON_NO_EVENTS, REASON_FIRST_SEQ, REASON_SEQ_HOLE, REASON_SEQ_BACK,
	REASON_ENGINE_START, REASON_HALF_BATCH, REASON_WRITER_RESTART, REASON_CLEARED,
	REASON_PUBLISHER,
	REASON_REPLAYED,        /* what was missed came by a replay */
	REASON_HISTORY_LOST,    /* the engine keeps no more of what was missed */
	REASON_REPLAY_SILENT,   /* it was asked, and never answered */
	REASON_REPLAY_LOST,     /* its answers stayed incomplete however often it was asked */
};
