/* actors/common/fetch.c -- see fetch.h. */
#include "actors/common/fetch.h"

#include <curl/curl.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>

#define ANSWER_FIRST_BYTES 16384u
#define READ_BYTES 65536L
#define KEPT_MOST 4096 /* idle connections, each FETCH_IDLE_S at most */

struct fetcher {
	zactor_t *actor;
	long host_connections;
	struct fetch *under_way;        /* ours; the zactor knows the same by pointer */
};

void
fetch_clear(struct fetch *fetch)
{
	if (fetch->easy)
		curl_easy_cleanup(fetch->easy);
	curl_slist_free_all(fetch->headers);
	curl_slist_free_all(fetch->connect_to);
	free(fetch->answer);
	free(fetch->ca);
	free(fetch->host_header);
	free(fetch->detour);
	if (fetch->bearer)
		explicit_bzero(fetch->bearer, strlen(fetch->bearer));
	free(fetch->bearer);
	free(fetch->socket);
	free(fetch->provider);
	fetch->easy = fetch->headers = fetch->connect_to = NULL;
	fetch->answer = fetch->ca = fetch->host_header = fetch->detour = NULL;
	fetch->bearer = fetch->socket = fetch->provider = NULL;
	fetch->len = fetch->cap = 0;
}

struct fetch_peer
fetch_peer(const struct manifest *manifest, const struct manifest_member *member,
	   const struct secrets *trust)
{
	const struct manifest_set *set = &manifest->sets[member->set];

	return (struct fetch_peer){
		.host = member->url.host, .port = member->url.port, .https = member->https,
		.server_name = set->tls_server_name,
		.ca = trust ? secrets_get(trust, SECRET_CA, member->set) : (struct slice){NULL, 0},
		.api_key = trust ? secrets_get(trust, SECRET_API_KEY, member->set)
				 : (struct slice){NULL, 0},
	};
}

static int
to_socket(struct fetch *f, const struct fetch_peer *peer, const char *path)
{
	snprintf(f->url, sizeof f->url, "http://localhost%s", path);
	f->socket = strdup(peer->socket);
	if (!f->socket || (peer->provider && asprintf(&f->provider, "x-pointsman-provider: %s",
						      peer->provider) < 0))
		return -ENOMEM;
	return 0;
}

int
fetch_to(struct fetch *f, const struct fetch_peer *peer, const char *path)
{
	if (peer->socket)
		return to_socket(f, peer, path);
	bool v6 = strchr(peer->host, ':') != NULL;
	bool renamed = peer->https && peer->server_name && peer->server_name[0];

	snprintf(f->url, sizeof f->url, v6 && !renamed ? "%s://[%s]:%u%s" : "%s://%s:%u%s",
		 peer->https ? "https" : "http", renamed ? peer->server_name : peer->host,
		 peer->port, path);
	/* The certificate's name is the URL's host; the connection goes to the member, which is
	 * addressed as it is known. */
	if (renamed && (asprintf(&f->detour, v6 ? "::[%s]:%u" : "::%s:%u", peer->host,
				 peer->port) < 0 ||
			asprintf(&f->host_header, v6 ? "Host: [%s]:%u" : "Host: %s:%u", peer->host,
				 peer->port) < 0))
		return -ENOMEM;
	if (peer->api_key.len > 0 && asprintf(&f->bearer, "Authorization: Bearer %.*s",
					      (int)peer->api_key.len, peer->api_key.p) < 0)
		return -ENOMEM;
	if (peer->https && peer->ca.len > 0) {
		f->ca = malloc(peer->ca.len);
		if (!f->ca)
			return -ENOMEM;
		memcpy(f->ca, peer->ca.p, peer->ca.len);
		f->ca_len = peer->ca.len;
	}
	return 0;
}

/* ---- the zactor ---- */

static size_t
on_answer(char *bytes, size_t size, size_t n, void *arg)
{
	struct fetch *f = arg;
	size_t len = size * n;

	if (f->answer_max == 0)
		return len;
	if (len > f->answer_max - f->len) {
		f->result = FETCH_LARGE;
		return 0;
	}
	if (f->bytes) {
		f->bytes(f, bytes, len);
		f->len += len;
		return len;
	}
	if (f->len + len > f->cap) {
		size_t cap = f->cap ? f->cap : ANSWER_FIRST_BYTES;

		while (cap < f->len + len)
			cap *= 2;
		char *grown = realloc(f->answer, cap);

		if (!grown)
			return 0;
		f->answer = grown;
		f->cap = cap;
	}
	memcpy(f->answer + f->len, bytes, len);
	f->len += len;
	return len;
}

static void
give_back(zsock_t *pipe, struct fetch *f)
{
	f->ended_ns = clock_mono();
	zmq_send(zsock_resolve(pipe), &f, sizeof f, 0);
}

