/*
 * One connection of a daemon. Messages that come in go to a handler. Messages that go out are
 * queued while the peer does not read.
 *
 * The queue is bounded. A peer that sends requests and never reads replies is disconnected when the
 * queue is full. A peer whose message is malformed gets an error and stays. conn_fail() and the
 * peer's end make a connection *broken*: it is out of the loop and silent. Its owner is told once
 * and frees it after the batch.
 *
 * Connections may have a share of each turn together. The connection that uses it up comes last in
 * the next turn; those that were not heard come first.
 */
#ifndef UNETD_CONN_H
#define UNETD_CONN_H

#include <sys/queue.h>

#include "unetd/loop/loop.h"
#include "unetd/client/wire.h"

struct conn_out;

#define SHARE_A_TURN (2 * NS_PER_MS) /* the last message may exceed it */

struct conn_share {
        nstime turn, spent; /* time used in that turn */
};

struct conn {
        struct loop_source src;
        struct loop *loop;
        TAILQ_HEAD(, conn_out) out;
        uint32_t queued, queue_max;
        uint32_t queued_fds;      /* descriptors in the queue, copies of our own */
        uint32_t *held;           /* where they are counted as their user's; or NULL */
        struct conn_share *share; /* NULL: it has MESSAGES_A_TURN and no limit of time */
        bool broken;
        /* Handles a well-formed message. It takes the descriptors that it wants; the rest are
         * closed after it returns. */
        void (*message)(struct conn *c, struct wire_in *in);
        /* Tells the owner, once, that the connection is broken; the owner frees it later. */
        void (*ended)(struct conn *c);
        /* Closes descriptors: those that came and no handler took (`unwanted`), and copies of those
         * that were to be sent. NULL: close(2). */
        void (*discard)(struct conn *c, const int *fds, unsigned n, bool unwanted);
        /* Takes the connection's own, with what is unread in it on either side. NULL: discard(). */
        void (*hang_up)(struct conn *c, int fd);
};

/* Takes fd, also on failure. With fd -1 the connection only queues, until conn_attach(). */
int conn_init(struct conn *c, struct loop *l, int fd, uint32_t queue_max);
/* Gives a connection without one its socket (taken) and sends what is queued. */
int conn_attach(struct conn *c, int fd);
/* Sends, or queues. Descriptors are borrowed. A message that can be neither sent nor queued breaks
 * the connection. */
void conn_send(struct conn *c, struct unetd_msg *msg, const int *fds, unsigned n);
/* Answers a request. */
void conn_reply(struct conn *c, const struct unetd_msg *request, int err);
void conn_fail(struct conn *c);
/* Takes the socket out, for who goes on with it; the connection is then to fail. */
int conn_take(struct conn *c);
/* Closes the socket and empties the queue, without telling the owner. */
void conn_free(struct conn *c);

#endif
