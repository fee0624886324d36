/* actors/policy/tokens and native: whose token ids a decision is made by, over the demo model. */
#include "tests/unit/policy_world.h"

#include <poll.h>

#include "actors/common/models_build.h"
#include "actors/policy/aside.h"
#include "actors/policy/native.h"
#include "shm/trust.h"

#define DEMO PM_SOURCE_DIR "/etc/models/demo"

struct house {
	struct world w;
	struct native *native;
	struct aside *aside;
};

static int
segment_with(const char *chat_template)
{
	struct manifest_tokenizer t = {.path = DEMO};
	char why[MODELS_WHY_BYTES], key[MODELS_KEY_TEXT];
	void *bytes = NULL;
	size_t len = 0;
	int fd = -1;

	snprintf(t.chat_template, sizeof t.chat_template, "%s", chat_template);
	cr_assert_eq(models_key(&t, key, why, sizeof why), 0, "%s", why);
	cr_assert_eq(models_build(&t, &bytes, &len, why, sizeof why), 0, "%s", why);
	cr_assert_eq(models_freeze(&fd, key, bytes, len), 0);
	free(bytes);
	return fd;
}

static int
demo_segment(void)
{
	return segment_with("");
}

static void
begin_native(struct house *h, int fd, bool aside)
{
	begin(&h->w, "PredictedTTFT");
	cr_assert_eq(native_new(&h->native, h->w.manifest->n_sets), 0);
	cr_assert_eq(native_take(h->native, 0, fd), 0);
	h->aside = NULL;
	if (aside)
		cr_assert_eq(aside_new(&h->aside, h->native, NULL), 0);
	evaluate_natively(h->w.evaluate, h->native, h->aside);
}

static void
end_native(struct house *h)
{
	if (h->aside)
		aside_end(h->aside);
	end(&h->w);
	aside_free(&h->aside);
	native_free(&h->native);
}

/* The newest decision record, in buf. */
static const struct journal_decision *
record_of(struct house *h, const struct msg_answer *a, char *buf, size_t cap)
{
	uint64_t position = a->record - 1, lost = 0;

	cr_assert_eq(journal_read(&h->w.process.journal, &position, buf, cap, &lost), 1);
	return (const void *)((const struct journal_record *)(const void *)buf + 1);
}

static enum evaluate_result
ask(struct house *h, const struct msg_ask *ask, bool failed, struct msg_answer *ret)
{
	struct token_key key;

	return ask_once(&h->w, ask, clock_mono(), failed, ret, &key);
}

static struct msg_answer
answer(struct house *h, enum openai_route route, const char *body)
{
	struct msg_ask q = put_question(&h->w, route, body);
	struct msg_answer a;

	cr_assert_eq(ask(h, &q, false, &a), EVALUATE_ANSWER);
	return a;
}

static const char text_body[] =
	"{\"model\":\"demo\",\"prompt\":\"A pointsman sets the railway switch, and the train goes "
	"where its wagons are known.  So it went yesterday, and so it goes today.\"}";

Test(tokens, text_becomes_token_ids_here_and_is_hashed_like_ids_that_are_given)
{
	static _Alignas(64) char buf[JOURNAL_RECORD_MAX];
	struct house h;
	char ids[8192];
	struct native_made made;
	size_t n;

	begin_native(&h, demo_segment(), false);
	struct msg_answer a = answer(&h, OPENAI_COMPLETIONS, text_body);

	cr_assert_eq(a.verdict, VERDICT_CHOOSE);
	cr_assert_eq(a.source, TOKENS_NATIVE);
	cr_assert_gt(a.prompt, 2 * BLOCK);
	const struct journal_decision *d = record_of(&h, &a, buf, sizeof buf);

	cr_assert_eq(d->exact_tokens, a.prompt);
	cr_assert_eq(d->trust, TRUST_UNVERIFIED);
	cr_assert_str_eq(d->note, "");
	native_make(native_maker(h.native), native_model(h.native, 0), NULL, OPENAI_COMPLETIONS,
		    (struct slice){text_body, strlen(text_body)}, &made);
	cr_assert(made.whole);
	n = (size_t)snprintf(ids, sizeof ids, "{\"model\":\"demo\",\"prompt\":[");
	for (size_t i = 0; i < made.n; i++)
		n += (size_t)snprintf(ids + n, sizeof ids - n, "%s%u", i ? "," : "", made.ids[i]);
	snprintf(ids + n, sizeof ids - n, "]}");
	size_t len = a.roots[0].hashes.len;
	char *hashes = malloc(len);

	memcpy(hashes, a.roots[0].hashes.p, len);
	struct msg_answer b = answer(&h, OPENAI_COMPLETIONS, ids);

	cr_assert_eq(b.source, TOKENS_IDS);
	cr_assert_eq(b.prompt, a.prompt);
	cr_assert_eq(b.roots[0].hashes.len, len);
	cr_assert_eq(memcmp(b.roots[0].hashes.p, hashes, len), 0);
	free(hashes);
	end_native(&h);
}

