/* actors/common/decide/manifest_policy.h -- InferencePolicy: which requests, candidates, rules.
 *
 * A policy's documents are taken apart by manifest.h's loader; rules.h runs them.  All is owned by
 * the manifest, immutable, and free to read from any thread.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "actors/common/decide/manifest_limits.h"

enum manifest_minimize {
	MANIFEST_MINIMIZE_PREDICTED_TTFT,
	MANIFEST_MINIMIZE_RANDOM,
	MANIFEST_MINIMIZE_ROUND_ROBIN,
	MANIFEST_MINIMIZE_LEAST_PREFILL,
	MANIFEST_MINIMIZE_LEAST_REQUESTS,
	MANIFEST_MINIMIZE_COST,
	MANIFEST_MINIMIZE_WAITING,
	MANIFEST_MINIMIZE_LMETRIC,
	MANIFEST_MINIMIZE_POWER_OF_TWO,
	MANIFEST_MINIMIZE_SESSION_HASH,
	MANIFEST_MINIMIZE_EXPRESSION, /* `objective` */
};

enum manifest_rule_empty {
	MANIFEST_RULE_REJECT, /* the request; the rule's removals hold on every later path too */
	MANIFEST_RULE_SKIP,   /* the rule */
	MANIFEST_RULE_WAIT,   /* hold the request until the rule leaves one, up to up_to_ns */
};

/* When no candidate is left. */
enum manifest_on_empty {
	MANIFEST_ON_EMPTY_REJECT,
	MANIFEST_ON_EMPTY_FALLBACK, /* to policy `fallback` */
	MANIFEST_ON_EMPTY_WAIT,	    /* up to up_to_ns, then `then` */
};

/* What of a request is hashed: the same value goes the same way. */
enum manifest_split {
	MANIFEST_SPLIT_REQUEST, /* nothing lasting: each request anew */
	MANIFEST_SPLIT_SESSION, /* the affinity's key */
	MANIFEST_SPLIT_USER,    /* the body's "user" */
	MANIFEST_SPLIT_TENANT,
};

enum manifest_affinity {
	MANIFEST_AFFINITY_NONE,
	MANIFEST_AFFINITY_HEADER, /* the header `affinity_header` */
	MANIFEST_AFFINITY_USER,   /* the body's "user" */
};

struct manifest_rule {
	char name[MANIFEST_NAME_MAX + 1]; /* unique within the policy */
	uint32_t line, column;            /* of the rule */
	struct manifest_expression when;  /* of the request; absent: always */
	struct manifest_expression keep;  /* of a candidate */
	struct manifest_expression remove;
	struct manifest_expression *keep_first; /* the first that some candidate passes */
	uint32_t n_keep_first;
	struct manifest_expression prefer; /* a bool, or a number of which less is better */
	enum manifest_rule_empty on_empty;
	uint64_t up_to_ns; /* MANIFEST_RULE_WAIT */
};

/* One entry of spec.candidates: a pool, or one model of a provider. */
struct manifest_candidate {
	uint32_t pool;		 /* MANIFEST_NONE: it is a provider */
	uint32_t provider;	 /* MANIFEST_NONE: it is a pool */
	uint32_t provider_model; /* of the provider's models; MANIFEST_NONE: the one called as the
				  * request's model is, or as what that is an alias of */
	uint32_t weight;	 /* of a split; 0 where the policy has none */
};

struct manifest_policy {
	char name[MANIFEST_NAME_MAX + 1];
	char *file; /* owned; where it is written */
	uint32_t *tenants; /* owned; whose requests it takes; see any_tenant */
	uint32_t n_tenants;
	bool any_tenant; /* everybody's, also of those who are nobody's tenant */
	struct manifest_candidate *candidates; /* owned; in order */
	uint32_t n_candidates;		       /* at least 1 */
	bool weighted; /* the candidates have weights: a split */
	enum manifest_split split;
	enum manifest_affinity affinity;
	char affinity_header[MANIFEST_HEADER_MAX + 1]; /* in lower case */
	struct manifest_rule *rules; /* owned; in order */
	uint32_t n_rules;
	enum manifest_minimize minimize;
	struct manifest_expression objective;
	enum manifest_on_empty on_empty;
	enum manifest_on_empty then; /* after a wait: REJECT or FALLBACK */
	uint64_t up_to_ns;
	uint32_t fallback; /* index of a policy; MANIFEST_NONE: none */
};
