/* actors/common/prompt/value.h -- Python's values, as chat templates see them.
 *
 * Meaning    one value is 16 bytes, passed by value.  Text, items and pairs lie in memory that
 *            somebody else keeps (a bump, the request's body, a compiled template) and never
 *            change: slices of lists and strings share what they were cut from.
 * Text       UTF-8; a lone surrogate, which JSON can name by escape, is kept as its three bytes
 *            (ED A0..BF xx), so that who needs whole text can see it (value_text_whole).
 * Integers   of any size: those beyond int64 are kept as their digits, and only compared,
 *            printed and passed on.
 * Dicts      in order of first insertion; a key given again keeps its place and takes the new
 *            value.  Equal keys are Python's: 1, 1.0 and True are one key.
 * Errors     builders return false when the bump's bound or memory is reached.
 * Threads    pure but for the bump (one thread).  A dict's index is made when the dict is made,
 *            so finished values may be read by several threads.
 * Cost       a look-up in a dict of up to VALUE_LINEAR keys walks them, 2 ns a key; else hashed.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "actors/common/prompt/bump.h"
#include "actors/common/prompt/text.h"
#include "proto/slice.h"

#define VALUE_LINEAR 8u                 /* keys of a dict that are looked for one by one */
#define VALUE_DEPTH  200u               /* containers in each other, read from JSON or walked */

enum value_kind {
	VALUE_UNDEFINED,                        /* zero: an absent variable or key */
	VALUE_NONE,
	VALUE_BOOL,                             /* i */
	VALUE_INT,                              /* i */
	VALUE_BIG,                              /* s, n: digits in base ten, perhaps "-" before */
	VALUE_FLOAT,                            /* f */
	VALUE_STRING,                           /* s, n bytes */
	VALUE_LIST,                             /* items, n */
	VALUE_TUPLE,                            /* items, n */
	VALUE_DICT,                             /* dict */
	/* What only a template makes (jinja_private.h says of what). */
	VALUE_ITER, VALUE_RANGE, VALUE_VIEW, VALUE_NAMESPACE, VALUE_LOOP, VALUE_MACRO,
	VALUE_METHOD, VALUE_FUNCTION, VALUE_CYCLER, VALUE_JOINER, VALUE_KINDS
};

#define VALUE_MARKUP 1u                 /* flags of a string: marked safe (markupsafe.Markup) */
#define VALUE_REFUSED 1u                /* flags of an undefined: the sandbox refused it */

struct value {
	uint8_t kind, flags;
	uint16_t spare;
	uint32_t n;
	union {
		int64_t i;
		double f;
		const char *s;
		const struct value *items;
		const struct value_dict *dict;
		const void *p;
	};
};

struct value_pair {
	struct value key, value;
};

struct value_dict {
	struct value_pair *pair;                /* in order */
	uint32_t n, cap;
	uint32_t *index;                        /* NULL up to VALUE_LINEAR keys; pair + 1, 0 none */
	uint32_t mask;
	struct bump *bump;                      /* where it grows */
};

/* Makers of what needs no memory.  Text and items are borrowed. */
static inline struct value
value_undefined(void)
{
	return (struct value){.kind = VALUE_UNDEFINED};
}

static inline struct value
value_none(void)
{
	return (struct value){.kind = VALUE_NONE};
}

static inline struct value
value_bool(bool b)
{
	return (struct value){.kind = VALUE_BOOL, .i = b};
}

static inline struct value
value_int(int64_t i)
{
	return (struct value){.kind = VALUE_INT, .i = i};
}

static inline struct value
value_float(double f)
{
	return (struct value){.kind = VALUE_FLOAT, .f = f};
}

static inline struct value
value_string(struct slice s)            /* s.len < 2^32 */
{
	return (struct value){.kind = VALUE_STRING, .n = (uint32_t)s.len, .s = s.p ? s.p : ""};
}

static inline struct value
value_str(const char *s)
{
	return value_string(slice_str(s));
}

extern const struct value value_nothing[1];     /* what an empty list points to */

static inline struct value
value_list(const struct value *items, uint32_t n)
{
	return (struct value){.kind = VALUE_LIST, .n = n, .items = items ? items : value_nothing};
}

static inline struct value
value_of_dict(const struct value_dict *dict)
{
	return (struct value){.kind = VALUE_DICT, .dict = dict};
}

static inline struct slice
value_slice(struct value v)             /* the text of a string (the digits of a big one) */
{
	return (struct slice){v.s, v.n};
}

static inline bool
value_is_text(struct value v, const char *text)
{
	return v.kind == VALUE_STRING && slice_eq_str(value_slice(v), text);
}

/* Builders.  A list grows in an array of the bump; what is read of it meanwhile moves. */
struct value_items {
	struct value *item;
	uint32_t n, cap;
};

bool value_push(struct bump *bump, struct value_items *items, struct value v);
static inline struct value
value_list_of(const struct value_items *items)
{
	return value_list(items->item, items->n);
}

bool value_copy(struct bump *bump, struct slice text, struct value *ret);
	/* A string of its own bytes in the bump. */
struct value_dict *value_dict_new(struct bump *bump, uint32_t room);
	/* NULL: no memory.  room: keys expected, may be 0. */
bool value_put(struct value_dict *dict, struct value key, struct value v);
	/* Adds, or replaces in place.  A key that cannot be hashed (value_hashable) is the caller's
	 * mistake. */
bool value_put_str(struct value_dict *dict, const char *key, struct value v);
	/* key is borrowed: a literal. */

/* Readers. */
const struct value *value_get(const struct value_dict *dict, struct value key);
	/* NULL: not there. */
const struct value *value_get_str(const struct value_dict *dict, struct slice key);
struct value value_member(struct value v, const char *key);
	/* Of a dict; undefined when it is no dict or has no such key. */
bool value_true(struct value v);        /* Python's truth */
bool value_equal(struct value a, struct value b);
	/* Python's ==, to a depth of VALUE_DEPTH (deeper: false). */
bool value_hashable(struct value v);    /* may it be a key */
uint64_t value_hash(struct value v);    /* equal values hash equal */
bool value_text_whole(struct slice text);
	/* Is it UTF-8 without lone surrogates? */

/* JSON as Python's json reads and writes it (value_json.c, value_dump.c). */
int value_from_json(struct bump *bump, struct slice doc, struct value *ret, const char **why,
		    size_t *ret_off);
	/* json.loads: NaN, Infinity and -Infinity are numbers, an integer stays one however long
	 * (up to 4300 digits, as Python), 1e400 is Infinity, a duplicate key keeps its first place
	 * and takes its last value, lone surrogates are kept.  Strings without escapes are slices
	 * of doc, which must live as long.  0; -EBADMSG with why (static) and where (byte offset);
	 * -EMSGSIZE deeper than VALUE_DEPTH; -ENOMEM over the bump's bound.  ret_off may be NULL.
	 * Cost: ~1 ns a byte of structure, 0.1 ns a byte of plain text. */

struct value_dump {
	bool ascii;                             /* ensure_ascii */
	bool sort;                              /* sort_keys */
	const char *indent;                     /* NULL: one line; else repeated for each level */
	size_t indent_len;
	struct slice item, key;                 /* separators; absent: Python's own */
};

int value_to_json(struct value v, const struct value_dump *how, struct text *out, const char **why);
	/* json.dumps(v, …); how NULL: {ensure_ascii=False}, as Hugging Face's tojson.  Appends.  0;
	 * -EINVAL with why (static) for what JSON has not (undefined, a method …, keys of other
	 * kinds), or too deep; -ENOSPC, -ENOMEM by the text. */
