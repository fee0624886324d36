/* test_manifest_found.c -- members that are found: taken one by one, beside a set's own. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "actors/common/decide/manifest.h"

#define REST                                                                                       \
	"---\napiVersion: pointsman.io/v1alpha1\nkind: InferencePool\nmetadata: {name: o}\n"       \
	"spec: {workerSets: [s]}\n---\n"                                                           \
	"apiVersion: pointsman.io/v1alpha1\nkind: InferencePolicy\nmetadata: {name: p}\n"          \
	"spec: {candidates: [{pool: o}]}\n"
#define SET(spec)                                                                                  \
	"apiVersion: pointsman.io/v1alpha1\nkind: GatewayBackend\nmetadata: {name: g}\n"           \
	"spec: {listen: [\"127.0.0.1:8080\"], models: [{name: m, policy: p}]}\n---\n"              \
	"apiVersion: pointsman.io/v1alpha1\nkind: InferenceWorkerSet\nmetadata: {name: s}\n"       \
	"spec: {engine: vllm, model: m, " spec "}\n" REST
#define A	 "{name: a, url: 'http://10.0.0.1:8000'}"
#define FOUND	 "discovery: {file: {path: /x.yaml}}"
#define BY_FILE	 SET("members: [" A "], " FOUND)
#define ONLY_FILE SET(FOUND)

static struct manifest *
base_of(const char *text)
{
	struct yaml_errors errs = {0};
	struct manifest *m = NULL;

	if (manifest_load_text("test.yaml", text, strlen(text), &m, &errs) < 0)
		yaml_errors_print(&errs, stderr);
	cr_assert_not_null(m);
	return m;
}

static void
refused(const char *text, const char *part)
{
	struct yaml_errors errs = {0};
	struct manifest *m = NULL;

	cr_assert_eq(manifest_load_text("t", text, strlen(text), &m, &errs), -EINVAL, "%s", part);
	cr_assert(strstr(errs.list[0].text, part), "%s", errs.list[0].text);
	yaml_errors_free(&errs);
}

static struct manifest_found
found_of(const char *text)
{
	return (struct manifest_found){
		.set = "s", .source = "x.yaml", .text = text, .len = strlen(text)};
}

static struct manifest *
amend(const struct manifest *base, struct manifest_found *found, uint32_t revision)
{
	struct manifest *m = NULL;

	cr_assert_eq(manifest_amend(base, found, 1, revision, &m), 0);
	return m;
}

/* One text of found members that is not taken as it is: where, and why. */
static void
not_taken(const char *base_text, const char *text, unsigned line, unsigned column, const char *part)
{
	struct manifest *base = base_of(base_text);
	struct manifest_found found = found_of(text);
	struct manifest *m = amend(base, &found, 1);

	cr_assert_eq(found.not_taken, 1, "%s", text);
	cr_assert_eq(found.refused.n, 1);
	cr_assert_eq(found.refused.list[0].line, line, "%u", found.refused.list[0].line);
	cr_assert_eq(found.refused.list[0].column, column, "%u", found.refused.list[0].column);
	cr_assert(strstr(found.refused.list[0].text, part), "%s", found.refused.list[0].text);
	yaml_errors_free(&found.refused);
	manifest_free(&m);
	manifest_free(&base);
}

Test(manifest_found, a_set_finds_members_beside_its_own_or_only_so)
{
	struct manifest *base = base_of(BY_FILE), *none = base_of(ONLY_FILE), *m, *n;
	struct manifest_found found = found_of("members:\n- name: b\n  url: http://10.0.0.2:8000\n"
					       "  kvEvents: tcp://10.0.0.2:5557\n");

	cr_assert_eq(none->models[0].n_members, 0);
	cr_assert_eq(base->revision, 0);
	m = amend(base, &found, 7);
	cr_assert_eq(found.taken, 1);
	cr_assert_eq(m->n_members, 2);
	cr_assert_eq(m->models[0].n_members, 2);
	cr_assert_eq(m->revision, 7);
	cr_assert(!m->members[0].found && m->members[1].found);
	cr_assert_str_eq(m->members[1].kv_events, "tcp://10.0.0.2:5557");
	n = amend(none, &found, 1);
	cr_assert_eq(n->models[0].n_members, 1);
	cr_assert_eq(n->members[0].uid, m->members[1].uid, "found or not, it is the same worker");
	manifest_free(&n);
	manifest_free(&m);
	manifest_free(&none);
	manifest_free(&base);
}

