/*
 * A process that scribbles into everything that it may write: its transmit region (ring, positions,
 * returned frames, payload), its bell, the bells' sockets and the sleepers' of its peer. The victim
 * talks to a friend all the while; those connections carry exactly what was written, nothing
 * crashes (this runs under ASan too), and memory stays bounded. The victim's channels become quiet
 * as soon as nothing goes by them, it takes what is hostile by loans, too, and keeps SYNs.
 */
#include "tests/sock/sides.h"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <unet/flow.h>

#include "sock/attach/ustack.h"
#include "sock/usock_ready.h"
#include "tcp/tcp_hdr.h"
#include "unet/bell_fd.h"

#define FRIENDS  4  /* connections of the friend */
#define LISTENED 64 /* connections of the victim */
#define HOSTILES 27
#define WHILE_MS 150 /* of each hostile process */
/* A process that is still there then is stuck; ctest ends the test later. */
#define PATIENCE_S 500

static struct shared {
        _Atomic uint64_t port, echoed;
        _Atomic int friend_stop, victim_stop;
        _Atomic uint64_t drops, recoveries;
        _Atomic int to_speak;
        uint16_t said_port[4];
        struct {
                _Atomic uint32_t len;
                char name[32];
        } sleeper[STACK_WAITERS];
} * sh;

/* ---- the victim: echoes to whoever greets with an F, reads from the others and writes a
 * little ---- */

static void publish_sleepers(void)
{
        int err;
        struct ustack *u = ustack_mine(&err);
        struct stack_state *st = u->s.st;
        uint64_t drops = 0;

        ustack_lock(u);
        st->quiet_few = 0;
        st->quiet_after = NS_PER_MS;
        for (int i = 0; i < (int)STACK_WAITERS; i++) {
                if (st->waiter[i].proc == 0)
                        continue;
                memcpy(sh->sleeper[i].name, st->waiter[i].name, sizeof st->waiter[i].name);
                sh->sleeper[i].len = st->waiter[i].name_len;
        }
        for (int i = 0; i < (int)DROP_COUNT; i++)
                drops += st->cnt.drop[i];
        sh->drops = drops;
        sh->recoveries = st->cnt.n[COUNT_STACK_RECOVERIES];
        ustack_leave(u);
}

static void *echo_alone(void *arg)
{
        int c = *(int *)arg;
        char buf[2000];
        ssize_t n;

        while ((n = unet_recv(c, buf, sizeof buf, 0)) > 0)
                CHECK(unet_send(c, buf, (size_t)n, 0) == n);
        return NULL;
}

static struct victim_conn {
        int sock;
        char who;
        struct unet_loan lent[4];
        int nlent;
} conn[LISTENED];

static void victim_close(struct victim_conn *c)
{
        CHECK(unet_close(c->sock) == 0);
        c->sock = -1;
}

/* The first 'T' is given to a thread of its own, which sleeps in recv. */
static void victim_greeting(struct victim_conn *c)
{
        static int sock;
        pthread_t thread;
        ssize_t n = unet_recv(c->sock, &c->who, 1, MSG_DONTWAIT);

        if (n == 0 || (n < 0 && errno != EAGAIN)) {
                victim_close(c);
        } else if (n == 1 && c->who == 'T' && sock == 0) {
                sock = c->sock;
                CHECK(pthread_create(&thread, NULL, echo_alone, &sock) == 0 &&
                      pthread_detach(thread) == 0);
                c->sock = -1;
        }
}

/* Every other turn what it has is returned; every byte can be read. */
static bool victim_borrows(struct victim_conn *c)
{
        uint64_t ones = 0, all = 0;

        if (c->nlent > 0) {
                CHECK(unet_recv_return(c->sock, c->lent, c->nlent) == 0);
                c->nlent = 0;
                return false;
        }
        c->nlent = unet_recv_lend(c->sock, c->lent, (int)ARRAY_LEN(c->lent), MSG_DONTWAIT);
        for (int i = 0; i < c->nlent; i++) {
                for (uint32_t k = 0; k < c->lent[i].len; k++)
                        ones += ((const uint8_t *)c->lent[i].ptr)[k] & 1;
                all += c->lent[i].len;
        }
        CHECK(ones <= all);
        return c->nlent > 0;
}

