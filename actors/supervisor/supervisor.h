/* actors/supervisor/supervisor.h -- the state of the process that starts all others.
 *
 * One loop, no threads.  Each part has its own file: rundir (lock, pids), listeners, fleet (rows of
 * the worker table), shares (who holds which segment), children (birth, watch, death), seats (who
 * is to be there, SIGUSR2), reload (pure state machine), generation (performs its actions), members
 * (what is found becomes rows and documents), discovery (where it is found), models (folders become
 * segments, beside), past (documents to go back to), orders (freeze, disable), control (pointsctl),
 * ending (drain), supervisor (life, loop).
 *
 * Ownership  everything hangs on struct supervisor; supervisor.c opens and closes it.
 */
#pragma once
#include <sys/types.h>
#include "actors/supervisor/discovery.h"
#include "actors/supervisor/notify.h"
#include "actors/common/config.h"
#include "actors/common/models.h"
#include "actors/common/secrets.h"
#include "actors/common/token.h"
#include "actors/common/log.h"
#include "actors/supervisor/reload.h"
#include "proto/messages.h"
#include "shm/arena.h"
#include "shm/cell.h"
#include "shm/process.h"
#include "shm/limit.h"
#include "shm/pins.h"
#include "shm/roster.h"
#include "shm/rows.h"
#include "shm/slot.h"

#define RUN_DIR_MAX     60u             /* bytes; socket names below it must fit 107 */
#define CHILDREN_MAX    128u
#define CONTROL_CLIENTS 16u
#define SHARES_MAX      1024u
#define ORDERS_MAX      64u             /* providers disabled at once */
#define CONFIGS_MAX     8u              /* generations whose snapshot is still needed */

/* A segment some process may be given.  Both descriptors are made before anybody else holds one. */
struct share {
	enum segment_kind kind;
	enum process_role role;                 /* its owner, the one writer */
	uint32_t index, incarnation, generation;
	int rw_fd;                              /* borrowed from the segment; -1: nobody writes */
	int ro_fd;                              /* owned */
	mono_ns owed_ns; /* since when those who can wait wait; 0 nobody does */
};

/* Frames a peer was not ready to take; nothing here ever blocks on a peer. */
struct outbox {
	struct outbox_entry *first, **last;     /* last NULL: empty, never used */
	unsigned n;
};

struct child {
	enum process_role role;
	uint32_t index, incarnation, generation;
	pid_t pid;
	int pidfd, sock;                        /* owned */
	uint64_t start_ticks;
	enum roster_state state;
	mono_ns born_ns, ready_ns, drain_ns;    /* drain_ns: deadline, 0 not draining */
	bool bye, killed, failed;
	mono_ns closed_ns;                      /* it closed its end: death follows; 0 open */
	const char *kill_why;                   /* static text */
	char failed_text[400];                  /* file:line:column: text of `failed` */
	struct process_segment process;         /* owned, as are those below; ingress only */
	struct column column;
	struct slots slots;
	struct arena arena;
	struct outbox out;
	unsigned roster_slot;                   /* ROSTER_MAX: not shown */
};

/* A place that is always to be filled: every role but policy. */
struct seat {
	enum process_role role;
	uint32_t index;
	uint32_t incarnation;                   /* who sits there; 0 nobody */
	uint32_t restarts;
	mono_ns restart_ns, backoff_ns;
	uint32_t adopter;                       /* ingress that accepts for it; 0 none */
	uint32_t predecessor;                   /* serves until the sitter can; 0 none */
	char last_exit[128];
};

struct listener {
	uint32_t index;                         /* of the ingress it belongs to */
	int fd;                                 /* owned */
	char address[128];                      /* host:port, the port as bound; unix:/path */
	dev_t dev;                              /* of the unix socket's file */
	ino_t ino;                              /* 0: TCP */
	bool tls;                               /* clients speak TLS there */
};

struct control_client {
	int fd;                                 /* -1: free */
	bool attached;
	unsigned waits;                         /* 0 no; 1 for the reload now; 2 for the next */
	struct outbox out;
};

