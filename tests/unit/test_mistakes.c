/* Every mistake of tests/data/mistakes is found, first and where it stands. */
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
