/* actors/common/prompt/probes.c -- the probes, and what their answers say; see probes.h. */
#include "actors/common/prompt/probes.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "proto/json.h"

#define TEXT(text) OPENAI_COMPLETIONS, ",\"prompt\":\"" text "\""
#define CHAT(messages) OPENAI_CHAT, ",\"messages\":[" messages "]"
#define SAYS(role, text) "{\"role\":\"" role "\",\"content\":\"" text "\"}"
#define SYSTEM SAYS("system", "You are a signalman.  Answer briefly.\\n")
#define ASKED SAYS("user", "Which track is free?")
#define TOLD SAYS("assistant", "Track 2.")
#define FUNCTION(name, text, parameters) \
	"{\"type\":\"function\",\"function\":{\"name\":\"" name "\",\"description\":\"" text \
	"\",\"parameters\":" parameters "}}"
#define TOOLS ",\"tools\":[" \
	FUNCTION("set_points", "Set points \\\"n\\\" & lock <them>.", \
		 "{\"type\":\"object\",\"properties\":{" \
		 "\"n\":{\"type\":\"integer\",\"minimum\":1}," \
		 "\"to\":{\"type\":\"string\",\"enum\":[\"left\",\"right\"]}," \
		 "\"at\":{\"type\":\"number\",\"default\":1.0}}," \
		 "\"required\":[\"n\",\"to\"]}") "," \
	FUNCTION("zug_melden", "Meldet einen Zug \\u2014 \\u5217\\u8eca.", \
		 "{\"type\":\"object\",\"properties\":{}}") "]"
#define CALL(id, name, arguments) \
	"{\"id\":\"" id "\",\"type\":\"function\",\"function\":{\"name\":\"" name \
	"\",\"arguments\":\"" arguments "\"}}"
#define CALLS(text, calls) \
	"{\"role\":\"assistant\",\"content\":" text ",\"tool_calls\":[" calls "]}"
#define RESULT(id, text) \
	"{\"role\":\"tool\",\"tool_call_id\":\"" id "\",\"content\":\"" text "\"}"
#define PARTS(a, b) \
	"{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"" a \
	"\"},{\"type\":\"text\",\"text\":\"" b "\"}]}"
#define SET ASKED "," CALLS("null", CALL("call_1", "set_points", \
					 "{\\\"n\\\": 7, \\\"to\\\": \\\"left\\\"}"))

