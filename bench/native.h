/* What the programs of the native API share: sockets of <unet/sock.h>, and
 * bench/plain.h's clock. */
#ifndef BENCH_NATIVE_H
#define BENCH_NATIVE_H

#include <unet/sock.h>

#include "bench/plain.h"

static inline int native_listen_on(const char *address, int port)
{
        struct sockaddr_in sa = end_of(address, port);
        int s = unet_socket(AF_INET, SOCK_STREAM, 0);

        if (s < 0 || unet_bind(s, (struct sockaddr *)&sa, sizeof sa) != 0 ||
            unet_listen(s, 128) != 0)
                die("listen");
        return s;
}

static inline int native_listen(int port)
{
        return native_listen_on(LOOPBACK, port);
}

static inline int native_accept(int listener)
{
        int s = unet_accept(listener, NULL, NULL);

        if (s < 0)
                die("accept");
        return s;
}

static inline int native_connect_to(const char *address, int port)
{
        struct sockaddr_in sa = end_of(address, port);
        int s = unet_socket(AF_INET, SOCK_STREAM, 0);

        if (s < 0 || unet_connect(s, (struct sockaddr *)&sa, sizeof sa) != 0)
                die("connect");
        return s;
}

static inline int native_connect(int port)
{
        return native_connect_to(LOOPBACK, port);
}

static inline void native_no_delay(int s)
{
        int one = 1;

        if (unet_setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) != 0)
                die("TCP_NODELAY");
}

/* Exactly n bytes; false at the end of the stream. */
static inline bool native_recv_all(int s, void *buf, size_t n)
{
        for (size_t got = 0; got < n;) {
                ssize_t r = unet_recv(s, (char *)buf + got, n - got, 0);

                if (r < 0)
                        die("recv");
                if (r == 0)
                        return false;
                got += (size_t)r;
        }
        return true;
}

#endif
