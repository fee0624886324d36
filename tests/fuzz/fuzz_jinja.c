/* tests/fuzz/fuzz_jinja.c -- any template over any context: compiler and renderer keep within their
 * bounds.  Input: the template, a NUL, the context as JSON. */
#include <stdint.h>
#include <stdlib.h>

#include "actors/common/prompt/jinja.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct bump bump;
	static struct text out;
	const char *text = (const char *)data;
	const char *end = size ? memchr(text, 0, size) : NULL;
	size_t len = end ? (size_t)(end - text) : size;
	struct jinja_options options = {.max_steps = 3000, .now_s = 1796027400};
	struct jinja_error err;
	struct jinja *jinja;
	struct value context = value_none();
	const char *why;
	int r;

	if (!bump.max) {
		bump_init(&bump, 1u << 20);
		text_init(&out, 64u << 10);
	}
	bump_reset(&bump);
	text_clear(&out);
	if (end)
		(void)value_from_json(&bump, slice_of(end + 1, size - len - 1), &context, &why,
				      NULL);
	r = jinja_compile(slice_of(text, len), &jinja, &err);
	if (r < 0) {
		if (err.text[0] == 0)
			abort();        /* an error always says why */
		return 0;
	}
	(void)jinja_mentions(jinja, SLICE_LIT("messages"));
	(void)jinja_loops_over_content(jinja);
	r = jinja_render(jinja, &context, &options, &bump, &out, &err);
	if (out.len > out.max || (r < 0 && err.text[0] == 0))
		abort();
	jinja_free(&jinja);
	return 0;
}
