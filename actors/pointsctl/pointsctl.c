/* actors/pointsctl/pointsctl.c -- bin/pointsctl: the operator's view and hand.
 *
 * Owns    nothing.
 * Hears   answers of pointsman-admin; segments (read-only) and `reloaded` from the supervisor.
 * Says    introspection verbs; reload, attach.
 * Dies    no effect.
 */
#include "actors/pointsctl/pointsctl.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "actors/common/show_index.h"

#define DEFAULT_RUN_DIR "/run/pointsman"

/* Options a subcommand may be given, as bits; -r is welcome to all, so that scripts need not tell
 * apart. */
enum {
	OPTION_OUTPUT = 2, OPTION_DRY_RUN = 4, OPTION_FOLLOW = 8, OPTION_N = 16,
	OPTION_SECONDS = 32, OPTION_COUNT = 64, OPTION_SEGMENTS = 128,
	OPTION_INDEX = 256, OPTION_SEED = 512, OPTION_WHY = 1024, OPTION_WORKER = 2048,
	OPTION_DECODE = 4096, OPTION_RENDER = 8192, OPTION_JSONL = 16384, OPTION_BLOCKS = 32768,
	OPTION_MODEL = 65536, OPTION_SPECIAL = 131072, OPTION_VERIFY = 262144,
	OPTION_ROLLBACK = 524288,
};

/* Options without a letter. */
enum {
	LONG_SLOTS = 1000, LONG_HASH, LONG_AUDIT, LONG_TOKENS, LONG_MODEL, LONG_ADAPTER, LONG_SALT,
	LONG_WORKER, LONG_BLOCK_TOKENS, LONG_SEED, LONG_WHY, LONG_ENGINE, LONG_RANKS,
	LONG_TEMPLATE, LONG_CONTEXT, LONG_JSONL, LONG_NOW, LONG_ROUTE, LONG_SPECIAL,
	LONG_ROLLBACK, LONG_TRANSFORMERS, LONG_URL, LONG_SERVED_MODEL, LONG_API_KEY_FROM,
};

struct command {
	const char *name, *takes, *doc;
	unsigned options;
	unsigned args_least, args_most;
	int (*run)(const struct options *o);
};