struct config {                         /* one generation's documents */
	uint32_t generation;                    /* 0: free */
	struct manifest *manifest;
	struct segment seg;
	struct segment secrets, trust, probes;  /* fd -1: it names no files */
	struct model_file **model;              /* owned list, borrowed models; by set */
	uint32_t of;                            /* a rollback: whose documents; 0: files' */
};

struct models {                         /* models.c */
	struct model_file **file;               /* owned */
	unsigned n, left;                       /* left: still being made */
	uint32_t last;                          /* number given last */
	struct model_file **wanted;             /* owned list: of the load under way, by set */
	uint32_t n_wanted;
	pid_t pid;                              /* of the program; 0: none */
	int pidfd, sock;                        /* owned */
	bool reaped;
	bool patient;                           /* runs in the background */
	mono_ns began_ns;
};

struct loading {                        /* generation.c: documents that wait for their models */
	struct manifest *manifest;              /* owned; NULL: none */
	struct secret_files *files;             /* owned */
	uint32_t of;                            /* a rollback: whose documents; 0: files' */
};

struct past {                           /* past.c; the roster shows what it is, at its place */
	void *documents;                        /* owned snapshot; NULL: none */
	size_t len;
};

struct orders {                         /* orders.c */
	wall_ns frozen;                         /* since when; 0: not */
	char why[ROSTER_WHY_MAX];
	char disabled[ORDERS_MAX][MANIFEST_NAME_MAX + 1];
	unsigned n_disabled;
};

struct options {
	char **paths;                           /* owned list, borrowed strings */
	unsigned n_paths;
	const char *run_dir;
	bool check_only;
	bool uids, rights;                      /* --protect */
	uint32_t first_uid;                     /* --uids; a role's is its number more */
	const char *seed;                       /* --seed, borrowed; NULL: kept in run_dir */
	enum log_level level;
};

struct supervisor {
	struct options options;
	char bin_dir[256];                      /* where our sibling programs are */
	int lock_fd, run_fd, signal_fd, control_fd;
	bool uids;                              /* each role has its own user id */
	uint8_t key[TOKEN_KEY];                 /* of this run: token.h */
	uint64_t note;                          /* of this run: who may tell kvevents */
	uint64_t look;                          /* of this run: who may look at events there */
	struct reload reload;
	struct config config[CONFIGS_MAX];
	uint32_t last_generation;
	bool back;                              /* the load to come is a rollback */
	uint32_t back_to;                       /* to that generation's documents; 0: past_find() */
	struct past past[ROSTER_PASTS];         /* newest first */
	struct orders orders;
	struct rows rows;
	struct segment index;
	struct roster roster;
	struct pins pins;
	struct limits limits;                   /* tenants' */
	struct process_segment process;
	struct share share[SHARES_MAX];
	unsigned n_shares;
	struct child *child[CHILDREN_MAX];
	struct seat *seat;                      /* owned */
	unsigned n_seats;
	struct poison_ring poison;              /* of dead ingresses: their successors' */
	struct seat policies; /* no place of its own: deaths so far, the last one's why */
	struct listener *listener;              /* owned */
	unsigned n_listeners;
	struct control_client client[CONTROL_CLIENTS];
	mono_ns removed_ns[ROWS_DEFAULT];       /* when a row was set to REMOVE */
	mono_ns draining_ns[ROWS_DEFAULT];      /* and to DRAIN */
	struct models models;
	struct loading loading;
	struct discovery *discovery;            /* owned */
	uint32_t last_revision;                 /* of found members, given last */
	uint32_t rowless;                       /* members found without a row: the table is full */
	mono_ns rows_due_ns;                    /* when to try again; 0 never */
	char last_failed[512];                  /* why the newest policy process ended */
	bool draining, hard;
	unsigned drain_stage;                   /* 0 none, 1 ingress, 2 the others */
	mono_ns drain_deadline_ns;
	mono_ns hup_due_ns;                     /* SIGHUP was heard; reload then; 0 none */
	int exit_code;                          /* -1: run on */
	struct notify notify;
	struct {                                /* unborn.c */
		pid_t pid;                      /* 0: none */
		int pidfd, sock;                /* owned */
		dev_t dev;                      /* of the program it was started from */
		ino_t ino;
		struct timespec mtime;
	} unborn;
};

