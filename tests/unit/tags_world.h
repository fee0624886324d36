/* tests/unit/tags_world.h -- a set of tags by patterns, and what texts and bodies have of it. */
#pragma once
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "actors/common/tags/tags.h"

enum { EMAIL = 1, PHONE = 2, IBAN = 4, CARD = 8, SSN = 16, SECRET = 32 };

struct tags_world {
	struct tags *tags;
	struct tags_room *room;
};

/* Tag i has pattern i. */
static inline struct tags_world
world_of(struct manifest_pattern *pattern, uint32_t n)
{
	struct manifest_tag tag[8] = {0};
	struct tags_world w;
	uint32_t which = 0;
	char why[200] = "";

	for (uint32_t i = 0; i < n; i++) {
		tag[i].patterns = &pattern[i];
		tag[i].n_patterns = 1;
	}
	cr_assert_eq(tags_new(&w.tags, tag, n, &which, why, sizeof why), 0, "%s", why);
	cr_assert_eq(tags_room_new(&w.room, w.tags), 0);
	return w;
}

static inline struct tags_world
world_of_all(void)
{
	struct manifest_pattern pattern[6] = {0};

	for (unsigned i = 0; i < 6; i++) {
		pattern[i].validator = (enum manifest_validator)i;
		pattern[i].minimum = 1;
	}
	return world_of(pattern, 6);
}

static inline void
world_end(struct tags_world *w)
{
	tags_room_free(&w->room);
	tags_free(&w->tags);
}

static inline struct tags_found
found_in_body(struct tags_world *w, const char *body)
{
	struct tags_found f;

	tags_of_body(w->room, slice_str(body), &f);
	return f;
}

static inline unsigned
in_text(struct tags_world *w, const char *text)
{
	struct tags_found f;

	tags_of_text(w->room, slice_str(text), &f);
	return (unsigned)f.tags;
}
