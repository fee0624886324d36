#include "proto/kv_events.h"

#include <endian.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "proto/kv_events_private.h"

/* Positions of a BlockStored array, vLLM's declaration order; also the names of its map keys.
 * A BlockRemoved array shares the first, then goes its own way. */
enum field {
	FIELD_TYPE,
	FIELD_HASHES,
	FIELD_PARENT,
	FIELD_TOKENS,
	FIELD_BLOCK_SIZE,
	FIELD_LORA_ID,
	FIELD_MEDIUM,
	FIELD_LORA_NAME,
	FIELD_EXTRA_KEYS,
	FIELD_GROUP,
	FIELD_SPEC,
	FIELDS_IN_ARRAY, /* what follows (window, locality, ownership) decides nothing here */
	FIELD_MM_KEYS = FIELDS_IN_ARRAY, /* TensorRT-LLM's extra keys */
	FIELDS,
};

static const struct {
	const char *text;
	size_t len;
} field_names[FIELDS] = {
#define NAME(text) {text, sizeof(text) - 1}
	[FIELD_TYPE] = NAME("type"),
	[FIELD_HASHES] = NAME("block_hashes"),
	[FIELD_PARENT] = NAME("parent_block_hash"),
	[FIELD_TOKENS] = NAME("token_ids"),
	[FIELD_BLOCK_SIZE] = NAME("block_size"),
	[FIELD_LORA_ID] = NAME("lora_id"),
	[FIELD_MEDIUM] = NAME("medium"),
	[FIELD_LORA_NAME] = NAME("lora_name"),
	[FIELD_EXTRA_KEYS] = NAME("extra_keys"),
	[FIELD_GROUP] = NAME("group_idx"),
	[FIELD_SPEC] = NAME("kv_cache_spec_kind"),
	[FIELD_MM_KEYS] = NAME("mm_keys"),
#undef NAME
};

static const enum field removed_order[] = {FIELD_TYPE, FIELD_HASHES, FIELD_MEDIUM, FIELD_GROUP};
static const enum field cleared_order[] = {FIELD_TYPE, FIELD_MEDIUM}; /* releases say no medium */

/* Where each field of one event lies; p NULL: absent.  Most bytes are token ids, so those are taken
 * up on the way. */
struct fields {
	struct kv_slice at[FIELDS];
	size_t first_token; /* of the batch's, before this event */
	bool plain;	    /* token_ids is a list of ids; the batch has them */
};

static bool
text_is(const struct frame_value *v, const char *text)
{
	return v->type == FRAME_STR && v->len == strlen(text) &&
	       memcmp(v->bytes, text, v->len) == 0;
}

static bool
slice_is(struct kv_slice s, const char *text)
{
	return s.n == strlen(text) && strncasecmp((const char *)s.p, text, s.n) == 0;
}

/* First value of a field; a field that is absent reads as nil. */
static struct frame_value
field_value(const struct fields *f, enum field which)
{
	struct frame_value v = {.type = FRAME_NIL};
	struct frame_cursor cur = cursor_of(f->at[which]);

	if (f->at[which].p && !frame_next(&cur, &v))
		v.type = FRAME_NIL;
	return v;
}

/* Grow a private array to hold one element more.  Doubles, so its size follows what was seen. */
static bool
grow(void **arrayp, size_t *cap, size_t n, size_t element)
{
	size_t want = *cap ? *cap * 2 : 64;
	void *bigger;

	if (n < *cap)
		return true;
	bigger = realloc(*arrayp, want * element);
	if (!bigger)
		return false;
	*arrayp = bigger;
	*cap = want;
	return true;
}

static bool
hash_read(const struct frame_value *v, uint64_t *ret_hash)
{
	uint64_t h = 0;

	switch (v->type) {
	case FRAME_UINT:
		h = v->u64;
		break;
	case FRAME_INT:
		h = (uint64_t)v->i64;
		break;
	case FRAME_BIN:
		if (v->len == 0)
			return false;
		for (uint32_t i = v->len > 8 ? v->len - 8 : 0; i < v->len; i++)
			h = h << 8 | v->bytes[i];
		break;
	default:
		return false;
	}
	*ret_hash = h;
	return true;
}

