/*
 * The program behind an interface that a stack owns (tcx, Linux 6.6): takes every packet, copies it
 * into a chunk of the stack's, and says so; the kernel's protocols see none of it, but for what has
 * the number of a VLAN. tcx_ring.h has what is shared. Compiled for the bpf target and carried in
 * the binary (tcx_sock.c).
 *
 *   a chunk from FILL, a place in RX -> the copy -> the descriptor, which says that it is there
 *           -> the bell, if somebody sleeps
 *
 * Segments that somebody joined, or left to a device to cut, stay whole: a stream has no seams.
 * Datagrams have, and are cut here.
 *
 * Processors run it side by side, each with a place of its own until it is written; the stack reads
 * them in order. Between two locked instructions stand as many stores as can be, since each waits
 * for those before it. What the stack writes is read once, and checked: with rubbish in its rings
 * it loses its own packets, and nobody else anything.
 */
#include <linux/bpf.h>
#include <linux/if_xdp.h>
#include <linux/in.h>
#include <linux/pkt_cls.h>
#include <linux/udp.h>
#include <stdbool.h>
#include <stddef.h>
#include <bpf/bpf_helpers.h>

#include "frag_shed.bpf.h"
#include "syn_answer.bpf.h"
#include "tcx_ring.h"

#define TRIES     16 /* for a chunk, where others take some at the same time */
#define VLAN_BITS 0x0fff
#define CUTS      128 /* datagrams in one packet, at most (the kernel's UDP_MAX_SEGMENTS) */
#define HEADERS   (sizeof(struct ethhdr) + sizeof(struct tag) + sizeof(struct iphdr))

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __uint(map_flags, BPF_F_MMAPABLE);
        __type(key, __u32);
        __uint(value_size, 8); /* tcx_sock.c: all of what tcx_ring.h draws */
        __uint(max_entries, 1);
} ring SEC(".maps");

struct {
        __uint(type, BPF_MAP_TYPE_RINGBUF);
        __uint(max_entries, 4096);
} bell SEC(".maps");

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __type(key, __u32);
        __type(value, __u64);
        __uint(max_entries, TCX_DROPS);
} drops SEC(".maps");

/* Set before the program is loaded, and constant from then on. */
const volatile __u32 chunk_bytes = 2048;
const volatile __u32 ring_mask = 0;
const volatile __u64 large_bytes = 0; /* of all large chunks */
const volatile __u64 rx_bytes = 2048; /* of all receive chunks: where the words begin */
const volatile __u32 mark_sent = 0;   /* of answers, which the stack has made up */
const volatile __u32 zero = 0;

struct udp_packet {
        __u16 align; /* the IP header is */
        struct ethhdr eth;
        struct iphdr ip;
        struct udphdr udp;
} __attribute__((packed, aligned(4)));
#define UDP_HEADERS (sizeof(struct udp_packet) - sizeof(__u16))

static __u32 fill_cons[2]; /* small, large */
static __u32 rx_next;

static __always_inline int drop(__u32 why)
{
        __u64 *n = bpf_map_lookup_elem(&drops, &why);

        if (n)
                __sync_fetch_and_add(n, 1);
        return TC_ACT_SHOT;
}

static __always_inline bool passes(struct __sk_buff *packet)
{
        const void *data = (void *)(long)packet->data, *end = (void *)(long)packet->data_end;
        /* The IP header is. */
        __u8 aligned[2 + HEADERS] __attribute__((aligned(8))), *headers = aligned + 2;

        if (data + HEADERS <= end || end - data == packet->len)
                return shed_passes(data, end);
        if (bpf_skb_load_bytes(packet, 0, headers, HEADERS) !=
            0) /* they lie in pages; or it is shorter than these */
                return true;
        return shed_passes(headers, headers + HEADERS);
}

/* A chunk's place in FILL. */
static __always_inline bool take(__u32 *cons, const volatile __u32 *prod, __u32 *place)
{
        for (int i = 0; i < TRIES; i++) {
                __u32 at = *(volatile __u32 *)cons;

                if (at == *prod)
                        return false;
                if (__sync_val_compare_and_swap(cons, at, at + 1) == at) {
                        *place = at;
                        return true;
                }
        }
        return false;
}

