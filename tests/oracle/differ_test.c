/*
 * The same crafted segments to our stack and to lwIP, and what class of answer each gives. Where
 * they differ the table says so, and which paragraph is behind it: a difference that is not in the
 * table is news.
 *
 * A tester without a TCP of its own sits on the other end of the link, opens a connection to the
 * stack under test by hand, sends one segment, and looks for half a second (lwIP delays ACKs for a
 * quarter). Then it sends the next byte in order: a connection that is alive acknowledges it.
 */
#include "base/checksum.h"
#include "tests/oracle/meet.h"
#include "tests/unit.h"

#define LISTENS 80u
#define CLOSED  81u
#define OUR_ISN 5000u
#define WINDOW  8192u

enum answer { SILENT, ACKS, RESETS };
static const char *const answer_name[] = {"is silent", "sends an ACK", "sends a RST"};

struct probe {
        struct meet *m;
        bool lwip;           /* the stack under test */
        int end;             /* the tester's */
        struct tcp_seg last; /* what came last */
        unsigned answers, resets;
        uint32_t theirs; /* their next sequence number */
};

/* ---- the tester ---- */

static void finish_sums(const struct probe *p, uint8_t *packet, uint32_t len)
{
        uint32_t us = p->end == 0 ? MEET_US : MEET_LWIP, them = p->end == 0 ? MEET_LWIP : MEET_US;
        uint32_t sum =
                csum_pseudo(ip_addr_v4(us), ip_addr_v4(them), IP_PROTO_TCP, len - IP_MIN_HDR);
        struct ip_tmpl ip;
        be16 field;

        ip_tmpl_init(&ip, ip_addr_v4(us), ip_addr_v4(them), IP_PROTO_TCP, 0, 64, true);
        ip_hdr_write(&ip, packet, (uint16_t)len, 0);
        field = csum_finish(csum_partial(packet + IP_MIN_HDR, len - IP_MIN_HDR, sum));
        memcpy(packet + IP_MIN_HDR + 16, &field, 2);
}

static void send_segment(struct probe *p, const struct tcp_seg *seg)
{
        uint8_t packet[UNET_INLINE_MAX] = {0};
        uint32_t len = IP_MIN_HDR + tcp_hdr_write(seg, packet + IP_MIN_HDR) + seg->len;
        struct unet_tx tx = {.inl = packet, .inl_len = (uint16_t)len};

        finish_sums(p, packet, len);
        assert_int_equal(sim_ops.send(sim_end(p->m->p->sim, p->end), &tx, 1), 1);
}

static void look(struct probe *p)
{
        struct unet_chan *end = sim_end(p->m->p->sim, p->end);
        struct unet_rx rx;

        while (sim_ops.recv(end, &rx, 1) == 1) {
                if (rx.frame != 0)
                        sim_ops.release(end, &rx.frame, 1);
                assert_true(tcp_hdr_parse(rx.inl + IP_MIN_HDR, rx.inl_len - IP_MIN_HDR, &p->last) >
                            0);
                p->answers++;
                p->resets += (p->last.flags & TCP_RST) != 0;
        }
}

static void pass(struct probe *p, nstime time)
{
        nstime until = p->m->p->now + time;

        while (p->m->p->now < until) {
                nstime next = nstime_min(sim_next(p->m->p->sim),
                                         p->lwip ? lw_deadline() : stack_deadline(p->m->s));
                p->m->p->now = MAX(p->m->p->now + 1, nstime_min(next, until));
                sim_advance(p->m->p->sim, p->m->p->now);
                if (p->lwip)
                        while (lw_run(p->m->p->now))
                                ;
                else
                        pair_settle(p->m->p);
                look(p);
        }
}

static struct tcp_seg segment(const struct probe *p, uint16_t port, uint8_t flags)
{
        return (struct tcp_seg){.sport = 1234,
                                .dport = port,
                                .seq = OUR_ISN + 1,
                                .ack = p->theirs,
                                .wnd = WINDOW,
                                .flags = flags,
                                .wscale = TCP_NO_WSCALE};
}

