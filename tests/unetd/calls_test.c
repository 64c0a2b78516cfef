/* Every call of unetd/client/client.h, against the real unetd and a keeper of fake stacks. */
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unetd/world.h"
#include "unet/bell_fd.h"
#include "unet/shm/shm_ring.h"
#include "unet/verbs/vlink.h"

static const ip_addr any = {{0, 0}};

static uint64_t inode(int fd)
{
        struct stat sb;

        assert_int_equal(fstat(fd, &sb), 0);
        return sb.st_ino;
}

/* ---- opening ---- */

static void open_without_starting_finds_nobody(void **state)
{
        struct unetd_client c = {.pid = 0};

        assert_int_equal(unetd_open(&c, UNETD_NO_START), -ECONNREFUSED);
}

static void open_starts_one_and_the_next_finds_it(void **state)
{
        struct unetd_client a, b;

        world_client(&a);
        world_client(&b);
        assert_true(a.instance == b.instance);
        assert_true(a.daemon.fd >= 900 || a.daemon.fd > 3);
        assert_int_equal(fcntl(a.daemon.fd, F_GETFD), FD_CLOEXEC);
        assert_int_equal(directory_is_local(a.dir, world_localhost()), 1);
        unetd_close(&a);
        unetd_close(&b);
}

static void a_bad_domain_is_refused(void **state)
{
        struct unetd_client c = {.pid = 0};

        setenv("UNET_DOMAIN", "no/slash", 1);
        assert_int_equal(unetd_open(&c, 0), -EINVAL);
}

/* ---- stacks ---- */

static void a_stack_is_registered_and_its_descriptors_come_back(void **state)
{
        struct unetd_client c;
        struct fake_stack st;
        struct unetd_stack_fds got;
        uint32_t id;

        world_client(&c);
        fake_stack_new(&c, &st);
        assert_int_equal(st.s->attached, 1);
        assert_int_equal(unetd_stack_get(&c, st.id, &got), 0);
        assert_true(inode(got.state) == inode(st.fds.state));
        assert_true(inode(got.bell) == inode(st.fds.bell));
        assert_true(inode(got.leader) == inode(st.fds.leader));
        assert_true(inode(got.ring_keeper) == inode(st.fds.ring_keeper));
        assert_int_equal(fcntl(got.ring_leader, F_GETFD), FD_CLOEXEC);
        unetd_stack_fds_close(&got);

        assert_int_equal(unetd_stack_get(&c, st.id + 1, &got), -ENOENT);
        st.s->cookie[1] = 0x1234567890;
        assert_int_equal(unetd_stack_by_cookie(&c, 0x1234567890, &id, &got), 0);
        assert_int_equal(id, st.id);
        unetd_stack_fds_close(&got);
        /* The keeper of an earlier unetd may bring it, as long as this one is young. */
        assert_int_equal(unetd_stack_by_cookie(&c, 99, &id, &got), -EAGAIN);
        eventually(unetd_stack_by_cookie(&c, 99, &id, &got) == -ENOENT);
        fake_stack_forget(&st);
        unetd_close(&c);
}

static void a_state_that_is_none_is_refused(void **state)
{
        struct unetd_client c;
        struct fake_stack st;

        world_client(&c);
        fake_stack_make(&st);
        st.s->magic = 0;
        assert_int_equal(unetd_stack_new(&c, &st.fds, 0, &st.id), -EINVAL);
        assert_int_equal(world_count(&c).n[UNETD_S_STACK], 0);
        fake_stack_forget(&st);
        unetd_close(&c);
}

/* Numbers that stand for interfaces and for stacks of other hosts are no stack's to choose: what is
 * sent to its peers would be taken for something else, and a part of it be forgotten. */
