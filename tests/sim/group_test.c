/*
 * Groups and broadcasts between two stacks on an Ethernet, side 1 with sockets that listen: who
 * gets a copy, what stays in the stack, what IGMP says, and that a death changes none of it.
 */
#include "tests/sim/pair.h"
#include "tests/udp/reading.h"
#include "tests/unit.h"

#define GROUP 0xef010203u /* 239.1.2.3 */
#define PORT  5000

static const struct sim_params lan[2] = {{.mtu = 1500, .delay = 20 * NS_PER_US, .csum = true},
                                         {.mtu = 1500, .delay = 20 * NS_PER_US, .csum = true}};

struct scene {
        struct pair *p;
        uint32_t pcb[8], sock[8]; /* of side 1 */
        uint32_t sender;          /* pcb of side 0 */
};

static void pass(struct scene *s, nstime time)
{
        nstime until = s->p->now + time;

        while (s->p->now < until)
                pair_wait(s->p, until);
}

/* A socket of side `side` as sock/ makes it: a record, and a pcb that shares its port. */
static uint32_t open_socket(struct scene *s, int side, uint16_t port, ip_addr bound, uint32_t *sock)
{
        struct stack *st = &s->p->side[side].s;
        struct udp_opts o;
        uint32_t pcb;

        udp_opts_default(&o);
        o.reuseaddr = 1;
        pcb = udp_open(&st->udp, &o);
        assert_int_equal(udp_bind(&st->udp, pcb, bound, port), 0);
        *sock = pool_alloc(&st->st->socks);
        *stack_sock(st, *sock) =
                (struct sock_rec){.refs = 1, .role = SOCK_ROLE_UDP, .conn = pcb, .group_ttl = 1};
        udp_set_sock(&st->udp, pcb, *sock);
        return pcb;
}

static struct scene begin(unsigned listeners)
{
        struct scene s = {.p = pair_ether(1, lan)};
        uint32_t sock;

        for (unsigned i = 0; i < listeners; i++)
                s.pcb[i] = open_socket(&s, 1, PORT, ip_addr_v4(0), &s.sock[i]);
        s.sender = open_socket(&s, 0, 4000, ip_addr_v4(0), &sock);
        pair_settle(s.p);
        return s;
}

static void join(struct scene *s, unsigned i)
{
        assert_int_equal(igmp_join(s->p->side[1].s.igmp, 0, GROUP, s->sock[i], s->p->now), 0);
        pair_settle(s->p);
}

static void send_from(struct scene *s, int side, uint32_t pcb, uint32_t dst, uint8_t ttl, bool loop)
{
        struct stack *st = &s->p->side[side].s;
        struct udp_tuple to = {.laddr = pair_addr(side),
                               .raddr = ip_addr_v4(dst),
                               .rport = PORT,
                               .chan = PAIR_CHAN};
        struct stack_payload pay = {.inl = (const uint8_t *)"hello", .len = 5};
        struct udp_out out;

        assert_int_equal(
                udp_output_prepare(&st->udp, pcb, &to, 5, true, stack_payload_sum(st, &pay), &out),
                0);
        out.ttl = ttl;
        assert_int_equal(stack_send_many(st, PAIR_CHAN, &out, &pay, loop), 0);
        pass(s, NS_PER_MS);
}

static void say(struct scene *s, uint32_t dst)
{
        send_from(s, 0, s->sender, dst, 1, false);
}

/* Datagrams that socket i of side 1 has; they are read. */
static unsigned heard(struct scene *s, unsigned i)
{
        struct udp *u = &s->p->side[1].s.udp;
        struct udp_msg m;
        unsigned n = 0;

        for (; udp_recv_peek(u, s->pcb[i], 0, &m, 1) == 1; n++) {
                assert_int_equal(m.len, 5);
                assert_memory_equal(m.span[0].ptr, "hello", 5);
                read_first(u, s->pcb[i], 1);
        }
        return n;
}

static uint64_t counted(const struct scene *s, int side, enum count what)
{
        return s->p->side[side].st->cnt.n[what];
}

static void end(struct scene *s)
{
        igmp_check(s->p->side[1].s.igmp);
        pair_free(s->p);
}

static void a_group_reaches_its_members(void **state)
{
        struct scene s = begin(3);

        say(&s, GROUP);
        assert_int_equal(s.p->side[1].st->cnt.drop[DROP_IP_NOT_OURS], 1);
        join(&s, 0);
        join(&s, 1);
        stack_sock(&s.p->side[1].s, s.sock[2])->members_only = 1; /* IP_MULTICAST_ALL off */
        say(&s, GROUP);
        assert_int_equal(heard(&s, 0), 1);
        assert_int_equal(heard(&s, 1), 1);
        assert_int_equal(heard(&s, 2), 0);
        stack_sock(&s.p->side[1].s, s.sock[2])->members_only = 0;
        say(&s, GROUP);
        assert_int_equal(heard(&s, 2), 1);
        end(&s);
}

