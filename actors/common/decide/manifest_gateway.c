/* manifest_gateway.c -- what clients see: the GatewayBackend's own fields. */
#include "actors/common/decide/manifest_private.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static void
listen_load(struct manifest_loader *l, const struct manifest_doc *doc,
	    const struct yaml_node *list)
{
	struct manifest_gateway *gw = &l->m->gateway;

	if (!manifest_words_ok(l, doc->file, "spec.listen", list))
		return;
	for (const struct yaml_node *item = list->child; item; item = item->next) {
		struct manifest_listen at = {.port = 0};
		struct manifest_addr addr = {.port = 0};
		const char *why;

		if (strncmp(item->text, "unix:", 5) == 0) {
			why = manifest_socket_parse(item->text + 5, at.path);
			if (why)
				MANIFEST_COMPLAIN(l, doc->file, item, "spec.listen: \"%.60s\" %s",
						  item->text, why);
			else if (gw->n_listen < MANIFEST_LISTEN_MAX)
				gw->listen[gw->n_listen++] = at;
			continue;
		}
		if (item->text[0] == ':') {
			MANIFEST_COMPLAIN(l, doc->file, item,
					  "spec.listen: \"%.60s\" has no address; did you mean "
					  "\"0.0.0.0%.60s\"?",
					  item->text, item->text);
			continue;
		}
		why = manifest_addr_parse(item->text, &addr);
		if (!why && !manifest_addr_is_numeric(&addr))
			why = "must be an IP address and a port, or unix:/path";
		if (why) {
			MANIFEST_COMPLAIN(l, doc->file, item, "spec.listen: \"%.60s\" %s",
					  item->text, why);
		} else if (gw->n_listen < MANIFEST_LISTEN_MAX) {
			memcpy(at.host, addr.host, sizeof(at.host));
			at.port = addr.port;
			gw->listen[gw->n_listen++] = at;
		}
	}
}

static void
sockets_load(struct manifest_loader *l, const struct manifest_doc *doc)
{
	const struct yaml_node *map = yaml_map_get(doc->spec, "unixSockets");
	const struct yaml_node *mode = yaml_map_get(map, "mode");

	if (!mode || mode->kind != YAML_KIND_SCALAR)
		return;
	if (strlen(mode->text) < 3 || strlen(mode->text) > 4 ||
	    strspn(mode->text, "01234567") != strlen(mode->text) ||
	    (strlen(mode->text) == 4 && mode->text[0] != '0'))
		MANIFEST_COMPLAIN(l, doc->file, mode,
				  "spec.unixSockets.mode must be an octal mode such as 0660");
}

static void
trusted_load(struct manifest_loader *l, const struct manifest_doc *doc,
	     const struct yaml_node *list)
{
	struct manifest_gateway *gw = &l->m->gateway;

	if (!manifest_words_ok(l, doc->file, "spec.client.trustedPeers", list))
		return;
	for (const struct yaml_node *item = list->child; item; item = item->next) {
		struct manifest_network network;
		const char *why;

		if (strcmp(item->text, "unix") == 0) {
			gw->trusted_unix = true;
			continue;
		}
		why = manifest_network_parse(item->text, &network);
		if (why)
			MANIFEST_COMPLAIN(l, doc->file, item,
					  "spec.client.trustedPeers: \"%.60s\" %s", item->text,
					  why);
		else if (gw->n_trusted < MANIFEST_TRUSTED_MAX)
			gw->trusted[gw->n_trusted++] = network;
	}
}

