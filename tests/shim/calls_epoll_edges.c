/*
 * shim_calls, epoll(7): edges.
 */
#include "tests/shim/calls_epoll.h"

void scene_epoll_edges(void)
{
        int ep = epoll_create1(0), v[2];
        char c;

        tcp_pair(v);
        ADD(ep, v[1], EPOLLIN | EPOLLONESHOT, 3);
        put_byte(v);
        READY(ep);
        put_byte(v);
        QUIET(ep);
        MOD(ep, v[1], EPOLLIN | EPOLLONESHOT, 4);
        READY(ep);
        QUIET(ep);
        MOD(ep, v[1], EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, 5);
        READY(ep);
        QUIET(ep);
        put_byte(v);
        READY(ep);
        read(v[1], &c, 1);
        QUIET(ep);
        shutdown(v[0], SHUT_WR);
        READY(ep);
        QUIET(ep);
        MOD(ep, v[1], EPOLLIN | EPOLLET, 6);
        READY(ep);
        QUIET(ep);
        close2(v);
        close(ep);
}

/* A datagram socket in the set, whose peer's host has just said that nobody is there. */
static int refused_in(int ep)
{
        struct sockaddr_in own, nobody;
        int u = udp_socket(&own);
        struct pollfd error = {.fd = u};

        close(udp_socket(&nobody));
        connect(u, (void *)&nobody, sizeof(nobody));
        ADD(ep, u, EPOLLIN | EPOLLOUT | EPOLLET, 2);
        READY(ep);
        write(u, "x", 1);
        poll(&error, 1, LONG);
        return u;
}

/* What comes below SO_RCVLOWAT is no edge, though there is room to send; and an error that the
 * kernel's side brings tells of room that ours has. */
void scene_epoll_edges_whole(void)
{
        int ep = epoll_create1(0), low = 3, v[2], u;

        tcp_pair(v);
        setsockopt(v[1], SOL_SOCKET, SO_RCVLOWAT, &low, sizeof(low));
        ADD(ep, v[1], EPOLLIN | EPOLLOUT | EPOLLET, 1);
        READY(ep);
        put_byte(v);
        QUIET(ep);
        put_byte(v);
        QUIET(ep);
        put_byte(v);
        READY(ep);
        QUIET(ep);
        close2(v);
        u = refused_in(ep);
        READY(ep);
        close(u);
        close(ep);
}

static void *volatile nowhere = (void *)8;

/* What a call could not tell, as its buffer was not there, the next one tells. */
void scene_epoll_edges_refused(void)
{
        int ep = epoll_create1(0), u, v[2];

        tcp_pair(v);
        ADD(ep, v[1], EPOLLIN | EPOLLET, 1);
        put_byte(v);
        SHOW(epoll_wait(ep, nowhere, 1, LONG));
        READY(ep);
        QUIET(ep);
        close2(v);
        u = refused_in(ep);
        SHOW(epoll_wait(ep, nowhere, 1, LONG));
        READY(ep);
        close(u);
        close(ep);
}

static struct {
        int fd, out, rounds;
        _Atomic int at;
        _Atomic bool over;
} raced;

#define ROUNDS 3000

/* What comes is let in by whichever thread looks. */
static void *looks(void *arg)
{
        struct pollfd p = {.fd = raced.fd, .events = POLLIN};

        while (!raced.over)
                poll(&p, 1, 0);
        return arg;
}

static void *sends(void *arg)
{
        for (int i = 0; i < ROUNDS; i++) {
                while (raced.at != i)
                        sched_yield();
                write(raced.out, "x", 1);
        }
        return arg;
}

/* Each byte is an edge, though other threads have looked at the socket before. */
void scene_epoll_edges_raced(void)
{
        void *(*const does[])(void *) = {sends, looks};
        struct epoll_event ev;
        pthread_t t[ARRAY_LEN(does)];
        int ep = epoll_create1(0), v[2];
        char c;

        tcp_pair(v);
        raced.fd = v[1];
        raced.out = v[0];
        raced.at = -1;
        ADD(ep, v[1], EPOLLIN | EPOLLET, 1);
        for (size_t i = 0; i < ARRAY_LEN(does); i++)
                pthread_create(&t[i], NULL, does[i], NULL);
        for (int i = 0; i < ROUNDS; i++) {
                raced.at = i;
                do
                        while (epoll_wait(ep, &ev, 1, 0) == 0 && epoll_wait(ep, &ev, 1, LONG) != 1)
                                die("an edge is lost");
                while (recv(v[1], &c, 1, MSG_DONTWAIT) != 1); /* an edge may come twice */
        }
        raced.over = true;
        for (size_t i = 0; i < ARRAY_LEN(does); i++)
                pthread_join(t[i], NULL);
        printf("  %d edges\n", ROUNDS);
        close2(v);
        close(ep);
}
