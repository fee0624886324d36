/* actors/common/decide/manifest_private.h -- what the files manifest_*.c share; nobody else's.
 *
 * The walk: yaml trees -> documents sorted by kind -> each document's own fields, by the table
 * (manifest_load.c) -> references between them (manifest_resolve.c).  Complaints go to errs and
 * the walk goes on, so that all are seen at once; a manifest with complaints is never given out.
 */
#pragma once
#include "actors/common/decide/manifest.h"

enum manifest_kind {
	KIND_GATEWAY,
	KIND_SET,
	KIND_POOL,
	KIND_POLICY,
	KINDS,
};

/* One document: where it stands and where its values go. */
struct manifest_doc {
	const char *file; /* borrowed from the tree */
	enum manifest_kind kind;
	uint32_t index; /* in its kind's array */
	const char *name;
	const struct yaml_node *name_node;
	const struct yaml_node *spec;
};

struct manifest_place {
	const char *file;
	const struct yaml_node *node; /* the member's map */
};

struct manifest_loader {
	struct manifest *m;
	struct yaml_errors *errs;
	struct yaml_docs **files;
	size_t n_files;
	struct manifest_doc *docs;
	uint32_t n_docs;
	struct manifest_place *places; /* where each row was written, for complaints */
	bool partial; /* a document could not be taken: references to it cannot be judged */
	bool bad;
	bool oom;
};

#define MANIFEST_COMPLAIN(l, file, node, ...)                                                      \
	do {                                                                                       \
		(l)->bad = true;                                                                   \
		yaml_errors_add((l)->errs, file, (node)->line, (node)->column, __VA_ARGS__);       \
	} while (0)

extern const char *const manifest_kind_names[KINDS];

void manifest_defaults(const char *kind, void *base);
	/* Write the defaults of all the kind's fields into base. */
bool manifest_fields_load(struct manifest_loader *, const char *file, const char *kind,
			  const char *parent, const struct yaml_node *map, void *base);
	/* Read one map, and the maps in it, by the table: unknown keys, missing ones, types and
	 * bounds; stores what the table stores (base may be NULL where it stores nothing).  False:
	 * complained. */
bool manifest_value_read(const struct manifest_field *, const struct yaml_node *, void *base,
			 char *why, size_t cap);
	/* Read one scalar as the field says and store it where it says.  False: why is a sentence's
	 * end, such as "must be true or false". */

const char *manifest_addr_parse(const char *text, struct manifest_addr *ret_addr);
	/* "host:port" or "[v6]:port".  NULL or what is wrong. */
const char *manifest_url_parse(const char *text, struct manifest_addr *ret_addr);
	/* "http://host:port", perhaps with one trailing slash. */
const char *manifest_endpoint_parse(const char *text, unsigned rank,
				    char ret_endpoint[MANIFEST_ENDPOINT_MAX + 1]);
	/* "tcp://host:port" or "ipc://path", moved to the rank's port. */
bool manifest_addr_is_numeric(const struct manifest_addr *);

void manifest_docs_load(struct manifest_loader *);
	/* Every document's own fields. */
void manifest_resolve(struct manifest_loader *);
	/* References: sets' pools, policies' pools, models' policies and rows. */
