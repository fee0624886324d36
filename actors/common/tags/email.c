/* actors/common/tags/email.c -- addresses, and what only looks like one. */
#include <string.h>
#include <strings.h>

#include "actors/common/tags/find_private.h"

#define LOCAL_MAX  64u          /* characters; a longer run's end is an address all the same */
#define LABEL_MAX  63u          /* characters */
#define DOMAIN_MAX 253u         /* characters */
#define LOOK_MAX   256u         /* bytes around it that are looked at */

/* Endings of files and units that are no top-level domains. */
static const char *const endings[] = {
	"png",	"jpg",	"jpeg", "gif",	"svg",	"webp", "bmp",	"ico",	   "avif",   "css",
	"scss", "js",	"mjs",	"ts",	"jsx",	"tsx",	"json", "yaml",	   "yml",    "toml",
	"xml",	"html", "htm",	"txt",	"pdf",	"csv",	"log",	"conf",	   "cfg",    "ini",
	"lock", "exe",	"dll",	"mount", "path", "slice", "swap", "device", "scope", "service",
	"socket", "timer", "target",
};

static bool
letter_or_digit(uint32_t c)
{
	if (c < 0x80)
		return ascii_letter((char)c) || (c >= '0' && c <= '9');
	return (unicode_class(c) & (UNICODE_LETTER | UNICODE_MARK)) != 0;
}

static bool
of_local(uint32_t c)
{
	return letter_or_digit(c) || (c > 0 && c < 0x80 && strchr("._+-'=&~%", (int)c));
}

/* Where the local part before `at` begins; NULL: there is none. */
static const char *
local_before(const struct find *f, const char *at)
{
	const char *p = at;
	bool some = false;

	for (size_t i = 0; i < LOCAL_MAX; i++) {
		unsigned n;
		uint32_t c = find_char_before(f, p, &n);

		if (!of_local(c) || (c == '.' && (p == at || *p == '.')))
			break;
		some |= letter_or_digit(c);
		p -= n;
	}
	return some && char_at(f, at - 1) != '.' ? p : NULL;
}

static bool
file_ending(const char *label, size_t n)
{
	for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++)
		if (strlen(endings[i]) == n && strncasecmp(endings[i], label, n) == 0)
			return true;
	return false;
}

/* One label: letters, digits, inner hyphens.  Where it ends; p: it is none. */
static const char *
label_end(const struct find *f, const char *p, size_t *ret_chars, bool *ret_letters)
{
	const char *end = p;
	size_t chars = 0;
	bool letters = true, all = true;
	unsigned n;

	*ret_chars = 0;
	for (uint32_t c; chars <= LABEL_MAX; p += n) {
		c = find_char(f, p, &n);
		if (!letter_or_digit(c) && (c != '-' || chars == 0))
			break;
		chars++;
		all &= c != '-' && !(c >= '0' && c <= '9');
		if (c == '-')
			continue;
		end = p + n;
		*ret_chars = chars;
		letters = all;
	}
	*ret_letters = letters;
	return end;
}

/* Where the domain at p ends; NULL: it is none. */
static const char *
domain_end(const struct find *f, const char *p)
{
	const char *last = p, *end = p;
	size_t labels = 0, chars = 0, n = 0;
	bool letters = false;

	for (;;) {
		const char *q = label_end(f, p, &n, &letters);

		if (q == p || n > LABEL_MAX)
			break;
		labels++;
		chars += n + 1;
		last = p;
		end = q;
		if (char_at(f, q) != '.' || chars > DOMAIN_MAX)
			break;
		p = q + 1;
	}
	if (labels < 2 || chars > DOMAIN_MAX + 1)
		return NULL;
	n = (size_t)(end - last);
	if (n >= 5 && strncasecmp(last, "xn--", 4) == 0)
		return end;
	label_end(f, last, &n, &letters);
	if (n < 2 || !letters || file_ending(last, (size_t)(end - last)))
		return NULL;
	return end;
}

/* Before p lies "://", and none of what ends a URL's authority between. */
static bool
in_authority(const struct find *f, const char *p)
{
	for (size_t i = 0; i < LOOK_MAX && p > f->text; i++) {
		p--;
		if (*p == '/')
			return p - f->text >= 2 && p[-1] == '/' && p[-2] == ':';
		if (strchr(" \t\r\n?#<>\"", *p))
			return false;
	}
	return false;
}

/* user@host:path, as a shell and a version control write it. */
static bool
path_behind(const struct find *f, const char *end)
{
	if (char_at(f, end) != ':')
		return false;
	for (const char *p = end + 1; p < f->end && p - end < (ptrdiff_t)LOOK_MAX; p++) {
		char next = char_at(f, p + 4);

		if (*p == '/')
			return true;
		if (strchr(" \t\r\n", *p))
			return false;
		if (f->end - p >= 4 && memcmp(p, ".git", 4) == 0 && !ascii_letter(next))
			return true;
	}
	return false;
}

const char *
email_at(struct find *f, const char *at, size_t at_len, const char **ret_start)
{
	const char *start = local_before(f, at), *end;
	unsigned n;

	if (!start || find_char_before(f, start, &n) == '@')
		return NULL;
	end = domain_end(f, at + at_len);
	if (!end || char_at(f, end) == '(' || char_at(f, end) == '[' || in_authority(f, start) ||
	    path_behind(f, end))
		return NULL;
	*ret_start = start;
	return end;
}
