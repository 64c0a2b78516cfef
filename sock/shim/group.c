/*
 * Groups. On an interface of unetd's a membership is ours, and the kernel's socket knows nothing of
 * it; on any other it is the kernel's, and what comes there is read from the kernel's side
 * (sock/udp/usock_group.c says which is which).
 */
#include "sock/shim/decide.h"
#include "sock/shim/group.h"
#include "sock/shim/shim.h"
#include "sock/usock_dgram.h"
#include "sock/usock_option.h"

#include <netinet/in.h>

/* Our side, before the decision if need be: memberships are usually made before bind. */
static int engage(struct file *f)
{
        int r = 0;

        pthread_mutex_lock(&shim.lock);
        if (!f->us)
                r = f->mode == MODE_NEW ? sock_engage(f) : -ENODEV;
        pthread_mutex_unlock(&shim.lock);
        return r;
}

static int set_ours(struct file *f, int name, const void *val, socklen_t len)
{
        int r = engage(f);

        return r < 0 ? r : usock_setsockopt(f->us, IPPROTO_IP, name, val, len);
}

/* Where groups are sent: both sides know, so that only one of them sends. */
static int set_out(struct file *f, enum usock_group_side side, const void *val, socklen_t len)
{
        int r = 0;

        if (side != USOCK_GROUP_OURS)
                r = (int)sys5(SYS_setsockopt, f->kfd, IPPROTO_IP, IP_MULTICAST_IF, val, len);
        return r == 0 ? set_ours(f, IP_MULTICAST_IF, val, len) : r;
}

bool group_opt(const struct file *f, int level, int name)
{
        return f->kind == USOCK_UDP && usock_is_group_opt(level, name) && usock_has_ifaces();
}

int group_setsockopt(struct file *f, int name, const void *val, socklen_t len)
{
        enum usock_group_side side = usock_group_side(name, val, len);
        int r;

        if (name == IP_MULTICAST_IF)
                return set_out(f, side, val, len);
        if (side == USOCK_GROUP_OURS)
                return set_ours(f, name, val, len);
        r = (int)sys5(SYS_setsockopt, f->kfd, IPPROTO_IP, name, val, len);
        if (side == USOCK_GROUP_KERNEL || (r != -ENODEV && r != -EADDRNOTAVAIL))
                return r;
        return set_ours(f, name, val, len);
}

/* -ENOPROTOOPT: it is not ours to say. Of a filter, the value says whose group it is about. */
int group_getsockopt(struct file *f, int name, void *val, socklen_t *len)
{
        bool filter = name == IP_MSFILTER || name == MCAST_MSFILTER;
        int r = f->us ? usock_getsockopt(f->us, IPPROTO_IP, name, val, len) : -ENOPROTOOPT;
        bool none = filter && (r == -EADDRNOTAVAIL || r == -ENODEV);

        return none && usock_group_side(name, val, *len) != USOCK_GROUP_OURS ? -ENOPROTOOPT : r;
}
