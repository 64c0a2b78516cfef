/*
 * AF_XDP sockets that are passed, and what is passed in their place (XDP_MODE_TCX): makers and
 * users that are killed, processes that share one, what is passed and is none of ours, and one in
 * the place of another.
 */
#include <errno.h>
#include <net/if.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/netns/xdp_pair.h"
#include "base/memfd.h"
#include "unet/xdp/tcx_link.h"

static enum xdp_want want; /* of this round */

/* ---- who lives and who dies ---- */

static void send_fds(int sock, const int *fds, int n)
{
        union {
                struct cmsghdr align;
                char bytes[CMSG_SPACE(8 * sizeof(int))];
        } ctl = {0};
        struct iovec iov = {"x", 1};
        struct msghdr m = {.msg_iov = &iov,
                           .msg_iovlen = 1,
                           .msg_control = &ctl,
                           .msg_controllen = CMSG_SPACE((size_t)n * sizeof(int))};
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);

        *c = (struct cmsghdr){.cmsg_len = CMSG_LEN((size_t)n * sizeof(int)),
                              .cmsg_level = SOL_SOCKET,
                              .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(c), fds, (size_t)n * sizeof(int));
        if (sendmsg(sock, &m, 0) != 1)
                _exit(1);
}

static void get_fds(int sock, int *fds, int n)
{
        union {
                struct cmsghdr align;
                char bytes[CMSG_SPACE(8 * sizeof(int))];
        } ctl;
        char byte;
        struct iovec iov = {&byte, 1};
        struct msghdr m = {.msg_iov = &iov,
                           .msg_iovlen = 1,
                           .msg_control = &ctl,
                           .msg_controllen = sizeof ctl};

        assert_int_equal(recvmsg(sock, &m, MSG_CMSG_CLOEXEC), 1);
        assert_int_equal(CMSG_FIRSTHDR(&m)->cmsg_len, CMSG_LEN((size_t)n * sizeof(int)));
        memcpy(fds, CMSG_DATA(CMSG_FIRSTHDR(&m)), (size_t)n * sizeof(int));
}

/* A maker in a process of its own: passes socket and memory, and perhaps the link, keeps the rest,
 * and waits to be killed. */
static pid_t maker(int ns, const char *ifname, int sock, bool pass_link)
{
        pid_t pid = fork();

        assert_true(pid >= 0);
        if (pid == 0) {
                char line[XDP_LINE_MAX];
                struct xdp_dev dev;
                struct xdp_sock s;

                bed_enter(ns);
                if (xdp_dev_open(&dev, ifname, want, line) != 0 ||
                    xdp_sock_open(&s, &dev, 0, few, line) != 0)
                        _exit(1);
                send_fds(sock,
                         (int[]){s.xsk, s.mem, s.packet.sock, s.ring >= 0 ? s.ring : s.mem,
                                 s.ring >= 0 ? s.sender : s.mem, s.ring >= 0 ? s.link : dev.link},
                         pass_link ? 6 : 5);
                pause();
                _exit(0);
        }
        return pid;
}

static void kill_and_reap(pid_t pid)
{
        int status;

        assert_int_equal(kill(pid, SIGKILL), 0);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status));
}

static struct pair pair_of_maker(bool pass_link, pid_t *pid, int *link)
{
        struct pair p;
        int sv[2], fds[6] = {-1, -1, -1, -1, -1, -1};
        char line[XDP_LINE_MAX];
        struct xdp_dev dev;

        bed_needs_root();
        p.ns[0] = bed_ns();
        p.ns[1] = bed_ns();
        bed_veth(p.ns[0], "ours", p.ns[1], "theirs", 1500, 1);
        bed_enter(p.ns[0]);
        skip_unless_possible(xdp_dev_open(&dev, "ours", want, line), line);
        xdp_dev_close(&dev);
        p.beside = bed_packet_socket(p.ns[0], "ours");
        p.peer = bed_packet_socket(p.ns[1], "theirs");
        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv), 0);
        *pid = maker(p.ns[0], "ours", sv[1], pass_link);
        get_fds(sv[0], fds, pass_link ? 6 : 5);
        close(sv[0]);
        close(sv[1]);
        p.e = calloc(1, sizeof *p.e);
        p.e->sock.xsk = fds[0];
        p.e->sock.mem = fds[1];
        p.e->sock.packet = (struct pkt_sealed){fds[2], -1};
        p.e->sock.ring = want == XDP_WANT_TCX ? fds[3] : (close(fds[3]), -1);
        p.e->sock.sender = want == XDP_WANT_TCX ? fds[4] : (close(fds[4]), -1);
        p.e->sock.link = p.e->sock.drops = -1;
        p.e->dev.link = p.e->dev.map = p.e->dev.shed = -1;
        *link = fds[5];
        end_attach(p.e);
        return p;
}