static enum fetch_cause
cause_of(CURLcode code)
{
	switch (code) {
	case CURLE_COULDNT_CONNECT:
		return FETCH_REFUSED;
	case CURLE_COULDNT_RESOLVE_HOST:
		return FETCH_NO_ADDRESS;
	case CURLE_SSL_CONNECT_ERROR:
	case CURLE_SSL_CERTPROBLEM:
	case CURLE_SSL_CIPHER:
	case CURLE_PEER_FAILED_VERIFICATION:
	case CURLE_SSL_CACERT_BADFILE:
	case CURLE_SSL_ISSUER_ERROR:
		return FETCH_TLS;
	case CURLE_PARTIAL_FILE:
	case CURLE_GOT_NOTHING:
	case CURLE_RECV_ERROR:
	case CURLE_SEND_ERROR:
		return FETCH_CUT;
	case CURLE_BAD_CONTENT_ENCODING:
		return FETCH_ENCODING;
	case CURLE_UNSUPPORTED_PROTOCOL: /* the answer's: every URL here is HTTP */
	case CURLE_WEIRD_SERVER_REPLY:
		return FETCH_NO_HTTP;
	default:
		return FETCH_OTHER;
	}
}

static bool
answer_closes(CURL *easy)
{
	struct curl_header *h;

	return curl_easy_header(easy, "Connection", 0, CURLH_HEADER, -1, &h) == CURLHE_OK &&
	       strcasecmp(h->value, "close") == 0;
}

static void
fetch_ends(zsock_t *pipe, struct fetch *f, CURLcode code)
{
	long status = 0, connects = 0;
	curl_off_t connected_us = 0;
	const char *type = NULL;

	curl_easy_getinfo(f->easy, CURLINFO_RESPONSE_CODE, &status);
	curl_easy_getinfo(f->easy, CURLINFO_NUM_CONNECTS, &connects);
	curl_easy_getinfo(f->easy, CURLINFO_CONNECT_TIME_T, &connected_us);
	f->status = (unsigned)status;
	if (code == CURLE_OK) {
		f->result = FETCH_OK;
		f->closes = answer_closes(f->easy);
		curl_easy_getinfo(f->easy, CURLINFO_CONTENT_TYPE, &type);
		snprintf(f->content_type, sizeof f->content_type, "%s", type ? type : "");
	} else if (code == CURLE_OPERATION_TIMEDOUT) {
		f->result = FETCH_LATE;
		f->connected = connects == 0 || connected_us > 0;       /* 0: a kept one */
	} else if (f->result != FETCH_LARGE) {   /* on_answer said so */
		f->result = FETCH_BROKEN;
		f->cause = cause_of(code);
	}
	curl_easy_cleanup(f->easy);
	f->easy = NULL;
	if (f->result == FETCH_OK && f->ended)
		f->ended(f);
	give_back(pipe, f);
}

/* line NULL: nothing is to be said.  False: no memory. */
static bool
add_header(struct fetch *f, const char *line)
{
	struct curl_slist *more = line ? curl_slist_append(f->headers, line) : f->headers;

	if (line && !more)
		return false;
	f->headers = more;
	return true;
}

/* False: no memory. */
static bool
fetch_prepare(struct fetch *f, long left_ms)
{
	CURL *easy = f->easy = curl_easy_init();
	char accept[128];

	if (!easy)
		return false;
	snprintf(accept, sizeof accept, "Accept: %s", f->accept ? f->accept : "");
	if (!add_header(f, f->host_header) || !add_header(f, f->bearer) ||
	    !add_header(f, f->provider) ||
	    !add_header(f, f->body ? "Content-Type: application/json" : NULL) ||
	    !add_header(f, f->accept ? accept : NULL))
		return false;
	if (f->socket)
		curl_easy_setopt(easy, CURLOPT_UNIX_SOCKET_PATH, f->socket);
	if (f->detour) {
		f->connect_to = curl_slist_append(NULL, f->detour);
		if (!f->connect_to)
			return false;
		curl_easy_setopt(easy, CURLOPT_CONNECT_TO, f->connect_to);
	}
	if (f->ca) {
		struct curl_blob ca = {.data = f->ca, .len = f->ca_len,
				       .flags = CURL_BLOB_NOCOPY};

		curl_easy_setopt(easy, CURLOPT_CAINFO, NULL);
		curl_easy_setopt(easy, CURLOPT_CAPATH, NULL);
		if (curl_easy_setopt(easy, CURLOPT_CAINFO_BLOB, &ca) != CURLE_OK)
			return false;
	}
	if (f->body) {
		curl_easy_setopt(easy, CURLOPT_POSTFIELDS, f->body);
		curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)f->body_len);
	}
	if (f->decode)
		curl_easy_setopt(easy, CURLOPT_ACCEPT_ENCODING, "identity");
	if (f->headers)
		curl_easy_setopt(easy, CURLOPT_HTTPHEADER, f->headers);
	curl_easy_setopt(easy, CURLOPT_URL, f->url);
	curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
	curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, f->why);
	curl_easy_setopt(easy, CURLOPT_PROXY, "");
	curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
	curl_easy_setopt(easy, CURLOPT_MAXAGE_CONN, FETCH_IDLE_S);
	curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, f->connect_ms);
	curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, left_ms);
	curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, READ_BYTES);
	curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_answer);
	curl_easy_setopt(easy, CURLOPT_WRITEDATA, f);
	curl_easy_setopt(easy, CURLOPT_PRIVATE, f);
	return true;
}

