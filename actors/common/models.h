/* actors/common/models.h -- a set's model as a segment: from spec.tokenizer to mapped bytes.
 *
 * Segment    MODEL, frozen (segment.h): body is model.h's blob, or the reason why there is none.
 *            geometry: [0] bytes of the body, [1] 1: a reason; [2] and [3] the key's first 16
 *            bytes, by which a process that has mapped it knows it again.
 *            Its index, as it is sent, is the set's subscript in the manifest of its generation; a
 *            set without spec.tokenizer has none.
 * Made       by pointsman-models, a program of its own, once for the same content: the key is the
 *            SHA-256 of every file of the folder that may decide a token, the options, and what
 *            made it.  Kept as <run>/models/KEY.
 * Stamp      what stat says of those files, and the options: where it is the same nothing need be
 *            read.  A file that is rewritten has another change time.
 * Threads    any.
 */
#pragma once
#include "actors/common/decide/manifest.h"
#include "shm/segment.h"

#define MODELS_LAYOUT    1u
#define MODELS_KEY_TEXT  65u            /* 64 hexadecimal digits and the 0 */
#define MODELS_DIR       "models"       /* in the run directory */
#define MODELS_FILES_MAX 64u            /* looked at in a folder */
#define MODELS_FILE_MAX  (256u << 20)   /* bytes of one */

struct models_blob {                    /* one such segment, mapped */
	struct segment seg;
	const void *bytes;              /* 64-byte aligned; NULL: there is none */
	size_t len;
	char why[256];                  /* why there is none */
	uint64_t key[2];
};

int models_freeze(int *ret_fd, const char *key, const void *bytes, size_t len);
	/* A segment of a blob; key: its hexadecimal text.  0, -errno. */
int models_freeze_reason(int *ret_fd, const char *why);
	/* A segment that says why there is no blob.  0, -errno. */
int models_attach(struct models_blob *ret, int fd);
	/* Takes fd.  0; -EBADMSG it is not frozen or not whole; else as segment_attach. */
void models_detach(struct models_blob *blob);

struct models_stamp {
	uint64_t lo, hi;
};

struct models_file {                    /* one file that decides tokens */
	char name[128];                 /* below the folder; "": the chat template given */
	char path[600];
};

unsigned models_files(const struct manifest_tokenizer *t, struct models_file *ret, unsigned max);
	/* By name; weights and what no prompt depends on are left out. */
struct models_stamp models_stamp(const struct manifest_tokenizer *t);
	/* What cannot be looked at counts with its error. */
