/* Two users: whose a port is, and what proves it. */
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "two_users.h"

static void ports_need_proof(int foreign, uint16_t foreign_port)
{
        struct unetd_client c = {.pid = 0};
        struct fake_stack st;
        ip_addr lo = ip_addr_v4(INADDR_LOOPBACK);
        struct dir_hit hit;
        uint16_t port, low = 80, chosen = 0;
        int fd;

        become(ALICE);
        must_stack(&c, &st);
        fd = tcp_listener(&port);
        must(unetd_listen_add(&c, st.id, IPPROTO_TCP, lo, port, 0, -1) == -EACCES);
        must(unetd_listen_add(&c, st.id, IPPROTO_TCP, lo, port, 0, fd) == 0);
        close(fd); /* unetd has it too: nobody takes the port while the entry stands */
        must(directory_lookup(c.dir, IPPROTO_TCP, lo, port, 0, &hit) == 1 && hit.uid == ALICE);
        must(unetd_port_hold(&c, st.id, IPPROTO_TCP, lo, &low) == -EACCES);
        must(unetd_port_hold(&c, st.id, IPPROTO_TCP, lo, &chosen) == 0);
        must(unetd_listen_add(&c, st.id, IPPROTO_TCP, lo, chosen, 0, -1) == 0);
        /* bound, listening, but in another network namespace */
        must(unetd_listen_add(&c, st.id, IPPROTO_TCP, lo, foreign_port, 0, foreign) == -EINVAL);
        _exit(0);
}

/* A socket of a network namespace that is gone but for it. */
static int foreign_listener(uint16_t *port)
{
        int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC), fd;
        struct sockaddr_in sin = {.sin_family = AF_INET,
                                  .sin_port = htons(8080),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

        assert_int_equal(unshare(CLONE_NEWNET), 0);
        fd = socket(AF_INET, SOCK_STREAM, 0);
        assert_int_equal(bind(fd, (struct sockaddr *)&sin, sizeof sin), 0);
        assert_int_equal(listen(fd, 1), 0);
        assert_int_equal(setns(home, CLONE_NEWNET), 0);
        close(home);
        *port = 8080;
        return fd;
}

static void a_port_is_registered_only_against_its_socket(void **state)
{
        uint16_t port;
        pid_t pid;
        int fd;

        if (cannot_run())
                skip();
        fd = foreign_listener(&port);
        pid = fork();
        if (pid == 0)
                ports_need_proof(fd, port);
        must_child(pid);
        close(fd);
}

/* A server that listens anew for each client, as iperf3 does: unetd's copy of the socket is closed
 * by a child of its. */
static void alice_listens_again_and_again(void)
{
        struct unetd_client c = {.pid = 0};
        struct fake_stack st;
        ip_addr lo = ip_addr_v4(INADDR_LOOPBACK);
        uint16_t port = 0;

        become(ALICE);
        must_stack(&c, &st);
        for (int i = 0; i < 50; i++) {
                int fd = world_socket(IPPROTO_TCP, &port);
                must(unetd_listen_add(&c, st.id, IPPROTO_TCP, lo, port, 0, fd) == 0);
                close(fd);
                must(unetd_listen_del(&c, st.id, IPPROTO_TCP, lo, port, 0) == 0);
        }
        _exit(0);
}

static void a_port_is_free_when_its_listener_is_gone(void **state)
{
        pid_t pid;

        if (cannot_run())
                skip();
        pid = fork();
        if (pid == 0)
                alice_listens_again_and_again();
        must_child(pid);
}

#define PORT_TAKEN 7 /* bob's status: the kernel has given the port to a stranger meanwhile */

static int bound_to(uint16_t port, int status)
{
        struct sockaddr_in sin = {.sin_family = AF_INET,
                                  .sin_port = htons(port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;

        must(fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0);
        if (bind(fd, (struct sockaddr *)&sin, sizeof sin) < 0)
                _exit(status);
        return fd;
}

enum { SENDS = IPPROTO_TCP | DIR_HELD };

/* Says that she listens, and does not any more; and sends from a port that others may be bound to
 * as well. */
static void alice_claims(void)
{
        struct unetd_client c = {.pid = 0};
        struct fake_stack st;
        ip_addr lo = ip_addr_v4(INADDR_LOOPBACK);
        uint16_t port, reused;
        int fd, b;

        become(ALICE);
        must_stack(&c, &st);
        fd = tcp_listener(&port);
        b = bound_to(0, 1);
        must(local_port(b, &reused));
        must(unetd_listen_add(&c, st.id, IPPROTO_TCP, lo, port, 0, fd) == 0);
        must(unetd_listen_add(&c, st.id, SENDS, lo, reused, 0, b) == 0);
        must(shutdown(fd, SHUT_RDWR) == 0); /* the kernel has the port again, which it had chosen */
        table->alice_stack = st.id;
        table->reused = reused;
        table->port = port;
        pause();
}

static void bob_has_the_port(void)
{
        struct unetd_client c = {.pid = 0};
        struct fake_stack st;
        ip_addr lo = ip_addr_v4(INADDR_LOOPBACK);
        struct dir_hit hit;
        int fd;

        become(BOB);
        must_stack(&c, &st);
        must_eventually(table->port != 0);
        fd = bound_to((uint16_t)table->port, PORT_TAKEN);
        must(listen(fd, 1) == 0);
        must(unetd_listen_add(&c, st.id, IPPROTO_TCP, lo, (uint16_t)table->port, 0, fd) == 0);
        must(directory_lookup(c.dir, IPPROTO_TCP, lo, (uint16_t)table->port, 0, &hit) == 1);
        must(hit.stack == st.id && hit.same_key == 1);
        /* The kernel lets both of them connect from there, and unetd the first. */
        fd = bound_to((uint16_t)table->reused, 1);
        must(unetd_listen_add(&c, st.id, SENDS, lo, (uint16_t)table->reused, 0, fd) == -EADDRINUSE);
        must(directory_vouches(c.dir, IPPROTO_TCP, lo, (uint16_t)table->reused,
                               table->alice_stack) == 1);
        _exit(0);
}

static int alice_claims_and_bob_has_the_port(void)
{
        pid_t alice = fork(), bob;
        int status;

        if (alice == 0)
                alice_claims();
        bob = fork();
        if (bob == 0)
                bob_has_the_port();
        assert_int_equal(waitpid(bob, &status, 0), bob);
        kill(alice, SIGKILL);
        waitpid(alice, NULL, 0);
        return status;
}

static void a_claim_that_does_not_hold_any_more_gives_way(void **state)
{
        int status = PORT_TAKEN << 8;

        if (cannot_run())
                skip();
        for (int tries = 0; tries < 10 && WIFEXITED(status) && WEXITSTATUS(status) == PORT_TAKEN;
             tries++) {
                table->port = 0;
                status = alice_claims_and_bob_has_the_port();
        }
        assert_int_equal(status, 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                USERS_TEST(a_port_is_registered_only_against_its_socket),
                USERS_TEST(a_port_is_free_when_its_listener_is_gone),
                USERS_TEST(a_claim_that_does_not_hold_any_more_gives_way),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
