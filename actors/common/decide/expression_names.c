/* actors/common/decide/expression_names.c -- what the names in an expression are: facts, pools,
 * keys of maps, and values that must be named in the documents. */
#include "actors/common/decide/expression_private.h"

#include <stdio.h>
#include <strings.h>

#include "proto/yaml.h"

const char *
expression_type_name(enum expression_type type)
{
	static const char *const names[TYPES] = {
		[TYPE_UNKNOWN] = "nothing", [TYPE_BOOL] = "a bool", [TYPE_INT] = "an int",
		[TYPE_UINT] = "a uint", [TYPE_DOUBLE] = "a double", [TYPE_STRING] = "a string",
		[TYPE_DURATION] = "a duration", [TYPE_LIST] = "a list",
		[TYPE_TAGS] = "a set of tags", [TYPE_HEADERS] = "header fields",
		[TYPE_LABELS] = "labels",
	};

	return names[type];
}

int
expression_want_literal(struct checker *c, const struct expression_node *n,
			const char *what)
{
	if (n->kind == NODE_LITERAL && n->value.type == TYPE_STRING)
		return 0;
	return FAIL(c, n, NULL, "%s in quotes", what);
}

/* ---- names ---- */

static enum expression_type
type_of(enum facts_type type)
{
	switch (type) {
	case FACTS_BOOL:
		return TYPE_BOOL;
	case FACTS_INT:
		return TYPE_INT;
	case FACTS_DOUBLE:
		return TYPE_DOUBLE;
	case FACTS_STRING:
	case FACTS_CHOICE:
		return TYPE_STRING;
	case FACTS_TAGS:
		return TYPE_TAGS;
	case FACTS_HEADERS:
		return TYPE_HEADERS;
	default:
		return TYPE_LABELS;
	}
}

/* "a.b.c" as one text; false: it is something else, or too long. */
static bool
path_of(const struct expression_node *n, char *buf, size_t cap)
{
	size_t len = 0;

	if (n->kind == NODE_SELECT) {
		if (!path_of(n->child, buf, cap))
			return false;
		len = strlen(buf);
		buf[len++] = '.';
	} else if (n->kind != NODE_NAME) {
		return false;
	}
	if (len + n->name.len + 2 > cap)
		return false;
	memcpy(buf + len, n->name.p, n->name.len);
	buf[len + n->name.len] = '\0';
	return true;
}

/* The fact that was meant: a small mistake, or its last word alone. */
static const char *
nearest_fact(const struct checker *c, const char *path)
{
	const char *names[FACTS], *word = strrchr(path, '.'), *near;
	size_t n = 0;

	for (unsigned i = 0; i < FACTS; i++)
		if (facts_table()[i].class & c->classes)
			names[n++] = facts_table()[i].name;
	near = yaml_nearest(path, names, n);
	word = word ? word + 1 : path;
	for (size_t i = 0; i < n && !near; i++)
		if (strcasecmp(strrchr(names[i], '.') + 1, word) == 0)
			near = names[i];
	return near;
}

static int
unnamed(struct checker *c, const struct expression_node *n, const char *path)
{
	static const char *const roots[] = {"request", "candidate", "pool"};
	const char *near = nearest_fact(c, path);
	char pool[EXPRESSION_PATH_MAX];

	for (unsigned i = 0; i < 3; i++)
		if (strcmp(path, roots[i]) == 0)
			return FAIL(c, n, NULL, i == 2 ?
				    "pool['NAME'].ready, .waiting or .kvUsage" :
				    "one of its values, such as %s.%s", roots[i],
				    i == 0 ? "model" : "pool");
	if (near && strncmp(near, "pool[]", 6) == 0) {
		snprintf(pool, sizeof pool, "pool['NAME']%s", near + 6);
		near = pool;
	}
	if (near)
		return FAIL(c, n, near, "a name");
	near = strchr(path, '.') ? NULL : yaml_nearest(path, roots, 3);
	if (strncmp(path, "request.", 8) == 0 || strncmp(path, "candidate.", 10) == 0)
		return FAIL(c, n, near, "a name of the %s",
			    path[0] == 'r' ? "request" : "candidate");
	return FAIL(c, n, near, "a name: request. ..., candidate. ... or pool['NAME']. ...; a text "
				"is in quotes");
}

