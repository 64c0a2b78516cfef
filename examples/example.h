/*
 * What the two examples share: their options, two processes on two processors joined by a channel,
 * the table.
 *
 * The parent is the one that measures; the child answers. They are joined over shared memory
 * ("shm", with "direct" the receiver reads the payload in place), through unetd, which is started
 * if need be ("emul"), or over RDMA devices ("verbs"), also from one host to another.
 */
#ifndef EXAMPLES_EXAMPLE_H
#define EXAMPLES_EXAMPLE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <unet/unet.h>

#define BATCH_MAX 16

struct options {
        const char *provider;         /* "shm", "direct", "emul", "verbs", "verbs-direct" */
        const char *at, *peer;        /* verbs: addresses of both sides here */
        const char *listen, *connect; /* verbs: of one, the other is elsewhere */
        double seconds;               /* a size */
        uint32_t only;                /* this size alone, 0: all */
        int64_t spin_ns;
        int batch; /* messages a call, of a stream */
        bool json;
        bool read; /* the receiver looks at every byte */
        bool pin;
};

/* Reads the command line; prints help or a complaint and exits where that is due. */
struct options options_read(int argc, char **argv, const char *what);

/* One of two joined processes. */
struct side {
        struct unet_ep *ep;
        uint32_t chan, mtu;
        struct unet_segment seg;
        bool child;
        int looks; /* of receive(), before it waits */
};
/* Forks and joins; both return from here. Exits when it fails. */
struct side start(const struct options *o);
/* Closes the endpoint. Parent: waits until the child has gone. Child: exits. */
void finish(struct side *s);

/* Calls it for each size of the table, or for the one asked for. */
void each_size(struct side *s, const struct options *o,
               void (*measure)(struct side *, const struct options *, uint32_t));

double now(void); /* seconds */

/* Sends `len` bytes of the segment from `off` (small ones in the descriptor), waiting while the
 * queue is full. */
void send_all(struct side *s, uint32_t off, uint32_t len);
/* Gives the buffers or loans of n received messages back. */
void give_back(struct side *s, const struct unet_recv *m, int n);
/* Reads every byte of n messages; what comes of it is of no use but to be there. */
uint64_t read_all(const struct unet_recv *m, int n);
/* Receives at least one message, at most n; spins first, then sleeps. */
int receive(struct side *s, struct unet_recv *m, int n);

void die(const char *what, int err);

#endif
