/* manifest.c -- from files to one snapshot, from the snapshot to one checked manifest. */
#include "actors/common/decide/manifest_private.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

static const char snapshot_magic[8] = "PMSNAP1";
#define SNAPSHOT_HEAD 12u /* magic and count */

/* ---- making a snapshot ---- */

struct snapshot {
	struct manifest_bytes to;
	uint32_t files;
	struct yaml_errors *errs;
	bool bad;
};

static void
u32_put(uint8_t *p, uint32_t v)
{
	for (int i = 0; i < 4; i++)
		p[i] = (uint8_t)(v >> (8 * i));
}

uint32_t
manifest_u32(const uint8_t *p)
{
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

void
manifest_bytes_add(struct manifest_bytes *to, const void *bytes, size_t len)
{
	if (to->oom)
		return;
	if (to->cap - to->len < len) {
		size_t cap = to->cap ? to->cap : 4096;
		uint8_t *bigger;

		while (cap - to->len < len)
			cap *= 2;
		bigger = realloc(to->bytes, cap);
		if (!bigger) {
			to->oom = true;
			return;
		}
		to->bytes = bigger;
		to->cap = cap;
	}
	if (len > 0)
		memcpy(to->bytes + to->len, bytes, len);
	to->len += len;
}

void
manifest_bytes_u32(struct manifest_bytes *to, uint32_t v)
{
	uint8_t bytes[4];

	u32_put(bytes, v);
	manifest_bytes_add(to, bytes, sizeof(bytes));
}

static void
snapshot_add(struct snapshot *s, const char *file, const char *text, size_t len)
{
	size_t name_len = strlen(file);

	if (s->to.len == 0) {
		manifest_bytes_add(&s->to, snapshot_magic, sizeof(snapshot_magic));
		manifest_bytes_u32(&s->to, 0);
	}
	if (name_len > 4096 || s->to.len + 8 + name_len + len > MANIFEST_SNAPSHOT_MAX) {
		s->bad = true;
		yaml_errors_add(s->errs, file, 0, 0, "all files together are larger than %u MiB",
				MANIFEST_SNAPSHOT_MAX >> 20);
		return;
	}
	manifest_bytes_u32(&s->to, (uint32_t)name_len);
	manifest_bytes_u32(&s->to, (uint32_t)len);
	manifest_bytes_add(&s->to, file, name_len);
	manifest_bytes_add(&s->to, text, len);
	if (!s->to.oom)
		u32_put(s->to.bytes + sizeof(snapshot_magic), ++s->files);
}

static void
snapshot_failed(struct snapshot *s, const char *file, int err)
{
	s->bad = true;
	yaml_errors_add(s->errs, file, 0, 0, "cannot be read: %s", strerror(err));
}

/* Links are followed, so that a mounted ConfigMap is read as it is now; only a regular file is
 * read, so that a pipe cannot make us wait. */
static void
file_read(struct snapshot *s, const char *path)
{
	char *text = NULL;
	struct stat st;
	size_t len = 0;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

	if (fd < 0 || fstat(fd, &st) < 0) {
		snapshot_failed(s, path, errno);
		goto out;
	}
	if (!S_ISREG(st.st_mode)) {
		s->bad = true;
		yaml_errors_add(s->errs, path, 0, 0, "is no regular file");
		goto out;
	}
	text = malloc(YAML_TEXT_MAX_BYTES + 1);
	if (!text) {
		s->to.oom = true;
		goto out;
	}
	while (len <= YAML_TEXT_MAX_BYTES) { /* one byte too many is for the parser to refuse */
		ssize_t n = read(fd, text + len, YAML_TEXT_MAX_BYTES + 1 - len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			snapshot_failed(s, path, errno);
			goto out;
		}
		if (n == 0)
			break;
		len += (size_t)n;
	}
	snapshot_add(s, path, text, len);
out:
	free(text);
	if (fd >= 0)
		close(fd);
}

static int
is_manifest(const struct dirent *entry)
{
	const char *dot = strrchr(entry->d_name, '.');

	return entry->d_name[0] != '.' && dot &&
	       (strcmp(dot, ".yaml") == 0 || strcmp(dot, ".yml") == 0);
}

static int
by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name); /* bytes: the same in every locale */
}

