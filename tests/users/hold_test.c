/*
 * What a user can hold for ever, and unetd must not wait for: files whose close asks their owner,
 * sockets that linger, names; and a unetd that is killed is replaced.
 */
#include "tests/users/users.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "unet/bell_fd.h"
#include "unetd/client/name.h"

/* ---- a file system of the user's own ---- */

static int fuse_fd = -1;

static void fuse_reply(uint64_t unique, int err, const void *data, size_t len)
{
        char out[4096];
        struct fuse_out_header h = {
                .len = (uint32_t)(sizeof h + len), .error = -err, .unique = unique};

        memcpy(out, &h, sizeof h);
        if (len > 0)
                memcpy(out + sizeof h, data, len);
        if (write(fuse_fd, out, h.len) < 0 && errno != ENOENT)
                _exit(1);
}

/* One directory with whatever file is asked for; what is flushed or read waits for ever, and the
 * test hears of it. */
static void fuse_serve(const struct fuse_in_header *in)
{
        const struct fuse_attr dir = {.ino = 1, .mode = S_IFDIR | 0755, .nlink = 2};
        const struct fuse_attr file = {
                .ino = 2, .mode = S_IFREG | 0644, .nlink = 1, .size = 1 << 20};
        const struct fuse_init_out init = {
                .major = 7, .minor = 31, .max_write = 4096, .max_readahead = 4096};
        const struct fuse_entry_out entry = {
                .nodeid = 2, .attr = file, .entry_valid = 100, .attr_valid = 100};
        const struct fuse_attr_out attr = {.attr_valid = 100, .attr = in->nodeid == 1 ? dir : file};
        const struct fuse_open_out opened = {.fh = 1};

        switch (in->opcode) {
        case FUSE_INIT:
                fuse_reply(in->unique, 0, &init, sizeof init);
                break;
        case FUSE_LOOKUP:
                fuse_reply(in->unique, 0, &entry, sizeof entry);
                break;
        case FUSE_GETATTR:
                fuse_reply(in->unique, 0, &attr, sizeof attr);
                break;
        case FUSE_OPEN:
        case FUSE_OPENDIR:
                fuse_reply(in->unique, 0, &opened, sizeof opened);
                break;
        case FUSE_FLUSH:
        case FUSE_READ:
                table->value[0]++;
                break;
        case FUSE_FORGET:
                break;
        default:
                fuse_reply(in->unique, in->opcode == FUSE_RELEASE ? 0 : ENOSYS, NULL, 0);
        }
}

/* A process: when it ends, so does all that waits for it; of a thread's own process that would be
 * its exit. */
static pid_t fuse_server(void)
{
        static _Alignas(8) char in[1 << 17];
        pid_t pid = fork();

        if (pid != 0) {
                close(fuse_fd);
                return pid;
        }
        alarm(2 * USERS_PATIENCE_MS / 1000);
        while (read(fuse_fd, in, sizeof in) > 0)
                fuse_serve((const struct fuse_in_header *)in);
        _exit(0);
}

static bool put(const char *path, const char *text)
{
        int fd = open(path, O_WRONLY | O_CLOEXEC);
        ssize_t n = fd < 0 ? -1 : write(fd, text, strlen(text));

        close(fd);
        return n == (ssize_t)strlen(text);
}

/* In namespaces of our own, as any user may. False: not on this machine. */
static bool own_namespaces(void)
{
        char uid[64], gid[64];

        snprintf(uid, sizeof uid, "0 %u 1", getuid());
        snprintf(gid, sizeof gid, "0 %u 1", getgid());
        return prctl(PR_SET_DUMPABLE, 1) == 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0 &&
               put("/proc/self/setgroups", "deny") && put("/proc/self/uid_map", uid) &&
               put("/proc/self/gid_map", gid);
}

static bool fuse_mount(void)
{
        char options[64];

        fuse_fd = own_namespaces() ? open("/dev/fuse", O_RDWR | O_CLOEXEC) : -1;
        snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0", fuse_fd);
        return fuse_fd >= 0 && mount("hold", "/mnt", "fuse", 0, options) == 0;
}

