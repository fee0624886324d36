/* ingress.c -- takes requests from clients, asks where they shall go, carries them there and back.
 *
 * Owns    its client and worker connections; per incarnation: request slots, body arena, in-flight
 * column, journal ring. Hears   answer cancelled hello probed         policy      over the ROUTER
 *         peer gone activate standby drain      supervisor  over the inherited pair
 *         adopt unadopt rows_changed segment
 * Says    ask cancel probe resent               policy
 *         routed proof                          kvevents    PUSH, never waited for
 *         ready reachable active hole bye       supervisor
 * Dies    its own connections break, its neighbours go on; the supervisor zeroes its column.
 */
#include "actors/ingress/ingress.h"

#include <errno.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "actors/ingress/client.h"
#include "actors/ingress/listen.h"
#include "actors/ingress/request.h"
#include "actors/ingress/room.h"

#define TICK_NS 100000000ull      /* longest sleep: belt and braces for a lost wake-up */
#define LOOK_AGAIN_NS 10000000ull /* control messages go before answers at least so often */
#define CHECK_TICKS 10u           /* between two looks at the ledger's books */
#define BATCH 256u                /* answers handled before sockets get their turn */
#define CONTROL_BYTES 65536u
#define HEAP_PIECE_MAX (4 << 20) /* bytes; larger ones are mapped by themselves */
#define HEAP_SPARE (64 << 20)    /* bytes of heap kept when free */
#define SETTLE_NS 50000000ull    /* of a drain: the last answers of ours leave */
#define CUT_NS 300000000ull      /* past its deadline: the last words; at 1 s we are killed */
#define FILES_OWN 128u           /* descriptors for segments, policy processes, configurations */

/* --- the supervisor -------------------------------------------------------------------------- */

void
ingress_tell(struct ingress *in, enum msg_id id, const void *msg)
{
	/* The three messages that are told share their fields. */
	const struct msg_active *m = msg;

	if (in->n_owed == 0 && birth_send(&in->actor.birth, id, msg) != -EAGAIN)
		return;
	if (in->n_owed == sizeof in->owed / sizeof *in->owed) {
		log_error("the supervisor does not read: word lost message=%s", msg_name(id));
		return;
	}
	in->owed[in->n_owed].id = id;
	in->owed[in->n_owed].gen = m->policy_gen;
	in->owed[in->n_owed++].inc = m->policy_inc;
}

static void
pay_owed(struct ingress *in)
{
	unsigned paid = 0;

	for (; paid < in->n_owed; paid++) {
		struct msg_active m = {.policy_gen = in->owed[paid].gen,
				       .policy_inc = in->owed[paid].inc};

		if (birth_send(&in->actor.birth, in->owed[paid].id, &m) == -EAGAIN)
			break;
	}
	in->n_owed -= paid;
	memmove(in->owed, in->owed + paid, in->n_owed * sizeof *in->owed);
}

static void
on_control(void *arg, int result)
{
	struct ingress *in = arg;

	(void)result;
	in->control_woken = true;
}

static void
peer_drop(struct ingress *in, struct ingress_peer *peer)
{
	if (peer->watch)
		io_cancel(in->io, peer->watch);
	if (peer->pidfd >= 0)
		io_close_fd(in->io, peer->pidfd);
	*peer = (struct ingress_peer){.pidfd = -1};
}

static void
peer_add(struct ingress *in, uint32_t gen, uint32_t inc, int pidfd)
{
	ask_peer(&in->ask, gen, inc);
	if (pidfd < 0)
		return; /* only `gone` will tell of its death */
	for (unsigned i = 0; i < ASK_POLICIES; i++) {
		struct ingress_peer *peer = &in->peer[i];

		if (peer->pidfd >= 0)
			continue;
		*peer = (struct ingress_peer){.gen = gen, .inc = inc, .pidfd = pidfd};
		peer->watch = io_watch(in->io, pidfd, on_control, in);
		return;
	}
	log_warn("policy process not watched: table full inc=%u", inc);
	close(pidfd);
}

