/* tests/unit/test_topic.c -- whose message is it, by its topic? */
#include <criterion/criterion.h>
#include <string.h>

#include "actors/kvevents/topic.h"

static bool
ours(const char *configured, const char *host, const char *topic)
{
	return topic_is_ours(configured, host, topic, strlen(topic));
}

static void
splits(const char *topic, const char *id, const char *model)
{
	struct topic_fields f;

	cr_assert(topic_split(topic, strlen(topic), &f), "%s", topic);
	cr_assert_eq(f.id_len, strlen(id), "%s", topic);
	cr_assert_eq(memcmp(f.id, id, f.id_len), 0, "%s", topic);
	cr_assert_eq(f.model_len, strlen(model), "%s", topic);
	cr_assert_eq(memcmp(f.model, model, f.model_len), 0, "%s", topic);
}

Test(topic, a_model_s_name_may_hold_at_signs_and_slashes)
{
	struct topic_fields f;

	splits("kv@10.0.0.1@demo-8b", "10.0.0.1", "demo-8b");
	splits("kv@10.0.0.1:8000@org/demo-8b", "10.0.0.1:8000", "org/demo-8b");
	splits("kv@10.0.0.1:8000@org/demo@v2", "10.0.0.1:8000", "org/demo@v2");
	splits("kv@[fd00::1]:8000@demo-8b", "[fd00::1]:8000", "demo-8b");
	splits("kv@w@", "w", "");
	cr_assert_not(topic_split("kv-events", 9, &f));
	cr_assert_not(topic_split("kv@", 3, &f));
	cr_assert_not(topic_split("kv@@m", 5, &f));
	cr_assert_not(topic_split("kv@10.0.0.1", 11, &f));
	cr_assert_not(topic_split("", 0, &f));
}

Test(topic, any_topic_is_ours_where_none_is_configured)
{
	cr_assert(ours("", "10.0.0.1", ""));
	cr_assert(ours("", "10.0.0.1", "kv-events"));
	cr_assert(ours("", "10.0.0.1", "kv@10.0.0.1@demo-8b"));
	cr_assert(ours("", "10.0.0.1", "kv@10.0.0.1:8000@demo-8b"));
	cr_assert(ours("", "10.0.0.1", "kv@vllm-0@demo-8b"), "a name says nothing");
	cr_assert(ours("", "worker-1", "kv@10.0.0.10@demo-8b"));
	cr_assert(ours("", "fd00::1", "kv@[fd00::1]:8000@demo-8b"));
	cr_assert(ours("", "fd00::1", "kv@fd00:0::1@demo-8b"));
	cr_assert(ours("", "127.0.0.1", "kv@10.0.0.10@demo-8b"), "as it knows itself");
	cr_assert(ours("", "10.0.0.1", "kv@[10.0.0.1@m"));
	cr_assert(topic_is_ours("", "10.0.0.1", "kv@10.0.0.9\0@m", 15));
}

Test(topic, a_topic_that_names_another_address_is_another_s)
{
	cr_assert_not(ours("", "10.0.0.1", "kv@10.0.0.10@demo-8b"));
	cr_assert_not(ours("", "10.0.0.1", "kv@10.0.0.10:8000@demo-8b"));
	cr_assert_not(ours("", "fd00::1", "kv@[fd00::10]:8000@demo-8b"));
	cr_assert_not(ours("", "10.0.0.1", "kv@fd00::1@demo-8b"));
	cr_assert_not(ours("", "127.0.0.1", "kv@127.0.0.10@demo-8b"));
}

Test(topic, a_configured_topic_ends_where_a_field_ends)
{
	cr_assert(ours("kv@", "10.0.0.1", "kv@10.0.0.10@demo-8b"), "the operator said so");
	cr_assert(ours("kv@10.0.0.1", "w", "kv@10.0.0.1@demo-8b"));
	cr_assert(ours("kv@10.0.0.1", "w", "kv@10.0.0.1:8000@demo-8b"));
	cr_assert(ours("kv@10.0.0.1", "w", "kv@10.0.0.1"));
	cr_assert_not(ours("kv@10.0.0.1", "w", "kv@10.0.0.10@demo-8b"));
	cr_assert_not(ours("kv@10.0.0.1", "w", "kv-events"));
	cr_assert_not(ours("kv@10.0.0.1", "w", ""));
	cr_assert_not(ours("kv@fd00::1", "w", "kv@fd00::1:2@demo-8b"));
	cr_assert(ours("kv@[fd00::1]", "w", "kv@[fd00::1]:8000@demo-8b"));
	cr_assert(ours("kv-events", "w", "kv-events"));
	cr_assert_not(ours("kv-events", "w", "kv-events-2"));
	cr_assert(ours("kv@w@org", "x", "kv@w@org/demo"));
}
