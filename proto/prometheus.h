/* proto/prometheus.h -- one metrics page, sample by sample, whole or as its bytes come.
 *
 * Accepts both the text format 0.0.4 and OpenMetrics 1.0: any label order, escaped label values,
 * NaN and infinities in any case, exponents, timestamps, exemplars, repeated HELP and TYPE lines,
 * comments of any kind.  A line that cannot be read is counted and skipped: it never costs its
 * neighbours.  So is one that is longer than PROMETHEUS_LINE_MAX and comes in pieces.
 *
 * Ownership  nothing is allocated; names and labels borrow the page, or the reader: they last as
 *            long as the callback.
 * Threads    pure; the callback runs on the caller's thread.
 * Errors     only counted: a page always parses.
 * Cost       about 160 ns a sample that is wanted, 20 ns one that is not; not on the request
 *            path.
 * Sources    prometheus.io/docs/instrumenting/exposition_formats, OpenMetrics 1.0.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct prometheus_sample {
	const char *name; /* not terminated */
	size_t name_len;
	const char *labels; /* between the braces, not terminated; escapes as sent */
	size_t labels_len;  /* 0: none */
	double value;
	bool finite; /* false: NaN or infinite, that is: unknown */
	unsigned line; /* its number, from 1 */
};

struct prometheus_stats {
	size_t samples;	   /* lines with one; given to the callback unless not wanted */
	size_t not_finite; /* of these */
	size_t failed;	   /* lines skipped */
	unsigned failed_line; /* number of the first of these, from 1 */
	bool eof;	   /* saw "# EOF" */
	bool truncated;	   /* the last line had no end: not given, not counted as failed */
};

typedef void prometheus_sample_f(void *arg, const struct prometheus_sample *);
typedef bool prometheus_want_f(void *arg, const char *line, size_t len);
	/* Is this line, which begins with a letter, of use?  Else it is counted and not read. */
typedef void prometheus_failed_f(void *arg, unsigned line);

#define PROMETHEUS_LINE_MAX 16384u /* bytes of a line that comes in pieces */

struct prometheus_reader {
	prometheus_sample_f *sample;
	prometheus_want_f *want;     /* NULL: every line */
	prometheus_failed_f *bad;    /* told of every line that could not be read; or NULL */
	void *arg;
	struct prometheus_stats stats; /* whole after prometheus_end */
	unsigned line;		     /* number of the last that ended */
	size_t held;		     /* bytes of a line whose end has not come yet; else 0 */
	bool overlong;		     /* and there were more */
	char hold[PROMETHEUS_LINE_MAX];
};

void prometheus_begin(struct prometheus_reader *, prometheus_sample_f *, void *arg);
void prometheus_feed(struct prometheus_reader *, const char *bytes, size_t len);
	/* Any pieces, cut anywhere. */
void prometheus_end(struct prometheus_reader *);
	/* hold[0 .. held - 1]: what of a line there was when the page ended. */

void prometheus_parse(const char *page, size_t len, prometheus_sample_f *cb, void *arg,
		      struct prometheus_stats *ret_stats);

bool prometheus_name_is(const struct prometheus_sample *, const char *name);
	/* Exactly this name. */

struct prometheus_label {
	const char *name; /* not terminated */
	size_t name_len;
	const char *value; /* escapes as sent, not terminated */
	size_t value_len;
};

bool prometheus_label_next(const struct prometheus_sample *, size_t *pos,
			   struct prometheus_label *ret_label);
	/* Walk the labels; begin with *pos = 0.  False: no more. */
int prometheus_label_get(const struct prometheus_sample *, const char *label, char *ret_text,
			 size_t cap);
	/* The unescaped value, NUL-terminated: its length.  -ENOENT; -ENAMETOOLONG (nothing cut).
	 */
size_t prometheus_unescape(const char *value, size_t len, char *ret_text, size_t cap);
	/* \\ \" \n undone; returns the length it has; writes at most cap - 1 bytes and a NUL. */
