/* tests/bench/bench_events.c -- how many blocks of engines' events pointsman-kvevents applies, and
 * how soon they are seen.
 *
 *      bench_events RUN-DIR ENDPOINT .. [--seconds N] [--paced N]
 *
 * A running Pointsman whose workers publish at these endpoints, in the order of its rows.  We are
 * the engines: one XPUB each, so that we know when we are heard, and without drops, so that a full
 * queue makes us wait.  Batches are encoded beforehand, as vLLM 0.26 writes them: 32 events of 8
 * blocks of 16 tokens, half of them removals; each chain of 16 blocks (two events, the second hangs
 * on the first) is removed half a cycle after it was stored, so the caches keep their size.  What
 * was applied is read from the worker table, what is held is looked up in the index, both in shared
 * memory.
 *
 * Figures    events_blocks_per_s   from the first batch sent to the last applied, blocks stored and
 *                                  removed
 *            events_applied, events_gaps
 *            events_visible_ms     99th percentile from just before a batch is sent to its last
 *                                  chain being found whole by a lookup, at 100,000 blocks/s; looked
 *                                  for every LOOK_NS
 * Fails      where applied is not what was sent, a sequence has a hole, or the index does not hold
 *            exactly what the last batches left.
 */
#include <czmq.h>
#include <errno.h>
#include <msgpack.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "actors/common/prompt/blocks.h"
#include "actors/common/view.h"
#include "shm/blockhash.h"
#include "tests/bench/measure.h"

#define WORKERS_MAX  64u
#define BLOCK        16u
#define EVENT_BLOCKS 8u
#define CHAIN        (2 * EVENT_BLOCKS) /* blocks of one prompt: two events */
#define EVENTS       32u                /* a batch; half store, half remove */
#define CHAINS       (EVENTS / 4)       /* stored by a batch, and removed */
#define CYCLE        512u               /* different batches of one worker */
#define LIVE         (CYCLE / 2)        /* batches whose blocks are held at a time */
#define BATCH_BLOCKS (EVENTS * EVENT_BLOCKS)
#define VOCABULARY   151000u
#define PACED_BLOCKS_PER_S 100000u
#define LOOK_NS      100000u
#define LATE_NS      60000000000ull

struct batch {
	msgpack_sbuffer stores, both;           /* the first without removals: to fill the caches */
	uint64_t last[CHAIN];                   /* our hashes of its last chain */
};

struct worker {
	void *sock;                             /* owned; XPUB */
	const struct row *row;                  /* borrowed */
	uint16_t id;
	uint64_t seq, events;                   /* sent */
	uint32_t at;                            /* next batch of the cycle */
	struct batch batch[CYCLE];
};

static struct worker *worker;
static unsigned n_workers;
static struct pm_view view;

/* ---- batches ---- */

/* Everything follows from the numbers of worker, batch and chain. */
static uint64_t
number(unsigned w, unsigned batch, unsigned chain, unsigned i)
{
	return mix64((((uint64_t)w * CYCLE + batch) * CHAINS + chain) * 4096 + i);
}

static void
tokens_of(unsigned w, unsigned batch, unsigned chain, uint32_t ret[CHAIN * BLOCK])
{
	for (unsigned i = 0; i < CHAIN * BLOCK; i++)
		ret[i] = (uint32_t)(number(w, batch, chain, i) % VOCABULARY);
}

static uint64_t
engine_hash(unsigned w, unsigned batch, unsigned chain, unsigned block)
{
	return number(w, batch, chain, 2048 + block);
}

static void
pack_text(msgpack_packer *p, const char *s)
{
	msgpack_pack_str(p, strlen(s));
	msgpack_pack_str_body(p, s, strlen(s));
}

static void
pack_hashes(msgpack_packer *p, unsigned w, unsigned batch, unsigned chain, unsigned first)
{
	pack_text(p, "block_hashes");
	msgpack_pack_array(p, EVENT_BLOCKS);
	for (unsigned i = 0; i < EVENT_BLOCKS; i++)
		msgpack_pack_uint64(p, engine_hash(w, batch, chain, first + i));
}

