/* manifest_fields.c -- the table of fields: what an operator may write, in one place. */
#include "actors/common/decide/manifest_private.h"

#include <stddef.h>

#include "proto/http1.h"
#include "shm/arena.h"

#define SIZE_OF(type, member) sizeof(((struct type *)0)->member)
#define GW(m)  offsetof(struct manifest_gateway, m), SIZE_OF(manifest_gateway, m)
#define SET(m) offsetof(struct manifest_set, m), SIZE_OF(manifest_set, m)
#define CERT(m) offsetof(struct manifest_certificate, m), SIZE_OF(manifest_certificate, m)
#define POL(m) offsetof(struct manifest_policy, m), SIZE_OF(manifest_policy, m)

#define NEEDED       true, NULL
#define OPTIONAL     false, NULL
#define OR(fallback) false, fallback
#define RESTART      true
#define RELOAD	     false
#define NOWHERE	     0, 0

/* A map, or a text that manifest_load.c takes itself. */
#define PLAIN(kind, parent, key, type, need, when, doc)                                            \
	{kind, parent, key, MANIFEST_T_##type, need, 0, 0, NULL, NULL, NOWHERE, 0, when, doc}
/* Bounds: how many items. */
#define LIST(kind, parent, key, need, min, max, when, doc)                                         \
	{kind, parent, key, MANIFEST_T_LIST, need, min, max, NULL, NULL, NOWHERE, 0, when, doc}
#define VALUE(kind, parent, key, type, need, min, max, place, when, doc)                           \
	{kind, parent, key, MANIFEST_T_##type, need, min, max, NULL, NULL, place, 0, when, doc}
#define CHOICE(kind, parent, key, need, place, base, choices, later, when, doc)                    \
	{kind, parent, key, MANIFEST_T_CHOICE, need, 0, 0, choices, later, place, base, when, doc}
#define LATER(kind, parent, key)                                                                   \
	{kind, parent, key, MANIFEST_T_LATER, OPTIONAL, 0, 0, NULL, NULL, NOWHERE, 0, false, ""}

#define GATEWAY "GatewayBackend"
#define WORKERS "InferenceWorkerSet"
#define POOL	"InferencePool"
#define POLICY	"InferencePolicy"

#define KIB 1024.0
#define MIB (1024.0 * KIB)
#define GIB (1024.0 * MIB)

/* What the parser and a region of the arena hold: more would be accepted and not be so. */
#define HEAD_MAX ((double)HTTP1_HEAD_MAX_BYTES)
#define BODY_MAX_BYTES (63u << 20)
#define BODY_MAX ((double)BODY_MAX_BYTES)

_Static_assert(BODY_MAX_BYTES + HTTP1_HEAD_MAX_BYTES <= 1u << ARENA_MAX_SHIFT,
	       "head and body in one region");

static const struct manifest_field fields[] = {
	CHOICE("*", "", "apiVersion", NEEDED, NOWHERE, 0, "pointsman.io/v1alpha1", NULL, RELOAD,
	       "the shape this page describes"),
	CHOICE("*", "", "kind", NEEDED, NOWHERE, 0,
	       "GatewayBackend|InferenceWorkerSet|InferencePool|InferencePolicy",
	       "InferenceProvider|InferenceTenant|RequestTag", RELOAD,
	       "what the document describes"),
	PLAIN("*", "", "metadata", MAP, NEEDED, RELOAD, "who it is"),
	PLAIN("*", "metadata", "name", NAME, NEEDED, RELOAD, "unique within its kind"),
	PLAIN("*", "metadata", "labels", MAP, OPTIONAL, RELOAD, "for your own tools; not read"),
	PLAIN("*", "metadata", "annotations", MAP, OPTIONAL, RELOAD,
	      "for your own tools; not read"),
	PLAIN("*", "", "spec", MAP, NEEDED, RELOAD, "the fields below, by kind"),

	LIST(GATEWAY, "spec", "listen", OPTIONAL, 1, MANIFEST_LISTEN_MAX, RESTART,
	     "where clients connect, each \"IP:port\" or \"unix:/path\"; every ingress process "
	     "listens on all of them"),
	PLAIN(GATEWAY, "spec", "unixSockets", MAP, OPTIONAL, RESTART,
	      "the files of `unix:` listeners"),
	VALUE(GATEWAY, "spec.unixSockets", "mode", TEXT, OR("0660"), 0, 0, GW(socket_mode), RESTART,
	      "their mode, octal; who may write may connect"),
	VALUE(GATEWAY, "spec.unixSockets", "group", NAME, OPTIONAL, 0, 0, GW(socket_group), RESTART,
	      "their group, a name or a number; absent: the supervisor's"),
	LIST(GATEWAY, "spec", "listenTls", OPTIONAL, 1, MANIFEST_LISTEN_MAX, RESTART,
	     "addresses where clients speak TLS, each \"IP:port\"; this or `listen` is needed"),
	PLAIN(GATEWAY, "spec", "tls", MAP, OPTIONAL, RELOAD, "for `listenTls`"),
	LIST(GATEWAY, "spec.tls", "certificates", NEEDED, 1, MANIFEST_CERTS_MAX, RELOAD,
	     "the name that a client asks for (SNI) chooses the first that has it, else the first "
	     "with a wildcard for it, else the first; each reload reads the files anew"),
	VALUE(GATEWAY, "spec.tls.certificates[]", "certificate", PATH, NEEDED, 0, 0,
	      CERT(certificate), RELOAD,
	      "PEM file: the server's certificate, then those that lead to its root"),
	VALUE(GATEWAY, "spec.tls.certificates[]", "key", PATH, NEEDED, 0, 0, CERT(key), RELOAD,
	      "PEM file: its private key, without a passphrase; read by the supervisor, which "
	      "need be the only one that may"),
	VALUE(GATEWAY, "spec", "ingresses", COUNT, OR("1"), 1, 64, GW(ingresses), RESTART,
	      "ingress processes; about one for each two cores that serve clients"),
	LIST(GATEWAY, "spec", "models", NEEDED, 1, 1000, RELOAD,
	     "model names that clients may say"),
	PLAIN(GATEWAY, "spec.models[]", "name", TEXT, NEEDED, RELOAD,
	      "as clients write it in \"model\""),
	PLAIN(GATEWAY, "spec.models[]", "policy", NAME, OPTIONAL, RELOAD,
	      "the InferencePolicy that decides; absent: the first whose `match.models` has the "
	      "name"),
	LIST(GATEWAY, "spec.models[]", "aliasOf", OPTIONAL, 0, 0, RELOAD,
	     "one model name of the workers, or a list of them: requests go to workers that serve "
	     "one of these, rewritten to its name; absent: to workers that serve `name` itself"),
	LATER(GATEWAY, "spec.models[]", "tenants"),
	LATER(GATEWAY, "spec", "hosts"),
	LATER(GATEWAY, "spec", "authentication"),
	PLAIN(GATEWAY, "spec", "limits", MAP, OPTIONAL, RESTART, "bounds of one ingress process"),
	VALUE(GATEWAY, "spec.limits", "headBytes", SIZE, OR("64KiB"), 1 * KIB, HEAD_MAX,
	      GW(limits.head_bytes), RESTART, "head of one request; more is 431"),
	VALUE(GATEWAY, "spec.limits", "headers", COUNT, OR("200"), 8, HTTP1_HEADERS_MAX,
	      GW(limits.headers), RESTART, "header fields of one request; more is 431"),
	VALUE(GATEWAY, "spec.limits", "bodyBytes", SIZE, OR("32MiB"), 1 * KIB, BODY_MAX,
	      GW(limits.body_bytes), RESTART, "body of one request; more is 413"),
	VALUE(GATEWAY, "spec.limits", "slots", COUNT, OR("16384"), 16, 1048576, GW(limits.slots),
	      RESTART, "live requests; more is 503"),
	VALUE(GATEWAY, "spec.limits", "arenaBytes", SIZE, OR("1GiB"), 16 * MIB, 64 * GIB,
	      GW(limits.arena_bytes), RESTART,
	      "address space for request bodies; full: bodies wait `timeouts.arena`, then 503"),
	VALUE(GATEWAY, "spec.limits", "streamBufferBytes", SIZE, OR("256KiB"), 16 * KIB, 16 * MIB,
	      GW(limits.stream_buffer_bytes), RESTART,
	      "answer bytes kept for a slow client before its worker must wait"),
	VALUE(GATEWAY, "spec.limits", "questions", COUNT, OR("1024"), 1, 65536,
	      GW(limits.questions), RESTART,
	      "questions to the policy process at once; three times as many wait for their turn, "
	      "more is 503"),
	VALUE(GATEWAY, "spec.limits", "upstreamConnections", COUNT, OR("4096"), 1, 65536,
	      GW(limits.upstream_connections), RESTART,
	      "connections to one worker; then the next candidate is tried, else 503"),
	VALUE(GATEWAY, "spec.limits", "pinnedResponses", COUNT, OR("65536"), 64, 16777216,
	      GW(limits.pinned_responses), RESTART,
	      "stored responses (/v1/responses) whose worker is remembered; older ones are 404"),
	PLAIN(GATEWAY, "spec", "timeouts", MAP, OPTIONAL, RESTART, "how long is too long"),
	VALUE(GATEWAY, "spec.timeouts", "head", DURATION, OR("10s"), .01, 600, GW(timeouts.head_ns),
	      RESTART, "a whole request head; then 408"),
	VALUE(GATEWAY, "spec.timeouts", "keepAlive", DURATION, OR("60s"), .01, 3600,
	      GW(timeouts.keep_alive_ns), RESTART, "an idle client connection"),
	VALUE(GATEWAY, "spec.timeouts", "upstreamKeepAlive", DURATION, OR("4s"), .01, 3600,
	      GW(timeouts.upstream_keep_alive_ns), RESTART,
	      "an idle worker connection; vLLM closes its side after 5 s, so stay below"),
	VALUE(GATEWAY, "spec.timeouts", "connect", DURATION, OR("2s"), .01, 60,
	      GW(timeouts.connect_ns), RESTART,
	      "a connection to a worker; then the next candidate"),
	VALUE(GATEWAY, "spec.timeouts", "firstByte", DURATION, OR("600s"), .1, 86400,
	      GW(timeouts.first_byte_ns), RESTART, "a worker's first byte; then 504"),
	VALUE(GATEWAY, "spec.timeouts", "interChunk", DURATION, OR("120s"), .1, 86400,
	      GW(timeouts.inter_chunk_ns), RESTART, "silence within an answer; then it is cut off"),
	VALUE(GATEWAY, "spec.timeouts", "writeStall", DURATION, OR("30s"), .1, 3600,
	      GW(timeouts.write_stall_ns), RESTART,
	      "a client that reads nothing; then it is closed and its worker freed"),
	VALUE(GATEWAY, "spec.timeouts", "drain", DURATION, OR("600s"), 0, 86400,
	      GW(timeouts.drain_ns), RESTART,
	      "requests in flight at SIGTERM or SIGUSR2; then they are cut off"),
	VALUE(GATEWAY, "spec.timeouts", "policyAnswer", DURATION, OR("10s"), .1, 600,
	      GW(timeouts.policy_answer_ns), RESTART, "a decision; then 503"),
	VALUE(GATEWAY, "spec.timeouts", "arena", DURATION, OR("10s"), .1, 600,
	      GW(timeouts.arena_ns), RESTART,
	      "a body that waits for room in the arena and is not read meanwhile; then 503"),
	PLAIN(GATEWAY, "spec", "client", MAP, OPTIONAL, RESTART, "how clients are understood"),
	CHOICE(GATEWAY, "spec.client", "halfClose", OR("gone"), GW(half_close),
	       MANIFEST_HALF_CLOSE_GONE, "gone|serve", NULL, RESTART,
	       "a client that closed its sending side: `gone` frees the worker within 50 ms, "
	       "`serve` "
	       "answers until a write fails"),
	LIST(GATEWAY, "spec.client", "trustedPeers", OPTIONAL, 1, MANIFEST_TRUSTED_MAX, RELOAD,
	     "networks (`10.0.0.0/8`), addresses or `unix` (clients on unix sockets) whose "
	     "X-Forwarded-For is believed: the client is its rightmost address that is not "
	     "trusted; from others the header is ignored"),
	VALUE(GATEWAY, "spec.client", "fairness", BOOL, OR("true"), 0, 0, GW(fairness), RELOAD,
	      "one client address (IPv6: one /64) gets no more request slots, arena bytes and "
	      "connections than what is still free of them: half when alone; more is 429 "
	      "`client_share`, or closes its own idle connections"),
	PLAIN(GATEWAY, "spec", "io", MAP, OPTIONAL, RESTART, "how ingress waits for the network"),
	CHOICE(GATEWAY, "spec.io", "backend", OR("auto"), GW(io), MANIFEST_IO_AUTO,
	       "auto|io_uring|epoll", NULL, RESTART,
	       "`auto`: io_uring where the kernel allows it, else epoll"),
	PLAIN(GATEWAY, "spec", "admin", MAP, OPTIONAL, RESTART, "the operators' port"),
	VALUE(GATEWAY, "spec.admin", "listen", ADDR, OR("127.0.0.1:9090"), 0, 0, GW(admin), RESTART,
	      "metrics, health and readiness; keep it away from clients"),
	PLAIN(GATEWAY, "spec", "index", MAP, OPTIONAL, RESTART, "the prefix index"),
	VALUE(GATEWAY, "spec.index", "blocks", COUNT, OR("1000000"), 64, 1000000000,
	      GW(index_blocks), RESTART,
	      "different KV blocks it can hold, about 24 bytes each: at least the workers' blocks "
	      "together"),
	VALUE(GATEWAY, "spec.index", "maxSlots", COUNT, OR("0"), 0, 65534, GW(index_max_slots),
	      RESTART,
	      "ids of (worker, tier) it can tell apart, six a worker at most; 0: chosen from the "
	      "workers"),
	VALUE(GATEWAY, "spec.index", "privateBytes", SIZE, OR("0"), 0, 1024 * GIB,
	      GW(index_private_bytes), RELOAD,
	      "most that kvevents keeps beside it: maps from the workers' hashes, lists, blocks "
	      "without a known parent; one worker gets three quarters at most; what does not fit "
	      "is not known to be held; 0: 160 bytes a block and 16 MiB"),
	VALUE(GATEWAY, "spec.index", "workerBlocksPerSecond", COUNT, OR("200000"), 0, 1000000000,
	      GW(index_worker_rate), RELOAD,
	      "blocks that one worker's events may store a second, five times as many at once; "
	      "what is above is not known to be held; 0: any number"),
	VALUE(GATEWAY, "spec.index", "workerShare", COUNT, OR("50"), 1, 100,
	      GW(index_worker_share), RELOAD,
	      "percent of the index that one worker's blocks may have; what is above is not known "
	      "to be held"),
	PLAIN(GATEWAY, "spec", "policyProcess", MAP, OPTIONAL, RELOAD,
	      "how policy processes are replaced"),
	VALUE(GATEWAY, "spec.policyProcess", "standby", COUNT, OR("1"), 0, 1, GW(policy_standby),
	      RELOAD,
	      "loaded spare processes: with 1 a crash costs nothing, with 0 the time to load"),
	VALUE(GATEWAY, "spec.policyProcess", "probation", DURATION, OR("10s"), 0, 3600,
	      GW(policy_probation_ns), RELOAD,
	      "time in which a new generation that fails is rolled back"),
	VALUE(GATEWAY, "spec.policyProcess", "loadDeadline", DURATION, OR("30s"), .1, 3600,
	      GW(policy_load_deadline_ns), RELOAD,
	      "time a new generation has to get ready; then the old one stays"),

	CHOICE(WORKERS, "spec", "engine", NEEDED, SET(engine), MANIFEST_ENGINE_VLLM,
	       "vllm|sglang|trtllm|triton", NULL, RELOAD,
	       "what the workers run; `triton`: its OpenAI front end before vLLM or TensorRT-LLM"),
	VALUE(WORKERS, "spec", "model", TEXT, NEEDED, 0, 0, SET(model), RELOAD,
	      "the model's name as the workers serve it"),
	VALUE(WORKERS, "spec", "blockSize", COUNT, OR("0"), 0, 65536, SET(block_tokens), RELOAD,
	      "tokens per KV block; 0: learned from the worker"),
	VALUE(WORKERS, "spec", "dataParallelRanks", COUNT, OR("1"), 1, MANIFEST_RANKS_MAX,
	      SET(ranks), RELOAD,
	      "ranks behind each member's URL; above 1 the rank is chosen by header, which "
	      "only vllm has, and its events come from the endpoint's port plus the rank"),
	LIST(WORKERS, "spec", "members", OPTIONAL, 1, MANIFEST_ROWS_MAX, RELOAD,
	     "the workers; needed where there is no `discovery`, and may stand beside it"),
	PLAIN(WORKERS, "spec.members[]", "name", NAME, NEEDED, RELOAD, "unique within the set"),
	PLAIN(WORKERS, "spec.members[]", "url", TEXT, NEEDED, RELOAD,
	      "`http://host:port` or `https://host:port` of the engine's API"),
	PLAIN(WORKERS, "spec.members[]", "kvEvents", TEXT, OPTIONAL, RELOAD,
	      "`tcp://host:port` or `ipc://path` where rank 0 publishes KV-cache events; "
	      "`bind:tcp://address:port` where publishers connect to us, taken from the URL's "
	      "host "
	      "only; absent: the cache is only guessed at from what was sent there"),
	PLAIN(WORKERS, "spec.members[]", "kvReplay", TEXT, OPTIONAL, RELOAD,
	      "`tcp://host:port` or `ipc://path` of rank 0's replay socket (vLLM's "
	      "`replay_endpoint`): what was missed is asked for there; absent: a gap stays one "
	      "until "
	      "the worker clears its cache or restarts"),
	VALUE(WORKERS, "spec", "kvTopic", TEXT, OPTIONAL, 0, 0, SET(kv_topic), RELOAD,
	      "how the topics of their events begin, cut only where a field of the topic ends "
	      "(`kv@10.0.0.1` is not `kv@10.0.0.10`); absent: any, but for `kv@` topics that name "
	      "another IP address than the URL does"),
	VALUE(WORKERS, "spec", "metricsPath", PATH, OPTIONAL, 0, 0, SET(metrics_path), RELOAD,
	      "the engine's Prometheus page; absent: /metrics, of trtllm /prometheus/metrics"),
	VALUE(WORKERS, "spec", "metricsPort", COUNT, OR("0"), 0, 65535, SET(metrics_port), RELOAD,
	      "its port, as tritonserver's 8002; 0: the URL's"),
	VALUE(WORKERS, "spec", "healthPath", PATH, OPTIONAL, 0, 0, SET(health_path), RELOAD,
	      "answers 200 while the engine lives; absent: /health, of triton /health/ready"),
	VALUE(WORKERS, "spec", "tokenize", BOOL, OPTIONAL, 0, 0, SET(tokenize), RELOAD,
	      "text prompts that are not tokenized here (`tokenizer`) are by the worker's "
	      "/tokenize; false: they are routed by load only; absent: true with vllm; with others "
	      "it is not there yet"),
	VALUE(WORKERS, "spec", "slowStart", DURATION, OR("10s"), 0, 3600, SET(slow_start_ns),
	      RELOAD,
	      "time in which a worker that came up (new, restarted, woken) beside others gets as "
	      "long a queue as they have, little by little; 0: at once"),
	VALUE(WORKERS, "spec", "scrapeInterval", DURATION, OR("1s"), .05, 60,
	      SET(scrape_interval_ns), RELOAD, "between two readings of a worker"),
	PLAIN(WORKERS, "spec", "tls", MAP, OPTIONAL, RELOAD, "for members with https:// URLs"),
	VALUE(WORKERS, "spec.tls", "ca", PATH, OPTIONAL, 0, 0, SET(tls_ca), RELOAD,
	      "PEM file: who may sign their certificates; absent: whom the system trusts"),
	VALUE(WORKERS, "spec.tls", "serverName", TEXT, OPTIONAL, 0, 0, SET(tls_server_name), RELOAD,
	      "name that their certificates must have, and that is asked for; absent: the host of "
	      "the URL"),
	PLAIN(WORKERS, "spec", "apiKeyFrom", MAP, OPTIONAL, RELOAD,
	      "the key for `Authorization: Bearer` of requests to these workers (vLLM's "
	      "`--api-key`); a client's own never goes there"),
	VALUE(WORKERS, "spec.apiKeyFrom", "file", PATH, OPTIONAL, 0, 0, SET(api_key_file), RELOAD,
	      "file that holds it; read by the supervisor at start and at each reload"),
	VALUE(WORKERS, "spec.apiKeyFrom", "env", TEXT, OPTIONAL, 0, 0, SET(api_key_env), RELOAD,
	      "or the variable in the supervisor's environment"),
	PLAIN(WORKERS, "spec", "tokenizer", MAP, OPTIONAL, RELOAD,
	      "text prompts are rendered and tokenized here, as these workers do it; a folder that "
	      "cannot be used is told of, and `tokenize` takes its place; vllm only"),
	VALUE(WORKERS, "spec.tokenizer", "path", PATH, NEEDED, 0, 0, SET(tokenizer.path), RELOAD,
	      "the model's folder: tokenizer.json (or tekken.json, or tiktoken ranks), "
	      "tokenizer_config.json, config.json, chat templates; weights are not read"),
	VALUE(WORKERS, "spec.tokenizer", "chatTemplate", PATH, OPTIONAL, 0, 0,
	      SET(tokenizer.chat_template), RELOAD,
	      "file, as vLLM's `--chat-template`; absent: the folder's own"),
	CHOICE(WORKERS, "spec.tokenizer", "contentFormat", OR("auto"), SET(tokenizer.content),
	       MANIFEST_CONTENT_AUTO, "auto|string|openai", NULL, RELOAD,
	       "as vLLM's `--chat-template-content-format`"),
	PLAIN(WORKERS, "spec.tokenizer", "defaultChatTemplateKwargs", MAP, OPTIONAL, RELOAD,
	      "variables of the template that a request need not give, as vLLM's "
	      "`--default-chat-template-kwargs`"),
	VALUE(WORKERS, "spec.tokenizer", "timeZone", TEXT, OR("UTC"), 0, 0,
	      SET(tokenizer.time_zone), RELOAD,
	      "of the workers, as in TZ: templates may write the date"),
	VALUE(WORKERS, "spec.tokenizer", "trustRequestChatTemplate", BOOL, OR("false"), 0, 0,
	      SET(tokenizer.trust_request_template), RELOAD,
	      "as vLLM's `--trust-request-chat-template`"),
	VALUE(WORKERS, "spec.tokenizer", "excludeToolsWhenToolChoiceNone", BOOL, OR("false"), 0, 0,
	      SET(tokenizer.exclude_tools), RELOAD,
	      "as vLLM's `--exclude-tools-when-tool-choice-none`"),
	CHOICE(WORKERS, "spec.tokenizer", "tokenizerMode", OR("auto"), SET(tokenizer.encoder),
	       MANIFEST_ENCODER_AUTO, "auto|hf", "mistral|deepseek_v32", RELOAD,
	       "`auto`: a model for which engines have an encoder of their own goes by "
	       "`tokenize`; `hf`: these workers use the folder's files all the same"),
	VALUE(WORKERS, "spec.tokenizer", "maxModelLen", COUNT, OR("0"), 0, 1 << 30,
	      SET(tokenizer.max_model_len), RELOAD,
	      "tokens, as vLLM's `--max-model-len`; 0: what config.json says"),
	LIST(WORKERS, "spec", "loraAdapters", OPTIONAL, 1, 1000, RELOAD,
	     "names of LoRA adapters that each of these workers has; clients may say them as they "
	     "say a model's, and what they cache is never taken for the model's own"),
	PLAIN(WORKERS, "spec", "discovery", MAP, OPTIONAL, RELOAD,
	      "where members come and go without a reload: `file` or `dns`"),
	PLAIN(WORKERS, "spec.discovery", "file", MAP, OPTIONAL, RELOAD, "members are in a file"),
	VALUE(WORKERS, "spec.discovery.file", "path", PATH, NEEDED, 0, 0, SET(discovery.file),
	      RELOAD,
	      "YAML or JSON, a map with a list `members` as in `spec`; read again whenever it is "
	      "rewritten, replaced, or a link to it is moved"),
	PLAIN(WORKERS, "spec.discovery", "dns", MAP, OPTIONAL, RELOAD,
	      "members are what a name resolves to"),
	VALUE(WORKERS, "spec.discovery.dns", "name", TEXT, NEEDED, 0, 0, SET(discovery.dns.name),
	      RELOAD, "without `resolver` the system's search list applies"),
	CHOICE(WORKERS, "spec.discovery.dns", "type", OR("A"), SET(discovery.dns.record),
	       MANIFEST_RECORD_A, "A|AAAA|SRV", NULL, RELOAD,
	       "addresses, which are the members' names; or targets and ports"),
	VALUE(WORKERS, "spec.discovery.dns", "port", COUNT, OPTIONAL, 1, 65535,
	      SET(discovery.dns.port), RELOAD, "of the engine's API; needed unless SRV tells"),
	VALUE(WORKERS, "spec.discovery.dns", "kvEventsPort", COUNT, OPTIONAL, 1, 65535,
	      SET(discovery.dns.kv_events_port), RELOAD,
	      "where rank 0 publishes KV-cache events; absent: they publish none"),
	VALUE(WORKERS, "spec.discovery.dns", "kvReplayPort", COUNT, OPTIONAL, 1, 65535,
	      SET(discovery.dns.kv_replay_port), RELOAD,
	      "of rank 0's replay socket; absent: they have none"),
	VALUE(WORKERS, "spec.discovery.dns", "interval", DURATION, OR("30s"), .05, 3600,
	      SET(discovery.dns.interval_ns), RELOAD,
	      "between two questions; less, down to 1 s, where the records' TTL is less"),
	VALUE(WORKERS, "spec.discovery.dns", "resolver", ADDR, OPTIONAL, 0, 0,
	      SET(discovery.dns.resolver), RELOAD, "whom to ask; absent: /etc/resolv.conf"),
	VALUE(WORKERS, "spec.discovery.dns", "emptyMeansNone", BOOL, OR("false"), 0, 0,
	      SET(discovery.dns.empty_means_none), RELOAD,
	      "an authoritative answer without any record means that there are no members (one "
	      "with an alias only does not); false: those known last stay, as they do whenever "
	      "there is no answer, or no such name"),
	VALUE(WORKERS, "spec.discovery", "https", BOOL, OR("false"), 0, 0, SET(discovery.https),
	      RELOAD, "URLs in `file` may be https://; of `dns`, they are"),
	VALUE(WORKERS, "spec.discovery", "trustEndpoints", BOOL, OR("false"), 0, 0,
	      SET(discovery.trust_endpoints), RELOAD,
	      "a member's `kvEvents` and `kvReplay` may be on another host than its `url`"),
	PLAIN(WORKERS, "spec", "prior", MAP, OPTIONAL, RELOAD,
	      "what the predictor assumes of a worker until it has learned"),
	VALUE(WORKERS, "spec.prior", "base", SECONDS, OR("20ms"), 0, 60, SET(prior.base_s), RELOAD,
	      "time to first token of an empty worker and no prompt"),
	VALUE(WORKERS, "spec.prior", "prefill", SECONDS, OR("100us"), 0, 1, SET(prior.prefill_s),
	      RELOAD, "per prompt token that is not cached"),
	VALUE(WORKERS, "spec.prior", "attention", SECONDS, OR("1ns"), 0, .001,
	      SET(prior.attention_s), RELOAD, "per such token and token of context before it"),
	VALUE(WORKERS, "spec.prior", "decode", SECONDS, OR("100us"), 0, 10, SET(prior.decode_s),
	      RELOAD, "per request that is decoding there"),
	VALUE(WORKERS, "spec.prior", "context", SECONDS, OR("0s"), 0, .001, SET(prior.context_s),
	      RELOAD, "per token of their context"),
	VALUE(WORKERS, "spec.prior", "step", SECONDS, OR("0s"), 0, 60, SET(prior.step_s), RELOAD,
	      "per step of the engine"),

	LIST(POOL, "spec", "workerSets", NEEDED, 1, 1000, RELOAD, "names of InferenceWorkerSets"),
	LATER(POOL, "spec", "health"),
	LATER(POOL, "spec", "outlierEjection"),
	LATER(POOL, "spec", "prediction"),

	PLAIN(POLICY, "spec", "match", MAP, OPTIONAL, RELOAD,
	      "which requests it decides; absent: all models that name it"),
	LIST(POLICY, "spec.match", "models", OPTIONAL, 1, 1000, RELOAD,
	     "model names of the GatewayBackend; `\"*\"`: all"),
	LATER(POLICY, "spec.match", "tenants"),
	LIST(POLICY, "spec", "candidates", NEEDED, 1, 1000, RELOAD, "where requests may go"),
	PLAIN(POLICY, "spec.candidates[]", "pool", NAME, NEEDED, RELOAD, "an InferencePool"),
	LATER(POLICY, "spec.candidates[]", "provider"),
	LATER(POLICY, "spec.candidates[]", "model"),
	LATER(POLICY, "spec", "rules"),
	CHOICE(POLICY, "spec", "minimize", OR("PredictedTTFT"), POL(minimize),
	       MANIFEST_MINIMIZE_PREDICTED_TTFT,
	       "PredictedTTFT|Random|RoundRobin|LeastPrefill|LeastRequests",
	       "Cost|Waiting|LMetric|PowerOfTwo|SessionHash", RELOAD,
	       "how one candidate is chosen; all but the first are for comparison"),
	PLAIN(POLICY, "spec", "onEmpty", MAP, OPTIONAL, RELOAD, "when no candidate is left"),
	CHOICE(POLICY, "spec.onEmpty", "action", OR("Reject"), POL(on_empty),
	       MANIFEST_ON_EMPTY_REJECT, "Reject", "Wait|Fallback", RELOAD,
	       "`Reject`: 503 with Retry-After"),
	LATER(POLICY, "spec.onEmpty", "upTo"),
	LATER(POLICY, "spec.onEmpty", "then"),
	LATER(POLICY, "spec", "slo"),
};

const struct manifest_field *
manifest_fields(size_t *ret_n)
{
	*ret_n = sizeof(fields) / sizeof(fields[0]);
	return fields;
}
