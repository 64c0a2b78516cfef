/*
 * IGMP: messages of any form from the link, and sockets that come and go meanwhile. The tables stay
 * whole and what leaves is a packet.
 *
 * Input: steps of a byte that says what and bytes that it needs: see one_step().
 */
#include <stdlib.h>

#include "ip/igmp.h"
#include "base/checksum.h"
#include "tests/fuzz/fuzz.h"

struct world {
        struct igmp *g;
        struct prng rnd;
        nstime now;
        const uint8_t *p, *end;
};

static uint8_t next(struct world *w)
{
        return w->p < w->end ? *w->p++ : 0;
}

static void all_leaves(struct world *w)
{
        uint8_t *out = malloc(IGMP_MIN_ROOM);
        struct igmp_msg msg;
        struct ip_pkt pkt;

        for (unsigned n = 0; igmp_output(w->g, out, IGMP_MIN_ROOM, &msg, &w->rnd, w->now); n++) {
                assert(n < 2 * IGMP_GROUPS + 16);
                assert(msg.len <= IGMP_MIN_ROOM && ip_hdr_parse(out, msg.len, true, &pkt) == 0);
                assert(pkt.total_len == msg.len && pkt.ttl == 1 &&
                       ip_addr_get_v4(pkt.dst) == msg.dst);
                assert(csum_finish(csum_partial(out + 24, msg.len - 24, 0)).raw == 0);
        }
        free(out);
}

static void a_message(struct world *w)
{
        uint32_t n = next(w) % 150, fix = next(w) & 3;
        uint8_t *msg = malloc(n + 1);
        struct ip_pkt pkt = {.src = ip_addr_v4(0x0a0000fe),
                             .dst = ip_addr_v4(0xe0000001),
                             .ttl = fix == 3 ? 2 : 1,
                             .to = IP_TO_GROUP,
                             .inl = msg,
                             .inl_len = n};
        be16 sum = {0};

        for (uint32_t i = 0; i < n; i++)
                msg[i] = next(w);
        if (n >= 4 && fix != 0) {
                memcpy(msg + 2, &sum, 2);
                sum = csum_finish(csum_partial(msg, n, 0));
                memcpy(msg + 2, &sum, 2);
        }
        igmp_rx(w->g, NULL, next(w) % 3, &pkt, &w->rnd, w->now);
        free(msg);
}

static bool lives(void *arg, uint32_t owner)
{
        return owner % 8 != *(uint8_t *)arg;
}

static void one_step(struct world *w)
{
        uint8_t what = next(w), dead;
        uint32_t ifc = what >> 6, group = 0xe0000000 + next(w) % 8, owner = 1 + next(w) % 12,
                 src[64];
        unsigned n;

        switch (what & 7) {
        case 0:
        case 1:
                a_message(w);
                break;
        case 2:
                n = next(w) % 40;
                for (unsigned i = 0; i < n; i++)
                        src[i] = next(w);
                igmp_listen(w->g, ifc, group, owner, what & 8, src, n, w->now);
                break;
        case 3:
                igmp_source(w->g, ifc, group, owner, next(w), what & 8, what & 16, w->now);
                break;
        case 4:
                (what & 8 ? igmp_join : igmp_leave)(w->g, ifc, group, owner, w->now);
                break;
        case 5:
                w->now += (nstime)(next(w) + 1) * NS_PER_S / 8 << (what >> 3 & 7);
                all_leaves(w);
                break;
        case 6:
                if (what & 8)
                        igmp_if_up(w->g, ifc, 0x0a000001, w->now);
                else if (what & 16)
                        igmp_if_down(w->g, ifc);
                else
                        igmp_leave_all(w->g, owner, w->now);
                break;
        case 7:
                dead = next(w) % 8;
                igmp_recover(w->g, lives, &dead, w->now);
                break;
        }
        igmp_check(w->g);
        igmp_wants(w->g, ifc, group, owner, 1, true);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct world w = {.g = malloc(sizeof *w.g), .now = NS_PER_S, .p = data, .end = data + size};

        prng_init(&w.rnd, (const uint8_t *)"0123456789abcdef");
        igmp_init(w.g);
        for (uint32_t i = 0; i < 3; i++)
                igmp_if_up(w.g, i, 0x0a000001 + i, w.now);
        while (w.p < w.end)
                one_step(&w);
        free(w.g);
        return 0;
}

size_t fuzz_seed(unsigned i, uint8_t *buf)
{
        size_t n = 0;

        switch (i) {
        case 0: /* a join, a general query of version 3, time */
                memcpy(buf,
                       "\x0c\x05\x01\x25\0\0\x07\x00\0\0\x0c\x01\x11\x10\0\0\0\0\0\0\x02\x7d\0\0\0"
                       "\x25\0\0\x40",
                       29);
                return 29;
        case 1: /* a filter, a query of the group and two sources */
                memcpy(buf,
                       "\x02\x05\x01\x02\x0a\x0b\x00\0\0\x14\x01\x11\x10\0\0\xe0\0\0\x05\x02\x7d\0"
                       "\x02\0\0\0\x0a\0\0\0\x0b\0"
                       "\x25\0\0\x40",
                       36);
                return 36;
        case 2: /* version 2: a query, a join, another's report */
                memcpy(buf,
                       "\x00\0\0\x08\x01\x11\x64\0\0\0\0\0\0\0\x0c\x05\x01\x25\0\0\x01\0\0\0\x08"
                       "\x01\x16\0\0\0\xe0\0\0\x05\0"
                       "\x04\x05\x01\x2d\0\0\x50",
                       42);
                return 42;
        case 3: /* as many sources as there can be, and more */
                for (uint8_t k = 0; k < 6; k++) {
                        const uint8_t head[] = {2, 5, k, 32};
                        memcpy(buf + n, head, 4);
                        n += 4;
                        for (uint8_t m = 0; m < 32; m++)
                                buf[n++] = (uint8_t)(k * 16 + m);
                }
                return n;
        case 4: /* a death */
                memcpy(buf, "\x0c\x05\x01\x0c\x06\x02\x07\0\0\x01\x25\0\0\x40", 14);
                return 14;
        default:
                return 0;
        }
}