static struct probe probe_new(bool lwip)
{
        static const struct sim_params wire[2] = {{.csum = true, .delay = NS_PER_MS},
                                                  {.csum = true, .delay = NS_PER_MS}};
        struct sim_params dir[2] = {wire[0], wire[1]};
        struct probe p = {.lwip = lwip, .end = lwip ? 0 : 1};
        struct tcp_opts o;

        dir[0].mtu = dir[1].mtu = 1500;
        p.m = meet_new(1, dir);
        tcp_opts_default(&o);
        if (lwip) {
                p.m->p->side[0].dead = true;
                lw_listen(LISTENS);
        } else {
                meet_listen(p.m, LISTENS, &o);
        }
        return p;
}

static void probe_free(struct probe *p)
{
        struct lw_conn *c;

        while (p->lwip && (c = lw_accept()) != NULL) {
                lw_abort(c);
                lw_free(c);
        }
        meet_free(p->m);
}

static void handshake(struct probe *p, bool finish)
{
        struct tcp_seg syn = segment(p, LISTENS, TCP_SYN), ack;

        syn.seq = OUR_ISN;
        syn.mss = 1000;
        send_segment(p, &syn);
        pass(p, 10 * NS_PER_MS);
        assert_int_equal(p->last.flags & (TCP_SYN | TCP_ACK), TCP_SYN | TCP_ACK);
        p->theirs = p->last.seq + 1;
        if (!finish)
                return;
        ack = segment(p, LISTENS, TCP_ACK);
        send_segment(p, &ack);
        pass(p, 10 * NS_PER_MS);
}

/* ---- the table ---- */

enum state { IN_ESTABLISHED, IN_SYN_RECEIVED, IN_LISTEN, IN_CLOSED };
enum life { LIVES, DIES };

struct row {
        const char *what;
        enum state state;
        uint8_t flags;
        int32_t seq, ack; /* from what is expected next */
        uint32_t len;
        struct {
                enum answer answer;
                enum life life;
        } ours, lwips;
        const char *why; /* they differ */
};

