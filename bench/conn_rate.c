/*
 * Connections a second: connect, one byte each way, close; in sequence, from one client to one server.
 *
 *      conn_rate server PORT [ADDRESS]                     serves until a client sends 'q'
 *      conn_rate client PORT SECONDS [ADDRESS [FROM]]      prints one line of JSON, then stops the server
 *
 * ADDRESS is the server's, 127.0.0.1 if not said; FROM is one of the client's own.
 */
#include "bench/plain.h"

static void serve(const char *address, int port)
{
        int listener = listen_on(address, port, 128);
        char byte = 0;

        while (byte != 'q') {
                int fd = accept(listener, NULL, NULL);

                if (fd < 0)
                        die("accept");
                if (read(fd, &byte, 1) != 1 || write(fd, &byte, 1) != 1)
                        die("serve");
                if (read(fd, &(char){0}, 1) != 0)       /* the client closes first */
                        die("end of stream");
                close(fd);
        }
        close(listener);
}

static const char *own;                 /* NULL: whichever */

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
        unsigned long n = 0;

        for (int i = 0; i < 100; i++)                   /* caches, channels and the server's first accept */
                one_connection(address, port, 'w');
        start = now_s();
        do {
                one_connection(address, port, 'x');
                n++;
                took = now_s() - start;
        } while (took < seconds);
        one_connection(address, port, 'q');
        printf("{\"connections\": %lu, \"seconds\": %.6f, \"rate\": %.1f}\n", n, took, (double)n / took);
}

int main(int argc, char **argv)
{
        if ((argc == 3 || argc == 4) && strcmp(argv[1], "server") == 0) {
                serve(argc == 4 ? argv[3] : LOOPBACK, (int)number_arg(argv[2], 1, 65535));
        } else if (argc >= 4 && argc <= 6 && strcmp(argv[1], "client") == 0) {
                own = argc == 6 ? argv[5] : NULL;
                drive(argc >= 5 ? argv[4] : LOOPBACK, (int)number_arg(argv[2], 1, 65535), (double)number_arg(argv[3], 1, 3600));
        } else {
                fprintf(stderr, "usage: conn_rate server PORT [ADDRESS] | client PORT SECONDS [ADDRESS [FROM]]\n");
                return 2;
        }
        return 0;
}
