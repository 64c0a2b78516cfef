/*
 * Ranks of a job that talk to each other in rounds, as long as they are wanted to (tests/vm/am.py):
 *
 *      am_rounds ROUNDS [FILE]         at least so many, and until rank 0 sees the file
 *
 * In a round each asks every other ASKED times and puts data into its segment; each request is
 * answered. Afterwards all handlers must have run once, and the data be there. The first line is
 * "joined PID", the last, of rank 0, how many rounds were right, and what was sent again.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <unet/am.h>

#define ASKED 32     /* the bits of `seen` */
#define BYTES 20000u /* several messages */
#define MOST  16     /* ranks */

enum { ASK, ANSWER };

/* Of two rounds: who has done its part begins the next one, but not the one after that. */
static uint32_t seen[2][MOST];
static uint8_t *data; /* [2][MOST][BYTES]: what came */
static uint64_t answers;

static void must(bool right, const char *what)
{
        if (!right) {
                fprintf(stderr, "am_rounds: %s\n", what);
                exit(1);
        }
}

static void on_ask(struct uam_token *t, const uam_arg *arg, int nargs, void *buf, size_t len,
                   void *ctx)
{
        uint32_t *mask = &seen[arg[0] % 2][uam_token_rank(t)], bit = UINT32_C(1) << arg[1];

        must(nargs == 2 && (*mask & bit) == 0, "a request has come twice");
        *mask |= bit;
        must(uam_reply_short(t, ANSWER, arg, nargs) == 0, "no reply");
}

static void on_answer(struct uam_token *t, const uam_arg *arg, int nargs, void *buf, size_t len,
                      void *ctx)
{
        answers++;
}

static uint8_t byte_of(uint64_t round, uint32_t rank, uint32_t at)
{
        return (uint8_t)(round * 7 + rank * 31 + at * 3);
}

static uint64_t place(uint64_t round, uint32_t rank)
{
        return (round % 2 * MOST + rank) * BYTES;
}

static void talk(struct uam *am, uint64_t round, uint32_t to)
{
        static uint8_t out[BYTES];
        uint32_t me = uam_rank(am);

        for (uint32_t i = 0; i < BYTES; i++)
                out[i] = byte_of(round, me, i);
        must(uam_put(am, to, place(round, me), out, BYTES, NULL) == 0, "no put");
        for (uam_arg i = 0; i < ASKED; i++)
                must(uam_request_short(am, to, ASK, 0, (uam_arg[]){round, i}, 2) == 0,
                     "no request");
}

static void check(struct uam *am, uint64_t round, uint32_t from)
{
        const uint8_t *came = data + place(round, from);

        must(seen[round % 2][from] == UINT32_MAX, "a request is missing");
        seen[round % 2][from] = 0;
        for (uint32_t i = 0; i < BYTES; i++)
                must(came[i] == byte_of(round, from, i), "data is wrong");
}

static void each_other(struct uam *am, uint64_t round,
                       void (*what)(struct uam *, uint64_t, uint32_t))
{
        for (uint32_t r = 0; r < uam_ranks(am); r++)
                if (r != uam_rank(am))
                        what(am, round, r);
}

static void play(struct uam *am, uint64_t round)
{
        uint64_t all = (round + 1) * ASKED * (uam_ranks(am) - 1);

        each_other(am, round, talk);
        uam_wait_for(am, answers >= all);
        must(uam_flush(am, UAM_ALL, UNET_FOREVER) == 0 && uam_barrier(am) == 0,
             "a round does not end");
        must(answers == all, "an answer has come twice");
        each_other(am, round, check);
}

static void on_lost(void *arg, uint32_t rank, int err)
{
        fprintf(stderr, "am_rounds: rank %u is lost: %s\n", rank, strerror(-err));
        exit(1);
}

static struct uam *join(void)
{
        struct uam *am;
        size_t bytes;

        must(uam_job_open(NULL, &am) == 0 && uam_ranks(am) <= MOST, "no job");
        uam_on_lost(am, on_lost, NULL);
        uam_register(am, ASK, on_ask, UAM_SHORT | UAM_REQUEST, NULL);
        uam_register(am, ANSWER, on_answer, UAM_SHORT | UAM_REPLY, NULL);
        data = uam_memory(am, &bytes);
        uam_segment(am, data, bytes);
        must(uam_barrier(am) == 0, "the first barrier");
        printf("joined %d\n", (int)getpid());
        fflush(stdout);
        return am;
}

/* Rank 0 decides. */
static bool wanted(struct uam *am, uint64_t round, uint64_t rounds, const char *file)
{
        uint8_t more = round < rounds || (file != NULL && access(file, F_OK) != 0);

        must(uam_broadcast(am, 0, &more, 1) == 0, "a broadcast");
        return more;
}

int main(int argc, char **argv)
{
        uint64_t rounds = argc > 1 ? strtoull(argv[1], NULL, 10) : 1, round = 0;
        struct uam *am = join();
        int64_t again;

        while (wanted(am, round, rounds, argc > 2 ? argv[2] : NULL))
                play(am, round++);
        must(uam_reduce_i64(am, UAM_ADD, (int64_t)uam_stat(am, UAM_STAT_REPEATED), &again) == 0,
             "a sum");
        if (uam_rank(am) == 0)
                printf("%llu rounds right, %lld messages sent again\n", (unsigned long long)round,
                       (long long)again);
        fflush(stdout);
        uam_job_close(am);
        return 0;
}