/* rundir.c: one supervisor per run directory. */
int rundir_open(struct supervisor *s, const char **why);
	/* Makes the directory, takes its lock, ends the processes a dead predecessor left (start
	 * times checked), removes their sockets, makes a folder for each role that binds some.  0
	 * or -errno. */
void rundir_note_pids(const struct supervisor *s);      /* after each birth and death */
void rundir_close(struct supervisor *s);

/* listeners.c */
int listeners_open(struct supervisor *s, const struct manifest *manifest, const char **why);
	/* One O_NONBLOCK SO_REUSEPORT socket per (address, ingress index); of a unix socket, one
	 * for all.  -EADDRINUSE also where somebody listens on the path. */
void listeners_close(struct supervisor *s);             /* removes unix sockets' files */

/* fleet.c: the worker table's identity lines. */
int fleet_add(struct supervisor *s, const struct manifest *manifest);
	/* Rows for members that have none, serving at once: only a generation that names them asks.
	 * Of those that were found, s->rowless had to do without.  0, -ENOSPC. */
void fleet_commit(struct supervisor *s, const struct manifest *manifest);
	/* Exactly these members serve; others drain. */
void fleet_amend(struct supervisor *s, const struct manifest *manifest);
	/* Other members were found: who is named by no generation that decides, or is about to,
	 * drains; who is named by this one, which is in force, serves again. */
bool fleet_tick(struct supervisor *s, mono_ns now);
	/* Drained rows that nobody uses, or that have drained for timeouts.drain, are removed.
	 * true: some still drain. */

void fleet_disable(struct supervisor *s, const char *provider, bool disabled);
	/* Its rows say so from now on; new ones get it from orders_disabled(). */

/* past.c: the last documents that were in force. */
void past_note(struct supervisor *s, const struct config *c, enum roster_came came, uint32_t of);
	/* It is in force from now on. */
void past_revised(struct supervisor *s, const struct config *c);
	/* Other members were found for it. */
const struct past *past_find(const struct supervisor *s, uint32_t to, uint32_t *ret_generation,
			     char *text, size_t cap);
	/* to 0: the newest that differ from those in force and were not thrown out in probation.
	 * NULL: none, and text says so. */
void past_close(struct supervisor *s);

/* orders.c: what the operator ordered in an emergency.  text: for people, whatever came of it. */
int orders_open(struct supervisor *s, const char **why);        /* what a predecessor was told */
bool orders_frozen(const struct supervisor *s, char *buf, size_t cap);  /* true: buf says why */
bool orders_disabled(const struct supervisor *s, const char *provider);
bool orders_freeze(struct supervisor *s, const struct msg_policy_freeze *m, char *text, size_t cap);
bool orders_disable(struct supervisor *s, const struct msg_provider_disable *m, char *text,
		    size_t cap);

/* members.c: members that are found (discovery.h). */
int members_take(struct supervisor *s, struct manifest **io);
	/* Documents as they were read become documents with what is found now, of which their
	 * sources have 1 s to say something first.  0, -ENOMEM. */
int members_known(struct supervisor *s, struct manifest **io);
	/* The same from what is known already; asks nobody. */
void members_tick(struct supervisor *s, mono_ns now);
	/* What is found anew reaches every live generation, rows first. */
mono_ns members_next(const struct supervisor *s);       /* 0 never */

/* models.c */
bool models_want(struct supervisor *s, const struct manifest *manifest);
	/* Before these documents become a generation: true when some model is still being made. */
bool models_hear(struct supervisor *s);         /* true: all are made, or will not be */
bool models_tick(struct supervisor *s, mono_ns now);    /* likewise; deadlines */
void models_wait(struct supervisor *s);
	/* Nobody is served yet: until then. */
