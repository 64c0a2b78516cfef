#include "tests/own_port.h"

#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define FIRST 12000u
#define PORTS 20000u

static void chosen_by_the_kernel(unsigned *low, unsigned *high)
{
        FILE *f = fopen("/proc/sys/net/ipv4/ip_local_port_range", "re");

        *low = 32768;
        *high = 60999;
        if (f != NULL && fscanf(f, "%u %u", low, high) != 2)
                abort();
        if (f != NULL)
                fclose(f);
}

/* A name that is taken stands for the port, in this network namespace, until the last process that
 * has the descriptor ends. */
static int claimed(unsigned port)
{
        struct sockaddr_un un = {.sun_family = AF_UNIX};
        int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        int n = snprintf(un.sun_path + 1, sizeof un.sun_path - 1, "unet-test-port-%u", port);

        if (fd < 0 ||
            bind(fd, (struct sockaddr *)&un,
                 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)) == 0)
                return fd;
        close(fd);
        return -1;
}

static int is_free(unsigned port, int type)
{
        struct sockaddr_in sin = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
        int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0),
            r = bind(fd, (struct sockaddr *)&sin, sizeof sin);

        close(fd);
        return r == 0;
}

uint16_t own_port(void)
{
        static unsigned next;
        unsigned low, high;

        chosen_by_the_kernel(&low, &high);
        if (next == 0)
                next = (unsigned)getpid() * 16;
        for (unsigned tries = 0; tries < PORTS; tries++) {
                unsigned port = FIRST + next++ % PORTS;
                int fd;

                if ((port >= low && port <= high) || (fd = claimed(port)) < 0)
                        continue;
                if (is_free(port, SOCK_STREAM) && is_free(port, SOCK_DGRAM))
                        return (uint16_t)port;
                close(fd);
        }
        fprintf(stderr, "no port is free from %u on outside %u-%u\n", FIRST, low, high);
        abort();
}
