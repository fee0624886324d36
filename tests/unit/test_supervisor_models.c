/* tests/unit/test_supervisor_models.c -- folders become models, by the program that makes them. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "actors/supervisor/supervisor.h"

#define DEMO PM_SOURCE_DIR "/etc/models/demo"

struct world {
	struct supervisor *s;
	char dir[32];
	char yaml[64];
};

static void
world_open(struct world *w)
{
	char path[64], *slash;
	ssize_t n;

	w->s = calloc(1, sizeof *w->s);
	cr_assert(w->s);
	w->s->models.sock = w->s->models.pidfd = -1;
	n = readlink("/proc/self/exe", w->s->bin_dir, sizeof w->s->bin_dir - 1);
	cr_assert_gt(n, 0);
	slash = strrchr(w->s->bin_dir, '/');
	*slash = 0;
	snprintf(w->dir, sizeof w->dir, "/tmp/models-XXXXXX");
	cr_assert(mkdtemp(w->dir));
	snprintf(path, sizeof path, "%s/" MODELS_DIR, w->dir);
	cr_assert_eq(mkdir(path, 0700), 0);
	snprintf(w->yaml, sizeof w->yaml, "%s/pointsman.yaml", w->dir);
	w->s->run_fd = open(w->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cr_assert_geq(w->s->run_fd, 0);
}

static void
world_close(struct world *w)
{
	char path[320];

	models_close(w->s);
	w->s->reload.serving = 1;
	models_sweep(w->s);             /* nothing is used any more: the store is empty */
	snprintf(path, sizeof path, "%s/" MODELS_DIR, w->dir);
	cr_assert_eq(rmdir(path), 0, "%s is not empty", path);
	unlink(w->yaml);
	rmdir(w->dir);
	close(w->s->run_fd);
	free(w->s);
}

/* A generation's documents: they name that folder, in line 4. */
static struct config *
documents(struct world *w, unsigned at, const char *folder)
{
	char *paths[] = {w->yaml};
	struct config *c = &w->s->config[at];
	struct yaml_errors errs = {0};
	FILE *f = fopen(w->yaml, "w");

	cr_assert(f);
	fprintf(f, "apiVersion: pointsman.io/v1alpha1\nkind: InferenceWorkerSet\n"
		"metadata: {name: set}\n"
		"spec: {engine: vllm, model: m, tokenizer: {path: %s}, "
		"members: [{name: w, url: \"http://127.0.0.1:9\"}]}\n"
		"---\napiVersion: pointsman.io/v1alpha1\nkind: GatewayBackend\n"
		"metadata: {name: g}\nspec: {listen: [\"127.0.0.1:9\"],"
		" models: [{name: m, policy: p}]}\n"
		"---\napiVersion: pointsman.io/v1alpha1\nkind: InferencePool\n"
		"metadata: {name: pool}\nspec: {workerSets: [set]}\n"
		"---\napiVersion: pointsman.io/v1alpha1\nkind: InferencePolicy\n"
		"metadata: {name: p}\nspec: {candidates: [{pool: pool}], minimize: Random}\n",
		folder);
	fclose(f);
	*c = (struct config){.generation = at + 1};
	if (manifest_load_paths(paths, 1, &c->manifest, &errs) < 0)
		yaml_errors_print(&errs, stderr);
	yaml_errors_free(&errs);
	cr_assert(c->manifest);
	return c;
}

static struct config *
load(struct world *w, unsigned at, const char *folder, bool making)
{
	struct config *c = documents(w, at, folder);

	cr_assert_eq(models_want(w->s, c->manifest), making);
	models_wait(w->s);
	cr_assert_eq(w->s->models.pid, 0, "the program is gone when all is made");
	return c;
}

static const char *
text_of(const struct config *c)
{
	static char text[1024];

	models_text(c, text, sizeof text);
	return text;
}

static void
unload(struct world *w, struct config *c)
{
	while (w->s->n_shares > 0)
		close(w->s->share[--w->s->n_shares].ro_fd);
	manifest_free(&c->manifest);
	free(c->model);
	*c = (struct config){0};
}

