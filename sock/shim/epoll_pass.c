/*
 * Epoll sets that leave in a message, or that a child of posix_spawn() has. The kernel's half goes
 * by itself. Who is in ours is written into a memfd, and a mark in the kernel's half says where: an
 * eventfd that is never reported, whose data are this process and the number of the memfd.
 *
 * Who gets the set reads the mark in /proc/self/fdinfo, and the memfd by /proc while this process
 * lives. Members of its half are those whose sockets it has, too; only these could it read or
 * write. From then on each process has members of its own, as after fork().
 *
 * A set in the set leaves with it: it gets a mark as well, and is a member for whoever has a number
 * of it, which he finds by this mark.
 */
#include "sock/shim/epoll.h"
#include "sock/shim/epoll_set.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/sandbox.h"

#define MAGIC 0x554e4551u
#define MARK  0x2d6b54u /* EPOLL_WORD(), with the number of the memfd */

uint64_t epoll_pass_name(const struct epoll_set *set)
{
        return !set || set->mark < 0 ? 0 : EPOLL_WORD(MARK, getpid(), (unsigned)set->mark);
}

/* ---- who passes it on ---- */

static bool is_member(const struct file *f, const struct epoll_set *set)
{
        const struct epoll_item *it = f->items;

        while (it && it->set != set)
                it = it->same_file;
        return it != NULL;
}

/* Who gets a number of it knows it by its cookie. */
static void make_known(int fd, struct file *f, void *set)
{
        bool known = false;

        pthread_mutex_lock(&shim.lock);
        if (f->mode >= MODE_NEW && f->kfd == fd && is_member(f, set)) {
                file_share(f);
                known = f->mode >= MODE_NEW;
        }
        pthread_mutex_unlock(&shim.lock);
        if (known)
                file_known_outside(f);
}

/* Who is spawned has none of those that close on exec. */
static bool goes_along(const struct epoll_item *it, bool spawned)
{
        return !spawned || it->f->spawned || it->f->mode == MODE_EPOLL;
}

/* -ENOENT: there is nothing to say. shim.lock held. */
static int write_image(const struct epoll_set *set, bool spawned, bool inner)
{
        const struct epoll_item *it;
        struct epoll_list l;
        unsigned n = 0;
        int err;

        TAILQ_FOREACH (it, &set->members, of_set)
                n += goes_along(it, spawned);
        if (n == 0 && set->image < 0 && !inner)
                return -ENOENT;
        err = epoll_list_begin(&l, MAGIC, n);
        if (err < 0)
                return err;
        TAILQ_FOREACH (it, &set->members, of_set)
                if (goes_along(it, spawned))
                        epoll_list_add(&l, it);
        return epoll_list_end(&l);
}

static void put_mark(struct epoll_set *set, int image)
{
        struct epoll_event ev = {.data.u64 = EPOLL_WORD(MARK, getpid(), (unsigned)image)};
        int op = set->mark < 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;

        if (set->mark < 0)
                set->mark = shim_high_fd((int)sys2(SYS_eventfd2, 0, EFD_CLOEXEC));
        if (set->mark < 0) {
                sys1(SYS_close, image);
                return;
        }
        sys4(SYS_epoll_ctl, epoll_kernel_fd(set), op, set->mark, &ev);
        if (set->image >= 0)
                sys1(SYS_close, set->image);
        set->image = image;
}

struct leaving {
        struct epoll_set *set;
        bool spawned;
};

static void leaves(struct file *f, bool spawned, bool inner);

/* What the kernel alone had in it is ours to tell as well, as it is a member of one of ours. */
static void inner_leaves(int fd, struct file *f, void *arg)
{
        const struct leaving *l = arg;
        bool inner;

        pthread_mutex_lock(&shim.lock);
        inner = f->mode == MODE_EPOLL && f->kfd == fd && is_member(f, l->set);
        if (inner && !f->set)
                f->set = epoll_set_new(f);
        pthread_mutex_unlock(&shim.lock);
        if (inner)
                leaves(f, l->spawned, true);
}

static void leaves(struct file *f, bool spawned, bool inner)
{
        struct epoll_set *set = f->set;
        int image;

        assert(f->mode == MODE_EPOLL);
        if (!set || atomic_load(&sandbox_forbidden) != 0)
                return;
        if (set->nested)
                file_each(inner_leaves, &(struct leaving){set, spawned});
        if (!spawned)
                file_each(make_known, set);
        pthread_mutex_lock(&shim.lock);
        image = write_image(set, spawned, inner);
        if (image >= 0)
                put_mark(set, image);
        epoll_shared(set);
        pthread_mutex_unlock(&shim.lock);
}

