/* actors/common/models_build.h -- a model made of the folder that spec.tokenizer names.
 *
 * Users      pointsman-models, which makes them for the supervisor; pointsctl check.
 * Errors     0 / -errno and why, which names the file; nothing is logged.
 * Cost       the key: a read of every file; a model: half a second for a large vocabulary.
 * Threads    any; nothing is shared.
 */
#pragma once
#include "actors/common/models.h"

#define MODELS_WHY_BYTES 512u

int models_key(const struct manifest_tokenizer *t, char ret_key[MODELS_KEY_TEXT], char *why,
	       size_t why_len);
	/* Of what the files and options are now.  -ENOENT, -EACCES, -EFBIG, -ENOMEM .. */
int models_build(const struct manifest_tokenizer *t, void **ret_bytes, size_t *ret_len, char *why,
		 size_t why_len);
	/* The blob, malloc'd, which model_open() has taken.  As model_build. */
bool models_usable(const void *bytes, size_t len);
	/* A blob that was kept is whole, and of the form that this program makes. */
