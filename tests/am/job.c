#include "tests/am/job.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <ucontext.h>

#include "am/am_int.h"

#define STACK (256u << 10)

struct rank {
        struct job *j;
        uint32_t at;
        ucontext_t ctx;
        void *stack;
        struct unet_ep *ep;
        struct uam *am;
        nstime until; /* asleep until then, or a message */
        bool deaf;    /* or no message */
        bool done, ended, killed;
};

struct job {
        struct job_opts o;
        struct fabric *f;
        struct rank *rank;
        ucontext_t sched;
        uint32_t left, open; /* whose main has not returned; which have not closed */
        job_main *fn;
        void *arg;
};

static uint64_t total[UAM_NSTATS], messages;
static nstime ended_at;

/* ---- a rank ---- */

static void yield(struct rank *r)
{
        swapcontext(&r->ctx, &r->j->sched);
}

static nstime rank_now(void *arg)
{
        return fabric_now(((struct rank *)arg)->j->f);
}

static void rank_sleep(void *arg, nstime until)
{
        struct rank *r = arg;

        r->until = until;
        yield(r);
}

static void connect_all(struct rank *r)
{
        struct job *j = r->j;
        struct uam_opts o = j->o.am;
        struct unet_ep_opts eo = {.tx_bytes = j->o.tx_bytes ? j->o.tx_bytes : 256 << 10,
                                  .rx_bytes = 4096,
                                  .rx_slots = 1,
                                  .free_slots = 1};
        uint32_t *chan = calloc(j->o.net.nodes, sizeof *chan);

        o.rank = r->at;
        o.ranks = j->o.net.nodes;
        if (chan == NULL || unet_ep_open(&eo, &r->ep) != 0 || uam_open(r->ep, &o, &r->am) != 0) {
                perror("a rank cannot be opened");
                abort();
        }
        am_set_time(r->am, (struct am_time){rank_now, rank_sleep, r});
        fabric_attach(j->f, r->at, r->ep, chan);
        for (uint32_t i = 0; i < j->o.net.nodes; i++) {
                int err = i == r->at ? 0 : uam_connect(r->am, i, chan[i]);
                if (err != 0) {
                        fprintf(stderr, "rank %u cannot connect to %u: %s\n", r->at, i,
                                strerror(-err));
                        abort();
                }
        }
        free(chan);
}

/* A rank whose main has returned answers the others until theirs have. */
static void life(unsigned hi, unsigned lo)
{
        struct rank *r = (struct rank *)(uintptr_t)((uint64_t)hi << 32 | lo);
        struct job *j = r->j;

        j->fn(j, r->am, j->arg);
        r->done = true;
        j->left--;
        while (j->left > 0)
                uam_wait(r->am, 100 * NS_PER_MS);
        for (int i = 0; i < UAM_NSTATS; i++)
                total[i] += uam_stat(r->am, (enum uam_stat)i);
        uam_close(r->am, 10 * NS_PER_S);
        r->am = NULL;
        r->ended = true;
        j->open--;
        for (;;)
                yield(r);
}

static void start(struct job *j, uint32_t at)
{
        struct rank *r = &j->rank[at];
        uint64_t self = (uint64_t)(uintptr_t)r;

        r->j = j;
        r->at = at;
        connect_all(r);
        r->stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (r->stack == MAP_FAILED)
                abort();
        getcontext(&r->ctx);
        r->ctx.uc_stack.ss_sp = r->stack;
        r->ctx.uc_stack.ss_size = STACK;
        makecontext(&r->ctx, (void (*)(void))life, 2, (unsigned)(self >> 32), (unsigned)self);
}

/* ---- all of them ---- */

static bool may_run(const struct job *j, const struct rank *r)
{
        return !r->ended && !r->killed &&
               (r->until <= fabric_now(j->f) || (!r->deaf && fabric_ready(j->f, r->at)));
}

