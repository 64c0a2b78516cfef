/* A program of GAM 1.1, as an SPMD program of the nineties would be written: each node asks all
 * others. Prints "right". */
#include <stdio.h>
#include <string.h>

#include <unet/gam.h>

static volatile int answers, stored, fetched, pulled;
static long sum;
static char table[40000], source[40000];
static char fetched_to[40000];

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

int main(void)
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
                fetched_to[39999] == 'a' + next && lent[0] == 0;
        printf("node %d of %d: %s\n", me, procs, right ? "right" : "WRONG");
        fflush(stdout);
        am_disable();
        return !right;
}
