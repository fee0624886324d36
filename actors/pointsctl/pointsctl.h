/* actors/pointsctl/pointsctl.h -- the operator's tool: what its parts share.
 *
 * Exit       0 done; 1 refused, not found or failed, with the reason on standard error; 2 usage.
 * Reads      shared memory through descriptors the supervisor passes (read-only); writes nothing
 *            there.
 * Threads    one.
 */
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "actors/common/view.h"

#define EXIT_USAGE 2

struct options {
	const char *run_dir;
	bool json;                              /* --output json */
	bool help;                              /* what the subcommand takes, and no more */
	bool rollback;                          /* of reload */
	bool dry_run, follow, segments, why;
	bool slots, hash, audit;                /* of index */
	const char *tokens, *model, *adapter, *salt, *worker;   /* of index, hash; NULL not given */
	const char *seed;                       /* of hash; NULL not given */
	unsigned block_tokens;                  /* 0 not given */
	const char *template, *now, *route;     /* of render, blocks; NULL not given */
	bool context, jsonl;                    /* of render; jsonl of tokenize too */
	bool special, transformers;             /* of tokenize; --model is DIR there */
	unsigned n;                             /* -n: lines, requests; 0 not given */
	const char *engine;                     /* of decode metrics; NULL not given */
	unsigned ranks;                         /* likewise; 0 not given */
	const char *url, *served_model, *api_key_file;  /* of verify; NULL not given */
	double seconds;                         /* --seconds; 0: until ^C */
	uint64_t count;                         /* --count; 0: no limit */
	char **args;                            /* what follows the subcommand */
	unsigned n_args;
};

/* One subcommand each; return the exit code. */
int command_check(const struct options *o);
int command_tenants(const struct options *o);
int command_tenant(const struct options *o);
int command_schema(const struct options *o);
int command_reload(const struct options *o);
int command_generations(const struct options *o);
int command_policy(const struct options *o);
int command_provider(const struct options *o);
int command_stat(const struct options *o);
int command_workers(const struct options *o);
int command_index(const struct options *o);
int command_events(const struct options *o);
int command_hash(const struct options *o);
int command_requests(const struct options *o);
int command_explain(const struct options *o);
int command_log(const struct options *o);
int command_journal(const struct options *o);
int command_decode(const struct options *o);
int command_tokenize(const struct options *o);
int command_render(const struct options *o);
int command_blocks(const struct options *o);
int command_verify(const struct options *o);

void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));
	/* "pointsctl: ..." on standard error. */
int print_result(const struct options *o, json_t *result, void (*print)(const json_t *));
	/* One way or the other, as --output says; takes result (NULL: it failed).  Exit code. */
void print_json(const json_t *value);           /* indented, to standard output */
void print_json_line(FILE *to, const json_t *value);
