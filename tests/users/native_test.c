/*
 * A program of the native interface that gives up its user or capabilities has nothing of its stack
 * from then on, and one that was executed with more rights than its user has gets none.
 */
#include "tests/users/users.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#include "unet/flow.h"
#include "unetd/client/name.h"

int capset(struct __user_cap_header_struct *header, const struct __user_cap_data_struct *data);

/* ---- a master and what it shares with its workers ---- */

static struct {
        int listener, ours, theirs; /* a connection, both ends */
        struct sockaddr_in at;
} master;

static void listens(void)
{
        socklen_t len = sizeof master.at;

        master.at =
                (struct sockaddr_in){.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
        master.listener = unet_socket(AF_INET, SOCK_STREAM, 0);
        must(master.listener >= 0 &&
             unet_bind(master.listener, (struct sockaddr *)&master.at, len) == 0);
        must(unet_listen(master.listener, 8) == 0);
        must(unet_getsockname(master.listener, (struct sockaddr *)&master.at, &len) == 0);
}

static int connects(void)
{
        int s = unet_socket(AF_INET, SOCK_STREAM, 0);

        must(s >= 0 && unet_connect(s, (struct sockaddr *)&master.at, sizeof master.at) == 0);
        return s;
}

static void begins(void)
{
        listens();
        master.ours = connects();
        master.theirs = unet_accept(master.listener, NULL, NULL);
        must(master.theirs >= 0);
}

static void carries(int from, int to)
{
        char got[5] = "";

        must(unet_send(from, "word", 5, 0) == 5);
        must(unet_recv(to, got, 5, MSG_WAITALL) == 5 && strcmp(got, "word") == 0);
}

static void goes_on(void)
{
        int s, t;

        carries(master.ours, master.theirs);
        carries(master.theirs, master.ours);
        s = connects();
        t = unet_accept(master.listener, NULL, NULL);
        must(t >= 0);
        carries(s, t);
        must(unet_close(s) == 0 && unet_close(t) == 0);
}

static int proc; /* the directory, for who sees it no more */

static unsigned mapped(void)
{
        FILE *f = fdopen(openat(proc, "self/maps", O_RDONLY | O_CLOEXEC), "r");
        char line[512];
        unsigned n = 0;

        must(f != NULL);
        while (fgets(line, sizeof line, f) != NULL)
                n += strstr(line, "unet-") != NULL && strstr(line, "unet-directory") == NULL;
        fclose(f);
        return n;
}

static unsigned opened(void)
{
        DIR *d = fdopendir(openat(proc, "self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
        const struct dirent *e;
        char name[256];
        unsigned n = 0;

        must(d != NULL);
        while ((e = readdir(d)) != NULL) {
                ssize_t len = readlinkat(dirfd(d), e->d_name, name, sizeof name - 1);
                name[len > 0 ? len : 0] = '\0';
                n += strstr(name, "unet-") != NULL;
        }
        closedir(d);
        return n;
}

static void has_nothing(void)
{
        must(mapped() == 0 && opened() == 0);
        must(unet_send(master.ours, "x", 1, 0) == -1 && errno == EBADF);
        must(unet_accept(master.listener, NULL, NULL) == -1 && errno == EBADF);
        must(unet_close(master.theirs) == -1 && errno == EBADF);
}

/* What a child gives up, and how; and what it opens is of its own. */
static void a_child(void (*gives_up)(void), void (*then)(void))
{
        int status = 0;
        pid_t pid = fork();

        if (pid == 0) {
                must(mapped() != 0);
                gives_up();
                then();
                listens();
                begins();
                goes_on();
                _exit(0);
        }
        must(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
}

/* ---- its user ---- */

static void by_setuid(void)
{
        must(setuid(HOSTILE) == 0);
}

static void by_setreuid(void)
{
        must(setreuid(HOSTILE, HOSTILE) == 0);
}

static void by_setresuid(void)
{
        must(setresuid(HOSTILE, HOSTILE, HOSTILE) == 0);
}

static int is_a_master(void)
{
        begins();
        a_child(by_setuid, has_nothing);
        a_child(by_setreuid, has_nothing);
        a_child(by_setresuid, has_nothing);
        goes_on();
        return 0;
}

static void a_worker_has_nothing_of_its_masters_stack(void **state)
{
        if (users_cannot_run())
                skip();
        users_run(0, is_a_master);
}

static void for_a_while(void)
{
        must(seteuid(HOSTILE) == 0);
        must(mapped() != 0);
        must(seteuid(0) == 0);
        goes_on();
}

static void in_vain(void)
{
        must(setgid(HOSTILE) == 0 && seteuid(HOSTILE) == 0);
        must(setuid(VICTIM) == -1 && errno == EPERM);
        must(setresuid(VICTIM, VICTIM, VICTIM) == -1 && errno == EPERM);
        must(seteuid(0) == 0);
        goes_on();
}

static void has_all(void)
{
        must(mapped() != 0);
}

static int comes_back(void)
{
        begins();
        a_child(for_a_while, has_all);
        a_child(in_vain, has_all);
        goes_on();
        return 0;
}

static void who_can_become_root_again_or_is_refused_keeps_all(void **state)
{
        if (users_cannot_run())
                skip();
        users_run(0, comes_back);
}

/* ---- the same by a capability ---- */

static void keeps(uint32_t caps)
{
        struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};
        struct __user_cap_data_struct v[2] = {{caps, caps, 0}};

        must(capset(&h, v) == 0);
}

/* And a stack. */
static void may_have_capabilities(void)
{
        must(setenv("UNET_ACROSS_USERS", "1", 1) == 0);
}

static void becomes_a_user_with(uint32_t caps)
{
        must(prctl(PR_SET_KEEPCAPS, 1) == 0 && setresuid(VICTIM, VICTIM, VICTIM) == 0);
        keeps(caps);
}

/* By CAP_SETUID setuid() changes all three, of whoever has it. */
static int is_a_user_with_capabilities(void)
{
        may_have_capabilities();
        becomes_a_user_with(1u << CAP_SETUID | 1u << CAP_NET_BIND_SERVICE);
        begins();
        a_child(by_setuid, has_nothing);
        goes_on();
        return 0;
}

static void who_is_no_root_gives_his_user_up_too(void **state)
{
        if (users_cannot_run())
                skip();
        users_run(0, is_a_user_with_capabilities);
}

static void keeps_one(void)
{
        keeps(1u << CAP_SETUID);
}

static void keeps_both(void)
{
        keeps(1u << CAP_SETUID | 1u << CAP_NET_BIND_SERVICE);
}

static int has_workers_with_less(void)
{
        may_have_capabilities();
        must(prctl(PR_SET_KEEPCAPS, 1) == 0 && setresuid(VICTIM, VICTIM, VICTIM) == 0);
        begins();
        keeps_both(); /* nobody shares the stack */
        has_all();
        a_child(keeps_one, has_nothing);
        a_child(keeps_both, has_all);
        goes_on();
        return 0;
}

static void a_worker_with_fewer_capabilities_has_nothing_either(void **state)
{
        if (users_cannot_run())
                skip();
        users_run(0, has_workers_with_less);
}

static void asks_in_vain(void)
{
        size_t page = (size_t)sysconf(_SC_PAGESIZE);
        char *two = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                         0),
             *none = two + page;
        struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};
        struct __user_cap_data_struct *last = (struct __user_cap_data_struct *)none - 1;

        must(two != MAP_FAILED && munmap(none, page) == 0);
        must(capset(NULL, last) == -1 && errno == EFAULT);
        must(capset((struct __user_cap_header_struct *)none, last) == -1 && errno == EFAULT);
        must(capset(&h, NULL) == -1 && errno == EFAULT);
        must(capset(&h, last) == -1 && errno == EFAULT);
        h.version = 0;
        must(capset(&h, (struct __user_cap_data_struct *)none) == -1 && errno == EINVAL);
        must(h.version == _LINUX_CAPABILITY_VERSION_3);
        has_all();
        goes_on();
        h.version = _LINUX_CAPABILITY_VERSION_1;
        must(capset(&h, last) == 0);
}

static int has_a_worker_that_asks_in_vain(void)
{
        may_have_capabilities();
        must(prctl(PR_SET_KEEPCAPS, 1) == 0 && setresuid(VICTIM, VICTIM, VICTIM) == 0);
        begins();
        a_child(asks_in_vain, has_nothing);
        goes_on();
        return 0;
}

static void what_the_kernel_refuses_of_capset_is_its_to_refuse(void **state)
{
        if (users_cannot_run())
                skip();
        users_run(0, has_a_worker_that_asks_in_vain);
}

/* ---- who has no stack ---- */

static int has_a_child_of_vfork(void)
{
        int status = 0;
        pid_t pid;

        begins();
        pid = vfork();
        if (pid == 0)
                _exit(setuid(HOSTILE) == 0 ? 0 : 1);
        must(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
        goes_on();
        return 0;
}

static pid_t by_clone(void)
{
        return (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
}

/* What it opens then is its own, as after fork(). */
static void a_child_without_handlers(pid_t (*forks)(void), void (*gives_up)(void))
{
        int status = 0;
        pid_t pid = forks();

        if (pid == 0) {
                must(mapped() != 0);
                gives_up();
                has_nothing();
                begins();
                goes_on();
                _exit(0);
        }
        must(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
        goes_on();
}

/* A child has its parent's number, in a namespace of its own. */
static int is_number_one_of_number_one(void)
{
        int status = 0;
        pid_t pid;

        must(unshare(CLONE_NEWPID) == 0);
        pid = fork();
        if (pid == 0) {
                begins();
                must(getpid() == 1 && unshare(CLONE_NEWPID) == 0);
                pid = _Fork();
                if (pid == 0) {
                        must(getpid() == 1);
                        by_setuid();
                        has_nothing();
                        _exit(0);
                }
                must(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
                goes_on();
                _exit(0);
        }
        must(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
        return 0;
}

static int has_children_without_handlers(void)
{
        begins();
        a_child_without_handlers(_Fork, by_setuid);
        a_child_without_handlers(_Fork, by_setresuid);
        a_child_without_handlers(by_clone, by_setreuid);
        a_child(by_setuid, has_nothing);
        goes_on();
        return 0;
}

static void a_child_that_has_not_come_to_its_parents_stack_takes_nothing_along(void **state)
{
        if (users_cannot_run())
                skip();
        users_run(0, has_a_child_of_vfork);
        users_run(0, has_children_without_handlers);
        users_run(0, is_number_one_of_number_one);
}

static void may_make_these_calls_only(void)
{
        struct sock_filter f[] = {
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_capset, 3, 0),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_setuid, 2, 0),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 1, 0),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        struct sock_fprog prog = {.len = sizeof f / sizeof f[0], .filter = f};

        must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
             prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) == 0);
}

static int is_locked_in(void)
{
        may_make_these_calls_only();
        keeps_one();
        by_setuid();
        _exit(0);
}

static void who_has_no_stack_makes_libcs_call_only(void **state)
{
        if (users_cannot_run())
                skip();
        users_run(0, is_locked_in);
}

/* ---- threads, poll sets ---- */

static pthread_barrier_t met;

static void *waits(void *arg)
{
        pthread_barrier_wait(&met);
        pthread_barrier_wait(&met);
        return NULL;
}

static void with_a_thread(void)
{
        pthread_t t;

        must(pthread_barrier_init(&met, NULL, 2) == 0 &&
             pthread_create(&t, NULL, waits, NULL) == 0);
        pthread_barrier_wait(&met);
        must(setuid(HOSTILE) == -1 && errno == EAGAIN && geteuid() == 0);
        goes_on();
        pthread_barrier_wait(&met);
        must(pthread_join(t, NULL) == 0);
        by_setuid();
}

static void with_a_thread_without_proc(void)
{
        must(chroot("/usr") == 0);
        must(access("/proc", F_OK) == -1 && errno == ENOENT);
        with_a_thread();
}

static int is_threaded(void)
{
        begins();
        a_child(with_a_thread, has_nothing);
        a_child(with_a_thread_without_proc, has_nothing);
        goes_on();
        return 0;
}

static void who_has_threads_is_refused(void **state)
{
        if (users_cannot_run())
                skip();
        users_run(0, is_threaded);
}

static struct unet_pollset *set;
static int event;

static void watches(void)
{
        set = unet_pollset_create();
        event = eventfd(0, EFD_CLOEXEC);
        must(set != NULL && event >= 0 && unet_pollset_add_fd(set, event, POLLIN, 7) == 0);
        must(unet_pollset_add(set, master.theirs, POLLIN, 8) == 0);
        must(unet_pollset_fd(set) >= 0);
        by_setuid();
}

static void watches_on(void)
{
        struct pollfd outside = {.fd = unet_pollset_fd(set), .events = POLLIN};
        const uint64_t one = 1;
        struct unet_event ev[2];
        int s;

        has_nothing();
        must(unet_pollset_wait(set, ev, 2, 0) == 0);
        must(write(event, &one, sizeof one) == sizeof one);
        must(poll(&outside, 1, -1) == 1);
        must(unet_pollset_wait(set, ev, 2, -1) == 1 && ev[0].data == 7);
        must(unet_pollset_del_fd(set, event) == 0);
        listens();
        must(unet_pollset_add(set, master.listener, POLLIN, 9) == 0);
        s = connects();
        must(poll(&outside, 1, -1) == 1);
        must(unet_pollset_wait(set, ev, 2, -1) == 1 && ev[0].data == 9);
        must(unet_close(s) == 0);
        unet_pollset_destroy(set);
}

static int has_a_set(void)
{
        begins();
        a_child(watches, watches_on);
        goes_on();
        return 0;
}

static void a_poll_set_goes_on_without_its_members(void **state)
{
        if (users_cannot_run())
                skip();
        users_run(0, has_a_set);
}

/* ---- more rights than its user ---- */

#define RAISED    "raised"
#define NO_RIGHTS 3 /* the exit status of one whose file gave it none */

static void has_none(void)
{
        must(unet_socket(AF_INET, SOCK_STREAM, 0) == -1 && errno == EPERM);
        must(unet_pollset_create() == NULL && errno == EPERM);
        must(mapped() == 0);
}

static int has_capabilities(void)
{
        becomes_a_user_with(1u << CAP_SETUID | 1u << CAP_NET_BIND_SERVICE);
        has_none();
        return 0;
}

static int may_have_a_port(void)
{
        becomes_a_user_with(1u << CAP_NET_BIND_SERVICE);
        begins();
        goes_on();
        return 0;
}

/* As by a service manager. Other processes of the user have none. */
static void a_user_with_capabilities_has_no_stack(void **state)
{
        if (users_cannot_run())
                skip();
        users_run(0, has_capabilities);
        users_run(0, may_have_a_port);
}

/* He can be root again, whatever capabilities he gave up. */
static int shows_a_user(void)
{
        must(setresgid(VICTIM, VICTIM, VICTIM) == 0 && setresuid(0, VICTIM, 0) == 0);
        keeps(0);
        has_none();
        must(seteuid(0) == 0);
        return 0;
}

static void who_shows_a_user_and_can_be_another_has_no_stack(void **state)
{
        if (users_cannot_run())
                skip();
        users_run(0, shows_a_user);
}

static void put_map(pid_t pid, const char *name, const char *map)
{
        char path[32];
        int fd;

        snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
        fd = open(path, O_WRONLY | O_CLOEXEC);
        must(fd >= 0 && write(fd, map, strlen(map)) == (ssize_t)strlen(map));
        close(fd);
}

/* What fn does in a user namespace with this map. */
static int contained(const char *map, void (*fn)(void))
{
        int ready[2], status;
        char byte;
        pid_t pid;

        must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ready) == 0);
        pid = fork();
        if (pid == 0) {
                must(unshare(CLONE_NEWUSER) == 0 && write(ready[1], "", 1) == 1 &&
                     read(ready[1], &byte, 1) == 1);
                fn();
                _exit(0);
        }
        must(pid > 0 && read(ready[0], &byte, 1) == 1);
        put_map(pid, "uid_map", map);
        must(write(ready[0], "", 1) == 1 && waitpid(pid, &status, 0) == pid);
        return status;
}

