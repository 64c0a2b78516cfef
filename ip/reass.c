/*
 * Reassembly. RFC 791 §3.2, RFC 815, RFC 1122 §3.3.2, RFC 5722.
 *
 * reass_rx() -> shape_ok() -> find() or begin() -> agrees_on_end() -> room_for() -> place()
 * -> finish()
 */
#include "ip/reass.h"

#include "base/checksum.h"
#include "base/planted.h"

#define PAGE      4096u
#define ZERO_MAX  64u
#define TCP_LEAST 20u /* RFC 1858 §3.2.1: what a first fragment of TCP must hold */

enum { FREE, GATHERING, DEAD, LINGERING };

static struct reass_dgram *at(const struct reass *r, uint32_t i)
{
        assert(i != 0 && i <= REASS_DGRAMS);
        return &r->sh->dgram[i];
}

void reass_reset(struct reass_shared *sh, const uint8_t secret[16])
{
        sh->key = sip_key_of(secret);
        sh->bytes = sh->count = sh->large = 0;
        sh->oldest = sh->newest = sh->free = sh->lingering = 0;
        sh->fresh = 1;
        memset(sh->sources, 0, sizeof sh->sources);
        memset(sh->head, 0, sizeof sh->head);
        memset(sh->dgram, 0, sizeof sh->dgram);
}

/* ---- records ---- */

static uint16_t *chain(const struct reass *r, const struct reass_dgram *d)
{
        const uint32_t key[4] = {d->src, d->dst, (uint32_t)d->id << 16 | d->ifc, d->proto};

        return &r->sh->head[siphash13(&r->sh->key, key, sizeof key) % REASS_DGRAMS];
}

static bool same_key(const struct reass_dgram *a, const struct reass_dgram *b)
{
        return a->src == b->src && a->dst == b->dst && a->id == b->id && a->ifc == b->ifc &&
               a->proto == b->proto;
}

static uint32_t find(const struct reass *r, const struct reass_dgram *key)
{
        uint32_t i = *chain(r, key);

        while (i != 0 && !same_key(at(r, i), key))
                i = at(r, i)->next;
        return i;
}

static bool is_large(const struct reass *r, const struct reass_dgram *d)
{
        return d->frame != 0 && frame_size(r->frames, d->frame) == FRAME_LARGE_BYTES;
}

static uint32_t charge(const struct reass *r, const struct reass_dgram *d)
{
        if (d->frame == 0)
                return 0;
        return is_large(r, d) ? (uint32_t)__builtin_popcount(d->pages) * PAGE : FRAME_SMALL_BYTES;
}

static uint8_t bucket(const struct reass *r, uint32_t src)
{
        return (uint8_t)(siphash13(&r->sh->key, &src, sizeof src) % REASS_BUCKETS);
}

static struct reass_sources *sources(const struct reass *r, const struct reass_dgram *d)
{
        return &r->sh->sources[d->bucket];
}

/* Call before what a datagram holds changes; recharge() follows. */
static void uncharge(struct reass *r, const struct reass_dgram *d)
{
        r->sh->bytes -= charge(r, d);
        sources(r, d)->bytes -= charge(r, d);
}

static void recharge(struct reass *r, const struct reass_dgram *d)
{
        r->sh->bytes += charge(r, d);
        sources(r, d)->bytes += charge(r, d);
}

/* The frame is no longer the datagram's: the caller has it. */
static uint32_t take_frame(struct reass *r, struct reass_dgram *d)
{
        uint32_t frame = d->frame;

        uncharge(r, d);
        r->sh->large -= is_large(r, d);
        d->frame = 0;
        d->pages = 0;
        return frame;
}

static void drop_frame(struct reass *r, struct reass_dgram *d)
{
        uint32_t frame = take_frame(r, d);

        if (frame != 0)
                frame_drop(r->frames, frame);
}

static void age_unlink(struct reass *r, const struct reass_dgram *d)
{
        *(d->older ? &at(r, d->older)->newer : &r->sh->oldest) = d->newer;
        *(d->newer ? &at(r, d->newer)->older : &r->sh->newest) = d->older;
}

/* Out of hash and age list; its frame stays. */
static void detach(struct reass *r, uint32_t i)
{
        struct reass_dgram *d = at(r, i);
        uint16_t *link = chain(r, d);

        while (*link != i)
                link = &at(r, *link)->next;
        *link = d->next;
        age_unlink(r, d);
        r->sh->count--;
        sources(r, d)->count--;
}

static void free_record(struct reass *r, uint32_t i)
{
        at(r, i)->state = FREE;
        at(r, i)->next = r->sh->free;
        r->sh->free = (uint16_t)i;
}

