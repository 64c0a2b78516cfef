/* See lwip_side.h. */
#include "tests/oracle/lwip_side.h"

#include <stdlib.h>

#include <lwip/icmp.h>
#include <lwip/inet_chksum.h>
#include <lwip/init.h>
#include <lwip/ip.h>
#include <lwip/netif.h>
#include <lwip/priv/tcp_priv.h>
#include <lwip/raw.h>
#include <lwip/tcp.h>
#include <lwip/timeouts.h>
#include <lwip/udp.h>

#define MTU_MAX   65535u
#define QUEUE_MAX 64u

struct packets { /* what arrived for somebody, oldest first */
        struct pbuf *p[QUEUE_MAX];
        unsigned n;
};

struct lw_conn {
        struct tcp_pcb *pcb; /* NULL when lwIP has freed it */
        enum lw_end end;
        bool eof;
        struct pbuf *in;      /* received, not read */
        struct lw_conn *next; /* waits to be accepted */
};

static struct {
        struct sim *link;
        struct netif netif;
        nstime now, base; /* lwIP's clock never goes back, the tests' starts anew */
        bool ready;
        uint8_t out[MTU_MAX]; /* the frame that payload is sent from */
        struct tcp_pcb *listener;
        struct lw_conn *accepted;
        struct udp_pcb *echo, *udp;
        struct raw_pcb *raw;
        struct packets dgrams, icmp;
} lw;

/* Instead of the library's. */
__attribute__((visibility("default"))) u32_t sys_now(void)
{
        return (u32_t)((lw.base + lw.now) / NS_PER_MS);
}

/* ---- the bridge ---- */

static uint32_t headers_of(const uint8_t *p, uint32_t len)
{
        uint32_t ihl = (p[0] & 15u) * 4u;

        switch (p[9]) {
        case IP_PROTO_TCP:
                return ihl + (p[ihl + 12] >> 4) * 4u;
        case IP_PROTO_UDP:
        case IP_PROTO_ICMP:
                return MIN(ihl + 8, len);
        default:
                return ihl;
        }
}

/* Headers go in the descriptor; the payload too when all fits, else from the frame. */
static void split(const uint8_t *p, uint32_t len, struct unet_tx *tx)
{
        uint32_t inl = len <= UNET_INLINE_MAX ? len : headers_of(p, len);

        *tx = (struct unet_tx){.inl = p, .inl_len = (uint16_t)inl};
        if (inl == len)
                return;
        memcpy(lw.out, p + inl, len - inl);
        tx->frame = 1;
        tx->len = len - inl;
}

static err_t send_packet(struct netif *n, struct pbuf *p, const ip4_addr_t *to)
{
        struct unet_chan *end = sim_end(lw.link, 1);
        static uint8_t bytes[MTU_MAX];
        uint32_t reaped[16];
        struct unet_tx tx;
        u16_t len = pbuf_copy_partial(p, bytes, sizeof bytes, 0);

        split(bytes, len, &tx);
        if (sim_ops.send(end, &tx, 1) != 1)
                return ERR_BUF;
        while (sim_ops.reap(end, reaped, 16) > 0)
                ;
        return ERR_OK;
}

static err_t set_up(struct netif *n)
{
        n->name[0] = 'u';
        n->name[1] = 'n';
        n->output = send_packet;
        return ERR_OK;
}

static void take(const struct unet_rx *rx)
{
        struct unet_mem mem = sim_rx_mem(lw.link, 1);
        uint32_t tail = rx->frame != 0 ? rx->len : 0;
        struct pbuf *p = pbuf_alloc(PBUF_RAW, (u16_t)(rx->inl_len + tail), PBUF_RAM);

        if (p == NULL)
                abort();
        pbuf_take(p, rx->inl, (u16_t)rx->inl_len);
        if (tail != 0)
                pbuf_take_at(p, unet_mem_at(&mem, rx->frame, rx->off, tail), (u16_t)tail,
                             (u16_t)rx->inl_len);
        if (lw.netif.input(p, &lw.netif) != ERR_OK)
                pbuf_free(p);
}

static bool take_all(void)
{
        struct unet_chan *end = sim_end(lw.link, 1);
        struct unet_rx rx;
        bool any = false;

        while (sim_ops.recv(end, &rx, 1) == 1) {
                take(&rx);
                if (rx.frame != 0)
                        sim_ops.release(end, &rx.frame, 1);
                any = true;
        }
        return any;
}