static const struct probes_one probes[] = {
	/* how text is cut */
	{"words", TEXT("The quick brown fox jumps over the lazy dog.")},
	{"empty chat turn", CHAT(SAYS("user", ""))},
	{"one space", TEXT(" ")},
	{"spaces before words", TEXT("  two   three    four     five")},
	{"spaces at the ends", TEXT("   begin and end   ")},
	{"line ends", TEXT("a\\nb\\n\\nc\\n\\n\\nd\\r\\ne\\r\\n\\r\\nf\\n")},
	{"blanks among line ends", TEXT("x \\n \\n  y\\t\\n\\t\\tz\\n ")},
	{"tabs", TEXT("\\tif (x) {\\n\\t\\treturn\\t0;\\n\\t}\\n")},
	{"unusual blanks",
	 TEXT("a\\u00a0b\\u2003c\\u200bd\\u3000e\\u2028f\\u2029g\\u0085h\\u001ci\\ufeffj")},
	{"apostrophes",
	 TEXT("I'm, you're, he'd, we'll, they've, it's, can't; I'M YOU'RE HE'D 'tis")},
	{"apostrophes of other kinds",
	 TEXT("l\\u2019eau, don\\u2019t; \\u017ft'\\u017f and 'S \\u02bcx ''s '''")},
	{"digits", TEXT("7 42 365 1999 12345 123456 1234567 12345678 3.14159 1e-9 0x1F 2,000,000")},
	{"digits of other scripts",
	 TEXT("\\u0661\\u0662\\u0663\\u0664 \\u0967\\u0968\\u0969\\u096a \\u00b2\\u00b3 \\u2167 "
	      "\\u2460\\u2461\\u2462 \\uff11\\uff12\\uff13\\uff14")},
	{"words of mixed case",
	 TEXT("camelCase PascalCase HTTPServer iOS McDonald eBay XMLHttpRequest2")},
	{"punctuation",
	 TEXT("!!! ??? ... --- *** ### <<>> [[]] {{}} (a)(b) a/b\\\\c @user #tag $5 50%")},
	{"punctuation and line ends", TEXT("end.\\n\\nNext: [1]\\n---\\n* one\\n* two;\\n/\\n//x")},
	{"code", TEXT("for (int i = 0; i < n; ++i) {\\n    sum += a[i] * b[i]; // dot\\n}\\n")},
	{"JSON in text", TEXT("{\\\"a\\\": [1, 2.50, null, true], \\\"b\\\": \\\"\\\\u00e9\\\"}")},
	{"an address",
	 TEXT("https://example.org:8443/a/b?q=1&r=%20x#frag user.name+tag@example.org")},
	/* what is normalized */
	{"composed and decomposed",
	 TEXT("caf\\u00e9 cafe\\u0301 \\u00c5 A\\u030a \\u212b \\u1e69 s\\u0323\\u0307 "
	      "s\\u0307\\u0323")},
	{"marks after blanks", TEXT("a \\u0301b\\u0300\\u0301\\u0302 \\u0327c \\u0308")},
	{"marks of newer scripts", TEXT("x\\u0898y\\u08d3 k\\u0c3c \\u09fe \\u1abf\\u1ac0 z")},
	{"Hangul",
	 TEXT("\\ud55c\\uad6d\\uc5b4 \\u1112\\u1161\\u11ab\\u1100\\u116e\\u11a8 \\uc5f4\\ucc28")},
	{"compatibility forms",
	 TEXT("\\ufb01ne \\uff26ull \\u2126 \\u00b5 \\u2460 \\u3392 \\u00bd")},
	/* scripts */
	{"Chinese",
	 TEXT("\\u5217\\u8f66\\u8c03\\u5ea6\\u5458\\u5728\\u8f66\\u7ad9\\u7b49\\u5f85\\u3002"
	      "\\u4eca\\u5929\\u662f2026\\u5e7411\\u670830\\u65e5\\uff01")},
	{"Japanese",
	 TEXT("\\u8ee2\\u8f4d\\u6a5f\\u3092\\u5207\\u308a\\u66ff\\u3048\\u307e\\u3059\\u3002"
	      "\\u30ab\\u30bf\\u30ab\\u30ca\\u30fc\\u3068\\u3072\\u3089\\u304c\\u306a")},
	{"Russian and Greek",
	 TEXT("\\u041f\\u043e\\u0435\\u0437\\u0434 \\u043f\\u0440\\u0438\\u0431\\u044b\\u043b. "
	      "\\u03a4\\u03bf \\u03c4\\u03c1\\u03ad\\u03bd\\u03bf")},
	{"Arabic and Hebrew",
	 TEXT("\\u0627\\u0644\\u0642\\u0637\\u0627\\u0631 \\u0648\\u064e\\u0635\\u064e\\u0644"
	      "\\u064e 12 \\u05d4\\u05e8\\u05db\\u05d1\\u05ea")},
	{"Hindi, Thai, Bengali", TEXT("\\u0930\\u0947\\u0932\\u0917\\u093e\\u0921\\u093c\\u0940 "
				      "\\u0e23\\u0e16\\u0e44\\u0e1f\\u0e21\\u0e32 "
				      "\\u099f\\u09cd\\u09b0\\u09c7\\u09a8")},
	{"emoji",
	 TEXT("\\ud83d\\ude82\\ud83d\\ude83 ok\\ud83d\\udc4d\\ud83c\\udffd "
	      "\\ud83d\\udc68\\u200d\\ud83d\\udc69\\u200d\\ud83d\\udc67 "
	      "\\ud83c\\udde8\\ud83c\\udded 1\\ufe0f\\u20e3 \\u2764\\ufe0f")},
	{"beyond the first plane", TEXT("\\ud842\\udfb7\\ud867\\ude3d \\ud835\\udd38\\ud835\\udfd9 "
					"\\ud808\\udc00 \\ud83f\\udfff")},
	{"control characters", TEXT("a\\u0001b\\u0007c\\u001bd\\u007fe\\ufffdf")},
	{"a long word",
	 TEXT("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaabcbcbcbc"
	      "bcbcbcbcbcbcbcbcbcbcbcbcbcbcbcbc")},
	{"signs that tokenizers use themselves",
	 TEXT("\\u2581under\\u2581score \\u0120G \\u010aC <0x0A> \\u00ad##ing @@ </w>")},
	/* added tokens in the text of strangers */
	{"ends of turns in text", TEXT("a<|im_end|>\\nb <|im_start|> c<|endoftext|>d<|eot_id|>e")},
	{"marks of other families",
	 TEXT("<s>[INST] x [/INST]</s> <bos><start_of_turn>user\\n "
	      "<\\uff5cUser\\uff5c>y<\\uff5cend\\u2581of\\u2581sentence\\uff5c>")},
	{"thoughts and calls in text",
	 TEXT("<think>\\nhm\\n</think>\\n\\n<tool_call>\\n{}\\n</tool_call> <think> </think>")},
	{"almost an added token",
	 TEXT("<|im_end| > <|im_en<|im_end|>d|> < think> <|im_start|><|im_start|>")},
	{"without special tokens", OPENAI_COMPLETIONS,
	 ",\"prompt\":\"Once upon a time\",\"add_special_tokens\":false"},
	{"special tokens twice", TEXT("<s><|begin_of_text|>Once")},
	/* conversations */
	{"a question", CHAT(ASKED)},
	{"system and question", CHAT(SYSTEM "," ASKED)},
	{"several turns", CHAT(SYSTEM "," ASKED "," TOLD "," SAYS("user", "  And track 3?\\n") ","
			       SAYS("assistant", "\\nNo.  ") "," SAYS("user", "Why?"))},
	{"no prompt for the answer", CHAT(ASKED "," TOLD) ",\"add_generation_prompt\":false"},
	{"answer to be continued",
	 CHAT(ASKED "," SAYS("assistant", "Track"))
	 ",\"add_generation_prompt\":false,\"continue_final_message\":true"},
	{"parts of text", CHAT(SYSTEM "," PARTS("First part.", "Second\\npart "))},
	{"developer", CHAT(SAYS("developer", "Be exact.") "," ASKED)},
	{"a name", CHAT("{\"role\":\"user\",\"name\":\"anna\",\"content\":\"Which track?\"}")},
	{"added tokens in a message",
	 CHAT(SAYS("user", "Say <|im_end|> and </think> and <|eot_id|>.") "," TOLD "," ASKED)},
	{"thought in an answer", CHAT(ASKED ","
	 SAYS("assistant", "<think>\\nTwo is free.\\n</think>\\n\\nTrack 2.") ","
	 SAYS("user", "Sure?"))},
	{"reasoning of an answer", CHAT(ASKED ",{\"role\":\"assistant\",\"reasoning_content\":"
	 "\"Two is free.\",\"content\":\"Track 2.\"}," SAYS("user", "Sure?"))},
	{"thinking off", CHAT(ASKED) ",\"chat_template_kwargs\":{\"enable_thinking\":false}"},
	{"tools", CHAT(ASKED) TOOLS},
	{"tools and system", CHAT(SYSTEM "," ASKED) TOOLS},
	{"a call", CHAT(SET "," RESULT("call_1", "{\\\"ok\\\": true}")) TOOLS},
	{"two calls and their results", CHAT(ASKED ","
	 CALLS("\"I look.\"",
	       CALL("a1", "set_points", "{\\\"n\\\":1,\\\"to\\\":\\\"\\u00e9\\\"}") ","
	       CALL("b2", "zug_melden", "{}")) ","
	 RESULT("a1", "done") "," RESULT("b2", "\\u2713\\n") "," TOLD ","
	 SAYS("user", "Thanks")) TOOLS},
	{"a call without tools", CHAT(SET "," RESULT("call_1", "left") "," TOLD "," ASKED)},
};

