/* Every mistake of tests/data/mistakes is found, first and where it stands; what is no mistake is
 * not; and no text, however made, costs more than its bytes. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "actors/common/decide/manifest.h"

#define MISTAKES PM_SOURCE_DIR "/tests/data/mistakes/"

/* What the file's second line says: "# error 7:35: text". */
struct expect {
	bool warning;
	unsigned line, column;
	char text[256];
};

static void
expect_read(const char *path, struct expect *e)
{
	char first[512], second[512], kind[16];
	FILE *f = fopen(path, "r");
	int at = 0;

	cr_assert(f && fgets(first, sizeof(first), f) && fgets(second, sizeof(second), f));
	fclose(f);
	cr_assert_eq(sscanf(second, "# %15s %u:%u: %n", kind, &e->line, &e->column, &at), 3, "%s",
		     path);
	second[strcspn(second, "\n")] = '\0';
	snprintf(e->text, sizeof(e->text), "%s", second + at);
	e->warning = strcmp(kind, "warning") == 0;
}

static bool
is_expected(const struct yaml_error *is, const struct expect *e)
{
	return is->line == e->line && is->column == e->column && strstr(is->text, e->text);
}

static bool
found(const char *path)
{
	struct yaml_errors errs = {0};
	struct manifest *m = NULL;
	char *paths[] = {(char *)(uintptr_t)path};
	struct expect e;
	bool is = false;
	int r = manifest_load_paths(paths, 1, &m, &errs);
	const struct yaml_errors *list = &errs;

	expect_read(path, &e);
	if (e.warning && r == 0)
		list = &m->warnings;
	for (size_t i = 0; i < list->n && (e.warning || i == 0); i++)
		is = is || is_expected(&list->list[i], &e);
	is = is && r == (e.warning ? 0 : -EINVAL);
	if (!is) {
		fprintf(stderr, "%s: not what is found first (%d):\n", path, r);
		yaml_errors_print(list, stderr);
	}
	manifest_free(&m);
	yaml_errors_free(&errs);
	return is;
}

Test(mistakes, each_is_found_first_and_where_it_stands)
{
	struct dirent **list;
	int n = scandir(MISTAKES, &list, NULL, alphasort), files = 0, bad = 0;

	cr_assert_geq(n, 0);
	for (int i = 0; i < n; i++) {
		char path[512];

		snprintf(path, sizeof(path), MISTAKES "%s", list[i]->d_name);
		if (strstr(list[i]->d_name, ".yaml")) {
			files++;
			bad += !found(path);
		}
		free(list[i]);
	}
	free(list);
	cr_assert_geq(files, 40);
	cr_assert_eq(bad, 0, "%d of %d mistakes are not found", bad, files);
}

/* ---- what is read as well ---- */

#define API "apiVersion: pointsman.io/v1alpha1\n"

/* As `kubectl get -A -o yaml` prints it, cut to what matters. */
static const char kubectl[] =
	"apiVersion: v1\nkind: List\nmetadata:\n  resourceVersion: \"\"\nitems:\n"
	"- apiVersion: pointsman.io/v1alpha1\n  kind: GatewayBackend\n  metadata:\n"
	"    annotations: {kubectl.kubernetes.io/last-applied-configuration: \"{}\"}\n"
	"    creationTimestamp: \"2026-01-01T00:00:00Z\"\n    generation: 3\n    name: gw\n"
	"    namespace: default\n    resourceVersion: \"512\"\n    uid: 0a1b\n"
	"    managedFields: [{manager: kubectl, fieldsV1: {\"f:spec\": {}}}]\n"
	"  spec: {listen: [\"127.0.0.1:8080\"], models: [{name: m, policy: p}]}\n"
	"  status: {conditions: [{type: Ready}]}\n"
	"- apiVersion: pointsman.io/v1alpha1\n  kind: InferenceWorkerSet\n"
	"  metadata: {name: s, labels: {zone: a}}\n"
	"  spec: {engine: vllm, model: m, members: [{name: w, url: \"http://h:1\"}]}\n"
	"- apiVersion: pointsman.io/v1alpha1\n  kind: InferencePool\n  metadata: {name: q}\n"
	"  spec: {workerSets: [s]}\n"
	"- apiVersion: pointsman.io/v1alpha1\n  kind: InferencePolicy\n  metadata: {name: p}\n"
	"  spec:\n    candidates: [{pool: q}]\n    rules:\n    - name: a\n"
	"      keep: candidate.labels['zone'] == 'a'\n";

Test(mistakes, what_kubectl_prints_is_read)
{
	struct yaml_errors errs = {0};
	struct manifest *m = NULL;

	if (manifest_load_text("-", kubectl, sizeof(kubectl) - 1, &m, &errs) < 0)
		yaml_errors_print(&errs, stderr);
	cr_assert(m);
	cr_assert_str_eq(m->gateway.name, "gw");
	cr_assert(m->policies[0].n_rules == 1 && m->policies[0].rules[0].keep.program);
	cr_assert_eq(m->sets[0].n_labels, 1);
	cr_assert_eq(m->warnings.n, 0);
	manifest_free(&m);
	yaml_errors_free(&errs);
}