void epoll_leaves(struct file *f)
{
        leaves(f, false, false);
}

void epoll_is_spawned(struct file *f)
{
        leaves(f, true, false);
}

/* Sets that are closed here, and may be on their way: the last of them. Under shim.lock. */
static struct gone {
        int mark, image;
} gone[4];
static unsigned ngone;

static void let_go(struct gone *g)
{
        const struct gone was = *g;

        WRITE_ONCE(g->mark, -1);
        WRITE_ONCE(g->image, -1);
        sys1(SYS_close, was.mark);
        sys1(SYS_close, was.image);
}

void epoll_pass_ended(struct epoll_set *set)
{
        struct gone *g = &gone[ngone % ARRAY_LEN(gone)];

        if (set->mark < 0)
                return;
        if (ngone++ >= ARRAY_LEN(gone) && g->mark >= 0)
                let_go(g);
        *g = (struct gone){set->mark, set->image};
        set->mark = set->image = -1;
}

bool epoll_yield(void)
{
        bool any = false;

        pthread_mutex_lock(&shim.lock);
        for (unsigned i = 0; i < MIN(ngone, ARRAY_LEN(gone)); i++)
                if (gone[i].mark >= 0) {
                        let_go(&gone[i]);
                        any = true;
                }
        pthread_mutex_unlock(&shim.lock);
        return any;
}

bool epoll_pass_owns(int fd)
{
        for (unsigned i = 0; i < MIN(READ_ONCE(ngone), ARRAY_LEN(gone)); i++)
                if (fd == READ_ONCE(gone[i].mark) || fd == READ_ONCE(gone[i].image))
                        return true;
        return false;
}

/* ---- who gets it ---- */

/* Returns true if the descriptor is a memfd of this user's, whose opening has no side effect. The
 * name is compared first, without a question to its file system: it may be another user's FUSE,
 * which need not answer. */
static bool is_harmless(int path_fd, const char *path)
{
        static const char name[] = "/memfd:" LIST_NAME " (deleted)";
        char is[sizeof(name)];
        struct statfs fs;
        struct stat sb;

        return sys4(SYS_readlinkat, AT_FDCWD, path, is, sizeof(is)) == sizeof(name) - 1 &&
               memcmp(is, name, sizeof(name) - 1) == 0 && sys2(SYS_fstat, path_fd, &sb) == 0 &&
               S_ISREG(sb.st_mode) && sb.st_uid == geteuid() && fstatfs(path_fd, &fs) == 0 &&
               fs.f_type == TMPFS_MAGIC;
}

/* The memfd that a mark names; negative: its maker is gone, or another user's. */
static int open_image(uint64_t mark)
{
        uint32_t pid = (uint32_t)(mark >> EPOLL_PLACE_BITS) & ((1u << EPOLL_NUMBER_BITS) - 1);
        char path[48];
        int at, fd = -1;

        snprintf(path, sizeof(path), "/proc/%u/fd/%u", pid,
                 (unsigned)(mark & ((1u << EPOLL_PLACE_BITS) - 1)));
        at = (int)sys4(SYS_openat, AT_FDCWD, path, O_PATH | O_CLOEXEC, 0);
        if (at < 0)
                return at;
        snprintf(path, sizeof(path), "/proc/self/fd/%d", at);
        if (is_harmless(at, path))
                fd = (int)sys4(SYS_openat, AT_FDCWD, path, O_RDONLY | O_NONBLOCK | O_CLOEXEC, 0);
        sys1(SYS_close, at);
        if (fd < 0 || epoll_list_is(fd, MAGIC, pid))
                return fd;
        sys1(SYS_close, fd);
        return -ESTALE;
}

#define MARKS_MOST 16 /* of one set: each is opened */
#define READ_AGAIN 3

/* What is in a set, by /proc/self/fdinfo. */
struct marks {
        uint64_t name; /* 0: its image is looked for; else whether this is its name */
        bool named;
        int image; /* that a mark names; negative: none */
        unsigned seen;
};

static bool is_by_same(uint64_t mark, uint64_t name)
{
        return mark >> EPOLL_PLACE_BITS == name >> EPOLL_PLACE_BITS;
}

/* "tfd: NUMBER events: BITS data: WORD ..." */
static void look_at_line(struct marks *m, const char *line)
{
        const uint64_t place = (1u << EPOLL_PLACE_BITS) - 1;
        const char *at = strstr(line, " data:");
        uint64_t data = at ? strtoull(at + 6, NULL, 16) : 0;

        if (!epoll_has_word(data, MARK))
                return;
        if (m->name != 0) {
                m->named |= is_by_same(data, m->name) &&
                            strtoull(line + strcspn(line, " "), NULL, 10) == (m->name & place);
        } else if (m->image < 0 && m->seen < MARKS_MOST) {
                m->seen++;
                m->image = open_image(data);
        }
}

