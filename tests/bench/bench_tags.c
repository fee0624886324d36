/* tests/bench/bench_tags.c -- what tags by patterns cost a request: `name value unit` lines.
 *
 *	bench_tags [--quick]
 *
 * A chat completion of 64 KB of text, searched for all six validators and one own pattern that is
 * not there, so that nothing ends early: prose (the README, again and again), and hard negatives of
 * the set that judges the tagger (tests/data/tags), each a part: near misses without end.  CPU time
 * of the thread, the middle of many.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/common/tags/tags.h"
#include "tests/bench/files.h"
#include "tests/bench/measure.h"

#define TEXT_BYTES (64u << 10)
#define SORTS 7u
#define TIMES_MAX 200u

static char *
body_of(json_t *parts)
{
	json_t *body = json_pack("{s:s, s:[{s:s, s:o}]}", "model", "m", "messages", "role", "user",
				 "content", parts);
	char *text = json_dumps(body, JSON_COMPACT);

	json_decref(body);
	return text;
}

static json_t *
part(const char *p, size_t n)
{
	return json_pack("{s:s, s:o}", "type", "text", "text", json_stringn_nocheck(p, n));
}

static char *
prose(const char *path)
{
	struct slice file = map_file(path);
	char *text = malloc(TEXT_BYTES);

	for (size_t i = 0; text && i < TEXT_BYTES; i++) {
		char c = file.p[i % file.len];

		text[i] = (unsigned char)c < 0x80 ? c : '-';
	}

	json_t *parts = json_pack("[o]", part(text, TEXT_BYTES));

	free(text);
	return body_of(parts);
}

/* Each once, again and again until there are so many bytes. */
static char *
hard(const char *path)
{
	json_t *parts = json_array();
	size_t have = 0;

	while (have < TEXT_BYTES) {
		FILE *set = fopen(path, "r");
		char *line = NULL;
		size_t cap = 0;

		if (!set)
			fail("%s cannot be read", path);
		while (have < TEXT_BYTES && getline(&line, &cap, set) > 0) {
			json_t *row = json_loads(line, JSON_ALLOW_NUL, NULL);
			json_t *text = json_object_get(row, "text");

			if (text && json_is_true(json_object_get(row, "hard"))) {
				size_t n = json_string_length(text);

				json_array_append_new(parts, part(json_string_value(text), n));
				have += n;
			}
			json_decref(row);
		}
		free(line);
		fclose(set);
	}
	return body_of(parts);
}

static struct tags_room *
room_of_all(struct tags **ret_tags)
{
	static char regex[] = "EMPLOYEE-\\d{6}";
	struct manifest_pattern pattern[SORTS] = {0};
	struct manifest_tag tag[SORTS] = {0};
	struct tags_room *room;
	struct tags *tags;
	uint32_t which;
	char why[200];

	for (unsigned i = 0; i < SORTS; i++) {
		pattern[i].validator = (enum manifest_validator)i;
		pattern[i].minimum = 1000;
		pattern[i].regex = i == MANIFEST_VALIDATOR_REGEX ? regex : NULL;
		tag[i].patterns = &pattern[i];
		tag[i].n_patterns = 1;
	}
	if (tags_new(&tags, tag, SORTS, &which, why, sizeof why) < 0 ||
	    tags_room_new(&room, tags) < 0)
		fail("no tags: %s", why);
	*ret_tags = tags;
	return room;
}

/* Frees body. */
static void
measure(const char *name, struct tags_room *room, char *body, unsigned times, double most)
{
	struct slice bytes = slice_str(body);
	struct tags_found found;
	double ms[TIMES_MAX];

	for (unsigned i = 0; i < times; i++) {
		uint64_t start = cpu_ns();

		tags_of_body(room, bytes, &found);
		ms[i] = ms_since(start);
	}
	say((struct figure){.name = name, .value = median(ms, times), .unit = "ms", .most = most},
	    "%zu KB", bytes.len >> 10);
	free(body);
}

int
main(int argc, char **argv)
{
	bool quick = argc > 1 && strcmp(argv[1], "--quick") == 0;
	unsigned times = quick ? 3 : TIMES_MAX;
	struct tags *tags;
	struct tags_room *room = room_of_all(&tags);

	if (argc != 1 + quick)
		fail("usage: bench_tags [--quick]");
	say_limits(!quick);
	measure("policy_tag_64k_ms", room, prose(PM_SOURCE_DIR "/README.md"), times, 1);
	measure("policy_tag_hard_64k_ms", room, hard(PM_SOURCE_DIR "/tests/data/tags/set.jsonl"),
		times, 0);
	tags_room_free(&room);
	tags_free(&tags);
	return 0;
}
