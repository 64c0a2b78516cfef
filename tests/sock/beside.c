/*
 * What a round trip of one connection costs beside peers that say nothing: both its ends are in
 * this program, so that each does exactly what it must. callgrind counts what round_trips() does
 * (beside_test.py).
 *
 *   sock_beside PEERS TIMES
 */
#include <arpa/inet.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sock/attach/ustack.h"
#include "unet/sock.h"

#define PEERS_MOST 1000

extern char **environ;
static pid_t peer[PEERS_MOST];
static int peer_sock[PEERS_MOST], one, other;

static void must(bool right, const char *what)
{
        if (right)
                return;
        perror(what);
        exit(1);
}

static int connect_to(uint16_t port)
{
        struct sockaddr_in sa = {.sin_family = AF_INET,
                                 .sin_port = htons(port),
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        int sock = unet_socket(AF_INET, SOCK_STREAM, 0);

        must(unet_connect(sock, (struct sockaddr *)&sa, sizeof sa) == 0, "connect");
        return sock;
}

/* A program of its own: there until its connection ends. */
static int be_peer(uint16_t port)
{
        int sock = connect_to(port);

        return unet_recv(sock, &(char){0}, 1, 0) == 0 ? 0 : 1;
}

static void begin_peers(const char *self, int l, uint32_t n)
{
        struct sockaddr_in sa;
        socklen_t len = sizeof sa;
        char port[16];
        char *argv[] = {(char *)(uintptr_t)self, (char[]){"peer"}, port, NULL};

        must(unet_getsockname(l, (struct sockaddr *)&sa, &len) == 0, "getsockname");
        snprintf(port, sizeof port, "%u", ntohs(sa.sin_port));
        for (uint32_t i = 0; i < n; i++) {
                must(posix_spawn(&peer[i], self, NULL, NULL, argv, environ) == 0, "spawn");
                peer_sock[i] = unet_accept(l, NULL, NULL);
                must(peer_sock[i] >= 0, "accept");
        }
        one = connect_to(ntohs(sa.sin_port));
        other = unet_accept(l, NULL, NULL);
        must(other >= 0, "accept");
}

__attribute__((noinline)) static void round_trips(uint32_t n)
{
        char byte = 'x';

        for (uint32_t i = 0; i < n; i++) {
                must(unet_send(one, &byte, 1, 0) == 1 && unet_recv(other, &byte, 1, 0) == 1,
                     "there");
                must(unet_send(other, &byte, 1, 0) == 1 && unet_recv(one, &byte, 1, 0) == 1,
                     "back");
        }
}

static uint32_t looked_at(void)
{
        int err;
        const struct stack_state *st = ustack_mine(&err)->s.st;
        uint32_t n = 0;

        for (uint32_t k = 0; k < STACK_CHANS; k++)
                n += (uint32_t)(atomic_load(&st->hot[k / 64]) >> k % 64 & 1);
        return n;
}

/* Whoever says nothing is not looked at any more. */
static void become_quiet(void)
{
        char byte = 'x';

        do {
                must(unet_send(one, &byte, 1, 0) == 1 && unet_recv(other, &byte, 1, 0) == 1,
                     "there");
                must(unet_send(other, &byte, 1, 0) == 1 && unet_recv(one, &byte, 1, 0) == 1,
                     "back");
                usleep(10000);
        } while (looked_at() > 2); /* its own, at both ends */
}

int main(int argc, char **argv)
{
        struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        uint32_t peers, l;

        if (argc == 3 && strcmp(argv[1], "peer") == 0)
                return be_peer((uint16_t)atoi(argv[2]));
        must(argc == 3, "usage");
        peers = (uint32_t)atoi(argv[1]);
        must(peers <= PEERS_MOST, "peers");
        l = (uint32_t)unet_socket(AF_INET, SOCK_STREAM, 0);
        must(unet_bind((int)l, (struct sockaddr *)&sa, sizeof sa) == 0, "bind");
        must(unet_listen((int)l, 1000) == 0, "listen");
        begin_peers(argv[0], (int)l, peers);
        become_quiet();
        round_trips((uint32_t)atoi(argv[2]));
        for (uint32_t i = 0; i < peers; i++)
                unet_close(peer_sock[i]);
        for (uint32_t i = 0; i < peers; i++)
                waitpid(peer[i], NULL, 0);
        printf("looked at %u channels of %u peers\n", looked_at(), peers);
        return 0;
}
