/* shm/rows.c -- the worker table; layout and writers in rows.h. */
#include "shm/rows.h"

#include <errno.h>
#include <string.h>

#include "shm/journal.h"
#include "shm/trust.h"

_Static_assert(COEF_COUNT == COEF_IN_JOURNAL, "a decision record keeps every coefficient");

static size_t
rows_size(uint32_t capacity)
{
	return SEGMENT_BODY + sizeof(struct rows_header) +
	       (size_t)capacity * (sizeof(struct row) + sizeof(struct row_text) +
				   sizeof(struct row_trust_line)) +
	       TRUST_MODELS * sizeof(struct model_trust);
}

static void
rows_view(struct rows *rows)
{
	char *body = segment_body(&rows->seg);

	rows->head = (struct rows_header *)(void *)body;
	rows->row = (struct row *)(void *)(body + sizeof(struct rows_header));
	rows->text = (struct row_text *)(void *)(rows->row + rows->capacity);
	rows->trust = (struct row_trust_line *)(void *)(rows->text + rows->capacity);
	rows->models = (struct model_trust *)(void *)(rows->trust + rows->capacity);
}

int
rows_create(struct rows *ret, uint32_t capacity)
{
	uint64_t geometry[4] = {capacity};
	struct rows rows = {.capacity = capacity};
	int r;

	r = segment_create(&rows.seg, SEGMENT_ROWS, ROWS_LAYOUT, rows_size(capacity), geometry);
	if (r < 0)
		return r;
	rows_view(&rows);
	rows.head->capacity = capacity;
	segment_publish(&rows.seg);
	*ret = rows;
	return 0;
}

int
rows_attach(struct rows *ret, int fd, bool writable)
{
	struct rows rows = {0};
	int r;

	r = segment_attach(&rows.seg, fd, SEGMENT_ROWS, ROWS_LAYOUT, writable);
	if (r < 0)
		return r;
	uint64_t capacity = rows.seg.head->geometry[0];
	if (capacity == 0 || capacity > ROW_NONE || rows_size((uint32_t)capacity) > rows.seg.size) {
		segment_detach(&rows.seg);
		return -EBADMSG;
	}
	rows.capacity = (uint32_t)capacity;
	rows_view(&rows);
	*ret = rows;
	return 0;
}

void
rows_detach(struct rows *rows)
{
	segment_detach(&rows->seg);
	*rows = (struct rows){.seg.fd = -1};
}

uint32_t
rows_count(const struct rows *rows)
{
	uint32_t count = atomic_load_explicit(&rows->head->count, memory_order_acquire);

	return count < rows->capacity ? count : rows->capacity;
}

uint16_t
rows_find(const struct rows *rows, uint64_t uid)
{
	uint32_t count = rows_count(rows);

	for (uint32_t i = 0; i < count; i++)
		if (atomic_load_explicit(&rows->row[i].intent, memory_order_acquire) !=
			    INTENT_NONE &&
		    rows->row[i].uid == uid)
			return (uint16_t)i;
	return ROW_NONE;
}

#define TEXT_WORDS (sizeof(struct row_text) / sizeof(uint64_t))

void
rows_text_write(struct rows *rows, uint16_t id, const struct row_text *text)
{
	_Atomic uint64_t *to = (_Atomic uint64_t *)(void *)&rows->text[id];
	uint64_t word[TEXT_WORDS];

	memcpy(word, text, sizeof word);
	atomic_thread_fence(memory_order_release);                                      /* R1 */
	for (size_t i = 0; i < TEXT_WORDS; i++)
		atomic_store_explicit(&to[i], word[i], memory_order_relaxed);
}

bool
rows_text_read(const struct rows *rows, uint16_t id, uint32_t row_gen, struct row_text *ret)
{
	const _Atomic uint64_t *from = (const _Atomic uint64_t *)(const void *)&rows->text[id];
	const struct row *row = &rows->row[id];
	uint64_t word[TEXT_WORDS];

	if (atomic_load_explicit(&row->row_gen, memory_order_acquire) != row_gen)
		return false;
	for (size_t i = 0; i < TEXT_WORDS; i++)
		word[i] = atomic_load_explicit(&from[i], memory_order_relaxed);
	atomic_thread_fence(memory_order_acquire);                                      /* A1 */
	if (atomic_load_explicit(&row->intent, memory_order_relaxed) == INTENT_NONE ||
	    atomic_load_explicit(&row->row_gen, memory_order_relaxed) != row_gen)
		return false;
	memcpy(ret, word, sizeof word);
	ret->set[sizeof ret->set - 1] = 0;
	ret->member[sizeof ret->member - 1] = 0;
	ret->url[sizeof ret->url - 1] = 0;
	ret->model[sizeof ret->model - 1] = 0;
	return true;
}

