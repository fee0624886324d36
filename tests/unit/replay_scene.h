/* tests/unit/replay_scene.h -- a row, its replay, and an engine's ROUTER for it.  Waits for
 * messages, never for time: time is told to the replay.
 */
#pragma once
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "actors/kvevents/replay.h"
#include "actors/kvevents/subscriber.h"
#include "tests/unit/apply_world.h"

#define WAIT_MS 10000
#define S 1000000000ull
#define HISTORY PROMPT_BLOCKS

/* Batch k of an engine's life stores block k of its prompt. */
struct engine {
	void *zmq, *router;
	char endpoint[64];
	struct prompt prompt;
	bool topics;                    /* the longer form of answers */
	uint8_t id[64];                 /* whoever asked last */
	int id_len;
	uint64_t asked;
};

struct scene {
	struct world w;
	struct engine e;
	struct replays all;
	struct replay *r;
	mono_ns now;
};

static void
engine_open(struct engine *e, uint32_t first)
{
	size_t len = sizeof e->endpoint;
	int wait = WAIT_MS, none = 0;

	e->zmq = zmq_ctx_new();
	e->router = zmq_socket(e->zmq, ZMQ_ROUTER);
	zmq_setsockopt(e->router, ZMQ_RCVTIMEO, &wait, sizeof wait);
	zmq_setsockopt(e->router, ZMQ_LINGER, &none, sizeof none);
	cr_assert_eq(zmq_bind(e->router, "tcp://127.0.0.1:*"), 0);
	cr_assert_eq(zmq_getsockopt(e->router, ZMQ_LAST_ENDPOINT, e->endpoint, &len), 0);
	prompt_make(&e->prompt, first);
}

static void
scene_open(struct scene *s, const char *endpoint)
{
	struct replay_config config = {.all = &s->all, .row = 0};

	*s = (struct scene){.now = 100 * S};
	begin(&s->w, 60);
	engine_open(&s->e, 100);
	s->all = (struct replays){.apply = s->w.apply, .process = &s->w.process};
	config.endpoint = endpoint ? endpoint : s->e.endpoint;
	cr_assert_eq(replay_new(&s->r, &config), 0);
}

static void
scene_close(struct scene *s)
{
	replay_free(&s->r);
	zmq_close(s->e.router);
	zmq_ctx_term(s->e.zmq);
	end(&s->w);
}

static struct bytes
batch(const struct scene *s, uint64_t seq)
{
	const struct engine *e = &s->e;
	struct event stored = STORED(.hashes = &e->prompt.engine[seq % HISTORY], .n = 1,
				     .parent = seq % HISTORY
						       ? e->prompt.engine[seq % HISTORY - 1]
						       : 0,
				     .tokens = &e->prompt.tokens[seq % HISTORY * BLOCK]);

	return batch_of(&s->w, seq, NULL, &stored, 1);
}

static void
live_bytes(struct scene *s, uint64_t seq, struct bytes b)
{
	zmq_msg_t m;

	cr_assert_not(replay_holds(s->r));
	zmq_msg_init_size(&m, b.n);
	memcpy(zmq_msg_data(&m), b.p, b.n);
	free(b.p);
	replay_live(s->r, seq, &m, s->now);
	zmq_msg_close(&m);
}

static void
live(struct scene *s, uint64_t seq)
{
	live_bytes(s, seq, batch(s, seq));
}

static void
live_event(struct scene *s, uint64_t seq, struct event e)
{
	live_bytes(s, seq, batch_of(&s->w, seq, NULL, &e, 1));
}

/* ---- the ROUTER ---- */

static void
asked(struct scene *s, uint64_t from)
{
	struct engine *e = &s->e;
	uint8_t empty[8], number[16];

	e->id_len = zmq_recv(e->router, e->id, sizeof e->id, 0);
	cr_assert_gt(e->id_len, 0, "nobody asked");
	cr_assert_eq(zmq_recv(e->router, empty, sizeof empty, 0), 0, "the delimiter");
	cr_assert_eq(zmq_recv(e->router, number, sizeof number, 0), 8);
	e->asked = 0;
	for (unsigned i = 0; i < 8; i++)
		e->asked = e->asked << 8 | number[i];
	cr_assert_eq(e->asked, from, "asked from %llu", (unsigned long long)e->asked);
}

static void
not_asked(struct scene *s)
{
	cr_assert_null(replay_socket(s->r));
}

static void
frame(struct engine *e, const void *p, size_t n, bool last)
{
	zmq_send(e->router, p, n, last ? 0 : ZMQ_SNDMORE);
}

static void
reply(struct engine *e, uint64_t seq, const void *payload, size_t n)
{
	uint8_t number[8];

	for (unsigned i = 0; i < 8; i++)
		number[i] = (uint8_t)(seq >> (56 - 8 * i));
	frame(e, e->id, (size_t)e->id_len, false);
	frame(e, "", 0, false);
	if (e->topics)
		frame(e, "kv-events", n > 0 ? 9 : 0, false);
	frame(e, number, sizeof number, false);
	frame(e, payload, n, true);
}

static void
reply_batch(struct scene *s, uint64_t seq)
{
	struct bytes b = batch(s, seq);

	reply(&s->e, seq, b.p, b.n);
	free(b.p);
}

static void
reply_from(struct scene *s, uint64_t from, uint64_t to)
{
	for (uint64_t seq = from; seq <= to; seq++)
		reply_batch(s, seq);
}

static void
reply_end(struct engine *e)
{
	reply(e, UINT64_MAX, "", 0);
}

/* Until n messages of the answer have come or the asking ended. */
static void
hear(struct scene *s, unsigned n)
{
	while (n > 0 && replay_socket(s->r)) {
		zmq_pollitem_t item = {.socket = zsock_resolve(replay_socket(s->r)),
				       .events = ZMQ_POLLIN};
		unsigned got;

		cr_assert_eq(zmq_poll(&item, 1, WAIT_MS), 1, "no answer came");
		got = replay_receive(s->r, s->now);
		n -= got < n ? got : n;
	}
}

/* The answer's end, when all of its n messages are heard; and that there is nothing behind. */
static void
ends(struct scene *s, unsigned n, uint64_t next)
{
	reply_end(&s->e);
	hear(s, n);
	asked(s, next);
	reply_end(&s->e);
	hear(s, 1);
	cr_assert_null(replay_socket(s->r));
}

static void
after(struct scene *s, mono_ns ns)
{
	replay_tick(s->r, s->now += ns);
}

static unsigned
exact(const struct scene *s)
{
	return depth_of(&s->w, 0, &s->e.prompt).exact;
}

static uint64_t
counted(const struct scene *s, enum counter c)
{
	return count_get(&s->w.process, c);
}
