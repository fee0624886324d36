/* test_discovery.c -- sources of members: what they may say, and what changes nothing.  Time is
 * what each run is told. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "actors/common/log.h"
#include "actors/supervisor/discovery_private.h"
#include "proto/dns.h"

#define MS DISCOVERY_MS
#define A  "members: [{name: a, url: 'http://h:1'}]\n"
#define AB "members: [{name: a, url: 'http://h:1'}, {name: b, url: 'http://h:2'}]\n"

static char folder[] = "/tmp/pm-discovery-XXXXXX", path[64];
static struct discovery *d;
static struct manifest *m;
static mono_ns now;

static void
put(const char *text)
{
	FILE *f = fopen(path, "w");

	cr_assert(f);
	fputs(text, f);
	fclose(f);
}

static struct manifest *
manifest_of(const char *file)
{
	struct yaml_errors errs = {0};
	struct manifest *ret;
	char doc[1024];

	snprintf(doc, sizeof doc,
		 "apiVersion: pointsman.io/v1alpha1\nkind: GatewayBackend\nmetadata: {name: g}\n"
		 "spec: {listen: [\"127.0.0.1:8080\"], models: [{name: m, policy: p}]}\n---\n"
		 "apiVersion: pointsman.io/v1alpha1\nkind: InferenceWorkerSet\n"
		 "metadata: {name: s}\n"
		 "spec: {engine: vllm, model: m, discovery: {file: {path: %s}}}\n---\n"
		 "apiVersion: pointsman.io/v1alpha1\nkind: InferencePool\nmetadata: {name: o}\n"
		 "spec: {workerSets: [s]}\n---\n"
		 "apiVersion: pointsman.io/v1alpha1\nkind: InferencePolicy\nmetadata: {name: p}\n"
		 "spec: {candidates: [{pool: o}]}\n",
		 file);
	cr_assert_eq(manifest_load_text("t", doc, strlen(doc), &ret, &errs), 0);
	return ret;
}

static void
begin(const char *text)
{
	log_open("test", 0, 0, 0, LEVEL_ERROR);
	cr_assert(mkdtemp(folder));
	snprintf(path, sizeof path, "%s/members.yaml", folder);
	if (text)
		put(text);
	m = manifest_of(path);
	cr_assert_eq(discovery_new(&d), 0);
	cr_assert_eq(discovery_want(d, (const struct manifest *[]){m}, 1), 0);
	now = clock_mono();
	discovery_run(d, now);
}

static void
end(void)
{
	discovery_free(&d);
	manifest_free(&m);
	unlink(path);
	rmdir(folder);
}

/* What its text is now; NULL: it never had one. */
static const char *
says(void)
{
	static char text[4096];
	struct manifest_found found[2];

	if (discovery_found(d, m, found, 2) == 0)
		return NULL;
	snprintf(text, sizeof text, "%.*s", (int)found[0].len, found[0].text);
	return text;
}

static bool
fails_because(const char *part)
{
	return strstr(d->sources->error, part) != NULL;
}

/* Its events are heard, and what they ask for is due. */
static bool
later(mono_ns ms)
{
	bool changed = discovery_run(d, now);

	now += ms * MS;
	return discovery_run(d, now) || changed;
}

Test(discovery, a_file_is_read_at_once_and_whenever_it_is_replaced, .fini = end)
{
	char other[80];

	begin(A);
	cr_assert_str_eq(says(), A);
	cr_assert(!later(100), "nothing happened");
	put(AB);
	cr_assert(later(100));
	cr_assert_str_eq(says(), AB);
	snprintf(other, sizeof other, "%s/.new", folder);
	rename(path, other);
	cr_assert(!later(300), "gone: nothing changes");
	cr_assert(fails_because("cannot be read"));
	cr_assert_str_eq(says(), AB);
	rename(other, path);
	cr_assert(!later(100), "it says what it said");
	cr_assert_str_eq(d->sources->error, "");
	cr_assert_eq(d->failures, 1);
}

Test(discovery, a_file_is_not_read_while_it_is_written, .fini = end)
{
	int fd;

	begin(AB);
	fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
	cr_assert_geq(write(fd, A, 9), 9);
	d->sources->due_ns = now;               /* somebody wrote another file there */
	later(900);
	cr_assert_str_eq(says(), AB);
	cr_assert_str_eq(d->sources->error, "");
	cr_assert_geq(write(fd, &A[9], sizeof A - 10), 1);
	later(900);
	cr_assert_str_eq(says(), AB);
	close(fd);
	cr_assert(later(100));
	cr_assert_str_eq(says(), A);
}

Test(discovery, a_file_that_is_begun_to_be_written_while_it_is_read_is_not_believed, .fini = end)
{
	int fd;

	begin(AB);
	fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
	cr_assert_geq(write(fd, A, sizeof A - 1), 1);
	file_due(d, d->sources, now);           /* before the writer was heard */
	cr_assert_str_eq(says(), AB);
	cr_assert_geq(write(fd, "#\n", 2), 2);
	close(fd);
	cr_assert(later(100));
	cr_assert_str_eq(says(), A "#\n");
}

