#include "tests/udp/scene.h"
#include "udp/udp_pcb.h"
#include "tests/udp/reading.h"

#include <stdlib.h>

#define LENT_LARGE 24u
#define LENT_SMALL 200u
#define PCBS       200u

static void give_back(void *arg, uint32_t chan, uint32_t num)
{
        struct scene *s = arg;

        assert_int_equal(chan, CHAN);
        assert_int_equal(s->lent[num], 1);
        s->lent[num] = 0;
        s->given_back++;
}

static void touched(void *arg, uint32_t pcb)
{
        struct scene *s = arg;

        s->touched = pcb;
        s->touches++;
}

void scene_frames(struct scene *s, uint32_t large, uint32_t small)
{
        struct frame_geom g = {{[FRAME_LARGE] = large, [FRAME_SMALL] = small}};
        struct frame_region *r = &s->frames->region[FRAME_REGION_PRIVATE];

        free(r->base);
        free(r->pool);
        r->base = aligned_alloc(FRAME_SMALL_BYTES, frame_geom_bytes(g));
        r->pool = calloc(1, frame_pool_bytes(g));
        frame_pool_init(r->pool, g);
}

static void lent_frames(struct scene *s)
{
        struct frame_region *r = &s->frames->region[FRAME_REGION_RX(CHAN)];

        r->geom = (struct frame_geom){{[FRAME_LARGE] = LENT_LARGE, [FRAME_SMALL] = LENT_SMALL}};
        r->base = malloc(frame_geom_bytes(r->geom));
}

int scene_setup(void **state)
{
        static const uint8_t secret[16] = "not so secret...";
        struct udp_limits l = {.pcbs = PCBS};
        struct scene *s = calloc(1, sizeof *s);

        s->frames = calloc(1, sizeof *s->frames);
        s->frames->give_back = give_back;
        s->frames->arg = s;
        scene_frames(s, 80, 400);
        lent_frames(s);
        s->u = (struct udp){.sh = calloc(1, udp_shared_bytes(&l)),
                            .frames = s->frames,
                            .cnt = &s->cnt,
                            .touched = touched,
                            .arg = s};
        udp_shared_init(s->u.sh, &l, secret);
        s->now = NS_PER_S;
        *state = s;
        return 0;
}

void check_all(struct scene *s)
{
        struct udp_report r;

        for (uint32_t i = 1; i < udp_pcb_cap(&s->u); i++)
                if (udp_get_report(&s->u, i, &r))
                        udp_pcb_check(&s->u, i);
}

int scene_teardown(void **state)
{
        struct scene *s = *state;
        struct frame_pool *p = s->frames->region[FRAME_REGION_PRIVATE].pool;
        struct udp_report r;

        check_all(s);
        for (uint32_t i = 1; i < udp_pcb_cap(&s->u); i++)
                if (udp_get_report(&s->u, i, &r))
                        udp_close(&s->u, i);
        assert_int_equal(p->used[FRAME_SMALL] + p->used[FRAME_LARGE], 0);
        assert_int_equal(s->u.sh->kept[CHAN][FRAME_SMALL] + s->u.sh->kept[CHAN][FRAME_LARGE], 0);
        for (size_t i = 0; i < ARRAY_LEN(s->lent); i++)
                assert_int_equal(s->lent[i], 0);
        free(s->frames->region[FRAME_REGION_RX(CHAN)].base);
        free(s->frames->region[FRAME_REGION_PRIVATE].base);
        free(p);
        free(s->frames);
        free(s->u.sh);
        free(s);
        return 0;
}

static ip_addr addr_or_any(uint32_t a)
{
        return a != 0 ? ip_addr_v4(a) : (ip_addr){{0, 0}};
}

uint32_t bound_reuse(struct scene *s, uint32_t addr, uint16_t port, bool reuseaddr, bool reuseport)
{
        struct udp_opts o;
        uint32_t pcb;

        udp_opts_default(&o);
        o.reuseaddr = reuseaddr;
        o.reuseport = reuseport;
        pcb = udp_open(&s->u, &o);
        assert_int_not_equal(pcb, 0);
        assert_int_equal(udp_bind(&s->u, pcb, addr_or_any(addr), port), 0);
        udp_pcb_check(&s->u, pcb);
        return pcb;
}

uint32_t bound(struct scene *s, uint32_t addr, uint16_t port)
{
        return bound_reuse(s, addr, port, false, false);
}

uint32_t connected(struct scene *s, uint32_t addr, uint16_t port, uint32_t peer, uint16_t peer_port)
{
        uint32_t pcb = bound_reuse(s, addr, port, true, false);

        assert_int_equal(udp_connect(&s->u, pcb, ip_addr_v4(US), ip_addr_v4(peer), peer_port), 0);
        udp_pcb_check(&s->u, pcb);
        return pcb;
}