static void keeps_all_capabilities(void)
{
        must(prctl(PR_SET_KEEPCAPS, 1) == 0 && setresuid(VICTIM, VICTIM, VICTIM) == 0);
}

static void is_contained(void)
{
        keeps_all_capabilities();
        has_none();
}

static void is_alone(void)
{
        keeps_all_capabilities();
        begins();
        goes_on();
}

static int is_in_a_container(void)
{
        must(contained("0 0 65536", is_contained) == 0);
        return 0;
}

static int is_in_his_own_namespace(void)
{
        must(contained("64001 64001 1", is_alone) == 0);
        return 0;
}

/* Of a user namespace that has other users, too. */
static void capabilities_in_a_container_count(void **state)
{
        if (users_cannot_run())
                skip();
        if (access("/proc/self/ns/user", F_OK) != 0)
                skip();
        users_run(0, is_in_a_container);
        users_run(0, is_in_his_own_namespace);
}

#define NOBODY 65534u /* the kernel names so who has no number in a user namespace */

/* Who is asked counts the questions. */
static int holds_nobodys_names(void)
{
        struct pollfd p[UNETD_NAMES];

        for (unsigned i = 0; i < UNETD_NAMES; i++) {
                struct sockaddr_un sun;
                socklen_t len = unetd_name(&sun, NOBODY, unetd_domain(), i);

                p[i] = (struct pollfd){.fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0),
                                       .events = POLLIN};
                must(bind(p[i].fd, (struct sockaddr *)&sun, len) == 0 && listen(p[i].fd, 8) == 0);
        }
        table->ready = 1;
        while (table->done == 0) {
                char hello[256];
                int fd;

                for (unsigned i = 0; poll(p, UNETD_NAMES, 1) > 0 && i < UNETD_NAMES; i++)
                        if (p[i].revents != 0 && (fd = accept(p[i].fd, NULL, NULL)) >= 0)
                                table->value[0] += recv(fd, hello, sizeof hello, 0) > 0;
        }
        return 0;
}

