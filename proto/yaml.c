#include "proto/yaml.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#define KEYS_MAX    1000u /* of one mapping: duplicates are looked for one by one */
#define CHUNK_BYTES 16384u

struct chunk {
	struct chunk *next;
	size_t used, size;
	_Alignas(16) unsigned char bytes[];
};

/* A mapping or list that is still open. */
struct level {
	struct yaml_node *node;
	struct yaml_node **tail;
	struct yaml_node *key; /* mapping: read, its value still to come */
};

struct load {
	yaml_parser_t parser;
	struct yaml_docs *docs;
	struct chunk *chunks;
	struct yaml_errors *errs;
	size_t cap_roots;
	size_t n_nodes;
	unsigned depth;
	struct level levels[YAML_DEPTH_MAX];
	bool bad; /* something was complained of: the tree is not given out */
};

/* ---- complaints ---- */

/* Words of the file reach terminals: no control codes. */
static void
no_controls(char *text)
{
	for (char *c = text; *c; c++)
		if ((unsigned char)*c < 0x20 || *c == 0x7f)
			*c = '?';
}

void
yaml_errors_add(struct yaml_errors *errs, const char *file, unsigned line, unsigned column,
		const char *fmt, ...)
{
	struct yaml_error e = {.line = line, .column = column}, *bigger;
	va_list ap;

	errs->kept = false;
	if (errs->n == YAML_ERRORS_MAX) {
		errs->dropped++;
		return;
	}
	va_start(ap, fmt);
	if (vasprintf(&e.text, fmt, ap) < 0)
		e.text = NULL;
	va_end(ap);
	e.file = strdup(file);
	bigger = realloc(errs->list, (errs->n + 1) * sizeof(*bigger));
	if (bigger)
		errs->list = bigger;
	if (!e.text || !e.file || !bigger) {
		free(e.text);
		free(e.file);
		errs->dropped++;
		return;
	}
	no_controls(e.text);
	errs->list[errs->n++] = e;
	errs->kept = true;
}

static char *
detail_copy(const char *text)
{
	char *copy = text ? strdup(text) : NULL;

	if (copy)
		no_controls(copy);
	return copy;
}

void
yaml_errors_detail(struct yaml_errors *errs, const char *found, const char *expected,
		   const char *nearest)
{
	struct yaml_error *e = errs->kept ? &errs->list[errs->n - 1] : NULL;

	if (!e || e->found || e->expected || e->nearest)
		return;
	e->found = detail_copy(found);
	e->expected = detail_copy(expected);
	e->nearest = detail_copy(nearest);
}

void
yaml_errors_append(struct yaml_errors *errs, const struct yaml_errors *more)
{
	for (size_t i = 0; i < more->n; i++) {
		const struct yaml_error *e = &more->list[i];

		yaml_errors_add(errs, e->file, e->line, e->column, "%s", e->text);
		yaml_errors_detail(errs, e->found, e->expected, e->nearest);
	}
	errs->dropped += more->dropped;
}

bool
yaml_errors_any(const struct yaml_errors *errs)
{
	return errs->n > 0 || errs->dropped > 0;
}

void
yaml_errors_print(const struct yaml_errors *errs, FILE *f)
{
	yaml_errors_print_as(errs, "", f);
}

void
yaml_errors_print_as(const struct yaml_errors *errs, const char *what, FILE *f)
{
	for (size_t i = 0; i < errs->n; i++) {
		const struct yaml_error *e = &errs->list[i];

		if (e->line)
			fprintf(f, "%s:%u:%u: %s%s\n", e->file, e->line, e->column, what,
				e->text);
		else
			fprintf(f, "%s: %s%s\n", e->file, what, e->text);
	}
	if (errs->dropped)
		fprintf(f, "and %zu more\n", errs->dropped);
}

void
yaml_errors_free(struct yaml_errors *errs)
{
	for (size_t i = 0; i < errs->n; i++) {
		free(errs->list[i].file);
		free(errs->list[i].text);
		free(errs->list[i].found);
		free(errs->list[i].expected);
		free(errs->list[i].nearest);
	}
	free(errs->list);
	memset(errs, 0, sizeof(*errs));
}

