/* actors/common/decide/difference.c -- two sets of documents side by side; see difference.h. */
#include "actors/common/decide/difference.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/common/decide/manifest_private.h"
#include "actors/common/decide/member.h"

#define BRIEF_MAX 96u           /* bytes of a value in a line */
#define PATH_MAX_BYTES 512u
#define TAIL_ROOM 64u           /* for the line that counts what does not fit */

static const char *const words[KINDS] = {
	[KIND_GATEWAY] = "gateway", [KIND_SET] = "workers", [KIND_POOL] = "pool",
	[KIND_PROVIDER] = "provider", [KIND_POLICY] = "policy", [KIND_TENANT] = "tenant",
	[KIND_TAG] = "tag",
};

struct out {
	char *buf;
	size_t n, cap;
	unsigned lines, dropped;
};

static void
say(struct out *o, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void
say(struct out *o, const char *format, ...)
{
	size_t room = o->cap - o->n - TAIL_ROOM;
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(o->buf + o->n, room, format, args);
	va_end(args);
	o->lines++;
	if (n < 0 || (size_t)n >= room || o->dropped) {
		o->buf[o->n] = 0;
		o->dropped++;
		return;
	}
	o->n += (size_t)n;
}

/* ---- values in a few words ---- */

static void
put(char *buf, size_t *n, const char *text)
{
	while (*text && *n + 1 < BRIEF_MAX) {
		buf[(*n)++] = (unsigned char)*text < ' ' ? ' ' : *text;
		text++;
	}
	buf[*n] = 0;
}

static void
put_node(char *buf, size_t *n, const struct yaml_node *node)
{
	const char *before = "";

	if (node->kind == YAML_KIND_SCALAR) {
		put(buf, n, node->len ? node->text : "\"\"");
		return;
	}
	put(buf, n, node->kind == YAML_KIND_MAP ? "{" : "[");
	for (const struct yaml_node *c = node->child; c && *n + 1 < BRIEF_MAX; c = c->next) {
		put(buf, n, before);
		if (c->key) {
			put(buf, n, c->key);
			put(buf, n, ": ");
		}
		put_node(buf, n, c);
		before = ", ";
	}
	put(buf, n, node->kind == YAML_KIND_MAP ? "}" : "]");
}

static const char *
brief(char buf[BRIEF_MAX], const struct yaml_node *node)
{
	size_t n = 0;

	buf[0] = 0;
	put_node(buf, &n, node);
	if (n + 1 == BRIEF_MAX)         /* whole characters only */
		while (n > 0 && ((unsigned char)buf[n - 1] & 0xc0) == 0x80)
			n--;
	if (n + 1 < BRIEF_MAX)
		return buf;
	n = n > 4 ? n - 4 : 0;
	while (n > 0 && ((unsigned char)buf[n] & 0xc0) == 0x80)
		n--;
	memcpy(buf + n, "...", 4);
	return buf;
}

/* ---- sameness ---- */

static bool
same(const struct yaml_node *a, const struct yaml_node *b)
{
	if (a->kind != b->kind || a->n_children != b->n_children)
		return false;
	if (a->kind == YAML_KIND_SCALAR)
		return a->len == b->len && memcmp(a->text, b->text, a->len) == 0;
	if (a->kind == YAML_KIND_LIST) {
		const struct yaml_node *d = b->child;

		for (const struct yaml_node *c = a->child; c; c = c->next, d = d->next)
			if (!same(c, d))
				return false;
		return true;
	}
	for (const struct yaml_node *c = a->child; c; c = c->next) {
		const struct yaml_node *d = yaml_map_get(b, c->key);

		if (!d || !same(c, d))
			return false;
	}
	return true;
}

static const char *
name_of(const struct yaml_node *item)
{
	const struct yaml_node *name = yaml_map_get(item, "name");

	return name && name->kind == YAML_KIND_SCALAR ? name->text : NULL;
}

/* The item of the list that this one is, from `from` on, and around. */
static const struct yaml_node *
counterpart(const struct yaml_node *item, const struct yaml_node *list,
	    const struct yaml_node *from)
{
	const char *name = name_of(item);
	const struct yaml_node *c = from ? from : list->child;

	for (size_t i = 0; i < list->n_children; i++, c = c->next ? c->next : list->child) {
		const char *other = name_of(c);

		if (name && other ? strcmp(name, other) == 0 : same(item, c))
			return c;
	}
	return NULL;
}

/* ---- trees ---- */

struct at {
	struct out *out;
	const char *kind, *name;        /* of the document */
	bool of_members;                /* told by their rows, not here */
	char path[PATH_MAX_BYTES];
};

static void compare(struct at *at, size_t len, const struct yaml_node *a,
		    const struct yaml_node *b);

/* One step down, between these two texts. */
static size_t
step(struct at *at, size_t len, const char *before, const char *what, const char *behind)
{
	int n = snprintf(at->path + len, sizeof at->path - len, "%s%s%s", before, what, behind);

	return len + (n < 0 ? 0 : (size_t)n < sizeof at->path - len ? (size_t)n :
		      sizeof at->path - len - 1);
}

static void
one(struct at *at, char sign, const struct yaml_node *node)
{
	char text[BRIEF_MAX];

	say(at->out, "%c %s %s: %s %s\n", sign, at->kind, at->name, at->path, brief(text, node));
}

static void
compare_maps(struct at *at, size_t len, const struct yaml_node *a, const struct yaml_node *b)
{
	const char *dot = len ? "." : "";

	for (const struct yaml_node *c = a->child; c; c = c->next) {
		const struct yaml_node *d = yaml_map_get(b, c->key);
		size_t n = step(at, len, dot, c->key, "");

		if (d)
			compare(at, n, c, d);
		else
			one(at, '-', c);
	}
	for (const struct yaml_node *d = b->child; d; d = d->next)
		if (!yaml_map_get(a, d->key)) {
			step(at, len, dot, d->key, "");
			one(at, '+', d);
		}
	at->path[len] = 0;
}

static void
item_only(struct at *at, size_t len, char sign, const struct yaml_node *item)
{
	const char *name = name_of(item);

	if (at->of_members && strcmp(at->path, "members") == 0)
		return;
	if (name)
		step(at, len, "[", name, "]");
	one(at, sign, item);
	at->path[len] = 0;
}

static void
compare_lists(struct at *at, size_t len, const struct yaml_node *a, const struct yaml_node *b)
{
	const struct yaml_node *from = b->child, *last = NULL;
	bool told = false, in_order = true;

	for (const struct yaml_node *c = a->child; c; c = c->next) {
		const struct yaml_node *d = counterpart(c, b, from);

		if (!d) {
			told = true;
			item_only(at, len, '-', c);
			continue;
		}
		/* Met in order: each is found at or behind where the one before was. */
		for (const struct yaml_node *e = from; last && in_order && e != d; e = e->next)
			if (!e) {
				in_order = false;
				break;
			}
		last = d;
		from = d->next;
		if (name_of(c))
			compare(at, step(at, len, "[", name_of(c), "]"), c, d);
		at->path[len] = 0;
	}
	from = a->child;
	for (const struct yaml_node *d = b->child; d; d = d->next) {
		const struct yaml_node *c = counterpart(d, a, from);

		if (c) {
			from = c->next;
			continue;
		}
		told = true;
		item_only(at, len, '+', d);
	}
	if (!in_order || (!told && a->n_children != b->n_children))
		say(at->out, "~ %s %s: %s: their order\n", at->kind, at->name, at->path);
}

static void
compare(struct at *at, size_t len, const struct yaml_node *a, const struct yaml_node *b)
{
	char was[BRIEF_MAX], is[BRIEF_MAX];

	if (same(a, b)) {
		at->path[len] = 0;
		return;
	}
	if (a->kind == YAML_KIND_MAP && b->kind == YAML_KIND_MAP)
		compare_maps(at, len, a, b);
	else if (a->kind == YAML_KIND_LIST && b->kind == YAML_KIND_LIST)
		compare_lists(at, len, a, b);
	else
		say(at->out, "~ %s %s: %s %s -> %s\n", at->kind, at->name, at->path, brief(was, a),
		    brief(is, b));
	at->path[len] = 0;
}

/* ---- documents ---- */

struct side {
	struct manifest_loader loader;  /* its list of documents only */
	struct manifest scratch;
	struct yaml_errors errs;
};

static bool
side_open(struct side *side, const struct manifest *m)
{
	*side = (struct side){.loader = {.m = &side->scratch, .errs = &side->errs}};
	return manifest_docs_read(&side->loader, m->snapshot, m->base_len) && !side->loader.oom;
}

static void
side_close(struct side *side)
{
	manifest_docs_free(&side->loader);
	yaml_errors_free(&side->errs);
	yaml_errors_free(&side->scratch.warnings);
}

static const struct manifest_doc *
doc_of(const struct side *side, const struct manifest_doc *doc)
{
	for (uint32_t i = 0; i < side->loader.n_docs; i++) {
		const struct manifest_doc *d = &side->loader.docs[i];

		if (d->kind == doc->kind && strcmp(d->name, doc->name) == 0)
			return d;
	}
	return NULL;
}

static void
only_there(struct out *o, char sign, const struct side *from, const struct side *to)
{
	for (uint32_t i = 0; i < from->loader.n_docs; i++)
		if (!doc_of(to, &from->loader.docs[i]))
			say(o, "%c %s %s\n", sign, words[from->loader.docs[i].kind],
			    from->loader.docs[i].name);
}

static void
both_there(struct out *o, const struct side *was, const struct side *is)
{
	static const struct yaml_node empty = {.kind = YAML_KIND_MAP};

	for (uint32_t i = 0; i < was->loader.n_docs; i++) {
		const struct manifest_doc *a = &was->loader.docs[i], *b = doc_of(is, a);
		struct at at = {.out = o, .kind = words[a->kind], .name = a->name,
				.of_members = a->kind == KIND_SET};

		if (!b)
			continue;
		compare(&at, 0, a->spec, b->spec);
		at.of_members = false;
		compare(&at, step(&at, 0, "", "labels", ""), a->labels ? a->labels : &empty,
			b->labels ? b->labels : &empty);
	}
}

static bool
has_member(const struct manifest *m, uint64_t uid)
{
	for (uint32_t i = 0; i < m->n_members; i++)
		if (m->members[i].uid == uid)
			return true;
	return false;
}

/* A provider's rows are its models, and told as such. */
static void
member_lines(struct out *o, char sign, const struct manifest *from, const struct manifest *to)
{
	for (uint32_t i = 0; i < manifest_workers(from); i++)
		if (!has_member(to, from->members[i].uid))
			say(o, "%c member %s/%s rank %u\n", sign,
			    member_group(from, &from->members[i]), from->members[i].name,
			    from->members[i].rank);
}

size_t
difference(const struct manifest *was, const struct manifest *is, char *buf, size_t cap)
{
	struct out o = {.buf = buf, .cap = cap};
	struct side a, b;
	bool read_a = side_open(&a, was), read_b = side_open(&b, is);

	buf[0] = 0;
	if (read_a && read_b) {
		only_there(&o, '-', &a, &b);
		only_there(&o, '+', &b, &a);
		member_lines(&o, '-', was, is);
		member_lines(&o, '+', is, was);
		both_there(&o, &a, &b);
		if (o.dropped)
			o.n += (size_t)snprintf(buf + o.n, cap - o.n, "and %u lines more\n",
						o.dropped);
		else if (o.lines == 0)
			o.n += (size_t)snprintf(buf + o.n, cap - o.n, DIFFERENCE_NONE);
	} else {
		o.n = (size_t)snprintf(buf, cap, "no memory to compare the documents\n");
	}
	side_close(&a);
	side_close(&b);
	return o.n;
}
