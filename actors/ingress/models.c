/* actors/ingress/models.c -- see models.h. */
#include "actors/ingress/models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/common/decide/member.h"
#include "actors/ingress/client.h"
#include "actors/ingress/path_name.h"

#define MODEL_MAX 320u           /* bytes of one model in the list, besides its names */
#define KEPT_NS 1000000000ull

void
models_forget(struct models *m)
{
	free(m->body);
	free(m->one);
	*m = (struct models){.of = NULL};
}

/* The least that its workers say; 0: none does. */
static uint32_t
least_length(const struct ingress *in, const struct manifest_model *m)
{
	uint32_t least = 0;

	for (uint32_t i = 0; i < m->n_members; i++) {
		uint16_t row = rows_find(&in->rows, in->manifest->members[m->members[i]].uid);
		struct row_reading r;

		if (row == ROW_NONE || !row_reading_read(&in->rows.row[row], &r) ||
		    !(r.known & KNOWN_MAX_MODEL_LEN))
			continue;
		if (least == 0 || r.max_model_len < least)
			least = r.max_model_len;
	}
	return least;
}

/* What all its workers call it; NULL: not one name. */
static const char *
root_of(const struct manifest *all, const struct manifest_model *m)
{
	const char *root = NULL;

	for (uint32_t i = 0; i < m->n_members; i++) {
		const char *is = manifest_upstream(all, m, m->members[i]);

		if (root && strcmp(root, is) != 0)
			return NULL;
		root = is;
	}
	return root;
}

/* An adapter's model, where its workers have one name for it. */
static const char *
parent_of(const struct manifest *all, const struct manifest_model *m)
{
	const char *parent = NULL;

	for (uint32_t i = 0; m->adapter[0] && i < m->n_members; i++) {
		const struct manifest_set *set =
			member_set(all, &all->members[m->members[i]]);
		const char *is = set ? set->model : parent;

		if (parent && strcmp(parent, is) != 0)
			return NULL;
		parent = is;
	}
	return parent;
}

/* A member of the object whose value is a name; where there is one. */
static size_t
write_name(const char *key, const char *value, char *to, size_t cap)
{
	char name[6 * MANIFEST_MODEL_MAX + 1];
	ssize_t n = value ? json_escape(slice_str(value), name, sizeof name) : 0;

	return n > 0 ? (size_t)snprintf(to, cap, ",\"%s\":\"%.*s\"", key, (int)n, name) : 0;
}

static size_t
write_one(const struct ingress *in, const struct manifest_model *m, char *to, size_t cap)
{
	char name[6 * MANIFEST_MODEL_MAX + 1];
	uint32_t length = least_length(in, m);
	ssize_t n = json_escape(slice_str(m->name), name, sizeof name);
	size_t len;

	len = (size_t)snprintf(to, cap,
			       "{\"id\":\"%.*s\",\"object\":\"model\",\"created\":%llu,"
			       "\"owned_by\":\"pointsman\"",
			       n > 0 ? (int)n : 0, name,
			       (unsigned long long)(in->born / 1000000000));
	len += write_name("root", root_of(in->manifest, m), to + len, cap - len);
	len += write_name("parent", parent_of(in->manifest, m), to + len, cap - len);
	if (length > 0)
		len += (size_t)snprintf(to + len, cap - len, ",\"max_model_len\":%u", length);
	to[len++] = '}';
	return len;
}

static bool
make(struct ingress *in)
{
	const struct manifest *all = in->manifest;
	size_t cap = 64 + all->n_models * (18 * MANIFEST_MODEL_MAX + MODEL_MAX), len;
	struct models *m = &in->models;

	if (m->of == all && ingress_now(in) - m->made_ns < KEPT_NS)
		return true;
	models_forget(m);
	m->body = malloc(cap);
	m->one = calloc(all->n_models, sizeof *m->one);
	if (!m->body || !m->one) {
		models_forget(m);
		return false;
	}
	len = (size_t)snprintf(m->body, cap, "{\"object\":\"list\",\"data\":[");
	for (uint32_t i = 0; i < all->n_models; i++) {
		if (i)
			m->body[len++] = ',';
		m->one[i].off = len;
		m->one[i].len = write_one(in, &all->models[i], m->body + len, cap - len);
		len += m->one[i].len;
	}
	m->len = len + (size_t)snprintf(m->body + len, cap - len, "]}");
	char *fits = realloc(m->body, m->len);

	m->body = fits ? fits : m->body;
	m->of = all;
	m->made_ns = ingress_now(in);
	return true;
}

/* The whole list, or what of it is open to that tenant. */
static void
reply_list(struct client *c, uint32_t tenant, struct slice client_id)
{
	const struct manifest *all = c->in->manifest;
	const struct models *m = &c->in->models;
	uint32_t closed = 0;
	size_t len;
	char *some;

	for (uint32_t i = 0; i < all->n_models; i++)
		closed += !manifest_model_open(&all->models[i], tenant);
	if (closed == 0) {
		client_reply_json(c, (struct slice){m->body, m->len}, client_id);
		return;
	}
	some = malloc(m->len);
	if (!some) {
		client_destroy(c);
		return;
	}
	len = all->n_models > 0 ? m->one[0].off : 0;    /* what the list begins with */
	memcpy(some, m->body, len);
	for (uint32_t i = 0, n = 0; i < all->n_models; i++) {
		if (!manifest_model_open(&all->models[i], tenant))
			continue;
		if (n++)
			some[len++] = ',';
		memcpy(some + len, m->body + m->one[i].off, m->one[i].len);
		len += m->one[i].len;
	}
	memcpy(some + len, "]}", 2);
	client_reply_json(c, (struct slice){some, len + 2}, client_id);
	free(some);
}

void
models_reply(struct client *c, struct slice path, uint32_t tenant, struct slice client_id)
{
	static const char prefix[] = "/v1/models/";
	struct reply none = {.status = 404,
			     .code = "model_not_found",
			     .param = "model",
			     .message = "There is no model of that name.",
			     .client_id = client_id};
	const struct manifest_model *one;
	struct ingress *in = c->in;
	char name[MANIFEST_MODEL_MAX + 1];
	size_t len;

	if (!make(in)) {
		client_destroy(c);
		return;
	}
	if (path.len < sizeof prefix - 1) {
		reply_list(c, tenant, client_id);
		return;
	}
	path = (struct slice){path.p + sizeof prefix - 1, path.len - (sizeof prefix - 1)};
	one = path_name(path, name, sizeof name, &len)
		      ? manifest_find_model(in->manifest, name, len) : NULL;
	if (!one || !manifest_model_open(one, tenant)) {
		ingress_count(in, COUNTER_requests_refused, 1);
		client_reply_error(c, &none, false);
		return;
	}
	const struct models_span *at = &in->models.one[one - in->manifest->models];

	client_reply_json(c, (struct slice){in->models.body + at->off, at->len}, client_id);
}
