/*
 * Threads that share sockets and agree on nothing: each makes any call on any of a few numbers,
 * while others bind, connect, listen on, ask, set, close and replace the same ones. Every call is a
 * result or an error, the process lives, and its sockets still work afterwards; under TSan nobody
 * reads what somebody else writes without an order between the two.
 */
#include "tests/sock/sides.h"

#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unet/flow.h>

#define THREADS 4
#define SHARED  6
#define CALLS   (8000u / SLOWER) /* of each thread */

struct crowd {
        _Atomic int sock[SHARED];
        _Atomic uint16_t port[SHARED]; /* that one of them was bound to, lately */
        struct unet_pollset *set;
        uint64_t seed;
};

struct member {
        struct crowd *c;
        uint64_t rng;
};

static int any_sock(struct member *m)
{
        return m->c->sock[rnd(&m->rng) % SHARED];
}

static struct sockaddr_in any_peer(struct member *m)
{
        return loopback(m->c->port[rnd(&m->rng) % SHARED]);
}

/* ---- calls ---- */

static void replace(struct member *m)
{
        uint32_t i = (uint32_t)(rnd(&m->rng) % SHARED);
        int type = rnd(&m->rng) % 3 == 0 ? SOCK_DGRAM : SOCK_STREAM;
        int s = unet_socket(AF_INET, type | SOCK_NONBLOCK, 0);

        CHECK(s >= 0);
        unet_close(atomic_exchange(&m->c->sock[i], s));
}

static void bind_it(struct member *m)
{
        uint32_t i = (uint32_t)(rnd(&m->rng) % SHARED);
        struct sockaddr_in sa = loopback(0);
        socklen_t len = sizeof sa;
        int s = m->c->sock[i];

        unet_bind(s, (struct sockaddr *)&sa, sizeof sa);
        if (unet_getsockname(s, (struct sockaddr *)&sa, &len) == 0)
                m->c->port[i] = ntohs(sa.sin_port);
}

static void listen_on(struct member *m)
{
        bind_it(m);
        unet_listen(any_sock(m), 4);
}

static void connect_it(struct member *m)
{
        struct sockaddr_in sa = any_peer(m);

        if (rnd(&m->rng) % 8 == 0)
                sa.sin_family = AF_UNSPEC;
        unet_connect(any_sock(m), (struct sockaddr *)&sa, sizeof sa);
}

static void accept_from(struct member *m)
{
        int s = unet_accept4(any_sock(m), NULL, NULL, SOCK_NONBLOCK);

        if (s >= 0)
                unet_close(atomic_exchange(&m->c->sock[rnd(&m->rng) % SHARED], s));
}

static void send_some(struct member *m)
{
        static const char bytes[9000];
        struct sockaddr_in sa = any_peer(m);
        size_t n = rnd(&m->rng) % 3 == 0 ? rnd(&m->rng) % sizeof bytes : rnd(&m->rng) % 300;

        if (rnd(&m->rng) % 3 == 0)
                unet_sendto(any_sock(m), bytes, n, MSG_DONTWAIT, (struct sockaddr *)&sa, sizeof sa);
        else
                unet_send(any_sock(m), bytes, n, MSG_DONTWAIT);
}

static void send_several(struct member *m)
{
        struct iovec iov = {(char[]){"several"}, 7};
        struct mmsghdr mm[3];

        for (int i = 0; i < 3; i++)
                mm[i] = (struct mmsghdr){.msg_hdr = {.msg_iov = &iov, .msg_iovlen = 1}};
        unet_sendmmsg(any_sock(m), mm, 3, MSG_DONTWAIT);
}

static void receive_some(struct member *m)
{
        struct sockaddr_in sa;
        socklen_t len = sizeof sa;
        char b[9000], control[256];
        struct iovec iov = {b, rnd(&m->rng) % sizeof b};
        struct msghdr h = {.msg_iov = &iov,
                           .msg_iovlen = 1,
                           .msg_control = control,
                           .msg_controllen = sizeof control};

        switch (rnd(&m->rng) % 4) {
        case 0:
                unet_recvfrom(any_sock(m), b, sizeof b, MSG_DONTWAIT, (struct sockaddr *)&sa, &len);
                break;
        case 1:
                unet_recvmsg(any_sock(m), &h,
                             MSG_DONTWAIT | (rnd(&m->rng) % 4 == 0 ? MSG_ERRQUEUE : 0));
                break;
        case 2:
                unet_recv(any_sock(m), b, sizeof b, MSG_DONTWAIT | MSG_PEEK);
                break;
        default:
                unet_recv(any_sock(m), b, 1 + rnd(&m->rng) % 200, MSG_DONTWAIT);
        }
}

