/*
 * A system-wide unetd is two processes: what the broker is without, that neither lives without the
 * other, and what a broker that is taken over asks the monitor for in vain. Needs root.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <netinet/in.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/memfd.h"
#include "unetd/client/client_ask.h"
#include "unetd/client/name.h"
#include "unetd/monitor/broker.h"
#include "unetd/monitor/monitor_run.h"
#include "unetd/monitor/monitor_wire.h"
#include "tests/unit.h"

#define ALICE       64101u
#define BOB         64102u
#define PATIENCE_MS 120000

static pid_t started; /* the system-wide unetd */
static unsigned worlds;

static void pause_ms(int ms)
{
        usleep((useconds_t)ms * 1000);
}

#define eventually(cond)                                              \
        do {                                                          \
                bool is_ = (cond);                                    \
                for (int ms_ = 0; ms_ < PATIENCE_MS && !is_; ms_++) { \
                        pause_ms(1);                                  \
                        is_ = (cond);                                 \
                }                                                     \
                assert_true(is_ &&#cond);                             \
        } while (0)

static void need_root(void)
{
        if (geteuid() == 0)
                return;
        print_message("skipped: only root can be two users\n");
        skip();
}

static char domain[33];

static int new_world(void **state)
{
        snprintf(domain, sizeof domain, "split-%d-%u", (int)getpid(), worlds++);
        setenv("UNET_DOMAIN", domain, 1);
        setenv("UNET_LIBEXEC", TEST_LIBEXEC, 1);
        setenv("UNET_CONFIG", "/dev/null", 1);
        started = 0;
        return 0;
}

static int end_world(void **state)
{
        if (started > 0) {
                kill(started, SIGKILL);
                waitpid(started, NULL, 0);
        }
        return 0;
}

/* ---- the two processes ---- */

/* Its process id, as who connects is told by the kernel; 0: nobody listens. */
static pid_t listener(uid_t *uid)
{
        struct sockaddr_un sun;
        socklen_t len = unetd_name(&sun, 0, domain, 0), clen = sizeof(struct ucred);
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        struct ucred cred = {0};

        if (connect(fd, (struct sockaddr *)&sun, len) == 0)
                getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &clen);
        close(fd);
        *uid = cred.uid;
        return cred.pid;
}

static pid_t start(void)
{
        uid_t uid;
        pid_t broker;

        need_root();
        started = fork();
        if (started == 0) {
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                execl(TEST_LIBEXEC "/unetd", "unetd", "--system", "--foreground", "--log",
                      "/dev/null", "--idle", "-1", NULL);
                _exit(127);
        }
        eventually((broker = listener(&uid)) != 0);
        assert_int_equal(uid, 0); /* or no client would believe it */
        assert_int_not_equal(broker, started);
        return broker;
}

/* The line of /proc/PID/status that begins so, or "". */
static const char *status_line(pid_t pid, const char *key)
{
        static char line[256];
        char path[64];
        FILE *f;

        snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
        f = fopen(path, "re");
        while (f && fgets(line, sizeof line, f))
                if (strncmp(line, key, strlen(key)) == 0) {
                        fclose(f);
                        return line + strlen(key);
                }
        if (f)
                fclose(f);
        return "";
}

static unsigned long long status_number(pid_t pid, const char *key, int base)
{
        return strtoull(status_line(pid, key), NULL, base);
}

static bool is_gone(pid_t pid)
{
        return status_line(pid, "State:")[0] == '\0' ||
               strchr(status_line(pid, "State:"), 'Z') != NULL;
}

/* The client is served, so all of unetd's beginning is over. */
static void open_client(struct unetd_client *c)
{
        *c = (struct unetd_client){.pid = 0};
        eventually(unetd_open(c, UNETD_NO_START) == 0);
}

