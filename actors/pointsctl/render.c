/* actors/pointsctl/render.c -- `render`: what a chat template makes of a request, without asking
 * anybody.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "actors/common/prompt/request.h"
#include "actors/common/prompt/tokenizer.h"
#include "actors/common/prompt/unicode.h"
#include "actors/common/prompt/value.h"
#include "actors/pointsctl/decode.h"
#include "actors/pointsctl/prompts.h"

#define LINE_JSON_MAX (1u << 30)        /* bytes of one result as a JSON line */
#define REQUEST_MAX   (1u << 30)        /* bytes */

static enum openai_route
route_of(const struct options *o)
{
	if (!o->route)
		return OPENAI_CHAT;
	for (unsigned r = OPENAI_CHAT; r <= OPENAI_TOKENIZE; r++)
		if (strcmp(openai_route_name((enum openai_route)r), o->route) == 0)
			return (enum openai_route)r;
	complain("--route %s? chat, completions, responses, messages, count_tokens, embeddings, "
		 "tokenize, generate are known", o->route);
	return OPENAI_NONE;
}

static bool
set_clock(const struct options *o, struct prompt_maker *maker)
{
	struct tm t = {0};
	const char *end;

	if (!o->now)
		return true;
	end = strptime(o->now, "%Y-%m-%dT%H:%M:%S", &t);
	if (!end || (*end && strcmp(end, "Z") != 0)) {
		complain("--now %s: a time as 2026-11-30T08:30:00 is wanted (UTC)", o->now);
		return false;
	}
	prompt_maker_clock(maker, (int64_t)timegm(&t));
	return true;
}

int
prompts_open(const struct options *o, struct prompts *ret)
{
	struct model_options options = {.template_file = o->template};
	char why[MODEL_WHY_BYTES];
	size_t len;

	if (!o->model && !o->template) {
		complain("--model DIR%s is missing", o->block_tokens ? "" : " or --template FILE");
		return EXIT_USAGE;
	}
	ret->route = route_of(o);
	if (ret->route == OPENAI_NONE)
		return EXIT_USAGE;
	if (prompt_maker_new(&ret->maker) < 0) {
		complain("no memory");
		return 1;
	}
	if (!set_clock(o, ret->maker))
		return EXIT_USAGE;
	if (model_build(o->model, &options, &ret->blob, &len, why, sizeof why) < 0 ||
	    model_open(ret->blob, len, &ret->m, why, sizeof why) < 0) {
		complain("%s", why[0] ? why : "no memory");
		return 1;
	}
	return 0;
}

void
prompts_close(struct prompts *p)
{
	prompt_maker_free(&p->maker);
	model_close(&p->m);
	free(p->blob);
	free(p->in);
}

bool
prompts_read(struct prompts *p)
{
	struct bytes in = {0};
	int r = file_read("-", REQUEST_MAX, &in);

	if (r < 0) {
		complain("standard input: %s", strerror(-r));
		return false;
	}
	p->in = (char *)in.p;
	p->in_len = in.n;
	return true;
}

void
prompts_complain(const struct options *o, const struct prompts *p, const struct prompt_made *made)
{
	static const struct {
		enum openai_field field;
		enum openai_route route;
	} other[] = {
		{OPENAI_FIELD_PROMPT, OPENAI_COMPLETIONS},
		{OPENAI_FIELD_INPUT, OPENAI_RESPONSES},
		{OPENAI_FIELD_TOKEN_IDS, OPENAI_GENERATE},
	};
	struct openai_view view;
	const char *why, *route = NULL;

	if (!o->route && !o->context && p->in &&
	    openai_view_parse(p->in, p->in_len, &view, &why) == 0 &&
	    openai_field(&view, p->in, OPENAI_FIELD_MESSAGES).len == 0)
		for (size_t i = 0; i < sizeof other / sizeof other[0] && !route; i++)
			if (openai_field(&view, p->in, other[i].field).len)
				route = openai_route_name(other[i].route);
	complain("%s: %s%s%s%s", prompt_end_name(made->end), made->why,
		 route ? "; is it for --route " : "", route ? route : "", route ? "?" : "");
}

/* Strings of any bytes, as Python's json.dumps writes them. */
static bool
print_line(const char *key, struct slice text)
{
	struct value_dict *d;
	struct value_dump how = {.ascii = true};
	struct bump bump;
	struct text out;
	const char *why;
	bool fine;

	bump_init(&bump, 1u << 20);
	text_init(&out, LINE_JSON_MAX);
	d = value_dict_new(&bump, 1);
	fine = d && value_put_str(d, key, value_string(text)) &&
	       value_to_json(value_of_dict(d), &how, &out, &why) == 0;
	if (fine) {
		fwrite(out.p, 1, out.len, stdout);
		putchar('\n');
	}
	text_free(&out);
	bump_free(&bump);
	return fine;
}

static bool
print_segments(const struct model *m, struct slice text)
{
	const struct tokenizer *t = model_tokenizer(m);
	struct tokenizer_cut cut;
	size_t off = 0;

	if (!t) {
		complain("--segments needs --model DIR: boundaries are its tokens'");
		return false;
	}
	while (tokenizer_cut(t, text, &off, &cut)) {
		char key[24] = "text";

		if (cut.token != TOKENIZER_NONE)
			snprintf(key, sizeof key, "token %u", cut.token);
		if (!print_line(key, cut.text))
			return false;
	}
	return true;
}

static bool
render(const struct options *o, struct prompts *p, struct slice in, struct prompt_made *ret)
{
	if (o->context)
		prompt_context(p->maker, p->m, in, ret);
	else
		prompt_text(p->maker, p->m, p->route, in, ret);
	return ret->text.p != NULL && (ret->end == PROMPT_EXACT || ret->end == PROMPT_PREFIX);
}

static int
render_lines(const struct options *o, struct prompts *p)
{
	struct prompt_made made;
	char *line = NULL;
	size_t room = 0;
	ssize_t n;
	int code = 0;

	while (code == 0 && (n = getline(&line, &room, stdin)) > 0) {
		if (n == 1 && line[0] == '\n')
			continue;
		if (render(o, p, slice_of(line, (size_t)n), &made) ?
		    !print_line("rendered", made.text) :
		    !print_line("error", slice_str(made.why))) {
			complain("a result is too long");
			code = 1;
		}
	}
	free(line);
	return code;
}

static int
render_one(const struct options *o, struct prompts *p)
{
	struct prompt_made made;
	size_t bad = 0;
	bool fine;

	if (!prompts_read(p))
		return 1;
	fine = render(o, p, slice_of(p->in ? p->in : "", p->in_len), &made);
	if (!fine) {
		prompts_complain(o, p, &made);
		return 1;
	}
	fine = unicode_valid(made.text, &bad);
	if (!fine)
		complain("the text, byte %zu: half a surrogate pair, which no tokenizer takes",
			 bad);
	else if (o->segments)
		fine = print_segments(p->m, made.text);
	else
		fwrite(made.text.p, 1, made.text.len, stdout);
	return fine ? 0 : 1;
}

int
command_render(const struct options *o)
{
	struct prompts p = {0};
	int code;

	if (o->segments && o->jsonl) {
		complain("--segments is for one request");
		return EXIT_USAGE;
	}
	code = prompts_open(o, &p);
	if (code == 0)
		code = o->jsonl ? render_lines(o, &p) : render_one(o, &p);
	prompts_close(&p);
	return code;
}
