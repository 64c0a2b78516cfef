/*
 * Echo over the native API: a server that serves many connections with a poll set, and a client.
 *
 *      echo_sock -s [-p PORT]                  serves until it is killed
 *      echo_sock [-p PORT] [-n COUNT] TEXT     sends TEXT and prints what comes back
 *
 * Both run on one host and need nothing else: unetd is started at the first socket.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <unet/sock.h>

#define LISTENER UINT64_MAX /* data of the listener in the set; others have their number */

static void die(const char *what)
{
        perror(what);
        exit(1);
}

static struct sockaddr_in address(const char *host, int port)
{
        struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};

        inet_pton(AF_INET, host, &a.sin_addr);
        return a;
}

/* ---- server ---- */

static void welcome(struct unet_pollset *set, int listener)
{
        int s = unet_accept4(listener, NULL, NULL, SOCK_NONBLOCK);

        if (s >= 0 && unet_pollset_add(set, s, POLLIN, (uint64_t)s) != 0)
                unet_close(s);
}

/* What a slow client does not take at once is waited for: this server is an example. */
static bool echo(int s)
{
        char buf[16384];
        ssize_t n = unet_recv(s, buf, sizeof buf, 0);

        if (n < 0)
                return errno == EAGAIN;
        unet_set_nonblock(s, false);
        if (n > 0 && unet_send(s, buf, (size_t)n, 0) < 0)
                return false;
        unet_set_nonblock(s, true);
        return n > 0;
}

static void serve(int port)
{
        struct sockaddr_in at = address("0.0.0.0", port);
        int listener = unet_socket(AF_INET, SOCK_STREAM, 0);
        struct unet_pollset *set = unet_pollset_create();
        struct unet_event ev[64];

        if (listener < 0 || set == NULL)
                die("socket");
        if (unet_bind(listener, (struct sockaddr *)&at, sizeof at) != 0 ||
            unet_listen(listener, 128) != 0)
                die("bind");
        unet_pollset_add(set, listener, POLLIN, LISTENER);
        for (;;) {
                int n = unet_pollset_wait(set, ev, 64, -1);
                for (int i = 0; i < n; i++) {
                        if (ev[i].data == LISTENER)
                                welcome(set, listener);
                        else if (!echo((int)ev[i].data))
                                unet_close((int)ev[i].data);
                }
        }
}

/* ---- client ---- */

static void once(int s, const char *text, char *back)
{
        size_t n = strlen(text);

        if (unet_send(s, text, n, 0) != (ssize_t)n)
                die("send");
        if (unet_recv(s, back, n, MSG_WAITALL) != (ssize_t)n)
                die("recv");
}

static int ask(int port, const char *text, long count)
{
        struct sockaddr_in to = address("127.0.0.1", port);
        int s = unet_socket(AF_INET, SOCK_STREAM, 0);
        char *back = calloc(1, strlen(text) + 1);

        if (s < 0 || back == NULL)
                die("socket");
        if (unet_connect(s, (struct sockaddr *)&to, sizeof to) != 0)
                die("connect");
        for (long i = 0; i < count; i++)
                once(s, text, back);
        puts(back);
        unet_close(s);
        free(back);
        return 0;
}

int main(int argc, char **argv)
{
        bool server = false;
        int port = 7007, c;
        long count = 1;

        while ((c = getopt(argc, argv, "sp:n:")) != -1) {
                if (c == 's')
                        server = true;
                else if (c == 'p')
                        port = atoi(optarg);
                else if (c == 'n')
                        count = atol(optarg);
                else
                        return 2;
        }
        if (server)
                serve(port);
        if (optind + 1 != argc) {
                fprintf(stderr, "usage: %s -s [-p PORT] | %s [-p PORT] [-n COUNT] TEXT\n", argv[0],
                        argv[0]);
                return 2;
        }
        return ask(port, argv[optind], count);
}
