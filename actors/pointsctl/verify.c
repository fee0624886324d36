/* actors/pointsctl/verify.c -- `verify`: are a model folder's token ids those of a worker?
 *
 * The probes that pointsman-metrics sends when a worker comes up, by hand: each one's verdict, and
 * where the ids part.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "actors/common/fetch.h"
#include "actors/common/prompt/probes.h"
#include "actors/pointsctl/decode.h"
#include "actors/pointsctl/prompts.h"
#include "actors/pointsctl/table.h"

#define CALL_NS     30000000000ull
#define ANSWER_MAX  (4u << 20)          /* bytes */
#define API_KEY_MAX 4096u               /* bytes */

struct session {
	struct fetcher *fetcher;        /* owned */
	struct fetch_peer peer;
	struct manifest_addr addr;
	struct bytes key;               /* owned */
	struct prompts ours;            /* owned */
	char served[MANIFEST_MODEL_MAX + 1], version[64];
	unsigned agree, differ, other;
};

/* ---- the worker ---- */

/* Waits for the answer.  False, and said: none came. */
static bool
call(struct session *s, struct fetch *f, const char *path, const char *body, size_t len)
{
	zmq_pollitem_t item = {.events = ZMQ_POLLIN};

	memset(f, 0, sizeof *f);
	if (fetch_to(f, &s->peer, path) < 0) {
		complain("out of memory");
		return false;
	}
	f->body = body;
	f->body_len = len;
	f->deadline_ns = clock_mono() + CALL_NS;
	f->answer_max = ANSWER_MAX;
	fetcher_send(s->fetcher, f);
	item.socket = zsock_resolve(fetcher_socket(s->fetcher));
	while (!fetcher_collect(s->fetcher))
		zmq_poll(&item, 1, -1);
	if (f->result == FETCH_OK)
		return true;
	complain("%s: %s", f->url, f->result == FETCH_LATE ? "no answer in time" :
		 f->result == FETCH_LARGE ? "an answer that is too large" :
		 f->why[0] ? f->why : "cannot be asked");
	return false;
}

static json_t *
answer_of(const struct fetch *f)
{
	return f->status == 200 && f->answer
		? json_loadb(f->answer, f->len, JSON_REJECT_DUPLICATES, NULL) : NULL;
}

/* Its only model's name, unless one was given. */
static bool
find_served(struct session *s, const char *given)
{
	const char *id = given;
	json_t *o = NULL, *data;
	struct fetch f = {0};
	bool found;

	if (!given) {
		if (!call(s, &f, "/v1/models", NULL, 0)) {
			fetch_clear(&f);
			return false;
		}
		o = answer_of(&f);
		data = json_object_get(o, "data");
		id = json_string_value(json_object_get(json_array_get(data, 0), "id"));
	}
	found = id && strlen(id) < sizeof s->served;
	if (found)
		strcpy(s->served, id);
	else
		complain("%s does not say which model it serves (status %u): --served-model NAME",
			 f.url[0] ? f.url : "--served-model", f.status);
	json_decref(o);
	fetch_clear(&f);
	return found;
}

static bool
find_version(struct session *s)
{
	struct fetch f = {0};
	const char *text;
	json_t *o;

	if (!call(s, &f, "/version", NULL, 0)) {
		fetch_clear(&f);
		return false;
	}
	o = answer_of(&f);
	text = json_string_value(json_object_get(o, "version"));
	snprintf(s->version, sizeof s->version, "%s", text ? text : "not told");
	json_decref(o);
	fetch_clear(&f);
	return true;
}

/* ---- one probe ---- */

static const char *
id_text(char buf[16], uint32_t id)
{
	if (id == UINT32_MAX)
		return "the end";
	snprintf(buf, 16, "%u", id);
	return buf;
}

static json_t *
id_json(uint32_t id)
{
	return id == UINT32_MAX ? json_null() : json_integer(id);
}

/* The error's own words, for who wonders why. */
static void
refusal_text(const struct fetch *f, char *buf, size_t cap)
{
	json_t *o = f->answer ? json_loadb(f->answer, f->len, 0, NULL) : NULL;
	json_t *error = json_object_get(o, "error");
	const char *text = json_string_value(json_object_get(json_is_object(error) ? error : o,
							     "message"));

	snprintf(buf, cap, "status %u%s%.120s", f->status, text ? ": " : "", text ? text : "");
	for (char *c = buf; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 127)
			*c = ' ';               /* a stranger's text, to a terminal */
	json_decref(o);
}

