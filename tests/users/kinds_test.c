/*
 * Descriptors of every kind that the kernel has, in every place of every message that may bring
 * some, by a client and by a keeper: each is refused, whatever its owner does with it, and nothing
 * is held up or left behind. And who says he is somebody else.
 */
#include "tests/users/users.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/wait.h>

/* ---- the kinds; -1: not on this machine ---- */

#define SIZE_SEALS (F_SEAL_SHRINK | F_SEAL_GROW)

static int memory(size_t bytes, unsigned flags, int seals)
{
        int fd = memfd_create("unet-state", flags | MFD_CLOEXEC);

        if (fd < 0 || ftruncate(fd, (off_t)bytes) < 0 ||
            (seals != 0 && fcntl(fd, F_ADD_SEALS, seals) < 0)) {
                close(fd);
                return -1;
        }
        fchmod(fd, 0600);
        return fd;
}

static int no_seals(void)
{
        return memory(1 << 20, 0, 0);
}

static int may_shrink(void)
{
        return memory(1 << 20, MFD_ALLOW_SEALING, F_SEAL_GROW | F_SEAL_SEAL);
}

static int may_be_sealed(void)
{
        return memory(1 << 20, MFD_ALLOW_SEALING, SIZE_SEALS);
}

static int write_sealed(void)
{
        int fd = memory(1 << 20, MFD_ALLOW_SEALING, SIZE_SEALS | F_SEAL_WRITE | F_SEAL_SEAL);
        char path[64];

        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        return open(path, O_RDONLY | O_CLOEXEC);
}

static int of_huge_pages(void)
{
        return memory(2 << 20, MFD_ALLOW_SEALING | MFD_HUGETLB, SIZE_SEALS | F_SEAL_SEAL);
}

static int empty(void)
{
        return memory(0, MFD_ALLOW_SEALING, SIZE_SEALS | F_SEAL_SEAL);
}

static int secret(void)
{
        int fd = (int)syscall(SYS_memfd_secret, 0);

        if (fd >= 0 && ftruncate(fd, 1 << 20) < 0)
                return -1;
        return fd;
}

/* Missing pages of it are its owner's to bring: in his own mapping, as the test shows. */
static int with_faults_of_ones_own(void)
{
        int fd = memory(1 << 20, MFD_ALLOW_SEALING, SIZE_SEALS),
            uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
        struct uffdio_api api = {.api = UFFD_API};
        struct uffdio_register reg = {.mode = UFFDIO_REGISTER_MODE_MISSING};
        void *p = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

        reg.range.start = (uintptr_t)p;
        reg.range.len = 1 << 20;
        if (uffd < 0 || p == MAP_FAILED || ioctl(uffd, UFFDIO_API, &api) < 0 ||
            ioctl(uffd, UFFDIO_REGISTER, &reg) < 0)
                return -1;
        return fd;
}

static int tmp_file(void)
{
        return open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
}

static int leased(void)
{
        int fd = tmp_file();

        fcntl(fd, F_SETLEASE, F_WRLCK);
        return fd;
}

static int path_of_file(void)
{
        return open("/etc/passwd", O_PATH | O_CLOEXEC);
}

static int path_of_memory(void)
{
        char path[64];

        snprintf(path, sizeof path, "/proc/self/fd/%d",
                 memory(1 << 20, MFD_ALLOW_SEALING, SIZE_SEALS | F_SEAL_SEAL));
        return open(path, O_PATH | O_CLOEXEC);
}

static int directory(void)
{
        return open("/proc/self/fd", O_DIRECTORY | O_CLOEXEC);
}

static int zero(void)
{
        return open("/dev/zero", O_RDWR | O_CLOEXEC);
}

static int fuse(void)
{
        return open("/dev/fuse", O_RDWR | O_CLOEXEC);
}

static int terminal(void)
{
        return posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
}

static int own_memory(void)
{
        return open("/proc/self/mem", O_RDWR | O_CLOEXEC);
}

