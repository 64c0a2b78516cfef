/* Setting channels up: what is passed, what is refused, names, other processes, death. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pair.h"
#include "base/memfd.h"
#include "unet/shm/shm_ring.h"

#define SECOND 1000000000LL

/* ---- memfds ---- */

static void our_own_memory_passes_the_check(void **state)
{
        int fd = unet_memfd_make("test", 8192), twin;
        uint8_t *rw, *ro;

        assert_true(fd >= 0);
        rw = unet_memfd_map(fd, 8192, true, NULL);
        assert_non_null(rw);
        assert_int_equal(unet_memfd_freeze(fd), 0);
        twin = unet_memfd_reader(fd);
        assert_true(twin >= 0);
        assert_int_equal(unet_memfd_check(twin, 8192, false, geteuid()), 0);
        ro = unet_memfd_map(twin, 8192, false, NULL);
        assert_non_null(ro);
        rw[5000] = 42;
        assert_int_equal(ro[5000], 42);

        /* Nobody maps it writable again, the owner neither, by whatever way. */
        assert_null(unet_memfd_map(fd, 8192, true, NULL));
        assert_null(unet_memfd_map(twin, 8192, true, NULL));
        assert_int_equal(mprotect(ro, 8192, PROT_READ | PROT_WRITE), -1);
        assert_int_equal(ftruncate(fd, 4096), -1);
        assert_int_equal(ftruncate(fd, 16384), -1);
        assert_int_equal(write(fd, "x", 1), -1);
        munmap(rw, 8192);
        munmap(ro, 8192);
        close(fd);
        close(twin);
}

static void other_memory_does_not_pass(void **state)
{
        const uid_t me = geteuid();
        int fd = unet_memfd_make("test", 8192), twin = unet_memfd_reader(fd), pipefd[2], plain;

        assert_int_equal(unet_memfd_check(fd, 8192, false, me), -EACCES); /* open for writing */
        /* Seals can still be added. */
        assert_int_equal(unet_memfd_check(twin, 8192, false, me), -EPERM);
        assert_int_equal(unet_memfd_freeze(fd), 0);
        assert_int_equal(unet_memfd_check(twin, 8192, true, me), -EACCES);
        assert_int_equal(unet_memfd_check(fd, 8192, true, me), 0);
        assert_int_equal(unet_memfd_check(twin, 0, false, me), 0);
        assert_int_equal(unet_memfd_check(twin, 4096, false, me), -ERANGE);
        assert_int_equal(unet_memfd_check(twin, 8192, false, me + 1), -EACCES);
        assert_int_equal(fchmod(fd, 0644), 0);
        assert_int_equal(unet_memfd_check(twin, 8192, false, me), -EACCES);
        assert_int_equal(unet_memfd_check(twin, 8192, false, UNET_MEMFD_ANYBODY), 0);
        close(fd);
        close(twin);

        plain = memfd_create("plain", 0); /* can shrink under the reader */
        assert_int_equal(fchmod(plain, 0600), 0);
        assert_int_equal(ftruncate(plain, 8192), 0);
        twin = unet_memfd_reader(plain);
        assert_int_equal(unet_memfd_check(twin, 8192, false, me), -EPERM);
        close(plain);
        close(twin);

        assert_int_equal(pipe(pipefd), 0);
        assert_int_equal(unet_memfd_check(pipefd[0], 8192, false, me), -EINVAL);
        close(pipefd[0]);
        close(pipefd[1]);
        plain = open("/proc/self/exe", O_RDONLY); /* not on tmpfs */
        assert_true(unet_memfd_check(plain, 8192, false, me) < 0);
        close(plain);
        assert_int_equal(unet_memfd_check(-1, 8192, false, me), -EINVAL);
}

/* ---- a peer that sets up badly ---- */

