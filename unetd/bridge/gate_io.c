/* A bridge's work: frames from the wire to stacks, from stacks to the wire. See gate.h for who
 * may what. */
#include <linux/if_packet.h>
#include <linux/virtio_net.h>
#include <sched.h>
#include <sys/socket.h>

#include "arp/ether.h"
#include "base/sys.h"
#include "unetd/bridge/gate.h"
#include "unetd/bridge/gate_share.h"
#include "unetd/bridge/gate_split.h"

#ifndef VIRTIO_NET_HDR_GSO_UDP_L4
#define VIRTIO_NET_HDR_GSO_UDP_L4 5
#endif

#define WIRE_ROUNDS 2u /* batches from the wire in a turn */
#define REAP_BATCH  64
#define REAP_ROUNDS (SHM_RETS / REAP_BATCH) /* what can be on loan in one go */

static uint32_t seconds(nstime now)
{
        return (uint32_t)(now / NS_PER_S);
}

/* ---- to the wire ---- */

/* A frame of the bridge's own. */
static void send_own(struct gate *g, const uint8_t to[ETHER_MAC], uint16_t type, const uint8_t *p,
                     uint32_t len)
{
        uint8_t head[ETHER_HDR];

        assert(g->out.n == 0);
        ether_write(head, to, g->rules.mac, type);
        gate_out_add(&g->out, head, sizeof head, p, len);
        if (gate_out_send(&g->out, g->dev.sock) != 0)
                count_drop(&g->cnt, DROP_NI_TX_FULL);
}

static void send_answer(struct gate *g, const uint8_t to[ETHER_MAC], const uint8_t *ip,
                        uint32_t len, uint16_t id)
{
        uint8_t piece[IP_MAX_HDR + UINT16_MAX];
        unsigned hdr_len = (ip[0] & 15u) * 4;
        struct frag_piece at;
        struct frag f;

        if (len <= g->dev.info.mtu) {
                send_own(g, to, ETHER_IPV4, ip, len);
                return;
        }
        frag_begin(&f, ip, hdr_len, len - hdr_len, g->dev.info.mtu, id);
        while (frag_next(&f, piece, &at)) {
                memcpy(piece + at.hdr_len, ip + hdr_len + at.off, at.len);
                send_own(g, to, ETHER_IPV4, piece, at.hdr_len + at.len);
        }
}

static void answer(struct gate *g, const uint8_t *frame, uint32_t len, nstime now)
{
        uint8_t out[GATE_ANSWER_MAX];
        uint32_t n = gate_answer(&g->answerer, frame + ETHER_HDR, len - ETHER_HDR, now, out);

        if (n != 0)
                send_answer(g, frame + ETHER_MAC, out, n, be16_at(out + 4));
}

/* ARP's turn. False: nothing is due. */
static bool arp_turn(struct gate *g, nstime now)
{
        struct arp a = {g->cache, &g->cnt};
        struct arp_out out;

        if (arp_deadline(&a) > now)
                return false;
        arp_expire(&a, now);
        while (arp_output(&a, &out)) {
                if (out.what == ARP_OUT_SEND)
                        send_own(g, out.to, ETHER_ARP, out.pkt, out.len);
                arp_output_done(&a, &out, now);
        }
        return true;
}

/* ---- to stacks ---- */

/* The packet lies whole in a frame, behind where its Ethernet header would be; its first bytes
 * travel inline as well. */
