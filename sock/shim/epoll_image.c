/*
 * Epoll sets that a process takes over exec. The kernel's half survives by itself; who is in ours
 * is written down before, in a memfd whose number is in UNET_ADOPT, and is put back by the new
 * image before its first instruction. Sets in messages are written down in the same way.
 */
#include "sock/shim/epoll.h"
#include "sock/shim/epoll_set.h"
#include "sock/shim/process.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/memfd.h"

#define MAGIC 0x554e4554u
#define SEALS (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

/* ---- members that are written down ---- */

struct head {
        uint32_t magic, pid; /* of who wrote it: an old variable may name any number */
};

static size_t place(unsigned i)
{
        return sizeof(struct head) + i * sizeof(struct epoll_kept);
}

/* Mapped, since RLIMIT_FSIZE is about what is written. */
int epoll_list_begin(struct epoll_list *l, uint32_t magic, unsigned most)
{
        const struct head h = {magic, (uint32_t)getpid()};

        *l = (struct epoll_list){.fd = unet_memfd_make(LIST_NAME, place(most)), .most = most};
        if (l->fd < 0)
                return l->fd;
        l->fd = shim_high_fd(l->fd);
        l->at = l->fd < 0 ? NULL : unet_memfd_map(l->fd, place(most), true, NULL);
        if (l->at) {
                memcpy(l->at, &h, sizeof(h));
                return 0;
        }
        if (l->fd >= 0)
                sys1(SYS_close, l->fd);
        return -ENOMEM;
}

void epoll_list_add(struct epoll_list *l, const struct epoll_item *it)
{
        const struct epoll_kept k = epoll_item_kept(it);

        assert(l->at != NULL);
        if (l->n < l->most)
                memcpy((char *)l->at + place(l->n++), &k, sizeof(k));
}

int epoll_list_end(struct epoll_list *l)
{
        int r;

        sys2(SYS_munmap, l->at, place(l->most));
        r = (int)sys3(SYS_fcntl, l->fd, F_ADD_SEALS, SEALS);
        if (r < 0)
                sys1(SYS_close, l->fd);
        return r < 0 ? r : l->fd;
}

bool epoll_list_is(int fd, uint32_t magic, uint32_t pid)
{
        long seals = sys2(SYS_fcntl, fd, F_GET_SEALS);
        struct head h;

        return seals >= 0 && (seals & SEALS) == SEALS &&
               sys4(SYS_pread64, fd, &h, sizeof(h), 0) == sizeof(h) && h.magic == magic &&
               h.pid == pid;
}

bool epoll_list_get(int fd, unsigned i, struct epoll_kept *k)
{
        return sys4(SYS_pread64, fd, k, sizeof(*k), place(i)) == sizeof(*k) && k->tag != 0;
}

/* ---- over exec ---- */

static int image = -1;
static struct epoll_list list;
static unsigned surviving;

static bool survives(const struct epoll_item *it)
{
        assert(it->set != NULL && it->set->live);
        return !closes_on_exec(epoll_kernel_fd(it->set)) && !closes_on_exec(it->fd);
}

static void count(struct epoll_item *it)
{
        surviving += survives(it);
}

static void note(struct epoll_item *it)
{
        if (survives(it))
                epoll_list_add(&list, it);
}

int epoll_image_make(void)
{
        surviving = 0;
        epoll_each_item(count);
        if (surviving == 0 || epoll_list_begin(&list, MAGIC, surviving) < 0)
                return -1;
        epoll_each_item(note);
        image = epoll_list_end(&list);
        if (image < 0)
                return -1;
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

        if (fd < 0 || !epoll_list_is(fd, MAGIC, (uint32_t)getpid()))
                return;
        for (unsigned i = 0; epoll_list_get(fd, i, &k); i++)
                if (!put_back(&k))
                        left_to_kernel(&k);
        sys1(SYS_close, fd);
}
