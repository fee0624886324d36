/* tests/unit/test_path_name.c -- names in paths. */
#include <criterion/criterion.h>
#include <string.h>

#include "actors/ingress/path_name.h"

static const char *
name(const char *text, size_t cap)
{
	static char buf[64];
	size_t len;

	if (!path_name(slice_str(text), buf, cap, &len))
		return NULL;
	buf[len] = '\0';
	return buf;
}

Test(path_name, is_the_same_raw_and_percent_encoded)
{
	cr_assert_str_eq(name("org/name-8b", 32), "org/name-8b");
	cr_assert_str_eq(name("org%2Fname-8b", 32), "org/name-8b");
	cr_assert_str_eq(name("org%2fname%2D8b", 32), "org/name-8b");
	cr_assert_str_eq(name("a%25b+c", 32), "a%b+c", "once, and '+' is no blank");
	cr_assert_str_eq(name("%C3%A9", 32), "\xc3\xa9");
}

Test(path_name, malformed_and_long_ones_are_no_name)
{
	cr_assert_null(name("a%", 32));
	cr_assert_null(name("a%2", 32));
	cr_assert_null(name("a%2G", 32));
	cr_assert_null(name("a%+1", 32));
	cr_assert_null(name("a%00", 32));
	cr_assert_str_eq(name("abcd", 4), "abcd");
	cr_assert_null(name("abcde", 4));
}
