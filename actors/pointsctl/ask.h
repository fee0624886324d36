/* actors/pointsctl/ask.h -- ask pointsman-admin; where it does not answer, read the memory.
 *
 * Both ways run the same code (actors/common/verbs.h), so the answer is the same but for one thing:
 * admin has been looking longer, and remembers more of the dead.
 */
#pragma once
#include "actors/pointsctl/pointsctl.h"

json_t *ask(const struct options *o, const char *verb, json_t *arguments);
	/* The verb's result, the caller's; NULL: refused, or neither way worked, and why has been
	 * said.  Takes arguments, an object (NULL: none). */
