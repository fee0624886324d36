/* actors/pointsctl/tenants.c -- tenants: what they may do and have used; block, unblock, hash. */
#include <stdio.h>
#include <string.h>

#include "actors/common/fields.h"
#include "actors/common/tenants/tenants.h"
#include "actors/pointsctl/ask.h"
#include "actors/pointsctl/control.h"
#include "actors/pointsctl/pointsctl.h"
#include "actors/pointsctl/table.h"

/* "12/60": what is left of what; "-" where there is no limit. */
static void
cell_left(struct table *t, const json_t *limits, const char *key)
{
	const json_t *l = json_object_get(limits, key);

	if (!json_is_object(l))
		table_cell(t, "-");
	else
		table_cell(t, "%g/%g", json_number_value(json_object_get(l, "remaining")),
			   json_number_value(json_object_get(l, "limit")));
}

static void
print_tenants(const json_t *result)
{
	struct table *t = table_new("TENANT STATE >PRIORITY >IN-FLIGHT >REQUESTS >PROMPT >CACHED "
				    ">COMPLETION >COST >REFUSED >REQ/MIN >PROMPT/MIN >COMPL/MIN "
				    ">CONCURRENT >BUDGET");
	size_t i;
	json_t *w;

	json_array_foreach(json_object_get(result, "tenants"), i, w) {
		const json_t *limits = json_object_get(w, "limits");
		long long refused = 0;
		const char *reason;
		json_t *n;

		json_object_foreach(json_object_get(w, "refused"), reason, n)
			refused += json_integer_value(n);
		table_cell(t, "%s", pm_text_at(w, "name", "?"));
		table_cell(t, "%s", json_is_true(json_object_get(w, "blocked")) ? "blocked" : "ok");
		table_fields(t, w, "priority in_flight requests prompt_tokens cached_tokens "
				   "completion_tokens");
		table_cell(t, "%.4f", json_number_value(json_object_get(w, "cost")));
		table_cell(t, "%lld", refused);
		cell_left(t, limits, "requests_per_minute");
		cell_left(t, limits, "prompt_tokens_per_minute");
		cell_left(t, limits, "completion_tokens_per_minute");
		cell_left(t, limits, "concurrent");
		cell_left(t, limits, "budget_per_day");
	}
	table_print(stdout, t);
	table_free(&t);
	puts("x/y: x is left of y now");
}

int
command_tenants(const struct options *o)
{
	return print_result(o, ask(o, "tenants", NULL), print_tenants);
}

/* A key on standard input, as spec.keys wants it: the key is in no process list and no history. */
static int
hash(void)
{
	char key[TENANTS_KEY_MAX + 3];
	size_t n = fread(key, 1, sizeof key, stdin);
	uint8_t digest[MANIFEST_KEY_BYTES];

	while (n > 0 && (key[n - 1] == '\n' || key[n - 1] == '\r'))
		n--;
	for (size_t i = 0; i < n; i++)
		if (key[i] <= ' ' || key[i] > '~')
			n = 0;
	if (n == 0 || n > TENANTS_KEY_MAX) {
		complain("tenant hash: a key on standard input: up to %u visible ASCII characters, "
			 "no blanks", TENANTS_KEY_MAX);
		return 1;
	}
	tenants_hash(slice_of(key, n), digest);
	explicit_bzero(key, sizeof key);
	printf("sha256:");
	for (size_t i = 0; i < sizeof digest; i++)
		printf("%02x", digest[i]);
	putchar('\n');
	return 0;
}

int
command_tenant(const struct options *o)
{
	const char *what = o->args[0], *name = o->n_args > 1 ? o->args[1] : NULL;
	bool block = strcmp(what, "block") == 0;
	struct msg_tenant_block m = {.name = slice_str(name), .blocked = block};

	if (strcmp(what, "hash") == 0 && !name)
		return hash();
	if ((!block && strcmp(what, "unblock") != 0) || !name) {
		complain("tenant %s: block NAME, unblock NAME or hash", what);
		return 2;
	}
	return control_say(o, MSG_tenant_block, &m);
}