bool
rows_member_read(const struct rows *rows, uint16_t id, uint32_t row_gen, char ret[ROW_NAME_MAX])
{
	const struct row *row = &rows->row[id];
	uint32_t now = atomic_load_explicit(&row->row_gen, memory_order_acquire);
	struct row_text text;
	uint32_t first;

	if (!rows_text_read(rows, id, now, &text))
		return false;
	first = atomic_load_explicit(&row->name_gen, memory_order_relaxed); /* as old as the text */
	if (row_gen != now && (first == 0 || row_gen < first || row_gen > now))
		return false;
	memcpy(ret, text.member, sizeof text.member);
	return true;
}

void
row_reading_write(struct row *row, const struct row_reading *reading)
{
	latch_write(&row->reading_word, 0, row->reading, ROW_READING_WORDS,
		    (const uint32_t *)(const void *)reading);
}

bool
row_reading_read(const struct row *row, struct row_reading *ret)
{
	return latch_read(&row->reading_word, NULL, row->reading, ROW_READING_WORDS,
			  (uint32_t *)(void *)ret);
}

void
row_predictor_write(struct row *row, const struct row_predictor *predictor)
{
	latch_write(&row->predictor_word, 0, row->predictor, ROW_PREDICTOR_WORDS,
		    (const uint32_t *)(const void *)predictor);
}

bool
row_predictor_read(const struct row *row, struct row_predictor *ret)
{
	return latch_read(&row->predictor_word, NULL, row->predictor, ROW_PREDICTOR_WORDS,
			  (uint32_t *)(void *)ret);
}

bool
row_believed(const struct row *row, const struct row_reading *reading)
{
	uint64_t seen = atomic_load_explicit(&row->engine_start_seen, memory_order_relaxed);

	if (!row_reading_same_life(reading))
		return false;
	return !(reading->known & KNOWN_ENGINE_START) || seen == 0 ||
	       seen == row_reading_start(reading);
}

enum row_state
row_state(const struct row *row, const struct row_reading *reading)
{
	switch (atomic_load_explicit(&row->intent, memory_order_acquire)) {
	case INTENT_SERVE:
		break;
	case INTENT_DRAIN:
		return ROW_DRAINING;
	default:
		return ROW_ABSENT;
	}
	if (row_disabled(row))
		return ROW_DISABLED;
	if (atomic_load_explicit(&row->health_since_ns, memory_order_relaxed) < row->since_ns)
		return ROW_UNPROVEN;    /* the last owner's health */
	switch (reading->health) {
	case HEALTH_UP:
		return ROW_UP;
	case HEALTH_SUSPECT:
		return ROW_SUSPECT;
	case HEALTH_DOWN:
		return ROW_DOWN;
	default:
		return ROW_UNPROVEN;
	}
}

const char *
row_state_name(enum row_state state)
{
	static const char *const names[ROW_STATES] = {"absent", "draining", "down", "suspect",
						      "unproven", "up", "disabled"};

	return (unsigned)state < sizeof names / sizeof *names ? names[state] : "unknown";
}

static const struct {
	const char *name, *text;
} whys[WHY_COUNT] = {
	[WHY_NOT_ASKED] = {"not-asked", "no probe has ended yet"},
	[WHY_OK] = {"ok", "it answers"},
	[WHY_REFUSED] = {"refused", "nobody accepts connections at that address and port"},
	[WHY_NO_ADDRESS] = {"no-address", "the host's name has no address"},
	[WHY_TLS] = {"tls", "TLS failed: the certificate is not accepted, or there is no TLS"},
	[WHY_CUT] = {"cut", "the connection ended before the answer did"},
	[WHY_UNREACHABLE] = {"unreachable", "it could not be asked: no route, or no connection in "
			     "time"},
	[WHY_SLOW] = {"slow", "it took the connection and did not answer in time, as in a long "
		      "prefill"},
	[WHY_STATUS] = {"status", "it answered, but not with 200"},
	[WHY_UNAVAILABLE] = {"unavailable", "503: it begins, it ends, or its engine is dead"},
	[WHY_NO_PAGE] = {"no-page", "404: no such path; SGLang wants --enable-metrics, "
			 "TensorRT-LLM return_perf_metrics"},
	[WHY_CLOSING] = {"closing", "it answers, and closes connections now: it drains"},
	[WHY_ASLEEP] = {"asleep", "the engine sleeps; its cache is empty; /wake_up ends it"},
	[WHY_PAUSED] = {"paused", "the engine is paused; /resume ends it"},
	[WHY_TOO_LARGE] = {"too-large", "the page is above 16 MiB, decoded"},
	[WHY_ENCODING] = {"encoding", "the page's Content-Encoding is broken or not known"},
	[WHY_NO_SAMPLES] = {"no-samples", "the page has no sample"},
	[WHY_NO_SERIES] = {"no-series", "no series of this engine, or of this rank, on the page: "
			   "another engine, or it has not begun"},
	[WHY_IN_PART] = {"in-part", "the page was cut or has too many series: what it does not "
			 "say whole is unknown"},
	[WHY_NO_HTTP] = {"no-http", "it answered, and not as HTTP does: is it that port?"},
};

