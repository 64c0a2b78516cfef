/* unetd: options, the name, the loop, and the exit when nobody needs it. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "config/config.h"
#include "unetd/daemon/addrs.h"
#include "unetd/daemon/claims.h"
#include "unetd/daemon/clients.h"
#include "unetd/daemon/daemon.h"
#include "unetd/daemon/discard.h"
#include "unetd/daemon/emul.h"
#include "unetd/daemon/ifaces.h"
#include "unetd/daemon/leases.h"
#include "unetd/daemon/leftovers.h"
#include "unetd/daemon/links.h"
#include "unetd/daemon/ports.h"
#include "unetd/daemon/routes.h"
#include "unetd/daemon/sockdiag.h"
#include "unetd/daemon/unread.h"
#include "unetd/daemon/users.h"
#include "unetd/monitor/broker.h"
#include "unetd/monitor/monitor.h"
#include "unetd/monitor/monitor_run.h"
#include "unetd/client/name.h"

#define LISTEN_WAIT_MS 500 /* for a unetd that has bound a name and does not listen yet */

#define FDS_OF_ALL_USERS 1048576 /* the default of fs.nr_open: no process may have more */

struct daemon unetd = {.cfg = UNETD_CONFIG_DEFAULT};

static const char usage[] =
        "Usage: unetd [OPTION]...\n"
        "The service of the user-level network stack: port space, listeners, channels. Programs "
        "start it on\n"
        "demand; run it by hand only to watch it, or as root with --system for all users.\n"
        "\n"
        "      --foreground      stay on the terminal, log to standard error\n"
        "      --system          serve all users (root only)\n"
        "      --idle SECONDS    leave after so long without programs, default 30; -1: never\n"
        "      --domain NAME     a separate world of programs, default $UNET_DOMAIN or "
        "\"default\"\n"
        "      --log FILE        append log lines to FILE\n"
        "      --help            this text\n"
        "      --version         version and ABI\n"
        "\n"
        "Exit status: 0 left when idle, or another one was first; 1 could not start; 2 wrong "
        "option.\n";

struct options {
        int ready_fd; /* closed when unetd serves clients */
        bool quit;
        int status;
};

/* ---- options ---- */

static int bad_option(struct options *o, const char *why, const char *arg)
{
        fprintf(stderr, "unetd: %s: %s\n", why, arg);
        o->quit = true;
        o->status = 2;
        return -1;
}

static int number(struct options *o, const char *arg, int *out)
{
        char *end;
        long v = strtol(arg, &end, 10);

        if (!*arg || *end || v < -1 || v > 1000000)
                return bad_option(o, "not a number", arg);
        *out = (int)v;
        return 0;
}

static int set_domain(struct options *o, const char *name)
{
        if (!unetd_domain_valid(name))
                return bad_option(o, "not a domain name", name);
        snprintf(unetd.cfg.domain, sizeof unetd.cfg.domain, "%s", name);
        return 0;
}

static int set_option(struct options *o, int opt)
{
        switch (opt) {
        case 'f':
                unetd.cfg.foreground = true;
                return 0;
        case 's':
                unetd.cfg.shared = true;
                return 0;
        case 'i':
                return number(o, optarg, &unetd.cfg.idle_s);
        case 'd':
                return set_domain(o, optarg);
        case 'l':
                snprintf(unetd.cfg.log, sizeof unetd.cfg.log, "%s", optarg);
                return 0;
        case 'r':
                return number(o, optarg, &o->ready_fd);
        case 'v':
                printf("unetd, ABI %u\n", UNETD_ABI);
                o->quit = true;
                return -1;
        case 'h':
                fputs(usage, stdout);
                o->quit = true;
                return -1;
        default:
                fputs("Try 'unetd --help'.\n", stderr);
                o->quit = true;
                o->status = 2;
                return -1;
        }
}

/* Reads the config file first: options override it. */
static bool read_config(struct options *o)
{
        struct config_error err;

        if (config_load(&unetd.cfg, &err) == 0)
                return true;
        config_complain(&err);
        o->quit = true;
        o->status = 1;
        return false;
}

/* Reads the rules of the config file as it is now. Other changes of the file take effect at the
 * next start. */
