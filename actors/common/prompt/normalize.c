/* actors/common/prompt/normalize.c -- NFC, Prepend, Replace. */
#include "actors/common/prompt/normalize.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void
normal_begin(struct normal_text *to, size_t len)
{
	to->len = 0;
	to->most = len < NORMAL_MOST / NORMAL_TIMES ? len * NORMAL_TIMES + NORMAL_MORE
						    : NORMAL_MOST;
}

int
normal_add(struct normal_text *to, const char *p, size_t n)
{
	if (n > to->most - to->len)
		return -EOVERFLOW;
	if (n > to->cap - to->len) {
		size_t cap = to->len + n + to->len / 2 + 256;
		char *more = realloc(to->p, cap);

		if (!more)
			return -ENOMEM;
		to->p = more;
		to->cap = cap;
	}
	if (n)
		memcpy(to->p + to->len, p, n);
	to->len += n;
	return 0;
}

int
normal_replace(struct normal_text *to, struct slice text, struct slice what, struct slice with)
{
	const char *p = text.p, *end = text.p + text.len, *at;

	while (p < end && (at = memmem(p, (size_t)(end - p), what.p, what.len))) {
		int r = normal_add(to, p, (size_t)(at - p));

		if (r == 0)
			r = normal_add(to, with.p, with.len);
		if (r < 0)
			return r;
		p = at + what.len;
	}
	return normal_add(to, p, (size_t)(end - p));
}

int
normalize(const struct tokenizer_step *steps, unsigned n, const char *bytes,
	  struct normal_buffers *buffers, struct slice text, struct slice *ret)
{
	size_t len = text.len;
	unsigned turn = 0;

	for (unsigned i = 0; i < n && text.len; i++) {
		const struct tokenizer_step *s = &steps[i];
		struct slice what = {bytes + s->text, s->text_len};
		struct slice with = {bytes + s->with, s->with_len};
		struct normal_text *to = &buffers->text[turn];
		int r = 0;

		normal_begin(to, len);
		switch ((enum tokenizer_step_kind)s->kind) {
		case STEP_NFC:
			if (nfc_is(text))
				continue;
			/* nfc's text is its own: another NFC later reads it while it writes. */
			r = nfc_make(&buffers->nfc, text);
			if (r == 0)
				r = normal_add(to, buffers->nfc.text, buffers->nfc.len);
			break;
		case STEP_PREPEND:
			r = normal_add(to, what.p, what.len);
			if (r == 0)
				r = normal_add(to, text.p, text.len);
			break;
		case STEP_REPLACE:
			r = normal_replace(to, text, what, with);
			break;
		default:
			continue;
		}
		if (r < 0)
			return r;
		text = (struct slice){to->p, to->len};
		turn ^= 1;
	}
	*ret = text;
	return 0;
}

void
normal_free(struct normal_buffers *buffers)
{
	nfc_free(&buffers->nfc);
	free(buffers->text[0].p);
	free(buffers->text[1].p);
	*buffers = (struct normal_buffers){0};
}

void
normal_text_give_back(struct normal_text *text, size_t most)
{
	if (text->cap <= most)
		return;
	free(text->p);
	*text = (struct normal_text){0};
}

void
normal_give_back(struct normal_buffers *buffers, size_t most)
{
	if (buffers->nfc.cap > most || buffers->nfc.run_cap * sizeof(uint32_t) > most)
		nfc_free(&buffers->nfc);
	for (unsigned i = 0; i < 2; i++)
		normal_text_give_back(&buffers->text[i], most);
}
