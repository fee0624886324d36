/* tests/unit/test_verifier.c -- workers are asked over real sockets; what answers them is a model's
 * own code, of our model or of another. */
#include <criterion/criterion.h>
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "actors/common/prompt/request.h"
#include "actors/metrics/verifier.h"
#include "proto/messages.h"

#define S_NS 1000000000ull
#define DEMO PM_SOURCE_DIR "/etc/models/demo"
#define KEY_A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define KEY_B "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
#define WORKERS 3u

struct worker {
	int fd;
	uint16_t port;
	bool other;                     /* another chat template */
	bool off;                       /* no /tokenize */
	bool broken;                    /* answers 500 */
	unsigned asked;                 /* /tokenize */
};

struct world {
	struct manifest *m;
	struct rows rows;
	struct process_segment process;
	struct verifier *verifier;
	struct prober *prober;
	struct worker worker[WORKERS];
	unsigned n;
	struct model *ours, *other;     /* as workers have them */
	void *our_bytes, *other_bytes;
	size_t our_len;
	struct prompt_maker *maker;
	uint64_t ahead;                 /* ns that the loop's clock is before the real one */
};

/* ---- workers ---- */

static void
worker_open(struct worker *w)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof a;

	w->fd = socket(AF_INET, SOCK_STREAM, 0);
	cr_assert_eq(bind(w->fd, (struct sockaddr *)&a, sizeof a), 0);
	cr_assert_eq(listen(w->fd, 8), 0);
	cr_assert_eq(getsockname(w->fd, (struct sockaddr *)&a, &len), 0);
	w->port = ntohs(a.sin_port);
}

static void
say(int fd, unsigned status, const char *body)
{
	char head[200];
	int n = snprintf(head, sizeof head, "HTTP/1.1 %u X\r\nContent-Length: %zu\r\n"
			 "Connection: close\r\n\r\n", status, strlen(body));

	cr_assert_eq(send(fd, head, (size_t)n, MSG_NOSIGNAL), n);
	cr_assert_eq(send(fd, body, strlen(body), MSG_NOSIGNAL), (ssize_t)strlen(body));
	close(fd);
}

static void
tokenize(struct world *w, const struct worker *at, int fd, struct slice body)
{
	bool chat = memmem(body.p, body.len, "\"messages\"", 10) != NULL;
	static char answer[1 << 16];
	struct prompt_made made;
	size_t n;

	cr_assert_eq(prompt_make(w->maker, at->other ? w->other : w->ours, NULL,
				 chat ? OPENAI_CHAT : OPENAI_COMPLETIONS, body, 0, &made), 0);
	if (made.end != PROMPT_EXACT) {
		say(fd, 400, "{\"error\":{\"message\":\"refused\"}}");
		return;
	}
	n = (size_t)snprintf(answer, sizeof answer, "{\"count\":%zu,\"tokens\":[",
			     made.prompts[0].n);
	for (size_t i = 0; i < made.prompts[0].n; i++)
		n += (size_t)snprintf(answer + n, sizeof answer - n, "%s%u", i ? "," : "",
				      made.prompts[0].ids[i]);
	snprintf(answer + n, sizeof answer - n, "]}");
	say(fd, 200, answer);
}

static void
serve(struct world *w, struct worker *at)
{
	int fd = accept(at->fd, NULL, NULL);
	static char request[1 << 16];
	const char *body = NULL, *length;
	size_t n = 0, want = 0;

	cr_assert_geq(fd, 0);
	while (!body || n < (size_t)(body - request) + want) {
		ssize_t r = recv(fd, request + n, sizeof request - 1 - n, 0);

		cr_assert_gt(r, 0);
		n += (size_t)r;
		request[n] = 0;
		body = strstr(request, "\r\n\r\n");
		if (!body)
			continue;
		body += 4;
		length = strstr(request, "Content-Length: ");
		want = length ? strtoul(length + 16, NULL, 10) : 0;
	}
	if (strncmp(request, "GET /version ", 13) == 0) {
		say(fd, 200, "{\"version\":\"0.31.0\"}");
		return;
	}
	cr_assert_eq(strncmp(request, "POST /tokenize ", 15), 0, "%s", request);
	at->asked++;
	if (at->off || at->broken)
		say(fd, at->off ? 404 : 500, "{}");
	else
		tokenize(w, at, fd, (struct slice){body, want});
}

