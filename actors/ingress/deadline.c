/* actors/ingress/deadline.c -- see deadline.h. */
#include "actors/ingress/deadline.h"

static void
fire(void *arg, int result)
{
	struct deadline *d = arg;
	uint64_t due = d->due_ns;

	(void)result;
	d->op = NULL;
	if (due == 0)
		return;
	if (due > d->armed_ns && due > io_now(d->io)) {
		deadline_set(d, due);
		return;
	}
	d->due_ns = 0;
	d->f(d->arg);
}

void
deadline_init(struct deadline *d, struct io *io, void (*f)(void *arg), void *arg)
{
	*d = (struct deadline){.io = io, .f = f, .arg = arg};
}

void
deadline_set(struct deadline *d, uint64_t due_ns)
{
	d->due_ns = due_ns;
	if (due_ns == 0 || (d->op && d->armed_ns <= due_ns))
		return;
	if (d->op)
		io_cancel(d->io, d->op);
	d->armed_ns = due_ns;
	d->op = io_timer(d->io, due_ns, fire, d);
}

void
deadline_stop(struct deadline *d)
{
	if (d->op)
		io_cancel(d->io, d->op);
	d->op = NULL;
	d->due_ns = 0;
}
