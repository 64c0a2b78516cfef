/*
 * Who is to carry a socket, as others than the program say. These are rules of unet.conf(5), which
 * unetd's directory has for everybody. The kernel has a say, too, about a connection between
 * programs of this host: routes and rules (prohibit, unreachable, blackhole), `lo` that is down,
 * hooks of control groups.
 *
 * The kernel is asked by a connect() of a socket of its own, from which no packet leaves. That is a
 * UDP socket, or one of TCP with TCP_FASTOPEN_CONNECT and no cookie: its SYN waits for data that
 * never comes. All that connect() looks at is looked at, the program's hooks too. A pair is not
 * asked about again for a second. netfilter and hooks of packets see packets, and there are none.
 */
#include "sock/attach/handle.h"
#include "sock/attach/ustack.h"
#include "sock/attach/ustack_directory.h"
#include "sock/usock_connect.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/auxv.h>
#include <sys/socket.h>

#include "base/sandbox.h"
#include "base/sys.h"

#ifndef TCP_FASTOPEN_CONNECT
#define TCP_FASTOPEN_CONNECT 30
#endif
#ifndef TCP_FASTOPEN_NO_COOKIE
#define TCP_FASTOPEN_NO_COOKIE 34
#endif

/* ---- rules ---- */

/* The file that runs, as the kernel has it; an upgrade may have taken its name away. */
static const char *running_file(void)
{
        static char path[PATH_MAX];
        static _Atomic bool known;
        char now[PATH_MAX];
        long n;

        if (!atomic_load_explicit(&known, memory_order_acquire)) {
                static const char gone[] = " (deleted)";

                n = sys4(SYS_readlinkat, AT_FDCWD, "/proc/self/exe", now, sizeof now - 1);
                now[MAX(n, 0)] = '\0';
                if (n > (long)strlen(gone) && strcmp(now + n - strlen(gone), gone) == 0)
                        now[n - (long)strlen(gone)] = '\0';
                memcpy(path, now, sizeof path); /* whoever else is here writes the same */
                atomic_store_explicit(&known, true, memory_order_release);
        }
        return path[0] != '\0' ? path : NULL;
}

/* What `unet why` shows. It stays for as long as the process, whatever rules there are later. */
static const char *said(const char *name)
{
        enum { FREE, WRITTEN, THERE };
        static struct {
                _Atomic int state;
                char text[RULE_NAME + 32];
        } all[4 * RULES_MAX];
        char now[sizeof all[0].text];

        snprintf(now, sizeof now, "[rule %.*s] of the configuration", (int)RULE_NAME - 1, name);
        for (uint32_t i = 0; i < ARRAY_LEN(all); i++) {
                int was = FREE;

                if (atomic_compare_exchange_strong(&all[i].state, &was, WRITTEN)) {
                        memcpy(all[i].text, now, sizeof now);
                        atomic_store_explicit(&all[i].state, THERE, memory_order_release);
                        return all[i].text;
                }
                if (was == THERE && strcmp(all[i].text, now) == 0)
                        return all[i].text;
        }
        return "a rule of the configuration";
}

static const char *rule_for(const struct directory *dir, uint8_t proto, enum rule_role role,
                            ip_addr addr, uint16_t port)
{
        struct rule_asked q = {.role = role, .proto = proto, .port = port};
        struct dir_reading at = {0};
        char name[RULE_NAME] = "";
        const struct rule *r = NULL;

        q.addr = ip_addr_is_v4(addr) ? ip_addr_get_v4(addr) : 0;
        q.program[0] = running_file();
        q.program[1] = (const char *)getauxval(AT_EXECFN); /* of a script its own name */
        while (ustack_read(dir, &at)) {
                r = rule_against(dir->rule, READ_ONCE(dir->nrules), &q);
                if (r != NULL)
                        memcpy(name, r->name, sizeof name);
        }
        return r == NULL || !at.whole ? NULL : said(name);
}

const char *ustack_rule(const struct directory *dir, uint8_t proto, enum rule_role role,
                        ip_addr addr, uint16_t port)
{
        return likely(dir == NULL || READ_ONCE(dir->nrules) == 0)
                       ? NULL
                       : rule_for(dir, proto, role, addr, port);
}

const char *usock_rule_listens(int kind, const struct sockaddr *sa, socklen_t len)
{
        uint8_t proto = kind == USOCK_TCP ? IPPROTO_TCP : IPPROTO_UDP;
        ip_addr addr;
        uint16_t port;

        if (usock_addr_in(sa, len, &addr, &port) != 0)
                return NULL;
        return ustack_rule(ustack_directory_anyway(), proto, RULE_LISTENS, addr, port);
}

