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
