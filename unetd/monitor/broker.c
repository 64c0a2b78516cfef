/* See broker.h. */
#include "unetd/monitor/broker.h"

#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <pwd.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/base.h"
#include "unetd/loop/log.h"
#include "unetd/monitor/broker_calls.h"

/* A child for each user whose descriptors are being closed (daemon/discard.c). */
#define PROCESSES 4096

/* Sets capabilities by the system call, which libc does not have: no library for one capability. */
static int set_capabilities(uint32_t low)
{
        struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};
        struct __user_cap_data_struct d[_LINUX_CAPABILITY_U32S_3] = {
                {.effective = low, .permitted = low}};

        return syscall(SYS_capset, &h, d) == 0 ? 0 : -errno;
}

static int become_user(bool agent)
{
        const struct passwd *pw = getpwnam(BROKER_USER);
        uid_t uid = pw && pw->pw_uid != 0 ? pw->pw_uid : BROKER_UID;
        gid_t gid = pw && pw->pw_uid != 0 ? pw->pw_gid : BROKER_UID;

        if (prctl(PR_SET_KEEPCAPS, agent, 0, 0, 0) < 0 || setgroups(0, NULL) < 0 ||
            setresgid(gid, gid, gid) < 0 || setresuid(uid, uid, uid) < 0)
                return -errno;
        return set_capabilities(agent ? 1u << CAP_NET_BIND_SERVICE : 0);
}

static int limit(void)
{
        static const struct {
                int what;
                rlim_t most;
        } limits[] = {{RLIMIT_CORE, 0},   {RLIMIT_MEMLOCK, 0}, {RLIMIT_MSGQUEUE, 0},
                      {RLIMIT_RTPRIO, 0}, {RLIMIT_NICE, 0},    {RLIMIT_NPROC, PROCESSES}};

        for (size_t i = 0; i < ARRAY_LEN(limits); i++)
                if (setrlimit(limits[i].what, &(struct rlimit){limits[i].most, limits[i].most}) < 0)
                        return -errno;
        return 0;
}

/* The signal of a parent's death is forgotten with a change of user. */
static int tie(pid_t monitor)
{
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
                return -errno;
        return getppid() == monitor ? 0 : -ESRCH;
}

int broker_become(pid_t monitor, bool agent)
{
        int r = limit();

        if (r == 0 && chdir("/") < 0)
                r = -errno;
        if (r == 0)
                r = become_user(agent);
        if (r == 0)
                r = tie(monitor);
        if (r == 0 &&
            (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0))
                r = -errno;
        if (r < 0)
                log_line("no broker without privilege: %s", strerror(-r));
        return r < 0 ? r : broker_calls_filter();
}
