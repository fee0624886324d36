/* actors/metrics/verifier.c -- see verifier.h. */
#include "actors/metrics/verifier.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "actors/common/decide/member.h"
#include "actors/common/log.h"
#include "proto/messages.h"

#define LOOK_NS 100000000ull            /* for workers that began anew */
#define DISPROVEN_DOUBLINGS 6u          /* of the wait after answers disproved a clean run */
#define PROBE_STEPS 200000u             /* of a template, some 10 ms */
#define PROBE_BYTES (16u << 20)
#define NOBODY UINT32_MAX

struct held {                           /* a segment that came */
	uint32_t generation, set;
	struct models_blob blob;        /* owned */
};

struct opened {                         /* while somebody is asked */
	uint64_t key[2];
	struct models_blob blob;        /* owned: a mapping of its own */
	struct model *model;            /* owned */
	unsigned users;
};

struct subject {                        /* one member, of all its ranks */
	uint64_t serial;
	uint32_t set, since_generation; /* of its key */
	struct fetch_peer peer;         /* borrowed from the manifest and its trust */
	char member[MANIFEST_NAME_MAX + 1], model[MANIFEST_MODEL_MAX + 1];
	bool may_ask;                   /* spec.tokenize */
	bool mixed;                     /* another set of a model of its has other files */
	uint64_t blob_key[2], key;
	uint16_t *row;                  /* owned */
	unsigned n_rows;
	uint32_t row_gen;               /* of row[0], that trust is of */
	struct row_trust trust;
	struct proof_run run;
	struct opened *opened;          /* while a run is under way; borrowed */
	bool sent, told_version;
	unsigned disproven;             /* times that an answer belied a clean run, in this life */
	mono_ns due_ns;                 /* the next run, or its next probe */
};

struct verifier {
	struct rows *rows;              /* borrowed */
	struct process_segment *process;/* borrowed */
	const struct manifest *manifest;/* borrowed, as the next; NULL: none yet */
	const struct secrets *trust;
	uint32_t generation;
	wall_ns born;
	struct held *held;              /* owned */
	unsigned n_held;
	struct opened *opened[VERIFIER_AT_ONCE];        /* owned */
	struct prompt_maker *maker;     /* owned; NULL while nobody is asked */
	struct subject *subject;        /* owned */
	unsigned n;
	uint32_t *subject_of;           /* owned; by row; NOBODY */
	uint64_t next_serial;
};

int
verifier_new(struct verifier **ret, struct rows *rows, struct process_segment *process)
{
	struct verifier *v = calloc(1, sizeof *v);

	if (!v)
		return -ENOMEM;
	v->rows = rows;
	v->process = process;
	v->born = clock_wall();
	v->subject_of = calloc(rows->capacity ? rows->capacity : 1, sizeof *v->subject_of);
	if (!v->subject_of) {
		free(v);
		return -ENOMEM;
	}
	memset(v->subject_of, 0xff, rows->capacity * sizeof *v->subject_of);
	*ret = v;
	return 0;
}

/* ---- models ---- */

static void
opened_free(struct opened **ret)
{
	struct opened *o = *ret;

	if (!o)
		return;
	model_close(&o->model);
	models_detach(&o->blob);
	free(o);
	*ret = NULL;
}

/* Models that nobody uses are closed, and with the last one the maker: megabytes, for some seconds
 * of work. */
static void
close_unused(struct verifier *v)
{
	bool any = false;

	for (unsigned i = 0; i < VERIFIER_AT_ONCE; i++) {
		if (v->opened[i] && v->opened[i]->users == 0)
			opened_free(&v->opened[i]);
		any |= v->opened[i] != NULL;
	}
	if (!any)
		prompt_maker_free(&v->maker);
}

static void
release(struct verifier *v, struct subject *s)
{
	if (!s->opened)
		return;
	s->opened->users--;
	s->opened = NULL;
	close_unused(v);
}

