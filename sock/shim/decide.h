/* Whose a socket becomes, ours or the kernel's, and what both sides then know of it:
 * decide.c, sock.c. */
#ifndef SHIM_DECIDE_H
#define SHIM_DECIDE_H

#include "sock/shim/shim.h"

/* Ours from now on: makes f->us with the options and the name it has; shim.lock held. -errno. */
int sock_engage(struct file *f);
/* Before the first connect() of a TCP socket that has a range of ports of its own: a port of that
 * range (bind.c). */
void bind_in_range(struct file *f);
void sock_decide(struct file *f, enum file_mode mode, const char *why);
/* A datagram is about to leave a socket that is still undecided. */
void udp_first_datagram(struct file *f, const struct sockaddr *sa, socklen_t len);
/* A call is about to wait for what comes to a datagram socket that another thread or process may
 * send from, bind or connect meanwhile. It waits on both sides from the beginning, and our side
 * gets its name when the kernel's does. Returns true if it is ours now. The second one with
 * shim.lock held. */
bool udp_await(int fd);
void udp_await_locked(struct file *f);
static inline bool file_may_come(int fd, const struct file *f)
{
        return unlikely(f->shared || (f->mode == MODE_NEW && f->kind == USOCK_UDP)) &&
               udp_await(fd);
}
/* file_enter() for calls that may wait for input. */
static inline struct file *file_enter_reading(int fd)
{
        struct file *f = file_peek(fd);

        if (likely(!f))
                return NULL;
        file_may_come(fd, f);
        return file_enter(fd, MODE_TCP);
}
/* sendto() with MSG_FASTOPEN connects. With a cookie of the peer's the SYN waits for what is sent;
 * without, what is sent goes when the connection is there. -1 and errno: there is none, yet; 0: the
 * call goes on, the kernel's too. */
int connect_to_send(int fd, const struct sockaddr *sa, socklen_t len, bool nonblock);
/* A call that may wait has sent r bytes, and began the connection: it ends when that is there, as
 * in Linux. */
ssize_t connect_sent(struct file *f, ssize_t r);
/* ... where that has decided nothing: an address that is none, or no IPv4. */
void tcp_kernel_connects(struct file *f);
/* A UDP socket with a local name: reachable over the fabric too. Under shim.lock. */
void udp_engage(struct file *f);
bool sockaddr_v4(const struct sockaddr *sa, socklen_t len);
/* NULL: this local address speaks IPv4, as both wildcards do unless IPV6_V6ONLY forbids it;
 * otherwise why not. */
const char *sock_not_v4(const struct file *f, const struct sockaddr_storage *ss, socklen_t len);
bool sock_v6only(const struct file *f);
/* The kernel's name of the socket; *len is written only. 0 or -errno. */
int sock_kernel_name(const struct file *f, struct sockaddr_storage *ss, socklen_t *len);
/* Returns true if our side can reach it. Groups and everybody are the kernel's, unless unetd has
 * an interface. */
bool sock_may_be_ours(const struct sockaddr *sa, socklen_t len);
/* In words, why our side did not come about. */
const char *sock_refused(int err);
int sock_shutdown(struct file *f, int how);
/* A name goes to the program, as much of it as there is room for: how long it is, it is told in
 * any case. */
int sock_give_name(const struct sockaddr_storage *name, socklen_t n, struct sockaddr *sa,
                   socklen_t *len);
/* Returns true if a name that the program passes can be read, and is no longer than any; if not,
 * the kernel says what it has to say about it. */
static inline bool sockaddr_readable(const struct sockaddr *sa, socklen_t len)
{
        return len <= sizeof(struct sockaddr_storage) && user_read_range(sa, len);
}

#endif
