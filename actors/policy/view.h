/* actors/policy/view.h -- shared memory as the policy process sees it, all of it read-only.
 *
 * The manifest it was born with, with the members found by now, the worker table, the prefix
 * index, and per ingress incarnation the column of in-flight cells, the slots and the arena.
 * Beside them what only this process remembers, rebuilt within two scrapes by its successor: where
 * each member's row is, and how much of what an engine reports is not ours.
 *
 * Not ours   scraped waiting and running less our own requests at the moment of that scrape
 *            (view_tick sees a scrape within one tick), the lesser of the last two scrapes: a
 *            request that came or went in between is not taken for a stranger.
 * Turned     a worker that sent somebody away (cell.h enum cell_turn: not reached, broke off, 503,
 *            begins to close connections) is suspect from that moment on, for every decision,
 *            until a scrape taken since says that it lives, or for VIEW_TURNED_MS: sooner than its
 *            health probes would have it.
 * Ownership  the view owns rows, index and ingress views; the manifest is borrowed.
 * Threads    one.
 */
#pragma once
#include <stdint.h>

#include "actors/common/secrets.h"
#include "actors/policy/overlay.h"
#include "shm/arena.h"
#include "shm/cell.h"
#include "shm/index.h"
#include "shm/pins.h"
#include "shm/rows.h"
#include "shm/slot.h"

#define VIEW_TURNED_MS  3000u           /* one that sent us away is given another chance then */
#define VIEW_SIGHT_NS   250000000ull    /* a scrape seen later says nothing of strangers */

struct view_ingress {                   /* one ingress incarnation */
	uint32_t index, incarnation;
	struct column column;
	struct slots slots;
	struct arena arena;
	struct overlay_stream *stream;  /* answers to it that are not applied yet */
};

struct view_memory {                    /* of one row */
	uint32_t row_gen;
	mono_ns sampled_ns;             /* the newest scrape looked at */
	uint32_t waiting[2], running[2];/* strangers' requests; [1] is the newer scrape */
};

struct view {
	const struct secrets *trust;            /* borrowed; NULL: none */
	const struct manifest *manifest;
	struct rows rows;
	struct index *index;
	struct pins pins;               /* .bucket NULL: nothing is known of responses */
	uint64_t rows_version;          /* row_of is of this version */
	uint16_t *row_of;               /* by member; ROW_NONE: not in the table */
	struct view_memory *memory;     /* by row */
	struct view_ingress **ingress;
	unsigned n_ingress, cap_ingress;
	struct view_sum *sum;           /* by row: what its cells added up to when last read .. */
	uint64_t *seen;                 /* .. at these words: row * cap_ingress + ingress */
	uint32_t set;                   /* +1 whenever ingress[] changes; never 0 */
	struct overlay *overlay;
	uint32_t policy_inc;            /* ours: the watermarks that count */
};

struct view_load {                      /* sums over the live columns, and the overlay */
	uint32_t pending, prefilling, context, decoding;
	uint32_t oldest_dispatch_ms, last_first_ms;     /* ages; PREDICT_NEVER */
	uint32_t last_pick;
	uint32_t turned;                                /* cell_turned(), the newest; 0 */
};

int view_open(struct view *ret, const struct manifest *manifest, uint32_t policy_inc,
	      struct rows *rows, struct index **index);
	/* Takes rows and index on success.  0, -ENOMEM. */
void view_close(struct view *view);
int view_add(struct view *view, struct view_ingress **ingress);
	/* Takes *ingress (malloc'd, its three segments attached) and opens its stream.  0,
	 * -ENOMEM. */
void view_remove(struct view *view, struct view_ingress *ingress);
	/* Discards its stream, unmaps and frees it. */
void view_take(struct view *view, struct view_ingress *ingress);
	/* The first half of that: it counts no more, and is the caller's. */
void view_ingress_free(struct view_ingress *ingress);           /* the second */
struct view_ingress *view_find(const struct view *view, uint32_t incarnation);  /* NULL */

int view_documents(struct view *view, const struct manifest *manifest);
	/* Other members, otherwise the same documents; borrowed like the first.  0; -ENOMEM: as
	 * before. */
void view_refresh(struct view *view);   /* before a decision: follow the worker table's version */
void view_tick(struct view *view, mono_ns now);         /* every VIEW_SIGHT_NS / 2 or so */
void view_settle(struct view *view);
	/* The watermarks, which must be read before any cell of the same decision. */
void view_load(const struct view *view, uint16_t row, uint32_t row_gen, uint32_t now_ms,
	       bool with_overlay, struct view_load *ret);
void view_strangers(const struct view *view, uint16_t row, uint32_t row_gen, uint32_t *ret_waiting,
		    uint32_t *ret_running);
bool view_turned(uint32_t turned, mono_ns sampled_ns, mono_ns now);
	/* It sent somebody away since that scrape, less than VIEW_TURNED_MS ago. */
