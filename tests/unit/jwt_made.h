/* tests/unit/jwt_made.h -- tokens as an issuer would make them. */
#pragma once
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>

#include "actors/common/tenants/jwt.h"

static size_t
base64url(const void *p, size_t n, char *to)
{
	size_t len = (size_t)EVP_EncodeBlock((unsigned char *)to, p, (int)n);

	while (len > 0 && to[len - 1] == '=')
		len--;
	to[len] = '\0';
	for (size_t i = 0; i < len; i++)
		to[i] = (char)(to[i] == '+' ? '-' : to[i] == '/' ? '_' : to[i]);
	return len;
}

/* A token of that header and those claims, signed with a secret. */
static const char *
made(const char *header, const char *claims, const void *key, size_t n_key)
{
	static char token[4 * JWT_MAX];
	unsigned char mac[32];
	unsigned n = 0;
	size_t at = base64url(header, strlen(header), token);

	token[at++] = '.';
	at += base64url(claims, strlen(claims), token + at);
	HMAC(EVP_sha256(), key, (int)n_key, (unsigned char *)token, at, mac, &n);
	token[at++] = '.';
	base64url(mac, n, token + at);
	return token;
}