/* ---- the world ---- */

static void
model(const char *template, void **ret_bytes, size_t *ret_len, struct model **ret)
{
	const struct model_options options = {.template_file = template};
	char why[MODEL_WHY_BYTES];

	cr_assert_eq(model_build(DEMO, &options, ret_bytes, ret_len, why, sizeof why), 0, "%s",
		     why);
	cr_assert_eq(model_open(*ret_bytes, *ret_len, ret, why, sizeof why), 0, "%s", why);
}

static void
documents(struct world *w, unsigned n, const char *more)
{
	struct yaml_errors errs = {0};
	char text[4000];
	int len = snprintf(text, sizeof text,
		"apiVersion: pointsman.io/v1alpha1\nkind: GatewayBackend\nmetadata: {name: g}\n"
		"spec: {listen: ['127.0.0.1:1'], models: [{name: demo, policy: p}]}\n---\n"
		"apiVersion: pointsman.io/v1alpha1\nkind: InferenceWorkerSet\n"
		"metadata: {name: s}\nspec:\n  engine: vllm\n  model: demo\n%s  members:\n", more);

	for (unsigned i = 0; i < n; i++)
		len += snprintf(text + len, sizeof text - (size_t)len,
				"    - {name: w%u, url: 'http://127.0.0.1:%u'}\n", i,
				w->worker[i].port);
	snprintf(text + len, sizeof text - (size_t)len,
		"---\napiVersion: pointsman.io/v1alpha1\nkind: InferencePool\n"
		"metadata: {name: q}\nspec: {workerSets: [s%s]}\n---\n"
		"apiVersion: pointsman.io/v1alpha1\nkind: InferencePolicy\nmetadata: {name: p}\n"
		"spec: {candidates: [{pool: q}]}\n", strstr(more, "name: t") ? ", t" : "");
	cr_assert_eq(manifest_load_text("t", text, strlen(text), &w->m, &errs), 0, "%s",
		     errs.n ? errs.list[0].text : "");
}

static void
hand_set(struct world *w, uint32_t generation, uint32_t set, const char *key)
{
	int fd;

	cr_assert_eq(models_freeze(&fd, key, w->our_bytes, w->our_len), 0);
	verifier_model(w->verifier, generation, set, fd);
}

static void
hand(struct world *w, uint32_t generation, const char *key)
{
	hand_set(w, generation, 0, key);
}

/* An engine's life begins: metrics' page said so. */
static void
life(struct world *w, uint16_t id, wall_ns start)
{
	struct row *row = &w->rows.row[id];
	mono_ns now = clock_mono();
	struct row_reading r = {.sampled_lo = (uint32_t)now, .sampled_hi = (uint32_t)(now >> 32),
				.known = KNOWN_ENGINE_START, .start_lo = (uint32_t)start,
				.health = HEALTH_UP, .health_why = WHY_OK};

	row_reading_write(row, &r);
	atomic_store(&row->up_since_ns, now);
}

static void
begin_with(struct world *w, unsigned n, const char *more)
{
	char template[] = "/tmp/test_verifier.XXXXXX";
	static const char text[] =
		"{% for m in messages %}{{ m.role }}: {{ m.content }}{% endfor %}";
	int fd = mkstemp(template);

	memset(w, 0, sizeof *w);
	w->n = n;
	w->ahead = S_NS;
	cr_assert_eq(write(fd, text, sizeof text - 1), (ssize_t)sizeof text - 1);
	close(fd);
	size_t len;

	model(NULL, &w->our_bytes, &w->our_len, &w->ours);
	model(template, &w->other_bytes, &len, &w->other);
	unlink(template);
	cr_assert_eq(prompt_maker_new(&w->maker), 0);
	for (unsigned i = 0; i < n; i++)
		worker_open(&w->worker[i]);
	documents(w, n, more);
	cr_assert_eq(rows_create(&w->rows, 16), 0);
	cr_assert_eq(process_create(&w->process, ROLE_METRICS, 0, 1, 0, 32768), 0);
	for (uint32_t i = 0; i < w->m->n_members; i++) {
		w->rows.row[i].uid = w->m->members[i].uid;
		w->rows.row[i].row_gen = 1;
		w->rows.row[i].intent = INTENT_SERVE;
		w->rows.head->count = i + 1;
		life(w, (uint16_t)i, 1000);
	}
	cr_assert_eq(prober_new(&w->prober), 0);
	cr_assert_eq(verifier_new(&w->verifier, &w->rows, &w->process), 0);
	hand(w, 1, KEY_A);
	cr_assert_eq(verifier_set(w->verifier, w->m, 1, NULL), 0);
}

