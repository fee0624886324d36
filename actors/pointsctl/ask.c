/* actors/pointsctl/ask.c -- introspection as a client; see ask.h. */
#include "actors/pointsctl/ask.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <zmq.h>

#include "actors/common/show.h"
#include "actors/pointsctl/control.h"

#define ANSWER_MS       3000
#define ANSWER_MAX      (256ll << 20)   /* bytes */

/* ZMQ connects in the background and says nothing of it: see first whether anybody listens. */
static bool
listens(const char *path)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	bool yes;
	int fd;

	if (snprintf(sa.sun_path, sizeof sa.sun_path, "%s", path) >= (int)sizeof sa.sun_path)
		return false;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return false;
	yes = connect(fd, (const struct sockaddr *)&sa, sizeof sa) == 0;
	close(fd);
	return yes;
}

/* The answer's text, malloc'd; NULL: none in time. */
static char *
exchange(const char *path, const char *request, size_t *ret_len)
{
	int64_t most = ANSWER_MAX;
	int wait_ms = ANSWER_MS, linger = 0;
	void *context = zmq_ctx_new(), *sock = context ? zmq_socket(context, ZMQ_REQ) : NULL;
	char endpoint[160], *text = NULL;
	zmq_msg_t m;

	zmq_msg_init(&m);
	snprintf(endpoint, sizeof endpoint, "ipc://%s", path);
	if (sock) {
		zmq_setsockopt(sock, ZMQ_RCVTIMEO, &wait_ms, sizeof wait_ms);
		zmq_setsockopt(sock, ZMQ_SNDTIMEO, &wait_ms, sizeof wait_ms);
		zmq_setsockopt(sock, ZMQ_LINGER, &linger, sizeof linger);
		zmq_setsockopt(sock, ZMQ_MAXMSGSIZE, &most, sizeof most);
	}
	if (sock && zmq_connect(sock, endpoint) == 0 &&
	    zmq_send(sock, request, strlen(request), 0) >= 0 && zmq_msg_recv(&m, sock, 0) >= 0) {
		*ret_len = zmq_msg_size(&m);
		text = malloc(*ret_len + 1);
		if (text) {
			memcpy(text, zmq_msg_data(&m), *ret_len);
			text[*ret_len] = 0;
		}
	}
	zmq_msg_close(&m);
	if (sock)
		zmq_close(sock);
	if (context)
		zmq_ctx_term(context);
	return text;
}

/* 1: *ret has the result; 0: admin cannot be asked, *why; -1: it refused, which has been said. */
static int
ask_admin(const struct options *o, const json_t *request, json_t **ret, const char **why)
{
	char path[128], *asked, *text;
	json_t *reply, *error;
	size_t len = 0;
	int r = 0;

	snprintf(path, sizeof path, "%s/admin.sock", o->run_dir);
	*why = "pointsman-admin is not there";
	if (!listens(path))
		return 0;
	asked = json_dumps(request, JSON_COMPACT);
	text = asked ? exchange(path, asked, &len) : NULL;
	free(asked);
	*why = "pointsman-admin does not answer";
	if (!text)
		return 0;
	reply = json_loadb(text, len, 0, NULL);
	free(text);
	*why = "pointsman-admin answers in a form we do not know";
	error = json_object_get(reply, "error");
	if (json_is_true(json_object_get(reply, "ok"))) {
		*ret = json_incref(json_object_get(reply, "result"));
		r = *ret ? 1 : 0;
	} else if (json_is_string(json_object_get(error, "text"))) {
		complain("%s", json_string_value(json_object_get(error, "text")));
		r = -1;
	}
	json_decref(reply);
	return r;
}

static json_t *
read_ourselves(const struct options *o, const char *verb, const json_t *argument)
{
	struct pm_view view;
	json_t *result = NULL;
	const char *why;
	uint64_t id = 0;
	int sock = control_connect(o->run_dir, &why);

	if (sock < 0) {
		complain("%s: %s", o->run_dir, why);
		return NULL;
	}
	pm_view_init(&view);
	if (control_attach(sock, &view, &why) < 0)
		complain("%s: %s", o->run_dir, why);
	else if (strcmp(verb, "stat") == 0)
		result = pm_show_stat(&view);
	else if (strcmp(verb, "workers") == 0)
		result = pm_show_workers(&view);
	else if (strcmp(verb, "requests") == 0)
		result = pm_show_requests(&view, argument ? (unsigned)json_integer_value(argument) :
							    PM_SHOW_REQUESTS_DEFAULT);
	else if (pm_show_id(json_string_value(argument), json_string_length(argument), &id) == 0)
		result = pm_show_explain(&view, id);
	pm_view_close(&view);
	close(sock);
	return result;
}

json_t *
ask(const struct options *o, const char *verb, const char *key, json_t *argument)
{
	json_t *request = json_object(), *result = NULL;
	const char *why = "";
	int r;

	json_object_set_new(request, "v", json_integer(1));
	json_object_set_new(request, "verb", json_string(verb));
	if (argument)
		json_object_set(request, key, argument);
	r = ask_admin(o, request, &result, &why);
	if (r == 0) {
		result = read_ourselves(o, verb, argument);
		if (result)
			complain("%s: read from shared memory instead", why);
	}
	json_decref(request);
	json_decref(argument);
	return result;
}