static void a_number_that_is_no_stacks_is_refused(void **state)
{
        static const uint32_t wrong[] = {UNETD_IFACE, UNETD_REMOTE, UNETD_REMOTE | 17, UINT32_MAX,
                                         UNETD_STACK_ID_MAX + 1};
        struct unetd_client c;
        struct fake_stack a, b;
        uint32_t chan, peer, id;
        int fds;

        world_client(&c);
        fake_stack_new(&c, &a);
        fds = world_fds(world_daemon_pid(&c));
        for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
                fake_stack_make(&b);
                id = wrong[i];
                assert_int_equal(unetd_stack_new(&c, &b.fds, 0, &id), -EINVAL);
                assert_int_equal(unetd_chan_open(&c, a.id, wrong[i], &chan, &peer), -ENOENT);
                fake_stack_forget(&b);
        }
        world_fds_back_to("unetd", world_daemon_pid(&c), fds);
        fake_stack_make(&b);
        id = a.id ^ UNETD_STACKS_OF_USER; /* another user's */
        assert_int_equal(unetd_stack_new(&c, &b.fds, 0, &id), -EINVAL);
        /* One that a keeper brought, or forgot. */
        id = unetd_stacks_of(geteuid()) + (a.id + 17) % UNETD_STACKS_OF_USER;
        assert_int_equal(unetd_stack_new(&c, &b.fds, 0, &id), 0);
        assert_int_equal(unetd_chan_open(&c, a.id, id, &chan, &peer), 0);
        fake_stack_forget(&a);
        fake_stack_forget(&b);
        unetd_close(&c);
}

static void wrong_descriptors_are_refused(void **state)
{
        struct unetd_client c;
        struct fake_stack st;
        struct unetd_stack_fds bad;
        int null = open("/dev/null", O_RDWR), dir = open("/", O_RDONLY),
            plain = memfd_create("plain", 0);
        int sock = socket(AF_INET, SOCK_STREAM, 0);
        uint32_t id = 0;

        world_client(&c);
        fake_stack_make(&st);
        assert_int_equal(ftruncate(plain, FAKE_BYTES), 0);
        int wrong[] = {null, dir, plain, sock, st.fds.leader};
        for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
                for (unsigned at = 0; at < 6; at++) {
                        int *field[] = {&bad.state,       &bad.bell,   &bad.leader,
                                        &bad.ring_leader, &bad.keeper, &bad.ring_keeper};
                        bad = st.fds;
                        if (*field[at] == wrong[i])
                                continue;
                        *field[at] = wrong[i];
                        assert_true(unetd_stack_new(&c, &bad, 0, &id) < 0);
                }
        }
        assert_int_equal(unetd_stack_new(&c, &st.fds, UNETD_SLOTS_MAX, &id), -EINVAL);
        assert_int_equal(unetd_stack_new(&c, &st.fds, 0, &id), 0);
        close(null), close(dir), close(plain), close(sock);
        fake_stack_forget(&st);
        unetd_close(&c);
}

/* ---- processes ---- */

static int owner_exits(void *arg)
{
        struct unetd_client c = {.pid = 0};
        struct fake_stack *st = arg;

        return unetd_open(&c, 0) == 0 && unetd_stack_new(&c, &st->fds, 3, &st->id) == 0 ? 0 : 1;
}

static void the_last_process_gone_the_stack_finishes_and_goes(void **state)
{
        struct unetd_client c;
        struct fake_stack st;

        world_client(&c);
        fake_stack_make(&st);
        st.s->unfinished = 20;
        assert_int_equal(world_child(owner_exits, &st), 0);
        eventually(st.s->died[0] == 1u << 3);
        eventually(st.s->unfinished == 0);
        eventually(world_count(&c).n[UNETD_S_STACK] == 0);
        assert_true(st.s->ticks >= 20);
        fake_stack_forget(&st);
        unetd_close(&c);
}

static int child_adds_itself(void *arg)
{
        struct unetd_client *c = ((void **)arg)[0]; /* the parent's, used right after fork */
        struct fake_stack *st = ((void **)arg)[1];
        int32_t parents = c->pid;

        if (unetd_proc_add(c, st->id, 1, 0) != 0 || c->pid == parents)
                return 1;
        return unetd_proc_add(c, st->id, 1, getpid()) == 0 ? 0 : 2; /* again: no error */
}