/* ---- the kernel ---- */

/* No SYN is to leave before data. False: this kernel has no such thing, or the operator has turned
 * it off. */
static bool holds_syn(long fd)
{
        const int on = 1;

        return sys5(SYS_setsockopt, fd, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &on, sizeof on) == 0 &&
               sys5(SYS_setsockopt, fd, IPPROTO_TCP, TCP_FASTOPEN_NO_COOKIE, &on, sizeof on) == 0;
}

/* May send broadcasts: whether the program's socket may is not for the route to say. */
static long socket_to_ask(uint8_t proto)
{
        const int on = 1;
        long fd = proto == IPPROTO_TCP
                          ? sys3(SYS_socket, AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)
                          : -1;

        if (fd >= 0 && holds_syn(fd))
                return fd;
        if (fd >= 0)
                sys1(SYS_close, fd);
        fd = sys3(SYS_socket, AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        if (fd >= 0)
                sys5(SYS_setsockopt, fd, SOL_SOCKET, SO_BROADCAST, &on, sizeof on);
        return fd;
}

#define NOT_ASKED 1

/* What connect() says. NOT_ASKED: no descriptor is left to ask by. */
static long ask_kernel(uint8_t proto, uint32_t addr, uint16_t port)
{
        struct sockaddr_in sa = {
                .sin_family = AF_INET, .sin_addr.s_addr = htonl(addr), .sin_port = htons(port)};
        long fd = socket_to_ask(proto), r;

        if (fd < 0)
                return NOT_ASKED;
        r = sys3(SYS_connect, fd, &sa, sizeof sa);
        sys1(SYS_close, fd);
        return r;
}

static bool is_policy(long err)
{
        return err == -EACCES || err == -EPERM || err == -ENETUNREACH || err == -EHOSTUNREACH ||
               err == -EINVAL;
}

#define PAIRS 256u

/* The second in which the kernel had nothing against a pair, beside the pair: in one word, as
 * threads share it. */
static _Atomic uint64_t allowed[PAIRS];

static bool is_unetds(const struct directory *dir, ip_addr addr)
{
        struct dir_iface all[DIR_IFACES];
        bool found = false;

        for (uint32_t i = 0; ustack_ifaces(dir, all) && i < DIR_IFACES && !found; i++)
                found = all[i].peer != 0 && ip_addr_eq(addr, ip_addr_v4(all[i].addr));
        return found;
}

static bool lo_is_down(const struct directory *dir, ip_addr addr)
{
        return unlikely(atomic_load_explicit(&dir->lo_down, memory_order_relaxed) != 0) &&
               !is_unetds(dir, addr);
}

int ustack_kernel_says(const struct directory *dir, uint8_t proto, ip_addr addr, uint16_t port)
{
        uint32_t host = ip_addr_is_v4(addr) ? ip_addr_get_v4(addr) : 0,
                 second = (uint32_t)(ustack_now() / NS_PER_S);
        /* A datagram's port would be asked for with each peer of a server. */
        uint64_t pair = (uint64_t)host << 32 | (proto == IPPROTO_TCP ? (uint32_t)port << 16 : 0),
                 now = pair | (second & 0x7fff) << 1 | (proto == IPPROTO_TCP);
        _Atomic uint64_t *at =
                &allowed[(host ^ host >> 8 ^ (uint32_t)(pair >> 16 & 0xffff) * 7u) % PAIRS];
        long err;

        if (lo_is_down(dir, addr))
                return -ENETUNREACH;
        if (likely(atomic_load_explicit(at, memory_order_relaxed) == now) || host == 0 ||
            sandbox_forbids(SANDBOX_PLACE))
                return 0;
        err = ask_kernel(proto, host, port);
        if (unlikely(err == NOT_ASKED))
                return -EMFILE;
        if (unlikely(is_policy(err) && !is_unetds(dir, addr)))
                return (int)err;
        atomic_store_explicit(at, now, memory_order_relaxed);
        return 0;
}

const char *ustack_kernel_refuses(const struct directory *dir, uint8_t proto, ip_addr addr,
                                  uint16_t port)
{
        int says = ustack_kernel_says(dir, proto, addr, port);

        if (likely(says == 0))
                return NULL;
        if (says == -EMFILE)
                return "no descriptor is left to ask the kernel by";
        return lo_is_down(dir, addr) ? "lo is down"
                                     : "the kernel refuses it: a route, a rule, an interface that "
                                       "is down, or a hook";
}
