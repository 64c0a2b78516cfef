/*
 * Holds many connections between two processes, so that what each costs can be read from outside.
 *
 *   many_conns server PORT N  accepts N, answers one byte on each, then blocks reading the first
 *   many_conns client PORT N  prints "connected 1" when one stands, reads a line, opens the rest,
 *                             prints "connected N", then blocks reading the first until killed
 *
 * Both end up blocked in recv(): with N = 1 this is the idle pair, with N = 10,000 the memory test.
 */
#include <sys/resource.h>

#include "bench/plain.h"

static void raise_descriptor_limit(long n)
{
        struct rlimit lim;

        if (getrlimit(RLIMIT_NOFILE, &lim) != 0)
                die("getrlimit");
        lim.rlim_cur = lim.rlim_max;
        if (setrlimit(RLIMIT_NOFILE, &lim) != 0)
                die("setrlimit");
        if (lim.rlim_max < (rlim_t)n + 100) {
                fprintf(stderr, "the limit of %lu descriptors is too low for %ld connections\n",
                        (unsigned long)lim.rlim_max, n);
                exit(1);
        }
}

static void block_on(int fd)
{
        char byte;

        while (recv(fd, &byte, 1, 0) > 0)
                continue;
}

static void serve(int port, long n)
{
        int listener = listen_on(LOOPBACK, port, 512), first = -1;

        for (long i = 0; i < n; i++) {
                int fd = accept(listener, NULL, NULL);
                char byte;

                if (fd < 0)
                        die("accept");
                if (read(fd, &byte, 1) != 1 || write(fd, &byte, 1) != 1)
                        die("serve");
                if (i == 0)
                        first = fd;
        }
        block_on(first);
}

static int exchange(int port)
{
        int fd = connect_to(LOOPBACK, port);
        char byte = 'x';

        if (write(fd, &byte, 1) != 1 || read(fd, &byte, 1) != 1)
                die("exchange");
        return fd;
}

static void drive(int port, long n)
{
        char line[16];
        int first = exchange(port);

        printf("connected 1\n");
        fflush(stdout);
        if (n > 1) {
                if (!fgets(line, sizeof line, stdin))
                        return;
                for (long i = 1; i < n; i++)
                        exchange(port);
                printf("connected %ld\n", n);
                fflush(stdout);
        }
        block_on(first);
}

int main(int argc, char **argv)
{
        if (argc != 4 || (strcmp(argv[1], "server") != 0 && strcmp(argv[1], "client") != 0)) {
                fprintf(stderr, "usage: many_conns server|client PORT N\n");
                return 2;
        }
        int port = (int)number_arg(argv[2], 1, 65535);
        long n = number_arg(argv[3], 1, 1000000);

        raise_descriptor_limit(n);
        if (argv[1][0] == 's')
                serve(port, n);
        else
                drive(port, n);
        return 0;
}
