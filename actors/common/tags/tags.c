/* actors/common/tags/tags.c -- a set of tags, compiled, and what a body has of it; see tags.h. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "actors/common/tags/tags.h"

#include <errno.h>
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "actors/common/tags/find.h"
#include "actors/common/tags/plain.h"
#include "actors/common/tags/texts.h"

#define STACK_MIN (32u << 10)
#define STACK_MAX (1u << 20)

_Static_assert((int)MANIFEST_VALIDATOR_EMAIL == (int)FIND_EMAIL &&
		       (int)MANIFEST_VALIDATOR_PHONE == (int)FIND_PHONE &&
		       (int)MANIFEST_VALIDATOR_IBAN == (int)FIND_IBAN &&
		       (int)MANIFEST_VALIDATOR_CARD == (int)FIND_CARD &&
		       (int)MANIFEST_VALIDATOR_SSN == (int)FIND_SSN &&
		       (int)MANIFEST_VALIDATOR_SECRET == (int)FIND_SECRET &&
		       (int)MANIFEST_VALIDATOR_REGEX == (int)FIND_KINDS,
	       "one order of validators");

/* What is looked for once, whichever tags want it: a validator, or one own pattern. */
struct sort {
	pcre2_code *code;               /* owned; NULL: of the validators */
	uint32_t most;                  /* different matches that anybody asks for; 0: nobody */
	size_t at;                      /* of its `most` hashes in a room's */
};

struct need {
	uint32_t sort;                  /* subscript */
	uint32_t tag, minimum;
};

struct tags {
	struct find_tables tables;
	struct sort *sort;              /* owned; FIND_KINDS validators, then own patterns */
	size_t n_sorts, n_hashes;
	struct need *need;              /* owned */
	size_t n_needs;
	uint64_t by_text;
};

struct buffer {
	char *p;                        /* owned */
	size_t cap;
};

struct tags_room {
	const struct tags *tags;        /* borrowed */
	uint32_t *seen;                 /* owned; different matches of each sort */
	uint64_t *hash;                 /* owned; of these */
	bool *spent;                    /* owned; a sort of which no more is wanted */
	uint64_t found, unknown;
	unsigned want;                  /* validators, 1 << enum find_kind */
	struct buffer text, inner;
	pcre2_match_data *match;        /* owned, all three */
	pcre2_match_context *context;
	pcre2_jit_stack *stack;
};

/* ---- the set ---- */

static pcre2_code *
compile(struct slice regex, size_t *ret_offset, char *why, size_t why_cap)
{
	pcre2_code *code;
	int error;

	code = pcre2_compile((PCRE2_SPTR)regex.p, regex.len,
			     PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, ret_offset,
			     NULL);
	if (!code) {
		pcre2_get_error_message(error, (PCRE2_UCHAR *)why, why_cap);
		return NULL;
	}
	pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);    /* without it matches are slower */
	return code;
}

int
tags_regex_check(struct slice regex, size_t *ret_offset, char *why, size_t why_cap)
{
	pcre2_code *code = compile(regex, ret_offset, why, why_cap);

	if (!code)
		return -EINVAL;
	pcre2_code_free(code);
	return 0;
}

static int
add_pattern(struct tags *t, uint32_t tag, const struct manifest_pattern *p, char *why,
	    size_t why_cap)
{
	uint32_t sort = (uint32_t)p->validator;
	size_t offset = 0;

	if (p->validator == MANIFEST_VALIDATOR_REGEX) {
		sort = (uint32_t)t->n_sorts;
		t->sort[sort].code = compile(slice_str(p->regex), &offset, why, why_cap);
		if (!t->sort[sort].code) {
			size_t n = strlen(why);

			snprintf(why + n, why_cap - n, ", at character %zu of `%s`", offset + 1,
				 p->regex);
			return -EINVAL;
		}
		t->n_sorts++;
	}
	t->need[t->n_needs++] = (struct need){sort, tag, p->minimum};
	if (t->sort[sort].most < p->minimum)
		t->sort[sort].most = p->minimum;
	t->by_text |= 1ull << tag;
	return 0;
}

