/* actors/policy/aside: large bodies are read beside the loop, in turns, while they are there. */
#include <criterion/criterion.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "actors/policy/aside.h"

#define LARGE (8u << 20)

static struct view_ingress first = {.incarnation = 5}, second = {.incarnation = 6};
static const uint8_t alice[16] = {1}, bob[16] = {2};

static struct view_ingress *left;
static unsigned n_left;

static void
let_go(struct view_ingress *ingress)
{
	left = ingress;
	n_left++;
}

/* {"model":"m","prompt":"aaa.."} of that many bytes. */
static struct slice
body_of(size_t len)
{
	static const char head[] = "{\"model\":\"m\",\"prompt\":\"";
	char *p = malloc(len);

	cr_assert(p);
	memset(p, 'a', len);
	memcpy(p, head, sizeof head - 1);
	memcpy(p + len - 2, "\"}", 2);
	return (struct slice){p, len};
}

static void
collect(struct aside *a, struct token_key *ret_key, bool *ret_dropped)
{
	while (!aside_collect(a, ret_key, ret_dropped)) {
		struct pollfd fds[ASIDE_THREADS];

		for (unsigned i = 0; i < ASIDE_THREADS; i++)
			fds[i] = (struct pollfd){.fd = zsock_fd(aside_socket(a, i)),
						 .events = POLLIN};
		cr_assert_gt(poll(fds, ASIDE_THREADS, 20000), 0);
	}
}

static struct aside_job *
read_one(struct aside *a, struct view_ingress *from, uint32_t slot, struct slice body,
	 const uint8_t client[16])
{
	struct aside_job *j = aside_read(a, from, slot, 1, OPENAI_COMPLETIONS, body, client);

	cr_assert(j);
	return j;
}

Test(aside, a_body_is_read_elsewhere_and_its_view_kept_until_it_is_done_with)
{
	struct slice body = body_of(LARGE);
	struct aside *a;
	struct token_key key, mine = aside_key(&first, 3, 1);
	struct aside_job *j;
	bool dropped;

	cr_assert_eq(aside_new(&a, NULL, let_go), 0);
	j = read_one(a, &first, 3, body, alice);
	cr_assert_eq(j->state, ASIDE_READING);
	cr_assert_eq(aside_find(a, &first, 3, 1), j);
	cr_assert_null(aside_find(a, &first, 3, 2), "another life of that slot");
	cr_assert_null(aside_find(a, &second, 3, 1));
	collect(a, &key, &dropped);
	cr_assert(!dropped && key.lo == mine.lo && key.hi == mine.hi);
	cr_assert_eq(j->state, ASIDE_READ);
	cr_assert_eq(j->read, 0);
	cr_assert(j->may_hit);
	cr_assert_str_eq(j->view.model, "m");
	cr_assert_eq(j->view.prompt_span.len_bytes, body.len - 22 - 1);
	aside_done(a, j);
	cr_assert_null(aside_find(a, &first, 3, 1));
	aside_free(&a);
	free((void *)(uintptr_t)body.p);
}

Test(aside, a_body_is_searched_for_tags_where_it_is_read)
{
	struct manifest_pattern pattern = {.validator = MANIFEST_VALIDATOR_EMAIL, .minimum = 1};
	struct manifest_tag tag = {.patterns = &pattern, .n_patterns = 1};
	struct slice body = body_of(LARGE);
	struct aside_job *j;
	struct tags *tags;
	struct aside *a;
	struct token_key key;
	uint32_t which;
	bool dropped;
	char why[200];

	memcpy((char *)(uintptr_t)body.p + LARGE / 2, "@b.com,", 7);
	cr_assert_eq(tags_new(&tags, &tag, 1, &which, why, sizeof why), 0);
	cr_assert_eq(aside_new(&a, NULL, let_go), 0);
	cr_assert_eq(aside_tagging(a, tags), 0);
	j = read_one(a, &first, 3, body, alice);
	collect(a, &key, &dropped);
	cr_assert(j->tagged);
	cr_assert_eq(j->tags.tags, 1);
	cr_assert_eq(j->tags.unknown, 0);
	aside_done(a, j);
	aside_free(&a);
	tags_free(&tags);
	free((void *)(uintptr_t)body.p);
}

Test(aside, clients_take_turns_however_much_one_of_them_has_waiting)
{
	struct slice body = body_of(LARGE);
	struct aside_job *of_alice[6], *of_bob;
	struct aside *a;
	struct token_key key;
	bool dropped;

	cr_assert_eq(aside_new(&a, NULL, let_go), 0);
	for (uint32_t i = 0; i < 6; i++)
		of_alice[i] = read_one(a, &first, i + 1, body, alice);
	of_bob = read_one(a, &first, 9, body, bob);
	for (unsigned i = 0; i < 5; i++)
		cr_assert_lt(of_alice[i]->turn, of_alice[i + 1]->turn);
	cr_assert_leq(of_bob->turn, of_alice[1]->turn, "behind those that have begun");
	/* Two were begun before it came; the two that end next begin it, and one more. */
	for (unsigned i = 0; i < 4; i++)
		collect(a, &key, &dropped);
	cr_assert(of_bob->running || of_bob->state == ASIDE_READ);
	cr_assert(of_alice[5]->state == ASIDE_READING);
	for (unsigned i = 4; i < 7; i++)
		collect(a, &key, &dropped);
	for (unsigned i = 0; i < 6; i++)
		cr_assert_eq(of_alice[i]->state, ASIDE_READ);
	aside_free(&a);
	free((void *)(uintptr_t)body.p);
}

