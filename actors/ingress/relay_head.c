/* actors/ingress/relay_head.c -- see relay.h. */
#include "actors/ingress/relay.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/common/secrets.h"

static bool
name_begins(struct slice name, const char *lower)
{
	size_t n = strlen(lower);

	return name.len >= n && http1_name_eq((struct slice){name.p, n}, lower);
}

static bool
is_one_of(struct slice name, const char *const *names, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (http1_name_eq(name, names[i]))
			return true;
	return false;
}

bool
relay_is_credential(struct slice name)
{
	static const char *const names[] = {
		"authorization",
		"proxy-authorization",
		"cookie",
		"x-api-key",
		"api-key",
		"x-goog-api-key",
		"ocp-apim-subscription-key",
		"x-auth-token",
		"x-access-token",
		"x-amz-security-token",
	};

	return is_one_of(name, names, sizeof names / sizeof *names);
}

/* What a client sends and no worker should see: credentials, and words that are ours to say. */
static bool
kept_from_worker(struct slice name)
{
	static const char *const names[] = {
		"host",
		"content-length",
		"expect",
		"accept-encoding",
		"x-request-id",
		"x-data-parallel-rank",
		"forwarded",
		"x-forwarded-for",
		"x-forwarded-host",
		"x-forwarded-port",
		"x-forwarded-proto",
		"x-real-ip",
	};

	return relay_is_credential(name) ||
	       is_one_of(name, names, sizeof names / sizeof *names) ||
	       name_begins(name, "x-pointsman-");
}

ssize_t
relay_write_request(char *buf, size_t cap, const struct http1_request *from,
		    const struct relay_to_worker *to)
{
	struct slice target = from->path;
	struct http1_writer w;
	char id[32];

	http1_write_begin(&w, buf, cap);
	if (from->query.p) /* stands behind the path and its '?' */
		target.len = (size_t)(from->query.p - target.p) + from->query.len;
	http1_write_request(&w, from->method_name, target);
	http1_write_header_str(&w, "host", to->authority);
	for (unsigned i = 0; i < from->head.n_headers; i++) {
		const struct http1_header *h = &from->head.headers[i];

		if (!http1_is_hop_by_hop(&from->head, h->name) && !kept_from_worker(h->name) &&
		    !tenants_is_identity(to->tenants, h->name))
			http1_write_header(&w, h->name, h->value);
	}
	http1_write_header_str(&w, "accept-encoding",
			       "identity"); /* usage is read on the way back */
	snprintf(id, sizeof id, "%016llx-%u", (unsigned long long)to->request_id, to->attempt);
	http1_write_header_str(&w, "x-request-id", id);
	if (to->api_key.len > 0) {
		char bearer[8 + SECRETS_API_KEY];
		int n = snprintf(bearer, sizeof bearer, "Bearer %.*s", (int)to->api_key.len,
				 to->api_key.p);

		http1_write_header(&w, SLICE_LIT("authorization"),
				   (struct slice){bearer, (size_t)n});
		explicit_bzero(bearer, sizeof bearer);
	}
	if (to->provider.len > 0)
		http1_write_header(&w, SLICE_LIT("x-pointsman-provider"), to->provider);
	if (to->rank != 65535)
		http1_write_header_u64(&w, "x-data-parallel-rank", to->rank);
	http1_write_header_u64(&w, "content-length", to->body_len);
	return http1_write_end(&w);
}

