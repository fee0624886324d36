/* actors/supervisor/shares.c -- which process holds which segment, and with what right.
 *
 * Rights are descriptors: a reader only ever gets the read-only one.  The memfd is ours, with mode
 * 0400 (segment.c), so that a process of another uid cannot reopen it; one of our uid could change
 * that mode, and has given up the calls for it (rights.h).
 */
#include "actors/supervisor/supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

int
shares_add(struct supervisor *s, const struct segment *seg, enum segment_kind kind,
	   enum process_role role, uint32_t index, uint32_t incarnation, uint32_t generation)
{
	int ro_fd;

	if (s->n_shares >= SHARES_MAX)
		return -ENOSPC;
	ro_fd = segment_readonly_fd(seg);
	if (ro_fd < 0)
		return ro_fd;
	s->share[s->n_shares++] = (struct share){
		.kind = kind, .role = role, .index = index, .incarnation = incarnation,
		.generation = generation, .rw_fd = seg->fd, .ro_fd = ro_fd,
	};
	return 0;
}

int
shares_add_frozen(struct supervisor *s, int fd, enum segment_kind kind, uint32_t index,
		  uint32_t generation)
{
	int ro_fd;

	if (s->n_shares >= SHARES_MAX)
		return -ENOSPC;
	ro_fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (ro_fd < 0)
		return -errno;
	s->share[s->n_shares++] = (struct share){
		.kind = kind, .role = ROLE_SUPERVISOR, .index = index, .generation = generation,
		.rw_fd = -1, .ro_fd = ro_fd,
	};
	return 0;
}

/* What belongs to one generation of the documents. */
static bool
of_config(const struct share *share)
{
	return share->kind == SEGMENT_CONFIG || share->kind == SEGMENT_SECRETS ||
	       share->kind == SEGMENT_TRUST || share->kind == SEGMENT_PROBES ||
	       share->kind == SEGMENT_MODEL;
}

static void
share_remove(struct supervisor *s, unsigned i)
{
	close(s->share[i].ro_fd);
	memmove(&s->share[i], &s->share[i + 1], (s->n_shares - i - 1) * sizeof s->share[0]);
	s->n_shares--;
}

void
shares_drop(struct supervisor *s, uint32_t incarnation)
{
	for (unsigned i = s->n_shares; i-- > 0;)
		if (s->share[i].incarnation == incarnation && !of_config(&s->share[i]) &&
		    s->share[i].role != ROLE_SUPERVISOR)
			share_remove(s, i);
}

void
shares_drop_config(struct supervisor *s, uint32_t generation)
{
	for (unsigned i = s->n_shares; i-- > 0;)
		if (of_config(&s->share[i]) && s->share[i].generation == generation)
			share_remove(s, i);
}

enum share_access
share_access(const struct share *share, enum process_role role, uint32_t incarnation,
	     uint32_t generation)
{
	bool own = role == share->role && incarnation == share->incarnation;

	switch (share->kind) {
	case SEGMENT_ROWS:
		return role == ROLE_METRICS || role == ROLE_KVEVENTS ? SHARE_WRITE : SHARE_READ;
	case SEGMENT_INDEX:
		if (role == ROLE_KVEVENTS)
			return SHARE_WRITE;
		return role == ROLE_POLICY || role == ROLE_ADMIN || role == ROLE_TOOL ? SHARE_READ
										      : SHARE_NO;
	case SEGMENT_COLUMN:
		if (own)
			return SHARE_WRITE;
		return role == ROLE_INGRESS || role == ROLE_POLICY || role == ROLE_ADMIN ||
		       role == ROLE_TOOL ? SHARE_READ : SHARE_NO;
	case SEGMENT_SLOTS:
		if (own)
			return SHARE_WRITE;
		return role == ROLE_POLICY || role == ROLE_ADMIN || role == ROLE_TOOL ? SHARE_READ
										      : SHARE_NO;
	case SEGMENT_ARENA:             /* what people wrote: nobody else's business */
		if (own)
			return SHARE_WRITE;
		return role == ROLE_POLICY ? SHARE_READ : SHARE_NO;
	case SEGMENT_PROCESS:
		if (own)
			return SHARE_WRITE;
		if (role == ROLE_METRICS)
			return share->role == ROLE_INGRESS || share->role == ROLE_POLICY
				       ? SHARE_READ
				       : SHARE_NO;
		return role == ROLE_ADMIN || role == ROLE_TOOL ? SHARE_READ : SHARE_NO;
	case SEGMENT_ROSTER:
		return role == ROLE_INGRESS || role == ROLE_ADMIN || role == ROLE_TOOL ? SHARE_READ
										       : SHARE_NO;
	case SEGMENT_PINS:              /* every ingress, whichever incarnation */
		if (role == ROLE_INGRESS)
			return SHARE_WRITE;
		return role == ROLE_POLICY || role == ROLE_ADMIN || role == ROLE_TOOL ? SHARE_READ
										      : SHARE_NO;
	case SEGMENT_LIMITS:            /* likewise; decisions do not read it */
		if (role == ROLE_INGRESS)
			return SHARE_WRITE;
		return role == ROLE_ADMIN || role == ROLE_TOOL ? SHARE_READ : SHARE_NO;
	case SEGMENT_CONFIG:
		return share->generation == generation ? SHARE_READ : SHARE_NO;
	case SEGMENT_SECRETS:           /* both ends of TLS are there, and nowhere else */
		return role == ROLE_INGRESS && share->generation == generation ? SHARE_READ
									       : SHARE_NO;
	case SEGMENT_TRUST:             /* /tokenize needs no API key */
		return role == ROLE_POLICY && share->generation == generation ? SHARE_READ
									      : SHARE_NO;
	case SEGMENT_PROBES:            /* /v1/models does */
		return role == ROLE_METRICS && share->generation == generation ? SHARE_READ
									       : SHARE_NO;
	case SEGMENT_MODEL:             /* metrics' probes compare with what policy makes */
		return (role == ROLE_POLICY || role == ROLE_METRICS) &&
		       share->generation == generation ? SHARE_READ : SHARE_NO;
	case SEGMENT_NONE:
	case SEGMENT_KINDS:
		break;
	}
	return SHARE_NO;
}

