/* actors/admin/events.c -- see events.h. */
#include "actors/admin/events.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "actors/common/decide/manifest.h"
#include "actors/common/fields.h"
#include "actors/common/verbs.h"
#include "proto/kv_events.h"
#include "proto/messages.h"

#define MS 1000000ull
#define RENEW_NS 1000000000ull          /* the tap's lease is 5 s */
#define BEGIN_NS 1000000000ull          /* kvevents answers in a millisecond, or is not there */
#define RECEIVE_TURN 512u
#define TAP_QUEUED 4096
#define TEXT_KEPT 65u                   /* bytes with the 0; tap.c cuts at 64 */

struct told {                           /* one event */
	uint64_t seq, parent, first;
	wall_ns when;
	uint32_t blocks, block_tokens, tokens, group;
	uint16_t rank;
	uint8_t outcome, type;
	char medium[TEXT_KEPT], lora[TEXT_KEPT], reason[TEXT_KEPT];
};

struct watched_row {
	uint16_t row, rank;
	uint32_t row_gen;
	bool begun;
	uint64_t number;                        /* newest heard of */
};

_Static_assert(EVENTS_ROWS >= MANIFEST_RANKS_MAX, "every rank of a worker is looked at");

struct watch {                          /* a worker; told NULL: free */
	char worker[ROW_NAME_MAX];
	struct watched_row row[EVENTS_ROWS];
	unsigned n_rows;
	mono_ns began, asked, renewed;
	uint64_t next;                          /* number of the next event, from 1 */
	uint64_t dropped;                       /* events the tap had no room for */
	struct told *told;                      /* owned; ring */
};

struct waiting {
	zmsg_t *way_back;                       /* owned; NULL: free */
	json_t *request;                        /* owned */
	enum wire_form form;
	mono_ns until;
};

struct events {
	const struct pm_view *view;             /* borrowed */
	zsock_t *sock;                          /* owned; DEALER */
	uint64_t word;
	events_said_f *said;
	void *arg;
	struct watch watch[EVENTS_WATCHES];
	struct waiting waiting[EVENTS_WAITING];
};

int
events_open(struct events **ret, const struct pm_view *view, const char *tap_endpoint,
	    uint64_t word, events_said_f *f, void *arg)
{
	struct events *ev = calloc(1, sizeof *ev);

	if (!ev)
		return -ENOMEM;
	*ev = (struct events){.view = view, .word = word, .said = f, .arg = arg};
	ev->sock = zsock_new(ZMQ_DEALER);
	if (!ev->sock) {
		free(ev);
		return -ENOMEM;
	}
	zsock_set_linger(ev->sock, 0);
	zsock_set_sndtimeo(ev->sock, 0);
	zsock_set_rcvhwm(ev->sock, TAP_QUEUED);
	zsock_set_maxmsgsize(ev->sock, 65536);
	if (zsock_connect(ev->sock, "%s", tap_endpoint) < 0) {
		int r = -errno;

		events_close(&ev);
		return r;
	}
	*ret = ev;
	return 0;
}

static void
waiting_free(struct waiting *w)
{
	zmsg_destroy(&w->way_back);
	json_decref(w->request);
	*w = (struct waiting){0};
}

void
events_close(struct events **ret)
{
	struct events *ev = *ret;

	if (!ev)
		return;
	for (unsigned i = 0; i < EVENTS_WAITING; i++)
		waiting_free(&ev->waiting[i]);
	for (unsigned i = 0; i < EVENTS_WATCHES; i++)
		free(ev->watch[i].told);
	zsock_destroy(&ev->sock);
	free(ev);
	*ret = NULL;
}

zsock_t *
events_socket(struct events *ev)
{
	return ev->sock;
}

/* ---- workers that are watched ---- */

static void
rows_of(const struct events *ev, struct watch *w)
{
	struct pm_view_worker worker;
	mono_ns now = clock_mono();

	for (unsigned i = 0; i < pm_view_rows(ev->view) && w->n_rows < EVENTS_ROWS; i++)
		if (pm_view_worker(ev->view, (uint16_t)i, now, &worker) &&
		    strcmp(worker.name, w->worker) == 0)
			w->row[w->n_rows++] = (struct watched_row){
				.row = worker.row, .rank = worker.rank,
				.row_gen = worker.row_gen,
			};
}

/* Also again, before the tap's lease is over. */
static void
tap_ask(struct events *ev, struct watch *w, mono_ns now)
{
	char frame[64];

	for (unsigned i = 0; i < w->n_rows; i++) {
		struct msg_tap m = {.row = w->row[i].row, .row_gen = w->row[i].row_gen,
				    .word = ev->word};
		ssize_t n = msg_pack(MSG_tap, &m, frame, sizeof frame);

		if (n > 0)
			zmq_send(zsock_resolve(ev->sock), frame, (size_t)n, ZMQ_DONTWAIT);
	}
	w->renewed = now;
}

