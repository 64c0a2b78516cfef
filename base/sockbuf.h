/* Ranges of memory handed to the socket layer to copy into or out of, while the stack's lock is
 * not held. */
#ifndef BASE_SOCKBUF_H
#define BASE_SOCKBUF_H

#include "base/base.h"

struct span {
        uint8_t *ptr;
        uint32_t len;
};

#endif
