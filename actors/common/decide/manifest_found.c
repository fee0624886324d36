/* manifest_found.c -- members that are found while we run, as a part of the snapshot.
 *
 * Documents say where to look; what a source says is a text like a set's own list of members.
 * manifest_amend() loads the documents anew with those texts, by the code that loads a set's own
 * members, and puts what was taken, and only that, behind the files: whoever loads the snapshot
 * has the same rows, and its hash tells them apart from those of another moment.
 */
#include "actors/common/decide/manifest_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

static const char found_magic[8] = "PMFOUND";

static const struct yaml_node *
members_of(const struct yaml_docs *docs)
{
	return docs->n == 1 ? yaml_map_get(docs->roots[0], "members") : NULL;
}

/* ---- reading ---- */

static bool
text_add(struct manifest_loader *l, const char *set, size_t set_len, struct yaml_docs **docs,
	 struct manifest_found *asked)
{
	struct manifest_found_text *bigger =
		realloc(l->found, (l->n_found + 1) * sizeof(*bigger));
	char *name = strndup(set, set_len);

	if (bigger)
		l->found = bigger;
	if (!bigger || !name) {
		free(name);
		yaml_docs_free(docs);
		l->oom = true;
		return false;
	}
	l->found[l->n_found++] = (struct manifest_found_text){.set = name, .docs = *docs,
							    .asked = asked};
	*docs = NULL;
	return true;
}

static const uint8_t *
text_read(struct manifest_loader *l, const uint8_t *p, const uint8_t *end)
{
	struct yaml_docs *docs = NULL;
	uint32_t len[3];
	char *source;
	int r;

	if (end - p < 12)
		return NULL;
	for (unsigned i = 0; i < 3; i++)
		len[i] = manifest_u32(p + 4 * i);
	p += 12;
	if (len[0] > MANIFEST_NAME_MAX || len[1] > 4096 ||
	    (uint64_t)len[0] + len[1] + len[2] > (uint64_t)(end - p))
		return NULL;
	source = strndup((const char *)p + len[0], len[1]);
	r = source ? yaml_parse(source, p + len[0] + len[1], len[2], &docs, l->errs) : -ENOMEM;
	free(source);
	l->oom = l->oom || r == -ENOMEM;
	l->bad = l->bad || r == -EINVAL;
	if (r == 0 && !text_add(l, (const char *)p, len[0], &docs, NULL))
		return NULL;
	return p + len[0] + len[1] + len[2];
}

bool
manifest_found_read(struct manifest_loader *l, const uint8_t *p, const uint8_t *end)
{
	uint32_t texts;

	if (end - p < 16 || memcmp(p, found_magic, sizeof(found_magic)) != 0)
		return false;
	l->m->revision = manifest_u32(p + 8);
	texts = manifest_u32(p + 12);
	p += 16;
	for (; texts > 0 && p && !l->oom; texts--)
		p = text_read(l, p, end);
	return l->oom || p == end;
}

/* One member that was taken: its texts have neither quotes nor backslashes, the loader saw to it.
 * A number stays one; all else is quoted, for what is plain in a block may not be so in a line. */
