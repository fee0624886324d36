/* actors/pointsctl/journal.c -- `journal record FILE` and `journal print FILE`; format:
 * journal_file.h. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "actors/common/decide/explain.h"
#include "actors/common/fields.h"
#include "actors/common/show.h"
#include "actors/pointsctl/control.h"
#include "actors/pointsctl/feed.h"
#include "actors/pointsctl/journal_file.h"
#include "actors/pointsctl/lines.h"
#include "actors/pointsctl/pointsctl.h"

#define RECORD_TURN_MS  50

/* ---- record ---- */

struct recorder {
	FILE *to;
	const struct rows *rows;
	uint32_t *named;                        /* row_gen written per row; owned */
	uint64_t records, most, decisions, outcomes;
};

static void
entry_write(struct recorder *rec, const struct journal_file_entry *head, const void *payload)
{
	static const char zeros[8];

	fwrite(head, sizeof *head, 1, rec->to);
	fwrite(payload, head->len, 1, rec->to);
	fwrite(zeros, -head->len & 7u, 1, rec->to);
}

static void
names_write(struct recorder *rec)
{
	uint32_t n = rec->rows->head ? rows_count(rec->rows) : 0;

	for (uint32_t i = 0; i < n; i++) {
		const struct row *row = &rec->rows->row[i];
		struct row_text text;
		struct journal_file_name name = {.row = (uint16_t)i, .rank = row->rank};
		struct journal_file_entry head = {.len = sizeof name, .kind = JOURNAL_FILE_NAME,
						  .role = ROLE_SUPERVISOR};

		name.row_gen = atomic_load_explicit(&row->row_gen, memory_order_acquire);
		if (name.row_gen == 0 || rec->named[i] == name.row_gen ||
		    !rows_text_read(rec->rows, (uint16_t)i, name.row_gen, &text))
			continue;
		rec->named[i] = name.row_gen;
		snprintf(name.set, sizeof name.set, "%.*s", (int)sizeof text.set - 1, text.set);
		snprintf(name.member, sizeof name.member, "%.*s", (int)sizeof text.member - 1,
			 text.member);
		snprintf(name.model, sizeof name.model, "%.*s", (int)sizeof text.model - 1,
			 text.model);
		entry_write(rec, &head, &name);
	}
}

static void
on_record(void *arg, const struct pm_view_process *from, const void *record, size_t len)
{
	const struct journal_record *r = record;
	struct recorder *rec = arg;
	struct journal_file_entry head = {
		.len = (uint32_t)len, .kind = JOURNAL_FILE_RECORD, .role = (uint8_t)from->role,
		.index = (uint16_t)from->index, .incarnation = from->incarnation,
		.generation = from->generation,
	};

	if (rec->most && rec->records >= rec->most)
		return;
	entry_write(rec, &head, record);
	rec->records++;
	rec->decisions += r->kind == JOURNAL_DECISION;
	rec->outcomes += r->kind == JOURNAL_OUTCOME;
}

/* Readable when it is time to end. */
static int
signals_open(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigprocmask(SIG_BLOCK, &set, NULL);
	return signalfd(-1, &set, SFD_CLOEXEC);
}

static bool
ending(int signals)
{
	struct pollfd pfd = {.fd = signals, .events = POLLIN};

	return poll(&pfd, 1, 0) > 0;
}

/* What the journals in view have that is not in the record yet.  0, -ENOMEM. */
static int
record_turn(struct recorder *rec, struct feed *feed, const struct pm_view *view)
{
	uint64_t lost = feed->lost;

	names_write(rec);
	if (feed_turn(feed, view, ROLE_NONE, on_record, rec) < 0)
		return -ENOMEM;
	if (feed->lost > lost) {
		struct journal_file_entry e = {.len = 8, .kind = JOURNAL_FILE_LOST};

		lost = feed->lost - lost;
		entry_write(rec, &e, &lost);
		complain("too slow: %llu bytes of journal were overwritten unread",
			 (unsigned long long)lost);
	}
	return 0;
}

/* A process that is just born may have decided before we were told of it: whoever attaches is told
 * of all at once. */
static int
record_rest(const struct options *o, struct recorder *rec, struct feed *feed)
{
	struct pm_view view;
	const char *why;
	int sock = control_connect(o->run_dir, &why), r = 0;

	if (sock < 0)
		return 0;                       /* it has ended; nobody is born any more */
	pm_view_init(&view);
	if (control_attach(sock, &view, &why) == 0)
		r = record_turn(rec, feed, &view);
	pm_view_close(&view);
	close(sock);
	return r;
}