static int tries_fuse(void)
{
        table->ready = fuse_mount() ? 1 : 2;
        return 0;
}

static bool no_fuse(void)
{
        table->ready = 0;
        users_run(HOSTILE, tries_fuse);
        if (table->ready == 2)
                print_message("skipped: a user has no file systems of his own here\n");
        return table->ready == 2;
}

/* What /proc/self/fd says of it is "/memfd:unet-x" once the mount is detached. */
static int passes_a_file_of_its_own(void)
{
        struct unetd_msg status = {.type = UNETD_STATUS, .seq = 7};
        int c = hostile_client(), file;

        must(fuse_mount());
        table->value[1] = fuse_server();
        must(table->value[1] > 0);
        file = open("/mnt/memfd:unet-x", O_RDWR | O_CLOEXEC);
        must(file >= 0 && umount2("/mnt", MNT_DETACH) == 0);
        must(hostile_send(c, &status, &file, 1) == 0);
        must_eventually(table->value[0] > 0); /* somebody closes it, and waits */
        table->done = 1;
        pause();
        return 0;
}

/* ---- a ring that is read into a file of the user's own ---- */

static void *reads_a_ring(void *arg)
{
        void *page = arg;

        recv((int)table->value[2], page, 1, 0);
        return NULL;
}

/* The bell's reader waits with the page for ever; who rings, connects and leaves does not. */
static int reads_into_a_file_of_its_own(void)
{
        int bell = bell_make(), ringer = bell_ringer(bell), file, other;
        pthread_t thread;
        void *page;

        must(fuse_mount());
        table->value[1] = fuse_server();
        must(table->value[1] > 0);
        file = open("/mnt/x", O_RDWR | O_CLOEXEC);
        page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
        must(file >= 0 && page != MAP_FAILED);
        table->value[2] = bell;
        bell_ring(ringer);
        must(pthread_create(&thread, NULL, reads_a_ring, page) == 0);
        must_eventually(table->value[0] > 0);
        for (int i = 0; i < 100; i++)
                bell_ring(ringer);
        other = bell_ringer(bell);
        must(other >= 0);
        bell_ring(other);
        close(other), close(ringer);
        table->done = 1;
        pause();
        return 0;
}

static void a_ring_that_is_read_for_ever(void **state)
{
        pid_t hostile;

        if (users_cannot_run() || no_fuse())
                skip();
        hostile = users_begin(HOSTILE, reads_into_a_file_of_its_own);
        eventually(table->done);
        kill((pid_t)table->value[1], SIGKILL);
        users_kill(hostile);
}

static void a_file_that_is_never_flushed(void **state)
{
        pid_t hostile;

        if (users_cannot_run() || no_fuse())
                skip();
        users_victim_start();
        hostile = users_begin(HOSTILE, passes_a_file_of_its_own);
        eventually(table->done);
        users_unetd_answers();
        users_victim_goes_on();
        kill((pid_t)table->value[1], SIGKILL);
        users_kill(hostile);
        users_unetd_answers();
}

/* ---- sockets whose lock their owner holds ---- */

enum { LOCKED = 3, PAGE_APART = 65536 };

struct locked {
        int sock;
        void *memory;
};

/* The kernel copies options with the socket's lock held. */
static void *hold_lock(void *arg)
{
        const struct locked *l = arg;

        setsockopt(l->sock, IPPROTO_IP, IP_OPTIONS, l->memory, 8);
        _exit(1); /* it was to wait */
}

static pid_t lock_holder(const int *socks)
{
        struct locked l[LOCKED];
        pthread_t thread;
        pid_t pid = fork();
        char *memory;
        int file;

        if (pid != 0)
                return pid;
        must(fuse_mount());
        table->value[1] = fuse_server();
        file = open("/mnt/memory", O_RDWR | O_CLOEXEC);
        memory = file < 0 ? MAP_FAILED
                          : mmap(NULL, LOCKED * PAGE_APART, PROT_READ, MAP_SHARED, file, 0);
        must(memory != MAP_FAILED);
        for (int i = 0; i < LOCKED; i++) {
                l[i] = (struct locked){socks[i], memory + i * PAGE_APART};
                must(pthread_create(&thread, NULL, hold_lock, &l[i]) == 0);
        }
        for (;;)
                pause();
}