static unsigned
watches(void)
{
	char name[64], line[256];
	unsigned n = 0;
	FILE *f;

	snprintf(name, sizeof name, "/proc/self/fdinfo/%d", d->inotify_fd);
	f = fopen(name, "r");
	cr_assert(f);
	while (fgets(line, sizeof line, f))
		n += strncmp(line, "inotify ", 8) == 0;
	fclose(f);
	return n;
}

Test(discovery, a_file_that_is_moved_away_is_watched_no_more, .fini = end)
{
	char other[80];

	begin(A);
	cr_assert_eq(watches(), 2, "its folder and itself");
	for (unsigned i = 0; i < 5; i++) {
		snprintf(other, sizeof other, "%s/old%u", folder, i);
		rename(path, other);
		put(i % 2 ? A : AB);
		cr_assert(later(300));
		cr_assert_eq(watches(), 2, "%u", i);
	}
	for (unsigned i = 0; i < 5; i++) {
		snprintf(other, sizeof other, "%s/old%u", folder, i);
		unlink(other);
	}
	/* A link to its own folder has the folder's watch, which stays when the link goes. */
	unlink(path);
	cr_assert_eq(symlink(".", path), 0);
	later(300);
	cr_assert(fails_because("no regular file"));
	cr_assert_eq(watches(), 1);
	unlink(path);
	put(A);
	cr_assert(later(300), "seen by its folder's watch");
	cr_assert_str_eq(says(), A);
	cr_assert_eq(watches(), 2);
	put(AB);
	cr_assert(later(300));
	cr_assert_str_eq(says(), AB);
}

Test(discovery, half_a_file_whose_writer_is_gone_is_told_of, .fini = end)
{
	int fd;

	begin(AB);
	fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
	cr_assert_geq(write(fd, A, 20), 20);
	later(6000);
	later(1100);
	cr_assert(fails_because("members.yaml:"), "%s", d->sources->error);
	cr_assert_str_eq(says(), AB);
	close(fd);
}

Test(discovery, what_is_no_list_of_members_changes_nothing, .fini = end)
{
	static const char *const bad[] = {"", "members: [", "members: 1\n", "- a\n", "\xff\xfe"};

	begin(A);
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		put(bad[i]);
		cr_assert(!later(300), "%zu", i);
		cr_assert_str_neq(d->sources->error, "", "%zu", i);
		cr_assert_str_eq(says(), A);
	}
	put("members: []\n");
	cr_assert(later(300), "said explicitly");
	cr_assert_str_eq(says(), "members: []\n");
}

Test(discovery, a_file_of_100_MB_a_folder_or_a_pipe_is_refused_unread, .fini = end)
{
	begin(A);
	cr_assert_eq(truncate(path, 100 << 20), 0);
	later(1100);
	later(5000);
	cr_assert(fails_because("larger than 1 MiB"), "%s", d->sources->error);
	unlink(path);
	cr_assert_eq(mkfifo(path, 0600), 0);
	later(300);
	cr_assert(fails_because("no regular file"), "%s", d->sources->error);
	unlink(path);
	cr_assert_eq(mkdir(path, 0700), 0);
	later(300);
	cr_assert(fails_because("no regular file"), "%s", d->sources->error);
	rmdir(path);
	cr_assert_str_eq(says(), A);
}

Test(discovery, a_source_nobody_names_ends_and_one_that_is_named_again_begins_anew, .fini = end)
{
	begin(A);
	cr_assert_eq(discovery_want(d, NULL, 0), 0);
	cr_assert_null(d->sources);
	cr_assert_null(says());
	put(AB);
	cr_assert_eq(discovery_want(d, (const struct manifest *[]){m}, 1), 0);
	cr_assert_str_eq(says(), AB);
	cr_assert_eq(d->sources->id, 2);
}

Test(discovery, a_new_source_that_says_nothing_leaves_its_sets_members_as_they_were, .fini = end)
{
	struct manifest *old;
	char other[80];

	begin(A);
	old = m;
	snprintf(other, sizeof other, "%s/mistyped", folder);
	m = manifest_of(other);
	cr_assert_eq(discovery_want(d, (const struct manifest *[]){old, m}, 2), 0);
	cr_assert_str_eq(says(), A);
	cr_assert_eq(discovery_want(d, (const struct manifest *[]){m}, 1), 0);
	cr_assert_str_eq(says(), A);
	cr_assert(fails_because("cannot be read"), "%s", d->sources->error);
	cr_assert_null(d->sources->next);
	manifest_free(&old);
	rename(path, other);
	put(A);                                 /* nobody's by now */
	FILE *f = fopen(other, "w");
	cr_assert(f);
	fputs(AB, f);
	fclose(f);
	cr_assert(later(300));
	cr_assert_str_eq(says(), AB);
	unlink(other);
}