static const struct held *
held_by_key(const struct verifier *v, const uint64_t key[2])
{
	for (unsigned i = 0; i < v->n_held; i++)
		if (memcmp(v->held[i].blob.key, key, sizeof v->held[i].blob.key) == 0 &&
		    v->held[i].blob.bytes)
			return &v->held[i];
	return NULL;
}

static struct opened *
model_of(struct verifier *v, const struct subject *s)
{
	char why[MODEL_WHY_BYTES] = "memory";
	const struct held *held;
	struct opened *o, **room = NULL;
	int fd;

	for (unsigned i = 0; i < VERIFIER_AT_ONCE; i++) {
		if (!v->opened[i])
			room = &v->opened[i];
		else if (memcmp(v->opened[i]->key, s->blob_key, sizeof s->blob_key) == 0)
			return v->opened[i];
	}
	held = held_by_key(v, s->blob_key);
	if (!room || !held || (!v->maker && prompt_maker_new(&v->maker) < 0))
		return NULL;
	o = calloc(1, sizeof *o);
	fd = o ? fcntl(held->blob.seg.fd, F_DUPFD_CLOEXEC, 3) : -1;
	if (fd < 0) {
		free(o);
		return NULL;
	}
	memcpy(o->key, s->blob_key, sizeof o->key);
	o->blob.seg.fd = -1;
	if (models_attach(&o->blob, fd) < 0 ||
	    model_open(o->blob.bytes, o->blob.len, &o->model, why, sizeof why) < 0) {
		log_warn("model of %s: %s; its tokens are not verified", s->model, why);
		opened_free(&o);
		return NULL;
	}
	/* in the loop: what works longer than any probe should is not known here */
	prompt_maker_bounds(v->maker, PROBE_STEPS, PROBE_BYTES);
	*room = o;
	return o;
}

/* ---- what is published ---- */

/* Of these files: until it is looked at, what is known may be of those before. */
static uint32_t
state_of(const struct subject *s)
{
	return row_trust_key(&s->trust) == s->key ? s->trust.state : TRUST_UNVERIFIED;
}

static void
tally(struct verifier *v, uint64_t key, const char *name)
{
	enum trust_state was = trust_model(v->rows, key), is;
	unsigned n[3] = {0};

	for (unsigned i = 0; i < v->n; i++)
		if (v->subject[i].key == key)
			n[state_of(&v->subject[i])]++;
	trust_model_write(v->rows, key, name, n[TRUST_EXACT], n[TRUST_UNVERIFIED],
			  n[TRUST_MISMATCH], clock_mono());
	is = trust_model(v->rows, key);
	if (is == TRUST_MISMATCH && was != is)
		log_warn("tokens of model %s: %s -> mismatch; its prompts go by /tokenize", name,
			 trust_state_name(was));
	else if (was == TRUST_MISMATCH && was != is)
		log_info("tokens of model %s: mismatch -> %s; they are made here again", name,
			 trust_state_name(is));
}

/* Models that no worker has any more count none. */
static void
tally_all(struct verifier *v)
{
	for (unsigned i = 0; i < TRUST_MODELS; i++) {
		uint64_t key = atomic_load_explicit(&v->rows->models[i].key, memory_order_relaxed);
		char name[ROW_URL_MAX];

		if (key != 0 && trust_model_name(&v->rows->models[i], name))
			tally(v, key, name);
	}
	for (unsigned i = 0; i < v->n; i++)
		tally(v, v->subject[i].key, v->subject[i].model);
}

static void
publish(struct verifier *v, const struct subject *s)
{
	for (unsigned i = 0; i < s->n_rows; i++)
		row_trust_write(v->rows, s->row[i],
				atomic_load_explicit(&v->rows->row[s->row[i]].row_gen,
						     memory_order_acquire), &s->trust);
}

