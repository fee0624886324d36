/* actors/common/log.c -- one line, one write. */
#include "actors/common/log.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LINE_MAX_BYTES 1024u

/* The one file-level state of the process besides its spec: where its log lines come from. */
static struct {
	char actor[32];
	uint32_t index, incarnation, generation;
	enum log_level level;
	int fd;
	bool socket;
	_Atomic uint32_t lost; /* lines since the last one that was taken */
} me = {.actor = "pointsman", .level = LEVEL_INFO, .fd = STDERR_FILENO};

/* Not to wait is a flag of the open file, which is shared with whoever started us: a pipe is opened
 * anew, a socket is told each time. */
static void
sink_open(void)
{
	struct stat st;

	if (me.fd != STDERR_FILENO)
		close(me.fd);
	me.fd = STDERR_FILENO;
	me.socket = false;
	if (fstat(STDERR_FILENO, &st) < 0)
		return;
	me.socket = S_ISSOCK(st.st_mode);
	if (S_ISFIFO(st.st_mode)) {
		int fd = open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_CLOEXEC);

		me.fd = fd < 0 ? STDERR_FILENO : fd; /* another user's pipe: as it is */
	}
}

void
log_open(const char *actor, uint32_t index, uint32_t incarnation, uint32_t generation,
	 enum log_level level)
{
	snprintf(me.actor, sizeof me.actor, "%s", actor);
	me.index = index;
	me.incarnation = incarnation;
	me.generation = generation;
	me.level = level;
	sink_open();
}

void
log_set_generation(uint32_t generation)
{
	me.generation = generation;
}

static bool
sink_write(const char *line, size_t n)
{
	return (me.socket ? send(me.fd, line, n, MSG_DONTWAIT | MSG_NOSIGNAL)
			  : write(me.fd, line, n)) >= 0;
}

static size_t
line_begin(char *line, enum log_level level)
{
	static const char *const names[] = {"error", "warn", "info", "debug"};
	struct timespec ts;
	struct tm tm;
	size_t n;

	clock_gettime(CLOCK_REALTIME, &ts);
	gmtime_r(&ts.tv_sec, &tm);
	n = strftime(line, LINE_MAX_BYTES, "%Y-%m-%dT%H:%M:%S", &tm);
	return n + (size_t)snprintf(line + n, LINE_MAX_BYTES - n,
				    ".%03ldZ %s %s[%u.%u] gen=%u ", ts.tv_nsec / 1000000,
				    names[level], me.actor, me.index, me.incarnation,
				    me.generation);
}

static void
tell_lost(void)
{
	uint32_t lost = atomic_exchange_explicit(&me.lost, 0, memory_order_relaxed);
	char line[LINE_MAX_BYTES];
	size_t n;

	if (lost == 0)
		return;
	n = line_begin(line, LEVEL_WARN);
	n += (size_t)snprintf(line + n, sizeof line - n, "log lines=%u lost: nobody read them\n",
			      lost);
	if (!sink_write(line, n))
		atomic_fetch_add_explicit(&me.lost, lost, memory_order_relaxed);
}

static void log_line(enum log_level level, const char *format, va_list ap)
	__attribute__((format(printf, 2, 0)));

static void
log_line(enum log_level level, const char *format, va_list ap)
{
	char line[LINE_MAX_BYTES];
	size_t n;
	int r;

	if (level > me.level)
		return;
	tell_lost();
	n = line_begin(line, level);
	r = vsnprintf(line + n, sizeof line - n, format, ap);
	n += r > 0 ? (size_t)r : 0;
	if (n > sizeof line - 2)
		n = sizeof line - 2;            /* cut */
	line[n++] = '\n';
	if (!sink_write(line, n))
		atomic_fetch_add_explicit(&me.lost, 1, memory_order_relaxed);
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
