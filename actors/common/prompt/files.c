/* actors/common/prompt/files.c -- a tokenizer's files, found and read. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "actors/common/prompt/file.h"
#include "actors/common/prompt/scan.h"
#include "actors/common/prompt/tokenizer_compile.h"

#define FILE_MOST (1u << 30)            /* bytes of a tokenizer's file */

/* Rank files that are known by their names, and the patterns in the code that reads them. */
static const struct {
	const char *name;
	enum scan_kind pattern;
} known[] = {
	{"cl100k_base.tiktoken", SCAN_LLAMA3}, {"o200k_base.tiktoken", SCAN_O200K},
	{"r50k_base.tiktoken", SCAN_GPT2}, {"p50k_base.tiktoken", SCAN_GPT2},
	{"gpt2.tiktoken", SCAN_GPT2},
};

static bool
ends_with(const char *name, const char *tail)
{
	size_t n = strlen(name), m = strlen(tail);

	return n >= m && strcmp(name + n - m, tail) == 0;
}

/* In the order in which they are looked for. */
static int
form_of(const char *name)
{
	if (strcmp(name, "tokenizer.json") == 0)
		return 0;
	if (strcmp(name, "tekken.json") == 0)
		return 1;
	if (strcmp(name, "tiktoken.model") == 0)
		return 2;
	return ends_with(name, ".tiktoken") ? 3 : -1;
}

static int
read_file(struct tokenizer_files *f, unsigned at, const char *path, struct slice *ret, char *why,
	  size_t why_len)
{
	size_t len;
	int r = file_bytes(path, FILE_MOST, &f->bytes[at], &len, why, why_len);

	if (r == 0 && len == 0) {
		snprintf(why, why_len, "%s: empty", path);
		return -EINVAL;
	}
	if (r == 0)
		*ret = slice_of(f->bytes[at], len);
	return r;
}

/* The tokenizer's file in a folder, malloc'd; NULL: none is there. */
static char *
in_folder(const char *path)
{
	DIR *dir = opendir(path);
	struct dirent *e;
	char *best = NULL;
	int form = 4;

	while (dir && (e = readdir(dir))) {
		int f = form_of(e->d_name);
		char *name;

		/* Of several *.tiktoken the first by name, so that it is always the same. */
		if (f < 0 || f > form ||
		    (f == form && strcmp(strrchr(best, '/') + 1, e->d_name) < 0))
			continue;
		if (asprintf(&name, "%s/%s", path, e->d_name) < 0)
			continue;
		free(best);
		best = name;
		form = f;
	}
	if (dir)
		closedir(dir);
	return best;
}

static int
read_config(struct tokenizer_files *f, char *why, size_t why_len)
{
	const char *slash = strrchr(f->name, '/');
	char *path;
	int r;

	if (asprintf(&path, "%.*s/tokenizer_config.json",
		     slash ? (int)(slash - f->name) : 1, slash ? f->name : ".") < 0)
		return -ENOMEM;
	r = read_file(f, 1, path, &f->source.config, why, why_len);
	free(path);
	return r == -ENOENT ? 0 : r;
}

int
tokenizer_files_open(const char *path, bool config, struct tokenizer_files *ret, char *why,
		     size_t why_len)
{
	static const enum tokenizer_form forms[] = {
		TOKENIZER_JSON, TOKENIZER_TEKKEN, TOKENIZER_RANKS, TOKENIZER_RANKS,
	};
	struct tokenizer_files f = {0};
	struct stat st;
	int r, form;

	if (stat(path, &st) < 0) {
		r = -errno;
		snprintf(why, why_len, "%s: %s", path, strerror(errno));
		return r;
	}
	f.name = S_ISDIR(st.st_mode) ? in_folder(path) : strdup(path);
	if (!f.name) {
		snprintf(why, why_len, "%s: no tokenizer.json, tekken.json, tiktoken.model or "
			 "*.tiktoken in it", path);
		return -ENOENT;
	}
	const char *name = strrchr(f.name, '/') ? strrchr(f.name, '/') + 1 : f.name;

	form = form_of(name);
	f.source.form = forms[form < 0 ? 0 : form];
	for (unsigned i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (strcmp(name, known[i].name) == 0)
			f.source.pattern = slice_str(scan_pattern(known[i].pattern, 0));
	r = read_file(&f, 0, f.name, &f.source.file, why, why_len);
	/* Which pattern a rank file goes by stands nowhere else. */
	if (r == 0 && (config || (f.source.form == TOKENIZER_RANKS && !f.source.pattern.p)))
		r = read_config(&f, why, why_len);
	if (r < 0) {
		tokenizer_files_close(&f);
		return r;
	}
	*ret = f;
	return 0;
}

void
tokenizer_files_close(struct tokenizer_files *files)
{
	for (unsigned i = 0; i < 2; i++)
		free(files->bytes[i]);
	free(files->name);
	*files = (struct tokenizer_files){0};
}
