/* ICMP: echo, errors about what we sent, errors about what we got. RFC 792, RFC 1122 §3.2.2. */
#include <errno.h>

#include "ip/icmp.h"
#include "ip/ping.h"
#include "tests/ip/packet.h"
#include "tests/unit.h"

#define ANY_PORT 5201u

static int setup(void **state)
{
        *state = lent_frames();
        return 0;
}

static int teardown(void **state)
{
        free_lent_frames(*state);
        return 0;
}

static void fix_icmp_sum(uint8_t *p, size_t n)
{
        be16 sum = {0};

        memcpy(p + 2, &sum, 2);
        sum = csum_finish(csum_partial(p, n, 0));
        memcpy(p + 2, &sum, 2);
}

static enum drop receive(struct frames *f, const struct unet_rx *rx, struct ip_pkt *pkt,
                         struct icmp_msg *msg)
{
        enum drop why = ip_rx(&wire, CHAN, rx, pkt);

        return why != DROP_NONE ? why : icmp_rx(f, pkt, true, msg);
}

/* ---- echo ---- */

static void echo_request(uint8_t *p, size_t n)
{
        for (size_t i = 0; i < n; i++)
                p[i] = (uint8_t)i;
        p[0] = ICMP_ECHO_REQUEST;
        p[1] = 0;
        put16(p + 4, 0xabcd);
        put16(p + 6, 7);
        fix_icmp_sum(p, n);
}

/* RFC 1122 §3.2.2.6: the same data, wherever the provider put it. */
static void an_echo_is_answered_with_the_same_data(void **state)
{
        static const struct {
                uint32_t len, in_frame;
        } table[] = {{8, 0},  {9, 0},       {64, 0},      {64, 56},
                     {64, 3}, {1480, 1472}, {1481, 1473}, {1480, 1477}};
        uint8_t req[1500], reply[1500];

        for (size_t i = 0; i < ARRAY_LEN(table); i++) {
                struct ip_pkt pkt;
                struct icmp_msg msg;
                struct unet_rx rx;

                echo_request(req, table[i].len);
                req[1] = (uint8_t)i; /* RFC 792 knows code 0 only; as Linux, what came goes back */
                fix_icmp_sum(req, table[i].len);
                rx = ip_build(*state, .proto = IP_PROTO_ICMP, .payload = req, .len = table[i].len,
                              .in_frame = table[i].in_frame);
                assert_int_equal(receive(*state, &rx, &pkt, &msg), DROP_NONE);
                assert_int_equal(msg.what, ICMP_IS_ECHO);
                assert_int_equal(msg.id, 0xabcd);
                assert_int_equal(msg.seq, 7);
                icmp_echo_reply(*state, &pkt, reply);
                assert_int_equal(reply[0], ICMP_ECHO_REPLY);
                assert_int_equal(reply[1], i);
                assert_int_equal(csum_finish(csum_partial(reply, table[i].len, 0)).raw, 0);
                assert_memory_equal(reply + 4, req + 4, table[i].len - 4);
        }
}

static void an_echo_reply_is_for_whoever_asked(void **state)
{
        uint8_t p[16];
        struct ip_pkt pkt;
        struct icmp_msg msg;
        struct unet_rx rx;

        echo_request(p, sizeof p);
        p[0] = ICMP_ECHO_REPLY;
        fix_icmp_sum(p, sizeof p);
        rx = ip_build(*state, .proto = IP_PROTO_ICMP, .payload = p, .len = sizeof p);
        assert_int_equal(receive(*state, &rx, &pkt, &msg), DROP_NONE);
        assert_int_equal(msg.what, ICMP_IS_REPLY);
}

