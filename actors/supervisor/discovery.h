/* actors/supervisor/discovery.h -- where members of worker sets are found: files and DNS.
 *
 * Meaning    A source is what spec.discovery of a set says, together with the set's name.  It holds
 *            the last text that was a list of members at all; what each of them is worth, the
 *            manifest's loader says (manifest_amend).  Failing, it keeps that text, and tells.
 * Pager      Only what was said explicitly takes members away: a file with a shorter list, an
 *            answer with fewer records.  No file, half a file, no answer, no such name, no records
 *            (but where the set says that these mean none) change nothing; nor does a new source
 *            of a set, before it says something.
 * Bounds     a file of 1 MiB, 1,024 records of an answer; one question at a time and source, 10 s.
 * Rights     The supervisor alone reads and asks, since it alone makes rows.
 * Files      watched by their folder, which sees files rewritten, renamed over, taken away, and
 *            links moved, as Kubernetes does for a ConfigMap; looked at every 5 s besides, for what
 *            cannot be watched.
 * Threads    the loop's; nothing here waits but discovery_wait().
 * Ownership  texts and labels handed out are borrowed until the next call but discovery_found().
 */
#pragma once
#include "actors/common/decide/manifest.h"
#include "shm/roster.h"

#define DISCOVERY_TEXT_MAX	YAML_TEXT_MAX_BYTES
#define DISCOVERY_RECORDS_MAX	1024u	/* no more members could have rows */

struct discovery;

int discovery_new(struct discovery **ret);              /* 0, -ENOMEM, -errno */
void discovery_free(struct discovery **ret);
int discovery_fd(const struct discovery *d);            /* readable: run it */
int discovery_want(struct discovery *d, const struct manifest *const *manifests, unsigned n);
	/* Sources that any of these name begin, and files are read at once; others end.  0;
	 * -ENOMEM: some have not begun. */
bool discovery_run(struct discovery *d, mono_ns now);
	/* Hears, reads and asks what is due.  true: some source says something else than when
	 * discovery_run or discovery_wait said so last. */
void discovery_wait(struct discovery *d, mono_ns until);
	/* Until every source has said something or failed: for a start and a reload, that they do
	 * not begin with nobody. */
mono_ns discovery_next(const struct discovery *d);      /* when to run it at the latest; 0 never */
unsigned discovery_found(const struct discovery *d, const struct manifest *m,
			 struct manifest_found *ret, unsigned cap);
	/* The texts for its sets; of a source that has not said anything, its set's last. */
void discovery_judged(struct discovery *d, const struct manifest *m,
		      const struct manifest_found *found, unsigned n);
	/* What manifest_amend() made of them. */
struct discovery_sum {
	uint32_t sources, failing, not_taken;
	uint64_t failures;                      /* since the start */
};
struct discovery_sum discovery_show(const struct discovery *d, struct roster *roster);
