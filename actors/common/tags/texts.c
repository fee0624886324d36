/* actors/common/tags/texts.c -- where texts lie in bodies; see texts.h. */
#include "actors/common/tags/texts.h"

#include <errno.h>
#include <string.h>

#define KEY_MAX 32u             /* bytes of the longest name that means something here */
#define FIELD_DIGITS 3u         /* in a field's name; what has more may be a number of somebody */

enum meaning {
	TEXT,                   /* whatever it holds */
	SIGN,                   /* a string under it is no text; what else it holds is looked at */
	JSON,                   /* a JSON text: as a string, or as the object itself */
	MEDIA,                  /* as a string, or in an object */
	DATA,                   /* text or not by its neighbour "type" */
	URL,                    /* text, or data: */
	IDS,                    /* token ids where it holds numbers */
	HIDDEN_TOKENS,
	HIDDEN_ELSEWHERE,
	SOURCE,                 /* a URL in it is of media */
	HEARD,                  /* sound, where it has an id */
};

static const struct {
	const char *key;
	enum meaning means;
} keys[] = {
	/* names of models, kinds and things */
	{"model", SIGN}, {"role", SIGN}, {"type", SIGN}, {"id", SIGN}, {"object", SIGN},
	{"status", SIGN}, {"call_id", SIGN}, {"tool_call_id", SIGN}, {"tool_use_id", SIGN},
	{"item_id", SIGN}, {"response_id", SIGN}, {"previous_response_id", SIGN},
	{"request_id", SIGN}, {"detail", SIGN}, {"format", SIGN}, {"media_type", SIGN},
	{"mime_type", SIGN}, {"encoding_format", SIGN}, {"service_tier", SIGN},
	{"effort", SIGN}, {"reasoning_effort", SIGN}, {"truncation", SIGN}, {"verbosity", SIGN},
	{"tool_choice", SIGN},
	/* signed or encrypted by a provider */
	{"signature", SIGN}, {"encrypted_content", SIGN}, {"arguments", JSON},
	{"metadata", JSON}, {"chat_template_kwargs", JSON}, {"input", IDS}, {"prompt", IDS},
	{"token_ids", IDS}, {"tokens", IDS}, {"prompt_token_ids", IDS},
	{"prompt_embeds", HIDDEN_TOKENS}, {"image_url", MEDIA}, {"video_url", MEDIA},
	{"audio_url", MEDIA}, {"input_audio", MEDIA}, {"source", SOURCE}, {"audio", HEARD},
	{"image", MEDIA}, {"audio_data", MEDIA}, {"file_data", MEDIA}, {"file_id", MEDIA},
	{"file_url", MEDIA}, {"b64_json", MEDIA}, {"container_upload", MEDIA}, {"data", DATA},
	{"url", URL}, {"conversation", HIDDEN_ELSEWHERE}, {"conversation_id", HIDDEN_ELSEWHERE},
};

struct walk {
	struct json_cursor c;
	texts_f *give;
	void *arg;
	unsigned hidden;
};

static void walk_value(struct walk *w, enum meaning means, unsigned depth);

static enum meaning
meaning_of(const struct json_string *key)
{
	char name[KEY_MAX];
	ssize_t n = json_unescape(key, name, sizeof name - 1);

	if (n < 0)
		return TEXT;
	name[n] = '\0';
	for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
		if (keys[i].key[0] == name[0] && strcmp(keys[i].key, name) == 0)
			return keys[i].means;
	return TEXT;
}

static void
give(struct walk *w, const struct json_string *s, bool json)
{
	const struct texts_text text = {.string = *s, .json = json};

	if (s->raw.len > 0)
		w->give(w->arg, &text);
}

