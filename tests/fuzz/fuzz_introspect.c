/* tests/fuzz/fuzz_introspect.c -- any bytes get an answer, of the request's own form, that reads
 * back: over nothing, and over a worker table and an index with holders in every form.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "actors/admin/introspect.h"
#include "actors/admin/wire.h"
#include "proto/frame.h"

#define SLOTS   100u                    /* more than a word lists */
#define BLOCKS  300u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

static struct pm_view nothing, world;

static void
must(bool good)
{
	if (!good)
		abort();
}

static void
hand(const struct segment *seg, enum segment_kind kind)
{
	struct msg_segment m = {.kind = (uint8_t)kind};

	must(pm_view_segment(&world, &m, segment_readonly_fd(seg)) == 0);
}

int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
	static struct segment index;
	static struct rows rows;
	struct index_writer *w;

	(void)argc;
	(void)argv;
	pm_view_init(&nothing);
	pm_view_init(&world);
	must(rows_create(&rows, 8) == 0);
	for (unsigned i = 0; i < 2; i++) {
		strcpy(rows.text[i].member, i ? "w1" : "w0");
		strcpy(rows.text[i].model, "demo");
		rows.row[i].row_gen = 1;
		rows.row[i].block_tokens = 2;
		rows.row[i].intent = INTENT_SERVE;
	}
	rows.head->count = 2;
	must(index_create(&index, 1000, SLOTS, 7) == 0);
	must(index_writer_open(&w, fcntl(index.fd, F_DUPFD_CLOEXEC, 3)) == 0);
	for (unsigned s = 0; s < SLOTS; s++) {
		uint16_t id = index_slot_take(w, s % 2, 1, s < 2 ? INDEX_EXACT : INDEX_SPECULATIVE,
					      s == 1 ? INDEX_OFFLOAD : INDEX_GPU, 2);

		for (uint64_t b = 1; b <= BLOCKS >> s / 10; b++)
			index_put(w, id, b << 32 | b, NULL, 0);
	}
	index_slot_retire(w, 5);
	hand(&rows.seg, SEGMENT_ROWS);
	hand(&index, SEGMENT_INDEX);
	index_writer_close(&w);
	return 0;
}

static void
ask(const struct pm_view *view, const uint8_t *data, size_t size)
{
	void *answer = NULL;
	size_t len = 0;
	json_t *o = NULL;
	const char *why;

	must(introspect_answer(view, data, size, &answer, &len) == 0);
	must(wire_form_of(answer, len) == wire_form_of(data, size));
	if (wire_form_of(answer, len) == WIRE_MSGPACK)
		must(frame_sane(answer, len));
	if (len <= WIRE_REQUEST_MAX)
		must(wire_decode(answer, len, &o, &why) == 0);
	else if (wire_form_of(answer, len) == WIRE_JSON)
		must((o = json_loadb(answer, len, 0, NULL)) != NULL);
	must(!o || json_is_boolean(json_object_get(o, "ok")));
	json_decref(o);
	free(answer);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	ask(&nothing, data, size);
	ask(&world, data, size);
	return 0;
}
