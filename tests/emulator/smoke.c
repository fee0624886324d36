/* tests/emulator/smoke.c -- the emulator from outside, in real time at scale 50: what it answers
 * agrees with what it says of itself, by events, by its log and by /emu/state.  Waits for events,
 * never for time; every loop is bounded.
 *
 * usage: smoke PATH-OF-POINTSMAN-EMULATOR
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <curl/curl.h>
#include <jansson.h>
#include <zmq.h>

#include "proto/kv_events.h"
#include "tests/emulator/blockhash.h"

#define SCALE 50.0
#define REPLIES_MAX 1000
#define PATIENCE_MS 5000 /* for one answer or event */

#define CHECK(cond, ...) \
	do { \
		if (!(cond)) { \
			fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #cond); \
			fprintf(stderr, __VA_ARGS__); \
			fputc('\n', stderr); \
			exit(1); \
		} \
	} while (0)

struct emulator {
	pid_t pid;
	FILE *ready;
	unsigned port;
	char kv[128], replay[128];
	char log[64];
};

struct answer {
	CURLcode code;
	long status;
	char *text;
	size_t len;
	double wall_s;
};

static double
wall_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

/* ---- the process ---- */

static void
wait_ready(struct emulator *emu)
{
	char line[512];

	CHECK(fgets(line, sizeof line, emu->ready) != NULL, "no ready line");
	CHECK(sscanf(line, "ready host=%*s port=%u kv=%127s kv_replay=%127s", &emu->port, emu->kv,
		     emu->replay) == 3, "%s", line);
}

static void
start(struct emulator *emu, const char *path)
{
	int out[2], log;

	snprintf(emu->log, sizeof emu->log, "emulator_smoke_log_XXXXXX");
	log = mkstemp(emu->log);
	CHECK(log >= 0 && pipe(out) == 0, "%s", strerror(errno));
	close(log);
	emu->pid = fork();
	if (emu->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(out[1], 3);
		execl(path, path, "--port", "0", "--ready-fd", "3", "--time-scale", "50",
		      "--kv-endpoint", "tcp://127.0.0.1:*", "--kv-replay-endpoint",
		      "tcp://127.0.0.1:*", "--request-log", emu->log, "--clear-at-once",
		      (char *)NULL);
		_exit(127);
	}
	close(out[1]);
	emu->ready = fdopen(out[0], "r");
	wait_ready(emu);
}

static void
stop(struct emulator *emu)
{
	int status;

	kill(emu->pid, SIGTERM);
	CHECK(waitpid(emu->pid, &status, 0) == emu->pid, "%s", strerror(errno));
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "exit status %x", status);
	fclose(emu->ready);
}

/* ---- HTTP ---- */

static size_t
take(char *p, size_t size, size_t n, void *arg)
{
	struct answer *answer = arg;

	answer->text = realloc(answer->text, answer->len + n * size + 1);
	memcpy(answer->text + answer->len, p, n * size);
	answer->len += n * size;
	answer->text[answer->len] = '\0';
	return n * size;
}

/* body NULL: GET. */
static struct answer
ask(const struct emulator *emu, const char *path, const char *body)
{
	struct answer answer = {.text = calloc(1, 1)};
	CURL *curl = curl_easy_init();
	char url[256];
	double t0 = wall_s();

	snprintf(url, sizeof url, "http://127.0.0.1:%u%s", emu->port, path);
	curl_easy_setopt(curl, CURLOPT_URL, url);
	curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)PATIENCE_MS);
	curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take);
	curl_easy_setopt(curl, CURLOPT_WRITEDATA, &answer);
	if (body != NULL)
		curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body);
	answer.code = curl_easy_perform(curl);
	curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &answer.status);
	curl_easy_cleanup(curl);
	answer.wall_s = wall_s() - t0;
	return answer;
}

static json_t *
ask_json(const struct emulator *emu, const char *path, const char *body)
{
	struct answer answer = ask(emu, path, body);
	json_t *json = json_loads(answer.text, 0, NULL);

	CHECK(answer.code == CURLE_OK && answer.status == 200 && json != NULL, "%s: %ld %s", path,
	      answer.status, answer.text);
	free(answer.text);
	return json;
}

static void
configure(const struct emulator *emu, const char *body)
{
	json_decref(ask_json(emu, "/emu/config", body));
}

