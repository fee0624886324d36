/* tests/unit/test_texts.c -- which texts a body has, whatever its API, and what is hidden. */
#include <stdio.h>

#include "actors/common/tags/texts.h"
#include "tests/unit/tags_world.h"

struct gathered {
	char text[4096];
};

static void
gather(void *arg, const struct texts_text *text)
{
	struct gathered *g = arg;
	size_t n = strlen(g->text);

	snprintf(g->text + n, sizeof g->text - n, "%s%.*s%s", n ? "|" : "",
		 (int)text->string.raw.len, text->string.raw.p, text->json ? "!" : "");
}

/* Written with ' for ". */
static void
quoted(const char *from, char to[1024])
{
	for (size_t i = 0; i == 0 || from[i - 1]; i++)
		to[i] = from[i] == '\'' ? '"' : from[i];
}

static void
is_read(const char *written, const char *expected, unsigned hidden)
{
	struct gathered g = {""};
	char body[1024], texts[1024];
	unsigned is = 99;

	quoted(written, body);
	quoted(expected, texts);
	cr_expect_eq(texts_walk(slice_str(body), gather, &g, &is), 0, "%s", body);
	cr_expect_str_eq(g.text, texts, "%s: %s", body, g.text);
	cr_expect_eq(is, hidden, "%s: hidden %u", body, is);
}

Test(texts, a_chat_has_contents_names_and_what_its_tools_are_called_with)
{
	is_read("{'model':'m','messages':[{'role':'user','name':'ann','content':'a'},"
		"{'role':'assistant','tool_calls':[{'id':'c','type':'function',"
		"'function':{'name':'f','arguments':'{}'}}]},"
		"{'role':'tool','tool_call_id':'c','content':[{'type':'text',"
		"'text':'b'}]}],'user':'u','seed':4111,'temperature':0.5}",
		"ann|a|f|{}!|b|u", 0);
}

Test(texts, tools_are_read_down_to_the_descriptions_of_their_parameters)
{
	is_read("{'tools':[{'type':'function','function':{'name':'f','description':'d',"
		"'parameters':{'type':'object','properties':{'image_url':{'type':'string',"
		"'description':'e'},'type':{'description':'g'}}}}}],'tool_choice':'auto'}",
		"f|d|e|g", 0);
}

Test(texts, keys_are_read_that_are_no_names_of_fields)
{
	is_read("{'tools':[{'parameters':{'properties':{'a@b.de':{'type':'string'},'to_2':{},"
		"'0170 1234567':{}}}}],'logit_bias':{'1':2}}", "a@b.de|0170 1234567", 0);
}

Test(texts, completions_responses_rerank_and_score_are_read)
{
	is_read("{'prompt':['a','b'],'suffix':'c'}", "a|b|c", 0);
	is_read("{'instructions':'i','input':[{'type':'message','role':'user','content':"
		"[{'type':'input_text','text':'a'}]},{'type':'function_call','call_id':'c',"
		"'name':'f','arguments':'{}'},{'type':'function_call_output','call_id':'c',"
		"'output':'o'}]}", "i|a|f|{}!|o", 0);
	is_read("{'query':'q','documents':['a',{'text':'b'}]}", "q|a|b", 0);
	is_read("{'text_1':'q','text_2':['a','b']}", "q|a|b", 0);
	is_read("{'input':'a','later_field':{'of':['another API']}}", "a|another API", 0);
}

Test(texts, anthropic_messages_are_read_and_an_input_is_one_json_text)
{
	is_read("{'system':[{'type':'text','text':'s','cache_control':{'type':'ephemeral'}}],"
		"'messages':[{'role':'assistant','content':[{'input':{'ssn': 536},"
		"'type':'tool_use','id':'t','name':'f'}]},{'role':'user','content':["
		"{'type':'tool_result','tool_use_id':'t','content':'r'},"
		"{'type':'document','source':{'data':'plain','media_type':'text/plain',"
		"'type':'text'}}]}]}",
		"s|{'ssn': 536}|f|r|plain", 0);
}

Test(texts, metadata_and_template_variables_are_read_with_their_keys)
{
	is_read("{'metadata':{'id':'a@b.com','n':1},'chat_template_kwargs':{'x':'y'}}",
		"{'id':'a@b.com','n':1}|{'x':'y'}", 0);
}