/* The kernel says so. */
static bool has_program(const struct pair *p)
{
        bed_enter(p->ns[0]);
        if (want == XDP_WANT_TCX)
                return tcx_has("to_ring", if_nametoindex("ours"));
        return system("ip -d link show ours | grep -q prog/xdp") == 0;
}

/* A packet socket sees what comes before a program behind the driver does; and this packet last. */
static void kernel_gets_at_last(const struct pair *p, uint32_t number, uint32_t len)
{
        uint8_t bytes[FRAME_MAX];
        ssize_t n = 0;

        for (int i = 0; n != (ssize_t)len && i < 1000; i++) {
                assert_true(kernel_has_some(p->beside, PATIENCE));
                n = recv(p->beside, bytes, sizeof bytes, MSG_DONTWAIT);
        }
        check_packet(bytes, (uint32_t)n, number, len);
}

/* The program goes with the one process that holds its link, however that ends, and the interface
 * is as before. */
static void a_killed_holder_leaves_the_interface_as_it_was(void **state)
{
        pid_t pid;
        int link;
        struct pair p = pair_of_maker(false, &pid, &link);
        struct unet_rx rx;

        assert_true(has_program(&p));
        kernel_sends(p.peer, 1, 400);
        expect(p.e, 1, 400);
        assert_true(want == XDP_WANT_TCX || !kernel_has_some(p.beside, 20));
        kill_and_reap(pid);
        assert_false(has_program(&p));
        kernel_sends(p.peer, 2, 401);
        kernel_gets_at_last(&p, 2, 401);
        assert_false(take(p.e, &rx));
        pair_end(&p);
}

/* With the link passed on, too, the maker is needed no more: memory, socket and program stay. */
static void a_killed_maker_is_not_missed(void **state)
{
        pid_t pid;
        int link;
        struct pair p = pair_of_maker(true, &pid, &link);

        kill_and_reap(pid);
        for (uint32_t i = 0; i < 500; i++) {
                kernel_sends(p.peer, i, 100 + i);
                expect(p.e, i, 100 + i);
                assert_true(offer(p.e, i, 1514 - i));
                flush(p.e);
                kernel_gets(p.peer, i, 1514 - i);
        }
        close(link);
        kernel_sends(p.peer, 9, 1000);
        kernel_gets_at_last(&p, 9, 1000);
        pair_end(&p);
}