static void
begin(struct world *w, unsigned n)
{
	begin_with(w, n, "");
}

static void
end(struct world *w)
{
	prober_free(&w->prober);
	verifier_free(&w->verifier);
	process_detach(&w->process);
	rows_detach(&w->rows);
	manifest_free(&w->m);
	prompt_maker_free(&w->maker);
	model_close(&w->ours);
	model_close(&w->other);
	free(w->our_bytes);
	free(w->other_bytes);
	for (unsigned i = 0; i < w->n; i++)
		close(w->worker[i].fd);
}

/* One turn of the loop; false: nothing is under way. */
static bool
turn(struct world *w)
{
	zmq_pollitem_t item[1 + WORKERS] = {
		{.socket = zsock_resolve(prober_socket(w->prober)), .events = ZMQ_POLLIN},
	};
	struct probe *p;

	for (unsigned i = 0; i < w->n; i++)
		item[1 + i] = (zmq_pollitem_t){.fd = w->worker[i].fd, .events = ZMQ_POLLIN};
	verifier_run(w->verifier, w->prober, clock_mono() + w->ahead);
	if (zmq_poll(item, (int)w->n + 1, verifier_busy(w->verifier) ? 20000 : 0) == 0)
		return false;
	for (unsigned i = 0; i < w->n; i++)
		if (item[1 + i].revents)
			serve(w, &w->worker[i]);
	while ((p = prober_collect(w->prober)) != NULL)
		verifier_result(w->verifier, p);
	return true;
}

static void
settle(struct world *w)
{
	while (turn(w))
		;
}

static struct row_trust
trust_of(const struct world *w, uint16_t id)
{
	struct row_trust t;

	row_trust_read(&w->rows, id, &t);
	return t;
}

static enum trust_state
model_is(const struct world *w, const char *key)
{
	uint64_t half[2];

	for (unsigned i = 0; i < 2; i++) {
		char hex[17];

		snprintf(hex, sizeof hex, "%.16s", key + 16 * i);
		half[i] = strtoull(hex, NULL, 16);
	}
	return trust_model(&w->rows, trust_key("demo", half, sizeof half));
}

static void
answered(struct world *w, uint16_t row, uint32_t ours, uint32_t theirs)
{
	const struct journal_record head = {.when = clock_wall(), .policy_gen = 1};
	const struct journal_outcome o = {
		.row = row, .row_gen = 1, .status = 200, .source = TOKENS_NATIVE,
		.our_prompt = ours, .prompt = theirs, .our_cached = 16, .cached = 16,
	};

	verifier_outcome(w->verifier, &head, &o, clock_mono());
}

/* ---- what comes of it ---- */

Test(verifier, a_worker_with_our_ids_is_exact_after_one_run_and_is_not_asked_again)
{
	struct row_trust t;
	struct world w;

	begin(&w, 1);
	cr_assert_eq(model_is(&w, KEY_A), TRUST_UNVERIFIED);
	settle(&w);
	t = trust_of(&w, 0);
	cr_assert_eq(t.state, TRUST_EXACT, "%s", trust_why_name(t.why));
	cr_assert_eq(t.differed, 0);
	cr_assert_eq(t.agreed, probes_count());
	cr_assert_str_eq(t.version, "0.31.0");
	cr_assert_eq(model_is(&w, KEY_A), TRUST_EXACT);
	cr_assert_eq(w.worker[0].asked, probes_count());
	cr_assert_eq(count_get(&w.process, COUNTER_verify_probes), probes_count());
	cr_assert_eq(count_get(&w.process, COUNTER_verify_runs), 1);
	w.ahead += 10000 * S_NS;
	settle(&w);
	cr_assert_eq(w.worker[0].asked, probes_count());
	end(&w);
}

