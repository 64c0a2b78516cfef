/*
 * What a grant for each message costs its receiver and its sender: both ends of the connection are
 * in this program, so that each does exactly what it must. callgrind counts what counted() does
 * (granted_test.py).
 *
 *   sock_granted BYTES TIMES [EVERY]        a grant for so many messages
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>

#include "unet/flow.h"

#define MOST    (1u << 20)
#define WARM_UP 200

static int one, other;
static char data[MOST];

static void must(int right, const char *what)
{
        if (right)
                return;
        perror(what);
        exit(1);
}

/* By credit so much is granted ahead; 0: by a buffer that sizes itself. */
static void connects(uint32_t ahead)
{
        struct unet_window w = {.size = sizeof w,
                                .mode = ahead != 0 ? UNET_WINDOW_CREDIT : UNET_WINDOW_AUTO,
                                .bytes = ahead,
                                .most = 8u << 20};
        struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t len = sizeof sa;
        int l = unet_socket(AF_INET, SOCK_STREAM, 0);

        must(unet_window_set(l, &w) == 0, "window");
        must(unet_bind(l, (struct sockaddr *)&sa, sizeof sa) == 0 && unet_listen(l, 1) == 0,
             "listen");
        must(unet_getsockname(l, (struct sockaddr *)&sa, &len) == 0, "getsockname");
        one = unet_socket(AF_INET, SOCK_STREAM, 0);
        must(unet_connect(one, (struct sockaddr *)&sa, sizeof sa) == 0, "connect");
        other = unet_accept(l, NULL, NULL);
        must(other >= 0, "accept");
}

static void messages(uint32_t bytes, uint32_t n, uint32_t every)
{
        for (uint32_t i = 0; i < n; i++) {
                must(unet_send(one, data, bytes, 0) == (ssize_t)bytes, "send");
                must(unet_recv(other, data, bytes, MSG_WAITALL) == (ssize_t)bytes, "recv");
                must(every == 0 || i % every != 0 || unet_window_grant(other, every * bytes) == 0,
                     "grant");
        }
}

__attribute__((noinline)) static void counted(uint32_t bytes, uint32_t n, uint32_t every)
{
        messages(bytes, n, every);
}

int main(int argc, char **argv)
{
        uint32_t bytes = argc > 2 ? (uint32_t)strtoul(argv[1], NULL, 0) : 0,
                 every = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 0) : 0;

        must(bytes != 0 && bytes <= MOST, "usage");
        connects(2 * every * bytes);
        messages(bytes, WARM_UP, every);
        counted(bytes, (uint32_t)strtoul(argv[2], NULL, 0), every);
        unet_close(one);
        unet_close(other);
        return 0;
}
