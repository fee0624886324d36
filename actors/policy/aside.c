/* actors/policy/aside.c -- threads for large bodies; see aside.h. */
#include "actors/policy/aside.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "actors/policy/prompt.h"

#define NICE 10                         /* a tenth of the loop's share where both want one CPU */

struct thread {
	struct aside *aside;            /* borrowed */
	zactor_t *actor;                /* owned */
	struct tags_room *room;         /* owned; NULL: no tags */
	struct aside_job *job;          /* what it has; NULL: it waits */
};

struct aside {
	struct native *native;          /* borrowed */
	struct thread thread[ASIDE_THREADS];
	struct aside_job *jobs;         /* owned, newest first */
	uint64_t turn;                  /* of the job begun last */
	void (*let_go)(struct view_ingress *ingress);
	struct view_ingress *leaving[ASIDE_THREADS + 1];        /* owned: dead, and read yet */
};

/* ---- in a thread ---- */

static void
keep_ids(struct aside_job *job)
{
	size_t bytes = job->made.n * sizeof *job->ids;

	if (job->made.n == 0)
		return;
	job->ids = malloc(bytes);
	if (job->ids) {
		memcpy(job->ids, job->made.ids, bytes);
		job->made.ids = job->ids;
	} else {
		job->made = (struct native_made){.why = "out of memory"};
	}
}

static void
work(struct aside_job *job, struct thread *me, struct prompt_maker *maker)
{
	struct native *native = me->aside->native;

	if (job->state == ASIDE_READING) {
		job->read = openai_view_parse(job->body.p, job->body.len, &job->view, &job->why);
		if (job->read == 0 && me->room) {
			tags_of_body(me->room, job->body, &job->tags);
			job->tagged = true;
		}
		job->may_hit = job->read == 0 && prompt_may_hit(&job->view, job->body.p);
		job->read_ns = clock_mono();
	} else {
		prompt_maker_stop(maker, &job->stop);
		native_make(maker, job->model, native_segments(native), job->route, job->body,
			    &job->made);
		keep_ids(job);
		prompt_maker_stop(maker, NULL);
		prompt_maker_give_back(maker);
	}
}

/* The loop may have been put onto one CPU with its ingress (background.h); a thread need not be
 * there, and where it is it gives way. */
static void
stand_back(const cpu_set_t *all)
{
	sched_setaffinity(0, sizeof *all, all);
}

static void
aside_actor(zsock_t *pipe, void *arg)
{
	struct thread *me = arg;
	struct prompt_maker *maker = NULL;
	struct aside_job *job;
	cpu_set_t all;
	char frame[16];

	sched_getaffinity(0, sizeof all, &all);
	setpriority(PRIO_PROCESS, 0, NICE);     /* of this thread alone */
	zsock_signal(pipe, prompt_maker_new(&maker) < 0 ? 1 : 0);
	while (maker) {
		int n = zmq_recv(zsock_resolve(pipe), frame, sizeof frame, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n != (int)sizeof job)
			break;                  /* "$TERM" */
		memcpy(&job, frame, sizeof job);
		stand_back(&all);
		work(job, me, maker);
		zmq_send(zsock_resolve(pipe), &job, sizeof job, 0);
	}
	prompt_maker_free(&maker);
}

/* ---- in the loop ---- */

int
aside_new(struct aside **ret, struct native *native,
	  void (*let_go)(struct view_ingress *ingress))
{
	struct aside *a = calloc(1, sizeof *a);

	if (!a)
		return -ENOMEM;
	a->native = native;
	a->let_go = let_go;
	for (unsigned i = 0; i < ASIDE_THREADS; i++) {
		a->thread[i].aside = a;
		a->thread[i].actor = zactor_new(aside_actor, &a->thread[i]);
		if (!a->thread[i].actor) {
			aside_free(&a);
			return -ENOMEM;
		}
	}
	*ret = a;
	return 0;
}

