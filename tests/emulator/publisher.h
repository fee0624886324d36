/* tests/emulator/publisher.h -- KV events on a ZMQ PUB socket, with replay, and with faults on
 * demand.
 *
 * Wire       PUB, three frames: topic, sequence number (u64 big-endian, from 0), payload.  Nothing
 *            is kept for who is not there, as with an engine.
 * Replay     ROUTER: a request is ["", start u64 big-endian]; one reply ["", topic, seq, payload]
 *            per batch still held from start on, then ["", "", ff x 8, ""].  High-water marks are
 *            ZMQ's own, so a long replay may lose messages, as with an engine.
 * Faults     A dropped batch has used its number; a duplicate has the same number twice; a gap
 *            skips numbers with nothing behind them.
 * Errors     Negative errno with *why where stated; a failed send is a batch lost.
 * Threads    One, but for ZMQ's own.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct publisher_config {
	const char *endpoint;        /* bound; a port of * is chosen by the system */
	const char *replay_endpoint; /* "" for none */
	const char *topic;
	unsigned buffer_steps;       /* batches kept for replay */
};

struct publisher;

int publisher_open(const struct publisher_config *, struct publisher **ret_pub, const char **why);
void publisher_close(struct publisher **);
const char *publisher_endpoint(const struct publisher *);
	/* Where it is bound. */
const char *publisher_replay_endpoint(const struct publisher *);
	/* As above; "" without replay. */
void publisher_send(struct publisher *, const void *payload, size_t len_bytes, bool drop,
		    bool twice);
void publisher_gap(struct publisher *, uint64_t numbers);
	/* Skip that many sequence numbers. */
void publisher_restart(struct publisher *);
	/* The sequence starts over at 0 and the replay buffer is empty. */
uint64_t publisher_next_seq(const struct publisher *);
int publisher_replay_fd(const struct publisher *);
	/* To poll for input; -1 without replay.  Call publisher_replay after each time it was
	 * readable and after each publisher_send (ZMQ signals only edges). */
void publisher_replay(struct publisher *);
	/* Answer the replay requests that wait. */
