/*
 * Every option of every level that a program may ask a socket for, in the states that a socket is
 * in: what is answered, how long it is, and what a wrong length gets. Values that no two sockets
 * share are left out.
 */
#include "tests/shim/calls.h"

#include <limits.h>

#define IP_PROTOCOL_ 52

struct subject {
        const char *what;
        int fd;
};

static const struct {
        const char *what;
        int level, last;
} levels[] = {
        {"SOL_SOCKET", SOL_SOCKET, 84}, {"IP", IPPROTO_IP, 52},     {"TCP", IPPROTO_TCP, 46},
        {"UDP", IPPROTO_UDP, 105},      {"IPV6", IPPROTO_IPV6, 82}, {"RAW", IPPROTO_RAW, 2},
};

/* Values that differ between two sockets, two machines, or two ways to count; lengths and errors
 * do not. */
static bool varies(int level, int name)
{
        switch (level) {
        case SOL_SOCKET:
                return name == SO_SNDBUF || name == SO_RCVBUF || name == SO_PEERNAME ||
                       name == SO_INCOMING_CPU || name == SO_MEMINFO || name == SO_COOKIE;
        case IPPROTO_IP:
                return name == IP_MULTICAST_TTL || name == IP_PKTOPTIONS;
        case IPPROTO_TCP:
                return name == TCP_MAXSEG || name == TCP_WINDOW_CLAMP || name == TCP_CONGESTION ||
                       name == TCP_TIMESTAMP || name == TCP_SYNCNT || name == TCP_QUICKACK ||
                       name == TCP_INFO;
        case IPPROTO_IPV6:
                return name == IPV6_MULTICAST_HOPS || name == IPV6_MULTICAST_IF;
        default:
                return false;
        }
}

/* Their lengths are the machine's: of its congestion control, its kernel's headers; it may be too
 * old to know one. And what is not for us at all. */
static bool is_left_out(int level, int name)
{
        if ((level == IPPROTO_IP && name == IP_PROTOCOL_) ||
            (level == IPPROTO_IPV6 && name == IPV6_ADDRFORM))
                return true;
        return level == IPPROTO_TCP &&
               (name == TCP_CC_INFO || name == TCP_INFO || name == TCP_ZEROCOPY_RECEIVE);
}

static void ask(int fd, int l, int name, socklen_t room)
{
        _Alignas(8) unsigned char b[1024];
        socklen_t len = room;
        int r;

        memset(b, 0, sizeof(b));
        r = getsockopt(fd, levels[l].level, name, b, &len);
        printf("  %s %d, room %d: %s, %u", levels[l].what, name, (int)room, name_of(r), len);
        for (socklen_t i = 0; r == 0 && !varies(levels[l].level, name) && i < len && i < 24; i++)
                printf(" %02x", b[i]);
        printf("\n");
}

static void sweep(const struct subject *s, const socklen_t *room, size_t rooms)
{
        printf(" %s\n", s->what);
        for (size_t l = 0; l < ARRAY_LEN(levels); l++)
                for (int name = 0; name <= levels[l].last; name++)
                        for (size_t i = 0; i < rooms && !is_left_out(levels[l].level, name); i++)
                                ask(s->fd, (int)l, name, room[i]);
}

#define SUBJECTS 7

/* Of each kind and state. */
static void make(struct subject s[SUBJECTS])
{
        struct sockaddr_in a, b;
        int v[2];

        s[0] = (struct subject){"datagrams, new", socket(AF_INET, SOCK_DGRAM, 0)};
        s[1] = (struct subject){"datagrams, bound", udp_socket(&a)};
        s[2] = (struct subject){"datagrams, connected", udp_socket(&b)};
        connect(s[2].fd, (void *)&a, sizeof(a));
        s[3] = (struct subject){"stream, new", socket(AF_INET, SOCK_STREAM, 0)};
        s[4] = (struct subject){"stream, listening", listener(&b)};
        tcp_pair(v);
        s[5] = (struct subject){"stream, connected", v[0]};
        s[6] = (struct subject){"stream, accepted", v[1]};
}

void scene_options_swept(void)
{
        static const socklen_t room[] = {4, 2, 0, 300, (socklen_t)-1};
        struct subject s[SUBJECTS];

        make(s);
        for (size_t i = 0; i < ARRAY_LEN(s); i++) {
                sweep(&s[i], room, ARRAY_LEN(room));
                close(s[i].fd);
        }
}

