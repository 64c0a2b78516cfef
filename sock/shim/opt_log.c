/*
 * What a program has set, for sides of a socket that come later: ours, when it is decided; the
 * kernel's socket below a connection that was accepted, which has its listener's options as Linux's
 * have, and is made when it is asked (file_materialise()).
 *
 * A listener and its connections share one log. Who changes one that is shared gets a copy first.
 */
#include "sock/shim/opts.h"
#include "sock/shim/shim.h"
#include "sock/usock_option.h"

#include <netinet/in.h>
#include <sys/mman.h>

#ifndef SO_ATTACH_REUSEPORT_CBPF
#define SO_ATTACH_REUSEPORT_CBPF 51
#endif

#define LOGGED     72
#define LOGGED_VAL 40 /* IP_OPTIONS */

struct opt_log {
        unsigned refs; /* files that have it */
        unsigned n;
        struct {
                int level, name;
                socklen_t len;
                char val[LOGGED_VAL];
        } opt[LOGGED];
        struct opt_log *free_next;
};
static_assert(sizeof(struct opt_log) <= 4096, "a page");

static struct opt_log *logs_free;
static pthread_mutex_t logs_lock = PTHREAD_MUTEX_INITIALIZER; /* the list, and refs */

static struct opt_log *log_alloc(void)
{
        struct opt_log *l = logs_free;

        if (l) {
                logs_free = l->free_next;
        } else {
                l = mmap(NULL, sizeof(*l), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                         0);
                if (l == MAP_FAILED)
                        return NULL;
        }
        l->refs = 1;
        l->n = 0;
        return l;
}

static void log_put(struct opt_log *l)
{
        assert(l->refs > 0);
        if (--l->refs > 0)
                return;
        l->free_next = logs_free;
        logs_free = l;
}

void opts_free(struct file *f)
{
        if (!f->opts)
                return;
        pthread_mutex_lock(&logs_lock);
        log_put(f->opts);
        f->opts = NULL;
        pthread_mutex_unlock(&logs_lock);
}

void opts_share(struct file *f, const struct file *listener)
{
        assert(f->opts == NULL);
        if (!listener->opts)
                return;
        pthread_mutex_lock(&logs_lock);
        f->opts = listener->opts;
        f->opts->refs++;
        pthread_mutex_unlock(&logs_lock);
}

/* One that nobody else has, so that it may change; NULL: no memory. */
static struct opt_log *log_own(struct file *f)
{
        struct opt_log *old = f->opts, *l = old;

        if (old && old->refs == 1)
                return old;
        l = log_alloc();
        if (l && old) {
                l->n = old->n;
                memcpy(l->opt, old->opt, sizeof(l->opt));
                log_put(old);
        }
        if (l)
                f->opts = l;
        return l;
}

/* The latest value of each. */
static void note(struct opt_log *l, int level, int name, const void *val, socklen_t len)
{
        unsigned i = 0;

        assert(l->refs == 1 && l->n <= LOGGED && len <= LOGGED_VAL);
        while (i < l->n && (l->opt[i].level != level || l->opt[i].name != name))
                i++;
        if (i == LOGGED)
                return;
        l->opt[i].level = level;
        l->opt[i].name = name;
        l->opt[i].len = len;
        memcpy(l->opt[i].val, val, len);
        if (i == l->n)
                l->n++;
}

void opts_remember(struct file *f, int level, int name, const void *val, socklen_t len)
{
        struct opt_log *l;

        if (len > LOGGED_VAL)
                return;
        pthread_mutex_lock(&logs_lock);
        l = log_own(f);
        if (l)
                note(l, level, name, val, len);
        pthread_mutex_unlock(&logs_lock);
}

bool opts_has(const struct file *f, int level, int name)
{
        for (unsigned i = 0; f->opts && i < f->opts->n; i++)
                if (f->opts->opt[i].level == level && f->opts->opt[i].name == name)
                        return true;
        return false;
}

void opts_replay(struct file *f)
{
        struct opt_log *l = f->opts;

        assert(f->us != NULL);
        for (unsigned i = 0; l && i < l->n; i++)
                usock_setsockopt(f->us, l->opt[i].level, l->opt[i].name, l->opt[i].val,
                                 l->opt[i].len);
}

/* Not what Linux lets a connection begin anew, nor values that point elsewhere, which may
 * be gone. */
static bool is_inherited(int level, int name)
{
        if (level == IPPROTO_IP)
                return name != IP_TOS; /* ours to tell; it sets SO_PRIORITY */
        if (level == IPPROTO_IPV6)
                return name != IPV6_HOPOPTS && name != IPV6_RTHDRDSTOPTS && name != IPV6_RTHDR &&
                       name != IPV6_DSTOPTS;
        return level != SOL_SOCKET || (name != SO_PRIORITY && name != SO_ATTACH_REUSEPORT_CBPF &&
                                       name != SO_ATTACH_FILTER);
}

static void limit_kernel(int fd, int name, nstime timeo)
{
        struct timeval tv = {timeo / NS_PER_S, timeo % NS_PER_S / NS_PER_US};

        if (timeo == 0)
                return;
        if (timeo < NS_PER_US)
                tv.tv_usec = 1; /* it never waits */
        sys5(SYS_setsockopt, fd, SOL_SOCKET, name, &tv, sizeof(tv));
}

void opts_replay_kernel(const struct file *f, int fd)
{
        const struct opt_log *l = f->opts;

        limit_kernel(fd, SO_RCVTIMEO, f->rcvtimeo);
        limit_kernel(fd, SO_SNDTIMEO, f->sndtimeo);

        for (unsigned i = 0; l && i < l->n; i++)
                if (is_inherited(l->opt[i].level, l->opt[i].name))
                        sys5(SYS_setsockopt, fd, l->opt[i].level, l->opt[i].name, l->opt[i].val,
                             l->opt[i].len);
}

/* ---- fork ---- */

void opts_fork_lock(void)
{
        pthread_mutex_lock(&logs_lock);
}

void opts_fork_unlock(void)
{
        pthread_mutex_unlock(&logs_lock);
}
