/* tests/unit/tag_set.c -- what the tagger says of a set: tag_set SET, one JSON object a line.
 *
 * In         lines of {"id", "text"} or {"id", "body"}: tests/data/tags/README.md.
 * Out        lines of {"id", "tags"}, for tests/data/tags/score.py.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/common/tags/tags.h"

static const char *const names[] = {"email", "phone", "iban", "card", "ssn", "secret"};

enum { TAGS = sizeof names / sizeof names[0] };

static void
say(const char *id, uint64_t tags)
{
	json_t *list = json_array(), *o = json_pack("{s:s, s:o}", "id", id, "tags", list);
	char *line;

	for (unsigned i = 0; i < TAGS; i++)
		if (tags >> i & 1)
			json_array_append_new(list, json_string(names[i]));
	line = json_dumps(o, JSON_COMPACT);
	puts(line);
	free(line);
	json_decref(o);
}

static void
judge(struct tags_room *room, json_t *row)
{
	json_t *text = json_object_get(row, "text"), *body = json_object_get(row, "body");
	struct tags_found found;
	char *bytes;

	if (text) {
		tags_of_text(room, slice_of(json_string_value(text), json_string_length(text)),
			     &found);
	} else if (json_is_string(body)) {
		tags_of_body(room, slice_of(json_string_value(body), json_string_length(body)),
			     &found);
	} else {
		bytes = json_dumps(body, JSON_COMPACT);
		tags_of_body(room, slice_str(bytes), &found);
		free(bytes);
	}
	say(json_string_value(json_object_get(row, "id")), found.tags);
}

int
main(int argc, char **argv)
{
	struct manifest_pattern pattern[TAGS] = {0};
	struct manifest_tag tag[TAGS] = {0};
	struct tags_room *room;
	struct tags *tags;
	char why[200], *line = NULL;
	size_t cap = 0;
	uint32_t which;
	FILE *set = argc == 2 ? fopen(argv[1], "r") : NULL;

	if (!set) {
		fprintf(stderr, "usage: tag_set SET\n");
		return 2;
	}
	for (unsigned i = 0; i < TAGS; i++) {
		pattern[i] = (struct manifest_pattern){(enum manifest_validator)i, NULL, 0, 0, 1};
		tag[i].patterns = &pattern[i];
		tag[i].n_patterns = 1;
	}
	if (tags_new(&tags, tag, TAGS, &which, why, sizeof why) < 0 ||
	    tags_room_new(&room, tags) < 0)
		return 1;
	while (getline(&line, &cap, set) > 0) {
		json_error_t error;
		json_t *row = json_loads(line, JSON_ALLOW_NUL, &error);

		if (!row) {
			fprintf(stderr, "tag_set: %s: %s\n", argv[1], error.text);
			return 1;
		}
		judge(room, row);
		json_decref(row);
	}
	free(line);
	fclose(set);
	tags_room_free(&room);
	tags_free(&tags);
	return 0;
}
