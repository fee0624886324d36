/* tests/unit/test_probes.c -- the probes, and what an answer to one says. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <string.h>

#include "actors/common/prompt/probes.h"

Test(probes, each_is_json_with_the_models_name_and_one_form_of_prompt)
{
	char body[PROBES_BODY_MAX];

	cr_assert_geq(probes_count(), 50);
	for (unsigned i = 0; i < probes_count(); i++) {
		const struct probes_one *p = probes_at(i);
		ssize_t n = probes_body(i, "a \"model\"\n", body, sizeof body);
		json_error_t error;
		json_t *o;

		cr_assert_gt(n, 0, "%s", p->name);
		o = json_loadb(body, (size_t)n, JSON_REJECT_DUPLICATES, &error);
		cr_assert_not_null(o, "%s: %s at %d", p->name, error.text, error.position);
		cr_assert_str_eq(json_string_value(json_object_get(o, "model")), "a \"model\"\n");
		if (p->route == OPENAI_CHAT)
			cr_assert_gt(json_array_size(json_object_get(o, "messages")), 0);
		else
			cr_assert(json_is_string(json_object_get(o, "prompt")), "%s", p->name);
		cr_assert(p->route == OPENAI_CHAT || p->route == OPENAI_COMPLETIONS);
		cr_assert_eq(json_object_get(o, "messages") != NULL, p->route == OPENAI_CHAT);
		json_decref(o);
	}
}

Test(probes, no_two_are_alike)
{
	for (unsigned i = 0; i < probes_count(); i++)
		for (unsigned k = 0; k < i; k++) {
			cr_assert_str_neq(probes_at(i)->name, probes_at(k)->name);
			cr_assert_str_neq(probes_at(i)->members, probes_at(k)->members);
		}
}

Test(probes, a_body_without_room_is_refused)
{
	char body[32], name[2000];

	cr_assert_lt(probes_body(0, "m", body, sizeof body), 0);
	memset(name, '"', sizeof name - 1);
	name[sizeof name - 1] = 0;
	cr_assert_lt(probes_body(0, name, body, sizeof body), 0);
}

static struct probes_compared
compare(enum prompt_end end, const uint32_t *ours, size_t n, bool is_refused,
	const uint32_t *theirs, size_t m)
{
	const struct prompt_one one = {.ids = ours, .n = n};
	const struct prompt_made made = {.end = end, .prompts = &one,
					 .n_prompts = end == PROMPT_REFUSED ||
						      end == PROMPT_UNKNOWN ? 0 : 1};
	const struct probes_theirs said = {.refused = is_refused, .ids = theirs, .n = m};
	struct probes_compared c;

	probes_compare(&made, &said, &c);
	return c;
}

Test(probes, equal_ids_agree_and_the_first_other_id_is_told)
{
	static const uint32_t a[] = {1, 2, 3}, b[] = {1, 9, 3};
	struct probes_compared c = compare(PROMPT_EXACT, a, 3, false, a, 3);

	cr_assert_eq(c.verdict, PROBES_AGREE);
	c = compare(PROMPT_EXACT, a, 3, false, b, 3);
	cr_assert_eq(c.verdict, PROBES_DIFFER);
	cr_assert_eq(c.at, 1);
	cr_assert_eq(c.ours, 2);
	cr_assert_eq(c.theirs, 9);
	c = compare(PROMPT_EXACT, a, 3, false, a, 2);
	cr_assert_eq(c.verdict, PROBES_DIFFER);
	cr_assert_eq(c.at, 2);
	cr_assert_eq(c.theirs, UINT32_MAX, "it ended");
	c = compare(PROMPT_EXACT, a, 0, false, NULL, 0);
	cr_assert_eq(c.verdict, PROBES_AGREE, "an empty prompt on both sides");
}

Test(probes, what_both_refuse_agrees_and_what_only_we_refuse_differs)
{
	static const uint32_t a[] = {1};

	cr_assert_eq(compare(PROMPT_REFUSED, NULL, 0, true, NULL, 0).verdict, PROBES_AGREE);
	cr_assert_eq(compare(PROMPT_REFUSED, NULL, 0, false, a, 1).verdict, PROBES_DIFFER);
	cr_assert_eq(compare(PROMPT_EXACT, a, 1, true, NULL, 0).verdict, PROBES_REFUSED);
	cr_assert_eq(compare(PROMPT_UNKNOWN, NULL, 0, false, a, 1).verdict, PROBES_UNKNOWN);
	cr_assert_eq(compare(PROMPT_PREFIX, a, 1, false, a, 1).verdict, PROBES_UNKNOWN);
}

Test(probes, only_a_refusal_of_the_prompt_itself_is_one)
{
	cr_assert(probes_refusal(400));
	cr_assert(probes_refusal(422));
	cr_assert_not(probes_refusal(401));
	cr_assert_not(probes_refusal(404));
	cr_assert_not(probes_refusal(500));
}
