/* shm/segment.c -- make, seal, attach and check a shared segment. */
#include "shm/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8U              /* Linux 6.3; glibc 2.36 does not name it */
#endif

static const char *const kind_names[SEGMENT_KINDS] = {
	"none", "rows", "index", "column", "slots", "arena", "process", "roster", "config",
	"pins", "secrets", "trust", "probes", "model", "limits",
};
static const char *const role_names[ROLE_COUNT] = {
	"none", "supervisor", "ingress", "kvevents", "metrics", "policy", "admin", "tool",
	"models",
};

const char *
segment_kind_name(enum segment_kind kind)
{
	return (unsigned)kind < SEGMENT_KINDS ? kind_names[kind] : "unknown";
}

const char *
process_role_name(enum process_role role)
{
	return (unsigned)role < ROLE_COUNT ? role_names[role] : "unknown";
}

enum process_role
process_role_parse(const char *name)
{
	for (unsigned i = 1; i < ROLE_COUNT; i++)
		if (strcmp(role_names[i], name) == 0)
			return (enum process_role)i;
	return ROLE_NONE;
}

static uint64_t
clock_ns(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

mono_ns
clock_mono(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

wall_ns
clock_wall(void)
{
	return clock_ns(CLOCK_REALTIME);
}

uint64_t
process_start_ticks(uint32_t pid)
{
	char path[32], buf[1024], *p;
	ssize_t n;
	int fd;

	snprintf(path, sizeof path, "/proc/%u/stat", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	n = read(fd, buf, sizeof buf - 1);
	close(fd);
	if (n <= 0)
		return 0;
	buf[n] = 0;
	p = strrchr(buf, ')');                  /* the name may hold spaces and parentheses */
	if (!p)
		return 0;
	p++;
	for (unsigned field = 3; field < 22; field++) {
		p = strchr(p + 1, ' ');
		if (!p)
			return 0;
	}
	unsigned long long ticks;
	return sscanf(p, " %llu", &ticks) == 1 ? ticks : 0;
}

static int
memfd_new(enum segment_kind kind)
{
	char name[64];
	int fd;

	snprintf(name, sizeof name, "pointsman-%s", segment_kind_name(kind));
	fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
	if (fd < 0 && errno == EINVAL)
		fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	return fd < 0 ? -errno : fd;
}

static void
head_fill(struct segment_header *head, enum segment_kind kind, uint32_t layout, size_t size,
	  const uint64_t geometry[4])
{
	head->layout = layout;
	head->kind = (uint32_t)kind;
	head->size = size;
	if (getrandom(&head->instance, sizeof head->instance, 0) != sizeof head->instance)
		head->instance = clock_wall() ^ (uint64_t)getpid() << 40;
	if (geometry)
		memcpy(head->geometry, geometry, sizeof head->geometry);
}

int
segment_create(struct segment *ret, enum segment_kind kind, uint32_t layout, size_t size,
	       const uint64_t geometry[4])
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	int fd, r;

	size = (size + page - 1) / page * page;
	fd = memfd_new(kind);
	if (fd < 0)
		return fd;
	/* A memfd is born 0777: whoever holds a read-only fd could reopen it for writing. */
	if (fchmod(fd, 0400) < 0 || ftruncate(fd, (off_t)size) < 0 ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
		goto fail;

	struct segment_header *head = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (head == MAP_FAILED)
		goto fail;
	head_fill(head, kind, layout, size, geometry);
	*ret = (struct segment){.fd = fd, .writable = true, .head = head, .size = size};
	return 0;
fail:
	r = -errno;
	close(fd);
	return r;
}

#define FROZEN (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL)

static int
write_all(int fd, const void *bytes, size_t len)
{
	const char *p = bytes;

	while (len > 0) {
		ssize_t n = write(fd, p, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

int
segment_freeze(int *ret_fd, enum segment_kind kind, uint32_t layout, const uint64_t geometry[4],
	       const void *bytes, size_t len)
{
	struct segment_header head;
	int fd = memfd_new(kind), r;

	if (fd < 0)
		return fd;
	memset(&head, 0, sizeof head);
	head_fill(&head, kind, layout, SEGMENT_BODY + len, geometry);
	head.owner_role = ROLE_SUPERVISOR;
	atomic_store_explicit(&head.magic, SEGMENT_MAGIC, memory_order_relaxed);
	r = write_all(fd, &head, sizeof head);
	if (r == 0)
		r = write_all(fd, bytes, len);
	if (r == 0 && fcntl(fd, F_ADD_SEALS, FROZEN) < 0)
		r = -errno;
	if (r < 0) {
		close(fd);
		return r;
	}
	*ret_fd = fd;
	return 0;
}

bool
segment_is_frozen(int fd)
{
	int seals = fcntl(fd, F_GET_SEALS);

	return seals >= 0 && (seals & FROZEN) == FROZEN;
}

void
segment_publish(struct segment *seg)
{
	atomic_store_explicit(&seg->head->magic, SEGMENT_MAGIC, memory_order_release);  /* S1 */
}

int
segment_readonly_fd(const struct segment *seg)
{
	char path[32];
	int fd;

	snprintf(path, sizeof path, "/proc/self/fd/%d", seg->fd);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

int
segment_attach(struct segment *ret, int fd, enum segment_kind kind, uint32_t layout, bool writable)
{
	struct segment_header *head = MAP_FAILED;
	struct stat st;
	size_t size = 0;
	int r;

	if (fstat(fd, &st) < 0) {
		r = -errno;
		goto fail;
	}
	r = -EBADMSG;
	if (st.st_size < (off_t)SEGMENT_BODY)
		goto fail;
	size = (size_t)st.st_size;
	head = mmap(NULL, size, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
	if (head == MAP_FAILED) {
		r = -errno;
		goto fail;
	}
	if (atomic_load_explicit(&head->magic, memory_order_acquire) != SEGMENT_MAGIC)  /* A1 */
		goto fail;
	if (head->size != size || head->kind != (uint32_t)kind)
		goto fail;
	if (head->layout != layout) {
		r = -ESTALE;
		goto fail;
	}
	fcntl(fd, F_SETFD, FD_CLOEXEC);
	*ret = (struct segment){.fd = fd, .writable = writable, .head = head, .size = size};
	return 0;
fail:
	if (head != MAP_FAILED)
		munmap(head, size);
	close(fd);
	return r;
}

void
segment_claim(struct segment *seg)
{
	uint32_t pid = (uint32_t)getpid();

	atomic_store_explicit(&seg->head->writer_start, process_start_ticks(pid),
			      memory_order_relaxed);
	atomic_store_explicit(&seg->head->writer_pid, pid, memory_order_relaxed);
	atomic_store_explicit(&seg->head->heartbeat_ns, clock_mono(), memory_order_relaxed);
	atomic_fetch_add_explicit(&seg->head->epoch, 1, memory_order_release);
}

void
segment_detach(struct segment *seg)
{
	if (seg->head) {
		munmap(seg->head, seg->size);
		close(seg->fd);
	}
	*seg = (struct segment){.fd = -1};
}

uint64_t
segment_touched(const struct segment *seg)
{
	struct stat st;

	return seg->head && fstat(seg->fd, &st) == 0 ? (uint64_t)st.st_blocks * 512u : UINT64_MAX;
}
