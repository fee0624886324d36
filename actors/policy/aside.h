/* actors/policy/aside.h -- large bodies are read, and made into tokens, beside the loop.
 *
 * Question   What the view and the tokens of a body of 20 MB are, without any other question
 *            waiting for it.
 * Job        one a slot: first the view (openai_view_parse), by which the loop finds the model;
 *            then, if it wants them, the ids (native.h).  Kept until aside_done.
 * Order      ASIDE_THREADS threads, a job at a time each.  Clients take turns: who has had the
 *            fewest lately is next, however many it has waiting; of one client the oldest first.
 *            Threads run on whatever CPU is free and behind the loop where none is.
 * Bounds     who waits longer than ASIDE_LATE_NS is decided without; ids that take longer are not
 *            made to their end, and the question is answered by what is known.  What nobody wants
 *            any more ends soon: when one pass over the body is over.
 * Bytes      are read where they lie, in the slot's region, while a job runs: it must stay until
 *            aside_drop or aside_collect say that nobody reads it; of an ingress that died, until
 *            let_go.
 * Ownership  a job's results are its own until aside_done or aside_drop.
 * Threads    one calls; those in here touch nothing but the job they were given.
 */
#pragma once
#include <czmq.h>
#include <stdatomic.h>

#include "actors/common/tags/tags.h"
#include "actors/policy/native.h"
#include "actors/policy/tokencache.h"
#include "actors/policy/view.h"
#include "proto/openai.h"

#define ASIDE_THREADS 2u
#define ASIDE_BYTES   65536u            /* bodies from here on; less is read in the loop's turn */
#define ASIDE_LATE_NS 3000000000ull     /* three of them are below timeouts.policyAnswer */

enum aside_state {
	ASIDE_READING,                  /* its view is being made, or waits for a thread */
	ASIDE_READ,
	ASIDE_MAKING,                   /* its ids are, or wait */
	ASIDE_MADE,
};

struct aside_job {
	struct aside_job *next;
	struct view_ingress *from;      /* borrowed; as slot and slot_gen, whose it is */
	uint32_t slot, slot_gen;
	enum openai_route route;
	struct slice body;
	enum aside_state state;
	bool running;                   /* a thread has it */
	bool dropped;                   /* nobody wants it any more */
	atomic_bool stop;               /* said to the thread: come to an end */
	uint8_t client[16];
	uint64_t turn;
	mono_ns since_ns;               /* it waits for a thread, or has one */
	struct openai_view view;        /* READ on, where read is 0 */
	int read;                       /* of openai_view_parse */
	const char *why;                /* likewise */
	bool may_hit;                   /* of prompt_may_hit, which reads all of it once more */
	mono_ns read_ns;                /* when that was done */
	bool tagged;                    /* likewise: and its texts were searched for tags */
	struct tags_found tags;
	const struct model *model;      /* MAKING on */
	struct native_made made;        /* MADE; its ids are the job's */
	uint32_t *ids;                  /* owned */
};

struct aside;

int aside_new(struct aside **ret, struct native *native,
	      void (*let_go)(struct view_ingress *ingress));
	/* let_go: of one that left, once.  0, -ENOMEM. */
int aside_tagging(struct aside *a, const struct tags *tags);
	/* Bodies are searched for these, too; borrowed until aside_free.  Before any body comes.
	 * 0, -ENOMEM. */
void aside_free(struct aside **ret);
zsock_t *aside_socket(struct aside *a, unsigned thread);
	/* Readable when aside_collect has something; borrowed.  ASIDE_THREADS of them. */

struct token_key aside_key(const struct view_ingress *from, uint32_t slot, uint32_t slot_gen);
	/* What its questions wait for. */
struct aside_job *aside_find(struct aside *a, const struct view_ingress *from, uint32_t slot,
			     uint32_t slot_gen);
	/* NULL: none. */
struct aside_job *aside_read(struct aside *a, struct view_ingress *from, uint32_t slot,
			     uint32_t slot_gen, enum openai_route route, struct slice body,
			     const uint8_t client[16]);
	/* Begin with its view.  NULL: no memory. */
void aside_make(struct aside *a, struct aside_job *job, const struct model *model);
	/* Go on with its ids; it is READ. */
bool aside_collect(struct aside *a, struct token_key *ret_key, bool *ret_dropped);
	/* One job is READ or MADE; dropped: it is gone, and its bytes are read by nobody now. */
bool aside_late(struct aside *a, mono_ns now, struct token_key *ret_key);
	/* One that no thread has come to for ASIDE_LATE_NS is gone: decide without.  A thread that
	 * makes ids for so long is stopped besides. */

void aside_done(struct aside *a, struct aside_job *job);        /* its question is answered */
bool aside_drop(struct aside *a, const struct view_ingress *from, uint32_t slot,
		struct token_key *ret_key);
	/* Its question is taken back.  True: a thread reads its bytes yet; aside_collect will tell
	 * when not, under *ret_key. */
void aside_leave(struct aside *a, struct view_ingress *from);
	/* All of that ingress, which is dead: takes it, and lets it go when no thread reads there,
	 * now or in aside_collect. */
void aside_end(struct aside *a);
	/* All of everybody: when it returns nobody reads. */
