/* actors/kvevents/intake.c -- see intake.h. */
#include "actors/kvevents/intake.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "actors/common/log.h"

#define BLAME 64u /* who has less than this part of the bound there is not cut */
#define CALM 8u   /* less than this part of the bound in all: nobody has anything there */
#define FULL_LOOKS 5u /* above the bound so often in a row: cutting does not help */
#define LOOK_NS 1000000000ull /* between two looks at all connections */

struct seen {
	uint64_t cookie; /* of the connection; a descriptor is used again */
	uint64_t taken;  /* bytes of what it sent that were read, or never will be */
};

struct intake {
	struct process_segment *process; /* borrowed */
	int statm;                       /* owned */
	size_t born, most, page;         /* bytes */
	mono_ns looked;
	unsigned over; /* looks in a row, since intake_full() said so last */
	unsigned n;
	struct seen *seen; /* owned; by descriptor */
};

/* What is ours alone: shared memory counts elsewhere. */
static size_t
own_bytes(const struct intake *i)
{
	char text[128];
	ssize_t n = pread(i->statm, text, sizeof text - 1, 0);
	unsigned long size, resident, shared;

	if (n <= 0)
		return 0;
	text[n] = '\0';
	if (sscanf(text, "%lu %lu %lu", &size, &resident, &shared) != 3 || shared > resident)
		return 0;
	return (resident - shared) * i->page;
}

int
intake_new(struct intake **ret, struct process_segment *process, size_t most_bytes,
	   unsigned descriptors)
{
	struct intake *i = calloc(1, sizeof *i);

	if (!i)
		return -ENOMEM;
	i->process = process;
	i->most = most_bytes;
	i->page = (size_t)sysconf(_SC_PAGESIZE);
	i->n = descriptors;
	i->seen = calloc(descriptors, sizeof i->seen[0]);
	i->statm = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
	if (!i->seen || i->statm < 0) {
		int r = i->seen ? -errno : -ENOMEM;

		intake_free(&i);
		return r;
	}
	i->born = own_bytes(i);
	*ret = i;
	return 0;
}

void
intake_free(struct intake **ret)
{
	if (!*ret)
		return;
	if ((*ret)->statm >= 0)
		close((*ret)->statm);
	free((*ret)->seen);
	free(*ret);
	*ret = NULL;
}

/* What is noted of this descriptor's connection; NULL: it is none, or not looked at. */
static struct seen *
seen_at(struct intake *i, int fd)
{
	uint64_t cookie = 0;
	socklen_t len = sizeof cookie;

	if (fd < 0 || (unsigned)fd >= i->n ||
	    getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &len) < 0)
		return NULL;
	if (i->seen[fd].cookie != cookie)
		i->seen[fd] = (struct seen){.cookie = cookie};
	return &i->seen[fd];
}

size_t
intake_wire(size_t frame)
{
	return frame + (frame <= UINT8_MAX ? 2 : 9);
}

void
intake_took(struct intake *i, const zmq_msg_t *frame, size_t wire_bytes)
{
	struct seen *seen = i ? seen_at(i, zmq_msg_get(frame, ZMQ_SRCFD)) : NULL;

	if (seen)
		seen->taken += wire_bytes;
}

/* What this descriptor's connection has sent and nobody has read.  Commands are never read, nor
 * is a message that its own connection broke; calm forgives such. */
static uint64_t
kept(struct intake *i, int fd, bool calm)
{
	struct tcp_info info = {0};
	socklen_t len = sizeof info;
	struct seen *seen;

	if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) < 0)
		return 0;
	seen = seen_at(i, fd);
	if (!seen)
		return 0;
	if (calm || seen->taken > info.tcpi_bytes_received)
		seen->taken = info.tcpi_bytes_received;
	return info.tcpi_bytes_received - seen->taken;
}

static void
peer_text(int fd, char *ret, size_t cap)
{
	union {
		struct sockaddr any;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
	} at;
	socklen_t len = sizeof at;
	char host[INET6_ADDRSTRLEN] = "?";

	snprintf(ret, cap, "?");
	if (getpeername(fd, &at.any, &len) < 0)
		return;
	if (at.any.sa_family == AF_INET)
		snprintf(ret, cap, "%s:%u",
			 inet_ntop(AF_INET, &at.v4.sin_addr, host, sizeof host),
			 ntohs(at.v4.sin_port));
	else if (at.any.sa_family == AF_INET6)
		snprintf(ret, cap, "[%s]:%u",
			 inet_ntop(AF_INET6, &at.v6.sin6_addr, host, sizeof host),
			 ntohs(at.v6.sin6_port));
}

/* Connecting to nothing is the reset that another's descriptor can be given; shutdown() would let
 * the peer go on sending. */
static bool
cut(struct intake *i, int fd, uint64_t bytes)
{
	const struct sockaddr nothing = {.sa_family = AF_UNSPEC};
	char peer[INET6_ADDRSTRLEN + 16];

	peer_text(fd, peer, sizeof peer);
	if (connect(fd, &nothing, sizeof nothing) < 0)
		return false;
	count_add(i->process, COUNTER_streams_cut, 1);
	log_error("events peer=%s: it sends more than can be kept, %llu bytes that nobody could "
		  "read yet; its connection is cut, others go on",
		  peer, (unsigned long long)bytes);
	return true;
}

bool
intake_look(struct intake *i, size_t accounted_bytes, mono_ns now)
{
	size_t least = i->born + accounted_bytes, own = own_bytes(i);
	bool over = own > least + i->most;
	uint64_t worst = 0;
	int fd_worst = -1;

	if (over) {
		malloc_trim(0); /* what is free already is nobody's fault */
		own = own_bytes(i);
		over = own > least + i->most;
	}
	i->over = over ? i->over + 1 : 0;
	if (!over && now - i->looked < LOOK_NS)
		return false;
	i->looked = now;
	for (int fd = 0; fd < (int)i->n; fd++) {
		uint64_t bytes = kept(i, fd, own < least + i->most / CALM);

		if (bytes > worst) {
			worst = bytes;
			fd_worst = fd;
		}
	}
	return over && worst >= i->most / BLAME && cut(i, fd_worst, worst);
}

bool
intake_full(struct intake *i)
{
	if (i->over < FULL_LOOKS)
		return false;
	i->over = 0;
	return true;
}
