/* actors/common/log.c -- one line, one write. */
#include "actors/common/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define LINE_MAX_BYTES 1024u

/* The one file-level state of the process besides its spec: where its log lines come from. */
static struct {
	char actor[32];
	uint32_t index, incarnation, generation;
	enum log_level level;
} me = {.actor = "pointsman", .level = LEVEL_INFO};

void
log_open(const char *actor, uint32_t index, uint32_t incarnation, uint32_t generation,
	 enum log_level level)
{
	snprintf(me.actor, sizeof me.actor, "%s", actor);
	me.index = index;
	me.incarnation = incarnation;
	me.generation = generation;
	me.level = level;
}

void
log_set_generation(uint32_t generation)
{
	me.generation = generation;
}

static void log_line(enum log_level level, const char *format, va_list ap)
	__attribute__((format(printf, 2, 0)));

static void
log_line(enum log_level level, const char *format, va_list ap)
{
	static const char *const names[] = {"error", "warn", "info", "debug"};
	char line[LINE_MAX_BYTES];
	struct timespec ts;
	struct tm tm;
	size_t n;
	int r;

	if (level > me.level)
		return;
	clock_gettime(CLOCK_REALTIME, &ts);
	gmtime_r(&ts.tv_sec, &tm);
	n = strftime(line, sizeof line, "%Y-%m-%dT%H:%M:%S", &tm);
	r = snprintf(line + n, sizeof line - n, ".%03ldZ %s %s[%u.%u] gen=%u ",
		     ts.tv_nsec / 1000000, names[level], me.actor, me.index, me.incarnation,
		     me.generation);
	n += (size_t)r;
	r = vsnprintf(line + n, sizeof line - n, format, ap);
	n += r > 0 ? (size_t)r : 0;
	if (n > sizeof line - 2)
		n = sizeof line - 2;            /* cut */
	line[n++] = '\n';
	if (write(STDERR_FILENO, line, n) < 0)
		return;                         /* nowhere left to say it */
}

#define LOG_VERB(verb, level)                   \
	void                                    \
	verb(const char *format, ...)           \
	{                                       \
		va_list ap;                     \
                                                \
		va_start(ap, format);           \
		log_line(level, format, ap);    \
		va_end(ap);                     \
	}
LOG_VERB(log_error, LEVEL_ERROR)
LOG_VERB(log_warn, LEVEL_WARN)
LOG_VERB(log_info, LEVEL_INFO)
LOG_VERB(log_debug, LEVEL_DEBUG)

void
log_fatal(const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	log_line(LEVEL_ERROR, format, ap);
	va_end(ap);
	exit(70);
}

const char *
log_quote(char *buf, unsigned cap, const char *s, unsigned len)
{
	static const char hex[] = "0123456789abcdef";
	unsigned n = 0;

	if (cap < 8) {
		if (cap > 0)
			buf[0] = 0;
		return buf;
	}
	buf[n++] = '"';
	for (unsigned i = 0; i < len; i++) {
		unsigned char c = (unsigned char)s[i];

		if (n + 8 > cap) {
			buf[n++] = '.';
			buf[n++] = '.';
			break;
		}
		if (c >= 0x20 && c < 0x7f && c != '"' && c != '\\') {
			buf[n++] = (char)c;
		} else {
			buf[n++] = '\\';
			buf[n++] = 'x';
			buf[n++] = hex[c >> 4];
			buf[n++] = hex[c & 15];
		}
	}
	buf[n++] = '"';
	buf[n] = 0;
	return buf;
}