static void
look_at_peers(struct ingress *in)
{
	struct pollfd fd[ASK_POLICIES];
	unsigned which[ASK_POLICIES], n = 0;

	for (unsigned i = 0; i < ASK_POLICIES; i++)
		if (in->peer[i].pidfd >= 0) {
			fd[n] = (struct pollfd){.fd = in->peer[i].pidfd, .events = POLLIN};
			which[n++] = i;
		}
	if (n == 0 || poll(fd, n, 0) <= 0)
		return;
	for (unsigned i = 0; i < n; i++) {
		uint32_t inc = in->peer[which[i]].inc;

		if (!fd[i].revents)
			continue;
		peer_drop(in, &in->peer[which[i]]);
		log_debug("policy process dead inc=%u", inc);
		ask_gone(&in->ask, inc, GONE_UNSAID, clock_mono());
	}
}

static void
use_manifest(struct ingress *in, struct manifest *m, struct credentials *c, uint32_t gen)
{
	models_forget(&in->models);
	manifest_free(&in->manifest);
	if (c) {
		upstreams_credentials(&in->upstreams, c);
		credentials_free(&in->credentials);
		in->credentials = c;
	}
	in->manifest = m;
	in->manifest_gen = gen;
	in->ask.questions_max = m->gateway.limits.questions;
	in->ask.answer_ns = m->gateway.timeouts.policy_answer_ns;
	in->upstreams.keep_alive_ns = m->gateway.timeouts.upstream_keep_alive_ns;
	in->upstreams.per_worker_max = m->gateway.limits.upstream_connections;
}

static uint32_t
active_generation(const struct ingress *in)
{
	return in->ask.active == ASK_POLICIES ? 0 : in->ask.policy[in->ask.active].gen;
}

/* Settings follow the generation that decides. */
static void
settle_manifest(struct ingress *in)
{
	if (!in->next_manifest || in->next_gen != active_generation(in))
		return;
	log_set_generation(in->next_gen);
	use_manifest(in, in->next_manifest, in->next_credentials, in->next_gen);
	in->next_manifest = NULL;
	in->next_credentials = NULL;
}

/* c NULL: other members of a generation that is here already. */
static void
take_settings(struct ingress *in, struct manifest *m, struct credentials *c, uint32_t gen)
{
	if (!c && !(in->next_manifest && in->next_gen == gen)) {
		if (gen == in->manifest_gen)
			use_manifest(in, m, NULL, gen);
		else
			manifest_free(&m);      /* of one that could not be read, or is over */
		return;
	}
	manifest_free(&in->next_manifest);
	if (c) {
		credentials_free(&in->next_credentials);
		in->next_credentials = c;
	}
	in->next_manifest = m;
	in->next_gen = gen;
	settle_manifest(in);
}

static void
on_settings(void *arg, int result)
{
	struct ingress *in = arg;
	struct credentials *c;
	struct manifest *m;
	uint32_t gen;
	int error;

	(void)result;
	while (settings_take(&in->settings, &m, &c, &gen, &error)) {
		if (error < 0) {
			log_error("new configuration not readable: %s; the settings in force stay",
				  in->settings.why);
			continue;
		}
		take_settings(in, m, c, gen);
	}
}

/* --- the end -------------------------------------------------------------------------------------
 */

static void
drain(struct ingress *in, mono_ns deadline)
{
	struct client *next;
	mono_ns now = clock_mono();

	if (in->draining) {
		if (deadline < in->drain_deadline)
			in->drain_deadline = deadline;
		return;
	}
	in->draining = true;
	in->drain_began = now;
	in->drain_deadline = deadline;
	log_info("draining connections=%u requests=%u", in->n_clients,
		 in->slots.capacity - in->n_free);
	listen_drain(in);
	for (struct client *c = in->clients; c; c = next) {
		next = c->next;
		client_drain(c, now);
	}
}