static void a_forked_child_uses_its_copy_at_once(void **state)
{
        struct unetd_client c;
        struct fake_stack st;
        void *arg[2] = {&c, &st};

        world_client(&c);
        fake_stack_new(&c, &st);
        assert_int_equal(world_child(child_adds_itself, arg), 0);
        eventually(st.s->died[0] == 1u << 1);
        /* the parent's connection still works, and its stack */
        assert_int_equal(world_count(&c).n[UNETD_S_STACK], 1);
        assert_int_equal(unetd_proc_add(&c, st.id, 0, 0), 0);
        fake_stack_forget(&st);
        unetd_close(&c);
}

static void the_parent_may_add_the_child(void **state)
{
        struct unetd_client c;
        struct fake_stack st;
        pid_t child = fork();

        if (child == 0) {
                pause();
                _exit(0);
        }
        world_client(&c);
        fake_stack_new(&c, &st);
        assert_int_equal(unetd_proc_add(&c, st.id, 7, child), 0);
        assert_int_equal(unetd_proc_add(&c, st.id, 7, 0), -EBUSY);
        assert_int_equal(unetd_proc_add(&c, st.id, 8, 0x3ffffff), -ESRCH);
        assert_int_equal(unetd_proc_del(&c, st.id, 0), 0);
        assert_int_equal(st.s->died[0], 1u << 0);
        assert_int_equal(unetd_proc_del(&c, st.id, 0), -ENOENT);
        assert_int_equal(world_count(&c).n[UNETD_S_STACK], 1);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        eventually(world_count(&c).n[UNETD_S_STACK] == 0);
        fake_stack_forget(&st);
        unetd_close(&c);
}

/* As for one in a pid namespace of its own, whose number there says nothing here. */
static void the_parent_may_add_the_child_by_a_descriptor(void **state)
{
        struct unetd_client c;
        struct fake_stack st;
        int32_t pid = 0;
        pid_t child = fork();
        int pidfd;

        if (child == 0) {
                pause();
                _exit(0);
        }
        pidfd = (int)syscall(SYS_pidfd_open, child, 0);
        assert_true(pidfd >= 0);
        world_client(&c);
        fake_stack_new(&c, &st);
        assert_int_equal(c.self, getpid());
        assert_int_equal(unetd_proc_add_fd(&c, st.id, 7, pidfd, &pid), 0);
        assert_int_equal(pid, child);
        assert_int_equal(unetd_proc_add_fd(&c, st.id, 8, STDIN_FILENO, &pid), -EBADMSG);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        eventually(st.s->died[0] == 1u << 7);
        assert_int_equal(unetd_proc_add_fd(&c, st.id, 8, pidfd, &pid), -ESRCH);
        close(pidfd);
        fake_stack_forget(&st);
        unetd_close(&c);
}

static void a_stack_whose_lock_is_held_is_asked_again(void **state)
{
        struct unetd_client c;
        struct fake_stack st;
        uint32_t chan, peer;

        world_client(&c);
        fake_stack_new(&c, &st);
        st.s->again = 5;
        assert_int_equal(unetd_chan_open(&c, st.id, st.id, &chan, &peer), 0);
        assert_int_equal(st.s->again, 0);
        st.s->again = 5;
        assert_int_equal(unetd_proc_del(&c, st.id, 0), 0);
        eventually(st.s->died[0] == 1);
        eventually(world_count(&c).n[UNETD_S_STACK] == 0);
        fake_stack_forget(&st);
        unetd_close(&c);
}

/* ---- channels ---- */

