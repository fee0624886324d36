/* actors/supervisor/discovery.c -- sources of members, whatever their kind; see discovery.h. */
#include "actors/supervisor/discovery_private.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "actors/common/log.h"

#define EVENTS 16

int
discovery_new(struct discovery **ret)
{
	struct discovery *d = calloc(1, sizeof *d);
	struct epoll_event e = {.events = EPOLLIN};
	int r;

	if (!d)
		return -ENOMEM;
	d->inotify_fd = -1;
	d->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	r = d->epoll_fd < 0 ? -errno : dns_open();
	if (r == 0)
		r = file_open(d);
	if (r == 0 && epoll_ctl(d->epoll_fd, EPOLL_CTL_ADD, d->inotify_fd, &e) < 0)
		r = -errno;
	if (r < 0)
		discovery_free(&d);
	else
		*ret = d;
	return r;
}

static void
source_end(struct discovery *d, struct source *s)
{
	log_info("discovery set=%s %s: ended", s->set, s->label);
	dns_end(d, s);
	file_end(d, s);
	free(s->text);
	free(s);
}

void
discovery_free(struct discovery **ret)
{
	struct discovery *d = *ret;

	if (!d)
		return;
	*ret = NULL;
	while (d->sources) {
		struct source *s = d->sources;

		d->sources = s->next;           /* others look through the list as they end */
		source_end(d, s);
	}
	if (d->inotify_fd >= 0)
		close(d->inotify_fd);
	if (d->epoll_fd >= 0)
		close(d->epoll_fd);
	dns_close();
	free(d);
}

int
discovery_fd(const struct discovery *d)
{
	return d->epoll_fd;
}

/* ---- what a source says ---- */

void
source_fails(struct discovery *d, struct source *s, mono_ns now, const char *format, ...)
{
	char text[sizeof s->error];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	d->failures++;
	s->said = true;
	if (strcmp(text, s->error) == 0)
		return;                         /* said once, not every time */
	if (!s->error[0])
		s->state_ns = now;
	memcpy(s->error, text, sizeof s->error);
	log_error("discovery set=%s %s: %s; %s", s->set, s->label, s->error,
		  s->text ? "the members known last stay" : "no members are known yet");
}

void
source_says(struct discovery *d, struct source *s, const char *text, size_t len, mono_ns now)
{
	struct yaml_errors errs = {0};
	bool same = s->text && s->len == len && memcmp(s->text, text, len) == 0;
	const char *name = s->spec.source == MANIFEST_SOURCE_FILE ? s->spec.file : s->label;
	char *copy = NULL;
	int r = same ? 0 : manifest_found_check(name, text, len, &errs);

	if (r == 0 && !same)
		copy = malloc(len ? len : 1);
	if (r == -EINVAL) {
		const struct yaml_error *e = &errs.list[0];

		if (e->line)
			source_fails(d, s, now, "%.150s:%u:%u: %s", name, e->line, e->column,
				     e->text);
		else
			source_fails(d, s, now, "%.150s: %s", name, e->text);
		yaml_errors_free(&errs);
		return;
	}
	yaml_errors_free(&errs);
	if (r < 0 || (!same && !copy)) {
		source_fails(d, s, now, "out of memory");
		return;
	}
	if (s->error[0] || !s->said) {
		log_info("discovery set=%s %s: %s -> ok", s->set, s->label,
			 s->error[0] ? "failing" : "pending");
		s->state_ns = now;
	}
	s->error[0] = '\0';
	s->said = true;
	s->answered_ns = now;
	if (same)
		return;
	memcpy(copy, text, len);
	free(s->text);
	s->text = copy;
	s->len = len;
	s->changes++;
	d->changed = true;
}

/* ---- which sources there are ---- */

static struct source *
source_of(const struct discovery *d, const struct manifest_set *set)
{
	for (struct source *s = d->sources; s; s = s->next)
		if (strcmp(s->set, set->name) == 0 &&
		    manifest_same_source(&s->spec, &set->discovery))
			return s;
	return NULL;
}

