/* proto/hex.h -- a hexadecimal digit, as texts of protocols write it. */
#pragma once

/* 0 to 15; -1: it is none.  Any case. */
static inline int
hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}
