/* connect() to AF_UNSPEC while another thread is in the middle of a copy: it stands at a page that
 * is not there until userfaultfd(2) gives it. As in the kernel, the copy comes to its end first. */
#include "tests/shim/calls.h"

#include <linux/userfaultfd.h>

#define MANY 20000 /* more than goes through a buffer of the stack's */
#define PART 12288 /* three pages; the second is missing */
#define PAGE 4096

struct copy {
        int fd, faults;
        bool sends;
        char *mem;
        ssize_t done;
};

static char page_of_pattern[PAGE] __attribute__((aligned(PAGE)));

static void *copies(void *arg)
{
        struct copy *c = arg;

        c->done = c->sends ? send(c->fd, c->mem, PART, 0) : recv(c->fd, c->mem, PART, 0);
        return NULL;
}

/* The second page of c->mem is not there. Where that needs more rights than we have, nobody is
 * stopped. */
static void take_page(struct copy *c)
{
        struct uffdio_api api = {.api = UFFD_API};
        struct uffdio_register all = {.range = {(uintptr_t)c->mem + PAGE, PAGE},
                                      .mode = UFFDIO_REGISTER_MODE_MISSING};

        c->mem = mmap(NULL, PART, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        all.range.start = (uintptr_t)c->mem + PAGE;
        c->faults = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
        if (c->faults < 0 || ioctl(c->faults, UFFDIO_API, &api) < 0 ||
            ioctl(c->faults, UFFDIO_REGISTER, &all) < 0) {
                fprintf(stderr, "skipped: no userfaultfd here: no copy is stopped\n");
                close(c->faults);
                c->faults = -1;
        }
}

/* Or, where it is not stopped, until it is over. */
static void until_stopped(const struct copy *c, pthread_t copier)
{
        struct uffd_msg m;

        if (c->faults < 0)
                pthread_join(copier, NULL);
        else if (read(c->faults, &m, sizeof(m)) != sizeof(m) || m.event != UFFD_EVENT_PAGEFAULT)
                die("no page was missed");
}

static void until_over(const struct copy *c, pthread_t copier)
{
        struct uffdio_copy page = {
                .dst = (uintptr_t)c->mem + PAGE, .src = (uintptr_t)page_of_pattern, .len = PAGE};

        if (c->faults < 0)
                return;
        if (ioctl(c->faults, UFFDIO_COPY, &page) < 0)
                die("UFFDIO_COPY");
        close(c->faults);
        pthread_join(copier, NULL);
}

static bool right(const char *p, int at, int n)
{
        for (int i = 0; i < n; i++)
                if (p[i] != pattern(at + i))
                        return false;
        return true;
}

static void write_many(int fd)
{
        static char b[MANY];

        for (int i = 0; i < MANY; i++)
                b[i] = pattern(i);
        SHOW(write(fd, b, MANY));
}

static void read_many(int fd)
{
        static char b[MANY];

        SHOW(recv(fd, b, MANY, MSG_WAITALL));
        printf("  right: %d\n", right(b, 0, MANY));
}

struct undone {
        int fd, r;
        _Atomic bool over;
};

static void *undoes(void *arg)
{
        const struct sockaddr none = {.sa_family = AF_UNSPEC};
        struct undone *u = arg;

        u->r = connect(u->fd, &none, sizeof(none));
        u->over = true;
        return NULL;
}

/* Of a connection whose end is c->fd: meanwhile another is made, and is whole afterwards. */
static void undo_meanwhile(struct copy *c)
{
        struct undone u = {.fd = c->fd};
        pthread_t copier, undoer;
        int other[2];

        take_page(c);
        for (int i = 0; i < PART; i += i == 0 ? 2 * PAGE : PAGE)
                for (int j = 0; j < PAGE; j++)
                        c->mem[i + j] = pattern(i + j);
        for (int i = 0; i < PAGE; i++)
                page_of_pattern[i] = pattern(PAGE + i);
        pthread_create(&copier, NULL, copies, c);
        until_stopped(c, copier);
        pthread_create(&undoer, NULL, undoes, &u);
        for (int i = 0; i < 50 && !u.over; i++) /* if it does not wait, let it come to its end */
                usleep(1000);
        tcp_pair(other);
        write_many(other[1]);
        wait_bytes(other[0], MANY);
        until_over(c, copier);
        pthread_join(undoer, NULL);
        printf("  copied %zd, undone %d\n", c->done, u.r);
        read_many(other[0]);
        close2(other);
}

static void is_as_new(int fd)
{
        struct sockaddr_in sa;
        int l = listener(&sa), t;

        SHOW(connect(fd, (void *)&sa, sizeof(sa)));
        t = accept(l, NULL, NULL);
        SHOW(write(t, "again", 5));
        wait_readable(fd);
        show_recv(fd, 10, 0);
        SHOW(write(fd, "and back", 8));
        wait_readable(t);
        show_recv(t, 10, 0);
        close(t);
        close(l);
}

static void until_reset(int fd)
{
        char b[PART];
        ssize_t n;

        do
                n = recv(fd, b, sizeof(b), 0);
        while (n > 0);
        printf("  the peer: %zd %s\n", n, name_of(n));
}

void scene_disconnect_beside_reader(void)
{
        struct copy c = {.faults = -1};
        int v[2];

        tcp_pair(v);
        write_many(v[1]);
        wait_bytes(v[0], MANY);
        c.fd = v[0];
        undo_meanwhile(&c);
        printf("  right: %d\n", right(c.mem, 0, PAGE) && right(c.mem + 2 * PAGE, 2 * PAGE, PAGE));
        until_reset(v[1]);
        is_as_new(v[0]);
        munmap(c.mem, PART);
        close2(v);
}

void scene_disconnect_beside_writer(void)
{
        struct copy c = {.faults = -1, .sends = true};
        int v[2];

        tcp_pair(v);
        c.fd = v[0];
        undo_meanwhile(&c);
        until_reset(v[1]);
        is_as_new(v[0]);
        munmap(c.mem, PART);
        close2(v);
}