/* Until a set's new source says something, the members known last stay: a path that is mistyped, or
 * a name nobody answers for, takes nobody away.  The newest of its sources is the first. */
static int
inherit(const struct discovery *d, struct source *s)
{
	const struct source *before = d->sources;

	while (before && !(before->text && strcmp(before->set, s->set) == 0))
		before = before->next;
	if (!before)
		return 0;
	s->text = malloc(before->len ? before->len : 1);
	if (!s->text)
		return -ENOMEM;
	memcpy(s->text, before->text, before->len);
	s->len = before->len;
	return 0;
}

static int
source_begin(struct discovery *d, const struct manifest_set *set)
{
	struct source *s = calloc(1, sizeof *s);
	mono_ns now = clock_mono();

	if (!s)
		return -ENOMEM;
	memcpy(s->set, set->name, sizeof s->set);
	s->spec = set->discovery;
	s->id = ++d->last_id;
	s->wd = s->wd_file = -1;
	s->wanted = true;
	s->state_ns = now;
	snprintf(s->label, sizeof s->label, "%s:%s", manifest_source_name(s->spec.source),
		 s->spec.source == MANIFEST_SOURCE_FILE ? s->spec.file : s->spec.dns.name);
	if (inherit(d, s) < 0) {
		free(s);
		return -ENOMEM;
	}
	s->next = d->sources;
	d->sources = s;
	log_info("discovery set=%s %s: begun", s->set, s->label);
	if (s->spec.source == MANIFEST_SOURCE_FILE)
		file_begin(d, s, now);
	else
		dns_begin(d, s, now);
	return 0;
}

int
discovery_want(struct discovery *d, const struct manifest *const *manifests, unsigned n)
{
	int r = 0;

	for (struct source *s = d->sources; s; s = s->next)
		s->wanted = false;
	for (unsigned i = 0; i < n; i++)
		for (uint32_t k = 0; k < manifests[i]->n_sets && r == 0; k++) {
			const struct manifest_set *set = &manifests[i]->sets[k];
			struct source *s;

			if (set->discovery.source == MANIFEST_SOURCE_NONE)
				continue;
			s = source_of(d, set);
			if (s)
				s->wanted = true;
			else
				r = source_begin(d, set);
		}
	for (struct source **at = &d->sources; *at;) {
		struct source *s = *at;

		if (s->wanted) {
			at = &s->next;
			continue;
		}
		*at = s->next;
		source_end(d, s);
	}
	return r;
}

/* ---- time and events ---- */

static struct source *
source_find(const struct discovery *d, uint32_t id)
{
	for (struct source *s = d->sources; s; s = s->next)
		if (s->id == id)
			return s;
	return NULL;
}

