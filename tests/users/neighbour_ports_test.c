/*
 * Sockets of a hostile user that share a number with the victim's port, and do not have the port:
 * none vouches for a name.
 */
#include "tests/users/neighbour.h"

#include <errno.h>
#include <netinet/in.h>
#include <sched.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* His socket vouches for none of the victim's names, and the victim's are found as before. */
static void vouches_for_nothing(uint8_t proto, uint32_t addr, uint16_t port, int sock)
{
        must(sock >= 0);
        must(hostile_listen(client, own.id, proto, addr, port, sock) < 0);
        for (uint32_t hint = 0; hint < 16; hint++)
                must(hostile_sees(proto, addr, port, hint) != geteuid());
}

static int socket6(int type, int protocol, bool only6, struct in6_addr addr, uint16_t port)
{
        struct sockaddr_in6 sin6 = {
                .sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = addr};
        int s = socket(AF_INET6, type | SOCK_CLOEXEC, protocol), only = only6;

        if (s < 0)
                return -1;
        setsockopt(s, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof only);
        if (bind(s, (struct sockaddr *)&sin6, sizeof sin6) == 0 &&
            (type != SOCK_STREAM || listen(s, 4) == 0))
                return s;
        close(s);
        return -1;
}

/* A wildcard of IPv6 alone beside the victim's socket of IPv4. */
static int has_the_port_of_ipv6(void)
{
        static const uint8_t protos[] = {IPPROTO_TCP, IPPROTO_UDP};

        comes();
        for (int i = 0; i < 2; i++) {
                int s = socket6(protos[i] == IPPROTO_TCP ? SOCK_STREAM : SOCK_DGRAM, 0, true,
                                in6addr_any, (uint16_t)table->port);

                if (s < 0) {
                        fprintf(stderr, "not shown: %s\n", strerror(errno));
                        continue;
                }
                vouches_for_nothing(protos[i], 0, (uint16_t)table->port, s);
                vouches_for_nothing(protos[i], LOOPBACK, (uint16_t)table->port, s);
        }
        return 0;
}

static int has_the_port_of_a_mapped_address(void)
{
        struct in6_addr mapped = {.s6_addr = {[10] = 0xff, 0xff, 127, 0, 0, 2}};
        int s;

        comes();
        s = socket6(SOCK_STREAM, 0, false, mapped, (uint16_t)table->port);
        if (s >= 0)
                vouches_for_nothing(IPPROTO_TCP, LOOPBACK, (uint16_t)table->port, s);
        else
                fprintf(stderr, "not shown: %s\n", strerror(errno));
        return 0;
}

/* A UDP socket's address is another one when it is connected. */
static int has_connected_the_socket(void)
{
        struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9)};
        uint16_t port = 0;
        int s = hostile_socket(IPPROTO_UDP, 0, &port, false);

        comes();
        to.sin_addr.s_addr = htonl(LOOPBACK_2);
        must(s >= 0 && connect(s, (struct sockaddr *)&to, sizeof to) == 0);
        vouches_for_nothing(IPPROTO_UDP, 0, port, s);
        return 0;
}

static int has_a_protocol_that_looks_alike(void)
{
        static const struct {
                int type, protocol;
                uint8_t as;
        } v[] = {{SOCK_STREAM, 262, IPPROTO_TCP}, /* MPTCP */
                 {SOCK_STREAM, 132, IPPROTO_TCP}, /* SCTP */
                 {SOCK_DGRAM, 136, IPPROTO_UDP},  /* UDP-Lite */
                 {SOCK_DGRAM, IPPROTO_ICMP, IPPROTO_UDP}};

        comes();
        for (size_t i = 0; i < ARRAY_LEN(v); i++) {
                struct sockaddr_in at = {.sin_family = AF_INET};
                int s = socket(AF_INET, v[i].type | SOCK_CLOEXEC, v[i].protocol);
                socklen_t len = sizeof at;

                at.sin_addr.s_addr = htonl(LOOPBACK_2);
                if (s < 0 || bind(s, (struct sockaddr *)&at, len) < 0) {
                        fprintf(stderr, "not shown: protocol %d, which this kernel has not\n",
                                v[i].protocol);
                        continue;
                }
                if (v[i].type == SOCK_STREAM)
                        listen(s, 4);
                must(getsockname(s, (struct sockaddr *)&at, &len) == 0);
                vouches_for_nothing(v[i].as, LOOPBACK_2, ntohs(at.sin_port), s);
        }
        return 0;
}

