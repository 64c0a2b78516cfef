/* Whether the processes of a stack have room for one more channel: address space, and numbers of
 * descriptors. Somebody may have set a limit from outside (prlimit(1)): what holds is what the
 * kernel says now. */
#include "sock/keeper/keeper_view.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "unetd/client/wire.h"

/* What a message brings, one to move it by, and the keeper to ask. */
#define NUMBERS_LEAST (UNETD_CHAN_FDS + 3u)
/* A look at descriptors that took so long is followed by a rest, so many times as long. */
#define LOOK_LONG  NS_PER_MS
#define REST_TIMES 9
#define REST_MOST  (10 * NS_PER_S)

static bool any_full(const struct stack_state *st)
{
        for (uint32_t i = 0, n = stack_procs(st); i < n; i++)
                if (atomic_load(&st->proc[i].full) != 0)
                        return true;
        return false;
}

/* A limit of process `i`; false: there is no process, or it is not told. */
static bool limit_of(const struct stack_state *st, uint32_t i, int what, uint32_t *pid,
                     struct rlimit *rl)
{
        *pid = atomic_load_explicit(&st->proc[i].pid, memory_order_relaxed);
        return *pid != 0 && *pid != STACK_FORKING && prlimit((pid_t)*pid, what, NULL, rl) == 0;
}

/* ---- address space ---- */

/* Mapped now; where that cannot be read, it is nothing. */
static uint64_t mapped_by(uint32_t pid)
{
        char path[32];
        uint64_t pages = 0;
        FILE *f;

        snprintf(path, sizeof path, "/proc/%u/statm", pid);
        f = fopen(path, "re");
        if (f == NULL)
                return 0;
        if (fscanf(f, "%" SCNu64, &pages) != 1)
                pages = 0;
        fclose(f);
        return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* On a channel that a process cannot map nobody answers. */
static bool has_space(const struct stack_state *st, uint64_t bytes)
{
        struct rlimit rl;
        uint32_t pid;

        for (uint32_t i = 0, n = stack_procs(st); i < n; i++)
                if (limit_of(st, i, RLIMIT_AS, &pid, &rl) && rl.rlim_cur != RLIM_INFINITY &&
                    rl.rlim_cur < mapped_by(pid) + bytes)
                        return false;
        return true;
}

/* Where a limit bounds the address space of a process, what its peers' memory would take is the
 * program's. */
bool keeper_may_name(const struct keeper_view *v)
{
        const struct stack_state *st = v->u.s.st;
        struct rlimit rl;
        uint32_t pid;

        for (uint32_t i = 0, n = stack_procs(st); i < n; i++)
                if (limit_of(st, i, RLIMIT_AS, &pid, &rl) && rl.rlim_cur != RLIM_INFINITY)
                        return false;
        return true;
}

/* ---- descriptors ---- */

/* So many descriptors its table has room for, and no more are open; 0: that cannot be read. */
static uint64_t table_of(uint32_t pid)
{
        char path[32], line[128];
        uint64_t n = 0;
        FILE *f;

        snprintf(path, sizeof path, "/proc/%u/status", pid);
        f = fopen(path, "re");
        if (f == NULL)
                return 0;
        while (fgets(line, sizeof line, f) != NULL && sscanf(line, "FDSize: %" SCNu64, &n) != 1)
                ;
        fclose(f);
        return n;
}

/* A kernel before 6.2 does not say how many are open. It takes a look at each to count them. */
static bool opens_at_most(uint32_t pid, uint64_t most)
{
        char path[32];
        struct stat st;
        uint64_t n;
        DIR *d;

        snprintf(path, sizeof path, "/proc/%u/fd", pid);
        if (stat(path, &st) == 0 && st.st_size > 0)
                return (uint64_t)st.st_size <= most;
        n = table_of(pid);
        if (n != 0 && n <= most)
                return true;
        d = opendir(path);
        if (d == NULL)
                return true;
        for (n = 0; n <= most && readdir(d) != NULL;)
                n++;
        closedir(d);
        return n <= most;
}

/* Of processes that use up the numbers of their hard limit: none are kept for channels to come. Who
 * may have hardly any, as in a sandbox, is short of them when he needs one (ustack_lack_numbers()).
 */
static bool look_at_numbers(const struct stack_state *st)
{
        struct rlimit rl;
        uint32_t pid;

        for (uint32_t i = 0, n = stack_procs(st); i < n; i++)
                if (limit_of(st, i, RLIMIT_NOFILE, &pid, &rl) && !fd_leaves_above(&rl) &&
                    rl.rlim_cur >= NUMBERS_LEAST &&
                    !opens_at_most(pid, rl.rlim_cur - NUMBERS_LEAST))
                        return false;
        return true;
}

static nstime spent(void)
{
        struct timespec ts;

        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
        return ts.tv_sec * NS_PER_S + ts.tv_nsec;
}

/* Others may ask for channels as often as they like. */
static bool has_numbers(struct keeper_view *v)
{
        nstime now = ustack_now(), took = spent();

        if (now < v->numbers_again)
                return v->numbers;
        v->numbers = look_at_numbers(v->u.s.st);
        took = spent() - took;
        if (took >= LOOK_LONG)
                v->numbers_again = now + MIN((REST_TIMES + 1) * took, REST_MOST);
        return v->numbers;
}

/* ---- a channel ---- */

bool keeper_has_room(struct keeper_view *v, uint32_t slot, const struct unetd_chan *chan)
{
        const struct stack_state *st = v->u.s.st;

        if (slot >= STACK_CHANS || slot >= READ_ONCE(st->chan_room))
                return false;
        if (atomic_load(&st->chan[slot].state) != CHAN_FREE)
                return true;
        return !any_full(st) && has_numbers(v) &&
               has_space(st, SHM_REGION_BYTES(chan->tx_geom) + SHM_REGION_BYTES(chan->rx_geom));
}