static void asks_as_nobody(void)
{
        struct unetd_client c = {.pid = 0};

        must(setresuid(NOBODY, NOBODY, NOBODY) == 0);
        must(unetd_open(&c, UNETD_NO_START) < 0);
}

static int is_nobody_in_his_namespace(void)
{
        must(contained("65534 65534 1", asks_as_nobody) == 0);
        return 0;
}

/* A unetd that is not the user's is not believed. */
static void nobody_is_taken_for_somebody_else(void **state)
{
        pid_t hostile;

        if (users_cannot_run())
                skip();
        if (access("/proc/self/ns/user", F_OK) != 0)
                skip();
        hostile = users_begin(HOSTILE, holds_nobodys_names);
        eventually(table->ready == 1);
        users_run(0, is_nobody_in_his_namespace);
        table->done = 1;
        users_wait(hostile);
        assert_int_equal(table->value[0], 0);
}

/* To ask the kernel by. */
static void has_no_descriptor_left(void)
{
        struct rlimit few;
        int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

        must(fd >= 0 && getrlimit(RLIMIT_NOFILE, &few) == 0);
        few.rlim_cur = (rlim_t)fd;
        close(fd);
        must(setrlimit(RLIMIT_NOFILE, &few) == 0);
        must(open("/dev/null", O_RDONLY | O_CLOEXEC) == -1 && errno == EMFILE);
}