static __always_inline void wake(struct tcx_words *w)
{
        __u64 *record;

        if (*(volatile __u32 *)&w->armed == 0 || __sync_lock_test_and_set(&w->armed, 0) == 0)
                return;
        record = bpf_ringbuf_reserve(&bell, sizeof *record, 0);
        if (!record) {
                w->armed = 1;
                return;
        }
        *record = 0;
        bpf_ringbuf_submit(record, BPF_RB_FORCE_WAKEUP);
}

static __always_inline __u64 fill_bytes(void)
{
        return ((__u64)ring_mask + 1) * sizeof(__u64);
}

static __always_inline __u32 rx_place(void)
{
        return __sync_fetch_and_add(&rx_next, 1);
}

/* What lies at the address stands in that place of RX now. */
static __always_inline void put(__u8 *base, __u32 place, __u64 addr, __u32 len, __u32 flags)
{
        struct xdp_desc *d =
                (struct xdp_desc *)(base + rx_bytes + TCX_WORDS_BYTES + 2 * fill_bytes()) +
                (place & ring_mask);
        union {
                struct {
                        __u32 len, options;
                };
                __u64 both;
        } last = {.len = len, .options = tcx_lap(place, ring_mask) | flags};

        d->addr = addr;
        __sync_lock_test_and_set((__u64 *)&d->len, last.both); /* and a full fence, before wake() */
}

/* The address of a small chunk that lies among those that there are; UINT64_MAX: of
 * none, counted. */
static __always_inline __u64 small_chunk(const __u8 *base, struct tcx_words *w)
{
        __u32 place;
        __u64 addr;

        if (!take(&fill_cons[0], &w->fill_small, &place)) {
                drop(TCX_DROP_NO_CHUNK);
                return ~0ull;
        }
        addr = *(volatile __u64 *)(base + rx_bytes + TCX_WORDS_BYTES +
                                   (__u64)(place & ring_mask) * sizeof(__u64));
        if (addr >= large_bytes && addr <= rx_bytes - chunk_bytes)
                return addr;
        drop(TCX_DROP_ODD);
        return ~0ull;
}

static __always_inline __u16 fold(__u32 sum)
{
        sum = (sum & 0xffff) + (sum >> 16);
        return (__u16)((sum & 0xffff) + (sum >> 16));
}

/* Lengths and sums of the n-th datagram with so many bytes: IP's is changed (RFC 1624), UDP's is
 * the pseudo header's, as ever where it is left to a device. What came in its place may be that of
 * all bytes together, or the first datagram's own. */
static __always_inline void set_lengths(struct udp_packet *h, const struct udp_packet *first,
                                        __u32 n, __u32 bytes)
{
        h->ip.tot_len = bpf_htons((__u16)(sizeof h->ip + sizeof h->udp + bytes));
        h->ip.id = bpf_htons((__u16)(bpf_ntohs(first->ip.id) + n));
        h->ip.check = ~fold((__u16)~first->ip.check + (__u16)~first->ip.tot_len + h->ip.tot_len +
                            (__u16)~first->ip.id + h->ip.id);
        h->udp.len = bpf_htons((__u16)(sizeof h->udp + bytes));
        h->udp.check = fold((h->ip.saddr & 0xffff) + (h->ip.saddr >> 16) + (h->ip.daddr & 0xffff) +
                            (h->ip.daddr >> 16) + bpf_htons(IPPROTO_UDP) + h->udp.len);
}

struct cutting {
        struct __sk_buff *packet;
        __u32 len, each;
        struct udp_packet first, h; /* the headers that came, and those of the present one */
};

