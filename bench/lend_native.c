/*
 * A stream of messages of 1 MB that its sender writes and its receiver reads, every byte, between
 * two processes: by unet_send() and unet_recv(), from and into memory of theirs; and without
 * copies, by unet_send_reserve() and unet_recv_lend(). And the same megabyte again and again, which
 * nobody writes meanwhile, as a server sends its cache: by unet_send(); and by unet_memory_send().
 *
 *      lend_native [--json] [SECONDS [ROUNDS]]
 *              SECONDS of each way in each round, by default 1 and 3, in turn; the best round of
 *              each counts
 *
 * Once with a processor for each process, where lines of memory travel between their caches; and
 * once with both on one, where what is counted is the work: a process that waits sleeps there.
 * Processor time is that of both processes.
 */
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unet/flow.h>

#include "bench/native.h"

#define MESSAGE (1u << 20)
#define CHUNK   (128u << 10) /* committed at once, so that it is read while it is warm */
#define PIECES  4

enum way { COPIED, LENT, CACHED, MEMORY, WAYS };
static const char *const name[WAYS] = {"copied", "lent", "cached", "memory"};
enum where { APART, TOGETHER, WHERES };
static const char *const place[WHERES] = {"two processors", "one processor"};
static const char *const key[WHERES] = {"two", "one"};

struct result {
        double seconds, cpu;
        uint64_t messages;
};

static uint8_t message[MESSAGE] __attribute__((aligned(4096)));

/* ---- what the programs do with a message ---- */

static void writes(void *to, size_t n, uint64_t serial)
{
        memset(to, (int)(serial & 0xff), n);
}

/* As fast as a first-level cache gives it: what is measured is where the bytes come from. (Sums in
 * an array stay in memory with gcc -O2, and one megabyte takes 60 us wherever it is.) */
typedef uint64_t words __attribute__((vector_size(16), aligned(1), may_alias));

static uint64_t reads(const void *from, size_t n)
{
        words a = {0}, b = {0}, c = {0}, d = {0};
        const words *p = from;
        uint64_t sum = 0;

        for (; n >= 4 * sizeof *p; n -= 4 * sizeof *p, p += 4) {
                a += p[0];
                b += p[1];
                c += p[2];
                d += p[3];
        }
        for (const uint8_t *rest = (const uint8_t *)p; n != 0; n--)
                sum += *rest++;
        a += b + c + d;
        return sum + a[0] + a[1];
}

/* ---- a message by each way ---- */

static void send_copied(int s, uint64_t serial)
{
        writes(message, MESSAGE, serial);
        if (unet_send(s, message, MESSAGE, 0) != MESSAGE)
                die("send");
}

static void send_lent(int s, uint64_t serial)
{
        struct iovec v[PIECES];

        for (size_t left = MESSAGE, got; left != 0; left -= got) {
                int n = unet_send_reserve(s, left < CHUNK ? left : CHUNK, v, PIECES, 0);

                if (n < 0)
                        die("reserve");
                got = 0;
                for (int i = 0; i < n; got += v[i++].iov_len)
                        writes(v[i].iov_base, v[i].iov_len, serial);
                if (unet_send_commit(s, got, 0) != (ssize_t)got)
                        die("commit");
        }
}

static void send_cached(int s, uint64_t serial)
{
        if (serial == 0)
                writes(message, MESSAGE, serial);
        if (unet_send(s, message, MESSAGE, 0) != MESSAGE)
                die("send");
}

static void *memory;

/* The cookies are reaped as they come. */
static void send_memory(int s, uint64_t serial)
{
        uint64_t came[64];

        if (serial == 0)
                writes(memory, MESSAGE, serial);
        if (unet_memory_send(s, memory, MESSAGE, 0, serial) != MESSAGE)
                die("send");
        while (unet_memory_reap(s, came, 64) == 64)
                ;
}

static bool recv_copied(int s, volatile uint64_t *sum)
{
        if (!native_recv_all(s, message, MESSAGE))
                return false;
        *sum += reads(message, MESSAGE);
        return true;
}

static bool recv_lent(int s, volatile uint64_t *sum)
{
        struct unet_loan v[PIECES];
        int n = unet_recv_lend(s, v, PIECES, 0);

        if (n < 0)
                die("lend");
        for (int i = 0; i < n; i++)
                *sum += reads(v[i].ptr, v[i].len);
        if (n > 0 && unet_recv_return(s, v, n) != 0)
                die("return");
        return n > 0;
}

/* ---- the two processes ---- */

/* Runs on the n-th processor that there is, or on the last. */
static void pin(int n)
{
        cpu_set_t may, one;

        if (sched_getaffinity(0, sizeof may, &may) != 0)
                die("sched_getaffinity");
        CPU_ZERO(&one);
        for (int cpu = 0; cpu < CPU_SETSIZE && n >= 0; cpu++)
                if (CPU_ISSET(cpu, &may)) {
                        CPU_ZERO(&one);
                        CPU_SET(cpu, &one);
                        n--;
                }
        sched_setaffinity(0, sizeof one, &one);
}

