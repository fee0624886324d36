/* Heads are written anew: what crosses and what does not, and bodies with edits. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/ingress/relay.h"

static void
parse(const char *text, struct http1_request *ret)
{
	const char *why = NULL;

	cr_assert_eq(http1_parse_request(text, strlen(text), NULL, ret, &why),
		     (ssize_t)strlen(text), "%s", why ? why : "short");
}

static const char *
to_worker(const char *text, uint16_t rank, char *buf, size_t cap)
{
	struct relay_to_worker to = {.authority = "10.0.0.1:8000",
				     .request_id = 0x30000000001,
				     .attempt = 2,
				     .rank = rank,
				     .body_len = 17};
	struct http1_request rq;
	ssize_t n;

	parse(text, &rq);
	n = relay_write_request(buf, cap - 1, &rq, &to);
	cr_assert_gt(n, 0);
	buf[n] = '\0';
	return buf;
}

Test(relay_head, credentials_and_hop_by_hop_fields_stay_behind)
{
	char buf[2048];
	const char *out = to_worker(
		"POST /v1/completions?x=1 HTTP/1.1\r\nHost: pub\r\nAuthorization: Bearer k\r\n"
		"Cookie: a=b\r\nX-Api-Key: k\r\nConnection: keep-alive, X-Hop\r\nX-Hop: 1\r\n"
		"Transfer-Encoding: chunked\r\nExpect: 100-continue\r\nAccept-Encoding: gzip\r\n"
		"X-Request-Id: mine\r\nX-Pointsman-Worker: w9\r\nX-Data-Parallel-Rank: 7\r\n"
		"Content-Type: application/json\r\ntraceparent: 00-1-2-01\r\n\r\n",
		65535, buf, sizeof buf);

	cr_assert_str_eq(out, "POST /v1/completions?x=1 HTTP/1.1\r\nhost: 10.0.0.1:8000\r\n"
			      "Content-Type: application/json\r\ntraceparent: 00-1-2-01\r\n"
			      "accept-encoding: identity\r\nx-request-id: 0000030000000001-2\r\n"
			      "content-length: 17\r\n\r\n");
}

static struct slice
no_text(void *arg, uint32_t issuer, bool secret)
{
	(void)arg;
	(void)issuer;
	(void)secret;
	return (struct slice){NULL, 0};
}

Test(relay_head, what_says_whose_request_it_is_stays_behind)
{
	struct manifest_tenant tenant = {.name = "a", .header_name = "x-tenant-id",
					 .header_value = "a"};
	struct manifest m = {.gateway.default_tenant = MANIFEST_NONE, .tenants = &tenant,
			     .n_tenants = 1};
	struct relay_to_worker to = {.authority = "w", .request_id = 1, .attempt = 1,
				     .rank = 65535};
	struct tenants *tenants;
	struct http1_request rq;
	char buf[1024], why[TENANTS_WHY_MAX];
	ssize_t n;

	cr_assert_eq(tenants_new(&tenants, &m, no_text, NULL, why), 0);
	to.tenants = tenants;
	parse("POST /v1/completions HTTP/1.1\r\nHost: a\r\nX-Tenant-ID: a\r\nX-Tenant: b\r\n\r\n",
	      &rq);
	n = relay_write_request(buf, sizeof buf - 1, &rq, &to);
	cr_assert_gt(n, 0);
	buf[n] = '\0';
	cr_assert_null(strcasestr(buf, "tenant-id"));
	cr_assert_not_null(strstr(buf, "\r\nX-Tenant: b\r\n"), "nobody's name for it");
	tenants_free(&tenants);
}

Test(relay_head, limits_of_a_tenant_are_told_as_openai_tells_them_and_the_workers_are_not)
{
	struct relay_to_client to = {
		.request_id = 1, .attempts = 1, .framing = RESPONSE_LENGTH, .keep_alive = true,
		.left.requests = {.limit = 60, .remaining = 59, .full_ns = 999000001},
		.left.tokens = {.limit = 1000, .remaining = 0, .full_ns = 360000000000},
	};
	struct http1_response head;
	const char text[] = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n"
			    "x-ratelimit-limit-requests: 7\r\n\r\n";
	char buf[1024];
	const char *why;
	ssize_t n;

	cr_assert_gt(http1_parse_response(text, sizeof text - 1, false, NULL, &head, &why), 0);
	n = relay_write_response(buf, sizeof buf - 1, &head, &to);
	cr_assert_gt(n, 0);
	buf[n] = '\0';
	cr_assert_not_null(strstr(buf, "x-ratelimit-limit-requests: 60\r\n"
				       "x-ratelimit-remaining-requests: 59\r\n"
				       "x-ratelimit-reset-requests: 1s\r\n"
				       "x-ratelimit-limit-tokens: 1000\r\n"
				       "x-ratelimit-remaining-tokens: 0\r\n"
				       "x-ratelimit-reset-tokens: 6m0s\r\n"), "%s", buf);
	cr_assert_null(strstr(buf, ": 7\r\n"));
	to.left = (struct tenant_left){0};
	n = relay_write_response(buf, sizeof buf - 1, &head, &to);
	buf[n] = '\0';
	cr_assert_not_null(strstr(buf, "x-ratelimit-limit-requests: 7\r\n"));
}

Test(relay_head, provider_is_named_to_its_socket_and_by_nobody_else)
{
	struct relay_to_worker to = {.authority = "localhost", .request_id = 1, .attempt = 1,
				     .rank = 65535, .provider = SLICE_LIT("cloud")};
	struct http1_request rq;
	char buf[1024];
	ssize_t n;

	parse("POST /v1/completions HTTP/1.1\r\nHost: a\r\nX-Pointsman-Provider: other\r\n"
	      "Authorization: Bearer k\r\n\r\n", &rq);
	n = relay_write_request(buf, sizeof buf - 1, &rq, &to);
	cr_assert_gt(n, 0);
	buf[n] = '\0';
	cr_assert_not_null(strstr(buf, "\r\nx-pointsman-provider: cloud\r\n"), "%s", buf);
	cr_assert_null(strstr(buf, "other"));
	cr_assert_null(strstr(buf, "Bearer"));
	to.provider = (struct slice){NULL, 0};
	n = relay_write_request(buf, sizeof buf - 1, &rq, &to);
	cr_assert_gt(n, 0);
	buf[n] = '\0';
	cr_assert_null(strstr(buf, "provider"), "a worker is no provider");
}

Test(relay_head, what_a_client_proves_itself_by_is_a_credential)
{
	cr_assert(relay_is_credential(SLICE_LIT("Authorization")));
	cr_assert(relay_is_credential(SLICE_LIT("cookie")));
	cr_assert(relay_is_credential(SLICE_LIT("X-Api-Key")));
	cr_assert(relay_is_credential(SLICE_LIT("Proxy-Authorization")));
	cr_assert_not(relay_is_credential(SLICE_LIT("X-Request-Id")));
}

Test(relay_head, rank_is_named_where_ranks_share_a_port)
{
	char buf[2048];

	cr_assert_not_null(strstr(
		to_worker("POST /v1/completions HTTP/1.1\r\nHost: a\r\n\r\n", 3, buf, sizeof buf),
		"\r\nx-data-parallel-rank: 3\r\n"));
}

Test(relay_head, absolute_targets_reach_the_worker_as_paths)
{
	char buf[2048];

	cr_assert_eq(
		strncmp(to_worker("POST http://pub/v1/completions HTTP/1.1\r\nHost: pub\r\n\r\n",
				  65535, buf, sizeof buf),
			"POST /v1/completions HTTP/1.1\r\n", 31),
		0);
}

Test(relay_head, answer_says_who_served_it_and_a_worker_cannot_forge_that)
{
	const char *text = "HTTP/1.1 200 OK\r\nContent-Type: "
			   "text/event-stream\r\nTransfer-Encoding: chunked\r\n"
			   "X-Pointsman-Worker: liar\r\nKeep-Alive: timeout=5\r\nConnection: "
			   "keep-alive\r\n\r\n";
	struct relay_to_client to = {.request_id = 1,
				     .attempts = 1,
				     .worker = slice_str("w1"),
				     .model = slice_str("m"),
				     .framing = RESPONSE_CHUNKED,
				     .keep_alive = true,
				     .minor = true};
	struct http1_response rs;
	const char *why;
	char buf[2048];
	ssize_t n;

	cr_assert_gt(http1_parse_response(text, strlen(text), false, NULL, &rs, &why), 0);
	n = relay_write_response(buf, sizeof buf - 1, &rs, &to);
	cr_assert_gt(n, 0);
	buf[n] = '\0';
	cr_assert_str_eq(buf,
			 "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
			 "x-pointsman-request-id: 0000000000000001\r\n"
			 "x-request-id: 0000000000000001\r\nx-pointsman-attempts: 1\r\n"
			 "x-pointsman-worker: w1\r\nx-pointsman-model: m\r\ntransfer-encoding: "
			 "chunked\r\n\r\n");
	to.minor = false;
	to.keep_alive = false;
	to.framing = RESPONSE_CLOSE;
	n = relay_write_response(buf, sizeof buf - 1, &rs, &to);
	buf[n] = '\0';
	cr_assert_null(strstr(buf, "chunked"), "never to an HTTP/1.0 client");
	cr_assert_not_null(strstr(buf, "\r\nconnection: close\r\n"));
}

Test(relay_head, answer_has_the_clients_request_id_and_never_the_attempts)
{
	const char *text = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n"
			   "X-Request-Id: 0000000000000001-1\r\n\r\n";
	struct relay_to_client to = {.request_id = 1,
				     .client_id = slice_str("mine, of today"),
				     .attempts = 1,
				     .keep_alive = true,
				     .minor = true};
	struct http1_response rs;
	const char *why;
	char buf[2048];
	ssize_t n;

	cr_assert_gt(http1_parse_response(text, strlen(text), false, NULL, &rs, &why), 0);
	n = relay_write_response(buf, sizeof buf - 1, &rs, &to);
	cr_assert_gt(n, 0);
	buf[n] = '\0';
	cr_assert_not_null(strstr(buf, "\r\nx-request-id: mine, of today\r\n"));
	cr_assert_null(strstr(buf, "-1\r\n"));
}

static const char *
pieces(const struct rec_candidate *c, const char *body, char *out)
{
	struct iovec iov[16];
	uint64_t len = 0;
	int n = relay_body_pieces(c, body, strlen(body), iov, 16, &len);

	if (n < 0)
		return NULL;
	out[0] = '\0';
	for (int i = 0; i < n; i++)
		strncat(out, iov[i].iov_base, iov[i].iov_len);
	cr_assert_eq(strlen(out), len);
	return out;
}

Test(relay_head, edits_change_their_spans_and_nothing_else)
{
	const char *body = "{\"model\":\"nick\",\"n\":1}";
	struct rec_candidate c = {.n_edits = 0};
	char out[128];

	cr_assert_str_eq(pieces(&c, body, out), body);
	c.n_edits = 2;
	c.edits[0] = (struct rec_edit){.off = 9, .len = 6, .text = slice_str("\"emulated\"")};
	c.edits[1] = (struct rec_edit){.off = 20, .len = 1, .text = slice_str("22")};
	cr_assert_str_eq(pieces(&c, body, out), "{\"model\":\"emulated\",\"n\":22}");
	c.edits[1].off = 10;
	cr_assert_null(pieces(&c, body, out), "overlapping");
	c.edits[1].off = 20;
	c.edits[1].len = 500;
	cr_assert_null(pieces(&c, body, out), "past the end");
}

Test(relay_head, decision_outlives_the_frame_it_came_in)
{
	char *frame = strdup("hashesALIASmodelTEXT");
	struct msg_answer a = {.n_roots = 1, .n_candidates = 1};
	struct decision *d;

	a.roots[0].hashes = (struct slice){frame, 6};
	a.alias = (struct slice){frame + 6, 5};
	a.model = (struct slice){frame + 11, 5};
	a.candidates[0].n_edits = 1;
	a.candidates[0].edits[0].text = (struct slice){frame + 16, 4};
	d = decision_copy(&a);
	memset(frame, 'x', strlen(frame));
	free(frame);
	cr_assert(slice_eq_str(d->answer.roots[0].hashes, "hashes"));
	cr_assert(slice_eq_str(d->answer.alias, "ALIAS"));
	cr_assert(slice_eq_str(d->answer.model, "model"));
	cr_assert(slice_eq_str(d->answer.candidates[0].edits[0].text, "TEXT"));
	free(d);
}
