/*
 * What a hostile user can do to his own keeper by signals, limits and priorities, and by namespaces
 * of his own.
 */
#include "tests/users/neighbour.h"

#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unet/sock.h"

/* ---- signals, limits, priorities ---- */

/* They are to be killed when his sockets have something: unetd, and all of the victim's. */
static bool is_aimed_at(pid_t pid)
{
        char path[32];
        struct stat st;

        snprintf(path, sizeof path, "/proc/%d", (int)pid);
        return pid == users_unetd() || pid == users_broker() ||
               (pid > 0 && stat(path, &st) == 0 && st.st_uid == VICTIM);
}

static void aims(int fd, pid_t pid)
{
        must(fcntl(fd, F_SETSIG, SIGKILL) == 0);
        must(fcntl(fd, F_SETFL, O_ASYNC | O_NONBLOCK | O_RDWR) == 0);
        fcntl(fd, F_SETOWN, pid);
}

static int sends_signals_by_sockets(void)
{
        struct sockaddr_in at = {.sin_family = AF_INET};
        struct dirent *e;
        uint16_t port = 0;
        int s = hostile_socket(IPPROTO_TCP, LOOPBACK_2, &port, false), to;
        DIR *d = opendir("/proc");

        comes();
        must(d != NULL && s >= 0);
        must(hostile_listen(client, own.id, IPPROTO_TCP, LOOPBACK_2, port, s) == 0);
        at.sin_addr.s_addr = htonl(LOOPBACK_2);
        at.sin_port = htons(port);
        while ((e = readdir(d)) != NULL) {
                if (!is_aimed_at(atoi(e->d_name)))
                        continue;
                aims(s, atoi(e->d_name));
                aims(own.fds.leader, atoi(e->d_name));
                to = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
                connect(to, (struct sockaddr *)&at, sizeof at);
                send(own.fds.ring_leader, "x", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
                close(to);
        }
        closedir(d);
        return 0;
}

/* His real keeper, which root's unetd started. */
static pid_t keeper_of_his(void)
{
        char path[300], comm[32];
        struct dirent *e;
        DIR *d = opendir("/proc");
        pid_t found = 0;

        must(d != NULL);
        while (found == 0 && (e = readdir(d)) != NULL) {
                struct stat st;
                FILE *f;

                snprintf(path, sizeof path, "/proc/%s/stat", e->d_name);
                if (atoi(e->d_name) == 0 || (f = fopen(path, "re")) == NULL)
                        continue;
                snprintf(path, sizeof path, "/proc/%s", e->d_name);
                if (fscanf(f, "%*d (%31[^)])", comm) == 1 &&
                    strncmp(comm, "unet-keeper", 11) == 0 && kill(atoi(e->d_name), 0) == 0 &&
                    stat(path, &st) == 0)
                        found = atoi(e->d_name);
                fclose(f);
        }
        closedir(d);
        return found;
}

/* Listens by the native interface: whom the stack belongs to matters to the kernel alone. */
static pid_t comes_with_a_keeper(void)
{
        struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(LOOPBACK)};
        int l = unet_socket(AF_INET, SOCK_STREAM, 0);
        socklen_t len = sizeof at;
        pid_t pid = 0;

        must(l >= 0 && unet_bind(l, (struct sockaddr *)&at, len) == 0 && unet_listen(l, 4) == 0);
        must(unet_getsockname(l, (struct sockaddr *)&at, &len) == 0);
        table->value[0] = ntohs(at.sin_port);
        must_eventually((pid = keeper_of_his()) != 0);
        return pid;
}

static int kills_his_keeper_again_and_again(void)
{
        for (int i = 0; i < 20; i++) {
                pid_t pid;
                struct hostile_stack st;
                int fd = hostile_client();

                hostile_stack(fd, &st);
                pid = keeper_of_his();
                if (pid != 0)
                        kill(pid, SIGKILL);
                hostile_stack_close(&st);
                close(fd);
        }
        return 0;
}

static int stops_his_keeper(void)
{
        pid_t pid = comes_with_a_keeper();

        must(kill(pid, SIGSTOP) == 0);
        table->ready = 1;
        must_eventually(table->done == 1);
        kill(pid, SIGKILL);
        return 0;
}

static int limits_his_keeper(void)
{
        static const int limits[] = {RLIMIT_NOFILE, RLIMIT_AS, RLIMIT_DATA, RLIMIT_FSIZE,
                                     RLIMIT_MSGQUEUE};
        const struct rlimit none = {0, 0};
        pid_t pid = comes_with_a_keeper();

        for (size_t i = 0; i < ARRAY_LEN(limits); i++)
                prlimit(pid, limits[i], &none, NULL);
        sched_setscheduler(pid, SCHED_IDLE, &(struct sched_param){0});
        setpriority(PRIO_PROCESS, (id_t)pid, 19);
        table->ready = 1;
        must_eventually(table->done == 1);
        kill(pid, SIGKILL);
        return 0;
}

/* A bystander, who gets an answer, whatever it is. */
static int calls_whom_the_keeper_keeps(void)
{
        struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(LOOPBACK)};
        int s = unet_socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);

        to.sin_port = htons((uint16_t)table->value[0]);
        must(s >= 0);
        unet_connect(s, (struct sockaddr *)&to, sizeof to);
        return 0;
}

/* ---- namespaces ---- */

/* Whose the stack is says the kernel, to which he is the same as ever. */
static void comes_as(uint32_t uid)
{
        client = hostile_client();
        hostile_stack(client, &own);
        must(own.id == 0 || own.id - unetd_stacks_of(uid) < UNETD_STACKS_OF_USER);
}

static int comes_from_namespaces(void)
{
        static const int kinds[] = {CLONE_NEWUSER, CLONE_NEWUSER | CLONE_NEWPID,
                                    CLONE_NEWUSER | CLONE_NEWNS, CLONE_NEWUSER | CLONE_NEWUTS,
                                    CLONE_NEWUSER | CLONE_NEWIPC | CLONE_NEWPID};
        uint32_t uid = geteuid();
        int status;

        must(hostile_keeper(HOSTILE_ANSWERS) >= 0);
        for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
                pid_t pid = fork();

                if (pid == 0) {
                        prctl(PR_SET_DUMPABLE, 1);
                        if (unshare(kinds[i]) < 0)
                                _exit(0);
                        pid = fork(); /* the first in its namespace of processes */
                        if (pid == 0) {
                                comes_as(uid);
                                _exit(0);
                        }
                        must(waitpid(pid, &status, 0) == pid && status == 0);
                        _exit(0);
                }
                must(waitpid(pid, &status, 0) == pid && status == 0);
        }
        return 0;
}

#define ATTACKS(X)                          \
        X(sends_signals_by_sockets)         \
        X(kills_his_keeper_again_and_again) \
        X(comes_from_namespaces)

ATTACKS(ATTACK_SCENE)

static void who_stops_his_keeper(void **state)
{
        harms_nobody_meanwhile(stops_his_keeper, calls_whom_the_keeper_keeps);
}

static void who_limits_his_keeper(void **state)
{
        harms_nobody_meanwhile(limits_his_keeper, calls_whom_the_keeper_keeps);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(the_victim_begins),
                ATTACKS(ATTACK_ROW) cmocka_unit_test(who_stops_his_keeper),
                cmocka_unit_test(who_limits_his_keeper),
        };

        if (users_cannot_run() || !neighbours_have_own_network())
                return 77;
        return cmocka_run_group_tests(tests, users_setup, users_teardown);
}
