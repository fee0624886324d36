/* proto/dns.h -- what a DNS answer says: addresses, or targets and ports.
 *
 * Asking, repeating and turning to TCP is a library's business (c-ares); this reads the answer's
 * bytes, of which it wants all TTLs, which that library does not tell of SRV records.
 *
 * Trust      the bytes are a stranger's: every length is checked, names are followed backwards
 *            only and at most DNS_NAME_MAX bytes, nothing is allocated, what is not asked for
 *            is skipped.
 * Errors     -EBADMSG: no whole answer, or one that says it is not (TC, also over TCP).
 *            Records of other types or classes, or with bad data, are skipped and counted.
 * Threads    none shared.   Cost  a pass over the bytes, at most 64 KiB.
 * Sources    RFC 1035 4.1, RFC 2782 (SRV), RFC 3596 (AAAA).
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DNS_NAME_MAX 253u /* bytes as text, without the last dot */
#define DNS_NO_TTL   UINT32_MAX

enum dns_type { DNS_A = 1, DNS_AAAA = 28, DNS_SRV = 33 };

struct dns_record {
	uint8_t addr[16];		/* A: 4 bytes of it; AAAA */
	uint16_t port;			/* SRV */
	char target[DNS_NAME_MAX + 1];	/* SRV; "": the root, which says that there is no service */
};

struct dns_answer {
	bool authoritative;
	unsigned n;	/* records of the type, stored */
	unsigned more;	/* and those beyond cap */
	unsigned bad;	/* of the type, but with data that is none */
	unsigned other;	/* of other types or classes: aliases */
	uint32_t ttl_s; /* the least of all records, aliases too; DNS_NO_TTL: there are none */
};

int dns_answer_read(const uint8_t *bytes, size_t len, enum dns_type type,
		    struct dns_record *records, unsigned cap, struct dns_answer *ret);
	/* 0, -EBADMSG. */
