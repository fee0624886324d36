/* actors/ingress/upstream.h -- connections to workers: addresses, attempts, pools.
 *
 * Meaning    One `struct upstream` per address (rows that are ranks of one worker share it),
 *            with its idle connections.  A connection is lent to one user at a time; while idle
 *            it is watched, and whatever comes then (end of stream, stray bytes) drops it.
 * Pool       Newest first.  Idle at most keep_alive_ns (below the 5 s after which engines
 *            close), less when the worker said "Keep-Alive: timeout=N" (then N - 1 s).
 * Names      Numeric addresses are used as they are; names are resolved in the background and again
 *            every 30 s.  Up to 4 addresses of a name are tried in order.
 * Ownership  upstream_take/adopt lend a connection to the caller; it ends with give_back or drop.
 * Threads    the loop's (the resolver's own threads touch nothing of ours).
 */
#pragma once
#include <netdb.h>

#include "actors/ingress/io.h"
#include "shm/process.h"
#include "shm/rows.h"

#define UPSTREAM_ADDRS          4u
#define UPSTREAM_IDLE_MAX       256u            /* idle connections kept per address */
#define UPSTREAM_RESOLVE_NS     30000000000ull  /* names are looked up again so often */

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
	bool named, bad;                /* a name, not an address; url not understood */
	struct upstream_addr addr[UPSTREAM_ADDRS];
	unsigned n_addrs;
	mono_ns resolved_ns;
	int resolve_error;
	struct upstream_lookup *lookup; /* under way */
	struct upstream_conn *idle;     /* newest first */
	unsigned n_idle;
};

struct upstream_conn {
	struct upstream *to;
	int fd;
	bool reused;                    /* served a request before */
	bool dead;
	void *user;                     /* NULL: idle */
	const struct upstream_ops *ops;
	struct io_op *recv, *send;
	struct upstream_conn *prev, *next;      /* idle list; next: also the graveyard */
	mono_ns idle_until_ns;
};

struct upstream_attempt {               /* embedded in its owner; zero when none is under way */
	struct upstream *to;
	struct io_op *op;
	mono_ns deadline_ns;
	unsigned next_addr;
	void (*f)(void *arg, int fd_or_error);
	void *arg;
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
	unsigned n_conns,
		conns_keep; /* open; none is kept idle when there are more than conns_keep */
};

int upstreams_open(struct upstreams *ret, struct io *io, const struct rows *rows,
		   struct process_segment *process);
void upstreams_close(struct upstreams *u);
/* old idle connections, finished look-ups */
void upstreams_tick(struct upstreams *u, mono_ns now);
void upstreams_bury(struct upstreams *u);               /* between turns */
/* learns addresses before they are needed */
void upstreams_rows_changed(struct upstreams *u);

struct upstream *upstream_of_row(struct upstreams *u, uint16_t row);
	/* NULL: no such row, or its URL is not http://host:port. */
struct upstream_conn *upstream_take(struct upstream *to, const struct upstream_ops *ops,
				    void *user, mono_ns now);
	/* An idle connection, or NULL. */
void upstream_try(struct upstream_attempt *a, struct upstream *to, mono_ns deadline_ns,
		  void (*f)(void *arg, int fd_or_error), void *arg);
	/* f is called once, later: a connected fd (owned by callee), or -errno. */
void upstream_try_cancel(struct upstream_attempt *a, struct io *io);
struct upstream_conn *upstream_adopt(struct upstream *to, int fd,
				     const struct upstream_ops *ops, void *user);
	/* NULL: no memory, fd closed. */
/* 0, -ENOMEM */
int upstream_send(struct upstream_conn *c, const struct iovec *iov, unsigned n);
void upstream_pause(struct upstream_conn *c);
void upstream_resume(struct upstream_conn *c);
void upstream_give_back(struct upstream_conn *c, unsigned keep_alive_s, mono_ns now);
	/* Clean: the answer ended, nothing stray came, everything was sent. */
void upstream_drop(struct upstream_conn *c);