static void
directory_read(struct snapshot *s, const char *path)
{
	struct dirent **entries = NULL;
	int n = scandir(path, &entries, is_manifest, by_name);

	if (n < 0) {
		snapshot_failed(s, path, errno);
		return;
	}
	if (n == 0) {
		s->bad = true;
		yaml_errors_add(s->errs, path, 0, 0, "holds no *.yaml or *.yml");
	}
	for (int i = 0; i < n; i++) {
		char *file = NULL;

		if (asprintf(&file, "%s%s%s", path, path[strlen(path) - 1] == '/' ? "" : "/",
			     entries[i]->d_name) < 0)
			s->to.oom = true;
		else
			file_read(s, file);
		free(file);
		free(entries[i]);
	}
	free(entries);
}

/* ---- reading a snapshot ---- */

static bool
doc_kind(const char *name, enum manifest_kind *ret_kind)
{
	for (int i = 0; i < (int)KINDS; i++)
		if (strcmp(name, manifest_kinds[i]) == 0) {
			*ret_kind = (enum manifest_kind)i;
			return true;
		}
	return false;
}

/* One document's envelope; what is right goes into the list. */
static void
doc_take(struct manifest_loader *l, const struct yaml_docs *from, const struct yaml_node *root)
{
	struct manifest_doc doc = {.file = from->file, .from = from}, *bigger;
	const char *file = from->file;

	if (!manifest_fields_load(l, file, "*", "", root, NULL) ||
	    !doc_kind(yaml_map_get(root, "kind")->text, &doc.kind)) {
		l->partial = true;
		return;
	}
	doc.name_node = yaml_map_get(yaml_map_get(root, "metadata"), "name");
	doc.name = doc.name_node->text;
	doc.spec = yaml_map_get(root, "spec");
	doc.labels = yaml_map_get(yaml_map_get(root, "metadata"), "labels");
	for (uint32_t i = 0; i < l->n_docs; i++) {
		const struct manifest_doc *other = &l->docs[i];

		if (other->kind != doc.kind)
			continue;
		doc.index++;
		if (strcmp(other->name, doc.name) == 0) {
			MANIFEST_COMPLAIN(l, file, doc.name_node,
					  "the %s \"%s\" is given twice: first at %s:%u:%u",
					  manifest_kinds[doc.kind], doc.name, other->file,
					  other->name_node->line, other->name_node->column);
			return;
		}
		if (doc.kind == KIND_GATEWAY) {
			MANIFEST_COMPLAIN(
				l, file, doc.name_node,
				"a second GatewayBackend is not supported yet: the first is "
				"at %s:%u:%u",
				other->file, other->name_node->line, other->name_node->column);
			return;
		}
	}
	bigger = realloc(l->docs, (l->n_docs + 1) * sizeof(*bigger));
	if (!bigger) {
		l->oom = true;
		return;
	}
	l->docs = bigger;
	l->docs[l->n_docs++] = doc;
}

/* What `kubectl get -o yaml` prints of several: {apiVersion: v1, kind: List, items: [...]}. */
static void
root_take(struct manifest_loader *l, const struct yaml_docs *from, const struct yaml_node *root)
{
	const struct yaml_node *kind = yaml_map_get(root, "kind");
	const struct yaml_node *items = manifest_list(root, "items");

	if (!kind || kind->kind != YAML_KIND_SCALAR || strcmp(kind->text, "List") != 0 || !items) {
		doc_take(l, from, root);
		return;
	}
	for (const struct yaml_node *item = items->child; item && !l->oom; item = item->next)
		doc_take(l, from, item);
}

static void
text_take(struct manifest_loader *l, const char *file, const void *text, size_t len)
{
	struct yaml_docs *docs = NULL, **bigger;
	int r = yaml_parse(file, text, len, &docs, l->errs);

	if (r < 0) {
		l->oom = l->oom || r == -ENOMEM;
		l->bad = l->partial = true;
		return;
	}
	bigger = realloc(l->files, (l->n_files + 1) * sizeof(struct yaml_docs *));
	if (!bigger) {
		yaml_docs_free(&docs);
		l->oom = true;
		return;
	}
	l->files = bigger;
	l->files[l->n_files++] = docs;
	if (docs->n == 0) {
		l->bad = true;
		yaml_errors_add(l->errs, file, 0, 0, "holds no document");
	}
	for (size_t i = 0; i < docs->n && !l->oom; i++)
		root_take(l, docs, docs->roots[i]);
}

