/* shm/roster.h -- which processes live, which generation serves, how the last reload went.
 *
 *      segment header | roster_header 1024 | roster_entry 256 x ROSTER_MAX
 *                     | roster_source 512 x ROSTER_SOURCES
 *
 * Writers    the supervisor.   Readers: admin, pointsctl, ingress.
 * Crash      the supervisor stops before `version`: entries may be newer than it; before an entry's
 *            state: its other fields may be another process's, of a state no longer true.  Its
 *            successor makes a new roster; readers of the old one see it age.
 * Words are single atomics; texts are for people: read them between two loads of `version`.
 */
#pragma once
#include "shm/segment.h"

#define ROSTER_LAYOUT   3u
#define ROSTER_MAX      64u
#define ROSTER_SOURCES  64u             /* shown; there may be more */
#define ROSTER_PASTS    10u             /* documents that can be gone back to */
#define ROSTER_WHY_MAX  96u             /* bytes with the 0: why the operator froze */

enum roster_state { ROSTER_EMPTY = 0, ROSTER_STARTING, ROSTER_READY, ROSTER_ACTIVE, ROSTER_STANDBY,
	ROSTER_DRAINING, ROSTER_GONE };
enum reload_state { RELOAD_IDLE = 0, RELOAD_LOADING, RELOAD_SWITCHING, RELOAD_PROBATION };

struct roster_entry {
	_Atomic uint32_t state;                 /* enum roster_state */
	uint16_t role, index;
	uint32_t incarnation, generation;
	uint32_t pid, restarts;
	mono_ns since_ns;
	char last_exit[128];                    /* why the predecessor ended */
	uint64_t pad[12];
};
_Static_assert(sizeof(struct roster_entry) == 256, "roster_entry");

/* Where members of a set are found. */
enum source_state { SOURCE_EMPTY = 0, SOURCE_PENDING, SOURCE_OK, SOURCE_FAILING };

struct roster_source {
	_Atomic uint32_t state;                 /* enum source_state */
	uint32_t taken, not_taken;              /* members it names now */
	uint32_t changes;                       /* times that it named others than before */
	mono_ns since_ns;                       /* of the state */
	mono_ns answered_ns;                    /* when it said something last; 0 never */
	char set[64];
	char source[160];                       /* "file:/path" or "dns:name"; cut */
	char text[256];                         /* why it fails, or why the first member was not
						 * taken */
};
_Static_assert(sizeof(struct roster_source) == 512, "roster_source");

/* Documents that came into force, newest first.  why: how they came. */
enum roster_came { CAME_START = 1, CAME_RELOAD, CAME_ROLLBACK, CAME_PROBATION };

struct roster_past {
	uint32_t generation;                    /* 0: none */
	uint32_t revision;                      /* of found members, while it was in force */
	uint64_t config_hash;                   /* likewise: of the last decisions by it */
	wall_ns since;
	uint16_t came;                          /* enum roster_came */
	uint16_t failed;                        /* 1: left in probation, its processes died */
	uint32_t of;                            /* ROLLBACK, PROBATION: whose documents they are */
};
_Static_assert(sizeof(struct roster_past) == 32, "roster_past");

struct roster_header {
	_Atomic uint64_t version;
	_Atomic uint32_t generation;            /* serving; 0: none yet */
	_Atomic uint32_t reload;                /* enum reload_state */
	_Atomic uint32_t draining;              /* 1 from SIGTERM on */
	_Atomic uint32_t last_reload_ok;
	uint64_t config_hash;
	wall_ns born, committed;
	char last_error[512]; /* file:line:column: text of the last refused reload */
	uint32_t revision;                      /* of the members that were found */
	uint32_t pad0;
	_Atomic uint64_t frozen;                /* wall ns since when reloads are refused; 0 not */
	char frozen_why[ROSTER_WHY_MAX];
	struct roster_past past[ROSTER_PASTS];
	uint64_t pad[4];
};
_Static_assert(sizeof(struct roster_header) == 1024, "roster_header");

struct roster {                         /* process-local view */
	struct segment seg;
	struct roster_header *head;
	struct roster_entry *entry;
	struct roster_source *source;
};

int roster_create(struct roster *ret);                                  /* S; published */
int roster_attach(struct roster *ret, int fd);                          /* read-only; takes fd */
void roster_detach(struct roster *roster);
const char *roster_state_name(unsigned state);
const char *source_state_name(unsigned state);
const char *roster_came_name(unsigned came);
