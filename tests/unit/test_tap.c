/* tests/unit/test_tap.c -- events of a worker as they are applied, from apply over the real sockets
 * to an answer of verb `events`; waits for events, never for time. */
#include "tests/unit/view_world.h"

#include <stdlib.h>
#include <unistd.h>

#include "actors/admin/events.h"
#include "actors/admin/introspect.h"
#include "actors/common/verbs.h"
#include "actors/kvevents/tap.h"
#include "tests/unit/apply_world.h"

#define WORD 0x1234u
#define WAIT_MS 10000

struct looking {
	struct world k;                         /* kvevents' side */
	struct pm_view view;                    /* admin's */
	struct tap *tap;
	struct events *events;
	char dir[40], endpoint[80];
	json_t *said;                           /* what was waited for */
	unsigned n_said;
};

static void
on_said(void *arg, zmsg_t **way_back, const json_t *request, enum wire_form form, json_t *result)
{
	struct looking *l = arg;

	(void)request;
	cr_assert_eq(form, WIRE_JSON);
	zmsg_destroy(way_back);
	json_decref(l->said);
	l->said = result;
	l->n_said++;
}

static void
look(struct looking *l, uint64_t word)
{
	memset(l, 0, sizeof *l);
	begin(&l->k, 60);
	strcpy(l->dir, "/tmp/pointsman-tap-XXXXXX");
	cr_assert_not_null(mkdtemp(l->dir));
	snprintf(l->endpoint, sizeof l->endpoint, "ipc://%s/tap.sock", l->dir);
	cr_assert_eq(tap_open(&l->tap, l->endpoint, WORD, &l->k.process), 0);
	apply_tap(l->k.apply, l->tap);
	pm_view_init(&l->view);
	world_hand(&l->view, &l->k.rows.seg, SEGMENT_ROWS, ROLE_SUPERVISOR, 0, 0);
	cr_assert_eq(events_open(&l->events, &l->view, l->endpoint, word, on_said, l), 0);
}

static void
part(struct looking *l)
{
	char path[80];

	events_close(&l->events);
	apply_tap(l->k.apply, NULL);
	tap_close(&l->tap);
	json_decref(l->said);
	pm_view_close(&l->view);
	snprintf(path, sizeof path, "%s/tap.sock", l->dir);
	unlink(path);
	rmdir(l->dir);
	end(&l->k);
}

/* Both loops, once something is there; false: nothing came. */
static bool
turn(struct looking *l, int wait_ms)
{
	zmq_pollitem_t at[] = {
		{.socket = zsock_resolve(tap_socket(l->tap)), .events = ZMQ_POLLIN},
		{.socket = zsock_resolve(events_socket(l->events)), .events = ZMQ_POLLIN},
	};
	int n = zmq_poll(at, 2, wait_ms);

	tap_receive(l->tap, clock_mono());
	events_receive(l->events, clock_mono());
	return n > 0;
}

/* A question; its answer's result, waited for if need be (the caller's).  NULL: refused. */
static json_t *
ask(struct looking *l, const char *text, const char *code)
{
	json_t *request = json_loads(text, 0, NULL), *refused = NULL, *result;
	unsigned before = l->n_said;
	zmsg_t *back;

	cr_assert_not_null(request);
	cr_assert_not_null(pm_verb_checked(request, &refused));
	result = events_ask(l->events, request, clock_mono(), &refused);
	if (refused) {
		cr_assert_str_eq(world_text(json_object_get(refused, "error"), "code"), code);
		json_decref(refused);
	}
	if (result || refused) {
		json_decref(request);
		return result;
	}
	back = zmsg_new();
	zmsg_addstr(back, "client");
	events_keep(l->events, &back, request, WIRE_JSON);
	for (unsigned i = 0; i < 1000 && l->n_said == before; i++)
		turn(l, WAIT_MS);
	cr_assert_gt(l->n_said, before);
	return json_incref(l->said);
}

#define ASK(l, ...) \
	ask(l, "{\"v\": 1, \"verb\": \"events\", \"worker\": \"w1\"" __VA_ARGS__ "}", "-")

static void
watch(struct looking *l)
{
	json_t *o = ASK(l, "");

	cr_assert(json_is_true(json_object_get(o, "watching")));
	cr_assert_eq(world_number(o, "next"), 0);
	cr_assert_eq(l->tap->n, 1);
	json_decref(o);
}

static const char *
event_text(const json_t *result, size_t i, const char *key)
{
	return world_text(json_array_get(json_object_get(result, "events"), i), key);
}

