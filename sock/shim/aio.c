/*
 * POSIX AIO: libc's own threads read and write, where no call of theirs is seen. Over a socket of
 * ours they meet the kernel's, which is not connected. It is said (unet why), and what the program
 * makes, connects or accepts after that is the kernel's.
 */
#include "sock/shim/aio.h"
#include "sock/shim/process.h"
#include "sock/shim/shim.h"

static _Atomic bool used;

bool aio_is_used(void)
{
        return atomic_load_explicit(&used, memory_order_relaxed);
}

static void left_to_kernel(int fd, struct file *f, void *arg)
{
        if (f->mode == MODE_LISTEN && f->us)
                listener_left_to_kernel(
                        fd, f, "the program uses POSIX AIO, new connections are the kernel's");
}

static void asked_of(int fd)
{
        struct file *f = file_enter(fd, MODE_NEW);

        if (!f)
                return;
        if (f->mode != MODE_NEW) {
                f->why = "POSIX AIO was asked for, which does not reach it";
                log_decision(f);
        }
        if (!atomic_exchange(&used, true))
                file_each(left_to_kernel, NULL);
        file_leave(f);
}

int h_aio_read(struct aiocb *cb)
{
        if (shim_started())
                asked_of(cb->aio_fildes);
        return REAL(aio_read)(cb);
}

int h_aio_read64(struct aiocb64 *cb)
{
        if (shim_started())
                asked_of(cb->aio_fildes);
        return REAL(aio_read64)(cb);
}

int h_aio_write(struct aiocb *cb)
{
        if (shim_started())
                asked_of(cb->aio_fildes);
        return REAL(aio_write)(cb);
}

int h_aio_write64(struct aiocb64 *cb)
{
        if (shim_started())
                asked_of(cb->aio_fildes);
        return REAL(aio_write64)(cb);
}

int h_lio_listio(int mode, struct aiocb *const list[], int n, struct sigevent *event)
{
        for (int i = 0; shim_started() && i < n; i++)
                if (list[i] && list[i]->aio_lio_opcode != LIO_NOP)
                        asked_of(list[i]->aio_fildes);
        return REAL(lio_listio)(mode, list, n, event);
}

int h_lio_listio64(int mode, struct aiocb64 *const list[], int n, struct sigevent *event)
{
        for (int i = 0; shim_started() && i < n; i++)
                if (list[i] && list[i]->aio_lio_opcode != LIO_NOP)
                        asked_of(list[i]->aio_fildes);
        return REAL(lio_listio64)(mode, list, n, event);
}
