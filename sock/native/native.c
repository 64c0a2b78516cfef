/* The native API: the table of sockets, their life, names and options. See native.h. */
#include "sock/attach/handle.h"
#include "sock/attach/ustack_daemon.h"
#include "sock/attach/ustack_directory.h"
#include "sock/native/native.h"
#include "sock/usock_ready.h"
#include "sock/usock_process.h"
#include "sock/usock_connect.h"
#include "sock/usock_dgram.h"
#include "sock/usock_option.h"
#include "tcp/tcp_watch.h"

#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/ioctl.h>

#define CHUNK      1024u
#define SOCK_TYPES 0xf   /* the bits of a type that are no flags */
#define CHUNKS     1024u /* 1,048,576 sockets a process */

static struct native_slot *_Atomic chunks[CHUNKS];
static uint32_t next_free; /* no slot below this is free */
static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* ---- the table ---- */

struct native_slot *native_get(int sock)
{
        struct native_slot *chunk, *n;

        if (unlikely((uint32_t)sock >= CHUNK * CHUNKS))
                return NULL;
        chunk = atomic_load_explicit(&chunks[(uint32_t)sock / CHUNK], memory_order_acquire);
        if (unlikely(chunk == NULL))
                return NULL;
        n = &chunk[(uint32_t)sock % CHUNK];
        if (likely(atomic_fetch_add_explicit(&n->use, 1, memory_order_acquire) & SLOT_OPEN))
                return n;
        native_put(n);
        return NULL;
}

static void slot_free(struct native_slot *n)
{
        assert(n->us == NULL && n->number >= 0);
        pthread_mutex_lock(&table_lock);
        next_free = MIN(next_free, (uint32_t)n->number);
        atomic_fetch_and_explicit(&n->use, ~SLOT_ENDING, memory_order_release);
        pthread_mutex_unlock(&table_lock);
}

/* The last process that has the socket gives its port back to the kernel. */
static bool last_holder(const struct usock *us)
{
        bool last;

        ustack_lock(us->u);
        last = sock_held_only_by(us->u->s.st, usock_rec(us), us->u->slot);
        ustack_leave(us->u);
        return last;
}

static uint8_t proto_of(const struct usock *us)
{
        return us->kind == USOCK_UDP ? IPPROTO_UDP : IPPROTO_TCP;
}

static void slot_end(struct native_slot *n)
{
        struct usock *us = n->us;
        struct ustack *u = us->u;
        bool release;
        uint8_t proto = proto_of(us);
        uint16_t port = READ_ONCE(usock_rec(us)->lport);

        assert(n->us != NULL);
        if (n->members != NULL)
                native_set_forget(n);
        release = n->held && last_holder(us);
        native_end_reserved(n);
        native_cookies_end(n);
        usock_close(us);
        if (release) {
                unetd_port_release(ustack_client(), u->id, proto, n->held_addr, port);
                ustack_client_done();
        }
        n->us = NULL;
        slot_free(n);
}

/* Whoever finds that nobody is left ends the socket; the CLOSING bit is taken by one of
 * them only. */
void native_put(struct native_slot *n)
{
        uint32_t closing = SLOT_CLOSING;

        if (likely(atomic_fetch_sub_explicit(&n->use, 1, memory_order_acq_rel) - 1 != closing))
                return;
        if (atomic_compare_exchange_strong(&n->use, &closing, SLOT_ENDING))
                slot_end(n);
}

static struct native_slot *chunk_at(uint32_t k)
{
        struct native_slot *chunk = atomic_load_explicit(&chunks[k], memory_order_relaxed);

        if (chunk != NULL)
                return chunk;
        chunk = calloc(CHUNK, sizeof *chunk);
        if (chunk == NULL)
                return NULL;
        for (uint32_t i = 0; i < CHUNK; i++) {
                chunk[i].number = (int)(k * CHUNK + i);
                pthread_mutex_init(&chunk[i].setup, NULL);
        }
        atomic_store_explicit(&chunks[k], chunk, memory_order_release);
        return chunk;
}

/* The lowest free slot, not open yet. */
static struct native_slot *slot_alloc(void)
{
        for (; next_free < CHUNK * CHUNKS; next_free++) {
                struct native_slot *chunk = chunk_at(next_free / CHUNK);
                if (chunk == NULL)
                        return NULL;
                if (atomic_load_explicit(&chunk[next_free % CHUNK].use, memory_order_acquire) == 0)
                        return &chunk[next_free++ % CHUNK];
        }
        return NULL;
}