/* A completion over n ids from `from` on. */
static char *
completion(unsigned from, unsigned n, const char *more)
{
	size_t cap = (size_t)n * 8 + 512, len;
	char *body = malloc(cap);

	len = (size_t)snprintf(body, cap,
			       "{\"model\":\"emulated\",\"ignore_eos\":true,%s,\"prompt\":[", more);
	for (unsigned i = 0; i < n; i++)
		len += (size_t)snprintf(body + len, cap - len, "%s%u", i > 0 ? "," : "", from + i);
	snprintf(body + len, cap - len, "]}");
	return body;
}

/* ---- what is checked ---- */

/* A cold prompt takes the model's time, a warm one hits all full blocks but the last token's. */
static void
check_hits(const struct emulator *emu)
{
	char *body = completion(1000, 7840, "\"max_tokens\":1");

	for (unsigned i = 0; i < 2; i++) {
		struct answer answer = ask(emu, "/v1/completions", body);
		json_t *json = json_loads(answer.text, 0, NULL);
		json_int_t cached = json_integer_value(json_object_get(json_object_get(
			json_object_get(json, "usage"), "prompt_tokens_details"), "cached_tokens"));

		CHECK(answer.status == 200, "%ld %s", answer.status, answer.text);
		CHECK(cached == (i == 0 ? 0 : 9 * 784), "run %u: %lld cached", i,
		      (long long)cached);
		/* the model says 3.2 s cold; it may be late on a busy machine, never early */
		CHECK(answer.wall_s * SCALE >= (i == 0 ? 3.15 : 0.3), "run %u took %.3f s", i,
		      answer.wall_s * SCALE);
		json_decref(json);
		free(answer.text);
	}
	free(body);
}

static void
check_stream(const struct emulator *emu)
{
	static const char *const order[] = {"\"role\":\"assistant\"", "\"content\":\" ",
					    "\"finish_reason\":\"length\"",
					    "\"choices\":[],\"usage\"", "data: [DONE]"};
	struct answer answer = ask(emu, "/v1/chat/completions",
		"{\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}],\"max_tokens\":3,"
		"\"ignore_eos\":true,\"stream\":true,\"stream_options\":{\"include_usage\":true}}");
	const char *p = answer.text;

	CHECK(answer.code == CURLE_OK && answer.status == 200, "%ld %s", answer.status,
	      answer.text);
	for (unsigned i = 0; i < 5; i++) {
		p = strstr(p, order[i]);
		CHECK(p != NULL, "no %s in order in: %s", order[i], answer.text);
	}
	free(answer.text);
}

/* /tokenize and the prompt count of a chat agree. */
static void
check_tokenize(const struct emulator *emu)
{
	static const char messages[] =
		"\"messages\":[{\"role\":\"user\",\"content\":\"count me\"}]";
	char body[256];
	json_t *count, *chat;

	snprintf(body, sizeof body, "{%s}", messages);
	count = ask_json(emu, "/tokenize", body);
	snprintf(body, sizeof body, "{%s,\"max_tokens\":1}", messages);
	chat = ask_json(emu, "/v1/chat/completions", body);
	CHECK(json_integer_value(json_object_get(count, "count")) ==
	      json_integer_value(json_object_get(json_object_get(chat, "usage"), "prompt_tokens")),
	      "tokenize and chat disagree");
	json_decref(count);
	json_decref(chat);
}

struct hash_set {
	uint64_t hash[4096];
	unsigned n;
};

static bool
has(const struct hash_set *set, uint64_t hash)
{
	for (unsigned i = 0; i < set->n; i++)
		if (set->hash[i] == hash)
			return true;
	return false;
}

/* Check each stored block's hash against its tokens; remember it. */
static void
apply(struct hash_set *set, const struct kv_event *ev)
{
	struct blockhash hash;

	if (ev->type == KV_CLEARED)
		set->n = 0;
	if (ev->type != KV_STORED)
		return;
	CHECK(ev->tokens_usable && ev->block_tokens == 784, "tokens do not fit the hashes");
	blockhash_root(BLOCKHASH_SHA256_CBOR, "0", &hash);
	for (size_t i = 0; i < ev->n_hashes; i++) {
		if (!ev->has_parent) { /* a whole chain: we can compute it ourselves */
			blockhash_next(BLOCKHASH_SHA256_CBOR, &hash, ev->token_ids + i * 784, 784,
				       NULL, NULL, &hash);
			CHECK(blockhash_low64(BLOCKHASH_SHA256_CBOR, &hash) == ev->hashes[i],
			      "block %zu has another hash", i);
		} else {
			CHECK(i > 0 || has(set, ev->parent), "the parent was never stored");
		}
		if (!has(set, ev->hashes[i]))
			set->hash[set->n++] = ev->hashes[i];
		CHECK(set->n < 4096, "too many blocks");
	}
}

