/*
 * shim_shared: calls that are narrow: the other names that libc has for a call, ways to it past
 * libc's names, what takes descriptors and not connections, and many options at once.
 */
#include "tests/shim/shared.h"

static const struct timespec no_time;

static long seen(short revents)
{
        return now.undone && !now.datagrams ? revents & ~POLLERR : revents;
}

/* ---- other names ---- */

long c_preadv64v2(int fd)
{
        return preadv64v2(fd, &(struct iovec){call_data, 4}, 1, -1, 0);
}
long c_pwritev64v2(int fd)
{
        return pwritev64v2(fd, &(struct iovec){"call", 4}, 1, -1, 0);
}
long c_sendfile64(int fd)
{
        off64_t at = 0;
        int file = open("/proc/self/exe", O_RDONLY);
        long r = sendfile64(fd, file, &at, 4);
        int err = errno;

        close(file);
        errno = err;
        return r;
}
long c_dpoll(int fd)
{
        struct pollfd p = {fd, POLLIN | POLLOUT | POLLRDHUP | POLLPRI, 0};
        int r = __poll(&p, 1, 0);

        return r < 0 ? r : seen(p.revents);
}
long c_poll_chk(int fd)
{
        struct pollfd p = {fd, POLLIN | POLLOUT, 0};
        int r = __poll_chk(&p, 1, 0, sizeof(p));

        return r < 0 ? r : seen(p.revents);
}
long c_ppoll_chk(int fd)
{
        struct pollfd p = {fd, POLLIN | POLLOUT, 0};
        int r = __ppoll_chk(&p, 1, &no_time, NULL, sizeof(p));

        return r < 0 ? r : seen(p.revents);
}
long c_dselect(int fd)
{
        struct timeval tv = {0, 0};
        fd_set r, w;
        int n;

        FD_ZERO(&r);
        FD_SET(fd, &r);
        w = r;
        n = __select(fd + 1, &r, &w, NULL, &tv);
        return n * 100 + FD_ISSET(fd, &r) * 10 + FD_ISSET(fd, &w);
}
long c_dfcntl(int fd)
{
        return __fcntl(fd, F_GETFL);
}
long c_fcntl64(int fd)
{
        return fcntl64(fd, F_GETFD);
}
static long through(int d)
{
        long r = d < 0 ? d : send(d, "call", 4, MSG_NOSIGNAL);
        int err = errno;

        if (d >= 0)
                close(d);
        errno = err;
        return r;
}
long c_ddup2(int fd)
{
        return through(__dup2(fd, 62));
}
long c_dclose(int fd)
{
        return __close(dup(fd)) < 0 ? -1 : through(dup(fd));
}
long c_closefrom(int fd)
{
        int d = fcntl(fd, F_DUPFD, 900);

        closefrom(900);
        return fcntl(d, F_GETFD) < 0 ? through(dup(fd)) : 999;
}
static long formatted(int fd, bool checked, const char *format, ...)
{
        va_list ap;
        long r;

        va_start(ap, format);
        r = checked ? __vdprintf_chk(fd, 1, format, ap) : vdprintf(fd, format, ap);
        va_end(ap);
        return r;
}
long c_vdprintf(int fd)
{
        return formatted(fd, false, "%s", "call");
}
long c_dprintf_chk(int fd)
{
        return __dprintf_chk(fd, 1, "%s", "call");
}
long c_vdprintf_chk(int fd)
{
        return formatted(fd, true, "%s", "call");
}
long c_epoll_create(int fd)
{
        struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT}, out = {0};
        int ep = epoll_create(1);
        long r = epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev);
        int err = errno;

        if (r == 0)
                r = epoll_wait(ep, &out, 1, 0) * 0x10000 +
                    (int)(now.undone ? out.events & ~(uint32_t)EPOLLERR : out.events);
        close(ep);
        errno = err;
        return r;
}

/* ---- ways past libc's names ---- */