Test(tokens, a_conversation_is_rendered_and_its_next_turn_begins_with_the_same_blocks)
{
#define TURN                                                                                       \
	"{\"role\":\"user\",\"content\":\"Tell me of the railway, its points, and its "   \
	"signals; and of those who set them by hand, in the rain, before the train comes.\"}"
	static const char one[] = "{\"model\":\"demo\",\"messages\":[" TURN "]}";
	static const char two[] = "{\"model\":\"demo\",\"messages\":[" TURN
		",{\"role\":\"assistant\",\"content\":\"Gladly.\"},{\"role\":\"user\","
		"\"content\":\"Go on.\"}]}";
	struct house h;
	char hashes[1024];

	begin_native(&h, demo_segment(), false);
	struct msg_answer a = answer(&h, OPENAI_CHAT, one);
	size_t blocks = a.roots[0].hashes.len / 8;

	cr_assert_eq(a.source, TOKENS_NATIVE);
	cr_assert_gt(blocks, 1);
	memcpy(hashes, a.roots[0].hashes.p, 8);
	a = answer(&h, OPENAI_CHAT, two);
	cr_assert_geq(a.roots[0].hashes.len / 8, blocks);
	cr_assert_eq(memcmp(a.roots[0].hashes.p, hashes, 8), 0);
	end_native(&h);
}

Test(tokens, what_stands_before_an_image_is_known_exactly_and_the_whole_is_not)
{
	static _Alignas(64) char buf[JOURNAL_RECORD_MAX];
	struct house h;

	begin_native(&h, demo_segment(), false);
	struct msg_answer a = answer(&h, OPENAI_CHAT,
		"{\"model\":\"demo\",\"messages\":[" TURN ",{\"role\":\"assistant\","
		"\"content\":\"Gladly.\"},{\"role\":\"user\",\"content\":[{\"type\":\"image_url\","
		"\"image_url\":{\"url\":\"data:image/png;base64,AAAA\"}}]}]}");
	const struct journal_decision *d = record_of(&h, &a, buf, sizeof buf);

	cr_assert_eq(a.source, TOKENS_NATIVE);
	cr_assert_eq(a.prompt, 0, "nobody is to compare it");
	cr_assert_gt(d->exact_tokens, BLOCK);
	cr_assert_gt(strlen(d->note), 0);
	cr_assert_gt(a.roots[0].hashes.len, 0);
	end_native(&h);
}

Test(tokens, what_the_engine_will_refuse_is_asked_of_nobody_and_goes_there_all_the_same)
{
	static _Alignas(64) char buf[JOURNAL_RECORD_MAX];
	struct house h;

	begin_native(&h, demo_segment(), false);
	struct msg_answer a = answer(&h, OPENAI_CHAT, "{\"model\":\"demo\",\"messages\":7}");
	const struct journal_decision *d = record_of(&h, &a, buf, sizeof buf);

	cr_assert_eq(a.verdict, VERDICT_CHOOSE);
	cr_assert_eq(a.source, TOKENS_NONE);
	cr_assert_gt(strlen(d->note), 0);
	end_native(&h);
}

