/* actors/common/decide/manifest.h -- the operator's documents, checked whole and resolved.
 *
 * Seven kinds, apiVersion pointsman.io/v1alpha1: GatewayBackend (exactly one), InferenceWorkerSet,
 * InferencePool, InferenceProvider, InferencePolicy, InferenceTenant, RequestTag.  etc/README.md
 * lists every field; that list, the loader and deploy/crds come from one table (manifest_fields()).
 *
 * The supervisor reads files once and hands the *texts* on as one snapshot; every process loads
 * that snapshot with this very code, so all see the same thing however the files change.
 *
 * Snapshot   little-endian: "PMSNAP1\0", u32 files, then per file u32 name bytes, u32 text bytes,
 *            name, text.  Where members were found (spec.discovery) there follows "PMFOUND\0",
 *            u32 revision, u32 texts, then per text u32 bytes of set, source and text, and these.
 *            manifest_hash() is the XXH3 of all these bytes (config_hash).
 * Ownership  all of it belongs to struct manifest; read-only after loading; manifest_free().
 * Errors     all complaints of all files at once, file:line:column, in struct yaml_errors.
 *            The loader never logs, exits or blocks on anything but a regular file.
 * Threads    a loaded manifest is immutable: any thread may read it.
 * Indexes    u32 into the flat arrays below, in document order; stable within one manifest only.
 *            What lasts across manifests is struct manifest_member's uid.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "actors/common/decide/manifest_limits.h"
#include "actors/common/decide/manifest_policy.h"
#include "actors/common/decide/manifest_provider.h"
#include "actors/common/decide/manifest_tag.h"
#include "actors/common/decide/manifest_tenant.h"
#include "proto/yaml.h"

struct manifest_addr {
	char host[MANIFEST_HOST_MAX + 1]; /* a name or an address; IPv6 without brackets */
	uint16_t port;
};

/* Where clients connect: an address, or a unix socket's path. */
struct manifest_listen {
	char path[MANIFEST_SOCKET_MAX + 1]; /* absolute; "": host and port */
	char host[MANIFEST_HOST_MAX + 1];   /* numeric; IPv6 without brackets */
	uint16_t port;
};

struct manifest_network {
	uint8_t addr[16]; /* IPv6, or v4-mapped; zero behind the prefix */
	uint8_t bits;	  /* of the prefix, 0 to 128 */
};

enum manifest_engine {
	MANIFEST_ENGINE_VLLM = 1, MANIFEST_ENGINE_SGLANG, MANIFEST_ENGINE_TRTLLM,
	MANIFEST_ENGINE_TRITON,
};
enum manifest_io { MANIFEST_IO_AUTO, MANIFEST_IO_URING, MANIFEST_IO_EPOLL };
enum manifest_half_close { MANIFEST_HALF_CLOSE_GONE, MANIFEST_HALF_CLOSE_SERVE };
enum manifest_source { MANIFEST_SOURCE_NONE, MANIFEST_SOURCE_FILE, MANIFEST_SOURCE_DNS };
enum manifest_record { MANIFEST_RECORD_A, MANIFEST_RECORD_AAAA, MANIFEST_RECORD_SRV };

/* Files that the supervisor reads (common/secrets.h); nobody else may. */
struct manifest_certificate {
	char certificate[MANIFEST_FILE_MAX + 1]; /* PEM: the server's, then those up to the root */
	char key[MANIFEST_FILE_MAX + 1];	 /* PEM */
};

/* Where requests for a model may go under one policy. */
struct manifest_route {
	uint32_t policy;     /* index into policies */
	uint32_t *members;   /* owned; candidate rows, in the policy's order, each once */
	uint32_t *candidate; /* owned; of each row, the entry of the policy's candidates */
	uint32_t n_members;
};

/* One model name that clients may say. */
struct manifest_model {
	char name[MANIFEST_MODEL_MAX + 1];
	bool alias; /* name is not what the workers call it: request's "model" is rewritten */
	char adapter[MANIFEST_MODEL_MAX + 1]; /* LoRA adapter, as the workers call it; "": none */
	uint32_t policy;   /* index into policies: that of the first route */
	uint32_t *members; /* rows of all its routes, each once: indexes into members */
	uint32_t n_members; /* 0 only where members are found, and none are yet */
	struct manifest_route *routes; /* owned; by policy: the n_matches that may decide, in order,
					* then those that they fall back to */
	uint32_t n_routes;  /* at least 1 */
	uint32_t n_matches; /* at least 1 */
	uint32_t *tenants;  /* owned; who may say it; n_tenants 0: everybody */
	uint32_t n_tenants;
};	/* What to write upstream: manifest_upstream(). */

