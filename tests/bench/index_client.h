/* tests/bench/index_client.h -- the process that looks up, as a policy process does.
 *
 * A fork of its own on CPU 0, made before the fleet is filled so that it has nothing of the
 * writer's memory; the writer keeps CPU 1.  It maps the index read-only and does one thing at a
 * time: client_ask, then client_answer; between the two the caller may write.
 */
#pragma once
#include "tests/bench/index_world.h"

struct client;

enum client_task {
	CLIENT_ATTACH,          /* index_attach: ns, touched */
	CLIENT_LOOK_UP,         /* `n` prompts of 1,000 blocks, known chains, at random */
	CLIENT_LOOK_UP_WIDE,    /* the same, of chains whose first blocks 34 rows hold */
	CLIENT_MISS,            /* the same, of prompts nobody has: ns */
};

struct client_answer {
	double ns;              /* the task, or one lookup at the median */
	double p99_ns;          /* of one lookup */
	double exact, any;      /* blocks found on the deepest row, mean */
	double rows;            /* found, mean */
	uint64_t touched;       /* bytes of its mapping */
};

void client_start(struct client **ret, const struct world *world);
void client_ask(struct client *c, enum client_task task, unsigned n, unsigned seed);
bool client_done(const struct client *c);               /* client_answer would not wait */
struct client_answer client_answer(struct client *c);
void client_stop(struct client **ret);