Test(discovery, the_end_of_all_looks_at_no_source_that_has_ended, .fini = end)
{
	struct manifest *two;
	char other[80];

	begin(A);
	snprintf(other, sizeof other, "%s/other", folder);
	two = manifest_of(other);
	cr_assert_eq(discovery_want(d, (const struct manifest *[]){m, two}, 2), 0);
	cr_assert(d->sources->next);
	manifest_free(&two);
	discovery_free(&d);                     /* its memory is watched */
	cr_assert_null(d);
}

Test(discovery, a_failing_source_is_shown_with_its_reason_and_counted, .fini = end)
{
	struct roster roster;
	struct discovery_sum sum;

	begin(NULL);
	cr_assert_eq(roster_create(&roster), 0);
	sum = discovery_show(d, &roster);
	cr_assert_eq(sum.failing, 1);
	cr_assert_eq(sum.sources, 1);
	cr_assert_eq(atomic_load(&roster.source[0].state), SOURCE_FAILING);
	cr_assert(strstr(roster.source[0].text, "cannot be read"));
	cr_assert_str_eq(roster.source[0].set, "s");
	put(A);
	later(300);
	sum = discovery_show(d, &roster);
	cr_assert_eq(sum.failing, 0);
	cr_assert_eq(atomic_load(&roster.source[0].state), SOURCE_OK);
	cr_assert_eq(atomic_load(&roster.source[1].state), SOURCE_EMPTY);
	roster_detach(&roster);
}

/* ---- DNS: from records to members ---- */

static struct source named = {.spec = {.source = MANIFEST_SOURCE_DNS}};
static char text[DISCOVERY_TEXT_MAX];
static unsigned cut;

Test(discovery, addresses_become_members_with_endpoints)
{
	struct dns_record r[3] = {{.addr = {10, 0, 0, 1}}, {.addr = {10, 0, 0, 1}},
				  {.addr = {10, 0, 0, 2}}};

	named.spec.dns.port = 8000;
	named.spec.dns.kv_events_port = 5557;
	dns_members(&named, r, 3, text, sizeof text, &cut);
	cr_assert_str_eq(text,
		"members:\n- {name: \"10.0.0.1\", url: \"http://10.0.0.1:8000\", "
		"kvEvents: \"tcp://10.0.0.1:5557\"}\n- {name: \"10.0.0.2\", "
		"url: \"http://10.0.0.2:8000\", kvEvents: \"tcp://10.0.0.2:5557\"}\n");
	named.spec.dns.record = MANIFEST_RECORD_AAAA;
	named.spec.dns.kv_events_port = 0;
	named.spec.https = true;
	inet_pton(AF_INET6, "::1", r[0].addr);
	inet_pton(AF_INET6, "fd00::2", r[1].addr);
	dns_members(&named, r, 2, text, sizeof text, &cut);
	cr_assert_str_eq(text, "members:\n- {name: \"0--1\", url: \"https://[::1]:8000\"}\n"
			       "- {name: \"fd00--2\", url: \"https://[fd00::2]:8000\"}\n");
}

Test(discovery, services_become_members_called_by_what_is_their_own)
{
	struct dns_record r[3] = {
		{.target = "v-0.vllm.ns.svc.cluster.local", .port = 8000},
		{.target = "elsewhere.example", .port = 81}, {.target = "", .port = 1}};

	named.spec.dns.record = MANIFEST_RECORD_SRV;
	strcpy(named.spec.dns.name, "_http._tcp.vllm.ns.svc.cluster.local.");
	dns_members(&named, r, 3, text, sizeof text, &cut);
	cr_assert_str_eq(text,
		"members:\n"
		"- {name: \"v-0.8000\", url: \"http://v-0.vllm.ns.svc.cluster.local:8000\"}\n"
		"- {name: \"elsewhere.example.81\", url: \"http://elsewhere.example:81\"}\n");
	dns_members(&named, &r[2], 1, text, sizeof text, &cut);
	cr_assert_str_eq(text, "members: []\n", "the root: there is no such service");
}

Test(discovery, what_of_the_longest_names_does_not_fit_is_left_out_whole_and_counted)
{
	struct dns_record *r = calloc(DISCOVERY_RECORDS_MAX, sizeof *r);
	struct yaml_errors errs = {0};
	size_t len;

	named.spec.dns.record = MANIFEST_RECORD_SRV;
	named.spec.dns.kv_events_port = named.spec.dns.kv_replay_port = 65535;
	for (unsigned i = 0; i < DISCOVERY_RECORDS_MAX; i++) {
		memset(r[i].target, 'x', DNS_NAME_MAX);
		snprintf(r[i].target, 8, "%u", i);
		r[i].target[strlen(r[i].target)] = '.';
		r[i].port = 65535;
	}
	len = dns_members(&named, r, DISCOVERY_RECORDS_MAX, text, sizeof text, &cut);
	cr_assert(cut > 0 && cut < 200, "%u", cut);
	cr_assert_eq(manifest_found_check("x", text, len, &errs), 0);
	free(r);
}