static void short_corrupt_and_unknown_messages_are_dropped(void **state)
{
        uint8_t p[16];
        struct ip_pkt pkt;
        struct icmp_msg msg;
        struct unet_rx rx;

        echo_request(p, sizeof p);
        for (uint32_t len = 1; len < 8; len++) {
                rx = ip_build(*state, .proto = IP_PROTO_ICMP, .payload = p, .len = len);
                assert_int_equal(receive(*state, &rx, &pkt, &msg), DROP_ICMP_SHORT);
        }
        p[9] ^= 1;
        rx = ip_build(*state, .proto = IP_PROTO_ICMP, .payload = p, .len = sizeof p, .in_frame = 7);
        assert_int_equal(receive(*state, &rx, &pkt, &msg), DROP_ICMP_CHECKSUM);
        for (unsigned type = 0; type < 256; type++) {
                bool known = type == 0 || type == 3 || type == 4 || type == 5 || type == 8 ||
                             type == 11 || type == 12 || type == 13;

                echo_request(p, sizeof p);
                p[0] = (uint8_t)type;
                fix_icmp_sum(p, sizeof p);
                rx = ip_build(*state, .proto = IP_PROTO_ICMP, .payload = p, .len = sizeof p);
                if (!known)
                        assert_int_equal(receive(*state, &rx, &pkt, &msg), DROP_ICMP_IGNORED);
        }
}

/* ---- errors about what we sent ---- */

/* An error that quotes the first `n` bytes of a TCP packet from us to FAR. */
static uint32_t quote_ours(uint8_t *p, uint8_t type, uint8_t code, uint32_t second_word, uint32_t n)
{
        struct unet_rx ours =
                ip_build(NULL, .src = US, .dst = FAR, .proto = IP_PROTO_TCP,
                         .payload = "\x14\x51\x9c\x40\x01\x02\x03\x04xxxxxxxx", .len = 16);

        memset(p, 0, ICMP_HDR);
        p[0] = type;
        p[1] = code;
        put32(p + 4, second_word);
        memcpy(p + ICMP_HDR, ours.inl, n);
        fix_icmp_sum(p, ICMP_HDR + n);
        return ICMP_HDR + n;
}

static void errors_name_the_connection_and_its_errno(void **state)
{
        static const struct {
                uint8_t type, code;
                int err;
                bool hard;
        } table[] = {
                {3, 0, ENETUNREACH, false},   {3, 1, EHOSTUNREACH, false},
                {3, 2, ENOPROTOOPT, true},    {3, 3, ECONNREFUSED, true},
                {3, 4, EMSGSIZE, true},       {3, 5, EOPNOTSUPP, false},
                {3, 6, ENETUNREACH, true},    {3, 7, EHOSTDOWN, true},
                {3, 8, ENONET, true},         {3, 9, ENETUNREACH, true},
                {3, 10, EHOSTUNREACH, true},  {3, 11, ENETUNREACH, false},
                {3, 12, EHOSTUNREACH, false}, {3, 13, EHOSTUNREACH, true},
                {3, 14, EHOSTUNREACH, true},  {3, 15, EHOSTUNREACH, true},
                {3, 16, EHOSTUNREACH, false}, {4, 0, 0, false},
                {11, 0, EHOSTUNREACH, false}, {11, 1, EHOSTUNREACH, false},
                {12, 0, EPROTO, true},
        };

        for (size_t i = 0; i < ARRAY_LEN(table); i++) {
                uint8_t p[64];
                uint32_t len = quote_ours(p, table[i].type, table[i].code, 1400, 28);
                struct unet_rx rx =
                        ip_build(*state, .src = FAR, .proto = IP_PROTO_ICMP, .payload = p,
                                 .len = len, .in_frame = i % 2 ? len - 8 : 0);
                struct ip_pkt pkt;
                struct icmp_msg msg;

                assert_int_equal(receive(*state, &rx, &pkt, &msg), DROP_NONE);
                assert_int_equal(msg.what, ICMP_IS_ERROR);
                assert_int_equal(msg.err.err, table[i].err);
                assert_int_equal(msg.err.hard, table[i].hard);
                assert_int_equal(msg.err.proto, IP_PROTO_TCP);
                assert_int_equal(ip_addr_get_v4(msg.err.laddr), US);
                assert_int_equal(ip_addr_get_v4(msg.err.raddr), FAR);
                assert_int_equal(msg.err.lport, ANY_PORT);
                assert_int_equal(msg.err.rport, 40000);
                assert_int_equal(msg.err.seq, 0x01020304);
                assert_int_equal(msg.err.mtu, table[i].type == 3 && table[i].code == 4 ? 1400 : 0);
        }
}

