/* Endpoint pairs over each provider. */
#include "pair.h"

#include <sys/socket.h>
#include <unistd.h>

#include "tests/sim/ni_sim.h"
#include "tests/sim/raw_sim.h"
#include "unet/shm/switch.h"

struct pair *pair_new(const struct provider *how, struct unet_ep_opts opts)
{
        struct pair *p = calloc(1, sizeof *p);

        assert_non_null(p);
        p->how = how;
        opts.direct = how->direct;
        if (opts.tx_bytes == 0)
                opts.tx_bytes = 256 << 10;
        if (opts.rx_bytes == 0)
                opts.rx_bytes = 256 << 10;
        if (opts.rx_slots == 0)
                opts.rx_slots = 64;
        assert_int_equal(unet_ep_open(&opts, &p->a), 0);
        assert_int_equal(unet_ep_open(&opts, &p->b), 0);
        p->sa = unet_ep_segment(p->a);
        p->sb = unet_ep_segment(p->b);
        how->join(p);
        return p;
}

void pair_free(struct pair *p)
{
        if (p->how->leave != NULL)
                p->how->leave(p);
        if (p->a != NULL)
                unet_ep_close(p->a);
        if (p->b != NULL)
                unet_ep_close(p->b);
        if (p->sim != NULL)
                sim_destroy(p->sim);
        if (p->sw != NULL)
                unet_switch_close(p->sw);
        free(p);
}

void pair_settle(struct pair *p)
{
        if (p->how->settle != NULL)
                p->how->settle(p);
}

void pair_hold(struct pair *p)
{
        if (p->how->hold != NULL)
                p->how->hold(p);
}

void pair_provide(struct pair *p, uint32_t n, uint32_t size)
{
        for (uint32_t i = 0; i < n; i++) {
                struct unet_frag buf = {(uint32_t)p->sb.tx_bytes + i * size, size};
                assert_int_equal(unet_ep_provide(p->b, &buf, 1), 1);
        }
}

static uint8_t pattern(uint32_t number, uint32_t i)
{
        return (uint8_t)(number * 31 + i * 7 + (i >> 8));
}

int pair_send(struct pair *p, uint32_t number, uint32_t len, uint32_t inl, uint32_t off)
{
        uint8_t head[UNET_EP_INLINE];
        struct unet_send m = {.chan = p->ca, .inl = head, .inl_len = (uint16_t)MIN(len, inl)};

        for (uint32_t i = 0; i < m.inl_len; i++)
                head[i] = pattern(number, i);
        if (len > m.inl_len) {
                m.nfrags = 1;
                m.frag[0] = (struct unet_frag){off, len - m.inl_len};
                for (uint32_t i = m.inl_len; i < len; i++)
                        p->sa.base[off + i - m.inl_len] = pattern(number, i);
        }
        return unet_ep_send(p->a, &m, 1);
}

bool message_is(const struct unet_recv *m, uint32_t number)
{
        static uint8_t flat[1 << 17];

        if (unet_recv_copy(m, flat, sizeof flat) != m->len)
                return false;
        for (uint32_t i = 0; i < m->len; i++)
                if (flat[i] != pattern(number, i))
                        return false;
        return true;
}

void pair_give_back(struct pair *p, const struct unet_recv *m)
{
        if (p->how->direct) {
                unet_ep_release(p->b, m, 1);
                return;
        }
        for (int i = 0; i < m->nfrags; i++) {
                struct unet_frag buf = {m->frag[i].off, m->frag[i].size};
                assert_int_equal(unet_ep_provide(p->b, &buf, 1), 1);
        }
}

void pair_expect(struct pair *p, uint32_t number, uint32_t len)
{
        struct unet_recv m;

        pair_settle(p);
        assert_int_equal(unet_ep_recv(p->b, &m, 1), 1);
        assert_int_equal(m.chan, p->cb);
        assert_int_equal(m.len, len);
        assert_true(message_is(&m, number));
        pair_give_back(p, &m);
}

void pair_expect_none(struct pair *p)
{
        struct unet_recv m;

        pair_settle(p);
        assert_int_equal(unet_ep_recv(p->b, &m, 1), 0);
}

/* ---- shm ---- */

