/* tests/unit/test_privacy_bodies.c -- wherever in a body it stands, however it is written: a
 * private request's answer has no provider, whoever is up. */
#include "tests/random.h"
#include "tests/unit/policy_world.h"

static const char documents[] =
	"apiVersion: pointsman.io/v1alpha1\nkind: GatewayBackend\nmetadata: {name: g}\n"
	"spec: {listen: [\"127.0.0.1:8080\"], models: [{name: demo, policy: p}]}\n"
	"---\napiVersion: pointsman.io/v1alpha1\nkind: InferenceWorkerSet\nmetadata: {name: s}\n"
	"spec: {engine: vllm, model: demo, members: [{name: w0, url: \"http://127.0.0.1:9000\"}, "
	"{name: w1, url: \"http://127.0.0.1:9001\"}]}\n"
	"---\napiVersion: pointsman.io/v1alpha1\nkind: InferencePool\nmetadata: {name: pool}\n"
	"spec: {workerSets: [s]}\n"
	"---\napiVersion: pointsman.io/v1alpha1\nkind: InferenceProvider\nmetadata: {name: cloud}\n"
	"spec: {type: openai, models: [{name: demo}]}\n"
	"---\napiVersion: pointsman.io/v1alpha1\nkind: RequestTag\nmetadata: {name: pii}\n"
	"spec: {patterns: [{type: email}, {type: card}]}\n"
	"---\napiVersion: pointsman.io/v1alpha1\nkind: InferencePolicy\nmetadata: {name: p}\n"
	"spec:\n  candidates: [{provider: cloud, model: demo}, {pool: pool}]\n  rules:\n"
	"    - name: stays-here\n      when: \"'pii' in request.tags\"\n"
	"      remove: \"candidate.kind == 'Provider'\"\n"
	"    - {name: there, prefer: \"candidate.kind == 'Provider'\"}\n"
	"  onEmpty: {action: Fallback, policy: q}\n"
	"---\napiVersion: pointsman.io/v1alpha1\nkind: InferencePolicy\nmetadata: {name: q}\n"
	"spec:\n  candidates: [{provider: cloud, model: demo}]\n";
#define ROWS 3u
#define CLOUD 4u                        /* its row */

struct shape {
	enum openai_route route;
	const char *body;
};

#define CHAT OPENAI_CHAT
#define M "{\"model\":\"demo\","
#define SAY(text) M "\"messages\":[{\"role\":\"user\",\"content\":" text "}]}"