/* "exact -> mismatch"; only the state where no more than the reason is another. */
static const char *
turn(uint32_t was, uint32_t is, char buf[static 48])
{
	if (was == is)
		return trust_state_name(is);
	snprintf(buf, 48, "%s -> %s", trust_state_name(was), trust_state_name(is));
	return buf;
}

static void
tell(const struct verifier *v, const struct subject *s, uint32_t was)
{
	const struct row_trust *t = &s->trust;
	const char *set = v->manifest->sets[s->set].name;
	char buf[48];
	const char *state = turn(was, t->state, buf);

	if (t->state == TRUST_EXACT)
		log_info("tokens of %s/%s: %s; %u probes of %u agree, engine %s", set, s->member,
			 state, t->agreed, t->probes, t->version[0] ? t->version : "?");
	else if (t->why == TRUST_PROBES_DIFFER)
		log_warn("tokens of %s/%s: %s; probe \"%s\" differs at %u: ours %d, the engine's "
			 "%d", set, s->member, state, probes_at(t->probe)->name, t->at,
			 (int)t->ours, (int)t->theirs);
	else if (t->why == TRUST_USAGE_DIFFERS)
		log_warn("tokens of %s/%s: %s; a prompt of %u tokens is one of %u to the engine",
			 set, s->member, state, t->usage_ours, t->usage_theirs);
	else
		log_info("tokens of %s/%s: %s; %s", set, s->member, state, trust_why_text(t->why));
}

static void
changed(struct verifier *v, const struct subject *s, const struct row_trust *was)
{
	publish(v, s);
	if (was->state == s->trust.state && was->why == s->trust.why)
		return;
	tally(v, s->key, s->model);
	tell(v, s, was->state);
}

/* ---- the set ---- */

static void
subject_free(struct verifier *v, struct subject *s)
{
	release(v, s);
	free(s->row);
}

void
verifier_free(struct verifier **ret)
{
	struct verifier *v = *ret;

	if (!v)
		return;
	for (unsigned i = 0; i < v->n; i++)
		subject_free(v, &v->subject[i]);
	for (unsigned i = 0; i < v->n_held; i++)
		models_detach(&v->held[i].blob);
	prompt_maker_free(&v->maker);
	free(v->held);
	free(v->subject);
	free(v->subject_of);
	free(v);
	*ret = NULL;
}

static const struct held *
held_of(const struct verifier *v, uint32_t set)
{
	for (unsigned i = 0; i < v->n_held; i++)
		if (v->held[i].generation == v->generation && v->held[i].set == set)
			return &v->held[i];
	return NULL;
}

/* Does a model that this set serves have another set with other files?  Then its ids are made by
 * one of the two, and nothing here says by which. */
static bool
is_mixed(const struct verifier *v, const struct manifest *manifest, uint32_t set)
{
	const struct held *own = held_of(v, set);

	for (uint32_t i = 0; i < manifest->n_models; i++) {
		const struct manifest_model *model = &manifest->models[i];
		bool ours = false, others = false;

		for (uint32_t k = 0; k < model->n_members; k++) {
			uint32_t of = manifest->members[model->members[k]].set;
			const struct held *held = of == set ? own : held_of(v, of);

			ours |= of == set;
			others |= held && held->blob.bytes &&
				  memcmp(held->blob.key, own->blob.key, sizeof own->blob.key) != 0;
		}
		if (ours && others)
			return true;
	}
	return false;
}

static struct subject *
subject_like(struct subject *list, unsigned n, const struct subject *s)
{
	for (unsigned i = 0; i < n; i++)
		if (list[i].set == s->set && strcmp(list[i].member, s->member) == 0)
			return &list[i];
	return NULL;
}

