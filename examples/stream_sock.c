/*
 * A stream over the native API, and what the kernel does not tell: what limited the sender, and for
 * how long.
 *
 *     stream_sock -s [-p PORT]                       receives one stream and says how fast it came
 *     stream_sock [-p PORT] [-l BYTES] [-t SECONDS]  sends writes of BYTES, then says what it knows
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <unet/sock.h>

static void die(const char *what)
{
        perror(what);
        exit(1);
}

static double now(void)
{
        struct timespec ts;

        clock_gettime(CLOCK_MONOTONIC, &ts);
        return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static int receive(int port)
{
        struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
        int listener = unet_socket(AF_INET, SOCK_STREAM, 0), s;
        static char buf[1 << 20];
        double begin, bytes = 0;
        ssize_t n;

        if (listener < 0)
                die("socket");
        if (unet_bind(listener, (struct sockaddr *)&at, sizeof at) != 0 ||
            unet_listen(listener, 1) != 0)
                die("bind");
        s = unet_accept(listener, NULL, NULL);
        if (s < 0)
                die("accept");
        begin = now();
        while ((n = unet_recv(s, buf, sizeof buf, 0)) > 0)
                bytes += (double)n;
        if (n < 0)
                die("recv");
        printf("%.0f bytes, %.2f Gb/s\n", bytes, bytes * 8 / (now() - begin) / 1e9);
        unet_close(s);
        unet_close(listener);
        return 0;
}

static void print_feedback(int s)
{
        struct unet_feedback f;

        if (unet_feedback(s, &f) != 0)
                die("feedback");
        printf("%s, %s; cwnd %u, peer's window %u, mss %u\n", f.state, f.congestion, f.cwnd,
               f.snd_wnd, f.mss);
        printf("round trip %.1f us (least %.1f), %.2f Gb/s delivered\n", (double)f.srtt / 1e3,
               (double)f.min_rtt / 1e3, (double)f.delivery_rate * 8 / 1e9);
        printf("%llu bytes in %llu segments, %llu sent again\n", (unsigned long long)f.bytes_sent,
               (unsigned long long)f.segs_out, (unsigned long long)f.segs_retrans);
        for (int i = 0; i < UNET_LIMITS; i++)
                if (f.limited[i] > 0)
                        printf("limited by %-18s %8.1f ms\n", unet_limit_name((enum unet_limit)i),
                               (double)f.limited[i] / 1e6);
}

static int stream(int port, size_t len, double seconds)
{
        struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
        int s = unet_socket(AF_INET, SOCK_STREAM, 0);
        char *buf = calloc(1, len);
        double end;

        if (s < 0 || buf == NULL)
                die("socket");
        to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        if (unet_connect(s, (struct sockaddr *)&to, sizeof to) != 0)
                die("connect");
        for (end = now() + seconds; now() < end;)
                if (unet_send(s, buf, len, 0) < 0)
                        die("send");
        print_feedback(s);
        unet_close(s);
        free(buf);
        return 0;
}

int main(int argc, char **argv)
{
        bool server = false;
        double seconds = 2;
        size_t len = 131072;
        int port = 7008, c;

        while ((c = getopt(argc, argv, "sp:l:t:")) != -1) {
                if (c == 's')
                        server = true;
                else if (c == 'p')
                        port = atoi(optarg);
                else if (c == 'l')
                        len = (size_t)atol(optarg);
                else if (c == 't')
                        seconds = atof(optarg);
                else
                        return 2;
        }
        return server ? receive(port) : stream(port, len, seconds);
}
