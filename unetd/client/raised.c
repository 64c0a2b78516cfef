/* See raised.h. */
#include "unetd/client/raised.h"

#include <linux/capability.h>
#include <sys/auxv.h>

#include "unetd/client/sys.h"

/* Returns true if the IDs differ: a process that put its rights aside can take them back by its
 * saved ID. */
static bool ids_differ(long nr)
{
        uint32_t real = 0, effective = 0, saved = 0;

        return SYS_CALL(nr, &real, &effective, &saved, 0, 0, 0) == 0 &&
               (real != effective || real != saved);
}

static bool has_caps(void)
{
        struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};
        struct __user_cap_data_struct v[_LINUX_CAPABILITY_U32S_3] = {{.permitted = 0}};

        return SYS_CALL(SYS_capget, &h, v, 0, 0, 0, 0) == 0 &&
               (v[0].permitted | v[1].permitted) != 0;
}

/* A security module may say so (AT_SECURE) of a program that has no more rights than before. */
bool process_is_raised(void)
{
        return getauxval(AT_SECURE) != 0 &&
               (ids_differ(SYS_getresuid) || ids_differ(SYS_getresgid) ||
                (sys_geteuid() != 0 && has_caps()));
}
