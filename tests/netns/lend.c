/*
 * Loans and reservations between two hosts (lend_test.py, tests/vm/settings.py):
 *
 *      lend serve PORT | lend call ADDRESS PORT
 *
 * The caller writes half of BYTES into reserved frames, and sends half from memory of its own. That
 * is copied here, so it writes over it at once. The server borrows what comes and returns nothing,
 * until its window is shut; a second connection, to the next port, goes on meanwhile. Then it
 * returns all in any order, goes on so to the end, and compares every byte.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "unet/flow.h"

#define BYTES  (4u << 20)
#define WINDOW 262144u
#define SHUT   9000u /* less than any segment and a half: the sender may wait for more */
#define MANY   4096
#define TRIPS  200
#define TRIES  200 /* of a connection, to a server that begins */

static void must(int right, const char *what)
{
        if (right)
                return;
        perror(what);
        exit(1);
}

static uint8_t byte_at(uint64_t at)
{
        return (uint8_t)(at * 31 + at / 251);
}

static uint64_t rnd(void)
{
        static uint64_t state = 1;

        state ^= state << 13;
        state ^= state >> 7;
        return state ^= state << 17;
}

/* ---- the caller ---- */

static int calls(struct sockaddr_in at, int port)
{
        int s = unet_socket(AF_INET, SOCK_STREAM, 0), tries = 0;

        at.sin_port = htons((uint16_t)port);
        while (unet_connect(s, (struct sockaddr *)&at, sizeof at) != 0) {
                must(errno == ECONNREFUSED && tries++ < TRIES, "connect");
                unet_close(s);
                usleep(50000);
                s = unet_socket(AF_INET, SOCK_STREAM, 0);
        }
        return s;
}

static void fills(struct iovec *v, int n, uint64_t at)
{
        for (int i = 0; i < n; i++)
                for (size_t k = 0; k < v[i].iov_len; k++)
                        ((uint8_t *)v[i].iov_base)[k] = byte_at(at++);
}

static void sends_from_memory(int s, uint64_t at, uint64_t end)
{
        uint64_t cookie = 0;
        struct iovec v;

        v.iov_len = 100000;
        must(unet_memory_new(v.iov_len, &v.iov_base) == 0, "memory");
        for (; at < end; at += v.iov_len) {
                v.iov_len = end - at < v.iov_len ? end - at : v.iov_len;
                fills(&v, 1, at);
                must(unet_memory_send(s, v.iov_base, v.iov_len, 0, at) == (ssize_t)v.iov_len,
                     "send");
                must(unet_memory_reap(s, &cookie, 1) == 1 && cookie == at, "cookie");
                memset(v.iov_base, 0, v.iov_len);
        }
        must(unet_memory_free(v.iov_base) == 0, "free");
}

static void writes_in_place(int s, uint64_t end)
{
        struct iovec v[UNET_RESERVE_MOST];

        for (uint64_t at = 0; at < end;) {
                size_t sum = 0;
                int n = unet_send_reserve(s, end - at, v, UNET_RESERVE_MOST, 0);

                must(n > 0, "reserve");
                for (int i = 0; i < n; i++)
                        sum += v[i].iov_len;
                fills(v, n, at);
                must(unet_send_commit(s, sum, 0) == (ssize_t)sum, "commit");
                at += sum;
        }
}

static void *echoes(void *sock)
{
        int s = *(int *)sock;
        char word[4];

        while (unet_recv(s, word, sizeof word, MSG_WAITALL) == sizeof word)
                must(unet_send(s, word, sizeof word, 0) == sizeof word, "echo");
        return NULL;
}

static int call(const char *address, int port)
{
        struct sockaddr_in at = {.sin_family = AF_INET};
        pthread_t thread;
        int kept, talk;

        must(inet_pton(AF_INET, address, &at.sin_addr) == 1, "address");
        kept = calls(at, port);
        talk = calls(at, port + 1);
        must(pthread_create(&thread, NULL, echoes, &talk) == 0, "thread");
        writes_in_place(kept, BYTES / 2);
        sends_from_memory(kept, BYTES / 2, BYTES);
        must(unet_close(kept) == 0, "close");
        must(pthread_join(thread, NULL) == 0 && unet_close(talk) == 0, "the other connection");
        return 0;
}

/* ---- the server ---- */

static struct unet_loan held[MANY];
static uint64_t place[MANY]; /* in the stream */
static int n;
static uint64_t came, lent;

static int listens(int port)
{
        const struct unet_window w = {
                .size = sizeof w, .mode = UNET_WINDOW_SIZE, .bytes = WINDOW, .most = WINDOW};
        struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
        int l = unet_socket(AF_INET, SOCK_STREAM, 0);

        must(l >= 0 && unet_window_set(l, &w) == 0 &&
                     unet_bind(l, (struct sockaddr *)&at, sizeof at) == 0 && unet_listen(l, 1) == 0,
             "listen");
        return l;
}

/* False: the end. */
static int borrows(int s)
{
        int got = unet_recv_lend(s, &held[n], 1, 0);

        must(got >= 0 && n + got < MANY, "lend");
        for (int i = 0; i < got; i++, n++) {
                place[n] = came;
                came += held[n].len;
                lent += held[n].len;
        }
        must(lent <= WINDOW, "more than the window has come");
        return got;
}

static void returns_one(int s)
{
        int i = (int)(rnd() % (uint64_t)n);
        const uint8_t *p = held[i].ptr;

        for (size_t k = 0; k < held[i].len; k++)
                must(p[k] == byte_at(place[i] + k), "a wrong byte");
        must(unet_recv_return(s, &held[i], 1) == 0, "return");
        must(unet_recv_return(s, &held[i], 1) == -1 && errno == EINVAL, "returned twice");
        lent -= held[i].len;
        held[i] = held[--n];
        place[i] = place[n];
}

static void keeps_until_shut(int s)
{
        while (WINDOW - lent >= SHUT)
                must(borrows(s), "the end came early");
}

static void talks(int s)
{
        char word[4];

        for (int i = 0; i < TRIPS; i++) {
                must(unet_send(s, "ping", 4, 0) == 4, "ping");
                must(unet_recv(s, word, 4, MSG_WAITALL) == 4, "pong");
        }
}

static int serve(int port)
{
        int l[2] = {listens(port), listens(port + 1)};
        int kept = unet_accept(l[0], NULL, NULL), talk = unet_accept(l[1], NULL, NULL), most;

        must(kept >= 0 && talk >= 0, "accept");
        keeps_until_shut(kept);
        most = n;
        talks(talk);
        must(unet_close(talk) == 0, "close");
        do
                while (n > 0 && rnd() % 8 != 0)
                        returns_one(kept);
        while (borrows(kept));
        while (n > 0)
                returns_one(kept);
        printf("%llu bytes, %s\n", (unsigned long long)came, most > 1 ? "kept" : "nothing kept");
        must(came == BYTES, "bytes");
        return unet_close(kept);
}

int main(int argc, char **argv)
{
        if (argc == 3 && strcmp(argv[1], "serve") == 0)
                return serve(atoi(argv[2]));
        if (argc == 4 && strcmp(argv[1], "call") == 0)
                return call(argv[2], atoi(argv[3]));
        return 2;
}