static int locks_itself_in(void)
{
        const uint64_t tcp[] = {0, 3}; /* bind, connect */
        struct sockaddr_in any = {.sin_family = AF_INET};
        int rules, s;

        begins();
        rules = (int)syscall(SYS_landlock_create_ruleset, tcp, sizeof tcp, 0);
        if (rules < 0) {
                fprintf(stderr, "not shown: this kernel has no Landlock for ports\n");
                return 0;
        }
        must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
             syscall(SYS_landlock_restrict_self, rules, 0) == 0);
        s = unet_socket(AF_INET, SOCK_STREAM, 0);
        must(s >= 0);
        must(unet_connect(s, (struct sockaddr *)&master.at, sizeof master.at) < 0 &&
             errno == EACCES);
        any.sin_port = htons((uint16_t)(ntohs(master.at.sin_port) ^ 1));
        must(unet_bind(s, (struct sockaddr *)&any, sizeof any) < 0 && errno == EACCES);
        has_no_descriptor_left();
        must(unet_connect(s, (struct sockaddr *)&master.at, sizeof master.at) < 0 &&
             errno == EMFILE);
        must(unet_bind(s, (struct sockaddr *)&any, sizeof any) < 0 && errno == EMFILE);
        carries(master.ours, master.theirs);
        return 0;
}

