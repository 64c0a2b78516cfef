/*
 * sendfile and splice where one end is a socket of ours: the kernel cannot do it, so the bytes pass
 * through a buffer here. The position of a file moves only by what was sent, and not at all when an
 * offset is given. To a UDP socket all that one call moves is one datagram, or is added to the one
 * that is begun (UDP_CORK).
 */
#include "sock/shim/cancel.h"
#include "sock/shim/shim.h"
#include "sock/shim/signals.h"
#include "sock/shim/transfer.h"
#include "sock/shim/wait.h"
#include "sock/usock_stamp.h"

#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHUNK            (256u << 10)
#define PIPE_ROOM        65536u /* of a pipe as it is made */
#define PIPE_PAGE        4096   /* and of one that poll() finds writable */
#define LONGEST_DATAGRAM 65507u
#define AT_MOST          0x7ffff000u /* Linux moves no more in one call */

/* One buffer is kept; whoever finds it taken makes another for the call. */
static void *_Atomic spare;

static void *chunk_get(void)
{
        void *p = atomic_exchange(&spare, NULL);

        if (p)
                return p;
        p = mmap(NULL, CHUNK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        return p == MAP_FAILED ? NULL : p;
}

static void chunk_put(void *p)
{
        p = atomic_exchange(&spare, p);
        if (p)
                munmap(p, CHUNK);
}

/* ---- sendfile ---- */

static ssize_t send_file_at(struct file *f, int in, off_t at, size_t n, void *buf)
{
        off_t end = usock_file_end(in);
        size_t done = 0;
        ssize_t r = 0;

        while (done < n) {
                ssize_t got = sys4(SYS_pread64, in, buf, MIN(n - done, CHUNK), at + (off_t)done);

                if (got <= 0) {
                        r = got;
                        break;
                }
                r = file_send(f, buf, (size_t)got,
                              (size_t)got < n - done && at + (off_t)done + got < end ? MSG_MORE
                                                                                     : 0);
                if (r > 0)
                        done += (size_t)r;
                if (r != got)
                        break;
        }
        return file_moved(f, done, r);
}

/* As Linux, where it is the error of what would be too long. */
static ssize_t send_file_datagram(struct file *f, int in, off_t at, size_t n, void *buf)
{
        ssize_t got = sys4(SYS_pread64, in, buf, MIN(n, CHUNK), at);

        return got <= 0 ? got : file_send_datagram(f, buf, (size_t)got, 0);
}

static ssize_t file_sendfile(struct file *f, int in, off_t *off, size_t n)
{
        off_t at = off ? *off : sys3(SYS_lseek, in, 0, SEEK_CUR);
        void *buf;
        ssize_t r;

        if (at < 0)
                return -EINVAL;
        buf = chunk_get();
        if (!buf)
                return -ENOMEM;
        if (f->mode == MODE_UDP)
                r = send_file_datagram(f, in, at, n, buf);
        else
                r = send_file_at(f, in, at, MIN(n, AT_MOST), buf);
        chunk_put(buf);
        if (unlikely(READ_ONCE(f->stamped)) && r > 0)
                usock_stamp_sent(f->us, 0);
        if (r > 0 && off)
                r = user_put64(off, (uint64_t)(at + r)) ? r : -EFAULT;
        else if (r > 0)
                sys3(SYS_lseek, in, r, SEEK_CUR);
        return r;
}

static bool write_again(ssize_t *r)
{
        if (*r == -EPIPE)
                raise_sigpipe();
        return result_again(r);
}

ssize_t h_sendfile(int out, int in, off_t *off, size_t n)
{
        ssize_t r;

        do {
                bool good = file_peek(out) && user_read_range(off, off ? sizeof(*off) : 0);
                struct file *f = good ? file_enter(out, MODE_TCP) : NULL;

                if (!f)
                        return REAL(sendfile)(out, in, off, n);
                r = f->mode == MODE_TCP || f->mode == MODE_UDP
                            ? file_sendfile(f, in, off, n)
                            : sys4(SYS_sendfile, f->kfd, in, off, n);
                file_leave(f);
        } while (write_again(&r));
        return r;
}
HOOK_ALSO(sendfile, sendfile64);

/* ---- splice ---- */

/* Until there is something in the pipe (1), or its end (0); or room. */
static int wait_for_pipe(int pipe, short events, unsigned flags)
{
        struct usock_item it = {.fd = pipe, .events = events};
        struct until u = until_ms(-1);
        int mode = (int)sys3(SYS_fcntl, pipe, F_GETFL, 0), r;

        if ((mode & O_ACCMODE) == (events == POLLIN ? O_WRONLY : O_RDONLY))
                return -EBADF;
        if (flags & SPLICE_F_NONBLOCK || mode & O_NONBLOCK)
                u = until_ms(0);
        r = wait_items(&it, 1, &u, NULL, NULL);
        if (r == -EINTR)
                return -ERR_RESTART;
        if (r == 0)
                return -EAGAIN;
        return r < 0 ? r : (it.revents & events) != 0;
}

static int wait_for_room(struct file *f)
{
        struct until u = until_timeo(f->sndtimeo);

        if (usock_poll(f->us) & POLLOUT)
                return 0;
        return file_nonblock(f) ? -EAGAIN : file_wait(f, POLLOUT, &u);
}

/* All of it, whatever comes: what was read from a pipe cannot be put back. Somebody else's bytes
 * may have come first. */
static ssize_t send_read(struct file *f, const char *p, size_t n, int flags)
{
        for (size_t done = 0; done < n;) {
                ssize_t r = file_send(f, p + done, n - done, flags | MSG_DONTWAIT);

                if (r == -EAGAIN)
                        usock_wait1(f->us, POLLOUT, 100 * NS_PER_MS);
                else if (r < 0)
                        return file_moved(f, done, r);
                else
                        done += (size_t)r;
        }
        return (ssize_t)n;
}

/* Everything that a signal or a time may end is waited for before anything is taken, and no more is
 * taken than there is room for. */
static ssize_t pipe_to_socket(struct file *f, int pipe, size_t n, unsigned flags, void *buf)
{
        int waiting = 0, more = flags & SPLICE_F_MORE ? MSG_MORE : 0;
        ssize_t r;

        sys3(SYS_ioctl, pipe, FIONREAD, &waiting);
        r = waiting ? 1 : wait_for_pipe(pipe, POLLIN, flags);
        if (r > 0)
                r = wait_for_room(f);
        if (r < 0)
                return r;
        n = MIN(n, f->mode == MODE_UDP ? LONGEST_DATAGRAM
                                       : MIN(CHUNK, MAX(usock_send_room(f->us), 1)));
        r = sys3(SYS_read, pipe, buf, n);
        if (r <= 0)
                return r;
        if (f->mode == MODE_UDP)
                return file_send_datagram(f, buf, (size_t)r, more);
        r = send_read(f, buf, (size_t)r, more);
        if (unlikely(READ_ONCE(f->stamped)) && r > 0)
                usock_stamp_sent(f->us, 0);
        return r;
}

/* What a write to the pipe takes without waiting, once there is room: all of one that is empty;
 * else there is a page, and of how many more nobody tells. */
static ssize_t room_of_pipe(int pipe, unsigned flags)
{
        int r = wait_for_pipe(pipe, POLLOUT, flags), waiting = 0;
        long size = sys2(SYS_fcntl, pipe, F_GETPIPE_SZ);

        if (r < 0)
                return r;
        if (size < 0 || sys3(SYS_ioctl, pipe, FIONREAD, &waiting) < 0)
                return -EINVAL;
        return waiting == 0 ? size : PIPE_PAGE;
}

/* A datagram that is longer is cut, as by any read: also by what is in the pipe already. */
static ssize_t datagram_to_pipe(struct file *f, int pipe, size_t n, unsigned flags, void *buf)
{
        ssize_t got = room_of_pipe(pipe, flags);

        if (got >= 0)
                got = file_recv_datagram(f, buf, MIN(MIN(n, PIPE_ROOM), (size_t)got), 0);
        return got <= 0 ? got : sys3(SYS_write, pipe, buf, (size_t)got);
}

/* Peeked first, taken when the pipe has it. */
static ssize_t socket_to_pipe(struct file *f, int pipe, size_t n, unsigned flags, void *buf)
{
        ssize_t got = room_of_pipe(pipe, flags);
        ssize_t put;

        if (got >= 0)
                got = file_recv(f, buf, MIN(MIN(n, CHUNK), (size_t)got), MSG_PEEK);
        if (got <= 0)
                return got;
        put = sys3(SYS_write, pipe, buf, (size_t)got);
        if (put > 0)
                file_recv(f, buf, (size_t)put, MSG_DONTWAIT);
        return put;
}

static ssize_t file_splice(struct file *f, int pipe, bool to_socket, size_t n, unsigned flags)
{
        void *buf;
        ssize_t r;

        if (n == 0)
                return 0;
        if (f->mode == MODE_LISTEN)
                return to_socket ? -EPIPE : -ENOTCONN;
        buf = chunk_get();
        if (!buf)
                return -ENOMEM;
        if (to_socket)
                r = pipe_to_socket(f, pipe, n, flags, buf);
        else
                r = f->mode == MODE_UDP ? datagram_to_pipe(f, pipe, n, flags, buf)
                                        : socket_to_pipe(f, pipe, n, flags, buf);
        chunk_put(buf);
        return r;
}

static bool is_pipe(int fd)
{
        struct stat st;

        return sys2(SYS_fstat, fd, &st) == 0 && S_ISFIFO(st.st_mode);
}

ssize_t h_splice(int in, off64_t *in_off, int out, off64_t *out_off, size_t n, unsigned flags)
{
        bool to_socket;
        struct file *f;
        ssize_t r;

        cancellation_point();
        do {
                f = file_enter(out, MODE_TCP);
                to_socket = f != NULL;
                if (!f)
                        f = file_enter(in, MODE_TCP);
                if (!f)
                        return REAL(splice)(in, in_off, out, out_off, n, flags);
                if (!is_pipe(to_socket ? in : out) || (to_socket ? out_off : in_off))
                        r = -EINVAL;
                else if (in_off || out_off)
                        r = -ESPIPE;
                else
                        r = file_splice(f, to_socket ? in : out, to_socket, n, flags);
                file_leave(f);
                /* Of a pipe the kernel has told. */
        } while (to_socket ? write_again(&r) : result_again(&r));
        return r;
}