static const struct shape hiding[] = {
	{CHAT, SAY("\"jane@example.com\"")},
	{CHAT, SAY("\"jane\\u0040example.com\"")},
	{CHAT, SAY("\"\\u006a\\u0061ne@exa\\u006Dple.com\"")},
	{CHAT, SAY("\"4111 1111 1111 1111\"")},
	{CHAT, SAY("\"\\uff14111 1111 1111 1111\"")},
	{CHAT, SAY("[{\"type\":\"text\",\"text\":\"x\"},{\"type\":\"text\","
		 "\"text\":\"a@example.com\"}]")},
	{CHAT, SAY("[{\"type\":\"image_url\",\"image_url\":{\"url\":\"data:image/png;base64,"
		 "AAAA\"}}]")},
	{CHAT, SAY("[{\"type\":\"input_audio\",\"input_audio\":{\"data\":\"AA\","
		 "\"format\":\"wav\"}}]")},
	{CHAT, SAY("[{\"type\":\"of-tomorrow\",\"payload\":{\"deep\":[\"jane@example.com\"]}}]")},
	{CHAT, M "\"messages\":[{\"role\":\"user\",\"content\":\"jane@example.com\"}],"
		 "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}"},
	{CHAT, M "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],"
		 "\"messages\":[{\"role\":\"user\",\"content\":\"jane@example.com\"}]}"},
	{CHAT, M "\"mess\\u0061ges\":[{\"role\":\"user\",\"content\":\"jane@example.com\"}]}"},
	{CHAT, M "\"messages\":[{\"role\":\"user\",\"content\":\"x\","
		 "\"content\":\"jane@example.com\"}]}"},
	{CHAT, M "\"messages\":[{\"role\":\"user\",\"content\":\"jane@example.com\","
		 "\"content\":\"x\"}]}"},
	{CHAT, M "\"messages\":[{\"role\":\"user\",\"name\":\"jane@example.com\","
		 "\"content\":\"x\"}]}"},
	{CHAT, M "\"messages\":[{\"role\":\"assistant\","
		 "\"reasoning_content\":\"jane@example.com\"}]}"},
	{CHAT, M "\"messages\":[{\"role\":\"assistant\",\"refusal\":\"jane@example.com\"}]}"},
	{CHAT, M "\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{"
		 "\"name\":\"f\","
		 "\"arguments\":\"{\\\"to\\\":\\\"jane\\\\u0040example.com\\\"}\"}}]}]}"},
	{CHAT, M "\"messages\":[{\"role\":\"assistant\",\"function_call\":{\"name\":\"f\","
		 "\"arguments\":\"{\\\"to\\\":\\\"jane@example.com\\\"}\"}}]}"},
	{CHAT, M "\"messages\":[],\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\","
		 "\"description\":\"of jane@example.com\"}}]}"},
	{CHAT, M "\"messages\":[],\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\","
		 "\"parameters\":{\"properties\":{\"to\":{\"enum\":[\"jane@example.com\"]}}}}}]}"},
	{CHAT, M "\"messages\":[],\"functions\":[{\"name\":\"f\","
		 "\"description\":\"jane@example.com\"}]}"},
	{CHAT, M "\"messages\":[],\"user\":\"jane@example.com\"}"},
	{CHAT, M "\"messages\":[],\"metadata\":{\"k\":\"jane@example.com\"}}"},
	{CHAT, M "\"messages\":[],\"metadata\":{\"jane@example.com\":\"v\"}}"},
	{CHAT, M "\"messages\":[],\"stop\":[\"jane@example.com\"]}"},
	{CHAT, M "\"messages\":[],\"prediction\":{\"type\":\"content\","
		 "\"content\":\"jane@example.com\"}}"},
	{CHAT, M "\"messages\":[],\"documents\":[{\"text\":\"jane@example.com\"}]}"},
	{CHAT, M "\"messages\":[],\"chat_template\":\"jane@example.com\"}"},
	{CHAT, M "\"messages\":[],\"chat_template_kwargs\":{\"who\":\"jane@example.com\"}}"},
	{CHAT, M "\"messages\":[],\"response_format\":{\"type\":\"json_schema\",\"json_schema\":"
		 "{\"name\":\"x\",\"description\":\"jane@example.com\"}}}"},
	{CHAT, M "\"messages\":[],\"of_tomorrow\":\"jane@example.com\"}"},
	{CHAT, M "\"messages\":\"jane@example.com\"}"},
	{CHAT, M "\"messages\":[[[[[[[[[[[[[[[[{"
		 "\"content\":\"jane@example.com\"}]]]]]]]]]]]]]]]]}"},
	{CHAT, M "\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{"
		 "\"name\":\"f\","
		 "\"arguments\":\"to jane@example.com\"}}]}]}"},
	{CHAT, M "\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{"
		 "\"name\":\"f\","
		 "\"arguments\":\"{\\\"to\\\":\\\"jane@example.com\"}}]}]}"},
	{CHAT, M "\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{"
		 "\"name\":\"f\","
		 "\"arguments\":{\"to\":\"jane@example.com\"}}}]}]}"},
	{CHAT, M "\"messages\":[],\"format\":{\"description\":\"jane@example.com\"}}"},
	{CHAT, M "\"messages\":[],\"model_of\":{\"model\":{\"text\":\"jane@example.com\"}}}"},
	{CHAT, M "\"messages\":[{\"role\":{\"x\":\"jane@example.com\"},\"content\":\"x\"}]}"},
	{CHAT, M "\"messages\":[],\"tool_choice\":{\"function\":{\"name\":\"jane@example.com\"}}}"},
	{CHAT, M "\"messages\":[],\"metadata\":\"jane@example.com\"}"},
	{CHAT, M "\"messages\":[],\"metadata\":{\"a\":[{\"b\":\"jane\\u0040example.com\"}]}}"},
	{CHAT, M "\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"x\","
		 "\"text\":\"jane@example.com\"}]}]}"},
	{CHAT, M "\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"type\":"
		 "\"text\",\"text\":\"jane@example.com\"}]}]}"},
	{CHAT, M "\"messages\":[{\"role\":\"user\",\"content\":[\"jane@example.com\"]}]}"},
	{CHAT, SAY("\"\xff jane@example.com\"")},
	{CHAT, SAY("\"\\ud800 jane@example.com\"")},
	{CHAT, SAY("\"jane@example.com\"") " "},
	{CHAT, " \n\t" SAY("\"jane@example.com\"")},
	{CHAT, "{\"messages\":[{\"content\":\"jane@example.com\"}],\"model\":\"demo\"}"},
	{CHAT, "{\"messages\":[{\"content\":\"jane@example.com\"}],\"model\":\"d\\u0065mo\"}"},
	{CHAT, M "\"messages\":[],\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\","
		 "\"parameters\":{\"properties\":{\"type\":{\"const\":\"jane@example.com\"}}}}}]}"},
	{CHAT, M "\"messages\":[],\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\","
		 "\"parameters\":{\"properties\":{\"jane@example.com\":{"
		 "\"type\":\"string\"}}}}}]}"},
	{CHAT, M "\"messages\":[],\"tools\":[{\"name\":\"f\",\"input_schema\":{\"properties\":"
		 "{\"jane\\u0040example.com\":{\"type\":\"string\"}}}}]}"},
	{CHAT, M "\"messages\":[],\"logit_bias\":{\"jane@example.com\":1}}"},
	{OPENAI_COMPLETIONS, M "\"prompt\":\"jane@example.com\"}"},
	{OPENAI_COMPLETIONS, M "\"prompt\":[\"x\",\"jane@example.com\"]}"},
	{OPENAI_COMPLETIONS, M "\"prompt\":\"x\",\"suffix\":\"jane@example.com\"}"},
	{OPENAI_COMPLETIONS, M "\"prompt\":[1,2,3]}"},
	{OPENAI_COMPLETIONS, M "\"prompt\":[[1,2,3],[4]]}"},
	{OPENAI_COMPLETIONS, M "\"prompt_embeds\":\"AAAA\"}"},
	{OPENAI_COMPLETIONS, M "\"prompt\":[\"x\",[1,2]]}"},
	{OPENAI_RESPONSES, M "\"input\":\"jane@example.com\"}"},
	{OPENAI_RESPONSES, M "\"input\":\"x\",\"instructions\":\"of jane@example.com\"}"},
	{OPENAI_RESPONSES, M "\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_text\","
			     "\"text\":\"jane@example.com\"}]}]}"},
	{OPENAI_RESPONSES, M "\"input\":[{\"type\":\"function_call_output\",\"call_id\":\"c\","
			     "\"output\":\"jane@example.com\"}]}"},
	{OPENAI_RESPONSES, M "\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_file\","
			     "\"file_data\":\"AAAA\"}]}]}"},
	{OPENAI_EMBEDDINGS, M "\"input\":\"jane@example.com\"}"},
	{OPENAI_EMBEDDINGS, M "\"input\":[[1,2,3]]}"},
	{OPENAI_MESSAGES, M "\"system\":\"of jane@example.com\",\"messages\":[]}"},
	{OPENAI_MESSAGES, M "\"system\":[{\"type\":\"text\",\"text\":\"jane@example.com\"}],"
			    "\"messages\":[]}"},
	{OPENAI_MESSAGES, M "\"messages\":[{\"role\":\"user\",\"content\":[{"
		 "\"type\":\"tool_result\","
			    "\"content\":[{\"type\":\"text\",\"text\":\"jane@example.com\"}]}]}]}"},
	{OPENAI_MESSAGES, M "\"messages\":[{\"role\":\"assistant\",\"content\":[{\"type\":"
			    "\"tool_use\",\"input\":{\"to\":\"jane@example.com\"}}]}]}"},
	{OPENAI_MESSAGES, M "\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"document\","
			    "\"source\":{\"type\":\"base64\",\"data\":\"AAAA\"}}]}]}"},
};
#define PRIVATE (sizeof hiding / sizeof *hiding)