int
tags_new(struct tags **ret, const struct manifest_tag *tag, uint32_t n, uint32_t *ret_which,
	 char *why, size_t why_cap)
{
	struct tags *t = calloc(1, sizeof *t);
	size_t patterns = 0;
	int r = 0;

	for (uint32_t i = 0; i < n; i++)
		patterns += tag[i].n_patterns;
	if (!t || !(t->sort = calloc(patterns + FIND_KINDS, sizeof *t->sort)) ||
	    !(t->need = calloc(patterns + 1, sizeof *t->need))) {
		tags_free(&t);
		return -ENOMEM;
	}
	find_tables_init(&t->tables);
	t->n_sorts = FIND_KINDS;
	for (uint32_t i = 0; i < n && r == 0; i++)
		for (uint32_t k = 0; k < tag[i].n_patterns && r == 0; k++) {
			*ret_which = i;
			r = add_pattern(t, i, &tag[i].patterns[k], why, why_cap);
		}
	if (r < 0) {
		tags_free(&t);
		return r;
	}
	for (size_t i = 0; i < t->n_sorts; i++) {
		t->sort[i].at = t->n_hashes;
		t->n_hashes += t->sort[i].most;
	}
	*ret = t;
	return 0;
}

void
tags_free(struct tags **ret)
{
	struct tags *t = *ret;

	if (!t)
		return;
	for (size_t i = 0; t->sort && i < t->n_sorts; i++)
		pcre2_code_free(t->sort[i].code);
	free(t->sort);
	free(t->need);
	free(t);
	*ret = NULL;
}

uint64_t
tags_by_text(const struct tags *t)
{
	return t->by_text;
}

/* ---- a room ---- */

int
tags_room_new(struct tags_room **ret, const struct tags *t)
{
	struct tags_room *room = calloc(1, sizeof *room);

	if (!room)
		return -ENOMEM;
	room->tags = t;
	room->seen = calloc(t->n_sorts, sizeof *room->seen);
	room->spent = calloc(t->n_sorts, sizeof *room->spent);
	room->hash = calloc(t->n_hashes + 1, sizeof *room->hash);
	room->match = pcre2_match_data_create(1, NULL);
	room->context = pcre2_match_context_create(NULL);
	room->stack = pcre2_jit_stack_create(STACK_MIN, STACK_MAX, NULL);
	if (!room->seen || !room->spent || !room->hash || !room->match || !room->context ||
	    !room->stack) {
		tags_room_free(&room);
		return -ENOMEM;
	}
	pcre2_set_match_limit(room->context, TAGS_STEPS);
	pcre2_jit_stack_assign(room->context, NULL, room->stack);
	*ret = room;
	return 0;
}

void
tags_room_free(struct tags_room **ret)
{
	struct tags_room *room = *ret;

	if (!room)
		return;
	free(room->seen);
	free(room->spent);
	free(room->hash);
	free(room->text.p);
	free(room->inner.p);
	pcre2_match_data_free(room->match);
	pcre2_match_context_free(room->context);
	pcre2_jit_stack_free(room->stack);
	free(room);
	*ret = NULL;
}

/* Nobody wants a sort whose tags are all there. */
static void
settle(struct tags_room *room)
{
	const struct tags *t = room->tags;

	memset(room->spent, true, t->n_sorts * sizeof *room->spent);
	for (size_t i = 0; i < t->n_needs; i++)
		if (!(room->found >> t->need[i].tag & 1))
			room->spent[t->need[i].sort] = false;
	room->want = 0;
	for (unsigned k = 0; k < FIND_KINDS; k++)
		room->want |= room->spent[k] ? 0 : 1u << k;
}

static void
begin(struct tags_room *room)
{
	memset(room->seen, 0, room->tags->n_sorts * sizeof *room->seen);
	room->found = room->unknown = 0;
	settle(room);
}

/* One more match, if it is another than those before. */
static void
take(struct tags_room *room, size_t sort, uint64_t hash)
{
	const struct tags *t = room->tags;
	uint64_t *seen = room->hash + t->sort[sort].at;
	uint32_t *n = &room->seen[sort];

	for (uint32_t i = 0; i < *n; i++)
		if (seen[i] == hash)
			return;
	if (*n == t->sort[sort].most)
		return;
	seen[(*n)++] = hash;
	for (size_t i = 0; i < t->n_needs; i++)
		if (t->need[i].sort == sort && *n == t->need[i].minimum) {
			room->found |= 1ull << t->need[i].tag;
			settle(room);
		}
}