static void
listen_tls_load(struct manifest_loader *l, const struct manifest_doc *doc,
		const struct yaml_node *list)
{
	struct manifest_gateway *gw = &l->m->gateway;

	if (!manifest_words_ok(l, doc->file, "spec.listenTls", list))
		return;
	for (const struct yaml_node *item = list->child; item; item = item->next) {
		struct manifest_addr addr;
		const char *why = manifest_addr_parse(item->text, &addr);

		if (!why && !manifest_addr_is_numeric(&addr))
			why = "must be an IP address and a port";
		if (why) {
			MANIFEST_COMPLAIN(l, doc->file, item, "spec.listenTls: \"%.60s\" %s",
					  item->text, why);
		} else if (gw->n_listen_tls < MANIFEST_LISTEN_MAX) {
			struct manifest_listen *at = &gw->listen_tls[gw->n_listen_tls++];

			memcpy(at->host, addr.host, sizeof(at->host));
			at->port = addr.port;
		}
	}
}

static void
certificates_load(struct manifest_loader *l, const struct manifest_doc *doc,
		  const struct yaml_node *list)
{
	struct manifest_gateway *gw = &l->m->gateway;

	gw->certificates = calloc(list->n_children + 1, sizeof(*gw->certificates));
	if (!gw->certificates) {
		l->oom = true;
		return;
	}
	for (const struct yaml_node *item = list->child; item; item = item->next)
		if (gw->n_certificates < MANIFEST_CERTS_MAX &&
		    manifest_fields_load(l, doc->file, "GatewayBackend", "spec.tls.certificates[]",
					 item, &gw->certificates[gw->n_certificates]))
			gw->n_certificates++;
}

static void
model_name_ok(struct manifest_loader *l, const struct manifest_doc *doc, const char *path,
	      const struct yaml_node *node)
{
	const struct manifest_field as = {.type = MANIFEST_T_TEXT, .size = 0};
	char why[256];

	if (!manifest_value_read(&as, node, NULL, why, sizeof(why)))
		MANIFEST_COMPLAIN(l, doc->file, node, "%s %s", path, why);
}

static void
models_check(struct manifest_loader *l, const struct manifest_doc *doc,
	     const struct yaml_node *list)
{
	if (!manifest_items_ok(l, doc, "spec.models[]", list))
		return;
	for (const struct yaml_node *a = list->child; a; a = a->next) {
		const struct yaml_node *name = yaml_map_get(a, "name");
		const struct yaml_node *alias = yaml_map_get(a, "aliasOf");

		for (const struct yaml_node *b = list->child; b != a; b = b->next) {
			const struct yaml_node *other = yaml_map_get(b, "name");

			if (strcmp(name->text, other->text) == 0) {
				MANIFEST_COMPLAIN(
					l, doc->file, name,
					"the model \"%.60s\" is given twice: first at line "
					"%u, column %u",
					name->text, other->line, other->column);
				break;
			}
		}
		if (alias && alias->kind == YAML_KIND_SCALAR)
			model_name_ok(l, doc, "spec.models[].aliasOf", alias);
		else if (alias && alias->n_children == 0)
			MANIFEST_COMPLAIN(l, doc->file, alias, "spec.models[].aliasOf is empty");
		else if (alias)
			manifest_words_ok(l, doc->file, "spec.models[].aliasOf", alias);
		if (manifest_list(a, "tenants"))
			manifest_words_ok(l, doc->file, "spec.models[].tenants",
					  manifest_list(a, "tenants"));
	}
}

/* "name" or "*.name": letters in lower case, so that they are compared once. */
static const char *
host_parse(const char *text, char ret_host[MANIFEST_DNS_MAX + 1])
{
	const char *c = text[0] == '*' && text[1] == '.' ? text + 2 : text;
	size_t len = strlen(text);

	if (len > MANIFEST_DNS_MAX)
		return "has more than 253 bytes";
	if (strchr(c, '/'))
		return "must be a name, without https:// and path";
	if (strchr(c, ':') && c[0] != '[')
		return "must be a name without a port";
	for (const char *p = c; *p; p++)
		if (!isalnum((unsigned char)*p) && !strchr("-._[]:", *p))
			return "must be a host's name, or \"*.\" and one";
	if (*c == '\0' || *c == '.')
		return "must be a host's name, or \"*.\" and one";
	for (size_t i = 0; i <= len; i++)
		ret_host[i] = (char)tolower((unsigned char)text[i]);
	return NULL;
}

