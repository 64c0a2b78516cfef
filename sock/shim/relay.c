/* How a relay begins, from the side of the program: see relay.h. */
#include "sock/shim/process.h"
#include "sock/shim/relay.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static void *pages(size_t bytes, int flags)
{
        void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);

        return p == MAP_FAILED ? NULL : p;
}

static bool is_connection(const struct file *f)
{
        return f->us != NULL && f->mode == MODE_TCP;
}

static bool is_listener(const struct file *f)
{
        return f->us != NULL && f->mode == MODE_LISTEN && usock_expects(f->us);
}

struct numbers {
        unsigned connections, listeners;
};

static void count_numbers(int fd, struct file *f, void *arg)
{
        struct numbers *n = arg;

        n->connections += is_connection(f);
        n->listeners += is_listener(f);
}

static struct carried *find(const struct relay *r, const struct file *f)
{
        for (unsigned i = 0; i < r->n; i++)
                if (r->v[i].f == f)
                        return &r->v[i];
        return NULL;
}

static void take_names(struct usock *s, struct relayed *r)
{
        assert(s != NULL);
        atomic_store(&r->left, RELAYED_UNKNOWN);
        r->local_len = sizeof(r->local);
        r->peer_len = sizeof(r->peer);
        usock_getsockname(s, (void *)&r->local, &r->local_len);
        if (usock_getpeername(s, (void *)&r->peer, &r->peer_len) < 0)
                r->peer_len = 0;
}

static void set_timeo(int fd, int name, nstime timeo)
{
        struct timeval tv = {timeo / NS_PER_S, timeo % NS_PER_S / NS_PER_US};

        if (timeo != 0)
                sys5(SYS_setsockopt, fd, SOL_SOCKET, name, &tv, sizeof(tv));
}

static void make_pair(struct carried *c)
{
        int pair[2];

        c->program = c->relay = -1;
        if (sys4(SYS_socketpair, AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) < 0)
                return;
        c->program = shim_high_fd(pair[0]);
        c->relay = shim_high_fd(pair[1]);
        if (!file_nonblock(c->f))
                sys3(SYS_fcntl, c->program, F_SETFL, 0);
        set_timeo(c->program, SO_RCVTIMEO, c->f->rcvtimeo);
        set_timeo(c->program, SO_SNDTIMEO, c->f->sndtimeo);
}

static void add(int fd, struct file *f, void *arg)
{
        struct relay *r = arg;
        struct carried *c = &r->v[r->n];

        if (!is_connection(f) || find(r, f) != NULL)
                return;
        c->f = f;
        c->r = r->n == 0 ? c->r : &r->v[0].r[r->n];
        take_names(f->us, c->r);
        make_pair(c);
        r->n++;
}

static void add_listener(int fd, struct file *f, void *arg)
{
        struct relay *r = arg;

        if (!is_listener(f))
                return;
        for (unsigned i = 0; i < r->nlisteners; i++)
                if (r->listener[i] == f)
                        return;
        r->listener[r->nlisteners++] = f;
}

/* No child that the program could wait for: the relay's parent ends at once, without a signal. */
static bool fork_relay(void)
{
        int status;
        long pid;

        fork_begin();
        pid = sys5(SYS_clone, 0, NULL, NULL, NULL, NULL);
        if (pid == 0) {
                if (REAL(_Fork)() != 0)
                        sys1(SYS_exit_group, 0);
                fork_end(true);
                return true;
        }
        fork_end(false);
        if (pid > 0)
                sys4(SYS_wait4, pid, &status, __WALL, NULL);
        return false;
}

/* The relay says that it is there. */
static bool hear_relay(int ctl)
{
        char byte;
        long n;

        do
                n = sys3(SYS_read, ctl, &byte, 1);
        while (n == -EINTR);
        return n == 1;
}

static void start(struct relay *r)
{
        int ctl[2];

        assert(r->n != 0 || r->nlisteners != 0);
        r->ctl = -1;
        if (sys4(SYS_socketpair, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ctl) < 0)
                return;
        ctl[0] = shim_high_fd(ctl[0]);
        ctl[1] = shim_high_fd(ctl[1]);
        if (fork_relay()) {
                r->ctl = ctl[1];
                sys1(SYS_close, ctl[0]);
                relay_run(r);
        }
        sys1(SYS_close, ctl[1]);
        r->ctl = ctl[0];
        if (!hear_relay(r->ctl)) {
                sys1(SYS_close, r->ctl);
                r->ctl = -1;
        }
}

static void close_ends(struct relay *r)
{
        for (unsigned i = 0; i < r->n; i++) {
                if (r->v[i].relay >= 0)
                        sys1(SYS_close, r->v[i].relay);
                r->v[i].relay = -1;
        }
}

static void add_connections(struct relay *r, unsigned n)
{
        r->v = pages(n * sizeof(*r->v), MAP_PRIVATE);
        if (r->v == NULL || (r->v[0].r = pages(n * sizeof(struct relayed), MAP_SHARED)) == NULL)
                return;
        file_each(add, r);
        relayed_start(r->v[0].f);
        r->uid = usock_user(r->v[0].f->us);
}

static void add_listeners(struct relay *r, unsigned n)
{
        r->listener = pages(n * sizeof(struct file *), MAP_PRIVATE);
        if (r->listener == NULL)
                return;
        file_each(add_listener, r);
        if (r->nlisteners != 0)
                r->uid = usock_user(r->listener[0]->us);
}

void relay_start(struct relay *r)
{
        struct numbers n = {0, 0};

        assert(usock_tls.inside);
        *r = (struct relay){.ctl = -1};
        file_each(count_numbers, &n);
        if (n.connections != 0)
                add_connections(r, n.connections);
        if (n.listeners != 0)
                add_listeners(r, n.listeners);
        if (r->n != 0 || r->nlisteners != 0)
                start(r);
        close_ends(r);
}

bool relay_lacks(const struct relay *r)
{
        return r->nlisteners != 0 && r->ctl < 0;
}

static void end(struct relay *r)
{
        for (unsigned i = 0; i < r->n; i++)
                if (r->v[i].program >= 0)
                        sys1(SYS_close, r->v[i].program);
        if (r->ctl >= 0)
                sys1(SYS_close, r->ctl);
}

void relay_go(struct relay *r)
{
        if (r->ctl >= 0)
                sys3(SYS_write, r->ctl, "", 1);
        end(r);
}

void relay_cancel(struct relay *r)
{
        end(r);
}

/* Where there is no relay, the pair has no other end: the connection has ended. */
void relay_replace(const struct relay *r, int fd, struct file *f)
{
        const struct carried *c = find(r, f);

        if (c == NULL || c->program < 0)
                return;
        sys3(SYS_dup3, c->program, fd, sys2(SYS_fcntl, fd, F_GETFD) & FD_CLOEXEC ? O_CLOEXEC : 0);
        f->placeholder = false;
        f->relayed = c->r;
}
