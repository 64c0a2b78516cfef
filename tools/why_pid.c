/*
 * A process's sockets from outside. Those of ours are in the stacks it takes part in. The kernel's
 * are found through a copy of each descriptor (pidfd_getfd); whatever has a name there and is not
 * the kernel's half of one of ours is carried by the kernel, and the reason follows from what it is
 * connected to.
 */
#include "tools/why_pid.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tools/address.h"
#include "tools/stacks.h"

struct asked {
        int pid;
        bool shimmed, disabled;
        bool found;                /* in a stack of the unetd that we ask, */
        bool private;              /* or of its user's own */
        bool away;                 /* not there, and has a stack */
        char program[PATH_MAX];    /* that runs; empty: not known */
        struct unetd_client unetd; /* its directory says who listens */
        json_t *rows;
        struct half *half;
        size_t nhalf;
};

/* How the kernel's half of one of our sockets is recognised: by its cookie when it is known, else
 * by its port. */
struct half {
        uint64_t cookie;
        uint16_t port;
        bool tcp;
};

/* ---- ours ---- */

struct look {
        struct asked *a;
        json_t *rows;
};

/* UINT32_MAX: not known. */
static uint32_t user_of(int pid)
{
        char path[64], line[256];
        unsigned uid = UINT32_MAX;
        FILE *f;

        snprintf(path, sizeof path, "/proc/%d/status", pid);
        f = fopen(path, "re");
        while (f && fgets(line, sizeof line, f) && sscanf(line, "Uid: %*u %u", &uid) != 1)
                continue;
        if (f)
                fclose(f);
        return uid;
}

static bool is_slot_of(const struct stack_state *st, uint32_t slot, int32_t pid)
{
        return atomic_load_explicit(&st->proc[slot].pid, memory_order_relaxed) == (uint32_t)pid;
}

static bool holds(const struct stack_state *st, const struct sock_rec *r, int32_t pid)
{
        for (uint32_t slot = sock_next_holder(st, r, 0); slot < STACK_PROCS;
             slot = sock_next_holder(st, r, slot + 1))
                if (is_slot_of(st, slot, pid))
                        return true;
        return false;
}

/* How the kernel's half of a socket is recognised goes with its row; a row without anything else
 * says that the process is in the stack. */
static void add_ours(void *arg, const struct seen_stack *s, json_t *rows)
{
        const struct stack_state *st = s->view.st;
        const struct asked *a = arg;
        bool any = false;

        for (uint32_t i = 0, n = stack_procs(st); i < n && !any; i++)
                any = is_slot_of(st, i, a->pid);
        if (!any)
                return;
        json_array_append_new(rows, json_object());
        for (uint32_t i = 1; i < st->socks.fresh && i < st->socks.cap; i++) {
                const struct sock_rec *r = stack_sock(&s->view, i);

                if (!holds(st, r, a->pid) || r->role == SOCK_ROLE_NONE)
                        continue;
                json_array_append_new(
                        rows, json_pack("{si sn ss so so ss ss sI si}", "pid", a->pid, "fd",
                                        "protocol", r->role == SOCK_ROLE_UDP ? "udp" : "tcp",
                                        "local", address_port_json(r->laddr, r->lport), "peer",
                                        address_port_json(r->raddr, r->rport), "carried",
                                        r->role == SOCK_ROLE_CONN ? "u-net" : "both", "why",
                                        r->role == SOCK_ROLE_CONN
                                                ? "both ends are on the fabric"
                                                : "open to the fabric and to the kernel",
                                        "cookie", (json_int_t)r->cookie, "port", r->lport));
        }
}

static bool add_own(void *arg, const struct seen_stack *s)
{
        struct look *l = arg;

        add_ours(l->a, s, l->rows);
        return true;
}

static bool take_ours(struct asked *a, json_t *row)
{
        struct half *grown,
                h = {.cookie = (uint64_t)json_integer_value(json_object_get(row, "cookie")),
                     .port = (uint16_t)json_integer_value(json_object_get(row, "port"))};
        const char *proto = json_string_value(json_object_get(row, "protocol"));

        a->found = true;
        if (!proto)
                return true;
        grown = realloc(a->half, (a->nhalf + 1) * sizeof *grown);
        if (!grown)
                return false;
        h.tcp = strcmp(proto, "tcp") == 0;
        a->half = grown;
        a->half[a->nhalf++] = h;
        json_object_del(row, "cookie");
        json_object_del(row, "port");
        json_object_del(row, "uid");
        json_array_append(a->rows, row);
        return true;
}

