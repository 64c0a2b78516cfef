/*
 * Requests and responses of threads that block: how many a second, and how long they take.
 *
 *   exchange server PORT SIZE [PORT SIZE]...
 *           a thread for each connection reads a byte and answers SIZE bytes, until it is killed
 *   exchange client PORT THREADS COUNT REQUEST SIZE [each]
 *           THREADS threads send the bytes REQUEST and read SIZE bytes, COUNT times in all;
 *           "each": over a connection each. Prints one line of JSON.
 *
 * The client asks any server whose answers have one length: bench/programs asks memcached with it.
 */
#include <limits.h>
#include <pthread.h>
#include <stdint.h>

#include "bench/plain.h"

#define MOST_THREADS 1024
#define MOST_BYTES   (1 << 20)

static int no_delay(int fd)
{
        if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int)) != 0)
                die("TCP_NODELAY");
        return fd;
}

static void start(pthread_t *thread, void *(*run)(void *), void *arg)
{
        if ((errno = pthread_create(thread, NULL, run, arg)) != 0)
                die("pthread_create");
}

/* Returns false at the end of the stream, or when the peer reset it. */
static bool send_all(int fd, const char *bytes, size_t len)
{
        for (size_t done = 0; done < len;) {
                ssize_t n = send(fd, bytes + done, len - done, MSG_NOSIGNAL);

                if (n <= 0)
                        return false;
                done += (size_t)n;
        }
        return true;
}

static bool recv_all(int fd, char *bytes, size_t len)
{
        for (size_t done = 0; done < len;) {
                ssize_t n = recv(fd, bytes + done, len - done, 0);

                if (n <= 0)
                        return false;
                done += (size_t)n;
        }
        return true;
}

/* ---- the server ---- */

struct door {
        int listener;
        size_t size; /* of an answer */
};

struct guest {
        int fd;
        size_t size;
};

static void *serve(void *arg)
{
        struct guest guest = *(struct guest *)arg;
        char *answer = calloc(1, guest.size), request;

        free(arg);
        if (answer == NULL)
                die("calloc");
        while (recv_all(guest.fd, &request, 1) && send_all(guest.fd, answer, guest.size))
                ;
        close(guest.fd);
        free(answer);
        return NULL;
}

static void *admit(void *arg)
{
        const struct door *door = arg;

        for (;;) {
                struct guest *guest = malloc(sizeof *guest);
                pthread_t thread;

                if (guest == NULL)
                        die("malloc");
                *guest = (struct guest){accept(door->listener, NULL, NULL), door->size};
                if (guest->fd < 0)
                        die("accept");
                no_delay(guest->fd);
                start(&thread, serve, guest);
                pthread_detach(thread);
        }
        return NULL;
}

static void open_doors(int count, char **args)
{
        struct door *doors = calloc((size_t)count, sizeof *doors);
        pthread_t thread;

        if (doors == NULL)
                die("calloc");
        for (int i = count; i-- > 0;) { /* who finds the first finds all */
                doors[i].size = (size_t)number_arg(args[2 * i + 1], 1, MOST_BYTES);
                doors[i].listener =
                        listen_on(LOOPBACK, (int)number_arg(args[2 * i], 1, 65535), SOMAXCONN);
        }
        for (int i = 1; i < count; i++)
                start(&thread, admit, &doors[i]);
        admit(&doors[0]);
}

/* ---- how long: buckets whose width is a 128th of what is in them, at most ---- */

#define FINE    7
#define BUCKETS ((64 - FINE + 1) << FINE)

static unsigned bucket_of(uint64_t ns)
{
        int shift;

        if (ns >> FINE == 0)
                return (unsigned)ns;
        shift = 63 - __builtin_clzll(ns) - FINE;
        return ((unsigned)(shift + 1) << FINE) + (unsigned)(ns >> shift & ((1 << FINE) - 1));
}