static void to_port(struct gate_port *p, const uint8_t *frame, uint32_t len)
{
        struct frames *f = &p->gate->frames;
        struct unet_chan *ch = &p->chan.base;
        struct unet_tx tx = {.inl = frame, .inl_len = (uint16_t)MIN(len, SHM_INLINE_MAX)};
        uint32_t ip_len = len - ETHER_HDR, id = 0;

        assert(len >= ETHER_HDR && len <= ETHER_HDR + UINT16_MAX);
        assert(p->gate->port[p->num] == p);
        if (ch->ops->room(ch) == 0) {
                count_drop(&p->cnt, DROP_NI_QUEUE_FULL);
                return;
        }
        if (len > tx.inl_len) {
                if (ip_len <= FRAME_SMALL_BYTES)
                        id = frame_alloc(f, p->num, FRAME_SMALL, 0);
                if (id == 0)
                        id = frame_alloc(f, p->num, FRAME_LARGE, 0);
                if (id == 0) {
                        count_drop(&p->cnt, DROP_NI_NO_BUFFER);
                        return;
                }
                memcpy(frame_addr(f, id), frame + ETHER_HDR, ip_len);
                tx.frame = frame_id_num(id);
                tx.off = tx.inl_len - ETHER_HDR;
                tx.len = len - tx.inl_len;
                frame_lend(f, id);
        }
        ch->ops->send(ch, &tx, 1);
        if (id != 0)
                frame_drop(f, id);
        p->dirty = true;
}

/* ---- from stacks ---- */

/* A header that lies in the frame, in part or whole, comes out of there before it is looked at. */
static void complete(struct unet_rx *rx, const uint8_t **rest)
{
        bool tcp = rx->inl_len >= ETHER_HDR + 40 && rx->inl[ETHER_HDR + 9] == IP_PROTO_TCP;
        uint32_t n = rx->inl_len < GATE_HEAD ? MIN(GATE_HEAD - rx->inl_len, rx->len) : 0;

        if (rx->frame == 0 || tcp)
                return;
        memcpy(rx->inl + rx->inl_len, *rest, n);
        rx->inl_len += n;
        rx->len -= n;
        *rest += n;
}

/* The place of frame i of a batch: its IP header is at the beginning of a cache line. */
static uint8_t *rx_room(const struct gate *g, uint32_t i)
{
        assert(i < GATE_BATCH);
        return g->rx + (size_t)i * GATE_ROOM + CACHE_LINE - ETHER_HDR;
}

/* A frame to our own link address is for the other stacks that share the interface
 * (stack_send_many()). */
static void to_others(struct gate_port *p, const struct unet_rx *rx, const uint8_t *rest)
{
        struct gate *g = p->gate;
        uint8_t *frame = rx_room(g, 0);

        assert(rx->inl_len + rx->len <= UINT16_MAX + ETHER_HDR);
        memcpy(frame, rx->inl, rx->inl_len);
        if (rx->len != 0)
                memcpy(frame + rx->inl_len, rest, rx->len);
        for (uint32_t i = 0; i < g->nports; i++)
                if (g->port[i] && g->port[i] != p)
                        to_port(g->port[i], frame, rx->inl_len + rx->len);
}

static void forward(struct gate_port *p, struct unet_rx *rx, nstime now)
{
        struct gate *g = p->gate;
        const uint8_t *rest = NULL;
        uint32_t len = rx->inl_len + (rx->frame != 0 ? rx->len : 0);
        enum drop why = DROP_NI_MALFORMED;

        if (rx->frame != 0)
                rest = p->chan.peer->frames + frame_geom_offset(p->shared.rx_geom, rx->frame) +
                       rx->off;
        else
                rx->len = 0;
        if (len <=
            UINT16_MAX + ETHER_HDR) { /* what the interface does not take the kernel refuses */
                complete(rx, &rest);
                why = gate_check(&g->rules, &p->sender, rx->inl, rx->inl_len, len, now);
        }
        if (why != DROP_NONE)
                count_drop(&p->cnt, why);
        else if (unlikely(ether_eq(rx->inl, g->rules.mac)))
                to_others(p, rx, rest);
        else
                gate_out_add(&g->out, rx->inl, rx->inl_len, rest, rx->len);
}

static bool from_port(struct gate_port *p, nstime now)
{
        struct gate *g = p->gate;
        struct unet_chan *ch = &p->chan.base;
        int n = ch->ops->recv(ch, g->in, GATE_BATCH);

        for (int i = 0; i < n; i++)
                forward(p, &g->in[i], now);
        if (g->out.n != 0)
                p->cnt.drop[DROP_NI_TX_FULL] += gate_out_send(&g->out, g->dev.sock);
        for (int i = 0; i < n; i++)
                if (g->in[i].frame != 0)
                        ch->ops->release(ch, &g->in[i].frame, 1);
        p->dirty |= n != 0;
        return n != 0;
}

