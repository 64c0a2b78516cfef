/* See raised.h. */
#include "unetd/client/raised.h"

#include <linux/capability.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

#include "unetd/client/sys.h"
#include "unetd/client/variables.h"

/* Returns true if the IDs differ: a process that put its rights aside can take them back by its
 * saved ID. */
static bool ids_differ(long nr)
{
        uint32_t real = 0, effective = 0, saved = 0;

        return sys3(nr, &real, &effective, &saved) == 0 && (real != effective || real != saved);
}

/* Beside those of `mask`. */
static bool has_caps_but(uint32_t mask)
{
        struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};
        struct __user_cap_data_struct v[_LINUX_CAPABILITY_U32S_3] = {{.permitted = 0}};

        return sys2(SYS_capget, &h, v) == 0 && ((v[0].permitted & ~mask) | v[1].permitted) != 0;
}

/* SOME: by a map of several lines, or none as well. UNKNOWN: there is no /proc. */
enum users { UNKNOWN, ONE, SOME, ALL };

/* Returns how many users this user namespace has. Only the first one has all. */
static enum users users_of_namespace(void)
{
        char map[64], *at = map;
        int fd = sys_open("/proc/self/uid_map", O_RDONLY | O_CLOEXEC);
        long n = fd >= 0 ? sys_read(fd, map, sizeof map - 1) : 0;
        unsigned long count;

        if (fd >= 0)
                sys_close(fd);
        map[n > 0 ? n : 0] = 0;
        strtoul(at, &at, 10); /* the first of them here, and there */
        strtoul(at, &at, 10);
        count = strtoul(at, &at, 10);
        if (fd < 0)
                return UNKNOWN;
        if (strcmp(at, "\n") != 0)
                return SOME;
        return count == 1 ? ONE : count == UINT32_MAX ? ALL : SOME;
}

#define OVERFLOW 65534u /* user_namespaces(7) */

bool process_may_take_for(uint32_t uid)
{
        enum users u = uid == OVERFLOW ? users_of_namespace() : ALL;

        return u == ALL || u == UNKNOWN;
}

/* By a service manager (AmbientCapabilities=), or kept as it gave up root (PR_SET_KEEPCAPS). A port
 * is all that CAP_NET_BIND_SERVICE gives. Who is alone in his user namespace owns it, and has its
 * capabilities anyway. */
static bool has_more_caps(void)
{
        return has_caps_but(1u << CAP_NET_BIND_SERVICE) && users_of_namespace() != ONE;
}

/* It shows a user and can become another one again (seteuid(2)): the stack would be of the user who
 * is shown, and the other one would believe what that one's processes write there. */
static bool has_more(void)
{
        return sys_geteuid() != 0 && (ids_differ(SYS_getresuid) || has_more_caps()) &&
               !unetd_variable("UNET_ACROSS_USERS");
}

/* A security module may say so (AT_SECURE) of a program that has no more rights than before. */
bool process_is_raised(void)
{
        return (getauxval(AT_SECURE) != 0 &&
                (ids_differ(SYS_getresuid) || ids_differ(SYS_getresgid) ||
                 (sys_geteuid() != 0 && has_caps_but(0)))) ||
               has_more();
}
