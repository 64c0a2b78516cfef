/* See gate_run.h. */
#include "unetd/bridge/gate_run.h"

#include "arp/ether.h"
#include "ip/ip.h"
#include "base/checksum.h"
#include "base/sys.h"

/* The longest payload of a run: the IP length field bounds it, with TCP's options. */
#define RUN_BYTES (65535u - IP_MIN_HDR - 60u)

/* RFC 791 §3.1, RFC 9293 §3.1: offsets in the frame, and in the TCP header. */
enum {
        AT_IP = ETHER_HDR,
        AT_TOTAL = AT_IP + 2,
        AT_ID = AT_IP + 4,
        AT_FRAG = AT_IP + 6,
        AT_IP_SUM = AT_IP + 10,
        AT_TCP = AT_IP + IP_MIN_HDR
};
enum {
        TCP_SEQ = 4,
        TCP_ACKNO = 8,
        TCP_OFFSET = 12,
        TCP_FLAGS = 13,
        TCP_WINDOW = 14,
        TCP_SUM = 16,
        TCP_OPTIONS = 20
};
enum { FLAG_PSH = 8, FLAG_ACK = 16 };

/* Headers in bytes, when it is a segment that others may be joined to: data, no more than ACK and
 * PSH, no IP options, not to be fragmented, nothing behind the packet. 0: it is not. */
static uint32_t joinable(const uint8_t *p, uint32_t head_len, uint32_t len)
{
        uint32_t hdr;

        if (head_len < AT_TCP + 20 || be16_at(p + 12) != ETHER_IPV4 || p[AT_IP] != 0x45 ||
            p[AT_IP + 9] != IP_PROTO_TCP || be16_at(p + AT_FRAG) != 0x4000 ||
            be16_at(p + AT_TOTAL) + ETHER_HDR != len ||
            (p[AT_TCP + TCP_FLAGS] & ~FLAG_PSH) != FLAG_ACK)
                return 0;
        hdr = AT_TCP + (p[AT_TCP + TCP_OFFSET] >> 4) * 4u;
        return hdr >= AT_TCP + 20 && hdr <= head_len && hdr < len ? hdr : 0;
}

/* Returns true if the headers are the same in all but length, ID, sums, sequence number and PSH. */
static bool same_headers(const uint8_t *a, const uint8_t *b, uint32_t hdr_len)
{
        const uint8_t *x = a + AT_TCP, *y = b + AT_TCP;

        return memcmp(a, b, AT_TOTAL) == 0 &&
               memcmp(a + AT_FRAG, b + AT_FRAG, AT_IP_SUM - AT_FRAG) == 0 &&
               memcmp(a + AT_IP_SUM + 2, b + AT_IP_SUM + 2, AT_TCP + TCP_SEQ - AT_IP_SUM - 2) ==
                       0 &&
               memcmp(x + TCP_ACKNO, y + TCP_ACKNO, TCP_FLAGS - TCP_ACKNO) == 0 &&
               memcmp(x + TCP_WINDOW, y + TCP_WINDOW, 2) == 0 &&
               memcmp(x + TCP_OPTIONS, y + TCP_OPTIONS, hdr_len - AT_TCP - TCP_OPTIONS) == 0;
}

static bool takes(const struct gate_out_frame *f, const uint8_t *head, uint32_t hdr_len,
                  uint32_t len)
{
        uint32_t payload = len - hdr_len;

        return f->hdr_len == hdr_len && !f->last_shorter && f->niov + 2 <= ARRAY_LEN(f->iov) &&
               payload <= f->len && f->payload + payload <= RUN_BYTES &&
               be32_at(head + AT_TCP + TCP_SEQ) == f->next_seq &&
               same_headers(f->head, head, hdr_len);
}

static void join(struct gate_out_frame *f, const uint8_t *head, uint32_t head_len,
                 const uint8_t *rest, uint32_t rest_len)
{
        uint32_t inl = head_len - f->hdr_len;

        if (inl != 0)
                f->iov[f->niov++] = (struct iovec){(void *)(uintptr_t)(head + f->hdr_len), inl};
        if (rest_len != 0)
                f->iov[f->niov++] = (struct iovec){(void *)(uintptr_t)rest, rest_len};
        f->head[AT_TCP + TCP_FLAGS] |= head[AT_TCP + TCP_FLAGS] & FLAG_PSH;
        f->last_shorter = inl + rest_len < f->len;
        f->payload += inl + rest_len;
        f->next_seq += inl + rest_len;
        f->segs++;
}