static void names(struct member *m)
{
        struct sockaddr_in sa;
        socklen_t len = sizeof sa;

        unet_getsockname(any_sock(m), (struct sockaddr *)&sa, &len);
        len = sizeof sa;
        unet_getpeername(any_sock(m), (struct sockaddr *)&sa, &len);
}

static const struct {
        int level, name;
} options[] = {{SOL_SOCKET, SO_RCVBUF},
               {SOL_SOCKET, SO_SNDBUF},
               {SOL_SOCKET, SO_REUSEADDR},
               {SOL_SOCKET, SO_RCVLOWAT},
               {SOL_SOCKET, SO_TIMESTAMP},
               {SOL_SOCKET, SO_BROADCAST},
               {SOL_SOCKET, SO_KEEPALIVE},
               {SOL_SOCKET, SO_ERROR},
               {IPPROTO_TCP, TCP_NODELAY},
               {IPPROTO_TCP, TCP_CORK},
               {IPPROTO_TCP, TCP_INFO},
               {IPPROTO_TCP, TCP_MAXSEG},
               {IPPROTO_IP, IP_TOS},
               {IPPROTO_IP, IP_TTL},
               {IPPROTO_IP, IP_PKTINFO},
               {IPPROTO_IP, IP_RECVERR},
               {IPPROTO_IP, IP_OPTIONS},
               {IPPROTO_IP, IP_MULTICAST_IF},
               {IPPROTO_IP, IP_MTU},
               {IPPROTO_UDP, UDP_SEGMENT},
               {SOL_SOCKET, SO_RCVTIMEO},
               {SOL_SOCKET, SO_SNDTIMEO},
               {SOL_SOCKET, SO_ACCEPTCONN},
               {SOL_SOCKET, SO_PEERNAME},
               {IPPROTO_TCP, TCP_FASTOPEN},
               {IPPROTO_TCP, TCP_FASTOPEN_CONNECT},
               {IPPROTO_TCP, TCP_WINDOW_CLAMP},
               {IPPROTO_TCP, TCP_NOTSENT_LOWAT},
               {SOL_SOCKET, SO_MAX_PACING_RATE},
               {SOL_SOCKET, SO_LINGER}};

static void set_options(struct member *m)
{
        uint32_t i = (uint32_t)(rnd(&m->rng) % (sizeof options / sizeof *options));
        struct timeval tv = {.tv_usec = 1000 * (int)(rnd(&m->rng) % 2)};
        char value[16] = {(char)(rnd(&m->rng) % 64)};

        if (options[i].name == SO_RCVTIMEO || options[i].name == SO_SNDTIMEO)
                memcpy(value, &tv, sizeof tv);
        unet_setsockopt(any_sock(m), options[i].level, options[i].name, value,
                        options[i].name == IP_OPTIONS    ? 0
                        : options[i].name == SO_RCVTIMEO ? sizeof tv
                                                         : sizeof(int));
}

static void get_options(struct member *m)
{
        uint32_t i = (uint32_t)(rnd(&m->rng) % (sizeof options / sizeof *options));
        char value[256];
        socklen_t len = sizeof value;

        unet_getsockopt(any_sock(m), options[i].level, options[i].name, value, &len);
}

static void ask(struct member *m)
{
        static const unsigned long requests[] = {FIONREAD, SIOCOUTQ, SIOCATMARK, SIOCOUTQNSD};
        struct unet_feedback f;
        uint32_t a, b;
        int v;

        unet_ioctl(any_sock(m), requests[rnd(&m->rng) % 4], &v);
        unet_feedback(any_sock(m), &f);
        unet_get_buffers(any_sock(m), &a, &b);
        unet_set_buffers(any_sock(m), 65536, 65536);
        unet_get_nonblock(any_sock(m));
}

