/* actors/pointsctl/decode_metrics.c -- `decode metrics FILE...`: what a worker's rows would know by
 * this page, and which lines said so.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "actors/common/scrape.h"
#include "actors/pointsctl/decode.h"
#include "actors/pointsctl/pointsctl.h"

#define PAGE_MOST_BYTES (64u << 20)
#define LINES_MOST 32u  /* of one value, or that failed: told by number */

struct page {
	const char *path;
	struct bytes bytes;
	struct scrape scrape;
	uint32_t failed[LINES_MOST];
	unsigned n_failed;
};

static void
on_sample(void *arg, const struct prometheus_sample *sample)
{
	(void)arg;
	(void)sample;
}

static void
on_failed(void *arg, unsigned line)
{
	struct page *page = arg;

	if (page->n_failed < LINES_MOST)
		page->failed[page->n_failed++] = line;
}

/* Line n of the page, from 1; {NULL, 0}: there is none. */
static struct slice
line_at(const struct page *page, uint32_t n)
{
	const char *p = (const char *)page->bytes.p, *end = p + page->bytes.n;

	while (p && p < end && --n > 0) {
		p = memchr(p, '\n', (size_t)(end - p));
		p = p ? p + 1 : NULL;
	}
	if (!p || p >= end)
		return (struct slice){NULL, 0};
	const char *nl = memchr(p, '\n', (size_t)(end - p));

	return (struct slice){p, (size_t)((nl ? nl : end) - p)};
}

/* ---- which lines said it ---- */

static void
line_add(json_t *lines, uint32_t line)
{
	size_t i;
	json_t *have;

	if (line == 0 || json_array_size(lines) >= LINES_MOST)
		return;
	json_array_foreach(lines, i, have)
		if (json_integer_value(have) == line)
			return;
	json_array_append_new(lines, json_integer(line));
}

static json_t *
lines_of(const struct scrape *s, uint16_t rank, uint32_t ranks, unsigned gauges, bool config,
	 bool sleep)
{
	json_t *lines = json_array();

	for (unsigned i = 0; i < s->n_samples; i++)
		if ((gauges >> s->sample[i].gauge & 1) &&
		    scrape_is_of(&s->series[s->sample[i].series], rank, ranks))
			line_add(lines, s->sample[i].line);
	for (unsigned i = 0; i < s->n; i++) {
		if (!scrape_is_of(&s->series[i], rank, ranks))
			continue;
		if (config)
			line_add(lines, s->series[i].config_line);
		if (sleep)
			line_add(lines, s->series[i].sleep_line);
	}
	return lines;
}

/* Those of the gauge; where it has none, those of what stands in for it. */
static json_t *
lines_or(const struct scrape *s, uint16_t rank, uint32_t ranks, unsigned gauges, bool config,
	 unsigned otherwise)
{
	json_t *lines = lines_of(s, rank, ranks, gauges, config, false);

	if (json_array_size(lines) > 0)
		return lines;
	json_decref(lines);
	return lines_of(s, rank, ranks, otherwise, false, false);
}

static void
field(json_t *row, const char *name, json_t *value, json_t *lines)
{
	json_t *o = json_object();

	json_object_set_new(o, "value", value);
	json_object_set_new(o, "lines", lines);
	json_object_set_new(row, name, o);
}

static json_t *
count_if(const struct row_reading *r, uint32_t bit, uint32_t value)
{
	return r->known & bit ? json_integer(value) : json_null();
}

#define BIT(gauge) (1u << (gauge))

static json_t *
row_of(const struct scrape *s, uint16_t rank, uint32_t ranks)
{
	struct row_reading r = {0};
	bool asleep;
	json_t *o = json_object(), *start = json_array(), *sleep;

	scrape_reading(s, rank, ranks, &r, &asleep);
	line_add(start, s->start_line);
	json_object_set_new(o, "rank", ranks > 1 ? json_integer(rank) : json_null());
	field(o, "waiting", count_if(&r, KNOWN_WAITING, r.waiting),
	      lines_or(s, rank, ranks, BIT(SCRAPE_WAITING), false, BIT(SCRAPE_WAITING_ELSE)));
	field(o, "running", count_if(&r, KNOWN_RUNNING, r.running),
	      lines_of(s, rank, ranks, BIT(SCRAPE_RUNNING), false, false));
	field(o, "kv_usage", r.known & KNOWN_KV_USAGE ? json_real((double)r.kv_usage) : json_null(),
	      lines_or(s, rank, ranks, BIT(SCRAPE_KV), false, BIT(SCRAPE_KV_ELSE)));
	field(o, "block_tokens", count_if(&r, KNOWN_BLOCK_TOKENS, r.block_tokens),
	      lines_of(s, rank, ranks, BIT(SCRAPE_BLOCK), true, false));
	field(o, "num_blocks", count_if(&r, KNOWN_NUM_BLOCKS, r.num_blocks),
	      lines_or(s, rank, ranks, BIT(SCRAPE_BLOCKS) | BIT(SCRAPE_TOKENS), true,
		       BIT(SCRAPE_BLOCKS_ELSE)));
	field(o, "max_model_len", count_if(&r, KNOWN_MAX_MODEL_LEN, r.max_model_len),
	      lines_of(s, rank, ranks, BIT(SCRAPE_LENGTH), false, false));
	field(o, "engine_start",
	      r.known & KNOWN_ENGINE_START ? json_real((double)row_reading_start(&r) / 1e9)
					   : json_null(),
	      start);
	sleep = lines_of(s, rank, ranks, 0, false, true);
	field(o, "asleep", json_array_size(sleep) ? json_boolean(asleep) : json_null(), sleep);
	return o;
}