/* RFC 792 promises 8 bytes behind the header; less names nobody. */
static void a_quote_that_is_too_short_is_dropped(void **state)
{
        for (uint32_t n = 0; n < 28; n++) {
                uint8_t p[64];
                uint32_t len = quote_ours(p, ICMP_UNREACHABLE, ICMP_PORT_UNREACHABLE, 0, n);
                struct unet_rx rx =
                        ip_build(*state, .proto = IP_PROTO_ICMP, .payload = p, .len = len);
                struct ip_pkt pkt;
                struct icmp_msg msg;

                assert_int_equal(receive(*state, &rx, &pkt, &msg), DROP_ICMP_SHORT);
        }
}

static void a_quoted_later_fragment_names_nobody(void **state)
{
        uint8_t p[64];
        uint32_t len = quote_ours(p, ICMP_TIME_EXCEEDED, 1, 0, 28);
        struct ip_pkt pkt;
        struct icmp_msg msg;
        struct unet_rx rx;

        p[ICMP_HDR + 7] = 1;
        fix_icmp_sum(p, len);
        rx = ip_build(*state, .proto = IP_PROTO_ICMP, .payload = p, .len = len);
        assert_int_equal(receive(*state, &rx, &pkt, &msg), DROP_ICMP_IGNORED);
}

/* ---- errors about what we got ---- */

static void no_error_about_errors_groups_or_fragments(void **state)
{
        static const uint8_t echo[8] = {ICMP_ECHO_REQUEST}, err[8] = {ICMP_UNREACHABLE},
                             odd[8] = {200};
        const struct {
                struct ip_spec spec;
                bool may;
        } table[] = {
                {{.payload = echo, .len = 8}, true},
                {{.payload = echo, .len = 8, .proto = IP_PROTO_ICMP}, true},
                {{.payload = err, .len = 8, .proto = IP_PROTO_ICMP}, false},
                {{.payload = odd, .len = 8, .proto = IP_PROTO_ICMP}, false},
                {{.proto = IP_PROTO_ICMP}, false},
                {{.payload = echo, .len = 8, .frag = 0x2000}, true},
                {{.payload = echo, .len = 8, .frag = 0x0001}, false},
                {{.payload = echo, .len = 8, .dst = 0x0a0000ff}, false},
                {{.payload = echo, .len = 8, .dst = 0xffffffff}, false},
                {{.payload = echo, .len = 8, .dst = 0xe0000001}, false},
                {{.payload = echo, .len = 8, .src = 0xe0000001}, false},
                {{.payload = echo, .len = 8, .src = 0x0a0000ff}, false},
                {{.payload = echo, .len = 8, .src = 0x00000005}, false},
                {{.payload = echo, .len = 8, .src = 0x7f000001}, false},
        };

        for (size_t i = 0; i < ARRAY_LEN(table); i++) {
                struct unet_rx rx = ip_build_spec(*state, table[i].spec);
                struct ip_pkt pkt;

                ip_rx(&wire, CHAN, &rx, &pkt);
                assert_int_equal(icmp_may_answer(&wire, &pkt), table[i].may);
        }
}

/* What we write about a packet of the peer, the peer reads as an error about its own. */
static void an_error_of_ours_is_understood_by_its_receiver(void **state)
{
        static uint8_t payload[1400] = "\x9c\x40\x14\x51\x00\x20\x00\x00";
        static const size_t rooms[] = {36, 60, 212, 232, 576, 1500};

        for (size_t i = 0; i < ARRAY_LEN(rooms); i++) {
                struct unet_rx rx = ip_build(*state, .payload = payload, .len = 1400,
                                             .in_frame = 1392),
                               back;
                struct ip_pkt pkt;
                struct icmp_msg msg;
                uint8_t out[1500];
                unsigned len;

                assert_int_equal(ip_rx(&wire, CHAN, &rx, &pkt), DROP_NONE);
                len = icmp_error_write(*state, &pkt, ICMP_UNREACHABLE, ICMP_PORT_UNREACHABLE, 0,
                                       out, rooms[i]);
                assert_int_equal(len, MIN(rooms[i], 556));
                assert_memory_equal(out + 8, rx.inl, 20); /* RFC 1122: as received */
                assert_memory_equal(out + 28, payload, len - 28);
                back = ip_build(*state, .proto = IP_PROTO_ICMP, .payload = out, .len = len,
                                .in_frame = len - 8);
                assert_int_equal(receive(*state, &back, &pkt, &msg), DROP_NONE);
                assert_int_equal(msg.err.err, ECONNREFUSED);
                assert_int_equal(msg.err.lport, 40000);
                assert_int_equal(msg.err.rport, ANY_PORT);
        }
}

