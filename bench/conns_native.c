/*
 * Very many connections between two programs of the native API: what one costs, and a message on
 * one of them.
 *
 *   conns_native server PORT                echoes a byte on any of its connections, until it is
 *                                           killed
 *   conns_native client PORT N ACTIVE SECONDS
 *
 * The client opens N connections and prints "opened N in S s". For each line that it reads it then
 * sends a byte on a random one of ACTIVE of them, one after the other for SECONDS, and prints a
 * line of JSON. Sockets of the native API have no descriptor, so that RLIMIT_NOFILE bounds nothing.
 * An address of the server's has as many connections as there are client ports; there are
 * ADDRESSES.
 */
#include "bench/native.h"

#define ADDRESSES 100
#define AT_ONCE   64       /* events of a wait */
#define ACTIVE_BY 1000003u /* a prime: the active ones lie apart */

static void must_add(struct unet_pollset *set, int s)
{
        if (unet_pollset_add(set, s, POLLIN | POLLRDHUP, (uint64_t)s) != 0)
                die("pollset_add");
}

/* Accepts all there are. */
static void accept_all(struct unet_pollset *set, int listener)
{
        int s;

        while ((s = unet_accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
                native_no_delay(s);
                must_add(set, s);
        }
        if (errno != EAGAIN)
                die("accept");
}

static void echo(int s)
{
        char byte;
        ssize_t n = unet_recv(s, &byte, 1, 0);

        if (n == 1 && unet_send(s, &byte, 1, 0) == 1)
                return;
        if (n != 0 && errno == EAGAIN)
                return;
        unet_close(s);
}

static void serve(int port)
{
        struct unet_pollset *set = unet_pollset_create();
        int listener = native_listen_on("0.0.0.0", port);
        struct unet_event ev[AT_ONCE];

        if (set == NULL || unet_set_nonblock(listener, 1) != 0)
                die("pollset");
        must_add(set, listener);
        for (;;) {
                int n = unet_pollset_wait(set, ev, AT_ONCE, -1);

                if (n < 0)
                        die("pollset_wait");
                for (int i = 0; i < n; i++)
                        if ((int)ev[i].data == listener)
                                accept_all(set, listener);
                        else
                                echo((int)ev[i].data);
        }
}

static void open_all(int *sock, long n, int port)
{
        double start = now_s();
        char address[16];

        for (long i = 0; i < n; i++) {
                snprintf(address, sizeof address, "127.0.0.%ld", 1 + i % ADDRESSES);
                sock[i] = native_connect_to(address, port);
                native_no_delay(sock[i]);
        }
        printf("opened %ld in %.1f s\n", n, now_s() - start);
        fflush(stdout);
}

static void exchange(int s)
{
        char byte = 'x';

        if (unet_send(s, &byte, 1, 0) != 1 || unet_recv(s, &byte, 1, 0) != 1)
                die("exchange");
}

static void drive(const int *sock, long n, long active, double seconds)
{
        double start, took;
        unsigned long done = 0;
        unsigned seed = 1;

        for (long i = 0; i < active; i++)
                exchange(sock[(unsigned long)i * ACTIVE_BY % (unsigned long)n]);
        start = now_s();
        do {
                for (int i = 0; i < 100; i++)
                        exchange(sock[(unsigned long)(rand_r(&seed) % active) * ACTIVE_BY %
                                      (unsigned long)n]);
                done += 100;
                took = now_s() - start;
        } while (took < seconds);
        printf("{\"connections\": %ld, \"active\": %ld, \"round_trips\": %lu, \"us\": %.3f}\n", n,
               active, done, took * 1e6 / (double)done);
        fflush(stdout);
}

int main(int argc, char **argv)
{
        if (argc == 3 && strcmp(argv[1], "server") == 0) {
                serve((int)number_arg(argv[2], 1, 65535));
        } else if (argc == 6 && strcmp(argv[1], "client") == 0) {
                long n = number_arg(argv[3], 1, 1 << 20), active = number_arg(argv[4], 1, n);
                long seconds = number_arg(argv[5], 1, 3600);
                int *sock = calloc((size_t)n, sizeof *sock);
                char line[80];

                if (sock == NULL)
                        die("calloc");
                open_all(sock, n, (int)number_arg(argv[2], 1, 65535));
                while (fgets(line, sizeof line, stdin) != NULL)
                        drive(sock, n, active, (double)seconds);
        } else {
                fprintf(stderr, "usage: conns_native server PORT | client PORT N ACTIVE SECONDS\n");
                return 2;
        }
        return 0;
}
