/* tests/conformance/cel/lines.c -- expressions and facts from standard input, what they say to
 * standard output; for compare.py, which asks another implementation of CEL the same.
 *
 * A line is {"place": "test" or "number", "text": ..., "facts": {"request": {...}, "candidate":
 * {...}, "pool": {NAME: {...}}}}; an int is {"int": "5"}, a double {"double": "0.5"}; what is
 * absent is unknown.  The answer: true, false, unknown, a number by %.17g, or "refused: why".
 */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/common/decide/expression.h"

#define LIST(name, ...) static const char *const name[] = {__VA_ARGS__}
LIST(pools, "qwen-small", "qwen-large");
LIST(tags, "pii", "simple", "code");
LIST(providers, "bedrock-us", "azure");
LIST(tenants, "acme", "initech");
LIST(models, "m", "standard-model");
#define HAS(list) .list = list, .n_##list = sizeof list / sizeof *list
static const struct expression_names names = {
	HAS(pools), HAS(tags), HAS(providers), HAS(tenants), HAS(models),
};

#define LABELS_MAX 16

struct world {
	struct http1_head head;
	struct facts_label labels[LABELS_MAX];
	struct facts_request request;
	struct facts_candidate candidate;
	struct facts_pool pools[2];
};

static struct slice
text_of(json_t *v)
{
	return slice_of(json_string_value(v), json_string_length(v));
}

static void
put_map(struct world *w, json_t *map, bool headers)
{
	const char *key;
	json_t *value;
	unsigned n = 0;

	json_object_foreach(map, key, value) {
		if (headers)
			w->head.headers[n] = (struct http1_header){slice_str(key), text_of(value)};
		else
			w->labels[n] = (struct facts_label){slice_str(key), text_of(value)};
		if (++n == LABELS_MAX)
			break;
	}
	if (headers) {
		w->head.n_headers = n;
		w->request.head = &w->head;
	} else {
		w->candidate.labels = w->labels;
		w->candidate.n_labels = n;
	}
}

static uint64_t
tags_of(json_t *list)
{
	uint64_t set = 0;
	size_t i;
	json_t *tag;

	json_array_foreach(list, i, tag)
		for (unsigned k = 0; k < names.n_tags; k++)
			if (strcmp(json_string_value(tag), tags[k]) == 0)
				set |= 1ull << k;
	return set;
}

static void
put(struct world *w, const struct fact_row *row, void *base, json_t *v)
{
	char *at = (char *)base + row->offset;
	struct slice s;
	uint8_t choice = 0;

	switch (row->type) {
	case FACTS_BOOL:
		*(int8_t *)at = json_is_true(v);
		break;
	case FACTS_INT:
		*(int64_t *)at = strtoll(json_string_value(json_object_get(v, "int")), NULL, 10);
		break;
	case FACTS_DOUBLE:
		*(double *)at = strtod(json_string_value(json_object_get(v, "double")), NULL);
		break;
	case FACTS_STRING:
		s = text_of(v);
		memcpy(at, &s, sizeof s);
		break;
	case FACTS_CHOICE:
		while (strcmp(row->choice(choice), json_string_value(v)) != 0)
			choice++;
		*(uint8_t *)at = choice;
		break;
	case FACTS_TAGS:
		w->request.tags = tags_of(v);
		w->request.tags_unknown = 0;
		break;
	default:
		put_map(w, v, row->type == FACTS_HEADERS);
	}
}

/* The value at "a.b" below facts. */
static json_t *
find(json_t *facts, const char *path)
{
	char copy[64], *save, *part;

	snprintf(copy, sizeof copy, "%s", path);
	for (part = strtok_r(copy, ".", &save); part; part = strtok_r(NULL, ".", &save))
		facts = json_object_get(facts, part);
	return facts;
}

static void
fill(struct world *w, json_t *facts)
{
	facts_request_init(&w->request);
	facts_candidate_init(&w->candidate);
	for (unsigned p = 0; p < names.n_pools; p++)
		facts_pool_init(&w->pools[p]);
	for (unsigned i = 0; i < FACTS; i++) {
		const struct fact_row *row = &facts_table()[i];
		void *base = row->name[0] == 'r' ? (void *)&w->request : (void *)&w->candidate;
		json_t *v;

		for (unsigned p = 0; p < names.n_pools && row->class == FACTS_POOL; p++) {
			v = json_object_get(find(json_object_get(facts, "pool"), pools[p]),
					    row->name + strlen("pool[]."));
			if (v)
				put(w, row, &w->pools[p], v);
		}
		v = find(facts, row->name);
		if (v)
			put(w, row, base, v);
	}
	for (uint32_t p = 0; p < names.n_pools; p++)
		if (w->candidate.pool.p && slice_eq_str(w->candidate.pool, pools[p]))
			w->candidate.pool_index = p;
}

static void
answer(json_t *line)
{
	static const char *const truths[] = {"false", "true", "unknown"};
	static struct world w;
	struct facts f = {&w.request, &w.candidate, w.pools, 2};
	const char *place = json_string_value(json_object_get(line, "place"));
	struct expression_error error;
	struct expression *e = NULL;
	char say[400];

	fill(&w, json_object_get(line, "facts"));
	if (expression_compile(text_of(json_object_get(line, "text")),
			       strcmp(place, "test") == 0 ? EXPRESSION_CANDIDATE :
							    EXPRESSION_OBJECTIVE,
			       &names, &e, &error) < 0) {
		expression_error_say(&error, say, sizeof say);
		printf("refused: %u %s\n", error.offset, say);
	} else if (strcmp(place, "test") == 0) {
		printf("%s\n", truths[expression_test(e, &f)]);
	} else {
		printf("%.17g\n", expression_number(e, &f));
	}
	expression_free(&e);
}

int
main(void)
{
	char *text = NULL;
	size_t cap = 0;

	while (getline(&text, &cap, stdin) > 0) {
		json_t *line = json_loads(text, 0, NULL);

		if (!line)
			return 1;
		answer(line);
		json_decref(line);
	}
	free(text);
	return 0;
}