static int
may_read(struct checker *c, const struct expression_node *n, enum fact fact)
{
	const struct fact_row *row = &facts_table()[fact];

	if (row->class & c->classes)
		return 0;
	if (c->t->place == EXPRESSION_TAG)
		return FAIL(c, n, NULL, "a name of the request, not its tags: here tags are made");
	return FAIL(c, n, NULL, "a name of the request or a pool: here is no candidate yet");
}

/* By its whole path. */
static bool
find_fact(const char *path, enum fact *ret)
{
	for (unsigned i = 0; i < FACTS; i++)
		if (strcmp(facts_table()[i].name, path) == 0) {
			*ret = (enum fact)i;
			return true;
		}
	return false;
}

int
expression_find_name(struct checker *c, const struct expression_node *n,
		     const char *const *names, size_t n_names, const char *what, struct slice name,
		     uint32_t *ret)
{
	char word[EXPRESSION_PATH_MAX + 1];

	for (size_t i = 0; i < n_names; i++)
		if (slice_eq_str(name, names[i])) {
			*ret = (uint32_t)i;
			return 0;
		}
	snprintf(word, sizeof word, "%.*s",
		 (int)(name.len < EXPRESSION_PATH_MAX ? name.len : EXPRESSION_PATH_MAX), name.p);
	return FAIL(c, n, yaml_nearest(word, names, n_names), "%s", what);
}

/* pool['x'], pool.x or pool[candidate.pool] as the index of a pool. */
static int
pool_of(struct checker *c, struct expression_node *n, uint32_t *ret)
{
	struct expression_node *key = n->child->next;
	enum fact fact;
	char path[EXPRESSION_PATH_MAX];

	if (n->kind == NODE_SELECT)
		return expression_find_name(c, n, c->names->pools, c->names->n_pools,
					    "the name of an InferencePool", n->name, ret);
	if (key->kind == NODE_LITERAL && key->value.type == TYPE_STRING)
		return expression_find_name(c, key, c->names->pools, c->names->n_pools,
					    "the name of an InferencePool", key->value.s, ret);
	if (path_of(key, path, sizeof path) && find_fact(path, &fact) &&
	    fact == FACT_CANDIDATE_POOL) {
		*ret = POOL_OF_CANDIDATE;
		return may_read(c, key, fact);
	}
	return FAIL(c, key, NULL, "a pool's name in quotes, or candidate.pool");
}

bool
expression_is_pool(const struct expression_node *n)
{
	return (n->kind == NODE_SELECT || n->kind == NODE_INDEX) &&
	       n->child->kind == NODE_NAME && slice_eq_str(n->child->name, "pool");
}

static int
check_pool(struct checker *c, struct expression_node *n)
{
	char path[EXPRESSION_PATH_MAX];
	enum fact fact;
	int r = pool_of(c, n->child, &n->index);

	if (r < 0)
		return r;
	snprintf(path, sizeof path, "pool[].%.*s", (int)(n->name.len < 40 ? n->name.len : 40),
		 n->name.p);
	if (!find_fact(path, &fact)) {
		const char *near = nearest_fact(c, path);

		return FAIL(c, n, near ? near + strlen("pool[].") : NULL,
			    "ready, waiting or kvUsage of a pool");
	}
	n->kind = NODE_POOL;
	n->fact = fact;
	n->type = type_of(facts_table()[fact].type);
	return may_read(c, n, fact);
}

/* A key of headers (in lower case) or labels, of which nothing but its text must be known. */
int
expression_keyed(struct checker *c, struct expression_node *n, const struct expression_node *map,
      const struct expression_node *from, struct slice key, bool has)
{
	bool header = map->type == TYPE_HEADERS;
	struct expression_source *s = &c->t->source;
	char *copy;

	if (key.len == 0 || memchr(key.p, '\0', key.len))
		return FAIL(c, from, NULL, "the name of a %s", header ? "header field" : "label");
	if (key.p >= s->strings && key.p <= s->strings + s->n_strings) {
		copy = s->strings + (key.p - s->strings);
	} else {
		copy = s->strings + s->n_strings;       /* ".name" has room for "name\0" */
		memcpy(copy, key.p, key.len);
		copy[key.len] = '\0';
		s->n_strings += key.len + 1;
	}
	for (size_t i = 0; i < key.len && header; i++)
		if (copy[i] >= 'A' && copy[i] <= 'Z')
			copy[i] = (char)(copy[i] | 0x20);
	n->kind = header ? has ? NODE_HAS_HEADER : NODE_HEADER : has ? NODE_HAS_LABEL : NODE_LABEL;
	n->type = has ? TYPE_BOOL : TYPE_STRING;
	n->fact = map->fact;
	n->value = (struct expression_value){.type = TYPE_STRING, .s = slice_of(copy, key.len)};
	return 0;
}

