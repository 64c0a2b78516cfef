/*
 * A process sends, leaves its stack's lock, and dies before it has rung the peer that sleeps
 * (struct shm_late): it is killed at that system call. The peer is rung all the same. And a ringer,
 * as those have who may not ring by name, keeps its number while a thread may be ringing by it.
 * Whom a process cannot ring the keeper rings.
 */
#include "tests/sock/sides.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sock/attach/ustack.h"
#include "sock/attach/ustack_chan.h"
#include "sock/usock_process.h"
#include "unet/bell_fd.h"

static struct ustack *mine(void)
{
        int err;
        struct ustack *u = ustack_mine(&err);

        CHECK(u != NULL);
        return u;
}

/* A channel to a stack; -1: there is none any more. Under the lock. */
static int channel(const struct ustack *u)
{
        for (uint32_t k = 0; k < u->s.nchan; k++)
                if (u->s.chan[k].ops != NULL && u->chan[k].leader_fd > 0)
                        return (int)k;
        return -1;
}

/* What becomes of this process when it is about to send from `fd`. */
static void filter_sendto(int fd, uint32_t action)
{
        struct sock_filter code[] = {
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sendto, 0, 3),
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)fd, 0, 1),
                BPF_STMT(BPF_RET | BPF_K, action),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        const struct sock_fprog prog = {ARRAY_LEN(code), code};

        CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
        CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog, 0, 0) == 0);
}

static void dies_at_the_ring(int sock)
{
        struct ustack *u = mine();

        ustack_lock(u);
        CHECK(bell_is_named(u->chan[channel(u)].leader_fd));
        ustack_leave(u);
        filter_sendto(bell_caller, SECCOMP_RET_KILL_PROCESS);
        unet_send(sock, "!", 1, 0);
        _exit(1);
}

/* Its parent is of the same stack, keeps the connection, and does nothing: only the keeper can
 * ring. */
static void sends_by_a_child(struct side *s)
{
        int sock = side_connect(s), status;
        uint64_t recoveries = mine()->s.st->cnt.n[COUNT_STACK_RECOVERIES];
        pid_t pid;

        tell(s, 0);
        hear(s);
        pid = fork();
        CHECK(pid >= 0);
        if (pid == 0)
                dies_at_the_ring(sock);
        CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS);
        hear(s);
        CHECK(mine()->s.st->cnt.n[COUNT_STACK_RECOVERIES] ==
              recoveries); /* the lock had been left */
        CHECK(unet_close(sock) == 0);
}

/* Sleeps as a leader does, and is woken by its bell alone. */
static void sleeps_until_rung(struct side *s)
{
        struct ustack *u = mine();
        struct pollfd bell = {.fd = u->fds.leader, .events = POLLIN};

        ustack_lock(u);
        CHECK(u->s.st->leader == 0);
        WRITE_ONCE(u->s.st->leader, 1);
        bell_drain(u->fds.leader);
        stack_arm(&u->s);
        bell_arm_count(u->s.bell, BELL_ASLEEP, ++u->s.st->sleeps);
        ustack_unlock(u);
        tell(s, 0);
        CHECK(poll(&bell, 1, PATIENCE_MS) == 1);
        ustack_lock(u);
        WRITE_ONCE(u->s.st->leader, 0);
        ustack_leave(u);
}

static void is_rung(struct side *s)
{
        int sock = side_accept(s);
        char byte;

        hear(s); /* nothing is on its way that would ring, too */
        sleeps_until_rung(s);
        CHECK(unet_recv(sock, &byte, 1, 0) == 1 && byte == '!');
        tell(s, 0);
        CHECK(unet_recv(sock, &byte, 1, 0) == 0);
        CHECK(unet_close(sock) == 0);
}

static void the_peer_of_who_died_before_the_ring_is_rung(void **state)
{
        play(TWO_PROCESSES, sends_by_a_child, is_rung, 0);
}

/* ---- the peer's name is out of reach ---- */

static void sends_unheard(struct side *s)
{
        int sock = side_connect(s);

        tell(s, 0);
        hear(s);
        filter_sendto(bell_caller, SECCOMP_RET_ERRNO | EPERM); /* as Landlock says */
        CHECK(unet_send(sock, "!", 1, 0) == 1);
        hear(s);
        CHECK(unet_close(sock) == 0);
}

static void the_keeper_rings_whom_a_process_cannot(void **state)
{
        play(TWO_PROCESSES, sends_unheard, is_rung, 0);
}

/* ---- a peer whose bell is connected elsewhere: who rings it is refused ---- */

static void accepts_until_killed(int port_to)
{
        int l = tcp_listen_any();
        uint16_t port = port_of(l);

        CHECK(write(port_to, &port, sizeof port) == sizeof port);
        CHECK(unet_accept(l, NULL, NULL) >= 0);
        for (;;)
                pause();
}

/* A peer to be killed, and a connection to it. */
static pid_t peer_make(int *sock)
{
        uint16_t port;
        int pipe_to[2];
        pid_t pid;

        CHECK(pipe(pipe_to) == 0);
        pid = fork();
        CHECK(pid >= 0);
        if (pid == 0)
                accepts_until_killed(pipe_to[1]);
        CHECK(read(pipe_to[0], &port, sizeof port) == sizeof port);
        *sock = tcp_connect_to(port);
        return pid;
}

