/* actors/pointsctl/tokens.h -- a prompt's token ids, as tools write them into files. */
#pragma once
#include <jansson.h>

json_t *read_tokens(const char *path);
	/* A list of ids from a JSON list, or from what /tokenize answers ({"tokens": [..]}); "-" is
	 * standard input; 64 MiB at most.  The caller's; NULL: said why. */
