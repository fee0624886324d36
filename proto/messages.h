/* proto/messages.h -- pack and unpack the messages of messages.def.
 *
 * From the one list: struct msg_<name>, struct rec_<name>, enum msg_id, and a descriptor table
 * from which one generic packer and unpacker work.  Frames are msgpack arrays [id, fields...].
 *
 * Errors     0 / negative errno; an unpacker never asserts and never allocates.
 * Ownership  slices (str, bin) of an unpacked message point into the frame; those of a message to
 *            pack are borrowed for the call.
 * Cost       under 1 us for an answer with 4 candidates plus a copy of the hashes.  Any thread.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include "proto/slice.h"

#define MESSAGES_ABI 2u /* bumped when a meaning changes; birth and hello refuse others */
#define MESSAGE_MAX     (1u << 20)      /* bytes of a frame; larger ones are refused unread */

enum gone_cause {                       /* why a process died, as far as requests are concerned */
	GONE_UNSAID = 0,
	GONE_ENDED,                             /* as it was asked to */
	GONE_CRASHED,   /* by itself, or killed by us because it hung: a request may be the cause */
	GONE_KILLED,                            /* from outside: an operator, the kernel's OOM */
};
enum answer_verdict { VERDICT_CHOOSE = 1, VERDICT_HOLD, VERDICT_REJECT };
enum token_source {
	TOKENS_NONE = 0,
	TOKENS_IDS,
	TOKENS_TOKENIZE,
	TOKENS_NATIVE           /* made here, from the model's own files */
}; /* how the prompt became tokens */
enum tap_outcome {                      /* of an event, or of a batch */
	TAP_BEGUN = 0,                          /* no event: it is told from now on */
	TAP_APPLIED, TAP_KEPT,                  /* kept until its parent is known */
	TAP_SKIPPED, TAP_FAILED,                /* not ours to apply; could not be read */
	TAP_OUTCOMES
};

#define MSG_TYPE_u8  uint8_t
#define MSG_TYPE_u16 uint16_t
#define MSG_TYPE_u32 uint32_t
#define MSG_TYPE_u64 uint64_t
#define MSG_TYPE_i32 int32_t
#define MSG_TYPE_str struct slice
#define MSG_TYPE_bin struct slice

#define RECORD(name, doc)                       struct rec_##name { uint8_t none;
#define RECORD_END(name)                        };
#define MSG(id, name, from, to, doc)                                                               \
	struct msg_##name {                                                                        \
		uint8_t none; /* never sent; some have no field */
#define MSG_END(name)                           };
#define FIELD(owner, type, name, unit, doc)     MSG_TYPE_##type name;
#define LIST(owner, record, name, max, doc)     uint32_t n_##name; struct rec_##record name[max];
#include "proto/messages.def"

enum msg_id {
	MSG_none = 0,
#define MSG(id, name, from, to, doc)            MSG_##name = id,
#include "proto/messages.def"
	MSG_ID_MAX = 128
};

union msg_any {
#define MSG(id, name, from, to, doc)            struct msg_##name name;
#include "proto/messages.def"
};

struct msg {                            /* one unpacked message */
	enum msg_id id;
	union msg_any u;
};

ssize_t msg_pack(enum msg_id id, const void *msg, void *buf, size_t cap);
	/* Bytes written; -EMSGSIZE: does not fit; -EINVAL: no such message or a list over its max.
	 */
int msg_unpack(const void *frame, size_t len, struct msg *ret);
	/* 0; -EBADMSG: not one sane msgpack array of that shape, a number out of its type's range,
	 * short,
	 * a list over its max; -ENOMSG: unknown id (ret->id holds it). */
const char *msg_name(enum msg_id id);           /* "unknown" */
