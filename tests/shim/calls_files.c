/*
 * shim_calls, numbers of descriptors, and what else takes one: streams, sendfile, messages.
 */
#include "tests/shim/calls.h"

void scene_dup(void)
{
        char b[8];
        int v[2], d, e;

        tcp_pair(v);
        d = dup(v[0]);
        e = fcntl(v[0], F_DUPFD_CLOEXEC, 50);
        SHOW(e >= 50);
        SHOW(fcntl(e, F_GETFD));
        close(v[0]);
        SHOW(write(d, "dup", 3));
        show_bytes("read", b, read(v[1], b, sizeof(b)));
        SHOW(dup2(e, 60));
        SHOW(dup3(e, 61, O_CLOEXEC));
        SHOW(__dup2(61, 62));
        SHOW(dup3(e, e, 0));
        SHOW(dup2(999, 60));
        close(d);
        close(e);
        SHOW(write(60, "two", 3));
        show_bytes("read", b, read(v[1], b, sizeof(b)));
        close(60);
        close(61);
        SHOW(write(62, "x", 1));
        SHOW(fcntl(62, F_SETFL, O_NONBLOCK));
        show_bytes("read", b, read(v[1], b, sizeof(b)));
        close(62);
        SHOW(read(v[1], b, sizeof(b)));
        close(v[1]);
}

void scene_close_range(void)
{
        char b[8];
        int v[2], w[2];

        tcp_pair(v);
        tcp_pair(w);
        dup2(v[0], 100);
        dup2(w[0], 101);
        close(v[0]);
        close(w[0]);
        SHOW(close_range(100, 100, 0));
        SHOW(read(v[1], b, sizeof(b)));
        SHOW(write(101, "alive", 5));
        SHOW(read(w[1], b, sizeof(b)));
        closefrom(101);
        SHOW(read(w[1], b, sizeof(b)));
        SHOW(close_range(5, 4, 0));
        close(v[1]);
        close(w[1]);
        tcp_pair(v);
        SHOW(write(v[0], "again", 5));
        SHOW(read(v[1], b, sizeof(b)));
        close2(v);
}

#define PEERS 60

/* Waits for its byte, with a stack of its own. */
static int wait_for_byte(int come)
{
        int s = socket(AF_INET, SOCK_STREAM, 0);
        struct sockaddr_in sa;
        char c;

        read(come, &sa, sizeof(sa));
        return connect(s, (void *)&sa, sizeof(sa)) == 0 && read(s, &c, 1) == 1 ? 0 : 1;
}

static int count_open_above(int fd)
{
        DIR *d = opendir("/proc/self/fd");
        struct dirent *e;
        int n = 0;

        while ((e = readdir(d)))
                n += atoi(e->d_name) > fd && atoi(e->d_name) != dirfd(d);
        closedir(d);
        return n;
}

/* Who closes all that he does not know closes nothing of the library's, which needs many numbers
 * for many peers. */
void scene_close_range_peers(void)
{
        int come[2], v[PEERS], l, last, open, got = 0, served = 0, status;
        struct sockaddr_in sa;

        pipe(come);
        fflush(stdout);
        for (int i = 0; i < PEERS; i++)
                if (fork() == 0)
                        _exit(wait_for_byte(come[0]));
        l = listener(&sa);
        for (int i = 0; i < PEERS; i++) {
                write(come[1], &sa, sizeof(sa));
                got += (v[i] = accept(l, NULL, NULL)) >= 0;
        }
        SHOW(got);
        last = v[PEERS - 1];
        open = count_open_above(last);
        SHOW(close_range((unsigned)last + 1, ~0u, 0));
        SHOW(count_open_above(last) - open);
        for (int i = 0; i < PEERS; i++) {
                write(v[i], "x", 1);
                close(v[i]);
        }
        for (int i = 0; i < PEERS; i++)
                served += wait(&status) > 0 && status == 0;
        SHOW(served);
        close(l);
        close2(come);
}

/* A number that was ours and is now something else must be something else. */
static void reused(const char *what, int fd, int was)
{
        int type = 0;
        socklen_t len = sizeof(type);

        printf("  %s: same number %d, as a socket %s\n", what, fd == was,
               name_of(getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len)));
        close(fd);
}

/* The lowest free number, a moment ago a connection, closed where no hook can see. */
static int gone_number(void)
{
        int v[2];

        tcp_pair(v);
        dup2(v[0], v[0] - 1); /* where the listener was */
        for (int fd = v[0] - 1; fd <= v[1]; fd++)
                sys1(SYS_close, fd);
        return v[0] - 1;
}

