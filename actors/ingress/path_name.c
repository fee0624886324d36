/* actors/ingress/path_name.c -- see path_name.h. */
#include "actors/ingress/path_name.h"

#include "proto/hex.h"

bool
path_name(struct slice text, char *buf, size_t cap, size_t *ret_len)
{
	size_t n = 0;

	for (size_t i = 0; i < text.len; i++) {
		int c = (unsigned char)text.p[i];

		if (c == '%') {
			int high = i + 2 < text.len ? hex_digit(text.p[i + 1]) : -1;
			int low = i + 2 < text.len ? hex_digit(text.p[i + 2]) : -1;

			if (high < 0 || low < 0)
				return false;
			c = high * 16 + low;
			i += 2;
		}
		if (c == 0 || n == cap)
			return false;
		buf[n++] = (char)c;
	}
	*ret_len = n;
	return true;
}
