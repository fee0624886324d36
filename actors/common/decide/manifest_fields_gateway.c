/* manifest_fields_gateway.c -- the table of fields of a GatewayBackend. */
#include "actors/common/decide/manifest_rows.h"

#include "proto/http1.h"
#include "shm/arena.h"

#define GW(m)	MANIFEST_AT(manifest_gateway, m)
#define LIMIT(m) MANIFEST_AT(manifest_gateway, default_limits.m)
#define JWT(m)	MANIFEST_AT(manifest_issuer, m)
#define CERT(m) MANIFEST_AT(manifest_certificate, m)

/* What the parser and a region of the arena hold: more would be accepted and not be so. */
#define HEAD_MAX ((double)HTTP1_HEAD_MAX_BYTES)
#define BODY_MAX_BYTES (63u << 20)
#define BODY_MAX ((double)BODY_MAX_BYTES)

_Static_assert(BODY_MAX_BYTES + HTTP1_HEAD_MAX_BYTES <= 1u << ARENA_MAX_SHIFT,
	       "head and body in one region");

static const struct manifest_field fields[] = {
	LIST("spec", "listen", OPTIONAL, 1, MANIFEST_LISTEN_MAX, RESTART,
	     "where clients connect, each \"IP:port\" or \"unix:/path\"; every ingress process "
	     "listens on all of them"),
	PLAIN("spec", "unixSockets", MAP, OPTIONAL, RESTART,
	      "the files of `unix:` listeners"),
	VALUE("spec.unixSockets", "mode", TEXT, OR("0660"), 0, 0, GW(socket_mode), RESTART,
	      "their mode, octal; who may write may connect"),
	VALUE("spec.unixSockets", "group", NAME, OPTIONAL, 0, 0, GW(socket_group), RESTART,
	      "their group, a name or a number; absent: the supervisor's"),
	LIST("spec", "listenTls", OPTIONAL, 1, MANIFEST_LISTEN_MAX, RESTART,
	     "addresses where clients speak TLS, each \"IP:port\"; this or `listen` is needed"),
	PLAIN("spec", "tls", MAP, OPTIONAL, RELOAD, "for `listenTls`"),
	LIST("spec.tls", "certificates", NEEDED, 1, MANIFEST_CERTS_MAX, RELOAD,
	     "the name that a client asks for (SNI) chooses the first that has it, else the first "
	     "with a wildcard for it, else the first; each reload reads the files anew"),
	VALUE("spec.tls.certificates[]", "certificate", PATH, NEEDED, 0, 0,
	      CERT(certificate), RELOAD,
	      "PEM file: the server's certificate, then those that lead to its root"),
	VALUE("spec.tls.certificates[]", "key", PATH, NEEDED, 0, 0, CERT(key), RELOAD,
	      "PEM file: its private key, without a passphrase; read by the supervisor, which "
	      "need be the only one that may"),
	VALUE("spec", "ingresses", COUNT, OR("1"), 1, 64, GW(ingresses), RESTART,
	      "ingress processes; about one for each two cores that serve clients"),
	LIST("spec", "models", NEEDED, 1, 1000, RELOAD,
	     "model names that clients may say"),
	PLAIN("spec.models[]", "name", TEXT, NEEDED, RELOAD,
	      "as clients write it in \"model\""),
	PLAIN("spec.models[]", "policy", NAME, OPTIONAL, RELOAD,
	      "the InferencePolicy that decides; absent: the first whose `match.models` has the "
	      "name"),
	LIST("spec.models[]", "aliasOf", OPTIONAL, 0, 0, RELOAD,
	     "one model name of the workers, or a list of them: requests go to workers that serve "
	     "one of these, rewritten to its name; absent: to workers that serve `name` itself"),
	LIST("spec.models[]", "tenants", OPTIONAL, 1, 1000, RELOAD,
	     "names of the InferenceTenants that may say it; absent: everybody"),
	LIST("spec", "hosts", OPTIONAL, 1, 64, RELOAD,
	     "names that the Host header may have, without a port; `*.example.com` for all below "
	     "it; others are 421; absent: any"),
	CHOICE("spec", "authentication", OR("off"), GW(authentication),
	       MANIFEST_AUTHENTICATION_OFF, "off|optional|required", NULL, RELOAD,
	       "`required`: a request without a tenant's key, token or header is 401; `optional`: "
	       "it is `defaultTenant`'s, a wrong one is 401; `off`: a wrong one is as none"),
	PLAIN("spec", "jwt", MAP, OPTIONAL, RELOAD, "JSON web tokens as `Authorization: Bearer`"),
	LIST("spec.jwt", "issuers", NEEDED, 1, 16, RELOAD, "whose tokens are believed"),
	VALUE("spec.jwt.issuers[]", "issuer", STRING, NEEDED, 0, 0, JWT(issuer), RELOAD,
	      "the claim `iss`, letter by letter"),
	VALUE("spec.jwt.issuers[]", "audience", STRING, OPTIONAL, 0, 0, JWT(audience), RELOAD,
	      "what `aud` must have; absent: anything"),
	LIST("spec.jwt.issuers[]", "algorithms", NEEDED, 1, 3, RELOAD,
	     "of `HS256`, `RS256`, `ES256`; never `none`, and never another than the key's"),
	VALUE("spec.jwt.issuers[]", "jwks", PATH, OPTIONAL, 0, 0, JWT(jwks), RELOAD,
	      "file of a JWK set; for RS256 and ES256"),
	PLAIN("spec.jwt.issuers[]", "secretFrom", MAP, OPTIONAL, RELOAD, "for HS256"),
	VALUE("spec.jwt.issuers[].secretFrom", "file", PATH, OPTIONAL, 0, 0, JWT(secret_file),
	      RELOAD, "file that holds it; read by the supervisor"),
	VALUE("spec.jwt.issuers[].secretFrom", "env", TEXT, OPTIONAL, 0, 0, JWT(secret_env),
	      RELOAD, "or the variable in the supervisor's environment"),
	VALUE("spec.jwt.issuers[]", "leeway", DURATION, OR("30s"), 0, 600, JWT(leeway_ns), RELOAD,
	      "how far clocks may differ, for `exp` and `nbf`"),
	PLAIN("spec", "defaultTenant", NAME, OPTIONAL, RELOAD,
	      "the InferenceTenant of requests that have none; absent: they are nobody's"),
	PLAIN("spec", "defaultLimits", MAP, OPTIONAL, RELOAD,
	      "limits of each tenant that does not set its own, field by field"),
	LIMITS("spec.defaultLimits", LIMIT),
	PLAIN("spec", "limits", MAP, OPTIONAL, RESTART, "bounds of one ingress process"),
	VALUE("spec.limits", "headBytes", SIZE, OR("64KiB"), 1 * KIB, HEAD_MAX,
	      GW(limits.head_bytes), RESTART, "head of one request; more is 431"),
	VALUE("spec.limits", "headers", COUNT, OR("200"), 8, HTTP1_HEADERS_MAX,
	      GW(limits.headers), RESTART, "header fields of one request; more is 431"),
	VALUE("spec.limits", "bodyBytes", SIZE, OR("32MiB"), 1 * KIB, BODY_MAX,
	      GW(limits.body_bytes), RESTART, "body of one request; more is 413"),
	VALUE("spec.limits", "slots", COUNT, OR("16384"), 16, 1048576, GW(limits.slots),
	      RESTART, "live requests; more is 503"),
	VALUE("spec.limits", "arenaBytes", SIZE, OR("1GiB"), 16 * MIB, 64 * GIB,
	      GW(limits.arena_bytes), RESTART,
	      "address space for request bodies; full: bodies wait `timeouts.arena`, then 503"),
	VALUE("spec.limits", "streamBufferBytes", SIZE, OR("256KiB"), 16 * KIB, 16 * MIB,
	      GW(limits.stream_buffer_bytes), RESTART,
	      "answer bytes kept for a slow client before its worker must wait"),
	VALUE("spec.limits", "questions", COUNT, OR("1024"), 1, 65536,
	      GW(limits.questions), RESTART,
	      "questions to the policy process at once; three times as many wait for their turn, "
	      "more is 503"),
	VALUE("spec.limits", "upstreamConnections", COUNT, OR("4096"), 1, 65536,
	      GW(limits.upstream_connections), RESTART,
	      "connections to one worker; then the next candidate is tried, else 503"),
	VALUE("spec.limits", "pinnedResponses", COUNT, OR("65536"), 64, 16777216,
	      GW(limits.pinned_responses), RESTART,
	      "stored responses (/v1/responses) whose worker is remembered; older ones are 404"),
	PLAIN("spec", "timeouts", MAP, OPTIONAL, RESTART, "how long is too long"),
	VALUE("spec.timeouts", "head", DURATION, OR("10s"), .01, 600, GW(timeouts.head_ns),
	      RESTART, "a whole request head; then 408"),
	VALUE("spec.timeouts", "keepAlive", DURATION, OR("60s"), .01, 3600,
	      GW(timeouts.keep_alive_ns), RESTART, "an idle client connection"),
	VALUE("spec.timeouts", "upstreamKeepAlive", DURATION, OR("4s"), .01, 3600,
	      GW(timeouts.upstream_keep_alive_ns), RESTART,
	      "an idle worker connection; vLLM closes its side after 5 s, so stay below"),
	VALUE("spec.timeouts", "connect", DURATION, OR("2s"), .01, 60,
	      GW(timeouts.connect_ns), RESTART,
	      "a connection to a worker; then the next candidate"),
	VALUE("spec.timeouts", "firstByte", DURATION, OR("600s"), .1, 86400,
	      GW(timeouts.first_byte_ns), RESTART, "a worker's first byte; then 504"),
	VALUE("spec.timeouts", "interChunk", DURATION, OR("120s"), .1, 86400,
	      GW(timeouts.inter_chunk_ns), RESTART, "silence within an answer; then it is cut off"),
	VALUE("spec.timeouts", "writeStall", DURATION, OR("30s"), .1, 3600,
	      GW(timeouts.write_stall_ns), RESTART,
	      "a client that reads nothing; then it is closed and its worker freed"),
	VALUE("spec.timeouts", "drain", DURATION, OR("600s"), 0, 86400,
	      GW(timeouts.drain_ns), RESTART,
	      "requests in flight at SIGTERM or SIGUSR2; then they are cut off"),
	VALUE("spec.timeouts", "policyAnswer", DURATION, OR("10s"), .1, 600,
	      GW(timeouts.policy_answer_ns), RESTART, "a decision; then 503"),
	VALUE("spec.timeouts", "arena", DURATION, OR("10s"), .1, 600,
	      GW(timeouts.arena_ns), RESTART,
	      "a body that waits for room in the arena and is not read meanwhile; then 503"),
	PLAIN("spec", "client", MAP, OPTIONAL, RESTART, "how clients are understood"),
	CHOICE("spec.client", "halfClose", OR("gone"), GW(half_close),
	       MANIFEST_HALF_CLOSE_GONE, "gone|serve", NULL, RESTART,
	       "a client that closed its sending side: `gone` frees the worker within 50 ms, "
	       "`serve` "
	       "answers until a write fails"),
	LIST("spec.client", "trustedPeers", OPTIONAL, 1, MANIFEST_TRUSTED_MAX, RELOAD,
	     "networks (`10.0.0.0/8`), addresses or `unix` (clients on unix sockets) whose "
	     "X-Forwarded-For is believed: the client is its rightmost address that is not "
	     "trusted; from others the header is ignored"),
	VALUE("spec.client", "fairness", BOOL, OR("true"), 0, 0, GW(fairness), RELOAD,
	      "one client address (IPv6: one /64) gets no more request slots, arena bytes and "
	      "connections than what is still free of them: half when alone; more is 429 "
	      "`client_share`, or closes its own idle connections"),
	PLAIN("spec", "io", MAP, OPTIONAL, RESTART, "how ingress waits for the network"),
	CHOICE("spec.io", "backend", OR("auto"), GW(io), MANIFEST_IO_AUTO,
	       "auto|io_uring|epoll", NULL, RESTART,
	       "`auto`: io_uring where the kernel allows it, else epoll"),
	PLAIN("spec", "admin", MAP, OPTIONAL, RESTART, "the operators' port"),
	VALUE("spec.admin", "listen", ADDR, OR("127.0.0.1:9090"), 0, 0, GW(admin), RESTART,
	      "metrics, health and readiness; keep it away from clients"),
	PLAIN("spec", "index", MAP, OPTIONAL, RESTART, "the prefix index"),
	VALUE("spec.index", "blocks", COUNT, OR("1000000"), 64, 1000000000,
	      GW(index_blocks), RESTART,
	      "different KV blocks it can hold, about 24 bytes each: at least the workers' blocks "
	      "together"),
	VALUE("spec.index", "maxSlots", COUNT, OR("0"), 0, 65534, GW(index_max_slots),
	      RESTART,
	      "ids of (worker, tier) it can tell apart, six a worker at most; 0: chosen from the "
	      "workers"),
	VALUE("spec.index", "privateBytes", SIZE, OR("0"), 0, 1024 * GIB,
	      GW(index_private_bytes), RELOAD,
	      "most that kvevents keeps beside it: maps from the workers' hashes, lists, blocks "
	      "without a known parent; one worker gets three quarters at most; what does not fit "
	      "is not known to be held; 0: 160 bytes a block and 16 MiB"),
	VALUE("spec.index", "workerBlocksPerSecond", COUNT, OR("200000"), 0, 1000000000,
	      GW(index_worker_rate), RELOAD,
	      "blocks that one worker's events may store a second, five times as many at once; "
	      "what is above is not known to be held; 0: any number"),
	VALUE("spec.index", "workerShare", COUNT, OR("50"), 1, 100,
	      GW(index_worker_share), RELOAD,
	      "percent of the index that one worker's blocks may have; what is above is not known "
	      "to be held"),
	PLAIN("spec", "policyProcess", MAP, OPTIONAL, RELOAD,
	      "how policy processes are replaced"),
	VALUE("spec.policyProcess", "standby", COUNT, OR("1"), 0, 1, GW(policy_standby),
	      RELOAD,
	      "loaded spare processes: with 1 a crash costs nothing, with 0 the time to load"),
	VALUE("spec.policyProcess", "probation", DURATION, OR("10s"), 0, 3600,
	      GW(policy_probation_ns), RELOAD,
	      "time in which a new generation that fails is rolled back"),
	VALUE("spec.policyProcess", "loadDeadline", DURATION, OR("30s"), .1, 3600,
	      GW(policy_load_deadline_ns), RELOAD,
	      "time a new generation has to get ready; then the old one stays"),
};

MANIFEST_TABLE(manifest_table_gateway, fields);