void scene_new_numbers(void)
{
        char t[32];
        sigset_t none;
        int p[2];

        sigemptyset(&none);
#define REUSED(call)                      \
        do {                              \
                int was = gone_number();  \
                reused(#call, call, was); \
        } while (0)
        REUSED(open("/dev/zero", O_RDONLY));
        REUSED(__open("/dev/zero", O_RDONLY));
        REUSED(__open_2("/dev/zero", O_RDONLY));
        REUSED(open64("/dev/zero", O_RDONLY));
        REUSED(__open64("/dev/zero", O_RDONLY));
        REUSED(__open64_2("/dev/zero", O_RDONLY));
        REUSED(openat(AT_FDCWD, "/dev/zero", O_RDONLY));
        REUSED(__openat_2(AT_FDCWD, "/dev/zero", O_RDONLY));
        REUSED(openat64(AT_FDCWD, "/dev/zero", O_RDONLY));
        REUSED(__openat64_2(AT_FDCWD, "/dev/zero", O_RDONLY));
        REUSED(creat("/dev/null", 0600));
        REUSED(creat64("/dev/null", 0600));
        REUSED(eventfd(1, 0));
        REUSED(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK));
        REUSED(signalfd(-1, &none, SFD_NONBLOCK));
        REUSED(inotify_init());
        REUSED(inotify_init1(IN_NONBLOCK));
        REUSED(memfd_create("x", 0));
        REUSED(posix_openpt(O_RDWR | O_NOCTTY));
        REUSED(epoll_create(1));
        REUSED(epoll_create1(0));
        REUSED(socket(AF_UNIX, SOCK_STREAM, 0));
        REUSED(dup(0));
        REUSED((strcpy(t, "/tmp/callsXXXXXX"), mkstemp(t)));
        unlink(t);
        REUSED((strcpy(t, "/tmp/callsXXXXXX"), mkstemp64(t)));
        unlink(t);
        REUSED((strcpy(t, "/tmp/callsXXXXXX"), mkostemp(t, 0)));
        unlink(t);
        REUSED((strcpy(t, "/tmp/callsXXXXXX"), mkostemp64(t, 0)));
        unlink(t);
        REUSED((snprintf(t, sizeof(t), "/calls%d", (int)getpid()),
                shm_open(t, O_RDWR | O_CREAT, 0600)));
        shm_unlink(t);
        REUSED((pipe(p), close(p[1]), p[0]));
        REUSED((__pipe(p), close(p[1]), p[0]));
        REUSED((pipe2(p, O_NONBLOCK), close(p[1]), p[0]));
        REUSED((socketpair(AF_UNIX, SOCK_STREAM, 0, p), close(p[1]), p[0]));
        REUSED(pidfd_open(getpid(), 0));
        (void)fanotify_init(FAN_CLASS_NOTIF, O_RDONLY);
}

/* ---- streams ---- */

static void stream(const char *what, FILE *fp, int was)
{
        char b[8];

        printf("  %s: %s, same number %d, fread %zu\n", what, fp ? "ok" : "no",
               fp && fileno(fp) == was, fp ? fread(b, 1, 0, fp) : 0);
        if (fp)
                fclose(fp);
}