static void the_second_word_carries_mtu_and_pointer(void **state)
{
        struct unet_rx rx = ip_build(*state, .payload = "12345678", .len = 8);
        struct ip_pkt pkt;
        uint8_t out[64];

        assert_int_equal(ip_rx(&wire, CHAN, &rx, &pkt), DROP_NONE);
        icmp_error_write(*state, &pkt, ICMP_UNREACHABLE, ICMP_FRAG_NEEDED, 1400, out, sizeof out);
        assert_memory_equal(out + 4, "\0\0\x05\x78", 4);
        icmp_error_write(*state, &pkt, ICMP_PARAMETER_PROBLEM, 0, 20u << 24, out, sizeof out);
        assert_memory_equal(out + 4, "\x14\0\0\0", 4);
}

/* ---- requests and advice that a host is careful with ---- */

/* RFC 1122 §3.2.2.6: nobody makes a flood of answers by asking all. */
static void requests_to_many_are_ignored(void **state)
{
        static const uint32_t many[] = {0xffffffff, 0x0a0000ff, 0xe0000001};

        for (size_t i = 0; i < ARRAY_LEN(many); i++) {
                uint8_t p[20];
                struct ip_pkt pkt;
                struct icmp_msg msg;
                struct unet_rx rx;

                echo_request(p, sizeof p);
                rx = ip_build(*state, .proto = IP_PROTO_ICMP, .dst = many[i], .payload = p,
                              .len = sizeof p);
                assert_int_equal(receive(*state, &rx, &pkt, &msg), DROP_ICMP_IGNORED);
        }
}

/* RFC 1122 §3.2.2.2: from the first hop of now, to a gateway on our network. */
static void redirects_are_judged(void **state)
{
        static const uint32_t hop = 0x0a0000fe;
        const struct {
                uint32_t from, gateway, dst, laddr;
                bool good;
        } table[] = {
                {hop, 0x0a0000fd, FAR, US, true},
                {PEER, 0x0a0000fd, FAR, US, false}, /* from somebody else */
                {hop, 0x0b0000fd, FAR, US, false},  /* to somewhere else */
                {hop, US, FAR, US, false},          /* to us */
                {hop, hop, FAR, US, false},         /* to where it goes already */
                {hop, 0x0a0000ff, FAR, US, false},
                {hop, 0x0a0000fd, US, US, false},
                {hop, 0x0a0000fd, 0xe8000001, US, false}, /* of a group */
                {hop, 0x0a0000fd, FAR, PEER, false},      /* of a packet that was not ours */
        };

        for (size_t i = 0; i < ARRAY_LEN(table); i++) {
                struct unet_rx ours = ip_build(NULL, .src = table[i].laddr, .dst = table[i].dst,
                                               .payload = "12345678", .len = 8);
                uint8_t p[36] = {ICMP_REDIRECT, 1};
                struct ip_pkt pkt;
                struct icmp_msg msg;
                struct unet_rx rx;

                put32(p + 4, table[i].gateway);
                memcpy(p + 8, ours.inl, 28);
                fix_icmp_sum(p, sizeof p);
                rx = ip_build(*state, .src = table[i].from, .proto = IP_PROTO_ICMP, .payload = p,
                              .len = sizeof p);
                assert_int_equal(receive(*state, &rx, &pkt, &msg), DROP_NONE);
                assert_int_equal(msg.what, ICMP_IS_REDIRECT);
                assert_int_equal(ip_addr_get_v4(msg.redirect.gateway), table[i].gateway);
                assert_int_equal(icmp_redirect_ok(&wire, &msg.redirect, hop), table[i].good);
        }
}