static void send_with_fds(int sock, const void *bytes, size_t n, const int *fds, int nfds)
{
        union {
                struct cmsghdr align;
                char bytes[CMSG_SPACE(8 * sizeof(int))];
        } ctl = {0};
        struct iovec iov = {(void *)(uintptr_t)bytes, n};
        struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
        struct cmsghdr *c;

        if (nfds > 0) {
                m.msg_control = &ctl;
                m.msg_controllen = CMSG_SPACE((size_t)nfds * sizeof(int));
                c = CMSG_FIRSTHDR(&m);
                *c = (struct cmsghdr){CMSG_LEN((size_t)nfds * sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
                memcpy(CMSG_DATA(c), fds, (size_t)nfds * sizeof(int));
        }
        assert_int_equal(sendmsg(sock, &m, 0), (ssize_t)n);
}

/* As struct hello in shm_link.c. */
struct hello_words {
        uint32_t magic, version;
        uint64_t region, station;
        uint32_t geom[2], pad[8];
};

static const struct hello_words good = {0x554e6574u, 1,      sizeof(struct shm_region),
                                        8192,        {0, 0}, {0}};

static int sealed(size_t bytes)
{
        int fd = unet_memfd_make("test", bytes), twin;

        assert_int_equal(unet_memfd_freeze(fd), 0);
        twin = unet_memfd_reader(fd);
        close(fd);
        return twin;
}

static int open_fds(void)
{
        int n = 0;

        for (int fd = 0; fd < 1024; fd++)
                n += fcntl(fd, F_GETFD) >= 0;
        return n;
}

/* What an endpoint answers to a hello with these descriptors; nothing leaks, the socket
 * stays ours. */
static int answer_to(struct unet_ep *ep, const struct hello_words *h, size_t n, const int *fds,
                     int nfds)
{
        int sock[2], before, err;
        uint32_t chan;

        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sock), 0);
        before = open_fds();
        send_with_fds(sock[1], h, n, fds, nfds);
        err = unet_chan_over(ep, sock[0], SECOND, &chan);
        if (err == 0)
                assert_int_equal(unet_chan_close(ep, chan), 0);
        else
                close(sock[0]);
        close(sock[1]);
        assert_int_equal(open_fds(), before - 2);
        return err;
}

static void a_bad_offer_is_refused_and_leaks_nothing(void **state)
{
        int region = sealed(sizeof(struct shm_region)), station = sealed(8192);
        int fds[] = {region, station, station, station, station};
        struct hello_words h;
        struct unet_ep *ep;

        assert_int_equal(unet_ep_open(NULL, &ep), 0);
        assert_int_equal(answer_to(ep, &good, sizeof good, fds, 2), 0);
        assert_int_equal(answer_to(ep, &good, sizeof good, fds, 0), -EPROTO);
        assert_int_equal(answer_to(ep, &good, sizeof good, fds, 1), -EPROTO);
        assert_int_equal(answer_to(ep, &good, sizeof good, fds, 3), -EPROTO);
        assert_int_equal(answer_to(ep, &good, sizeof good, fds, 5), -EPROTO);
        assert_int_equal(answer_to(ep, &good, sizeof good - 1, fds, 2), -EPROTO);
        assert_int_equal(answer_to(ep, &good, 1, fds, 2), -EPROTO);
        h = good;
        h.magic++;
        assert_int_equal(answer_to(ep, &h, sizeof h, fds, 2), -EPROTO);
        h = good;
        h.version++;
        assert_int_equal(answer_to(ep, &h, sizeof h, fds, 2), -EPROTO);
        h = good;
        h.region++;
        assert_int_equal(answer_to(ep, &h, sizeof h, fds, 2), -EPROTO);
        h = good;
        h.geom[0] = 1; /* frames that the region does not have */
        assert_int_equal(answer_to(ep, &h, sizeof h, fds, 2), -EPROTO);
        h.geom[0] = h.geom[1] = UINT32_MAX;
        assert_int_equal(answer_to(ep, &h, sizeof h, fds, 2), -EPROTO);
        h = good;
        h.station = 100; /* no room for the bell */
        assert_int_equal(answer_to(ep, &h, sizeof h, fds, 2), -EPROTO);
        h.station = UINT64_MAX;
        assert_int_equal(answer_to(ep, &h, sizeof h, fds, 2), -EPROTO);
        h.station = 4096; /* not the file's size */
        assert_int_equal(answer_to(ep, &h, sizeof h, fds, 2), -ERANGE);
        fds[0] = station;
        assert_int_equal(answer_to(ep, &good, sizeof good, fds, 2), -ERANGE);
        fds[0] = 0;
        assert_true(answer_to(ep, &good, sizeof good, fds, 2) < 0);
        unet_ep_close(ep);
        close(region);
        close(station);
}

