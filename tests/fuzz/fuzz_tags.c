/* tests/fuzz/fuzz_tags.c -- any body: its texts lie in it, no tag is both there and unknown, and a
 * second look says the same.
 */
#include <stdlib.h>

#include "actors/common/tags/tags.h"
#include "actors/common/tags/texts.h"

enum { SORTS = 7 };

static const char *body, *body_end;

static void
lies_inside(void *arg, const struct texts_text *text)
{
	(void)arg;
	if (text->string.raw.p < body || text->string.raw.p + text->string.raw.len > body_end)
		abort();
}

static struct tags_room *
open_room(void)
{
	static char regex[] = "\\b\\p{Lu}{3}-\\d{4,}\\b";
	struct manifest_pattern pattern[SORTS] = {0};
	struct manifest_tag tag[SORTS] = {0};
	struct tags_room *room;
	struct tags *tags;
	uint32_t which;
	char why[200];

	for (unsigned i = 0; i < SORTS; i++) {
		pattern[i].validator = (enum manifest_validator)i;
		pattern[i].minimum = 1 + i % 3;
		pattern[i].regex = i == MANIFEST_VALIDATOR_REGEX ? regex : NULL;
		tag[i].patterns = &pattern[i];
		tag[i].n_patterns = 1;
	}
	if (tags_new(&tags, tag, SORTS, &which, why, sizeof why) < 0 ||
	    tags_room_new(&room, tags) < 0)
		abort();
	return room;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct tags_room *room;
	struct tags_found once, again;
	unsigned hidden;

	if (!room)
		room = open_room();
	/* its own memory, so that a look beyond its end is seen */
	char *copy = malloc(size + !size);

	for (size_t i = 0; i < size; i++)
		copy[i] = (char)data[i];
	body = copy;
	body_end = copy + size;
	texts_walk(slice_of(copy, size), lies_inside, NULL, &hidden);
	tags_of_body(room, slice_of(copy, size), &once);
	tags_of_body(room, slice_of(copy, size), &again);
	if (once.tags & once.unknown || once.tags != again.tags || once.unknown != again.unknown)
		abort();
	free(copy);
	return 0;
}
