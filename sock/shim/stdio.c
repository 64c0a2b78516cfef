/*
 * Streams. libc's stdio reads, writes and closes by calls inside libc, which no hook sees; but it
 * makes them through a table of functions, _IO_file_jumps, and its like for wide ones,
 * _IO_wfile_jumps. Once there may be a socket of ours, its three entries lead here. So a stream may
 * be made before its number is a socket (stdin of a program that inetd runs, stdout after dup2()),
 * by whatever call, and by C++.
 *
 * The other calls return or end numbers.
 */
#include "sock/shim/process.h"
#include "sock/shim/shim.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- reading and writing ---- */

static struct {
        ssize_t (*read)(FILE *fp, void *p, ssize_t n);
        ssize_t (*write)(FILE *fp, const void *p, ssize_t n);
        int (*close)(FILE *fp);
} libc_stream;

static ssize_t stream_read(FILE *fp, void *p, ssize_t n)
{
        return file_peek(fp->_fileno) ? h_read(fp->_fileno, p, (size_t)n)
                                      : libc_stream.read(fp, p, n);
}

/* All of it; where that fails the stream has an error, and the answer is how far it came. */
static ssize_t stream_write(FILE *fp, const void *p, ssize_t n)
{
        ssize_t done = 0;

        if (!file_peek(fp->_fileno))
                return libc_stream.write(fp, p, n);
        while (done < n) {
                ssize_t r = h_write(fp->_fileno, (const char *)p + done, (size_t)(n - done));

                if (r < 0) {
                        fp->_flags |= _IO_ERR_SEEN;
                        break;
                }
                done += r;
        }
        return done;
}

static int stream_close(FILE *fp)
{
        return file_peek(fp->_fileno) ? h_close(fp->_fileno) : libc_stream.close(fp);
}

/* Entries of libc's table, struct _IO_jump_t, of 168 bytes since glibc 2.2.5. */
#define JUMPS 21

/* The entry that is `from` becomes `to`. The table is read-only but for this. */
static void redirect(void **table, void *from, void *to)
{
        uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), low, len;

        for (int i = 0; i < JUMPS; i++) {
                if (table[i] != from)
                        continue;
                low = (uintptr_t)&table[i] & ~(page - 1);
                len = (uintptr_t)&table[i] + sizeof(*table) - low;
                if (sys3(SYS_mprotect, low, len, PROT_READ | PROT_WRITE) < 0)
                        return;
                __atomic_store_n(&table[i], to, __ATOMIC_RELEASE);
                sys3(SYS_mprotect, low, len, PROT_READ);
        }
}

void streams_start(void)
{
        void *read = dlsym(RTLD_NEXT, "_IO_file_read"), *write = dlsym(RTLD_NEXT, "_IO_file_write"),
             *close = dlsym(RTLD_NEXT, "_IO_file_close");
        void **tables[] = {dlsym(RTLD_NEXT, "_IO_file_jumps"), dlsym(RTLD_NEXT, "_IO_wfile_jumps")};

        if (!read || !write || !close || libc_stream.read)
                return;
        memcpy(&libc_stream.read, &read, sizeof(read));
        memcpy(&libc_stream.write, &write, sizeof(write));
        memcpy(&libc_stream.close, &close, sizeof(close));
        for (size_t i = 0; i < ARRAY_LEN(tables); i++) {
                if (!tables[i])
                        continue;
                redirect(tables[i], read, (void *)stream_read);
                redirect(tables[i], write, (void *)stream_write);
                redirect(tables[i], close, (void *)stream_close);
        }
}

/* The standard streams of an image that was told that it has sockets of ours, before anybody
 * calls us. */
__attribute__((constructor)) static void streams_inherited(void)
{
        if (getenv("UNET_ADOPT"))
                streams_start();
}

/* ---- calls that return or end numbers ---- */

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
HOOK_ALSO(fopen, fopen64);

FILE *h_tmpfile(void)
{
        return stream_returned(REAL(tmpfile)());
}
HOOK_ALSO(tmpfile, tmpfile64);

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

/* What is buffered goes out, then the number is closed inside libc, whatever becomes of
 * the stream. */
static void stream_ends(FILE *fp)
{
        int fd = shim.size && fp && !usock_tls.inside ? fileno(fp) : -1;

        if (fd < 0 || !file_peek(fd))
                return;
        fflush(fp);
        number_ends(fd);
}

static FILE *stream_replaced(FILE *fp)
{
        fp = stream_returned(fp);
        if (fp && fileno(fp) == STDERR_FILENO)
                log_to();
        return fp;
}

FILE *h_freopen(const char *path, const char *mode, FILE *fp)
{
        stream_ends(fp);
        return stream_replaced(REAL(freopen)(path, mode, fp));
}
HOOK_ALSO(freopen, freopen64);

/* ---- dprintf ---- */

static bool is_socket_of_ours(int fd)
{
        struct file *f = file_peek(fd);

        return f && f->mode >= MODE_NEW && !usock_tls.inside;
}

/* libc's writes to a copy of the number that is made inside it. */
void h_perror(const char *s)
{
        int err = errno;

        if (!is_socket_of_ours(fileno(stderr)))
                REAL(perror)(s);
        else
                fprintf(stderr, "%s%s%s\n", s ? s : "", s && *s ? ": " : "", strerror(err));
}

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
        return is_socket_of_ours(fd) ? print_to(fd, format, ap)
                                     : REAL(__vdprintf_chk)(fd, flag, format, ap);
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
