/* actors/common/prompt/segments.c -- keep ids by the text they are of; see segments.h. */
#include "actors/common/prompt/segments.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <xxhash.h>

#include "actors/common/prompt/ids.h"
#include "actors/common/prompt/tokenizer.h"
#include "actors/common/prompt/unicode.h"

#define PARTS        16u
#define ENTRY_TYPICAL 1024u             /* bytes: how many chains a part has */
#define ENTRY_BEYOND 16u                /* bytes that malloc takes besides */

struct entry {
	struct entry *next;             /* in its chain */
	struct entry *newer, *older;    /* by last use */
	XXH128_hash_t key;
	size_t n;
	uint32_t id[];
};

struct part {
	pthread_mutex_t lock;
	struct entry **chain;           /* owned, as the entries are */
	struct entry *newest, *oldest;
	struct segments_stats stats;
};

struct segments {
	struct part part[PARTS];
	size_t bytes_part;              /* the bound of each */
	size_t chains;                  /* of each: a power of two */
	uint64_t seed;
};

static size_t
entry_bytes(size_t n)
{
	return sizeof(struct entry) + n * sizeof(uint32_t) + ENTRY_BEYOND;
}

int
segments_new(size_t bytes, struct segments **ret)
{
	struct segments *s = calloc(1, sizeof *s);

	if (!s)
		return -ENOMEM;
	s->bytes_part = bytes / PARTS;
	for (s->chains = 16; s->chains * ENTRY_TYPICAL < s->bytes_part;)
		s->chains *= 2;
	if (getrandom(&s->seed, sizeof s->seed, GRND_NONBLOCK) != sizeof s->seed)
		s->seed = (uint64_t)(uintptr_t)s;       /* guards only against forged overlaps */
	for (unsigned i = 0; i < PARTS; i++) {
		pthread_mutex_init(&s->part[i].lock, NULL);
		s->part[i].stats.bytes = s->chains * sizeof(struct entry *);
		s->part[i].chain = calloc(s->chains, sizeof(struct entry *));
		if (!s->part[i].chain) {
			segments_free(&s);
			return -ENOMEM;
		}
	}
	*ret = s;
	return 0;
}

void
segments_free(struct segments **ret)
{
	struct segments *s = *ret;

	if (!s)
		return;
	for (unsigned i = 0; i < PARTS; i++) {
		struct part *p = &s->part[i];

		for (struct entry *e = p->newest, *older; e; e = older) {
			older = e->older;
			free(e);
		}
		free(p->chain);
		pthread_mutex_destroy(&p->lock);
	}
	free(s);
	*ret = NULL;
}

static struct entry **
chain_of(const struct segments *s, struct part *p, XXH128_hash_t key)
{
	return &p->chain[key.low64 & (s->chains - 1)];
}

static void
unlink_use(struct part *p, struct entry *e)
{
	*(e->newer ? &e->newer->older : &p->newest) = e->older;
	*(e->older ? &e->older->newer : &p->oldest) = e->newer;
}

static void
link_newest(struct part *p, struct entry *e)
{
	e->newer = NULL;
	e->older = p->newest;
	*(p->newest ? &p->newest->newer : &p->oldest) = e;
	p->newest = e;
}

static struct entry *
find(const struct segments *s, struct part *p, XXH128_hash_t key)
{
	struct entry *e = *chain_of(s, p, key);

	while (e && !XXH128_isEqual(e->key, key))
		e = e->next;
	return e;
}

static void
drop_oldest(const struct segments *s, struct part *p)
{
	struct entry *e = p->oldest, **at = chain_of(s, p, e->key);

	while (*at != e)
		at = &(*at)->next;
	*at = e->next;
	unlink_use(p, e);
	p->stats.bytes -= entry_bytes(e->n);
	p->stats.entries--;
	p->stats.evicted++;
	free(e);
}

static struct part *
part_of(struct segments *s, XXH128_hash_t key)
{
	return &s->part[key.high64 % PARTS];
}

/* 1: its ids, at most max_ids, were appended; 0: not here; -ENOMEM. */
static int
recall(struct segments *s, XXH128_hash_t key, size_t len, size_t max_ids, struct ids *out)
{
	struct part *p = part_of(s, key);
	struct entry *e;
	int r = 0;

	pthread_mutex_lock(&p->lock);
	e = find(s, p, key);
	if (e) {
		if (e != p->newest) {
			unlink_use(p, e);
			link_newest(p, e);
		}
		p->stats.hits++;
		p->stats.hit_bytes += len;
		r = ids_add(out, e->id, e->n < max_ids ? e->n : max_ids);
		r = r < 0 ? r : 1;
	} else {
		p->stats.misses++;
		p->stats.miss_bytes += len;
	}
	pthread_mutex_unlock(&p->lock);
	return r;
}

