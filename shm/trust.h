/* shm/trust.h -- are the token ids that we make of a model's prompts the engine's own?
 *
 *      the worker table's segment (rows.h) ends with
 *      row_trust 320 x capacity | model_trust 192 x TRUST_MODELS
 *
 * Proof      of a worker: a whole run of probes to its /tokenize, whose every answer had our ids
 *            (EXACT) or some of whose had not (MISMATCH); an answer whose prompt_tokens are not as
 *            many as ours (MISMATCH: what differs in number differs).  Equal numbers, hits in its
 *            cache and blocks in its events are told beside it, and prove nothing.
 * Model      MISMATCH where more of its workers are so than are EXACT: its prompts then go by the
 *            worker's /tokenize.  EXACT where some worker is and no more are not.
 * Identity   trust_key(): the name that the workers call the model by, and all of ours that decides
 *            its ids.  So what was proven lasts over reloads and policy processes, and another
 *            tokenizer or template under the old name begins anew.
 * Writer     metrics, sole.   Readers  any.
 * Order      row_trust: latch.h, the tag is the row_gen that it is of.  model_trust: T1 key = 0
 *            (release fence behind it) before an entry gets another model, T2 release-store of key
 *            last; readers A2 acquire-load of key, and single words.
 * Crash      the writer stops before T2: the entry is nobody's, its model reads as UNVERIFIED, and
 *            the successor makes another.  Else latch.h.
 * Version    part of ROWS_LAYOUT.
 */
#pragma once
#include "shm/rows.h"

#define TRUST_MODELS  256u              /* names times tokenizers; the one unused longest goes */
#define TRUST_VERSION 24u               /* bytes of an engine's version, the 0 with them */

enum trust_state { TRUST_UNVERIFIED = 0, TRUST_EXACT, TRUST_MISMATCH };

enum trust_why {
	TRUST_NOT_ASKED = 0,            /* no run of probes has ended in this engine's life */
	TRUST_NO_MODEL,                 /* its set's spec.tokenizer cannot be used; key 0 */
	TRUST_FOREIGN,                  /* its engine has an encoder of its own */
	TRUST_PROBES_AGREE,
	TRUST_PROBES_DIFFER,
	TRUST_USAGE_DIFFERS,            /* an answer counted its prompt otherwise */
	TRUST_NO_ROUTE,                 /* /tokenize: 404 or the like, or spec.tokenize is false */
	TRUST_REFUSED,                  /* it answered probes with errors */
	TRUST_UNREACHABLE,              /* it did not answer them */
	TRUST_FEW,                      /* too few answers had ids on both sides to prove it */
	TRUST_WHYS,
};

struct row_trust {                      /* of one worker; M; 32 words */
	uint32_t state, why;            /* enum trust_state, enum trust_why */
	uint32_t key_lo, key_hi;        /* trust_key() of what it was compared with; 0: nothing */
	uint32_t start_lo, start_hi;    /* of which life of the engine: wall ns; 0: not said */
	uint32_t up_lo, up_hi;          /* mono ns when that came up */
	uint32_t since_lo, since_hi;    /* mono ns; of {state, why} */
	uint32_t probes, agreed, differed; /* of the newest run; the rest had no ids to compare */
	uint32_t usage_same, usage_differ; /* answers whose prompt_tokens were ours, were not */
	uint32_t usage_ours, usage_theirs; /* tokens; of the newest that differed */
	uint32_t cached_same, cached_more, cached_less;
		/* answers whose cached_tokens were as predicted, more, less */
	uint32_t probe;                 /* which differed first; from 0 */
	uint32_t at, ours, theirs;      /* its first difference: place, ids; all ones: one ends */
	uint32_t n_ours, n_theirs;      /* its tokens */
	char version[TRUST_VERSION];    /* of the engine, as it says; "": it does not */
};
#define ROW_TRUST_WORDS 32u
_Static_assert(sizeof(struct row_trust) == ROW_TRUST_WORDS * 4, "row_trust");

struct row_trust_line {
	_Atomic uint64_t word;
	_Atomic uint32_t words[2 * ROW_TRUST_WORDS];
	uint64_t pad[7];
};
_Static_assert(sizeof(struct row_trust_line) == 320, "row_trust_line");

struct model_trust {                    /* M */
	_Atomic uint64_t key;           /* trust_key(); 0: nobody's */
	_Atomic uint64_t since_ns;      /* mono; of state */
	_Atomic uint32_t state;         /* enum trust_state */
	_Atomic uint32_t exact, unverified, mismatch;   /* its workers */
	uint64_t pad[4];
	_Atomic uint64_t name[ROW_URL_MAX / 8];         /* text, ended by a 0 */
};
_Static_assert(sizeof(struct model_trust) == 192, "model_trust");

uint64_t trust_key(const char *model, const void *identity, size_t len);
	/* model: as the workers call it; identity: models.h struct models_blob's key.  Never 0.
	 * 50 ns. */
enum trust_state trust_model(const struct rows *rows, uint64_t key);
	/* UNVERIFIED of what is not there.  Any thread or process; 5 ns a model. */
const struct model_trust *trust_find(const struct rows *rows, uint64_t key);    /* NULL: none */
bool trust_model_name(const struct model_trust *model, char ret[ROW_URL_MAX]);
	/* False: an entry without one, or being written. */
static inline bool
trust_has_workers(const struct model_trust *model)
{
	return atomic_load_explicit(&model->exact, memory_order_relaxed) +
	       atomic_load_explicit(&model->unverified, memory_order_relaxed) +
	       atomic_load_explicit(&model->mismatch, memory_order_relaxed) > 0;
}

bool row_trust_read(const struct rows *rows, uint16_t id, struct row_trust *ret);
	/* False, and zero: nothing is known of the worker that has this row now. */
void row_trust_write(struct rows *rows, uint16_t id, uint32_t row_gen,
		     const struct row_trust *trust);                                    /* M */
void trust_model_write(struct rows *rows, uint64_t key, const char *name, unsigned exact,
		       unsigned unverified, unsigned mismatch, mono_ns now);            /* M */
	/* Counts of its workers now; makes the entry, and the state that follows from them.  All 0:
	 * the state stays, for those who decide by older documents. */

static inline uint64_t
row_trust_key(const struct row_trust *t)
{
	return (uint64_t)t->key_hi << 32 | t->key_lo;
}

static inline mono_ns
row_trust_since(const struct row_trust *t)
{
	return (uint64_t)t->since_hi << 32 | t->since_lo;
}

const char *trust_state_name(unsigned state);   /* "unverified", "exact", "mismatch" */
const char *trust_why_name(unsigned why);       /* one word */
const char *trust_why_text(unsigned why);       /* what it means and what to do, in one line */
