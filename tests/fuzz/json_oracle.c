/* json_oracle.c -- jansson as the judge. */
#include "json_oracle.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* On purpose different: depth past 64 is refused, a byte order mark skipped, half a surrogate pair
 * accepted, numbers past a double or an int64 are only text to us,
 * a key may hold a NUL. */
static bool
differ_on_purpose(const char *doc, size_t len)
{
	unsigned depth = 0;

	if (len >= 3 && memcmp(doc, "\xef\xbb\xbf", 3) == 0)
		return true;
	for (size_t i = 0; i < len; i++) {
		depth += doc[i] == '[' || doc[i] == '{';
		if (doc[i] == '\\' && i + 2 < len && doc[i + 1] == 'u' &&
		    (doc[i + 2] == 'd' || doc[i + 2] == 'D'))
			return true;
	}
	return depth > 64;
}

enum json_verdict
json_oracle(const char *doc, size_t len)
{
	json_error_t error;
	json_t *value;

	if (differ_on_purpose(doc, len))
		return JSON_ORACLE_SILENT;
	if (memchr(doc, '\0', len))          /* jansson takes one for the end of its input */
		return JSON_ORACLE_REFUSES;
	value = json_loadb(doc, len, JSON_DECODE_ANY | JSON_ALLOW_NUL, &error);
	if (!value && (json_error_code(&error) == json_error_numeric_overflow ||
		       json_error_code(&error) == json_error_null_byte_in_key))
		return JSON_ORACLE_SILENT;
	json_decref(value);
	return value ? JSON_ORACLE_ACCEPTS : JSON_ORACLE_REFUSES;
}

void
json_oracle_u32(const char *doc, size_t len, const uint32_t *ids, size_t n)
{
	json_t *array;

	if (len >= 3 && memcmp(doc, "\xef\xbb\xbf", 3) == 0)
		return;
	array = json_loadb(doc, len, 0, NULL);
	if (!array || json_array_size(array) != n) {
		fprintf(stderr, "fuzz_json: jansson counts otherwise\n");
		abort();
	}
	for (size_t i = 0; i < n; i++) {
		if (json_integer_value(json_array_get(array, i)) != ids[i]) {
			fprintf(stderr, "fuzz_json: jansson reads another integer\n");
			abort();
		}
	}
	json_decref(array);
}
