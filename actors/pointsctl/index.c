/* actors/pointsctl/index.c -- the prefix index: its fill, its slots, who holds a block or a prompt.
 *
 * Long answers come in pages: each question asks for as much as one answer may hold, and goes on
 * where the last one ended.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "actors/common/background.h"
#include "actors/common/fields.h"
#include "actors/common/show_index.h"
#include "actors/pointsctl/ask.h"
#include "actors/pointsctl/audit.h"
#include "actors/pointsctl/control.h"
#include "actors/pointsctl/table.h"
#include "actors/pointsctl/tokens.h"

#define TOKENS_A_QUESTION 5500u         /* 64 KiB a request, up to 11 bytes an id */

/* ---- fill ---- */

static const char *
plain(char buf[UNIT_TEXT], const json_t *o, const char *key)
{
	const json_t *v = json_object_get(o, key);

	if (!json_is_integer(v))
		return "-";
	snprintf(buf, UNIT_TEXT, "%lld", (long long)json_integer_value(v));
	return buf;
}

static const char *
bytes_at(char buf[UNIT_TEXT], const json_t *o, const char *key)
{
	const json_t *v = json_object_get(o, key);

	return json_is_integer(v) ? unit_bytes(buf, json_number_value(v)) : "-";
}

static void
print_refused(const json_t *refused)
{
	const char *cause, *between = "";
	json_t *n;

	json_object_foreach((json_t *)(uintptr_t)refused, cause, n)
		if (json_integer_value(n)) {
			printf("%s%lld %s", between, (long long)json_integer_value(n), cause);
			between = ", ";
		}
	if (!*between)
		printf("none");
}

static void
print_head(const json_t *x)
{
	const json_t *slots = json_object_get(x, "slots");
	char a[UNIT_TEXT], b[UNIT_TEXT];
	json_t *pool;
	size_t i;

	printf("blocks   %lld held by %lld holders, room for %lld (load %.1f %%); "
	       "%s of %s touched\n", pm_integer_at(x, "entries"), pm_integer_at(x, "holders"),
	       pm_integer_at(x, "lanes") * 7 / 10,
	       100 * json_number_value(json_object_get(x, "load")),
	       bytes_at(a, x, "touched_bytes"), bytes_at(b, x, "size_bytes"));
	json_array_foreach(json_object_get(x, "pool"), i, pool)
		printf("pool %s   %lld chunks of %s used of %lld\n", plain(a, pool, "class"),
		       pm_integer_at(pool, "used"), bytes_at(b, pool, "chunk_bytes"),
		       pm_integer_at(pool, "chunks"));
	printf("lost     %lld blocks evicted with %lld holders; holders not noted: ",
	       pm_integer_at(x, "evictions"), pm_integer_at(x, "evicted"));
	print_refused(json_object_get(x, "refused"));
	printf("\nslots    %lld live, %lld retired, %lld free; %lld blocks wait for scrubbing\n",
	       pm_integer_at(slots, "live"), pm_integer_at(slots, "retired"),
	       pm_integer_at(slots, "free"), pm_integer_at(x, "scrub_backlog"));
	printf("writer   pid %s, heartbeat %s ago, %lld recoveries\n", plain(a, x, "writer_pid"),
	       unit_s(b, x, "writer_heartbeat_age_s"), pm_integer_at(x, "recoveries"));
}

static void
print_groups(const json_t *list)
{
	struct table *t = table_new("STATE TIER ROLE >SLOTS >HELD");
	json_t *g;
	size_t i;

	json_array_foreach(list, i, g)
		if (pm_integer_at(g, "slots"))
			table_fields(t, g, "state tier role slots held");
	table_print(stdout, t);
	table_free(&t);
}

static void
print_index(const json_t *x)
{
	const json_t *list = json_object_get(x, "workers");
	char a[UNIT_TEXT];
	struct table *t;
	json_t *w;
	size_t i;

	print_head(x);
	putchar('\n');
	print_groups(json_object_get(x, "groups"));
	putchar('\n');
	t = table_new("WORKER >RANK CACHE REASON >SINCE >SLOTS >EXACT >OFFLOAD >SPECULATIVE "
		      ">DEMOTED");
	json_array_foreach(list, i, w) {
		table_fields(t, w, "worker rank cache reason");
		table_cell(t, "%s", unit_s(a, w, "since_s"));
		table_fields(t, w, "slots exact_gpu exact_offload speculative demoted");
	}
	table_print(stdout, t);
	table_free(&t);
}

/* ---- slots ---- */