static int bound_only(uint16_t *port)
{
        struct sockaddr_in sin = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t len = sizeof sin;
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

        must(fd >= 0 && bind(fd, (struct sockaddr *)&sin, len) == 0 &&
             getsockname(fd, (struct sockaddr *)&sin, &len) == 0);
        *port = ntohs(sin.sin_port);
        return fd;
}

static int claims_with_locked_sockets(void)
{
        uint16_t port[LOCKED] = {0};
        int socks[LOCKED], k, c, r;
        struct hostile_stack st;

        socks[0] = hostile_socket(IPPROTO_TCP, INADDR_LOOPBACK, &port[0], false);
        socks[1] = hostile_socket(IPPROTO_UDP, INADDR_LOOPBACK, &port[1], false);
        socks[2] = bound_only(&port[2]);
        table->value[2] = lock_holder(socks);
        must_eventually(table->value[0] == LOCKED);
        k = hostile_keeper(HOSTILE_ANSWERS);
        c = hostile_client();
        must(k >= 0 && hostile_stack(c, &st) == 0);
        must(hostile_listen(c, st.id, IPPROTO_TCP, INADDR_LOOPBACK, port[0], socks[0]) == 0);
        must(hostile_listen(c, st.id, IPPROTO_UDP, INADDR_LOOPBACK, port[1], socks[1]) == 0);
        r = hostile_listen(c, st.id, IPPROTO_TCP | DIR_HELD, INADDR_LOOPBACK, port[2], socks[2]);
        must(r == 0 || r == -EINVAL); /* before Linux 6.8 nobody says whose the port is */
        table->done = 1;
        pause();
        return 0;
}

static void a_socket_that_is_locked(void **state)
{
        pid_t hostile;

        if (users_cannot_run() || no_fuse())
                skip();
        users_victim_start();
        hostile = users_begin(HOSTILE, claims_with_locked_sockets);
        eventually(table->done);
        users_unetd_answers();
        users_victim_goes_on();
        kill((pid_t)table->value[1], SIGKILL);
        kill((pid_t)table->value[2], SIGKILL);
        users_kill(hostile);
        users_unetd_answers();
}

/* ---- sockets that linger in what is not read ---- */

enum { LINGERING = 200 };

/* Connected, full, and its last close waits for an hour. */
static int lingering(const struct sockaddr_in *to)
{
        const struct linger hour = {1, 3600};
        static const char junk[65536];
        int small = 4096, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

        must(fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof small) == 0);
        must(connect(fd, (const struct sockaddr *)to, sizeof *to) == 0);
        while (send(fd, junk, sizeof junk, MSG_DONTWAIT) > 0)
                ;
        must(setsockopt(fd, SOL_SOCKET, SO_LINGER, &hour, sizeof hour) == 0);
        return fd;
}