int
expression_check_name(struct checker *c, struct expression_node *n)
{
	char path[EXPRESSION_PATH_MAX] = "";
	enum fact fact;
	bool plain = path_of(n, path, sizeof path);
	int r;

	if (plain && find_fact(path, &fact)) {
		n->kind = NODE_FACT;
		n->fact = fact;
		n->type = type_of(facts_table()[fact].type);
		return may_read(c, n, fact);
	}
	if (n->kind == NODE_NAME)
		return unnamed(c, n, path);
	if (expression_is_pool(n->child))
		return check_pool(c, n);
	if (expression_is_pool(n))
		return FAIL(c, n, NULL, "its ready, waiting or kvUsage");
	if (plain) {
		/* what it is selected from may be a map */
		if (!path_of(n->child, path, sizeof path) || !find_fact(path, &fact) ||
		    (facts_table()[fact].type != FACTS_HEADERS &&
		     facts_table()[fact].type != FACTS_LABELS)) {
			path_of(n, path, sizeof path);
			return unnamed(c, n, path);
		}
	}
	r = expression_check_node(c, n->child);
	if (r < 0)
		return r;
	if (n->child->type != TYPE_HEADERS && n->child->type != TYPE_LABELS)
		return FAIL(c, n, NULL, "no '.%.*s' of %s",
			    (int)(n->name.len < 40 ? n->name.len : 40), n->name.p,
			    expression_type_name(n->child->type));
	return expression_keyed(c, n, n->child, n, n->name, false);
}

/* ---- literals beside facts whose values are named in the documents ---- */

static int
check_choice(struct checker *c, const struct fact_row *row, const struct expression_node *n,
	     struct slice value, uint32_t *ret)
{
	const char *names[32];
	char expected[128] = "one of";
	size_t k = 0, len = strlen(expected);

	for (unsigned i = 0; i < 32 && strcmp(row->choice(i), "unknown") != 0; i++) {
		names[k++] = row->choice(i);
		len += (size_t)snprintf(expected + len, sizeof expected - len, "%s %s",
					i == 0 ? "" : ",", row->choice(i));
		if (len >= sizeof expected)
			len = sizeof expected - 1;
	}
	return expression_find_name(c, n, names, k, expected, value, ret);
}

static int
check_value(struct checker *c, const struct fact_row *row, const struct expression_node *n,
	    const struct expression_value *v)
{
	const struct expression_names *names = c->names;
	const struct {
		const char *const *names;
		size_t n;
		const char *what;
	} lists[] = {
		[FACTS_POOLS] = {names->pools, names->n_pools, "the name of an InferencePool"},
		[FACTS_PROVIDERS] = {names->providers, names->n_providers,
				     "the name of an InferenceProvider"},
		[FACTS_TENANTS] = {names->tenants, names->n_tenants,
				   "the name of an InferenceTenant"},
		[FACTS_MODELS] = {names->models, names->n_models,
				  "a model that clients may say"},
	};
	uint32_t index;

	if (v->type != TYPE_STRING)
		return 0;
	if (row->type == FACTS_CHOICE)
		return check_choice(c, row, n, v->s, &index);
	if (row->names == FACTS_ANY || !lists[row->names].names || v->s.len == 0)
		return 0;
	return expression_find_name(c, n, lists[row->names].names, lists[row->names].n,
			 lists[row->names].what, v->s, &index);
}

/* Is what it is compared with one of the names it can have? */
int
expression_check_against(struct checker *c, const struct expression_node *fact,
	      const struct expression_node *n)
{
	const struct fact_row *row;

	if (fact->kind != NODE_FACT)
		return 0;
	row = &facts_table()[fact->fact];
	if (n->type == TYPE_LIST) {
		for (const struct expression_node *i = n->child; i; i = i->next)
			if (i->kind == NODE_LITERAL) {
				int r = check_value(c, row, i, &i->value);

				if (r < 0)
					return r;
			}
		return 0;
	}
	return n->kind == NODE_LITERAL ? check_value(c, row, n, &n->value) : 0;
}

