/* actors/common/decide/manifest_rows.h -- how the tables of fields are written: manifest_fields*.c.
 *
 * One row a field, in the order of etc/README.md.  A row says all that the loader does with the
 * field; what it takes besides stands in the loader under the row's path.
 */
#pragma once
#include <stddef.h>

#include "actors/common/decide/manifest_private.h"

#define MANIFEST_AT(type, member)                                                                  \
	offsetof(struct type, member), sizeof(((struct type *)0)->member)

#define NEEDED       true, NULL
#define OPTIONAL     false, NULL
#define OR(fallback) false, fallback
#define RESTART      true
#define RELOAD	     false
#define NOWHERE	     0, 0

/* A map, or a text that the loader takes itself. */
#define PLAIN(parent, key, type, need, when, doc)                                                  \
	{parent, key, MANIFEST_T_##type, need, 0, 0, NULL, NULL, NOWHERE, 0, when, doc}
/* Bounds: how many items. */
#define LIST(parent, key, need, min, max, when, doc)                                               \
	{parent, key, MANIFEST_T_LIST, need, min, max, NULL, NULL, NOWHERE, 0, when, doc}
#define VALUE(parent, key, type, need, min, max, place, when, doc)                                 \
	{parent, key, MANIFEST_T_##type, need, min, max, NULL, NULL, place, 0, when, doc}
#define CHOICE(parent, key, need, place, base, choices, later, when, doc)                          \
	{parent, key, MANIFEST_T_CHOICE, need, 0, 0, choices, later, place, base, when, doc}
#define LATER(parent, key)                                                                         \
	{parent, key, MANIFEST_T_LATER, OPTIONAL, 0, 0, NULL, NULL, NOWHERE, 0, false, ""}

/* Limits of a tenant: the same keys in several places. */
#define LIMITS(parent, place)                                                                      \
	VALUE(parent, "requestsPerMinute", COUNT, OPTIONAL, 1, 1e9,                                \
	      place(requests_per_minute), RELOAD,                                                  \
	      "requests in a minute, as many at once; more is 429"),                               \
	VALUE(parent, "promptTokensPerMinute", COUNT, OPTIONAL, 1, 1e15,                           \
	      place(prompt_tokens_per_minute), RELOAD,                                             \
	      "prompt tokens in a minute: reserved when a request is admitted, settled when it "   \
	      "ends"),                                                                             \
	VALUE(parent, "completionTokensPerMinute", COUNT, OPTIONAL, 1, 1e15,                       \
	      place(completion_tokens_per_minute), RELOAD,                                         \
	      "likewise of answers; reserved by what the request allows"),                         \
	VALUE(parent, "concurrent", COUNT, OPTIONAL, 1, 1e6, place(concurrent), RELOAD,            \
	      "requests at once"),                                                                 \
	VALUE(parent, "budgetPerDay", MONEY, OPTIONAL, 0, 1e9, place(budget_per_day), RELOAD,      \
	      "money a day (UTC), in the unit of the prices")
#define PRICES(parent, place)                                                                      \
	VALUE(parent, "input", MONEY, NEEDED, 0, 1e6, place(input), RELOAD,                        \
	      "of a million prompt tokens, in one unit for all documents"),                        \
	VALUE(parent, "output", MONEY, NEEDED, 0, 1e6, place(output), RELOAD,                      \
	      "of a million tokens of the answer"),                                                \
	VALUE(parent, "cachedInput", MONEY, OPTIONAL, 0, 1e6, place(cached_input), RELOAD,         \
	      "of a million prompt tokens that were cached; absent: as `input`")

#define KIB 1024.0
#define MIB (1024.0 * KIB)
#define GIB (1024.0 * MIB)

/* A kind's rows and their number, for manifest_fields(). */
struct manifest_table {
	const struct manifest_field *rows;
	size_t n;
};

#define MANIFEST_TABLE(name, rows)                                                                 \
	const struct manifest_table name = {rows, sizeof(rows) / sizeof((rows)[0])}

extern const struct manifest_table manifest_table_gateway, manifest_table_set,
	manifest_table_pool, manifest_table_provider, manifest_table_policy, manifest_table_tenant,
	manifest_table_tag;
