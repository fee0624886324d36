/* tests/emulator/flags.h -- a program's flags as one table: parsing, defaults, help.
 *
 * Meaning    Each row puts --FLAG into a field of the program's options struct.  --flag value and
 *            --flag=value are the same; a 0|1 flag without a value means 1.  Numbers are not
 *            negative. The value "-" leaves a number unset: NAN, or FLAGS_UINT_UNSET.
 * Errors     -EINVAL with a sentence that names the flag.
 * Ownership  Strings in the options are from malloc; flags_free frees them.
 * Threads    One per options struct.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum flag_type {
	FLAG_STR,  /* char * */
	FLAG_UINT, /* unsigned */
	FLAG_REAL, /* double */
	FLAG_BOOL, /* bool */
};

#define FLAGS_UINT_UNSET UINT32_MAX

struct flag_row {
	const char *flag;
	enum flag_type type;
	size_t offset;
	const char *value; /* default */
	bool live;         /* may be changed while running */
	const char *doc;
};

struct flag_table {
	const struct flag_row *row;
	size_t rows;
	const char *usage; /* what --help says above the table */
};

void flags_default(const struct flag_table *, void *options);
	/* Fill a zeroed options struct. */
int flags_parse(const struct flag_table *, void *options, int argc, char **argv,
		char why[static 256]);
	/* Over the defaults.  0, -EINVAL, or 1: --help was asked for and is printed. */
int flags_set(const struct flag_row *, void *options, const char *value, char why[static 256]);
const struct flag_row *flags_find(const struct flag_table *, const char *flag, size_t len_bytes);
	/* NULL: no such row.  '_' may be given for '-'. */
int flags_one_of(const char *flag, const char *value, const char *const *names,
		 char why[static 256]);
	/* The place of value in a NULL-ended list, or -EINVAL. */
void flags_copy(const struct flag_table *, void *to, const void *from);
	/* Strings only: fresh copies in `to`, whose old pointers are forgotten, not freed. */
void flags_free(const struct flag_table *, void *options);
