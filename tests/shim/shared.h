/*
 * What the files of shim_shared share: the sockets of the scene that is played, the roles that a
 * socket has, and the calls that are made on it.
 */
#ifndef TESTS_SHIM_SHARED_H
#define TESTS_SHIM_SHARED_H

#include <linux/sockios.h>
#include <sys/un.h>

#include "tests/shim/calls.h"

/* The scene's sockets; -1: there is none. */
struct scene_now {
        int fd;                  /* which is shared */
        int listener, peer, udp; /* a listener; the other end of a connection; a datagram socket */
        int held;                /* the port of udp, as one of TCP: nobody connects to himself */
        int from;                /* where connections of the listener's role come from */
        bool datagrams;
        bool undone;                   /* by connect() to AF_UNSPEC: without() */
        struct sockaddr_in at, udp_at; /* of listener and udp */
};

extern struct scene_now now;

struct role {
        const char *name;
        int (*make)(void); /* the socket; sets the others up in `now` */
        bool udp;
        bool narrow; /* is played before a few calls only, as there are very many scenes */
};

extern const struct role roles[];
extern const size_t nroles;

struct call {
        const char *name;
        long (*call)(int fd);
        bool narrow; /* ... after a few */
};

/* Of each its function. */
#define CALL(name, call, narrow) long call(int fd);
#include "tests/shim/shared_calls.def"
#undef CALL

extern const struct call calls[];
extern const size_t ncalls;

/* What calls send and receive; /dev/null. */
extern char call_data[64];
extern int null_fd;
/* Opens the files of which calls have need. */
void calls_begin(void);
/* The call's number; -1: there is none of this name. */
int call_named(const char *name);
bool call_closes(int call);
bool call_undoes(int call);
bool call_makes_threads(int call); /* libc's, for aio */

int soft(int fd); /* it, without waiting */
/* A datagram socket of loopback; *sa is its address. */
int udp_at(struct sockaddr_in *sa);
/* What poll() says of it, but for what Linux alone says: without(). */
int events_of(int fd);
/* The option's value, or -1. */
long int_opt(int fd, int level, int name);
/*
 * What Linux has and we do not, of a connection that connect() to AF_UNSPEC has ended: SO_ERROR is
 * ECONNRESET once, and getsockname() still tells the port. And what Linux says first of a datagram
 * socket is that nobody has its peer's port; we, what has come.
 */
int without(int err);
void until_events(int fd, short events);

#endif
