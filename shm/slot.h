/* shm/slot.h -- the live requests of one ingress incarnation.
 *
 *      segment header | slot 256 x capacity (slot id 1 is the first; 0 is no slot)
 *
 *      word    generation 32 | ask 16 | state 8 | deaths 8
 *
 * Writers    the owning ingress; after its exit the supervisor.
 * Readers    policy: head and body through the offsets, only between a question it was asked and
 *            the end it owes (choose, reject, cancelled); admin and pointsctl: words only.
 * Order      W1 release-store of word with state ASKED after every input field; A1 acquire-load of
 *            word by policy, which refuses a question whose {generation, ask} is not current.
 * Stores     a new life: word {generation + 1, FREE}, release fence, inputs, word READ (release);
 *            head, body and hash before ASKED; answer and charge fields while CHOSEN .. END; word
 *            FREE last, after its region went back.
 * Crash      the ingress stops before: READ: the slot reads as free; ASKED: nobody was asked;
 *            any later word: readers see the state before, with fields that may be newer (each is
 *            one plausible word; only the ingress decides by them).  Policy answers what it was
 *            asked, to nobody.  The supervisor frees all (slots_clear) after `gone`.
 * Bytes      [head_off, +head_len) and [body_off, +body_len) of the arena of the same incarnation
 *            are immutable from the first ASKED until every policy process that was asked has
 *            chosen, rejected, answered `cancelled`, or exited.
 */
#pragma once
#include "shm/segment.h"

#define SLOTS_LAYOUT    2u
#define SLOTS_DEFAULT   16384u

enum slot_state {
	SLOT_FREE = 0,
	SLOT_READ,
	SLOT_ASKED,
	SLOT_HELD,
	SLOT_CHOSEN,
	SLOT_SENT,
	SLOT_STREAM,
	SLOT_END
};
enum slot_phase { PHASE_NONE = 0, PHASE_PREFILL, PHASE_DECODE };
enum slot_peer {
	PEER_TRUSTED = 1,                       /* the address is what a trusted peer said */
	PEER_TLS = 2,                           /* the connection is a TLS one */
	PEER_UNIX = 4,                          /* came by a unix socket: no address */
	PEER_BELIEVED = 8,                      /* a trusted peer sent it: so are its fields of
						   tenants and tags */
};
#define SLOT_RESERVES   3u              /* one a rate of shm/limit.h */
enum reserve_state { RESERVE_NONE = 0, RESERVE_NOTED, RESERVE_TAKEN };

struct slot {
	_Atomic uint64_t word;
	uint64_t request_id;                    /* incarnation << 40 | n; shown as 16 hex digits */
	mono_ns arrival_ns;
	mono_ns hold_deadline_ns;               /* absolute, written once; 0 never held */
	uint64_t head_off, body_off, hashes_off;/* arena bytes */
	uint32_t head_len, body_len;
	uint8_t peer_addr[16];                  /* IPv6, or v4-mapped */
	uint16_t peer_port, listener, route;    /* route: enum openai_route */
	uint8_t method, peer_flags;             /* enum slot_peer */
	int32_t priority;
	uint32_t tenant, policy_gen, policy_inc;/* from the applied answer */
	uint16_t row;                           /* ROW_NONE: none */
	uint8_t phase;                          /* enum slot_phase: what is charged */
	uint8_t attempt;
	uint32_t row_gen, prefill, ctx, n_hashes, prompt; /* tokens: exactly what to release */
	mono_ns chosen_ns, dispatched_ns, first_byte_ns, last_byte_ns;
	struct {
		uint32_t limit, state;          /* enum reserve_state */
		uint64_t amount;        /* ns of its bucket: limit_ns() */
	} reserve[SLOT_RESERVES];
	uint64_t hold_key, body_hash;           /* body_hash: XXH3 of the body, for poison */
	uint64_t tenant_uid;                    /* limit.h; who asks; 0 nobody */
	uint64_t pad[3];
};
_Static_assert(sizeof(struct slot) == 256, "slot");
_Static_assert(offsetof(struct slot, head_off) == 32, "slot");
_Static_assert(offsetof(struct slot, peer_addr) == 64, "slot");
_Static_assert(offsetof(struct slot, priority) == 88, "slot");
_Static_assert(offsetof(struct slot, row) == 104, "slot");
_Static_assert(offsetof(struct slot, chosen_ns) == 128, "slot");
_Static_assert(offsetof(struct slot, reserve) == 160, "slot");
_Static_assert(offsetof(struct slot, tenant_uid) == 224, "slot");

static inline uint64_t
slot_word(uint32_t generation, uint16_t ask, uint8_t state, uint8_t deaths)
{
	return (uint64_t)generation << 32 | (uint64_t)ask << 16 | (uint64_t)state << 8 | deaths;
}
static inline uint32_t slot_generation(uint64_t word) { return (uint32_t)(word >> 32); }
static inline uint16_t slot_ask(uint64_t word) { return (uint16_t)(word >> 16); }
static inline uint8_t slot_state(uint64_t word) { return (uint8_t)(word >> 8); }
static inline uint8_t slot_deaths(uint64_t word) { return (uint8_t)word; }
const char *slot_state_name(unsigned state);

struct slots {                          /* process-local view */
	struct segment seg;
	struct slot *slot;                      /* slot[0] is unused: ids are subscripts */
	uint32_t capacity;                      /* highest id */
};

int slots_create(struct slots *ret, uint32_t index, uint32_t incarnation,
		 uint32_t capacity);                        /* S */
int slots_attach(struct slots *ret, int fd, bool writable); /* takes fd */
void slots_detach(struct slots *slots);
void slots_clear(struct slots *slots);
	/* S, when the owner is dead: every slot free.  Reservations noted there are given back
	 * first. */
