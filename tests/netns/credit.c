/*
 * A receiver that grants piece by piece, for credit_test.py:
 *
 *      credit ADDRESS PORT GRANT...
 *
 * Takes one connection, by credit of nothing. Grants each GRANT, waits until so much has come, and
 * for HOLD_MS more, in which nothing may; prints the grant and what came; reads it. Then it closes,
 * whatever else the sender has.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "unet/flow.h"

/* Two of the sender's retransmission timeouts: it probes, and repeats itself. */
#define HOLD_MS 400

static void die(const char *what)
{
        perror(what);
        exit(1);
}

static uint32_t unread(int s)
{
        struct unet_feedback f;

        if (unet_feedback(s, &f) != 0)
                die("feedback");
        return f.unread;
}

static void takes(int s, uint32_t n)
{
        static char buf[65536];

        while (n > 0) {
                ssize_t r = unet_recv(s, buf, n < sizeof buf ? n : sizeof buf, 0);
                if (r <= 0)
                        die("recv");
                n -= (uint32_t)r;
        }
}

static void grants(int s, uint32_t n)
{
        uint32_t came;

        if (unet_window_grant(s, n) != 0)
                die("grant");
        while (unread(s) < n)
                usleep(1000);
        usleep(HOLD_MS * 1000);
        came = unread(s);
        printf("%u %u\n", n, came);
        takes(s, came);
}

int main(int argc, char **argv)
{
        struct unet_window w = {.size = sizeof w, .mode = UNET_WINDOW_CREDIT};
        struct sockaddr_in at = {.sin_family = AF_INET};
        int l = unet_socket(AF_INET, SOCK_STREAM, 0), s;

        if (argc < 4)
                return 2;
        inet_pton(AF_INET, argv[1], &at.sin_addr);
        at.sin_port = htons((uint16_t)atoi(argv[2]));
        if (l < 0 || unet_window_set(l, &w) != 0)
                die("socket");
        if (unet_bind(l, (struct sockaddr *)&at, sizeof at) != 0 || unet_listen(l, 1) != 0)
                die("bind");
        s = unet_accept(l, NULL, NULL);
        if (s < 0)
                die("accept");
        usleep(HOLD_MS * 1000);
        printf("0 %u\n", unread(s));
        for (int i = 3; i < argc; i++)
                grants(s, (uint32_t)strtoul(argv[i], NULL, 0));
        unet_close(s);
        unet_close(l);
        return 0;
}