static json_t *
report(struct session *s, const struct options *o, const char *name, const char *why,
       const struct probes_compared *c)
{
	static const char *const words[] = {"agree", "DIFFER", "refused", "unknown"};
	char ours[16], theirs[16];

	s->agree += c->verdict == PROBES_AGREE;
	s->differ += c->verdict == PROBES_DIFFER;
	s->other += c->verdict > PROBES_DIFFER;
	if (o->json)
		return json_pack("{s:s, s:s, s:i, s:i, s:o, s:o, s:o, s:s}", "probe", name,
				 "verdict", c->verdict == PROBES_DIFFER ? "differ" :
				 words[c->verdict], "our_tokens", (int)c->n_ours, "their_tokens",
				 (int)c->n_theirs, "at", c->verdict == PROBES_DIFFER ?
				 json_integer(c->at) : json_null(), "ours", id_json(c->ours),
				 "theirs", id_json(c->theirs), "why", why);
	printf("%-8s %s: ", words[c->verdict], name);
	if (c->verdict == PROBES_AGREE && why[0])
		printf("both refuse it\n");
	else if (c->verdict == PROBES_AGREE)
		printf("%u tokens\n", c->n_ours);
	else if (c->verdict == PROBES_DIFFER && why[0])
		printf("the worker has %u tokens of what is refused here (%s)\n", c->n_theirs, why);
	else if (c->verdict == PROBES_DIFFER)
		printf("at token %u: ours %s, the worker's %s (of %u and %u)\n", c->at,
		       id_text(ours, c->ours), id_text(theirs, c->theirs), c->n_ours, c->n_theirs);
	else if (c->verdict == PROBES_REFUSED)
		printf("by the worker, %s\n", why);
	else
		printf("here: %s\n", why);
	return NULL;
}

/* What is made here, what the worker makes, and what that says.  False, and said: no answer. */
static bool
probe(struct session *s, const struct options *o, unsigned i, json_t *list)
{
	const struct probes_one *p = probes_at(i);
	struct probes_theirs theirs = {.refused = true};
	struct prompt_made ours;
	struct probes_compared c;
	struct fetch f = {0};
	char body[PROBES_BODY_MAX], refusal[160] = "";
	uint32_t *ids = NULL;
	const char *why = NULL;
	ssize_t len = probes_body(i, s->served, body, sizeof body);

	if (len < 0 || prompt_make(s->ours.maker, s->ours.m, NULL, p->route,
				   (struct slice){body, (size_t)len}, PROBES_IDS_MAX, &ours) < 0) {
		complain("out of memory");
		return false;
	}
	if (!call(s, &f, "/tokenize", body, (size_t)len)) {
		fetch_clear(&f);
		return false;
	}
	if (f.status == 200) {
		const struct slice answer = {f.answer, f.len};

		theirs.refused = false;
		ids = malloc(PROBES_IDS_MAX * sizeof *ids);
		if (!ids)
			why = "out of memory";
		else if (openai_answer_ids(answer, ids, PROBES_IDS_MAX, &theirs.n, &why) &&
			 theirs.n > PROBES_IDS_MAX)
			why = "more tokens than any probe has";
		theirs.ids = ids;
	} else {
		refusal_text(&f, refusal, sizeof refusal);
		if (!probes_refusal(f.status))
			why = refusal;
	}
	if (why)
		complain("%s: %s", f.url, why);
	if (!why) {
		json_t *line;

		probes_compare(&ours, &theirs, &c);
		line = report(s, o, p->name, ours.end == PROMPT_EXACT ? refusal : ours.why, &c);
		if (line)
			json_array_append_new(list, line);
	}
	free(ids);
	fetch_clear(&f);
	return !why;
}

/* ---- all ---- */

static bool
open_worker(struct session *s, const struct options *o)
{
	const char *why;

	why = manifest_url_parse(o->url, &s->addr, &s->peer.https);
	if (why) {
		complain("--url %s: %s", o->url, why);
		return false;
	}
	s->peer.host = s->addr.host;
	s->peer.port = s->addr.port;
	if (o->api_key_file) {
		int r = file_read(o->api_key_file, API_KEY_MAX, &s->key);

		if (r < 0) {
			complain("%s: %s", o->api_key_file, strerror(-r));
			return false;
		}
		while (s->key.n > 0 && strchr(" \t\r\n", (char)s->key.p[s->key.n - 1]))
			s->key.n--;
		s->peer.api_key = (struct slice){(const char *)s->key.p, s->key.n};
	}
	zsys_handler_set(NULL);         /* ^C ends it */
	if (fetcher_new(&s->fetcher, 0) < 0) {
		complain("out of memory");
		return false;
	}
	return find_served(s, o->served_model) && find_version(s);
}

static int
verify(struct session *s, const struct options *o)
{
	const char *foreign = model_foreign(s->ours.m);
	json_t *list = json_array(), *all;
	bool whole = true;

	if (foreign)
		complain("note: %s; its engine does not tokenize by these files, unless told to",
			 foreign);
	for (unsigned i = 0; i < probes_count() && whole; i++)
		whole = probe(s, o, i, list);
	all = json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:o}", "model", s->served,
			"engine_version", s->version, "probes", (int)probes_count(), "agree",
			(int)s->agree, "differ", (int)s->differ, "not_compared", (int)s->other,
			"results", list);
	if (o->json)
		print_json(all);
	else if (whole)
		printf("%s at %s, engine %s: %u of %u probes agree, %u differ, %u not compared\n",
		       s->served, o->url, s->version, s->agree, probes_count(), s->differ,
		       s->other);
	json_decref(all);
	return whole && s->agree == probes_count() ? 0 : 1;
}

int
command_verify(const struct options *o)
{
	struct session s = {0};
	int r;

	if (!o->model || !o->url) {
		complain("verify: %s is missing (pointsctl help)",
			 o->model ? "--url http://HOST:PORT of the worker" : "--model DIR");
		return EXIT_USAGE;
	}
	r = prompts_open(o, &s.ours);
	if (r == 0)
		r = open_worker(&s, o) ? verify(&s, o) : 1;
	fetcher_free(&s.fetcher, NULL);
	prompts_close(&s.ours);
	free(s.key.p);
	return r;
}