/* ---- where a part of a text stands ---- */

static void
place_is(const char *yaml, const char *mark, unsigned line, unsigned column)
{
	struct yaml_errors errs = {0};
	struct yaml_docs *docs = NULL;
	const struct yaml_node *node;
	unsigned l = 0, c = 0;

	cr_assert_eq(yaml_parse("f", yaml, strlen(yaml), &docs, &errs), 0, "%s", yaml);
	node = yaml_map_get(docs->roots[0], "e");
	cr_assert(node && strstr(node->text, mark), "%s", yaml);
	yaml_place(docs, node, (size_t)(strstr(node->text, mark) - node->text), &l, &c);
	cr_assert(l == line && c == column, "%s: %u:%u, not %u:%u", yaml, l, c, line, column);
	yaml_docs_free(&docs);
}

Test(mistakes, a_place_in_a_text_is_found_however_it_is_written)
{
	place_is("e: one + X\n", "X", 1, 10);
	place_is("e: 'it''s X'\n", "X", 1, 11);
	place_is("e: \"a\\tb\\u00e9 X\"\n", "X", 1, 16);
	place_is("e: \"one \\\n    two X\"\n", "X", 2, 9);
	place_is("e: |\n  one\n  two X\n", "X", 3, 7);
	place_is("e: >-\n    one\n\n    two\n    X\n", "X", 5, 5);
	place_is("e: one\n  two X\n", "X", 2, 7);
	place_is("e: \xc3\xa9\xc3\xa9 X\n", "X", 1, 7);
	place_is("\xef\xbb\xbf" "e: X\n", "X", 1, 4);
	place_is("e: |\n  one \\n X\n", "X", 2, 10);
}

/* ---- hostile texts ---- */

static void
refused(const char *text, size_t len, const char *why)
{
	struct yaml_errors errs = {0};
	struct manifest *m = NULL;

	cr_assert_eq(manifest_load_text("f", text, len, &m, &errs), -EINVAL);
	cr_assert(errs.n > 0 && strstr(errs.list[0].text, why), "%s, not %s",
		  errs.n ? errs.list[0].text : "nothing", why);
	yaml_errors_free(&errs);
}

Test(mistakes, a_text_of_ten_mebibytes_is_refused_unread)
{
	size_t len = 10u << 20;
	char *text = malloc(len);

	cr_assert(text);
	memset(text, '#', len);
	refused(text, len, "larger than 1024 KiB");
	free(text);
}

/* n times `more` behind the beginning, and the end. */
static void
repeated_is_refused(const char *begin, const char *more, size_t n, const char *why)
{
	size_t len = strlen(begin), step = strlen(more);
	char *text = malloc(len + n * step + 1);

	cr_assert(text);
	memcpy(text, begin, len);
	for (size_t i = 0; i < n; i++)
		memcpy(text + len + i * step, more, step);
	refused(text, len + n * step, why);
	free(text);
}

Test(mistakes, no_text_costs_more_than_its_bytes)
{
	repeated_is_refused(API "x: ", "[", 400000, "nested more than 32 levels");
	repeated_is_refused(API "kind: RequestTag\nmetadata: {name: a}\nspec:\n  x-a:\n",
			    "  - {}\n", 140000, "");
	repeated_is_refused("", "---\n{}\n", 20000, "");
	repeated_is_refused(API "kind: ", "a", 500000, "kind");
	repeated_is_refused(API "a: [", "*a, ", 100, "aliases are not supported");
	repeated_is_refused(API, "? [a]\n", 100, "");
	refused(API "\0kind: x\n", sizeof(API "\0kind: x\n") - 1, "a NUL byte");
	refused("%TAG ! tag:x,2000:\n---\n!a b\n", 29, "");
	refused("\xff\xfe" "a\0", 4, "");
}

/* Each word as it is written, where its field says what it is. */
Test(mistakes, words_of_yaml_1_1_are_what_their_field_says)
{
	static const struct {
		const char *field, *why;
	} wrong[] = {
		{"blocked: on", "must be true or false"},
		{"blocked: Yes", "must be true or false"},
		{"blocked: \"true\"", "must be true or false"},
		{"blocked: ~", "must be true or false"},
		{"weight: 010", "without leading zeros"},
		{"weight: 0x10", "whole decimal number"},
		{"weight: 1_000", "whole decimal number"},
		{"weight: 1e2", "whole decimal number"},
		{"weight: 190:20:30", "whole decimal number"},
		{"weight: -1", "whole decimal number"},
		{"limits: {budgetPerDay: 1e3}", "decimal number such as"},
		{"limits: {budgetPerDay: .inf}", "decimal number such as"},
		{"limits: {budgetPerDay: 0.1234567}", "too many digits"},
	};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		char text[512];

		snprintf(text, sizeof(text), API "kind: InferenceTenant\nmetadata: {name: off}\n"
			 "spec:\n  %s\n", wrong[i].field);
		refused(text, strlen(text), wrong[i].why);
	}
}
