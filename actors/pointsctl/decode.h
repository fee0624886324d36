/* actors/pointsctl/decode.h -- what the decoders of engines' bytes share. */
#pragma once
#include <stddef.h>
#include <stdint.h>

struct options;

struct bytes {
	uint8_t *p;                             /* owned; NULL: empty */
	size_t n;
};

int file_read(const char *path, size_t most, struct bytes *ret);
	/* "-": standard input.  0; -errno; -EFBIG: more than that. */
int decode_metrics(const struct options *o);    /* the exit code */