struct manifest_gateway {
	char name[MANIFEST_NAME_MAX + 1];
	struct manifest_listen listen[MANIFEST_LISTEN_MAX];
	uint32_t n_listen;  /* with n_listen_tls at least 1 */
	struct manifest_listen listen_tls[MANIFEST_LISTEN_MAX];
	uint32_t n_listen_tls;
	struct manifest_certificate *certificates; /* at least 1 where n_listen_tls > 0 */
	uint32_t n_certificates;
	uint32_t ingresses; /* processes */
	char socket_mode[8];			    /* of unix sockets, octal */
	char socket_group[MANIFEST_NAME_MAX + 1];   /* name or number; "": the supervisor's */
	struct {
		uint64_t head_bytes;	     /* one request's head */
		uint32_t headers;	     /* one request's header fields */
		uint64_t body_bytes;	     /* one request's body */
		uint32_t slots;		     /* live requests of one ingress */
		uint64_t arena_bytes;	     /* bodies held by one ingress */
		uint64_t stream_buffer_bytes; /* per relayed answer, before the worker must wait */
		uint32_t questions;	     /* outstanding of one ingress */
		uint32_t upstream_connections; /* of one ingress to one worker */
		uint32_t pinned_responses;   /* whose worker is remembered, all ingresses */
	} limits;
	struct {
		uint64_t head_ns;		/* whole request head */
		uint64_t keep_alive_ns;		/* idle client connection */
		uint64_t
			upstream_keep_alive_ns; /* idle worker connection; below the engine's 5 s */
		uint64_t connect_ns;		/* to a worker */
		uint64_t first_byte_ns;		/* request sent to first byte, then 504 */
		uint64_t inter_chunk_ns;	/* between two pieces of an answer */
		uint64_t write_stall_ns;	/* a client that does not read */
		uint64_t drain_ns;		/* hard limit of a drain */
		uint64_t arena_ns;		/* a body without room, then 503 */
		uint64_t policy_answer_ns;	/* a question without an answer, then 503 */
	} timeouts;
	enum manifest_half_close half_close;
	struct manifest_network trusted[MANIFEST_TRUSTED_MAX]; /* whom to believe */
	uint32_t n_trusted;
	bool trusted_unix; /* so is that of clients on unix sockets */
	bool fairness;	   /* one client address gets no more than what is free */
	enum manifest_io io;
	struct manifest_addr admin;
	uint64_t index_blocks;	  /* capacity of the prefix index, entries */
	uint32_t index_max_slots; /* slot ids; 0: chosen from the rows */
	uint64_t index_private_bytes; /* kvevents' own memory for it; 0: from index_blocks */
	uint64_t index_worker_rate;   /* blocks/s one worker may store; 0: any */
	uint32_t index_worker_share;  /* percent of it that one worker may hold */
	char (*hosts)[MANIFEST_DNS_MAX + 1]; /* owned; in lower case, "*.x" for all below x */
	uint32_t n_hosts; /* 0: any */
	enum manifest_authentication authentication;
	struct manifest_issuer *issuers; /* owned */
	uint32_t n_issuers;
	struct manifest_limits default_limits;
	uint32_t default_tenant; /* of requests without one; MANIFEST_NONE: they have none */
	uint32_t policy_standby;  /* spare policy processes, 0 or 1 */
	uint64_t policy_probation_ns;
	uint64_t policy_load_deadline_ns;
};

enum manifest_content { MANIFEST_CONTENT_AUTO, MANIFEST_CONTENT_STRING, MANIFEST_CONTENT_OPENAI };
enum manifest_encoder { MANIFEST_ENCODER_AUTO, MANIFEST_ENCODER_HF };

