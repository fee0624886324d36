/* actors/policy/waiting.c -- questions that cannot be answered yet; see waiting.h. */
#include "actors/policy/waiting.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int
waiting_add(struct waiting_list *w, const struct waiting *question)
{
	if (w->n == w->cap) {
		size_t cap = w->cap ? w->cap * 2 : 64;
		struct waiting *grown = realloc(w->list, cap * sizeof *grown);

		if (!grown)
			return -ENOMEM;
		w->list = grown;
		w->cap = cap;
	}
	w->list[w->n++] = *question;
	return 0;
}

static void
remove_at(struct waiting_list *w, size_t i)
{
	w->n--;
	memmove(&w->list[i], &w->list[i + 1], (w->n - i) * sizeof *w->list);
}

void
waiting_take(struct waiting_list *w, const struct view_ingress *from, uint32_t slot)
{
	for (size_t i = 0; i < w->n; i++)
		if (w->list[i].from == from && w->list[i].ask.slot == slot &&
		    !w->list[i].cancel) {
			remove_at(w, i);
			return;         /* one a slot */
		}
}

void
waiting_forget(struct waiting_list *w, const struct view_ingress *from)
{
	size_t kept = 0;

	for (size_t i = 0; i < w->n; i++)
		if (w->list[i].from != from)
			w->list[kept++] = w->list[i];
	w->n = kept;
}

bool
waiting_first(struct waiting_list *w, bool for_tokens, const struct token_key *key,
	      struct waiting *ret)
{
	for (size_t i = 0; i < w->n; i++) {
		const struct waiting *q = &w->list[i];

		if (q->for_tokens != for_tokens ||
		    (key && (q->key.lo != key->lo || q->key.hi != key->hi)))
			continue;
		*ret = *q;
		remove_at(w, i);
		return true;
	}
	return false;
}

void
waiting_free(struct waiting_list *w)
{
	free(w->list);
	*w = (struct waiting_list){0};
}
