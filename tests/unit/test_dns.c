/* test_dns.c -- DNS answers, whole and otherwise. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/dns.h"

#define QUESTION "\x01w\x04host\x00\x00\x01\x00\x01"
#define HEAD(flags, answers) "\x12\x34" flags "\x80\x00\x01\x00" answers "\x00\x00\x00\x00"
#define AT_NAME "\xc0\x0c" /* the name asked for */
#define SERVICE(len) AT_NAME "\x00\x21\x00\x01\x00\x00\x00\x05\x00" len "\x00\x00\x00\x01"
#define BYTES(text) (const uint8_t *)(text), sizeof(text) - 1

static struct dns_record R[4];
static struct dns_answer A;

Test(dns, addresses_are_read_behind_their_alias_with_the_least_ttl)
{
	static const char text[] = HEAD("\x85", "\x03") QUESTION
		AT_NAME "\x00\x05\x00\x01\x00\x00\x00\x07\x00\x04\x01v\xc0\x0e"
		"\xc0\x27\x00\x01\x00\x01\x00\x00\x00\x1e\x00\x04\x0a\x00\x00\x01"
		"\xc0\x27\x00\x01\x00\x01\x00\x00\x00\x1e\x00\x04\x0a\x00\x00\x02";

	cr_assert_eq(dns_answer_read(BYTES(text), DNS_A, R, 4, &A), 0);
	cr_assert_eq(A.n, 2);
	cr_assert_eq(A.ttl_s, 7);
	cr_assert(A.authoritative);
	cr_assert_eq(memcmp(R[1].addr, "\x0a\x00\x00\x02", 4), 0);
	cr_assert_eq(dns_answer_read(BYTES(text), DNS_AAAA, R, 4, &A), 0);
	cr_assert_eq(A.n, 0);
	cr_assert_eq(A.other, 3, "it says nothing of them, and not that there are none");
	cr_assert_eq(dns_answer_read(BYTES(text), DNS_A, R, 1, &A), 0);
	cr_assert_eq(A.n, 1);
	cr_assert_eq(A.more, 1, "what does not fit is counted");
	for (size_t len = 0; len < sizeof(text) - 1; len++) {
		uint8_t *cut = malloc(len ? len : 1); /* to the byte: a read behind it is seen */

		memcpy(cut, text, len);
		cr_assert_eq(dns_answer_read(cut, len, DNS_A, R, 4, &A), -EBADMSG, "%zu", len);
		free(cut);
	}
}

Test(dns, services_are_read_with_targets_that_point_backwards)
{
	static const char text[] = HEAD("\x80", "\x02") QUESTION
		SERVICE("\x0c") "\x1f\x40\x03v-0\xc0\x0e"
		SERVICE("\x07") "\x1f\x41\x00";

	cr_assert_eq(dns_answer_read(BYTES(text), DNS_SRV, R, 4, &A), 0);
	cr_assert_eq(A.n, 2);
	cr_assert_not(A.authoritative);
	cr_assert_eq(R[0].port, 8000);
	cr_assert_str_eq(R[0].target, "v-0.host");
	cr_assert_str_eq(R[1].target, "");
}

Test(dns, an_answer_without_records_says_so)
{
	static const char text[] = HEAD("\x84", "\x00") QUESTION;

	cr_assert_eq(dns_answer_read(BYTES(text), DNS_A, R, 4, &A), 0);
	cr_assert_eq(A.n, 0);
	cr_assert_eq(A.other + A.bad, 0);
	cr_assert_eq(A.ttl_s, DNS_NO_TTL);
	cr_assert(A.authoritative);
}

Test(dns, an_answer_that_says_it_is_cut_short_is_none)
{
	static const char none[] = HEAD("\x86", "\x00") QUESTION;
	static const char one[] = HEAD("\x86", "\x01") QUESTION
		AT_NAME "\x00\x01\x00\x01\x00\x00\x00\x1e\x00\x04\x0a\x00\x00\x01";

	cr_assert_eq(dns_answer_read(BYTES(none), DNS_A, R, 4, &A), -EBADMSG);
	cr_assert_eq(dns_answer_read(BYTES(one), DNS_A, R, 4, &A), -EBADMSG);
}

Test(dns, a_name_that_goes_round_or_forward_or_is_no_host_skips_its_record)
{
	static const char *const targets[] = {
		"\x03v-0\xc0\x2b", "\xc0\x2b", "\xc0\xff", "\x03v/0\x00", "\x03v 0\x00",
	};

	for (size_t i = 0; i < sizeof(targets) / sizeof(targets[0]); i++) {
		char text[128] = HEAD("\x84", "\x01") QUESTION
			SERVICE("\x0c") "\x1f\x40";
		size_t at = 12 + 12 + 2 + 10 + 6, n = i == 1 || i == 2 ? 2 : i == 0 ? 6 : 5;

		text[at - 7] = (char)(6 + n);
		memcpy(text + at, targets[i], n);
		cr_assert_eq(dns_answer_read((uint8_t *)text, at + n, DNS_SRV, R, 4, &A), 0);
		cr_assert_eq(A.n, 0, "%zu", i);
		cr_assert_eq(A.bad, 1, "%zu", i);
	}
}

Test(dns, any_byte_may_be_wrong)
{
	static const char good[] = HEAD("\x84", "\x02") QUESTION
		SERVICE("\x0c") "\x1f\x40\x03v-0\xc0\x0e"
		SERVICE("\x07") "\x1f\x41\x00";
	uint8_t *text = malloc(sizeof(good) - 1);

	for (size_t i = 0; i < sizeof(good) - 1; i++)
		for (unsigned b = 0; b < 256; b++) {
			memcpy(text, good, sizeof(good) - 1);
			text[i] = (uint8_t)b;
			dns_answer_read(text, sizeof(good) - 1, DNS_SRV, R, 4, &A);
			cr_assert_leq(A.n, 2);
		}
	free(text);
}