static void setting_up_ends_with_the_timeout_or_the_peer(void **state)
{
        struct unet_ep *ep;
        uint32_t chan;
        int sock[2];

        assert_int_equal(unet_ep_open(NULL, &ep), 0);
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sock), 0);
        assert_int_equal(unet_chan_over(ep, sock[0], 1000000, &chan), -ETIMEDOUT);
        close(sock[1]);
        assert_int_equal(unet_chan_over(ep, sock[0], SECOND, &chan), -EPIPE);
        close(sock[0]);
        unet_ep_close(ep);
}

static void a_bad_endpoint_is_refused(void **state)
{
        struct unet_ep_opts o = {.tx_bytes = (size_t)3 << 30};
        struct unet_ep *ep;

        assert_int_equal(unet_ep_open(&o, &ep), -EINVAL);
        o = (struct unet_ep_opts){.rx_slots = UINT32_MAX};
        assert_int_equal(unet_ep_open(&o, &ep), -EINVAL);
        o = (struct unet_ep_opts){.tx_bytes = 1, .rx_bytes = 1};
        assert_int_equal(unet_ep_open(&o, &ep), 0);
        assert_int_equal(unet_ep_segment(ep).tx_bytes, sysconf(_SC_PAGESIZE));
        unet_ep_close(ep);
}

/* ---- other processes ---- */

static pid_t fork_child(void);

static void a_stream_socket_will_do(void **state)
{
        struct unet_ep *ep;
        struct unet_recv m;
        uint32_t chan;
        int sock[2], status;
        pid_t child;

        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sock), 0);
        child = fork_child();
        close(sock[child == 0]);
        assert_int_equal(unet_ep_open(&(struct unet_ep_opts){.spin_ns = -1}, &ep), 0);
        if (unet_chan_over(ep, sock[child != 0], 10 * SECOND, &chan) != 0)
                _exit(1);
        for (int i = 0; i < 1000; i++) {
                struct unet_send s = {.chan = chan, .inl = &i, .inl_len = sizeof i};
                if (unet_ep_send(ep, &s, 1) != 1 ||
                    unet_ep_wait(ep, UNET_READABLE, 10 * SECOND) != UNET_READABLE ||
                    unet_ep_recv(ep, &m, 1) != 1 || memcmp(m.inl, &i, sizeof i) != 0)
                        _exit(2);
        }
        if (child == 0)
                _exit(0);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        unet_ep_close(ep);
}

static pid_t fork_child(void)
{
        pid_t child = fork();

        assert_true(child >= 0);
        if (child == 0)
                prctl(PR_SET_PDEATHSIG, SIGKILL);
        return child;
}

static void unique_name(char *name, size_t n)
{
        snprintf(name, n, "setup-test-%d", (int)getpid());
}

/* The other program: connects by name, echoes until the channel ends. All it shares with us is
 * the name. */
static void echo_program(const char *name)
{
        struct unet_ep *ep;
        struct unet_recv m;
        uint32_t chan;

        if (unet_ep_open(NULL, &ep) != 0 || unet_chan_connect(ep, name, SECOND, &chan) != 0)
                _exit(1);
        while (unet_ep_wait(ep, UNET_READABLE | UNET_CLOSED, 10 * SECOND) > 0) {
                if (unet_ep_recv(ep, &m, 1) == 0)
                        break;
                unet_ep_send(ep,
                             &(struct unet_send){.chan = chan, .inl = m.inl, .inl_len = m.inl_len},
                             1);
        }
        unet_ep_close(ep);
        _exit(0);
}