// clang-format off
static const struct row table[] = {
        /* RFC 5961 §3.2 */
        {"RST at the next sequence number", IN_ESTABLISHED, TCP_RST, 0, 0, 0, {SILENT, DIES},
         {SILENT, DIES}, NULL},
        {"RST with ACK there", IN_ESTABLISHED, TCP_RST | TCP_ACK, 0, 0, 0, {SILENT, DIES},
         {SILENT, DIES}, NULL},
        {"RST elsewhere in the window", IN_ESTABLISHED, TCP_RST, 100, 0, 0, {ACKS, LIVES},
         {ACKS, LIVES}, NULL},
        {"RST before the window", IN_ESTABLISHED, TCP_RST, -1, 0, 0, {SILENT, LIVES},
         {SILENT, LIVES}, NULL},
        {"RST behind the window", IN_ESTABLISHED, TCP_RST, 10000000, 0, 0, {SILENT, LIVES},
         {SILENT, LIVES}, NULL},
        /* RFC 5961 §4.2 */
        {"SYN in the window", IN_ESTABLISHED, TCP_SYN, 100, 0, 0, {ACKS, LIVES}, {ACKS, LIVES},
         NULL},
        {"SYN that opened it, again", IN_ESTABLISHED, TCP_SYN, -1, 0, 0, {ACKS, LIVES},
         {ACKS, LIVES}, NULL},
        {"SYN with ACK in the window", IN_ESTABLISHED, TCP_SYN | TCP_ACK, 5, 0, 0, {ACKS, LIVES},
         {ACKS, LIVES}, NULL},
        /* RFC 9293 §3.10.7.4, first and fifth */
        {"old data", IN_ESTABLISHED, TCP_ACK, -1, 0, 1, {ACKS, LIVES}, {ACKS, LIVES}, NULL},
        {"keepalive without data", IN_ESTABLISHED, TCP_ACK, -1, 0, 0, {ACKS, LIVES}, {ACKS, LIVES},
         NULL},
        {"data behind a gap", IN_ESTABLISHED, TCP_ACK, 50, 0, 20, {ACKS, LIVES}, {ACKS, LIVES},
         NULL},
        {"data behind the window", IN_ESTABLISHED, TCP_ACK, 10000000, 0, 20, {ACKS, LIVES},
         {ACKS, LIVES}, NULL},
        {"plain ACK behind the window", IN_ESTABLISHED, TCP_ACK, 10000000, 0, 0, {ACKS, LIVES},
         {ACKS, LIVES}, NULL},
        {"ACK of what was never sent", IN_ESTABLISHED, TCP_ACK, 0, 1000, 0, {ACKS, LIVES},
         {ACKS, LIVES}, NULL},
        {"duplicate ACK", IN_ESTABLISHED, TCP_ACK, 0, 0, 0, {SILENT, LIVES}, {SILENT, LIVES}, NULL},
        {"ACK far too old", IN_ESTABLISHED, TCP_ACK, 0, -1000000, 0, {ACKS, LIVES}, {SILENT, LIVES},
         "RFC 5961 §5.2 asks for a challenge ACK; lwIP ignores it"},
        {"data without ACK", IN_ESTABLISHED, 0, 0, 0, 1, {SILENT, LIVES}, {ACKS, LIVES},
         "RFC 9293 §3.10.7.4, fifth: drop it; lwIP takes the data"},
        {"FIN without ACK", IN_ESTABLISHED, TCP_FIN, 0, 0, 0, {SILENT, LIVES}, {ACKS, LIVES},
         "RFC 9293 §3.10.7.4, fifth: drop it; lwIP takes the FIN"},
        {"data in order", IN_ESTABLISHED, TCP_ACK | TCP_PSH, 0, 0, 1, {ACKS, LIVES}, {ACKS, LIVES},
         NULL},
        {"urgent data", IN_ESTABLISHED, TCP_ACK | TCP_URG, 0, 0, 1, {ACKS, LIVES}, {ACKS, LIVES},
         NULL},
        {"FIN behind a gap", IN_ESTABLISHED, TCP_ACK | TCP_FIN, 50, 0, 0, {ACKS, LIVES},
         {ACKS, LIVES}, NULL},
        {"all flags at once", IN_ESTABLISHED, 0x3f, 0, 0, 1, {SILENT, DIES}, {SILENT, DIES}, NULL},
        /* SYN-RECEIVED */
        {"SYN once more", IN_SYN_RECEIVED, TCP_SYN, -1, 0, 0, {ACKS, LIVES}, {ACKS, LIVES}, NULL},
        {"RST at the next sequence number", IN_SYN_RECEIVED, TCP_RST, 0, 0, 0, {SILENT, DIES},
         {SILENT, DIES}, NULL},
        {"ACK of another SYN", IN_SYN_RECEIVED, TCP_ACK, 0, 77, 0, {RESETS, LIVES}, {RESETS, LIVES},
         NULL},
        {"RST elsewhere in the window", IN_SYN_RECEIVED, TCP_RST, 100, 0, 0, {ACKS, LIVES},
         {ACKS, LIVES}, NULL},
        /* §3.10.7.2 */
        {"RST to a listener", IN_LISTEN, TCP_RST, 0, 0, 0, {SILENT, DIES}, {SILENT, DIES}, NULL},
        {"ACK to a listener", IN_LISTEN, TCP_ACK, 0, 0, 0, {RESETS, DIES}, {RESETS, DIES}, NULL},
        {"SYN with ACK to a listener", IN_LISTEN, TCP_SYN | TCP_ACK, 0, 0, 0, {RESETS, DIES},
         {RESETS, DIES}, NULL},
        {"FIN to a listener", IN_LISTEN, TCP_FIN, 0, 0, 0, {SILENT, DIES}, {SILENT, DIES}, NULL},
        {"data to a listener", IN_LISTEN, 0, 0, 0, 5, {SILENT, DIES}, {SILENT, DIES}, NULL},
        /* §3.10.7.1 */
        {"SYN to a closed port", IN_CLOSED, TCP_SYN, 0, 0, 0, {RESETS, DIES}, {RESETS, DIES}, NULL},
        {"ACK to a closed port", IN_CLOSED, TCP_ACK, 0, 0, 0, {RESETS, DIES}, {RESETS, DIES}, NULL},
        {"FIN to a closed port", IN_CLOSED, TCP_FIN, 0, 0, 0, {RESETS, DIES}, {RESETS, DIES}, NULL},
        {"RST to a closed port", IN_CLOSED, TCP_RST, 0, 0, 0, {SILENT, DIES}, {SILENT, DIES}, NULL},
};
// clang-format on