/* Each is told that it was us, as far as it reads at once. */
static void
drain_cut(struct ingress *in, mono_ns now)
{
	struct client *next;

	if (!in->cutting)
		log_warn("drain deadline: cutting connections=%u", in->n_clients);
	in->cutting = true;
	for (struct client *c = in->clients; c; c = next) {
		next = c->next;
		if (c->request)
			relay_cut(c->request, "drain_deadline",
				  "The gateway ends, and waits no longer for the worker.");
	}
	while (in->clients && now >= in->drain_deadline + CUT_NS)
		client_destroy(in->clients);
}

static void
drain_step(struct ingress *in, mono_ns now)
{
	bool accepting = false;

	for (unsigned i = 0; i < in->n_listeners; i++)
		accepting |= in->listener[i].accept != NULL;
	if (now >= in->drain_deadline && in->n_clients > 0)
		drain_cut(in, now);
	if (!accepting && in->n_clients == 0 && now - in->drain_began >= SETTLE_NS)
		in->stopping = true;
}

static void
on_signal(void *arg, int result)
{
	struct ingress *in = arg;
	struct signalfd_siginfo info;

	(void)result;
	while (read(in->actor.signal_fd, &info, sizeof info) == (ssize_t)sizeof info)
		if (info.ssi_signo == SIGTERM)
			drain(in, clock_mono() + ingress_settings(in)->timeouts.drain_ns);
}

/* --- control: before answers, always
 * -------------------------------------------------------------- */

static void
take_column(struct ingress *in, uint32_t incarnation, int fd)
{
	int r = poisons_ingress(&in->poisons, incarnation, fd);

	if (r < 0)
		log_warn("column of ingress incarnation=%u not read: %s; bodies it refuses are "
			 "asked about here",
			 incarnation, strerror(-r));
}

static void
on_message(struct ingress *in, const struct msg *m, int fd)
{
	mono_ns now = clock_mono();

	switch (m->id) {
	case MSG_peer:
		if (m->u.peer.role == ROLE_POLICY) {
			peer_add(in, m->u.peer.generation, m->u.peer.incarnation, fd);
			fd = -1;
		}
		break;
	case MSG_gone:
		if (m->u.gone.role == ROLE_POLICY)
			ask_gone(&in->ask, m->u.gone.incarnation,
				 m->u.gone.cause ? (enum gone_cause)m->u.gone.cause : GONE_KILLED,
				 now);
		else if (m->u.gone.role == ROLE_INGRESS)
			poisons_gone(&in->poisons, m->u.gone.incarnation, now);
		break;
	case MSG_activate:
		ask_activate(&in->ask, m->u.activate.policy_gen, m->u.activate.policy_inc, now);
		listen_own(in);
		settle_manifest(in);
		break;
	case MSG_standby:
		ask_standby(&in->ask, m->u.standby.policy_gen, m->u.standby.policy_inc);
		break;
	case MSG_drain:
		drain(in, m->u.drain.deadline);
		break;
	case MSG_adopt:
		listen_adopt(in, m->u.adopt.index, true);
		break;
	case MSG_unadopt:
		listen_adopt(in, m->u.unadopt.index, false);
		break;
	case MSG_rows_changed:
		upstreams_rows_changed(&in->upstreams);
		requests_cut_removed(in);
		break;
	case MSG_segment:
		if (m->u.segment.kind == SEGMENT_CONFIG && fd >= 0) {
			settings_load(&in->settings, fd, m->u.segment.generation);
			fd = -1;
		} else if (m->u.segment.kind == SEGMENT_SECRETS && fd >= 0) {
			settings_secrets(&in->settings, fd);
			fd = -1;
		} else if (m->u.segment.kind == SEGMENT_COLUMN && fd >= 0) {
			take_column(in, m->u.segment.incarnation, fd);
			fd = -1;
		}
		break;
	default:
		ingress_count(in, COUNTER_messages_unknown, 1);
	}
	if (fd >= 0)
		close(fd);
}

