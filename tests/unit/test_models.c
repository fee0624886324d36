/* actors/common/models: models as segments, and when a folder is still the one it was. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "actors/common/models.h"

#define KEY "00112233445566778899aabbccddeeff0123456789abcdef0123456789abcdef"

static void
write_file(const char *folder, const char *name, const char *text)
{
	char path[256];
	FILE *f;

	snprintf(path, sizeof path, "%s/%s", folder, name);
	f = fopen(path, "w");
	cr_assert(f && fputs(text, f) >= 0);
	fclose(f);
}

static void
remove_file(const char *folder, const char *name)
{
	char path[256];

	snprintf(path, sizeof path, "%s/%s", folder, name);
	cr_assert_eq(remove(path), 0);
}

Test(models, a_blob_is_mapped_as_it_was_frozen_and_nobody_can_write_to_it)
{
	struct models_blob blob;
	int fd = -1;

	cr_assert_eq(models_freeze(&fd, KEY, "tokens", 6), 0);
	cr_assert(segment_is_frozen(fd));
	cr_assert_lt(write(fd, "x", 1), 0);
	cr_assert_lt(ftruncate(fd, 0), 0);
	cr_assert_eq(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
	cr_assert_eq(models_attach(&blob, fd), 0);
	cr_assert_eq(blob.len, 6);
	cr_assert_eq(memcmp(blob.bytes, "tokens", 6), 0);
	cr_assert_eq((uintptr_t)blob.bytes % 64, 0);
	cr_assert_eq(blob.key[0], 0x0011223344556677u);
	cr_assert_eq(blob.key[1], 0x8899aabbccddeeffu);
	models_detach(&blob);
}

Test(models, a_reason_comes_in_the_place_of_a_blob)
{
	struct models_blob blob;
	int fd = -1;

	cr_assert_eq(models_freeze_reason(&fd, "tokenizer.json: no such file"), 0);
	cr_assert_eq(models_attach(&blob, fd), 0);
	cr_assert_null(blob.bytes);
	cr_assert_str_eq(blob.why, "tokenizer.json: no such file");
	models_detach(&blob);
}

Test(models, what_can_still_be_written_is_refused)
{
	const uint64_t geometry[4] = {4096 - SEGMENT_BODY};
	struct models_blob blob;
	struct segment seg;

	cr_assert_eq(segment_create(&seg, SEGMENT_MODEL, MODELS_LAYOUT, 4096, geometry), 0);
	segment_publish(&seg);
	cr_assert_eq(models_attach(&blob, dup(seg.fd)), -EBADMSG);
	segment_detach(&seg);
}

static struct models_stamp
stamp_of(const struct manifest_tokenizer *t, struct models_stamp before, bool same)
{
	struct models_stamp is = models_stamp(t);

	cr_expect_eq(is.lo == before.lo && is.hi == before.hi, same);
	return is;
}

Test(models, a_stamp_changes_with_each_file_and_option_that_decides_tokens)
{
	char dir[] = "/tmp/models-XXXXXX", more[64];
	struct manifest_tokenizer t = {.max_model_len = 0};
	struct models_stamp s = {0};

	cr_assert(mkdtemp(dir));
	snprintf(more, sizeof more, "%s/additional_chat_templates", dir);
	snprintf(t.path, sizeof t.path, "%s", dir);
	write_file(dir, "tokenizer.json", "{}");
	s = stamp_of(&t, s, false);
	s = stamp_of(&t, s, true);
	write_file(dir, "tokenizer.json", "{ }");
	s = stamp_of(&t, s, false);
	cr_assert_eq(mkdir(more, 0755), 0);
	s = stamp_of(&t, s, false);
	write_file(more, "rag.jinja", "x");
	s = stamp_of(&t, s, false);
	t.max_model_len = 4096;
	s = stamp_of(&t, s, false);
	t.kwargs = (char[]){"{}"};
	s = stamp_of(&t, s, false);
	snprintf(t.chat_template, sizeof t.chat_template, "%s/none", dir);
	stamp_of(&t, s, false);
	remove_file(more, "rag.jinja");
	remove_file(dir, "additional_chat_templates");
	remove_file(dir, "tokenizer.json");
	rmdir(dir);
}

Test(models, weights_are_not_looked_at)
{
	static const char *const names[] = {"model-00001.safetensors", "README.md", "a.jinja",
					    "model.safetensors.index.json", "tokenizer.model",
					    ".hidden.json", "config.json"};
	char dir[] = "/tmp/models-XXXXXX";
	struct models_file file[8];
	struct manifest_tokenizer t = {.max_model_len = 0};

	cr_assert(mkdtemp(dir));
	snprintf(t.path, sizeof t.path, "%s", dir);
	for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++)
		write_file(dir, names[i], "");
	cr_assert_eq(models_files(&t, file, 8), 3);
	cr_assert_str_eq(file[0].name, "a.jinja");
	cr_assert_str_eq(file[1].name, "config.json");
	cr_assert_str_eq(file[2].name, "tokenizer.model");
	cr_assert_eq(models_files(&t, file, 2), 2, "no more than there is room for");
	for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++)
		remove_file(dir, names[i]);
	rmdir(dir);
}