/* The n-th datagram; nonzero: the last. */
static long cut_one(__u32 n, struct cutting *c)
{
        __u32 key = 0, at = UDP_HEADERS + n * c->each, bytes;
        __u8 *base = bpf_map_lookup_elem(&ring, &key);
        struct tcx_words *w;
        __u64 addr;

        if (!base || at >= c->len)
                return 1;
        bytes = c->len - at < c->each ? c->len - at : c->each;
        if (bytes == 0 || bytes > chunk_bytes - UDP_HEADERS)
                return 1;
        w = (struct tcx_words *)(base + rx_bytes);
        addr = small_chunk(base, w);
        if (addr > rx_bytes - chunk_bytes)
                return 1;
        set_lengths(&c->h, &c->first, n, bytes);
        __builtin_memcpy(base + addr, &c->h.eth, UDP_HEADERS);
        bytes = bpf_skb_load_bytes(c->packet, at, base + addr + UDP_HEADERS, bytes) == 0
                        ? UDP_HEADERS + bytes
                        : 0;
        put(base, rx_place(), addr, bytes, 0);
        return 0;
}

static __always_inline int cut(struct __sk_buff *packet, struct tcx_words *w)
{
        struct cutting c = {.packet = packet, .len = packet->len, .each = packet->gso_size};

        if (bpf_skb_load_bytes(packet, 0, &c.first.eth, UDP_HEADERS) != 0 || c.first.ip.ihl != 5 ||
            c.each > chunk_bytes - UDP_HEADERS)
                return drop(TCX_DROP_ODD);
        c.h = c.first;
        bpf_loop(CUTS, cut_one, &c, 0);
        wake(w);
        return TC_ACT_SHOT;
}

static __always_inline bool is_udp(struct __sk_buff *packet)
{
        struct {
                __u16 align;
                struct ethhdr eth;
                struct iphdr ip;
        } __attribute__((packed, aligned(4))) h;

        return bpf_skb_load_bytes(packet, 0, &h.eth, sizeof h - sizeof h.align) == 0 &&
               h.eth.h_proto == bpf_htons(ETH_P_IP) && h.ip.protocol == IPPROTO_UDP;
}

/* ---- answers (tcx_ring.h) ---- */

#define FOR_ISS      0 /* tcp/tcp_iss.c */
#define FOR_TS       1
#define NOT_ANSWERED (-1)

static __always_inline __u64 answers_at(void)
{
        return rx_bytes + TCX_WORDS_BYTES +
               ((2 * sizeof(__u64) + sizeof(struct xdp_desc)) * ((__u64)ring_mask + 1) + 4095) /
                       4096 * 4096;
}

/* What the SYN is answered with, as far as it was learnt; false: nothing. Who writes it meanwhile
 * changes its epoch first. */
static __always_inline bool learnt(struct tcx_answers *ans, const struct syn *s, __u64 now,
                                   struct tcx_answer *a)
{
        struct tcx_answer *place = &ans->place[tcx_place(s->ip.saddr, s->tcp.dest) % TCX_PLACES];
        __u32 epoch = *(volatile __u32 *)&ans->epoch, times = *(volatile __u32 *)&place->times;

        if (epoch == 0 || *(volatile __u32 *)&place->epoch != epoch)
                return false;
        __builtin_memcpy(a, place, sizeof *a);
        barrier();
        return *(volatile __u32 *)&place->epoch == epoch &&
               *(volatile __u32 *)&place->times == times &&
               *(volatile __u32 *)&ans->epoch == epoch && now < a->until &&
               syn_is_for(s, (const struct syn *)a->zero);
}

/* Nobody has a connection with these ends, and this one is the first to ask for one. */
static __always_inline bool mark(__u32 *m)
{
        if (*(volatile __u32 *)m != 0)
                return false;
        if (__sync_fetch_and_add(m, 1) == 0)
                return true;
        __sync_fetch_and_add(m, -1);
        return false;
}

