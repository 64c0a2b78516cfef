/* The monitor's own side, for main.c and for tests that are a hostile broker. */
#ifndef UNETD_MONITOR_RUN_H
#define UNETD_MONITOR_RUN_H

#include "config/settings.h"
#include "unet/packet/line.h"

/* The state that the monitor has of its own, not of the broker. */
struct monitor_scope {
        const struct unetd_config *cfg;
        /* Reads the rules of the configuration file anew: how many there are, or a negative errno
         * and what is wrong. */
        int (*read_rules)(struct rule rule[RULES_MAX], char line[XDP_LINE_MAX]);
        /* The broker's listening sockets: by an abstract name, by a file; -1: there is none. */
        int listening[2];
};

/* Answers the broker until it ends, and passes SIGTERM, SIGINT and SIGHUP on to it. The broker's
 * exit status; 128 and its signal. */
int monitor_run(const struct monitor_scope *scope, int sock, int broker);

/* The same in pieces, a request each: 0, or a negative errno when there will be no more. */
void monitor_scope_set(const struct monitor_scope *scope);
int monitor_answer(int sock);

#endif