static void the_broker_has_no_privilege(void **state)
{
        static const char *const empty[] = {"CapInh:", "CapPrm:", "CapEff:", "CapAmb:"};
        pid_t broker = start();
        const struct passwd *pw = getpwnam(BROKER_USER);
        uid_t uid = pw ? pw->pw_uid : BROKER_UID;
        unsigned id[4];
        struct unetd_client c;
        struct stat sb;
        char path[64];

        open_client(&c);
        assert_int_equal(
                sscanf(status_line(broker, "Uid:"), "%u %u %u %u", &id[0], &id[1], &id[2], &id[3]),
                4);
        for (int i = 0; i < 4; i++)
                assert_int_equal(id[i], uid);
        assert_int_equal(
                sscanf(status_line(broker, "Gid:"), "%u %u %u %u", &id[0], &id[1], &id[2], &id[3]),
                4);
        for (int i = 0; i < 4; i++)
                assert_int_equal(id[i], pw ? pw->pw_gid : BROKER_UID);
        assert_int_equal(strspn(status_line(broker, "Groups:"), " \t\n"),
                         strlen(status_line(broker, "Groups:")));
        for (size_t i = 0; i < ARRAY_LEN(empty); i++)
                assert_int_equal(status_number(broker, empty[i], 16), 0);
        assert_int_equal(status_number(broker, "NoNewPrivs:", 10), 1);
        assert_int_equal(status_number(broker, "Seccomp:", 10), TEST_SECCOMP ? 2 : 0);
        snprintf(path, sizeof path, "/proc/%d/mem", (int)broker);
        assert_int_equal(stat(path, &sb), 0);
        /* Not dumpable: root's, also for another process of the same user. */
        assert_int_equal(sb.st_uid, 0);
        assert_int_equal(status_number(broker, "PPid:", 10), started);
        assert_int_equal(status_number(started, "Uid:", 10), 0);
        unetd_close(&c);
}

/* ... but for one, where agents of RDMA hosts have to know each other by it. */
static void an_agent_keeps_one_capability(void **state)
{
        static const char text[] = "[interface rxe0]\nprovider = verbs\naddress = 192.0.2.1/24\n";
        char path[] = "/tmp/unet-split-XXXXXX";
        int fd = mkstemp(path);
        struct unetd_client c;
        pid_t broker;

        assert_int_equal(write(fd, text, sizeof text - 1), sizeof text - 1);
        close(fd);
        setenv("UNET_CONFIG", path, 1);
        broker = start();
        open_client(&c);
        assert_int_equal(status_number(broker, "CapPrm:", 16), 1u << CAP_NET_BIND_SERVICE);
        assert_int_equal(status_number(broker, "CapEff:", 16), 1u << CAP_NET_BIND_SERVICE);
        unetd_close(&c);
        unlink(path);
}

/* Both end with the broker's status; what the signal is makes no difference to the broker. */
static int ended(void)
{
        int status;

        assert_int_equal(waitpid(started, &status, 0), started);
        started = 0;
        return status;
}

static void the_monitor_ends_with_the_broker(void **state)
{
        pid_t broker = start();
        int status;

        kill(broker, SIGKILL);
        status = ended();
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 128 + SIGKILL);
}

static void the_broker_ends_with_the_monitor(void **state)
{
        pid_t broker = start();

        kill(started, SIGKILL);
        ended();
        eventually(is_gone(broker));
}

static void both_end_in_order_when_asked(void **state)
{
        pid_t broker = start();
        struct unetd_client c;
        int status;

        open_client(&c);
        unetd_close(&c);
        kill(started, SIGTERM);
        status = ended();
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
        assert_true(is_gone(broker));
}

/* ---- a keeper ---- */

static void become(uint32_t uid)
{
        if (setgroups(0, NULL) < 0 || setresgid(uid, uid, uid) < 0 || setresuid(uid, uid, uid) < 0)
                _exit(99);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
}

/* Asks for her keeper, and tells its process id. */
static void alice_has_a_keeper(int out)
{
        struct unetd_msg msg = {.type = UNETD_KEEPER_GET};
        struct unetd_client c = {.pid = 0};
        struct wire_in in;
        int32_t pid;

        become(ALICE);
        if (access(TEST_LIBEXEC "/unet-keeper", X_OK) != 0)
                _exit(77);
        while (unetd_open(&c, UNETD_NO_START) != 0)
                pause_ms(1);
        if (client_ask(&c, &msg, NULL, 0, &in) < 0 || in.msg.stack.pid == 0)
                _exit(1);
        pid = in.msg.stack.pid;
        if (write(out, &pid, sizeof pid) != sizeof pid)
                _exit(2);
        pause();
        _exit(0);
}