static void give_up(struct reass *r, uint32_t i, enum drop why)
{
        count_drop(r->cnt, why);
        detach(r, i);
        drop_frame(r, at(r, i));
        free_record(r, i);
}

/* RFC 5722 §3: the datagram and all its fragments, those to come too: the record stays to know
 * them by. */
static void kill_dgram(struct reass *r, struct reass_dgram *d, enum drop why)
{
        count_drop(r->cnt, why);
        drop_frame(r, d);
        d->state = DEAD;
}

void reass_done(struct reass *r)
{
        uint32_t i = r->sh->lingering;

        if (i == 0)
                return;
        r->sh->lingering = 0;
        if (at(r, i)->frame != 0)
                frame_drop(r->frames, at(r, i)->frame);
        free_record(r, i);
}

/* ---- limits ---- */

/* Counts what a source has under way, and finds the oldest of it. */
static uint32_t share_of(const struct reass *r, uint32_t src, uint32_t *bytes, uint32_t *oldest)
{
        uint32_t n = 0;

        *bytes = *oldest = 0;
        for (uint32_t i = r->sh->oldest; i != 0; i = at(r, i)->newer) {
                if (at(r, i)->src != src)
                        continue;
                if (n++ == 0)
                        *oldest = i;
                *bytes += charge(r, at(r, i));
        }
        return n;
}

static uint32_t oldest_but(const struct reass *r, uint32_t i, bool large)
{
        uint32_t k = r->sh->oldest;

        while (k != 0 && (k == i || (large && !is_large(r, at(r, k)))))
                k = at(r, k)->newer;
        return k;
}

static uint32_t new_record(struct reass *r, uint32_t src, uint8_t bucket)
{
        struct reass_shared *sh = r->sh;
        uint32_t bytes, oldest, i;

        if (sh->sources[bucket].count >= REASS_PER_SOURCE &&
            share_of(r, src, &bytes, &oldest) >= REASS_PER_SOURCE)
                give_up(r, oldest, DROP_IP_FRAG_EVICTED);
        else if (sh->free == 0 && sh->fresh > REASS_DGRAMS)
                give_up(r, sh->oldest, DROP_IP_FRAG_EVICTED);
        i = sh->free;
        if (i == 0)
                return sh->fresh++;
        sh->free = at(r, i)->next;
        return i;
}

static uint32_t begin(struct reass *r, const struct reass_dgram *key, nstime now)
{
        uint8_t b = bucket(r, key->src);
        uint32_t i = new_record(r, key->src, b);
        struct reass_dgram *d = at(r, i);
        uint16_t *head;

        *d = *key;
        d->bucket = b;
        d->state = GATHERING;
        d->at = now + REASS_TIMEOUT;
        memset(r->sh->units[i], 0, sizeof r->sh->units[i]);
        head = chain(r, d);
        d->next = *head;
        *head = (uint16_t)i;
        d->older = r->sh->newest;
        *(d->older ? &at(r, d->older)->newer : &r->sh->oldest) = (uint16_t)i;
        r->sh->newest = (uint16_t)i;
        r->sh->count++;
        sources(r, d)->count++;
        return i;
}

/* Memory is at its limit, of the source or of all: the oldest go, but for i. */
static void evict_for(struct reass *r, uint32_t i)
{
        uint32_t bytes, oldest;

        while (sources(r, at(r, i))->bytes > REASS_BYTES / 4 &&
               share_of(r, at(r, i)->src, &bytes, &oldest) > 1 && bytes > REASS_BYTES / 4 &&
               oldest != i)
                give_up(r, oldest, DROP_IP_FRAG_EVICTED);
        while (r->sh->bytes > REASS_BYTES && (oldest = oldest_but(r, i, false)) != 0)
                give_up(r, oldest, DROP_IP_FRAG_EVICTED);
}

/* ---- memory of one datagram ---- */

static uint32_t alloc_large(struct reass *r, uint32_t i)
{
        uint32_t most = MAX(r->frames->region[FRAME_REGION_PRIVATE].pool->geom.count[FRAME_LARGE] /
                                    4,
                            1),
                 oldest;

        if (r->sh->large >= most && (oldest = oldest_but(r, i, true)) != 0)
                give_up(r, oldest, DROP_IP_FRAG_EVICTED);
        return r->sh->large < most ? frame_alloc(r->frames, FRAME_REGION_PRIVATE, FRAME_LARGE, 0)
                                   : 0;
}

