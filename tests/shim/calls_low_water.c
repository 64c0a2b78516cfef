/* SO_RCVLOWAT: from how many bytes on a socket is ready, and from how many a call returns. */
#include "tests/shim/calls.h"

void scene_low_water(void)
{
        struct timeval tv = {0, 50000};
        struct epoll_event ev = {.events = EPOLLIN};
        int v[2], low = 4, ep = epoll_create1(0);
        fd_set set;

        tcp_pair(v);
        epoll_ctl(ep, EPOLL_CTL_ADD, v[1], &ev);
        SHOW(setsockopt(v[1], SOL_SOCKET, SO_RCVLOWAT, &low, sizeof(low)));
        SHOW(write(v[0], "12", 2));
        wait_bytes(v[1], 2);
        SHOW(ready_events(v[1]));
        SHOW(epoll_wait(ep, &ev, 1, 0));
        FD_ZERO(&set);
        FD_SET(v[1], &set);
        SHOW(select(v[1] + 1, &set, NULL, NULL, &tv));
        SHOW(write(v[0], "34", 2));
        SHOW(epoll_wait(ep, &ev, 1, LONG));
        SHOW(ready_events(v[1]));
        show_recv(v[1], 8, 0);
        for (int i = 0; i < 2; i++) { /* all that was asked for, though the rest is little */
                SHOW(write(v[0], "567890", 6));
                show_recv(v[1], 6, MSG_WAITALL);
        }
        SHOW(write(v[0], "5", 1));
        shutdown(v[0], SHUT_WR);
        SHOW(epoll_wait(ep, &ev, 1, LONG));
        show_recv(v[1], 8, 0);
        close2(v);
        close(ep);
}

/* A read waits for that much, or for what it asks for; with less of it who waits has enough.
 * It only peeks, where it has to wait: whom Linux has given less already it does not wake for
 * the rest. */
void scene_low_water_reads(void)
{
        struct epoll_event ev = {.events = EPOLLIN};
        struct sockaddr_in a;
        int v[2], low = 4, one = 1, ep = epoll_create1(0), l = listener(&a);

        tcp_pair(v);
        SHOW(setsockopt(v[1], SOL_SOCKET, SO_RCVLOWAT, &low, sizeof(low)));
        for (int i = 0; i < 2; i++) {
                if (fork() == 0) {
                        write(v[0], "12", 2);
                        usleep(50000);
                        write(v[0], "34", 2);
                        _exit(0);
                }
                show_recv(v[1], i == 1 ? 2 : 8, i == 0 ? MSG_PEEK : 0);
                wait(NULL);
                while (recv(v[1], (char[8]){0}, 8, MSG_DONTWAIT) > 0)
                        ;
        }
        epoll_ctl(ep, EPOLL_CTL_ADD, v[1], &ev);
        SHOW(write(v[0], "12", 2));
        wait_bytes(v[1], 2);
        SHOW(epoll_wait(ep, &ev, 1, 0));
        SHOW(setsockopt(v[1], SOL_SOCKET, SO_RCVLOWAT, &one, sizeof(one)));
        SHOW(epoll_wait(ep, &ev, 1, LONG));
        close2(v);
        SHOW(setsockopt(l, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof(low)));
        v[0] = socket(AF_INET, SOCK_STREAM, 0);
        connect(v[0], (struct sockaddr *)&a, sizeof(a));
        v[1] = accept(l, NULL, NULL);
        SHOW(write(v[0], "12", 2));
        wait_bytes(v[1], 2);
        SHOW(ready_events(v[1]));
        close2(v);
        close(l);
        close(ep);
}

/* Over a connection whose receive buffer has that size; 0: as it is. */
static void sized_pair(int v[2], int size)
{
        struct sockaddr_in sa;
        int l = listener(&sa), on = 1;

        if (size != 0)
                setsockopt(l, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
        v[0] = socket(AF_INET, SOCK_STREAM, 0);
        setsockopt(v[0], IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        if (connect(v[0], (void *)&sa, sizeof(sa)) < 0 || (v[1] = accept(l, NULL, NULL)) < 0)
                die("pair");
        close(l);
}

/* What each way to wait says. */
static void show_readable(int fd, int level, int edge)
{
        struct timeval now = {0, 0};
        struct epoll_event ev;
        fd_set set;

        FD_ZERO(&set);
        FD_SET(fd, &set);
        printf("  poll %x, ", (unsigned)ready_events(fd));
        printf("select %d, ", select(fd + 1, &set, NULL, NULL, &now));
        printf("epoll %d, ", epoll_wait(level, &ev, 1, 0));
        printf("edge %d\n", epoll_wait(edge, &ev, 1, 0));
}

static void write_pieces(int v[2], int from, int to, int piece)
{
        static char b[1 << 20];

        for (int n; from < to; from += n) {
                n = to - from < piece ? to - from : piece;
                if (write(v[0], b, (size_t)n) != n)
                        die("write");
                wait_bytes(v[1], from + n);
        }
}

static void low_water_of(int size, int low, int piece)
{
        struct epoll_event ev = {.events = EPOLLIN}, et = {.events = EPOLLIN | EPOLLET};
        int v[2], level = epoll_create1(0), edge = epoll_create1(0);
        static char b[1 << 20];

        printf(" buffer %d, mark %d, pieces of %d\n", size, low, piece);
        sized_pair(v, size);
        SHOW(setsockopt(v[1], SOL_SOCKET, SO_RCVLOWAT, &low, sizeof(low)));
        epoll_ctl(level, EPOLL_CTL_ADD, v[1], &ev);
        epoll_ctl(edge, EPOLL_CTL_ADD, v[1], &et);
        write_pieces(v, 0, low / 2, piece);
        show_readable(v[1], level, edge);
        write_pieces(v, low / 2, low - 1, piece);
        show_readable(v[1], level, edge);
        write_pieces(v, low - 1, low, piece);
        show_readable(v[1], level, edge);
        show_readable(v[1], level, edge);
        SHOW(recv(v[1], b, sizeof(b), 0));
        show_readable(v[1], level, edge);
        write_pieces(v, 0, low - 1, piece);
        show_readable(v[1], level, edge);
        shutdown(v[0], SHUT_WR);
        SHOW(epoll_wait(edge, &et, 1, LONG));
        show_readable(v[1], level, edge);
        close(level);
        close(edge);
        close2(v);
}

/* Whatever the buffer and the segments. */
void scene_low_water_sizes(void)
{
        static const struct {
                int size, low;
        } of[] = {{0, 2},         {0, 20000},      {10000, 2000},  {10000, 4000},
                  {40000, 15000}, {200000, 15000}, {200000, 60000}};

        for (size_t i = 0; i < ARRAY_LEN(of); i++)
                for (int piece = 100; piece <= 1500; piece += 1400)
                        low_water_of(of[i].size, of[i].low, piece);
}
