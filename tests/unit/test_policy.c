/* tests/unit/test_policy.c -- a real policy process, by its own protocol: this test is its
 * supervisor and its ingress.
 */
#include "tests/unit/policy_world.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <zmq.h>

#include "actors/common/actor.h"
#include "actors/common/config.h"

#define GENERATION 3u
#define TOKEN 0xfeedf00d12345678u
#define NAME "pol.3.9.feedf00d12345678"
#define NAME_LEN (sizeof NAME - 1)
#define LATE_MS 10000           /* an event that never comes ends the test */

struct stage {
	struct world w;
	struct segment config;
	char run_dir[64];
	int sock;               /* our end as supervisor */
	pid_t pid;
	void *zmq, *router;     /* our end as ingress */
	char frame[1 << 16];
};

static void
send_segment(struct stage *s, enum segment_kind kind, enum process_role role, uint32_t incarnation,
	     int fd)
{
	struct msg_segment m = {
		.kind = (uint8_t)kind, .role = (uint8_t)role, .incarnation = incarnation,
		.writable = kind == SEGMENT_PROCESS, .generation = GENERATION,
	};

	cr_assert_eq(msg_send_fd(s->sock, MSG_segment, &m, fd), 0);
}

static struct msg
from_policy(struct stage *s)
{
	struct pollfd p = {.fd = s->sock, .events = POLLIN};
	struct msg m;
	int fd = -1;

	cr_assert_eq(poll(&p, 1, LATE_MS), 1, "the policy process says nothing");
	ssize_t n = msg_recv_fd(s->sock, s->frame, sizeof s->frame, &fd);
	cr_assert_gt(n, 0, "the policy process ended");
	cr_assert_eq(msg_unpack(s->frame, (size_t)n, &m), 0);
	return m;
}

static void
spawn(struct stage *s, const char *bad_config)
{
	char self[512];
	int pair[2];
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 32);

	cr_assert_gt(n, 0);
	self[n] = '\0';
	strcpy(strrchr(self, '/') + 1, "pointsman-policy");
	cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	s->sock = pair[0];
	s->pid = fork();
	if (s->pid == 0) {
		dup2(pair[1], PM_BIRTH_FD);
		execl(self, self, (char *)NULL);
		_exit(127);
	}
	close(pair[1]);
	struct msg_birth birth = {
		.abi = MESSAGES_ABI,
		.role = ROLE_POLICY,
		.incarnation = POLICY_INC,
		.generation = GENERATION,
		.run_dir = slice_str(s->run_dir),
		.log_level = 0,
		.rights = 1,
		.token = TOKEN,
	};
	struct msg_go go = {0};

	cr_assert_eq(msg_send_fd(s->sock, MSG_birth, &birth, -1), 0);
	send_segment(s, SEGMENT_PROCESS, ROLE_POLICY, POLICY_INC, s->w.process.seg.fd);
	send_segment(s, SEGMENT_CONFIG, ROLE_SUPERVISOR, GENERATION, s->config.fd);
	send_segment(s, SEGMENT_ROWS, ROLE_SUPERVISOR, 0, s->w.rows.seg.fd);
	send_segment(s, SEGMENT_PINS, ROLE_INGRESS, 0, s->w.pins.seg.fd);
	if (!bad_config)
		send_segment(s, SEGMENT_INDEX, ROLE_KVEVENTS, 0, s->w.index_seg.fd);
	send_segment(s, SEGMENT_COLUMN, ROLE_INGRESS, 5, s->w.column.seg.fd);
	send_segment(s, SEGMENT_SLOTS, ROLE_INGRESS, 5, s->w.slots.seg.fd);
	send_segment(s, SEGMENT_ARENA, ROLE_INGRESS, 5, s->w.arena.seg.fd);
	cr_assert_eq(msg_send_fd(s->sock, MSG_go, &go, -1), 0);
}

static void
prepare(struct stage *s)
{
	char folder[80];

	memset(s, 0, sizeof *s);
	make_segments(&s->w, "PredictedTTFT");
	cr_assert_eq(config_create(&s->config, s->w.manifest, GENERATION), 0);
	strcpy(s->run_dir, "/tmp/pm-policy-XXXXXX");
	cr_assert_not_null(mkdtemp(s->run_dir));
	snprintf(folder, sizeof folder, "%s/ingress", s->run_dir);
	cr_assert_eq(mkdir(folder, 0700), 0);
}

