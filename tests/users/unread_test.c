/*
 * Sockets that another user does not read. However much waits in them, of whatever size the pieces
 * are, other connections go on: between the same two stacks, and of either with a third user.
 */
#include "tests/users/users.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "unet/sock.h"

#define ECHO_BYTES 100000u

/* Each flow is given so many sends of so many bytes, as far as they are taken. */
static const struct flood {
        const char *name;
        int type;
        int flows;
        size_t piece, pieces;
} floods[] = {
        {"a descriptor's worth", SOCK_STREAM, 1900, 150, 1},
        {"a small frame each", SOCK_STREAM, 1900, 700, 1},
        {"several small frames", SOCK_STREAM, 1500, 20000, 1},
        {"large frames", SOCK_STREAM, 60, 2000000, 1},
        {"more than there is memory for", SOCK_STREAM, 150, 4000000, 1},
        {"a trickle", SOCK_STREAM, 300, 600, 100},
        {"datagrams in frames", SOCK_DGRAM, 200, 1400, 60},
        {"large datagrams", SOCK_DGRAM, 150, 30000, 20},
        {"small datagrams", SOCK_DGRAM, 200, 60, 50},
};
static const struct flood *flood;
static int ports[2]; /* a pipe: the reader's */

static struct sockaddr_in loopback(uint16_t port)
{
        return (struct sockaddr_in){.sin_family = AF_INET,
                                    .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                    .sin_port = htons(port)};
}

static void more_descriptors(void)
{
        struct rlimit rl;

        must(getrlimit(RLIMIT_NOFILE, &rl) == 0);
        rl.rlim_cur = rl.rlim_max;
        must(setrlimit(RLIMIT_NOFILE, &rl) == 0);
}

/* Its port is told. */
static int bound(int type)
{
        int l = unet_socket(AF_INET, type, 0);
        struct sockaddr_in at = loopback(0);
        socklen_t len = sizeof at;

        must(l >= 0 && unet_bind(l, (struct sockaddr *)&at, len) == 0);
        must(type != SOCK_STREAM || unet_listen(l, 512) == 0);
        must(unet_getsockname(l, (struct sockaddr *)&at, &len) == 0);
        must(write(ports[1], &at.sin_port, sizeof at.sin_port) == sizeof at.sin_port);
        return l;
}

static int connected(int type, uint16_t port)
{
        struct sockaddr_in to = loopback(port);
        int c = unet_socket(AF_INET, type, 0);

        must(c >= 0 && unet_connect(c, (struct sockaddr *)&to, sizeof to) == 0);
        return c;
}

static uint16_t next_port(void)
{
        uint16_t port;

        must(read(ports[0], &port, sizeof port) == sizeof port);
        return ntohs(port);
}

static void echo(int c)
{
        static char buf[ECHO_BYTES];

        for (ssize_t n; (n = unet_recv(c, buf, sizeof buf, 0)) > 0;)
                must(unet_send(c, buf, (size_t)n, 0) == n);
        must(unet_close(c) == 0);
}

/* Takes what comes, and reads the last connections only. */
static int reads_the_last(void)
{
        int l;

        more_descriptors();
        l = bound(SOCK_STREAM);
        for (int i = 0; i < flood->flows && flood->type == SOCK_DGRAM; i++)
                bound(SOCK_DGRAM);
        for (int i = 0; i < flood->flows && flood->type == SOCK_STREAM; i++)
                must(unet_accept(l, NULL, NULL) >= 0);
        for (int i = 0; i < 2; i++) {
                int c = unet_accept(l, NULL, NULL);
                must(c >= 0);
                echo(c);
        }
        return 0;
}

static void fill_up(int c)
{
        static char piece[4000000];

        for (size_t i = 0; i < flood->pieces; i++)
                if (unet_send(c, piece, flood->piece, MSG_DONTWAIT) < 0) {
                        must(errno == EAGAIN || errno == ENOBUFS);
                        break;
                }
}

static void is_answered(uint16_t port)
{
        static char out[ECHO_BYTES], in[ECHO_BYTES];
        int c = connected(SOCK_STREAM, port);

        for (size_t n = 1; n <= ECHO_BYTES; n *= 10) {
                for (size_t i = 0; i < n; i++)
                        out[i] = (char)(i * 7 + n);
                must(unet_send(c, out, n, 0) == (ssize_t)n);
                must(unet_recv(c, in, n, MSG_WAITALL) == (ssize_t)n);
                must(memcmp(in, out, n) == 0);
        }
        must(unet_close(c) == 0);
}

/* Then a third user comes to both. */
static int floods_and_goes_on(void)
{
        uint16_t port = next_port();
        int l;

        more_descriptors();
        for (int i = 0; i < flood->flows; i++)
                fill_up(connected(flood->type, flood->type == SOCK_DGRAM ? next_port() : port));
        is_answered(port);
        l = bound(SOCK_STREAM);
        table->port = port;
        echo(unet_accept(l, NULL, NULL));
        must_eventually(table->done == 1);
        return 0;
}

static int comes_to_both(void)
{
        is_answered(next_port());
        is_answered((uint16_t)table->port);
        table->done = 1;
        return 0;
}

static void is_flooded(void)
{
        pid_t reader, sender;

        table->port = table->done = 0;
        assert_int_equal(pipe(ports), 0);
        reader = users_begin(HOSTILE, reads_the_last);
        sender = users_begin(VICTIM, floods_and_goes_on);
        eventually(table->port != 0);
        users_run(BYSTANDER, comes_to_both);
        users_wait(sender);
        users_wait(reader);
        close(ports[0]), close(ports[1]);
}

static void others_go_on(void **state)
{
        if (users_cannot_run())
                skip();
        for (flood = floods; flood < floods + ARRAY_LEN(floods); flood++) {
                print_message("%s\n", flood->name);
                is_flooded();
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(others_go_on, users_setup, users_teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
