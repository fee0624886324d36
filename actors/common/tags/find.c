/* actors/common/tags/find.c -- the pass over a text; see find.h. */
#include "actors/common/tags/find.h"

#include <string.h>

#include "actors/common/tags/find_private.h"

#define NO_CHAR (UNICODE_MAX + 0x1000u)

/* ---- characters around a place ---- */

uint32_t
find_char(const struct find *f, const char *p, unsigned *ret_len)
{
	*ret_len = 0;
	if (p >= f->end)
		return NO_CHAR;
	return unicode_at(p, (size_t)(f->end - p), ret_len);
}

uint32_t
find_char_before(const struct find *f, const char *p, unsigned *ret_len)
{
	const char *q = p;

	*ret_len = 0;
	if (p <= f->text)
		return NO_CHAR;
	do
		q--;
	while (q > f->text && p - q < 4 && ((uint8_t)*q & 0xc0) == 0x80);
	*ret_len = (unsigned)(p - q);
	return unicode_at(q, (size_t)(p - q), &(unsigned){0});
}

static bool
is_latin(uint32_t c)
{
	if (c < 0x80)
		return ascii_letter((char)c);
	return (unicode_class(c) & UNICODE_LETTER) &&
	       (c <= 0x2af || (c >= 0x1e00 && c <= 0x1eff) || (c >= 0x2c60 && c <= 0x2c7f) ||
		(c >= 0xa722 && c <= 0xa7ff) || (c >= 0xab30 && c <= 0xab6f));
}

static bool
closes(uint32_t c)
{
	return is_latin(c) || (c >= '0' && c <= '9') || c == '_';
}

bool
find_open_before(const struct find *f, const char *p)
{
	return !closes(find_char_before(f, p, &(unsigned){0}));
}

bool
find_open_behind(const struct find *f, const char *p)
{
	return !closes(find_char(f, p, &(unsigned){0}));
}

bool
find_joined_before(const struct find *f, const char *p, const char *by)
{
	char c = char_at(f, p - 1);

	return c && strchr(by, c) && digit_at(f, p - 2);
}

bool
find_joined_behind(const struct find *f, const char *p, const char *by)
{
	char c = char_at(f, p);

	return c && strchr(by, c) && digit_at(f, p + 1);
}

/* ---- the pass ---- */

static void
pair(struct find_tables *t, char first, char second)
{
	unsigned at = (unsigned)(uint8_t)first << 8 | (uint8_t)second;

	t->pair[at / 64] |= 1ull << at % 64;
}

void
find_tables_init(struct find_tables *ret)
{
	/* a secret's first sign, and what may follow */
	static const char *const secrets[] = {"AKSIuU", "GO", "SGeE", "au", "do", "ey", "ghil",
					      "hfo",	"np", "py",   "rk", "ske", "xo", "--"};

	memset(ret, 0, sizeof *ret);
	for (unsigned c = 0; c < 256; c++) {
		pair(ret, '@', (char)c);
		for (char digit = '0'; digit <= '9'; digit++)
			pair(ret, digit, (char)c);
	}
	pair(ret, '%', '4');
	pair(ret, ':', '/');
	for (size_t i = 0; i < sizeof secrets / sizeof secrets[0]; i++)
		for (const char *next = secrets[i] + 1; *next; next++)
			pair(ret, secrets[i][0], *next);
	find_words_init(ret);
}

/* The first place at or behind p where something may begin.  At a text's last sign nothing does but
 * a digit, whose validators look back for nothing. */
static const char *
next_stop(const struct find *f, const char *p)
{
	const uint64_t *table = f->tables->pair;

	for (; f->end - p >= 2; p++) {
		unsigned at = (unsigned)(uint8_t)p[0] << 8 | (uint8_t)p[1];

		if (table[at / 64] >> at % 64 & 1)
			return p;
	}
	return f->end;
}

static bool
give(struct find *f, enum find_kind kind, const char *from, const char *to)
{
	if (!to)
		return false;
	if (f->want & 1u << kind)
		f->hit(f, kind, (struct slice){from, (size_t)(to - from)});
	return true;
}

/* At the first of some digits: what begins with them, or ends with them further on.  Accounts,
 * cards and SSNs are looked for first: what is part of one is no telephone number. */
static const char *
at_digits(struct find *f, const char *p)
{
	const unsigned numbers = 1u << FIND_PHONE | 1u << FIND_IBAN | 1u << FIND_CARD |
				 1u << FIND_SSN;
	const char *start = p, *end;

	if (f->want & numbers) {
		if (give(f, FIND_IBAN, start, end = iban_at(f, p, &start)))
			return end;
		if (give(f, FIND_CARD, p, end = card_at(f, p)))
			return end;
		if (give(f, FIND_SSN, p, end = ssn_at(f, p)))
			return end;
	}
	if (f->want & 1u << FIND_PHONE && give(f, FIND_PHONE, start, end = phone_at(f, p, &start)))
		return end;
	if (f->want & 1u << FIND_SECRET && give(f, FIND_SECRET, p, end = secret_bot_at(f, p)))
		return end;
	return p + digits_at(f, p);
}

static const char *
at_sign(struct find *f, const char *p, size_t len)
{
	const char *start = p, *end = NULL;

	if (f->want & 1u << FIND_EMAIL)
		end = email_at(f, p, len, &start);
	return give(f, FIND_EMAIL, start, end) ? end : p + len;
}

/* At "://": only the password is a secret; an address may stand behind it. */
static const char *
at_url(struct find *f, const char *p)
{
	if (f->want & 1u << FIND_SECRET)
		give(f, FIND_SECRET, p, secret_url_at(f, p));
	return p + 3;
}

/* At what a secret may begin with; most of these stand inside of words. */
static const char *
at_letter(struct find *f, const char *p)
{
	const char *end = NULL;
	bool anywhere = *p == '-' || (p[1] | 0x20) == 'e';      /* PEM; "secret" in a name */

	if ((anywhere || !alnum_at(f, p - 1)) && (f->want & 1u << FIND_SECRET))
		end = secret_at(f, p);
	return give(f, FIND_SECRET, p, end) ? end : p + 1;
}

void
find_all(struct find *f)
{
	const char *p = f->text;

	f->seen = f->line = f->text;
	memset(f->word_end, 0, sizeof f->word_end);
	while (f->want && (p = next_stop(f, p)) < f->end) {
		if (digit_at(f, p))
			p = at_digits(f, p);
		else if (*p == '@')
			p = at_sign(f, p, 1);
		else if (*p == '%')
			p = char_at(f, p + 2) == '0' ? at_sign(f, p, 3) : p + 1;
		else if (*p == ':')
			p = char_at(f, p + 2) == '/' ? at_url(f, p) : p + 1;
		else
			p = at_letter(f, p);
	}
}
