/* actors/supervisor/control.c -- <run>/control.sock: reload and attach, for pointsctl.
 *
 * Mode 0600: whoever may open it is the operator; but for our own processes, whose user id is ours
 * where we are not root.  A client that does not read, or attaches twice, is dropped.
 */
#include "actors/supervisor/supervisor.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include "actors/common/birth.h"

#define TEXT_MAX 8192u

int
control_open(struct supervisor *s, const char **why)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	mode_t mask;
	int r = 0;

	for (unsigned i = 0; i < CONTROL_CLIENTS; i++)
		s->client[i].fd = -1;
	snprintf(sa.sun_path, sizeof sa.sun_path, "%s/control.sock", s->options.run_dir);
	s->control_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (s->control_fd < 0) {
		*why = "cannot make the control socket";
		return -errno;
	}
	unlink(sa.sun_path);            /* ours by the lock */
	mask = umask(0177);
	if (bind(s->control_fd, (const struct sockaddr *)&sa, sizeof sa) < 0 ||
	    listen(s->control_fd, 16) < 0) {
		r = -errno;
		*why = "cannot bind control.sock in the run directory";
	}
	umask(mask);
	if (r < 0) {
		close(s->control_fd);
		s->control_fd = -1;
	}
	return r;
}

static void
client_drop(struct control_client *client)
{
	close(client->fd);
	outbox_clear(&client->out);
	*client = (struct control_client){.fd = -1};
}

void
control_send(struct supervisor *s, struct control_client *client, enum msg_id id, const void *msg,
	     int fd)
{
	(void)s;
	if (client->fd >= 0 && outbox_send(&client->out, client->fd, id, msg, fd) < 0)
		client_drop(client);
}

/* A process we started has its own words with us, and is no operator. */
static bool
ours(const struct supervisor *s, int fd)
{
	struct ucred peer;
	socklen_t len = sizeof peer;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0)
		return true;
	for (unsigned i = 0; i < CHILDREN_MAX; i++)
		if (s->child[i] && s->child[i]->pid == peer.pid)
			return true;
	return (s->unborn.pid != 0 && s->unborn.pid == peer.pid) ||
	       (s->models.pid != 0 && s->models.pid == peer.pid);
}