/* What takes the socket away from us, or makes it another one; times of sending, which are not ours
 * to give to a connection (scene_stream_times()), and offsets to peek at (scene_peek_offset()); and
 * what says that a filter is not there which could not be there. */
static bool is_drastic(int level, int name)
{
        switch (level) {
        case SOL_SOCKET:
                return name == SO_ZEROCOPY || name == SO_ATTACH_FILTER || name == SO_ATTACH_BPF ||
                       name == SO_BINDTODEVICE || name == SO_PEEK_OFF || name == SO_TIMESTAMPING ||
                       name == SO_DETACH_REUSEPORT_BPF;
        case IPPROTO_TCP:
                return name == TCP_MD5SIG || (name >= TCP_REPAIR && name <= TCP_TIMESTAMP) ||
                       name >= TCP_REPAIR_WINDOW;
        case IPPROTO_IP:
                return name == IP_TRANSPARENT;
        case IPPROTO_UDP:
                return name >= 100 && name <= 102;
        default:
                return false;
        }
}

static void put(int fd, int l, int name, int v, socklen_t len)
{
        _Alignas(8) char b[64] = {0};
        int r;

        memcpy(b, &v, sizeof(v));
        r = setsockopt(fd, levels[l].level, name, b, len);
        printf("  %s %d := %d, length %d: %s\n", levels[l].what, name, v, (int)len, name_of(r));
}

void scene_options_set_swept(void)
{
        static const int value[] = {1, 0, -1, 77};
        static const socklen_t len[] = {4, 1, 0, 16, (socklen_t)-1};
        struct subject s[SUBJECTS];

        make(s);
        for (size_t i = 0; i < ARRAY_LEN(s); i++) {
                printf(" %s\n", s[i].what);
                for (size_t l = 0; l < ARRAY_LEN(levels); l++)
                        for (int name = 0; name <= levels[l].last; name++)
                                for (size_t k = 0; k < ARRAY_LEN(value) * ARRAY_LEN(len); k++)
                                        if (!is_drastic(levels[l].level, name))
                                                put(s[i].fd, (int)l, name,
                                                    value[k / ARRAY_LEN(len)],
                                                    len[k % ARRAY_LEN(len)]);
                close(s[i].fd);
        }
}

/* ---- options that steer a flow, at their edges ---- */

static void set_and_ask(int fd, int level, int name, const void *v, socklen_t len)
{
        _Alignas(8) unsigned char b[8] = {0};
        socklen_t got = len;
        int r = setsockopt(fd, level, name, v, len);

        printf("  %d %d := ", level, name);
        for (socklen_t i = 0; i < len; i++)
                printf("%02x", ((const unsigned char *)v)[i]);
        printf(": %s", name_of(r));
        r = getsockopt(fd, level, name, b, &got);
        printf(", %s", name_of(r));
        for (socklen_t i = 0; i < got; i++)
                printf(" %02x", b[i]);
        printf("\n");
}

void scene_flow_options(void)
{
        enum { RTO_MAX_MS = 44, RTO_MIN_US, DELACK_MAX_US };
        static const struct {
                int level, name;
                bool is_time; /* Linux rounds it to its clock's ticks */
        } option[] = {
                {IPPROTO_TCP, TCP_WINDOW_CLAMP, false}, {IPPROTO_TCP, TCP_NOTSENT_LOWAT, false},
                {IPPROTO_TCP, RTO_MAX_MS, true},        {IPPROTO_TCP, RTO_MIN_US, true},
                {IPPROTO_TCP, DELACK_MAX_US, true},     {IPPROTO_TCP, TCP_INQ, false},
        };
        static const int value[] = {1000, 1,     0,     -1,      2,  87,  999,     1151,   1152,
                                    1153, 65535, 65536, 1 << 20, -2, 100, INT_MAX, INT_MIN},
                         times[] = {40000,  0,   -1,    100000,  200000, 200001,
                                    120000, 999, 80000, INT_MAX, INT_MIN};
        static const int low[] = {1000, 1, 0, 2, 65536, 1 << 20}; /* more is the machine's */
        static const unsigned long rate[] = {1000000, 1, ~0ul, ~0ul - 1, 1ul << 32, 1ul << 63};
        struct subject s[SUBJECTS];

        make(s);
        for (size_t i = 3; i < SUBJECTS; i++) {
                printf(" %s\n", s[i].what);
                for (size_t k = 0; k < ARRAY_LEN(option); k++) {
                        const int *v = option[k].is_time ? times : value;
                        size_t n = option[k].is_time ? ARRAY_LEN(times) : ARRAY_LEN(value);
                        for (size_t j = 0; j < n; j++)
                                set_and_ask(s[i].fd, option[k].level, option[k].name, &v[j],
                                            sizeof(v[j]));
                }
                for (size_t j = 0; j < ARRAY_LEN(low); j++)
                        set_and_ask(s[i].fd, SOL_SOCKET, SO_RCVLOWAT, &low[j], sizeof(low[j]));
                for (size_t j = 0; j < ARRAY_LEN(value); j++)
                        if (value[j] != 0)
                                set_and_ask(s[i].fd, SOL_SOCKET, SO_MAX_PACING_RATE, &value[j],
                                            sizeof(value[j]));
                for (size_t j = 0; j < ARRAY_LEN(rate); j++)
                        set_and_ask(s[i].fd, SOL_SOCKET, SO_MAX_PACING_RATE, &rate[j],
                                    sizeof(rate[j]));
        }
        for (size_t i = 0; i < SUBJECTS; i++)
                close(s[i].fd);
}

