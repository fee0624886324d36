/* shm/trust.c -- what is proven of our token ids; layout and order in trust.h. */
#include "shm/trust.h"

#include <string.h>
#include <xxhash.h>

#define NAME_WORDS (ROW_URL_MAX / 8)

uint64_t
trust_key(const char *model, const void *identity, size_t len)
{
	uint64_t key = XXH3_64bits_withSeed(identity, len,
					    XXH3_64bits(model, strlen(model)));

	return key ? key : 1;
}

const struct model_trust *
trust_find(const struct rows *rows, uint64_t key)
{
	for (unsigned i = 0; key != 0 && i < TRUST_MODELS; i++) {
		const struct model_trust *m = &rows->models[i];
		uint64_t has = atomic_load_explicit(&m->key, memory_order_acquire);     /* A2 */

		if (has == key)
			return m;
		/* entries are taken in order: behind one that never was there is none */
		if (has == 0 && atomic_load_explicit(&m->since_ns, memory_order_relaxed) == 0)
			return NULL;
	}
	return NULL;
}

enum trust_state
trust_model(const struct rows *rows, uint64_t key)
{
	const struct model_trust *m = trust_find(rows, key);
	uint32_t state = m ? atomic_load_explicit(&m->state, memory_order_relaxed) : 0;

	return state <= TRUST_MISMATCH ? (enum trust_state)state : TRUST_UNVERIFIED;
}

bool
trust_model_name(const struct model_trust *model, char ret[ROW_URL_MAX])
{
	uint64_t key = atomic_load_explicit(&model->key, memory_order_acquire);         /* A2 */
	uint64_t word[NAME_WORDS];

	for (unsigned i = 0; i < NAME_WORDS; i++)
		word[i] = atomic_load_explicit(&model->name[i], memory_order_relaxed);
	atomic_thread_fence(memory_order_acquire);
	if (key == 0 || atomic_load_explicit(&model->key, memory_order_relaxed) != key)
		return false;
	memcpy(ret, word, sizeof word);
	ret[ROW_URL_MAX - 1] = 0;
	return true;
}

bool
row_trust_read(const struct rows *rows, uint16_t id, struct row_trust *ret)
{
	const struct row_trust_line *line = &rows->trust[id];
	uint32_t word[ROW_TRUST_WORDS], tag = 0;
	uint32_t row_gen = atomic_load_explicit(&rows->row[id].row_gen, memory_order_acquire);

	latch_read(&line->word, &tag, line->words, ROW_TRUST_WORDS, word);
	if (row_gen == 0 || tag != row_gen) {
		memset(ret, 0, sizeof *ret);
		return false;
	}
	memcpy(ret, word, sizeof word);
	ret->version[sizeof ret->version - 1] = 0;
	return true;
}

void
row_trust_write(struct rows *rows, uint16_t id, uint32_t row_gen, const struct row_trust *trust)
{
	struct row_trust_line *line = &rows->trust[id];
	uint32_t word[ROW_TRUST_WORDS];

	memcpy(word, trust, sizeof word);
	latch_write(&line->word, row_gen, line->words, ROW_TRUST_WORDS, word);
}

/* ---- models ---- */

/* The entry of that key, else one to make it of: a free one, else that which changed longest ago
 * of those that no worker has. */
static struct model_trust *
entry_for(struct rows *rows, uint64_t key)
{
	struct model_trust *oldest = NULL;

	for (unsigned i = 0; i < TRUST_MODELS; i++) {
		struct model_trust *m = &rows->models[i];
		uint64_t has = atomic_load_explicit(&m->key, memory_order_relaxed);

		if (has == key)
			return m;
		if (has == 0 && atomic_load_explicit(&m->since_ns, memory_order_relaxed) == 0)
			return m;
		if (trust_has_workers(m))
			continue;
		if (!oldest || atomic_load_explicit(&m->since_ns, memory_order_relaxed) <
			    atomic_load_explicit(&oldest->since_ns, memory_order_relaxed))
			oldest = m;
	}
	return oldest;
}