void scene_stdio(void)
{
        char line[32], b[32];
        int v[2], was;
        FILE *fp;
        DIR *d;

        tcp_pair(v);
        fp = fdopen(v[0], "r+");
        SHOW(fileno(fp) == v[0]);
        SHOW(fprintf(fp, "hello %d\n", 1));
        SHOW(fflush(fp));
        show_bytes("read", b, read(v[1], b, sizeof(b)) - 1);
        write(v[1], "one\ntwo\n", 8);
        SHOW(fgets(line, sizeof(line), fp) != NULL);
        show_bytes("line", line, 3);
        SHOW(fgets(line, sizeof(line), fp) != NULL);
        SHOW(dprintf(v[0], "%s", "printed"));
        show_bytes("read", b, read(v[1], b, sizeof(b)));
        SHOW(__dprintf_chk(v[0], 1, "%d", 42));
        show_bytes("read", b, read(v[1], b, sizeof(b)));
        SHOW(fclose(fp));
        SHOW(read(v[1], b, sizeof(b)));
        close(v[1]);
        SHOW(fcntl(v[0], F_GETFD));
#define STREAM(call)                      \
        do {                              \
                was = gone_number();      \
                stream(#call, call, was); \
        } while (0)
        STREAM(fopen("/dev/zero", "r"));
        STREAM(fopen64("/dev/zero", "r"));
        STREAM(tmpfile());
        STREAM(tmpfile64());
        STREAM(freopen("/dev/zero", "r", fopen("/dev/null", "r")));
        STREAM(freopen64("/dev/zero", "r", fopen("/dev/null", "r")));
        was = gone_number();
        fp = popen("true", "r");
        SHOW(fileno(fp) == was);
        SHOW(fread(b, 1, 1, fp));
        pclose(fp);
        was = gone_number();
        d = opendir("/");
        SHOW(dirfd(d) == was);
        SHOW(readdir(d) != NULL);
        closedir(d);
}

static void vprint(int fd, const char *format, ...)
{
        va_list ap;

        va_start(ap, format);
        vdprintf(fd, format, ap);
        va_end(ap);
        va_start(ap, format);
        __vdprintf_chk(fd, 1, format, ap);
        va_end(ap);
}

void scene_vdprintf(void)
{
        char b[32];
        int v[2];

        tcp_pair(v);
        vprint(v[0], "%d-", 7);
        show_bytes("recv", b, recv(v[1], b, 4, MSG_WAITALL));
        close2(v);
}

/* ---- sendfile, splice ---- */

void scene_sendfile(void)
{
        char b[64];
        FILE *tmp = tmpfile();
        int in = fileno(tmp), v[2], p[2];
        off_t off = 2;
        off64_t off64 = 0;

        tcp_pair(v);
        write(in, "0123456789", 10);
        lseek(in, 1, SEEK_SET);
        SHOW(sendfile(v[0], in, NULL, 3));
        SHOW(lseek(in, 0, SEEK_CUR));
        SHOW(sendfile(v[0], in, &off, 4));
        SHOW(off);
        SHOW(lseek(in, 0, SEEK_CUR));
        SHOW(sendfile64(v[0], in, &off64, 100));
        SHOW(off64);
        SHOW(sendfile64(v[0], in, &off64, 100));
        show_bytes("recv", b, recv(v[1], b, 17, MSG_WAITALL));
        pipe(p);
        write(p[1], "through a pipe", 14);
        SHOW(splice(p[0], NULL, v[0], NULL, 64, 0));
        show_bytes("recv", b, recv(v[1], b, 14, MSG_WAITALL));
        write(v[1], "and back", 8);
        SHOW(splice(v[0], NULL, p[1], NULL, 64, SPLICE_F_MOVE));
        show_bytes("pipe", b, read(p[0], b, sizeof(b)));
        fcntl(v[0], F_SETFL, O_NONBLOCK);
        SHOW(splice(v[0], NULL, p[1], NULL, 64, SPLICE_F_NONBLOCK));
        close(p[0]);
        close(p[1]);
        fclose(tmp);
        close2(v);
}

/* More than the pipe has room for: what it takes, and the rest stays where it is. */
void scene_splice_full(void)
{
        static char b[200000];
        struct sockaddr_in a;
        char got[8] = "";
        int v[2], p[2], s = udp_socket(&a), t = socket(AF_INET, SOCK_DGRAM, 0), n = 0;
        ssize_t r;

        alarm(20);
        tcp_pair(v);
        pipe(p);
        write(v[0], b, sizeof(b));
        while (n < (int)sizeof(b) && (r = splice(v[1], NULL, p[1], NULL, sizeof(b), 0)) > 0) {
                n += (int)r;
                for (ssize_t left = r; left > 0; left -= r)
                        r = read(p[0], b, (size_t)left);
        }
        SHOW(n);
        fcntl(p[1], F_SETFL, O_NONBLOCK);
        while (write(p[1], b, 4096) > 0)
                ;
        write(v[0], "later", 5);
        wait_bytes(v[1], 5);
        SHOW(splice(v[1], NULL, p[1], NULL, 64, SPLICE_F_NONBLOCK));
        SHOW(splice(v[1], NULL, p[1], NULL, 64, 0));
        sendto(t, "kept", 4, 0, (struct sockaddr *)&a, sizeof(a));
        wait_readable(s);
        SHOW(splice(s, NULL, p[1], NULL, 64, 0));
        show_bytes("recv", got, recv(s, got, sizeof(got), MSG_DONTWAIT));
        show_bytes("recv", got, recv(v[1], got, sizeof(got), MSG_DONTWAIT));
        close2(p);
        close2(v);
        close(s);
        close(t);
        alarm(0);
}

/* Where the file ends, so does what is to come. */
void scene_sendfile_beyond(void)
{
        char b[20] = "";
        FILE *tmp = tmpfile();
        off_t off = 0;
        int v[2];

        tcp_pair(v);
        write(fileno(tmp), "to the very end", 15);
        for (int i = 0; i < 2; i++, off = 0) {
                struct pollfd p = {.fd = v[1], .events = POLLIN};
                SHOW(sendfile(v[0], fileno(tmp), &off, 1 << 20));
                SHOW(poll(&p, 1, 100));
                show_bytes("recv", b, recv(v[1], b, 15, MSG_WAITALL));
        }
        fclose(tmp);
        close2(v);
}

/* ---- sockets in messages ---- */

/* What a message of one byte and a descriptor consists of. */
struct passing {
        char byte;
        struct iovec iov;
        union {
                struct cmsghdr h;
                char room[CMSG_SPACE(sizeof(int))];
        } control; /* last: struct cmsghdr ends with what is behind it */
};

/* The message, to be sent, or to be received into. */
static struct msghdr message(struct passing *p, int fd)
{
        *p = (struct passing){.byte = 'x', .iov = {&p->byte, 1}};
        p->control.h = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(fd)),
                                        .cmsg_level = SOL_SOCKET,
                                        .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(&p->control.h), &fd, sizeof(fd));
        return (struct msghdr){.msg_iov = &p->iov,
                               .msg_iovlen = 1,
                               .msg_control = &p->control,
                               .msg_controllen = sizeof(p->control)};
}

