/* actors/pointsctl/tokenize.c -- `tokenize --model DIR`: text from standard input as token ids. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "actors/common/prompt/tokenizer.h"
#include "actors/common/prompt/tokenizer_compile.h"
#include "actors/common/prompt/value.h"
#include "actors/pointsctl/decode.h"
#include "actors/pointsctl/pointsctl.h"

#define TEXT_MAX ((size_t)1 << 30)

struct tokenize {
	const struct options *o;
	struct tokenizer *tokenizer;
	struct tokenizer_scratch *scratch;
	void *compiled;
	struct bytes in;
	struct bump bump;
	struct ids ids;
};

static bool
open_model(struct tokenize *t)
{
	char why[TOKENIZER_WHY_BYTES] = "";
	const char *trouble = "";
	struct tokenizer_files files;
	size_t len;

	if (tokenizer_files_open(t->o->model, t->o->transformers, &files, why, sizeof(why)) < 0) {
		complain("%s", why);
		return false;
	}
	if (tokenizer_compile(&files.source, &t->compiled, &len, why, sizeof(why)) < 0)
		complain("%s: %s", files.name, why);
	else if (tokenizer_open(t->compiled, len, &t->tokenizer, &trouble) < 0)
		complain("%s: %s", files.name, trouble);
	tokenizer_files_close(&files);
	return t->tokenizer && tokenizer_scratch_new(&t->scratch) == 0;
}

/* line 0: the text has none. */
static bool
put_ids(struct tokenize *t, struct slice text, size_t line)
{
	bool list = line > 0;
	char where[32] = "", why[TOKENIZER_WHY_BYTES];
	int r;

	t->ids.n = 0;
	r = tokenizer_encode(t->tokenizer, t->scratch, text, t->o->special, SIZE_MAX, &t->ids);
	if (list)
		snprintf(where, sizeof(where), "line %zu: ", line);
	if (r < 0) {
		tokenizer_trouble(t->tokenizer, t->scratch, r, why, sizeof why);
		complain("%s: %sthe text: %s", t->o->model, where, why);
		return false;
	}
	if (list)
		putchar('[');
	for (size_t i = 0; i < t->ids.n; i++)
		printf("%s%u", i ? list ? ", " : " " : "", t->ids.id[i]);
	fputs(list ? "]\n" : "\n", stdout);
	return true;
}

static bool
put_line(struct tokenize *t, struct slice line, size_t number)
{
	const char *why = "it is no string";
	struct value v = {0};
	size_t off = 0;

	bump_reset(&t->bump);
	if (value_from_json(&t->bump, line, &v, &why, &off) < 0 || v.kind != VALUE_STRING) {
		complain("line %zu, byte %zu: %s", number, off, why);
		return false;
	}
	return put_ids(t, slice_of(v.s, v.n), number);
}

static bool
put_lines(struct tokenize *t)
{
	const char *p = (const char *)t->in.p, *end = p + t->in.n;

	for (size_t number = 1; p < end; number++) {
		const char *eol = memchr(p, '\n', (size_t)(end - p));
		size_t len = (size_t)((eol ? eol : end) - p);

		if (len > 0 && !put_line(t, slice_of(p, len), number))
			return false;
		p += len + 1;
	}
	return true;
}

int
command_tokenize(const struct options *o)
{
	struct tokenize t = {.o = o};
	bool done = false;

	if (!o->model) {
		complain("tokenize: --model DIR is missing");
		return EXIT_USAGE;
	}
	bump_init(&t.bump, TEXT_MAX);
	if (open_model(&t)) {
		int r = file_read("-", TEXT_MAX, &t.in);

		if (r < 0)
			complain("standard input: %s", strerror(-r));
		else if (o->jsonl)
			done = put_lines(&t);
		else
			done = put_ids(&t, slice_of((const char *)t.in.p, t.in.n), 0);
	}
	if (fflush(stdout) != 0 && done) {
		complain("standard output: %s", strerror(errno));
		done = false;
	}
	free(t.in.p);
	ids_free(&t.ids);
	bump_free(&t.bump);
	tokenizer_scratch_free(&t.scratch);
	tokenizer_close(&t.tokenizer);
	free(t.compiled);
	return done ? 0 : 1;
}
