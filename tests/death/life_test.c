/*
 * Processes that leave, stop, fork and multiply while their stack is in use: exit amid calls of
 * other threads, SIGSTOP, two processes on one socket, more processes than a stack has room for,
 * daemons that are away.
 */
#include "tests/long_run.h"
#include "tests/sock/sides.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "sock/attach/ustack.h"

#define CHUNK   20000u
#define THREADS 3

static struct shared {
        struct {
                _Atomic uint64_t sent, sent_try;
        } line[THREADS];
        _Atomic int pid[128];
        _Atomic uint64_t count[4];
} * sh;

/* A process whose end is what it is for: the side goes on. */
static pid_t start(side_fn fn, struct side *s)
{
        pid_t pid = fork();

        CHECK(pid >= 0);
        if (pid == 0) {
                fn(s);
                _exit(0);
        }
        return pid;
}

static int status_after(pid_t pid)
{
        int status;

        CHECK(waitpid(pid, &status, 0) == pid);
        return WIFSIGNALED(status) ? 256 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* ---- exit while other threads are inside ---- */

struct sender {
        int sock, n;
        uint64_t seed;
};

static void *send_on(void *arg)
{
        struct sender *t = arg;
        uint64_t rng = t->seed, at = 0;
        uint8_t buf[CHUNK];

        for (;;) {
                size_t want = 1 + rnd(&rng) % CHUNK;
                ssize_t n;
                fill(buf, want, t->seed, at);
                sh->line[t->n].sent_try = at + want;
                n = unet_send(t->sock, buf, want, 0);
                CHECK(n > 0);
                sh->line[t->n].sent = sh->line[t->n].sent_try = at += (uint64_t)n;
        }
}

static void *poll_on(void *arg)
{
        struct unet_pollfd v = {.sock = ((struct sender *)arg)->sock, .fd = -1, .events = POLLIN};

        for (;;)
                CHECK(unet_poll(&v, 1, 1) >= 0);
}

static void *recv_on(void *arg)
{
        char byte;

        for (;;)
                CHECK(unet_recv(((struct sender *)arg)->sock, &byte, 1, 0) > 0);
}

static void busy_side(struct side *s)
{
        static struct sender t[THREADS];
        uint16_t port = (uint16_t)hear(s);
        uint64_t rng = s->arg + 99;
        pthread_t thread;

        for (int i = 0; i < THREADS; i++) {
                t[i] = (struct sender){
                        .sock = tcp_connect_to(port), .n = i, .seed = s->arg + (uint64_t)i};
                CHECK(unet_send(t[i].sock, &(uint8_t){(uint8_t)i}, 1, 0) == 1);
        }
        for (int i = 0; i < THREADS; i++)
                CHECK(pthread_create(&thread, NULL, send_on, &t[i]) == 0);
        CHECK(pthread_create(&thread, NULL, poll_on, &t[0]) == 0);
        CHECK(pthread_create(&thread, NULL, recv_on, &t[1]) == 0);
        usleep((useconds_t)(rnd(&rng) % 3000));
        switch (s->arg % 4) {
        case 0:
                exit(0);
        case 1:
                _exit(0);
        case 2:
                quick_exit(0);
        default:
                execl("/bin/true", "true", NULL);
        }
        CHECK(!"reached");
}

static uint8_t data[CHUNK];

/* What was sent, whole, then the end and no reset. */
static void read_to_the_end(int c, uint64_t seed)
{
        uint64_t at = 0;
        uint8_t number;
        ssize_t n;

        CHECK(unet_recv(c, &number, 1, 0) == 1 && number < THREADS);
        while ((n = unet_recv(c, data, sizeof data, 0)) > 0) {
                CHECK(filled(data, (size_t)n, seed + number, at));
                at += (uint64_t)n;
        }
        CHECK(n == 0);
        CHECK(at <= sh->line[number].sent_try && at >= sh->line[number].sent);
}

static void busy_peer(struct side *s)
{
        int l = tcp_listen_any(), c[THREADS];

        tell(s, port_of(l));
        for (int i = 0; i < THREADS; i++)
                c[i] = unet_accept(l, NULL, NULL);
        for (int i = 0; i < THREADS; i++)
                read_to_the_end(c[i], s->arg);
}

/* Threads die inside, with the lock and in the middle of a change: what they leave is mended. */
static void exit_amid_calls_loses_nothing(void **state)
{
        for (uint64_t i = 0; i < (long_run() ? 304 : 104) / SLOWER; i++) {
                memset(sh->line, 0, sizeof sh->line);
                play(TWO_PROCESSES, busy_side, busy_peer, test_seed() / 4 * 4 + i);
        }
}

/* ---- stopped ---- */

/* Echoes, forever. */
static void echo(int c)
{
        uint8_t buf[4096];
        ssize_t n;

        while ((n = unet_recv(c, buf, sizeof buf, 0)) > 0)
                CHECK(unet_send(c, buf, (size_t)n, 0) == n);
}

/* Two processes of one stack, each asleep in recv; they say who they are. */
static void two_echoes(struct side *s)
{
        uint16_t port = (uint16_t)hear(s);
        int c[2] = {tcp_connect_to(port), tcp_connect_to(port)};
        pid_t pid;

        CHECK(unet_send(c[0], "0", 1, 0) == 1 && unet_send(c[1], "1", 1, 0) == 1);
        pid = fork();
        sh->pid[pid == 0] = getpid();
        CHECK(unet_close(c[pid != 0]) == 0);
        echo(c[pid == 0]);
        CHECK(unet_close(c[pid == 0]) == 0);
        if (pid == 0)
                _exit(0);
        CHECK(status_after(pid) == 0);
}

static void echo_goes_round(int c, char with)
{
        char back;

        CHECK(unet_send(c, &with, 1, 0) == 1);
        CHECK(unet_recv(c, &back, 1, 0) == 1 && back == with);
}

/* What /proc says of a process under `key`, as a number; of a letter, its code. */
static long of_process(pid_t pid, const char *key)
{
        char path[64], line[128];
        long v = -1;
        FILE *fp;

        snprintf(path, sizeof path, "/proc/%d/status", pid);
        fp = fopen(path, "re");
        while (fp != NULL && v < 0 && fgets(line, sizeof line, fp) != NULL)
                if (strncmp(line, key, strlen(key)) == 0) {
                        const char *p = line + strlen(key) + strspn(line + strlen(key), ":\t ");
                        v = *p >= 'A' ? *p : strtol(p, NULL, 10);
                }
        if (fp != NULL)
                fclose(fp);
        return v;
}

static bool rests(pid_t pid)
{
        long before = of_process(pid, "voluntary_ctxt_switches");

        sleep_ms(20);
        return of_process(pid, "State") == 'S' &&
               of_process(pid, "voluntary_ctxt_switches") == before;
}

/* It has been stopped as it slept, and not between waking up and sleeping again. Where nobody may
 * look: taken for granted. */
static bool stopped_asleep(pid_t pid)
{
        char path[64];
        long number;
        FILE *f;
        bool known;

        EVENTUALLY(of_process(pid, "State") == 'T');
        snprintf(path, sizeof path, "/proc/%d/syscall", pid);
        f = fopen(path, "re");
        known = f != NULL && fscanf(f, "%ld", &number) == 1;
        if (f != NULL)
                fclose(f);
        return !known || number == SYS_ppoll || number == SYS_futex ||
               number == SYS_restart_syscall;
}

static void stops_one(struct side *s)
{
        int l = tcp_listen_any(), c[2];
        uint64_t rng = s->arg;
        char which;

        sh->pid[0] = sh->pid[1] = 0;
        tell(s, port_of(l));
        for (int i = 0; i < 2; i++) {
                int a = unet_accept(l, NULL, NULL);
                CHECK(unet_recv(a, &which, 1, 0) == 1);
                c[which - '0'] = a;
        }
        EVENTUALLY(sh->pid[0] != 0 && sh->pid[1] != 0);
        for (int i = 0; i < 16; i++) {
                int stopped = (int)(rnd(&rng) % 2);
                for (uint64_t k = rnd(&rng) % 4; k > 0; k--)
                        echo_goes_round(c[rnd(&rng) % 2], 'a');
                sleep_ms(150); /* the keeper has gone back to sleep */
                /* One that stops inside does hold up its stack. */
                EVENTUALLY(rests(sh->pid[0]) && rests(sh->pid[1]));
                while (kill(sh->pid[stopped], SIGSTOP) == 0 && !stopped_asleep(sh->pid[stopped]))
                        CHECK(kill(sh->pid[stopped], SIGCONT) == 0);
                for (int k = 0; k < 3; k++)
                        echo_goes_round(c[!stopped], 'c');
                CHECK(unet_send(c[stopped], "d", 1, 0) == 1);
                CHECK(kill(sh->pid[stopped], SIGCONT) == 0);
                CHECK(unet_recv(c[stopped], &which, 1, 0) == 1 && which == 'd');
        }
        CHECK(unet_close(c[0]) == 0 && unet_close(c[1]) == 0);
}

static void a_stopped_process_does_not_hold_up_its_stack(void **state)
{
        play(TWO_PROCESSES, two_echoes, stops_one, test_seed());
}

/* The only process of a stack stops for seconds, with data under way both ways; then all
 * goes on. */
static void stopped_whole(struct side *s)
{
        int c = side_connect(s);

        tell(s, (uint64_t)getpid());
        echo(c);
}

static void stops_all(struct side *s)
{
        int c = side_accept(s);
        pid_t other = (pid_t)hear(s);
        uint64_t sent = 0, got = 0;
        ssize_t n;

        for (int i = 0; i < 2; i++) {
                CHECK(kill(other, SIGSTOP) == 0);
                fill(data, sizeof data, s->arg, sent);
                while ((n = unet_send(c, data, sizeof data, MSG_DONTWAIT)) > 0) {
                        sent += (uint64_t)n;
                        fill(data, sizeof data, s->arg, sent);
                }
                sleep_ms(1500);
                CHECK(kill(other, SIGCONT) == 0);
                while (got < sent) {
                        n = unet_recv(c, data, sizeof data, 0);
                        CHECK(n > 0 && filled(data, (size_t)n, s->arg, got));
                        got += (uint64_t)n;
                }
        }
        CHECK(unet_close(c) == 0);
}

static void a_stopped_peer_goes_on_later(void **state)
{
        play(TWO_PROCESSES, stopped_whole, stops_all, test_seed());
}

/* ---- two processes on one socket ---- */

#define EACH 200000u

static void writes(int c, char what)
{
        char buf[64];

        memset(buf, what, sizeof buf);
        for (uint32_t i = 0; i < EACH;) {
                ssize_t n = unet_send(
                        c, buf, 1 + i % sizeof buf < EACH - i ? 1 + i % sizeof buf : EACH - i, 0);
                CHECK(n > 0);
                i += (uint32_t)n;
        }
}

static void two_writers(struct side *s)
{
        int c = side_connect(s);
        pid_t pid = fork();

        CHECK(pid >= 0);
        writes(c, pid == 0 ? 'c' : 'p');
        if (pid == 0)
                _exit(0);
        CHECK(status_after(pid) == 0);
}

/* Both read until the end; what one does not get the other does. */
static void reads(int c)
{
        char buf[100];
        ssize_t n;

        while ((n = unet_recv(c, buf, sizeof buf, 0)) > 0)
                for (ssize_t i = 0; i < n; i++)
                        atomic_fetch_add(&sh->count[buf[i] == 'p' ? 0 : buf[i] == 'c' ? 1 : 2], 1);
        CHECK(n == 0);
}

static void two_readers(struct side *s)
{
        int c = side_accept(s);
        pid_t pid = fork();

        CHECK(pid >= 0);
        reads(c);
        if (pid == 0)
                _exit(0);
        CHECK(status_after(pid) == 0);
        CHECK(sh->count[0] == EACH && sh->count[1] == EACH && sh->count[2] == 0);
}

static void two_processes_share_a_socket(void **state)
{
        memset(sh->count, 0, sizeof sh->count);
        play(TWO_PROCESSES, two_writers, two_readers, 0);
}

/* One process copies, and takes its time: its buffer is not there, and the handler of the fault
 * waits. The other sleeps, and has its turn then. */
#define PART 30000u

static int fault_pipe[2];
static char *slow_page;

static void on_fault(int sig)
{
        char byte;

        sh->count[0] = 1;
        if (read(fault_pipe[0], &byte, 1) != 1 ||
            mprotect(slow_page, PART, PROT_READ | PROT_WRITE) != 0)
                _exit(1);
}

static void copies_slowly(int c)
{
        CHECK(signal(SIGSEGV, on_fault) != SIG_ERR);
        CHECK(unet_recv(c, slow_page, PART, 0) == PART);
        _exit(0);
}

static uint64_t cpu_ms(void)
{
        struct timespec ts;

        CHECK(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts) == 0);
        return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

static void waits_its_turn(int c)
{
        uint64_t before = cpu_ms();

        CHECK(unet_recv(c, data, CHUNK, 0) > 0);
        CHECK(cpu_ms() - before < 100);
        _exit(0);
}

static void reads_in_turn(struct side *s)
{
        int c = side_accept(s), there;
        pid_t pid[2];

        sh->count[0] = 0;
        slow_page = mmap(NULL, PART, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(slow_page != MAP_FAILED && pipe(fault_pipe) == 0);
        EVENTUALLY(unet_ioctl(c, FIONREAD, &there) == 0 && there == (int)(3 * CHUNK));
        pid[0] = fork();
        if (pid[0] == 0)
                copies_slowly(c);
        EVENTUALLY(sh->count[0] == 1);
        pid[1] = fork();
        if (pid[1] == 0)
                waits_its_turn(c);
        sleep_ms(1000);
        CHECK(write(fault_pipe[1], "", 1) == 1);
        for (int i = 0; i < 2; i++)
                CHECK(status_after(pid[i]) == 0);
        CHECK(unet_close(c) == 0);
}

static void sends_two_parts(struct side *s)
{
        int c = side_connect(s);

        for (uint32_t i = 0; i < 3; i++)
                CHECK(unet_send(c, data, CHUNK, 0) == CHUNK);
        CHECK(unet_recv(c, data, 1, 0) <= 0);
}

static void whoever_waits_for_another_reader_sleeps(void **state)
{
        play(TWO_PROCESSES, sends_two_parts, reads_in_turn, 0);
}

static void makes_it_nonblocking(struct side *s)
{
        int c = side_connect(s);
        pid_t pid = fork();
        char byte;

        CHECK(pid >= 0);
        if (pid == 0) {
                CHECK(unet_set_nonblock(c, 1) == 0);
                _exit(0);
        }
        CHECK(status_after(pid) == 0);
        CHECK(unet_get_nonblock(c) == 1);
        CHECK_ERR(unet_recv(c, &byte, 1, 0), EAGAIN);
        CHECK(unet_close(c) == 0);
}

static void waits_for_the_end(struct side *s)
{
        char byte;

        CHECK(unet_recv(side_accept(s), &byte, 1, 0) == 0);
}

static void nonblocking_is_the_sockets_not_the_processes(void **state)
{
        play(TWO_PROCESSES, makes_it_nonblocking, waits_for_the_end, 0);
}

/* ---- more processes than a stack has room for ---- */

#define CROWD 80
#define ROOM  62 /* slots that are left to it */

/* Slots that are free, but for ROOM of them: as if as many processes were forking, or were not
 * any more. */
static void occupy(bool taken)
{
        int err, left = ROOM;
        struct stack_state *st = ustack_mine(&err)->s.st;
        uint32_t from = taken ? 0 : STACK_FORKING, to = taken ? STACK_FORKING : 0;

        for (uint32_t i = 0; i < STACK_PROCS; i++) {
                if (i == SOCK_REF_FLIGHT || st->proc[i].pid != from || (taken && left-- > 0))
                        continue;
                st->proc[i].parent = STACK_PROCS;
                st->proc[i].pid = to;
        }
}

static void one_of_many(int c, int gate)
{
        char byte = 'x';
        ssize_t n;

        CHECK(read(gate, &byte, 1) == 0); /* all are there */
        n = unet_send(c, &byte, 1, 0);
        if (n == 1) {
                atomic_fetch_add(&sh->count[0], 1);
                return;
        }
        CHECK(errno == EPIPE);
        CHECK_ERR(unet_recv(c, &byte, 1, 0), ENOTCONN);
        atomic_fetch_add(&sh->count[1], 1);
        c = tcp_listen_any(); /* a stack of its own */
        CHECK(unet_close(tcp_connect_to(port_of(c))) == 0);
}

static void crowd(struct side *s)
{
        int c = side_connect(s), gate[2];
        pid_t pid[CROWD];

        CHECK(pipe(gate) == 0);
        occupy(true);
        for (int i = 0; i < CROWD; i++) {
                pid[i] = fork();
                CHECK(pid[i] >= 0);
                if (pid[i] == 0) {
                        close(gate[1]);
                        one_of_many(c, gate[0]);
                        exit(0);
                }
        }
        close(gate[1]);
        for (int i = 0; i < CROWD; i++)
                CHECK(status_after(pid[i]) == 0);
        occupy(false);
        tell(s, sh->count[0]);
        CHECK(unet_send(c, "end", 3, 0) == 3);
}

static void counts_crowd(struct side *s)
{
        int c = side_accept(s);
        uint64_t want = hear(s);
        char buf[CROWD + 3];

        CHECK(unet_recv(c, buf, want + 3, MSG_WAITALL) == (ssize_t)want + 3);
        CHECK(memcmp(buf + want, "end", 3) == 0);
        CHECK(unet_recv(c, buf, 1, 0) == 0);
}

static void more_processes_than_there_are_places(void **state)
{
        memset(sh->count, 0, sizeof sh->count);
        play(TWO_PROCESSES, crowd, counts_crowd, 0);
        assert_int_equal(sh->count[0], ROOM);
        assert_int_equal(sh->count[1], CROWD - ROOM);
}

/* ---- a parent that exits at once, a child that is killed at once ---- */

static void daemonizes(struct side *s)
{
        int c = side_connect(s);

        if (fork() != 0)
                _exit(0);
        sleep_ms(20);
        CHECK(unet_send(c, "daemon", 6, 0) == 6);
        if (s->arg)
                kill(getpid(), SIGKILL);
        _exit(0);
}

static void hears_daemon(struct side *s)
{
        int c = side_accept(s);
        char buf[7];

        CHECK(unet_recv(c, buf, 6, MSG_WAITALL) == 6);
        CHECK(unet_recv(c, buf, 1, 0) == 0);
}

static void a_daemon_keeps_its_connection(void **state)
{
        for (uint64_t i = 0; i < 20; i++)
                play(TWO_PROCESSES, daemonizes, hears_daemon, i % 2);
}

/* The child does not run for longer than anybody waits: its parent goes on, and ends. */
static bool late;

static void comes_late(void)
{
        if (late)
                sleep_ms(3500);
}

static void dies_before_its_child(struct side *s)
{
        int c;

        CHECK(pthread_atfork(NULL, NULL, comes_late) == 0); /* before the library's */
        c = side_connect(s);
        late = true;
        if (fork() != 0)
                _exit(0);
        CHECK(unet_send(c, "late", 4, 0) == 4);
        _exit(0);
}

static void hears_late(struct side *s)
{
        int c = side_accept(s);
        char buf[5];

        CHECK(unet_recv(c, buf, 4, MSG_WAITALL) == 4);
        CHECK(unet_recv(c, buf, 1, 0) == 0);
}

static void a_child_may_come_late(void **state)
{
        play(TWO_PROCESSES, dies_before_its_child, hears_late, 0);
}

/* ---- daemons that are away ---- */

static void forks_alone(struct side *s)
{
        int c = side_connect(s);
        pid_t pid;

        CHECK(kill((pid_t)s->arg, SIGSTOP) == 0);
        pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
                CHECK(unet_send(c, "child.", 6, 0) == 6);
                pause();
        }
        CHECK(unet_send(c, "parent", 6, 0) == 6);
        hear(s);
        CHECK(kill((pid_t)s->arg, SIGCONT) == 0);
        CHECK(kill(pid, SIGKILL) == 0 && status_after(pid) == 256 + SIGKILL);
}

static void hears_both(struct side *s)
{
        int c = side_accept(s);
        char buf[12];

        CHECK(unet_recv(c, buf, 12, MSG_WAITALL) == 12);
        tell(s, 0);
        CHECK(unet_recv(c, buf, 1, 0) == 0);
}

static void a_fork_while_unetd_is_away(void **state)
{
        play(TWO_PROCESSES, forks_alone, hears_both, (uint64_t)world_unetd());
}

/* The keeper dies: connections go on; another keeper takes over what processes still hold. */
static void keeper_dies_a(struct side *s)
{
        int c = side_connect(s), d;
        pid_t pid;

        for (int i = 0; i < 100; i++)
                echo_goes_round(c, 'k');
        CHECK(kill((pid_t)s->arg, SIGKILL) == 0);
        for (int i = 0; i < 100; i++)
                echo_goes_round(c, 'k');
        sleep_ms(100);
        echo_goes_round(c, 'k');
        d = side_connect(s);
        for (int i = 0; i < 100; i++)
                echo_goes_round(d, 'd');
        pid = fork();
        CHECK(pid >= 0);
        echo_goes_round(pid == 0 ? d : c, 'f');
        if (pid == 0)
                _exit(0);
        CHECK(status_after(pid) == 0);
        CHECK(unet_close(d) == 0);
        tell(s, 0);
        kill(getpid(), SIGKILL);
}

static void keeper_dies_b(struct side *s)
{
        int c = side_accept(s), d, l;
        pid_t pid = fork();

        if (pid == 0) {
                echo(c);
                _exit(0);
        }
        CHECK(unet_close(c) == 0);
        l = tcp_listen_any();
        tell(s, port_of(l));
        d = unet_accept(l, NULL, NULL);
        CHECK(d >= 0);
        echo(d);
        hear(s);
        CHECK(status_after(pid) == 0); /* it saw the end of the connection */
}

static void killed_side(struct side *s)
{
        pid_t pid = start(keeper_dies_a, s);

        CHECK(status_after(pid) == 256 + SIGKILL);
}

static void connections_outlive_the_keeper(void **state)
{
        pid_t keeper = world_keeper();

        assert_true(keeper > 0);
        play(TWO_PROCESSES, killed_side, keeper_dies_b, (uint64_t)keeper);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(exit_amid_calls_loses_nothing),
                cmocka_unit_test(a_stopped_process_does_not_hold_up_its_stack),
                cmocka_unit_test(a_stopped_peer_goes_on_later),
                cmocka_unit_test(two_processes_share_a_socket),
                cmocka_unit_test(whoever_waits_for_another_reader_sleeps),
                cmocka_unit_test(nonblocking_is_the_sockets_not_the_processes),
                cmocka_unit_test(more_processes_than_there_are_places),
                cmocka_unit_test(a_daemon_keeps_its_connection),
                cmocka_unit_test(a_child_may_come_late),
                cmocka_unit_test(a_fork_while_unetd_is_away),
                cmocka_unit_test(connections_outlive_the_keeper),
        };

        sh = mmap(NULL, sizeof *sh, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        return sh == MAP_FAILED ? 1 : run_sides(tests);
}
