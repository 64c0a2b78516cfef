/*
 * Datagrams one way, as fast as they are taken: by write(), by sendmmsg(), or by one call that the
 * stack cuts (UDP_SEGMENT).
 *
 *   udp_rate ADDRESS PORT                           counts what comes, 32 a call, and answers who
 *                                                   asks
 *   udp_rate ADDRESS PORT FROM BYTES SECONDS HOW BATCH
 *                                                   sends from that address; HOW is write, mmsg or
 *                                                   segment; prints JSON
 *
 * A datagram of one byte asks for the count since the last such question; it is asked again until
 * there is an answer.
 */
#include <netinet/udp.h>
#include <poll.h>

#include "plain.h"

#define BATCH_MAX 64
#define BYTES_MAX 65507
#define READ_MAX  32
#define PATIENCE  200 /* ms for an answer */

static char buf[READ_MAX][BYTES_MAX];

struct count {
        unsigned char number;
        unsigned long long msgs, bytes;
};

static void answer(int fd, struct mmsghdr *m, unsigned char number, struct count *c,
                   struct count *last)
{
        if (last->number != number) {
                *last = *c;
                last->number = number;
                *c = (struct count){0, 0, 0};
        }
        if (sendto(fd, last, sizeof *last, 0, m->msg_hdr.msg_name, m->msg_hdr.msg_namelen) < 0)
                die("sendto");
}

static void serve(const char *address, int port)
{
        struct sockaddr_in at = end_of(address, port), from[READ_MAX];
        int fd = socket(AF_INET, SOCK_DGRAM, 0), n;
        struct count c = {0, 0, 0}, last = {0, 0, 0};
        struct mmsghdr m[READ_MAX];
        struct iovec iov[READ_MAX];

        if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof at) != 0)
                die("bind");
        for (;;) {
                for (int i = 0; i < READ_MAX; i++) {
                        iov[i] = (struct iovec){buf[i], BYTES_MAX};
                        m[i] = (struct mmsghdr){.msg_hdr = {.msg_name = &from[i],
                                                            .msg_namelen = sizeof from[i],
                                                            .msg_iov = &iov[i],
                                                            .msg_iovlen = 1}};
                }
                n = recvmmsg(fd, m, READ_MAX, MSG_WAITFORONE, NULL);
                if (n < 0)
                        die("recvmmsg");
                for (int i = 0; i < n; i++) {
                        if (m[i].msg_len == 1) {
                                answer(fd, &m[i], (unsigned char)buf[i][0], &c, &last);
                                continue;
                        }
                        c.msgs++;
                        c.bytes += m[i].msg_len;
                }
        }
}

static struct count ask(int fd)
{
        unsigned char number = (unsigned char)(now_s() * 10) | 1;
        struct pollfd p = {fd, POLLIN, 0};
        struct count c = {0, 0, 0};

        do {
                if (write(fd, &number, 1) != 1)
                        die("write");
                if (poll(&p, 1, PATIENCE) == 1 && read(fd, &c, sizeof c) != (ssize_t)sizeof c)
                        die("read");
        } while (c.number != number);
        return c;
}

/* How many datagrams were sent. */
static int send_some(int fd, const char *how, int bytes, int batch)
{
        static struct iovec iov = {buf, 0};
        struct mmsghdr m[BATCH_MAX];

        iov.iov_len = (size_t)bytes;
        if (strcmp(how, "write") == 0)
                return write(fd, buf, (size_t)bytes) == bytes ? 1 : -1;
        if (strcmp(how, "segment") == 0)
                return write(fd, buf, (size_t)(bytes * batch)) == bytes * batch ? batch : -1;
        for (int i = 0; i < batch; i++)
                m[i] = (struct mmsghdr){.msg_hdr = {.msg_iov = &iov, .msg_iovlen = 1}};
        return sendmmsg(fd, m, (unsigned)batch, 0);
}

int main(int argc, char **argv)
{
        if (argc != 3 && argc != 8) {
                fprintf(stderr, "usage: udp_rate ADDRESS PORT [FROM BYTES SECONDS "
                                "write|mmsg|segment BATCH]\n");
                return 2;
        }
        int port = (int)number_arg(argv[2], 1, 65535);
        if (argc == 3)
                serve(argv[1], port);

        struct sockaddr_in to = end_of(argv[1], port), from;
        int bytes = (int)number_arg(argv[4], 2, BYTES_MAX),
            batch = (int)number_arg(argv[7], 1, BATCH_MAX);
        double seconds = (double)number_arg(argv[5], 1, 3600), start, took;
        const char *how = argv[6];
        int fd = socket(AF_INET, SOCK_DGRAM, 0);
        unsigned long long sent = 0;
        struct count c;

        from = end_of(argv[3], 0);
        if (strcmp(how, "segment") == 0 &&
            (bytes * batch > BYTES_MAX ||
             setsockopt(fd, SOL_UDP, UDP_SEGMENT, &bytes, sizeof bytes) != 0))
                die("UDP_SEGMENT");
        if (fd < 0 || bind(fd, (struct sockaddr *)&from, sizeof from) != 0 ||
            connect(fd, (struct sockaddr *)&to, sizeof to) != 0)
                die("connect");
        ask(fd);
        start = now_s();
        do {
                for (int i = 0; i < BATCH_MAX; i += batch) {
                        int n = send_some(fd, how, bytes, batch);
                        if (n < 0)
                                die(how);
                        sent += (unsigned long long)n;
                }
        } while (now_s() < start + seconds);
        c = ask(fd);
        took = now_s() - start;
        printf("{\"bytes\": %d, \"gbps\": %.4f, \"sent\": %llu, \"lost\": %lld}\n", bytes,
               (double)c.bytes * 8 / took / 1e9, sent, (long long)(sent - c.msgs));
        return 0;
}
