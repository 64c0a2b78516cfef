/*
 * Files without copies: the server reads a file straight into the memory that is sent, the client
 * checks and stores what came where it lies. The kernel copies from its page cache, and to it; the
 * programs and the stack copy nothing.
 *
 *      file_sock -s [-p PORT] FILE             serves it once
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

static int serve(int port, int fd)
{
        struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
        int listener = unet_socket(AF_INET, SOCK_STREAM, 0), s;

        if (listener < 0)
                die("socket");
        if (unet_bind(listener, (struct sockaddr *)&at, sizeof at) != 0 ||
            unet_listen(listener, 1) != 0)
                die("bind");
        s = unet_accept(listener, NULL, NULL);
        if (s < 0)
                die("accept");
        sends(s, fd);
        unet_close(s);
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
        int port = 7012, c, fd;

        while ((c = getopt(argc, argv, "sp:")) != -1) {
                if (c == 's')
                        server = true;
                else if (c == 'p')
                        port = atoi(optarg);
                else
                        return 2;
        }
        if (optind + 1 != argc)
                return 2;
        fd = server ? open(argv[optind], O_RDONLY | O_CLOEXEC)
                    : open(argv[optind], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
        if (fd < 0)
                die(argv[optind]);
        return server ? serve(port, fd) : fetch(port, fd);
}
