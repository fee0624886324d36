#include <criterion/criterion.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "proto/yaml.h"

/* Parse from a block of exactly its size, so that a sanitizer sees any step outside. */
static int
parse_bytes(const char *text, size_t len, struct yaml_docs **ret_docs, struct yaml_errors *errs)
{
	char *copy = malloc(len ? len : 1);
	int r;

	memcpy(copy, text, len);
	r = yaml_parse("f.yaml", copy, len, ret_docs, errs);
	free(copy); /* a tree owns its texts */
	return r;
}

static struct yaml_docs *
parse(const char *text)
{
	struct yaml_errors errs = {0};
	struct yaml_docs *docs = NULL;

	if (parse_bytes(text, strlen(text), &docs, &errs) < 0)
		yaml_errors_print(&errs, stderr);
	cr_assert(docs, "%s", text);
	cr_assert_not(yaml_errors_any(&errs));
	return docs;
}

/* The text is refused, and the first complaint stands there and says this. */
static void
refused_bytes(const char *text, size_t len, unsigned line, unsigned column, const char *says)
{
	struct yaml_errors errs = {0};
	struct yaml_docs *docs = NULL;

	cr_assert_eq(parse_bytes(text, len, &docs, &errs), -EINVAL, "%.60s", text);
	cr_assert_null(docs);
	cr_assert_geq(errs.n, 1);
	cr_assert_str_eq(errs.list[0].file, "f.yaml");
	cr_assert_eq(errs.list[0].line, line, "%.60s: line %u: %s", text, errs.list[0].line,
		     errs.list[0].text);
	cr_assert_eq(errs.list[0].column, column, "%.60s: column %u: %s", text, errs.list[0].column,
		     errs.list[0].text);
	cr_assert(strstr(errs.list[0].text, says), "%s", errs.list[0].text);
	yaml_errors_free(&errs);
}

static void
refused(const char *text, unsigned line, unsigned column, const char *says)
{
	refused_bytes(text, strlen(text), line, column, says);
}

Test(yaml, a_tree_knows_where_everything_stands)
{
	struct yaml_docs *docs = parse("a: 1\nb:\n  - x\n  - {c: \"2\"}\n---\n- 7\n");
	const struct yaml_node *root, *b;

	cr_assert_eq(docs->n, 2);
	cr_assert_str_eq(docs->file, "f.yaml");
	root = docs->roots[0];
	cr_assert(root->kind == YAML_KIND_MAP && root->n_children == 2);
	cr_assert(root->child->line == 1 && root->child->column == 4 && !root->child->quoted);
	b = yaml_map_get(root, "b");
	cr_assert(b->kind == YAML_KIND_LIST && b->n_children == 2 && b->key_line == 2);
	cr_assert_str_eq(b->child->text, "x");
	cr_assert_eq(b->child->line, 3);
	cr_assert(yaml_map_get(b->child->next, "c")->quoted);
	cr_assert_eq(yaml_map_get(b->child->next, "c")->column, 9);
	cr_assert_null(yaml_map_get(root, "c"));
	cr_assert_null(yaml_map_get(NULL, "c"));
	cr_assert_eq(docs->roots[1]->line, 6);
	yaml_docs_free(&docs);
	cr_assert_null(docs);
	yaml_docs_free(&docs);
}

Test(yaml, columns_count_characters)
{
	struct yaml_docs *docs = parse("{\"\xc3\xa9\xc3\xa9\": x}");

	cr_assert_eq(docs->roots[0]->child->column, 8);
	yaml_docs_free(&docs);
	refused("\xc3\xa9: [x]]", 1, 7, "did not find expected");
}

Test(yaml, texts_without_a_value_hold_no_document)
{
	static const char *const texts[] = {"", "\n\n", "# nothing\n", "---\n", "---\n---\n...\n"};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		struct yaml_docs *docs = parse(texts[i]);

		cr_assert_eq(docs->n, 0, "%s", texts[i]);
		yaml_docs_free(&docs);
	}
}

Test(yaml, a_byte_order_mark_is_passed_over)
{
	struct yaml_docs *docs = parse("\xef\xbb\xbf" "a: 1\n");

	cr_assert_eq(yaml_map_get(docs->roots[0], "a")->column, 4);
	yaml_docs_free(&docs);
}

