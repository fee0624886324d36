/* actors/supervisor/reload.h -- which policy process is asked; how generations follow each other.
 *
 * Pure: events in, actions out; no clock, no descriptor, no process.  The supervisor performs the
 * actions in order and feeds what comes of them back.
 *
 *      IDLE --wanted--> LOADING --ready, reached by every live ingress--> SWITCHING
 *        ^                 | refused: the old generation stays                | every live
 *        |                 v                                                  v ingress said so
 *        +---------------- + <---probation over, or a new reload--- PROBATION +
 *                                         a second death: SWITCHING back to the old generation
 *
 * Rules (each has a property in tests/unit/test_reload.c):
 *  1 OPEN only when every live ingress has acknowledged that very process; one born after the
 *    switch began has no old stream and counts as acknowledged.
 *  2 A process once opened is never activated again.  Rollback goes to the old generation's
 *    unasked standby, else to a fresh process of it.
 *  3 The death of the asked process is the same switch: ingresses told of a standby move by
 *    themselves and acknowledge, perhaps before its death is known here; the others get ACTIVATE.
 *  4 DRAIN only after all live ingresses acknowledged; one that does not within 2 s is hung:
 *    killed.
 *  5 A reload wanted while one is under way is served afterwards, once; in probation it ends the
 *    probation as success.
 *  6 A reload starts one process; its standby comes, and the old standby goes, when the old asked
 *    process has ended: on few cores each start beside a switch is felt by requests.
 *  7 Rollback only when a second asked process of the new generation died while switching or in
 *    probation.
 *  8 STOP ends what waits and what loads.  A switch that has begun goes on: some of the ingresses
 *    ask by the new generation already.
 *
 * Incarnations are given here: every process of a run takes the next one.
 * Threads    one.  Cost: microseconds; runs at births, deaths, reloads and a tick.
 */
#pragma once
#include <stdbool.h>
#include "shm/roster.h"

#ifndef RELOAD_POLICIES                 /* a model of the switch takes smaller tables */
#define RELOAD_POLICIES  32u            /* policy processes alive at once, draining ones too */
#define RELOAD_INGRESSES 64u            /* bits of reload_policy.reach */
#endif
#define RELOAD_ACTIONS   512u

struct reload_settings {
	unsigned standby;                       /* spare policy processes of the asked generation */
	mono_ns load_deadline_ns;               /* birth to ready */
	mono_ns probation_ns;
};

enum reload_event_type {
	RELOAD_WANTED = 1,      /* SIGHUP or a control request */
	RELOAD_LOADED,          /* answer to LOAD: generation, settings; rows and CONFIG exist */
	RELOAD_NOT_LOADED,      /* answer to LOAD: the configuration was refused */
	RELOAD_INGRESS_READY,   /* ingress */
	RELOAD_INGRESS_GONE,    /* ingress */
	RELOAD_POLICY_READY,    /* policy */
	RELOAD_POLICY_FAILED,   /* policy: said why it cannot serve this configuration; will exit */
	RELOAD_POLICY_GONE,     /* policy */
	RELOAD_REACHABLE,       /* ingress, policy */
	RELOAD_ACTIVE,          /* ingress, policy */
	RELOAD_HOLE,            /* policy: skipped a number */
	RELOAD_STOP,            /* nothing new comes into force: what waits or loads does not */
	RELOAD_TICK,
};

struct reload_event {
	enum reload_event_type type;
	uint32_t ingress, policy;               /* incarnations */
	uint32_t generation;                    /* LOADED */
	struct reload_settings settings;        /* LOADED */
};

enum reload_action_type {
	RELOAD_DO_LOAD = 1,     /* check the files; then RELOAD_LOADED or RELOAD_NOT_LOADED */
	RELOAD_DO_SPAWN,        /* generation, policy: start that process */
	RELOAD_DO_ACTIVATE,     /* ingress, generation, policy */
	RELOAD_DO_STANDBY,      /* ingress, generation, policy; 0: none */
	RELOAD_DO_OPEN,         /* generation, policy */
	RELOAD_DO_DRAIN,        /* policy */
	RELOAD_DO_KILL_POLICY,  /* policy, why */
	RELOAD_DO_KILL_INGRESS, /* ingress, why */
	RELOAD_DO_SERVING,      /* generation is in force, old was: every live ingress has
				 * acknowledged */
	RELOAD_DO_REFUSE,       /* generation, why: it did not come up; the old one serves on */
	RELOAD_DO_ROLLED_BACK,  /* generation: in force again */
	RELOAD_DO_SETTLED,      /* probation over: generation stays */
};

struct reload_action {
	enum reload_action_type type;
	uint32_t ingress, policy, generation;
	uint32_t old;                           /* SERVING: the one before; 0: a first start */
	const char *why;                        /* static text */
};

struct reload_actions {
	struct reload_action list[RELOAD_ACTIONS];
	unsigned n;
};

struct reload_policy {
	uint32_t incarnation;                   /* 0: free entry */
	uint32_t generation;
	bool ready, asked, opened, draining, killed;
	uint64_t reach;                         /* bit per ingress entry that has probed it */
	mono_ns born_ns, drained_ns;
};

struct reload_ingress {
	uint32_t incarnation;                   /* 0: free entry */
	uint32_t asking;                        /* policy it acknowledged last; 0 none */
	uint32_t told;                          /* policy it is to ask */
	uint32_t standby;                       /* policy it moves to by itself; 0 none */
	uint32_t perhaps; /* its standby when ACTIVATE was said: it may have moved there
			   * and away again before it heard; 0 once it answered */
	bool by_itself;                         /* told moved on without ACTIVATE */
	bool killed;
	mono_ns ready_ns, told_ns;
};

struct reload {
	enum reload_state state;
	bool pending, rolling_back;
	uint32_t last_incarnation;              /* given last; reload_incarnation() */
	uint32_t serving;                       /* in force; 0: none yet */
	uint32_t generation;                    /* whose process is to be asked */
	uint32_t next;                          /* LOADING: the new one, 0 until loaded */
	uint32_t old;                           /* SWITCHING, PROBATION: to roll back to; 0 none */
	uint32_t want;                          /* policy to ask; 0: nobody is there */
	bool settled;                           /* want was acknowledged by all and opened */
	unsigned loads;                         /* processes started for `next` */
	unsigned deaths;                        /* of asked processes since the switch */
	struct reload_settings settings, next_settings, old_settings;
	mono_ns loading_ns, want_ns, probation_until_ns;
	mono_ns respawn_ns, backoff_ns;
	struct reload_policy policy[RELOAD_POLICIES];
	struct reload_ingress ingress[RELOAD_INGRESSES];
};

void reload_init(struct reload *m);
uint32_t reload_incarnation(struct reload *m);          /* next one, unique in this run, from 1 */
void reload_step(struct reload *m, mono_ns now, const struct reload_event *event,
		 struct reload_actions *ret);
	/* ret is emptied first.  Unknown incarnations are ignored: late words of the dead. */
bool reload_busy(const struct reload *m);
	/* Something waits for time: tick every 20 ms; otherwise once a second is enough. */
bool reload_all_ask(const struct reload *m);            /* each ready ingress has somebody to ask */
uint32_t reload_standby(const struct reload *m);        /* the process ready to take over; 0 none */
const char *reload_state_name(enum reload_state state);
