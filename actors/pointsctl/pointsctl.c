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

#define DEFAULT_RUN_DIR "/run/pointsman"

/* Options a subcommand may be given, as bits; -r is welcome to all, so that scripts need not tell
 * apart. */
enum {
	OPTION_OUTPUT = 2, OPTION_DRY_RUN = 4, OPTION_FOLLOW = 8, OPTION_N = 16,
	OPTION_SECONDS = 32, OPTION_COUNT = 64,
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
	{"reload", "[--dry-run]",
	 "load the configuration anew; back when every ingress works by it",
	 OPTION_OUTPUT | OPTION_DRY_RUN, 0, 0, command_reload},
	{"stat", "", "generation, processes, totals", OPTION_OUTPUT, 0, 0, command_stat},
	{"workers", "", "every worker: load, reading, cache state, predictor", OPTION_OUTPUT, 0, 0,
	 command_workers},
	{"requests", "[-n N]", "live requests, longest waiting first (default 100)",
	 OPTION_OUTPUT | OPTION_N, 0, 0, command_requests},
	{"explain", "ID", "why a request went where it went, and what came of it", OPTION_OUTPUT, 1,
	 1, command_explain},
	{"log", "[-f] [-n N]",
	 "requests that ended, one a line: the last N (default 20), -f: and on",
	 OPTION_OUTPUT | OPTION_FOLLOW | OPTION_N, 0, 0, command_log},
	{"journal", "record FILE [--seconds S] [--count N]",
	 "persist decisions and outcomes until ^C", OPTION_OUTPUT | OPTION_SECONDS | OPTION_COUNT,
	 2, 2, command_journal},
	{"journal", "print FILE", "read them back", OPTION_OUTPUT, 2, 2, NULL},
	{"decode", "kv-events FILE...",
	 "an engine's event payload (binary, or hex in *.hex) as JSON lines", OPTION_OUTPUT, 2,
	 1000, command_decode},
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

static void
usage(FILE *to)
{
	fputs("usage: pointsctl [-r RUNDIR] COMMAND [--output table|json]\n", to);
	for (size_t i = 0; i < COMMANDS; i++) {
		char call[64];

		snprintf(call, sizeof call, "%s %s", commands[i].name, commands[i].takes);
		fprintf(to, "  %-46s %s\n", call, commands[i].doc);
	}
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
			usage(stdout);
			return 0;
		case 'V':
			printf("pointsctl %s\n", PM_VERSION);
			return 0;
		default:                        /* getopt has said why */
			usage(stderr);
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
		usage(stderr);
		return EXIT_USAGE;
	}
	name = argv[optind];
	if (strcmp(name, "help") == 0) {
		usage(stdout);
		return 0;
	}
	for (size_t i = 0; i < COMMANDS && !command; i++)
		if (strcmp(commands[i].name, name) == 0)
			command = &commands[i];
	if (!command) {
		fprintf(stderr, "pointsctl: no command \"%s\"\n", name);
		usage(stderr);
		return EXIT_USAGE;
	}
	if (given & ~command->options)
		return usage_error("%s does not take one of these options", name);
	if (o.n_args < command->args_least)
		return usage_error("%s: something is missing", name);
	if (o.n_args > command->args_most)
		return usage_error("%s: one argument too many", name);
	return command->run(&o);
}
