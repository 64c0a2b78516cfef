/*
 * Sockets' entries in unetd's directory: listeners, UDP ports, and who sends from a port that it
 * was bound to.
 *
 * Sockets of one stack that share a port (SO_REUSEADDR: one connected, the next one waiting for
 * strangers) share its entry, but for TCP listeners. Who is the first of them and who the last is
 * told from their records, under the stack's lock; unetd is asked without it. The client's lock is
 * held from the one to the other, so that no thread takes out of the directory what another has
 * just found there.
 */
#include "sock/attach/handle.h"
#include "sock/attach/ustack.h"
#include "sock/attach/ustack_chan.h"
#include "sock/attach/ustack_daemon.h"
#include "sock/usock_process.h"
#include "tcp/tcp_listen.h"

#include <errno.h>

bool ustack_shares_port(struct ustack *u, const struct sock_rec *rec, uint32_t dying)
{
        assert(dying <= STACK_PROCS);
        if (ustack_entry_sock(rec) != 0)
                return false;
        FOR_SOCKS (u->s.st, i, r) {
                if (r != rec && r->registered == rec->registered && r->kind == rec->kind &&
                    r->lport == rec->lport && ip_addr_eq(r->reg_addr, rec->reg_addr) &&
                    (dying == STACK_PROCS ? sock_held(r) : sock_held_besides(u->s.st, r, dying)))
                        return true;
        }
        return false;
}

static struct sock_entry entry_of(const struct sock_rec *rec)
{
        return (struct sock_entry){.proto = ustack_entry_proto(rec),
                                   .addr = rec->reg_addr,
                                   .port = rec->lport,
                                   .sock = ustack_entry_sock(rec)};
}

/* Under the lock. True: unetd is to be asked for `e`, and then the record says what it has. */
static bool begin(struct ustack *u, struct sock_rec *rec, enum sock_registered as,
                  struct sock_entry *e)
{
        assert(ustack_locked(u));
        assert(as == SOCK_TAKES || as == SOCK_SENDS);
        assert(rec->registered == SOCK_UNREGISTERED);
        rec->reg_addr = rec->laddr; /* as the kernel's socket has it, which unetd looks at */
        WRITE_ONCE(rec->registered, as);
        *e = entry_of(rec);
        if (ustack_shares_port(u, rec, STACK_PROCS))
                return false;
        WRITE_ONCE(rec->registered, SOCK_UNREGISTERED);
        return true;
}

bool usock_settle(struct usock *s)
{
        struct sock_rec *rec = usock_rec(s);
        uint8_t proto = s->kind == USOCK_UDP ? IP_PROTO_UDP : IP_PROTO_TCP;
        ip_addr addr;
        uint16_t port;
        int err;

        assert(!ustack_locked(s->u));
        if (usock_kfd(s) < 0)
                return false;
        ustack_lock(s->u);
        addr = rec->laddr;
        port = rec->lport;
        ustack_leave(s->u);
        err = unetd_port_settle(ustack_client(), proto, addr, port);
        ustack_client_done();
        return err == 0 || err == -ENOENT; /* nobody has it: not any more, maybe */
}

static int register_once(struct usock *s, enum sock_registered as, uint8_t role)
{
        struct unetd_client *c = ustack_client();
        struct ustack *u = s->u;
        struct sock_rec *rec = usock_rec(s);
        struct sock_entry e;
        bool asks = false;
        int err = 0;

        ustack_lock(u);
        if (rec->role != role)
                err = -EALREADY; /* another thread was quicker to make something else of it */
        else if (rec->registered == SOCK_UNREGISTERED)
                asks = begin(u, rec, as, &e);
        ustack_leave(u);
        if (asks) {
                err = unetd_listen_add(c, u->id, e.proto, e.addr, e.port, e.sock, usock_kfd(s));
                ustack_lock(u);
                WRITE_ONCE(rec->registered, err == 0 ? as : SOCK_UNREGISTERED);
                ustack_leave(u);
        }
        ustack_client_done();
        return err;
}

int usock_register(struct usock *s, enum sock_registered as, uint8_t role)
{
        int err = register_once(s, as, role);

        if (unlikely(err == -EADDRINUSE) && usock_settle(s))
                err = register_once(s, as, role);
        ustack_note_limit(s->u, err);
        return err;
}

struct sock_entry ustack_entry_end(struct ustack *u, struct sock_rec *rec)
{
        struct sock_entry e = entry_of(rec);

        assert(ustack_locked(u));
        e.last = rec->registered != SOCK_UNREGISTERED && !ustack_shares_port(u, rec, STACK_PROCS);
        if (rec->role == SOCK_ROLE_LISTENER)
                tcp_listen_forget(&u->s.tcp);
        WRITE_ONCE(rec->registered, SOCK_UNREGISTERED);
        return e;
}

void ustack_entry_del(struct ustack *u, const struct sock_entry *e)
{
        assert(!ustack_locked(u));
        if (e->last)
                unetd_listen_del(ustack_client_held(), u->id, e->proto, e->addr, e->port, e->sock);
}

static void unregister(struct usock *s, enum sock_registered as)
{
        struct ustack *u = s->u;
        struct sock_rec *rec = usock_rec(s);
        struct sock_entry e = {.last = false};

        assert(!ustack_locked(u));
        if (READ_ONCE(rec->registered) != as)
                return;
        ustack_client();
        ustack_lock(u);
        if (rec->registered == as)
                e = ustack_entry_end(u, rec);
        ustack_leave(u);
        ustack_entry_del(u, &e);
        ustack_client_done();
}

void usock_unregister_sender(struct usock *s)
{
        unregister(s, SOCK_SENDS);
}

void usock_withdraw(struct usock *s)
{
        unregister(s, SOCK_TAKES);
}
