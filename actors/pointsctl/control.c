/* actors/pointsctl/control.c -- connect, attach, follow; see control.h.  And `reload`. */
#include "actors/pointsctl/control.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "actors/pointsctl/pointsctl.h"

#define FRAME_MAX       65536u          /* of the control socket; ours are far smaller */
#define ATTACH_MS       5000
#define RELOAD_MS       180000          /* two loads of policyProcess.loadDeadline, and more */

int
control_connect(const char *run_dir, const char **why)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	int fd, r;

	*why = "the run directory's name is too long for a socket";
	if (snprintf(sa.sun_path, sizeof sa.sun_path, "%s/control.sock", run_dir) >=
	    (int)sizeof sa.sun_path)
		return -ENAMETOOLONG;
	*why = "cannot make a socket";
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (connect(fd, (const struct sockaddr *)&sa, sizeof sa) < 0) {
		r = -errno;
		close(fd);
		*why = r == -EACCES ? "only the user pointsman runs as may ask it"
				    : "no pointsman runs in this run directory (-r), or its "
				      "supervisor is dead: see stat";
		return r;
	}
	return fd;
}

/* One frame; 1 got it, 0 not in time, -errno. */
static int
receive(int sock, char buf[FRAME_MAX], struct msg *ret, int *ret_fd, int wait_ms)
{
	struct pollfd pfd = {.fd = sock, .events = POLLIN};
	int r;

	*ret_fd = -1;
	r = poll(&pfd, 1, wait_ms);
	if (r == 0 || (r < 0 && errno == EINTR))
		return 0;
	if (r < 0)
		return -errno;
	return msg_receive(sock, ret, buf, FRAME_MAX, ret_fd);
}

static void
take(struct pm_view *view, const struct msg *m, int fd)
{
	if (m->id == MSG_segment && fd >= 0) {
		pm_view_segment(view, &m->u.segment, fd);
		return;
	}
	if (fd >= 0)
		close(fd);
	if (m->id == MSG_gone)
		pm_view_gone(view, (enum process_role)m->u.gone.role, m->u.gone.incarnation);
}

int
control_attach(int sock, struct pm_view *view, const char **why)
{
	mono_ns deadline = clock_mono() + ATTACH_MS * 1000000ull;
	struct msg_attach attach = {0};
	char buf[FRAME_MAX];
	struct msg m;
	int fd, r = msg_send_fd(sock, MSG_attach, &attach, -1);

	*why = "the supervisor does not hear us";
	if (r < 0)
		return r;
	while (clock_mono() < deadline) {
		r = receive(sock, buf, &m, &fd, ATTACH_MS);
		*why = r == -EBADMSG ? "the supervisor speaks another version" :
				      "the supervisor ended";
		if (r < 0)
			return r;
		if (r == 0)
			continue;
		if (m.id == MSG_go)
			return 0;
		take(view, &m, fd);
	}
	*why = "the supervisor did not send its segments in 5 s";
	return -ETIMEDOUT;
}

int
control_turn(int sock, struct pm_view *view, int wait_ms)
{
	char buf[FRAME_MAX];
	struct msg m;
	int fd, r;

	for (unsigned n = 0; n < 1024; n++) {
		r = receive(sock, buf, &m, &fd, n == 0 ? wait_ms : 0);
		if (r == -EBADMSG)
			continue;               /* a message we do not know: not for us */
		if (r <= 0)
			return r;
		take(view, &m, fd);
	}
	return 0;
}

static void
print_lines(FILE *to, struct slice text)
{
	if (text.len == 0)
		return;
	fwrite(text.p, 1, text.len, to);
	if (text.p[text.len - 1] != '\n')
		fputc('\n', to);
}

static void
print_reloaded(const struct options *o, const struct msg_reloaded *m)
{
	if (o->json) {
		json_t *text = json_stringn(m->text.p ? m->text.p : "", m->text.len);
		json_t *said = json_object();

		json_object_set_new(said, "ok", json_boolean(m->ok));
		json_object_set_new(said, "dry_run", json_boolean(o->dry_run));
		json_object_set_new(said, "rollback", json_boolean(o->rollback));
		json_object_set_new(said, "generation", json_integer(m->generation));
		json_object_set_new(said, "text", text ? text : json_string("?"));
		print_json(said);
		json_decref(said);
	} else if (!m->ok) {
		print_lines(stderr, m->text);
		complain("refused; generation %u serves on", m->generation);
	} else {
		print_lines(stdout, m->text);
		if (!o->dry_run)
			printf("generation %u is in force; every ingress has acknowledged\n",
			       m->generation);
		if (!o->dry_run && o->rollback)
			puts("the files are as they were: mend them before the next reload loads "
			     "them, or freeze (pointsctl policy freeze)");
	}
}

