/* See root.h. */
#include "unetd/monitor/root.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "unet/xdp/tcx_link.h"
#include "unetd/client/stopped.h"
#include "unetd/client/wire.h"

#ifndef UNET_LIBEXECDIR
#define UNET_LIBEXECDIR "/usr/local/libexec/unet"
#endif

#define KEEPER_FD     3
#define KEEPER_PINNED (256u << 20) /* bytes that it may pin for queue pairs */
#define ETHER_ARP     0x0806

static struct unetd_config *cfg;
static unsigned device[UNETD_IFACES]; /* the kernel's number of what was last opened */
static struct rlimit starter[RLIM_NLIMITS];

void root_init(struct unetd_config *config)
{
        assert(config->nifaces <= UNETD_IFACES);
        cfg = config;
        for (int what = 0; what < RLIM_NLIMITS; what++)
                getrlimit(what, &starter[what]);
}

/* ---- keepers ---- */

/* unet-keeper lies beside unetd; where a build tree or an administrator says; or where it
 * was installed. */
static void exec_keeper(char *const argv[], char *const env[])
{
        const char *dir = secure_getenv("UNET_LIBEXEC");
        char path[4096], self[3000];
        ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);

        if (dir && *dir) {
                snprintf(path, sizeof path, "%s/unet-keeper", dir);
                execve(path, argv, env);
        }
        if (n > 0) {
                self[n] = 0;
                *strrchr(self, '/') = 0;
                snprintf(path, sizeof path, "%s/unet-keeper", self);
                execve(path, argv, env);
        }
        execve(UNET_LIBEXECDIR "/unet-keeper", argv, env);
}

/* Sets a keeper's limits: those that root lifted for a unetd of all users are not the user's, who
 * might trace his keeper before it forbids that. It may have as many descriptors as the process
 * that started unetd. */
static void limit_keeper(void)
{
        struct rlimit rl;

        for (int what = 0; what < RLIM_NLIMITS; what++) {
                rl = starter[what];
                if (what == RLIMIT_NOFILE)
                        rl.rlim_cur = rl.rlim_max;
                if (what == RLIMIT_MEMLOCK && rl.rlim_max < KEEPER_PINNED)
                        rl = (struct rlimit){KEEPER_PINNED, KEEPER_PINNED};
                setrlimit(what, &rl);
        }
}

static bool become_user(uint32_t uid, uint32_t gid)
{
        if (geteuid() == uid)
                return true;
        return setgroups(1, &gid) == 0 && setresgid(gid, gid, gid) == 0 &&
               setresuid(uid, uid, uid) == 0;
}

/* A user's process must not have the terminal of the root who started unetd. */
static bool leave_terminal(void)
{
        int null = open("/dev/null", O_RDWR | O_CLOEXEC);

        return null >= 0 && dup2(null, 0) >= 0 && dup2(null, 1) >= 0 && dup2(null, 2) >= 0 &&
               chdir("/") == 0;
}

__attribute__((noreturn)) static void keeper_child(uint32_t uid, uint32_t gid, int fd)
{
        char idle[16], domain[64], libexec[3100], config[4200];
        char *argv[] = {"unet-keeper", "--idle", idle, cfg->shared ? "--system" : NULL, NULL};
        char *env[] = {domain, libexec, NULL, NULL};
        const char *dir = secure_getenv("UNET_LIBEXEC"), *file = secure_getenv("UNET_CONFIG");
        sigset_t none;

        snprintf(idle, sizeof idle, "%d", cfg->idle_s);
        snprintf(domain, sizeof domain, "UNET_DOMAIN=%s", cfg->domain);
        snprintf(libexec, sizeof libexec, "UNET_LIBEXEC=%s", dir ? dir : "");
        if (file && snprintf(config, sizeof config, "UNET_CONFIG=%s", file) < (int)sizeof config)
                env[2] = config; /* for the unetd that it starts when this one is no more */
        signal(SIGCHLD, SIG_DFL);
        signal(SIGPIPE, SIG_DFL);
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        setsid();
        umask(022);
        if (cfg->shared)
                limit_keeper();
        if (!leave_terminal() || !become_user(uid, gid) ||
            prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || dup2(fd, KEEPER_FD) < 0)
                _exit(126);
        if (fd == KEEPER_FD)
                fcntl(fd, F_SETFD, 0);
        close_range(KEEPER_FD + 1, ~0u, 0);
        exec_keeper(argv, env);
        _exit(127);
}

