/* actors/common/prompt/file.h -- a file of a model's folder, read whole.
 *
 * Meaning    its bytes as they were; never a map of it: whoever shortens a mapped file ends who
 *            reads it.
 * Waiting    none for a pipe or a device: what is no regular file is refused.
 * Errors     -errno, and why names the file.  One that became shorter meanwhile is -EIO.
 * Threads    pure.  Cost: one copy.
 */
#pragma once
#include <stddef.h>

struct file {                           /* open, not yet read */
	const char *path;               /* borrowed */
	int fd;
	size_t len;
};

int file_open(const char *path, size_t most, struct file *ret, char *why, size_t why_len);
	/* At most so many bytes.  0, and file_read_whole must follow. */
int file_read_whole(struct file *f, char *to, char *why, size_t why_len);
	/* f->len bytes; closes.  0, -EIO. */
int file_bytes(const char *path, size_t most, char **ret, size_t *ret_len, char *why,
	       size_t why_len);
	/* Both, into memory that is the caller's to free(). */