int
control_say(const struct options *o, enum msg_id id, const void *msg)
{
	mono_ns deadline = clock_mono() + ATTACH_MS * 1000000ull;
	char buf[FRAME_MAX];
	const char *why;
	struct msg m;
	int sock = control_connect(o->run_dir, &why), fd, r;

	if (sock < 0) {
		complain("%s: %s", o->run_dir, why);
		return 1;
	}
	r = msg_send_fd(sock, id, msg, -1);
	while (r >= 0 && clock_mono() < deadline) {
		r = receive(sock, buf, &m, &fd, 1000);
		if (fd >= 0)
			close(fd);
		if (r != 1 || m.id != MSG_said)
			continue;
		print_lines(m.u.said.ok ? stdout : stderr, m.u.said.text);
		close(sock);
		return m.u.said.ok ? 0 : 1;
	}
	close(sock);
	complain("the supervisor did not answer");
	return 1;
}

int
command_policy(const struct options *o)
{
	bool freeze = strcmp(o->args[0], "freeze") == 0;
	struct msg_policy_freeze m = {.frozen = freeze};

	if ((!freeze && strcmp(o->args[0], "thaw") != 0) || (!freeze && o->n_args > 1)) {
		complain("policy %s: freeze [REASON] (one argument: quote it) or thaw", o->args[0]);
		return EXIT_USAGE;
	}
	if (o->n_args > 1)
		m.why = slice_str(o->args[1]);
	return control_say(o, MSG_policy_freeze, &m);
}

int
command_provider(const struct options *o)
{
	bool disable = strcmp(o->args[0], "disable") == 0;
	struct msg_provider_disable m = {.name = slice_str(o->args[1]), .disabled = disable};

	if (!disable && strcmp(o->args[0], "enable") != 0) {
		complain("provider %s: disable NAME or enable NAME", o->args[0]);
		return EXIT_USAGE;
	}
	return control_say(o, MSG_provider_disable, &m);
}

/* false: no number of a generation. */
static bool
rollback_to(const struct options *o, struct msg_reload *ret)
{
	char *end;
	unsigned long to;

	ret->back = o->rollback;
	if (o->n_args == 0)
		return true;
	errno = 0;
	to = strtoul(o->args[0], &end, 10);
	if (!o->rollback || errno || *end || end == o->args[0] || o->args[0][0] == '-' || to == 0 ||
	    to > UINT32_MAX)
		return false;
	ret->to = (uint32_t)to;
	return true;
}

int
command_reload(const struct options *o)
{
	mono_ns deadline = clock_mono() + RELOAD_MS * 1000000ull;
	struct msg_reload reload = {.dry_run = o->dry_run};
	char buf[FRAME_MAX];
	const char *why;
	struct msg m;
	int sock, fd, r;

	if (!rollback_to(o, &reload)) {
		complain("reload %s: --rollback takes the number of a generation, as pointsctl "
			 "generations lists it; nothing else takes anything", o->args[0]);
		return EXIT_USAGE;
	}
	sock = control_connect(o->run_dir, &why);
	if (sock < 0) {
		complain("%s: %s", o->run_dir, why);
		return 1;
	}
	r = msg_send_fd(sock, MSG_reload, &reload, -1);
	while (r >= 0 && clock_mono() < deadline) {
		r = receive(sock, buf, &m, &fd, 1000);
		if (fd >= 0)
			close(fd);
		if (r != 1 || m.id != MSG_reloaded)
			continue;
		print_reloaded(o, &m.u.reloaded);
		close(sock);
		return m.u.reloaded.ok ? 0 : 1;
	}
	close(sock);
	complain(r < 0 ? "the supervisor ended before it answered: %s" :
			 "no answer in 180 s%s", r < 0 ? strerror(-r) : "");
	return 1;
}
