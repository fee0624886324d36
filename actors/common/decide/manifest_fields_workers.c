/* manifest_fields_workers.c -- the tables of fields of what requests go to. */
#include "actors/common/decide/manifest_rows.h"

#define SET(m)	MANIFEST_AT(manifest_set, m)
#define PRO(m)	MANIFEST_AT(manifest_provider, m)
#define MOD(m)	MANIFEST_AT(manifest_provider_model, m)
#define COST(m) MANIFEST_AT(manifest_provider_model, price.m)

static const struct manifest_field set_fields[] = {
	CHOICE("spec", "engine", NEEDED, SET(engine), MANIFEST_ENGINE_VLLM,
	       "vllm|sglang|trtllm|triton", NULL, RELOAD,
	       "what the workers run; `triton`: its OpenAI front end before vLLM or TensorRT-LLM"),
	VALUE("spec", "model", TEXT, NEEDED, 0, 0, SET(model), RELOAD,
	      "the model's name as the workers serve it"),
	VALUE("spec", "blockSize", COUNT, OR("0"), 0, 65536, SET(block_tokens), RELOAD,
	      "tokens per KV block; 0: learned from the worker"),
	VALUE("spec", "dataParallelRanks", COUNT, OR("1"), 1, MANIFEST_RANKS_MAX,
	      SET(ranks), RELOAD,
	      "ranks behind each member's URL; above 1 the rank is chosen by header, which "
	      "only vllm has, and its events come from the endpoint's port plus the rank"),
	LIST("spec", "members", OPTIONAL, 1, MANIFEST_ROWS_MAX, RELOAD,
	     "the workers; needed where there is no `discovery`, and may stand beside it"),
	PLAIN("spec.members[]", "name", NAME, NEEDED, RELOAD, "unique within the set"),
	PLAIN("spec.members[]", "url", TEXT, NEEDED, RELOAD,
	      "`http://host:port` or `https://host:port` of the engine's API"),
	PLAIN("spec.members[]", "kvEvents", TEXT, OPTIONAL, RELOAD,
	      "`tcp://host:port` or `ipc://path` where rank 0 publishes KV-cache events; "
	      "`bind:tcp://address:port` where publishers connect to us, taken from the URL's "
	      "host "
	      "only; absent: the cache is only guessed at from what was sent there"),
	PLAIN("spec.members[]", "kvReplay", TEXT, OPTIONAL, RELOAD,
	      "`tcp://host:port` or `ipc://path` of rank 0's replay socket (vLLM's "
	      "`replay_endpoint`): what was missed is asked for there; absent: a gap stays one "
	      "until "
	      "the worker clears its cache or restarts"),
	VALUE("spec", "kvTopic", TEXT, OPTIONAL, 0, 0, SET(kv_topic), RELOAD,
	      "how the topics of their events begin, cut only where a field of the topic ends "
	      "(`kv@10.0.0.1` is not `kv@10.0.0.10`); absent: any, but for `kv@` topics that name "
	      "another IP address than the URL does"),
	VALUE("spec", "metricsPath", PATH, OPTIONAL, 0, 0, SET(metrics_path), RELOAD,
	      "the engine's Prometheus page; absent: /metrics, of trtllm /prometheus/metrics"),
	VALUE("spec", "metricsPort", COUNT, OR("0"), 0, 65535, SET(metrics_port), RELOAD,
	      "its port, as tritonserver's 8002; 0: the URL's"),
	VALUE("spec", "healthPath", PATH, OPTIONAL, 0, 0, SET(health_path), RELOAD,
	      "answers 200 while the engine lives; absent: /health, of triton /health/ready"),
	VALUE("spec", "tokenize", BOOL, OPTIONAL, 0, 0, SET(tokenize), RELOAD,
	      "text prompts that are not tokenized here (`tokenizer`) are by the worker's "
	      "/tokenize; false: they are routed by load only; absent: true with vllm; with others "
	      "it is not there yet"),
	VALUE("spec", "slowStart", DURATION, OR("10s"), 0, 3600, SET(slow_start_ns),
	      RELOAD,
	      "time in which a worker that came up (new, restarted, woken) beside others gets as "
	      "long a queue as they have, little by little; 0: at once"),
	VALUE("spec", "scrapeInterval", DURATION, OR("1s"), .05, 60,
	      SET(scrape_interval_ns), RELOAD, "between two readings of a worker"),
	PLAIN("spec", "tls", MAP, OPTIONAL, RELOAD, "for members with https:// URLs"),
	VALUE("spec.tls", "ca", PATH, OPTIONAL, 0, 0, SET(tls_ca), RELOAD,
	      "PEM file: who may sign their certificates; absent: whom the system trusts"),
	VALUE("spec.tls", "serverName", TEXT, OPTIONAL, 0, 0, SET(tls_server_name), RELOAD,
	      "name that their certificates must have, and that is asked for; absent: the host of "
	      "the URL"),
	PLAIN("spec", "apiKeyFrom", MAP, OPTIONAL, RELOAD,
	      "the key for `Authorization: Bearer` of requests to these workers (vLLM's "
	      "`--api-key`); a client's own never goes there"),
	VALUE("spec.apiKeyFrom", "file", PATH, OPTIONAL, 0, 0, SET(api_key_file), RELOAD,
	      "file that holds it; read by the supervisor at start and at each reload"),
	VALUE("spec.apiKeyFrom", "env", TEXT, OPTIONAL, 0, 0, SET(api_key_env), RELOAD,
	      "or the variable in the supervisor's environment"),
	PLAIN("spec", "tokenizer", MAP, OPTIONAL, RELOAD,
	      "text prompts are rendered and tokenized here, as these workers do it; a folder that "
	      "cannot be used is told of, and `tokenize` takes its place; vllm only"),
	VALUE("spec.tokenizer", "path", PATH, NEEDED, 0, 0, SET(tokenizer.path), RELOAD,
	      "the model's folder: tokenizer.json (or tekken.json, or tiktoken ranks), "
	      "tokenizer_config.json, config.json, chat templates; weights are not read"),
	VALUE("spec.tokenizer", "chatTemplate", PATH, OPTIONAL, 0, 0,
	      SET(tokenizer.chat_template), RELOAD,
	      "file, as vLLM's `--chat-template`; absent: the folder's own"),
	CHOICE("spec.tokenizer", "contentFormat", OR("auto"), SET(tokenizer.content),
	       MANIFEST_CONTENT_AUTO, "auto|string|openai", NULL, RELOAD,
	       "as vLLM's `--chat-template-content-format`"),
	PLAIN("spec.tokenizer", "defaultChatTemplateKwargs", MAP, OPTIONAL, RELOAD,
	      "variables of the template that a request need not give, as vLLM's "
	      "`--default-chat-template-kwargs`"),
	VALUE("spec.tokenizer", "timeZone", TEXT, OR("UTC"), 0, 0,
	      SET(tokenizer.time_zone), RELOAD,
	      "of the workers, as in TZ: templates may write the date"),
	VALUE("spec.tokenizer", "trustRequestChatTemplate", BOOL, OR("false"), 0, 0,
	      SET(tokenizer.trust_request_template), RELOAD,
	      "as vLLM's `--trust-request-chat-template`"),
	VALUE("spec.tokenizer", "excludeToolsWhenToolChoiceNone", BOOL, OR("false"), 0, 0,
	      SET(tokenizer.exclude_tools), RELOAD,
	      "as vLLM's `--exclude-tools-when-tool-choice-none`"),
	CHOICE("spec.tokenizer", "tokenizerMode", OR("auto"), SET(tokenizer.encoder),
	       MANIFEST_ENCODER_AUTO, "auto|hf", "mistral|deepseek_v32", RELOAD,
	       "`auto`: a model for which engines have an encoder of their own goes by "
	       "`tokenize`; `hf`: these workers use the folder's files all the same"),
	VALUE("spec.tokenizer", "maxModelLen", COUNT, OR("0"), 0, 1 << 30,
	      SET(tokenizer.max_model_len), RELOAD,
	      "tokens, as vLLM's `--max-model-len`; 0: what config.json says"),
	LIST("spec", "loraAdapters", OPTIONAL, 1, 1000, RELOAD,
	     "names of LoRA adapters that each of these workers has; clients may say them as they "
	     "say a model's, and what they cache is never taken for the model's own"),
	PLAIN("spec", "discovery", MAP, OPTIONAL, RELOAD,
	      "where members come and go without a reload: `file` or `dns`"),
	PLAIN("spec.discovery", "file", MAP, OPTIONAL, RELOAD, "members are in a file"),
	VALUE("spec.discovery.file", "path", PATH, NEEDED, 0, 0, SET(discovery.file),
	      RELOAD,
	      "YAML or JSON, a map with a list `members` as in `spec`; read again whenever it is "
	      "rewritten, replaced, or a link to it is moved"),
	PLAIN("spec.discovery", "dns", MAP, OPTIONAL, RELOAD,
	      "members are what a name resolves to"),
	VALUE("spec.discovery.dns", "name", TEXT, NEEDED, 0, 0, SET(discovery.dns.name),
	      RELOAD, "without `resolver` the system's search list applies"),
	CHOICE("spec.discovery.dns", "type", OR("A"), SET(discovery.dns.record),
	       MANIFEST_RECORD_A, "A|AAAA|SRV", NULL, RELOAD,
	       "addresses, which are the members' names; or targets and ports"),
	VALUE("spec.discovery.dns", "port", COUNT, OPTIONAL, 1, 65535,
	      SET(discovery.dns.port), RELOAD, "of the engine's API; needed unless SRV tells"),
	VALUE("spec.discovery.dns", "kvEventsPort", COUNT, OPTIONAL, 1, 65535,
	      SET(discovery.dns.kv_events_port), RELOAD,
	      "where rank 0 publishes KV-cache events; absent: they publish none"),
	VALUE("spec.discovery.dns", "kvReplayPort", COUNT, OPTIONAL, 1, 65535,
	      SET(discovery.dns.kv_replay_port), RELOAD,
	      "of rank 0's replay socket; absent: they have none"),
	VALUE("spec.discovery.dns", "interval", DURATION, OR("30s"), .05, 3600,
	      SET(discovery.dns.interval_ns), RELOAD,
	      "between two questions; less, down to 1 s, where the records' TTL is less"),
	VALUE("spec.discovery.dns", "resolver", ADDR, OPTIONAL, 0, 0,
	      SET(discovery.dns.resolver), RELOAD, "whom to ask; absent: /etc/resolv.conf"),
	VALUE("spec.discovery.dns", "emptyMeansNone", BOOL, OR("false"), 0, 0,
	      SET(discovery.dns.empty_means_none), RELOAD,
	      "an authoritative answer without any record means that there are no members (one "
	      "with an alias only does not); false: those known last stay, as they do whenever "
	      "there is no answer, or no such name"),
	VALUE("spec.discovery", "https", BOOL, OR("false"), 0, 0, SET(discovery.https),
	      RELOAD, "URLs in `file` may be https://; of `dns`, they are"),
	VALUE("spec.discovery", "trustEndpoints", BOOL, OR("false"), 0, 0,
	      SET(discovery.trust_endpoints), RELOAD,
	      "a member's `kvEvents` and `kvReplay` may be on another host than its `url`"),
	PLAIN("spec", "prior", MAP, OPTIONAL, RELOAD,
	      "what the predictor assumes of a worker until it has learned"),
	VALUE("spec.prior", "base", SECONDS, OR("20ms"), 0, 60, SET(prior.base_s), RELOAD,
	      "time to first token of an empty worker and no prompt"),
	VALUE("spec.prior", "prefill", SECONDS, OR("100us"), 0, 1, SET(prior.prefill_s),
	      RELOAD, "per prompt token that is not cached"),
	VALUE("spec.prior", "attention", SECONDS, OR("1ns"), 0, .001,
	      SET(prior.attention_s), RELOAD, "per such token and token of context before it"),
	VALUE("spec.prior", "decode", SECONDS, OR("100us"), 0, 10, SET(prior.decode_s),
	      RELOAD, "per request that is decoding there"),
	VALUE("spec.prior", "context", SECONDS, OR("0s"), 0, .001, SET(prior.context_s),
	      RELOAD, "per token of their context"),
	VALUE("spec.prior", "step", SECONDS, OR("0s"), 0, 60, SET(prior.step_s), RELOAD,
	      "per step of the engine"),
};