static void
print_slots(const json_t *result)
{
	struct table *t = table_new(">SLOT WORKER TIER ROLE STATE >GEN >BLOCK >AGE >EXPIRES "
				    ">STORED >REMOVED >HELD");
	char a[UNIT_TEXT], b[UNIT_TEXT];
	json_t *s;
	size_t i;

	json_array_foreach(json_object_get(result, "slots"), i, s) {
		table_fields(t, s, "slot worker tier role state slot_gen block_tokens");
		table_cell(t, "%s", unit_s(a, s, "age_s"));
		table_cell(t, "%s", unit_s(b, s, "expires_in_s"));
		table_fields(t, s, "stored removed held");
	}
	table_print(stdout, t);
	table_free(&t);
}

/* Every page; NULL: one of them failed. */
static json_t *
ask_slots(const struct options *o)
{
	json_t *all = json_array(), *result, *page;
	json_int_t after = 0;

	for (unsigned n = 0; n <= INDEX_MAX_SLOTS; n++) {       /* a page has one slot at least */
		json_t *arguments = json_pack("{s:I, s:i}", "after", after, "limit",
					      (int)PM_SHOW_SLOTS_MAX);

		if (o->worker)
			json_object_set_new(arguments, "worker", json_string(o->worker));
		page = ask(o, "index_slots", arguments);
		if (!page) {
			json_decref(all);
			return NULL;
		}
		json_array_extend(all, json_object_get(page, "slots"));
		after = json_integer_value(json_object_get(page, "next"));
		json_decref(page);
		if (after == 0)
			break;
	}
	result = json_object();
	json_object_set_new(result, "slots", all);
	return result;
}

/* ---- holders ---- */

static const json_t *
slot_of(const json_t *slots, json_int_t id)
{
	json_t *s;
	size_t i;

	json_array_foreach(slots, i, s)
		if (json_integer_value(json_object_get(s, "slot")) == id)
			return s;
	return NULL;
}

static void
print_block(struct table *t, const json_t *block, const json_t *slots)
{
	const json_t *ids = json_object_get(block, "slots");
	const char *hash = pm_text_at(block, "hash", "?");
	json_t *id;
	size_t i;

	if (json_array_size(ids) == 0) {
		table_cell(t, "%s", hash);
		if (json_is_array(ids))
			table_cell(t, "nobody");
		else
			table_cell(t, "%lld holders", pm_integer_at(block, "holders"));
		table_cell(t, "-");
		table_cell(t, "-");
		table_cell(t, "-");
	}
	json_array_foreach(ids, i, id) {
		table_cell(t, "%s", hash);
		table_fields(t, slot_of(slots, json_integer_value(id)), "worker tier role slot");
	}
}

static void
print_depth(const json_t *list, json_int_t block_tokens)
{
	static const char *const keys[] = {"exact", "gpu", "any"};
	struct table *t = table_new(block_tokens ? "WORKER >EXACT >GPU >ANY >TOKENS" :
						   "WORKER >EXACT >GPU >ANY");
	json_t *d;
	size_t i;

	json_array_foreach(list, i, d) {
		table_json(t, d, "worker");
		for (unsigned k = 0; k < 3; k++)
			table_json(t, d, keys[k]);
		if (block_tokens)
			table_cell(t, "%lld", pm_integer_at(d, "any") * (long long)block_tokens);
	}
	table_print(stdout, t);
	table_free(&t);
}

static void
print_holders(const json_t *result)
{
	struct table *t = table_new("HASH WORKER TIER ROLE >SLOT");
	json_t *block;
	size_t i;

	json_array_foreach(json_object_get(result, "blocks"), i, block)
		print_block(t, block, json_object_get(result, "slots"));
	table_print(stdout, t);
	table_free(&t);
	if (json_array_size(json_object_get(result, "depth"))) {
		printf("\nleading blocks of these that a worker holds:\n");
		print_depth(json_object_get(result, "depth"), 0);
	}
}

static int
hashes(const struct options *o, json_t **ret)
{
	json_t *list = json_array();

	for (unsigned i = 0; i < o->n_args; i++) {
		uint64_t hash;

		if (!pm_hex_read(o->args[i], strlen(o->args[i]), &hash)) {
			complain("\"%s\" is no block hash: 16 hexadecimal digits", o->args[i]);
			json_decref(list);
			return 1;
		}
		json_array_append_new(list, json_string(o->args[i]));
	}
	*ret = ask(o, "index_holders", json_pack("{s:o}", "hashes", list));
	return 0;
}

/* ---- a prompt ---- */