void models_reaped(struct supervisor *s, pid_t pid);    /* any child's pid */
int models_share(struct supervisor *s, struct config *c);
	/* What was wanted last is this generation's.  0, -ENOSPC, -errno. */
void models_text(const struct config *c, char *buf, size_t cap);
	/* Which sets do without, and why; one a line. */
void models_sweep(struct supervisor *s);        /* what no generation uses, on disk too */
void models_close(struct supervisor *s);

/* shares.c */
enum share_access { SHARE_NO = 0, SHARE_READ, SHARE_WRITE };
int shares_add(struct supervisor *s, const struct segment *seg, enum segment_kind kind,
	       enum process_role role, uint32_t index, uint32_t incarnation, uint32_t generation);
	/* 0, -ENOSPC, -errno. */
int shares_add_frozen(struct supervisor *s, int fd, enum segment_kind kind, uint32_t index,
		      uint32_t generation);
	/* One that nobody can write any more (segment_freeze); fd stays the caller's.  As above. */
void shares_drop(struct supervisor *s, uint32_t incarnation);   /* a dead process's */
void shares_drop_config(struct supervisor *s, uint32_t generation);
enum share_access share_access(const struct share *share, enum process_role role,
			       uint32_t incarnation, uint32_t generation);
	/* The one table of who may read and write what; generation: of the CONFIG it sees. */
void shares_send_all(struct supervisor *s, struct child *c);    /* own ones first */
void shares_announce_owner(struct supervisor *s, uint32_t incarnation);
void shares_announce_config(struct supervisor *s, uint32_t generation);
	/* To those a switch waits for at once; to the others with shares_flush. */
int shares_replace_config(struct supervisor *s, const struct segment *seg, uint32_t generation);
	/* Its documents are in this segment from now on; the caller keeps the old one until then.
	 * 0, -errno: nothing has changed. */
void shares_announce_found(struct supervisor *s, uint32_t generation);
	/* Only the documents, and to its policy processes too. */
void shares_flush(struct supervisor *s, mono_ns until);  /* what is owed since then or before */
void shares_flush_owner(struct supervisor *s, uint32_t incarnation);
	/* Before it is told dead: what it has written is read nevertheless. */
int share_send(struct outbox *out, int sock, const struct share *share, bool write);

/* outbox.c */
int outbox_send(struct outbox *out, int sock, enum msg_id id, const void *msg, int fd);
	/* Sends, or keeps a copy (fd duplicated) when the peer is not reading.  0; -ENOBUFS: the
	 * peer is 4,096 frames behind; -errno: it is gone. */
int outbox_flush(struct outbox *out, int sock);         /* 0, -EAGAIN, -errno */
void outbox_clear(struct outbox *out);

/* program.c: programs and their end of the pair. */
void programs_uids(struct supervisor *s);
	/* Once: whether each role can have a user id of its own; the log says why if not. */
void program_path(const struct supervisor *s, enum process_role role, char *buf, size_t cap);
uid_t program_uid(const struct supervisor *s, enum process_role role);
int program_start(struct supervisor *s, enum process_role role, bool background, pid_t *ret_pid,
		  int *ret_pidfd, int *ret_sock);
	/* background: where nobody else wants the CPU, until its birth says otherwise.  0, -errno
	 * (logged). */

/* unborn.c */
void unborn_keep(struct supervisor *s); /* have one, when nothing is urgent */
bool unborn_take(struct supervisor *s, pid_t *ret_pid, int *ret_pidfd, int *ret_sock);
void unborn_reaped(struct supervisor *s, pid_t pid);            /* any child's pid */
void unborn_drop(struct supervisor *s);

/* children.c */
struct child *child_find(struct supervisor *s, uint32_t incarnation);
int child_spawn(struct supervisor *s, enum process_role role, uint32_t index, uint32_t incarnation,
		uint32_t generation);
	/* Segments, fork, exec, birth .. go.  0; -errno: nothing is left behind. */
void child_send(struct supervisor *s, struct child *c, enum msg_id id, const void *msg, int fd);
bool children_calm(const struct supervisor *s);
	/* No switch is under way, no policy process comes or goes: what can wait may be done. */
