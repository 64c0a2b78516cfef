/*
 * Calls of the native API between two processes that take turns, for bench/counted: neither ever
 * waits in a call, so what callgrind counts is what the calls do, and no busy polling.
 *
 *   counted_native ROW ROUNDS
 *
 * Prints the number of messages that were counted. counted() is what callgrind collects in; a first
 * fifth of the rounds, in which caches and windows open, goes by warm().
 */
#include <poll.h>
#include <sched.h>
#include <sys/wait.h>

#include "bench/native.h"

#define STREAM_BYTES (64u << 10) /* of small writes, a turn */
#define LARGE        (128u << 10)
#define DATAGRAMS    16u
#define STEPS_MAX    6 /* the client's and the server's in turn */

static char buf[LARGE];
static size_t bytes; /* a message */
static int sock = -1, listener = -1;
static struct sockaddr_in server;
static uint64_t messages;

static void must(bool right, const char *what)
{
        if (!right)
                die(what);
}

/* ---- messages there and back ---- */

static void send_one(void)
{
        must(unet_send(sock, buf, bytes, 0) == (ssize_t)bytes, "send");
}

static void receive_one(void)
{
        ssize_t r;

        while ((r = unet_recv(sock, buf, sizeof buf, MSG_DONTWAIT)) < 0 && errno == EAGAIN)
                sched_yield(); /* the keeper has it in hand, which is rare */
        must(r == (ssize_t)bytes, "recv");
        messages++;
}

static void answer(void)
{
        receive_one();
        send_one();
}

/* ---- streams and datagrams, one way ---- */

static void send_stream(void)
{
        size_t turn = bytes < STREAM_BYTES ? STREAM_BYTES / bytes * bytes : bytes;

        for (size_t sent = 0; sent < turn;) {
                ssize_t r = unet_send(sock, buf, bytes, MSG_DONTWAIT);

                if (r < 0 && errno == EAGAIN)
                        break;
                must(r > 0, "send");
                sent += (size_t)r;
                messages += (uint64_t)r; /* bytes, until main() divides */
        }
}

static void receive_all(void)
{
        ssize_t r;

        while ((r = unet_recv(sock, buf, sizeof buf, MSG_DONTWAIT)) > 0)
                ;
        must(r < 0 && errno == EAGAIN, "recv");
}

static void send_datagrams(void)
{
        for (unsigned i = 0; i < DATAGRAMS; i++)
                send_one();
}

static void receive_datagrams(void)
{
        for (unsigned i = 0; i < DATAGRAMS; i++)
                receive_one();
}

/* ---- connections ---- */

static void look_at(int s, short events)
{
        struct unet_pollfd p = {.sock = s, .fd = -1, .events = events};

        must(unet_poll(&p, 1, 0) >= 0, "poll");
}

static void begin_connection(void)
{
        sock = unet_socket(AF_INET, SOCK_STREAM, 0);
        must(sock >= 0 && unet_set_nonblock(sock, 1) == 0, "socket");
        must(unet_connect(sock, (struct sockaddr *)&server, sizeof server) == 0 ||
                     errno == EINPROGRESS,
             "connect");
}

static void hear_of_it(void)
{
        look_at(listener, POLLIN);
}

static void send_a_byte(void)
{
        look_at(sock, POLLOUT);
        send_one();
}

static void accept_it(void)
{
        sock = unet_accept4(listener, NULL, NULL, SOCK_NONBLOCK);
        must(sock >= 0, "accept");
        answer();
        unet_close(sock);
}

static void end_connection(void)
{
        receive_one();
        must(unet_recv(sock, buf, 1, MSG_DONTWAIT) == 0, "end");
        unet_close(sock);
}

/* ---- rows ---- */

static void nothing(void)
{
}

static const struct row {
        const char *name;
        int type;
        size_t bytes;
        void (*step[STEPS_MAX])(void);
} rows[] = {
        {"tcp-round-trip", SOCK_STREAM, 14, {send_one, answer, receive_one}},
        {"tcp-64", SOCK_STREAM, 64, {send_stream, receive_all}},
        {"tcp-1400", SOCK_STREAM, 1400, {send_stream, receive_all}},
        {"tcp-128k", SOCK_STREAM, LARGE, {send_stream, receive_all}},
        {"udp-round-trip", SOCK_DGRAM, 14, {send_one, answer, receive_one}},
        {"udp-64", SOCK_DGRAM, 64, {send_datagrams, receive_datagrams}},
        {"udp-1400", SOCK_DGRAM, 1400, {send_datagrams, receive_datagrams}},
        {"connections",
         SOCK_STREAM,
         1,
         {begin_connection, hear_of_it, send_a_byte, accept_it, end_connection, nothing}},
};

