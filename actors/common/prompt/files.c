/* actors/common/prompt/files.c -- a tokenizer's files, found and mapped. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "actors/common/prompt/tokenizer_compile.h"

#define LLAMA3 "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|" \
	" ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define O200K_UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define O200K_LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define O200K_TAIL "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
#define O200K "[^\\r\\n\\p{L}\\p{N}]?" O200K_UPPER "*" O200K_LOWER "+" O200K_TAIL \
	"|[^\\r\\n\\p{L}\\p{N}]?" O200K_UPPER "+" O200K_LOWER "*" O200K_TAIL \
	"|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

/* Rank files that are known by their names, and the patterns in the code that reads them. */
static const struct {
	const char *name, *pattern;
} known[] = {
	{"cl100k_base.tiktoken", LLAMA3}, {"o200k_base.tiktoken", O200K},
	{"r50k_base.tiktoken", GPT2}, {"p50k_base.tiktoken", GPT2}, {"gpt2.tiktoken", GPT2},
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
map_file(const char *path, void **ret, size_t *ret_len, char *why, size_t why_len)
{
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY), r = 0;
	void *p = MAP_FAILED;

	if (fd < 0 || fstat(fd, &st) < 0) {
		r = -errno;
	} else if (!S_ISREG(st.st_mode) || st.st_size == 0) {
		r = -EINVAL;
	} else {
		p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
		r = p == MAP_FAILED ? -errno : 0;
	}
	if (fd >= 0)
		close(fd);
	if (r < 0) {
		snprintf(why, why_len, "%s: %s", path,
			 r == -EINVAL ? "empty, or no file" : strerror(-r));
		return r;
	}
	*ret = p;
	*ret_len = (size_t)st.st_size;
	return 0;
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
map_config(struct tokenizer_files *f, char *why, size_t why_len)
{
	const char *slash = strrchr(f->name, '/');
	char *path;
	int r;

	if (asprintf(&path, "%.*s/tokenizer_config.json",
		     slash ? (int)(slash - f->name) : 1, slash ? f->name : ".") < 0)
		return -ENOMEM;
	r = map_file(path, &f->map[1], &f->len[1], why, why_len);
	free(path);
	if (r == -ENOENT)
		return 0;
	if (r == 0)
		f->source.config = slice_of(f->map[1], f->len[1]);
	return r;
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
			f.source.pattern = slice_str(known[i].pattern);
	r = map_file(f.name, &f.map[0], &f.len[0], why, why_len);
	if (r == 0)
		f.source.file = slice_of(f.map[0], f.len[0]);
	/* Which pattern a rank file goes by stands nowhere else. */
	if (r == 0 && (config || (f.source.form == TOKENIZER_RANKS && !f.source.pattern.p)))
		r = map_config(&f, why, why_len);
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
		if (files->map[i])
			munmap(files->map[i], files->len[i]);
	free(files->name);
	*files = (struct tokenizer_files){0};
}