static void
step(struct discovery *d, mono_ns now)
{
	struct epoll_event e[EVENTS];
	int n = epoll_wait(d->epoll_fd, e, EVENTS, 0);

	for (int i = 0; i < n; i++) {
		uint32_t id = (uint32_t)(e[i].data.u64 >> 32);
		struct source *s = source_find(d, id);

		if (id == 0)
			file_events(d, now);
		else if (s && s->query)
			dns_ready(d, s, (int)(uint32_t)e[i].data.u64,
				  (e[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0,
				  (e[i].events & EPOLLOUT) != 0);
	}
	for (struct source *s = d->sources; s; s = s->next) {
		if (s->query)
			dns_ready(d, s, -1, false, false);      /* its own deadlines */
		if (!s->due_ns || now < s->due_ns)
			continue;
		if (s->spec.source == MANIFEST_SOURCE_FILE)
			file_due(d, s, now);
		else
			dns_due(d, s, now);
	}
}

bool
discovery_run(struct discovery *d, mono_ns now)
{
	bool changed;

	step(d, now);
	changed = d->changed;
	d->changed = false;
	return changed;
}

mono_ns
discovery_next(const struct discovery *d)
{
	mono_ns next = 0, now = clock_mono();

	for (const struct source *s = d->sources; s; s = s->next) {
		mono_ns at[2] = {s->due_ns, dns_next(s, now)};

		for (unsigned i = 0; i < 2; i++)
			if (at[i] && (!next || at[i] < next))
				next = at[i];
	}
	return next;
}

void
discovery_wait(struct discovery *d, mono_ns until)
{
	for (;;) {
		struct pollfd p = {.fd = d->epoll_fd, .events = POLLIN};
		mono_ns now = clock_mono(), next = discovery_next(d);
		bool all = true;

		for (const struct source *s = d->sources; s; s = s->next)
			all = all && s->said;
		if (all || now >= until)
			return;
		if (!next || next > until)
			next = until;
		poll(&p, 1, next <= now ? 0 : (int)((next - now) / DISCOVERY_MS + 1));
		step(d, clock_mono());
	}
}

/* ---- the manifest's side ---- */

unsigned
discovery_found(const struct discovery *d, const struct manifest *m, struct manifest_found *ret,
		unsigned cap)
{
	unsigned n = 0;

	for (uint32_t i = 0; i < m->n_sets && n < cap; i++) {
		const struct manifest_set *set = &m->sets[i];
		const struct source *s = set->discovery.source == MANIFEST_SOURCE_NONE
						 ? NULL
						 : source_of(d, set);

		if (s && s->text)
			ret[n++] = (struct manifest_found){
				.set = s->set, .text = s->text, .len = s->len,
				.source = s->spec.source == MANIFEST_SOURCE_FILE ? s->spec.file
										  : s->label};
	}
	return n;
}

void
discovery_judged(struct discovery *d, const struct manifest *m, const struct manifest_found *found,
		 unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		for (uint32_t k = 0; k < m->n_sets; k++) {
			const struct yaml_error *e =
				found[i].refused.n ? &found[i].refused.list[0] : NULL;
			struct source *s = strcmp(m->sets[k].name, found[i].set) == 0
						   ? source_of(d, &m->sets[k])
						   : NULL;
			char text[sizeof s->refused] = "";

			if (!s)
				continue;
			s->taken = found[i].taken;
			s->not_taken = found[i].not_taken;
			if (e)
				snprintf(text, sizeof text, "%.100s:%u:%u: %s", e->file, e->line,
					 e->column, e->text);
			if (text[0] && strcmp(text, s->refused) != 0)
				log_error("discovery set=%s %s: %u members not taken, the others "
					  "are; first %s",
					  s->set, s->label, s->not_taken, text);
			memcpy(s->refused, text, sizeof s->refused);
		}
}

static unsigned
state_of(const struct source *s)
{
	return s->error[0] ? SOURCE_FAILING : s->said ? SOURCE_OK : SOURCE_PENDING;
}

struct discovery_sum
discovery_show(const struct discovery *d, struct roster *roster)
{
	struct discovery_sum sum = {.failures = d->failures};
	unsigned i = 0;

	for (const struct source *s = d->sources; s; s = s->next) {
		struct roster_source *to = i < ROSTER_SOURCES ? &roster->source[i++] : NULL;

		sum.sources++;
		sum.failing += s->error[0] != '\0';
		sum.not_taken += s->not_taken + s->cut;
		if (!to)
			continue;
		to->taken = s->taken;
		to->not_taken = s->not_taken + s->cut;
		to->changes = s->changes;
		to->since_ns = s->state_ns;
		to->answered_ns = s->answered_ns;
		snprintf(to->set, sizeof to->set, "%s", s->set);
		snprintf(to->source, sizeof to->source, "%.159s", s->label);
		snprintf(to->text, sizeof to->text, "%s", s->error[0] ? s->error : s->refused);
		atomic_store_explicit(&to->state, state_of(s), memory_order_release);
	}
	for (; i < ROSTER_SOURCES; i++)
		atomic_store_explicit(&roster->source[i].state, SOURCE_EMPTY, memory_order_release);
	return sum;
}
