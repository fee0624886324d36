/* actors/pointsctl/schema.c -- `schema`: what may be written, from the loader's own table. */
#include <ctype.h>
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

/* ---- CustomResourceDefinitions ---- */

static void
quoted_print(FILE *to, const char *text)
{
	fputc('"', to);
	for (; *text; text++) {
		if (*text == '"' || *text == '\\')
			fputc('\\', to);
		fputc(*text, to);
	}
	fputc('"', to);
}

static bool
has_fields(const struct manifest_field *f, size_t n, const char *parent)
{
	for (size_t i = 0; i < n; i++)
		if (f[i].type != MANIFEST_T_LATER && strcmp(f[i].parent, parent) == 0)
			return true;
	return false;
}

static void
choices_print(FILE *to, const char *choices)
{
	for (const char *c = choices, *sep = ""; c; sep = ", ") {
		int n = (int)strcspn(c, "|");

		fprintf(to, "%s\"%.*s\"", sep, n, c); /* quoted: off would be false */
		c = c[n] ? c + n + 1 : NULL;
	}
}

/* The schema of one value.  Whatever the loader looks at more closely is a string here. */
static void
value_print(FILE *to, const struct manifest_field *f, int in)
{
	switch (f->type) {
	case MANIFEST_T_BOOL:
		fprintf(to, "%*stype: boolean\n", in, "");
		break;
	case MANIFEST_T_COUNT:
		fprintf(to, "%*stype: integer\n%*sformat: int64\n%*sminimum: %.0f\n"
			"%*smaximum: %.0f\n", in, "", in, "", in, "", f->min, in, "", f->max);
		break;
	case MANIFEST_T_SHARE:
	case MANIFEST_T_MONEY:
		fprintf(to, "%*stype: number\n%*sminimum: %.0f\n%*smaximum: %.0f\n", in, "", in,
			"", f->min, in, "", f->max);
		break;
	case MANIFEST_T_CHOICE:
		fprintf(to, "%*stype: string\n%*senum: [", in, "", in, "");
		choices_print(to, f->choices);
		fputs("]\n", to);
		break;
	default:
		fprintf(to, "%*stype: string\n", in, "");
		break;
	}
}

static void fields_print(FILE *to, const struct manifest_field *f, size_t n, const char *parent,
			 int in);

static void
field_print(FILE *to, const struct manifest_field *f, size_t n, const struct manifest_field *is,
	    int in)
{
	char path[256];

	snprintf(path, sizeof path, "%s%s%s%s", is->parent, *is->parent ? "." : "", is->key,
		 is->type == MANIFEST_T_LIST ? "[]" : "");
	fprintf(to, "%*s%s:\n%*sdescription: ", in, "", is->key, in + 2, "");
	quoted_print(to, is->doc);
	fputc('\n', to);
	in += 2;
	if (is->type == MANIFEST_T_MAP && has_fields(f, n, path)) {
		fields_print(to, f, n, path, in);
	} else if (is->type == MANIFEST_T_MAP) {
		fprintf(to, "%*stype: object\n%*sx-kubernetes-preserve-unknown-fields: true\n", in,
			"", in, "");
	} else if (is->type == MANIFEST_T_LIST && is->max == 0) { /* one or a list: aliasOf */
		fprintf(to, "%*sx-kubernetes-preserve-unknown-fields: true\n", in, "");
	} else if (is->type == MANIFEST_T_LIST) {
		fprintf(to, "%*stype: array\n%*sminItems: %.0f\n%*smaxItems: %.0f\n%*sitems:\n", in,
			"", in, "", is->min, in, "", is->max, in, "");
		if (has_fields(f, n, path))
			fields_print(to, f, n, path, in + 2);
		else
			fprintf(to, "%*stype: string\n", in + 2, "");
	} else {
		value_print(to, is, in);
	}
}

/* The map at that path: its keys, and those that it needs. */
static void
fields_print(FILE *to, const struct manifest_field *f, size_t n, const char *parent, int in)
{
	const char *sep = "";

	fprintf(to, "%*stype: object\n%*sproperties:\n", in, "", in, "");
	for (size_t i = 0; i < n; i++)
		if (f[i].type != MANIFEST_T_LATER && strcmp(f[i].parent, parent) == 0)
			field_print(to, f, n, &f[i], in + 2);
	for (size_t i = 0; i < n; i++)
		if (f[i].required && strcmp(f[i].parent, parent) == 0) {
			if (!*sep)
				fprintf(to, "%*srequired: [", in, "");
			fprintf(to, "%s%s", sep, f[i].key);
			sep = ", ";
		}
	if (*sep)
		fputs("]\n", to);
}

static void
plural_print(FILE *to, const char *kind)
{
	size_t len = strlen(kind);
	bool y = kind[len - 1] == 'y';

	for (size_t i = 0; i < len - y; i++)
		fputc(tolower((unsigned char)kind[i]), to);
	fputs(y ? "ies" : "s", to);
}

static int
crd_print(FILE *to, const char *kind)
{
	size_t n;
	const struct manifest_field *f = manifest_fields(kind, &n);

	if (!f || strcmp(kind, "*") == 0) {
		complain("schema: there is no kind \"%s\"", kind);
		return 1;
	}
	fputs("# From the loader's own table of fields: pointsctl schema crd ", to);
	fprintf(to, "%s\napiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n"
		"metadata:\n  name: ", kind);
	plural_print(to, kind);
	fputs(".pointsman.io\nspec:\n  group: pointsman.io\n  scope: Namespaced\n  names:\n"
	      "    kind: ", to);
	fprintf(to, "%s\n    plural: ", kind);
	plural_print(to, kind);
	fputs("\n    singular: ", to);
	for (const char *c = kind; *c; c++)
		fputc(tolower((unsigned char)*c), to);
	fputs("\n  versions:\n    - name: v1alpha1\n      served: true\n      storage: true\n"
	      "      schema:\n        openAPIV3Schema:\n          type: object\n"
	      "          required: [spec]\n          properties:\n"
	      "            apiVersion:\n              type: string\n"
	      "            kind:\n              type: string\n"
	      "            metadata:\n              type: object\n"
	      "            status:\n              type: object\n"
	      "              x-kubernetes-preserve-unknown-fields: true\n"
	      "            spec:\n", to);
	fields_print(to, f, n, "spec", 14);
	return 0;
}

int
command_schema(const struct options *o)
{
	bool table = strcmp(o->args[0], "table") == 0;
	int code = 0;

	if (!table && strcmp(o->args[0], "crd") != 0) {
		complain("schema: \"%s\" is neither \"table\" nor \"crd\"", o->args[0]);
		return EXIT_USAGE;
	}
	for (unsigned i = 1; i < o->n_args && code == 0; i++) {
		if (!table && i > 1)
			puts("---");
		code = table ? table_print(stdout, o->args[i]) : crd_print(stdout, o->args[i]);
	}
	return code;
}
