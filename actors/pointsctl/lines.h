/* actors/pointsctl/lines.h -- one line a request: its outcome, joined with its decision.
 *
 * Meaning    Decisions are kept until their outcome comes, at most LINES_KEPT (the newest); an
 *            outcome whose decision is not there is shown without it.  Table form: what was
 *            predicted stands in brackets beside what was.  JSON form: the outcome's object with
 *            "decision" in it.
 * Ownership  rows is borrowed and names the workers.   Threads  one.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "shm/journal.h"
#include "shm/rows.h"

#define LINES_KEPT 16384u               /* a slot each; request ids of one ingress never collide */

struct lines;
int lines_open(struct lines **ret, FILE *to, bool json);        /* 0, -ENOMEM */
void lines_close(struct lines **lines);
void lines_decision(struct lines *lines, const void *record, size_t len);
void lines_outcome(struct lines *lines, const void *record, size_t len, const struct rows *rows);
	/* Prints it; the heading before the first. */