static void victim_serve(struct victim_conn *c)
{
        static char buf[30000];
        ssize_t n;

        if (c->who == 0) {
                victim_greeting(c);
                return;
        }
        if (c->who == 'H' && victim_borrows(c))
                return;
        n = unet_recv(c->sock, buf, sizeof buf, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN))
                victim_close(c);
        else if (n > 0 && c->who == 'F')
                CHECK(unet_send(c->sock, buf, (size_t)n, 0) == n);
        else if (n > 0)
                unet_send(c->sock, buf, (size_t)n, MSG_DONTWAIT);
}

static void victim_accept(int l)
{
        int c = unet_accept(l, NULL, NULL);

        for (int i = 0; c >= 0 && i < LISTENED; i++)
                if (conn[i].sock < 0) {
                        conn[i] = (struct victim_conn){.sock = c};
                        return;
                }
        if (c >= 0)
                unet_close(c);
}

static void victim(struct side *s)
{
        struct unet_pollfd v[LISTENED + 1];
        int l = tcp_listen_any();

        CHECK(unet_set_nonblock(l, 1) == 0);
        CHECK(unet_setsockopt(l, IPPROTO_TCP, TCP_SAVE_SYN, &(int){2}, sizeof(int)) == 0);
        for (int i = 0; i < LISTENED; i++)
                conn[i].sock = -1;
        sh->port = port_of(l);
        while (!sh->victim_stop) {
                for (int i = 0; i < LISTENED; i++)
                        v[i] = (struct unet_pollfd){
                                .sock = conn[i].sock, .fd = -1, .events = POLLIN};
                v[LISTENED] = (struct unet_pollfd){.sock = l, .fd = -1, .events = POLLIN};
                CHECK(unet_poll(v, LISTENED + 1, 20) >= 0);
                for (int i = 0; i < LISTENED; i++)
                        if (v[i].revents && conn[i].sock >= 0)
                                victim_serve(&conn[i]);
                if (v[LISTENED].revents)
                        victim_accept(l);
                publish_sleepers();
        }
        exit(0);
}

/* ---- the friend ---- */

static void friend_round(int c, uint64_t seed, uint64_t *at, uint64_t *rng)
{
        static uint8_t out[20000], in[20000];
        size_t n = 1 + rnd(rng) % sizeof out;

        fill(out, n, seed, *at);
        CHECK(unet_send(c, out, n, 0) == (ssize_t)n);
        CHECK(unet_recv(c, in, n, MSG_WAITALL) == (ssize_t)n);
        CHECK(memcmp(in, out, n) == 0);
        *at += n;
        sh->echoed += n;
}

static void friend(struct side *s)
{
        int c[FRIENDS], t = tcp_connect_to((uint16_t)sh->port);
        uint64_t at[FRIENDS + 1] = {0}, rng = s->arg;

        CHECK(unet_send(t, "T", 1, 0) == 1);
        for (int i = 0; i < FRIENDS; i++) {
                c[i] = tcp_connect_to((uint16_t)sh->port);
                CHECK(unet_send(c[i], "F", 1, 0) == 1);
        }
        while (!sh->friend_stop) {
                for (int i = 0; i < FRIENDS; i++)
                        friend_round(c[i], s->arg + (uint64_t)i, &at[i], &rng);
                friend_round(t, s->arg + FRIENDS, &at[FRIENDS], &rng);
        }
        exit(0);
}

/* ---- the hostile process ---- */

struct target {
        struct ustack *u;
        struct shm_chan *ch;
        struct unetd_chan *fds;
        int sock;
        uint64_t rng;
        uint32_t seq; /* next position of a slot forged in order */
};

static void random_bytes(struct target *t, void *p, size_t n)
{
        for (size_t i = 0; i < n; i++)
                ((uint8_t *)p)[i] = (uint8_t)rnd(&t->rng);
}

/* Anywhere before the frames. */
static void scribbles(struct target *t)
{
        uint8_t *base = (uint8_t *)t->ch->mine;
        size_t at = rnd(&t->rng) % offsetof(struct shm_region, frames);

        random_bytes(t, base + at,
                     MIN(rnd(&t->rng) % 64, offsetof(struct shm_region, frames) - at));
}

