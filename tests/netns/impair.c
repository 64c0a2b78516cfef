/*
 * A bad piece of cable: frames go from one interface to the other, and some of them are lost, late,
 * out of order, twice or changed, as a seed says.
 *
 *   impair A B [seed=N] [loss=P] [dup=P] [corrupt=P] [reorder=P] [mark=P] [delay=MS] [extra=MS]
 *   [rate=MBIT] [queue=FRAMES] [threshold=BYTES]
 *
 * P are parts of one. What becomes of a direction's n-th frame is a matter of the seed, the
 * direction and n, whatever went the other way: two TCPs that acknowledge more or less often lose
 * the same segments. delay is one way; a frame that is reordered is later than that by up to
 * `extra`, 2 ms if not said. rate is a direction's, and `queue` how many of its frames wait for
 * their turn before the next is lost, 1000 if not said. A corrupted frame has one bit turned behind
 * its Ethernet header, which every checksum of the Internet finds. What may be marked (IPv4, ECT)
 * is, as by a router that is busy (RFC 3168 §5): by chance, or who finds more than `threshold`
 * waiting for its turn at `rate`, as DCTCP wants it (RFC 8257 §3.1).
 *
 * Prints the seed when it begins, and what it did, as JSON, when SIGTERM or SIGINT ends it.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define FRAME_MAX 9216u
#define BATCH     64u
#define HELD_MAX  65536u
#define NS_PER_S  1000000000ll
#define NS_PER_MS 1000000ll

struct frame {
        int64_t due;
        uint64_t order; /* of those due at once the first goes first */
        unsigned to, len;
        uint8_t *bytes;
};

struct side {
        int fd;
        int64_t free_at; /* when the frame before is through, at `rate` */
        unsigned long frames, lost, duplicated, corrupted, reordered, marked, overflowed, unsent;
        double found; /* bytes that frames found waiting, summed up */
};

static struct side side[2];
static struct frame heap[HELD_MAX]; /* by due, then order */
static unsigned held;
static uint64_t seed = 1, state, orders;
static double loss, twice, corrupt, reorder, mark, delay_ms, extra_ms = 2, rate_mbit;
static double threshold;
static unsigned queue_max = 1000;
static volatile sig_atomic_t over;

static void stop(int sig)
{
        over = sig;
}

static void die(const char *what)
{
        fprintf(stderr, "impair: %s: %s\n", what, strerror(errno));
        exit(1);
}

static int64_t now_ns(void)
{
        struct timespec ts;

        clock_gettime(CLOCK_MONOTONIC, &ts);
        return ts.tv_sec * NS_PER_S + ts.tv_nsec;
}

/* splitmix64 */
static uint64_t mix(uint64_t z)
{
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
        z = (z ^ z >> 27) * 0x94d049bb133111ebu;
        return z ^ z >> 31;
}

static uint64_t draw(void)
{
        return mix(state += 0x9e3779b97f4a7c15u);
}

/* What is drawn from now on is drawn for the n-th frame of a direction. */
static void draw_for(unsigned to, unsigned long n)
{
        state = mix(mix(2 * seed + to) + n);
}

static double part(void)
{
        return (double)(draw() >> 11) / (double)(1ull << 53);
}

static bool happens(double p)
{
        return part() < p;
}

/* ---- what is on its way ---- */

static bool before(const struct frame *a, const struct frame *b)
{
        return a->due != b->due ? a->due < b->due : a->order < b->order;
}

static void swap(unsigned i, unsigned j)
{
        struct frame f = heap[i];

        heap[i] = heap[j];
        heap[j] = f;
}

static void push(struct frame f)
{
        unsigned i = held++;

        heap[i] = f;
        for (; i != 0 && before(&heap[i], &heap[(i - 1) / 2]); i = (i - 1) / 2)
                swap(i, (i - 1) / 2);
}

static struct frame pop(void)
{
        struct frame f = heap[0];

        heap[0] = heap[--held];
        for (unsigned i = 0, c; (c = 2 * i + 1) < held; i = c) {
                c += c + 1 < held && before(&heap[c + 1], &heap[c]);
                if (!before(&heap[c], &heap[i]))
                        break;
                swap(i, c);
        }
        return f;
}

/* ---- what becomes of a frame ---- */

