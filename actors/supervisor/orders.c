/* actors/supervisor/orders.c -- what the operator ordered in haste: freeze, provider disable.
 *
 * In force when the answer is sent: a word of the roster, a word of the rows that everybody looks
 * at before he sends.  An order outlives reloads, and us: <run>/orders has one a line, `freeze NS
 * WHY` or `disable NAME`, and a successor that cannot read that file does not start.
 */
#include "actors/supervisor/supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void
path_of(const struct supervisor *s, char buf[RUN_DIR_MAX + 32], const char *name)
{
	snprintf(buf, RUN_DIR_MAX + 32, "%.*s/%s", (int)RUN_DIR_MAX, s->options.run_dir, name);
}

static void
time_text(wall_ns at, char *buf, size_t cap)
{
	time_t t = (time_t)(at / 1000000000u);
	struct tm tm;

	gmtime_r(&t, &tm);
	strftime(buf, cap, "%Y-%m-%dT%H:%M:%SZ", &tm);
}

/* One line of words: it stands in a file of lines, and in the log. */
static void
why_copy(char to[ROSTER_WHY_MAX], const char *from, size_t len)
{
	size_t n = 0;

	for (; n < len && n < ROSTER_WHY_MAX - 1; n++)
		to[n] = (unsigned char)from[n] < ' ' || from[n] == 0x7f ? ' ' : from[n];
	to[n] = 0;
}

static void
show(struct supervisor *s)
{
	struct roster_header *head = s->roster.head;

	memcpy(head->frozen_why, s->orders.why, sizeof head->frozen_why);
	atomic_store_explicit(&head->frozen, s->orders.frozen, memory_order_release);
	supervisor_roster_touch(s);
}

static int
save(const struct supervisor *s)
{
	char path[RUN_DIR_MAX + 32], fresh[RUN_DIR_MAX + 32];
	FILE *f;
	int fd, r = 0;

	path_of(s, path, "orders");
	path_of(s, fresh, "orders.new");
	fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	f = fd < 0 ? NULL : fdopen(fd, "w");
	if (!f) {
		r = -errno;
		if (fd >= 0)
			close(fd);
		return r;
	}
	if (s->orders.frozen)
		fprintf(f, "freeze %" PRIu64 " %s\n", s->orders.frozen, s->orders.why);
	for (unsigned i = 0; i < s->orders.n_disabled; i++)
		fprintf(f, "disable %s\n", s->orders.disabled[i]);
	if (fflush(f) != 0 || fsync(fd) < 0)
		r = -errno;
	if (fclose(f) != 0 && r == 0)
		r = -errno;
	if (r == 0 && rename(fresh, path) < 0)
		r = -errno;
	return r;
}

static bool
line_take(struct orders *o, char *line)
{
	static const char freeze[] = "freeze ", disable[] = "disable ";
	char *end;

	line[strcspn(line, "\n")] = 0;
	if (strncmp(line, freeze, sizeof freeze - 1) == 0) {
		o->frozen = strtoull(line + sizeof freeze - 1, &end, 10);
		if (o->frozen == 0 || *end != ' ')
			return false;
		why_copy(o->why, end + 1, strlen(end + 1));
		return true;
	}
	if (strncmp(line, disable, sizeof disable - 1) != 0 || o->n_disabled == ORDERS_MAX)
		return false;
	line += sizeof disable - 1;
	if (!*line || strlen(line) > MANIFEST_NAME_MAX)
		return false;
	memcpy(o->disabled[o->n_disabled++], line, strlen(line) + 1);
	return true;
}

int
orders_open(struct supervisor *s, const char **why)
{
	char path[RUN_DIR_MAX + 32], line[512];
	int fd, r = 0;
	FILE *f;

	*why = "cannot read the operator's orders (freeze, disable) in the run directory: mend "
	       "or remove the file `orders` there";
	path_of(s, path, "orders");
	fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	f = fdopen(fd, "r");
	if (!f) {
		r = -errno;
		close(fd);
		return r;
	}
	while (r == 0 && fgets(line, sizeof line, f))
		if (!line_take(&s->orders, line))
			r = -EBADMSG;
	if (ferror(f))
		r = -EIO;
	fclose(f);
	if (r < 0)
		return r;
	if (s->orders.frozen)
		log_warn("orders: frozen (%s): reloads are refused until pointsctl policy thaw",
			 s->orders.why);
	for (unsigned i = 0; i < s->orders.n_disabled; i++)
		log_warn("orders: provider %s is disabled until pointsctl provider enable",
			 s->orders.disabled[i]);
	show(s);
	return 0;
}

bool
orders_frozen(const struct supervisor *s, char *buf, size_t cap)
{
	char since[32];

	if (!s->orders.frozen)
		return false;
	time_text(s->orders.frozen, since, sizeof since);
	snprintf(buf, cap, "policies are frozen since %s (%s): nothing is loaded until pointsctl "
		 "policy thaw", since, s->orders.why);
	return true;
}

