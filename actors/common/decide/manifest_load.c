/* manifest_load.c -- each document's own fields; manifest_resolve.c does what needs several. */
#include "actors/common/decide/manifest_private.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <xxhash.h>

/* Texts in a list of scalars: each one word, none twice. */
bool
manifest_words_ok(struct manifest_loader *l, const char *file, const char *path,
	 const struct yaml_node *list)
{
	const char *text, *why;
	bool ok = true;

	for (const struct yaml_node *a = list->child; a; a = a->next) {
		if (yaml_get_text(a, &text, &why) < 0) {
			MANIFEST_COMPLAIN(l, file, a, "an item of %s %s", path, why);
			ok = false;
			continue;
		}
		for (const struct yaml_node *b = list->child; b != a; b = b->next)
			if (b->kind == YAML_KIND_SCALAR && strcmp(a->text, b->text) == 0) {
				MANIFEST_COMPLAIN(
					l, file, a,
					"%s has \"%.60s\" twice: first at line %u, column %u", path,
					text, b->line, b->column);
				ok = false;
				break;
			}
	}
	return ok;
}

/* Every map in a list, by the table; false where any is bad. */
bool
manifest_items_ok(struct manifest_loader *l, const struct manifest_doc *doc, const char *parent,
	 const struct yaml_node *list)
{
	bool ok = true;

	for (const struct yaml_node *item = list->child; item; item = item->next)
		ok = manifest_fields_load(l, doc->file, manifest_kinds[doc->kind], parent,
					  item, NULL) &&
		     ok;
	return ok;
}

const struct yaml_node *
manifest_list(const struct yaml_node *map, const char *key)
{
	const struct yaml_node *list = yaml_map_get(map, key);

	return list && list->kind == YAML_KIND_LIST ? list : NULL;
}

char *
manifest_strdup(struct manifest_loader *l, const char *text)
{
	char *copy = strdup(text);

	if (!copy)
		l->oom = true;
	return copy;
}

/* ---- InferenceWorkerSet ---- */

static bool
same_addr(const struct manifest_addr *a, const struct manifest_addr *b)
{
	return a->port == b->port && strcasecmp(a->host, b->host) == 0;
}

static struct manifest_place
place_of(const char *file, const struct manifest_member *row, const struct yaml_node *item)
{
	char host[MANIFEST_HOST_MAX + 1] = "";

	for (size_t i = 0; row->url.host[i]; i++)
		host[i] = (char)tolower((unsigned char)row->url.host[i]);
	return (struct manifest_place){
		.file = file, .node = item,
		.name = XXH3_64bits_withSeed(row->name, strlen(row->name), row->set),
		.url = XXH3_64bits_withSeed(host, strlen(host), row->url.port),
		.endpoint = XXH3_64bits(row->kv_events, strlen(row->kv_events)),
		.replay = XXH3_64bits(row->kv_replay, strlen(row->kv_replay))};
}

/* A worker must be written once, or its load would be counted in two places. */
static bool
member_is_new(struct manifest_loader *l, const char *file, const struct manifest_member *row,
	      const struct yaml_node *item)
{
	const struct manifest_place is = place_of(file, row, item);

	for (uint32_t i = 0; i < l->m->n_members; i++) {
		const struct manifest_member *old = &l->m->members[i];
		const struct manifest_place *at = &l->places[i];

		if (at->name == is.name && old->set == row->set &&
		    strcmp(old->name, row->name) == 0) {
			MANIFEST_COMPLAIN(l, file, yaml_map_get(item, "name"),
					  "the member \"%s\" is given twice: first at %s:%u:%u",
					  row->name, at->file, at->node->line, at->node->column);
			return false;
		}
		if (at->url == is.url && same_addr(&old->url, &row->url)) {
			MANIFEST_COMPLAIN(l, file, yaml_map_get(item, "url"),
					  "the worker %s:%u is given twice: first at %s:%u:%u",
					  row->url.host, row->url.port, at->file, at->node->line,
					  at->node->column);
			return false;
		}
	}
	return true;
}