/* Without memory nothing is kept, which is no error. */
static void
keep(struct segments *s, XXH128_hash_t key, const uint32_t *id, size_t n)
{
	struct part *p = part_of(s, key);
	struct entry *e;

	if (entry_bytes(n) > s->bytes_part / 4 || !(e = malloc(sizeof *e + n * sizeof *id)))
		return;
	e->key = key;
	e->n = n;
	memcpy(e->id, id, n * sizeof *id);
	pthread_mutex_lock(&p->lock);
	if (find(s, p, key)) {          /* another thread was sooner */
		pthread_mutex_unlock(&p->lock);
		free(e);
		return;
	}
	while (p->oldest && p->stats.bytes + entry_bytes(n) > s->bytes_part)
		drop_oldest(s, p);
	if (p->stats.bytes + entry_bytes(n) <= s->bytes_part) {
		struct entry **chain = chain_of(s, p, key);

		e->next = *chain;
		*chain = e;
		link_newest(p, e);
		p->stats.bytes += entry_bytes(n);
		p->stats.entries++;
		e = NULL;
	}
	pthread_mutex_unlock(&p->lock);
	free(e);
}

/* What beside its bytes decides a segment's ids. */
static uint64_t
seed_of(const struct segments *s, const struct tokenizer *t, bool first)
{
	const uint64_t parts[] = {s->seed, tokenizer_identity(t), first};

	return XXH3_64bits(parts, sizeof parts);
}

static int
encode_cut(struct segments *s, const struct tokenizer *t, struct tokenizer_scratch *scratch,
	   const struct tokenizer_cut *cut, const uint64_t seed[2], size_t max_n, struct ids *out)
{
	size_t from = out->n, off;
	XXH128_hash_t key;
	int r;

	if (cut->token != TOKENIZER_NONE)
		return ids_add(out, &cut->token, 1);
	if (cut->text.len >= SEGMENTS_MIN) {
		key = XXH3_128bits_withSeed(cut->text.p, cut->text.len, seed[cut->first]);
		r = recall(s, key, cut->text.len, max_n - out->n, out);
		if (r != 0)
			return r < 0 ? r : 0;
	}
	/* What was kept was UTF-8. */
	if (!unicode_valid(cut->text, &off))
		return -EILSEQ;
	r = tokenizer_encode_cut(t, scratch, cut, max_n - out->n, out);
	if (r == 0 && cut->text.len >= SEGMENTS_MIN && out->n < max_n)
		keep(s, key, out->id + from, out->n - from);
	return r;
}

int
segments_encode(struct segments *s, const struct tokenizer *t, struct tokenizer_scratch *scratch,
		struct slice text, bool add_special, size_t max_ids, struct ids *out)
{
	size_t max_n = max_ids < SIZE_MAX - out->n ? out->n + max_ids : SIZE_MAX;
	const uint32_t *before, *after;
	size_t n_before, n_after, off = 0;
	struct tokenizer_cut cut;
	uint64_t seed[2];
	int r = 0;

	if (!s)
		return tokenizer_encode(t, scratch, text, add_special, max_ids, out);
	seed[false] = seed_of(s, t, false);
	seed[true] = seed_of(s, t, true);
	n_before = tokenizer_specials(t, &before, &after, &n_after);
	if (add_special)
		r = ids_add(out, before, n_before < max_ids ? n_before : max_ids);
	while (r == 0 && out->n < max_n && tokenizer_cut(t, text, &off, &cut))
		r = encode_cut(s, t, scratch, &cut, seed, max_n, out);
	if (r == 0 && add_special)
		r = ids_add(out, after, n_after < max_n - out->n ? n_after : max_n - out->n);
	return r;
}

void
segments_stats(struct segments *s, struct segments_stats *ret)
{
	*ret = (struct segments_stats){0};
	for (unsigned i = 0; i < PARTS; i++) {
		struct part *p = &s->part[i];

		pthread_mutex_lock(&p->lock);
		ret->hits += p->stats.hits;
		ret->misses += p->stats.misses;
		ret->hit_bytes += p->stats.hit_bytes;
		ret->miss_bytes += p->stats.miss_bytes;
		ret->evicted += p->stats.evicted;
		ret->bytes += p->stats.bytes;
		ret->entries += p->stats.entries;
		pthread_mutex_unlock(&p->lock);
	}
}
