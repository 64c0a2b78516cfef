/*
 * shim_calls, pointers that are no good: EFAULT, and what becomes of the bytes.
 */
#include "tests/shim/calls.h"

#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>

/* What the compiler would complain of. */
static void *volatile nowhere;
static volatile int minus_one = -1, too_many = 5000;

static char *hole;   /* nothing that may be touched */
static char *edge;   /* the last bytes of a page; what follows is not there */
static char *locked; /* can be read, not written */

static void make_pages(void)
{
        char *p = mmap(NULL, 6 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        if (p == MAP_FAILED)
                die("mmap");
        memset(p, 'x', 6 * 4096);
        edge = p + 4096;
        hole = p + 4096;
        locked = p + 3 * 4096;
        mprotect(hole, 4096, PROT_NONE);
        mprotect(locked, 4096, PROT_READ);
}

static void still_well(int v[2])
{
        char b[32];

        SHOW(send(v[0], "well", 4, 0));
        show_bytes("recv", b, recv(v[1], b, sizeof(b), 0));
        SHOW(send(v[1], "back", 4, 0));
        show_bytes("recv", b, recv(v[0], b, sizeof(b), 0));
}

/* Sent from nowhere: nothing of it goes out. */
static void bad_sends(int s)
{
        struct iovec iov[2] = {{(char *)"good", 4}, {hole, 4}};
        struct msghdr m = {.msg_iov = iov, .msg_iovlen = 2};
        struct mmsghdr mm[2] = {{.msg_hdr = m}};

        SHOW(send(s, NULL, 4, 0));
        SHOW(write(s, hole, 4));
        SHOW(send(s, edge - 2, 4, 0));
        SHOW(send(s, edge - 100, 1000, 0));
        SHOW(send(s, edge - 1000, 4000, 0));
        SHOW(sendto(s, hole, 100, 0, NULL, 0));
        SHOW(send(s, NULL, 0, MSG_DONTWAIT));
        SHOW(writev(s, iov, 2));
        SHOW(writev(s, nowhere, 1));
        SHOW(writev(s, (void *)(edge - 8), 2));
        SHOW(writev(s, iov, minus_one));
        SHOW(writev(s, iov, too_many));
        SHOW(sendmsg(s, &m, 0));
        SHOW(sendmsg(s, NULL, 0));
        SHOW(sendmsg(s, (void *)(edge - 16), 0));
        m.msg_iov = (void *)hole;
        SHOW(sendmsg(s, &m, 0));
        SHOW(sendmmsg(s, mm, 1, 0));
        SHOW(sendmmsg(s, NULL, 1, 0));
        SHOW(sendmmsg(s, (void *)hole, 1, 0));
}

static void bad_recvs(int s)
{
        struct iovec iov = {hole, 8};
        struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};

        SHOW(recv(s, NULL, 8, 0));
        SHOW(read(s, hole, 8));
        SHOW(recv(s, locked, 8, 0));
        SHOW(recv(s, locked, 8, MSG_PEEK));
        SHOW(recv(s, edge - 2, 8, 0));
        SHOW(recvfrom(s, hole, 8, 0, NULL, NULL));
        SHOW(readv(s, &iov, 1));
        SHOW(readv(s, nowhere, 1));
        SHOW(recvmsg(s, &m, 0));
        SHOW(recvmsg(s, NULL, 0));
        SHOW(recvmsg(s, (void *)hole, 0));
        m.msg_iov = (void *)hole;
        SHOW(recvmsg(s, &m, 0));
}