Test(aside, bytes_that_are_asked_back_are_given_back_when_nobody_reads_them)
{
	struct slice body = body_of(LARGE);
	struct token_key key, told = {0};
	struct aside *a;
	bool dropped, running;

	cr_assert_eq(aside_new(&a, NULL, let_go), 0);
	for (uint32_t slot = 1; slot <= 4; slot++)
		read_one(a, &first, slot, body, alice);
	cr_assert(!aside_drop(a, &first, 4, &told), "it had not begun: nobody reads it");
	cr_assert_null(aside_find(a, &first, 4, 1));
	cr_assert(!aside_drop(a, &first, 7, &told), "nobody ever did");
	running = aside_find(a, &first, 1, 1)->running;
	cr_assert(running, "the loop has not heard that it ended");
	cr_assert(aside_drop(a, &first, 1, &told));
	cr_assert_null(aside_find(a, &first, 1, 1));
	cr_assert(aside_drop(a, &first, 1, &told), "asked back twice: still so");
	for (unsigned n = 0, gone = 0; n < 3; n++) {
		collect(a, &key, &dropped);
		if (!dropped)
			continue;
		cr_assert_eq(gone++, 0);
		cr_assert(key.lo == told.lo && key.hi == told.hi);
		cr_assert(!aside_drop(a, &first, 1, &told));
	}
	aside_free(&a);
	free((void *)(uintptr_t)body.p);
}

Test(aside, an_ingress_that_dies_is_let_go_when_no_thread_reads_it_and_nobody_waits_for_that)
{
	struct slice body = body_of(LARGE), other = body_of(LARGE);
	struct aside *a;
	struct token_key key;
	bool dropped;

	cr_assert_eq(aside_new(&a, NULL, let_go), 0);
	for (uint32_t slot = 1; slot <= 4; slot++)
		read_one(a, &first, slot, body, alice);
	read_one(a, &second, 1, other, bob);
	aside_leave(a, &first);
	cr_assert_eq(n_left, 0, "two threads read it");
	cr_assert_null(aside_find(a, &first, 1, 1));
	for (unsigned n = 0; n < 2;) {
		cr_assert_eq(n_left, 0);
		collect(a, &key, &dropped);
		n += dropped;
	}
	cr_assert_eq(n_left, 1);
	cr_assert_eq(left, &first);
	memset((void *)(uintptr_t)body.p, 0, body.len); /* as unmapped as a test can make it */
	free((void *)(uintptr_t)body.p);
	while (aside_find(a, &second, 1, 1)->state != ASIDE_READ)
		collect(a, &key, &dropped);
	aside_leave(a, &second);
	cr_assert_eq(n_left, 2, "nobody reads it");
	cr_assert_null(aside_find(a, &second, 1, 1));
	aside_free(&a);
	free((void *)(uintptr_t)other.p);
}

Test(aside, when_all_has_ended_nobody_reads)
{
	struct slice body = body_of(LARGE);
	struct aside *a;

	cr_assert_eq(aside_new(&a, NULL, let_go), 0);
	for (uint32_t slot = 1; slot <= 3; slot++)
		read_one(a, &first, slot, body, alice);
	read_one(a, &second, 1, body, bob);
	aside_leave(a, &first);
	aside_end(a);
	cr_assert_eq(n_left, 1);
	memset((void *)(uintptr_t)body.p, 0, body.len);
	free((void *)(uintptr_t)body.p);
	cr_assert_null(aside_find(a, &second, 1, 1));
	aside_free(&a);
}

Test(aside, what_no_thread_comes_to_is_given_up_and_what_one_reads_is_not)
{
	struct slice body = body_of(LARGE);
	struct aside *a;
	struct token_key key;
	bool dropped;

	cr_assert_eq(aside_new(&a, NULL, let_go), 0);
	for (uint32_t slot = 1; slot <= 4; slot++)
		read_one(a, &first, slot, body, alice);
	cr_assert(!aside_late(a, clock_mono(), &key));
	for (unsigned n = 0; n < 2; n++) {
		cr_assert(aside_late(a, clock_mono() + ASIDE_LATE_NS, &key));
		cr_assert_gt((uint32_t)key.lo, 2, "the first two have begun");
	}
	cr_assert(!aside_late(a, clock_mono() + ASIDE_LATE_NS, &key));
	for (unsigned n = 0; n < 2; n++)
		collect(a, &key, &dropped);
	cr_assert_eq(aside_find(a, &first, 1, 1)->state, ASIDE_READ);
	cr_assert_null(aside_find(a, &first, 4, 1));
	aside_free(&a);
	free((void *)(uintptr_t)body.p);
}
