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
	KIND_PROVIDER,
	KIND_POLICY,
	KIND_TENANT,
	KIND_TAG,
	KINDS,
};	/* in manifest_kinds' order */

/* One document: where it stands and where its values go. */
struct manifest_doc {
	const char *file; /* borrowed from the tree */
	const struct yaml_docs *from; /* the tree */
	enum manifest_kind kind;
	uint32_t index; /* in its kind's array */
	const char *name;
	const struct yaml_node *name_node;
	const struct yaml_node *spec;
	const struct yaml_node *labels; /* of metadata; NULL: none */
};

struct manifest_bytes { /* grows */
	uint8_t *bytes;
	size_t len, cap;
	bool oom;
};

/* A text of found members, on its way to its set. */
struct manifest_found_text {
	char *set;		      /* owned */
	struct yaml_docs *docs;	      /* owned */
	struct manifest_found *asked; /* borrowed: who wants to know; NULL: read from a snapshot */
	struct manifest_bytes taken;  /* the members taken, written anew, for who wants to know */
};

/* What manifest_amend() puts in the place of what a snapshot says was found. */
struct manifest_amendment {
	struct manifest_found *found;
	size_t n;
	uint32_t revision;
};

struct manifest_place {
	const char *file;
	const struct yaml_node *node; /* the member's map */
	uint64_t name, url; /* hashes: a thousand members are compared with each other */
	uint64_t endpoint, replay; /* likewise */
};

struct manifest_loader {
	struct manifest *m;
	struct yaml_errors *errs;
	struct yaml_docs **files;
	size_t n_files;
	struct manifest_doc *docs;
	uint32_t n_docs;
	struct manifest_place *places; /* where each row was written, for complaints */
	uint32_t cap_rows;
	struct manifest_found_text *found;
	size_t n_found;
	bool partial; /* a document could not be taken: references to it cannot be judged */
	bool bad;
	bool oom;
};

#define MANIFEST_WARN(l, file, node, ...)                                                          \
	yaml_errors_add(&(l)->m->warnings, file, (node)->line, (node)->column, __VA_ARGS__)
#define MANIFEST_COMPLAIN(l, file, node, ...)                                                      \
	do {                                                                                       \
		(l)->bad = true;                                                                   \
		yaml_errors_add((l)->errs, file, (node)->line, (node)->column, __VA_ARGS__);       \
	} while (0)

bool manifest_docs_read(struct manifest_loader *, const void *bytes, size_t len);
	/* A snapshot's documents, as trees, into the list.  False: it is none; oom, bad and partial
	 * are as they say. */
void manifest_docs_free(struct manifest_loader *);
	/* All but m and errs. */
void manifest_defaults(const char *kind, const char *list, void *base);
	/* Write the defaults of the kind's fields into base: those that are not in any list (""),
	 * or those of an item of that list ("spec.rules[]"). */
bool manifest_fields_load(struct manifest_loader *, const char *file, const char *kind,
			  const char *parent, const struct yaml_node *map, void *base);
	/* Read one map, and the maps in it, by the table: unknown keys, missing ones, types and
	 * bounds; stores what the table stores (base may be NULL where it stores nothing).  False:
	 * complained. */
bool manifest_value_read(const struct manifest_field *, const struct yaml_node *, void *base,
			 char *why, size_t cap);
	/* Read one scalar as the field says and store it where it says.  False: why is a sentence's
	 * end, such as "must be true or false". */

bool manifest_is_word(const char *text);
	/* Letters and digits only. */
const char *manifest_addr_parse(const char *text, struct manifest_addr *ret_addr);
	/* "host:port" or "[v6]:port".  NULL or what is wrong. */
const char *manifest_endpoint_parse(const char *text, unsigned rank, bool may_bind,
				    char ret_endpoint[MANIFEST_ENDPOINT_MAX + 1]);
	/* "tcp://host:port" or "ipc://path", moved to the rank's port; may_bind: or
	 * "bind:tcp://address:port", "*" for all addresses. */
const char *manifest_socket_parse(const char *path, char ret_path[MANIFEST_SOCKET_MAX + 1]);
	/* An absolute path that fits a unix socket's name. */
const char *manifest_network_parse(const char *text, struct manifest_network *ret);
	/* "10.0.0.0/8", "2001:db8::/32", or one address. */
bool manifest_addr_is_numeric(const struct manifest_addr *);

bool manifest_member_load(struct manifest_loader *, const char *file, uint32_t set,
			  const struct yaml_node *item, bool found);
	/* All ranks of one member, or none and a complaint. */
const char *manifest_endpoint_host(const char *endpoint, char ret_host[MANIFEST_HOST_MAX + 1]);
	/* Of "tcp://host:port"; NULL, or why it has none. */

/* manifest_tokenizer.c */
void manifest_tokenizer_load(struct manifest_loader *, const struct manifest_doc *);
	/* Of a set: what the table does not store of spec.tokenizer. */

