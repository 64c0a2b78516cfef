/*
 * A video sender that drops instead of queueing: it makes a frame every so often, and when the
 * receiver, or the path, does not keep up it sends the newest one when the last has left. What a
 * viewer sees is late by a frame, and not by all that a buffer holds.
 *
 *      video_sock -s [-p PORT] -r FRAMES_A_SECOND      shows so many, and says how old they were
 *      video_sock [-p PORT] -f FRAMES_A_SECOND -n FRAMES
 *
 * What it takes: to be told that nothing is unsent any more (UNET_EV_UNSENT), and a receiver that
 * lets one frame come at a time (UNET_WINDOW_CREDIT), so that none waits in its buffer either.
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

#define FRAME 20000u /* bytes */

struct frame {
        uint64_t number;
        int64_t made; /* ns, CLOCK_MONOTONIC */
        char picture[FRAME - 16];
};

static void die(const char *what)
{
        perror(what);
        exit(1);
}

static int64_t now(void)
{
        struct timespec ts;

        clock_gettime(CLOCK_MONOTONIC, &ts);
        return ts.tv_sec * 1000000000ll + ts.tv_nsec;
}

/* ---- the sender ---- */

struct camera {
        int64_t began, every;  /* ns */
        uint64_t frames, next; /* the next one to send */
        uint64_t sent;
};

/* The newest frame there is by now, + 1. */
static uint64_t made(const struct camera *c)
{
        uint64_t n = (uint64_t)((now() - c->began) / c->every) + 1;

        return n < c->frames ? n : c->frames;
}

static void send_newest(int s, struct camera *c)
{
        static struct frame f;

        f.number = made(c) - 1;
        f.made = c->began + (int64_t)f.number * c->every;
        if (unet_send(s, &f, sizeof f, 0) != sizeof f)
                die("send");
        c->next = f.number + 1;
        c->sent++;
}

/* With a frame to send waits for the last one to leave; else for the next one. */
static void film(int s, struct camera *c)
{
        struct unet_watch w = {.size = sizeof w, .unsent_below = 1};
        struct unet_pollset *set = unet_pollset_create();
        struct unet_event ev;

        if (set == NULL || unet_watch_set(s, &w) != 0 ||
            unet_pollset_add(set, s, UNET_EV_UNSENT, 0) != 0)
                die("watch");
        while (c->next < c->frames) {
                int64_t wait = c->began + (int64_t)c->next * c->every - now();
                if (wait > 0)
                        usleep((useconds_t)(wait / 1000) + 1);
                if (unet_pollset_wait(set, &ev, 1, -1) != 1 || !(ev.events & UNET_EV_UNSENT))
                        die("receiver");
                if (made(c) > c->next)
                        send_newest(s, c);
        }
        unet_pollset_destroy(set);
}

static int stream(int port, int rate, uint64_t frames)
{
        struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
        struct camera c = {.every = 1000000000 / rate, .frames = frames};
        int s = unet_socket(AF_INET, SOCK_STREAM, 0);

        to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        if (s < 0 || unet_connect(s, (struct sockaddr *)&to, sizeof to) != 0)
                die("connect");
        c.began = now();
        film(s, &c);
        printf("%llu frames, %llu sent, %llu dropped\n", (unsigned long long)frames,
               (unsigned long long)c.sent, (unsigned long long)(frames - c.sent));
        return unet_close(s);
}

/* ---- the receiver ---- */

static void show(int s, int rate)
{
        static struct frame f;
        uint64_t shown = 0, last = 0;
        int64_t age, oldest = 0;

        for (;;) {
                if (unet_window_grant(s, FRAME) != 0)
                        die("grant");
                if (unet_recv(s, &f, sizeof f, MSG_WAITALL) != sizeof f)
                        break;
                if (shown++ != 0 && f.number <= last)
                        die("a frame of before");
                last = f.number;
                age = now() - f.made;
                oldest = age > oldest ? age : oldest;
                usleep(1000000u / (unsigned)rate);
        }
        printf("%llu frames shown, the last is number %llu, the oldest was %.1f ms old\n",
               (unsigned long long)shown, (unsigned long long)last, (double)oldest / 1e6);
}

static int serve(int port, int rate)
{
        struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
        struct unet_window w = {.size = sizeof w, .mode = UNET_WINDOW_CREDIT};
        int listener = unet_socket(AF_INET, SOCK_STREAM, 0), s;

        if (listener < 0 || unet_window_set(listener, &w) != 0)
                die("socket");
        if (unet_bind(listener, (struct sockaddr *)&at, sizeof at) != 0 ||
            unet_listen(listener, 1) != 0)
                die("bind");
        s = unet_accept(listener, NULL, NULL);
        if (s < 0)
                die("accept");
        show(s, rate);
        return unet_close(s) | unet_close(listener);
}

int main(int argc, char **argv)
{
        int port = 7010, fps = 50, rate = 50, frames = 100, c;
        bool server = false;

        while ((c = getopt(argc, argv, "sp:r:f:n:")) != -1) {
                if (c == 's')
                        server = true;
                else if (c == 'p')
                        port = atoi(optarg);
                else if (c == 'r')
                        rate = atoi(optarg);
                else if (c == 'f')
                        fps = atoi(optarg);
                else if (c == 'n')
                        frames = atoi(optarg);
                else
                        return 2;
        }
        if (rate <= 0 || fps <= 0 || frames <= 0)
                return 2;
        return server ? serve(port, rate) : stream(port, fps, (uint64_t)frames);
}
