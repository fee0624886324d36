/* actors/pointsctl/schema.c -- `schema`: what may be written, from the loader's own table. */
#include <stdlib.h>
#include <string.h>

#include "actors/common/decide/manifest.h"
#include "actors/pointsctl/pointsctl.h"

static const char *
type_name(const struct manifest_field *f)
{
	static const char *const names[] = {
		[MANIFEST_T_NAME] = "name",	    [MANIFEST_T_TEXT] = "text",
		[MANIFEST_T_BOOL] = "true or false", [MANIFEST_T_COUNT] = "count",
		[MANIFEST_T_DURATION] = "duration", [MANIFEST_T_SECONDS] = "duration",
		[MANIFEST_T_SIZE] = "size",	    [MANIFEST_T_CHOICE] = "one of",
		[MANIFEST_T_ADDR] = "address",	    [MANIFEST_T_PATH] = "path",
		[MANIFEST_T_LIST] = "list",	    [MANIFEST_T_MAP] = "map",
		[MANIFEST_T_ANY] = "any",
		[MANIFEST_T_STRING] = "string",	    [MANIFEST_T_HEADER] = "header name",
		[MANIFEST_T_SHARE] = "0 to 1",	    [MANIFEST_T_MONEY] = "money",
		[MANIFEST_T_EXPRESSION] = "expression",
		[MANIFEST_T_OBJECTIVE] = "expression or one of",
	};

	return names[f->type];
}

static void
row_print(FILE *to, const struct manifest_field *f)
{
	fprintf(to, "| `%s%s%s` | %s", f->parent, *f->parent ? "." : "", f->key, type_name(f));
	for (const char *c = f->choices, *sep = " "; c; sep = ", ") {
		int n = (int)strcspn(c, "|");

		fprintf(to, "%s`%.*s`", sep, n, c);
		c = c[n] ? c + n + 1 : NULL;
	}
	if (f->type == MANIFEST_T_COUNT)
		fprintf(to, " %.0f to %.0f", f->min, f->max);
	fprintf(to, " | %s%s%s | %s | %s |\n", f->fallback ? "`" : "",
		f->fallback ? f->fallback : f->required ? "needed" : "", f->fallback ? "`" : "",
		f->restart ? "restart" : "reload", f->doc);
}

static int
table_print(FILE *to, const char *kind)
{
	size_t n;
	const struct manifest_field *f = manifest_fields(kind, &n);

	if (!f) {
		complain("schema: there is no kind \"%s\"", kind);
		return 1;
	}
	fputs("| field | type | default | takes effect | meaning |\n"
	      "| --- | --- | --- | --- | --- |\n", to);
	for (size_t i = 0; i < n; i++)
		if (f[i].type != MANIFEST_T_LATER)
			row_print(to, &f[i]);
	return 0;
}

int
command_schema(const struct options *o)
{
	int code = 0;

	if (strcmp(o->args[0], "table") != 0) {
		complain("schema: \"%s\" is not \"table\"", o->args[0]);
		return EXIT_USAGE;
	}
	for (unsigned i = 1; i < o->n_args && code == 0; i++)
		code = table_print(stdout, o->args[i]);
	return code;
}
