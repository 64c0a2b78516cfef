/* A rank of a job: its endpoint, and channels to all others, from what `unet am run` left in
 * the environment. */
#include "am/am_job.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "am/am_int.h"
#include "am/am_meet.h"
#include "base/clock.h"

#define DEFAULT_MEMORY (16u << 20)
#define JOIN_NS        (60 * NS_PER_S) /* for the others to come */
#define RETRY_US       2000
#define CLOSE_NS       (10 * NS_PER_S) /* for the others to hear that we leave */

#define VERBS_BUFFER 4224u                 /* receive buffer of a datagram, with its headers */
#define VERBS_SPARE  64u                   /* buffers that wait to be posted again */
#define VERBS_PLACES (4096u - VERBS_SPARE) /* most that a queue pair has */

struct place {
        uint32_t rank, ranks, job;
        const char *name;
        uint32_t remote;       /* ranks of other hosts */
        int sock[AM_JOB_MOST]; /* -1: a rank of another host, or our own */
        struct am_meeting meeting;
};

/* A whole number below `most` from the environment. */
static int number(const char *name, unsigned long most, uint32_t *out)
{
        const char *text = getenv(name);
        char *end;
        unsigned long n;

        if (text == NULL || *text == '\0')
                return -EINVAL;
        n = strtoul(text, &end, 10);
        if (*end != '\0' || n >= most)
                return -EINVAL;
        *out = (uint32_t)n;
        return 0;
}

/* Programs that the rank runs do not get them: who waits for its end would wait for theirs. */
static int read_sockets(const char *text, struct place *p)
{
        for (uint32_t i = 0; i < p->ranks; i++) {
                char *end;
                p->sock[i] = (int)strtol(text, &end, 10);
                if (end == text || *end != (i + 1 < p->ranks ? ',' : '\0'))
                        return -EINVAL;
                text = end + 1;
                p->remote += p->sock[i] < 0 && i != p->rank;
                if (p->sock[i] >= 0)
                        fcntl(p->sock[i], F_SETFD, FD_CLOEXEC);
        }
        return 0;
}

/* Ranks of other hosts: where to meet them. */
static int read_meeting(struct place *p, struct am_address *where)
{
        const char *meet = getenv(AM_JOB_MEET), *key = getenv(AM_JOB_KEY);

        p->meeting.rank = p->rank;
        p->meeting.ranks = p->ranks;
        if (meet == NULL || key == NULL || !am_key_read(key, p->meeting.key))
                return -EINVAL;
        return am_address_read(meet, where);
}

static int find_place(struct place *p)
{
        const char *sockets = getenv(AM_JOB_SOCKETS);

        *p = (struct place){.ranks = 1, .name = getenv(AM_JOB_NAME)};
        if (getenv(AM_JOB_RANKS) == NULL)
                return 0;
        if (number(AM_JOB_RANKS, AM_JOB_MOST + 1, &p->ranks) != 0 ||
            number(AM_JOB_RANK, p->ranks, &p->rank) != 0 ||
            number(AM_JOB_NUMBER, UINT32_MAX, &p->job) != 0 ||
            (sockets == NULL) == (p->name == NULL))
                return -EINVAL;
        return sockets != NULL ? read_sockets(sockets, p) : 0;
}

/* ---- joining ---- */

/* Through unetd: the lower rank listens under the pair's name. */
static int join_by_name(const struct place *p, struct unet_ep *ep, uint32_t with, uint32_t *chan)
{
        nstime until = clock_now() + JOIN_NS;
        char name[64];
        int fd, err;

        snprintf(name, sizeof name, "%s-%u-%u", p->name, MIN(p->rank, with), MAX(p->rank, with));
        if (p->rank < with) {
                fd = unet_emul_listen(name, 0);
                if (fd < 0)
                        return fd;
                err = unet_emul_accept(ep, fd, JOIN_NS, chan);
                close(fd);
                return err;
        }
        while ((err = unet_emul_connect(ep, name, JOIN_NS, chan)) == -ECONNREFUSED &&
               clock_now() < until)
                usleep(RETRY_US);
        return err;
}

