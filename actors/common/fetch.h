/* actors/common/fetch.h -- HTTP to workers beside an actor's loop, which never waits for it.
 *
 * Meaning    One zactor with a libcurl multi handle.  A call is sent whole and comes back whole:
 *            GET, or POST of a JSON body; HTTP/1.1, no proxy, no redirect.  https as the
 *            member's set says: its CA or the system's, its name or the URL's host.  A provider
 *            is asked over its unix socket, and told which one it is asked as.
 * Bounds     the caller's: a deadline and an answer's size a call; how many are under way is its
 *            business, and so is what it asks.  Connections kept FETCH_IDLE_S.
 * Ownership  the caller embeds struct fetch in what it knows of the call, and frees that.  From
 *            fetcher_send until fetcher_collect it belongs to the fetcher, what it borrows too.
 * Threads    the caller's one, and the zactor; `ended` runs in the zactor.
 * Cost       two messages between threads and some 20 us of libcurl a call.
 */
#pragma once
#include <czmq.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "actors/common/secrets.h"

#define FETCH_WHY 256u                  /* bytes: libcurl's words */
#define FETCH_IDLE_S 4L                 /* vLLM closes a kept connection after 5 s */

enum fetch_result {
	FETCH_OK,                       /* a whole answer, whatever its status */
	FETCH_LATE,                     /* not by the deadline; connected, status: how far */
	FETCH_LARGE,                    /* answer over answer_max */
	FETCH_BROKEN,                   /* refused, cut, no such host, certificate not accepted;
					   status: how far */
	FETCH_NO_TIME,                  /* never begun: the deadline had passed */
	FETCH_NO_MEMORY,                /* never begun */
};

enum fetch_cause {                      /* of FETCH_BROKEN */
	FETCH_OTHER, FETCH_REFUSED, FETCH_NO_ADDRESS, FETCH_TLS,
	FETCH_CUT,                      /* connected, and then no whole answer */
	FETCH_ENCODING,                 /* Content-Encoding broken or unknown */
	FETCH_NO_HTTP,                  /* it answered, and not as HTTP does */
};

struct fetch {
	/* the caller's, before fetcher_send; the rest zero */
	char url[320];                  /* by fetch_to */
	const char *body;               /* borrowed; NULL: GET */
	size_t body_len;
	mono_ns deadline_ns;
	long connect_ms;                /* of the time until then; 0: all of it */
	size_t answer_max;              /* bytes, decoded; 0: the answer is read and not kept */
	void (*bytes)(struct fetch *f, const char *p, size_t n);
					/* in the zactor: takes the answer as it comes, decoded, and
					   it is not kept; or NULL */
	const char *accept;             /* of the Accept header; borrowed; NULL: anything */
	bool decode;                    /* undo a Content-Encoding; none is asked for */
	void (*ended)(struct fetch *f); /* in the zactor, on FETCH_OK: costly reading; or NULL */
	void *owner;
	/* result */
	enum fetch_result result;
	enum fetch_cause cause;
	unsigned status;                /* HTTP; 0: none came */
	bool closes;                    /* said of FETCH_OK: the answer had `Connection: close` */
	char content_type[48];          /* of FETCH_OK; "": none, or cut */
	char why[FETCH_WHY];            /* of FETCH_BROKEN and FETCH_LATE */
	bool connected;                 /* said of FETCH_LATE: the worker took the connection */
	mono_ns ended_ns;
	char *answer;                   /* owned; NULL: empty or not kept */
	size_t len;                     /* also of what `bytes` took */
	/* private */
	size_t cap;
	void *easy, *headers, *connect_to;
	char *ca;                       /* owned, as are the next two; PEM */
	size_t ca_len;
	char *host_header, *detour;     /* where the URL's host is another name */
	char *bearer;                   /* owned; wiped */
	char *socket, *provider;        /* owned; a path, and a header line */
	struct fetch *next;
};

struct fetcher;

/* Where a member is, and what its certificate must be. */
struct fetch_peer {
	const char *host;               /* IPv6 without brackets */
	uint16_t port;
	bool https;
	const char *server_name;        /* "" or NULL: host */
	struct slice ca;                /* PEM; empty: the system's */
	struct slice api_key;           /* empty: none */
	const char *socket;             /* path of a unix socket: it counts, not host and port;
					   NULL: none */
	const char *provider;           /* x-pointsman-provider; NULL: it is none */
};

struct fetch_peer fetch_peer(const struct manifest *manifest,
			     const struct manifest_member *member, const struct secrets *trust);
	/* trust: TRUST or PROBES of the manifest's generation; NULL: none came. */
int fetch_to(struct fetch *f, const struct fetch_peer *peer, const char *path);
	/* Copies what it needs.  0, -ENOMEM. */
int fetcher_new(struct fetcher **ret, long host_connections);
	/* At most that many to one worker at once; 0: no bound.  0, -ENOMEM. */
void fetcher_free(struct fetcher **ret, void (*drop)(struct fetch *f));
	/* Cuts what is under way and gives each to drop, in the caller's thread. */
zsock_t *fetcher_socket(struct fetcher *f);     /* readable: fetcher_collect has something */
void fetcher_send(struct fetcher *f, struct fetch *fetch);
struct fetch *fetcher_collect(struct fetcher *f);       /* the caller's again; NULL: none */
struct fetch *fetcher_under_way(const struct fetcher *f);       /* newest; ->next: the next older */
void fetch_clear(struct fetch *fetch);                  /* frees what it owns */