static struct watch *
watch_find(struct events *ev, const char *worker)
{
	for (unsigned i = 0; i < EVENTS_WATCHES; i++)
		if (ev->watch[i].told && strcmp(ev->watch[i].worker, worker) == 0)
			return &ev->watch[i];
	return NULL;
}

static struct watch *
watch_begin(struct events *ev, const char *worker, mono_ns now, json_t **ret_refused)
{
	struct watch *w = NULL;

	for (unsigned i = 0; i < EVENTS_WATCHES && !w; i++)
		if (!ev->watch[i].told)
			w = &ev->watch[i];
	if (!w) {
		*ret_refused = pm_verb_refusal("busy", "%u workers are watched already",
					       EVENTS_WATCHES);
		return NULL;
	}
	*w = (struct watch){.began = now, .asked = now, .next = 1};
	strncpy(w->worker, worker, sizeof w->worker - 1);
	rows_of(ev, w);
	if (w->n_rows == 0) {
		*ret_refused = pm_verb_refusal("bad_request", "no worker \"%s\"", worker);
		return NULL;
	}
	w->told = calloc(EVENTS_KEPT, sizeof w->told[0]);
	if (w->told)
		tap_ask(ev, w, now);
	return w->told ? w : NULL;
}

static bool
begun(const struct watch *w)
{
	for (unsigned i = 0; i < w->n_rows; i++)
		if (!w->row[i].begun)
			return false;
	return true;
}

/* ---- answers ---- */

static const char *
outcome_name(unsigned outcome)
{
	static const char *const names[TAP_OUTCOMES] = {
		[TAP_BEGUN] = "-", [TAP_APPLIED] = "applied", [TAP_KEPT] = "kept",
		[TAP_SKIPPED] = "skipped", [TAP_FAILED] = "failed",
	};

	return outcome < TAP_OUTCOMES ? names[outcome] : "unknown";
}

static json_t *
text_or_null(const char *text)
{
	return text[0] ? pm_json_text(text, TEXT_KEPT) : json_null();
}

static json_t *
told_of(const struct told *t, uint64_t number)
{
	bool event = t->type != 0;
	json_t *o = json_object();

	json_object_set_new(o, "number", json_integer((json_int_t)number));
	json_object_set_new(o, "when", pm_json_wall(t->when, 6));
	json_object_set_new(o, "rank", json_integer(t->rank));
	json_object_set_new(o, "seq", json_integer((json_int_t)t->seq));
	json_object_set_new(o, "type", event ? json_string(kv_event_type_name(
						(enum kv_event_type)t->type)) : json_null());
	json_object_set_new(o, "outcome", json_string(outcome_name(t->outcome)));
	json_object_set_new(o, "reason", text_or_null(t->reason));
	json_object_set_new(o, "blocks", pm_json_integer_if(event, t->blocks));
	json_object_set_new(o, "block_tokens", pm_json_integer_if(t->block_tokens != 0,
								   t->block_tokens));
	json_object_set_new(o, "tokens", pm_json_integer_if(event, t->tokens));
	json_object_set_new(o, "medium", text_or_null(t->medium));
	json_object_set_new(o, "group", pm_json_integer_if(t->group != UINT32_MAX, t->group));
	json_object_set_new(o, "lora", text_or_null(t->lora));
	json_object_set_new(o, "parent", t->parent ? pm_json_hex(t->parent) : json_null());
	json_object_set_new(o, "first", t->first ? pm_json_hex(t->first) : json_null());
	return o;
}

static uint64_t
integer_or(const json_t *request, const char *key, uint64_t otherwise)
{
	const json_t *v = json_object_get(request, key);

	return v ? (uint64_t)json_integer_value(v) : otherwise;
}

static json_t *
result_of(const struct watch *w, const json_t *request)
{
	uint64_t after = integer_or(request, "after", w->next - 1), oldest, lost = 0;
	unsigned limit = (unsigned)integer_or(request, "limit", PM_VERB_EVENTS_DEFAULT);
	json_t *o = json_object(), *list = json_array();

	if (after >= w->next)                   /* of a watch before this one */
		after = w->next - 1;
	oldest = w->next > EVENTS_KEPT ? w->next - EVENTS_KEPT : 1;
	if (after + 1 < oldest) {
		lost = oldest - after - 1;
		after = oldest - 1;
	}
	for (; after + 1 < w->next && json_array_size(list) < limit; after++)
		json_array_append_new(list, told_of(&w->told[(after + 1) % EVENTS_KEPT],
						    after + 1));
	json_object_set_new(o, "worker", pm_json_text(w->worker, sizeof w->worker));
	json_object_set_new(o, "ranks", json_integer(w->n_rows));
	json_object_set_new(o, "watching", json_boolean(begun(w)));
	json_object_set_new(o, "events", list);
	json_object_set_new(o, "next", json_integer((json_int_t)after));
	json_object_set_new(o, "lost", json_integer((json_int_t)lost));
	json_object_set_new(o, "dropped", json_integer((json_int_t)w->dropped));
	return o;
}

