/*
 * Round trip over TCP: messages there and back, one after the other.
 *
 *      rtt server PORT ADDRESS BYTES                   serves one client after the other, until it is killed
 *      rtt client PORT ADDRESS BYTES SECONDS [FROM]    prints one line of JSON
 *
 * ADDRESS is the server's, FROM one of the client's own.
 */
#include "bench/plain.h"

#define BYTES_MAX 65536
#define WARM_UP   200

static char message[BYTES_MAX];

static int no_delay(int fd)
{
        int one = 1;

        if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) != 0)
                die("TCP_NODELAY");
        return fd;
}

/* False at the end of the stream. */
static bool read_all(int fd, size_t n)
{
        for (size_t got = 0; got < n;) {
                ssize_t r = read(fd, message + got, n - got);

                if (r < 0)
                        die("read");
                if (r == 0)
                        return false;
                got += (size_t)r;
        }
        return true;
}

static void write_all(int fd, size_t n)
{
        for (size_t put = 0; put < n;) {
                ssize_t w = write(fd, message + put, n - put);

                if (w < 0)
                        die("write");
                put += (size_t)w;
        }
}

static _Noreturn void serve(const char *address, int port, size_t bytes)
{
        int listener = listen_on(address, port, 16);

        for (;;) {
                int fd = accept(listener, NULL, NULL);

                if (fd < 0)
                        die("accept");
                no_delay(fd);
                while (read_all(fd, bytes))
                        write_all(fd, bytes);
                close(fd);
        }
}

static void drive(const char *own, const char *address, int port, size_t bytes, double seconds)
{
        int fd = no_delay(connect_from(own, address, port));
        double start = 0, took;
        unsigned long n = 0;

        do {
                if (n == WARM_UP)                       /* caches, windows, and both sides awake */
                        start = now_s();
                write_all(fd, bytes);
                if (!read_all(fd, bytes))
                        die("end of stream");
                n++;
                took = now_s() - start;
        } while (n <= WARM_UP || took < seconds);
        close(fd);
        n -= WARM_UP;
        printf("{\"rtt_us\": %.3f, \"round_trips\": %lu}\n", took * 1e6 / (double)n, n);
}

int main(int argc, char **argv)
{
        bool server = argc == 5 && strcmp(argv[1], "server") == 0, client = argc >= 6 && argc <= 7 && strcmp(argv[1], "client") == 0;
        size_t bytes;
        int port;

        if (!server && !client) {
                fprintf(stderr, "usage: rtt server PORT ADDRESS BYTES | client PORT ADDRESS BYTES SECONDS [FROM]\n");
                return 2;
        }
        port = (int)number_arg(argv[2], 1, 65535);
        bytes = (size_t)number_arg(argv[4], 1, BYTES_MAX);
        if (server)
                serve(argv[3], port, bytes);
        drive(argc == 7 ? argv[6] : NULL, argv[3], port, bytes, (double)number_arg(argv[5], 1, 3600));
        return 0;
}