/* A slot that the victim will take for the next message. */
static void forges(struct target *t, bool changed_only)
{
        struct shm_slot *slot = &t->ch->mine->ring[t->seq % SHM_SLOTS];

        if (t->seq - atomic_load(&t->ch->peer->ctrl.cons) >= SHM_SLOTS) {
                bell_ring(t->ch->leader_fd);
                sched_yield();
                return;
        }
        if (changed_only)
                slot->body[rnd(&t->rng) % 80] = (uint8_t)rnd(&t->rng);
        else
                random_bytes(t, slot->body, sizeof slot->body);
        slot->inl_len = (uint8_t)(rnd(&t->rng) % 4 ? 40 + rnd(&t->rng) % 60 : rnd(&t->rng));
        slot->flags = (uint8_t)(rnd(&t->rng) % 8 ? rnd(&t->rng) % 2 : rnd(&t->rng));
        if (slot->flags & SHM_F_FRAME && rnd(&t->rng) % 2) {
                struct shm_frame_ref ref = {(uint32_t)(rnd(&t->rng) % 20000),
                                            (uint32_t)(rnd(&t->rng) % 4096),
                                            (uint32_t)(rnd(&t->rng) % 70000)};
                memcpy(slot->body, &ref, sizeof ref);
        }
        atomic_store(&slot->seq, ++t->seq);
}

static void gives_back_anything(struct target *t)
{
        struct shm_region *r = t->ch->mine;

        for (int i = 0; i < 64; i++)
                r->ret[rnd(&t->rng) % SHM_RETS] =
                        (uint32_t)(rnd(&t->rng) % (rnd(&t->rng) % 2 ? 17000 : UINT32_MAX));
        atomic_fetch_add(&r->ctrl.ret_prod, (uint32_t)(rnd(&t->rng) % 128));
        atomic_store(&r->ctrl.cons, (uint32_t)rnd(&t->rng));
}

/* That it looks at nothing until it is rung, that it wants room, that it is awake; or whatever. */
static void lies_about_its_rest(struct target *t)
{
        struct shm_ctrl *c = &t->ch->mine->ctrl;
        bool any = rnd(&t->rng) % 2;

        atomic_store(&c->quiet, any ? (uint32_t)rnd(&t->rng) : atomic_load(&c->quiet) + 1);
        atomic_store(&c->want_room, (uint32_t)rnd(&t->rng) % (any ? UINT32_MAX : 2));
        atomic_store(&c->closed, (uint32_t)rnd(&t->rng));
        atomic_store(&t->u->s.bell->word, (uint32_t)rnd(&t->rng));
        unet_send(t->sock, "H", 1, MSG_DONTWAIT);
}

static void rings_everything(struct target *t)
{
        random_bytes(t, t->u->s.bell, 64);
        bell_ring(t->ch->leader_fd);
        bell_ring(t->ch->keeper_fd);
}

static void wakes_sleepers(struct target *t)
{
        static int fd = -1;
        char junk[300];

        if (fd < 0)
                fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
        for (int i = 0; i < (int)STACK_WAITERS; i++) {
                struct sockaddr_un un = {.sun_family = AF_UNIX};
                uint32_t len = sh->sleeper[i].len;
                if (len == 0)
                        continue;
                memcpy(un.sun_path, sh->sleeper[i].name, len);
                sendto(fd, junk, rnd(&t->rng) % sizeof junk, MSG_NOSIGNAL, (struct sockaddr *)&un,
                       (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len));
        }
}

/* Real data, whose headers and payload change on their way. */
static void changes_what_it_sends(struct target *t)
{
        static char data[20000];
        struct shm_region *r = t->ch->mine;

        unet_send(t->sock, data, 1 + rnd(&t->rng) % sizeof data, MSG_DONTWAIT);
        for (int i = 0; i < 20; i++)
                r->ring[rnd(&t->rng) % SHM_SLOTS].body[rnd(&t->rng) % 80] ^=
                        (uint8_t)(1u << rnd(&t->rng) % 8);
        random_bytes(t, r->frames + rnd(&t->rng) % 100000, 100);
        unet_recv(t->sock, data, sizeof data, MSG_DONTWAIT);
}

/* Its own bells are full, and what it has of them blocks: those who ring it have descriptions of
 * their own. */
static void blocks_its_bells(struct target *t)
{
        static const char junk[4096];
        const struct unetd_stack_fds *f = &t->u->fds;
        const int end[] = {f->leader, f->ring_leader, f->keeper, f->ring_keeper};

        CHECK(fcntl(f->ring_leader, F_SETFL, O_NONBLOCK) == 0);
        while (write(f->ring_leader, junk, sizeof junk) > 0)
                ;
        for (size_t i = 0; i < sizeof end / sizeof *end; i++)
                CHECK(fcntl(end[i], F_SETFL, 0) == 0);
        bell_arm_count(t->u->s.bell, BELL_ASLEEP, (uint32_t)rnd(&t->rng));
        unet_send(t->sock, junk, 1 + rnd(&t->rng) % sizeof junk, MSG_DONTWAIT);
        sched_yield();
}

