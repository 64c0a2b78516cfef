/*
 * Transfers checked to the last byte, by a program as small as can be: machines are slow, and
 * python3 needs two seconds.
 *
 *   exact serve PORT N
 *           N connections; says of each "BYTES bytes" when all came that were announced, or "error
 *           ERRNO"
 *   exact call ADDR PORT UP DOWN STREAMS [part | die]
 *           so many connections at once, each with UP bytes there and DOWN bytes back at the same
 *           time; says "UP up, DOWN down, silent MS ms": the longest that one call waited
 *
 * part: when a third has gone it says so, and goes on when it is told to by a line; die: having
 * written everything it kills itself. A connection that is alone is served by the thread that
 * accepts, so that a program with one thread is tested, too.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define CHUNK       65536u
#define STREAMS_MAX 64u
#define UP_SEED     1u
#define DOWN_SEED   2u

struct head { /* what the caller says first */
        uint64_t up, down, streams, number;
};

enum how { WHOLE, PART, DIE };

struct stream {
        int fd;
        struct head head;
        enum how how;
        int64_t silent_ms;  /* the longest wait of who reads */
        int64_t blocked_ms; /* ... of who writes */
};

static int64_t now_ms(void)
{
        struct timespec ts;

        clock_gettime(CLOCK_MONOTONIC, &ts);
        return ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static _Noreturn void fail(const char *what)
{
        printf("error %d\n", errno);
        fflush(stdout);
        fprintf(stderr, "exact: %s: %s\n", what, strerror(errno));
        exit(1);
}

static _Noreturn void wrong(const char *what)
{
        printf("wrong: %s\n", what);
        fflush(stdout);
        exit(3);
}

/* The words of a stream are its seed and where they are, mixed (splitmix64). */
static void fill(uint64_t *words, uint64_t seed, uint64_t pos)
{
        for (uint64_t i = 0; i < CHUNK / 8; i++) {
                uint64_t z = (seed << 56) + (pos / 8 + i) * 0x9e3779b97f4a7c15u;

                z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
                words[i] = z ^ (z >> 31);
        }
}

static uint64_t seed_of(const struct head *h, unsigned way)
{
        return h->number * 4 + way;
}

static void longest(int64_t *ms, int64_t began)
{
        int64_t took = now_ms() - began;

        *ms = took > *ms ? took : *ms;
}

static int put_all(int fd, const void *data, size_t len, int64_t *ms)
{
        for (size_t done = 0; done < len;) {
                int64_t began = now_ms();
                ssize_t n = write(fd, (const char *)data + done, len - done);

                if (n < 0)
                        return -1;
                longest(ms, began);
                done += (size_t)n;
        }
        return 0;
}

/* How many came before the end of the stream; -1: an error. */
static ssize_t get_all(int fd, void *data, size_t len, int64_t *ms)
{
        size_t done = 0;

        while (done < len) {
                int64_t began = now_ms();
                ssize_t n = read(fd, (char *)data + done, len - done);

                if (n < 0)
                        return -1;
                if (n == 0)
                        break;
                longest(ms, began);
                done += (size_t)n;
        }
        return (ssize_t)done;
}

/* Reads so many bytes and compares them; how many came, or -1. */
static int64_t get_checked(int fd, uint64_t seed, uint64_t bytes, int64_t *ms)
{
        uint64_t got[CHUNK / 8], expected[CHUNK / 8], pos = 0;

        while (pos < bytes) {
                size_t want = bytes - pos < CHUNK ? (size_t)(bytes - pos) : CHUNK;
                ssize_t n = get_all(fd, got, want, ms);

                if (n < 0)
                        return -1;
                fill(expected, seed, pos);
                if (memcmp(got, expected, (size_t)n) != 0)
                        wrong("other bytes came than were sent");
                pos += (uint64_t)n;
                if ((size_t)n < want)
                        break;
        }
        return (int64_t)pos;
}

static int put_stream(struct stream *s, uint64_t seed, uint64_t bytes)
{
        uint64_t words[CHUNK / 8];
        char line[8];

        for (uint64_t pos = 0; pos < bytes; pos += CHUNK) {
                if (s->how == PART && pos >= bytes / 3) {
                        s->how = WHOLE;
                        printf("part\n");
                        fflush(stdout);
                        if (!fgets(line, sizeof line, stdin))
                                return -1;
                }
                fill(words, seed, pos);
                if (put_all(s->fd, words, bytes - pos < CHUNK ? (size_t)(bytes - pos) : CHUNK,
                            &s->blocked_ms) < 0)
                        return -1;
        }
        return 0;
}

static void begin(pthread_t *t, void *(*run)(void *), void *arg)
{
        if (pthread_create(t, NULL, run, arg) != 0)
                fail("pthread_create");
}

/* ---- who serves ---- */

static void *answer(void *arg)
{
        struct stream *s = arg;

        /* What fails here, the reader sees too. */
        put_stream(s, seed_of(&s->head, DOWN_SEED), s->head.down);
        return NULL;
}

/* The last word is how many bytes came. */
static void *serve_one(void *arg)
{
        struct stream *s = arg;
        bool both = s->head.down > 0;
        pthread_t t;
        int64_t n;

        if (both)
                begin(&t, answer, s);
        n = get_checked(s->fd, seed_of(&s->head, UP_SEED), s->head.up, &s->silent_ms);
        if (n >= 0 && (uint64_t)n < s->head.up)
                wrong("the stream ended early");
        if (n < 0)
                printf("error %d\n", errno);
        else
                printf("%lld bytes\n", (long long)n);
        fflush(stdout);
        if (both)
                pthread_join(t, NULL);
        if (n >= 0 &&
            put_all(s->fd, &(uint64_t){(uint64_t)n}, sizeof(uint64_t), &s->blocked_ms) == 0)
                get_all(s->fd, &(char){0}, 1, &s->silent_ms); /* its end */
        close(s->fd);
        free(s);
        return NULL;
}

static struct sockaddr_in at(const char *addr, const char *port)
{
        struct sockaddr_in sin = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};

        if (inet_pton(AF_INET, addr, &sin.sin_addr) != 1)
                exit(2);
        return sin;
}