static void two_programs_meet_under_a_name(void **state)
{
        struct unet_ep *ep;
        struct unet_recv m;
        char name[64];
        uint32_t chan;
        int fd, status;
        pid_t child;

        unique_name(name, sizeof name);
        fd = unet_chan_listen(name);
        assert_true(fd >= 0);
        assert_int_equal(unet_chan_listen(name), -EADDRINUSE);
        child = fork_child();
        if (child == 0)
                echo_program(name);
        assert_int_equal(unet_ep_open(NULL, &ep), 0);
        assert_int_equal(unet_chan_accept(ep, fd, 10 * SECOND, &chan), 0);
        for (int i = 0; i < 100; i++) {
                char text[32];
                int n = snprintf(text, sizeof text, "message %d", i);
                struct unet_send s = {.chan = chan, .inl = text, .inl_len = (uint16_t)n};

                assert_int_equal(unet_ep_send(ep, &s, 1), 1);
                assert_int_equal(unet_ep_wait(ep, UNET_READABLE, 10 * SECOND), UNET_READABLE);
                assert_int_equal(unet_ep_recv(ep, &m, 1), 1);
                assert_int_equal(m.len, n);
                assert_memory_equal(m.inl, text, (size_t)n);
        }
        unet_ep_close(ep);
        close(fd);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
}

static void a_name_without_listener_refuses(void **state)
{
        struct unet_ep *ep;
        uint32_t chan;
        char longname[100];

        memset(longname, 'x', sizeof longname);
        longname[99] = '\0';
        assert_int_equal(unet_ep_open(NULL, &ep), 0);
        assert_int_equal(unet_chan_connect(ep, "nobody-listens-here", SECOND, &chan),
                         -ECONNREFUSED);
        assert_int_equal(unet_chan_connect(ep, longname, SECOND, &chan), -ENAMETOOLONG);
        assert_int_equal(unet_chan_connect(ep, "", SECOND, &chan), -ENAMETOOLONG);
        unet_ep_close(ep);
}

/* Another user finds our name, or squats on one of ours: neither gets a channel. Needs root, to
 * become somebody else. */
static void another_user_gets_no_channel(void **state)
{
        struct unet_ep *ep;
        char name[64];
        uint32_t chan;
        int fd, status;
        pid_t child;

        if (geteuid() != 0) {
                print_message("skipped: becoming another user needs root\n");
                skip();
        }
        unique_name(name, sizeof name);
        fd = unet_chan_listen(name);
        assert_true(fd >= 0);
        child = fork_child();
        if (child == 0) { /* connects to root's socket by its full name */
                struct {
                        sa_family_t family;
                        char path[100];
                } sa = {AF_UNIX, {0}};
                int s = socket(AF_UNIX, SOCK_SEQPACKET, 0), n;
                char byte;

                n = snprintf(sa.path + 1, sizeof sa.path - 1, "unet-chan/0/%s", name);
                if (setuid(65534) != 0 ||
                    connect(s, (struct sockaddr *)&sa,
                            (socklen_t)(sizeof(sa_family_t) + 1 + (size_t)n)) != 0)
                        _exit(1);
                _exit(read(s, &byte, 1) == 0 ? 0 : 2); /* closed without a word */
        }
        assert_int_equal(unet_ep_open(NULL, &ep), 0);
        assert_int_equal(unet_chan_accept(ep, fd, 10 * SECOND, &chan), -EACCES);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        close(fd);
        unet_ep_close(ep);
}

