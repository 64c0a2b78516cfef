/* Options of IPPROTO_TCP: tcp(7). */
#include "sock/attach/user.h"
#include "sock/opt/usock_opt.h"
#include "tcp/tcp_cc.h"
#include "tcp/tcp_info.h"
#include "tcp/tcp_saved_syn.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <linux/inet_diag.h>
#include <linux/tcp.h>

#ifndef TCP_RTO_MAX_MS /* Linux 6.15 */
#define TCP_RTO_MAX_MS    44
#define TCP_RTO_MIN_US    45
#define TCP_DELACK_MAX_US 46
#endif

#define CC_NAME_BYTES 16u        /* TCP_CA_NAME_MAX */
#define NO_SSTHRESH   0x7fffffff /* Linux: TCP_INFINITE_SSTHRESH */

static int set_maxseg(struct opt_call *c, int v)
{
        if (v != 0 && (v < 88 || v > 32767)) /* Linux: TCP_MIN_MSS, MAX_TCP_WINDOW */
                return -EINVAL;
        c->tcp.maxseg = (uint16_t)v;
        return 0;
}

static int get_maxseg(const struct opt_call *c)
{
        if (opt_conn(c) != NULL && (opt_conn(c)->state != TCPS_CLOSED || c->tcp.maxseg == 0))
                return (int)opt_conn(c)->snd_mss;        /* what it was, when it is over */
        return c->tcp.maxseg != 0 ? c->tcp.maxseg : 536; /* RFC 9293 MUST-15 */
}

/* 0 means the default, more than two minutes is two minutes, and less than 0 is no FIN-WAIT-2
 * at all. */
static int set_linger2(struct opt_call *c, int v)
{
        struct tcp_opts def;

        tcp_opts_default(&def);
        c->tcp.fin_wait2_s = v < 0 ? 0 : v == 0 ? def.fin_wait2_s : (uint32_t)MIN(v, 120);
        return 0;
}

static int get_linger2(const struct opt_call *c)
{
        return c->tcp.fin_wait2_s != 0 ? (int)c->tcp.fin_wait2_s : -1;
}

/* Linux keeps it as a number of SYN-ACK retransmissions, which come after 1, 3, 7, ... seconds. */
static int set_defer_accept(struct opt_call *c, int v)
{
        int period = 1, at = 1;

        if (v <= 0) {
                c->tcp.defer_accept_s = 0;
                return 0;
        }
        for (int n = 1; at < v && n < UINT8_MAX; n++) {
                period = MIN(period * 2, 120);
                at += period;
        }
        c->tcp.defer_accept_s = (uint32_t)at;
        return 0;
}

static int get_defer_accept(const struct opt_call *c)
{
        return (int)c->tcp.defer_accept_s;
}

static int set_rto_min(struct opt_call *c, int v)
{
        if (v < TCP_RTO_MIN_LEAST / NS_PER_US || v > TCP_RTO_MIN_MOST / NS_PER_US)
                return -EINVAL;
        c->tcp.rto_min_us = (uint32_t)v;
        return 0;
}

/* What holds without a connection the link decides; then as Linux. */
static int get_rto_min(const struct opt_call *c)
{
        static const struct tcp_link usual;

        return (int)(tcp_rto_least(&c->tcp, opt_conn(c) != NULL ? &opt_conn(c)->link : &usual) /
                     NS_PER_US);
}

static int set_rto_max(struct opt_call *c, int v)
{
        if (v < TCP_RTO_MOST_LEAST / NS_PER_MS || v > TCP_RTO_MOST_MOST / NS_PER_MS)
                return -EINVAL;
        c->tcp.rto_max_ms = (uint32_t)v;
        return 0;
}

static int get_rto_max(const struct opt_call *c)
{
        return (int)(tcp_rto_most(&c->tcp) / NS_PER_MS);
}

static int set_delack_max(struct opt_call *c, int v)
{
        if (v < TCP_RTO_MIN_LEAST / NS_PER_US || v > TCP_ACK_DELAY_MOST / NS_PER_US)
                return -EINVAL;
        c->tcp.ack_delay_us = (uint32_t)v;
        return 0;
}

static int get_delack_max(const struct opt_call *c)
{
        return c->tcp.ack_delay_us != 0 ? (int)c->tcp.ack_delay_us
                                        : (int)(TCP_ACK_DELAY_MOST / NS_PER_US);
}