/* What one rank says must not be taken for another's: an endpoint has one role and one owner. */
static bool
endpoint_is_new(struct manifest_loader *l, const char *file, const char *endpoint,
		const struct yaml_node *node)
{
	uint64_t hash = XXH3_64bits(endpoint, strlen(endpoint));

	for (uint32_t i = 0; i < l->m->n_members; i++) {
		const struct manifest_member *old = &l->m->members[i];
		bool same = (l->places[i].endpoint == hash &&
			     strcmp(old->kv_events, endpoint) == 0) ||
			    (l->places[i].replay == hash && strcmp(old->kv_replay, endpoint) == 0);

		if (!same)
			continue;
		MANIFEST_COMPLAIN(l, file, node,
				  "%s already belongs to rank %u of the member at %s:%u:%u",
				  endpoint, old->rank, l->places[i].file, l->places[i].node->line,
				  l->places[i].node->column);
		return false;
	}
	return true;
}

bool
manifest_row_add(struct manifest_loader *l, const char *file, const struct manifest_member *row,
	const struct yaml_node *item)
{
	uint32_t n = l->m->n_members, cap = n ? 2 * n : 1;

	if (n == MANIFEST_ROWS_MAX) {
		MANIFEST_COMPLAIN(l, file, item, "more than %u workers and ranks",
				  MANIFEST_ROWS_MAX);
		return false;
	}
	if (n == l->cap_rows) {
		struct manifest_member *members =
			realloc(l->m->members, cap * sizeof(*members));
		struct manifest_place *places = realloc(l->places, cap * sizeof(*places));

		if (members)
			l->m->members = members;
		if (places)
			l->places = places;
		if (!members || !places) {
			l->oom = true;
			return false;
		}
		l->cap_rows = cap;
	}
	l->m->members[n] = *row;
	l->places[n] = place_of(file, row, item);
	l->m->n_members = n + 1;
	if (row->set != MANIFEST_NONE)
		l->m->sets[row->set].n_members++;
	return true;
}

/* One rank's endpoint of this key into at; a member without one leaves it empty. */
static bool
endpoint_load(struct manifest_loader *l, const char *file,
	      const struct yaml_node *item, const char *key, unsigned rank,
	      char at[MANIFEST_ENDPOINT_MAX + 1])
{
	const struct yaml_node *node = yaml_map_get(item, key);
	const char *why;

	at[0] = '\0';
	if (!node)
		return true;
	why = manifest_endpoint_parse(node->text, rank, strcmp(key, "kvEvents") == 0, at);
	if (why) {
		MANIFEST_COMPLAIN(l, file, node, "spec.members[].%s %s", key, why);
		return false;
	}
	return endpoint_is_new(l, file, at, node);
}

static bool
endpoints_load(struct manifest_loader *l, const char *file,
	       const struct yaml_node *item, unsigned rank, struct manifest_member *row)
{
	const struct yaml_node *replay = yaml_map_get(item, "kvReplay");

	if (!endpoint_load(l, file, item, "kvEvents", rank, row->kv_events) ||
	    !endpoint_load(l, file, item, "kvReplay", rank, row->kv_replay))
		return false;
	if (!replay || (row->kv_events[0] && strcmp(row->kv_events, row->kv_replay) != 0))
		return true;
	MANIFEST_COMPLAIN(l, file, replay,
			  row->kv_events[0]
				  ? "spec.members[].kvReplay is the endpoint of kvEvents: it is "
				    "another socket of the worker's"
				  : "spec.members[].kvReplay is for members with kvEvents");
	return false;
}

/* Where somebody else than the operator says who the members are, an endpoint on another host would
 * let one worker speak for another. */
static bool
endpoint_is_own(struct manifest_loader *l, const char *file, const struct manifest_member *row,
		const struct yaml_node *node)
{
	char host[MANIFEST_HOST_MAX + 1];
	const char *why;

	if (!node || l->m->sets[row->set].discovery.trust_endpoints)
		return true;
	why = manifest_endpoint_host(node->text, host);
	if (!why && strcasecmp(host, row->url.host) != 0)
		why = "is on another host than its url; spec.discovery.trustEndpoints would allow "
		      "it";
	if (why)
		MANIFEST_COMPLAIN(l, file, node, "the member \"%s\": %s %s", row->name, node->key,
				  why);
	return !why;
}

static bool
found_ok(struct manifest_loader *l, const char *file, const struct manifest_member *row,
	 const struct yaml_node *item)
{
	if (row->https && !l->m->sets[row->set].discovery.https) {
		MANIFEST_COMPLAIN(l, file, yaml_map_get(item, "url"),
				  "the member \"%s\": https:// needs spec.discovery.https",
				  row->name);
		return false;
	}
	return endpoint_is_own(l, file, row, yaml_map_get(item, "kvEvents")) &&
	       endpoint_is_own(l, file, row, yaml_map_get(item, "kvReplay"));
}

