/* actors/common/fields.h -- the fields of introspection's JSON: written one way, read one way.
 *
 * Meaning    Unknown is null, never 0; a fixed text field of shared memory becomes a string
 *            whatever bytes it holds.
 * Ownership  a json_t * is the caller's, or goes into an object (json_object_set_new); NULL: no
 *            memory, which json_object_set_new takes.  Texts read are borrowed from the object.
 * Threads    any.   Cost  some 100 ns and allocations each; never on the request path.
 */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shm/rows.h"
#include "shm/segment.h"

json_t *pm_json_hex(uint64_t n);                        /* 16 digits */
json_t *pm_json_wall(wall_ns when, unsigned digits);
	/* ISO 8601 UTC with 3 or 6 digits behind the second; null for 0. */
json_t *pm_json_known32(uint32_t n);                    /* null for all ones */
json_t *pm_json_nonzero(uint64_t n);                    /* null for 0 */
json_t *pm_json_integer_if(bool known, uint64_t n);     /* null unless known */
json_t *pm_json_seconds(mono_ns from, mono_ns to);      /* null when from is 0; never negative */
json_t *pm_json_text(const char *p, size_t cap);        /* up to its NUL; "?" if no UTF-8 */
json_t *pm_json_text_or_null(const char *p, size_t cap);        /* null when empty */
json_t *pm_json_member(const struct rows *rows, uint16_t row, uint32_t row_gen);
json_t *pm_json_member_then(const struct rows *rows, uint16_t row, uint32_t row_gen);
	/* The worker's name; null: no such row, another holds it by now, or rows absent (NULL).
	 * _then: also if it was taken away and came back since. */

bool pm_hex_read(const char *text, size_t len, uint64_t *ret);
	/* What pm_json_hex wrote, in either case; false: not 16 hex digits. */
const char *pm_text_at(const json_t *object, const char *key, const char *otherwise);
	/* otherwise: absent, no text, or empty. */
long long pm_integer_at(const json_t *object, const char *key);    /* 0: absent, or none */
