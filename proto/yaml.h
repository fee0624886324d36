/* proto/yaml.h -- strict YAML documents: a tree of texts, each knowing its line and column.
 *
 * libyaml reads the syntax; this file refuses what makes configuration lie: duplicate keys,
 * merge keys (<<), anchors and aliases, tags, tabs, NUL bytes, more than 32 levels, more than
 * 1 MiB.  Scalars stay text: whoever knows the declared type asks for it (yaml_get_*), so "no"
 * is a name where a name is wanted and an error where a bool is, never a guess.
 *
 * Errors     collected in a struct yaml_errors, all at once, each file:line:column (from 1).
 * Ownership  a tree owns all its nodes and texts; yaml_docs_free() frees them together.
 * Threads    none shared; any number of trees at once.  Never on the request path.
 * Sources    YAML 1.1 as libyaml 0.2 reads it.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define YAML_DEPTH_MAX		32u	   /* levels of nesting */
#define YAML_TEXT_MAX_BYTES	(1u << 20) /* one file */
#define YAML_NODES_MAX		100000u	   /* one file */
#define YAML_ERRORS_MAX		100u	   /* kept; more are counted */

struct yaml_error {
	char *file;	 /* owned; as the operator named it */
	unsigned line;	 /* from 1; 0: the file as a whole */
	unsigned column; /* from 1, in characters; 0 with line 0 */
	char *text;	 /* owned; says what is wrong and what would be right */
	/* The same in parts, for programs; owned; NULL: text says it all, or there is none. */
	char *found, *expected, *nearest;
};

/* A list of complaints.  Start it with {0}; end it with yaml_errors_free(). */
struct yaml_errors {
	struct yaml_error *list; /* owned */
	size_t n;
	size_t dropped; /* complaints beyond YAML_ERRORS_MAX, or without memory */
	bool kept;	/* the one added last */
};

void yaml_errors_add(struct yaml_errors *, const char *file, unsigned line, unsigned column,
		     const char *fmt, ...) __attribute__((format(printf, 5, 6)));
	/* Never fails: without memory the complaint is counted in dropped. */
void yaml_errors_detail(struct yaml_errors *, const char *found, const char *expected,
			const char *nearest);
	/* Parts of the complaint added last; each may be NULL.  Without memory they are left out.
	 */
void yaml_errors_append(struct yaml_errors *, const struct yaml_errors *more);
	/* Copies of all of more's. */
bool yaml_errors_any(const struct yaml_errors *);
void yaml_errors_print(const struct yaml_errors *, FILE *);
	/* One line each: file:line:column: text */
void yaml_errors_print_as(const struct yaml_errors *, const char *what, FILE *);
	/* The same with that before the text. */
void yaml_errors_free(struct yaml_errors *);
	/* Frees the list and zeroes the struct; it may be used again. */

enum yaml_kind {
	YAML_KIND_SCALAR = 1,
	YAML_KIND_LIST,
	YAML_KIND_MAP,
};

struct yaml_node {
	enum yaml_kind kind;
	bool quoted;	   /* scalar written in quotes or as a block: certainly text */
	unsigned line;	   /* from 1 */
	unsigned column;   /* from 1, in characters */
	const char *text;  /* scalar; NUL-terminated, no NUL inside; valid UTF-8 */
	size_t len;	   /* scalar: bytes of text */
	size_t n_children; /* list: items; map: pairs */
	struct yaml_node *child; /* first item, or first pair's value */
	struct yaml_node *next;	 /* next item or pair */
	/* As a pair's value: */
	const char *key; /* NULL for a list item or a root */
	unsigned key_line;
	unsigned key_column;
};

struct yaml_docs {
	struct yaml_node **roots; /* one for each document that holds something */
	size_t n;
	const char *file; /* as given */
	const char *source; /* borrowed: the text as given; for yaml_place() only */
	size_t source_len;
	void *arena;	  /* private */
};

int yaml_parse(const char *file, const void *text, size_t len, struct yaml_docs **ret_docs,
	       struct yaml_errors *errs);
	/* Parse one file.  0 and *ret_docs (n may be 0: empty or only comments); -EINVAL with at
	 * least one complaint in errs and *ret_docs untouched; -ENOMEM.  A UTF-8 byte order mark at
	 * the very start is accepted and skipped. */
void yaml_docs_free(struct yaml_docs **docsp);
	/* NULL inside is fine; nulls it. */

void yaml_place(const struct yaml_docs *, const struct yaml_node *scalar, size_t offset,
		unsigned *ret_line, unsigned *ret_column);
	/* Where that byte of the scalar's text stands in the file, through quotes, escapes and
	 * folded lines; a blank's place is that of what follows it.  The text that was parsed must
	 * still be there.  Cost: the file's bytes up to there. */
struct yaml_node *yaml_map_get(const struct yaml_node *map, const char *key);
	/* The value of key, or NULL (also when map is NULL or no map). */

/* Typed getters.  0 and *ret_value; -EINVAL and *why, a sentence's end such as "must be true or
 * false"; *ret_value untouched on failure.  A node that is no scalar is refused likewise. */
int yaml_get_text(const struct yaml_node *, const char **ret_text, const char **why);
	/* Not empty.  Borrowed from the tree. */
int yaml_get_bool(const struct yaml_node *, bool *ret_value, const char **why);
	/* Plain true or false, nothing else. */
int yaml_get_u64(const struct yaml_node *, uint64_t *ret_value, const char **why);
	/* Plain decimal digits without leading zero. */
int yaml_get_duration_ns(const struct yaml_node *, uint64_t *ret_ns, const char **why);
	/* Digits, perhaps a decimal fraction, and a unit: ns us ms s m h ("500ms", "1.5s"). */
int yaml_get_duration_s(const struct yaml_node *, double *ret_s, const char **why);
	/* The same text as seconds, for amounts far below a nanosecond ("0.02ns"). */
int yaml_get_size_bytes(const struct yaml_node *, uint64_t *ret_bytes, const char **why);
	/* Digits and a unit: B KiB MiB GiB ("256KiB"). */

const char *yaml_nearest(const char *word, const char *const *names, size_t n_names);
	/* The name at an edit distance of at most 2 (and less than half the longer), or equal but
	 * for case; NULL if none is near. */