/* The next value if it is a hash; else the cursor may have moved. */
static bool
hash_next(struct frame_cursor *cur, uint64_t *ret_hash)
{
	struct frame_value v;
	uint64_t big;

	if (cur->end - cur->p >= 9 && cur->p[0] == 0xcf) {
		memcpy(&big, cur->p + 1, sizeof(big));
		*ret_hash = be64toh(big);
		cur->p += 9;
		return true;
	}
	return frame_next(cur, &v) && hash_read(&v, ret_hash);
}

/* Errors of one event: -EBADMSG with *why spoils this event only; -ENOMEM spoils the batch. */

static int
hashes_read(struct kv_batch *b, struct kv_event *ev, const struct fields *f, const char **why)
{
	struct frame_cursor cur = cursor_of(f->at[FIELD_HASHES]);
	struct frame_value v;
	size_t n;

	if (!f->at[FIELD_HASHES].p || !frame_next(&cur, &v) || v.type != FRAME_ARRAY) {
		*why = "block_hashes is no list";
		return -EBADMSG;
	}
	n = v.len;
	for (size_t i = 0; i < n; i++) {
		struct frame_cursor at = cur;

		if (!grow((void **)&b->hashes, &b->cap_hashes, b->n_hashes, sizeof(*b->hashes)))
			return -ENOMEM;
		if (hash_next(&cur, &b->hashes[b->n_hashes])) {
			b->n_hashes++;
			ev->n_hashes++;
			continue;
		}
		*why = "a block hash is neither an integer nor bytes";
		if (ev->type != KV_REMOVED)
			return -EBADMSG;
		cur = at; /* the others are gone all the same */
		if (!frame_skip(&cur))
			return -EBADMSG;
	}
	return 0;
}

/* The next value if it is an id: the loop that most bytes go through. */
static bool
id_next(struct frame_cursor *cur, uint32_t *ret_id)
{
	size_t left = (size_t)(cur->end - cur->p);
	const uint8_t *p = cur->p;
	struct frame_value v;

	if (left >= 3 && p[0] == 0xcd) {
		*ret_id = (uint32_t)p[1] << 8 | p[2];
		cur->p += 3;
		return true;
	}
	if (left >= 5 && p[0] == 0xce) {
		*ret_id = (uint32_t)p[1] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 8 | p[4];
		cur->p += 5;
		return true;
	}
	if (!frame_next(cur, &v) || v.type != FRAME_UINT || v.u64 > UINT32_MAX)
		return false;
	*ret_id = (uint32_t)v.u64;
	return true;
}

/* Step over token_ids, and keep them where they are plain.  Pairs (bigram keys) and strings
 * (multimodal) are legal and teach no tokens. */
static int
tokens_next(struct kv_batch *b, struct frame_cursor *cur, struct fields *f)
{
	struct frame_cursor at = *cur;
	struct frame_value v;

	b->n_tokens = f->first_token; /* should the key come twice */
	f->plain = frame_next(&at, &v) && v.type == FRAME_ARRAY;
	if (f->plain) {
		/* A token is a byte at least, so this follows what was seen. */
		while (b->n_tokens + v.len > b->cap_tokens)
			if (!grow((void **)&b->tokens, &b->cap_tokens, b->cap_tokens,
				  sizeof(*b->tokens)))
				return -ENOMEM;
		for (size_t i = 0; i < v.len && f->plain; i++)
			f->plain = id_next(&at, &b->tokens[b->n_tokens + i]);
	}
	if (!f->plain)
		return span_next(cur, &f->at[FIELD_TOKENS]) ? 0 : -EBADMSG;
	b->n_tokens += v.len;
	f->at[FIELD_TOKENS] = (struct kv_slice){cur->p, (size_t)(at.p - cur->p)};
	*cur = at;
	return 0;
}

static int
tokens_read(struct kv_event *ev, const struct fields *f, const char **why)
{
	struct frame_value v = field_value(f, FIELD_TOKENS);

	if (v.type == FRAME_NIL)
		return 0;
	if (v.type != FRAME_ARRAY) {
		*why = "token_ids is no list";
		return -EBADMSG;
	}
	ev->token_span = f->at[FIELD_TOKENS];
	ev->n_tokens = v.len;
	ev->tokens_usable = f->plain; /* judged against the hashes by the caller */
	return 0;
}

/* Absent, nil or an empty list. */
static bool
says_nothing(const struct fields *f, enum field which)
{
	struct frame_value v = field_value(f, which);

	return v.type == FRAME_NIL || (v.type == FRAME_ARRAY && v.len == 0);
}