static void set_frame(struct reass *r, struct reass_dgram *d, uint32_t frame)
{
        d->frame = frame;
        r->sh->large += is_large(r, d);
        recharge(r, d);
}

static void note_pages(struct reass *r, struct reass_dgram *d, uint32_t off, uint32_t end)
{
        uncharge(r, d);
        for (uint32_t p = off / PAGE; p <= (end - 1) / PAGE; p++)
                d->pages |= (uint16_t)(1u << p);
        recharge(r, d);
}

/* A frame that holds bytes up to `end`; what came into a small one moves to a large one. */
static bool room_for(struct reass *r, uint32_t i, uint32_t end)
{
        struct reass_dgram *d = at(r, i);
        uint32_t frame, old;

        if (d->frame != 0 && end <= frame_size(r->frames, d->frame))
                return true;
        if (d->frame == 0 && end <= FRAME_SMALL_BYTES) {
                frame = frame_alloc(r->frames, FRAME_REGION_PRIVATE, FRAME_SMALL, 0);
                if (frame != 0)
                        set_frame(r, d, frame);
                return frame != 0;
        }
        frame = alloc_large(r, i);
        if (frame == 0)
                return false;
        old = take_frame(r, d);
        set_frame(r, d, frame);
        if (old != 0) {
                memcpy(frame_addr(r->frames, frame), frame_addr(r->frames, old), d->top);
                note_pages(r, d, 0, d->top);
                frame_drop(r->frames, old);
        }
        return true;
}

/* ---- one fragment ---- */

/* RFC 791 §3.1; nothing may reach beyond the longest datagram. */
static enum drop shape_ok(const struct ip_pkt *pkt)
{
        uint32_t len = ip_payload_len(pkt);

        if (len == 0 || (pkt->more_frags && len % 8 != 0) ||
            CHECKED(pkt->hdr_len + (uint32_t)pkt->frag_off + len > UINT16_MAX))
                return DROP_IP_FRAG_BAD;
        if (pkt->proto == IP_PROTO_TCP &&
            ((pkt->frag_off == 0 && len < TCP_LEAST) || pkt->frag_off == 8))
                return DROP_IP_FRAG_TINY; /* RFC 1858 §3, RFC 3128 */
        return DROP_NONE;
}

static bool agrees_on_end(const struct reass_dgram *d, const struct ip_pkt *pkt, uint32_t end)
{
        if (d->end != 0)
                return pkt->more_frags ? end <= d->end : end == d->end;
        return pkt->more_frags || d->top <= end;
}

enum overlap { NEW, REPEATED, MIXED };

/* Says of the units from .. to - 1 which have come: none, all, or some. */
static enum overlap have_units(const uint64_t *units, uint32_t from, uint32_t to)
{
        uint32_t n = 0;

        for (uint32_t u = from; u < to;) {
                uint32_t k = MIN(64 - u % 64, to - u);
                uint64_t mask = (k == 64 ? UINT64_MAX : (1ull << k) - 1) << u % 64;
                n += (uint32_t)__builtin_popcountll(units[u / 64] & mask);
                u += k;
        }
        return n == 0 ? NEW : n == to - from ? REPEATED : MIXED;
}

static void set_units(uint64_t *units, uint32_t from, uint32_t to)
{
        for (uint32_t u = from; u < to;) {
                uint32_t k = MIN(64 - u % 64, to - u);
                units[u / 64] |= (k == 64 ? UINT64_MAX : (1ull << k) - 1) << u % 64;
                u += k;
        }
}

static const uint8_t *data_of(const struct reass *r, const struct ip_pkt *pkt)
{
        return pkt->data.len != 0 ? frame_addr(r->frames, pkt->data.id) + pkt->data.off : NULL;
}

static bool same_bytes(const struct reass *r, const struct ip_pkt *pkt, const uint8_t *at_place)
{
        if (pkt->inl_len != 0 && memcmp(at_place, pkt->inl, pkt->inl_len) != 0)
                return false;
        return pkt->data.len == 0 ||
               memcmp(at_place + pkt->inl_len, data_of(r, pkt), pkt->data.len) == 0;
}

static void copy_bytes(const struct reass *r, const struct ip_pkt *pkt, uint8_t *to)
{
        if (pkt->inl_len != 0)
                memcpy(to, pkt->inl, pkt->inl_len);
        if (pkt->data.len != 0)
                memcpy(to + pkt->inl_len, data_of(r, pkt), pkt->data.len);
}

