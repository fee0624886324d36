/* actors/common/decide/difference.h -- what is another in other documents, for people.
 *
 * One line a difference, in the documents' words: "-" was and is not, "+" is new, "~" another:
 *
 *      + policy cheap
 *      - policy chat: rules[old] {name: old, remove: ...}
 *      ~ policy chat: rules[no-pii].remove candidate.cost > 1.0 -> candidate.kind == Provider
 *      ~ policy chat: rules: their order
 *      + member emulated/w3 rank 0
 *
 * Items of a list that have a name are told by it; others are the same where all of them is.  Every
 * difference of what the loader reads is there: the trees of the documents are compared, not what
 * was made of them.  Comments, order of documents and keys, and which file it is in are no
 * difference.
 * Threads    any; both manifests are only read.
 * Cost       parses all documents twice, then linear where little is another; at a dry run only.
 */
#pragma once
#include "actors/common/decide/manifest.h"

#define DIFFERENCE_NONE "nothing changed\n"

size_t difference(const struct manifest *was, const struct manifest *is, char *buf, size_t cap);
	/* Bytes written without the 0 that ends them, less than cap; at least 200 are needed.  What
	 * does not fit is counted in the last line.  DIFFERENCE_NONE where there is none.  Without
	 * memory it says so. */
