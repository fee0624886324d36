/* Forms: the model is found where one reader only can find it, and nothing else is touched. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/multipart.h"

#define B "--X-b"
#define FIELD(name, value)                                                                         \
	B "\r\nContent-Disposition: form-data; name=\"" name "\"\r\n\r\n" value "\r\n"
#define SOUND                                                                                      \
	B "\r\nContent-Disposition: form-data; name=\"file\"; "                                 \
	"filename=\"a\\\\b;\\\" name=x.wav\"\r\n"                                              \
	"Content-Type: audio/wav\r\n\r\nRIFF\r\n--X-\r\r\n--\r\n--X-\0binary\r\n"
#define END B "--\r\n"

static struct multipart_view view;
static const char *why;

static int
parse(const char *body, size_t len)
{
	char *exact = malloc(len ? len : 1);    /* so that a byte too many is seen */
	int r;

	memcpy(exact, body, len);
	why = NULL;
	r = multipart_parse(exact, len, SLICE_LIT("X-b"), &view, &why);
	free(exact);
	cr_assert(r == 0 || (r == -400 && why && view.error_off_bytes <= len));
	return r;
}

#define PARSE(literal) parse(literal, sizeof(literal) - 1)

Test(multipart, the_model_is_found_wherever_it_stands)
{
	static const char first[] = FIELD("model", "w-1") SOUND END;
	static const char last[] = SOUND FIELD("language", "model") FIELD("model", "w-1") END;

	cr_assert_eq(PARSE(first), 0, "%s", why);
	cr_assert(view.has_model && view.n_parts == 2 && !view.stream);
	cr_assert_str_eq(view.model, "w-1");
	cr_assert_eq(memcmp(first + view.model_off_bytes, "w-1", view.model_len_bytes), 0);
	cr_assert_eq(PARSE(last), 0, "%s", why);
	cr_assert_str_eq(view.model, "w-1");
	cr_assert_eq(view.model_off_bytes,
		     (size_t)(strstr(last + sizeof(SOUND) - 1, "w-1") - last));
	cr_assert_eq(PARSE(SOUND END), 0);
	cr_assert(!view.has_model && view.n_parts == 1);
	cr_assert_eq(PARSE(FIELD("model", "") END), 0, "%s", why);
	cr_assert(view.has_model && view.model_len_bytes == 0);
	cr_assert_eq(PARSE(FIELD("stream", "True") FIELD("model", "m") B "--"), 0);
	cr_assert(view.stream);
}

Test(multipart, every_truncation_is_refused)
{
	static const char whole[] = FIELD("model", "w-1") SOUND FIELD("stream", "true") END;
	size_t len = sizeof(whole) - 1;

	cr_assert_eq(parse(whole, len), 0);
	for (size_t n = 0; n < len; n++)        /* the last CRLF is no part of it */
		cr_assert_eq(parse(whole, n), n == len - 2 ? 0 : -400, "%zu", n);
}

Test(multipart, rq08_what_is_given_twice_is_refused)
{
	cr_assert_eq(PARSE(FIELD("model", "a") FIELD("model", "b") END), -400);
	cr_assert_str_eq(why, "model is given twice");
	cr_assert_eq(PARSE(FIELD("stream", "a") FIELD("stream", "a") END), -400);
	cr_assert_eq(PARSE(FIELD("prompt", "a") FIELD("prompt", "a") END), -400);
	cr_assert_eq(PARSE(FIELD("user", "a") FIELD("user", "a") END), -400);
	cr_assert_eq(PARSE(FIELD("include[]", "a") FIELD("include[]", "b") END), 0);
	cr_assert_eq(PARSE(FIELD("Model", "a") FIELD("model", "b") END), 0);
	cr_assert_str_eq(view.model, "b");
}

