/* What the scenes of shim_calls and shim_shared begin with. */
#include "tests/shim/calls.h"

const char *name_of(long r)
{
        return r < 0 ? strerrorname_np(errno) : "ok";
}

void show_bytes(const char *what, const char *p, ssize_t n)
{
        printf("  %s: %zd '%.*s'\n", what, n, n > 0 ? (int)n : 0, p);
}

void die(const char *what)
{
        printf("  %s: %s\n", what, strerror(errno));
        exit(1);
}

struct sockaddr_in loopback(void)
{
        return (struct sockaddr_in){.sin_family = AF_INET,
                                    .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

int listener(struct sockaddr_in *sa)
{
        socklen_t len = sizeof(*sa);
        int l = socket(AF_INET, SOCK_STREAM, 0), on = 1;

        *sa = loopback();
        setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
        if (l < 0 || bind(l, (void *)sa, sizeof(*sa)) < 0 || listen(l, 16) < 0 ||
            getsockname(l, (void *)sa, &len) < 0)
                die("listener");
        return l;
}

void close2(int v[2])
{
        close(v[0]);
        close(v[1]);
}

void wait_bytes(int fd, int n)
{
        int there = 0;

        for (int i = 0; i < LONG && there < n; i++) {
                ioctl(fd, FIONREAD, &there);
                poll(NULL, 0, there < n);
        }
}

short ready_events(int fd)
{
        struct pollfd p = {.fd = fd, .events = POLLIN | POLLOUT | POLLRDHUP | POLLPRI};

        poll(&p, 1, 0);
        return p.revents;
}

void wait_events(int fd, short events)
{
        struct pollfd p = {.fd = fd, .events = events};

        poll(&p, 1, LONG);
}

void show_recv(int fd, size_t n, int flags)
{
        char b[64];

        show_bytes("recv", b, recv(fd, b, n, flags));
}