/* One value per hash; anything else leaves them unread, marked. */
static int
extras_read(struct kv_batch *b, struct kv_event *ev, const struct fields *f, bool *ret_has)
{
	bool mm = !says_nothing(f, FIELD_MM_KEYS), extra = !says_nothing(f, FIELD_EXTRA_KEYS);
	struct kv_slice span = f->at[mm && !extra ? FIELD_MM_KEYS : FIELD_EXTRA_KEYS];
	struct frame_cursor cur = cursor_of(span);
	size_t first = b->n_extras;
	struct frame_value v;

	*ret_has = false;
	if (!span.p || !frame_next(&cur, &v) || v.type == FRAME_NIL)
		return 0;
	ev->extra_span = span;
	if (!mm && !extra)
		return 0;
	if ((mm && extra) || v.type != FRAME_ARRAY || v.len != ev->n_hashes) {
		ev->keys_unread = true;
		return 0;
	}
	for (size_t i = 0; i < ev->n_hashes; i++) {
		struct kv_slice one;

		if (!grow((void **)&b->extras, &b->cap_extras, b->n_extras, sizeof(*b->extras)))
			return -ENOMEM;
		if (cur.p < cur.end && *cur.p == 0xc0) { /* nil, as most are */
			cur.p++;
			b->extras[b->n_extras++] = (struct kv_slice){NULL, 0};
			continue;
		}
		if (!span_next(&cur, &one)) {
			b->n_extras = first;
			ev->keys_unread = true;
			return 0;
		}
		b->extras[b->n_extras++] = one;
	}
	*ret_has = true;
	return 0;
}

static void
medium_read(struct kv_event *ev, const struct fields *f)
{
	struct frame_value v = field_value(f, FIELD_MEDIUM);
	struct kv_slice s = {NULL, 0};

	ev->medium = KV_MEDIUM_GPU;
	if (v.type == FRAME_NIL)
		return;
	if (v.type != FRAME_STR && v.type != FRAME_BIN) {
		ev->medium = KV_MEDIUM_OTHER;
		return;
	}
	s = (struct kv_slice){v.bytes, v.len};
	ev->medium_text = s;
	if (slice_is(s, "GPU"))
		return;
	if (slice_is(s, "CPU") || slice_is(s, "CPU_PINNED"))
		ev->medium = KV_MEDIUM_CPU;
	else if (slice_is(s, "STORAGE") || slice_is(s, "SHARED_STORAGE") || slice_is(s, "DISK") ||
		 slice_is(s, "EXTERNAL"))
		ev->medium = KV_MEDIUM_STORAGE;
	else
		ev->medium = KV_MEDIUM_OTHER;
}

static enum kv_spec
spec_read(const struct fields *f)
{
	struct frame_value v = field_value(f, FIELD_SPEC);

	if (v.type == FRAME_NIL)
		return KV_SPEC_UNSAID;
	if (text_is(&v, "full_attention") || text_is(&v, "sink_full_attention"))
		return KV_SPEC_FULL;
	if (text_is(&v, "mla_attention"))
		return KV_SPEC_MLA;
	if (text_is(&v, "sliding_window") || text_is(&v, "sliding_window_mla") ||
	    text_is(&v, "chunked_local_attention"))
		return KV_SPEC_SLIDING;
	if (text_is(&v, "mamba"))
		return KV_SPEC_MAMBA;
	return KV_SPEC_OTHER;
}

/* An adapter that cannot be named must not be taken for the base model. */
static void
adapter_read(struct kv_event *ev, const struct fields *f)
{
	struct frame_value id = field_value(f, FIELD_LORA_ID);
	struct frame_value name = field_value(f, FIELD_LORA_NAME);

	if (name.type == FRAME_NIL && (id.type == FRAME_STR || id.type == FRAME_BIN))
		name = id; /* an engine that names where others count */
	if (name.type == FRAME_STR || name.type == FRAME_BIN) {
		if (name.len > 0)
			ev->lora_name = (struct kv_slice){name.bytes, name.len};
	} else if (name.type != FRAME_NIL) {
		ev->adapter_unread = true;
	}
	if (id.type == FRAME_UINT && id.u64 <= INT64_MAX) {
		ev->has_lora_id = true;
		ev->lora_id = (int64_t)id.u64;
	} else if (id.type == FRAME_INT) {
		ev->has_lora_id = true;
		ev->lora_id = id.i64;
	} else if (id.type != FRAME_NIL && !ev->lora_name.p &&
		   !((id.type == FRAME_STR || id.type == FRAME_BIN) && id.len == 0)) {
		ev->adapter_unread = true;
	}
}

