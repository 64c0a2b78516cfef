/*
 * RLIMIT_AS is about the program's memory. What the library has mapped in its address space comes
 * on top. When a program that has a stack limits itself, as much is added to what the kernel is
 * told, and taken off again from what the program is told. A limit that is there before the first
 * socket decides whether there is a stack at all (sock/attach/ustack_room.c). One of descriptors is
 * the program's as it is. mlockall() spares what is ours (sock/attach/ustack_map.c).
 *
 * A new image of this process begins with the limit that the program set, unless sockets survive,
 * with which it needs what we need. Children of posix_spawn() have ours.
 */
#include "sock/shim/privilege.h"
#include "sock/shim/shim.h"

#include <sys/resource.h>
#include <unistd.h>

static struct {
        bool set;
        struct rlimit asked; /* by the program */
        struct rlimit told;  /* to the kernel */
} as;                        /* shim.lock */

static int kernel_as(const struct rlimit *set, struct rlimit *was)
{
        return (int)sys4(SYS_prlimit64, 0, RLIMIT_AS, set, was);
}

static rlim_t more(rlim_t v, uint64_t ours)
{
        return v > RLIM_INFINITY - ours ? RLIM_INFINITY : v + ours;
}

/* As the program has set it, unless somebody has changed it since. */
static int get_as(struct rlimit *rl)
{
        int r = kernel_as(NULL, rl);

        if (r == 0 && as.set && rl->rlim_cur == as.told.rlim_cur &&
            rl->rlim_max == as.told.rlim_max)
                *rl = as.asked;
        return r;
}

static int set_as(const struct rlimit *new)
{
        uint64_t ours = usock_address_space(new->rlim_cur != RLIM_INFINITY);
        struct rlimit was, real, told = {more(new->rlim_cur, ours), more(new->rlim_max, ours)};
        int r = get_as(&was);

        assert(shim_locked());
        if (r < 0 || kernel_as(NULL, &real) < 0)
                return r;
        if (new->rlim_cur > new->rlim_max)
                return -EINVAL;
        if (new->rlim_max <= was.rlim_max) { /* which may be done */
                told.rlim_max = MIN(told.rlim_max, real.rlim_max);
                told.rlim_cur = MIN(told.rlim_cur, told.rlim_max);
        }
        r = kernel_as(&told, NULL);
        if (r < 0)
                return r;
        as.asked = *new;
        as.told = told;
        as.set = true;
        return 0;
}

/* Whether the call is about this process's RLIMIT_AS and there is a stack; other calls
 * are libc's. */
static bool is_ours(pid_t pid, int what)
{
        return what == RLIMIT_AS && shim.size && !usock_tls.inside &&
               (pid == 0 || pid == getpid()) && (as.set || usock_address_space(false) != 0);
}

static int change(const struct rlimit *new, struct rlimit *old)
{
        struct rlimit was, to;
        ssize_t r = 0;

        if (new && !user_copy(&to, new, sizeof(to)))
                r = -EFAULT;
        usock_enter();
        pthread_mutex_lock(&shim.lock);
        if (r == 0 && old)
                r = get_as(&was);
        if (r == 0 && new)
                r = set_as(&to);
        pthread_mutex_unlock(&shim.lock);
        usock_leave();
        if (r == 0 && old && !user_copy(old, &was, sizeof(was)))
                r = -EFAULT;
        result_again(&r);
        return (int)r;
}

static void before(pid_t pid, int what, const struct rlimit *new)
{
        if (what == RLIMIT_NOFILE && new && (pid == 0 || pid == getpid()) &&
            user_read_range(new, sizeof(*new)) && new->rlim_max == 0)
                privilege_before_no_numbers();
}

int h_prlimit(pid_t pid, int what, const struct rlimit *new, struct rlimit *old)
{
        before(pid, what, new);
        return is_ours(pid, what) ? change(new, old) : REAL(prlimit)(pid, what, new, old);
}
HOOK_ALSO(prlimit, prlimit64);

static UNCHECKED int plain(int what, const struct rlimit *new, struct rlimit *old)
{
        long r = sys4(SYS_prlimit64, 0, what, new, old);

        if (r >= 0)
                return 0;
        errno = (int)-r;
        return -1;
}

UNCHECKED int h_setrlimit(int what, const struct rlimit *new)
{
        if (!shim.size)
                return plain(what, new, NULL);
        before(0, what, new);
        return new &&is_ours(0, what) ? change(new, NULL) : REAL(setrlimit)(what, new);
}
HOOK_ALSO(setrlimit, setrlimit64);

UNCHECKED int h_getrlimit(int what, struct rlimit *old)
{
        if (!shim.size)
                return plain(what, NULL, old);
        return old && is_ours(0, what) ? change(NULL, old) : REAL(getrlimit)(what, old);
}
HOOK_ALSO(getrlimit, getrlimit64);

int h_mlockall(int flags)
{
        ssize_t r;

        if (usock_tls.inside)
                return REAL(mlockall)(flags);
        usock_enter();
        r = usock_lock_memory(flags);
        usock_leave();
        result_again(&r);
        return (int)r;
}

/* ---- around an exec with which nothing of ours survives ---- */

void limits_for_image(void)
{
        struct rlimit rl, image;

        if (!as.set || get_as(&rl) < 0 || rl.rlim_cur != as.asked.rlim_cur)
                return;
        image = (struct rlimit){as.asked.rlim_cur, as.told.rlim_max};
        kernel_as(&image, NULL);
}

/* There was none: the process goes on. */
void limits_go_on(void)
{
        struct rlimit rl;

        if (as.set && kernel_as(NULL, &rl) == 0 && rl.rlim_cur == as.asked.rlim_cur &&
            rl.rlim_max == as.told.rlim_max)
                kernel_as(&as.told, NULL);
}