static int passed(const struct passing *p)
{
        int fd;

        memcpy(&fd, CMSG_DATA(&p->control.h), sizeof(fd));
        return fd;
}

/* No program reads beyond what it was given because of what it says. */
void scene_rights_of_a_wrong_length(void)
{
        static const size_t lengths[] = {0, sizeof(struct cmsghdr) - 1, CMSG_LEN(1000), SIZE_MAX};
        struct passing p;
        struct msghdr m;
        int u[2], v[2];

        tcp_pair(v);
        socketpair(AF_UNIX, SOCK_STREAM, 0, u);
        for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
                m = message(&p, v[1]);
                p.control.h.cmsg_len = lengths[i];
                SHOW(sendmsg(u[0], &m, 0));
        }
        m = message(&p, v[1]);
        SHOW(sendmsg(u[0], &m, 0));
        close2(u);
        close2(v);
}

/* From more programs than a process has room for stacks: with those that come too late it can
 * do nothing. */
void scene_rights_strangers(void)
{
        struct passing p;
        struct msghdr m;
        int u[2], v[2], fd[20], right = 0;
        pid_t pid[ARRAY_LEN(fd)];
        char b;

        socketpair(AF_UNIX, SOCK_STREAM, 0, u);
        for (size_t i = 0; i < ARRAY_LEN(fd); i++) {
                pid[i] = fork();
                if (pid[i] == 0) {
                        tcp_pair(v);
                        write(v[0], "x", 1);
                        m = message(&p, v[1]);
                        sendmsg(u[0], &m, 0);
                        pause();
                }
                m = message(&p, -1);
                recvmsg(u[1], &m, 0);
                fd[i] = passed(&p);
                right += read(fd[i], &b, 1) == 1;
        }
        SHOW(right >= 16);
        for (size_t i = 0; i < ARRAY_LEN(fd); i++) {
                kill(pid[i], SIGKILL);
                waitpid(pid[i], NULL, 0);
                close(fd[i]);
        }
        close2(u);
}

/* A descriptor sent to ourselves is another number of the same connection. */
void scene_rights(void)
{
        struct passing p;
        struct msghdr m;
        char b[8];
        int u[2], v[2], fd;

        tcp_pair(v);
        write_much(v[0]);
        for (int i = 0; i < 10; i++)
                read_some(v[1], i * 10, 10, 0);
        socketpair(AF_UNIX, SOCK_STREAM, 0, u);
        m = message(&p, v[1]);
        SHOW(sendmsg(u[0], &m, 0));
        read_some(v[1], 100, 10, 0);
        read_some(v[1], 110, 10, 0);
        SHOW(recvmsg(u[1], &m, 0));
        fd = passed(&p);
        SHOW(fd != v[1]);
        read_some(fd, 120, 10, 0);
        read_some(v[1], 130, 10, 0);
        read_some(fd, 140, MUCH - 140, MSG_WAITALL);
        SHOW(write(v[0], "pass", 4));
        show_bytes("read", b, read(fd, b, sizeof(b)));
        close(v[1]);
        SHOW(write(fd, "back", 4));
        show_bytes("read", b, read(v[0], b, sizeof(b)));
        close(fd);
        SHOW(read(v[0], b, sizeof(b)));
        close(v[0]);
        close2(u);
}