/* A second process maps the same socket, and goes on where the first one is. */
static void two_processes_share_a_socket(void **state)
{
        struct pair p = pair_make(want, 1500, few);
        int status;
        pid_t pid;

        for (uint32_t i = 0; i < 50; i++) {
                kernel_sends(p.peer, i, 1000);
                expect(p.e, i, 1000);
                assert_true(offer(p.e, i, 800));
                flush(p.e);
                kernel_gets(p.peer, i, 800);
        }
        pid = fork();
        if (pid == 0) {
                ni_xdp_detach(&p.e->ni);
                end_attach(p.e);
                for (uint32_t i = 0; i < 100; i++) {
                        kernel_sends(p.peer, i, 1000);
                        expect(p.e, i, 1000);
                        assert_true(offer(p.e, i, 800));
                        flush(p.e);
                        kernel_gets(p.peer, i, 800);
                }
                _exit(0);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        for (uint32_t i = 0; i < 100; i++) {
                kernel_sends(p.peer, i, 1001);
                expect(p.e, i, 1001);
                assert_true(offer(p.e, i, 801));
                flush(p.e);
                kernel_gets(p.peer, i, 801);
        }
        pair_end(&p);
}

/* ---- killed at work ---- */

/* A process of a stack at work: takes, keeps a while, gives back, sends. Until it is killed. */
static void works(struct pair *p)
{
        struct unet_rx rx[16];
        uint32_t kept[48], n = 0, number = 0;

        ni_xdp_detach(&p->e->ni);
        end_attach(p->e);
        for (;;) {
                int got = p->e->ni.base.ops->recv(&p->e->ni.base, rx, 16);
                for (int i = 0; i < got; i++)
                        if (rx[i].frame != 0)
                                kept[n++] = rx[i].frame;
                for (int i = 0; i < 3; i++, number++)
                        offer(p->e, number, 60 + number % 1000);
                if (n > 24) {
                        p->e->ni.base.ops->release(&p->e->ni.base, kept, (int)n);
                        n = 0;
                }
                flush(p->e);
        }
}

static bool none_held(void *arg, uint32_t frame)
{
        return false;
}

/* Everything on its way ends: at the peer, in RX. */
static void drain(struct pair *p)
{
        struct unet_rx rx;
        uint8_t byte;

        do {
                flush(p->e);
                while (recv(p->peer, &byte, 1, MSG_DONTWAIT) >= 0)
                        ;
                while (take(p->e, &rx))
                        give_back(p->e, &rx);
                flush(p->e);
        } while (p->e->ni.base.ops->room(&p->e->ni.base) < few.tx_chunks);
}

/* With the kernel's own rings: no chunk is lost or doubled, and packets pass in each of them. */
static void a_killed_process_leaves_rings_that_can_be_repaired(void **state)
{
        struct pair p = pair_make(want, 1500, few);
        uint8_t packet[1000], seen[64];

        make_packet(packet, 0, sizeof packet);
        for (uint32_t round = 0; round < 100; round++) {
                pid_t pid = fork();
                if (pid == 0)
                        works(&p);
                for (uint32_t i = 0; i < 500 + round * 7; i++)
                        send(p.peer, packet, i % 4 ? sizeof packet : 100, MSG_DONTWAIT);
                kill_and_reap(pid);
                p.e->ni.base.ops->repair(&p.e->ni.base);
                ni_xdp_reclaim(&p.e->ni, none_held, NULL);
                assert_int_equal(ni_xdp_loans(&p.e->ni), 0);
                drain(&p);
                memset(seen, 0, sizeof seen);
                for (uint32_t i = 0; i < few.rx_chunks; i++) {
                        struct unet_rx rx;
                        uint8_t bytes[FRAME_MAX];
                        kernel_sends(p.peer, i, 800);
                        await(p.e, &rx);
                        check_packet(bytes, whole(p.e, &rx, bytes), i, 800);
                        assert_int_equal(seen[rx.frame - 1 - p.e->ni.geom.rx_large]++, 0);
                }
                for (uint32_t i = 1; i <= few.rx_chunks; i++) {
                        uint32_t frame = p.e->ni.geom.rx_large + i;
                        p.e->ni.base.ops->release(&p.e->ni.base, &frame, 1);
                }
                for (uint32_t i = 0; i < few.tx_chunks; i++)
                        assert_true(offer(p.e, i, 900));
                flush(p.e);
                for (uint32_t i = 0; i < few.tx_chunks; i++)
                        kernel_gets(p.peer, i, 900);
        }
        pair_end(&p);
}

/* ---- what is passed is not trusted ---- */

static int try_attach(int xsk, int mem)
{
        static struct counters cnt;
        struct ni_xdp x;
        int err = ni_xdp_attach(&x, (struct ni_xdp_fds){xsk, mem, -1, -1, -1},
                                unet_mem_frames(NULL, (struct frame_geom){{0}}), &cnt);

        if (err == 0)
                ni_xdp_detach(&x);
        return err;
}

static void garbage_is_not_attached(void **state)
{
        struct pair p = pair_make(XDP_WANT_NATIVE, 1500, few);
        struct ni_xdp_shared *sh = p.e->ni.sh;
        const struct xdp_geom good = sh->geom;
        static const uint32_t bad[] = {0, 1, 3, 63, 65, 1u << 15, 1u << 31, UINT32_MAX};
        uint32_t refused = 0;
        int other, pipes[2];

        assert_int_equal(try_attach(p.e->sock.xsk, p.e->sock.mem), 0);
        for (size_t word = 2; word < 8; word++) /* mtu .. rx_ring */
                for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
                        ((uint32_t *)&sh->geom)[word] = bad[i];
                        refused += try_attach(p.e->sock.xsk, p.e->sock.mem) != 0;
                        sh->geom = good;
                }
        assert_int_equal(refused, 6 * ARRAY_LEN(bad));
        sh->magic++;
        assert_int_equal(try_attach(p.e->sock.xsk, p.e->sock.mem), -EPROTO);
        sh->magic--;
        assert_int_equal(try_attach(p.peer, p.e->sock.mem), -EPROTO);
        assert_int_equal(try_attach(p.e->sock.mem, p.e->sock.mem), -EPROTO);
        assert_int_equal(try_attach(-1, p.e->sock.mem), -EPROTO);
        assert_int_equal(try_attach(p.e->sock.xsk, p.e->sock.xsk), -EPROTO);
        assert_int_equal(pipe(pipes), 0);
        assert_int_equal(try_attach(p.e->sock.xsk, pipes[0]), -EPROTO);
        other = memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        assert_int_equal(ftruncate(other, (off_t)xdp_mem_bytes(&good)), 0);
        assert_int_equal(try_attach(p.e->sock.xsk, other), -EPERM);
        close(other);
        other = unet_memfd_make("empty", xdp_mem_bytes(&good));
        assert_int_equal(try_attach(p.e->sock.xsk, other), -EPROTO);
        close(other);
        close(pipes[0]);
        close(pipes[1]);
        assert_int_equal(try_attach(p.e->sock.xsk, p.e->sock.mem), 0);
        pair_end(&p);
}