static void large_reads(int v[2])
{
        static char big[100000];
        struct iovec iov[2] = {{big, 10}, {hole, 10}};
        size_t left = sizeof(big);

        memset(big, 'b', sizeof(big));
        SHOW(send(v[0], big, 3000, 0));
        wait_readable(v[1]);
        SHOW(recv(v[1], hole, sizeof(big), 0));
        SHOW(recv(v[1], edge - 1000, 3000, 0));
        SHOW(recv(v[1], edge - 1000, 1000, 0));
        SHOW(readv(v[1], iov, 2));
        SHOW(read(v[1], big, 10));
        SHOW(read(v[1], locked, 10));
        SHOW(recv(v[1], edge - 1990, 1000000, 0));
        SHOW(recv(v[1], big, 10, MSG_DONTWAIT));
        SHOW(send(v[0], big, sizeof(big), 0));
        SHOW_OK(recv(v[1], hole, sizeof(big), 0));
        while (left > 0)
                left -= (size_t)recv(v[1], big, left, 0);
        SHOW(left);
}

/* Small reads, one after the other, are read ahead. */
static void small_bad_reads(int v[2])
{
        char b[8];
        int right = 0;

        write_much(v[0]);
        for (int i = 0; i < 200; i++) {
                if (i % 50 == 0)
                        SHOW(read(v[1], hole, 7));
                if (i % 70 == 0)
                        SHOW(recv(v[1], locked, 2500, 0));
                right += read(v[1], b, 7) == 7 && b[0] == pattern(i * 7) &&
                         b[6] == pattern(i * 7 + 6);
        }
        SHOW(right);
        read_some(v[1], 1400, MUCH - 1400, MSG_WAITALL);
}

void scene_faults_tcp(void)
{
        char b[32];
        int v[2];

        make_pages();
        tcp_pair(v);
        bad_sends(v[0]);
        still_well(v);
        SHOW(recv(v[1], hole, 8, MSG_DONTWAIT));
        SHOW(send(v[0], "unhurt", 6, 0));
        wait_readable(v[1]);
        bad_recvs(v[1]);
        show_bytes("recv", b, recv(v[1], b, sizeof(b), 0));
        large_reads(v);
        small_bad_reads(v);
        SHOW(send(v[0], "last", 4, 0));
        SHOW(shutdown(v[0], SHUT_WR));
        usleep(20000);
        SHOW(recv(v[1], hole, 100, 0));
        show_bytes("recv", b, recv(v[1], b, sizeof(b), 0));
        SHOW(recv(v[1], hole, 100, 0));
        close2(v);
}

/* As Linux has it, a datagram that cannot be put is gone. */
void scene_faults_udp(void)
{
        struct sockaddr_in a, b, from;
        socklen_t len = sizeof(from);
        int s = udp_socket(&a), t = udp_socket(&b);
        char buf[64];
        struct iovec iov = {buf, sizeof(buf)};
        struct msghdr m = {.msg_name = hole, .msg_namelen = 16, .msg_iov = &iov, .msg_iovlen = 1};

        make_pages();
        SHOW(sendto(s, "x", 1, 0, (void *)hole, sizeof(b)));
        SHOW(sendto(s, "x", 1, 0, (void *)(edge - 4), sizeof(b)));
        SHOW(sendto(s, hole, 10, 0, (void *)&b, sizeof(b)));
        SHOW(sendto(s, edge - 100, 1000, 0, (void *)&b, sizeof(b)));
        SHOW(sendmsg(s, &m, 0));
        SHOW(connect(s, (void *)hole, sizeof(b)));
        SHOW(connect(s, (void *)&b, sizeof(b)));
        bad_sends(s);
        SHOW(recv(t, buf, sizeof(buf), MSG_DONTWAIT));
        SHOW(recv(t, buf, sizeof(buf), MSG_DONTWAIT));
        for (int i = 0; i < 6; i++)
                send(s, "datagram", 8, 0);
        wait_readable(t);
        SHOW(recv(t, hole, 8, MSG_PEEK));
        SHOW(recv(t, hole, 8, 0));
        SHOW(recv(t, edge - 4, 8, 0));
        SHOW(recv(t, edge - 4, 4, 0));
        SHOW(recvfrom(t, buf, sizeof(buf), 0, (void *)hole, &len));
        SHOW(recvfrom(t, buf, sizeof(buf), 0, (void *)&from, NULL));
        SHOW(recvfrom(t, buf, sizeof(buf), 0, (void *)&from, (void *)hole));
        SHOW(recv(t, buf, sizeof(buf), MSG_DONTWAIT));
        close(s);
        close(t);
}

