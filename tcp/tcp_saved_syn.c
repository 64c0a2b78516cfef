/*
 * The headers of the SYN that opened a connection, for a listener that asks (TCP_SAVE_SYN). They
 * stand in a small private frame, behind their length, until they are asked for. None are kept of a
 * SYN that a cookie or the interface answered, and none where half of these frames are in use:
 * whoever connects takes one, and may be hostile.
 */
#include "tcp/tcp_conn.h"
#include "tcp/tcp_life.h"
#include "tcp/tcp_saved_syn.h"

#define MAC_LEN 14u

/* As of Linux's loopback device: no addresses, IPv4. */
static const uint8_t mac[MAC_LEN] = {[12] = 0x08};

static uint8_t *saved_at(const struct tcp *t, const struct tcp_conn *tc)
{
        return frame_addr(t->frames, tc->saved_syn);
}

static bool are_few(const struct frames *f)
{
        const struct frame_pool *p = f->region[FRAME_REGION_PRIVATE].pool;

        return p->used[FRAME_SMALL] >= p->geom.count[FRAME_SMALL] / 2;
}

void saved_syn_keep(struct tcp *t, struct tcp_conn *tc)
{
        const struct tcp_syn *syn = t->syn;
        uint32_t id, mac_len = tc->opts.save_syn == 2 ? MAC_LEN : 0;
        uint8_t *p;

        assert(tc->saved_syn == 0);
        if (syn == NULL || are_few(t->frames))
                return;
        id = frame_alloc(t->frames, FRAME_REGION_PRIVATE, FRAME_SMALL, 0);
        if (id == 0)
                return;
        p = frame_addr(t->frames, id);
        assert(mac_len + syn->ip_len + syn->tcp_len <= TCP_SAVED_SYN_MOST);
        p[0] = (uint8_t)(mac_len + syn->ip_len + syn->tcp_len);
        memcpy(p + 1, mac, mac_len);
        memcpy(p + 1 + mac_len, syn->ip, syn->ip_len);
        memcpy(p + 1 + mac_len + syn->ip_len, syn->tcp, syn->tcp_len);
        store_order();
        tc->saved_syn = id;
}

void saved_syn_drop(struct tcp *t, struct tcp_conn *tc)
{
        uint32_t id = tc->saved_syn;

        if (likely(id == 0))
                return;
        tc->saved_syn = 0;
        store_order(); /* nobody names it, then it is free */
        frame_drop(t->frames, id);
}

uint32_t tcp_saved_syn(const struct tcp *t, const struct tcp_conn *tc, uint8_t *out)
{
        uint32_t n = tc->saved_syn != 0 ? MIN(saved_at(t, tc)[0], TCP_SAVED_SYN_MOST) : 0;

        if (n != 0)
                memcpy(out, saved_at(t, tc) + 1, n);
        return n;
}

void tcp_saved_syn_forget(struct tcp *t, struct tcp_conn *tc)
{
        saved_syn_drop(t, tc);
}