bool lw_run(nstime now)
{
        bool any;

        lw.now = now;
        any = take_all();
        if (sys_timeouts_sleeptime() == 0) {
                sys_check_timeouts();
                any = true;
        }
        return any;
}

nstime lw_deadline(void)
{
        u32_t ms = sys_timeouts_sleeptime();
        nstime here = lw.base + lw.now;

        return ms == SYS_TIMEOUTS_SLEEPTIME_INFINITE
                       ? NSTIME_NEVER
                       : (here / NS_PER_MS + ms) * NS_PER_MS - lw.base;
}

/* ---- start ---- */

static void drop_packets(struct packets *q)
{
        while (q->n != 0)
                pbuf_free(q->p[--q->n]);
}

static void close_all(void)
{
        while (tcp_active_pcbs != NULL)
                tcp_abort(tcp_active_pcbs);
        while (tcp_tw_pcbs != NULL)
                tcp_abort(tcp_tw_pcbs);
        if (lw.listener != NULL)
                tcp_close(lw.listener);
        if (lw.echo != NULL)
                udp_remove(lw.echo);
        if (lw.udp != NULL)
                udp_remove(lw.udp);
        lw.listener = NULL;
        lw.echo = lw.udp = NULL;
        drop_packets(&lw.dgrams);
        drop_packets(&lw.icmp);
}

static void keep(struct packets *q, struct pbuf *p)
{
        if (q->n == QUEUE_MAX)
                pbuf_free(p);
        else
                q->p[q->n++] = p;
}

/* A copy without the IP header; lwIP goes on with the packet. */
static u8_t on_icmp(void *arg, struct raw_pcb *pcb, struct pbuf *p, const ip_addr_t *from)
{
        u16_t ihl = (u16_t)((*(uint8_t *)p->payload & 15) * 4);
        struct pbuf *copy = pbuf_clone(PBUF_RAW, PBUF_RAM, p);

        pbuf_remove_header(copy, ihl);
        keep(&lw.icmp, copy);
        return 0;
}

static void init_once(void)
{
        if (lw.ready)
                return;
        lwip_init();
        lw.raw = raw_new(IP_PROTO_ICMP);
        raw_recv(lw.raw, on_icmp, NULL);
        lw.ready = true;
}

void lw_start(struct sim *link, uint32_t addr, uint32_t mtu, nstime now)
{
        ip4_addr_t a = {PP_HTONL(addr)}, mask = {PP_HTONL(0xffffff00u)}, gw = {0};
        bool again = lw.ready;

        init_once();
        if (again) { /* resets of the last test's connections reach nobody */
                netif_set_link_down(&lw.netif);
                close_all();
                netif_remove(&lw.netif);
                lw.base += lw.now + NS_PER_S - now;
        }
        lw.link = link;
        lw.now = now;
        sim_set_tx_mem(link, 1, unet_mem_flat(lw.out, sizeof lw.out));
        netif_add(&lw.netif, &a, &mask, &gw, NULL, set_up, ip_input);
        lw.netif.mtu = (u16_t)mtu;
        netif_set_default(&lw.netif);
        netif_set_link_up(&lw.netif);
        netif_set_up(&lw.netif);
}

/* ---- checksums ---- */

bool lw_sums_right(const uint8_t *packet, size_t len)
{
        uint32_t ihl = (packet[0] & 15u) * 4u;
        ip4_addr_t src, dst;
        struct pbuf *p;
        bool right;

        memcpy(&src.addr, packet + 12, 4);
        memcpy(&dst.addr, packet + 16, 4);
        if (inet_chksum(packet, (u16_t)ihl) != 0)
                return false;
        p = pbuf_alloc(PBUF_RAW, (u16_t)(len - ihl), PBUF_RAM);
        pbuf_take(p, packet + ihl, (u16_t)(len - ihl));
        if (packet[9] == IP_PROTO_ICMP)
                right = inet_chksum_pbuf(p) == 0;
        else
                right = inet_chksum_pseudo(p, packet[9], p->tot_len, &src, &dst) == 0;
        pbuf_free(p);
        return right;
}

unsigned lw_connections(void)
{
        unsigned n = 0;

        for (const struct tcp_pcb *p = tcp_active_pcbs; p != NULL; p = p->next)
                n++;
        for (const struct tcp_pcb *p = tcp_tw_pcbs; p != NULL; p = p->next)
                n++;
        return n;
}

/* ---- TCP ---- */

