/*
 * shim_calls, ports: who has had one, when the next one gets it, and who answers whom.
 */
#include "tests/pass_fd.h"
#include "tests/shim/calls.h"

enum how { EXITS, KILLED, SPAWNED, IN_MESSAGE, HOWS };

/* A server at *sa, 0 or the error. */
static int serve_at(int type, const struct sockaddr_in *sa, int *fd)
{
        *fd = socket(AF_INET, type, 0);
        setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &(int){type == SOCK_STREAM}, sizeof(int));
        if (bind(*fd, (const void *)sa, sizeof(*sa)) == 0 &&
            (type == SOCK_DGRAM || listen(*fd, 5) == 0))
                return 0;
        return errno;
}

/* At a port that nobody is given by chance when it is free for a moment. */
static int serve_somewhere(int type, struct sockaddr_in *sa)
{
        int fd;

        *sa = loopback();
        do
                sa->sin_port = htons((uint16_t)(5000 + random() % 25000));
        while (serve_at(type, sa, &fd) != 0 && close(fd) == 0);
        return fd;
}

static void end_with_it(enum how how)
{
        if (how == KILLED)
                raise(SIGKILL);
        _exit(0);
}

/* Another one has it, beside this process, and is gone when this returns. */
static void is_had(enum how how, int fd)
{
        char *argv[] = {(char *)"true", NULL};
        pid_t pid = -1;
        int v[2];

        switch (how) {
        case EXITS:
        case KILLED:
                fflush(stdout);
                pid = fork();
                if (pid == 0)
                        end_with_it(how);
                break;
        case SPAWNED:
                if (posix_spawnp(&pid, "true", NULL, NULL, argv, environ) != 0)
                        die("posix_spawnp");
                break;
        default:
                socketpair(AF_UNIX, SOCK_STREAM, 0, v);
                if (pass_fd(v[0], fd) < 0)
                        die("sendmsg");
                close2(v);
                return;
        }
        waitpid(pid, NULL, 0);
}

/* Who asks there reaches this server, and no one else. */
static bool is_reached(int type, int fd, const struct sockaddr_in *sa)
{
        int by = socket(AF_INET, type, 0), it = -1;
        struct pollfd p = {fd, POLLIN, 0};
        bool reached;

        connect(by, (const void *)sa, sizeof(*sa));
        write(by, "here", 4);
        reached = poll(&p, 1, LONG) == 1;
        if (reached && type == SOCK_STREAM)
                it = accept(fd, NULL, NULL);
        close(by);
        close(it);
        return reached;
}

/* A port is free when its last holder is no more, at once: a server that is started again
 * gets it. */
void scene_port_again(void)
{
        static const char *const name[] = {"exits", "killed", "spawned", "in a message"};

        srandom((unsigned)getpid());
        for (int type = SOCK_STREAM; type <= SOCK_DGRAM; type++)
                for (enum how how = 0; how < HOWS; how++) {
                        struct sockaddr_in sa;
                        int fd = serve_somewhere(type, &sa), err = 0;

                        for (int i = 0; i < 15 && err == 0; i++) {
                                is_had(how, fd);
                                close(fd);
                                err = serve_at(type, &sa, &fd);
                                if (err == 0 && !is_reached(type, fd, &sa))
                                        err = ENOTCONN;
                        }
                        printf("  %s, %s: %s\n", type == SOCK_STREAM ? "TCP" : "UDP", name[how],
                               strerror(err));
                        close(fd);
                }
}

/* A server that looks at the first datagram, connects to whoever sent it, and reads it then: it is
 * still there, and so is what comes after it, from that peer alone. The peer is bound, or
 * connected, or neither, or has left. */
void scene_udp_answered(void)
{
        for (int how = 0; how < 4; how++) {
                struct sockaddr_in sa, at = loopback(), peer;
                int fd = udp_socket(&sa), other = socket(AF_INET, SOCK_DGRAM, 0);
                int by = socket(AF_INET, SOCK_DGRAM, 0);
                socklen_t len = sizeof(peer);
                char b[16];

                if (how == 0)
                        SHOW(bind(by, (void *)&at, sizeof(at)));
                if (how == 1)
                        SHOW(connect(by, (void *)&sa, sizeof(sa)));
                SHOW(sendto(by, "first", 5, 0, how == 1 ? NULL : (void *)&sa,
                            how == 1 ? 0 : sizeof(sa)));
                if (how == 3)
                        close(by);
                SHOW(recvfrom(fd, b, sizeof(b), MSG_PEEK, (void *)&peer, &len));
                SHOW(connect(fd, (void *)&peer, len));
                show_bytes("read", b, recv(fd, b, sizeof(b), MSG_DONTWAIT));
                if (how == 3) {
                        close2((int[]){fd, other});
                        break;
                }
                SHOW_OK(sendto(other, "stranger", 8, 0, (void *)&sa, sizeof(sa)));
                SHOW(sendto(by, "second", 6, 0, how == 1 ? NULL : (void *)&sa,
                            how == 1 ? 0 : sizeof(sa)));
                wait_readable(fd);
                show_bytes("read", b, read(fd, b, sizeof(b)));
                SHOW(write(fd, "back", 4));
                wait_readable(by);
                show_bytes("read", b, read(by, b, sizeof(b)));
                close(fd);
                close(other);
                close(by);
        }
}

