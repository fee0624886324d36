/* tests/emulator/publisher.c -- see publisher.h. */
#include "tests/emulator/publisher.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <zmq.h>

#define REBINDS_MAX 2000     /* 1 ms each */
#define HWM_MESSAGES 100000 /* of the PUB socket, vLLM's default */

struct batch {
	uint64_t seq;
	void *payload;
	size_t len_bytes;
};

struct publisher {
	void *zmq, *pub, *router;
	char endpoint[256], replay_endpoint[256], topic[128];
	bool connects, replay_topic;
	unsigned drop_every;
	bool no_end;
	struct batch late;  /* payload NULL: none */
	uint64_t seq;
	struct batch *held; /* a ring of the last held_max */
	unsigned held_first, held_n, held_max;
};

static void
put_be64(uint8_t out[static 8], uint64_t v)
{
	for (unsigned i = 0; i < 8; i++)
		out[i] = (uint8_t)(v >> (56 - 8 * i));
}

static int
open_socket(struct publisher *pub, int type, const char *endpoint, void **ret_sock,
	    char ret_name[256], const char **why)
{
	int hwm = HWM_MESSAGES, linger = 0;
	size_t len = 256;

	*ret_sock = zmq_socket(pub->zmq, type);
	if (*ret_sock == NULL) {
		*why = zmq_strerror(errno);
		return -errno;
	}
	if (type == ZMQ_PUB)
		zmq_setsockopt(*ret_sock, ZMQ_SNDHWM, &hwm, sizeof hwm);
	zmq_setsockopt(*ret_sock, ZMQ_LINGER, &linger, sizeof linger);
	if (type == ZMQ_PUB && pub->connects) {
		int again_ms = 20;

		snprintf(ret_name, 256, "%s", endpoint);
		zmq_setsockopt(*ret_sock, ZMQ_RECONNECT_IVL, &again_ms, sizeof again_ms);
		if (zmq_connect(*ret_sock, endpoint) < 0) {
			*why = zmq_strerror(errno);
			return -errno;
		}
		return 0;
	}
	if (zmq_bind(*ret_sock, endpoint) < 0) {
		*why = zmq_strerror(errno);
		return -errno;
	}
	zmq_getsockopt(*ret_sock, ZMQ_LAST_ENDPOINT, ret_name, &len);
	return 0;
}

int
publisher_open(const struct publisher_config *cfg, struct publisher **ret_pub, const char **why)
{
	struct publisher *pub = calloc(1, sizeof *pub);
	int r = 0;

	if (pub == NULL)
		return -ENOMEM;
	snprintf(pub->topic, sizeof pub->topic, "%s", cfg->topic);
	pub->connects = cfg->connects;
	pub->replay_topic = cfg->replay_topic;
	pub->held_max = cfg->buffer_steps > 0 ? cfg->buffer_steps : 1;
	pub->held = calloc(pub->held_max, sizeof *pub->held);
	pub->zmq = zmq_ctx_new();
	if (pub->held == NULL || pub->zmq == NULL) {
		*why = "out of memory";
		r = -ENOMEM;
	}
	if (r == 0)
		r = open_socket(pub, ZMQ_PUB, cfg->endpoint, &pub->pub, pub->endpoint, why);
	if (r == 0 && cfg->replay_endpoint[0] != '\0')
		r = open_socket(pub, ZMQ_ROUTER, cfg->replay_endpoint, &pub->router,
				pub->replay_endpoint, why);
	if (r < 0)
		publisher_close(&pub);
	else
		*ret_pub = pub;
	return r;
}

static void
forget(struct publisher *pub)
{
	while (pub->held_n > 0) {
		free(pub->held[pub->held_first].payload);
		pub->held_first = (pub->held_first + 1) % pub->held_max;
		pub->held_n--;
	}
}

void
publisher_close(struct publisher **pubp)
{
	struct publisher *pub = *pubp;

	*pubp = NULL;
	if (pub == NULL)
		return;
	forget(pub);
	free(pub->late.payload);
	if (pub->pub != NULL)
		zmq_close(pub->pub);
	if (pub->router != NULL)
		zmq_close(pub->router);
	if (pub->zmq != NULL)
		zmq_ctx_term(pub->zmq);
	free(pub->held);
	free(pub);
}

const char *
publisher_endpoint(const struct publisher *pub)
{
	return pub->endpoint;
}

const char *
publisher_replay_endpoint(const struct publisher *pub)
{
	return pub->replay_endpoint;
}

static void
hold(struct publisher *pub, const void *payload, size_t len_bytes)
{
	struct batch *batch;

	if (pub->router == NULL)
		return;
	if (pub->held_n == pub->held_max) {
		free(pub->held[pub->held_first].payload);
		pub->held_first = (pub->held_first + 1) % pub->held_max;
		pub->held_n--;
	}
	batch = &pub->held[(pub->held_first + pub->held_n) % pub->held_max];
	batch->payload = malloc(len_bytes);
	if (batch->payload == NULL)
		return;
	memcpy(batch->payload, payload, len_bytes);
	batch->seq = pub->seq;
	batch->len_bytes = len_bytes;
	pub->held_n++;
}

