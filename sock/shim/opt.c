/*
 * Options, flags and ioctls.
 *
 * Before the decision an option goes to the kernel's socket, whose answer counts, and is remembered
 * for ours. After it, a connection's options are ours first and the kernel's when we do not know
 * them; sockets with two sides get them on both. A connection has its listener's. What we do not
 * know is never an error of ours.
 */
#include "sock/shim/addrs.h"
#include "sock/shim/decide.h"
#include "sock/shim/group.h"
#include "sock/shim/opts.h"
#include "sock/shim/relay.h"
#include "sock/shim/signals.h"
#include "sock/shim/spare.h"
#include "sock/shim/transfer.h"
#include "sock/usock_ifaces.h"
#include "sock/usock_option.h"
#include "sock/usock_stamp.h"

#include <linux/sock_diag.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>

#ifndef SO_RCVTIMEO_NEW
#define SO_RCVTIMEO_NEW 66
#define SO_SNDTIMEO_NEW 67
#endif

/* ---- options that are the shim's own: they say how calls wait, or what the number is ---- */

static nstime *timeo_of(struct file *f, int level, int name)
{
        if (level != SOL_SOCKET)
                return NULL;
        if (name == SO_RCVTIMEO || name == SO_RCVTIMEO_NEW)
                return &f->rcvtimeo;
        return name == SO_SNDTIMEO || name == SO_SNDTIMEO_NEW ? &f->sndtimeo : NULL;
}

static int set_timeo(nstime *timeo, const void *val, socklen_t len)
{
        struct timeval tv;

        if ((int)len < 0 || len < sizeof(tv))
                return -EINVAL;
        memcpy(&tv, val, sizeof(tv));
        if (tv.tv_usec < 0 || tv.tv_usec >= 1000000)
                return -EDOM;
        if (tv.tv_sec < 0)
                *timeo = 1; /* as the kernel: never waits */
        else if (tv.tv_sec > NSTIME_NEVER / NS_PER_S - 1)
                *timeo = 0;
        else
                *timeo = tv.tv_sec * NS_PER_S + tv.tv_usec * NS_PER_US;
        return 0;
}

static int give(void *val, socklen_t *len, const void *from, socklen_t n)
{
        if ((int)*len < 0)
                return -EINVAL;
        n = MIN(*len, n);
        return user_copy(val, from, n) && user_put32(len, n) ? 0 : -EFAULT;
}

int opt_give_int(void *val, socklen_t *len, int v)
{
        return give(val, len, &v, sizeof(v));
}

static int give_timeo(void *val, socklen_t *len, nstime timeo)
{
        struct timeval tv = {timeo / NS_PER_S, timeo % NS_PER_S / NS_PER_US};

        return give(val, len, &tv, sizeof(tv));
}

/* What a connection of ours is, whatever kernel socket stands below it. */
static int identity(const struct file *f, int level, int name, void *val, socklen_t *len)
{
        if (level != SOL_SOCKET)
                return -ENOPROTOOPT;
        switch (name) {
        case SO_TYPE:
                return opt_give_int(val, len, SOCK_STREAM);
        case SO_DOMAIN:
                return opt_give_int(val, len, f->family);
        case SO_PROTOCOL:
                return opt_give_int(val, len, IPPROTO_TCP);
        case SO_ACCEPTCONN:
                return opt_give_int(val, len, 0);
        default:
                return -ENOPROTOOPT;
        }
}

/* ---- setsockopt ---- */

/* Options that only the kernel can honour: the socket stays with it. */
static const char *kernel_only(const struct file *f, int level, int name, const void *val,
                               socklen_t len)
{
        if (level == SOL_SOCKET && name == SO_BINDTODEVICE)
                return usock_is_device(val, len) ? NULL : "bound to a device of the kernel's";
        if (level == SOL_SOCKET && name == SO_BINDTOIFINDEX)
                return usock_is_device_number(*(const int *)val)
                               ? NULL
                               : "bound to a device of the kernel's";
        if (level == SOL_SOCKET && (name == SO_ATTACH_FILTER || name == SO_ATTACH_BPF))
                return "filtered";
        if ((level == IPPROTO_IP && name == IP_TRANSPARENT) ||
            (level == IPPROTO_IPV6 && name == IPV6_TRANSPARENT))
                return "transparent";
        if (level == IPPROTO_TCP && (name == TCP_REPAIR || name == TCP_MD5SIG || name == TCP_ULP))
                return "a TCP option of the kernel's";
        if (level == SOL_SOCKET && name == SO_ZEROCOPY && f->kind == USOCK_UDP)
                return "zero copy by the kernel's interface";
        if (level == SOL_SOCKET && name == SO_TIMESTAMPING &&
            (f->kind == USOCK_UDP ? *(const uint32_t *)val & USOCK_STAMPS_OF_SENDING
                                  : !usock_can_stamp(*(const uint32_t *)val)))
                return "times of sending";
        return NULL;
}