static void
control(struct ingress *in)
{
	char buf[CONTROL_BYTES];

	in->control_woken = false;
	while (in->actor.supervised) {
		struct msg m;
		int fd = -1, r = birth_receive(&in->actor.birth, &m, buf, sizeof buf, &fd);

		if (r == 0)
			break;
		if (r == -EPIPE) {
			in->actor.supervised = false;
			/* Not by close: the next client may get the number at once. */
			io_close_fd(in->io, in->actor.birth.fd);
			in->actor.birth.fd = -1;
			in->watch_control = NULL;
			if (in->accepts) {
				log_warn("supervisor gone; serving on until a successor ends us");
			} else {
				log_warn("supervisor gone before we had anybody to ask; ending");
				in->stopping = true;
			}
		} else if (r < 0) {
			ingress_count(in, COUNTER_messages_unknown, 1);
		} else {
			on_message(in, &m, fd);
		}
	}
	look_at_peers(in);
}

/* --- answers -------------------------------------------------------------------------------------
 */

/* True: there may be more. */
static bool
hear_policies(struct ingress *in)
{
	mono_ns looked = 0;

	/* Asked once: after the first message the failing receive says that there are no more. */
	for (unsigned n = 0; n > 0 || router_readable(&in->router); n++) {
		struct router_message m;
		mono_ns now = clock_mono();

		if (n == BATCH)
			return true;
		if (now - looked > LOOK_AGAIN_NS) {
			control(in);
			looked = now;
		}
		if (!router_next(&in->router, &m))
			break;
		if (m.error < 0) {
			ingress_count(in, COUNTER_messages_unknown, 1);
			log_warn("message from policy not understood inc=%u: dropped",
				 m.policy_inc);
		} else {
			ask_heard(&in->ask, m.policy_gen, m.policy_inc, &m.msg, now);
		}
		router_done(&m);
	}
	return false;
}

static void
on_zmq(void *arg, int result)
{
	struct ingress *in = arg;

	(void)result;
	router_woken(&in->router);      /* the loop looks */
}

/* --- life
 * ----------------------------------------------------------------------------------------- */

static int
attach(struct ingress *in)
{
	struct birth *b = &in->actor.birth;
	char why[TLS_WHY_MAX];
	int fd, secrets, r;

	fd = birth_segment_fd(b, SEGMENT_ROWS, ROLE_NONE, 0, NULL);
	r = fd < 0 ? fd : rows_attach(&in->rows, fd, false);
	if (r < 0)
		return r;
	fd = birth_segment_fd(b, SEGMENT_PINS, ROLE_NONE, 0, NULL);
	r = fd < 0 ? fd : pins_attach(&in->pins, fd, true);
	if (r < 0)
		return r;
	fd = birth_segment_fd(b, SEGMENT_LIMITS, ROLE_NONE, 0, NULL);
	r = fd < 0 ? fd : limits_attach(&in->limits, fd, true);
	if (r < 0)
		return r;
	in->use = limits_use(&in->limits, b->incarnation);
	if (!in->use)
		return -EBADMSG;
	fd = birth_segment_fd(b, SEGMENT_COLUMN, ROLE_INGRESS, b->incarnation, NULL);
	r = fd < 0 ? fd : column_attach(&in->column, fd, true);
	if (r < 0)
		return r;
	fd = birth_segment_fd(b, SEGMENT_SLOTS, ROLE_INGRESS, b->incarnation, NULL);
	r = fd < 0 ? fd : slots_attach(&in->slots, fd, true);
	if (r < 0)
		return r;
	fd = birth_segment_fd(b, SEGMENT_ARENA, ROLE_INGRESS, b->incarnation, NULL);
	r = fd < 0 ? fd : arena_attach(&in->arena, fd, true);
	if (r < 0)
		return r;
	segment_claim(&in->column.seg);
	segment_claim(&in->slots.seg);
	segment_claim(&in->arena.seg);
	count_set(&in->actor.process, COUNTER_arena_size, in->arena.size);
	fd = birth_segment_fd(b, SEGMENT_CONFIG, ROLE_NONE, 0, NULL);
	secrets = birth_segment_fd(b, SEGMENT_SECRETS, ROLE_NONE, 0, NULL);
	if (fd < 0)
		return fd;
	r = settings_read(fd, secrets < 0 ? -1 : secrets, &in->manifest, &in->credentials,
			  &in->manifest_gen, why);
	if (r < 0)
		log_error("configuration not readable: %s", why);
	return r;
}

