/*
 * Files without copies: the server reads a file straight into the memory that is sent, the client
 * checks and stores what came where it lies. The kernel copies from its page cache, and to it; the
 * programs and the stack copy nothing. A server of many keeps the file in memory of its own, and
 * sends it from there to each.
 *
 *      file_sock -s [-p PORT] [-n TIMES] FILE  serves it, to TIMES clients
 *      file_sock [-p PORT] FILE                stores what comes, and says how much that was and a
 *                                              sum over it
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

#include <unet/flow.h>

#define AT_ONCE (256u << 10)
#define PIECES  16

static void die(const char *what)
{
        perror(what);
        exit(1);
}

/* ---- the server ---- */

static void sends(int s, int fd)
{
        struct iovec v[PIECES];
        ssize_t got;
        off_t at = 0;
        int n;

        do {
                n = unet_send_reserve(s, AT_ONCE, v, PIECES, 0);
                if (n < 0)
                        die("reserve");
                got = preadv(fd, v, n, at);
                if (got < 0)
                        die("read");
                if (unet_send_commit(s, (size_t)got, 0) != got)
                        die("commit");
                at += got;
        } while (got != 0);
}

/* The whole file, in memory that can be sent any number of times. */
static void *cache(int fd, size_t bytes)
{
        void *p;

        if (unet_memory_new(bytes, &p) != 0)
                die("memory");
        for (size_t at = 0; at < bytes;) {
                ssize_t got = pread(fd, (char *)p + at, bytes - at, (off_t)at);

                if (got <= 0)
                        die("read");
                at += (size_t)got;
        }
        return p;
}

static void sends_cached(int s, const void *p, size_t bytes)
{
        /* No cookie is asked for: nobody writes the memory. */
        if (bytes != 0 && unet_memory_send(s, p, bytes, 0, 0) != (ssize_t)bytes)
                die("send");
}

static int serve(int port, int fd, int times)
{
        off_t bytes = lseek(fd, 0, SEEK_END);
        void *cached = times > 1 && bytes > 0 ? cache(fd, (size_t)bytes) : NULL;
        struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
        int listener = unet_socket(AF_INET, SOCK_STREAM, 0), s;

        if (listener < 0)
                die("socket");
        if (unet_bind(listener, (struct sockaddr *)&at, sizeof at) != 0 ||
            unet_listen(listener, 1) != 0)
                die("bind");
        while (times-- > 0) {
                s = unet_accept(listener, NULL, NULL);
                if (s < 0)
                        die("accept");
                if (cached != NULL)
                        sends_cached(s, cached, (size_t)bytes);
                else
                        sends(s, fd);
                unet_close(s);
        }
        unet_close(listener);
        return 0;
}

/* ---- the client ---- */

struct got {
        uint64_t bytes, sum;
};

static void stores(const struct unet_loan *v, int n, int fd, struct got *g)
{
        struct iovec out[PIECES];
        ssize_t all = 0;

        for (int i = 0; i < n; i++) {
                const uint8_t *p = v[i].ptr;

                for (uint32_t k = 0; k < v[i].len; k++)
                        g->sum = g->sum * 31 + p[k];
                out[i] = (struct iovec){(void *)(uintptr_t)p, v[i].len};
                all += v[i].len;
        }
        if (writev(fd, out, n) != all)
                die("write");
        g->bytes += (uint64_t)all;
}

static int fetch(int port, int fd)
{
        struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
        int s = unet_socket(AF_INET, SOCK_STREAM, 0), n;
        struct unet_loan v[PIECES];
        struct got g = {0, 0};

        to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        if (s < 0 || unet_connect(s, (struct sockaddr *)&to, sizeof to) != 0)
                die("connect");
        while ((n = unet_recv_lend(s, v, PIECES, 0)) > 0) {
                stores(v, n, fd, &g);
                if (unet_recv_return(s, v, n) != 0)
                        die("return");
        }
        if (n < 0)
                die("lend");
        printf("%llu bytes, sum %llu\n", (unsigned long long)g.bytes, (unsigned long long)g.sum);
        return unet_close(s);
}

int main(int argc, char **argv)
{
        bool server = false;
        int port = 7012, times = 1, c, fd;

        while ((c = getopt(argc, argv, "sp:n:")) != -1) {
                if (c == 's')
                        server = true;
                else if (c == 'p')
                        port = atoi(optarg);
                else if (c == 'n')
                        times = atoi(optarg);
                else
                        return 2;
        }
        if (optind + 1 != argc)
                return 2;
        fd = server ? open(argv[optind], O_RDONLY | O_CLOEXEC)
                    : open(argv[optind], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
        if (fd < 0)
                die(argv[optind]);
        return server ? serve(port, fd, times) : fetch(port, fd);
}