bool
manifest_member_load(struct manifest_loader *l, const char *file, uint32_t set_index,
		     const struct yaml_node *item, bool found)
{
	struct manifest_set *set = &l->m->sets[set_index];
	const struct yaml_node *url;
	struct manifest_member row = {.set = set_index, .provider = MANIFEST_NONE, .found = found};
	uint32_t n_members = l->m->n_members, n_set = set->n_members;
	char where[MANIFEST_ENDPOINT_MAX + 1];
	const char *why;

	if (!manifest_fields_load(l, file, "InferenceWorkerSet", "spec.members[]", item, NULL))
		return false;
	url = yaml_map_get(item, "url");
	strcpy(row.name, yaml_map_get(item, "name")->text);
	why = manifest_url_parse(url->text, &row.url, &row.https);
	if (why) {
		MANIFEST_COMPLAIN(l, file, url, "spec.members[].url %s", why);
		return false;
	}
	if (!member_is_new(l, file, &row, item) || (found && !found_ok(l, file, &row, item)))
		return false;
	snprintf(where, sizeof(where), "%s%s:%u", row.https ? "https://" : "", row.url.host,
		 row.url.port);
	set->https |= row.https;
	for (unsigned rank = 0; rank < set->ranks; rank++) {
		row.rank = (uint16_t)rank;
		row.uid = manifest_member_uid(set->name, row.name, where, rank);
		if (endpoints_load(l, file, item, rank, &row) &&
		    manifest_row_add(l, file, &row, item))
			continue;
		l->m->n_members = n_members; /* no half member */
		set->n_members = n_set;
		return false;
	}
	return true;
}

/* ---- spec.discovery ---- */

static void
dns_check(struct manifest_loader *l, const struct manifest_doc *doc, const struct yaml_node *dns,
	  const struct manifest_discovery *d)
{
	const struct yaml_node *port = yaml_map_get(dns, "port");
	const struct yaml_node *replay = yaml_map_get(dns, "kvReplayPort");

	if (replay && !yaml_map_get(dns, "kvEventsPort"))
		MANIFEST_COMPLAIN(l, doc->file, replay,
				  "spec.discovery.dns.kvReplayPort is for members with "
				  "kvEventsPort");
	if (d->dns.record == MANIFEST_RECORD_SRV && port)
		MANIFEST_COMPLAIN(l, doc->file, port,
				  "spec.discovery.dns.port: SRV records bring the port along");
	if (d->dns.record != MANIFEST_RECORD_SRV && !port)
		MANIFEST_COMPLAIN(l, doc->file, dns,
				  "spec.discovery.dns needs \"port\" unless type is SRV");
}

static void
discovery_load(struct manifest_loader *l, const struct manifest_doc *doc)
{
	struct manifest_set *set = &l->m->sets[doc->index];
	const struct yaml_node *map = yaml_map_get(doc->spec, "discovery");
	const struct yaml_node *file = yaml_map_get(map, "file"), *dns = yaml_map_get(map, "dns");

	if (!map) {
		if (!yaml_map_get(doc->spec, "members"))
			MANIFEST_COMPLAIN(l, doc->file, doc->spec,
					  "spec needs \"members\", or \"discovery\"");
		return;
	}
	if (!file == !dns) {
		MANIFEST_COMPLAIN(l, doc->file, map,
				  "spec.discovery needs either \"file\" or \"dns\"");
		return;
	}
	if (dns)
		dns_check(l, doc, dns, &set->discovery);
	set->discovery.source = file ? MANIFEST_SOURCE_FILE : MANIFEST_SOURCE_DNS;
	set->https |= set->discovery.https;
}

static void
set_tls_check(struct manifest_loader *l, const struct manifest_doc *doc)
{
	const struct manifest_set *set = &l->m->sets[doc->index];
	const struct yaml_node *tls = yaml_map_get(doc->spec, "tls");
	const struct yaml_node *from = yaml_map_get(doc->spec, "apiKeyFrom");

	if (tls && !set->https && !l->bad)
		MANIFEST_COMPLAIN(l, doc->file, tls,
				  "spec.tls is for members with https:// URLs; there is none");
	if (from && (set->api_key_file[0] != '\0') == (set->api_key_env[0] != '\0'))
		MANIFEST_COMPLAIN(l, doc->file, from,
				  "spec.apiKeyFrom needs either \"file\" or \"env\"");
}

