/* actors/common/prompt/py_time.c -- strftime_now: the worker's local time by the given clock. */
#include "actors/common/prompt/jinja_private.h"

#include <stdio.h>
#include <time.h>

struct value
py_strftime(struct run *run, struct slice format)
{
	const struct jinja_options *o = run->options;
	time_t local = (time_t)(o->now_s + o->utc_offset_s);
	size_t mark = run->out->len;
	char one[4] = "%", buf[128], micro[8];
	struct tm tm;

	if (!gmtime_r(&local, &tm))
		run_fail(run, "ValueError: year is out of range");
	/* datetime.now() knows no zone: %z and %Z are empty, %s is left as Python leaves it */
	for (size_t i = 0; i < format.len; i++) {
		size_t n;

		if (format.p[i] != '%' || i + 1 == format.len) {
			out_add(run, format.p + i, 1);
			continue;
		}
		i++;
		if (format.p[i] == 'f') {
			(void)snprintf(micro, sizeof(micro), "%06u", o->now_us % 1000000u);
			out_add(run, micro, 6);
			continue;
		}
		if (format.p[i] == 'z' || format.p[i] == 'Z')
			continue;
		n = 1;
		if (strchr("-_0^#EO", format.p[i]) && format.p[i] && i + 1 < format.len)
			one[n++] = format.p[i++];
		one[n++] = format.p[i];
		one[n] = 0;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
		out_add(run, buf, strftime(buf, sizeof(buf), one, &tm));
#pragma GCC diagnostic pop
	}
	return out_capture(run, mark, 0);
}
