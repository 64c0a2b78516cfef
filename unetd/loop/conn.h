/*
 * One connection of a daemon: messages in, through a handler; messages out, queued while the other
 * side does not read.
 *
 * The queue is bounded. A peer that sends requests and never reads replies is disconnected when it
 * is full; one whose message is not in form gets an error and stays. conn_fail() and the peer's end
 * make a connection *broken*: it is out of the loop and silent, and its owner, who is told once,
 * frees it after the batch.
 *
 * Connections may have a share of each turn together. The one that uses it up comes last in the
 * next turn; those that were not heard come first.
 */
#ifndef UNETD_CONN_H
#define UNETD_CONN_H

#include <sys/queue.h>

#include "unetd/loop/loop.h"
#include "unetd/client/wire.h"

struct conn_out;

#define SHARE_A_TURN (2 * NS_PER_MS) /* and what the last message takes longer */

struct conn_share {
        nstime turn, spent; /* so much of that turn */
};

struct conn {
        struct loop_source src;
        struct loop *loop;
        TAILQ_HEAD(, conn_out) out;
        uint32_t queued, queue_max;
        uint32_t queued_fds;      /* copies of descriptors in the queue */
        struct conn_share *share; /* NULL: it has MESSAGES_A_TURN and no limit of time */
        bool broken;
        /* A message in form. The handler takes the descriptors it wants; the rest are closed
         * after it. */
        void (*message)(struct conn *c, struct wire_in *in);
        /* Told once; the owner frees later. */
        void (*ended)(struct conn *c);
        /* Closes descriptors: those that came and nobody wanted (`unwanted`), copies of those that
         * were to be sent, and the connection's own, with what is unread in it. NULL: close(2). */
        void (*discard)(struct conn *c, const int *fds, unsigned n, bool unwanted);
};

/* Takes fd, on success and failure. With fd -1 it only queues, until conn_attach(). */
int conn_init(struct conn *c, struct loop *l, int fd, uint32_t queue_max);
/* Gives a connection without one its socket (taken) and sends what is queued. */
int conn_attach(struct conn *c, int fd);
/* Sends, or queues. Descriptors are borrowed. What cannot be kept breaks the connection. */
void conn_send(struct conn *c, struct unetd_msg *msg, const int *fds, unsigned n);
/* Answers a request. */
void conn_reply(struct conn *c, const struct unetd_msg *request, int err);
void conn_fail(struct conn *c);
/* Closes and empties; without telling the owner. */
void conn_free(struct conn *c);

#endif
