/* actors/policy/waiting.h -- questions of one policy process that cannot be answered yet.
 *
 * A question waits because the process may not decide yet (before OPEN and every RESENT, or 100
 * ms), or because its token ids are being fetched or made.  Oldest first.  A newer question for a
 * slot replaces the older one; a cancel takes it out.  A cancel waits here itself while a thread
 * reads the bytes that it asks back (aside.h).
 * Threads    one.   Bound: what the ingresses may have outstanding.
 */
#pragma once
#include "actors/policy/held.h"
#include "actors/policy/tokencache.h"
#include "actors/policy/view.h"
#include "proto/messages.h"

struct waiting {
	struct view_ingress *from;              /* borrowed: waiting_forget before it goes */
	struct msg_ask ask;
	mono_ns asked_ns;
	bool for_tokens;                        /* false: for leave to decide */
	bool cancel;                            /* no question: `cancelled` is owed */
	bool tokens_failed;                     /* it waits for something else, and not for ids */
	struct token_key key;                   /* for_tokens: of the ids that are being fetched */
	struct held held;                       /* it is held, and its ids went; .from NULL: not */
};

struct waiting_list {
	struct waiting *list;                   /* owned; in order of arrival */
	size_t n, cap;
};

int waiting_add(struct waiting_list *w, const struct waiting *question);        /* 0, -ENOMEM */
void waiting_take(struct waiting_list *w, const struct view_ingress *from, uint32_t slot);
	/* Out, if there is a question for that slot. */
void waiting_forget(struct waiting_list *w, const struct view_ingress *from);
	/* All of that ingress. */
bool waiting_first(struct waiting_list *w, bool for_tokens, const struct token_key *key,
		   struct waiting *ret);
	/* Takes the oldest of that kind out; key NULL: any. */
void waiting_free(struct waiting_list *w);