/* Replay all events: what they leave is what the worker says it holds. */
static void
check_events(const struct emulator *emu)
{
	void *zmq = zmq_ctx_new(), *sock = zmq_socket(zmq, ZMQ_DEALER);
	int timeout_ms = PATIENCE_MS, none = 0;
	static const char zero[8];
	struct hash_set set = {0};
	struct kv_batch batch = {0};
	uint64_t next = 0;
	bool ended = false;
	json_t *state, *list, *v;
	size_t i;

	zmq_setsockopt(sock, ZMQ_RCVTIMEO, &timeout_ms, sizeof timeout_ms);
	zmq_setsockopt(sock, ZMQ_LINGER, &none, sizeof none);
	CHECK(zmq_connect(sock, emu->replay) == 0, "%s", zmq_strerror(errno));
	zmq_send(sock, "", 0, ZMQ_SNDMORE);
	zmq_send(sock, zero, 8, 0);
	for (unsigned n = 0; n < REPLIES_MAX && !ended; n++) {
		zmq_msg_t msg[4];
		struct kv_slice frame[4], payload;
		uint64_t seq = 0;
		size_t frames = 0;
		const char *why;
		int more = 1;

		while (more && frames < 4) {
			zmq_msg_init(&msg[frames]);
			CHECK(zmq_msg_recv(&msg[frames], sock, 0) >= 0, "%s", zmq_strerror(errno));
			more = zmq_msg_more(&msg[frames]);
			frame[frames] = (struct kv_slice){zmq_msg_data(&msg[frames]),
							  zmq_msg_size(&msg[frames])};
			frames++;
		}
		switch (kv_replay_parse(frame, frames, &seq, &payload)) {
		case KV_REPLAY_DATA:
			CHECK(seq == next++, "batch %llu out of order", (unsigned long long)seq);
			CHECK(kv_batch_decode(payload.p, payload.n, &batch, &why) == 0, "%s", why);
			CHECK(batch.n_failed == 0 && batch.n_events > 0, "%s", batch.failed_why);
			for (size_t k = 0; k < batch.n_events; k++)
				apply(&set, &batch.events[k]);
			break;
		case KV_REPLAY_END:
			ended = true;
			break;
		case KV_REPLAY_BAD:
			CHECK(false, "not a replay reply: %zu frames", frames);
		}
		while (frames > 0)
			zmq_msg_close(&msg[--frames]);
	}
	CHECK(ended && next > 0, "%llu batches, no end", (unsigned long long)next);
	state = ask_json(emu, "/emu/state?hashes=1", NULL);
	list = json_object_get(state, "hashes");
	CHECK(json_array_size(list) == set.n && set.n > 0, "%zu held, %u announced",
	      json_array_size(list), set.n);
	json_array_foreach(list, i, v)
		CHECK(has(&set, strtoull(json_string_value(v), NULL, 16)), "%s was not announced",
		      json_string_value(v));
	json_decref(state);
	kv_batch_free(&batch);
	zmq_close(sock);
	zmq_ctx_term(zmq);
}

/* Live events arrive: clear the cache until one is seen (a PUB drops what nobody hears yet). */
static void
check_live(const struct emulator *emu)
{
	void *zmq = zmq_ctx_new(), *sock = zmq_socket(zmq, ZMQ_SUB);
	zmq_pollitem_t item = {.socket = sock, .events = ZMQ_POLLIN};
	int none = 0, tries = 0;
	char frame[256];

	zmq_setsockopt(sock, ZMQ_SUBSCRIBE, "", 0);
	zmq_setsockopt(sock, ZMQ_LINGER, &none, sizeof none);
	CHECK(zmq_connect(sock, emu->kv) == 0, "%s", zmq_strerror(errno));
	do {
		json_decref(ask_json(emu, "/reset_prefix_cache", ""));
	} while (++tries < 100 && zmq_poll(&item, 1, 20) == 0);
	CHECK(zmq_recv(sock, frame, sizeof frame, 0) == 0, "the topic is not empty");
	CHECK(zmq_recv(sock, frame, sizeof frame, 0) == 8, "the sequence number is not 8 bytes");
	zmq_close(sock);
	zmq_ctx_term(zmq);
}

static json_int_t
requests(const struct emulator *emu, const char *what)
{
	json_t *state = ask_json(emu, "/emu/state", NULL);
	json_int_t n =
		json_integer_value(json_object_get(json_object_get(state, "requests"), what));

	json_decref(state);
	return n;
}