/* Raises it, and shares it out: a client costs its connection and one to a worker, and some of
 * those are kept.  ZMQ ends a process that runs out. */
static int
open_files_limit(struct ingress *in)
{
	struct rlimit limit;
	rlim_t rest, most = UINT32_MAX;
	int r = 0;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return -errno;
	limit.rlim_cur = limit.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &limit) < 0 || getrlimit(RLIMIT_NOFILE, &limit) < 0)
		r = -errno;
	rest = limit.rlim_cur < most ? limit.rlim_cur : most;
	rest = rest > FILES_OWN + 50 ? rest - FILES_OWN : 50;
	in->clients_max = (uint32_t)(rest * 2 / 5);
	in->upstreams.conns_keep = (unsigned)(rest / 5);
	return r;
}

static int
open_io(struct ingress *in, enum io_backend want)
{
	const char *why = NULL;
	int r = io_open(&in->io, want, &why);

	if (r < 0)
		log_error("io backend %s: %s", io_backend_name(want), why ? why : strerror(-r));
	else if (why)
		log_info("io backend=%s: %s", io_backend_name(io_backend(in->io)), why);
	else
		log_info("io backend=%s", io_backend_name(io_backend(in->io)));
	return r;
}

static int
open_slots(struct ingress *in)
{
	in->live = calloc((size_t)in->slots.capacity + 1, sizeof *in->live);
	in->free_slot = calloc((size_t)in->slots.capacity + 1, sizeof *in->free_slot);
	if (!in->live || !in->free_slot)
		return -ENOMEM;
	for (uint32_t id = in->slots.capacity; id >= 1;
	     id--) /* low ids first: less to look through */
		in->free_slot[in->n_free++] = id;
	return 0;
}

static int
ingress_open(struct ingress *in)
{
	struct birth *b = &in->actor.birth;
	int r;

	r = attach(in);
	if (r < 0)
		return r;
	const struct manifest_gateway *set = &in->manifest->gateway;
	r = open_io(in, set->io == MANIFEST_IO_URING   ? IO_URING
			: set->io == MANIFEST_IO_EPOLL ? IO_EPOLL
						       : IO_AUTO);
	if (r < 0)
		return r;
	in->zmq = zmq_ctx_new();
	if (!in->zmq)
		return -errno;
	r = router_open(&in->router, in->zmq, b);
	if (r < 0) {
		log_error("policy socket in %s: %s", b->run_dir, strerror(-r));
		return r;
	}
	r = notes_open(&in->notes, in->zmq, b, &in->column, &in->actor.process);
	if (r == 0)
		r = ledger_open(&in->ledger, &in->column);
	if (r == 0)
		r = ask_open(&in->ask, &in->slots, &in->column, &in->actor.process,
			     &request_ask_ops, in, clock_mono());
	if (r == 0)
		r = upstreams_open(&in->upstreams, in->io, &in->rows, &in->actor.process);
	if (r == 0 && open_files_limit(in) < 0)
		log_warn("open files limit not raised: %s", strerror(errno));
	if (r == 0)
		r = open_slots(in);
	/* Of each connection and each slot, and of one that knocks. */
	if (r == 0)
		r = fair_open(&in->fair, in->clients_max + in->slots.capacity + 1);
	if (r == 0)
		r = settings_open(&in->settings, in->manifest_gen);
	if (r < 0)
		return r;
	in->ask.questions_max = set->limits.questions;
	in->ask.answer_ns = set->timeouts.policy_answer_ns;
	in->upstreams.keep_alive_ns = set->timeouts.upstream_keep_alive_ns;
	in->upstreams.per_worker_max = set->limits.upstream_connections;
	upstreams_credentials(&in->upstreams, in->credentials);
	in->retry_milli = INGRESS_RETRY_BURST;
	in->born = clock_wall();
	upstreams_rows_changed(&in->upstreams);
	poisons_open(&in->poisons, &in->column);
	for (unsigned i = 0; i < b->n_segments; i++)    /* our own is taken */
		if (b->segment[i].kind == SEGMENT_COLUMN && b->segment[i].fd >= 0) {
			take_column(in, b->segment[i].incarnation, b->segment[i].fd);
			b->segment[i].fd = -1;
		}
	in->watch_control = io_watch(in->io, b->fd, on_control, in);
	in->watch_signal = io_watch(in->io, in->actor.signal_fd, on_signal, in);
	in->watch_zmq = io_watch(in->io, in->router.fd, on_zmq, in);
	in->watch_settings = io_watch(in->io, in->settings.event_fd, on_settings, in);
	if (!in->watch_control || !in->watch_signal || !in->watch_zmq || !in->watch_settings)
		return -ENOMEM;
	for (unsigned i = 0; i < b->n_peers; i++)
		if (b->peer[i].role == ROLE_POLICY) {
			peer_add(in, b->peer[i].generation, b->peer[i].incarnation,
				 b->peer[i].pidfd);
			b->peer[i].pidfd = -1;
		}
	return listen_open(in);
}

