/* actors/common/tags/words.c -- the words beside a number that say which number it is. */
#include <string.h>

#include "actors/common/tags/find_private.h"

#define NEAR 40u        /* characters from a word's end to its number */

/* Between a word's end and its number lie at most so many bytes, and the word itself before. */
#define LOOK_BACK (NEAR * 4 + 64)

enum more {
	MORE_NONE,
	MORE_COLON,             /* ":" directly behind */
	MORE_WHOM,              /* me, us, him, her, them or at behind it: the word ends there */
};

struct word {
	const char *text;       /* lower case */
	enum find_word word;
	enum more more;
};

static const struct word words[] = {
	{"phone", WORD_PHONE, MORE_NONE},	{"telephone", WORD_PHONE, MORE_NONE},
	{"tel", WORD_PHONE, MORE_NONE},		{"mobile", WORD_PHONE, MORE_NONE},
	{"cell phone", WORD_PHONE, MORE_NONE},	{"my cell", WORD_PHONE, MORE_NONE},
	{"cell", WORD_PHONE, MORE_COLON},	{"fax", WORD_PHONE, MORE_NONE},
	{"whatsapp", WORD_PHONE, MORE_NONE},	{"call", WORD_PHONE, MORE_WHOM},
	{"text", WORD_PHONE, MORE_WHOM},	{"ring", WORD_PHONE, MORE_WHOM},
	{"reach", WORD_PHONE, MORE_WHOM},	{"telefon", WORD_PHONE, MORE_NONE},
	{"telefonnummer", WORD_PHONE, MORE_NONE}, {"telefonnr", WORD_PHONE, MORE_NONE},
	{"handy", WORD_PHONE, MORE_NONE},	{"handynummer", WORD_PHONE, MORE_NONE},
	{"mobil", WORD_PHONE, MORE_NONE},	{"mobilnummer", WORD_PHONE, MORE_NONE},
	{"mobiltelefon", WORD_PHONE, MORE_NONE}, {"rufnummer", WORD_PHONE, MORE_NONE},
	{"rufen sie", WORD_PHONE, MORE_NONE},	{"téléphone", WORD_PHONE, MORE_NONE},
	{"tél", WORD_PHONE, MORE_NONE},		{"portable", WORD_PHONE, MORE_NONE},
	{"appelez", WORD_PHONE, MORE_NONE},	{"teléfono", WORD_PHONE, MORE_NONE},
	{"tfno", WORD_PHONE, MORE_NONE},	{"móvil", WORD_PHONE, MORE_NONE},
	{"celular", WORD_PHONE, MORE_NONE},	{"llámame", WORD_PHONE, MORE_NONE},
	{"llámenos", WORD_PHONE, MORE_NONE},	{"llame", WORD_PHONE, MORE_NONE},
	{"telefone", WORD_PHONE, MORE_NONE},	{"telemóvel", WORD_PHONE, MORE_NONE},
	{"ligue", WORD_PHONE, MORE_NONE},	{"telefono", WORD_PHONE, MORE_NONE},
	{"telefoon", WORD_PHONE, MORE_NONE},	{"電話", WORD_PHONE, MORE_NONE},
	{"携帯", WORD_PHONE, MORE_NONE},	{"电话", WORD_PHONE, MORE_NONE},
	{"手机", WORD_PHONE, MORE_NONE},	{"手機", WORD_PHONE, MORE_NONE},
	{"致电", WORD_PHONE, MORE_NONE},	{"هاتف", WORD_PHONE, MORE_NONE},
	{"الهاتف", WORD_PHONE, MORE_NONE},	{"جوال", WORD_PHONE, MORE_NONE},
	{"الجوال", WORD_PHONE, MORE_NONE},	{"موبايل", WORD_PHONE, MORE_NONE},
	{"تلفن", WORD_PHONE, MORE_NONE},	{"اتصل", WORD_PHONE, MORE_NONE},
	{"\xe0\xa5\x9eोन", WORD_PHONE, MORE_NONE}, {"फोन", WORD_PHONE, MORE_NONE},
	{"मोबाइल", WORD_PHONE, MORE_NONE},	{"телефон", WORD_PHONE, MORE_NONE},
	{"тел", WORD_PHONE, MORE_NONE},		{"моб", WORD_PHONE, MORE_NONE},
	{"звоните", WORD_PHONE, MORE_NONE},	{"позвоните", WORD_PHONE, MORE_NONE},

	{"order", WORD_OTHER, MORE_NONE},	{"invoice", WORD_OTHER, MORE_NONE},
	{"ticket", WORD_OTHER, MORE_NONE},	{"case", WORD_OTHER, MORE_NONE},
	{"reference", WORD_OTHER, MORE_NONE},	{"ref", WORD_OTHER, MORE_NONE},
	{"tracking", WORD_OTHER, MORE_NONE},	{"serial", WORD_OTHER, MORE_NONE},
	{"article", WORD_OTHER, MORE_NONE},	{"part", WORD_OTHER, MORE_NONE},
	{"account", WORD_OTHER, MORE_NONE},	{"id", WORD_OTHER, MORE_NONE},
	{"imei", WORD_OTHER, MORE_NONE},	{"version", WORD_OTHER, MORE_NONE},
	{"pin", WORD_OTHER, MORE_NONE},		{"code", WORD_OTHER, MORE_NONE},
	{"ip", WORD_OTHER, MORE_NONE},		{"bestellung", WORD_OTHER, MORE_NONE},
	{"bestellnummer", WORD_OTHER, MORE_NONE}, {"rechnung", WORD_OTHER, MORE_NONE},
	{"ticketnummer", WORD_OTHER, MORE_NONE}, {"artikel", WORD_OTHER, MORE_NONE},
	{"kundennummer", WORD_OTHER, MORE_NONE}, {"commande", WORD_OTHER, MORE_NONE},
	{"facture", WORD_OTHER, MORE_NONE},	{"pedido", WORD_OTHER, MORE_NONE},
	{"factura", WORD_OTHER, MORE_NONE},	{"fatura", WORD_OTHER, MORE_NONE},
	{"注文", WORD_OTHER, MORE_NONE},	{"订单", WORD_OTHER, MORE_NONE},
	{"訂單", WORD_OTHER, MORE_NONE},	{"заказ", WORD_OTHER, MORE_NONE},
	{"заказа", WORD_OTHER, MORE_NONE},	{"الطلب", WORD_OTHER, MORE_NONE},
	{"ऑर्डर", WORD_OTHER, MORE_NONE},

	{"ssn", WORD_SSN, MORE_NONE},		{"social security", WORD_SSN, MORE_NONE},
	{"soc. sec", WORD_SSN, MORE_NONE},	{"seguro social", WORD_SSN, MORE_NONE},
};

