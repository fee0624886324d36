/* actors/policy/tagging.c -- sources of tags, one after the other; see tagging.h. */
#include "actors/policy/tagging.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "actors/common/decide/expression.h"

struct kept {
	uint64_t request_id;            /* 0: nothing */
	struct tags_found found;
};

struct tagging {
	struct view *view;              /* borrowed, as is the next */
	struct process_segment *process;
	struct tags *tags;              /* owned, as are all below */
	struct tags_room *room;
	struct classify *classify;      /* NULL: no tag has a classifier */
	struct kept kept[TAGGING_KEPT];
	bool heads;                     /* some tag has a header */
};

int
tagging_new(struct tagging **ret, struct view *view, struct process_segment *process)
{
	const struct manifest *m = view->manifest;
	struct tagging *t = calloc(1, sizeof *t);
	bool classifiers = false;
	uint32_t which;
	char why[256];
	int r;

	if (!t)
		return -ENOMEM;
	t->view = view;
	t->process = process;
	for (uint32_t i = 0; i < m->n_tags; i++) {
		t->heads |= m->tags[i].header.name[0] != '\0';
		classifiers |= m->tags[i].classifier.label[0] != '\0';
	}
	r = tags_new(&t->tags, m->tags, m->n_tags, &which, why, sizeof why);
	if (r == 0)
		r = tags_room_new(&t->room, t->tags);
	if (r == 0 && classifiers)
		r = classify_new(&t->classify);
	if (r < 0) {
		tagging_free(&t);
		return r;
	}
	*ret = t;
	return 0;
}

void
tagging_free(struct tagging **ret)
{
	struct tagging *t = *ret;

	if (!t)
		return;
	classify_free(&t->classify);
	tags_room_free(&t->room);
	tags_free(&t->tags);
	free(t);
	*ret = NULL;
}

const struct tags *
tagging_tags(const struct tagging *t)
{
	return t->tags;
}

bool
tagging_reads_head(const struct tagging *t)
{
	return t->heads;
}

bool
tagging_reads_texts(const struct tagging *t)
{
	return tags_by_text(t->tags) != 0;
}

zsock_t *
tagging_socket(struct tagging *t)
{
	return t->classify ? classify_socket(t->classify) : NULL;
}

/* ---- texts ---- */

static struct tags_found
of_texts(struct tagging *t, const struct tagging_question *q)
{
	struct kept *kept = &t->kept[q->request_id % TAGGING_KEPT];
	struct tags_found found = {0};

	if (q->form) {
		found.unknown = tags_by_text(t->tags);
		found.hidden = UINT32_MAX;
		return found;
	}
	if (!q->body.p)
		return found;
	if (q->read)
		return *q->read;
	if (q->request_id != 0 && kept->request_id == q->request_id)
		return kept->found;
	if (q->too_large) {
		found.unknown = tags_by_text(t->tags);
		return found;
	}
	tags_of_body(t->room, q->body, &found);
	*kept = (struct kept){q->request_id, found};
	return found;
}

/* ---- a header ---- */

static struct slice
trimmed(struct slice s)
{
	while (s.len > 0 && (*s.p == ' ' || *s.p == '\t'))
		s = (struct slice){s.p + 1, s.len - 1};
	while (s.len > 0 && (s.p[s.len - 1] == ' ' || s.p[s.len - 1] == '\t'))
		s.len--;
	return s;
}

static bool
lists(struct slice list, const char *value)
{
	while (list.len > 0) {
		const char *comma = memchr(list.p, ',', list.len);
		size_t n = comma ? (size_t)(comma - list.p) : list.len;

		if (slice_eq_str(trimmed((struct slice){list.p, n}), value))
			return true;
		list = (struct slice){list.p + n + (comma != NULL), list.len - n - (comma != NULL)};
	}
	return false;
}

/* Several fields of a name are one list. */
static bool
said(const struct http1_head *head, const struct manifest_tag_header *by)
{
	for (unsigned i = 0; i < head->n_headers; i++)
		if (http1_name_eq(head->headers[i].name, by->name) &&
		    (!by->value[0] || lists(head->headers[i].value, by->value)))
			return true;
	return false;
}

/* ---- a classifier ---- */

/* A worker of that pool that is up; the same for the same content. */
static const struct manifest_member *
classifier_of(const struct tagging *t, uint32_t pool, uint64_t content)
{
	const struct manifest *m = t->view->manifest;
	const struct manifest_member *found = NULL;
	uint64_t best = 0;

	for (uint32_t i = 0; i < m->pools[pool].n_sets; i++) {
		const struct manifest_set *set = &m->sets[m->pools[pool].sets[i]];

		for (uint32_t k = 0; k < set->n_members; k++) {
			uint32_t member = set->first_member + k;
			uint64_t weight = (content ^ member) * 0x9e3779b97f4a7c15ull;
			uint16_t row = t->view->row_of[member];
			struct row_reading reading;

			if (row == ROW_NONE)
				continue;
			row_reading_read(&t->view->rows.row[row], &reading);
			if (row_state(&t->view->rows.row[row], &reading) == ROW_UP &&
			    weight >= best) {
				best = weight;
				found = &m->members[member];
			}
		}
	}
	return found;
}