/* ---- the tree ---- */

static void *
arena_take(struct load *l, size_t bytes)
{
	struct chunk *c = l->chunks;
	void *p;

	bytes = (bytes + 15) & ~(size_t)15;
	if (!c || c->size - c->used < bytes) {
		size_t size = bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES;

		c = malloc(sizeof(*c) + size);
		if (!c)
			return NULL;
		c->next = l->chunks;
		c->used = 0;
		c->size = size;
		l->chunks = c;
	}
	p = c->bytes + c->used;
	c->used += bytes;
	return memset(p, 0, bytes);
}

static void
chunks_free(struct chunk *c)
{
	while (c) {
		struct chunk *next = c->next;

		free(c);
		c = next;
	}
}

void
yaml_docs_free(struct yaml_docs **docsp)
{
	struct yaml_docs *docs = *docsp;

	if (!docs)
		return;
	*docsp = NULL;
	chunks_free(docs->arena);
	free(docs->roots);
	free(docs);
}

static unsigned
line_of(const yaml_mark_t *mark)
{
	return (unsigned)mark->line + 1;
}

static unsigned
column_of(const yaml_mark_t *mark)
{
	return (unsigned)mark->column + 1;
}

#define COMPLAIN(l, mark, ...)                                                                     \
	do {                                                                                       \
		(l)->bad = true;                                                                   \
		yaml_errors_add((l)->errs, (l)->docs->file, line_of(mark), column_of(mark),        \
				__VA_ARGS__);                                                      \
	} while (0)

static struct yaml_node *
node_new(struct load *l, enum yaml_kind kind, const yaml_mark_t *mark)
{
	struct yaml_node *node = arena_take(l, sizeof(*node));

	if (!node)
		return NULL;
	node->kind = kind;
	node->line = line_of(mark);
	node->column = column_of(mark);
	return node;
}

static void
refuse_decoration(struct load *l, const yaml_event_t *ev, const yaml_char_t *anchor,
		  const yaml_char_t *tag)
{
	if (anchor)
		COMPLAIN(l, &ev->start_mark,
			 "anchors are not supported (&%.40s): write the value out",
			 (const char *)anchor);
	if (tag)
		COMPLAIN(l, &ev->start_mark, "tags are not supported (%.60s)", (const char *)tag);
}

/* A scalar where a mapping waits for a key. */
static int
key_take(struct load *l, struct level *at, struct yaml_node *key, const yaml_event_t *ev)
{
	const struct yaml_node *other;

	if (key->kind != YAML_KIND_SCALAR) {
		COMPLAIN(l, &ev->start_mark, "a key must be one word, not a list or a map");
		key->text = "";
	} else if (key->len == 0) {
		COMPLAIN(l, &ev->start_mark, "a key is empty");
	} else if (!key->quoted && strcmp(key->text, "<<") == 0) {
		COMPLAIN(l, &ev->start_mark,
			 "merge keys (<<) are not supported: write the fields out");
	} else {
		for (other = at->node->child; other; other = other->next)
			if (strcmp(other->key, key->text) == 0)
				break;
		if (other)
			COMPLAIN(l, &ev->start_mark,
				 "\"%.60s\" is given twice: first at line %u, column %u", key->text,
				 other->key_line, other->key_column);
	}
	at->key = key;
	if (at->node->n_children >= KEYS_MAX) {
		COMPLAIN(l, &ev->start_mark, "more than %u keys in one map", KEYS_MAX);
		return -EINVAL;
	}
	return 0;
}

