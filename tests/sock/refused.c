/*
 * What connect(), sendto() and send() say to addresses, while routes change: with plain sockets,
 * and with those of <unet/sock.h> (-DNATIVE). A word with a blank in it is a command, any other an
 * address, at which the port of our own listener and datagram socket is tried.
 *
 *      refused WORD...
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#ifdef NATIVE
#include <unet/sock.h>
#define socket      unet_socket
#define bind        unet_bind
#define listen      unet_listen
#define connect     unet_connect
#define sendto      unet_sendto
#define send        unet_send
#define getsockname unet_getsockname
#define setsockopt  unet_setsockopt
#define close       unet_close
#endif

static struct sockaddr_in here = {.sin_family = AF_INET};

static void open_port(void)
{
        socklen_t len = sizeof here;
        int l = socket(AF_INET, SOCK_STREAM, 0), d = socket(AF_INET, SOCK_DGRAM, 0);

        if (bind(l, (struct sockaddr *)&here, len) < 0 || listen(l, 64) < 0 ||
            getsockname(l, (struct sockaddr *)&here, &len) < 0 ||
            bind(d, (struct sockaddr *)&here, len) < 0) {
                perror("no port");
                exit(1);
        }
}

static const char *said(long r)
{
        return r < 0 ? strerrorname_np(errno) : "0";
}

/* SYNs that are lost are waited for so long. */
static int stream(void)
{
        const struct timeval patience = {.tv_usec = 300000};
        int s = socket(AF_INET, SOCK_STREAM, 0);

        setsockopt(s, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
        return s;
}

static void try_address(const char *addr)
{
        struct sockaddr_in to = here;
        int s[] = {stream(), socket(AF_INET, SOCK_DGRAM, 0), socket(AF_INET, SOCK_DGRAM, 0)};

        inet_pton(AF_INET, addr, &to.sin_addr);
        printf("%s %s", addr, said(connect(s[0], (struct sockaddr *)&to, sizeof to)));
        printf(" %s", said(sendto(s[1], "x", 1, 0, (struct sockaddr *)&to, sizeof to)));
        if (connect(s[2], (struct sockaddr *)&to, sizeof to) < 0)
                printf(" %s\n", said(-1));
        else
                printf(" 0 %s\n", said(send(s[2], "x", 1, 0)));
        for (int i = 0; i < 3; i++)
                close(s[i]);
}

int main(int argc, char **argv)
{
        setlinebuf(stdout);
        open_port();
        for (int i = 1; i < argc; i++)
                if (strchr(argv[i], ' ') == NULL)
                        try_address(argv[i]);
                else if (system(argv[i]) != 0)
                        return 1;
        return 0;
}
