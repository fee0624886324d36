/* actors/pointsctl/table.h -- aligned columns and units for people.
 *
 * table_cell appends the next cell, row by row; a table prints itself with two blanks between
 * columns, the last column unpadded.  Out of memory ends the program: it only reads.   Threads
 * one.
 */
#pragma once
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

struct table;
struct table *table_new(const char *heads);
	/* "ROLE >PID STATE": one word a column, '>' aligns it right. */
void table_cell(struct table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));
void table_json(struct table *table, const json_t *object, const char *key);
	/* The member as it is; "-" when absent, null or empty. */
void table_fields(struct table *table, const json_t *object, const char *keys);
	/* The same for each word of keys, in their order. */
void table_print(FILE *to, const struct table *table);
void table_free(struct table **table);

#define UNIT_TEXT 16
const char *unit_seconds(char buf[UNIT_TEXT], double s);        /* "1.2 ms", "3 h 10 m" */
const char *unit_bytes(char buf[UNIT_TEXT], double bytes);      /* "1.5 MiB" */
const char *unit_us(char buf[UNIT_TEXT], const json_t *object, const char *key); /* "-": unknown */
const char *unit_s(char buf[UNIT_TEXT], const json_t *object, const char *key);
