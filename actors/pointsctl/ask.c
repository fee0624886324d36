/* actors/pointsctl/ask.c -- introspection as a client; see ask.h. */
#include "actors/pointsctl/ask.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <zmq.h>

#include "actors/common/verbs.h"
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

/* What an answer says: 1 *ret has the result; 0 it is no answer we know; -1 a refusal, said. */
static int
take_answer(const json_t *reply, json_t **ret)
{
	const json_t *text = json_object_get(json_object_get(reply, "error"), "text");

	if (json_is_true(json_object_get(reply, "ok"))) {
		*ret = json_incref(json_object_get(reply, "result"));
		return *ret ? 1 : 0;
	}
	if (!json_is_string(text))
		return 0;
	complain("%s", json_string_value(text));
	return -1;
}

/* As take_answer; 0: admin cannot be asked, *why. */
static int
ask_admin(const struct options *o, const json_t *request, json_t **ret, const char **why)
{
	char path[128], *asked, *text;
	json_t *reply;
	size_t len = 0;
	int r;

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
	r = take_answer(reply, ret);
	json_decref(reply);
	return r;
}

static json_t *
read_ourselves(const struct options *o, const json_t *request)
{
	struct pm_view view;
	json_t *result = NULL, *reply;
	const char *why;
	int sock = control_connect(o->run_dir, &why);

	if (sock < 0) {
		complain("%s: %s", o->run_dir, why);
		return NULL;
	}
	pm_view_init(&view);
	if (control_attach(sock, &view, &why) < 0) {
		complain("%s: %s", o->run_dir, why);
	} else {
		reply = pm_verb_answer(&view, request);
		take_answer(reply, &result);
		json_decref(reply);
	}
	pm_view_close(&view);
	close(sock);
	return result;
}

json_t *
ask(const struct options *o, const char *verb, json_t *arguments)
{
	json_t *request = arguments ? arguments : json_object(), *result = NULL;
	const char *why = "";
	int r;

	json_object_set_new(request, "v", json_integer(PM_VERB_VERSION));
	json_object_set_new(request, "verb", json_string(verb));
	r = ask_admin(o, request, &result, &why);
	if (r == 0) {
		result = read_ourselves(o, request);
		if (result)
			complain("%s: read from shared memory instead", why);
	}
	json_decref(request);
	return result;
}