/* RFC 1122 §3.2.2: not about what came as a link-layer broadcast. */
static void no_error_about_link_broadcasts(void **state)
{
        struct unet_rx rx = ip_build(*state, .payload = "12345678", .len = 8);
        struct ip_host host = wire;
        struct ip_pkt pkt;

        host.link_cast = true;
        assert_int_equal(ip_rx(&host, CHAN, &rx, &pkt), DROP_IP_LINK_CAST);
        assert_false(icmp_may_answer(&host, &pkt));
}

/* RFC 1812 §4.3.2.8: one destination gets a few, then one a second; all together their rate. */
static void errors_are_limited_by_peer_and_in_all(void **state)
{
        struct icmp_rate *r = malloc(sizeof *r);
        struct prng rnd;
        nstime now = NS_PER_S;
        int n = 0;

        prng_init(&rnd, (const uint8_t *)"0123456789abcdef");
        icmp_rate_init(r, &rnd);
        while (icmp_rate_take(r, &rnd, ip_addr_v4(PEER), ICMP_UNREACHABLE, now))
                n++;
        assert_int_equal(n, ICMP_PEER_BURST);
        /* Each type for itself. */
        assert_true(icmp_rate_take(r, &rnd, ip_addr_v4(PEER), ICMP_TIME_EXCEEDED, now));
        now += ICMP_PEER_INTERVAL;
        assert_true(icmp_rate_take(r, &rnd, ip_addr_v4(PEER), ICMP_UNREACHABLE, now));
        assert_false(icmp_rate_take(r, &rnd, ip_addr_v4(PEER), ICMP_UNREACHABLE, now));
        n = 0;
        for (uint32_t i = 0; i < 10000;
             i++) /* a scan from made-up sources, for a tenth of a second */
                n += icmp_rate_take(r, &rnd, ip_addr_v4(0x0b000000 + i), ICMP_UNREACHABLE,
                                    now += NS_PER_MS / 100);
        assert_in_range(n, 40, ICMP_BURST + 100);
        free(r);
}

/* All together: a burst, and then a token each interval. How many of them an error takes is what a
 * twin of the generator tells. */
static void the_bucket_gives_a_burst_and_then_its_rate(void **state)
{
        struct icmp_rate *r = malloc(sizeof *r);
        struct prng rnd, twin;
        uint32_t peer = 0x0b000000, taken = 0, given = 0;

        prng_init(&rnd, (const uint8_t *)"0123456789abcdef");
        icmp_rate_init(r, &rnd);
        twin = rnd;
        while (given < 200) {
                nstime now = NS_PER_S + given * ICMP_INTERVAL;
                uint32_t n = 1 + prng_below(&twin, 3);
                bool may = taken - given < ICMP_BURST;

                assert_int_equal(icmp_rate_take(r, &rnd, ip_addr_v4(peer++), ICMP_UNREACHABLE, now),
                                 may);
                if (may)
                        taken += n;
                else
                        given++; /* by the next time */
        }
        assert_in_range(taken, ICMP_BURST + given - 1, ICMP_BURST + given + 1);
        free(r);
}

/* ---- asking ---- */

