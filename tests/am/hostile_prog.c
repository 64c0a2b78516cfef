/*
 * A job whose rank 0 turns on everybody it can reach: messages of random bytes, and of the wire
 * format with random numbers, ranks, jobs, handlers, places and acknowledgements, under its own
 * tags and under all others that a switch may have given out. Rank 1 says whether it was told.
 *
 *      unet am run -n 2 [--unetd] am_hostile MESSAGES SEED
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "am/am_int.h"

static uint64_t state;
static int lost;

static uint64_t draw(void) /* splitmix64 */
{
        uint64_t z = state += 0x9e3779b97f4a7c15u;

        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
        z = (z ^ z >> 27) * 0x94d049bb133111ebu;
        return z ^ z >> 31;
}

static void on_lost(void *arg, uint32_t rank, int err)
{
        lost = err;
}

/* Returns its length. */
static uint32_t make(const struct uam *am, struct am_image *m)
{
        struct am_hdr *h = (struct am_hdr *)m->bytes;
        uint64_t how = draw();

        for (size_t i = 0; i < sizeof m->bytes; i += 8) {
                uint64_t r = draw();
                memcpy(m->bytes + i, &r, 8);
        }
        if (how % 4 == 0)
                return 1 + (uint32_t)(how >> 8) % UNET_EP_INLINE;
        h->kind = (uint8_t)(AM_VERSION << 4 | (how >> 8) % AM_KINDS);
        h->form = (uint8_t)((how >> 16) % (UAM_ARGS + 1) << 2 | ((how >> 24) & 3));
        h->job = how % 3 == 0 ? (uint32_t)draw() : am->o.job;
        h->rank = how % 5 == 0 ? (uint32_t)draw() % 4 : am->o.rank;
        return AM_WITH_ARGS;
}

static void attack(struct uam *am, struct am_peer *p)
{
        struct am_image m;
        uint32_t len = make(am, &m);

        m.tag = draw() % 4 == 0 ? p->tag : (uint32_t)(draw() % 64);
        am_link_send(p->link, &m, MIN(len, UNET_EP_INLINE - (uint32_t)sizeof m.tag));
        am_link_flush(p->link);
}

int main(int argc, char **argv)
{
        long messages = argc > 1 ? atol(argv[1]) : 1000;
        struct uam *am;

        state = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
        if (uam_job_open(NULL, &am) != 0 || uam_ranks(am) != 2)
                return 2;
        if (uam_rank(am) == 0) {
                for (long i = 0; i < messages; i++)
                        attack(am, am->peer[1]);
                _exit(0); /* without a word */
        }
        uam_on_lost(am, on_lost, NULL);
        while (lost == 0)
                uam_wait(am, NS_PER_S);
        printf("told: %s\n", strerror(-lost));
        uam_job_close(am);
        return 0;
}
