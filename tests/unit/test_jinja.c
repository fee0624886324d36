/* tests/unit/test_jinja.c -- sentences on the template engine that no golden render says. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "actors/common/prompt/jinja.h"

struct made {
	int r;
	struct jinja_error err;
	char text[4096];
};

static struct jinja_options options;

/* The template rendered with a context given as JSON. */
static struct made
render(const char *source, const char *context)
{
	struct made m = {0};
	struct jinja *jinja = NULL;
	struct bump bump;
	struct text out;
	struct value v;
	const char *why;

	bump_init(&bump, 16u << 20);
	text_init(&out, 1u << 20);
	cr_assert_eq(value_from_json(&bump, slice_str(context), &v, &why, NULL), 0, "%s", context);
	m.r = jinja_compile(slice_str(source), &jinja, &m.err);
	if (m.r == 0)
		m.r = jinja_render(jinja, &v, &options, &bump, &out, &m.err);
	if (m.r == 0)
		(void)snprintf(m.text, sizeof(m.text), "%.*s", (int)out.len, out.p ? out.p : "");
	jinja_free(&jinja);
	text_free(&out);
	bump_free(&bump);
	return m;
}

static void
gives(const char *source, const char *context, const char *text)
{
	struct made m = render(source, context);

	cr_expect_eq(m.r, 0, "%s: %s", source, m.err.text);
	cr_expect_str_eq(m.text, text, "%s: %s", source, m.text);
}

static void
fails(const char *source, const char *context, int code, unsigned line, const char *what)
{
	struct made m = render(source, context);

	cr_expect_eq(m.r, code, "%s: %d %s", source, m.r, m.text);
	cr_expect_eq(m.err.line, line, "%s: line %u", source, m.err.line);
	cr_expect(strstr(m.err.text, what), "%s: %s", source, m.err.text);
}

Test(jinja, an_error_names_its_line_and_pythons_reason)
{
	fails("a\n{{ 1 +\n 'x' }}", "{}", -EINVAL, 2, "TypeError");
	fails("\n\n{{ x.y }}", "{}", -EINVAL, 3, "UndefinedError: 'x' is undefined");
	fails("{{ raise_exception('no ' ~ x) }}", "{\"x\": 1}", -EINVAL, 1, "TemplateError: no 1");
	fails("{% if a %}\n{% endfor %}", "{}", -EBADMSG, 2, "endfor");
	fails("{{ [].append(1) }}", "{}", -EINVAL, 1, "SecurityError");
}

Test(jinja, an_unknown_filter_fails_when_compiled_but_within_if_only_when_it_runs)
{
	fails("{{ x|from_json }}", "{}", -EBADMSG, 1, "No filter named 'from_json'");
	gives("{% if x %}{{ x|from_json }}{% endif %}ok", "{}", "ok");
	fails("{% if x %}{{ x|from_json }}{% endif %}", "{\"x\": 1}", -EINVAL, 1, "from_json");
	fails("{% if x %}{% for y in x %}{{ y is nothing }}{% endfor %}{% endif %}", "{}", -EBADMSG,
	      1, "No test named 'nothing'");
}

Test(jinja, what_cannot_be_loaded_is_refused)
{
	fails("{% include 'x' %}", "{}", -EBADMSG, 1, "not supported");
	fails("{% extends 'x' %}", "{}", -EBADMSG, 1, "not supported");
	fails("{% import 'x' as y %}", "{}", -EBADMSG, 1, "not supported");
}