static void check_chan(struct unetd_client *c, uint32_t stack, uint32_t chan, uint32_t peer_stack,
                       uint32_t peer_chan, const struct fake_stack *peer)
{
        struct unetd_chan ch;
        void *p;

        assert_int_equal(unetd_chan_get(c, stack, chan, &ch), 0);
        assert_int_equal(ch.peer_stack, peer_stack);
        assert_int_equal(ch.peer_chan, peer_chan);
        assert_int_equal(ch.peer_uid, geteuid());
        p = mmap(NULL, SHM_REGION_BYTES(ch.tx_geom), PROT_READ | PROT_WRITE, MAP_SHARED, ch.tx, 0);
        assert_ptr_not_equal(p, MAP_FAILED);
        munmap(p, SHM_REGION_BYTES(ch.tx_geom));
        p = mmap(NULL, SHM_REGION_BYTES(ch.rx_geom), PROT_READ | PROT_WRITE, MAP_SHARED, ch.rx, 0);
        assert_ptr_equal(p, MAP_FAILED);
        assert_true(inode(ch.peer_bell) == inode(peer->fds.bell));
        assert_true(bell_is_ringer(ch.peer_leader, peer->fds.leader));
        assert_true(bell_is_ringer(ch.peer_keeper, peer->fds.keeper));
        assert_int_equal(write(ch.peer_leader, "x", 1), 1);
        unetd_chan_close(&ch);
}

static void a_channel_joins_two_stacks(void **state)
{
        struct unetd_client c;
        struct fake_stack a, b;
        struct unetd_chan ca, cb;
        uint32_t chan, peer, again, peer_again;

        world_client(&c);
        fake_stack_new(&c, &a);
        fake_stack_new(&c, &b);
        assert_int_equal(unetd_chan_open(&c, a.id, b.id, &chan, &peer), 0);
        assert_int_equal(a.s->chan_peer[chan], b.id);
        assert_int_equal(b.s->chan_peer[peer], a.id);
        assert_int_equal(unetd_chan_open(&c, b.id, a.id, &peer_again, &again), 0);
        assert_int_equal(again, chan);
        assert_int_equal(peer_again, peer);
        check_chan(&c, a.id, chan, b.id, peer, &b);
        check_chan(&c, b.id, peer, a.id, chan, &a);

        assert_int_equal(unetd_chan_get(&c, a.id, chan, &ca), 0);
        assert_int_equal(unetd_chan_get(&c, b.id, peer, &cb), 0);
        assert_true(inode(ca.tx) == inode(cb.rx) && inode(ca.rx) == inode(cb.tx));
        unetd_chan_close(&ca);
        unetd_chan_close(&cb);
        assert_int_equal(unetd_chan_get(&c, a.id, chan + 1, &ca), -ENOENT);
        assert_int_equal(unetd_chan_open(&c, a.id, b.id + 100, &chan, &peer), -ENOENT);
        assert_int_equal(world_count(&c).n[UNETD_S_CHAN], 1);
        fake_stack_forget(&a);
        fake_stack_forget(&b);
        unetd_close(&c);
}

static void a_stack_has_a_channel_to_itself(void **state)
{
        struct unetd_client c;
        struct fake_stack a;
        uint32_t chan, peer, again, peer_again;

        world_client(&c);
        fake_stack_new(&c, &a);
        assert_int_equal(unetd_chan_open(&c, a.id, a.id, &chan, &peer), 0);
        assert_int_not_equal(chan, peer);
        assert_int_equal(unetd_chan_open(&c, a.id, a.id, &again, &peer_again), 0);
        assert_int_equal(again, chan);
        assert_int_equal(peer_again, peer);
        check_chan(&c, a.id, chan, a.id, peer, &a);
        check_chan(&c, a.id, peer, a.id, chan, &a);
        fake_stack_forget(&a);
        unetd_close(&c);
}

static void a_peer_that_dies_takes_the_channel_down(void **state)
{
        struct unetd_client c;
        struct fake_stack a, b;
        uint32_t chan, peer, again;

        world_client(&c);
        fake_stack_new(&c, &a);
        fake_stack_new(&c, &b);
        assert_int_equal(unetd_chan_open(&c, a.id, b.id, &chan, &peer), 0);
        a.s->again = 3; /* the survivor's lock is held when it is told */
        assert_int_equal(unetd_proc_del(&c, b.id, 0), 0);
        eventually(a.s->chan_peer[chan] == 0);
        eventually(world_count(&c).n[UNETD_S_CHAN] == 0);
        fake_stack_forget(&b);
        fake_stack_new(&c, &b); /* the number is free again */
        assert_int_equal(unetd_chan_open(&c, a.id, b.id, &again, &peer), 0);
        assert_int_equal(again, chan);
        fake_stack_forget(&a);
        fake_stack_forget(&b);
        unetd_close(&c);
}