int root_keeper(uint32_t uid, uint32_t gid, int fd)
{
        int pid;

        assert(fd >= 0 && cfg != NULL);
        pid = fork();
        if (pid == 0)
                keeper_child(uid, gid, fd);
        return pid < 0 ? -errno : pid;
}

/* ---- interfaces ---- */

/* Somebody may have renamed it: it is the same device, while none has the name that is meant. */
static const char *name_of(uint32_t i, char now[IF_NAMESIZE])
{
        const char *meant;
        unsigned index;

        assert(i < cfg->nifaces);
        meant = cfg->iface[i].name;
        index = if_nametoindex(meant);
        if (index == 0 && device[i] != 0 && if_indextoname(device[i], now))
                return now;
        device[i] = index;
        return meant;
}

static enum xdp_want wanted(uint32_t i)
{
        switch ((enum unetd_iface_mode)cfg->iface[i].mode) {
        case IFACE_NATIVE:
                return XDP_WANT_NATIVE;
        case IFACE_GENERIC:
                return XDP_WANT_GENERIC;
        case IFACE_TCX:
                return XDP_WANT_TCX;
        case IFACE_AUTO:
                break;
        }
        return XDP_WANT_BEST;
}

/* Returns 0 if the kernel has what it takes; a queue that somebody has is not asked for. */
static int try_socket(const struct xdp_dev *d, uint32_t queue, char line[XDP_LINE_MAX])
{
        struct xdp_sizes small = {.rx_chunks = 64, .tx_chunks = 64, .at_once = true};
        char chosen[XDP_LINE_MAX];
        struct xdp_sock s;
        int r;

        memcpy(chosen, line, sizeof chosen);
        r = xdp_sock_open(&s, d, queue, small, line);
        if (r == -EOPNOTSUPP)
                return r;
        if (r == 0)
                xdp_sock_close(&s);
        memcpy(line, chosen, sizeof chosen);
        return 0;
}

int root_rings_try(uint32_t i, char line[XDP_LINE_MAX])
{
        char name[IF_NAMESIZE];
        struct xdp_dev dev;
        int r = xdp_dev_open(&dev, name_of(i, name), wanted(i), line);

        if (r < 0)
                return r;
        r = dev.mode == XDP_MODE_TCX ? 0 : try_socket(&dev, cfg->iface[i].queue, line);
        xdp_dev_close(&dev);
        return r;
}

static int open_device(uint32_t i, bool checked, struct xdp_dev *d, char line[XDP_LINE_MAX])
{
        enum xdp_want want = wanted(i);
        char name[IF_NAMESIZE];

        if (checked && (want == XDP_WANT_NATIVE || want == XDP_WANT_GENERIC)) {
                snprintf(
                        line, XDP_LINE_MAX,
                        "what an AF_XDP socket sends cannot be checked, and \"check\" asks for it");
                return -EOPNOTSUPP;
        }
        return xdp_dev_open(d, name_of(i, name), checked ? XDP_WANT_TCX : want, line);
}

/* Opens the check of what is sent, before anybody has the socket. */
static int open_check(uint32_t i, struct root_rings *r, char line[XDP_LINE_MAX])
{
        int err = send_check_open(&r->check, r->dev.ifindex, cfg->iface[i].addr, r->dev.mac, line);

        if (err < 0)
                xdp_sock_close(&r->sock);
        return err;
}

