/*
 * Round trip over TCP, or UDP: messages there and back, one after the other.
 *
 *   rtt server PORT ADDRESS BYTES                 serves one client after the other, until it is
 *                                                 killed
 *   rtt client PORT ADDRESS BYTES SECONDS [FROM]  prints one line of JSON
 *   rtt udp-server ..., rtt udp-client ...        the same by datagrams
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

/* ---- datagrams: one that is lost is sent again after a second, and spoils one sample ---- */

static int datagrams(const char *own, int port)
{
        struct sockaddr_in sa = end_of(own != NULL ? own : "0.0.0.0", port);
        int fd = socket(AF_INET, SOCK_DGRAM, 0);

        if (fd < 0 || bind(fd, (struct sockaddr *)&sa, sizeof sa) != 0)
                die("bind");
        return fd;
}

static _Noreturn void serve_datagrams(const char *address, int port)
{
        int fd = datagrams(address, port);

        for (;;) {
                struct sockaddr_in from;
                socklen_t len = sizeof from;
                ssize_t n =
                        recvfrom(fd, message, sizeof message, 0, (struct sockaddr *)&from, &len);

                if (n < 0 || sendto(fd, message, (size_t)n, 0, (struct sockaddr *)&from, len) != n)
                        die("datagram");
        }
}

static int call_datagrams(const char *own, const char *address, int port)
{
        struct sockaddr_in sa = end_of(address, port);
        struct timeval second = {1, 0};
        int fd = datagrams(own, 0);

        if (connect(fd, (struct sockaddr *)&sa, sizeof sa) != 0 ||
            setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &second, sizeof second) != 0)
                die("connect");
        return fd;
}

static void exchange_datagram(int fd, size_t bytes)
{
        ssize_t n;

        do {
                if (send(fd, message, bytes, 0) != (ssize_t)bytes && errno != ECONNREFUSED)
                        die("send");
                n = recv(fd, message, sizeof message, 0);
                if (n < 0 && errno != EAGAIN && errno != ECONNREFUSED)
                        die("recv");
        } while (n != (ssize_t)bytes);
}

/* ---- the stream ---- */

static void exchange(int fd, size_t bytes)
{
        write_all(fd, bytes);
        if (!read_all(fd, bytes))
                die("end of stream");
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

static void drive(int fd, void (*once)(int, size_t), size_t bytes, double seconds)
{
        double start = 0, took;
        unsigned long n = 0;

        do {
                if (n == WARM_UP) /* caches, windows, and both sides awake */
                        start = now_s();
                once(fd, bytes);
                n++;
                took = now_s() - start;
        } while (n <= WARM_UP || took < seconds);
        close(fd);
        n -= WARM_UP;
        printf("{\"rtt_us\": %.3f, \"round_trips\": %lu}\n", took * 1e6 / (double)n, n);
}

int main(int argc, char **argv)
{
        bool udp = argc > 1 && strncmp(argv[1], "udp-", 4) == 0;
        const char *side = argc > 1 ? argv[1] + (udp ? 4 : 0) : "";
        bool server = argc == 5 && strcmp(side, "server") == 0,
             client = argc >= 6 && argc <= 7 && strcmp(side, "client") == 0;
        const char *own = argc == 7 ? argv[6] : NULL;
        size_t bytes;
        int port, fd;

        if (!server && !client) {
                fprintf(stderr, "usage: rtt [udp-]server PORT ADDRESS BYTES | [udp-]client PORT "
                                "ADDRESS BYTES SECONDS [FROM]\n");
                return 2;
        }
        port = (int)number_arg(argv[2], 1, 65535);
        bytes = (size_t)number_arg(argv[4], 1, BYTES_MAX);
        if (server && udp)
                serve_datagrams(argv[3], port);
        if (server)
                serve(argv[3], port, bytes);
        fd = udp ? call_datagrams(own, argv[3], port) : no_delay(connect_from(own, argv[3], port));
        drive(fd, udp ? exchange_datagram : exchange, bytes, (double)number_arg(argv[5], 1, 3600));
        return 0;
}