/* Another user may have the same port at another device, or at none. */
static int has_bound_it_to_a_device(void)
{
        static const uint8_t protos[] = {IPPROTO_TCP, IPPROTO_UDP};

        comes();
        for (int k = 0; k < 2; k++) {
                struct sockaddr_in at = {.sin_family = AF_INET};
                int s = socket(AF_INET, k == 0 ? SOCK_STREAM : SOCK_DGRAM, 0);
                socklen_t len = sizeof at;

                must(s >= 0 && setsockopt(s, SOL_SOCKET, SO_BINDTODEVICE, "unet0", 5) == 0);
                must(bind(s, (struct sockaddr *)&at, len) == 0 &&
                     getsockname(s, (struct sockaddr *)&at, &len) == 0);
                must(k == 1 || listen(s, 4) == 0);
                vouches_for_nothing(protos[k], 0, ntohs(at.sin_port), s);
        }
        return 0;
}

/* Made in a network namespace of his own, where he has every port. */
static int has_it_in_another_namespace(void)
{
        int pair[2], s;
        struct wire_in in;
        pid_t pid;

        comes();
        must(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0);
        pid = fork();
        if (pid == 0) {
                struct unetd_msg msg = {.type = UNETD_HELLO};
                uint16_t port = (uint16_t)table->port;

                prctl(PR_SET_DUMPABLE, 1);
                if (unshare(CLONE_NEWUSER | CLONE_NEWNET) < 0)
                        _exit(77);
                s = hostile_socket(IPPROTO_TCP, 0, &port, false); /* lo is down there */
                must(s >= 0);
                must(wire_send(pair[1], &msg, &s, 1, 0) == 0);
                _exit(0);
        }
        close(pair[1]);
        if (wire_recv(pair[0], &in, 0) == 0 && in.n == 1) {
                vouches_for_nothing(IPPROTO_TCP, 0, (uint16_t)table->port, in.fds[0]);
                vouches_for_nothing(IPPROTO_TCP, LOOPBACK, (uint16_t)table->port, in.fds[0]);
        } else {
                fprintf(stderr, "not shown: users make no namespaces here\n");
        }
        waitpid(pid, NULL, 0);
        return 0;
}

/* A connection to the victim's own port. */
static int has_a_connection_to_it(void)
{
        struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)table->port)};
        int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

        comes();
        to.sin_addr.s_addr = htonl(LOOPBACK);
        must(s >= 0 && connect(s, (struct sockaddr *)&to, sizeof to) == 0);
        vouches_for_nothing(IPPROTO_TCP, LOOPBACK, (uint16_t)table->port, s);
        return 0;
}

#define ATTACKS(X)                          \
        X(has_the_port_of_ipv6)             \
        X(has_the_port_of_a_mapped_address) \
        X(has_connected_the_socket)         \
        X(has_a_protocol_that_looks_alike)  \
        X(has_bound_it_to_a_device)         \
        X(has_it_in_another_namespace)      \
        X(has_a_connection_to_it)

ATTACKS(ATTACK_SCENE)

int main(void)
{
        const struct CMUnitTest tests[] = {cmocka_unit_test(the_victim_begins),
                                           ATTACKS(ATTACK_ROW)};

        if (users_cannot_run() || !neighbours_have_own_network())
                return 77;
        return cmocka_run_group_tests(tests, users_setup, users_teardown);
}
