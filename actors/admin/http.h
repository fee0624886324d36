/* actors/admin/http.h -- the operators' port: /metrics, /healthz, /readyz.
 *
 * Meaning    /healthz is 200 while this process lives.  /readyz is 200 when requests would be
 *            served, else 503; its body says why.  GET and HEAD only.
 * Hostile    64 connections, 32 KiB each, 10 s idle; libmicrohttpd parses, never a thread of its
 *            own.
 * Threads    the loop's: http_turn when http_fd is readable, and once a tick for time-outs.
 */
#pragma once
#include "actors/common/view.h"

struct http;
int http_open(struct http **ret, const struct manifest_addr *listen, const struct pm_view *view,
	      const char **why);
	/* Borrows the view.  0, -errno with *why. */
int http_fd(const struct http *http);
void http_turn(struct http *http);
void http_close(struct http **http);