void scene_faults_names(void)
{
        struct sockaddr_in sa;
        socklen_t len = sizeof(sa);
        char b[8];
        int v[2], l, c, n = 1;

        make_pages();
        tcp_pair(v);
        SHOW(getsockname(v[0], NULL, &len));
        SHOW(getsockname(v[0], (void *)&sa, NULL));
        SHOW(getpeername(v[0], (void *)hole, &len));
        SHOW(getpeername(v[0], (void *)locked, &len));
        SHOW(getpeername(v[0], (void *)(edge - 8), &len));
        SHOW(getpeername(v[0], (void *)&sa, (void *)locked));
        len = (socklen_t)-1;
        SHOW(getsockname(v[0], (void *)&sa, &len));
        len = 0;
        SHOW(getsockname(v[0], NULL, &len));
        SHOW(len);
        len = sizeof(n);
        SHOW(getsockopt(v[0], SOL_SOCKET, SO_SNDBUF, NULL, &len));
        SHOW(getsockopt(v[0], SOL_SOCKET, SO_SNDBUF, &n, NULL));
        SHOW(getsockopt(v[0], SOL_SOCKET, SO_TYPE, hole, &len));
        SHOW(getsockopt(v[0], SOL_SOCKET, SO_RCVTIMEO, &n, (void *)hole));
        len = 16;
        SHOW(getsockopt(v[0], SOL_SOCKET, SO_RCVTIMEO, locked, &len));
        len = sizeof(struct tcp_info);
        SHOW(getsockopt(v[0], IPPROTO_TCP, TCP_INFO, edge - 8, &len));
        SHOW(getsockopt(v[0], IPPROTO_TCP, TCP_NODELAY, &n, (void *)locked));
        SHOW(setsockopt(v[0], SOL_SOCKET, SO_KEEPALIVE, NULL, sizeof(n)));
        SHOW(setsockopt(v[0], SOL_SOCKET, SO_RCVTIMEO, hole, 16));
        SHOW(setsockopt(v[0], SOL_SOCKET, SO_LINGER, edge - 4, 8));
        SHOW(setsockopt(v[0], IPPROTO_TCP, TCP_NODELAY, edge - 2, 4));
        SHOW(setsockopt(v[0], IPPROTO_TCP, TCP_CONGESTION, hole, 5));
        SHOW(ioctl(v[0], FIONREAD, NULL));
        SHOW(ioctl(v[0], FIONREAD, locked));
        SHOW(ioctl(v[0], FIONBIO, hole));
        still_well(v);
        close2(v);
        l = listener(&sa);
        c = socket(AF_INET, SOCK_STREAM, 0);
        SHOW(connect(c, NULL, sizeof(sa)));
        SHOW(connect(c, (void *)(edge - 8), sizeof(sa)));
        SHOW(bind(c, (void *)hole, sizeof(sa)));
        SHOW(connect(c, (void *)&sa, sizeof(sa)));
        len = sizeof(sa);
        SHOW(accept(l, (void *)hole, &len)); /* the connection is gone */
        wait_readable(c);
        SHOW(read(c, b, sizeof(b)) <= 0);
        close(c);
        close(l);
}