static void
item_write(struct manifest_bytes *to, const struct yaml_node *item)
{
	const char *between = "- {";

	for (const struct yaml_node *pair = item->child; pair; pair = pair->next) {
		if (pair->kind != YAML_KIND_SCALAR || strncmp(pair->key, "x-", 2) == 0)
			continue;
		bool number = !pair->quoted && strspn(pair->text, "0123456789") == pair->len;
		const char *quote = number ? "" : "\"";
		const char *parts[] = {between, pair->key, ": ", quote, pair->text, quote};

		for (unsigned i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
			manifest_bytes_add(to, parts[i], strlen(parts[i]));
		between = ", ";
	}
	manifest_bytes_add(to, "}\n", 2);
}

void
manifest_found_load(struct manifest_loader *l, uint32_t set)
{
	bool bad = l->bad;
	struct yaml_errors none = {0}, *errs = l->errs;

	for (size_t i = 0; i < l->n_found; i++) {
		struct manifest_found_text *t = &l->found[i];
		const struct yaml_node *list;

		if (!t->docs || strcmp(t->set, l->m->sets[set].name) != 0 ||
		    l->m->sets[set].discovery.source == MANIFEST_SOURCE_NONE)
			continue;
		list = members_of(t->docs);
		l->errs = t->asked ? &t->asked->refused : &none;
		for (const struct yaml_node *item = list ? list->child : NULL; item && !l->oom;
		     item = item->next) {
			bool ok = manifest_member_load(l, t->docs->file, set, item, true);

			if (t->asked && ok) {
				t->asked->taken++;
				item_write(&t->taken, item);
			} else if (t->asked) {
				t->asked->not_taken++;
			}
		}
		l->errs = errs;
	}
	yaml_errors_free(&none);
	l->bad = bad; /* a member that is not taken spoils nothing else */
}

void
manifest_found_free(struct manifest_loader *l)
{
	for (size_t i = 0; i < l->n_found; i++) {
		free(l->found[i].set);
		yaml_docs_free(&l->found[i].docs);
		free(l->found[i].taken.bytes);
	}
	free(l->found);
	l->found = NULL;
	l->n_found = 0;
}

/* ---- amending ---- */

int
manifest_found_check(const char *source, const char *text, size_t len, struct yaml_errors *errs)
{
	struct yaml_docs *docs = NULL;
	const struct yaml_node *root, *list;
	int r = yaml_parse(source, text, len, &docs, errs);

	if (r < 0)
		return r;
	root = docs->n == 1 ? docs->roots[0] : NULL;
	list = yaml_map_get(root, "members");
	if (docs->n == 0)
		yaml_errors_add(errs, source, 0, 0, "holds nothing; where there are no members, "
						    "it must say \"members: []\"");
	else if (!root)
		yaml_errors_add(errs, source, docs->roots[1]->line, docs->roots[1]->column,
				"holds a second document");
	else if (!list || list->kind != YAML_KIND_LIST)
		yaml_errors_add(errs, source, list ? list->line : root->line,
				list ? list->column : root->column,
				"must be a map with a list \"members\"");
	for (const struct yaml_node *pair = list ? root->child : NULL; pair; pair = pair->next)
		if (pair != list && strncmp(pair->key, "x-", 2) != 0)
			yaml_errors_add(errs, source, pair->key_line, pair->key_column,
					"unknown key \"%.60s\" beside \"members\"", pair->key);
	yaml_docs_free(&docs);
	return yaml_errors_any(errs) ? -EINVAL : 0;
}

void
manifest_found_put(struct manifest_loader *l, const struct manifest_amendment *amendment)
{
	l->m->revision = amendment->revision;
	for (size_t i = 0; i < amendment->n && !l->oom; i++) {
		struct manifest_found *f = &amendment->found[i];
		struct yaml_docs *docs = NULL;
		int r = yaml_parse(f->source, f->text, f->len, &docs, &f->refused);

		f->taken = f->not_taken = 0;
		if (r == 0)
			text_add(l, f->set, strlen(f->set), &docs, f);
		l->oom = l->oom || r == -ENOMEM;
	}
}

void
manifest_found_write(struct manifest_loader *l, const struct manifest_amendment *amendment)
{
	struct manifest *m = l->m;
	struct manifest_bytes to = {0};

	manifest_bytes_add(&to, m->snapshot, m->base_len);
	manifest_bytes_add(&to, found_magic, sizeof(found_magic));
	manifest_bytes_u32(&to, amendment->revision);
	manifest_bytes_u32(&to, (uint32_t)l->n_found);
	for (size_t i = 0; i < l->n_found; i++) {
		struct manifest_found_text *t = &l->found[i];
		const char *source = t->asked->source, *head = "members: []\n";

		if (t->taken.len > 0)
			head = "members:\n";
		manifest_bytes_u32(&to, (uint32_t)strlen(t->set));
		manifest_bytes_u32(&to, (uint32_t)strlen(source));
		manifest_bytes_u32(&to, (uint32_t)(strlen(head) + t->taken.len));
		manifest_bytes_add(&to, t->set, strlen(t->set));
		manifest_bytes_add(&to, source, strlen(source));
		manifest_bytes_add(&to, head, strlen(head));
		manifest_bytes_add(&to, t->taken.bytes, t->taken.len);
		to.oom |= t->taken.oom;
	}
	if (to.oom) {
		l->oom = true;
		free(to.bytes);
		return;
	}
	if (to.len > MANIFEST_SNAPSHOT_MAX) {
		l->bad = true;
		yaml_errors_add(l->errs, "snapshot", 0, 0,
				"is too large with the members that were found");
	}
	free(m->snapshot);
	m->snapshot = to.bytes;
	m->snapshot_len = to.len;
	m->hash = XXH3_64bits(to.bytes, to.len);
}

int
manifest_amend(const struct manifest *base, struct manifest_found *found, size_t n,
	       uint32_t revision, struct manifest **ret_manifest)
{
	const struct manifest_amendment amendment = {found, n, revision};
	struct yaml_errors errs = {0};
	uint8_t *copy = malloc(base->base_len ? base->base_len : 1);
	int r;

	if (!copy)
		return -ENOMEM;
	memcpy(copy, base->snapshot, base->base_len);
	r = manifest_snapshot_load(copy, base->base_len, &amendment, ret_manifest, &errs);
	yaml_errors_free(&errs);
	return r;
}

/* ---- comparing ---- */

bool
manifest_same_members(const struct manifest *a, const struct manifest *b)
{
	if (a->n_members != b->n_members)
		return false;
	for (uint32_t i = 0; i < a->n_members; i++)
		if (a->members[i].uid != b->members[i].uid ||
		    strcmp(a->members[i].kv_events, b->members[i].kv_events) != 0 ||
		    strcmp(a->members[i].kv_replay, b->members[i].kv_replay) != 0)
			return false;
	return true;
}

bool
manifest_same_base(const struct manifest *a, const struct manifest *b)
{
	return a->base_len == b->base_len && memcmp(a->snapshot, b->snapshot, a->base_len) == 0;
}

bool
manifest_same_source(const struct manifest_discovery *a, const struct manifest_discovery *b)
{
	if (a->source != b->source)
		return false;
	if (a->source == MANIFEST_SOURCE_FILE)
		return strcmp(a->file, b->file) == 0;
	return strcmp(a->dns.name, b->dns.name) == 0 && a->dns.record == b->dns.record &&
	       a->dns.port == b->dns.port && a->dns.kv_events_port == b->dns.kv_events_port &&
	       a->dns.kv_replay_port == b->dns.kv_replay_port &&
	       a->dns.interval_ns == b->dns.interval_ns &&
	       a->dns.resolver.port == b->dns.resolver.port &&
	       strcmp(a->dns.resolver.host, b->dns.resolver.host) == 0 &&
	       a->dns.empty_means_none == b->dns.empty_means_none && a->https == b->https;
}

const char *
manifest_source_name(enum manifest_source source)
{
	static const char *const names[] = {"static", "file", "dns"};

	return names[source];
}