static void
hosts_load(struct manifest_loader *l, const struct manifest_doc *doc,
	   const struct yaml_node *list)
{
	struct manifest_gateway *gw = &l->m->gateway;

	if (!manifest_words_ok(l, doc->file, "spec.hosts", list))
		return;
	gw->hosts = calloc(list->n_children + 1, sizeof(*gw->hosts));
	if (!gw->hosts) {
		l->oom = true;
		return;
	}
	for (const struct yaml_node *item = list->child; item; item = item->next) {
		const char *why = host_parse(item->text, gw->hosts[gw->n_hosts]);

		if (why)
			MANIFEST_COMPLAIN(l, doc->file, item, "spec.hosts: \"%.60s\" %s",
					  item->text, why);
		else
			gw->n_hosts++;
	}
}

static void
tls_load(struct manifest_loader *l, const struct manifest_doc *doc)
{
	const struct yaml_node *listen = manifest_list(doc->spec, "listenTls");
	const struct yaml_node *tls = yaml_map_get(doc->spec, "tls");
	const struct yaml_node *list = manifest_list(tls, "certificates");

	if (listen)
		listen_tls_load(l, doc, listen);
	if (list)
		certificates_load(l, doc, list);
	if (listen && !tls)
		MANIFEST_COMPLAIN(l, doc->file, listen, "spec.listenTls needs spec.tls");
	if (tls && !listen)
		MANIFEST_COMPLAIN(l, doc->file, tls,
				  "spec.tls is for spec.listenTls; there is none");
	if (!listen && !yaml_map_get(doc->spec, "listen"))
		MANIFEST_COMPLAIN(l, doc->file, doc->spec,
				  "spec needs \"listen\" or \"listenTls\"");
}

void
manifest_gateway_load(struct manifest_loader *l, const struct manifest_doc *doc)
{
	struct manifest_gateway *gw = &l->m->gateway;
	const struct yaml_node *list;

	strcpy(gw->name, doc->name);
	gw->default_tenant = MANIFEST_NONE;
	manifest_defaults("GatewayBackend", "", gw);
	manifest_fields_load(l, doc->file, "GatewayBackend", "spec", doc->spec, gw);
	list = manifest_list(doc->spec, "listen");
	if (list)
		listen_load(l, doc, list);
	sockets_load(l, doc);
	list = manifest_list(yaml_map_get(doc->spec, "client"), "trustedPeers");
	if (list)
		trusted_load(l, doc, list);
	tls_load(l, doc);
	list = manifest_list(doc->spec, "models");
	if (list)
		models_check(l, doc, list);
	list = manifest_list(doc->spec, "hosts");
	if (list)
		hosts_load(l, doc, list);
	manifest_issuers_load(l, doc);
}

/* ---- what it serves ---- */

static bool
host_matches(const char *served, const char *host, size_t len)
{
	size_t n = strlen(served);

	if (served[0] == '*') { /* "*.x": what is before it has one letter at least */
		served++;
		n--;
		return len > n && strncasecmp(host + len - n, served, n) == 0;
	}
	return len == n && strncasecmp(host, served, n) == 0;
}

bool
manifest_host_served(const struct manifest_gateway *gw, const char *host, size_t len)
{
	const char *end = len > 0 ? memrchr(host, ':', len) : NULL;
	const char *bracket = len > 0 ? memrchr(host, ']', len) : NULL;

	if (gw->n_hosts == 0)
		return true;
	if (end && (!bracket || end > bracket))
		len = (size_t)(end - host);
	if (len > 0 && host[len - 1] == '.') /* the root's, which is the same name */
		len--;
	for (uint32_t i = 0; i < gw->n_hosts; i++)
		if (host_matches(gw->hosts[i], host, len))
			return true;
	return false;
}
