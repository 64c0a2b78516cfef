/*
 * native serve PORT NAME ROUNDS | native call ADDR PORT NAME ROUNDS: by <unet/sock.h>, over TCP and
 * UDP at once. Each message says who sends it, how many there were before, and over what; whoever
 * gets one that is not his partner's fails. Servers serve one; who has called ends when he is told
 * so by a line or the end of his input.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <unet/sock.h>

#define BYTES   3000u /* of a message; less than a packet's */
#define TRIES   20
#define WAIT_MS 1000 /* for a datagram, which may be lost */

struct message {
        char from[16], over[4];
        unsigned number;
        char rest[BYTES];
};

static const char *me;

static void fail(const char *what)
{
        fprintf(stderr, "native %s: ", me);
        perror(what);
        exit(1);
}

static struct message message(const char *over, unsigned number)
{
        struct message m;

        memset(&m, me[0], sizeof m);
        snprintf(m.from, sizeof m.from, "%s", me);
        snprintf(m.over, sizeof m.over, "%s", over);
        m.number = number;
        return m;
}

/* From my partner, whose name is mine, and whole. */
static void check(const struct message *m, const char *over, unsigned number)
{
        const struct message want = message(over, number);

        if (memcmp(m, &want, sizeof want) == 0)
                return;
        fprintf(stderr, "native %s: got %.16s's message %u over %.4s\n", me, m->from, m->number,
                m->over);
        exit(1);
}

static int sock(int type)
{
        int s = unet_socket(AF_INET, type, 0);

        if (s < 0)
                fail("socket");
        return s;
}

static struct sockaddr_in at(const char *addr, const char *port)
{
        struct sockaddr_in sin = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};

        if (inet_pton(AF_INET, addr, &sin.sin_addr) != 1)
                exit(2);
        return sin;
}

static void put(int s, unsigned number)
{
        struct message m = message("tcp", number);

        for (size_t done = 0; done < sizeof m;) {
                ssize_t n = unet_send(s, (char *)&m + done, sizeof m - done, 0);
                if (n <= 0)
                        fail("send");
                done += (size_t)n;
        }
}

static void get(int s, unsigned number)
{
        struct message m;

        for (size_t done = 0; done < sizeof m;) {
                ssize_t n = unet_recv(s, (char *)&m + done, sizeof m - done, 0);
                if (n <= 0)
                        fail("recv");
                done += (size_t)n;
        }
        check(&m, "tcp", number);
}

/* Datagrams that came late are answers to what was asked before. */
static int ask(int s, unsigned number)
{
        struct unet_pollfd p = {.sock = s, .fd = -1, .events = POLLIN};
        struct message m = message("udp", number);

        for (int tries = 0; tries < TRIES; tries++) {
                unet_send(s, &m, sizeof m, 0);
                while (unet_poll(&p, 1, WAIT_MS) > 0) {
                        struct message got;
                        if (unet_recv(s, &got, sizeof got, 0) != sizeof got)
                                fail("a datagram");
                        check(&got, "udp", got.number);
                        if (got.number == number)
                                return 0;
                }
        }
        return -1;
}

static void call(const char *addr, const char *port, unsigned rounds)
{
        struct sockaddr_in to = at(addr, port);
        int t = sock(SOCK_STREAM), u = sock(SOCK_DGRAM);

        if (unet_connect(t, (struct sockaddr *)&to, sizeof to) != 0 ||
            unet_connect(u, (struct sockaddr *)&to, sizeof to) != 0)
                fail("connect");
        for (unsigned i = 0; i < rounds; i++) {
                put(t, i);
                if (ask(u, i) != 0)
                        fail("no answer");
                get(t, i);
        }
        printf("done\n");
        fflush(stdout);
        getchar(); /* what its stack has counted may be looked at */
        unet_close(t);
}

static void answer_datagram(int u)
{
        struct sockaddr_in from;
        socklen_t len = sizeof from;
        struct message m;

        if (unet_recvfrom(u, &m, sizeof m, 0, (struct sockaddr *)&from, &len) != sizeof m)
                fail("a datagram");
        check(&m, "udp", m.number);
        unet_sendto(u, &m, sizeof m, 0, (struct sockaddr *)&from, len);
}

static void serve(const char *port, unsigned rounds)
{
        struct sockaddr_in any = at("0.0.0.0", port);
        int l = sock(SOCK_STREAM), u = sock(SOCK_DGRAM), c;
        unsigned i = 0;

        if (unet_bind(l, (struct sockaddr *)&any, sizeof any) != 0 || unet_listen(l, 4) != 0 ||
            unet_bind(u, (struct sockaddr *)&any, sizeof any) != 0)
                fail("bind");
        printf("ready\n");
        fflush(stdout);
        c = unet_accept(l, NULL, NULL);
        if (c < 0)
                fail("accept");
        for (;;) {
                struct unet_pollfd p[2] = {
                        {.sock = c, .fd = -1, .events = i < rounds ? POLLIN : POLLRDHUP},
                        {.sock = u, .fd = -1, .events = POLLIN}};

                if (unet_poll(p, 2, -1) < 0)
                        fail("poll");
                if (p[1].revents & POLLIN)
                        answer_datagram(u);
                if (p[0].revents != 0 && i == rounds)
                        return; /* the partner has left */
                if (p[0].revents & POLLIN) {
                        get(c, i);
                        put(c, i++);
                }
        }
}

int main(int argc, char **argv)
{
        if (argc == 5 && strcmp(argv[1], "serve") == 0) {
                me = argv[3];
                serve(argv[2], (unsigned)atoi(argv[4]));
                printf("done\n");
        } else if (argc == 6 && strcmp(argv[1], "call") == 0) {
                me = argv[4];
                call(argv[2], argv[3], (unsigned)atoi(argv[5]));
        } else {
                return 2;
        }
        return 0;
}
