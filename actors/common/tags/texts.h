/* actors/common/tags/texts.h -- the texts of a request body, whatever its API.
 *
 * Question   What in this body is text that an engine or a provider would read?
 * Read       every string of the body but those that texts.c lists as none (model, role, type, ids
 *            and the like): what a later API adds is read until it is known to be no text.  So are
 *            messages of every role, system, instructions, input, prompts, suffix, queries and
 *            documents, arguments and results of tools, names, descriptions of tools and of their
 *            parameters, user and metadata.  Keys that are more than letters, underscores
 *            and three digits (a schema's properties have any names).  Arguments of tools,
 *            and metadata, are one JSON text each, keys and numbers included.
 * Each alone what is split over two of them is not there.
 * Hidden     what cannot be read here, though an engine could: pictures, sound, files, token ids,
 *            embeddings, and what lies elsewhere under an id.
 * Bounds     JSON_DEPTH_MAX deep; one pass; nothing is allocated.  No JSON: -EBADMSG, and what came
 *            before has been given.
 * Threads    pure.   Cost: that of proto/json.h.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "proto/json.h"

struct texts_text {
	struct json_string string;      /* as in the body: to be unescaped where it says so */
	bool json;                      /* JSON by itself: unescaped once more */
	bool value;                     /* no string of the body, but a value's JSON text */
};

enum texts_hidden {
	TEXTS_MEDIA = 1,                /* pictures, sound, films, files */
	TEXTS_TOKENS = 2,               /* token ids, embeddings */
	TEXTS_ELSEWHERE = 4,            /* an item, prompt or conversation that is only named */
};

typedef void texts_f(void *arg, const struct texts_text *text);

int texts_walk(struct slice body, texts_f *each, void *arg, unsigned *ret_hidden);
	/* 0, -EBADMSG; ret_hidden: enum texts_hidden, or'ed. */
