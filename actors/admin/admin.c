/* actors/admin/admin.c -- answers operators: the Prometheus page, health, introspection.
 *
 * Owns    the operators' HTTP port and <run>/admin.sock (ZMQ ROUTER); writes nothing shared but its
 *         own counters.
 * Hears   segment, gone   supervisor   what there is to see
 *         tapped          kvevents     events of a worker that somebody looks at
 *         requests        any ZMQ client that may open admin.sock (grammar: proto/README.md)
 * Says    answers, to whom asked; an answer nobody takes is dropped.
 *         tap             kvevents     tell me of this worker's events
 * Dies    no effect on traffic; the page's sums begin anew with what still lives.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "actors/admin/events.h"
#include "actors/admin/http.h"
#include "actors/admin/introspect.h"
#include "actors/admin/wire.h"
#include "actors/common/attach.h"
#include "actors/common/verbs.h"
#include "actors/common/view.h"

#define ADMIN_TICK_MS   250             /* libmicrohttpd's time-outs */
#define ADMIN_BURST     32u /* requests answered in a turn; the rest waits for the next */
#define ADMIN_QUEUE     256             /* messages kept a client */
#define ENVELOPE_MAX    16u             /* frames before the request: hops of a proxy */

struct admin {
	struct pm_actor *actor;                 /* borrowed */
	struct pm_view view;
	struct http *http;                      /* owned */
	zsock_t *router;                        /* owned */
	struct events *events;                  /* owned */
};

/* ---- work ---- */

/* Frames up to the first empty one, or the identity alone, are the way back; one payload
 * follows. */
static zframe_t *
payload_of(zmsg_t *message)
{
	size_t frames = zmsg_size(message), envelope = 1, i = 0;

	for (zframe_t *f = zmsg_first(message); f; f = zmsg_next(message), i++)
		if (i > 0 && i < frames - 1 && zframe_size(f) == 0) {
			envelope = i + 1;
			break;
		}
	return frames == envelope + 1 && envelope <= ENVELOPE_MAX ? zmsg_last(message) : NULL;
}

/* Of a message with its payload, the way back alone. */
static zmsg_t *
way_back_of(zmsg_t **message, const zframe_t *payload)
{
	zframe_t *identity, *last;
	zmsg_t *back;

	if (payload) {
		last = zmsg_last(*message);
		zmsg_remove(*message, last);
		zframe_destroy(&last);
	} else {                                /* odd frames: only the way back is kept */
		identity = zmsg_pop(*message);
		zmsg_destroy(message);
		*message = zmsg_new();
		zmsg_append(*message, &identity);
	}
	back = *message;
	*message = NULL;
	return back;
}

/* Takes both.  Never blocks: the socket's time-out is 0. */
static void
send_back(struct admin *me, zmsg_t **way_back, void *bytes, size_t len)
{
	zmsg_addmem(*way_back, bytes, len);
	free(bytes);
	count_add(&me->actor->process, COUNTER_introspections, 1);
	if (zmsg_send(way_back, me->router) < 0)
		zmsg_destroy(way_back);
}

static void
answer(struct admin *me, zmsg_t **message)
{
	static const char nothing[1] = "";
	zframe_t *payload = payload_of(*message);
	json_t *waits = NULL;
	enum wire_form form;
	zmsg_t *back;
	void *bytes = NULL;
	size_t len = 0;
	int r;

	if (!payload && zmsg_size(*message) < 2)
		return;                         /* nobody to tell */
	form = payload ? wire_form_of(zframe_data(payload), zframe_size(payload)) : WIRE_JSON;
	r = introspect_ask(&me->view, me->events,
			   payload ? (const void *)zframe_data(payload) : nothing,
			   payload ? zframe_size(payload) : 0, &bytes, &len, &waits);
	if (r < 0)
		return;
	back = way_back_of(message, payload);
	if (r == 1)
		events_keep(me->events, &back, waits, form);
	else
		send_back(me, &back, bytes, len);
}

/* What was waited for. */
static void
on_said(void *arg, zmsg_t **way_back, const json_t *request, enum wire_form form, json_t *result)
{
	struct admin *me = arg;
	void *bytes = NULL;
	size_t len = 0;

	if (introspect_encode(request, pm_verb_success(PM_VERB_EVENTS, result), form, &bytes,
			      &len) == 0)
		send_back(me, way_back, bytes, len);
	pm_actor_used(me->actor, me->router);
}

static void
on_events(struct pm_actor *actor, void *arg)
{
	struct admin *me = arg;

	(void)actor;
	events_receive(me->events, clock_mono());
}

static void
on_router(struct pm_actor *actor, void *arg)
{
	struct admin *me = arg;

	(void)actor;
	for (unsigned n = 0; n < ADMIN_BURST && (zsock_events(me->router) & ZMQ_POLLIN); n++) {
		zmsg_t *message = zmsg_recv(me->router);

		if (!message)
			return;
		answer(me, &message);
		zmsg_destroy(&message);
	}
}

