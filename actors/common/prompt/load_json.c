/* actors/common/prompt/load_json.c -- tokenizer.json as Hugging Face tokenizers writes it. */
#include <errno.h>
#include <string.h>

#include "actors/common/prompt/build.h"
#include "actors/common/prompt/load_part.h"
#include "actors/common/prompt/unicode.h"

/* --- the model --- */

static void
load_vocabulary(struct build *b, struct slice raw)
{
	struct json_cursor c;
	struct json_string key;
	struct slice number;

	build_expect(b, raw.len / 24);       /* an entry takes about so many bytes */
	json_begin(&c, raw.p, raw.len);
	if (!json_enter_object(&c)) {
		build_fail(b, -EINVAL, "model.vocab is no object");
		return;
	}
	while (!b->error && json_next_member(&c, &key)) {
		uint32_t len, off = build_json_text(b, &key, &len);
		int64_t id;

		if (!json_get_number(&c, &number) || json_to_i64(number, &id) < 0 || id < 0 ||
		    id >= UINT32_MAX) {
			build_fail(b, -EINVAL, "model.vocab: an id is no number of 32 bits");
			return;
		}
		build_token(b, off, len, (uint32_t)id);
	}
}

/* One merge of two spellings, the second right behind the first in memory. */
static void
load_merge(struct build *b, struct slice left, struct slice right, struct slice both, size_t rank)
{
	uint32_t l = build_find(b, left), r = build_find(b, right), id = build_find(b, both);

	if (l == TOKENIZER_NONE || r == TOKENIZER_NONE || id == TOKENIZER_NONE)
		build_fail(b, -EINVAL, "model.merges[%zu]: \"%.*s\" is not in model.vocab", rank,
			   (int)(both.len < 64 ? both.len : 64), both.p);
	else
		build_merge(b, l, r, id, (uint32_t)rank);
}

static void
load_merge_text(struct build *b, const struct json_string *s, size_t rank)
{
	size_t keep = b->spelling.len;
	uint32_t len, off = build_json_text(b, s, &len);
	struct slice text = build_slice(b, off, len);
	char *blank = memchr(b->spelling.p + off, ' ', len);
	size_t l = blank ? (size_t)(blank - text.p) : 0, r = blank ? len - l - 1 : 0;

	if (!blank || memchr(blank + 1, ' ', r)) {
		build_fail(b, -EINVAL, "model.merges[%zu] is not two tokens with one blank between",
			   rank);
		return;
	}
	memmove(blank, blank + 1, r);        /* both in one */
	load_merge(b, slice_of(text.p, l), slice_of(text.p + l, r), slice_of(text.p, l + r), rank);
	b->spelling.len = keep;
}

static void
load_merge_pair(struct build *b, struct json_cursor *c, size_t rank)
{
	size_t keep = b->spelling.len;
	struct json_string s[2];
	uint32_t len[2], off;

	if (json_enter_array(c) && json_next_element(c) && json_get_string(c, &s[0]) &&
	    json_next_element(c) && json_get_string(c, &s[1]) && !json_next_element(c) && !c->why) {
		off = build_json_text(b, &s[0], &len[0]);
		build_json_text(b, &s[1], &len[1]);
		struct slice both = build_slice(b, off, len[0] + len[1]);

		load_merge(b, slice_of(both.p, len[0]), slice_of(both.p + len[0], len[1]), both,
			   rank);
		b->spelling.len = keep;
		return;
	}
	build_fail(b, -EINVAL, "model.merges[%zu] is not two tokens", rank);
}

static void
load_merges(struct build *b, struct slice raw)
{
	struct json_cursor c;
	struct json_string s;

	json_begin(&c, raw.p, raw.len);
	if (!json_enter_array(&c)) {
		build_fail(b, -EINVAL, "model.merges is no list");
		return;
	}
	for (size_t rank = 0; !b->error && json_next_element(&c); rank++) {
		if (json_peek(&c) == JSON_IS_STRING && json_get_string(&c, &s))
			load_merge_text(b, &s, rank);
		else
			load_merge_pair(b, &c, rank);
	}
}

