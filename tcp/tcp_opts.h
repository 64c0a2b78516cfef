/*
 * What a connection is to be like, as an application asks for it; a listener's connections inherit
 * its own.
 */
#ifndef TCP_TCP_OPTS_H
#define TCP_TCP_OPTS_H

#include "ip/ip_opts.h"
#include "base/base.h"

struct tcp;
struct tcp_conn;
struct tcp_link;

/* When asked; never; always, and asks (Linux's tcp_ecn 2, 0, 1). */
enum tcp_ecn { TCP_ECN_ACCEPT, TCP_ECN_NO, TCP_ECN_ASK };

enum { /* RFC 7413 */
       /* connecting: a cookie is asked for, and with one data goes in the SYN. */
       TCP_FASTOPEN_USE = 1,
       TCP_FASTOPEN_BARE = 2,  /* data goes, and is taken, without a cookie */
       TCP_FASTOPEN_SERVE = 4, /* a listener: fastopen_most holds */
       TCP_FASTOPEN_MORE = 8,  /* from here on the bits are the socket layer's */
};
#define TCP_FASTOPEN_KEYS 2 /* as many as Linux has: the old one is good for a while */

struct tcp_opts { /* of one connection; a listener's are inherited */
        /* What each message looks at is first: struct tcp_conn has it in one line. */
        uint32_t rcvbuf, sndbuf; /* bytes; 0: sizes itself */
        uint32_t notsent_lowat;  /* TCP_NOTSENT_LOWAT, bytes, 0: off */
        uint32_t unsent_most;    /* never more accepted and unsent, to the byte; 0: no such limit */
        /* An acknowledgement waits no longer; 0: as long as it does by itself. */
        uint32_t ack_delay_us;
        /* Bytes that are acknowledged at once, and no fewer before their time; 0: tcp_delack.c. */
        uint32_t ack_every;
        uint16_t maxseg; /* TCP_MAXSEG, 0: the link's */
        uint8_t quickack, tos, ttl;
        /* Segments with a smaller TTL are dropped: they come from farther away than the peer (RFC
         * 5082); 0: all are taken. */
        uint8_t min_ttl;
        struct ip_optbuf ip_opts; /* IP options of all that is sent; segments are so much shorter.
                                   * Not inherited: a connection that was opened from outside has
                                   * what answers its SYN's */
        uint8_t nodelay, cork, keepalive, oobinline;
        uint8_t cc; /* enum of tcp_cc.h; see tcp_cc_lookup() */
        uint8_t syncnt, keepcnt;
        uint8_t no_timestamps, no_sack, no_wscale;
        uint8_t ecn;       /* enum tcp_ecn */
        uint8_t reuseport; /* SO_REUSEPORT: a listener shares its port with others that say so */
        uint8_t credit; /* the window is what was granted (tcp_window_grant()), whatever is read */
        uint8_t save_syn; /* TCP_SAVE_SYN: 1; 2: with the link's header */
        int32_t linger_s; /* -1 off; 0 reset on close; else seconds (the socket layer waits) */
        uint32_t keepidle_s, keepintvl_s;
        uint32_t user_timeout_ms; /* 0: R2 of RFC 1122 §4.2.3.5 */
        uint32_t fin_wait2_s;     /* TCP_LINGER2 */
        uint32_t window_clamp;    /* bytes, 0: none */
        uint64_t max_pacing_rate; /* bytes a second, 0: none */
        uint32_t defer_accept_s;
        /* The largest that is ever offered, which the scale is chosen for; 0: what the buffer
         * may become. */
        uint32_t window_most;
        uint32_t window_first; /* with credit: what a connection has to begin with */
        uint32_t send_window;  /* no more in flight, whatever the peer offers; 0: no such limit */
        uint32_t rto_min_us, rto_max_ms; /* 0: the link's; RFC 6298's */
        /* Bytes that may leave back to back where there is a rate; 0: tcp_pace.c. */
        uint32_t pace_burst;
        /* Of a listener: connections that a SYN opened and nobody confirmed; 0: none is
         * opened so. */
        uint32_t fastopen_most;
        uint8_t fastopen; /* TCP_FASTOPEN_* */
        /* Of a listener: how many of the next; 0: the stack's own is the only one. */
        uint8_t fastopen_keys;
        uint8_t fastopen_key[TCP_FASTOPEN_KEYS][16]; /* the first makes cookies, each is good */
};

void tcp_opts_default(struct tcp_opts *o);
/* Changes the options of a live connection; takes effect at once where it can (nodelay and uncork
 * push data out). */
void tcp_set_opts(struct tcp *t, struct tcp_conn *tc, const struct tcp_opts *o, nstime now);
void tcp_get_opts(const struct tcp_conn *tc, struct tcp_opts *o);

/* Bounds of opts.rto_min_us; as Linux, but for its jiffies. */
#define TCP_RTO_MIN_LEAST  NS_PER_MS
#define TCP_RTO_MIN_MOST   (200 * NS_PER_MS)
#define TCP_RTO_MOST_LEAST NS_PER_S /* ... and opts.rto_max_ms */
#define TCP_RTO_MOST_MOST  (120 * NS_PER_S)
#define TCP_ACK_DELAY_MOST (200 * NS_PER_MS) /* ... and opts.ack_delay_us */
/* Bounds of the retransmission timeout as they hold: of the options, else ours. */
nstime tcp_rto_least(const struct tcp_opts *o, const struct tcp_link *link);
nstime tcp_rto_most(const struct tcp_opts *o);

#endif
