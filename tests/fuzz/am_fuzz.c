/*
 * Active messages: two endpoints over a wire on which the input writes. The first byte chooses
 * whether messages come as they are, or with what a peer's header must say (job, rank, version) put
 * right; then a program of messages, requests and polls. Nothing but the segment may be written,
 * every handler sees what it may see, and what was kept is free in the end.
 */
#include <stdlib.h>

#include "am/am_int.h"
#include "tests/am/fabric.h"
#include "tests/fuzz/fuzz.h"

#define SEG   512u
#define GUARD 0x5a

struct world {
        struct fabric *f;
        struct unet_ep *ep[2];
        struct uam *am;
        uint32_t chan[2];       /* of the hostile side, to us */
        uint8_t mem[SEG + 128]; /* 64 bytes before and after the segment are nobody's */
        const uint8_t *p, *end;
};

static unsigned next_byte(struct world *w)
{
        return w->p < w->end ? *w->p++ : 0;
}

static void on_any(struct uam_token *t, const uam_arg *arg, int nargs, void *data, size_t len,
                   void *ctx)
{
        struct world *w = ctx;
        const uint8_t *at = data;
        uint8_t sum = 0;

        assert(nargs >= 0 && nargs <= UAM_ARGS);
        for (size_t i = 0; i < len; i++)
                sum = (uint8_t)(sum + at[i]);
        if (len != 0 && sum % 2 == 0)
                uam_reply_medium(t, 1, data, len < 300 ? len : 300, arg, nargs);
        else
                uam_reply_short(t, 1, arg, nargs);
        assert(uam_rank(uam_token_am(t)) == 0 && w->am != NULL);
}

static nstime fuzz_now(void *arg)
{
        return fabric_now(arg);
}

static void fuzz_sleep(void *arg, nstime until)
{
        (void)arg;
        (void)until;
}

static void check_guards(const struct world *w)
{
        for (int i = 0; i < 64; i++)
                assert(w->mem[i] == GUARD && w->mem[64 + SEG + i] == GUARD);
}

static void make_world(struct world *w, const uint8_t *data, size_t size)
{
        const struct unet_ep_opts eo = {
                .tx_bytes = 65536, .rx_bytes = 4096, .rx_slots = 1, .free_slots = 1};
        const struct uam_opts o = {
                .rank = 0, .ranks = 2, .window = 2, .job = 7, .buffer_bytes = 1024};
        uint32_t chan[2];

        *w = (struct world){.p = data, .end = data + size};
        memset(w->mem, GUARD, sizeof w->mem);
        w->f = fabric_new(&(struct fabric_opts){.nodes = 2, .mtu = 2048});
        for (uint32_t i = 0; i < 2; i++) {
                if (unet_ep_open(&eo, &w->ep[i]) != 0)
                        abort();
                fabric_attach(w->f, i, w->ep[i], i == 0 ? chan : w->chan);
        }
        if (uam_open(w->ep[0], &o, &w->am) != 0 || uam_connect(w->am, 1, chan[1]) != 0)
                abort();
        am_set_time(w->am, (struct am_time){fuzz_now, fuzz_sleep, w->f});
        uam_segment(w->am, w->mem + 64, SEG);
        uam_register(w->am, 0, on_any, UAM_ANY & ~UAM_REPLY, w);
        uam_register(w->am, 1, on_any, UAM_ANY & ~UAM_REQUEST, w);
}

/* A message of the input's bytes: its length, how much of it in the descriptor, and so much that is
 * put right. */
static void step_message(struct world *w, bool right)
{
        struct unet_segment seg = unet_ep_segment(w->ep[1]);
        uint32_t len = next_byte(w) * 4 + 4, inl = next_byte(w) % (UNET_EP_INLINE + 1);
        uint8_t bytes[1100] = {0};
        struct unet_send s = {.chan = w->chan[0], .inl = bytes};
        struct am_hdr h;

        inl = inl < len ? inl : len;
        for (uint32_t i = 0; i < 64; i++)
                bytes[i] = (uint8_t)next_byte(w);
        memcpy(&h, bytes, sizeof h);
        h.kind = (uint8_t)(AM_VERSION << 4 | h.kind % AM_KINDS);
        h.job = 7;
        h.rank = 1;
        h.id %= 3;
        if (h.len % 3 != 0 && len >= AM_HDR) {
                uint32_t head = am_wire_args_len((enum am_cat)(h.form & 3), h.form >> 2);
                uint64_t total;
                h.len = len > head ? len - head : 0;
                total = h.len;
                if (right && (h.form & 3) >= AM_CAT_LONG && head <= len)
                        memcpy(bytes + head - 8, &total, sizeof total);
        }
        if (right)
                memcpy(bytes, &h, sizeof h);
        s.inl_len = (uint16_t)inl;
        if (len > inl) {
                memcpy(seg.base, bytes + inl, len - inl);
                s.nfrags = 1;
                s.frag[0] = (struct unet_frag){0, len - inl};
        }
        unet_ep_send(w->ep[1], &s, 1);
}