/* The side that asks is told when the other has agreed: it would send, and be reset. */
static void a_keeper_that_refuses_is_asked_before_the_one_that_asks(void **state)
{
        struct unetd_client c;
        struct fake_stack a, b;
        uint32_t chan, peer;

        world_client(&c);
        fake_stack_new(&c, &a);
        fake_stack_new(&c, &b);
        b.s->refuse_chan = ENOMEM;
        assert_int_equal(unetd_chan_open(&c, a.id, b.id, &chan, &peer), -ENOMEM);
        eventually(world_count(&c).n[UNETD_S_CHAN] == 0);
        assert_int_equal(a.s->chans_down, 0);
        b.s->refuse_chan = 0;
        a.s->refuse_chan = ENFILE;
        assert_int_equal(unetd_chan_open(&c, a.id, b.id, &chan, &peer), -ENFILE);
        eventually(b.s->chans_down == 1);
        eventually(world_count(&c).n[UNETD_S_CHAN] == 0);
        a.s->refuse_chan = 0;
        assert_int_equal(unetd_chan_open(&c, a.id, b.id, &chan, &peer), 0);
        fake_stack_forget(&a);
        fake_stack_forget(&b);
        unetd_close(&c);
}

static int opens_chan(void *arg)
{
        uint32_t *ids = arg, chan, peer;
        struct unetd_client c = {.pid = 0};

        if (unetd_open(&c, 0) != 0 || unetd_chan_open(&c, ids[0], ids[1], &chan, &peer) != 0)
                return 100;
        return (int)(chan * 8 + peer);
}

static void both_sides_may_open_at_once(void **state)
{
        struct unetd_client c;
        struct fake_stack a, b;
        pid_t pid[8];
        int status, first = -1;

        world_client(&c);
        fake_stack_new(&c, &a);
        fake_stack_new(&c, &b);
        for (int i = 0; i < 8; i++) {
                uint32_t ids[2] = {i % 2 ? a.id : b.id, i % 2 ? b.id : a.id};
                pid[i] = fork();
                if (pid[i] == 0)
                        _exit(opens_chan(ids));
        }
        for (int i = 0; i < 8; i++) {
                waitpid(pid[i], &status, 0);
                assert_true(WIFEXITED(status) && WEXITSTATUS(status) != 100);
                if (first < 0)
                        first = WEXITSTATUS(status);
                assert_int_equal(WEXITSTATUS(status), first); /* both numbers are 0 */
        }
        assert_int_equal(world_count(&c).n[UNETD_S_CHAN], 1);
        fake_stack_forget(&a);
        fake_stack_forget(&b);
        unetd_close(&c);
}

/* ---- ports ---- */

static void a_listener_is_in_the_directory_while_it_lasts(void **state)
{
        struct unetd_client c;
        struct fake_stack st;
        uint16_t port = 0;
        int fd = world_socket(IPPROTO_TCP, &port);

        world_client(&c);
        fake_stack_new(&c, &st);
        assert_int_equal(unetd_listen_add(&c, st.id, IPPROTO_TCP, world_localhost(), port, 0, fd),
                         0);
        assert_int_equal(world_lookup(&c, IPPROTO_TCP, world_localhost(), port), st.id);
        assert_int_equal(unetd_listen_add(&c, st.id, IPPROTO_TCP, world_localhost(), port, 0, fd),
                         -EADDRINUSE);
        assert_int_equal(unetd_listen_del(&c, st.id, IPPROTO_TCP, world_localhost(), port, 0), 0);
        assert_int_equal(unetd_listen_del(&c, st.id, IPPROTO_TCP, world_localhost(), port, 0),
                         -ENOENT);
        assert_int_equal(world_lookup(&c, IPPROTO_TCP, world_localhost(), port), 0);

        assert_int_equal(unetd_listen_add(&c, st.id, IPPROTO_TCP, world_localhost(), port, 0, fd),
                         0);
        st.s->gone_port = port;
        st.s->gone_listeners = 1;
        /* The stack closed it: the keeper says so. */
        assert_int_equal(write(st.fds.ring_keeper, "x", 1), 1);
        eventually(world_lookup(&c, IPPROTO_TCP, world_localhost(), port) == 0);

        assert_int_equal(unetd_listen_add(&c, st.id, IPPROTO_TCP, any, 4242, 0, -1), 0);
        assert_int_equal(world_lookup(&c, IPPROTO_TCP, world_localhost(), 4242), st.id);
        st.s->unfinished = 1000;
        assert_int_equal(unetd_proc_del(&c, st.id, 0), 0);
        eventually(world_lookup(&c, IPPROTO_TCP, world_localhost(), 4242) ==
                   0); /* an orphan listens no more */
        close(fd);
        fake_stack_forget(&st);
        unetd_close(&c);
}

