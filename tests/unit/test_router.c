/* tests/unit/test_router.c -- an ingress's socket: only the named one is heard under a name. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "actors/ingress/router.h"

static struct birth birth = {.role = ROLE_INGRESS, .index = 1, .incarnation = 5};
static struct router router;
static void *zmq;
static char endpoint[128];
static void *dealers[4];
static unsigned n_dealers;

static void
begin(void)
{
	char folder[100];

	strcpy(birth.run_dir, "/tmp/pointsman-test-XXXXXX");
	cr_assert_not_null(mkdtemp(birth.run_dir));
	snprintf(folder, sizeof folder, "%s/ingress", birth.run_dir);
	cr_assert_eq(mkdir(folder, 0700), 0);
	memset(birth.key, 7, sizeof birth.key);
	zmq = zmq_ctx_new();
	cr_assert_eq(router_open(&router, zmq, &birth), 0);
	snprintf(endpoint, sizeof endpoint, "ipc://%s/ingress/policy.1.5.sock", birth.run_dir);
}

static void
end(void)
{
	char folder[100];

	router_close(&router);
	while (n_dealers > 0)           /* also of a test that failed: the context waits */
		zmq_close(dealers[--n_dealers]);
	zmq_ctx_term(zmq);
	snprintf(folder, sizeof folder, "%s/ingress", birth.run_dir);
	rmdir(folder);
	rmdir(birth.run_dir);
}

static void *
dealer(const char *name)
{
	void *sock = zmq_socket(zmq, ZMQ_DEALER);
	int linger = 0, wait_ms = 10000;

	zmq_setsockopt(sock, ZMQ_ROUTING_ID, name, strlen(name));
	zmq_setsockopt(sock, ZMQ_LINGER, &linger, sizeof linger);
	zmq_setsockopt(sock, ZMQ_RCVTIMEO, &wait_ms, sizeof wait_ms);
	cr_assert_lt(n_dealers, sizeof dealers / sizeof *dealers);
	dealers[n_dealers++] = sock;
	cr_assert_eq(zmq_connect(sock, endpoint), 0);
	return sock;
}

static void
say_hello(void *sock)
{
	struct msg_hello hello = {.abi = MESSAGES_ABI, .policy_gen = 3, .policy_inc = 9};
	char frame[64];
	ssize_t n = msg_pack(MSG_hello, &hello, frame, sizeof frame);

	cr_assert_eq(zmq_send(sock, frame, (size_t)n, 0), n);
}

static struct router_message
next(void)
{
	zmq_pollitem_t item = {.socket = router.sock, .events = ZMQ_POLLIN};
	struct router_message m;

	cr_assert_eq(zmq_poll(&item, 1, 10000), 1, "nothing came");
	cr_assert(router_next(&router, &m));
	return m;
}

Test(router, the_named_process_is_heard_and_answered, .init = begin, .fini = end)
{
	struct msg_probe probe = {.policy_gen = 3, .policy_inc = 9};
	char name[POLICY_NAME_MAX], frame[64];

	policy_name(name, 3, 9, token_of(birth.key, 3, 9));
	void *sock = dealer(name);
	for (unsigned i = 0; i < 2; i++) {      /* known, and known already */
		say_hello(sock);
		struct router_message m = next();

		cr_assert_eq(m.error, 0);
		cr_assert(m.policy_gen == 3 && m.policy_inc == 9 && m.msg.id == MSG_hello);
		router_done(&m);
	}
	cr_assert_eq(router_send(&router, 3, 9, MSG_probe, &probe), 0);
	cr_assert_gt(zmq_recv(sock, frame, sizeof frame, 0), 0);
	cr_assert_eq(router_send(&router, 3, 8, MSG_probe, &probe), -EHOSTUNREACH);
}

Test(router, a_name_without_its_token_is_nobodys, .init = begin, .fini = end)
{
	struct msg_probe probe = {.policy_gen = 3, .policy_inc = 9};
	char name[POLICY_NAME_MAX];
	void *sock[4];

	sock[0] = dealer("pol.3.9");
	policy_name(name, 3, 9, token_of(birth.key, 3, 8));     /* that of another process */
	sock[1] = dealer(name);
	policy_name(name, 3, 9, 0);
	sock[2] = dealer(name);
	sock[3] = dealer("nobody");
	for (unsigned i = 0; i < 4; i++) {
		say_hello(sock[i]);
		struct router_message m = next();

		cr_assert_eq(m.error, -EBADMSG);
		cr_assert_eq(m.policy_inc, 0);
		router_done(&m);
	}
	/* And none of them is asked. */
	cr_assert_eq(router_send(&router, 3, 9, MSG_probe, &probe), -EHOSTUNREACH);
}