static int own_namespace(void)
{
        return open("/proc/self/ns/user", O_RDONLY | O_CLOEXEC);
}

static int blocking_pipe(void)
{
        int p[2];

        return pipe2(p, O_CLOEXEC) < 0 ? -1 : p[1];
}

static int packet_pipe(void)
{
        int p[2];

        return pipe2(p, O_CLOEXEC | O_DIRECT | O_NONBLOCK) < 0 ? -1 : p[0];
}

static int counter(void)
{
        return eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
}

static int timer(void)
{
        return timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
}

static int signals(void)
{
        sigset_t all;

        sigfillset(&all);
        return signalfd(-1, &all, SFD_CLOEXEC);
}

static int watch(void)
{
        return inotify_init1(IN_CLOEXEC);
}

static int watches_watches(void)
{
        int inner = epoll_create1(EPOLL_CLOEXEC);

        for (int i = 0; i < 4; i++) {
                struct epoll_event e = {.events = EPOLLIN};
                int outer = epoll_create1(EPOLL_CLOEXEC);

                if (outer < 0 || epoll_ctl(outer, EPOLL_CTL_ADD, inner, &e) < 0)
                        return -1;
                inner = outer;
        }
        return inner;
}

static int of_oneself(void)
{
        return pidfd_open(getpid(), 0);
}

static int of_another(void)
{
        return pidfd_open(getppid(), 0);
}

static int uring(void)
{
        static uint8_t params[120];

        return (int)syscall(SYS_io_uring_setup, 4, params);
}

static int ruleset(void)
{
        const uint64_t handled = 1;

        return (int)syscall(SYS_landlock_create_ruleset, &handled, sizeof handled, 0);
}

static int tcp(void)
{
        return socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

static int udp(void)
{
        return socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
}

static int netlink(void)
{
        return socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, 0);
}

static int vsock(void)
{
        return socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

static int unix_stream(void)
{
        int p[2];

        return socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, p) < 0 ? -1 : p[0];
}

/* A bell that waits, whoever reads it. */
static int blocking_bell(void)
{
        struct sockaddr_un any = {.sun_family = AF_UNIX};
        int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

        return bind(fd, (struct sockaddr *)&any, sizeof any.sun_family) < 0 ? -1 : fd;
}

/* At a path, of which anybody may ask a file system of his own. */
static int bell_at_a_path(void)
{
        struct sockaddr_un at = {.sun_family = AF_UNIX};
        int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

        snprintf(at.sun_path, sizeof at.sun_path, "/tmp/users-kinds-%d", (int)getpid());
        if (bind(fd, (struct sockaddr *)&at, sizeof at) < 0)
                return -1;
        unlink(at.sun_path);
        return fd;
}

static bool put_in(int into, const int *fds, unsigned n)
{
        union {
                struct cmsghdr align;
                char bytes[CMSG_SPACE(253 * sizeof(int))];
        } ctl = {.bytes = {0}};
        struct iovec iov = {(void *)(uintptr_t) "", 1};
        struct msghdr m = {.msg_iov = &iov,
                           .msg_iovlen = 1,
                           .msg_control = &ctl,
                           .msg_controllen = CMSG_SPACE(n * sizeof(int))};

        *CMSG_FIRSTHDR(&m) = (struct cmsghdr){.cmsg_len = CMSG_LEN(n * sizeof(int)),
                                              .cmsg_level = SOL_SOCKET,
                                              .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(CMSG_FIRSTHDR(&m)), fds, n * sizeof(int));
        return sendmsg(into, &m, MSG_DONTWAIT | MSG_NOSIGNAL) == 1;
}

/* A socket in whose queue are sockets in whose queues are more, as deep as the kernel goes; and in
 * each of them as many as go in. */