Test(supervisor_models, a_folder_is_made_once_for_all_generations_that_name_it)
{
	struct models_blob blob;
	struct config *a, *b;
	struct world w;

	world_open(&w);
	a = load(&w, 0, DEMO, true);
	cr_assert_eq(models_share(w.s, a), 0);
	cr_assert_str_eq(text_of(a), "");
	cr_assert_eq(w.s->n_shares, 1);
	cr_assert_eq(models_attach(&blob, fcntl(w.s->share[0].ro_fd, F_DUPFD_CLOEXEC, 0)), 0);
	models_detach(&blob);
	b = load(&w, 1, DEMO, false);
	cr_assert_eq(models_share(w.s, b), 0);
	cr_assert_eq(a->model[0], b->model[0]);
	cr_assert_eq(w.s->models.n, 1);
	unload(&w, a);
	models_sweep(w.s);
	cr_assert_eq(w.s->models.n, 1, "the other still uses it");
	unload(&w, b);
	models_sweep(w.s);
	cr_assert_eq(w.s->models.n, 0);
	/* And once more, of the file that is kept until somebody serves. */
	a = load(&w, 0, DEMO, true);
	cr_assert_eq(models_share(w.s, a), 0);
	cr_assert_str_eq(text_of(a), "");
	unload(&w, a);
	world_close(&w);
}

Test(supervisor_models, a_folder_that_cannot_be_used_is_told_with_its_place_and_not_tried_again)
{
	struct config *c;
	struct world w;
	char said[128];

	world_open(&w);
	snprintf(said, sizeof said, "warning: %s:4:", w.yaml);
	for (unsigned at = 0; at < 2; at++) {
		c = load(&w, at, w.dir, at == 0);
		cr_assert_eq(models_share(w.s, c), 0);
		cr_assert_eq(strncmp(text_of(c), said, strlen(said)), 0, "%s", text_of(c));
		cr_assert(strstr(text_of(c), "spec.tokenizer.path: "), "%s", text_of(c));
		cr_assert(strstr(text_of(c), "; text prompts go by the worker's /tokenize"), "%s",
			  text_of(c));
		cr_assert_eq(w.s->n_shares, at + 1, "policy is given the reason");
	}
	for (unsigned at = 0; at < 2; at++)
		unload(&w, &w.s->config[at]);
	world_close(&w);
}

Test(supervisor_models, what_befell_the_program_is_told_and_tried_again_with_the_next_load)
{
	char bin[sizeof ((struct supervisor *)0)->bin_dir];
	struct config *c;
	struct world w;

	world_open(&w);
	memcpy(bin, w.s->bin_dir, sizeof bin);
	snprintf(w.s->bin_dir, sizeof w.s->bin_dir, "%s", w.dir);
	c = load(&w, 0, DEMO, false);
	cr_assert_eq(models_share(w.s, c), 0);
	cr_assert(strstr(text_of(c), "cannot be started"), "%s", text_of(c));
	memcpy(w.s->bin_dir, bin, sizeof bin);

	cr_assert(models_want(w.s, c->manifest));
	cr_assert_eq(kill(w.s->models.pid, SIGKILL), 0);
	models_wait(w.s);
	free(c->model);
	cr_assert_eq(models_share(w.s, c), 0);
	cr_assert(strstr(text_of(c), "died of it"), "%s", text_of(c));

	cr_assert(models_want(w.s, c->manifest));
	models_wait(w.s);
	free(c->model);
	cr_assert_eq(models_share(w.s, c), 0);
	cr_assert_str_eq(text_of(c), "");
	unload(&w, c);
	world_close(&w);
}

Test(supervisor_models, one_that_takes_a_minute_is_given_up)
{
	struct config *c;
	struct world w;

	world_open(&w);
	c = documents(&w, 0, DEMO);
	cr_assert(models_want(w.s, c->manifest));
	cr_assert_eq(kill(w.s->models.pid, SIGSTOP), 0);
	cr_assert_not(models_tick(w.s, w.s->models.began_ns + 59000000000));
	cr_assert(models_tick(w.s, w.s->models.began_ns + 60000000001));
	cr_assert_eq(w.s->models.pid, 0);
	cr_assert_eq(models_share(w.s, c), 0);
	cr_assert(strstr(text_of(c), "not made within 60 s"), "%s", text_of(c));
	unload(&w, c);
	world_close(&w);
}