/* The fragment's bytes to their place. False: they were there, or contradict what was there. */
static bool place(struct reass *r, uint32_t i, const struct ip_pkt *pkt, uint32_t end)
{
        struct reass_dgram *d = at(r, i);
        uint8_t *to = frame_addr(r->frames, d->frame) + pkt->frag_off;
        uint32_t from = pkt->frag_off / 8, until = (end + 7) / 8;
        enum overlap how = have_units(r->sh->units[i], from, until);

        if (how == MIXED || (how == REPEATED && (end > d->top || !same_bytes(r, pkt, to)))) {
                kill_dgram(r, d, DROP_IP_FRAG_OVERLAP);
                return false;
        }
        if (how == REPEATED)
                return false;
        copy_bytes(r, pkt, to);
        set_units(r->sh->units[i], from, until);
        if (is_large(r, d))
                note_pages(r, d, pkt->frag_off, end);
        d->have += end - pkt->frag_off;
        d->top = MAX(d->top, end);
        d->ecn |= (uint8_t)(1 << (pkt->tos & IP_ECN_MASK));
        if (!pkt->more_frags)
                d->end = end;
        if (pkt->frag_off == 0) {
                memcpy(r->sh->hdr[i], pkt->hdr, pkt->hdr_len);
                d->zero_len = (uint8_t)MIN(end, ZERO_MAX);
        }
        return true;
}

/* ---- the whole ---- */

/* RFC 3168 §5.3, as Linux's ip_frag_ecn_table: CE of any fragment; what is not ECN-capable does not
 * go with what is. */
static bool merge_ecn(const struct reass_dgram *d, uint8_t *hdr)
{
        const uint8_t not_ect = 1, ce = 1 << IP_ECN_CE;

        if (d->ecn & not_ect && d->ecn != not_ect)
                return false;
        if (d->ecn & ce)
                hdr[1] |= IP_ECN_CE;
        return true;
}

static unsigned header_len(uint8_t *hdr)
{
        return (hdr[0] & 0xfu) * 4;
}

/* RFC 791 §3.2: the header of fragment zero, as if there had been no fragments. */
static void mend_header(uint8_t *hdr, uint32_t payload_len)
{
        const be16 total = be16_of((uint16_t)(header_len(hdr) + payload_len)), none = be16_of(0);
        be16 sum;

        memcpy(hdr + 2, &total, 2);
        memcpy(hdr + 6, &none, 2);
        memcpy(hdr + 10, &none, 2);
        sum = csum_finish(csum_partial(hdr, header_len(hdr), 0));
        memcpy(hdr + 10, &sum, 2);
}

/* The part of a long payload that goes with the headers. */
static uint32_t transport_hdr_len(uint8_t proto, const uint8_t *p)
{
        return proto == IP_PROTO_TCP ? MAX((p[12] >> 4) * 4u, TCP_LEAST) : 8;
}

/* Describes the record's bytes as a packet; what is beyond `shown` bytes is its data. */
static void describe(struct reass *r, uint32_t i, uint32_t shown, uint32_t len, struct ip_pkt *pkt)
{
        const struct reass_dgram *d = at(r, i);
        uint8_t *hdr = r->sh->hdr[i];
        uint8_t to = pkt->to;
        bool link_cast = pkt->link_cast;
        int err = ip_hdr_parse(hdr, header_len(hdr), false, pkt);

        assert(err == 0);
        pkt->to = to;
        pkt->link_cast = link_cast;
        pkt->bad = 0;
        pkt->inl = frame_addr(r->frames, d->frame);
        pkt->inl_len = shown;
        pkt->data = (struct buf){0};
        if (len > shown)
                pkt->data = (struct buf){d->frame, shown, len - shown};
}

static enum reass_verdict finish(struct reass *r, uint32_t i, struct ip_pkt *pkt)
{
        struct reass_dgram *d = at(r, i);
        uint8_t *hdr = r->sh->hdr[i];
        uint32_t shown = d->end;

        if (!merge_ecn(d, hdr)) {
                kill_dgram(r, d, DROP_IP_FRAG_ECN);
                return REASS_KEPT;
        }
        if (header_len(hdr) + d->end > UINT16_MAX) {
                kill_dgram(r, d, DROP_IP_FRAG_BAD);
                return REASS_KEPT;
        }
        mend_header(hdr, d->end);
        if (d->end > REASS_FLAT)
                shown = transport_hdr_len(d->proto, frame_addr(r->frames, d->frame));
        describe(r, i, shown, d->end, pkt);
        detach(r, i);
        d->frame = take_frame(r, d);
        if (pkt->data.id != 0) {
                free_record(r, i); /* the header in it stays until the next one takes it */
        } else {
                d->state = LINGERING;
                r->sh->lingering = (uint16_t)i;
        }
        count(r->cnt, COUNT_IP_REASSEMBLED);
        return REASS_WHOLE;
}