static void
fetch_begins(zsock_t *pipe, CURLM *multi, struct fetch *f)
{
	mono_ns now = clock_mono();
	long left_ms = now < f->deadline_ns ? (long)((f->deadline_ns - now) / 1000000u) : 0;

	if (left_ms > 0 && fetch_prepare(f, left_ms) &&
	    curl_multi_add_handle(multi, f->easy) == CURLM_OK)
		return;
	f->result = left_ms > 0 ? FETCH_NO_MEMORY : FETCH_NO_TIME;
	give_back(pipe, f);
}

static void
collect_ended(zsock_t *pipe, CURLM *multi)
{
	CURLMsg *m;
	int left;

	while ((m = curl_multi_info_read(multi, &left)) != NULL) {
		struct fetch *f = NULL;
		CURLcode code = m->data.result;

		if (m->msg != CURLMSG_DONE)
			continue;
		curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&f);
		curl_multi_remove_handle(multi, m->easy_handle);
		fetch_ends(pipe, f, code);
	}
}

/* True: $TERM came.  Reads all there is: ZMQ's descriptor tells of changes, not of messages. */
static bool
hear(zsock_t *pipe, CURLM *multi)
{
	struct fetch *f;

	while (zsock_events(pipe) & ZMQ_POLLIN) {
		char frame[16];
		int n = zmq_recv(zsock_resolve(pipe), frame, sizeof frame, ZMQ_DONTWAIT);

		if (n != (int)sizeof f)
			return true;    /* "$TERM", or the pipe is broken */
		memcpy(&f, frame, sizeof f);
		fetch_begins(pipe, multi, f);
	}
	return false;
}

/* Half of what we may have open. */
static long
connections_kept(void)
{
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) < 0)
		return 256;
	return files.rlim_cur > 2 * KEPT_MOST ? KEPT_MOST : (long)(files.rlim_cur / 2);
}

static void
fetcher_actor(zsock_t *pipe, void *arg)
{
	const struct fetcher *fetcher = arg;
	CURLM *multi = curl_multi_init();

	if (multi) {
		curl_multi_setopt(multi, CURLMOPT_MAX_HOST_CONNECTIONS, fetcher->host_connections);
		/* Its own choice is four times the calls under way: with many workers, each would
		 * lose its connection to the others between two calls. */
		curl_multi_setopt(multi, CURLMOPT_MAXCONNECTS, connections_kept());
	}
	zsock_signal(pipe, multi ? 0 : 1);
	if (!multi)
		return;
	while (!hear(pipe, multi)) {
		struct curl_waitfd pipe_fd = {.fd = zsock_fd(pipe), .events = CURL_WAIT_POLLIN};
		int running;

		curl_multi_perform(multi, &running);
		collect_ended(pipe, multi);
		if (zsock_events(pipe) & ZMQ_POLLIN)
			continue;
		curl_multi_poll(multi, &pipe_fd, 1, 1000, NULL);
	}
	curl_multi_cleanup(multi);      /* handles still in it are freed by fetch_clear */
}

/* ---- the caller's side ---- */

int
fetcher_new(struct fetcher **ret, long host_connections)
{
	struct fetcher *f = calloc(1, sizeof *f);

	if (!f)
		return -ENOMEM;
	f->host_connections = host_connections;
	/* TLS is set up with the first https call, not at every birth. */
	curl_global_init(CURL_GLOBAL_NOTHING);
	f->actor = zactor_new(fetcher_actor, f);
	if (!f->actor) {
		fetcher_free(&f, NULL);
		return -ENOMEM;
	}
	*ret = f;
	return 0;
}

void
fetcher_free(struct fetcher **ret, void (*drop)(struct fetch *f))
{
	struct fetcher *f = *ret;

	if (!f)
		return;
	zactor_destroy(&f->actor);      /* from here on no thread but ours */
	while (f->under_way) {
		struct fetch *fetch = f->under_way;

		f->under_way = fetch->next;
		drop(fetch);
	}
	curl_global_cleanup();
	free(f);
	*ret = NULL;
}

zsock_t *
fetcher_socket(struct fetcher *f)
{
	return zactor_sock(f->actor);
}

void
fetcher_send(struct fetcher *f, struct fetch *fetch)
{
	fetch->next = f->under_way;
	f->under_way = fetch;
	zmq_send(zsock_resolve(zactor_sock(f->actor)), &fetch, sizeof fetch, 0);
}

struct fetch *
fetcher_collect(struct fetcher *f)
{
	struct fetch *fetch, **at = &f->under_way;

	if (zmq_recv(zsock_resolve(zactor_sock(f->actor)), &fetch, sizeof fetch, ZMQ_DONTWAIT) !=
	    (int)sizeof fetch)
		return NULL;
	while (*at && *at != fetch)
		at = &(*at)->next;
	if (!*at)
		return NULL;            /* cannot be: only calls of ours come back */
	*at = fetch->next;
	fetch->next = NULL;
	return fetch;
}

struct fetch *
fetcher_under_way(const struct fetcher *f)
{
	return f->under_way;
}
