/* actors/metrics/health.c -- see health.h. */
#include "actors/metrics/health.h"

static enum row_why
broken_why(enum fetch_cause cause)
{
	switch (cause) {
	case FETCH_REFUSED:
		return WHY_REFUSED;
	case FETCH_NO_ADDRESS:
		return WHY_NO_ADDRESS;
	case FETCH_TLS:
		return WHY_TLS;
	case FETCH_CUT:
		return WHY_CUT;
	case FETCH_ENCODING:
		return WHY_ENCODING;
	case FETCH_NO_HTTP:
		return WHY_NO_HTTP;
	default:
		return WHY_UNREACHABLE;
	}
}

enum row_why
probe_why(const struct probe *probe)
{
	switch (probe->result) {
	case PROBE_OK:
		return WHY_OK;
	case PROBE_SLOW:
		return WHY_SLOW;
	case PROBE_LARGE:
		return WHY_TOO_LARGE;
	case PROBE_STATUS:
		return probe->fetch.status == 404   ? WHY_NO_PAGE
		       : probe->fetch.status == 503 ? WHY_UNAVAILABLE
						   : WHY_STATUS;
	default:
		return broken_why(probe->fetch.result == FETCH_BROKEN ? probe->fetch.cause
								     : FETCH_OTHER);
	}
}

/* Does it end, as far as its connections tell? */
static bool
closing(struct health *h, bool closes)
{
	if (!closes) {
		h->kept = true;
		h->closing = 0;
	} else if (h->kept && ++h->closing > HEALTH_CLOSING_MOST) {
		h->kept = false;
		h->closing = 0;
	}
	return h->closing > 0;
}

void
health_note(struct health *h, const struct health_said *said)
{
	bool ok = said->why == WHY_OK;
	bool answers = ok || (said->why == WHY_SLOW && said->page);
	bool closes = ok && closing(h, said->closes);

	if (answers)
		h->misses = h->slow = 0;
	else if (said->why == WHY_SLOW)
		h->slow++;
	else
		h->misses++;
	if (said->asleep || said->paused || h->misses >= HEALTH_MISSES_DOWN ||
	    h->slow >= HEALTH_SLOW_DOWN)
		h->state = HEALTH_DOWN;
	else
		h->state = answers && !closes ? HEALTH_UP : HEALTH_SUSPECT;
	h->why = !answers	? said->why
		 : said->asleep ? WHY_ASLEEP
		 : said->paused ? WHY_PAUSED
		 : closes	? WHY_CLOSING
				: WHY_OK;
}