static void a_keeper_is_its_users_and_gets_no_more(void **state)
{
        int fd[2], status;
        int32_t keeper = 0;
        pid_t alice;

        start();
        assert_int_equal(pipe(fd), 0);
        alice = fork();
        if (alice == 0)
                alice_has_a_keeper(fd[1]);
        close(fd[1]);
        if (read(fd[0], &keeper, sizeof keeper) != sizeof keeper) {
                waitpid(alice, &status, 0);
                close(fd[0]);
                assert_int_equal(WEXITSTATUS(status), 77);
                print_message("skipped: the build tree is closed to other users\n");
                skip();
        }
        eventually(status_number(keeper, "Uid:", 10) == ALICE);
        assert_int_equal(status_number(keeper, "NoNewPrivs:", 10), 1);
        assert_int_equal(status_number(keeper, "CapPrm:", 16), 0);
        assert_int_equal(status_number(keeper, "PPid:", 10), started);
        close(fd[0]);
        kill(alice, SIGKILL);
        waitpid(alice, NULL, 0);
        kill(keeper, SIGKILL);
}

/* ---- a broker that is taken over ---- */

static struct {
        int sock; /* to a monitor of the test's */
        pid_t monitor;
        int listening, at_file; /* what users connect to */
        struct sockaddr_un file;
        struct unetd_config cfg;
} evil;

/* A monitor whose broker is the test: it knows one interface that is not there, and one that is no
 * packet interface. */
static void take_over(void)
{
        static struct monitor_scope scope;
        struct sockaddr_un sun;
        int fd[2];

        need_root();
        evil.cfg = (struct unetd_config)UNETD_CONFIG_DEFAULT;
        evil.cfg.shared = true;
        snprintf(evil.cfg.domain, sizeof evil.cfg.domain, "%s", domain);
        evil.cfg.nifaces = 2;
        snprintf(evil.cfg.iface[0].name, sizeof evil.cfg.iface[0].name, "absent%d",
                 (int)getpid() % 1000000);
        snprintf(evil.cfg.iface[1].name, sizeof evil.cfg.iface[1].name, "lo");
        evil.cfg.iface[1].provider = IFACE_VERBS;
        evil.listening = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        assert_int_equal(
                bind(evil.listening, (struct sockaddr *)&sun, unetd_name(&sun, 0, domain, 0)), 0);
        assert_int_equal(listen(evil.listening, 16), 0);
        evil.at_file = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        evil.file = (struct sockaddr_un){.sun_family = AF_UNIX};
        snprintf(evil.file.sun_path, sizeof evil.file.sun_path, "/tmp/%s", domain);
        assert_int_equal(bind(evil.at_file, (struct sockaddr *)&evil.file, sizeof evil.file), 0);
        assert_int_equal(chmod(evil.file.sun_path, 0666), 0);
        assert_int_equal(listen(evil.at_file, 16), 0);
        scope = (struct monitor_scope){.cfg = &evil.cfg,
                                       .listening = {evil.listening, evil.at_file}};
        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fd), 0);
        evil.monitor = fork();
        if (evil.monitor == 0) {
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                close(fd[1]);
                root_init(&evil.cfg);
                monitor_scope_set(&scope);
                signal(SIGCHLD, SIG_IGN);
                while (monitor_answer(fd[0]) == 0)
                        ;
                _exit(0);
        }
        close(fd[0]);
        evil.sock = fd[1];
}

/* It has answered everything, and ends when there will be no more. */
static void let_go(void)
{
        int status;

        close(evil.sock);
        close(evil.listening);
        close(evil.at_file);
        unlink(evil.file.sun_path);
        assert_int_equal(waitpid(evil.monitor, &status, 0), evil.monitor);
        assert_int_equal(status, 0);
}

static struct mon_reply reply;
static int reply_fds[MON_FDS];
static unsigned reply_n;

/* The answer to bytes of any length. */
static int said(const void *bytes, size_t len, const int *fds, unsigned n)
{
        assert_int_equal(mon_send(evil.sock, bytes, len, fds, n), 0);
        assert_int_equal(mon_recv(evil.sock, &reply, sizeof reply, reply_fds, &reply_n), 0);
        for (unsigned i = 1; i < reply_n; i++)
                close(reply_fds[i]);
        return reply.err;
}

