/* bench_check.c -- what it costs to read, check and compile a thousand documents of all kinds. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "actors/common/decide/manifest.h"
#include "tests/bench/measure.h"

#define SETS 100u
#define TENANTS 200u
#define TAGS 60u
#define PROVIDERS 39u
/* What is left of a thousand, without the gateway: policies, each for one model. */
#define POLICIES (1000u - 1u - 2u * SETS - TENANTS - TAGS - PROVIDERS)
#define MEMBERS 8u
#define HEAD "apiVersion: pointsman.io/v1alpha1\nkind: %s\nmetadata: {name: %s%u}\nspec:\n"

struct folder {
	char path[64];
	uint32_t files;
};

static FILE *
begin(struct folder *to, const char *kind, const char *name, unsigned n)
{
	char path[128];
	FILE *f;

	snprintf(path, sizeof path, "%s/%04u.yaml", to->path, to->files++);
	f = fopen(path, "w");
	if (!f)
		cannot(path, 0);
	fprintf(f, HEAD, kind, name, n);
	return f;
}

static void
gateway_write(struct folder *to)
{
	FILE *f = begin(to, "GatewayBackend", "gw", 0);

	fputs("  listen: [\"127.0.0.1:8080\"]\n  models:\n", f);
	for (unsigned i = 0; i < POLICIES; i++)
		fprintf(f, "    - {name: model%u, aliasOf: served%u}\n", i, i % SETS);
	fclose(f);
}

static void
set_write(struct folder *to, unsigned n)
{
	FILE *f = begin(to, "InferenceWorkerSet", "set", n);

	fprintf(f, "  engine: vllm\n  model: served%u\n  members:\n", n);
	for (unsigned i = 0; i < MEMBERS; i++)
		fprintf(f, "    - {name: w%u, url: \"http://10.0.%u.%u:8000\", "
			"kvEvents: \"tcp://10.0.%u.%u:5557\"}\n", i, n, i, n, i);
	fclose(f);
	f = begin(to, "InferencePool", "pool", n);
	fprintf(f, "  workerSets: [set%u]\n", n);
	fclose(f);
}

static void
policy_write(struct folder *to, unsigned n)
{
	FILE *f = begin(to, "InferencePolicy", "policy", n);

	fprintf(f, "  match: {models: [model%u], tenants: [\"*\"]}\n  candidates:\n"
		"    - pool: pool%u\n    - {provider: cloud%u, model: big}\n"
		"  rules:\n"
		"    - name: stays\n      when: \"'tag%u' in request.tags\"\n"
		"      remove: \"candidate.kind == 'Provider'\"\n"
		"    - name: simple\n      when: \"request.promptTokens < 2000\"\n"
		"      keep: \"candidate.pool == 'pool%u' || candidate.cachedShare > 0.5\"\n"
		"      onEmpty: Skip\n"
		"    - name: queue\n"
		"      remove: \"candidate.waiting > 2 && candidate.running > 8\"\n"
		"      onEmpty: Skip\n"
		"    - name: idle\n      when: \"pool['pool%u'].kvUsage < 0.70\"\n"
		"      keep: \"candidate.state == 'up'\"\n      onEmpty: Skip\n"
		"    - name: burst\n"
		"      keepFirst: [\"candidate.kind == 'Worker'\", "
		"\"candidate.kind == 'Provider'\"]\n"
		"  onEmpty: {action: Wait, upTo: 2s, then: Reject}\n",
		n, n % SETS, n % PROVIDERS, n % TAGS, n % SETS, n % SETS);
	fclose(f);
}

static void
others_write(struct folder *to)
{
	FILE *f;

	for (unsigned i = 0; i < PROVIDERS; i++) {
		f = begin(to, "InferenceProvider", "cloud", i);
		fputs("  type: bedrock\n  region: us-east-1\n  models:\n"
		      "    - {name: big, price: {input: 0.25, output: 1.5}}\n", f);
		fclose(f);
	}
	for (unsigned i = 0; i < TAGS; i++) {
		f = begin(to, "RequestTag", "tag", i);
		fprintf(f, "  patterns: [{type: email}, {regex: \"case-%u-[0-9]{4}\"}]\n", i);
		fclose(f);
	}
	for (unsigned i = 0; i < TENANTS; i++) {
		f = begin(to, "InferenceTenant", "team", i);
		fprintf(f, "  keys: [\"sha256:%064x\"]\n  limits: {requestsPerMinute: 600}\n",
			i + 1);
		fclose(f);
	}
}

static void
folder_end(struct folder *folder)
{
	for (uint32_t i = 0; i < folder->files; i++) {
		char path[128];

		snprintf(path, sizeof path, "%s/%04u.yaml", folder->path, i);
		unlink(path);
	}
	rmdir(folder->path);
}

static double
seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int
main(int argc, char **argv)
{
	struct folder folder = {.path = "/tmp/bench_check.XXXXXX"};
	unsigned rounds = argc > 1 && strcmp(argv[1], "--quick") == 0 ? 1 : 5;
	char *paths[] = {folder.path};
	double best = 0;
	uint32_t rows = 0;

	if (!mkdtemp(folder.path))
		cannot(folder.path, 0);
	gateway_write(&folder);
	for (unsigned i = 0; i < SETS; i++)
		set_write(&folder, i);
	others_write(&folder);
	for (unsigned i = 0; i < POLICIES; i++)
		policy_write(&folder, i);
	for (unsigned i = 0; i < rounds; i++) {
		struct yaml_errors errs = {0};
		struct manifest *m = NULL;
		double start = seconds();

		if (manifest_load_paths(paths, 1, &m, &errs) < 0) {
			yaml_errors_print(&errs, stderr);
			folder_end(&folder);
			return 1;
		}
		rows = m->n_members;
		manifest_free(&m);
		best = lesser(best, seconds() - start);
	}
	folder_end(&folder);
	say((struct figure){"policy_check_1000_s", NULL, best, "s", 1, 0},
	    "%u files, %u rules, %u rows; least of %u", folder.files, 5 * POLICIES, rows, rounds);
	return 0;
}
