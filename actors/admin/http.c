/* actors/admin/http.c -- libmicrohttpd in our loop; see http.h. */
#include "actors/admin/http.h"

#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "actors/admin/page.h"
#include "actors/common/show.h"

#define HTTP_CONNECTIONS 64u
#define HTTP_IDLE_S     10u
#define HTTP_MEMORY     32768u          /* bytes a connection */
#define HTTP_BACKLOG    64

struct http {
	const struct pm_view *view;             /* borrowed */
	struct MHD_Daemon *daemon;              /* owned, with its listening socket */
	int fd;                                 /* its epoll, borrowed */
};

static enum MHD_Result
reply(struct MHD_Connection *c, unsigned status, const char *type, void *body, size_t len)
{
	struct MHD_Response *r = MHD_create_response_from_buffer(len, body, MHD_RESPMEM_MUST_FREE);
	enum MHD_Result done;

	if (!r) {
		free(body);
		return MHD_NO;
	}
	MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, type);
	MHD_add_response_header(r, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
	if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
		MHD_add_response_header(r, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
	done = MHD_queue_response(c, status, r);
	MHD_destroy_response(r);
	return done;
}

static enum MHD_Result
reply_text(struct MHD_Connection *c, unsigned status, const char *text)
{
	char *copy = strdup(text);

	return copy ? reply(c, status, "text/plain; charset=utf-8", copy, strlen(copy)) : MHD_NO;
}

static enum MHD_Result
reply_metrics(const struct http *http, struct MHD_Connection *c)
{
	char *body = NULL;
	size_t len = 0;
	FILE *to = open_memstream(&body, &len);

	if (!to)
		return MHD_NO;
	page_print(to, http->view);
	if (fclose(to) != 0) {
		free(body);
		return MHD_NO;
	}
	return reply(c, MHD_HTTP_OK, "text/plain; version=0.0.4; charset=utf-8", body, len);
}

static enum MHD_Result
reply_ready(const struct http *http, struct MHD_Connection *c)
{
	const struct roster_header *h = http->view->roster.head;
	json_t *why = NULL, *o = json_object();
	bool ready = pm_show_ready(http->view, &why);
	char *body;

	json_object_set_new(o, "ready", json_boolean(ready));
	json_object_set_new(o, "generation", json_integer(h ? atomic_load_explicit(&h->generation,
			    memory_order_acquire) : 0));
	json_object_set_new(o, "why_not", why);
	json_object_set_new(o, "blocked_tenants", pm_show_blocked(http->view));
	json_object_set_new(o, "orders", pm_show_orders(http->view));
	body = json_dumps(o, JSON_COMPACT);
	json_decref(o);
	return body ? reply(c, ready ? MHD_HTTP_OK : MHD_HTTP_SERVICE_UNAVAILABLE,
			    "application/json", body, strlen(body)) :
		      MHD_NO;
}

static enum MHD_Result
on_request(void *arg, struct MHD_Connection *c, const char *url, const char *method,
	   const char *version, const char *upload, size_t *upload_len, void **state)
{
	static const char seen;
	const struct http *http = arg;

	(void)version;
	(void)upload;
	if (!*state) {                          /* head only; a body may follow */
		*state = (void *)(uintptr_t)&seen;
		return MHD_YES;
	}
	if (*upload_len) {                      /* nobody asked for one: drop it */
		*upload_len = 0;
		return MHD_YES;
	}
	if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
		return reply_text(c, MHD_HTTP_METHOD_NOT_ALLOWED, "GET or HEAD\n");
	if (strcmp(url, "/metrics") == 0)
		return reply_metrics(http, c);
	if (strcmp(url, "/healthz") == 0)
		return reply_text(c, MHD_HTTP_OK, "ok\n");
	if (strcmp(url, "/readyz") == 0)
		return reply_ready(http, c);
	return reply_text(c, MHD_HTTP_NOT_FOUND, "here are /metrics /healthz /readyz\n");
}

/* A listening socket, or -errno. */
static int
listen_at(const struct manifest_addr *at, const char **why)
{
	const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM,
				       .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
	struct addrinfo *list = NULL;
	int fd = -1, r = -EADDRNOTAVAIL, one = 1;
	char port[8];

	snprintf(port, sizeof port, "%u", at->port);
	*why = "its address does not resolve";
	if (getaddrinfo(at->host[0] ? at->host : NULL, port, &hints, &list) != 0)
		return r;
	*why = "cannot listen on its address";
	for (struct addrinfo *a = list; a && fd < 0; a = a->ai_next) {
		fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		if (fd < 0)
			continue;
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
		if (bind(fd, a->ai_addr, a->ai_addrlen) < 0 || listen(fd, HTTP_BACKLOG) < 0) {
			r = -errno;
			close(fd);
			fd = -1;
		}
	}
	freeaddrinfo(list);
	return fd >= 0 ? fd : r;
}

int
http_open(struct http **ret, const struct manifest_addr *at, const struct pm_view *view,
	  const char **why)
{
	struct http *http = calloc(1, sizeof *http);
	const union MHD_DaemonInfo *info;
	int fd;

	if (!http) {
		*why = "no memory";
		return -ENOMEM;
	}
	http->view = view;
	fd = listen_at(at, why);
	if (fd < 0) {
		free(http);
		return fd;
	}
	http->daemon = MHD_start_daemon(MHD_USE_EPOLL, 0, NULL, NULL, on_request, http,
					MHD_OPTION_LISTEN_SOCKET, fd,
					MHD_OPTION_CONNECTION_LIMIT, HTTP_CONNECTIONS,
					MHD_OPTION_CONNECTION_TIMEOUT, HTTP_IDLE_S,
					MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HTTP_MEMORY,
					MHD_OPTION_END);
	info = http->daemon ? MHD_get_daemon_info(http->daemon, MHD_DAEMON_INFO_EPOLL_FD) : NULL;
	if (!info) {
		*why = "libmicrohttpd does not start";
		if (http->daemon)
			MHD_stop_daemon(http->daemon);
		else
			close(fd);
		free(http);
		return -EIO;
	}
	http->fd = info->epoll_fd;
	*ret = http;
	return 0;
}

int
http_fd(const struct http *http)
{
	return http->fd;
}

void
http_turn(struct http *http)
{
	MHD_UNSIGNED_LONG_LONG wait_ms;

	/* It may have more to do than its descriptor tells; never for ever. */
	for (unsigned n = 0; n < 2 * HTTP_CONNECTIONS; n++) {
		MHD_run(http->daemon);
		if (MHD_get_timeout(http->daemon, &wait_ms) != MHD_YES || wait_ms > 0)
			return;
	}
}

void
http_close(struct http **ret)
{
	if (!*ret)
		return;
	MHD_stop_daemon((*ret)->daemon);        /* closes the listening socket */
	free(*ret);
	*ret = NULL;
}