static void
pack_stored(msgpack_packer *p, unsigned w, unsigned batch, unsigned chain, unsigned first)
{
	uint32_t tokens[CHAIN * BLOCK];

	tokens_of(w, batch, chain, tokens);
	msgpack_pack_map(p, 11);
	pack_text(p, "type");
	pack_text(p, "BlockStored");
	pack_hashes(p, w, batch, chain, first);
	pack_text(p, "parent_block_hash");
	if (first == 0)
		msgpack_pack_nil(p);
	else
		msgpack_pack_uint64(p, engine_hash(w, batch, chain, first - 1));
	pack_text(p, "token_ids");
	msgpack_pack_array(p, EVENT_BLOCKS * BLOCK);
	for (unsigned i = 0; i < EVENT_BLOCKS * BLOCK; i++)
		msgpack_pack_uint32(p, tokens[first * BLOCK + i]);
	pack_text(p, "block_size");
	msgpack_pack_uint32(p, BLOCK);
	pack_text(p, "lora_id");
	msgpack_pack_nil(p);
	pack_text(p, "medium");
	pack_text(p, "GPU");
	pack_text(p, "lora_name");
	msgpack_pack_nil(p);
	pack_text(p, "extra_keys");
	msgpack_pack_array(p, EVENT_BLOCKS);
	for (unsigned i = 0; i < EVENT_BLOCKS; i++)
		msgpack_pack_nil(p);
	pack_text(p, "group_idx");
	msgpack_pack_uint32(p, 0);
	pack_text(p, "kv_cache_spec_kind");
	pack_text(p, "full_attention");
}

static void
pack_removed(msgpack_packer *p, unsigned w, unsigned batch, unsigned chain, unsigned first)
{
	msgpack_pack_map(p, 4);
	pack_text(p, "type");
	pack_text(p, "BlockRemoved");
	pack_hashes(p, w, batch, chain, first);
	pack_text(p, "medium");
	pack_text(p, "GPU");
	pack_text(p, "group_idx");
	msgpack_pack_uint32(p, 0);
}

static void
pack_batch(msgpack_sbuffer *buf, unsigned w, unsigned batch, bool removals)
{
	unsigned old = (batch + CYCLE - LIVE) % CYCLE;
	msgpack_packer p;

	msgpack_sbuffer_init(buf);
	msgpack_packer_init(&p, buf, msgpack_sbuffer_write);
	msgpack_pack_array(&p, 3);
	msgpack_pack_double(&p, 1795000000.0 + batch);
	msgpack_pack_array(&p, removals ? EVENTS : EVENTS / 2);
	for (unsigned chain = 0; chain < CHAINS; chain++)
		for (unsigned first = 0; first < CHAIN; first += EVENT_BLOCKS) {
			if (removals)   /* room is made first, as engines do */
				pack_removed(&p, w, old, chain, CHAIN - EVENT_BLOCKS - first);
			pack_stored(&p, w, batch, chain, first);
		}
	msgpack_pack_uint32(&p, 0);
}

static void
hashes_of(uint64_t seed, const char *model, unsigned w, unsigned batch, unsigned chain,
	  uint64_t ret[CHAIN])
{
	uint32_t tokens[CHAIN * BLOCK];

	tokens_of(w, batch, chain, tokens);
	blockhash_chain(blocks_root(seed, model, slice_str(NULL), slice_str(NULL), BLOCK), tokens,
			CHAIN * BLOCK, BLOCK, ret, CHAIN);
}