/* A message of the policy process to its ingress; without one in wait_ms MSG_none. */
static struct msg
to_ingress(struct stage *s, int wait_ms)
{
	zmq_pollitem_t item = {.socket = s->router, .events = ZMQ_POLLIN};
	struct msg m = {.id = MSG_none};
	char who[64];

	if (zmq_poll(&item, 1, wait_ms) <= 0)
		return m;
	int n = zmq_recv(s->router, who, sizeof who, 0);
	cr_assert(n == (int)NAME_LEN && memcmp(who, NAME, NAME_LEN) == 0, "%.*s", n, who);
	n = zmq_recv(s->router, s->frame, sizeof s->frame, 0);
	cr_assert_eq(msg_unpack(s->frame, (size_t)n, &m), 0);
	return m;
}

static void
as_ingress(struct stage *s, enum msg_id id, const void *msg)
{
	char frame[256];
	ssize_t n = msg_pack(id, msg, frame, sizeof frame);

	cr_assert_gt(n, 0);
	cr_assert_eq(zmq_send(s->router, NAME, NAME_LEN, ZMQ_SNDMORE), NAME_LEN);
	cr_assert_eq(zmq_send(s->router, frame, (size_t)n, 0), (int)n);
}

static void
as_supervisor(struct stage *s, enum msg_id id, const void *msg)
{
	cr_assert_eq(msg_send_fd(s->sock, id, msg, -1), 0);
}

/* Born, ready, connected; undecided. */
static void
born(struct stage *s)
{
	char endpoint[256];
	int one = 1, none = 0;

	prepare(s);
	s->zmq = zmq_ctx_new();
	s->router = zmq_socket(s->zmq, ZMQ_ROUTER);
	zmq_setsockopt(s->router, ZMQ_ROUTER_MANDATORY, &one, sizeof one);
	zmq_setsockopt(s->router, ZMQ_LINGER, &none, sizeof none);
	pm_policy_endpoint(endpoint, sizeof endpoint, s->run_dir, 0, 5);
	cr_assert_eq(zmq_bind(s->router, endpoint), 0);
	spawn(s, NULL);
	cr_assert_eq(from_policy(s).id, MSG_ready);
	struct msg m = to_ingress(s, LATE_MS);

	cr_assert_eq(m.id, MSG_hello, "hello is the first message");
	cr_assert_eq(m.u.hello.policy_gen, GENERATION);
	cr_assert_eq(m.u.hello.policy_inc, POLICY_INC);
	cr_assert_eq(m.u.hello.config_hash, manifest_hash(s->w.manifest));
}

static void
open_it(struct stage *s)
{
	struct msg_open open_now = {.policy_gen = GENERATION};
	struct msg_resent resent = {.policy_gen = GENERATION, .policy_inc = POLICY_INC};

	as_ingress(s, MSG_resent, &resent);
	as_supervisor(s, MSG_open, &open_now);
}

static void
gone(struct stage *s)
{
	char path[128];
	int status;

	if (s->pid > 0) {
		struct msg_drain drain = {.deadline = clock_mono() + 1000000000ull};

		as_supervisor(s, MSG_drain, &drain);
		cr_assert_eq(from_policy(s).id, MSG_bye);
		cr_assert_eq(waitpid(s->pid, &status, 0), s->pid);
		cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x",
			  (unsigned)status);
	}
	if (s->router)
		zmq_close(s->router);
	if (s->zmq)
		zmq_ctx_term(s->zmq);
	close(s->sock);
	segment_detach(&s->config);
	end(&s->w);
	snprintf(path, sizeof path, "%s/ingress/policy.0.5.sock", s->run_dir);
	unlink(path);
	snprintf(path, sizeof path, "%s/ingress", s->run_dir);
	rmdir(path);
	rmdir(s->run_dir);
}

static struct msg_ask
ask(struct stage *s, uint32_t first)
{
	struct msg_ask a = put_question(&s->w, OPENAI_COMPLETIONS, ids_body("demo", first, 300));

	as_ingress(s, MSG_ask, &a);
	return a;
}

