/* tests/unit/model_world.h -- models of the demo's tokenizer, with a template and options at will.
 *
 * A folder is made under the system's temporary folder, built, and removed again; what is opened
 * lives until the test ends (the process does).
 */
#pragma once
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "actors/common/prompt/model.h"

#define DEMO PM_SOURCE_DIR "/etc/models/demo"

static inline void
world_write(const char *dir, const char *name, const char *text, size_t len)
{
	char path[600];
	FILE *f;

	snprintf(path, sizeof path, "%s/%s", dir, name);
	f = fopen(path, "wb");
	cr_assert(f && fwrite(text, 1, len, f) == len && fclose(f) == 0, "%s", path);
}

static inline char *
world_read(const char *path, size_t *ret_len)
{
	FILE *f = fopen(path, "rb");
	char *text;
	long n;

	cr_assert(f && fseek(f, 0, SEEK_END) == 0, "%s", path);
	n = ftell(f);
	rewind(f);
	text = malloc((size_t)n + 1);
	cr_assert_eq(fread(text, 1, (size_t)n, f), (size_t)n);
	text[n] = '\0';
	fclose(f);
	if (ret_len)
		*ret_len = (size_t)n;
	return text;
}

/* A new folder that holds the demo's tokenizer. */
static inline void
world_folder(char dir[64])
{
	char link[600];

	strcpy(dir, "/tmp/pm-model-XXXXXX");
	cr_assert_not_null(mkdtemp(dir));
	snprintf(link, sizeof link, "%s/tokenizer.json", dir);
	cr_assert_eq(symlink(DEMO "/tokenizer.json", link), 0);
}

static inline void
world_remove(const char *dir)
{
	char command[200];

	snprintf(command, sizeof command, "rm -r '%s'", dir);
	cr_assert_eq(system(command), 0);
}

static inline struct model *
world_open(const char *dir, const struct model_options *options)
{
	char why[MODEL_WHY_BYTES];
	static void *kept[128];         /* the models' */
	static unsigned n_kept;
	struct model *m = NULL;
	void *bytes;
	size_t len;

	cr_assert_eq(model_build(dir, options, &bytes, &len, why, sizeof why), 0, "%s: %s", dir,
		     why);
	cr_assert_eq(model_open(bytes, len, &m, why, sizeof why), 0, "%s: %s", dir, why);
	cr_assert_lt(n_kept, sizeof kept / sizeof kept[0]);
	kept[n_kept++] = bytes;
	return m;
}

/* The demo's tokenizer and special tokens under that template (a file's path). */
static inline struct model *
world_model(const char *template_file, struct model_options options)
{
	options.template_file = template_file;
	return world_open(DEMO, &options);
}
