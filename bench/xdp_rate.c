/*
 * What the xdp provider allows between two processes, one at each end of a veth pair in namespaces
 * of its own: packets a second one way, and the time a small one needs to go there and back. No IP,
 * no TCP: the limit that a stack over it has. As root. Prints one line of JSON.
 *
 *      xdp_rate [seconds]              per measurement, default 0.5; medians of five
 */
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "bench/plain.h"
#include "unet/xdp/ni_xdp.h"
#include "unet/xdp/xdp_open.h"

#define ROUNDS    5
#define BATCH_MAX 128
#define MODES     3
#define N         XDP_WANT_NATIVE
#define G         XDP_WANT_GENERIC
#define T         XDP_WANT_TCX

struct side {
        struct xdp_dev dev;
        struct xdp_sock sock;
        struct ni_xdp ni;
        struct counters cnt;
};

struct plan {
        enum xdp_want mode;
        int size, batch; /* batch 0: there and back instead */
        bool sleep;      /* the receiver blocks in poll() */
};

struct result { /* shared with the child */
        _Atomic uint64_t got;
        _Atomic int stop;
};

static uint8_t *frames; /* transmit frames of both sides */
static const struct frame_geom geom = {{[FRAME_SMALL] = BATCH_MAX}};
static int home[2];                /* namespaces */
static struct side side[MODES][2]; /* by mode and end */

static void pin(int cpu)
{
        cpu_set_t set;

        CPU_ZERO(&set);
        CPU_SET(cpu, &set);
        sched_setaffinity(0, sizeof set, &set);
}

static void shell(const char *command)
{
        if (system(command) != 0) {
                fprintf(stderr, "xdp_rate: failed: %s\n", command);
                exit(1);
        }
}

static int new_namespace(void)
{
        int fd;

        if (unshare(CLONE_NEWNET) != 0)
                die("xdp_rate: a network namespace (root only)");
        shell("ip link set lo up; echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6 2>/dev/null "
              "|| true");
        fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
        if (fd < 0)
                die("xdp_rate: /proc/self/ns/net");
        return fd;
}

static void enter(int i)
{
        if (setns(home[i], CLONE_NEWNET) != 0)
                die("xdp_rate: setns");
}

static const enum xdp_want modes[MODES] = {N, G, T};
static const char *const mode_name[] = {[N] = "native", [G] = "generic", [T] = "tcx"};
/* By mode and end. */
static const char *const name[MODES][2] = {{"na", "nb"}, {"ga", "gb"}, {"ta", "tb"}};

static struct side *side_of(const struct plan *p, int end)
{
        for (int i = 0; i < MODES; i++)
                if (modes[i] == p->mode)
                        return &side[i][end];
        return NULL;
}

static void make_links(void)
{
        char command[200];

        home[1] = new_namespace();
        home[0] = new_namespace();
        for (int i = 0; i < MODES; i++) {
                snprintf(command, sizeof command,
                         "ip link add name %s type veth peer name %s && ip link set dev %s netns "
                         "/proc/%d/fd/%d && "
                         "ip link set dev %s up",
                         name[i][0], name[i][1], name[i][1], (int)getpid(), home[1], name[i][0]);
                shell(command);
                enter(1);
                snprintf(command, sizeof command, "ip link set dev %s up", name[i][1]);
                shell(command);
                enter(0);
        }
}

static void open_side(struct side *s, const char *ifname, enum xdp_want want)
{
        char line[XDP_LINE_MAX] = "the socket cannot be attached";
        int err = xdp_dev_open(&s->dev, ifname, want, line);

        if (err == 0)
                err = xdp_sock_open(&s->sock, &s->dev, 0, (struct xdp_sizes){0}, line);
        if (err == 0)
                err = ni_xdp_attach(&s->ni,
                                    (struct ni_xdp_fds){s->sock.xsk, s->sock.mem,
                                                        s->sock.packet.sock, s->sock.ring,
                                                        s->sock.sender},
                                    unet_mem_frames(frames, geom), &s->cnt);
        if (err != 0) {
                fprintf(stderr, "xdp_rate: %s\n", line);
                exit(1);
        }
}

static int send_some(struct side *s, int size, int n)
{
        static const uint8_t head[54] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2,
                                         0,    0,    0,    0,    1,    0x88, 0xb5};
        struct unet_tx tx[BATCH_MAX];
        uint32_t back[BATCH_MAX];

        for (int i = 0; i < n; i++)
                tx[i] = (struct unet_tx){.inl = head,
                                         .inl_len = sizeof head,
                                         .frame = (uint32_t)i + 1,
                                         .len = (uint32_t)size - sizeof head};
        n = s->ni.base.ops->send(&s->ni.base, tx, n);
        s->ni.base.ops->flush(&s->ni.base);
        s->ni.base.ops->reap(&s->ni.base, back, BATCH_MAX);
        return n;
}

