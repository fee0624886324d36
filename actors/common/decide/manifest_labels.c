/* manifest_labels.c -- metadata.labels, which expressions read as candidate.labels. */
#include "actors/common/decide/manifest_private.h"

#include <stdlib.h>
#include <string.h>

#include "actors/common/decide/facts.h"

static bool
label_copy(struct manifest_loader *l, const struct yaml_node *pair, struct facts_label *to)
{
	char *key = manifest_strdup(l, pair->key), *value = manifest_strdup(l, pair->text);

	if (!key || !value) {
		free(key);
		free(value);
		return false;
	}
	to->key = (struct slice){key, strlen(key)};
	to->value = (struct slice){value, pair->len};
	return true;
}

void
manifest_labels_load(struct manifest_loader *l, const struct manifest_doc *doc,
		     struct facts_label **labelsp, uint32_t *ret_n)
{
	const struct yaml_node *pair = doc->labels ? doc->labels->child : NULL;

	if (!pair)
		return;
	if (doc->labels->n_children > MANIFEST_LABELS_MAX) {
		MANIFEST_COMPLAIN(l, doc->file, doc->labels, "metadata.labels has more than %u",
				  MANIFEST_LABELS_MAX);
		return;
	}
	*labelsp = calloc(doc->labels->n_children, sizeof(**labelsp));
	if (!*labelsp) {
		l->oom = true;
		return;
	}
	for (; pair; pair = pair->next) {
		if (pair->kind != YAML_KIND_SCALAR)
			MANIFEST_COMPLAIN(l, doc->file, pair,
					  "metadata.labels: the value of \"%.60s\" must be a text",
					  pair->key);
		else if (label_copy(l, pair, &(*labelsp)[*ret_n]))
			++*ret_n;
	}
}

void
manifest_labels_free(struct facts_label *labels, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		free((char *)(uintptr_t)labels[i].key.p);
		free((char *)(uintptr_t)labels[i].value.p);
	}
	free(labels);
}
