/*
 * Clients that wait to be accepted by a listener whose process gives up its user (relay.h). Such a
 * client is connected already, and may have sent. The relay accepts it, and connects to the
 * listener's address by the kernel: from the client's own address and port, if it can bind them.
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

/* Binds to the client's address and port. In the kernel nobody has the port of a client over the
 * fabric, unless the client has bound a kernel socket to it. If it cannot be had, as that of
 * another host's client, any port will do. */
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
