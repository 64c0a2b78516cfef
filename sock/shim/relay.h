/*
 * A process that gives up its user leaves the stack (privilege.c), and its connections stay there,
 * carried by a *relay*.
 *
 *      peer ==connection== relay, of the old user --socket pair-- program, of the new user
 *
 * The relay also accepts clients that wait in a listener of the program's, and connects to the
 * kernel's listener for each of them. It does so until no client has come for a while: unetd's
 * directory does not name the listener any more.
 *
 *      peer ==connection== relay, of the old user --TCP of the kernel-- whoever accepts there
 *
 * The relay is a child from before the change. The program has an end of a socket pair under each
 * number of the connection; what else it may ask of the connection is answered from its struct
 * relayed.
 */
#ifndef SHIM_RELAY_H
#define SHIM_RELAY_H

#include "sock/shim/shim.h"

/* What the program knows of a connection that is carried; memory that it shares with the relay, for
 * which none of it is an address or a length. */
struct relayed {
        struct sockaddr_storage local, peer;
        socklen_t local_len, peer_len;
        _Atomic int err; /* why the connection has ended, until the program is told */
        /* Bytes that it had not read when it closed; RELAYED_UNKNOWN: it did not tell. They are of
         * the offer with this number: what was offered later it has not read. */
        _Atomic int left;
        _Atomic uint32_t left_of;
        _Atomic uint32_t offers; /* twice, by the relay: odd while one is being made */
        /* The program has shut it down, both ways: it ends though others have it. */
        _Atomic bool shut;
};

#define RELAYED_UNKNOWN (-1)

struct carried {
        struct file *f; /* the program's */
        struct relayed *r;
        int program, relay; /* ends of the socket pair, -1: none */
};

struct relay {
        struct carried *v;
        unsigned n;
        struct file **listener; /* at which somebody may wait */
        unsigned nlisteners;
        uid_t uid; /* the old user */
        int ctl;   /* to the other; -1: there is no relay */
};

/* Starts a relay for all connections and listeners, which waits for relay_go(). Without shim.lock.
 * What there is no relay for ends. */
void relay_start(struct relay *r);
/* The program has, under each number, the end of the socket pair, and is out of the stack: the
 * relay begins. */
void relay_go(struct relay *r);
/* Returns true if somebody may wait in a listener, and no relay could be made. */
bool relay_lacks(const struct relay *r);
/* It does not come to that. */
void relay_cancel(struct relay *r);
/* A number of the program's: the socket pair instead of the connection. */
void relay_replace(const struct relay *r, int fd, struct file *f);

/* relay_run.c: the relay itself. */
_Noreturn void relay_run(struct relay *r);
bool relay_owns(int fd);

/* relay_listen.c: accepts a client that waits in a listener. Returns a socket that connects to the
 * kernel's listener for it; -EAGAIN: no client waits; -ECONNRESET: this one was reset; any other
 * error: none can be accepted. */
int relay_hand_on(struct usock *listener, struct usock **s);

/* ---- relayed.c: the program's calls on such a number ---- */

/* It will have connections that are relayed, f among them. */
void relayed_start(const struct file *f);
bool relayed_owns(int fd);
/* NULL: it is none. */
struct relayed *relayed_of(int fd);
int relayed_name(const struct sockaddr_storage *name, socklen_t n, struct sockaddr *sa,
                 socklen_t *len);
int relayed_setsockopt(int fd, int level, int name, const void *val, socklen_t len);
int relayed_getsockopt(int fd, int level, int name, void *val, socklen_t *len);
int relayed_shutdown(int fd, int how);
/* What the kernel's call has read, from any number. */
ssize_t relayed_read(int fd, ssize_t r);
/* The number is about to be closed; or all of them, by the end of the process. */
void relayed_close(int fd, const struct file *f);
void relayed_exit(void);

#endif
