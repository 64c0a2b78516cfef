/*
 * fork, exec and exit (design.md decision 2). The stack is in shared memory: a child goes on with the same connections,
 * under a process slot of its own; the references of its parent's slot are copied before either runs on. Nobody dies
 * with the lock held for want of asking: fork and exit take it first.
 */
#include "sock/ustack.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static struct {
        struct ustack *all[USTACKS_MAX];
        uint32_t n;
        int slot[USTACKS_MAX];          /* reserved for the child, -1: none free */
} forking;

static int reserve_slot(struct stack_state *st)
{
        for (uint32_t i = 0; i < STACK_PROCS; i++) {
                uint32_t none = 0;
                if (atomic_compare_exchange_strong(&st->proc[i].pid, &none, UINT32_MAX))
                        return (int)i;
        }
        return -1;
}

static void copy_refs(struct ustack *u, uint32_t from, uint32_t to)
{
        struct pool *p = &u->s.st->socks;

        for (uint32_t i = 1; i < p->fresh; i++) {
                struct sock_rec *rec = pool_at(p, i);
                if (rec->refs >> from & 1)
                        rec->refs |= 1ull << to;
        }
}

void usock_fork_prepare(void)
{
        ustack_client();                /* nobody is in the middle of a question to unetd */
        forking.n = ustack_all(forking.all);
        for (uint32_t i = 0; i < forking.n; i++) {
                struct ustack *u = forking.all[i];
                ustack_lock(u);
                forking.slot[i] = reserve_slot(u->s.st);
                if (forking.slot[i] >= 0)
                        copy_refs(u, u->slot, (uint32_t)forking.slot[i]);
        }
}

void usock_fork_parent(void)
{
        for (uint32_t i = 0; i < forking.n; i++)
                ustack_leave(forking.all[i]);
        ustack_client_done();
}

/* The locks are the parent's, which lets go of them; the client of unetd opens its own connections by itself. */
void usock_fork_child(void)
{
        ustack_client_forked();
        usock_wait_forked();
        for (uint32_t i = 0; i < forking.n; i++) {
                struct ustack *u = forking.all[i];
                if (forking.slot[i] < 0) {
                        u->slot = STACK_PROCS - 1;
                        continue;
                }
                u->slot = (uint32_t)forking.slot[i];
                atomic_store(&u->s.st->proc[u->slot].pid, (uint32_t)getpid());
                unetd_proc_add(ustack_client(), u->id, u->slot, 0);
                ustack_client_done();
        }
}

/* The process ends: no thread may die inside. The keeper sees the pidfd and does the rest. */
void usock_exit(void)
{
        struct ustack *all[USTACKS_MAX];
        uint32_t n = ustack_all(all);

        for (uint32_t i = 0; i < n; i++) {
                ustack_lock(all[i]);
                stack_run(&all[i]->s, ustack_now());
                stack_flush_acks(&all[i]->s, ustack_now());
                ustack_leave(all[i]);
        }
}

/* The image is replaced; the pid and its slot stay, and so do references of descriptors that survive. */
void usock_exec(void)
{
        usock_exit();
}
