/* tests/unit/test_model.c -- a model's folder becomes a blob, and the blob a model. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "actors/common/prompt/request.h"
#include "actors/common/prompt/tokenizer.h"
#include "tests/random.h"
#include "tests/unit/model_world.h"

#define HI "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}"
#define HI_TOOLS "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"tools\":" \
		 "[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]}"

/* What a chat request becomes under that model; clock: as prompt_maker_clock. */
static void
renders(const struct model *m, const char *body, int64_t clock, const char *expected)
{
	struct prompt_maker *p;
	struct prompt_made made;

	cr_assert_eq(prompt_maker_new(&p), 0);
	prompt_maker_clock(p, clock);
	prompt_text(p, m, OPENAI_CHAT, slice_str(body), &made);
	cr_assert(made.text.p, "%s", made.why);
	cr_assert(slice_eq_str(made.text, expected), "%.*s", (int)made.text.len, made.text.p);
	prompt_maker_free(&p);
}

static void
write_text(const char *dir, const char *name, const char *text)
{
	world_write(dir, name, text, strlen(text));
}

/* Why the folder is refused, which it must be with that errno. */
static void
refused(const char *dir, const struct model_options *options, int errnum, const char *part)
{
	char why[MODEL_WHY_BYTES];
	void *bytes;
	size_t len;
	int r = model_build(dir, options, &bytes, &len, why, sizeof why);

	cr_assert_eq(r, -errnum, "%d: %s", r, why);
	cr_assert(strstr(why, part), "%s", why);
}

static void
has_one_token(const struct tokenizer *t, struct slice text)
{
	struct tokenizer_scratch *scratch;
	struct ids ids = {0};

	cr_assert_eq(tokenizer_scratch_new(&scratch), 0);
	cr_assert_eq(tokenizer_encode(t, scratch, text, false, SIZE_MAX, &ids), 0);
	cr_assert_eq(ids.n, 1);
	ids_free(&ids);
	tokenizer_scratch_free(&scratch);
}

Test(model, the_demos_folder_is_a_model_with_tokenizer_and_template)
{
	struct model *m = world_open(DEMO, NULL);

	cr_assert_not_null(model_tokenizer(m));
	cr_assert_null(model_foreign(m));
	cr_assert_str_eq(model_time_zone(m), "UTC");
	has_one_token(model_tokenizer(m), SLICE_LIT("<|im_start|>"));
	model_close(&m);
	cr_assert_null(m);
}

Test(model, equal_folders_are_equal_models_and_an_option_makes_another)
{
	struct model_options zone = {.time_zone = "Europe/Berlin"};
	struct model *a = world_open(DEMO, NULL), *b = world_open(DEMO, NULL);
	struct model *c = world_open(DEMO, &zone);
	size_t n;

	cr_assert_eq(memcmp(model_identity(a, &n), model_identity(b, &n), 16), 0);
	cr_assert_neq(memcmp(model_identity(a, &n), model_identity(c, &n), 16), 0);
	cr_assert_eq(n, 16);
	model_close(&a);
	model_close(&b);
	model_close(&c);
}

Test(model, a_template_file_goes_before_the_one_in_the_configuration)
{
	char dir[64];
	struct model *m;

	world_folder(dir);
	write_text(dir, "tokenizer_config.json", "{\"chat_template\": \"config\"}");
	m = world_open(dir, NULL);
	renders(m, HI, 0, "config");
	model_close(&m);
	write_text(dir, "chat_template.jinja", "file");
	m = world_open(dir, NULL);
	renders(m, HI, 0, "file");
	renders(m, HI_TOOLS, 0, "file");
	model_close(&m);
	world_remove(dir);
}

Test(model, requests_with_tools_take_the_template_named_for_them)
{
	char dir[64], command[200];
	struct model *m;

	world_folder(dir);
	write_text(dir, "tokenizer_config.json",
		   "{\"chat_template\": [{\"name\": \"rag\", \"template\": \"{% broken\"}, "
		   "{\"name\": \"tool_use\", \"template\": \"tools\"}, "
		   "{\"name\": \"default\", \"template\": \"plain\"}]}");
	m = world_open(dir, NULL);
	renders(m, HI, 0, "plain");
	renders(m, HI_TOOLS, 0, "tools");
	model_close(&m);
	snprintf(command, sizeof command, "mkdir %s/additional_chat_templates", dir);
	cr_assert_eq(system(command), 0);
	write_text(dir, "chat_template.jinja", "file");
	write_text(dir, "additional_chat_templates/tool_use.jinja", "file for tools");
	m = world_open(dir, NULL);
	renders(m, HI, 0, "file");
	renders(m, HI_TOOLS, 0, "file for tools");
	model_close(&m);
	world_remove(dir);
}

