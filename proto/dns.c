/* proto/dns.c -- see dns.h. */
#include "proto/dns.h"

#include <errno.h>
#include <string.h>

#define HEAD		12u
#define FLAG_AA		0x04u /* of the third byte */
#define FLAG_TC		0x02u
#define CLASS_IN	1u
#define LABEL_MAX	63u
#define POINTER		0xc0u
#define SRV_TARGET	6u /* after priority, weight and port */
#define TTL_MAX		0x7fffffffu /* RFC 2181 8: above it is zero */

struct cursor {
	const uint8_t *bytes;
	size_t len, at;
};

static bool
take_u16(struct cursor *c, uint16_t *ret)
{
	if (c->len - c->at < 2)
		return false;
	*ret = (uint16_t)(c->bytes[c->at] << 8 | c->bytes[c->at + 1]);
	c->at += 2;
	return true;
}

static bool
take_u32(struct cursor *c, uint32_t *ret)
{
	uint16_t high, low;

	if (!take_u16(c, &high) || !take_u16(c, &low))
		return false;
	*ret = (uint32_t)high << 16 | low;
	return true;
}

/* Past a name, which is not followed. */
static bool
skip_name(struct cursor *c)
{
	while (c->at < c->len) {
		uint8_t n = c->bytes[c->at++];

		if (n == 0)
			return true;
		if ((n & POINTER) == POINTER)
			return c->at++ < c->len;
		if (n > LABEL_MAX || c->len - c->at < n)
			return false;
		c->at += n;
	}
	return false;
}

static bool
is_host_byte(uint8_t b)
{
	return (b >= 'a' && b <= 'z') || (b >= 'A' && b <= 'Z') || (b >= '0' && b <= '9') ||
	       b == '-' || b == '_';
}

/* A pointer leads backwards only: each is before the last, so this ends. */
static bool
read_name(const struct cursor *from, char ret[DNS_NAME_MAX + 1])
{
	struct cursor c = *from;
	size_t least = c.at, n_text = 0;

	while (c.at < c.len) {
		uint8_t n = c.bytes[c.at++];

		if (n == 0) {
			ret[n_text > 0 ? n_text - 1 : 0] = '\0'; /* without the last dot */
			return true;
		}
		if ((n & POINTER) == POINTER) {
			if (c.at >= c.len)
				return false;
			c.at = (size_t)(n & ~POINTER) << 8 | c.bytes[c.at];
			if (c.at >= least)
				return false;
			least = c.at;
			continue;
		}
		if (n > LABEL_MAX || c.len - c.at < n || n_text + n + 1 > DNS_NAME_MAX + 1)
			return false;
		for (unsigned i = 0; i < n; i++) {
			if (!is_host_byte(c.bytes[c.at]))
				return false;
			ret[n_text++] = (char)c.bytes[c.at++];
		}
		ret[n_text++] = '.';
	}
	return false;
}

/* False: not what its type should hold. */
static bool
read_data(const struct cursor *data, size_t len, enum dns_type type, struct dns_record *ret)
{
	struct cursor c = *data;

	memset(ret, 0, sizeof(*ret));
	if (type == DNS_A || type == DNS_AAAA) {
		size_t want = type == DNS_A ? 4 : 16;

		if (len != want)
			return false;
		memcpy(ret->addr, c.bytes + c.at, want);
		return true;
	}
	if (len <= SRV_TARGET)
		return false;
	c.at += 4;
	return take_u16(&c, &ret->port) && read_name(&c, ret->target);
}

int
dns_answer_read(const uint8_t *bytes, size_t len, enum dns_type type, struct dns_record *records,
		unsigned cap, struct dns_answer *ret)
{
	struct cursor c = {bytes, len, 4};
	uint16_t questions, answers;

	*ret = (struct dns_answer){.ttl_s = DNS_NO_TTL};
	if (len < HEAD || !take_u16(&c, &questions) || !take_u16(&c, &answers))
		return -EBADMSG;
	if (bytes[2] & FLAG_TC)
		return -EBADMSG;        /* who is missing is not gone */
	ret->authoritative = (bytes[2] & FLAG_AA) != 0;
	c.at = HEAD;
	for (; questions > 0; questions--) {
		if (!skip_name(&c) || c.len - c.at < 4)
			return -EBADMSG;
		c.at += 4;
	}
	for (; answers > 0; answers--) {
		uint16_t is, class, n;
		uint32_t ttl;
		struct dns_record record;

		if (!skip_name(&c) || !take_u16(&c, &is) || !take_u16(&c, &class) ||
		    !take_u32(&c, &ttl) || !take_u16(&c, &n) || c.len - c.at < n)
			return -EBADMSG;
		ttl = ttl > TTL_MAX ? 0 : ttl;
		ret->ttl_s = ttl < ret->ttl_s ? ttl : ret->ttl_s;
		if (is != (uint16_t)type || class != CLASS_IN)
			ret->other++;
		else if (!read_data(&c, n, type, &record))
			ret->bad++;
		else if (ret->n < cap)
			records[ret->n++] = record;
		else
			ret->more++;
		c.at += n;
	}
	return 0;
}