static struct marks look_for_marks(int epfd, uint64_t name)
{
        struct marks m = {.name = name, .image = -ENOENT};
        char path[40], text[2048], *line, *end;
        size_t had = 0;
        long n;
        int fd;

        snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", epfd);
        fd = (int)sys4(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
        if (fd < 0)
                return m;
        while (m.image < 0 && (n = sys3(SYS_read, fd, text + had, sizeof(text) - 1 - had)) > 0) {
                text[had + (size_t)n] = 0;
                for (line = text; (end = strchr(line, '\n')) != NULL; line = end + 1) {
                        *end = 0;
                        look_at_line(&m, line);
                }
                had = strlen(line);
                memmove(text, line, had);
                if (had == sizeof(text) - 1)
                        break;
        }
        sys1(SYS_close, fd);
        return m;
}

/* A mark whose image is gone may have been changed meanwhile: its maker passed the set on again. */
static int find_image(int epfd)
{
        struct marks m = look_for_marks(epfd, 0);

        for (int i = 0; i < READ_AGAIN && m.image < 0 && m.seen > 0; i++)
                m = look_for_marks(epfd, 0);
        return m.image;
}

struct coming {
        struct file *ef;
        int epfd, image;
        struct epoll_kept k;
        bool found;
};

static void comes_if_meant(int fd, struct file *f, void *arg)
{
        struct coming *c = arg;
        struct usock *us = READ_ONCE(f->us);

        if (c->found || !us || usock_cookie(us) != c->k.cookie)
                return;
        c->found = true;
        epoll_item_comes(c->ef, f, &c->k);
}

static void inner_comes(int fd, struct file *f, void *arg)
{
        struct coming *c = arg;

        c->found = f->mode == MODE_EPOLL && f != c->ef;
        if (c->found)
                epoll_item_comes(c->ef, f, &c->k);
}

static void set_comes(int fd);

/* It may have come in the same message, and not be known yet. */
static void inner_if_meant(int fd, void *arg)
{
        struct coming *c = arg;

        if (c->found || fd == c->epfd || !epoll_is_one(fd) || !look_for_marks(fd, c->k.inner).named)
                return;
        if (!file_peek(fd))
                set_comes(fd);
        file_at(fd, inner_comes, c);
}

/* By their sender's numbers first: a child has them there. No other thread closes what is found
 * before it is a member. */
static void take(int fd, struct file *ef, void *arg)
{
        struct coming *c = arg;

        c->ef = ef;
        for (unsigned i = 0; ef->mode == MODE_EPOLL && epoll_list_get(c->image, i, &c->k); i++) {
                c->found = false;
                if (c->k.inner != 0) {
                        file_each_open(inner_if_meant, c);
                } else if (c->k.cookie != 0) {
                        file_at(c->k.fd, comes_if_meant, c);
                        if (!c->found)
                                file_each(comes_if_meant, c);
                }
        }
}

static void take_members(int fd, int image)
{
        struct coming c = {.epfd = fd, .image = image};

        if (epoll_file(fd))
                file_at(fd, take, &c);
        sys1(SYS_close, image);
}

struct same {
        int mark;
        struct file *f;
};

static void is_same(int fd, struct file *f, void *arg)
{
        struct epoll_event none = {0};
        struct same *s = arg;

        if (!s->f && f->mode == MODE_EPOLL &&
            sys4(SYS_epoll_ctl, fd, EPOLL_CTL_MOD, s->mark, &none) == 0)
                s->f = f;
}

/* The same instance, which we have under another number: it has the eventfd there, too. */
static struct file *find_known(int fd)
{
        struct same s = {.mark = (int)sys2(SYS_eventfd2, 0, EFD_CLOEXEC)};
        struct epoll_event none = {0};

        if (s.mark < 0)
                return NULL;
        if (sys4(SYS_epoll_ctl, fd, EPOLL_CTL_ADD, s.mark, &none) == 0)
                file_each(is_same, &s);
        sys1(SYS_close, s.mark);
        return s.f;
}

static void set_comes(int fd)
{
        struct file *known = find_known(fd);
        int image = known ? -1 : find_image(fd);

        if (known)
                file_number(known, fd);
        else if (image >= 0)
                take_members(fd, image);
}

void epoll_comes(int fd)
{
        if (!shim.size || file_peek(fd) || atomic_load(&sandbox_forbidden) != 0)
                return;
        usock_enter();
        if (epoll_is_one(fd))
                set_comes(fd);
        usock_leave();
}
