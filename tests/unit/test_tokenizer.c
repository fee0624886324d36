/* test_tokenizer.c -- every rule of a tokenizer's file on its own, in small ones written here. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "actors/common/prompt/tokenizer.h"
#include "actors/common/prompt/tokenizer_compile.h"
#include "actors/common/prompt/tokenizer_layout.h"
#include "tests/random.h"

struct subject {
	struct tokenizer *t;
	struct tokenizer_scratch *s;
	void *bytes;
	size_t len;
};

static struct subject
open_source(const struct tokenizer_source *source)
{
	char why[TOKENIZER_WHY_BYTES] = "";
	const char *trouble = "";
	struct subject j;

	cr_assert_eq(tokenizer_compile(source, &j.bytes, &j.len, why, sizeof(why)), 0, "%s", why);
	cr_assert_eq(tokenizer_open(j.bytes, j.len, &j.t, &trouble), 0, "%s", trouble);
	cr_assert_eq(tokenizer_scratch_new(&j.s), 0);
	return j;
}

static struct subject
open_json(const char *json)
{
	return open_source(&(struct tokenizer_source){.form = TOKENIZER_JSON,
						      .file = slice_str(json)});
}

static void
gone(struct subject *j)
{
	tokenizer_scratch_free(&j->s);
	tokenizer_close(&j->t);
	free(j->bytes);
}

/* The ids as text: "1 2 3". */
static const char *
ids_of(struct subject *j, const char *text, bool special)
{
	static char out[4096];
	struct ids ids = {0};
	size_t n = 0;

	out[0] = '\0';
	cr_assert_eq(tokenizer_encode(j->t, j->s, slice_str(text), special, SIZE_MAX, &ids), 0);
	for (size_t i = 0; i < ids.n; i++)
		n += (size_t)snprintf(out + n, sizeof(out) - n, "%s%u", i ? " " : "", ids.id[i]);
	ids_free(&ids);
	return out;
}

#define IS(j, text, want) do {                                                     \
	const char *got_ = ids_of(j, text, false);                                 \
	cr_assert_str_eq(got_, want, "\"%s\" is %s, not %s", text, got_, want);    \
} while (0)

/* A character model: a = 0 .. z = 25, "_" 26, U+2581 27, "<unk>" 28. */
static char *
letters(const char *more)
{
	char *text;
	size_t len;
	FILE *f = open_memstream(&text, &len);

	fputs("{\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{", f);
	for (char c = 'a'; c <= 'z'; c++)
		fprintf(f, "\"%c\":%d,", c, c - 'a');
	fputs("\"_\":26,\"\\u2581\":27,\"<unk>\":28}}", f);
	fprintf(f, "%s}", more);
	fclose(f);
	return text;
}

static struct subject
open_letters(const char *more)
{
	char *json = letters(more);
	struct subject j = open_json(json);

	free(json);
	return j;
}

#define TOKEN(id, content, flags) \
	"{\"id\":" #id ",\"content\":\"" content "\",\"special\":false" flags "}"
#define RAW    ",\"normalized\":false"
#define NORMAL ",\"normalized\":true"

Test(tokenizer, of_added_tokens_the_leftmost_is_taken_and_of_those_the_longest)
{
	struct subject j = open_letters(",\"added_tokens\":[" TOKEN(29, "<a>", RAW) ","
					TOKEN(30, "<a><b>", RAW) "," TOKEN(31, "b><", RAW) "]");

	IS(&j, "x<a>y", "23 29 24");
	IS(&j, "<a><b>", "30");
	IS(&j, "<a><a><b><b><", "29 30 31");
	gone(&j);
}

Test(tokenizer, an_added_token_that_the_vocabulary_has_keeps_that_id_and_others_are_counted_on)
{
	/* As Hugging Face does: the ids in the file are not looked at. */
	struct subject j = open_letters(",\"added_tokens\":[" TOKEN(99, "<unk>", RAW) ","
					TOKEN(77, "!", RAW) "," TOKEN(78, "?", RAW) "]");

	IS(&j, "<unk>!?", "28 29 30");
	gone(&j);
}

