/* fuzz_dns.c -- no answer makes the reader step outside or run on; what it gives adds up, does not
 * depend on the room there is, and an answer that is cut short is none. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/dns.h"

#define ROOM 8u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
record_check(enum dns_type type, const struct dns_record *r)
{
	if (!memchr(r->target, '\0', sizeof r->target))
		abort();
	if (type != DNS_SRV && (r->target[0] || r->port))
		abort();
	for (const char *p = r->target; *p; p++)
		if (*p <= ' ' || *p == '/' || *p == ':' || *p == '@' || *p > '~')
			abort(); /* it becomes a part of a URL and a member's name */
}

static void
read_check(const uint8_t *data, size_t size, enum dns_type type)
{
	struct dns_record roomy[ROOM], tight[1];
	struct dns_answer all, few;
	int r = dns_answer_read(data, size, type, roomy, ROOM, &all);

	if (r != dns_answer_read(data, size, type, tight, 1, &few))
		abort();
	if (r != 0 && r != -EBADMSG)
		abort();
	if (r != 0)
		return;
	if (all.n > ROOM || all.n + all.more != few.n + few.more || all.bad != few.bad ||
	    all.other != few.other || all.ttl_s != few.ttl_s)
		abort();
	/* A record is 11 bytes at least: none is made up. */
	if ((all.n + all.more + all.bad + all.other) * 11ull > size)
		abort();
	for (unsigned i = 0; i < all.n; i++)
		record_check(type, &roomy[i]);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const enum dns_type types[] = {DNS_A, DNS_AAAA, DNS_SRV};

	for (unsigned i = 0; i < sizeof types / sizeof types[0]; i++)
		read_check(data, size, types[i]);
	return 0;
}
