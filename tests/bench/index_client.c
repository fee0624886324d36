/* tests/bench/index_client.c -- the process that looks up; see index_client.h. */
#include "tests/bench/index_client.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/bench/measure.h"

struct ask {
	enum client_task task;
	unsigned n, seed;
};

struct client {
	pid_t pid;
	int sock;
};

struct work {                                   /* the child's */
	const struct world *world;
	struct index *index;
	struct index_depth *depth;
};

static struct client_answer
attach(struct work *k)
{
	uint64_t start;

	if (k->index)
		index_detach(&k->index);
	start = cpu_ns();

	int r = index_attach(&k->index, fcntl(k->world->reader_fd, F_DUPFD_CLOEXEC, 0));

	if (r < 0)
		cannot("attach the index", r);
	return (struct client_answer){
		.ns = (double)(cpu_ns() - start),
		.touched = mapping_touched(index_head(k->index)),
	};
}

static struct client_answer
look_up(struct work *k, const struct ask *ask)
{
	uint32_t *ns = calloc(ask->n, sizeof ns[0]);
	struct client_answer a = {0};
	uint64_t hash[CHAIN];

	if (!ns)
		cannot("keep times", ENOMEM);
	for (unsigned i = 0; i < ask->n; i++) {
		unsigned chain = (unsigned)(mix64((uint64_t)ask->seed << 32 | i) %
					    chains_asked(k->world));
		unsigned exact = 0, any = 0;

		if (ask->task == CLIENT_LOOK_UP_WIDE)
			chain -= chain % 10;
		if (ask->task == CLIENT_MISS)
			chain |= 1u << 31;
		for (unsigned b = 0; b < CHAIN; b++)    /* as fresh in the cache as a prompt's */
			hash[b] = chain_hash(chain, b);

		uint64_t start = cpu_ns();
		unsigned n = index_match(k->index, hash, CHAIN, k->depth, k->world->workers + 1);

		ns[i] = (uint32_t)(cpu_ns() - start);
		for (unsigned row = 0; row < n; row++) {
			exact = k->depth[row].exact > exact ? k->depth[row].exact : exact;
			any = k->depth[row].any > any ? k->depth[row].any : any;
		}
		a.exact += exact;
		a.any += any;
		a.rows += n;
	}
	a.exact /= ask->n;
	a.any /= ask->n;
	a.rows /= ask->n;
	a.p99_ns = percentile(ns, ask->n, 990);
	a.ns = percentile(ns, ask->n, 500);
	free(ns);
	return a;
}

static void __attribute__((noreturn))
serve(const struct world *world, int sock)
{
	struct work k = {.world = world};
	struct ask ask;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	pin_cpu(0);
	k.depth = calloc(world->workers + 1, sizeof k.depth[0]);
	if (!k.depth)
		cannot("keep depths", ENOMEM);
	while (recv(sock, &ask, sizeof ask, 0) == (ssize_t)sizeof ask) {
		struct client_answer a = ask.task == CLIENT_ATTACH ? attach(&k)
								   : look_up(&k, &ask);

		if (send(sock, &a, sizeof a, MSG_NOSIGNAL) != (ssize_t)sizeof a)
			break;
	}
	index_detach(&k.index);
	free(k.depth);
	exit(0);
}

void
client_start(struct client **ret, const struct world *world)
{
	struct client *c = calloc(1, sizeof *c);
	int pair[2];

	if (!c || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		cannot("make a socket pair", errno);
	c->pid = fork();
	if (c->pid < 0)
		cannot("fork", errno);
	if (c->pid == 0) {
		free(c);
		close(pair[0]);
		serve(world, pair[1]);
	}
	close(pair[1]);
	c->sock = pair[0];
	*ret = c;
}

void
client_ask(struct client *c, enum client_task task, unsigned n, unsigned seed)
{
	struct ask ask = {.task = task, .n = n, .seed = seed};

	if (send(c->sock, &ask, sizeof ask, MSG_NOSIGNAL) != (ssize_t)sizeof ask)
		cannot("ask the reader", errno);
}

bool
client_done(const struct client *c)
{
	struct pollfd p = {.fd = c->sock, .events = POLLIN};

	return poll(&p, 1, 0) != 0;
}

struct client_answer
client_answer(struct client *c)
{
	struct client_answer a;

	if (recv(c->sock, &a, sizeof a, 0) != (ssize_t)sizeof a)
		cannot("hear the reader", ECHILD);
	return a;
}

void
client_stop(struct client **ret)
{
	struct client *c = *ret;
	int status;

	close(c->sock);
	if (waitpid(c->pid, &status, 0) != c->pid || status != 0)
		cannot("end the reader well", ECHILD);
	free(c);
	*ret = NULL;
}