static int set_window_clamp(struct opt_call *c, int v)
{
        if (v == 0 && c->rec->role != SOCK_ROLE_NONE)
                return -EINVAL;
        c->tcp.window_clamp = v == 0 ? 0 : (uint32_t)MAX(v, (int)OPT_RCVBUF_MIN / 2);
        return 0;
}

static int get_window_clamp(const struct opt_call *c)
{
        return (int)c->tcp.window_clamp;
}

static int set_congestion(struct opt_call *c, const void *val, socklen_t len)
{
        char name[CC_NAME_BYTES] = "";
        int cc;

        memcpy(name, val, MIN(len, sizeof name - 1));
        cc = tcp_cc_lookup(name);
        if (cc < 0)
                return cc;
        c->tcp.cc = (uint8_t)cc;
        return 0;
}

static socklen_t get_congestion(const struct opt_call *c, void *val, socklen_t room)
{
        memset(val, 0, CC_NAME_BYTES);
        memccpy(val, tcp_cc_name(c->tcp.cc), '\0', CC_NAME_BYTES - 1);
        return CC_NAME_BYTES;
}

/* ---- TCP_INFO ---- */

/* What Linux has added behind tcpi_snd_wnd since 6.1, by whose headers this may be built. */
struct info_tail {
        uint32_t rcv_wnd, rehash;
        uint16_t total_rto, total_rto_recoveries;
        uint32_t total_rto_time, received_ce, accecn_bytes[6], accecn_modes;
};

#define INFO_OLD (offsetof(struct tcp_info, tcpi_snd_wnd) + sizeof(uint32_t))
static_assert(INFO_OLD + sizeof(struct info_tail) == OPT_TCP_INFO_BYTES &&
                      sizeof(struct tcp_info) <= OPT_TCP_INFO_BYTES,
              "TCP_INFO, Linux 6.18");

static uint8_t linux_state(enum tcp_state s)
{
        static const uint8_t of[] = {
                /* as in Linux's tcp_states.h */
                [TCPS_ESTABLISHED] = 1,
                [TCPS_SYN_SENT] = 2,
                [TCPS_SYN_RECEIVED] = 3,
                /* No socket's there: it is closed. */
                [TCPS_FIN_WAIT_1] = 4,
                [TCPS_FIN_WAIT_2] = 5,
                [TCPS_TIME_WAIT] = 7,
                [TCPS_CLOSED] = 7,
                [TCPS_CLOSE_WAIT] = 8,
                [TCPS_LAST_ACK] = 9,
                [TCPS_LISTEN] = 10,
                [TCPS_CLOSING] = 11,
        };

        assert((size_t)s < ARRAY_LEN(of));
        return of[s];
}

/* Linux counts windows in segments. */
static uint32_t segs(uint32_t bytes, uint32_t mss)
{
        return mss != 0 ? (uint32_t)(((uint64_t)bytes + mss - 1) / mss) : 0;
}

static uint32_t us(nstime t)
{
        return (uint32_t)MIN((t + NS_PER_US - 1) / NS_PER_US, (nstime)UINT32_MAX);
}

static uint32_t ms_since(nstime then, nstime now)
{
        return (uint32_t)MIN(MAX(now - then, 0) / NS_PER_MS, (nstime)UINT32_MAX);
}

static void info_shape(struct tcp_info *i, const struct tcp_conn *tc, const struct tcp_report *r)
{
        i->tcpi_state = linux_state(r->state);
        i->tcpi_ca_state = r->ca_state;
        i->tcpi_retransmits = r->backoff;
        i->tcpi_probes = r->probes;
        i->tcpi_backoff = r->backoff;
        i->tcpi_options =
                (uint8_t)((r->ts_ok ? TCPI_OPT_TIMESTAMPS : 0) | (r->sack_ok ? TCPI_OPT_SACK : 0) |
                          (tc->flags & TCF_WSCALE ? TCPI_OPT_WSCALE : 0) |
                          (r->ecn_ok ? TCPI_OPT_ECN : 0) | (r->ecn_seen ? TCPI_OPT_ECN_SEEN : 0) |
                          (r->syn_data ? TCPI_OPT_SYN_DATA : 0));
        i->tcpi_snd_wscale = r->snd_wscale & 15;
        i->tcpi_rcv_wscale = r->rcv_wscale & 15;
        i->tcpi_snd_mss = r->mss;
        i->tcpi_rcv_mss = r->rmss;
        i->tcpi_advmss =
                (tc->opts.maxseg != 0 ? MIN(tc->opts.maxseg, tc->link.mss) : tc->link.mss) -
                conn_options_len(tc);
        i->tcpi_pmtu = (uint32_t)tcp_path_mtu(tc);
        i->tcpi_reordering = 3; /* Linux's measure in segments; RACK keeps none */
        i->tcpi_reord_seen = r->reordering;
}