static void join_pair(struct pair *p)
{
        assert_int_equal(unet_chan_pair(p->a, p->b, &p->ca, &p->cb), 0);
}

/* ---- sim ---- */

static void join_sim(struct pair *p)
{
        const struct sim_params wire = {.mtu = 65536,
                                        .delay = NS_PER_MS,
                                        .rate = 1000000000,
                                        .tx_slots = 512,
                                        .rx_slots = 512};
        const struct sim_params dir[2] = {wire, wire};

        p->sim = sim_create(1, dir);
        assert_non_null(p->sim);
        assert_int_equal(raw_sim_attach(p->a, p->sim, 0, &p->ca), 0);
        assert_int_equal(raw_sim_attach(p->b, p->sim, 1, &p->cb), 0);
}

static void settle_sim(struct pair *p)
{
        while (sim_next(p->sim) != NSTIME_NEVER)
                sim_advance(p->sim, sim_next(p->sim));
}

/* ---- emul: both on one switch ---- */

uint32_t switch_join(struct unet_switch *sw, struct unet_switch_account *account,
                     struct unet_ep *ep, uint32_t *link)
{
        struct frame_geom flat = {{0}};
        struct shm_offer theirs, mine;
        struct shm_link *s;
        struct link l;
        uint32_t port;
        int sock[2];

        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sock), 0);
        assert_int_equal(shm_link_make(&ep->st, flat, &ep->cnt, &s), 0);
        theirs = shm_link_mine(s);
        assert_int_equal(unet_switch_attach(sw, sock[0], &theirs, geteuid(), account, &mine, &port),
                         0);
        assert_int_equal(shm_link_connect(s, sock[1], &mine, geteuid(), &l), 0);
        unet_switch_sent(sw, port);
        shm_link_sent(s);
        l.tagged = true;
        assert_int_equal(ep_attach(ep, &l, link), 0);
        return port;
}

static void join_emul(struct pair *p)
{
        uint32_t pa, pb, tag[2];

        assert_int_equal(unet_switch_open(NULL, &p->sw), 0);
        pa = switch_join(p->sw, NULL, p->a, &p->la);
        pb = switch_join(p->sw, NULL, p->b, &p->lb);
        assert_int_equal(unet_switch_connect(p->sw, pa, pb, tag), 0);
        assert_int_equal(ep_chan_tagged(p->a, p->la, tag[0], tag[0], &p->ca), 0);
        assert_int_equal(ep_chan_tagged(p->b, p->lb, tag[1], tag[1], &p->cb), 0);
}

static void settle_emul(struct pair *p)
{
        while (unet_switch_step(p->sw) > 0)
                ;
}

/* ---- wrappers that do nothing to what they pass on ---- */

static void join_captured(struct pair *p)
{
        join_pair(p);
        assert_int_equal(unet_chan_capture(p->a, p->ca, "/dev/null", 0), 0);
        assert_int_equal(unet_chan_capture(p->b, p->cb, "/dev/null", 64), 0);
}

static void join_faultless(struct pair *p)
{
        join_emul(p);
        assert_int_equal(unet_chan_fault(p->a, p->ca, "seed=3"), 0);
        assert_int_equal(unet_chan_fault(p->b, p->cb, ""), 0);
}

const struct provider providers[] = {
        {.name = "shm", .hears_close = true, .join = join_pair},
        {.name = "shm direct", .direct = true, .hears_close = true, .join = join_pair},
        {.name = "emul",
         .drops_behind = true,
         .hears_close = true,
         .join = join_emul,
         .settle = settle_emul},
        {.name = "emul direct",
         .drops_behind = true,
         .hears_close = true,
         .direct = true,
         .join = join_emul,
         .settle = settle_emul},
        {.name = "shm captured", .hears_close = true, .join = join_captured},
        {.name = "emul faultless",
         .drops_behind = true,
         .join = join_faultless,
         .settle = settle_emul},
        {.name = "sim", .drops_behind = true, .join = join_sim, .settle = settle_sim},
        {.name = "sim direct",
         .drops_behind = true,
         .direct = true,
         .join = join_sim,
         .settle = settle_sim},
};
const int nproviders = ARRAY_LEN(providers);
