/* See users.h. */
#include "tests/users/users.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "unetd/client/name.h"

struct users_table *table;
const struct directory *hostile_dir;

static int table_fd = -1;
static pid_t system_unetd, victim, server;
static unsigned worlds;
static char config_path[64];

int64_t users_now_ms(void)
{
        struct timespec ts;

        clock_gettime(CLOCK_MONOTONIC, &ts);
        return ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

unsigned users_lines_logged(const char *path, const char *what)
{
        FILE *f = fopen(path, "re");
        char line[512];
        unsigned n = 0;

        assert_non_null(f);
        while (fgets(line, sizeof line, f))
                n += strstr(line, what) != NULL;
        fclose(f);
        return n;
}

/* ---- users ---- */

static void become(uint32_t uid)
{
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (setgroups(0, NULL) < 0 || setresgid(uid, uid, uid) < 0 || setresuid(uid, uid, uid) < 0)
                abort();
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* changing the uid took it back */
}

static int can_run_daemons(void)
{
        return access(USERS_LIBEXEC "/unet-keeper", X_OK) == 0 &&
               access(USERS_PRELOAD, R_OK) == 0 && access(USERS_VICTIM, X_OK) == 0;
}

bool users_cannot_run(void)
{
        pid_t pid;
        int status;

        if (geteuid() != 0) {
                print_message("skipped: only root can be two users\n");
                return true;
        }
        pid = fork();
        if (pid == 0) {
                become(VICTIM);
                _exit(can_run_daemons() ? 0 : 1);
        }
        waitpid(pid, &status, 0);
        if (status != 0)
                print_message("skipped: the build tree is closed to other users\n");
        return status != 0;
}

pid_t users_begin(uint32_t uid, int (*fn)(void))
{
        pid_t pid = fork();

        assert_true(pid >= 0);
        if (pid == 0) {
                become(uid);
                _exit(fn());
        }
        return pid;
}

void users_wait(pid_t pid)
{
        int status;

        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
}

void users_kill(pid_t pid)
{
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
}

void users_run(uint32_t uid, int (*fn)(void))
{
        users_wait(users_begin(uid, fn));
}

/* ---- the system's unetd ---- */

static bool write_config(const char *config)
{
        int fd;
        ssize_t n = 0;

        snprintf(config_path, sizeof config_path, "/tmp/unet-users-%d-%u.conf", (int)getpid(),
                 worlds);
        fd = open(config_path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
        if (fd < 0)
                return false;
        n = write(fd, config, strlen(config));
        close(fd);
        return n == (ssize_t)strlen(config);
}

static bool daemon_is_there(void)
{
        struct unetd_client c = {.pid = 0};

        if (unetd_open(&c, UNETD_NO_START | UNETD_SYSTEM) < 0)
                return false;
        unetd_close(&c);
        return true;
}

void users_unetd_begins(void)
{
        system_unetd = fork();
        if (system_unetd == 0) {
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                execl(USERS_LIBEXEC "/unetd", "unetd", "--system", "--foreground", "--idle", "-1",
                      NULL);
                _exit(127);
        }
        eventually(daemon_is_there());
}

void users_unetd_dies(void)
{
        pid_t broker = users_broker();

        users_kill(system_unetd);
        eventually(kill(broker, 0) < 0);
}

/* What a unetd that was killed leaves. */
static void remove_files(void)
{
        struct sockaddr_un sun;
        char leases[sizeof sun.sun_path + 8];
        int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

        if (unetd_system_name(&sun, unetd_domain(), sock) != 0) {
                snprintf(leases, sizeof leases, "%s.leases", sun.sun_path);
                unlink(sun.sun_path);
                unlink(leases);
        }
        close(sock);
}

int users_setup_with(const char *config)
{
        char domain[UNETD_DOMAIN_MAX + 1];

        system_unetd = victim = server = 0;
        if (geteuid() != 0)
                return 0;
        snprintf(domain, sizeof domain, "users-%d-%u", (int)getpid(), worlds++);
        setenv("UNET_DOMAIN", domain, 1);
        setenv("UNET_LIBEXEC", USERS_LIBEXEC, 1);
        if (!write_config(config))
                return -1;
        setenv("UNET_CONFIG", config_path, 1);
        table_fd = memfd_create("users-table", 0);
        if (table_fd < 0 || ftruncate(table_fd, sizeof *table) < 0)
                return -1;
        table = mmap(NULL, sizeof *table, PROT_READ | PROT_WRITE, MAP_SHARED, table_fd, 0);
        if (table == MAP_FAILED)
                return -1;
        users_unetd_begins();
        return 0;
}

int users_setup(void **state)
{
        return users_setup_with("");
}

pid_t users_unetd(void)
{
        return system_unetd;
}

int users_teardown(void **state)
{
        if (victim > 0)
                users_kill(victim);
        if (server > 0)
                users_kill(server);
        if (system_unetd > 0) {
                kill(system_unetd, SIGCONT);
                users_kill(system_unetd);
                remove_files();
                unlink(config_path);
        }
        if (table)
                munmap(table, sizeof *table);
        if (table_fd >= 0)
                close(table_fd);
        table = NULL;
        table_fd = -1;
        return 0;
}

/* Within 100 ms, as soon as the machine lets it. */
static bool answers_at_once(void)
{
        int64_t began = users_now_ms();

        return daemon_is_there() && users_now_ms() - began < 100;
}

void users_unetd_answers(void)
{
        eventually(answers_at_once());
}

pid_t users_broker(void)
{
        char path[64], text[32] = "";
        int fd;

        snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)system_unetd,
                 (int)system_unetd);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        assert_true(read(fd, text, sizeof text - 1) > 0);
        close(fd);
        return atoi(text);
}

