/* The native API: connecting, listening, accepting, shutting down. */
#include "sock/attach/handle.h"
#include "sock/native/native.h"
#include "sock/usock_process.h"
#include "sock/usock_ready.h"
#include "sock/usock_connect.h"
#include "sock/usock_dgram.h"
#include "sock/usock_option.h"

#include <netinet/in.h>

/* ---- connect ---- */

static int take_error(struct native_slot *n)
{
        socklen_t len = sizeof(int);
        int err = 0;

        usock_getsockopt(n->us, SOL_SOCKET, SO_ERROR, &err, &len);
        return err;
}

/* The end of an attempt, told once: another thread that waited for it, too, is told what there is
 * now. Under setup, which is left while another thread copies: it may stand at a page that only a
 * call on this socket brings. */
static int outcome(struct native_slot *n, bool waited)
{
        int err;

        if (!n->connecting)
                return sock_role(usock_rec(n->us)) == SOCK_ROLE_CONN ? -EISCONN : -ECONNABORTED;
        n->connecting = false;
        if (waited ? usock_connect_made(n->us) : !usock_connect_failed(n->us))
                return 0; /* it is told of the connection, as over the shim */
        err = take_error(n);
        while (!usock_connect_undo(n->us, n->held ? &n->held_addr : NULL)) {
                pthread_mutex_unlock(&n->setup);
                usock_let_copy();
                pthread_mutex_lock(&n->setup);
        }
        return err != 0 ? -err : -ECONNABORTED;
}

/* Under setup, which is left meanwhile. `flags`: of the message that connects; 0: none does. */
static int await(struct native_slot *n, int still, int flags)
{
        nstime until = native_deadline(READ_ONCE(usock_rec(n->us)->sndtimeo));
        bool nowait = native_nowait(n, flags);
        int err;

        pthread_mutex_unlock(&n->setup);
        err = nowait ? usock_wait1(n->us, USOCK_POLL_MADE, 0)
                     : native_wait(n, USOCK_POLL_MADE, until);
        pthread_mutex_lock(&n->setup);

        return err == -EAGAIN ? still : err != 0 ? err : outcome(n, !nowait);
}

static int connect_tcp(struct native_slot *n, const struct sockaddr *sa, socklen_t len, int flags)
{
        int err;

        if (n->connecting)
                return await(n, -EALREADY, flags);
        if (sock_role(usock_rec(n->us)) != SOCK_ROLE_NONE)
                return -EISCONN;
        err = usock_fastopen_connect(n->us, flags & MSG_FASTOPEN);
        if (err == 0)
                err = usock_connect(n->us, sa, len, NULL);
        if (err == -ENOENT)
                return native_nobody(USOCK_TCP, sa, len);
        if (err != -EINPROGRESS)
                return err;
        n->connecting = true;
        return native_nowait(n, flags) ? err : await(n, -EINPROGRESS, flags);
}

/* Nobody has the port yet: the peer's name is kept, and looked for at each send. */
static int connect_absent(struct native_slot *n, const struct sockaddr *sa, socklen_t len)
{
        struct ustack *u = n->us->u;
        struct sock_rec *rec = usock_rec(n->us);
        ip_addr addr, laddr;
        uint16_t port;
        int err = native_nobody(USOCK_UDP, sa, len);

        if (err != -ECONNREFUSED)
                return err;
        usock_addr_in(sa, len, &addr, &port);
        if (ip_addr_is_any(addr))
                addr = ip_addr_v4(INADDR_LOOPBACK);
        ustack_lock(u);
        laddr = ip_addr_is_any(rec->laddr) ? addr : rec->laddr;
        err = udp_connect(&u->s.udp, rec->conn, laddr, addr, port);
        if (err == 0) {
                rec->laddr = laddr;
                rec->raddr = addr;
                WRITE_ONCE(rec->rport, port);
                WRITE_ONCE(rec->chan, 0);
        }
        ustack_leave(u);
        return err;
}

static int connect_udp(struct native_slot *n, const struct sockaddr *sa, socklen_t len)
{
        int err = native_autobind(n);

        if (err == 0)
                err = usock_connect(n->us, sa, len, NULL);
        return err == -ENOENT ? connect_absent(n, sa, len) : err;
}

static int disconnect_udp(struct native_slot *n)
{
        usock_udp_disconnect(n->us, n->held ? &n->held_addr : NULL);
        return 0;
}

int native_reconnect(struct native_slot *n)
{
        struct sockaddr_storage to;
        socklen_t len = sizeof to;
        ip_addr addr;
        uint16_t port;
        int err;

        if (!usock_peer(n->us, &addr, &port))
                return -EDESTADDRREQ;
        usock_addr_out(n->us->family, addr, port, (struct sockaddr *)&to, &len);
        err = usock_connect(n->us, (struct sockaddr *)&to, len, NULL);
        return err == -ENOENT ? native_nobody(USOCK_UDP, (struct sockaddr *)&to, len) : err;
}