static int
scalars_read(struct kv_event *ev, const struct fields *f, const char **why)
{
	struct frame_value v;

	v = field_value(f, FIELD_PARENT);
	if (v.type != FRAME_NIL) {
		if (!hash_read(&v, &ev->parent)) {
			*why = "parent_block_hash is neither an integer nor bytes";
			return -EBADMSG;
		}
		ev->has_parent = true;
	}
	v = field_value(f, FIELD_BLOCK_SIZE);
	if (v.type != FRAME_NIL) {
		if (v.type != FRAME_UINT || v.u64 > UINT32_MAX) {
			*why = "block_size is no count";
			return -EBADMSG;
		}
		ev->block_tokens = (uint32_t)v.u64;
	}
	adapter_read(ev, f);
	v = field_value(f, FIELD_GROUP);
	if (v.type != FRAME_NIL) {
		if (v.type != FRAME_UINT || v.u64 > UINT32_MAX) {
			*why = "group_idx is no count";
			return -EBADMSG;
		}
		ev->has_group = true;
		ev->group = (uint32_t)v.u64;
	}
	ev->spec = spec_read(f);
	medium_read(ev, f);
	return 0;
}

/* Find the fields of an event given as [tag, ...]; the tag decides the order of the rest.  0,
 * -EBADMSG, -ENOMEM. */
static int
fields_of_array(struct kv_batch *b, struct frame_cursor *cur, uint32_t len, struct fields *f)
{
	const enum field *order = NULL;
	size_t n_order = FIELDS_IN_ARRAY;

	for (uint32_t i = 0; i < len; i++) {
		struct kv_slice span;

		if (i == FIELD_TOKENS && !order) {
			int r = tokens_next(b, cur, f);

			if (r < 0)
				return r;
			continue;
		}
		if (!span_next(cur, &span))
			return -EBADMSG;
		if (i == 0) {
			struct frame_cursor tag = cursor_of(span);
			struct frame_value v;

			if (!frame_next(&tag, &v))
				v.type = FRAME_NIL;
			if (text_is(&v, "BlockRemoved")) {
				order = removed_order;
				n_order = sizeof(removed_order) / sizeof(removed_order[0]);
			} else if (text_is(&v, "AllBlocksCleared")) {
				order = cleared_order;
				n_order = sizeof(cleared_order) / sizeof(cleared_order[0]);
			}
		}
		if (i < n_order)
			f->at[order ? order[i] : (enum field)i] = span;
	}
	return 0;
}

/* Which field the key at the cursor, stepped over, names; FIELDS: none that we know.  They mostly
 * come in the order in which they are declared. */
static int
key_next(struct frame_cursor *cur, enum field expected, enum field *ret_field)
{
	struct frame_cursor at = *cur;
	struct frame_value v;

	*ret_field = FIELDS;
	if (!frame_next(&at, &v) || !frame_skip(cur))
		return -EBADMSG;
	for (unsigned i = 0; v.type == FRAME_STR && i < FIELDS; i++) {
		unsigned k = (expected + i) % FIELDS;

		if (v.len == field_names[k].len &&
		    memcmp(v.bytes, field_names[k].text, v.len) == 0) {
			*ret_field = (enum field)k;
			break;
		}
	}
	return 0;
}

static int
fields_of_map(struct kv_batch *b, struct frame_cursor *cur, uint32_t pairs, struct fields *f)
{
	enum field expected = FIELD_TYPE, key;

	for (uint32_t i = 0; i < pairs; i++) {
		struct kv_slice span;
		int r = key_next(cur, expected, &key);

		if (r == 0 && key == FIELD_TOKENS)
			r = tokens_next(b, cur, f);
		else if (r == 0 && !span_next(cur, key < FIELDS ? &f->at[key] : &span))
			r = -EBADMSG;
		if (r < 0)
			return r;
		if (key < FIELDS)
			expected = key + 1;
	}
	return 0;
}

/* How much of the batch's arrays is taken: what a failed event gives back. */
struct mark {
	size_t hashes, tokens, extras;
};

/* Pointers are set when the batch is whole, since the arrays move as they grow; until then an
 * event remembers how many it has, and `has` in the pointer's place whether. */