static int set_new(struct file *f, int level, int name, const void *val, socklen_t len)
{
        const char *why;
        int r;

        spare_used(f);
        r = (int)sys5(SYS_setsockopt, f->kfd, level, name, val, len);
        why = r == 0 ? kernel_only(f, level, name, val, len) : NULL;

        if (r < 0)
                return r;
        if (why) {
                pthread_mutex_lock(&shim.lock);
                sock_decide(f, MODE_KERNEL, why);
                pthread_mutex_unlock(&shim.lock);
                return r;
        }
        opts_remember(f, level, name, val, len);
        if (f->us)
                usock_setsockopt(f->us, level, name, val, len);
        return r;
}

/* The kernel's socket below a connection of ours, which is not connected, would take it, and
 * nothing would come of it: no filter. */
static bool is_void(int level, int name)
{
        if (level == SOL_SOCKET)
                return name == SO_ATTACH_FILTER || name == SO_ATTACH_BPF;
        return level == IPPROTO_TCP &&
               (name == TCP_ULP || name == TCP_REPAIR || name == TCP_MD5SIG);
}

static int set_tcp(struct file *f, int level, int name, const void *val, socklen_t len)
{
        int r = usock_setsockopt(f->us, level, name, val, len);

        if (r != -ENOPROTOOPT)
                return r;
        if (is_void(level, name))
                return -EOPNOTSUPP;
        spare_used(f);
        r = file_materialise(f);
        return r < 0 ? r : (int)sys5(SYS_setsockopt, f->kfd, level, name, val, len);
}

/* As on a connection: those that a listener takes would never tell. */
static bool cannot_be_told(const struct file *f, int level, int name, const void *val,
                           socklen_t len)
{
        return f->mode == MODE_LISTEN && level == SOL_SOCKET && name == SO_TIMESTAMPING &&
               (int)len >= (int)sizeof(uint32_t) && !usock_can_stamp(*(const uint32_t *)val);
}

static int set_both(struct file *f, int level, int name, const void *val, socklen_t len)
{
        int r;

        if (cannot_be_told(f, level, name, val, len))
                return -EOPNOTSUPP;
        r = (int)sys5(SYS_setsockopt, f->kfd, level, name, val, len);
        if (r == 0 && f->mode == MODE_LISTEN)
                opts_remember(f, level, name, val, len);
        if (r == 0)
                usock_setsockopt(f->us, level, name, val, len);
        return r;
}

/* Each call that sends looks here. */
static void note_stamped(struct file *f, const void *val)
{
        uint32_t flags;

        memcpy(&flags, val, sizeof flags);
        WRITE_ONCE(f->stamped, f->kind == USOCK_TCP && flags & USOCK_STAMPS_OF_SENDING);
        file_say(f);
}

static int do_setsockopt(struct file *f, int level, int name, const void *val, socklen_t len)
{
        nstime *timeo = timeo_of(f, level, name);
        int r;

        if (timeo) {
                r = set_timeo(timeo, val, len);
                spare_used(f);
                if (r == 0 && !f->placeholder)
                        sys5(SYS_setsockopt, f->kfd, level, name, val, len);
                if (r == 0)
                        file_say(f);
                return r;
        }
        if (group_opt(f, level, name))
                return group_setsockopt(f, name, val, len);
        if (f->mode == MODE_NEW)
                r = set_new(f, level, name, val, len);
        else
                r = f->mode == MODE_TCP ? set_tcp(f, level, name, val, len)
                                        : set_both(f, level, name, val, len);
        if (r == 0 && level == SOL_SOCKET && name == SO_TIMESTAMPING)
                note_stamped(f, val);
        return r;
}