static int read_rules(struct rule rule[RULES_MAX], char line[XDP_LINE_MAX])
{
        static const struct unetd_config blank = UNETD_CONFIG_DEFAULT;
        struct unetd_config *c = malloc(sizeof *c);
        struct config_error err;
        int r = c ? 0 : -ENOMEM;

        if (c) {
                *c = blank;
                r = config_load(c, &err);
                if (r == 0)
                        memcpy(rule, c->rule, sizeof c->rule);
                else
                        snprintf(line, XDP_LINE_MAX, "%.120s:%d: %.70s", err.path, err.line,
                                 err.text);
        }
        r = r == 0 ? (int)c->nrules : r;
        free(c);
        return r;
}

static void parse(struct options *o, int argc, char **argv)
{
        static const struct option longs[] = {
                {"foreground", no_argument, NULL, 'f'},
                {"system", no_argument, NULL, 's'},
                {"idle", required_argument, NULL, 'i'},
                {"domain", required_argument, NULL, 'd'},
                {"log", required_argument, NULL, 'l'},
                {"ready-fd", required_argument, NULL, 'r'},
                {"version", no_argument, NULL, 'v'},
                {"help", no_argument, NULL, 'h'},
                {NULL, 0, NULL, 0},
        };
        const char *env = getenv("UNET_DOMAIN");
        int opt;

        if (!read_config(o) || (env && *env && set_domain(o, env) < 0))
                return;
        while ((opt = getopt_long(argc, argv, "", longs, NULL)) != -1)
                if (set_option(o, opt) < 0)
                        return;
        if (optind < argc)
                bad_option(o, "unexpected argument", argv[optind]);
        else if (unetd.cfg.shared && geteuid() != 0)
                bad_option(o, "--system", "only for root");
}

/* ---- the name ---- */

enum holder { HOLDER_US, HOLDER_OTHER, HOLDER_DYING };

/* Returns true if the name's holder is being killed: it still listens, and then resets the
 * connection. A busy unetd counts as alive. */
static bool is_dying(int fd)
{
        struct unetd_msg hello = {.type = UNETD_HELLO, .hello = {.abi = UNETD_ABI}};
        struct pollfd p = {.fd = fd, .events = POLLIN};
        struct wire_in in;
        int r = wire_send(fd, &hello, NULL, 0, 0);

        if (r == 0 && poll(&p, 1, LISTEN_WAIT_MS) == 1) {
                r = wire_recv(fd, &in, 0);
                wire_in_close(&in);
        }
        return r == -ECONNRESET || r == -EPIPE;
}

/* Finds out who has a name that is taken: another unetd of this user, or a process that is passed
 * over. */
static enum holder ask_holder(const struct sockaddr_un *sun, socklen_t len)
{
        for (int ms = 0; ms < LISTEN_WAIT_MS; ms++) {
                struct timespec pause = {0, NS_PER_MS};
                struct ucred cred;
                uint32_t uid;
                socklen_t clen = sizeof cred;
                int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), r;

                r = fd < 0 ? -1 : connect(fd, (const struct sockaddr *)sun, len);
                if (r == 0 && getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &clen) == 0) {
                        enum holder h = cred.uid != unetd.uid ? HOLDER_OTHER
                                        : is_dying(fd)        ? HOLDER_DYING
                                                              : HOLDER_US;
                        close(fd);
                        return h;
                }
                if (fd >= 0)
                        close(fd);
                if (sockdiag_holder(sun->sun_path, len - offsetof(struct sockaddr_un, sun_path),
                                    &uid) &&
                    uid != unetd.uid)
                        return HOLDER_OTHER; /* unetd need not wait for it to listen */
                nanosleep(&pause, NULL);
        }
        return HOLDER_OTHER;
}

/* Returns true if the holder makes this unetd needless. A system-wide unetd and a private one of
 * root's do not replace each other. */
static bool replaces_us(enum holder h)
{
        return h == HOLDER_US && !unetd.cfg.shared;
}

/* Binds one name. 0; 1: another process has it; or a negative errno. */
static int take_one(int fd, const struct sockaddr_un *sun, socklen_t len)
{
        const struct timespec pause = {0, NS_PER_MS};
        enum holder h = HOLDER_OTHER;

        for (int ms = 0; ms < LISTEN_WAIT_MS; ms++) {
                if (bind(fd, (const struct sockaddr *)sun, len) == 0)
                        return 0;
                if (errno != EADDRINUSE)
                        return -errno;
                h = ask_holder(sun, len);
                if (h != HOLDER_DYING)
                        break;
                nanosleep(&pause, NULL);
        }
        return replaces_us(h) ? -EADDRINUSE : 1;
}