static int try_attach_tcx(const struct end *e, int bell, int packet, int ring, int sender)
{
        static struct counters cnt;
        struct ni_xdp x;
        int err = ni_xdp_attach(&x, (struct ni_xdp_fds){bell, e->sock.mem, packet, ring, sender},
                                unet_mem_frames(NULL, (struct frame_geom){{0}}), &cnt);

        if (err == 0)
                ni_xdp_detach(&x);
        return err;
}

static void garbage_is_not_attached_tcx(void **state)
{
        struct pair p = pair_make(XDP_WANT_TCX, 1500, few);
        const struct xdp_sock *s = &p.e->sock;
        struct xdp_geom *g = &p.e->ni.sh->geom, good = *g;
        static const uint32_t bad[] = {1, 3, 63, 65, 1u << 15, 1u << 31, UINT32_MAX};
        uint32_t refused = 0, tried = 0;

        assert_int_equal(try_attach_tcx(p.e, s->xsk, s->packet.sock, s->ring, s->sender), 0);
        for (size_t word = 3; word < 9; word++) /* chunk_bytes .. rx_large */
                for (size_t i = 0; i < ARRAY_LEN(bad); i++, tried++) {
                        ((uint32_t *)g)[word] = bad[i];
                        refused += try_attach_tcx(p.e, s->xsk, s->packet.sock, s->ring,
                                                  s->sender) != 0;
                        *g = good;
                }
        print_message("%u of %u refused\n", refused, tried);
        /* One or three large chunks, where there are more, harm nobody. */
        assert_int_equal(refused, tried - 2);
        assert_int_equal(try_attach_tcx(p.e, s->xsk, -1, s->ring, s->sender), 0); /* without runs */
        assert_int_equal(try_attach_tcx(p.e, s->xsk, s->packet.sock, s->ring, -1), -EPROTO);
        assert_int_equal(try_attach_tcx(p.e, s->xsk, s->packet.sock, s->ring, s->packet.sock),
                         -EPROTO);
        assert_int_equal(try_attach_tcx(p.e, s->xsk, s->packet.sock, s->ring, s->mem), -EPROTO);
        assert_int_equal(try_attach_tcx(p.e, s->xsk, p.peer, s->ring, s->sender), -EPROTO);
        assert_int_equal(try_attach_tcx(p.e, s->xsk, s->packet.sock, -1, s->sender), -EPROTO);
        assert_int_equal(try_attach_tcx(p.e, s->xsk, s->packet.sock, s->mem, s->sender), -EPROTO);
        assert_int_equal(try_attach_tcx(p.e, s->mem, s->packet.sock, s->ring, s->sender), -EPROTO);
        /* A map, and no bell. */
        assert_true(try_attach_tcx(p.e, s->drops, s->packet.sock, s->ring, s->sender) != 0);
        /* ... and no ring. */
        assert_true(try_attach_tcx(p.e, s->xsk, s->packet.sock, s->drops, s->sender) != 0);
        assert_true(try_attach_tcx(p.e, s->xsk, s->packet.sock, s->xsk, s->sender) != 0);
        assert_int_equal(try_attach_tcx(p.e, s->xsk, s->packet.sock, s->ring, s->sender), 0);
        pair_end(&p);
}

/* A stack that writes rubbish where the program reads loses its own packets; the kernel goes on,
 * and so does whoever comes next. */