int users_fds(pid_t pid)
{
        char path[64];
        struct dirent *e;
        int n = 0;
        DIR *d;

        snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
        d = opendir(path);
        assert_non_null(d);
        while ((e = readdir(d)))
                n += e->d_name[0] != '.';
        closedir(d);
        return n;
}

/* ---- the victim ---- */

static int play(const char *role)
{
        char fd[16];
        int flags = fcntl(table_fd, F_GETFD);

        fcntl(table_fd, F_SETFD, flags & ~FD_CLOEXEC);
        snprintf(fd, sizeof fd, "%d", table_fd);
        setenv("LD_PRELOAD", USERS_PRELOAD, 1);
        execl(USERS_VICTIM, "users_victim", fd, role, NULL);
        return 127;
}

static int be_victim(void)
{
        return play("all");
}

static int serve(void)
{
        return play("serves");
}

static int call(void)
{
        return play("calls");
}

int users_victim_meets(void)
{
        return play("meets");
}

static uint16_t victim_is_there(void)
{
        eventually(table->conns > 0 && table->kept > 0 && table->datagrams > 0);
        return (uint16_t)table->port;
}

uint16_t users_victim_start(void)
{
        victim = users_begin(VICTIM, be_victim);
        return victim_is_there();
}

static bool has_port(uint8_t proto)
{
        struct unetd_client c = {.pid = 0};
        struct dir_hit hit;
        bool has;

        if (table->port == 0 || unetd_open(&c, UNETD_NO_START | UNETD_SYSTEM) < 0)
                return false;
        has = directory_lookup(c.dir, proto, ip_addr_v4(INADDR_LOOPBACK), (uint16_t)table->port, 0,
                               &hit) == 1;
        unetd_close(&c);
        return has;
}

uint16_t users_victim_start_apart(void)
{
        server = users_begin(BYSTANDER, serve);
        eventually(has_port(IPPROTO_TCP) && has_port(IPPROTO_UDP));
        victim = users_begin(VICTIM, call);
        return victim_is_there();
}

static void assert_unharmed(void)
{
        if (table->wrong != 0 || table->failed != 0)
                print_message("the victim: %llu wrong, %llu failed\n",
                              (unsigned long long)table->wrong, (unsigned long long)table->failed);
        assert_int_equal(table->wrong, 0);
        assert_int_equal(table->failed, 0);
}

void users_victim_goes_on(void)
{
        uint64_t conns = table->conns, kept = table->kept, datagrams = table->datagrams;

        eventually(table->wrong + table->failed > 0 ||
                   (table->conns > conns + 20 && table->kept > kept + 20 &&
                    table->datagrams > datagrams + 20));
        assert_unharmed();
}

