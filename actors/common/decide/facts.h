/* actors/common/decide/facts.h -- what expressions can read: one table, and where the values lie.
 *
 * Question   Which names may an operator write, of what type and unit, and where is each value?
 * Table      facts_table(); etc/README.md's list of variables is generated from it.
 * Unknown    a value that is missing or too old is stored so: INT64_MIN, NaN, {NULL, 0}, bool -1,
 *            choice 255, the tag's bit in tags_unknown, head NULL.  It is never zero, never "".
 *            What a value cannot have (the pool of a provider, the provider of a worker) is "".
 * Static     values of class FACTS_STATIC change with the documents only, FACTS_POOL with the
 *            worker table, FACTS_DYNAMIC with every reading: whoever keeps results of expressions
 *            looks at expression_reads() to know for how long.
 * Ownership  all pointers are borrowed and good for one evaluation at least.
 * Threads    plain data; one writer before, readers after.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "proto/http1.h"
#include "proto/slice.h"

#define FACTS_INT_UNKNOWN INT64_MIN
#define FACTS_CHOICE_UNKNOWN 255u
#define FACTS_TAGS_MAX 64u

enum facts_kind { FACTS_WORKER, FACTS_PROVIDER };       /* candidate.kind */

struct facts_label {
	struct slice key, value;
};

/* One request, before it has a place. */
struct facts_request {
	struct slice model;             /* as the client wrote it */
	struct slice tenant;            /* its name; "": of none */
	struct slice path;              /* without the query */
	uint64_t tags, tags_unknown;    /* bits: struct manifest_tag's index; unknown wins */
	int64_t prompt_tokens;          /* of all prompts, or an estimate */
	int64_t max_tokens;             /* that it asks for */
	int64_t messages, tools, priority;
	const struct http1_head *head;  /* NULL: not read */
	int8_t stream;                  /* 0, 1; -1 */
};

struct facts_candidate {
	struct slice name;              /* member or provider */
	struct slice pool, provider;    /* by which it is one; "": it is of the other kind */
	struct slice model;             /* as it calls it */
	uint32_t pool_index;            /* into struct facts' pools; >= n_pools: none */
	uint8_t kind;                   /* enum facts_kind */
	uint8_t state;                  /* enum row_state */
	uint8_t cache_state;            /* enum cache_state */
	int64_t cached_tokens;          /* of this prompt */
	double cached_share;            /* of this prompt, 0..1 */
	int64_t waiting;                /* ours without a first byte, and others' scraped */
	int64_t scraped_waiting;        /* the engine's number alone */
	int64_t running;                /* requests that decode there */
	int64_t pending_tokens;         /* prompt tokens to be computed before ours */
	double kv_usage;                /* 0..1 */
	double predicted_ttft_s;
	double cost;                    /* of this request, in the unit of the prices */
	const struct facts_label *labels;
	uint32_t n_labels;
};

struct facts_pool {
	int64_t ready;                  /* workers that are up */
	int64_t waiting;                /* requests, all its workers together */
	double kv_usage;                /* 0..1: mean of the workers that are up */
};

struct facts {
	const struct facts_request *request;
	const struct facts_candidate *candidate; /* NULL where there is none: all unknown */
	const struct facts_pool *pools;          /* as in struct expression_names */
	uint32_t n_pools;
};

/* The table's rows; a set of them is a bitmap, 1ull << fact. */
enum fact {
	FACT_REQUEST_MODEL, FACT_REQUEST_TENANT, FACT_REQUEST_PATH, FACT_REQUEST_TAGS,
	FACT_REQUEST_PROMPT_TOKENS, FACT_REQUEST_MAX_TOKENS, FACT_REQUEST_STREAM,
	FACT_REQUEST_HEADERS, FACT_REQUEST_MESSAGES, FACT_REQUEST_TOOLS, FACT_REQUEST_PRIORITY,
	FACT_CANDIDATE_KIND, FACT_CANDIDATE_NAME, FACT_CANDIDATE_POOL, FACT_CANDIDATE_PROVIDER,
	FACT_CANDIDATE_MODEL, FACT_CANDIDATE_LABELS, FACT_CANDIDATE_STATE,
	FACT_CANDIDATE_CACHE_STATE, FACT_CANDIDATE_CACHED_TOKENS, FACT_CANDIDATE_CACHED_SHARE,
	FACT_CANDIDATE_WAITING, FACT_CANDIDATE_SCRAPED_WAITING, FACT_CANDIDATE_RUNNING,
	FACT_CANDIDATE_PENDING_TOKENS, FACT_CANDIDATE_KV_USAGE, FACT_CANDIDATE_PREDICTED_TTFT,
	FACT_CANDIDATE_COST,
	FACT_POOL_READY, FACT_POOL_WAITING, FACT_POOL_KV_USAGE,
	FACTS
};

enum facts_type {                       /* how it is stored, and its type in an expression */
	FACTS_BOOL,                     /* int8_t */
	FACTS_INT,                      /* int64_t */
	FACTS_DOUBLE,                   /* double */
	FACTS_STRING,                   /* struct slice */
	FACTS_CHOICE,                   /* uint8_t; a string, one of choices */
	FACTS_TAGS,                     /* a set of names: `in` and size() */
	FACTS_HEADERS,                  /* a map from string to string, names without case */
	FACTS_LABELS,                   /* a map from string to string */
};

enum facts_class {
	FACTS_OF_REQUEST = 1,           /* the request's, but its tags */
	FACTS_OF_TAGS = 2,
	FACTS_STATIC = 4,               /* of the candidate, as documents say */
	FACTS_POOL = 8,
	FACTS_DYNAMIC = 16,             /* of the candidate, this moment */
};

enum facts_names { FACTS_ANY, FACTS_POOLS, FACTS_PROVIDERS, FACTS_TENANTS, FACTS_MODELS };

struct fact_row {
	const char *name;               /* as it is written; "pool[].ready" is pool["NAME"].ready */
	enum facts_type type;
	enum facts_class class;
	const char *unit;               /* "": none */
	const char *doc;
	size_t offset;                  /* in facts_request, facts_candidate or facts_pool */
	const char *(*choice)(unsigned);/* CHOICE: name of a value; "unknown" behind the last */
	enum facts_names names;         /* STRING: whose names a literal beside it must be */
};

const struct fact_row *facts_table(void);
	/* FACTS rows, static. */
uint64_t facts_of(unsigned classes);
	/* All facts of these classes (enum facts_class, or'ed), as a bitmap. */
void facts_request_init(struct facts_request *);
void facts_candidate_init(struct facts_candidate *);
void facts_pool_init(struct facts_pool *);
	/* Everything unknown, no tag known to be there: fill in what is known. */
int facts_header(const struct http1_head *, const char *lower, struct slice *ret_value);
	/* lower: a name in lower case.  1 and its value; 0 it has none; -1 unknown: nobody read
	 * the head, or the field is there twice, of which an engine and a rule might each take
	 * another. */
