/*
 * unet am run: the processes of a job, as seen by who started them.
 *
 *   unet am run          starts ranks
 *   unet am run --hosts  starts `unet am run --part` on each host, by --launch, and is where ranks
 *                        meet
 *   unet am run --part   starts that host's ranks; told to end by the end of its standard input
 */
#ifndef TOOLS_AM_LAUNCH_H
#define TOOLS_AM_LAUNCH_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "am/am_meet.h"

#define AM_LINE_BYTES 4096u
#define AM_GRACE_MS   2000 /* between asking children to end and ending them */
#define AM_EXIT_TOLD  3    /* of --part: a rank has ended the job, and why was told */

struct stream { /* of a child */
        int fd; /* -1: at its end */
        FILE *to;
        size_t len;
        char line[AM_LINE_BYTES];
};

struct child {     /* a rank, or what starts a host's ranks */
        pid_t pid; /* 0: it has ended */
        struct stream out, err;
        int in; /* a host's: its end tells it to end. -1 */
};

struct launch {
        uint32_t n; /* children */
        struct child *child;
        uint32_t left;
        uint32_t first, ranks; /* number of our first rank; of all */
        bool through_unetd, label;
        uint32_t job;
        char **program;
        int (*sock)[AM_JOB_MOST]; /* [a][b]: a's end of the way to b, both ours */
        sigset_t before;

        bool part;              /* we are --part: standard input is whoever started us */
        struct am_address meet; /* several hosts */
        uint8_t key[AM_KEY];

        char **host;    /* --hosts: n of them; NULL */
        const char *by; /* --launch */

        int status;     /* EXIT_DONE, until a child ends otherwise */
        uint32_t cause; /* that child, and how it ended */
        int cause_status;
};

/* Starts a child and notes it; in it, `become` ends in execve() or returns. 0 or a
 * negative errno. */
int launch_child(struct launch *l, uint32_t i, bool with_input,
                 void (*become)(const struct launch *, uint32_t));
/* Blocks SIGCHLD, `start`s all, passes their output on and waits for their ends. Returns the
 * exit status. */
int launch_all(struct launch *l, int (*start)(struct launch *));

/* am_hosts.c: the names, comma between, and the address at which ranks meet (NULL: the one that
 * leads to the first host). Returns an exit status. */
int launch_hosts(struct launch *l, const char *names, const char *at);
/* Reads the key that whoever started this part wrote first. */
bool launch_part_key(uint8_t key[AM_KEY]);

#endif
