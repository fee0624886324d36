/* actors/pointsctl/decode.c -- `decode kv-events FILE...`: what an engine said, as JSON lines; and
 * which decoder is wanted.
 */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "actors/pointsctl/decode.h"
#include "actors/pointsctl/pointsctl.h"
#include "proto/kv_events.h"

int
file_read(const char *path, size_t most, struct bytes *ret)
{
	bool in = strcmp(path, "-") == 0;
	FILE *f = in ? stdin : fopen(path, "rb");
	struct bytes b = {0};
	size_t cap = 0;
	int r = 0;

	if (!f)
		return -errno;
	for (;;) {
		size_t got;

		if (b.n == cap) {
			uint8_t *more = realloc(b.p, cap ? cap * 2 : 65536);

			if (!more || cap > most) {
				b.p = more ? more : b.p;
				r = more ? -EFBIG : -ENOMEM;
				break;
			}
			b.p = more;
			cap = cap ? cap * 2 : 65536;
		}
		got = fread(b.p + b.n, 1, cap - b.n, f);
		b.n += got;
		if (got == 0) {
			r = ferror(f) ? -EIO : 0;
			break;
		}
	}
	if (!in)
		fclose(f);
	if (r < 0)
		free(b.p);
	else
		*ret = b;
	return r;
}

/* Hex text in place, blanks between; false: something else is in it, at *ret_offset. */
static bool
hex_undo(struct bytes *b, size_t *ret_offset)
{
	size_t n = 0, digits = 0;

	for (size_t i = 0; i < b->n; i++) {
		unsigned char c = b->p[i];
		unsigned digit;

		if (isspace(c))
			continue;
		*ret_offset = i;
		if (!isxdigit(c))
			return false;
		digit = (unsigned)(isdigit(c) ? c - '0' : tolower(c) - 'a' + 10);
		if (digits++ % 2 == 0)
			b->p[n] = (uint8_t)(digit << 4);
		else
			b->p[n++] |= (uint8_t)digit;
	}
	b->n = n;
	return digits % 2 == 0;
}

static int
decode_file(const char *path, struct kv_batch *batch)
{
	size_t len = strlen(path), offset = 0;
	struct bytes b = {0};
	const char *why = "";
	int r = file_read(path, 2u * KV_PAYLOAD_MAX_BYTES, &b), code = 0;

	if (r < 0) {
		complain("%s: %s", path, strerror(-r));
		return 1;
	}
	if (len > 4 && strcmp(path + len - 4, ".hex") == 0 && !hex_undo(&b, &offset)) {
		complain("%s: no hexadecimal text at byte %zu", path, offset);
		free(b.p);
		return 1;
	}
	r = kv_batch_decode(b.p, b.n, batch, &why);
	if (r < 0) {
		complain("%s: %s", path, why);
		code = 1;
	} else {
		for (size_t i = 0; i < batch->n_events; i++)
			kv_event_print_json(stdout, batch, &batch->events[i]);
		if (batch->n_skipped)
			complain("%s: %zu events of kinds we do not know, skipped", path,
				 batch->n_skipped);
		if (batch->n_failed) {
			complain("%s: %zu events could not be read: %s", path, batch->n_failed,
				 batch->failed_why ? batch->failed_why : "");
			code = 1;
		}
	}
	free(b.p);
	return code;
}

int
command_decode(const struct options *o)
{
	struct kv_batch batch = {0};
	int code = 0;

	if (strcmp(o->args[0], "metrics") == 0)
		return decode_metrics(o);
	if (strcmp(o->args[0], "kv-events") != 0) {
		complain("decode what?  \"%s\" is not known; kv-events and metrics are",
			 o->args[0]);
		return EXIT_USAGE;
	}
	for (unsigned i = 1; i < o->n_args; i++)
		code |= decode_file(o->args[i], &batch);
	kv_batch_free(&batch);
	return code;
}
