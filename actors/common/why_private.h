/* actors/common/why_private.h -- for why.c and why_tokens.c alone. */
#pragma once
#include "actors/common/why.h"

#define WHY_FEW 20u                     /* requests below which "none of them" says nothing */

struct why_say {
	const struct pm_view *view;
	const struct pm_view_worker *w;
	const struct manifest_set *set;         /* NULL: not in the documents in force */
	const struct manifest_member *member;
	mono_ns now;
	struct pm_why *to;
	unsigned n;
};

#define WHY_FACT(...) (&(struct pm_why){__VA_ARGS__})

void why_add(struct why_say *s, const struct pm_why *fact, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
	/* Above PM_WHY_MAX: not taken. */
void why_tokens(struct why_say *s, const struct pm_why_traffic *t);