/* SO_REUSEPORT: one may close before the others. */
static void each_listener_at_a_port_has_an_entry_of_its_own(void **state)
{
        struct unetd_client c;
        struct fake_stack st;
        struct world_count n;

        world_client(&c);
        fake_stack_new(&c, &st);
        for (uint64_t sock = 1; sock <= 3; sock++)
                assert_int_equal(
                        unetd_listen_add(&c, st.id, IPPROTO_TCP, world_localhost(), 4242, sock, -1),
                        0);
        assert_int_equal(unetd_listen_add(&c, st.id, IPPROTO_TCP, world_localhost(), 4242, 2, -1),
                         -EADDRINUSE);
        n = world_count(&c);
        assert_int_equal(n.n[UNETD_S_LISTENER], 3);
        assert_int_equal(unetd_listen_del(&c, st.id, IPPROTO_TCP, world_localhost(), 4242, 1), 0);
        assert_int_equal(unetd_listen_del(&c, st.id, IPPROTO_TCP, world_localhost(), 4242, 1),
                         -ENOENT);
        assert_int_equal(world_lookup(&c, IPPROTO_TCP, world_localhost(), 4242), st.id);
        assert_int_equal(unetd_listen_del(&c, st.id, IPPROTO_TCP, world_localhost(), 4242, 3), 0);
        assert_int_equal(unetd_listen_del(&c, st.id, IPPROTO_TCP, world_localhost(), 4242, 2), 0);
        assert_int_equal(world_lookup(&c, IPPROTO_TCP, world_localhost(), 4242), 0);
        fake_stack_forget(&st);
        unetd_close(&c);
}

static void the_kernel_socket_must_be_the_one_that_is_claimed(void **state)
{
        struct unetd_client c;
        struct fake_stack st;
        uint16_t tcp = 0, udp = 0;
        int t = world_socket(IPPROTO_TCP, &tcp), u = world_socket(IPPROTO_UDP, &udp),
            null = open("/dev/null", O_RDWR);
        int idle = socket(AF_INET, SOCK_STREAM, 0);

        world_client(&c);
        fake_stack_new(&c, &st);
        assert_int_equal(unetd_listen_add(&c, st.id, IPPROTO_TCP, world_localhost(),
                                          (uint16_t)(tcp + 1), 0, t),
                         -EINVAL);
        assert_int_equal(unetd_listen_add(&c, st.id, IPPROTO_TCP, any, tcp, 0, t), -EINVAL);
        assert_int_equal(unetd_listen_add(&c, st.id, IPPROTO_UDP, world_localhost(), tcp, 0, t),
                         -EINVAL);
        assert_int_equal(unetd_listen_add(&c, st.id, IPPROTO_TCP, world_localhost(), udp, 0, u),
                         -EINVAL);
        assert_int_equal(unetd_listen_add(&c, st.id, IPPROTO_TCP, world_localhost(), tcp, 0, null),
                         -EINVAL);
        assert_int_equal(unetd_listen_add(&c, st.id, IPPROTO_TCP, world_localhost(), tcp, 0, idle),
                         -EINVAL);
        assert_int_equal(unetd_listen_add(&c, st.id, 1, world_localhost(), tcp, 0, t), -EINVAL);
        assert_int_equal(unetd_listen_add(&c, st.id, IPPROTO_UDP, world_localhost(), udp, 0, u), 0);
        close(t), close(u), close(null), close(idle);
        fake_stack_forget(&st);
        unetd_close(&c);
}

