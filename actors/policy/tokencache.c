/* actors/policy/tokencache.c -- a hash table of chains and one list in order of use; see
 * tokencache.h. */
#include "actors/policy/tokencache.h"

#include <errno.h>
#include <stdlib.h>

#define CHAINS 4096u
#define ENTRY_BYTES(n) (sizeof(struct entry) + (n) * sizeof(uint32_t))

struct entry {
	struct token_key key;
	uint32_t *ids;                  /* owned */
	size_t n;
	struct entry *chain;            /* next of the same chain */
	struct entry *newer, *older;    /* order of use */
};

struct tokencache {
	struct entry *chain[CHAINS];
	struct entry *newest, *oldest;
	size_t bytes, max_bytes, prompts;
};

int
tokencache_new(struct tokencache **ret, size_t max_bytes)
{
	struct tokencache *c = calloc(1, sizeof *c);

	if (!c)
		return -ENOMEM;
	c->max_bytes = max_bytes;
	*ret = c;
	return 0;
}

static struct entry **
place_of(struct tokencache *c, struct token_key key)
{
	struct entry **at = &c->chain[key.lo % CHAINS];

	while (*at && ((*at)->key.lo != key.lo || (*at)->key.hi != key.hi))
		at = &(*at)->chain;
	return at;
}

static void
list_remove(struct tokencache *c, struct entry *e)
{
	*(e->newer ? &e->newer->older : &c->newest) = e->older;
	*(e->older ? &e->older->newer : &c->oldest) = e->newer;
	e->newer = e->older = NULL;
}

static void
list_push(struct tokencache *c, struct entry *e)
{
	e->older = c->newest;
	e->newer = NULL;
	*(c->newest ? &c->newest->newer : &c->oldest) = e;
	c->newest = e;
}

static void
drop(struct tokencache *c, struct entry *e)
{
	*place_of(c, e->key) = e->chain;
	list_remove(c, e);
	c->bytes -= ENTRY_BYTES(e->n);
	c->prompts--;
	free(e->ids);
	free(e);
}

void
tokencache_free(struct tokencache **ret)
{
	if (!*ret)
		return;
	while ((*ret)->oldest)
		drop(*ret, (*ret)->oldest);
	free(*ret);
	*ret = NULL;
}

bool
tokencache_find(struct tokencache *c, struct token_key key, const uint32_t **ret_ids, size_t *ret_n)
{
	struct entry *e = *place_of(c, key);

	if (!e)
		return false;
	list_remove(c, e);
	list_push(c, e);
	*ret_ids = e->ids;
	*ret_n = e->n;
	return true;
}

void
tokencache_put(struct tokencache *c, struct token_key key, uint32_t *ids, size_t n)
{
	struct entry *e = *place_of(c, key);

	if (e)
		drop(c, e);
	e = ENTRY_BYTES(n) <= c->max_bytes / 4 ? calloc(1, sizeof *e) : NULL;
	if (!e) {
		free(ids);
		return;
	}
	while (c->oldest && c->bytes + ENTRY_BYTES(n) > c->max_bytes)
		drop(c, c->oldest);
	e->key = key;
	e->ids = ids;
	e->n = n;
	e->chain = c->chain[key.lo % CHAINS];
	c->chain[key.lo % CHAINS] = e;
	list_push(c, e);
	c->bytes += ENTRY_BYTES(n);
	c->prompts++;
}

size_t
tokencache_bytes(const struct tokencache *c)
{
	return c->bytes;
}

size_t
tokencache_prompts(const struct tokencache *c)
{
	return c->prompts;
}