enum reass_verdict reass_rx(struct reass *r, uint16_t ifc, struct ip_pkt *pkt, nstime now)
{
        const struct reass_dgram key = {.src = ip_addr_get_v4(pkt->src),
                                        .dst = ip_addr_get_v4(pkt->dst),
                                        .id = pkt->id,
                                        .ifc = ifc,
                                        .proto = pkt->proto};
        uint32_t i, end = pkt->frag_off + ip_payload_len(pkt);
        enum drop why = shape_ok(pkt);
        struct reass_dgram *d;

        reass_done(r);
        count(r->cnt, COUNT_IP_FRAGS_IN);
        if (why != DROP_NONE) {
                count_drop(r->cnt, why);
                return REASS_KEPT;
        }
        i = find(r, &key);
        if (i == 0)
                i = begin(r, &key, now);
        d = at(r, i);
        if (d->state == DEAD) {
                count_drop(r->cnt, DROP_IP_FRAG_DEAD);
                return REASS_KEPT;
        }
        if (!agrees_on_end(d, pkt, end)) {
                kill_dgram(r, d, DROP_IP_FRAG_OVERLAP);
                return REASS_KEPT;
        }
        if (!room_for(r, i, end)) {
                give_up(r, i, DROP_IP_FRAG_NO_MEMORY);
                return REASS_KEPT;
        }
        if (!place(r, i, pkt, end))
                return REASS_KEPT;
        evict_for(r, i);
        return d->have == d->end ? finish(r, i, pkt) : REASS_KEPT;
}

/* ---- time ---- */

nstime reass_deadline(const struct reass_shared *sh)
{
        return sh->oldest != 0 ? sh->dgram[sh->oldest].at : NSTIME_NEVER;
}

bool reass_expire(struct reass *r, nstime now, struct ip_pkt *about, uint16_t *ifc)
{
        reass_done(r);
        for (uint32_t i; (i = r->sh->oldest) != 0 && at(r, i)->at <= now;) {
                struct reass_dgram *d = at(r, i);
                if (d->state == DEAD) { /* counted when it died */
                        detach(r, i);
                        free_record(r, i);
                        continue;
                }
                if (d->zero_len == 0) {
                        give_up(r, i, DROP_IP_FRAG_TIMEOUT);
                        continue;
                }
                count_drop(r->cnt, DROP_IP_FRAG_TIMEOUT);
                *about = (struct ip_pkt){0};
                describe(r, i, d->zero_len, d->zero_len, about);
                *ifc = d->ifc;
                detach(r, i);
                d->frame = take_frame(r, d);
                d->state = LINGERING;
                r->sh->lingering = (uint16_t)i;
                return true;
        }
        return false;
}

/* ---- for tests ---- */

static void check_dgram(const struct reass *r, uint32_t i)
{
        const struct reass_dgram *d = at(r, i);
        uint32_t units = 0;

        assert(d->state == GATHERING || d->state == DEAD);
        assert(find(r, d) == i);
        assert((d->frame == 0) == (d->state == DEAD));
        assert(d->have <= d->top && (d->end == 0 || d->top <= d->end));
        for (uint32_t u = 0; u < REASS_UNITS / 64; u++)
                units += (uint32_t)__builtin_popcountll(r->sh->units[i][u]);
        assert(units == (d->have + 7) / 8);
        assert(d->state == DEAD || d->have < d->end || d->end == 0);
}

void reass_check(const struct reass *r)
{
        const struct reass_shared *sh = r->sh;
        uint32_t bytes = 0, n = 0, large = 0, prev = 0, in_buckets = 0, bytes_in_buckets = 0;

        for (uint32_t i = sh->oldest; i != 0; prev = i, i = at(r, i)->newer) {
                check_dgram(r, i);
                assert(at(r, i)->older == prev && (prev == 0 || at(r, prev)->at <= at(r, i)->at));
                bytes += charge(r, at(r, i));
                large += is_large(r, at(r, i));
                n++;
        }
        assert(prev == sh->newest && n == sh->count && bytes == sh->bytes && large == sh->large);
        assert(bytes <= REASS_BYTES);
        for (uint32_t b = 0; b < REASS_BUCKETS; b++) {
                in_buckets += sh->sources[b].count;
                bytes_in_buckets += sh->sources[b].bytes;
        }
        assert(in_buckets == n && bytes_in_buckets == bytes);
        if (sh->lingering != 0)
                assert(at(r, sh->lingering)->state == LINGERING);
}