long c_syscall_write(int fd)
{
        return syscall(SYS_write, fd, "call", 4);
}
long c_syscall_sendto(int fd)
{
        return syscall(SYS_sendto, fd, "call", 4, MSG_NOSIGNAL, NULL, 0);
}
long c_syscall_recv(int fd)
{
        return syscall(SYS_recvfrom, fd, call_data, 4, MSG_DONTWAIT, NULL, NULL);
}
long c_syscall_dup(int fd)
{
        return through((int)syscall(SYS_dup, fd));
}
long c_syscall_poll(int fd)
{
        struct pollfd p = {fd, POLLIN | POLLOUT, 0};
        long r = syscall(SYS_poll, &p, 1, 0);

        return r < 0 ? r : seen(p.revents);
}
long c_by_handle(int fd)
{
        ssize_t (*f)(int, const void *, size_t, int) =
                (ssize_t(*)(int, const void *, size_t, int))dlsym(RTLD_NEXT, "send");

        return f(fd, "call", 4, MSG_NOSIGNAL);
}
long c_by_libcs_handle(int fd)
{
        void *libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
        ssize_t (*f)(int, void *, size_t, int) =
                (ssize_t(*)(int, void *, size_t, int))dlsym(libc, "recv");
        long r = f(fd, call_data, 4, MSG_DONTWAIT);
        int err = errno;

        dlclose(libc);
        errno = err;
        return r;
}

/* ---- other processes ---- */

static long status_of(pid_t pid)
{
        int status = 0;

        waitpid(pid, &status, 0);
        return without(WEXITSTATUS(status));
}
static int sent(int fd)
{
        return send(fd, "call", 4, MSG_NOSIGNAL) < 0 ? errno : 200;
}
long c_raw_fork(int fd)
{
        pid_t pid = _Fork();

        if (pid == 0)
                _exit(sent(fd));
        return status_of(pid);
}
long c_vfork(int fd)
{
        pid_t pid = vfork();

        if (pid == 0)
                _exit(sent(fd));
        return status_of(pid);
}
static char number[12];
static char *const sender[] = {"shim_shared", "--send", number, NULL};
static char *const *as_sender(int fd)
{
        snprintf(number, sizeof(number), "%d", fd);
        return sender;
}
long c_spawn(int fd)
{
        pid_t pid;
        int err = posix_spawn(&pid, "/proc/self/exe", NULL, NULL, as_sender(fd), environ);

        return err != 0 ? err : status_of(pid);
}
/* As standard output of the new program, which has it under no other number. */
long c_spawn_as_output(int fd)
{
        posix_spawn_file_actions_t fa;
        pid_t pid;
        int err, d = fcntl(fd, F_DUPFD_CLOEXEC, 50);

        posix_spawn_file_actions_init(&fa);
        posix_spawn_file_actions_adddup2(&fa, d, 1);
        posix_spawn_file_actions_addclose(&fa, fd);
        err = posix_spawn(&pid, "/proc/self/exe", &fa, NULL, as_sender(1), environ);
        posix_spawn_file_actions_destroy(&fa);
        close(d);
        return err != 0 ? err : status_of(pid);
}
long c_vfork_exec(int fd)
{
        char *const *argv = as_sender(1);
        pid_t pid = vfork();

        if (pid == 0) {
                dup2(fd, 1);
                execv("/proc/self/exe", argv);
                _exit(201);
        }
        return status_of(pid);
}
long c_exec_cleared(int fd)
{
        char *none[] = {NULL};
        char *const *argv = as_sender(fd);
        pid_t pid = fork();

        if (pid == 0) {
                execve("/proc/self/exe", argv, none);
                _exit(201);
        }
        return status_of(pid);
}
long c_fexecve(int fd)
{
        char *const *argv = as_sender(fd);
        pid_t pid = fork();

        if (pid == 0) {
                fexecve(open("/proc/self/exe", O_RDONLY | O_CLOEXEC), argv, environ);
                _exit(201);
        }
        return status_of(pid);
}
long c_daemon(int fd)
{
        int p[2], d;
        char err = 0;
        pid_t pid;

        pipe(p);
        pid = fork();
        if (pid == 0) {
                daemon(0, 0);
                err = (char)sent(fd);
                write(p[1], &err, 1);
                _exit(0);
        }
        close(p[1]);
        waitpid(pid, &d, 0);
        read(p[0], &err, 1);
        close(p[0]);
        return without((unsigned char)err);
}
long c_login_tty(int fd)
{
        pid_t pid = fork();

        if (pid == 0)
                _exit(login_tty(fd) < 0 ? errno : 200);
        return status_of(pid);
}
long c_pidfd_getfd(int fd)
{
        int self_fd = pidfd_open(getpid(), 0);
        int d = pidfd_getfd(self_fd, fd, 0), err = errno;

        close(self_fd);
        errno = err;
        return through(d);
}

