/* actors/common/prompt/jinja.h -- chat templates: Jinja2 as Hugging Face sets it up, in C.
 *
 * Meaning    a template compiled once, then rendered for every request, to the text that
 *            transformers' apply_chat_template gives: ImmutableSandboxedEnvironment,
 *            trim_blocks, lstrip_blocks, loop controls, {% generation %} transparent, tojson =
 *            json.dumps without ASCII escapes, raise_exception, strftime_now.
 *            What Python could do and we do not says "unsupported: ...".
 * Absent     include, import, extends, block, i18n, autoescape: refused when compiled.
 * Errors     what fails in Python fails here, with the line and a text that begins with Python's
 *            name of it ("TypeError: ...").  Whatever the template and the context: no assert, no
 *            endless work, no more memory than the bounds.
 * Threads    a compiled template is read-only and shared; a render belongs to one thread, with
 *            its own bump and text.
 * Cost       a conversation of 31 messages: 5 to 100 us by template (tests/bench).
 */
#pragma once
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "actors/common/prompt/value.h"

struct jinja;                           /* opaque */

#define JINJA_SOURCE_MAX (1u << 20)     /* bytes of a template */

struct jinja_error {
	unsigned line;                          /* of the template, from 1; 0: none */
	char text[240];
};

struct jinja_options {
	int64_t now_s;                          /* the clock: seconds since 1970, UTC */
	uint32_t now_us;                        /* and microseconds */
	int32_t utc_offset_s;                   /* the worker's local time (zone.h) */
	uint64_t max_steps;                     /* 0: JINJA_STEPS */
	unsigned max_depth;                     /* macro calls in each other; 0: JINJA_DEPTH */
	const atomic_bool *stop;                /* true: end soon; borrowed; NULL: nobody does */
};
#define JINJA_STEPS 50000000ull
#define JINJA_DEPTH 100u

int jinja_compile(struct slice source, struct jinja **ret, struct jinja_error *err);
	/* 0; -EBADMSG: not a template we can render, err says where and why; -EMSGSIZE too long;
	 * -ENOMEM.  The source need not live on.  err may be NULL. */
void jinja_free(struct jinja **jinja);

bool jinja_mentions(const struct jinja *jinja, struct slice name);
	/* Does it read this variable from its context (jinja2.meta.find_undeclared_variables)? */
bool jinja_loops_over_content(const struct jinja *jinja);
	/* vLLM's "auto" content format: true is "openai" (message.content is walked as a list),
	 * false "string". */

int jinja_render(const struct jinja *jinja, const struct value *context,
		 const struct jinja_options *options, struct bump *bump, struct text *out,
		 struct jinja_error *err);
	/* context: a dict of the template's variables, borrowed.  Appends to out.  The bump is not
	 * reset: what it holds may be part of the context.  0; -EINVAL: it fails as it would in
	 * Python (or asks for what we have not), err says why; -E2BIG over max_steps or max_depth,
	 * or stopped; -ENOSPC over out's bound; -ENOMEM over the bump's.  After an error out holds
	 * a beginning of no use.  options NULL: the clock stands at 1970. */

/* jinja_continue.c: continue_final_message, as transformers does it outside the template. */
bool jinja_continue_mark(struct bump *bump, const struct value *messages, struct value *ret,
			 const char **why);
	/* ret: the messages, the last one's text (or its last text part) marked.  False with why
	 * (static): there is nothing to continue. */
int jinja_continue_cut(struct text *out, size_t from);
	/* Cuts what was rendered since `from` behind the final message.  -EINVAL: the template has
	 * changed or dropped it. */
