/* manifest_tenant.c -- InferenceTenant, and who vouches for one: the GatewayBackend's issuers. */
#include "actors/common/decide/manifest_private.h"

#include <stdlib.h>
#include <string.h>

#include "proto/hex.h"

#define KEY_BEGINS "sha256:"

/* Never the text itself in a complaint: it may be a key. */
static const char *
key_parse(const char *text, uint8_t ret_key[MANIFEST_KEY_BYTES])
{
	const size_t begins = strlen(KEY_BEGINS);

	if (strncmp(text, KEY_BEGINS, begins) != 0)
		return "must be sha256: and the key's hash, never the key itself; `pointsctl "
		       "tenant hash` makes it";
	text += begins;
	if (strlen(text) != 2 * MANIFEST_KEY_BYTES)
		return "must be sha256: and 64 hexadecimal digits";
	for (size_t i = 0; i < MANIFEST_KEY_BYTES; i++) {
		int high = hex_digit(text[2 * i]), low = hex_digit(text[2 * i + 1]);

		if (high < 0 || low < 0)
			return "must be sha256: and 64 hexadecimal digits";
		ret_key[i] = (uint8_t)(high << 4 | low);
	}
	return NULL;
}

/* Whose it already is, or NULL. */
static const struct manifest_tenant *
key_owner(const struct manifest *m, uint32_t up_to, const uint8_t *key)
{
	for (uint32_t t = 0; t <= up_to; t++)
		for (uint32_t i = 0; i < m->tenants[t].n_keys; i++)
			if (memcmp(m->tenants[t].keys[i], key, MANIFEST_KEY_BYTES) == 0)
				return &m->tenants[t];
	return NULL;
}

static void
keys_load(struct manifest_loader *l, const struct manifest_doc *doc,
	  const struct yaml_node *list, struct manifest_tenant *tenant)
{
	tenant->keys = calloc(list->n_children + 1, sizeof(*tenant->keys));
	if (!tenant->keys) {
		l->oom = true;
		return;
	}
	for (const struct yaml_node *item = list->child; item; item = item->next) {
		uint8_t *key = tenant->keys[tenant->n_keys];
		const struct manifest_tenant *owner;
		const char *text, *why;

		if (yaml_get_text(item, &text, &why) == 0)
			why = key_parse(text, key);
		if (why) {
			MANIFEST_COMPLAIN(l, doc->file, item, "an item of spec.keys %s", why);
			continue;
		}
		owner = key_owner(l->m, doc->index, key);
		if (owner)
			MANIFEST_COMPLAIN(l, doc->file, item,
					  "this key is given twice: the tenant \"%s\" has it",
					  owner->name);
		else
			tenant->n_keys++;
	}
}

void
manifest_tenant_load(struct manifest_loader *l, const struct manifest_doc *doc)
{
	struct manifest_tenant *tenant = &l->m->tenants[doc->index];
	const struct yaml_node *list;

	strcpy(tenant->name, doc->name);
	if (doc->index == MANIFEST_TENANTS_MAX)
		MANIFEST_COMPLAIN(l, doc->file, doc->name_node, "more than %u InferenceTenants",
				  MANIFEST_TENANTS_MAX);
	manifest_defaults("InferenceTenant", "", tenant);
	manifest_fields_load(l, doc->file, "InferenceTenant", "spec", doc->spec, tenant);
	list = manifest_list(doc->spec, "keys");
	if (list)
		keys_load(l, doc, list, tenant);
}

/* ---- the GatewayBackend's issuers ---- */

static void
algorithms_load(struct manifest_loader *l, const struct manifest_doc *doc,
		const struct yaml_node *list, struct manifest_issuer *issuer)
{
	static const struct manifest_field as = {
		.type = MANIFEST_T_CHOICE, .choices = "HS256|RS256|ES256", .size = sizeof(int)};
	int at;
	char why[256];

	if (!manifest_words_ok(l, doc->file, "spec.jwt.issuers[].algorithms", list))
		return;
	for (const struct yaml_node *item = list->child; item; item = item->next)
		if (manifest_value_read(&as, item, &at, why, sizeof(why)))
			issuer->algorithms |= 1u << at;
		else
			MANIFEST_COMPLAIN(l, doc->file, item,
					  "an item of spec.jwt.issuers[].algorithms %s", why);
}

/* A key of one sort must never be tried as one of another: a public key is no secret. */
static void
issuer_check(struct manifest_loader *l, const struct manifest_doc *doc,
	     const struct yaml_node *item, const struct manifest_issuer *issuer)
{
	bool secret = issuer->secret_file[0] || issuer->secret_env[0];
	bool hashes = issuer->algorithms & MANIFEST_JWT_HS256;
	bool signs = issuer->algorithms & ~MANIFEST_JWT_HS256;
	const struct yaml_node *from = yaml_map_get(item, "secretFrom");
	const struct yaml_node *jwks = yaml_map_get(item, "jwks");

	if (from && (issuer->secret_file[0] != '\0') == (issuer->secret_env[0] != '\0'))
		MANIFEST_COMPLAIN(l, doc->file, from,
				  "spec.jwt.issuers[].secretFrom needs either \"file\" or \"env\"");
	else if (hashes && !secret)
		MANIFEST_COMPLAIN(l, doc->file, item,
				  "spec.jwt.issuers[] needs \"secretFrom\" for HS256");
	else if (from && !hashes)
		MANIFEST_COMPLAIN(l, doc->file, from,
				  "spec.jwt.issuers[].secretFrom is for HS256, which is not "
				  "among the "
				  "algorithms");
	if (signs && !jwks)
		MANIFEST_COMPLAIN(l, doc->file, item,
				  "spec.jwt.issuers[] needs \"jwks\" for RS256 and ES256");
	else if (jwks && !signs)
		MANIFEST_COMPLAIN(l, doc->file, jwks,
				  "spec.jwt.issuers[].jwks is for RS256 and ES256, which are not "
				  "among the algorithms");
}

