/* actors/pointsctl/segments.c -- one line a segment, the sums below; see segments.h. */
#include "actors/pointsctl/segments.h"

#include <stdio.h>
#include <string.h>

#include "actors/common/fields.h"
#include "actors/pointsctl/table.h"

#define FILL_TEXT 80

static const char *
bytes_at(char buf[UNIT_TEXT], const json_t *o, const char *key)
{
	const json_t *v = json_object_get(o, key);

	return json_is_integer(v) ? unit_bytes(buf, json_number_value(v)) : "-";
}

static void
process_text(char *text, const json_t *fill)
{
	const json_t *journal = json_object_get(fill, "journal");
	char a[UNIT_TEXT], b[UNIT_TEXT];

	if (pm_text_at(fill, "panic", NULL))
		snprintf(text, FILL_TEXT, "panic: %s", pm_text_at(fill, "panic", ""));
	else if (pm_integer_at(journal, "head") == 0)
		snprintf(text, FILL_TEXT, "empty journal");
	else
		snprintf(text, FILL_TEXT, "journal %s, back %s", bytes_at(a, journal, "used_bytes"),
			 unit_s(b, journal, "oldest_age_s"));
}

static void
fill_text(char *text, const char *kind, const json_t *fill)
{
	char a[UNIT_TEXT];

	if (strcmp(kind, "rows") == 0)
		snprintf(text, FILL_TEXT, "%lld of %lld rows, %lld up", pm_integer_at(fill, "used"),
			 pm_integer_at(fill, "capacity"),
			 pm_integer_at(json_object_get(fill, "states"), "up"));
	else if (strcmp(kind, "pins") == 0)
		snprintf(text, FILL_TEXT, "%lld of %lld responses", pm_integer_at(fill, "used"),
			 pm_integer_at(fill, "capacity"));
	else if (strcmp(kind, "limits") == 0)
		snprintf(text, FILL_TEXT, "%lld of %lld tenants", pm_integer_at(fill, "used"),
			 pm_integer_at(fill, "capacity"));
	else if (strcmp(kind, "roster") == 0)
		snprintf(text, FILL_TEXT, "%lld of %lld processes", pm_integer_at(fill, "used"),
			 pm_integer_at(fill, "capacity"));
	else if (strcmp(kind, "config") == 0)
		snprintf(text, FILL_TEXT, "documents %s", bytes_at(a, fill, "bytes"));
	else if (strcmp(kind, "index") == 0)
		snprintf(text, FILL_TEXT, "%lld of %lld blocks", pm_integer_at(fill, "entries"),
			 pm_integer_at(fill, "lanes") * 7 / 10);
	else if (strcmp(kind, "column") == 0)
		snprintf(text, FILL_TEXT, "%lld prefill, %lld decode, %lld tokens",
			 pm_integer_at(fill, "prefilling"), pm_integer_at(fill, "decoding"),
			 pm_integer_at(fill, "pending_tokens") +
			 pm_integer_at(fill, "context_tokens"));
	else if (strcmp(kind, "slots") == 0)
		snprintf(text, FILL_TEXT, "%lld of %lld slots", pm_integer_at(fill, "used"),
			 pm_integer_at(fill, "capacity"));
	else if (strcmp(kind, "arena") == 0)
		snprintf(text, FILL_TEXT, "%s used", bytes_at(a, fill, "used_bytes"));
	else
		process_text(text, fill);
}

static void
print_sum(const json_t *s)
{
	char a[UNIT_TEXT], b[UNIT_TEXT], c[UNIT_TEXT];

	printf("%lld segments of live processes: %s of memory in %s of address space\n",
	       pm_integer_at(s, "segments"), bytes_at(a, s, "touched_bytes"),
	       bytes_at(b, s, "size_bytes"));
	printf("requests %lld slots of %lld, %s in arenas, %lld prefilling, %lld decoding\n",
	       pm_integer_at(s, "slots_used"), pm_integer_at(s, "slots_capacity"),
	       bytes_at(c, s, "arena_used_bytes"), pm_integer_at(s, "prefilling"),
	       pm_integer_at(s, "decoding"));
	printf("charges  %lld cells (%lld stale): %lld tokens pending, %lld in context; "
	       "%lld bodies refused\n",
	       pm_integer_at(s, "charged_cells"), pm_integer_at(s, "stale_cells"),
	       pm_integer_at(s, "pending_tokens"), pm_integer_at(s, "context_tokens"),
	       pm_integer_at(s, "poison_live"));
}

void
print_segments(const json_t *result)
{
	struct table *t = table_new("KIND OWNER >GEN >SIZE >TOUCHED >WRITER >HEARTBEAT FILL");
	char a[UNIT_TEXT], text[FILL_TEXT];
	size_t i;
	json_t *s;

	json_array_foreach(json_object_get(result, "segments"), i, s) {
		const char *kind = pm_text_at(s, "kind", "?"), *role = pm_text_at(s, "role", "?");

		table_cell(t, "%s", kind);
		if (json_is_null(json_object_get(s, "incarnation")))
			table_cell(t, "%s", role);
		else
			table_cell(t, "%s %lld.%lld", role, pm_integer_at(s, "index"),
				   pm_integer_at(s, "incarnation"));
		table_json(t, s, "generation");
		table_cell(t, "%s", bytes_at(a, s, "size_bytes"));
		table_cell(t, "%s", bytes_at(a, s, "touched_bytes"));
		if (json_is_false(json_object_get(s, "writer_alive")))
			table_cell(t, "dead");
		else
			table_json(t, s, "writer_pid");
		table_cell(t, "%s", unit_s(a, s, "heartbeat_age_s"));
		fill_text(text, kind, json_object_get(s, "fill"));
		table_cell(t, "%s", text);
	}
	table_print(stdout, t);
	table_free(&t);
	putchar('\n');
	print_sum(json_object_get(result, "sum"));
}
