/* See am_meet.h. */
#include "am/am_meet.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HELLO_MAGIC 0x554e616du
#define BACKLOG     128

/* ---- addresses ---- */

int am_address_read(const char *text, struct am_address *out)
{
        char addr[INET6_ADDRSTRLEN + 1];
        struct in_addr v4;
        unsigned port;

        if (sscanf(text, "%46s %5u", addr, &port) != 2 || port == 0 || port > UINT16_MAX)
                return -EINVAL;
        *out = (struct am_address){.port = be32_of(port)};
        if (inet_pton(AF_INET, addr, &v4) == 1)
                out->addr = ip_addr_v4(ntohl(v4.s_addr));
        else if (inet_pton(AF_INET6, addr, &out->addr) != 1)
                return -EINVAL;
        return 0;
}

void am_address_write(const struct am_address *a, char *text, size_t max)
{
        struct in_addr v4 = {htonl(ip_addr_is_v4(a->addr) ? ip_addr_get_v4(a->addr) : 0)};
        char addr[INET6_ADDRSTRLEN];

        if (ip_addr_is_v4(a->addr))
                inet_ntop(AF_INET, &v4, addr, sizeof addr);
        else
                inet_ntop(AF_INET6, &a->addr, addr, sizeof addr);
        snprintf(text, max, "%s %u", addr, be32_get(a->port));
}

static socklen_t to_sockaddr(const struct am_address *a, struct sockaddr_storage *sa)
{
        struct sockaddr_in *v4 = (struct sockaddr_in *)sa;
        struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)sa;

        memset(sa, 0, sizeof *sa);
        if (ip_addr_is_v4(a->addr)) {
                v4->sin_family = AF_INET;
                v4->sin_port = htons((uint16_t)be32_get(a->port));
                v4->sin_addr.s_addr = htonl(ip_addr_get_v4(a->addr));
                return sizeof *v4;
        }
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons((uint16_t)be32_get(a->port));
        memcpy(&v6->sin6_addr, &a->addr, sizeof a->addr);
        return sizeof *v6;
}

int am_address_of(int sock, bool peer, struct am_address *out)
{
        struct sockaddr_storage sa;
        socklen_t len = sizeof sa;

        if ((peer ? getpeername : getsockname)(sock, (struct sockaddr *)&sa, &len) != 0)
                return -errno;
        *out = (struct am_address){0};
        if (sa.ss_family == AF_INET) {
                out->addr = ip_addr_v4(ntohl(((struct sockaddr_in *)&sa)->sin_addr.s_addr));
                out->port = be32_of(ntohs(((struct sockaddr_in *)&sa)->sin_port));
        } else {
                memcpy(&out->addr, &((struct sockaddr_in6 *)&sa)->sin6_addr, sizeof out->addr);
                out->port = be32_of(ntohs(((struct sockaddr_in6 *)&sa)->sin6_port));
        }
        return 0;
}

/* ---- keys ---- */

bool am_key_read(const char *text, uint8_t key[AM_KEY])
{
        for (size_t i = 0; i < AM_KEY; i++) {
                char two[3] = {text[2 * i], text[2 * i] != '\0' ? text[2 * i + 1] : '\0', '\0'},
                     *end;
                key[i] = (uint8_t)strtoul(two, &end, 16);
                if (end != two + 2)
                        return false;
        }
        return text[(size_t)2 * AM_KEY] == '\0';
}

void am_key_write(const uint8_t key[AM_KEY], char text[2 * AM_KEY + 1])
{
        for (size_t i = 0; i < AM_KEY; i++)
                sprintf(text + 2 * i, "%02x", key[i]);
}

/* Takes as long whatever differs. */
static bool same_key(const uint8_t *a, const uint8_t *b)
{
        uint8_t differ = 0;

        for (size_t i = 0; i < AM_KEY; i++)
                differ |= a[i] ^ b[i];
        return differ == 0;
}

/* ---- doors ---- */