bool
manifest_docs_read(struct manifest_loader *l, const void *bytes, size_t len)
{
	const uint8_t *p = bytes, *start = p, *end = p + len;
	uint32_t files;

	if (len < SNAPSHOT_HEAD || memcmp(p, snapshot_magic, sizeof(snapshot_magic)) != 0)
		return false;
	files = manifest_u32(p + sizeof(snapshot_magic));
	p += SNAPSHOT_HEAD;
	for (; files > 0 && !l->oom; files--) {
		uint32_t name_len, text_len;
		char *name;

		if (end - p < 8)
			return false;
		name_len = manifest_u32(p);
		text_len = manifest_u32(p + 4);
		p += 8;
		if (name_len > 4096 || name_len > (size_t)(end - p) ||
		    text_len > (size_t)(end - p) - name_len)
			return false;
		name = strndup((const char *)p, name_len);
		if (!name) {
			l->oom = true;
			break;
		}
		text_take(l, name, p + name_len, text_len);
		free(name);
		p += name_len + text_len;
	}
	l->m->base_len = (size_t)(p - start);
	return l->oom || p == end || manifest_found_read(l, p, end);
}

static bool
arrays_make(struct manifest_loader *l)
{
	struct manifest *m = l->m;
	uint32_t n[KINDS] = {0};

	for (uint32_t i = 0; i < l->n_docs; i++)
		n[l->docs[i].kind]++;
	m->n_sets = n[KIND_SET];
	m->n_pools = n[KIND_POOL];
	m->n_policies = n[KIND_POLICY];
	m->n_providers = n[KIND_PROVIDER];
	m->n_tenants = n[KIND_TENANT];
	m->n_tags = n[KIND_TAG];
	m->sets = calloc(m->n_sets + 1, sizeof(*m->sets));
	m->pools = calloc(m->n_pools + 1, sizeof(*m->pools));
	m->policies = calloc(m->n_policies + 1, sizeof(*m->policies));
	m->providers = calloc(m->n_providers + 1, sizeof(*m->providers));
	m->tenants = calloc(m->n_tenants + 1, sizeof(*m->tenants));
	m->tags = calloc(m->n_tags + 1, sizeof(*m->tags));
	return m->sets && m->pools && m->policies && m->providers && m->tenants && m->tags;
}

void
manifest_docs_free(struct manifest_loader *l)
{
	for (size_t i = 0; i < l->n_files; i++)
		yaml_docs_free(&l->files[i]);
	manifest_found_free(l);
	free(l->files);
	free(l->docs);
	free(l->places);
}

int
manifest_snapshot_load(uint8_t *bytes, size_t len, const struct manifest_amendment *amendment,
		       struct manifest **ret_manifest, struct yaml_errors *errs)
{
	struct manifest_loader l = {.errs = errs};
	int r = -ENOMEM;

	l.m = calloc(1, sizeof(*l.m));
	if (!l.m) {
		free(bytes);
		return -ENOMEM;
	}
	l.m->snapshot = bytes;
	l.m->snapshot_len = len;
	l.m->hash = XXH3_64bits(bytes, len);
	if (!manifest_docs_read(&l, bytes, len)) {
		l.bad = true;
		yaml_errors_add(errs, "snapshot", 0, 0, "is no configuration snapshot");
	}
	if (amendment && !l.oom)
		manifest_found_put(&l, amendment);
	if (!l.oom && !arrays_make(&l))
		l.oom = true;
	if (!l.oom)
		manifest_docs_load(&l);
	if (!l.oom)
		manifest_resolve(&l);
	if (!l.oom && !l.partial)
		manifest_expressions_compile(&l);
	if (!l.oom && !l.bad)
		manifest_lint(&l);
	if (!l.oom && !l.bad) {
		bool gateway = false;

		for (uint32_t i = 0; i < l.n_docs; i++)
			gateway = gateway || l.docs[i].kind == KIND_GATEWAY;
		if (!gateway) {
			l.bad = true;
			yaml_errors_add(errs, l.n_files ? l.files[0]->file : "configuration", 0, 0,
					"there is no GatewayBackend, here or in the other files");
		}
	}
	if (amendment && !l.oom && !l.bad)
		manifest_found_write(&l, amendment);
	manifest_docs_free(&l);
	if (!l.oom)
		r = l.bad ? -EINVAL : 0;
	if (r < 0)
		manifest_free(&l.m);
	else
		*ret_manifest = l.m;
	return r;
}