/* Whoever passes a socket on closes his own at once; it lives in the message. Received late,
 * or never. */
void scene_rights_in_flight(void)
{
        struct passing p;
        struct msghdr m;
        char b[8];
        int u[2], v[2], fd;

        for (int lost = 0; lost < 2; lost++) {
                struct pollfd peer = {.events = POLLIN};

                tcp_pair(v);
                peer.fd = v[0];
                write(v[0], "before", 6);
                socketpair(AF_UNIX, SOCK_STREAM, 0, u);
                m = message(&p, v[1]);
                SHOW(sendmsg(u[0], &m, 0));
                SHOW(close(v[1]));
                SHOW(poll(&peer, 1, 700));
                if (!lost) {
                        SHOW(recvmsg(u[1], &m, 0));
                        fd = passed(&p);
                        show_bytes("read", b, read(fd, b, sizeof(b)));
                        SHOW(write(fd, "after", 5));
                        show_bytes("read", b, read(v[0], b, sizeof(b)));
                        SHOW(close(fd));
                }
                close2(u);
                SHOW(poll(&peer, 1, LONG));
                if (!lost)
                        SHOW(read(v[0], b, sizeof(b)));
                close(v[0]);
        }
}

/* Another process receives two sockets with one call, and writes to both. */
static void receive_many(int from)
{
        struct passing p[2];
        struct mmsghdr mm[2];
        int n;

        for (int i = 0; i < 2; i++)
                mm[i].msg_hdr = message(&p[i], -1);
        usleep(1500000); /* the sender's are closed, and the peers wait */
        n = recvmmsg(from, mm, 2, 0, NULL);
        for (int i = 0; i < n; i++)
                write(passed(&p[i]), "one", 3);
        _exit(n == 2 ? 0 : 1);
}

void scene_rights_many(void)
{
        struct passing p[2];
        struct mmsghdr mm[2];
        char b[8];
        int u[2], v[2][2], status;

        socketpair(AF_UNIX, SOCK_SEQPACKET, 0, u);
        tcp_pair(v[0]);
        if (fork() == 0)
                receive_many(u[1]);
        tcp_pair(v[1]);
        for (int i = 0; i < 2; i++)
                mm[i].msg_hdr = message(&p[i], v[i][1]);
        SHOW(sendmmsg(u[0], mm, 2, 0));
        close(v[0][1]);
        close(v[1][1]);
        wait(&status);
        SHOW(status);
        for (int i = 0; i < 2; i++) {
                show_bytes("read", b, read(v[i][0], b, sizeof(b)));
                SHOW(read(v[i][0], b, sizeof(b)));
                close(v[i][0]);
        }
        close2(u);
}

/* The sender ends before the message is received; it was the only process of its stack. */
void scene_rights_outlive(void)
{
        struct passing p;
        struct msghdr m;
        char b[8];
        struct sockaddr_in sa;
        int u[2], s, fd;

        socketpair(AF_UNIX, SOCK_STREAM, 0, u);
        fflush(stdout);
        if (fork() == 0) {
                int l = listener(&sa);

                write(u[0], &sa, sizeof(sa));
                s = accept(l, NULL, NULL);
                m = message(&p, s);
                sendmsg(u[0], &m, 0);
                _exit(0);
        }
        read(u[1], &sa, sizeof(sa));
        s = socket(AF_INET, SOCK_STREAM, 0);
        SHOW(connect(s, (void *)&sa, sizeof(sa)));
        wait(NULL);
        usleep(1500000);
        SHOW(write(s, "there", 5));
        m = message(&p, -1);
        SHOW(recvmsg(u[1], &m, 0));
        fd = passed(&p);
        show_bytes("read", b, read(fd, b, sizeof(b)));
        SHOW(write(fd, "back", 4));
        show_bytes("read", b, read(s, b, sizeof(b)));
        close(fd);
        SHOW(read(s, b, sizeof(b)));
        close(s);
        close2(u);
}