int
aside_tagging(struct aside *a, const struct tags *tags)
{
	int r = 0;

	for (unsigned i = 0; i < ASIDE_THREADS && r == 0; i++)
		r = tags_room_new(&a->thread[i].room, tags);
	return r;
}

static void
job_free(struct aside *a, struct aside_job *job)
{
	for (struct aside_job **p = &a->jobs; *p; p = &(*p)->next)
		if (*p == job) {
			*p = job->next;
			break;
		}
	free(job->ids);
	free(job);
}

void
aside_free(struct aside **ret)
{
	struct aside *a = *ret;

	if (!a)
		return;
	*ret = NULL;
	aside_end(a);
	for (unsigned i = 0; i < ASIDE_THREADS; i++) {
		zactor_destroy(&a->thread[i].actor);
		tags_room_free(&a->thread[i].room);
	}
	free(a);
}

zsock_t *
aside_socket(struct aside *a, unsigned thread)
{
	return zactor_sock(a->thread[thread].actor);
}

struct token_key
aside_key(const struct view_ingress *from, uint32_t slot, uint32_t slot_gen)
{
	return (struct token_key){.lo = (uint64_t)from->incarnation << 32 | slot, .hi = slot_gen};
}

struct aside_job *
aside_find(struct aside *a, const struct view_ingress *from, uint32_t slot, uint32_t slot_gen)
{
	for (struct aside_job *j = a->jobs; j; j = j->next)
		if (j->from == from && j->slot == slot && j->slot_gen == slot_gen && !j->dropped)
			return j;
	return NULL;
}

static bool
waits(const struct aside_job *j)
{
	return !j->running && !j->dropped &&
	       (j->state == ASIDE_READING || j->state == ASIDE_MAKING);
}

/* Who waits with the least turn; of these who came first, which is last in the list. */
static struct aside_job *
next_job(struct aside *a)
{
	struct aside_job *best = NULL;

	for (struct aside_job *j = a->jobs; j; j = j->next)
		if (waits(j) && (!best || j->turn <= best->turn))
			best = j;
	return best;
}

static void
feed(struct aside *a)
{
	for (unsigned i = 0; i < ASIDE_THREADS; i++) {
		struct aside_job *j = a->thread[i].job ? NULL : next_job(a);

		if (!j)
			continue;
		if (zmq_send(zsock_resolve(a->thread[i].actor), &j, sizeof j, ZMQ_DONTWAIT) < 0)
			return;                 /* never: it has nothing to read */
		a->thread[i].job = j;
		if (j->turn > a->turn)
			a->turn = j->turn;
		j->running = true;
		j->since_ns = clock_mono();
	}
}

/* One behind what its client has waiting or running; who has nothing comes now. */
static uint64_t
turn_of(const struct aside *a, const uint8_t client[16])
{
	uint64_t turn = a->turn;

	for (const struct aside_job *j = a->jobs; j; j = j->next)
		if ((waits(j) || j->running) && memcmp(j->client, client, sizeof j->client) == 0 &&
		    j->turn >= turn)
			turn = j->turn + 1;
	return turn;
}

struct aside_job *
aside_read(struct aside *a, struct view_ingress *from, uint32_t slot, uint32_t slot_gen,
	   enum openai_route route, struct slice body, const uint8_t client[16])
{
	struct aside_job *j = calloc(1, sizeof *j);

	if (!j)
		return NULL;
	j->from = from;
	j->slot = slot;
	j->slot_gen = slot_gen;
	j->route = route;
	j->body = body;
	memcpy(j->client, client, sizeof j->client);
	j->turn = turn_of(a, client);
	j->since_ns = clock_mono();
	j->next = a->jobs;
	a->jobs = j;
	feed(a);
	return j;
}