static void
entry_begin(struct model_trust *m, const char *name)
{
	uint64_t word[NAME_WORDS] = {0};
	size_t len = strlen(name);

	memcpy(word, name, len < sizeof word ? len : sizeof word - 1);
	atomic_store_explicit(&m->key, 0, memory_order_relaxed);                        /* T1 */
	atomic_thread_fence(memory_order_release);
	for (unsigned i = 0; i < NAME_WORDS; i++)
		atomic_store_explicit(&m->name[i], word[i], memory_order_relaxed);
	atomic_store_explicit(&m->state, TRUST_UNVERIFIED, memory_order_relaxed);
}

void
trust_model_write(struct rows *rows, uint64_t key, const char *name, unsigned exact,
		  unsigned unverified, unsigned mismatch, mono_ns now)
{
	struct model_trust *m = entry_for(rows, key);
	uint32_t state = mismatch > exact ? TRUST_MISMATCH : exact > 0 ? TRUST_EXACT
								       : TRUST_UNVERIFIED;
	bool fresh, nobody = exact + unverified + mismatch == 0;

	if (!m)
		return;                 /* more models at once than the table has: unverified */
	fresh = atomic_load_explicit(&m->key, memory_order_relaxed) != key;
	if (fresh && nobody)
		return;
	if (fresh)
		entry_begin(m, name);
	if (nobody)
		state = atomic_load_explicit(&m->state, memory_order_relaxed);
	if (fresh || atomic_load_explicit(&m->state, memory_order_relaxed) != state)
		atomic_store_explicit(&m->since_ns, now ? now : 1, memory_order_relaxed);
	atomic_store_explicit(&m->exact, exact, memory_order_relaxed);
	atomic_store_explicit(&m->unverified, unverified, memory_order_relaxed);
	atomic_store_explicit(&m->mismatch, mismatch, memory_order_relaxed);
	atomic_store_explicit(&m->state, state, memory_order_relaxed);
	atomic_store_explicit(&m->key, key, memory_order_release);                      /* T2 */
}

/* ---- names ---- */

const char *
trust_state_name(unsigned state)
{
	static const char *const names[] = {"unverified", "exact", "mismatch"};

	return state < sizeof names / sizeof names[0] ? names[state] : "?";
}

static const struct {
	const char *name, *text;
} whys[TRUST_WHYS] = {
	[TRUST_NOT_ASKED] = {"not-asked", "its /tokenize has not been asked yet"},
	[TRUST_NO_MODEL] = {"no-model", "spec.tokenizer of its set cannot be used: text "
			    "prompts go by its /tokenize, messages and responses by load alone; "
			    "pointsctl check and the log say why"},
	[TRUST_FOREIGN] = {"foreign", "its engine makes the model's tokens by an encoder of its "
			   "own, which is not here: prompts go by its /tokenize"},
	[TRUST_PROBES_AGREE] = {"probes-agree", "its /tokenize makes the same ids as we do"},
	[TRUST_PROBES_DIFFER] = {"probes-differ", "its /tokenize makes other ids than we do: "
				 "another tokenizer, chat template or option of it"},
	[TRUST_USAGE_DIFFERS] = {"usage-differs", "its answers count their prompts otherwise than "
				 "we do: another tokenizer, chat template or option of it"},
	[TRUST_NO_ROUTE] = {"no-route", "it has no /tokenize, or spec.tokenize is false: nothing "
			    "can prove our ids, wrong counts would disprove them"},
	[TRUST_REFUSED] = {"refused", "its /tokenize answers with errors"},
	[TRUST_UNREACHABLE] = {"unreachable", "its /tokenize did not answer"},
	[TRUST_FEW] = {"few", "its /tokenize answered too few of the probes that we can make"},
};

const char *
trust_why_name(unsigned why)
{
	return why < TRUST_WHYS ? whys[why].name : "?";
}

const char *
trust_why_text(unsigned why)
{
	return why < TRUST_WHYS ? whys[why].text : "?";
}