/* ---- a socket where something else is meant ---- */

long c_as_epoll(int fd)
{
        struct epoll_event ev = {.events = EPOLLIN};

        return epoll_ctl(fd, EPOLL_CTL_ADD, null_fd, &ev);
}
long c_as_epoll_waited(int fd)
{
        struct epoll_event ev;

        return epoll_wait(fd, &ev, 1, 0);
}
long c_as_signalfd(int fd)
{
        sigset_t none;

        sigemptyset(&none);
        return signalfd(fd, &none, 0);
}
long c_as_directory(int fd)
{
        return openat(fd, "x", O_RDONLY);
}
long c_as_file(int fd)
{
        return sendfile(fd, fd, NULL, 4);
}
long c_spliced_to_itself(int fd)
{
        return splice(fd, NULL, fd, NULL, 4, SPLICE_F_NONBLOCK);
}
long c_mapped(int fd)
{
        void *p = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);

        return p == MAP_FAILED ? -1 : munmap(p, 4096);
}
long c_locked(int fd)
{
        struct flock l = {.l_type = F_RDLCK};

        return fcntl(fd, F_SETLK, &l);
}
long c_tcgetattr(int fd)
{
        char b[64];

        return ioctl(fd, TCGETS, b);
}

/* ---- flags and owners ---- */

long c_fionclex(int fd)
{
        int r = ioctl(fd, FIONCLEX);

        return r < 0 ? r : fcntl(fd, F_GETFD);
}
long c_fioasync(int fd)
{
        int one = 1, zero = 0, r = ioctl(fd, FIOASYNC, &one);
        int flags = fcntl(fd, F_GETFL);

        ioctl(fd, FIOASYNC, &zero);
        return r < 0 ? r : flags;
}
long c_spgrp(int fd)
{
        int pid = getpid(), is = 0, r = ioctl(fd, SIOCSPGRP, &pid);

        return r < 0 ? r : ioctl(fd, SIOCGPGRP, &is) == 0 && is == pid;
}
long c_owner_ex(int fd)
{
        struct f_owner_ex to = {F_OWNER_PID, getpid()}, is = {0};
        int r = fcntl(fd, F_SETOWN_EX, &to);

        return r < 0 ? r : fcntl(fd, F_GETOWN_EX, &is) == 0 && is.pid == to.pid;
}
long c_sigof(int fd)
{
        return fcntl(fd, F_GETSIG);
}
long c_inq_unsent(int fd)
{
        int v = 0, r = ioctl(fd, SIOCOUTQNSD, &v);

        return r < 0 ? r : 0; /* what is sent by now */
}

/* ---- many options at once ---- */

struct option {
        int level, name, value; /* that is set */
};