static const struct manifest_field pool_fields[] = {
	LIST("spec", "workerSets", NEEDED, 1, 1000, RELOAD, "names of InferenceWorkerSets"),
	LATER("spec", "health"),
	LATER("spec", "outlierEjection"),
	LATER("spec", "prediction"),
};

static const struct manifest_field provider_fields[] = {
	CHOICE("spec", "type", NEEDED, PRO(type), MANIFEST_PROVIDER_BEDROCK,
	       "bedrock|bedrock-openai|openai|azure|anthropic|openai-compatible", NULL, RELOAD,
	       "what it speaks"),
	VALUE("spec", "region", TEXT, OPTIONAL, 0, 0, PRO(region), RELOAD,
	      "of bedrock and bedrock-openai, which need it"),
	VALUE("spec", "baseURL", TEXT, OPTIONAL, 0, 0, PRO(base_url), RELOAD,
	      "`https://host/path`; azure and openai-compatible need it; absent: the service's "
	      "own"),
	LIST("spec", "models", NEEDED, 1, 256, RELOAD, "its models that may be used"),
	VALUE("spec.models[]", "name", TEXT, NEEDED, 0, 0, MOD(name), RELOAD,
	      "as policies and clients say it"),
	VALUE("spec.models[]", "upstream", TEXT, OPTIONAL, 0, 0, MOD(upstream), RELOAD,
	      "as the provider calls it; absent: `name`"),
	PLAIN("spec.models[]", "price", MAP, OPTIONAL, RELOAD,
	      "for `minimize: Cost`, `candidate.cost` and budgets"),
	PRICES("spec.models[].price", COST),
	PLAIN("spec", "apiKeyFrom", MAP, OPTIONAL, RELOAD, "the key it is asked with"),
	VALUE("spec.apiKeyFrom", "file", PATH, OPTIONAL, 0, 0, PRO(api_key_file), RELOAD,
	      "file that holds it"),
	VALUE("spec.apiKeyFrom", "env", TEXT, OPTIONAL, 0, 0, PRO(api_key_env), RELOAD,
	      "or the variable in the supervisor's environment"),
	VALUE("spec", "socket", PATH, OPTIONAL, 0, 0, PRO(socket), RELOAD,
	      "unix socket where it is spoken to in OpenAI's way; absent: provider.sock of the "
	      "run directory"),
	LATER("spec", "limits"),
	PLAIN("spec", "prior", MAP, OPTIONAL, RELOAD,
	      "what the predictor assumes of it until it has learned"),
	VALUE("spec.prior", "ttft", SECONDS, OR("1s"), 0, 600, PRO(prior_ttft_s), RELOAD,
	      "time to first token"),
};

MANIFEST_TABLE(manifest_table_set, set_fields);
MANIFEST_TABLE(manifest_table_pool, pool_fields);
MANIFEST_TABLE(manifest_table_provider, provider_fields);
