/*
 * One message each way on a connection that nothing has touched for long, and on one that is in
 * use; both ends in this program. bench/cold_lines runs it under valgrind, which traces what memory
 * it touches, and finds the phases by the stores to `mark`.
 *
 *   cold_lines_native CONNECTIONS
 */
#include <arpa/inet.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "unet/sock.h"

#define MOST 1000u
#define WARM 50u /* round trips on the connection that is in use */

static int client[MOST], server[MOST];
static volatile uint64_t mark;

static void must(bool right, const char *what)
{
        if (right)
                return;
        perror(what);
        exit(1);
}

static void connect_all(uint32_t n)
{
        struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t len = sizeof sa;
        int l = unet_socket(AF_INET, SOCK_STREAM, 0);

        must(unet_bind(l, (struct sockaddr *)&sa, len) == 0 && unet_listen(l, 64) == 0 &&
                     unet_getsockname(l, (struct sockaddr *)&sa, &len) == 0,
             "listen");
        for (uint32_t i = 0; i < n; i++) {
                client[i] = unet_socket(AF_INET, SOCK_STREAM, 0);
                must(unet_connect(client[i], (struct sockaddr *)&sa, sizeof sa) == 0, "connect");
                server[i] = unet_accept(l, NULL, NULL);
                must(server[i] >= 0, "accept");
        }
}

/* Four calls, each a phase, and one of what lies between them. */
static void round_trip(uint32_t i)
{
        char byte = 'x';
        bool right;

        mark = 1;
        right = unet_send(client[i], &byte, 1, 0) == 1;
        mark = 2;
        right &= unet_recv(server[i], &byte, 1, 0) == 1;
        mark = 3;
        right &= unet_send(server[i], &byte, 1, 0) == 1;
        mark = 4;
        right &= unet_recv(client[i], &byte, 1, 0) == 1;
        mark = 5;
        must(right, "round trip");
}

int main(int argc, char **argv)
{
        uint32_t n = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 0) : 0;

        if (n < 4 || n > MOST) {
                fprintf(stderr, "usage: cold_lines_native CONNECTIONS (4 to %u)\n", MOST);
                return 2;
        }
        connect_all(n);
        for (uint32_t i = 0; i < n; i++) /* none is at its beginning */
                round_trip(i);
        usleep(100000); /* what is put off is done */
        for (uint32_t i = 0; i < WARM; i++)
                round_trip(0);
        printf("mark %p\n", (void *)(uintptr_t)&mark);
        fflush(stdout);
        for (uint32_t i = 1; i < n; i++)
                round_trip(i);
        return 0;
}