static int port_of(int s)
{
        struct sockaddr_in sa;
        socklen_t len = sizeof sa;

        if (unet_getsockname(s, (struct sockaddr *)&sa, &len) != 0)
                die("getsockname");
        return ntohs(sa.sin_port);
}

static _Noreturn void receiver(enum way way, int tell)
{
        volatile uint64_t sum = 0;
        int l = native_listen(0), port = port_of(l), s;

        if (write(tell, &port, sizeof port) != sizeof port)
                die("tell");
        s = native_accept(l);
        while (way == COPIED || way == CACHED ? recv_copied(s, &sum) : recv_lent(s, &sum))
                ;
        unet_close(s);
        exit(0);
}

static _Noreturn void sender(enum way way, int hear, int tell, double seconds)
{
        static void (*const send[WAYS])(int s, uint64_t serial) = {send_copied, send_lent,
                                                                   send_cached, send_memory};
        double start, now;
        struct result r = {0};
        int port, s;

        if (read(hear, &port, sizeof port) != sizeof port)
                die("hear");
        if (way == MEMORY && unet_memory_new(MESSAGE, &memory) != 0)
                die("memory");
        s = native_connect(port);
        start = now_s();
        do {
                send[way](s, r.messages++);
                now = now_s();
        } while (now - start < seconds);
        r.seconds = now - start;
        unet_close(s);
        if (write(tell, &r, sizeof r) != sizeof r)
                die("tell");
        exit(0);
}

static double cpu_of(pid_t pid)
{
        struct rusage u;
        int status;

        if (wait4(pid, &status, 0, &u) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
                die("a process failed");
        return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
               (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static struct result run(enum where where, enum way way, double seconds)
{
        struct result r;
        int port[2], done[2];
        pid_t pid[2];

        fflush(stdout);
        if (pipe(port) != 0 || pipe(done) != 0)
                die("pipe");
        if ((pid[0] = fork()) == 0) {
                pin(where == APART ? 1 : 0);
                receiver(way, port[1]);
        }
        if ((pid[1] = fork()) == 0) {
                pin(0);
                sender(way, port[0], done[1], seconds);
        }
        close(done[1]);
        if (pid[0] < 0 || pid[1] < 0 || read(done[0], &r, sizeof r) != sizeof r)
                die("fork");
        r.cpu = cpu_of(pid[0]) + cpu_of(pid[1]);
        close(done[0]);
        close(port[0]);
        close(port[1]);
        return r;
}

/* ---- what comes of it ---- */

static double us_a_message(const struct result *r)
{
        return r->seconds * 1e6 / (double)r->messages;
}

static double cpu_a_gb(const struct result *r)
{
        return r->cpu * 1e9 / ((double)r->messages * MESSAGE);
}

static void say(enum where where, const struct result best[WAYS], bool json)
{
        double faster = us_a_message(&best[COPIED]) / us_a_message(&best[LENT]),
               cpu = cpu_a_gb(&best[LENT]) / cpu_a_gb(&best[COPIED]),
               again = us_a_message(&best[CACHED]) / us_a_message(&best[MEMORY]),
               again_cpu = cpu_a_gb(&best[MEMORY]) / cpu_a_gb(&best[CACHED]);

        if (json)
                printf("\"%s\": {", key[where]);
        else
                printf("%s\n", place[where]);
        for (int w = 0; w < WAYS; w++)
                printf(json ? "\"%s\": {\"us_a_mb\": %.1f, \"gbps\": %.1f, \"cpu_s_a_gb\": %.4f}, "
                            : "  %-8s %8.1f us a message, %6.1f Gb/s, %.4f s of processor a GB\n",
                       name[w], us_a_message(&best[w]), MESSAGE * 8e-3 / us_a_message(&best[w]),
                       cpu_a_gb(&best[w]));
        printf(json ? "\"faster\": %.2f, \"cpu\": %.2f, "
                    : "  lent: %.2f times as fast, %.2f of the processor time a GB\n",
               faster, cpu);
        printf(json ? "\"memory_faster\": %.2f, \"memory_cpu\": %.2f}"
                    : "  memory: %.2f times as fast as cached, %.2f of the processor time a GB\n",
               again, again_cpu);
}

static void measure(enum where where, double seconds, int rounds, bool json)
{
        struct result best[WAYS] = {{0}};

        for (int i = 0; i < rounds * WAYS; i++) {
                struct result r = run(where, i % WAYS, seconds), *b = &best[i % WAYS];
                if (b->messages == 0 || us_a_message(&r) < us_a_message(b))
                        *b = r;
        }
        say(where, best, json);
}

int main(int argc, char **argv)
{
        bool json = argc > 1 && strcmp(argv[1], "--json") == 0;
        double seconds = argc > 1 + json ? atof(argv[1 + json]) : 1;
        int rounds = argc > 2 + json ? atoi(argv[2 + json]) : 3;

        if (seconds <= 0 || rounds <= 0 || argc > 3 + json) {
                fprintf(stderr, "usage: lend_native [--json] [SECONDS [ROUNDS]]\n");
                return 2;
        }
        for (int w = 0; w < WHERES; w++) {
                if (json)
                        printf(w == 0 ? "{" : ", ");
                measure(w, seconds, rounds, json);
        }
        if (json)
                printf("}\n");
        return 0;
}
