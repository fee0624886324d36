/* actors/common/prompt/text.c -- see text.h. */
#include "actors/common/prompt/text.h"

#include <stdlib.h>

#define FIRST_CAP (32u << 10)

void
text_init(struct text *text, size_t max)
{
	*text = (struct text){.max = max};
}

void
text_free(struct text *text)
{
	free(text->p);
	text_init(text, text->max);
}

int
text_room(struct text *text, size_t n)
{
	size_t cap = text->cap ? text->cap : FIRST_CAP;
	char *p;

	if (n > text->max || text->len > text->max - n)
		return -ENOSPC;
	if (n <= text->cap - text->len)
		return 0;
	while (cap - text->len < n)
		cap *= 2;
	p = realloc(text->p, cap);
	if (!p)
		return -ENOMEM;
	text->p = p;
	text->cap = cap;
	return 0;
}

void
text_give_back(struct text *text, size_t most)
{
	if (text->cap > most)
		text_free(text);
}
