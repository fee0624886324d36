/* actors/pointsctl/check.c -- `check PATH...`: what the supervisor reads, with its checks. */
#include <stdlib.h>
#include <string.h>

#include "actors/common/models_build.h"
#include "actors/common/secrets.h"
#include "actors/pointsctl/pointsctl.h"

static json_t *
text_of(const char *text)
{
	json_t *t = text ? json_string(text) : json_null();

	return t ? t : json_string("?"); /* no UTF-8 */
}

static void
complaints_add(json_t *list, const struct yaml_errors *errs, const char *severity)
{
	for (size_t i = 0; i < errs->n; i++) {
		const struct yaml_error *e = &errs->list[i];
		json_t *one = json_object();

		json_object_set_new(one, "file", text_of(e->file));
		json_object_set_new(one, "line", json_integer(e->line));
		json_object_set_new(one, "column", json_integer(e->column));
		json_object_set_new(one, "severity", json_string(severity));
		json_object_set_new(one, "found", text_of(e->found));
		json_object_set_new(one, "expected", text_of(e->expected));
		json_object_set_new(one, "nearest", text_of(e->nearest));
		json_object_set_new(one, "text", text_of(e->text));
		json_array_append_new(list, one);
	}
}

static void
print_found(const struct manifest *m, const struct yaml_errors *errs,
	    const struct yaml_errors *warnings)
{
	json_t *o = json_object(), *list = json_array();

	complaints_add(list, errs, "error");
	complaints_add(list, warnings, "warning");
	json_object_set_new(o, "ok", json_boolean(m != NULL));
	json_object_set_new(o, "complaints", list);
	json_object_set_new(o, "complaints_dropped",
			    json_integer((json_int_t)(errs->dropped + warnings->dropped)));
	if (m) {
		json_object_set_new(o, "models", json_integer(m->n_models));
		json_object_set_new(o, "policies", json_integer(m->n_policies));
		json_object_set_new(o, "pools", json_integer(m->n_pools));
		json_object_set_new(o, "providers", json_integer(m->n_providers));
		json_object_set_new(o, "tenants", json_integer(m->n_tenants));
		json_object_set_new(o, "tags", json_integer(m->n_tags));
		json_object_set_new(o, "worker_sets", json_integer(m->n_sets));
		json_object_set_new(o, "workers", json_integer(manifest_workers(m)));
	}
	print_json(o);
	json_decref(o);
}

/* What pointsman-models would say: such a set goes by its workers' /tokenize. */
static void
check_models(const struct manifest *m, struct yaml_errors *warnings)
{
	for (uint32_t i = 0; i < m->n_sets; i++) {
		const struct manifest_tokenizer *t = &m->sets[i].tokenizer;
		char why[MODELS_WHY_BYTES] = "";
		void *bytes = NULL;
		size_t len;

		if (t->path[0] && models_build(t, &bytes, &len, why, sizeof why) < 0)
			yaml_errors_add(warnings, t->file, t->line, t->column,
					"spec.tokenizer.path: %s; the set is as one without "
					"a tokenizer", why);
		free(bytes);
	}
}

int
command_check(const struct options *o)
{
	struct yaml_errors errs = {0}, warnings = {0};
	struct secret_files *files = NULL;
	struct manifest *m = NULL;
	int r = manifest_load_paths(o->args, o->n_args, &m, &errs);
	char text[240];
	int code;

	if (r == 0)
		r = secrets_read(m, &files, &errs, &warnings);
	secrets_files_free(&files);
	if (r == 0) {
		yaml_errors_append(&warnings, &m->warnings);
		check_models(m, &warnings);
	}
	code = r < 0;
	if (o->json) {
		print_found(r < 0 ? NULL : m, &errs, &warnings);
	} else {
		yaml_errors_print(&errs, stderr);
		yaml_errors_print_as(&warnings, "warning: ", stderr);
	}
	if (r < 0 && !yaml_errors_any(&errs))
		complain("cannot load: %s", strerror(-r));
	if (r == 0 && !o->json) {
		manifest_say(m, text, sizeof text);
		printf("configuration ok: %s\n", text);
	}
	manifest_free(&m);
	yaml_errors_free(&errs);
	yaml_errors_free(&warnings);
	return code;
}
