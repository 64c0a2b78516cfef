/* A private unetd, and who may talk to it. */
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "two_users.h"
#include "unetd/client/name.h"
#include "unetd/client/wire.h"

/* Its names are of this run, so that no other's is met. */
static const char *private_domain(void)
{
        static char domain[40];

        if (domain[0] == 0)
                snprintf(domain, sizeof domain, "%.28s-own", getenv("UNET_DOMAIN"));
        return domain;
}

static void alices_private_unetd(int ready, int stop)
{
        struct unetd_client c = {.pid = 0};
        char byte;

        become(ALICE);
        setenv("UNET_DOMAIN", private_domain(), 1);
        must(unetd_open(&c, 0) == 0 && !c.shared);
        must(write(ready, "r", 1) == 1);
        must(read(stop, &byte, 1) == 0);
        kill(world_daemon_pid(&c), SIGTERM);
        _exit(0);
}

static void bob_knocks(void)
{
        struct unetd_msg m = {.type = UNETD_HELLO, .hello = {.abi = UNETD_ABI}};
        struct sockaddr_un sun;
        socklen_t len = unetd_name(&sun, ALICE, private_domain(), 0);
        int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
        struct wire_in in;

        become(BOB);
        must(connect(fd, (struct sockaddr *)&sun, len) == 0);
        wire_send(fd, &m, NULL, 0, 0);
        must(wire_recv(fd, &in, 0) == -ECONNRESET);
        _exit(0);
}

static void a_private_unetd_serves_its_user_only(void **state)
{
        int ready[2], stop[2];
        char byte;
        pid_t a, b;

        if (cannot_run())
                skip();
        assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
        assert_int_equal(pipe2(stop, O_CLOEXEC), 0);
        private_domain();
        a = fork();
        if (a == 0) {
                close(stop[1]);
                alices_private_unetd(ready[1], stop[0]);
        }
        close(ready[1]);
        assert_int_equal(read(ready[0], &byte, 1), 1);
        b = fork();
        if (b == 0)
                bob_knocks();
        must_child(b);
        close(stop[1]);
        must_child(a);
        close(ready[0]), close(stop[0]);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                USERS_TEST(a_private_unetd_serves_its_user_only),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
