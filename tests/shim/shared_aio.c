/*
 * shim_shared: calls of POSIX aio, which libc makes in threads of its own.
 */
#include <aio.h>

#include "tests/shim/shared.h"

static struct aiocb reads(int fd)
{
        return (struct aiocb){.aio_fildes = fd,
                              .aio_buf = call_data,
                              .aio_nbytes = 4,
                              .aio_lio_opcode = LIO_READ};
}

static struct aiocb writes(int fd)
{
        return (struct aiocb){.aio_fildes = fd,
                              .aio_buf = (char *)"call",
                              .aio_nbytes = 4,
                              .aio_lio_opcode = LIO_WRITE};
}

/* What came of it; r is what the call that asked for it returned. */
static long done(struct aiocb *cb, int r)
{
        const struct aiocb *const list[] = {cb};

        if (r < 0)
                return r;
        while (aio_error(cb) == EINPROGRESS)
                aio_suspend(list, 1, NULL);
        r = aio_error(cb);
        errno = r;
        return aio_return(cb);
}

long c_aio_read(int fd)
{
        struct aiocb cb = reads(fd);

        return done(&cb, aio_read(&cb));
}

long c_aio_write(int fd)
{
        struct aiocb cb = writes(fd);

        return done(&cb, aio_write(&cb));
}

long c_aio_fsync(int fd)
{
        struct aiocb cb = reads(fd);

        return done(&cb, aio_fsync(O_SYNC, &cb));
}

/* There is nothing to cancel any more. */
long c_aio_cancel(int fd)
{
        struct aiocb cb = writes(fd);

        done(&cb, aio_write(&cb));
        return aio_cancel(fd, &cb);
}

static long both(int mode, int fd)
{
        struct aiocb in = reads(fd), out = writes(fd), *list[] = {&out, &in};
        int r = lio_listio(mode, list, 2, NULL);
        long written = done(&out, 0), got = done(&in, 0);

        return r * 10000 + written * 100 + got;
}

long c_lio_wait(int fd)
{
        return both(LIO_WAIT, fd);
}

long c_lio_nowait(int fd)
{
        return both(LIO_NOWAIT, fd);
}