static int raw_send(int sock, const int *fds, unsigned n)
{
        static char ctl[CMSG_SPACE(sizeof(int) * LINGERING)];
        struct unetd_msg msg = {.magic = UNETD_MAGIC, .type = UNETD_STATUS, .seq = 1};
        struct iovec iov = {&msg, sizeof msg};
        struct msghdr m = {.msg_iov = &iov,
                           .msg_iovlen = 1,
                           .msg_control = ctl,
                           .msg_controllen = CMSG_SPACE(sizeof(int) * n)};

        *CMSG_FIRSTHDR(&m) = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int) * n),
                                              .cmsg_level = SOL_SOCKET,
                                              .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(CMSG_FIRSTHDR(&m)), fds, sizeof(int) * n);
        return sendmsg(sock, &m, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

/* Who makes them ends at once, which waits for none of them: the last copies are those in the
 * message. */
static void send_lingering(int conn, const struct sockaddr_in *to)
{
        int fds[LINGERING];
        pid_t pid = fork();

        if (pid == 0) {
                for (int i = 0; i < LINGERING; i++)
                        fds[i] = lingering(to);
                raw_send(conn, fds, LINGERING);
                _exit(0);
        }
        waitpid(pid, NULL, 0);
}

/* The connection ends before anybody reads it, or stays and is refused: both. */
static void leave_lingering(int (*dial)(void))
{
        struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        int listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), small = 4096;
        socklen_t len = sizeof a;

        must(setsockopt(listening, SOL_SOCKET, SO_RCVBUF, &small, sizeof small) == 0);
        must(bind(listening, (struct sockaddr *)&a, sizeof a) == 0 && listen(listening, 4096) == 0);
        must(getsockname(listening, (struct sockaddr *)&a, &len) == 0);
        for (int round = 0; round < 6; round++) {
                int c = dial();

                send_lingering(c, &a);
                if (round % 2)
                        close(c);
        }
}

static int lingers(void)
{
        leave_lingering(hostile_dial);
        table->done = 1;
        pause();
        return 0;
}

/* As many connections as he may have: the rest are refused. */
static int lingers_in_what_is_refused(void)
{
        for (int i = 0; i < 16; i++)
                must(hostile_dial() >= 0);
        return lingers();
}

static int few_clients(void **state)
{
        return users_setup_with("[limits]\nclients = 16\n");
}

static void lingering_connections(int (*attack)(void))
{
        pid_t hostile;

        users_victim_start();
        hostile = users_begin(HOSTILE, attack);
        eventually(table->done);
        users_unetd_answers();
        users_victim_goes_on();
        users_kill(hostile);
}

static void sockets_that_linger(void **state)
{
        if (users_cannot_run())
                skip();
        lingering_connections(lingers);
}

static void sockets_that_linger_where_nobody_is_let_in(void **state)
{
        if (users_cannot_run())
                skip();
        lingering_connections(lingers_in_what_is_refused);
}

/* ---- a child that cannot be made ---- */

static bool has_no_reader(int fd)
{
        return write(fd, "x", 1) < 0 && errno == EPIPE;
}

/* Gives unetd a pipe that it does not want, and hears when its end is closed. */
static int gives_a_pipe(void)
{
        struct unetd_msg m = {.type = UNETD_PORT_LEASE};
        int p[2], fd = hostile_client();

        signal(SIGPIPE, SIG_IGN);
        must(pipe2(p, O_CLOEXEC | O_NONBLOCK) == 0);
        must(hostile_ask(fd, &m, p, 1) != -ETIMEDOUT);
        close(p[0]);
        must(!has_no_reader(p[1]));
        table->ready = 1;
        must_eventually(table->done);
        must_eventually(has_no_reader(p[1]));
        return 0;
}

/* The number after `name` in /proc/PID/status. */
static unsigned status_of_process(pid_t pid, const char *name)
{
        char path[64], line[256];
        unsigned value = 0;
        FILE *f;

        snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
        f = fopen(path, "re");
        assert_non_null(f);
        while (fgets(line, sizeof line, f) != NULL)
                if (strncmp(line, name, strlen(name)) == 0)
                        value = (unsigned)strtoul(line + strlen(name), NULL, 10);
        fclose(f);
        return value;
}

