/* actors/kvevents/apply_ranks.c -- whose batch this is: ranks behind a member's endpoints. */
#include "actors/kvevents/apply_row.h"

#include <string.h>

#include "actors/common/log.h"

/* The endpoint of this row speaks for no other rank any more. */
void
ranks_feed_end(struct apply *a, uint16_t id)
{
	for (uint32_t i = 0; i < a->rows->capacity; i++)
		if (a->row[i] && a->row[i]->feeder == id)
			row_moved(a, a->row[i]);
}

/* The row of the same member with that rank; NULL: none. */
static struct apply_row *
sibling_find(struct apply *a, struct apply_row *r, uint32_t rank)
{
	const struct row_text *text = a->rows->text;
	struct apply_row *s;

	s = r->sibling.id != ROW_NONE && r->sibling.rank == rank ? a->row[r->sibling.id] : NULL;
	if (s && s->row_gen == r->sibling.row_gen)
		return s;
	for (uint32_t i = 0; i < rows_count(a->rows); i++) {
		s = a->row[i];
		if (!s || s->shared->rank != rank || s->shared->ranks <= 1 ||
		    strcmp(text[i].set, text[r->id].set) != 0 ||
		    strcmp(text[i].member, text[r->id].member) != 0)
			continue;
		r->sibling.rank = rank;
		r->sibling.id = s->id;
		r->sibling.row_gen = s->row_gen;
		return s;
	}
	return NULL;
}

/* Whose batch has just been read from r's endpoint: identity is the member, as the connection says,
 * and the rank, as the batch says; unsaid, the connection's.  One endpoint may speak for other
 * ranks of its member, as long as theirs do not: the same stream from two would be out of order.
 * NULL: nobody's. */
struct apply_row *
ranks_row(struct apply *a, struct apply_row *r)
{
	const struct kv_batch *b = &a->batch;
	struct apply_row *s = r;

	if (!b->has_rank || r->shared->ranks <= 1 || b->rank == r->shared->rank) {
		if (r->feeder != ROW_NONE)
			row_moved(a, r);
		r->own_heard = true;
		return r;
	}
	s = sibling_find(a, r, b->rank);
	if (s && !s->own_heard && (s->feeder == ROW_NONE || s->feeder == r->id)) {
		s->feeder = r->id;
		return s;
	}
	row_trouble(r, TROUBLE_RANK, b->rank, 1);
	if (!r->rank_told)
		log_error("batches of rank %u came from the endpoint of rank %u row=%u "
			  "member=%.63s; ignored: %s",
			  b->rank, r->shared->rank, r->id, a->rows->text[r->id].member,
			  s ? "that rank has an endpoint of its own" : "it has no such rank");
	r->rank_told = true;
	return NULL;
}