static void step_request(struct world *w)
{
        static uint8_t data[600];
        static uint8_t to[600];
        static struct uam_event e;

        e = (struct uam_event){0};
        switch (next_byte(w) % 4) {
        case 0:
                uam_request_short(w->am, 1, 0, UAM_IMMEDIATE, NULL, 0);
                break;
        case 1:
                uam_request_medium(w->am, 1, 0, UAM_IMMEDIATE, data, sizeof data, NULL, 0);
                break;
        case 2:
                uam_request_long(w->am, 1, 0, UAM_IMMEDIATE, data, sizeof data, 0, NULL, NULL, 0);
                break;
        default:
                if (w->am->peer[1]->tx[AM_SEQ_REQ].una == w->am->peer[1]->tx[AM_SEQ_REQ].nxt)
                        uam_get(w->am, 1, 0, to, sizeof to,
                                &e); /* does not wait: the window is empty */
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        static struct world w;
        bool right = size > 0 && data[0] & 1;

        make_world(&w, data + (size > 0), size - (size > 0));
        for (int n = 0; w.p < w.end && n < 100; n++) {
                unsigned op = next_byte(&w);
                if (op % 4 != 3)
                        step_message(&w, right);
                else
                        step_request(&w);
                fabric_advance(w.f, fabric_now(w.f) + (op & 0x80 ? NS_PER_S : 20 * NS_PER_US));
                uam_poll(w.am);
                am_idle(w.am, true);
                check_guards(&w);
        }
        am_peer_ends(w.am->peer[1], -EPIPE);
        am_collect(w.am);
        assert(w.am->nfree == w.am->nbufs && w.am->lingering == 0 && w.am->unsent == 0);
        uam_close(w.am, 0);
        unet_ep_close(w.ep[0]);
        unet_ep_close(w.ep[1]);
        fabric_free(w.f);
        return 0;
}

/* A message as a peer makes it: kind, form, handler, flags, number, acknowledgements. */
static size_t put_message(uint8_t *buf, uint8_t kind, uint8_t form, uint8_t flags, uint16_t seq,
                          uint8_t len4)
{
        struct am_hdr h = {.kind = kind, .form = form, .flags = flags, .seq = seq, .len = 1};

        buf[0] = 0; /* a message */
        buf[1] = len4;
        buf[2] = 120;
        memcpy(buf + 3, &h, sizeof h);
        memset(buf + 3 + sizeof h, 0, 40);
        return 3 + 64;
}

size_t fuzz_seed(unsigned i, uint8_t *buf)
{
        size_t n = 1;

        buf[0] = 1;
        switch (i) {
        case 0: /* requests of each size */
                n += put_message(buf + n, AM_REQ, AM_CAT_LONG, AM_F_LAST, 0, 59);
                n += put_message(buf + n, AM_REQ, AM_CAT_MEDIUM | 1 << 2, 0, 1, 100);
                n += put_message(buf + n, AM_REQ, AM_CAT_SHORT | 2 << 2, 0, 2, 9);
                return n;
        case 1: /* a gap, a duplicate, a nack, a goodbye */
                n += put_message(buf + n, AM_REQ, AM_CAT_SHORT, 0, 1, 5);
                n += put_message(buf + n, AM_REQ, AM_CAT_SHORT, 0, 0, 5);
                n += put_message(buf + n, AM_REQ, AM_CAT_SHORT, 0, 0, 5);
                n += put_message(buf + n, AM_NACK_REP, 0, 0, 0, 5);
                n += put_message(buf + n, AM_BYE, 0, 0, 5, 5);
                return n;
        case 2: /* a get of ours, and what comes for it */
                buf[n++] = 3;
                buf[n++] = 3;
                n += put_message(buf + n, AM_REP, AM_CAT_GOT, 0, 0, 160);
                n += put_message(buf + n, AM_REP, AM_CAT_MEDIUM, 0, 0, 100);
                return n;
        case 3: /* what is held, ours and the peer's */
                n += put_message(buf + n, AM_REQ, AM_CAT_SHORT, 0, 1, 5);
                n += put_message(buf + n, AM_REQ, AM_CAT_MEDIUM | 1 << 2, 0, 1, 100);
                buf[n++] = 3;
                buf[n++] = 0;
                n += put_message(buf + n, AM_NACK_REQ, AM_SEQS << 2, 0, 0, 9);
                n += put_message(buf + n, AM_ACK, AM_SEQS << 2, 0, 0, 9);
                n += put_message(buf + n, AM_REQ, AM_CAT_SHORT, 0, 0, 5);
                return n;
        default:
                return 0;
        }
}
