/*
 * Reassembly: whatever fragments come, in whatever order and however they contradict each other,
 * the tables stay whole, memory stays bounded, and a datagram that comes out is made of the bytes
 * that fragments brought to their places.
 *
 * Input: six bytes a step. What, identification, offset (two bytes), length (two bytes).
 */
#include <stdlib.h>

#include "ip/reass.h"
#include "tests/fuzz/fuzz.h"

#define STEP 6u

/* Bits of the first byte of a step. */
enum {
        LAST = 1,
        OTHER_BYTES = 2,
        OTHER_SOURCE = 4,
        TCP = 8,
        LATER = 16,
        DIES = 32,
        MARKED = 64,
        OPTIONS = 128
};

static struct frames frames;
static struct reass_shared *shared;
static struct counters cnt;
static struct reass r;
static uint8_t bytes[70000];

static void begin_world(void)
{
        static const struct frame_geom g = {{[FRAME_SMALL] = 40, [FRAME_LARGE] = 12}};
        struct frame_region *region = &frames.region[FRAME_REGION_PRIVATE];

        if (shared == NULL) {
                shared = malloc(sizeof *shared);
                region->pool = malloc(frame_pool_bytes(g));
                region->base = malloc(frame_geom_bytes(g));
                for (size_t i = 0; i < sizeof bytes; i++)
                        bytes[i] = (uint8_t)(i * 7 + i / 253);
        }
        memset(region->pool, 0, frame_pool_bytes(g));
        frame_pool_init(region->pool, g);
        r = (struct reass){shared, &frames, &cnt};
        reass_reset(shared, (const uint8_t *)"0123456789abcdef");
}

/* Each byte is what one of the two kinds of fragment has at its place. */
static void check_bytes(const uint8_t *p, uint32_t at, uint32_t n)
{
        for (uint32_t i = 0; i < n; i++)
                assert(p[i] == bytes[at + i] || p[i] == bytes[at + i + 1]);
}

static void check_whole(const struct ip_pkt *pkt)
{
        struct ip_pkt again;
        int err = ip_hdr_parse(pkt->hdr, pkt->hdr_len, true, &again);

        assert(err == 0 && again.total_len == pkt->hdr_len + ip_payload_len(pkt));
        assert(!again.more_frags && again.frag_off == 0);
        check_bytes(pkt->inl, 0, pkt->inl_len);
        if (pkt->data.id == 0)
                return;
        assert(pkt->data.off + pkt->data.len <= frame_size(&frames, pkt->data.id));
        check_bytes(frame_addr(&frames, pkt->data.id) + pkt->data.off, pkt->inl_len, pkt->data.len);
        frame_drop(&frames, pkt->data.id);
}

static void one_fragment(const uint8_t *p, nstime now)
{
        uint8_t what = p[0], hdr[IP_MAX_HDR];
        uint32_t off = ((p[2] * 256u + p[3]) & 0x1fff) * 8, len = (p[4] * 256u + p[5]) % 1600,
                 hdr_len = 20;
        struct ip_tmpl t;
        struct ip_pkt pkt;
        int err;

        ip_tmpl_init(&t, ip_addr_v4(what & OTHER_SOURCE ? 0x0b000000 + p[1] % 16u : 0x0a000002),
                     ip_addr_v4(0x0a000001), what & TCP ? IP_PROTO_TCP : IP_PROTO_UDP,
                     what & MARKED ? IP_ECN_CE : IP_ECN_ECT0, 64, false);
        ip_hdr_write(&t, hdr, 20, p[1] % 8);
        if (what & OPTIONS) {
                memset(hdr + 20, 1, 40);
                hdr[0] = 0x4f;
                hdr_len = 60;
        }
        hdr[2] = (uint8_t)((hdr_len + len) >> 8);
        hdr[3] = (uint8_t)(hdr_len + len);
        hdr[6] = (uint8_t)((off / 8) >> 8 | (what & LAST ? 0 : 0x20));
        hdr[7] = (uint8_t)(off / 8);
        err = ip_hdr_parse(hdr, hdr_len, false, &pkt);
        assert(err == 0);
        pkt.to = IP_TO_HOST;
        pkt.link_cast = false;
        pkt.inl = bytes + off + !!(what & OTHER_BYTES);
        pkt.inl_len = len;
        pkt.data = (struct buf){0};
        if (reass_rx(&r, 0, &pkt, now) == REASS_WHOLE)
                check_whole(&pkt);
}