int
share_send(struct outbox *out, int sock, const struct share *share, bool write)
{
	struct msg_segment m = {
		.kind = (uint8_t)share->kind,
		.role = (uint8_t)share->role,
		.index = share->index,
		.incarnation =
			of_config(share) ? share->generation : share->incarnation,
		.writable = write,
		.generation = share->generation,
	};

	return outbox_send(out, sock, MSG_segment, &m, write ? share->rw_fd : share->ro_fd);
}

/* The generation of documents a process works by. */
static uint32_t
config_seen(struct supervisor *s, enum process_role role, uint32_t generation)
{
	struct config *shown;

	if (role == ROLE_POLICY)
		return generation;
	shown = generation_shown(s);
	return shown ? shown->generation : 0;
}

static void
send_one(struct supervisor *s, struct child *c, const struct share *share)
{
	enum share_access access = share_access(share, c->role, c->incarnation,
						config_seen(s, c->role, c->generation));

	if (access == SHARE_NO)
		return;
	if (share_send(&c->out, c->sock, share, access == SHARE_WRITE) == -ENOBUFS)
		child_kill(c, "does not read its messages");
}

void
shares_send_all(struct supervisor *s, struct child *c)
{
	for (unsigned others = 0; others < 2; others++)         /* its own first */
		for (unsigned i = 0; i < s->n_shares; i++) {
			const struct share *share = &s->share[i];
			bool own = share->incarnation == c->incarnation && share->role == c->role;

			if (own == (others == 0))
				send_one(s, c, share);
		}
}

/* Ingress and policy are in the way of requests: they get what is new at once, and are not to
 * compete with the others, who read it too, for the CPU in the middle of a switch. */
static bool
in_the_way(enum process_role role)
{
	return role == ROLE_INGRESS || role == ROLE_POLICY;
}

static void
announce(struct supervisor *s, const struct share *share, bool front, bool policies)
{
	for (unsigned i = 0; i < CHILDREN_MAX; i++) {
		struct child *c = s->child[i];

		if (!c || in_the_way(c->role) != front ||
		    (c->role == share->role && c->incarnation == share->incarnation) ||
		    (of_config(share) && c->role == ROLE_POLICY && !policies) ||
		    (share->owed_ns && c->born_ns > share->owed_ns))        /* born with it */
			continue;
		send_one(s, c, share);
	}
	for (unsigned i = 0; !front && i < CONTROL_CLIENTS; i++) {
		struct control_client *client = &s->client[i];

		if (client->fd >= 0 && client->attached &&
		    share_access(share, ROLE_TOOL, 0, config_seen(s, ROLE_TOOL, 0)) != SHARE_NO)
			share_send(&client->out, client->fd, share, false);
	}
}

void
shares_announce_owner(struct supervisor *s, uint32_t incarnation)
{
	for (unsigned i = 0; i < s->n_shares; i++)
		if (s->share[i].incarnation == incarnation && !of_config(&s->share[i])) {
			announce(s, &s->share[i], true, false);
			s->share[i].owed_ns = clock_mono();
		}
}

void
shares_announce_config(struct supervisor *s, uint32_t generation)
{
	for (unsigned i = 0; i < s->n_shares; i++)
		if (of_config(&s->share[i]) && s->share[i].generation == generation) {
			announce(s, &s->share[i], true, false);
			s->share[i].owed_ns = clock_mono();
		}
}

static struct share *
config_share(struct supervisor *s, uint32_t generation)
{
	for (unsigned i = 0; i < s->n_shares; i++)
		if (s->share[i].kind == SEGMENT_CONFIG && s->share[i].generation == generation)
			return &s->share[i];
	return NULL;
}

int
shares_replace_config(struct supervisor *s, const struct segment *seg, uint32_t generation)
{
	struct share *share = config_share(s, generation);
	int ro_fd;

	if (!share)
		return -ENOENT;
	ro_fd = segment_readonly_fd(seg);
	if (ro_fd < 0)
		return ro_fd;
	close(share->ro_fd);
	share->ro_fd = ro_fd;
	share->rw_fd = seg->fd;
	return 0;
}

void
shares_announce_found(struct supervisor *s, uint32_t generation)
{
	struct share *share = config_share(s, generation);

	if (!share)
		return;
	announce(s, share, true, true);
	share->owed_ns = clock_mono();
}

void
shares_flush_owner(struct supervisor *s, uint32_t incarnation)
{
	for (unsigned i = 0; i < s->n_shares; i++)
		if (s->share[i].owed_ns && s->share[i].incarnation == incarnation &&
		    !of_config(&s->share[i])) {
			announce(s, &s->share[i], false, false);
			s->share[i].owed_ns = 0;
		}
}

void
shares_flush(struct supervisor *s, mono_ns until)
{
	for (unsigned i = 0; i < s->n_shares; i++)
		if (s->share[i].owed_ns && s->share[i].owed_ns <= until) {
			announce(s, &s->share[i], false, false);
			s->share[i].owed_ns = 0;
		}
}