Test(policy, greets_is_probed_and_ends_when_drained)
{
	struct msg_probe probe = {.policy_gen = GENERATION, .policy_inc = POLICY_INC};
	struct stage s;

	born(&s);
	as_ingress(&s, MSG_probe, &probe);
	struct msg m = to_ingress(&s, LATE_MS);
	cr_assert_eq(m.id, MSG_probed);
	cr_assert_eq(m.u.probed.policy_inc, POLICY_INC);
	gone(&s);
}

Test(policy, decides_once_open_and_every_resent_are_there_oldest_first)
{
	struct stage s;

	born(&s);
	struct msg_ask first = ask(&s, 1000), second = ask(&s, 2000);
	open_it(&s);
	struct msg m = to_ingress(&s, LATE_MS);
	cr_assert_eq(m.id, MSG_answer);
	cr_assert_eq(m.u.answer.slot, first.slot);
	cr_assert_eq(m.u.answer.number, 1);
	cr_assert_eq(m.u.answer.verdict, VERDICT_CHOOSE);
	m = to_ingress(&s, LATE_MS);
	cr_assert_eq(m.u.answer.slot, second.slot);
	cr_assert_eq(m.u.answer.number, 2);
	cr_assert_eq(count_get(&s.w.process, COUNTER_swap_open_late), 0);
	gone(&s);
}

Test(policy, without_open_decides_100_ms_after_its_first_question)
{
	struct stage s;

	born(&s);
	mono_ns before = clock_mono();
	struct msg_ask a = ask(&s, 1000);
	struct msg m = to_ingress(&s, LATE_MS);

	cr_assert_geq(clock_mono() - before, 99000000u);
	cr_assert_eq(m.id, MSG_answer);
	cr_assert_eq(m.u.answer.slot, a.slot);
	cr_assert_eq(count_get(&s.w.process, COUNTER_swap_open_late), 1);
	gone(&s);
}

/* A second ingress is there and has not said RESENT; OPEN and the first's RESENT are. */
static void
half_resent(struct stage *s)
{
	born(s);
	send_segment(s, SEGMENT_COLUMN, ROLE_INGRESS, 6, s->w.column.seg.fd);
	send_segment(s, SEGMENT_SLOTS, ROLE_INGRESS, 6, s->w.slots.seg.fd);
	send_segment(s, SEGMENT_ARENA, ROLE_INGRESS, 6, s->w.arena.seg.fd);
	open_it(s);
}

Test(policy, open_alone_is_not_enough_while_an_ingress_has_not_resent)
{
	struct stage s;

	half_resent(&s);
	ask(&s, 1000);
	cr_assert_eq(to_ingress(&s, LATE_MS).id, MSG_answer);
	cr_assert_eq(count_get(&s.w.process, COUNTER_swap_open_late), 1,
		     "only the 100 ms ended it");
	gone(&s);
}

Test(policy, an_ingress_that_died_is_not_waited_for)
{
	struct msg_gone dead = {.role = ROLE_INGRESS, .index = 0, .incarnation = 6};
	struct stage s;

	half_resent(&s);
	as_supervisor(&s, MSG_gone, &dead);
	ask(&s, 1000);
	cr_assert_eq(to_ingress(&s, LATE_MS).id, MSG_answer);
	cr_assert_eq(count_get(&s.w.process, COUNTER_swap_open_late), 0);
	gone(&s);
}

Test(policy, a_cancelled_question_is_never_answered_and_every_cancel_is)
{
	struct stage s;

	born(&s);
	struct msg_ask a = ask(&s, 1000), b = ask(&s, 2000);
	struct msg_cancel cancel = {.slot = a.slot, .slot_gen = a.slot_gen, .ask = a.ask};
	as_ingress(&s, MSG_cancel, &cancel);
	struct msg_cancel unheard_of = {.slot = 60, .slot_gen = 9, .ask = 9};
	as_ingress(&s, MSG_cancel, &unheard_of);
	open_it(&s);
	struct msg m = to_ingress(&s, LATE_MS);
	cr_assert_eq(m.id, MSG_cancelled);
	cr_assert_eq(m.u.cancelled.slot, a.slot);
	m = to_ingress(&s, LATE_MS);
	cr_assert_eq(m.id, MSG_cancelled);
	cr_assert_eq(m.u.cancelled.slot, 60);
	m = to_ingress(&s, LATE_MS);
	cr_assert_eq(m.id, MSG_answer);
	cr_assert_eq(m.u.answer.slot, b.slot);
	cr_assert_eq(m.u.answer.number, 1, "the cancelled one took no number");
	gone(&s);
}