static void
print_prompt(const json_t *result)
{
	const json_t *depth = json_object_get(result, "depth");

	printf("model %s: %zu blocks of %lld tokens (%lld tokens of %lld)\n",
	       pm_text_at(result, "model", "-"), json_array_size(json_object_get(result, "blocks")),
	       pm_integer_at(result, "block_tokens"), pm_integer_at(result, "tokens_used"),
	       pm_integer_at(result, "tokens_given"));
	if (json_array_size(depth) == 0) {
		printf("%s\n", json_array_size(json_object_get(result, "blocks")) == 0 ?
		       "only whole blocks are held, and it has none" :
		       "nobody holds the first of them");
		return;
	}
	printf("leading blocks a worker holds, and the tokens of the most:\n");
	print_depth(depth, pm_integer_at(result, "block_tokens"));
}

static json_t *
part_of(const json_t *list, size_t from, size_t n)
{
	json_t *part = json_array();

	for (size_t i = 0; i < n; i++)
		json_array_append(part, json_array_get(list, from + i));
	return part;
}

static json_t *
ask_prompt(const struct options *o, json_t *tokens, const char *parent)
{
	json_t *arguments = json_pack("{s:s, s:o}", "model", o->model, "tokens", tokens);

	if (o->block_tokens)
		json_object_set_new(arguments, "block_tokens", json_integer(o->block_tokens));
	if (o->adapter)
		json_object_set_new(arguments, "adapter", json_string(o->adapter));
	if (o->salt)
		json_object_set_new(arguments, "salt", json_string(o->salt));
	if (parent)
		json_object_set_new(arguments, "parent", json_string(parent));
	return ask(o, "index_prompt", arguments);
}

/* Who held all blocks so far holds those of the next part, too. */
static void
depth_go_on(json_t *list, const json_t *more, json_int_t so_far)
{
	static const char *const keys[] = {"exact", "gpu", "any"};
	json_t *d, *m;
	size_t i, k;

	json_array_foreach(list, i, d)
		json_array_foreach(more, k, m) {
			if (pm_integer_at(d, "row") != pm_integer_at(m, "row"))
				continue;
			for (unsigned j = 0; j < 3; j++)
				if (pm_integer_at(d, keys[j]) == so_far)
					json_object_set_new(d, keys[j], json_integer(
						so_far + pm_integer_at(m, keys[j])));
		}
}

static void
slots_add(json_t *list, const json_t *more)
{
	json_t *s;
	size_t i;

	json_array_foreach(more, i, s)
		if (!slot_of(list, json_integer_value(json_object_get(s, "slot"))))
			json_array_append(list, s);
}

/* The answers of all parts as one; NULL: said. */
static json_t *
prompt_all(const struct options *o, const json_t *tokens)
{
	json_t *all = ask_prompt(o, json_array(), NULL), *part;
	size_t n = json_array_size(tokens), size, step, at = 0;
	json_t *blocks = json_object_get(all, "blocks");

	if (!all)
		return NULL;
	size = (size_t)pm_integer_at(all, "block_tokens");
	step = size ? TOKENS_A_QUESTION / size * size : 0;
	if (step > PM_SHOW_HASHES_MAX * size)
		step = PM_SHOW_HASHES_MAX * size;
	if (step == 0) {
		complain("blocks of %zu tokens do not fit into a question", size);
		json_decref(all);
		return NULL;
	}
	for (; at + size <= n; at += step) {
		size_t so_far = json_array_size(blocks), take = n - at < step ? n - at : step;
		const char *parent = so_far ? pm_text_at(json_array_get(blocks, so_far - 1), "hash",
							 NULL) : NULL;

		part = ask_prompt(o, part_of(tokens, at, take), parent);
		if (!part) {
			json_decref(all);
			return NULL;
		}
		json_array_extend(blocks, json_object_get(part, "blocks"));
		slots_add(json_object_get(all, "slots"), json_object_get(part, "slots"));
		if (at == 0)
			json_object_set(all, "depth", json_object_get(part, "depth"));
		else
			depth_go_on(json_object_get(all, "depth"), json_object_get(part, "depth"),
				    (json_int_t)so_far);
		json_decref(part);
	}
	json_object_set_new(all, "tokens_used", json_integer((json_int_t)(
			    json_array_size(blocks) * size)));
	json_object_set_new(all, "tokens_given", json_integer((json_int_t)n));
	return all;
}

/* ---- audit ---- */

