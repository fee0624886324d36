/* actors/common/prompt/compile_added.c -- the added tokens of a tokenizer as tries. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "actors/common/prompt/compile_private.h"
#include "actors/common/prompt/normalize.h"

#define ADDED_LEN_MAX 512u              /* bytes of one, and so the depth of the trie */

struct trie {
	struct finish *f;
	const struct slice *text;       /* sorted */
	const uint32_t *added;          /* where in ADDED each is */
};

/* The node of texts [low, high), which share their first `depth` bytes. */
static uint32_t
trie_node(struct trie *t, size_t low, size_t high, size_t depth)
{
	struct finish *f = t->f;
	struct section *nodes = &f->section[SECTION_NODES], *edges = &f->section[SECTION_EDGES];
	uint32_t me = (uint32_t)(nodes->len / sizeof(struct tokenizer_node)), n = 0;
	struct tokenizer_node node = {.added = TOKENIZER_NONE};

	if (!compile_room(f, nodes, sizeof(node)))
		return 0;
	for (; low < high && t->text[low].len == depth; low++)
		if (node.added == TOKENIZER_NONE)
			node.added = t->added[low];
	for (size_t i = low; i < high; i++)
		n += i == low || t->text[i].p[depth] != t->text[i - 1].p[depth];
	node.edge = (uint32_t)(edges->len / sizeof(struct tokenizer_edge));
	node.n_edges = n;
	if (!compile_room(f, edges, n * sizeof(struct tokenizer_edge)))
		return 0;
	((struct tokenizer_node *)(void *)nodes->p)[me] = node;
	for (size_t i = low, at = node.edge; i < high; at++) {
		size_t j = i;
		uint32_t child;

		while (j < high && t->text[j].p[depth] == t->text[i].p[depth])
			j++;
		child = trie_node(t, i, j, depth + 1);
		if (f->b->error)
			return 0;
		((struct tokenizer_edge *)(void *)edges->p)[at] =
			(struct tokenizer_edge){(uint8_t)t->text[i].p[depth], child};
		i = j;
	}
	return me;
}

struct sorted {
	struct slice text;
	uint32_t added;
};

static int
by_text(const void *a, const void *b)
{
	const struct sorted *x = a, *y = b;
	size_t n = x->text.len < y->text.len ? x->text.len : y->text.len;
	int r = n ? memcmp(x->text.p, y->text.p, n) : 0;

	if (r == 0)
		r = (x->text.len > y->text.len) - (x->text.len < y->text.len);
	return r ? r : (x->added > y->added) - (x->added < y->added);
}

/* Of n texts: the root, or TOKENIZER_NONE. */
static uint32_t
trie_make(struct finish *f, struct sorted *s, size_t n)
{
	struct slice *text = malloc((n + 1) * sizeof(*text));
	uint32_t *added = malloc((n + 1) * sizeof(*added)), root = TOKENIZER_NONE;

	if (!text || !added) {
		build_fail(f->b, -ENOMEM, "no memory");
	} else if (n) {
		qsort(s, n, sizeof(*s), by_text);
		for (size_t i = 0; i < n; i++) {
			text[i] = s[i].text;
			added[i] = s[i].added;
		}
		root = trie_node(&(struct trie){f, text, added}, 0, n, 0);
	}
	free(text);
	free(added);
	return root;
}

/* Can an occurrence of one overlap an occurrence of the other? */
static bool
overlap(struct slice a, struct slice b)
{
	if (memmem(a.p, a.len, b.p, b.len) || memmem(b.p, b.len, a.p, a.len))
		return true;
	for (size_t n = 1; n < a.len && n < b.len; n++)
		if (memcmp(a.p + a.len - n, b.p, n) == 0 || memcmp(b.p + b.len - n, a.p, n) == 0)
			return true;
	return false;
}

/* Those found after normalizing are found before as well if nothing normalizes, and neither their
 * order nor what stands beside them can matter. */