static const struct command commands[] = {
	{"check", "PATH...",
	 "validate configuration files or directories; exit 1 with file:line:column", OPTION_OUTPUT,
	 1, 1000, command_check},
	{"schema", "crd KIND...",
	 "the CustomResourceDefinition of a kind of document, for kubectl apply -f -", 0, 2, 100,
	 command_schema},
	{"schema", "table KIND...", "its fields, as etc/README.md has them", 0, 0, 0, NULL},
	{"reload", "[--dry-run]",
	 "load the configuration anew; back when every ingress works by it; --dry-run: only say "
	 "what would be another", OPTION_OUTPUT | OPTION_DRY_RUN | OPTION_ROLLBACK, 0, 1,
	 command_reload},
	{"reload", "--rollback [GENERATION] [--dry-run]",
	 "go back to documents that were in force: the last that differ, or those of that "
	 "generation", 0, 0, 0, NULL},
	{"generations", "", "the documents that were in force last, newest first: when, by what",
	 OPTION_OUTPUT, 0, 0, command_generations},
	{"policy", "freeze [REASON] | thaw",
	 "refuse SIGHUP and reload, at once, until thaw", 0, 1, 2, command_policy},
	{"provider", "disable NAME | enable NAME",
	 "send nothing there, at once and over reloads, until enable", 0, 2, 2, command_provider},
	{"stat", "[--segments]",
	 "generation, processes, totals; or every shared segment and its fill",
	 OPTION_OUTPUT | OPTION_SEGMENTS, 0, 0, command_stat},
	{"workers", "[--why] [--worker W]",
	 "every worker: load, reading, cache state, predictor; or each state's reason, and what "
	 "is wrong", OPTION_OUTPUT | OPTION_WHY | OPTION_WORKER, 0, 0, command_workers},
	{"index", "[--slots [--worker W]]",
	 "the prefix index: fill, losses, what each worker holds; or its slots",
	 OPTION_OUTPUT | OPTION_INDEX | OPTION_MODEL | OPTION_WORKER, 0, PM_SHOW_HASHES_MAX,
	 command_index},
	{"index", "--hash HEX...", "who holds these blocks, a chain or not", 0, 0, 0, NULL},
	{"index", "--tokens FILE --model M",
	 "who holds this prompt: token ids as JSON, or as /tokenize answers", 0, 0, 0, NULL},
	{"index", "--audit", "look at every lane; seconds per GiB, beside the processes", 0, 0, 0,
	 NULL},
	{"hash", "--tokens FILE --model M --block-tokens N",
	 "the prompt's block hashes, without asking; --seed SEED: 16 hex digits or a file "
	 "(default RUNDIR/hash-seed)",
	 OPTION_INDEX | OPTION_MODEL | OPTION_SEED, 0, 0, command_hash},
	{"tokenize", "--model DIR [--special] [--jsonl]",
	 "text on standard input as token ids (--jsonl: a JSON string a line); --special: with BOS "
	 "and the like; --transformers: as its class reads tokenizer_config.json",
	 OPTION_MODEL | OPTION_JSONL | OPTION_SPECIAL, 0, 0, command_tokenize},
	{"render", "--model DIR | --template FILE [--route R] [--now TIME]",
	 "the text that a model's chat template makes of the request on standard input; --segments "
	 "shows its hard boundaries (--model)",
	 OPTION_RENDER | OPTION_JSONL | OPTION_BLOCKS | OPTION_INDEX | OPTION_MODEL |
		 OPTION_SEGMENTS, 0, 0, command_render},
	{"render", "... [--context] [--jsonl]",
	 "--context: the input is the template's variables as they are; --jsonl: one a line, to "
	 "{\"rendered\"} or {\"error\"}", 0, 0, 0, NULL},
	{"blocks", "--model DIR --block-size N [--route R] [--now TIME]",
	 "tokens and block hashes of the request on standard input; --seed SEED as for hash "
	 "(without one: 0), --adapter A",
	 OPTION_OUTPUT | OPTION_BLOCKS | OPTION_INDEX | OPTION_MODEL | OPTION_SEED, 0, 0,
	 command_blocks},
	{"verify", "--model DIR --url URL [--served-model M]",
	 "are the folder's token ids those of a worker? some fifty probes to its /tokenize; exit 0 "
	 "when all agree; --api-key-from FILE",
	 OPTION_OUTPUT | OPTION_VERIFY | OPTION_MODEL | OPTION_RENDER, 0, 0, command_verify},
	{"tenants", "", "every tenant: what is left of its limits, what it has used",
	 OPTION_OUTPUT, 0, 0, command_tenants},
	{"tenant", "block NAME | unblock NAME",
	 "refuse all its requests, at once and over reloads, until unblock", 0, 1, 2,
	 command_tenant},
	{"tenant", "hash", "the hash of a key on standard input, for InferenceTenant spec.keys",
	 0, 0, 0, NULL},
	{"requests", "[-n N]", "live requests, longest waiting first (default 100)",
	 OPTION_OUTPUT | OPTION_N, 0, 0, command_requests},
	{"explain", "ID", "why a request went where it went, and what came of it", OPTION_OUTPUT, 1,
	 1, command_explain},
	{"log", "[-f] [-n N]",
	 "requests that ended, one a line: the last N (default 20), -f: and on",
	 OPTION_OUTPUT | OPTION_FOLLOW | OPTION_N, 0, 0, command_log},
	{"events", "--worker W [-f] [-n N]",
	 "a worker's KV events as they are applied: the next N (default 20), or -f: all",
	 OPTION_OUTPUT | OPTION_FOLLOW | OPTION_N | OPTION_WORKER, 0, 0, command_events},
	{"journal", "record FILE [--seconds S] [--count N]",
	 "persist decisions and outcomes until ^C", OPTION_OUTPUT | OPTION_SECONDS | OPTION_COUNT,
	 2, 2, command_journal},
	{"journal", "print FILE", "read them back", OPTION_OUTPUT, 2, 2, NULL},
	{"decode", "kv-events FILE...",
	 "an engine's event payload (binary, or hex in *.hex) as JSON lines",
	 OPTION_OUTPUT | OPTION_DECODE, 2, 1000, command_decode},
	{"decode", "metrics FILE... [--engine E] [--ranks N]",
	 "what a worker's rows know by this page of an engine, and which lines said so", 0, 0, 0,
	 NULL},
};
#define COMMANDS (sizeof commands / sizeof commands[0])