static const struct shape plain[] = {
	{CHAT, SAY("\"hello\"")},
	{CHAT, SAY("\"jane at example dot com\"")},
	{OPENAI_COMPLETIONS, M "\"prompt\":\"what is 4111?\"}"},
	{OPENAI_RESPONSES, M "\"input\":\"hello\",\"instructions\":\"be short\"}"},
};
#define PUBLIC (sizeof plain / sizeof *plain)

static struct msg_answer
asked(struct world *w, const struct shape *s, uint16_t failed)
{
	struct msg_ask ask = put_question(w, s->route, s->body);
	struct slot *slot = &w->slots.slot[ask.slot];
	static uint64_t number;
	struct msg_answer answer;
	struct token_key key;

	slot->request_id = (uint64_t)5 << 40 | ++number;
	if (failed != ROW_NONE) {
		slot->attempt = 1;
		slot->row = failed;
	}
	cr_assert_eq(ask_once(w, &ask, clock_mono(), true, &answer, &key), EVALUATE_ANSWER);
	atomic_store(&slot->word, 0);
	w->next_slot = w->next_slot % 60 + 1;
	return answer;
}

static bool
has_provider(const struct msg_answer *a)
{
	for (unsigned i = 0; i < a->n_candidates; i++)
		if (a->candidates[i].row == CLOUD)
			return true;
	return false;
}