/* ---- what a connection has of its listener ---- */

/* Set on a listener they make it, or its connections, another thing, or none: a time after which
 * one is given up, who is waited for, and what the kernel alone knows the length of. */
static bool spoils_a_listener(int level, int name)
{
        if (is_drastic(level, name))
                return true;
        if (level == IPPROTO_TCP)
                return name == TCP_USER_TIMEOUT || name == TCP_ULP || name == TCP_FASTOPEN_KEY ||
                       name == TCP_SAVE_SYN;
        if (level == IPPROTO_IP)
                return name == IP_MINTTL;
        if (level == IPPROTO_IPV6)
                return name == IPV6_ADDRFORM || name == IPV6_V6ONLY || name == IPV6_TRANSPARENT;
        return level == SOL_SOCKET && (name == SO_INCOMING_CPU || name == SO_BINDTOIFINDEX ||
                                       (name >= SO_TIMESTAMP_NEW && name <= SO_TIMESTAMPING_NEW));
}

static void set_all(int fd, size_t l, int v)
{
        _Alignas(8) char b[16] = {0};

        memcpy(b, &v, sizeof(v));
        for (int name = 0; name <= levels[l].last; name++)
                if (!spoils_a_listener(levels[l].level, name) &&
                    setsockopt(fd, levels[l].level, name, b, sizeof(b)) < 0)
                        setsockopt(fd, levels[l].level, name, b, sizeof(v));
}

static void show_inherited(const struct sockaddr_in *sa, int l, size_t level)
{
        int c = socket(AF_INET, SOCK_STREAM, 0), s;

        if (connect(c, (const void *)sa, sizeof(*sa)) < 0 || write(c, "x", 1) != 1)
                die("connect");
        s = accept(l, NULL, NULL);
        for (int name = 0; name <= levels[level].last; name++)
                if (!is_left_out(levels[level].level, name))
                        ask(s, (int)level, name, 24);
        close(s);
        close(c);
}

/* All options of a level, set before the socket listens or when it does. */
static void inherit(int family, size_t level, int v, bool before)
{
        struct sockaddr_in sa = loopback();
        struct sockaddr_in6 mapped = {.sin6_family = AF_INET6,
                                      .sin6_addr.s6_addr = {[10] = 255, 255, 127, 0, 0, 1}},
                            name;
        const void *at = family == AF_INET ? (void *)&sa : (void *)&mapped;
        int l = socket(family, SOCK_STREAM, 0);
        socklen_t len = sizeof(name);

        printf(" of family %d, %s %d, %s\n", family, levels[level].what, v,
               before ? "set before" : "set while it listens");
        if (before)
                set_all(l, level, v);
        if (bind(l, at, family == AF_INET ? sizeof(sa) : sizeof(mapped)) < 0 || listen(l, 16) < 0 ||
            getsockname(l, (void *)&name, &len) < 0)
                die("listen");
        if (!before)
                set_all(l, level, v);
        sa.sin_port = name.sin6_port;
        show_inherited(&sa, l, level);
        close(l);
}

void scene_options_inherited(void)
{
        for (size_t level = 0; level < ARRAY_LEN(levels); level++)
                for (unsigned i = 0; i < 8; i++)
                        inherit(i & 1 ? AF_INET : AF_INET6, level, i & 2 ? 1 : 77, i & 4);
}