Test(model, a_processors_template_is_taken_without_tools_and_a_given_one_always)
{
	char dir[64], given[80];
	struct model_options options = {.template_file = given};
	struct model *m;

	world_folder(dir);
	write_text(dir, "tokenizer_config.json", "{\"chat_template\": \"tokenizer\"}");
	write_text(dir, "preprocessor_config.json", "{}");
	write_text(dir, "chat_template.json", "{\"chat_template\": \"processor\"}");
	m = world_open(dir, NULL);
	renders(m, HI, 0, "processor");
	renders(m, HI_TOOLS, 0, "tokenizer");
	model_close(&m);
	write_text(dir, "given", "given");
	snprintf(given, sizeof given, "%s/given", dir);
	m = world_open(dir, &options);
	renders(m, HI, 0, "given");
	renders(m, HI_TOOLS, 0, "given");
	model_close(&m);
	world_remove(dir);
}

Test(model, special_tokens_are_texts_whatever_their_form_and_unset_ones_are_undefined)
{
	char dir[64];
	struct model *m;

	world_folder(dir);
	write_text(dir, "tokenizer_config.json",
		   "{\"bos_token\": {\"__type\": \"AddedToken\", \"content\": \"<b>\"}, "
		   "\"eos_token\": \"<e>\", \"unk_token\": null, \"chat_template\": "
		   "\"{{ bos_token }} {{ eos_token }} {{ pad_token }} {{ unk_token is defined }} "
		   "{{ sep_token is defined }}\"}");
	write_text(dir, "special_tokens_map.json", "{\"pad_token\": {\"content\": \"<p>\"}, "
		   "\"unk_token\": \"<u>\"}");
	m = world_open(dir, NULL);
	renders(m, HI, 0, "<b> <e> <p> False False");
	model_close(&m);
	world_remove(dir);
}

Test(model, local_time_is_that_of_the_workers_zone_summer_and_winter)
{
	static const char template[] = "{{ strftime_now('%Y-%m-%d %H:%M') }}";
	char dir[64];
	struct model_options options = {.time_zone = "Europe/Berlin"};
	struct model *m;

	world_folder(dir);
	write_text(dir, "chat_template.jinja", template);
	m = world_open(dir, &options);
	renders(m, HI, 1796077800, "2026-11-30 23:30");     /* 22:30 UTC */
	renders(m, HI, 1783636200, "2026-07-10 00:30");    /* 22:30 UTC, the day before */
	model_close(&m);
	options.time_zone = "Asia/Kolkata";
	m = world_open(dir, &options);
	renders(m, HI, 1796077800, "2026-12-01 04:00");
	model_close(&m);
	m = world_open(dir, NULL);
	renders(m, HI, 1796077800, "2026-11-30 22:30");
	model_close(&m);
	options.time_zone = "Europe/Nowhere";
	refused(dir, &options, EINVAL, "Europe/Nowhere");
	options.time_zone = "../../../etc/passwd";
	refused(dir, &options, EINVAL, "time zone");
	world_remove(dir);
}

static void
foreign_by(const char *file, const char *text, const char *part)
{
	struct model_options off = {.own_encoder_off = true};
	char dir[64];
	struct model *m;

	world_folder(dir);
	write_text(dir, "chat_template.jinja", "x");
	write_text(dir, file, text);
	m = world_open(dir, NULL);
	if (part)
		cr_assert(model_foreign(m) && strstr(model_foreign(m), part), "%s", file);
	else
		cr_assert_null(model_foreign(m));
	model_close(&m);
	m = world_open(dir, &off);
	cr_assert_null(model_foreign(m));
	model_close(&m);
	world_remove(dir);
}

Test(model, engines_with_encoders_of_their_own_are_named)
{
	foreign_by("config.json", "{\"model_type\": \"gpt_oss\"}", "harmony");
	foreign_by("config.json", "{\"architectures\": [\"DeepseekV32ForCausalLM\"]}", "V3.2");
	foreign_by("config.json", "{\"architectures\": [\"KimiK3ForConditionalGeneration\"]}",
		   "Kimi-K3");
	foreign_by("tekken.json", "{}", "mistral_common");
	foreign_by("config.json", "{\"architectures\": [\"Qwen3ForCausalLM\"], \"model_type\": "
		   "\"qwen3\"}", NULL);
}