Test(manifest_found, the_snapshot_holds_what_was_taken_and_its_hash_tells)
{
	struct manifest *base = base_of(BY_FILE), *again = NULL, *m, *other, *more;
	struct manifest_found found =
		found_of("{\"members\": [{\"name\": \"c\"}, {\"name\": \"b\", "
			 "\"url\": \"http://[::1]:8000\", \"x-note\": 1}]}");
	struct manifest_found fewer = found_of("members: []");
	struct yaml_errors errs = {0};

	m = amend(base, &found, 1);
	cr_assert_eq(found.taken, 1);
	cr_assert_eq(found.not_taken, 1);
	cr_assert_eq(manifest_load_snapshot(m->snapshot, m->snapshot_len, &again, &errs), 0);
	cr_assert(manifest_same_members(m, again));
	cr_assert(again->members[1].found);
	cr_assert_eq(again->revision, 1);
	cr_assert_eq(manifest_hash(again), manifest_hash(m));
	cr_assert(manifest_same_base(again, base));
	cr_assert_neq(manifest_hash(m), manifest_hash(base));
	other = amend(m, &fewer, 2); /* of one that was amended: from its documents again */
	cr_assert_eq(other->n_members, 1);
	cr_assert(!manifest_same_members(m, other));
	more = amend(other, &found, 3);
	cr_assert(manifest_same_members(m, more));
	cr_assert_neq(manifest_hash(m), manifest_hash(more), "not the same moment");
	yaml_errors_free(&found.refused);
	manifest_free(&more);
	manifest_free(&other);
	manifest_free(&again);
	manifest_free(&m);
	manifest_free(&base);
}

Test(manifest_found, one_bad_member_never_spoils_its_neighbours)
{
	static const char *const bad[] = {
		"just text", "[]", "{name: b}", "{url: 'http://h:1'}",
		"{name: 'b c', url: 'http://h:1'}",
		"{name: b, url: 'ftp://h:1'}", "{name: b, url: 'http://h'}", "{name: b, url: []}",
		"{name: a, url: 'http://h:1'}", "{name: b, url: 'http://10.0.0.1:8000'}",
		"{name: b, url: 'http://h:1', kvEvent: 'tcp://h:2'}",
		"{name: b, url: 'http://h:1', kvEvents: 'tcp://other:2'}",
		"{name: b, url: 'http://h:1', kvEvents: 'ipc:///tmp/x'}",
		"{name: b, url: 'http://h:1', kvEvents: 'bind:tcp://0.0.0.0:2'}",
		"{name: b, url: 'http://h:1', kvEvents: 'tcp://h:3', kvReplay: 'tcp://i:4'}",
		"{name: b, url: 'https://h:1'}", "{name: y, url: 'http://h:1'}",
		"{name: b, url: 'http://y:1'}",
		"{name: b, url: 'http://h:1', kvEvents: 'tcp://y:2'}",
	};
	struct manifest *base = base_of(BY_FILE);

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		char text[512];

		snprintf(text, sizeof(text),
			 "members:\n- {name: y, url: 'http://y:1', kvEvents: 'tcp://y:2'}\n- %s\n"
			 "- {name: z, url: 'http://z:1'}\n",
			 bad[i]);
		struct manifest_found found = found_of(text);
		struct manifest *m = amend(base, &found, 1);

		cr_assert_eq(m->n_members, 3, "%s", bad[i]);
		cr_assert_eq(found.taken, 2);
		cr_assert_eq(found.not_taken, 1);
		cr_assert_gt(found.refused.n, 0);
		cr_assert_eq(found.refused.list[0].line, 3, "%s", found.refused.list[0].text);
		yaml_errors_free(&found.refused);
		manifest_free(&m);
	}
	manifest_free(&base);
}

Test(manifest_found, what_was_not_taken_is_told_with_its_place_and_reason)
{
	not_taken(BY_FILE, "members:\n- name: b\n  url: http://h:1\n  kvEvents: tcp://i:2\n", 4, 13,
		  "the member \"b\": kvEvents is on another host than its url");
	not_taken(BY_FILE, "members: [{name: b, url: 'https://h:1'}]", 1, 26,
		  "https:// needs spec.discovery.https");
	not_taken(BY_FILE, "members:\n- {name: b, url: 'http://10.0.0.1:8000'}\n", 2, 18,
		  "the worker 10.0.0.1:8000 is given twice: first at test.yaml:9:42");
}

Test(manifest_found, endpoints_elsewhere_and_https_are_taken_where_the_set_says_so)
{
	struct manifest *base = base_of(SET(
		"discovery: {file: {path: /x}, https: true, trustEndpoints: true}, "
		"tls: {serverName: n}"));
	struct manifest_found found = found_of("members: [{name: b, url: 'https://h:1', kvEvents: "
					       "'tcp://i:2'}]");
	struct manifest *m = amend(base, &found, 1);

	cr_assert_eq(found.taken, 1);
	cr_assert(base->sets[0].https, "its keys are read before anybody is found");
	cr_assert(m->members[0].https);
	manifest_free(&m);
	manifest_free(&base);
}