static json_t *
audit_json(const struct pm_view *view, const struct index_audit *a, unsigned n, bool exact)
{
	const struct index_header *h = index_head(view->reader);
	json_t *o = json_object();

	json_object_set_new(o, "passes", json_integer(n));
	json_object_set_new(o, "exact", json_boolean(exact));
#define FIELD(name) json_object_set_new(o, #name, json_integer((json_int_t)a->name))
	FIELD(entries);
	FIELD(holders);
	FIELD(duplicates);
	FIELD(unreachable);
	FIELD(saturated);
	FIELD(overcounted);
	FIELD(garbage);
#undef FIELD
	json_object_set_new(o, "entries_by_writer", json_integer((json_int_t)atomic_load_explicit(
			    &h->entries, memory_order_relaxed)));
	json_object_set_new(o, "holders_by_writer", json_integer((json_int_t)atomic_load_explicit(
			    &h->holders, memory_order_relaxed)));
	return o;
}

static void
audit_print(const json_t *o)
{
	printf("%lld passes: %s\n", pm_integer_at(o, "passes"),
	       json_is_true(json_object_get(o, "exact")) ?
	       "the last one while the writer rested, so this is exact" :
	       "the writer worked in each; the least of each count, which may be false");
	printf("blocks   %lld counted, %lld by the writer; holders %lld, %lld\n",
	       pm_integer_at(o, "entries"), pm_integer_at(o, "entries_by_writer"),
	       pm_integer_at(o, "holders"), pm_integer_at(o, "holders_by_writer"));
	printf("faults   %lld duplicate, %lld unreachable, %lld garbage, %lld saturated\n",
	       pm_integer_at(o, "duplicates"), pm_integer_at(o, "unreachable"),
	       pm_integer_at(o, "garbage"), pm_integer_at(o, "saturated"));
	printf("longer   %lld probes than need be (a writer died)\n",
	       pm_integer_at(o, "overcounted"));
}

static int
audit_view(const struct options *o, const struct pm_view *view)
{
	struct index_audit a = {0};
	bool exact = false;
	unsigned n;
	json_t *said;

	if (!view->reader) {
		complain("%s: no prefix index, or of another build's layout", o->run_dir);
		return 1;
	}
	pm_background(0, true);                 /* where nobody else wants the CPU */
	n = audit_passes(view->reader, &a, &exact);
	if (n == 0) {
		complain("no memory for the audit");
		return 1;
	}
	said = audit_json(view, &a, n, exact);
	if (o->json)
		print_json(said);
	else
		audit_print(said);
	json_decref(said);
	return exact && (a.duplicates || a.unreachable || a.garbage || a.saturated);
}

/* In this process, over the segment as the supervisor passes it: admin answers others meanwhile. */
static int
audit(const struct options *o)
{
	struct pm_view view;
	const char *why;
	int sock = control_connect(o->run_dir, &why), r = 1;

	if (sock < 0) {
		complain("%s: %s", o->run_dir, why);
		return 1;
	}
	pm_view_init(&view);
	if (control_attach(sock, &view, &why) < 0)
		complain("%s: %s", o->run_dir, why);
	else
		r = 0;
	close(sock);                            /* it need not send us what comes */
	if (r == 0)
		r = audit_view(o, &view);
	pm_view_close(&view);
	return r;
}

/* ---- the command ---- */

int
command_index(const struct options *o)
{
	void (*print)(const json_t *) = print_index;
	json_t *result = NULL, *tokens;
	unsigned kinds = (unsigned)o->slots + (unsigned)o->hash + (unsigned)(o->tokens != NULL) +
			 (unsigned)o->audit;

	if (kinds > 1 || (o->hash && o->n_args == 0) || (!o->hash && o->n_args > 0) ||
	    (!o->tokens != !o->model) || (o->worker && !o->slots) ||
	    (!o->tokens && (o->adapter || o->salt || o->block_tokens))) {
		complain("index takes nothing, --slots [--worker W], --hash HEX..., "
			 "--tokens FILE --model M [--block-tokens N] [--adapter A] [--salt S], or "
			 "--audit (pointsctl help)");
		return EXIT_USAGE;
	}
	if (o->audit)
		return audit(o);
	if (o->slots) {
		print = print_slots;
		result = ask_slots(o);
	} else if (o->hash) {
		print = print_holders;
		if (hashes(o, &result) != 0)
			return 1;
	} else if (o->tokens) {
		print = print_prompt;
		tokens = read_tokens(o->tokens);
		result = tokens ? prompt_all(o, tokens) : NULL;
		json_decref(tokens);
	} else {
		result = ask(o, "index", NULL);
	}
	return print_result(o, result, print);
}