/* The same worker, asked about the same model: what is under way goes on. */
static void
go_on(struct verifier *v, struct subject *s)
{
	for (unsigned i = 0; i < v->n; i++) {
		struct subject *old = &v->subject[i];

		if (old->n_rows == 0 || old->row[0] != s->row[0] || old->key != s->key)
			continue;
		s->serial = old->serial;
		s->since_generation = old->since_generation;
		s->row_gen = old->row_gen;
		s->trust = old->trust;
		s->run = old->run;
		s->opened = old->opened;
		s->sent = old->sent;
		s->told_version = old->told_version;
		s->disproven = old->disproven;
		s->due_ns = old->due_ns;
		old->opened = NULL;             /* the user is the new one */
		return;
	}
	s->serial = ++v->next_serial;
	s->since_generation = v->generation;
	row_trust_read(v->rows, s->row[0], &s->trust);
	s->row_gen = atomic_load_explicit(&v->rows->row[s->row[0]].row_gen, memory_order_acquire);
	/* our predecessor asked it, and it is in the same life: proof_begin tells */
	if (row_trust_key(&s->trust) == s->key && s->trust.why == TRUST_PROBES_AGREE)
		s->due_ns = PROOF_NEVER;
}

static bool
add_row(struct subject *s, uint16_t row)
{
	uint16_t *grown = realloc(s->row, (s->n_rows + 1) * sizeof *grown);

	if (!grown)
		return false;
	s->row = grown;
	s->row[s->n_rows++] = row;
	return true;
}

static int
add_member(const struct verifier *v, const struct manifest *manifest,
	   const struct manifest_member *member, const struct secrets *trust,
	   struct subject *list, unsigned *n)
{
	const struct manifest_set *set = member_set(manifest, member);
	const struct held *held = set ? held_of(v, member->set) : NULL;
	uint16_t row = rows_find(v->rows, member->uid);
	struct subject *s = &list[*n], *same;

	if (row == ROW_NONE || !held || !held->blob.bytes)
		return 0;
	*s = (struct subject){.set = member->set, .may_ask = set->tokenize,
			      .peer = fetch_peer(manifest, member, trust)};
	memcpy(s->member, member->name, sizeof s->member);
	memcpy(s->model, set->model, sizeof s->model);
	memcpy(s->blob_key, held->blob.key, sizeof s->blob_key);
	s->key = trust_key(set->model, held->blob.key, sizeof held->blob.key);
	s->mixed = is_mixed(v, manifest, member->set);
	same = subject_like(list, *n, s);
	if (!same) {
		same = s;
		(*n)++;
	}
	return add_row(same, row) ? 0 : -ENOMEM;
}

static void
held_drop(struct verifier *v)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < v->n_held; i++) {
		if (v->held[i].generation >= v->generation)
			v->held[kept++] = v->held[i];
		else
			models_detach(&v->held[i].blob);
	}
	v->n_held = kept;
}

/* Of whom nothing is made here any more, nothing is proven.  A model that is still to come leaves
 * things as they are. */
static void
forget_others(const struct verifier *v)
{
	for (uint32_t m = 0; m < v->manifest->n_members; m++) {
		const struct manifest_member *member = &v->manifest->members[m];
		const struct manifest_set *set = member_set(v->manifest, member);
		bool wanted = set && set->tokenizer.path[0] != 0;
		uint16_t row = rows_find(v->rows, member->uid);
		struct row_trust none = {0}, was;

		if (row == ROW_NONE || v->subject_of[row] != NOBODY ||
		    (wanted && !held_of(v, member->set)))
			continue;
		row_trust_read(v->rows, row, &was);
		if (wanted)
			proof_is(&none, TRUST_UNVERIFIED, TRUST_NO_MODEL, clock_mono());
		if (row_trust_key(&was) == 0 && was.why == none.why)
			continue;
		row_trust_write(v->rows, row,
				atomic_load_explicit(&v->rows->row[row].row_gen,
						     memory_order_acquire), &none);
	}
}

