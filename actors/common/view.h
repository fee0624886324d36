/* actors/common/view.h -- all shared memory of a run, read-only, for those who show it.
 *
 * Meaning    What the supervisor hands to admin at birth and to a tool that attaches: the worker
 *            table, the prefix index, the roster, the documents in force, and per process its
 *            counters and journal, per ingress its column and slots.  Nothing is computed until it
 *            is asked for.  Arenas are not here: what people wrote is nobody else's business.
 * Dead       A dead policy or ingress process stays in view, up to PM_VIEW_GONE_KEPT of them,
 *            newest kept: explain and record want its journal.  Its counters are added to those of
 *            its role and index when it leaves, so that a sum never falls while this view lives.
 * Ownership  the view owns every mapping.  pm_view_segment takes the descriptor, also on failure.
 * Threads    one.  Nothing here is on the request path; nothing waits.
 * Errors     a segment of another layout is refused (-ESTALE) and what it would show is absent.
 */
#pragma once
#include "actors/common/birth.h"
#include "actors/common/config.h"
#include "shm/cell.h"
#include "shm/index.h"
#include "shm/limit.h"
#include "shm/pins.h"
#include "shm/process.h"
#include "shm/roster.h"
#include "shm/rows.h"
#include "shm/slot.h"
#include "shm/trust.h"

#define PM_VIEW_GONE_KEPT 16u           /* 4 MiB of journal each */
#define PM_VIEW_BORN    256u            /* ingress incarnations remembered by number alone */

struct pm_view_process {
	enum process_role role;
	uint32_t index, incarnation, generation;
	struct process_segment process;
	uint64_t gone;                          /* order of deaths, from 1; 0: lives */
};

struct pm_view_ingress {                /* a live one */
	uint32_t index, incarnation;
	struct column column;                   /* .seg.head NULL: has not come */
	struct slots slots;
};

struct pm_view_total {                  /* what the dead of one seat have counted */
	enum process_role role;
	uint32_t index;
	uint64_t count[COUNTER_END];
};

struct pm_view {
	struct rows rows;                       /* .head NULL: absent; likewise below */
	struct roster roster;
	struct pins pins;
	struct limits limits;                   /* .tenant NULL: absent */
	struct segment index;
	struct index *reader;                   /* over the same mapping */
	struct segment config;                  /* the documents the manifest was made of */
	struct manifest *manifest;              /* in force; NULL: none yet */
	uint32_t generation;                    /* of the manifest */
	struct pm_view_process *process;
	unsigned n_processes, cap_processes;
	struct pm_view_ingress *ingress;
	unsigned n_ingress, cap_ingress;
	struct pm_view_total *total;
	unsigned n_totals, cap_totals;
	uint64_t deaths;
	uint32_t born[PM_VIEW_BORN];            /* ring */
	unsigned n_born;
};

static inline uint64_t
pm_load64(const _Atomic uint64_t *word)                 /* a statistic: as it stands */
{
	return atomic_load_explicit(word, memory_order_relaxed);
}

void pm_view_init(struct pm_view *view);
void pm_view_close(struct pm_view *view);
int pm_view_segment(struct pm_view *view, const struct msg_segment *m, int fd);
	/* 0, -ESTALE, -EBADMSG, -EINVAL (documents), -ENOMEM, -errno. */
void pm_view_birth(struct pm_view *view, struct birth *birth);
	/* All segments not taken yet.  Those it cannot read are left out. */
void pm_view_gone(struct pm_view *view, enum process_role role, uint32_t incarnation);
bool pm_view_born(const struct pm_view *view, uint32_t incarnation);    /* ever an ingress here? */
const struct pm_view_ingress *pm_view_ingress(const struct pm_view *view,
					      uint32_t incarnation); /* NULL */

uint64_t pm_view_count(const struct pm_view *view, enum process_role role, uint32_t index,
		       enum counter c);
	/* Counters: all that this seat ever counted, as far as seen; gauges: the live ones' sum. */
const struct index_header *pm_view_index(const struct pm_view *view);   /* NULL: absent */

/* One worker, from every writer's line and every live column. */
struct pm_view_load {
	uint32_t pending, prefilling, context, decoding;
};
struct pm_view_worker {
	uint16_t row, rank;
	uint32_t row_gen;
	char name[ROW_NAME_MAX], set[ROW_NAME_MAX], url[ROW_URL_MAX], model[ROW_URL_MAX];
	const char *pool; /* first that names its set; NULL: none, unknown, or a provider */
	char source[8];                         /* static, file or dns */
	bool provider;                          /* not a worker: set is its name */
	enum row_state state;
	struct row_reading reading;
	bool fresh;                             /* row_reading_fresh */
	uint32_t reading_age_ms;                /* all ones: never sampled */
	struct row_predictor predictor;
	struct pm_view_load load;
	unsigned cache_state, cache_reason;
	mono_ns health_since_ns, metrics_since_ns;      /* of reading.health_why, metrics_why */
	uint32_t block_tokens; /* as its events say, else configured, else as metrics; 0 */
	mono_ns cache_since_ns;
	uint64_t received, decoded, applied, orphaned, failed, skipped, gaps, restarts;
	uint64_t seen_seq, applied_seq;         /* + 1; 0 none */
	uint32_t troubles;                      /* bits 1 << enum event_trouble */
	uint64_t trouble, trouble_count;        /* newest: rows.h row_trouble_pack(); 0 none */
	mono_ns trouble_since_ns, since_ns;     /* of that kind; of this row_gen */
	uint32_t configured_block_tokens, event_block_tokens;   /* 0: not; none yet */
	bool has_trust;                         /* its prompts' tokens are made here, too */
	struct row_trust trust;
	uint64_t chains_routed, chains_stored;  /* rows.h */
};
bool pm_view_worker(const struct pm_view *view, uint16_t row, mono_ns now,
		    struct pm_view_worker *ret);
	/* false: no such row, or absent. */
unsigned pm_view_rows(const struct pm_view *view);              /* ask for 0 .. that - 1 */

/* A process as the roster tells it. */
bool pm_view_source(const struct pm_view *view, unsigned i, struct roster_source *ret);
	/* Where members are found.  i < ROSTER_SOURCES; false: empty. */
bool pm_view_roster(const struct pm_view *view, unsigned i, struct roster_entry *ret);
	/* i < ROSTER_MAX; false: empty. */
mono_ns pm_view_heartbeat(const struct pm_view *view, enum process_role role, uint32_t incarnation);
	/* 0: its segment is not in view. */
const struct pm_view_process *pm_view_process(const struct pm_view *view, enum process_role role,
					      uint32_t incarnation);    /* a live one; NULL */

/* Journals. */
typedef bool pm_view_record_f(void *arg, const struct pm_view_process *from, const void *record,
			      size_t len);
void pm_view_journals(const struct pm_view *view, enum process_role role, pm_view_record_f *f,
		      void *arg);
	/* Every record still there, of live and kept dead processes of that role, each journal
	 * oldest first; until f says false. */
