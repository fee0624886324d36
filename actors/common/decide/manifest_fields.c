/* manifest_fields.c -- the table of fields: what an operator may write, in one place. */
#include "actors/common/decide/manifest_rows.h"

#include <string.h>

#define K8S "as Kubernetes writes it; not read"

static const struct manifest_field every_fields[] = {
	CHOICE("", "apiVersion", NEEDED, NOWHERE, 0, "pointsman.io/v1alpha1", NULL, RELOAD,
	       "the shape this page describes"),
	CHOICE("", "kind", NEEDED, NOWHERE, 0,
	       "GatewayBackend|InferenceWorkerSet|InferencePool|InferenceProvider|"
	       "InferencePolicy|InferenceTenant|RequestTag", NULL, RELOAD,
	       "what the document describes"),
	PLAIN("", "metadata", MAP, NEEDED, RELOAD, "who it is"),
	PLAIN("metadata", "name", NAME, NEEDED, RELOAD, "unique within its kind"),
	PLAIN("metadata", "labels", MAP, OPTIONAL, RELOAD,
	      "a map of texts for your own tools; those of InferenceWorkerSets and "
	      "InferenceProviders are `candidate.labels` of expressions"),
	PLAIN("metadata", "annotations", MAP, OPTIONAL, RELOAD,
	      "for your own tools; not read"),
	PLAIN("metadata", "namespace", ANY, OPTIONAL, RELOAD, K8S),
	PLAIN("metadata", "uid", ANY, OPTIONAL, RELOAD, K8S),
	PLAIN("metadata", "resourceVersion", ANY, OPTIONAL, RELOAD, K8S),
	PLAIN("metadata", "generation", ANY, OPTIONAL, RELOAD, K8S),
	PLAIN("metadata", "creationTimestamp", ANY, OPTIONAL, RELOAD, K8S),
	PLAIN("metadata", "deletionTimestamp", ANY, OPTIONAL, RELOAD, K8S),
	PLAIN("metadata", "deletionGracePeriodSeconds", ANY, OPTIONAL, RELOAD, K8S),
	PLAIN("metadata", "generateName", ANY, OPTIONAL, RELOAD, K8S),
	PLAIN("metadata", "selfLink", ANY, OPTIONAL, RELOAD, K8S),
	PLAIN("metadata", "finalizers", ANY, OPTIONAL, RELOAD, K8S),
	PLAIN("metadata", "ownerReferences", ANY, OPTIONAL, RELOAD, K8S),
	PLAIN("metadata", "managedFields", ANY, OPTIONAL, RELOAD, K8S),
	PLAIN("", "spec", MAP, NEEDED, RELOAD, "the fields below, by kind"),
	PLAIN("", "status", ANY, OPTIONAL, RELOAD, K8S),
};

const char *const manifest_kinds[] = {
	"GatewayBackend", "InferenceWorkerSet", "InferencePool", "InferenceProvider",
	"InferencePolicy", "InferenceTenant", "RequestTag", NULL,
};

static MANIFEST_TABLE(every, every_fields);

const struct manifest_field *
manifest_fields(const char *kind, size_t *ret_n)
{
	static const struct {
		const char *kind;
		const struct manifest_table *table;
	} tables[] = {
		{"*", &every},
		{"GatewayBackend", &manifest_table_gateway},
		{"InferenceWorkerSet", &manifest_table_set},
		{"InferencePool", &manifest_table_pool},
		{"InferenceProvider", &manifest_table_provider},
		{"InferencePolicy", &manifest_table_policy},
		{"InferenceTenant", &manifest_table_tenant},
		{"RequestTag", &manifest_table_tag},
	};

	*ret_n = 0;
	for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++)
		if (strcmp(tables[i].kind, kind) == 0) {
			*ret_n = tables[i].table->n;
			return tables[i].table->rows;
		}
	return NULL;
}
