/* proto/yaml_values.c -- what a scalar means, once somebody has declared what it should be. */
#include "proto/yaml.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

int
yaml_get_text(const struct yaml_node *node, const char **ret_text, const char **why)
{
	if (node->kind != YAML_KIND_SCALAR) {
		*why = node->kind == YAML_KIND_LIST ? "must be one value, not a list"
						    : "must be one value, not a map";
		return -EINVAL;
	}
	if (node->len == 0) {
		*why = "is empty";
		return -EINVAL;
	}
	*ret_text = node->text;
	return 0;
}

int
yaml_get_bool(const struct yaml_node *node, bool *ret_value, const char **why)
{
	const char *text;

	if (yaml_get_text(node, &text, why) < 0)
		return -EINVAL;
	if (node->quoted || (strcmp(text, "true") != 0 && strcmp(text, "false") != 0)) {
		*why = node->quoted ? "must be true or false, without quotes"
				    : "must be true or false";
		return -EINVAL;
	}
	*ret_value = text[0] == 't';
	return 0;
}

/* Decimal digits at *pp; false: none, or more than fit. */
static bool
digits_read(const char **pp, uint64_t *ret_value)
{
	const char *p = *pp;
	uint64_t v = 0;

	if (*p < '0' || *p > '9')
		return false;
	for (; *p >= '0' && *p <= '9'; p++) {
		unsigned d = (unsigned)(*p - '0');

		if (v > (UINT64_MAX - d) / 10)
			return false;
		v = v * 10 + d;
	}
	*pp = p;
	*ret_value = v;
	return true;
}

static bool
has_leading_zero(const char *text)
{
	return text[0] == '0' && text[1] >= '0' && text[1] <= '9';
}

int
yaml_get_u64(const struct yaml_node *node, uint64_t *ret_value, const char **why)
{
	const char *text;
	uint64_t v;

	if (yaml_get_text(node, &text, why) < 0)
		return -EINVAL;
	if (node->quoted) {
		*why = "must be a number, without quotes";
		return -EINVAL;
	}
	if (has_leading_zero(text)) {
		*why = "must be a decimal number without leading zeros";
		return -EINVAL;
	}
	if (!digits_read(&text, &v) || *text) {
		*why = "must be a whole decimal number";
		return -EINVAL;
	}
	*ret_value = v;
	return 0;
}

struct unit {
	const char *name;
	uint64_t factor;
};

static const struct unit duration_units[] = { /* in ns */
	{"ns", 1},
	{"us", 1000},
	{"ms", 1000000},
	{"s", 1000000000},
	{"m", 60000000000},
	{"h", 3600000000000},
};

static const struct unit size_units[] = { /* in bytes */
	{"B", 1},
	{"KiB", 1024},
	{"MiB", 1048576},
	{"GiB", 1073741824},
};

static const struct unit *
unit_find(const struct unit *units, size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(units[i].name, name) == 0)
			return &units[i];
	return NULL;
}

/* "12.5ms" as whole 12, fraction 500000000 (in billionths) and its unit. */
static bool
duration_read(const char *text, uint64_t *ret_whole, uint64_t *ret_billionths,
	      const struct unit **ret_unit)
{
	uint64_t fraction = 0, scale = 100000000;

	if (has_leading_zero(text) || !digits_read(&text, ret_whole))
		return false;
	if (*text == '.') {
		if (*++text < '0' || *text > '9')
			return false;
		for (; *text >= '0' && *text <= '9'; text++, scale /= 10) {
			if (scale == 0)
				return false; /* more than nine decimals */
			fraction += (uint64_t)(*text - '0') * scale;
		}
	}
	*ret_billionths = fraction;
	*ret_unit = unit_find(duration_units, sizeof(duration_units) / sizeof(duration_units[0]),
			      text);
	return *ret_unit != NULL;
}

static const char not_a_duration[] = "must be a duration with a unit, such as 500ms, 2s or 5m";

int
yaml_get_duration_ns(const struct yaml_node *node, uint64_t *ret_ns, const char **why)
{
	const struct unit *unit;
	uint64_t whole, billionths;
	unsigned __int128 ns;
	const char *text;

	if (yaml_get_text(node, &text, why) < 0)
		return -EINVAL;
	if (!duration_read(text, &whole, &billionths, &unit)) {
		*why = not_a_duration;
		return -EINVAL;
	}
	ns = (unsigned __int128)whole * unit->factor +
	     (unsigned __int128)billionths * unit->factor / 1000000000;
	if (ns > INT64_MAX) {
		*why = "is a duration of more than 292 years";
		return -EINVAL;
	}
	*ret_ns = (uint64_t)ns;
	return 0;
}

int
yaml_get_duration_s(const struct yaml_node *node, double *ret_s, const char **why)
{
	const struct unit *unit;
	uint64_t whole, billionths;
	const char *text;

	if (yaml_get_text(node, &text, why) < 0)
		return -EINVAL;
	if (!duration_read(text, &whole, &billionths, &unit)) {
		*why = not_a_duration;
		return -EINVAL;
	}
	*ret_s = ((double)whole + (double)billionths * 1e-9) * (double)unit->factor * 1e-9;
	return 0;
}

int
yaml_get_size_bytes(const struct yaml_node *node, uint64_t *ret_bytes, const char **why)
{
	const struct unit *unit;
	const char *text;
	uint64_t n;

	if (yaml_get_text(node, &text, why) < 0)
		return -EINVAL;
	if (has_leading_zero(text) || !digits_read(&text, &n) ||
	    !(unit = unit_find(size_units, sizeof(size_units) / sizeof(size_units[0]), text))) {
		*why = "must be a size with a unit, such as 64KiB, 32MiB or 1GiB";
		return -EINVAL;
	}
	if (n > INT64_MAX / unit->factor) {
		*why = "is larger than any memory";
		return -EINVAL;
	}
	*ret_bytes = n * unit->factor;
	return 0;
}

#define WORD_MAX 63u

static unsigned
least(unsigned a, unsigned b)
{
	return a < b ? a : b;
}

/* Edit distance (insert, delete, change, swap neighbours). */
static unsigned
distance(const char *a, size_t la, const char *b, size_t lb)
{
	unsigned rows[3][WORD_MAX + 1];
	unsigned *before = rows[0], *above = rows[1], *row = rows[2];

	for (unsigned j = 0; j <= lb; j++)
		above[j] = j;
	memcpy(before, above, (lb + 1) * sizeof(*above));
	for (unsigned i = 1; i <= la; i++) {
		unsigned *spare = before;

		row[0] = i;
		for (unsigned j = 1; j <= lb; j++) {
			unsigned best = above[j - 1] + (a[i - 1] != b[j - 1]);

			best = least(best, least(above[j], row[j - 1]) + 1);
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				best = least(best, before[j - 2] + 1);
			row[j] = best;
		}
		before = above;
		above = row;
		row = spare;
	}
	return above[lb];
}

const char *
yaml_nearest(const char *word, const char *const *names, size_t n_names)
{
	const char *best = NULL;
	unsigned best_distance = 3;
	size_t len = strlen(word);

	if (len == 0 || len > WORD_MAX)
		return NULL;
	for (size_t i = 0; i < n_names; i++) {
		size_t n = strlen(names[i]);
		unsigned d;

		if (n > WORD_MAX)
			continue;
		if (strcasecmp(word, names[i]) == 0)
			return names[i];
		d = distance(word, len, names[i], n);
		if (d < best_distance && 2 * d < (n > len ? n : len)) {
			best = names[i];
			best_distance = d;
		}
	}
	return best;
}
