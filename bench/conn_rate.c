/*
 * Connections a second: connect, one byte each way, close; in sequence, from one client to one
 * server.
 *
 *   conn_rate server PORT[/N] [ADDRESS]                 serves until a client sends 'q'
 *   conn_rate client PORT[/N] SECONDS [ADDRESS [FROM]]  prints one line of JSON, then stops the
 *                                                       server
 *
 * ADDRESS is the server's, 127.0.0.1 if not said; FROM is one of the client's own. The server
 * listens on PORT and the N - 1 above it (16 in all, if not said; librspreload.so dies of so many),
 * and connections take turns: who closes first keeps the pair of ports for a minute, and where
 * Linux has used half of the 28,000 that it takes from for one port of a server's, it searches
 * longer than a connection takes.
 */
#include "bench/plain.h"

#define PORTS 16  /* most */
#define WARM  160 /* connections before: caches, channels and the server's first accepts */

static int ports = PORTS;

/* PORT[/N] */
static int port_arg(char *s)
{
        char *slash = strchr(s, '/');

        if (slash != NULL) {
                *slash = '\0';
                ports = (int)number_arg(slash + 1, 1, PORTS);
        }
        return (int)number_arg(s, 1, 65536 - PORTS);
}

static void serve(const char *address, int port)
{
        int listener[PORTS];
        char byte = 0;

        for (int i = ports; i-- > 0;) /* who waits until PORT listens finds all of them */
                listener[i] = listen_on(address, port + i, 128);
        for (int n = 0; byte != 'q'; n = (n + 1) % ports) {
                int fd = accept(listener[n], NULL, NULL);

                if (fd < 0)
                        die("accept");
                if (read(fd, &byte, 1) != 1 || write(fd, &byte, 1) != 1)
                        die("serve");
                if (read(fd, &(char){0}, 1) != 0) /* the client closes first */
                        die("end of stream");
                close(fd);
        }
        for (int i = 0; i < ports; i++)
                close(listener[i]);
}

static const char *own; /* NULL: whichever */

static void one_connection(const char *address, int port, char byte)
{
        int fd = connect_from(own, address, port);
        char back;

        if (write(fd, &byte, 1) != 1 || read(fd, &back, 1) != 1 || back != byte)
                die("exchange");
        close(fd);
}

static void drive(const char *address, int port, double seconds)
{
        double start, took;
        unsigned long n;

        for (n = 0; n < WARM; n++)
                one_connection(address, port + (int)(n % (unsigned long)ports), 'w');
        start = now_s();
        do {
                one_connection(address, port + (int)(n % (unsigned long)ports), 'x');
                n++;
                took = now_s() - start;
        } while (took < seconds);
        one_connection(address, port + (int)(n % (unsigned long)ports), 'q');
        n -= WARM;
        printf("{\"connections\": %lu, \"seconds\": %.6f, \"rate\": %.1f}\n", n, took,
               (double)n / took);
}

int main(int argc, char **argv)
{
        if ((argc == 3 || argc == 4) && strcmp(argv[1], "server") == 0) {
                serve(argc == 4 ? argv[3] : LOOPBACK, port_arg(argv[2]));
        } else if (argc >= 4 && argc <= 6 && strcmp(argv[1], "client") == 0) {
                own = argc == 6 ? argv[5] : NULL;
                drive(argc >= 5 ? argv[4] : LOOPBACK, port_arg(argv[2]),
                      (double)number_arg(argv[3], 1, 3600));
        } else {
                fprintf(stderr, "usage: conn_rate server PORT[/N] [ADDRESS] | client PORT[/N] "
                                "SECONDS [ADDRESS [FROM]]\n");
                return 2;
        }
        return 0;
}
