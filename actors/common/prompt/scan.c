/* actors/common/prompt/scan.c -- which scanner a pattern has, and where texts may be cut. */
#include "actors/common/prompt/scan.h"

#include <errno.h>
#include <string.h>

#include "actors/common/prompt/scan_private.h"

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define BLANKS       "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define PREFIX       "[^\\r\\n\\p{L}\\p{N}]?"
#define UPPER        "\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}"
#define LOWER        "\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}"
#define NOT_HAN      "&&[^\\p{Han}]"
#define WORDS(digits)                                                                              \
	CONTRACTIONS "|" PREFIX "\\p{L}+|" digits "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" BLANKS
#define CASES(not, suffix, digits, tail)                                                           \
	PREFIX "[" UPPER not "]*[" LOWER not "]+" suffix "|"                                       \
	PREFIX "[" UPPER not "]+[" LOWER not "]*" suffix "|"                                       \
	digits "| ?[^\\s\\p{L}\\p{N}]+" tail "|" BLANKS

static const struct {
	enum scan_kind kind;
	const char *pattern[3];
} known[] = {
	{SCAN_GPT2, {"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+"
		     "|\\s+(?!\\S)|\\s+"}},
	{SCAN_LLAMA3, {WORDS("\\p{N}{1,3}")}},
	{SCAN_QWEN2, {WORDS("\\p{N}")}},
	{SCAN_QWEN35, {CONTRACTIONS "|" PREFIX "[\\p{L}\\p{M}]+|\\p{N}"
		       "| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" BLANKS}},
	{SCAN_O200K, {CASES("", CONTRACTIONS "?", "\\p{N}{1,3}", "[\\r\\n/]*")}},
	{SCAN_TEKKEN, {CASES("", "", "\\p{N}", "[\\r\\n/]*")}},
	{SCAN_DEEPSEEK, {"\\p{N}{1,3}",
			 "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
			 "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+"
			 "|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
			 "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"}},
	{SCAN_KIMI, {"[\\p{Han}]+|" CASES(NOT_HAN, CONTRACTIONS "?", "\\p{N}{1,3}",
					  "[\\r\\n]*")}},
	{SCAN_SEED, {CONTRACTIONS "|" PREFIX "\\p{L}+|\\p{N}{1}"
		     "| ?[^\\s\\p{L}\\p{N}\\r\\n]+|" BLANKS}},
	/* Said otherwise, and the same: Ling and Ring; r50k as tiktoken has written it since. */
	{SCAN_QWEN2, {"'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}"
		      "| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"}},
	{SCAN_GPT2, {"'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+"
		     "|\\s+(?!\\S)|\\s+"}},
	{SCAN_GPT2, {"'(?:[sdmt]|ll|ve|re)| ?\\p{L}++| ?\\p{N}++| ?[^\\s\\p{L}\\p{N}]++"
		     "|\\s++$|\\s+(?!\\S)|\\s"}},
};

#define N_KNOWN (sizeof known / sizeof *known)

static size_t (*const pieces_by[SCAN_KINDS])(struct scan_run *, uint32_t *ret_len, size_t max) = {
	[SCAN_GPT2] = scan_gpt2,         [SCAN_LLAMA3] = scan_llama3, [SCAN_QWEN2] = scan_qwen2,
	[SCAN_QWEN35] = scan_qwen35,     [SCAN_O200K] = scan_o200k,   [SCAN_TEKKEN] = scan_tekken,
	[SCAN_DEEPSEEK] = scan_deepseek, [SCAN_KIMI] = scan_kimi,     [SCAN_SEED] = scan_seed,
};

bool
scan_known(const struct slice *pattern, size_t n, enum scan_kind *ret)
{
	for (unsigned k = 0; k < N_KNOWN; k++) {
		size_t i = 0;

		while (i < n && i < 3 && known[k].pattern[i] &&
		       slice_eq_str(pattern[i], known[k].pattern[i]))
			i++;
		if (i > 0 && i == n && (i == 3 || !known[k].pattern[i])) {
			*ret = known[k].kind;
			return true;
		}
	}
	return false;
}

const char *
scan_pattern(enum scan_kind kind, size_t i)
{
	for (unsigned k = 0; i < 3 && k < N_KNOWN; k++)
		if (known[k].kind == kind)
			return known[k].pattern[i];
	return NULL;
}

void
scan_open_kind(enum scan_kind kind, struct scan *ret)
{
	*ret = (struct scan){.kind = kind, .pieces = pieces_by[kind]};
}

int
scan_open(struct slice pattern, struct scan *ret, const char **why, size_t *ret_at)
{
	enum scan_kind kind;

	if (!scan_known(&pattern, 1, &kind))
		return scan_open_pcre2(pattern, ret, why, ret_at);
	scan_open_kind(kind, ret);
	return 0;
}

void
scan_close(struct scan *s)
{
	scan_pcre2_close(&s->pcre2);
	s->pieces = NULL;
}

int
scan_begin(const struct scan *s, struct scan_run *run, struct slice text)
{
	if (text.len > UINT32_MAX)
		return -E2BIG;
	run->scan = s;
	run->text = text.p;
	run->len = text.len;
	run->off = 0;
	return s->pieces ? 0 : scan_pcre2_begin(run);
}

ssize_t
scan_pieces(struct scan_run *run, uint32_t *ret_len, size_t max)
{
	if (run->scan->pieces)
		return (ssize_t)run->scan->pieces(run, ret_len, max);
	return scan_pcre2_pieces(run, ret_len, max);
}

int
scan_match(struct scan_run *run, size_t *ret_begin, size_t *ret_end)
{
	uint32_t len;

	if (!run->scan->pieces)
		return scan_pcre2_match(run, ret_begin, ret_end);
	if (run->scan->pieces(run, &len, 1) == 0)
		return 0;
	*ret_begin = run->off - len;
	*ret_end = run->off;
	return 1;
}

void
scan_run_free(struct scan_run *run)
{
	scan_pcre2_run_free(run);
}

/* Behind "\n" and before what is no white space: no scanner's match goes on over it, but those that
 * take slashes with line ends; none looks back.  What is before ends alike at the end of a text and
 * here: \s*[\r\n]+ does; GPT-2's \s+(?!\S) only does when the line feed stands alone.  NFC: a line
 * feed composes with nothing. */
size_t
scan_cut(enum scan_kind kind, struct slice text, size_t off)
{
	struct scan_text t = {text.p, text.len};

	if (kind == SCAN_PATTERN)
		return text.len;
	while (off + 1 < text.len) {
		const char *feed = memchr(text.p + off, '\n', text.len - off - 1);
		size_t before;
		unsigned n;

		if (!feed)
			return text.len;
		before = (size_t)(feed - text.p);
		off = before + 1;
		if (scan_class(t, off, &n) & UNICODE_SPACE)
			continue;
		if (t.p[off] == '/' && (kind == SCAN_O200K || kind == SCAN_TEKKEN))
			continue;
		if (kind == SCAN_GPT2) {
			if (before == 0)
				continue;
			do
				before--;
			while (before > 0 && ((uint8_t)t.p[before] & 0xc0) == 0x80);
			if (scan_class(t, before, &n) & UNICODE_SPACE)
				continue;
		}
		return off;
	}
	return text.len;
}