/* From what the set's prompts are made here, and how its engines were told to make them. */
struct manifest_tokenizer {
	char path[MANIFEST_FILE_MAX + 1];     /* the model's folder; "": none */
	char chat_template[MANIFEST_FILE_MAX + 1]; /* "": the folder's own */
	enum manifest_content content;
	enum manifest_encoder encoder;
	char *kwargs;	      /* owned; a JSON object; NULL: none */
	char time_zone[MANIFEST_ZONE_MAX + 1];
	bool trust_request_template;
	bool exclude_tools;   /* where tool_choice is "none" */
	uint32_t max_model_len; /* tokens; 0: as the folder says */
	char *file;	      /* owned; where `path` is written, for complaints of later */
	uint32_t line, column;
};

/* Where further members of a set are found. */
struct manifest_discovery {
	enum manifest_source source;
	char file[MANIFEST_FILE_MAX + 1];
	struct {
		char name[MANIFEST_DNS_MAX + 1];
		enum manifest_record record;
		uint32_t port;		       /* of the API; SRV: 0, it tells */
		uint32_t kv_events_port, kv_replay_port; /* of rank 0; 0: none */
		uint64_t interval_ns;	       /* most between two questions; a TTL may say less */
		struct manifest_addr resolver; /* port 0: the system's */
		bool empty_means_none;
	} dns;
	bool https;	      /* those found are, or may be, behind https */
	bool trust_endpoints; /* their endpoints may be on other hosts than their URLs */
};

/* Engines that serve one model in one cache domain. */
struct manifest_set {
	char name[MANIFEST_NAME_MAX + 1];
	enum manifest_engine engine;
	char model[MANIFEST_MODEL_MAX + 1]; /* as the workers call it */
	uint32_t block_tokens;		    /* 0: learned from events or metrics */
	uint32_t ranks;			    /* data-parallel; above 1 a rank is named by header */
	uint32_t first_member;		    /* rows of this set: first_member .. + n_members - 1 */
	uint32_t n_members;
	struct manifest_discovery discovery;
	uint32_t *pools; /* indexes of the pools that name it */
	uint32_t n_pools;
	char metrics_path[MANIFEST_PATH_MAX + 1];
	uint32_t metrics_port;		    /* 0: each member's own */
	char health_path[MANIFEST_PATH_MAX + 1];
	bool https;	/* some member is behind https, or may be */
	char tls_ca[MANIFEST_FILE_MAX + 1];	    /* PEM; "": the system's store */
	char tls_server_name[MANIFEST_HOST_MAX + 1]; /* "": the host of each member's URL */
	char api_key_file[MANIFEST_FILE_MAX + 1];   /* "": none, as the next */
	char api_key_env[MANIFEST_ENV_MAX + 1];	    /* of the supervisor */
	char kv_topic[MANIFEST_MODEL_MAX + 1];	    /* how topics of their events begin; "": any */
	bool tokenize;	/* text prompts may be tokenized by the worker's /tokenize */
	struct manifest_tokenizer tokenizer;
	char (*adapters)[MANIFEST_MODEL_MAX + 1]; /* owned; LoRA, as the workers call them */
	uint32_t n_adapters;
	uint64_t scrape_interval_ns;
	uint64_t slow_start_ns;	/* 0: none */
	struct facts_label *labels; /* owned, with their texts; of metadata.labels */
	uint32_t n_labels;
	struct { /* the predictor's start, until it has learned: seconds, in shm/rows.h's order */
		double base_s;		 /* per request */
		double prefill_s;	 /* per uncached prompt token */
		double attention_s;	 /* per uncached prompt token and token of context */
		double decode_s;	 /* per request that decodes beside us */
		double context_s;	 /* per token of their context */
		double step_s;		 /* per step of the engine */
	} prior;
};

/* One row: a member and one of its ranks. */
struct manifest_member {
	uint64_t uid; /* manifest_member_uid(); lasts across reloads; never 0 */
	uint32_t set;		 /* MANIFEST_NONE: it is a provider's */
	uint32_t provider;	 /* MANIFEST_NONE: it is a worker */
	uint32_t provider_model; /* index into the provider's models */
	uint16_t rank;
	char name[MANIFEST_NAME_MAX + 1]; /* the member's; ranks share it */
	bool https;
	struct manifest_addr url;
	bool found; /* by discovery, not written in the set */
	/* Of this rank: port + rank; "": none.  MANIFEST_BIND before it: the worker comes to us. */
	char kv_events[MANIFEST_ENDPOINT_MAX + 1];
	char kv_replay[MANIFEST_ENDPOINT_MAX + 1]; /* of this rank, likewise; never bound */
};

