/* actors/common/prompt/request_private.h -- what the routes share when they prepare a request.
 *
 * Way        body -> the route's file makes an ask (what the engine's chat renderer is given) ->
 *            conversation.c makes the messages that the template sees -> render.c renders ->
 *            request.c tokenizes.  completions.c knows the routes without a template.
 * Errors     bool: false after prompt_stop said why; nothing else is set then.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "actors/common/prompt/bump.h"
#include "actors/common/prompt/ids.h"
#include "actors/common/prompt/model_private.h"
#include "actors/common/prompt/request.h"
#include "actors/common/prompt/text.h"
#include "actors/common/prompt/value.h"

#define PROMPT_WHY_BYTES 400u
#define PROMPT_ABSENT INT64_MIN         /* a number the request does not give */

struct prompt_maker {
	struct bump bump;               /* of the request in hand */
	struct text text, marked;       /* rendered; the same with the first medium marked */
	struct ids ids;                 /* of all prompts, one behind the other */
	struct prompt_one *prompts;
	uint32_t n_prompts, room;
	struct tokenizer_scratch *scratch;
	int64_t clock;                  /* INT64_MIN: the machine's */
	const atomic_bool *stop;        /* borrowed; NULL: nobody stops it */
	uint64_t max_steps;             /* of a template; 0: JINJA_STEPS */
	const struct model *m;          /* of the request in hand, borrowed; and so on */
	struct segments *cache;
	size_t max_ids;
	bool text_only;                 /* prompt_text: no ids are wanted */
	enum prompt_end end;
	bool no_memory;
	struct slice salt, rendered;
	bool add_special;
	uint64_t parse_ns, render_ns, tokenize_ns;
	char why[PROMPT_WHY_BYTES];
};

enum prompt_side { PROMPT_SIDE_DEFAULT, PROMPT_SIDE_LEFT, PROMPT_SIDE_RIGHT };

/* How the engine's renderer is asked for tokens. */
struct prompt_cut {
	bool add_special;
	int64_t keep;                   /* truncate_prompt_tokens: -1 all it takes; ABSENT */
	enum prompt_side side;
	bool keeps_first;               /* the tokenizer's side: generation keeps the last */
	int64_t max_output;             /* tokens asked for; 0: not said */
};

/* What a chat renderer is given; values live in the maker's bump or the body. */
struct prompt_ask {
	struct value messages;          /* list of dicts */
	struct value tools;             /* none, or a list as the template sees it */
	struct value kwargs;            /* dict or none: of the request */
	struct value documents;         /* none or list */
	struct value effort;            /* reasoning_effort: none or text */
	struct value thinking;          /* enable_thinking that follows from it: none or bool */
	bool generation_prompt, continue_final;
	struct slice own_template;      /* p NULL: none of the request's own */
	struct value ids;               /* a list: the engine takes these, whatever the messages */
	bool calls_made;                /* tool_calls are as the template sees them already */
	struct prompt_cut cut;
};

/* request.c */
bool prompt_stop(struct prompt_maker *p, enum prompt_end end, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
	/* Always false. */
bool prompt_no_memory(struct prompt_maker *p);          /* likewise */
bool prompt_body(struct prompt_maker *p, struct slice body, struct value *ret);
	/* Parses it: an object, or it is said that the engine refuses. */
bool prompt_take_salt(struct prompt_maker *p, struct value salt);
bool prompt_add_text(struct prompt_maker *p, struct slice text, const struct prompt_cut *cut);
	/* One more prompt: tokenizes. */
bool prompt_add_prefix(struct prompt_maker *p, struct slice text, size_t common,
		       const struct prompt_cut *cut);
	/* The same for a text of which only the first bytes are known to be the engine's. */
bool prompt_add_ids(struct prompt_maker *p, const uint32_t *id, size_t n,
		    const struct prompt_cut *cut);
bool prompt_add_id_list(struct prompt_maker *p, struct value list, const struct prompt_cut *cut);

/* lax.c: pydantic's lenient reading of scalars.  False: it would refuse. */
bool lax_bool(struct value v, bool absent, bool *ret);
bool lax_int(struct value v, int64_t *ret);             /* undefined and none: PROMPT_ABSENT */
bool lax_cut(struct prompt_maker *p, struct value body, struct prompt_cut *cut);
	/* truncate_prompt_tokens, truncation_side, add_special_tokens (cut: its default). */
bool lax_output(struct prompt_maker *p, const char *name, struct value most, int64_t absent,
		struct prompt_cut *cut);
	/* Tokens of answer that are asked for by that name, into cut->max_output. */

/* tools.c */
bool tools_dump(struct prompt_maker *p, struct value tools, struct value *ret);
	/* A chat request's tools as pydantic dumps them. */
bool tools_one(struct prompt_maker *p, struct value function, struct value outer_defer,
	       struct value *ret);
	/* {"type": "function", "function": {name, description, parameters ...}} of a function's
	 * members. */
bool tools_chosen(struct prompt_maker *p, struct value body, struct value tools, bool *ret_none);
	/* tool_choice: refused ones; *ret_none: it is "none". */
bool tools_normal_calls(struct prompt_maker *p, struct value calls, struct value *ret);
	/* An assistant's tool_calls as the template sees them: arguments parsed. */
struct value tools_arguments(struct prompt_maker *p, struct value arguments);
	/* A JSON object's text, parsed; anything else is {}.  Undefined: no memory. */

/* chat.c, responses.c, messages_api.c: bodies to asks. */
bool chat_ask(struct prompt_maker *p, struct value body, struct prompt_ask *ret);
bool chat_tokenize_ask(struct prompt_maker *p, struct value body, struct prompt_ask *ret);
bool responses_ask(struct prompt_maker *p, struct value body, struct prompt_ask *ret);
bool messages_ask(struct prompt_maker *p, struct value body, bool counting,
		  struct prompt_ask *ret);
bool chat_effort(struct prompt_maker *p, struct value effort, struct value kwargs,
		 struct prompt_ask *ask);
bool chat_kwargs(struct prompt_maker *p, struct value body, struct prompt_ask *ask);

/* conversation.c */
struct conversation {
	struct value messages;          /* list: what the template sees */
	struct value marked;            /* the same with the first medium marked; undefined: none */
};
bool conversation_make(struct prompt_maker *p, const struct prompt_ask *ask, bool openai,
		       bool developer, struct conversation *ret);
	/* openai: content is a list of parts.  developer: the template knows that role. */

/* render.c */
bool render_ask(struct prompt_maker *p, const struct prompt_ask *ask);
bool render_context(struct prompt_maker *p, struct value context);

/* completions.c: each adds its prompts. */
bool completions_add(struct prompt_maker *p, struct slice body);
bool embeddings_add(struct prompt_maker *p, struct slice body);
bool tokenize_add(struct prompt_maker *p, struct slice body);
bool generate_add(struct prompt_maker *p, struct slice body);
