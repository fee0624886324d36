/* tests/emulator/publisher.h -- KV events on a ZMQ PUB socket, with replay, and with faults on
 * demand.
 *
 * Wire       PUB, three frames: topic, sequence number (u64 big-endian, from 0), payload.  Nothing
 *            is kept for who is not there, as with an engine.
 * Replay     ROUTER: a request is ["", start u64 big-endian]; one reply ["", topic, seq, payload]
 *            per batch still held from start on, then ["", "", ff x 8, ""]; before vLLM 0.25
 *            without the topic.  High-water marks are ZMQ's own, so a long replay may lose
 *            messages, as with an engine.
 * Faults     A dropped batch has used its number; a duplicate has the same number twice; a gap
 *            skips numbers with nothing behind them; a late batch comes after the next one; of a
 *            replay, every nth reply or the end may be missing.
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
	bool connects;               /* the endpoint is connected to, and whoever listens binds */
	bool replay_topic;           /* replies have a topic frame */
};

/* What goes wrong with the next batch. */
enum publisher_fault {
	PUBLISHER_SENDS,
	PUBLISHER_DROPS, /* it uses its number */
	PUBLISHER_TWICE,
	PUBLISHER_LATE,  /* comes after the next one */
};

struct publisher;

int publisher_open(const struct publisher_config *, struct publisher **ret_pub, const char **why);
void publisher_close(struct publisher **);
const char *publisher_endpoint(const struct publisher *);
	/* Where it is bound. */
const char *publisher_replay_endpoint(const struct publisher *);
	/* As above; "" without replay. */
void publisher_send(struct publisher *, const void *payload, size_t len_bytes,
		    enum publisher_fault);
void publisher_gap(struct publisher *, uint64_t numbers);
	/* Skip that many sequence numbers. */
int publisher_restart(struct publisher *, bool keeps_seq, bool reconnects, const char **why);
	/* The replay buffer is empty and the sequence starts over at 0, or goes on as if another
	 * process had come to the same number; reconnects: subscribers lose their connection, as
	 * they do when a process ends, and what is sent before they are back. */
void publisher_replay_faults(struct publisher *, unsigned drop_every, bool no_end);
	/* Of each replay, drop_every = n loses the nth reply, the 2nth, ...; 0: none. */
uint64_t publisher_next_seq(const struct publisher *);
int publisher_replay_fd(const struct publisher *);
	/* To poll for input; -1 without replay.  Call publisher_replay after each time it was
	 * readable and after each publisher_send (ZMQ signals only edges). */
void publisher_replay(struct publisher *);
	/* Answer the replay requests that wait. */