/* Binds the first free name. 0; -EADDRINUSE: another unetd of this user is there already. */
static int take_name(int fd)
{
        for (unsigned i = 0; i < UNETD_NAMES; i++) {
                struct sockaddr_un sun;
                socklen_t len = unetd_name(&sun, unetd.uid, unetd.cfg.domain, i);
                int r = take_one(fd, &sun, len);

                if (r <= 0) {
                        unetd.name = i;
                        return r;
                }
        }
        return -EADDRNOTAVAIL;
}

static int socket_at(struct loop_source *s, int (*take)(int fd))
{
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), r;

        *s = (struct loop_source){.fd = fd, .ready = clients_accept};
        if (fd < 0)
                return -errno;
        r = take(fd);
        if (r < 0) {
                close(fd);
                s->fd = -1;
        }
        return r;
}

/* ---- the system's file ---- */

static struct sockaddr_un file, file_new; /* bound as file_new, and renamed once it listens */
static struct stat file_made;

/* Returns true if only root can make files in the directory. */
static bool is_roots(const char *dir)
{
        struct stat st;

        return lstat(dir, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == 0 &&
               (st.st_mode & 022) == 0;
}

static int take_file(int fd)
{
        socklen_t len = unetd_system_name(&file, unetd.cfg.domain, fd);

        if (len == 0)
                return -EOPNOTSUPP;
        if ((mkdir(UNETD_RUN_DIR, 0755) < 0 && errno != EEXIST) || !is_roots(UNETD_RUN_DIR))
                return -EACCES;
        file_new = file;
        strcat(file_new.sun_path, "+");
        unlink(file_new.sun_path);
        if (bind(fd, (struct sockaddr *)&file_new, sizeof file_new) < 0 ||
            chmod(file_new.sun_path, 0666) < 0 || stat(file_new.sun_path, &file_made) < 0)
                return -errno;
        return 0;
}

/* The file of the leases, for the next unetd. */
static char leases_path[sizeof file.sun_path + sizeof ".leases"];

static void remember_leases(void)
{
        snprintf(leases_path, sizeof leases_path, "%s.leases", file.sun_path);
        leases_remember(leases_path);
        leftovers_keep(leases_path);
}

static void leave_file(void)
{
        struct stat st;

        if (unetd.at_file.fd < 0 || stat(file.sun_path, &st) < 0 || st.st_ino != file_made.st_ino ||
            st.st_dev != file_made.st_dev)
                return;
        unlink(file.sun_path);
        if (leases_are_none())
                unlink(leases_path);
        else
                leftovers_keep(leases_path);
}

/* ---- listening ---- */

static int take_names(void)
{
        int r, by_name;

        unetd.at_file.fd = -1;
        r = unetd.cfg.shared ? socket_at(&unetd.at_file, take_file) : -ENOENT;
        if (unetd.cfg.shared && r < 0)
                log_line("no socket in " UNETD_RUN_DIR ": %s", strerror(-r));
        if (r == 0) {
                remember_leases();
                leftovers_remove(UNETD_RUN_DIR, file.sun_path);
        }
        by_name = socket_at(&unetd.listening, take_name);
        return r == 0 ? 0 : by_name;
}

/* Clients ask the kernel who called listen(), and trust root and their own user. So the broker
 * calls it while it is still root. The file takes the place of an earlier unetd's, which may have
 * been killed. A client that connects waits until the loop runs. */
static int begin_listening(void)
{
        if (unetd.listening.fd >= 0 && listen(unetd.listening.fd, 4096) < 0)
                return -errno;
        if (unetd.at_file.fd >= 0 &&
            (listen(unetd.at_file.fd, 4096) < 0 || rename(file_new.sun_path, file.sun_path) < 0))
                return -errno;
        return 0;
}

static int accept_init(void)
{
        int r = unetd.listening.fd >= 0 ? loop_add(&unetd.loop, &unetd.listening, EPOLLIN) : 0;

        unetd.spare = fcntl(unetd.dir.fd, F_DUPFD_CLOEXEC, 3);
        return r == 0 && unetd.at_file.fd >= 0 ? loop_add(&unetd.loop, &unetd.at_file, EPOLLIN) : r;
}

/* ---- two processes ---- */

__attribute__((noreturn)) static void be_monitor(int sock, int broker, const struct options *o)
{
        const struct monitor_scope scope = {.cfg = &unetd.cfg,
                                            .read_rules = read_rules,
                                            .listening = {unetd.listening.fd, unetd.at_file.fd}};
        int status;

        if (o->ready_fd >= 0)
                close(o->ready_fd);
        status = monitor_run(&scope, sock, broker);
        leave_file();
        exit(status);
}

/* Forks: this process becomes the monitor, and the child goes on as the broker (monitor.h). */
static int split(const struct options *o)
{
        pid_t monitor = getpid(), broker;
        bool agent = false;
        int fd[2], r;

        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fd) < 0)
                return -errno;
        broker = fork();
        if (broker < 0)
                return -errno;
        close(fd[broker != 0]);
        if (broker != 0)
                be_monitor(fd[0], broker, o);
        monitor_connect(fd[1]);
        r = begin_listening();
        for (uint32_t i = 0; i < unetd.cfg.nifaces; i++)
                agent |= unetd.cfg.iface[i].provider == IFACE_VERBS;
        return r < 0 ? r : broker_become(monitor, agent);
}

