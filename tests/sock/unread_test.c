/*
 * Sockets that nobody reads. However much waits in them, of whatever size the pieces are, the
 * others between the same two stacks go on: a new connection comes about, and its bytes, large and
 * small, are answered.
 */
#include "tests/sock/sides.h"

#include <sys/resource.h>
#include <sys/socket.h>

#include "unet/sock.h"

#define ECHO_BYTES 100000u

struct flood {
        const char *name;
        int type;
        int flows;
        /* Each flow is given so many sends of so many bytes, as far as they are taken. */
        size_t piece, pieces;
};

static const struct flood floods[] = {
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

static const struct flood *flood_of(const struct side *s)
{
        return &floods[s->arg];
}

static void more_descriptors(void)
{
        struct rlimit rl;

        CHECK(getrlimit(RLIMIT_NOFILE, &rl) == 0);
        rl.rlim_cur = rl.rlim_max;
        CHECK(setrlimit(RLIMIT_NOFILE, &rl) == 0);
}

static int bound(int type)
{
        int l = unet_socket(AF_INET, type, 0);
        struct sockaddr_in any = loopback(0);

        CHECK(l >= 0 && unet_bind(l, (struct sockaddr *)&any, sizeof any) == 0);
        CHECK(type != SOCK_STREAM || unet_listen(l, 512) == 0);
        return l;
}

/* Takes what comes, and reads the last connection only. */
static void reads_the_last(struct side *s)
{
        const struct flood *f = flood_of(s);
        int l = bound(SOCK_STREAM), c = -1;
        static char buf[ECHO_BYTES];

        more_descriptors();
        tell(s, port_of(l));
        for (int i = 0; i < f->flows && f->type == SOCK_DGRAM; i++)
                tell(s, port_of(bound(SOCK_DGRAM)));
        for (int i = 0; i < f->flows && f->type == SOCK_STREAM; i++)
                CHECK((c = unet_accept(l, NULL, NULL)) >= 0);
        CHECK((c = unet_accept(l, NULL, NULL)) >= 0);
        for (ssize_t n; (n = unet_recv(c, buf, sizeof buf, 0)) > 0;)
                CHECK(unet_send(c, buf, (size_t)n, 0) == n);
        hear(s);
}

static void fill_up(int c, const struct flood *f)
{
        static char piece[4000000];

        for (size_t i = 0; i < f->pieces; i++)
                if (unet_send(c, piece, f->piece, MSG_DONTWAIT) < 0) {
                        CHECK(errno == EAGAIN || errno == ENOBUFS);
                        break;
                }
}

static void is_answered(int c, size_t n)
{
        static char out[ECHO_BYTES], in[ECHO_BYTES];

        for (size_t i = 0; i < n; i++)
                out[i] = (char)(i * 7 + n);
        CHECK(unet_send(c, out, n, 0) == (ssize_t)n);
        CHECK(unet_recv(c, in, n, MSG_WAITALL) == (ssize_t)n);
        CHECK(memcmp(in, out, n) == 0);
}

static void floods_and_goes_on(struct side *s)
{
        const struct flood *f = flood_of(s);
        uint16_t port = (uint16_t)hear(s);
        int c;

        more_descriptors();
        for (int i = 0; i < f->flows; i++) {
                struct sockaddr_in to = loopback(f->type == SOCK_DGRAM ? (uint16_t)hear(s) : port);
                c = unet_socket(AF_INET, f->type, 0);
                CHECK(c >= 0 && unet_connect(c, (struct sockaddr *)&to, sizeof to) == 0);
                fill_up(c, f);
        }
        c = tcp_connect_to(port);
        for (size_t n = 1; n <= ECHO_BYTES; n *= 10)
                is_answered(c, n);
        CHECK(unet_close(c) == 0);
        tell(s, 0);
}

static void others_go_on(void **state)
{
        for (uint64_t i = 0; i < sizeof floods / sizeof *floods; i++) {
                print_message("%s\n", floods[i].name);
                play(TWO_PROCESSES, floods_and_goes_on, reads_the_last, i);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(others_go_on),
        };

        return run_sides(tests);
}