/* Where a URL's classifier is, and the path there; false: the URL is none. */
static bool
place_of(const char *url, struct manifest_addr *addr, struct fetch_peer *ret, const char **ret_path)
{
	char base[MANIFEST_VALUE_MAX + 1];
	const char *host = strstr(url, "://");
	const char *path = host ? strchr(host + 3, '/') : NULL;
	size_t n = path ? (size_t)(path - url) : strlen(url);
	bool https;

	memcpy(base, url, n);
	base[n] = '\0';
	if (manifest_url_parse(base, addr, &https))
		return false;
	*ret = (struct fetch_peer){.host = addr->host, .port = addr->port, .https = https};
	*ret_path = path ? path : "/";
	return true;
}

static enum classify_says
ask(struct tagging *t, const struct tagging_question *q, const struct manifest_classifier *about,
    struct slice texts, struct token_key *ret_key)
{
	const struct manifest_member *member = NULL;
	struct fetch_peer peer;
	struct manifest_addr addr;
	const char *path = "/classify", *model = NULL;
	enum classify_says says;

	if (about->pool != MANIFEST_NONE) {
		member = classifier_of(t, about->pool, XXH3_64bits(texts.p, texts.len));
		if (!member)
			return CLASSIFY_UNKNOWN;
		model = t->view->manifest->sets[member->set].model;
		peer = fetch_peer(t->view->manifest, member, t->view->trust);
	} else if (!place_of(about->url, &addr, &peer, &path)) {
		return CLASSIFY_UNKNOWN;
	}
	says = classify_find(t->classify, about, model, texts, q->now, ret_key);
	if (says != CLASSIFY_WAIT) {
		count_add(t->process, COUNTER_classify_hits, says != CLASSIFY_UNKNOWN);
		return says;
	}
	if (q->last)
		return CLASSIFY_UNKNOWN;
	if (classify_pending(t->classify, *ret_key))
		return CLASSIFY_WAIT;
	if (classify_ask(t->classify, about, &peer, path, model, texts, *ret_key, q->now) < 0)
		return CLASSIFY_UNKNOWN;
	count_add(t->process, COUNTER_classify_calls, 1);
	return CLASSIFY_WAIT;
}

/* All are asked before one is waited for.  False: wait under *ret_key. */
static bool
of_classifiers(struct tagging *t, const struct tagging_question *q, unsigned hidden, uint64_t *tags,
	       uint64_t *unknown, struct token_key *ret_key)
{
	const struct manifest *m = t->view->manifest;
	struct slice texts = {NULL, 0};
	bool made = false, waits = false;

	for (uint32_t i = 0; i < m->n_tags; i++) {
		enum classify_says says = CLASSIFY_UNKNOWN;
		uint64_t bit = 1ull << i;
		struct token_key key;

		if (!m->tags[i].classifier.label[0] || *tags & bit || (!q->body.p && !q->form))
			continue;
		if (!made && !q->form && !q->too_large)
			texts = classify_texts(t->classify, q->body);
		made = true;
		if (texts.p)
			says = ask(t, q, &m->tags[i].classifier, texts, &key);
		if (says == CLASSIFY_WAIT) {
			*ret_key = key;
			waits = true;
		} else if (says == CLASSIFY_YES) {
			*tags |= bit;
		} else if (says == CLASSIFY_UNKNOWN || hidden) {
			*unknown |= bit;
		}
	}
	return !waits;
}

bool
tagging_collect(struct tagging *t, mono_ns now, struct token_key *ret_key)
{
	const char *why;

	if (!classify_collect(t->classify, now, ret_key, &why))
		return false;
	count_add(t->process, COUNTER_classify_failures, why != NULL);
	return true;
}

/* ---- together ---- */

bool
tagging_find(struct tagging *t, const struct tagging_question *q, uint64_t *ret_tags,
	     uint64_t *ret_unknown, struct token_key *ret_key)
{
	const struct manifest *m = t->view->manifest;
	const struct facts facts = {.request = q->request};
	struct tags_found found = {0};

	if (tagging_reads_texts(t) || t->classify)
		found = of_texts(t, q);
	for (uint32_t i = 0; i < m->n_tags; i++) {
		const struct manifest_tag *tag = &m->tags[i];
		uint64_t bit = 1ull << i;
		enum expression_truth when = EXPRESSION_NO;

		if (tag->header.name[0] && q->believed && !q->head)
			found.unknown |= bit;
		else if (tag->header.name[0] && q->believed && said(q->head, &tag->header))
			found.tags |= bit;
		if (tag->when.program)
			when = expression_test(tag->when.program, &facts);
		found.tags |= when == EXPRESSION_YES ? bit : 0;
		found.unknown |= when == EXPRESSION_UNKNOWN ? bit : 0;
	}
	if (t->classify &&
	    !of_classifiers(t, q, found.hidden, &found.tags, &found.unknown, ret_key))
		return false;
	*ret_tags = found.tags;
	*ret_unknown = found.unknown & ~found.tags;
	count_add(t->process, COUNTER_tags_unknown, *ret_unknown != 0);
	return true;
}