static void
bury(struct ingress *in)
{
	clients_bury(in);
	requests_bury(in);
	upstreams_bury(&in->upstreams);
}

static void
ingress_close(struct ingress *in)
{
	while (in->clients)
		client_destroy(in->clients);
	for (unsigned i = 0; i < ASK_POLICIES; i++)
		peer_drop(in, &in->peer[i]);
	if (in->upstreams.row)
		upstreams_close(&in->upstreams);
	bury(in);
	if (in->io)
		io_close(&in->io);
	ask_close(&in->ask);
	ledger_close(&in->ledger);
	notes_close(&in->notes);
	poisons_close(&in->poisons);
	router_close(&in->router);
	if (in->zmq)
		zmq_ctx_term(in->zmq);
	fair_close(&in->fair);
	models_forget(&in->models);
	free(in->listener);
	free(in->free_slot);
	free(in->live);
	settings_close(&in->settings);
	manifest_free(&in->next_manifest);
	manifest_free(&in->manifest);
	credentials_free(&in->next_credentials);
	credentials_free(&in->credentials);
	arena_detach(&in->arena);
	slots_detach(&in->slots);
	column_detach(&in->column);
	limits_detach(&in->limits);
	pins_detach(&in->pins);
	rows_detach(&in->rows);
}

/* One row a second. */
static void
check_books(struct ingress *in)
{
	uint32_t rows = atomic_load_explicit(&in->rows.head->count, memory_order_acquire);
	unsigned wrong;

	count_set(&in->actor.process, COUNTER_ledger_underflows, in->ledger.underflows);
	if (in->next_check >= rows || in->next_check >= in->column.rows)
		in->next_check = 0;
	if (rows == 0)
		return;
	wrong = ledger_check(&in->ledger, &in->slots, in->ask.high, in->next_check);
	if (wrong > 0) {
		ingress_count(in, COUNTER_ledger_disagreements, wrong);
		log_error("ledger: row=%u sums=%u are not those of the slots; it counts on",
			  in->next_check, wrong);
	}
	in->next_check++;
}

/* After a drain nothing is anybody's but what a policy process may still read. */
static void
check_end(struct ingress *in)
{
	uint32_t charges = ledger_charges(&in->ledger), slots = in->slots.capacity - in->n_free;
	uint64_t bytes = in->arena.used;

	for (uint32_t s = in->ask.list[ASK_ENDING].head; s; s = in->ask.entry[s].next) {
		slots--;
		bytes -= in->live[s].region_cap;
	}
	count_set(&in->actor.process, COUNTER_ledger_underflows, in->ledger.underflows);
	count_set(&in->actor.process, COUNTER_ledger_charges_left, charges);
	count_set(&in->actor.process, COUNTER_slots_leaked, slots);
	count_set(&in->actor.process, COUNTER_arena_leaked, bytes);
	if (charges || slots || bytes || in->ledger.underflows)
		log_error("ledger: at the end charges=%u slots=%u arena_bytes=%llu underflows=%llu "
			  "are left; they go with this process",
			  charges, slots, (unsigned long long)bytes,
			  (unsigned long long)in->ledger.underflows);
}

