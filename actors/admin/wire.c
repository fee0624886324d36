/* actors/admin/wire.c -- JSON and msgpack to json_t and back; see wire.h. */
#include "actors/admin/wire.h"

#include <errno.h>
#include <msgpack.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/frame.h"

enum wire_form
wire_form_of(const void *payload, size_t len)
{
	uint8_t b = len ? *(const uint8_t *)payload : 0;

	return (b >= 0x80 && b <= 0x8f) || b == 0xde || b == 0xdf ? WIRE_MSGPACK : WIRE_JSON;
}

static json_t *
decode_value(struct frame_cursor *cursor, const char **why);

static json_t *
decode_map(struct frame_cursor *cursor, uint32_t n, const char **why)
{
	json_t *o = json_object();

	for (uint32_t i = 0; o && i < n; i++) {
		struct frame_value key;
		char name[256];
		json_t *value;

		if (!frame_next(cursor, &key) || key.type != FRAME_STR || key.len >= sizeof name ||
		    memchr(key.bytes, 0, key.len)) {
			*why = "a key is no text of at most 255 bytes";
			json_decref(o);
			return NULL;
		}
		memcpy(name, key.bytes, key.len);
		name[key.len] = 0;
		if (json_object_get(o, name)) {
			*why = "a key is there twice";
			json_decref(o);
			return NULL;
		}
		value = decode_value(cursor, why);
		if (!value || json_object_set_new(o, name, value) < 0) {
			if (value)
				*why = "a key is no UTF-8";
			json_decref(o);
			return NULL;
		}
	}
	return o;
}

static json_t *
decode_array(struct frame_cursor *cursor, uint32_t n, const char **why)
{
	json_t *list = json_array();

	for (uint32_t i = 0; list && i < n; i++) {
		json_t *value = decode_value(cursor, why);

		if (!value || json_array_append_new(list, value) < 0) {
			json_decref(list);
			return NULL;
		}
	}
	return list;
}

/* Recursion is as deep as frame_sane allowed. */
static json_t *
decode_value(struct frame_cursor *cursor, const char **why)
{
	struct frame_value v;
	json_t *text;

	*why = "a number is out of range";
	if (!frame_next(cursor, &v)) {
		*why = "cut short";
		return NULL;
	}
	switch (v.type) {
	case FRAME_NIL:
		return json_null();
	case FRAME_BOOL:
		return json_boolean(v.u64 != 0);
	case FRAME_UINT:
		return v.u64 <= INT64_MAX ? json_integer((json_int_t)v.u64) : NULL;
	case FRAME_INT:
		return json_integer((json_int_t)v.i64);
	case FRAME_FLOAT:
		return json_real(v.f64);        /* NULL: not finite */
	case FRAME_STR:
	case FRAME_BIN:
		text = json_stringn((const char *)v.bytes, v.len);
		if (!text)
			*why = "a text is no UTF-8";
		return text;
	case FRAME_ARRAY:
		return decode_array(cursor, v.len, why);
	case FRAME_MAP:
		return decode_map(cursor, v.len, why);
	case FRAME_EXT:
		*why = "an extension type";
		return NULL;
	}
	return NULL;
}

int
wire_decode(const void *payload, size_t len, json_t **ret, const char **why)
{
	json_t *value;

	if (len > WIRE_REQUEST_MAX) {
		*why = "longer than 65536 bytes";
		return -EMSGSIZE;
	}
	if (wire_form_of(payload, len) == WIRE_MSGPACK) {
		struct frame_cursor cursor = {payload, (const uint8_t *)payload + len};

		if (!frame_sane(payload, len)) {
			*why = "not one sane msgpack value";
			return -EBADMSG;
		}
		value = decode_value(&cursor, why);
	} else {
		*why = "neither a JSON object nor a msgpack map";
		value = json_loadb(payload, len, JSON_REJECT_DUPLICATES, NULL);
	}
	if (!value)
		return -EBADMSG;
	if (!json_is_object(value)) {
		*why = "neither a JSON object nor a msgpack map";
		json_decref(value);
		return -EBADMSG;
	}
	*ret = value;
	return 0;
}

/* Our own answers: no deeper than the code that makes them. */
static void
encode_value(msgpack_packer *to, const json_t *value)
{
	const char *key;
	json_t *one;
	size_t i;

	switch (json_typeof(value)) {
	case JSON_OBJECT:
		msgpack_pack_map(to, json_object_size(value));
		for (void *at = json_object_iter((json_t *)(uintptr_t)value); at;
		     at = json_object_iter_next((json_t *)(uintptr_t)value, at)) {
			key = json_object_iter_key(at);
			msgpack_pack_str(to, strlen(key));
			msgpack_pack_str_body(to, key, strlen(key));
			encode_value(to, json_object_iter_value(at));
		}
		break;
	case JSON_ARRAY:
		msgpack_pack_array(to, json_array_size(value));
		json_array_foreach(value, i, one)
			encode_value(to, one);
		break;
	case JSON_STRING:
		msgpack_pack_str(to, json_string_length(value));
		msgpack_pack_str_body(to, json_string_value(value), json_string_length(value));
		break;
	case JSON_INTEGER:
		msgpack_pack_int64(to, json_integer_value(value));
		break;
	case JSON_REAL:
		msgpack_pack_double(to, json_real_value(value));
		break;
	case JSON_TRUE:
		msgpack_pack_true(to);
		break;
	case JSON_FALSE:
		msgpack_pack_false(to);
		break;
	case JSON_NULL:
		msgpack_pack_nil(to);
		break;
	}
}

int
wire_encode(const json_t *value, enum wire_form form, void **ret, size_t *ret_len)
{
	if (form == WIRE_MSGPACK) {
		msgpack_sbuffer buffer;
		msgpack_packer packer;

		msgpack_sbuffer_init(&buffer);
		msgpack_packer_init(&packer, &buffer, msgpack_sbuffer_write);
		encode_value(&packer, value);
		*ret_len = buffer.size;
		*ret = msgpack_sbuffer_release(&buffer);
	} else {
		*ret = json_dumps(value, JSON_COMPACT);
		*ret_len = *ret ? strlen(*ret) : 0;
	}
	return *ret ? 0 : -ENOMEM;
}
