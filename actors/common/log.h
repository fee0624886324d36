/* actors/common/log.h -- text log for lifecycle; libraries below actors/ return errors instead.
 *
 * A line: `2026-11-30T12:00:00.123Z level actor[index.incarnation] gen=N event key=value ...` on
 * stderr. Strings from clients are quoted and cut.  State changes print old -> new; a failure
 * survived ends with what happens instead.  Any thread; one write(2) a line, at most 1 KiB.  A
 * pipe or socket that nobody reads loses lines, which are counted in the next one: it never makes
 * us wait.
 */
#pragma once
#include <stdint.h>

enum log_level { LEVEL_ERROR = 0, LEVEL_WARN, LEVEL_INFO, LEVEL_DEBUG };

void log_open(const char *actor, uint32_t index, uint32_t incarnation, uint32_t generation,
	      enum log_level level);
void log_set_generation(uint32_t generation);

void log_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_info(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_debug(const char *format, ...) __attribute__((format(printf, 1, 2)));
_Noreturn void log_fatal(const char *format, ...) __attribute__((format(printf, 1, 2)));
	/* Logs and exits 70. */

const char *log_quote(char *buf, unsigned cap, const char *s, unsigned len);
	/* "quoted\x0aand cut..." of a stranger's bytes, for %s.  Returns buf. */
