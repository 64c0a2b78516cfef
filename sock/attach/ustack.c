/*
 * A process's stacks: making one, mapping somebody else's, and the way in and out. Channels:
 * ustack_chan.c; interfaces and addresses: ustack_iface.c.
 *
 * Going out matters as much as going in. Where no thread leads, a thread that leaves sets the bell
 * to UNATTENDED, so that a message that comes now wakes the keeper. For a while after it was woken
 * the keeper looks every few milliseconds anyway (st->ticking), and then the bell is left alone. So
 * a stream costs no system call either way. The bell stays so while processes come and go: a
 * message that comes while one is inside may wake the keeper in vain, once for each time that it
 * went to rest.
 */
#include "sock/attach/handle.h"
#include "sock/attach/ustack.h"
#include "sock/attach/ustack_chan.h"
#include "sock/attach/ustack_directory.h"
#include "sock/attach/ustack_levels.h"
#include "sock/attach/ustack_link.h"
#include "sock/attach/ustack_wake.h"
#include "sock/attach/ustack_way.h"
#include "sock/usock_process.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "base/sandbox.h"
#include "base/sys.h"
#include "unet/bell_fd.h"
#include "unetd/client/client_ask.h"
#include "unetd/client/sys.h"
#include "unetd/client/timens.h"
#include "unetd/client/wire.h"
#include "base/clock.h"

#define DAEMON_EVERY    NS_PER_S /* a sleeper without a unetd looks for one so often */
#define YIELDS          8        /* to a unetd that is writing its directory */
#define SLOT_TRIES      100      /* as many as a child of fork() makes */
#define REFUSED_MOST_MS 60000    /* after a refusal, until unetd is asked again */

/* unetd hands stacks from one process to another, so that its name has to differ where their
 * layout does. */
static_assert(UNETD_ABI == STACK_ABI, "a new layout of stacks is a new name of unetd's");

static struct {
        pthread_mutex_t lock; /* of this struct and the client */
        struct unetd_client client;
        bool open;
        bool away; /* in another network namespace: no unetd is started from there */
        const struct ustack *held; /* whose lock has whoever uses the client */
        _Atomic uint32_t in_vain;  /* looks for another unetd */
        /* The client's, which stays where it is, or the keeper's; read without the lock. */
        const struct directory *_Atomic dir;
        struct ustack *stack[USTACKS_MAX];
        _Atomic uint32_t nstacks;
        _Atomic pid_t pid; /* who has come to them */
        /* 1; 0 in a child with memory of its own that has not come to them. NULL: not known. */
        _Atomic uint32_t *_Atomic here;
        _Atomic uint64_t unetd; /* client.instance, to be read without the lock */
        _Atomic(struct ustack *) mine;
        int64_t ask_from; /* ms; unetd gave none: it is not asked before */
        int refused;      /* what it said */
} proc = {.lock = PTHREAD_MUTEX_INITIALIZER};

nstime ustack_now(void)
{
        return clock_now() - timens.monotonic;
}

uint64_t ustack_boot_ms(void)
{
        struct timespec ts;

        clock_read(CLOCK_BOOTTIME, &ts);
        return (uint64_t)(ts.tv_sec * NS_PER_S + ts.tv_nsec - timens.boot) / NS_PER_MS;
}

/* ---- unetd ---- */

/* A library in front of libc may tell the program another time (faketime(1)). What is
 * waited for takes as long as over the kernel all the same, and the stack's keeper knows of
 * no such library. */
static void find_clock(void)
{
        void *libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
        int (*own)(clockid_t, struct timespec *) = NULL;

        if (libc == NULL)
                return;
        *(void **)&own = dlsym(libc, "clock_gettime");
        if (own != NULL && own != clock_read)
                __atomic_store_n(&clock_read, own, __ATOMIC_RELAXED);
        dlclose(libc);
}

static int client_open(unsigned flags)
{
        int err;

        if (proc.open)
                return 0;
        find_clock();
        err = unetd_open(&proc.client, flags | (proc.away ? UNETD_NO_START : 0));
        proc.client.flags = proc.away ? UNETD_NO_START : 0;
        proc.open = err == 0;
        if (proc.open) {
                atomic_store_explicit(&proc.dir, proc.client.dir, memory_order_release);
                atomic_store(&proc.unetd, proc.client.instance);
        }
        return err;
}

