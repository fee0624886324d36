/* actors/common/models_build.c -- see models_build.h. */
#include "actors/common/models_build.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "actors/common/prompt/model.h"

#define READ_BYTES 65536u

_Static_assert((int)MODEL_CONTENT_AUTO == (int)MANIFEST_CONTENT_AUTO &&
		       (int)MODEL_CONTENT_STRING == (int)MANIFEST_CONTENT_STRING &&
		       (int)MODEL_CONTENT_OPENAI == (int)MANIFEST_CONTENT_OPENAI,
	       "one order of content formats");

static int
wrong(char *why, size_t why_len, const char *path, int err)
{
	snprintf(why, why_len, "%s: %s", path, strerror(err));
	return -err;
}

/* Name and length before the bytes: two files never read like one. */
static int
add_file(EVP_MD_CTX *to, const struct models_file *file, char *why, size_t why_len)
{
	int fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY), r = 0;
	char buf[READ_BYTES];
	struct stat st;
	ssize_t n = 0;

	if (fd < 0)
		return wrong(why, why_len, file->path, errno);
	if (fstat(fd, &st) < 0)
		r = wrong(why, why_len, file->path, errno);
	else if (!S_ISREG(st.st_mode))
		r = 0;                          /* who needs it will say so */
	else if (st.st_size > (off_t)MODELS_FILE_MAX)
		r = wrong(why, why_len, file->path, EFBIG);
	if (r == 0 && S_ISREG(st.st_mode)) {
		uint64_t size = (uint64_t)st.st_size;

		EVP_DigestUpdate(to, file->name, strlen(file->name) + 1);
		EVP_DigestUpdate(to, &size, sizeof size);
		while ((n = read(fd, buf, sizeof buf)) > 0)
			EVP_DigestUpdate(to, buf, (size_t)n);
		if (n < 0)
			r = wrong(why, why_len, file->path, errno);
	}
	close(fd);
	return r;
}

static void
add_options(EVP_MD_CTX *to, const struct manifest_tokenizer *t)
{
	const uint32_t numbers[] = {MODELS_LAYOUT, (uint32_t)t->content, (uint32_t)t->encoder,
				    t->trust_request_template, t->exclude_tools, t->max_model_len};
	const char *kwargs = t->kwargs ? t->kwargs : "";

	EVP_DigestUpdate(to, numbers, sizeof numbers);
	EVP_DigestUpdate(to, kwargs, strlen(kwargs) + 1);
	EVP_DigestUpdate(to, t->time_zone, strlen(t->time_zone) + 1);
}

int
models_key(const struct manifest_tokenizer *t, char ret_key[MODELS_KEY_TEXT], char *why,
	   size_t why_len)
{
	struct models_file *file = calloc(MODELS_FILES_MAX, sizeof *file);
	EVP_MD_CTX *digest = EVP_MD_CTX_new();
	unsigned char sum[EVP_MAX_MD_SIZE];
	unsigned len = 0, n = 0;
	struct stat st;
	int r = 0;

	snprintf(why, why_len, "out of memory");
	if (!file || !digest || EVP_DigestInit_ex(digest, EVP_sha256(), NULL) != 1)
		r = -ENOMEM;
	else if (stat(t->path, &st) < 0)
		r = wrong(why, why_len, t->path, errno);
	else if (!S_ISDIR(st.st_mode))
		r = wrong(why, why_len, t->path, ENOTDIR);
	else
		add_options(digest, t);
	if (r == 0)
		n = models_files(t, file, MODELS_FILES_MAX);
	for (unsigned i = 0; i < n && r == 0; i++)
		r = add_file(digest, &file[i], why, why_len);
	if (r == 0) {
		EVP_DigestFinal_ex(digest, sum, &len);
		for (unsigned i = 0; i < 32; i++)
			snprintf(ret_key + 2 * i, 3, "%02x", sum[i]);
	}
	EVP_MD_CTX_free(digest);
	free(file);
	return r;
}

bool
models_usable(const void *bytes, size_t len)
{
	char why[MODEL_WHY_BYTES];
	struct model *m = NULL;

	if (model_open(bytes, len, &m, why, sizeof why) < 0)
		return false;
	model_close(&m);
	return true;
}

int
models_build(const struct manifest_tokenizer *t, void **ret_bytes, size_t *ret_len, char *why,
	     size_t why_len)
{
	const struct model_options options = {
		.template_file = t->chat_template[0] ? t->chat_template : NULL,
		.content = (enum model_content)t->content,
		.default_kwargs = t->kwargs,
		.time_zone = t->time_zone[0] ? t->time_zone : NULL,
		.trust_request_template = t->trust_request_template,
		.exclude_tools_when_none = t->exclude_tools,
		.own_encoder_off = t->encoder == MANIFEST_ENCODER_HF,
		.max_model_len = t->max_model_len,
	};
	struct model *m = NULL;
	void *bytes = NULL;
	size_t len = 0;
	int r;

	r = model_build(t->path, &options, &bytes, &len, why, why_len);
	if (r < 0)
		return r;
	r = model_open(bytes, len, &m, why, why_len);
	if (r < 0) {                            /* its template does not compile */
		free(bytes);
		return r;
	}
	model_close(&m);
	*ret_bytes = bytes;
	*ret_len = len;
	return 0;
}