/* By the user's own process where root asks about another's (stacks_rows()). */
static void find_ours(struct asked *a)
{
        struct look l = {a, json_array()};
        uint32_t uid = user_of(a->pid);
        json_t *row;
        size_t i;

        if (uid == geteuid() || geteuid() != 0) {
                stacks_each(add_own, &l);
        } else {
                stacks_rows_as(uid, 0, add_ours, a, l.rows);
                a->private = json_array_size(l.rows) == 0;
                if (a->private)
                        stacks_rows_as(uid, UNETD_PRIVATE, add_ours, a, l.rows);
        }
        json_array_foreach (l.rows, i, row)
                if (!take_ours(a, row))
                        break;
        a->private &= a->found;
        json_decref(l.rows);
}

/* ---- the kernel's ---- */

/* `port`: of a listener or a UDP socket, 0 for a connection. */
static bool beside_ours(const struct asked *a, int fd, bool tcp, uint16_t port)
{
        uint64_t cookie = 0;
        socklen_t len = sizeof cookie;

        getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &len);
        for (size_t i = 0; i < a->nhalf; i++) {
                const struct half *h = &a->half[i];

                if ((cookie != 0 && h->cookie == cookie) ||
                    (port != 0 && h->port == port && h->tcp == tcp))
                        return true;
        }
        return false;
}

static ip_addr address_of(const struct sockaddr_storage *ss, uint16_t *port)
{
        const struct sockaddr_in *in = (const struct sockaddr_in *)ss;
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)ss;
        ip_addr a = {{0, 0}};

        *port = 0;
        if (ss->ss_family == AF_INET) {
                a = ip_addr_v4(ntohl(in->sin_addr.s_addr));
                *port = ntohs(in->sin_port);
        } else if (ss->ss_family == AF_INET6) {
                memcpy(&a, &in6->sin6_addr, sizeof a);
                *port = ntohs(in6->sin6_port);
        }
        return a;
}

/* The rule of unetd's configuration that gives a socket to the kernel; NULL: none does. */
static const char *rule(const struct asked *a, bool tcp, enum rule_role role, ip_addr addr,
                        uint16_t port)
{
        struct rule_asked q = {.role = role,
                               .proto = tcp ? IPPROTO_TCP : IPPROTO_UDP,
                               .port = port,
                               .addr = ip_addr_is_v4(addr) ? ip_addr_get_v4(addr) : 0,
                               .program = {a->program, NULL}};
        const struct rule *r =
                a->unetd.dir ? rule_against(a->unetd.dir->rule, a->unetd.dir->nrules, &q) : NULL;
        static char text[RULE_NAME + 32];

        if (r)
                snprintf(text, sizeof text, "[rule %.*s] of the configuration", (int)sizeof r->name,
                         r->name);
        return r ? text : NULL;
}

struct seen {
        bool tcp, listening;
        ip_addr laddr, paddr;
        uint16_t lport, pport;
};

static const char *rule_of(const struct asked *a, const struct seen *s)
{
        const char *r =
                s->listening || !s->tcp ? rule(a, s->tcp, RULE_LISTENS, s->laddr, s->lport) : NULL;

        return r || s->pport == 0 ? r : rule(a, s->tcp, RULE_CONNECTS, s->paddr, s->pport);
}

static const char *reason(const struct asked *a, const struct seen *s)
{
        const char *said;
        struct dir_hit hit;

        if (!a->shimmed)
                return "the program runs without the shim: start it by unet run";
        if (a->disabled)
                return "UNET_DISABLE is set";
        if (a->away)
                return "not known: its unetd is another user's or of another domain; ask there";
        if (a->private)
                return "not known: its unetd is its user's own; ask as that user";
        said = rule_of(a, s);
        if (said)
                return said;
        if (s->listening || s->pport == 0)
                return "it was made before the shim could see it";
        if (!ip_addr_is_v4(s->paddr))
                return "IPv6 is the kernel's";
        if (!a->unetd.dir)
                return "no unetd runs";
        if (directory_is_local(a->unetd.dir, s->paddr) != 1)
                return "the peer is not on this host";
        if (directory_lookup(a->unetd.dir, s->tcp ? IPPROTO_TCP : IPPROTO_UDP, s->paddr, s->pport,
                             0, &hit) != 1)
                return "the peer is not on the fabric";
        return "the other side came through the kernel";
}

