/* actors/common/models.c -- see models.h. */
#include "actors/common/models.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define GEOMETRY_LEN    0
#define GEOMETRY_REASON 1
#define GEOMETRY_KEY    2

/* ---- the segment ---- */

int
models_freeze(int *ret_fd, const char *key, const void *bytes, size_t len)
{
	uint64_t geometry[4] = {[GEOMETRY_LEN] = len};

	for (unsigned i = 0; i < 2; i++) {
		char half[17];

		snprintf(half, sizeof half, "%.16s", strlen(key) >= 32 ? key + 16 * i : "0");
		geometry[GEOMETRY_KEY + i] = strtoull(half, NULL, 16);
	}
	return segment_freeze(ret_fd, SEGMENT_MODEL, MODELS_LAYOUT, geometry, bytes, len);
}

int
models_freeze_reason(int *ret_fd, const char *why)
{
	const uint64_t geometry[4] = {[GEOMETRY_LEN] = strlen(why), [GEOMETRY_REASON] = 1};

	return segment_freeze(ret_fd, SEGMENT_MODEL, MODELS_LAYOUT, geometry, why, strlen(why));
}

int
models_attach(struct models_blob *ret, int fd)
{
	bool frozen = segment_is_frozen(fd);
	struct models_blob b = {.bytes = NULL};
	int r = segment_attach(&b.seg, fd, SEGMENT_MODEL, MODELS_LAYOUT, false);
	const uint64_t *geometry;

	if (r < 0)
		return r;
	geometry = b.seg.head->geometry;
	if (!frozen || geometry[GEOMETRY_LEN] != b.seg.size - SEGMENT_BODY) {
		segment_detach(&b.seg);
		return -EBADMSG;
	}
	memcpy(b.key, geometry + GEOMETRY_KEY, sizeof b.key);
	if (geometry[GEOMETRY_REASON]) {
		snprintf(b.why, sizeof b.why, "%.*s", (int)(b.seg.size - SEGMENT_BODY),
			 (const char *)segment_body(&b.seg));
	} else {
		b.bytes = segment_body(&b.seg);
		b.len = b.seg.size - SEGMENT_BODY;
	}
	*ret = b;
	return 0;
}

void
models_detach(struct models_blob *blob)
{
	segment_detach(&blob->seg);
	*blob = (struct models_blob){.seg.fd = -1};
}

/* ---- the files ---- */

/* Weights are named otherwise, and their index, which may be large, is theirs. */
static bool
decides(const char *name)
{
	static const char *const ends[] = {".json", ".jinja", ".model", ".tiktoken"};
	size_t n = strlen(name);

	if (name[0] == '.' || strstr(name, ".index.json"))
		return false;
	for (unsigned i = 0; i < sizeof ends / sizeof ends[0]; i++)
		if (n > strlen(ends[i]) && strcmp(name + n - strlen(ends[i]), ends[i]) == 0)
			return true;
	return false;
}

static int
wanted(const struct dirent *entry)
{
	return decides(entry->d_name);
}

static int
by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);      /* bytes: the same in every locale */
}

static unsigned
files_in(const char *folder, const char *below, struct models_file *ret, unsigned n, unsigned max)
{
	struct dirent **entries = NULL;
	char path[512];
	int found;

	snprintf(path, sizeof path, "%s%s%s", folder, *below ? "/" : "", below);
	found = scandir(path, &entries, wanted, by_name);
	for (int i = 0; i < found; i++) {
		const char *name = entries[i]->d_name;

		if (n < max && strlen(below) + strlen(name) + 2 <= sizeof ret[n].name) {
			snprintf(ret[n].name, sizeof ret[n].name, "%.60s%s%.64s", below,
				 *below ? "/" : "", name);
			snprintf(ret[n].path, sizeof ret[n].path, "%.270s/%s", folder,
				 ret[n].name);
			n++;
		}
		free(entries[i]);
	}
	free(entries);
	return n;
}

unsigned
models_files(const struct manifest_tokenizer *t, struct models_file *ret, unsigned max)
{
	unsigned n = 0;

	if (t->chat_template[0] && max > 0) {
		ret[n].name[0] = 0;
		snprintf(ret[n++].path, sizeof ret[0].path, "%s", t->chat_template);
	}
	n = files_in(t->path, "", ret, n, max);
	return files_in(t->path, "additional_chat_templates", ret, n, max);
}

static void
add(XXH3_state_t *to, const void *bytes, size_t len)
{
	XXH3_128bits_update(to, bytes, len);
}

static void
add_text(XXH3_state_t *to, const char *text)
{
	add(to, text, strlen(text) + 1);
}

static void
add_stat(XXH3_state_t *to, const char *path)
{
	struct stat st;
	int64_t is[8] = {0};

	if (stat(path, &st) < 0) {
		is[0] = -errno;
	} else {
		is[1] = (int64_t)st.st_dev;
		is[2] = (int64_t)st.st_ino;
		is[3] = st.st_size;
		is[4] = st.st_mtim.tv_sec;
		is[5] = st.st_mtim.tv_nsec;
		is[6] = st.st_ctim.tv_sec;
		is[7] = st.st_ctim.tv_nsec;
	}
	add(to, is, sizeof is);
}

struct models_stamp
models_stamp(const struct manifest_tokenizer *t)
{
	const uint32_t numbers[] = {(uint32_t)t->content, (uint32_t)t->encoder,
				    t->trust_request_template, t->exclude_tools, t->max_model_len};
	struct models_file *file = calloc(MODELS_FILES_MAX, sizeof *file);
	unsigned n = file ? models_files(t, file, MODELS_FILES_MAX) : 0;
	XXH3_state_t *state = XXH3_createState();
	struct models_stamp ret = {0};

	if (state) {
		XXH3_128bits_reset(state);
		add_text(state, t->path);
		add_text(state, t->chat_template);
		add_text(state, t->kwargs ? t->kwargs : "");
		add_text(state, t->time_zone);
		add(state, numbers, sizeof numbers);
		add_stat(state, t->path);
		for (unsigned i = 0; i < n; i++) {
			add_text(state, file[i].path);
			add_stat(state, file[i].path);
		}
		XXH128_hash_t h = XXH3_128bits_digest(state);

		ret = (struct models_stamp){h.low64, h.high64};
	}
	XXH3_freeState(state);
	free(file);
	return ret;
}
