/* actors/common/tags/secret.c -- keys and tokens by how their issuers make them. */
#include <string.h>
#include <strings.h>

#include "actors/common/tags/find_private.h"

#define JWT_HEAD_MAX 512u       /* of its first part, decoded, in which "alg" is looked for */

enum signs { ALNUM, WORD, UPPER, HEX, SLASH, SLACK, SIGN_SETS };

struct shape {
	const char *prefix;
	enum signs signs;
	uint16_t least, most;   /* signs behind it; most 0: any number */
};

static const struct shape shapes[] = {
	{"AKIA", UPPER, 16, 16},	    {"ASIA", UPPER, 16, 16},
	{"ghp_", ALNUM, 36, 0},		    {"gho_", ALNUM, 36, 0},
	{"ghu_", ALNUM, 36, 0},		    {"ghs_", ALNUM, 36, 0},
	{"ghr_", ALNUM, 36, 0},		    {"glpat-", WORD, 20, 0},
	{"sk-proj-", WORD, 40, 0},	    {"sk-svcacct-", WORD, 40, 0},
	{"sk-admin-", WORD, 40, 0},	    {"sk-or-v1-", HEX, 64, 64},
	{"sk-", ALNUM, 48, 48},		    {"AIza", WORD, 35, 35},
	{"GOCSPX-", WORD, 28, 28},	    {"sk_live_", ALNUM, 24, 0},
	{"sk_test_", ALNUM, 24, 0},	    {"rk_live_", ALNUM, 24, 0},
	{"rk_test_", ALNUM, 24, 0},	    {"hf_", ALNUM, 34, 34},
	{"npm_", ALNUM, 36, 36},	    {"pypi-AgEIcHlwaS5vcmc", WORD, 50, 0},
	{"dop_v1_", HEX, 64, 64},	    {"xoxa-", SLACK, 20, 0},
	{"xoxb-", SLACK, 20, 0},	    {"xoxp-", SLACK, 20, 0},
	{"xoxr-", SLACK, 20, 0},	    {"xoxs-", SLACK, 20, 0},
};

static bool
sign_of(enum signs signs, char c)
{
	bool digit = c >= '0' && c <= '9', letter = ascii_letter(c);

	switch (signs) {
	case ALNUM:
		return digit || letter;
	case WORD:
		return digit || letter || c == '_' || c == '-';
	case UPPER:
		return digit || (letter && c < 'a');
	case HEX:
		return digit || (letter && (c | 0x20) <= 'f');
	case SLASH:
		return digit || letter || c == '/' || c == '+';
	default:
		return digit || letter || c == '-';
	}
}

static const char *
run_end(const struct find *f, const char *p, enum signs signs)
{
	while (p < f->end && sign_of(signs, *p))
		p++;
	return p;
}

static bool
begins(const struct find *f, const char *p, const char *with)
{
	size_t n = strlen(with);

	return (size_t)(f->end - p) >= n && memcmp(p, with, n) == 0;
}

/* The same in any case. */
static bool
begins_as(const struct find *f, const char *p, const char *with)
{
	size_t n = strlen(with);

	return (size_t)(f->end - p) >= n && strncasecmp(p, with, n) == 0;
}

/* ---- what stands for a secret and is none ---- */

#define PLACEHOLDER_LOOK 256u   /* signs: a placeholder says so early */

static bool
stands_for_one(const struct find *f, const char *p, const char *end)
{
	static const char *const words[] = {"example",	"placeholder", "redacted", "changeme",
					    "your-",	"your_",       "xxxx",	   "****",
					    "..."};

	if (end - p > (ptrdiff_t)PLACEHOLDER_LOOK)
		end = p + PLACEHOLDER_LOOK;
	for (; p < end; p++)
		for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
			if ((*p | 0x20) == (words[i][0] | 0x20) && begins_as(f, p, words[i]) &&
			    (size_t)(end - p) >= strlen(words[i]))
				return true;
	return false;
}

/* Fewer than six different signs. */
static bool
monotonous(const char *p, const char *end)
{
	uint8_t seen[256] = {0};
	unsigned different = 0;

	for (; p < end && different < 6; p++)
		if (!seen[(uint8_t)*p]++)
			different++;
	return different < 6;
}

static const char *
unless_none(const struct find *f, const char *p, const char *end)
{
	return end && !stands_for_one(f, p, end) && !monotonous(p, end) ? end : NULL;
}

/* ---- by their beginnings ---- */