static int
record_loop(const struct options *o, int sock, int signals, struct pm_view *view,
	    struct recorder *rec)
{
	struct journal_file_header head = {.magic = JOURNAL_FILE_MAGIC,
					   .layout = JOURNAL_FILE_LAYOUT,
					   .records = PROCESS_LAYOUT,
					   .started = clock_wall()};
	mono_ns end = clock_mono() + (mono_ns)(o->seconds * 1e9);
	struct feed feed = {0};
	bool last = false;
	int r = 0;

	fwrite(&head, sizeof head, 1, rec->to);
	while (!ferror(rec->to)) {
		r = record_turn(rec, &feed, view);
		if (r == 0 && last)
			r = record_rest(o, rec, &feed);
		if (r < 0 || last || (rec->most && rec->records >= rec->most))
			break;
		fflush(rec->to);
		last = ending(signals) ||
		       (o->seconds > 0 && clock_mono() >= end); /* one turn more */
		if (!last)
			last = control_turn(sock, view, RECORD_TURN_MS) == -EPIPE;
	}
	feed_close(&feed);
	return ferror(rec->to) ? -EIO : r;
}

static int
record(const struct options *o, const char *path)
{
	struct recorder rec = {.most = o->count};
	struct pm_view view;
	const char *why;
	int signals = signals_open(), sock, fd, r;

	sock = control_connect(o->run_dir, &why);
	pm_view_init(&view);
	r = sock < 0 ? sock : control_attach(sock, &view, &why);
	if (r < 0) {
		complain("%s: %s", o->run_dir, why);
		goto out;
	}
	rec.rows = &view.rows;
	rec.named = calloc(JOURNAL_FILE_NAMES, sizeof *rec.named);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	rec.to = fd < 0 ? NULL : fdopen(fd, "wb");
	if (!rec.named || !rec.to) {
		r = -errno;
		complain("%s: %s", path, strerror(-r));
		goto out;
	}
	r = record_loop(o, sock, signals, &view, &rec);
	if (fclose(rec.to) != 0 || r < 0) {
		complain("%s: not all of it could be written", path);
		r = -EIO;
	} else {
		fprintf(stderr, "%s: %llu records: %llu decisions, %llu outcomes\n", path,
			(unsigned long long)rec.records, (unsigned long long)rec.decisions,
			(unsigned long long)rec.outcomes);
	}
out:
	free(rec.named);
	pm_view_close(&view);
	if (sock >= 0)
		close(sock);
	if (signals >= 0)
		close(signals);
	return r < 0;
}

/* ---- print ---- */

struct names {
	struct rows_header head;
	struct rows rows; /* arrays below, so that the same code names workers */
};

static int
names_open(struct names *names)
{
	names->rows =
		(struct rows){.seg.fd = -1, .head = &names->head, .capacity = JOURNAL_FILE_NAMES};
	names->rows.row = calloc(JOURNAL_FILE_NAMES, sizeof *names->rows.row);
	names->rows.text = calloc(JOURNAL_FILE_NAMES, sizeof *names->rows.text);
	return names->rows.row && names->rows.text ? 0 : -ENOMEM;
}

static void
names_close(struct names *names)
{
	free(names->rows.row);
	free(names->rows.text);
}

static void
names_take(struct names *names, const struct journal_file_name *name)
{
	struct row_text *text = &names->rows.text[name->row];
	struct row *row = &names->rows.row[name->row];

	/* It may have come back: records of before may stand behind its new row_gen. */
	if (strncmp(text->set, name->set, sizeof text->set) != 0 ||
	    strncmp(text->member, name->member, sizeof text->member) != 0)
		atomic_store_explicit(&row->name_gen, name->row_gen, memory_order_relaxed);
	atomic_store_explicit(&row->row_gen, name->row_gen, memory_order_relaxed);
	atomic_store_explicit(&row->intent, INTENT_SERVE, memory_order_relaxed);
	snprintf(text->set, sizeof text->set, "%.*s", (int)sizeof name->set - 1, name->set);
	snprintf(text->member, sizeof text->member, "%.*s", (int)sizeof name->member - 1,
		 name->member);
}

static json_t *
config_of(const void *record, size_t len)
{
	const struct journal_record *head = record;
	const struct journal_config *c = (const struct journal_config *)(head + 1);
	json_t *o;

	if (len < sizeof *head + sizeof *c)
		return NULL;
	o = json_object();
	json_object_set_new(o, "when", pm_json_wall(head->when, 3));
	json_object_set_new(o, "config_hash", pm_json_hex(head->config_hash));
	json_object_set_new(o, "generation", json_integer(c->generation));
	json_object_set_new(o, "ok", json_boolean(c->ok));
	json_object_set_new(o, "text", pm_json_text(c->text, sizeof c->text));
	return o;
}

