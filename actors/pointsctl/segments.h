/* actors/pointsctl/segments.h -- the answer of verb `segments` as a table. */
#pragma once
#include <jansson.h>

void print_segments(const json_t *result);      /* to standard output */
