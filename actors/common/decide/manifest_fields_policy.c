/* manifest_fields_policy.c -- the tables of fields of what decides. */
#include "actors/common/decide/manifest_rows.h"

#define POL(m) MANIFEST_AT(manifest_policy, m)

#define RULE(m) MANIFEST_AT(manifest_rule, m)
#define TEN(m)	MANIFEST_AT(manifest_tenant, m)
#define OWN(m)	MANIFEST_AT(manifest_tenant, limits.m)
#define TAG(m)	MANIFEST_AT(manifest_tag, m)
#define PAT(m)	MANIFEST_AT(manifest_pattern, m)

static const struct manifest_field policy_fields[] = {
	PLAIN("spec", "match", MAP, OPTIONAL, RELOAD,
	      "which requests it decides; absent: all for models that name it"),
	LIST("spec.match", "models", OPTIONAL, 1, 1000, RELOAD,
	     "model names of the GatewayBackend; `\"*\"`: all; `qwen-*`: all that begin so"),
	LIST("spec.match", "tenants", OPTIONAL, 1, 1000, RELOAD,
	     "names of InferenceTenants; absent or `\"*\"`: everybody's requests.  Of several "
	     "policies that take a request the first decides, in the order of the files"),
	LIST("spec", "candidates", NEEDED, 1, MANIFEST_CANDIDATES_MAX, RELOAD,
	     "where requests may go"),
	PLAIN("spec.candidates[]", "pool", NAME, OPTIONAL, RELOAD,
	      "an InferencePool; this or `provider` is needed"),
	PLAIN("spec.candidates[]", "provider", NAME, OPTIONAL, RELOAD, "an InferenceProvider"),
	PLAIN("spec.candidates[]", "model", TEXT, OPTIONAL, RELOAD,
	      "with `provider`: the name of one of its models; absent: the one that is called as "
	      "the client's model is, or as one that that is an alias of"),
	VALUE("spec.candidates[]", "weight", COUNT, OPTIONAL, 0, 1000000, NOWHERE, RELOAD,
	      "of a split: requests go to the entries by their weights, to another only where "
	      "rules or failures leave none of the entry drawn; all entries have one, or none"),
	CHOICE("spec", "split", OR("Request"), POL(split), MANIFEST_SPLIT_REQUEST,
	       "Request|Session|User|Tenant", NULL, RELOAD,
	       "what a split keeps together: nothing, `affinity`'s key, the body's \"user\", the "
	       "tenant"),
	PLAIN("spec", "affinity", MAP, OPTIONAL, RELOAD,
	      "requests with the same key go to the same candidate while it may take them"),
	CHOICE("spec.affinity", "by", NEEDED, POL(affinity), MANIFEST_AFFINITY_NONE,
	       "None|Header|User", NULL, RELOAD,
	       "the key: a header's value, or the body's \"user\""),
	VALUE("spec.affinity", "header", HEADER, OPTIONAL, 0, 0, POL(affinity_header), RELOAD,
	      "its name, with `by: Header`"),
	LIST("spec", "rules", OPTIONAL, 0, MANIFEST_RULES_MAX, RELOAD,
	     "in this order; each narrows or orders the candidates that those before it left"),
	VALUE("spec.rules[]", "name", NAME, NEEDED, 0, 0, RULE(name), RELOAD,
	      "unique within the policy; a client that is refused is told it"),
	VALUE("spec.rules[]", "when", EXPRESSION, OPTIONAL, 0, 0, RULE(when), RELOAD,
	      "of the request: the rule is only for those; unknown counts as true; absent: all"),
	VALUE("spec.rules[]", "keep", EXPRESSION, OPTIONAL, 0, 0, RULE(keep), RELOAD,
	      "of a candidate: the others are removed; unknown does not keep"),
	VALUE("spec.rules[]", "remove", EXPRESSION, OPTIONAL, 0, 0, RULE(remove), RELOAD,
	      "of a candidate: these are removed; unknown removes"),
	LIST("spec.rules[]", "keepFirst", OPTIONAL, 1, 16, RELOAD,
	     "expressions of a candidate: the first that some candidate passes keeps those that "
	     "do; where none does, all stay"),
	VALUE("spec.rules[]", "prefer", EXPRESSION, OPTIONAL, 0, 0, RULE(prefer), RELOAD,
	      "of a candidate: true before false, or less before more; `minimize` decides among "
	      "equals; unknown comes last"),
	CHOICE("spec.rules[]", "onEmpty", OR("Reject"), RULE(on_empty), MANIFEST_RULE_REJECT,
	       "Reject|Skip|Wait", NULL, RELOAD,
	       "when the rule leaves none: `Reject` refuses the request, and what the rule "
	       "removed stays removed in each fallback and retry; `Skip` does without the rule; "
	       "`Wait` holds the request until it leaves one"),
	VALUE("spec.rules[]", "upTo", DURATION, OR("2s"), .001, 600, RULE(up_to_ns), RELOAD,
	      "with `onEmpty: Wait`: then it is refused"),
	{"spec", "minimize", MANIFEST_T_OBJECTIVE, OR("PredictedTTFT"), 0, 0,
	 "PredictedTTFT|Random|RoundRobin|LeastPrefill|LeastRequests|Cost|Waiting|LMetric|"
	 "PowerOfTwo|SessionHash", NULL, POL(minimize), MANIFEST_MINIMIZE_PREDICTED_TTFT, RELOAD,
	 "how one candidate is chosen, or an expression of a candidate that is a number, the least "
	 "of which wins"},
	PLAIN("spec", "onEmpty", MAP, OPTIONAL, RELOAD, "when no candidate is left"),
	CHOICE("spec.onEmpty", "action", OR("Reject"), POL(on_empty), MANIFEST_ON_EMPTY_REJECT,
	       "Reject|Fallback|Wait", NULL, RELOAD,
	       "`Reject`: 503 with Retry-After; `Wait`: held here; `Fallback`: to another policy"),
	VALUE("spec.onEmpty", "upTo", DURATION, OR("2s"), .001, 600, POL(up_to_ns), RELOAD,
	      "with `Wait`: how long"),
	CHOICE("spec.onEmpty", "then", OR("Reject"), POL(then), MANIFEST_ON_EMPTY_REJECT,
	       "Reject|Fallback", NULL, RELOAD, "with `Wait`: what comes after it"),
	PLAIN("spec.onEmpty", "policy", NAME, OPTIONAL, RELOAD,
	      "with `Fallback`: the InferencePolicy, three behind each other at most"),
	LATER("spec", "slo"),
};

