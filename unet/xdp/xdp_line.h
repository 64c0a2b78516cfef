/* The one line in which the makers of AF_XDP sockets say what they chose, or what failed. */
#ifndef UNET_XDP_LINE_H
#define UNET_XDP_LINE_H

#include <stdarg.h>
#include <stdio.h>

#include "unet/xdp/xdp_open.h"

static inline void __attribute__((format(printf, 2, 3))) say(char line[XDP_LINE_MAX], const char *fmt, ...)
{
        va_list ap;

        va_start(ap, fmt);
        vsnprintf(line, XDP_LINE_MAX, fmt, ap);
        va_end(ap);
}

#endif
