#include "two_users.h"

#include <grp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

struct table *table;

static pid_t system_unetd;

static bool reachable_by(uint32_t uid)
{
        int status;
        pid_t pid = fork();

        if (pid == 0)
                _exit(setresuid(uid, uid, uid) == 0 && access(TEST_LIBEXEC "/unetd", X_OK) == 0
                              ? 0
                              : 1);
        waitpid(pid, &status, 0);
        return status == 0;
}

bool cannot_run(void)
{
        if (geteuid() != 0) {
                print_message("skipped: only root can be two users\n");
                return true;
        }
        if (!reachable_by(ALICE)) {
                print_message("skipped: the build tree is closed to other users\n");
                return true;
        }
        return false;
}

int users_setup(void **state)
{
        return users_setup_in(TEST_LIBEXEC);
}

static void begin(void)
{
        struct unetd_client c = {.pid = 0};
        char unetd[256];

        snprintf(unetd, sizeof unetd, "%s/unetd", getenv("UNET_LIBEXEC"));
        system_unetd = fork();
        if (system_unetd == 0) {
                execl(unetd, "unetd", "--system", "--foreground", "--log", "/dev/null", NULL);
                _exit(127);
        }
        eventually(unetd_open(&c, UNETD_NO_START) == 0);
        unetd_close(&c);
}

int users_setup_in(const char *libexec)
{
        world_setup(NULL);
        setenv("UNET_LIBEXEC", libexec, 1);
        table = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        system_unetd = 0;
        if (geteuid() == 0)
                begin();
        return 0;
}

void users_begin_again(void)
{
        kill(system_unetd, SIGKILL);
        waitpid(system_unetd, NULL, 0);
        begin();
}

int users_teardown(void **state)
{
        munmap(table, 4096);
        if (system_unetd > 0) {
                kill(system_unetd, SIGKILL);
                waitpid(system_unetd, NULL, 0);
        }
        return 0;
}

void become(uint32_t uid)
{
        gid_t gid = uid;

        if (setgroups(0, NULL) < 0 || setresgid(gid, gid, gid) < 0 || setresuid(uid, uid, uid) < 0)
                abort();
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failed test leaves nobody behind */
}

void must_stack(struct unetd_client *c, struct fake_stack *st)
{
        int r;

        must(unetd_open(c, 0) == 0);
        must(c->shared);
        must(unetd_stack_fds_make(&st->fds, FAKE_BYTES) == 0);
        st->s = mmap(NULL, FAKE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, st->fds.state, 0);
        must(st->s != MAP_FAILED);
        st->s->magic = FAKE_MAGIC;
        st->id = 0;
        r = unetd_stack_new(c, &st->fds, 0, &st->id);
        if (r != 0)
                fprintf(stderr, "uid %u: %s\n", (unsigned)geteuid(), strerror(-r));
        must(r == 0);
}

void must_child(pid_t pid)
{
        int status;

        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
}

bool local_port(int fd, uint16_t *port)
{
        struct sockaddr_in sin;
        socklen_t len = sizeof sin;

        if (getsockname(fd, (struct sockaddr *)&sin, &len) < 0)
                return false;
        *port = ntohs(sin.sin_port);
        return true;
}

int tcp_listener(uint16_t *port)
{
        struct sockaddr_in sin = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        int fd = socket(AF_INET, SOCK_STREAM, 0);

        must(fd >= 0 && bind(fd, (struct sockaddr *)&sin, sizeof sin) == 0 && listen(fd, 1) == 0 &&
             local_port(fd, port));
        return fd;
}
