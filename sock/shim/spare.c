/*
 * Kernel sockets that are used again. Under each TCP socket of the program's lies one of the
 * kernel's, since where it will lead is not known before connect(). Making it and taking it down is
 * a quarter of the client's time in a short connection over the fabric. The kernel's socket sees
 * nothing of that connection. So one with which nothing was done is kept, as a high number of ours,
 * and the next socket() is a copy of that number:
 *
 *   socket() --> real one --> connect() over the fabric --> close(): kept here
 *                                                         <--> next socket(), close(): lent, and
 *                                                                 back
 *
 * Whatever may leave a trace in the kernel's socket ends that (spare_used(), file->fresh): an
 * option, a name, connect() or listen() by the kernel, a signal's owner, an epoll set of the
 * kernel's, another process that may have it. It is the program's alone then, and goes when the
 * program closes it.
 */
#include "sock/shim/epoll.h"
#include "sock/shim/shim.h"
#include "sock/shim/spare.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/sandbox.h"
#include "unetd/client/wire.h"

#define SPARES 4

static struct {
        pthread_mutex_t lock; /* held over fork; within shim.lock */
        bool off;
        uid_t uid;    /* whose they are: netfilter may ask */
        uint32_t age; /* of sockets made now; an older one may be another process's, too */
        unsigned n;
        struct {
                int fd; /* ours, high, close-on-exec */
                bool lent;
        } v[SPARES];
} spares = {.lock = PTHREAD_MUTEX_INITIALIZER, .uid = (uid_t)-1, .age = 1};

static void end(unsigned i)
{
        assert(i < SPARES && spares.v[i].fd >= 0);
        sys1(SYS_close, spares.v[i].fd);
        spares.v[i].fd = -1;
        spares.v[i].lent = false;
        while (spares.n > 0 && spares.v[spares.n - 1].fd < 0)
                spares.n--;
}

/* What is lent stays with who has it, and is not taken back. */
static void end_all(void)
{
        while (spares.n > 0)
                end(spares.n - 1);
        spares.age++;
}

/* A place for one more, or SPARES. */
static unsigned place(void)
{
        unsigned i = 0;

        while (i < spares.n && spares.v[i].fd >= 0)
                i++;
        return i;
}

/* As from socket(): blocking or not, as it is asked for. */
static int lend(unsigned i, int type, uint8_t *spare)
{
        int fd = (int)sys3(SYS_fcntl, spares.v[i].fd,
                           type & SOCK_CLOEXEC ? F_DUPFD_CLOEXEC : F_DUPFD, 0);

        assert(i < SPARES && !spares.v[i].lent);
        if (fd < 0)
                return fd;
        if (type & SOCK_NONBLOCK)
                sys3(SYS_fcntl, fd, F_SETFL, O_RDWR | O_NONBLOCK);
        spares.v[i].lent = true;
        *spare = (uint8_t)(i + 1);
        return fd;
}

/* Another user's are not ours to give. */
static void look_whose(void)
{
        uid_t uid = geteuid();

        if (uid == spares.uid)
                return;
        end_all();
        spares.uid = uid;
}

int spare_take(int type, uint8_t *spare, uint32_t *age)
{
        int fd = -1;

        *spare = 0;
        *age = READ_ONCE(spares.age);
        if (shim.size == 0 || spares.off || sandbox_forbidden != 0)
                return -1;
        usock_enter();
        pthread_mutex_lock(&spares.lock);
        look_whose();
        *age = spares.age;
        for (unsigned i = 0; i < spares.n && fd < 0; i++)
                if (spares.v[i].fd >= 0 && !spares.v[i].lent)
                        fd = lend(i, type, spare);
        pthread_mutex_unlock(&spares.lock);
        usock_leave();
        return fd;
}

void spare_made(struct file *f, uint8_t spare, uint32_t age)
{
        assert(spare <= SPARES);
        f->spare = spare;
        f->fresh = age;
}

void spare_lost(uint8_t spare, uint32_t age)
{
        assert(spare <= SPARES);
        if (spare == 0)
                return;
        pthread_mutex_lock(&spares.lock);
        if (age == spares.age) /* or else its place may be another's by now */
                end(spare - 1u);
        pthread_mutex_unlock(&spares.lock);
}

/* Its flags are those of a new one, or can be. */
static bool is_as_new(int fd)
{
        long flags = sys2(SYS_fcntl, fd, F_GETFL);

        return flags == O_RDWR ||
               (flags == (O_RDWR | O_NONBLOCK) && sys3(SYS_fcntl, fd, F_SETFL, O_RDWR) == 0);
}

static void keep(int fd)
{
        unsigned i = place();

        assert(i <= SPARES);
        if (i == SPARES || spares.off || geteuid() != spares.uid)
                return;
        fd = fd_high_dup(fd);
        if (fd < 0)
                return;
        spares.v[i].fd = fd;
        spares.v[i].lent = false;
        spares.n = MAX(spares.n, i + 1);
}

static void forsake(struct file *f)
{
        assert(f->spare <= SPARES);
        if (f->fresh == spares.age && f->spare != 0)
                end(f->spare - 1u);
        f->fresh = f->spare = 0;
}

void spare_back(struct file *f, int fd)
{
        if (f->fresh == 0 || sandbox_forbidden != 0)
                return;
        pthread_mutex_lock(&spares.lock);
        if (f->fresh == spares.age && is_as_new(fd)) {
                assert(f->spare == 0 || spares.v[f->spare - 1].lent);
                if (f->spare != 0)
                        spares.v[f->spare - 1].lent = false;
                else
                        keep(fd);
                f->fresh = f->spare = 0;
        }
        forsake(f);
        pthread_mutex_unlock(&spares.lock);
}

void spare_end(struct file *f)
{
        pthread_mutex_lock(&spares.lock);
        forsake(f);
        pthread_mutex_unlock(&spares.lock);
}

void spares_over(bool off)
{
        usock_enter();
        pthread_mutex_lock(&spares.lock);
        end_all();
        spares.off |= off;
        pthread_mutex_unlock(&spares.lock);
        usock_leave();
}

bool spares_yield(int err)
{
        bool any;

        if (err != -EMFILE)
                return false;
        usock_enter();
        pthread_mutex_lock(&spares.lock);
        any = spares.n > 0;
        end_all();
        pthread_mutex_unlock(&spares.lock);
        any |= epoll_yield();
        usock_leave();
        return any;
}

/* What the command leaves running may have those that are open now. */
int h_system(const char *command)
{
        spares_over(false);
        return REAL(system)(command);
}

void spares_fork_lock(void)
{
        pthread_mutex_lock(&spares.lock);
        end_all();
}

void spares_fork_unlock(void)
{
        pthread_mutex_unlock(&spares.lock);
}

bool spares_own(int fd)
{
        for (unsigned i = 0; i < READ_ONCE(spares.n); i++)
                if (spares.v[i].fd == fd)
                        return true;
        return false;
}