static bool
all_raw(const struct build *b)
{
	size_t made = 0;

	if (b->n_normalizers)
		return false;
	for (size_t i = 0; i < b->n_added; i++) {
		made += b->added[i].normalized;
		if (b->added[i].flags & (ADDED_SINGLE_WORD | ADDED_LSTRIP | ADDED_RSTRIP))
			return false;
	}
	if (made > 256)
		return made == b->n_added;
	for (size_t i = 0; i < b->n_added && made < b->n_added; i++)
		for (size_t k = 0; k < b->n_added && b->added[i].normalized; k++)
			if (!b->added[k].normalized &&
			    overlap(build_slice(b, b->added[i].off, b->added[i].len),
				    build_slice(b, b->added[k].off, b->added[k].len)))
				return false;
	return true;
}

/* A token that swallows the blanks behind it, and one that begins with a blank: Hugging Face finds
 * the second within what the first has taken. */
static void
refuse_blanks(struct build *b)
{
	bool takes = false, begins = false;

	for (size_t i = 0; i < b->n_added; i++) {
		char c = b->spelling.p[b->added[i].off];

		takes |= (b->added[i].flags & ADDED_RSTRIP) != 0;
		begins |= c == ' ' || (c >= '\t' && c <= '\r');
		if (b->added[i].len > ADDED_LEN_MAX)
			build_fail(b, -E2BIG, "an added token of %u bytes (%u are the most)",
				   b->added[i].len, ADDED_LEN_MAX);
	}
	if (takes && begins)
		build_fail(b, -ENOTSUP, "added tokens: one takes blanks along (rstrip), another "
			   "begins with one");
}

/* The text an added token is found by. */
static struct slice
added_text(struct finish *f, struct normal_buffers *buffers, const struct build_added *a, bool raw)
{
	struct build *b = f->b;
	struct slice s = build_slice(b, a->off, a->len);

	int r = raw ? 0 : normalize(b->step, b->n_normalizers, b->spelling.p, buffers, s, &s);

	if (r == -EOVERFLOW)
		build_fail(b, -E2BIG, "normalizers make more than %u times its length of the added "
			   "token \"%.*s\"", NORMAL_TIMES, (int)a->len, b->spelling.p + a->off);
	else if (r < 0)
		build_fail(b, r, "no memory");
	return s;
}

/* Those of one pass: raw, or after normalizing.  The trie's root. */
static uint32_t
added_pass(struct finish *f, bool raw, bool every)
{
	struct build *b = f->b;
	struct sorted *sorted = malloc((b->n_added + 1) * sizeof(*sorted));
	struct normal_buffers buffers = {0};
	struct section texts = {0};
	uint32_t root = TOKENIZER_NONE;
	size_t n = 0;

	for (size_t i = 0; sorted && i < b->n_added && !b->error; i++) {
		const struct build_added *a = &b->added[i];
		struct tokenizer_added_token *to;

		if (!every && a->normalized == raw)
			continue;
		struct slice s = added_text(f, &buffers, a, raw);
		uint32_t at = (uint32_t)(f->section[SECTION_ADDED].len / sizeof(*to));
		uint32_t off = compile_bytes(f, build_slice(b, a->off, a->len));

		to = compile_room(f, &f->section[SECTION_ADDED], sizeof(*to));
		if (!to)
			break;
		*to = (struct tokenizer_added_token){a->id, a->flags, off, a->len};
		if (s.len == 0)
			continue;
		char *copy = compile_room(f, &texts, s.len);

		if (!copy)
			break;
		memcpy(copy, s.p, s.len);
		/* texts may yet move: offsets for now. */
		sorted[n++] = (struct sorted){{NULL, s.len}, at};
	}
	if (!sorted)
		build_fail(b, -ENOMEM, "no memory");
	for (size_t i = 0, off = 0; sorted && i < n; off += sorted[i++].text.len)
		sorted[i].text.p = texts.p + off;
	if (!b->error)
		root = trie_make(f, sorted, n);
	normal_free(&buffers);
	free(texts.p);
	free(sorted);
	return root;
}

void
compile_added(struct finish *f)
{
	struct build *b = f->b;
	bool every = all_raw(b);

	refuse_blanks(b);
	f->head.raw_root = added_pass(f, true, every);
	f->head.n_raw = (uint32_t)(f->section[SECTION_ADDED].len /
				   sizeof(struct tokenizer_added_token));
	f->head.made_root = every ? TOKENIZER_NONE : added_pass(f, false, false);
}