static nstime other_step(uint8_t what, nstime now)
{
        struct ip_pkt about;
        uint16_t ifc;

        if (what & LATER) {
                now += 20 * NS_PER_S;
                while (reass_expire(&r, now, &about, &ifc))
                        check_bytes(about.inl, 0, about.inl_len);
        }
        if (what & DIES) {
                struct frame_pool *pool = frames.region[FRAME_REGION_PRIVATE].pool;
                frame_pool_zero_refs(pool);
                reass_reset(shared, (const uint8_t *)"fedcba9876543210");
                frame_pool_rebuild(pool);
        }
        return now;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        const struct frame_pool *pool;
        struct ip_pkt about;
        nstime now = NS_PER_S;
        uint16_t ifc;

        begin_world();
        for (; size >= STEP; data += STEP, size -= STEP) {
                if ((data[0] & (LATER | DIES)) != 0 && data[1] < 16)
                        now = other_step(data[0], now);
                else
                        one_fragment(data, now);
                reass_check(&r);
        }
        while (reass_expire(&r, now + 2 * REASS_TIMEOUT, &about, &ifc))
                ;
        pool = frames.region[FRAME_REGION_PRIVATE].pool;
        assert(shared->count == 0 && pool->used[FRAME_SMALL] + pool->used[FRAME_LARGE] == 0);
        return 0;
}

static size_t put(uint8_t *buf, size_t at, uint8_t what, uint8_t id, uint32_t off, uint32_t len)
{
        const uint8_t step[STEP] = {
                what,        id, (uint8_t)(off / 8 >> 8), (uint8_t)(off / 8), (uint8_t)(len >> 8),
                (uint8_t)len};

        memcpy(buf + at, step, STEP);
        return at + STEP;
}

size_t fuzz_seed(unsigned i, uint8_t *buf)
{
        size_t n = 0;

        switch (i) {
        case 0: /* in order */
                n = put(buf, n, 0, 1, 0, 1480);
                n = put(buf, n, 0, 1, 1480, 1480);
                return put(buf, n, LAST, 1, 2960, 77);
        case 1: /* backwards, with a repetition and another's between */
                n = put(buf, n, LAST, 2, 2400, 5);
                n = put(buf, n, TCP, 2, 0, 800);
                n = put(buf, n, 0, 2, 1600, 800);
                n = put(buf, n, 0, 2, 1600, 800);
                n = put(buf, n, 0, 2, 800, 800);
                return put(buf, n, 0, 2, 0, 800);
        case 2: /* "teardrop" */
                n = put(buf, n, 0, 3, 0, 800);
                n = put(buf, n, LAST, 3, 400, 800);
                return put(buf, n, OTHER_BYTES, 3, 0, 800);
        case 3: /* the longest */
                for (uint32_t off = 0; off < 64000; off += 1600 - 8)
                        n = put(buf, n, 0, 4, off, 1592);
                n = put(buf, n, 0, 4, 63680, 1592);
                return put(buf, n, LAST, 4, 65272, 243);
        case 4: /* "ping of death" */
                n = put(buf, n, 0, 5, 0, 800);
                return put(buf, n, LAST, 5, 65512, 1400);
        case 5: /* many, and time */
                for (uint8_t k = 0; k < 64; k++)
                        n = put(buf, n, OTHER_SOURCE, (uint8_t)(16 + k), k * 320u, 320);
                n = put(buf, n, LATER, 0, 0, 0);
                return put(buf, n, DIES, 0, 0, 0);
        default:
                return 0;
        }
}