#define WORDS (sizeof words / sizeof words[0])

_Static_assert(WORDS <= FIND_WORDS_MAX, "words have room");

void
find_words_init(struct find_tables *ret)
{
	for (size_t i = 0; i < WORDS; i++) {
		uint32_t c = unicode_at(words[i].text, strlen(words[i].text), &(unsigned){0});

		ret->first[i] = c;
		ret->next[i] = ret->head[c & 0xff];
		ret->head[c & 0xff] = (uint8_t)(i + 1);
	}
}

static const char *const whom[] = {" me", " us", " him", " her", " them", " at"};

/* Letters of scripts that part their words by blanks. */
static bool
of_a_word(uint32_t c)
{
	if (c < 0x80)
		return ascii_letter((char)c);
	if (!(unicode_class(c) & (UNICODE_LETTER | UNICODE_MARK)))
		return false;
	return !(c >= 0x2e80 && c <= 0xa4cf) && !(c >= 0xf900 && c <= 0xfaff) && c < 0x20000;
}

/* Lower case in the scripts of the words above. */
static uint32_t
folded(uint32_t c)
{
	if ((c >= 'A' && c <= 'Z') || (c >= 0xc0 && c <= 0xde && c != 0xd7) ||
	    (c >= 0x410 && c <= 0x42f))
		return c + 0x20;
	return c >= 0x400 && c <= 0x40f ? c + 0x50 : c;
}

/* Where that word ends, if it stands at p. */
static const char *
spelled(const struct find *f, const char *p, const char *word)
{
	const char *end = word + strlen(word);
	unsigned n, m;

	while (word < end) {
		uint32_t want = unicode_at(word, (size_t)(end - word), &n);

		if (folded(find_char(f, p, &m)) != want)
			return NULL;
		word += n;
		p += m;
	}
	return p;
}

/* The same, and no letter of a longer word is behind it. */
static const char *
word_at(const struct find *f, const char *p, const char *word, bool apart)
{
	const char *end = spelled(f, p, word);

	return end && !(apart && of_a_word(find_char(f, end, &(unsigned){0}))) ? end : NULL;
}

static void
take_word(struct find *f, const char *p, const char *upto, const struct word *w)
{
	bool apart = of_a_word(find_char(f, p, &(unsigned){0}));
	const char *end = word_at(f, p, w->text, apart), *more = NULL;

	if (!end)
		return;
	if (w->more == MORE_COLON && char_at(f, end) != ':')
		return;
	for (size_t i = 0; w->more == MORE_WHOM && !more; i++) {
		if (i == sizeof whom / sizeof whom[0])
			return;
		more = word_at(f, end, whom[i], true);
	}
	if (more)
		end = more;
	if (end <= upto && end > f->word_end[w->word])
		f->word_end[w->word] = end;
}

/* All words before `upto`, up to which nobody looked yet.  No word goes on beyond a number. */
static void
look(struct find *f, const char *upto)
{
	const char *p = f->seen;

	if ((size_t)(upto - p) > LOOK_BACK) {
		p = upto - LOOK_BACK;           /* what ends further away is not near */
		while (((uint8_t)*p & 0xc0) == 0x80)
			p++;
	}
	bool inside = of_a_word(find_char_before(f, p, &(unsigned){0}));

	while (p < upto) {
		unsigned n;
		uint32_t c = find_char(f, p, &n), low = folded(c);
		bool letter = of_a_word(c);

		if (c == '\n' || c == '\r')
			f->line = p + 1;
		if (!(letter && inside))
			for (uint8_t i = f->tables->head[low & 0xff]; i; i = f->tables->next[i - 1])
				if (f->tables->first[i - 1] == low)
					take_word(f, p, upto, &words[i - 1]);
		inside = letter;
		p += n;
	}
	f->seen = upto;
}

bool
word_near(struct find *f, const char *p, enum find_word word)
{
	const char *end;
	size_t between = 0;

	if (p > f->seen)
		look(f, p);
	end = f->word_end[word];
	if (!end || end < f->line || end > p)
		return false;
	if (word != WORD_SSN && f->word_end[WORD_OTHER] > end)
		return false;
	for (const char *q = end; q < p; q++)
		between += ((uint8_t)*q & 0xc0) != 0x80;
	return between <= NEAR;
}
