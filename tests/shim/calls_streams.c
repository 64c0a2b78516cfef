/* Streams on sockets: the standard ones, those that were there before the socket, and those of
 * programs that inherit. */
#include "tests/shim/calls.h"

#include <wchar.h>

/* fd takes the place of number n while fn runs. */
static void standing_for(int n, int fd, void (*fn)(void))
{
        int saved = dup(n);

        fflush(NULL);
        dup2(fd, n);
        fn();
        fflush(NULL);
        dup2(saved, n);
        close(saved);
}

static void print_things(void)
{
        printf("printed %d\n", 1);
        puts("put");
        fwrite("written\n", 1, 8, stdout);
        fflush(stdout);
}

static void complain(void)
{
        errno = ENOENT;
        perror("perror");
        fprintf(stderr, "%s\n", "to stderr");
}

static char got_line[32];

static void take_line(void)
{
        if (!fgets(got_line, sizeof(got_line), stdin))
                snprintf(got_line, sizeof(got_line), "error %d, end %d\n", ferror(stdin),
                         feof(stdin));
        clearerr(stdin);
}

/* All that comes within what is there to come: `n` bytes. */
static void show_next(const char *what, int fd, int n)
{
        char b[128];

        show_bytes(what, b, recv(fd, b, (size_t)n, MSG_WAITALL));
}

void scene_standard_streams(void)
{
        int v[2];

        tcp_pair(v);
        standing_for(STDOUT_FILENO, v[0], print_things);
        show_next("stdout", v[1], 22);
        standing_for(STDERR_FILENO, v[0], complain);
        show_next("stderr", v[1], 44);
        SHOW(write(v[0], "first\nsecond\n", 13));
        for (int i = 0; i < 2; i++) {
                standing_for(STDIN_FILENO, v[1], take_line);
                printf("  line: %s", got_line);
        }
        shutdown(v[0], SHUT_WR);
        standing_for(STDIN_FILENO, v[1], take_line);
        printf("  after the end: %s", got_line);
        close2(v);
}

/* The stream is there first: of a socket that connects later, of one that is copied to its number,
 * and a wide one. */
void scene_streams_before(void)
{
        struct sockaddr_in sa;
        int l = listener(&sa), s = socket(AF_INET, SOCK_STREAM, 0), v[2],
            null = open("/dev/null", O_RDWR);
        FILE *early = fdopen(s, "w"), *copied = fdopen(null, "w"), *wide;
        int c;

        SHOW(connect(s, (void *)&sa, sizeof(sa)));
        c = accept(l, NULL, NULL);
        SHOW(fputs("early", early));
        SHOW(fclose(early));
        show_next("read", c, 6);
        close(c);
        close(l);
        tcp_pair(v);
        dup2(v[0], null);
        SHOW(fputs("copied", copied));
        SHOW(fflush(copied));
        show_next("read", v[1], 6);
        SHOW(fclose(copied));
        wide = fdopen(v[0], "w+");
        SHOW(fputws(L"wide", wide));
        SHOW(fflush(wide));
        show_next("read", v[1], 4);
        SHOW(fseek(wide, 0, SEEK_SET));
        SHOW(errno);
        SHOW(ftell(wide));
        signal(SIGPIPE, SIG_IGN);
        shutdown(v[0], SHUT_WR);
        SHOW(fputws(L"wide", wide));
        SHOW(fflush(wide));
        SHOW(errno);
        SHOW(ferror(wide) != 0);
        SHOW(fclose(wide));
        signal(SIGPIPE, SIG_DFL);
        close(v[1]);
}

/* A stream on a socket opens a file instead: what it had written goes out before the end. */
void scene_streams_reopened(void)
{
        int v[2];
        FILE *fp;

        tcp_pair(v);
        fp = fdopen(v[0], "w");
        SHOW(fputs("last", fp));
        fp = freopen("/dev/null", "w", fp);
        SHOW(fileno(fp) == v[0]);
        show_next("read", v[1], 5);
        SHOW(fputs("gone", fp));
        SHOW(fclose(fp));
        SHOW(fcntl(v[0], F_GETFD));
        close(v[1]);
}

/* What inetd does: programs whose stdin and stdout are a connection, all of which use stdio. */
void scene_streams_inherited(void)
{
        static const char *const programs[] = {"cat",
                                               "sed s/o/0/",
                                               "awk '{print NR, $0}'",
                                               "grep o",
                                               "sort -r",
                                               "wc",
                                               "head -n 1",
                                               "tr a-z A-Z",
                                               "printf 'no input\\n'",
                                               "while read x; do echo got $x; done",
                                               "od -c"};

        for (size_t i = 0; i < ARRAY_LEN(programs); i++) {
                char b[256];
                ssize_t n;
                int v[2];
                pid_t pid;

                tcp_pair(v);
                fflush(stdout);
                pid = fork();
                if (pid == 0) {
                        dup2(v[1], 0);
                        dup2(v[1], 1);
                        close2(v);
                        execlp("sh", "sh", "-c", programs[i], (char *)NULL);
                        _exit(127);
                }
                close(v[1]);
                write(v[0], "one\nand two\n", 12);
                shutdown(v[0], SHUT_WR);
                n = recv(v[0], b, sizeof(b), MSG_WAITALL);
                show_bytes(programs[i], b, n);
                waitpid(pid, NULL, 0);
                close(v[0]);
        }
}

static off_t size_of(int fd)
{
        struct stat sb;

        return fstat(fd, &sb) == 0 ? sb.st_size : -1;
}

/* A program has closed its standard error, and what it opens next has the number: the library's log
 * is not for that. */
void scene_log_nowhere(void)
{
        char name[] = "/tmp/unet-calls-XXXXXX", b[512];
        struct sockaddr_in sa;
        int l = listener(&sa), kept = dup(2), c, v[2];

        close(2);
        c = socket(AF_INET, SOCK_STREAM, 0);
        SHOW(c);
        SHOW(connect(c, (void *)&sa, sizeof(sa)));
        v[0] = accept(l, NULL, NULL);
        SHOW(write(c, "mine", 4));
        show_bytes("read", b, read(v[0], b, sizeof(b)));
        close(v[0]);
        close(c);
        c = mkstemp(name);
        SHOW(c);
        tcp_pair(v);
        close2(v);
        SHOW(size_of(c));
        dup2(kept, 2);
        unlink(name);
        close(kept);
        close(l);
}

/* A child of vfork() that puts its own file at number 2 does so in its parent's memory, but not for
 * its parent: that logs on. */
void scene_log_vforked(void)
{
        pid_t pid = vfork();
        int v[2];

        if (pid == 0) {
                dup2(open("/dev/null", O_WRONLY), 2);
                _exit(0);
        }
        waitpid(pid, NULL, 0);
        tcp_pair(v);
        close2(v);
}

/* Bits that no event has, asked for beside some that are. */
void scene_unknown_events(void)
{
        struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT | 0x5800}, out;
        struct pollfd p = {.events = POLLIN | POLLOUT | 0x5800};
        int v[2], set = epoll_create1(0);

        tcp_pair(v);
        SHOW(write(v[0], "here", 4));
        wait_readable(v[1]);
        p.fd = v[1];
        SHOW(poll(&p, 1, LONG));
        printf("  %x\n", (unsigned)p.revents);
        SHOW(epoll_ctl(set, EPOLL_CTL_ADD, v[1], &ev));
        SHOW(epoll_wait(set, &out, 1, LONG));
        printf("  %x\n", out.events);
        close(set);
        close2(v);
}