/* ---- running ---- */

/* Reads the rules again. They hold for sockets that listen, connect or are bound from now on. */
static void rules_again(void)
{
        static struct rule rule[RULES_MAX];
        char line[XDP_LINE_MAX] = "";
        int n = unetd.cfg.shared ? monitor_rules(rule, line) : read_rules(rule, line);

        if (n < 0 || n > (int)RULES_MAX) {
                log_line("the rules stay as they were: %s",
                         line[0] != '\0' ? line : strerror(n < 0 ? -n : EBADMSG));
                return;
        }
        memcpy(unetd.cfg.rule, rule, sizeof rule);
        unetd.cfg.nrules = (uint32_t)n;
        directory_set_rules(&unetd.dir, unetd.cfg.rule, unetd.cfg.nrules);
        log_line("%d rules were read again", n);
}

static void signalled(struct loop_source *s, uint32_t events)
{
        struct signalfd_siginfo si;

        if (read(s->fd, &si, sizeof si) != sizeof si)
                return;
        if (si.ssi_signo == SIGHUP)
                rules_again();
        else
                unetd.loop.stop = true;
}

static int signals_init(void)
{
        sigset_t set;
        int fd;

        signal(SIGPIPE, SIG_IGN);
        signal(SIGCHLD, SIG_IGN); /* the kernel reaps the keepers */
        sigemptyset(&set);
        sigaddset(&set, SIGTERM);
        sigaddset(&set, SIGINT);
        sigaddset(&set, SIGHUP);
        sigprocmask(SIG_SETMASK, &set, NULL);
        fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
        if (fd < 0)
                return -errno;
        unetd.signals = (struct loop_source){.fd = fd, .ready = signalled};
        return loop_add(&unetd.loop, &unetd.signals, EPOLLIN);
}

/* Blocks SIGHUP until signals_init(): one that comes earlier stays pending. */
static void hold_sighup(void)
{
        sigset_t set;

        sigemptyset(&set);
        sigaddset(&set, SIGHUP);
        sigprocmask(SIG_BLOCK, &set, NULL);
}

/* Opens what is missing of descriptors 0 to 2, so that no other file gets their numbers. */
static void fill_standard_fds(void)
{
        int fd;

        while ((fd = open("/dev/null", O_RDWR)) >= 0 && fd <= STDERR_FILENO)
                ;
        if (fd > STDERR_FILENO)
                close(fd);
}

/* Raises a limit as far as unetd may. */
static void lift_limit(int what)
{
        struct rlimit rl, none = {RLIM_INFINITY, RLIM_INFINITY};

        if (getrlimit(what, &rl) < 0 || (what != RLIMIT_NOFILE && setrlimit(what, &none) == 0))
                return;
        rl.rlim_cur = rl.rlim_max;
        setrlimit(what, &rl);
}

/* Undoes what the program that started unetd had set for itself: limits, processors, scheduling. */
static void forget_starter(void)
{
        struct sched_param normal = {.sched_priority = 0};
        struct rlimit rl, many = {FDS_OF_ALL_USERS, FDS_OF_ALL_USERS};
        cpu_set_t all;

        if (getrlimit(RLIMIT_NOFILE, &rl) == 0) /* a keeper gets this limit again (root_init()) */
                unetd.keeper_fds = (uint32_t)MIN(rl.rlim_max, (rlim_t)FDS_OF_ALL_USERS);
        memset(&all, 0xff, sizeof all);
        sched_setaffinity(0, sizeof all, &all);
        sched_setscheduler(0, SCHED_OTHER, &normal);
        for (int what = 0; what < RLIM_NLIMITS; what++)
                if (what != RLIMIT_CORE)
                        lift_limit(what);
        if (unetd.cfg.shared ||
            (getrlimit(RLIMIT_NOFILE, &rl) == 0 && rl.rlim_max < FDS_OF_ALL_USERS))
                setrlimit(RLIMIT_NOFILE, &many);
}

