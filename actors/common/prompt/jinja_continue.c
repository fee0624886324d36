/* actors/common/prompt/jinja_continue.c -- continue_final_message: the text ends where the last
 * message's content ends.  transformers marks that content, renders, and cuts at the mark. */
#include "actors/common/prompt/jinja.h"

#include "actors/common/prompt/py_unicode.h"

#define MARK "CONTINUE_FINAL_MESSAGE_TAG "

static bool
marked(struct bump *bump, struct value text, struct value *ret)
{
	size_t n = sizeof(MARK) - 1;
	char *own = bump_bytes(bump, text.n + n);

	if (!own)
		return false;
	memcpy(own, text.s, text.n);
	memcpy(own + text.n, MARK, n);
	*ret = value_string(slice_of(own, text.n + n));
	return true;
}

/* A dict like `from`, one member changed. */
static bool
with_member(struct bump *bump, const struct value_dict *from, const char *key, struct value v,
	    struct value *ret)
{
	struct value_dict *dict = value_dict_new(bump, from->n);

	if (!dict)
		return false;
	for (uint32_t i = 0; i < from->n; i++)
		if (!value_put(dict, from->pair[i].key, from->pair[i].value))
			return false;
	*ret = value_of_dict(dict);
	return value_put_str(dict, key, v);
}

static bool
with_item(struct bump *bump, struct value list, uint32_t at, struct value v, struct value *ret)
{
	struct value *item = bump_take(bump, list.n * sizeof(*item));

	if (!item)
		return false;
	memcpy(item, list.items, list.n * sizeof(*item));
	item[at] = v;
	*ret = value_list(item, list.n);
	return true;
}

bool
jinja_continue_mark(struct bump *bump, const struct value *messages, struct value *ret,
		    const char **why)
{
	struct value last, content, text;
	bool ok = false;

	*why = "there is no final message to continue";
	if (messages->kind != VALUE_LIST || messages->n == 0)
		return false;
	last = messages->items[messages->n - 1];
	content = value_member(last, "content");
	if (content.kind == VALUE_STRING) {
		ok = marked(bump, content, &content);
	} else if (content.kind == VALUE_LIST) {
		for (uint32_t i = content.n; i-- > 0 && !ok;) {
			struct value part = content.items[i];

			text = value_member(part, "text");
			if (text.kind != VALUE_STRING)
				continue;
			ok = marked(bump, text, &text) &&
			     with_member(bump, part.dict, "text", text, &part) &&
			     with_item(bump, content, i, part, &content);
			if (!ok)
				break;
		}
	}
	return ok && with_member(bump, last.dict, "content", content, &last) &&
	       with_item(bump, *messages, messages->n - 1, last, ret);
}

int
jinja_continue_cut(struct text *out, size_t from)
{
	const char *tag = MARK;
	size_t n = sizeof(MARK) - 1, at = out->len;

	if (out->len - from < n - 1)
		return -EINVAL;
	for (at = out->len - (n - 1);; at--) {
		if (memcmp(out->p + at, tag, n - 1) == 0)
			break;
		if (at == from)
			return -EINVAL;
	}
	/* the blank behind the mark is gone: the template trims, and so do we */
	if (at + n > out->len || out->p[at + n - 1] != ' ') {
		struct slice kept = py_strip(slice_of(out->p + from, at - from), false, true);

		at = from + kept.len;
	}
	out->len = at;
	return 0;
}
