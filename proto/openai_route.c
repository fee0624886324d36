/* proto/openai_route.c -- which paths exist, and whose words are spoken there. */
#include "proto/openai.h"

#include <string.h>

static const struct {
	const char       *path;
	enum openai_route route;
} posts[] = {
	{"/v1/chat/completions", OPENAI_CHAT},
	{"/v1/completions", OPENAI_COMPLETIONS},
	{"/v1/responses", OPENAI_RESPONSES},
	{"/v1/messages", OPENAI_MESSAGES},
	{"/v1/messages/count_tokens", OPENAI_COUNT_TOKENS},
	{"/inference/v1/generate", OPENAI_GENERATE},
	{"/v1/embeddings", OPENAI_EMBEDDINGS},
	{"/pooling", OPENAI_POOLING},
	{"/classify", OPENAI_CLASSIFY},
	{"/score", OPENAI_SCORE},
	{"/v1/score", OPENAI_SCORE},
	{"/rerank", OPENAI_RERANK},
	{"/v1/rerank", OPENAI_RERANK},
	{"/v2/rerank", OPENAI_RERANK},
	{"/tokenize", OPENAI_TOKENIZE},
	{"/detokenize", OPENAI_DETOKENIZE},
	{"/v1/audio/transcriptions", OPENAI_TRANSCRIPTIONS},
	{"/v1/audio/translations", OPENAI_TRANSLATIONS},
};

/* Methods of a path. */
enum { POST = 1, GET = 2, HEAD = 4, DELETE = 8 };

static bool
begins(struct slice path, const char *with)
{
	size_t n = strlen(with);

	return path.len >= n && memcmp(path.p, with, n) == 0;
}

bool
openai_is_id(struct slice s)
{
	if (s.len == 0 || s.len > OPENAI_ID_MAX_BYTES)
		return false;
	for (size_t i = 0; i < s.len; i++) {
		char c = s.p[i];

		if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
		      (c >= '0' && c <= '9') || c == '_' || c == '-'))
			return false;
	}
	return true;
}

/* What stands behind the id: "" or "/cancel"; absent when the path is not of that kind. */
static struct slice
split_response(struct slice path, struct slice *ret_id)
{
	static const char prefix[] = "/v1/responses/";
	struct slice rest, none = {NULL, 0};
	const char *end;

	if (!begins(path, prefix))
		return none;
	rest = slice_of(path.p + sizeof(prefix) - 1, path.len - (sizeof(prefix) - 1));
	end = rest.len > 0 ? memchr(rest.p, '/', rest.len) : NULL;
	*ret_id = slice_of(rest.p, end ? (size_t)(end - rest.p) : rest.len);
	if (!openai_is_id(*ret_id))
		return none;
	return slice_of(rest.p + ret_id->len, rest.len - ret_id->len);
}

/* The path's route, whatever the method. */
static enum openai_route
route_of_path(struct slice path, unsigned *ret_methods)
{
	static const char models_path[] = "/v1/models";
	const size_t n_models = sizeof(models_path) - 1;
	struct slice id, rest;

	*ret_methods = POST;
	for (size_t i = 0; i < sizeof(posts) / sizeof(posts[0]); i++)
		if (slice_eq_str(path, posts[i].path))
			return posts[i].route;
	rest = split_response(path, &id);
	if (rest.p && slice_eq_str(rest, "/cancel"))
		return OPENAI_RESPONSE_CANCEL;
	*ret_methods = GET | DELETE;
	if (rest.p && rest.len == 0)
		return OPENAI_RESPONSE;
	*ret_methods = GET | HEAD;
	if (!begins(path, models_path))
		return OPENAI_NONE;
	if (path.len == n_models)
		return OPENAI_MODELS;
	if (path.p[n_models] == '/' && path.len > n_models + 1)
		return OPENAI_MODEL;
	return OPENAI_NONE;
}

static unsigned
bit_of(enum http1_method method)
{
	switch (method) {
	case HTTP1_POST:
		return POST;
	case HTTP1_GET:
		return GET;
	case HTTP1_HEAD:
		return HEAD;
	case HTTP1_DELETE:
		return DELETE;
	default:
		return 0;
	}
}

enum openai_route
openai_route(enum http1_method method, struct slice path)
{
	unsigned methods;
	enum openai_route route = route_of_path(path, &methods);

	if (route == OPENAI_NONE || (methods & bit_of(method)) != 0)
		return route;
	return OPENAI_WRONG_METHOD;
}

const char *
openai_route_name(enum openai_route route)
{
	static const char *const names[] = {
		[OPENAI_NONE] = "none",
		[OPENAI_CHAT] = "chat",
		[OPENAI_COMPLETIONS] = "completions",
		[OPENAI_RESPONSES] = "responses",
		[OPENAI_MESSAGES] = "messages",
		[OPENAI_COUNT_TOKENS] = "count_tokens",
		[OPENAI_GENERATE] = "generate",
		[OPENAI_EMBEDDINGS] = "embeddings",
		[OPENAI_POOLING] = "pooling",
		[OPENAI_CLASSIFY] = "classify",
		[OPENAI_SCORE] = "score",
		[OPENAI_RERANK] = "rerank",
		[OPENAI_TOKENIZE] = "tokenize",
		[OPENAI_DETOKENIZE] = "detokenize",
		[OPENAI_RESPONSE] = "response",
		[OPENAI_RESPONSE_CANCEL] = "response_cancel",
		[OPENAI_TRANSCRIPTIONS] = "transcriptions",
		[OPENAI_TRANSLATIONS] = "translations",
		[OPENAI_MODELS] = "models",
		[OPENAI_MODEL] = "model",
		[OPENAI_WRONG_METHOD] = "wrong_method",
	};

	if ((size_t)route >= sizeof(names) / sizeof(names[0]))
		return "none";
	return names[route];
}

const char *
openai_route_allow(struct slice path)
{
	unsigned methods;

	if (route_of_path(path, &methods) == OPENAI_NONE)
		return NULL;
	if (methods == POST)
		return "POST";
	return methods == (GET | DELETE) ? "GET, DELETE" : "GET, HEAD";
}

struct slice
openai_route_id(struct slice path)
{
	struct slice id, rest = split_response(path, &id);

	return rest.p && (rest.len == 0 || slice_eq_str(rest, "/cancel")) ? id
									   : slice_of(NULL, 0);
}

enum openai_api
openai_path_api(struct slice path)
{
	if (begins(path, "/v1/messages"))
		return OPENAI_API_MESSAGES;
	return begins(path, "/v1/responses") ? OPENAI_API_RESPONSES : OPENAI_API_PLAIN;
}

enum openai_api
openai_route_api(enum openai_route route)
{
	switch (route) {
	case OPENAI_MESSAGES:
	case OPENAI_COUNT_TOKENS:
		return OPENAI_API_MESSAGES;
	case OPENAI_RESPONSES:
	case OPENAI_RESPONSE:
	case OPENAI_RESPONSE_CANCEL:
		return OPENAI_API_RESPONSES;
	default:
		return OPENAI_API_PLAIN;
	}
}