Test(privacy_bodies, wherever_it_stands_and_however_it_is_written_no_provider_may_have_it)
{
	struct world w;

	begin(&w, documents);
	for (unsigned i = 0; i < PUBLIC; i++) {
		struct msg_answer a = asked(&w, &plain[i], ROW_NONE);

		cr_expect(has_provider(&a) && a.candidates[0].row == CLOUD, "%s", plain[i].body);
	}
	for (unsigned i = 0; i < PRIVATE; i++) {
		struct msg_answer a = asked(&w, &hiding[i], ROW_NONE);

		cr_expect(a.verdict == VERDICT_CHOOSE || a.status == 400, "%s", hiding[i].body);
		cr_expect_not(has_provider(&a), "%s", hiding[i].body);
	}
	set_health(&w, 2, HEALTH_DOWN);
	set_health(&w, 3, HEALTH_DOWN);
	for (unsigned i = 0; i < PRIVATE; i++) {
		struct msg_answer a = asked(&w, &hiding[i], ROW_NONE);

		cr_expect_eq(a.verdict, VERDICT_REJECT, "%s", hiding[i].body);
		cr_expect_eq(a.n_candidates, 0);
		cr_expect(slice_eq_str(a.rule, "stays-here") || a.status == 400, "%s",
			  hiding[i].body);
	}
	end(&w);
}

Test(privacy_bodies, so_it_is_in_any_fleet_and_after_any_failure)
{
	static const enum row_health healths[] = {HEALTH_UP, HEALTH_DOWN, HEALTH_UNKNOWN};
	uint64_t r = 20261202;
	unsigned there = 0, named = 0;
	struct world w;

	begin(&w, documents);
	for (unsigned i = 0; i < 2000; i++) {
		bool hides = random_next(&r) % 3;
		const struct shape *s = hides ? &hiding[random_next(&r) % PRIVATE] :
						&plain[random_next(&r) % PUBLIC];
		struct msg_answer a;

		for (uint16_t row = 2; row < 2 + ROWS; row++) {
			set_health(&w, row, healths[random_next(&r) % 3]);
			atomic_store(&w.rows.row[row].intent,
				     random_next(&r) % 4 ? INTENT_SERVE : INTENT_DRAIN);
		}
		a = asked(&w, s, random_next(&r) % 2 ? (uint16_t)(2 + random_next(&r) % ROWS) :
						       ROW_NONE);
		if (hides)
			cr_assert_not(has_provider(&a), "%s", s->body);
		there += has_provider(&a);
		named += hides && slice_eq_str(a.rule, "stays-here");
	}
	cr_assert_gt(there, 100);
	cr_assert_gt(named, 20);
	end(&w);
}