static void steer(struct member *m)
{
        struct unet_window w = {
                .size = sizeof w, .mode = (uint32_t)(rnd(&m->rng) % 3), .bytes = 65536};
        struct unet_flow f = {.size = sizeof f};
        struct unet_watch watch = {.size = sizeof watch, .unread_above = 1, .unsent_below = 4096};
        struct unet_happened h = {.size = sizeof h};

        unet_window_set(any_sock(m), &w);
        unet_window_grant(any_sock(m), 4096);
        unet_window_get(any_sock(m), &w);
        if (unet_flow_get(any_sock(m), &f) == 0)
                unet_flow_set(any_sock(m), &f);
        unet_watch_set(any_sock(m), rnd(&m->rng) % 2 ? &watch : NULL);
        unet_watch_take(any_sock(m), &h);
}

static void look(struct member *m)
{
        struct unet_pollfd v[3];

        for (int i = 0; i < 3; i++)
                v[i] = (struct unet_pollfd){
                        .sock = any_sock(m), .fd = -1, .events = POLLIN | POLLOUT};
        unet_poll(v, 3, (int)(rnd(&m->rng) % 2));
}

static void look_by_set(struct member *m)
{
        struct unet_event ev[4];

        unet_pollset_add(m->c->set, any_sock(m), POLLIN | POLLOUT, 1);
        unet_pollset_mod(m->c->set, any_sock(m), POLLIN | UNET_EDGE, 2);
        unet_pollset_wait(m->c->set, ev, 4, (int)(rnd(&m->rng) % 2));
        unet_pollset_del(m->c->set, any_sock(m));
}

static void end(struct member *m)
{
        unet_shutdown(any_sock(m), (int)(rnd(&m->rng) % 3));
}

/* ---- the crowd ---- */

static void (*const calls[])(struct member *) = {
        replace,      bind_it,      bind_it,      listen_on, listen_on,   connect_it,  connect_it,
        connect_it,   accept_from,  accept_from,  send_some, send_some,   send_some,   send_several,
        receive_some, receive_some, receive_some, names,     set_options, set_options, get_options,
        ask,          look,         look_by_set,  steer,     end,
};

static void *mingle(void *arg)
{
        struct member *m = arg;

        for (uint32_t i = 0; i < CALLS; i++)
                calls[rnd(&m->rng) % (sizeof calls / sizeof *calls)](m);
        return NULL;
}

/* The stack is as good as before. */
static void still_works(void)
{
        int l = tcp_listen_any(), s = tcp_connect_to(port_of(l)), t = unet_accept(l, NULL, NULL);
        char b[8];

        CHECK(s >= 0 && t >= 0);
        CHECK(unet_send(s, "still", 6, 0) == 6 && unet_recv(t, b, 6, MSG_WAITALL) == 6 &&
              memcmp(b, "still", 6) == 0);
        CHECK(unet_close(l) == 0 && unet_close(s) == 0 && unet_close(t) == 0);
}

static void crowd(struct side *s)
{
        struct crowd c = {.set = unet_pollset_create(), .seed = s->arg};
        struct member m[THREADS];
        pthread_t t[THREADS];

        for (int i = 0; i < SHARED; i++)
                c.sock[i] =
                        unet_socket(AF_INET, (i & 1 ? SOCK_DGRAM : SOCK_STREAM) | SOCK_NONBLOCK, 0);
        for (int i = 0; i < THREADS; i++) {
                m[i] = (struct member){&c, c.seed * THREADS + (uint64_t)i + 1};
                CHECK(pthread_create(&t[i], NULL, mingle, &m[i]) == 0);
        }
        for (int i = 0; i < THREADS; i++)
                pthread_join(t[i], NULL);
        for (int i = 0; i < SHARED; i++)
                unet_close(c.sock[i]);
        unet_pollset_destroy(c.set);
        still_works();
}

static void any_call_on_any_socket_from_any_thread(void **state)
{
        assert_int_equal(play_alone(crowd, test_seed()), 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(any_call_on_any_socket_from_any_thread),
        };

        return run_sides(tests);
}
