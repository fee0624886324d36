/* actors/pointsctl/log.c -- `log`: the requests that ended, one a line, live with -f. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "actors/pointsctl/control.h"
#include "actors/pointsctl/feed.h"
#include "actors/pointsctl/lines.h"
#include "actors/pointsctl/pointsctl.h"

#define LOG_LINES       20u             /* without -n */
#define LOG_TURN_MS     50

struct outcome {
	wall_ns when;
	size_t len;
	void *record;                           /* owned */
};

struct batch {                          /* the outcomes of one turn */
	struct outcome *list;
	size_t n, cap;
};

static void
on_outcome(void *arg, const struct pm_view_process *from, const void *record, size_t len)
{
	const struct journal_record *head = record;
	struct batch *b = arg;
	void *copy;

	(void)from;
	if (head->kind != JOURNAL_OUTCOME)
		return;
	if (b->n == b->cap) {
		size_t cap = b->cap ? b->cap * 2 : 1024;
		struct outcome *more = realloc(b->list, cap * sizeof *more);

		if (!more)
			return;
		b->list = more;
		b->cap = cap;
	}
	copy = malloc(len);
	if (!copy)
		return;
	memcpy(copy, record, len);
	b->list[b->n++] = (struct outcome){head->when, len, copy};
}

static void
on_decision(void *arg, const struct pm_view_process *from, const void *record, size_t len)
{
	(void)from;
	if (((const struct journal_record *)record)->kind == JOURNAL_DECISION)
		lines_decision(arg, record, len);
}

static int
by_time(const void *a, const void *b)
{
	const struct outcome *x = a, *y = b;

	return x->when < y->when ? -1 : x->when > y->when;
}

/* Outcomes are read first: whatever decided them is then in the journals. */
static void
turn(struct feed *feed, const struct pm_view *view, struct lines *lines, size_t most)
{
	struct batch b = {0};
	size_t first;

	feed_turn(feed, view, ROLE_INGRESS, on_outcome, &b);
	feed_turn(feed, view, ROLE_POLICY, on_decision, lines);
	if (b.n > 0)
		qsort(b.list, b.n, sizeof *b.list, by_time);
	first = b.n > most ? b.n - most : 0;
	for (size_t i = 0; i < b.n; i++) {
		if (i >= first)
			lines_outcome(lines, b.list[i].record, b.list[i].len, &view->rows);
		free(b.list[i].record);
	}
	free(b.list);
	fflush(stdout);
}

int
command_log(const struct options *o)
{
	struct lines *lines = NULL;
	struct feed feed = {0};
	struct pm_view view;
	const char *why;
	int sock = control_connect(o->run_dir, &why), r;

	pm_view_init(&view);
	r = sock < 0 ? sock : control_attach(sock, &view, &why);
	if (r < 0 || lines_open(&lines, stdout, o->json) < 0) {
		complain("%s: %s", o->run_dir, r < 0 ? why : "out of memory");
		pm_view_close(&view);
		if (sock >= 0)
			close(sock);
		return 1;
	}
	turn(&feed, &view, lines, o->n ? o->n : LOG_LINES);
	while (o->follow && !ferror(stdout)) {
		uint64_t lost = feed.lost;

		r = control_turn(sock, &view, LOG_TURN_MS);
		turn(&feed, &view, lines, SIZE_MAX);
		if (feed.lost > lost)
			complain("too slow: %llu bytes of journal were overwritten unread",
				 (unsigned long long)(feed.lost - lost));
		if (r == -EPIPE) {
			complain("pointsman ended");
			break;
		}
	}
	lines_close(&lines);
	feed_close(&feed);
	pm_view_close(&view);
	close(sock);
	return 0;
}