Test(model, the_models_length_is_the_options_or_what_its_files_say)
{
	struct model_options given = {.max_model_len = 1000};
	char dir[64];
	struct model *m;

	world_folder(dir);
	write_text(dir, "chat_template.jinja", "x");
	write_text(dir, "config.json", "{\"max_position_embeddings\": 40960}");
	m = world_open(dir, NULL);
	cr_assert_eq(model_max_len(m), 40960);
	model_close(&m);
	m = world_open(dir, &given);
	cr_assert_eq(model_max_len(m), 1000);
	model_close(&m);
	write_text(dir, "tokenizer_config.json", "{\"model_max_length\": 2048}");
	m = world_open(dir, NULL);
	cr_assert_eq(model_max_len(m), 2048);
	model_close(&m);
	write_text(dir, "config.json", "{\"max_position_embeddings\": 40960, \"rope_scaling\": "
		   "{\"factor\": 4}}");
	m = world_open(dir, NULL);
	cr_assert_eq(model_max_len(m), 0);
	model_close(&m);
	world_remove(dir);
}

Test(model, what_is_wrong_with_a_folder_is_said_with_the_files_name)
{
	struct model_options kwargs = {.default_kwargs = "[1]"};
	struct model_options gone = {.template_file = "/nonexistent/t.jinja"};
	char dir[64], path[100];

	world_folder(dir);
	write_text(dir, "chat_template.jinja", "line one\n{% if %}");
	refused(dir, NULL, EINVAL, "line 2");
	write_text(dir, "chat_template.jinja", "fine");
	write_text(dir, "config.json", "{\"a\": }");
	refused(dir, NULL, EINVAL, "config.json: byte 6");
	write_text(dir, "config.json", "[]");
	refused(dir, NULL, EINVAL, "config.json: no JSON object");
	write_text(dir, "config.json", "{}");
	refused(dir, &kwargs, EINVAL, "default chat template arguments");
	refused(dir, &gone, ENOENT, "/nonexistent/t.jinja");
	snprintf(path, sizeof path, "%s/tokenizer.json", dir);
	cr_assert_eq(unlink(path), 0);
	refused(dir, NULL, ENOENT, dir);
	world_remove(dir);
	refused("/nonexistent", NULL, ENOENT, "/nonexistent");
}

Test(model, a_pipe_in_a_folder_is_refused_and_not_waited_for, .timeout = 30)
{
	static const char *const names[] = {"chat_template.jinja", "tokenizer.json"};
	char dir[64], path[100];

	for (unsigned i = 0; i < 2; i++) {
		world_folder(dir);
		snprintf(path, sizeof path, "%s/%s", dir, names[i]);
		unlink(path);
		cr_assert_eq(mkfifo(path, 0600), 0);
		refused(dir, NULL, i ? EINVAL : EIO, names[i]);
		world_remove(dir);
	}
}

/* Opening never reads outside, whatever the bytes (the sanitizers watch). */
static int
open_bytes(const void *bytes, size_t len)
{
	char why[MODEL_WHY_BYTES];
	struct model *m = NULL;
	void *copy = aligned_alloc(64, (len + 63) / 64 * 64 + 64);
	int r;

	memcpy(copy, bytes, len);
	r = model_open(copy, len, &m, why, sizeof why);
	if (r == 0)
		model_close(&m);
	free(copy);
	return r;
}

Test(model, a_blob_that_was_cut_or_changed_is_refused)
{
	uint64_t seed = 7;
	char why[MODEL_WHY_BYTES];
	uint8_t *bytes;
	size_t len;

	cr_assert_eq(model_build(DEMO, NULL, (void **)&bytes, &len, why, sizeof why), 0, "%s", why);
	cr_assert_eq(open_bytes(bytes, len), 0);
	for (size_t cut = 0; cut < 200; cut++)
		cr_assert_lt(open_bytes(bytes, cut), 0);
	for (unsigned i = 0; i < 20; i++)
		cr_assert_lt(open_bytes(bytes, random_next(&seed) % len), 0);
	for (unsigned i = 0; i < 300; i++) {
		size_t at = i < 128 ? i : random_next(&seed) % (len - 1024) + 512;
		uint8_t was = bytes[at];

		bytes[at] ^= (uint8_t)(1 + random_next(&seed) % 255);
		open_bytes(bytes, len);         /* the spare may pass: nothing depends on it */
		bytes[at] = was;
	}
	bytes[4]++;
	cr_assert_eq(open_bytes(bytes, len), -ESTALE);
	free(bytes);
}

Test(model, a_template_alone_renders_without_a_tokenizer)
{
	struct model_options options = {
		.template_file = PM_SOURCE_DIR
				 "/tests/conformance/requests/templates/chatml.jinja"};
	struct model *m = world_open(NULL, &options);
	struct prompt_maker *p;
	struct prompt_made made;

	cr_assert_null(model_tokenizer(m));
	renders(m, HI, 0, "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
	cr_assert_eq(prompt_maker_new(&p), 0);
	cr_assert_eq(prompt_make(p, m, NULL, OPENAI_CHAT, slice_str(HI), 0, &made), 0);
	cr_assert_eq(made.end, PROMPT_UNKNOWN);
	prompt_maker_free(&p);
	model_close(&m);
}