void users_victim_stop(void)
{
        users_kill(victim);
        victim = 0;
}

/* ---- a hostile client ---- */

static _Atomic uint32_t seq = 1;

int hostile_dial(void)
{
        struct sockaddr_un sun;
        socklen_t len = unetd_name(&sun, 0, unetd_domain(), 0);
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

        must(fd >= 0);
        if (connect(fd, (struct sockaddr *)&sun, len) < 0) {
                close(fd);
                return -errno;
        }
        return fd;
}

int hostile_send(int fd, struct unetd_msg *msg, const int *fds, unsigned n)
{
        return wire_send(fd, msg, fds, n, 0);
}

int hostile_recv(int fd, struct wire_in *in, int ms)
{
        struct pollfd p = {.fd = fd, .events = POLLIN};

        in->n = 0;
        if (poll(&p, 1, ms) <= 0)
                return -ETIMEDOUT;
        return wire_recv(fd, in, 0);
}

int hostile_ask(int fd, struct unetd_msg *msg, const int *fds, unsigned n)
{
        uint32_t number = msg->seq = atomic_fetch_add(&seq, 1);
        struct wire_in in;
        int r = hostile_send(fd, msg, fds, n);

        while (r == 0) {
                r = hostile_recv(fd, &in, USERS_PATIENCE_MS);
                wire_in_close(&in);
                if (r == 0 && in.msg.seq == number) {
                        *msg = in.msg;
                        return in.msg.err;
                }
        }
        return r;
}

int hostile_hello(int fd)
{
        struct unetd_msg msg = {
                .type = UNETD_HELLO, .seq = atomic_fetch_add(&seq, 1), .hello = {.abi = UNETD_ABI}};
        struct wire_in in;
        int r = hostile_send(fd, &msg, NULL, 0);

        if (r == 0)
                r = hostile_recv(fd, &in, USERS_PATIENCE_MS);
        if (r < 0)
                return r;
        if (in.n == 1 && !hostile_dir) {
                void *p = mmap(NULL, sizeof(struct directory), PROT_READ, MAP_SHARED, in.fds[0], 0);

                hostile_dir = p == MAP_FAILED ? NULL : p;
        }
        wire_in_close(&in);
        return in.msg.err;
}

int hostile_client(void)
{
        int fd = hostile_dial();

        must(fd >= 0);
        must(hostile_hello(fd) == 0);
        return fd;
}

/* ---- ... that is its user's keeper ---- */

static struct {
        int fd;
        enum hostile_keeps what;
        pthread_mutex_t lock;
        struct wire_in chan;
        bool came;
        struct unetd_msg first; /* K_CHAN that came; HOSTILE_LATE */
} keeper = {.fd = -1, .lock = PTHREAD_MUTEX_INITIALIZER};

static void keep_channel(struct wire_in *in)
{
        pthread_mutex_lock(&keeper.lock);
        if (keeper.came)
                wire_in_close(&keeper.chan);
        keeper.chan = *in;
        keeper.came = true;
        in->n = 0;
        pthread_mutex_unlock(&keeper.lock);
}

/* Nothing of a hostile user's is idle. */
static bool is_about_idle(uint16_t type)
{
        return type == UNETD_K_CHAN_YIELD || type == UNETD_K_CHAN_PART;
}

static int answer_to(uint16_t type)
{
        if (keeper.what == HOSTILE_REFUSES && type == UNETD_K_CHAN)
                return -EPROTO;
        return is_about_idle(type) ? -EBUSY : 0;
}

static bool is_answered(const struct unetd_msg *asked)
{
        switch (keeper.what) {
        case HOSTILE_ANSWERS:
        case HOSTILE_REFUSES:
                return true;
        case HOSTILE_ATTACHES:
                return asked->type == UNETD_K_STACK;
        case HOSTILE_LATE:
                if (asked->type != UNETD_K_CHAN)
                        return true;
                if (keeper.first.seq != 0) {
                        keeper.first.err = -EPROTO;
                        hostile_send(keeper.fd, &keeper.first, NULL, 0);
                        return true;
                }
                keeper.first = *asked;
                table->ready = 1;
                return false;
        default:
                return false;
        }
}