Test(multipart, what_two_readers_could_read_in_two_ways_is_refused)
{
#define CD B "\r\nContent-Disposition: form-data; "
#define V "\r\n\r\nv\r\n" END
	static const char *const bodies[] = {
		"", "x", B, B "--", END, "\r\n" FIELD("model", "a") END,
		"preamble\r\n" FIELD("model", "a") END,
		FIELD("model", "a") END "epilogue", FIELD("model", "a") END "\r\n",
		FIELD("model", "a") B " \r\n" FIELD("x", "y") END,
		FIELD("model", "a") B "--x", FIELD("model", "a\r\n" B "y") END,
		FIELD("model", "a") B "\nContent-Disposition: form-data; name=\"x\"\n\nv\n" END,
		B "\r\n\r\nno head\r\n" END,
		CD "filename=\"model\"" V, CD "name=\"\"" V, CD "name=" V, CD "name" V,
		CD "name=\"mo\\del\"" V, CD "name=\"%6dodel\"" V, CD "name*=utf-8''model" V,
		CD "name=\"x\"; name=\"model\"" V, CD "name=\"x" V, CD "name=\"x\" y=\"z\"" V,
		CD "name=\"model\"; filename=\"f\"" V,
		CD "name=\"model\"\r\nContent-Transfer-Encoding: base64" V,
		CD "name=\"model\"\r\nContent-Type: multipart/mixed; boundary=z" V,
		CD "name=\"x\"\r\nContent-Disposition: form-data; name=\"model\"" V,
		B "\r\nContent-Disposition: attachment; name=\"model\"" V,
		B "\r\nContent-Disposition : form-data; name=\"model\"" V,
		B "\r\n Content-Disposition: form-data; name=\"model\"" V,
		CD "\r\n name=\"model\"" V, CD "name=\"model\"\r\n\tx" V,
		CD "name=\"mo\x01" "del\"" V, CD "name=\"x\"\nX: y" V,
		CD "name=\"x\"\r\n\r\n" END, CD "name=\"x\"\r\n\r\n" B "\r\n" V,
		FIELD("model", "a\nb") END, FIELD("model", "a\r") END,
	};

	for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++)
		cr_assert_eq(parse(bodies[i], strlen(bodies[i])), -400, "%zu: %s", i, bodies[i]);
	cr_assert_eq(PARSE(CD "name=model" V), 0, "%s", why);
	cr_assert(view.has_model);
	cr_assert_eq(PARSE(B "\r\ncontent-disposition:FORM-DATA;NAME=\"model\"" V), 0, "%s", why);
	cr_assert(view.has_model);
}

Test(multipart, bounds_are_told)
{
	size_t cap = 200000, n = 0;
	char *body = malloc(cap);

	for (unsigned i = 0; i < MULTIPART_PARTS_MAX; i++)
		n += (size_t)sprintf(body + n, "%s", FIELD("x", "y"));
	sprintf(body + n, "%s", END);
	cr_assert_eq(parse(body, n + sizeof(END) - 1), 0);
	sprintf(body + n, "%s", FIELD("x", "y") END);
	cr_assert_eq(parse(body, n + sizeof(FIELD("x", "y") END) - 1), -400);
	n = (size_t)sprintf(body, B "\r\nContent-Disposition: form-data; name=\"x\"\r\nX: ");
	memset(body + n, 'y', MULTIPART_HEAD_MAX);
	n += MULTIPART_HEAD_MAX;
	n += (size_t)sprintf(body + n, "\r\n\r\nv\r\n%s", END);
	cr_assert_eq(parse(body, n), -400);
	cr_assert_str_eq(why, "a part's head is too long");
	n = (size_t)sprintf(body, B "\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\n");
	memset(body + n, 'm', 256);
	sprintf(body + n + 255, "\r\n%s", END);
	cr_assert_eq(parse(body, strlen(body)), 0);
	memset(body + n, 'm', 256);
	sprintf(body + n + 256, "\r\n%s", END);
	cr_assert_eq(parse(body, strlen(body)), -400);
	free(body);
}

static int
boundary(const char *type, const char *want)
{
	struct slice got;
	int r = multipart_boundary(slice_str(type), &got, &why);

	cr_assert(r != 0 || slice_eq_str(got, want), "%s", type);
	return r;
}

Test(multipart, the_boundary_is_what_the_content_type_says)
{
	char longest[200] = "multipart/form-data; boundary=";

	cr_assert_eq(boundary("multipart/form-data; boundary=X-b", "X-b"), 0);
	cr_assert_eq(boundary("Multipart/Form-Data;charset=utf-8;BOUNDARY=\"a b'c\"", "a b'c"), 0);
	cr_assert_eq(boundary("multipart/form-data;boundary=----WebKitFormBoundary7MA4",
			      "----WebKitFormBoundary7MA4"), 0);
	cr_assert_eq(boundary("application/json", ""), -415);
	cr_assert_eq(boundary("multipart/mixed; boundary=x", ""), -415);
	cr_assert_eq(boundary("multipart/form-data-x; boundary=x", ""), -415);
	cr_assert_eq(boundary("", ""), -415);
	cr_assert_eq(boundary("multipart/form-data", ""), -400);
	cr_assert_eq(boundary("multipart/form-data; boundary=", ""), -400);
	cr_assert_eq(boundary("multipart/form-data; boundary=\"\"", ""), -400);
	cr_assert_eq(boundary("multipart/form-data; boundary=\"x", ""), -400);
	cr_assert_eq(boundary("multipart/form-data; boundary=\"x \"", ""), -400);
	cr_assert_eq(boundary("multipart/form-data; boundary=\"x\\y\"", ""), -400);
	cr_assert_eq(boundary("multipart/form-data; boundary=x boundary=y", ""), -400);
	cr_assert_eq(boundary("multipart/form-data; boundary=x; boundary=y", ""), -400);
	cr_assert_eq(boundary("multipart/form-data, multipart/form-data; boundary=x", ""), -400);
	memset(longest + 30, 'b', 70);
	cr_assert_eq(boundary(longest, longest + 30), 0);
	longest[100] = 'b';
	cr_assert_eq(boundary(longest, ""), -400);
}
