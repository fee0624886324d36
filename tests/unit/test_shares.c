/* tests/unit/test_shares.c -- who is given which segment, and with what right. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "actors/common/birth.h"
#include "actors/supervisor/supervisor.h"

static const enum process_role readers[] = {ROLE_INGRESS, ROLE_KVEVENTS, ROLE_METRICS, ROLE_POLICY,
					    ROLE_ADMIN, ROLE_TOOL};

static unsigned
access_of(enum segment_kind kind, enum process_role owner, uint32_t inc, enum process_role role,
	  uint32_t role_inc)
{
	struct share share = {.kind = kind, .role = owner, .incarnation = inc, .generation = 1};

	return share_access(&share, role, role_inc, 1);
}

Test(shares, every_segment_has_at_most_one_writing_process)
{
	for (unsigned kind = 1; kind < SEGMENT_KINDS; kind++) {
		unsigned writers = 0;

		for (unsigned r = 0; r < sizeof readers / sizeof readers[0]; r++)
			writers += access_of(kind, ROLE_INGRESS, 5, readers[r], 5) == SHARE_WRITE;
		/* Lines of a row have one writer each: metrics and kvevents share the segment.
		 * Pins have no owner: every ingress writes, and no other role. */
		cr_assert_leq(writers, kind == SEGMENT_ROWS ? 2 : 1, "%s",
			      segment_kind_name(kind));
	}
}

Test(shares, another_incarnation_never_writes_what_its_predecessor_wrote)
{
	static const enum segment_kind own[] = {SEGMENT_COLUMN, SEGMENT_SLOTS, SEGMENT_ARENA,
						SEGMENT_PROCESS};

	for (unsigned i = 0; i < 4; i++) {
		cr_assert_eq(access_of(own[i], ROLE_INGRESS, 5, ROLE_INGRESS, 5), SHARE_WRITE);
		cr_assert_neq(access_of(own[i], ROLE_INGRESS, 5, ROLE_INGRESS, 6), SHARE_WRITE);
	}
}

Test(shares, every_ingress_writes_where_responses_are_kept_and_nobody_else_does)
{
	cr_assert_eq(access_of(SEGMENT_PINS, ROLE_INGRESS, 0, ROLE_INGRESS, 6), SHARE_WRITE);
	cr_assert_eq(access_of(SEGMENT_PINS, ROLE_INGRESS, 0, ROLE_INGRESS, 7), SHARE_WRITE);
	cr_assert_eq(access_of(SEGMENT_PINS, ROLE_INGRESS, 0, ROLE_POLICY, 8), SHARE_READ);
	cr_assert_eq(access_of(SEGMENT_PINS, ROLE_INGRESS, 0, ROLE_KVEVENTS, 8), SHARE_NO);
	cr_assert_eq(access_of(SEGMENT_PINS, ROLE_INGRESS, 0, ROLE_METRICS, 8), SHARE_NO);
}

Test(shares, every_ingress_writes_what_tenants_use_and_decisions_do_not_read_it)
{
	cr_assert_eq(access_of(SEGMENT_LIMITS, ROLE_INGRESS, 0, ROLE_INGRESS, 6), SHARE_WRITE);
	cr_assert_eq(access_of(SEGMENT_LIMITS, ROLE_INGRESS, 0, ROLE_INGRESS, 7), SHARE_WRITE);
	cr_assert_eq(access_of(SEGMENT_LIMITS, ROLE_INGRESS, 0, ROLE_ADMIN, 8), SHARE_READ);
	cr_assert_eq(access_of(SEGMENT_LIMITS, ROLE_INGRESS, 0, ROLE_TOOL, 8), SHARE_READ);
	cr_assert_eq(access_of(SEGMENT_LIMITS, ROLE_INGRESS, 0, ROLE_POLICY, 8), SHARE_NO);
	cr_assert_eq(access_of(SEGMENT_LIMITS, ROLE_INGRESS, 0, ROLE_METRICS, 8), SHARE_NO);
}

Test(shares, every_ingress_reads_the_columns_of_all_others)
{
	cr_assert_eq(access_of(SEGMENT_COLUMN, ROLE_INGRESS, 5, ROLE_INGRESS, 6), SHARE_READ);
	cr_assert_eq(access_of(SEGMENT_SLOTS, ROLE_INGRESS, 5, ROLE_INGRESS, 6), SHARE_NO);
}

Test(shares, only_policy_reads_what_people_wrote)
{
	for (unsigned r = 0; r < sizeof readers / sizeof readers[0]; r++)
		cr_assert_eq(access_of(SEGMENT_ARENA, ROLE_INGRESS, 5, readers[r], 9) != SHARE_NO,
			     readers[r] == ROLE_POLICY);
}