int
verifier_set(struct verifier *v, const struct manifest *manifest, uint32_t generation,
	     const struct secrets *trust)
{
	struct subject *fresh = calloc(manifest->n_members ? manifest->n_members : 1,
				       sizeof *fresh);
	uint32_t was = v->generation;
	unsigned n = 0;
	int r = fresh ? 0 : -ENOMEM;

	v->generation = generation;
	for (uint32_t m = 0; m < manifest->n_members && r == 0; m++)
		r = add_member(v, manifest, &manifest->members[m], trust, fresh, &n);
	if (r < 0) {
		for (unsigned i = 0; fresh && i < n; i++)
			free(fresh[i].row);
		free(fresh);
		v->generation = was;
		return r;
	}
	v->manifest = manifest;
	v->trust = trust;
	for (unsigned i = 0; i < n; i++)
		go_on(v, &fresh[i]);
	for (unsigned i = 0; i < v->n; i++)
		subject_free(v, &v->subject[i]);
	free(v->subject);
	v->subject = fresh;
	v->n = n;
	memset(v->subject_of, 0xff, v->rows->capacity * sizeof *v->subject_of);
	for (unsigned i = 0; i < n; i++)
		for (unsigned k = 0; k < fresh[i].n_rows; k++)
			v->subject_of[fresh[i].row[k]] = i;
	held_drop(v);
	forget_others(v);
	tally_all(v);
	return 0;
}

void
verifier_model(struct verifier *v, uint32_t generation, uint32_t set, int fd)
{
	struct held *grown = realloc(v->held, (v->n_held + 1) * sizeof *grown);

	if (!grown) {
		close(fd);
		return;
	}
	v->held = grown;
	grown[v->n_held] = (struct held){.generation = generation, .set = set};
	if (models_attach(&grown[v->n_held].blob, fd) < 0) {
		log_warn("model of set %u not readable: its tokens are not verified", set);
		return;
	}
	v->n_held++;
	if (v->manifest && generation == v->generation)
		verifier_set(v, v->manifest, generation, v->trust);
}

/* ---- asking ---- */

/* When it is down nobody is there to ask; and who answers after that is to be known first. */
static bool
look(struct verifier *v, struct subject *s, mono_ns now)
{
	const struct row *row = &v->rows->row[s->row[0]];
	uint32_t row_gen = atomic_load_explicit(&row->row_gen, memory_order_acquire);
	struct row_trust was = s->trust;
	struct row_reading reading;
	struct proof_life life = {
		.up = atomic_load_explicit(&row->up_since_ns, memory_order_relaxed),
	};

	row_reading_read(row, &reading);
	if (life.up == 0 || row_state(row, &reading) != ROW_UP ||
	    !row_reading_same_life(&reading))
		return false;
	if (reading.known & KNOWN_ENGINE_START)
		life.start = row_reading_start(&reading);
	if (row_gen != s->row_gen)
		s->trust = (struct row_trust){0};
	s->row_gen = row_gen;
	if (!proof_begin(&s->trust, s->key, &life, now)) {
		if (memcmp(&was, &s->trust, sizeof was) != 0)
			publish(v, s);          /* its start came to light */
		return true;
	}
	release(v, s);
	s->serial = ++v->next_serial;           /* what is under way is another engine's */
	s->sent = s->told_version = false;
	s->disproven = 0;
	s->run = (struct proof_run){0};
	s->due_ns = now;
	if (!s->may_ask) {
		proof_is(&s->trust, TRUST_UNVERIFIED, TRUST_NO_ROUTE, now);
		s->due_ns = PROOF_NEVER;
	}
	publish(v, s);
	tally(v, s->key, s->model);
	return true;
}

static bool
begin_run(struct verifier *v, struct subject *s, mono_ns now)
{
	struct row_trust was = s->trust;
	struct opened *o = model_of(v, s);

	if (!o)
		return false;
	if (model_foreign(o->model)) {
		close_unused(v);
		proof_is(&s->trust, TRUST_UNVERIFIED, TRUST_FOREIGN, now);
		s->due_ns = PROOF_NEVER;
		changed(v, s, &was);
		return false;
	}
	o->users++;
	s->opened = o;
	return true;
}

