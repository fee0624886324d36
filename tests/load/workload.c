/* tests/load/workload.c -- see workload.h. */
#include "tests/load/workload.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct text {
	char *p;
	size_t len, cap;
};

/* A conversation between turns is in the queue of those that wait. */
struct conversation {
	unsigned number, turn;
	struct text history; /* messages, or ids, of the turns so far */
	struct conversation *next;
};

struct workload {
	struct workload_config cfg;
	struct text *prefix;  /* one each, made when first used */
	double *zipf;         /* cumulative share */
	uint64_t rng, seq;
	unsigned conversations;
	struct conversation *ready, *ready_tail;
};

static void *
must(void *p)
{
	if (p == NULL) {
		fputs("workload: out of memory\n", stderr);
		abort();
	}
	return p;
}

static void
text_room(struct text *text, size_t more)
{
	if (text->len + more <= text->cap)
		return;
	text->cap = (text->len + more) * 2;
	text->p = must(realloc(text->p, text->cap));
}

static void
text_add(struct text *text, const char *p, size_t len)
{
	if (len == 0)
		return;
	text_room(text, len);
	memcpy(text->p + text->len, p, len);
	text->len += len;
}

static void __attribute__((format(printf, 2, 3)))
text_printf(struct text *text, const char *format, ...)
{
	va_list ap;
	int n;

	text_room(text, 512); /* all our formats are short */
	va_start(ap, format);
	n = vsnprintf(text->p + text->len, 512, format, ap);
	va_end(ap);
	text->len += (size_t)(n < 512 ? n : 511);
}

