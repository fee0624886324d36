/* tests/unit/test_notes.c -- notes are held for a moment and leave together. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#include "actors/common/actor.h"
#include "actors/ingress/notes.h"

#define NOW 1000000000000ull

static struct birth birth = {.role = ROLE_INGRESS, .index = 1, .incarnation = 5, .note = 77};
static struct column column;
static struct process_segment process;
static struct notes notes;
static void *zmq, *pull;
static uint64_t hashes[4] = {1, 2, 3, 4};
static const struct rec_root root = {.block_tokens = 16,
				     .hashes = {(const char *)hashes, sizeof hashes}};

static void
begin(void)
{
	char endpoint[160], folder[100];
	int wait_ms = 10000, zero = 0;

	strcpy(birth.run_dir, "/tmp/pointsman-test-XXXXXX");
	cr_assert_not_null(mkdtemp(birth.run_dir));
	snprintf(folder, sizeof folder, "%s/kvevents", birth.run_dir);
	cr_assert_eq(mkdir(folder, 0700), 0);
	cr_assert_eq(column_create(&column, 1, 5, 4), 0);
	cr_assert_eq(process_create(&process, ROLE_INGRESS, 1, 5, 1, 1 << 16), 0);
	zmq = zmq_ctx_new();
	pull = zmq_socket(zmq, ZMQ_PULL);
	zmq_setsockopt(pull, ZMQ_RCVTIMEO, &wait_ms, sizeof wait_ms);
	zmq_setsockopt(pull, ZMQ_LINGER, &zero, sizeof zero);
	pm_endpoint(endpoint, sizeof endpoint, birth.run_dir, "kvevents");
	cr_assert_eq(zmq_bind(pull, endpoint), 0);
	cr_assert_eq(notes_open(&notes, zmq, &birth, &column, &process), 0);
}

static void
end(void)
{
	char folder[100];

	notes_close(&notes);
	zmq_close(pull);
	zmq_ctx_term(zmq);
	process_detach(&process);
	column_detach(&column);
	snprintf(folder, sizeof folder, "%s/kvevents", birth.run_dir);
	rmdir(folder);
	rmdir(birth.run_dir);
}

static void
wait_connected(void)
{
	zmq_pollitem_t item = {.socket = notes.sock, .events = ZMQ_POLLOUT};

	cr_assert_eq(zmq_poll(&item, 1, 10000), 1, "never connected");
}

static uint64_t
sent(void)
{
	return atomic_load(&column.head->routed_sent);
}

/* seq of the next routed or proof; *ret_more: it was not the last part. */
static uint64_t
hear(bool *ret_more)
{
	zmq_msg_t frame;
	struct msg m;
	uint64_t seq;

	zmq_msg_init(&frame);
	cr_assert_geq(zmq_msg_recv(&frame, pull, 0), 0, "nothing came");
	cr_assert_eq(msg_unpack(zmq_msg_data(&frame), zmq_msg_size(&frame), &m), 0);
	cr_assert(m.id == MSG_routed || m.id == MSG_proof);
	if (m.id == MSG_proof)
		cr_assert_eq(m.u.proof.hashes.len, 2 * sizeof(uint64_t), "only what is proven");
	else
		cr_assert_eq(m.u.routed.hashes.len, sizeof hashes);
	seq = m.id == MSG_routed ? m.u.routed.seq : m.u.proof.seq;
	*ret_more = zmq_msg_more(&frame);
	zmq_msg_close(&frame);
	return seq;
}

Test(notes, are_held_and_leave_together_when_due, .init = begin, .fini = end)
{
	bool more;

	wait_connected();
	cr_assert_eq(notes.due_ns, 0);
	notes_routed(&notes, 3, 1, &root, NOW);
	notes_proof(&notes, 3, 1, &root, 35, NOW + 1000);
	notes_routed(&notes, 2, 1, &root, NOW + 2000);
	cr_assert_eq(notes.due_ns, NOW + NOTES_HOLD_NS, "the first one's time counts");
	cr_assert_eq(sent(), 0);
	notes_flush(&notes);
	cr_assert_eq(notes.due_ns, 0);
	cr_assert_eq(sent(), 3);
	for (uint64_t seq = 1; seq <= 3; seq++) {
		cr_assert_eq(hear(&more), seq);
		cr_assert_eq(more, seq < 3, "one message of three parts");
	}
	notes_flush(&notes);            /* nothing is held: nothing is sent */
	notes_routed(&notes, 3, 1, &root, NOW);
	notes_flush(&notes);
	cr_assert_eq(hear(&more), 4);
	cr_assert(!more);
}

Test(notes, more_than_may_be_held_leave_at_once, .init = begin, .fini = end)
{
	bool more = true;

	wait_connected();
	for (unsigned i = 0; i < NOTES_MAX + 1; i++)
		notes_routed(&notes, 3, 1, &root, NOW);
	cr_assert_eq(sent(), NOTES_MAX);
	for (uint64_t seq = 1; seq <= NOTES_MAX; seq++)
		cr_assert_eq(hear(&more), seq);
	cr_assert(!more);
	cr_assert_eq(notes.held, 1);
}

Test(notes, a_prompt_of_any_length_is_noted, .init = begin, .fini = end)
{
	static uint64_t many[20000];
	struct rec_root longer = {.block_tokens = 16, .hashes = {(const char *)many, sizeof many}};
	zmq_msg_t frame;
	struct msg m;
	bool more;

	wait_connected();
	notes_routed(&notes, 3, 1, &root, NOW);
	notes_routed(&notes, 3, 1, &longer, NOW);
	cr_assert_eq(sent(), 1, "what was held made room");
	notes_routed(&notes, 3, 1, &root, NOW);
	cr_assert_eq(sent(), 2);
	cr_assert_eq(hear(&more), 1);
	zmq_msg_init(&frame);
	cr_assert_gt(zmq_msg_recv(&frame, pull, 0), (int)sizeof many);
	cr_assert_eq(msg_unpack(zmq_msg_data(&frame), zmq_msg_size(&frame), &m), 0);
	cr_assert(m.u.routed.seq == 2 && m.u.routed.hashes.len == sizeof many);
	zmq_msg_close(&frame);
}

Test(notes, all_that_nobody_takes_are_counted, .init = begin, .fini = end)
{
	wait_connected();
	zmq_close(pull);
	for (unsigned i = 0; i < 1000 && count_get(&process, COUNTER_routed_dropped) == 0; i++) {
		notes_routed(&notes, 3, 1, &root, NOW);
		notes_routed(&notes, 3, 1, &root, NOW);
		notes_flush(&notes);
		usleep(10000);          /* polled: nothing tells that a peer is gone */
	}
	cr_assert_eq(count_get(&process, COUNTER_routed_dropped), 2, "both of one message");
	pull = zmq_socket(zmq, ZMQ_PULL);
}
