/* TCP Fast Open (RFC 7413; the protocol is tcp/tcp_fastopen.c) as the system has it:
 * net.ipv4.tcp_fastopen and its key, of the network namespace of who asks. Read when a socket
 * listens, or connects so: no connection pays for it otherwise. */
#include "sock/attach/handle.h"
#include "sock/attach/ustack.h"
#include "sock/usock_connect.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include "base/sandbox.h"
#include "base/sys.h"

#define QUEUE_MOST 4096u /* Linux: net.core.somaxconn */

enum { /* ip-sysctl.rst */
       CLIENT = 1,
       SERVER = 2,
       CLIENT_BARE = 4,
       SERVER_BARE = 0x200,
       EVERY_LISTENER = 0x400,
       USUAL = CLIENT, /* where it cannot be read */
};

static bool read_text(const char *path, char *text, size_t room)
{
        int fd = sandbox_forbidden != 0
                         ? -EPERM
                         : (int)sys4(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
        ssize_t n = fd < 0 ? fd : sys3(SYS_read, fd, text, room - 1);

        if (fd >= 0)
                sys1(SYS_close, fd);
        text[n > 0 ? n : 0] = '\0';
        return n > 0;
}

static int system_says(void)
{
        char text[16];
        int says;

        if (!read_text("/proc/sys/net/ipv4/tcp_fastopen", text, sizeof text) ||
            sscanf(text, "%i", &says) != 1)
                return USUAL;
        return says;
}

/* One key or two, of words in this processor's order. Only root may read them. None: those of
 * the stack. */
static void system_keys(struct tcp_opts *o)
{
        unsigned w[4 * TCP_FASTOPEN_KEYS], n, is_set = 0;
        char text[128];

        if (!read_text("/proc/sys/net/ipv4/tcp_fastopen_key", text, sizeof text))
                return;
        n = (unsigned)sscanf(text, "%x-%x-%x-%x,%x-%x-%x-%x", &w[0], &w[1], &w[2], &w[3], &w[4],
                             &w[5], &w[6], &w[7]);
        for (unsigned i = 0; i < 4 && n >= 4 && n <= 8; i++)
                is_set |= w[i];
        if (is_set == 0)
                return; /* the kernel has not made one */
        o->fastopen_keys = (uint8_t)(n / 4);
        for (unsigned i = 0; i < n / 4 * 16; i++)
                o->fastopen_key[i / 16][i % 16] = (uint8_t)(w[i / 4] >> i % 4 * 8);
}

void usock_fastopen_listen(struct usock *s, uint32_t backlog)
{
        struct tcp_opts *o = &usock_rec(s)->opts, keys = {.fastopen_keys = 0};
        int says = system_says();

        if (says & SERVER)
                system_keys(&keys);
        ustack_lock(s->u);
        o->fastopen &= USOCK_FASTOPEN_CONNECT | USOCK_FASTOPEN_NO_COOKIE;
        o->fastopen |= says & SERVER ? TCP_FASTOPEN_SERVE : 0;
        o->fastopen |= says & SERVER_BARE || o->fastopen & USOCK_FASTOPEN_NO_COOKIE
                               ? TCP_FASTOPEN_BARE
                               : 0;
        if (says & SERVER && says & EVERY_LISTENER && o->fastopen_most == 0)
                o->fastopen_most = MIN(backlog, QUEUE_MOST);
        if (o->fastopen_keys == 0 && keys.fastopen_keys != 0) {
                o->fastopen_keys = keys.fastopen_keys;
                memcpy(o->fastopen_key, keys.fastopen_key, sizeof o->fastopen_key);
        }
        ustack_leave(s->u);
}

int usock_fastopen_connect(struct usock *s, bool by_message)
{
        struct tcp_opts *o = &usock_rec(s)->opts;
        bool is_asked;
        int says;

        ustack_lock(s->u);
        is_asked = by_message || o->fastopen & USOCK_FASTOPEN_CONNECT;
        ustack_leave(s->u);
        if (!is_asked)
                return 0;
        says = system_says();
        if (by_message && !(says & CLIENT))
                return -EOPNOTSUPP;
        ustack_lock(s->u);
        o->fastopen &= USOCK_FASTOPEN_CONNECT | USOCK_FASTOPEN_NO_COOKIE;
        o->fastopen |= says & CLIENT ? TCP_FASTOPEN_USE : 0;
        o->fastopen |= says & CLIENT_BARE || o->fastopen & USOCK_FASTOPEN_NO_COOKIE
                               ? TCP_FASTOPEN_BARE
                               : 0;
        ustack_leave(s->u);
        return 0;
}

bool usock_fastopen_waits(const struct usock *s)
{
        return sock_role(usock_rec(s)) == SOCK_ROLE_CONN && tcp_fastopen_waits(usock_conn(s));
}
