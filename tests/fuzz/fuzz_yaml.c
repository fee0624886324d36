/* fuzz_yaml.c -- no text makes the configuration loader step outside, leak or give out a manifest
 * beside a complaint; a manifest that was given out loads again from its snapshot. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

#include "actors/common/decide/manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct yaml_errors errs = {0};
	struct manifest *m = NULL, *again = NULL;
	struct yaml_docs *docs = NULL;
	int r;

	r = yaml_parse("f", data, size, &docs, &errs);
	if ((r == 0) != (docs != NULL) || (r == 0) == yaml_errors_any(&errs))
		abort();
	yaml_docs_free(&docs);
	yaml_errors_free(&errs);
	r = manifest_load_text("f", (const char *)data, size, &m, &errs);
	if ((r == 0) != (m != NULL) || (r == 0) == yaml_errors_any(&errs))
		abort();
	if (m) {
		if (manifest_load_snapshot(m->snapshot, m->snapshot_len, &again, &errs) < 0 ||
		    again->hash != m->hash || again->n_members != m->n_members)
			abort();
		manifest_free(&again);
		manifest_free(&m);
	}
	yaml_errors_free(&errs);
	if (manifest_load_snapshot(data, size, &m, &errs) == 0)
		manifest_free(&m);
	yaml_errors_free(&errs);
	return 0;
}