/* manifest_adapters.c */
void manifest_adapters_load(struct manifest_loader *, const struct manifest_doc *);
	/* Of a set. */
void manifest_adapters_resolve(struct manifest_loader *, const struct yaml_node *list);
	/* Behind the models of the gateway's list, all of which are there, those that are named by
	 * sets only. */

/* manifest_load.c */
bool manifest_words_ok(struct manifest_loader *, const char *file, const char *path,
		       const struct yaml_node *list);
	/* Texts in a list of scalars: each one word, none twice.  False: complained. */
bool manifest_items_ok(struct manifest_loader *, const struct manifest_doc *, const char *parent,
		       const struct yaml_node *list);
	/* Every map in a list, by the table, stored nowhere.  False where any is bad. */
const struct yaml_node *manifest_list(const struct yaml_node *map, const char *key);
	/* The list of that key, or NULL. */
char *manifest_strdup(struct manifest_loader *, const char *text);
	/* NULL: no memory, noted. */
bool manifest_row_add(struct manifest_loader *, const char *file,
		      const struct manifest_member *row, const struct yaml_node *item);
	/* Behind all rows.  False: there are too many, or no memory. */

/* One kind each: a document's own fields. */
void manifest_gateway_load(struct manifest_loader *, const struct manifest_doc *);
void manifest_issuers_load(struct manifest_loader *, const struct manifest_doc *gateway);
void manifest_provider_load(struct manifest_loader *, const struct manifest_doc *);
void manifest_policy_load(struct manifest_loader *, const struct manifest_doc *);
void manifest_tenant_load(struct manifest_loader *, const struct manifest_doc *);
void manifest_tag_load(struct manifest_loader *, const struct manifest_doc *);

/* And what it names. */
void manifest_provider_rows(struct manifest_loader *, const struct manifest_doc *);
	/* A row for each of its models, behind those of all sets. */
void manifest_tenant_resolve(struct manifest_loader *, const struct manifest_doc *);
void manifest_tag_resolve(struct manifest_loader *, const struct manifest_doc *);

void manifest_labels_load(struct manifest_loader *, const struct manifest_doc *,
			  struct facts_label **labelsp, uint32_t *ret_n);
	/* metadata.labels. */
void manifest_labels_free(struct facts_label *, uint32_t n);

/* manifest_expressions.c */
void manifest_expressions_compile(struct manifest_loader *);
	/* All of all policies and tags, once their names are known. */

/* manifest_lint.c */
void manifest_lint(struct manifest_loader *);
	/* Of documents without a mistake: what nobody can have meant, as warnings. */

/* manifest_resolve.c */
#define MANIFEST_SUGGEST_MAX 256 /* names looked through for a suggestion */
bool manifest_index_add(struct manifest_loader *, uint32_t **arrayp, uint32_t *n, uint32_t value);
	/* Grow an array of indexes by one.  False: no memory, noted. */
const struct manifest_doc *manifest_doc_named(struct manifest_loader *, const char *file,
					      enum manifest_kind, const struct yaml_node *);
	/* The document that node names, or NULL and a complaint. */
void manifest_complain_name(struct manifest_loader *, const char *file, const struct yaml_node *,
			    const char *what, const char *const *names, size_t n_names);
	/* There is no `what` of that name; with the nearest of names. */

/* manifest_models.c */
bool manifest_entry_wants(const struct yaml_node *item, const char *name);
	/* May a request for this model of the gateway's go to workers that call theirs so? */
void manifest_models_resolve(struct manifest_loader *, const struct manifest_doc *gateway);
void manifest_match_resolve(struct manifest_loader *, const struct manifest_doc *policy,
			    const struct manifest_doc *gateway);

/* manifest_found.c */
bool manifest_found_read(struct manifest_loader *, const uint8_t *p, const uint8_t *end);
	/* The part of a snapshot behind its files.  False: it is damaged. */
void manifest_found_put(struct manifest_loader *, const struct manifest_amendment *);
	/* Or these. */
void manifest_found_load(struct manifest_loader *, uint32_t set);
	/* What was found for that set, behind its own members. */
void manifest_found_write(struct manifest_loader *, const struct manifest_amendment *);
	/* What was taken of it: the new end of the manifest's snapshot. */
void manifest_found_free(struct manifest_loader *);

/* manifest.c */
void manifest_bytes_add(struct manifest_bytes *, const void *bytes, size_t len);
void manifest_bytes_u32(struct manifest_bytes *, uint32_t v);
uint32_t manifest_u32(const uint8_t *p);
int manifest_snapshot_load(uint8_t *bytes, size_t len, const struct manifest_amendment *,
			   struct manifest **ret_manifest, struct yaml_errors *errs);
	/* Takes bytes over, on failure too.  The amendment may be NULL. */
void manifest_docs_load(struct manifest_loader *);
	/* Every document's own fields. */
void manifest_resolve(struct manifest_loader *);
	/* References: sets' pools, policies' pools, models' policies and rows. */
