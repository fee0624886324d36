/* tests/emulator/profile.h -- named sets of engine constants.
 *
 *   l40s-27b-fp8  a 27B FP8 hybrid model on one L40S-class GPU, fitted to published idle figures:
 *                 784-token blocks, 208 of them, 2,048 tokens a step
 *   zero          everything takes no time; 16-token blocks, 65,536 of them: for measuring a router
 *                 alone
 *
 * Everything not timing has vLLM's defaults.  hash_seed is left NULL: set it before engine_new.
 */
#pragma once
#include "tests/emulator/worker.h"

int profile_by_name(const char *name, struct worker_config *ret_cfg);
	/* 0, or -ENOENT. */