void scene_faults_waiting(void)
{
        struct epoll_event ev = {.events = EPOLLIN, .data.u32 = 7};
        struct timespec bad_time = {0, minus_one};
        int v[2], ep = epoll_create1(0);
        struct pollfd *half;

        make_pages();
        half = (void *)(edge - sizeof(*half));
        tcp_pair(v);
        SHOW(send(v[0], "x", 1, 0));
        wait_readable(v[1]);
        *half = (struct pollfd){.fd = v[1], .events = POLLIN};
        SHOW(poll(half, 1, 0));
        SHOW(poll(half, 2, 0));
        SHOW(poll(nowhere, 1, 0));
        SHOW(poll(NULL, 0, 0));
        *half = (struct pollfd){.fd = v[1], .events = POLLIN};
        mprotect((char *)half - 4096 + sizeof(*half), 4096, PROT_READ);
        SHOW(poll(half, 1, 0));
        SHOW(select(v[1] + 1, (void *)hole, NULL, NULL, NULL));
        FD_ZERO((fd_set *)(locked + 4096));
        FD_SET(v[1], (fd_set *)(locked + 4096));
        mprotect(locked + 4096, 4096, PROT_READ);
        SHOW(select(v[1] + 1, (void *)(locked + 4096), NULL, NULL, NULL));
        mprotect(locked + 4096, 4096, PROT_READ | PROT_WRITE);
        SHOW(select(v[1] + 1, (void *)(locked + 4096), NULL, NULL, NULL));
        SHOW(epoll_ctl(ep, EPOLL_CTL_ADD, v[1], NULL));
        SHOW(epoll_ctl(ep, EPOLL_CTL_ADD, v[1], (void *)hole));
        SHOW(epoll_ctl(ep, EPOLL_CTL_ADD, v[1], &ev));
        SHOW(epoll_wait(ep, (void *)hole, 4, 0));
        SHOW(epoll_pwait(ep, &ev, 1, 0, (void *)hole));
        SHOW(epoll_pwait2(ep, &ev, 1, NULL, (void *)hole));
        SHOW(epoll_pwait2(ep, &ev, 1, (void *)hole, NULL));
        SHOW(epoll_pwait2(ep, &ev, 1, &bad_time, NULL));
        SHOW(epoll_wait(ep, (void *)locked, 4, LONG));
        SHOW(epoll_wait(ep, (void *)(locked + 4096), 4, 0));
        ev.events = EPOLLIN | EPOLLET;
        SHOW(epoll_ctl(ep, EPOLL_CTL_MOD, v[1], &ev));
        SHOW(epoll_wait(ep, (void *)hole, 4, 0));
        SHOW(epoll_wait(ep, (void *)(locked + 4096), 4, 0));
        SHOW(epoll_wait(ep, (void *)(locked + 4096), 4, 0));
        close(ep);
        close2(v);
}

/* ---- the program's own faults ---- */

static sigjmp_buf out;
static volatile sig_atomic_t faults;
static void *volatile fault_at;

static void on_fault(int sig, siginfo_t *info, void *uc)
{
        faults++;
        fault_at = info->si_addr;
        siglongjmp(out, 1);
}

static void own_fault(int *at)
{
        if (sigsetjmp(out, 1) == 0)
                *(volatile int *)at = 1;
}

static int death_of(void (*how)(int v[2]), int v[2])
{
        int status = 0;
        pid_t pid = fork();

        if (pid == 0) {
                struct rlimit none = {0, 0};
                setrlimit(RLIMIT_CORE, &none);
                how(v);
                _exit(0);
        }
        waitpid(pid, &status, 0);
        return WIFSIGNALED(status) ? WTERMSIG(status) : -1;
}

static void crashes(int v[2])
{
        send(v[0], hole, 4, 0);
        *(volatile char *)hole = 1;
}

static void is_killed(int v[2])
{
        send(v[0], hole, 4, 0);
        kill(getpid(), SIGSEGV);
}

static void raises(int v[2])
{
        raise(SIGBUS);
}

static void resets(int v[2])
{
        signal(SIGSEGV, on_signal);
        send(v[0], hole, 4, 0);
        signal(SIGSEGV, SIG_DFL);
        *(volatile char *)hole = 1;
}

static void faults_once(int v[2])
{
        struct sigaction sa = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};

        sigaction(SIGSEGV, &sa, NULL);
        *(volatile char *)hole = 1;
}