Test(tap, each_event_is_told_with_what_came_of_it_and_why)
{
	static const uint64_t stranger[] = {0xabc};
	struct looking l;
	struct prompt p;
	json_t *o;

	look(&l, WORD);
	prompt_make(&p, 100);
	SAY(&l.k, 1, 0, STORED(.hashes = p.engine, .n = 2, .tokens = p.tokens)); /* nobody looks */
	watch(&l);
	SAY(&l.k, 1, 1,
	    STORED(.hashes = p.engine + 2, .n = 3, .parent = p.engine[1],
		   .tokens = p.tokens + 2 * BLOCK, .medium = "GPU"),
	    STORED(.hashes = stranger, .n = 1, .parent = 0xdef, .tokens = p.tokens),
	    STORED(.hashes = stranger, .n = 1, .tokens = p.tokens, .kind = "mamba"),
	    REMOVED(.hashes = p.engine + 4, .n = 1), CLEARED);
	SAY(&l.k, 2, 0, CLEARED);               /* of another worker */
	o = ASK(&l, ", \"after\": 0, \"wait_ms\": 5000");
	while (json_array_size(json_object_get(o, "events")) < 5) {
		json_decref(o);
		turn(&l, WAIT_MS);
		o = ASK(&l, ", \"after\": 0, \"wait_ms\": 5000");
	}
	cr_assert_eq(json_array_size(json_object_get(o, "events")), 5);
	cr_assert_str_eq(event_text(o, 0, "type"), "BlockStored");
	cr_assert_str_eq(event_text(o, 0, "outcome"), "applied");
	cr_assert_str_eq(event_text(o, 0, "medium"), "GPU");
	cr_assert_eq(world_number(json_array_get(json_object_get(o, "events"), 0), "blocks"), 3);
	cr_assert_eq(world_number(json_array_get(json_object_get(o, "events"), 0), "tokens"),
		     3 * BLOCK);
	cr_assert_eq(world_number(json_array_get(json_object_get(o, "events"), 0), "seq"), 1);
	cr_assert_str_eq(event_text(o, 1, "outcome"), "kept");
	cr_assert_str_eq(event_text(o, 1, "reason"), event_trouble_name(TROUBLE_PARENT));
	cr_assert_str_eq(event_text(o, 1, "parent"), "0000000000000def");
	cr_assert_str_eq(event_text(o, 2, "outcome"), "skipped");
	cr_assert_str_eq(event_text(o, 3, "type"), "BlockRemoved");
	cr_assert_str_eq(event_text(o, 3, "outcome"), "applied");
	cr_assert_str_eq(event_text(o, 4, "type"), "AllBlocksCleared");
	cr_assert_eq(world_number(o, "lost") + world_number(o, "dropped"), 0);
	json_decref(o);
	part(&l);
}

Test(tap, who_does_not_know_the_word_hears_nothing)
{
	struct looking l;
	json_t *request, *refused = NULL;

	look(&l, WORD + 1);
	request = json_loads("{\"v\": 1, \"verb\": \"events\", \"worker\": \"w1\"}", 0, NULL);
	cr_assert_null(events_ask(l.events, request, clock_mono(), &refused));
	cr_assert_null(refused);                /* it would wait */
	while (count_get(&l.k.process, COUNTER_messages_refused) == 0)
		cr_assert(turn(&l, WAIT_MS) ||
			  count_get(&l.k.process, COUNTER_messages_refused) > 0);
	cr_assert_eq(l.tap->n, 0);
	json_decref(request);
	part(&l);
}

Test(tap, whoever_does_not_read_loses_events_and_slows_nobody)
{
	enum { MANY = 3 * TAP_QUEUE };
	struct looking l;
	json_t *o;
	json_int_t seen = 0;

	look(&l, WORD);
	watch(&l);
	for (uint64_t seq = 0; seq < MANY; seq++)       /* admin does not turn meanwhile */
		SAY(&l.k, 1, seq, CLEARED);
	cr_assert_eq(atomic_load(&l.k.rows.row[1].applied), MANY);
	while (turn(&l, 200))
		;
	SAY(&l.k, 1, MANY, CLEARED);
	do {
		turn(&l, WAIT_MS);
		o = ASK(&l, ", \"after\": 0, \"limit\": 1000");
		seen = world_number(o, "lost") +
		       (json_int_t)json_array_size(json_object_get(o, "events"));
		cr_assert_leq(json_array_size(json_object_get(o, "events")), 1000);
		if (world_number(o, "dropped") > 0)
			break;
		json_decref(o);
	} while (seen < MANY);
	cr_assert_gt(world_number(o, "dropped"), 0);
	json_decref(o);
	part(&l);
}

Test(tap, looking_on_ends_when_nobody_asks_any_more)
{
	struct looking l;
	json_t *o;

	look(&l, WORD);
	watch(&l);
	tap_tick(l.tap, clock_mono());
	cr_assert(tap_on(l.tap, 1));
	tap_tick(l.tap, clock_mono() + TAP_LEASE_NS + 1);
	cr_assert_not(tap_on(l.tap, 1));
	events_tick(l.events, clock_mono() + EVENTS_IDLE_NS / 2);       /* renews */
	cr_assert(turn(&l, WAIT_MS));
	cr_assert(tap_on(l.tap, 1));
	events_tick(l.events, clock_mono() + EVENTS_IDLE_NS + 1);
	watch(&l);                                      /* anew, from its own 0 */
	o = ASK(&l, ", \"after\": 7");
	cr_assert_eq(world_number(o, "next"), 0);
	json_decref(o);
	part(&l);
}

Test(tap, bounds_are_said_and_unknown_workers_are_refused)
{
	struct looking l;
	json_t *kept[EVENTS_WAITING], *refused = NULL;
	unsigned n = 0;

	look(&l, WORD);
	cr_assert_null(ask(&l, "{\"v\": 1, \"verb\": \"events\", \"worker\": \"nobody\"}",
			   "bad_request"));
	watch(&l);
	while (n < EVENTS_WAITING) {
		zmsg_t *back = zmsg_new();

		zmsg_addstr(back, "client");
		kept[n] = json_loads("{\"worker\": \"w1\", \"after\": 0, \"wait_ms\": 5000}", 0,
				     NULL);
		cr_assert_null(events_ask(l.events, kept[n], clock_mono(), &refused));
		cr_assert_null(refused);
		events_keep(l.events, &back, kept[n++], WIRE_JSON);
	}
	cr_assert_null(ask(&l, "{\"v\": 1, \"verb\": \"events\", \"worker\": \"w1\", "
			       "\"after\": 0, \"wait_ms\": 5000}", "busy"));
	SAY(&l.k, 1, 0, CLEARED);
	while (l.n_said < EVENTS_WAITING + 1)   /* the first was watch()'s */
		cr_assert(turn(&l, WAIT_MS) || l.n_said == EVENTS_WAITING + 1);
	part(&l);
}
