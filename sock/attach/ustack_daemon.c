/*
 * unetd as a process knows it: the client, which all threads share, and what another unetd is to be
 * told when it takes over.
 */
#include "sock/attach/handle.h"
#include "sock/attach/ustack_chan.h"
#include "sock/attach/ustack_daemon.h"
#include "sock/attach/ustack_directory.h"
#include "sock/attach/ustack_link.h"

#include <errno.h>
#include <pthread.h>
#include <unistd.h>

#define DAEMON_EVERY NS_PER_S /* a sleeper without a unetd looks for one so often */

/* unetd hands stacks from one process to another, so that its name has to differ where their
 * layout does. */
static_assert(UNETD_ABI == STACK_ABI, "a new layout of stacks is a new name of unetd's");

static struct {
        pthread_mutex_t lock; /* of this struct and the client, and of the list of stacks */
        struct unetd_client client;
        bool open;
        bool away; /* in another network namespace: no unetd is started from there */
        const struct ustack *held; /* whose lock has whoever uses the client */
        _Atomic uint32_t in_vain;  /* looks for another unetd */
        _Atomic uint64_t unetd;    /* client.instance, to be read without the lock */
} proc = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* One socket's entry in the directory, with the kernel socket that holds its port; without one,
 * unetd holds it. */
static void register_again(struct unetd_client *c, struct ustack *u, const struct usock *h)
{
        struct sock_rec *rec = usock_rec(h);
        uint8_t proto = ustack_entry_proto(rec);
        uint16_t port = rec->lport;

        if (usock_kfd(h) < 0 && rec->bound && port != 0)
                unetd_port_hold(c, u->id, proto, rec->laddr, &port);
        if (rec->registered)
                unetd_listen_add(c, u->id, proto, rec->reg_addr, rec->lport, ustack_entry_sock(rec),
                                 usock_kfd(h));
}

/* What belongs to it, under its lock. */
static void stack_again(struct unetd_client *c, struct ustack *u)
{
        ustack_links_back(u, c);
        for (const struct usock *h = u->handles; h != NULL; h = h->next)
                register_again(c, u, h);
        for (uint32_t b = 0; b < u->s.st->nblocks; b++) {
                uint16_t first = u->s.st->block[b].first, count = u->s.st->block[b].count;
                unetd_port_lease(c, u->id, &first, &count);
        }
        ustack_remotes_back(u, c);
}

/* Another unetd took over: the stacks of this process, their ports and names are made known to it
 * as they were. */
static void renewed(struct unetd_client *c, void *arg)
{
        atomic_store(&proc.unetd, c->instance);
        FOR_USTACKS (u) {
                int err;

                if (u->id == 0)
                        continue; /* nobody's but ours: ustack_lose() */
                err = unetd_stack_new(c, &u->fds, u->slot, &u->id);
                if (u != proc.held)
                        ustack_lock(u);
                if (err == -EEXIST)
                        ustack_disown(u);
                else
                        stack_again(c, u);
                if (u != proc.held)
                        ustack_leave(u);
        }
}

int ustack_client_open(unsigned flags)
{
        int err;

        if (proc.open)
                return 0;
        ustack_clock_find();
        err = unetd_open(&proc.client, flags | (proc.away ? UNETD_NO_START : 0));
        proc.client.flags = proc.away ? UNETD_NO_START : 0;
        proc.open = err == 0;
        if (proc.open) {
                proc.client.renewed = renewed;
                ustack_directory_is(proc.client.dir);
                atomic_store(&proc.unetd, proc.client.instance);
        }
        return err;
}

/* A child that came to its stacks while unetd could not be reached says so now. */
static void make_known(void)
{
        FOR_USTACKS (u) {
                if (likely(!u->unknown || u->id == 0))
                        continue;
                u->unknown = unetd_proc_add(&proc.client, u->id, u->slot, 0) != 0;
                if (u->unknown)
                        continue;
                atomic_store(&u->s.st->proc[u->slot].pid, (uint32_t)proc.client.self);
                atomic_store(&u->s.st->proc[u->slot].unknown, 0);
        }
}

struct unetd_client *ustack_client(void)
{
        pthread_mutex_lock(&proc.lock);
        make_known();
        return &proc.client;
}

/* NULL: somebody has it. */
static struct unetd_client *ustack_client_try(void)
{
        return pthread_mutex_trylock(&proc.lock) == 0 ? &proc.client : NULL;
}

struct unetd_client *ustack_client_held(void)
{
        return &proc.client;
}

struct unetd_client *ustack_client_holding(const struct ustack *u)
{
        struct unetd_client *c = ustack_client_try();

        if (c != NULL)
                proc.held = u;
        return c;
}

void ustack_client_done(void)
{
        proc.held = NULL;
        pthread_mutex_unlock(&proc.lock);
}

void ustack_client_forsaken(void)
{
        pthread_mutex_init(&proc.lock, NULL);
}

void ustack_client_leave(void)
{
        unetd_leave(&proc.client);
}

/* Of a queue pair that another host is to know none but a unetd and a keeper can tell it. */
static bool has_links(void)
{
        FOR_USTACKS (u)
                if (ustack_links_any(u))
                        return true;
        return false;
}

/* The keeper finds or starts another unetd at once. Where there is none at the second look, it has
 * died, too. */
void ustack_daemon_look(void)
{
        struct unetd_client *c = ustack_client_try();

        if (c == NULL)
                return; /* somebody is asking it */
        ustack_note_room();
        if (proc.open)
                atomic_store(&proc.in_vain,
                             unetd_look(c, proc.in_vain > 0 && has_links()) == -ECONNREFUSED
                                     ? proc.in_vain + 1
                                     : 0);
        ustack_client_done();
}

void ustack_daemon_knows(void)
{
        struct unetd_client *c = ustack_client();

        if (proc.open)
                unetd_look(c, true);
        ustack_client_done();
}

bool ustack_stays_with_unetd(bool anyway)
{
        bool stays;

        ustack_client();
        proc.away |= anyway || proc.open;
        if (proc.away)
                proc.client.flags |= UNETD_NO_START;
        stays = proc.away;
        ustack_client_done();
        return stays;
}

bool ustack_is_told(const struct ustack *u)
{
        return atomic_load_explicit(&proc.in_vain, memory_order_relaxed) == 0 &&
               atomic_load_explicit(&proc.unetd, memory_order_relaxed) == u->s.st->unetd;
}

int ustack_daemon_fd(nstime *until)
{
        struct unetd_client *c = ustack_client_try();
        int fd = -1;

        if (c == NULL)
                return -1;
        if (proc.open)
                fd = c->pid == getpid() ? c->daemon.fd : -1;
        if (proc.open && fd <= 0)
                *until = nstime_min(*until, ustack_now() + DAEMON_EVERY);
        ustack_client_done();
        return fd > 0 ? fd : -1;
}
