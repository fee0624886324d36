#include "proto/prometheus.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct text {
	const char *p;
	const char *end;
};

static void
skip_blanks(struct text *t)
{
	while (t->p < t->end && (*t->p == ' ' || *t->p == '\t'))
		t->p++;
}

static bool
is_name_start(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == ':';
}

static bool
is_name(char c)
{
	return is_name_start(c) || (c >= '0' && c <= '9');
}

/* The word up to the next blank. */
static struct text
word_next(struct text *t)
{
	struct text w;

	skip_blanks(t);
	w.p = t->p;
	while (t->p < t->end && *t->p != ' ' && *t->p != '\t')
		t->p++;
	w.end = t->p;
	return w;
}

/* A number as both formats write it: no hexadecimal, NaN and Inf in any case. */
static bool
number_read(struct text w, double *ret_value)
{
	char buf[64];
	size_t n = (size_t)(w.end - w.p);
	const char *word;
	char *end;

	if (n == 0 || n >= sizeof(buf))
		return false;
	memcpy(buf, w.p, n);
	buf[n] = '\0';
	word = buf[0] == '+' || buf[0] == '-' ? buf + 1 : buf;
	if (strcasecmp(word, "inf") == 0 || strcasecmp(word, "infinity") == 0) {
		*ret_value = buf[0] == '-' ? -HUGE_VAL : HUGE_VAL;
		return true;
	}
	if (strcasecmp(word, "nan") == 0) {
		*ret_value = (double)NAN;
		return true;
	}
	if (strspn(buf, "0123456789+-.eE") != n)
		return false;
	*ret_value = strtod(buf, &end); /* the "C" locale: nobody here sets another */
	return *end == '\0';
}

/* Read one label name="value" at *p; false: not one.  Leaves *p behind the quote. */
static bool
label_read(const char **pp, const char *end, struct prometheus_label *ret_label)
{
	const char *p = *pp;
	struct prometheus_label l;

	l.name = p;
	if (p == end || !is_name_start(*p))
		return false;
	while (p < end && is_name(*p))
		p++;
	l.name_len = (size_t)(p - l.name);
	while (p < end && (*p == ' ' || *p == '\t'))
		p++;
	if (p == end || *p++ != '=')
		return false;
	while (p < end && (*p == ' ' || *p == '\t'))
		p++;
	if (p == end || *p++ != '"')
		return false;
	l.value = p;
	while (p < end && *p != '"') {
		if (*p == '\\') {
			if (++p == end)
				return false;
		}
		p++;
	}
	if (p == end)
		return false;
	l.value_len = (size_t)(p - l.value);
	*pp = p + 1;
	*ret_label = l;
	return true;
}

/* Check "{...}" at t and step behind it; *ret_labels is what lies between. */
static bool
labels_read(struct text *t, struct text *ret_labels)
{
	struct prometheus_label l;

	ret_labels->p = ++t->p;
	for (;;) {
		skip_blanks(t);
		if (t->p < t->end && *t->p == '}')
			break;
		if (!label_read(&t->p, t->end, &l))
			return false;
		skip_blanks(t);
		if (t->p < t->end && *t->p == ',')
			t->p++; /* also a last one, as the text format allows */
		else if (t->p == t->end || *t->p != '}')
			return false;
	}
	ret_labels->end = t->p++;
	return true;
}

/* What may follow the value: a timestamp, then an exemplar. */
static bool
tail_ok(struct text t)
{
	struct text labels, w;
	double ignored;

	skip_blanks(&t);
	if (t.p == t.end)
		return true;
	if (*t.p != '#') {
		if (!number_read(word_next(&t), &ignored))
			return false;
		skip_blanks(&t);
	}
	if (t.p == t.end)
		return true;
	if (*t.p++ != '#')
		return false;
	skip_blanks(&t);
	if (t.p == t.end || *t.p != '{' || !labels_read(&t, &labels))
		return false;
	w = word_next(&t);
	if (!number_read(w, &ignored))
		return false;
	skip_blanks(&t);
	return t.p == t.end || number_read(word_next(&t), &ignored);
}

static bool
sample_read(struct text line, struct prometheus_sample *ret_sample)
{
	struct prometheus_sample s = {0};
	struct text labels;

	s.name = line.p;
	if (line.p == line.end || !is_name_start(*line.p))
		return false;
	while (line.p < line.end && is_name(*line.p))
		line.p++;
	s.name_len = (size_t)(line.p - s.name);
	skip_blanks(&line);
	if (line.p < line.end && *line.p == '{') {
		if (!labels_read(&line, &labels))
			return false;
		s.labels = labels.p;
		s.labels_len = (size_t)(labels.end - labels.p);
	} else if (line.p < line.end && line.p[-1] != ' ' && line.p[-1] != '\t') {
		return false; /* a character no name may have */
	}
	if (!number_read(word_next(&line), &s.value) || !tail_ok(line))
		return false;
	s.finite = isfinite(s.value);
	*ret_sample = s;
	return true;
}

static void
line_failed(struct prometheus_reader *r)
{
	if (r->stats.failed++ == 0)
		r->stats.failed_line = r->line;
	if (r->bad)
		r->bad(r->arg, r->line);
}

