/*
 * Every option of every level that a program may ask a socket for, in the states that a socket is in: what is answered, how long
 * it is, and what a wrong length gets. Values that no two sockets share are left out.
 */
#include "tests/shim/calls.h"

#define IP_PROTOCOL_ 52

struct subject {
        const char *what;
        int fd;
};

static const struct {
        const char *what;
        int level, last;
} levels[] = {
        {"SOL_SOCKET", SOL_SOCKET, 84}, {"IP", IPPROTO_IP, 52},        {"TCP", IPPROTO_TCP, 46},
        {"UDP", IPPROTO_UDP, 105},      {"IPV6", IPPROTO_IPV6, 82}, {"RAW", IPPROTO_RAW, 2},
};

/* Values that differ between two sockets, two machines, or two ways to count; lengths and errors do not. */
static bool varies(int level, int name)
{
        switch (level) {
        case SOL_SOCKET:
                return name == SO_SNDBUF || name == SO_RCVBUF || name == SO_PEERNAME || name == SO_INCOMING_CPU ||
                       name == SO_MEMINFO || name == SO_COOKIE;
        case IPPROTO_IP:
                return name == IP_MULTICAST_TTL;
        case IPPROTO_TCP:
                return name == TCP_MAXSEG || name == TCP_WINDOW_CLAMP || name == TCP_CONGESTION || name == TCP_TIMESTAMP ||
                       name == TCP_SYNCNT || name == TCP_QUICKACK || name == TCP_INFO;
        default:
                return false;
        }
}

/* Their lengths are the machine's: of its congestion control, its kernel's headers; it may be too old to know one. And what is
 * not for us at all. */
static bool is_left_out(int level, int name)
{
        if (level == IPPROTO_IP && name == IP_PROTOCOL_)
                return true;
        return level == IPPROTO_TCP && (name == TCP_CC_INFO || name == TCP_INFO || name == TCP_ZEROCOPY_RECEIVE);
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

/* What takes the socket away from us, or makes it another one; times of sending, which are not ours to give to a connection
 * (scene_stream_times()), and offsets to peek at (scene_peek_offset()); and what says that a filter is not there which could not be
 * there. */
static bool is_drastic(int level, int name)
{
        switch (level) {
        case SOL_SOCKET:
                return name == SO_ZEROCOPY || name == SO_ATTACH_FILTER || name == SO_ATTACH_BPF ||
                       name == SO_BINDTODEVICE || name == SO_PEEK_OFF || name == SO_TIMESTAMPING || name == SO_DETACH_REUSEPORT_BPF;
        case IPPROTO_TCP:
                return name == TCP_MD5SIG || (name >= TCP_REPAIR && name <= TCP_TIMESTAMP) || name >= TCP_REPAIR_WINDOW;
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
                                                put(s[i].fd, (int)l, name, value[k / ARRAY_LEN(len)], len[k % ARRAY_LEN(len)]);
                close(s[i].fd);
        }
}
