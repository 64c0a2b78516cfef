/* One reading of a config file: what it has set so far, and its first complaint. The files of this
 * folder that read lines share it. */
#ifndef CONFIG_READING_H
#define CONFIG_READING_H

#include "config/config.h"

struct route_table;

struct reading {
        struct unetd_config *c;
        struct config_error *err;
        uint64_t seen;                     /* bit of each key */
        uint32_t seen_iface[UNETD_IFACES]; /* ... of each interface's */
        int line_of[UNETD_IFACES]; /* where each interface's section begins; 0: not from a file */
        uint32_t seen_rule[RULES_MAX]; /* bit of each key of a rule's, ... */
        int line_of_rule[RULES_MAX];   /* ... and where its section begins */
        struct route_table *routes;    /* second reading: what the routes are checked against */
        bool failed;
};

/* Keeps the first complaint, with a and b in it; inih reports the line of the same one. Returns 0,
 * which is inih's word for a line that is wrong. */
int reading_complain(struct reading *r, const char *format, const char *a, const char *b);
/* Sets *out to the number of the word that `value` is. Returns 1; or complains that the key wants
 * `wanted`. */
int reading_word(struct reading *r, uint8_t *out, const char *key, const char *value,
                 const char *const words[], size_t n, const char *wanted);
/* Sets *out to the number that `value` is. Returns 1; or complains that the key wants one of that
 * range. */
int reading_number(struct reading *r, const char *key, const char *value, long low, long high,
                   long *out);

#endif