static void
encode(uint64_t seed)
{
	for (unsigned w = 0; w < n_workers; w++)
		for (unsigned i = 0; i < CYCLE; i++) {
			struct batch *b = &worker[w].batch[i];

			pack_batch(&b->both, w, i, true);
			if (i >= LIVE)
				pack_batch(&b->stores, w, i, false);
			hashes_of(seed, view.rows.text[worker[w].id].model, w, i, CHAINS - 1,
				  b->last);
		}
}

/* ---- sending ---- */

static void
keep(void *data, void *hint)                    /* the bytes are ours, and stay */
{
	(void)data;
	(void)hint;
}

static void
send_batch(struct worker *w, msgpack_sbuffer *payload, unsigned events)
{
	uint8_t seq[8];
	zmq_msg_t msg;

	for (unsigned i = 0; i < 8; i++)
		seq[i] = (uint8_t)(w->seq >> (56 - 8 * i));
	if (zmq_send(w->sock, "", 0, ZMQ_SNDMORE) < 0 || zmq_send(w->sock, seq, 8, ZMQ_SNDMORE) < 0)
		cannot("send", -errno);
	zmq_msg_init_data(&msg, payload->data, payload->size, keep, NULL);
	if (zmq_msg_send(&msg, w->sock, 0) < 0)
		cannot("send", -errno);
	w->seq++;
	w->events += events;
}

static struct batch *
send_next(struct worker *w)
{
	struct batch *b = &w->batch[w->at];

	send_batch(w, &b->both, EVENTS);
	w->at = (w->at + 1) % CYCLE;
	return b;
}

static void
open_socket(struct worker *w, void *ctx, const char *endpoint)
{
	int on = 1, wait_ms = (int)(LATE_NS / 1000000u), linger = 0;
	uint8_t said[64];

	w->sock = zmq_socket(ctx, ZMQ_XPUB);
	if (!w->sock)
		cannot("make a socket", -errno);
	zmq_setsockopt(w->sock, ZMQ_XPUB_NODROP, &on, sizeof on);
	zmq_setsockopt(w->sock, ZMQ_RCVTIMEO, &wait_ms, sizeof wait_ms);
	zmq_setsockopt(w->sock, ZMQ_SNDTIMEO, &wait_ms, sizeof wait_ms);
	zmq_setsockopt(w->sock, ZMQ_LINGER, &linger, sizeof linger);
	if (zmq_bind(w->sock, endpoint) < 0)
		cannot(endpoint, -errno);
	if (zmq_recv(w->sock, said, sizeof said, 0) < 1)        /* its subscription */
		cannot("be heard", -errno);
}

/* ---- what came of it ---- */

/* As tools do: the supervisor's control socket gives all segments. */
static int
attach(const char *run_dir)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	static char buf[65536];
	struct msg_attach ask = {0};
	struct msg m = {0};
	int sock, fd, r;

	snprintf(sa.sun_path, sizeof sa.sun_path, "%s/control.sock", run_dir);
	sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (sock < 0 || connect(sock, (const struct sockaddr *)&sa, sizeof sa) < 0)
		cannot("reach the supervisor", -errno);
	r = msg_send_fd(sock, MSG_attach, &ask, -1);
	pm_view_init(&view);
	while (r >= 0 && m.id != MSG_go) {
		fd = -1;
		r = msg_receive(sock, &m, buf, sizeof buf, &fd);
		if (r >= 0 && m.id == MSG_segment && fd >= 0)
			pm_view_segment(&view, &m.u.segment, fd);
	}
	if (r < 0)
		cannot("attach", r);
	if (!view.rows.head || !view.reader || rows_count(&view.rows) < n_workers)
		cannot("see the worker table and the index", -ENOENT);
	return sock;
}

static uint64_t
applied(void)
{
	uint64_t sum = 0;

	for (unsigned w = 0; w < n_workers; w++)
		sum += pm_load64(&worker[w].row->applied);
	return sum;
}

static uint64_t
sent(void)
{
	uint64_t sum = 0;

	for (unsigned w = 0; w < n_workers; w++)
		sum += worker[w].events;
	return sum;
}

