/* tests/unit/test_page.c -- the Prometheus page. */
#include "tests/unit/view_world.h"

#include <stdio.h>
#include <stdlib.h>

#include "actors/admin/page.h"

static char *
page_of(const struct pm_view *view)
{
	char *text = NULL;
	size_t len = 0;
	FILE *to = open_memstream(&text, &len);

	page_print(to, view);
	fclose(to);
	return text;
}

/* Every sample follows the TYPE of its own name, and no series is there twice. */
static void
well_formed(const char *page)
{
	char *copy = strdup(page), *save = NULL, type[128] = "";
	const char *seen[4096];
	unsigned n = 0;

	for (char *line = strtok_r(copy, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		if (strncmp(line, "# TYPE ", 7) == 0) {
			sscanf(line + 7, "%127s", type);
			continue;
		}
		if (line[0] == '#')
			continue;
		size_t name = strcspn(line, "{ ");

		cr_assert(strlen(type) == name && strncmp(line, type, name) == 0, "%s", line);
		*strrchr(line, ' ') = 0;
		for (unsigned i = 0; i < n; i++)
			cr_assert_str_neq(seen[i], line);
		cr_assert(n < 4096);
		seen[n++] = line;
	}
	cr_assert(n > 50);
	free(copy);
}

Test(page, every_counter_of_a_role_is_there_once_and_what_is_unknown_is_left_out)
{
	struct view_world w;
	char *page;

	world_begin(&w);
	count_add(&w.ingress, COUNTER_requests, 41);
	count_set(&w.ingress, COUNTER_slots_used, 2);
	page = page_of(&w.view);
	well_formed(page);
	cr_assert(strstr(page, "\npointsman_requests_total{process=\"ingress\",index=\"0\"} 41\n"));
	cr_assert(strstr(page, "\npointsman_slots_used{process=\"ingress\",index=\"0\"} 2\n"));
	cr_assert_not(strstr(page, "pointsman_requests_total{process=\"policy\""));
	cr_assert(strstr(page,
			 "pointsman_messages_unknown_total{process=\"policy\",index=\"0\"} 0\n"));
	cr_assert(strstr(page,
			 "pointsman_worker_waiting{worker=\"w0\",rank=\"0\",row=\"0\",set=\"set\","
			 "model=\"demo\"} 7\n"));
	cr_assert(strstr(page, "model=\"demo\"} 0.25\n"));
	cr_assert_not(strstr(page, "pointsman_worker_running{"));
	cr_assert(strstr(page,
			 "pointsman_worker_state{worker=\"w1\",rank=\"0\",row=\"1\",set=\"set\","
			 "model=\"demo\",state=\"down\"} 1\n"));
	free(page);
	world_end(&w);
}

Test(page, a_dead_process_keeps_its_count_and_nothing_is_doubled)
{
	struct process_segment next;
	struct view_world w;
	char *page;

	world_begin(&w);
	count_add(&w.ingress, COUNTER_requests, 41);
	pm_view_gone(&w.view, ROLE_INGRESS, WORLD_INGRESS);
	page = page_of(&w.view);
	well_formed(page);
	cr_assert(strstr(page, "\npointsman_requests_total{process=\"ingress\",index=\"0\"} 41\n"));
	free(page);
	cr_assert_eq(process_create(&next, ROLE_INGRESS, 0, 8, 0, 32768), 0);
	world_hand(&w.view, &next.seg, SEGMENT_PROCESS, ROLE_INGRESS, 0, 8);
	count_add(&next, COUNTER_requests, 1);
	page = page_of(&w.view);
	well_formed(page);
	cr_assert(strstr(page, "\npointsman_requests_total{process=\"ingress\",index=\"0\"} 42\n"));
	free(page);
	process_detach(&next);
	world_end(&w);
}

Test(page, a_counter_of_a_newer_build_is_shown_by_what_its_segment_says)
{
	struct counter_text *text;
	struct view_world w;
	char *page;

	world_begin(&w);
	text = &w.ingress.text[COUNTER_END];
	*text = (struct counter_text){.name = "things_done", .type = "counter", .unit = "things"};
	text[1] = (struct counter_text){.name = "no\nname", .type = "gauge", .unit = "bad"};
	memset(&text[2], 'x', sizeof text[2]);
	w.ingress.counter[COUNTER_END] = 12;
	page = page_of(&w.view);
	cr_assert_not(strstr(page, "things_done"));             /* not described yet */
	free(page);
	w.ingress.head->described = COUNTER_END + 3;
	page = page_of(&w.view);
	well_formed(page);
	cr_assert(strstr(page, "\npointsman_other{name=\"things_done\",number=\""));
	cr_assert(strstr(page, "process=\"ingress\",index=\"0\",incarnation=\"3\"} 12\n"));
	cr_assert_not(strstr(page, "no\nname"));
	cr_assert_not(strstr(page, "xxx"));
	free(page);
	world_end(&w);
}

Test(page, every_counter_fits_its_description)
{
	for (unsigned c = 1; c < COUNTER_END; c++) {
		struct counter_text text;

		cr_assert_lt(strlen(counter_info[c].name), sizeof text.name, "%s",
			     counter_info[c].name);
		cr_assert_lt(strlen(counter_info[c].unit), sizeof text.unit, "%s",
			     counter_info[c].name);
	}
}

Test(page, the_index_is_told_by_cause_by_class_and_by_group_of_slots)
{
	struct view_world w;
	uint16_t id;
	char *page;

	world_begin(&w);
	id = index_slot_take(w.writer, 0, 1, INDEX_EXACT, INDEX_OFFLOAD, 16);
	for (uint64_t i = 1; i < 8; i++)
		cr_assert(index_put(w.writer, id, i << 40 | i, NULL, 0));
	index_slot_retire(w.writer, id);
	index_scrub(w.writer, 3);
	cr_assert_not(index_put(w.writer, id, 99, NULL, 0));    /* it is not live */
	page = page_of(&w.view);
	well_formed(page);
	cr_assert(strstr(page, "\npointsman_index_refused_total{cause=\"dead\"} 1\n"));
	cr_assert(strstr(page, "\npointsman_index_refused_total{cause=\"class_1\"} 0\n"));
	cr_assert(strstr(page, "\npointsman_index_pool_used{class=\"1\"} "));
	cr_assert_not(strstr(page, "pointsman_index_pool_used{class=\"0\"}"));  /* has none */
	cr_assert(strstr(page, "\npointsman_index_slots{state=\"retired\",tier=\"offload\","
			 "role=\"exact\"} 1\n"));
	cr_assert(strstr(page, "\npointsman_index_slot_blocks{state=\"retired\",tier=\"offload\","
			 "role=\"exact\"} 4\n"));
	cr_assert(strstr(page, "\npointsman_index_slots{state=\"live\",tier=\"gpu\","
			 "role=\"exact\"} 0\n"));
	cr_assert(strstr(page, "\npointsman_index_scrubbed_total 3\n"));
	cr_assert(strstr(page, "\npointsman_index_slots_free 99\n"));
	free(page);
	world_end(&w);
}

Test(page, names_with_quotes_and_newlines_stay_inside_their_label)
{
	struct view_world w;
	char *page;

	world_begin(&w);
	strcpy(w.rows.text[0].member, "a\"b\\c\nd");
	page = page_of(&w.view);
	well_formed(page);
	cr_assert(strstr(page, "{worker=\"a\\\"b\\\\c\\nd\","));
	free(page);
	world_end(&w);
}

Test(page, what_is_proven_of_tokens_is_there_where_they_are_made_here_and_nowhere_else)
{
	struct view_world w;
	char *page;

	world_begin(&w);
	world_trust(&w, 0, TRUST_MISMATCH, TRUST_PROBES_DIFFER);
	page = page_of(&w.view);
	well_formed(page);
	cr_assert(strstr(page, "\npointsman_worker_tokens_state{worker=\"w0\",rank=\"0\","
			 "row=\"0\",set=\"set\",model=\"demo\",state=\"mismatch\"} 1\n"));
	cr_assert_null(strstr(page, "pointsman_worker_tokens_state{worker=\"w1\""));
	cr_assert(strstr(page, "\npointsman_model_tokens_state{model=\"demo\","
			 "key=\"0000000000000009\",state=\"mismatch\"} 1\n"));
	cr_assert(strstr(page, "\npointsman_worker_tokens_usage_differ_total{worker=\"w0\""));
	free(page);
	world_end(&w);
}
