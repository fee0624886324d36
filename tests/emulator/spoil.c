/* tests/emulator/spoil.c -- see spoil.h. */
#include "tests/emulator/spoil.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HUGE_BYTES 20000000u
#define DEFLATE_STORED_MAX 65535u

/* Does this line have a value that may be anything? */
static bool
is_ratio(const char *line, size_t len)
{
	static const char *const parts[] = {"usage", "utilization", "hit_rate", "_sum{"};

	for (unsigned i = 0; i < sizeof parts / sizeof parts[0]; i++)
		if (memmem(line, len, parts[i], strlen(parts[i])) != NULL)
			return line[0] != '#';
	return false;
}

static void
spoil_lines(FILE *out, const char *page, size_t len, enum metrics_fault fault)
{
	const char *end = page + len, *next;

	for (const char *line = page; line < end; line = next) {
		const char *nl = memchr(line, '\n', (size_t)(end - line)), *space;

		next = nl != NULL ? nl + 1 : end;
		space = memrchr(line, ' ', (size_t)(next - line));
		if (fault == METRICS_HELP_ONLY && line[0] != '#')
			continue;
		if (fault != METRICS_HELP_ONLY && is_ratio(line, (size_t)(next - line)) &&
		    space != NULL)
			fprintf(out, "%.*s %s\n", (int)(space - line), line,
				fault == METRICS_NAN ? "NaN" : "+Inf");
		else
			fwrite(line, 1, (size_t)(next - line), out);
	}
}

static uint32_t
crc32_of(const uint8_t *p, size_t len)
{
	uint32_t crc = 0xffffffffu;

	for (size_t i = 0; i < len; i++) {
		crc ^= p[i];
		for (unsigned k = 0; k < 8; k++)
			crc = crc >> 1 ^ (0xedb88320u & -(crc & 1u));
	}
	return ~crc;
}

static void
put_le32(FILE *out, uint32_t v)
{
	for (unsigned i = 0; i < 4; i++)
		fputc((int)(v >> 8 * i & 0xff), out);
}

/* A gzip file whose blocks are stored as they are. */
static void
gzip(FILE *out, const char *page, size_t len)
{
	static const char head[10] = {0x1f, (char)0x8b, 8, 0, 0, 0, 0, 0, 0, 3};

	fwrite(head, 1, sizeof head, out);
	for (size_t at = 0; at < len;) {
		unsigned n = len - at > DEFLATE_STORED_MAX ? DEFLATE_STORED_MAX
							   : (unsigned)(len - at);
		unsigned sizes[4] = {n & 0xff, n >> 8, ~n & 0xff, ~n >> 8 & 0xff};

		fputc(at + n == len, out);
		for (unsigned i = 0; i < 4; i++)
			fputc((int)sizes[i], out);
		fwrite(page + at, 1, n, out);
		at += n;
	}
	put_le32(out, crc32_of((const uint8_t *)page, len));
	put_le32(out, (uint32_t)len);
}

char *
spoil_page(const char *page, size_t len, enum metrics_fault fault, size_t *ret_len)
{
	char *text = NULL;
	FILE *out = open_memstream(&text, ret_len);

	if (out == NULL)
		abort();
	switch (fault) {
	case METRICS_NAN:
	case METRICS_INF:
	case METRICS_HELP_ONLY:
		spoil_lines(out, page, len, fault);
		break;
	case METRICS_TWICE:
		fwrite(page, 1, len, out);
		fwrite(page, 1, len, out);
		break;
	case METRICS_HUGE:
		for (unsigned i = 0; (size_t)ftell(out) < HUGE_BYTES; i++)
			fprintf(out, "somebody_elses_series{number=\"%u\"} 1.0\n", i);
		fwrite(page, 1, len, out);
		break;
	case METRICS_GZIP:
		gzip(out, page, len);
		break;
	default:
		fwrite(page, 1, len, out);
		break;
	}
	fclose(out);
	return text;
}