struct manifest_pool {
	char name[MANIFEST_NAME_MAX + 1];
	uint32_t *sets;
	uint32_t n_sets; /* at least 1 */
};

struct manifest {
	struct manifest_gateway gateway;
	struct manifest_model *models; /* the gateway's, in document order; then adapters that it
					* does not name */
	uint32_t n_models;
	struct manifest_set *sets;
	uint32_t n_sets;
	struct manifest_member *members;
	uint32_t n_members;
	struct manifest_pool *pools;
	uint32_t n_pools;
	struct manifest_policy *policies;
	uint32_t n_policies;
	struct manifest_provider *providers;
	uint32_t n_providers;
	struct manifest_tag *tags; /* at most MANIFEST_TAGS_MAX */
	uint32_t n_tags;
	struct manifest_tenant *tenants;
	uint32_t n_tenants;
	void *snapshot; /* the texts, framed as above */
	size_t snapshot_len;
	size_t base_len; /* of it, without what was found */
	uint32_t revision; /* of what was found; 0: nothing was looked for */
	uint64_t hash;
	struct yaml_errors warnings; /* what is right and hardly meant */
};

int manifest_load_paths(char *const *paths, size_t n_paths, struct manifest **ret_manifest,
			struct yaml_errors *errs);
	/* Files, and directories whose *.yaml and *.yml are read in name order (not below; names
	 * that begin with a dot are skipped).  0; -EINVAL with complaints in errs and *ret_manifest
	 * untouched; -ENOMEM. */
int manifest_load_snapshot(const void *bytes, size_t len, struct manifest **ret_manifest,
			   struct yaml_errors *errs);
	/* The same from a snapshot; the bytes are copied, and checked like any stranger's. */
int manifest_load_text(const char *file, const char *text, size_t len,
		       struct manifest **ret_manifest, struct yaml_errors *errs);
	/* The same from one text in memory. */

/* What a source of members says now. */
struct manifest_found {
	const char *set;    /* name of the set it is for; of an unknown one: left out */
	const char *source; /* a file's name, or "dns:" and a name: where complaints point to */
	const char *text;   /* "members:" and a list, which manifest_found_check() liked */
	size_t len;
	struct yaml_errors refused; /* out: members not taken, and why; yaml_errors_free() */
	uint32_t taken, not_taken;  /* out: members */
};
int manifest_found_check(const char *source, const char *text, size_t len,
			 struct yaml_errors *errs);
	/* Is it a list of members at all?  Says nothing of each of them.  0; -EINVAL with
	 * complaints; -ENOMEM. */
int manifest_amend(const struct manifest *base, struct manifest_found *found, size_t n,
		   uint32_t revision, struct manifest **ret_manifest);
	/* The same documents with these members instead of those found before.  A member that is
	 * not good by itself, or beside the others, is left out and told of; it never spoils its
	 * neighbours.  The snapshot holds those taken only.  0, -EINVAL (base is not whole, or
	 * too large with them), -ENOMEM.  Cost: parses all documents, quadratic in members. */
bool manifest_same_members(const struct manifest *a, const struct manifest *b);
	/* The same rows in the same order, with the same endpoints. */
bool manifest_same_base(const struct manifest *a, const struct manifest *b);
	/* The same documents, whatever was found. */
bool manifest_same_source(const struct manifest_discovery *a, const struct manifest_discovery *b);
	/* Both ask the same question. */
const char *manifest_source_name(enum manifest_source);         /* "static", "file", "dns" */
uint32_t manifest_workers(const struct manifest *);
	/* How many of its rows are workers': the first; the others are providers'. */
void manifest_say(const struct manifest *m, char *buf, size_t cap);
	/* What is in it, for people: "1 models, ..., 3 workers".  cap: 240 suffices. */

uint64_t manifest_hash(const struct manifest *);
void manifest_free(struct manifest **);

uint64_t manifest_member_uid(const char *set, const char *member, const char *url, unsigned rank);
	/* Identity of a row: XXH3 over the four; never 0.  url as "host:port", behind https as
	 * "https://host:port". */
