/* json_oracle.h -- a second opinion on JSON.  Apart, because jansson and proto/json.h both call
 * their things json_. */
#pragma once
#include <stddef.h>
#include <stdint.h>

enum json_verdict {
	JSON_ORACLE_SILENT,                  /* input where the two differ on purpose */
	JSON_ORACLE_ACCEPTS,
	JSON_ORACLE_REFUSES,
};

enum json_verdict json_oracle(const char *doc, size_t len);
void json_oracle_u32(const char *doc, size_t len, const uint32_t *ids, size_t n);
	/* Aborts when the array at doc does not hold exactly these. */
