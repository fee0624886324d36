/* actors/common/decide/manifest_tag.h -- RequestTag: how it is decided whether a request has it.
 *
 * A tag's index is its bit in a request's set.  Any of its sources gives it; a source that could
 * not be asked leaves it unknown.  Owned by the manifest; immutable.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "actors/common/decide/manifest_limits.h"

enum manifest_validator {
	MANIFEST_VALIDATOR_EMAIL,
	MANIFEST_VALIDATOR_PHONE,
	MANIFEST_VALIDATOR_IBAN,
	MANIFEST_VALIDATOR_CARD,
	MANIFEST_VALIDATOR_SSN,
	MANIFEST_VALIDATOR_SECRET,
	MANIFEST_VALIDATOR_REGEX, /* `regex` */
};

struct manifest_pattern {
	enum manifest_validator validator;
	char *regex; /* owned; PCRE2 with UTF; NULL but for MANIFEST_VALIDATOR_REGEX */
	uint32_t line, column; /* of it, or of the pattern */
	uint32_t minimum; /* different matches that it takes; at least 1 */
};

/* Whoever says so by a header field, where it is a trusted peer. */
struct manifest_tag_header {
	char name[MANIFEST_HEADER_MAX + 1];  /* in lower case; "": none */
	char value[MANIFEST_VALUE_MAX + 1]; /* "": any; else one item of its comma list */
};

/* An HTTP endpoint that is asked with the request's text. */
struct manifest_classifier {
	char url[MANIFEST_VALUE_MAX + 1]; /* "": none, or the pool's; http:// or https:// */
	uint32_t pool; /* of workers with /classify; MANIFEST_NONE: none */
	char label[MANIFEST_NAME_MAX + 1]; /* of its answer */
	double threshold;	           /* 0..1: its score from there on */
	uint64_t deadline_ns;	           /* then the tag is unknown */
};

struct manifest_tag {
	char name[MANIFEST_NAME_MAX + 1]; /* its index in the manifest is its bit, below 64 */
	char *file; /* owned; where it is written */
	struct manifest_pattern *patterns; /* owned */
	uint32_t n_patterns;
	struct manifest_expression when; /* of the request */
	struct manifest_tag_header header;
	struct manifest_classifier classifier;
};