#define LAST_RUNG 0xfffffffcu /* no bell says so */

/* Channels that are taken for rung up to now. Under the lock. */
static uint32_t mark_rung(struct ustack *u)
{
        uint32_t n = 0;

        for (uint32_t k = 0; k < u->s.nchan; k++)
                if (u->s.chan[k].ops != NULL) {
                        u->s.st->chan[k].shm.rung = LAST_RUNG;
                        n++;
                }
        return n;
}

static uint32_t marked(struct ustack *u)
{
        uint32_t n = 0;

        ustack_lock(u);
        for (uint32_t k = 0; k < u->s.nchan; k++)
                n += u->s.st->chan[k].shm.rung == LAST_RUNG;
        ustack_leave(u);
        return n;
}

static bool keeper_was_asked(struct ustack *u)
{
        bool asked;

        ustack_lock(u);
        asked = (u->s.st->wake_asked & ASKED_BELLS) == 0;
        ustack_leave(u);
        return asked;
}

static void sends_to_who_refuses(struct side *s)
{
        int other, sock;
        pid_t peer = peer_make(&other); /* before this process has a stack for it to share */
        struct ustack *u = mine();
        uint32_t n;

        sock = side_connect(s);
        tell(s, 0);
        hear(s);
        ustack_lock(u);
        n = mark_rung(u);
        ustack_leave(u);
        CHECK(n == 2);
        CHECK(unet_send(sock, "!", 1, 0) == 1);
        tell(s, 0);
        EVENTUALLY(keeper_was_asked(u));
        CHECK(marked(u) == n - 1); /* the other peer is rung for nothing */
        CHECK(!u->keeps_ringers);
        hear(s);
        CHECK(kill(peer, SIGKILL) == 0 && waitpid(peer, NULL, 0) == peer);
        CHECK(unet_close(sock) == 0 && unet_close(other) == 0);
}

/* Its bell says that it sleeps, and what is sent to it is not looked at. */
static void refuses(struct side *s)
{
        int sock = side_accept(s);
        struct ustack *u = mine();
        struct sockaddr_un un;
        socklen_t len = sizeof un;
        int elsewhere = bell_make();

        hear(s);
        CHECK(getsockname(elsewhere, (struct sockaddr *)&un, &len) == 0);
        CHECK(connect(u->fds.leader, (struct sockaddr *)&un, len) == 0);
        CHECK(connect(u->fds.keeper, (struct sockaddr *)&un, len) == 0);
        ustack_lock(u);
        WRITE_ONCE(u->s.st->leader, 1);
        stack_arm(&u->s);
        bell_arm_count(u->s.bell, BELL_ASLEEP, ++u->s.st->sleeps);
        ustack_unlock(u);
        tell(s, 0);
        hear(s);
        ustack_lock(u);
        WRITE_ONCE(u->s.st->leader, 0);
        ustack_leave(u);
        tell(s, 0);
        CHECK(unet_recv(sock, &(char){0}, 1, 0) == 1);
        CHECK(unet_close(sock) == 0);
        close(elsewhere);
}

static void who_refuses_rings_costs_no_other_channel_anything(void **state)
{
        play(TWO_PROCESSES, sends_to_who_refuses, refuses, 0);
}

/* ---- a channel ends while a thread has left the lock and is about to ring ---- */

static bool channel_is_over(struct ustack *u)
{
        bool over;

        ustack_lock(u);
        over = channel(u) < 0;
        ustack_leave(u);
        return over;
}

static void ends_a_channel_between(struct side *s)
{
        int sock, leader, keeper;
        pid_t peer = peer_make(&sock);
        struct ustack *u = mine();
        _Atomic uint32_t *waking = &u->s.st->proc[u->slot].waking;

        ustack_lock(u);
        ustack_ringers_make(u);
        leader = u->chan_fds[channel(u)].peer_leader;
        keeper = u->chan_fds[channel(u)].peer_keeper;
        atomic_fetch_add(waking, 1); /* another thread is about to ring */
        ustack_leave(u);
        CHECK(kill(peer, SIGKILL) == 0 && waitpid(peer, NULL, 0) == peer);
        CHECK(unet_recv(sock, &(char){0}, 1, 0) <= 0);
        CHECK(unet_close(sock) == 0);
        EVENTUALLY(channel_is_over(u));
        CHECK(bell_is_sock(leader) && bell_is_sock(keeper));
        CHECK(usock_owns_fd(leader) && usock_owns_fd(keeper));
        ustack_lock(u);
        ustack_ringers_close(u);
        CHECK(bell_is_sock(leader) && bell_is_sock(keeper));
        atomic_fetch_sub(waking, 1);
        ustack_ringers_close(u);
        ustack_leave(u);
        CHECK(fcntl(leader, F_GETFD) < 0 && fcntl(keeper, F_GETFD) < 0);
}

static void a_ringer_keeps_its_number_while_it_may_be_rung_by(void **state)
{
        assert_int_equal(play_alone(ends_a_channel_between, 0), 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(the_peer_of_who_died_before_the_ring_is_rung),
                cmocka_unit_test(the_keeper_rings_whom_a_process_cannot),
                cmocka_unit_test(who_refuses_rings_costs_no_other_channel_anything),
                cmocka_unit_test(a_ringer_keeps_its_number_while_it_may_be_rung_by),
        };

        return run_sides(tests);
}