static const char *
shaped(const struct find *f, const char *p)
{
	for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
		const struct shape *s = &shapes[i];
		const char *from, *end;
		size_t n;

		if (*p != s->prefix[0] || !begins(f, p, s->prefix))
			continue;
		from = p + strlen(s->prefix);
		if (s->signs == SLACK && !digit_at(f, from))
			continue;
		end = run_end(f, from, s->signs);
		n = (size_t)(end - from);
		if (n < s->least || (s->most && n > s->most) || !find_open_behind(f, end))
			continue;
		if ((end = unless_none(f, from, end)))
			return end;
	}
	return NULL;
}

static const char *
github_fine(const struct find *f, const char *p)
{
	const char *from = p + strlen("github_pat_"), *q, *end;

	if (!begins(f, p, "github_pat_"))
		return NULL;
	q = run_end(f, from, ALNUM);
	if (q - from != 22 || char_at(f, q) != '_')
		return NULL;
	end = run_end(f, q + 1, ALNUM);
	return end - q == 60 && char_at(f, end) != '_' ? unless_none(f, from, end) : NULL;
}

/* sk-ant-, letters, two digits, "-". */
static const char *
anthropic(const struct find *f, const char *p)
{
	const char *q = p + strlen("sk-ant-"), *from, *end;

	if (!begins(f, p, "sk-ant-"))
		return NULL;
	from = q;
	while (q < f->end && ascii_letter(*q))
		q++;
	if (q == from || digits_at(f, q) != 2 || char_at(f, q + 2) != '-')
		return NULL;
	from = q + 3;
	end = run_end(f, from, WORD);
	return end - from >= 80 ? unless_none(f, from, end) : NULL;
}

static const char *
sendgrid(const struct find *f, const char *p)
{
	const char *from = p + strlen("SG."), *q, *end;

	if (!begins(f, p, "SG."))
		return NULL;
	q = run_end(f, from, WORD);
	if (q - from != 22 || char_at(f, q) != '.')
		return NULL;
	end = run_end(f, q + 1, WORD);
	return end - q == 44 ? unless_none(f, from, end) : NULL;
}

/* hooks.slack.com/services/T../B../ and 24 signs. */
static const char *
slack_hook(const struct find *f, const char *p)
{
	const char *q = p + strlen("hooks.slack.com/services/T"), *end;

	if (!begins(f, p, "hooks.slack.com/services/T"))
		return NULL;
	q = run_end(f, q, ALNUM);
	if (!begins(f, q, "/B"))
		return NULL;
	q = run_end(f, q + 2, ALNUM);
	if (char_at(f, q) != '/')
		return NULL;
	end = run_end(f, q + 1, ALNUM);
	return end - q == 25 ? unless_none(f, q + 1, end) : NULL;
}

