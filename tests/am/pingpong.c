/*
 * Instructions of a round trip: raw endpoints against active messages, both sides in one process, so that each
 * does exactly what it must. callgrind counts: see cost_test.py.
 *
 *      am_pingpong raw|am|none BYTES TRIPS
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <unet/am.h>

static struct unet_ep *ep[2];
static uint32_t chan[2];

static void must(int err, const char *what)
{
        if (err != 0) {
                fprintf(stderr, "%s: %s\n", what, strerror(-err));
                exit(1);
        }
}

/* As examples/pingpong.c does: receive, answer, give back. */
static void raw_answer(int side, uint32_t size)
{
        static uint8_t data[UNET_EP_INLINE];
        struct unet_send s = {.chan = chan[side], .inl_len = (uint16_t)size, .inl = data};
        struct unet_recv m;

        while (unet_ep_recv(ep[side], &m, 1) != 1)
                ;
        if (side == 1 && unet_ep_send(ep[side], &s, 1) != 1)
                exit(1);
}

static void raw_trip(uint32_t size)
{
        static uint8_t data[UNET_EP_INLINE];
        struct unet_send s = {.chan = chan[0], .inl_len = (uint16_t)size, .inl = data};

        if (unet_ep_send(ep[0], &s, 1) != 1)
                exit(1);
        raw_answer(1, size);
        raw_answer(0, size);
}

static struct uam *am[2];
static int replies;

static void on_request(struct uam_token *t, const uam_arg *arg, int nargs, void *data, size_t len, void *ctx)
{
        uam_reply_short(t, 1, arg, nargs);
}

static void on_reply(struct uam_token *t, const uam_arg *arg, int nargs, void *data, size_t len, void *ctx)
{
        replies++;
}

static void am_trip(int nargs)
{
        static const uam_arg arg[UAM_ARGS];
        int before = replies;

        must(uam_request_short(am[0], 1, 0, 0, arg, nargs), "request");
        while (uam_poll(am[1]) == 0)
                ;
        while (replies == before)
                uam_poll(am[0]);
}

static void open_am(void)
{
        for (uint32_t i = 0; i < 2; i++) {
                struct uam_opts o = {.rank = i, .ranks = 2};
                must(uam_open(ep[i], &o, &am[i]), "uam_open");
                must(uam_connect(am[i], 1 - i, chan[i]), "uam_connect");
                uam_register(am[i], 0, on_request, UAM_SHORT | UAM_REQUEST, NULL);
                uam_register(am[i], 1, on_reply, UAM_SHORT | UAM_REPLY, NULL);
        }
}

int main(int argc, char **argv)
{
        uint32_t size = argc > 2 ? (uint32_t)atoi(argv[2]) : 32;
        int trips = argc > 3 ? atoi(argv[3]) : 1000;
        const char *what = argc > 1 ? argv[1] : "none";

        must(unet_ep_open(NULL, &ep[0]), "unet_ep_open");
        must(unet_ep_open(NULL, &ep[1]), "unet_ep_open");
        must(unet_chan_pair(ep[0], ep[1], &chan[0], &chan[1]), "unet_chan_pair");
        open_am();
        for (int i = 0; i < trips; i++) {
                if (strcmp(what, "raw") == 0)
                        raw_trip(size);
                else if (strcmp(what, "am") == 0)
                        am_trip((int)(size - 24) / 8);
        }
        return 0;
}