static int leaves_its_network(void)
{
        begins();
        must(unshare(CLONE_NEWNET) == 0);
        must(unet_socket(AF_INET, SOCK_STREAM, 0) < 0 && errno == EPERM);
        carries(master.ours, master.theirs);
        return 0;
}

static void a_stack_is_of_one_network_namespace(void **state)
{
        if (users_cannot_run())
                skip();
        users_run(0, leaves_its_network);
}

static void landlock_holds(void **state)
{
        if (users_cannot_run())
                skip();
        users_run(VICTIM, locks_itself_in);
}

/* This program, executed with rights of its file's. */
static int is_raised(void)
{
        struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};
        struct __user_cap_data_struct v[2] = {{.permitted = 0}};

        must(syscall(SYS_capget, &h, v) == 0);
        if (geteuid() == getuid() && getegid() == getgid() && v[0].permitted == 0)
                return NO_RIGHTS;
        has_none();
        must(setegid(getgid()) == 0 && seteuid(getuid()) == 0); /* it may take them back */
        has_none();
        return 0;
}

static char copy[64];

static int runs_the_copy(void)
{
        execl(copy, copy, RAISED, NULL);
        return 127;
}

static void copies_itself(mode_t mode, uint32_t owner)
{
        int from = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), to;
        struct stat st;

        snprintf(copy, sizeof copy, "/tmp/raised-%d", (int)getpid());
        to = open(copy, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0700);
        assert_true(from >= 0 && to >= 0 && fstat(from, &st) == 0);
        for (off_t left = st.st_size; left > 0;) {
                ssize_t n = copy_file_range(from, NULL, to, NULL, (size_t)left, 0);
                assert_true(n > 0);
                left -= n;
        }
        assert_int_equal(fchown(to, owner, owner), 0);
        assert_int_equal(fchmod(to, mode), 0);
        close(from);
        close(to);
}