static int64_t when(struct side *to, unsigned len, int64_t now)
{
        int64_t at = now;

        if (rate_mbit != 0) {
                at = to->free_at =
                        (to->free_at > now ? to->free_at : now) + (int64_t)(len * 8e3 / rate_mbit);
        }
        at += (int64_t)(delay_ms * NS_PER_MS);
        if (happens(reorder)) {
                to->reordered++;
                at += (int64_t)(part() * extra_ms * NS_PER_MS);
        }
        return at;
}

/* CE into an IPv4 header that says ECT, and its checksum (RFC 1624). False: another kind
 * of frame. */
static bool mark_ce(uint8_t *bytes, unsigned len)
{
        uint8_t *ip = bytes + ETH_HLEN;
        uint32_t sum;
        unsigned more;

        if (len < ETH_HLEN + 20 || bytes[12] != 8 || bytes[13] != 0 || (ip[1] & 3) == 0)
                return false;
        more = 3u - (ip[1] & 3u);
        ip[1] |= 3;
        sum = (uint16_t) ~(ip[10] << 8 | ip[11]) + more;
        sum = ~((sum & 0xffff) + (sum >> 16));
        ip[10] = (uint8_t)(sum >> 8);
        ip[11] = (uint8_t)sum;
        return true;
}

/* Bytes that wait for their turn. */
static double waiting(const struct side *to, int64_t now)
{
        return to->free_at > now ? (double)(to->free_at - now) * rate_mbit / 8e3 : 0;
}

static void take(unsigned from, const uint8_t *bytes, unsigned len, int64_t now)
{
        struct side *s = &side[!from];
        struct frame f = {.to = !from, .len = len};
        double queued = waiting(s, now);

        if (held == HELD_MAX || queued > (double)queue_max * len) {
                s->overflowed++;
                return;
        }
        s->found += queued;
        f.bytes = malloc(len);
        if (f.bytes == NULL)
                die("memory");
        memcpy(f.bytes, bytes, len);
        if (len > ETH_HLEN && happens(corrupt)) {
                uint64_t bit = draw() % ((len - ETH_HLEN) * 8u);
                f.bytes[ETH_HLEN + bit / 8] ^= (uint8_t)(1u << bit % 8);
                s->corrupted++;
        }
        if ((mark != 0 && happens(mark)) || (threshold != 0 && queued > threshold))
                s->marked += mark_ce(f.bytes, len);
        f.due = when(s, len, now);
        f.order = orders++;
        push(f);
}

static void decide(unsigned from, const uint8_t *bytes, unsigned len, int64_t now)
{
        struct side *s = &side[!from];

        draw_for(!from, s->frames++);
        if (happens(loss)) {
                s->lost++;
                return;
        }
        take(from, bytes, len, now);
        if (happens(twice)) {
                s->duplicated++;
                take(from, bytes, len, now);
        }
}

/* ---- in and out ---- */

static void receive(unsigned from)
{
        static uint8_t bytes[BATCH][FRAME_MAX];
        struct mmsghdr m[BATCH] = {0};
        struct iovec v[BATCH];
        int64_t now;
        int n;

        for (unsigned i = 0; i < BATCH; i++) {
                v[i] = (struct iovec){bytes[i], FRAME_MAX};
                m[i].msg_hdr.msg_iov = &v[i];
                m[i].msg_hdr.msg_iovlen = 1;
        }
        n = recvmmsg(side[from].fd, m, BATCH, MSG_DONTWAIT, NULL);
        now = now_ns();
        for (int i = 0; i < n; i++)
                decide(from, bytes[i], m[i].msg_len, now);
}

static void send_batch(unsigned to, struct mmsghdr *m, unsigned n)
{
        for (unsigned done = 0; done < n;) {
                int sent = sendmmsg(side[to].fd, m + done, n - done, 0);
                if (sent <= 0) { /* a link that is down, or full: lost, as on any cable */
                        if (errno == EINTR)
                                continue;
                        side[to].unsent++;
                        sent = 1;
                }
                done += (unsigned)sent;
        }
        for (unsigned i = 0; i < n; i++)
                free(m[i].msg_hdr.msg_iov->iov_base);
}

static void transmit(int64_t now)
{
        static struct mmsghdr m[2][BATCH];
        static struct iovec v[2][BATCH];
        unsigned n[2] = {0, 0};

        while (held != 0 && heap[0].due <= now) {
                struct frame f = pop();
                unsigned i = n[f.to]++;
                v[f.to][i] = (struct iovec){f.bytes, f.len};
                m[f.to][i].msg_hdr = (struct msghdr){.msg_iov = &v[f.to][i], .msg_iovlen = 1};
                if (n[f.to] == BATCH) {
                        send_batch(f.to, m[f.to], BATCH);
                        n[f.to] = 0;
                }
        }
        for (unsigned to = 0; to < 2; to++)
                send_batch(to, m[to], n[to]);
}

