/* yaml_place.c -- where a byte of a scalar stands in its file.
 *
 * libyaml says where a scalar begins, not where its parts are.  Blanks apart, its text has the
 * characters of the file in their order: folding, indentation and line ends only change blanks, and
 * quoting adds marks that are known.  So both are walked side by side, and blanks are skipped.
 */
#include "proto/yaml.h"

#include <string.h>

struct walk {
	const char *at, *end;
	char style; /* ' " | > or any other: plain */
};

static bool
is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static const char *
skip_blanks(const char *at, const char *end)
{
	while (at < end && is_blank(*at))
		at++;
	return at;
}

/* One character of UTF-8. */
static const char *
skip_character(const char *at, const char *end)
{
	if (at < end)
		at++;
	while (at < end && ((unsigned char)*at & 0xc0) == 0x80)
		at++;
	return at;
}

/* The escape that begins here, in double quotes: its bytes; 0: none, or one that joins lines. */
static size_t
escape_len(const struct walk *w)
{
	static const struct {
		char c;
		size_t len;
	} longer[] = {{'x', 4}, {'u', 6}, {'U', 10}};

	if (w->style != '"' || w->end - w->at < 2 || *w->at != '\\' || w->at[1] == '\n' ||
	    w->at[1] == '\r')
		return 0;
	for (size_t i = 0; i < 3; i++)
		if (w->at[1] == longer[i].c && (size_t)(w->end - w->at) >= longer[i].len)
			return longer[i].len;
	return 2;
}

/* To the next that is no blank, over a backslash that joins lines. */
static void
to_mark(struct walk *w)
{
	for (;;) {
		w->at = skip_blanks(w->at, w->end);
		if (w->style != '"' || w->end - w->at < 2 || *w->at != '\\' ||
		    (w->at[1] != '\n' && w->at[1] != '\r'))
			return;
		w->at++;
	}
}

/* Over what made one character of the text. */
static void
step(struct walk *w, char text)
{
	size_t escape;

	if (is_blank(text)) {
		escape = escape_len(w);
		w->at += escape; /* "\n" written out; other blanks are skipped before a mark */
		return;
	}
	to_mark(w);
	escape = escape_len(w);
	if (escape > 0)
		w->at += escape;
	else if (w->style == '\'' && w->end - w->at >= 2 && w->at[0] == '\'' && w->at[1] == '\'')
		w->at += 2;
	else
		w->at = skip_character(w->at, w->end);
}

static const char *
scalar_begin(const struct yaml_docs *docs, const struct yaml_node *scalar)
{
	const char *at = docs->source, *end = at + docs->source_len;

	for (unsigned line = 1; line < scalar->line && at < end; line++) {
		const char *next = memchr(at, '\n', (size_t)(end - at));

		at = next ? next + 1 : end;
	}
	for (unsigned column = 1; column < scalar->column && at < end; column++)
		at = skip_character(at, end);
	return at;
}

void
yaml_place(const struct yaml_docs *docs, const struct yaml_node *scalar, size_t offset,
	   unsigned *ret_line, unsigned *ret_column)
{
	const char *begin = scalar_begin(docs, scalar), *text = scalar->text;
	struct walk w = {.at = begin, .end = docs->source + docs->source_len};
	unsigned line = scalar->line, column = scalar->column;

	w.style = scalar->quoted && w.at < w.end ? *w.at : ' ';
	if (w.style == '\'' || w.style == '"')
		w.at++;
	else if (w.style == '|' || w.style == '>')
		while (w.at < w.end && *w.at != '\n')
			w.at++;
	for (const char *c = text; c < text + offset && c < text + scalar->len && w.at < w.end;) {
		step(&w, *c);
		c = skip_character(c, text + scalar->len);
	}
	if (offset < scalar->len || w.style == '|' || w.style == '>')
		to_mark(&w);
	for (const char *c = begin; c < w.at; c = skip_character(c, w.at)) {
		column++;
		if (*c == '\n') {
			line++;
			column = 1;
		}
	}
	*ret_line = line;
	*ret_column = column;
}