/* What a rank holds is still to come, and is counted. */
static void check_held(const struct uam *am, const struct am_rx *r)
{
        uint32_t held = 0;

        for (uint32_t i = 0; i <= am->mask; i++) {
                struct am_hdr h;
                if (r->held[i] == NULL)
                        continue;
                memcpy(&h, r->held[i]->bytes, sizeof h);
                held++;
                if ((uint16_t)(h.seq - r->nxt) >= am->o.window) {
                        fprintf(stderr, "rank %u holds %u, and %u is next\n", am->o.rank, h.seq,
                                r->nxt);
                        abort();
                }
        }
        if (held != r->nheld) {
                fprintf(stderr, "rank %u holds %u, and counts %u\n", am->o.rank, held, r->nheld);
                abort();
        }
}

static void check(const struct uam *am)
{
        for (uint32_t i = 0; am != NULL && i < am->o.ranks; i++)
                for (int s = 0; am->peer[i] != NULL && s < AM_SEQS; s++)
                        check_held(am, &am->peer[i]->rx[s]);
}

/* One turn for each that has something to do. False: nobody has. */
static bool turn(struct job *j)
{
        bool any = false;

        for (uint32_t i = 0; i < j->o.net.nodes; i++) {
                struct rank *r = &j->rank[i];
                if (!may_run(j, r))
                        continue;
                any = true;
                r->until = 0;
                r->deaf = false;
                swapcontext(&j->sched, &r->ctx);
                check(r->am);
        }
        return any;
}

static nstime next_event(const struct job *j)
{
        nstime next = NSTIME_NEVER;

        for (uint32_t i = 0; i < j->o.net.nodes; i++) {
                const struct rank *r = &j->rank[i];
                if (r->ended || r->killed)
                        continue;
                next = MIN(next, r->until);
                if (!r->deaf)
                        next = MIN(next, fabric_next(j->f, i));
        }
        return next;
}

static void finish(struct job *j)
{
        for (uint32_t i = 0; i < j->o.net.nodes; i++) {
                struct rank *r = &j->rank[i];
                if (r->am != NULL)
                        uam_close(r->am, 0);
                unet_ep_close(r->ep);
                munmap(r->stack, STACK);
        }
        fabric_free(j->f);
        free(j->rank);
}

static void many_files(uint32_t ranks)
{
        struct rlimit l;

        if (getrlimit(RLIMIT_NOFILE, &l) == 0 && l.rlim_cur < 4 * ranks + 100) {
                l.rlim_cur = MIN(l.rlim_max, 4 * ranks + 100);
                setrlimit(RLIMIT_NOFILE, &l);
        }
}

bool job_run(const struct job_opts *o, job_main *fn, void *arg)
{
        struct job j = {.o = *o, .fn = fn, .arg = arg, .left = o->net.nodes, .open = o->net.nodes};
        nstime limit = o->limit != 0 ? o->limit : 300 * NS_PER_S;

        many_files(o->net.nodes);
        memset(total, 0, sizeof total);
        j.f = fabric_new(&o->net);
        j.rank = calloc(o->net.nodes, sizeof *j.rank);
        if (j.rank == NULL)
                abort();
        for (uint32_t i = 0; i < o->net.nodes; i++)
                start(&j, i);
        while (j.open > 0 && fabric_now(j.f) < limit)
                if (!turn(&j))
                        fabric_advance(j.f, MIN(next_event(&j), limit));
        messages = fabric_sent(j.f);
        ended_at = fabric_now(j.f);
        finish(&j);
        return j.open == 0;
}

struct fabric *job_fabric(struct job *j)
{
        return j->f;
}

void job_kill(struct job *j, uint32_t rank)
{
        struct rank *r = &j->rank[rank];
        bool self = r->until == 0 && !r->killed;

        r->killed = true;
        j->left -= !r->done;
        j->open -= !r->ended;
        fabric_cut(j->f, rank);
        if (self)
                yield(r);
}

void job_sleep(struct job *j, uint32_t rank, nstime how_long)
{
        struct rank *r = &j->rank[rank];

        r->until = fabric_now(j->f) + how_long;
        r->deaf = true;
        yield(r);
}

uint64_t job_stat(enum uam_stat what)
{
        return total[what];
}

uint64_t job_messages(void)
{
        return messages;
}

nstime job_time(void)
{
        return ended_at;
}