static void info_windows(struct tcp_info *i, const struct tcp_conn *tc, const struct tcp_report *r)
{
        i->tcpi_snd_cwnd = segs(r->cwnd, r->mss);
        i->tcpi_snd_ssthresh = r->ssthresh >= NO_SSTHRESH ? NO_SSTHRESH : segs(r->ssthresh, r->mss);
        i->tcpi_snd_wnd = r->snd_wnd;
        i->tcpi_rcv_ssthresh = r->rcv_wnd;
        i->tcpi_rcv_space = r->rcvbuf;
        i->tcpi_unacked = segs(r->unacked, r->mss);
        i->tcpi_sacked = segs(tc->sacked, r->mss);
        i->tcpi_lost = segs(tc->lost, r->mss);
        i->tcpi_retrans = segs(tc->retx, r->mss);
        i->tcpi_notsent_bytes = r->unsent;
}

static void info_times(struct tcp_info *i, const struct tcp_report *r, nstime now)
{
        i->tcpi_rto = us(r->rto);
        i->tcpi_ato = 40000; /* Linux: TCP_ATO_MIN; RFC 9293 MAY-9 says below 0.5 s */
        i->tcpi_rtt = us(r->srtt);
        i->tcpi_rttvar = us(r->rttvar);
        i->tcpi_min_rtt = us(r->min_rtt);
        i->tcpi_last_data_sent = ms_since(r->last_sent, now);
        i->tcpi_last_data_recv = ms_since(r->last_received, now);
        i->tcpi_last_ack_recv = i->tcpi_last_data_recv;
        i->tcpi_rwnd_limited =
                (uint64_t)((r->limited[TCP_LIM_RWND] + r->limited[TCP_LIM_PEER]) / NS_PER_US);
        i->tcpi_sndbuf_limited = (uint64_t)(r->limited[TCP_LIM_SNDBUF] / NS_PER_US);
        i->tcpi_busy_time =
                MAX((uint64_t)(r->busy / NS_PER_US), i->tcpi_rwnd_limited + i->tcpi_sndbuf_limited);
}

static void info_totals(struct tcp_info *i, const struct tcp_report *r)
{
        i->tcpi_total_retrans = (uint32_t)r->retrans;
        i->tcpi_bytes_sent = r->bytes_sent;
        i->tcpi_bytes_acked = r->bytes_acked;
        i->tcpi_bytes_received = r->bytes_received;
        i->tcpi_bytes_retrans = r->bytes_retrans;
        i->tcpi_segs_out = (uint32_t)r->segs_out;
        i->tcpi_segs_in = (uint32_t)r->segs_in;
        i->tcpi_delivered = segs((uint32_t)MIN(r->bytes_acked, UINT32_MAX), r->mss);
        i->tcpi_dsack_dups = r->dsack_dups;
        i->tcpi_delivery_rate = r->delivery_rate;
        i->tcpi_delivery_rate_app_limited = r->model.app_limited;
        i->tcpi_pacing_rate = r->pacing_rate != 0 ? r->pacing_rate : UINT64_MAX;
}

static void info_listener(struct tcp_info *i, const struct tcp_listener *l)
{
        i->tcpi_state = linux_state(TCPS_LISTEN);
        i->tcpi_unacked = l->queued; /* Linux: connections waiting, and room for them */
        i->tcpi_sacked = l->backlog;
}

static socklen_t get_info(const struct opt_call *c, void *val, socklen_t room)
{
        const struct tcp_conn *tc = opt_conn(c);
        struct tcp_info *i = val;
        struct tcp_report r;
        nstime now = ustack_now();

        memset(i, 0, OPT_TCP_INFO_BYTES);
        i->tcpi_state = linux_state(TCPS_CLOSED);
        i->tcpi_pacing_rate = UINT64_MAX;
        i->tcpi_max_pacing_rate = c->tcp.max_pacing_rate != 0 ? c->tcp.max_pacing_rate : UINT64_MAX;
        if (opt_listener(c) != NULL)
                info_listener(i, opt_listener(c));
        if (tc == NULL)
                return OPT_TCP_INFO_BYTES;
        tcp_get_report(&c->s->u->s.tcp, tc, &r, now);
        info_shape(i, tc, &r);
        info_windows(i, tc, &r);
        info_times(i, &r, now);
        info_totals(i, &r);
        memcpy((uint8_t *)val + INFO_OLD, &(struct info_tail){.rcv_wnd = r.rcv_wnd},
               sizeof(struct info_tail));
        return OPT_TCP_INFO_BYTES;
}

