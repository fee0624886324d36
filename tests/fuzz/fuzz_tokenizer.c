/* fuzz_tokenizer.c -- a tokenizer from a stranger: its files, and its compiled bytes.
 *
 *      byte 0      0 tokenizer.json, 1 tekken.json, 2 ranks; 3: damage to a compiled one
 *      byte 1      length of the text to encode, at the end of the input
 *
 * What compiles opens, and its ids are the same whole and by cuts.  Damage is (place, value) pairs
 * of three bytes, under a checksum that is right again: it may be refused or give any ids, no
 * more. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "actors/common/prompt/tokenizer.h"
#include "actors/common/prompt/tokenizer_compile.h"
#include "actors/common/prompt/tokenizer_layout.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char small[] =
	"{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{\"type\":"
	"\"Replace\",\"pattern\":{\"String\":\"x\"},\"content\":\"yy\"}]},"
	"\"pre_tokenizer\":{\"type\":"
	"\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\",\"individual_digits"
	"\":true},{\"type\":"
	"\"ByteLevel\",\"add_prefix_space\":true}]},\"added_tokens\":[{\"content\":"
	"\"<a>\",\"normalized\":"
	"false,\"rstrip\":true},{\"content\":\"yy\",\"normalized\":true,\"single_word\":true}],"
	"\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"abab\":3,\"\\u0120\":4,"
	"\"\\u0120ab\":5,\"abababababab\":6,\"1\":7},"
	"\"merges\":[\"a b\",\"ab ab\",\"\\u0120 ab\"]}}";

static void
require(bool truth, const char *what)
{
	if (!truth) {
		fprintf(stderr, "fuzz_tokenizer: %s\n", what);
		abort();
	}
}

static void
encode(const struct tokenizer *t, struct slice text, bool sound)
{
	struct tokenizer_scratch *s = NULL;
	struct ids whole = {0}, parts = {0};
	struct tokenizer_cut cut;
	size_t off = 0;

	require(tokenizer_scratch_new(&s) == 0, "no memory");
	int r = tokenizer_encode(t, s, text, false, 4096, &whole);

	for (int p = 0; r == 0 && p == 0 && tokenizer_cut(t, text, &off, &cut); )
		p = tokenizer_encode_cut(t, s, &cut, 4096, &parts);
	if (r == 0 && sound && whole.n < 4096)
		require(whole.n == parts.n &&
			(whole.n == 0 || memcmp(whole.id, parts.id, 4 * whole.n) == 0),
			"cuts give other ids");
	ids_free(&whole);
	ids_free(&parts);
	tokenizer_scratch_free(&s);
}

static void *
compile(enum tokenizer_form form, struct slice file, size_t *ret_len)
{
	struct tokenizer_source source = {.form = form, .file = file};
	char why[TOKENIZER_WHY_BYTES] = "";
	void *bytes = NULL;

	if (form == TOKENIZER_RANKS)
		source.pattern = SLICE_LIT("a+|[^a]");
	if (tokenizer_compile(&source, &bytes, ret_len, why, sizeof(why)) < 0) {
		require(why[0], "refused without why");
		return NULL;
	}
	return bytes;
}

static void
damage(char *bytes, size_t len, const uint8_t *p, size_t n)
{
	const size_t behind = offsetof(struct tokenizer_head, checksum) + sizeof(uint64_t);
	struct tokenizer_head *head = (struct tokenizer_head *)(void *)bytes;

	/* Half of it in the head, where it is read first. */
	for (; n >= 3; p += 3, n -= 3) {
		size_t at = (size_t)(p[0] << 8 | p[1]);

		bytes[behind + (at & 1 ? at >> 1 : at * 7) % (len - behind)] ^= (char)p[2];
	}
	head->checksum = XXH3_64bits(bytes + behind, len - behind);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct tokenizer *t;
	const char *why = NULL;
	size_t len = 0, text_len;
	void *bytes;

	if (size < 2)
		return 0;
	text_len = data[1] < size - 2 ? data[1] : size - 2;
	/* A copy of its own, so that a look past it is seen. */
	char *text = malloc(text_len ? text_len : 1);
	size_t n = size - 2 - text_len;
	char *file = malloc(n ? n : 1);
	unsigned form = data[0] & 3;

	memcpy(text, data + size - text_len, text_len);
	memcpy(file, data + 2, n);
	bytes = form < 3 ? compile((enum tokenizer_form)form, slice_of(file, n), &len)
			 : compile(TOKENIZER_JSON, SLICE_LIT(small), &len);
	if (bytes && form == 3)
		damage(bytes, len, (const uint8_t *)file, n);
	if (bytes && tokenizer_open(bytes, len, &t, &why) == 0) {
		encode(t, slice_of(text, text_len), form < 3);
		tokenizer_close(&t);
	}
	free(bytes);
	free(file);
	free(text);
	return 0;
}