/* A client that leaves frees the worker. */
static void
check_abort(const struct emulator *emu)
{
	struct sockaddr_in addr = {.sin_family = AF_INET, .sin_port = htons((uint16_t)emu->port)};
	char *body = completion(5, 3000, "\"max_tokens\":20000,\"stream\":true"), head[256];
	int fd = socket(AF_INET, SOCK_STREAM, 0), n;
	json_int_t before = requests(emu, "aborted"), aborted = before;

	addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	CHECK(connect(fd, (struct sockaddr *)&addr, sizeof addr) == 0, "%s", strerror(errno));
	n = snprintf(head, sizeof head, "POST /v1/completions HTTP/1.1\r\nHost: x\r\n"
		     "Content-Length: %zu\r\n\r\n", strlen(body));
	CHECK(send(fd, head, (size_t)n, 0) == n &&
	      send(fd, body, strlen(body), 0) == (ssize_t)strlen(body), "%s", strerror(errno));
	CHECK(recv(fd, head, sizeof head, 0) > 0, "no answer head");
	close(fd);
	free(body);
	for (unsigned i = 0; i < 1000 && aborted == before; i++)
		aborted = requests(emu, "aborted");
	CHECK(aborted == before + 1, "%lld aborted", (long long)(aborted - before));
	CHECK(requests(emu, "open") == 0, "still open");
}

static void
check_faults(const struct emulator *emu)
{
	static const struct {
		const char *config;
		long status;
		CURLcode code;
	} faults[] = {
		{"{\"fail-rate\":1,\"fail-kind\":\"503\"}", 503, CURLE_OK},
		{"{\"fail-kind\":\"reset\"}", 0, CURLE_RECV_ERROR},
		{"{\"fail-kind\":\"truncate\",\"fail-at\":2}", 200, CURLE_PARTIAL_FILE},
	};
	char *body = completion(5, 10, "\"max_tokens\":4,\"stream\":true");

	for (unsigned i = 0; i < 3; i++) {
		struct answer answer;

		configure(emu, faults[i].config);
		answer = ask(emu, "/v1/completions", body);
		CHECK(answer.code == faults[i].code && answer.status == faults[i].status,
		      "%s: curl %d, status %ld", faults[i].config, (int)answer.code, answer.status);
		free(answer.text);
	}
	configure(emu, "{\"fail-rate\":0,\"fail-at\":0}");
	free(body);
}

static void
check_restart(struct emulator *emu)
{
	json_t *state;

	json_decref(ask_json(emu, "/emu/restart", ""));
	wait_ready(emu);
	state = ask_json(emu, "/emu/state", NULL);
	CHECK(json_integer_value(json_object_get(state, "next_seq")) == 0 &&
	      json_integer_value(json_object_get(state, "cached_hashes")) == 0 &&
	      json_integer_value(json_object_get(state, "restarts")) == 1, "not as new");
	json_decref(state);
	check_stream(emu);
}

/* Each request is in the log twice: its start and its end. */
static void
check_log(const struct emulator *emu, json_int_t started)
{
	FILE *log = fopen(emu->log, "re");
	json_int_t starts = 0, ends = 0;
	char line[1024];

	CHECK(log != NULL, "%s", strerror(errno));
	while (fgets(line, sizeof line, log) != NULL) {
		json_t *json = json_loads(line, 0, NULL);
		const char *ev = json_string_value(json_object_get(json, "ev"));

		CHECK(ev != NULL, "bad line %s", line);
		starts += strcmp(ev, "start") == 0;
		ends += strcmp(ev, "end") == 0;
		json_decref(json);
	}
	fclose(log);
	CHECK(starts == started && ends == started, "%lld started, log has %lld starts, %lld ends",
	      (long long)started, (long long)starts, (long long)ends);
	unlink(emu->log);
}

int
main(int argc, char **argv)
{
	struct emulator emu = {0};
	json_int_t started;

	CHECK(argc == 2, "usage: smoke EMULATOR");
	curl_global_init(CURL_GLOBAL_DEFAULT);
	start(&emu, argv[1]);
	check_hits(&emu);
	check_stream(&emu);
	check_tokenize(&emu);
	check_events(&emu);
	check_live(&emu);
	check_abort(&emu);
	check_faults(&emu);
	check_restart(&emu);
	started = requests(&emu, "started");
	stop(&emu);
	check_log(&emu, started);
	curl_global_cleanup();
	puts("the emulator does what it says");
	return 0;
}
