/* A seccomp filter, run as the kernel runs it (Documentation/userspace-api/seccomp_filter.rst) over
 * the calls we have in mind. */
#include "base/sandbox.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/kcmp.h>
#include <linux/seccomp.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "base/sys.h"

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71 /* Linux 5.14 */
#endif

/* What some filters look at: send() is a sendto() without an address. */
#define ADDRESS 4096
#define RING    3, ADDRESS, 1, MSG_DONTWAIT | MSG_NOSIGNAL, ADDRESS, 8

_Atomic uint32_t sandbox_forbidden;

#if defined(__x86_64__)
#define ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCH AUDIT_ARCH_AARCH64
#endif

static const struct {
        enum sandbox_need need;
        int nr;
        uint64_t a[6];
} calls[] = {
        {SANDBOX_UNETD, SYS_socket, {AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0}},
        {SANDBOX_UNETD, SYS_connect, {0}},
        {SANDBOX_UNETD, SYS_sendmsg, {0}},
        {SANDBOX_UNETD, SYS_recvmsg, {0}},
        {SANDBOX_UNETD, SYS_recvfrom, {0}},
        {SANDBOX_UNETD, SYS_statx, {0}},
        {SANDBOX_UNETD, SYS_fstatfs, {0}},
        {SANDBOX_UNETD, SYS_getsockopt, {0, SOL_SOCKET, SO_PEERCRED}},
        {SANDBOX_UNETD, SYS_fcntl, {0, F_DUPFD_CLOEXEC}},
        {SANDBOX_UNETD, SYS_fcntl, {0, F_GET_SEALS}},
        {SANDBOX_UNETD, SYS_mmap, {0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED}},
        {SANDBOX_UNETD, SYS_munmap, {0}},
        {SANDBOX_FILES, SYS_openat, {(uint64_t)AT_FDCWD, 0, O_RDONLY | O_CLOEXEC}},
        {SANDBOX_WAKE, SYS_sendto, {RING}},
        {SANDBOX_PLACE, SYS_socket, {AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0}},
        {SANDBOX_PLACE, SYS_bind, {0}},
        {SANDBOX_PLACE, SYS_getsockname, {0}},
        {SANDBOX_PLACE, SYS_fcntl, {0, F_DUPFD_CLOEXEC}},
        {SANDBOX_PEERS, SYS_fcntl, {0, F_OFD_GETLK}},
        {SANDBOX_PEERS, SYS_kcmp, {0, 0, KCMP_FILE}},
        {SANDBOX_NAMES, SYS_sendto, {RING}},
        {SANDBOX_NAMES, SYS_connect, {3, ADDRESS, 8}},
        {SANDBOX_NAMES, SYS_getpeername, {0}},
        {SANDBOX_NAMES, SYS_getsockopt, {0, SOL_SOCKET, SO_NETNS_COOKIE}},
        {SANDBOX_NAMES, SYS_socket, {AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0}},
        {SANDBOX_NAMES, SYS_dup3, {0, 0, O_CLOEXEC}},
        {SANDBOX_SELF, SYS_get_robust_list, {0}},
        {SANDBOX_SELF, SYS_set_robust_list, {0}},
        {SANDBOX_SELF, SYS_gettid, {0}},
        {SANDBOX_PPOLL, SYS_ppoll, {0}},
        {SANDBOX_EPOLL2, SYS_epoll_pwait2, {0}},
        {SANDBOX_EPOLL, SYS_epoll_pwait, {0}},
        {SANDBOX_LIMITS, SYS_prlimit64, {0}},
        {SANDBOX_KILL, SYS_kill, {0}},
        {SANDBOX_KILL, SYS_tkill, {0}},
        {SANDBOX_KILL, SYS_newfstatat, {0}},
        {SANDBOX_YIELD, SYS_sched_yield, {0}},
        {SANDBOX_DEVICE, SYS_ioctl, {0, RDMA_VERBS_IOCTL}},
};

struct machine {
        const struct sock_filter *f;
        unsigned n, pc;
        uint32_t a, x, mem[BPF_MEMWORDS];
        const uint8_t *data; /* struct seccomp_data */
};