static int refused(int fd, int times)
{
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int n = 0;
        char b;

        for (int i = 0; i < times && send(fd, "ping", 4, 0) == 4 && poll(&p, 1, LONG) == 1; i++)
                n += recv(fd, &b, 1, 0) < 0 && errno == ECONNREFUSED;
        return n;
}

/* A port that nobody has, and one that speaks to somebody else: who asks is told, however often. */
void scene_refused_each_time(void)
{
        struct sockaddr_in own, sa, other;
        int s = udp_socket(&own), t = udp_socket(&sa), o = udp_socket(&other);

        SHOW(connect(s, (void *)&sa, sizeof(sa)));
        SHOW(connect(t, (void *)&other, sizeof(other)));
        SHOW(refused(s, 30));
        close(t);
        SHOW(refused(s, 30));
        close(s);
        close(o);
}

/* A child reads what came by a way that there was not when it was forked. */
void scene_udp_later(void)
{
        struct sockaddr_in sa;
        int fd = udp_socket(&sa), by = socket(AF_INET, SOCK_DGRAM, 0), go[2], got[2];
        static char b[1400];
        ssize_t n;

        if (pipe(go) != 0 || pipe(got) != 0)
                return;
        if (fork() == 0) {
                (void)!read(go[0], b, 1);
                n = recv(fd, b, sizeof(b), 0);
                for (size_t i = 0; i < sizeof(b); i++)
                        n -= b[i] != 'b';
                (void)!write(got[1], &n, sizeof(n));
                _exit(0);
        }
        memset(b, 'b', sizeof(b));
        for (int i = 0; i < 2; i++)
                SHOW(sendto(by, b, sizeof(b), 0, (void *)&sa, sizeof(sa)));
        wait_readable(fd);
        SHOW(recv(fd, b, sizeof(b), 0));
        wait_readable(fd); /* the second one lies in the queue */
        (void)!write(go[1], "", 1);
        if (read(got[0], &n, sizeof(n)) == sizeof(n))
                printf("  the child has %zd bytes as they were sent\n", n);
        wait(NULL);
        close2(go);
        close2(got);
        close2((int[]){fd, by});
}

/* ---- one of several that have a port ---- */

/* Answers with its number, until it is asked to leave; then it closes, and stays. */
static void answers(struct sockaddr_in at, char number, int ready)
{
        int fd = socket(AF_INET, SOCK_DGRAM, 0);
        struct sockaddr_in from;
        socklen_t len = sizeof(at);
        char b = 0;

        setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &(int){1}, sizeof(int));
        if (bind(fd, (void *)&at, sizeof(at)) < 0 || getsockname(fd, (void *)&at, &len) < 0)
                die("bind");
        write(ready, &at, sizeof(at));
        while (b != 'q' && recvfrom(fd, &b, 1, 0, (void *)&from, &len) == 1)
                sendto(fd, &number, 1, 0, (void *)&from, len);
        close(fd);
        pause();
}

/* A client that is connected to one of them hears from the others when it leaves: of a port that is
 * closed it is not told. */
void scene_reuseport_leaves(void)
{
        struct timeval tv = {.tv_usec = 20000};
        int c, begun[2], refused = 0;
        struct sockaddr_in sa = loopback();
        char first = 0, now = 0;
        pid_t pid[2];

        if (pipe(begun) < 0)
                die("pipe");
        fflush(stdout);
        for (int i = 0; i < 2;
             i++) { /* before there is a socket here: each has a stack of its own */
                pid[i] = fork();
                if (pid[i] == 0)
                        answers(sa, (char)('0' + i), begun[1]);
                read(begun[0], &sa, sizeof(sa));
        }
        c = socket(AF_INET, SOCK_DGRAM, 0);
        SHOW(connect(c, (void *)&sa, sizeof(sa)));
        SHOW(setsockopt(c, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)));
        SHOW(send(c, "q", 1, 0));
        while (recv(c, &first, 1, 0) < 0)
                ;
        for (now = first; now == first;) {
                refused += send(c, "?", 1, 0) < 0 && errno == ECONNREFUSED;
                refused += recv(c, &now, 1, 0) < 0 && errno == ECONNREFUSED;
        }
        SHOW(refused);
        for (int i = 0; i < 2; i++) {
                kill(pid[i], SIGKILL);
                waitpid(pid[i], NULL, 0);
        }
        close2(begun);
        close(c);
}

/* Two connections never have the same two ends, whoever carries them. */
void scene_same_ends(void)
{
        struct sockaddr_in to, from = loopback();
        socklen_t len = sizeof(from);
        int l = listener(&to), s[2], on = 1, c;

        for (int i = 0; i < 2; i++) {
                s[i] = socket(AF_INET, SOCK_STREAM, 0);
                setsockopt(s[i], SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
                SHOW(bind(s[i], (void *)&from, sizeof(from)));
                getsockname(s[i], (void *)&from, &len);
        }
        SHOW(connect(s[0], (void *)&to, sizeof(to)));
        SHOW(connect(s[1], (void *)&to, sizeof(to)));
        SHOW(connect(s[1], (void *)&to, sizeof(to)));
        c = accept(l, NULL, NULL);
        close(s[0]);
        SHOW(read(c, &on, 1));
        SHOW(connect(s[1], (void *)&to, sizeof(to))); /* the first one is not quite gone */
        close(c);
        SHOW(close(s[1]));
        close(l);
}