Test(yaml, what_makes_configuration_lie_is_refused_where_it_stands)
{
	refused("a: 1\nb: 2\na: 3\n", 3, 1, "\"a\" is given twice: first at line 1, column 1");
	refused("a: {b: 1, \"b\": 2}\n", 1, 11, "given twice");
	refused("a: &x 1\n", 1, 4, "anchors are not supported (&x)");
	refused("a: *x\n", 1, 4, "aliases are not supported (*x)");
	refused("a:\n  <<: {b: 1}\n", 2, 3, "merge keys");
	refused("a: !!str 1\n", 1, 4, "tags are not supported");
	refused("a: !x {b: 1}\n", 1, 4, "tags are not supported");
	refused("a:\n  - b\n\t- c\n", 3, 1, "a tab in the indentation");
	refused("? [a]\n: b\n", 1, 3, "a key must be one word");
	refused("? {a: b}\n: b\n", 1, 3, "a key must be one word");
	refused("a: \"x\\0y\"\n", 1, 4, "a NUL character");
	refused("a: 1\n b: 2\n", 2, 3, "not valid YAML");
	refused("a: \x01\n", 1, 4, "not valid text");
	refused("a: b\xff\n", 1, 5, "not valid text");
	refused_bytes("a: 1\nb\0: 2\n", 11, 2, 2, "a NUL byte");
}

Test(yaml, the_flow_that_never_ends_names_its_beginning)
{
	refused("a: 1\nb: {c: 2,\nd: 3\n", 4, 1, "that begins at line 2, column 4");
}

Test(yaml, all_complaints_of_a_file_come_at_once)
{
	static const char text[] = "a: &x 1\nb: *x\nb: !y 2\n";
	struct yaml_errors errs = {0};
	struct yaml_docs *docs = NULL;

	cr_assert_eq(yaml_parse("f.yaml", text, strlen(text), &docs, &errs), -EINVAL);
	cr_assert_eq(errs.n, 4);
	cr_assert_eq(errs.list[3].line, 3);
	yaml_errors_free(&errs);
	cr_assert_not(yaml_errors_any(&errs));
}

Test(yaml, thirty_two_levels_are_read_and_thirty_three_refused)
{
	char text[80];
	struct yaml_docs *docs;

	memset(text, '[', 32);
	memset(text + 32, ']', 32);
	text[64] = '\0';
	docs = parse(text);
	yaml_docs_free(&docs);
	memset(text, '[', 33);
	memset(text + 33, ']', 33);
	text[66] = '\0';
	refused(text, 1, 33, "more than 32 levels");
}

Test(yaml, sizes_are_bounded)
{
	size_t len = YAML_TEXT_MAX_BYTES + 1;
	char *text = malloc(len + 1);

	memset(text, ' ', len);
	text[len] = '\0';
	refused_bytes(text, len, 0, 0, "larger than 1024 KiB");
	for (size_t i = 1; i + 2 < len; i += 2)
		memcpy(text + i, "1,", 2);
	text[0] = '[';
	refused_bytes(text, len - 2, 1, 200000, "more than 100000 values");
	for (unsigned i = 0; i < 1001; i++)
		snprintf(text + 6 * i, 7, "k%03x:\n", i);
	refused_bytes(text, 6 * 1001, 1001, 1, "more than 1000 keys");
	free(text);
}

Test(yaml, complaints_beyond_a_hundred_are_counted)
{
	struct yaml_errors errs = {0};
	char *text = NULL;
	size_t len;
	FILE *f;

	for (unsigned i = 0; i < 150; i++)
		yaml_errors_add(&errs, "f", i, 1, "n%u\033[31m", i);
	cr_assert_eq(errs.n, 100);
	cr_assert_eq(errs.dropped, 50);
	f = open_memstream(&text, &len);
	yaml_errors_print(&errs, f);
	fclose(f);
	cr_assert(strncmp(text, "f: n0?[31m\nf:1:1: n1?[31m\n", 26) == 0, "%s", text);
	cr_assert(strstr(text, "and 50 more\n"));
	free(text);
	yaml_errors_free(&errs);
}

/* The first value of a one-key map. */
static struct yaml_node *
value_of(const char *text, struct yaml_docs **ret_docs)
{
	char all[128];

	snprintf(all, sizeof(all), "v: %s\n", text);
	*ret_docs = parse(all);
	return (*ret_docs)->roots[0]->child;
}

Test(yaml, only_true_and_false_are_bools)
{
	static const char *const bad[] = {"yes",      "no", "on", "True",  "1",
					  "\"true\"", "~",  "",   "[true]"};
	const char *why = NULL;
	struct yaml_docs *docs;
	bool b = false;

	cr_assert_eq(yaml_get_bool(value_of("true", &docs), &b, &why), 0);
	cr_assert(b);
	yaml_docs_free(&docs);
	cr_assert_eq(yaml_get_bool(value_of("false", &docs), &b, &why), 0);
	cr_assert_not(b);
	yaml_docs_free(&docs);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		b = true;
		cr_assert_eq(yaml_get_bool(value_of(bad[i], &docs), &b, &why), -EINVAL, "%s",
			     bad[i]);
		cr_assert(b && why);
		yaml_docs_free(&docs);
	}
}