static uint32_t operand(const struct machine *m, const struct sock_filter *i)
{
        return BPF_SRC(i->code) == BPF_X ? m->x : i->k;
}

static uint32_t load(const struct machine *m, const struct sock_filter *i)
{
        uint32_t v = i->k;

        switch (BPF_MODE(i->code)) {
        case BPF_IMM:
                return v;
        case BPF_LEN:
                return sizeof(struct seccomp_data);
        case BPF_MEM:
                return m->mem[v % BPF_MEMWORDS];
        case BPF_ABS:
                if (v > sizeof(struct seccomp_data) - sizeof v)
                        return 0;
                memcpy(&v, m->data + v, sizeof v);
                return v;
        default:
                return 0;
        }
}

static uint32_t alu(uint32_t a, uint16_t op, uint32_t b)
{
        switch (op) {
        case BPF_ADD:
                return a + b;
        case BPF_SUB:
                return a - b;
        case BPF_MUL:
                return a * b;
        case BPF_DIV:
                return b != 0 ? a / b : 0;
        case BPF_OR:
                return a | b;
        case BPF_AND:
                return a & b;
        case BPF_XOR:
                return a ^ b;
        case BPF_LSH:
                return b < 32 ? a << b : 0;
        case BPF_RSH:
                return b < 32 ? a >> b : 0;
        default:
                return -a; /* BPF_NEG */
        }
}

static bool holds(uint32_t a, uint16_t op, uint32_t b)
{
        switch (op) {
        case BPF_JEQ:
                return a == b;
        case BPF_JGT:
                return a > b;
        case BPF_JGE:
                return a >= b;
        default:
                return (a & b) != 0; /* BPF_JSET */
        }
}

static void jump(struct machine *m, const struct sock_filter *i)
{
        if (BPF_OP(i->code) == BPF_JA)
                m->pc += MIN(i->k, m->n);
        else
                m->pc += holds(m->a, BPF_OP(i->code), operand(m, i)) ? i->jt : i->jf;
}

/* Returns the filter's answer. Jumps go forward only, so it ends. */
static uint32_t run(struct machine *m)
{
        while (m->pc < m->n) {
                const struct sock_filter *i = &m->f[m->pc++];

                switch (BPF_CLASS(i->code)) {
                case BPF_LD:
                        m->a = load(m, i);
                        break;
                case BPF_LDX:
                        m->x = load(m, i);
                        break;
                case BPF_ST:
                        m->mem[i->k % BPF_MEMWORDS] = m->a;
                        break;
                case BPF_STX:
                        m->mem[i->k % BPF_MEMWORDS] = m->x;
                        break;
                case BPF_ALU:
                        m->a = alu(m->a, BPF_OP(i->code), operand(m, i));
                        break;
                case BPF_JMP:
                        jump(m, i);
                        break;
                case BPF_MISC:
                        if (BPF_MISCOP(i->code) == BPF_TAX)
                                m->x = m->a;
                        else
                                m->a = m->x;
                        break;
                default:
                        return BPF_RVAL(i->code) == BPF_A ? m->a : i->k;
                }
        }
        return SECCOMP_RET_KILL_PROCESS;
}

/* Another process decides, or somebody is told: it goes on as if nothing were. */
static bool lets_pass(uint32_t action)
{
        action &= SECCOMP_RET_ACTION_FULL;
        return action == SECCOMP_RET_ALLOW || action == SECCOMP_RET_LOG ||
               action == SECCOMP_RET_TRACE || action == SECCOMP_RET_USER_NOTIF;
}

uint32_t sandbox_filter(const struct sock_filter *f, unsigned n)
{
        uint32_t forbidden = 0;

        for (size_t i = 0; i < ARRAY_LEN(calls); i++) {
                struct seccomp_data d = {.nr = calls[i].nr, .arch = ARCH};
                struct machine m = {.f = f, .n = n, .data = (const uint8_t *)&d};

                for (int k = 0; k < 6; k++)
                        d.args[k] = calls[i].a[k];
                if (!lets_pass(run(&m)))
                        forbidden |= 1u << calls[i].need;
        }
        return forbidden;
}