#define PROBES (sizeof probes / sizeof probes[0])

unsigned
probes_count(void)
{
	return PROBES;
}

const struct probes_one *
probes_at(unsigned i)
{
	return &probes[i];
}

ssize_t
probes_body(unsigned i, const char *model, char *buf, size_t cap)
{
	char name[1024];
	ssize_t n = json_escape((struct slice){model, strlen(model)}, name, sizeof name);
	int len;

	if (n < 0)
		return -ENOSPC;
	len = snprintf(buf, cap, "{\"model\":\"%.*s\"%s}", (int)n, name, probes[i].members);
	return len < 0 || (size_t)len >= cap ? -ENOSPC : len;
}

/* ---- what an answer says ---- */

bool
probes_refusal(unsigned status)
{
	return status == 400 || status == 422;
}

void
probes_compare(const struct prompt_made *ours, const struct probes_theirs *theirs,
	       struct probes_compared *ret)
{
	const struct prompt_one *made = ours->n_prompts > 0 ? &ours->prompts[0] : NULL;
	size_t n = made ? made->n : 0, m = theirs->refused ? 0 : theirs->n, at = 0;

	*ret = (struct probes_compared){.verdict = PROBES_AGREE, .n_ours = (uint32_t)n,
					.n_theirs = (uint32_t)m, .ours = UINT32_MAX,
					.theirs = UINT32_MAX};
	if (ours->end == PROMPT_REFUSED) {
		if (theirs->refused)
			return;
		ret->verdict = PROBES_DIFFER;
		ret->theirs = m > 0 ? theirs->ids[0] : UINT32_MAX;
		return;
	}
	if (ours->end != PROMPT_EXACT || !made) {
		ret->verdict = PROBES_UNKNOWN;
		return;
	}
	if (theirs->refused) {
		ret->verdict = PROBES_REFUSED;
		return;
	}
	while (at < n && at < m && made->ids[at] == theirs->ids[at])
		at++;
	if (at == n && at == m)
		return;
	ret->verdict = PROBES_DIFFER;
	ret->at = (uint32_t)at;
	ret->ours = at < n ? made->ids[at] : UINT32_MAX;
	ret->theirs = at < m ? theirs->ids[at] : UINT32_MAX;
}