/* A child that came to its stacks while unetd could not be reached says so now. */
static void make_known(void)
{
        for (uint32_t i = 0; i < proc.nstacks; i++) {
                struct ustack *u = proc.stack[i];
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

void ustack_client_forked(void)
{
        atomic_store(&proc.pid, getpid());
        if (proc.here != NULL)
                *proc.here = 1;
        pthread_mutex_unlock(&proc.lock); /* locked before the fork, by the thread that is left */
}

const struct directory *ustack_directory(void)
{
        return atomic_load_explicit(&proc.dir, memory_order_acquire);
}

static const struct directory *directory_by(unsigned flags)
{
        const struct directory *dir = ustack_directory();

        if (dir == NULL) {
                pthread_mutex_lock(&proc.lock);
                client_open(flags);
                pthread_mutex_unlock(&proc.lock);
                dir = ustack_directory();
        }
        return dir;
}

const struct directory *ustack_directory_anyway(void)
{
        return directory_by(0);
}

const struct directory *ustack_directory_if_any(void)
{
        return directory_by(UNETD_NO_START);
}

/* Returns true if another user's stack may speak for a port (struct stack, vouch). */
static bool ustack_vouch(struct stack *s, uint32_t k, uint8_t proto, ip_addr addr, uint16_t port)
{
        const struct directory *dir = ustack_directory();
        int vouches = -EAGAIN;

        if (s->st->chan[k].remote != 0)
                return ustack_remote_vouches(s, k, proto, port);
        for (int tries = 0; dir != NULL && tries < YIELDS && vouches == -EAGAIN; tries++) {
                vouches = directory_vouches(dir, proto, addr, port, s->st->chan[k].peer);
                if (unlikely(vouches == -EAGAIN))
                        sandbox_yield(); /* no longer than so: the stack's lock is held */
        }
        return vouches == 1;
}

#define PLACES 16u /* of several that have a port, as many are looked at */

/* Returns true if a UDP port is also another stack's, by the directory (struct stack, elsewhere).
 */
static bool ustack_elsewhere(struct stack *s, uint32_t k, ip_addr addr, uint16_t port)
{
        struct dir_hit hit;

        for (uint32_t i = 0; i < PLACES; i++)
                if (!ustack_lookup(IP_PROTO_UDP, addr, port, i, &hit))
                        return false;
                else if (hit.stack != s->st->chan[k].peer)
                        return true;
        return false;
}

bool ustack_lookup(uint8_t proto, ip_addr addr, uint16_t port, uint32_t hint, struct dir_hit *hit)
{
        const struct directory *dir = ustack_directory();
        int found = -EAGAIN;

        for (int tries = 0; dir != NULL && tries < YIELDS && found == -EAGAIN; tries++) {
                found = directory_lookup(dir, proto, addr, port, hint, hit);
                if (found == -EAGAIN)
                        sandbox_yield();
        }
        return found == 1;
}

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

/* Its number is another's: from here on it is nobody's but ours, as after ustack_lose(). */
static void disown(struct ustack *u)
{
        u->id = 0;
        if (proc.mine == u)
                atomic_store_explicit(&proc.mine, NULL, memory_order_release);
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
        for (uint32_t i = 0; i < proc.nstacks; i++) {
                struct ustack *u = proc.stack[i];
                int err;

                if (u->id == 0)
                        continue; /* nobody's but ours: ustack_lose() */
                err = unetd_stack_new(c, &u->fds, u->slot, &u->id);
                if (u != proc.held)
                        ustack_lock(u);
                if (err == -EEXIST)
                        disown(u);
                else
                        stack_again(c, u);
                if (u != proc.held)
                        ustack_leave(u);
        }
}

/* Of a queue pair that another host is to know none but a unetd and a keeper can tell it. */
static bool has_links(void)
{
        for (uint32_t i = 0; i < proc.nstacks; i++)
                if (ustack_links_any(proc.stack[i]))
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

/* ---- memory ---- */

void ustack_set_directory(int fd)
{
        const struct directory *dir = ustack_map(fd, sizeof *dir, PROT_READ);

        sys1(SYS_close, fd);
        ustack_unmap(atomic_exchange(&proc.dir, dir), sizeof *dir);
}

/* ---- the lock ---- */

static void entered(struct ustack *u)
{
        stack_sync(&u->s);
        ustack_follow(u);
}

static void repair(struct ustack *u)
{
        assert(ustack_locked(u));
        if (u->s.st->leader == 0)
                /* Whoever armed it may not have lived to look at the queues. */
                bell_disarm(u->s.bell);
        stack_recover(&u->s, ustack_now());
        ustack_ways_repair(u);
        ustack_look_again(u);
}

bool ustack_trylock(struct ustack *u)
{
        int err = rlock_trylock(&u->s.st->lock);

        if (unlikely(err == -EOWNERDEAD)) {
                repair(u);
                err = 0;
        }
        return err == 0;
}

void ustack_lock(struct ustack *u)
{
        if (unlikely(rlock_lock(&u->s.st->lock) == -EOWNERDEAD))
                repair(u);
        entered(u);
}

void ustack_unlock(struct ustack *u)
{
        ustack_levels_check(u);
        if (unlikely(u->nwakes != 0 || u->bells.n != 0))
                ustack_unlock_and_wake(u);
        else
                rlock_unlock(&u->s.st->lock);
}

/* Whether a timer is due before anybody looks in who sleeps. */
static bool oversleeps(struct ustack *u)
{
        const struct stack_state *st = u->s.st;
        nstime due = stack_deadline(&u->s);

        return due < st->keeper_at && (st->leader == 0 || due < st->leader_at);
}

/* Nobody is inside from here on. Where nobody leads and the bell was not armed all the time,
 * messages that came meanwhile would be noticed by nobody; and timers, where who leads fell asleep
 * before there were any. So the keeper is rung. */
void ustack_leave(struct ustack *u)
{
        struct stack_state *st = u->s.st;
        bool ring = false;

        if (u->s.nchan != 0 && !atomic_load_explicit(&st->ticking, memory_order_relaxed)) {
                bool looked =
                        st->leader != 0 || bell_is_armed(u->s.bell, BELL_UNATTENDED, st->rests);
                if (!looked) {
                        stack_arm(&u->s);
                        bell_arm_count(u->s.bell, BELL_UNATTENDED, st->rests);
                }
                ring = st->rung != st->rests &&
                       ((!looked && stack_pending(&u->s, 0)) || oversleeps(u));
                if (ring)
                        st->rung = st->rests;
        }
        ustack_unlock(u);
        if (unlikely(ring))
                bell_ring(u->fds.ring_keeper);
}

/* Turns: of a stream that goes on there is no end. */
#define CATCH_UP 8

void ustack_catch_up(struct ustack *u)
{
        for (int i = 0; i < CATCH_UP && stack_has_work(&u->s, 0); i++) {
                stack_run(&u->s, ustack_now());
                stack_flush_acks(&u->s, ustack_now());
        }
}

/* ---- making and mapping ---- */

int ustack_take_slot(struct stack_state *st, uint32_t pid)
{
        assert(pid != 0);
        for (uint32_t i = 0; i < STACK_PROCS; i++) {
                uint32_t none = 0;
                if (i == SOCK_REF_FLIGHT ||
                    !atomic_compare_exchange_strong(&st->proc[i].pid, &none, pid))
                        continue;
                st->proc[i].start = ustack_boot_ms();
                atomic_store(&st->proc[i].unknown, 0);
                if (i >= stack_procs(st))
                        atomic_store_explicit(&st->procs, i + 1, memory_order_release);
                return (int)i;
        }
        return -ENOSPC;
}

static void let_go(struct ustack *u)
{
        ustack_detach(u);
        unetd_stack_fds_close(&u->fds);
}

static void ustack_free(struct ustack *u)
{
        let_go(u);
        free(u);
}

static int map_state(struct ustack *u)
{
        struct stack_state *st = ustack_map(u->fds.state, u->bytes, PROT_READ | PROT_WRITE);
        struct bell *bell = ustack_map(u->fds.bell, BELL_BYTES, PROT_READ | PROT_WRITE);

        u->s.st = st;
        u->s.bell = bell;
        return st != NULL && bell != NULL ? 0 : -ENOMEM;
}

bool ustack_map_memory(struct ustack *u)
{
        assert(ustack_locked(u));
        if (u->s.memory == NULL)
                u->s.memory = ustack_map_end(NULL, u->fds.state, FRAME_NAMED_BYTES,
                                             PROT_READ | PROT_WRITE);
        return u->s.memory != NULL;
}

static int view(struct ustack *u)
{
        int err = stack_view_init(&u->s, u->s.st, u->bytes, u->s.bell);

        u->s.owner = u;
        u->s.map_chan = ustack_chan_fetch;
        u->s.unmap_chan = ustack_chan_over;
        u->s.event = ustack_event;
        u->s.vouch = ustack_vouch;
        u->s.elsewhere = ustack_elsewhere;
        u->s.promiser = ustack_promiser;
        u->s.lives = ustack_lives;
        if (err == 0)
                ustack_levels_begin(u);
        return err;
}

/* `unet pcap PROGRAM`: from the first packet on. */
static void capture_if_asked(struct ustack *u)
{
        const char *snap = getenv("UNET_CAPTURE");

        if (snap)
                atomic_store(&u->s.capture->snap, (uint32_t)strtoul(snap, NULL, 10));
}

/* A stack of this process with so many channels at most, with a bell, a process slot, and nobody
 * who knows it. */
static struct ustack *make(uint32_t room, int *err)
{
        struct ustack *u = calloc(1, sizeof *u);
        struct stack_limits l;
        uint8_t seed[32];

        *err = -ENOMEM;
        if (u == NULL)
                return NULL;
        ustack_limits(&l);
        u->bytes = stack_file_bytes(&l) - FRAME_NAMED_BYTES;
        *err = unetd_stack_fds_make(&u->fds, stack_file_bytes(&l));
        if (*err != 0) {
                free(u);
                return NULL;
        }
        *err = map_state(u);
        if (*err == 0 && getrandom(seed, sizeof seed, 0) != sizeof seed)
                *err = -EIO;
        if (*err == 0) {
                stack_format(u->s.st, &l, seed, ustack_now());
                u->s.st->uid = geteuid();
                u->s.st->chan_room = MIN(room, l.chans);
                u->wakes_late = true;
                *err = view(u);
        }
        if (*err == 0)
                capture_if_asked(u);
        if (*err == 0) {
                u->slot = (uint32_t)ustack_take_slot(u->s.st, (uint32_t)getpid());
                return u;
        }
        ustack_free(u);
        return NULL;
}

static struct ustack *make_registered(int *err)
{
        uint32_t room = ustack_room();
        struct ustack *u;

        *err = room == 0 ? -EOVERFLOW : client_open(0);
        if (*err != 0)
                return NULL;
        proc.client.renewed = renewed;
        u = make(room, err);
        if (u == NULL)
                return NULL;
        *err = unetd_stack_new(&proc.client, &u->fds, u->slot, &u->id);
        u->s.st->id = u->id;
        u->s.st->unetd = proc.client.instance;
        if (*err == 0) {
                atomic_store(&u->s.st->proc[u->slot].pid, (uint32_t)proc.client.self);
                return u;
        }
        ustack_free(u);
        return NULL;
}

/* By which peers are rung; in the network namespace where unetd was found. */
static void call_by_name(void)
{
        int fd;

        if (atomic_load(&bell_caller) >= 0)
                return;
        fd = bell_caller_new();
        if (fd >= 0)
                atomic_store(&bell_caller, fd_high(fd));
}

/* Makes the word that the kernel empties in the child of any fork. */
static void note_here(void)
{
        void *p = proc.here != NULL ? MAP_FAILED
                                    : mmap(NULL, sizeof *proc.here, PROT_READ | PROT_WRITE,
                                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        if (p == MAP_FAILED)
                return;
        if (madvise(p, sizeof *proc.here, MADV_WIPEONFORK) < 0) {
                munmap(p, sizeof *proc.here);
                return;
        }
        atomic_store(&proc.here, p);
        *proc.here = 1;
}

static void remember(struct ustack *u)
{
        uint32_t n = proc.nstacks;

        note_here();
        proc.stack[n] = u;
        atomic_store(&proc.pid, getpid());
        atomic_store_explicit(&proc.nstacks, n + 1, memory_order_release);
        call_by_name();
        ustack_note_room();
}

/* A process that was refused a stack spends a tenth of its time on asking again, and asks after a
 * minute at the latest. An answer may take seconds, and each of its sockets would wait for one.
 * Meanwhile its sockets are the kernel's. The kernel says the time: the first question may find
 * ustack_now() another clock. */
static struct ustack *ask_for_one(int *err)
{
        int64_t begin = sys_now_ms();
        struct ustack *u;

        *err = proc.refused;
        if (begin < proc.ask_from)
                return NULL;
        u = make_registered(err);
        if (u == NULL) {
                int64_t end = sys_now_ms();
                proc.refused = *err;
                proc.ask_from = end + MIN(9 * (end - begin), REFUSED_MOST_MS);
        }
        return u;
}

struct ustack *ustack_mine(int *err)
{
        struct ustack *u = atomic_load_explicit(&proc.mine, memory_order_acquire);

        if (likely(u != NULL))
                return u;
        pthread_mutex_lock(&proc.lock);
        u = proc.mine;
        *err = -ENOSPC;
        if (u == NULL && proc.nstacks < USTACKS_MAX) {
                u = ask_for_one(err);
                if (u != NULL) {
                        remember(u);
                        atomic_store_explicit(&proc.mine, u, memory_order_release);
                }
        }
        pthread_mutex_unlock(&proc.lock);
        return u;
}

void ustack_lose(struct ustack *u)
{
        int err;
        struct ustack *mine = make(STACK_CHANS, &err);

        if (mine == NULL)
                abort(); /* two processes would be one in the books of the stack */
        usock_move_handles(u, mine);
        for (uint32_t i = 0; i < proc.nstacks; i++)
                if (proc.stack[i] == u)
                        proc.stack[i] = mine;
        if (proc.mine == u)
                proc.mine = NULL;
        ustack_free(u);
}

void ustack_is_unknown(struct ustack *u)
{
        atomic_store(&u->s.st->proc[u->slot].unknown, 1);
        atomic_store(&u->s.st->any_unknown, 1);
        bell_ring(u->fds.ring_keeper);
}

static void forget_all(void (*end)(struct ustack *u))
{
        uint32_t n = atomic_exchange(&proc.nstacks, 0);

        atomic_store(&proc.mine, NULL);
        for (uint32_t i = 0; i < n; i++)
                end(proc.stack[i]);
        unetd_leave(&proc.client);
        if (atomic_load(&bell_caller) >= 0)
                sys1(SYS_close, atomic_exchange(&bell_caller, -1));
}

void ustack_forget_all(void)
{
        forget_all(ustack_free);
}

/* Another thread of the parent's may have had the locks, malloc()'s among them. */
void ustack_forsake_all(void)
{
        pthread_mutex_init(&proc.lock, NULL);
        forget_all(let_go);
        *proc.here = 1;
}

uint32_t ustack_all(struct ustack *out[USTACKS_MAX])
{
        uint32_t n = atomic_load_explicit(&proc.nstacks, memory_order_acquire);

        memcpy(out, proc.stack, n * sizeof *out);
        return n;
}

bool ustack_has_any(void)
{
        return atomic_load_explicit(&proc.nstacks, memory_order_acquire) != 0 &&
               atomic_load(&proc.pid) == getpid() && !ustack_has_parents();
}

bool ustack_has_parents(void)
{
        return atomic_load_explicit(&proc.nstacks, memory_order_acquire) != 0 &&
               proc.here != NULL && *proc.here == 0;
}

int ustack_attach(struct ustack *u, uint32_t id, const struct unetd_stack_fds *fds)
{
        long bytes = sys3(SYS_lseek, fds->state, 0, SEEK_END);
        int err;

        if (bytes <= (long)FRAME_NAMED_BYTES)
                return bytes < 0 ? (int)bytes : -EPROTO;
        u->fds = *fds;
        u->id = id;
        u->bytes = (size_t)bytes - FRAME_NAMED_BYTES;
        err = map_state(u);
        if (err == 0)
                err = view(u);
        u->fds = (struct unetd_stack_fds){-1, -1, -1, -1, -1, -1};
        if (err != 0)
                ustack_detach(u);
        return err;
}

void ustack_detach(struct ustack *u)
{
        ustack_levels_end(u);
        for (uint32_t k = 0; k < STACK_CHANS; k++)
                ustack_chan_unmap(u, k);
        ustack_links_unmap(u);
        if (u->s.frames != NULL)
                stack_view_fini(&u->s);
        ustack_unmap(u->s.memory, FRAME_NAMED_BYTES);
        ustack_unmap(u->s.st, u->bytes);
        ustack_unmap(u->s.bell, BELL_BYTES);
}

/* One that unetd knows to be ours. It may know the last process that had it for a moment longer.
 * The keeper may not have seen yet that others are dead. So unetd is asked again, a millisecond
 * later. */
static int take_known_slot(struct ustack *u)
{
        const struct timespec ms = {.tv_nsec = NS_PER_MS};
        int err = 0;

        for (int tries = 0; tries < SLOT_TRIES; tries++) {
                int slot = ustack_take_slot(u->s.st, (uint32_t)getpid());
                err = slot < 0 ? slot : unetd_proc_add(&proc.client, u->id, (uint32_t)slot, 0);
                if (err == 0)
                        u->slot = (uint32_t)slot;
                if (slot >= 0)
                        atomic_store(&u->s.st->proc[slot].pid,
                                     err == 0 ? (uint32_t)proc.client.self : 0);
                if (err != -EBUSY && err != -ENOSPC)
                        break;
                sys4(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &ms, NULL);
        }
        return err;
}

/* Maps a stack whose descriptors the keeper gave; takes them. */
static struct ustack *map_given(const struct unetd_stack_fds *fds, uint32_t id, int *err)
{
        struct ustack *u = calloc(1, sizeof *u);
        off_t bytes = lseek(fds->state, 0, SEEK_END);

        *err = -ENOMEM;
        if (u == NULL || bytes <= (off_t)FRAME_NAMED_BYTES)
                return free(u), NULL;
        u->fds = *fds;
        u->id = id;
        u->bytes = (size_t)bytes - FRAME_NAMED_BYTES;
        u->wakes_late = true;
        *err = map_state(u);
        if (*err == 0)
                *err = view(u);
        if (*err == 0)
                *err = take_known_slot(u);
        if (*err == 0)
                return u;
        ustack_free(u);
        return NULL;
}

static struct ustack *map_another(struct unetd_stack_fds *fds, uint32_t id, int *err)
{
        struct ustack *u = NULL;

        *err = -ENOSPC;
        if (proc.nstacks < USTACKS_MAX)
                u = map_given(fds, id, err);
        else
                unetd_stack_fds_close(fds);
        if (u != NULL)
                remember(u);
        return u;
}

/* One that is mapped. It may not have known the socket when it was asked: in the process that
 * shares it, it has just been given one. */
static struct ustack *with_id(uint32_t id)
{
        for (uint32_t i = 0; i < proc.nstacks; i++)
                if (proc.stack[i]->id == id)
                        return proc.stack[i];
        return NULL;
}

struct ustack *ustack_adopt(uint64_t cookie, int *err)
{
        struct unetd_stack_fds fds;
        struct ustack *u = NULL;
        uint32_t id;

        pthread_mutex_lock(&proc.lock);
        *err = client_open(0);
        if (*err == 0) {
                proc.client.renewed = renewed;
                *err = unetd_stack_by_cookie(&proc.client, cookie, &id, &fds);
        }
        if (*err == 0 && (u = with_id(id)) != NULL)
                unetd_stack_fds_close(&fds);
        else if (*err == 0)
                u = map_another(&fds, id, err);
        pthread_mutex_unlock(&proc.lock);
        return u;
}

/* ---- numbers that are the library's own ---- */

static bool chan_owns(const struct unetd_chan *c, int fd)
{
        return fd == c->tx || fd == c->rx || fd == c->peer_bell || fd == c->peer_leader ||
               fd == c->peer_keeper || fd == c->mem || fd == c->xsk || fd == c->packet ||
               fd == c->ring || fd == c->sender || fd == c->book;
}

static bool stack_owns(const struct ustack *u, int fd)
{
        const struct unetd_stack_fds *f = &u->fds;

        if (fd == f->state || fd == f->bell || fd == f->leader || fd == f->ring_leader ||
            fd == f->keeper || fd == f->ring_keeper)
                return true;
        if (ustack_links_own(u, fd))
                return true;
        for (uint32_t i = 0; i < READ_ONCE(u->nspent); i++)
                if (fd == READ_ONCE(u->spent[i]))
                        return true;
        for (uint32_t k = 0; k < u->s.nchan; k++)
                if (chan_owns(&u->chan_fds[k], fd))
                        return true;
        return false;
}

bool usock_owns_fd(int fd)
{
        uint32_t n = atomic_load_explicit(&proc.nstacks, memory_order_acquire);

        if (fd <= 2 || n == 0)
                return false;
        if (fd == proc.client.daemon.fd || fd == proc.client.keeper.fd || usock_wait_owns_fd(fd) ||
            fd == atomic_load_explicit(&bell_caller, memory_order_relaxed))
                return true;
        for (uint32_t i = 0; i < n; i++)
                if (stack_owns(proc.stack[i], fd))
                        return true;
        return false;
}
