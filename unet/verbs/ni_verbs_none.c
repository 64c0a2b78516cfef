/* Where libibverbs was not there at configure time: there are links, and nobody drives them. */
#include <errno.h>

#include "unet/verbs/ni_verbs.h"

int vlink_map(int mem, int book, struct counters *cnt, void (*ring)(void *arg), void *arg,
              struct vlink **out)
{
        return -ENOSYS;
}

void vlink_unmap(struct vlink *v)
{
}

void vlink_forked(struct vlink *v)
{
}

struct vlink_shared *vlink_shared(struct vlink *v)
{
        return NULL;
}

const struct vlink_book *vlink_book(const struct vlink *v)
{
        return NULL;
}

int vlink_drive(struct vlink *v, uint32_t slot, struct vlink_qp *out)
{
        return -ENOSYS;
}

bool vlink_drives(const struct vlink *v)
{
        return false;
}

void vlink_give_up(struct vlink *v)
{
}

uint8_t *vlink_rx_frames(const struct vlink *v)
{
        return NULL;
}

bool vlink_away(const struct vlink *v)
{
        return true;
}

bool vlink_waits(const struct vlink *v)
{
        return false;
}

void vlink_arm(struct vlink *v)
{
}

int vlink_wake_fds(const struct vlink *v, int fd[VERBS_WAKE_FDS])
{
        return 0;
}

bool vlink_owns_fd(const struct vlink *v, int fd)
{
        return false;
}

void ni_verbs_init(struct ni_verbs *n, struct vlink *v, uint32_t chan, uint32_t mtu, bool csum,
                   struct unet_mem tx)
{
}
