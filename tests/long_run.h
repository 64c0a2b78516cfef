/* What ./check --long plays and ./check leaves out (UNET_LONG=1): more seeds, rounds and messages
 * of the same kind. */
#ifndef TESTS_LONG_RUN_H
#define TESTS_LONG_RUN_H

#include <stdbool.h>
#include <stdlib.h>

static inline bool long_run(void)
{
        return getenv("UNET_LONG") != NULL;
}

#endif
