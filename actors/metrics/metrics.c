/* metrics.c -- how each worker does: its readings, its health, and what it taught us of its speed.
 *
 * Owns    lines 1 - 4 of the worker table: readings, health, predictor coefficients; what is proven
 *         of our tokens (shm/trust.h)
 * Hears   /metrics /health  workers      by one zactor (prober.h), every scrape interval
 *         /v1/models /is_sleeping /is_paused     now and then
 *         /version /tokenize             once in an engine's life
 *         outcomes          ingress      read from their journals
 *         segment gone rows_changed      supervisor
 * Says    engine_start      kvevents     an engine's process start time moved: its cache is empty
 *         engine_asleep     kvevents     and so it is when the engine sleeps
 *         ready failed bye  supervisor
 * Dies    readings age and coefficients stand still, both shown; decisions go on by the exact
 *         ledger.  The successor goes on from the rows
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "actors/common/attach.h"
#include "actors/metrics/prober.h"
#include "actors/metrics/tail.h"
#include "actors/metrics/targets.h"
#include "actors/metrics/verifier.h"

#define TICK_MS 20u        /* outcomes are learned, probes sent within this */

struct metrics {
	unsigned magic;
#define METRICS_MAGIC 0x3e7121c5
	struct pm_actor *actor;    /* borrowed */
	struct manifest *manifest; /* owned */
	uint32_t generation;       /* of manifest */
	struct secrets trust, next_trust; /* owned; of manifest, of the one that comes next */
	struct rows rows;          /* owned; lines 1 - 4 ours */
	struct targets *targets;   /* owned */
	struct tail *tail;         /* owned */
	struct verifier *verifier; /* owned */
	struct prober *prober;     /* owned */
	zsock_t *kvevents;         /* owned; PUSH */
	mono_ns next_run, next_proof;
};

/* ---- workers ---- */

static void
on_engine_start(void *arg, uint16_t row, uint32_t row_gen, wall_ns start)
{
	struct metrics *me = arg;
	struct msg_engine_start m = {.row = row, .row_gen = row_gen, .start = start,
				     .note = me->actor->birth.note};
	char frame[64];
	ssize_t n = msg_pack(MSG_engine_start, &m, frame, sizeof frame);

	log_warn("engine began anew row=%u member=%.63s start=%llu", row, me->rows.text[row].member,
		 (unsigned long long)start);
	/* Not taken: kvevents is away, and looks at the reading itself when it is back. */
	if (n > 0)
		zmq_send(zsock_resolve(me->kvevents), frame, (size_t)n, ZMQ_DONTWAIT);
}

static void
on_engine_asleep(void *arg, uint16_t row, uint32_t row_gen)
{
	struct metrics *me = arg;
	struct msg_engine_asleep m = {.row = row, .row_gen = row_gen,
				      .note = me->actor->birth.note};
	char frame[64];
	ssize_t n = msg_pack(MSG_engine_asleep, &m, frame, sizeof frame);

	log_info("engine sleeps row=%u member=%.63s; its cache is empty", row,
		 me->rows.text[row].member);
	/* Not taken: kvevents is away, and looks at the reading itself when it is back. */
	if (n > 0)
		zmq_send(zsock_resolve(me->kvevents), frame, (size_t)n, ZMQ_DONTWAIT);
}

static void
on_probe(struct pm_actor *actor, void *arg)
{
	struct metrics *me = arg;
	struct probe *p;

	(void)actor;
	while ((p = prober_collect(me->prober)) != NULL) {
		if (p->kind < PROBE_KINDS) {
			targets_result(me->targets, p);
			continue;
		}
		verifier_result(me->verifier, p);
		me->next_proof = 0;             /* the next probe may be due */
	}
}

static void
look_again(struct metrics *me)
{
	int r = targets_set(me->targets, me->manifest, &me->trust);

	if (r < 0)
		log_error("workers not taken over: %s; the old ones are probed on", strerror(-r));
	tail_rows(me->tail, me->manifest);
	r = verifier_set(me->verifier, me->manifest, me->generation, &me->trust);
	if (r < 0)
		log_error("workers' tokens: %s; the old ones are verified on", strerror(-r));
	me->next_run = me->next_proof = 0;
}

static void
on_outcome(void *arg, const struct journal_record *head, const struct journal_outcome *o,
	   mono_ns now)
{
	struct metrics *me = arg;

	verifier_outcome(me->verifier, head, o, now);
}

/* ---- hearing the supervisor ---- */

static void
add_source(struct metrics *me, uint32_t index, uint32_t incarnation, int fd)
{
	int r = tail_add(me->tail, incarnation, fd);

	if (r < 0)
		log_error("journal of ingress=%u.%u: %s; nothing is learned from it", index,
			  incarnation, strerror(-r));
}

/* What targets borrow from the old documents goes only when they have the new ones. */
static void
follow_config(struct metrics *me, int fd, uint32_t generation)
{
	struct manifest *was = me->manifest, *is = NULL;
	struct secrets old = me->trust;

	if (pm_follow_config(fd, &is) < 0) {
		secrets_detach(&me->next_trust);
		return;
	}
	me->manifest = is;
	if (generation == me->generation && me->next_trust.seg.fd < 0) {
		look_again(me);                 /* other members were found: the same trust */
		manifest_free(&was);
		return;
	}
	me->generation = generation;
	me->trust = me->next_trust;
	me->next_trust = (struct secrets){.seg.fd = -1};
	look_again(me);
	manifest_free(&was);
	secrets_detach(&old);
}

