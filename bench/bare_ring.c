/*
 * What the hardware allows between two processes: a ring in shared memory that moves bytes with two
 * copies, in and out, and nothing else; and the time a cache line needs to go there and back.
 * Prints one line of JSON; the limit that bench/compare holds the stack against.
 *
 *      bare_ring [seconds]             per measurement, default 0.5; the median of five
 */
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PIECE    65536u
#define ROUNDS   5
#define MAX_RING (4u << 20)

struct shared {
        _Alignas(64) _Atomic uint64_t head; /* pieces written */
        _Alignas(64) _Atomic uint64_t tail; /* pieces read */
        _Alignas(64) _Atomic uint64_t ping;
        _Alignas(64) _Atomic uint64_t pong;
        _Alignas(64) _Atomic int stop;
        _Alignas(4096) uint8_t ring[MAX_RING];
};

static double now(void)
{
        struct timespec ts;

        clock_gettime(CLOCK_MONOTONIC, &ts);
        return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* Runs on the n-th processor of the set; with one only, there is nothing to choose. */
static void pin(const cpu_set_t *set, int n)
{
        cpu_set_t one, may = *set;

        if (CPU_COUNT(&may) <= n)
                return;
        for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
                if (!CPU_ISSET(cpu, &may) || n-- > 0)
                        continue;
                CPU_ZERO(&one);
                CPU_SET(cpu, &one);
                sched_setaffinity(0, sizeof one, &one);
                return;
        }
}

static void relax(void)
{
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
}

/* Copies pieces out until told to stop. */
static void consume(struct shared *s, uint64_t pieces)
{
        static uint8_t to[4 * PIECE];
        uint64_t tail = 0;

        while (!atomic_load_explicit(&s->stop, memory_order_relaxed)) {
                if (atomic_load_explicit(&s->head, memory_order_acquire) == tail) {
                        relax();
                        continue;
                }
                memcpy(to + tail % 4 * PIECE, s->ring + tail % pieces * PIECE, PIECE);
                atomic_store_explicit(&s->tail, ++tail, memory_order_release);
        }
}

static double produce(struct shared *s, uint64_t pieces, double seconds)
{
        static uint8_t from[4 * PIECE];
        double start = now(), end;
        uint64_t head = 0;

        memset(from, 1, sizeof from);
        do {
                for (int i = 0; i < 64; i++) {
                        while (head - atomic_load_explicit(&s->tail, memory_order_acquire) ==
                               pieces)
                                relax();
                        memcpy(s->ring + head % pieces * PIECE, from + head % 4 * PIECE, PIECE);
                        atomic_store_explicit(&s->head, ++head, memory_order_release);
                }
                end = now();
        } while (end - start < seconds);
        return (double)(head * PIECE) * 8 / (end - start) / 1e9;
}

static void echo(struct shared *s, uint64_t unused)
{
        uint64_t n = 0;

        (void)unused;
        while (!atomic_load_explicit(&s->stop, memory_order_relaxed)) {
                uint64_t got = atomic_load_explicit(&s->ping, memory_order_acquire);
                if (got != n)
                        atomic_store_explicit(&s->pong, n = got, memory_order_release);
        }
}

/* Nanoseconds for one line there and one back. */
static double bounce(struct shared *s, uint64_t unused, double seconds)
{
        double start = now(), end;
        uint64_t n = 0;

        (void)unused;
        do {
                for (int i = 0; i < 100; i++) {
                        atomic_store_explicit(&s->ping, ++n, memory_order_release);
                        while (atomic_load_explicit(&s->pong, memory_order_acquire) != n)
                                ;
                }
                end = now();
        } while (end - start < seconds);
        return (end - start) * 1e9 / (double)n;
}

typedef void peer_fn(struct shared *s, uint64_t arg);
typedef double measure_fn(struct shared *s, uint64_t arg, double seconds);

static double once(struct shared *s, const cpu_set_t *cpus, peer_fn *peer, measure_fn *measure,
                   uint64_t arg, double seconds)
{
        pid_t parent = getpid(), child;
        double result;

        memset(s, 0, offsetof(struct shared, ring));
        sched_setaffinity(0, sizeof *cpus, cpus);
        child = fork();
        if (child < 0) {
                perror("fork");
                exit(1);
        }
        if (child == 0) {
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                if (getppid() != parent) /* it died before it was asked to take us along */
                        _exit(1);
                pin(cpus, 1);
                peer(s, arg);
                _exit(0);
        }
        pin(cpus, 0);
        result = measure(s, arg, seconds);
        atomic_store(&s->stop, 1);
        waitpid(child, NULL, 0);
        return result;
}

static int by_value(const void *a, const void *b)
{
        double x = *(const double *)a, y = *(const double *)b;

        return (x > y) - (x < y);
}

static double median(struct shared *s, const cpu_set_t *cpus, peer_fn *peer, measure_fn *measure,
                     uint64_t arg, double seconds)
{
        double r[ROUNDS];

        for (int i = 0; i < ROUNDS; i++)
                r[i] = once(s, cpus, peer, measure, arg, seconds);
        qsort(r, ROUNDS, sizeof r[0], by_value);
        return r[ROUNDS / 2];
}

int main(int argc, char **argv)
{
        double seconds = argc > 1 ? atof(argv[1]) : 0.5, small, large, line;
        cpu_set_t cpus;
        struct shared *s =
                mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

        if (s == MAP_FAILED || seconds <= 0 || sched_getaffinity(0, sizeof cpus, &cpus) != 0) {
                fprintf(stderr, "usage: bare_ring [seconds]\n");
                return 2;
        }
        memset(s->ring, 0, sizeof s->ring);
        small = median(s, &cpus, consume, produce, (1u << 20) / PIECE, seconds);
        large = median(s, &cpus, consume, produce, MAX_RING / PIECE, seconds);
        line = median(s, &cpus, echo, bounce, 0, seconds / 5);
        printf("{\"gbps\": %.1f, \"gbps_1mb\": %.1f, \"gbps_4mb\": %.1f, \"line_rtt_us\": %.4f}\n",
               small > large ? small : large, small, large, line / 1e3);
        return 0;
}
