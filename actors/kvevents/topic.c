/* actors/kvevents/topic.c -- see topic.h. */
#include "actors/kvevents/topic.h"

#include <arpa/inet.h>
#include <string.h>

#include "actors/kvevents/peer_address.h"

#define PREFIX "kv@"
#define PREFIX_LEN 3u
#define HOST_MAX 64u /* longer ones are no address */

bool
topic_split(const char *topic, size_t len, struct topic_fields *ret)
{
	const char *end;

	if (len < PREFIX_LEN || memcmp(topic, PREFIX, PREFIX_LEN) != 0)
		return false;
	end = memchr(topic + PREFIX_LEN, '@', len - PREFIX_LEN);
	if (!end || end == topic + PREFIX_LEN)
		return false;
	ret->id = topic + PREFIX_LEN;
	ret->id_len = (size_t)(end - ret->id);
	ret->model = end + 1;
	ret->model_len = len - (size_t)(ret->model - topic);
	return true;
}

/* The id's host, if that is an IP address: 10.0.0.1, 10.0.0.1:8000, [fd00::1]:8000, fd00::1. */
static bool
id_address(const struct topic_fields *f, struct in6_addr *ret)
{
	char host[HOST_MAX];
	const char *p = f->id;
	size_t n = f->id_len;
	const char *colon = memchr(p, ':', n), *close;

	if (n > 0 && p[0] == '[') {
		close = memchr(p, ']', n);
		if (!close)
			return false;
		p++;
		n = (size_t)(close - p);
	} else if (colon && !memchr(colon + 1, ':', n - (size_t)(colon + 1 - p))) {
		n = (size_t)(colon - p);
	}
	if (n == 0 || n >= sizeof host || memchr(p, '\0', n))
		return false;
	memcpy(host, p, n);
	host[n] = '\0';
	return peer_address_parse(host, ret);
}

static bool
names_another(const char *url_host, const char *topic, size_t len)
{
	struct topic_fields f;
	struct in6_addr ours, theirs;

	if (!topic_split(topic, len, &f) || !peer_address_parse(url_host, &ours) ||
	    !id_address(&f, &theirs) || memcmp(&ours, &theirs, sizeof ours) == 0)
		return false;
	return !peer_address_is_loopback(&ours) || peer_address_is_loopback(&theirs);
}

static bool
ends_field(char last, char next, const char *field)
{
	if (strchr("@/", last) || next == '@' || next == '/')
		return true;
	/* A port; but a colon of an IPv6 address without brackets is in the middle of it. */
	return next == ':' && (last == ']' || !strchr(field, ':'));
}

bool
topic_is_ours(const char *configured, const char *url_host, const char *topic, size_t len)
{
	size_t n = strlen(configured);
	const char *at;

	if (n == 0)
		return !names_another(url_host, topic, len);
	if (len < n || memcmp(topic, configured, n) != 0)
		return false;
	if (len == n)
		return true;
	at = strrchr(configured, '@');
	return ends_field(configured[n - 1], topic[n], at ? at : configured);
}
