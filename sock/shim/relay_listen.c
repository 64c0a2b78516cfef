/*
 * Who waits in a listener whose process gives up its user (relay.h). He is connected already, and
 * has perhaps sent: what he talks to is a connection by the kernel, from his own name where that
 * can be had, to the one that he has called.
 */
#include "sock/shim/relay.h"
#include "sock/usock_connect.h"
#include "sock/usock_option.h"

#include <netinet/in.h>
#include <netinet/tcp.h>

struct name {
        struct sockaddr_storage sa;
        socklen_t len;
};

/* A port of a client's of ours is nobody's in the kernel, unless he has bound a socket to it; that
 * of another host is not for us. */
static void call_oneself(int fd, struct name *n)
{
        /* At the same place in both families. */
        uint16_t *port = &((struct sockaddr_in *)&n->sa)->sin_port;
        int on = 1;

        sys5(SYS_setsockopt, fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
        if (sys3(SYS_bind, fd, &n->sa, n->len) == 0)
                return;
        *port = 0;
        sys3(SYS_bind, fd, &n->sa, n->len);
}

static int call(struct name *from, const struct name *to)
{
        int fd = shim_high_fd((int)sys3(SYS_socket, to->sa.ss_family,
                                        SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)),
            on = 1;
        long r;

        if (fd < 0)
                return fd;
        call_oneself(fd, from);
        sys5(SYS_setsockopt, fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        r = sys3(SYS_connect, fd, &to->sa, to->len);
        if (r == 0 || r == -EINPROGRESS)
                return fd;
        sys1(SYS_close, fd);
        return (int)r;
}

static void reset(struct usock *s)
{
        struct linger at_once = {.l_onoff = 1};

        usock_setsockopt(s, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
        usock_close(s);
}

int relay_hand_on(struct usock *listener, struct usock **s)
{
        struct name from = {.len = sizeof(from.sa)}, to = {.len = sizeof(to.sa)};
        int r = usock_acceptable(listener) ? usock_accept(listener, s) : -EAGAIN, on = 1;

        assert(listener != NULL);
        if (r < 0)
                return r;
        usock_accepted_from(*s, (void *)&from.sa, &from.len);
        usock_getsockname(*s, (void *)&to.sa, &to.len);
        usock_setsockopt(*s, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        r = call(&from, &to);
        if (r >= 0)
                return r;
        reset(*s);
        return -ECONNRESET;
}
