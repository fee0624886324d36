/* tests/fuzz/fuzz_jinja_json.c -- JSON read into values and written again, beside jansson.
 *
 * What jansson reads we read, and what we write of it jansson reads as the same.  What we read and
 * jansson does not is one of what Python takes beyond it (lone surrogates, NaN, 1e999 …).  What we
 * wrote we read again, and write as before.
 */
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>

#include "actors/common/prompt/value.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Integers beyond 64 bits are reals to jansson, and text to us. */
#define FLAGS (JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL)

static void
write_again(struct bump *bump, const struct text *first)
{
	static struct text second;
	struct value v;
	const char *why;

	if (!second.max)
		text_init(&second, 8u << 20);
	text_clear(&second);
	if (value_from_json(bump, text_slice(first), &v, &why, NULL) < 0 ||
	    value_to_json(v, NULL, &second, &why) < 0 ||
	    !slice_eq(text_slice(first), text_slice(&second)))
		abort();
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct bump bump;
	static struct text out;
	struct slice doc = slice_of((const char *)data, size);
	json_t *theirs, *back;
	json_error_t e;
	struct value v;
	const char *why;
	int r;

	if (!bump.max) {
		bump_init(&bump, 8u << 20);
		text_init(&out, 8u << 20);
	}
	bump_reset(&bump);
	text_clear(&out);
	r = value_from_json(&bump, doc, &v, &why, NULL);
	theirs = json_loadb(doc.p, doc.len, FLAGS, &e);
	/* jansson takes a NUL behind the document for its end */
	if (theirs && r < 0 && r != -EMSGSIZE && r != -ENOMEM && !memchr(data, 0, size))
		abort();
	if (r == 0 && value_to_json(v, NULL, &out, &why) == 0) {
		if (value_text_whole(text_slice(&out)))
			write_again(&bump, &out);
		back = json_loadb(out.p, out.len, FLAGS, &e);
		if (theirs && (!back || !json_equal(theirs, back)))
			abort();
		json_decref(back);
	}
	json_decref(theirs);
	return 0;
}
