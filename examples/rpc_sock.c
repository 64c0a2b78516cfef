/*
 * An RPC server that sheds load by feedback: a request that would wait too long is answered at
 * once, with "busy", and the client may ask another server. Nothing is measured and nothing is
 * guessed: what waits is what is unread, and the stack says when that is too much.
 *
 *   rpc_sock -s [-p PORT] -w MICROSECONDS -q REQUESTS  works so long for each, and lets so many
 *                                                      wait on a connection
 *   rpc_sock [-p PORT] -n REQUESTS -o OUTSTANDING      asks, with so many under way
 *
 * There are so many clients at most, and what they send takes so much memory at most, by a group.
 * From a client that does not read its answers no more requests are taken, for what is unsent is
 * told too.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <unet/flow.h>

#define CLIENTS 32
#define MEMORY  (1u << 20) /* that requests of all clients together take while they wait */
/* Bytes of answers that a client may leave unread, beyond what is on its way. */
#define UNSENT 65536u

struct message {
        uint64_t number;
        uint32_t busy; /* answer: it was not done */
        uint32_t args[5];
};

static void die(const char *what)
{
        perror(what);
        exit(1);
}

/* ---- the server ---- */

struct server {
        struct unet_pollset *set;
        int listener, work, queue;
        uint64_t done, shed;
        unsigned clients, gone;
};

static void work_for(int us)
{
        struct timespec ts = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000l};

        nanosleep(&ts, NULL);
}

static void take_client(struct server *s)
{
        struct unet_watch w = {.size = sizeof w, .unsent_below = UNSENT};
        int c = unet_accept(s->listener, NULL, NULL);

        w.unread_above = (uint32_t)(s->queue + 1) * sizeof(struct message);
        if (c < 0 || unet_watch_set(c, &w) != 0)
                die("accept");
        if (unet_pollset_add(s->set, c, POLLIN | UNET_EV_UNREAD | UNET_EV_UNSENT, (uint64_t)c) != 0)
                die("pollset");
        s->clients++;
}

/* One request. Of a client of whom too many wait the oldest are refused, until no more do. */
static void serve_client(struct server *s, int c, uint32_t events)
{
        struct message m;

        if (!(events & UNET_EV_UNSENT) || !(events & (POLLIN | POLLHUP)))
                return;
        if (unet_recv(c, &m, sizeof m, MSG_WAITALL) != sizeof m) {
                unet_close(c);
                s->gone++;
                return;
        }
        m.busy = (events & UNET_EV_UNREAD) != 0;
        if (m.busy)
                s->shed++;
        else
                work_for(s->work);
        s->done += !m.busy;
        if (unet_send(c, &m, sizeof m, 0) != sizeof m)
                die("send");
}

static void serve_all(struct server *s)
{
        struct unet_event ev[CLIENTS];
        int n;

        while (s->clients == 0 || s->gone < s->clients) {
                n = unet_pollset_wait(s->set, ev, CLIENTS, -1);
                for (int i = 0; i < n; i++)
                        if (ev[i].data == (uint64_t)s->listener)
                                take_client(s);
                        else
                                serve_client(s, (int)ev[i].data, ev[i].events);
        }
        printf("%llu done, %llu shed\n", (unsigned long long)s->done, (unsigned long long)s->shed);
}

static int serve(int port, int work, int queue)
{
        struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
        struct server s = {.set = unet_pollset_create(),
                           .listener = unet_socket(AF_INET, SOCK_STREAM, 0),
                           .work = work,
                           .queue = queue};
        struct unet_group g = {.size = sizeof g, .members = CLIENTS, .receive = MEMORY};

        if (s.set == NULL || s.listener < 0 ||
            unet_bind(s.listener, (struct sockaddr *)&at, sizeof at) != 0 ||
            unet_listen(s.listener, CLIENTS) != 0 || unet_group_set(s.listener, &g) != 0 ||
            unet_pollset_add(s.set, s.listener, POLLIN, (uint64_t)s.listener) != 0)
                die("listen");
        serve_all(&s);
        return unet_close(s.listener);
}

/* ---- the client ---- */

static int ask(int port, uint64_t requests, uint64_t outstanding)
{
        struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
        uint64_t asked = 0, answered = 0, busy = 0;
        int s = unet_socket(AF_INET, SOCK_STREAM, 0);
        struct message m = {.busy = 0};

        to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        if (s < 0 || unet_connect(s, (struct sockaddr *)&to, sizeof to) != 0)
                die("connect");
        while (answered < requests) {
                for (; asked < requests && asked - answered < outstanding; asked++) {
                        m = (struct message){.number = asked};
                        if (unet_send(s, &m, sizeof m, 0) != sizeof m)
                                die("send");
                }
                if (unet_recv(s, &m, sizeof m, MSG_WAITALL) != sizeof m || m.number != answered)
                        die("answer");
                answered++;
                busy += m.busy;
        }
        printf("%llu answers, %llu busy\n", (unsigned long long)answered, (unsigned long long)busy);
        return unet_close(s);
}

int main(int argc, char **argv)
{
        int port = 7011, work = 100, queue = 8, requests = 1000, outstanding = 1, c;
        bool server = false;

        while ((c = getopt(argc, argv, "sp:w:q:n:o:")) != -1) {
                if (c == 's')
                        server = true;
                else if (c == 'p')
                        port = atoi(optarg);
                else if (c == 'w')
                        work = atoi(optarg);
                else if (c == 'q')
                        queue = atoi(optarg);
                else if (c == 'n')
                        requests = atoi(optarg);
                else if (c == 'o')
                        outstanding = atoi(optarg);
                else
                        return 2;
        }
        if (work < 0 || queue <= 0 || requests <= 0 || outstanding <= 0)
                return 2;
        return server ? serve(port, work, queue)
                      : ask(port, (uint64_t)requests, (uint64_t)outstanding);
}