static const struct option of_sockets[] = {
        {SOL_SOCKET, SO_KEEPALIVE, 1},  {SOL_SOCKET, SO_OOBINLINE, 1},
        {SOL_SOCKET, SO_REUSEADDR, 1},  {SOL_SOCKET, SO_REUSEPORT, 1},
        {SOL_SOCKET, SO_BROADCAST, 1},  {SOL_SOCKET, SO_DONTROUTE, 0},
        {SOL_SOCKET, SO_PRIORITY, 2},   {SOL_SOCKET, SO_RCVLOWAT, 3},
        {SOL_SOCKET, SO_SNDLOWAT, 3},   {SOL_SOCKET, SO_TIMESTAMP, 1},
        {SOL_SOCKET, SO_DOMAIN, 1},     {SOL_SOCKET, SO_PROTOCOL, 1},
        {SOL_SOCKET, SO_NO_CHECK, 0},   {SOL_SOCKET, SO_RXQ_OVFL, 1},
        {SOL_SOCKET, SO_ACCEPTCONN, 1}, {SOL_SOCKET, SO_TYPE, 1},
        {SOL_SOCKET, SO_RCVBUF, 9000},  {SOL_SOCKET, SO_SNDBUF, 9000}};
static const struct option of_ip[] = {
        {IPPROTO_IP, IP_TOS, 0x10},          {IPPROTO_IP, IP_TTL, 60},
        {IPPROTO_IP, IP_PKTINFO, 1},         {IPPROTO_IP, IP_RECVTTL, 1},
        {IPPROTO_IP, IP_RECVTOS, 1},         {IPPROTO_IP, IP_RECVERR, 1},
        {IPPROTO_IP, IP_FREEBIND, 1},        {IPPROTO_IP, IP_RETOPTS, 1},
        {IPPROTO_IP, IP_MULTICAST_LOOP, 0},  {IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO},
        {IPPROTO_IP, IP_MULTICAST_ALL, 0},   {IPPROTO_IP, IP_MINTTL, 0},
        {IPPROTO_IP, IP_RECVORIGDSTADDR, 1}, {IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1}};
static const struct option of_tcp[] = {{IPPROTO_TCP, TCP_NODELAY, 1},
                                       {IPPROTO_TCP, TCP_CORK, 0},
                                       {IPPROTO_TCP, TCP_KEEPIDLE, 100},
                                       {IPPROTO_TCP, TCP_KEEPINTVL, 20},
                                       {IPPROTO_TCP, TCP_KEEPCNT, 4},
                                       {IPPROTO_TCP, TCP_LINGER2, 20},
                                       {IPPROTO_TCP, TCP_DEFER_ACCEPT, 0},
                                       {IPPROTO_TCP, TCP_USER_TIMEOUT, 7},
                                       {IPPROTO_TCP, TCP_NOTSENT_LOWAT, 5000},
                                       {IPPROTO_TCP, TCP_THIN_DUPACK, 0},
                                       {IPPROTO_TCP, TCP_INQ, 1},
                                       {IPPROTO_TCP, TCP_SAVE_SYN, 1}};

static long folded(int fd, const struct option *o, size_t n, bool set)
{
        unsigned sum = 0;

        for (size_t i = 0; i < n; i++) {
                int v = o[i].value, r;
                bool sized = o[i].name == SO_RCVBUF || o[i].name == SO_SNDBUF;

                r = set ? setsockopt(fd, o[i].level, o[i].name, &v, sizeof(v)) : 0;
                sum = sum * 31 + (unsigned)(r < 0 ? errno + 1000 : 0);
                if (set || o[i].level != SOL_SOCKET || !sized) /* buffers grow by themselves */
                        v = (int)int_opt(fd, o[i].level, o[i].name);
                sum = sum * 31 + (unsigned)v;
        }
        return sum & 0x7fffffff;
}
long c_get_socket(int fd)
{
        return folded(fd, of_sockets, ARRAY_LEN(of_sockets), false);
}
long c_set_socket(int fd)
{
        return folded(fd, of_sockets, ARRAY_LEN(of_sockets), true);
}
long c_get_ip(int fd)
{
        return folded(fd, of_ip, ARRAY_LEN(of_ip), false);
}
long c_set_ip(int fd)
{
        return folded(fd, of_ip, ARRAY_LEN(of_ip), true);
}
long c_get_tcp(int fd)
{
        return folded(fd, of_tcp, ARRAY_LEN(of_tcp), false);
}
long c_set_tcp(int fd)
{
        return folded(fd, of_tcp, ARRAY_LEN(of_tcp), true);
}