static void rubbish_for_the_program_harms_nobody_else(void **state)
{
        struct pair p = pair_make(XDP_WANT_TCX, 1500, few);
        uint32_t *words = (uint32_t *)p.e->ni.words, x = 12345;
        size_t n = (ni_xdp_ring_bytes(&p.e->ni.geom) - xdp_rx_bytes(&p.e->ni.geom)) / sizeof *words;

        for (uint32_t round = 0; round < 300; round++) {
                for (size_t i = 0; i < n; i++) {
                        x = x * 1664525 + 1013904223;
                        words[i] = round % 3 == 0   ? x
                                   : round % 3 == 1 ? x % 200
                                                    : (uint32_t)((uint64_t)x * 0x90000 >> 32);
                }
                for (uint32_t i = 0; i < 20; i++) {
                        struct unet_rx rx;
                        kernel_sends(p.peer, i, 60 + i * 70);
                        take(p.e, &rx);
                        p.e->ni.base.ops->arm(&p.e->ni.base);
                }
        }
        pair_end(&p);
        p = pair_make(XDP_WANT_TCX, 1500, few);
        kernel_sends(p.peer, 1, 700);
        expect(p.e, 1, 700);
        pair_end(&p);
}

/* ---- one in the place of another ---- */

struct looker {
        struct unet_chan *ch;
        _Atomic uint32_t looks;
        _Atomic bool end;
};

/* As a thread does that has no lock (stack_pending()). */
static void *look(void *arg)
{
        struct looker *l = arg;

        while (!l->end) {
                l->ch->ops->pending(l->ch);
                l->ch->ops->room(l->ch);
                l->looks++;
        }
        return NULL;
}

static void open_again(struct pair *p, struct xdp_sizes sizes)
{
        xdp_sock_close(&p->e->sock);
        xdp_dev_close(&p->e->dev);
        bed_enter(p->ns[0]);
        assert_int_equal(xdp_dev_open(&p->e->dev, "ours", want, p->e->line), 0);
        assert_int_equal(xdp_sock_open(&p->e->sock, &p->e->dev, 0, sizes, p->e->line), 0);
}

static int reattach(struct end *e)
{
        const struct ni_xdp_fds fds = {e->sock.xsk, e->sock.mem, e->sock.packet.sock, e->sock.ring,
                                       e->sock.sender};

        return ni_xdp_reattach(&e->ni, fds, unet_mem_frames(e->frames, tx_geom));
}

/* A thread that looks meanwhile finds one or the other. */
static void another_socket_takes_the_place_of_one(void **state)
{
        struct pair p = pair_make(want, 1500, few);
        struct looker l = {.ch = &p.e->ni.base};
        const uint8_t *umem = p.e->ni.umem;
        pthread_t thread;

        assert_int_equal(pthread_create(&thread, NULL, look, &l), 0);
        for (uint32_t i = 0; i < 10; i++) {
                uint32_t looks;

                ni_xdp_forsake(&p.e->ni);
                for (looks = l.looks; l.looks < looks + 100;)
                        sched_yield();
                open_again(&p, few);
                assert_int_equal(reattach(p.e), 0);
                for (looks = l.looks; l.looks < looks + 100;)
                        sched_yield();
                assert_ptr_equal(p.e->ni.umem, umem);
                kernel_sends(p.peer, i, 1000);
                expect(p.e, i, 1000);
                assert_true(offer(p.e, i, 1200));
                flush(p.e);
                kernel_gets(p.peer, i, 1200);
        }
        l.end = true;
        pthread_join(thread, NULL);
        pair_end(&p);
}

static void one_of_other_sizes_does_not(void **state)
{
        struct pair p = pair_make(want, 1500, few);
        const struct ni_xdp before = p.e->ni;

        ni_xdp_forsake(&p.e->ni);
        open_again(&p, (struct xdp_sizes){.rx_chunks = 128, .tx_chunks = 32});
        assert_int_equal(reattach(p.e), -ENOSPC);
        assert_memory_equal(&p.e->ni, &before, sizeof before);
        assert_false(p.e->ni.base.ops->pending(&p.e->ni.base));
        pair_end(&p);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_killed_holder_leaves_the_interface_as_it_was),
                cmocka_unit_test(a_killed_maker_is_not_missed),
                cmocka_unit_test(two_processes_share_a_socket),
                cmocka_unit_test(a_killed_process_leaves_rings_that_can_be_repaired),
                cmocka_unit_test(another_socket_takes_the_place_of_one),
                cmocka_unit_test(one_of_other_sizes_does_not),
        };
        const struct CMUnitTest garbage[] = {
                cmocka_unit_test(garbage_is_not_attached),
                cmocka_unit_test(garbage_is_not_attached_tcx),
                cmocka_unit_test(rubbish_for_the_program_harms_nobody_else),
        };
        int failed = cmocka_run_group_tests_name("garbage", garbage, NULL, NULL);

        want = XDP_WANT_GENERIC;
        failed += cmocka_run_group_tests_name("generic", tests, NULL, NULL);
        want = XDP_WANT_TCX;
        return failed + cmocka_run_group_tests_name("tcx", tests, NULL, NULL);
}
