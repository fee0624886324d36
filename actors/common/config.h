/* actors/common/config.h -- one generation of the configuration as a shared segment.
 *
 *      segment header | snapshot bytes (manifest.h "Snapshot")
 *      geometry[0] snapshot bytes    [1] manifest_hash() = config_hash    [2] generation
 *
 * Writers    the supervisor, before the segment is published; never changed afterwards.
 * Readers    every process: it loads the snapshot with the loader the supervisor used, so all see
 *            the same thing however the files change.  A newer generation comes as a new segment
 *            message; kvevents, metrics, admin and ingress replace the older one then, a policy
 *            process is born with the only one it will ever have.
 * Cost       loading parses YAML: milliseconds; at birth and at a reload only.
 */
#pragma once
#include "actors/common/decide/manifest.h"
#include "shm/segment.h"

#define CONFIG_LAYOUT 1u

int config_create(struct segment *ret, const struct manifest *manifest, uint32_t generation);
	/* Supervisor.  Published.  0, -ENOMEM, -errno. */
int config_load(int fd, struct manifest **ret, uint32_t *ret_generation, struct yaml_errors *errs);
	/* Takes fd.  Checks the segment, its length and its hash before the manifest is believed.
	 * 0; -EINVAL with complaints in errs; -ESTALE, -EBADMSG, -ENOMEM from segment_attach.
	 * ret_generation may be NULL.  Free *ret with manifest_free(). */