static const struct manifest_field tenant_fields[] = {
	LIST("spec", "keys", OPTIONAL, 1, 64, RELOAD,
	     "hashes of its API keys, each `sha256:` and 64 hexadecimal digits, as `pointsctl "
	     "tenant hash` prints them; clients send the key as `Authorization: Bearer` or "
	     "`x-api-key`"),
	PLAIN("spec", "jwt", MAP, OPTIONAL, RELOAD,
	      "whose tokens are its: the GatewayBackend's `jwt` says who may issue them"),
	VALUE("spec.jwt", "issuer", STRING, OPTIONAL, 0, 0, TEN(jwt_issuer), RELOAD,
	      "one of the GatewayBackend's; absent: any of them"),
	VALUE("spec.jwt", "claim", STRING, NEEDED, 0, 0, TEN(jwt_claim), RELOAD,
	      "name of a claim, such as `sub` or `tenant`"),
	VALUE("spec.jwt", "value", STRING, NEEDED, 0, 0, TEN(jwt_value), RELOAD,
	      "what the claim says, or one item of its list"),
	PLAIN("spec", "header", MAP, OPTIONAL, RELOAD,
	      "a header field by which a trusted peer (`client.trustedPeers`) says so; taken away "
	      "from others"),
	VALUE("spec.header", "name", HEADER, NEEDED, 0, 0, TEN(header_name), RELOAD, "its name"),
	VALUE("spec.header", "value", STRING, NEEDED, 0, 0, TEN(header_value), RELOAD,
	      "its value, letter by letter"),
	VALUE("spec", "priority", COUNT, OR("50"), 0, 100, TEN(priority), RELOAD,
	      "`request.priority` of expressions; more goes first"),
	VALUE("spec", "weight", COUNT, OR("1"), 1, 1000, TEN(weight), RELOAD,
	      "its share beside tenants of the same priority"),
	PLAIN("spec", "limits", MAP, OPTIONAL, RELOAD,
	      "what it may take; more is 429 with Retry-After"),
	LIMITS("spec.limits", OWN),
	VALUE("spec", "blocked", BOOL, OR("false"), 0, 0, TEN(blocked), RELOAD,
	      "all its requests are 403"),
};

static const struct manifest_field tag_fields[] = {
	LIST("spec", "patterns", OPTIONAL, 1, 64, RELOAD,
	     "what a request's texts have; any of them gives the tag"),
	CHOICE("spec.patterns[]", "type", OPTIONAL, PAT(validator), MANIFEST_VALIDATOR_EMAIL,
	       "email|phone|iban|card|ssn|secret|regex", NULL, RELOAD,
	       "`iban` with its check digits, `card` with Luhn's, `secret`: common API keys and "
	       "private keys; absent: `regex`"),
	PLAIN("spec.patterns[]", "regex", STRING, OPTIONAL, RELOAD,
	      "one of your own (PCRE2, UTF-8); bounded steps"),
	VALUE("spec.patterns[]", "minimum", COUNT, OR("1"), 1, 1000, PAT(minimum), RELOAD,
	      "different matches that it takes"),
	VALUE("spec", "when", EXPRESSION, OPTIONAL, 0, 0, TAG(when), RELOAD,
	      "an expression of the request, without `request.tags`"),
	PLAIN("spec", "header", MAP, OPTIONAL, RELOAD,
	      "a header field by which a trusted peer says so"),
	VALUE("spec.header", "name", HEADER, NEEDED, 0, 0, TAG(header.name), RELOAD, "its name"),
	VALUE("spec.header", "value", STRING, OPTIONAL, 0, 0, TAG(header.value), RELOAD,
	      "one item of its comma list; absent: any"),
	PLAIN("spec", "classifier", MAP, OPTIONAL, RELOAD,
	      "an HTTP endpoint that is asked; without its answer the tag is unknown, which a "
	      "rule takes as there"),
	VALUE("spec.classifier", "url", TEXT, OPTIONAL, 0, 0, TAG(classifier.url), RELOAD,
	      "`http://host:port/path`; this or `pool` is needed"),
	PLAIN("spec.classifier", "pool", NAME, OPTIONAL, RELOAD,
	      "an InferencePool of workers with /classify"),
	VALUE("spec.classifier", "label", STRING, NEEDED, 0, 0, TAG(classifier.label), RELOAD,
	      "of its answer"),
	VALUE("spec.classifier", "threshold", SHARE, OR("0.5"), 0, 1, TAG(classifier.threshold),
	      RELOAD, "the label's score from which on the tag is there"),
	VALUE("spec.classifier", "deadline", DURATION, OR("200ms"), .001, 10,
	      TAG(classifier.deadline_ns), RELOAD, "how long a request waits for it"),
};

MANIFEST_TABLE(manifest_table_policy, policy_fields);
MANIFEST_TABLE(manifest_table_tenant, tenant_fields);
MANIFEST_TABLE(manifest_table_tag, tag_fields);
