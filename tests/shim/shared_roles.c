/*
 * shim_shared: the roles that a socket has when it is shared.
 */
#include "tests/shim/shared.h"

struct scene_now now;

int soft(int fd)
{
        fcntl(fd, F_SETFL, O_NONBLOCK);
        return fd;
}

void until_events(int fd, short events)
{
        struct pollfd p = {fd, events, 0};

        if (poll(&p, 1, LONG) != 1)
                die("nothing comes");
}

int udp_at(struct sockaddr_in *sa)
{
        int fd = soft(socket(AF_INET, SOCK_DGRAM, 0));
        socklen_t len = sizeof(*sa);

        *sa = loopback();
        if (bind(fd, (void *)sa, len) < 0 || getsockname(fd, (void *)sa, &len) < 0)
                die("bind");
        return fd;
}

static int connecting(void)
{
        int fd = soft(socket(AF_INET, SOCK_STREAM, 0));

        connect(fd, (void *)&now.at, sizeof(now.at));
        until_events(fd, POLLOUT);
        return fd;
}

static int accepted(void)
{
        until_events(now.listener, POLLIN);
        return soft(accept(now.listener, NULL, NULL));
}

static int is_new(void)
{
        return soft(socket(AF_INET, SOCK_STREAM, 0));
}

static int is_bound(void)
{
        struct sockaddr_in sa = loopback();
        int fd = is_new();

        if (bind(fd, (void *)&sa, sizeof(sa)) < 0)
                die("bind");
        return fd;
}

static int is_listener(void)
{
        struct sockaddr_in sa;
        int fd = soft(listener(&sa));

        now.from = soft(socket(AF_INET, SOCK_STREAM, 0));
        connect(now.from, (void *)&sa, sizeof(sa));
        until_events(fd, POLLIN);
        until_events(now.from, POLLOUT);
        return fd;
}

static int is_connecting(void)
{
        return connecting();
}

static int is_connected(void)
{
        int fd = connecting();

        connect(fd, (void *)&now.at, sizeof(now.at));
        now.peer = accepted();
        return fd;
}

static int is_accepted(void)
{
        int fd;

        now.peer = connecting();
        fd = accepted();
        write(now.peer, "from peer", 9);
        until_events(fd, POLLIN);
        return fd;
}

static int is_ended(void)
{
        int fd = is_accepted();
        struct pollfd p = {fd, POLLRDHUP, 0};

        shutdown(now.peer, SHUT_WR);
        poll(&p, 1, LONG);
        return fd;
}

static int is_udp(void)
{
        return soft(socket(AF_INET, SOCK_DGRAM, 0));
}

static int is_udp_bound(void)
{
        struct sockaddr_in sa;
        int fd = udp_at(&sa);

        sendto(now.udp, "from peer", 9, 0, (void *)&sa, sizeof(sa));
        until_events(fd, POLLIN);
        return fd;
}

static int is_udp_connected(void)
{
        int fd = is_udp();

        connect(fd, (void *)&now.udp_at, sizeof(now.udp_at));
        return fd;
}

