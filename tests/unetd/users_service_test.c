/* Two users: one cannot stop the service for the other. */
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "two_users.h"
#include "unetd/client/stopped.h"
#include "unetd/client/wire.h"

/* A connected socket with data that its peer does not read, which its last close waits for: an
 * hour, or until *listening is closed. */
static int lingering_socket(int *listening)
{
        struct linger hour = {1, 3600};
        uint16_t port;
        int l = *listening = tcp_listener(&port), fd = socket(AF_INET, SOCK_STREAM, 0);
        struct sockaddr_in sin = {.sin_family = AF_INET,
                                  .sin_port = htons(port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        static char data[65536];

        must(connect(fd, (struct sockaddr *)&sin, sizeof sin) == 0);
        while (send(fd, data, sizeof data, MSG_DONTWAIT) > 0)
                ;
        must(setsockopt(fd, SOL_SOCKET, SO_LINGER, &hour, sizeof hour) == 0);
        must(fcntl(l, F_SETFD, 0) == 0); /* stays, and does not read */
        return fd;
}

/* Passes it in messages that have no use for it, in one that is refused, and in one that is
 * never read. */
static void alice_obstructs(int ready)
{
        struct unetd_msg m = {.type = UNETD_STATUS, .seq = 1};
        struct unetd_client c = {.pid = 0};
        struct fake_stack st;
        int fd, listening;

        become(ALICE);
        must_stack(&c, &st);
        fd = lingering_socket(&listening);
        must(unetd_listen_add(&c, st.id, IPPROTO_TCP, ip_addr_v4(INADDR_LOOPBACK), 4242, 0, fd) ==
             -EINVAL);
        for (int i = 0; i < 100; i++)
                wire_send(c.daemon.fd, &m, &fd, 1, MSG_DONTWAIT);
        close(fd);
        must(write(ready, "r", 1) == 1);
        pause();
}

static void bob_is_served(void)
{
        struct unetd_client c = {.pid = 0};
        struct fake_stack st;

        become(BOB);
        must_stack(&c, &st);
        _exit(0);
}

static void a_user_cannot_hold_up_the_other(void **state)
{
        struct unetd_client c = {.pid = 0};
        int ready[2];
        char byte;
        pid_t a, b;

        if (cannot_run())
                skip();
        assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
        a = fork();
        if (a == 0)
                alice_obstructs(ready[1]);
        assert_int_equal(read(ready[0], &byte, 1), 1);
        b = fork();
        if (b == 0)
                bob_is_served();
        must_child(b);
        kill(a, SIGKILL);
        waitpid(a, NULL, 0);
        assert_int_equal(unetd_open(&c, UNETD_NO_START), 0);
        eventually(world_count(&c).n[UNETD_S_STACK] == 0);
        unetd_close(&c);
        close(ready[0]), close(ready[1]);
}

/* What is in a message to unetd, and nowhere else, unetd closes; and with SO_LINGER for long. */
static void alice_passes(struct unetd_client *c, struct unetd_msg *m, int fd)
{
        table->ready = 1;
        must_eventually(table->stopped);
        must(wire_send(c->daemon.fd, m, &fd, 1, 0) == 0);
        close(fd);
        table->sent = 1;
}

/* The port may be what a child of unetd still closes: its user is told when all is closed. */
static void alice_asks_what_stands_at_a_port(void)
{
        struct unetd_msg add = {
                .type = UNETD_LISTEN_ADD,
                .seq = 1000000,
                .port = {.proto = IPPROTO_TCP, .port = 4242, .addr = ip_addr_v4(INADDR_LOOPBACK)}};
        struct unetd_msg settle = {.type = UNETD_PORT_SETTLE, .seq = 1000001, .port = add.port};
        struct unetd_client c = {.pid = 0}, other = {.pid = 0};
        struct pollfd answer;
        struct fake_stack st;
        struct wire_in in;
        int fd, listening;

        become(ALICE);
        must_stack(&c, &st);
        must(unetd_open(&other, UNETD_NO_START) == 0);
        fd = lingering_socket(&listening);
        add.port.stack = st.id;
        alice_passes(&c, &add, fd);
        answer = (struct pollfd){.fd = c.daemon.fd, .events = POLLIN};
        must(poll(&answer, 1, 60000) == 1 && wire_recv(c.daemon.fd, &in, 0) == 0);
        must(in.msg.seq == 1000000 && in.msg.err == -EINVAL);
        must(wire_send(c.daemon.fd, &settle, NULL, 0, 0) == 0);
        for (int i = 0; i < 3; i++)
                world_count(&other); /* it has heard of it by then */
        must(poll(&answer, 1, 0) == 0);
        close(listening);
        must(poll(&answer, 1, 60000) == 1 && wire_recv(c.daemon.fd, &in, 0) == 0);
        must(in.msg.type == UNETD_PORT_SETTLE && in.msg.seq == 1000001 && in.msg.err == 0);
        _exit(0);
}

static void what_a_child_closes_is_waited_for(void **state)
{
        struct unetd_client c = {.pid = 0};
        pid_t alice, broker;

        if (cannot_run())
                skip();
        assert_int_equal(unetd_open(&c, UNETD_NO_START), 0);
        broker = world_daemon_pid(&c);
        unetd_close(&c);
        alice = fork();
        if (alice == 0)
                alice_asks_what_stands_at_a_port();
        eventually(table->ready);
        kill(broker, SIGSTOP);
        eventually(process_is_stopped(broker));
        table->stopped = 1;
        eventually(table->sent);
        kill(broker, SIGCONT);
        must_child(alice);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                USERS_TEST(a_user_cannot_hold_up_the_other),
                USERS_TEST(what_a_child_closes_is_waited_for),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