void
manifest_issuers_load(struct manifest_loader *l, const struct manifest_doc *doc)
{
	struct manifest_gateway *gw = &l->m->gateway;
	const struct yaml_node *list = manifest_list(yaml_map_get(doc->spec, "jwt"), "issuers");

	if (!list)
		return;
	gw->issuers = calloc(list->n_children + 1, sizeof(*gw->issuers));
	if (!gw->issuers) {
		l->oom = true;
		return;
	}
	for (const struct yaml_node *item = list->child; item; item = item->next) {
		struct manifest_issuer *issuer = &gw->issuers[gw->n_issuers++];
		const struct yaml_node *algorithms;

		manifest_defaults("GatewayBackend", "spec.jwt.issuers[]", issuer);
		if (!manifest_fields_load(l, doc->file, "GatewayBackend", "spec.jwt.issuers[]",
					  item, issuer))
			continue;
		algorithms = manifest_list(item, "algorithms");
		if (algorithms)
			algorithms_load(l, doc, algorithms, issuer);
		issuer_check(l, doc, item, issuer);
		for (uint32_t i = 0; i + 1 < gw->n_issuers; i++)
			if (strcmp(gw->issuers[i].issuer, issuer->issuer) == 0)
				MANIFEST_COMPLAIN(l, doc->file, yaml_map_get(item, "issuer"),
						  "the issuer \"%.60s\" is given twice",
						  issuer->issuer);
	}
}

/* ---- references ---- */

static void
limits_inherit(struct manifest_limits *to, const struct manifest_limits *from)
{
	if (to->requests_per_minute == 0)
		to->requests_per_minute = from->requests_per_minute;
	if (to->prompt_tokens_per_minute == 0)
		to->prompt_tokens_per_minute = from->prompt_tokens_per_minute;
	if (to->completion_tokens_per_minute == 0)
		to->completion_tokens_per_minute = from->completion_tokens_per_minute;
	if (to->concurrent == 0)
		to->concurrent = from->concurrent;
	if (to->budget_per_day == 0)
		to->budget_per_day = from->budget_per_day;
}

static void
claim_resolve(struct manifest_loader *l, const struct manifest_doc *doc,
	      const struct manifest_tenant *tenant)
{
	const struct manifest_gateway *gw = &l->m->gateway;
	const struct yaml_node *jwt = yaml_map_get(doc->spec, "jwt");
	const struct yaml_node *issuer = yaml_map_get(jwt, "issuer");
	const char *names[MANIFEST_SUGGEST_MAX];
	size_t n = 0;

	if (jwt && gw->n_issuers == 0)
		MANIFEST_COMPLAIN(l, doc->file, jwt,
				  "spec.jwt needs the GatewayBackend's spec.jwt: who may "
				  "issue tokens");
	if (!issuer || gw->n_issuers == 0)
		return;
	for (uint32_t i = 0; i < gw->n_issuers; i++) {
		if (strcmp(gw->issuers[i].issuer, tenant->jwt_issuer) == 0)
			return;
		names[n++] = gw->issuers[i].issuer;
	}
	manifest_complain_name(l, doc->file, issuer, "issuer of the GatewayBackend", names, n);
}

void
manifest_tenant_resolve(struct manifest_loader *l, const struct manifest_doc *doc)
{
	struct manifest_tenant *tenant = &l->m->tenants[doc->index];
	const struct yaml_node *header = yaml_map_get(doc->spec, "header");

	limits_inherit(&tenant->limits, &l->m->gateway.default_limits);
	claim_resolve(l, doc, tenant);
	if (header && l->m->gateway.n_trusted == 0 && !l->m->gateway.trusted_unix)
		MANIFEST_COMPLAIN(l, doc->file, header,
				  "spec.header is believed from trusted peers only: the "
				  "GatewayBackend's client.trustedPeers has none");
	for (uint32_t i = 0; i < doc->index; i++) {
		const struct manifest_tenant *other = &l->m->tenants[i];

		if (tenant->header_name[0] &&
		    strcmp(other->header_name, tenant->header_name) == 0 &&
		    strcmp(other->header_value, tenant->header_value) == 0)
			MANIFEST_COMPLAIN(l, doc->file, header,
					  "the tenant \"%s\" has the same header and value",
					  other->name);
		if (tenant->jwt_claim[0] && strcmp(other->jwt_claim, tenant->jwt_claim) == 0 &&
		    strcmp(other->jwt_value, tenant->jwt_value) == 0 &&
		    (!other->jwt_issuer[0] || !tenant->jwt_issuer[0] ||
		     strcmp(other->jwt_issuer, tenant->jwt_issuer) == 0))
			MANIFEST_COMPLAIN(l, doc->file, yaml_map_get(doc->spec, "jwt"),
					  "the tenant \"%s\" has the same claim and value",
					  other->name);
	}
}
