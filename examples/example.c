/* What the two examples share. See example.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "example.h"

#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BUFFERS     32u
#define BUFFER_SIZE 65536u
#define LOOKS       10000   /* at the queue alone, before unet_ep_wait() */
#define NS_MANY     1000000 /* when we may spin for so long */
#define SEGMENT     (BUFFERS * BUFFER_SIZE)
#define JOIN_NS     10000000000 /* for the other process to come */
#define JOIN_TRIES  100         /* a tenth of a second apart, for a program elsewhere to listen */
#define PORT        7009        /* of TCP, where a program with --listen is found */

void each_size(struct side *s, const struct options *o,
               void (*measure)(struct side *, const struct options *, uint32_t))
{
        static const uint32_t sizes[] = {8,    16,   40,   64,   128,  200,   256,   512,
                                         1024, 1460, 2048, 4096, 8192, 16384, 32768, 65536};

        if (o->only != 0) {
                measure(s, o, o->only);
                return;
        }
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0] && sizes[i] <= s->mtu; i++)
                measure(s, o, sizes[i]);
}

double now(void)
{
        struct timespec ts;

        clock_gettime(CLOCK_MONOTONIC, &ts);
        return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

void die(const char *what, int err)
{
        fprintf(stderr, "%s: %s\n", what, strerror(err < 0 ? -err : err));
        exit(1);
}

/* ---- options ---- */

static bool over_verbs(const struct options *o)
{
        return strncmp(o->provider, "verbs", 5) == 0;
}

static void help(const char *program, const char *what)
{
        printf("usage: %s [options]\n%s\n\n"
               "  --provider P   shm (default), direct: shared memory read in place, emul: through "
               "unetd,\n"
               "                 verbs: RDMA, verbs-direct: the same, read in place\n"
               "  --at A --peer B    verbs: both sides here, on the devices with these addresses\n"
               "  --listen A     verbs: only the side that answers, on the device with this "
               "address\n"
               "  --connect B    verbs: only the side that measures; the other listens at this "
               "address\n"
               "  --seconds S    how long to measure each size (default 0.2)\n"
               "  --size N       this message size alone, 8 to 65536\n"
               "  --spin NS      look so long before sleeping, in ns (default 1 s; emul: 5 us)\n"
               "  --batch N      this many messages a call, and a doorbell, of a stream (default "
               "16, the most)\n"
               "  --read         the receiver looks at every byte (else \"direct\" moves none)\n"
               "  --no-pin       let the kernel choose the processors\n"
               "  --json         one JSON object a line\n"
               "  --help         this\n",
               program, what);
}

struct options options_read(int argc, char **argv, const char *what)
{
        static const struct option longs[] = {
                {"provider", required_argument, NULL, 'p'},
                {"seconds", required_argument, NULL, 's'},
                {"size", required_argument, NULL, 'n'},
                {"spin", required_argument, NULL, 'w'},
                {"no-pin", no_argument, NULL, 'P'},
                {"json", no_argument, NULL, 'j'},
                {"read", no_argument, NULL, 'r'},
                {"help", no_argument, NULL, 'h'},
                {"at", required_argument, NULL, 'a'},
                {"peer", required_argument, NULL, 'b'},
                {"listen", required_argument, NULL, 'l'},
                {"connect", required_argument, NULL, 'c'},
                {"batch", required_argument, NULL, 'B'},
                {NULL, 0, NULL, 0},
        };
        struct options o = {.provider = "shm", .seconds = 0.2, .batch = BATCH_MAX, .pin = true};
        int c;

        while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
                switch (c) {
                case 'p':
                        o.provider = optarg;
                        break;
                case 's':
                        o.seconds = atof(optarg);
                        break;
                case 'n':
                        o.only = (uint32_t)atoi(optarg);
                        break;
                case 'w':
                        o.spin_ns = atoll(optarg);
                        break;
                case 'P':
                        o.pin = false;
                        break;
                case 'j':
                        o.json = true;
                        break;
                case 'r':
                        o.read = true;
                        break;
                case 'a':
                        o.at = optarg;
                        break;
                case 'b':
                        o.peer = optarg;
                        break;
                case 'l':
                        o.listen = optarg;
                        break;
                case 'c':
                        o.connect = optarg;
                        break;
                case 'B':
                        o.batch = atoi(optarg);
                        break;
                case 'h':
                        help(argv[0], what);
                        exit(0);
                default:
                        exit(2);
                }
        }
        if (o.batch < 1 || o.batch > BATCH_MAX) {
                fprintf(stderr, "%s: --batch is 1 to %d\n", argv[0], BATCH_MAX);
                exit(2);
        }
        if (o.spin_ns == 0) /* unetd makes it three processes: rarely a processor each */
                o.spin_ns = strcmp(o.provider, "emul") == 0 ? 5000 : 1000000000;
        if (strcmp(o.provider, "shm") != 0 && strcmp(o.provider, "direct") != 0 &&
            strcmp(o.provider, "emul") != 0 && !over_verbs(&o)) {
                fprintf(stderr, "%s: no provider \"%s\"\n", argv[0], o.provider);
                exit(2);
        }
        if (over_verbs(&o) !=
            ((o.at != NULL && o.peer != NULL) || o.listen != NULL || o.connect != NULL)) {
                fprintf(stderr,
                        "%s: verbs needs --at and --peer, --listen or --connect; others have "
                        "none\n",
                        argv[0]);
                exit(2);
        }
        if (optind < argc || o.seconds <= 0 ||
            (o.only != 0 && (o.only < 8 || o.only > BUFFER_SIZE))) {
                fprintf(stderr, "%s: try --help\n", argv[0]);
                exit(2);
        }
        return o;
}