Test(policy, a_newer_question_for_a_slot_replaces_the_older)
{
	struct stage s;

	born(&s);
	struct msg_ask a = ask(&s, 1000);
	atomic_store(&s.w.slots.slot[a.slot].word, slot_word(a.slot_gen, 2, SLOT_ASKED, 0));
	a.ask = 2;
	as_ingress(&s, MSG_ask, &a);
	open_it(&s);
	struct msg m = to_ingress(&s, LATE_MS);
	cr_assert_eq(m.id, MSG_answer);
	cr_assert_eq(m.u.answer.ask, 2);
	struct msg_probe probe = {.policy_gen = GENERATION, .policy_inc = POLICY_INC};
	as_ingress(&s, MSG_probe, &probe);
	cr_assert_eq(to_ingress(&s, LATE_MS).id, MSG_probed, "and nothing in between");
	cr_assert_eq(count_get(&s.w.process, COUNTER_questions), 2);
	cr_assert_eq(count_get(&s.w.process, COUNTER_decisions), 1);
	gone(&s);
}

Test(policy, drained_before_it_may_decide_gives_every_question_an_end)
{
	struct stage s;
	int status;

	born(&s);
	struct msg_ask a = ask(&s, 1000);
	struct msg_drain drain = {.deadline = clock_mono() + 1000000000ull};
	struct msg_probe probe = {.policy_gen = GENERATION, .policy_inc = POLICY_INC};

	as_ingress(&s, MSG_probe, &probe);
	cr_assert_eq(to_ingress(&s, LATE_MS).id, MSG_probed);
	as_supervisor(&s, MSG_drain, &drain);
	struct msg m = to_ingress(&s, LATE_MS);
	cr_assert_eq(m.id, MSG_cancelled);
	cr_assert_eq(m.u.cancelled.slot, a.slot);
	cr_assert_eq(from_policy(&s).id, MSG_bye);
	cr_assert_eq(waitpid(s.pid, &status, 0), s.pid);
	s.pid = 0;
	gone(&s);
}

Test(policy, garbage_is_counted_and_harms_nobody)
{
	struct stage s;
	char junk[300];

	born(&s);
	memset(junk, 0xdd, sizeof junk);
	for (int i = 0; i < 3; i++) {
		cr_assert_eq(zmq_send(s.router, NAME, NAME_LEN, ZMQ_SNDMORE), NAME_LEN);
		cr_assert_eq(zmq_send(s.router, junk, sizeof junk, 0), (int)sizeof junk);
	}
	struct msg_ask nowhere = {.slot = UINT32_MAX, .slot_gen = 1, .ask = 1};
	as_ingress(&s, MSG_ask, &nowhere);
	struct msg_ask a = ask(&s, 1000);
	open_it(&s);
	struct msg m = to_ingress(&s, LATE_MS);
	cr_assert_eq(m.id, MSG_answer);
	cr_assert_eq(m.u.answer.slot, a.slot);
	cr_assert_eq(count_get(&s.w.process, COUNTER_messages_unknown), 3);
	cr_assert_eq(count_get(&s.w.process, COUNTER_questions_stale), 1);
	gone(&s);
}

Test(policy, a_process_that_cannot_load_says_why_and_exits)
{
	struct stage s;
	int status;

	prepare(&s);
	spawn(&s, "without an index");
	struct msg m = from_policy(&s);
	cr_assert_eq(m.id, MSG_failed);
	cr_assert(slice_eq_str(m.u.failed.text, "prefix index"), "%.*s", (int)m.u.failed.text.len,
		  m.u.failed.text.p);
	cr_assert_eq(waitpid(s.pid, &status, 0), s.pid);
	cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == EXIT_INTERNAL);
	s.pid = 0;
	gone(&s);
}