static void
load_model(struct build *b, struct slice raw)
{
	enum { TYPE, VOCAB, MERGES, DROPOUT, UNK, PREFIX, SUFFIX, FUSE, FALLBACK, IGNORE, N };
	static const char *const names[] = {
		"type", "vocab", "merges", "dropout", "unk_token", "continuing_subword_prefix",
		"end_of_word_suffix", "fuse_unk", "byte_fallback", "ignore_merges",
	};
	struct slice v[N];

	if (part_read(b, "model", raw, names, v, N) < 0)
		return;
	/* Files of the first years do not say: then it is the one with merges. */
	if (v[TYPE].p && !part_is(v[TYPE], "BPE")) {
		build_fail(b, -ENOTSUP, "model.type %.*s: only BPE is reproduced",
			   (int)(v[TYPE].len < 40 ? v[TYPE].len : 40), v[TYPE].p);
		return;
	}
	if (!v[VOCAB].p || !v[MERGES].p) {
		build_fail(b, v[TYPE].p ? -EINVAL : -ENOTSUP, "model has no %s: only BPE is "
			   "reproduced", v[VOCAB].p ? "merges" : "vocab");
		return;
	}
	if (!part_zero(v[DROPOUT]))
		build_fail(b, -ENOTSUP, "model.dropout: its tokens are drawn by chance");
	if (!part_empty(v[PREFIX]) || !part_empty(v[SUFFIX]))
		build_fail(b, -ENOTSUP, "model.%s is not reproduced", part_empty(v[PREFIX])
			   ? "end_of_word_suffix" : "continuing_subword_prefix");
	b->fuse_unknown = part_true(v[FUSE]);
	b->byte_fallback = part_true(v[FALLBACK]);
	b->ignore_merges = part_true(v[IGNORE]);
	load_vocabulary(b, v[VOCAB]);
	load_merges(b, v[MERGES]);
	if (v[UNK].p && !part_null(v[UNK])) {
		uint32_t len, off = part_text(b, "model.unk_token", v[UNK], &len);

		b->unknown = build_find(b, build_slice(b, off, len));
		if (b->unknown == TOKENIZER_NONE)
			build_fail(b, -EINVAL, "model.unk_token is not in model.vocab");
	}
}

/* --- added tokens --- */

static void
load_added(struct build *b, struct slice raw)
{
	struct json_cursor c;
	struct slice one;

	if (!raw.p || part_null(raw))
		return;
	json_begin(&c, raw.p, raw.len);
	if (!json_enter_array(&c))
		build_fail(b, -EINVAL, "added_tokens is no list");
	while (!b->error && json_next_element(&c) && json_get_raw(&c, &one))
		part_added(b, "added_tokens", one, TOKENIZER_NONE);
}

/* --- normalizer and pre_tokenizer --- */

/* A pattern: {"String": text} or {"Regex": text}. */
static bool
load_pattern(struct build *b, const char *where, struct slice raw, struct tokenizer_step *step,
	     bool *ret_regex)
{
	static const char *const names[] = {"String", "Regex"};
	struct slice v[2];

	if (!raw.p || part_read(b, where, raw, names, v, 2) < 0) {
		build_fail(b, -EINVAL, "%s has no pattern", where);
		return false;
	}
	*ret_regex = v[1].p != NULL;
	step->text = part_text(b, where, v[*ret_regex], &step->text_len);
	if (step->text_len == 0)
		build_fail(b, -ENOTSUP, "%s: an empty pattern", where);
	return !b->error;
}

static void load_normalizer(struct build *b, struct slice raw);
static void load_pretokenizer(struct build *b, struct slice raw);

static void
each(struct build *b, const char *where, struct slice raw,
     void (*load)(struct build *, struct slice))
{
	struct json_cursor c;
	struct slice one;

	json_begin(&c, raw.p ? raw.p : "", raw.len);
	if (!json_enter_array(&c))
		build_fail(b, -EINVAL, "%s: a Sequence without a list", where);
	while (!b->error && json_next_element(&c) && json_get_raw(&c, &one))
		load(b, one);
}

static void
load_normalizer(struct build *b, struct slice raw)
{
	enum { TYPE, NORMALIZERS, PREPEND, PATTERN, CONTENT, N };
	static const char *const names[] = {"type", "normalizers", "prepend", "pattern", "content"};
	static const char where[] = "normalizer";
	struct tokenizer_step step = {0};
	struct slice v[N];
	bool regex;

	if (!raw.p || part_null(raw) || part_read(b, where, raw, names, v, N) < 0)
		return;
	if (part_is(v[TYPE], "Sequence")) {
		each(b, where, v[NORMALIZERS], load_normalizer);
		return;
	}
	if (part_is(v[TYPE], "NFC")) {
		step.kind = STEP_NFC;
	} else if (part_is(v[TYPE], "Prepend")) {
		step.kind = STEP_PREPEND;
		step.text = part_text(b, where, v[PREPEND], &step.text_len);
	} else if (part_is(v[TYPE], "Replace")) {
		step.kind = STEP_REPLACE;
		if (!load_pattern(b, where, v[PATTERN], &step, &regex))
			return;
		if (regex)
			build_fail(b, -ENOTSUP, "normalizer: Replace by a regular expression");
		step.with = part_text(b, where, v[CONTENT], &step.with_len);
	} else {
		part_unknown(b, where, v[TYPE]);
		return;
	}
	build_step(b, true, step);
}

