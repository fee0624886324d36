/* tests/unit/test_tags.c -- what counts as an address, a number of a person, or a secret. */
#include "tests/unit/tags_world.h"

/* Each text, and what it has. */
struct told {
	const char *text;
	unsigned has;
};

static void
hold(const struct told *told, size_t n)
{
	struct tags_world w = world_of_all();

	for (size_t i = 0; i < n; i++)
		cr_expect_eq(in_text(&w, told[i].text), told[i].has, "%s: %#x, not %#x",
			     told[i].text, in_text(&w, told[i].text), told[i].has);
	world_end(&w);
}

#define HOLD(...)                                                      \
	do {                                                           \
		static const struct told told_[] = {__VA_ARGS__};      \
		hold(told_, sizeof told_ / sizeof told_[0]);           \
	} while (0)

Test(tags, addresses_as_rfc_5321_writes_them_are_found_and_user_at_host_is_not)
{
	HOLD({"write to smith@bar.com now", EMAIL},
		{"customer/department=shipping@example.com", EMAIL},
	     {"Abc.123@example.com.", EMAIL}, {"a%40example.org", EMAIL},
	     {"postmaster@xn--d1acpjx3f.xn--p1ai", EMAIL}, {"x@y", 0}, {"x@y.z", 0},
	     {".@example.com", 0}, {"a.@example.com", 0}, {"a..b@example.com", EMAIL},
	     {"@b@example.com", 0}, {"a@b@example.com", 0}, {"git@host.example:org/repo.git", 0},
	     {"https://me@host.example/", 0}, {"https://host.example/?q=me@host.example", EMAIL},
	     {"logo@2x.PNG", 0}, {"q@k.transpose(1)", 0}, {"a@-b.com", 0}, {"a@b-.com", 0},
	     {"ssh://x@h.example", 0}, {"a@b.c1", 0}, {"a@b.com:pw", EMAIL});
}

Test(tags, a_local_part_longer_than_an_address_has_one_at_its_end)
{
	struct tags_world w = world_of_all();
	char text[400];

	memset(text, 'a', 300);
	strcpy(text + 300, "@example.com");
	cr_assert_eq(in_text(&w, text), EMAIL);
	memset(text, 'a', 64);
	strcpy(text, "a@");
	memset(text + 2, 'b', 64);
	strcpy(text + 66, ".com");
	cr_assert_eq(in_text(&w, text), 0, "a label has 63 signs at most");
	world_end(&w);
}

Test(tags, accounts_of_iso_13616_prove_themselves_by_country_length_and_remainder)
{
	HOLD({"GB29 NWBK 6016 1331 9268 19", IBAN}, {"gb29nwbk60161331926819", IBAN},
	     {"NO9386011117947", IBAN}, {"LC55 HEMM 0001 0001 0012 0012 0002 3015", IBAN},
	     {"GB29NWBK60161331926818", 0}, {"GB29 NWBK 6016 1331 9268 1", 0},
	     {"GB29NWBK601613319268190", 0}, {"xGB29NWBK60161331926819", 0},
	     {"GB29 NWBK-6016 1331 9268 19", 0}, {"ZZ29NWBK60161331926819", 0}, {"GB2", 0},
	     {"GB29", 0}, {"GB29 NWBK 6016 1331 9268 19.", IBAN});
}

Test(tags, cards_pass_luhn_and_count_as_their_issuers_do)
{
	HOLD({"4111111111111111", CARD}, {"4111 1111 1111 1111 12/29", CARD},
	     {"3782 822463 10005", CARD}, {"3056 930902 5904", CARD}, {"6011-1111-1111-1117", CARD},
	     {"4111111111111112", 0}, {"4111 11111111 1111", 0}, {"4111 1111-1111 1111", 0},
	     {"41111111111111111", 0}, {"1.4111111111111111", 0}, {"4111111111111111-2", 0},
	     {"9111111111111111", 0}, {"AB12 4111 1111 1111 1111", 0},
	     {"card 4111 1111 1111 1111", CARD}, {"4111111111111111x", 0}, {"4111", 0});
}

Test(tags, ssns_are_numbers_that_the_ssa_could_have_given)
{
	HOLD({"536-22-8726", SSN}, {"SSN 536 22 8726", SSN}, {"social security 536228726", SSN},
	     {"soc. sec. 536.22.8726", SSN}, {"536 22 8726", 0}, {"536228726", 0},
	     {"000-22-8726", 0}, {"666-22-8726", 0}, {"900-22-8726", 0}, {"536-00-8726", 0},
	     {"536-22-0000", 0}, {"078-05-1120", 0}, {"219-09-9999", 0}, {"536-22-8726-1", 0},
	     {"1-536-22-8726", 0}, {"SSN:\n536228726", 0}, {"536-22", 0});
}

