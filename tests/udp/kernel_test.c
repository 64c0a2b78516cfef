/*
 * Our UDP beside this machine's kernel: the same calls on both, on loopback addresses, must have
 * the same outcome. What "Linux's rules" are is thus not a matter of reading its source.
 */
#include "tests/udp/scene.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/prng.h"

#define SOCKS 6u
#define LO(n) (0x7f000000u + (n)) /* 127.0.0.n; 0: any */

static struct sockaddr_in kernel_addr(uint32_t addr, uint16_t port)
{
        return (struct sockaddr_in){
                .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(addr)};
}

static ip_addr our_addr(uint32_t addr)
{
        return addr != 0 ? ip_addr_v4(addr) : (ip_addr){{0, 0}};
}

static int kernel_socket(bool reuseaddr, bool reuseport)
{
        int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), one = 1;

        assert_true(fd >= 0);
        if (reuseaddr)
                assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one), 0);
        if (reuseport)
                assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof one), 0);
        return fd;
}

static int kernel_bind(int fd, uint32_t addr, uint16_t port)
{
        struct sockaddr_in a = kernel_addr(addr, port);

        return bind(fd, (struct sockaddr *)&a, sizeof a) == 0 ? 0 : -errno;
}

static uint32_t our_socket(struct scene *s, bool reuseaddr, bool reuseport)
{
        struct udp_opts o;

        udp_opts_default(&o);
        o.reuseaddr = reuseaddr;
        o.reuseport = reuseport;
        return udp_open(&s->u, &o);
}

/* Bound to an address and a port that nobody has; the port. */
static uint16_t kernel_bind_any_port(int fd, uint32_t addr)
{
        struct sockaddr_in a;
        socklen_t len = sizeof a;

        assert_int_equal(kernel_bind(fd, addr, 0), 0);
        assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &len), 0);
        return ntohs(a.sin_port);
}

static uint16_t free_port(void)
{
        int fd = kernel_socket(false, false);
        uint16_t port = kernel_bind_any_port(fd, 0);

        close(fd);
        return port;
}

/* Every pair of addresses and options. */
static void bind_conflicts_alike(void **state)
{
        static const uint32_t addr[] = {0, LO(1), LO(2)};
        struct scene *s = *state;

        for (unsigned c = 0; c < ARRAY_LEN(addr) * ARRAY_LEN(addr) * 16; c++) {
                unsigned first = c / 16 % 3, second = c / 48;
                int ka = kernel_socket(c & 1, c & 2), kb = kernel_socket(c & 4, c & 8);
                uint32_t oa = our_socket(s, c & 1, c & 2), ob = our_socket(s, c & 4, c & 8);

                uint16_t port = kernel_bind_any_port(ka, addr[first]);

                assert_int_equal(udp_bind(&s->u, oa, our_addr(addr[first]), port), 0);
                assert_int_equal(udp_bind(&s->u, ob, our_addr(addr[second]), port),
                                 kernel_bind(kb, addr[second], port));
                close(ka);
                close(kb);
                udp_close(&s->u, oa);
                udp_close(&s->u, ob);
        }
}

/* ---- who gets a datagram ---- */

struct pair { /* a socket of the kernel and one of ours, treated alike */
        int fd;
        uint32_t pcb;
};

static void pair_close(struct scene *s, struct pair *p)
{
        if (p->pcb != 0) {
                close(p->fd);
                udp_close(&s->u, p->pcb);
        }
        *p = (struct pair){-1, 0};
}

static void pair_open(struct scene *s, struct pair *p, uint32_t addr, uint16_t port)
{
        *p = (struct pair){kernel_socket(true, false), our_socket(s, true, false)};
        assert_int_equal(kernel_bind(p->fd, addr, port), 0);
        assert_int_equal(udp_bind(&s->u, p->pcb, our_addr(addr), port), 0);
}

static void pair_connect(struct scene *s, struct pair *p, uint32_t addr, uint16_t port)
{
        struct sockaddr_in a = kernel_addr(addr, port), mine;
        socklen_t len = sizeof mine;

        assert_int_equal(connect(p->fd, (struct sockaddr *)&a, sizeof a), 0);
        assert_int_equal(getsockname(p->fd, (struct sockaddr *)&mine, &len), 0);
        assert_int_equal(udp_connect(&s->u, p->pcb, ip_addr_v4(ntohl(mine.sin_addr.s_addr)),
                                     ip_addr_v4(addr), port),
                         0);
}

static void pair_disconnect(struct scene *s, struct pair *p)
{
        struct sockaddr a = {.sa_family = AF_UNSPEC};

        assert_int_equal(connect(p->fd, &a, sizeof a), 0);
        udp_disconnect(&s->u, p->pcb);
}

/* Which of the kernel's sockets has something to read; it is read. SOCKS: none. */
static unsigned kernel_receiver(const struct pair *pair)
{
        char byte;

        for (unsigned i = 0; i < SOCKS; i++)
                if (pair[i].pcb != 0 && recv(pair[i].fd, &byte, 1, 0) == 1)
                        return i;
        return SOCKS;
}