/* ---- trying a row ---- */

static bool is_alive(struct probe *p, const struct row *r)
{
        struct tcp_seg next = segment(p, LISTENS, TCP_ACK | TCP_PSH);

        if (r->len != 0 && r->seq == 0 && r->flags & TCP_ACK)
                next.seq += r->len; /* the row's own data was taken */
        next.len = 1;
        p->answers = p->resets = 0;
        send_segment(p, &next);
        pass(p, 600 * NS_PER_MS);
        return p->answers != 0 && p->resets == 0 && p->last.ack - next.seq - 1 < 1000;
}

static void try_row(const struct row *r, bool lwip, enum answer *answer, enum life *life)
{
        struct probe p = probe_new(lwip);
        struct tcp_seg seg;

        if (r->state == IN_ESTABLISHED || r->state == IN_SYN_RECEIVED)
                handshake(&p, r->state == IN_ESTABLISHED);
        seg = segment(&p, r->state == IN_CLOSED ? CLOSED : LISTENS, r->flags);
        seg.seq += (uint32_t)r->seq;
        seg.ack = r->flags & TCP_ACK ? seg.ack + (uint32_t)r->ack : 0;
        seg.len = r->len;
        seg.urg = r->flags & TCP_URG ? 1 : 0;
        p.answers = p.resets = 0;
        send_segment(&p, &seg);
        pass(&p, 600 * NS_PER_MS);
        *answer = p.resets != 0 ? RESETS : p.answers != 0 ? ACKS : SILENT;
        *life = is_alive(&p, r) ? LIVES : DIES;
        probe_free(&p);
}

static unsigned compare(const struct row *r, bool lwip, enum answer answer, enum life life)
{
        enum answer want = lwip ? r->lwips.answer : r->ours.answer;
        enum life then = lwip ? r->lwips.life : r->ours.life;
        static const char *const states[] = {"ESTABLISHED", "SYN-RECEIVED", "LISTEN", "CLOSED"};

        if (answer == want && life == then)
                return 0;
        print_error("%s, %s: %s %s and %s; the table says it %s and %s\n", states[r->state],
                    r->what, lwip ? "lwIP" : "our stack", answer_name[answer],
                    life == LIVES ? "lives on" : "is gone", answer_name[want],
                    then == LIVES ? "lives on" : "is gone");
        return 1;
}

static void answers_are_those_of_the_table(void **state)
{
        unsigned bad = 0;

        for (size_t i = 0; i < ARRAY_LEN(table); i++) {
                const struct row *r = &table[i];
                bool differ = r->ours.answer != r->lwips.answer || r->ours.life != r->lwips.life;
                for (int lwip = 0; lwip < 2; lwip++) {
                        enum answer answer;
                        enum life life;
                        try_row(r, lwip, &answer, &life);
                        bad += compare(r, lwip, answer, life);
                }
                assert_int_equal(differ, r->why != NULL);
        }
        assert_int_equal(bad, 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(answers_are_those_of_the_table),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