static void
say(const char *format, va_list args, const char *tail)
	__attribute__((format(printf, 1, 0)));

static void
say(const char *format, va_list args, const char *tail)
{
	fflush(stdout);
	fputs("pointsctl: ", stderr);
	vfprintf(stderr, format, args);
	fputs(tail, stderr);
}

void
complain(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	say(format, args, "\n");
	va_end(args);
}

void
print_json(const json_t *value)
{
	json_dumpf(value, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
	putchar('\n');
}

void
print_json_line(FILE *to, const json_t *value)
{
	json_dumpf(value, to, JSON_COMPACT | JSON_REAL_PRECISION(9));
	fputc('\n', to);
}

int
print_result(const struct options *o, json_t *result, void (*print)(const json_t *))
{
	if (!result)
		return 1;
	if (o->json)
		print_json(result);
	else
		print(result);
	json_decref(result);
	return 0;
}

/* name: of that command alone; NULL: of all. */
static void
usage(FILE *to, const char *name)
{
	if (name)
		fputs("usage: pointsctl [-r RUNDIR]\n", to);
	else
		fputs("usage: pointsctl [-r RUNDIR] COMMAND [--output table|json]\n", to);
	for (size_t i = 0; i < COMMANDS; i++) {
		char call[64];

		if (name && strcmp(commands[i].name, name) != 0)
			continue;
		snprintf(call, sizeof call, "%s %s", commands[i].name, commands[i].takes);
		fprintf(to, "  %-46s %s\n", call, commands[i].doc);
	}
	if (name)
		return;
	fputs("  help                                           this text\n"
	      "  -r RUNDIR      run directory of the pointsman to ask (default " DEFAULT_RUN_DIR
	      ")\n"
	      "  --output FORM  table (for people, the default) or json\n"
	      "exit: 0 done; 1 refused, not found or failed; 2 usage\n",
	      to);
}

static int
usage_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

static int
usage_error(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	say(format, args, " (pointsctl help)\n");
	va_end(args);
	return EXIT_USAGE;
}

static bool
number(const char *text, uint64_t least, uint64_t most, uint64_t *ret)
{
	char *end;
	unsigned long long n;

	errno = 0;
	n = strtoull(text, &end, 10);
	if (errno || end == text || *end || *text == '-' || n < least || n > most)
		return false;
	*ret = n;
	return true;
}

static bool
seconds(const char *text, double *ret)
{
	char *end;
	double s = strtod(text, &end);

	if (end == text || *end || !isfinite(s) || s <= 0 || s > 1e6)
		return false;
	*ret = s;
	return true;
}

/* -1: go on; else exit with that.  given: which options came. */
static int
options_parse(struct options *o, int argc, char **argv, unsigned *given)
{
	static const struct option names[] = {
		{"run", required_argument, NULL, 'r'}, {"output", required_argument, NULL, 'o'},
		{"dry-run", no_argument, NULL, 'd'}, {"follow", no_argument, NULL, 'f'},
		{"rollback", no_argument, NULL, LONG_ROLLBACK},
		{"segments", no_argument, NULL, 'S'},
		{"slots", no_argument, NULL, LONG_SLOTS},
		{"hash", no_argument, NULL, LONG_HASH},
		{"audit", no_argument, NULL, LONG_AUDIT},
		{"tokens", required_argument, NULL, LONG_TOKENS},
		{"model", required_argument, NULL, LONG_MODEL},
		{"adapter", required_argument, NULL, LONG_ADAPTER},
		{"salt", required_argument, NULL, LONG_SALT},
		{"worker", required_argument, NULL, LONG_WORKER},
		{"block-tokens", required_argument, NULL, LONG_BLOCK_TOKENS},
		{"seed", required_argument, NULL, LONG_SEED},
		{"engine", required_argument, NULL, LONG_ENGINE},
		{"ranks", required_argument, NULL, LONG_RANKS},
		{"template", required_argument, NULL, LONG_TEMPLATE},
		{"context", no_argument, NULL, LONG_CONTEXT},
		{"jsonl", no_argument, NULL, LONG_JSONL},
		{"special", no_argument, NULL, LONG_SPECIAL},
		{"transformers", no_argument, NULL, LONG_TRANSFORMERS},
		{"now", required_argument, NULL, LONG_NOW},
		{"route", required_argument, NULL, LONG_ROUTE},
		{"url", required_argument, NULL, LONG_URL},
		{"served-model", required_argument, NULL, LONG_SERVED_MODEL},
		{"api-key-from", required_argument, NULL, LONG_API_KEY_FROM},
		{"block-size", required_argument, NULL, LONG_BLOCK_TOKENS},
		{"why", no_argument, NULL, LONG_WHY},
		{"seconds", required_argument, NULL, 's'}, {"count", required_argument, NULL, 'c'},
		{"help", no_argument, NULL, 'h'}, {"version", no_argument, NULL, 'V'}, {0},
	};
	uint64_t n;
	int c;

	*o = (struct options){.run_dir = DEFAULT_RUN_DIR};
	while ((c = getopt_long(argc, argv, "r:o:fn:h", names, NULL)) != -1)
		switch (c) {
		case 'r':
			o->run_dir = optarg;
			break;
		case 'o':
			if (strcmp(optarg, "json") != 0 && strcmp(optarg, "table") != 0)
				return usage_error("--output %s? table and json are known", optarg);
			o->json = strcmp(optarg, "json") == 0;
			*given |= OPTION_OUTPUT;
			break;
		case 'd':
			o->dry_run = true;
			*given |= OPTION_DRY_RUN;
			break;
		case LONG_ROLLBACK:
			o->rollback = true;
			*given |= OPTION_ROLLBACK;
			break;
		case 'f':
			o->follow = true;
			*given |= OPTION_FOLLOW;
			break;
		case 'n':
			if (!number(optarg, 1, 10000, &n))
				return usage_error("-n %s: a number from 1 to 10000 is wanted",
						   optarg);
			o->n = (unsigned)n;
			*given |= OPTION_N;
			break;
		case LONG_SLOTS:
		case LONG_HASH:
		case LONG_AUDIT:
			o->slots |= c == LONG_SLOTS;
			o->hash |= c == LONG_HASH;
			o->audit |= c == LONG_AUDIT;
			*given |= OPTION_INDEX;
			break;
		case LONG_TOKENS:
			o->tokens = optarg;
			*given |= OPTION_INDEX;
			break;
		case LONG_MODEL:
			o->model = optarg;
			*given |= OPTION_MODEL;
			break;
		case LONG_ADAPTER:
			o->adapter = optarg;
			*given |= OPTION_INDEX;
			break;
		case LONG_SALT:
			o->salt = optarg;
			*given |= OPTION_INDEX;
			break;
		case LONG_WORKER:
			o->worker = optarg;
			*given |= OPTION_WORKER;
			break;
		case LONG_BLOCK_TOKENS:
			if (!number(optarg, 1, 65536, &n))
				return usage_error("--block-tokens %s: a number from 1 to 65536 is "
						   "wanted", optarg);
			o->block_tokens = (unsigned)n;
			*given |= OPTION_INDEX;
			break;
		case LONG_TEMPLATE:
			o->template = optarg;
			*given |= OPTION_RENDER;
			break;
		case LONG_CONTEXT:
			o->context = true;
			*given |= OPTION_RENDER;
			break;
		case LONG_JSONL:
			o->jsonl = true;
			*given |= OPTION_JSONL;
			break;
		case LONG_NOW:
			o->now = optarg;
			*given |= OPTION_BLOCKS;
			break;
		case LONG_URL:
			o->url = optarg;
			*given |= OPTION_VERIFY;
			break;
		case LONG_SERVED_MODEL:
			o->served_model = optarg;
			*given |= OPTION_VERIFY;
			break;
		case LONG_API_KEY_FROM:
			o->api_key_file = optarg;
			*given |= OPTION_VERIFY;
			break;
		case LONG_ROUTE:
			o->route = optarg;
			*given |= OPTION_BLOCKS;
			break;
		case LONG_WHY:
			o->why = true;
			*given |= OPTION_WHY;
			break;
		case LONG_SPECIAL:
		case LONG_TRANSFORMERS:
			o->special |= c == LONG_SPECIAL;
			o->transformers |= c == LONG_TRANSFORMERS;
			*given |= OPTION_SPECIAL;
			break;
		case LONG_SEED:
			o->seed = optarg;
			*given |= OPTION_SEED;
			break;
		case LONG_ENGINE:
			o->engine = optarg;
			*given |= OPTION_DECODE;
			break;
		case LONG_RANKS:
			if (!number(optarg, 1, MANIFEST_RANKS_MAX, &n))
				return usage_error("--ranks %s: a number from 1 to 64 is wanted",
						   optarg);
			o->ranks = (unsigned)n;
			*given |= OPTION_DECODE;
			break;
		case 'S':
			o->segments = true;
			*given |= OPTION_SEGMENTS;
			break;
		case 's':
			if (!seconds(optarg, &o->seconds))
				return usage_error("--seconds %s: a positive number is wanted",
						   optarg);
			*given |= OPTION_SECONDS;
			break;
		case 'c':
			if (!number(optarg, 1, UINT64_MAX / 2, &o->count))
				return usage_error("--count %s: a positive number is wanted",
						   optarg);
			*given |= OPTION_COUNT;
			break;
		case 'h':
			o->help = true;
			break;
		case 'V':
			printf("pointsctl %s\n", PM_VERSION);
			return 0;
		default:                        /* getopt has said why */
			usage(stderr, NULL);
			return EXIT_USAGE;
		}
	o->args = argv + optind + 1;
	o->n_args = argc > optind ? (unsigned)(argc - optind - 1) : 0;
	return -1;
}

int
main(int argc, char **argv)
{
	const struct command *command = NULL;
	unsigned given = 0;
	struct options o;
	const char *name;
	int r = options_parse(&o, argc, argv, &given);

	if (r >= 0)
		return r;
	if (optind >= argc) {
		usage(o.help ? stdout : stderr, NULL);
		return o.help ? 0 : EXIT_USAGE;
	}
	name = argv[optind];
	if (strcmp(name, "help") == 0) {
		usage(stdout, NULL);
		return 0;
	}
	for (size_t i = 0; i < COMMANDS && !command; i++)
		if (strcmp(commands[i].name, name) == 0)
			command = &commands[i];
	if (!command) {
		fprintf(stderr, "pointsctl: no command \"%s\"\n", name);
		usage(stderr, NULL);
		return EXIT_USAGE;
	}
	if (o.help) {
		usage(stdout, name);
		return 0;
	}
	if (given & ~command->options)
		return usage_error("%s does not take one of these options", name);
	if (o.n_args < command->args_least)
		return usage_error("%s: something is missing", name);
	if (o.n_args > command->args_most)
		return usage_error("%s: one argument too many", name);
	return command->run(&o);
}