Test(tags, telephone_numbers_are_international_american_or_said_to_be_one)
{
	HOLD({"+31 42 123 4567", PHONE}, {"+1 (212) 555-0187", PHONE}, {"+1 212 155 0187", 0},
	     {"+44 (0)20 7946 0958", PHONE}, {"+210 555 1234", 0}, {"+49.30901820", 0},
	     {"+4930901", 0}, {"+49 30 901820:1", 0}, {"212-555-0187", PHONE},
	     {"(212)555-0187", PHONE}, {"212-555-0187x12", PHONE}, {"212-555-01875", 0},
	     {"911-555-0187", 0}, {"Tel. 030 901820", PHONE}, {"030 901820", 0},
	     {"phone 030 901820 order 1", PHONE}, {"phone of order 030 901820", 0},
	     {"phone\n030 901820", 0}, {"call me at 030 901820", PHONE}, {"call 030901820", 0},
	     {"iPhone 030901820", 0}, {"phone_number: 030901820", PHONE},
	     {"phone: 14.03.2026", 0}, {"phone 192.168.100.200", 0}, {"phone 1 234 567,89", 0},
	     {"Tel. 06.39.98.12.34", PHONE}, {"Tel. 01.02.03.04.05", PHONE},
	     {"phone 4111 1111 1111 1111", CARD}, {"phone 536-22-8726", SSN});
}

Test(tags, a_word_is_near_up_to_forty_characters_whatever_they_take)
{
	struct tags_world w = world_of_all();
	char text[300];

	for (unsigned n = 38; n <= 42; n++) {
		strcpy(text, "phone");
		for (unsigned i = 0; i < n - 1; i++)
			strcat(text, "\xe3\x81\xaf");   /* three bytes, one character */
		strcat(text, " 030901820");
		cr_expect_eq(in_text(&w, text), n <= 40 ? PHONE : 0, "%u", n);
	}
	world_end(&w);
}

/* Written in parts, so that no file holds what looks like one. */
#define TWENTY "Q7w3Er9Ty5Ui1Op2As4D"
#define FORTY TWENTY "f6Gh8Jk0Lz3Xc5Vb7Nm9"