bool gate_out_add(struct gate_out *o, const uint8_t *head, uint32_t head_len, const uint8_t *rest,
                  uint32_t rest_len)
{
        uint32_t hdr_len = joinable(head, head_len, head_len + rest_len);
        struct gate_out_frame *f = o->n != 0 ? &o->frame[o->n - 1] : NULL;

        assert(head_len <= sizeof o->frame[0].head && o->n <= GATE_OUT_FRAMES);
        /* What is joined is borrowed whole, so it must lie in memory that is: the caller's head
         * is not. */
        if (hdr_len != 0 && head_len == hdr_len && f != NULL &&
            takes(f, head, hdr_len, head_len + rest_len)) {
                join(f, head, head_len, rest, rest_len);
                return true;
        }
        if (o->n == GATE_OUT_FRAMES)
                return false;
        f = &o->frame[o->n++];
        f->how = (struct virtio_net_hdr){0};
        f->head_len = head_len;
        f->hdr_len = hdr_len;
        f->len = f->payload = hdr_len != 0 ? head_len + rest_len - hdr_len : 0;
        f->next_seq = hdr_len != 0 ? be32_at(head + AT_TCP + TCP_SEQ) + f->payload : 0;
        f->last_shorter = false;
        f->segs = 1;
        memcpy(f->head, head, head_len);
        f->iov[0] = (struct iovec){&f->how, sizeof f->how};
        f->iov[1] = (struct iovec){f->head, head_len};
        f->niov = 2;
        if (rest_len != 0)
                f->iov[f->niov++] = (struct iovec){(void *)(uintptr_t)rest, rest_len};
        return true;
}

/* Lengths are the run's; whoever cuts it goes on from the pseudo header's sum. */
void gate_out_finish(struct gate_out *o, uint32_t i)
{
        struct gate_out_frame *f = &o->frame[i];
        uint32_t tcp_bytes = f->hdr_len - AT_TCP + f->payload;
        be16 sum;

        assert(i < o->n);
        if (f->segs == 1)
                return;
        f->how = (struct virtio_net_hdr){.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM,
                                         .gso_type = VIRTIO_NET_HDR_GSO_TCPV4,
                                         .hdr_len = (uint16_t)f->hdr_len,
                                         .gso_size = (uint16_t)f->len,
                                         .csum_start = AT_TCP,
                                         .csum_offset = TCP_SUM};
        be16_put(f->head + AT_TOTAL, IP_MIN_HDR + tcp_bytes);
        be16_put(f->head + AT_IP_SUM, 0);
        sum = csum_finish(csum_partial(f->head + AT_IP, IP_MIN_HDR, 0));
        memcpy(f->head + AT_IP_SUM, &sum, sizeof sum);
        sum = csum_finish(csum_pseudo(ip_addr_v4(be32_at(f->head + AT_IP + 12)),
                                      ip_addr_v4(be32_at(f->head + AT_IP + 16)), IP_PROTO_TCP,
                                      tcp_bytes));
        sum.raw = (uint16_t)~sum.raw;
        memcpy(f->head + AT_TCP + TCP_SUM, &sum, sizeof sum);
}

uint32_t gate_out_send(struct gate_out *o, int sock)
{
        uint32_t at = 0, lost = 0;

        assert(o->n <= GATE_OUT_FRAMES);
        for (uint32_t i = 0; i < o->n; i++) {
                gate_out_finish(o, i);
                o->msg[i] = (struct mmsghdr){
                        .msg_hdr = {.msg_iov = o->frame[i].iov, .msg_iovlen = o->frame[i].niov}};
        }
        while (at < o->n) {
                long r = sys4(SYS_sendmmsg, sock, o->msg + at, o->n - at, MSG_DONTWAIT);
                if (r > 0) {
                        at += (uint32_t)r;
                        continue;
                }
                at++; /* this one it does not take */
                lost++;
        }
        o->n = 0;
        return lost;
}