static int with_sockets_in_it(void)
{
        int many[253], p[2], inner = unix_stream();

        for (unsigned i = 0; i < ARRAY_LEN(many); i++)
                many[i] = inner;
        for (;;) {
                if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, p) < 0)
                        return -1;
                many[0] = inner;
                if (!put_in(p[1], many, 253) && !put_in(p[1], many, 1))
                        return inner;
                close(p[1]);
                if (inner != many[1])
                        close(inner);
                inner = p[0];
        }
}

/* A pair that only each other's queue keeps: the kernel's collector finds it. */
static int in_a_circle(void)
{
        int p[2];

        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, p) < 0)
                return -1;
        put_in(p[0], &p[0], 1);
        put_in(p[1], &p[1], 1);
        return p[0];
}

static const struct kind {
        const char *name;
        int (*make)(void);
} kinds[] = {
#define K(name)             \
        {                   \
#name, name \
        }
        K(no_seals),
        K(may_shrink),
        K(may_be_sealed),
        K(write_sealed),
        K(of_huge_pages),
        K(empty),
        K(secret),
        K(with_faults_of_ones_own),
        K(tmp_file),
        K(leased),
        K(path_of_file),
        K(path_of_memory),
        K(directory),
        K(zero),
        K(fuse),
        K(terminal),
        K(own_memory),
        K(own_namespace),
        K(blocking_pipe),
        K(packet_pipe),
        K(counter),
        K(timer),
        K(signals),
        K(watch),
        K(watches_watches),
        K(of_oneself),
        K(of_another),
        K(uring),
        K(ruleset),
        K(tcp),
        K(udp),
        K(netlink),
        K(vsock),
        K(unix_stream),
        K(blocking_bell),
        K(bell_at_a_path),
        K(with_sockets_in_it),
        K(in_a_circle),
#undef K
};

/* ---- the places ---- */

struct place {
        uint16_t type;
        uint8_t n, at; /* so many descriptors, and this one is odd */
};

static const struct place by_client[] = {
        {UNETD_STACK_NEW, 6, 0},  {UNETD_STACK_NEW, 6, 1},   {UNETD_STACK_NEW, 6, 2},
        {UNETD_STACK_NEW, 6, 3},  {UNETD_STACK_NEW, 6, 4},   {UNETD_STACK_NEW, 6, 5},
        {UNETD_LISTEN_ADD, 1, 0}, {UNETD_EMUL_ATTACH, 2, 0}, {UNETD_EMUL_ATTACH, 2, 1},
        {UNETD_PROC_ADD, 1, 0},   {UNETD_FLIGHT, 1, 0},      {UNETD_LINK_BACK, 2, 0},
        {UNETD_LINK_BACK, 2, 1},  {UNETD_CHAN_BACK, 3, 0},   {UNETD_CHAN_BACK, 3, 1},
        {UNETD_CHAN_BACK, 3, 2},  {UNETD_STATUS, 1, 0},      {UNETD_HELLO, 1, 0},
        {UNETD_K_HELLO, 1, 0},
};

static const struct place by_keeper[] = {
        {UNETD_K_STACK, 6, 0},    {UNETD_K_STACK, 6, 1},   {UNETD_K_STACK, 6, 2},
        {UNETD_K_STACK, 6, 3},    {UNETD_K_STACK, 6, 4},   {UNETD_K_STACK, 6, 5},
        {UNETD_K_PROC, 1, 0},     {UNETD_K_CHAN, 5, 0},    {UNETD_K_CHAN, 3, 0},
        {UNETD_K_RLINK, 2, 0},    {UNETD_K_RLINK, 2, 1},   {UNETD_K_GONE, 1, 0},
        {UNETD_LISTEN_ADD, 1, 0}, {UNETD_PORT_HOLD, 1, 0}, {UNETD_PORT_LEASE, 1, 0},
        {UNETD_K_FLIGHTS, 1, 0},
};

static struct unetd_msg about(const struct place *p, const struct hostile_stack *st)
{
        struct unetd_msg m = {.type = p->type};

