/* actors/pointsctl/table.c -- aligned columns and units; see table.h. */
#include "actors/pointsctl/table.h"

#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define COLUMNS_MAX 32u

struct table {
	unsigned columns;
	bool right[COLUMNS_MAX];
	char **cell;                            /* owned, row by row, heads first */
	unsigned n, cap;
};

static void *
must(void *p)
{
	if (!p) {
		fputs("pointsctl: out of memory\n", stderr);
		exit(1);
	}
	return p;
}

static void
append(struct table *t, char *text)
{
	if (t->n == t->cap) {
		t->cap = t->cap ? t->cap * 2 : 64;
		t->cell = must(realloc(t->cell, t->cap * sizeof *t->cell));
	}
	t->cell[t->n++] = text;
}

struct table *
table_new(const char *heads)
{
	struct table *t = must(calloc(1, sizeof *t));

	while (*heads && t->columns < COLUMNS_MAX) {
		size_t len;

		t->right[t->columns] = *heads == '>';
		heads += *heads == '>';
		len = strcspn(heads, " ");
		append(t, must(strndup(heads, len)));
		t->columns++;
		heads += len;
		heads += strspn(heads, " ");
	}
	return t;
}

void
table_cell(struct table *t, const char *format, ...)
{
	char *text = NULL;
	va_list args;
	int n;

	va_start(args, format);
	n = vasprintf(&text, format, args);
	va_end(args);
	append(t, must(n < 0 ? NULL : text));
}

void
table_json(struct table *t, const json_t *object, const char *key)
{
	const json_t *v = json_object_get(object, key);

	if (json_is_string(v) && json_string_length(v) > 0)
		table_cell(t, "%s", json_string_value(v));
	else if (json_is_integer(v))
		table_cell(t, "%lld", (long long)json_integer_value(v));
	else if (json_is_real(v))
		table_cell(t, "%.3g", json_real_value(v));
	else if (json_is_boolean(v))
		table_cell(t, "%s", json_is_true(v) ? "yes" : "no");
	else
		table_cell(t, "-");
}

void
table_fields(struct table *t, const json_t *object, const char *keys)
{
	while (*keys) {
		size_t len = strcspn(keys, " ");
		char key[64];

		snprintf(key, sizeof key, "%.*s", (int)len, keys);
		table_json(t, object, key);
		keys += len;
		keys += strspn(keys, " ");
	}
}

void
table_print(FILE *to, const struct table *t)
{
	int width[COLUMNS_MAX] = {0};

	for (unsigned i = 0; i < t->n; i++) {
		int len = (int)strlen(t->cell[i]);

		if (len > width[i % t->columns])
			width[i % t->columns] = len;
	}
	for (unsigned i = 0; i < t->n; i++) {
		unsigned column = i % t->columns;
		bool last = column + 1 == t->columns;

		if (t->right[column])
			fprintf(to, "%*s", width[column], t->cell[i]);
		else
			fprintf(to, "%-*s", last ? 0 : width[column], t->cell[i]);
		fputs(last ? "\n" : "  ", to);
	}
}

void
table_free(struct table **table)
{
	if (!*table)
		return;
	for (unsigned i = 0; i < (*table)->n; i++)
		free((*table)->cell[i]);
	free((*table)->cell);
	free(*table);
	*table = NULL;
}

const char *
unit_seconds(char buf[UNIT_TEXT], double s)
{
	if (s < 0.001)
		snprintf(buf, UNIT_TEXT, "%.0f us", s * 1e6);
	else if (s < 1)
		snprintf(buf, UNIT_TEXT, s < 0.1 ? "%.1f ms" : "%.0f ms", s * 1e3);
	else if (s < 120)
		snprintf(buf, UNIT_TEXT, s < 10 ? "%.2f s" : "%.0f s", s);
	else if (s < 7200)
		snprintf(buf, UNIT_TEXT, "%.0f m", floor(s / 60));
	else if (s < 172800)
		snprintf(buf, UNIT_TEXT, "%.0f h", floor(s / 3600));
	else
		snprintf(buf, UNIT_TEXT, "%.0f d", floor(s / 86400));
	return buf;
}

const char *
unit_bytes(char buf[UNIT_TEXT], double bytes)
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
	unsigned u = 0;

	while (bytes >= 1024 && u + 1 < sizeof units / sizeof units[0]) {
		bytes /= 1024;
		u++;
	}
	snprintf(buf, UNIT_TEXT, u && bytes < 10 ? "%.1f %s" : "%.0f %s", bytes, units[u]);
	return buf;
}

const char *
unit_us(char buf[UNIT_TEXT], const json_t *object, const char *key)
{
	const json_t *v = json_object_get(object, key);

	return json_is_number(v) ? unit_seconds(buf, json_number_value(v) / 1e6) : "-";
}

const char *
unit_s(char buf[UNIT_TEXT], const json_t *object, const char *key)
{
	const json_t *v = json_object_get(object, key);

	return json_is_number(v) ? unit_seconds(buf, json_number_value(v)) : "-";
}