/* Put a node where it belongs: root, list item, key or value. */
static int
node_place(struct load *l, struct yaml_node *node, const yaml_event_t *ev)
{
	struct level *at = l->depth ? &l->levels[l->depth - 1] : NULL;

	if (++l->n_nodes > YAML_NODES_MAX) {
		COMPLAIN(l, &ev->start_mark, "more than %u values in one file", YAML_NODES_MAX);
		return -EINVAL;
	}
	if (!at) {
		if (l->docs->n == l->cap_roots) {
			size_t want = l->cap_roots ? l->cap_roots * 2 : 8;
			struct yaml_node **bigger = realloc(l->docs->roots, want * sizeof(node));

			if (!bigger)
				return -ENOMEM;
			l->docs->roots = bigger;
			l->cap_roots = want;
		}
		if (node->kind != YAML_KIND_SCALAR || node->quoted || node->len > 0)
			l->docs->roots[l->docs->n++] = node; /* "---" and no more holds nothing */
		return 0;
	}
	if (at->node->kind == YAML_KIND_MAP && !at->key)
		return key_take(l, at, node, ev);
	if (at->node->kind == YAML_KIND_MAP) {
		node->key = at->key->text;
		node->key_line = at->key->line;
		node->key_column = at->key->column;
		at->key = NULL;
	}
	*at->tail = node;
	at->tail = &node->next;
	at->node->n_children++;
	return 0;
}

static int
on_scalar(struct load *l, const yaml_event_t *ev)
{
	struct yaml_node *node = node_new(l, YAML_KIND_SCALAR, &ev->start_mark);
	size_t len = ev->data.scalar.length;
	char *text = arena_take(l, len + 1);

	if (!node || !text)
		return -ENOMEM;
	memcpy(text, ev->data.scalar.value, len);
	node->text = text;
	node->len = len;
	node->quoted = ev->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
	refuse_decoration(l, ev, ev->data.scalar.anchor, ev->data.scalar.tag);
	if (memchr(text, '\0', len))
		COMPLAIN(l, &ev->start_mark, "a NUL character in a text");
	return node_place(l, node, ev);
}

static int
on_open(struct load *l, const yaml_event_t *ev, enum yaml_kind kind)
{
	struct yaml_node *node = node_new(l, kind, &ev->start_mark);
	int r;

	if (!node)
		return -ENOMEM;
	if (kind == YAML_KIND_MAP)
		refuse_decoration(l, ev, ev->data.mapping_start.anchor, ev->data.mapping_start.tag);
	else
		refuse_decoration(l, ev, ev->data.sequence_start.anchor,
				  ev->data.sequence_start.tag);
	r = node_place(l, node, ev);
	if (r < 0)
		return r;
	if (l->depth == YAML_DEPTH_MAX) {
		COMPLAIN(l, &ev->start_mark, "nested more than %u levels deep", YAML_DEPTH_MAX);
		return -EINVAL;
	}
	l->levels[l->depth++] = (struct level){node, &node->child, NULL};
	return 0;
}

static int
on_alias(struct load *l, const yaml_event_t *ev)
{
	struct yaml_node *node = node_new(l, YAML_KIND_SCALAR, &ev->start_mark);

	if (!node)
		return -ENOMEM;
	COMPLAIN(l, &ev->start_mark, "aliases are not supported (*%.40s): write the value out",
		 (const char *)ev->data.alias.anchor);
	node->text = ""; /* stands in, so that the rest is still looked at */
	return node_place(l, node, ev);
}

static int
on_event(struct load *l, const yaml_event_t *ev)
{
	switch (ev->type) {
	case YAML_SCALAR_EVENT:
		return on_scalar(l, ev);
	case YAML_SEQUENCE_START_EVENT:
		return on_open(l, ev, YAML_KIND_LIST);
	case YAML_MAPPING_START_EVENT:
		return on_open(l, ev, YAML_KIND_MAP);
	case YAML_SEQUENCE_END_EVENT:
	case YAML_MAPPING_END_EVENT:
		l->depth--;
		return 0;
	case YAML_ALIAS_EVENT:
		return on_alias(l, ev);
	default:
		return 0;
	}
}

/* Line and column of a byte, for what libyaml cannot place or would not notice. */
static void
place_of(const char *text, size_t offset, unsigned *ret_line, unsigned *ret_column)
{
	unsigned line = 1, column = 1;

	for (size_t i = 0; i < offset; i++) {
		if (text[i] == '\n') {
			line++;
			column = 1;
		} else if ((text[i] & 0xc0) != 0x80) {
			column++;
		}
	}
	*ret_line = line;
	*ret_column = column;
}