/* The least time, in ns, that is counted in that bucket. */
static uint64_t least_of(unsigned bucket)
{
        unsigned rest = bucket & ((1 << FINE) - 1);

        if (bucket >> FINE == 0)
                return bucket;
        return (uint64_t)((1U << FINE) + rest) << ((bucket >> FINE) - 1);
}

/* In us. */
static double percentile(const unsigned long *counts, unsigned long total, double percent)
{
        unsigned long seen = 0;
        unsigned b;

        for (b = 0; b < BUCKETS - 1; b++)
                if ((double)(seen += counts[b]) >= (double)total * percent / 100)
                        break;
        return (double)least_of(b) / 1e3;
}

/* ---- the client ---- */

static struct {
        int port;
        const char *request;
        size_t size;
        bool each;
        pthread_barrier_t ready;
} plan;

struct asker {
        pthread_t thread;
        unsigned long exchanges;
        unsigned long counts[BUCKETS];
};

static void exchange(int fd, char *answer)
{
        if (!send_all(fd, plan.request, strlen(plan.request)) || !recv_all(fd, answer, plan.size))
                die("exchange");
}

static void one_alone(char *answer)
{
        int fd = no_delay(connect_to(LOOPBACK, plan.port));

        exchange(fd, answer);
        close(fd);
}

static void *ask(void *arg)
{
        struct asker *asker = arg;
        char *answer = malloc(plan.size);
        int fd = plan.each ? -1 : no_delay(connect_to(LOOPBACK, plan.port));
        double now, then;

        if (answer == NULL)
                die("malloc");
        pthread_barrier_wait(&plan.ready);
        then = now_s();
        for (unsigned long i = 0; i < asker->exchanges; i++, then = now) {
                if (plan.each)
                        one_alone(answer);
                else
                        exchange(fd, answer);
                now = now_s();
                asker->counts[bucket_of((uint64_t)((now - then) * 1e9))]++;
        }
        if (fd >= 0)
                close(fd);
        free(answer);
        return NULL;
}

static void drive(int threads, unsigned long count)
{
        struct asker *askers = calloc((size_t)threads, sizeof *askers);
        double began, took;

        if (askers == NULL)
                die("calloc");
        pthread_barrier_init(&plan.ready, NULL, (unsigned)threads + 1);
        for (int i = 0; i < threads; i++) {
                askers[i].exchanges = count / (unsigned long)threads;
                start(&askers[i].thread, ask, &askers[i]);
        }
        pthread_barrier_wait(&plan.ready);
        began = now_s();
        for (int i = 0; i < threads; i++)
                pthread_join(askers[i].thread, NULL);
        took = now_s() - began;
        count = count / (unsigned long)threads * (unsigned long)threads;
        for (int i = 1; i < threads; i++)
                for (int b = 0; b < BUCKETS; b++)
                        askers[0].counts[b] += askers[i].counts[b];
        printf("{\"exchanges\": %lu, \"seconds\": %.6f, \"rate\": %.1f, \"p50_us\": %.3f, "
               "\"p99_us\": %.3f}\n",
               count, took, (double)count / took, percentile(askers[0].counts, count, 50),
               percentile(askers[0].counts, count, 99));
        free(askers);
}

int main(int argc, char **argv)
{
        if (argc >= 4 && argc % 2 == 0 && strcmp(argv[1], "server") == 0) {
                open_doors((argc - 2) / 2, argv + 2);
        } else if ((argc == 7 || (argc == 8 && strcmp(argv[7], "each") == 0)) &&
                   strcmp(argv[1], "client") == 0) {
                plan.port = (int)number_arg(argv[2], 1, 65535);
                plan.request = argv[5];
                plan.size = (size_t)number_arg(argv[6], 1, MOST_BYTES);
                plan.each = argc == 8;
                drive((int)number_arg(argv[3], 1, MOST_THREADS),
                      (unsigned long)number_arg(argv[4], 1, INT_MAX));
        } else {
                fprintf(stderr, "usage: exchange server PORT SIZE [PORT SIZE]... | exchange client "
                                "PORT THREADS COUNT REQUEST SIZE [each]\n");
                return 2;
        }
        return 0;
}