static void a_killed_peer_is_noticed(void **state)
{
        struct pair *p = pair_new(&providers[0], (struct unet_ep_opts){.spin_ns = -1});
        struct unet_chan_info info;
        pid_t child = fork_child();
        int err, sent = 0;

        if (child == 0) {
                unet_ep_forget(p->b);
                pair_send(p, 7, 50, 50, 0);
                for (;;)
                        pause();
        }
        unet_ep_forget(p->a);
        p->a = NULL;
        assert_int_equal(unet_ep_wait(p->b, UNET_READABLE, 10 * SECOND), UNET_READABLE);
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, NULL, 0), child);
        assert_int_equal(unet_ep_wait(p->b, UNET_CLOSED, 10 * SECOND), UNET_CLOSED);
        pair_expect(p, 7, 50);
        assert_int_equal(unet_chan_info(p->b, p->cb, &info), 0);
        assert_true(info.closed);
        do
                err = unet_ep_send(p->b,
                                   &(struct unet_send){.chan = p->cb, .inl = "x", .inl_len = 1}, 1);
        while (err == 1 && ++sent < 1000);
        assert_int_equal(err, -EPIPE);
        pair_free(p);
}

/* The parent forgets; the child goes on with the same endpoint and nobody sees a difference. */
static void an_endpoint_moves_to_a_child(void **state)
{
        struct pair *p = pair_new(&providers[0], (struct unet_ep_opts){0});
        pid_t child;
        int status;

        assert_int_equal(pair_send(p, 1, 20, 20, 0), 1);
        child = fork_child();
        if (child == 0) {
                struct unet_send s = {.chan = p->ca, .inl = "from the child", .inl_len = 14};
                unet_ep_forget(p->b);
                _exit(unet_ep_send(p->a, &s, 1) == 1 ? 0 : 1);
        }
        unet_ep_forget(p->a);
        p->a = NULL;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        pair_expect(p, 1, 20);
        assert_int_equal(unet_ep_wait(p->b, UNET_READABLE, SECOND), UNET_READABLE);
        pair_free(p);
}

static void opening_and_closing_leaves_nothing(void **state)
{
        int before = open_fds();

        for (int i = 0; i < 300; i++) {
                struct pair *p = pair_new(&providers[0], (struct unet_ep_opts){0});
                uint32_t c1, c2;

                assert_int_equal(unet_chan_pair(p->a, p->b, &c1, &c2), 0);
                assert_int_equal(unet_chan_close(p->a, c1), 0);
                pair_free(p);
        }
        assert_int_equal(open_fds(), before);
}

static void there_is_a_limit_of_channels(void **state)
{
        struct unet_ep *a, *b;
        uint32_t ca, cb, n = 0;
        int before = open_fds(), err;

        assert_int_equal(unet_ep_open(NULL, &a), 0);
        assert_int_equal(unet_ep_open(NULL, &b), 0);
        while ((err = unet_chan_pair(a, b, &ca, &cb)) == 0)
                n++;
        assert_int_equal(err, -EMFILE);
        assert_int_equal(n, EP_LINKS);
        assert_int_equal(unet_chan_close(b, cb), 0);
        assert_int_equal(unet_chan_close(a, ca), 0);
        assert_int_equal(unet_chan_pair(a, b, &ca, &cb), 0);
        unet_ep_close(a);
        unet_ep_close(b);
        assert_int_equal(open_fds(), before);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(our_own_memory_passes_the_check),
                cmocka_unit_test(other_memory_does_not_pass),
                cmocka_unit_test(a_bad_offer_is_refused_and_leaks_nothing),
                cmocka_unit_test(setting_up_ends_with_the_timeout_or_the_peer),
                cmocka_unit_test(a_bad_endpoint_is_refused),
                cmocka_unit_test(two_programs_meet_under_a_name),
                cmocka_unit_test(a_name_without_listener_refuses),
                cmocka_unit_test(a_stream_socket_will_do),
                cmocka_unit_test(another_user_gets_no_channel),
                cmocka_unit_test(a_killed_peer_is_noticed),
                cmocka_unit_test(an_endpoint_moves_to_a_child),
                cmocka_unit_test(opening_and_closing_leaves_nothing),
                cmocka_unit_test(there_is_a_limit_of_channels),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