/* A snapshot that is complete, or the reason why not. */
static int
snapshot_finish(struct snapshot *s, struct manifest **ret_manifest)
{
	struct manifest *m = NULL;
	int r;

	if (s->to.oom || s->to.len == 0) {
		free(s->to.bytes);
		return s->to.oom ? -ENOMEM : -EINVAL;
	}
	r = manifest_snapshot_load(s->to.bytes, s->to.len, NULL, &m, s->errs);
	if (r == 0 && s->bad) { /* what could be read was right, but not all could be read */
		manifest_free(&m);
		return -EINVAL;
	}
	if (r == 0)
		*ret_manifest = m;
	return r;
}

int
manifest_load_paths(char *const *paths, size_t n_paths, struct manifest **ret_manifest,
		    struct yaml_errors *errs)
{
	struct snapshot s = {.errs = errs};

	for (size_t i = 0; i < n_paths; i++) {
		struct stat st;

		if (paths[i][0] == '\0' || stat(paths[i], &st) < 0)
			snapshot_failed(&s, paths[i], paths[i][0] ? errno : ENOENT);
		else if (S_ISDIR(st.st_mode))
			directory_read(&s, paths[i]);
		else
			file_read(&s, paths[i]);
	}
	if (n_paths == 0)
		yaml_errors_add(errs, "configuration", 0, 0, "no file was named");
	return snapshot_finish(&s, ret_manifest);
}

int
manifest_load_snapshot(const void *bytes, size_t len, struct manifest **ret_manifest,
		       struct yaml_errors *errs)
{
	uint8_t *copy;

	if (len > MANIFEST_SNAPSHOT_MAX) {
		yaml_errors_add(errs, "snapshot", 0, 0, "is no configuration snapshot");
		return -EINVAL;
	}
	copy = malloc(len ? len : 1);
	if (!copy)
		return -ENOMEM;
	memcpy(copy, bytes, len);
	return manifest_snapshot_load(copy, len, NULL, ret_manifest, errs);
}

int
manifest_load_text(const char *file, const char *text, size_t len, struct manifest **ret_manifest,
		   struct yaml_errors *errs)
{
	struct snapshot s = {.errs = errs};

	snapshot_add(&s, file, text, len);
	return snapshot_finish(&s, ret_manifest);
}

uint32_t
manifest_workers(const struct manifest *m)
{
	uint32_t n = 0;

	while (n < m->n_members && m->members[n].set != MANIFEST_NONE)
		n++;
	return n;
}

/* ", 2 tenants" where there are any. */
static size_t
say_more(char *buf, size_t cap, size_t used, uint32_t n, const char *what)
{
	if (n > 0 && used < cap)
		used += (size_t)snprintf(buf + used, cap - used, ", %u %s", n, what);
	return used;
}

void
manifest_say(const struct manifest *m, char *buf, size_t cap)
{
	uint32_t found = 0;
	size_t used;

	for (uint32_t i = 0; i < m->n_sets; i++)
		found += m->sets[i].discovery.source != MANIFEST_SOURCE_NONE;
	used = (size_t)snprintf(buf, cap,
				"%u models, %u policies, %u pools, %u worker sets, %u workers",
				m->n_models, m->n_policies, m->n_pools, m->n_sets,
				manifest_workers(m));
	if (found > 0 && used < cap)
		used += (size_t)snprintf(buf + used, cap - used, " and those that %u sets find",
					 found);
	used = say_more(buf, cap, used, m->n_providers, "providers");
	used = say_more(buf, cap, used, m->n_tags, "tags");
	say_more(buf, cap, used, m->n_tenants, "tenants");
}

uint64_t
manifest_hash(const struct manifest *m)
{
	return m->hash;
}

uint64_t
manifest_member_uid(const char *set, const char *member, const char *url, unsigned rank)
{
	char text[2 * (MANIFEST_NAME_MAX + 1) + MANIFEST_ENDPOINT_MAX + 1 + 16];
	int n = snprintf(text, sizeof(text), "%s\n%s\n%s\n%u", set, member, url, rank);
	size_t len = (size_t)n < sizeof(text) ? (size_t)n : sizeof(text) - 1;
	uint64_t uid = XXH3_64bits(text, len);

	return uid ? uid : 1;
}

const struct manifest_model *
manifest_find_model(const struct manifest *m, const char *name, size_t len)
{
	for (uint32_t i = 0; i < m->n_models; i++)
		if (strlen(m->models[i].name) == len && memcmp(m->models[i].name, name, len) == 0)
			return &m->models[i];
	return NULL;
}
