/* tests/emulator/spoil.h -- pages of metrics as nobody should write them.
 *
 * Meaning    nan, inf: every ratio and histogram sum is that; twice: the page twice; help: only its
 *            comments; huge: 20 MB of series before it; gzip: compressed, though nobody asked.
 * Errors     Out of memory ends the program.   Threads  Any; no state.
 */
#pragma once
#include "tests/emulator/options.h"

char *spoil_page(const char *page, size_t len_bytes, enum metrics_fault, size_t *ret_len_bytes);
	/* From malloc.  Faults that are none of the page's own give it back as it is. */