static const struct {
	const char *name, *metrics_path, *health_path;
} engines[] = {
	[MANIFEST_ENGINE_VLLM] = {"vllm", "/metrics", "/health"},
	[MANIFEST_ENGINE_SGLANG] = {"sglang", "/metrics", "/health"},
	[MANIFEST_ENGINE_TRTLLM] = {"trtllm", "/prometheus/metrics", "/health"},
	[MANIFEST_ENGINE_TRITON] = {"triton", "/metrics", "/health/ready"},
};
#define ENGINES (sizeof engines / sizeof engines[0])

const char *
manifest_engine_name(enum manifest_engine engine)
{
	return engine > 0 && engine < ENGINES ? engines[engine].name : "unknown";
}

enum manifest_engine
manifest_engine_named(const char *name)
{
	for (size_t i = 1; i < ENGINES; i++)
		if (strcmp(engines[i].name, name) == 0)
			return (enum manifest_engine)i;
	return 0;
}

/* What depends on the engine: where its pages are, and what only vLLM does. */
static void
engine_load(struct manifest_loader *l, const struct manifest_doc *doc, struct manifest_set *set)
{
	const struct yaml_node *tokenize = yaml_map_get(doc->spec, "tokenize");
	const struct yaml_node *ranks = yaml_map_get(doc->spec, "dataParallelRanks");
	bool vllm = set->engine == MANIFEST_ENGINE_VLLM;

	if (set->engine == 0)
		return;                         /* complained of already */
	if (set->metrics_path[0] == '\0')
		strcpy(set->metrics_path, engines[set->engine].metrics_path);
	if (set->health_path[0] == '\0')
		strcpy(set->health_path, engines[set->engine].health_path);
	if (!tokenize)
		set->tokenize = vllm;
	else if (set->tokenize && !vllm)
		MANIFEST_COMPLAIN(l, doc->file, tokenize,
				  "spec.tokenize is not there yet for the engine \"%s\": its text "
				  "prompts are routed by load",
				  engines[set->engine].name);
	if (ranks && set->ranks > 1 && !vllm)
		MANIFEST_COMPLAIN(l, doc->file, ranks,
				  "spec.dataParallelRanks above 1 needs a rank by header, which "
				  "the engine \"%s\" has not: give each rank a member of its own",
				  engines[set->engine].name);
}

static void
set_load(struct manifest_loader *l, const struct manifest_doc *doc)
{
	struct manifest_set *set = &l->m->sets[doc->index];
	const struct yaml_node *list;

	strcpy(set->name, doc->name);
	manifest_defaults("InferenceWorkerSet", "", set);
	manifest_fields_load(l, doc->file, "InferenceWorkerSet", "spec", doc->spec, set);
	engine_load(l, doc, set);
	manifest_tokenizer_load(l, doc);
	manifest_adapters_load(l, doc);
	manifest_labels_load(l, doc, &set->labels, &set->n_labels);
	set->first_member = l->m->n_members;
	list = manifest_list(doc->spec, "members");
	for (const struct yaml_node *item = list ? list->child : NULL; item; item = item->next)
		manifest_member_load(l, doc->file, doc->index, item, false);
	discovery_load(l, doc);
	manifest_found_load(l, doc->index);
	set_tls_check(l, doc);
}

/* ---- InferencePool ---- */

static void
pool_load(struct manifest_loader *l, const struct manifest_doc *doc)
{
	const struct yaml_node *list;

	strcpy(l->m->pools[doc->index].name, doc->name);
	manifest_fields_load(l, doc->file, "InferencePool", "spec", doc->spec, NULL);
	list = manifest_list(doc->spec, "workerSets");
	if (list)
		manifest_words_ok(l, doc->file, "spec.workerSets", list);
}

void
manifest_docs_load(struct manifest_loader *l)
{
	static void (*const load[KINDS])(struct manifest_loader *, const struct manifest_doc *) = {
		[KIND_GATEWAY] = manifest_gateway_load,
		[KIND_SET] = set_load,
		[KIND_POOL] = pool_load,
		[KIND_PROVIDER] = manifest_provider_load,
		[KIND_POLICY] = manifest_policy_load,
		[KIND_TENANT] = manifest_tenant_load,
		[KIND_TAG] = manifest_tag_load,
	};

	for (uint32_t i = 0; i < l->n_docs && !l->oom; i++)
		load[l->docs[i].kind](l, &l->docs[i]);
}
