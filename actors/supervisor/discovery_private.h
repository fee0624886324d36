/* actors/supervisor/discovery_private.h -- what discovery*.c share; nobody else's. */
#pragma once
#include "actors/supervisor/discovery.h"

#define DISCOVERY_MS 1000000ull

struct source {
	struct source *next;
	uint32_t id;                            /* from 1 */
	char set[MANIFEST_NAME_MAX + 1];
	struct manifest_discovery spec;
	char label[MANIFEST_FILE_MAX + 8];      /* "file:/path", "dns:name" */
	char *text;                             /* owned; NULL: it never said anything */
	size_t len;
	char error[256];                        /* "": all is well */
	char refused[256];                      /* why the first left out was; "" */
	bool wanted, said;                      /* said: something, or failed */
	mono_ns state_ns, answered_ns, due_ns;  /* due 0: never by time */
	uint32_t taken, not_taken, changes;
	uint32_t cut;   /* records beyond DISCOVERY_RECORDS_MAX, or with bad data */
	int wd, wd_file;                        /* file: of its folder, of itself; -1 none */
	mono_ns writing_ns;                     /* file: who writes it wrote last then; 0 */
	struct dns_query *query;                /* dns: owned; NULL: none is under way */
};

struct discovery {
	int epoll_fd, inotify_fd;               /* owned */
	struct source *sources;                 /* owned */
	uint32_t last_id;
	bool changed;
	uint64_t failures;
};

void source_says(struct discovery *d, struct source *s, const char *text, size_t len, mono_ns now);
	/* A list of members at all?  Then it is what holds. */
__attribute__((format(printf, 4, 5)))
void source_fails(struct discovery *d, struct source *s, mono_ns now, const char *format, ...);

/* discovery_file.c */
int file_open(struct discovery *d);
void file_events(struct discovery *d, mono_ns now);
void file_begin(struct discovery *d, struct source *s, mono_ns now);    /* and reads it */
void file_due(struct discovery *d, struct source *s, mono_ns now);
void file_end(struct discovery *d, struct source *s);

/* discovery_dns.c */
int dns_open(void);
void dns_close(void);
void dns_begin(struct discovery *d, struct source *s, mono_ns now);
void dns_due(struct discovery *d, struct source *s, mono_ns now);
void dns_ready(struct discovery *d, struct source *s, int fd, bool in, bool out);
	/* May finish the question: s->query is NULL then. */
mono_ns dns_next(const struct source *s, mono_ns now);  /* 0: none is under way */
void dns_end(struct discovery *d, struct source *s);
size_t dns_members(const struct source *s, const void *records, unsigned n, char *text, size_t cap,
		   unsigned *ret_cut);
	/* The list of members; records: struct dns_record, sorted.  Bytes; ret_cut: records that
	 * did not fit. */
