/*
 * A program may clear its environment, before its first socket or later. It, and its children, keep
 * the unetd that they began with.
 */
#include "unetd/client/variables.h"

#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "base/base.h"

static char room[2048];
static const char *kept[16];
static unsigned nkept;

__attribute__((constructor)) static void keep(void)
{
        size_t used = 0;

        for (char **e = getauxval(AT_SECURE) ? NULL : environ; e && *e; e++) {
                size_t n = strlen(*e) + 1;

                if (strncmp(*e, "UNET_", 5) != 0 || n > sizeof(room) - used ||
                    nkept == ARRAY_LEN(kept))
                        continue;
                kept[nkept++] = memcpy(room + used, *e, n);
                used += n;
        }
}

const char *unetd_variable_at_start(unsigned n)
{
        return n < nkept ? kept[n] : NULL;
}

const char *unetd_variable(const char *name)
{
        const char *value = getenv(name);
        size_t n = strlen(name);

        for (unsigned i = 0; !value && i < nkept; i++)
                if (strncmp(kept[i], name, n) == 0 && kept[i][n] == '=')
                        value = kept[i] + n + 1;
        return value;
}