static unsigned
runs(const struct verifier *v)
{
	unsigned n = 0;

	for (unsigned i = 0; i < VERIFIER_AT_ONCE; i++)
		n += v->opened[i] ? v->opened[i]->users : 0;
	return n;
}

static bool
send_next(struct subject *s, struct prober *prober, mono_ns now)
{
	bool version = s->run.next == 0 && !s->told_version;
	struct probe *p = probe_new(s->serial, version ? PROBE_VERSION : PROBE_TOKENIZE,
				    MANIFEST_ENGINE_VLLM);

	if (!p || fetch_to(&p->fetch, &s->peer, version ? "/version" : "/tokenize") < 0) {
		probe_free(&p);
		return false;
	}
	if (!version) {
		ssize_t n;

		p->body = malloc(PROBES_BODY_MAX);
		n = p->body ? probes_body(s->run.next, s->model, p->body, PROBES_BODY_MAX) : -1;
		if (n < 0) {
			probe_free(&p);
			return false;
		}
		p->body_len = (size_t)n;
		s->run.next++;
	}
	s->sent = true;
	p->sent_ns = now;
	prober_send(prober, p);
	return true;
}

static void
end_run(struct verifier *v, struct subject *s, enum trust_why failed, mono_ns now)
{
	struct row_trust was = s->trust;

	release(v, s);
	s->due_ns = proof_end(&s->trust, &s->run, failed, now);
	count_add(v->process, COUNTER_verify_runs, 1);
	changed(v, s, &was);
}

mono_ns
verifier_run(struct verifier *v, struct prober *prober, mono_ns now)
{
	mono_ns next = now + LOOK_NS;
	unsigned under_way = runs(v);

	for (unsigned i = 0; i < v->n; i++) {
		struct subject *s = &v->subject[i];
		bool up = look(v, s, now);

		if (s->sent || s->due_ns > now) {
			if (!s->sent && s->due_ns < next)
				next = s->due_ns;
			continue;
		}
		if (!s->opened) {
			if (!up || under_way >= VERIFIER_AT_ONCE)
				continue;
			if (!begin_run(v, s, now)) {
				if (s->due_ns <= now)
					s->due_ns = now + PROOF_AGAIN_NS;
				continue;
			}
			under_way++;
		}
		if (!send_next(s, prober, now))
			s->due_ns = now + PROOF_AGAIN_NS;
	}
	return next;
}

bool
verifier_busy(const struct verifier *v)
{
	for (unsigned i = 0; i < v->n; i++)
		if (v->subject[i].sent)
			return true;
	return false;
}

/* ---- what comes back ---- */

static void
take_version(struct subject *s, const struct probe *p)
{
	json_t *o = NULL;
	const char *text;

	if (p->result == PROBE_OK && p->fetch.answer)
		o = json_loadb(p->fetch.answer, p->fetch.len, JSON_REJECT_DUPLICATES, NULL);
	text = json_string_value(json_object_get(o, "version"));
	snprintf(s->trust.version, sizeof s->trust.version, "%s", text ? text : "");
	for (char *c = s->trust.version; *c; c++)
		if (*c <= ' ' || *c == '"' || *c == '\\' || *c >= 127)
			*c = '?';               /* a stranger's text, in a table and a label */
	json_decref(o);
	s->told_version = true;
}

