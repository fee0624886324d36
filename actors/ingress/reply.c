/* actors/ingress/reply.c -- answers that the router gives by itself. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/ingress/client.h"

#define ERROR_MAX 2048u /* bytes of an error body */

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
	if (r->challenge)
		http1_write_header_str(&w, "www-authenticate", "Bearer");
	tenant_write(&w, &r->left);
	if (r->allow)
		http1_write_header_str(&w, "allow", r->allow);
	if (r->request_id) {
		snprintf(id, sizeof id, "%016llx", (unsigned long long)r->request_id);
		http1_write_header_str(&w, "x-pointsman-request-id", id);
	}
	if (r->client_id.p)
		http1_write_header(&w, SLICE_LIT("x-request-id"), r->client_id);
	else if (r->request_id)
		http1_write_header_str(&w, "x-request-id", id);
	if (r->attempts)
		http1_write_header_u64(&w, "x-pointsman-attempts", r->attempts);
	if (r->rule.len > 0)
		http1_write_header(&w, SLICE_LIT("x-pointsman-rule"), r->rule);
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
	struct openai_error error = {.api = c->api, .status = r->status, .code = r->code,
				     .param = r->param, .message = r->message};
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

void
client_reply_json(struct client *c, struct slice body, struct slice client_id)
{
	struct reply ok = {.status = 200, .client_id = client_id};
	bool keep = client_may_keep(c);

	if (c->dead)
		return;
	write_head(c, &ok, body.len, keep);
	if (!c->to_head)
		client_write(c, body.p, body.len);
	client_end(c, keep ? CLIENT_KEEP : CLIENT_CLOSE);
}
