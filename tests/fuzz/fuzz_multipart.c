/* fuzz_multipart.c -- a form from a stranger: its first line is the Content-Type, the rest the
 * body.  What is accepted has its model where the view says, is refused when cut short, and reads
 * the same with another name in that place. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/multipart.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
require(bool truth, const char *what)
{
	if (truth)
		return;
	fprintf(stderr, "fuzz_multipart: %s\n", what);
	abort();
}

/* In memory of exactly that length. */
static int
parse(const char *a, size_t n, const char *b, size_t m, const char *c, size_t k,
      struct slice boundary, struct multipart_view *ret)
{
	char *body = malloc(n + m + k ? n + m + k : 1);
	const char *why = NULL;
	int r;

	memcpy(body, a, n);
	memcpy(body + n, b, m);
	memcpy(body + n + m, c, k);
	r = multipart_parse(body, n + m + k, boundary, ret, &why);
	require(r == 0 || (r == -400 && why && ret->error_off_bytes <= n + m + k),
		"refused without saying why and where");
	free(body);
	return r;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char name[] = "another-model";
	const char *type = (const char *)data, *body;
	const char *end = size ? memchr(data, '\n', size) : NULL;
	struct multipart_view v, w;
	struct slice boundary;
	const char *why = NULL;
	size_t len;

	if (!end)
		return 0;
	body = end + 1;
	len = size - (size_t)(body - type);
	int r = multipart_boundary((struct slice){type, (size_t)(end - type)}, &boundary, &why);

	require(r == 0 || r == -415 || (r == -400 && why), "a Content-Type refused without a why");
	if (r < 0)
		return 0;
	require(boundary.len >= 1 && boundary.len <= MULTIPART_BOUNDARY_MAX,
		"the boundary's length");
	if (parse(body, len, "", 0, "", 0, boundary, &v) < 0)
		return 0;
	require(v.n_parts >= 1 && v.n_parts <= MULTIPART_PARTS_MAX, "the number of parts");
	for (size_t cut = len - 3; cut > 0 && cut + 40 > len; cut--)
		require(parse(body, cut, "", 0, "", 0, boundary, &w) < 0,
			"a cut form was accepted");
	if (!v.has_model)
		return 0;
	size_t off = v.model_off_bytes, n = v.model_len_bytes;

	require(off + n <= len && strlen(v.model) == n && memcmp(body + off, v.model, n) == 0,
		"the model is not where it is said to be");
	require(parse(body, off, name, sizeof(name) - 1, body + off + n, len - off - n, boundary,
		      &w) == 0, "a new name makes it another form");
	require(strcmp(w.model, name) == 0 && w.n_parts == v.n_parts && w.stream == v.stream,
		"a new name changes something else");
	return 0;
}