static int
event_read(struct kv_batch *b, struct kv_event *ev, const struct fields *f, const char **why)
{
	struct frame_value tag = field_value(f, FIELD_TYPE);
	bool has_extras = false;
	int r;

	if (text_is(&tag, "BlockStored"))
		ev->type = KV_STORED;
	else if (text_is(&tag, "BlockRemoved"))
		ev->type = KV_REMOVED;
	else if (text_is(&tag, "AllBlocksCleared"))
		ev->type = KV_CLEARED;
	else if (tag.type == FRAME_STR)
		return 1; /* somebody else's news */
	else {
		*why = "an event has no tag";
		return -EBADMSG;
	}
	if (ev->type != KV_STORED)
		b->n_tokens = f->first_token;
	r = scalars_read(ev, f, why);
	if (r < 0 || ev->type == KV_CLEARED)
		return r;
	r = hashes_read(b, ev, f, why);
	if (r < 0 || ev->type == KV_REMOVED)
		return r;
	r = tokens_read(ev, f, why);
	if (r == 0)
		r = extras_read(b, ev, f, &has_extras);
	if (has_extras)
		ev->extra_keys = (struct kv_slice *)ev; /* replaced by batch_link() */
	return r;
}

static int
event_next(struct kv_batch *b, struct frame_cursor *cur)
{
	struct mark mark = {b->n_hashes, b->n_tokens, b->n_extras};
	const char *why = NULL;
	struct frame_value v;
	struct fields f = {0};
	struct kv_event *ev;
	int r = -EBADMSG;

	if (!grow((void **)&b->events, &b->cap_events, b->n_events, sizeof(*b->events)))
		return -ENOMEM;
	ev = &b->events[b->n_events];
	memset(ev, 0, sizeof(*ev));
	if (!frame_next(cur, &v)) /* finding the fields also steps over the whole event */
		return -EBADMSG;
	f.first_token = b->n_tokens;
	if (v.type == FRAME_ARRAY || v.type == FRAME_MAP) {
		r = v.type == FRAME_ARRAY ? fields_of_array(b, cur, v.len, &f)
					  : fields_of_map(b, cur, v.len, &f);
		if (r < 0)
			return r;
		r = event_read(b, ev, &f, &why);
	} else {
		why = "an event is neither a list nor a map";
	}
	if (r == -ENOMEM)
		return r;
	if (r < 0 || why) { /* not read, or not whole */
		b->n_failed++;
		b->n_lost += ev->type != KV_STORED;
		if (!b->failed_why)
			b->failed_why = why;
	}
	if (r == 0) {
		b->n_events++;
		return 0;
	}
	b->n_hashes = mark.hashes;
	b->n_tokens = mark.tokens;
	b->n_extras = mark.extras;
	b->n_skipped += r > 0;
	return 0;
}

static void
batch_link(struct kv_batch *b)
{
	struct mark at = {0, 0, 0};

	for (size_t i = 0; i < b->n_events; i++) {
		struct kv_event *ev = &b->events[i];
		bool plain = ev->tokens_usable;

		ev->hashes = ev->n_hashes ? b->hashes + at.hashes : NULL;
		at.hashes += ev->n_hashes;
		if (plain && ev->n_tokens > 0) {
			ev->token_ids = b->tokens + at.tokens;
			at.tokens += ev->n_tokens;
		}
		if (ev->extra_keys) {
			ev->extra_keys = ev->n_hashes ? b->extras + at.extras : NULL;
			at.extras += ev->n_hashes;
		}
		ev->tokens_usable = plain && ev->n_tokens > 0 && ev->block_tokens > 0 &&
				    !ev->adapter_unread && !ev->keys_unread &&
				    (uint64_t)ev->n_hashes * ev->block_tokens == ev->n_tokens;
	}
}

static void
ts_read(struct kv_batch *b, const struct frame_value *v)
{
	b->ts_s = v->type == FRAME_FLOAT  ? v->f64
		  : v->type == FRAME_UINT ? (double)v->u64
		  : v->type == FRAME_INT  ? (double)v->i64
					  : (double)NAN;
}