int root_rings_open(uint32_t i, bool checked, bool at_once, struct root_rings *r,
                    char line[XDP_LINE_MAX])
{
        struct xdp_sizes sizes = {.rx_chunks = 8192,
                                  .tx_chunks = 2048,
                                  .at_once = at_once,
                                  .mark = checked ? SEND_MARK : 0};
        int err = open_device(i, checked, &r->dev, line);

        r->check = SEND_CHECK_NONE;
        if (err < 0)
                return err;
        if (r->dev.mode == XDP_MODE_TCX) {
                sizes.rx_chunks = 4096;
                /* A frame each, then. */
                sizes.rx_large = r->dev.mtu + XDP_ETH_BYTES > 4096 ? 512 : 128;
        }
        err = xdp_sock_open(&r->sock, &r->dev, cfg->iface[i].queue, sizes, line);
        if (err == 0 && r->sock.packet.sock < 0) {
                err = r->sock.no_packet;
                snprintf(line, XDP_LINE_MAX, "no packet socket that could be passed: %s",
                         strerror(-err));
                xdp_sock_close(&r->sock);
        }
        if (err == 0 && checked)
                err = open_check(i, r, line);
        if (err < 0)
                xdp_dev_close(&r->dev);
        return err;
}

static int drop_behind(uint32_t ifindex)
{
        return tcx_link_tap("to_nobody", ifindex);
}

int root_packet_open(uint32_t i, struct pkt_dev *d, char line[XDP_LINE_MAX])
{
        char name[IF_NAMESIZE];

        return pkt_dev_open(d, name_of(i, name), true, drop_behind, line);
}

int root_arp_open(uint32_t i)
{
        struct sockaddr_ll ll = {.sll_family = AF_PACKET, .sll_protocol = htons(ETHER_ARP)};
        int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), one = 1;
        char name[IF_NAMESIZE];

        ll.sll_ifindex = (int)if_nametoindex(name_of(i, name));
        if (fd < 0)
                return -errno;
        setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &one, sizeof one);
        if (ll.sll_ifindex == 0 || bind(fd, (struct sockaddr *)&ll, sizeof ll) < 0) {
                int err = ll.sll_ifindex == 0 ? ENODEV : errno;
                close(fd);
                return -err;
        }
        return fd;
}

int root_sender_mtu(const struct pkt_sealed *s, uint32_t mtu)
{
        return pkt_sealed_mtu(s, mtu);
}

int root_sender_end(struct pkt_sealed *s, struct send_check *c)
{
        int err = pkt_sealed_end(s);

        send_check_close(c, err == 0);
        return err;
}

int root_sender_mac(uint32_t i, struct send_check *c)
{
        char name[IF_NAMESIZE];
        struct ifinfo info;
        int err = ifinfo_get(&info, name_of(i, name));

        return err < 0 ? err : send_check_set(c, cfg->iface[i].addr, info.mac);
}

void root_iface_set(uint32_t i, const struct unetd_iface_config *c)
{
        assert(i < UNETD_IFACES);
        cfg->iface[i] = *c;
        cfg->nifaces = MAX(cfg->nifaces, i + 1);
        device[i] = 0;
}

bool root_iface_is_sane(const struct unetd_iface_config *c)
{
        return c->name[0] != '\0' && memchr(c->name, 0, sizeof c->name) != NULL &&
               c->provider <= IFACE_PACKET && c->addr != 0 && c->prefix >= 1 && c->prefix <= 32 &&
               c->mode <= IFACE_TCX && c->check <= IFACE_CHECK_NO && c->probe <= IFACE_PROBE_NO &&
               c->queue <= 4095;
}

/* ---- others ---- */

int root_bind(int fd, const struct sockaddr *sa, socklen_t len)
{
        return bind(fd, sa, len) == 0 ? 0 : -errno;
}

int root_reopen(int fd, int flags)
{
        return fd_reopen(fd, flags);
}

void root_process(int32_t pid, int32_t tid, struct root_process *p)
{
        char path[64];
        struct stat sb;

        *p = (struct root_process){.stopped = process_is_stopped(pid),
                                   .has_thread = tid == 0 || tid == pid};
        snprintf(path, sizeof path, "/proc/%d/task/%d", pid, tid);
        if (!p->has_thread)
                p->has_thread = access(path, F_OK) == 0;
        snprintf(path, sizeof path, "/proc/%d", tid != 0 ? tid : pid);
        p->is_there = stat(path, &sb) == 0;
        p->uid = p->is_there ? sb.st_uid : (uint32_t)-1;
}
