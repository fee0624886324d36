/* actors/supervisor/discovery_file.c -- members in a file, through all its replacements. */
#include "actors/supervisor/discovery_private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOOK_NS		(5000 * DISCOVERY_MS) /* others' writes, which cannot be watched */
#define SETTLE_NS	(20 * DISCOVERY_MS)   /* a replacement is several events */
#define CREATED_NS	(200 * DISCOVERY_MS)  /* a file that has just been made is still empty */
#define WRITING_NS	(1000 * DISCOVERY_MS) /* a writer that is silent for so long is gone */
/* A link's target may be in another folder, and rewritten there. */
#define WATCHED_FILE (IN_CLOSE_WRITE | IN_MODIFY | IN_MASK_ADD)
#define WATCHED                                                                                    \
	(IN_CLOSE_WRITE | IN_MODIFY | IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO |        \
	 IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR)
#define GONE (IN_DELETE_SELF | IN_MOVE_SELF | IN_IGNORED | IN_UNMOUNT)

int
file_open(struct discovery *d)
{
	d->inotify_fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	return d->inotify_fd < 0 ? -errno : 0;
}

static const char *
base_of(const struct source *s)
{
	return strrchr(s->spec.file, '/') + 1;  /* it begins with one */
}

/* One watch a folder, and a file: of all sources there, perhaps of one's both. */
static void
unwatch(struct discovery *d, int *wd)
{
	for (const struct source *other = d->sources; other && *wd >= 0; other = other->next)
		if ((wd != &other->wd && *wd == other->wd) ||
		    (wd != &other->wd_file && *wd == other->wd_file))
			*wd = -1;
	if (*wd >= 0)
		inotify_rm_watch(d->inotify_fd, *wd);
	*wd = -1;
}

/* By its name: another one may have it by now, and the old one is looked at no more. */
static void
watch_anew(struct discovery *d, int *wd, const char *name, uint32_t mask)
{
	int now = inotify_add_watch(d->inotify_fd, name, mask);

	if (now != *wd)
		unwatch(d, wd);
	*wd = now;
}

static void
watch(struct discovery *d, struct source *s)
{
	char folder[sizeof s->spec.file];
	size_t len = (size_t)(base_of(s) - s->spec.file);

	memcpy(folder, s->spec.file, len);
	folder[len > 1 ? len - 1 : 1] = '\0';
	watch_anew(d, &s->wd, folder, WATCHED);
	watch_anew(d, &s->wd_file, s->spec.file, WATCHED_FILE);
}

static void
read_now(struct discovery *d, struct source *s, mono_ns now)
{
	struct stat st;
	size_t len = 0;
	char *text = NULL;
	int fd = open(s->spec.file, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

	if (fd < 0 || fstat(fd, &st) < 0) {
		source_fails(d, s, now, "%.150s cannot be read: %s", s->spec.file, strerror(errno));
		goto out;
	}
	if (!S_ISREG(st.st_mode) || st.st_size > (off_t)DISCOVERY_TEXT_MAX) {
		source_fails(d, s, now, "%.150s %s", s->spec.file,
			     S_ISREG(st.st_mode) ? "is larger than 1 MiB" : "is no regular file");
		goto out;
	}
	text = malloc(DISCOVERY_TEXT_MAX + 1);
	while (text && len <= DISCOVERY_TEXT_MAX) {
		ssize_t n = read(fd, text + len, DISCOVERY_TEXT_MAX + 1 - len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			source_fails(d, s, now, "%.150s cannot be read: %s", s->spec.file,
				     strerror(errno));
			goto out;
		}
		if (n == 0)
			break;
		len += (size_t)n;
	}
	file_events(d, now);                    /* who began to write while we read? */
	if (!text)
		source_fails(d, s, now, "out of memory");
	else if (!s->writing_ns)
		source_says(d, s, text, len, now); /* one byte too many is refused there */
out:
	free(text);
	if (fd >= 0)
		close(fd);
}

void
file_due(struct discovery *d, struct source *s, mono_ns now)
{
	if (s->writing_ns && now < s->writing_ns + WRITING_NS) {
		s->due_ns = s->writing_ns + WRITING_NS;
		return;
	}
	s->writing_ns = 0;
	s->due_ns = now + LOOK_NS;
	watch(d, s);
	read_now(d, s, now);
}

void
file_begin(struct discovery *d, struct source *s, mono_ns now)
{
	file_due(d, s, now);
}

static void
event(struct source *s, const struct inotify_event *e, mono_ns now)
{
	bool ours = e->wd == s->wd_file || (e->len > 0 && strcmp(e->name, base_of(s)) == 0);
	mono_ns due = now + SETTLE_NS;

	if (e->mask & GONE && e->wd == s->wd)
		s->wd = -1;
	if (e->mask & GONE && e->wd == s->wd_file)
		s->wd_file = -1;
	if (e->mask & IN_MODIFY) {
		if (ours)
			s->writing_ns = now;    /* its end comes by itself */
		return;
	}
	if (ours && e->mask & (IN_CLOSE_WRITE | IN_MOVED_TO))
		s->writing_ns = 0;
	if (ours && e->mask & IN_CREATE)
		due = now + CREATED_NS;
	if (due < s->due_ns)
		s->due_ns = due;
}

void
file_events(struct discovery *d, mono_ns now)
{
	_Alignas(struct inotify_event) char buf[8192];
	ssize_t n;

	while ((n = read(d->inotify_fd, buf, sizeof buf)) > 0)
		for (char *p = buf; p < buf + n;) {
			const struct inotify_event *e = (const struct inotify_event *)(void *)p;

			for (struct source *s = d->sources; s; s = s->next)
				if (s->spec.source == MANIFEST_SOURCE_FILE &&
				    (s->wd == e->wd || s->wd_file == e->wd ||
				     e->mask & IN_Q_OVERFLOW))
					event(s, e, now);
			p += sizeof *e + e->len;
		}
}

void
file_end(struct discovery *d, struct source *s)
{
	unwatch(d, &s->wd);
	unwatch(d, &s->wd_file);
}
