/*
 * Rows of results: a JSON array of objects that is printed as it is, or as a table for people. Both
 * come from the same objects, so that a person and a program read the same thing.
 */
#ifndef TOOLS_SHOW_H
#define TOOLS_SHOW_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum show_as {
        SHOW_PLAIN,   /* strings and numbers as they are */
        SHOW_BYTES,   /* 128K, 4.0M */
        SHOW_COUNT,   /* 128K of 1000, 4.0M */
        SHOW_PERCENT, /* of a fraction */
        SHOW_US,      /* nanoseconds, shown as microseconds */
};

struct show_column {
        const char *key, *head;
        enum show_as as;
};

/* Prints the rows and gives up the reference. Numbers are set right, text left; a missing or null
 * value is "-". */
void show_rows(json_t *rows, const struct show_column *cols, size_t n, bool as_json);
/* The table alone; the rows stay the caller's. */
void show_rows_to(FILE *out, json_t *rows, const struct show_column *cols, size_t n);
/* Prints any value as JSON and gives up the reference. */
void show_json(json_t *value);
/* Returns true if show_json() has printed anything: what is to be read as JSON is one value. */
bool show_json_shown(void);
/* Text of the user's: as it is, or as show_text() when it is no UTF-8, which JSON has to be. */
json_t *show_string(const char *text);
/* Cuts text that came from another process to printable characters. */
json_t *show_text(const char *text, size_t max);
json_t *show_numbers(const uint64_t *n, int count);

#endif