static void one_act(struct target *t, uint64_t what)
{
        switch (what) {
        case 0:
                scribbles(t);
                break;
        case 1:
                forges(t, false);
                break;
        case 2:
                forges(t, true);
                break;
        case 3:
                gives_back_anything(t);
                break;
        case 4:
                rings_everything(t);
                break;
        case 5:
                wakes_sleepers(t);
                break;
        case 6:
                blocks_its_bells(t);
                break;
        case 7:
                lies_about_its_rest(t);
                break;
        default:
                changes_what_it_sends(t);
                break;
        }
}

#define ACTS 9

static void hostile(struct side *s)
{
        struct target t = {.rng = s->arg};
        static char data[30000];
        int64_t end;
        uint64_t what = s->arg % (ACTS + 1);
        int err;

        t.sock = tcp_connect_to((uint16_t)sh->port);
        unet_send(t.sock, "H", 1, 0);
        for (int i = 0; i < 20; i++) {
                unet_send(t.sock, data, sizeof data, MSG_DONTWAIT);
                unet_recv(t.sock, data, sizeof data, MSG_DONTWAIT);
        }
        t.u = ustack_mine(&err);
        for (int k = 0; k < (int)STACK_CHANS && t.ch == NULL; k++)
                if (t.u->chan[k].mine != NULL) {
                        t.ch = &t.u->chan[k];
                        t.fds = &t.u->chan_fds[k];
                        t.seq = t.u->s.st->chan[k].shm.pos.tx_prod;
                }
        CHECK(t.ch != NULL);
        end = now_ms() + WHILE_MS;
        do
                for (int i = 0; i < 50; i++)
                        one_act(&t, what < ACTS ? what : rnd(&t.rng) % ACTS);
        while (now_ms() < end);
        _exit(0);
}

/* ---- all together ---- */

static pid_t spawn(side_fn fn, uint64_t arg)
{
        struct side s = {.in = -1, .out = -1, .arg = arg};
        pid_t pid = fork();

        if (pid == 0) {
                alarm(PATIENCE_S);
                fn(&s);
                exit(0);
        }
        return pid;
}

static long rss_kb(pid_t pid)
{
        char path[64];
        long total = 0, rss = 0;
        FILE *f;

        snprintf(path, sizeof path, "/proc/%d/statm", (int)pid);
        f = fopen(path, "r");
        if (f != NULL && fscanf(f, "%ld %ld", &total, &rss) != 2)
                rss = 0;
        if (f != NULL)
                fclose(f);
        return rss * 4;
}

/* Stays alive, and is not reaped: dead before its time, it is a zombie. */
static bool lives(pid_t pid)
{
        siginfo_t si = {.si_pid = 0};

        return waitid(P_PID, (id_t)pid, &si, WEXITED | WNOHANG | WNOWAIT) == 0 && si.si_pid == 0;
}

static void ends_well(pid_t pid)
{
        int status;

        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
}

static void a_hostile_peer_harms_nobody_else(void **state)
{
        pid_t v = spawn(victim, 0), f;
        uint64_t before;
        long first = 0;

        while (sh->port == 0 && lives(v))
                sleep_ms(1);
        f = spawn(friend, test_seed());
        for (uint64_t i = 0; i < HOSTILES && lives(v) && lives(f); i++) {
                ends_well(spawn(hostile, test_seed() / (ACTS + 1) * (ACTS + 1) + i));
                if (i == 0)
                        first = rss_kb(v);
        }
        before = sh->echoed;
        for (int64_t until = now_ms() + PATIENCE_MS;
             (sh->echoed == before || sh->drops == 0) && lives(f) && now_ms() < until;)
                sleep_ms(1);
        print_message("%llu bytes echoed to the friend, %llu drops; victim's memory %ld kB, then "
                      "%ld kB\n",
                      (unsigned long long)sh->echoed, (unsigned long long)sh->drops, first,
                      rss_kb(v));
        assert_true(sh->echoed > before && sh->drops > 0);
        assert_int_equal(sh->recoveries, 0);
        assert_true(rss_kb(v) < first + 300000);
        sh->friend_stop = 1;
        ends_well(f);
        sh->victim_stop = 1;
        ends_well(v);
}