static void
put_message(struct publisher *pub, uint64_t number, const void *payload, size_t len_bytes)
{
	uint8_t seq[8];

	put_be64(seq, number);
	if (zmq_send(pub->pub, pub->topic, strlen(pub->topic), ZMQ_SNDMORE) < 0 ||
	    zmq_send(pub->pub, seq, sizeof seq, ZMQ_SNDMORE) < 0 ||
	    zmq_send(pub->pub, payload, len_bytes, 0) < 0)
		fprintf(stderr, "publisher: batch %llu lost: %s\n", (unsigned long long)number,
			zmq_strerror(errno));
}

void
publisher_send(struct publisher *pub, const void *payload, size_t len_bytes,
	       enum publisher_fault fault)
{
	struct batch late = pub->late;

	hold(pub, payload, len_bytes);
	pub->late = (struct batch){0};
	if (fault == PUBLISHER_LATE && (pub->late.payload = malloc(len_bytes)) != NULL) {
		memcpy(pub->late.payload, payload, len_bytes);
		pub->late.len_bytes = len_bytes;
		pub->late.seq = pub->seq;
	}
	if (fault == PUBLISHER_SENDS || fault == PUBLISHER_TWICE)
		put_message(pub, pub->seq, payload, len_bytes);
	if (fault == PUBLISHER_TWICE)
		put_message(pub, pub->seq, payload, len_bytes);
	if (late.payload != NULL)
		put_message(pub, late.seq, late.payload, late.len_bytes);
	free(late.payload);
	pub->seq++;
}

void
publisher_gap(struct publisher *pub, uint64_t numbers)
{
	pub->seq += numbers;
}

int
publisher_restart(struct publisher *pub, bool keeps_seq, bool reconnects, const char **why)
{
	char name[256];

	forget(pub);
	free(pub->late.payload);
	pub->late = (struct batch){0};
	if (!keeps_seq)
		pub->seq = 0;
	if (!reconnects)
		return 0;
	memcpy(name, pub->endpoint, sizeof name);
	zmq_unbind(pub->pub, name);
	zmq_close(pub->pub);
	pub->pub = NULL;
	for (unsigned tries = 0;; tries++) { /* ZMQ lets go of the port in its own time */
		int r = open_socket(pub, ZMQ_PUB, name, &pub->pub, pub->endpoint, why);

		if (r != -EADDRINUSE || tries == REBINDS_MAX)
			return r;
		zmq_close(pub->pub);
		pub->pub = NULL;
		poll(NULL, 0, 1);
	}
}

void
publisher_replay_faults(struct publisher *pub, unsigned drop_every, bool no_end)
{
	pub->drop_every = drop_every;
	pub->no_end = no_end;
}

uint64_t
publisher_next_seq(const struct publisher *pub)
{
	return pub->seq;
}

int
publisher_replay_fd(const struct publisher *pub)
{
	int fd = -1;
	size_t len = sizeof fd;

	if (pub->router != NULL)
		zmq_getsockopt(pub->router, ZMQ_FD, &fd, &len);
	return fd;
}

/* One frame; more follow unless last. */
static void
frame(void *sock, const void *p, size_t len, bool last)
{
	zmq_send(sock, p, len, ZMQ_DONTWAIT | (last ? 0 : ZMQ_SNDMORE));
}

static void
reply(struct publisher *pub, const void *id, size_t id_len, const char *topic, uint64_t number,
      const void *payload, size_t len_bytes)
{
	uint8_t seq[8];

	put_be64(seq, number);
	frame(pub->router, id, id_len, false);
	frame(pub->router, "", 0, false);
	if (pub->replay_topic)
		frame(pub->router, topic, strlen(topic), false);
	frame(pub->router, seq, sizeof seq, false);
	frame(pub->router, payload, len_bytes, true);
}

static void
replay_from(struct publisher *pub, const void *id, size_t id_len, uint64_t start)
{
	unsigned n = 0;

	for (unsigned i = 0; i < pub->held_n; i++) {
		const struct batch *batch = &pub->held[(pub->held_first + i) % pub->held_max];

		if (batch->seq < start)
			continue;
		if (pub->drop_every == 0 || ++n % pub->drop_every != 0)
			reply(pub, id, id_len, pub->topic, batch->seq, batch->payload,
			      batch->len_bytes);
	}
	if (!pub->no_end)
		reply(pub, id, id_len, "", UINT64_MAX, "", 0);
}

void
publisher_replay(struct publisher *pub)
{
	if (pub->router == NULL)
		return;
	for (;;) {
		uint8_t part[3][256];
		int len[3] = {0}, n = 0, more = 1;
		size_t more_len = sizeof more;

		while (more) {
			uint8_t drop[256];
			int r = zmq_recv(pub->router, n < 3 ? part[n] : drop, 256, ZMQ_DONTWAIT);

			if (r < 0)
				return;
			if (n < 3)
				len[n] = r;
			n++;
			zmq_getsockopt(pub->router, ZMQ_RCVMORE, &more, &more_len);
		}
		if (n == 3 && len[0] <= 256 && len[1] == 0 && len[2] == 8) {
			uint64_t start = 0;

			for (unsigned i = 0; i < 8; i++)
				start = start << 8 | part[2][i];
			replay_from(pub, part[0], (size_t)len[0], start);
		} else {
			fprintf(stderr, "publisher: replay request of %d frames ignored\n", n);
		}
	}
}