int native_install(struct usock *us, bool nonblock)
{
        struct native_slot *n;

        assert(us != NULL);
        pthread_mutex_lock(&table_lock);
        n = slot_alloc();
        if (n != NULL) {
                n->us = us;
                usock_set_nonblock(us, nonblock);
                n->connecting = n->held = false;
                n->late_err = 0;
                n->members = NULL;
                n->seen = (struct tcp_watch_counts){0};
                atomic_fetch_add_explicit(&n->use, SLOT_OPEN + 1, memory_order_release);
        }
        pthread_mutex_unlock(&table_lock);
        if (n != NULL)
                return n->number;
        usock_close(us);
        return -EMFILE;
}

/* ---- the process ---- */

static void fork_prepare(void)
{
        pthread_mutex_lock(&table_lock);
        native_set_fork_prepare();
        usock_fork_prepare();
}

static void fork_parent(void)
{
        usock_fork_parent();
        native_set_fork_parent();
        pthread_mutex_unlock(&table_lock);
}

/* Only this thread lives: calls that others had under way will not come back. */
static void fork_child(void)
{
        usock_fork_child();
        native_set_fork_child();
        pthread_mutex_unlock(&table_lock);
        for (uint32_t k = 0; k < CHUNKS; k++) {
                struct native_slot *chunk = chunks[k];
                for (uint32_t i = 0; chunk != NULL && i < CHUNK; i++) {
                        chunk[i].use = chunk[i].use & SLOT_OPEN ? SLOT_OPEN + 1 : 0;
                        native_unreserve(&chunk[i]); /* the parent's */
                        native_cookies_end(&chunk[i]);
                        pthread_mutex_init(&chunk[i].setup, NULL);
                }
        }
}

static void start(void)
{
        native_find_calls();
        pthread_atfork(fork_prepare, fork_parent, fork_child);
        atexit(usock_exit);
}

int native_start(void)
{
        int err = 0;

        pthread_once(&once, start);
        return ustack_mine(&err) != NULL ? 0 : err;
}

/* ---- life ---- */

static int kind_of(int type, int protocol)
{
        if (type & ~(SOCK_TYPES | SOCK_NONBLOCK | SOCK_CLOEXEC) ||
            (type & SOCK_TYPES) > SOCK_PACKET || protocol < 0 || protocol >= IPPROTO_MAX)
                return -EINVAL;
        switch (type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC)) {
        case SOCK_STREAM:
                return protocol == 0 || protocol == IPPROTO_TCP ? USOCK_TCP : -EPROTONOSUPPORT;
        case SOCK_DGRAM:
                return protocol == 0 || protocol == IPPROTO_UDP ? USOCK_UDP : -EPROTONOSUPPORT;
        default:
                return -ESOCKTNOSUPPORT;
        }
}

static int do_socket(int domain, int type, int protocol)
{
        int kind = kind_of(type, protocol), err;
        struct usock *us;

        if (kind == -EINVAL)
                return kind;
        if (domain != AF_INET && domain != AF_INET6)
                return -EAFNOSUPPORT;
        if (kind < 0)
                return kind;
        if (native_is_elsewhere())
                return -EPERM;
        err = native_start();
        if (err != 0)
                return err;
        err = usock_open(kind, domain, -1, &us);
        if (err == -EOVERFLOW)
                err = -ENOMEM; /* RLIMIT_AS */
        return err != 0 ? err : native_install(us, type & SOCK_NONBLOCK);
}

int unet_socket(int domain, int type, int protocol)
{
        return (int)native_result(do_socket(domain, type, protocol));
}

/* Of a slot that the caller holds. 0; -EBADF: another thread has closed it. */
static int do_close(struct native_slot *n)
{
        uint32_t use = atomic_load(&n->use);

        while (use & SLOT_OPEN &&
               !atomic_compare_exchange_weak(&n->use, &use, (use & ~SLOT_OPEN) | SLOT_CLOSING))
                ;
        if (use & SLOT_OPEN)
                native_put(n);
        native_put(n);
        return use & SLOT_OPEN ? 0 : -EBADF;
}