Test(shares, policy_writes_nothing_but_its_own_process_segment)
{
	for (unsigned kind = 1; kind < SEGMENT_KINDS; kind++)
		cr_assert_neq(access_of(kind, ROLE_INGRESS, 5, ROLE_POLICY, 9), SHARE_WRITE);
	cr_assert_eq(access_of(SEGMENT_PROCESS, ROLE_POLICY, 9, ROLE_POLICY, 9), SHARE_WRITE);
}

Test(shares, documents_of_another_generation_are_not_shown)
{
	struct share share = {.kind = SEGMENT_CONFIG, .role = ROLE_SUPERVISOR, .generation = 4};

	cr_assert_eq(share_access(&share, ROLE_POLICY, 9, 4), SHARE_READ);
	cr_assert_eq(share_access(&share, ROLE_POLICY, 9, 5), SHARE_NO);
	cr_assert_eq(share_access(&share, ROLE_METRICS, 9, 3), SHARE_NO);
}

Test(shares, reader_gets_a_descriptor_that_cannot_be_mapped_for_writing)
{
	static struct supervisor s;
	struct outbox out = {0};
	struct roster roster;
	char buf[1024];
	int pair[2], fd;

	cr_assert_eq(roster_create(&roster), 0);
	cr_assert_eq(shares_add(&s, &roster.seg, SEGMENT_ROSTER, ROLE_SUPERVISOR, 0, 0, 0), 0);
	cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
	cr_assert_eq(share_send(&out, pair[0], &s.share[0], false), 0);
	cr_assert_gt(msg_recv_fd(pair[1], buf, sizeof buf, &fd), 0);
	cr_assert_geq(fd, 0);
	cr_assert_eq(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
	cr_assert_eq(errno, EACCES);
	cr_assert_eq(roster_attach(&roster, fd), 0);
}

Test(shares, what_a_process_wrote_is_shared_though_it_dies_before_the_switch_is_over)
{
	static struct supervisor s;
	static struct child admin = {.role = ROLE_ADMIN, .incarnation = 2};
	struct roster any;
	char buf[1024];
	int pair[2], fd;

	for (unsigned i = 0; i < CONTROL_CLIENTS; i++)
		s.client[i].fd = -1;
	cr_assert_eq(roster_create(&any), 0);
	cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, pair), 0);
	admin.sock = pair[0];
	s.child[0] = &admin;
	cr_assert_eq(shares_add(&s, &any.seg, SEGMENT_PROCESS, ROLE_POLICY, 0, 7, 1), 0);
	shares_announce_owner(&s, 7);
	cr_assert_lt(msg_recv_fd(pair[1], buf, sizeof buf, &fd), 0, "it can wait");
	shares_flush_owner(&s, 8);
	cr_assert_lt(msg_recv_fd(pair[1], buf, sizeof buf, &fd), 0, "another died");
	shares_flush_owner(&s, 7);
	cr_assert_gt(msg_recv_fd(pair[1], buf, sizeof buf, &fd), 0);
	cr_assert_geq(fd, 0);
	close(fd);
	shares_flush(&s, clock_mono());
	cr_assert_lt(msg_recv_fd(pair[1], buf, sizeof buf, &fd), 0, "once");
	roster_detach(&any);
}

Test(shares, a_model_goes_to_those_who_make_tokens_and_to_its_generation_only)
{
	struct share share = {.kind = SEGMENT_MODEL, .role = ROLE_SUPERVISOR, .generation = 4};

	for (unsigned role = ROLE_INGRESS; role < ROLE_COUNT; role++) {
		bool reads = role == ROLE_POLICY || role == ROLE_METRICS;

		cr_expect_eq(share_access(&share, (enum process_role)role, 9, 4),
			     reads ? SHARE_READ : SHARE_NO);
		cr_expect_eq(share_access(&share, (enum process_role)role, 9, 5), SHARE_NO);
	}
}

Test(shares, keys_go_to_those_who_use_them_and_to_no_tool)
{
	static const struct {
		enum segment_kind kind;
		enum process_role reader;
	} table[] = {{SEGMENT_SECRETS, ROLE_INGRESS}, {SEGMENT_TRUST, ROLE_POLICY},
		     {SEGMENT_PROBES, ROLE_METRICS}};

	for (unsigned i = 0; i < sizeof table / sizeof table[0]; i++) {
		struct share share = {.kind = table[i].kind, .role = ROLE_SUPERVISOR,
				      .generation = 4};

		for (unsigned role = ROLE_INGRESS; role < ROLE_COUNT; role++)
			cr_expect_eq(share_access(&share, (enum process_role)role, 9, 4),
				     role == (unsigned)table[i].reader ? SHARE_READ : SHARE_NO,
				     "%s", segment_kind_name(table[i].kind));
		cr_expect_eq(share_access(&share, table[i].reader, 9, 5), SHARE_NO);
	}
}
