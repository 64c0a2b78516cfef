/* Two threads that share a word, one after the other, as messages between them say: no race.
 * Compiled with ThreadSanitizer, and the library not (CMakeLists.txt). */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include <unet/sock.h>

static struct sockaddr_in at;
static int word;

static void need(bool is, const char *what)
{
        if (is)
                return;
        perror(what);
        exit(1);
}

static void *client(void *arg)
{
        int s = unet_socket(AF_INET, SOCK_STREAM, 0);
        char c;

        need(unet_connect(s, (struct sockaddr *)&at, sizeof at) == 0, "connect");
        word = 42;
        need(unet_send(s, "x", 1, 0) == 1 && unet_recv(s, &c, 1, 0) == 1, "client");
        printf("%d\n", word);
        need(unet_close(s) == 0, "close");
        return NULL;
}

int main(void)
{
        int l = unet_socket(AF_INET, SOCK_STREAM, 0), s;
        socklen_t len = sizeof at;
        pthread_t thread;
        char c;

        at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        need(unet_bind(l, (struct sockaddr *)&at, sizeof at) == 0 && unet_listen(l, 1) == 0 &&
                     unet_getsockname(l, (struct sockaddr *)&at, &len) == 0,
             "listen");
        need(pthread_create(&thread, NULL, client, NULL) == 0, "thread");
        s = unet_accept(l, NULL, NULL);
        need(s >= 0 && unet_recv(s, &c, 1, 0) == 1, "server");
        word++;
        need(unet_send(s, &c, 1, 0) == 1, "server");
        pthread_join(thread, NULL);
        return unet_close(s) != 0 || unet_close(l) != 0;
}
