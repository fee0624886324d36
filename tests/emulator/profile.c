/* tests/emulator/profile.c -- see profile.h. */
#include "tests/emulator/profile.h"

#include <errno.h>
#include <string.h>

int
profile_by_name(const char *name, struct worker_config *ret_cfg)
{
	struct worker_config cfg = {
		.engine = {
			.block_tokens = 784,
			.num_blocks = 208,
			.max_batched_tokens = 2048,
			.max_seqs = 256,
			.reserve_full_isl = true,
			.hash = BLOCKHASH_SHA256_CBOR,
			.slow_factor = 1,
			.jitter_seed = 1,
		},
	};

	if (strcmp(name, "l40s-27b-fp8") == 0) {
		cfg.engine.t_o_s = 1.5e-3;
		cfg.engine.t_w_s = 38.5e-3;
		cfg.engine.a_s = 0.395e-3;
		cfg.engine.q_s = 2.2e-9;
		cfg.engine.e_s = 0.09e-6;
		cfg.engine.d_s = 0.2e-3;
		cfg.o_fix_s = 15e-3;
		cfg.o_tok_s = 2.5e-6;
		cfg.visible_s = 2e-3;
	} else if (strcmp(name, "zero") == 0) {
		cfg.engine.block_tokens = 16;
		cfg.engine.num_blocks = 65536;
		cfg.engine.max_batched_tokens = 1u << 20;
		cfg.engine.max_seqs = 4096;
		cfg.engine.hash = BLOCKHASH_XXHASH_CBOR;
	} else if (strcmp(name, "remote") == 0) {
		/* A service elsewhere: its answer begins after the same time whatever the prompt
		 * and whoever else asks, and comes at 50 tokens a second. */
		cfg.engine.block_tokens = 16;
		cfg.engine.num_blocks = 65536;
		cfg.engine.max_batched_tokens = 1u << 20;
		cfg.engine.max_seqs = 4096;
		cfg.engine.t_o_s = 20e-3;
		cfg.o_fix_s = 0.5;
	} else {
		return -ENOENT;
	}
	*ret_cfg = cfg;
	return 0;
}
