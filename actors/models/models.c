/* models.c -- makes a model of a folder, for the supervisor, then waits for the next.
 *
 * Owns    nothing in shared memory: what it makes is frozen when others see it.
 * Hears   want_model  supervisor  this folder, these options, that file to keep it in
 * Says    model       supervisor  made, a segment as descriptor; or why not
 * Dies    the sets whose models are missing go by their workers' /tokenize.
 *
 * It has no birth and no seat: its supervisor starts it when a folder is new, and closes the pair
 * when all is made.  A tokenizer's file is megabytes of somebody else's JSON: what reads it can
 * write nothing but the file it was given, and start and reach nobody.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "actors/common/birth.h"
#include "actors/common/models_build.h"
#include "actors/common/rights.h"

#define FRAME_MAX 65536u

static void
say(uint32_t number, const char *key, bool stored, const char *why, int fd)
{
	struct msg_model m = {.number = number, .key = slice_str(key), .stored = stored,
			      .why = slice_str(why)};

	if (msg_send_fd(PM_BIRTH_FD, MSG_model, &m, fd) < 0)
		exit(1);                        /* nobody waits for it any more */
}

static bool
copy_text(char *to, size_t cap, struct slice from)
{
	if (from.len >= cap)
		return false;
	memcpy(to, from.p, from.len);
	to[from.len] = 0;
	return true;
}

static bool
read_wish(const struct msg_want_model *m, struct manifest_tokenizer *ret)
{
	*ret = (struct manifest_tokenizer){
		.content = (enum manifest_content)m->content,
		.encoder = (enum manifest_encoder)m->encoder,
		.trust_request_template = m->trust_request_template,
		.exclude_tools = m->exclude_tools,
		.max_model_len = m->max_model_len,
		.kwargs = m->kwargs.len ? strndup(m->kwargs.p, m->kwargs.len) : NULL,
	};
	return copy_text(ret->path, sizeof ret->path, m->path) &&
	       copy_text(ret->chat_template, sizeof ret->chat_template, m->chat_template) &&
	       copy_text(ret->time_zone, sizeof ret->time_zone, m->time_zone) &&
	       (ret->kwargs || m->kwargs.len == 0);
}

/* Kept from another time, and good?  Then its segment. */
static int
from_store(const char *key, int *ret_fd)
{
	char path[sizeof MODELS_DIR + MODELS_KEY_TEXT + 1];
	void *bytes = MAP_FAILED;
	struct stat st;
	int fd, r = -ENOENT;

	snprintf(path, sizeof path, MODELS_DIR "/%s", key);
	fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0)
		bytes = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (bytes != MAP_FAILED) {
		if (models_usable(bytes, (size_t)st.st_size))
			r = models_freeze(ret_fd, key, bytes, (size_t)st.st_size);
		munmap(bytes, (size_t)st.st_size);
	}
	if (fd >= 0)
		close(fd);
	return r;
}

static bool
store(int fd, const void *bytes, size_t len)
{
	const char *p = bytes;

	while (fd >= 0 && len > 0) {
		ssize_t n = write(fd, p, len);

		if (n <= 0)
			return false;           /* full: the next start makes it anew */
		p += n;
		len -= (size_t)n;
	}
	return fd >= 0;
}

static void
make(uint32_t number, const struct manifest_tokenizer *t, int file)
{
	char key[MODELS_KEY_TEXT] = "", again[MODELS_KEY_TEXT] = "", why[MODELS_WHY_BYTES] = "";
	void *bytes = NULL;
	size_t len = 0;
	int fd = -1, r;

	r = models_key(t, key, why, sizeof why);
	if (r == 0 && from_store(key, &fd) == 0) {
		say(number, key, false, "", fd);
		close(fd);
		return;
	}
	if (r == 0)
		r = models_build(t, &bytes, &len, why, sizeof why);
	if (r == 0 && (models_key(t, again, why, sizeof why) < 0 || strcmp(key, again) != 0)) {
		snprintf(why, sizeof why, "%s: its files changed while they were read", t->path);
		r = -EAGAIN;
	}
	if (r == 0) {
		r = models_freeze(&fd, key, bytes, len);
		if (r < 0)
			snprintf(why, sizeof why, "no memory for it: %s", strerror(-r));
	}
	say(number, r < 0 ? "" : key, r == 0 && store(file, bytes, len), r < 0 ? why : "", fd);
	if (fd >= 0)
		close(fd);
	free(bytes);
}

static void
narrow(void)
{
	struct pm_filter filter = {0};

	if (pm_rights_enter(ROLE_MODELS, ".") < 0 || pm_filter_make(&filter, ROLE_MODELS) < 0 ||
	    pm_filter_load(&filter) < 0)
		fprintf(stderr, "pointsman-models: goes on with rights it does not need\n");
	pm_filter_free(&filter);
}

int
main(void)
{
	struct pollfd wish = {.fd = PM_BIRTH_FD, .events = POLLIN};
	struct manifest_tokenizer t;
	bool narrowed = false;
	char buf[FRAME_MAX];
	struct msg m;
	int file, r;

	for (;;) {
		r = msg_receive(PM_BIRTH_FD, &m, buf, sizeof buf, &file);
		if (r == 0 && (poll(&wish, 1, -1) >= 0 || errno == EINTR))
			continue;
		if (r <= 0)
			return r == -EPIPE ? 0 : 1;
		if (m.id == MSG_want_model) {
			if (m.u.want_model.rights && !narrowed)
				narrow();
			narrowed = true;
			if (read_wish(&m.u.want_model, &t))
				make(m.u.want_model.number, &t, file);
			else
				say(m.u.want_model.number, "", false, "out of memory", -1);
			free(t.kwargs);
		}
		if (file >= 0)
			close(file);
	}
}
