/* tests/emulator/flags.c -- see flags.h. */
#include "tests/emulator/flags.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *
field(void *options, const struct flag_row *row)
{
	return (char *)options + row->offset;
}

static char *
copy(const char *s)
{
	char *p = strdup(s);

	if (p == NULL)
		abort();
	return p;
}

int
flags_set(const struct flag_row *row, void *options, const char *value, char why[static 256])
{
	char *end = NULL;
	double real;
	unsigned long v;

	errno = 0;
	switch (row->type) {
	case FLAG_STR:
		free(*(char **)field(options, row));
		*(char **)field(options, row) = copy(value);
		return 0;
	case FLAG_UINT:
		if (strcmp(value, "-") == 0) {
			*(unsigned *)field(options, row) = FLAGS_UINT_UNSET;
			return 0;
		}
		v = strtoul(value, &end, 10);
		if (value[0] < '0' || value[0] > '9' || *end != '\0' || errno != 0 ||
		    v >= FLAGS_UINT_UNSET)
			break;
		*(unsigned *)field(options, row) = (unsigned)v;
		return 0;
	case FLAG_REAL:
		if (strcmp(value, "-") == 0) {
			*(double *)field(options, row) = NAN;
			return 0;
		}
		real = strtod(value, &end);
		if (end == value || *end != '\0' || !isfinite(real) || real < 0)
			break;
		*(double *)field(options, row) = real;
		return 0;
	case FLAG_BOOL:
		if (strcmp(value, "0") != 0 && strcmp(value, "1") != 0)
			break;
		*(bool *)field(options, row) = value[0] == '1';
		return 0;
	}
	snprintf(why, 256, "--%s: '%.80s' is not %s", row->flag, value,
		 row->type == FLAG_BOOL ? "0 or 1" : "a number from 0 on");
	return -EINVAL;
}

static bool
same_name(const char *flag, const char *given, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (flag[i] != given[i] && !(flag[i] == '-' && given[i] == '_'))
			return false;
	return true;
}

const struct flag_row *
flags_find(const struct flag_table *table, const char *flag, size_t len)
{
	for (size_t i = 0; i < table->rows; i++)
		if (strlen(table->row[i].flag) == len && same_name(table->row[i].flag, flag, len))
			return &table->row[i];
	return NULL;
}

void
flags_default(const struct flag_table *table, void *options)
{
	char why[256];

	for (size_t i = 0; i < table->rows; i++)
		flags_set(&table->row[i], options, table->row[i].value, why);
}

static void
help(const struct flag_table *table)
{
	puts(table->usage);
	for (size_t i = 0; i < table->rows; i++)
		printf(" %c --%-24s %-22s %s\n", table->row[i].live ? '*' : ' ', table->row[i].flag,
		       table->row[i].value, table->row[i].doc);
}

int
flags_parse(const struct flag_table *table, void *options, int argc, char **argv,
	    char why[static 256])
{
	for (int i = 1; i < argc; i++) {
		const char *flag = argv[i] + 2, *value;
		const struct flag_row *row = NULL;
		size_t len = 0;

		if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
			help(table);
			return 1;
		}
		if (strncmp(argv[i], "--", 2) == 0) {
			len = strcspn(flag, "=");
			row = flags_find(table, flag, len);
		}
		if (row == NULL) {
			snprintf(why, 256, "unknown flag '%.80s'; --help lists all", argv[i]);
			return -EINVAL;
		}
		if (flag[len] == '=') {
			value = flag + len + 1;
		} else if (row->type == FLAG_BOOL &&
			   (i + 1 == argc || strncmp(argv[i + 1], "--", 2) == 0)) {
			value = "1";
		} else if (i + 1 < argc) {
			value = argv[++i];
		} else {
			snprintf(why, 256, "--%s needs a value", row->flag);
			return -EINVAL;
		}
		if (flags_set(row, options, value, why) < 0)
			return -EINVAL;
	}
	return 0;
}

int
flags_one_of(const char *flag, const char *value, const char *const *names, char why[static 256])
{
	for (int i = 0; names[i] != NULL; i++)
		if (strcmp(names[i], value) == 0)
			return i;
	snprintf(why, 256, "--%s: '%.80s' is not a choice; see --help", flag, value);
	return -EINVAL;
}

void
flags_copy(const struct flag_table *table, void *to, const void *from)
{
	for (size_t i = 0; i < table->rows; i++) {
		const struct flag_row *row = &table->row[i];

		if (row->type == FLAG_STR)
			*(char **)field(to, row) =
				copy(*(char *const *)((const char *)from + row->offset));
	}
}

void
flags_free(const struct flag_table *table, void *options)
{
	for (size_t i = 0; i < table->rows; i++)
		if (table->row[i].type == FLAG_STR) {
			free(*(char **)field(options, &table->row[i]));
			*(char **)field(options, &table->row[i]) = NULL;
		}
}