/* A stack that gives back for ever does not keep the bridge here. */
static bool reap(struct gate_port *p)
{
        struct unet_chan *ch = &p->chan.base;
        uint32_t num[REAP_BATCH];
        bool any = false;
        int n;

        for (uint32_t round = 0;
             round < REAP_ROUNDS && (n = ch->ops->reap(ch, num, REAP_BATCH)) > 0; round++) {
                any = true;
                for (int i = 0; i < n; i++)
                        if (!frame_unlend(&p->gate->frames, p->num, num[i]))
                                count(&p->cnt, COUNT_NI_BAD_RETURN);
        }
        return any;
}

/* ---- from the wire ---- */

static void to_all(struct gate *g, const uint8_t *frame, uint32_t len)
{
        for (uint32_t i = 0; i < g->nports; i++)
                if (g->port[i])
                        to_port(g->port[i], frame, len);
}

static void to_stack(struct gate *g, uint32_t stack, const uint8_t *frame, uint32_t len, nstime now)
{
        for (uint32_t i = 0; i < g->nports; i++) {
                if (g->port[i] && g->port[i]->sender.stack == stack) {
                        to_port(g->port[i], frame, len);
                        return;
                }
        }
        answer(g, frame, len, now); /* it does not use this interface: nobody has the port here */
}

static void arp_came(struct gate *g, const uint8_t *frame, uint32_t len, bool reply, nstime now)
{
        struct arp a = {g->cache, &g->cnt};
        enum drop why = arp_input(&a, frame + ETHER_HDR, len - ETHER_HDR, now);

        if (why != DROP_NONE && !reply)
                count_drop(&g->cnt, why);
        if (reply)
                to_all(g, frame, len);
}

static void deliver(struct gate *g, const uint8_t *frame, uint32_t len, nstime now)
{
        struct gate_way way = gate_route(&g->rules, frame, len, seconds(now));

        switch (way.to) {
        case GATE_ONE:
                to_stack(g, way.stack, frame, len, now);
                break;
        case GATE_ALL:
                to_all(g, frame, len);
                break;
        case GATE_OURS:
                answer(g, frame, len, now);
                break;
        case GATE_ARP:
                arp_came(g, frame, len, way.stack != 0, now);
                break;
        case GATE_NOBODY:
                count_drop(&g->cnt, way.why);
                break;
        }
}

/* Datagrams that came as one frame go on as what they are. */
static void deliver_split(struct gate *g, const uint8_t *frame, uint32_t len, uint16_t size,
                          nstime now)
{
        uint8_t one[ETHER_HDR + UINT16_MAX];
        struct gate_split s;
        uint32_t n;

        if (!gate_split_begin(&s, frame, len, size)) {
                count_drop(&g->cnt, DROP_NI_MALFORMED);
                return;
        }
        while ((n = gate_split_next(&s, one)) != 0)
                deliver(g, one, n, now);
}

static bool is_datagrams(const struct virtio_net_hdr *how)
{
        return (how->gso_type & ~VIRTIO_NET_HDR_GSO_ECN) == VIRTIO_NET_HDR_GSO_UDP_L4;
}

/* The kernel's auxiliary data of a frame; of VLAN tags it has the outermost, which the kernel has
 * taken off. */
union aux {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(sizeof(struct tpacket_auxdata))];
};

static bool of_a_vlan(struct msghdr *m)
{
        const struct cmsghdr *c = CMSG_FIRSTHDR(m);
        struct tpacket_auxdata aux;

        if (!c || c->cmsg_level != SOL_PACKET || c->cmsg_type != PACKET_AUXDATA)
                return false;
        memcpy(&aux, CMSG_DATA(c), sizeof aux);
        return aux.tp_status & TP_STATUS_VLAN_VALID && (aux.tp_vlan_tci & ETHER_VID) != 0;
}