static err_t on_recv(void *arg, struct tcp_pcb *pcb, struct pbuf *p, err_t err)
{
        struct lw_conn *c = arg;

        if (p == NULL)
                c->eof = true;
        else if (c->in == NULL)
                c->in = p;
        else
                pbuf_cat(c->in, p);
        return ERR_OK;
}

static void on_err(void *arg, err_t err)
{
        struct lw_conn *c = arg;

        if (err == ERR_RST)
                c->end = c->end == LW_OPENING ? LW_REFUSED : LW_RESET;
        else if (err == ERR_CLSD)
                c->end = LW_CLOSED;
        else
                c->end = LW_ABORTED;
        c->pcb = NULL;
}

static struct lw_conn *conn_new(struct tcp_pcb *pcb)
{
        struct lw_conn *c = calloc(1, sizeof *c);

        if (c == NULL || pcb == NULL)
                abort();
        c->pcb = pcb;
        tcp_arg(pcb, c);
        tcp_recv(pcb, on_recv);
        tcp_err(pcb, on_err);
        return c;
}

static err_t on_connected(void *arg, struct tcp_pcb *pcb, err_t err)
{
        struct lw_conn *c = arg;

        c->end = LW_OPEN;
        return ERR_OK;
}

struct lw_conn *lw_connect(uint32_t to, uint16_t port, uint16_t from_port)
{
        struct lw_conn *c = conn_new(tcp_new());
        ip_addr_t a = IPADDR4_INIT(PP_HTONL(to));

        tcp_bind(c->pcb, IP4_ADDR_ANY, from_port);
        if (tcp_connect(c->pcb, &a, port, on_connected) != ERR_OK)
                abort();
        return c;
}

static err_t on_accept(void *arg, struct tcp_pcb *pcb, err_t err)
{
        struct lw_conn **at = &lw.accepted;

        if (err != ERR_OK || pcb == NULL)
                return ERR_VAL;
        while (*at != NULL)
                at = &(*at)->next;
        *at = conn_new(pcb);
        (*at)->end = LW_OPEN;
        return ERR_OK;
}

void lw_listen(uint16_t port)
{
        struct tcp_pcb *pcb = tcp_new();

        if (tcp_bind(pcb, IP4_ADDR_ANY, port) != ERR_OK)
                abort();
        lw.listener = tcp_listen(pcb);
        tcp_accept(lw.listener, on_accept);
        lw.accepted = NULL;
}

struct lw_conn *lw_accept(void)
{
        struct lw_conn *c = lw.accepted;

        if (c != NULL)
                lw.accepted = c->next;
        return c;
}

enum lw_end lw_state(const struct lw_conn *c)
{
        return c->end;
}

void lw_set_opts(struct lw_conn *c, const struct lw_opts *o)
{
        if (o->nodelay)
                tcp_nagle_disable(c->pcb);
        if (o->mss != 0)
                c->pcb->mss = (u16_t)MIN(c->pcb->mss, o->mss);
}

static bool on_list(const struct tcp_pcb *list, const struct lw_conn *c)
{
        while (list != NULL && (list != c->pcb || list->callback_arg != c))
                list = list->next;
        return list != NULL;
}

/* The end of TIME-WAIT is told to nobody: whoever still has the pcb must look whether it
 * is there. */
static struct tcp_pcb *pcb_of(struct lw_conn *c)
{
        if (c->pcb != NULL && !on_list(tcp_active_pcbs, c) && !on_list(tcp_tw_pcbs, c)) {
                c->pcb = NULL;
                c->end = LW_CLOSED;
        }
        return c->pcb;
}

int lw_write(struct lw_conn *c, const uint8_t *data, size_t n)
{
        size_t room = pcb_of(c) != NULL ? tcp_sndbuf(c->pcb) : 0;
        u16_t len = (u16_t)MIN(MIN(n, room), (size_t)0xffff);

        if (len == 0 || tcp_write(c->pcb, data, len, TCP_WRITE_FLAG_COPY) != ERR_OK)
                return 0;
        tcp_output(c->pcb);
        return len;
}

int lw_read(struct lw_conn *c, uint8_t *data, size_t n)
{
        u16_t len;

        if (c->in == NULL)
                return c->eof ? 0 : -1;
        len = pbuf_copy_partial(c->in, data, (u16_t)MIN(n, (size_t)0xffff), 0);
        c->in = pbuf_free_header(c->in, len);
        if (pcb_of(c) != NULL)
                tcp_recved(c->pcb, len);
        return len;
}