static void
complain_syntax(struct load *l, const char *text)
{
	const yaml_parser_t *p = &l->parser;
	unsigned line, column;

	l->bad = true;
	if (p->error == YAML_READER_ERROR) {
		place_of(text, p->problem_offset, &line, &column);
		yaml_errors_add(l->errs, l->docs->file, line, column, "not valid text: %s",
				p->problem);
		return;
	}
	line = line_of(&p->problem_mark);
	column = column_of(&p->problem_mark);
	if (p->context && p->context_mark.line != p->problem_mark.line)
		yaml_errors_add(l->errs, l->docs->file, line, column,
				"not valid YAML: %s %s that begins at line %u, column %u",
				p->problem, p->context, line_of(&p->context_mark),
				column_of(&p->context_mark));
	else
		yaml_errors_add(l->errs, l->docs->file, line, column, "not valid YAML: %s%s%s",
				p->problem, p->context ? " " : "", p->context ? p->context : "");
}

/* What libyaml would end at (NUL) or explain badly (tabs).  False: complained. */
static bool
bytes_ok(struct load *l, const char *text, size_t len)
{
	unsigned line = 1, column;
	const char *nul;

	if (len > YAML_TEXT_MAX_BYTES) {
		yaml_errors_add(l->errs, l->docs->file, 0, 0, "larger than %u KiB",
				YAML_TEXT_MAX_BYTES / 1024);
		return false;
	}
	nul = len ? memchr(text, '\0', len) : NULL;
	if (nul) {
		place_of(text, (size_t)(nul - text), &line, &column);
		yaml_errors_add(l->errs, l->docs->file, line, column,
				"a NUL byte: is this file damaged or not UTF-8?");
		return false;
	}
	for (size_t i = 0; i < len; line++) {
		size_t start = i;

		while (i < len && text[i] == ' ')
			i++;
		if (i < len && text[i] == '\t') {
			yaml_errors_add(l->errs, l->docs->file, line, (unsigned)(i - start) + 1,
					"a tab in the indentation: use spaces");
			return false;
		}
		while (i < len && text[i] != '\n')
			i++;
		i++;
	}
	return true;
}

static int
parse_events(struct load *l, const char *text, size_t len)
{
	int r = 0;

	yaml_parser_set_encoding(&l->parser, YAML_UTF8_ENCODING);
	yaml_parser_set_input_string(&l->parser, (const unsigned char *)text, len);
	for (;;) {
		yaml_event_t ev;
		bool end;

		if (!yaml_parser_parse(&l->parser, &ev)) {
			if (l->parser.error == YAML_MEMORY_ERROR)
				return -ENOMEM;
			complain_syntax(l, text);
			return -EINVAL;
		}
		end = ev.type == YAML_STREAM_END_EVENT;
		r = on_event(l, &ev);
		yaml_event_delete(&ev);
		if (r < 0)
			return r;
		if (end)
			return l->bad ? -EINVAL : 0;
	}
}

int
yaml_parse(const char *file, const void *bytes, size_t len, struct yaml_docs **ret_docs,
	   struct yaml_errors *errs)
{
	struct load l = {.errs = errs};
	const char *text = bytes;
	char *name;
	int r = -ENOMEM;

	l.docs = calloc(1, sizeof(*l.docs));
	if (!l.docs)
		return -ENOMEM;
	name = arena_take(&l, strlen(file) + 1);
	if (!name)
		goto out;
	strcpy(name, file);
	l.docs->file = name;
	if (len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) {
		text += 3;
		len -= 3;
	}
	l.docs->source = text;
	l.docs->source_len = len;
	r = -EINVAL;
	if (!bytes_ok(&l, text, len))
		goto out;
	r = -ENOMEM;
	if (!yaml_parser_initialize(&l.parser))
		goto out;
	r = parse_events(&l, text, len);
	yaml_parser_delete(&l.parser);
out:
	l.docs->arena = l.chunks;
	if (r < 0)
		yaml_docs_free(&l.docs);
	else
		*ret_docs = l.docs;
	return r;
}

struct yaml_node *
yaml_map_get(const struct yaml_node *map, const char *key)
{
	if (!map || map->kind != YAML_KIND_MAP)
		return NULL;
	for (struct yaml_node *n = map->child; n; n = n->next)
		if (strcmp(n->key, key) == 0)
			return n;
	return NULL;
}