Test(tokens, a_model_whose_engines_tokenize_otherwise_is_not_believed)
{
	static _Alignas(64) char buf[JOURNAL_RECORD_MAX];
	struct house h;
	uint64_t key;

	begin_native(&h, demo_segment(), false);
	key = native_trust(h.native, 0, "demo");
	cr_assert_neq(key, 0);
	trust_model_write(&h.w.rows, key, "demo", 0, 0, 1, clock_mono());
	struct msg_answer a = answer(&h, OPENAI_COMPLETIONS, text_body);
	const struct journal_decision *d = record_of(&h, &a, buf, sizeof buf);

	cr_assert_eq(a.source, TOKENS_NONE, "this world has no /tokenize");
	cr_assert(strstr(d->note, "were others"), "%s", d->note);
	trust_model_write(&h.w.rows, key, "demo", 1, 0, 0, clock_mono());
	a = answer(&h, OPENAI_COMPLETIONS, text_body);
	cr_assert_eq(a.source, TOKENS_NATIVE);
	d = record_of(&h, &a, buf, sizeof buf);
	cr_assert_eq(d->trust, TRUST_EXACT);
	end_native(&h);
}

Test(tokens, a_set_without_a_usable_model_says_why)
{
	static _Alignas(64) char buf[JOURNAL_RECORD_MAX];
	struct house h;
	int fd = -1;

	cr_assert_eq(models_freeze_reason(&fd, "tokenizer.json: it is not there"), 0);
	begin_native(&h, fd, false);
	cr_assert_null(native_model(h.native, 0));
	struct msg_answer a = answer(&h, OPENAI_COMPLETIONS, text_body);

	cr_assert_eq(a.source, TOKENS_NONE);
	cr_assert_str_eq(record_of(&h, &a, buf, sizeof buf)->note,
			 "tokenizer.json: it is not there");
	end_native(&h);
}

Test(tokens, bytes_that_are_no_model_make_none)
{
	struct house h;
	int fd = -1;

	cr_assert_eq(models_freeze(&fd, "00", "these are no tokens", 19), 0);
	begin_native(&h, fd, false);
	cr_assert_null(native_model(h.native, 0));
	cr_assert_not_null(native_why(h.native, 0));
	end_native(&h);
}

static void
collect(struct house *h)
{
	struct token_key key;
	bool dropped;

	while (!aside_collect(h->aside, &key, &dropped)) {
		struct pollfd fds[ASIDE_THREADS];

		for (unsigned i = 0; i < ASIDE_THREADS; i++)
			fds[i] = (struct pollfd){.fd = zsock_fd(aside_socket(h->aside, i)),
						 .events = POLLIN};
		cr_assert_gt(poll(fds, ASIDE_THREADS, 20000), 0);
	}
}

Test(tokens, a_large_body_is_read_and_made_into_ids_beside_the_loop_and_decided_like_a_small_one)
{
	struct house h;
	size_t len = 300000;
	char *body = malloc(len);
	size_t n = (size_t)snprintf(body, len, "{\"model\":\"demo\",\"prompt\":\"");
	struct msg_answer a, b;

	while (n < len - 64)
		n += (size_t)snprintf(body + n, len - n, "and so it goes ");
	snprintf(body + n, len - n, "\"}");
	begin_native(&h, demo_segment(), true);
	struct msg_ask q = put_question(&h.w, OPENAI_COMPLETIONS, body);

	cr_assert_eq(ask(&h, &q, false, &a), EVALUATE_WAIT);
	cr_assert_eq(ask(&h, &q, false, &a), EVALUATE_WAIT, "asked again: the same job");
	collect(&h);
	cr_assert_eq(ask(&h, &q, false, &a), EVALUATE_WAIT, "read; its ids are being made");
	collect(&h);
	cr_assert_eq(ask(&h, &q, false, &a), EVALUATE_ANSWER);
	cr_assert_eq(a.source, TOKENS_NATIVE);
	cr_assert_gt(a.roots[0].hashes.len, 0);
	cr_assert_null(aside_find(h.aside, h.w.from, q.slot, q.slot_gen), "done with");
	size_t blocks = a.roots[0].hashes.len;
	char *hashes = malloc(blocks);

	memcpy(hashes, a.roots[0].hashes.p, blocks);
	evaluate_natively(h.w.evaluate, h.native, NULL);
	b = answer(&h, OPENAI_COMPLETIONS, body);
	cr_assert_eq(b.prompt, a.prompt);
	cr_assert_eq(b.roots[0].hashes.len, blocks);
	cr_assert_eq(memcmp(b.roots[0].hashes.p, hashes, blocks), 0);
	free(hashes);
	free(body);
	end_native(&h);
}