static void *keep(void *arg)
{
        struct wire_in in;
        int r;

        while ((r = hostile_recv(keeper.fd, &in, -1)) == 0) {
                struct unetd_msg answer = in.msg;

                if (answer.type == UNETD_K_CHAN)
                        keep_channel(&in);
                wire_in_close(&in);
                answer.err = answer_to(answer.type);
                if (answer.seq != 0 && is_answered(&in.msg))
                        hostile_send(keeper.fd, &answer, NULL, 0);
        }
        return NULL;
}

int hostile_keeper(enum hostile_keeps what)
{
        struct unetd_msg msg = {.type = UNETD_K_HELLO};
        pthread_t thread;
        int r;

        keeper.fd = hostile_client();
        keeper.what = what;
        r = hostile_ask(keeper.fd, &msg, NULL, 0);
        if (r == 0)
                must(pthread_create(&thread, NULL, keep, NULL) == 0);
        else
                close(keeper.fd);
        return r < 0 ? r : keeper.fd;
}

unsigned hostile_channel(struct unetd_chan_info *info, int fds[UNETD_CHAN_FDS_MAX])
{
        unsigned n = 0;

        pthread_mutex_lock(&keeper.lock);
        if (keeper.came) {
                n = MIN(keeper.chan.n, UNETD_CHAN_FDS_MAX);
                *info = keeper.chan.msg.chan;
                memcpy(fds, keeper.chan.fds, n * sizeof *fds);
                keeper.came = false;
        }
        pthread_mutex_unlock(&keeper.lock);
        return n;
}

/* ---- ... and has stacks and ports ---- */

int hostile_stack(int fd, struct hostile_stack *st)
{
        struct unetd_msg msg = {.type = UNETD_STACK_NEW};
        int fds[UNETD_STACK_FDS], r;

        must(unetd_stack_fds_make(&st->fds, 1 << 20) == 0);
        fds[UNETD_FD_STATE] = st->fds.state;
        fds[UNETD_FD_BELL] = st->fds.bell;
        fds[UNETD_FD_LEADER] = st->fds.leader;
        fds[UNETD_FD_RING_LEADER] = st->fds.ring_leader;
        fds[UNETD_FD_KEEPER] = st->fds.keeper;
        fds[UNETD_FD_RING_KEEPER] = st->fds.ring_keeper;
        r = hostile_ask(fd, &msg, fds, UNETD_STACK_FDS);
        st->id = msg.stack.stack;
        return r;
}

void hostile_stack_close(struct hostile_stack *st)
{
        unetd_stack_fds_close(&st->fds);
}

int hostile_socket(uint8_t proto, uint32_t addr, uint16_t *port, bool reuse)
{
        struct sockaddr_in sin = {.sin_family = AF_INET, .sin_port = htons(*port)};
        socklen_t len = sizeof sin;
        int fd = socket(AF_INET, (proto == IPPROTO_TCP ? SOCK_STREAM : SOCK_DGRAM) | SOCK_CLOEXEC,
                        0),
            yes = reuse;

        sin.sin_addr.s_addr = htonl(addr);
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
        if (bind(fd, (struct sockaddr *)&sin, len) < 0 ||
            (proto == IPPROTO_TCP && listen(fd, 8) < 0) ||
            getsockname(fd, (struct sockaddr *)&sin, &len) < 0) {
                int err = errno;

                close(fd);
                errno = err;
                return -1;
        }
        *port = ntohs(sin.sin_port);
        return fd;
}

int hostile_listen(int fd, uint32_t stack, uint8_t proto, uint32_t addr, uint16_t port, int sock)
{
        struct unetd_msg msg = {
                .type = UNETD_LISTEN_ADD,
                .port = {.stack = stack, .proto = proto, .port = port, .addr = ip_addr_v4(addr)}};

        return hostile_ask(fd, &msg, &sock, sock >= 0 ? 1 : 0);
}

uint32_t hostile_sees(uint8_t proto, uint32_t addr, uint16_t port, uint32_t hint)
{
        struct dir_hit hit;
        int r;

        while ((r = directory_lookup(hostile_dir, proto, ip_addr_v4(addr), port, hint, &hit)) ==
               -EAGAIN)
                ;
        return r == 1 ? hit.uid : UINT32_MAX;
}