/* ---- speaking for others ---- */

/* The victim takes all peers for other users' from here on: what they say of themselves is
 * looked up. */
static struct stack *among_strangers(void)
{
        int err;
        struct stack *s = &ustack_mine(&err)->s;

        s->st->uid = 12345;
        return s;
}

static int udp_socket(void)
{
        struct sockaddr_in a = loopback(0);
        int u = unet_socket(AF_INET, SOCK_DGRAM, 0);

        CHECK(unet_bind(u, (struct sockaddr *)&a, sizeof a) == 0);
        return u;
}

static void say(int u, uint16_t port, char what)
{
        struct sockaddr_in to = loopback(port);

        CHECK(unet_sendto(u, &what, 1, 0, (struct sockaddr *)&to, sizeof to) == 1);
}

/* The victim's sockets, told by their ports; one of them is connected to the friend's. */
enum { OPEN_UDP, CONNECTED_UDP, LISTENER, FRIENDS_UDP, PORTS };

#define FORGED 7 /* what speaks_for_the_friend() sends */

static void expect_only_the_friend(int open, int connected, int l)
{
        char c;

        CHECK(unet_recv(open, &c, 1, 0) == 1 && c == 'o');
        CHECK(unet_recv(connected, &c, 1, 0) == 1 && c == 'c');
        CHECK(unet_close(unet_accept(l, NULL, NULL)) == 0);
        CHECK_ERR(unet_recv(open, &c, 1, MSG_DONTWAIT), EAGAIN);
        CHECK_ERR(unet_recv(connected, &c, 1, MSG_DONTWAIT), EAGAIN);
        CHECK(unet_set_nonblock(l, 1) == 0);
        CHECK_ERR(unet_accept(l, NULL, NULL), EAGAIN);
}

static void spoken_to(struct side *s)
{
        struct stack *st;
        int open = udp_socket(), connected = udp_socket(), l = tcp_listen_any();
        struct sockaddr_in friends;

        st = among_strangers();
        tell(s, port_of(open));
        tell(s, port_of(connected));
        tell(s, port_of(l));
        friends = loopback((uint16_t)hear(s));
        CHECK(unet_connect(connected, (struct sockaddr *)&friends, sizeof friends) == 0);
        CHECK(unet_send(connected, "f", 1, 0) == 1);
        tell(s, 0);
        /* All was said; a channel that is new here may be mapped a turn later than others. */
        hear(s);
        EVENTUALLY((usock_progress(), st->st->cnt.drop[DROP_NI_BAD_SOURCE] >= FORGED));
        expect_only_the_friend(open, connected, l);
        tell(s, st->st->cnt.drop[DROP_NI_BAD_SOURCE]);
}

/* A datagram as the process's own stack would send it, but for its sender. */
static void forge_udp(struct ustack *u, uint32_t k, ip_addr from, uint16_t sport, uint16_t dport)
{
        struct udp_out o = {.tuple = {.laddr = from, .raddr = ip_addr_v4(INADDR_LOOPBACK)},
                            .ttl = 64};
        struct stack_payload p = {.inl = (const uint8_t *)"x", .len = 1};

        udp_hdr_write(o.hdr, sport, dport, 1, (be16){0});
        ustack_lock(u);
        CHECK(stack_send_udp(&u->s, k, &o, &p) == 0);
        stack_flush_bells(&u->s);
        ustack_leave(u);
}

static void forge(struct ustack *u, uint32_t k, const struct ip_tmpl *ip, uint8_t *packet,
                  uint32_t len)
{
        struct unet_tx tx = {.inl = packet, .inl_len = (uint16_t)len};

        ustack_lock(u);
        ip_hdr_write(ip, packet, (uint16_t)len, 0);
        CHECK(u->s.chan[k].ops->send(u->s.chan[k].ch, &tx, 1) == 1);
        stack_flush_bells(&u->s);
        ustack_leave(u);
}

/* A connection from a port that was never leased to us. */
static void forge_syn(struct ustack *u, uint32_t k, uint16_t sport, uint16_t dport)
{
        struct tcp_seg syn = {
                .flags = TCP_SYN, .seq = 1, .wnd = 1000, .sport = sport, .dport = dport};
        uint8_t packet[UNET_INLINE_MAX];
        struct ip_tmpl ip;

        ip_tmpl_init(&ip, ip_addr_v4(INADDR_LOOPBACK), ip_addr_v4(INADDR_LOOPBACK), IP_PROTO_TCP, 0,
                     64, true);
        forge(u, k, &ip, packet, IP_MIN_HDR + tcp_hdr_write(&syn, packet + IP_MIN_HDR));
}

