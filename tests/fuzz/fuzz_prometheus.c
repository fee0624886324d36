/* fuzz_prometheus.c -- no page makes the parser step outside; what it gives lies in the page. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/prometheus.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct page {
	const char *start, *end;
	size_t samples;
};

static void
sample_check(void *arg, const struct prometheus_sample *s)
{
	struct page *page = arg;
	struct prometheus_label l;
	size_t pos = 0, labels = 0;
	char text[32], name[32];

	page->samples++;
	if (s->name < page->start || s->name + s->name_len > page->end || s->name_len == 0)
		abort();
	if (s->labels_len > 0 &&
	    (s->labels < page->start || s->labels + s->labels_len > page->end))
		abort();
	while (prometheus_label_next(s, &pos, &l)) {
		int r;

		if (l.value + l.value_len > page->end || ++labels > s->labels_len)
			abort();
		if (l.name_len >= sizeof(name))
			continue;
		memcpy(name, l.name, l.name_len);
		name[l.name_len] = '\0';
		r = prometheus_label_get(s, name, text, sizeof(text));
		if (r >= (int)sizeof(text) || (r >= 0 && text[r] != '\0'))
			abort();
	}
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct page page = {(const char *)data, (const char *)data + size, 0};
	struct prometheus_stats st;

	prometheus_parse((const char *)data, size, sample_check, &page, &st);
	if (st.samples != page.samples || st.not_finite > st.samples ||
	    (st.failed > 0) != (st.failed_line > 0))
		abort();
	return 0;
}
