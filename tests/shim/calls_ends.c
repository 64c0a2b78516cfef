/* Ends of connections and of listeners: shutdown, resets that come late, peers of other processes.
 */
#include "tests/shim/calls.h"

void scene_shutdown_reading(void)
{
        char b[8];
        int v[2];

        tcp_pair(v);
        SHOW(write(v[1], "before", 6));
        wait_bytes(v[0], 6);
        SHOW(shutdown(v[0], SHUT_RD));
        SHOW(ready_events(v[0]));
        SHOW(recv(v[0], b, sizeof(b), 0));
        SHOW(recv(v[0], b, sizeof(b), 0));
        SHOW(write(v[1], "after", 5));
        wait_bytes(v[0], 5);
        SHOW(recv(v[0], b, sizeof(b), 0));
        SHOW(recv(v[0], b, sizeof(b), MSG_DONTWAIT));
        SHOW(write(v[0], "back", 4));
        show_bytes("read", b, read(v[1], b, sizeof(b)));
        SHOW(shutdown(v[0], SHUT_WR));
        wait_events(v[1], POLLRDHUP);
        SHOW(write(v[1], "lost", 4));
        wait_events(v[1], POLLERR);
        SHOW(recv(v[1], b, sizeof(b), 0));
        close2(v);
}

/* Both sides have ended, and nothing is left of the connection but what was not read. */
static void ended_unread(int how)
{
        int v[2], n = -1;
        char b[8];

        tcp_pair(v);
        SHOW(write(v[0], "unread", 6));
        SHOW(shutdown(v[0], SHUT_WR));
        wait_events(v[1], POLLRDHUP);
        SHOW(shutdown(v[1], how));
        wait_events(v[0], POLLHUP);
        SHOW(ioctl(v[1], FIONREAD, &n));
        SHOW(n);
        SHOW(recv(v[1], b, 4, 0));
        SHOW(ioctl(v[1], FIONREAD, &n));
        SHOW(n);
        SHOW(recv(v[1], b, sizeof(b), 0));
        SHOW(recv(v[1], b, sizeof(b), 0));
        close2(v);
}

/* The end came, and the reset after it. */
void scene_shutdown_unread(void)
{
        char b[8];
        int v[2];

        ended_unread(SHUT_WR);
        ended_unread(SHUT_RDWR);
        tcp_pair(v);
        SHOW(write(v[1], "unread", 6));
        wait_bytes(v[0], 6);
        shutdown(v[0], SHUT_WR);
        wait_events(v[1], POLLRDHUP);
        close(v[0]);
        wait_events(v[1], POLLERR);
        SHOW(recv(v[1], b, sizeof(b), 0));
        SHOW(recv(v[1], b, sizeof(b), 0));
        SHOW(send(v[1], "x", 1, MSG_NOSIGNAL));
        close(v[1]);
}

static void *accept_once(void *arg)
{
        int *fd = arg;
        long r = accept(*fd, NULL, NULL);

        *fd = r < 0 ? -errno : 0;
        return NULL;
}

static void *receive_once(void *arg)
{
        int *fd = arg;
        char b[8];
        long r = recv(*fd, b, sizeof(b), 0);

        *fd = r < 0 ? -errno : (int)r;
        return NULL;
}

/* A call that waits in another thread ends: whether it had begun to wait or not. */
static void ends_for(void *(*call)(void *), int fd, int how)
{
        int arg = fd;
        pthread_t t;

        pthread_create(&t, NULL, call, &arg);
        SHOW(shutdown(fd, how));
        pthread_join(t, NULL);
        printf("  the call: %d\n", arg);
}

void scene_shutdown_waiting(void)
{
        struct sockaddr_in sa, ua;
        int l = listener(&sa), u = udp_socket(&ua), v[2], s = socket(AF_INET, SOCK_STREAM, 0);
        char b[8];

        tcp_pair(v);
        ends_for(receive_once, v[0], SHUT_RDWR);
        close2(v);
        ends_for(accept_once, l, SHUT_RD);
        SHOW(ready_events(l));
        SHOW(connect(s, (void *)&sa, sizeof(sa)));
        SHOW(listen(l, 1));
        SHOW(connect(s, (void *)&sa, sizeof(sa)));
        close(s);
        close(l);
        ends_for(receive_once, u, SHUT_RDWR);
        SHOW(ready_events(u));
        SHOW(recv(u, b, sizeof(b), 0));
        SHOW(recv(u, b, sizeof(b), MSG_DONTWAIT));
        SHOW(sendto(u, "x", 1, MSG_NOSIGNAL, (void *)&ua, sizeof(ua)));
        close(u);
        u = udp_socket(&ua);
        SHOW(shutdown(u, SHUT_RD));
        SHOW(sendto(u, "still", 5, 0, (void *)&ua, sizeof(ua)));
        SHOW(recv(u, b, sizeof(b), MSG_DONTWAIT));
        SHOW(recv(u, b, sizeof(b), MSG_DONTWAIT));
        close(u);
}