static void
metrics_on_message(void *priv, const struct msg *m, int fd)
{
	struct metrics *me = priv;

	switch (m->id) {
	case MSG_segment:
		if (fd < 0)
			break;
		if (m->u.segment.kind == SEGMENT_CONFIG) {
			follow_config(me, fd, m->u.segment.generation);
			fd = -1;
		} else if (m->u.segment.kind == SEGMENT_PROBES) {
			secrets_detach(&me->next_trust);
			if (secrets_attach(&me->next_trust, fd, SEGMENT_PROBES, NULL) < 0)
				log_error("workers' CAs not readable: their TLS will fail");
			fd = -1;
		} else if (m->u.segment.kind == SEGMENT_MODEL) {
			verifier_model(me->verifier, m->u.segment.generation, m->u.segment.index,
				       fd);
			me->next_proof = 0;
			fd = -1;
		} else if (m->u.segment.kind == SEGMENT_PROCESS &&
			   m->u.segment.role == ROLE_INGRESS) {
			add_source(me, m->u.segment.index, m->u.segment.incarnation, fd);
			fd = -1;
		}
		break;
	case MSG_gone:
		if (m->u.gone.role == ROLE_INGRESS)
			tail_remove(me->tail, m->u.gone.incarnation);
		break;
	case MSG_rows_changed:
		look_again(me);
		break;
	default:
		break;
	}
	if (fd >= 0)
		close(fd);
}

static void
metrics_on_tick(void *priv, mono_ns now)
{
	struct metrics *me = priv;

	if (now >= me->next_run)
		me->next_run = targets_run(me->targets, me->prober, now);
	if (now >= me->next_proof)
		me->next_proof = verifier_run(me->verifier, me->prober, now);
	tail_run(me->tail, now);
}

/* ---- birth and end ---- */

static int
open_segments(struct metrics *me)
{
	struct birth *b = &me->actor->birth;
	int r = pm_attach_rows(me->actor, &me->rows, true);

	for (unsigned i = 0; i < b->n_segments; i++)
		if (b->segment[i].kind == SEGMENT_CONFIG)
			me->generation = b->segment[i].generation;
	if (r == 0)
		r = pm_attach_config(me->actor, &me->manifest);
	if (r < 0)
		return r;
	r = pm_attach_trust(me->actor, SEGMENT_PROBES, &me->trust);
	if (r < 0)
		return r;
	r = targets_new(&me->targets, &me->rows, &me->actor->process,
			&(struct targets_calls){on_engine_start, on_engine_asleep, me});
	if (r == 0)
		r = tail_new(&me->tail, &me->rows, &me->actor->process, on_outcome, me);
	if (r == 0)
		r = verifier_new(&me->verifier, &me->rows, &me->actor->process);
	if (r == 0)
		r = prober_new(&me->prober);
	if (r < 0)
		return pm_open_failed(me->actor, "memory", r);
	for (unsigned i = 0; i < b->n_segments; i++) {
		struct birth_segment *s = &b->segment[i];

		int fd = s->fd;

		if (fd >= 0 && s->kind == SEGMENT_MODEL) {
			s->fd = -1;
			verifier_model(me->verifier, s->generation, s->index, fd);
		}
		if (fd < 0 || s->kind != SEGMENT_PROCESS || s->role != ROLE_INGRESS)
			continue;
		s->fd = -1;
		add_source(me, s->index, s->incarnation, fd);
	}
	return 0;
}

static int
open_sockets(struct metrics *me)
{
	char endpoint[160];

	me->kvevents = zsock_new(ZMQ_PUSH);
	if (!me->kvevents)
		return -ENOMEM;
	zsock_set_linger(me->kvevents, 0);
	zsock_set_immediate(me->kvevents, 1); /* absent: dropped, not queued */
	pm_endpoint(endpoint, sizeof endpoint, me->actor->birth.run_dir, "kvevents");
	if (zsock_connect(me->kvevents, "%s", endpoint) < 0)
		return -errno;
	pm_actor_watch_socket(me->actor, prober_socket(me->prober), on_probe, me);
	return 0;
}

static int
metrics_open(struct pm_actor *actor, void **ret)
{
	struct metrics *me = calloc(1, sizeof *me);
	int r;

	if (!me)
		return -ENOMEM;
	me->magic = METRICS_MAGIC;
	me->actor = actor;
	me->rows.seg.fd = me->trust.seg.fd = me->next_trust.seg.fd = -1;
	*ret = me;
	r = open_segments(me);
	if (r < 0)
		return r;
	r = open_sockets(me);
	if (r < 0)
		return pm_open_failed(me->actor, "sockets", r);
	look_again(me);
	me->next_run = targets_run(me->targets, me->prober, clock_mono());
	return 0;
}

static void
metrics_close(void **priv)
{
	struct metrics *me = *priv;

	if (!me)
		return;
	*priv = NULL;
	if (me->prober) {
		pm_actor_unwatch_socket(me->actor, prober_socket(me->prober));
		prober_free(&me->prober);
	}
	zsock_destroy(&me->kvevents);
	verifier_free(&me->verifier);
	tail_free(&me->tail);
	targets_free(&me->targets);
	if (me->rows.head)
		rows_detach(&me->rows);
	manifest_free(&me->manifest);
	secrets_detach(&me->trust);
	secrets_detach(&me->next_trust);
	free(me);
}

static const struct pm_actor_spec spec = {
	.name = "metrics",
	.tick_ms = TICK_MS,
	.open = metrics_open,
	.close = metrics_close,
	.on_message = metrics_on_message,
	.on_tick = metrics_on_tick,
};

int
main(int argc, char **argv)
{
	return pm_actor_main(argc, argv, &spec);
}
