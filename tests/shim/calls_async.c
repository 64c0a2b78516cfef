/*
 * shim_calls, signals of readiness: SIGIO and SIGURG, to whom they go, and what a socket says of
 * it.
 */
#include "tests/shim/calls.h"

static volatile sig_atomic_t ios, urgs;

static void count_signal(int sig)
{
        if (sig == SIGIO)
                ios++;
        else
                urgs++;
}

static void count_signals(void)
{
        struct sigaction sa = {.sa_handler = count_signal, .sa_flags = SA_RESTART};

        sigaction(SIGIO, &sa, NULL);
        sigaction(SIGURG, &sa, NULL);
        ios = urgs = 0;
}

/* While the program makes no call on a socket. */
static bool comes(volatile sig_atomic_t *n)
{
        for (int ms = 0; *n == 0 && ms < LONG; ms++)
                usleep(1000);
        return *n != 0;
}

static void own(int fd)
{
        SHOW(fcntl(fd, F_SETOWN, getpid()));
        SHOW(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_ASYNC));
        SHOW((fcntl(fd, F_GETFL) & O_ASYNC) != 0);
}

static void show_owner(int fd)
{
        struct f_owner_ex o = {-1, -1};

        SHOW(fcntl(fd, F_GETOWN) == getpid());
        SHOW(fcntl(fd, F_GETOWN_EX, &o));
        SHOW(o.type);
        SHOW(o.pid == getpid());
}

void scene_async_connections(void)
{
        int v[2], w[2];
        char b[16];

        count_signals();
        tcp_pair(v);
        tcp_pair(w);
        /* And nobody owns it: nobody is told. */
        SHOW(fcntl(w[0], F_SETFL, fcntl(w[0], F_GETFL) | O_ASYNC));
        write(w[1], "some", 4);
        wait_readable(w[0]);
        usleep(10000);
        SHOW(ios);
        for (int side = 0; side < 2; side++) {
                int me = v[side], peer = v[!side];
                own(me);
                show_owner(me);
                SHOW(fcntl(w[side], F_GETOWN));
                ios = 0;
                write(peer, "some", 4);
                SHOW(comes(&ios));
                show_bytes("read", b, read(me, b, sizeof(b)));
                SHOW(fcntl(me, F_SETFL, fcntl(me, F_GETFL) & ~O_ASYNC));
                SHOW((fcntl(me, F_GETFL) & O_ASYNC) != 0);
                ios = 0;
                write(peer, "more", 4);
                show_bytes("read", b, read(me, b, sizeof(b)));
                SHOW(ios);
                urgs = 0;
                SHOW(send(peer, "!", 1, MSG_OOB));
                SHOW(comes(&urgs));
                SHOW(recv(me, b, 1, MSG_OOB));
                SHOW(ios);
        }
        SHOW(fcntl(v[0], F_SETFL, fcntl(v[0], F_GETFL) | O_ASYNC));
        ios = 0;
        close(v[1]);
        SHOW(comes(&ios));
        close(v[0]);
        close2(w);
}

/* Asked for before the socket is anything, and of the others. */
void scene_async_sockets(void)
{
        struct sockaddr_in sa;
        struct f_owner_ex thread = {F_OWNER_TID, gettid()};
        int l, s, c, u, on = 1, me = getpid();
        char b[16];

        count_signals();
        l = listener(&sa);
        own(l);
        s = socket(AF_INET, SOCK_STREAM, 0);
        SHOW(ioctl(s, FIOASYNC, &on));
        SHOW(ioctl(s, SIOCSPGRP, &me));
        SHOW((fcntl(s, F_GETFL) & O_ASYNC) != 0);
        SHOW(connect(s, (void *)&sa, sizeof(sa)));
        SHOW(comes(&ios));
        c = accept(l, NULL, NULL);
        SHOW((fcntl(c, F_GETFL) & O_ASYNC) != 0);
        SHOW(fcntl(c, F_GETOWN));
        show_owner(s);
        ios = 0;
        write(c, "some", 4);
        SHOW(comes(&ios));
        SHOW(fcntl(s, F_SETOWN_EX, &thread));
        SHOW(fcntl(s, F_GETOWN_EX, &thread));
        SHOW(thread.type);
        SHOW(thread.pid == gettid());
        ios = 0;
        write(c, "some", 4);
        SHOW(comes(&ios));
        SHOW(ioctl(s, FIOGETOWN, &me));
        SHOW(fcntl(s, F_SETOWN, 0x3fffffff));
        SHOW(fcntl(s, F_SETOWN, 0));
        on = 0;
        SHOW(ioctl(c, FIOASYNC, &on));
        SHOW(ioctl(c, FIOASYNC, NULL));
        close(s);
        close(c);
        close(l);
        u = udp_socket(&sa);
        own(u);
        s = socket(AF_INET, SOCK_DGRAM, 0);
        ios = 0;
        SHOW(sendto(s, "some", 4, 0, (void *)&sa, sizeof(sa)));
        SHOW(comes(&ios));
        show_bytes("datagram", b, recv(u, b, sizeof(b), 0));
        close(u);
        close(s);
}

/* A signal that says which descriptor it is about: the socket is the kernel's. */
void scene_async_told(void)
{
        struct timespec soon = {LONG / 1000, 0};
        struct sockaddr_in sa;
        sigset_t rt;
        siginfo_t si;
        int l = listener(&sa), s = socket(AF_INET, SOCK_STREAM, 0), c;

        sigemptyset(&rt);
        sigaddset(&rt, SIGRTMIN);
        sigprocmask(SIG_BLOCK, &rt, NULL);
        SHOW(fcntl(s, F_SETSIG, SIGRTMIN));
        SHOW(fcntl(s, F_GETSIG) == SIGRTMIN);
        own(s);
        SHOW(connect(s, (void *)&sa, sizeof(sa)));
        c = accept(l, NULL, NULL);
        while (sigtimedwait(&rt, &si, &(struct timespec){0}) > 0)
                ;
        write(c, "some", 4);
        SHOW(sigtimedwait(&rt, &si, &soon) == SIGRTMIN);
        SHOW(si.si_fd == s);
        SHOW((si.si_band & POLLIN) != 0);
        close(s);
        close(c);
        close(l);
}