static void sources_are_chosen_by_each_socket(void **state)
{
        struct scene s = begin(2);
        uint32_t src = ip_addr_get_v4(pair_addr(0)), other = src + 77;
        struct igmp *g = s.p->side[1].s.igmp;

        assert_int_equal(igmp_listen(g, 0, GROUP, s.sock[0], false, &other, 1, s.p->now), 0);
        assert_int_equal(igmp_listen(g, 0, GROUP, s.sock[1], true, &other, 1, s.p->now), 0);
        say(&s, GROUP);
        assert_int_equal(heard(&s, 0), 0);
        assert_int_equal(heard(&s, 1), 1);
        end(&s);
}

/* RFC 1122 §3.3.6: both forms; who is bound to one host's address hears none. */
static void a_broadcast_reaches_everybody(void **state)
{
        struct scene s = begin(2);
        uint32_t net = ip_addr_get_v4(pair_addr(1)) | 0xff, sock, bound;

        bound = open_socket(&s, 1, PORT, pair_addr(1), &sock);
        say(&s, net);
        say(&s, 0xffffffff);
        assert_int_equal(heard(&s, 0), 2);
        assert_int_equal(heard(&s, 1), 2);
        assert_int_equal(udp_recv_avail(&s.p->side[1].s.udp, bound), 0);
        end(&s);
}

/* RFC 1112 §6.1: whether the sender's own host hears it; with TTL 0 nobody else does. */
static void what_we_send_comes_back_if_asked(void **state)
{
        struct scene s = begin(2);
        uint64_t in;

        join(&s, 0);
        send_from(&s, 1, s.pcb[1], GROUP, 1, false);
        assert_int_equal(heard(&s, 0), 0);
        in = s.p->side[0].st->cnt.drop[DROP_IP_NOT_OURS]; /* it is no member */
        send_from(&s, 1, s.pcb[1], GROUP, 0, true);
        assert_int_equal(heard(&s, 0), 1);
        assert_int_equal(s.p->side[0].st->cnt.drop[DROP_IP_NOT_OURS], in);
        send_from(&s, 1, s.pcb[1], GROUP, 1, true);
        assert_int_equal(heard(&s, 0), 1);
        assert_int_equal(s.p->side[0].st->cnt.drop[DROP_IP_NOT_OURS], in + 1);
        end(&s);
}

static void igmp_says_so(void **state)
{
        struct scene s = begin(1);

        join(&s, 0);
        assert_int_equal(counted(&s, 1, COUNT_IGMP_OUT), 1);
        pass(&s, 2 * NS_PER_S);
        assert_int_equal(counted(&s, 1, COUNT_IGMP_OUT), 2); /* RFC 3376 §8.1 */
        s.p->side[1].s.now = s.p->now;
        stack_group_leave_all(&s.p->side[1].s, s.sock[0]);
        assert_int_equal(counted(&s, 1, COUNT_IGMP_OUT), 3);
        pass(&s, 2 * NS_PER_S);
        assert_int_equal(counted(&s, 1, COUNT_IGMP_OUT), 4);
        say(&s, GROUP);
        assert_int_equal(heard(&s, 0), 0);
        end(&s);
}

/* A process dies inside: members are members still, but for a socket that is no more. */
static void members_survive_a_death(void **state)
{
        struct scene s = begin(2);
        struct stack *st = &s.p->side[1].s;

        join(&s, 0);
        join(&s, 1);
        stack_sock(st, s.sock[1])->refs = 0;
        stack_recover(st, s.p->now);
        say(&s, GROUP);
        assert_int_equal(heard(&s, 0), 1);
        assert_int_equal(igmp_memberships(st->igmp, s.sock[1]), 0);
        end(&s);
}

/* The interface goes, and another one comes in its place: nobody is a member on that. */
static void memberships_end_with_the_interface(void **state)
{
        struct scene s = begin(1);
        struct stack *st = &s.p->side[1].s;

        join(&s, 0);
        stack_chan_down(st, PAIR_CHAN, s.p->now);
        assert_true(stack_chan_free(st, PAIR_CHAN));
        assert_int_equal(igmp_memberships(st->igmp, s.sock[0]), 0);
        assert_int_equal(igmp_deadline(st->igmp) > s.p->now, 1);
        end(&s);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_group_reaches_its_members),
                cmocka_unit_test(sources_are_chosen_by_each_socket),
                cmocka_unit_test(a_broadcast_reaches_everybody),
                cmocka_unit_test(what_we_send_comes_back_if_asked),
                cmocka_unit_test(igmp_says_so),
                cmocka_unit_test(members_survive_a_death),
                cmocka_unit_test(memberships_end_with_the_interface),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