        m.stack.stack = p->type == UNETD_STACK_NEW ? 0
                        : p->type == UNETD_K_STACK ? (st->id + 1) & UNETD_STACK_ID_MAX
                                                   : st->id;
        if (p->type == UNETD_LISTEN_ADD || p->type == UNETD_PORT_HOLD)
                m.port = (struct unetd_port){.stack = st->id,
                                             .proto = IPPROTO_TCP,
                                             .port = (uint16_t)table->port,
                                             .addr = ip_addr_v4(INADDR_LOOPBACK)};
        if (p->type == UNETD_CHAN_BACK || p->n == 3)
                m.chan.peer_stack = UNETD_REMOTE | 1;
        return m;
}

static void fill(const struct place *p, const struct hostile_stack *st, int odd,
                 int fds[UNETD_FDS_MAX])
{
        const int right[] = {st->fds.state,       st->fds.bell,   st->fds.leader,
                             st->fds.ring_leader, st->fds.keeper, st->fds.ring_keeper};

        for (unsigned i = 0; i < p->n; i++)
                fds[i] = i == p->at ? odd : right[i];
}

/* Who has sent much that nobody wants is not listened to until it is closed. */
static int dial_again(void)
{
        int fd = -1;

        must_eventually((fd = hostile_dial()) >= 0);
        while (hostile_hello(fd) != 0) {
                close(fd);
                usleep(1000);
                must_eventually((fd = hostile_dial()) >= 0);
        }
        return fd;
}

static int brings_each_kind(void)
{
        struct hostile_stack st;
        int k, c, refused = 0;

        prctl(PR_SET_DUMPABLE, 1); /* not since the uid changed; /proc/self is root's then */
        k = hostile_keeper(HOSTILE_ANSWERS);
        c = dial_again();
        must(k >= 0 && hostile_stack(c, &st) == 0);
        for (unsigned i = 0; i < ARRAY_LEN(kinds); i++) {
                int odd = kinds[i].make(), fds[UNETD_FDS_MAX];

                if (odd < 0)
                        fprintf(stderr, "not on this machine: %s (%s)\n", kinds[i].name,
                                strerror(errno));
                for (unsigned p = 0; odd >= 0 && p < ARRAY_LEN(by_client); p++) {
                        struct unetd_msg m = about(&by_client[p], &st);
                        int r;

                        if (by_client[p].type == UNETD_PROC_ADD && kinds[i].make == of_oneself)
                                continue; /* what it is for */
                        fill(&by_client[p], &st, odd, fds);
                        r = hostile_ask(c, &m, fds, by_client[p].n);
                        if (r >= 0)
                                fprintf(stderr, "%s in place %u of request %u: taken\n",
                                        kinds[i].name, by_client[p].at, by_client[p].type);
                        must(r < 0);
                        refused++;
                        if (r == -ECONNRESET || r == -EPIPE) {
                                close(c);
                                c = dial_again();
                        }
                }
                close(odd);
        }
        printf("%d refused\n", refused);
        fflush(stdout);
        must(refused > (int)ARRAY_LEN(by_client) * 20);
        return 0;
}

/* A user for each kind: his keeper is not listened to for long. */
static int offers_a_kind(void)
{
        struct hostile_stack st;
        int k, c, odd, fds[UNETD_FDS_MAX];

        prctl(PR_SET_DUMPABLE, 1);
        k = hostile_keeper(HOSTILE_ANSWERS);
        c = dial_again();
        must(k >= 0 && hostile_stack(c, &st) == 0);
        odd = kinds[table->value[0]].make();
        for (unsigned p = 0; odd >= 0 && p < ARRAY_LEN(by_keeper); p++) {
                struct unetd_msg m = about(&by_keeper[p], &st);

                fill(&by_keeper[p], &st, odd, fds);
                hostile_send(k, &m, fds, by_keeper[p].n);
        }
        close(odd);
        close(c);
        close(dial_again());
        return 0;
}