/* With one descriptor, or none (-1). */
static int asked(const struct mon_request *q, int fd)
{
        return said(q, sizeof *q, &fd, fd >= 0 ? 1 : 0);
}

static int asked_uid(uint32_t type, uint32_t uid, int fd)
{
        return asked(&(struct mon_request){.type = type, .uid = uid}, fd);
}

static int asked_flags(int flags, int fd)
{
        return asked(&(struct mon_request){.type = MON_REOPEN, .flags = flags}, fd);
}

/* A connection that a user's process has made to a listening socket, as the broker accepts it. */
static int accepted_by(int listening, uint32_t uid)
{
        struct sockaddr_un sun;
        socklen_t len = sizeof sun;
        pid_t pid;
        int fd;

        assert_int_equal(getsockname(listening, (struct sockaddr *)&sun, &len), 0);
        pid = fork();
        if (pid == 0) {
                become(uid);
                fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
                _exit(connect(fd, (struct sockaddr *)&sun, len) == 0 ? 0 : 1);
        }
        fd = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
        assert_true(fd >= 0);
        waitpid(pid, NULL, 0);
        return fd;
}

static int accepted(uint32_t uid)
{
        return accepted_by(evil.listening, uid);
}

static void what_is_not_in_form_is_refused(void **state)
{
        char bytes[2 * sizeof(struct mon_request)] = {0};
        struct mon_request q = {.type = MON_PROCESS, .pid = 1};
        int null, many[MON_FDS];

        take_over();
        null = open("/dev/null", O_RDWR | O_CLOEXEC);
        for (unsigned i = 0; i < MON_FDS; i++)
                many[i] = null;
        for (size_t len = 1; len < sizeof bytes; len++)
                if (len != sizeof(struct mon_request))
                        assert_int_equal(said(bytes, len, NULL, 0), -EBADMSG);
        for (uint32_t type = 0; type < MON_TYPES; type++) {
                q.type = type;
                assert_int_equal(said(&q, sizeof q, many, 2), -EBADMSG);
                assert_int_equal(said(&q, sizeof q, many, MON_FDS), -EBADMSG);
        }
        q.type = MON_TYPES;
        assert_int_equal(asked(&q, -1), -EBADMSG);
        q.type = UINT32_MAX;
        assert_int_equal(asked(&q, -1), -EBADMSG);
        q.type = MON_USER;
        assert_int_equal(asked(&q, -1), -EBADMSG);
        q.type = MON_PROCESS;
        assert_int_equal(asked(&q, null), -EBADMSG);
        assert_int_equal(asked(&q, -1), 0); /* and it still answers */
        assert_int_equal(reply.process.uid, 0);
        assert_true(reply.process.is_there);
        close(null);
        let_go();
}

static void only_who_has_connected_gets_a_keeper(void **state)
{
        struct sockaddr_un sun;
        socklen_t len;
        int pair[2], daemon, alice, made, null;

        take_over();
        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
        assert_int_equal(asked_uid(MON_KEEPER, ALICE, pair[0]), -EPERM);
        assert_int_equal(asked_uid(MON_KEEPER, 0, pair[0]), -EPERM);

        /* Sockets whose other end is root's, as it were. */
        assert_int_equal(asked_uid(MON_USER, 0, pair[0]), -EPERM);
        assert_int_equal(asked_uid(MON_USER, 0, evil.listening), -EPERM);
        daemon = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        assert_int_equal(asked_uid(MON_USER, 0, daemon), -EPERM);
        len = unetd_name(&sun, 0, domain, 0);
        assert_int_equal(connect(daemon, (struct sockaddr *)&sun, len), 0);
        assert_int_equal(asked_uid(MON_USER, 0, daemon), -EPERM);
        made = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        /* Of this name there is one. */
        assert_int_equal(bind(made, (struct sockaddr *)&sun, len), -1);
        null = open("/dev/null", O_RDWR | O_CLOEXEC);
        assert_int_equal(asked_uid(MON_USER, 0, null), -EPERM);
        assert_int_equal(asked_uid(MON_KEEPER, 0, pair[0]), -EPERM);
        close(accept4(evil.listening, NULL, NULL, SOCK_CLOEXEC));

        alice = accepted(ALICE);
        assert_int_equal(asked_uid(MON_USER, 0, alice), 0);
        assert_int_equal(asked_uid(MON_KEEPER, BOB, pair[0]), -EPERM);
        assert_int_equal(asked_uid(MON_KEEPER, 0, pair[0]), -EPERM);
        assert_int_equal(asked_uid(MON_KEEPER, ALICE, null), -EINVAL);
        assert_int_equal(asked_uid(MON_KEEPER, ALICE, evil.listening), -EINVAL);
        assert_true(asked_uid(MON_KEEPER, ALICE, pair[0]) > 0);
        eventually(status_number(reply.err, "Uid:", 10) == ALICE || is_gone(reply.err));
        close(alice), close(daemon), close(made), close(null), close(pair[0]), close(pair[1]);
        let_go();
}