static int open_side(const char *name)
{
        struct sockaddr_ll ll = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL)};
        int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0), one = 1, bytes = 32 << 20;

        ll.sll_ifindex = (int)if_nametoindex(name);
        if (fd < 0 || ll.sll_ifindex == 0)
                die(name);
        if (setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &one, sizeof one) != 0 ||
            bind(fd, (struct sockaddr *)&ll, sizeof ll) != 0)
                die(name);
        setsockopt(fd, SOL_PACKET, PACKET_QDISC_BYPASS, &one, sizeof one);
        if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes) != 0)
                die("SO_RCVBUFFORCE");
        return fd;
}

static void forward(void)
{
        struct pollfd p[2] = {{side[0].fd, POLLIN, 0}, {side[1].fd, POLLIN, 0}};

        while (!over) {
                int64_t wait = held != 0 ? heap[0].due - now_ns() : NS_PER_S;
                struct timespec ts = {.tv_sec = wait > 0 ? wait / NS_PER_S : 0,
                                      .tv_nsec = wait > 0 ? wait % NS_PER_S : 0};
                int n = ppoll(p, 2, &ts, NULL);
                for (unsigned from = 0; n > 0 && from < 2; from++)
                        if (p[from].revents & POLLIN)
                                receive(from);
                transmit(now_ns());
        }
}

static void report(void)
{
        printf("[");
        for (unsigned i = 0; i < 2; i++) {
                const struct side *s = &side[i];
                struct tpacket_stats st = {0};
                socklen_t len = sizeof st;
                getsockopt(side[!i].fd, SOL_PACKET, PACKET_STATISTICS, &st, &len);
                printf("%s{\"frames\": %lu, \"lost\": %lu, \"duplicated\": %lu, \"corrupted\": "
                       "%lu, \"reordered\": %lu, "
                       "\"marked\": %lu, \"overflowed\": %lu, \"unsent\": %lu, \"missed\": %u, "
                       "\"waiting\": %.0f}",
                       i ? ", " : "", s->frames, s->lost, s->duplicated, s->corrupted, s->reordered,
                       s->marked, s->overflowed, s->unsent, st.tp_drops,
                       s->frames != 0 ? s->found / (double)s->frames : 0);
        }
        printf("]\n");
}

static void setting(const char *arg)
{
        const struct {
                const char *name;
                double *value;
        } reals[] = {{"loss", &loss},       {"dup", &twice},      {"corrupt", &corrupt},
                     {"reorder", &reorder}, {"delay", &delay_ms}, {"extra", &extra_ms},
                     {"rate", &rate_mbit},  {"mark", &mark},      {"threshold", &threshold}};
        const char *eq = strchr(arg, '=');
        size_t len = eq != NULL ? (size_t)(eq - arg) : 0;

        for (size_t i = 0; i < sizeof reals / sizeof reals[0]; i++)
                if (len == strlen(reals[i].name) && strncmp(arg, reals[i].name, len) == 0) {
                        *reals[i].value = strtod(eq + 1, NULL);
                        return;
                }
        if (strncmp(arg, "seed=", 5) == 0) {
                seed = strtoull(eq + 1, NULL, 0);
        } else if (strncmp(arg, "queue=", 6) == 0) {
                queue_max = (unsigned)strtoul(eq + 1, NULL, 0);
        } else {
                fprintf(stderr, "impair: %s: no such setting\n", arg);
                exit(2);
        }
}

int main(int argc, char **argv)
{
        if (argc < 3) {
                fprintf(stderr, "usage: impair A B [SETTING=VALUE...]\n");
                return 2;
        }
        for (int i = 3; i < argc; i++)
                setting(argv[i]);
        for (unsigned i = 0; i < 2; i++)
                side[i].fd = open_side(argv[1 + i]);
        sigaction(SIGTERM, &(struct sigaction){.sa_handler = stop}, NULL);
        sigaction(SIGINT, &(struct sigaction){.sa_handler = stop}, NULL);
        printf("seed %llu\n", (unsigned long long)seed);
        fflush(stdout);
        forward();
        report();
        return 0;
}
