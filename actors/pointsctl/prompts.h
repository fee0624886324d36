/* actors/pointsctl/prompts.h -- what `render` and `blocks` share: a model, a route, a request. */
#pragma once
#include "actors/common/prompt/request.h"
#include "actors/pointsctl/pointsctl.h"

struct prompts {
	struct prompt_maker *maker;
	struct model *m;
	void *blob;                             /* the model's bytes */
	enum openai_route route;
	char *in;                               /* standard input, once it was read; owned */
	size_t in_len;
};

int prompts_open(const struct options *o, struct prompts *ret);
	/* Of --model or --template, --route and --now.  0, or the exit code: said why. */
void prompts_close(struct prompts *p);
bool prompts_read(struct prompts *p);
	/* p->in.  False: said why. */
void prompts_complain(const struct options *o, const struct prompts *p,
		      const struct prompt_made *made);
	/* Why there is nothing of p->in, and the route it looks like where none was given. */