/* Find ts, events, rank and publisher, by place or by name. */
static int
batch_fields(struct frame_cursor *cur, struct kv_slice at[4], const char **why)
{
	static const char *const names[4] = {"ts", "events", "data_parallel_rank", "publisher_id"};
	struct frame_value head, v;

	if (!frame_next(cur, &head) || (head.type != FRAME_ARRAY && head.type != FRAME_MAP)) {
		*why = "the payload is neither a list nor a map";
		return -EBADMSG;
	}
	for (uint32_t i = 0; i < head.len; i++) {
		struct kv_slice name = {NULL, 0}, span;
		struct frame_cursor key;

		if ((head.type == FRAME_MAP && !span_next(cur, &name)) || !span_next(cur, &span))
			return -EBADMSG;
		if (head.type == FRAME_ARRAY) {
			if (i < 4)
				at[i] = span;
			continue;
		}
		key = cursor_of(name);
		if (!frame_next(&key, &v))
			return -EBADMSG;
		for (int k = 0; k < 4; k++)
			if (text_is(&v, names[k]))
				at[k] = span;
	}
	return 0;
}

static void
batch_reset(struct kv_batch *b)
{
	b->ts_s = (double)NAN;
	b->has_rank = false;
	b->rank = 0;
	b->publisher_id = (struct kv_slice){NULL, 0};
	b->n_events = b->n_skipped = b->n_failed = b->n_lost = 0;
	b->failed_why = NULL;
	b->n_hashes = b->n_tokens = b->n_extras = 0;
}

int
kv_batch_decode(const void *payload, size_t n, struct kv_batch *b, const char **why)
{
	struct kv_slice at[4] = {{NULL, 0}, {NULL, 0}, {NULL, 0}, {NULL, 0}};
	struct frame_cursor cur;
	struct frame_value v;
	int r;

	batch_reset(b);
	if (n > KV_PAYLOAD_MAX_BYTES) {
		*why = "the payload is larger than 64 MiB";
		return -EMSGSIZE;
	}
	*why = "the payload is cut short or not msgpack";
	if (!frame_sane_with_ext(payload, n))
		return -EBADMSG;
	cur = cursor_of((struct kv_slice){payload, n});
	r = batch_fields(&cur, at, why);
	if (r < 0)
		return r;
	if (at[0].p) {
		cur = cursor_of(at[0]);
		if (frame_next(&cur, &v))
			ts_read(b, &v);
	}
	if (at[2].p) {
		cur = cursor_of(at[2]);
		if (frame_next(&cur, &v) && v.type == FRAME_UINT && v.u64 <= UINT32_MAX) {
			b->has_rank = true;
			b->rank = (uint32_t)v.u64;
		}
	}
	if (at[3].p) {
		cur = cursor_of(at[3]);
		if (frame_next(&cur, &v) && v.type == FRAME_BIN)
			b->publisher_id = (struct kv_slice){v.bytes, v.len};
	}
	*why = "the payload has no list of events";
	if (!at[1].p)
		return -EBADMSG;
	cur = cursor_of(at[1]);
	if (!frame_next(&cur, &v) || (v.type != FRAME_ARRAY && v.type != FRAME_NIL))
		return -EBADMSG;
	for (uint32_t i = 0, events = v.type == FRAME_ARRAY ? v.len : 0; i < events; i++) {
		r = event_next(b, &cur);
		if (r < 0) {
			batch_reset(b);
			*why = r == -ENOMEM ? "out of memory" : "the payload is cut short";
			return r;
		}
	}
	batch_link(b);
	*why = NULL;
	return 0;
}

void
kv_batch_free(struct kv_batch *b)
{
	free(b->events);
	free(b->hashes);
	free(b->tokens);
	free(b->extras);
	memset(b, 0, sizeof(*b));
}

int
kv_seq_decode(const void *frame, size_t n, uint64_t *ret_seq)
{
	const uint8_t *p = frame;
	uint64_t seq = 0;

	if (n < 8)
		return -EBADMSG;
	for (int i = 0; i < 8; i++)
		seq = seq << 8 | p[i];
	*ret_seq = seq;
	return 0;
}

enum kv_replay
kv_replay_parse(const struct kv_slice *frames, size_t n, uint64_t *ret_seq,
		struct kv_slice *ret_payload)
{
	uint64_t seq;

	if ((n != 3 && n != 4) || frames[0].n != 0)
		return KV_REPLAY_BAD;
	if (frames[n - 2].n != 8 || kv_seq_decode(frames[n - 2].p, 8, &seq) < 0)
		return KV_REPLAY_BAD;
	if (frames[n - 1].n == 0)
		return seq == UINT64_MAX ? KV_REPLAY_END : KV_REPLAY_BAD;
	*ret_seq = seq;
	*ret_payload = frames[n - 1];
	return KV_REPLAY_DATA;
}