static const struct row *find_row(const char *name)
{
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
                if (strcmp(rows[i].name, name) == 0)
                        return &rows[i];
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
                puts(rows[i].name);
        exit(2);
}

/* ---- turns ---- */

static void pass(int fd)
{
        must(write(fd, "x", 1) == 1, "pass");
}

static bool wait_turn(int fd)
{
        char c;

        return read(fd, &c, 1) == 1;
}

/* Two functions, though they do the same: callgrind counts what is called by the first. */
static __attribute__((noinline)) void counted(void (*step)(void))
{
        __asm__ volatile("# counted" ::: "memory");
        step();
        __asm__ volatile("" ::: "memory"); /* a call, and no jump */
}

static __attribute__((noinline)) void warm(void (*step)(void))
{
        __asm__ volatile("# warm" ::: "memory");
        step();
}

static void take_turns(const struct row *row, bool server_side, unsigned long rounds,
                       const int fd[2])
{
        for (unsigned long n = 0; n < rounds; n++) {
                if (n == rounds / 5)
                        messages = 0;
                for (int i = server_side; i < STEPS_MAX && row->step[i] != NULL; i += 2) {
                        if (server_side)
                                must(wait_turn(fd[0]), "turn");
                        (n < rounds / 5 ? warm : counted)(row->step[i]);
                        pass(fd[1]);
                        if (!server_side && row->step[i + 1] != NULL)
                                must(wait_turn(fd[0]), "turn");
                }
        }
}

/* ---- both ends ---- */

static void serve(const struct row *row, unsigned long rounds, const int fd[2])
{
        socklen_t len = sizeof server;

        listener = unet_socket(AF_INET, row->type, 0);
        must(unet_bind(listener, (struct sockaddr *)&server, len) == 0, "bind");
        must(row->type == SOCK_DGRAM || unet_listen(listener, 64) == 0, "listen");
        must(unet_getsockname(listener, (struct sockaddr *)&server, &len) == 0, "name");
        must(write(fd[1], &server, sizeof server) == sizeof server, "name");
        if (row->type == SOCK_DGRAM) {
                must(read(fd[0], &server, sizeof server) == sizeof server, "name");
                sock = listener;
                must(unet_connect(sock, (struct sockaddr *)&server, sizeof server) == 0, "connect");
                pass(fd[1]);
        } else if (row->step[0] != begin_connection) {
                sock = native_accept(listener);
                native_no_delay(sock);
        }
        take_turns(row, true, rounds, fd);
        wait_turn(fd[0]); /* the client is done */
        exit(0);
}

static void drive(const struct row *row, unsigned long rounds, const int fd[2])
{
        struct sockaddr_in mine = {.sin_family = AF_INET,
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t len = sizeof mine;

        must(read(fd[0], &server, sizeof server) == sizeof server, "name");
        if (row->step[0] != begin_connection) {
                sock = unet_socket(AF_INET, row->type, 0);
                must(unet_bind(sock, (struct sockaddr *)&mine, len) == 0, "bind");
                must(unet_connect(sock, (struct sockaddr *)&server, sizeof server) == 0, "connect");
        }
        if (row->type == SOCK_DGRAM) {
                must(unet_getsockname(sock, (struct sockaddr *)&mine, &len) == 0, "name");
                must(write(fd[1], &mine, sizeof mine) == sizeof mine && wait_turn(fd[0]), "name");
        } else if (sock >= 0) {
                native_no_delay(sock);
        }
        take_turns(row, false, rounds, fd);
}

int main(int argc, char **argv)
{
        const struct row *row = find_row(argc == 3 ? argv[1] : "");
        unsigned long rounds = (unsigned long)number_arg(argv[2], 5, 10000000);
        int there[2], back[2];
        pid_t child;

        bytes = row->bytes;
        server = end_of(LOOPBACK, 0);
        must(pipe(there) == 0 && pipe(back) == 0, "pipe");
        child = fork();
        must(child >= 0, "fork");
        if (child == 0) {
                close(there[1]);
                close(back[0]);
                serve(row, rounds, (int[]){there[0], back[1]});
        }
        close(there[0]);
        close(back[1]); /* or the end of the child would not be seen */
        drive(row, rounds, (int[]){back[0], there[1]});
        if (row->step[0] == send_datagrams)
                messages = (rounds - rounds / 5) * DATAGRAMS;
        printf("{\"messages\": %g}\n",
               (double)messages / (row->step[0] == send_stream ? (double)bytes : 1));
        fflush(stdout);
        close(there[1]);
        waitpid(child, NULL, 0);
        return 0;
}