static void a_reply_finds_its_request(void **state)
{
        struct prng rnd;
        struct ping p;
        uint32_t seq;
        nstime rtt;

        prng_init(&rnd, (const uint8_t *)"0123456789abcdef");
        ping_init(&p, ip_addr_v4(PEER), &rnd);
        p.next = 65500; /* the number on the wire comes round */
        for (uint32_t i = 0; i < 100; i++) {
                uint8_t req[ICMP_HDR + 56], reply[sizeof req];
                struct unet_rx rx;
                struct ip_pkt pkt;
                struct icmp_msg msg;

                assert_int_equal(ping_request(&p, req, 56, 1000 * (i + 1)), 65500 + i);
                rx = ip_build(*state, .proto = IP_PROTO_ICMP, .payload = req, .len = sizeof req,
                              .in_frame = i % 60);
                assert_int_equal(receive(*state, &rx, &pkt, &msg), DROP_NONE);
                assert_int_equal(msg.what, ICMP_IS_ECHO);
                icmp_echo_reply(*state, &pkt, reply);
                rx = ip_build(*state, .proto = IP_PROTO_ICMP, .payload = reply, .len = sizeof reply,
                              .in_frame = i % 60);
                assert_int_equal(receive(*state, &rx, &pkt, &msg), DROP_NONE);
                assert_int_equal(
                        ping_reply(&p, *state, &pkt, &msg, 1000 * (i + 1) + 77, &seq, &rtt),
                        PING_REPLY);
                assert_int_equal(seq, 65500 + i);
                assert_int_equal(rtt, 77);
                assert_int_equal(
                        ping_reply(&p, *state, &pkt, &msg, 1000 * (i + 1) + 99, &seq, &rtt),
                        PING_DUPLICATE);
                msg.id++;
                assert_int_equal(ping_reply(&p, *state, &pkt, &msg, 0, &seq, &rtt), PING_NOT_OURS);
                msg.id--;
                pkt.src = ip_addr_v4(FAR);
                assert_int_equal(ping_reply(&p, *state, &pkt, &msg, 0, &seq, &rtt), PING_NOT_OURS);
                pkt.src = ip_addr_v4(PEER);
                p.cookie++; /* bytes that we did not send */
                assert_int_equal(ping_reply(&p, *state, &pkt, &msg, 0, &seq, &rtt), PING_NOT_OURS);
                p.cookie--;
                msg.seq++;
                assert_int_equal(ping_reply(&p, *state, &pkt, &msg, 0, &seq, &rtt), PING_NOT_OURS);
        }
        assert_int_equal(p.replies, 100);
        assert_int_equal(p.duplicates, 100);
        assert_int_equal(p.min, 77);
        assert_int_equal(p.max, 77);
}

static void an_error_finds_its_request_too(void **state)
{
        struct prng rnd;
        struct ping p;
        uint8_t req[ICMP_HDR], err[64] = {ICMP_TIME_EXCEEDED};
        struct unet_rx rx;
        struct ip_pkt pkt;
        struct icmp_msg msg;
        uint32_t seq = 99;

        prng_init(&rnd, (const uint8_t *)"0123456789abcdef");
        ping_init(&p, ip_addr_v4(FAR), &rnd);
        ping_request(&p, req, 0, 1);
        ping_request(&p, req, 0, 2);
        rx = ip_build(NULL, .src = US, .dst = FAR, .proto = IP_PROTO_ICMP, .payload = req,
                      .len = sizeof req);
        memcpy(err + 8, rx.inl, 28);
        fix_icmp_sum(err, 36);
        rx = ip_build(*state, .proto = IP_PROTO_ICMP, .payload = err, .len = 36);
        assert_int_equal(receive(*state, &rx, &pkt, &msg), DROP_NONE);
        assert_true(ping_error(&p, &msg.err, &seq));
        assert_int_equal(seq, 1);
        p.id++;
        assert_false(ping_error(&p, &msg.err, &seq));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(an_echo_is_answered_with_the_same_data),
                TEST(an_echo_reply_is_for_whoever_asked),
                TEST(short_corrupt_and_unknown_messages_are_dropped),
                TEST(errors_name_the_connection_and_its_errno),
                TEST(a_quote_that_is_too_short_is_dropped),
                TEST(a_quoted_later_fragment_names_nobody),
                TEST(no_error_about_errors_groups_or_fragments),
                TEST(an_error_of_ours_is_understood_by_its_receiver),
                TEST(the_second_word_carries_mtu_and_pointer),
                TEST(requests_to_many_are_ignored),
                TEST(redirects_are_judged),
                TEST(no_error_about_link_broadcasts),
                TEST(errors_are_limited_by_peer_and_in_all),
                TEST(the_bucket_gives_a_burst_and_then_its_rate),
                TEST(a_reply_finds_its_request),
                TEST(an_error_finds_its_request_too),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
