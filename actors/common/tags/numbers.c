/* actors/common/tags/numbers.c -- IBANs, cards and SSNs: numbers that prove themselves. */
#include <string.h>

#include "actors/common/tags/find_private.h"

/* ---- IBAN ---- */

#define IBAN_MAX 34u

/* SWIFT's IBAN registry: country and length. */
static const char iban_lengths[] =
	"AD24AE23AL28AT20AZ28BA20BE16BG22BH22BI27BR29BY28CH21CR22CY28CZ24DE22DJ27DK18DO28EE20EG29"
	"ES24FI18FK18FO18FR27GB22GE22GI23GL18GR27GT28HN28HR21HU28IE22IL23IQ23IS26IT27JO30KW30KZ20"
	"LB28LC32LI21LT20LU20LV21LY25MC27MD24ME22MK19MN20MR27MT31MU30NI28NL18NO15OM23PK24PL28PS29"
	"PT25QA29RO24RS22RU33SA24SC31SD18SE24SI19SK24SM27SO23ST25SV28TL23TN24TR26UA29VA22VG24XK20"
	"YE30";

static char
upper(char c)
{
	return c >= 'a' && c <= 'z' ? (char)(c - 0x20) : c;
}

/* 0: no such country. */
static size_t
iban_length(const char country[2])
{
	for (const char *p = iban_lengths; *p; p += 4)
		if (p[0] == upper(country[0]) && p[1] == upper(country[1]))
			return (size_t)(p[2] - '0') * 10 + (size_t)(p[3] - '0');
	return 0;
}

/* ISO 13616: the first four to the end, letters as 10 to 35, modulo 97. */
static bool
iban_proves(const char *sign, size_t n)
{
	unsigned rest = 0;

	for (size_t i = 0; i < n; i++) {
		char c = upper(sign[(i + 4) % n]);

		rest = c <= '9' ? rest * 10 + (unsigned)(c - '0') :
				  rest * 100 + (unsigned)(c - 'A') + 10;
		rest %= 97;
	}
	return rest == 1;
}

const char *
iban_at(const struct find *f, const char *digits, const char **ret_start)
{
	const char *start = digits - 2, *p = digits + 2;
	size_t length, n = 4;
	char sign[IBAN_MAX], between = 0;
	int check;

	if (start < f->text || !ascii_letter(start[0]) || !ascii_letter(start[1]) ||
	    !digit_at(f, digits + 1) || !find_open_before(f, start))
		return NULL;
	length = iban_length(start);
	check = (digits[0] - '0') * 10 + digits[1] - '0';
	if (length == 0 || check < 2 || check > 98)
		return NULL;
	memcpy(sign, start, 4);
	if (char_at(f, p) && strchr(" -.", *p))
		between = *p;
	while (n < length) {
		if (between && n % 4 == 0 && char_at(f, p++) != between)
			return NULL;
		if (!alnum_at(f, p))
			return NULL;
		sign[n++] = *p++;
	}
	if (!find_open_behind(f, p) || !iban_proves(sign, n))
		return NULL;
	*ret_start = start;
	return p;
}

/* ---- card ---- */

#define CARD_MAX 19u

static unsigned
first(const char *digit, size_t n)
{
	unsigned v = 0;

	for (size_t i = 0; i < n; i++)
		v = v * 10 + (unsigned)(digit[i] - '0');
	return v;
}

static bool
in(unsigned v, unsigned low, unsigned high)
{
	return v >= low && v <= high;
}

static bool
card_issued(const char *digit, size_t n)
{
	unsigned two = first(digit, 2), three = first(digit, 3), four = first(digit, 4);

	if (digit[0] == '4')
		return n == 13 || n == 16 || n == 19;
	if (in(two, 51, 55) || in(four, 2221, 2720))
		return n == 16;
	if (two == 34 || two == 37)
		return n == 15;
	if (in(three, 300, 305) || two == 36 || two == 38 || two == 39)
		return n == 14;
	if (four == 6011 || in(three, 644, 649) || two == 65 || in(four, 3528, 3589) || two == 62)
		return n >= 16 && n <= 19;
	return false;
}