static void
compare(struct verifier *v, struct subject *s, const struct probe *p, mono_ns now)
{
	static const struct prompt_made nothing = {.end = PROMPT_UNKNOWN};
	const struct probes_one *probe = probes_at(s->run.next - 1);
	struct probes_theirs theirs = {.refused = p->result != PROBE_OK};
	struct prompt_made ours = nothing;
	struct row_trust was = s->trust;
	struct probes_compared c;
	uint32_t *ids = NULL;
	const char *why;

	if (!theirs.refused) {
		const struct slice answer = {p->fetch.answer, p->fetch.len};

		ids = malloc(PROBES_IDS_MAX * sizeof *ids);
		if (!ids || !openai_answer_ids(answer, ids, PROBES_IDS_MAX, &theirs.n, &why)) {
			free(ids);
			end_run(v, s, TRUST_REFUSED, now);
			return;
		}
		theirs.ids = ids;
		if (theirs.n > PROBES_IDS_MAX)
			theirs.n = PROBES_IDS_MAX;
	}
	if (prompt_make(v->maker, s->opened->model, NULL, probe->route,
			(struct slice){p->body, p->body_len}, PROBES_IDS_MAX, &ours) < 0)
		ours = nothing;
	probes_compare(&ours, &theirs, &c);
	proof_answer(&s->trust, &s->run, s->run.next - 1, &c, now);
	count_add(v->process, COUNTER_verify_probes, 1);
	count_add(v->process, COUNTER_verify_probes_differ, c.verdict == PROBES_DIFFER);
	free(ids);
	if (s->trust.state != was.state)
		changed(v, s, &was);
	s->due_ns = now + VERIFIER_PACE_NS;
	if (s->run.next == probes_count())
		end_run(v, s, TRUST_NOT_ASKED, now);
}

static void
subject_result(struct verifier *v, struct subject *s, const struct probe *p)
{
	mono_ns now = p->fetch.ended_ns;
	unsigned status = p->fetch.status;

	s->sent = false;
	if (p->kind == PROBE_VERSION)
		take_version(s, p);
	else if (p->result == PROBE_OK ||
		 (p->result == PROBE_STATUS && probes_refusal(status)))
		compare(v, s, p, now);
	else if (p->result == PROBE_STATUS && (status == 404 || status == 405 || status == 501))
		end_run(v, s, TRUST_NO_ROUTE, now);
	else if (p->result == PROBE_STATUS || p->result == PROBE_LARGE)
		end_run(v, s, TRUST_REFUSED, now);
	else
		end_run(v, s, TRUST_UNREACHABLE, now);
}

void
verifier_result(struct verifier *v, struct probe *probe)
{
	for (unsigned i = 0; i < v->n; i++)
		if (v->subject[i].serial == probe->serial && v->subject[i].sent &&
		    v->subject[i].opened) {
			subject_result(v, &v->subject[i], probe);
			break;
		}
	probe_free(&probe);
}

void
verifier_outcome(struct verifier *v, const struct journal_record *head,
		 const struct journal_outcome *o, mono_ns now)
{
	struct subject *s;
	struct row_trust was;

	if (o->row >= v->rows->capacity || v->subject_of[o->row] == NOBODY)
		return;
	s = &v->subject[v->subject_of[o->row]];
	if (s->mixed || s->row_gen != o->row_gen || head->when < v->born ||
	    head->policy_gen < s->since_generation || o->status != 200 || o->our_prompt == 0 ||
	    o->source != TOKENS_NATIVE || row_trust_key(&s->trust) != s->key)
		return;
	was = s->trust;
	if (o->cached != UINT32_MAX)
		proof_cached(&s->trust, o->our_cached, o->cached);
	if (o->prompt != UINT32_MAX) {
		count_add(v->process, COUNTER_verify_usage, 1);
		count_add(v->process, COUNTER_verify_usage_differ, o->prompt != o->our_prompt);
		if (proof_usage(&s->trust, o->our_prompt, o->prompt, now) && s->may_ask &&
		    !s->opened) {
			s->due_ns = now + (PROOF_DISPROVEN_NS << s->disproven);
			s->disproven += s->disproven < DISPROVEN_DOUBLINGS;
		}
	}
	changed(v, s, &was);
}
