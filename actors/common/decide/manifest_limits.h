/* actors/common/decide/manifest_limits.h -- how large what an operator writes may be, and what
 * several kinds of documents share.
 */
#pragma once
#include <stdint.h>

#define MANIFEST_NAME_MAX	63	 /* bytes, without NUL: metadata.name, member names */
#define MANIFEST_MODEL_MAX	127	 /* bytes: model names */
#define MANIFEST_ENDPOINT_MAX	127	 /* bytes: URLs, ZeroMQ endpoints */
#define MANIFEST_BIND		"bind:"	 /* begins an endpoint that we bind */
#define MANIFEST_HOST_MAX	79	 /* bytes: host of an address, without brackets */
#define MANIFEST_PATH_MAX	127	 /* bytes: paths on a worker */
#define MANIFEST_ROWS_MAX	1024u	 /* members times ranks and providers' models, together */
#define MANIFEST_RANKS_MAX	64u	 /* data-parallel ranks of a set */
#define MANIFEST_LISTEN_MAX	16u	 /* addresses of the gateway */
#define MANIFEST_SOCKET_MAX	107	 /* bytes: path of a unix socket */
#define MANIFEST_TRUSTED_MAX	64u	 /* networks of trusted peers */
#define MANIFEST_FILE_MAX	255	 /* bytes: paths of files on this machine */
#define MANIFEST_ENV_MAX	63	 /* bytes: names of environment variables */
#define MANIFEST_CERTS_MAX	32u	 /* certificates of the gateway */
#define MANIFEST_DNS_MAX	253	 /* bytes: names to resolve */
#define MANIFEST_KWARGS_MAX	8191	 /* bytes: a template's default variables, as JSON */
#define MANIFEST_ZONE_MAX	63	 /* bytes: names of time zones */
#define MANIFEST_SNAPSHOT_MAX	(16u << 20) /* bytes */
#define MANIFEST_HEADER_MAX	63	 /* bytes: names of header fields */
#define MANIFEST_VALUE_MAX	255	 /* bytes: values of headers and claims, issuers */
#define MANIFEST_EXPRESSION_MAX 4095	 /* bytes: one expression, one pattern */
#define MANIFEST_RULES_MAX	64u	 /* rules of a policy */
#define MANIFEST_CANDIDATES_MAX 256u	 /* entries of a policy's candidates */
#define MANIFEST_TAGS_MAX	64u	 /* RequestTags: a request's are one word of bits */
#define MANIFEST_FALLBACKS_MAX	3u	 /* policies behind a policy, one behind the other */
#define MANIFEST_TENANTS_MAX	10000u	 /* InferenceTenants */
#define MANIFEST_LABELS_MAX	32u	 /* of one document */

#define MANIFEST_NONE UINT32_MAX /* an index of nothing */

struct expression;  /* expression.h */
struct facts_label; /* facts.h */

/* An expression where it was written; text NULL: there is none. */
struct manifest_expression {
	char *text; /* owned */
	uint32_t line, column; /* of its first character */
	struct expression *program; /* owned; there whenever text is, once all is loaded */
};

/* Money is in millionths of a unit, whichever unit the operator thinks in: 0.25 is 250,000. */
struct manifest_price { /* millionths per million tokens, so 1e-12 units a token */
	uint64_t input, output, cached_input; /* cached_input: input's where it is not written */
	uint8_t known; /* 0: the document has no price */
};

/* What a tenant may take.  0: as much as there is. */
struct manifest_limits {
	uint64_t requests_per_minute;
	uint64_t prompt_tokens_per_minute;     /* reserved at admission, settled at the end */
	uint64_t completion_tokens_per_minute; /* likewise, by max_tokens */
	uint32_t concurrent;                   /* requests */
	uint64_t budget_per_day;               /* money, see above; days of UTC */
};