int unet_close(int sock)
{
        struct native_slot *n = native_get(sock);

        if (n == NULL)
                return (int)native_result(-EBADF);
        usock_linger(n->us);
        return (int)native_result(do_close(n));
}

void native_close_all(void)
{
        for (uint32_t k = 0; k < CHUNKS && chunks[k] != NULL; k++)
                for (uint32_t i = 0; i < CHUNK; i++) {
                        struct native_slot *n = native_get((int)(k * CHUNK + i));
                        if (n != NULL)
                                do_close(n);
                }
}

void native_forsake_all(void)
{
        pthread_mutex_init(&table_lock, NULL);
        next_free = 0;
        for (uint32_t k = 0; k < CHUNKS && chunks[k] != NULL; k++)
                for (uint32_t i = 0; i < CHUNK; i++) {
                        struct native_slot *n = &chunks[k][i];

                        *n = (struct native_slot){.number = n->number};
                        pthread_mutex_init(&n->setup, NULL);
                }
        usock_forsake_all();
}

/* ---- names ---- */

static int set_name(struct native_slot *n, ip_addr addr, uint16_t port)
{
        struct sockaddr_storage ss;
        socklen_t len = sizeof ss;

        usock_addr_out(n->us->family, addr, port, (struct sockaddr *)&ss, &len);
        return usock_bind(n->us, (struct sockaddr *)&ss, len);
}

bool native_rule(struct native_slot *n)
{
        struct sockaddr_storage ss;
        socklen_t len = sizeof ss;

        return usock_getsockname(n->us, (struct sockaddr *)&ss, &len) == 0 &&
               usock_rule_listens(n->us->kind, (struct sockaddr *)&ss, len) != NULL;
}

/* The port is the kernel's word; then UDP is told to all stacks. */
static int bind_to(struct native_slot *n, ip_addr addr, uint16_t port)
{
        struct ustack *u = n->us->u;
        uint8_t proto = proto_of(n->us);
        int err = unetd_port_hold(ustack_client(), u->id, proto, addr, &port);

        ustack_client_done();
        if (err != 0)
                return err;
        err = set_name(n, addr, port);
        if (err == 0 && n->us->kind == USOCK_UDP)
                err = native_rule(n) ? -EACCES : usock_udp_register(n->us);
        n->held = err == 0;
        n->held_addr = addr;
        if (err != 0) {
                unetd_port_release(ustack_client(), u->id, proto, addr, port);
                ustack_client_done();
        }
        return err;
}

static int do_bind(struct native_slot *n, const struct sockaddr *sa, socklen_t len)
{
        uint16_t port;
        ip_addr addr;
        int err = native_name(sa, len);

        if (err == 0)
                err = usock_addr_in(sa, len, &addr, &port);
        if (err != 0)
                return err;
        if (sa->sa_family != n->us->family)
                return -EAFNOSUPPORT;
        if (n->us->kind == USOCK_TCP)
                err = usock_landlock_asked_to_bind(port);
        if (err != 0)
                return err < 0 ? err : -EMFILE;
        pthread_mutex_lock(&n->setup);
        err = usock_has_port(n->us) ? -EINVAL : bind_to(n, addr, port);
        pthread_mutex_unlock(&n->setup);
        return err;
}

int unet_bind(int sock, const struct sockaddr *addr, socklen_t len)
{
        struct native_slot *n = native_get(sock);

        return (int)native_done(n, n != NULL ? do_bind(n, addr, len) : -EBADF);
}

int native_autobind(struct native_slot *n)
{
        static const ip_addr any6;

        if (usock_has_port(n->us))
                return 0;
        return bind_to(n, n->us->family == AF_INET ? ip_addr_v4(INADDR_ANY) : any6, 0);
}

int native_nobody(int kind, const struct sockaddr *to, socklen_t len)
{
        const struct directory *dir = ustack_directory();
        uint16_t port;
        ip_addr addr;
        int err;

        if (usock_addr_in(to, len, &addr, &port) != 0)
                return -ENETUNREACH;
        if (dir == NULL)
                return -ECONNREFUSED;
        err = ustack_kernel_says(dir, kind == USOCK_TCP ? IPPROTO_TCP : IPPROTO_UDP, addr, port);
        if (err != 0)
                return err;
        return ip_addr_is_any(addr) || ustack_is_local(dir, addr) == 1 ? -ECONNREFUSED
                                                                       : -ENETUNREACH;
}