/* Letters, underscores and a few digits: what a field is called, in any API. */
static bool
is_field(const struct json_string *key)
{
	unsigned digits = 0;

	for (size_t i = 0; i < key->raw.len; i++) {
		char c = key->raw.p[i];

		if (c >= '0' && c <= '9')
			digits++;
		else if (c != '_' && !(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z'))
			return false;
	}
	return digits <= FIELD_DIGITS;
}

static bool
is_data_url(const struct json_string *s)
{
	return s->raw.len >= 5 && memcmp(s->raw.p, "data:", 5) == 0;
}

static void
take_string(struct walk *w, const struct json_string *s, enum meaning means)
{
	switch (means) {
	case SIGN:
		break;
	case MEDIA:
		w->hidden |= TEXTS_MEDIA;
		if (!is_data_url(s) && s->raw.len >= 7 && memcmp(s->raw.p, "http", 4) == 0)
			give(w, s, false);      /* the URL itself is read */
		break;
	case URL:
		if (is_data_url(s))
			w->hidden |= TEXTS_MEDIA;
		else
			give(w, s, false);
		break;
	case DATA:
		w->hidden |= TEXTS_MEDIA;
		break;
	case HIDDEN_TOKENS:
		w->hidden |= TEXTS_TOKENS;
		break;
	case HIDDEN_ELSEWHERE:
		w->hidden |= TEXTS_ELSEWHERE;
		break;
	default:
		give(w, s, means == JSON);
		break;
	}
}

static void
walk_array(struct walk *w, enum meaning means, unsigned depth)
{
	if (!json_enter_array(&w->c))
		return;
	while (json_next_element(&w->c))
		walk_value(w, means, depth + 1);
}

/* What makes an object's members mean something else. */
struct object {
	struct json_string type, data;  /* raw.p NULL: it has none */
	bool id;                        /* it has an "id" or "prompt_id" */
};

/* One value as the text that it is. */
static void
take_raw(struct walk *w)
{
	struct texts_text text = {.string.escaped = true, .value = true};

	if (json_get_raw(&w->c, &text.string.raw))
		w->give(w->arg, &text);
}

static bool
of_type(const struct object *o, const char *type)
{
	return o->type.raw.p && json_string_eq(&o->type, type);
}

static void
walk_member(struct walk *w, const struct json_string *key, struct object *o, enum meaning in,
	    unsigned depth)
{
	enum meaning means = meaning_of(key);
	enum json_type is = json_peek(&w->c);
	struct json_string s;

	if (!is_field(key))             /* a schema's properties, whatever they are called */
		give(w, key, false);
	if (in == SOURCE && means == URL)
		means = MEDIA;
	if (is == JSON_IS_STRING && json_string_eq(key, "type")) {
		json_get_string(&w->c, &o->type);
		return;
	}
	if (is == JSON_IS_STRING && means == DATA) {
		if (o->data.raw.p)
			take_string(w, &o->data, DATA); /* twice: who knows which is read */
		if (json_get_string(&w->c, &o->data) && in == MEDIA) {
			take_string(w, &o->data, DATA);
			o->data.raw.p = NULL;
		}
		return;
	}
	o->id |= json_string_eq(key, "id") && is == JSON_IS_STRING;
	if (is == JSON_IS_STRING) {
		if (json_get_string(&w->c, &s))
			take_string(w, &s, in == MEDIA && means == URL ? MEDIA : means);
		return;
	}
	/* arguments as an object; the input of a tool_use, whose type may come behind it */
	if (is == JSON_IS_OBJECT && (means == JSON || (means == IDS && depth > 1))) {
		take_raw(w);
		return;
	}
	if (is == JSON_IS_OBJECT && means == HIDDEN_ELSEWHERE)
		w->hidden |= TEXTS_ELSEWHERE;
	if (is == JSON_IS_ARRAY && means == HIDDEN_TOKENS)
		w->hidden |= TEXTS_TOKENS;
	walk_value(w, means == SIGN ? TEXT : means, depth);
}

/* The members of the object that comes next. */
static void
walk_object(struct walk *w, enum meaning in, unsigned depth)
{
	struct object o = {0};
	struct json_string key;

	if (!json_enter_object(&w->c))
		return;
	while (json_next_member(&w->c, &key))
		walk_member(w, &key, &o, in, depth + 1);
	if (o.data.raw.p)
		take_string(w, &o.data, of_type(&o, "text") ? TEXT : DATA);
	if (of_type(&o, "item_reference") || (in == IDS && depth == 1 && o.id))
		w->hidden |= TEXTS_ELSEWHERE;
	if (in == HEARD && o.id)
		w->hidden |= TEXTS_MEDIA;
}

static void
walk_value(struct walk *w, enum meaning means, unsigned depth)
{
	struct json_string s;

	switch (json_peek(&w->c)) {
	case JSON_IS_STRING:
		if (json_get_string(&w->c, &s))
			take_string(w, &s, means);
		break;
	case JSON_IS_OBJECT:
		walk_object(w, means, depth);
		break;
	case JSON_IS_ARRAY:
		walk_array(w, means, depth);
		break;
	case JSON_IS_NUMBER:
		if (means == IDS)
			w->hidden |= TEXTS_TOKENS;
		json_skip(&w->c);
		break;
	default:
		json_skip(&w->c);
		break;
	}
}

int
texts_walk(struct slice body, texts_f *each, void *arg, unsigned *ret_hidden)
{
	struct walk w = {.give = each, .arg = arg};
	struct object o = {0};
	struct json_string key;

	*ret_hidden = 0;
	json_begin(&w.c, body.p, body.len);
	if (json_peek(&w.c) != JSON_IS_OBJECT || !json_enter_object(&w.c))
		return -EBADMSG;
	while (json_next_member(&w.c, &key))
		walk_member(&w, &key, &o, TEXT, 1);
	if (o.data.raw.p)
		take_string(&w, &o.data, TEXT);
	*ret_hidden = w.hidden;
	return json_end(&w.c);
}