/* false: no record we can read. */
static bool
print_record(const struct options *o, struct lines *lines, const struct names *names,
	     const struct journal_file_entry *e, const void *record)
{
	const struct journal_record *head = record;
	const char *kind = "config";
	json_t *value = NULL;

	if (e->len < sizeof *head || head->len != e->len)
		return false;
	switch (head->kind) {
	case JOURNAL_DECISION:
		kind = "decision";
		if (explain_decision(record, e->len, &names->rows, &value) < 0)
			return false;
		break;
	case JOURNAL_OUTCOME:
		kind = "outcome";
		value = pm_show_outcome(record, e->len, &names->rows);
		break;
	case JOURNAL_CONFIG:
		value = config_of(record, e->len);
		break;
	default:
		return true;                    /* a newer kind */
	}
	if (!value)
		return false;
	if (o->json) {
		json_object_set_new(value, "record", json_string(kind));
		json_object_set_new(value, "process", json_string(process_role_name(
				    (enum process_role)e->role)));
		json_object_set_new(value, "process_index", json_integer(e->index));
		print_json_line(stdout, value);
	} else if (head->kind == JOURNAL_DECISION) {
		lines_decision(lines, record, e->len);
	} else if (head->kind == JOURNAL_OUTCOME) {
		lines_outcome(lines, record, e->len, &names->rows);
	}
	json_decref(value);
	return true;
}

/* One pass; the table form takes two, as an outcome may stand before its decision.  0, -EBADMSG,
 * -EPIPE. */
static int
print_pass(const struct options *o, FILE *from, struct lines *lines, struct names *names,
	   bool decisions, bool others)
{
	_Alignas(8) char payload[JOURNAL_RECORD_MAX];
	const struct journal_record *record = (const struct journal_record *)(const void *)payload;
	struct journal_file_entry e;
	size_t got;

	while ((got = fread(&e, 1, sizeof e, from)) == sizeof e) {
		size_t padded = ((size_t)e.len + 7) & ~(size_t)7;

		if (e.len > sizeof payload)
			return -EBADMSG;
		if (fread(payload, 1, padded, from) != padded)
			return -EPIPE;
		if (e.kind == JOURNAL_FILE_NAME && e.len == sizeof(struct journal_file_name)) {
			names_take(names, (const struct journal_file_name *)(const void *)payload);
		} else if (e.kind == JOURNAL_FILE_LOST && others) {
			complain("here some records were lost while recording");
		} else if (e.kind == JOURNAL_FILE_RECORD) {
			bool decision = e.len >= sizeof *record && record->kind == JOURNAL_DECISION;

			if ((decision ? decisions : others) &&
			    !print_record(o, lines, names, &e, payload))
				return -EBADMSG;
		}
	}
	return got == 0 ? 0 : -EPIPE;
}

static int
print(const struct options *o, const char *path)
{
	struct journal_file_header head;
	struct names names = {0};
	struct lines *lines = NULL;
	FILE *from = fopen(path, "rb");
	int r = from ? 0 : -errno;

	if (r < 0) {
		complain("%s: %s", path, strerror(-r));
		return 1;
	}
	if (fread(&head, 1, sizeof head, from) != sizeof head ||
	    memcmp(head.magic, JOURNAL_FILE_MAGIC, sizeof head.magic) != 0) {
		complain("%s: no recorded journal", path);
		fclose(from);
		return 1;
	}
	if (head.layout != JOURNAL_FILE_LAYOUT || head.records != PROCESS_LAYOUT) {
		complain("%s: layout %u with records of layout %u; this program reads %u with %u",
			 path, head.layout, head.records, JOURNAL_FILE_LAYOUT, PROCESS_LAYOUT);
		fclose(from);
		return 1;
	}
	r = names_open(&names);
	if (r == 0)
		r = lines_open(&lines, stdout, o->json);
	if (r == 0 && !o->json) {
		r = print_pass(o, from, lines, &names, true, false);
		if (r != -EBADMSG && fseek(from, sizeof head, SEEK_SET) == 0)
			r = print_pass(o, from, lines, &names, false, true);
	} else if (r == 0) {
		r = print_pass(o, from, lines, &names, true, true);
	}
	if (r < 0)
		complain("%s: %s at byte %ld", path, r == -EPIPE ? "cut short" :
			 r == -EBADMSG ? "no entry of this layout" : strerror(-r), ftell(from));
	lines_close(&lines);
	names_close(&names);
	fclose(from);
	return r < 0;
}

int
command_journal(const struct options *o)
{
	if (strcmp(o->args[0], "record") == 0)
		return record(o, o->args[1]);
	if (strcmp(o->args[0], "print") == 0)
		return print(o, o->args[1]);
	complain("journal %s? record and print are known", o->args[0]);
	return EXIT_USAGE;
}
