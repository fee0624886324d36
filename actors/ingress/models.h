/* actors/ingress/models.h -- GET /v1/models: what clients may ask for.
 *
 * Meaning    The gateway's models and aliases, in the order of its document.  Of each what vLLM
 *            says too: "root", an alias's name at the workers where they agree on one;
 *            "max_model_len", the least of those of its workers that have said theirs (a prompt
 *            within it fits wherever it goes); "parent", the model of a LoRA adapter.  What is not
 *            known is not said.
 * Tenants    a model that is others' (`models[].tenants`) is not in the list, and 404.
 * Paths      /v1/models/NAME with the name as it is (it may have slashes) or percent-encoded, as
 *            the SDKs for Node do.
 * Source     vLLM's ModelCard; OpenAI's GET /v1/models.
 * Ownership  the list is made at most once a second, when asked for, and kept.
 * Threads    the loop's.
 */
#pragma once
#include "proto/slice.h"
#include "shm/segment.h"

struct client;
struct manifest;

struct models {
	char *body;                     /* owned; the whole list */
	size_t len;
	struct models_span {
		size_t off, len;
	} *one;                         /* owned; by model */
	const struct manifest *of;      /* whose models these are */
	mono_ns made_ns;
};

void models_reply(struct client *c, struct slice path, uint32_t tenant, struct slice client_id);
void models_forget(struct models *m);   /* before the manifest goes; frees what it owns */
