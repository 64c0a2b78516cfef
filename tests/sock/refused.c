/*
 * What connect(), sendto() and send() say to addresses, while routes change: with plain sockets,
 * and with those of <unet/sock.h> (-DNATIVE). A word with a blank in it is a command, any other an
 * address, at which the port of our own listener and datagram socket is tried; ADDRESS=ERROR is
 * tried until connect() says so.
 *
 *      refused WORD...
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdbool.h>
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
#define accept      unet_accept
#define connect     unet_connect
#define sendto      unet_sendto
#define send        unet_send
#define getsockname unet_getsockname
#define setsockopt  unet_setsockopt
#define close       unet_close
#endif

static struct sockaddr_in here = {.sin_family = AF_INET};
static int listener;

static void open_port(void)
{
        socklen_t len = sizeof here;
        int d = socket(AF_INET, SOCK_DGRAM, 0);

        listener = socket(AF_INET, SOCK_STREAM, 0);
        if (bind(listener, (struct sockaddr *)&here, len) < 0 || listen(listener, 64) < 0 ||
            getsockname(listener, (struct sockaddr *)&here, &len) < 0 ||
            bind(d, (struct sockaddr *)&here, len) < 0) {
                perror("no port");
                exit(1);
        }
}

static const char *said(long r)
{
        return r < 0 ? strerrorname_np(errno) : "0";
}

/* So long a SYN is waited for: for one that will be lost, and for one that will not. */
#define LOST_US    (300 * 1000)
#define PATIENCE_S 60

static const char *connects(struct sockaddr_in *to, bool lost)
{
        const struct timeval wait = {lost ? 0 : PATIENCE_S, lost ? LOST_US : 0};
        int s = socket(AF_INET, SOCK_STREAM, 0);
        const char *what;

        setsockopt(s, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait);
        what = said(connect(s, (struct sockaddr *)to, sizeof *to));
        if (what[0] == '0')
                close(accept(listener, NULL, NULL));
        close(s);
        return what;
}

/* `word` is an address, or ADDRESS=ERROR. */
static void try_address(char *word)
{
        const char *addr = strsep(&word, "="), *until = word, *what;
        struct sockaddr_in to = here;
        int s[] = {socket(AF_INET, SOCK_DGRAM, 0), socket(AF_INET, SOCK_DGRAM, 0)};
        bool lost = until != NULL && strcmp(until, "EINPROGRESS") == 0;

        inet_pton(AF_INET, addr, &to.sin_addr);
        what = connects(&to, lost);
        while (until != NULL && strcmp(what, until) != 0) {
                usleep(10000);
                what = connects(&to, lost);
        }
        printf("%s %s", addr, what);
        printf(" %s", said(sendto(s[0], "x", 1, 0, (struct sockaddr *)&to, sizeof to)));
        if (connect(s[1], (struct sockaddr *)&to, sizeof to) < 0)
                printf(" %s\n", said(-1));
        else
                printf(" 0 %s\n", said(send(s[1], "x", 1, 0)));
        close(s[0]);
        close(s[1]);
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