/* A whole line, without its newline. */
static void
line_read(struct prometheus_reader *r, const char *p, size_t len)
{
	struct text line = {p, p + len};
	struct prometheus_sample s;

	if (r->line++ == 0 && len >= 3 && memcmp(p, "\xef\xbb\xbf", 3) == 0)
		line.p += 3;            /* a byte order mark */
	if (len > 0 && line.end[-1] == '\r')
		line.end--;
	skip_blanks(&line);
	if (line.p == line.end)
		return;
	if (*line.p == '#') {
		if (line.end - line.p == 5 && memcmp(line.p, "# EOF", 5) == 0)
			r->stats.eof = true;
		return;
	}
	if (r->want && is_name_start(*line.p) &&
	    !r->want(r->arg, line.p, (size_t)(line.end - line.p))) {
		r->stats.samples++;
		return;
	}
	if (!sample_read(line, &s)) {
		line_failed(r);
		return;
	}
	s.line = r->line;
	r->stats.samples++;
	r->stats.not_finite += !s.finite;
	r->sample(r->arg, &s);
}

void
prometheus_begin(struct prometheus_reader *r, prometheus_sample_f *cb, void *arg)
{
	r->sample = cb;
	r->want = NULL;
	r->bad = NULL;
	r->arg = arg;
	r->stats = (struct prometheus_stats){0};
	r->line = 0;
	r->held = 0;
	r->overlong = false;
}

static void
hold(struct prometheus_reader *r, const char *p, size_t len)
{
	size_t room = sizeof r->hold - r->held;

	r->overlong |= len > room;
	if (len > room)
		len = room;
	memcpy(r->hold + r->held, p, len);
	r->held += len;
}

void
prometheus_feed(struct prometheus_reader *r, const char *bytes, size_t len)
{
	const char *p = bytes, *end = len ? bytes + len : bytes;

	while (p < end) {
		const char *nl = memchr(p, '\n', (size_t)(end - p));

		if (!nl) {
			hold(r, p, (size_t)(end - p));
			return;
		}
		if (r->held == 0) {
			line_read(r, p, (size_t)(nl - p));
		} else {
			hold(r, p, (size_t)(nl - p));
			if (!r->overlong) {
				line_read(r, r->hold, r->held);
			} else {
				r->line++;
				if (r->hold[0] != '#')
					line_failed(r);
			}
			r->held = 0;
			r->overlong = false;
		}
		p = nl + 1;
	}
}

/* A last line without an end is not read: "12" may be the start of "1234". */
void
prometheus_end(struct prometheus_reader *r)
{
	struct text last = {r->hold, r->hold + r->held};

	if (r->held > 0 && last.end[-1] == '\r')
		last.end--;
	skip_blanks(&last);
	if (last.p == last.end)
		r->held = 0;
	else if (last.end - last.p == 5 && memcmp(last.p, "# EOF", 5) == 0)
		r->stats.eof = true;
	else if (*last.p != '#')
		r->stats.truncated = true;
}

void
prometheus_parse(const char *page, size_t len, prometheus_sample_f *cb, void *arg,
		 struct prometheus_stats *ret_stats)
{
	struct prometheus_reader r;

	prometheus_begin(&r, cb, arg);
	prometheus_feed(&r, page, len);
	prometheus_end(&r);
	*ret_stats = r.stats;
}

bool
prometheus_name_is(const struct prometheus_sample *s, const char *name)
{
	return s->name_len == strlen(name) && memcmp(s->name, name, s->name_len) == 0;
}

bool
prometheus_label_next(const struct prometheus_sample *s, size_t *pos,
		      struct prometheus_label *ret_label)
{
	struct text t;

	if (*pos >= s->labels_len)
		return false;
	t = (struct text){s->labels + *pos, s->labels + s->labels_len};
	while (t.p < t.end && (*t.p == ' ' || *t.p == '\t' || *t.p == ','))
		t.p++;
	if (!label_read(&t.p, t.end, ret_label))
		return false;
	*pos = (size_t)(t.p - s->labels);
	return true;
}

size_t
prometheus_unescape(const char *value, size_t len, char *ret_text, size_t cap)
{
	size_t n = 0;

	for (size_t i = 0; i < len; i++) {
		char c = value[i];

		if (c == '\\' && i + 1 < len) {
			c = value[++i];
			if (c == 'n')
				c = '\n';
			else if (c != '\\' && c != '"') { /* not an escape: both as sent */
				if (n + 1 < cap)
					ret_text[n] = '\\';
				n++;
			}
		}
		if (n + 1 < cap)
			ret_text[n] = c;
		n++;
	}
	if (cap > 0)
		ret_text[n < cap ? n : cap - 1] = '\0';
	return n;
}

int
prometheus_label_get(const struct prometheus_sample *s, const char *label, char *ret_text,
		     size_t cap)
{
	size_t want = strlen(label), pos = 0, n;
	struct prometheus_label l;

	while (prometheus_label_next(s, &pos, &l)) {
		if (l.name_len != want || memcmp(l.name, label, want) != 0)
			continue;
		n = prometheus_unescape(l.value, l.value_len, ret_text, cap);
		if (n >= cap) {
			if (cap > 0)
				ret_text[0] = '\0';
			return -ENAMETOOLONG;
		}
		return (int)n;
	}
	return -ENOENT;
}
