/* actors/kvevents/topic.h -- is a message on an engine's endpoint that engine's?
 *
 * Who publishes is said by the connection; a topic is only looked at where it can contradict:
 *   - spec.kvTopic is set: the socket lets pass what begins with it, byte by byte, so kv@10.0.0.1
 *     brings kv@10.0.0.10 too.  Here it must end where a field of the topic ends: at its end,
 *     before or behind '@' or '/', or before the ':' of a host's port.
 *   - it is not: any topic will do, but for kv@<id>@<model> whose id is another IP address than
 *     that of the member's URL (a forwarder of many engines).  Names and ports are not compared,
 *     and where the URL is a loopback address, only with other loopback addresses: engines know
 *     themselves by other names than we.  <model> may hold '@' and '/'.
 *
 * Pure; allocates nothing; reads bytes of strangers.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>

struct topic_fields {
	const char *id, *model;         /* borrowed from the topic; not ended by a 0 */
	size_t id_len, model_len;
};

bool topic_split(const char *topic, size_t len, struct topic_fields *ret);
	/* kv@<id>@<model>; false: another form. */
bool topic_is_ours(const char *configured, const char *url_host, const char *topic, size_t len);
	/* configured "": none. */