const char *
row_why_name(unsigned why)
{
	return why < WHY_COUNT ? whys[why].name : "unknown";
}

const char *
row_why_text(unsigned why)
{
	return why < WHY_COUNT ? whys[why].text : "unknown";
}

const char *
predictor_state_name(unsigned state)
{
	static const char *const names[] = {"calibrating", "ready", "frozen"};

	return state < sizeof names / sizeof *names ? names[state] : "unknown";
}

const char *
cache_state_name(unsigned state)
{
	static const char *const names[] = {"none",      "exact", "gap",
					    "replaying", "stale", "approximate"};

	return state < sizeof names / sizeof *names ? names[state] : "unknown";
}

const char *
cache_reason_name(unsigned reason)
{
	static const char *const names[] = {
		"-", "no-events", "first-sequence", "sequence-hole", "sequence-back",
		"engine-start", "half-batch", "writer-restart", "cleared", "publisher", "replayed",
		"history-lost", "replay-silent", "replay-lost",
	};

	return reason < sizeof names / sizeof *names ? names[reason] : "unknown";
}

static const struct {
	const char *name, *text;
} troubles[TROUBLES] = {
	[TROUBLE_NONE] = {"-", ""},
	[TROUBLE_SILENT] = {"silent",
		"prompts were sent there and no event came: is its publisher on (vLLM up to "
		"0.11.0 and SGLang need \"publisher\":\"zmq\"), prefix caching on, kvEvents its"
		" port, a prompt as long as one of its blocks?"},
	[TROUBLE_FRAMES] = {"frames",
		"messages are not topic, sequence number, payload: does kvEvents name its event"
		" port?"},
	[TROUBLE_UNREADABLE] = {"unreadable",
		"payloads are no batches of events: cut short, no msgpack, or another protocol"},
	[TROUBLE_EVENT] = {"event",
		"events have a known tag and fields that cannot be read: a format newer than we"
		" know"},
	[TROUBLE_TAG] = {"tag",
		"events have a tag that is not known: a format newer than we know"},
	[TROUBLE_RANK] = {"rank",
		"batches are of another data-parallel rank than this endpoint: are the ports "
		"mixed up?"},
	[TROUBLE_GROUP] = {"group",
		"events are of cache groups that do not tell how long a prefix is held "
		"(windowed, Mamba, of unknown kind, or not the first full one)"},
	[TROUBLE_SIZE] = {"block-size",
		"events are in another block size than the row's: partial blocks, or another "
		"group"},
	[TROUBLE_CONFIGURED] = {"configured-block-size",
		"its events' block size is not the configured one, and theirs counts: correct "
		"or drop blockSize"},
	[TROUBLE_TOKENS] = {"tokens",
		"events name no plain token ids, or not whole blocks of them (bigram keys, "
		"multimodal, masked blocks): they tell where known blocks lie, no more"},
	[TROUBLE_ADAPTER] = {"adapter",
		"blocks of a LoRA adapter are named by a number of the engine only: no request "
		"can be matched with them (vLLM before 0.14)"},
	[TROUBLE_KEYS] = {"extra-keys",
		"blocks have extra keys of a form that is not known: no request can be matched "
		"with them"},
	[TROUBLE_PARENT] = {"parent",
		"blocks hang on blocks never heard of: we joined late, or events were lost"},
	[TROUBLE_TIER] = {"tier",
		"another tier stored blocks that are not known from the GPU, without all that "
		"their hashes cover"},
	[TROUBLE_ROOM] = {"room",
		"there was no room: raise spec.index.privateBytes, blocks or maxSlots"},
	[TROUBLE_RATE] = {"rate",
		"it stores more than spec.index.workerBlocksPerSecond"},
	[TROUBLE_SHARE] = {"share",
		"it holds spec.index.workerShare of the index already"},
	[TROUBLE_TOPIC] = {"topic",
		"messages have a topic of another's: does kvTopic fit its kv_events_config, or"
		" is the endpoint one of many engines?"},
};

const char *
event_trouble_name(unsigned kind)
{
	return kind < TROUBLES ? troubles[kind].name : "unknown";
}

const char *
event_trouble_text(unsigned kind)
{
	return kind < TROUBLES ? troubles[kind].text : "";
}