/* ---- two processes ---- */

static cpu_set_t allowed;

/* The n-th processor that we were given, if there are so many. */
static void pin(const struct options *o, int n)
{
        cpu_set_t one;

        if (!o->pin || CPU_COUNT(&allowed) <= n)
                return;
        for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
                if (!CPU_ISSET(cpu, &allowed) || n-- > 0)
                        continue;
                CPU_ZERO(&one);
                CPU_SET(cpu, &one);
                sched_setaffinity(0, sizeof one, &one);
                return;
        }
}

/* A child that dies with us. */
static pid_t fork_child(void)
{
        pid_t parent = getpid(), child = fork();

        if (child < 0)
                die("fork", errno);
        if (child == 0) {
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                if (getppid() != parent)
                        _exit(1);
        }
        return child;
}

static struct unet_ep *open_endpoint(const struct options *o)
{
        struct unet_ep_opts opts = {.tx_bytes = SEGMENT,
                                    .rx_bytes = SEGMENT,
                                    .spin_ns = o->spin_ns,
                                    .direct = strstr(o->provider, "direct") != NULL};
        struct unet_ep *ep;
        int err = unet_ep_open(&opts, &ep);

        if (err != 0)
                die("unet_ep_open", err);
        return ep;
}

static void fill_free_queue(struct side *s)
{
        for (uint32_t i = 0; i < BUFFERS; i++) {
                struct unet_frag buf = {(uint32_t)s->seg.tx_bytes + i * BUFFER_SIZE, BUFFER_SIZE};
                unet_ep_provide(s->ep, &buf, 1);
        }
}

/* ---- joining ---- */

/* Both endpoints are opened and joined by one process; after fork() each process goes on with
 * its own. */
static void join_and_fork(const struct options *o, struct side *s)
{
        struct unet_ep *ep[2] = {open_endpoint(o), open_endpoint(o)};
        uint32_t chan[2];
        int err = unet_chan_pair(ep[0], ep[1], &chan[0], &chan[1]);

        if (err != 0)
                die("unet_chan_pair", err);
        s->child = fork_child() == 0;
        unet_ep_forget(ep[!s->child]);
        s->ep = ep[s->child];
        s->chan = chan[s->child];
}

/* Each opens its own; unetd joins them, by name. */
static void fork_and_join(const struct options *o, struct side *s)
{
        char name[32];
        int fd, err;

        snprintf(name, sizeof name, "example-%d", (int)getpid());
        fd = unet_emul_listen(name, 0);
        if (fd < 0)
                die("unet_emul_listen", fd);
        s->child = fork_child() == 0;
        s->ep = open_endpoint(o);
        err = s->child ? unet_emul_connect(s->ep, name, JOIN_NS, &s->chan)
                       : unet_emul_accept(s->ep, fd, JOIN_NS, &s->chan);
        if (err != 0)
                die("joining through unetd", err);
        close(fd);
}

/* ---- meeting through a TCP socket, for verbs ---- */

static struct sockaddr_in tcp_address(const char *host, uint16_t port)
{
        struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};

        if (inet_pton(AF_INET, host, &a.sin_addr) != 1)
                die(host, EINVAL);
        return a;
}

static int tcp_listen(const char *host, uint16_t port, struct sockaddr_in *at)
{
        int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
        socklen_t len = sizeof *at;

        *at = tcp_address(host, port);
        setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        if (s < 0 || bind(s, (struct sockaddr *)at, sizeof *at) != 0 || listen(s, 1) != 0 ||
            getsockname(s, (struct sockaddr *)at, &len) != 0)
                die(host, errno);
        return s;
}