static void
load_split(struct build *b, struct slice pattern, struct slice behavior, struct slice invert)
{
	static const char *const names[BEHAVIORS] = {
		[BEHAVIOR_ISOLATED] = "Isolated",
		[BEHAVIOR_REMOVED] = "Removed",
		[BEHAVIOR_PREVIOUS] = "MergedWithPrevious",
		[BEHAVIOR_NEXT] = "MergedWithNext",
		[BEHAVIOR_CONTIGUOUS] = "Contiguous",
	};
	struct tokenizer_step step = {.flags = part_true(invert) ? STEP_INVERT : 0};
	bool regex;

	if (!load_pattern(b, "pre_tokenizer: Split", pattern, &step, &regex))
		return;
	step.kind = regex ? STEP_SPLIT_REGEX : STEP_SPLIT_STRING;
	while (step.behavior < BEHAVIORS && !part_is(behavior, names[step.behavior]))
		step.behavior++;
	if (step.behavior == BEHAVIORS)
		part_unknown(b, "pre_tokenizer: Split: behavior", behavior);
	else
		build_step(b, false, step);
}

static void
load_metaspace(struct build *b, struct slice replacement, struct slice scheme, struct slice legacy,
	       struct slice split)
{
	struct tokenizer_step step = {.kind = STEP_METASPACE};
	unsigned size = 0;

	step.text = part_text(b, "pre_tokenizer: Metaspace: replacement", replacement,
			      &step.text_len);
	if (step.text_len > 0)
		unicode_at(build_slice(b, step.text, 0).p, step.text_len, &size);
	if (size == 0 || size != step.text_len)
		build_fail(b, -EINVAL, "pre_tokenizer: Metaspace: the replacement is not one "
			   "character");
	if (!split.p || part_true(split))
		step.flags |= STEP_SPLIT;
	if (!scheme.p)
		step.flags |= !legacy.p || part_true(legacy) ? STEP_ALWAYS : 0;
	else if (part_is(scheme, "first"))
		step.flags |= STEP_FIRST;
	else if (part_is(scheme, "always"))
		step.flags |= STEP_ALWAYS;
	else if (!part_is(scheme, "never"))
		part_unknown(b, "pre_tokenizer: Metaspace: prepend_scheme", scheme);
	build_step(b, false, step);
}

static void
load_byte_level(struct build *b, struct slice add_prefix_space, struct slice use_regex)
{
	if (!add_prefix_space.p || part_true(add_prefix_space))
		build_step(b, false, (struct tokenizer_step){.kind = STEP_PREFIX_SPACE});
	if (!use_regex.p || part_true(use_regex))
		build_split_known(b, SCAN_GPT2);
	b->byte_level = true;
}

static void
load_pretokenizer(struct build *b, struct slice raw)
{
	enum {
		TYPE, PRETOKENIZERS, PATTERN, BEHAVIOR, INVERT, DIGITS, REPLACEMENT, SCHEME, PREFIX,
		SPLIT, REGEX, N
	};
	static const char *const names[] = {
		"type", "pretokenizers", "pattern", "behavior", "invert", "individual_digits",
		"replacement", "prepend_scheme", "add_prefix_space", "split", "use_regex",
	};
	static const char where[] = "pre_tokenizer";
	struct slice v[N];

	if (!raw.p || part_null(raw) || part_read(b, where, raw, names, v, N) < 0)
		return;
	if (part_is(v[TYPE], "Sequence")) {
		each(b, where, v[PRETOKENIZERS], load_pretokenizer);
		return;
	}
	if (b->byte_level)
		build_fail(b, -ENOTSUP, "pre_tokenizer: something follows ByteLevel");
	else if (part_is(v[TYPE], "ByteLevel"))
		load_byte_level(b, v[PREFIX], v[REGEX]);
	else if (part_is(v[TYPE], "Split"))
		load_split(b, v[PATTERN], v[BEHAVIOR], v[INVERT]);
	else if (part_is(v[TYPE], "Digits"))
		build_step(b, false, (struct tokenizer_step){
			.kind = STEP_DIGITS,
			.behavior = part_true(v[DIGITS]) ? BEHAVIOR_ISOLATED : BEHAVIOR_CONTIGUOUS,
		});
	else if (part_is(v[TYPE], "Metaspace"))
		load_metaspace(b, v[REPLACEMENT], v[SCHEME], v[PREFIX], v[SPLIT]);
	else
		part_unknown(b, where, v[TYPE]);
}