Test(verifier, another_chat_template_is_found_out_and_a_restart_with_ours_is_exact_again)
{
	struct row_trust t;
	struct world w;

	begin(&w, 1);
	w.worker[0].other = true;
	settle(&w);
	t = trust_of(&w, 0);
	cr_assert_eq(t.state, TRUST_MISMATCH);
	cr_assert_eq(t.why, TRUST_PROBES_DIFFER);
	cr_assert_eq(probes_at(t.probe)->route, OPENAI_CHAT, "texts are cut alike");
	cr_assert_gt(t.differed, 5);
	cr_assert_gt(t.agreed, 20);
	cr_assert_eq(model_is(&w, KEY_A), TRUST_MISMATCH);
	cr_assert_eq(count_get(&w.process, COUNTER_verify_probes_differ), t.differed);
	w.worker[0].other = false;
	life(&w, 0, 2000);
	settle(&w);
	cr_assert_eq(trust_of(&w, 0).state, TRUST_EXACT);
	cr_assert_eq(model_is(&w, KEY_A), TRUST_EXACT);
	end(&w);
}

Test(verifier, a_disproven_worker_is_asked_again_after_a_while_though_nothing_restarted)
{
	struct world w;

	begin(&w, 1);
	w.worker[0].other = true;
	settle(&w);
	cr_assert_eq(trust_of(&w, 0).state, TRUST_MISMATCH);
	w.worker[0].other = false;
	settle(&w);
	cr_assert_eq(trust_of(&w, 0).state, TRUST_MISMATCH, "not at once");
	w.ahead += PROOF_DISPROVEN_NS;
	settle(&w);
	cr_assert_eq(trust_of(&w, 0).state, TRUST_EXACT);
	end(&w);
}

Test(verifier, without_its_route_counts_disprove_and_nothing_proves)
{
	struct row_trust t;
	struct world w;

	begin(&w, 1);
	w.worker[0].off = true;
	settle(&w);
	t = trust_of(&w, 0);
	cr_assert_eq(t.state, TRUST_UNVERIFIED);
	cr_assert_eq(t.why, TRUST_NO_ROUTE);
	cr_assert_eq(w.worker[0].asked, 1, "the first answer tells");
	for (unsigned i = 0; i < 50; i++)
		answered(&w, 0, 100, 100);
	cr_assert_eq(trust_of(&w, 0).state, TRUST_UNVERIFIED);
	answered(&w, 0, 100, 99);
	t = trust_of(&w, 0);
	cr_assert_eq(t.state, TRUST_MISMATCH);
	cr_assert_eq(t.why, TRUST_USAGE_DIFFERS);
	cr_assert_eq(t.usage_same, 50);
	cr_assert_eq(t.cached_same, 51);
	cr_assert_eq(model_is(&w, KEY_A), TRUST_MISMATCH);
	w.worker[0].off = false;
	life(&w, 0, 2000);
	settle(&w);
	cr_assert_eq(trust_of(&w, 0).state, TRUST_EXACT);
	end(&w);
}

Test(verifier, counts_of_tokens_that_are_not_ours_or_of_older_documents_say_nothing)
{
	const struct journal_record head = {.when = clock_wall() + S_NS, .policy_gen = 1};
	const struct journal_record before = {.when = 1, .policy_gen = 1};
	const struct journal_record older = {.when = clock_wall() + S_NS, .policy_gen = 0};
	struct journal_outcome o = {.row_gen = 1, .status = 200, .source = TOKENS_IDS,
				    .our_prompt = 10, .prompt = 11, .cached = UINT32_MAX};
	struct world w;

	begin(&w, 1);
	settle(&w);
	verifier_outcome(w.verifier, &head, &o, 1);
	o.source = TOKENS_NATIVE;
	verifier_outcome(w.verifier, &before, &o, 1);
	verifier_outcome(w.verifier, &older, &o, 1);
	o.row_gen = 2;
	verifier_outcome(w.verifier, &head, &o, 1);
	o.row_gen = 1;
	o.status = 500;
	verifier_outcome(w.verifier, &head, &o, 1);
	o.status = 200;
	o.row = 5;
	verifier_outcome(w.verifier, &head, &o, 1);
	cr_assert_eq(trust_of(&w, 0).state, TRUST_EXACT);
	cr_assert_eq(count_get(&w.process, COUNTER_verify_usage), 0);
	o.row = 0;
	verifier_outcome(w.verifier, &head, &o, 1);
	cr_assert_eq(trust_of(&w, 0).state, TRUST_MISMATCH);
	cr_assert_eq(count_get(&w.process, COUNTER_verify_usage), 1);
	cr_assert_eq(count_get(&w.process, COUNTER_verify_usage_differ), 1);
	end(&w);
}

