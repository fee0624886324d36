/* actors/admin/introspect.c -- bytes to a request, its answer to bytes; see introspect.h. */
#include "actors/admin/introspect.h"

#include <string.h>

#include "actors/admin/events.h"
#include "actors/common/verbs.h"

int
introspect_encode(const json_t *request, json_t *said, enum wire_form form, void **ret,
		  size_t *ret_len)
{
	json_t *tag = json_object_get(request, "tag");
	int r;

	if (json_is_integer(tag) ||
	    (json_is_string(tag) && json_string_length(tag) <= PM_VERB_TAG_MAX))
		json_object_set(said, "tag", tag);
	r = wire_encode(said, form, ret, ret_len);
	json_decref(said);
	return r;
}

/* NULL: it waits. */
static json_t *
answer(const struct pm_view *view, struct events *events, const json_t *asked)
{
	const json_t *verb = json_object_get(asked, "verb");
	json_t *refused = NULL, *result;

	if (!events || !json_is_string(verb) ||
	    strcmp(json_string_value(verb), PM_VERB_EVENTS) != 0)
		return pm_verb_answer(view, asked);
	if (!pm_verb_checked(asked, &refused))
		return refused;
	result = events_ask(events, asked, clock_mono(), &refused);
	return result ? pm_verb_success(PM_VERB_EVENTS, result) : refused;
}

int
introspect_ask(const struct pm_view *view, struct events *events, const void *request, size_t len,
	       void **ret, size_t *ret_len, json_t **ret_waits)
{
	json_t *asked = NULL, *said;
	const char *why = "";
	int r = wire_decode(request, len, &asked, &why);

	said = r < 0 ? pm_verb_refusal("bad_frame", "the request is %s", why) :
		       answer(view, events, asked);
	if (!said) {
		*ret_waits = asked;
		return 1;
	}
	r = introspect_encode(asked, said, wire_form_of(request, len), ret, ret_len);
	json_decref(asked);
	return r;
}

int
introspect_answer(const struct pm_view *view, const void *request, size_t len, void **ret,
		  size_t *ret_len)
{
	json_t *waits;

	return introspect_ask(view, NULL, request, len, ret, ret_len, &waits);
}