/* ---- the page ---- */

static json_t *
numbers_of(const uint32_t *list, unsigned n)
{
	json_t *o = json_array();

	for (unsigned i = 0; i < n; i++)
		json_array_append_new(o, json_integer(list[i]));
	return o;
}

static json_t *
page_of(const struct page *page, uint32_t ranks)
{
	const struct scrape *s = &page->scrape;
	json_t *o = json_object(), *rows = json_array();
	enum row_why why = scrape_why(s);

	json_object_set_new(o, "file", json_string(page->path));
	json_object_set_new(o, "engine", s->engine ? json_string(manifest_engine_name(s->engine))
						   : json_null());
	json_object_set_new(o, "why", json_string(row_why_name(why)));
	json_object_set_new(o, "samples", json_integer((json_int_t)s->samples));
	json_object_set_new(o, "said_again", json_integer((json_int_t)s->duplicates));
	json_object_set_new(o, "largest_of_several", json_boolean(s->several));
	json_object_set_new(o, "failed_lines", numbers_of(page->failed, page->n_failed));
	for (uint32_t rank = 0; rank < ranks; rank++)
		json_array_append_new(rows, row_of(s, (uint16_t)rank, ranks));
	json_object_set_new(o, "rows", rows);
	return o;
}

static void
lines_print(const struct page *page, const json_t *lines)
{
	size_t i;
	json_t *n;

	json_array_foreach(lines, i, n) {
		uint32_t line = (uint32_t)json_integer_value(n);
		struct slice text = line_at(page, line);

		printf("%s line %u: %.*s%s\n", i ? "                          " : "", line,
		       text.len > 160 ? 160 : (int)text.len, text.p ? text.p : "",
		       text.len > 160 ? "..." : "");
	}
	if (json_array_size(lines) == 0)
		putchar('\n');
}

static void
row_print(const struct page *page, const json_t *row)
{
	const char *name;
	json_t *of, *rank = json_object_get(row, "rank");

	if (json_is_integer(rank))
		printf("rank %lld\n", (long long)json_integer_value(rank));
	/* jansson keeps the order in which they were put */
	json_object_foreach((json_t *)(uintptr_t)row, name, of) {
		json_t *value = json_object_get(of, "value");
		char text[32] = "unknown";

		if (!json_is_object(of))
			continue;
		if (json_is_integer(value))
			snprintf(text, sizeof text, "%lld", (long long)json_integer_value(value));
		else if (json_is_real(value))
			snprintf(text, sizeof text, json_real_value(value) > 1 ? "%.2f" : "%.6f",
				 json_real_value(value));
		else if (json_is_boolean(value))
			snprintf(text, sizeof text, "%s", json_is_true(value) ? "yes" : "no");
		printf("  %-13s %-10s", name, text);
		lines_print(page, json_object_get(of, "lines"));
	}
}

static void
page_print(const struct page *page, const json_t *o)
{
	const struct scrape *s = &page->scrape;
	size_t i;
	json_t *row;

	printf("%s: %s; %zu samples, %zu of use, %zu said again; %s\n", page->path,
	       s->engine ? manifest_engine_name(s->engine) : "no engine that we know", s->samples,
	       (size_t)s->n_samples, s->duplicates, row_why_name(scrape_why(s)));
	if (s->several)
		printf("  several series of one gauge, as of several API servers: the largest "
		       "counts\n");
	json_array_foreach(json_object_get(o, "rows"), i, row)
		row_print(page, row);
	for (unsigned n = 0; n < page->n_failed; n++) {
		struct slice text = line_at(page, page->failed[n]);

		printf("  not readable         line %u: %.*s\n", page->failed[n],
		       text.len > 160 ? 160 : (int)text.len, text.p ? text.p : "");
	}
	if (s->truncated)
		printf("  %s\n", row_why_text(WHY_IN_PART));
}

static int
page_decode(struct page *page, enum manifest_engine engine, const struct options *o)
{
	struct prometheus_reader *whole = &page->scrape.reader;
	uint32_t ranks = o->ranks ? o->ranks : 1;
	const char *p;
	json_t *out;
	int r = file_read(page->path, PAGE_MOST_BYTES, &page->bytes);

	if (r < 0) {
		complain("%s: %s", page->path, strerror(-r));
		return 1;
	}
	p = page->bytes.p ? (const char *)page->bytes.p : "";
	/* First every line, also those that the scraper passes over. */
	page->n_failed = 0;
	prometheus_begin(whole, on_sample, page);
	whole->bad = on_failed;
	prometheus_feed(whole, p, page->bytes.n);
	prometheus_end(whole);
	scrape_page(p, page->bytes.n, engine, &page->scrape);
	out = page_of(page, ranks);
	if (o->json)
		print_json(out);
	else
		page_print(page, out);
	json_decref(out);
	free(page->bytes.p);
	return page->n_failed > 0;
}

int
decode_metrics(const struct options *o)
{
	enum manifest_engine engine = o->engine ? manifest_engine_named(o->engine) : 0;
	struct page *page;
	int code = 0;

	if (o->engine && engine == 0) {
		complain("--engine %s? vllm, sglang, trtllm and triton are known", o->engine);
		return EXIT_USAGE;
	}
	page = malloc(sizeof *page);
	if (!page) {
		complain("%s", strerror(ENOMEM));
		return 1;
	}
	for (unsigned i = 1; i < o->n_args; i++) {
		*page = (struct page){.path = o->args[i]};
		code |= page_decode(page, engine, o);
	}
	free(page);
	return code;
}