Test(verifier, one_of_three_that_disagrees_is_marked_and_the_model_stays_ours)
{
	struct world w;

	begin(&w, 3);
	w.worker[1].other = true;
	settle(&w);
	cr_assert_eq(trust_of(&w, 0).state, TRUST_EXACT);
	cr_assert_eq(trust_of(&w, 1).state, TRUST_MISMATCH);
	cr_assert_eq(trust_of(&w, 2).state, TRUST_EXACT);
	cr_assert_eq(model_is(&w, KEY_A), TRUST_EXACT);
	w.worker[0].other = true;
	life(&w, 0, 2000);
	settle(&w);
	cr_assert_eq(model_is(&w, KEY_A), TRUST_MISMATCH, "two of three");
	end(&w);
}

Test(verifier, a_reload_with_the_same_model_asks_nobody_and_other_files_ask_anew)
{
	struct world w;

	begin(&w, 1);
	settle(&w);
	hand(&w, 2, KEY_A);
	cr_assert_eq(verifier_set(w.verifier, w.m, 2, NULL), 0);
	settle(&w);
	cr_assert_eq(w.worker[0].asked, probes_count());
	cr_assert_eq(trust_of(&w, 0).state, TRUST_EXACT);
	cr_assert_eq(verifier_set(w.verifier, w.m, 3, NULL), 0);
	settle(&w);
	hand(&w, 3, KEY_B);             /* it may come behind its documents */
	settle(&w);
	cr_assert_eq(w.worker[0].asked, 2 * probes_count());
	cr_assert_eq(trust_of(&w, 0).state, TRUST_EXACT);
	cr_assert_eq(model_is(&w, KEY_B), TRUST_EXACT);
	cr_assert_eq(model_is(&w, KEY_A), TRUST_EXACT, "for who decides by older documents");
	end(&w);
}

Test(verifier, what_was_known_with_other_files_says_nothing_of_these)
{
	struct world w;

	begin(&w, 1);
	w.worker[0].other = true;
	settle(&w);
	cr_assert_eq(model_is(&w, KEY_A), TRUST_MISMATCH);
	hand(&w, 2, KEY_B);
	cr_assert_eq(verifier_set(w.verifier, w.m, 2, NULL), 0);
	cr_assert_eq(model_is(&w, KEY_B), TRUST_UNVERIFIED, "nobody was asked yet");
	settle(&w);
	cr_assert_eq(model_is(&w, KEY_B), TRUST_MISMATCH);
	end(&w);
}

Test(verifier, where_two_sets_of_a_model_have_other_files_counts_say_nothing)
{
	struct world w;

	begin_with(&w, 1, "  members: [{name: a, url: 'http://127.0.0.1:1'}]\n---\n"
		   "apiVersion: pointsman.io/v1alpha1\nkind: InferenceWorkerSet\n"
		   "metadata: {name: t}\nspec:\n  engine: vllm\n  model: demo\n");
	hand_set(&w, 1, 1, KEY_B);
	settle(&w);
	cr_assert_eq(trust_of(&w, 1).state, TRUST_EXACT);
	answered(&w, 1, 100, 99);
	cr_assert_eq(trust_of(&w, 1).state, TRUST_EXACT, "ours were made by the other set's");
	end(&w);
}

