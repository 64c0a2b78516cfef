/* See knock.h. */
#include "unetd/agent/knock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/errqueue.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define MOST 16 /* errors, or datagrams, that are taken in one turn of the loop */

static struct sockaddr_in name_of(uint32_t addr, uint16_t port)
{
        return (struct sockaddr_in){
                .sin_family = AF_INET, .sin_addr.s_addr = htonl(addr), .sin_port = htons(port)};
}

/* Returns true if a control message says that the datagram came back because nobody has the
 * port. */
static bool says_nobody(const struct cmsghdr *c)
{
        struct sock_extended_err e;

        if (c->cmsg_level != IPPROTO_IP || c->cmsg_type != IP_RECVERR)
                return false;
        memcpy(&e, CMSG_DATA(c), sizeof e);
        return e.ee_origin == SO_EE_ORIGIN_ICMP && e.ee_errno == ECONNREFUSED;
}

/* Takes one error. False: there is none. */
static bool take_error(struct knock *k)
{
        _Alignas(struct cmsghdr) char control[256];
        struct sockaddr_in to = {.sin_port = 0};
        struct msghdr m = {.msg_name = &to,
                           .msg_namelen = sizeof to,
                           .msg_control = control,
                           .msg_controllen = sizeof control};

        if (recvmsg(k->source.fd, &m, MSG_ERRQUEUE | MSG_DONTWAIT) < 0)
                return false;
        for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c != NULL; c = CMSG_NXTHDR(&m, c))
                if (says_nobody(c) && to.sin_port == htons(k->port))
                        k->nobody(k, ntohl(to.sin_addr.s_addr));
        return true;
}

static void ready(struct loop_source *s, uint32_t events)
{
        struct knock *k = (struct knock *)s;
        char junk[16];

        (void)events;
        for (int n = 0; n < MOST && s->fd >= 0 && take_error(k); n++)
                ;
        for (int n = 0; n < MOST && s->fd >= 0 && recv(s->fd, junk, sizeof junk, MSG_DONTWAIT) >= 0;
             n++)
                ; /* nobody we know answers */
}

int knock_open(struct knock *k, struct loop *loop, uint32_t from, uint16_t port,
               void (*nobody)(struct knock *k, uint32_t addr))
{
        struct sockaddr_in sin = name_of(from, 0);
        int one = 1, err = 0;

        *k = (struct knock){
                .source = {.fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0),
                           .ready = ready},
                .port = port,
                .nobody = nobody};
        if (k->source.fd < 0)
                return -errno;
        if (bind(k->source.fd, (struct sockaddr *)&sin, sizeof sin) != 0 ||
            setsockopt(k->source.fd, IPPROTO_IP, IP_RECVERR, &one, sizeof one) != 0)
                err = -errno;
        if (err == 0)
                err = loop_add(loop, &k->source, EPOLLIN);
        if (err != 0) {
                close(k->source.fd);
                k->source.fd = -1;
        }
        return err;
}

/* An error that came meanwhile for another host is not this one's: tried once more. */
void knock_at(const struct knock *k, uint32_t addr)
{
        struct sockaddr_in to = name_of(addr, k->port);

        for (int tries = 0; tries < 2 && k->source.fd >= 0; tries++)
                if (sendto(k->source.fd, "", 0, MSG_DONTWAIT, (struct sockaddr *)&to, sizeof to) >=
                    0)
                        return;
}
