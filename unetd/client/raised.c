/* See raised.h. */
#include "unetd/client/raised.h"

#include <linux/capability.h>
#include <string.h>
#include <sys/auxv.h>

#include "unetd/client/sys.h"
#include "unetd/client/variables.h"

/* Returns true if the IDs differ: a process that put its rights aside can take them back by its
 * saved ID. */
static bool ids_differ(long nr)
{
        uint32_t real = 0, effective = 0, saved = 0;

        return SYS_CALL(nr, &real, &effective, &saved, 0, 0, 0) == 0 &&
               (real != effective || real != saved);
}

/* Beside those of `mask`. */
static bool has_caps_but(uint32_t mask)
{
        struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};
        struct __user_cap_data_struct v[_LINUX_CAPABILITY_U32S_3] = {{.permitted = 0}};

        return SYS_CALL(SYS_capget, &h, v, 0, 0, 0, 0) == 0 &&
               ((v[0].permitted & ~mask) | v[1].permitted) != 0;
}

/* In another one capabilities are none that its user has not: he owns it. */
static bool in_first_user_namespace(void)
{
        char name[32];
        int n = (int)SYS_CALL(SYS_readlink, "/proc/self/ns/user", name, sizeof name - 1, 0, 0, 0);

        name[n > 0 ? n : 0] = 0;
        return n <= 0 || strcmp(name, "user:[4026531837]") == 0;
}

/* By a service manager (AmbientCapabilities=), or kept as it gave up root (PR_SET_KEEPCAPS). A port
 * is all that CAP_NET_BIND_SERVICE gives. */
static bool has_more_caps(void)
{
        return sys_geteuid() != 0 && has_caps_but(1u << CAP_NET_BIND_SERVICE) &&
               in_first_user_namespace() && !unetd_variable("UNET_ACROSS_USERS");
}

/* A security module may say so (AT_SECURE) of a program that has no more rights than before. */
bool process_is_raised(void)
{
        return (getauxval(AT_SECURE) != 0 &&
                (ids_differ(SYS_getresuid) || ids_differ(SYS_getresgid) ||
                 (sys_geteuid() != 0 && has_caps_but(0)))) ||
               has_more_caps();
}
