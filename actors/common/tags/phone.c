/* actors/common/tags/phone.c -- telephone numbers: international, North American, or by a word. */
#include <string.h>

#include "actors/common/tags/find_private.h"

#define PHONE_MAX 15u           /* digits, by E.164 */
#define PHONE_MIN 7u            /* by a word */
#define INTERNATIONAL_MIN 8u

/* Digits as they are grouped, as far as they can be one number. */
struct number {
	char digit[PHONE_MAX];
	size_t n;               /* digits */
	size_t groups;
	struct {
		const char *at, *end;
		size_t n;       /* digits up to its end */
		bool trunk;     /* "(0)": said for those who call from inside */
	} group[PHONE_MAX];
};

/* Calling codes of ITU E.164, besides +1: those of two digits, and of three. */
static const char codes_2[] =
	"20 27 30 31 32 33 34 36 39 40 41 43 44 45 46 47 48 49 51 52 53 54 55 56 57 58 60 61 "
	"62 63 64 65 66 81 82 84 86 90 91 92 93 94 95 98 ";
static const char codes_3[] =
	"211 212 213 216 218 220 221 222 223 224 225 226 227 228 229 230 231 232 233 234 235 "
	"236 237 238 239 240 241 242 243 244 245 246 247 248 249 250 251 252 253 254 255 256 "
	"257 258 260 261 262 263 264 265 266 267 268 269 290 291 297 298 299 350 351 352 353 "
	"354 355 356 357 358 359 370 371 372 373 374 375 376 377 378 379 380 381 382 383 385 "
	"386 387 389 420 421 423 500 501 502 503 504 505 506 507 508 509 590 591 592 593 594 "
	"595 596 597 598 599 670 672 673 674 675 676 677 678 679 680 681 682 683 685 686 687 "
	"688 689 690 691 692 800 808 850 852 853 855 856 870 878 880 881 882 883 886 888 960 "
	"961 962 963 964 965 966 967 968 970 971 972 973 974 975 976 977 979 992 993 994 995 "
	"996 998 ";

static bool
listed(const char *codes, size_t n, const char *digit)
{
	for (; *codes; codes += n + 1)
		if (memcmp(codes, digit, n) == 0)
			return true;
	return false;
}

/* The North American plan: an area and an exchange begin with 2 to 9, no area is a service's. */
static bool
american(const char digit[6])
{
	return digit[0] >= '2' && digit[3] >= '2' && !(digit[1] == '1' && digit[2] == '1');
}

static bool
called(const char *digit, size_t n)
{
	if (digit[0] == '1')
		return n == 11 && american(digit + 1);
	return digit[0] == '7' || listed(codes_2, 2, digit) || listed(codes_3, 3, digit);
}

/* What stands between two groups of digits at p: its bytes; 0: nothing that does. */
static size_t
between(const struct find *f, const char *p)
{
	const char *q = p;

	if (char_at(f, q) == ' ' || char_at(f, q) == '-')
		q++;
	if (char_at(f, q) == '(' || char_at(f, q) == ')') {
		q++;
		if (char_at(f, q) == ' ' || char_at(f, q) == '-')
			q++;
	} else if (q == p && (char_at(f, q) == '.' || char_at(f, q) == '/')) {
		q++;
	}
	return q > p && digit_at(f, q) ? (size_t)(q - p) : 0;
}

static void
read_number(const struct find *f, const char *p, struct number *ret)
{
	size_t n, gap;

	ret->n = ret->groups = 0;
	do {
		n = digits_at(f, p);
		if (n > PHONE_MAX - ret->n)
			return;                 /* those before may be one by themselves */
		ret->group[ret->groups].at = p;
		ret->group[ret->groups].trunk = n == 1 && *p == '0' && char_at(f, p - 1) == '(' &&
						char_at(f, p + 1) == ')';
		memcpy(ret->digit + ret->n, p, n);
		p += n;
		ret->n += n;
		ret->group[ret->groups].end = p;
		ret->group[ret->groups++].n = ret->n;
		gap = between(f, p);
		p += gap;
	} while (gap > 0 && ret->n < PHONE_MAX);
}

/* No sign that is one before p is a part of the number, and none goes on behind end. */
static bool
alone(const struct find *f, const char *start, const char *end)
{
	return find_open_before(f, start) && !find_joined_before(f, start, "-./:") &&
	       find_open_behind(f, end) && !find_joined_behind(f, end, "-./:");
}

/* Some of its groups are a card or an SSN. */
static bool
other_number(struct find *f, const struct number *num, const char *end)
{
	for (size_t i = 1; i < num->groups && num->group[i].at < end; i++)
		if (card_at(f, num->group[i].at) || ssn_at(f, num->group[i].at))
			return true;
	return false;
}

/* Dots and nothing else between the first groups. */
static size_t
dotted(const struct number *num, size_t groups)
{
	size_t dots = 0;

	for (size_t i = 0; i + 1 < groups; i++)
		if (num->group[i].end[0] == '.' && num->group[i].end + 1 == num->group[i + 1].at)
			dots++;
	return dots;
}

static bool
decimal(const struct number *num, size_t groups)
{
	return groups == 2 && dotted(num, 2) == 1;
}

/* ---- 1: international ---- */