static void add_kernel_socket(struct asked *a, int number, int fd)
{
        struct sockaddr_storage local = {0}, peer = {0};
        socklen_t llen = sizeof local, plen = sizeof peer, ilen = sizeof(int);
        int domain = 0, type = 0, listening = 0;
        struct seen s;

        getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &ilen);
        getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &ilen);
        getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &ilen);
        if ((domain != AF_INET && domain != AF_INET6) ||
            (type != SOCK_STREAM && type != SOCK_DGRAM) ||
            getsockname(fd, (struct sockaddr *)&local, &llen) != 0)
                return;
        if (getpeername(fd, (struct sockaddr *)&peer, &plen) != 0)
                peer.ss_family = AF_UNSPEC;
        s = (struct seen){.tcp = type == SOCK_STREAM, .listening = listening};
        s.laddr = address_of(&local, &s.lport);
        s.paddr = address_of(&peer, &s.pport);
        if ((s.pport == 0 && s.lport == 0) || (s.tcp && s.pport == 0 && !listening) ||
            beside_ours(a, fd, s.tcp, listening || !s.tcp ? s.lport : 0))
                return;
        json_array_append_new(a->rows, json_pack("{si si ss so so ss ss}", "pid", a->pid, "fd",
                                                 number, "protocol", s.tcp ? "tcp" : "udp", "local",
                                                 address_port_json(s.laddr, s.lport), "peer",
                                                 address_port_json(s.paddr, s.pport), "carried",
                                                 "kernel", "why", reason(a, &s)));
}

/* Every descriptor of the process in turn, by a copy. */
static bool add_kernels(struct asked *a, char why[WHY_TEXT])
{
        int pidfd = (int)syscall(SYS_pidfd_open, a->pid, 0);
        char path[32];
        struct dirent *e;
        DIR *dir;
        bool whole = true;

        snprintf(path, sizeof path, "/proc/%d/fd", a->pid);
        dir = pidfd < 0 ? NULL : opendir(path);
        if (!dir) {
                snprintf(why, WHY_TEXT, "%s", strerror(errno));
                whole = false;
        }
        while (whole && (e = readdir(dir)) != NULL) {
                int number = atoi(e->d_name), fd;

                if (e->d_name[0] == '.')
                        continue;
                fd = (int)syscall(SYS_pidfd_getfd, pidfd, number, 0);
                if (fd >= 0) {
                        add_kernel_socket(a, number, fd);
                        close(fd);
                } else if (errno == EPERM) {
                        snprintf(why, WHY_TEXT, "its kernel sockets cannot be looked at: %s",
                                 strerror(errno));
                        whole = false;
                }
        }
        if (dir)
                closedir(dir);
        if (pidfd >= 0)
                close(pidfd);
        return whole;
}

/* ---- the process ---- */

static bool file_holds(int pid, const char *name, const char *what)
{
        size_t cap = 1 << 20, n = 0, got;
        char path[64], *text = malloc(cap);
        bool found;
        FILE *f;

        snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
        f = fopen(path, "r");
        while (f && text && n < cap && (got = fread(text + n, 1, cap - n, f)) > 0)
                n += got;
        if (f)
                fclose(f);
        found = text && n > 0 && memmem(text, n, what, strlen(what)) != NULL;
        free(text);
        return found;
}

bool why_pid(int pid, json_t *rows, char why[WHY_TEXT])
{
        struct asked a = {.pid = pid, .rows = rows};
        char path[32];
        bool whole;

        snprintf(path, sizeof path, "/proc/%d", pid);
        if (access(path, F_OK) != 0) {
                strcpy(why, "there is none with that number");
                return false;
        }
        a.shimmed = file_holds(pid, "maps", "libunet_preload.so");
        a.disabled = file_holds(pid, "environ", "UNET_DISABLE=");
        strcat(path, "/exe");
        if (readlink(path, a.program, sizeof a.program - 1) < 0)
                a.program[0] = '\0';
        unetd_open(&a.unetd, UNETD_NO_START);
        find_ours(&a);
        a.away = !a.found && file_holds(pid, "maps", "/memfd:unet-state");
        whole = add_kernels(&a, why);
        unetd_close(&a.unetd);
        free(a.half);
        return whole;
}
