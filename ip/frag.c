/* Fragmentation. RFC 791 §3.2, RFC 6864, RFC 1122 §3.3.3. */
#include "ip/frag.h"

#include "ip/ip_opts.h"
#include "base/checksum.h"
#include "base/siphash.h"

enum { FRAG_DF = 0x4000, FRAG_MF = 0x2000 };

/* ---- pieces ---- */

void frag_begin(struct frag *g, const uint8_t *hdr, unsigned hdr_len, uint32_t payload_len,
                uint32_t mtu, uint16_t id)
{
        assert(mtu >= FRAG_MIN_MTU && hdr_len >= IP_MIN_HDR && hdr_len <= IP_MAX_HDR);
        assert(hdr_len + payload_len <= UINT16_MAX);
        *g = (struct frag){.hdr_len = (uint8_t)hdr_len, .len = payload_len, .mtu = mtu};
        memcpy(g->hdr, hdr, hdr_len);
        be16_put(g->hdr + 4, id);
}

/* RFC 791 §3.1: what follows the first fragment has only the options that are to be copied. */
static void leave_first_options(struct frag *g)
{
        unsigned n = IP_MIN_HDR;
        unsigned end = g->hdr_len, len;

        for (unsigned at = IP_MIN_HDR; at < end && g->hdr[at] != IPOPT_END; at += len) {
                len = g->hdr[at] == IPOPT_NOP || at + 1 == end ? 1 : MAX(g->hdr[at + 1], 2);
                len = MIN(len, end - at);
                if (g->hdr[at] & IPOPT_COPIED) {
                        memmove(g->hdr + n, g->hdr + at, len);
                        n += len;
                }
        }
        while (n % 4 != 0)
                g->hdr[n++] = IPOPT_END;
        g->hdr_len = (uint8_t)n;
        g->hdr[0] = (uint8_t)(0x40 | n / 4);
}

bool frag_next(struct frag *g, uint8_t hdr[IP_MAX_HDR], struct frag_piece *piece)
{
        /* Offsets count in 8 bytes. */
        uint32_t left = g->len - g->off, fit = (g->mtu - g->hdr_len) & ~7u;
        bool last = left <= g->mtu - g->hdr_len;
        be16 sum;

        if (left == 0)
                return false;
        *piece =
                (struct frag_piece){.hdr_len = g->hdr_len, .off = g->off, .len = last ? left : fit};
        be16_put(g->hdr + 2, g->hdr_len + piece->len);
        be16_put(g->hdr + 6, g->off / 8 | (last ? 0 : FRAG_MF));
        be16_put(g->hdr + 10, 0);
        sum = csum_finish(csum_partial(g->hdr, g->hdr_len, 0));
        memcpy(g->hdr + 10, &sum, sizeof sum);
        memcpy(hdr, g->hdr, g->hdr_len);
        if (g->off == 0)
                leave_first_options(g);
        g->off += piece->len;
        return true;
}

/* ---- IDs ---- */

void ip_ids_init(struct ip_ids *ids, struct prng *rnd)
{
        memset(ids, 0, sizeof *ids);
        prng_bytes(rnd, &ids->key, sizeof ids->key);
}

uint16_t ip_id_next(struct ip_ids *ids, struct prng *rnd, uint32_t src, uint32_t dst, uint8_t proto,
                    nstime now)
{
        const uint32_t key[3] = {src, dst, proto};
        uint64_t hash = siphash24(&ids->key, key, sizeof key);
        uint32_t i = (uint32_t)(hash % IP_ID_COUNTERS), ms = (uint32_t)(now / NS_PER_MS);
        uint32_t idle = ms - ids->used_ms[i];

        if (idle != 0) {
                ids->used_ms[i] = ms;
                ids->next[i] += prng_below(rnd, idle);
        }
        /* Two that share a counter do not see the same numbers. */
        return (uint16_t)(ids->next[i]++ + (hash >> 48));
}