static bool count_stacks(void *arg, const struct unetd_status_item *item)
{
        *(int *)arg += item->kind == UNETD_S_STACK && item->uid >= HOSTILE;
        return true;
}

static int stacks_of_others(void)
{
        struct unetd_client c = {.pid = 0};
        int n = 0;

        if (unetd_open(&c, UNETD_NO_START | UNETD_SYSTEM) < 0 ||
            unetd_status(&c, count_stacks, &n) < 0)
                n = -1;
        unetd_close(&c);
        return n;
}

static int fds_of_unetd(void)
{
        return users_fds(users_unetd()) + users_fds(users_broker());
}

static void goes_on(int fds)
{
        users_victim_goes_on();
        eventually(stacks_of_others() == 0);
        eventually(fds_of_unetd() <= fds);
        users_unetd_answers();
}

static void no_kind_is_taken_from_a_client(void **state)
{
        int fds;

        if (users_cannot_run())
                skip();
        users_victim_start();
        fds = fds_of_unetd();
        users_run(HOSTILE, brings_each_kind);
        goes_on(fds + 1); /* he may have a keeper now */
}

static void no_kind_is_taken_from_a_keeper(void **state)
{
        int fds;

        if (users_cannot_run())
                skip();
        users_victim_start();
        fds = fds_of_unetd();
        for (unsigned i = 0; i < ARRAY_LEN(kinds); i++) {
                table->value[0] = i;
                users_run(HOSTILE + 1 + i, offers_a_kind);
        }
        goes_on(fds + (int)ARRAY_LEN(kinds));
}

/* ---- who he says to be ---- */

static void only_root_may(int c)
{
        static const uint16_t types[] = {UNETD_ROUTE_ADD, UNETD_ROUTE_DEL, UNETD_NEIGH_ADD,
                                         UNETD_NEIGH_DEL, UNETD_IFACE_UP,  UNETD_IFACE_DOWN,
                                         UNETD_IFACE_ADD, UNETD_IFACE_DEL};

        for (unsigned i = 0; i < ARRAY_LEN(types); i++) {
                struct unetd_msg m = {.type = types[i]};

                must(hostile_ask(c, &m, NULL, 0) == -EPERM);
        }
}

static bool write_map(const char *path, uint32_t id)
{
        char text[32];
        int fd = open(path, O_WRONLY | O_CLOEXEC), n = snprintf(text, sizeof text, "0 %u 1", id);
        bool done = write(fd, text, (size_t)n) == n;

        close(fd);
        return done;
}

static int is_root_of_his_own(void)
{
        uint32_t uid = getuid();

        prctl(PR_SET_DUMPABLE, 1);
        if (unshare(CLONE_NEWUSER) < 0 || !write_map("/proc/self/uid_map", uid)) {
                fprintf(stderr, "users have no namespaces here\n");
                return 0;
        }
        must(getuid() == 0);
        only_root_may(hostile_client());
        return 0;
}

static void root_of_his_own_namespace_is_nobody(void **state)
{
        if (users_cannot_run())
                skip();
        users_run(HOSTILE, is_root_of_his_own);
}

/* A set-user-ID program writes to what it is given as its standard output. */
static int connection = -1;

static int lends_his_connection(void)
{
        int c = hostile_client();

        must(put_in(connection, &c, 1));
        return 0;
}

static int take_one(int from)
{
        union {
                struct cmsghdr align;
                char bytes[CMSG_SPACE(sizeof(int))];
        } ctl;
        char byte;
        struct iovec iov = {&byte, 1};
        struct msghdr m = {.msg_iov = &iov,
                           .msg_iovlen = 1,
                           .msg_control = &ctl,
                           .msg_controllen = sizeof ctl};
        int fd = -1;

        if (recvmsg(from, &m, MSG_CMSG_CLOEXEC) == 1 && CMSG_FIRSTHDR(&m))
                memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof fd);
        return fd;
}