/* What the kernel would read of a value of ours; if that cannot be read, it says so itself. */
static bool value_readable(const void *val, socklen_t len)
{
        return (int)len < 0 ||
               user_read_range(val, MIN(len, (socklen_t)sizeof(struct group_source_req)));
}

int h_setsockopt(int fd, int level, int name, const void *val, socklen_t len)
{
        struct file *f =
                file_peek(fd) && value_readable(val, len) ? file_enter(fd, MODE_NEW) : NULL;

        if (!f)
                return relayed_of(fd) ? relayed_setsockopt(fd, level, name, val, len)
                                      : REAL(setsockopt)(fd, level, name, val, len);
        return file_answer(f, do_setsockopt(f, level, name, val, len));
}

/* ---- getsockopt ---- */

static int get_tcp(struct file *f, int level, int name, void *val, socklen_t *len)
{
        int r = identity(f, level, name, val, len);

        if (r == -ENOPROTOOPT)
                r = usock_getsockopt(f->us, level, name, val, len);
        if (r != -ENOPROTOOPT)
                return r;
        r = file_materialise(f);
        return r < 0 ? r : (int)sys5(SYS_getsockopt, f->kfd, level, name, val, len);
}

/* A pending error of either side. */
static int get_both_error(struct file *f, void *val, socklen_t *len)
{
        int err = 0, r;
        socklen_t n = sizeof(err);

        r = usock_getsockopt(f->us, SOL_SOCKET, SO_ERROR, &err, &n);
        if (r == 0 && err)
                return opt_give_int(val, len, err);
        return (int)sys5(SYS_getsockopt, f->kfd, SOL_SOCKET, SO_ERROR, val, len);
}

ssize_t file_take_error(const struct file *f)
{
        int err = 0;
        socklen_t len = sizeof(err);

        usock_getsockopt(f->us, SOL_SOCKET, SO_ERROR, &err, &len);
        if (err == 0 && f->mode == MODE_UDP)
                sys5(SYS_getsockopt, f->kfd, SOL_SOCKET, SO_ERROR, &err, &len);
        return -err;
}

/* What either side holds, and has dropped; the limits are the kernel's, as SO_SNDBUF and SO_RCVBUF
 * tell them. */
static int get_both_memory(struct file *f, void *val, socklen_t *len)
{
        static const uint8_t sums[] = {SK_MEMINFO_RMEM_ALLOC, SK_MEMINFO_WMEM_ALLOC,
                                       SK_MEMINFO_WMEM_QUEUED, SK_MEMINFO_DROPS};
        uint32_t ours[SK_MEMINFO_VARS], all[SK_MEMINFO_VARS];
        socklen_t n = sizeof(ours), nall = sizeof(all);
        int r = usock_getsockopt(f->us, SOL_SOCKET, SO_MEMINFO, ours, &n);

        if (r == 0)
                r = (int)sys5(SYS_getsockopt, f->kfd, SOL_SOCKET, SO_MEMINFO, all, &nall);
        if (r < 0)
                return r;
        for (size_t i = 0; i < ARRAY_LEN(sums); i++)
                all[sums[i]] += ours[sums[i]];
        return give(val, len, all, nall);
}

/* By our way to the peer; the kernel may have another one, or none. */
static int get_mtu(struct file *f, void *val, socklen_t *len)
{
        int r = usock_getsockopt(f->us, IPPROTO_IP, IP_MTU, val, len);

        return r != -ENOTCONN ? r : (int)sys5(SYS_getsockopt, f->kfd, IPPROTO_IP, IP_MTU, val, len);
}

static int do_getsockopt(struct file *f, int level, int name, void *val, socklen_t *len)
{
        nstime *timeo = timeo_of(f, level, name);
        int r = group_opt(f, level, name) ? group_getsockopt(f, name, val, len) : -ENOPROTOOPT;

        if (r != -ENOPROTOOPT)
                return r;

        if (timeo)
                return give_timeo(val, len, *timeo);
        if (f->mode == MODE_TCP)
                return get_tcp(f, level, name, val, len);
        if (level == SOL_SOCKET && name == SO_ERROR && f->us)
                return get_both_error(f, val, len);
        if (level == SOL_SOCKET && name == SO_MEMINFO && f->us)
                return get_both_memory(f, val, len);
        if (level == IPPROTO_IP && name == IP_MTU && f->us)
                return get_mtu(f, val, len);
        if (level == SOL_SOCKET && name == SO_PEEK_OFF && f->mode == MODE_UDP)
                return usock_getsockopt(f->us, level, name, val, len);
        return (int)sys5(SYS_getsockopt, f->kfd, level, name, val, len);
}