Test(verifier, nothing_is_said_to_be_proven_where_tokens_are_not_made_here_any_more)
{
	struct world w;
	struct row_trust t;
	int fd;

	begin_with(&w, 1, "  tokenizer: {path: /nowhere}\n");
	settle(&w);
	cr_assert_eq(trust_of(&w, 0).state, TRUST_EXACT);
	cr_assert_eq(verifier_set(w.verifier, w.m, 2, NULL), 0);
	cr_assert_eq(trust_of(&w, 0).state, TRUST_EXACT, "its model is still to come");
	cr_assert_eq(models_freeze_reason(&fd, "no such folder"), 0);
	verifier_model(w.verifier, 2, 0, fd);
	t = trust_of(&w, 0);
	cr_assert_eq(t.state, TRUST_UNVERIFIED);
	cr_assert_eq(t.why, TRUST_NO_MODEL);
	cr_assert_eq(row_trust_key(&t), 0);
	cr_assert_neq(row_trust_since(&t), 0);
	hand(&w, 3, KEY_A);
	cr_assert_eq(verifier_set(w.verifier, w.m, 3, NULL), 0);
	settle(&w);
	cr_assert_eq(trust_of(&w, 0).state, TRUST_EXACT, "asked anew");
	manifest_free(&w.m);
	documents(&w, 1, "");
	cr_assert_eq(verifier_set(w.verifier, w.m, 4, NULL), 0);
	t = trust_of(&w, 0);
	cr_assert_eq(row_trust_key(&t), 0, "its set has no tokenizer");
	cr_assert_eq(t.why, TRUST_NOT_ASKED);
	end(&w);
}

Test(verifier, a_reload_in_the_middle_of_a_run_goes_on_with_it)
{
	struct world w;

	begin(&w, 1);
	for (unsigned i = 0; i < 40; i++)
		turn(&w);
	cr_assert_gt(w.worker[0].asked, 5);
	cr_assert_lt(w.worker[0].asked, probes_count());
	hand(&w, 2, KEY_A);
	cr_assert_eq(verifier_set(w.verifier, w.m, 2, NULL), 0);
	settle(&w);
	cr_assert_eq(w.worker[0].asked, probes_count());
	cr_assert_eq(trust_of(&w, 0).state, TRUST_EXACT);
	end(&w);
}

Test(verifier, a_successor_finds_what_was_proven_and_asks_nobody)
{
	struct world w;

	begin(&w, 2);
	w.worker[1].other = true;
	settle(&w);
	verifier_free(&w.verifier);
	cr_assert_eq(verifier_new(&w.verifier, &w.rows, &w.process), 0);
	hand(&w, 1, KEY_A);
	w.worker[0].asked = w.worker[1].asked = 0;
	cr_assert_eq(verifier_set(w.verifier, w.m, 1, NULL), 0);
	cr_assert_eq(trust_of(&w, 0).state, TRUST_EXACT);
	settle(&w);
	cr_assert_eq(w.worker[0].asked, 0);
	cr_assert_eq(w.worker[1].asked, probes_count(), "who disagreed is asked again");
	cr_assert_eq(trust_of(&w, 1).state, TRUST_MISMATCH);
	end(&w);
}

Test(verifier, errors_and_silence_are_asked_again_and_take_nothing_back)
{
	struct world w;

	begin(&w, 1);
	w.worker[0].broken = true;
	settle(&w);
	cr_assert_eq(trust_of(&w, 0).why, TRUST_REFUSED);
	cr_assert_eq(w.worker[0].asked, 1);
	w.worker[0].broken = false;
	w.ahead += PROOF_AGAIN_NS;
	settle(&w);
	cr_assert_eq(trust_of(&w, 0).state, TRUST_EXACT);
	end(&w);
}

Test(verifier, nobody_is_asked_whose_engine_is_down_or_who_may_not_be_asked)
{
	struct row_reading r = {.health = HEALTH_DOWN};
	struct world w;

	begin(&w, 1);
	row_reading_write(&w.rows.row[0], &r);
	settle(&w);
	cr_assert_eq(w.worker[0].asked, 0);
	end(&w);
	begin_with(&w, 1, "  tokenize: false\n");
	settle(&w);
	cr_assert_eq(w.worker[0].asked, 0);
	cr_assert_eq(trust_of(&w, 0).why, TRUST_NO_ROUTE);
	end(&w);
}
