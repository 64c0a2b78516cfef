/* A program of GAM 1.1, as an SPMD program of the nineties would be written: each node asks all
 * others. Prints "right". With an argument each has another wait in a handler then. */
#include <stdio.h>
#include <string.h>

#include <unet/gam.h>

static volatile int answers, stored, fetched, pulled, fives, doubles, transfers, refused;
static long sum;
static char table[40000], source[40000];
static char fetched_to[40000], transferred[2000];

static void answer(vnn_t src, long a, long b)
{
        sum += a * 1000 + b;
        answers++;
}

static void ask(vnn_t src, long a, long b, long c, long d)
{
        am_reply_2(src, answer, a + b + c + d, am_my_proc());
}

static void pull(vnn_t src)
{
        pulled++;
}

static void on_stored(vnn_t src, void *addr, int nbytes, void *arg)
{
        if (addr == table && nbytes == (int)sizeof table && arg == (void *)77)
                stored++;
}

static void on_reuse(vnn_t dest, void *addr, int nbytes, void *arg)
{
        memset(addr, 0, (size_t)nbytes);
}

static void on_fetched(vnn_t dest, void *addr, int nbytes, void *arg)
{
        if (addr == (void *)fetched_to && nbytes == (int)sizeof source)
                fetched++;
}

static void five(vnn_t src, long a, long b, long c, long d, long e)
{
        fives += a == 1 && b == 2 && c == 3 && d == 4 && e == 1L << 60;
}

static void half(vnn_t src, long a, long b, double d)
{
        doubles += a == -1 && b == am_my_proc() && d == 0.75;
}

static void halve(vnn_t src, long a, long b, double d)
{
        am_reply_df(src, half, a, b, d / 2);
}

static void on_transferred(vnn_t src, void *addr, int nbytes, void *arg)
{
        transfers += addr == (void *)transferred && nbytes == (int)sizeof transferred &&
                     transferred[1999] == 'a' + (int)src && arg == NULL;
}

/* Sends its source's first bytes back; then breaks the rules. */
static void send_back(vnn_t src)
{
        am_reply_xfer(src, source, transferred, (int)sizeof transferred, on_transferred, NULL);
        refused += am_reply_0(src, pull) == -1;
        refused += am_request_0(src, pull) == -1;
        refused += am_store(src, source, table, 1, NULL, NULL) == -1;
        refused += am_get(src, source, fetched_to, 1, on_fetched, NULL) == -1;
}

static void waits(vnn_t src)
{
        am_wait_for(fives == 2);
}

/* LAM's calls, and those with doubles. */
static int others(int me, int next)
{
        am_request_5(next, five, 1, 2, 3, 4, 1L << 60);
        am_request_df(next, halve, -1, me, 1.5);
        am_request_0(next, send_back);
        am_wait_for(fives == 1 && doubles == 1 && transfers == 1 && refused == 4);
        am_store(next, source, transferred, 0, am_dummy, NULL);
        return lam_sync_all() == 1;
}

int main(int argc, char **argv)
{
        int me, procs, next, right;
        long want = 0;
        static char lent[40000];

        if (am_enable() != 0)
                return 1;
        me = am_my_proc();
        procs = am_procs();
        next = (me + 1) % procs;
        memset(source, 'a' + me, sizeof source);
        for (int i = 0; i < procs; i++) {
                am_request_4(i, ask, 1, 2, 3, i);
                am_request_0(i, pull);
                want += (6 + i) * 1000 + i;
        }
        am_wait_for(answers == procs && pulled == procs);
        memset(lent, 'A' + me, sizeof lent);
        am_store_async(next, lent, table, (int)sizeof table, on_stored, (void *)77, on_reuse, NULL);
        am_wait_for(stored == 1);
        am_get(next, source, fetched_to, (int)sizeof source, on_fetched, NULL);
        am_wait_for(fetched == 1);
        right = sum == want && table[39999] == 'A' + (me + procs - 1) % procs &&
                fetched_to[39999] == 'a' + next && lent[0] == 0 && others(me, next);
        printf("node %d of %d: %s\n", me, procs, right ? "right" : "WRONG");
        fflush(stdout);
        if (argc > 1)
                am_request_0((me + 1) % procs, waits);
        if (!right)
                gam_exit(1);
        gam_exit(0);
}