Test(tokenizer, a_thousand_added_tokens_are_found_and_one_given_twice_has_the_later_flags)
{
	enum { N = 1000 };
	static char json[N * 160];
	char id[16], text[16];
	size_t n = (size_t)snprintf(json, sizeof(json), ",\"added_tokens\":[");
	struct subject j;

	for (unsigned i = 0; i < N; i++)
		n += (size_t)snprintf(json + n, sizeof(json) - n, TOKEN(29, "<%u>", RAW) ",", i);
	snprintf(json + n, sizeof(json) - n, TOKEN(7, "<500>", ",\"lstrip\":true" RAW) "]");
	j = open_letters(json);
	for (unsigned i = 0; i < N; i++) {
		snprintf(text, sizeof(text), "<%u>", i);
		snprintf(id, sizeof(id), "%u", 29 + i);
		IS(&j, text, id);
	}
	gone(&j);
}

Test(tokenizer, a_single_word_has_no_letter_beside_it)
{
	struct subject j = open_letters(",\"added_tokens\":["
					TOKEN(29, "ab", RAW ",\"single_word\":true") "]");

	IS(&j, "ab", "29");
	IS(&j, "abc", "0 1 2");
	IS(&j, "xab", "23 0 1");
	IS(&j, "_ab", "26 0 1");
	IS(&j, "-ab-", "29");
	IS(&j, "\xc3\xa9" "ab", "0 1");         /* e acute is a letter, and has no token */
	gone(&j);
}

Test(tokenizer, blanks_beside_a_token_go_with_it_if_it_says_so)
{
	struct subject j = open_letters(",\"pre_tokenizer\":{\"type\":\"Metaspace\","
				"\"replacement\":"
					"\"_\",\"prepend_scheme\":\"never\",\"split\":false},"
				"\"added_tokens\":[" TOKEN(29, "<l>", RAW ",\"lstrip\":true")
					"," TOKEN(30, "<r>", RAW ",\"rstrip\":true") "]");

	IS(&j, "a  <l> b", "0 29 26 1");
	IS(&j, "a <r>\n\t  b", "0 26 30 1");
	IS(&j, "<r>  <l>", "30 29");
	IS(&j, " <l>", "29");
	gone(&j);
}

Test(tokenizer, normalized_tokens_are_found_after_normalizing_the_others_before)
{
	struct subject j = open_letters(",\"normalizer\":{\"type\":\"Replace\",\"pattern\":"
					"{\"String\":\"x\"},\"content\":\"ab\"},\"added_tokens\":["
					TOKEN(23, "x", NORMAL) "," TOKEN(29, "bb", RAW) "]");

	IS(&j, "x", "23");                      /* its own content is normalized, too */
	IS(&j, "ab", "23");
	IS(&j, "bbx", "29 23");
	IS(&j, "bxb", "1 23 1");
	gone(&j);
}