static void serve(const char *port, unsigned n)
{
        struct sockaddr_in any = at("0.0.0.0", port);
        int l = socket(AF_INET, SOCK_STREAM, 0), one = 1;
        pthread_t t[STREAMS_MAX];
        unsigned threads = 0;

        setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        if (bind(l, (struct sockaddr *)&any, sizeof any) != 0 || listen(l, 64) != 0)
                fail("listen");
        printf("ready\n");
        fflush(stdout);
        while (n-- > 0) {
                struct stream *s = calloc(1, sizeof *s);

                if (!s || (s->fd = accept(l, NULL, NULL)) < 0)
                        fail("accept");
                if (get_all(s->fd, &s->head, sizeof s->head, &s->silent_ms) != sizeof s->head)
                        wrong("a connection without a beginning");
                if (s->head.streams == 1 || threads == STREAMS_MAX)
                        serve_one(s);
                else
                        begin(&t[threads++], serve_one, s);
        }
        while (threads > 0)
                pthread_join(t[--threads], NULL);
        close(l);
}

/* ---- who calls ---- */

static void *send_up(void *arg)
{
        struct stream *s = arg;
        bool dies = s->how == DIE;

        if (put_stream(s, seed_of(&s->head, UP_SEED), s->head.up) < 0)
                fail("write");
        if (dies)
                kill(getpid(), SIGKILL);
        shutdown(s->fd, SHUT_WR);
        return NULL;
}

static void *call_one(void *arg)
{
        struct stream *s = arg;
        ssize_t arrived_len;
        uint64_t arrived;
        pthread_t t;
        int64_t n;

        if (put_all(s->fd, &s->head, sizeof s->head, &s->blocked_ms) < 0)
                fail("write");
        begin(&t, send_up, s);
        n = get_checked(s->fd, seed_of(&s->head, DOWN_SEED), s->head.down, &s->silent_ms);
        if (n < 0)
                fail("read");
        s->silent_ms = s->head.down > 0 ? s->silent_ms : 0; /* no silence: nothing was to come */
        /* Asleep in read() meanwhile. */
        arrived_len = get_all(s->fd, &arrived, sizeof arrived, &(int64_t){0});
        if (arrived_len < 0)
                fail("read");
        pthread_join(t, NULL);
        if ((uint64_t)n != s->head.down || arrived_len != sizeof arrived)
                wrong("the stream ended early");
        if (arrived != s->head.up)
                wrong("the server has not got all");
        close(s->fd);
        return NULL;
}

static void call(const char *addr, const char *port, const struct head *h, enum how how)
{
        static struct stream s[STREAMS_MAX];
        struct sockaddr_in to = at(addr, port);
        pthread_t t[STREAMS_MAX];
        int64_t silent = 0;

        for (unsigned i = 0; i < h->streams; i++) {
                s[i] = (struct stream){
                        .head = *h, .how = how, .fd = socket(AF_INET, SOCK_STREAM, 0)};
                s[i].head.number = i;
                if (connect(s[i].fd, (struct sockaddr *)&to, sizeof to) != 0)
                        fail("connect");
                begin(&t[i], call_one, &s[i]);
        }
        for (unsigned i = 0; i < h->streams; i++) {
                pthread_join(t[i], NULL);
                silent = s[i].silent_ms > silent ? s[i].silent_ms : silent;
                silent = s[i].blocked_ms > silent ? s[i].blocked_ms : silent;
        }
        printf("%llu up, %llu down, silent %lld ms\n", (unsigned long long)h->up,
               (unsigned long long)h->down, (long long)silent);
}

int main(int argc, char **argv)
{
        enum how how = argc == 8 ? strcmp(argv[7], "part") == 0 ? PART : DIE : WHOLE;
        struct head h = {0};

        signal(SIGPIPE, SIG_IGN);
        if (argc == 4 && strcmp(argv[1], "serve") == 0) {
                serve(argv[2], (unsigned)atoi(argv[3]));
                return 0;
        }
        if ((argc != 7 && argc != 8) || strcmp(argv[1], "call") != 0)
                return 2;
        h.up = strtoull(argv[4], NULL, 10);
        h.down = strtoull(argv[5], NULL, 10);
        h.streams = strtoull(argv[6], NULL, 10);
        if (h.streams == 0 || h.streams > STREAMS_MAX)
                return 2;
        call(argv[2], argv[3], &h, how);
        return 0;
}
