/* actors/common/config.c -- see config.h. */
#include "actors/common/config.h"

#include <errno.h>
#include <string.h>

int
config_create(struct segment *ret, const struct manifest *manifest, uint32_t generation)
{
	const uint64_t geometry[4] = {manifest->snapshot_len, manifest_hash(manifest), generation,
				      0};
	struct segment seg;
	int r;

	r = segment_create(&seg, SEGMENT_CONFIG, CONFIG_LAYOUT,
			   SEGMENT_BODY + manifest->snapshot_len, geometry);
	if (r < 0)
		return r;
	memcpy(segment_body(&seg), manifest->snapshot, manifest->snapshot_len);
	seg.head->owner_role = ROLE_SUPERVISOR;
	segment_publish(&seg);
	*ret = seg;
	return 0;
}

int
config_load(int fd, struct manifest **ret, uint32_t *ret_generation, struct yaml_errors *errs)
{
	struct manifest *manifest;
	struct segment seg;
	uint64_t len;
	int r;

	r = segment_attach(&seg, fd, SEGMENT_CONFIG, CONFIG_LAYOUT, false);
	if (r < 0)
		return r;
	len = seg.head->geometry[0];
	if (len > seg.size - SEGMENT_BODY) {
		segment_detach(&seg);
		return -EBADMSG;
	}
	r = manifest_load_snapshot(segment_body(&seg), (size_t)len, &manifest, errs);
	if (r == 0 && manifest_hash(manifest) != seg.head->geometry[1]) {
		manifest_free(&manifest);
		r = -EBADMSG;
	}
	if (r == 0) {
		*ret = manifest;
		if (ret_generation)
			*ret_generation = (uint32_t)seg.head->geometry[2];
	}
	segment_detach(&seg);
	return r;
}