Test(tokens, who_must_not_wait_any_more_is_answered_without_what_a_thread_has_not_made)
{
	static _Alignas(64) char buf[JOURNAL_RECORD_MAX];
	struct house h;
	size_t len = 300000;
	char *body = malloc(len);
	size_t n = (size_t)snprintf(body, len, "{\"model\":\"demo\",\"prompt\":\"");
	struct msg_answer a;

	memset(body + n, 'a', len - n);
	strcpy(body + len - 3, "\"}");
	begin_native(&h, demo_segment(), true);
	struct msg_ask q = put_question(&h.w, OPENAI_COMPLETIONS, body);

	cr_assert_eq(ask(&h, &q, false, &a), EVALUATE_WAIT);
	aside_end(h.aside);
	cr_assert_eq(ask(&h, &q, true, &a), EVALUATE_ANSWER);
	cr_assert_eq(a.verdict, VERDICT_CHOOSE);
	cr_assert_eq(a.source, TOKENS_NONE, "nor is it made in the loop");
	cr_assert(strstr(record_of(&h, &a, buf, sizeof buf)->note, "in time"));
	free(body);
	end_native(&h);
}

Test(tokens, ids_that_take_too_long_are_not_made_and_the_question_is_answered_by_load)
{
	static _Alignas(64) char buf[JOURNAL_RECORD_MAX];
	struct house h;
	size_t len = 4u << 20;
	char *body = malloc(len);
	size_t n = (size_t)snprintf(body, len, "{\"model\":\"demo\",\"prompt\":\"");
	struct token_key key;
	struct msg_answer a;

	for (; n + 8 < len; n++)
		body[n] = n % 6 ? (char)('a' + n * 7 % 26) : ' ';
	strcpy(body + n, "\"}");
	begin_native(&h, demo_segment(), true);
	struct msg_ask q = put_question(&h.w, OPENAI_COMPLETIONS, body);

	cr_assert_eq(ask(&h, &q, false, &a), EVALUATE_WAIT);
	collect(&h);
	cr_assert_eq(ask(&h, &q, false, &a), EVALUATE_WAIT);
	cr_assert(!aside_late(h.aside, clock_mono() + ASIDE_LATE_NS, &key), "a thread has it");
	collect(&h);
	cr_assert_eq(ask(&h, &q, false, &a), EVALUATE_ANSWER);
	cr_assert_eq(a.verdict, VERDICT_CHOOSE);
	cr_assert_eq(a.source, TOKENS_NONE, "nobody is asked to do the same");
	cr_assert(strstr(record_of(&h, &a, buf, sizeof buf)->note, "took too long"));
	free(body);
	end_native(&h);
}

Test(tokens, a_template_that_works_long_does_so_beside_the_loop_and_its_ids_are_the_same)
{
	char name[] = "/tmp/pm-template-XXXXXX";
	int file = mkstemp(name);
	struct house h;
	static const char body[] = "{\"model\":\"demo\",\"messages\":[{\"role\":\"user\","
				   "\"content\":\"A pointsman sets the railway switch.\"}]}";
	struct msg_answer a;

	/* More steps than the loop may take; its text is long enough to be hashed. */
	dprintf(file, "{%% for i in range(%u) %%}{%% for k in range(99) %%}{%% endfor %%}"
		"{%% endfor %%}{{ messages[0].content * 9 }}", NATIVE_LOOP_STEPS / 50);
	close(file);
	begin_native(&h, segment_with(name), true);
	unlink(name);
	struct msg_ask q = put_question(&h.w, OPENAI_CHAT, body);

	cr_assert_eq(ask(&h, &q, false, &a), EVALUATE_WAIT);
	collect(&h);
	cr_assert_eq(ask(&h, &q, false, &a), EVALUATE_WAIT);
	collect(&h);
	cr_assert_eq(ask(&h, &q, false, &a), EVALUATE_ANSWER);
	cr_assert_eq(a.source, TOKENS_NATIVE);
	cr_assert_gt(a.prompt, 2 * BLOCK);
	cr_assert_gt(a.roots[0].hashes.len, 0);
	end_native(&h);
}