/* The peer has gone away with bytes unread: ECONNRESET is to be told. */
static int is_reset(void)
{
        const struct linger at_once = {1, 0};
        int fd = is_accepted();

        setsockopt(now.peer, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
        close(now.peer);
        now.peer = -1;
        until_events(fd, POLLERR);
        return fd;
}

/* Nobody listens there: ECONNREFUSED is to be told. */
static int is_refused(void)
{
        int fd = is_new();

        connect(fd, (void *)&now.udp_at, sizeof(now.udp_at));
        until_events(fd, POLLERR);
        return fd;
}

static int is_half_closed(void)
{
        int fd = is_accepted();
        char b;

        shutdown(fd, SHUT_WR);
        until_events(now.peer, POLLIN);
        recv(now.peer, &b, 1, 0);
        while (int_opt(fd, IPPROTO_TCP, TCP_INFO) % 256 != TCP_FIN_WAIT2)
                usleep(300);
        return fd;
}

/* Both ways have ended; what came before is unread. */
static int is_over(void)
{
        int fd = is_ended();
        char b;

        shutdown(fd, SHUT_WR);
        until_events(now.peer, POLLIN);
        recv(now.peer, &b, 1, 0);
        until_events(fd, POLLHUP);
        return fd;
}

static int is_idle_listener(void)
{
        struct sockaddr_in sa;

        return soft(listener(&sa));
}

/* Urgent data have come behind others. */
static int is_urgent(void)
{
        int fd = is_accepted();

        send(now.peer, "!", 1, MSG_OOB);
        until_events(fd, POLLPRI);
        return fd;
}

static int is_udp_answered(void)
{
        struct sockaddr_in sa;
        socklen_t len = sizeof(sa);
        int fd = is_udp_connected();

        getsockname(fd, (void *)&sa, &len);
        sendto(now.udp, "from peer", 9, 0, (void *)&sa, sizeof(sa));
        until_events(fd, POLLIN);
        return fd;
}

/* Its peer's port is nobody's: ECONNREFUSED is to be told. */
static int is_udp_refused(void)
{
        struct sockaddr_in sa;
        int fd = is_udp(), other = udp_at(&sa);

        connect(fd, (void *)&sa, sizeof(sa));
        close(other);
        send(fd, "x", 1, 0);
        until_events(fd, POLLERR);
        return fd;
}

static int is_udp_shut(void)
{
        int fd = is_udp_connected();

        shutdown(fd, SHUT_RD);
        return fd;
}

/* Calls on it wait, for as long as is seen. */
static int waiting(int fd)
{
        const struct timeval tv = {.tv_usec = 20000};

        fcntl(fd, F_SETFL, 0);
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv));
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv));
        return fd;
}

static int waits_new(void)
{
        return waiting(is_new());
}
static int waits_bound(void)
{
        return waiting(is_bound());
}
static int waits_listener(void)
{
        return waiting(is_listener());
}
static int waits_idle_listener(void)
{
        return waiting(is_idle_listener());
}
static int waits_connected(void)
{
        return waiting(is_connected());
}
static int waits_accepted(void)
{
        return waiting(is_accepted());
}
static int waits_ended(void)
{
        return waiting(is_ended());
}
static int waits_half_closed(void)
{
        return waiting(is_half_closed());
}
static int waits_over(void)
{
        return waiting(is_over());
}
static int waits_reset(void)
{
        return waiting(is_reset());
}
static int waits_refused(void)
{
        return waiting(is_refused());
}
static int waits_udp(void)
{
        return waiting(is_udp());
}
static int waits_udp_bound(void)
{
        return waiting(is_udp_bound());
}
static int waits_udp_connected(void)
{
        return waiting(is_udp_connected());
}
static int waits_udp_answered(void)
{
        return waiting(is_udp_answered());
}
static int waits_udp_refused(void)
{
        return waiting(is_udp_refused());
}

const struct role roles[] = {
        {"new", is_new, false, false},
        {"bound", is_bound, false, false},
        {"listener", is_listener, false, false},
        {"connecting", is_connecting, false, false},
        {"connected", is_connected, false, false},
        {"accepted", is_accepted, false, false},
        {"ended", is_ended, false, false},
        {"udp", is_udp, true, false},
        {"udp-bound", is_udp_bound, true, false},
        {"udp-connected", is_udp_connected, true, false},
        {"half-closed", is_half_closed, false, true},
        {"over", is_over, false, true},
        {"reset", is_reset, false, true},
        {"refused", is_refused, false, true},
        {"idle-listener", is_idle_listener, false, true},
        {"urgent", is_urgent, false, true},
        {"udp-answered", is_udp_answered, true, true},
        {"udp-refused", is_udp_refused, true, true},
        {"udp-shut", is_udp_shut, true, true},
        {"waits-new", waits_new, false, true},
        {"waits-bound", waits_bound, false, true},
        {"waits-listener", waits_listener, false, true},
        {"waits-idle-listener", waits_idle_listener, false, true},
        {"waits-connected", waits_connected, false, true},
        {"waits-accepted", waits_accepted, false, true},
        {"waits-ended", waits_ended, false, true},
        {"waits-half-closed", waits_half_closed, false, true},
        {"waits-over", waits_over, false, true},
        {"waits-reset", waits_reset, false, true},
        {"waits-refused", waits_refused, false, true},
        {"waits-udp", waits_udp, true, true},
        {"waits-udp-bound", waits_udp_bound, true, true},
        {"waits-udp-connected", waits_udp_connected, true, true},
        {"waits-udp-answered", waits_udp_answered, true, true},
        {"waits-udp-refused", waits_udp_refused, true, true},
};

const size_t nroles = ARRAY_LEN(roles);