/* What becomes of the packet, or NOT_ANSWERED. */
static __noinline int answer(struct __sk_buff *packet)
{
        __u32 key = 0, *m, iss;
        __u64 now = bpf_ktime_get_ns(), addr;
        __u8 *base = bpf_map_lookup_elem(&ring, &key);
        struct tcx_answers *ans;
        struct tcx_words *w;
        struct tcx_answer a;
        struct syn s, *reply = (struct syn *)a.zero;
        enum syn_sum sum;
        __u32 round;

        if (!base || bpf_skb_load_bytes(packet, 0, &s.eth, TCX_ANSWER_BYTES) != 0 ||
            !syn_is_plain(&s))
                return NOT_ANSWERED;
        w = (struct tcx_words *)(base + rx_bytes);
        ans = (struct tcx_answers *)(base + answers_at());
        sum = syn_sum(&s);
        if (sum == SYN_SUM_WRONG || !learnt(ans, &s, now, &a) ||
            (__s32)(*(volatile __u32 *)&ans->allowed - *(volatile __u32 *)&ans->made) <= 0)
                return NOT_ANSWERED;
        round = *(volatile __u32 *)&ans->round;
        m = &ans->marks[tcx_mark(s.ip.saddr, s.ip.daddr, s.tcp.source, s.tcp.dest) % TCX_MARKS];
        if (!mark(m))
                return NOT_ANSWERED;
        addr = small_chunk(base, w);
        if (addr > rx_bytes - chunk_bytes) {
                __sync_fetch_and_add(m, -1);
                return TC_ACT_SHOT;
        }
        __sync_fetch_and_add(&ans->made, 1);
        iss = (__u32)(now / 4000) + keyed(ans, &a, &s, FOR_ISS);
        bpf_skb_load_bytes(packet, 0, base + addr, TCX_ANSWER_BYTES);
        *(struct tcx_note *)(base + addr + TCX_NOTE_AT) =
                (struct tcx_note){.at = now,
                                  .iss = iss,
                                  .wnd = bpf_ntohs(reply->tcp.window),
                                  .wscale = reply->wscale[3],
                                  .round = (__u8)round};
        put(base, rx_place(), addr, TCX_ANSWER_BYTES, TCX_ANSWERED);
        wake(w);
        syn_fill(reply, &s, sum, iss, (__u32)(now / 1000000) - 1 + keyed(ans, &a, &s, FOR_TS));
        if (bpf_skb_store_bytes(packet, 0, &reply->eth, TCX_ANSWER_BYTES, 0) != 0)
                return TC_ACT_SHOT;
        packet->mark = mark_sent;
        return (int)bpf_redirect(packet->ifindex, 0);
}

SEC("tc")
int to_ring(struct __sk_buff *packet)
{
        __u32 key = 0, len = packet->len, place;
        __u8 *base = bpf_map_lookup_elem(&ring, &key);
        struct tcx_words *w;
        bool copied;
        __u64 addr;
        int done;

        if (!base)
                return TC_ACT_SHOT;
        w = (struct tcx_words *)(base + rx_bytes);
        if (packet->vlan_present && packet->vlan_tci & VLAN_BITS)
                return TC_ACT_UNSPEC; /* of another network: whoever is next */
        if (len < sizeof(struct ethhdr) || len > TCX_LARGE_BYTES)
                return drop(TCX_DROP_ODD);
        if (!passes(packet))
                return drop(TCX_DROP_FRAGMENT);
        if (packet->gso_size != 0 && is_udp(packet))
                return cut(packet, w);
        if (len == TCX_ANSWER_BYTES && !packet->vlan_present) {
                done = answer(packet);
                if (done != NOT_ANSWERED)
                        return done;
        }
        if (len > chunk_bytes) {
                if (large_bytes == 0 || !take(&fill_cons[1], &w->fill_large, &place))
                        return drop(TCX_DROP_NO_CHUNK);
                addr = *(volatile __u64 *)(base + rx_bytes + TCX_WORDS_BYTES + fill_bytes() +
                                           (__u64)(place & ring_mask) * sizeof(__u64));
                if (addr > large_bytes - TCX_LARGE_BYTES)
                        return drop(TCX_DROP_ODD);
                place = rx_place();
                copied = bpf_skb_load_bytes(packet, 0, base + addr, len) == 0;
        } else {
                addr = small_chunk(base, w);
                if (addr > rx_bytes - chunk_bytes)
                        return TC_ACT_SHOT;
                place = rx_place();
                copied = bpf_skb_load_bytes(packet, 0, base + addr, len) == 0;
        }
        put(base, place, addr, copied ? len : 0, 0);
        wake(w);
        return TC_ACT_SHOT;
}

char unet_license[] SEC("license") = "Dual BSD/GPL";