static void
tick(struct ingress *in, mono_ns now)
{
	in->next_tick = now + TICK_NS;
	if (in->ticks++ % CHECK_TICKS == 0)
		check_books(in);
	pm_actor_heartbeat(&in->actor, now);
	count_set(&in->actor.process, COUNTER_arena_touched, segment_touched(&in->arena.seg));
	if (in->n_owed > 0)
		pay_owed(in);
	ask_tick(&in->ask, now);
	room_tick(in);
	upstreams_tick(&in->upstreams, now);
	settle_manifest(in);
	if (in->ready_ns && now - in->ready_ns >= ASK_ABSENT_NS)
		listen_own(in);
	if (in->draining)
		drain_step(in, now);
}

/* Milliseconds from now to the sooner of two times; the second may be none (0). */
static int
wait_until(mono_ns now, mono_ns a, mono_ns b)
{
	mono_ns first = b && b < a ? b : a;

	return first > now ? (int)((first - now + 999999) / 1000000) : 0;
}

static int
loop(struct ingress *in)
{
	bool more = false;
	int told = 1;

	while (!in->stopping) {
		mono_ns now;
		int wait_ms;

		if (told == 0 && !more) {
			router_woken(&in->router);
			if (router_readable(&in->router))
				ingress_count(in, COUNTER_zmq_rescues, 1);
		}
		if (in->control_woken)
			control(in);
		more = hear_policies(in);
		now = clock_mono();
		if (now >= in->next_tick)
			tick(in, now);
		if (in->notes.due_ns && now >= in->notes.due_ns)
			notes_flush(&in->notes);
		clients_flush(in);
		bury(in);
		clients_feed(in);
		wait_ms = wait_until(now, in->next_tick, in->notes.due_ns);
		told = io_turn(in->io, more || in->stopping ? 0 : wait_ms);
		if (told < 0) {
			log_error("loop broken: %s", strerror(-told));
			return EXIT_INTERNAL;
		}
	}
	return 0;
}

int
main(void)
{
	struct ingress in;
	int code;

	/* Stream buffers come and go at any size up to their limit: let the heap keep them, or each
	 * long answer costs page faults. */
	mallopt(M_MMAP_THRESHOLD, HEAP_PIECE_MAX);
	mallopt(M_TRIM_THRESHOLD, HEAP_SPARE);
	memset(&in, 0, sizeof in);
	in.router.fd = -1;
	in.settings = (struct settings){.event_fd = -1};
	in.settings.now.config = in.settings.now.secrets = -1;
	in.settings.next = in.settings.coming = in.settings.now;
	for (unsigned i = 0; i < ASK_POLICIES; i++)
		in.peer[i].pidfd = -1;
	in.rows.seg.fd = in.column.seg.fd = in.slots.seg.fd = in.arena.seg.fd = -1;
	in.limits.seg.fd = -1;
	code = pm_actor_begin(&in.actor, "ingress");
	if (code != 0)
		return code;
	int r = ingress_open(&in);
	if (r < 0) {
		log_error("open failed: %s", strerror(-r));
		birth_fail(&in.actor.birth, "", 0, 0, strerror(-r));
		code = EXIT_INTERNAL;
	} else {
		struct msg_ready ready = {0};

		birth_drop_segments(&in.actor.birth);
		pm_actor_narrow(&in.actor);
		in.ready_ns = clock_mono();
		birth_send(&in.actor.birth, MSG_ready, &ready);
		log_info("ready listeners=%u", in.n_listeners);
		code = loop(&in);
		if (code == 0)
			check_end(&in);
	}
	ingress_close(&in);
	if (code == 0) {
		struct msg_bye bye = {0};

		birth_send(&in.actor.birth, MSG_bye, &bye);
	}
	log_info("ends code=%d", code);
	pm_actor_end(&in.actor);
	return code;
}