bool
orders_disabled(const struct supervisor *s, const char *provider)
{
	for (unsigned i = 0; i < s->orders.n_disabled; i++)
		if (strcmp(s->orders.disabled[i], provider) == 0)
			return true;
	return false;
}

/* Says what was done, everywhere it is to be seen, and keeps it. */
static void
done(struct supervisor *s, char *text, size_t cap)
{
	size_t n = strlen(text);
	int r;

	log_warn("orders: %s", text);
	generation_note(s, s->reload.serving, true, text);
	r = save(s);
	if (r < 0 && n < cap)
		snprintf(text + n, cap - n, "\nbut it cannot be kept for a successor of the "
			 "supervisor: writing `orders` in the run directory: %s", strerror(-r));
}

bool
orders_freeze(struct supervisor *s, const struct msg_policy_freeze *m, char *text, size_t cap)
{
	bool was = s->orders.frozen != 0;

	if (!m->frozen) {
		s->orders.frozen = 0;
		s->orders.why[0] = 0;
		show(s);
		snprintf(text, cap, "policies are %s: reloads are taken again",
			 was ? "thawed" : "not frozen");
		done(s, text, cap);
		return true;
	}
	why_copy(s->orders.why, m->why.len ? m->why.p : "no reason given",
		 m->why.len ? m->why.len : strlen("no reason given"));
	s->orders.frozen = clock_wall();
	show(s);
	generation_stop(s);
	snprintf(text, cap, "policies are frozen (%s): SIGHUP and reload are refused until "
		 "pointsctl policy thaw%s", s->orders.why,
		 s->reload.state == RELOAD_SWITCHING ?
		 "; a switch that had begun before is brought to its end" : "");
	done(s, text, cap);
	return true;
}

static bool
known(const struct supervisor *s, const char *name, const char **ret_nearest)
{
	for (unsigned i = 0; i < CONFIGS_MAX; i++) {
		const struct manifest *m = s->config[i].manifest;

		for (uint32_t k = 0; s->config[i].generation && k < m->n_providers; k++) {
			const char *there = m->providers[k].name;

			if (strcmp(there, name) == 0)
				return true;
			if (yaml_nearest(name, &there, 1))
				*ret_nearest = there;
		}
	}
	return false;
}

static bool
disable(struct supervisor *s, const char *name, char *text, size_t cap)
{
	struct orders *o = &s->orders;
	const char *nearest = NULL;

	if (!known(s, name, &nearest)) {
		snprintf(text, cap, "there is no provider \"%s\" in the configuration in "
			 "force%s%s%s", name,
			 nearest ? "; did you mean \"" : ": pointsctl workers lists them",
			 nearest ? nearest : "", nearest ? "\"?" : "");
		return false;
	}
	if (!orders_disabled(s, name)) {
		if (o->n_disabled == ORDERS_MAX) {
			snprintf(text, cap, "%u providers are disabled already: enable one, or "
				 "take this one out of the documents", ORDERS_MAX);
			return false;
		}
		snprintf(o->disabled[o->n_disabled++], sizeof o->disabled[0], "%s", name);
	}
	fleet_disable(s, name, true);
	snprintf(text, cap, "provider %s is disabled: nothing is sent there, over reloads too, "
		 "until pointsctl provider enable %s; what was sent before runs to its end", name,
		 name);
	return true;
}

static bool
enable(struct supervisor *s, const char *name, char *text, size_t cap)
{
	struct orders *o = &s->orders;
	const char *nearest = NULL;
	bool was = orders_disabled(s, name);

	if (!was && !known(s, name, &nearest)) {
		snprintf(text, cap, "there is no provider \"%s\", and none of that name is "
			 "disabled: stat lists those that are", name);
		return false;
	}
	for (unsigned i = 0; i < o->n_disabled; i++)
		if (strcmp(o->disabled[i], name) == 0) {
			memmove(o->disabled[i], o->disabled[i + 1],
				(o->n_disabled - i - 1) * sizeof o->disabled[0]);
			o->n_disabled--;
			break;
		}
	fleet_disable(s, name, false);
	snprintf(text, cap, "provider %s is %s", name, was ? "enabled" : "not disabled");
	return true;
}

bool
orders_disable(struct supervisor *s, const struct msg_provider_disable *m, char *text, size_t cap)
{
	char name[MANIFEST_NAME_MAX + 1];
	bool ok;

	if (m->name.len == 0 || m->name.len > MANIFEST_NAME_MAX) {
		snprintf(text, cap, "a provider's name has 1 to %u characters", MANIFEST_NAME_MAX);
		return false;
	}
	snprintf(name, sizeof name, "%.*s", (int)m->name.len, m->name.p);
	ok = m->disabled ? disable(s, name, text, cap) : enable(s, name, text, cap);
	if (ok)
		done(s, text, cap);
	return ok;
}