/* The path of a socket is only its owner's word. */
static void who_connects_by_the_file_is_told_by_the_file(void **state)
{
        int alice, forged, root, fd;
        struct sockaddr_un sun;
        socklen_t len = sizeof sun;

        take_over();
        alice = accepted_by(evil.at_file, ALICE);
        assert_int_equal(asked_uid(MON_USER, 0, alice), 0);
        assert_int_equal(unlink(evil.file.sun_path), 0);
        forged = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        assert_int_equal(bind(forged, (struct sockaddr *)&evil.file, sizeof evil.file), 0);
        root = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0); /* some daemon's, which listens */
        assert_int_equal(bind(root, (struct sockaddr *)&(struct sockaddr_un){.sun_family = AF_UNIX},
                              sizeof(sa_family_t)),
                         0);
        assert_int_equal(listen(root, 1), 0);
        assert_int_equal(getsockname(root, (struct sockaddr *)&sun, &len), 0);
        assert_int_equal(connect(forged, (struct sockaddr *)&sun, len), 0);
        assert_int_equal(asked_uid(MON_USER, 0, forged), -EPERM);
        fd = accepted(0);
        assert_int_equal(asked_uid(MON_USER, 0, fd), 0);
        close(alice), close(forged), close(root), close(fd);
        let_go();
}

static void only_interfaces_of_the_config_are_opened(void **state)
{
        static const uint32_t open_it[] = {MON_RINGS_TRY, MON_RINGS_OPEN, MON_PACKET_OPEN,
                                           MON_ARP_OPEN, MON_SENDER_MAC};
        struct unetd_iface_config more = {.name = "lo", .addr = 0x0a000001, .prefix = 24};
        struct mon_request add = {.type = MON_IFACE_SET, .iface = 2, .cfg = more};
        const struct mon_request mtu = {.type = MON_SENDER_MTU, .mtu = 1500},
                                 end = {.type = MON_SENDER_END};
        int root, alice, ns;

        take_over();
        for (size_t i = 0; i < ARRAY_LEN(open_it); i++) {
                static const uint32_t wrong[] = {1, 2, UNETD_IFACES, UINT32_MAX};

                for (size_t k = 0; k < ARRAY_LEN(wrong); k++) {
                        assert_int_equal(
                                asked(&(struct mon_request){.type = open_it[i], .iface = wrong[k]},
                                      -1),
                                -EPERM);
                        assert_int_equal(reply_n, 0);
                }
                assert_true(asked(&(struct mon_request){.type = open_it[i], .iface = 0}, -1) < 0 ||
                            open_it[i] == MON_SENDER_MAC);
                assert_int_equal(reply_n, 0);
        }

        alice = accepted(ALICE);
        root = accepted(0);
        assert_int_equal(asked(&add, alice), -EPERM);
        assert_int_equal(asked(&add, evil.listening), -EPERM);
        add.iface = UNETD_IFACES;
        assert_int_equal(asked(&add, root), -EINVAL);
        add.iface = 2;
        memset(add.cfg.name, 'x', sizeof add.cfg.name);
        assert_int_equal(asked(&add, root), -EINVAL);
        add.cfg = more;
        add.cfg.provider = IFACE_VERBS;
        assert_int_equal(asked(&add, root), -EINVAL);

        /* A network namespace in which the monitor made nothing. */
        ns = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
        assert_int_equal(asked(&mtu, ns), -EPERM);
        assert_int_equal(asked(&end, ns), -EPERM);
        assert_int_equal(asked(&end, alice), -EPERM);
        close(ns), close(alice), close(root);
        let_go();
}