Test(tokenizer, prepend_comes_before_every_stretch_and_metaspace_first_only_at_the_start)
{
	struct subject a = open_letters(",\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":["
					"{\"type\":\"Prepend\",\"prepend\":\"_\"}]},"
					"\"added_tokens\":[" TOKEN(29, "<s>", RAW) "]");
	struct subject b = open_letters(",\"pre_tokenizer\":{\"type\":\"Metaspace\","
				"\"replacement\":"
					"\"_\",\"prepend_scheme\":\"first\",\"split\":false},"
					"\"added_tokens\":[" TOKEN(29, "<s>", RAW) "]");
	struct subject c = open_letters(",\"pre_tokenizer\":{\"type\":\"Metaspace\","
				"\"replacement\":"
					"\"_\",\"add_prefix_space\":true},\"added_tokens\":["
					TOKEN(29, "<s>", RAW) "]");

	IS(&a, "a<s>b", "26 0 29 26 1");
	IS(&a, "_a", "26 26 0");
	IS(&a, "", "");
	IS(&b, "a<s>b", "26 0 29 1");
	IS(&b, "<s>b", "29 1");
	IS(&b, " a b", "26 0 26 1");            /* a blank is the mark already */
	IS(&c, "a<s>b", "26 0 29 26 1");
	gone(&a);
	gone(&b);
	gone(&c);
}

/* Merges over which a piece's borders can be seen: aa and ab become one. */
static struct subject
open_split(const char *pre)
{
	char *json = NULL;

	cr_assert_gt(asprintf(&json, "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,"
			      "\"-\":2,\"aa\":3,\"a-\":4,\"-a\":5,\"--\":6,\"1\":7,\"11\":8,"
			      "\"a1\":9},\"merges\":[\"a a\",\"a -\",\"- a\",\"- -\",\"1 1\","
			      "\"a 1\"]},\"pre_tokenizer\":%s}", pre), 0);
	struct subject j = open_json(json);

	free(json);
	return j;
}

#define SPLIT(pattern, behavior, invert) "{\"type\":\"Split\",\"pattern\":" pattern \
	",\"behavior\":\"" behavior "\",\"invert\":" invert "}"
#define DASH "{\"String\":\"-\"}"

Test(tokenizer, a_split_isolates_removes_or_joins_as_it_says)
{
	static const struct {
		const char *pre, *want;         /* of "a-a--a" */
	} cases[] = {
		{SPLIT(DASH, "Isolated", "false"), "0 2 0 2 2 0"},
		{SPLIT(DASH, "Removed", "false"), "0 0 0"},
		{SPLIT(DASH, "Removed", "true"), "2 2 2"},
		{SPLIT(DASH, "MergedWithPrevious", "false"), "4 4 2 0"},
		{SPLIT(DASH, "MergedWithNext", "false"), "0 5 2 5"},
		{SPLIT(DASH, "Contiguous", "false"), "0 2 0 6 0"},
		{SPLIT("{\"Regex\":\"-+\"}", "Isolated", "false"), "0 2 0 6 0"},
		{SPLIT("{\"Regex\":\"-+\"}", "Removed", "true"), "2 6"},
		{SPLIT("{\"Regex\":\"-\"}", "MergedWithNext", "false"), "0 5 2 5"},
		{SPLIT("{\"Regex\":\"a-|-a\"}", "Isolated", "false"), "4 4 5"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct subject j = open_split(cases[i].pre);

		IS(&j, "a-a--a", cases[i].want);
		gone(&j);
	}
}

Test(tokenizer, digits_part_one_by_one_or_as_numbers)
{
	struct subject a = open_split("{\"type\":\"Digits\",\"individual_digits\":true}");
	struct subject b = open_split("{\"type\":\"Digits\",\"individual_digits\":false}");

	IS(&a, "aa11a", "3 7 7 0");
	IS(&b, "aa11a", "3 8 0");
	gone(&a);
	gone(&b);
}

Test(tokenizer, a_sequence_parts_what_the_one_before_left)
{
	struct subject j = open_split("{\"type\":\"Sequence\",\"pretokenizers\":["
				      SPLIT(DASH, "MergedWithPrevious", "false") ","
				      SPLIT("{\"Regex\":\"a\"}", "Isolated", "false") "]}");

	IS(&j, "aa-a", "0 0 2 0");
	gone(&j);
}

#define BYTES "\"<0xC3>\":29,\"<0xA9>\":30"

Test(tokenizer, characters_without_a_token_fall_back_to_bytes_or_are_unknown)
{
	static const char form[] = "{\"model\":{\"type\":\"BPE\",\"unk_token\":\"?\","
		"\"fuse_unk\":%s,"
		"\"byte_fallback\":%s,\"merges\":[],\"vocab\":{\"?\":0,\"a\":1," BYTES "}}}";
	char json[400];
	struct subject j;

	snprintf(json, sizeof(json), form, "true", "true");
	j = open_json(json);
	IS(&j, "a\xc3\xa9", "1 29 30");
	IS(&j, "\xc3\xb6\xc3\xb6" "a", "0 1");          /* no <0xB6>: unknown, fused */
	/* As there: the unknown one comes when a character with a token does. */
	IS(&j, "\xc3\xb6\xc3\xa9" "a", "29 30 0 1");
	gone(&j);
	snprintf(json, sizeof(json), form, "false", "false");
	j = open_json(json);
	IS(&j, "\xc3\xa9\xc3\xa9" "a", "0 0 1");
	gone(&j);
}

Test(tokenizer, a_template_puts_its_tokens_around_the_text_only_when_asked)
{
	struct subject j = open_letters(",\"post_processor\":{\"type\":\"Sequence\","
		"\"processors\":[{\"type\":\"ByteLevel\"},"
		"{\"type\":\"TemplateProcessing\",\"single\":["
		"{\"SpecialToken\":{\"id\":\"<s>\"}},{\"Sequence\":{\"id\":\"A\"}},"
		"{\"SpecialToken\":{\"id\":\"</s>\"}}],\"special_tokens\":{"
		"\"<s>\":{\"ids\":[100]},\"</s>\":{\"ids\":[200,201]}}}]}");

	IS(&j, "a", "0");
	cr_assert_str_eq(ids_of(&j, "a", true), "100 0 200 201");
	cr_assert_str_eq(ids_of(&j, "", true), "100 200 201");
	gone(&j);
}

Test(tokenizer, tokens_of_the_config_are_added)
{
	char *json = letters("");
	const struct tokenizer_source source = {
		.form = TOKENIZER_JSON, .file = slice_str(json),
		.config = SLICE_LIT("{\"added_tokens_decoder\":{\"29\":{\"content\":\"<s>\"}}}"),
	};
	struct subject j = open_source(&source);

	cr_assert_str_eq(ids_of(&j, "a<s>", true), "0 29");
	gone(&j);
	free(json);
}

/* What Transformers 5.19 made of 20 classes, with the flags true, false and absent beside every
 * kind of post-processor: they counted in none. */
Test(tokenizer, around_a_text_is_what_the_file_says_but_for_classes_that_say_it_themselves)
{
#define BEFORE "{\"SpecialToken\":{\"id\":\"<b>\"}},"
#define AFTER  ",{\"SpecialToken\":{\"id\":\"<e>\"}}"
#define AROUND(before, after) \
	",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[" before \
	"{\"Sequence\":{\"id\":\"A\"}}" after "],\"special_tokens\":{" \
	"\"<b>\":{\"ids\":[30]},\"<e>\":{\"ids\":[31]}}}"
	static const struct {
		const char *post, *file;        /* as the file says it */
	} posts[] = {
		{"", "0"},
		{",\"post_processor\":{\"type\":\"ByteLevel\"}", "0"},
		{AROUND(BEFORE, ""), "30 0"},
		{AROUND(BEFORE, AFTER), "30 0 31"},
	};
	static const struct {
		const char *class, *ids;        /* NULL: the file's */
	} classes[] = {
		{"LlamaTokenizerFast", NULL}, {"GemmaTokenizer", NULL},
		{"CohereTokenizerFast", NULL}, {"PreTrainedTokenizerFast", NULL},
		{"CodeLlamaTokenizer", "30 0"}, {"CodeLlamaTokenizerFast", "30 0"},
		{"GPTNeoXTokenizer", "0"}, {"GPTNeoXTokenizerFast", "0"},
	};
	static const char *const flags[] = {
		"", ",\"add_bos_token\":true,\"add_eos_token\":true",
		",\"add_bos_token\":false,\"add_eos_token\":false",
	};
	char config[512];

	for (size_t p = 0; p < sizeof posts / sizeof posts[0]; p++) {
		char more[512], *json;

		snprintf(more, sizeof more, ",\"added_tokens\":[" TOKEN(29, "<s>", RAW) ","
			 TOKEN(30, "<b>", RAW) "," TOKEN(31, "<e>", RAW) "]%s", posts[p].post);
		json = letters(more);
		for (size_t i = 0; i < 3 * sizeof classes / sizeof classes[0]; i++) {
			const char *want = classes[i / 3].ids;
			struct tokenizer_source source = {
				.form = TOKENIZER_JSON, .file = slice_str(json),
			};
			struct subject j;

			snprintf(config, sizeof config, "{\"tokenizer_class\":\"%s\",\"bos_token\":"
				 "{\"content\":\"<b>\"},\"eos_token\":\"<e>\"%s}",
				 classes[i / 3].class, flags[i % 3]);
			source.config = slice_str(config);
			j = open_source(&source);
			cr_assert_str_eq(ids_of(&j, "a", true), want ? want : posts[p].file, "%s%s",
					 config, posts[p].post);
			gone(&j);
		}
		free(json);
	}
}

Test(tokenizer, code_llama_begins_with_its_own_token_where_the_config_names_none)
{
	static const struct {
		const char *bos, *ids;
	} cases[] = {
		{"", "29 0"}, {",\"bos_token\":\"<b>\"", "30 0"}, {",\"bos_token\":null", "0"},
	};
	char config[256], *json = letters(",\"added_tokens\":[" TOKEN(29, "<s>", RAW) ","
					  TOKEN(30, "<b>", RAW) "]");

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct tokenizer_source source = {
			.form = TOKENIZER_JSON, .file = slice_str(json),
		};
		struct subject j;

		snprintf(config, sizeof config, "{\"tokenizer_class\":\"CodeLlamaTokenizer\"%s}",
			 cases[i].bos);
		source.config = slice_str(config);
		j = open_source(&source);
		cr_assert_str_eq(ids_of(&j, "a", true), cases[i].ids, "%s", config);
		gone(&j);
	}
	free(json);
}

Test(tokenizer, what_is_not_reproduced_is_refused_with_the_reason)
{
	static const struct {
		const char *json, *says;
		int error;
	} cases[] = {
		{"", "tokenizer.json", -EBADMSG},
		{"[]", "expected an object", -EBADMSG},
		{"{}", "no model", -EINVAL},
		{"{\"model\":{\"type\":\"Unigram\",\"vocab\":[]}}", "Unigram", -ENOTSUP},
		{"{\"model\":{\"type\":\"WordPiece\",\"vocab\":{}}}", "WordPiece", -ENOTSUP},
		{"{\"model\":{\"vocab\":{}}}", "only BPE", -ENOTSUP},
		{"{\"model\":{\"type\":\"BPE\",\"vocab\":{}}}", "no merges", -EINVAL},
		{"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1.5},\"merges\":[]}}", "an id",
		 -EINVAL},
		{"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1},\"merges\":[\"a b\"]}}",
		 "merges[0]", -EINVAL},
		{"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1},\"merges\":[\"a a a\"]}}",
		 "one blank", -EINVAL},
		{"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1},\"merges\":[[\"a\"]]}}",
		 "two tokens", -EINVAL},
		{"{\"model\":{\"type\":\"BPE\",\"dropout\":0.1,\"vocab\":{},\"merges\":[]}}",
		 "dropout", -ENOTSUP},
		{"{\"model\":{\"type\":\"BPE\",\"end_of_word_suffix\":\"</w>\",\"vocab\":{},"
		 "\"merges\":[]}}", "end_of_word_suffix", -ENOTSUP},
		{"{\"normalizer\":{\"type\":\"NFKC\"},\"model\":{}}", "NFKC", -ENOTSUP},
		{"{\"normalizer\":{\"type\":\"Precompiled\"},\"model\":{}}", "Precompiled",
		 -ENOTSUP},
		{"{\"pre_tokenizer\":{\"type\":\"Whitespace\"},\"model\":{}}", "Whitespace",
		 -ENOTSUP},
		{"{\"post_processor\":{\"type\":\"BertProcessing\"},\"model\":{}}",
		 "BertProcessing", -ENOTSUP},
		{"{\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"  \"},\"model\":{}}",
		 "not one character", -EINVAL},
		{"{\"model\":{\"type\":\"BPE\",\"vocab\":{},\"merges\":[]},"
		 "\"added_tokens\":[{\"id\":1}]}", "without content", -EINVAL},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct tokenizer_source s = {.form = TOKENIZER_JSON,
					     .file = slice_str(cases[i].json)};
		char why[TOKENIZER_WHY_BYTES] = "";
		void *bytes;
		size_t len;

		cr_assert_eq(tokenizer_compile(&s, &bytes, &len, why, sizeof(why)),
			     cases[i].error, "%s: %s", cases[i].json, why);
		cr_assert(strstr(why, cases[i].says), "%s: %s", cases[i].json, why);
	}
}

Test(tokenizer, a_pattern_that_cannot_be_run_is_refused_and_named)
{
	char *json = letters(",\"pre_tokenizer\":"
			     SPLIT("{\"Regex\":\"ab(\"}", "Isolated", "false"));
	struct tokenizer_source s = {.form = TOKENIZER_JSON, .file = slice_str(json)};
	char why[TOKENIZER_WHY_BYTES];
	void *bytes;
	size_t len;

	cr_assert_eq(tokenizer_compile(&s, &bytes, &len, why, sizeof(why)), -ENOTSUP);
	cr_assert(strstr(why, "the pattern ab(, byte 3: "), "%s", why);
	free(json);
}

/* What an encoding that must fail ends with; why: what is said of it. */
static int
fails_by(struct subject *j, struct slice text, char why[static TOKENIZER_WHY_BYTES])
{
	struct ids ids = {0};
	int r = tokenizer_encode(j->t, j->s, text, false, SIZE_MAX, &ids);

	tokenizer_trouble(j->t, j->s, r, why, TOKENIZER_WHY_BYTES);
	ids_free(&ids);
	return r;
}

Test(tokenizer, a_pattern_that_searches_for_too_long_is_named_with_what_befell_it)
{
	struct subject j = open_letters(",\"pre_tokenizer\":" SPLIT(
		"{\"Regex\":\"(?:a|a)*(?:b|c)\"}", "Isolated", "false"));
	char why[TOKENIZER_WHY_BYTES], text[400];

	memset(text, 'a', sizeof(text));
	cr_assert_eq(fails_by(&j, slice_of(text, sizeof(text)), why), -ETIME);
	cr_assert(strstr(why, "pattern (?:a|a)*(?:b|c) searches it for too long"), "%s", why);
	gone(&j);
}

#define TWICE(one, two) \
	"{\"type\":\"Replace\",\"pattern\":{\"String\":\"" one "\"},\"content\":\"" two "\"}"

/* Six of these make a hundred million characters of one. */
#define DOUBLE(one, two) TWICE(one, two two two two two two two two two two two two two two two)
#define BOMB "{\"type\":\"Sequence\",\"normalizers\":[" DOUBLE("a", "b") "," DOUBLE("b", "c") "," \
	DOUBLE("c", "d") "," DOUBLE("d", "e") "," DOUBLE("e", "f") "," DOUBLE("f", "g") "]}"

Test(tokenizer, normalizers_that_would_fill_memory_are_stopped_and_named)
{
	struct subject j = open_letters(",\"normalizer\":" BOMB);
	char why[TOKENIZER_WHY_BYTES];

	IS(&j, "g", "6");
	cr_assert_eq(fails_by(&j, SLICE_LIT("aaaaaaaa"), why), -EOVERFLOW);
	cr_assert(strstr(why, "normalizers make more than 16 times"), "%s", why);
	gone(&j);
}

Test(tokenizer, an_added_token_that_normalizers_blow_up_is_refused)
{
	char *json = letters(",\"normalizer\":" BOMB ",\"added_tokens\":["
			     TOKEN(29, "aaa", NORMAL) "]");
	struct tokenizer_source s = {.form = TOKENIZER_JSON, .file = slice_str(json)};
	char why[TOKENIZER_WHY_BYTES];
	void *bytes;
	size_t len;

	cr_assert_eq(tokenizer_compile(&s, &bytes, &len, why, sizeof(why)), -E2BIG);
	cr_assert(strstr(why, "the added token \"aaa\""), "%s", why);
	free(json);
}

Test(tokenizer, a_file_that_is_cut_short_after_it_was_read_is_still_whole)
{
	char path[] = "/tmp/pointsman-test-XXXXXX.json", why[TOKENIZER_WHY_BYTES];
	char *json = letters("");
	struct tokenizer_files files;
	int fd = mkstemps(path, 5);
	void *bytes;
	size_t len;

	cr_assert_geq(fd, 0);
	cr_assert_eq(write(fd, json, strlen(json)), (ssize_t)strlen(json));
	cr_assert_eq(tokenizer_files_open(path, false, &files, why, sizeof(why)), 0, "%s", why);
	cr_assert_eq(ftruncate(fd, 0), 0);
	cr_assert_eq(tokenizer_compile(&files.source, &bytes, &len, why, sizeof(why)), 0, "%s",
		     why);
	free(bytes);
	tokenizer_files_close(&files);
	cr_assert_eq(tokenizer_files_open(path, false, &files, why, sizeof(why)), -EINVAL);
	cr_assert(strstr(why, ": empty"), "%s", why);
	close(fd);
	remove(path);
	free(json);
}

Test(tokenizer, ids_stop_at_the_bound_and_text_that_is_none_is_refused)
{
	struct subject j = open_letters("");
	struct ids ids = {0};

	cr_assert_eq(tokenizer_encode(j.t, j.s, SLICE_LIT("abcdef"), false, 3, &ids), 0);
	cr_assert_eq(ids.n, 3);
	cr_assert_eq(tokenizer_encode(j.t, j.s, SLICE_LIT("\xed\xa0\x80"), false, 9, &ids),
		     -EILSEQ);
	cr_assert_eq(ids.n, 3);
	ids_free(&ids);
	gone(&j);
}

Test(tokenizer, damaged_bytes_are_refused_and_those_of_another_version_are_stale)
{
	struct subject j = open_letters(",\"added_tokens\":[" TOKEN(29, "<a>", RAW) "]");
	struct tokenizer_head *head = j.bytes;
	const char *why = NULL;
	struct tokenizer *t;
	uint64_t seed = 5;

	for (unsigned i = 0; i < 300; i++) {
		size_t at = random_next(&seed) % j.len;
		char *p = (char *)j.bytes + at;

		*p ^= 1;
		cr_assert_lt(tokenizer_open(j.bytes, j.len, &t, &why), 0, "byte %zu", at);
		*p ^= 1;
	}
	cr_assert_eq(tokenizer_open(j.bytes, j.len - 64, &t, &why), -EBADMSG);
	cr_assert_eq(tokenizer_open(j.bytes, 0, &t, &why), -EBADMSG);
	head->layout++;
	cr_assert_eq(tokenizer_open(j.bytes, j.len, &t, &why), -ESTALE);
	head->layout--;
	cr_assert_eq(tokenizer_open(j.bytes, j.len, &t, &why), 0);
	tokenizer_close(&t);
	gone(&j);
}

Test(tokenizer, one_scratch_serves_several_tokenizers)
{
	struct subject j[6];

	for (unsigned i = 0; i < 6; i++) {
		char json[300];

		snprintf(json, sizeof(json), "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":%u,"
			 "\"b\":%u,\"c\":%u,\"ab\":%u},\"merges\":[\"a b\"]}}", 10 * i, 10 * i + 1,
			 10 * i + 2, 10 * i + 3);
		j[i] = open_json(json);
	}
	for (unsigned turn = 0; turn < 3; turn++)
		for (unsigned i = 0; i < 6; i++) {
			struct ids ids = {0};

			cr_assert_eq(tokenizer_encode(j[i].t, j[0].s, SLICE_LIT("abc"), false,
						      SIZE_MAX, &ids), 0);
			cr_assert(ids.n == 2 && ids.id[0] == 10 * i + 3 && ids.id[1] == 10 * i + 2);
			ids_free(&ids);
		}
	for (unsigned i = 0; i < 6; i++)
		gone(&j[i]);
}
