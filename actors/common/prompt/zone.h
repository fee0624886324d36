/* actors/common/prompt/zone.h -- local time of a worker: what strftime_now of its templates says.
 *
 * Meaning    a zone is a list of {from, offset}, in order: from that second of UTC on, local time
 *            is UTC + offset.  It is read from the system's time zone files once, when a model is
 *            built, and travels with the blob: who renders opens no file.
 * Source     RFC 8536, the transitions of the file's newest data block.  A file that holds rules
 *            instead of transitions for the years to come is refused (Debian's hold them to 2037).
 * Threads    pure.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "actors/common/prompt/bump.h"
#include "actors/common/prompt/jinja.h"
#include "actors/common/prompt/value.h"
#include "proto/slice.h"

int zone_read(struct slice file, int64_t from, struct bump *bump, struct value *ret, char *why,
	      size_t why_len);
	/* file: a TZif file's bytes.  *ret: the list [[from, offset], ...], the first entry for
	 * all before the second.  What ended before `from` is left out.  0; -EINVAL no such
	 * file, -ENOTSUP rules are needed, -ENOMEM. */

struct zone_span {
	int64_t from_s;
	int32_t offset_s;
};

struct zone {
	const struct zone_span *span;           /* at least one */
	uint32_t n;
};

int zone_open(struct value list, struct bump *bump, struct zone *ret);
	/* Of such a list: -EBADMSG, -ENOMEM. */
void zone_set(const struct zone *zone, struct jinja_options *options);
	/* utc_offset_s, for options->now_s. */