/* Its soft limit of processes; as its user, who alone may do that without CAP_SYS_RESOURCE. */
static void limit_processes(pid_t pid, rlim_t to)
{
        unsigned uid = status_of_process(pid, "Uid:"), gid = status_of_process(pid, "Gid:");
        int status;
        pid_t child = fork();

        if (child == 0) {
                struct rlimit rl;
                if (setresgid(gid, gid, gid) != 0 || setresuid(uid, uid, uid) != 0 ||
                    prlimit(pid, RLIMIT_NPROC, NULL, &rl) != 0)
                        _exit(1);
                rl.rlim_cur = MIN(to, rl.rlim_max);
                _exit(prlimit(pid, RLIMIT_NPROC, &rl, NULL) != 0);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
}

/* unetd's limit of processes, or memory. */
static void a_child_that_cannot_be_made_is_made_later(void **state)
{
        pid_t broker, hostile;

        if (users_cannot_run())
                skip();
        table->ready = table->done = 0;
        broker = users_broker();
        limit_processes(broker, 0);
        hostile = users_begin(HOSTILE, gives_a_pipe);
        eventually(table->ready);
        users_unetd_answers();
        limit_processes(broker, RLIM_INFINITY);
        table->done = 1;
        users_wait(hostile);
        users_unetd_answers();
}

#define OFTEN 40u

static int gives_many_pipes(void)
{
        struct unetd_msg m = {.type = UNETD_PORT_LEASE};

        signal(SIGPIPE, SIG_IGN);
        for (uint32_t i = 1; i <= OFTEN; i++) {
                int p[2], fd = hostile_client();

                must_eventually(table->done == 2 * i - 1);
                must(pipe2(p, O_CLOEXEC | O_NONBLOCK) == 0);
                must(hostile_ask(fd, &m, p, 1) != -ETIMEDOUT);
                close(p[0]);
                table->ready = 2 * i - 1;
                must_eventually(table->done == 2 * i);
                must_eventually(has_no_reader(p[1]));
                close(p[1]);
                close(fd);
                table->ready = 2 * i;
        }
        return 0;
}

static char log_path[64];

static int setup_logged(void **state)
{
        char config[128];

        snprintf(log_path, sizeof log_path, "/tmp/unet-hold-test-%d.log", (int)getpid());
        snprintf(config, sizeof config, "[daemon]\nlog = %s\n", log_path);
        return users_setup_with(config);
}

/* A line each time is his: he gets one a second, and some at once. */
static void children_that_cannot_be_made_do_not_fill_the_log(void **state)
{
        int64_t began = users_now_ms();
        unsigned lines, may;
        pid_t broker, hostile;

        if (users_cannot_run())
                skip();
        table->ready = table->done = 0;
        broker = users_broker();
        hostile = users_begin(HOSTILE, gives_many_pipes);
        for (uint32_t i = 1; i <= OFTEN; i++) {
                limit_processes(broker, 0);
                table->done = 2 * i - 1;
                eventually(table->ready == 2 * i - 1);
                limit_processes(broker, RLIM_INFINITY);
                table->done = 2 * i;
                eventually(table->ready == 2 * i);
        }
        users_wait(hostile);
        lines = users_lines_logged(log_path, "no child to close");
        may = 20 + (unsigned)((users_now_ms() - began) / 1000) + 1;
        print_message("no child %u times: %u lines, at most %u\n", OFTEN, lines, may);
        assert_in_range(lines, 1, may);
        unlink(log_path);
}

/* ---- private ones ---- */

static char private_domain[UNETD_DOMAIN_MAX + 1];

static void name_private(void)
{
        snprintf(private_domain, sizeof private_domain, "%.24s-own", getenv("UNET_DOMAIN"));
}

/* His unetd answers him, before and after. */
static int has_a_unetd_of_his_own(void)
{
        struct unetd_client c = {.pid = 0}, again = {.pid = 0};

        setenv("UNET_DOMAIN", private_domain, 1);
        must(unetd_open(&c, 0) == 0 && !c.shared);
        table->ready = 1;
        must_eventually(table->done);
        must_eventually(unetd_open(&again, UNETD_NO_START) == 0);
        must(again.instance == c.instance);
        unetd_close(&again);
        unetd_close(&c);
        return 0;
}

static int dial_private(void)
{
        struct sockaddr_un sun;
        socklen_t len = unetd_name(&sun, VICTIM, private_domain, 0);
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

        must(fd >= 0 && connect(fd, (struct sockaddr *)&sun, len) == 0);
        return fd;
}

static int lingers_at_anothers(void)
{
        must_eventually(table->ready);
        leave_lingering(dial_private);
        table->done = 1;
        pause();
        return 0;
}

static void sockets_that_linger_at_a_private_unetd(void **state)
{
        pid_t victim, hostile;

        if (users_cannot_run())
                skip();
        name_private();
        victim = users_begin(VICTIM, has_a_unetd_of_his_own);
        hostile = users_begin(HOSTILE, lingers_at_anothers);
        users_wait(victim);
        users_kill(hostile);
}

/* A program that comes while the killed one still listens, and its keeper, which looks at the same
 * moment. */
static int kills_his_own(void)
{
        setenv("UNET_DOMAIN", private_domain, 1);
        for (int round = 0; round < 10; round++) {
                struct unetd_client c = {.pid = 0}, next = {.pid = 0};
                struct hostile_stack st;
                struct ucred who;
                socklen_t len = sizeof who;

                must(unetd_open(&c, 0) == 0);
                must(unetd_stack_fds_make(&st.fds, 1 << 20) == 0);
                must(getsockopt(c.daemon.fd, SOL_SOCKET, SO_PEERCRED, &who, &len) == 0 &&
                     who.uid == VICTIM);
                must(kill(who.pid, SIGKILL) == 0);
                must(unetd_open(&next, 0) == 0);
                must(next.instance != c.instance);
                unetd_stack_fds_close(&st.fds);
                unetd_close(&next);
                unetd_close(&c);
        }
        return 0;
}

static void a_private_unetd_that_is_killed_is_replaced(void **state)
{
        if (users_cannot_run())
                skip();
        name_private();
        users_run(VICTIM, kills_his_own);
}

/* ---- names ---- */

static int takes_all_names(void)
{
        for (unsigned i = 0; i < UNETD_NAMES; i++) {
                struct sockaddr_un sun;
                socklen_t len = unetd_name(&sun, 0, private_domain, i);
                int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);

                must(fd >= 0 && bind(fd, (struct sockaddr *)&sun, len) == 0);
                must(i % 2 == 0 || listen(fd, 0) == 0);
        }
        table->ready = 1;
        pause();
        return 0;
}