static int
base64url(char c)
{
	static const char signs[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
	const char *at = c ? strchr(signs, c) : NULL;

	return at ? (int)(at - signs) : -1;
}

/* Its first part is an object with "alg". */
static bool
names_alg(const char *p, const char *end)
{
	char text[JWT_HEAD_MAX];
	uint32_t bits = 0;
	unsigned have = 0;
	size_t n = 0;

	for (; p < end && n < sizeof text; p++) {
		bits = bits << 6 | (uint32_t)base64url(*p);
		have += 6;
		if (have >= 8) {
			have -= 8;
			text[n++] = (char)(bits >> have);
		}
	}
	return n > 0 && text[0] == '{' && memmem(text, n, "\"alg\"", 5);
}

static const char *
jwt(const struct find *f, const char *p)
{
	const char *head, *claims, *end;

	if (!begins(f, p, "eyJ"))
		return NULL;
	head = run_end(f, p, WORD);
	if (!begins(f, head, ".eyJ"))
		return NULL;
	claims = run_end(f, head + 1, WORD);
	if (char_at(f, claims) != '.' || !names_alg(p, head))
		return NULL;
	end = run_end(f, claims + 1, WORD);
	return end - claims > 20 ? unless_none(f, claims + 1, end) : NULL;
}

/* "Authorization: Bearer " and 20 signs or more, a letter and a digit among them. */
static const char *
bearer(const struct find *f, const char *p)
{
	const char *from, *end;
	bool letter = false, digit = false;

	if (!begins_as(f, p, "Authorization: Bearer "))
		return NULL;
	from = p + strlen("Authorization: Bearer ");
	for (end = from; end < f->end && (sign_of(WORD, *end) || (*end && strchr(".~+/=", *end)));
	     end++) {
		letter |= ascii_letter(*end);
		digit |= digit_at(f, end);
	}
	return end - from >= 20 && letter && digit ? unless_none(f, from, end) : NULL;
}

/* The name of an AWS secret access key, few signs, and 40 of it. */
static const char *
aws_secret(const struct find *f, const char *p)
{
	static const char *const names[] = {"secret_access_key", "secretaccesskey",
					    "secret access key"};
	const char *from = NULL, *end;

	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		if (begins_as(f, p, names[i]))
			from = p + strlen(names[i]);
	if (!from)
		return NULL;
	for (size_t i = 0; i < 8 && from < f->end && *from && strchr(" \"'`:=", *from); i++)
		from++;
	for (end = from; end < f->end && end - from <= 40 && sign_of(SLASH, *end); end++)
		;
	return end - from == 40 ? unless_none(f, from, end) : NULL;
}

/* A line end, written out or not. */
static const char *
line_end(const struct find *f, const char *p)
{
	if (begins(f, p, "\\r\\n"))
		return p + 4;
	if (begins(f, p, "\\n"))
		return p + 2;
	if (begins(f, p, "\r\n"))
		return p + 2;
	return char_at(f, p) == '\n' || char_at(f, p) == '\r' ? p + 1 : NULL;
}

#define PEM_LABEL_MAX 64

static const char *
private_key(const struct find *f, const char *p)
{
	const char *label = p + strlen("-----BEGIN "), *q, *from, *end;
	size_t n;

	if (!begins(f, p, "-----BEGIN "))
		return NULL;
	for (q = label; q < f->end && q - label < PEM_LABEL_MAX && *q != '-'; q++)
		;
	n = (size_t)(q - label);
	if (!begins(f, q, "-----") ||
	    !((n >= 11 && memcmp(q - 11, "PRIVATE KEY", 11) == 0) ||
	      (n >= 17 && memcmp(q - 17, "PRIVATE KEY BLOCK", 17) == 0)))
		return NULL;
	from = line_end(f, q + 5);
	if (!from)
		return NULL;
	end = run_end(f, from, SLASH);
	return end - from >= 40 ? unless_none(f, from, end) : NULL;
}

const char *
secret_at(const struct find *f, const char *p)
{
	const char *end = NULL;
	char before;

	if (*p == '-')
		return private_key(f, p);
	if ((*p == 's' || *p == 'S') && (end = aws_secret(f, p)))
		return end;
	before = char_at(f, p - 1);
	if (before == '-' || (before && !find_open_before(f, p)))
		return NULL;
	switch (*p) {
	case 'a':
		return bearer(f, p);
	case 'A':
		if ((end = bearer(f, p)))
			return end;
		break;
	case 'e':
		return jwt(f, p);
	case 'h':
		if ((end = slack_hook(f, p)))
			return end;
		break;
	case 'g':
		if ((end = github_fine(f, p)))
			return end;
		break;
	case 's':
		if ((end = anthropic(f, p)))
			return end;
		break;
	case 'S':
		return sendgrid(f, p);
	default:
		break;
	}
	return shaped(f, p);
}

/* ---- by what is around them ---- */

/* Telegram's: 8 to 10 digits, ":AA" and 33 signs; it may follow "bot". */
const char *
secret_bot_at(const struct find *f, const char *p)
{
	size_t n = digits_at(f, p);
	const char *from = p + n + 3, *end;

	if (n < 8 || n > 10 || !begins(f, p + n, ":AA"))
		return NULL;
	if (!find_open_before(f, p) && !(p - f->text >= 3 && memcmp(p - 3, "bot", 3) == 0))
		return NULL;
	end = run_end(f, from, WORD);
	return end - from == 33 ? unless_none(f, from, end) : NULL;
}

#define URL_PART_MAX 1024       /* bytes of a user, and of a password */

/* SCHEME://USER:PASSWORD@HOST. */
const char *
secret_url_at(const struct find *f, const char *colon)
{
	const char *p = colon + 3, *password, *end;

	if (!alnum_at(f, colon - 1))
		return NULL;
	for (; p < f->end && p - colon < URL_PART_MAX && *p != ':'; p++)
		if (strchr(" \t\r\n/@", *p))
			return NULL;
	password = p + 1;
	if (p == colon + 3 || char_at(f, p) != ':')
		return NULL;
	for (end = password; end < f->end && end - password < URL_PART_MAX && *end != '@'; end++)
		if (strchr(" \t\r\n/", *end))
			return NULL;
	if (end - password < 4 || char_at(f, end) != '@' || !alnum_at(f, end + 1) ||
	    strchr("<${*", *password) || stands_for_one(f, password, end))
		return NULL;
	return end;
}