static const char *
international(struct find *f, const char *plus, const struct number *num)
{
	for (size_t g = num->groups; g > 0; g--) {
		char digit[PHONE_MAX];
		size_t n = 0, at = 0;

		for (size_t i = 0; i < g; at = num->group[i++].n)
			if (!num->group[i].trunk || i == 0) {
				memcpy(digit + n, num->digit + at, num->group[i].n - at);
				n += num->group[i].n - at;
			}
		if (n >= INTERNATIONAL_MIN && called(digit, n) && !decimal(num, g) &&
		    alone(f, plus, num->group[g - 1].end) &&
		    !other_number(f, num, num->group[g - 1].end))
			return num->group[g - 1].end;
	}
	return NULL;
}

/* ---- 2: North American ---- */

static bool
extension(const struct find *f, const char *p)
{
	return (char_at(f, p) == 'x' || char_at(f, p) == 'X') && digit_at(f, p + 1);
}

static const char *
north_american(const struct find *f, const char *p, const char **ret_start)
{
	const char *start = p, *q = p;
	char digit[6];
	bool inside;

	if (*q == '1' && digits_at(f, q) == 1 &&
	    (char_at(f, q + 1) == ' ' || char_at(f, q + 1) == '-'))
		q += 2;
	inside = char_at(f, q) == '(';
	if (q == p && char_at(f, q - 1) == '(') {
		inside = true;
		start--;
	} else {
		q += inside;
	}
	if (digits_at(f, q) != 3)
		return NULL;
	memcpy(digit, q, 3);
	q += 3;
	if (char_at(f, q) != (inside ? ')' : '-'))
		return NULL;
	q++;
	q += inside && char_at(f, q) == ' ';
	if (digits_at(f, q) != 3 || char_at(f, q + 3) != '-' || digits_at(f, q + 4) != 4)
		return NULL;
	memcpy(digit + 3, q, 3);
	q += 8;
	if (!american(digit) || !find_open_before(f, start) ||
	    find_joined_before(f, start, "-./:") || find_joined_behind(f, q, "-./:") ||
	    !(find_open_behind(f, q) || extension(f, q)))
		return NULL;
	*ret_start = start;
	return q;
}

/* ---- 3: by a word ---- */

static size_t
group_len(const struct number *num, size_t i)
{
	return num->group[i].n - (i > 0 ? num->group[i - 1].n : 0);
}

static unsigned
group_value(const struct number *num, size_t i)
{
	unsigned v = 0;

	for (size_t k = num->group[i].n - group_len(num, i); k < num->group[i].n; k++)
		v = v * 10 + (unsigned)(num->digit[k] - '0');
	return v;
}

/* The first three groups: year-month-day, day.month.year, month/day/year. */
static bool
date(const struct number *num)
{
	size_t year, a, b;
	char sign;

	if (num->groups < 3)
		return false;
	sign = num->group[0].end[0];
	if (!strchr("-./", sign) || num->group[1].end[0] != sign ||
	    num->group[0].end + 1 != num->group[1].at ||
	    num->group[1].end + 1 != num->group[2].at ||
	    (num->groups > 3 && num->group[2].end[0] == sign))
		return false;
	year = group_len(num, 0) == 4 ? 0 : 2;
	a = year == 0 ? 1 : 0;
	b = year == 0 ? 2 : 1;
	if (group_len(num, a) > 2 || group_len(num, b) > 2 ||
	    (group_len(num, year) != 4 && group_len(num, year) != 2))
		return false;
	unsigned v = group_value(num, a), u = group_value(num, b);

	return v >= 1 && v <= 31 && u >= 1 && u <= 31 && (v <= 12 || u <= 12);
}

static bool
ipv4(const struct number *num, size_t groups)
{
	if (groups != 4 || dotted(num, 4) != 3)
		return false;
	for (size_t i = 0; i < 4; i++)
		if (group_len(num, i) > 3 || group_value(num, i) > 255)
			return false;
	return true;
}

/* Two decimals behind a point or a comma, and thousands before. */
static bool
amount(const struct find *f, const struct number *num, size_t groups)
{
	const char *end = num->group[groups - 1].end;
	size_t whole = groups;

	if (char_at(f, end) == ',' && digits_at(f, end + 1) == 2)
		;
	else if (groups > 1 && group_len(num, groups - 1) == 2 &&
		 num->group[groups - 2].end[0] == '.')
		whole--;
	else
		return false;
	for (size_t i = 1; i < whole; i++)
		if (group_len(num, i) != 3)
			return false;
	return true;
}

static const char *
by_word(struct find *f, const char *start, const struct number *num)
{
	if (num->n < PHONE_MIN || date(num) || !word_near(f, start, WORD_PHONE))
		return NULL;
	for (size_t g = num->groups; g > 0 && num->group[g - 1].n >= PHONE_MIN; g--) {
		const char *end = num->group[g - 1].end;

		if (!decimal(num, g) && !ipv4(num, g) && !amount(f, num, g) &&
		    (alone(f, start, end) || (extension(f, end) && find_open_before(f, start))) &&
		    !other_number(f, num, end))
			return end;
	}
	return NULL;
}

const char *
phone_at(struct find *f, const char *p, const char **ret_start)
{
	const char *start = p, *end;
	struct number num;

	end = north_american(f, p, ret_start);
	if (end)
		return end;
	read_number(f, p, &num);
	if (num.groups == 0)
		return NULL;
	if (char_at(f, p - 1) == '(' || char_at(f, p - 1) == '+')
		start--;
	end = *start == '+' ? international(f, start, &num) : NULL;
	if (!end)
		end = by_word(f, start, &num);
	*ret_start = start;
	return end;
}
