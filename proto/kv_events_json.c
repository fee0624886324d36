/* proto/kv_events_json.c -- KV events as lines a person or a script can read. */
#include "proto/kv_events.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "proto/frame.h"

const char *
kv_event_type_name(enum kv_event_type type)
{
	switch (type) {
	case KV_STORED:
		return "BlockStored";
	case KV_REMOVED:
		return "BlockRemoved";
	case KV_CLEARED:
		return "AllBlocksCleared";
	}
	return "?";
}

/* Length of the well-formed UTF-8 sequence at p, or 0. */
static size_t
utf8_len(const uint8_t *p, size_t n)
{
	static const uint32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
	size_t len = p[0] < 0x80 ? 1 : p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : p[0] >= 0xc0 ? 2 : 0;
	uint32_t c;

	if (len <= 1)
		return len;
	if (len > n || p[0] > 0xf4)
		return 0;
	c = p[0] & (0x7fu >> len);
	for (size_t i = 1; i < len; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (p[i] & 0x3fu);
	}
	if (c < least[len] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
		return 0;
	return len;
}

static void
print_text(FILE *f, const uint8_t *p, size_t n)
{
	fputc('"', f);
	for (size_t i = 0; i < n;) {
		size_t len = utf8_len(p + i, n - i);

		if (len == 0) {
			fputs("\\ufffd", f); /* a replacement for what is no UTF-8 */
			i++;
			continue;
		}
		if (p[i] == '"' || p[i] == '\\')
			fprintf(f, "\\%c", p[i]);
		else if (p[i] < 0x20)
			fprintf(f, "\\u%04x", p[i]);
		else
			fwrite(p + i, 1, len, f);
		i += len;
	}
	fputc('"', f);
}

static void
print_scalar(FILE *f, const struct frame_value *v)
{
	switch (v->type) {
	case FRAME_BOOL:
		fputs(v->u64 ? "true" : "false", f);
		break;
	case FRAME_UINT:
		fprintf(f, "%" PRIu64, v->u64);
		break;
	case FRAME_INT:
		fprintf(f, "%" PRId64, v->i64);
		break;
	case FRAME_FLOAT:
		if (isfinite(v->f64))
			fprintf(f, "%.17g", v->f64);
		else
			fputs("null", f);
		break;
	case FRAME_STR:
		print_text(f, v->bytes, v->len);
		break;
	case FRAME_BIN:
		fputc('"', f);
		for (uint32_t i = 0; i < v->len; i++)
			fprintf(f, "%02x", v->bytes[i]);
		fputc('"', f);
		break;
	default:
		fputs("null", f);
		break;
	}
}

/* One open container of the value being printed. */
struct level {
	bool map;
	uint64_t left; /* values still to come */
	uint64_t done;
};

/* Print any msgpack value as JSON.  Keys that are no text are quoted as what they would print. */
static void
print_span(FILE *f, struct kv_slice span)
{
	struct frame_cursor cur = {span.p, span.p + span.n};
	struct level levels[FRAME_DEPTH_MAX + 1];
	unsigned depth = 0;
	struct frame_value v;

	while (frame_next(&cur, &v)) {
		struct level *up = depth ? &levels[depth - 1] : NULL;
		bool key = up && up->map && up->done % 2 == 0;

		if (up && up->done > 0)
			fputs(up->map && !key ? ": " : ", ", f);
		if (up) {
			up->left--;
			up->done++;
		}
		if (v.type == FRAME_ARRAY || v.type == FRAME_MAP) {
			bool map = v.type == FRAME_MAP;

			if (key || depth == FRAME_DEPTH_MAX) { /* no JSON for it */
				fputs(key ? "\"?\"" : "null", f);
				for (uint64_t i = map ? 2ull * v.len : v.len; i > 0; i--)
					if (!frame_skip(&cur))
						return;
			} else {
				fputc(map ? '{' : '[', f);
				levels[depth++] =
					(struct level){map, map ? 2ull * v.len : v.len, 0};
			}
		} else if (key && v.type != FRAME_STR && v.type != FRAME_BIN) {
			fputc('"', f);
			print_scalar(f, &v);
			fputc('"', f);
		} else {
			print_scalar(f, &v);
		}
		while (depth > 0 && levels[depth - 1].left == 0)
			fputc(levels[--depth].map ? '}' : ']', f);
		if (depth == 0)
			return;
	}
}

static void
print_lora(FILE *f, const struct kv_event *ev)
{
	if (ev->lora_name.p)
		print_text(f, ev->lora_name.p, ev->lora_name.n);
	else if (ev->has_lora_id)
		fprintf(f, "%" PRId64, ev->lora_id);
	else
		fputs("null", f);
}

static void
print_medium(FILE *f, const struct kv_event *ev)
{
	uint8_t upper[32];
	size_t n = ev->medium_text.n;

	if (ev->type == KV_CLEARED && !ev->medium_text.p) {
		fputs("null", f);
	} else if (!ev->medium_text.p) {
		fputs(ev->medium == KV_MEDIUM_GPU ? "\"GPU\"" : "null", f);
	} else if (ev->medium == KV_MEDIUM_OTHER || n > sizeof(upper)) {
		print_text(f, ev->medium_text.p, n);
	} else { /* known names are compared without case, so print them in one */
		for (size_t i = 0; i < n; i++)
			upper[i] = ev->medium_text.p[i] >= 'a' && ev->medium_text.p[i] <= 'z'
					   ? (uint8_t)(ev->medium_text.p[i] - 0x20)
					   : ev->medium_text.p[i];
		print_text(f, upper, n);
	}
}

void
kv_event_print_json(FILE *f, const struct kv_batch *b, const struct kv_event *ev)
{
	fprintf(f, "{\"type\": \"%s\", \"rank\": ", kv_event_type_name(ev->type));
	if (b->has_rank)
		fprintf(f, "%" PRIu32, b->rank);
	else
		fputs("null", f);
	fputs(", \"hashes\": [", f);
	for (size_t i = 0; i < ev->n_hashes; i++)
		fprintf(f, "%s\"0x%016" PRIx64 "\"", i ? ", " : "", ev->hashes[i]);
	fputs("], \"parent\": ", f);
	if (ev->has_parent)
		fprintf(f, "\"0x%016" PRIx64 "\"", ev->parent);
	else
		fputs("null", f);
	fputs(", \"token_ids\": ", f);
	if (ev->token_span.p)
		print_span(f, ev->token_span);
	else
		fputs("[]", f);
	fputs(", \"block_size\": ", f);
	if (ev->type == KV_STORED)
		fprintf(f, "%" PRIu32, ev->block_tokens);
	else
		fputs("null", f);
	fputs(", \"lora\": ", f);
	print_lora(f, ev);
	fputs(", \"medium\": ", f);
	print_medium(f, ev);
	fputs(", \"group\": ", f);
	if (ev->has_group)
		fprintf(f, "%" PRIu32, ev->group);
	else
		fputs("null", f);
	fputs(", \"extra_keys\": ", f);
	if (ev->extra_span.p)
		print_span(f, ev->extra_span);
	else
		fputs("null", f);
	fputs("}\n", f);
}