int am_door_open(struct am_door *d, const struct am_address *at)
{
        struct am_address any = *at;
        struct sockaddr_storage sa;
        socklen_t len;

        any.port = be32_of(0);
        len = to_sockaddr(&any, &sa);
        d->n = 0;
        d->fd = socket(sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (d->fd < 0)
                return -errno;
        if (bind(d->fd, (struct sockaddr *)&sa, len) == 0 && listen(d->fd, BACKLOG) == 0)
                return 0;
        len = (socklen_t)errno;
        close(d->fd);
        return -(int)len;
}

void am_door_close(struct am_door *d)
{
        for (uint32_t i = 0; i < d->n; i++)
                close(d->who[i].sock);
        close(d->fd);
        d->n = 0;
}

static void forget(struct am_door *d, uint32_t i)
{
        memmove(&d->who[i], &d->who[i + 1], (--d->n - i) * sizeof d->who[0]);
}

/* Accepts a connection. If there is no place for it, the oldest that has said nothing is closed. */
static void let_in(struct am_door *d)
{
        int sock = accept4(d->fd, NULL, NULL, SOCK_CLOEXEC), hello = sizeof(struct am_hello);

        if (sock < 0)
                return;
        for (uint32_t i = 0; i < d->n && d->n == AM_KNOCKERS; i++)
                if (d->who[i].rank == AM_ANYONE) {
                        close(d->who[i].sock);
                        forget(d, i);
                }
        if (d->n == AM_KNOCKERS) {
                close(sock);
                return;
        }
        /* Readable with a whole hello, or at its end. */
        setsockopt(sock, SOL_SOCKET, SO_RCVLOWAT, &hello, sizeof hello);
        d->who[d->n].sock = sock;
        d->who[d->n++].rank = AM_ANYONE;
}

/* False: it is no hello, or not of this job. */
static bool hear(struct am_door *d, uint32_t i, const uint8_t key[AM_KEY])
{
        struct am_hello h;

        if (recv(d->who[i].sock, &h, sizeof h, MSG_PEEK | MSG_DONTWAIT) != sizeof h)
                return false;
        if (be32_get(h.magic) != HELLO_MAGIC || !same_key(h.key, key) ||
            be32_get(h.rank) >= AM_JOB_MOST)
                return false;
        d->who[i].rank = be32_get(h.rank);
        return true;
}

/* Waits until something happens at the door, and looks at it. */
static int attend(struct am_door *d, const uint8_t key[AM_KEY], nstime until)
{
        struct pollfd p[AM_KNOCKERS + 1];
        nstime left = MAX(until - clock_now(), 0);
        int n;

        for (uint32_t i = 0; i < d->n; i++)
                p[i] = (struct pollfd){.fd = d->who[i].rank == AM_ANYONE ? d->who[i].sock : -1,
                                       .events = POLLIN};
        p[d->n] = (struct pollfd){.fd = d->fd, .events = POLLIN};
        n = poll(p, d->n + 1, (int)MIN(left / NS_PER_MS + 1, 1000));
        if (n < 0 && errno != EINTR)
                return -errno;
        for (uint32_t i = d->n;
             i-- > 0 && n > 0;) /* from the last: those that go move the later ones */
                if (p[i].revents != 0 && !hear(d, i, key)) {
                        close(d->who[i].sock);
                        forget(d, i);
                }
        let_in(d);
        return 0;
}

static int plain(int sock)
{
        int one = 1;

        setsockopt(sock, SOL_SOCKET, SO_RCVLOWAT, &one, sizeof one);
        setsockopt(sock, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        return sock;
}

int am_door_take(struct am_door *d, const uint8_t key[AM_KEY], uint32_t rank, nstime until,
                 struct am_hello *hello)
{
        for (bool late = false;;) {
                int err;

                for (uint32_t i = 0; i < d->n; i++) {
                        int sock = d->who[i].sock;
                        if (d->who[i].rank == AM_ANYONE ||
                            (rank != AM_ANYONE && d->who[i].rank != rank))
                                continue;
                        forget(d, i);
                        if (recv(sock, hello, sizeof *hello, MSG_DONTWAIT) == sizeof *hello)
                                return plain(sock);
                        close(sock);
                        break;
                }
                if (late)
                        return -ETIMEDOUT;
                late = clock_now() >= until;
                err = attend(d, key, until);
                if (err != 0)
                        return err;
        }
}

/* ---- a rank ---- */

int am_receive_all(int sock, void *to, size_t len, nstime until)
{
        for (size_t got = 0; got < len;) {
                struct pollfd p = {.fd = sock, .events = POLLIN};
                nstime left = until - clock_now();
                ssize_t n;

                if (left <= 0)
                        return -ETIMEDOUT;
                poll(&p, 1, (int)MIN(left / NS_PER_MS + 1, 1000));
                n = recv(sock, (uint8_t *)to + got, len - got, MSG_DONTWAIT);
                if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
                        return -EPIPE;
                got += (size_t)MAX(n, 0);
        }
        return 0;
}

/* The socket does not block: a signal would end a connect() that does. */
static int connect_until(int sock, const struct sockaddr *to, socklen_t len, nstime until)
{
        struct pollfd p = {.fd = sock, .events = POLLOUT};
        socklen_t size = sizeof(int);
        int err;

        if (connect(sock, to, len) == 0)
                return 0;
        if (errno != EINPROGRESS)
                return -errno;
        for (;;) {
                nstime left = MAX(until - clock_now(), 0);
                if (poll(&p, 1, (int)MIN(left / NS_PER_MS + 1, 1000)) > 0)
                        break;
                if (left == 0)
                        return -ETIMEDOUT;
        }
        return getsockopt(sock, SOL_SOCKET, SO_ERROR, &err, &size) != 0 ? -errno : -err;
}

/* `port`: of our door. */
static int go_to(const struct am_meeting *m, const struct am_address *where, uint32_t port,
                 nstime until)
{
        struct am_hello h = {
                .magic = be32_of(HELLO_MAGIC), .rank = be32_of(m->rank), .port = be32_of(port)};
        struct sockaddr_storage sa;
        socklen_t len = to_sockaddr(where, &sa);
        int sock = socket(sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), err;

        if (sock < 0)
                return -errno;
        memcpy(h.key, m->key, AM_KEY);
        err = connect_until(sock, (struct sockaddr *)&sa, len, until);
        if (err == 0 && send(sock, &h, sizeof h, MSG_NOSIGNAL) != sizeof h)
                err = -errno;
        if (err == 0)
                return plain(sock);
        close(sock);
        return err;
}

static int learn(struct am_meeting *m, const struct am_address *where, nstime until)
{
        struct am_address own;
        int err = am_address_of(m->door.fd, false, &own), sock;

        if (err != 0)
                return err;
        sock = go_to(m, where, be32_get(own.port), until);
        if (sock < 0)
                return sock;
        err = am_receive_all(sock, m->at, m->ranks * sizeof m->at[0], until);
        close(sock);
        return err;
}

/* Which address of ours leads there. */
static int own_address(const struct am_address *where, struct am_address *out)
{
        struct sockaddr_storage sa;
        socklen_t len = to_sockaddr(where, &sa);
        int sock = socket(sa.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0), err;

        if (sock < 0)
                return -errno;
        err = connect(sock, (struct sockaddr *)&sa, len) != 0 ? -errno
                                                              : am_address_of(sock, false, out);
        close(sock);
        return err;
}

int am_meet(struct am_meeting *m, const struct am_address *where, nstime until)
{
        struct am_address own;
        int err = own_address(where, &own);

        if (err == 0)
                err = am_door_open(&m->door, &own);
        if (err != 0)
                return err;
        err = learn(m, where, until);
        if (err != 0)
                am_door_close(&m->door);
        return err;
}

int am_meet_rank(struct am_meeting *m, uint32_t with, nstime until)
{
        struct am_hello h;

        return m->rank < with ? am_door_take(&m->door, m->key, with, until, &h)
                              : go_to(m, &m->at[with], 0, until);
}
