/* actors/pointsctl/events.c -- `events --worker W [-f] [-n N]`: a worker's KV events as applied. */
#include <string.h>

#include "actors/common/fields.h"
#include "actors/common/verbs.h"
#include "actors/pointsctl/ask.h"
#include "actors/pointsctl/pointsctl.h"

#define EVENTS_SHOWN 20u                /* without -n */
#define QUIET_MS     10000              /* without -f, that long without one is enough */
#define WAIT_MS      1000               /* a question */

static json_t *
ask_events(const struct options *o, json_int_t after)
{
	json_t *arguments = json_pack("{s:s, s:i}", "worker", o->worker, "wait_ms", WAIT_MS);

	if (after >= 0)
		json_object_set_new(arguments, "after", json_integer(after));
	return ask(o, PM_VERB_EVENTS, arguments);
}

static void
print_blocks(const json_t *e)
{
	const char *medium = pm_text_at(e, "medium", "GPU");
	const char *parent = pm_text_at(e, "parent", NULL);
	const char *lora = pm_text_at(e, "lora", NULL), *first = pm_text_at(e, "first", NULL);
	bool stored = strcmp(pm_text_at(e, "type", ""), "BlockStored") == 0;

	printf(" %lld blocks", pm_integer_at(e, "blocks"));
	if (stored)
		printf(" of %lld, %lld tokens,", pm_integer_at(e, "block_tokens"),
		       pm_integer_at(e, "tokens"));
	printf(" %s", medium);
	if (json_is_integer(json_object_get(e, "group")))
		printf(" group %lld", pm_integer_at(e, "group"));
	if (lora)
		printf(" lora %s", lora);
	if (first)
		printf(" %s", first);
	if (stored)
		printf(" after %s", parent ? parent : "the start");
}

static void
print_event(const struct options *o, const json_t *e)
{
	const char *type = pm_text_at(e, "type", NULL), *reason = pm_text_at(e, "reason", NULL);

	if (o->json) {
		print_json_line(stdout, e);
		return;
	}
	printf("%s rank %lld seq %lld %s", pm_text_at(e, "when", "-"), pm_integer_at(e, "rank"),
	       pm_integer_at(e, "seq"), type ? type : "batch");
	if (type)
		print_blocks(e);
	printf(": %s%s%s\n", pm_text_at(e, "outcome", "-"), reason ? ", " : "",
	       reason ? reason : "");
}

/* Not our standard output's business, which may be read by a program. */
static void
tell_losses(const json_t *result, long long *dropped)
{
	long long lost = pm_integer_at(result, "lost"), now = pm_integer_at(result, "dropped");

	if (lost > 0)
		complain("%lld events are not shown: they came faster than they were asked for",
			 lost);
	if (now > *dropped)
		complain("%lld events are not shown: kvevents did not wait for us",
			 now - *dropped);
	*dropped = now;
}

int
command_events(const struct options *o)
{
	unsigned left = o->n ? o->n : EVENTS_SHOWN, quiet_ms = 0;
	json_t *result;
	json_int_t after = -1;
	long long dropped = 0;

	if (!o->worker) {
		complain("events needs --worker W (pointsctl help)");
		return EXIT_USAGE;
	}
	for (;;) {
		json_t *e;
		size_t i;

		result = ask_events(o, after);
		if (!result)
			return 1;
		if (after < 0)
			complain(json_is_true(json_object_get(result, "watching")) ?
				 "watching %s" : "watching %s: pointsman-kvevents does not answer "
				 "yet", o->worker);
		tell_losses(result, &dropped);
		json_array_foreach(json_object_get(result, "events"), i, e) {
			print_event(o, e);
			if (!o->follow && --left == 0)
				break;
		}
		fflush(stdout);
		quiet_ms = i == 0 && after >= 0 ? quiet_ms + WAIT_MS : 0;
		after = (json_int_t)pm_integer_at(result, "next");
		json_decref(result);
		if (ferror(stdout) || (!o->follow && left == 0))
			return ferror(stdout) != 0;
		if (!o->follow && quiet_ms >= QUIET_MS) {
			complain("no event of %s for %d s", o->worker, QUIET_MS / 1000);
			return 1;
		}
	}
}
