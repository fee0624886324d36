/* actors/common/attach.c -- see attach.h. */
#include "actors/common/attach.h"

#include <string.h>

int
pm_open_failed(struct pm_actor *actor, const char *what, int r)
{
	log_error("open failed: %s: %s", what, strerror(-r));
	birth_fail(&actor->birth, "", 0, 0, what);
	return r;
}

int
pm_attach_rows(struct pm_actor *actor, struct rows *ret, bool writable)
{
	int fd = birth_segment_fd(&actor->birth, SEGMENT_ROWS, ROLE_NONE, 0, NULL);
	int r = fd < 0 ? fd : rows_attach(ret, fd, writable);

	return r < 0 ? pm_open_failed(actor, "worker table", r) : 0;
}

static int
replace(int fd, struct manifest **manifest, struct yaml_errors *errs)
{
	struct manifest *newer = NULL;
	uint32_t generation = 0;
	int r = config_load(fd, &newer, &generation, errs);

	if (r < 0) {
		log_error("configuration not readable: %s%s%s", strerror(-r), errs->n ? ": " : "",
			  errs->n ? errs->list[0].text : "");
		return r;
	}
	manifest_free(manifest);
	*manifest = newer;
	log_set_generation(generation);
	return 0;
}

int
pm_attach_config(struct pm_actor *actor, struct manifest **ret)
{
	struct yaml_errors errs = {0};
	struct manifest *manifest = NULL;
	int fd = birth_segment_fd(&actor->birth, SEGMENT_CONFIG, ROLE_NONE, 0, NULL);
	int r = fd < 0 ? fd : replace(fd, &manifest, &errs);

	if (r == 0)
		*ret = manifest;
	else if (errs.n > 0)
		birth_fail(&actor->birth, errs.list[0].file, errs.list[0].line,
			   errs.list[0].column, errs.list[0].text);
	else
		pm_open_failed(actor, "configuration snapshot", r);
	yaml_errors_free(&errs);
	return r;
}

int
pm_attach_trust(struct pm_actor *actor, enum segment_kind kind, struct secrets *ret)
{
	int fd = birth_segment_fd(&actor->birth, kind, ROLE_NONE, 0, NULL), r;

	if (fd < 0)
		return 0;
	r = secrets_attach(ret, fd, kind, NULL);
	return r < 0 ? pm_open_failed(actor, "workers' CAs", r) : 0;
}

int
pm_follow_config(int fd, struct manifest **manifest)
{
	struct yaml_errors errs = {0};
	int r = replace(fd, manifest, &errs);

	yaml_errors_free(&errs);
	return r;
}
