/* actors/ingress/reply.c -- answers that the router gives by itself: errors and the list of models.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/ingress/client.h"

#define ERROR_MAX 2048u /* bytes of an error body */
#define MODEL_MAX 320u  /* bytes of one model in the list, besides its name */

static bool
write_head(struct client *c, const struct reply *r, size_t body_len, bool keep)
{
	char buf[1024], id[24];
	struct http1_writer w;
	ssize_t len;

	http1_write_begin(&w, buf, sizeof buf);
	http1_write_status(&w, r->status);
	http1_write_header_str(&w, "content-type", "application/json");
	http1_write_header_u64(&w, "content-length", body_len);
	if (r->retry_after_s)
		http1_write_header_u64(&w, "retry-after", r->retry_after_s);
	if (r->allow)
		http1_write_header_str(&w, "allow", r->allow);
	if (r->request_id) {
		snprintf(id, sizeof id, "%016llx", (unsigned long long)r->request_id);
		http1_write_header_str(&w, "x-pointsman-request-id", id);
	}
	if (r->attempts)
		http1_write_header_u64(&w, "x-pointsman-attempts", r->attempts);
	if (!keep)
		http1_write_header_str(&w, "connection", "close");
	else if (!c->minor)
		http1_write_header_str(&w, "connection", "keep-alive");
	len = http1_write_end(&w);
	return len > 0 && client_write(c, buf, (size_t)len);
}

void
client_reply_error(struct client *c, const struct reply *r, bool close)
{
	struct openai_error error = {
		.status = r->status, .code = r->code, .param = r->param, .message = r->message};
	char body[ERROR_MAX];
	ssize_t n = openai_write_error(body, sizeof body, &error);
	bool keep = !close && client_may_keep(c);

	if (c->dead)
		return;
	if (n < 0)
		n = 0;
	write_head(c, r, (size_t)n, keep);
	if (!c->to_head)
		client_write(c, body, (size_t)n);
	client_end(c, keep ? CLIENT_KEEP : CLIENT_CLOSE);
}

static size_t
write_model(char *to, size_t cap, const struct manifest_model *m, uint64_t created)
{
	char name[6 * MANIFEST_MODEL_MAX + 1];
	ssize_t n = json_escape(slice_str(m->name), name, sizeof name);

	return (size_t)snprintf(to, cap,
				"{\"id\":\"%.*s\",\"object\":\"model\",\"created\":%llu,"
				"\"owned_by\":\"pointsman\"}",
				n > 0 ? (int)n : 0, name, (unsigned long long)created);
}

void
client_reply_models(struct client *c, struct slice path)
{
	static const char prefix[] = "/v1/models/";
	const struct manifest *m = c->in->manifest;
	struct reply ok = {.status = 200};
	uint64_t created = c->in->born / 1000000000;
	bool keep = client_may_keep(c);
	size_t cap, len = 0;
	char *body;

	if (path.len >= sizeof prefix - 1 && memcmp(path.p, prefix, sizeof prefix - 1) == 0) {
		const struct manifest_model *one = manifest_find_model(
			m, path.p + sizeof prefix - 1, path.len - (sizeof prefix - 1));
		char text[6 * MANIFEST_MODEL_MAX + MODEL_MAX];

		if (!one) {
			struct reply none = {.status = 404,
					     .code = "model_not_found",
					     .param = "model",
					     .message = "There is no model of that name."};

			client_reply_error(c, &none, false);
			return;
		}
		len = write_model(text, sizeof text, one, created);
		write_head(c, &ok, len, keep);
		if (!c->to_head)
			client_write(c, text, len);
		client_end(c, keep ? CLIENT_KEEP : CLIENT_CLOSE);
		return;
	}
	cap = 64 + m->n_models * (6 * MANIFEST_MODEL_MAX + MODEL_MAX);
	body = malloc(cap);
	if (!body) {
		client_destroy(c);
		return;
	}
	len = (size_t)snprintf(body, cap, "{\"object\":\"list\",\"data\":[");
	for (uint32_t i = 0; i < m->n_models; i++) {
		if (i)
			body[len++] = ',';
		len += write_model(body + len, cap - len, &m->models[i], created);
	}
	len += (size_t)snprintf(body + len, cap - len, "]}");
	write_head(c, &ok, len, keep);
	if (!c->to_head)
		client_write(c, body, len);
	free(body);
	client_end(c, keep ? CLIENT_KEEP : CLIENT_CLOSE);
}