Test(jinja, endless_templates_end)
{
	atomic_bool stop = true;

	options.max_steps = 100000;
	fails("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
	      "{}", -E2BIG, 1, "too long");
	options.max_steps = 0;
	options.stop = &stop;
	fails("{% for i in range(99999) %}{% for k in range(99999) %}{% endfor %}{% endfor %}",
	      "{}", -E2BIG, 1, "stopped");
	options.stop = NULL;
	fails("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "{}", -E2BIG, 1, "RecursionError");
	fails("{{ 'x' * 4000000000 }}", "{}", -ENOMEM, 1, "memory");
	fails("{% for i in range(999) %}{{ 'x' * 10000 }}{% endfor %}", "{}", -ENOSPC, 1, "longer");
	fails("{% set ns = namespace(x='ab') %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}"
	      "{% endfor %}", "{}", -ENOMEM, 1, "memory");
}

Test(jinja, the_clock_is_the_given_one_in_the_workers_zone)
{
	options = (struct jinja_options){.now_s = 1796027400, .utc_offset_s = 5 * 3600 + 1800,
					 .now_us = 42};
	gives("{{ strftime_now('%Y-%m-%d %H:%M:%S.%f|%d %B %Y|%A %j|%%') }}", "{}",
	      "2026-11-30 14:00:00.000042|30 November 2026|Monday 334|%");
	options = (struct jinja_options){0};
}

Test(jinja, a_loop_filter_sees_what_the_body_changes)
{
	gives("{% set ns = namespace(n=0) %}{% for x in xs if ns.n < 2 %}{% set ns.n = ns.n + 1 %}"
	      "{{ x }}{% endfor %}", "{\"xs\": [1, 2, 3, 4]}", "12");
	gives("{% for x in xs if x is odd %}{{ loop.index }}/{{ loop.length }}:{{ x }} "
	      "{% endfor %}", "{\"xs\": [1, 2, 3, 4]}", "1/2:1 2/2:3 ");
}

Test(jinja, an_index_may_be_a_slice_of_its_own)
{
	gives("{{ 'abcd'['xy'[0:1]] }}|{{ d['abc'[1:2]] }}", "{\"d\": {\"b\": 7}}", "|7");
}

Test(jinja, else_is_for_loops_of_which_no_round_reached_its_end)
{
	gives("{% for x in [1, 2] %}{% continue %}{% else %}none{% endfor %}", "{}", "none");
	gives("{% for x in [1, 2] %}{% if x == 2 %}{% break %}{% endif %}{{ x }}{% else %}none"
	      "{% endfor %}", "{}", "1");
}

Test(jinja, a_macro_knows_its_own_name_and_parameters)
{
	gives("{% macro f(a, b='x') %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 2, 3, k=4) }}"
	      "{{ f.name }}{{ f.arguments }}{{ f }}", "{}",
	      "(3,){'k': 4}f('a', 'b')<Macro 'f'>");
}

Test(jinja, numbers_beyond_a_float_are_compared_exactly_and_never_divided_inexactly)
{
	static const char context[] = "{\"big\": 10000000000000000000000000, \"f\": 1e25,"
				      " \"odd\": 9007199254740993, \"inf\": Infinity}";

	gives("{{ big < f }}{{ big == f }}{{ f > big }}{{ -big > -f }}", context,
	      "TrueFalseTrueTrue");
	gives("{{ big < inf }}{{ big > -inf }}{{ big > 1.5 }}{{ -big < 1.5 }}", context,
	      "TrueTrueTrueTrue");
	gives("{{ 9007199254740992 / 4 }}{{ big / 1e25 }}", context, "2251799813685248.01.0");
	fails("{{ odd / 3 }}", context, -EINVAL, 1, "beyond 53 bits");
	fails("{{ 3 / odd }}", context, -EINVAL, 1, "beyond 53 bits");
	fails("{{ big / 3 }}", context, -EINVAL, 1, "beyond 64 bits");
}

Test(jinja, a_text_of_any_length_is_a_number_if_it_is_one)
{
	gives("{{ ('0' * 600 ~ '1.5')|float }}{{ ('9' * 400)|float }}", "{}", "1.5inf");
	gives("{{ ('1_0' ~ ' ' * 600)|float }}{{ ('x' * 600)|float(7) }}", "{}", "10.07");
}

Test(jinja, an_infinite_number_has_no_integer_but_its_text_has_the_default)
{
	fails("{{ inf|int }}", "{\"inf\": Infinity}", -EINVAL, 1, "OverflowError");
	gives("{{ 'inf'|int(3) }}", "{}", "3");
}

Test(jinja, a_generator_is_walked_once)
{
	gives("{% set g = xs|select('odd') %}{{ g|list }}{{ g|list }}", "{\"xs\": [1, 2, 3]}",
	      "[1, 3][]");
	fails("{{ xs|select('odd')|length }}", "{\"xs\": [1]}", -EINVAL, 1, "no len()");
	gives("{{ xs|map('upper')|first }}", "{\"xs\": [\"a\", 1.5]}", "A");
}

Test(jinja, a_text_built_in_a_loop_is_not_changed_under_who_kept_it)
{
	gives("{% set ns = namespace(a='ab') %}{% set b = ns.a + 'c' %}{% set ns.a = ns.a + 'x' %}"
	      "{{ b }} {{ ns.a }} {{ b + 'd' }} {{ b + 'e' }} {{ b }}", "{}",
	      "abc abx abcd abce abc");
}

static bool
mentions(const char *source, const char *name)
{
	struct jinja *jinja;
	bool r;

	cr_assert_eq(jinja_compile(slice_str(source), &jinja, NULL), 0);
	r = jinja_mentions(jinja, slice_str(name));
	jinja_free(&jinja);
	return r;
}

Test(jinja, a_name_is_mentioned_when_it_can_come_from_the_context)
{
	cr_expect(mentions("{{ tools }}", "tools"));
	cr_expect(mentions("{% macro m(a) %}{{ deep }}{% endmacro %}", "deep"));
	cr_expect(mentions("{% if a %}{% set x = 1 %}{% endif %}{{ x }}", "x"));
	cr_expect_not(mentions("{% set x = 1 %}{{ x }}", "x"));
	cr_expect_not(mentions("{% for m in messages %}{{ m }}{% endfor %}", "m"));
	cr_expect_not(mentions("{{ namespace() }}", "namespace"));
	cr_expect_not(mentions("{{ x.tools }}", "tools"));
}

static bool
walks_content(const char *source)
{
	struct jinja *jinja;
	bool r;

	cr_assert_eq(jinja_compile(slice_str(source), &jinja, NULL), 0);
	r = jinja_loops_over_content(jinja);
	jinja_free(&jinja);
	return r;
}

Test(jinja, contents_are_lists_for_templates_that_walk_them)
{
	cr_expect(walks_content("{% for m in messages %}{% for c in m.content %}{% endfor %}"
				"{% endfor %}"));
	cr_expect(walks_content("{% set ms = messages[1:] %}{% for m in ms|list %}"
				"{% if m['content'] is string %}{% else %}"
				"{% for c in m['content'] %}{% endfor %}{% endif %}{% endfor %}"));
	cr_expect_not(walks_content("{% for m in messages %}{{ m.content }}{% endfor %}"));
	cr_expect(walks_content("{% macro r(x, parts) %}{% for c in parts %}{% endfor %}"
				"{% endmacro %}{% for m in messages %}"
				"{{ 'a' ~ (r(1, m.content)|trim if m) }}{% endfor %}"));
	cr_expect(walks_content("{% macro r(parts) %}{% if parts %}{% for c in parts %}{% endfor %}"
				"{% endif %}{% endmacro %}{% for m in messages %}{% if a %}"
				"{% elif b %}{% set t = r(parts=m['content']) %}{% endif %}"
				"{% endfor %}"));
	cr_expect(walks_content("{% for c in content %}{% endfor %}"));
	cr_expect_not(walks_content("{% macro r(content) %}{% for c in content %}{% endfor %}"
				    "{% endmacro %}{% for m in messages %}{{ r(m.text) }}"
				    "{% endfor %}"));
	cr_expect_not(walks_content("{% macro r(a, b) %}{% for c in a %}{% endfor %}{% endmacro %}"
				    "{% for m in messages %}{{ r(1, m.content) }}{% endfor %}"));
	cr_expect_not(walks_content("{% for i, m in messages %}{% for c in m.content %}{% endfor %}"
				    "{% endfor %}"));
}

static void
continues(const char *source, const char *messages, const char *text)
{
	struct jinja *jinja;
	struct bump bump;
	struct text out;
	struct value v;
	const struct value *old;
	const char *why;

	bump_init(&bump, 1u << 20);
	text_init(&out, 1u << 20);
	cr_assert_eq(value_from_json(&bump, slice_str(messages), &v, &why, NULL), 0);
	cr_assert_eq(jinja_compile(slice_str(source), &jinja, NULL), 0);
	old = value_get_str(v.dict, SLICE_LIT("messages"));
	cr_assert(jinja_continue_mark(&bump, old, &v.dict->pair[0].value, &why), "%s", why);
	cr_assert_eq(jinja_render(jinja, &v, NULL, &bump, &out, NULL), 0);
	cr_assert_eq(jinja_continue_cut(&out, 0), 0);
	cr_expect(slice_eq_str(text_slice(&out), text), "%.*s", (int)out.len, out.p);
	jinja_free(&jinja);
	text_free(&out);
	bump_free(&bump);
}

Test(jinja, the_final_message_is_continued_where_it_ends)
{
	continues("{% for m in messages %}<{{ m.content }}>{% endfor %}",
		  "{\"messages\": [{\"content\": \"a\"}, {\"content\": \"b \"}]}", "<a><b ");
	continues("{% for m in messages %}<{{ m.content|trim }}>{% endfor %}",
		  "{\"messages\": [{\"content\": \"a\"}, {\"content\": \"b \"}]}", "<a><b");
	continues("{% for m in messages %}{% for c in m.content %}<{{ c.text }}>{% endfor %}"
		  "{% endfor %}",
		  "{\"messages\": [{\"content\": [{\"text\": \"a\"}, {\"image\": 1}]}]}", "<a");
}
