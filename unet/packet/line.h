/* The one line in which whoever opens an interface says what it chose, or what failed. */
#ifndef UNET_PACKET_LINE_H
#define UNET_PACKET_LINE_H

#include <stdarg.h>
#include <stdio.h>

#define XDP_LINE_MAX 200 /* bytes; no newline */

static inline void __attribute__((format(printf, 2, 3)))
say(char line[XDP_LINE_MAX], const char *fmt, ...)
{
        va_list ap;

        va_start(ap, fmt);
        vsnprintf(line, XDP_LINE_MAX, fmt, ap);
        va_end(ap);
}

#endif