static int do_connect(struct native_slot *n, const struct sockaddr *sa, socklen_t len, int flags)
{
        uint16_t port;
        ip_addr addr;
        int err = native_name(sa, len);

        if (err != 0)
                return err;
        if (len >= sizeof sa->sa_family && sa->sa_family == AF_UNSPEC && n->us->kind == USOCK_UDP)
                return disconnect_udp(n);
        err = usock_addr_in(sa, len, &addr, &port);
        if (err != 0)
                return err == -EADDRNOTAVAIL ? -ENETUNREACH : err;
        if (sa->sa_family != n->us->family)
                return -EAFNOSUPPORT;
        if (n->us->kind == USOCK_UDP)
                return connect_udp(n, sa, len);
        err = n->connecting ? 0 : usock_landlock_asked(port);
        if (err != 0)
                return err < 0 ? err : -EMFILE;
        return connect_tcp(n, sa, len, flags);
}

int unet_connect(int sock, const struct sockaddr *addr, socklen_t len)
{
        struct native_slot *n = native_get(sock);
        int err;

        if (n == NULL)
                return (int)native_result(-EBADF);
        pthread_mutex_lock(&n->setup);
        err = do_connect(n, addr, len, 0);
        pthread_mutex_unlock(&n->setup);
        return (int)native_done(n, err);
}

/* As Linux: a connection that waits for what is sent first is connected so already; AF_UNSPEC ends
 * none in this way. */
int native_connect_to_send(struct native_slot *n, const struct sockaddr *sa, socklen_t len,
                           int flags)
{
        int err = 0;

        if (len >= sizeof sa->sa_family && sa->sa_family == AF_UNSPEC)
                return -EOPNOTSUPP;
        pthread_mutex_lock(&n->setup);
        if (!usock_fastopen_waits(n->us))
                err = do_connect(n, sa, len, flags);
        pthread_mutex_unlock(&n->setup);
        return err;
}

/* ---- listen, accept ---- */

int unet_listen(int sock, int backlog)
{
        struct native_slot *n = native_get(sock);
        int err;

        if (n == NULL)
                return (int)native_result(-EBADF);
        pthread_mutex_lock(&n->setup);
        err = n->us->kind == USOCK_TCP ? native_autobind(n) : -EOPNOTSUPP;
        if (err == 0)
                err = native_rule(n) ? -EACCES : usock_listen(n->us, backlog);
        pthread_mutex_unlock(&n->setup);
        return (int)native_done(n, err);
}

static int next_connection(struct native_slot *n, struct usock **out)
{
        nstime deadline = native_deadline(READ_ONCE(usock_rec(n->us)->rcvtimeo));
        int err;

        do {
                err = usock_accept(n->us, out);
                if (err != -EAGAIN || usock_nonblock(n->us))
                        return err;
                err = native_wait(n, POLLIN, deadline);
        } while (err == 0);
        return err;
}

/* What TCP does not carry over from the listener, and Linux does. */
static void inherit(const struct usock *from, struct usock *to)
{
        struct sock_rec *l = usock_rec(from), *r = usock_rec(to);

        ustack_lock(to->u);
        r->rcvtimeo = l->rcvtimeo;
        r->sndtimeo = l->sndtimeo;
        r->rcvlowat = l->rcvlowat;
        WRITE_ONCE(r->waits_for_more, l->waits_for_more);
        ustack_leave(to->u);
}

static int do_accept(struct native_slot *n, struct sockaddr *addr, socklen_t *len, int flags)
{
        struct usock *us;
        int err;

        if (flags & ~(SOCK_NONBLOCK | SOCK_CLOEXEC))
                return -EINVAL;
        if (n->us->kind == USOCK_UDP)
                return -EOPNOTSUPP;
        if (addr != NULL && len == NULL)
                return -EFAULT;
        err = next_connection(n, &us);
        if (err != 0)
                return err;
        inherit(n->us, us);
        if (addr != NULL)
                usock_addr_out(us->family, usock_rec(us)->raddr, usock_rec(us)->rport, addr, len);
        return native_install(us, flags & SOCK_NONBLOCK);
}

int unet_accept4(int sock, struct sockaddr *addr, socklen_t *len, int flags)
{
        struct native_slot *n = native_get(sock);

        return (int)native_done(n, n != NULL ? do_accept(n, addr, len, flags) : -EBADF);
}

int unet_accept(int sock, struct sockaddr *addr, socklen_t *len)
{
        return unet_accept4(sock, addr, len, 0);
}

/* ---- shutdown ---- */

int unet_shutdown(int sock, int how)
{
        struct native_slot *n = native_get(sock);

        return (int)native_done(n, n != NULL ? usock_shutdown(n->us, how) : -EBADF);
}