static bool
luhn(const char *digit, size_t n)
{
	unsigned sum = 0;

	for (size_t i = 0; i < n; i++) {
		unsigned d = (unsigned)(digit[n - 1 - i] - '0');

		if (i % 2 == 1)
			d = d < 5 ? d * 2 : d * 2 - 9;
		sum += d;
	}
	return sum % 10 == 0;
}

static bool
card_proves(const struct find *f, const char *digit, size_t n, const char *end)
{
	return card_issued(digit, n) && luhn(digit, n) && find_open_behind(f, end) &&
	       !find_joined_behind(f, end, ".-");
}

/* A group of four letters and digits, one digit at least, joined to p: p goes on in a row. */
static bool
in_a_row(const struct find *f, const char *p)
{
	bool digit = false;

	if (!char_at(f, p - 1) || !strchr(" -.", p[-1]))
		return false;
	for (int i = 2; i <= 5; i++) {
		if (!alnum_at(f, p - i))
			return false;
		digit |= digit_at(f, p - i);
	}
	return digit && find_open_before(f, p - 5);
}

/* How cards are grouped; 0 ends.  The longest come first. */
static const uint8_t card_groups[][6] = {
	{4, 4, 4, 4, 3}, {4, 4, 4, 4, 2}, {4, 4, 4, 4, 1}, {4, 4, 4, 4}, {4, 4, 4, 1},
	{4, 6, 5},	 {4, 6, 4},
};

/* Digits in these groups at p, all with the same sign between them; NULL: they are not. */
static const char *
grouped(const struct find *f, const char *p, const uint8_t group[6], char digit[CARD_MAX],
	size_t *ret_n)
{
	char between = p[4];
	size_t n = 0;

	for (size_t i = 0; group[i]; i++) {
		if (i > 0 && char_at(f, p++) != between)
			return NULL;
		if (digits_at(f, p) != group[i])
			return NULL;
		memcpy(digit + n, p, group[i]);
		n += group[i];
		p += group[i];
	}
	*ret_n = n;
	return p;
}

const char *
card_at(const struct find *f, const char *p)
{
	size_t n = digits_at(f, p);
	char digit[CARD_MAX];

	if (n != 4 && (n < 13 || n > CARD_MAX))
		return NULL;
	if (!find_open_before(f, p) || find_joined_before(f, p, ".-"))
		return NULL;
	if (n > 4)
		return card_proves(f, p, n, p + n) ? p + n : NULL;
	if (!char_at(f, p + 4) || !strchr(" -.", p[4]) || in_a_row(f, p))
		return NULL;
	for (size_t i = 0; i < sizeof card_groups / sizeof card_groups[0]; i++) {
		const char *end = grouped(f, p, card_groups[i], digit, &n);

		if (end && card_proves(f, digit, n, end))
			return end;
	}
	return NULL;
}

/* ---- SSN ---- */

/* Never given: area 000, 666 and from 900 on, group 00, serial 0000, and two that were printed on
 * things. */
static bool
ssn_given(const char *area, const char *group, const char *serial)
{
	unsigned a = first(area, 3), g = first(group, 2), s = first(serial, 4);

	return in(a, 1, 899) && a != 666 && g > 0 && s > 0 && !(a == 78 && g == 5 && s == 1120) &&
	       !(a == 219 && g == 9 && s == 9999);
}

const char *
ssn_at(struct find *f, const char *p)
{
	size_t n = digits_at(f, p);
	const char *group, *serial, *end;
	bool hyphens = false;

	if (n == 3 && char_at(f, p + 3) && strchr("- .", p[3])) {
		group = p + 4;
		serial = p + 7;
		if (digits_at(f, group) != 2 || char_at(f, p + 6) != p[3] ||
		    digits_at(f, serial) != 4)
			return NULL;
		hyphens = p[3] == '-';
	} else if (n == 9) {
		group = p + 3;
		serial = p + 5;
	} else {
		return NULL;
	}
	end = serial + 4;
	if (!find_open_before(f, p) || !find_open_behind(f, end) ||
	    find_joined_before(f, p, "-./:") || find_joined_behind(f, end, "-./:") ||
	    !ssn_given(p, group, serial))
		return NULL;
	return hyphens || word_near(f, p, WORD_SSN) ? end : NULL;
}
