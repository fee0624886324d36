/* actors/supervisor/past.c -- documents that were in force: the last ten, to go back to.
 *
 * The texts are ours and end with us; what they were stands in the roster, where all can read it.
 * Files that the documents name (keys, certificates, models) are read anew when they come back, and
 * so are found members: only the documents are as they were.
 */
#include "actors/supervisor/supervisor.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void
past_note(struct supervisor *s, const struct config *c, enum roster_came came, uint32_t of)
{
	struct roster_past *shown = s->roster.head->past;
	struct past entry = {.len = c->manifest->base_len,
			     .documents = malloc(c->manifest->base_len)};

	if (!entry.documents) {
		log_error("generation %u: no memory to keep its documents: no rollback to them",
			  c->generation);
		return;
	}
	memcpy(entry.documents, c->manifest->snapshot, entry.len);
	if (came == CAME_PROBATION)
		shown[0].failed = 1;
	free(s->past[ROSTER_PASTS - 1].documents);
	memmove(&s->past[1], &s->past[0], (ROSTER_PASTS - 1) * sizeof s->past[0]);
	memmove(&shown[1], &shown[0], (ROSTER_PASTS - 1) * sizeof shown[0]);
	s->past[0] = entry;
	shown[0] = (struct roster_past){
		.generation = c->generation, .revision = c->manifest->revision,
		.config_hash = manifest_hash(c->manifest), .since = clock_wall(),
		.came = (uint16_t)came, .of = of,
	};
	supervisor_roster_touch(s);
}

void
past_revised(struct supervisor *s, const struct config *c)
{
	struct roster_past *shown = &s->roster.head->past[0];

	if (shown->generation != c->generation)
		return;
	shown->revision = c->manifest->revision;
	shown->config_hash = manifest_hash(c->manifest);
	supervisor_roster_touch(s);
}

static bool
same(const struct past *a, const struct past *b)
{
	return a->len == b->len && memcmp(a->documents, b->documents, a->len) == 0;
}

const struct past *
past_find(const struct supervisor *s, uint32_t to, uint32_t *ret_generation, char *text,
	  size_t cap)
{
	const struct roster_past *shown = s->roster.head->past;

	for (unsigned i = 0; i < ROSTER_PASTS && s->past[i].documents; i++) {
		bool wanted = to ? shown[i].generation == to :
				   i > 0 && !shown[i].failed && !same(&s->past[i], &s->past[0]);

		if (!wanted)
			continue;
		*ret_generation = shown[i].generation;
		return &s->past[i];
	}
	if (to)
		snprintf(text, cap, "generation %u is not among the last %u that were in force: "
			 "pointsctl generations lists them", to, ROSTER_PASTS);
	else
		snprintf(text, cap, "no other documents were in force since pointsman started: "
			 "there is nothing to go back to");
	return NULL;
}

void
past_close(struct supervisor *s)
{
	for (unsigned i = 0; i < ROSTER_PASTS; i++) {
		free(s->past[i].documents);
		s->past[i] = (struct past){.documents = NULL};
	}
}
