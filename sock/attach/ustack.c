/*
 * A process's stacks: making one, mapping somebody else's, and the list of all. The lock:
 * ustack_lock.c; unetd: ustack_daemon.c; channels: ustack_chan.c; interfaces and addresses:
 * ustack_iface.c.
 */
#include "sock/attach/handle.h"
#include "sock/attach/ustack.h"
#include "sock/attach/ustack_chan.h"
#include "sock/attach/ustack_daemon.h"
#include "sock/attach/ustack_directory.h"
#include "sock/attach/ustack_levels.h"
#include "sock/attach/ustack_link.h"
#include "sock/attach/ustack_wake.h"
#include "sock/usock_process.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "base/sandbox.h"
#include "base/sys.h"
#include "unet/bell_fd.h"
#include "unetd/client/sys.h"
#include "unetd/client/wire.h"

#define SLOT_TRIES      100   /* as many as a child of fork() makes */
#define REFUSED_MOST_MS 60000 /* after a refusal, until unetd is asked again */

/* Under the client's lock, but for what is atomic. */
static struct {
        struct ustack *stack[USTACKS_MAX];
        _Atomic uint32_t nstacks;
        _Atomic pid_t pid; /* who has come to them */
        /* 1; 0 in a child with memory of its own that has not come to them. NULL: not known. */
        _Atomic uint32_t *_Atomic here;
        _Atomic(struct ustack *) mine;
        int64_t ask_from; /* ms; unetd gave none: it is not asked before */
        int refused;      /* what it said */
} proc;

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

        *err = room == 0 ? -EOVERFLOW : ustack_client_open(0);
        if (*err != 0)
                return NULL;
        u = make(room, err);
        if (u == NULL)
                return NULL;
        *err = unetd_stack_new(ustack_client_held(), &u->fds, u->slot, &u->id);
        u->s.st->id = u->id;
        u->s.st->unetd = ustack_client_held()->instance;
        if (*err == 0) {
                atomic_store(&u->s.st->proc[u->slot].pid, (uint32_t)ustack_client_held()->self);
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
        ustack_client();
        u = proc.mine;
        *err = -ENOSPC;
        if (u == NULL && proc.nstacks < USTACKS_MAX) {
                u = ask_for_one(err);
                if (u != NULL) {
                        remember(u);
                        atomic_store_explicit(&proc.mine, u, memory_order_release);
                }
        }
        ustack_client_done();
        return u;
}

void ustack_disown(struct ustack *u)
{
        u->id = 0;
        if (proc.mine == u)
                atomic_store_explicit(&proc.mine, NULL, memory_order_release);
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
        ustack_client_leave();
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
        ustack_client_forsaken();
        forget_all(let_go);
        *proc.here = 1;
}

void ustack_forked(void)
{
        atomic_store(&proc.pid, getpid());
        if (proc.here != NULL)
                *proc.here = 1;
        ustack_client_done(); /* locked before the fork, by the thread that is left */
}

uint32_t ustack_all(struct ustack *out[USTACKS_MAX])
{
        uint32_t n = atomic_load_explicit(&proc.nstacks, memory_order_acquire);

        memcpy(out, proc.stack, n * sizeof *out);
        return n;
}

struct ustack *ustack_nth(uint32_t i)
{
        return i < atomic_load_explicit(&proc.nstacks, memory_order_acquire) ? proc.stack[i] : NULL;
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

static int map_by(struct ustack *u, uint32_t id, const struct unetd_stack_fds *fds)
{
        long bytes = sys3(SYS_lseek, fds->state, 0, SEEK_END);
        int err;

        u->fds = *fds;
        u->id = id;
        if (bytes <= (long)FRAME_NAMED_BYTES)
                return bytes < 0 ? (int)bytes : -EPROTO;
        u->bytes = (size_t)bytes - FRAME_NAMED_BYTES;
        err = map_state(u);
        return err == 0 ? view(u) : err;
}

int ustack_attach(struct ustack *u, uint32_t id, const struct unetd_stack_fds *fds)
{
        int err = map_by(u, id, fds);

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
                err = slot < 0 ? slot
                               : unetd_proc_add(ustack_client_held(), u->id, (uint32_t)slot, 0);
                if (err == 0)
                        u->slot = (uint32_t)slot;
                if (slot >= 0)
                        atomic_store(&u->s.st->proc[slot].pid,
                                     err == 0 ? (uint32_t)ustack_client_held()->self : 0);
                if (err != -EBUSY && err != -ENOSPC)
                        break;
                sys4(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &ms, NULL);
        }
        return err;
}

/* Maps a stack whose descriptors the keeper gave; takes them. */
static struct ustack *map_given(struct unetd_stack_fds *fds, uint32_t id, int *err)
{
        struct ustack *u = calloc(1, sizeof *u);

        *err = -ENOMEM;
        if (u == NULL)
                return unetd_stack_fds_close(fds), NULL;
        u->wakes_late = true;
        *err = map_by(u, id, fds);
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

        ustack_client();
        *err = ustack_client_open(0);
        if (*err == 0) {
                *err = unetd_stack_by_cookie(ustack_client_held(), cookie, &id, &fds);
        }
        if (*err == 0 && (u = with_id(id)) != NULL)
                unetd_stack_fds_close(&fds);
        else if (*err == 0)
                u = map_another(&fds, id, err);
        ustack_client_done();
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
        const struct unetd_client *c = ustack_client_held();
        uint32_t n = atomic_load_explicit(&proc.nstacks, memory_order_acquire);

        if (fd <= 2 || n == 0)
                return false;
        if (fd == c->daemon.fd || fd == c->keeper.fd || usock_wait_owns_fd(fd) ||
            fd == atomic_load_explicit(&bell_caller, memory_order_relaxed))
                return true;
        for (uint32_t i = 0; i < n; i++)
                if (stack_owns(proc.stack[i], fd))
                        return true;
        return false;
}
