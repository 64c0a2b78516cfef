/*
 * The event loop of both daemons: one thread, epoll, nothing blocks.
 *
 * A source is embedded in its owner. Any handler may call loop_del(), but the owner's memory must
 * stay until the batch is over. So owners put what died on a list, and free it in the `after` hook,
 * which runs after each batch.
 */
#ifndef UNETD_LOOP_H
#define UNETD_LOOP_H

#include "base/base.h"

struct loop_source {
        int fd; /* -1: not in the loop */
        void (*ready)(struct loop_source *s, uint32_t events);
};

struct loop {
        int epoll;
        bool stop;
        nstime now; /* monotonic, taken after each wait */
        /* After each batch: frees what died, does what is due. Returns when to be called again, or
         * NSTIME_NEVER. */
        nstime (*after)(struct loop *l);
};

int loop_init(struct loop *l, nstime (*after)(struct loop *l));
/* Adds a source for `events` (EPOLLIN, EPOLLOUT; 0: only hang-up and error). 0 or a negative errno.
 */
int loop_add(struct loop *l, struct loop_source *s, uint32_t events);
void loop_mod(struct loop *l, struct loop_source *s, uint32_t events);
/* Moves the source behind all others that are ready. 0, or a negative errno: the source is out of
 * the loop. */
int loop_requeue(struct loop *l, struct loop_source *s, uint32_t events);
/* Takes the source out, and does not close its descriptor. */
void loop_del(struct loop *l, struct loop_source *s);
void loop_run(struct loop *l);
nstime loop_clock(void);

#endif