/* Linux counts gains in 256ths. */
static uint32_t gain_of(uint32_t hundredths)
{
        return hundredths * 256 / 100;
}

/* CUBIC and NewReno have nothing to tell, as in Linux. */
static socklen_t get_cc_info(const struct opt_call *c, void *val, socklen_t room)
{
        const struct tcp_conn *tc = opt_conn(c);
        struct tcp_bbr_info *i = val;
        struct tcp_report r;

        if (tc == NULL)
                return 0;
        tcp_get_report(&c->s->u->s.tcp, tc, &r, ustack_now());
        if (r.model.bw == 0)
                return 0;
        *i = (struct tcp_bbr_info){
                .bbr_bw_lo = (uint32_t)r.model.bw,
                .bbr_bw_hi = (uint32_t)(r.model.bw >> 32),
                .bbr_min_rtt = us(r.model.min_rtt),
                .bbr_pacing_gain = gain_of(r.model.pacing_gain),
                .bbr_cwnd_gain = gain_of(r.model.cwnd_gain),
        };
        return sizeof *i;
}

static int set_inq(struct opt_call *c, int v)
{
        return v == 0 || v == 1 ? opt_set_told(c, USOCK_TELL_INQ, v) : -EINVAL;
}

/* What Linux says before it has seen how a connection is used: that who connected acknowledges at
 * once, and who accepted does not. */
static int set_quickack(struct opt_call *c, int v)
{
        c->tcp.quickack = v != 0;
        c->rec->ack_delayed = v == 0;
        return 0;
}

static int get_quickack(const struct opt_call *c)
{
        if (opt_conn(c) != NULL && !(opt_conn(c)->flags & TCF_ACTIVE))
                return c->tcp.quickack;
        return !c->rec->ack_delayed;
}

/* ---- Fast Open: usock_fastopen.c, tcp/tcp_fastopen.c ---- */

static int set_fastopen(struct opt_call *c, int v)
{
        if (v < 0 || opt_conn(c) != NULL)
                return -EINVAL;
        c->tcp.fastopen_most = MIN((uint32_t)v, 4096u); /* Linux: net.core.somaxconn */
        return 0;
}

static int get_fastopen(const struct opt_call *c)
{
        return (int)c->tcp.fastopen_most;
}

static int set_fastopen_bit(struct opt_call *c, int v, bool may, uint8_t bits)
{
        if (v < 0 || v > 1 || !may)
                return -EINVAL;
        c->tcp.fastopen = (uint8_t)(v ? c->tcp.fastopen | bits : c->tcp.fastopen & ~bits);
        return 0;
}

static int set_fastopen_connect(struct opt_call *c, int v)
{
        return set_fastopen_bit(c, v, c->rec->role == SOCK_ROLE_NONE, USOCK_FASTOPEN_CONNECT);
}

static int get_fastopen_connect(const struct opt_call *c)
{
        return !!(c->tcp.fastopen & USOCK_FASTOPEN_CONNECT);
}

static int set_fastopen_no_cookie(struct opt_call *c, int v)
{
        return set_fastopen_bit(c, v, opt_conn(c) == NULL,
                                USOCK_FASTOPEN_NO_COOKIE | TCP_FASTOPEN_BARE);
}

static int get_fastopen_no_cookie(const struct opt_call *c)
{
        return !!(c->tcp.fastopen & USOCK_FASTOPEN_NO_COOKIE);
}

/* One, or the one to be used and the one that was. */
static int set_fastopen_key(struct opt_call *c, const void *val, socklen_t len)
{
        if (len != sizeof c->tcp.fastopen_key[0] && len != sizeof c->tcp.fastopen_key)
                return -EINVAL;
        memcpy(c->tcp.fastopen_key, val, len);
        c->tcp.fastopen_keys = (uint8_t)(len / sizeof c->tcp.fastopen_key[0]);
        return 0;
}