static void a_connection_is_of_who_made_it(void **state)
{
        int p[2], c;

        if (users_cannot_run())
                skip();
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, p), 0);
        connection = p[1];
        users_run(HOSTILE, lends_his_connection);
        c = take_one(p[0]);
        assert_true(c >= 0);
        only_root_may(c); /* by root, on a connection of the hostile's */
        close(c), close(p[0]), close(p[1]);
}

/* Another's process as one of his own stack's, and his own that is somebody else's by the time it
 * is looked at. */
static int names_processes_of_others(void)
{
        int k = hostile_keeper(HOSTILE_ANSWERS), c = hostile_client();
        struct hostile_stack st;

        must(k >= 0 && hostile_stack(c, &st) == 0);
        for (int i = 0; i < 3; i++) {
                const int pid[] = {1, (int)table->value[0], (int)table->value[1]};
                struct unetd_msg m = {.type = UNETD_PROC_ADD,
                                      .stack = {.stack = st.id, .slot = 5, .pid = pid[i]}};
                int r = hostile_ask(c, &m, NULL, 0);

                must(r == -EPERM || r == -ESRCH);
        }
        for (int i = 0; i < 200; i++) {
                pid_t child = fork();
                struct unetd_msg m = {
                        .type = UNETD_PROC_ADD,
                        .stack = {.stack = st.id, .slot = 6 + (uint32_t)i, .pid = child}};
                int r;

                if (child == 0)
                        _exit(0);
                r = hostile_ask(c, &m, NULL, 0); /* it dies meanwhile */
                must(r == 0 || r == -ESRCH);
                must(wait(NULL) == child);
        }
        return 0;
}

static void a_process_is_of_its_user(void **state)
{
        if (users_cannot_run())
                skip();
        users_victim_start();
        table->value[0] = users_broker();
        table->value[1] = users_unetd();
        users_run(HOSTILE, names_processes_of_others);
        users_victim_goes_on();
        users_unetd_answers();
}

static bool find_keeper(void *arg, const struct unetd_status_item *item)
{
        if (item->kind == UNETD_S_KEEPER && item->uid == getuid())
                *(pid_t *)arg = item->pid;
        return true;
}

static int traces(void)
{
        struct unetd_client c = {.pid = 0};
        pid_t pid[3] = {users_unetd(), (pid_t)table->value[0], 0};
        struct hostile_stack st;

        must(unetd_open(&c, UNETD_NO_START) == 0 && hostile_stack(hostile_client(), &st) < 0);
        must_eventually(unetd_status(&c, find_keeper, &pid[2]) == 0 && pid[2] != 0);
        for (unsigned i = 0; i < ARRAY_LEN(pid); i++) {
                int fd = pidfd_open(pid[i], 0);
                char path[64];

                must(ptrace(PTRACE_SEIZE, pid[i], NULL, NULL) < 0);
                must(syscall(SYS_pidfd_getfd, fd, 3, 0) < 0);
                snprintf(path, sizeof path, "/proc/%d/mem", (int)pid[i]);
                must(open(path, O_RDWR) < 0);
                snprintf(path, sizeof path, "/proc/%d/fd/3", (int)pid[i]);
                must(open(path, O_RDONLY) < 0);
        }
        return 0;
}

/* Of his keeper that is as true: what it has of the system's it has for him, and its limits are
 * not. */
static void nobody_traces_unetd_or_his_keeper(void **state)
{
        if (users_cannot_run())
                skip();
        table->value[0] = users_broker();
        users_run(HOSTILE, traces);
}

#define t(name) cmocka_unit_test_setup_teardown(name, users_setup, users_teardown)

int main(void)
{
        const struct CMUnitTest tests[] = {
                t(no_kind_is_taken_from_a_client),
                t(no_kind_is_taken_from_a_keeper),
                t(root_of_his_own_namespace_is_nobody),
                t(a_connection_is_of_who_made_it),
                t(a_process_is_of_its_user),
                t(nobody_traces_unetd_or_his_keeper),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