/* Stops the loop once unetd was idle for long enough: without a client, a stack or an emulated
 * endpoint. Keepers do not count: they exit when unetd does. */
static nstime idle_deadline(void)
{
        if (unetd.nclients > 0 || unetd.nstacks > 0 || emul_in_use() || unetd.cfg.idle_s < 0) {
                unetd.idle_since = NSTIME_NEVER;
                return NSTIME_NEVER;
        }
        if (unetd.idle_since == NSTIME_NEVER)
                unetd.idle_since = unetd.loop.now;
        if (unetd.loop.now - unetd.idle_since >= unetd.cfg.idle_s * NS_PER_S)
                unetd.loop.stop = true;
        return unetd.idle_since + unetd.cfg.idle_s * NS_PER_S;
}

static nstime after_batch(struct loop *l)
{
        nstime again = nstime_min(emul_turn(), ifaces_turn());

        waiters_expire();
        users_tick();
        clients_bury();
        again = nstime_min(again, nstime_min(waiters_deadline(), users_deadline()));
        again = nstime_min(again, nstime_min(links_tick(), claims_tick()));
        again = nstime_min(again, nstime_min(discard_tick(), unread_tick()));
        return nstime_min(again, idle_deadline());
}

static int daemon_init(void)
{
        uint32_t random[8];
        int r;

        if (getrandom(random, sizeof random, 0) != sizeof random)
                return -EIO;
        TAILQ_INIT(&unetd.waiters);
        unetd.began = loop_clock();
        memcpy(&unetd.instance, random, sizeof unetd.instance);
        unetd.lease_next = random[2];
        /* Random, so that stacks do not take it for an earlier unetd's. */
        unetd.next_serial = random[3];
        unetd.idle_since = NSTIME_NEVER;
        if ((r = loop_init(&unetd.loop, after_batch)) < 0 || (r = signals_init()) < 0 ||
            (r = directory_create(&unetd.dir, unetd.instance, (const uint8_t *)&random[4])) < 0 ||
            (r = ports_init()) < 0)
                return r;
        directory_set_rules(&unetd.dir, unetd.cfg.rule, unetd.cfg.nrules);
        ifaces_init();
        links_init();
        routes_init();
        if (addrs_init() < 0)
                log_line("no rtnetlink: only loopback addresses are known");
        return accept_init();
}

/* Tells the program that started unetd to connect now: to this unetd, or to the one that was first.
 */
static void tell_starter(int fd)
{
        if (fd < 0)
                return;
        if (write(fd, "r", 1) < 0)
                log_line("whoever started this has left");
        close(fd);
}

static const char *why_not(int err)
{
        if (err == -ENOENT && access("/proc/self/fd", F_OK) < 0)
                return "/proc is not mounted here";
        return err == -EADDRINUSE ? "another unetd is there" : strerror(-err);
}

int main(int argc, char **argv)
{
        struct options o = {.ready_fd = -1};
        int r;

        fill_standard_fds();
        hold_sighup();
        parse(&o, argc, argv);
        if (o.quit)
                return o.status;
        if (o.ready_fd >= 0)
                fcntl(o.ready_fd, F_SETFD, FD_CLOEXEC);
        root_init(&unetd.cfg);
        forget_starter();
        log_open(unetd.cfg.log, unetd.cfg.foreground);
        unetd.uid = geteuid();
        r = take_names();
        if (r == 0)
                r = unetd.cfg.shared ? split(&o) : begin_listening();
        if (r == 0)
                r = daemon_init();
        if (r < 0) {
                log_line("not started: %s", why_not(r));
                tell_starter(o.ready_fd);
                return r == -EADDRINUSE ? 0 : 1;
        }
        if (unetd.cfg.said_link)
                log_line("config: the key \"link\" of interfaces is \"provider\" now");
        log_line("ready: uid %u domain %s name %u%s", unetd.uid, unetd.cfg.domain, unetd.name,
                 unetd.cfg.shared ? " (system)" : "");
        tell_starter(o.ready_fd);
        loop_run(&unetd.loop);
        log_line("leaving");
        ifaces_end();
        /* A child of discard.c may keep these sockets open after unetd has exited. */
        shutdown(unetd.listening.fd, SHUT_RDWR);
        shutdown(unetd.at_file.fd, SHUT_RDWR);
        directory_destroy(&unetd.dir);
        return 0;
}