static void
on_http(struct pm_actor *actor, void *arg)
{
	struct admin *me = arg;

	(void)actor;
	http_turn(me->http);
}

static void
on_tick(void *arg, mono_ns now)
{
	struct admin *me = arg;

	http_turn(me->http);
	events_tick(me->events, now);
}

static void
on_message(void *arg, const struct msg *m, int fd)
{
	struct admin *me = arg;
	int r;

	switch (m->id) {
	case MSG_segment:
		if (fd < 0)
			return;
		r = pm_view_segment(&me->view, &m->u.segment, fd);
		if (r < 0)
			log_warn(
				"segment kind=%s owner=%s: not read, error=\"%s\"; it is not shown",
				segment_kind_name((enum segment_kind)m->u.segment.kind),
				process_role_name((enum process_role)m->u.segment.role),
				strerror(-r));
		if (m->u.segment.kind == SEGMENT_CONFIG)
			log_set_generation(me->view.generation);
		return;
	case MSG_gone:
		pm_view_gone(&me->view, (enum process_role)m->u.gone.role, m->u.gone.incarnation);
		break;
	default:
		break;                          /* peer, rows_changed: seen in memory */
	}
	if (fd >= 0)
		close(fd);
}

/* ---- open and close ---- */

static void
admin_close(void **ret)
{
	struct admin *me = *ret;

	http_close(&me->http);
	if (me->events)
		pm_actor_unwatch_socket(me->actor, events_socket(me->events));
	events_close(&me->events);
	zsock_destroy(&me->router);
	pm_view_close(&me->view);
	free(me);
	*ret = NULL;
}

/* Our own counters are shown like everybody's, read-only. */
static void
view_own(struct admin *me)
{
	const struct birth *b = &me->actor->birth;
	struct msg_segment m = {.kind = SEGMENT_PROCESS, .role = ROLE_ADMIN, .index = b->index,
				.incarnation = b->incarnation, .generation = b->generation};
	int fd = fcntl(me->actor->process.seg.fd, F_DUPFD_CLOEXEC, 3);

	if (fd >= 0)
		pm_view_segment(&me->view, &m, fd);
}

static int
router_open(struct admin *me)
{
	char endpoint[128];
	mode_t mask = umask(0117); /* who may read the run directory as its group may ask */
	int r;

	pm_endpoint(endpoint, sizeof endpoint, me->actor->birth.run_dir, "admin");
	me->router = zsock_new(ZMQ_ROUTER);
	if (!me->router) {
		umask(mask);
		return -ENOMEM;
	}
	zsock_set_maxmsgsize(me->router,
			     (int)WIRE_REQUEST_MAX + 1); /* one more: it gets an answer */
	zsock_set_rcvhwm(me->router, ADMIN_QUEUE);
	zsock_set_sndhwm(me->router, ADMIN_QUEUE);
	zsock_set_sndtimeo(me->router, 0);
	zsock_set_linger(me->router, 0);
	r = zsock_bind(me->router, "%s", endpoint) < 0 ? -errno : 0;
	umask(mask);
	return r;
}

static int
admin_open(struct pm_actor *actor, void **ret)
{
	struct admin *me = calloc(1, sizeof *me);
	const char *why = "no memory";
	char tap[128];
	int r = -ENOMEM;

	*ret = me;
	if (!me)
		return r;
	me->actor = actor;
	pm_view_init(&me->view);
	pm_view_birth(&me->view, &actor->birth);
	view_own(me);
	why = "it was born without the configuration";
	if (!me->view.manifest) {
		r = -EPROTO;
		goto fail;
	}
	why = "cannot bind admin.sock in the run directory";
	r = router_open(me);
	if (r < 0)
		goto fail;
	r = http_open(&me->http, &me->view.manifest->gateway.admin, &me->view, &why);
	if (r < 0)
		goto fail;
	why = "cannot look on at kvevents' socket";
	pm_tap_endpoint(tap, sizeof tap, actor->birth.run_dir);
	r = events_open(&me->events, &me->view, tap, actor->birth.token, on_said, me);
	if (r < 0)
		goto fail;
	pm_actor_watch_socket(actor, me->router, on_router, me);
	pm_actor_watch_socket(actor, events_socket(me->events), on_events, me);
	pm_actor_watch_fd(actor, http_fd(me->http), on_http, me);
	log_info("listen http=%s:%u", me->view.manifest->gateway.admin.host,
		 me->view.manifest->gateway.admin.port);
	return 0;
fail:
	return pm_open_failed(actor, why, r);
}

static const struct pm_actor_spec spec = {
	.name = "admin",
	.tick_ms = ADMIN_TICK_MS,
	.open = admin_open,
	.close = admin_close,
	.on_message = on_message,
	.on_tick = on_tick,
};

int
main(int argc, char **argv)
{
	return pm_actor_main(argc, argv, &spec);
}
