/* actors/common/tags/find_private.h -- what the validators of find.h share.
 *
 * Each takes the place where its kind may begin and gives where it ends, or NULL.  f->text and
 * f->end bound every look to either side.
 */
#pragma once
#include "actors/common/prompt/unicode.h"
#include "actors/common/tags/find.h"

static inline bool
digit_at(const struct find *f, const char *p)
{
	return p >= f->text && p < f->end && *p >= '0' && *p <= '9';
}

static inline bool
ascii_letter(char c)
{
	return (unsigned char)((c | 0x20) - 'a') < 26;
}

static inline bool
alnum_at(const struct find *f, const char *p)
{
	return p >= f->text && p < f->end && (ascii_letter(*p) || (*p >= '0' && *p <= '9'));
}

static inline char
char_at(const struct find *f, const char *p)            /* 0: outside */
{
	return p >= f->text && p < f->end ? *p : '\0';
}

/* How many digits stand at p. */
static inline size_t
digits_at(const struct find *f, const char *p)
{
	const char *q = p;

	while (digit_at(f, q))
		q++;
	return (size_t)(q - p);
}

/* The character that begins at p, or that ends before it; one that no text has: none there. */
uint32_t find_char(const struct find *f, const char *p, unsigned *ret_len);
uint32_t find_char_before(const struct find *f, const char *p, unsigned *ret_len);

bool find_open_before(const struct find *f, const char *p);
bool find_open_behind(const struct find *f, const char *p);
	/* No Latin letter, digit or "_" touches it there. */
bool find_joined_before(const struct find *f, const char *p, const char *by);
bool find_joined_behind(const struct find *f, const char *p, const char *by);
	/* One of these signs and a digit beyond it. */

const char *iban_at(const struct find *f, const char *digits, const char **ret_start);
	/* digits: its check digits. */
const char *card_at(const struct find *f, const char *p);
const char *ssn_at(struct find *f, const char *p);
const char *phone_at(struct find *f, const char *p, const char **ret_start);
	/* p: its first digit, or, of one in parentheses, the digit behind. */
const char *email_at(struct find *f, const char *at, size_t at_len, const char **ret_start);
	/* at: "@" or "%40". */
const char *secret_at(const struct find *f, const char *p);
	/* p: its first sign, a letter or "-". */
const char *secret_bot_at(const struct find *f, const char *p);
	/* p: its first digit. */
const char *secret_url_at(const struct find *f, const char *colon);
	/* colon: that of "://"; from there to the end of the password. */

void find_words_init(struct find_tables *ret);
bool word_near(struct find *f, const char *p, enum find_word word);
	/* Such a word ends at most 40 characters before p on its line, and no WORD_OTHER between it
	 * and p (but of an SSN). */
