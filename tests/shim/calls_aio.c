/*
 * shim_calls, POSIX AIO: libc's threads do it, which go past the library. From the first request
 * for a socket on, sockets that are new, and connections of listeners, can be asked for.
 */
#include "tests/shim/calls.h"

#include <aio.h>

static void show_done(const char *what, struct aiocb *cb)
{
        const struct aiocb *const list[] = {cb};
        int e;

        while (aio_error(cb) == EINPROGRESS)
                aio_suspend(list, 1, NULL);
        e = aio_error(cb);
        printf("  %s: %zd %s\n", what, aio_return(cb), e ? strerrorname_np(e) : "ok");
}

static void both_ways(const int v[2])
{
        char b[16] = "";
        struct aiocb in = {.aio_fildes = v[1], .aio_buf = b, .aio_nbytes = sizeof(b)},
                     out = {.aio_fildes = v[0], .aio_buf = (char *)"some", .aio_nbytes = 4},
                     *list[] = {&out};

        SHOW(aio_read(&in));
        SHOW(aio_write(&out));
        show_done("written", &out);
        show_done("read", &in);
        show_bytes("came", b, 4);
        memset(b, 0, sizeof(b));
        out.aio_lio_opcode = LIO_WRITE;
        SHOW(lio_listio(LIO_WAIT, list, 1, NULL));
        SHOW(aio_read(&in));
        show_done("read", &in);
        show_bytes("came", b, 4);
}

void scene_posix_aio(void)
{
        char b[16];
        int before[2], v[2], l, s = socket(AF_INET, SOCK_STREAM, 0);
        struct sockaddr_in at;
        struct aiocb in = {.aio_fildes = s, .aio_buf = b, .aio_nbytes = sizeof(b)};

        l = listener(&at);
        tcp_pair(before);
        SHOW(aio_read(&in));
        show_done("not connected", &in);
        SHOW(write(before[0], "before", 6));
        show_bytes("before", b, read(before[1], b, sizeof(b)));
        v[0] = s;
        SHOW(connect(s, (void *)&at, sizeof(at)));
        v[1] = accept(l, NULL, NULL);
        both_ways(v);
        close2(v);
        tcp_pair(v);
        both_ways(v);
        close2(v);
        close2(before);
        close(l);
}