static int finds_the_systems(void)
{
        struct unetd_client c = {.pid = 0};

        setenv("UNET_DOMAIN", private_domain, 1);
        must_eventually(unetd_open(&c, UNETD_NO_START | UNETD_SYSTEM) == 0);
        must(c.shared);
        unetd_close(&c);
        return 0;
}

static void names_that_are_taken(void **state)
{
        pid_t hostile, unetd;

        if (users_cannot_run())
                skip();
        name_private();
        hostile = users_begin(HOSTILE, takes_all_names);
        eventually(table->ready);
        unetd = fork();
        if (unetd == 0) {
                char path[4096];
                snprintf(path, sizeof path, "%s/unetd", getenv("UNET_LIBEXEC"));
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                execl(path, "unetd", "--system", "--foreground", "--domain", private_domain, NULL);
                _exit(127);
        }
        users_run(VICTIM, finds_the_systems);
        kill(unetd, SIGTERM);
        waitpid(unetd, NULL, 0);
        users_kill(hostile);
}

#define t(name)     cmocka_unit_test_setup_teardown(name, users_setup, users_teardown)
#define t_few(name) cmocka_unit_test_setup_teardown(name, few_clients, users_teardown)

int main(void)
{
        const struct CMUnitTest tests[] = {
                t(a_file_that_is_never_flushed),
                t(a_ring_that_is_read_for_ever),
                t(a_socket_that_is_locked),
                t(sockets_that_linger),
                t_few(sockets_that_linger_where_nobody_is_let_in),
                t(a_child_that_cannot_be_made_is_made_later),
                cmocka_unit_test_setup_teardown(children_that_cannot_be_made_do_not_fill_the_log,
                                                setup_logged, users_teardown),
                t(sockets_that_linger_at_a_private_unetd),
                t(a_private_unetd_that_is_killed_is_replaced),
                t(names_that_are_taken),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
