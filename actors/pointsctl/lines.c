/* actors/pointsctl/lines.c -- outcomes beside their decisions; see lines.h. */
#include "actors/pointsctl/lines.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "actors/common/decide/explain.h"
#include "actors/common/show.h"
#include "actors/pointsctl/pointsctl.h"
#include "actors/pointsctl/table.h"

struct kept {
	uint64_t id;
	size_t len;
	void *record;                           /* owned; NULL: none */
};

struct lines {
	FILE *to;
	bool json, headed;
	struct kept kept[LINES_KEPT];
};

int
lines_open(struct lines **ret, FILE *to, bool json)
{
	struct lines *lines = calloc(1, sizeof *lines);

	if (!lines)
		return -ENOMEM;
	lines->to = to;
	lines->json = json;
	*ret = lines;
	return 0;
}

void
lines_close(struct lines **ret)
{
	for (unsigned i = 0; *ret && i < LINES_KEPT; i++)
		free((*ret)->kept[i].record);
	free(*ret);
	*ret = NULL;
}

static struct kept *
place_of(struct lines *lines, uint64_t id)
{
	return &lines->kept[(id + (id >> 40) * 7919) % LINES_KEPT];
}

void
lines_decision(struct lines *lines, const void *record, size_t len)
{
	const struct journal_record *head = record;
	struct kept *k = place_of(lines, head->request_id);
	void *copy = malloc(len);

	if (!copy)
		return;
	memcpy(copy, record, len);
	free(k->record);
	*k = (struct kept){head->request_id, len, copy};
}

static const char *
of_two(char *buf, size_t cap, const char *actual, const char *predicted)
{
	snprintf(buf, cap, "%s (%s)", actual, predicted);
	return buf;
}

static const char *
number(char buf[24], const json_t *o, const char *key)
{
	const json_t *v = json_object_get(o, key);

	if (!json_is_integer(v))
		return "-";
	snprintf(buf, 24, "%lld", (long long)json_integer_value(v));
	return buf;
}

static void
print_table(struct lines *lines, const json_t *x, const json_t *d, wall_ns when)
{
	char a[24], b[24], c[24], two[64], ttft[64], at[32], t1[UNIT_TEXT], t2[UNIT_TEXT],
		t3[UNIT_TEXT];
	const char *model = json_string_value(json_object_get(d, "model"));
	const char *worker = json_string_value(json_object_get(x, "worker"));
	const char *error = json_string_value(json_object_get(x, "error"));
	bool cancelled = json_is_true(json_object_get(x, "cancelled"));
	time_t seconds = (time_t)(when / 1000000000u);
	struct tm tm;

	if (!lines->headed)
		fprintf(lines->to,
			"%-12s %-16s %-6s %-12s %-16s %7s %15s %19s %8s %6s %4s %3s %s\n", "TIME",
			"ID", "STATUS", "WORKER", "MODEL", "PROMPT", "CACHED", "TTFT", "E2E",
			"TOKENS", "GEN", "TRY", "ERROR");
	lines->headed = true;
	localtime_r(&seconds, &tm);
	strftime(at, sizeof at, "%H:%M:%S", &tm);
	of_two(two, sizeof two, number(a, x, "cached_tokens"), number(b, x, "our_cached_tokens"));
	of_two(ttft, sizeof ttft, unit_us(t1, x, "ttft_us"), unit_us(t2, x, "predicted_ttft_us"));
	fprintf(lines->to, "%s.%03u %-16s %-6s %-12.12s %-16.16s", at,
		(unsigned)(when / 1000000u % 1000u),
		json_string_value(json_object_get(x, "request_id")),
		cancelled ? "gone" : number(a, x, "status"), worker ? worker : "-",
		model ? model : "-");
	fprintf(lines->to, " %7s %15s %19s %8s", number(b, x, json_is_integer(json_object_get(x,
		"prompt_tokens")) ? "prompt_tokens" : "our_prompt_tokens"), two, ttft,
		unit_us(t3, x, "e2e_us"));
	fprintf(lines->to, " %6s %4s %3s %s\n", number(a, x, "completion_tokens"),
		number(b, x, "generation"), number(c, x, "attempts"), error ? error : "-");
}

void
lines_outcome(struct lines *lines, const void *record, size_t len, const struct rows *rows)
{
	const struct journal_record *head = record;
	struct kept *k = place_of(lines, head->request_id);
	json_t *x = pm_show_outcome(record, len, rows), *d = NULL;

	if (!x)
		return;
	if (k->record && k->id == head->request_id) {
		if (explain_decision(k->record, k->len, rows, &d) < 0)
			d = NULL;
		free(k->record);
		*k = (struct kept){0};
	}
	if (lines->json) {
		json_object_set_new(x, "decision", d ? json_incref(d) : json_null());
		print_json_line(lines->to, x);
	} else {
		print_table(lines, x, d, head->when);
	}
	json_decref(d);
	json_decref(x);
}
