/* actors/common/decide/explain.h -- a decision record as people and programs read it.
 *
 * Meaning    the JSON form names every number with its unit and every code by its word; what was
 *            unknown is null, never 0.  The text form is made from it, one candidate a line.
 * Input      one DECISION record as journal_read copied it, of this layout; checked before use.
 * Ownership  *ret is the caller's (json_decref).   Threads  any.   Never on the request path.
 */
#pragma once
#include <jansson.h>
#include <stddef.h>
#include <stdio.h>

#include "shm/journal.h"
#include "shm/rows.h"

int explain_decision(const void *record, size_t len, const struct rows *rows, json_t **ret);
	/* rows names the workers; NULL, or a row that has changed hands since: the number alone.
	 * 0; -EBADMSG: no decision record; -ENOMEM. */
void explain_print(FILE *to, const json_t *decision);