static void ports_are_bound_for_sockets_of_the_internet_only(void **state)
{
        struct mon_request q = {.type = MON_BIND};
        int tcp, raw, local, pair[2];

        take_over();
        q.name.in = (struct sockaddr_in){.sin_family = AF_INET,
                                         .sin_addr.s_addr = htonl(INADDR_LOOPBACK + 0x4d4d)};
        tcp = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        raw = socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_UDP);
        local = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(pipe(pair), 0);
        assert_int_equal(asked(&q, raw), -EINVAL);
        assert_int_equal(asked(&q, local), -EINVAL);
        assert_int_equal(asked(&q, pair[0]), -EINVAL);
        q.name.sa.sa_family = AF_INET6;
        assert_int_equal(asked(&q, tcp), -EINVAL);
        q.name.sa.sa_family = AF_UNIX;
        assert_int_equal(asked(&q, local), -EINVAL);
        q.name.sa.sa_family = AF_INET;
        for (uint16_t port = 1023; port > 1000; port--) {
                q.name.in.sin_port = htons(port);
                if (asked(&q, tcp) == 0)
                        break;
                assert_int_equal(reply.err, -EADDRINUSE);
        }
        assert_int_equal(reply.err, 0);
        close(tcp), close(raw), close(local), close(pair[0]), close(pair[1]);
        let_go();
}

static void files_are_opened_anew_only_as_channels_need_them(void **state)
{
        char text[] = "/tmp/unet-split-XXXXXX";
        int mem, pair[2], file, dir;

        take_over();
        mem = unet_memfd_make_sealed("unet-test", 4096);
        assert_true(mem >= 0);
        assert_int_equal(pipe2(pair, O_CLOEXEC), 0);
        file = mkstemp(text);
        unlink(text);
        dir = open("/root", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_int_equal(asked_flags(O_RDWR, mem), -EPERM);
        assert_int_equal(asked_flags(O_WRONLY | O_NONBLOCK, mem), -EPERM);
        assert_int_equal(asked_flags(O_RDONLY, pair[1]), -EPERM);
        assert_int_equal(asked_flags(O_RDWR | O_NONBLOCK, pair[1]), -EPERM);
        assert_int_equal(asked_flags(O_WRONLY | O_NONBLOCK, file), -EPERM);
        assert_int_equal(asked_flags(O_WRONLY | O_NONBLOCK, dir), -EPERM);
        assert_int_equal(asked_flags(O_RDONLY, dir), -EPERM);
        assert_int_equal(asked_flags(O_RDONLY, evil.listening), -EPERM);
        assert_true(asked_flags(O_RDONLY, mem) >= 0);
        assert_int_equal(reply_n, 1);
        assert_int_equal(fcntl(reply_fds[0], F_GETFL) & O_ACCMODE, O_RDONLY);
        close(reply_fds[0]);
        assert_int_equal(asked_flags(O_WRONLY | O_NONBLOCK, pair[1]), -EPERM);
        close(mem), close(file), close(dir), close(pair[0]), close(pair[1]);
        let_go();
}

int main(void)
{
#define t(name) cmocka_unit_test_setup_teardown(name, new_world, end_world)
        const struct CMUnitTest tests[] = {
                t(the_broker_has_no_privilege),
                t(an_agent_keeps_one_capability),
                t(the_monitor_ends_with_the_broker),
                t(the_broker_ends_with_the_monitor),
                t(both_end_in_order_when_asked),
                t(a_keeper_is_its_users_and_gets_no_more),
                t(what_is_not_in_form_is_refused),
                t(only_who_has_connected_gets_a_keeper),
                t(who_connects_by_the_file_is_told_by_the_file),
                t(only_interfaces_of_the_config_are_opened),
                t(ports_are_bound_for_sockets_of_the_internet_only),
                t(files_are_opened_anew_only_as_channels_need_them),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