static void a_held_port_is_nobody_elses(void **state)
{
        struct unetd_client c;
        struct fake_stack st;
        struct sockaddr_in sin = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
        uint16_t port = own_port(), same;

        world_client(&c);
        fake_stack_new(&c, &st);
        same = 0;
        assert_int_equal(unetd_port_hold(&c, st.id, IPPROTO_TCP, world_localhost(), &same), 0);
        assert_int_not_equal(same, 0); /* the kernel chose it */
        assert_int_equal(unetd_port_hold(&c, st.id, IPPROTO_TCP, world_localhost(), &port), 0);
        sin.sin_port = htons(port);
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        assert_int_equal(bind(fd, (struct sockaddr *)&sin, sizeof sin), -1);
        same = port;
        assert_int_equal(unetd_port_hold(&c, st.id, IPPROTO_TCP, world_localhost(), &same),
                         -EADDRINUSE);
        assert_int_equal(unetd_port_release(&c, st.id, IPPROTO_TCP, world_localhost(), port), 0);
        assert_int_equal(unetd_port_release(&c, st.id, IPPROTO_TCP, world_localhost(), port),
                         -ENOENT);
        assert_int_equal(bind(fd, (struct sockaddr *)&sin, sizeof sin), 0);
        same = 0;
        assert_int_equal(unetd_port_hold(&c, st.id, IPPROTO_UDP, any, &same), 0);
        assert_int_equal(unetd_port_hold(&c, st.id, IPPROTO_TCP, ip_addr_v4(0x08080808), &same),
                         -EADDRNOTAVAIL);
        close(fd);
        fake_stack_forget(&st);
        unetd_close(&c);
}

static void leases_are_unique_and_come_back(void **state)
{
        static bool used[65536];
        struct unetd_client c;
        struct fake_stack a, b;
        uint16_t first, count = 0;
        int blocks = 0, r;

        memset(used, 0, sizeof used);
        world_client(&c);
        fake_stack_new(&c, &a);
        fake_stack_new(&c, &b);
        for (;;) {
                first = count = 0;
                r = unetd_port_lease(&c, blocks % 2 ? a.id : b.id, &first, &count);
                if (r < 0)
                        break;
                blocks++;
                for (uint32_t p = first; p < (uint32_t)first + count; p++) {
                        assert_false(used[p]);
                        used[p] = true;
                }
        }
        assert_true(r == -EADDRNOTAVAIL || r == -EDQUOT);
        assert_true(blocks > 10);
        assert_int_equal(unetd_proc_del(&c, a.id, 0), 0);
        eventually(world_count(&c).n[UNETD_S_STACK] == 1);
        first = 0;
        assert_int_equal(unetd_port_lease(&c, b.id, &first, &count), 0);
        fake_stack_forget(&a);
        fake_stack_forget(&b);
        unetd_close(&c);
}

/* ---- addresses ---- */

static int set_lo_address(uint32_t host_order)
{
        struct ifreq ifr = {.ifr_name = "lo"};
        struct sockaddr_in sin = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(host_order)};
        int fd = socket(AF_INET, SOCK_DGRAM, 0), r;

        memcpy(&ifr.ifr_addr, &sin, sizeof sin);
        r = ioctl(fd, SIOCSIFADDR, &ifr);
        close(fd);
        return r;
}

static int watches_addresses(void *arg)
{
        ip_addr addr = ip_addr_v4(0x0a090909);
        struct unetd_client c = {.pid = 0};

        if (unshare(CLONE_NEWNET) < 0)
                return 77;
        if (unetd_open(&c, 0) != 0 || directory_is_local(c.dir, addr) != 0)
                return 1;
        if (set_lo_address(0x0a090909) < 0)
                return 2;
        for (int64_t until = world_now_ms() + PATIENCE_MS; directory_is_local(c.dir, addr) != 1;) {
                if (world_now_ms() > until)
                        return 3;
                world_sleep_ms(1);
        }
        kill(world_daemon_pid(&c), SIGTERM);
        return 0;
}

