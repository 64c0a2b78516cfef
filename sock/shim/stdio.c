/*
 * Streams. libc's stdio reads and writes by calls inside libc, which no hook sees. A stream on a socket that is ours,
 * or still may be, is therefore one whose reading and writing come back to us (fopencookie), with the number in its
 * place so that fileno() answers. The other calls return or end numbers.
 */
#include "sock/shim/shim.h"

#include <stdlib.h>
#include <unistd.h>

static FILE *stream_returned(FILE *fp)
{
        if (fp && shim.size)
                fd_returned(fileno(fp));
        return fp;
}

FILE *h_fopen(const char *path, const char *mode)
{
        return stream_returned(REAL(fopen)(path, mode));
}

FILE *h_fopen64(const char *path, const char *mode)
{
        return stream_returned(REAL(fopen64)(path, mode));
}

FILE *h_tmpfile(void)
{
        return stream_returned(REAL(tmpfile)());
}

FILE *h_tmpfile64(void)
{
        return stream_returned(REAL(tmpfile64)());
}

FILE *h_popen(const char *command, const char *mode)
{
        return stream_returned(REAL(popen)(command, mode));
}

DIR *h_opendir(const char *path)
{
        DIR *d = REAL(opendir)(path);

        if (d && shim.size)
                fd_returned(dirfd(d));
        return d;
}

/* A number of the kernel's is closed inside libc; one of ours comes back to us to be closed. */
static void stream_ends(FILE *fp)
{
        int fd = shim.size && fp && !usock_tls.inside ? fileno(fp) : -1;
        struct file *f = fd >= 0 ? file_peek(fd) : NULL;

        if (f && f->mode == MODE_KERNEL)
                file_void(fd);
}

FILE *h_freopen(const char *path, const char *mode, FILE *fp)
{
        stream_ends(fp);
        return stream_returned(REAL(freopen)(path, mode, fp));
}

FILE *h_freopen64(const char *path, const char *mode, FILE *fp)
{
        stream_ends(fp);
        return stream_returned(REAL(freopen64)(path, mode, fp));
}

int h_fclose(FILE *fp)
{
        stream_ends(fp);
        return REAL(fclose)(fp);
}

/* ---- a stream on a socket ---- */

static int cookie_fd(void *cookie)
{
        return (int)(intptr_t)cookie;
}

static ssize_t cookie_read(void *cookie, char *p, size_t n)
{
        return h_read(cookie_fd(cookie), p, n);
}

static ssize_t cookie_write(void *cookie, const char *p, size_t n)
{
        ssize_t r = h_write(cookie_fd(cookie), p, n);

        return r < 0 ? 0 : r;           /* fopencookie(3): 0 is the error */
}

static int cookie_close(void *cookie)
{
        return h_close(cookie_fd(cookie));
}

static bool is_socket_of_ours(int fd)
{
        struct file *f = file_peek(fd);

        return f && f->mode >= MODE_NEW && !usock_tls.inside;
}

FILE *h_fdopen(int fd, const char *mode)
{
        cookie_io_functions_t io = {cookie_read, cookie_write, NULL, cookie_close};
        FILE *fp;

        if (!is_socket_of_ours(fd))
                return REAL(fdopen)(fd, mode);
        fp = fopencookie((void *)(intptr_t)fd, mode, io);
        if (fp)
                fp->_fileno = fd;
        return fp;
}

/* ---- dprintf ---- */

static int print_to(int fd, const char *format, va_list ap)
{
        char stack[1024], *p = stack;
        va_list again;
        ssize_t done = 0;
        int n;

        va_copy(again, ap);
        n = vsnprintf(stack, sizeof(stack), format, ap);
        if (n >= (int)sizeof(stack)) {
                p = malloc((size_t)n + 1);
                if (p)
                        vsnprintf(p, (size_t)n + 1, format, again);
        }
        va_end(again);
        while (p && done < n) {
                ssize_t r = h_write(fd, p + done, (size_t)(n - done));

                if (r < 0)
                        break;
                done += r;
        }
        if (p != stack)
                free(p);
        return n < 0 || done == n ? n : -1;
}

int h_vdprintf(int fd, const char *format, va_list ap)
{
        return is_socket_of_ours(fd) ? print_to(fd, format, ap) : REAL(vdprintf)(fd, format, ap);
}

int h_dprintf(int fd, const char *format, ...)
{
        va_list ap;
        int r;

        va_start(ap, format);
        r = h_vdprintf(fd, format, ap);
        va_end(ap);
        return r;
}

int h___vdprintf_chk(int fd, int flag, const char *format, va_list ap)
{
        return is_socket_of_ours(fd) ? print_to(fd, format, ap) : REAL(__vdprintf_chk)(fd, flag, format, ap);
}

int h___dprintf_chk(int fd, int flag, const char *format, ...)
{
        va_list ap;
        int r;

        va_start(ap, format);
        r = h___vdprintf_chk(fd, flag, format, ap);
        va_end(ap);
        return r;
}