static int name_call(int sock, struct sockaddr *addr, socklen_t *len,
                     int (*get)(struct usock *, struct sockaddr *, socklen_t *))
{
        struct native_slot *n = native_get(sock);
        struct sockaddr_storage ss;
        socklen_t whole = sizeof ss;
        int err = n != NULL ? get(n->us, (struct sockaddr *)&ss, &whole) : -EBADF;

        if (err == 0 && (len == NULL || (addr == NULL && *len > 0)))
                err = -EFAULT;
        else if (err == 0)
                err = (int)*len < 0 ? -EINVAL : get(n->us, addr, len);
        return (int)native_done(n, err);
}

int unet_getsockname(int sock, struct sockaddr *addr, socklen_t *len)
{
        return name_call(sock, addr, len, usock_getsockname);
}

int unet_getpeername(int sock, struct sockaddr *addr, socklen_t *len)
{
        return name_call(sock, addr, len, usock_getpeername);
}

/* ---- options ---- */

int unet_setsockopt(int sock, int level, int name, const void *val, socklen_t len)
{
        struct native_slot *n = native_get(sock);
        int err = n == NULL ? -EBADF
                  : val == NULL && len >= sizeof(int)
                          ? -EFAULT
                          : usock_setsockopt(n->us, level, name, val, len);

        return (int)native_done(n, err);
}

int unet_getsockopt(int sock, int level, int name, void *val, socklen_t *len)
{
        struct native_slot *n = native_get(sock);
        int err = n == NULL ? -EBADF
                  : len == NULL || (val == NULL && *len > 0)
                          ? -EFAULT
                          : usock_getsockopt(n->us, level, name, val, len);

        return (int)native_done(n, err);
}

int unet_ioctl(int sock, unsigned long request, int *arg)
{
        struct native_slot *n = native_get(sock);
        int err = 0;

        if (n == NULL || arg == NULL)
                err = n == NULL ? -EBADF : -EFAULT;
        else if (request == FIONBIO)
                usock_set_nonblock(n->us, *arg != 0);
        else
                err = usock_ioctl(n->us, request, arg);
        return (int)native_done(n, err);
}

int unet_set_nonblock(int sock, int on)
{
        return unet_ioctl(sock, FIONBIO, &on);
}

int unet_get_nonblock(int sock)
{
        struct native_slot *n = native_get(sock);

        return (int)native_done(n, n != NULL ? usock_nonblock(n->us) : -EBADF);
}

/* ---- waiting ---- */

static nstime left_until(nstime deadline)
{
        return deadline == NSTIME_NEVER ? -1 : MAX(deadline - ustack_now(), 0);
}

int native_wait(struct native_slot *n, short events, nstime deadline)
{
        nstime left = left_until(deadline);

        return left == 0 ? -EAGAIN : usock_wait1(n->us, events, left);
}

int native_wait_recv(struct native_slot *n, nstime deadline, const struct iovec *to, int flags,
                     ssize_t *got)
{
        nstime left = left_until(deadline);

        return left == 0 ? -EAGAIN : usock_wait_recv(n->us, USOCK_POLL_SOME, left, to, flags, got);
}

/* ---- structs that grow ---- */

static bool is_zero(const char *p, size_t n)
{
        for (size_t i = 0; i < n; i++)
                if (p[i] != 0)
                        return false;
        return true;
}

int native_take_struct(void *ours, size_t size, size_t first, const void *theirs)
{
        uint32_t n;

        assert(first >= sizeof n && first <= size);
        if (theirs == NULL)
                return -EFAULT;
        memcpy(&n, theirs, sizeof n);
        if (n < first || n > NATIVE_STRUCT_MOST ||
            (n > size && !is_zero((const char *)theirs + size, n - size)))
                return -EINVAL;
        memset(ours, 0, size);
        memcpy(ours, theirs, MIN(n, size));
        return 0;
}

void native_give_struct(const void *ours, size_t size, void *theirs)
{
        uint32_t n;

        assert(size >= sizeof n);
        memcpy(&n, theirs, sizeof n);
        memcpy((char *)theirs + sizeof n, (const char *)ours + sizeof n, MIN(n, size) - sizeof n);
}