static unsigned our_receiver(struct scene *s, const struct pair *pair, const struct udp_tuple *t)
{
        uint32_t pcb = udp_lookup(&s->u, t);

        for (unsigned i = 0; i < SOCKS; i++)
                if (pcb != 0 && pair[i].pcb == pcb)
                        return i;
        return SOCKS;
}

struct senders {
        int fd[2];
        uint16_t port[2]; /* bound to 127.0.0.1 and 127.0.0.2 */
};

static void send_and_compare(struct scene *s, const struct pair *pair, const struct senders *from,
                             unsigned who, uint32_t dst, uint16_t port)
{
        struct sockaddr_in to = kernel_addr(dst, port);
        struct udp_tuple t = {.laddr = ip_addr_v4(dst),
                              .raddr = ip_addr_v4(LO(1 + who)),
                              .lport = port,
                              .rport = from->port[who]};
        unsigned got;

        while (sendto(from->fd[who], "x", 1, 0, (struct sockaddr *)&to, sizeof to) != 1)
                assert_int_equal(errno, ECONNREFUSED); /* of one before */
        got = kernel_receiver(pair);
        assert_int_equal(our_receiver(s, pair, &t), got);
}

/* Two sockets with the very same ends: who wins is a matter of hash chains, in the kernel
 * as well. */
static bool twins(struct scene *s, const struct pair *pair)
{
        struct udp_tuple a, b;

        for (unsigned i = 0; i < SOCKS; i++) {
                for (unsigned k = i + 1; pair[i].pcb != 0 && k < SOCKS; k++) {
                        if (pair[k].pcb == 0)
                                continue;
                        udp_get_tuple(&s->u, pair[i].pcb, &a);
                        udp_get_tuple(&s->u, pair[k].pcb, &b);
                        if (memcmp(&a, &b, sizeof a) == 0)
                                return true;
                }
        }
        return false;
}

static void change_one(struct scene *s, struct pair *p, struct prng_fast *g, const uint16_t port[2],
                       const struct senders *from)
{
        unsigned peer = prng_fast_below(g, 2);

        if (p->pcb == 0)
                pair_open(s, p, prng_fast_chance(g, 1, 3) ? 0 : LO(1 + prng_fast_below(g, 2)),
                          port[prng_fast_below(g, 2)]);
        else if (prng_fast_chance(g, 1, 4))
                pair_close(s, p);
        else if (udp_connected(&s->u, p->pcb) && prng_fast_chance(g, 1, 2))
                pair_disconnect(s, p);
        else
                pair_connect(s, p, LO(1 + peer), from->port[peer]);
}

static void datagrams_reach_the_same_socket(void **state)
{
        struct scene *s = *state;
        const uint16_t port[2] = {free_port(), free_port()};
        struct pair pair[SOCKS] = {{-1, 0}};
        struct senders from;
        struct prng_fast g;
        unsigned compared = 0;
        uint64_t seed = 99;

        print_message("seed %llu\n", (unsigned long long)seed);
        prng_fast_init(&g, seed);
        for (unsigned i = 0; i < 2; i++) {
                from.fd[i] = kernel_socket(false, false);
                from.port[i] = kernel_bind_any_port(from.fd[i], LO(1 + i));
        }
        for (int round = 0; round < 500; round++) {
                change_one(s, &pair[prng_fast_below(&g, SOCKS)], &g, port, &from);
                if (twins(s, pair))
                        continue;
                for (unsigned k = 0; k < 8; k++, compared++)
                        send_and_compare(s, pair, &from, k & 1, LO(1 + (k >> 1 & 1)), port[k >> 2]);
        }
        print_message("%u datagrams\n", compared);
        assert_true(compared > 500);
        for (unsigned i = 0; i < SOCKS; i++)
                pair_close(s, &pair[i]);
        close(from.fd[0]);
        close(from.fd[1]);
}

/* ---- what poll says ---- */

static short kernel_poll(int fd)
{
        struct pollfd p = {.fd = fd, .events = (short)0x7fff};

        poll(&p, 1, 0);
        return p.revents;
}

static void poll_says_the_same(void **state)
{
        static const int hows[] = {-1, SHUT_RD, SHUT_WR, SHUT_RDWR};
        struct scene *s = *state;
        short known = POLLIN | POLLOUT | POLLERR | POLLHUP | POLLRDHUP | POLLRDNORM | POLLWRNORM |
                      POLLWRBAND;

        for (size_t i = 0; i < 2 * ARRAY_LEN(hows); i++) {
                struct pair p;
                int err = 0, how = hows[i / 2];

                pair_open(s, &p, LO(1), free_port());
                if (i % 2)
                        pair_connect(s, &p, LO(2), 9);
                if (how >= 0) {
                        err = shutdown(p.fd, how) == 0 ? 0 : -errno;
                        assert_int_equal(udp_shutdown(&s->u, p.pcb, how), err);
                }
                assert_int_equal(udp_poll_events(&s->u, p.pcb), kernel_poll(p.fd) & known);
                pair_close(s, &p);
        }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scene_setup, scene_teardown)

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(bind_conflicts_alike),
                TEST(datagrams_reach_the_same_socket),
                TEST(poll_says_the_same),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
