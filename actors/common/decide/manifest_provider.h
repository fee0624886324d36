/* actors/common/decide/manifest_provider.h -- InferenceProvider: models that somebody else runs.
 *
 * A pair {provider, model} is a row like a worker's: struct manifest_member with `provider`, behind
 * all rows of sets.  Owned by the manifest; immutable.
 */
#pragma once
#include <stdint.h>

#include "actors/common/decide/manifest_limits.h"

enum manifest_provider_type {
	MANIFEST_PROVIDER_BEDROCK,
	MANIFEST_PROVIDER_BEDROCK_OPENAI,
	MANIFEST_PROVIDER_OPENAI,
	MANIFEST_PROVIDER_AZURE,
	MANIFEST_PROVIDER_ANTHROPIC,
	MANIFEST_PROVIDER_OPENAI_COMPATIBLE,
};

struct manifest_provider_model {
	char name[MANIFEST_MODEL_MAX + 1];     /* as policies say it; unique in the provider */
	char upstream[MANIFEST_MODEL_MAX + 1]; /* as the provider calls it */
	struct manifest_price price;
};

struct manifest_provider {
	char name[MANIFEST_NAME_MAX + 1];
	enum manifest_provider_type type;
	char region[MANIFEST_NAME_MAX + 1];    /* "": it has none */
	char base_url[MANIFEST_VALUE_MAX + 1]; /* "": the type's own */
	struct manifest_provider_model *models; /* owned */
	uint32_t n_models;			/* at least 1 */
	uint32_t first_member; /* rows: one a model, in their order */
	char api_key_file[MANIFEST_FILE_MAX + 1]; /* "": none, as the next */
	char api_key_env[MANIFEST_ENV_MAX + 1];   /* of the supervisor */
	char socket[MANIFEST_SOCKET_MAX + 1]; /* where it is spoken to; "": provider.sock of the run
					       * directory */
	double prior_ttft_s; /* the predictor's start */
	struct facts_label *labels; /* owned, with their texts; of metadata.labels */
	uint32_t n_labels;
};
