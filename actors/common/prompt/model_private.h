/* actors/common/prompt/model_private.h -- a model's inside: for what prepares requests. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "actors/common/prompt/bump.h"
#include "actors/common/prompt/jinja.h"
#include "actors/common/prompt/model.h"
#include "actors/common/prompt/value.h"
#include "actors/common/prompt/zone.h"

#define MODEL_MAGIC  0x4d4f444cu        /* "LDOM" */
#define MODEL_LAYOUT 1u                 /* counts up with every change of what a blob holds */

/* The beginning of a blob; all of it little-endian, as the machine is. */
struct model_header {
	uint32_t magic, layout;
	uint64_t len;                   /* of the whole blob */
	uint64_t check;                 /* XXH3-64 of the header behind this field, and of the
	                                   description */
	uint8_t  digest[16];            /* XXH3-128 of tokenizer and description */
	uint64_t tokenizer_off, tokenizer_len;  /* at 64; it has a checksum of its own */
	uint64_t description_off, description_len;
	uint8_t  spare[56];
};
_Static_assert(sizeof(struct model_header) == 128, "a blob's header");

/* The description is a JSON object of these members (model_build.c writes, model.c reads):
 *   templates        [{"name", "source"}]           the tokenizer's, as the engine finds them
 *   processor        index of the template used without tools; absent: none of its own
 *   given            index of the template of the options, used always; absent: none
 *   special_tokens   {"bos_token": "<s>", ...}
 *   default_kwargs   {...}
 *   content, tools   enum numbers
 *   trust_template, exclude_tools, multimodal       booleans
 *   max_model_len    number; time_zone, foreign     texts
 *   zone             what zone.h makes of the time zone's file
 */

struct model_template {
	struct slice name, source;
	struct jinja *jinja;            /* NULL: no request of ours comes to it */
	bool openai;                    /* what content format "auto" is for it */
	bool developer;                 /* it knows that role */
};

struct model {
	const struct model_header *header;      /* borrowed */
	struct value description;
	struct tokenizer *tokenizer;
	struct bump bump;                       /* the description's values */
	struct model_template *template;
	uint32_t n_templates;
	int given, processor, tool_use, first;  /* indices; -1: none.  first: "default", or the
	                                           only one */
	struct value special_tokens;            /* dict */
	struct value default_kwargs;            /* dict */
	enum model_content content;
	enum model_tools tools;
	bool trust_template, exclude_tools, multimodal;
	bool system_first;              /* /v1/messages: a system message in the middle would fail
	                                   the template, so all are merged into the first */
	bool effort_none;               /* /v1/messages: thinking disabled is reasoning_effort
	                                   "none"; false: "low" */
	uint32_t max_len;
	const char *foreign, *time_zone;
	struct zone zone;
};

uint64_t model_check(const struct model_header *h);     /* what h->check should be */
int model_templates_open(struct model *m, char *why, size_t why_len);
	/* m->template and the indices, of the description; compiles what requests come to. */
void model_templates_close(struct model *m);
const struct model_template *model_template_for(const struct model *m, bool with_tools);
	/* NULL: the model has none for that. */
bool model_content_is_list(const struct model *m, const struct model_template *t);
void model_probe(struct model *m);      /* system_first, effort_none: by trying the templates */
