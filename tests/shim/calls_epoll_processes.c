/*
 * shim_calls, epoll(7): several processes that wait, and a set that parent and child share.
 */
#include "tests/shim/calls_epoll.h"

void scene_epoll_exclusive(void)
{
        int ep = epoll_create1(0), inner = epoll_create1(0), v[2];
        struct sockaddr_in sa;
        int l = listener(&sa);

        tcp_pair(v);
        SHOW(ADD(inner, v[0], EPOLLIN, 1));
        SHOW(ADD(ep, v[1], EPOLLIN | EPOLLEXCLUSIVE | EPOLLONESHOT, 1));
        SHOW(ADD(ep, v[1], EPOLLIN | EPOLLEXCLUSIVE | EPOLLRDHUP, 1));
        SHOW(ADD(ep, inner, EPOLLIN | EPOLLEXCLUSIVE, 1));
        SHOW(ADD(ep, v[1], EPOLLIN | EPOLLOUT | EPOLLET | EPOLLEXCLUSIVE, 1));
        SHOW(MOD(ep, v[1], EPOLLIN, 1));
        SHOW(ADD(ep, l, EPOLLIN | EPOLLEXCLUSIVE, 2));
        READY(ep);
        close2(v);
        v[0] = socket(AF_INET, SOCK_STREAM, 0);
        SHOW(connect(v[0], (void *)&sa, sizeof(sa)));
        READY(ep);
        SHOW(ADD(v[0], l, EPOLLIN, 1));
        close(v[0]);
        close(l);
        QUIET(ep);
        close(ep);
        close(inner);
}

/* Many who wait for one listener, and connections one after the other and in bursts: each
 * is accepted. */
#define ACCEPTORS 6
#define COMERS    120

static void acceptor(int l, int how)
{
        struct epoll_event ev;
        struct pollfd p = {.fd = l, .events = POLLIN};
        int ep = epoll_create1(0), s;

        if (how > 0)
                fcntl(l, F_SETFL, O_NONBLOCK);
        if (how == 1)
                ADD(ep, l, EPOLLIN | EPOLLEXCLUSIVE, 0);
        for (;;) {
                if (how == 1)
                        epoll_wait(ep, &ev, 1, -1);
                if (how == 2)
                        poll(&p, 1, -1);
                s = accept(l, NULL, NULL);
                if (s < 0)
                        continue;
                write(s, "y", 1);
                close(s);
        }
}

static int come(const struct sockaddr_in *sa, int burst)
{
        int s[COMERS], right = 0;
        char c;

        for (int i = 0; i < burst; i++) {
                s[i] = socket(AF_INET, SOCK_STREAM, 0);
                connect(s[i], (const void *)sa, sizeof(*sa));
        }
        for (int i = 0; i < burst; i++) {
                right += read(s[i], &c, 1) == 1;
                close(s[i]);
        }
        return right;
}

void scene_acceptors(void)
{
        static const int bursts[] = {1, 2, 5, 16};

        for (int how = 0; how < 3; how++) {
                struct sockaddr_in sa;
                int l = listener(&sa), right = 0, all = 0;
                pid_t pid[ACCEPTORS];

                for (int i = 0; i < ACCEPTORS; i++)
                        if ((pid[i] = fork()) == 0)
                                acceptor(l, how);
                for (int i = 0; all < COMERS; i++) {
                        right += come(&sa, bursts[i % 4]);
                        all += bursts[i % 4];
                        if (i % 8 == 0)
                                usleep(5000);
                }
                SHOW(right == all);
                for (int i = 0; i < ACCEPTORS; i++) {
                        kill(pid[i], SIGKILL);
                        waitpid(pid[i], NULL, 0);
                }
                close(l);
        }
}

/* ---- a set that parent and child share ---- */

enum forked { CLOSES_LISTENER, CLOSES_SET, CLOSES_BOTH, CLOSES_ALL, EXITS, ADDS, FORKED };

static void in_child(enum forked how, int ep, const int s[2])
{
        struct epoll_event ev = {.events = EPOLLIN, .data.u64 = 7};

        if (how == CLOSES_SET || how == CLOSES_BOTH)
                close(ep);
        if (how == CLOSES_LISTENER || how == CLOSES_BOTH) {
                close(s[0]);
                close(s[1]);
        }
        if (how == CLOSES_ALL)
                close_range(3, ~0u, 0);
        if (how == ADDS) {
                close(s[0]);
                close(s[1]);
                epoll_ctl(epoll_create1(0), EPOLL_CTL_ADD, listener(&(struct sockaddr_in){0}), &ev);
        }
        _exit(0);
}

/* By the kernel, as a program without the library comes. */
static void ordinary_clients(const struct sockaddr_in sa[2])
{
        int c = (int)sys3(SYS_socket, AF_INET, SOCK_STREAM, 0),
            u = (int)sys3(SYS_socket, AF_INET, SOCK_DGRAM, 0);

        printf("  connects: %ld\n", sys3(SYS_connect, c, &sa[0], sizeof(sa[0])));
        printf("  sends: %ld\n", sys6(SYS_sendto, u, (long)"x", 1, 0, (long)&sa[1], sizeof(sa[1])));
        sys1(SYS_close, c);
        sys1(SYS_close, u);
}

static void take_both(int ep, const int s[2])
{
        struct epoll_event ev;
        bool seen[2] = {false};
        char b;

        while (!seen[0] || !seen[1]) {
                if (epoll_wait(ep, &ev, 1, LONG) != 1 || ev.data.u64 > 1) {
                        printf("  not told\n");
                        return;
                }
                seen[ev.data.u64] = true;
                if (ev.data.u64 == 0)
                        close(accept(s[0], NULL, NULL));
                else
                        recv(s[1], &b, 1, MSG_DONTWAIT);
        }
        SHOW(epoll_wait(ep, &ev, 1, 0));
}

/* What one closes the other has, and hears of: by the kernel's half, which is one for both. */
void scene_epoll_forked(void)
{
        for (int how = 0; how < FORKED; how++) {
                struct sockaddr_in sa[2];
                int ep = epoll_create1(0), s[2] = {listener(&sa[0]), udp_socket(&sa[1])}, c;
                struct epoll_event ev = {.events = EPOLLIN};

                printf("  %d\n", how);
                for (ev.data.u64 = 0; ev.data.u64 < 2; ev.data.u64++)
                        SHOW(epoll_ctl(ep, EPOLL_CTL_ADD, s[ev.data.u64], &ev));
                fflush(stdout);
                if (fork() == 0)
                        in_child(how, ep, s);
                wait(NULL);
                ordinary_clients(sa);
                take_both(ep, s);
                c = socket(AF_INET, SOCK_STREAM, 0);
                SHOW(connect(c, (void *)&sa[0], sizeof(sa[0])));
                SHOW(epoll_wait(ep, &ev, 1, LONG));
                close(accept(s[0], NULL, NULL));
                close(c);
                close2(s);
                SHOW(epoll_wait(ep, &ev, 1, 0));
                close(ep);
        }
}