void
aside_make(struct aside *a, struct aside_job *job, const struct model *model)
{
	job->model = model;
	job->turn = turn_of(a, job->client);
	job->since_ns = clock_mono();
	job->state = ASIDE_MAKING;
	feed(a);
}

/* What that thread has ended; NULL: nothing.  wait: until it has. */
static struct aside_job *
hear(struct aside *a, struct thread *t, bool wait)
{
	struct aside_job *job = NULL;
	int n;

	do
		n = zmq_recv(zsock_resolve(t->actor), &job, sizeof job, wait ? 0 : ZMQ_DONTWAIT);
	while (wait && n < 0 && errno == EINTR);
	if (n != (int)sizeof job)
		return NULL;
	t->job = NULL;
	job->running = false;
	job->state = job->state == ASIDE_READING ? ASIDE_READ : ASIDE_MADE;
	feed(a);
	return job;
}

static bool
is_read(const struct aside *a, const struct view_ingress *from)
{
	for (unsigned i = 0; i < ASIDE_THREADS; i++)
		if (a->thread[i].job && a->thread[i].job->from == from)
			return true;
	return false;
}

static void
let_go_unread(struct aside *a)
{
	for (unsigned i = 0; i < ASIDE_THREADS + 1; i++)
		if (a->leaving[i] && !is_read(a, a->leaving[i])) {
			a->let_go(a->leaving[i]);
			a->leaving[i] = NULL;
		}
}

bool
aside_collect(struct aside *a, struct token_key *ret_key, bool *ret_dropped)
{
	for (unsigned i = 0; i < ASIDE_THREADS; i++) {
		struct aside_job *j = hear(a, &a->thread[i], false);

		if (!j)
			continue;
		*ret_key = aside_key(j->from, j->slot, j->slot_gen);
		*ret_dropped = j->dropped;
		if (j->dropped) {
			job_free(a, j);
			let_go_unread(a);
		}
		return true;
	}
	return false;
}

bool
aside_late(struct aside *a, mono_ns now, struct token_key *ret_key)
{
	for (struct aside_job *j = a->jobs; j; j = j->next) {
		if (now < j->since_ns + ASIDE_LATE_NS)
			continue;
		if (j->running)
			atomic_store_explicit(&j->stop, true, memory_order_relaxed);
		if (!waits(j))
			continue;
		*ret_key = aside_key(j->from, j->slot, j->slot_gen);
		job_free(a, j);
		return true;
	}
	return false;
}

void
aside_done(struct aside *a, struct aside_job *job)
{
	if (job->running) {
		job->dropped = true;
		atomic_store_explicit(&job->stop, true, memory_order_relaxed);
	} else {
		job_free(a, job);
	}
}

bool
aside_drop(struct aside *a, const struct view_ingress *from, uint32_t slot,
	   struct token_key *ret_key)
{
	bool running = false;

	for (struct aside_job *j = a->jobs, *next; j; j = next) {
		next = j->next;
		if (j->from != from || j->slot != slot)
			continue;
		if (j->running) {
			running = true;
			*ret_key = aside_key(from, slot, j->slot_gen);
		}
		aside_done(a, j);
	}
	return running;
}

void
aside_leave(struct aside *a, struct view_ingress *from)
{
	unsigned i = 0;

	for (struct aside_job *j = a->jobs, *next; j; j = next) {
		next = j->next;
		if (j->from == from)
			aside_done(a, j);
	}
	while (a->leaving[i])           /* each has a thread, so there is room */
		i++;
	a->leaving[i] = from;
	let_go_unread(a);
}

void
aside_end(struct aside *a)
{
	for (struct aside_job *j = a->jobs, *next; j; j = next) {
		next = j->next;
		aside_done(a, j);
	}
	for (unsigned i = 0; i < ASIDE_THREADS; i++) {
		struct aside_job *j = a->thread[i].job ? hear(a, &a->thread[i], true) : NULL;

		if (j)
			job_free(a, j);
	}
	let_go_unread(a);
}
