/* actors/common/prompt/file.c -- a file of a model's folder, read whole. */
#include "actors/common/prompt/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int
refuse(int r, const char *path, const char *what, char *why, size_t why_len)
{
	snprintf(why, why_len, "%s: %s", path, what);
	return r;
}

int
file_open(const char *path, size_t most, struct file *ret, char *why, size_t why_len)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY), r = 0;
	struct stat st;
	char large[48];

	if (fd < 0)
		return refuse(-errno, path, strerror(errno), why, why_len);
	if (fstat(fd, &st) < 0) {
		r = refuse(-errno, path, strerror(errno), why, why_len);
	} else if (!S_ISREG(st.st_mode)) {
		r = refuse(-EINVAL, path, "no file", why, why_len);
	} else if (st.st_size < 0 || (uintmax_t)st.st_size > most) {
		snprintf(large, sizeof large, "larger than %zu MiB", most >> 20);
		r = refuse(-EFBIG, path, large, why, why_len);
	}
	if (r < 0) {
		close(fd);
		return r;
	}
	*ret = (struct file){.path = path, .fd = fd, .len = (size_t)st.st_size};
	return 0;
}

int
file_read_whole(struct file *f, char *to, char *why, size_t why_len)
{
	size_t n = 0;
	int r = 0;

	while (r == 0 && n < f->len) {
		ssize_t got = read(f->fd, to + n, f->len - n);

		if (got > 0)
			n += (size_t)got;
		else if (got == 0)
			r = refuse(-EIO, f->path, "it became shorter", why, why_len);
		else if (errno != EINTR)
			r = refuse(-EIO, f->path, strerror(errno), why, why_len);
	}
	close(f->fd);
	f->fd = -1;
	return r;
}

int
file_bytes(const char *path, size_t most, char **ret, size_t *ret_len, char *why, size_t why_len)
{
	struct file f;
	char *p;
	int r = file_open(path, most, &f, why, why_len);

	if (r < 0)
		return r;
	p = malloc(f.len + 1);
	if (!p) {
		close(f.fd);
		return refuse(-ENOMEM, path, "no memory", why, why_len);
	}
	r = file_read_whole(&f, p, why, why_len);
	if (r < 0) {
		free(p);
		return r;
	}
	*ret = p;
	*ret_len = f.len;
	return 0;
}
