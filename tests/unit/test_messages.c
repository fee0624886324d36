/* proto/messages: every message round-trips, every truncation is refused. */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "proto/messages.h"

static ssize_t
sample_answer(void *buf, size_t cap)
{
	static const uint64_t hashes[3] = {1, 2, 3};
	struct msg_answer a = {
		.number = 7,
		.slot = 3,
		.slot_gen = 9,
		.ask = 2,
		.policy_gen = 1,
		.policy_inc = 5,
		.verdict = VERDICT_CHOOSE,
		.status = 0,
		.priority = -70000,
		.pick = 1u << 31,
		.prompt = 16000,
		.record = 1ull << 40,
		.model = slice_str("m"),
		.n_roots = 1,
		.n_candidates = 2,
	};

	a.roots[0] = (struct rec_root){.root = UINT64_MAX, .block_tokens = 16,
		.hashes = slice_of((const char *)hashes, sizeof hashes)};
	a.candidates[0] =
		(struct rec_candidate){.row = 65534, .row_gen = 1, .uncached = 300, .n_edits = 1};
	a.candidates[0].edits[0] =
		(struct rec_edit){.off = 10, .len = 4, .text = slice_str("\"big\"")};
	a.candidates[1] = (struct rec_candidate){.row = 2, .rank = 65535};
	return msg_pack(MSG_answer, &a, buf, cap);
}

Test(messages, an_answer_with_lists_in_lists_round_trips)
{
	char buf[1024];
	struct msg m;
	ssize_t n = sample_answer(buf, sizeof buf);

	cr_assert_gt(n, 0);
	cr_assert_eq(msg_unpack(buf, (size_t)n, &m), 0);
	cr_assert_eq(m.id, MSG_answer);
	cr_assert_eq(m.u.answer.priority, -70000);
	cr_assert_eq(m.u.answer.pick, 1u << 31);
	cr_assert_eq(m.u.answer.record, 1ull << 40);
	cr_assert_eq(m.u.answer.roots[0].root, UINT64_MAX);
	cr_assert_eq(m.u.answer.roots[0].hashes.len, 24);
	cr_assert_eq(m.u.answer.candidates[0].row, 65534);
	cr_assert(slice_eq_str(m.u.answer.candidates[0].edits[0].text, "\"big\""));
	cr_assert_eq(m.u.answer.candidates[1].rank, 65535);
	cr_assert_eq(m.u.answer.candidates[1].n_edits, 0);
}

Test(messages, every_truncation_is_refused)
{
	char buf[1024];
	struct msg m;
	ssize_t n = sample_answer(buf, sizeof buf);

	for (ssize_t i = 0; i < n; i++)
		cr_assert_lt(msg_unpack(buf, (size_t)i, &m), 0, "length %zd of %zd", i, n);
}

Test(messages, trailing_fields_of_a_newer_sender_are_skipped)
{
	/* [44 go, 1, ["x", {"a": nil}]] */
	static const uint8_t frame[] = {0x93, 44, 1, 0x92, 0xa1, 'x', 0x81, 0xa1, 'a', 0xc0};
	struct msg m;

	cr_assert_eq(msg_unpack(frame, sizeof frame, &m), 0);
	cr_assert_eq(m.id, MSG_go);
}

Test(messages, a_short_message_and_a_number_out_of_range_are_refused)
{
	static const uint8_t few[] = {0x92, 4, 1};                      /* ask needs three */
	static const uint8_t wide[] = {0x94, 4, 0xcf, 1, 0, 0, 0,
				       0,    0, 0,    0, 1, 1}; /* slot is u32 */
	struct msg m;

	cr_assert_eq(msg_unpack(few, sizeof few, &m), -EBADMSG);
	cr_assert_eq(msg_unpack(wide, sizeof wide, &m), -EBADMSG);
}

Test(messages, an_unknown_id_is_named_not_believed)
{
	static const uint8_t frame[] = {0x91, 0xcc, 0x7f};
	struct msg m;

	cr_assert_eq(msg_unpack(frame, sizeof frame, &m), -ENOMSG);
	cr_assert_eq(m.id, 0x7f);
}

Test(messages, a_list_over_its_maximum_is_refused_both_ways)
{
	char buf[4096];
	struct msg_answer a = {.n_candidates = 5};
	struct msg m;
	ssize_t n;

	cr_assert_eq(msg_pack(MSG_answer, &a, buf, sizeof buf), -EINVAL);
	a.n_candidates = 0;
	n = msg_pack(MSG_answer, &a, buf, sizeof buf);
	buf[n - 1] = (char)0x95;                /* candidates: five of nothing */
	memset(buf + n, 0x90, 5);
	cr_assert_eq(msg_unpack(buf, (size_t)n + 5, &m), -EBADMSG);
}

Test(messages, what_does_not_fit_is_said)
{
	char buf[16];

	cr_assert_eq(sample_answer(buf, sizeof buf), -EMSGSIZE);
}