ssize_t
relay_write_response(char *buf, size_t cap, const struct http1_response *from,
		     const struct relay_to_client *to)
{
	bool limited = to->left.requests.limit || to->left.tokens.limit;
	struct http1_writer w;
	char id[24];

	http1_write_begin(&w, buf, cap);
	http1_write_status(&w, from->status);
	for (unsigned i = 0; i < from->head.n_headers; i++) {
		const struct http1_header *h = &from->head.headers[i];

		if (!http1_is_hop_by_hop(&from->head, h->name) &&
		    !http1_name_eq(h->name, "content-length") &&
		    !http1_name_eq(h->name, "x-request-id") &&
		    !(limited && name_begins(h->name, "x-ratelimit-")) &&
		    !name_begins(h->name, "x-pointsman-"))
			http1_write_header(&w, h->name, h->value);
	}
	snprintf(id, sizeof id, "%016llx", (unsigned long long)to->request_id);
	http1_write_header_str(&w, "x-pointsman-request-id", id);
	if (to->client_id.p)
		http1_write_header(&w, SLICE_LIT("x-request-id"), to->client_id);
	else
		http1_write_header_str(&w, "x-request-id", id);
	http1_write_header_u64(&w, "x-pointsman-attempts", to->attempts);
	if (to->worker.len)
		http1_write_header(&w, SLICE_LIT("x-pointsman-worker"), to->worker);
	if (to->model.len)
		http1_write_header(&w, SLICE_LIT("x-pointsman-model"), to->model);
	if (to->alias.len)
		http1_write_header(&w, SLICE_LIT("x-pointsman-alias"), to->alias);
	tenant_write(&w, &to->left);
	if (to->framing == RESPONSE_LENGTH)
		http1_write_header_u64(&w, "content-length", to->content_length);
	else if (to->framing == RESPONSE_CHUNKED)
		http1_write_header_str(&w, "transfer-encoding", "chunked");
	if (!to->keep_alive)
		http1_write_header_str(&w, "connection", "close");
	else if (!to->minor)
		http1_write_header_str(&w, "connection", "keep-alive");
	return http1_write_end(&w);
}

static void
keep(struct slice *s, char **at)
{
	if (!s->p)
		return;
	if (s->len)
		memcpy(*at, s->p, s->len);
	s->p = *at;
	*at += s->len;
}

struct decision *
decision_copy(const struct msg_answer *answer)
{
	size_t n = answer->alias.len + answer->model.len;
	struct decision *d;
	char *at;

	for (uint32_t i = 0; i < answer->n_roots; i++)
		n += answer->roots[i].hashes.len;
	for (uint32_t i = 0; i < answer->n_candidates; i++)
		for (uint32_t e = 0; e < answer->candidates[i].n_edits; e++)
			n += answer->candidates[i].edits[e].text.len;
	d = malloc(sizeof *d + n);
	if (!d)
		return NULL;
	d->answer = *answer;
	d->answer.code = d->answer.text = d->answer.rule = (struct slice){NULL, 0};
	at = d->bytes;
	keep(&d->answer.alias, &at);
	keep(&d->answer.model, &at);
	for (uint32_t i = 0; i < answer->n_roots; i++)
		keep(&d->answer.roots[i].hashes, &at);
	for (uint32_t i = 0; i < answer->n_candidates; i++)
		for (uint32_t e = 0; e < answer->candidates[i].n_edits; e++)
			keep(&d->answer.candidates[i].edits[e].text, &at);
	return d;
}

static unsigned
piece(struct iovec *iov, unsigned n, const char *p, size_t len)
{
	if (len == 0)
		return n;
	iov[n].iov_base = (void *)(uintptr_t)p; /* only read */
	iov[n].iov_len = len;
	return n + 1;
}

int
relay_body_pieces(const struct rec_candidate *c, const char *body, size_t body_len,
		  struct iovec *iov, unsigned max, uint64_t *ret_len)
{
	size_t at = 0;
	uint64_t total = 0;
	unsigned n = 0;

	if (max < 2 * c->n_edits + 1)
		return -EBADMSG;
	for (uint32_t e = 0; e < c->n_edits; e++) {
		const struct rec_edit *edit = &c->edits[e];

		if (edit->off < at || edit->off > body_len || edit->len > body_len - edit->off)
			return -EBADMSG;
		n = piece(iov, n, body + at, edit->off - at);
		n = piece(iov, n, edit->text.p, edit->text.len);
		at = (size_t)edit->off + edit->len;
	}
	n = piece(iov, n, body + at, body_len - at);
	for (unsigned i = 0; i < n; i++)
		total += iov[i].iov_len;
	*ret_len = total;
	return (int)n;
}