bool lw_unsent(struct lw_conn *c)
{
        return pcb_of(c) != NULL && c->pcb->unsent != NULL;
}

bool lw_shutdown_send(struct lw_conn *c)
{
        return pcb_of(c) == NULL || tcp_shutdown(c->pcb, 0, 1) == ERR_OK;
}

bool lw_close(struct lw_conn *c)
{
        if (pcb_of(c) == NULL)
                return true;
        tcp_arg(c->pcb, NULL);
        tcp_recv(c->pcb, NULL);
        tcp_err(c->pcb, NULL);
        if (tcp_close(c->pcb) != ERR_OK) {
                tcp_arg(c->pcb, c);
                tcp_recv(c->pcb, on_recv);
                tcp_err(c->pcb, on_err);
                return false;
        }
        c->pcb = NULL;
        c->end = LW_CLOSED;
        return true;
}

void lw_abort(struct lw_conn *c)
{
        if (pcb_of(c) != NULL)
                tcp_abort(c->pcb); /* on_err() hears of it */
}

uint16_t lw_mss(const struct lw_conn *c)
{
        return c->pcb->mss;
}

uint32_t lw_send_window(const struct lw_conn *c)
{
        return c->pcb->snd_wnd;
}

bool lw_scales(const struct lw_conn *c)
{
        return (c->pcb->flags & TF_WND_SCALE) != 0;
}

void lw_free(struct lw_conn *c)
{
        if (c->in != NULL)
                pbuf_free(c->in);
        free(c);
}

/* ---- UDP, ICMP ---- */

static void on_echo(void *arg, struct udp_pcb *pcb, struct pbuf *p, const ip_addr_t *from,
                    u16_t port)
{
        udp_sendto(pcb, p, from, port);
        pbuf_free(p);
}

void lw_udp_echo(uint16_t port)
{
        lw.echo = udp_new();
        if (udp_bind(lw.echo, IP4_ADDR_ANY, port) != ERR_OK)
                abort();
        udp_recv(lw.echo, on_echo, NULL);
}

static void on_dgram(void *arg, struct udp_pcb *pcb, struct pbuf *p, const ip_addr_t *from,
                     u16_t port)
{
        keep(&lw.dgrams, p);
}

static struct pbuf *bytes_pbuf(const uint8_t *data, size_t n)
{
        struct pbuf *p = pbuf_alloc(PBUF_TRANSPORT, (u16_t)n, PBUF_RAM);

        if (p == NULL || (n != 0 && pbuf_take(p, data, (u16_t)n) != ERR_OK))
                abort();
        return p;
}

void lw_udp_send(uint16_t from_port, uint32_t to, uint16_t port, const uint8_t *data, size_t n)
{
        ip_addr_t a = IPADDR4_INIT(PP_HTONL(to));
        struct pbuf *p = bytes_pbuf(data, n);

        if (lw.udp == NULL) {
                lw.udp = udp_new();
                udp_bind(lw.udp, IP4_ADDR_ANY, from_port);
                udp_recv(lw.udp, on_dgram, NULL);
        }
        udp_sendto(lw.udp, p, &a, port);
        pbuf_free(p);
}

static int next_packet(struct packets *q, uint8_t *data, size_t n)
{
        int len;

        if (q->n == 0)
                return -1;
        len = pbuf_copy_partial(q->p[0], data, (u16_t)MIN(n, (size_t)0xffff), 0);
        pbuf_free(q->p[0]);
        memmove(q->p, q->p + 1, --q->n * sizeof q->p[0]);
        return len;
}

int lw_udp_received(uint8_t *data, size_t n)
{
        return next_packet(&lw.dgrams, data, n);
}

void lw_ping(uint32_t to, uint16_t id, uint16_t seq, const uint8_t *data, size_t n)
{
        ip_addr_t a = IPADDR4_INIT(PP_HTONL(to));
        struct pbuf *p = pbuf_alloc(PBUF_IP, (u16_t)(8 + n), PBUF_RAM);
        struct icmp_echo_hdr *h = p->payload;

        *h = (struct icmp_echo_hdr){.type = ICMP_ECHO, .id = PP_HTONS(id), .seqno = PP_HTONS(seq)};
        if (n != 0)
                pbuf_take_at(p, data, (u16_t)n, 8);
        h->chksum = inet_chksum(p->payload, p->len);
        raw_sendto(lw.raw, p, &a);
        pbuf_free(p);
}

int lw_icmp_received(uint8_t *data, size_t n)
{
        return next_packet(&lw.icmp, data, n);
}