static socklen_t get_fastopen_key(const struct opt_call *c, void *val, socklen_t room)
{
        assert(c->tcp.fastopen_keys <= TCP_FASTOPEN_KEYS);
        memcpy(val, c->tcp.fastopen_key, sizeof c->tcp.fastopen_key);
        return (socklen_t)(c->tcp.fastopen_keys * sizeof c->tcp.fastopen_key[0]);
}

/* ---- TCP_SAVED_SYN ---- */

/* As Linux: told once; with too little room how much there is, and again. */
int usock_saved_syn(struct usock *s, void *val, socklen_t *len)
{
        uint8_t syn[TCP_SAVED_SYN_MOST];
        socklen_t room = *len, n = 0;
        struct tcp_conn *tc;

        if ((int)room < 0)
                return -EINVAL;
        ustack_lock(s->u);
        usock_tcp_settle(s);
        if (usock_rec(s)->role == SOCK_ROLE_CONN) {
                tc = usock_conn(s);
                n = tcp_saved_syn(&s->u->s.tcp, tc, syn);
                assert(n <= sizeof syn);
                stack_begin(s->u->s.st, usock_rec(s)->conn);
                if (n <= room)
                        tcp_saved_syn_forget(&s->u->s.tcp, tc);
                stack_end(s->u->s.st);
        }
        ustack_leave(s->u);
        if (!user_put32(len, n) || (n <= room && !user_copy(val, syn, n)))
                return -EFAULT;
        return n <= room ? 0 : -EINVAL;
}

/* ---- the tables ---- */

static const struct opt_int ints[] = {
        OPT_BOOL(TCP_NODELAY, nodelay),
        OPT_BOOL(TCP_CORK, cork),
        OPT_CALLS(TCP_QUICKACK, OPT_TCP, set_quickack, get_quickack),
        OPT_RANGE(TCP_KEEPIDLE, keepidle_s, 1, 32767),
        OPT_RANGE(TCP_KEEPINTVL, keepintvl_s, 1, 32767),
        OPT_RANGE(TCP_KEEPCNT, keepcnt, 1, 127),
        OPT_RANGE(TCP_SYNCNT, syncnt, 1, 127),
        OPT_RANGE(TCP_USER_TIMEOUT, user_timeout_ms, 0, INT_MAX),
        OPT_RANGE(TCP_NOTSENT_LOWAT, notsent_lowat, INT_MIN, INT_MAX),
        OPT_CALLS(TCP_MAXSEG, OPT_TCP, set_maxseg, get_maxseg),
        OPT_CALLS(TCP_LINGER2, OPT_TCP, set_linger2, get_linger2),
        OPT_CALLS(TCP_DEFER_ACCEPT, OPT_TCP, set_defer_accept, get_defer_accept),
        OPT_RANGE(TCP_SAVE_SYN, save_syn, 0, 2),
        OPT_TOLD_IF(TCP_INQ, OPT_TCP, USOCK_TELL_INQ, set_inq),
        OPT_CALLS(TCP_FASTOPEN, OPT_TCP, set_fastopen, get_fastopen),
        OPT_CALLS(TCP_FASTOPEN_CONNECT, OPT_TCP, set_fastopen_connect, get_fastopen_connect),
        OPT_CALLS(TCP_FASTOPEN_NO_COOKIE, OPT_TCP, set_fastopen_no_cookie, get_fastopen_no_cookie),
        OPT_CALLS(TCP_WINDOW_CLAMP, OPT_TCP, set_window_clamp, get_window_clamp),
        OPT_CALLS(TCP_RTO_MAX_MS, OPT_TCP, set_rto_max, get_rto_max),
        OPT_CALLS(TCP_RTO_MIN_US, OPT_TCP, set_rto_min, get_rto_min),
        OPT_CALLS(TCP_DELACK_MAX_US, OPT_TCP, set_delack_max, get_delack_max),
};

static const struct opt_blob blobs[] = {
        OPT_FORM(TCP_CONGESTION, OPT_TCP, 1, set_congestion, get_congestion),
        OPT_FORM(TCP_FASTOPEN_KEY, OPT_TCP, 0, set_fastopen_key, get_fastopen_key),
        OPT_FORM(TCP_INFO, OPT_TCP, 0, NULL, get_info),
        OPT_FORM(TCP_CC_INFO, OPT_TCP, 0, NULL, get_cc_info),
};

const struct opt_level opt_tcp = OPT_LEVEL(ints, blobs);
