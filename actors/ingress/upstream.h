/* actors/ingress/upstream.h -- connections to workers: addresses, attempts, pools.
 *
 * Meaning    One `struct upstream` per address (rows that are ranks of one worker share it),
 *            with its idle connections.  A connection is lent to one user at a time; while idle
 *            it is watched, and whatever comes then (end of stream, stray bytes) drops it.
 * Pool       Newest first.  Idle at most keep_alive_ns (below the 5 s after which engines
 *            close), less when the worker said "Keep-Alive: timeout=N" (then N - 1 s).
 * Names      Numeric addresses are used as they are; names are resolved in the background and again
 *            every 30 s, and after a failure.  Up to 4 addresses of a name are tried, families in
 *            turn, each 250 ms after the one before or at once when that failed, without giving
 *            up the earlier ones: who answers first is taken (RFC 8305, 5).  Connections to an
 *            address that the name has no more are not used again.
 * Providers  unix:path: one upstream per path and provider, so that a full pool or a 429 of one
 *            says nothing of another behind the same socket.  No TLS, no API key: what is there
 *            is a process of this machine, and holds its own.
 * TLS        https://host:port by the credentials of the worker's set.  When those change, idle
 *            connections end, and those in use are not kept.
 * Ownership  upstream_take/try lend a connection to the caller; it ends with give_back or drop.
 * Threads    the loop's (the resolver's own threads touch nothing of ours).
 */
#pragma once
#include <netdb.h>

#include "actors/ingress/credentials.h"
#include "actors/ingress/wire.h"
#include "shm/process.h"
#include "shm/rows.h"

#define UPSTREAM_ADDRS          4u
#define UPSTREAM_IDLE_MAX       256u            /* idle connections kept per address */
#define UPSTREAM_RESOLVE_NS     30000000000ull  /* names are looked up again so often */
#define UPSTREAM_FORGET_NS      60000000000ull  /* unwanted and unused for so long: forgotten */

struct upstream_conn;

struct upstream_ops {
	void (*on_bytes)(void *user, const void *bytes, ssize_t n);     /* as io_recv_f */
	void (*on_sent)(void *user, int result);
};

struct upstream_addr {
	struct sockaddr_storage addr;
	socklen_t len;
};

struct upstream {
	struct upstream *next;
	struct upstreams *all;          /* borrowed */
	char url[ROW_URL_MAX];
	char authority[ROW_URL_MAX];    /* host:port, for the Host header */
	char host[ROW_URL_MAX], port[8];
	char set_name[ROW_NAME_MAX];    /* whose credentials count; local: the provider */
	uint32_t set;                   /* of all->credentials, as of set_epoch */
	uint32_t set_epoch;
	bool https;
	bool local;                     /* a unix socket: a provider's */
	bool named, bad;                /* a name, not an address; url not understood */
	bool wanted;                    /* some row here is to serve; else nothing is kept idle */
	mono_ns unwanted_ns;            /* since when not; 0 it is */
	bool keeps;                     /* its newest answer left the connection open */
	struct upstream_addr addr[UPSTREAM_ADDRS];
	unsigned n_addrs;
	uint32_t addr_epoch;            /* + 1 whenever one of them is gone */
	mono_ns resolved_ns;
	int resolve_error;
	struct upstream_lookup *lookup; /* under way */
	struct upstream_conn *idle;     /* newest first */
	unsigned n_idle;
	unsigned n_open;                /* and being tried: at most all->per_worker_max */
};

struct upstream_conn {
	struct upstream *to;
	struct wire wire;
	uint32_t addr_epoch;            /* its address was one of the name's then */
	bool reused;                    /* served a request before */
	bool dead;
	void *user;                     /* NULL: idle */
	const struct upstream_ops *ops;
	struct upstream_attempt *attempt;       /* whose handshake it is in; NULL */
	uint32_t epoch;                         /* of the credentials it was made by */
	struct upstream_conn *prev, *next;      /* idle list; next: also the graveyard */
	mono_ns idle_until_ns;
};

/* Once: a connection that is lent to user, or NULL, -errno and perhaps why (else NULL). */
typedef void upstream_tried_f(void *user, struct upstream_conn *conn, int error, const char *why);

struct upstream_attempt {               /* embedded in its owner; zero when none is under way */
	struct upstream *to;
	struct io_op *timer;            /* for the next address, or for any */
	struct upstream_race {
		struct upstream_attempt *of;
		struct io_op *op;       /* NULL: not tried yet, or failed */
	} race[UPSTREAM_ADDRS];
	mono_ns deadline_ns;
	uint64_t pace_ns;               /* between two addresses */
	unsigned next_addr, n_trying;
	int error;                      /* of the last one that failed */
	struct upstream_conn *conn;     /* in its TLS handshake; then timer is its deadline */
	const struct upstream_ops *ops;
	upstream_tried_f *f;
	void *user;
};

struct upstreams {
	struct io *io;                  /* borrowed */
	const struct rows *rows;        /* borrowed */
	struct process_segment *process;/* borrowed */
	struct upstream *list;
	struct upstream_row {
		uint32_t row_gen;
		struct upstream *to;
	} *row;
	struct upstream_conn *graveyard;        /* freed between turns */
	uint64_t keep_alive_ns;
	const struct credentials *credentials;  /* borrowed */
	uint32_t epoch;                         /* + 1 with each change of them */
	unsigned per_worker_max;        /* connections to one address */
	unsigned n_conns,
		conns_keep; /* open; none is kept idle when there are more than conns_keep */
};

int upstreams_open(struct upstreams *ret, struct io *io, const struct rows *rows,
		   struct process_segment *process);
void upstreams_close(struct upstreams *u);
/* old idle connections, finished look-ups, addresses where nobody serves any more */
void upstreams_tick(struct upstreams *u, mono_ns now);
void upstreams_bury(struct upstreams *u);               /* between turns */
void upstreams_credentials(struct upstreams *u, const struct credentials *c);   /* from now on */
/* learns addresses before they are needed; where nobody is to serve any more, nothing stays idle */
void upstreams_rows_changed(struct upstreams *u);

struct upstream *upstream_of_row(struct upstreams *u, uint16_t row);
	/* NULL: no such row, or its URL is none of http://host:port, https://host:port and
	 * unix:path. */
struct upstream_conn *upstream_take(struct upstream *to, const struct upstream_ops *ops,
				    void *user, mono_ns now);
	/* An idle connection, or NULL. */
bool upstream_full(const struct upstream *to);
	/* As many connections as may be: upstream_try must not be called. */
void upstream_try(struct upstream_attempt *a, struct upstream *to, mono_ns deadline_ns,
		  const struct upstream_ops *ops, upstream_tried_f *f, void *user);
	/* f is called once, later.  The deadline is also that of the TLS handshake. */
void upstream_try_cancel(struct upstream_attempt *a, struct io *io);
struct slice upstream_api_key(struct upstream *to);
	/* For Authorization: Bearer; empty: none. */
struct slice upstream_provider(const struct upstream *to);
	/* Whose requests these are, to the socket's process; absent: a worker's. */
bool upstream_same_place(const struct upstream *a, const struct upstream *b);
	/* Who cannot be reached at the one cannot be reached at the other. */
/* 0, -ENOMEM */
int upstream_send(struct upstream_conn *c, const struct iovec *iov, unsigned n);
void upstream_pause(struct upstream_conn *c);
void upstream_resume(struct upstream_conn *c);
void upstream_give_back(struct upstream_conn *c, unsigned keep_alive_s, mono_ns now);
	/* Clean: the answer ended, nothing stray came, everything was sent. */
void upstream_drop(struct upstream_conn *c);
