/* actors/common/seed.c -- see seed.h. */
#include "actors/common/seed.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "actors/common/fields.h"

#define TEXT_LEN 17u                    /* 16 digits, a line end */
#define NEW_FILE PM_SEED_FILE ".new"

/* Takes fd. */
static int
seed_read(int fd, uint64_t *ret, const char **why)
{
	char text[TEXT_LEN + 1];
	ssize_t n = read(fd, text, sizeof text);
	int r = n < 0 ? -errno : 0;

	close(fd);
	*why = "the hash seed's file cannot be read";
	if (r < 0)
		return r;
	if (n == (ssize_t)TEXT_LEN && text[TEXT_LEN - 1] == '\n')
		n--;
	*why = "the hash seed's file must have 16 hexadecimal digits and nothing else";
	return pm_hex_read(text, (size_t)n, ret) ? 0 : -EINVAL;
}

/* What is kept is only ours. */
static int
kept_check(int fd, const char **why)
{
	struct stat st;

	*why = "hash-seed in the run directory cannot be read";
	if (fstat(fd, &st) < 0)
		return -errno;
	*why = "hash-seed in the run directory is no regular file";
	if (!S_ISREG(st.st_mode))
		return -EPERM;
	*why = "hash-seed in the run directory belongs to another user: others may know it";
	if (st.st_uid != geteuid())
		return -EPERM;
	*why = "hash-seed in the run directory is open to others (its mode must be 0600)";
	return st.st_mode & 077 ? -EPERM : 0;
}

static int
write_whole(int fd, const char *text, size_t len)
{
	ssize_t n = write(fd, text, len);

	if (n < 0)
		return -errno;
	if ((size_t)n != len)
		return -EIO;
	return fsync(fd) < 0 ? -errno : 0;
}

static int
seed_make(int run_fd, uint64_t *ret, const char **why)
{
	char text[TEXT_LEN + 1];
	uint64_t seed = 0;
	int fd, r;

	*why = "the kernel gives no random numbers";
	if (getrandom(&seed, sizeof seed, 0) != (ssize_t)sizeof seed)
		return -EIO;
	*why = "cannot write hash-seed in the run directory";
	unlinkat(run_fd, NEW_FILE, 0);          /* of one who died while writing */
	fd = openat(run_fd, NEW_FILE, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	snprintf(text, sizeof text, "%016" PRIx64 "\n", seed);
	r = write_whole(fd, text, TEXT_LEN);
	close(fd);
	if (r == 0 && renameat(run_fd, NEW_FILE, run_fd, PM_SEED_FILE) < 0)
		r = -errno;
	if (r == 0 && fsync(run_fd) < 0)
		r = -errno;
	if (r < 0)
		unlinkat(run_fd, NEW_FILE, 0);
	else
		*ret = seed;
	return r < 0 ? r : 1;
}

int
pm_seed_keep(int run_fd, uint64_t *ret, const char **why)
{
	int fd = openat(run_fd, PM_SEED_FILE, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	int r;

	if (fd < 0 && errno == ENOENT)
		return seed_make(run_fd, ret, why);
	*why = "hash-seed in the run directory cannot be opened";
	if (fd < 0)
		return -errno;
	r = kept_check(fd, why);
	if (r < 0) {
		close(fd);
		return r;
	}
	return seed_read(fd, ret, why);
}

int
pm_seed_given(const char *given, uint64_t *ret, const char **why)
{
	struct stat st;
	int fd;

	if (pm_hex_read(given, strlen(given), ret))
		return 0;
	*why = "the hash seed is neither 16 hexadecimal digits nor a file that can be opened";
	fd = open(given, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	*why = "the hash seed's file is no regular file";
	if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
		close(fd);
		return -EPERM;
	}
	*why = "the hash seed's file may be written by others";
	if (st.st_mode & 022) {
		close(fd);
		return -EPERM;
	}
	return seed_read(fd, ret, why);
}