static void a_new_address_becomes_local(void **state)
{
        int r = world_child(watches_addresses, NULL);

        if (r == 77) {
                print_message("skipped: no network namespace for an ordinary user\n");
                skip();
        }
        assert_int_equal(r, 0);
}

static void a_program_that_closes_everything_loses_nothing(void **state)
{
        struct unetd_client c;
        struct fake_stack st;
        int mine;

        world_client(&c);
        fake_stack_new(&c, &st);
        close(c.daemon.fd);
        mine = dup2(STDERR_FILENO, c.daemon.fd); /* the number is the program's now */
        assert_int_equal(unetd_proc_add(&c, st.id, 0, 0), 0);
        assert_int_not_equal(c.daemon.fd, mine);
        assert_true(fcntl(mine, F_GETFD) >= 0);
        close(mine);
        fake_stack_forget(&st);
        unetd_close(&c);
}

/* ---- where there is an RDMA device ---- */

/* Returns the number of the first channel between two stacks, with these lines in unet.conf. */
static uint32_t first_number(const char *lines)
{
        char path[64];
        struct unetd_client c;
        struct fake_stack a, b;
        uint32_t chan, peer;
        FILE *f;

        snprintf(path, sizeof path, "/tmp/unet-calls-test-%d.conf", (int)getpid());
        f = fopen(path, "we");
        assert_non_null(f);
        fprintf(f, "[interface rxe0]\nprovider = verbs\naddress = 10.0.0.1/24\n%s", lines);
        assert_int_equal(fclose(f), 0);
        setenv("UNET_CONFIG", path, 1);
        world_client(&c);
        unsetenv("UNET_CONFIG");
        unlink(path);
        fake_stack_new(&c, &a);
        fake_stack_new(&c, &b);
        assert_int_equal(unetd_chan_open(&c, a.id, b.id, &chan, &peer), 0);
        assert_int_equal(chan, peer);
        fake_stack_forget(&a);
        fake_stack_forget(&b);
        unetd_close(&c);
        return chan;
}

/* Channels to other hosts have numbers below VLINK_CHANS. */
static void channels_of_this_host_leave_low_numbers_alone(void **state)
{
        assert_int_equal(first_number(""), VLINK_CHANS);
}

static void a_stack_of_few_channels_has_all_numbers(void **state)
{
        assert_int_equal(first_number("[limits]\nchannels_per_stack = 100\n"), 0);
}

#define t(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)

int main(void)
{
        const struct CMUnitTest tests[] = {
                t(open_without_starting_finds_nobody),
                t(open_starts_one_and_the_next_finds_it),
                t(a_bad_domain_is_refused),
                t(a_stack_is_registered_and_its_descriptors_come_back),
                t(a_state_that_is_none_is_refused),
                t(a_number_that_is_no_stacks_is_refused),
                t(wrong_descriptors_are_refused),
                t(the_last_process_gone_the_stack_finishes_and_goes),
                t(a_forked_child_uses_its_copy_at_once),
                t(the_parent_may_add_the_child),
                t(the_parent_may_add_the_child_by_a_descriptor),
                t(a_stack_whose_lock_is_held_is_asked_again),
                t(a_channel_joins_two_stacks),
                t(a_stack_has_a_channel_to_itself),
                t(a_peer_that_dies_takes_the_channel_down),
                t(a_keeper_that_refuses_is_asked_before_the_one_that_asks),
                t(both_sides_may_open_at_once),
                t(a_listener_is_in_the_directory_while_it_lasts),
                t(each_listener_at_a_port_has_an_entry_of_its_own),
                t(the_kernel_socket_must_be_the_one_that_is_claimed),
                t(a_held_port_is_nobody_elses),
                t(leases_are_unique_and_come_back),
                t(a_new_address_becomes_local),
                t(a_program_that_closes_everything_loses_nothing),
                t(channels_of_this_host_leave_low_numbers_alone),
                t(a_stack_of_few_channels_has_all_numbers),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