static uint32_t from_wire(struct gate *g, nstime now)
{
        struct virtio_net_hdr how[GATE_BATCH];
        union aux aux[GATE_BATCH];
        struct mmsghdr msg[GATE_BATCH];
        struct iovec iov[GATE_BATCH][2];
        long n;

        for (uint32_t i = 0; i < GATE_BATCH; i++) {
                iov[i][0] = (struct iovec){&how[i], sizeof how[i]};
                iov[i][1] = (struct iovec){rx_room(g, i), GATE_ROOM - CACHE_LINE};
                msg[i] = (struct mmsghdr){.msg_hdr = {.msg_iov = iov[i],
                                                      .msg_iovlen = 2,
                                                      .msg_control = &aux[i],
                                                      .msg_controllen = sizeof aux[i]}};
        }
        n = sys5(SYS_recvmmsg, g->dev.sock, msg, GATE_BATCH, MSG_DONTWAIT, 0);
        for (long i = 0; i < n; i++) {
                uint32_t len = msg[i].msg_len - (uint32_t)sizeof how[0];
                if (msg[i].msg_len <= sizeof how[0] || msg[i].msg_hdr.msg_flags & MSG_TRUNC ||
                    len > ETHER_HDR + UINT16_MAX)
                        count_drop(&g->cnt, DROP_NI_MALFORMED);
                else if (unlikely(of_a_vlan(&msg[i].msg_hdr)))
                        count_drop(&g->cnt, DROP_ETHER_VLAN);
                else if (is_datagrams(&how[i]))
                        deliver_split(g, rx_room(g, (uint32_t)i), len, how[i].gso_size, now);
                else
                        deliver(g, rx_room(g, (uint32_t)i), len, now);
        }
        return n > 0 ? (uint32_t)n : 0;
}

/* ---- all ---- */

static void flush(struct gate *g)
{
        for (uint32_t i = 0; i < g->nports; i++) {
                struct gate_port *p = g->port[i];
                if (p && p->dirty) {
                        p->dirty = false;
                        p->chan.base.ops->flush(&p->chan.base);
                }
        }
}

/* A batch of each user's: see gate_share.h. */
static bool from_ports(struct gate *g, nstime now)
{
        struct gate_asker asker[GATE_PORTS];
        uint32_t n = 0;
        bool any = false;

        g->turn++;
        for (uint32_t i = 0; i < g->nports; i++) {
                struct gate_port *p = g->port[(g->turn + i) % g->nports];
                if (p == NULL)
                        continue;
                any |= reap(p);
                if (p->chan.base.ops->pending(&p->chan.base))
                        n = gate_share_add(
                                asker, n,
                                (struct gate_asker){p->sender.stack, p->num, p->last_turn},
                                g->turn);
        }
        for (uint32_t i = 0; i < n; i++) {
                struct gate_port *p = g->port[asker[i].port];
                p->last_turn = g->turn;
                any |= from_port(p, now);
        }
        return any;
}

bool gate_move(struct gate *g, nstime now)
{
        bool any = false;
        uint32_t n, round = 0;

        do {
                n = from_wire(g, now);
                any |= n != 0;
        } while (n == GATE_BATCH && ++round < WIRE_ROUNDS);
        if (any)
                flush(g); /* receivers may begin */
        any |= from_ports(g, now);
        any |= arp_turn(g, now);
        flush(g);
        if (any)
                sched_yield(); /* to a receiver on this processor, before its ring is full */
        return any;
}

void gate_drain(struct gate_port *p, nstime now)
{
        for (uint32_t n = 0; n < SHM_SLOTS && from_port(p, now); n += GATE_BATCH)
                ;
}

bool gate_pending(const struct gate *g)
{
        for (uint32_t i = 0; i < g->nports; i++) {
                struct gate_port *p = g->port[i];
                if (p && p->chan.base.ops->pending(&p->chan.base))
                        return true;
        }
        return false;
}