void scene_faults_of_its_own(void)
{
        struct sigaction sa = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO}, old;
        int v[2], fd = memfd_create("empty", 0);
        char *beyond;

        make_pages();
        tcp_pair(v);
        SHOW(sigaction(SIGSEGV, NULL, &old));
        SHOW(old.sa_handler == SIG_DFL);
        SHOW(old.sa_flags & ~RESTORER);
        SHOW(send(v[0], hole, 4, 0));
        SHOW(sigaction(SIGSEGV, &sa, &old));
        SHOW(old.sa_handler == SIG_DFL);
        own_fault((int *)(hole + 64));
        SHOW(faults);
        SHOW(fault_at == hole + 64);
        SHOW(recv(v[1], hole, 4, MSG_DONTWAIT));
        SHOW(send(v[0], hole, 4, 0));
        SHOW(faults);
        SHOW(signal(SIGSEGV, SIG_DFL) != SIG_ERR);
        still_well(v);
        beyond = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        SHOW(send(v[0], beyond, 4, 0)); /* SIGBUS elsewhere */
        SHOW(send(v[0], beyond, 1000, 0));
        SHOW(death_of(crashes, v));
        SHOW(death_of(is_killed, v));
        SHOW(death_of(raises, v));
        SHOW(death_of(resets, v));
        SHOW(death_of(faults_once, v));
        still_well(v);
        close2(v);
        close(fd);
}

/* Of a program that has no socket of TCP's or UDP's yet: in it the shim has no handler. Bad
 * pointers are asked with to learn what there is, filters for system calls first of all. */
void scene_faults_before_sockets(void)
{
        struct msghdr named = {.msg_name = nowhere, .msg_namelen = 16};
        struct timespec soon = {0, 1000000}, bad_time = {0, minus_one};
        int v[2], file = open("/dev/null", O_RDONLY), ep = epoll_create1(0);
        struct epoll_event ev;
        char *bad;

        make_pages();
        bad = hole;
        socketpair(AF_UNIX, SOCK_STREAM, 0, v);
        SHOW(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, nowhere));
        SHOW(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, bad));
        SHOW(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, nowhere));
        SHOW(poll((void *)bad, 1, 0));
        SHOW(select(3, (void *)bad, NULL, NULL, NULL));
        SHOW(sendmsg(v[0], (void *)bad, 0));
        SHOW(sendmsg(v[0], &named, 0));
        SHOW(recvmsg(v[0], (void *)bad, 0));
        SHOW(sendmmsg(v[0], (void *)bad, 1, 0));
        SHOW(recvmmsg(v[0], (void *)bad, 1, MSG_DONTWAIT, NULL));
        SHOW(recvmmsg(v[0], NULL, 1, MSG_DONTWAIT, (void *)bad));
        SHOW(sendto(v[0], "x", 1, 0, (void *)bad, 16));
        SHOW(connect(v[0], (void *)bad, 16));
        SHOW(writev(v[0], (void *)bad, 2));
        SHOW(readv(v[0], (void *)bad, 2));
        SHOW(sendfile(v[0], file, (void *)bad, 10));
        SHOW(setsockopt(v[0], SOL_SOCKET, SO_RCVBUF, bad, 4));
        SHOW(getsockopt(v[0], SOL_SOCKET, SO_RCVBUF, &file, (void *)bad));
        SHOW(syscall(SYS_select, 3, NULL, NULL, NULL, bad));
        SHOW(syscall(SYS_ppoll, NULL, 0, bad, NULL, 8));
        SHOW(syscall(SYS_pselect6, 3, NULL, NULL, NULL, NULL, bad));
        SHOW(epoll_pwait2(ep, &ev, 1, (void *)bad, NULL));
        SHOW(epoll_pwait2(ep, &ev, 1, &bad_time, NULL));
        SHOW(epoll_pwait2(ep, &ev, 1, &soon, NULL));
        SHOW(ioctl(v[0], SIOCGIFCONF, bad));
        SHOW(ioctl(v[0], SIOCGIFCONF, nowhere));
        close2(v);
        close(file);
        close(ep);
        tcp_pair(v);
        still_well(v);
        close2(v);
}