/* A reset that comes after some bytes is told by the call after. */
void scene_late_resets(void)
{
        static char b[8 << 20];
        struct linger hard = {1, 0};
        int v[2];

        for (int i = 0; i < 2; i++) {
                tcp_pair(v);
                write(v[0], "0123456789", 10);
                if (fork() == 0) {
                        close(v[1]);
                        usleep(500000);
                        setsockopt(v[0], SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
                        close(v[0]);
                        _exit(0);
                }
                close(v[0]);
                if (i == 0)
                        SHOW(recv(v[1], b, 100, MSG_WAITALL));
                else
                        printf("sent some, not all: %d\n",
                               (size_t)send(v[1], b, sizeof(b), 0) < sizeof(b));
                if (i == 1)
                        recv(v[1], b, 10, 0);
                SHOW(recv(v[1], b, 1, 0));
                SHOW(recv(v[1], b, 1, 0));
                close(v[1]);
                wait(NULL);
        }
}

/* TCP_MAXSEG of a connection that is over is what it was; that of a socket of which a listener or
 * nothing came is a default. */
static int segment_of(int s)
{
        int v = -1;
        socklen_t len = sizeof(v);

        getsockopt(s, IPPROTO_TCP, TCP_MAXSEG, &v, &len);
        return v;
}

void scene_segment_after_end(void)
{
        struct linger none = {.l_onoff = 1};
        struct pollfd p = {.events = POLLIN};
        int v[2], before, s = socket(AF_INET, SOCK_STREAM, 0);

        SHOW(segment_of(s));
        close(s);
        tcp_pair(v);
        before = segment_of(v[0]);
        SHOW(before > 536);
        setsockopt(v[1], SOL_SOCKET, SO_LINGER, &none, sizeof(none));
        close(v[1]);
        p.fd = v[0];
        SHOW(poll(&p, 1, LONG));
        SHOW(segment_of(v[0]) - before);
        close(v[0]);
}

/* A listener that is no more is as blocking as the program made it, though we never block on
 * the kernel's. */
void scene_listener_ends(void)
{
        const struct sockaddr none = {.sa_family = AF_UNSPEC};
        struct sockaddr_in sa, there;
        int other = listener(&there);
        char b;

        for (int how = 0; how < 3; how++)
                for (int flags = 0; flags <= O_NONBLOCK; flags += O_NONBLOCK) {
                        int l = listener(&sa);

                        fcntl(l, F_SETFL, flags);
                        if (how == 2)
                                SHOW(connect(l, &none, sizeof(none)));
                        else
                                SHOW(shutdown(l, how == 1 ? SHUT_RDWR : SHUT_RD));
                        SHOW((fcntl(l, F_GETFL) & O_NONBLOCK) != 0);
                        SHOW(accept(l, NULL, NULL));
                        SHOW(read(l, &b, 1));
                        SHOW(connect(l, (void *)&there, sizeof(there)));
                        close(l);
                }
        close(other);
}

/* Connections that nobody has accepted, some just asked for, are reset with their listener and
 * not refused. */
void scene_listener_closes(void)
{
        struct sockaddr_in sa;
        int l = listener(&sa), c[5], err;
        struct pollfd p[5];
        socklen_t len = sizeof(err);

        for (int i = 0; i < 5; i++) {
                c[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
                SHOW(connect(c[i], (void *)&sa, sizeof(sa)));
                p[i] = (struct pollfd){.fd = c[i], .events = POLLIN | POLLOUT};
        }
        close(l);
        for (int i = 0; i < 5; i++) {
                SHOW(poll(&p[i], 1, 10000));
                SHOW(p[i].revents);
                SHOW(getsockopt(c[i], SOL_SOCKET, SO_ERROR, &err, &len));
                SHOW(err);
                close(c[i]);
        }
}

static void shut_connecting(int how)
{
        struct sockaddr_in sa;
        int l = listener(&sa), s = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), c;

        SHOW(connect(s, (void *)&sa, sizeof(sa)));
        SHOW(shutdown(s, how));
        if (how == SHUT_WR)
                SHOW(ready_events(s));
        wait_readable(l);
        c = accept(l, NULL, NULL);
        show_recv(c, 1, 0);
        if (how == SHUT_WR) {
                SHOW(write(c, "late", 4));
                wait_bytes(s, 4);
                show_recv(s, 4, 0);
                SHOW(connect(s, (void *)&sa, sizeof(sa)));
        }
        close(c);
        close(s);
        close(l);
}

/* Over loopback it is connected when connect() returns, though that says EINPROGRESS. */
void scene_shutdown_connecting(void)
{
        shut_connecting(SHUT_WR);
        shut_connecting(SHUT_RDWR);
}

/* A first flight that fills the window, and has more behind it: who reads that and closes has not
 * read all. */
void scene_closes_unread(void)
{
        static char flight[100000], b[65536];

        for (int i = 0; i < 5; i++) {
                int v[2];

                tcp_pair(v);
                SHOW(send(v[0], flight, sizeof(flight), MSG_DONTWAIT));
                wait_readable(v[1]);
                SHOW_OK(recv(v[1], b, sizeof(b), 0));
                close(v[1]);
                wait_readable(v[0]);
                SHOW(recv(v[0], b, 1, 0));
                close(v[0]);
        }
}

/* ---- a peer of another process that has closed, and then does something else ---- */

static void end_of_peer(int how, int c)
{
        static const struct linger linger = {1, 5};

        if (how == 1)
                shutdown(c, SHUT_WR);
        if (how == 2)
                setsockopt(c, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
        if (how == 4)
                shutdown(c, SHUT_RDWR);
        else if (how != 3)
                close(c);
}

static void peer_that_closes(int how, int to, int from)
{
        struct sockaddr_in sa;
        int l = listener(&sa), c;
        char b;

        if (write(to, &sa, sizeof(sa)) != sizeof(sa) || (c = accept(l, NULL, NULL)) < 0)
                _exit(1);
        recv(c, &b, 1, 0);
        send(c, "bye", 3, 0);
        end_of_peer(how, c);
        if (how != 3) {
                write(to, "", 1);
                read(from, &b, 1);
        }
        _exit(0);
}

static void send_to_closed(int how)
{
        int to_us[2], to_peer[2], s, err;
        socklen_t len = sizeof(err);
        struct sockaddr_in sa;
        char b[8];
        pid_t pid;

        pipe(to_us);
        pipe(to_peer);
        fflush(stdout);
        pid = fork();
        if (pid == 0)
                peer_that_closes(how, to_us[1], to_peer[0]);
        read(to_us[0], &sa, sizeof(sa));
        s = socket(AF_INET, SOCK_STREAM, 0);
        SHOW(connect(s, (void *)&sa, sizeof(sa)));
        SHOW(send(s, "x", 1, 0));
        SHOW(recv(s, b, sizeof(b), MSG_WAITALL));
        if (how == 3)
                waitpid(pid, NULL, 0);
        else
                read(to_us[0], b, 1);
        SHOW(ready_events(s));
        SHOW(send(s, "1", 1, MSG_NOSIGNAL));
        SHOW(ready_events(s));
        SHOW(send(s, "2", 1, MSG_NOSIGNAL));
        SHOW(send(s, "3", 1, MSG_NOSIGNAL));
        SHOW(getsockopt(s, SOL_SOCKET, SO_ERROR, &err, &len));
        SHOW(err);
        SHOW(recv(s, b, sizeof(b), 0));
        SHOW(ready_events(s));
        write(to_peer[1], "", 1);
        if (how != 3)
                waitpid(pid, NULL, 0);
        close(s);
        close2(to_peer);
        close2(to_us);
}

/* The first of what is sent is taken, and what is sent after it fails at once, whatever the peer's
 * process does. */
void scene_send_to_closed(void)
{
        for (int how = 0; how < 5; how++)
                send_to_closed(how);
}

/* ---- a listener of another process that ends, with connections that nobody has accepted ---- */

static void listener_that_ends(int how, int to, int from)
{
        struct sockaddr_in sa;
        int l = listener(&sa);
        char b;

        write(to, &sa, sizeof(sa));
        read(from, &b, 1);
        if (how == 0)
                close(l);
        if (how == 1)
                shutdown(l, SHUT_RDWR);
        if (how != 2) {
                write(to, "", 1);
                read(from, &b, 1);
        }
        _exit(0);
}

static void connect_to_ending(int how)
{
        int to_us[2], to_peer[2], c[5], err;
        socklen_t len = sizeof(err);
        struct sockaddr_in sa;
        struct pollfd p;
        pid_t pid;
        char b;

        pipe(to_us);
        pipe(to_peer);
        fflush(stdout);
        pid = fork();
        if (pid == 0)
                listener_that_ends(how, to_us[1], to_peer[0]);
        read(to_us[0], &sa, sizeof(sa));
        for (int i = 0; i < 5; i++) {
                c[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
                SHOW(connect(c[i], (void *)&sa, sizeof(sa)));
        }
        write(to_peer[1], "", 1);
        if (how == 2)
                waitpid(pid, NULL, 0);
        else
                read(to_us[0], &b, 1);
        for (int i = 0; i < 5; i++) {
                p = (struct pollfd){.fd = c[i], .events = POLLIN | POLLRDHUP};
                SHOW(poll(&p, 1, LONG));
                SHOW(p.revents);
                SHOW(getsockopt(c[i], SOL_SOCKET, SO_ERROR, &err, &len));
                SHOW(err);
                close(c[i]);
        }
        write(to_peer[1], "", 1);
        if (how != 2)
                waitpid(pid, NULL, 0);
        close2(to_peer);
        close2(to_us);
}

/* They are reset, not refused. */
void scene_listener_ends_elsewhere(void)
{
        for (int how = 0; how < 3; how++)
                connect_to_ending(how);
}