static void runs_raised(void)
{
        pid_t pid = users_begin(HOSTILE, runs_the_copy);
        int status;

        assert_int_equal(waitpid(pid, &status, 0), pid);
        unlink(copy);
        assert_true(WIFEXITED(status));
        if (WEXITSTATUS(status) == NO_RIGHTS)
                print_message("not shown: /tmp gives programs no rights\n");
        else
                assert_int_equal(status, 0);
}

static void who_was_executed_with_more_rights_than_its_user_has_no_stack(void **state)
{
        static const struct vfs_cap_data caps = {
                .magic_etc = VFS_CAP_REVISION_2 | VFS_CAP_FLAGS_EFFECTIVE,
                .data = {{.permitted = 1u << CAP_NET_BIND_SERVICE}}};

        if (users_cannot_run())
                skip();
        copies_itself(04755, 0);
        runs_raised();
        copies_itself(04755, VICTIM);
        runs_raised();
        copies_itself(02755, VICTIM);
        runs_raised();
        copies_itself(0755, 0);
        assert_int_equal(setxattr(copy, "security.capability", &caps, XATTR_CAPS_SZ_2, 0), 0);
        runs_raised();
}

#define t(test) cmocka_unit_test_setup_teardown(test, users_setup, users_teardown)
int main(int argc, char **argv)
{
        const struct CMUnitTest tests[] = {
                t(a_worker_has_nothing_of_its_masters_stack),
                t(who_can_become_root_again_or_is_refused_keeps_all),
                t(who_is_no_root_gives_his_user_up_too),
                t(a_worker_with_fewer_capabilities_has_nothing_either),
                t(what_the_kernel_refuses_of_capset_is_its_to_refuse),
                t(a_child_that_has_not_come_to_its_parents_stack_takes_nothing_along),
                t(who_has_no_stack_makes_libcs_call_only),
                t(who_has_threads_is_refused),
                t(a_poll_set_goes_on_without_its_members),
                t(who_was_executed_with_more_rights_than_its_user_has_no_stack),
                t(a_user_with_capabilities_has_no_stack),
                t(who_shows_a_user_and_can_be_another_has_no_stack),
                t(capabilities_in_a_container_count),
                t(nobody_is_taken_for_somebody_else),
                t(landlock_holds),
                t(a_stack_is_of_one_network_namespace),
        };

        proc = open("/proc", O_PATH | O_CLOEXEC);
        if (argc == 2 && strcmp(argv[1], RAISED) == 0)
                return is_raised();
        return cmocka_run_group_tests(tests, NULL, NULL);
}
