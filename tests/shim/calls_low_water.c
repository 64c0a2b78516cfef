/* SO_RCVLOWAT: from how many bytes on a socket is ready, and from how many a call returns. */
#include "tests/pass_fd.h"
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

/* ---- a connection that is passed in a message has what was set on it, and is told the same ----
 */

static void show_option(int fd, int level, int name)
{
        int v = -1;
        socklen_t len = sizeof(v);

        printf("  option %d of %d: %d,", name, level, getsockopt(fd, level, name, &v, &len));
        printf(" %d\n", v);
}

static void asks_for(int s, const char *what)
{
        char c;

        if (write(s, what, 1) != 1 || read(s, &c, 1) != 1)
                printf("  nobody answers\n");
}

/* Ends of two connections: one is read by a mark, the other is full. */
static void uses_what_was_passed(int s)
{
        struct epoll_event in = {.events = EPOLLIN}, out = {.events = EPOLLOUT | EPOLLET}, ev;
        int reads = take_fd(s), writes = take_fd(s), ep[2] = {epoll_create1(0), epoll_create1(0)};

        show_option(reads, SOL_SOCKET, SO_RCVLOWAT);
        show_option(reads, IPPROTO_TCP, TCP_NODELAY);
        show_option(writes, IPPROTO_TCP, TCP_NOTSENT_LOWAT);
        show_option(writes, SOL_SOCKET, SO_MAX_PACING_RATE);
        epoll_ctl(ep[0], EPOLL_CTL_ADD, reads, &in);
        epoll_ctl(ep[1], EPOLL_CTL_ADD, writes, &out);
        SHOW(epoll_wait(ep[0], &ev, 1, 20)); /* two bytes of four */
        SHOW(epoll_wait(ep[1], &ev, 1, 20));
        asks_for(s, "2");
        SHOW(epoll_wait(ep[0], &ev, 1, LONG));
        show_recv(reads, 8, 0);
        asks_for(s, "r");
        SHOW(epoll_wait(ep[1], &ev, 1, LONG));
        SHOW(ev.events);
        asks_for(s, "c");
        SHOW(epoll_wait(ep[0], &ev, 1, LONG));
        SHOW(ev.events);
        show_recv(reads, 8, 0);
}

static void does_what_is_asked(int s, int v[2], int w[2])
{
        static char b[1 << 20];
        char c;

        while (read(s, &c, 1) == 1) {
                if (c == '2')
                        write(v[0], "34", 2);
                if (c == 'r')
                        while (recv(w[0], b, sizeof(b), MSG_DONTWAIT) > 0 ||
                               (poll(&(struct pollfd){w[0], POLLIN, 0}, 1, 100) == 1))
                                ;
                if (c == 'c')
                        close(v[0]);
                write(s, &c, 1);
        }
}

void scene_flow_passed(void)
{
        int v[2], w[2], s[2], low = 4, unsent = 100000, rate = 1 << 30;
        static char b[1 << 20];
        pid_t child;

        socketpair(AF_UNIX, SOCK_STREAM, 0, s);
        fflush(stdout);
        child = fork(); /* before there are connections: it has them by the message alone */
        if (child == 0) {
                close(s[0]);
                uses_what_was_passed(s[1]);
                fflush(stdout);
                _exit(0);
        }
        close(s[1]);
        tcp_pair(v);
        tcp_pair(w);
        SHOW(setsockopt(v[1], SOL_SOCKET, SO_RCVLOWAT, &low, sizeof(low)));
        SHOW(setsockopt(w[1], IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof(unsent)));
        SHOW(setsockopt(w[1], SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof(rate)));
        write(v[0], "12", 2);
        wait_bytes(v[1], 2);
        do /* until its peer's buffer is full, too */
                while (send(w[1], b, sizeof(b), MSG_DONTWAIT) > 0)
                        ;
        while (poll(&(struct pollfd){w[1], POLLOUT, 0}, 1, 300) == 1);
        pass_fd(s[0], v[1]);
        pass_fd(s[0], w[1]);
        close(v[1]);
        close(w[1]);
        does_what_is_asked(s[0], v, w);
        waitpid(child, NULL, 0);
        close(w[0]);
        close(s[0]);
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