Test(texts, pictures_sound_and_files_are_hidden_and_no_text)
{
	is_read("{'messages':[{'content':[{'type':'image_url','image_url':{'url':"
		"'data:image/png;base64,QUFB'}},{'type':'text','text':'a'}]}]}", "a",
		TEXTS_MEDIA);
	is_read("{'messages':[{'content':[{'type':'image_url','image_url':{'url':"
		"'https://h.example/?q=1','detail':'low'}}]}]}", "https://h.example/?q=1",
		TEXTS_MEDIA);
	is_read("{'messages':[{'content':[{'type':'input_audio','input_audio':{'data':'QUFB',"
		"'format':'wav'}}]}]}", "", TEXTS_MEDIA);
	is_read("{'messages':[{'content':[{'type':'image','source':{'type':'base64',"
		"'media_type':'image/png','data':'QUFB'}}]}]}", "", TEXTS_MEDIA);
	is_read("{'messages':[{'content':[{'type':'image','source':{'type':'url',"
		"'url':'https://h.example/'}}]}]}", "https://h.example/", TEXTS_MEDIA);
	is_read("{'input':[{'content':[{'type':'input_file','file_id':'f'}]}]}", "",
		TEXTS_MEDIA);
	is_read("{'messages':[{'role':'assistant','audio':{'id':'a'}}],"
		"'audio':{'voice':'v','format':'wav'}}", "v", TEXTS_MEDIA);
	is_read("{'audio':{'voice':'v','format':'wav'}}", "v", 0);
}

Test(texts, data_whose_type_is_said_twice_is_hidden_unless_the_last_says_text)
{
	is_read("{'a':{'data':'x','type':'text','type':'base64'}}", "", TEXTS_MEDIA);
	is_read("{'a':{'data':'x','data':'y','type':'text'}}", "y", TEXTS_MEDIA);
}

Test(texts, token_ids_and_what_lies_elsewhere_are_hidden)
{
	is_read("{'prompt':[1,2,3]}", "", TEXTS_TOKENS);
	is_read("{'prompt':[[1,2],[3]]}", "", TEXTS_TOKENS);
	is_read("{'input':[1]}", "", TEXTS_TOKENS);
	is_read("{'token_ids':[1]}", "", TEXTS_TOKENS);
	is_read("{'prompt_embeds':'QUFB'}", "", TEXTS_TOKENS);
	is_read("{'prompt':{'id':'p','variables':{'a':'b'}}}", "b", TEXTS_ELSEWHERE);
	is_read("{'input':[{'type':'item_reference','id':'i'}]}", "", TEXTS_ELSEWHERE);
	is_read("{'conversation':{'id':'c'}}", "", TEXTS_ELSEWHERE);
	is_read("{'conversation':'c'}", "", TEXTS_ELSEWHERE);
	is_read("{'logit_bias':{'1':2},'stop_token_ids':[1,2]}", "", 0);
}

Test(texts, what_is_no_json_says_so)
{
	struct gathered g = {""};
	unsigned hidden;

	cr_assert_eq(texts_walk(SLICE_LIT("{\"a\":\"b\""), gather, &g, &hidden), -EBADMSG);
	cr_assert_eq(texts_walk(SLICE_LIT("[]"), gather, &g, &hidden), -EBADMSG);
	cr_assert_eq(texts_walk(SLICE_LIT(""), gather, &g, &hidden), -EBADMSG);
	cr_assert_eq(texts_walk(SLICE_LIT("{} x"), gather, &g, &hidden), -EBADMSG);
}

Test(texts, a_tag_that_could_be_in_what_is_hidden_is_unknown_and_one_that_was_seen_is_there)
{
	struct tags_world w = world_of_all();
	struct tags_found f;

	f = found_in_body(&w, "{\"messages\":[{\"content\":[{\"type\":\"text\",\"text\":\"a@b.co"
		"m\"},"
			      "{\"type\":\"image_url\",\"image_url\":{\"url\":\"data:,x\"}}]}]}");
	cr_assert_eq(f.tags, EMAIL);
	cr_assert_eq(f.unknown, PHONE | IBAN | CARD | SSN | SECRET);
	f = found_in_body(&w, "{\"prompt\":[1,2,3]}");
	cr_assert_eq(f.tags, 0);
	cr_assert_eq(f.unknown, 63);
	f = found_in_body(&w, "no json");
	cr_assert_eq(f.unknown, 63);
	f = found_in_body(&w, "{\"prompt\":\"hello\"}");
	cr_assert_eq(f.tags | f.unknown, 0);
	world_end(&w);
}

Test(texts, arguments_are_read_as_they_stand_and_as_their_json_says)
{
	struct tags_world w = world_of_all();

	cr_assert_eq(found_in_body(&w, "{\"arguments\":\"{\\\"a\\\":\\\"b\\\\u0040c.com\\\"}\""
		"}").tags,
		     EMAIL);
	cr_assert_eq(found_in_body(&w, "{\"arguments\":\"no json b@c.com \\\\u00\"}").tags, EMAIL);
	cr_assert_eq(found_in_body(&w, "{\"input\":[{\"input\":{\"a\":\"b\\u0040c.com\"}}]}").tags,
		     EMAIL);
	world_end(&w);
}