/* --- post_processor --- */

/* The ids of one special token of a template. */
static void
template_token(struct build *b, struct slice specials, struct slice id, bool before)
{
	static const char *const names[] = {"ids"};
	struct json_cursor c;
	struct json_string key, wanted;
	struct slice one, ids;
	uint32_t list[16];
	size_t n;

	json_begin(&c, id.p ? id.p : "", id.len);
	if (!json_get_string(&c, &wanted))
		build_fail(b, -EINVAL, "post_processor: a template's token has no id");
	json_begin(&c, specials.p ? specials.p : "", specials.len);
	if (!b->error && json_enter_object(&c))
		while (json_next_member(&c, &key) && json_get_raw(&c, &one)) {
			struct json_cursor list_of;

			if (!slice_eq(key.raw, wanted.raw))
				continue;
			if (part_read(b, "post_processor", one, names, &ids, 1) < 0)
				return;
			json_begin(&list_of, ids.p ? ids.p : "", ids.len);
			if (!json_get_u32_array(&list_of, list, 16, &n) || n > 16)
				break;
			for (size_t i = 0; i < n; i++)
				build_surround(b, before, list[i]);
			return;
		}
	build_fail(b, -EINVAL, "post_processor: \"%.*s\" is not among its special_tokens",
		   (int)(id.len < 64 ? id.len : 64), id.p ? id.p : "");
}

static void
load_template(struct build *b, struct slice single, struct slice specials)
{
	static const char *const kinds[] = {"SpecialToken", "Sequence"};
	static const char *const ids[] = {"id"};
	struct json_cursor c;
	struct slice one, v[2], id;
	unsigned sequences = 0;

	json_begin(&c, single.p ? single.p : "", single.len);
	if (!json_enter_array(&c))
		build_fail(b, -ENOTSUP, "post_processor: a template that is no list");
	while (!b->error && json_next_element(&c) && json_get_raw(&c, &one)) {
		if (part_read(b, "post_processor", one, kinds, v, 2) < 0 ||
		    part_read(b, "post_processor", v[v[0].p == NULL], ids, &id, 1) < 0)
			return;
		if (!v[0].p)
			sequences++;
		else
			template_token(b, specials, id, sequences == 0);
	}
	if (sequences != 1)
		build_fail(b, -ENOTSUP, "post_processor: the template has the text %u times",
			   sequences);
}

static void
load_post(struct build *b, struct slice raw)
{
	enum { TYPE, PROCESSORS, SINGLE, SPECIALS, N };
	static const char *const names[] = {"type", "processors", "single", "special_tokens"};
	static const char where[] = "post_processor";
	struct slice v[N];

	if (!raw.p || part_null(raw) || part_read(b, where, raw, names, v, N) < 0)
		return;
	if (part_is(v[TYPE], "Sequence")) {
		each(b, where, v[PROCESSORS], load_post);
	} else if (part_is(v[TYPE], "TemplateProcessing")) {
		if (b->before.n || b->after.n)
			build_fail(b, -ENOTSUP, "post_processor: two templates");
		load_template(b, v[SINGLE], v[SPECIALS]);
	} else if (!part_is(v[TYPE], "ByteLevel")) {     /* that one moves offsets only */
		part_unknown(b, where, v[TYPE]);
	}
}

/* --- the file --- */

int
build_load_json(struct build *b, struct slice file)
{
	/* truncation and padding are not looked at: engines set their own for each text. */
	enum { MODEL, ADDED, NORMALIZER, PRETOKENIZER, POST, N };
	static const char *const names[] = {
		"model", "added_tokens", "normalizer", "pre_tokenizer", "post_processor",
	};
	struct slice v[N];

	if (part_read(b, "tokenizer.json", file, names, v, N) < 0)
		return b->error;
	if (!v[MODEL].p)
		return build_fail(b, -EINVAL, "tokenizer.json has no model");
	load_normalizer(b, v[NORMALIZER]);
	load_pretokenizer(b, v[PRETOKENIZER]);
	load_post(b, v[POST]);
	load_model(b, v[MODEL]);
	load_added(b, v[ADDED]);
	return b->error;
}
