/*
 * The vocabulary of scenarios: what the application does, what arrives, what leaves, and when.
 * packetdrill's words.
 *
 *      app_writes(s, 4000);
 *      expect_sent(s, .seq = 1, .len = 1000, .ack = 1);
 *      advance_ms(s, 100);
 *      peer_sends(s, .seq = 1, .ack = 1001);
 *      expect_silence(s);
 *
 * One TCP (tests/tcp/rig.h) in virtual time with a scripted peer. Sequence numbers are relative:
 * the SYN of each side is 0, its first byte 1; absolute ones start shortly below 2^32, so that
 * every scenario wraps around.
 *
 * What leaves stands in a line until a scenario expects it, in order. In expect_sent() a field that
 * is not given is not looked at, but for these: len, nsack and ecn are 0, flags are ACK (PSH is
 * never looked at). In peer_sends() flags are ACK, wnd is the window of the scene, and bytes of
 * payload are what their sequence number says (scene_byte()).
 *
 * A setup function for CMocka puts a connection into each state; struct scene_setup says how.
 */
#ifndef TESTS_SCENE_H
#define TESTS_SCENE_H

#include "tests/tcp/rig.h"

#define SCENE_ISS 0xfffffc00u /* our SYN */
#define SCENE_IRS 0xfffffe00u /* the peer's */
#define SCENE_MSS 1000u

struct scene_setup {
        uint16_t mss;   /* of the link and in the peer's SYN; 0: SCENE_MSS */
        uint16_t wnd;   /* what the peer offers, unscaled; 0: 65535 */
        uint8_t wscale; /* of the peer; 0: no option */
        bool sack, ts, lossless, reno, nagle;
        uint32_t rcvbuf, sndbuf;
        uint32_t user_timeout_ms;
        bool keepalive;
        uint8_t ecn; /* enum tcp_ecn; not 0: by the setups it is agreed upon */
        bool dctcp;  /* instead of CUBIC; with ecn */
        /* Most not 0: the window is by credit, of so many bytes to begin with. */
        uint32_t credit, most;
};

struct scene_packet {
        nstime at;
        struct tcp_seg seg;
        bool reply; /* by t.reply: of no connection */
};

struct scene {
        struct rig *rig;
        struct tcp_conn *tc; /* NULL until there is one */
        uint32_t conn, listener;
        struct scene_setup setup;
        struct tcp_tuple tuple;
        struct tcp_link link;
        struct tcp_opts opts;
        nstime now;
        uint16_t wnd;   /* that peer_sends() offers by itself */
        uint32_t tsval; /* the peer's clock, when timestamps are on: milliseconds */
        uint64_t written, read;
        struct scene_packet sent[256];
        unsigned head, tail; /* sent[head .. tail-1] left and were not expected yet */
        struct tcp_seg last; /* what expect_sent() saw last */
};

/* What arrives. Payload is made up from seq. */
struct scene_in {
        uint32_t seq, ack, len;
        uint8_t flags; /* 0: ACK */
        uint16_t wnd;
        bool zero_wnd;
        uint16_t mss, urg;
        uint8_t wscale; /* on a SYN; 0: absent */
        bool sack_ok;
        uint8_t nsack;
        struct tcp_sack_block sack[TCP_MAX_SACK]; /* relative */
        bool has_ts;
        uint32_t tsval, tsecr;
        bool no_ack, no_ts;
        uint8_t ecn;   /* IP's bits */
        bool unsummed; /* payload, of which there is some, in one piece with the header; */
        bool corrupt;  /* ... and a bit of it is wrong */
        uint8_t fastopen, cookie[TCP_MAX_COOKIE]; /* on a SYN, as in struct tcp_seg */
        bool fastopen_old;
};

/* What should leave. */
struct scene_out {
        uint32_t seq, ack, len;
        uint8_t flags; /* 0: ACK */
        uint32_t wnd;  /* as on the wire */
        bool zero_wnd, is_reply;
        uint16_t mss, urg;
        uint8_t nsack;
        struct tcp_sack_block sack[TCP_MAX_SACK];
        uint8_t ecn;
};

#define peer_sends(s, ...) scene_peer_sends((s), &(struct scene_in){__VA_ARGS__})
#define expect_sent(s, ...) \
        scene_expect_sent((s), &(struct scene_out){__VA_ARGS__}, __FILE__, __LINE__)
#define expect_silence(s)       scene_expect_silence((s), __FILE__, __LINE__)
#define app_writes(s, n)        scene_app_writes((s), (n), 0, __FILE__, __LINE__)
#define app_writes_more(s, n)   scene_app_writes((s), (n), 1, __FILE__, __LINE__)
#define app_writes_urgent(s, n) scene_app_writes((s), (n), 2, __FILE__, __LINE__)
#define app_reads(s, n)         scene_app_reads((s), (n), __FILE__, __LINE__)
#define expect_state(s, st)     scene_expect_state((s), (st), __FILE__, __LINE__)
#define expect_poll(s, ev)      scene_expect_poll((s), (ev), __FILE__, __LINE__)

void scene_peer_sends(struct scene *s, const struct scene_in *in);
void scene_expect_sent(struct scene *s, const struct scene_out *out, const char *file, int line);
void scene_expect_silence(struct scene *s, const char *file, int line);
/* how: 0 plain, 1 more follows, 2 last byte urgent. Everything must fit into the buffer. */
void scene_app_writes(struct scene *s, uint32_t n, int how, const char *file, int line);
/* Reads exactly n bytes that were received, and checks them; 0: expects end of stream. */
void scene_app_reads(struct scene *s, uint32_t n, const char *file, int line);
void scene_expect_state(struct scene *s, enum tcp_state st, const char *file, int line);
void scene_expect_poll(struct scene *s, short ev, const char *file, int line);

void app_shuts_send(struct scene *s);
void app_shuts_recv(struct scene *s);
void app_closes(struct scene *s);
void app_aborts(struct scene *s);
/* Takes the first connection of the listener; the scene is about it from then on. */
void app_accepts(struct scene *s);
/* tcp_connect(); the scene is about it from then on. What leaves is to be expected. */
void app_connects(struct scene *s);
void app_sets(struct scene *s);                  /* s->opts on the live connection */
int app_grants(struct scene *s, uint32_t bytes); /* as tcp_window_grant() */
void turn_ends(struct scene *s); /* the stack is about to wait: delayed ACKs go (lossless links) */
void advance_ms(struct scene *s, uint32_t ms);
void forget_sent(struct scene *s); /* what left so far does not matter */
uint8_t scene_byte(uint32_t rel_seq);

/* ---- setups: *state is a struct scene_setup from the test's initial state, or NULL; becomes the
 * scene ---- */

int scene_blank(void **state); /* no connection */
int listening(void **state);
int syn_sent(void **state);     /* the SYN has been expected */
int syn_received(void **state); /* by a listener */
int established(void **state);  /* opened by us */
int accepted(void **state);     /* opened by the peer */
int fin_wait_1(void **state);
int fin_wait_2(void **state);
int close_wait(void **state);
int closing(void **state);
int last_ack(void **state);
int time_wait(void **state);
/* Fails when something left that nobody expected, or when anything is in use after the connection
 * is gone. */
int scene_end(void **state);

/* What tcp_get_report() says. */
void expect_told(const struct scene *s, enum tcp_state state, bool syn_data);

#endif