const char *manifest_url_parse(const char *text, struct manifest_addr *ret_addr, bool *ret_https);
	/* "http://host:port" or "https://host:port", perhaps with one trailing slash.  NULL,
	 * or what is wrong. */
const char *manifest_engine_name(enum manifest_engine engine);  /* as in YAML */
enum manifest_engine manifest_engine_named(const char *name);   /* 0: no such */
const struct manifest_model *manifest_find_model(const struct manifest *, const char *name,
						 size_t len);
	/* The model a client names, or NULL.  Linear: n_models is small. */
bool manifest_host_served(const struct manifest_gateway *, const char *host, size_t len);
	/* Is that Host header's, perhaps with a port, one of the gateway's hosts?  Where it names
	 * none, any is. */
const struct manifest_route *manifest_route(const struct manifest *, const struct manifest_model *,
					    uint32_t tenant);
	/* The first of its matches that takes that tenant's requests (MANIFEST_NONE: nobody's), or
	 * NULL: none does. */
const struct manifest_route *manifest_route_of(const struct manifest_model *, uint32_t policy);
	/* That policy's, also one that is fallen back to; NULL: it has none. */
bool manifest_model_open(const struct manifest_model *, uint32_t tenant);
	/* May that tenant (MANIFEST_NONE: nobody's) say it? */
const struct manifest_model *manifest_only_model(const struct manifest *);
	/* What a request that names none goes to, as at an engine; NULL: there are several.
	 * Adapters do not count. */
const char *manifest_upstream(const struct manifest *, const struct manifest_model *,
			      uint32_t member);
	/* What that member's engine calls it. */
const char *manifest_adapter(const struct manifest_set *, const char *name);
	/* The set's LoRA adapter of that name, or NULL. */

/* ---- the table of fields: the loader's law and etc/README.md's source ---- */

enum manifest_type {
	MANIFEST_T_NAME,     /* letters, digits, '-', '.'; up to 63 */
	MANIFEST_T_TEXT,
	MANIFEST_T_BOOL,
	MANIFEST_T_COUNT,    /* decimal */
	MANIFEST_T_DURATION, /* stored as u64 ns */
	MANIFEST_T_SECONDS,  /* a duration stored as double s */
	MANIFEST_T_SIZE,     /* stored as u64 bytes */
	MANIFEST_T_CHOICE,   /* one of choices, stored as enum */
	MANIFEST_T_ADDR,     /* host:port */
	MANIFEST_T_PATH,     /* begins with '/' */
	MANIFEST_T_STRING,   /* any one line; stored as text */
	MANIFEST_T_HEADER,   /* name of a header field; stored in lower case */
	MANIFEST_T_SHARE,    /* 0 to 1, decimal; stored as double */
	MANIFEST_T_MONEY,    /* decimal; stored as u64 millionths */
	MANIFEST_T_EXPRESSION, /* stored as struct manifest_expression */
	MANIFEST_T_OBJECTIVE,  /* a choice, or an expression, which is taken elsewhere */
	MANIFEST_T_LIST,
	MANIFEST_T_MAP,
	MANIFEST_T_ANY,	     /* whatever it is: not read */
	MANIFEST_T_LATER,    /* known, not supported yet: refused with that message */
};

struct manifest_field {
	const char *parent;  /* "spec", "spec.limits", "spec.members[]", ... */
	const char *key;
	enum manifest_type type;
	bool required;
	const char *fallback; /* default, written as in YAML; NULL: none */
	double min, max;      /* COUNT: itself; DURATION, SECONDS: seconds; SIZE: bytes */
	const char *choices;  /* "a|b|c", in enum order */
	const char *later;    /* choices that are known but not supported yet */
	size_t offset;	      /* in the kind's struct */
	size_t size;	      /* bytes there; 0: not stored by the table */
	int base;	      /* enum value of the first choice */
	bool restart;	      /* a change needs a restart; false: SIGHUP is enough */
	const char *doc;
};

extern const char *const manifest_kinds[]; /* the seven, as etc/README.md has them; NULL ends */

const struct manifest_field *manifest_fields(const char *kind, size_t *ret_n);
	/* Of one kind, or of "*": what every document has.  NULL: no such kind. */