/* Takes what there is, copies it as a reader of a stream would, gives it back. */
static int take_some(struct side *s)
{
        static uint8_t app[16 * 2048];
        struct unet_rx rx[16];
        int n = s->ni.base.ops->recv(&s->ni.base, rx, 16);

        for (int i = 0; i < n; i++) {
                if (rx[i].frame == 0)
                        continue;
                memcpy(app + i * 2048,
                       ni_xdp_rx_frames(&s->ni) +
                               frame_geom_offset(xdp_frame_geom(&s->ni.geom), rx[i].frame) +
                               rx[i].off,
                       rx[i].len);
                s->ni.base.ops->release(&s->ni.base, &rx[i].frame, 1);
        }
        return n;
}

static void wait_for_some(struct side *s, bool sleeps)
{
        struct pollfd p = {.fd = s->sock.xsk, .events = POLLIN};

        s->ni.base.ops->flush(&s->ni.base);
        if (!sleeps)
                return;
        s->ni.base.ops->arm(&s->ni.base);
        if (!s->ni.base.ops->pending(&s->ni.base))
                poll(&p, 1, 10);
}

static void receiver(struct side *s, const struct plan *p, struct result *r)
{
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        while (!atomic_load_explicit(&r->stop, memory_order_relaxed)) {
                int n = take_some(s);
                if (n == 0)
                        wait_for_some(s, p->sleep);
                else if (p->batch == 0)
                        send_some(s, p->size, n);
                atomic_store_explicit(&r->got, r->got + (uint64_t)n, memory_order_relaxed);
        }
        _exit(0);
}

static void there_and_back(struct side *s, const struct plan *p)
{
        send_some(s, p->size, 1);
        for (double end = now_s() + 1; take_some(s) == 0 && now_s() < end;)
                wait_for_some(s, p->sleep);
}

/* Packets a second that arrived, or round trips a second. */
static double measure(struct side *a, struct side *b, const struct plan *p, double seconds)
{
        struct result *r =
                mmap(NULL, sizeof *r, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        double start, end, rate;
        pid_t pid;

        while (take_some(a) + take_some(b) > 0)
                ;
        pin(1); /* the child is there from its first instruction, should this run with priority */
        pid = fork();
        if (pid == 0)
                receiver(b, p, r);
        pin(0);
        send_some(a, p->size, 1);
        while (atomic_load(&r->got) == 0)
                ;
        take_some(a);
        start = now_s();
        do {
                if (p->batch == 0)
                        there_and_back(a, p);
                else
                        for (int i = 0; i < 16; i++)
                                send_some(a, p->size, p->batch);
                end = now_s();
        } while (end - start < seconds);
        rate = (double)atomic_load(&r->got) / (end - start);
        atomic_store(&r->stop, 1);
        waitpid(pid, NULL, 0);
        munmap(r, sizeof *r);
        return rate;
}

static int by_value(const void *a, const void *b)
{
        double x = *(const double *)a, y = *(const double *)b;

        return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
        static const struct plan plans[] = {
                {N, 1514, 1, false},   {N, 1514, 8, false}, {N, 1514, 32, false},
                {N, 1514, 128, false}, {N, 1514, 32, true}, {G, 1514, 1, false},
                {G, 1514, 32, false},  {G, 1514, 32, true}, {T, 1514, 1, false},
                {T, 1514, 32, false},  {T, 1514, 32, true}, {N, 60, 32, false},
                {G, 60, 32, false},    {T, 60, 32, false},  {N, 60, 0, false},
                {N, 60, 0, true},      {G, 60, 0, false},   {G, 60, 0, true},
                {T, 60, 0, false},     {T, 60, 0, true},
        };
        double value[ARRAY_LEN(plans)][ROUNDS], seconds = argc > 1 ? atof(argv[1]) : 0.5;

        frames = calloc(BATCH_MAX, FRAME_SMALL_BYTES);
        make_links();
        for (int end = 0; end < 2; end++) {
                enter(end);
                for (int i = 0; i < MODES; i++)
                        open_side(&side[i][end], name[i][end], modes[i]);
        }
        for (int round = 0; round < ROUNDS; round++)
                for (size_t i = 0; i < ARRAY_LEN(plans); i++)
                        value[i][round] = measure(side_of(&plans[i], 0), side_of(&plans[i], 1),
                                                  &plans[i], seconds);
        printf("{\"xdp_rate\": [");
        for (size_t i = 0; i < ARRAY_LEN(plans); i++) {
                const struct plan *p = &plans[i];
                qsort(value[i], ROUNDS, sizeof value[i][0], by_value);
                printf("%s\n{\"mode\": \"%s\", \"bytes\": %d, \"batch\": %d, \"receiver\": \"%s\", "
                       "\"%s\": %.2f}",
                       i ? "," : "", mode_name[p->mode], p->size, p->batch,
                       p->sleep ? "sleeps" : "spins", p->batch == 0 ? "round_trip_us" : "kpps",
                       p->batch == 0 ? 1e6 / value[i][ROUNDS / 2] : value[i][ROUNDS / 2] / 1e3);
        }
        printf("\n]}\n");
        return 0;
}