Test(yaml, counts_are_decimal_and_nothing_else)
{
	static const char *const bad[] = {"010", "0x10", "1e3", "-1", "+1", "1.0", "1_000", "1:30",
					  "\"1\"", "18446744073709551616", "one", ""};
	const char *why = NULL;
	struct yaml_docs *docs;
	uint64_t n = 5;

	cr_assert_eq(yaml_get_u64(value_of("0", &docs), &n, &why), 0);
	cr_assert_eq(n, 0);
	yaml_docs_free(&docs);
	cr_assert_eq(yaml_get_u64(value_of("18446744073709551615", &docs), &n, &why), 0);
	cr_assert_eq(n, UINT64_MAX);
	yaml_docs_free(&docs);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		cr_assert_eq(yaml_get_u64(value_of(bad[i], &docs), &n, &why), -EINVAL, "%s",
			     bad[i]);
		cr_assert(n == UINT64_MAX && why);
		yaml_docs_free(&docs);
	}
}

Test(yaml, durations_need_a_unit)
{
	static const struct {
		const char *text;
		uint64_t ns;
	} good[] = {{"500ms", 500000000}, {"2s", 2000000000}, {"5m", 300000000000},
		    {"1.5s", 1500000000}, {"1h", 3600000000000}, {"10us", 10000}, {"7ns", 7},
		    {"0s", 0}, {"\"2s\"", 2000000000}, {"0.000000001s", 1}, {"0.5ns", 0}};
	static const char *const bad[] = {
		"10", "1:30", "2 s", "2S", "-2s",      ".5s",           "2.s",
		"s",  "1e3s", "02s", "1d", "3000000h", "0.0000000001s", ""};
	const char *why = NULL;
	struct yaml_docs *docs;
	uint64_t ns = 0;
	double s = 0;

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		cr_assert_eq(yaml_get_duration_ns(value_of(good[i].text, &docs), &ns, &why), 0,
			     "%s", good[i].text);
		cr_assert_eq(ns, good[i].ns, "%s", good[i].text);
		yaml_docs_free(&docs);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		cr_assert_eq(yaml_get_duration_ns(value_of(bad[i], &docs), &ns, &why), -EINVAL,
			     "%s", bad[i]);
		yaml_docs_free(&docs);
	}
	cr_assert_eq(yaml_get_duration_s(value_of("0.02ns", &docs), &s, &why), 0);
	cr_assert(fabs(s - 2e-11) < 1e-20);
	yaml_docs_free(&docs);
}

Test(yaml, sizes_need_a_unit)
{
	static const char *const bad[] = {"32", "32KB", "32k", "1.5MiB", "032KiB", "-1KiB",
					  "9999999999999GiB", ""};
	const char *why = NULL;
	struct yaml_docs *docs;
	uint64_t bytes = 0;

	cr_assert_eq(yaml_get_size_bytes(value_of("256KiB", &docs), &bytes, &why), 0);
	cr_assert_eq(bytes, 262144);
	yaml_docs_free(&docs);
	cr_assert_eq(yaml_get_size_bytes(value_of("2GiB", &docs), &bytes, &why), 0);
	cr_assert_eq(bytes, 2147483648u);
	yaml_docs_free(&docs);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		cr_assert_eq(yaml_get_size_bytes(value_of(bad[i], &docs), &bytes, &why), -EINVAL,
			     "%s", bad[i]);
		yaml_docs_free(&docs);
	}
}

Test(yaml, names_stay_names)
{
	static const char *const texts[] = {"no", "1e3", "1.10", "null", "~", "010", "on"};
	const char *why = NULL, *text = NULL;
	struct yaml_docs *docs;

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		cr_assert_eq(yaml_get_text(value_of(texts[i], &docs), &text, &why), 0);
		cr_assert_str_eq(text, texts[i]);
		yaml_docs_free(&docs);
	}
	cr_assert_eq(yaml_get_text(value_of("", &docs), &text, &why), -EINVAL);
	cr_assert_str_eq(why, "is empty");
	yaml_docs_free(&docs);
}

Test(yaml, the_nearest_name_is_near)
{
	static const char *const names[] = {"onEmpty", "minimize", "candidates", "match"};

	cr_assert_str_eq(yaml_nearest("onEmtpy", names, 4), "onEmpty");
	cr_assert_str_eq(yaml_nearest("onempty", names, 4), "onEmpty");
	cr_assert_str_eq(yaml_nearest("MINIMIZE", names, 4), "minimize");
	cr_assert_str_eq(yaml_nearest("minimise", names, 4), "minimize");
	cr_assert_str_eq(yaml_nearest("candidate", names, 4), "candidates");
	cr_assert_null(yaml_nearest("rules", names, 4));
	cr_assert_null(yaml_nearest("m", names, 4));
	cr_assert_null(yaml_nearest("", names, 4));
	cr_assert_null(yaml_nearest("onEmpty", names, 0));
}