/* Of another host. */
static int join_remote(struct place *p, struct unet_ep *ep, uint32_t with, uint32_t *chan)
{
        int sock = am_meet_rank(&p->meeting, with, clock_now() + JOIN_NS), err;

        if (sock < 0)
                return sock;
        err = unet_verbs_over(ep, sock, JOIN_NS, chan);
        if (err != 0)
                close(sock);
        return err;
}

static int join(struct place *p, struct unet_ep *ep, uint32_t with, uint32_t *chan)
{
        if (p->name != NULL)
                return join_by_name(p, ep, with, chan);
        return p->sock[with] >= 0 ? unet_chan_over(ep, p->sock[with], JOIN_NS, chan)
                                  : join_remote(p, ep, with, chan);
}

/* Both sides go through the ranks in an order that makes each pair meet: by the sum of
 * their numbers. */
static int join_each(struct place *p, struct unet_ep *ep, struct uam *am)
{
        for (uint32_t sum = 0; sum < 2 * p->ranks; sum++) {
                uint32_t with = sum - p->rank, chan;
                int err;

                if (with >= p->ranks || with == p->rank)
                        continue;
                err = join(p, ep, with, &chan);
                if (err == 0)
                        err = uam_connect(am, with, chan);
                if (err != 0)
                        return err;
        }
        return uam_connect_self(am);
}

static int join_all(struct place *p, struct unet_ep *ep, struct uam *am)
{
        struct am_address where;
        int err;

        if (p->remote == 0)
                return join_each(p, ep, am);
        err = read_meeting(p, &where);
        if (err == 0)
                err = am_meet(&p->meeting, &where, clock_now() + JOIN_NS);
        if (err != 0)
                return err;
        err = join_each(p, ep, am);
        am_door_close(&p->meeting.door);
        return err;
}

static struct uam_opts opts_of(const struct place *p, const struct uam_job_opts *given)
{
        struct uam_opts o = {.rank = p->rank, .ranks = p->ranks, .job = p->job};

        if (given != NULL)
                o.window = given->window;
        if (o.window == 0)
                o.window = p->ranks > 16 ? 4 : 16;
        o.buffer_bytes = 8192;
        o.buffers = 2 * o.window * (p->ranks + 1);
        if (p->remote != 0)
                o.places = MIN((2 * o.window + 2) * p->remote, VERBS_PLACES);
        return o;
}

/* Shared memory receives nothing into the segment; a queue pair does: as much as all its peers'
 * windows hold. */
static struct unet_ep_opts ep_opts_of(const struct place *p, const struct uam_opts *o,
                                      size_t memory)
{
        struct unet_ep_opts eo = {.rx_bytes = 4096, .free_slots = 1, .direct = true};

        eo.tx_bytes =
                (memory != 0 ? memory : DEFAULT_MEMORY) + (size_t)o->buffers * o->buffer_bytes;
        if (p->remote != 0) {
                eo.rx_slots = o->places + VERBS_SPARE;
                eo.rx_bytes = (size_t)eo.rx_slots * VERBS_BUFFER;
        }
        return eo;
}

int uam_job_open(const struct uam_job_opts *opts, struct uam **out)
{
        struct unet_ep_opts eo;
        struct unet_ep *ep;
        struct uam_opts o;
        struct place p;
        struct uam *am;
        int err = find_place(&p);

        if (err != 0)
                return err;
        o = opts_of(&p, opts);
        eo = ep_opts_of(&p, &o, opts != NULL ? opts->memory : 0);
        err = unet_ep_open(&eo, &ep);
        if (err != 0)
                return err;
        err = uam_open(ep, &o, &am);
        if (err == 0) {
                am->yields = getenv(AM_JOB_YIELD) != NULL;
                err = join_all(&p, ep, am);
                if (err == 0)
                        err = uam_barrier(am);
                if (err == 0) {
                        *out = am;
                        return 0;
                }
                uam_close(am, 0);
        }
        unet_ep_close(ep);
        return err;
}

void uam_job_close(struct uam *am)
{
        struct unet_ep *ep;

        if (am == NULL || am->token.peer != NULL)
                return;
        ep = am->ep;
        uam_barrier(am);
        uam_close(am, CLOSE_NS);
        unet_ep_close(ep);
}
