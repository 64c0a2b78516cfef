/*
 * Epoll sets that a process takes over exec. The kernel's half survives by itself; who is in ours
 * is written down before, in a memfd whose number is in UNET_ADOPT, and is put back by the new
 * image before its first instruction.
 */
#include "sock/shim/epoll.h"
#include "sock/shim/epoll_set.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAGIC 0x554e4554u
#define SEALS (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

struct head {
        uint32_t magic, pid; /* of who became the new image: an old variable may name any number */
};

static int image = -1;

static bool survives(int fd)
{
        long flags = sys2(SYS_fcntl, fd, F_GETFD);

        return flags >= 0 && !(flags & FD_CLOEXEC);
}

static bool begin(void)
{
        const struct head h = {MAGIC, (uint32_t)getpid()};

        if (image >= 0)
                return true;
        image = shim_high_fd(
                (int)sys2(SYS_memfd_create, "unet-epoll", MFD_ALLOW_SEALING | MFD_CLOEXEC));
        return image >= 0 && sys3(SYS_write, image, &h, sizeof(h)) == sizeof(h);
}

static void note(struct epoll_item *it)
{
        const struct epoll_kept k = epoll_item_kept(it);

        assert(it->set != NULL && it->set->live);
        if (survives(k.epfd) && survives(k.fd) && begin())
                sys3(SYS_write, image, &k, sizeof(k));
}

int epoll_image_make(void)
{
        epoll_each_item(note);
        if (image < 0)
                return -1;
        sys3(SYS_fcntl, image, F_ADD_SEALS, SEALS);
        sys3(SYS_fcntl, image, F_SETFD, 0);
        return image;
}

void epoll_image_drop(void)
{
        if (image >= 0)
                sys1(SYS_close, image);
        image = -1;
}

/* The library has nothing to do with it any more: the kernel tells what the program asked for. */
static void left_to_kernel(const struct epoll_kept *k)
{
        struct epoll_event ev = {.events = k->events, .data.u64 = k->data};

        if (!k->in_kernel || k->off ||
            sys4(SYS_epoll_ctl, k->epfd, EPOLL_CTL_DEL, k->fd, NULL) != 0)
                return;
        /* Anew, as EPOLLEXCLUSIVE cannot be changed. */
        sys4(SYS_epoll_ctl, k->epfd, EPOLL_CTL_ADD, k->fd, &ev);
}

static bool put_back(const struct epoll_kept *k)
{
        struct file *ef = epoll_file(k->epfd), *f = file_peek(k->fd);

        if (!f)
                f = epoll_file(k->fd);
        return ef && f && f != ef && epoll_item_comes(ef, f, k);
}

void epoll_image_take(const char *adopt)
{
        const char *number = strchr(adopt, ',');
        int fd = number ? atoi(number + 1) : -1;
        struct epoll_kept k;
        struct head h;

        if (fd < 0 || sys2(SYS_fcntl, fd, F_GET_SEALS) != SEALS ||
            sys4(SYS_pread64, fd, &h, sizeof(h), 0) != sizeof(h) || h.magic != MAGIC ||
            h.pid != (uint32_t)getpid())
                return;
        for (off_t at = sizeof(h); sys4(SYS_pread64, fd, &k, sizeof(k), at) == sizeof(k);
             at += sizeof(k))
                if (!put_back(&k))
                        left_to_kernel(&k);
        sys1(SYS_close, fd);
}
