/* actors/supervisor/models.c -- models of the sets that have a tokenizer: made beside, kept, given.
 *
 * A generation's documents name folders; what is made of one is a frozen segment (common/models.h)
 * that all generations share whose folder and options are the same, found by a stamp without
 * reading anything.  What is new is made by pointsman-models, one after the other: it runs as we
 * do, because the folder need be open to nobody else, without capabilities, in the background
 * while others serve.  A load waits for it; requests do not.
 *
 * Store      <run>/models/KEY: what it made, for the next start.  It writes into a file that we
 *            opened, and we give that its name: it may open none for writing.
 * Trouble    a folder that cannot be used, a program that dies or takes too long: the set goes by
 *            its worker's /tokenize, which is told with the field's place.  What the program said
 *            counts until the folder changes; what befell it is tried again with the next load.
 */
#include "actors/supervisor/supervisor.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>
#include "actors/common/background.h"
#include "actors/common/birth.h"

#define MS 1000000ull
#define MAKING_NS  (60000 * MS)         /* all that a load wants */
#define PATIENT_NS (5000 * MS)          /* then it runs as others do: a load waits for it */
#define NEW_NAME   MODELS_DIR "/new.%u" /* until it is whole */
#define FRAME_MAX  65536u

struct model_file {
	struct models_stamp stamp;
	uint32_t number;                /* by which it is asked for */
	int fd;                         /* owned; frozen; -1: being made */
	bool asked;                     /* being made */
	bool passing;                   /* what befell it may not befall it again */
	char key[MODELS_KEY_TEXT];      /* "": nothing is stored */
	char why[256];                  /* "": there is a blob */
};

static void
file_free(struct model_file *f)
{
	if (f->fd >= 0)
		close(f->fd);
	free(f);
}

static struct model_file *
file_find(struct supervisor *s, struct models_stamp stamp)
{
	for (unsigned i = 0; i < s->models.n; i++) {
		struct model_file *f = s->models.file[i];

		if (f->stamp.lo == stamp.lo && f->stamp.hi == stamp.hi && !f->passing)
			return f;
	}
	return NULL;
}

static struct model_file *
file_add(struct supervisor *s, struct models_stamp stamp)
{
	struct model_file *f, **grown;

	grown = realloc(s->models.file, (s->models.n + 1) * sizeof(struct model_file *));
	if (!grown)
		return NULL;
	s->models.file = grown;
	f = calloc(1, sizeof *f);
	if (!f)
		return NULL;
	f->stamp = stamp;
	f->number = ++s->models.last;
	f->fd = -1;
	s->models.file[s->models.n++] = f;
	return f;
}

static bool
sane_key(struct slice key)
{
	if (key.len != MODELS_KEY_TEXT - 1)
		return false;
	for (size_t i = 0; i < key.len; i++)
		if (!strchr("0123456789abcdef", key.p[i]))
			return false;
	return true;
}

/* ---- the store ---- */

static void
new_name(char *buf, size_t cap, unsigned number)
{
	snprintf(buf, cap, NEW_NAME, number);
}

