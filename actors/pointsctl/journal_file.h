/* actors/pointsctl/journal_file.h -- recorded journals: the file of `journal record`.
 *
 *      header 64 | entry, entry, ...                       little-endian, 8-aligned
 *      entry     head 16 | payload, padded with zeros to 8
 *
 * Kinds      RECORD  a journal record as it stood in its ring (journal.h): header 64 and payload
 *            NAME    journal_file_name: who a row number is; comes before the records that use it,
 *                    again when it changes
 *            LOST    u64: so many bytes of this process's ring were overwritten before we read them
 * Order      by process as read; records of one process in order.  Join by {request id, ask}.
 * Version    the header names the layouts of file and of journal records; a reader refuses others.
 * Cut        a file whose writer was killed ends inside an entry: all before it is good.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "shm/journal.h"
#include "shm/process.h"

#define JOURNAL_FILE_MAGIC "PMJRNL1"    /* 8 bytes with the NUL */
#define JOURNAL_FILE_LAYOUT 1u
#define JOURNAL_FILE_NAMES 65536u       /* row numbers are 16 bits */

struct journal_file_header {
	char magic[8];
	uint32_t layout;                        /* JOURNAL_FILE_LAYOUT */
	uint32_t records;                       /* PROCESS_LAYOUT: of the records in it */
	wall_ns started;
	uint64_t pad[5];
};
_Static_assert(sizeof(struct journal_file_header) == 64, "journal_file_header");

enum journal_file_kind { JOURNAL_FILE_RECORD = 1, JOURNAL_FILE_NAME, JOURNAL_FILE_LOST };

struct journal_file_entry {
	uint32_t len;                           /* of the payload, without padding */
	uint8_t kind, role;                     /* role: enum process_role */
	uint16_t index;
	uint32_t incarnation, generation;       /* generation: policy processes only */
};
_Static_assert(sizeof(struct journal_file_entry) == 16, "journal_file_entry");

struct journal_file_name {
	uint32_t row_gen;
	uint16_t row, rank;
	char set[64], member[64], model[128];   /* NUL inside */
};
_Static_assert(sizeof(struct journal_file_name) == 264, "journal_file_name");