static uint64_t
mix(uint64_t z)
{
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

static double
unit(struct workload *w)
{
	w->rng += 0x9e3779b97f4a7c15u;
	return (double)(mix(w->rng) >> 11) * 0x1p-53;
}

/* n tokens of stream `seed`, as words or as comma-separated ids. */
static void
add_tokens(struct text *text, bool ids, uint64_t seed, unsigned n)
{
	uint64_t state = mix(seed);

	text_room(text, (size_t)n * 8 + 8);
	for (unsigned i = 0; i < n; i++) {
		uint64_t z = mix(state += 0x9e3779b97f4a7c15u);
		char *p = text->p + text->len;

		if (ids) {
			unsigned id = 1000 + (unsigned)(z % 149000), digits = id < 10000    ? 4
									      : id < 100000 ? 5
											    : 6;

			if (i > 0)
				*p++ = ',';
			for (unsigned k = digits; k > 0; k--, id /= 10)
				p[k - 1] = (char)('0' + id % 10);
			text->len = (size_t)(p - text->p) + digits;
		} else {
			p[0] = ' ';
			p[1] = (char)('a' + z % 26);
			p[2] = (char)('a' + z / 26 % 26);
			p[3] = (char)('a' + z / 676 % 26);
			text->len += 4;
		}
	}
}

static const struct text *
prefix(struct workload *w, unsigned i)
{
	if (w->prefix[i].p == NULL)
		add_tokens(&w->prefix[i], w->cfg.ids, mix(w->cfg.content_seed) + i,
			   w->cfg.prefix_tokens);
	return &w->prefix[i];
}

static unsigned
choose_prefix(struct workload *w)
{
	double u = unit(w);
	unsigned i = 0;

	while (i + 1 < w->cfg.prefixes && u >= w->zipf[i])
		i++;
	return i;
}

static uint64_t
unique(const struct workload *w, uint64_t a, uint64_t b)
{
	return mix(mix(w->cfg.unique_seed) ^ mix(a * 0x9e3779b97f4a7c15u + b));
}

static void
open_body(const struct workload *w, const struct ask *ask, struct text *body)
{
	text_printf(body, "{\"model\":\"%.200s\",\"user\":\"%s\",", w->cfg.model, ask->id);
	if (w->cfg.stream)
		text_printf(body, "\"stream\":true,\"stream_options\":{\"include_usage\":true%s},",
			    w->cfg.each_usage ? ",\"continuous_usage_stats\":true" : "");
	text_printf(body, "\"%s\":%u,\"ignore_eos\":true,\"stop\":null,%s",
		    w->cfg.ids ? "max_tokens" : "max_completion_tokens", w->cfg.output_tokens,
		    w->cfg.ids ? "\"prompt\":[" : "\"messages\":[");
}

static void
close_body(struct ask *ask, struct text *body)
{
	text_add(body, "]}", 2);
	ask->body = body->p;
	ask->len_bytes = body->len;
}

static void
add_message(struct text *text, const char *role)
{
	text_printf(text, "%s{\"role\":\"%s\",\"content\":\"",
		    text->len > 0 && text->p[text->len - 1] == '}' ? "," : "", role);
}

static void
end_message(struct text *text)
{
	text_add(text, "\"}", 2);
}

static void
ask_control(struct workload *w, struct ask *ask, struct text *body)
{
	if (!w->cfg.ids)
		add_message(body, "user");
	add_tokens(body, w->cfg.ids, unique(w, ask->seq, 0), w->cfg.prompt_tokens);
	if (!w->cfg.ids)
		end_message(body);
}

static void
ask_shared(struct workload *w, struct ask *ask, struct text *body)
{
	const struct text *shared;

	ask->prefix_id = (int)choose_prefix(w);
	shared = prefix(w, (unsigned)ask->prefix_id);
	if (!w->cfg.ids)
		add_message(body, "system");
	text_add(body, shared->p, shared->len);
	if (!w->cfg.ids) {
		end_message(body);
		add_message(body, "user");
	} else if (shared->len > 0 && w->cfg.suffix_tokens > 0) {
		text_add(body, ",", 1);
	}
	add_tokens(body, w->cfg.ids, unique(w, ask->seq, 0), w->cfg.suffix_tokens);
	if (!w->cfg.ids)
		end_message(body);
}

static void
ask_turn(struct workload *w, struct ask *ask, struct text *body)
{
	struct conversation *c = w->ready;
	struct text *history;

	if (c != NULL) {
		w->ready = c->next;
		if (w->ready == NULL)
			w->ready_tail = NULL;
		c->next = NULL;
	} else {
		c = must(calloc(1, sizeof *c));
		c->number = w->conversations++;
	}
	history = &c->history;
	if (!w->cfg.ids)
		add_message(history, "user");
	else if (history->len > 0)
		text_add(history, ",", 1);
	add_tokens(history, w->cfg.ids, unique(w, c->number, c->turn + 1),
		   c->turn == 0 ? w->cfg.first_tokens : w->cfg.next_tokens);
	if (!w->cfg.ids)
		end_message(history);
	text_add(body, history->p, history->len);
	ask->c = c;
	ask->conv = c->number;
	ask->turn = c->turn;
	ask->want_answer = !w->cfg.ids;
}

struct ask *
workload_next(struct workload *w)
{
	struct ask *ask = must(calloc(1, sizeof *ask));
	struct text body = {0};

	ask->seq = w->seq++;
	snprintf(ask->id, sizeof ask->id, "%.40s-%llu", w->cfg.id_prefix,
		 (unsigned long long)ask->seq);
	ask->prefix_id = -1;
	ask->path = w->cfg.ids ? "/v1/completions" : "/v1/chat/completions";
	open_body(w, ask, &body);
	switch (w->cfg.kind) {
	case WORKLOAD_CONTROL:
		ask_control(w, ask, &body);
		break;
	case WORKLOAD_SHARED:
		ask_shared(w, ask, &body);
		break;
	case WORKLOAD_MULTITURN:
		ask_turn(w, ask, &body);
		break;
	}
	close_body(ask, &body);
	return ask;
}

void
workload_body_sent(struct ask *ask)
{
	free(ask->body);
	ask->body = NULL;
}

static void
conversation_free(struct conversation *c)
{
	free(c->history.p);
	free(c);
}

void
workload_done(struct workload *w, struct ask **askp, bool ok, const char *answer, size_t len_bytes)
{
	struct ask *ask = *askp;
	struct conversation *c = ask->c;

	*askp = NULL;
	if (c != NULL && (!ok || ++c->turn >= w->cfg.turns)) {
		conversation_free(c);
	} else if (c != NULL) {
		if (w->cfg.ids) {
			text_add(&c->history, ",", 1);
			add_tokens(&c->history, true, unique(w, c->number, 1000 + c->turn),
				   w->cfg.output_tokens / (w->cfg.history_real ? 1 : 2));
		} else {
			size_t keep = w->cfg.history_real ? len_bytes : len_bytes / 2;

			while (keep > 0 && keep < len_bytes && answer[keep - 1] == '\\')
				keep--; /* not in the middle of an escape */
			add_message(&c->history, "assistant");
			text_add(&c->history, answer, keep);
			end_message(&c->history);
		}
		if (w->ready_tail != NULL)
			w->ready_tail->next = c;
		else
			w->ready = c;
		w->ready_tail = c;
	}
	free(ask->body);
	free(ask);
}

struct workload *
workload_new(const struct workload_config *cfg)
{
	struct workload *w = must(calloc(1, sizeof *w));
	double sum = 0, so_far = 0;

	w->cfg = *cfg;
	w->rng = mix(cfg->arrival_seed + 77);
	w->prefix = must(calloc(cfg->prefixes + 1, sizeof *w->prefix));
	w->zipf = must(calloc(cfg->prefixes + 1, sizeof *w->zipf));
	for (unsigned i = 0; i < cfg->prefixes; i++)
		sum += pow(i + 1, -cfg->zipf);
	for (unsigned i = 0; i < cfg->prefixes; i++) {
		so_far += pow(i + 1, -cfg->zipf);
		w->zipf[i] = so_far / sum;
	}
	return w;
}

void
workload_free(struct workload **wp)
{
	struct workload *w = *wp;

	*wp = NULL;
	if (w == NULL)
		return;
	for (unsigned i = 0; i < w->cfg.prefixes; i++)
		free(w->prefix[i].p);
	while (w->ready != NULL) {
		struct conversation *c = w->ready;

		w->ready = c->next;
		conversation_free(c);
	}
	free(w->prefix);
	free(w->zipf);
	free(w);
}