/* Is there something to answer?  Without "after": as soon as it is watched. */
static bool
ripe(const struct watch *w, const json_t *request, mono_ns now)
{
	const json_t *after = json_object_get(request, "after");

	if (!after)
		return begun(w) || now >= w->began + BEGIN_NS;
	return w->next > (uint64_t)json_integer_value(after) + 1;
}

json_t *
events_ask(struct events *ev, const json_t *request, mono_ns now, json_t **ret_refused)
{
	const char *worker = json_string_value(json_object_get(request, "worker"));
	struct watch *w = watch_find(ev, worker);
	bool room = false;

	if (!w)
		w = watch_begin(ev, worker, now, ret_refused);
	if (!w)
		return NULL;
	w->asked = now;
	if (ripe(w, request, now) || (json_object_get(request, "after") &&
				      integer_or(request, "wait_ms", 0) == 0))
		return result_of(w, request);
	for (unsigned i = 0; i < EVENTS_WAITING; i++)
		room |= !ev->waiting[i].way_back;
	if (!room)
		*ret_refused = pm_verb_refusal("busy", "%u questions wait for events already",
					       EVENTS_WAITING);
	return NULL;
}

void
events_keep(struct events *ev, zmsg_t **way_back, json_t *request, enum wire_form form)
{
	uint64_t wait = json_object_get(request, "after") ?
				integer_or(request, "wait_ms", 0) * MS : BEGIN_NS;

	for (unsigned i = 0; i < EVENTS_WAITING; i++) {
		struct waiting *at = &ev->waiting[i];

		if (at->way_back)
			continue;
		*at = (struct waiting){.way_back = *way_back, .request = request, .form = form,
				       .until = clock_mono() + wait};
		*way_back = NULL;
		return;
	}
	zmsg_destroy(way_back);
	json_decref(request);
}

static void
answer_ripe(struct events *ev, mono_ns now)
{
	for (unsigned i = 0; i < EVENTS_WAITING; i++) {
		struct waiting *at = &ev->waiting[i];
		struct watch *w;

		if (!at->way_back)
			continue;
		w = watch_find(ev, json_string_value(json_object_get(at->request, "worker")));
		if (w && now < at->until && !ripe(w, at->request, now))
			continue;
		if (w) {
			w->asked = now;
			ev->said(ev->arg, &at->way_back, at->request, at->form,
				 result_of(w, at->request));
		}
		waiting_free(at);
	}
}

/* ---- what kvevents says ---- */

static void
keep(char to[TEXT_KEPT], struct slice text)
{
	size_t n = text.len < TEXT_KEPT - 1 ? text.len : TEXT_KEPT - 1;

	memcpy(to, text.p, n);
	to[n] = 0;
}

static void
take(struct watch *w, struct watched_row *row, const struct msg_tapped *m)
{
	struct told *t;

	if (m->outcome == TAP_BEGUN) {
		row->begun = true;
		if (m->number < row->number)    /* another kvevents: it begins anew */
			row->number = m->number;
		return;
	}
	if (m->number > row->number + 1)
		w->dropped += m->number - row->number - 1;
	row->number = m->number;
	t = &w->told[w->next++ % EVENTS_KEPT];
	*t = (struct told){
		.seq = m->seq, .parent = m->parent, .first = m->first, .when = m->when,
		.blocks = m->blocks, .block_tokens = m->block_tokens, .tokens = m->tokens,
		.group = m->group, .rank = row->rank, .outcome = m->outcome, .type = m->type,
	};
	keep(t->medium, m->medium);
	keep(t->lora, m->lora);
	keep(t->reason, m->reason);
}

static void
on_tapped(struct events *ev, const struct msg_tapped *m)
{
	for (unsigned i = 0; i < EVENTS_WATCHES; i++) {
		struct watch *w = &ev->watch[i];

		for (unsigned k = 0; w->told && k < w->n_rows; k++)
			if (w->row[k].row == m->row && w->row[k].row_gen == m->row_gen)
				take(w, &w->row[k], m);
	}
}

void
events_receive(struct events *ev, mono_ns now)
{
	for (unsigned i = 0; i < RECEIVE_TURN; i++) {
		zmq_msg_t frame;
		struct msg m;
		int n;

		zmq_msg_init(&frame);
		n = zmq_msg_recv(&frame, zsock_resolve(ev->sock), ZMQ_DONTWAIT);
		if (n >= 0 && msg_unpack(zmq_msg_data(&frame), (size_t)n, &m) == 0 &&
		    m.id == MSG_tapped)
			on_tapped(ev, &m.u.tapped);
		zmq_msg_close(&frame);
		if (n < 0)
			break;
	}
	answer_ripe(ev, now);
}

void
events_tick(struct events *ev, mono_ns now)
{
	answer_ripe(ev, now);
	for (unsigned i = 0; i < EVENTS_WATCHES; i++) {
		struct watch *w = &ev->watch[i];

		if (!w->told)
			continue;
		if (now >= w->asked + EVENTS_IDLE_NS) {
			free(w->told);
			*w = (struct watch){0};
		} else if (now >= w->renewed + RENEW_NS) {
			tap_ask(ev, w, now);
		}
	}
}