int h_getsockopt(int fd, int level, int name, void *val, socklen_t *len)
{
        struct file *f = file_peek(fd) && user_read(len) ? file_enter(fd, MODE_NEW) : NULL;

        if (!f)
                return relayed_of(fd) ? relayed_getsockopt(fd, level, name, val, len)
                                      : REAL(getsockopt)(fd, level, name, val, len);
        return file_answer(f, do_getsockopt(f, level, name, val, len));
}

/* ---- fcntl ---- */

/* The kernel's copy of the flag is the program's, but for listeners, whose kernel side
 * never blocks. */
static int set_flags(struct file *f, long flags)
{
        int r = async_flags(f, flags);

        if (r < 0)
                return r;
        if (f->us)
                usock_set_nonblock(f->us, flags & O_NONBLOCK);
        else
                f->nonblock = flags & O_NONBLOCK;
        async_changed(f, flags);
        return r;
}

static int get_flags(const struct file *f)
{
        int r = (int)sys2(SYS_fcntl, f->kfd, F_GETFL);

        if (r < 0 || f->mode <= MODE_NEW) /* the kernel's copy is the one that all processes have */
                return r;
        return file_nonblock(f) ? r | O_NONBLOCK : r & ~O_NONBLOCK;
}

static int do_fcntl(int fd, int cmd, void *arg)
{
        struct file *f;
        ssize_t r;

        if (cmd == F_DUPFD || cmd == F_DUPFD_CLOEXEC)
                return file_fcntl_dup(fd, cmd, (int)(long)arg);
        if (cmd != F_SETFL && cmd != F_GETFL && !async_fcntl(cmd))
                return REAL(fcntl)(fd, cmd, arg);
        f = file_enter(fd, async_fcntl(cmd) ? MODE_NEW : MODE_KERNEL);
        if (!f)
                return REAL(fcntl)(fd, cmd, arg);
        if (async_fcntl(cmd))
                r = async_do_fcntl(f, cmd, (long)arg);
        else
                r = cmd == F_SETFL ? set_flags(f, (long)arg) : get_flags(f);
        return file_answer(f, r);
}

int h_fcntl(int fd, int cmd, ...)
{
        va_list ap;
        void *arg;

        va_start(ap, cmd);
        arg = va_arg(ap, void *);
        va_end(ap);
        return do_fcntl(fd, cmd, arg);
}
HOOK_ALSO(fcntl, fcntl64);
HOOK_ALSO(fcntl, __fcntl);

/* ---- ioctl ---- */

static int set_nonblock(struct file *f, const int *on)
{
        long flags = sys2(SYS_fcntl, f->kfd, F_GETFL);

        return set_flags(f, *on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK);
}

static int do_ioctl(struct file *f, unsigned long req, void *arg)
{
        int r;

        if (req == FIONBIO)
                return user_read_range(arg, sizeof(int)) ? set_nonblock(f, arg) : -EFAULT;
        if (async_ioctl(req) && f->mode >= MODE_NEW)
                return async_do_ioctl(f, req, arg);
        if (f->mode < MODE_TCP || f->mode == MODE_LISTEN) {
                spare_used(f);
                return (int)sys3(SYS_ioctl, f->kfd, req, arg);
        }
        r = usock_ioctl(f->us, req, arg);
        if (r == -ENOTTY || (r == 0 && f->mode == MODE_UDP && req == FIONREAD && *(int *)arg == 0))
                return (int)sys3(SYS_ioctl, f->kfd, req, arg);
        return r;
}

int h_ioctl(int fd, unsigned long req, ...)
{
        struct file *f;
        va_list ap;
        void *arg;
        ssize_t r;

        va_start(ap, req);
        arg = va_arg(ap, void *);
        va_end(ap);
        if (unlikely(addrs_ioctl(req))) {
                r = addrs_do_ioctl(fd, req, arg);
        } else {
                f = file_enter(fd, MODE_KERNEL);
                if (!f)
                        return REAL(ioctl)(fd, req, arg);
                r = do_ioctl(f, req, arg);
                file_leave(f);
        }
        result_again(&r);
        return (int)r;
}