static int
new_open(struct supervisor *s, unsigned number)
{
	char name[64];

	new_name(name, sizeof name, number);
	unlinkat(s->run_fd, name, 0);
	return openat(s->run_fd, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
}

static void
new_settle(struct supervisor *s, unsigned number, const char *key)
{
	char name[64], path[96];

	new_name(name, sizeof name, number);
	snprintf(path, sizeof path, MODELS_DIR "/%s", key);
	if (!key[0] || renameat(s->run_fd, name, s->run_fd, path) < 0)
		unlinkat(s->run_fd, name, 0);
}

static bool
kept(const struct supervisor *s, const char *name)
{
	for (unsigned i = 0; i < s->models.n; i++)
		if (strcmp(s->models.file[i]->key, name) == 0)
			return true;
	return false;
}

static void
store_sweep(const struct supervisor *s)
{
	int fd = openat(s->run_fd, MODELS_DIR, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	while (dir && (e = readdir(dir)))
		if (e->d_name[0] != '.' && !kept(s, e->d_name))
			unlinkat(dirfd(dir), e->d_name, 0);
	if (dir)
		closedir(dir);
	else if (fd >= 0)
		close(fd);
}

void
models_sweep(struct supervisor *s)
{
	unsigned n = 0;

	for (unsigned i = 0; i < s->models.n; i++) {
		struct model_file *f = s->models.file[i];
		bool used = f->asked;

		for (uint32_t set = 0; set < s->models.n_wanted; set++)
			used |= s->models.wanted[set] == f;
		for (unsigned k = 0; k < CONFIGS_MAX && !used; k++) {
			const struct config *c = &s->config[k];

			for (uint32_t set = 0; c->model && set < c->manifest->n_sets; set++)
				used |= c->model[set] == f;
		}
		if (used)
			s->models.file[n++] = f;
		else
			file_free(f);
	}
	s->models.n = n;
	if (s->run_fd >= 0 && s->reload.serving != 0)   /* before, nobody knows what is needed */
		store_sweep(s);
}

/* ---- making ---- */

static void
fail(struct model_file *f, const char *why, bool passing)
{
	int r;

	snprintf(f->why, sizeof f->why, "%s", why);
	f->asked = false;
	f->passing = passing;
	r = models_freeze_reason(&f->fd, f->why);
	if (r < 0)                      /* policy knows of none then, which is as true */
		log_error("model: \"%s\" cannot be passed on: %s", why, strerror(-r));
}

static void
end_program(struct supervisor *s)
{
	struct models *m = &s->models;

	if (!m->pid)
		return;
	close(m->sock);                 /* it ends by that, or is made to */
	if (!m->reaped) {
		kill(m->pid, SIGKILL);  /* not reaped: the number is still its own */
		waitpid(m->pid, NULL, 0);
	}
	if (m->pidfd >= 0)
		close(m->pidfd);
	m->pid = 0;
	m->sock = m->pidfd = -1;
}

/* Nothing more comes: those that were asked for are not there. */
static void
give_up(struct supervisor *s, const char *why)
{
	for (unsigned i = 0; i < s->models.n; i++) {
		if (!s->models.file[i]->asked)
			continue;
		fail(s->models.file[i], why, true);
		new_settle(s, s->models.file[i]->number, "");
	}
	s->models.left = 0;
	end_program(s);
}

static int
ask(struct supervisor *s, unsigned number, const struct manifest_tokenizer *t)
{
	struct msg_want_model want = {
		.number = number,
		.path = slice_str(t->path),
		.chat_template = slice_str(t->chat_template),
		.kwargs = slice_str(t->kwargs ? t->kwargs : ""),
		.time_zone = slice_str(t->time_zone),
		.content = (uint8_t)t->content,
		.encoder = (uint8_t)t->encoder,
		.trust_request_template = t->trust_request_template,
		.exclude_tools = t->exclude_tools,
		.max_model_len = t->max_model_len,
		.rights = s->options.rights,
	};
	int fd = new_open(s, number);           /* without one it is only not stored */
	int r = msg_send_fd(s->models.sock, MSG_want_model, &want, fd);

	if (fd >= 0)
		close(fd);
	return r;
}

/* Asks for it, starting the program where there is none. */
static int
make(struct supervisor *s, struct model_file *f, const struct manifest_tokenizer *t)
{
	struct models *m = &s->models;
	int r = 0;

	f->asked = true;
	if (m->left++ == 0) {
		m->patient = s->reload.serving != 0;
		m->began_ns = clock_mono();
		m->reaped = false;
		r = program_start(s, ROLE_MODELS, m->patient, &m->pid, &m->pidfd, &m->sock);
		if (r < 0)
			m->pid = 0;
	}
	return r < 0 ? r : ask(s, f->number, t);
}

bool
models_want(struct supervisor *s, const struct manifest *manifest)
{
	struct models *m = &s->models;
	int r = 0;

	free(m->wanted);
	m->wanted = calloc(manifest->n_sets + 1, sizeof(struct model_file *));
	m->n_wanted = m->wanted ? manifest->n_sets : 0;
	for (uint32_t i = 0; i < m->n_wanted && r == 0; i++) {
		const struct manifest_tokenizer *t = &manifest->sets[i].tokenizer;
		struct models_stamp stamp;

		if (!t->path[0])
			continue;
		stamp = models_stamp(t);
		m->wanted[i] = file_find(s, stamp);
		if (m->wanted[i])
			continue;
		m->wanted[i] = file_add(s, stamp);
		r = m->wanted[i] ? make(s, m->wanted[i], t) : -ENOMEM;
	}
	if (r < 0)
		give_up(s, "the program that makes models cannot be started, or does not listen");
	if (m->left > 0)
		log_info("models: making %u%s", m->left, m->patient ? " in the background" : "");
	return m->left > 0;
}

static void
on_model(struct supervisor *s, const struct msg_model *m, int fd)
{
	struct model_file *f = NULL;
	struct models_blob blob;
	char why[256];

	for (unsigned i = 0; i < s->models.n; i++)
		if (s->models.file[i]->number == m->number && s->models.file[i]->asked)
			f = s->models.file[i];
	if (!f) {
		if (fd >= 0)
			close(fd);
		return;
	}
	if (sane_key(m->key))
		snprintf(f->key, sizeof f->key, "%.*s", (int)m->key.len, m->key.p);
	new_settle(s, m->number, m->stored ? f->key : "");
	s->models.left--;
	f->asked = false;
	if (m->why.len > 0 || fd < 0) {
		snprintf(why, sizeof why, "%.*s", (int)(m->why.len < 240 ? m->why.len : 240),
			 m->why.len ? m->why.p : "nothing came of it");
		fail(f, why, false);
	} else if (models_attach(&blob, fcntl(fd, F_DUPFD_CLOEXEC, 0)) < 0) {
		fail(f, "what was made is damaged, or could still be written", true);
	} else {
		models_detach(&blob);
		f->fd = fd;
		fd = -1;
		log_info("model: made in %llu ms key=%.12s%s",
			 (unsigned long long)((clock_mono() - s->models.began_ns) / MS), f->key,
			 m->stored ? "" : ", from the store");
	}
	if (fd >= 0)
		close(fd);
}

bool
models_hear(struct supervisor *s)
{
	char buf[FRAME_MAX];
	struct msg m;
	int fd, r = 0;

	while (s->models.left > 0 &&
	       (r = msg_receive(s->models.sock, &m, buf, sizeof buf, &fd)) > 0)
		if (m.id == MSG_model)
			on_model(s, &m.u.model, fd);
		else if (fd >= 0)
			close(fd);
	if (r < 0 && s->models.left > 0)
		give_up(s, r == -EPIPE ? "the program that makes models died of it"
				       : "the program that makes models said what it may not");
	if (s->models.left == 0)
		end_program(s);
	return s->models.left == 0;
}

bool
models_tick(struct supervisor *s, mono_ns now)
{
	struct models *m = &s->models;

	if (m->left == 0)
		return false;
	if (m->patient && now > m->began_ns + PATIENT_NS) {
		pm_background(m->pid, false);
		m->patient = false;
	}
	if (now < m->began_ns + MAKING_NS)
		return false;
	give_up(s, "it was not made within 60 s");
	return true;
}

void
models_wait(struct supervisor *s)
{
	struct pollfd said = {.fd = s->models.sock, .events = POLLIN};

	while (s->models.left > 0) {
		if (poll(&said, 1, 1000) < 0 && errno != EINTR)
			give_up(s, "cannot wait for the program that makes models");
		else if (said.revents == 0 || !models_hear(s))
			models_tick(s, clock_mono());
	}
}

void
models_reaped(struct supervisor *s, pid_t pid)
{
	if (s->models.pid == pid)
		s->models.reaped = true;        /* what it said is still to be heard */
}

void
models_close(struct supervisor *s)
{
	give_up(s, "we end");
	for (unsigned i = 0; i < s->models.n; i++)
		file_free(s->models.file[i]);
	free(s->models.file);
	free(s->models.wanted);
	s->models = (struct models){.sock = -1, .pidfd = -1};
}

/* ---- giving ---- */

int
models_share(struct supervisor *s, struct config *c)
{
	int r = 0;

	c->model = s->models.wanted;
	s->models.wanted = NULL;
	s->models.n_wanted = 0;
	for (uint32_t i = 0; c->model && i < c->manifest->n_sets && r == 0; i++)
		if (c->model[i] && c->model[i]->fd >= 0)
			r = shares_add_frozen(s, c->model[i]->fd, SEGMENT_MODEL, i, c->generation);
	return r;
}

void
models_text(const struct config *c, char *buf, size_t cap)
{
	size_t n = 0;

	buf[0] = 0;
	for (uint32_t i = 0; c->model && i < c->manifest->n_sets && n < cap; i++) {
		const struct manifest_tokenizer *t = &c->manifest->sets[i].tokenizer;

		if (c->model[i] && c->model[i]->why[0])
			n += (size_t)snprintf(buf + n, cap - n,
					      "%swarning: %s:%u:%u: spec.tokenizer.path: %s; %s",
					      n ? "\n" : "", t->file, t->line, t->column,
					      c->model[i]->why,
					      c->manifest->sets[i].tokenize ?
					      "text prompts go by the worker's /tokenize" :
					      "text prompts are routed by load only");
	}
}