/* "Your friend has no such port": the victim's datagram, quoted. */
static void forge_unreachable(struct ustack *u, uint32_t k, uint16_t victims, uint16_t friends)
{
        const ip_addr lo = ip_addr_v4(INADDR_LOOPBACK);
        uint8_t packet[UNET_INLINE_MAX] = {0}, *icmp = packet + IP_MIN_HDR;
        struct ip_tmpl ip;

        icmp[0] = ICMP_UNREACHABLE;
        icmp[1] = ICMP_PORT_UNREACHABLE;
        ip_tmpl_init(&ip, lo, lo, IP_PROTO_UDP, 0, 64, false);
        ip_hdr_write(&ip, icmp + 8, IP_MIN_HDR + UDP_HDR + 1, 0);
        udp_hdr_write(icmp + 8 + IP_MIN_HDR, victims, friends, 1, (be16){0});
        ip_tmpl_init(&ip, lo, lo, IP_PROTO_ICMP, 0, 64, false);
        forge(u, k, &ip, packet, IP_MIN_HDR + 8 + IP_MIN_HDR + UDP_HDR);
}

/* A process with a stack of its own, not the friend's. */
static void speaks_for_the_friend(const uint16_t port[PORTS])
{
        const ip_addr lo = ip_addr_v4(INADDR_LOOPBACK);
        int u = udp_socket(), err;
        struct ustack *us = ustack_mine(&err);
        uint32_t k = 0;

        /* Opens the channel; not from whom that socket is connected to. */
        say(u, port[CONNECTED_UDP], 'x');
        while (us->chan[k].mine == NULL)
                k++;
        forge_udp(us, k, lo, port[FRIENDS_UDP], port[OPEN_UDP]);
        forge_udp(us, k, lo, port[FRIENDS_UDP], port[CONNECTED_UDP]);
        forge_udp(us, k, lo, 7, port[OPEN_UDP]);
        forge_udp(us, k, ip_addr_v4(0x08080808), 53, port[OPEN_UDP]);
        forge_syn(us, k, 7, port[LISTENER]);
        forge_syn(us, k, port[FRIENDS_UDP], port[LISTENER]);
        forge_unreachable(us, k, port[CONNECTED_UDP], port[FRIENDS_UDP]);
}

static void speaks(struct side *s)
{
        int u = udp_socket(), c;
        uint16_t port[PORTS];
        char byte;

        for (int i = 0; i < FRIENDS_UDP; i++)
                port[i] = (uint16_t)hear(s);
        port[FRIENDS_UDP] = port_of(u);
        tell(s, port[FRIENDS_UDP]);
        hear(s);
        CHECK(unet_recv(u, &byte, 1, 0) == 1 && byte == 'f');
        for (int i = 0; i < PORTS; i++)
                sh->said_port[i] = port[i];
        sh->to_speak = 1;
        EVENTUALLY(sh->to_speak == 2);
        say(u, port[OPEN_UDP], 'o');
        say(u, port[CONNECTED_UDP], 'c');
        c = tcp_connect_to(port[LISTENER]);
        tell(s, 0);
        CHECK(hear(s) == FORGED);
        sh->to_speak = 3;
        CHECK(unet_close(c) == 0);
}

/* In a process of its own, which has its stack from the start. */
static void hostile_speaker(void)
{
        uint16_t port[PORTS];

        alarm(PATIENCE_S);
        while (sh->to_speak == 0)
                sleep_ms(1);
        for (int i = 0; i < PORTS; i++)
                port[i] = sh->said_port[i];
        speaks_for_the_friend(port);
        sh->to_speak = 2;
        while (sh->to_speak == 2) /* its port is its own until what it said itself has been taken */
                sleep_ms(1);
        _exit(0);
}

static void nobody_speaks_for_another_users_stack(void **state)
{
        pid_t pid = fork();

        assert_true(pid >= 0);
        if (pid == 0)
                hostile_speaker();
        play(TWO_PROCESSES, spoken_to, speaks, 0); /* which waits for all children */
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(nobody_speaks_for_another_users_stack),
                cmocka_unit_test(a_hostile_peer_harms_nobody_else),
        };

        sh = mmap(NULL, sizeof *sh, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        return sh == MAP_FAILED ? 1 : run_sides(tests);
}