static int tcp_accept(int listener)
{
        int s = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

        if (s < 0)
                die("accept", errno);
        close(listener);
        return s;
}

/* From an address, if one is named. */
static int tcp_connect(const char *from, const struct sockaddr_in *to)
{
        struct sockaddr_in here = tcp_address(from != NULL ? from : "0.0.0.0", 0);

        for (int tries = JOIN_TRIES; tries > 0; tries--) {
                int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
                if (s < 0 || bind(s, (struct sockaddr *)&here, sizeof here) != 0)
                        die("socket", errno);
                if (connect(s, (const struct sockaddr *)to, sizeof *to) == 0)
                        return s;
                close(s);
                usleep(100000);
        }
        die("connect", errno);
        return -1;
}

/* Both sides here, each in a process of its own, or one of them. */
static void join_verbs(const struct options *o, struct side *s)
{
        struct sockaddr_in at;
        int listener, sock, err;

        if (o->connect != NULL) {
                s->child = false;
                at = tcp_address(o->connect, PORT);
                sock = tcp_connect(NULL, &at);
        } else {
                listener = tcp_listen(o->listen != NULL ? o->listen : o->peer,
                                      o->listen != NULL ? PORT : 0, &at);
                s->child = o->listen != NULL || fork_child() == 0;
                sock = s->child ? tcp_accept(listener) : tcp_connect(o->at, &at);
        }
        s->ep = open_endpoint(o);
        err = unet_verbs_over(s->ep, sock, JOIN_NS, &s->chan);
        if (err != 0) {
                char devices[1024];
                unet_verbs_describe(devices, sizeof devices);
                fputs(devices, stderr);
                die("joining over verbs", err);
        }
}

struct side start(const struct options *o)
{
        struct unet_chan_info info;
        struct side s;

        setvbuf(stdout, NULL, _IOLBF, 0);
        if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
                CPU_ZERO(&allowed);
        if (strcmp(o->provider, "emul") == 0)
                fork_and_join(o, &s);
        else if (over_verbs(o))
                join_verbs(o, &s);
        else
                join_and_fork(o, &s);
        pin(o, s.child);
        s.looks = o->spin_ns >= NS_MANY ? LOOKS : 0;
        s.seg = unet_ep_segment(s.ep);
        unet_chan_info(s.ep, s.chan, &info);
        s.mtu = info.mtu;
        memset(s.seg.base, 0, s.seg.tx_bytes);
        fill_free_queue(&s);
        return s;
}

void finish(struct side *s)
{
        unet_ep_close(s->ep);
        if (s->child)
                _exit(0);
        wait(NULL);
}

/* ---- messages ---- */

void send_all(struct side *s, uint32_t off, uint32_t len)
{
        struct unet_send m = {.chan = s->chan};
        int n;

        if (len <= UNET_EP_INLINE) {
                m.inl = s->seg.base + off;
                m.inl_len = (uint16_t)len;
        } else {
                m.nfrags = 1;
                m.frag[0] = (struct unet_frag){off, len};
        }
        while ((n = unet_ep_send(s->ep, &m, 1)) == -EAGAIN)
                unet_ep_wait(s->ep, UNET_WRITABLE | UNET_CLOSED, UNET_FOREVER);
        if (n < 0)
                die("unet_ep_send", n);
}

void give_back(struct side *s, const struct unet_recv *m, int n)
{
        unet_ep_release(s->ep, m, n);
        for (int k = 0; k < n; k++)
                for (int i = 0; i < m[k].nfrags && m[k].loan == 0; i++)
                        unet_ep_provide(
                                s->ep, &(struct unet_frag){m[k].frag[i].off, m[k].frag[i].size}, 1);
}

uint64_t read_all(const struct unet_recv *m, int n)
{
        uint64_t sum = 0, word;

        for (int k = 0; k < n; k++)
                for (int i = 0; i < m[k].nfrags; i++)
                        for (uint32_t at = 0; at + sizeof word <= m[k].frag[i].len;
                             at += sizeof word) {
                                memcpy(&word, m[k].frag[i].ptr + at, sizeof word);
                                sum += word;
                        }
        return sum;
}

int receive(struct side *s, struct unet_recv *m, int n)
{
        int got, looks = s->looks;

        while ((got = unet_ep_recv(s->ep, m, n)) == 0) {
                if (looks-- > 0)
                        continue;
                int is = unet_ep_wait(s->ep, UNET_READABLE | UNET_CLOSED, UNET_FOREVER);
                if (is > 0 && (is & UNET_CLOSED) && !(is & UNET_READABLE))
                        die("peer", EPIPE);
        }
        return got;
}