static void
rest(void)
{
	struct timespec ts = {0, LOOK_NS};

	nanosleep(&ts, NULL);
}

static void
until_applied(void)
{
	mono_ns end = clock_mono() + LATE_NS;

	while (applied() < sent()) {
		if (clock_mono() > end) {
			fprintf(stderr, "%llu events of %llu were applied after 60 s\n",
				(unsigned long long)applied(), (unsigned long long)sent());
			exit(1);
		}
		rest();
	}
}

static uint32_t
depth_at(uint16_t row, const uint64_t hash[CHAIN])
{
	struct index_depth depth[WORKERS_MAX];
	unsigned n = index_match(view.reader, hash, CHAIN, depth, WORKERS_MAX);

	for (unsigned i = 0; i < n; i++)
		if (depth[i].row == row)
			return depth[i].exact;
	return 0;
}

/* Every chain that a worker's last batches left is held whole, and no other. */
static void
verify(uint64_t seed)
{
	uint64_t wrong = 0, gaps = 0;

	for (unsigned w = 0; w < n_workers; w++) {
		const struct worker *me = &worker[w];

		for (unsigned i = 0; i < CYCLE; i++)
			for (unsigned chain = 0; chain < CHAINS; chain++) {
				bool live = (me->at + CYCLE - 1 - i) % CYCLE < LIVE;
				uint64_t hash[CHAIN];

				hashes_of(seed, view.rows.text[me->id].model, w, i, chain, hash);
				wrong += depth_at(me->id, hash) != (live ? CHAIN : 0);
			}
		gaps += pm_load64(&me->row->gaps);
	}
	say((struct figure){"events_applied", NULL, (double)applied(), "events", 0, 0},
	    "%llu sent, %u workers", (unsigned long long)sent(), n_workers);
	say((struct figure){"events_gaps", NULL, (double)gaps, "gaps", 0, 0}, NULL);
	if (applied() != sent() || gaps != 0 || wrong != 0) {
		fprintf(stderr, "%llu chains are not held as sent\n", (unsigned long long)wrong);
		exit(1);
	}
}

/* ---- the two runs ---- */

static void
fill(void)
{
	for (unsigned i = LIVE; i < CYCLE; i++)
		for (unsigned w = 0; w < n_workers; w++)
			send_batch(&worker[w], &worker[w].batch[i].stores, EVENTS / 2);
	until_applied();
}

