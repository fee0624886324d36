/* actors/ingress/poison.c -- see poison.h. */
#include "actors/ingress/poison.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

void
poisons_open(struct poisons *ret, struct column *own)
{
	*ret = (struct poisons){.own = own};
}

void
poisons_close(struct poisons *p)
{
	for (unsigned i = 0; i < p->n; i++)
		column_detach(&p->other[i].column);
	free(p->other);
	*p = (struct poisons){0};
}

int
poisons_ingress(struct poisons *p, uint32_t incarnation, int fd)
{
	int r;

	for (unsigned i = 0; i < p->n; i++)
		if (p->other[i].incarnation == incarnation) {           /* told twice */
			close(fd);
			return 0;
		}
	if (p->n == p->cap) {
		unsigned cap = p->cap ? p->cap * 2 : 8;
		struct poisons_other *grown = realloc(p->other, cap * sizeof *grown);

		if (!grown) {
			close(fd);
			return -ENOMEM;
		}
		p->other = grown;
		p->cap = cap;
	}
	r = column_attach(&p->other[p->n].column, fd, false);
	if (r < 0)
		return r;
	p->other[p->n++].incarnation = incarnation;
	return 0;
}

void
poisons_gone(struct poisons *p, uint32_t incarnation, mono_ns now)
{
	for (unsigned i = 0; i < p->n; i++) {
		if (p->other[i].incarnation != incarnation)
			continue;
		poison_copy(&p->kept, &p->other[i].column.head->poison, now);
		column_detach(&p->other[i].column);
		p->other[i] = p->other[--p->n];
		return;
	}
}

void
poisons_add(struct poisons *p, uint64_t body_hash, mono_ns now)
{
	poison_add(&p->own->head->poison, body_hash, now + POISON_NS);
}

bool
poisons_has(const struct poisons *p, uint64_t body_hash, mono_ns now)
{
	bool has = poison_has(&p->own->head->poison, body_hash, now) ||
		   poison_has(&p->kept, body_hash, now);

	for (unsigned i = 0; i < p->n && !has; i++)
		has = poison_has(&p->other[i].column.head->poison, body_hash, now);
	return has;
}