Test(manifest_found, members_beyond_the_table_are_left_out_with_all_their_ranks)
{
	struct manifest *base = base_of(SET("dataParallelRanks: 64, " FOUND)), *m;
	size_t cap = 1 << 16, n = 0;
	char *text = malloc(cap);

	n += (size_t)snprintf(text, cap, "members:\n");
	for (unsigned i = 0; i < 17; i++)
		n += (size_t)snprintf(text + n, cap - n, "- {name: w%u, url: 'http://w%u:1'}\n", i,
				      i);
	struct manifest_found found = found_of(text);

	m = amend(base, &found, 1);
	cr_assert_eq(m->n_members, MANIFEST_ROWS_MAX);
	cr_assert_eq(found.taken, 16);
	cr_assert_eq(found.not_taken, 1);
	cr_assert(strstr(found.refused.list[0].text, "more than 1024 workers and ranks"));
	yaml_errors_free(&found.refused);
	manifest_free(&m);
	manifest_free(&base);
	free(text);
}

Test(manifest_found, a_set_without_discovery_takes_nobody)
{
	struct manifest *base = base_of(SET("members: [" A "]")), *m;
	struct manifest_found found = found_of("members: [{name: b, url: 'http://h:1'}]");

	m = amend(base, &found, 1);
	cr_assert_eq(m->n_members, 1);
	cr_assert_eq(found.taken, 0);
	manifest_free(&m);
	manifest_free(&base);
}

Test(manifest_found, a_text_is_a_list_of_members_or_refused_whole)
{
	static const struct {
		const char *text, *part;
	} bad[] = {
		{"", "holds nothing"}, {"# gone\n", "holds nothing"},
		{"members:\n", "a list \"members\""},
		{"member: []\n", "a list \"members\""}, {"[]\n", "a list \"members\""},
		{"members: []\n---\nmembers: []\n", "a second document"},
		{"members: []\nmodel: m\n", "unknown key \"model\""}, {"members: [\n", ""},
	};
	struct yaml_errors errs = {0};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		const char *text = bad[i].text;

		cr_assert_eq(manifest_found_check("x.yaml", text, strlen(text), &errs), -EINVAL);
		cr_assert(strstr(errs.list[0].text, bad[i].part), "%s", errs.list[0].text);
		yaml_errors_free(&errs);
	}
	cr_assert_eq(manifest_found_check("x", "x-by: me\nmembers: []\n", 21, &errs), 0);
}

Test(manifest_found, where_to_look_is_said_once_and_whole)
{
	refused(SET("tokenize: true"), "spec needs \"members\", or \"discovery\"");
	refused(SET("discovery: {}"), "either \"file\" or \"dns\"");
	refused(SET("discovery: {file: {path: /x}, dns: {name: n, port: 1}}"), "either");
	refused(SET("discovery: {file: {}}"), "needs \"path\"");
	refused(SET("discovery: {file: {path: x}}"), "must begin with '/'");
	refused(SET("discovery: {dns: {name: n}}"), "needs \"port\" unless type is SRV");
	refused(SET("discovery: {dns: {name: n, type: SRV, port: 1}}"), "bring the port along");
	refused(SET("discovery: {dns: {name: n, type: MX}}"), "must be one of");
	refused(SET("discovery: {dns: {name: n, port: 1, kvReplayPort: 2}}"), "kvEventsPort");
	refused(SET("discovery: {dns: {name: n, port: 1, resolver: 'dns:53'}}"), "IP address");
	refused(SET("dns: {name: n}"), "it belongs in spec.discovery");
}

Test(manifest_found, a_damaged_tail_is_refused)
{
	struct manifest *base = base_of(BY_FILE), *bad = NULL;
	struct manifest_found found = found_of("members: [{name: b, url: 'http://h:1'}]");
	struct manifest *m = amend(base, &found, 1);
	struct yaml_errors errs = {0};
	char *copy = malloc(m->snapshot_len);

	for (size_t len = m->base_len + 1; len < m->snapshot_len; len++) {
		memcpy(copy, m->snapshot, len);
		cr_assert_eq(manifest_load_snapshot(copy, len, &bad, &errs), -EINVAL, "%zu", len);
		yaml_errors_free(&errs);
	}
	for (size_t i = m->base_len; i < m->base_len + 28; i++) {
		memcpy(copy, m->snapshot, m->snapshot_len);
		copy[i] = (char)0xff;
		if (manifest_load_snapshot(copy, m->snapshot_len, &bad, &errs) == 0)
			manifest_free(&bad); /* the revision is any number */
		yaml_errors_free(&errs);
	}
	free(copy);
	manifest_free(&m);
	manifest_free(&base);
}