/* ---- datagrams ---- */

static struct arrival with_defaults(struct arrival a)
{
        a.src = a.src != 0 ? a.src : PEER;
        a.dst = a.dst != 0 ? a.dst : US;
        a.sport = a.sport != 0 ? a.sport : 4000;
        a.dport = a.dport != 0 ? a.dport : 53;
        return a;
}

static uint8_t pattern(const struct arrival *a, uint32_t i)
{
        return (uint8_t)(a->fill + i * 7 + (i >> 8));
}

static uint32_t lend(struct scene *s, bool small)
{
        uint32_t from = small ? LENT_LARGE + 1 : 1, n = small ? LENT_SMALL : LENT_LARGE;

        for (uint32_t i = from; i < from + n; i++) {
                if (s->lent[i] == 0) {
                        s->lent[i] = 1;
                        return i;
                }
        }
        fail_msg("the peer has no frame left to lend");
        return 0;
}

static enum udp_verdict rx(struct scene *s, const struct udp_dgram *d, bool shortly)
{
        uint32_t pcb = udp_lookup(&s->u, &d->tuple);

        if (shortly && pcb != 0 && udp_rx_short(&s->u, pcb, &d->tuple, d->inl, d->inl_len, s->now))
                return UDP_DONE;
        return udp_rx(&s->u, d, s->now);
}

enum udp_verdict arrives_(struct scene *s, struct arrival given)
{
        struct arrival a = with_defaults(given);
        uint8_t inl[UNET_INLINE_MAX];
        struct udp_dgram d = {
                .tuple = {.laddr = ip_addr_v4(a.dst),
                          .raddr = ip_addr_v4(a.src),
                          .lport = a.dport,
                          .rport = a.sport,
                          .chan = CHAN},
                .inl = inl,
                .inl_len = a.len - a.in_frame,
        };
        uint32_t num = a.in_frame != 0 ? lend(s, a.small) : 0;
        struct ip_optbuf opts = {.len = a.nopts};
        enum udp_verdict v;

        assert_true(d.inl_len <= sizeof inl);
        for (uint32_t i = 0; i < d.inl_len; i++)
                inl[i] = pattern(&a, i);
        if (num != 0) {
                d.data = (struct buf){frame_id(FRAME_REGION_RX(CHAN), num), 0, a.in_frame};
                for (uint32_t i = 0; i < a.in_frame; i++)
                        frame_addr(s->frames, d.data.id)[i] = pattern(&a, d.inl_len + i);
        }
        for (uint32_t i = 0; i < a.nopts; i++)
                opts.raw[i] = pattern(&a, i);
        d.opts = a.nopts != 0 ? &opts : NULL;
        v = rx(s, &d, a.shortly && num == 0 && a.nopts == 0);
        if (num != 0 && v != UDP_TOOK)
                frame_drop(s->frames, d.data.id);
        memset(inl, 0xdd, sizeof inl);
        memset(&opts, 0xdd, sizeof opts);
        return v;
}

static void compare(const struct udp_msg *m, const struct arrival *a)
{
        uint32_t at = 0;

        assert_int_equal(ip_addr_get_v4(m->src), a->src);
        assert_int_equal(ip_addr_get_v4(m->dst), a->dst);
        assert_int_equal(m->sport, a->sport);
        assert_int_equal(m->dport, a->dport);
        assert_int_equal(m->nopts, a->nopts);
        for (uint32_t i = 0; i < a->nopts; i++)
                assert_int_equal(m->opts[i], pattern(a, i));
        assert_int_equal(m->chan, CHAN);
        assert_int_equal(m->len, a->len);
        for (int k = 0; k < m->nspan; k++)
                for (uint32_t i = 0; i < m->span[k].len; i++)
                        assert_int_equal(m->span[k].ptr[i], pattern(a, at++));
        assert_int_equal(at, a->len);
}

void expect_read_(struct scene *s, uint32_t pcb, struct arrival given, const char *file, int line)
{
        struct arrival a = with_defaults(given);
        struct udp_msg m;
        int n = udp_recv_peek(&s->u, pcb, 0, &m, 1);

        if (n != 1)
                print_error("%s:%d: nothing to read (%d)\n", file, line, n);
        assert_int_equal(n, 1);
        if (m.len != a.len)
                print_error("%s:%d: another datagram\n", file, line);
        compare(&m, &a);
        read_first(&s->u, pcb, 1);
        udp_pcb_check(&s->u, pcb);
}
