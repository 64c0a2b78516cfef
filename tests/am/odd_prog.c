/*
 * A rank among others that does what processes do beside computing, while all ask all:
 *
 *      am_odd signals    a timer interrupts every call, from before it joins on
 *      am_odd forks      children that end at once, or run a program
 *      am_odd exits      rank 1 ends in a handler
 *      am_odd goes       rank 1 ends without a word, with status 0, and leaves a program behind
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <unet/am.h>

#define ROUNDS 300
#define BULK   50000u

enum { ASK, ANSWER, LEAVE };

static struct uam *am;
static uint64_t asked, answered;
static volatile sig_atomic_t alarms;
static int lost;

static void on_alarm(int sig)
{
        alarms++;
}

static void on_ask(struct uam_token *t, const uam_arg *arg, int nargs, void *data, size_t len,
                   void *ctx)
{
        asked++;
        uam_reply_short(t, ANSWER, arg, nargs);
}

static void on_answer(struct uam_token *t, const uam_arg *arg, int nargs, void *data, size_t len,
                      void *ctx)
{
        answered += nargs == 1 && arg[0] == uam_token_rank(t);
}

static void on_leave(struct uam_token *t, const uam_arg *arg, int nargs, void *data, size_t len,
                     void *ctx)
{
        exit((int)arg[0]);
}

static void on_lost(void *arg, uint32_t rank, int err)
{
        lost = err;
}

static void must(int right, const char *what)
{
        if (right)
                return;
        fprintf(stderr, "rank %u: %s\n", uam_rank(am), what);
        exit(2);
}

/* Every call that may sleep, with every rank. */
static void talk(uint64_t round)
{
        uint32_t ranks = uam_ranks(am), me = uam_rank(am);
        size_t room;
        uint8_t *mem = uam_memory(am, &room);
        struct uam_event e = {0};
        int64_t sum;

        memset(mem, (int)(me + round), BULK);
        must(uam_barrier(am) == 0, "barrier");
        for (uint32_t r = 0; r < ranks; r++) {
                must(uam_request_short(am, r, ASK, 0, (uam_arg[]){r}, 1) == 0, "request");
                must(uam_put(am, r, (me + 1) * BULK, mem, BULK, &e) == 0, "put");
        }
        must(uam_flush(am, UAM_ALL, UNET_FOREVER) == 0, "flush");
        uam_wait_for(am, answered == (round + 1) * ranks && e.left == 0);
        must(e.err == 0, "event");
        must(uam_reduce_i64(am, UAM_ADD, (int64_t)asked, &sum) == 0, "reduction");
        must(uam_barrier(am) == 0, "barrier");
        for (uint32_t r = 0; r < ranks; r++)
                must(mem[(r + 2) * BULK - 1] == (uint8_t)(r + round), "what was put here");
}

static void tick(void)
{
        struct sigaction sa = {.sa_handler = on_alarm}; /* no SA_RESTART */
        struct itimerval every = {{0, 500}, {0, 500}};

        sigaction(SIGALRM, &sa, NULL);
        setitimer(ITIMER_REAL, &every, NULL);
}

static void join(const struct uam_job_opts *o)
{
        int err = uam_job_open(o, &am);

        if (err == 0)
                return;
        fprintf(stderr, "uam_job_open: %s\n", strerror(-err));
        exit(2);
}

static pid_t child(const char *program)
{
        pid_t pid = fork();

        must(pid >= 0, "fork");
        if (pid == 0) {
                if (program != NULL)
                        execlp(program, program, "1000", (char *)NULL);
                _exit(0);
        }
        return pid;
}

static void fork_one(int round)
{
        pid_t pid = child(round % 2 == 1 ? "true" : NULL);

        must(waitpid(pid, NULL, 0) == pid, "waitpid");
}

static void leave(void)
{
        printf("%d is left\n", (int)child("sleep"));
        fflush(stdout);
        _exit(0);
}

int main(int argc, char **argv)
{
        const char *what = argc > 1 ? argv[1] : "";
        const struct uam_job_opts o = {.memory = 2 << 20};
        size_t room;
        int rounds = strcmp(what, "forks") == 0 ? 20 : ROUNDS;

        if (strcmp(what, "signals") == 0)
                tick();
        join(&o);
        uam_register(am, ASK, on_ask, UAM_SHORT | UAM_REQUEST, NULL);
        uam_register(am, ANSWER, on_answer, UAM_SHORT | UAM_REPLY, NULL);
        uam_register(am, LEAVE, on_leave, UAM_SHORT | UAM_REQUEST, NULL);
        uam_on_lost(am, on_lost, NULL);
        uam_segment(am, uam_memory(am, &room), 2 << 20);
        for (int i = 0; i < rounds; i++) {
                if (strcmp(what, "forks") == 0)
                        fork_one(i);
                talk((uint64_t)i);
        }
        if (strcmp(what, "exits") == 0 && uam_rank(am) == 0)
                uam_request_short(am, 1, LEAVE, 0, (uam_arg[]){7}, 1);
        if (strcmp(what, "goes") == 0 && uam_rank(am) == 1)
                leave();
        if (strcmp(what, "exits") == 0 || strcmp(what, "goes") == 0)
                uam_wait_for(am, lost != 0);
        if (lost == 0)
                uam_job_close(am);
        printf("right%s%s\n", alarms > 0 ? ", interrupted" : "",
               lost != 0 ? ", a rank is lost" : "");
        return 0;
}