static double
cpu_s(const struct pm_view_process *p)
{
	char path[64], text[1024], *at;
	unsigned long user = 0, system = 0;
	FILE *f;

	snprintf(path, sizeof path, "/proc/%u/stat", p ? p->process.seg.head->writer_pid : 0);
	f = fopen(path, "r");
	if (!f || !fgets(text, sizeof text, f))
		cannot("read kvevents' CPU time", -errno);
	fclose(f);
	at = strrchr(text, ')');
	if (!at || sscanf(at + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user,
			  &system) != 2)
		cannot("read kvevents' CPU time", -EBADMSG);
	return (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
}

static const struct pm_view_process *
kvevents(void)
{
	for (unsigned i = 0; i < view.n_processes; i++)
		if (view.process[i].role == ROLE_KVEVENTS && !view.process[i].gone)
			return &view.process[i];
	return NULL;
}

static void
flood(unsigned seconds)
{
	mono_ns start = clock_mono(), end = start + seconds * 1000000000ull;
	double cpu = cpu_s(kvevents()), took;
	uint64_t blocks = 0;

	while (clock_mono() < end)
		for (unsigned w = 0; w < n_workers; w++, blocks += BATCH_BLOCKS)
			send_next(&worker[w]);
	until_applied();
	took = (double)(clock_mono() - start) / 1e9;
	cpu = cpu_s(kvevents()) - cpu;
	say((struct figure){"events_blocks_per_s", NULL, (double)blocks / took, "blocks/s", 0, 1e6},
	    "%.1f s; kvevents used %.2f cores, so %.2f million a second of CPU", took, cpu / took,
	    (double)blocks / cpu / 1e6);
}

struct waiting {
	unsigned worker;
	const uint64_t *hash;
	mono_ns sent;
};

static void
paced(unsigned seconds)
{
	unsigned most = seconds * PACED_BLOCKS_PER_S / BATCH_BLOCKS, n = 0, seen = 0, oldest = 0;
	mono_ns every = 1000000000ull * BATCH_BLOCKS / PACED_BLOCKS_PER_S;
	struct waiting *all = calloc(most, sizeof *all);
	uint32_t *us = calloc(most, sizeof *us);
	mono_ns next = clock_mono();

	if (!all || !us)
		cannot("remember batches", -ENOMEM);
	while (seen < most) {
		mono_ns now = clock_mono();

		if (n < most && now >= next) {
			unsigned w = n % n_workers;

			all[n] = (struct waiting){w, NULL, now};
			all[n++].hash = send_next(&worker[w])->last;
			next += every;
			continue;
		}
		for (unsigned i = oldest; i < n; i++) {
			if (!all[i].hash || depth_at(worker[all[i].worker].id, all[i].hash) < CHAIN)
				continue;
			us[seen++] = (uint32_t)((clock_mono() - all[i].sent) / 1000u);
			all[i].hash = NULL;
		}
		while (oldest < n && !all[oldest].hash)
			oldest++;
		if (oldest < n && now > all[oldest].sent + LATE_NS) {
			fprintf(stderr, "a batch was not seen after 60 s\n");
			exit(1);
		}
		rest();
	}
	until_applied();
	say((struct figure){"events_visible_ms", NULL, percentile(us, most, 990) / 1000.0, "ms", 5,
			    0},
	    "99th percentile of %u batches at %u blocks/s; median %.2f, most %.2f", most,
	    PACED_BLOCKS_PER_S, percentile(us, most, 500) / 1000.0,
	    percentile(us, most, 1000) / 1000.0);
	free(all);
	free(us);
}

int
main(int argc, char **argv)
{
	unsigned seconds = 5, paced_seconds = 10;
	const char *endpoint[WORKERS_MAX];
	void *ctx = zmq_ctx_new();
	uint64_t seed;
	int sock;

	for (int i = 2; i < argc; i++) {
		if (strcmp(argv[i], "--seconds") == 0 && i + 1 < argc)
			seconds = (unsigned)atoi(argv[++i]);
		else if (strcmp(argv[i], "--paced") == 0 && i + 1 < argc)
			paced_seconds = (unsigned)atoi(argv[++i]);
		else if (n_workers < WORKERS_MAX)
			endpoint[n_workers++] = argv[i];
	}
	worker = calloc(n_workers + 1, sizeof *worker);
	if (n_workers == 0 || !worker || !ctx)
		cannot("begin: bench_events RUN-DIR ENDPOINT ..", -EINVAL);
	sock = attach(argv[1]);
	seed = index_seed(view.reader);
	for (unsigned w = 0; w < n_workers; w++) {
		worker[w].id = (uint16_t)w;
		worker[w].row = &view.rows.row[w];
		open_socket(&worker[w], ctx, endpoint[w]);
	}
	encode(seed);
	fill();
	if (seconds > 0)
		flood(seconds);
	if (paced_seconds > 0)
		paced(paced_seconds);
	verify(seed);
	for (unsigned w = 0; w < n_workers; w++) {
		zmq_close(worker[w].sock);
		for (unsigned i = 0; i < CYCLE; i++) {
			msgpack_sbuffer_destroy(&worker[w].batch[i].both);
			if (i >= LIVE)
				msgpack_sbuffer_destroy(&worker[w].batch[i].stores);
		}
	}
	zmq_ctx_term(ctx);
	pm_view_close(&view);
	close(sock);
	free(worker);
	return 0;
}