Test(tags, secrets_are_told_by_how_their_issuers_make_them)
{
	HOLD({"gh" "p_" FORTY, SECRET}, {"gh" "p_" TWENTY, 0}, {"xgh" "p_" FORTY, 0},
	     {"gl" "pat-" TWENTY, SECRET}, {"AK" "IA2345ABCDEFGH67JK", SECRET},
	     {"AK" "IA2345ABCDEFGH67JKL", 0}, {"aws_secret" "_access_key = \"" FORTY "\"", SECRET},
	     {"AWS_SECRET" "_ACCESS_KEY=" FORTY, SECRET},
		{"aws_secret" "_access_key=" FORTY "1", 0},
	     {"sk_" "live_" FORTY, SECRET}, {"pk_" "live_" FORTY, 0},
	     {"Authorization: Bear" "er " TWENTY, SECRET}, {"Bear" "er " TWENTY, 0},
	     {"https://u:s3cr3t" "@h.example/", SECRET}, {"https://u:${PASSWORD}" "@h.example/", 0},
	     {"https://u:example" "@h.example/", 0},
		{"123456789:A" "A" TWENTY "f6Gh8Jk0Lz3Xc", SECRET},
	     {"gh" "p_xxxx" FORTY, 0}, {"gh" "p_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 0},
	     {"-----BEGIN PRIVATE" " KEY-----\n" FORTY, SECRET},
	     {"-----BEGIN PRIVATE" " KEY-----\\n" FORTY, SECRET},
	     {"-----BEGIN PUBLIC" " KEY-----\n" FORTY, 0}, {"-----BEGIN PRIVATE" " KEY-----", 0});
}

Test(tags, the_token_of_rfc_7519_is_a_secret_and_one_whose_header_has_no_alg_is_not)
{
	HOLD({"eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9"
	      ".eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19y"
		"b290Ijp0cnVlfQ"
	      ".dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk", SECRET},
	     {"eyJ0eXAiOiJKV1QifQ.eyJpc3MiOiJqb2UifQ.dBjftJeZ4CVP-mB92K27uhbUJU1p1r", 0});
}

Test(tags, a_minimum_counts_different_values_however_they_are_written)
{
	struct manifest_pattern pattern[] = {
		{.validator = MANIFEST_VALIDATOR_CARD, .minimum = 2},
		{.validator = MANIFEST_VALIDATOR_EMAIL, .minimum = 3},
	};
	struct tags_world w = world_of(pattern, 2);

	cr_assert_eq(in_text(&w, "4111111111111111, 4111 1111 1111 1111, 4111-1111-1111-1111"), 0);
	cr_assert_eq(in_text(&w, "4111111111111111 5555555555554444"), 1);
	cr_assert_eq(in_text(&w, "a@b.com A@B.com c@d.com"), 0);
	cr_assert_eq(in_text(&w, "a@b.com; e@f.com; c@d.com"), 2);
	cr_assert_eq(found_in_body(&w, "{\"prompt\":[\"4111111111111111\",\"5555555555554444\"]"
		"}").tags,
		     1, "all texts together");
	world_end(&w);
}

Test(tags, one_validator_serves_tags_with_different_minimums)
{
	struct manifest_pattern pattern[] = {
		{.validator = MANIFEST_VALIDATOR_EMAIL, .minimum = 1},
		{.validator = MANIFEST_VALIDATOR_EMAIL, .minimum = 2},
	};
	struct tags_world w = world_of(pattern, 2);

	cr_assert_eq(in_text(&w, "a@b.com"), 1);
	cr_assert_eq(in_text(&w, "a@b.com c@d.com"), 3);
	cr_assert_eq(in_text(&w, "none"), 0, "nothing stays from one request to the next");
	world_end(&w);
}

Test(tags, own_patterns_match_the_plain_text_and_count_like_the_others)
{
	char badge[] = "\\bEMP-\\d{6}\\b", word[] = "(?i)projekt\\s+ümlaut", nothing[] = "x*";
	struct manifest_pattern pattern[] = {
		{.validator = MANIFEST_VALIDATOR_REGEX, .regex = badge, .minimum = 2},
		{.validator = MANIFEST_VALIDATOR_REGEX, .regex = word, .minimum = 1},
		{.validator = MANIFEST_VALIDATOR_REGEX, .regex = nothing, .minimum = 2},
	};
	struct tags_world w = world_of(pattern, 3);

	cr_assert_eq(in_text(&w, "EMP-123456 EMP-123456"), 0);
	cr_assert_eq(in_text(&w, "EMP-123456 EMP-654321"), 1);
	cr_assert_eq(in_text(&w, "EMP-١٢٣٤٥٦ EMP\xe2\x80\x90" "654321"), 1,
		"digits and hyphens of any script");
	cr_assert_eq(in_text(&w, "Projekt ÜMLAUT"), 2);
	cr_assert_eq(in_text(&w, "a xx b"), 4, "a match of nothing is one, and ends");
	world_end(&w);
}

Test(tags, a_match_that_takes_too_many_steps_leaves_the_tag_unknown)
{
	char evil[] = "^(a+)+$", good[] = "b";
	struct manifest_pattern pattern[] = {
		{.validator = MANIFEST_VALIDATOR_REGEX, .regex = evil, .minimum = 1},
		{.validator = MANIFEST_VALIDATOR_REGEX, .regex = good, .minimum = 1},
	};
	struct tags_world w = world_of(pattern, 2);
	struct tags_found f;

	tags_of_text(w.room, SLICE_LIT("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab"), &f);
	cr_assert_eq(f.tags, 2);
	cr_assert_eq(f.unknown, 1);
	tags_of_text(w.room, SLICE_LIT("aaa"), &f);
	cr_assert_eq(f.tags, 1);
	cr_assert_eq(f.unknown, 0);
	world_end(&w);
}

Test(tags, what_is_no_pattern_is_refused_with_its_place)
{
	char bad[] = "a(b";
	struct manifest_pattern pattern = {
		.validator = MANIFEST_VALIDATOR_REGEX, .regex = bad, .minimum = 1,
	};
	struct manifest_tag tag = {.patterns = &pattern, .n_patterns = 1};
	struct tags *t = NULL;
	uint32_t which = 7;
	size_t offset;
	char why[200];

	cr_assert_eq(tags_new(&t, &tag, 1, &which, why, sizeof why), -EINVAL);
	cr_assert_null(t);
	cr_assert_eq(which, 0);
	cr_assert_str_eq(why, "missing closing parenthesis, at character 4 of `a(b`");
	cr_assert_eq(tags_regex_check(SLICE_LIT("[z-a]"), &offset, why, sizeof why), -EINVAL);
	cr_assert_eq(offset, 3);
	cr_assert_eq(tags_regex_check(SLICE_LIT("\\p{L}+"), &offset, why, sizeof why), 0);
}
