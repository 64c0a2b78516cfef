/* Holding what is one's own. See hold.h. */
#include "tests/users/hold.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "tests/users/users.h"

/* An empty connection: who reads from it waits. */
static int silent(void)
{
        struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        int listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0),
            fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        socklen_t len = sizeof a;

        must(bind(listening, (struct sockaddr *)&a, sizeof a) == 0 && listen(listening, 1) == 0);
        must(getsockname(listening, (struct sockaddr *)&a, &len) == 0 &&
             connect(fd, (struct sockaddr *)&a, sizeof a) == 0);
        return fd;
}

static void splice_in(int fd)
{
        splice(silent(), NULL, fd, NULL, 1, 0);
}

static void splice_out(int fd)
{
        splice(fd, NULL, silent(), NULL, 1, 0);
}

static void tee_in(int fd)
{
        int p[2];

        must(pipe2(p, O_CLOEXEC) == 0);
        tee(p[0], fd, 1, 0);
}

static void read_it(int fd)
{
        char byte;

        fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
        if (recv(fd, &byte, 1, 0) == 1)
                table->value[7]++;
        else if (errno == ENOTSOCK)
                read(fd, &byte, 1);
}

/* Of what lies in memory. */
static void lock_it(int fd)
{
        struct flock all = {.l_type = F_WRLCK};

        flock(fd, LOCK_EX);
        fcntl(fd, F_OFD_SETLKW, &all);
        pause();
}

static void punch_it(int fd)
{
        while (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 1 << 20) == 0)
                ;
}

typedef void hold(int fd);
static hold *const holds[] = {splice_in, splice_out, tee_in, read_it, lock_it, punch_it};

struct held {
        hold *how;
        int fd;
        _Atomic int tid;
        _Atomic bool ended;
};

static void *keep_hold(void *arg)
{
        struct held *h = arg;

        h->tid = (int)syscall(SYS_gettid);
        h->how(h->fd);
        h->ended = true;
        return NULL;
}

/* It waits in the kernel, or never will. */
static bool is_in_place(const struct held *h)
{
        char path[64], text[512] = "";
        const char *state;
        int fd, n;

        if (h->ended || h->how == punch_it)
                return true;
        snprintf(path, sizeof path, "/proc/self/task/%d/stat", h->tid);
        fd = h->tid != 0 ? open(path, O_RDONLY | O_CLOEXEC) : -1;
        n = fd < 0 ? 0 : (int)read(fd, text, sizeof text - 1);
        close(fd);
        state = n > 0 ? strrchr(text, ')') : NULL;
        return state != NULL && (state[2] == 'S' || state[2] == 'D');
}

void hold_all(const int *fds, unsigned n)
{
        static struct held all[ARRAY_LEN(holds) * 32];
        static unsigned used;
        unsigned before = used;
        pthread_t thread;

        for (unsigned i = 0; i < n; i++)
                for (unsigned k = 0; k < ARRAY_LEN(holds); k++) {
                        must(used < ARRAY_LEN(all));
                        all[used] = (struct held){.how = holds[k], .fd = fds[i]};
                        must(pthread_create(&thread, NULL, keep_hold, &all[used]) == 0);
                        used++;
                }
        for (unsigned i = before; i < used; i++)
                must_eventually(is_in_place(&all[i]));
}
