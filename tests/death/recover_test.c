/*
 * What death between two stores of the socket layer leaves: connections' and pcbs' sockets are made
 * and taken apart in several steps. A recovery closes what no live socket record has, and nothing
 * else.
 */
#include <stdlib.h>
#include <sys/mman.h>

#include "netstack/stack.h"
#include "tcp/tcp_listen.h"
#include "tcp/tcp_loop.h"
#include "tests/unit.h"

static void no_event(struct stack *s, uint32_t sock, uint32_t events)
{
}

struct scene {
        struct stack s;
        struct bell bell;
        size_t bytes;
};

static int setup(void **state)
{
        struct scene *sc = calloc(1, sizeof *sc);
        struct stack_limits l;
        uint8_t seed[32] = {1};
        void *p;

        stack_limits_default(&l);
        sc->bytes = stack_bytes(&l);
        p = mmap(NULL, sc->bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        assert_ptr_not_equal(p, MAP_FAILED);
        stack_format(p, &l, seed, NS_PER_S);
        assert_int_equal(stack_view_init(&sc->s, p, sc->bytes, &sc->bell), 0);
        sc->s.event = no_event;
        *state = sc;
        return 0;
}

static int teardown(void **state)
{
        struct scene *sc = *state;

        stack_view_fini(&sc->s);
        munmap(sc->s.st, sc->bytes);
        free(sc);
        return 0;
}

/* A UDP socket as the socket layer makes it: record, pcb, each other's number, holder. */
static uint32_t udp_socket(struct stack *s, uint64_t holders)
{
        uint32_t sock = pool_alloc(&s->st->socks);
        struct sock_rec *rec = stack_sock(s, sock);
        struct udp_opts o;

        udp_opts_default(&o);
        *rec = (struct sock_rec){
                .role = SOCK_ROLE_UDP, .conn = udp_open(&s->udp, &o), .refs = holders};
        udp_set_sock(&s->udp, rec->conn, sock);
        return rec->conn;
}

static bool pcb_lives(struct stack *s, uint32_t pcb)
{
        struct udp_report r;

        return udp_get_report(&s->udp, pcb, &r);
}

static void a_pcb_without_a_holder_is_closed(void **state)
{
        struct stack *s = &((struct scene *)*state)->s;
        uint32_t held = udp_socket(s, 1), lost = udp_socket(s, 0), unnamed,
                 replaced = udp_socket(s, 1);
        struct udp_opts o;

        udp_opts_default(&o);
        unnamed = udp_open(&s->udp, &o);
        /* The record is another pcb's. */
        stack_sock(s, udp_get_sock(&s->udp, replaced))->conn = held;
        assert_int_equal(udp_bind(&s->udp, held, ip_addr_v4(0x7f000001), 7), 0);
        stack_recover(s, 2 * NS_PER_S);
        assert_true(pcb_lives(s, held));
        assert_false(pcb_lives(s, lost));
        assert_false(pcb_lives(s, unnamed));
        assert_false(pcb_lives(s, replaced));
}

static uint32_t refs_of(struct stack *s, uint32_t id)
{
        return frame_pool_rec(s->frames->region[FRAME_REGION_PRIVATE].pool, frame_id_num(id))->refs;
}

/* A frame that another process copies into without the lock, and those of a datagram that is begun,
 * are in use; what the dead one had taken or let go of is not. */
static void frames_of_sockets_stay(void **state)
{
        struct stack *s = &((struct scene *)*state)->s;
        uint32_t id[6];
        struct sock_rec *rec[3];

        for (int i = 0; i < 6; i++)
                id[i] = frame_alloc(s->frames, 0, i % 2 != 0 ? FRAME_LARGE : FRAME_SMALL, 0);
        for (int i = 0; i < 3; i++)
                rec[i] = stack_sock(s, udp_get_sock(&s->udp, udp_socket(s, 1)));
        rec[0]->writer = 2;
        rec[0]->tx_frame = id[0];
        rec[1]->corked[0] = id[2]; /* and died before it said so in `cork` */
        rec[1]->corked[1] = id[3];
        rec[2]->corked[1] = id[5]; /* died between the two */
        rec[2]->cork = SOCK_CORK_OURS | SOCK_CORK_ON;
        stack_recover(s, 2 * NS_PER_S);
        assert_int_equal(refs_of(s, id[0]), 1);
        assert_int_equal(refs_of(s, id[1]), 0);
        assert_int_equal(refs_of(s, id[2]), 1);
        assert_int_equal(refs_of(s, id[3]), 1);
        assert_int_equal(refs_of(s, id[4]), 0);
        assert_int_equal(refs_of(s, id[5]), 0);
        assert_int_equal(rec[1]->cork, SOCK_CORK_OURS);
        assert_int_equal(rec[2]->cork, SOCK_CORK_ON);
        assert_int_equal(rec[2]->corked[1], 0);
        frame_drop(s->frames, id[0]);
}

/* Of those who sleep and have no bit of their own: the lists end, whoever still has a place keeps
 * it until he gives it up. */
static void the_crowds_lists_end(void **state)
{
        struct stack *s = &((struct scene *)*state)->s;
        struct stack_state *st = s->st;
        uint32_t sock = udp_get_sock(&s->udp, udp_socket(s, 1)), slot[3];

        for (int i = 0; i < 3; i++) {
                struct crowd_waiter *cw;
                slot[i] = pool_alloc(&st->sleepers);
                cw = pool_at(&st->sleepers, slot[i]);
                /* The second died joining. */
                *cw = (struct crowd_waiter){.wants = pool_alloc(&st->wants), .slot.proc = i != 1};
                *(struct crowd_want *)pool_at(&st->wants, cw->wants) =
                        (struct crowd_want){.sock = sock, .waiter = slot[i]};
        }
        stack_sock(s, sock)->crowd = 2;
        stack_sock(s, sock)->waiters = WAITERS_CROWD | 1;
        st->crowd_news = 3;
        st->news_waiters = WAITERS_CROWD | 2;
        stack_recover(s, 2 * NS_PER_S);
        assert_int_equal(stack_sock(s, sock)->waiters, 1);
        assert_int_equal(stack_sock(s, sock)->crowd, 0);
        assert_int_equal(st->news_waiters, 2);
        assert_int_equal(st->crowd_news, 0);
        assert_int_equal(st->sleepers.used, 2);
        assert_int_equal(pool_alloc(&st->sleepers), slot[1]);
        assert_int_equal(st->wants.used, 0);
        for (int i = 0; i < 3; i += 2)
                assert_int_equal(((struct crowd_waiter *)pool_at(&st->sleepers, slot[i]))->wants,
                                 0);
}

static const struct tcp_link link = {
        .tx_region = FRAME_REGION_TX(0), .mss = 1000, .rto_min = NS_PER_S};

static uint32_t connection(struct stack *s, uint16_t lport)
{
        struct tcp_tuple t = {
                .laddr = ip_addr_v4(1), .raddr = ip_addr_v4(2), .lport = lport, .rport = 80};
        struct tcp_opts o;
        int c;

        tcp_opts_default(&o);
        c = tcp_connect(&s->tcp, &t, &link, &o, NS_PER_S);
        assert_true(c > 0);
        return (uint32_t)c;
}

/* accept() had the connection, and no record held it yet. */
static void a_connection_without_a_holder_is_closed(void **state)
{
        struct stack *s = &((struct scene *)*state)->s;
        uint32_t conn[2], sock[2];

        for (uint32_t i = 0; i < 2; i++) {
                conn[i] = connection(s, (uint16_t)(1000 + i));
                sock[i] = pool_alloc(&s->st->socks);
                *stack_sock(s, sock[i]) =
                        (struct sock_rec){.role = SOCK_ROLE_CONN, .conn = conn[i], .refs = i};
                tcp_set_sock(&s->tcp, conn[i], sock[i]);
        }
        stack_recover(s, 2 * NS_PER_S);
        assert_false(tcp_conn_at(&s->tcp, conn[0])->live);
        assert_true(tcp_conn_at(&s->tcp, conn[1])->live);
        assert_int_equal(tcp_conn_at(&s->tcp, conn[1])->sock, sock[1]);
}

/* connect() had made the connection, and no record was told yet. */
static void a_connection_that_no_record_knows_is_closed(void **state)
{
        struct stack *s = &((struct scene *)*state)->s;
        uint32_t whole = connection(s, 1000), broken = connection(s, 1001);

        assert_int_equal(s->tcp.sh->conns.used, 2);
        stack_begin(s->st, broken); /* and died */
        stack_recover(s, 2 * NS_PER_S);
        assert_false(tcp_conn_at(&s->tcp, whole)->live);
        assert_false(tcp_conn_at(&s->tcp, broken)->live);
        assert_int_equal(s->tcp.sh->conns.used, 0);
}

/* listen() had made the listener, and somebody has connected since. Those that wait at a listener
 * that is held stay. */
static void a_listener_without_a_holder_is_closed(void **state)
{
        struct stack *s = &((struct scene *)*state)->s;
        struct tcp_seg syn = {.flags = TCP_SYN, .seq = 1, .wnd = 1000, .sport = 7};
        uint32_t sock = pool_alloc(&s->st->socks);
        struct tcp_opts o;

        tcp_opts_default(&o);
        for (uint16_t port = 1; port <= 2; port++) {
                struct tcp_tuple t = {
                        .laddr = ip_addr_v4(1), .raddr = ip_addr_v4(2), .lport = port, .rport = 7};
                assert_int_equal(tcp_listen(&s->tcp, ip_addr_v4(1), port, 5, &o), port);
                syn.dport = port;
                tcp_rx(&s->tcp, &t, &link, &syn, NS_PER_S);
        }
        *stack_sock(s, sock) = (struct sock_rec){.role = SOCK_ROLE_LISTENER, .conn = 2, .refs = 1};
        tcp_listener_set_sock(&s->tcp, 2, sock);
        assert_int_equal(s->tcp.sh->conns.used, 2);
        stack_recover(s, 2 * NS_PER_S);
        assert_int_equal(s->tcp.sh->listeners.used, 1);
        /* And gone when its RST is sent. */
        assert_int_equal(tcp_conn_at(&s->tcp, 1)->state, TCPS_CLOSED);
        assert_int_equal(tcp_conn_at(&s->tcp, 1)->acc_state, ACC_NONE);
        assert_int_equal(tcp_conn_at(&s->tcp, 2)->state, TCPS_SYN_RECEIVED);
}

/* ---- a keeper that takes a stack over has its channels a moment later ---- */

static int sent;

static int count_sent(struct unet_chan *ch, const struct unet_tx *tx, int n)
{
        sent += n;
        return n;
}

static int nothing_to_take(struct unet_chan *ch, struct unet_rx *rx, int n)
{
        return 0;
}

static int nothing_to_reap(struct unet_chan *ch, uint32_t *frame, int n)
{
        return 0;
}

static uint32_t much_room(struct unet_chan *ch)
{
        return 100;
}

static bool nothing_pends(struct unet_chan *ch)
{
        return false;
}

static void do_nothing(struct unet_chan *ch)
{
}

static const struct unet_ni_ops far_ops = {.send = count_sent,
                                           .recv = nothing_to_take,
                                           .reap = nothing_to_reap,
                                           .room = much_room,
                                           .pending = nothing_pends,
                                           .flush = do_nothing};

static void what_is_due_waits_for_the_channel(void **state)
{
        struct stack *s = &((struct scene *)*state)->s;
        struct unet_chan far = {.ops = &far_ops,
                                .caps = {.mtu = 1500, .inline_max = 100, .rto_min = NS_PER_S}};
        uint32_t conn;

        assert_int_equal(stack_chan_add(s->st, 0, 7, 0, s->st->limits.tx, s->st->limits.tx), 0);
        conn = connection(s, 1000);
        stack_flush(s, NS_PER_S);
        assert_int_equal(sent, 0);
        stack_chan_mapped(s, 0, &far, NULL, NULL);
        stack_run(s, NS_PER_S);
        assert_int_equal(sent, 1);                      /* its SYN */
        assert_true(stack_deadline(s) <= 2 * NS_PER_S); /* and a timer for it */
        assert_int_equal(tcp_conn_at(&s->tcp, conn)->state, TCPS_SYN_SENT);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(what_is_due_waits_for_the_channel, setup, teardown),
                cmocka_unit_test_setup_teardown(a_connection_that_no_record_knows_is_closed, setup,
                                                teardown),
                cmocka_unit_test_setup_teardown(a_listener_without_a_holder_is_closed, setup,
                                                teardown),
                cmocka_unit_test_setup_teardown(a_pcb_without_a_holder_is_closed, setup, teardown),
                cmocka_unit_test_setup_teardown(frames_of_sockets_stay, setup, teardown),
                cmocka_unit_test_setup_teardown(the_crowds_lists_end, setup, teardown),
                cmocka_unit_test_setup_teardown(a_connection_without_a_holder_is_closed, setup,
                                                teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