void child_together(struct supervisor *s, const struct child *c);
	/* The one ingress and the asked policy process: onto one CPU where there are two. */
void children_hurry(struct supervisor *s); /* nobody is asked: who loads, loads at full speed */
void child_kill(struct child *c, const char *why);
void child_drain(struct supervisor *s, struct child *c, mono_ns deadline);
void child_state(struct supervisor *s, struct child *c, enum roster_state state);
void child_read(struct supervisor *s, struct child *c);         /* its messages */
void children_reap(struct supervisor *s);
void children_tick(struct supervisor *s, mono_ns now);          /* deadlines, restarts, adoption */
mono_ns children_next(const struct supervisor *s);              /* earliest time above; 0 none */
void children_broadcast(struct supervisor *s, enum msg_id id, const void *msg);

/* seats.c: places that are always to be filled. */
void seats_make(struct supervisor *s, const struct manifest *manifest);
struct seat *seat_of(struct supervisor *s, enum process_role role, uint32_t index);
	/* NULL: none. */
void seat_ready(struct supervisor *s, struct child *c); /* its sitter serves */
void seat_active(struct supervisor *s, const struct child *c);
	/* It acknowledged whom to ask: a predecessor may go. */
void seat_left(struct supervisor *s, const struct child *c, const char *why);   /* it is dead */
void seats_replace(struct supervisor *s);
	/* SIGUSR2: a successor for each ingress; the predecessor is drained once that has
	 * a policy process to ask. */
void seats_tick(struct supervisor *s, mono_ns now);     /* restarts, adoption */
mono_ns seats_next(const struct supervisor *s);         /* earliest restart; 0 none */

/* generation.c: performs what reload.c decides. */
void generation_event(struct supervisor *s, const struct reload_event *event);
void generation_models(struct supervisor *s);   /* those that a load waited for are there */
struct config *generation_config(struct supervisor *s, uint32_t generation);    /* NULL: none */
struct config *generation_shown(struct supervisor *s);
	/* The one everybody but policy processes works by: in force, at first the one to come. */
bool generation_want(struct supervisor *s, bool back, uint32_t to, char *text, size_t cap);
	/* Load the files, or documents of the past.  False: refused, text says why, and so do log
	 * and journal where it is because of a freeze. */
void generation_stop(struct supervisor *s);
	/* Whatever waits to be loaded, or loads, is refused: policies were frozen.  A switch that
	 * has begun goes on. */
int generation_check(struct supervisor *s, bool back, uint32_t to, char *buf, size_t cap);
	/* Dry run of such a load: 0 and what would change, or -errno and the errors, in buf. */
void generation_policy_roster(struct supervisor *s);    /* active, standby: as it is now */
void generation_note(struct supervisor *s, uint32_t generation, bool ok, const char *text);
	/* Into the journal: which config_hash is in force from now on. */
void generation_close(struct supervisor *s);

/* control.c */
int control_open(struct supervisor *s, const char **why);
void control_accept(struct supervisor *s);
void control_read(struct supervisor *s, struct control_client *client);
void control_reloading(struct supervisor *s);
	/* A load begins: who asked waits for this one. */
void control_reloaded(struct supervisor *s, bool ok, uint32_t generation, const char *text);
void control_stopped(struct supervisor *s, const char *text);
	/* Who waits for a load that has not begun is told that there will be none. */
void control_send(struct supervisor *s, struct control_client *client, enum msg_id id,
		  const void *msg, int fd);
void control_broadcast(struct supervisor *s, enum msg_id id, const void *msg);
	/* To attached tools. */
void control_close(struct supervisor *s);

void supervisor_roster_touch(struct supervisor *s);     /* version + 1 */

/* ending.c */
void supervisor_stop(struct supervisor *s, int exit_code);      /* drain, then exit with that */
void supervisor_stop_hard(struct supervisor *s);                /* kill whoever is left */
bool supervisor_drained(struct supervisor *s, mono_ns now);
	/* Goes on with the drain.  true: nobody is left. */