/* The same number or address however it is written: letters and digits, in one case. */
static uint64_t
value_hash(struct slice value, bool signs)
{
	uint64_t h = 0xcbf29ce484222325ull;

	for (size_t i = 0; i < value.len; i++) {
		char c = value.p[i];

		if (c >= 'A' && c <= 'Z')
			c = (char)(c + 0x20);
		if (signs || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z'))
			h = (h ^ (uint8_t)c) * 0x100000001b3ull;
	}
	return h;
}

static void
hit(struct find *f, enum find_kind kind, struct slice value)
{
	struct tags_room *room = f->owner;

	if (kind == FIND_SECRET)
		take(room, kind, XXH3_64bits(value.p, value.len));
	else
		take(room, kind, value_hash(value, kind == FIND_EMAIL));
	f->want = room->want;
}

/* ---- one text ---- */

static void
cannot_tell(struct tags_room *room, size_t sort)
{
	const struct tags *t = room->tags;

	for (size_t i = 0; i < t->n_needs; i++)
		if (t->need[i].sort == sort)
			room->unknown |= 1ull << t->need[i].tag;
}

static void
match_own(struct tags_room *room, size_t sort, struct slice text)
{
	const PCRE2_SIZE *at = pcre2_get_ovector_pointer(room->match);
	size_t from = 0;

	while (!room->spent[sort] && from <= text.len) {
		int r = pcre2_match(room->tags->sort[sort].code, (PCRE2_SPTR)text.p, text.len, from,
				    PCRE2_NO_UTF_CHECK, room->match, room->context);

		if (r == PCRE2_ERROR_NOMATCH)
			return;
		if (r < 0 || at[1] < at[0]) {
			cannot_tell(room, sort);
			return;
		}
		take(room, sort, XXH3_64bits(text.p + at[0], at[1] - at[0]));
		from = at[1];
		if (at[1] > at[0])
			continue;
		do                              /* of nothing: on by one character */
			from++;
		while (from < text.len && ((uint8_t)text.p[from] & 0xc0) == 0x80);
	}
}

static void
look(struct tags_room *room, struct slice text)
{
	const struct tags *t = room->tags;
	struct find f = {
		.tables = &t->tables,
		.text = text.p,
		.end = text.p + text.len,
		.want = room->want,
		.hit = hit,
		.owner = room,
	};

	find_all(&f);
	for (size_t i = FIND_KINDS; i < t->n_sorts; i++)
		match_own(room, i, text);
}

static bool
make_room(struct buffer *b, size_t len)
{
	size_t cap = b->cap ? b->cap : 4096;
	char *grown;

	if (len <= b->cap)
		return true;
	while (cap < len)
		cap *= 2;
	grown = realloc(b->p, cap);
	if (!grown)
		return false;
	b->p = grown;
	b->cap = cap;
	return true;
}

/* What stands in the buffer, which is spoilt by it. */
static void
look_at(struct tags_room *room, struct buffer *b, size_t n)
{
	look(room, (struct slice){b->p, plain_text(b->p, n)});
}

/* Arguments of a tool: strings inside have escapes of their own. */
static bool
look_inside(struct tags_room *room, size_t len)
{
	const struct json_string s = {.raw = {room->text.p, len}, .escaped = true};
	const char *why;
	size_t off;

	if (!memchr(s.raw.p, '\\', len) || json_validate(s.raw.p, len, &why, &off) < 0)
		return true;
	if (!make_room(&room->inner, len))
		return false;
	look_at(room, &room->inner, (size_t)json_unescape(&s, room->inner.p, room->inner.cap));
	return true;
}

static bool
read_text(struct tags_room *room, const struct texts_text *text)
{
	struct slice raw = text->string.raw;
	size_t n;

	if (!text->string.escaped && plain_same(raw) == raw.len) {
		look(room, raw);
		return true;
	}
	if (!make_room(&room->text, raw.len))
		return false;
	n = (size_t)json_unescape(&text->string, room->text.p, room->text.cap);
	if (text->json && !look_inside(room, n))
		return false;
	look_at(room, &room->text, n);
	return true;
}

static void
on_text(void *arg, const struct texts_text *text)
{
	struct tags_room *room = arg;

	if ((room->tags->by_text & ~room->found) != 0 && !read_text(room, text))
		room->unknown = room->tags->by_text;
}

static void
end(struct tags_room *room, unsigned hidden, struct tags_found *ret)
{
	if (hidden)
		room->unknown = room->tags->by_text;
	*ret = (struct tags_found){
		.tags = room->found,
		.unknown = room->unknown & ~room->found,
		.hidden = hidden,
	};
}

void
tags_of_body(struct tags_room *room, struct slice body, struct tags_found *ret)
{
	unsigned hidden = 0;

	begin(room);
	if (room->tags->by_text && texts_walk(body, on_text, room, &hidden) < 0)
		room->unknown = room->tags->by_text;
	end(room, hidden, ret);
}

void
tags_of_text(struct tags_room *room, struct slice text, struct tags_found *ret)
{
	const struct texts_text t = {.string = {.raw = text}};

	begin(room);
	on_text(room, &t);
	end(room, 0, ret);
}