void
control_accept(struct supervisor *s)
{
	for (;;) {
		int fd = accept4(s->control_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		struct control_client *client = NULL;

		if (fd < 0)
			return;
		if (s->options.rights && ours(s, fd)) {
			count_add(&s->process, COUNTER_messages_refused, 1);
			close(fd);
			continue;
		}
		for (unsigned i = 0; i < CONTROL_CLIENTS && !client; i++)
			if (s->client[i].fd < 0)
				client = &s->client[i];
		if (!client) {
			log_warn("control: %u clients already, another refused", CONTROL_CLIENTS);
			close(fd);
			continue;
		}
		*client = (struct control_client){.fd = fd};
	}
}

static void
attach(struct supervisor *s, struct control_client *client)
{
	const struct config *shown = generation_shown(s);

	if (client->attached) {         /* each time costs descriptors until it reads */
		client_drop(client);
		return;
	}
	shares_flush(s, clock_mono());  /* or it would get what is owed twice */
	for (unsigned i = 0; i < s->n_shares && client->fd >= 0; i++) {
		const struct share *share = &s->share[i];

		if (share_access(share, ROLE_TOOL, 0, shown ? shown->generation : 0) != SHARE_NO &&
		    share_send(&client->out, client->fd, share, false) < 0)
			client_drop(client);
	}
	control_send(s, client, MSG_go, &(struct msg_go){0}, -1);
	client->attached = client->fd >= 0;
}

static void
reload_wanted(struct supervisor *s, struct control_client *client, const struct msg_reload *wish)
{
	struct msg_reloaded m = {.generation = s->reload.serving};
	char text[TEXT_MAX];

	if (wish->dry_run) {
		m.ok = generation_check(s, wish->back != 0, wish->to, text, sizeof text) == 0;
	} else if (s->draining) {
		snprintf(text, sizeof text, "the supervisor is ending");
	} else if (s->reload.serving == 0) {
		snprintf(text, sizeof text, "the first generation is not in force yet");
	} else {
		client->waits = 2;      /* becomes 1 when that load begins */
		log_info("%s: asked for by a control client", wish->back ? "rollback" : "reload");
		if (generation_want(s, wish->back != 0, wish->to, text, sizeof text))
			return;
		client->waits = 0;
	}
	m.text = slice_str(text);
	control_send(s, client, MSG_reloaded, &m, -1);
}

/* In force with the next request, for whoever serves it; it stays over reloads, not over us. */
static void
tenant_block(struct supervisor *s, struct control_client *client,
	     const struct msg_tenant_block *m)
{
	uint32_t row = m->name.len > 0 && m->name.len < LIMIT_NAME_MAX ?
		limits_find(&s->limits, limit_uid(m->name.p, m->name.len)) : LIMIT_NO_ROW;
	struct msg_said said = {.ok = row != LIMIT_NO_ROW};
	char text[160];

	if (row == LIMIT_NO_ROW) {
		snprintf(text, sizeof text, "there is no such tenant");
	} else {
		struct limit_tenant *t = &s->limits.tenant[row];

		snprintf(text, sizeof text, "tenant %.64s: %s", t->name, m->blocked ?
			 "blocked, until unblocked or pointsman ends" : "not blocked any more");
		atomic_store_explicit(&t->blocked, m->blocked != 0, memory_order_relaxed);
		log_warn("%s, by a control client", text);
		generation_note(s, s->reload.serving, true, text);
	}
	said.text = slice_str(text);
	control_send(s, client, MSG_said, &said, -1);
}

static void
ordered(struct supervisor *s, struct control_client *client, const struct msg *m)
{
	char text[TEXT_MAX] = "";
	struct msg_said said = {
		.ok = m->id == MSG_policy_freeze ?
			      orders_freeze(s, &m->u.policy_freeze, text, sizeof text) :
			      orders_disable(s, &m->u.provider_disable, text, sizeof text),
	};

	said.text = slice_str(text);
	control_send(s, client, MSG_said, &said, -1);
}

void
control_read(struct supervisor *s, struct control_client *client)
{
	char buf[4096];
	struct msg m;

	for (unsigned n = 0; n < 16 && client->fd >= 0; n++) {
		bool carried;
		int r = msg_receive_only(client->fd, &m, buf, sizeof buf, &carried);

		if (carried)
			count_add(&s->process, COUNTER_descriptors_refused, 1);
		if (r == 0)
			return;
		if (r < 0) {
			if (r == -EBADMSG)
				count_add(&s->process, COUNTER_messages_unknown, 1);
			client_drop(client);
			return;
		}
		if (m.id == MSG_reload)
			reload_wanted(s, client, &m.u.reload);
		else if (m.id == MSG_tenant_block)
			tenant_block(s, client, &m.u.tenant_block);
		else if (m.id == MSG_policy_freeze || m.id == MSG_provider_disable)
			ordered(s, client, &m);
		else if (m.id == MSG_attach)
			attach(s, client);
		else
			client_drop(client);
	}
}

void
control_reloading(struct supervisor *s)
{
	for (unsigned i = 0; i < CONTROL_CLIENTS; i++)
		if (s->client[i].fd >= 0 && s->client[i].waits == 2)
			s->client[i].waits = 1;
}

void
control_reloaded(struct supervisor *s, bool ok, uint32_t generation, const char *text)
{
	struct msg_reloaded m = {.ok = ok, .generation = generation, .text = slice_str(text)};

	for (unsigned i = 0; i < CONTROL_CLIENTS; i++) {
		if (s->client[i].fd < 0 || s->client[i].waits != 1)
			continue;
		s->client[i].waits = 0;
		control_send(s, &s->client[i], MSG_reloaded, &m, -1);
	}
}

void
control_stopped(struct supervisor *s, const char *text)
{
	struct msg_reloaded m = {.generation = s->reload.serving, .text = slice_str(text)};

	for (unsigned i = 0; i < CONTROL_CLIENTS; i++)
		if (s->client[i].fd >= 0 && s->client[i].waits == 2) {
			s->client[i].waits = 0;
			control_send(s, &s->client[i], MSG_reloaded, &m, -1);
		}
}

void
control_broadcast(struct supervisor *s, enum msg_id id, const void *msg)
{
	for (unsigned i = 0; i < CONTROL_CLIENTS; i++)
		if (s->client[i].fd >= 0 && s->client[i].attached)
			control_send(s, &s->client[i], id, msg, -1);
}

void
control_close(struct supervisor *s)
{
	for (unsigned i = 0; i < CONTROL_CLIENTS; i++)
		if (s->client[i].fd >= 0)
			client_drop(&s->client[i]);
	if (s->control_fd >= 0)
		close(s->control_fd);
	s->control_fd = -1;
}
